"""Implement the protocol as pure functions of their inputs, without I/O, clock, tasks or logging.

The shell passes in bytes, process exits, operations, callback results and the current time. The
engine returns actions (:mod:`bridle._core.actions`), which the shell performs.
"""
