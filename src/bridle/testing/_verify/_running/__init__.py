"""Trying the promises, in a process of their own."""
