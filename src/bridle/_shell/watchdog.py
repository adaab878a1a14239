"""The watchdog: a small process that ends the CLIs of this process if this process is killed.

All sessions share one. It is started with the first session and ends ten seconds after the last.
It holds the reading end of a pipe whose only writing end is ours, so it reads the end of the pipe
when this process ends, by ``kill -9`` too; then it kills every process tree on its list and removes
their private files. What it does is :func:`bridle._shell.tree.watch`; here is our side. Without a
watchdog everything works as long as this process cleans up itself: it is never a reason to fail.
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

from bridle._shell import tree as tree_module
from bridle._shell.tree import Tree

# The module is taken from its directory: as a part of the package it would bring the package along.
_PROGRAM = "import sys; sys.path.append(sys.argv[2]); import tree; tree.watch(0)"
_NAME = "bridle-watchdog"  # for lists of processes that show arguments

# Blocked in a watchdog, by inheritance: what is meant for the program must not end it.
_BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_PATIENCE = 5.0  # seconds a watchdog may take for its work when this program ends

_log = logging.getLogger("bridle")


class Watchdog:
    """Our side of a watchdog, which is started when there is something to watch."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        # Sessions of several threads share it, and garbage may be collected in the midst of it.
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
        """Have this tree ended and its directory, unless empty, removed when this process dies.

        Once before the CLI is started, so that no moment is left out, and again with its pid.
        """
        text = f"+ {tree.mark} {tree.pid} {tree.started} {tree.label} {directory}\0"
        with self._lock:
            self._records[tree.mark] = record = os.fsencode(text)
            if not self._is_useless and not self._tell(record):
                self._start()

    def release(self, tree: Tree) -> None:
        """Take a tree off the list: nothing is left of it."""
        with self._lock:
            if self._records.pop(tree.mark, None):
                self._tell(os.fsencode(f"- {tree.mark}\0"))

    def end(self, tree: Tree) -> None:
        """Have the watchdog end a tree now, because this process could not."""
        with self._lock:
            if tree.mark in self._records:
                self._tell(os.fsencode(f"! {tree.mark}\0"))

    def rest(self) -> bool:
        """Let the watchdog end if there is no tree on its list; false while one is still ending."""
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
        """The program ends: have the rest done now, and see it done."""
        with self._lock:
            self._is_useless = True
            self._hang_up(_PATIENCE)

    def forget(self) -> None:
        """This is a forked child: neither the pipe nor the watchdog is its own."""
        if self._pipe >= 0:
            with contextlib.suppress(OSError):
                os.close(self._pipe)
        for process in (self._process, *self._resting):
            if process:
                process.returncode = 0  # the parent's child is not to be waited for
        self._begin()

    def _tell(self, record: bytes) -> bool:
        """Send a record, whole or not at all; false when there is no watchdog to send it to."""
        if self._pipe < 0:
            return False
        try:
            os.write(self._pipe, record)
        except BlockingIOError:  # it is held up; hanging up would tell it that we are dead
            _log.warning("The watchdog does not listen")
        except OSError:  # it was killed, or other code of this program has closed the pipe
            self._hang_up(1.0)
            return False
        return True

    def _start(self) -> None:
        """Start a watchdog that knows everything, in place of none or one that was killed."""
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

    def _hang_up(self, patience: float) -> None:
        if self._pipe >= 0:
            with contextlib.suppress(OSError):  # other code of this program has closed it
                os.close(self._pipe)
            self._pipe = -1
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)


def _launch() -> tuple[subprocess.Popen[bytes], int]:
    """A new watchdog and the pipe to it."""
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
    """A Python to run. Where Python is a part of another program, `sys.executable` is that one."""
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
