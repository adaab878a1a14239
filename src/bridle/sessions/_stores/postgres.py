"""A session store in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bridle.errors import OptionsError
from bridle.sessions._stores.database import DatabaseStore, Key, Lease
from bridle.sessions._stores.drivers import load_driver
from bridle.sessions._stores.entries import Redact, Row, location_of

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    Connection = AsyncConnection[tuple[Any, ...]]
    Rows = list[tuple[Any, ...]]

T = TypeVar("T")

_CONNECTIONS = 4
"""How many operations of one store can run at the same time."""
_PORTION = 16 << 20
"""Bytes of entries after which a statement ends."""
_ROWS = 500
"""How many entries a statement returns that is to return a part of a list."""
_LAST = 2**63 - 1
"""The highest position."""
_CREATING = 0x627269646C65
"""The advisory lock under which the tables are created ("bridle" in ASCII)."""

_END_IF_IDLE = "set_config('idle_in_transaction_session_timeout', '10000', true)"
"""Lets the server end this transaction if the client does not go on for ten seconds: a process that
is frozen, or a machine that is gone, would keep others from the session."""
_CONFLICTS = ("40001", "40P01")
"""Codes of the server for a transaction that has to be repeated: one that could not be serialized,
if ``serializable`` or ``repeatable read`` is the default, and a deadlock."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS bridle_sessions (
    session_id text PRIMARY KEY, project text NOT NULL, updated_at timestamptz NOT NULL);
CREATE INDEX IF NOT EXISTS bridle_sessions_updated_at ON bridle_sessions (updated_at);
CREATE TABLE IF NOT EXISTS bridle_entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id text NOT NULL REFERENCES bridle_sessions ON DELETE CASCADE,
    subkey text NOT NULL, uuid text, body text NOT NULL);
CREATE INDEX IF NOT EXISTS bridle_entries_key ON bridle_entries (session_id, subkey, id);
CREATE UNIQUE INDEX IF NOT EXISTS bridle_entries_uuid ON bridle_entries (session_id, subkey, uuid);
CREATE TABLE IF NOT EXISTS bridle_leases (
    session_id text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL);
