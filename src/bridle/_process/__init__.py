"""One CLI process and its tree: find it, start it, its pipes, locks and end."""
