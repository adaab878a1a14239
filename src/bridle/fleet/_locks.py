"""Locks that die with a worker, so that the other workers can tell that it is dead.

The coroutines of a lock are called on one event loop, one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from bridle._spi import lock_byte
from bridle.errors import OptionsError, StoreError
from bridle.fleet._decisions import ANSWER, FREE, PING, RELEASE, RELOCK, Tenure, lock_number
from bridle.fleet._fleet_database import DatabaseDeleted, DatabaseFile


class LockLost(Exception):
    """The worker has lost its lock, so that others may take its runs over."""


class WorkerLock(ABC):
    """The lock of a worker, and those of other workers."""

    #: Seconds for which the lock of another worker must have been free.
    free_for: float

    def __init__(self, executor: str) -> None:
        self.executor = executor
        #: Whether the worker may run CLIs.
        self.tenure: Tenure = Tenure(time.monotonic(), None)

    @abstractmethod
    async def take(self) -> None:
        """Take the lock of this worker.

        Raises:
            StoreError: the database cannot be reached.
        """

    @abstractmethod
    async def confirm(self) -> None:
        """Check that this worker still has its lock. Return after a while.

        Raises:
            LockLost: it does not, or this cannot be found out.
        """

    @abstractmethod
    async def free(self, executors: Iterable[str]) -> list[str]:
        """Return those of the executors whose locks are free."""

    @abstractmethod
    def taking(self, executor: str) -> contextlib.AbstractAsyncContextManager[bool]:
        """Hold the lock of another worker. Return False if it cannot be taken."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give the lock back."""


# ---------------------------------------------------------------- files


_open_files: set[int] = set()
"""Descriptors of lock files in this process."""


def _close_files() -> None:
    while _open_files:
        os.close(_open_files.pop())


# A child process that a tool has forked would share the lock, and keep it when the worker dies.
os.register_at_fork(after_in_child=_close_files)


