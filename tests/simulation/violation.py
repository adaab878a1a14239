"""What is raised when a promise is broken."""

from __future__ import annotations


class Violation(AssertionError):
    """The engine broke a promise."""
