"""A session store in Redis."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

from bridle.errors import OptionsError
from bridle.sessions._stores.database import DatabaseStore, Key, Lease
from bridle.sessions._stores.drivers import load_driver
from bridle.sessions._stores.entries import Redact, Row, location_of

log = logging.getLogger("bridle.sessions")

# Keys, after the prefix:
#   sessions                      sorted set: session id by the microsecond of the last append
#   session:<id>                  hash: the project
#   subkeys:<id>                  set: the subkeys that have entries
#   entries:<id>:<subkey>         list: the entries as JSON
#   uuids:<id>:<subkey>           set: the uuids of the entries
#   lease:<id>                    string with a time to live: the owner
#   done:<token>                  string with a time to live: an append that was done
# A script is atomic, and its time is the time of the server.

_FUNCTIONS = """
local prefix = ARGV[1]
local sessions = prefix .. 'sessions'
local function now()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end
local function forget(id)
    for _, subkey in ipairs(redis.call('SMEMBERS', prefix .. 'subkeys:' .. id)) do
        redis.call('DEL', prefix .. 'entries:' .. id .. ':' .. subkey)
        redis.call('DEL', prefix .. 'uuids:' .. id .. ':' .. subkey)
    end
    redis.call('DEL', prefix .. 'subkeys:' .. id, prefix .. 'session:' .. id)
    redis.call('ZREM', sessions, id)
end
"""

_APPEND = """
local id, subkey, project, token = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local owner, milliseconds = ARGV[6], tonumber(ARGV[7])
if milliseconds > 0 then
    if redis.call('GET', prefix .. 'lease:' .. id) ~= owner then
        return 0
    end
    redis.call('PEXPIRE', prefix .. 'lease:' .. id, milliseconds)
end
if token ~= '' and not redis.call('SET', prefix .. 'done:' .. token, 1, 'NX', 'PX', 600000) then
    return 1
end
local entries = prefix .. 'entries:' .. id .. ':' .. subkey
local uuids = prefix .. 'uuids:' .. id .. ':' .. subkey
local is_changed = false
for at = 8, #ARGV, 2 do
    if ARGV[at] == '' or redis.call('SADD', uuids, ARGV[at]) == 1 then
        redis.call('RPUSH', entries, ARGV[at + 1])
        is_changed = true
    end