class FileLock(WorkerLock):
    """Lock one byte of a file beside an SQLite database. The kernel unlocks it with the process."""

    free_for = 1.5  # the watchdog of a killed worker needs a moment to kill the CLIs

    def __init__(self, executor: str, database: str) -> None:
        super().__init__(executor)
        self._path = f"{database}-workers.lock"
        self._file = DatabaseFile(f"sqlite:///{database}")
        self._descriptor: int | None = None

    async def take(self) -> None:
        self._file.remember()
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _open_files.add(self._descriptor)
            is_taken = self._lock(self.executor, fcntl.LOCK_EX)
        except OSError as error:
            raise StoreError("Fleet", "work", f"the lock file: {error.strerror}") from None
        if not is_taken:
            raise StoreError("Fleet", "work", "the lock of this worker cannot be taken")

    def _lock(self, executor: str, kind: int) -> bool:
        """Change the lock of an executor. Return False if another worker has it."""
        assert self._descriptor is not None, "the file is open"
        place = lock_number(executor) & 0x3FFF_FFFF_FFFF_FFFF
        return lock_byte(self._descriptor, place, kind)

    async def confirm(self) -> None:
        await asyncio.sleep(PING)
        # If the file is deleted, other workers use a new one and do not see this lock.
        assert self._descriptor is not None, "the file is open"
        ours = os.fstat(self._descriptor)
        try:
            self._file.check()  # DBOS would go on with a file that is gone
            there = os.stat(self._path)
            # On systems other than Linux any code that closes the file has released the lock.
            is_held = self._lock(self.executor, fcntl.LOCK_EX)
        except (OSError, DatabaseDeleted):
            raise LockLost from None
        if not is_held or (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
            raise LockLost

    async def free(self, executors: Iterable[str]) -> list[str]:
        return [one for one in executors if self._is_free(one)]

    def _is_free(self, executor: str) -> bool:
        # A shared lock: several workers may look at the same time.
        is_free = self._lock(executor, fcntl.LOCK_SH)
        if is_free:
            self._lock(executor, fcntl.LOCK_UN)
        return is_free

    @contextlib.asynccontextmanager
    async def taking(self, executor: str) -> AsyncGenerator[bool]:
        is_taken = self._lock(executor, fcntl.LOCK_EX)
        try:
            yield is_taken
        finally:
            if is_taken:
                self._lock(executor, fcntl.LOCK_UN)

    async def aclose(self) -> None:
        if self._descriptor is not None:
            _open_files.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None


# ---------------------------------------------------------------- PostgreSQL


class PostgresLock(WorkerLock):
    """Hold an advisory lock of a PostgreSQL session. It ends with the session.

    The server ends a session without requests after `RELEASE` seconds. So the lock of a worker
    that is cut off becomes free, also if a proxy keeps its connection open.
    """

    free_for = FREE

    def __init__(self, executor: str, url: str) -> None:
        super().__init__(executor)
        self._url = url
        self._connection: Any = None
        # The connection serves one request at a time.
        self._busy = asyncio.Lock()

    async def take(self) -> None:
        import psycopg

        sent = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER):
                connection = await psycopg.AsyncConnection.connect(
                    self._url,
                    autocommit=True,
                    prepare_threshold=None,
                    application_name=f"bridle worker {os.getpid()}",
                    connect_timeout=5,
                )
        except (psycopg.Error, TimeoutError, OSError):
            connection = None
        if connection is None:
            fix = "Check that the server runs and that the url is right."
            raise StoreError("Fleet", "work", "the database cannot be reached", fix=fix)
        try:
            if connection.info.server_version < 140000:
                problem = "needs PostgreSQL 14 or newer, because older servers cannot end a session"
                raise OptionsError("database", problem, fix="Update the server.")
            async with asyncio.timeout(ANSWER):
                milliseconds = int(RELEASE * 1000)
                await connection.execute(f"SET idle_session_timeout = {milliseconds}".encode())
                number = lock_number(self.executor)
                is_ours = await _one(connection, "SELECT pg_try_advisory_lock(%s)", number)
        except (psycopg.Error, TimeoutError):
            is_ours = None
        except BaseException:
            await connection.close()
            raise
        if not is_ours:
            await connection.close()
            raise StoreError("Fleet", "work", "the lock of this worker cannot be taken")
        self._connection = connection
        self.tenure = Tenure(sent)

    async def confirm(self) -> None:
        await self._wait_for_end(PING)
        sent = time.monotonic()
        try:
            await self._ask("SELECT 1")
        except LockLost:
            await self._retake()
        else:
            self.tenure.confirm(sent)

    async def _wait_for_end(self, seconds: float) -> None:
        """Wait, but return at once if the server closes the connection."""
        loop = asyncio.get_running_loop()
        async with self._busy:
            connection = self._connection
            if connection is None or connection.closed:
                return
            ended: asyncio.Future[None] = loop.create_future()
            descriptor = connection.fileno()
            loop.add_reader(descriptor, _settle, ended)
            try:
                await asyncio.wait([ended], timeout=seconds)
            finally:
                loop.remove_reader(descriptor)

    async def _retake(self) -> None:
        """Take the lock again after the connection broke, if no other worker has it."""
        end = time.monotonic() + RELOCK
        while time.monotonic() < end:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(max(end - time.monotonic(), 0.01)):
                    return await self.take()
            await asyncio.sleep(0.1)
        raise LockLost

    async def _ask(self, query: str, *values: object) -> Any:
        """Return the first value of a query.

        Raises:
            LockLost: the connection has ended, or the server does not answer.
        """
        import psycopg

        try:
            async with asyncio.timeout(ANSWER), self._busy:
                if self._connection is None:
                    raise LockLost
                return await _one(self._connection, query, *values)
        except (psycopg.Error, TimeoutError):
            pass
        raise LockLost

    async def free(self, executors: Iterable[str]) -> list[str]:
        numbers = {lock_number(one): one for one in executors}
        if not numbers:
            return []
        # After a restart of the server all locks are free, also those of workers that live.
        recent = "now() - pg_postmaster_start_time() < make_interval(secs => %s)"
        if await self._ask(f"SELECT {recent}", RELEASE):
            return []
        held = await self._ask(
            "SELECT coalesce(array_agg((classid::bigint << 32) | objid::bigint), '{}')"
            " FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return [one for number, one in numbers.items() if number not in held]

    @contextlib.asynccontextmanager
    async def taking(self, executor: str) -> AsyncGenerator[bool]:
        number = lock_number(executor)
        is_taken = await self._ask("SELECT pg_try_advisory_lock(%s)", number)
        try:
            yield bool(is_taken)
        finally:
            if is_taken:
                await self._ask("SELECT pg_advisory_unlock(%s)", number)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


async def _one(connection: Any, query: str, *values: object) -> Any:
    cursor = await connection.execute(query.encode(), values)
    row = await cursor.fetchone()
    return None if row is None else row[0]
