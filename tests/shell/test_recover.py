"""`Agent.recover` and `run(retry=...)` after a crash, on the fake CLI."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.journals import brief, journal_of
from tests.support.limits import SetLimits
from tests.support.processes import plan, run, until
from tests.support.steps import ReplaceSteps

import bridle
from bridle import (
    Limits,
    OptionsError,
    PendingApproval,
    Retry,
    SessionInUseError,
    SessionNotFoundError,
    ToolContext,
    tool,
)
from bridle._engine.outgoing.prompts import END_OF_PROMPT
from bridle._process.config_directory import config_directory
from bridle._process.session_locks import lock_session
from bridle._records.session_store import Entry
from bridle.errors import SessionLoadError
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions import MemoryStore, SessionKey, SessionStore, SqliteStore
from bridle.sessions import _crashed_sessions as recovering
from bridle.sessions import _loading as store_loading
from bridle.sessions._backlog import Batch
from bridle.sessions._cli_files import CliFiles
from bridle.sessions._crashed_sessions import DeadSession, received_entry
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ToolCallEntry,
    encode_entry,
    store_outcome,
)
from bridle.sessions._outbox.leases import BorrowedLeases, Leases
from bridle.sessions._outbox.spool import Spool, spool_name
from bridle.sessions._transcripts import files as transcript_files
from bridle.sessions._transcripts import transcript as transcripts
from bridle.sessions._transcripts.transcript import project_name
from bridle.testing import FakeCli

ID = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
LEASE = 0.4


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    """A home directory, working directory and directory for spool files of its own."""
    for name, place in {
        "XDG_STATE_HOME": "state",
        "HOME": "home",
        "CLAUDE_CONFIG_DIR": "home/.claude",
    }.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(tmp_path / place))
    set_limits(lease=LEASE)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


# ---------------------------------------------------------------- histories


def prompt(uuid: str, content: Any = "do it", cwd: str = "/nowhere") -> PromptEntry:
    return PromptEntry(
        uuid=str(uuid4()), at=time.time(), prompt_uuid=uuid, content=content, cwd=cwd
    )


def ended(uuid: str, **fields: Any) -> OutcomeEntry:
    outcome = Outcome[Any](**{"reason": OutcomeReason.COMPLETED, "uuid": uuid, **fields})
    return OutcomeEntry(
        uuid=str(uuid4()), at=time.time(), prompt_uuid=uuid, outcome=store_outcome(outcome)
    )


def user(uuid: str, parent: str | None = None, text: str = "do it") -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message}


def answer(uuid: str, parent: str, text: str = "done") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    message = {"role": "assistant", "content": content, "stop_reason": "end_turn", "id": "m"}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message}


async def keep(
    store: SessionStore, journal: Sequence[JournalEntry], entries: Sequence[dict[str, Any]] = ()
) -> None:
    if entries:
        await store.append(SessionKey(ID), entries)
    if journal:
        await store.append(SessionKey(ID, "journal"), list(map(encode_entry, journal)))


async def kinds(store: SessionStore, session_id: str = ID) -> list[str]:
    return brief(await journal_of(store, session_id))


def prompts_of(cli: FakeCli) -> list[str]:
    """The prompts that the runs of a CLI got, in order."""
    frames: list[Any] = [
        one.members for found in cli.runs for one in found if one.direction == "in"
    ]
    return [_text(frame["message"]["content"]) for frame in frames if frame.get("type") == "user"]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(block["text"] for block in content)


def crash_once(
    *,
    is_written: bool,
    times: int = 1,
    gate: asyncio.Event | None = None,
) -> tuple[Any, list[str]]:
    """A tool that kills its CLI, and the idempotency keys of its calls.

    ``is_written``: the transcript has the call then, and the program has got the report. Without
    it, use a CLI that :func:`writes_late`. The tool waits for ``gate`` before.
    """
    keys: list[str] = []

    @tool
    async def crash(line: str, context: ToolContext) -> str:
        """Kill the CLI."""
        keys.append(context.idempotency_key)
        if len(keys) <= times:
            if gate is not None:
                await gate.wait()
            if is_written:
                await until(lambda: str(context.tool_use_id) in transcripts_of(context.session))
                await context.session.ping()  # its response follows the report
            os.kill(context.session.pid, 9)
            await asyncio.sleep(60)
        return f"went on with {line}"

    return crash, keys


def transcripts_of(session: Any) -> str:
    """The text of the transcripts that a session may write to."""
    resumed = [one for one in session._connection.launch.argv if one.endswith(".jsonl")]
    places = [Path(one.partition("=")[2]) for one in resumed]
    places += Path(os.environ["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl")
    return "".join(place.read_text() for place in places)


def writes_late() -> FakeCli:
    """A CLI that writes nothing of a turn to its transcript before the end of the turn."""
    return FakeCli.auto(transcripts=True)._set(transcript_delay=3600.0)


CALL = 'CALL mcp__tools__crash {"line": "a"}'
NAMED = '- mcp__tools__crash {"line":"a"}'


async def crashed(agent: bridle.Agent, text: str = CALL) -> str:
    """Leave a session whose CLI has crashed, and whose outcome was not received."""
    session = await agent.session()
    outcome = await (await session.send_user_message(text))
    assert outcome.reason is OutcomeReason.CLI_EXITED
    await session.aclose()
    return str(session.id)


# ---------------------------------------------------------------- arguments


def test_a_recovery_needs_a_store_and_the_id_of_a_session() -> None:
    agent = bridle.Agent()
    stored = bridle.Agent(store=MemoryStore())
    calls: dict[str, Callable[[], Any]] = {
        "store": lambda: agent.sync.recover(ID),
        "session_id": lambda: stored.sync.recover("my session"),
        "retry": lambda: stored.sync.recover(ID, retry=3),  # type: ignore[call-overload]
        "output_retries": lambda: stored.sync.recover(ID, output_retries=-1),
        "output_type": lambda: stored.sync.recover(ID, output_type=object()),
    }
    for field, call in calls.items():
        with pytest.raises(OptionsError) as caught:
            call()
        assert caught.value.field == field


async def test_a_session_that_is_nowhere_is_not_found() -> None:
    with pytest.raises(SessionNotFoundError):
        await bridle.Agent(store=MemoryStore()).recover(ID)


async def test_a_session_of_which_only_a_probe_is_stored_is_not_found() -> None:
    """Bridle writes the probe to find out if a store rejects an entry."""
    store = MemoryStore()
    await store.append(SessionKey(ID, "journal"), [{"type": "probe", "uuid": "x", "at": 1.0}])
    with pytest.raises(SessionNotFoundError):
        await bridle.Agent(store=store).recover(ID)


# ---------------------------------------------------------------- without a CLI


async def test_finished_turns_are_recovered_without_a_cli() -> None:
    """From the journal and from the transcript, in the order of the prompts, and only once."""
    store = MemoryStore()
    await keep(
        store,
        [prompt("p1"), prompt("p2"), ended("p2", text="two", cost_usd=0.5)],
        [user("p1"), answer("a1", "p1", "one"), user("p2", "a1"), answer("a2", "p2", "x")],
    )
    agent = bridle.Agent(store=store, cli_path="/nowhere/claude")
    first, second = await agent.recover(ID)
    assert (first.uuid, first.text, first.cost_usd) == ("p1", "one", None)
    assert (first.session_id, first.reason) == (ID, OutcomeReason.COMPLETED)
    assert (second.uuid, second.text, second.cost_usd) == ("p2", "two", 0.5)
    assert (await kinds(store))[-2:] == ["received #1", "received #2"]
    assert await agent.recover(ID) == []


@pytest.mark.parametrize("has_file", [True, False])
def test_a_recovery_reads_and_plans_outside_of_the_event_loop(
    has_file: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long history takes seconds, in which the other sessions of the program go on."""
    working: dict[str, set[int]] = {}

    def watch(module: Any, name: str) -> None:
        original = getattr(module, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            working.setdefault(name, set()).add(threading.get_ident())
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, watched)

    watch(transcripts, "entry_of_line")
    watch(transcripts, "object_of_line")
    watch(recovering, "plan_recovery")
    watch(store_loading, "decode_entries")
    watch(recovering, "is_linked")

    async def main() -> int:
        store = MemoryStore()
        told = [user("p1"), answer("a1", "p1")]
        if has_file:
            write_transcript(home, home / "home" / ".claude", *told)
        await keep(store, [prompt("p1", cwd=str(home / "work"))], told[: 1 if has_file else 2])
        (outcome,) = await bridle.Agent(store=store).recover(ID)
        assert outcome.text == "done"
        return threading.get_ident()

    loop = run(main)
    assert len(working) == 5
    assert all(loop not in threads for threads in working.values()), working


