"""The timeline of a recording: its frames, its spans of time, and the HTML page."""
