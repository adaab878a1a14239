"""A process and everything that came from it: found, signalled, and ended to the last one.

A child leaves the process group of its ancestor with ``setsid`` and its line of descent when its
parent dies, but it takes its environment along. So every CLI is started with a mark in there that
is its own, and what belongs to it is whatever carries the mark, is of the CLI's session, or
descends from either. Nothing else is ever signalled. Where there is no ``/proc``, the process group
is all that can be reached.

Rule of this file: it is also the whole program of the watchdog, a process that is started in
the user's way and should cost next to nothing. It imports what that process can afford.
"""

from __future__ import annotations

import os
import time

MARK = "BRIDLE_SESSION_MARK"
"""The variable that holds the mark of a CLI, after the marks of those it runs inside of."""

SIGKILL = 9
PROC = os.path.exists("/proc/self/stat")

_MARK_BEGINS = b"\0" + MARK.encode() + b"="
_READ = 1 << 16


class Tree:
    """The processes that come from one CLI. ``pid`` is 0 while it is not started."""

    __slots__ = ("known", "mark", "pid", "started")

    def __init__(self, mark: str, pid: int = 0, started: int | None = None) -> None:
        self.mark = mark
        self.pid = pid
        # A number may be given to another process; with the time of its start it is unmistakable.
        self.started = _started(pid) if started is None else started
        # What was found once stays found, whatever it does to its environment and its parents.
        self.known: dict[int, int] = {}

    def signal(self, number: int) -> int:
        """Signal every process there is; the number of those found."""
        return signal_all([self], number)

    def end(self, limit: float) -> bool:
        """Kill until no process is left; says whether that was reached within ``limit`` seconds."""
        return end_all([self], limit)


class _Status:
    """A line of the process table."""

    __slots__ = ("dead", "parent", "session", "started")

    def __init__(self, text: bytes) -> None:
        # The name in parentheses may hold anything, parentheses too.
        fields = text[text.rindex(b")") + 2 :].split()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.started = int(fields[19])
        # A first thread that is gone looks like a zombie while other threads go on.
        self.dead = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


# ---------------------------------------------------------------- finding


def find(trees: list[Tree]) -> dict[int, int]:
    """Every living process of these trees, by id, with the time of its start.

    The process table is listed until nobody new is in it. So whoever is missed was born after the
    last list, of somebody who was seen alive: finding nobody means that nobody is left.
    """
    table: dict[int, _Status] = {}
    marked: dict[int, set[str]] = {}
    marks = {tree.mark for tree in trees}
    oldest = min((tree.started for tree in trees), default=0)
    for _ in range(10):
        newcomers = {int(name) for name in os.listdir("/proc") if name.isdigit()} - marked.keys()
        if not newcomers:
            break
        for pid in newcomers:
            marked[pid] = set()
            status = _status(pid)
            if status is None:
                continue
            table[pid] = status
            if status.started >= oldest and not status.dead:
                marked[pid] = marks & _marks(pid)
    return _belonging(trees, table, marked)


def _belonging(
    trees: list[Tree], table: dict[int, _Status], marked: dict[int, set[str]]
) -> dict[int, int]:
    children: dict[int, list[int]] = {}
    for pid, status in table.items():
        children.setdefault(status.parent, []).append(pid)
    found: dict[int, int] = {}
    for tree in trees:
        members = {pid for pid in table if tree.mark in marked[pid]}
        members |= {pid for pid, born in tree.known.items() if _is_same(table.get(pid), born)}
        if _is_same(table.get(tree.pid), tree.started):
            members.add(tree.pid)
            members |= {pid for pid, status in table.items() if status.session == tree.pid}
        _add_descendants(members, children)
        members.discard(os.getpid())
        # The CLI first: it shall not take the end of a child for the child's own doing.
        order = (tree.pid, *members)
        tree.known = {
            pid: table[pid].started for pid in order if pid in members and not table[pid].dead
        }
        found |= tree.known
    return found


def _add_descendants(members: set[int], children: dict[int, list[int]]) -> None:
    waiting = list(members)
    while waiting:
        born = [pid for pid in children.get(waiting.pop(), ()) if pid not in members]
        members.update(born)
        waiting += born


def _is_same(status: _Status | None, started: int) -> bool:
    return status is not None and status.started == started


def _status(pid: int) -> _Status | None:
    text = _read(f"/proc/{pid}/stat")
    return _Status(text) if text else None


def _started(pid: int) -> int:
    """When a process was started, in the kernel's own count; 0 if that cannot be told."""
    status = _status(pid) if PROC and pid else None
    return status.started if status else 0


def _marks(pid: int) -> set[str]:
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    _, _, rest = environ.partition(_MARK_BEGINS)
    return set(rest.partition(b"\0")[0].decode("ascii", "replace").split(":"))


def _read(path: str) -> bytes:
    """A file of the process table; empty if the process is gone or somebody else's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces = [os.read(descriptor, _READ)]
        while len(pieces[-1]) == _READ:
            pieces.append(os.read(descriptor, _READ))
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- signalling


def signal_all(trees: list[Tree], number: int) -> int:
    """Signal every process of these trees; the number of those found."""
    if not PROC:
        return sum(_signal_group(tree.pid, number) for tree in trees)
    found = find(trees)
    for pid, started in found.items():
        _signal(pid, started, number)
    return len(found)


def end_all(trees: list[Tree], limit: float) -> bool:
    """Kill until no process of these trees is left; says whether that was reached in time."""
    until = time.monotonic() + limit
    pause = 0.001
    while signal_all(trees, SIGKILL):
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def _signal(pid: int, started: int, number: int) -> None:
    """Signal this very process, never one that got its number since."""
    handle = _handle(pid)
    try:
        if _started(pid) != started:
            return
        if handle is None:
            os.kill(pid, number)
        else:
            from signal import pidfd_send_signal  # slow to import, and a watchdog seldom needs it

            pidfd_send_signal(handle, number)
    except OSError:
        return  # gone by now, or somebody else's
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """A descriptor that stays with this process, where the system has such a thing."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _signal_group(pid: int, number: int) -> bool:
    if not pid:
        return False  # to the system, 0 would mean our own group
    try:
        os.killpg(pid, number)
    except OSError:
        return False
    return True


# ---------------------------------------------------------------- the watchdog's side


def remove_directory(path: str) -> None:
    """Remove a directory of plain files, or what is left of it; nothing where the path is empty."""
    if not path:
        return
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        return


def watch(descriptor: int, limit: float = 10.0) -> None:
    """Keep account of the trees of another process until it is gone, then end them.

    It tells by records that end in NUL: ``+ mark pid started directory`` (again when more is
    known) and ``- mark``. The end of the pipe is its death, of whatever kind.
    """
    guarded: dict[str, tuple[Tree, str]] = {}
    unread = b""
    while data := os.read(descriptor, _READ):
        *records, unread = (unread + data).split(b"\0")
        for record in records:
            kind, mark, *rest = os.fsdecode(record).split(" ", 4)
            if kind == "+":
                guarded[mark] = Tree(mark, int(rest[0]), int(rest[1])), rest[2]
            else:
                guarded.pop(mark, None)
    if guarded:
        trees = [tree for tree, _ in guarded.values()]
        end_all(trees, limit)
        time.sleep(0.05)  # it may have died between making a process and giving it its mark
        end_all(trees, limit)
    for _, directory in guarded.values():
        remove_directory(directory)
