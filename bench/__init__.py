"""Benchmarks: compare Bridle with the official SDK and a minimal driver (``python -m bench``)."""
