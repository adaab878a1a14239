"""Handle incoming requests: one handler per kind behind one table of open requests."""