end
if is_changed then
    local last = redis.call('ZREVRANGE', sessions, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', sessions, string.format('%.0f', math.max(now(), (last or 0) + 1)), id)
    redis.call('SADD', prefix .. 'subkeys:' .. id, subkey)
    if (redis.call('HGET', prefix .. 'session:' .. id, 'project') or '') == '' then
        redis.call('HSET', prefix .. 'session:' .. id, 'project', project)
    end
end
return 1
"""

# LINDEX is fast near both ends of a list.
_ENDS = """
local entries = prefix .. 'entries:' .. ARGV[2] .. ':' .. ARGV[3]
local size = tonumber(ARGV[4])
local first, last = {}, {}
local left = 2 * size + 1
while left >= 0 do
    local body = redis.call('LINDEX', entries, #first)
    if not body then break end
    left = left - #body - 1
    table.insert(first, string.sub(body, 1, 2 * size + 1))
end
left = size
while left >= 0 do
    local body = redis.call('LINDEX', entries, -1 - #last)
    if not body then break end
    left = left - #body - 1
    table.insert(last, string.sub(body, -size))
end
return {first, last}
"""

_AFTER = """
local entries = prefix .. 'entries:' .. ARGV[2] .. ':' .. ARGV[3]
local position, left = tonumber(ARGV[4]), tonumber(ARGV[5])
local found = {}
repeat
    local some = redis.call('LRANGE', entries, position + #found, position + #found + 7)
    for _, body in ipairs(some) do
        table.insert(found, body)
        left = left - #body
        if left <= 0 then return found end
    end
until #some < 8
return found
"""

_LIST = """
local found = {}
local all = redis.call('ZREVRANGE', sessions, 0, -1, 'WITHSCORES')
for at = 1, #all, 2 do
    local id = all[at]
    local project = redis.call('HGET', prefix .. 'session:' .. id, 'project') or ''
    if (ARGV[2] == '0' or project == ARGV[3])
        and redis.call('SISMEMBER', prefix .. 'subkeys:' .. id, '') == 1 then
        table.insert(found, {id, project, all[at + 1]})
    end
end
return #found > 0 and cjson.encode(found) or '[]'
"""

_DELETE = """
local id, subkey = ARGV[2], ARGV[3]
if subkey ~= '' then
    redis.call('DEL', prefix .. 'entries:' .. id .. ':' .. subkey)
    redis.call('DEL', prefix .. 'uuids:' .. id .. ':' .. subkey)
    redis.call('SREM', prefix .. 'subkeys:' .. id, subkey)
end
if subkey == '' or redis.call('EXISTS', prefix .. 'subkeys:' .. id) == 0 then
    forget(id)
end
"""

_EXPIRE = """
local limit = string.format('(%.0f', now() - ARGV[2] * 1000000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '-inf', limit)) do
    if redis.call('EXISTS', prefix .. 'lease:' .. id) == 0 then
        forget(id)
    end
end
"""

_ACQUIRE = """
local lease = prefix .. 'lease:' .. ARGV[2]
local owner = redis.call('GET', lease)
if owner and owner ~= ARGV[3] then
    return 0
end
redis.call('SET', lease, ARGV[3], 'PX', ARGV[4])
return 1
"""

_RELEASE = """
local lease = prefix .. 'lease:' .. ARGV[2]
if redis.call('GET', lease) == ARGV[3] then
    redis.call('DEL', lease)
end
"""


class RedisStore(DatabaseStore):
    """Keep sessions in Redis 5 or newer. Needs ``pip install 'bridle[redis]'``.

    Several sessions, event loops, threads, processes and machines can use it at the same time. A
    lost connection is replaced by a new one. Leases and retention use the clock of the server.
    Sessions survive a restart of the server only if its persistence is on (``appendonly yes``),
    and memory pressure deletes them unless its ``maxmemory-policy`` is ``noeviction``. The store
    logs a warning about another policy.

    Args:
        url: Such as ``redis://user:password@host:6379/0``, ``rediss://…`` for TLS, or
            ``unix://…``. Errors and the repr do not show it.
        prefix: The beginning of all keys. Stores with different prefixes are independent.
        redact: Called for each entry; returns the entry to store. It must accept its own result,
            because it may be called again with an entry that it returned.
        retention: Seconds after the last append after which a session is deleted, by the next
            operation on the store. A session that is in use is kept. None keeps sessions for ever.
        timeout: Seconds after which an operation fails.
    """

    _name = "RedisStore"

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "bridle:",
        redact: Redact | None = None,
        retention: float | None = None,
        timeout: float = 30.0,
    ) -> None:
        load_driver("RedisStore", "redis.asyncio", "redis")
        place = _check(url, prefix)
        self.prefix = prefix
        self.location = location_of(*place, prefix)
        self._set_up(
            lambda: _Redis(url, prefix, timeout),
            redact=redact,
            retention=retention,
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self.prefix!r})"


def _check(url: object, prefix: object) -> list[object]:
    """Return what tells this database from others, without the password."""
    from redis.asyncio.connection import parse_url

    fix = "Use a url such as redis://user:password@host:6379/0."
    if not isinstance(url, str) or not url:
        got = "an empty string" if url == "" else type(url).__name__
        raise OptionsError("RedisStore.url", f"must be a url, got {got}", fix=fix)
    if not isinstance(prefix, str):
        raise OptionsError("RedisStore.prefix", f"must be a string, got {type(prefix).__name__}")
    given: Any = None
    # The text of the error would show a part of the url.
    with contextlib.suppress(ValueError):
        given = parse_url(url)
    if given is None:
        raise OptionsError("RedisStore.url", "is not a Redis url", fix=fix)
    defaults = {"host": "localhost", "port": 6379, "path": "", "db": 0}
    return [given.get(name, default) for name, default in defaults.items()]


class _Redis:
    """The operations on the server."""

    def __init__(self, url: str, prefix: str, timeout: float) -> None:
        import redis.asyncio
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        self._prefix = prefix
        # A command is repeated once on a new connection, because the server may have closed the
        # old one. All commands allow that.
        untyped: Any = redis.asyncio.Redis
        self._client: Any = untyped.from_url(
            url,
            decode_responses=True,
            socket_timeout=None,  # the store limits the time of each operation
            socket_connect_timeout=min(10.0, timeout),
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 1),
        )
        self._scripts: dict[str, Any] = {}
        self._is_checked = False

    async def append(self, key: Key, rows: Sequence[Row], lease: Lease | None) -> bool:
        values = [part for uuid, body in rows for part in (uuid or "", body)]
        # Entries without a uuid must not be there twice if the command is repeated.
        token = "" if all(uuid for uuid, _ in rows) else uuid4().hex
        held = ("", 0) if lease is None else (lease.owner, _milliseconds(lease.seconds))
        return bool(await self._run(_APPEND, *key, token, *held, *values))

    async def load(self, key: Key) -> Sequence[str]:
        name = f"{self._prefix}entries:{key.session_id}:{key.subkey}"
        return cast("list[str]", await (await self._connected()).lrange(name, 0, -1))

    async def ends(self, key: Key, size: int) -> tuple[Sequence[str], Sequence[str]]:
        first, last = await self._run(_ENDS, key.session_id, key.subkey, size)
        return first, last

    async def after(self, key: Key, position: int, size: int) -> Sequence[tuple[int, str]]:
        found: list[str] = await self._run(_AFTER, key.session_id, key.subkey, position, size)
        return list(enumerate(found, position + 1))

    async def list(self, project: str | None) -> Sequence[tuple[str, str, float]]:
        # One text: the driver takes its time for each element of a list.
        text = await self._run(_LIST, int(project is not None), project or "")
        found: list[tuple[str, str, str]] = json.loads(text)
        return [(one, of, float(updated_at) / 1e6) for one, of, updated_at in found]

    async def delete(self, key: Key) -> None:
        await self._run(_DELETE, key.session_id, key.subkey)

    async def subkeys(self, session_id: str) -> Sequence[str]:
        name = f"{self._prefix}subkeys:{session_id}"
        found = cast("set[str]", await (await self._connected()).smembers(name))
        return [subkey for subkey in found if subkey]

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        return bool(await self._run(_ACQUIRE, session_id, owner, _milliseconds(seconds)))

    async def release(self, session_id: str, owner: str) -> None:
        await self._run(_RELEASE, session_id, owner)

    async def expire(self, retention: float) -> None:
        await self._run(_EXPIRE, retention)

    async def aclose(self) -> None:
        await self._client.aclose()

    def explain(self, error: Exception) -> tuple[str, str] | None:
        from redis import exceptions

        match error:
            case exceptions.AuthenticationError():
                return (
                    "the server rejected the user or the password",
                    "Check the user and the password in the url.",
                )
            case exceptions.ConnectionError() | exceptions.TimeoutError() | OSError():
                return (
                    f"the connection to the server failed or was lost ({type(error).__name__})",
                    "Check that the server runs and that the url has the right host and port.",
                )
            case exceptions.RedisError():
                # The driver has classes for some codes. Others are the first word of the answer.
                code = str(error).partition(" ")[0]
                code = code if code.isupper() and code.isalpha() else type(error).__name__
                if "can't access" in str(error) or "can't run" in str(error):
                    code = "NOPERM"  # inside a script, the answer has no code
                return f"the server answered with an error ({code})", _FIXES.get(code, "")
            case _:
                return None

    async def _connected(self) -> Any:
        """Return the client. Before its first use, look whether the server may delete entries."""
        if not self._is_checked:
            from redis import exceptions

            policy = ""
            with contextlib.suppress(exceptions.ResponseError):  # the user may not ask for it
                policy = (await self._client.info("memory")).get("maxmemory_policy", "")
            self._is_checked = True
            if policy not in ("", "noeviction"):
                log.warning(
                    "The Redis server of the store with the prefix %r has the maxmemory-policy %r: "
                    "it deletes leases and parts of conversations when its memory is full. Set it "
                    "to 'noeviction'.",
                    self._prefix,
                    policy,
                    extra={"bridle_event": "store_may_evict"},
                )
        return self._client

    async def _run(self, script: str, *values: str | float) -> Any:
        """Run a script. It is sent again if the server does not have it, as after a restart."""
        _ = await self._connected()
        if script not in self._scripts:
            self._scripts[script] = self._client.register_script(_FUNCTIONS + script)
        return await self._scripts[script](args=[self._prefix, *values])


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


_NO_MEMORY = "The server has no memory left. Increase maxmemory, or set retention."
_NO_RIGHTS = "Grant the user the rights on the keys with this prefix, and to run scripts."
_REPLICA = "The url names a replica. Use the primary server."
_FIXES = {
    "MISCONF": "The server cannot write to its disk. Check its log.",
    "NOPERM": _NO_RIGHTS,
    "NoPermissionError": _NO_RIGHTS,
    "OOM": _NO_MEMORY,
    "OutOfMemoryError": _NO_MEMORY,
    "READONLY": _REPLICA,
    "ReadOnlyError": _REPLICA,
}
