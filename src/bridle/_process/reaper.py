"""Signals and kills process trees in a background thread.

To find the processes of a tree, the process table is read. That takes milliseconds on a machine
with thousands of processes. One thread does it for all trees, so event loops do not wait for it.
One search serves all trees that wait at that moment.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from bridle._process import tree as trees
from bridle._process import watchdog
from bridle._process.tree import SIGKILL, Tree

_log = logging.getLogger("bridle")

_LINGER = 10.0
"""Seconds that the thread waits for more work. Then it also lets an unused watchdog end."""

_PAUSES = (0.001, 0.05)
"""The shortest and the longest pause, in seconds, between two searches."""


class Ending:
    """A tree that is being killed. At the end, ``is_complete`` is true if nothing is left."""

    __slots__ = ("done", "is_complete", "is_dead", "tree", "until")

    def __init__(
        self, tree: Tree, is_dead: Callable[[], bool], limit: float, done: Callable[[], None]
    ) -> None:
        self.tree = tree
        self.is_dead = is_dead
        self.until = time.monotonic() + limit
        self.done = done
        self.is_complete = False

    def look(self) -> None:
        """Set ``is_complete`` after a search."""
        self.is_complete = not self.tree.known and self.is_dead()


class Reaper:
    """The thread and its work. Every thread may use it, and no method blocks."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget everything: in a forked child there is no thread, and no tree of its own."""
        # Reentrant: a finalizer that uses it may run while its thread holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._signals: list[tuple[Tree, int]] = []
        self._endings: list[Ending] = []
        self._released: list[Tree] = []
        self._is_running = False

    def signal(self, tree: Tree, number: int) -> None:
        """Signal every process of a tree, soon."""
        with self._changed:
            self._signals.append((tree, number))
        self.wake()

    def end(
        self, tree: Tree, is_dead: Callable[[], bool], limit: float, done: Callable[[], None]
    ) -> Ending:
        """Kill the processes of a tree until none is left.

        ``done`` is called in the thread: when nothing is left and ``is_dead()`` is true of the CLI
        itself, or after ``limit`` seconds.
        """
        ending = Ending(tree, is_dead, limit, done)
        with self._changed:
            self._endings.append(ending)
        self.wake()
        return ending

    def release(self, tree: Tree) -> None:
        """Remove a tree that has ended from the watchdog's list, soon."""
        with self._changed:
            self._released.append(tree)
        self.wake()

    @property
    def _has_work(self) -> bool:
        return bool(self._signals or self._endings or self._released)

    def wake(self) -> None:
        """Start the thread, or make it look for work. Later it lets an unused watchdog end."""
        with self._changed:
            self._changed.notify()
            if self._is_running:
                return
            self._is_running = True
        thread = threading.Thread(target=self._run, name="bridle-reaper", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads, or the interpreter is ending
            try:
                self._work()
            finally:
                self._is_running = False

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._work()
        except BaseException:  # a later call starts another thread
            with self._changed:
                self._is_running = False
                endings, self._endings = self._endings, []
            _give_up(endings)
            raise

    def _wait_for_work(self) -> bool:
        pause = _LINGER
        while True:
            with self._changed:
                while not self._has_work:
                    if not self._changed.wait(pause):
                        break
                else:
                    return True
            # Without the lock, because it may block for a moment.
            if watchdog.shared.rest():
                break
            pause = _PAUSES[1] if pause == _LINGER else min(2 * pause, _LINGER / 2)
        with self._changed:
            self._is_running = self._has_work
            return self._is_running

    def _work(self) -> None:
        endings: list[Ending] = []
        try:
            self._work_on(endings)
        finally:
            _give_up(endings)

    def _work_on(self, endings: list[Ending]) -> None:
        """Do all the work. ``endings`` holds the trees that are not ended yet."""
        pause, longest = _PAUSES
        while True:
            with self._changed:
                signals, self._signals = self._signals, []
                released, self._released = self._released, []
                endings += self._endings
                self._endings = []
            for tree in released:
                _guarded(watchdog.shared.release, tree)
            began = time.monotonic()
            for number in dict.fromkeys(number for _, number in signals):
                _signal([tree for tree, each in signals if each == number], number)
            _kill(endings)
            if not endings:
                return
            # At most a third of the time is spent on searches, however long one takes.
            time.sleep(max(pause, 2 * (time.monotonic() - began)))
            pause = min(2 * pause, longest)


def _guarded(work: Callable[..., object], *arguments: object) -> bool:
    """Call a function. If it fails, log that, so that other work continues, and return False."""
    try:
        work(*arguments)
    except Exception:
        _log.exception("Ending a process tree failed")
        return False
    return True


def _signal(targets: list[Tree], number: int) -> bool:
    """Signal trees. Return False if their processes could not be searched."""
    if not targets:
        return True
    try:
        trees.signal_all(targets, number)
    except OSError:  # no descriptor is free; sessions that close next free some
        return False
    except Exception:
        _log.exception("Signalling a process tree failed")
        return False
    return True


def _kill(endings: list[Ending]) -> None:
    """Kill what is left of trees, and remove those from the list that are ended."""
    can_tell = _signal([each.tree for each in endings], SIGKILL)
    now = time.monotonic()
    for each in list(endings):
        if can_tell:
            _guarded(each.look)
        if each.is_complete or now > each.until:
            endings.remove(each)
            _guarded(each.done)


def _give_up(endings: list[Ending]) -> None:
    """Report the end of these trees to their callers, whether or not they are ended."""
    for each in endings:
        _guarded(each.done)


shared = Reaper()
"""The reaper of this process."""

os.register_at_fork(after_in_child=shared.forget)
