"""The types of the official SDK."""
