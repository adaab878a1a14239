"""Answers of a run: attempts and typed output."""
