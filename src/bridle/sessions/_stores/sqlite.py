"""A session store in an SQLite file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from errno import ENOENT
from typing import TYPE_CHECKING, Any

from bridle.errors import OptionsError
from bridle.sessions._stores.database import DatabaseStore, Key, Lease
from bridle.sessions._stores.entries import Redact, Row, first_bodies, location_of

if TYPE_CHECKING:
    from sqlite3 import Connection

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS bridle_sessions ("
    " session_id TEXT PRIMARY KEY, project TEXT NOT NULL, updated_at REAL NOT NULL)",
    "CREATE INDEX IF NOT EXISTS bridle_sessions_updated_at ON bridle_sessions (updated_at)",
    "CREATE TABLE IF NOT EXISTS bridle_entries ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, subkey TEXT NOT NULL,"
    " uuid TEXT, body TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS bridle_entries_key ON bridle_entries (session_id, subkey, id)",
    "CREATE UNIQUE INDEX IF NOT EXISTS bridle_entries_uuid"
    " ON bridle_entries (session_id, subkey, uuid) WHERE uuid IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS bridle_leases ("
    " session_id TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at REAL NOT NULL)",
)


class SqliteStore(DatabaseStore):
    """Keep sessions in an SQLite file, for one machine.

    Several sessions, event loops, threads and processes can use the file at the same time. The
    file is created with access for its owner only. It must be on a local disk, because SQLite's
    locks do not work on network file systems.

    Args:
        path: The file. Its directory must exist.
        redact: Called for each entry; returns the entry to store. It must accept its own result,
            because it may be called again with an entry that it returned.
        retention: Seconds after the last append after which a session is deleted, by the next
            operation on the store. A session that is in use is kept. None keeps sessions for ever.
        timeout: Seconds to wait while other processes write.
    """

    _name = "SqliteStore"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        redact: Redact | None = None,
        retention: float | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.path = checked = _check_path(path)
        self.location = location_of(os.path.realpath(checked))
        self._set_up(
            lambda: _Sqlite(checked, timeout),
            redact=redact,
            retention=retention,
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"SqliteStore({self.path!r})"


def _check_path(path: str | os.PathLike[str]) -> str:
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise OptionsError(
            "SqliteStore.path", f"must be a path, got {type(path).__name__}"
        ) from None
    if name in ("", ":memory:"):
        raise OptionsError(
            "SqliteStore.path", f"must name a file, got {name!r}", fix="Use MemoryStore() instead."
        )
    if "://" in name or "\0" in name:
        raise OptionsError("SqliteStore.path", "must be a path, not a url")
    name = os.path.abspath(name)
    if os.path.isdir(name):
        raise OptionsError("SqliteStore.path", f"must be a file, but {name!r} is a directory")
    if not os.path.isdir(os.path.dirname(name)):
        raise OptionsError(
            "SqliteStore.path",
            f"is in a directory that does not exist: {os.path.dirname(name)!r}",
            fix="Create the directory first.",
        )
    return name


class SqliteFile:
    """The file of an SQLite database, which other programs may delete or replace.

    A connection keeps a file that was deleted, and goes on writing to it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None

    def create(self) -> None:
        """Create an empty file for its owner only. SQLite gives its other files the same rights.

        The file is closed before it gets its name: closing a file releases the locks that the
        process has on it, also those of another store that has just opened it.
        """
        if os.path.exists(self.path):
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".bridle-", dir=os.path.dirname(self.path))
        os.close(descriptor)
        try:
            os.link(temporary, self.path)
        except FileExistsError:
            pass  # another process was faster
        finally:
            os.unlink(temporary)

    def remember(self) -> None:
        """Take the file that is there now."""
        self._identity = self._found()

    def forget(self) -> None:
        """Begin with a new file if there is none."""
        self._identity = None

    @property
    def is_known(self) -> bool:
        """Whether a file was taken."""
        return self._identity is not None

    def is_replaced(self) -> bool:
        """Return whether there is another file than the one that was taken.

        Raises:
            FileNotFoundError: there is none.
        """
        found = self._found()
        if found is None:
            raise FileNotFoundError(ENOENT, "The database file was deleted", self.path)
        return found != self._identity

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


