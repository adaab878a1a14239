"""The program of the fake CLI. It uses only the standard library and relative imports.

It is imported under its own name, in a process without Bridle and without site-packages.
"""
