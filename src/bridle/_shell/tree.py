"""A process and all its descendants: found, signalled, and ended to the last one.

A descendant can leave the process group and the session of the CLI, lose its parent and clear its
environment. It keeps its resource limits. So the limit on file locks, which Linux does not enforce,
is set to a number of the CLI's own: every process with that number belongs to the CLI's tree. Where
the limit cannot be set, a process belongs to the tree if its environment has the CLI's mark, if it
is in the CLI's session, or if it descends from either. Nothing else is ever signalled. Without
``/proc`` only the process group is reached.

This file is also the whole program of the watchdog, a small process: it imports only what that
process can afford.
"""

from __future__ import annotations

import errno
import os
import resource
import time

MARK = "BRIDLE_SESSION_MARK"
"""The variable with the mark of a CLI, after the marks of the CLIs that it runs inside of."""

SIGKILL = 9
PROC = os.path.exists("/proc/self/stat") and hasattr(resource, "prlimit")

_MARK_BEGINS = b"\0" + MARK.encode() + b"="
_READ = 1 << 16

_LOCKS = 10
"""RLIMIT_LOCKS, which Linux has not enforced since 2.4; `resource` has no name for it."""

_HIGHEST = 1 << 62
_LABEL_DIGITS = 13
"""Hexadecimal digits of the mark that make up the label: 52 bits."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Tree:
    """The processes of one CLI.

    ``pid`` is 0 before the CLI is started. ``label`` is the limit on file locks that its processes
    have; 0 if it could not be set.
    """

    __slots__ = ("known", "label", "mark", "pid", "started")

    def __init__(self, mark: str, pid: int = 0, started: int | None = None, label: int = 0) -> None:
        self.mark = mark
        self.pid = pid
        self.label = label
        # The system reuses process ids; together with the time of its start an id is unique.
        self.started = _started(pid) if started is None else started
        # Processes found before, which belong to the tree whatever they change about themselves.
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


# ---------------------------------------------------------------- labelling


def labelled(mark: str, pid: int) -> Tree:
    """Label a process that was just started with this mark, and return its tree."""
    limits = _limits(mark) if PROC else None
    if limits is None or not _label(pid, limits):
        return Tree(mark, pid)
    # Until it was labelled, the process ran; what it started meanwhile has a higher id.
    members, seen = {pid}, pid
    for _ in range(10):
        last = _last_pid()
        born = [each for each in _between(seen, last) if _is_born(each, mark, members)]
        if not born:
            break
        members.update(each for each in born if _label(each, limits))
        seen = last
    return Tree(mark, pid, label=limits[0])


def _label(pid: int, limits: tuple[int, int]) -> bool:
    """Set the limits of a process; false if it is gone or the system does not allow it."""
    try:
        resource.prlimit(pid, _LOCKS, limits)
    except OSError:
        return False
    return True


def _last_pid() -> int:
    """Return the process id that was given out last."""
    try:
        return int(_read("/proc/loadavg").split()[-1])
    except (OSError, ValueError, IndexError):
        return 0


def _between(first: int, last: int) -> list[int]:
    """Return the ids that may have been given out after ``first``, up to ``last``."""
    if 0 <= last - first < 1000:
        return list(range(first + 1, last + 1))
    try:  # they begin at the low end again, or many processes were started
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _is_born(pid: int, mark: str, members: set[int]) -> bool:
    """Return whether a process is new in a tree: not a member yet, but started by one."""
    try:
        status = None if pid in members else _status(pid)
        is_of_tree = status is not None and (
            status.parent in members or status.session in members or mark in _marks(pid)
        )
    except OSError:
        return False
    return is_of_tree and pid != os.getpid()


def _limits(mark: str) -> tuple[int, int] | None:
    """The soft and the hard limit of a tree; None if a limit is in use here.

    Inside the tree of another CLI the hard limit is the label of that one and stays as it is.
    """
    _, hard = resource.getrlimit(_LOCKS)
    number = int(mark[:_LABEL_DIGITS], 16)
    if hard == resource.RLIM_INFINITY:
        return _HIGHEST - number, _HIGHEST - number
    return (hard - 1 - number, hard) if hard > _HIGHEST >> 1 else None


# ---------------------------------------------------------------- finding


def find(trees: list[Tree]) -> dict[int, int]:
    """Every living process of these trees, by id, with the time of its start.

    The process table is listed until nothing new is in it. So a process that is missed was started
    after the last list, by one that was found: if none is found, none is left.

    Raises:
        OSError: the process table cannot be read, for want of a free descriptor for example.
    """
    labels = {tree.label: tree for tree in trees if tree.label}
    marked_trees = [tree for tree in trees if not tree.label]
    members: dict[int, dict[int, int]] = {label: {} for label in labels}
    table: dict[int, _Status] = {}
    marked: dict[int, set[str]] = {}
    marks = {tree.mark for tree in marked_trees}
    oldest = min((tree.started for tree in marked_trees), default=0)
    seen: set[int] = set()
    for _ in range(10):
        newcomers = {int(name) for name in os.listdir("/proc") if name.isdigit()} - seen
        if not newcomers:
            break
        seen |= newcomers
        for pid in newcomers:
            if labels:
                _note_labelled(pid, members)
            status = _status(pid) if marked_trees else None
            if status is not None:
                table[pid] = status
                is_young = status.started >= oldest and not status.dead
                marked[pid] = marks & _marks(pid) if is_young else set()
    found = _belonging(marked_trees, table, marked)
    for label, tree in labels.items():
        _remember(tree, members[label])
        found |= tree.known
    return found


def _note_labelled(pid: int, members: dict[int, dict[int, int]]) -> None:
    try:
        soft, hard = resource.prlimit(pid, _LOCKS)
    except OSError:
        return  # gone, or another user's
    for label in {soft, hard} & members.keys():
        status = _status(pid)
        if status is not None and not status.dead:
            members[label][pid] = status.started


def _remember(tree: Tree, members: dict[int, int]) -> None:
    """Set what is known of a tree: these members and those that are still there from before."""
    for pid, started in tree.known.items():
        status = None if pid in members else _status(pid)
        if status is not None and status.started == started and not status.dead:
            members[pid] = started
    members.pop(os.getpid(), None)
    # The CLI first, so that it does not take the end of a child for the child's own failure.
    first = {tree.pid: members[tree.pid]} if tree.pid in members else {}
    tree.known = first | members


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
    """Return when a process was started, in the kernel's units; 0 if that cannot be found out."""
    try:
        status = _status(pid) if PROC and pid else None
    except OSError:
        return 0
    return status.started if status else 0