async def test_a_conversation_without_a_journal_has_nothing_to_recover() -> None:
    store = MemoryStore()
    await keep(store, [], [user("p1")])
    assert await bridle.Agent(store=store, cli_path="/nowhere/claude").recover(ID) == []


async def test_a_prompt_is_not_sent_while_a_call_waits_for_approval() -> None:
    """The CLI would drop the call, and take its deferral for the outcome of the prompt."""
    store = MemoryStore()
    pending = PendingApproval(
        session_id=ID, tool_use_id="t1", tool_name="Bash", tool_input={"command": "make deploy"}
    )
    deferred = ended("p2", reason=OutcomeReason.TOOL_DEFERRED, pending=pending)
    await keep(
        store,
        [prompt("p1"), prompt("p2"), deferred, received_entry("p2")],
        [user("p2")],
    )
    agent = bridle.Agent(store=store, cli_path="/nowhere/claude")
    for _ in range(2):  # the prompt stays open
        (outcome,) = await agent.recover(ID)
        assert (outcome.uuid, outcome.reason) == ("p1", OutcomeReason.TOOL_DEFERRED)
        assert (outcome.pending, outcome.session_id) == (pending, ID)
    # The call is decided, and runs.
    call = ToolCallEntry(
        uuid=str(uuid4()),
        at=time.time(),
        tool_use_id="t1",
        tool_name="Bash",
        tool_input={},
        idempotency_key="k",
    )
    await keep(store, [call])
    with FakeCli.auto(transcripts=True) as cli:
        (outcome,) = await agent.replace(cli_path=cli.path).recover(ID)
        assert (outcome.uuid, outcome.ok) == ("p1", True)
    assert await agent.recover(ID) == []


def deferral(uuid: str, parent: str) -> list[dict[str, Any]]:
    """A tool call that a hook deferred, as the CLI saves it."""
    called = answer(f"{uuid}-call", parent)
    called["message"]["content"] = [{"type": "tool_use", "id": uuid, "name": "Bash", "input": {}}]
    called["message"]["stop_reason"] = "tool_use"
    attached = {"type": "hook_deferred_tool", "toolUseID": uuid, "toolName": "Bash"}
    return [
        called,
        {"type": "attachment", "uuid": uuid, "parentUuid": f"{uuid}-call", "attachment": attached},
    ]


async def test_a_waiting_call_that_only_the_transcript_has_is_not_dropped() -> None:
    """The program died before it could write the outcome of the turn."""
    store = MemoryStore()
    await keep(store, [prompt("p1"), prompt("p2")], [user("p2"), *deferral("t1", "p2")])
    with FakeCli.auto(transcripts=True) as cli:
        first, second = await bridle.Agent(cli_path=cli.path, store=store).recover(ID)
        assert prompts_of(cli) == []
    for outcome in (first, second):
        assert outcome.reason is OutcomeReason.TOOL_DEFERRED
        assert outcome.pending is not None
        assert outcome.pending.tool_use_id == "t1"
    assert (await kinds(store))[-1] == "received #2"


