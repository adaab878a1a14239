"""The measured programs: each drives the same fake CLI, or the real one, in its own way."""
