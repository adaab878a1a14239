"""Changes of a running session: settings and MCP servers."""