"""


class PostgresStore(DatabaseStore):
    """Keep sessions in a PostgreSQL database. Needs ``pip install 'bridle[postgres]'``.

    The tables ``bridle_sessions``, ``bridle_entries`` and ``bridle_leases`` are created on first
    use. Several sessions, event loops, threads, processes and machines can use them at the same
    time. A lost connection is replaced by a new one. Leases and retention use the clock of the
    server.

    Args:
        url: Such as ``postgresql://user:password@host:5432/database``, with the parameters of
            libpq. Errors and the repr do not show it.
        redact: Called for each entry; returns the entry to store. It must accept its own result,
            because it may be called again with an entry that it returned.
        retention: Seconds after the last append after which a session is deleted, by the next
            operation on the store. A session that is in use is kept. None keeps sessions for ever.
        timeout: Seconds after which an operation fails.
    """

    _name = "PostgresStore"

    def __init__(
        self,
        url: str,
        *,
        redact: Redact | None = None,
        retention: float | None = None,
        timeout: float = 30.0,
    ) -> None:
        load_driver("PostgresStore", "psycopg", "postgres")
        parameters = _parse(url)
        self._where = (
            f"host={parameters.get('host', '')!r}, dbname={parameters.get('dbname', '')!r}"
        )
        self.location = _location(parameters)
        self._set_up(
            lambda: _Postgres(parameters),
            redact=redact,
            retention=retention,
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"PostgresStore({self._where})"


def _parse(url: object) -> dict[str, Any]:
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    fix = "Use a url such as postgresql://user:password@host:5432/database."
    if not isinstance(url, str) or not url:
        got = "an empty string" if url == "" else type(url).__name__
        raise OptionsError("PostgresStore.url", f"must be a url, got {got}", fix=fix)
    try:
        given = conninfo_to_dict(url)
    except (Error, ValueError):
        # The text of the error would show a part of the url.
        given = None
    if given is None or not _are_ports(str(given.get("port") or "")):
        raise OptionsError("PostgresStore.url", "is not a PostgreSQL url", fix=fix)
    defaults: dict[str, Any] = {
        "application_name": "bridle",
        "connect_timeout": 10,
        # A server that is gone without a word is noticed after a minute.
        "keepalives_idle": 20,
        "keepalives_interval": 10,
        "keepalives_count": 4,
        "client_encoding": "utf8",
    }
    return defaults | given


def _location(parameters: dict[str, Any]) -> str:
    """Return what tells this database from others. The options of libpq can select a schema.

    The user is left out, because services such as Vault replace it regularly.
    """
    names = ("service", "host", "hostaddr", "port", "dbname", "user", "options")
    variables = {"dbname": "PGDATABASE"}
    given = {
        name: parameters.get(name) or os.environ.get(variables.get(name, f"PG{name.upper()}"))
        for name in names
    }
    user = given.pop("user")
    if not given["service"]:  # a service file can set the rest
        given["dbname"] = given["dbname"] or user
        given["port"] = _ports(given["port"] or "", given["host"] or given["hostaddr"] or "")
    return location_of(*given.values())


def _ports(ports: str, hosts: str) -> str:
    """Return one port for each host, with the default port of PostgreSQL where none is given."""
    given = ports.split(",")
    count = len(hosts.split(","))
    return ",".join(port or "5432" for port in (given if len(given) > 1 else given * count))


def _are_ports(text: str) -> bool:
    """Return whether this is a port, or one for each of several hosts. libpq checks that late."""
    return all(
        not port or (port.isascii() and port.isdigit() and 0 < int(port) < 65536)
        for port in text.split(",")
    )


class _Postgres:
    """The operations on the database, with a few connections."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(_CONNECTIONS)
        self._is_created = False

    async def append(self, key: Key, rows: Sequence[Row], lease: Lease | None) -> bool:
        session_id, subkey, project = key

        async def work(connection: Connection) -> bool:
            if lease is not None and not await self._renew(connection, session_id, lease):
                return False
            if not rows:
                return True
            # Locks the row of the session, so that appends to a session follow each other. The
            # ids of the entries are then in the order of the commits.
            await connection.execute(
                "INSERT INTO bridle_sessions AS one VALUES (%s, %s, clock_timestamp())"
                " ON CONFLICT (session_id) DO UPDATE SET project ="
                " CASE one.project WHEN '' THEN excluded.project ELSE one.project END"
                f" RETURNING {_END_IF_IDLE}",
                (session_id, project),
            )
            is_changed = False
            for some in _portions(rows):
                done = await connection.execute(
                    "INSERT INTO bridle_entries (session_id, subkey, uuid, body)"
                    " SELECT %s, %s, uuid, body FROM unnest(%s::text[], %s::text[])"
                    " WITH ORDINALITY AS one (uuid, body, position) ORDER BY position"
                    " ON CONFLICT (session_id, subkey, uuid) DO NOTHING",
                    (session_id, subkey, [row.uuid for row in some], [row.body for row in some]),
                )
                is_changed = is_changed or done.rowcount > 0
            if is_changed:
                await connection.execute(
                    "UPDATE bridle_sessions SET updated_at = clock_timestamp()"
                    " WHERE session_id = %s",
                    (session_id,),
                )
            return True

        return await self._transaction(work)

    async def _renew(self, connection: Connection, session_id: str, lease: Lease) -> bool:
        """Renew a lease and lock its row until the transaction ends."""
        renewed = await connection.execute(
            "UPDATE bridle_leases SET expires_at = clock_timestamp() + make_interval(secs => %s)"
            f" WHERE session_id = %s AND owner = %s RETURNING {_END_IF_IDLE}",
            (lease.seconds, session_id, lease.owner),
        )
        return renewed.rowcount == 1

    async def load(self, key: Key) -> Sequence[str]:
        found = await self._fetch(
            "SELECT body FROM bridle_entries WHERE session_id = %s AND subkey = %s ORDER BY id",
            (key.session_id, key.subkey),
        )
        return [body for (body,) in found]

    async def ends(self, key: Key, size: int) -> tuple[Sequence[str], Sequence[str]]:
        whole = 2 * size + 1
        first = await self._range(key, 0, whole, cut=f"left(body, {whole})", portions=True)
        last = await self._range(
            key, _LAST, size, cut=f"right(body, {size})", order="DESC", portions=True
        )
        return [body for _, body in first], [body for _, body in last]

    async def after(self, key: Key, position: int, size: int) -> Sequence[tuple[int, str]]:
        return await self._range(key, position, size)

    async def _range(
        self,
        key: Key,
        position: int,
        size: int,
        *,
        cut: str = "body",
        order: Literal["ASC", "DESC"] = "ASC",
        portions: bool = False,
    ) -> list[tuple[int, str]]:
        """Return entries after a position, up to the one that exceeds ``size`` bytes.

        Only the last of them may be cut off. Without ``portions``, returns `_ROWS` entries at most.
        """
        query = (
            f"SELECT id, {cut} FROM (SELECT id, body,"
            f" sum(octet_length(body) + 1) OVER (ORDER BY id {order}) - octet_length(body) - 1"
            " AS before FROM (SELECT id, body FROM bridle_entries WHERE session_id = %s"
            f" AND subkey = %s AND id {'>' if order == 'ASC' else '<'} %s"
            f" ORDER BY id {order} LIMIT {_ROWS}) AS part) AS summed"
            f" WHERE before <= %s ORDER BY id {order}"
        )
        found: list[tuple[int, str]] = []
        while True:
            rows = await self._fetch(query.encode(), (*key[:2], position, size))
            found += [(one, body) for one, body in rows]
            if len(rows) < _ROWS or not portions:
                return found
            position = found[-1][0]
            size -= sum(len(body) + 1 for _, body in rows)
            if size < 0:
                return found

    async def list(self, project: str | None) -> Sequence[tuple[str, str, float]]:
        return await self._fetch(
            "SELECT session_id, project, extract(epoch FROM updated_at)::float8"
            " FROM bridle_sessions AS one"
            " WHERE (%(project)s::text IS NULL OR project = %(project)s)"
            " AND EXISTS (SELECT 1 FROM bridle_entries AS e"
            " WHERE e.session_id = one.session_id AND e.subkey = '')"
            " ORDER BY updated_at DESC",
            {"project": project},
        )

    async def delete(self, key: Key) -> None:
        async def work(connection: Connection) -> None:
            # The row of the session is locked first, as in append.
            await connection.execute(
                f"SELECT {_END_IF_IDLE} FROM bridle_sessions WHERE session_id = %s FOR UPDATE",
                (key.session_id,),
            )
            if key.subkey:
                await connection.execute(
                    "DELETE FROM bridle_entries WHERE session_id = %s AND subkey = %s",
                    (key.session_id, key.subkey),
                )
            await connection.execute(
                "DELETE FROM bridle_sessions AS one WHERE session_id = %s AND (%s = '' OR NOT"
                " EXISTS (SELECT 1 FROM bridle_entries AS e WHERE e.session_id = one.session_id))",
                (key.session_id, key.subkey),
            )

        await self._transaction(work)

    async def subkeys(self, session_id: str) -> Sequence[str]:
        found = await self._fetch(
            "SELECT DISTINCT subkey FROM bridle_entries WHERE session_id = %s AND subkey <> ''",
            (session_id,),
        )
        return [subkey for (subkey,) in found]

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        taken = await self._fetch(
            "INSERT INTO bridle_leases AS one"
            " VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))"
            " ON CONFLICT (session_id) DO UPDATE"
            " SET owner = excluded.owner, expires_at = excluded.expires_at"
            " WHERE one.owner = excluded.owner OR one.expires_at <= clock_timestamp()"
            " RETURNING 1",
            (session_id, owner, seconds),
        )
        return bool(taken)

    async def release(self, session_id: str, owner: str) -> None:
        # Leases that others did not give back are removed as well.
        await self._fetch(
            "DELETE FROM bridle_leases WHERE (session_id = %s AND owner = %s)"
            " OR expires_at < clock_timestamp() - interval '1 hour' RETURNING 1",
            (session_id, owner),
        )

    async def expire(self, retention: float) -> None:
        # A session that is locked is being appended to, or deleted by another process.
        await self._fetch(
            "DELETE FROM bridle_sessions WHERE session_id IN (SELECT session_id"
            " FROM bridle_sessions WHERE updated_at < clock_timestamp() - make_interval(secs => %s)"
            " AND session_id NOT IN"
            " (SELECT session_id FROM bridle_leases WHERE expires_at > clock_timestamp())"
            " FOR UPDATE SKIP LOCKED) RETURNING 1",
            (retention,),
        )

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    def explain(self, error: Exception) -> tuple[str, str] | None:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return None
        # Details may contain values. The primary text of the server contains only names.
        reason = error.diag.message_primary or "the connection failed"
        if error.sqlstate:
            return f"{reason} [{error.sqlstate}]", _fix(error.sqlstate)
        if isinstance(error, psycopg.OperationalError):
            reason = _refusal(str(error)) or "the connection to the server failed or was lost"
        return reason, "Check that the server runs and that the url has the right host and port."

    async def _fetch(self, query: Any, values: Sequence[object] | dict[str, object]) -> Rows:
        """Run one statement and return its rows."""

        async def work(connection: Connection) -> Rows:
            return await (await connection.execute(query, values)).fetchall()

        return await self._transaction(work, is_single=True)

    async def _transaction(
        self, work: Callable[[Connection], Awaitable[T]], *, is_single: bool = False
    ) -> T:
        """Do ``work`` in a transaction. Repeat it once if an idle connection turns out to be lost.

        It is not repeated once the commit was sent: whether the server did it is then unknown.
        ``is_single`` is True for one statement that may be repeated. It needs no BEGIN, so a
        program that is frozen cannot leave a lock of it behind.

        Repeat it until the timeout of the store if the server could not serialize it.
        """
        import psycopg

        is_repaired = False
        conflicts = 0
        async with self._places:
            while True:
                is_new = not self._idle
                connection = await self._connect() if is_new else self._idle.pop()
                is_done = False
                try:
                    if not self._is_created:
                        await self._create(connection)
                    async with nullcontext() if is_single else connection.transaction():
                        result = await work(connection)
                        is_done = True
                except psycopg.errors.UndefinedTable:
                    await connection.close()
                    if is_repaired:
                        raise
                    is_repaired = True
                    self._is_created = False  # the tables were dropped
                except psycopg.OperationalError as error:
                    if error.sqlstate in _CONFLICTS:
                        # The server has undone it, also if this is the answer to the commit.
                        self._idle.append(connection)
                        await asyncio.sleep(_pause(conflicts))
                        conflicts += 1
                        continue
                    is_lost = connection.broken or connection.closed
                    await connection.close()
                    if is_new or is_done or not is_lost:
                        raise
                except BaseException:
                    await connection.close()
                    raise
                else:
                    self._idle.append(connection)
                    return result

    async def _connect(self) -> Connection:
        import psycopg

        # Without prepared statements, so that poolers such as PgBouncer work.
        return await psycopg.AsyncConnection.connect(
            **self._parameters, autocommit=True, prepare_threshold=None
        )

    async def _create(self, connection: Connection) -> None:
        """Create the tables if one is missing. Only then the right to create tables is needed."""
        tables = await connection.execute(
            "SELECT count(to_regclass(name)) FROM unnest(ARRAY['bridle_sessions',"
            " 'bridle_entries', 'bridle_leases', 'bridle_entries_uuid']) AS name"
        )
        if (await tables.fetchone() or (0,))[0] < 4:
            async with connection.transaction():
                # Two processes that create the same table at once would fail.
                lock = f"SELECT pg_advisory_xact_lock(%s), {_END_IF_IDLE}"
                await connection.execute(lock.encode(), (_CREATING,))
                for statement in _SCHEMA.split(";\n"):
                    if statement.strip():
                        await connection.execute(statement.encode())
        self._is_created = True


