"""One session on its CLI: its plan, and the connection that carries it out."""
