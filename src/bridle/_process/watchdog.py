"""The watchdog: a small process that kills the CLIs of this process if this process is killed.

All sessions share one watchdog. It starts with the first session and ends ten seconds after the
last. It reads from a pipe whose only writing end is in this process. So it reads the end of the
pipe when this process ends, also by ``kill -9``. Then it kills every process tree on its list and
removes their private files.

:func:`bridle._process.tree.watch` is the program of the watchdog; this module starts it and keeps
its list. If the watchdog cannot be started, sessions work without it, with a warning.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading

from bridle._process import tree as tree_module
from bridle._process.tree import Tree

# The module is imported from its directory: as a part of the package it would load the package.
_PROGRAM = "import sys; sys.path.append(sys.argv[2]); import tree; tree.watch(0)"
_NAME = "bridle-watchdog"  # for lists of processes that show arguments

# The watchdog inherits these signals blocked: a signal to this program must not end it.
_BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_EXIT_TIMEOUT = 5.0
"""Seconds that the exit of this program waits for the watchdog."""

_log = logging.getLogger("bridle")


class Watchdog:
    """The side of this process. It starts the watchdog when there is a tree to watch."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # Several threads use it, and a finalizer may run while a thread holds the lock.
        self._lock = threading.RLock()
        self._records: dict[str, bytes] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._resting: list[subprocess.Popen[bytes]] = []
        self._pipe = -1
        self._is_useless = False

    @property
    def pid(self) -> int | None:
        """The process id of the watchdog, if one was started."""
        return self._process.pid if self._process else None

    def guard(self, tree: Tree, directory: str) -> None:
        """Have the watchdog kill this tree and remove this directory when this process ends.

        An empty path means that there is no directory. Called before the CLI is started, so that it
        is never unwatched, and again when its process id is known.
        """
        text = f"+ {tree.mark} {tree.pid} {tree.started} {tree.label} {directory}\0"
        with self._lock:
            self._records[tree.mark] = record = os.fsencode(text)
            if not self._is_useless and not self._tell(record):
                self._start()

    def release(self, tree: Tree) -> None:
        """Remove a tree from the list, because nothing is left of it."""
        with self._lock:
            if self._records.pop(tree.mark, None):
                self._tell(os.fsencode(f"- {tree.mark}\0"))

    def end(self, tree: Tree) -> None:
        """Have the watchdog kill a tree now, because this process could not."""
        with self._lock:
            if tree.mark in self._records:
                self._tell(os.fsencode(f"! {tree.mark}\0"))

    def rest(self) -> bool:
        """Let the watchdog end if its list is empty. Return False while one has not ended yet."""
        with self._lock:
            if not self._records and self._pipe >= 0:
                if self._process:
                    self._resting.append(self._process)
                self._process = None
                self._hang_up(0.0)
            # Waiting would hold up the caller if the watchdog does not respond.
            self._resting = [process for process in self._resting if process.poll() is None]
            return not self._resting

    def close(self) -> None:
        """Have the watchdog end all trees now, because this program ends. Wait for it."""
        with self._lock:
            self._is_useless = True
            self._hang_up(_EXIT_TIMEOUT)

    def forget(self) -> None:
        """Forget the watchdog in a forked child. It belongs to the parent."""
        if self._pipe >= 0:
            with contextlib.suppress(OSError):
                os.close(self._pipe)
        for process in (self._process, *self._resting):
            if process:
                process.returncode = 0  # it is not a child of this process
        self._begin()

    def _tell(self, record: bytes) -> bool:
        """Send a record, whole or not at all. Return False if there is no watchdog."""
        if self._pipe < 0:
            return False
        try:
            os.write(self._pipe, record)
        except BlockingIOError:  # closing the pipe would make it kill all trees
            _log.warning("The watchdog does not read its pipe (pid %s)", self.pid)
        except OSError:  # it was killed, or other code of this program has closed the pipe
            self._hang_up(1.0)
            return False
        return True

    def _start(self) -> None:
        """Start a watchdog, or a new one if it was killed, and send it the whole list."""
        code = self._process.returncode if self._process else None
        if code is not None and code >= 0:
            self._give_up(f"it ended by itself with exit code {code}")
            return
        try:
            self._process, self._pipe = _launch()
        except OSError as error:
            self._give_up(str(error))
            return
        for record in list(self._records.values()):
            self._tell(record)

    def _give_up(self, reason: str) -> None:
        self._is_useless = True
        _log.warning("No watchdog: if this program is killed, the CLI may survive it (%s)", reason)

    def _hang_up(self, timeout: float) -> None:
        """Close the pipe and wait so many seconds for the watchdog to end."""
        if self._pipe >= 0:
            with contextlib.suppress(OSError):  # other code of this program has closed it
                os.close(self._pipe)
            self._pipe = -1
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)


def _launch() -> tuple[subprocess.Popen[bytes], int]:
    """Start a watchdog. Return it and the writing end of its pipe."""
    interpreter = _interpreter()
    directory = os.path.dirname(os.path.abspath(tree_module.__file__))
    reading, writing = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        os.set_blocking(writing, False)
        process = subprocess.Popen(
            [interpreter, "-I", "-S", "-B", "-c", _PROGRAM, _NAME, directory],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        os.close(writing)
        raise
    finally:
        os.close(reading)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return process, writing


def _interpreter() -> str:
    """Return the path of a Python interpreter.

    If Python is embedded in another program, `sys.executable` is that program.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, os.path.join(sys.base_exec_prefix, "bin", version)):
        is_python = os.path.basename(path or "").startswith(("python", "pypy"))
        if is_python and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("there is no Python interpreter to run it")


shared = Watchdog()
"""The watchdog of this process."""

atexit.register(shared.close)
os.register_at_fork(after_in_child=shared.forget)
