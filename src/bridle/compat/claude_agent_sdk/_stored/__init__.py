"""Stored sessions and session stores."""
