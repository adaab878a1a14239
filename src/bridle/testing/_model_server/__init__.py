"""The server of a scripted model."""
