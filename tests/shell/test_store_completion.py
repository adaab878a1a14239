"""A resume on the same machine completes the store from the file of the CLI, and reports losses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import plan
from tests.support.stored import assistant, user

import bridle
from bridle import Agent, SdkWarning
from bridle.errors import ApprovalPending
from bridle.outcomes import OutcomeReason
from bridle.sessions import MemoryStore, SessionKey, SqliteStore, read_messages
from bridle.sessions._backlog import Batch
from bridle.sessions._journal import (
    OutcomeEntry,
    PromptEntry,
    StoredOutcome,
    ToolCallEntry,
    encode_entry,
)
from bridle.sessions._loading import loaded_entries
from bridle.sessions._outbox.spool import Spool, spool_name
from bridle.testing import FakeCli
from bridle.testing.fake_transport import FakeTransport

ID = "00000000-0000-4000-8000-000000000001"
KEY = SessionKey(ID, "", "-work")
JOURNAL = SessionKey(ID, "journal", "-work")
AGENT = SessionKey(ID, "subagents/agent-1", "-work")
OTHER_AGENT = SessionKey(ID, "subagents/agent-2", "-work")

ONE: list[Any] = [user("u1", None, sessionId=ID), assistant("a1", "u1", sessionId=ID)]
TWO: list[Any] = [user("u2", "a1", sessionId=ID), assistant("a2", "u2", sessionId=ID)]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
DEFERRED = {
    **user("d1", "a2", sessionId=ID),
    "type": "attachment",
    "attachment": {
        "type": "hook_deferred_tool",
        "toolUseID": "toolu_1",
        "toolName": "Bash",
        "toolInput": {"command": "ls"},
    },
}
WAITING: list[Any] = [TWO[0], assistant("a2", "u2", CALL, sessionId=ID), DEFERRED]
"""A turn that ends with a call that waits."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    """A home, a working directory and a directory for spool files of its own."""
    for name, place in {
        "XDG_STATE_HOME": "state",
        "HOME": "home",
        "CLAUDE_CONFIG_DIR": "home/.claude",
        "TMPDIR": "tmp",
    }.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(tmp_path / place))
    set_limits(temporary_directory=None)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def lines(entries: Sequence[Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def save(home: Path, entries: Sequence[Any], agent: Sequence[Any] = ()) -> None:
    """Write what the CLI has of the conversation on this machine. Its last line is cut off."""
    place = home / "home/.claude/projects/-work"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{ID}.jsonl").write_text(lines(entries) + '{"type":"us')
    if agent:
        (place / ID / "subagents").mkdir(parents=True)
        (place / ID / "subagents/agent-1.jsonl").write_text(lines(agent))


async def resume(
    store: MemoryStore, **options: Any
) -> tuple[dict[str, list[str]], list[SdkWarning]]:
    """Resume the conversation. Return what the CLI gets, by file, and the warnings."""
    warnings: list[SdkWarning] = []
    chosen: dict[str, Any] = {"resume_session_id": ID, "on_warning": warnings.append, **options}
    async with bridle.start_session(
        transport_factory=FakeTransport(), store=store, **chosen
    ) as one:
        directory = Path(one._connection.launch.directory)
        files = {
            path.name: [json.loads(line).get("uuid") for line in path.read_text().splitlines()]
            for path in directory.rglob("*.jsonl")
        }
    return files, [one for one in warnings if one.kind == "store_failed"]


async def uuids(store: MemoryStore, key: SessionKey = KEY) -> list[object]:
    return [entry.get("uuid") for entry in await store.load(key) or ()]


class Lasting(MemoryStore):
    ends_with_program = False  # it has spool files


def left_behind(
    store: MemoryStore, parts: Sequence[tuple[SessionKey, list[Any]]], after: str | None = None
) -> Path:
    """Leave a spool file of a program that was killed."""
    spool = Spool(f"{spool_name(store, ID)}transcript.", "dead", None)
    spool.write(
        [
            Batch(key, entries, 100, number, after=after)
            for number, (key, entries) in enumerate(parts, 1)
        ]
    )
    spool.close()
    return Path(spool.path)


def answered(uuid: str) -> list[Any]:
    """The journal of a prompt that was answered."""
    prompt = PromptEntry(uuid=f"p-{uuid}", at=0.0, prompt_uuid=uuid, content="hi", cwd="/")
    outcome = StoredOutcome(reason=OutcomeReason.COMPLETED, text="hello", uuid=uuid, num_turns=1)
    ended = OutcomeEntry(uuid=f"o-{uuid}", at=0.0, prompt_uuid=uuid, outcome=outcome)
    return [encode_entry(prompt), encode_entry(ended)]


# ---------------------------------------------------------------- from the file


async def test_a_turn_that_only_the_file_has_is_resumed_and_stored(home: Path) -> None:
    store = MemoryStore()
    save(home, [*ONE, *TWO], agent=TWO)

    await store.append(KEY, ONE)
    await store.append(AGENT, TWO[:1])
    await store.append(JOURNAL, [*answered("u1"), *answered("u2")])
    files, warnings = await resume(store)
    everything = ["u1", "a1", "u2", "a2"]
    assert files == {f"{ID}.jsonl": everything, "agent-1.jsonl": ["u2", "a2"]}
    assert await uuids(store) == everything
    assert await uuids(store, AGENT) == ["u2", "a2"]
    assert warnings == []


async def test_a_fork_gets_the_turn_and_does_not_change_the_conversation(home: Path) -> None:
    store = MemoryStore()
    save(home, [*ONE, *TWO], agent=TWO)

    await store.append(KEY, ONE)
    await store.append(AGENT, TWO[:1])
    files, _ = await resume(store, fork_session=True)
    assert files[f"{ID}.jsonl"] == ["u1", "a1", "u2", "a2"]
    assert files["agent-1.jsonl"] == ["u2", "a2"]
    assert await uuids(store) == ["u1", "a1"]
    assert await uuids(store, AGENT) == ["u2"]


@pytest.mark.parametrize("look", ["fork", "pool"])
async def test_who_only_reads_leaves_a_spool_file_to_the_session_with_the_lease(look: str) -> None:
    """Another machine may work on the conversation, and would not see these entries."""
    store = Lasting()
    await store.append(KEY, ONE)
    await store.append(AGENT, ONE)
    assert await store.acquire(ID, "another machine", 600.0)
    path = left_behind(store, [(KEY, [*ONE, *TWO]), (AGENT, TWO[:1]), (OTHER_AGENT, TWO)])
    before = path.read_bytes()
    everything = ["u1", "a1", "u2", "a2"]
    if look == "fork":
        files, warnings = await resume(store, fork_session=True)
        assert files[f"{ID}.jsonl"] == everything
        assert files["agent-1.jsonl"] == ["u1", "a1", "u2"]
        assert files["agent-2.jsonl"] == ["u2", "a2"]
        assert warnings == []
    else:
        loaded = await loaded_entries(store, ID, plan(cwd="/work"), 60.0)
        assert [one["uuid"] for one in loaded.entries] == everything
    assert (await uuids(store), await uuids(store, AGENT)) == (["u1", "a1"], ["u1", "a1"])
    assert path.read_bytes() == before
    await store.release(ID, "another machine")
    files, _ = await resume(store)
    assert files[f"{ID}.jsonl"] == everything == await uuids(store)
    assert not path.exists()


async def test_who_only_reads_sees_by_a_spool_file_that_a_call_was_decided() -> None:
    store = Lasting()
    await store.append(KEY, [*ONE, *WAITING])
    with pytest.raises(ApprovalPending):
        await resume(store, fork_session=True)
    began = ToolCallEntry(
        uuid="c1",
        at=0.0,
        prompt_uuid="u2",
        tool_use_id="toolu_1",
        tool_name="Bash",
        tool_input={},
        idempotency_key="k",
    )
    left_behind(store, [(JOURNAL, [encode_entry(began)])])
    files, _ = await resume(store, fork_session=True)
    assert files[f"{ID}.jsonl"][:2] == ["u1", "a1"]
    assert await uuids(store, JOURNAL) == []


async def test_who_only_reads_leaves_out_entries_that_would_hide_newer_ones() -> None:
    store = Lasting()
    newer = [user("u3", "a1", sessionId=ID), assistant("a3", "u3", sessionId=ID)]
    await store.append(KEY, [*ONE, *newer])
    last = {"type": "last-prompt", "leafUuid": "a2", "sessionId": ID}
    path = left_behind(store, [(KEY, [*TWO, last])], after="a1")
    files, warnings = await resume(store, fork_session=True)
    elsewhere = ["u1", "a1", "u3", "a3"]
    assert files[f"{ID}.jsonl"] == elsewhere == await uuids(store)
    assert path.exists()
    assert [str(path) in one.detail for one in warnings] == [True]


@pytest.mark.parametrize("problem", ["is a link", "is damaged"])
async def test_who_only_reads_goes_on_without_what_cannot_be_read(problem: str) -> None:
    store = Lasting()
    await store.append(KEY, ONE)
    path = left_behind(store, [(KEY, TWO)])
    if problem == "is a link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    else:
        path.write_bytes(path.read_bytes() + b"+not json\n")
    files, warnings = await resume(store, fork_session=True)
    is_link = problem == "is a link"
    assert files[f"{ID}.jsonl"] == (["u1", "a1"] if is_link else ["u1", "a1", "u2", "a2"])
    assert [str(path) in one.detail for one in warnings] == [True] * is_link
    assert os.path.lexists(path)


async def test_a_file_that_is_an_old_branch_changes_nothing(home: Path) -> None:
    """Another machine has continued the conversation."""
    store = MemoryStore()
    save(home, [*ONE, *TWO])
    elsewhere = [user("u3", "a1", sessionId=ID), assistant("a3", "u3", sessionId=ID)]

    await store.append(KEY, [*ONE, *elsewhere])
    files, _ = await resume(store)
    assert files[f"{ID}.jsonl"] == ["u1", "a1", "u3", "a3"] == await uuids(store)


async def test_a_call_that_waits_and_that_only_the_file_has_is_found(home: Path) -> None:
    save(home, [*ONE, *WAITING])
    store = MemoryStore()

    await store.append(KEY, ONE)
    with pytest.raises(ApprovalPending):
        await resume(store)


# ---------------------------------------------------------------- what is lost


async def test_an_answer_without_its_messages_is_reported_once(home: Path) -> None:
    store = MemoryStore()

    await store.append(KEY, ONE)
    await store.append(JOURNAL, [*answered("u1"), *answered("u2")])
    _, warnings = await resume(store)
    assert len(warnings) == 1
    assert "u2" in warnings[0].detail
    assert ID in warnings[0].detail
    later = [user("u3", "a1", sessionId=ID), assistant("a3", "u3", sessionId=ID)]
    await store.append(KEY, later)
    await store.append(JOURNAL, answered("u3"))
    _, warnings = await resume(store)
    assert warnings == []


@pytest.mark.parametrize("has_file", [True, False])
async def test_a_store_that_came_back_empty_is_noticed(home: Path, *, has_file: bool) -> None:
    """It has what was appended afterwards."""
    store = MemoryStore()
    if has_file:
        save(home, [*ONE, *TWO])

    await store.append(KEY, TWO)
    files, warnings = await resume(store)
    if has_file:
        assert sorted(files[f"{ID}.jsonl"]) == ["a1", "a2", "u1", "u2"]
        assert warnings == []
    else:
        assert files[f"{ID}.jsonl"] == ["u2", "a2"]
        assert "beginning" in warnings[0].detail
    messages = await read_messages(ID, store=store)
    assert [one.raw["uuid"] for one in messages] == (
        ["u1", "a1", "u2", "a2"] if has_file else ["u2", "a2"]
    )


# ---------------------------------------------------------------- after a kill

PROGRAM = """
import asyncio, json, os, signal, sys
import bridle
from bridle.sessions._outbox import store_writer
from bridle.sessions import SqliteStore