def _marks(pid: int) -> set[str]:
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    _, _, rest = environ.partition(_MARK_BEGINS)
    return set(rest.partition(b"\0")[0].decode("ascii", "replace").split(":"))


def _read(path: str) -> bytes:
    """Read a file of the process table; empty if the process is gone or another user's.

    Raises:
        OSError: no descriptor or memory is free.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
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
        for tree in trees:
            tree.known = {tree.pid: tree.started} if _signal_group(tree.pid, number) else {}
        return sum(len(tree.known) for tree in trees)
    found = find(trees)
    for pid, started in found.items():
        _signal(pid, started, number)
    return len(found)


def end_all(trees: list[Tree], limit: float) -> bool:
    """Kill until no process of these trees is left; says whether that was reached in time."""
    until = time.monotonic() + limit
    pause = 0.001
    while _kill_some(trees):
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def _kill_some(trees: list[Tree]) -> bool:
    """Kill what is found; true if there may be more."""
    try:
        return signal_all(trees, SIGKILL) > 0
    except OSError:
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
    """Keep a list of the trees of another process until that process is gone, then end them.

    The list comes as records that end in NUL: ``+ mark pid started label directory`` adds or
    replaces a tree, ``- mark`` removes it, ``! mark`` has it ended now. The end of the pipe means
    that the other process is gone.
    """
    _set_name()
    guarded: dict[str, tuple[Tree, str]] = {}
    unread = b""
    while data := os.read(descriptor, _READ):
        *records, unread = (unread + data).split(b"\0")
        for record in records:
            kind, mark, *rest = os.fsdecode(record).split(" ", 5)
            if kind == "+":
                pid, started, label = map(int, rest[:3])
                guarded[mark] = Tree(mark, pid, started, label), rest[3]
            elif kind == "-":
                guarded.pop(mark, None)
            elif mark in guarded:
                end_all([guarded[mark][0]], limit)
    if guarded:
        trees = [tree for tree, _ in guarded.values()]
        end_all(trees, limit)
        time.sleep(0.05)  # it may have died between starting a process and labelling it
        end_all(trees, limit)
    for _, directory in guarded.values():
        remove_directory(directory)


def _set_name() -> None:
    """Be called `bridle-watchdog` in lists of processes."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(b"bridle-watchdog")
    except OSError:
        return  # a system without /proc
