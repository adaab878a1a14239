"""The database of a fleet: its url, its file, its tables, its clock, and what its errors mean."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Generator
from errno import EDQUOT, ENOSPC
from typing import Any

from bridle._spi import SqliteFile

_LIMITS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",  # milliseconds
}
"""Parameters of PostgreSQL connections, so that a call fails soon if the network loses packets."""

_MIGRATING = 60.0
"""Seconds that a program waits for another one that creates the tables."""

_SQLITE = "sqlite:///"


def bounded(url: str) -> str:
    """Return the url of a PostgreSQL database with limits of time. The user may set others."""
    if url.startswith("sqlite"):
        return url
    from sqlalchemy import make_url

    made = make_url(url)
    missing = {name: value for name, value in _LIMITS.items() if name not in made.query}
    return made.update_query_dict(missing).render_as_string(hide_password=False)


# ---------------------------------------------------------------- errors


_DISK_FULL = "Free space on the disk of the database. The operation can be repeated."
_DELETED = (
    "Restore the file. To begin with a new one, stop the workers and the programs that submit "
    "runs, and start them again."
)
_UNREACHABLE = "Check that the database is reachable. The operation can be repeated."


def explain(error: Exception) -> tuple[str, str]:
    """Return what a database reported, and the fix. Both are without values of statements."""
    found: Any = getattr(error, "orig", None) or error
    if isinstance(found, DatabaseDeleted):
        return str(found), _DELETED
    if isinstance(found, OSError):
        reason = found.strerror or type(found).__name__
        is_full = found.errno in (ENOSPC, EDQUOT)
    elif isinstance(found, sqlite3.Error):
        reason = str(found)  # has names of columns, no values
        is_full = getattr(found, "sqlite_errorname", "") == "SQLITE_FULL"
    else:
        # The text of the error may show the url or values of a statement.
        reason = type(found).__name__
        is_full = getattr(found, "sqlstate", "") == "53100"
    if is_full:
        return f"the disk is full (the database reported {reason!r})", _DISK_FULL
    return f"the database reported {reason}", _UNREACHABLE


# ---------------------------------------------------------------- the file of SQLite


class DatabaseDeleted(Exception):
    """The file of the database was deleted. What is written to it now cannot be read any more."""


class DatabaseFile:
    """The file of an SQLite database, which must stay the same. Other databases have none."""

    def __init__(self, url: str) -> None:
        self._file = SqliteFile(url.removeprefix(_SQLITE)) if url.startswith("sqlite") else None

    def remember(self) -> None:
        """Take the file that is there now."""
        if self._file is not None:
            self._file.remember()

    def forget(self) -> None:
        """Begin with a new file if there is none."""
        if self._file is not None:
            self._file.forget()

    def is_replaced(self) -> bool:
        """Return whether there is another file than before.

        Raises:
            DatabaseDeleted: there is none.
        """
        try:
            file = self._file
            return file is not None and file.is_known and file.is_replaced()
        except FileNotFoundError as error:
            what = f"the database file was deleted ({error.filename})"
            raise DatabaseDeleted(what) from None

    def check(self) -> None:
        """Check that the file is still there.

        Raises:
            DatabaseDeleted: it was deleted, also if there is another one now.
        """
        if self.is_replaced() and self._file is not None:
            raise DatabaseDeleted(f"the database file was replaced ({self._file.path})")

    def watch(self, engine: Any) -> None:
        """Keep an engine of SQLAlchemy from creating the file again when it connects."""
        from sqlalchemy import event

        def check(*_: object) -> None:
            self.check()

        event.listen(engine, "do_connect", check)


# ---------------------------------------------------------------- the clock


def milliseconds(connection: Any) -> Any:
    """Return the time of the database as an expression, in milliseconds since the epoch.

    The clocks of workers may differ.
    """
    from sqlalchemy import BigInteger, cast, func

    if connection.dialect.name == "sqlite":
        return cast((func.julianday("now") - 2440587.5) * 86_400_000, BigInteger)
    return cast(func.extract("epoch", func.now()) * 1000, BigInteger)


_SUBSEC_SINCE = (3, 42)
"""The first SQLite whose `unixepoch` has fractions of seconds."""

# How often `adding_subsec` is in use.
_adding = 0
_lock = threading.Lock()


def add_subsec(engine: Any) -> None:
    """Give an older SQLite the function by which DBOS dates rows on Python 3.12 and newer.

    Without it, `unixepoch('subsec')` is NULL, and no run can be submitted. A database has the
    function in its tables if the program that created them had such a Python.
    """
    if sqlite3.sqlite_version_info < _SUBSEC_SINCE:
        from sqlalchemy import event

        event.listen(engine, "connect", add_unixepoch)


@contextlib.contextmanager
def adding_subsec() -> Generator[None]:
    """Do as `add_subsec` for the engines that are created meanwhile."""
    global _adding
    if sqlite3.sqlite_version_info >= _SUBSEC_SINCE:
        yield
        return
    from sqlalchemy import Engine, event

    with _lock:
        _adding += 1
        event.listen(Engine, "connect", add_unixepoch)  # once, however often this is called
    try:
        yield
    finally:
        with _lock:
            _adding -= 1
            if not _adding:
                event.remove(Engine, "connect", add_unixepoch)


def add_unixepoch(connection: object, _: object = None) -> None:
    """Give a new connection the function. SQLAlchemy passes a second argument."""
    if isinstance(connection, sqlite3.Connection):
        connection.create_function("unixepoch", 1, _unixepoch)


def _unixepoch(value: str) -> float:
    if value == "subsec":
        return time.clock_gettime(time.CLOCK_REALTIME)  # the clock that SQLite reads
    with contextlib.closing(sqlite3.connect(":memory:")) as other:
        found: tuple[float] = other.execute("SELECT unixepoch(?)", (value,)).fetchone()
    return found[0]


# ---------------------------------------------------------------- the tables


@contextlib.contextmanager
def migrating(url: str) -> Generator[None]:
    """Hold a lock while the tables are created: several processes may start at the same time."""
    if not url.startswith("sqlite"):
        with _postgres_lock(url):
            yield
        return
    path = url.removeprefix(_SQLITE)
    SqliteFile(path).create()
    descriptor = os.open(f"{path}-fleet.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        with adding_subsec():
            yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _postgres_lock(url: str) -> Generator[None]:
    import psycopg
    from sqlalchemy.exc import OperationalError

    try:
        connection = psycopg.connect(url, autocommit=True)
    except psycopg.Error as error:
        raise OperationalError("connect", None, error) from None
    with contextlib.closing(connection):
        try:
            _take_migration_lock(connection)
        except psycopg.Error as error:
            raise OperationalError("lock", None, error) from None
        yield


def _take_migration_lock(connection: Any) -> None:
    """Ask for the lock again and again.

    DBOS creates indexes concurrently, which waits for all statements of other sessions. So a
    statement that waits for the lock would wait for ever.
    """
    from psycopg.errors import LockNotAvailable

    end = time.monotonic() + _MIGRATING
    query = "SELECT pg_try_advisory_lock(%s)"
    while not connection.execute(query, (0x627269646C66,)).fetchone()[0]:
        if time.monotonic() > end:
            raise LockNotAvailable
        time.sleep(0.1)
