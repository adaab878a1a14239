"""The tour of ``bridle demo``: its program, its scenes, and their output."""
