"""Keep entries for a session store in a local file while the store cannot take them.

A spool is a private file with one line for each batch: a mark, and the batch as JSON. The mark is
``+``, or ``-`` once the batch is in the store. It is ``!`` if the store rejected the batch while it
took others. The file is locked while its process lives, so that another process can tell whether it
was left behind. It is removed when the store has everything. The spool of a store that ends with
the program is in memory.

Everything here blocks. Call it in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from threading import Lock
from typing import BinaryIO
from uuid import uuid4

import msgspec
from msgspec import Struct

from bridle._observe.user_values import describe_error
from bridle._records.session_store import JOURNAL, Entry, SessionKey
from bridle.sessions._backlog import Batch
from bridle.sessions._outbox.spool_lines import (
    DONE,
    REJECTED,
    WAITING,
    decode_line,
    encode_line,
    mark_done,
    set_time,
    write_lines,
)
from bridle.sessions._outbox.storable import Unstorable, split_storable
from bridle.sessions._stores.entries import to_rows
from bridle.sessions._stores.locations import class_and_location

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def state_directory() -> str:
    """Return the directory in which Bridle keeps files of this user on this machine."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "bridle")


def spool_directory() -> str:
    """Return the directory of all spool files of this user."""
    return os.path.join(state_directory(), "spool")


def spool_name(store: object, session_id: str) -> str:
    """Return the first part of the names of the spool files of a session and a store.

    It differs for stores of different classes or with a different ``location``.
    """
    about = class_and_location(store).encode("utf-8", "surrogateescape")
    return f"{session_id}.{hashlib.sha256(about).hexdigest()[:12]}."


def damaged_name(name: str) -> str:
    """Return the name under which a spool file is kept whose lines cannot all be read."""
    return f"damaged.{name}"


class SpoolDamaged(OSError):
    """A batch is not in its spool file any more, because another program changed the file."""