store_writer.LINGER = 60.0
if sys.argv[3] != "hurry":
    store_writer.StoreWriter.hurry = lambda self: None

async def main():
    agent = bridle.Agent(store=SqliteStore(sys.argv[1]), cli_path=sys.argv[2], cwd=os.getcwd())
    async with agent.pool(size=1) as pool, pool.session(key="k") as session:
        await (await session.send_user_message("SAY one"))
        await session._connection.store.flush()
        await (await session.send_user_message("SAY two"))
        print(session.id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def cli() -> Iterator[FakeCli]:
    with FakeCli.auto(transcripts=True) as made:
        yield made


def kill_after_two_turns(store: Path, cli: FakeCli, how: str) -> str:
    """Run a program that dies when it has got the second answer. Return the session's id."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store), cli.path, how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("door", ["run", "pool"])
async def test_a_turn_that_the_program_received_before_it_died_is_not_lost(
    home: Path, cli: FakeCli, door: str
) -> None:
    path = home / "store.db"
    session_id = kill_after_two_turns(path, cli, "linger")

    store = SqliteStore(path)
    assert "SAY two" not in json.dumps(await store.load(SessionKey(session_id)))
    agent: Agent[Any] = Agent(store=store, cli_path=cli.path, cwd=os.getcwd())
    if door == "run":
        await agent.run("SAY three", resume_session_id=session_id)
    else:
        async with agent.pool(size=1) as pool, pool.session(key="k") as session:
            await (await session.send_user_message("SAY three"))
    messages = await read_messages(session_id, store=store)
    texts = [str(one.raw.get("message", {}).get("content")) for one in messages]
    shown = [text for text in texts if text.startswith("SAY")]
    assert shown == ["SAY one", "SAY two", "SAY three"]
    await store.aclose()


async def test_the_entries_of_a_turn_do_not_wait_for_more_once_it_has_ended(
    home: Path, cli: FakeCli
) -> None:
    """The outcome is written to the journal after them, by the one thread of the store."""
    path = home / "store.db"
    session_id = kill_after_two_turns(path, cli, "hurry")

    store = SqliteStore(path)
    assert "SAY two" in json.dumps(await store.load(SessionKey(session_id)))
    await store.aclose()


async def test_a_session_that_could_not_start_copies_no_file(home: Path, cli: FakeCli) -> None:
    """Its entries would be those of the session that is running."""
    store = SqliteStore(home / "store.db")
    warnings: list[SdkWarning] = []
    agent: Agent[Any] = Agent(
        store=store, cli_path=cli.path, cwd=os.getcwd(), on_warning=warnings.append
    )
    async with agent.session() as session:
        await (await session.send_user_message("SAY one"))
        with pytest.raises(bridle.SessionInUseError):
            await agent.run("SAY two", resume_session_id=session.id)
    await store.aclose()
    assert warnings == []
    assert not [*(home / "state").rglob("spool/*")]


# ---------------------------------------------------------------- what the store rejects


class RejectingStore(MemoryStore):
    """Rejects one entry, as a store with a limit of size does. Counts the appends without it."""

    async def append(self, key: SessionKey, entries: Sequence[Any]) -> None:
        if any(entry.get("uuid") == "u2" for entry in entries):
            raise ValueError("the entry is too large")
        await super().append(key, entries)


def without_u2(entry: Any) -> Any:
    if entry.get("uuid") == "u2":
        raise ValueError("no rule for this entry")
    return entry


@pytest.mark.parametrize("store", [RejectingStore(), MemoryStore(redact=without_u2)])
async def test_an_entry_of_the_file_that_the_store_rejects_does_not_prevent_a_resume(
    home: Path, store: MemoryStore
) -> None:
    """The session that wrote it went on without it."""
    save(home, [*ONE, *TWO])

    await store.append(KEY, ONE)
    files, warnings = await resume(store)
    assert files[f"{ID}.jsonl"] == ["u1", "a1", "u2", "a2"]
    assert await uuids(store) == ["u1", "a1", "a2"]
    assert len(warnings) == 1
    assert ID in warnings[0].detail
