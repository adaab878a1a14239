"""What a program reads of runs: not again what it has read, and nothing that it did not ask for."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.shell.test_fleet_kills import database_of
from tests.support.limits import SetLimits
from tests.support.processes import run, until
from tests.support.steps import ReplaceSteps
from tests.support.stored import assistant, user

import bridle
from bridle.errors import UsageError
from bridle.sessions import SessionKey, list_sessions

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

from bridle.fleet import Fleet, Run, RunMessage, RunStatus
from bridle.fleet._queue import rows as _rows

DATABASES = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
MIB = 1 << 20


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return database_of(kind, request, tmp_path)


class Counted:
    """Count the calls of methods of an object."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def watch(self, thing: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(thing, name)
        self.calls[name] = 0

        def watched(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return original(*arguments, **options)

        setattr(thing, name, watched)


def refuse(*_: object) -> Any:
    raise AssertionError("a whole transcript is read")


@DATABASES
async def test_a_run_that_does_nothing_is_followed_without_reading_it_again(
    database: str, set_limits: SetLimits
) -> None:
    set_limits(follow_run_pause=0.01)
    set_limits(part_of_conversation=2000)
    told = [user("0", None), *(assistant(f"{at}", f"{at - 1}") for at in range(1, 30))]
    fleet = Fleet(bridle.Agent(), database)
    one = await fleet.submit("x" * MIB)
    store: Any = fleet.store
    key = SessionKey((await one.info()).session_id)
    await store.append(key, told)
    counted = Counted()
    counted.watch(fleet._queue, "rows")
    counted.watch(fleet._queue, "states")
    counted.watch(store, "load_after")
    store.load = refuse
    found: list[Any] = []

    async def follow() -> None:
        async for event in one.events():
            if isinstance(event, RunMessage):
                found.append(event.message.raw["uuid"])

    following = asyncio.create_task(follow())
    await until(lambda: len(found) >= len(told))
    read, looks = dict(counted.calls), counted.calls["states"]
    await until(lambda: counted.calls["states"] >= looks + 20)
    assert counted.calls["rows"] == read["rows"]
    # One look at the end of the transcript each time.
    assert counted.calls["load_after"] - read["load_after"] <= counted.calls["states"] - looks
    await store.append(key, [assistant("30", "29")])
    await until(lambda: len(found) >= len(told) + 1)
    await one.cancel()
    await following
    assert found == [f"{at}" for at in range(31)]
    await fleet.aclose()


@DATABASES
async def test_a_program_that_waits_for_an_outcome_reads_the_run_when_its_state_changes(
    database: str, set_limits: SetLimits
) -> None:
    set_limits(follow_run_pause=0.01)
    fleet = Fleet(bridle.Agent(), database)
    one = await fleet.submit("Look")
    counted = Counted()
    counted.watch(fleet._queue, "rows")
    counted.watch(fleet._queue, "states")
    waiting = asyncio.create_task(one.outcome())
    await until(lambda: counted.calls["states"] >= 20)
    assert counted.calls["rows"] == 1
    await one.cancel()
    assert (await waiting).detail == "the run was cancelled"
    await fleet.aclose()


async def test_a_run_that_is_deleted_meanwhile_is_not_waited_for(
    tmp_path: Path, set_limits: SetLimits
) -> None:
    set_limits(follow_run_pause=0.01)
    fleet = Fleet(bridle.Agent(), f"sqlite:///{tmp_path}/runs.db")
    one = await fleet.submit("Look")
    counted = Counted()
    counted.watch(fleet._queue, "states")
    waiting = asyncio.create_task(one.outcome())
    await until(lambda: counted.calls["states"] >= 3)
    with fleet._queue._client._sys_db.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM workflow_status")
    with pytest.raises(UsageError, match=one.id):
        await waiting
    await fleet.aclose()


def memory_of(work: Callable[[], Any]) -> int:
    """How many bytes of Python objects there were more at one time."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


async def listed(database: str, **chosen: Any) -> list[Run]:
    async with Fleet(bridle.Agent(), database) as fleet:
        return [one async for one in fleet.runs(**chosen)]


@pytest.mark.longer(after=1)
@DATABASES
def test_a_list_of_runs_does_not_read_long_prompts(database: str) -> None:
    text = "word " * MIB
    blocks: list[dict[str, Any]] = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}},
        {"type": "text", "text": "Look at this. " * 50},
        {"type": "text", "text": text},
        {"type": "text", "text": "The end."},
    ]

    async def fill() -> None:
        async with Fleet(bridle.Agent(), database) as fleet:
            prompts: list[Any] = [text, blocks, text, "short"]
            for number, prompt in enumerate(prompts):
                metadata = {"number": number}
                await fleet.submit(prompt, key=f"k{number}", tenant="acme", metadata=metadata)

    run(fill)
    run(lambda: listed(database))  # the modules of the driver
    filters: list[dict[str, Any]] = [
        {},
        {"status": "queued"},
        {"tenant": "acme"},
        {"key": "k1"},
    ]
    for chosen in filters:
        read = partial(listed, database, **chosen)
        assert memory_of(partial(run, read)) < 2 * MIB
    infos = {one.listed.key: one.listed for one in run(lambda: listed(database)) if one.listed}
    assert infos["k0"].prompt == text[:1000]
    start = "Look at this. " * 50
    cut = [{"type": "text", "text": start}, {"type": "text", "text": text[: 1000 - len(start)]}]
    assert infos["k1"].prompt == cut
    assert (infos["k3"].prompt, infos["k3"].is_cut) == ("short", False)
    assert [infos[f"k{number}"].is_cut for number in range(3)] == [True] * 3
    assert [infos[f"k{number}"].metadata for number in range(4)] == [
        {"number": number} for number in range(4)
    ]

    async def whole() -> None:
        async with Fleet(bridle.Agent(), database) as fleet:
            info = await fleet.run(infos["k1"].id).info()
            assert (info.prompt, info.is_cut) == (blocks, False)
            assert {**vars_of(info), "prompt": cut, "is_cut": True} == vars_of(infos["k1"])

    run(whole)


def vars_of(info: Any) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__struct_fields__}


@DATABASES
async def test_runs_that_have_no_head_are_listed_with_their_whole_prompts(
    database: str, replace_steps: ReplaceSteps
) -> None:
    """Those of older versions, and those with long metadata."""
    long = "x" * 20_000
    async with Fleet(bridle.Agent(), database) as fleet:
        await fleet.submit(long, metadata={"long": long})
        replace_steps(shorten_prompt=lambda _: None)
        await fleet.submit(long)
        infos = [one.listed async for one in fleet.runs()]
        assert [info and (info.prompt, info.is_cut) for info in infos] == [(long, False)] * 2


@DATABASES
async def test_a_long_run_that_was_cancelled_is_listed(database: str) -> None:
    async with Fleet(bridle.Agent(), database) as fleet:
        one = await fleet.submit("x" * MIB)
        await one.cancel()
        assert await one.status() is RunStatus.CANCELLED
        [found] = [each async for each in fleet.runs(status="cancelled")]
        assert found.listed is not None
        assert found.listed.is_cut
        assert (await found.outcome()).session_id == found.listed.session_id


async def test_the_sessions_of_a_fleet_are_listed_by_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(bridle.Agent(), f"sqlite:///{tmp_path}/runs.db")
    await fleet.submit("Look")
    store: Any = fleet.store
    for number in range(3):
        session_id = str(UUID(int=number, version=4))
        await store.append(SessionKey(session_id, project="-p"), [user("a", None, "First")])
    # On the class: an object with a method of its own is not asked for parts of transcripts.
    monkeypatch.setattr(type(store), "load", refuse)
    found = await list_sessions(store=store)
    assert [info.summary for info in found] == ["First"] * 3
    await fleet.aclose()


async def test_damaged_lines_are_logged_once(
    tmp_path: Path, set_limits: SetLimits, caplog: pytest.LogCaptureFixture
) -> None:
    set_limits(follow_run_pause=0.01)
    fleet = Fleet(bridle.Agent(), f"sqlite:///{tmp_path}/runs.db")
    one = await fleet.submit("Look")
    session_id = (await one.info()).session_id
    damaged = {"type": "bridle_damaged_line", "line": "{"}
    await fleet.store.append(SessionKey(session_id), [user("a", None), damaged])
    counted = Counted()
    counted.watch(fleet._queue, "states")

    async def follow() -> None:
        async for _ in one.events():
            pass

    following = asyncio.create_task(follow())
    await until(lambda: counted.calls["states"] >= 5)
    await one.cancel()
    await following
    (record,) = [one for one in caplog.records if one.name == "bridle.sessions"]
    assert session_id in record.getMessage()
    await fleet.aclose()


@DATABASES
async def test_a_list_of_cancelled_runs_does_not_read_the_queue(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Fleet(bridle.Agent(), database) as fleet:
        gone = await fleet.submit("Look")
        await gone.cancel()
        for _ in range(5):
            await fleet.submit("Look")
        counted = Counted()
        counted.watch(fleet._queue, "segments")
        read: list[str] = []
        original = _rows.row_of

        def row_of(one: Any, *arguments: Any, **options: Any) -> Any:
            read.append(one.workflow_id)
            return original(one, *arguments, **options)

        monkeypatch.setattr("bridle.fleet._queue.dbos_queue.row_of", row_of)
        found = [one.id async for one in fleet.runs(status="cancelled", limit=1)]
        assert found == read == [gone.id]
        # A look for each way in which a run is cancelled, and that for more of them.
        assert counted.calls["segments"] <= 4
