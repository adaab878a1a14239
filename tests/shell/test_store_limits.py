"""Stores at the limits of their servers and disks: serialization, frozen clients, no space."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import run, until
from tests.support.servers import PostgresServer, RedisServer
from tests.support.steps import ReplaceSteps
from tests.support.stores import PostgresPlace, RedisPlace

from bridle.errors import StoreError
from bridle.sessions import PostgresStore, RedisStore, SessionKey
from bridle.sessions._backlog import Batch
from bridle.sessions._outbox.spool import LeftSpool, Spool, spool_name
from bridle.sessions._outbox.store_writer import StoreWriter
from bridle.sessions._stores import postgres
from bridle.sessions._stores.database import Key, Lease
from bridle.testing.stores import STORE_CHECKS, check_store

KEY = SessionKey("00000000-0000-4000-8000-000000000001", "", "-work")


def entries(*numbers: int) -> list[dict[str, object]]:
    return [{"uuid": str(number), "text": "x" * 1000} for number in numbers]


# ---------------------------------------------------------------- PostgreSQL


def serializable(server: PostgresServer, level: str) -> tuple[PostgresPlace, str]:
    """A place, and a url with which transactions have this level by default."""
    place = PostgresPlace(server)
    option = f"-cdefault_transaction_isolation%3D{level.replace(' ', '%5C%20')}"
    return place, f"{place.url}%20{option}"


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_transactions_that_cannot_be_serialized_are_repeated(
    postgres_server: PostgresServer, level: str
) -> None:
    _, url = serializable(postgres_server, level)
    stores = [PostgresStore(url) for _ in range(3)]
    numbers = [range(start, start + 40) for start in (0, 100, 200)]

    async def append(store: PostgresStore, some: range) -> None:
        for number in some:
            await store.append(KEY, entries(number))

    await asyncio.gather(*map(append, stores, numbers))
    found = [int(str(one["uuid"])) for one in await stores[0].load(KEY) or ()]
    for some in numbers:
        assert [number for number in found if number in some] == list(some)
    for store in stores:
        await store.aclose()


@pytest.mark.parametrize("check", STORE_CHECKS)
def test_the_contract_holds_if_serializable_is_the_default(
    postgres_server: PostgresServer, check: str
) -> None:
    _, url = serializable(postgres_server, "serializable")
    run(lambda: check_store(lambda: PostgresStore(url), only=[check]), timeout=130.0)


async def test_a_conflict_that_lasts_ends_with_the_timeout(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, replace_steps: ReplaceSteps
) -> None:
    import psycopg

    place = PostgresPlace(postgres_server)
    attempts = 0

    async def fail(*_: object) -> bool:
        nonlocal attempts
        attempts += 1
        raise psycopg.errors.SerializationFailure("could not serialize access")

    # The driver reads the code from the answer of the server.
    monkeypatch.setattr(psycopg.errors.SerializationFailure, "sqlstate", "40001")
    replace_steps(renew_lease_in_postgres=fail)

    store = place.open(timeout=1.0)
    assert isinstance(store, PostgresStore)
    with pytest.raises(StoreError, match="did not respond within 1 s"):
        await store.append_leased(KEY, entries(1), "a", 60)
    assert attempts > 3
    monkeypatch.undo()
    await store.append(KEY, entries(1))
    await store.aclose()


async def test_a_program_that_is_frozen_in_a_transaction_does_not_lock_the_session_for_long(
    postgres_server: PostgresServer, set_limits: SetLimits
) -> None:
    """The server ends a transaction that does not go on."""
    place = PostgresPlace(postgres_server)
    set_limits(end_idle_transaction=postgres._END_IF_IDLE.replace("10000", "300"))

    store, other = place.open(), place.open()
    assert isinstance(store, PostgresStore)
    assert isinstance(other, PostgresStore)
    assert await store.acquire(KEY.session_id, "a", 0.5)

    async def hold(database: Any) -> None:
        renew = database._renew

        async def renew_and_freeze(*arguments: Any) -> bool:
            renewed: bool = await renew(*arguments)
            await asyncio.sleep(3600)
            return renewed

        database._renew = renew_and_freeze
        await database.append(Key(KEY.session_id, "", ""), (), Lease("a", 0.5))

    holding = asyncio.ensure_future(store._thread.run(hold))
    await until(partial(other.acquire, KEY.session_id, "b", 60))
    holding.cancel()
    await asyncio.wait([holding])
    await other.aclose()
    await store.aclose()


@pytest.mark.parametrize("statement", ["CREATE TABLE", "DELETE FROM bridle_sessions"])
async def test_a_program_that_is_frozen_while_it_creates_or_deletes_does_not_lock_the_others_out(
    postgres_server: PostgresServer, set_limits: SetLimits, statement: str
) -> None:
    place = PostgresPlace(postgres_server)
    set_limits(end_idle_transaction=postgres._END_IF_IDLE.replace("10000", "300"))
    frozen = asyncio.Event()
    holder, other = place.open(), place.open(timeout=20.0)
    assert isinstance(holder, PostgresStore)
    if statement != "CREATE TABLE":
        await other.append(KEY, entries(1))
    loop = asyncio.get_running_loop()

    async def freeze(database: Any) -> None:
        connect = database._connect

        async def connected() -> Any:
            connection = await connect()
            execute = connection.execute

            async def executed(query: Any, *values: Any) -> Any:
                if statement in str(query):
                    loop.call_soon_threadsafe(frozen.set)
                    await asyncio.sleep(3600)
                return await execute(query, *values)

            connection.execute = executed
            return connection

        database._connect = connected

    await holder._thread.run(freeze)
    holding = asyncio.ensure_future(holder.delete(KEY))
    await frozen.wait()
    await other.append(KEY, entries(2))
    holding.cancel()
    await asyncio.wait([holding])
    await other.aclose()
    await holder.aclose()


# ---------------------------------------------------------------- Redis


@pytest.mark.parametrize("policy", ["noeviction", "volatile-ttl", "allkeys-lru"])
def test_a_server_that_may_evict_is_reported_once(
    redis_server: RedisServer, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    import redis

    place = RedisPlace(redis_server)

    async def work() -> None:
        store = place.open()
        for _ in range(2):
            await store.append(KEY, entries(1))
            assert await store.load(KEY) == entries(1)
        await store.aclose()

    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command("CONFIG", "SET", "maxmemory-policy", policy)
        try:
            run(work)
        finally:
            client.execute_command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    found = [one for one in caplog.records if one.name == "bridle.sessions"]
    if policy == "noeviction":
        assert found == []
        return
    (record,) = found
    assert record.levelno == logging.WARNING
    assert policy in record.getMessage()
    assert "noeviction" in record.getMessage()
    assert place.prefix in record.getMessage()


def test_a_user_who_may_not_ask_for_the_policy_can_use_the_store(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    import redis
    from tests.support.servers import PASSWORD

    with redis.Redis.from_url(redis_server.url) as client:
        words = ("on", f">{PASSWORD}", "~*", "+@all", "-info")
        client.execute_command("ACL", "SETUSER", "uninformed", *words)
    store = RedisStore(redis_server.url.replace("//:", "//uninformed:"), prefix="uninformed:")

    async def work() -> None:
        await store.append(KEY, entries(1))
        assert await store.load(KEY) == entries(1)
        await store.aclose()

    run(work)
    assert caplog.records == []


# ---------------------------------------------------------------- a full disk


@contextmanager
def small_disk(path: Path) -> Iterator[list[str]]:
    """Yield the words before a command that sees a disk of 2 MiB at a path."""
    path.mkdir()
    mount = f'mount -t tmpfs -o size=2m none {path} && exec "$@"'
    words = ["unshare", "-Urm", "sh", "-c", mount, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("this machine does not allow mounts in a namespace")
    yield words


PROGRAM = """
import asyncio, os, sys
import bridle
from bridle.errors import StoreError
from bridle.sessions import SqliteStore, SessionKey

