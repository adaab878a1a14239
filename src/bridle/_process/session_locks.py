"""Lock sessions on this machine, so that two CLIs never continue the same conversation.

All sessions of a configuration directory share one lock file in it. Each session locks one byte of
the file, at a position that is computed from its id. So a process needs one descriptor for any
number of sessions, nothing has to be removed, and the kernel releases the locks of a process
that dies. The file stays empty.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import subprocess
from errno import EACCES
from threading import Lock

from bridle._process.accounts import Account
from bridle._process.byte_locks import lock_byte
from bridle._process.config_directory import CliPlace, place_of
from bridle._process.launch.plan import Launch
from bridle.errors import SessionInUseError
from bridle.options._checks import is_uuid

_NAME = "bridle-sessions.lock"

_CREATE_TIMEOUT = 5.0
"""Maximum seconds for creating the file as another user."""

_PAUSE = 0.2
"""Seconds between two attempts to lock a session that is in use."""

_CREATE = 'umask 077; mkdir -p -- "$1" && : >> "$2"'


class SessionLock:
    """A locked session."""

    def __init__(self, file: _LockFile, session_id: str) -> None:
        self._file: _LockFile | None = file
        self._session_id = session_id

    def release(self) -> None:
        """Unlock the session. Can be called more than once, from any thread."""
        file, self._file = self._file, None
        if file is not None:
            file.unlock(self._session_id)


class _LockFile:
    """The lock file of one configuration directory, open while a session is locked."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, _NAME)
        self._descriptor: int | None = None
        # The kernel does not see a conflict between two sessions of one process.
        self._held: set[str] = set()

    def _open(self, account: Account | None) -> int:
        """Open the file, and create it if it does not exist.

        If the CLI runs as another user, this user may have put links to other places into the
        path. So the file is created with the rights of this user, and must belong to it.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        if account is None:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            return os.open(self._path, flags | os.O_CREAT, 0o600)
        try:
            descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            self._create(account)
            descriptor = os.open(self._path, flags)
        facts = os.fstat(descriptor)
        if facts.st_uid != account.user or not stat.S_ISREG(facts.st_mode):
            os.close(descriptor)
            raise PermissionError(EACCES, f"it is not a file of the user {account.name!r}")
        return descriptor

    def _create(self, account: Account) -> None:
        """Create the file as the user that the CLI runs as."""
        command = ("/bin/sh", "-c", _CREATE, "sh", self._directory, self._path)
        try:
            subprocess.run(
                command,
                check=True,
                timeout=_CREATE_TIMEOUT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                user=account.user,
                group=account.group,
                extra_groups=account.groups,
            )
        except subprocess.SubprocessError as error:
            why = f"the user {account.name!r} cannot create it"
            raise PermissionError(EACCES, why) from error

    def lock(self, session_id: str, account: Account | None) -> None:
        """Lock a session of a CLI that runs as the user of ``account``.

        Raises:
            SessionInUseError: the session is locked.
            OSError: the file cannot be opened, or its file system has no locks.
        """
        with _guard:
            if session_id in self._held:
                raise SessionInUseError(session_id)
            if self._descriptor is None:
                self._descriptor = self._open(account)
            try:
                if not lock_byte(self._descriptor, _position(session_id), fcntl.LOCK_EX):
                    raise SessionInUseError(session_id)
                self._held.add(session_id)
            finally:
                self._close_if_unused()

    def unlock(self, session_id: str) -> None:
        with _guard:
            if session_id in self._held and self._descriptor is not None:
                self._held.discard(session_id)
                lock_byte(self._descriptor, _position(session_id), fcntl.LOCK_UN)
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        if not self._held and self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def forget(self) -> None:
        """Close the file in a forked child, which would keep the locks of its parent."""
        self._held.clear()
        self._close_if_unused()


_files: dict[str, _LockFile] = {}
_guard = Lock()


class CannotLock(Exception):
    """The lock file cannot be used, so the session is not protected. The text says why."""


def lock_session(config: str, session_id: str, account: Account | None = None) -> SessionLock:
    """Lock a session of a CLI.

    Args:
        config: the configuration directory of the CLI.
        session_id: the session.
        account: the user that the CLI runs as. None for the user of this process.

    Raises:
        SessionInUseError: another session, here or in another process, has the lock.
        CannotLock: the directory does not support locks or cannot be written.
    """
    directory = os.path.realpath(config)
    with _guard:
        file = _files.setdefault(directory, _LockFile(directory))
    try:
        file.lock(session_id, account)
    except OSError as error:
        raise CannotLock(f"{directory}/{_NAME}: {error.strerror or error}") from error
    return SessionLock(file, session_id)


class SessionLocks:
    """The locks of one CLI: the session that it writes, and those that it writes later."""

    def __init__(self, place: CliPlace) -> None:
        self._place = place
        self._locks: dict[str, SessionLock] = {}
        #: Why a session could not be locked. None if all are locked.
        self.problem: str | None = None
        #: True if the sessions stay locked after the end of the CLI, until `give_back`: their
        #: store does not have all entries yet.
        self.is_kept = False

    def has(self, session_id: str) -> bool:
        """Return whether a session is locked."""
        return session_id in self._locks

    def take(self, session_id: str) -> None:
        """Lock a session. The lock is kept until `release`.

        Raises:
            SessionInUseError: another session, here or in another process, has the lock.
        """
        if session_id in self._locks or not is_uuid(session_id):
            return
        place = self._place
        try:
            self._locks[session_id] = lock_session(place.config, session_id, place.account)
        except CannotLock as error:
            self.problem = str(error)

    def release(self) -> None:
        """Unlock all sessions, unless they are kept. Can be called again, from any thread."""
        if self.is_kept:
            return
        locks, self._locks = self._locks, {}
        for lock in locks.values():
            lock.release()

    def give_back(self) -> None:
        """Unlock all sessions, also if they were kept. Can be called again, from any thread."""
        self.is_kept = False
        self.release()


class StartLock:
    """The lock of a conversation until the CLI that resumes it has the lock.

    It is taken before Bridle looks for a call that waits for approval, so that no other program
    changes the conversation between this look and the start of the CLI.

    Args:
        is_needed: False if no lock has to be taken: there is no CLI that has files, or another
            object has the lock until the end.
    """

    def __init__(self, *, is_needed: bool = True) -> None:
        self._locks: SessionLocks | None = None
        self.is_needed = is_needed

    async def take(self, launch: Launch, session_id: str, seconds: float) -> None:
        """Lock a session, and wait up to ``seconds`` while it is in use. Release another one.

        Does nothing if it is not needed, or has the lock of the session already, from the CLI
        before. If the lock file cannot be used, this does nothing, too. The start of the CLI warns
        about it.

        Raises:
            SessionInUseError: it was not free in time.
        """
        if not self.is_needed or (self._locks is not None and self._locks.has(session_id)):
            return
        self.release()
        locks, loop = SessionLocks(place_of(launch)), asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            try:
                locks.take(session_id)
            except SessionInUseError:
                left = end - loop.time()
                if left <= 0:
                    raise
            else:
                self._locks = locks
                return
            await asyncio.sleep(min(_PAUSE, left))

    def hand_over(self) -> SessionLocks | None:
        """Return the locks, or None if there are none. The caller has to release them."""
        locks, self._locks = self._locks, None
        return locks

    def take_back(self, locks: SessionLocks) -> None:
        """Hold the locks of a CLI that has ended, for a CLI that continues after it."""
        self._locks = locks

    def release(self) -> None:
        """Unlock the session, unless the lock was handed over. Can be called more than once."""
        locks = self.hand_over()
        if locks is not None:
            locks.give_back()


def _position(session_id: str) -> int:
    number = int(session_id.replace("-", ""), 16)
    return (number ^ number >> 64) & (1 << 62) - 1


def _forget_all() -> None:
    global _guard
    _guard = Lock()  # another thread of the parent may hold it
    for file in _files.values():
        file.forget()
    _files.clear()


os.register_at_fork(after_in_child=_forget_all)
