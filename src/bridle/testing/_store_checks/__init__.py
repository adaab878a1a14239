"""What the checks of session stores have in common."""
