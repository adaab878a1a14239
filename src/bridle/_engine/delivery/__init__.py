"""What readers get: which messages are kept for them, and in which form."""
