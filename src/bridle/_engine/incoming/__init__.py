"""Requests of the CLI: hooks, permissions, tools, elicitations, dialogs."""
