"""Keep entries for a session store in a local file while the store cannot take them.

A spool is a private file with one line for each batch: a mark, and the batch as JSON. The mark is
``+``, or ``-`` once the batch is in the store. The file is locked while its process lives, so that
another process can tell whether it was left behind. It is removed when the store has everything.

Everything here blocks. Call it in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import msgspec
from msgspec import Struct

from bridle._core.mirroring import Batch
from bridle._store import Entry, SessionKey
from bridle._stores.entries import to_rows
from bridle._stores.locations import class_and_location

_WAITING, _DONE = b"+", b"-"
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class _Line(Struct):
    """The JSON of one batch."""

    key: SessionKey
    entries: list[dict[str, object]]


_decode_line = msgspec.json.Decoder(_Line).decode


def _decode(line: bytes) -> _Line:
    """Decode a batch. Raises `msgspec.DecodeError`."""
    try:
        return _decode_line(line)
    except msgspec.DecodeError:  # msgspec rejects half a surrogate pair
        try:
            return msgspec.convert(json.loads(line), _Line)
        except (ValueError, RecursionError):
            raise msgspec.DecodeError("not a batch") from None


def spool_directory() -> str:
    """Return the directory of all spool files of this user."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "bridle", "spool")


def spool_name(store: object, session_id: str) -> str:
    """Return the first part of the names of the spool files of a session and a store.

    It differs for stores of different classes or with a different ``location``.
    """
    about = class_and_location(store).encode("utf-8", "surrogateescape")
    return f"{session_id}.{hashlib.sha256(about).hexdigest()[:12]}."


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
        self._redact = redact
        self.path = os.path.join(spool_directory(), f"{name}{owner}.jsonl")
        self._descriptor: int | None = None
        self._end = 0
        # Batches that the store does not have.
        self._waiting = 0
        # Held while the file is changed: calls come from several threads.
        self._lock = Lock()

    def write(self, batches: Sequence[Batch]) -> None:
        """Add the batches that are not in the file, wait until they are on the disk, set ``place``.

        Raises:
            OSError: they could not be written.
            StoreError: ``redact`` failed, or an entry is not JSON. Nothing was written. The error
                has no part of an entry.
        """
        with self._lock:
            new = [(batch, self._encode(batch)) for batch in batches if batch.place is None]
            if not new:
                return
            descriptor = self._create() if self._descriptor is None else self._descriptor
            end = self._end
            for _, line in new:
                written = 0
                while written < len(line):
                    written += os.pwrite(descriptor, line[written:], end + written)
                end += len(line)
            os.fsync(descriptor)
            for batch, line in new:
                batch.place = (self._end, len(line))
                self._end += len(line)
            self._waiting += len(new)

    def read(self, place: tuple[int, int]) -> list[Entry]:
        """Return the entries of a batch."""
        assert self._descriptor is not None, "a batch has a place in the file"
        start, length = place
        line = b""
        while len(line) < length:
            part = os.pread(self._descriptor, length - len(line), start + len(line))
            if not part:
                raise OSError(f"the spool file {self.path} was cut off")
            line += part
        return list(_decode(line[1:]).entries)

    def mark_done(self, place: tuple[int, int]) -> None:
        """Note that a batch is in the store."""
        with self._lock:
            assert self._descriptor is not None, "a batch has a place in the file"
            os.pwrite(self._descriptor, _DONE, place[0])
            self._waiting -= 1

    def remove_if_done(self) -> None:
        """Remove the file if the store has all its batches. The next batch creates it again."""
        with self._lock:
            if not self._waiting and self._descriptor is not None:
                with contextlib.suppress(FileNotFoundError):  # another program was faster
                    os.unlink(self.path)
                self._close()

    def close(self) -> None:
        """Close the file and leave it for the next session. Remove it if nothing waits in it.

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
                self._close()

    def _write_again(self, descriptor: int) -> None:
        """Write the file under its name again, because another program removed it."""
        with (
            open(descriptor, "rb", closefd=False) as removed,
            open(os.open(self.path, _CREATE, 0o600), "wb") as again,
        ):
            removed.seek(0)
            shutil.copyfileobj(removed, again)
            again.flush()
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

    def _create(self) -> int:
        directory = os.path.dirname(self.path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._descriptor = descriptor = os.open(self.path, _CREATE, 0o600)
        _open_spools.add(self)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync(directory)
        return descriptor

    def _encode(self, batch: Batch) -> bytes:
        assert batch.entries is not None, "the batch is in memory"
        key = json.dumps(msgspec.to_builtins(batch.key))
        entries = ",".join(row.body for row in to_rows("spool", batch.entries, self._redact))
        return _WAITING + f'{{"key":{key},"entries":[{entries}]}}\n'.encode()


def left_behind(name: str) -> Iterator[LeftSpool]:
    """Yield the spool files of earlier processes whose names begin with ``name``, oldest first."""
    directory = spool_directory()
    try:
        found = [entry for entry in os.scandir(directory) if entry.name.startswith(name)]
        found.sort(key=lambda entry: entry.stat().st_mtime_ns)
    except OSError:
        return
    for entry in found:
        spool = LeftSpool.take(entry.path)
        if spool is not None:
            yield spool


class LeftSpool:
    """A spool file that an earlier process left behind, locked by this process."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._is_damaged = False
        _open_spools.add(self)

    @classmethod
    def take(cls, path: str) -> LeftSpool | None:
        """Lock the file. Return None if a process uses it, or if it is gone."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return cls(path, descriptor)
        except OSError:
            pass
        os.close(descriptor)
        return None

    def batches(self) -> Iterator[tuple[int, SessionKey, Sequence[Entry]]]:
        """Yield the batches that the store does not have: position, key, entries.

        The last line may be cut off, because the process died while it was written.
        """
        position = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            for line in file:
                if line.startswith(_WAITING) and line.endswith(b"\n"):
                    try:
                        found = _decode(line[1:])
                    except msgspec.DecodeError:
                        self._is_damaged = True
                    else:
                        yield position, found.key, found.entries
                position += len(line)

    def mark_done(self, position: int) -> None:
        """Note that a batch is in the store."""
        os.pwrite(self._descriptor, _DONE, position)

    def remove(self) -> None:
        """Remove the file, because the store has everything. Keep a file with unreadable lines."""
        try:
            if self._is_damaged:
                directory, name = os.path.split(self.path)
                os.rename(self.path, os.path.join(directory, f"damaged.{name}"))
            else:
                os.unlink(self.path)
        except FileNotFoundError:  # another program was faster
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Close the file and leave it for the next session."""
        _open_spools.discard(self)
        os.close(self._descriptor)

    def forget(self) -> None:
        """Close the file in a forked child. The lock belongs to the parent."""
        os.close(self._descriptor)


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
