"""Tasks, threads, timers and forks."""
