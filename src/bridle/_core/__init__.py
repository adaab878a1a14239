"""The protocol, and nothing else: no I/O, no clock, no task, no log, no randomness.

Everything here is a function of its inputs. Bytes, process exits, operations, callback results
and the time come in as arguments; what has to happen comes out as actions
(:mod:`bridle._core.actions`), which a shell performs.
"""