async def main(disk, cli_path):
    with open(disk + "/ballast", "wb") as ballast:
        ballast.write(b"x" * 1_200_000)
    store = SqliteStore(disk + "/store.db")
    key, number = SessionKey("filling"), 0
    while True:
        number += 1
        try:
            await store.append(key, [{"uuid": str(number), "text": "x" * 20_000}])
        except StoreError as error:
            print("store:", error.reason, "|", error.fix)
            break
    with open(disk + "/rest", "wb", buffering=0) as rest:
        try:
            while rest.write(b"x" * 512):
                pass
        except OSError:
            pass
    session = await bridle.start_session(store=store, cli_path=cli_path, cwd=disk)
    try:
        await session.send_user_message("SAY one")
    except StoreError as error:
        print("prompt:", error.reason, "|", error.fix)
    os.unlink(disk + "/ballast")
    turn = await session.send_user_message("SAY two")
    print("turn:", (await turn).text)
    await store.delete(key)
    await session.aclose()
    found = await store.load(SessionKey(session.id, "journal"))
    print("journal:", [one["type"] for one in found])
    print("spool:", os.listdir(disk + "/state/bridle/spool"))

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_full_disk_is_named_for_the_store_and_the_spool(tmp_path: Path) -> None:
    """Once there is space again, everything that was accepted reaches the store."""
    from bridle.testing import FakeCli

    disk = tmp_path / "disk"
    with small_disk(disk) as words, FakeCli.auto() as cli:
        done = subprocess.run(
            [*words, sys.executable, "-c", PROGRAM, str(disk), cli.path],
            env=os.environ | {"XDG_STATE_HOME": f"{disk}/state", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=100,
        )
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(said) == ["store", "prompt", "turn", "journal", "spool"], done.stderr
    assert "full" in said["store"]
    assert "Free space" in said["store"]
    assert "the disk is full" in said["prompt"]
    assert f"Free space on the disk of {disk}" in said["prompt"]
    assert said["turn"] == "two"
    assert said["spool"] == "[]"


def test_a_spool_that_met_a_full_disk_has_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = RedisStore("redis://localhost")
    spool = Spool(f"{spool_name(store, KEY.session_id)}transcript.", "me")
    long, short = entries(*range(20)), [{"uuid": "short"}]
    pwrite = os.pwrite

    def half(descriptor: int, data: bytes, position: int) -> int:
        if len(data) < 2000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data[: len(data) // 2], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half)
        with pytest.raises(OSError, match="No space left"):
            spool.write([Batch(KEY, list(long), 10, len(long))])
    spool.write([Batch(KEY, list(short), 10, 1)])
    spool.close()
    left = LeftSpool.take(spool.path)
    assert isinstance(left, LeftSpool)
    assert [list(batch.entries) for batch in left.batches()] == [short]
    assert not left.is_damaged
    left.close()


async def test_a_full_disk_is_named_in_the_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace_steps: ReplaceSteps
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    class Down(PostgresStore):
        async def append(self, key: SessionKey, entries: Any) -> None:
            raise ConnectionError("down")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    replace_steps(system_pwrite=full)

    warnings: list[str] = []
    store = Down("postgresql://localhost")
    spool = Spool(f"{spool_name(store, KEY.session_id)}transcript.", "me")
    writer = StoreWriter(store, spool, lambda one: warnings.append(one.detail))
    with pytest.raises(StoreError) as caught:
        await writer.write(KEY, {"uuid": "1"}, 0.1)
    assert "the disk is full" in caught.value.reason
    assert str(tmp_path) in caught.value.fix
    await writer.aclose(0.1)
    assert any("the disk is full" in one for one in warnings)
