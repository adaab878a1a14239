"""Processes that are started in advance."""
