"""Requests and prompts to the CLI."""
