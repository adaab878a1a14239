"""Tell whether the owner of a lease has died on this machine.

A process that holds the lease of a session writes the owner into a file of this machine, and locks
one byte for the owner in a lock file beside it. The kernel releases the lock when the process dies.
So a lease whose owner is in the file, and whose lock is free, belongs to a dead process.

The file also names the boot of the kernel. Another machine that shares the directory, over a
network, has another one: there the lock says nothing. Elsewhere than on Linux no such file is
written, because a lock can end before its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from hashlib import sha256
from threading import Lock

import msgspec
from msgspec import Struct

from bridle._process.byte_locks import lock_byte
from bridle.sessions._backlog import LEASE
from bridle.sessions._outbox.spool import state_directory
from bridle.sessions._stores.locations import class_and_location

_LOCKS = "owners.lock"


class _Owner(Struct, frozen=True):
    """What the file of a lease says."""

    owner: str
    boot: str


class LeaseOwners:
    """The owners of leases on this machine, in one directory.

    The methods block. If the directory cannot be used, nothing is written, and no owner counts as
    dead.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._guard = Lock()
        # The kernel does not see a conflict between two owners of one process.
        self._held: set[str] = set()
        self._has_pruned = False

    def hold(self, store: object, session_id: str, owner: str) -> None:
        """Write that this process holds the lease of a session, until `drop`."""
        boot = _boot()
        if not boot or not _is_shared(store):
            return
        with self._guard, contextlib.suppress(OSError):
            if not lock_byte(self._open(), _position(owner), fcntl.LOCK_EX):
                return
            self._held.add(owner)
            path = self._path(store, session_id)
            part = f"{path}.{owner}"
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_Owner(owner, boot)))
            os.replace(part, path)
            self._prune()

    def drop(self, store: object, session_id: str, owner: str) -> None:
        """Forget the owner of a lease, when this process has given it back."""
        if not _is_shared(store):
            return
        with self._guard, contextlib.suppress(OSError):
            path = self._path(store, session_id)
            found = _read(path)
            if found is not None and found.owner == owner:
                os.unlink(path)

    def forget(self, owner: str) -> None:
        """Unlock an owner of this process: it holds no lease any more."""
        with self._guard, contextlib.suppress(OSError):
            if owner in self._held:
                self._held.discard(owner)
                lock_byte(self._open(), _position(owner), fcntl.LOCK_UN)

    def dead(self, store: object, session_id: str) -> str | None:
        """Return the owner of the lease of a session if it died on this machine, else None."""
        if not _is_shared(store):
            return None
        with self._guard, contextlib.suppress(OSError):
            found = _read(self._path(store, session_id))
            if found is not None and self._is_dead(found):
                return found.owner
        return None

    def _is_dead(self, found: _Owner) -> bool:
        if found.owner in self._held or found.boot != _boot():
            return False
        descriptor, position = self._open(), _position(found.owner)
        is_free = lock_byte(descriptor, position, fcntl.LOCK_EX)
        if is_free:
            lock_byte(descriptor, position, fcntl.LOCK_UN)
        return is_free

    def _prune(self) -> None:
        """Remove what dead processes have left, once in each process."""
        if self._has_pruned:
            return
        self._has_pruned = True
        for entry in list(os.scandir(self._directory)):
            # A lease expires in this time, so nothing is lost.
            if entry.name != _LOCKS and entry.stat().st_mtime < time.time() - 2 * LEASE:
                found = _read(entry.path)
                if found is None or found.boot != _boot() or self._is_dead(found):
                    os.unlink(entry.path)

    def _open(self) -> int:
        """Return the lock file, which stays open."""
        if self._descriptor is None:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            path = os.path.join(self._directory, _LOCKS)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(path, flags, 0o600)
        return self._descriptor

    def _path(self, store: object, session_id: str) -> str:
        about = f"{class_and_location(store)}\0{session_id}".encode("utf-8", "surrogateescape")
        return os.path.join(self._directory, sha256(about).hexdigest()[:40])

    def close_in_child(self) -> None:
        """Close the file in a forked child, which would keep the locks of its parent."""
        self._guard = Lock()  # another thread of the parent may hold it
        self._held.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _is_shared(store: object) -> bool:
    """Return whether another process can have the same store, and know that it is the same."""
    ends = getattr(store, "ends_with_program", False)
    return not ends and bool(getattr(store, "location", None))


_decode_owner = msgspec.json.Decoder(_Owner).decode
"""Built here, before threads use it."""


def _read(path: str) -> _Owner | None:
    """Return what a file says. None if there is none, or it cannot be read."""
    try:
        with open(path, "rb") as file:
            return _decode_owner(file.read())
    except (OSError, msgspec.DecodeError):
        return None


def _position(owner: str) -> int:
    return int.from_bytes(sha256(owner.encode()).digest()[:8], "big") & (1 << 62) - 1


def _boot() -> str:
    """Return the id of this boot of the kernel. Empty if locks prove nothing here."""
    if sys.platform != "linux":
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


_all: dict[str, LeaseOwners] = {}


def lease_owners() -> LeaseOwners:
    """Return the owners of leases of this user on this machine."""
    directory = os.path.join(state_directory(), "leases")
    return _all.setdefault(directory, LeaseOwners(directory))


def _close_all() -> None:
    for one in _all.values():
        one.close_in_child()


os.register_at_fork(after_in_child=_close_all)
