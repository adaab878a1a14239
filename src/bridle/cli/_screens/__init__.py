"""What the command shows."""
