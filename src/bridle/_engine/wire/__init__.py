"""Bytes of the CLI into typed lines, and values into lines."""
