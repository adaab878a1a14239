"""Questions to the user on the terminal."""
