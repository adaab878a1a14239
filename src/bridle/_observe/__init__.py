"""Observations, log records, warnings, and what they may show."""
