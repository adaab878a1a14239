"""The tree of a process: find, signal and kill it and all its descendants.

A descendant can leave the process group and the session of the CLI, lose its parent and clear its
environment. It keeps its resource limits. So the limit on file locks, which Linux does not enforce,
is set to a number that is unique to the CLI, its label. A process belongs to the tree if it has the
label, if its environment has the CLI's mark, if it is in the CLI's session, or if it descends from
such a process. No other process is signalled. Without ``/proc``, only the process group is found.

This file is also the whole program of the watchdog. It imports little, so that the watchdog stays
small.
"""

from __future__ import annotations

import errno
import os
import resource
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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

_MOST_PIDS = 1 << 22
"""Linux assigns process ids below this number, in ascending order, then starts again."""

_CLOSE_LOOKS = 200
"""Processes with ordinary limits whose files are read in one search, if all trees have a label."""

_BORN_EARLY = 100
"""Processes that the event loop searches for those that the CLI started before it had a label."""

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
        # Processes found before. They stay members even if they change session or environment.
        self.known: dict[int, int] = {}

    def signal(self, number: int) -> int:
        """Signal every process of the tree. Return how many were found."""
        return signal_all([self], number)

    def end(self, limit: float) -> bool:
        """Kill until no process is left. Return False if some are left after ``limit`` seconds."""
        return end_all([self], limit)


class _Status:
    """A line of the process table."""

    __slots__ = ("dead", "parent", "session", "started")

    def __init__(self, text: bytes) -> None:
        # The name in parentheses may contain any character, also parentheses.
        fields = text[text.rindex(b")") + 2 :].split()
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.started = int(fields[19])
        # A process whose first thread has ended looks like a zombie while other threads run.
        self.dead = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


# ---------------------------------------------------------------- labelling


def labelled(mark: str, pid: int) -> Tree:
    """Label a process that was just started with this mark, and return its tree."""
    limits = _limits(mark) if PROC else None
    if limits is None or not _label(pid, limits):
        return Tree(mark, pid)
    tree = Tree(mark, pid, label=limits[0])
    # Processes that it started before it had the label have one of the next ids.
    members, seen = {pid}, pid
    for _ in range(10):
        last = _last_pid()
        if 0 <= last - seen <= _BORN_EARLY:
            ids: Iterable[int] = range(seen + 1, last + 1)
            seen = last
        else:  # ids start from the low end again, or many processes were started
            ids = _next_ids(pid)
        born = [each for each in ids if _is_born(each, tree, members)]
        if not born:
            break
        members.update(each for each in born if _label(each, limits))
    return tree


def _label(pid: int, limits: tuple[int, int]) -> bool:
    """Set the limits of a process. Return False if it is gone or the system does not allow it."""
    try:
        resource.prlimit(pid, _LOCKS, limits)
    except OSError:
        return False
    return True


def _last_pid() -> int:
    """Return the process id that the system assigned last."""
    try:
        return int(_read("/proc/loadavg").split()[-1])
    except (OSError, ValueError, IndexError):
        return 0


def _next_ids(pid: int) -> list[int]:
    """Return the ids of the first processes that follow this one."""
    try:
        ids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return _following(pid, ids)[:_BORN_EARLY]


def _following(pid: int, ids: Iterable[int]) -> list[int]:
    """Sort process ids in the order in which the system assigns them after this one."""
    return sorted(ids, key=lambda each: (each - pid - 1) % _MOST_PIDS)


def _is_born(pid: int, tree: Tree, members: set[int]) -> bool:
    """Return whether a process is not a member of the tree yet, but was started by one."""
    try:
        status = None if pid in members else _status(pid)
        if status is None or status.started < tree.started or pid == os.getpid():
            return False
        is_near = status.parent in members or status.session in members
        return is_near or tree.mark in _marks(pid)
    except OSError:
        return False


def _limits(mark: str) -> tuple[int, int] | None:
    """Return the soft and the hard limit of a tree, or None if this program has a real limit.

    Inside the tree of another CLI the hard limit is the label of that one and stays as it is.
    """
    _, hard = resource.getrlimit(_LOCKS)
    number = int(mark[:_LABEL_DIGITS], 16)
    if hard == resource.RLIM_INFINITY:
        return _HIGHEST - number, _HIGHEST - number
    return (hard - 1 - number, hard) if hard > _HIGHEST >> 1 else None


