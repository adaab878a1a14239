"""Lines of recordings."""
