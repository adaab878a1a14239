"""Take over sessions of programs that were killed on this machine, and wait for other ones."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.shell.test_fleet_kills import database_of
from tests.support.killed import running, store_at
from tests.support.limits import SetLimits

import bridle
from bridle import Agent, OptionsError, SessionInUseError
from bridle.sessions import MemoryStore, SqliteStore
from bridle.sessions._backlog import LEASE
from bridle.sessions._outbox.lease_owners import LeaseOwners
from bridle.testing import FakeCli

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Options of an agent on the fake CLI."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    with FakeCli.auto(transcripts=True) as cli:
        yield {"cli_path": cli.path, "cwd": str(tmp_path)}


def url_of(kind: str, request: pytest.FixtureRequest, path: Path) -> str:
    return database_of(kind, request, path).removeprefix("sqlite:///")


def records(path: Path) -> list[Path]:
    """The files that name the owners of leases."""
    return [one for one in (path / "state/bridle/leases").iterdir() if one.suffix != ".lock"]


# ---------------------------------------------------------------- after a kill


@pytest.mark.longer(after=1)
@KINDS
async def test_a_session_of_a_killed_program_is_resumed_at_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, options: dict[str, Any]
) -> None:
    url = url_of(kind, request, tmp_path)
    store = store_at(url)
    agent = Agent(store=store, **options)
    with running(url, **options) as (session_id, process):
        with pytest.raises(SessionInUseError):
            await agent.run("SAY Two.", resume_session_id=session_id)
        process.kill()
        process.wait()
        outcome = await agent.run("SAY Two.", resume_session_id=session_id)
    assert (outcome.text, outcome.session_id) == ("Two.", session_id)
    await store.aclose()
    assert records(tmp_path) == [], "the lease was given back"


@pytest.mark.longer(after=1)
@KINDS
async def test_a_key_of_a_killed_program_is_used_at_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, options: dict[str, Any]
) -> None:
    url = url_of(kind, request, tmp_path)

    store = store_at(url)
    with running(url, key="user-7", **options) as (session_id, process):
        async with Agent(store=store, **options).pool(size=1) as pool:
            with pytest.raises(SessionInUseError):
                async with pool.session(key="user-7"):
                    pass
            process.kill()
            process.wait()
            async with pool.session(key="user-7") as session:
                assert (await (await session.send_user_message("SAY Two."))).text == "Two."
                assert session.id == session_id
    await store.aclose()


async def test_the_lease_of_another_machine_has_to_expire(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """The directory is shared, and the lock of the other machine cannot be seen here."""
    url = str(tmp_path / "sessions.db")

    with running(url, **options) as (session_id, process):
        process.kill()
        process.wait()
    (record,) = records(tmp_path)
    facts = json.loads(record.read_bytes())
    record.write_text(json.dumps({**facts, "boot": "that of another machine"}))
    store = store_at(url)
    with pytest.raises(SessionInUseError):
        await Agent(store=store, **options).run("SAY Two.", resume_session_id=session_id)
    await store.aclose()


async def test_another_owner_keeps_its_lease_although_one_before_it_died(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    url = str(tmp_path / "sessions.db")

    store = SqliteStore(url)
    with running(url, **options) as (session_id, process):
        process.kill()
        process.wait()
    (record,) = records(tmp_path)
    await store.release(session_id, json.loads(record.read_bytes())["owner"])
    assert await store.acquire(session_id, "another machine", LEASE)
    with pytest.raises(SessionInUseError):
        await Agent(store=store, **options).run("SAY Two.", resume_session_id=session_id)
    await store.aclose()


# ---------------------------------------------------------------- waiting


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_run_waits_for_a_session_in_use(has_store: bool, options: dict[str, Any]) -> None:
    agent = Agent(store=MemoryStore() if has_store else None, **options)
    async with agent.session() as session:
        await (await session.send_user_message("SAY One."))
        session_id = session.id
        with pytest.raises(SessionInUseError):
            await agent.run("SAY Two.", resume_session_id=session_id, wait=0.3)
        waiting = asyncio.create_task(agent.run("SAY Two.", resume_session_id=session_id, wait=60))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done, "it waits"
    assert (await waiting).text == "Two."


async def test_sessions_that_wait_take_turns(options: dict[str, Any]) -> None:
    agent = Agent(**options)
    first = await agent.run("SAY One.")
    used: list[int] = []

    async def use(number: int) -> None:
        chosen: dict[str, Any] = {"resume_session_id": first.session_id}
        async with agent.session(**chosen, wait=60) as session:
            used.append(number)
            await (await session.send_user_message("SAY More."))
            assert used[-1] == number, "no other session began"

    await asyncio.gather(*map(use, range(4)))
    assert sorted(used) == [0, 1, 2, 3]


async def test_a_query_waits_for_a_session_in_use(options: dict[str, Any]) -> None:
    agent = Agent(**options)
    async with agent.session() as session:
        await (await session.send_user_message("SAY One."))
        chosen: dict[str, Any] = {"resume_session_id": session.id}
        with pytest.raises(SessionInUseError):
            async for _ in agent.query("SAY Two.", **chosen, wait=0.1):
                pass

        async def read() -> list[str]:
            stream = agent.query("SAY Two.", **chosen, wait=60)
            return [m.text async for m in stream if isinstance(m, bridle.AssistantMessage)]

        waiting = asyncio.create_task(read())
        await asyncio.wait([waiting], timeout=0.5)
    assert await waiting == ["Two."]


def test_a_blocking_run_waits(options: dict[str, Any]) -> None:
    agent = Agent(**options)
    with agent.sync.session() as session:
        session.send_user_message("SAY One.").outcome()
        chosen: dict[str, Any] = {"resume_session_id": session.id}
        with pytest.raises(SessionInUseError):
            agent.sync.run("SAY Two.", **chosen, wait=0.1)
        found: list[str] = []
        thread = threading.Thread(
            target=lambda: found.append(agent.sync.run("SAY Two.", **chosen, wait=60).text)
        )
        thread.start()
    thread.join()
    assert found == ["Two."]


async def test_a_pool_waits_for_the_key_of_another_program(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    stores = [SqliteStore(tmp_path / "sessions.db") for _ in range(2)]
    agents = [Agent(store=store, **options) for store in stores]
    async with agents[0].pool(size=1) as one, agents[1].pool(size=1) as two:

        async def use() -> str:
            async with two.session(key="user-7", wait=60) as session:
                return (await (await session.send_user_message("SAY Two."))).text

        async with one.session(key="user-7") as session:
            await (await session.send_user_message("SAY One."))
            with pytest.raises(SessionInUseError):
                async with two.session(key="user-7", wait=0.1):
                    pass
            waiting = asyncio.create_task(use())
            await asyncio.wait([waiting], timeout=0.5)
        await one.aclose()
        assert await waiting == "Two."
    for store in stores:
        await store.aclose()


@pytest.mark.parametrize("wait", [-1, "long", float("inf"), True])
def test_an_invalid_wait_is_refused(wait: Any, options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="wait"):
        _ = Agent(**options).session(resume_session_id="x", wait=wait)


def test_an_agent_does_not_wait_for_all_its_conversations(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError) as caught:
        Agent(**options, wait=30)  # type: ignore[call-arg]  # pyright: ignore
    assert caught.value.field == "wait"


# ---------------------------------------------------------------- owners of leases


@pytest.fixture
def owners(tmp_path: Path) -> LeaseOwners:
    return LeaseOwners(str(tmp_path / "leases"))


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "sessions.db")


def test_an_owner_of_this_process_is_alive(owners: LeaseOwners, store: SqliteStore) -> None:
    owners.hold(store, "s", "o")
    assert owners.dead(store, "s") is None
    assert owners.dead(store, "another session") is None
    owners.forget("o")
    assert owners.dead(store, "s") == "o", "it ended without giving its lease back"
    owners.drop(store, "s", "o")
    assert owners.dead(store, "s") is None


def test_an_owner_of_another_process_is_alive_until_it_ends(
    owners: LeaseOwners, store: SqliteStore
) -> None:
    ready, end = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        owners.close_in_child()
        owners.hold(store, "s", "o")
        os.write(ready[1], b"x")
        os.read(end[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    assert owners.dead(store, "s") is None
    os.write(end[1], b"x")
    os.waitpid(child, 0)
    assert owners.dead(store, "s") == "o"
    for one in (*ready, *end):
        os.close(one)


def test_locks_are_not_trusted_where_they_prove_nothing(
    owners: LeaseOwners, store: SqliteStore, set_limits: SetLimits
) -> None:
    set_limits(platform="darwin")
    owners.hold(store, "s", "o")
    owners.forget("o")
    assert owners.dead(store, "s") is None


def test_a_store_that_ends_with_its_process_writes_nothing(
    tmp_path: Path, owners: LeaseOwners
) -> None:
    owners.hold(MemoryStore(), "s", "o")
    assert not (tmp_path / "leases").exists()


def test_a_directory_that_cannot_be_used_is_ignored(tmp_path: Path, store: SqliteStore) -> None:
    (tmp_path / "file").touch()
    owners = LeaseOwners(str(tmp_path / "file/leases"))
    owners.hold(store, "s", "o")
    owners.forget("o")
    assert owners.dead(store, "s") is None


def test_files_of_dead_owners_are_removed_after_some_time(
    tmp_path: Path, owners: LeaseOwners, store: SqliteStore
) -> None:
    for name in ("old", "new"):
        owners.hold(store, name, name)
    owners.forget("old")
    for one in (tmp_path / "leases").iterdir():
        os.utime(one, (0, 0))
    again = LeaseOwners(str(tmp_path / "leases"))
    again.hold(store, "third", "third")
    assert len([*(tmp_path / "leases").iterdir()]) == 3, "two that live, and the lock file"
