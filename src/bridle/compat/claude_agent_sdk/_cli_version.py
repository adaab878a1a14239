"""The version of the CLI inside the wheel of that version of the official SDK."""

__cli_version__ = "2.1.327"
