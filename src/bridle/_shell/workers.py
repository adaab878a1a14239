"""Daemon threads for plain functions of the user's.

A plain ``def`` must not block the event loop, and nothing can stop one that never returns. So it
runs in a thread nobody ever joins: not when its deadline passes, not when the interpreter exits.
A thread that is done waits a while for the next call, so a busy session does not start one thread
per call. (``concurrent.futures`` joins its threads at exit, and would hang there.)
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable

_LINGER = 10.0
"""Seconds a thread without work stays around."""

Job = Callable[[], None]


class _Worker:
    """One thread and the slot its next job is put into."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.wake = threading.Event()


class Workers:
    """As many threads as there are jobs at once. Safe to use from any thread."""

    def __init__(self) -> None:
        self._idle: deque[_Worker] = deque()
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Know of no thread any more."""
        self._idle = deque()
        self._lock = threading.Lock()

    def run(self, job: Job) -> None:
        """Run ``job`` in a daemon thread, in a copy of the caller's context. Never blocks."""
        context = contextvars.copy_context()

        def in_context() -> None:
            context.run(job)

        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            worker = _Worker()
            worker.job = in_context
            name = "bridle-callback"
            threading.Thread(target=self._work, args=(worker,), name=name, daemon=True).start()
        else:
            worker.job = in_context
            worker.wake.set()

    def _work(self, worker: _Worker) -> None:
        while (job := worker.job) is not None:
            worker.job = None
            job()
            del job
            with self._lock:
                worker.wake.clear()
                self._idle.append(worker)
            if not worker.wake.wait(_LINGER):
                with self._lock:
                    # A job may have been handed over just as the wait ran out.
                    if worker in self._idle:
                        self._idle.remove(worker)
                        return
                worker.wake.wait()


WORKERS = Workers()
"""The threads of this process. They belong to no session: an abandoned call outlives its own."""

# The threads stay behind in the parent: a child begins with none.
os.register_at_fork(after_in_child=WORKERS.forget)
