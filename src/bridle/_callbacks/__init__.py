"""Calls of the user's functions."""