# ---------------------------------------------------------------- finding


def find(trees: list[Tree]) -> dict[int, int]:
    """Return every living process of these trees, by id, with the time of its start.

    The process table is listed until it has no new process. So a process that is missing was
    started after the last list by one that was found. If none is found, none is left.

    Raises:
        OSError: the process table cannot be read, for example because no descriptor is free.
    """
    search = _Search(trees)
    seen: set[int] = set()
    for _ in range(10):
        newcomers = {int(name) for name in os.listdir("/proc") if name.isdigit()} - seen
        if not newcomers:
            break
        seen |= newcomers
        search.add(newcomers)
    return search.finish()


class _Search:
    """A search for the processes of some trees.

    Reading the files of a process takes ten times as long as asking for its limits and its session.
    So the search reads the files of a process only

    - if it has a label, is in the session of a CLI, or was found before;
    - if its limit is neither a label nor unlimited: it may have had a label before;
    - if this program runs inside a labelled tree and the process does too: a process inside three
      trees has the first and the last label only;
    - if its id is one of those that follow the CLI's, up to a number: a process with privileges can
      set its limit back.

    If a tree has no label, the search reads the files of all processes.
    """

    def __init__(self, trees: list[Tree]) -> None:
        self._trees = trees
        self._labels = {tree.label for tree in trees if tree.label}
        self._sessions = {tree.pid for tree in trees if tree.pid}
        self._known = {pid for tree in trees for pid in tree.known} | self._sessions
        self._marks = {tree.mark for tree in trees}
        first = min(trees, key=lambda tree: tree.started, default=None)
        self._first, self._oldest = (first.pid, first.started) if first else (0, 0)
        self._close_looks = _CLOSE_LOOKS if all(tree.label for tree in trees) else _MOST_PIDS
        hard = resource.getrlimit(_LOCKS)[1]
        self._outer = hard if hard != resource.RLIM_INFINITY else None
        self._table: dict[int, _Status] = {}
        self._labelled: dict[int, set[int]] = {label: set() for label in self._labels}
        self._marked: dict[str, set[int]] = {mark: set() for mark in self._marks}

    def add(self, pids: set[int]) -> None:
        """Examine these processes."""
        ordinary = [pid for pid in pids if self._is_ordinary(pid)]
        if len(ordinary) > self._close_looks:
            ordinary = _following(self._first, ordinary)[: self._close_looks]
        self._close_looks -= len(ordinary)
        for pid in ordinary:
            self._read(pid)

    def _is_ordinary(self, pid: int) -> bool:
        """Return whether only the files of a process can show that it belongs to a tree.

        Read the files of any other process that may belong to one.
        """
        try:
            limits = _limits_of(pid) if self._labels else ()
            is_near = pid in self._known or os.getsid(pid) in self._sessions
        except (ProcessLookupError, PermissionError):
            return False  # gone, or out of reach
        labels = self._labels.intersection(limits)
        for label in labels:
            self._labelled[label].add(pid)
        if labels or is_near or (limits and self._is_suspect(limits[1])):
            self._read(pid)
            return False
        return True

    def _is_suspect(self, hard: int) -> bool:
        """Return whether a process with this hard limit may have lost a label."""
        is_changed = hard != resource.RLIM_INFINITY and hard <= _HIGHEST >> 1
        return is_changed or hard == self._outer

    def _read(self, pid: int) -> None:
        """Read the line of a process, and its marks if it is not older than the trees."""
        status = _status(pid)
        if status is None:
            return
        self._table[pid] = status
        if status.started >= self._oldest and not status.dead:
            for mark in self._marks & _marks(pid):
                self._marked[mark].add(pid)

    def finish(self) -> dict[int, int]:
        """Set ``known`` of each tree, and return all processes that were found."""
        table = self._table
        children: dict[int, list[int]] = {}
        for pid, status in table.items():
            children.setdefault(status.parent, []).append(pid)
        found: dict[int, int] = {}
        for tree in self._trees:
            members = self._marked[tree.mark] | self._labelled.get(tree.label, set())
            members &= table.keys()
            members |= {pid for pid, born in tree.known.items() if _is_same(table.get(pid), born)}
            if _is_same(table.get(tree.pid), tree.started):
                members.add(tree.pid)
                members |= {pid for pid, status in table.items() if status.session == tree.pid}
            members.discard(os.getpid())
            _add_descendants(members, children)
            # Signal the CLI first. Otherwise it could report the end of a child as a failure.
            order = (tree.pid, *members)
            tree.known = {
                pid: table[pid].started for pid in order if pid in members and not table[pid].dead
            }
            found |= tree.known
        return found


