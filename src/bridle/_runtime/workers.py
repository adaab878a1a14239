"""Daemon threads for callbacks that are plain ``def`` functions.

Such a function must not block the event loop, and a function that never returns cannot be stopped.
So it runs in a thread that is never joined, neither after its deadline nor when the interpreter
exits. (``concurrent.futures`` joins its threads at exit, and would hang there.) A thread waits ten
seconds for the next call, so that a busy session does not start one thread per call.
"""

from __future__ import annotations

import contextvars
import functools
import os
import threading
from collections import deque
from collections.abc import Callable

_LINGER = 10.0
"""Seconds after which a thread without work ends."""

Job = Callable[[], None]


class Worker:
    """One thread and its next job."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self.wake = threading.Event()

    def do(self, job: Job) -> None:
        """Run ``job`` in the thread, in a copy of the caller's context. Never blocks."""
        self._job = functools.partial(contextvars.copy_context().run, job)
        self.wake.set()

    def work(self) -> None:
        """Run the given job, if there is one."""
        job, self._job = self._job, None
        if job is not None:
            job()


class Workers:
    """Threads that are started when they are needed. Safe to use from any thread."""

    def __init__(self) -> None:
        self._idle: deque[Worker] = deque()
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Forget all threads: in a forked child there are none."""
        self._idle = deque()
        self._lock = threading.Lock()

    def run(self, job: Job) -> None:
        """Run ``job`` in a daemon thread, in a copy of the caller's context. Never blocks."""
        self.take().do(job)

    def take(self) -> Worker:
        """Return a thread that waits for a job. The caller must give it one.

        Raises:
            RuntimeError: no thread could be started.
        """
        with self._lock:
            if self._idle:
                return self._idle.pop()
        worker = Worker()
        name = "bridle-callback"
        threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True).start()
        return worker

    def _serve(self, worker: Worker) -> None:
        worker.wake.wait()
        while True:
            worker.wake.clear()
            worker.work()
            with self._lock:
                self._idle.append(worker)
            if not worker.wake.wait(_LINGER):
                with self._lock:
                    # It may have been taken just as the wait ran out.
                    if worker in self._idle:
                        self._idle.remove(worker)
                        return
                worker.wake.wait()


WORKERS = Workers()
"""The threads of this process. All sessions share them: an abandoned call outlives its session."""

os.register_at_fork(after_in_child=WORKERS.forget)
