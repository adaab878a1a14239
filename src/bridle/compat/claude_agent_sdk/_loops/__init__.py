"""The event loops of the program and of Bridle."""
