"""What the user's functions return, as JSON."""
