"""A recording as a timeline: what its frames are, what spans of time they make, and the page."""