def _limits_of(pid: int) -> tuple[int, ...]:
    """Return the limits on file locks of a process, or nothing if the system does not show them.

    The system does not show those of a process that runs as another group, as some agents do.
    Such a process can still be signalled.

    Raises:
        ProcessLookupError: the process is gone.
        PermissionError: this program may not signal the process.
    """
    try:
        return resource.prlimit(pid, _LOCKS)
    except OSError:
        os.kill(pid, 0)
        return ()


def _add_descendants(members: set[int], children: dict[int, list[int]]) -> None:
    ours = os.getpid()  # other children of this program do not belong to the tree
    waiting = list(members)
    while waiting:
        offspring = children.get(waiting.pop(), ())
        born = [pid for pid in offspring if pid not in members and pid != ours]
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
    """Read a file of the process table. Return nothing if the process is gone or another user's.

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
    """Signal every process of these trees. Return how many were found."""
    if not PROC:
        for tree in trees:
            tree.known = {tree.pid: tree.started} if _signal_group(tree.pid, number) else {}
        return sum(len(tree.known) for tree in trees)
    found = find(trees)
    for pid, started in found.items():
        _signal(pid, started, number)
    return len(found)


def end_all(trees: list[Tree], limit: float) -> bool:
    """Kill until no process of these trees is left. Return False if that took too long."""
    until = time.monotonic() + limit
    pause = 0.001
    while _kill_some(trees):
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def _kill_some(trees: list[Tree]) -> bool:
    """Kill the processes that are found. Return whether there may be more."""
    try:
        return signal_all(trees, SIGKILL) > 0
    except OSError:
        return True


def _signal(pid: int, started: int, number: int) -> None:
    """Signal this process, and never another one that has got its id since."""
    handle = _handle(pid)
    try:
        if _started(pid) != started:
            return
        if handle is None:
            os.kill(pid, number)
        else:
            from signal import pidfd_send_signal  # slow to import, and rarely needed by a watchdog

            pidfd_send_signal(handle, number)
    except OSError:
        return  # it is gone, or belongs to another user
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """Return a process descriptor, or None if the system has none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _signal_group(pid: int, number: int) -> bool:
    if not pid:
        return False  # the system takes 0 for our own process group
    try:
        os.killpg(pid, number)
    except OSError:
        return False
    return True


# ---------------------------------------------------------------- the watchdog's side


def remove_directory(path: str) -> None:
    """Remove a directory and everything in it, or what is left of it. Ignore an empty path."""
    if not path:
        return
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except (IsADirectoryError, PermissionError):
        # It has a directory, in which the user that the CLI runs as may replace files by links.
        # `rmtree` is safe against that.
        from shutil import rmtree

        rmtree(path, ignore_errors=True)
    except OSError:
        return


def watch(descriptor: int, limit: float = 10.0) -> None:
    """Keep a list of the trees of another process until that process ends, then kill them.

    The other process sends records that end with NUL: ``+ mark pid started label directory`` adds
    or replaces a tree, ``- mark`` removes it, ``! mark`` kills it now. The end of the pipe means
    that the other process has ended.
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
        # The other process may have ended between the start of a CLI and its label. Search again.
        time.sleep(0.05)
        end_all(trees, limit)
    for _, directory in guarded.values():
        remove_directory(directory)


def _set_name() -> None:
    """Set the name of this process in lists of processes to `bridle-watchdog`."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(b"bridle-watchdog")
    except OSError:
        return  # a system without /proc