async def test_a_call_that_a_later_prompt_has_dropped_does_not_hold_a_prompt_back() -> None:
    store = MemoryStore()
    pending = PendingApproval(session_id=ID, tool_use_id="t1", tool_name="Bash", tool_input={})
    deferred = ended("p1", reason=OutcomeReason.TOOL_DEFERRED, pending=pending)
    crashed = ended("p2", reason=OutcomeReason.CLI_EXITED)
    await keep(
        store,
        [prompt("p1"), deferred, received_entry("p1"), prompt("p2"), crashed],
        [user("p1"), *deferral("t1", "p1"), user("p2", "t1")],
    )
    with FakeCli.auto(transcripts=True) as cli:
        (outcome,) = await bridle.Agent(cli_path=cli.path, store=store).recover(ID)
    assert (outcome.uuid, outcome.ok) == ("p2", True)


async def test_structured_output_is_converted_again() -> None:
    store = MemoryStore()
    await keep(store, [prompt("p1"), ended("p1", structured_output={"value": 4})])
    await keep(store, [prompt("p2"), ended("p2", text="four")])
    await keep(store, [prompt("p3"), ended("p3", structured_output={"value": "x"})])
    outcomes = await bridle.Agent(store=store).recover(ID, output_type=int)
    assert [(one.output, str(one.reason)) for one in outcomes] == [
        (4, "completed"),
        (None, "output_missing"),
        (None, "output_invalid"),
    ]