class Spool:
    """One spool file. It is created with the first batch.

    Args:
        name: the first part of the file's name, see `spool_name`.
        owner: a random word that makes the name unique.
        redact: called for each entry before it is written.
    """

    def __init__(
        self, name: str, owner: str, redact: Callable[[Entry], Entry] | None = None
    ) -> None:
        self.redact = redact
        self.path = os.path.join(spool_directory(), f"{name}{owner}.jsonl")
        self._descriptor: int | None = None
        # Set by `close`. A thread may still come to write.
        self._is_closed = False
        self._end = 0
        # Lines whose entries the store does not have. The file stays while there are any.
        self._waiting = 0
        # Held while the file is changed: calls come from several threads.
        self._lock = Lock()

    def write(self, batches: Sequence[Batch]) -> list[Unstorable]:
        """Add the batches that are not in the file, wait until they are on the disk, set ``place``.

        Return the batches with entries that ``redact`` or JSON do not accept. The file gets their
        other entries.

        Raises:
            OSError: they could not be written.
        """
        with self._lock:
            unstorable: list[Unstorable] = []
            new: list[tuple[Batch, bytes]] = []
            for batch in batches:
                if batch.place is None and batch.entries is not None:
                    storable, bodies, problem = split_storable(batch.entries, self.redact)
                    if problem:
                        unstorable.append(Unstorable(batch, storable, problem))
                    if bodies:
                        new.append((batch, encode_line(WAITING, batch.key, bodies, batch.after)))
            position = self._end
            self._add([line for _, line in new])
            for batch, line in new:
                batch.place = (position, len(line))
                position += len(line)
            self._waiting += len(new)
            return unstorable

    def write_rejected(
        self, key: SessionKey, entries: Sequence[Entry], after: str | None = None
    ) -> list[tuple[int, int]]:
        """Add entries that the store rejected. Wait until they are on the disk.

        Return the place of each entry.

        Raises:
            OSError: they could not be written.
            StoreError: ``redact`` or JSON do not accept an entry.
        """
        with self._lock:
            rows = to_rows("spool", entries, self.redact)
            lines = [encode_line(REJECTED, key, [row.body], after) for row in rows]
            self._add(lines)
            self._waiting += len(lines)
            ends = list(accumulate(map(len, lines), initial=self._end - sum(map(len, lines))))
            return [(start, len(line)) for start, line in zip(ends, lines, strict=False)]

    def _add(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        if self._descriptor is None and not self._is_closed:
            self._create()
        descriptor = self._open_descriptor()
        write_lines(descriptor, self._end, lines)
        self._end += sum(map(len, lines))

    def read(self, place: tuple[int, int]) -> list[Entry]:
        """Return the entries of a batch.

        Raises:
            SpoolDamaged: another program changed the file.
            OSError: the file cannot be read.
        """
        try:
            return list(decode_line(self._line_at(*place)[1:]).entries)
        except msgspec.DecodeError:
            raise SpoolDamaged(f"the spool file {self.path} was changed") from None

    def _line_at(self, start: int, length: int) -> bytes:
        descriptor = self._open_descriptor()
        line = b""
        while len(line) < length:
            part = os.pread(descriptor, length - len(line), start + len(line))
            if not part:
                raise SpoolDamaged(f"the spool file {self.path} was cut off")
            line += part
        return line

    def mark_done(self, place: tuple[int, int]) -> None:
        """Note that a batch is in the store."""
        with self._lock:
            self._mark_done(place[0])
            self._waiting -= 1

    def _mark_done(self, position: int) -> None:
        mark_done(self._open_descriptor(), position)

    def remove_if_done(self) -> None:
        """Remove the file if the store has all its batches. The next batch creates it again."""
        with self._lock:
            if not self._waiting and self._descriptor is not None:
                with contextlib.suppress(FileNotFoundError):  # another program was faster
                    os.unlink(self.path)
                self._close()

    def close(self) -> None:
        """Close the file and leave it for the next session. Remove it if nothing waits in it.

        The spool cannot be used any more.

        Raises:
            OSError: another program removed the file, and it could not be written again.
        """
        try:
            self.remove_if_done()
            with self._lock:
                if self._descriptor is not None and not os.path.exists(self.path):
                    self._write_again(self._descriptor)
        finally:
            with self._lock:
                self._is_closed = True
                self._close()

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise OSError(f"the spool file {self.path} is closed")
        return self._descriptor

    def _write_again(self, descriptor: int) -> None:
        """Write the file under its name again, because another program removed it."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with (
            open(descriptor, "rb", closefd=False) as removed,
            open(os.open(self.path, _CREATE, 0o600), "wb") as again,
        ):
            removed.seek(0)
            shutil.copyfileobj(removed, again)
            again.flush()
            set_time(again.fileno(), os.fstat(descriptor).st_mtime_ns)
            os.fsync(again.fileno())

    def forget(self) -> None:
        """Close the file in a forked child. The lock belongs to the parent."""
        self._lock = Lock()  # another thread of the parent may hold it
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        self._end = 0
        _open_spools.discard(self)
        if descriptor is not None:
            os.close(descriptor)

    def _create(self) -> None:
        directory = os.path.dirname(self.path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._descriptor = descriptor = os.open(self.path, _CREATE, 0o600)
        _open_spools.add(self)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync(directory)


class MemorySpool(Spool):
    """The spool of a store that ends with the program. It has no file.

    Args:
        store: the store.
        name: see `Spool`.
        owner: see `Spool`.
        redact: see `Spool`.
    """

    def __init__(
        self,
        store: object,
        name: str,
        owner: str,
        redact: Callable[[Entry], Entry] | None = None,
    ) -> None:
        super().__init__(name, owner, redact)
        self.path = os.path.join("<memory>", os.path.basename(self.path))
        self._store = store
        self._data = bytearray()
        self._added = 0
        _open_spools.add(self)

    def _add(self, lines: Sequence[bytes]) -> None:
        if lines and self._is_closed:
            raise OSError(f"the spool {self.path} is closed")
        self._data += b"".join(lines)
        self._end = len(self._data)
        self._added = time.time_ns()

    def _line_at(self, start: int, length: int) -> bytes:
        return bytes(self._data[start : start + length])

    def _mark_done(self, position: int) -> None:
        self._data[position : position + 1] = DONE

    def remove_if_done(self) -> None:
        """Free the memory if the store has all batches."""
        with self._lock:
            if not self._waiting:
                self._data = bytearray()
                self._end = 0

    def close(self) -> None:
        """Leave what waits for the next session of the program. The spool cannot be used any more.

        It is freed with the store.
        """
        self.remove_if_done()
        with self._lock:
            if self._data and not self._is_closed:
                left = LeftInMemory(self.path, self._data, self._added)
                _left_in_memory.append(left)
                with contextlib.suppress(TypeError):  # then it stays until the program ends
                    weakref.finalize(self._store, left.free).atexit = False
            self._is_closed = True
            self._data = bytearray()

    def forget(self) -> None:
        """Free the lock in a forked child, which has a copy of the spool and of the store."""
        self._lock = Lock()  # another thread of the parent may hold it


def make_spool(store: object, session_id: str, lane: str) -> Spool:
    """Return a new spool for entries of a session. ``lane`` tells what they are about."""
    name, owner = f"{spool_name(store, session_id)}{lane}.", uuid4().hex
    redact = getattr(store, "redact", None)
    if getattr(store, "ends_with_program", False):
        return MemorySpool(store, name, owner, redact)
    return Spool(name, owner, redact)


class SkippedSpool(Struct, frozen=True):
    """A spool file, or the directory of all spool files, that cannot be used, and why."""

    path: str
    reason: str


def left_behind(name: str) -> Iterator[LeftSpool | SkippedSpool]:
    """Yield the spools of earlier sessions whose names begin with ``name``, oldest first.

    Their processes have ended, or the spools are in memory.
    """
    for one in list(_left_in_memory):
        if os.path.basename(one.path).startswith(name) and one.take_from_memory():
            yield one
    directory = spool_directory()
    try:
        found = [entry.path for entry in os.scandir(directory) if entry.name.startswith(name)]
    except FileNotFoundError:
        return
    except OSError as error:
        yield SkippedSpool(directory, describe_error(error))
        return
    for path in sorted(found, key=_age):
        spool = LeftSpool.take(path)
        if spool is not None:
            yield spool


def has_spooled_journal(store: object, session_id: str) -> bool:
    """Return whether this machine has a spool file with journal entries of a session."""
    name = f"{spool_name(store, session_id)}{JOURNAL}."
    try:
        found = os.listdir(spool_directory())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False  # so this user has not written one either
    except OSError:  # a recovery reports it
        return True
    return any(one.startswith((name, damaged_name(name))) for one in found)


def spools_for_others(name: str) -> list[str]:
    """Return the spool files of the same session for other stores than that of ``name``.

    Files without entries that wait are left out.
    """
    session_id = name.split(".")[0]
    try:
        found = os.listdir(spool_directory())
    except OSError:
        return []
    paths = [
        os.path.join(spool_directory(), one)
        for one in sorted(found)
        if one.startswith(f"{session_id}.") and not one.startswith(name)
    ]
    return [path for path in paths if _has_waiting_lines(path)]


def _has_waiting_lines(path: str) -> bool:
    """Return whether a file may have entries that a store does not have."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            return any(line.endswith(b"\n") and line[:1] != DONE for line in file)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _age(path: str) -> int:
    """Return when entries were added to a file. A file that is gone is first."""
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


class LeftBatch(Struct, frozen=True):
    """A line of a spool file that was left behind. ``is_rejected`` tells if its mark is ``!``."""

    position: int
    key: SessionKey
    entries: Sequence[Entry]
    is_rejected: bool
    after: str | None


class LeftSpool:
    """A spool file that an earlier process left behind, locked by this process."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._descriptor = descriptor
        self._prepare(path, os.fstat(descriptor).st_mtime_ns)
        _open_spools.add(self)

    def _prepare(self, path: str, time: int) -> None:
        self.path = path
        self._added = time
        added = datetime.fromtimestamp(self._added / 1e9, UTC)
        #: When the last entries were added, as the CLI writes times.
        self.written = added.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        #: Whether `batches` has found lines that cannot be read.
        self.is_damaged = False
        # Where the last complete line ends.
        with self._open() as file:
            file.seek(0)
            self._end = sum(len(line) for line in file if line.endswith(b"\n"))

    @classmethod
    def take(cls, path: str) -> LeftSpool | SkippedSpool | None:
        """Lock the file. Return None if it is gone."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            return SkippedSpool(path, describe_error(error))
        skipped: SkippedSpool | None = None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return cls(path, descriptor)
        except FileNotFoundError:
            pass
        except BlockingIOError:
            skipped = SkippedSpool(path, "another process uses it")
        except OSError as error:
            skipped = SkippedSpool(path, describe_error(error))
        os.close(descriptor)
        return skipped

    def batches(self) -> Iterator[LeftBatch]:
        """Yield the batches that the store does not have, without those that are added meanwhile.

        The last line may be cut off, because the process died while it was written.
        """
        position, end = 0, self._end
        with self._open() as file:
            file.seek(0)
            for line in file:
                if position >= end:
                    break
                mark = line[:1]
                try:
                    found = decode_line(line[1:])
                except msgspec.DecodeError:
                    self.is_damaged = True
                else:
                    if mark in (WAITING, REJECTED):
                        is_rejected = mark == REJECTED
                        yield LeftBatch(
                            position, found.key, found.entries, is_rejected, found.after
                        )
                    elif mark != DONE:
                        self.is_damaged = True
                position += len(line)

    def write_rejected(self, batch: LeftBatch, entries: Sequence[Entry]) -> None:
        """Add entries of a batch that the store rejected. Wait until they are on the disk."""
        rows = to_rows("spool", entries, None)
        lines = [encode_line(REJECTED, batch.key, [row.body], batch.after) for row in rows]
        self._write(lines)
        self._end += sum(map(len, lines))

    def _open(self) -> BinaryIO:
        return open(self._descriptor, "rb", closefd=False)

    def _write(self, lines: Sequence[bytes]) -> None:
        write_lines(self._descriptor, self._end, lines)
        set_time(self._descriptor, self._added)  # the entries are as old as before

    def mark_done(self, position: int) -> None:
        """Note that a batch is in the store."""
        mark_done(self._descriptor, position)

    def remove(self) -> str | None:
        """Remove the file, because the store has everything.

        Keep a file with unreadable lines under another name, and return its new path.
        """
        try:
            if not self.is_damaged:
                os.unlink(self.path)
                return None
            directory, name = os.path.split(self.path)
            kept = os.path.join(directory, damaged_name(name))
            os.rename(self.path, kept)
            return kept
        except FileNotFoundError:  # another program was faster
            return None
        finally:
            self.close()

    def close(self) -> None:
        """Close the file and leave it for the next session."""
        _open_spools.discard(self)
        os.close(self._descriptor)

    def forget(self) -> None:
        """Close the file in a forked child. The lock belongs to the parent."""
        os.close(self._descriptor)


class LeftInMemory(LeftSpool):
    """The entries of a `MemorySpool` that the store does not have."""

    def __init__(self, path: str, data: bytearray, added: int) -> None:
        self._data = data
        self._prepare(path, added)

    def take_from_memory(self) -> bool:
        """Take it, so that no other session does. Return False if one has."""
        try:
            _left_in_memory.remove(self)
        except ValueError:
            return False
        return True

    def _open(self) -> BinaryIO:
        return io.BytesIO(self._data)

    def _write(self, lines: Sequence[bytes]) -> None:
        self._data += b"".join(lines)

    def mark_done(self, position: int) -> None:
        """Note that a batch is in the store."""
        self._data[position : position + 1] = DONE

    def remove(self) -> str | None:
        """Free the memory, because the store has everything."""
        self._data.clear()
        return None

    def close(self) -> None:
        """Leave it for the next session."""
        if self._data:  # otherwise the store is gone
            _left_in_memory.append(self)

    def free(self) -> None:
        """Free the memory, because the store is gone."""
        self.take_from_memory()
        self._data.clear()


_left_in_memory: list[LeftInMemory] = []
_open_spools: weakref.WeakSet[Spool | LeftSpool] = weakref.WeakSet()


def _forget_all() -> None:
    # Otherwise a file would stay locked until the child ends, and its entries would not be found.
    for spool in list(_open_spools):
        spool.forget()
    _open_spools.clear()


os.register_at_fork(after_in_child=_forget_all)


def _sync(directory: str) -> None:
    """Make the name of a new file durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
