"""The entry points: `run`, `query` and sessions. They connect the core to the shell."""
