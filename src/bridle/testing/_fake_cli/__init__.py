"""The program of the fake CLI. The rule of this package: standard library only, relative imports.

It is imported under a name of its own, in a process that has neither Bridle nor site-packages.
"""