_FIXES = {
    "locked": "Another process writes for long. Increase timeout.",
    "is full": "Free space on the disk of the file, then repeat the operation.",
    "disk I/O error": "Check that the disk of the file works and has space left.",
}
"""What to do about an error, by a part of its text."""


class _Sqlite:
    """The operations on the file. They block, in the thread of the store."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._connection: Connection | None = None
        # Which file the connection has open.
        self._file = SqliteFile(path)

    async def append(self, key: Key, rows: Sequence[Row], lease: Lease | None) -> bool:
        session_id, subkey, project = key
        with self._transaction() as connection:
            if lease is not None:
                renewed = connection.execute(
                    "UPDATE bridle_leases SET expires_at = ? WHERE session_id = ? AND owner = ?",
                    (time.time() + lease.seconds, session_id, lease.owner),
                )
                if renewed.rowcount < 1:
                    return False
            before = connection.total_changes
            connection.executemany(
                "INSERT OR IGNORE INTO bridle_entries (session_id, subkey, uuid, body)"
                " VALUES (?, ?, ?, ?)",
                [(session_id, subkey, uuid, body) for uuid, body in rows],
            )
            if connection.total_changes > before:
                connection.execute(
                    "INSERT INTO bridle_sessions VALUES (?, ?, ?)"
                    " ON CONFLICT (session_id) DO UPDATE SET updated_at = excluded.updated_at,"
                    " project = CASE project WHEN '' THEN excluded.project ELSE project END",
                    (session_id, project, time.time()),
                )
        return True

    async def load(self, key: Key) -> Sequence[str]:
        found = self._connect().execute(
            "SELECT body FROM bridle_entries WHERE session_id = ? AND subkey = ? ORDER BY id",
            (key.session_id, key.subkey),
        )
        return [body for (body,) in found]

    async def ends(self, key: Key, size: int) -> tuple[Sequence[str], Sequence[str]]:
        # A cursor reads one row at a time.
        query = (
            "SELECT substr(body, ?) FROM bridle_entries WHERE session_id = ? AND subkey = ?"
            " ORDER BY id"
        )
        connection = self._connect()
        first = connection.execute(query.replace("?", "1, ?", 1), (2 * size + 1, *key[:2]))
        last = connection.execute(f"{query} DESC", (-size, *key[:2]))
        with closing(first), closing(last):
            return (
                first_bodies((body for (body,) in first), 2 * size + 1),
                first_bodies((body for (body,) in last), size),
            )

    async def after(self, key: Key, position: int, size: int) -> Sequence[tuple[int, str]]:
        found = self._connect().execute(
            "SELECT id, body FROM bridle_entries WHERE session_id = ? AND subkey = ? AND id > ?"
            " ORDER BY id",
            (*key[:2], position),
        )
        rows: list[tuple[int, str]] = []
        with closing(found):
            for one, body in found:
                rows.append((one, body))
                size -= len(body)
                if size <= 0:
                    break
        return rows

    async def list(self, project: str | None) -> Sequence[tuple[str, str, float]]:
        # Two sessions may have the same time, so the last entry decides.
        return (
            self._connect()
            .execute(
                "SELECT session_id, project, updated_at FROM bridle_sessions AS one"
                " WHERE (:project IS NULL OR project = :project)"
                " AND EXISTS (SELECT 1 FROM bridle_entries AS e"
                " WHERE e.session_id = one.session_id AND e.subkey = '')"
                " ORDER BY updated_at DESC, (SELECT max(id) FROM bridle_entries AS e"
                " WHERE e.session_id = one.session_id) DESC",
                {"project": project},
            )
            .fetchall()
        )

    async def delete(self, key: Key) -> None:
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM bridle_entries"
                " WHERE session_id = :session_id AND (:subkey = '' OR subkey = :subkey)",
                {"session_id": key.session_id, "subkey": key.subkey},
            )
            connection.execute(
                "DELETE FROM bridle_sessions WHERE session_id = :session_id AND NOT EXISTS"
                " (SELECT 1 FROM bridle_entries WHERE session_id = :session_id)",
                {"session_id": key.session_id},
            )
        self._erase(connection)

    async def subkeys(self, session_id: str) -> Sequence[str]:
        found = self._connect().execute(
            "SELECT DISTINCT subkey FROM bridle_entries WHERE session_id = ? AND subkey <> ''",
            (session_id,),
        )
        return [subkey for (subkey,) in found]

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        with self._transaction() as connection:
            now = time.time()
            connection.execute("DELETE FROM bridle_leases WHERE expires_at <= ?", (now,))
            taken = connection.execute(
                "INSERT INTO bridle_leases VALUES (?, ?, ?) ON CONFLICT (session_id)"
                " DO UPDATE SET expires_at = excluded.expires_at WHERE owner = excluded.owner",
                (session_id, owner, now + seconds),
            )
            return taken.rowcount == 1

    async def release(self, session_id: str, owner: str) -> None:
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM bridle_leases WHERE session_id = ? AND owner = ?", (session_id, owner)
            )

    async def expire(self, retention: float) -> None:
        now = time.time()
        old = (
            "(SELECT session_id FROM bridle_sessions WHERE updated_at < :old AND session_id NOT IN"
            " (SELECT session_id FROM bridle_leases WHERE expires_at > :now))"
        )
        values = {"old": now - retention, "now": now}
        if not self._connect().execute(f"SELECT EXISTS {old}", values).fetchone()[0]:
            return  # no need to lock the file
        with self._transaction() as connection:
            connection.execute(f"DELETE FROM bridle_entries WHERE session_id IN {old}", values)
            connection.execute(f"DELETE FROM bridle_sessions WHERE session_id IN {old}", values)
        self._erase(connection)

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def explain(self, error: Exception) -> tuple[str, str] | None:
        import sqlite3

        if isinstance(error, sqlite3.Error):
            # The texts of SQLite contain names of columns, no values.
            fixes = (one for text, one in _FIXES.items() if text in str(error))
            return f"{error} ({self._path})", next(fixes, "")
        if isinstance(error, FileNotFoundError):
            fix = "Restore the file, or close the store: it then begins with a new file."
            return f"{error.strerror} ({self._path})", fix
        if isinstance(error, OSError):
            return f"{error.strerror} ({self._path})", "Check the rights of the file."
        return None

    def _erase(self, connection: Connection) -> None:
        """Remove deleted text from the files, unless another process is reading or writing.

        The text is then removed by the next deletion, or when the last connection is closed.
        """
        import sqlite3

        connection.execute("PRAGMA busy_timeout = 0")  # a reader may read for long
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError:
            pass  # the deletion itself has succeeded
        finally:
            milliseconds = min(int(self._timeout * 1000), 2**31 - 1)
            connection.execute(f"PRAGMA busy_timeout = {milliseconds}")

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        connection = self._connect()
        # IMMEDIATE: take the lock before reading, so that waiting for other writers can succeed.
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _connect(self) -> Connection:
        # If the file was deleted, writing would succeed, to a file that nothing can read any more.
        if self._connection is not None and self._file.is_replaced():
            self._connection.close()
            self._connection = None
        if self._connection is None:
            import sqlite3

            self._file.create()
            connection = sqlite3.connect(
                self._path,
                timeout=self._timeout,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._file.remember()
        return self._connection

    def _prepare(self, connection: Connection) -> None:
        import sqlite3

        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                # Here SQLite does not wait for other processes that open the new file.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
        connection.execute("PRAGMA synchronous = FULL")
        # Overwrite deleted text with zeros. Some builds of SQLite do so by default.
        connection.execute("PRAGMA secure_delete = ON")
        tables: Any = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name IN"
            " ('bridle_sessions', 'bridle_entries', 'bridle_leases', 'bridle_entries_uuid')"
        ).fetchone()
        if tables[0] < 4:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
