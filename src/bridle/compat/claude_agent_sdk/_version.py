"""The version of the official SDK whose names this package has."""

__version__ = "0.2.184"
