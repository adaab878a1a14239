"""The CLI's requests: one handler per kind behind one table of open requests."""
