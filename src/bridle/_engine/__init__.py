"""The protocol of one session, as pure functions of its inputs: no I/O, clock, tasks or logging."""