async def test_the_file_of_the_cli_completes_the_store(home: Path) -> None:
    """The program died before it could copy the last entries."""
    store = MemoryStore()
    entries = [user("p1"), answer("a1", "p1", "from the file")]
    place = home / "home/.claude/projects" / project_name(str(home / "work"))
    place.mkdir(parents=True)
    lines = [*entries, {"type": "last-prompt", "leafUuid": "a1"}]
    (place / f"{ID}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    await keep(store, [prompt("p1")], entries[:1])
    (outcome,) = await bridle.Agent(store=store, cli_path="/nowhere/claude").recover(ID)
    assert outcome.text == "from the file"
    assert await store.load(SessionKey(ID)) == entries


def write_transcript(home: Path, config: Path, *entries: dict[str, Any]) -> None:
    """Write a conversation as a CLI does that ran in the directory "there"."""
    place = config / "projects" / project_name(str(home / "there"))
    place.mkdir(parents=True)
    (place / f"{ID}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in entries))


@pytest.mark.parametrize("is_spooled", [False, True])
async def test_a_relative_configuration_directory_is_in_the_directory_of_the_cli(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, is_spooled: bool
) -> None:
    """Not in that of the agent, if the session ran elsewhere."""
    store = SqliteStore(home / "store.db")
    there = home / "there"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "config")
    write_transcript(home, there / "config", user("p1"), answer("a1", "p1", "from the file"))
    entries = [prompt("p1", cwd=str(there))]
    if is_spooled:
        spool_journal(store, *entries)
    else:
        await keep(store, entries)
    agent = bridle.Agent(store=store, cli_path="/nowhere/claude")
    lock = lock_session(str(there / "config"), ID)
    with pytest.raises(SessionInUseError):
        await agent.recover(ID)
    lock.release()
    (outcome,) = await agent.recover(ID)
    assert outcome.text == "from the file"
    for config in (there / "config", home / "work/config"):
        lock_session(str(config), ID).release()
    await store.aclose()


async def test_an_old_file_of_the_cli_does_not_change_the_conversation(home: Path) -> None:
    """Another machine has continued the session, and the file has a branch of its own."""
    store = MemoryStore()
    place = home / "home/.claude/projects" / project_name(str(home / "work"))
    place.mkdir(parents=True)
    old = [user("p1"), answer("old", "p1", "from the file")]
    (place / f"{ID}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in old))
    entries = [user("p1"), answer("a1", "p1", "from the store")]
    await keep(store, [prompt("p1")], entries)
    (outcome,) = await bridle.Agent(store=store).recover(ID)
    assert outcome.text == "from the store"
    assert await store.load(SessionKey(ID)) == entries


async def test_entries_in_a_spool_file_are_recovered() -> None:
    store = MemoryStore()
    await keep(store, [prompt("p1")])
    spool = Spool(f"{spool_name(store, ID)}journal.", "dead", None)
    late = encode_entry(ended("p1", text="from the spool"))
    spool.write([Batch(SessionKey(ID, "journal"), [late], 100, 1)])
    spool.close()
    (outcome,) = await bridle.Agent(store=store, cli_path="/nowhere/claude").recover(ID)
    assert outcome.text == "from the spool"


class FlakyStore(MemoryStore):
    """A store whose next appends fail."""

    failures = 0
    ends_with_program = False

    async def append(self, key: SessionKey, entries: Sequence[Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionResetError("connection reset")
        await super().append(key, entries)


def spool_journal(store: SessionStore, *entries: JournalEntry) -> str:
    """Leave a spool file with the journal of a program that was killed. Return its path."""
    spool = Spool(f"{spool_name(store, ID)}journal.", "dead", None)
    spool.write([Batch(SessionKey(ID, "journal"), list(map(encode_entry, entries)), 100, 1)])
    spool.close()
    return spool.path


async def test_a_call_in_a_spool_file_is_named_although_the_store_failed_once() -> None:
    store = FlakyStore()
    await keep(store, [prompt("p1")], [user("p1", text="pay the bill")])
    call = ToolCallEntry(
        uuid=str(uuid4()),
        at=time.time(),
        prompt_uuid="p1",
        tool_use_id="t1",
        tool_name="mcp__tools__pay",
        tool_input={"bill": 7},
        idempotency_key="k",
    )
    spool_journal(store, call)
    store.failures = 1
    with FakeCli.auto(transcripts=True) as cli:
        await bridle.Agent(cli_path=cli.path, store=store).recover(ID)
        (sent,) = prompts_of(cli)
        assert "mcp__tools__pay" in sent


async def test_a_recovery_does_not_go_on_without_the_journal_in_a_spool_file() -> None:
    store = FlakyStore()
    await keep(store, [prompt("p1")], [user("p1")])
    path = spool_journal(store, ended("p1"))
    store.failures = 1000
    agent = bridle.Agent(store=store, cli_path="/nowhere/claude", load_timeout=0.5)
    with pytest.raises(SessionLoadError) as caught:
        await agent.recover(ID)
    assert path in str(caught.value)
    store.failures = 0
    assert len(await agent.recover(ID)) == 1


async def test_each_write_of_a_recovery_has_its_own_spool_file(
    home: Path, set_limits: SetLimits
) -> None:
    set_limits(closing_store=0.1)
    store = FlakyStore()
    files = CliFiles(plan())
    dead = DeadSession(store, ID, files, 5.0, Leases(store, lambda _: None, 5.0))
    store.failures = 10**6
    for name in ("p1", "p2"):
        await dead.write([prompt(name)])
    assert len(list((home / "state/bridle/spool").iterdir())) == 2
    store.failures = 0
    journal = (await dead.load()).journal
    assert {one.prompt_uuid for one in journal if isinstance(one, PromptEntry)} == {"p1", "p2"}


def fail(*_: object) -> Any:
    raise OSError(errno.EIO, "Input/output error", "/some/file")


@pytest.mark.parametrize(
    "step",
    ["read_cli_files", "remove_unused_files", "read_spool", "mark_spool_sent", "remove_spool"],
)
async def test_a_file_that_fails_in_a_recovery_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = SqliteStore(home / "store.db")
    (home / "there").mkdir()
    await keep(store, [prompt("p1", cwd=str(home / "there"))])
    spool_journal(store, prompt("p2"))
    with monkeypatch.context() as patch:
        ReplaceSteps(patch)(**{step: fail})
        agent = bridle.Agent(store=store, cli_path="/nowhere/claude")
        with pytest.raises(SessionLoadError) as caught:
            await agent.recover(ID)
    assert "/some/file" in str(caught.value)
    assert ID in str(caught.value)
    assert "the file" in str(caught.value.fix)
    await store.aclose()


async def test_a_transcript_that_cannot_be_read_is_neither_ignored_nor_removed(
    home: Path, replace_steps: ReplaceSteps
) -> None:
    """It may have the prompt, which must not be sent again."""
    store = MemoryStore()
    config = home / "home/.claude"
    write_transcript(home, config, user("p1"), answer("a1", "p1"))
    replace_steps(open_transcript=fail)
    await keep(store, [prompt("p1")])
    with FakeCli.auto(transcripts=True) as cli:
        with pytest.raises(SessionLoadError):
            await bridle.Agent(cli_path=cli.path, store=store).recover(ID)
        assert prompts_of(cli) == []
    with pytest.raises(OSError, match="/some/file"):
        CliFiles(plan(env={"CLAUDE_CONFIG_DIR": str(config)})).remove_unused(ID)
    assert len(list(config.glob("projects/*/*.jsonl"))) == 1


@pytest.mark.parametrize("has_store", [True, False])
async def test_a_file_that_fails_after_a_crash_ends_the_attempts(
    replace_steps: ReplaceSteps, *, has_store: bool
) -> None:
    replace_steps(read_cli_files=fail)
    crash, keys = crash_once(is_written=False)
    with FakeCli.auto(transcripts=True) as cli:
        store = MemoryStore() if has_store else None
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        outcome = await agent.run(CALL, retry=Retry(attempts=2, max_wait=0.1))
        assert (outcome.reason, len(keys)) == (OutcomeReason.CLI_EXITED, 1)


async def test_a_recovery_does_not_go_on_without_a_damaged_part_of_the_journal(home: Path) -> None:
    """A resume has kept the lines that cannot be read under another name."""
    store = SqliteStore(home / "store.db")
    await keep(store, [prompt("p1"), ended("p1")], [user("p1"), answer("a1", "p1")])
    path = Path(spool_journal(store, prompt("p2")))
    with path.open("ab") as file:
        file.write(b"+not json\n")
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        async with agent.session(resume_session_id=ID):
            pass
        kept = path.with_name(f"damaged.{path.name}")
        with pytest.raises(SessionLoadError) as caught:
            await agent.recover(ID)
        assert str(kept) in str(caught.value)
        assert "move it to another directory" in str(caught.value.fix)
        assert "received #1" not in await kinds(store)
        kept.rename(home / "elsewhere")
        assert len(await agent.recover(ID)) == 2
    await store.aclose()


async def test_a_recovery_sends_the_readable_lines_of_a_damaged_spool_file(home: Path) -> None:
    store = SqliteStore(home / "store.db")
    await keep(store, [prompt("p1"), ended("p1")], [user("p1"), answer("a1", "p1")])
    path = Path(spool_journal(store, prompt("p2"), ended("p2")))
    path.write_bytes(b"+not json\n" + path.read_bytes())
    agent = bridle.Agent(store=store, cli_path="/nowhere/claude")
    kept = path.with_name(f"damaged.{path.name}")
    for _ in range(2):
        with pytest.raises(SessionLoadError) as caught:
            await agent.recover(ID)
        assert str(kept) in str(caught.value)
        assert "move it to another directory" in str(caught.value.fix)
    kept.rename(home / "elsewhere")
    assert len(await agent.recover(ID)) == 2
    await store.aclose()


async def test_a_recovery_does_not_go_on_without_a_journal_for_another_location(home: Path) -> None:
    old, new = SqliteStore(home / "old.db"), SqliteStore(home / "new.db")
    await keep(new, [prompt("p1"), ended("p1")], [user("p1"), answer("a1", "p1")])
    path = Path(spool_journal(old, prompt("p2")))
    agent = bridle.Agent(store=new, cli_path="/nowhere/claude")
    with pytest.raises(SessionLoadError) as caught:
        await agent.recover(ID)
    assert str(path) in str(caught.value)
    assert "another location" in str(caught.value)
    assert "move the file to another directory" in str(caught.value.fix)
    # The old store has its entries: only the removal of the file is missing.
    path.write_bytes(b"-" + path.read_bytes()[1:])
    assert len(await agent.recover(ID)) == 1
    for store in (old, new):
        await store.aclose()


async def test_a_recovery_warns_once_of_a_spool_for_another_store(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It loads the session once more after each step."""
    store = SqliteStore(home / "store.db")
    other = Spool(f"{spool_name(MemoryStore(), ID)}transcript.", "dead", None)
    other.write([Batch(SessionKey(ID), [{"uuid": "1"}], 10, 1)])
    other.close()
    await keep(store, [prompt("p1"), prompt("p2")])
    with FakeCli.auto(transcripts=True) as cli:
        assert len(await bridle.Agent(cli_path=cli.path, store=store).recover(ID)) == 2
    logged = [one for one in caplog.records if other.path in one.getMessage()]
    # The session of the second step resumes the conversation, and warns too.
    assert [one.module for one in logged] == ["_start_calls", "log_records"]
    await store.aclose()


# ---------------------------------------------------------------- with a CLI


async def test_a_turn_that_was_cut_off_is_continued_and_the_call_is_named() -> None:
    store = MemoryStore()
    crash, _ = crash_once(is_written=True)
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        session_id = await crashed(agent)
        (outcome,) = await agent.recover(session_id)
        first, second = prompts_of(cli)
        assert first == CALL
        assert NAMED in second
        assert (outcome.ok, outcome.session_id) == (True, session_id)
        assert NAMED in outcome.text
        assert await kinds(store, session_id) == [
            f"prompt #1 {CALL}",
            "call mcp__tools__crash #1",
            "outcome #1 cli_exited",
            "prompt #2 continues #1",
            "outcome #1 completed",
            "received #1",
        ]
        assert outcome.uuid == (await journal_of(store, session_id))[0].prompt_uuid  # type: ignore[union-attr]
        assert await agent.recover(session_id) == []
        assert len(prompts_of(cli)) == 2


@pytest.mark.parametrize("door", ["recover", "run"])
async def test_the_prompt_that_continues_a_turn_is_not_interpreted(door: str) -> None:
    """It may quote the input and the result of a call, and with them `@/path`."""
    crash, _ = crash_once(is_written=True)
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=MemoryStore(), tools=[crash])
        if door == "recover":
            await agent.recover(await crashed(agent))
        else:
            assert (await agent.run(CALL, retry=Retry(attempts=2, max_wait=0.1))).ok
        (line,) = [one for one in cli.received if one["type"] == "user"]
        assert line["client_composed"] is True
        assert NAMED in line["message"]["content"][0]["text"]
        assert line["message"]["content"][-1]["text"] == END_OF_PROMPT


async def test_an_equal_call_of_a_second_crash_is_named_again() -> None:
    store = MemoryStore()
    crash, _ = crash_once(is_written=True, times=2)
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        session_id = await crashed(agent)
        await agent.recover(session_id)
        session = await agent.session(resume_session_id=session_id)
        await (await session.send_user_message(CALL))
        await session.aclose()
        (outcome,) = await agent.recover(session_id)
        assert outcome.ok
        assert [text.count(NAMED) for text in prompts_of(cli)] == [0, 1, 0, 1]
        entries = await journal_of(store, session_id)
        calls = [one.tool_use_id for one in entries if isinstance(one, ToolCallEntry)]
        named = [one.named for one in entries if isinstance(one, PromptEntry) and one.named]
        assert named == [(calls[0],), (calls[1],)]


async def test_a_prompt_that_is_not_in_the_transcript_is_sent_again() -> None:
    store = MemoryStore()
    crash, keys = crash_once(is_written=False)
    with writes_late() as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        session_id = await crashed(agent)
        assert await store.load(SessionKey(session_id)) is None
        (outcome,) = await agent.recover(session_id)
        _, second = prompts_of(cli)
        assert NAMED in second
        assert second.endswith(CALL)
        assert (outcome.text, outcome.session_id) == ("went on with a", session_id)
        assert keys[0] == keys[1]
        uuids = [one["uuid"] for one in cli.received if one["type"] == "user"]
        assert uuids == [outcome.uuid]


async def test_a_file_without_a_conversation_does_not_prevent_a_recovery(home: Path) -> None:
    """The CLI takes the id of the session as used, and finds nothing to resume."""
    store = MemoryStore()
    place = home / "home/.claude/projects" / project_name(str(home / "work"))
    place.mkdir(parents=True)
    file = place / f"{ID}.jsonl"
    file.write_text('{"type":"queue-operation","operation":"enqueue"}\n')
    await keep(store, [prompt("p1", cwd=str(home / "work"))])
    with FakeCli.auto(transcripts=True) as cli:
        (outcome,) = await bridle.Agent(cli_path=cli.path, store=store).recover(ID)
        assert outcome.text == "You said: do it"
        assert "queue-operation" not in file.read_text()


async def test_several_prompts_are_finished_one_after_the_other() -> None:
    store = MemoryStore()
    sent = asyncio.Event()
    crash, _ = crash_once(is_written=True, gate=sent)
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        session = await agent.session()
        turns = [await session.send_user_message(CALL)]
        await until(lambda: len(cli.sent) > 2 and "tool_use" in str(cli.sent))
        turns += [await session.send_user_message(text) for text in ("second", "third")]
        sent.set()
        for turn in turns:
            assert (await turn).reason is OutcomeReason.CLI_EXITED
        await session.aclose()
        outcomes = await agent.recover(str(session.id))
        assert [one.uuid for one in outcomes] == [turn.uuid for turn in turns]
        assert [one.text for one in outcomes[1:]] == ["You said: second", "You said: third"]
        assert NAMED in outcomes[0].text


def test_a_crash_of_the_cli_ends_the_recovery_before_the_next_prompt() -> None:
    """The next prompt would be sent without a word about the call that was cut off."""
    store = MemoryStore()
    crash, _ = crash_once(is_written=True)

    async def main() -> None:
        with FakeCli.auto(transcripts=True) as cli:
            await keep(store, [prompt("p1", CALL), prompt("p2", "then this")])
            agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
            (outcome,) = await agent.recover(ID)
            assert (outcome.uuid, outcome.reason) == ("p1", OutcomeReason.CLI_EXITED)
            assert prompts_of(cli) == [CALL]
            outcomes = await agent.recover(ID)
            assert [(one.uuid, one.ok) for one in outcomes] == [("p1", True), ("p2", True)]
            _, second, third = prompts_of(cli)
            assert NAMED in second
            assert third == "then this"
            assert await agent.recover(ID) == []

    run(main)


@pytest.mark.parametrize("exists", [True, False])
async def test_the_cli_works_in_the_directory_of_the_session(home: Path, exists: bool) -> None:
    store = MemoryStore()
    there = home / "there"
    if exists:
        there.mkdir()
    await keep(store, [prompt("p1", cwd=str(there))])
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, cwd=str(home / "work"))
        await agent.recover(ID)
        (cwd,) = [one.members["cwd"] for one in cli.transcript() if "cwd" in one.members][:1]
        assert cwd == str(there if exists else home / "work")


async def test_the_limits_of_the_call_apply() -> None:
    store = MemoryStore()
    await keep(store, [prompt("p1", "SLOW")])
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        (outcome,) = await agent.recover(ID, limits=Limits(total=0.5))
        assert outcome.reason is OutcomeReason.LIMIT_TOTAL


async def test_the_blocking_twin_gives_tools_a_blocking_session_and_the_deps() -> None:
    store = MemoryStore()
    seen: list[tuple[object, object]] = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append((type(context.session), context.deps))
        return "looked"

    await keep(store, [prompt("p1", "CALL mcp__tools__look {}")])
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[look])
        (outcome,) = agent.sync.recover(ID, deps="mine")
    assert outcome.text == "looked"
    ((kind, deps),) = seen
    assert (isinstance(kind, type) and issubclass(kind, bridle.sync.Session), deps) == (
        True,
        "mine",
    )


async def test_an_approved_call_that_was_cut_off_does_not_run_again_at_the_start(
    replace_steps: ReplaceSteps,
) -> None:
    """The transcript that the CLI resumes does not say that the call waits for approval."""
    store = MemoryStore()
    resumed: list[str] = []
    write = transcript_files.write_transcript

    def note(path: Path, *arguments: Any) -> None:
        write(path, *arguments)
        resumed.append(path.read_text())

    replace_steps(write_loaded_transcript=note)
    pending = bridle.PendingApproval(
        session_id=ID, tool_name="Bash", tool_input={"command": "x"}, tool_use_id="t1"
    )
    call = answer("a1", "p1")
    call["message"] |= {"stop_reason": "tool_use", "content": [{"type": "tool_use", "id": "t1"}]}
    waits = {"type": "hook_deferred_tool", "toolUseID": "t1", "toolName": "Bash"}
    entries = [
        user("p1"),
        call,
        {"type": "attachment", "uuid": "d1", "parentUuid": "a1", "attachment": waits},
    ]
    decision = PromptEntry(
        uuid="j1", at=time.time(), prompt_uuid="d2", content=None, cwd="/nowhere", resumes="t1"
    )
    ran = ToolCallEntry(
        uuid="j2", at=time.time(), tool_use_id="t1", tool_name="Bash", prompt_uuid="d2",
        tool_input={"command": "x"}, idempotency_key="k",
    )  # fmt: skip
    deferred = ended("p1", reason=OutcomeReason.TOOL_DEFERRED, pending=pending)
    await keep(store, [prompt("p1"), deferred, received_entry("p1"), decision], entries)
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        await keep(store, [ran])
        (outcome,) = await agent.recover(ID)
        assert (outcome.uuid, outcome.ok) == ("d2", True)
        assert '- Bash {"command":"x"}' in prompts_of(cli)[0]
    assert ["hook_deferred_tool" in text for text in resumed] == [False]


# ---------------------------------------------------------------- a recovery that fails


async def test_a_recovery_that_is_cancelled_can_be_repeated() -> None:
    store = MemoryStore()
    await keep(store, [prompt("p1", "SLOW")])
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        task = asyncio.create_task(agent.recover(ID))
        await until(lambda: len(prompts_of(cli)) == 1)
        # Until the transcript has the prompt, so that it is not sent again.
        await until(lambda: "transcript_mirror" in str(cli.sent))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert "received" not in str(await kinds(store))
        (outcome,) = await agent.recover(ID)
        assert (outcome.ok, outcome.uuid) == (True, "p1")


async def test_a_crash_in_a_recovery_can_be_recovered() -> None:
    """Without `retry` its outcome is `cli_exited`, and another recovery continues."""
    store = MemoryStore()
    crash, _ = crash_once(is_written=True, times=2)
    await keep(store, [prompt("p1", CALL)])
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        (outcome,) = await agent.recover(ID)
        assert (outcome.reason, outcome.uuid) == (OutcomeReason.CLI_EXITED, "p1")
        (outcome,) = await agent.recover(ID)
        assert outcome.ok


async def test_a_crash_in_a_recovery_is_retried() -> None:
    store = MemoryStore()
    crash, _ = crash_once(is_written=True)
    await keep(store, [prompt("p1", CALL)])
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        (outcome,) = await agent.recover(ID, retry=Retry(attempts=2, max_wait=0.1))
        assert (outcome.ok, outcome.uuid) == (True, "p1")
        assert NAMED in prompts_of(cli)[1]
        assert (await kinds(store))[-1] == "received #1"
        assert "received" not in str((await kinds(store))[:-1])


# ---------------------------------------------------------------- in use


async def test_a_session_of_this_machine_that_runs_is_in_use(set_limits: SetLimits) -> None:
    """The recovery does not wait for the end of the lease."""
    set_limits(lease=600.0)
    store = MemoryStore()
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        async with agent.session() as session:
            await (await session.send_user_message("hello"))
            with pytest.raises(SessionInUseError):
                await agent.recover(str(session.id))
        assert await agent.recover(str(session.id)) == []


async def test_a_session_of_another_machine_that_runs_is_in_use() -> None:
    store = MemoryStore()
    await keep(store, [prompt("p1"), ended("p1")])

    async def renew() -> None:
        while True:
            await store.acquire(ID, "another machine", LEASE)
            await asyncio.sleep(LEASE / 4)

    renewing = asyncio.create_task(renew())
    await asyncio.sleep(0)
    agent = bridle.Agent(store=store)
    with pytest.raises(SessionInUseError):
        await agent.recover(ID)
    renewing.cancel()
    assert len(await agent.recover(ID)) == 1  # its lease expires


async def test_of_two_recoveries_one_has_the_outcomes() -> None:
    store = MemoryStore()
    await keep(store, [prompt("p1")])
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        both = (agent.recover(ID), agent.recover(ID))
        found = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(map(len, (one for one in found if isinstance(one, list)))) in (
            [1],
            [0, 1],
        )
        others = [one for one in found if not isinstance(one, list)]
        assert all(isinstance(one, SessionInUseError) for one in others)
        assert len(prompts_of(cli)) == 1


async def test_a_recovery_ends_if_another_program_takes_the_session_over() -> None:
    store = MemoryStore()
    await keep(store, [prompt("p1", "SLOW")])
    with FakeCli.auto(transcripts=True) as cli:
        task = asyncio.create_task(bridle.Agent(cli_path=cli.path, store=store).recover(ID))
        await until(lambda: len(prompts_of(cli)) == 1)
        store._leases[ID] = ("another program", store._clock() + 60)
        with pytest.raises(SessionInUseError):
            await task
        assert "received" not in str(await kinds(store))


@pytest.mark.parametrize("error", [None, ConnectionError("lost")])
async def test_a_recovery_that_fails_while_it_takes_the_lease_gives_it_back(
    error: Exception | None,
) -> None:
    """The store may have granted the lease before the call was cancelled or failed."""
    granted = asyncio.Event()

    class Slow(MemoryStore):
        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            await super().acquire(session_id, owner, seconds)
            granted.set()
            if error is not None:
                raise error
            return await asyncio.Event().wait()

    store = Slow()
    await keep(store, [prompt("p1"), ended("p1")])
    task = asyncio.create_task(bridle.Agent(store=store).recover(ID))
    await granted.wait()
    if error is None:
        task.cancel()
    await asyncio.wait([task])
    assert await MemoryStore.acquire(store, ID, "another program", LEASE)


async def test_a_session_stays_locked_during_its_whole_recovery(
    replace_steps: ReplaceSteps,
) -> None:
    """Another recovery on this machine is refused between two steps too."""
    store = MemoryStore()
    refused: list[bool] = []
    load = recovering.DeadSession.load
    lend = recovering.DeadSession.lend

    def try_to_lock(dead: recovering.DeadSession) -> None:
        try:
            lock_session(config_directory(os.environ), ID).release()
        except SessionInUseError:
            refused.append(True)
        else:
            refused.append(False)

    async def load_and_try(self: recovering.DeadSession) -> recovering.History:
        try_to_lock(self)
        return await load(self)

    def lend_and_try(self: recovering.DeadSession) -> BorrowedLeases:
        leases = lend(self)
        try_to_lock(self)
        return leases

    replace_steps(load_dead_session=load_and_try)
    replace_steps(lend_leases=lend_and_try)
    await keep(store, [prompt("p1"), prompt("p2")])
    with FakeCli.auto(transcripts=True) as cli:
        outcomes = await bridle.Agent(cli_path=cli.path, store=store).recover(ID)
    assert [one.ok for one in outcomes] == [True, True]
    assert refused == [True] * 5
    lock_session(config_directory(os.environ), ID).release()


# ---------------------------------------------------------------- run(retry=...)


class WithoutJournals(MemoryStore):
    """A store for transcripts only, such as one of the official SDK."""

    has_journals = False


@pytest.mark.parametrize("kind", [None, MemoryStore, WithoutJournals])
@pytest.mark.parametrize("is_written", [False, True])
async def test_a_run_continues_in_a_new_process_after_a_crash(
    kind: type[MemoryStore] | None, is_written: bool
) -> None:
    """Without a journal in a store, the program remembers what it has done."""
    store = kind() if kind is not None else None
    crash, keys = crash_once(is_written=is_written)
    with FakeCli.auto(transcripts=True) if is_written else writes_late() as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        retry = Retry(attempts=2, max_wait=0.1)
        outcome = await agent.run(CALL, retry=retry, keep_messages=True)
        assert outcome.ok, outcome
        first, second = prompts_of(cli)
        assert (first, NAMED in second) == (CALL, True)
        if is_written:
            assert len(keys) == 1
            assert not second.endswith(CALL)
        else:
            assert second.endswith(CALL)
            assert keys[0] == keys[1]
        assert outcome.model_calls == 2 + (not is_written)
        assert outcome.tool_calls == len(keys)
        assert outcome.messages is not None
        assert sum(isinstance(one, bridle.AssistantMessage) for one in outcome.messages) >= 2
        if type(store) is MemoryStore:
            told = await kinds(store, str(outcome.session_id))
            assert (told[-2:], told.count("received #1")) == (
                ["outcome #1 completed", "received #1"],
                1,
            )
        elif store is not None:
            assert await store.subkeys(str(outcome.session_id)) == []


async def test_a_run_continues_after_a_crash_without_the_journal_for_another_location() -> None:
    """The program has the journal of the run in memory."""
    crash, _ = crash_once(is_written=True)
    other = MemoryStore()
    spool_journal(other, prompt("p9"))
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=MemoryStore(), tools=[crash])
        retry = Retry(attempts=2, max_wait=0.1)
        outcome = await agent.run(CALL, retry=retry, session_id=ID)
        assert outcome.ok, outcome


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_run_with_nothing_to_continue_keeps_its_id_after_a_crash(has_store: bool) -> None:
    store = MemoryStore() if has_store else None
    crash, keys = crash_once(is_written=False)
    with writes_late() as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, tools=[crash])
        retry = Retry(attempts=2, max_wait=0.1)
        outcome = await agent.run(CALL, retry=retry, continue_session=True)
        assert outcome.ok, outcome
        assert keys[0] == keys[1]
        if store is not None:
            assert (await kinds(store, str(outcome.session_id)))[-1] == "received #1"


async def test_a_run_whose_cli_crashes_every_time_ends() -> None:
    crash, keys = crash_once(is_written=False, times=99)
    with writes_late() as cli:
        agent = bridle.Agent(cli_path=cli.path, tools=[crash])
        outcome = await agent.run(CALL, retry=Retry(attempts=3, max_wait=0.05))
        assert (outcome.reason, len(keys), len(cli.runs)) == (OutcomeReason.CLI_EXITED, 3, 3)
        assert outcome.session_id is not None


async def test_a_run_without_attempts_left_or_with_a_used_limit_is_not_continued() -> None:
    with FakeCli.auto(transcripts=True) as cli:
        for retry, limits in (
            (Retry(attempts=1), Limits()),
            (Retry(attempts=3, max_wait=0.05), Limits(turns=1)),
        ):
            crash, keys = crash_once(is_written=False, times=99)
            agent = bridle.Agent(cli_path=cli.path, tools=[crash], limits=limits)
            outcome = await agent.run(CALL, retry=retry)
            assert (outcome.reason, len(keys)) == (OutcomeReason.CLI_EXITED, 1)


@pytest.mark.parametrize("kind", [MemoryStore, WithoutJournals])
async def test_a_turn_that_finished_before_the_crash_is_not_repeated(
    kind: type[MemoryStore], replace_steps: ReplaceSteps
) -> None:
    """The transcript has the answer, although the CLI died before its result."""
    store = kind()

    async def finished(_: recovering.CrashedSession, journal: list[Any]) -> recovering.History:
        (entry,) = [one for one in journal if isinstance(one, PromptEntry)]
        entries = [user(entry.prompt_uuid), answer("a1", entry.prompt_uuid, "was there")]
        return recovering.History(journal, recovering._transcript(ID, "-", {"": entries}))

    replace_steps(load_crashed_session=finished)
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        outcome = await agent.run("EXIT -9", retry=Retry(attempts=2, max_wait=0.05))
        assert (outcome.ok, outcome.text, len(cli.runs)) == (True, "was there", 1)
        (named,) = [one for one in cli.argv if one.startswith("--session-id=")]
        session_id = named.partition("=")[2]
        if kind is MemoryStore:
            assert (await kinds(store, session_id))[-1] == "received #1"
        else:
            assert await store.subkeys(session_id) == []


def test_the_blocking_run_gives_tools_a_blocking_session_after_a_crash() -> None:
    kinds: list[bool] = []

    @tool
    def crash(context: ToolContext) -> str:
        """Kill the CLI, the first time."""
        kinds.append(isinstance(context.session, bridle.sync.Session))
        if len(kinds) == 1:
            os.kill(context.session.pid, 9)
            time.sleep(1)
        return "fine"

    with FakeCli.auto() as cli:
        agent = bridle.Agent(cli_path=cli.path, tools=[crash])
        retry = Retry(attempts=2, max_wait=0.05)
        outcome = agent.sync.run("CALL mcp__tools__crash {}", retry=retry)
    assert (outcome.text, kinds) == ("fine", [True, True])


@pytest.mark.parametrize(
    ("entry", "is_used"),
    [
        ({"type": "custom-title", "uuid": "1"}, False),
        ({"type": "user", "uuid": "1"}, True),
        ({"type": "progress", "uuid": "1"}, True),
        ({"type": "of a newer CLI", "uuid": "2", "parentUuid": "1"}, True),
    ],
)
def test_a_file_is_removed_only_if_it_has_no_conversation(
    home: Path, entry: dict[str, str], *, is_used: bool
) -> None:
    directory = home / "config" / "projects" / "-p"
    directory.mkdir(parents=True)
    file = directory / f"{ID}.jsonl"
    file.write_text(json.dumps(entry) + "\n")
    files = CliFiles(plan(env={"CLAUDE_CONFIG_DIR": str(home / "config")}))
    files.remove_unused(ID)
    assert file.exists() is is_used


async def test_a_run_that_crashed_keeps_a_call_that_waits_for_approval(
    replace_steps: ReplaceSteps,
) -> None:
    """A prompt would drop the call. Another call of the turn has no result."""
    store = MemoryStore()
    load = recovering.CrashedSession.load

    async def deferred(self: recovering.CrashedSession, journal: Any) -> recovering.History:
        history = await load(self, journal)
        (entry,) = [one for one in journal if isinstance(one, PromptEntry)]
        prompt = entry.prompt_uuid
        is_open = ToolCallEntry(
            uuid=str(uuid4()),
            at=time.time(),
            prompt_uuid=prompt,
            tool_use_id="open",
            tool_name="Bash",
            tool_input={},
            idempotency_key="k",
        )
        shown = [user(prompt), *deferral("waits", prompt)]
        transcript = recovering._transcript(ID, "-", {"": shown})
        return recovering.History([*history.journal, is_open], transcript)

    replace_steps(load_crashed_session=deferred)
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        outcome = await agent.run("EXIT -9", retry=Retry(attempts=2, max_wait=0.05))
        assert (outcome.reason, len(cli.runs)) == (OutcomeReason.TOOL_DEFERRED, 1)
        assert outcome.pending is not None
        assert outcome.pending.tool_use_id == "waits"
        (named,) = [one for one in cli.argv if one.startswith("--session-id=")]
        assert (await kinds(store, named.partition("=")[2]))[-1] == "received #1"


@pytest.mark.parametrize("error", [RuntimeError("no route"), asyncio.CancelledError()])
async def test_a_lease_that_cannot_be_renewed_while_the_store_is_completed_is_an_error(
    error: BaseException, home: Path
) -> None:
    """The lease lapses after the recovery has taken it. The store takes no other call then."""

    class Lapsing(MemoryStore):
        has_lapsed = False

        async def append_leased(
            self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
        ) -> bool:
            self.has_lapsed = True
            return False

        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            if self.has_lapsed:
                raise error
            return await super().acquire(session_id, owner, seconds)

    store = Lapsing()
    told = [user("p1"), answer("a1", "p1")]
    write_transcript(home, home / "home" / ".claude", *told)
    await keep(store, [prompt("p1", cwd=str(home / "work"))], told[:1])
    with pytest.raises(SessionLoadError) as raised:
        await bridle.Agent(store=store).recover(ID)
    assert raised.value.session_id == ID