def _pause(conflicts: int) -> float:
    """Return the seconds before a transaction is repeated after this many earlier conflicts."""
    return random.uniform(0.0, min(0.5, 0.01 * (1 << min(conflicts, 8))))


def _portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows into portions of about 16 MiB: a value of a statement is limited to 1 GiB."""
    start = size = 0
    for at, row in enumerate(rows):
        size += len(row.body)
        if size > _PORTION:
            yield rows[start : at + 1]
            start, size = at + 1, 0
    if start < len(rows):
        yield rows[start:]


def _fix(sqlstate: str) -> str:
    """Return what to do about an error of the server."""
    match sqlstate[:2]:
        case "28":
            return "Check the user and the password in the url."
        case "3D":
            return "Create the database, or correct its name in the url."
        case "42":
            return "Let an administrator create the tables, or grant the user the rights on them."
        case "53" if sqlstate == "53100":
            return "The disk of the server is full. Free space there, then repeat the operation."
        case "53" | "57":
            return "Check the server. The operation can be repeated."
        case _:
            return ""


_REFUSALS = (
    "Connection refused",
    "No such file or directory",
    "timeout expired",
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "could not translate host name",
    "SSL",
    "starting up",
    "shutting down",
    "too many",
)


def _refusal(text: str) -> str:
    """Return why a connection failed: a known phrase, because the text may show the url."""
    found = [phrase for phrase in _REFUSALS if phrase in text]
    return f"could not connect to the server ({', '.join(found)})" if found else ""
