"""Messages of the CLI to MCP servers in the user's process."""
