"""The ways in: run, query, sessions. Thin: policy is the core's, carrying out is the shell's."""
