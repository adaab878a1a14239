"""Sessions with a store on the real CLIs: moved between machines, and with a store that fails."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import until
from tests.support.store_failures import (
    Machine,
    Server,
    check_that_nothing_is_lost,
    run_while_away,
)
from tests.support.stores import KINDS, open_place

import bridle
from bridle import SessionInUseError, SessionNotFoundError
from bridle._records.session_store import Entry, SessionKey
from bridle.events import SdkWarning
from bridle.sessions import MemoryStore
from bridle.testing import ScriptedModel, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

MISSING = "00000000-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of spool files."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def has_spooled(warnings: list[SdkWarning]) -> bool:
    """Whether the session has warned that its transcript and its journal are in spool files."""
    details = [one.detail for one in warnings if one.kind == "store_failed"]
    return all(
        any(f".{kind}." in detail for detail in details) for kind in ("journal", "transcript")
    )


def spools(state: Path) -> list[str]:
    """What the spool files are about."""
    return sorted(path.name.split(".")[2] for path in state.rglob("*.jsonl"))


def history(model: ScriptedModel, prompt: str) -> str:
    """The messages of the request with this prompt, as text."""
    return str([one for one in model.requests if prompt in str(one.messages[-2:])][-1].messages)


@pytest.mark.longer
@pytest.mark.parametrize("kind", KINDS)
async def test_a_conversation_continues_with_another_home_and_directory(
    lab: Lab, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The model's next request has the whole history, and so has the store after that."""
    place = open_place(kind, request, tmp_path)
    script = [[tool_use("Bash", command="echo marker-$((40+2))")], [text("first answer")]]
    store = place.open()
    async with ScriptedModel([*script, [text("second answer")]]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        agent = bridle.Agent(**first.options, store=store, allowed_tools=["Bash"])
        outcome = await agent.run("first prompt")
        session_id = outcome.session_id
        assert session_id is not None
        assert [one.session_id for one in await store.list()] == [session_id]
        other = bridle.Agent(**second.options, store=store)
        outcome = await other.run("second prompt", resume_session_id=session_id)
        assert (outcome.text, outcome.session_id) == ("second answer", session_id)
        said = history(model, "second prompt")
        for part in ("first prompt", "marker-42", "first answer"):
            assert part in said
        assert list((second.home / ".claude").glob("projects/*/*.jsonl")) == []
    entries = await store.load(SessionKey(session_id)) or []
    uuids = [entry["uuid"] for entry in entries if "uuid" in entry]
    assert len(uuids) == len(set(uuids))
    for part in ("first prompt", "first answer", "second prompt", "second answer"):
        assert part in str(entries)
    await store.aclose()


@pytest.mark.longer
async def test_a_query_on_the_first_machine_has_what_the_second_one_added(lab: Lab) -> None:
    store = MemoryStore()
    async with ScriptedModel([[text("one")], [text("two")], [text("three")]]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        agent = bridle.Agent(**first.options, store=store)
        outcome = await agent.run("first prompt")
        chosen: dict[str, Any] = {"resume_session_id": outcome.session_id}
        await bridle.run("second prompt", **second.options, **chosen, store=store)
        stream = agent.query("third prompt", **chosen)
        async with stream:
            assert [message async for message in stream]
        said = history(model, "third prompt")
        for part in ("first prompt", "'one'", "second prompt", "'two'"):
            assert part in said
    entries = await store.load(SessionKey(str(outcome.session_id))) or []
    assert "'three'" in str(entries)


async def test_the_store_gets_subagents_and_what_the_cli_saves_at_its_end(lab: Lab) -> None:
    kind: dict[str, Any] = {"subagent_type": "general-purpose", "run_in_background": False}
    task = tool_use("Task", description="d", prompt="look", **kind)
    store = MemoryStore()
    async with ScriptedModel([[task], [text("found it")], [text("done")]]) as model:
        machine = Machine(lab, model, "a")
        async with bridle.start_session(**machine.options, store=store) as session:
            turn = await session.send_user_message("first prompt")
            assert (await turn.outcome()).text == "done"
        session_id = str(session.id)
    journal, subkey = await store.subkeys(session_id)
    assert journal == "journal"
    assert subkey.startswith("subagents/agent-")
    found = await store.load(SessionKey(session_id, subkey)) or []
    assert "found it" in str(found)
    mirrored = await store.load(SessionKey(session_id)) or []
    [file] = (machine.home / ".claude").glob("projects/*/*.jsonl")
    saved = file.read_text("utf-8")
    assert all(str(entry["uuid"]) in saved for entry in mirrored if "uuid" in entry)
    assert mirrored[-1]["type"] in ("last-prompt", "cost-state", "mode")


@pytest.mark.longer
async def test_a_fork_is_a_session_of_its_own_in_the_store(lab: Lab) -> None:
    store = MemoryStore()
    async with ScriptedModel([[text("one")], [text("two")]]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        outcome = await bridle.run("first prompt", **first.options, store=store)
        before = await store.load(SessionKey(str(outcome.session_id)))
        fork = await bridle.run(
            "second prompt",
            **second.options,
            store=store,
            resume_session_id=outcome.session_id,
            fork_session=True,
        )
        assert fork.session_id != outcome.session_id
        assert await store.load(SessionKey(str(outcome.session_id))) == before
        copied = await store.load(SessionKey(str(fork.session_id)))
        for part in ("first prompt", "'one'", "second prompt", "'two'"):
            assert part in str(copied)


@pytest.mark.longer
async def test_the_last_conversation_is_continued_from_the_store(lab: Lab) -> None:
    store = MemoryStore()
    async with ScriptedModel([[text("one")], [text("two")]]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        outcome = await bridle.run("first prompt", **first.options, store=store)
        options = {**second.options, "cwd": first.options["cwd"]}
        again = await bridle.run("second prompt", **options, store=store, continue_session=True)
        assert again.session_id == outcome.session_id
        assert "first prompt" in history(model, "second prompt")


@pytest.mark.longer
async def test_a_conversation_that_began_without_a_store_moves_into_it(lab: Lab) -> None:
    store = MemoryStore()
    async with ScriptedModel([[text("one")], [text("two")], [text("three")]]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        outcome = await bridle.run("first prompt", **first.options)
        chosen: dict[str, Any] = {"store": store, "resume_session_id": outcome.session_id}
        await bridle.run("second prompt", **first.options, **chosen)
        await bridle.run("third prompt", **second.options, **chosen)
        said = history(model, "third prompt")
        for part in ("first prompt", "'one'", "second prompt", "'two'"):
            assert part in said


@pytest.mark.longer
async def test_a_conversation_with_a_damaged_line_resumes_from_the_store_as_from_its_file(
    lab: Lab,
) -> None:
    store = MemoryStore()
    async with ScriptedModel([[text(f"answer {n}")] for n in range(6)]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        outcome = await bridle.run("first prompt", **first.options)
        chosen: dict[str, Any] = {"resume_session_id": outcome.session_id}
        await bridle.run("second prompt", **first.options, **chosen)
        await bridle.run("third prompt", **first.options, **chosen)
        (path,) = first.home.glob(f".claude/projects/*/{outcome.session_id}.jsonl")
        lines = path.read_bytes().splitlines(keepends=True)
        (place,) = [
            number
            for number, line in enumerate(lines)
            if b'"type":"user"' in line and b"second prompt" in line
        ]
        lines[place] = lines[place][:40] + b"\n"
        path.write_bytes(b"".join(lines))
        await bridle.run("from the file", **first.options, **chosen)
        path.write_bytes(b"".join(lines))
        await bridle.run("copied", **first.options, **chosen, store=store)
        await bridle.run("from the store", **second.options, **chosen, store=store)
        for prompt in ("from the file", "from the store"):
            said = history(model, prompt)
            assert [part in said for part in ("first prompt", "second prompt", "answer 2")] == [
                True,
                False,
                True,
            ]


async def test_a_session_that_is_nowhere_is_not_found(lab: Lab) -> None:
    async with ScriptedModel([]) as model:
        machine = Machine(lab, model, "a")
        with pytest.raises(SessionNotFoundError):
            await bridle.run("x", **machine.options, store=MemoryStore(), resume_session_id=MISSING)
        assert model.requests == []


@pytest.mark.longer
async def test_a_session_that_runs_cannot_be_resumed(lab: Lab) -> None:
    """On another machine by its lease, on the same machine by its lock, also without a store."""
    store = MemoryStore()
    async with ScriptedModel([[text("one")]]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        async with bridle.start_session(**first.options, store=store) as session:
            turn = await session.send_user_message("first prompt")
            await turn.outcome()
            await until(lambda: str(session.id) in store._leases)
            chosen: dict[str, Any] = {"resume_session_id": session.id}
            with pytest.raises(SessionInUseError):
                await bridle.run("x", **second.options, **chosen, store=store)
            with pytest.raises(SessionInUseError):
                await bridle.run("x", **first.options, **chosen)
        assert len(model.requests) == 1


@pytest.mark.longer
async def test_a_session_is_locked_when_its_id_is_known(lab: Lab) -> None:
    """Without a store, only the CLI knows which session it continues, or its id after /clear."""
    async with ScriptedModel([[text("one")], [text("two")], [text("three")]]) as model:
        machine = Machine(lab, model, "a")
        first = await bridle.run("first prompt", **machine.options)
        chosen: dict[str, Any] = {**machine.options, "continue_session": True}
        async with bridle.start_session(**chosen) as session:
            await (await session.send_user_message("second prompt")).outcome()
            assert session.id == first.session_id
            await (await session.send_user_message("/clear")).outcome()
            await (await session.send_user_message("third prompt")).outcome()
            assert session.id != first.session_id
            for one in (first.session_id, session.id):
                with pytest.raises(SessionInUseError):
                    await bridle.run("x", **machine.options, resume_session_id=one)
            assert session.alive


@pytest.mark.longer
async def test_what_a_killed_cli_had_saved_is_in_the_store(lab: Lab) -> None:
    """The private file of a resumed session is removed, so the store has to have everything."""
    store = MemoryStore()
    hang = [tool_use("Bash", command="sleep 60")]
    async with ScriptedModel([[text("one")], hang, [text("three")]]) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        outcome = await bridle.run("first prompt", **first.options, store=store)
        chosen: dict[str, Any] = {"store": store, "resume_session_id": outcome.session_id}
        session = await bridle.start_session(**second.options, **chosen, allowed_tools=["Bash"])
        _turn = await session.send_user_message("second prompt")
        path = Path(session._connection.launch.directory) / f"{outcome.session_id}.jsonl"
        await until(lambda: "sleep 60" in path.read_text("utf-8"))
        assert session.pid is not None
        os.kill(session.pid, 9)
        await session.aclose()
        assert not path.exists()
        assert "sleep 60" in str(await store.load(SessionKey(str(outcome.session_id))))


@pytest.mark.longer
@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)
async def test_a_turn_continues_if_its_store_fails(lab: Lab, state: Path) -> None:
    class Flaky(MemoryStore):
        ends_with_program = False  # it has a spool file
        is_down = False

        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            if self.is_down:
                raise ConnectionError("down")
            await super().append(key, entries)

    store = Flaky()
    warnings: list[SdkWarning] = []
    replies = [[tool_use("Bash", command="sleep 1")], [text("one")], [text("two")]]
    async with ScriptedModel(replies) as model:
        first, second = Machine(lab, model, "a"), Machine(lab, model, "b")
        options: dict[str, Any] = {**first.options, "store": store, "allowed_tools": ["Bash"]}
        async with bridle.start_session(**options, on_warning=warnings.append) as session:
            turn = await session.send_user_message("first prompt")
            await until(lambda: model.requests)
            store.is_down = True
            assert (await turn.outcome()).text == "one"
            await until(lambda: has_spooled(warnings))
            assert spools(state) == ["journal", "transcript"]
            store.is_down = False
        assert list(state.rglob("*.jsonl")) == []
        again = await bridle.run(
            "second prompt", **second.options, store=store, resume_session_id=session.id
        )
        assert again.ok
        said = history(model, "second prompt")
        for part in ("first prompt", "sleep 1", "'one'"):
            assert part in said


@pytest.fixture
def short_waits(set_limits: SetLimits) -> None:
    """Use the spool file after moments, not after seconds."""
    set_limits(append=0.5, append_outage=0.2)


@pytest.mark.longer
@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    ("cli_path", "kind", "failure"),
    [
        ("newest", "redis", "paused"),
        ("2.1.197", "postgres", "paused"),
        ("newest", "postgres", "restarted"),
    ],
    indirect=["cli_path"],
)
async def test_a_server_that_is_away_in_the_middle_of_a_turn_misses_nothing(
    lab: Lab, kind: str, failure: str, request: pytest.FixtureRequest, tmp_path: Path, state: Path
) -> None:
    """The long variant with the usual waits is in tests/soak."""
    server: Server = request.getfixturevalue(f"{kind}_server")
    place = open_place(kind, request, tmp_path)
    store = place.open()
    machine, session_id, details = await run_while_away(
        lab,
        store,
        state,
        leave=server.pause if failure == "paused" else server.stop,
        come_back=server.resume if failure == "paused" else server.start,
        seconds=2.0,
        call=0.5,
    )
    assert any(str(state) in one for one in details)
    assert list(state.rglob("*.jsonl")) == []
    await check_that_nothing_is_lost(machine, store, session_id)
    await store.aclose()


@pytest.mark.longer
@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    ("cli_path", "kind"), [("newest", "redis"), ("2.1.197", "postgres")], indirect=["cli_path"]
)
async def test_a_server_that_is_killed_for_good_does_not_harm_the_session(
    lab: Lab,
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    state: Path,
    set_limits: SetLimits,
) -> None:
    set_limits(closing_store=0.5)
    server: Server = request.getfixturevalue(f"{kind}_server")
    place = open_place(kind, request, tmp_path)
    store = place.open()
    try:
        machine, _, details = await run_while_away(
            lab, store, state, leave=server.stop, come_back=None, seconds=1.0, call=0.5
        )
    finally:
        server.start()  # for other tests
    assert spools(state) == ["journal", "transcript"]
    assert all(str(spool) in str(details) for spool in state.rglob("*.jsonl"))
    # All but what the store had before: the prompt and the first call, if it was quick.
    [spool] = state.rglob("*.transcript.*")
    kept = spool.read_text("utf-8")
    assert all(uuid in kept for uuid in machine.saved()[3:])
    await store.aclose()


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)
async def test_a_store_that_fails_for_good_leaves_the_session_and_the_spool(
    lab: Lab, state: Path, set_limits: SetLimits
) -> None:
    set_limits(closing_store=0.5)

    class Broken(MemoryStore):
        ends_with_program = False  # it has a spool file

        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            raise ConnectionError("down")

    warnings: list[SdkWarning] = []
    async with ScriptedModel([[text("one")]]) as model:
        machine = Machine(lab, model, "a")
        session = await bridle.start_session(
            **machine.options, store=Broken(), on_warning=warnings.append
        )
        turn = await session.send_user_message("first prompt")
        assert (await turn.outcome()).text == "one"
        await session.aclose()
    assert has_spooled(warnings)
    assert spools(state) == ["journal", "transcript"]
    for spool in state.rglob("*.jsonl"):
        assert any(str(spool) in one.detail for one in warnings)
        assert "first prompt" in spool.read_text("utf-8")
