"""The journal of a session: what it waits for, and which outcomes count as received."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from tests.support.cli import echo, line, result, system
from tests.support.journals import brief, journal_of
from tests.support.limits import SetLimits
from tests.support.processes import until

import bridle
from bridle import Block, Defer, OutcomeReason, Retry, ToolContext, sync, tool
from bridle._records.session_store import Entry, SessionKey
from bridle.errors import ControlTimeout, SessionNotInitialized, SessionStopped, StoreError
from bridle.sessions import MemoryStore
from bridle.sessions._journal import (
    OutcomeEntry,
    PromptEntry,
    ToolCallEntry,
    ToolResultEntry,
)
from bridle.sessions._journal_writer import SessionJournal
from bridle.sessions._recovery import Continue
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS
from bridle.testing.fake_transport import FakeTransport
from bridle.tools import key_of_call

OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    """A home directory and a directory for spool files of its own."""
    for name, place in {"XDG_STATE_HOME": "state", "HOME": "home"}.items():
        (tmp_path / place).mkdir()
        monkeypatch.setenv(name, str(tmp_path / place))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
    set_limits(closing_store=0.5)
    return tmp_path


class Gated(MemoryStore):
    """A store that appends to journals only while its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.waiting = 0

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        await super().append(key, entries)


class Broken(MemoryStore):
    """A store that cannot be written."""

    is_broken = True
    ends_with_program = False  # it has a spool file

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if self.is_broken:
            raise ConnectionError("down")
        await super().append(key, entries)


def open_session(
    transport: FakeTransport, store: MemoryStore | None, **options: Any
) -> bridle.SessionStart:
    return bridle.start_session(transport_factory=transport, store=store, **options)


def ask_hook(number: int = 1, **members: object) -> dict[str, object]:
    """The CLI asks for the hooks of a tool call."""
    call = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": f"toolu_{number}"}
    return {
        "type": "control_request",
        "request_id": f"hook-{number}",
        "request": {
            "subtype": "hook_callback",
            "callback_id": "hook_0",
            "input": {"hook_event_name": "PreToolUse", **call, **members},
            "tool_use_id": f"toolu_{number}",
        },
    }


def tool_result(number: int = 1, text: str = "done") -> bytes:
    block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
    return line(type="user", message={"role": "user", "content": [block]})


def answers(transport: FakeTransport) -> list[dict[str, Any]]:
    """The answers to requests of the CLI."""
    found = [line["response"] for line in transport.written if line["type"] == "control_response"]
    return [response["response"] for response in found]


def prompts(transport: FakeTransport) -> list[str]:
    """The prompts that the CLI has got."""
    lines = [line for line in transport.written if line["type"] == "user"]
    return [line["message"]["content"] for line in lines]


# ---------------------------------------------------------------- what waits


async def test_a_prompt_is_sent_when_it_is_in_the_store() -> None:
    store, transport = Gated(), FakeTransport()
    async with open_session(transport, store) as session:
        sending = asyncio.ensure_future(session.send_user_message("hello"))
        await until(lambda: store.waiting)
        assert prompts(transport) == []
        store.gate.set()
        turn = await sending
        assert prompts(transport) == ["hello"]
        (entry,) = await journal_of(store, session.id)
        assert isinstance(entry, PromptEntry)
        assert entry.prompt_uuid == turn.uuid
        await session.stop()  # faster than a gentle close


async def test_a_tool_runs_when_its_call_is_in_the_store() -> None:
    store, transport = Gated(), FakeTransport()
    store.gate.set()
    async with open_session(transport, store) as session:
        turn = await session.send_user_message("hello")
        store.gate.clear()
        transport.say(echo(turn.uuid), ask_hook(agent_id="a1"))
        await until(lambda: store.waiting)
        assert answers(transport) == []
        store.gate.set()
        await until(lambda: answers(transport))
        assert answers(transport) == [{"continue": True}]
        entries = await journal_of(store, session.id)
        assert brief(entries)[1:] == ["call Bash #1"]
        call = entries[1]
        assert isinstance(call, ToolCallEntry)
        assert (call.tool_use_id, call.agent_id) == ("toolu_1", "a1")
        await session.stop()  # faster than a gentle close


async def test_the_program_gets_an_outcome_when_it_is_in_the_store() -> None:
    store, transport = Gated(), FakeTransport()
    store.gate.set()
    async with open_session(transport, store) as session:
        turn = await session.send_user_message("hello")
        store.gate.clear()
        transport.say(echo(turn.uuid), result(turn.uuid, result="hi"))
        await until(lambda: store.waiting)
        waiting = asyncio.ensure_future(turn.outcome())
        await asyncio.sleep(0)
        assert (waiting.done(), turn.done) == (False, False)
        store.gate.set()
        outcome = await waiting
        entries = await journal_of(store, session.id)
        entry = entries[-1]
        assert isinstance(entry, OutcomeEntry)
        assert entry.outcome.restored() == outcome


async def test_tool_results_do_not_wait() -> None:
    store, transport = Gated(), FakeTransport()
    store.gate.set()
    async with open_session(transport, store) as session:
        turn = await session.send_user_message("hello")
        store.gate.clear()
        messages = session.messages()
        transport.say(echo(turn.uuid), tool_result(text="x" * 4001))
        async for message in messages:
            if isinstance(message, bridle.UserMessage) and "x" in str(message.raw):
                break
        store.gate.set()
    entries = await journal_of(store, session.id)
    assert brief(entries) == [
        "prompt #1 hello",
        "result ok",
        "outcome #1 stopped",
        "received #1",
    ]


# ---------------------------------------------------------------- hooks of the program


@pytest.mark.parametrize(
    ("decision", "is_written"),
    [
        (None, True),
        (bridle.HookOutput(permission_decision="allow"), True),
        (bridle.HookOutput(permission_decision="ask"), True),
        (Block("no"), False),
        (bridle.EndTurn("no"), False),
        (Defer(), False),
    ],
    ids=["nothing", "allow", "ask", "block", "end turn", "defer"],
)
async def test_only_calls_that_the_hooks_let_run_are_written(
    decision: Any, is_written: bool
) -> None:
    store, transport = MemoryStore(), FakeTransport()
    hooks = {"PreToolUse": [bridle.Hook(lambda _: decision)]}
    async with open_session(transport, store, hooks=hooks) as session:
        turn = await session.send_user_message("hello")
        transport.say(echo(turn.uuid), ask_hook())
        await until(lambda: answers(transport))
        written = brief(await journal_of(store, session.id))
        assert ("call Bash #1" in written) is is_written
        await session.stop()  # faster than a gentle close


async def test_a_call_is_written_with_the_input_that_the_hooks_made() -> None:
    store, transport = MemoryStore(), FakeTransport(server_info={"pid": 1})  # not an old CLI
    change = bridle.ModifyInput({"command": "pwd"})
    async with open_session(transport, store, on_pre_tool_use=lambda _: change) as session:
        turn = await session.send_user_message("hello")
        transport.say(echo(turn.uuid), ask_hook())
        await until(lambda: answers(transport))
        call = (await journal_of(store, session.id))[-1]
        assert isinstance(call, ToolCallEntry)
        assert call.tool_input == {"command": "pwd"}
        (answer,) = answers(transport)
        assert answer["hookSpecificOutput"]["updatedInput"] == {"command": "pwd"}
        await session.stop()  # faster than a gentle close


# ---------------------------------------------------------------- failures


async def test_nothing_happens_that_cannot_be_written(home: Path, set_limits: SetLimits) -> None:
    """Neither the store nor a spool file can keep the entries."""
    store = Broken()
    store.is_broken = False
    transport = FakeTransport()
    async with open_session(transport, store) as session:
        turn = await session.send_user_message("hello")
        store.is_broken = True
        set_limits(journal_wait=0.1)
        # It is written in a thread, with another name at first, and is the only one there.
        await until(lambda: [*(home / "state").rglob(f"leases/{'[0-9a-f]' * 40}")])
        shutil.rmtree(home / "state")
        (home / "state").write_text("not a directory")
        transport.say(echo(turn.uuid), ask_hook())
        await until(lambda: answers(transport))
        specific = answers(transport)[0]["hookSpecificOutput"]
        assert specific["permissionDecision"] == "deny"
        assert "journal" in specific["permissionDecisionReason"]
        with pytest.raises(StoreError):
            _ = await session.send_user_message("second")
        assert prompts(transport) == ["hello"]
        # The program still gets its outcome.
        transport.say(result(turn.uuid, result="hi"))
        assert (await turn).ok


async def test_a_prompt_that_was_not_written_in_time_is_not_sent() -> None:
    store, transport = Gated(), FakeTransport()
    async with open_session(transport, store) as session:
        with pytest.raises(ControlTimeout) as late:
            _ = await session.send_user_message("hello", timeout=0.1)
        assert late.value.timeout == 0.1
        assert prompts(transport) == []
        store.gate.set()
    assert brief(await journal_of(store, session.id)) == ["prompt #1 hello", "received #1"]


async def test_a_prompt_that_the_session_refuses_is_not_written() -> None:
    store, transport = MemoryStore(), FakeTransport()
    session = await open_session(transport, store)
    with pytest.raises(bridle.OptionsError):
        _ = await session.send_user_message([])
    await session.aclose()
    with pytest.raises(SessionStopped):
        _ = await session.send_user_message("too late")
    assert await journal_of(store, session.id) == []


async def test_a_prompt_before_the_start_is_written_after_it() -> None:
    store, transport = MemoryStore(), FakeTransport()
    session = bridle.Session(transport_factory=transport, store=store)
    sending = asyncio.ensure_future(session.send_user_message("early"))
    await asyncio.sleep(0)
    assert await journal_of(store, session.id) == []
    await session.connect()
    turn = await sending
    assert brief(await journal_of(store, session.id), turn.uuid) == ["prompt #1 early"]
    await session.aclose()


async def test_a_prompt_of_a_session_that_is_never_started_fails() -> None:
    session = bridle.Session(store=MemoryStore(), control_timeout=0.1)
    with pytest.raises(SessionNotInitialized):
        _ = await session.send_user_message("early")
    session = bridle.Session(store=MemoryStore())
    sending = asyncio.ensure_future(session.send_user_message("early"))
    await asyncio.sleep(0)
    await session.stop()
    with pytest.raises(SessionStopped):
        _ = await sending


# ---------------------------------------------------------------- what counts as received


async def finish(transport: FakeTransport, turn: bridle.Turn) -> None:
    transport.say(echo(turn.uuid), result(turn.uuid, result="done"))
    assert (await turn).ok


async def test_an_outcome_is_received_with_the_next_prompt() -> None:
    """Only if the program has taken it before."""
    store, transport = MemoryStore(), FakeTransport()
    async with open_session(transport, store) as session:
        first = await session.send_user_message("one")
        await finish(transport, first)
        assert "received #1" not in brief(await journal_of(store, session.id))
        second = await session.send_user_message("two")
        transport.say(echo(second.uuid), result(second.uuid, result="done"))
        await until(lambda: second.done)
        _third = await session.send_user_message("three")
        written = brief(await journal_of(store, session.id))
        assert written == [
            "prompt #1 one",
            "outcome #1 completed",
            "received #1",
            "prompt #2 two",
            "outcome #2 completed",
            "prompt #3 three",
        ]
    written = brief(await journal_of(store, session.id))[6:]
    assert written == ["outcome #3 stopped", "received #2", "received #3"]


@pytest.mark.parametrize("how", ["aclose", "stop"])
async def test_all_outcomes_are_received_when_the_program_closes_the_session(how: str) -> None:
    """Also those of turns that the program has dropped."""
    store, transport = MemoryStore(), FakeTransport()
    session = await open_session(transport, store, prompt="dropped")
    gc.collect()
    await getattr(session, how)()
    written = brief(await journal_of(store, session.id))
    assert written[0] == "prompt #1 dropped"
    assert written[1].startswith("outcome #1 ")
    assert written[2:] == ["received #1"]


async def test_the_last_thing_that_the_store_gets_is_that_the_outcome_was_received() -> None:
    class Ordered(MemoryStore):
        keys: list[str]

        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            await asyncio.sleep(0.05 if not key.subkey else 0)
            await super().append(key, entries)
            self.keys += [f"{key.subkey or 'transcript'} {entry['type']}" for entry in entries]

    store, transport = Ordered(), FakeTransport()
    store.keys = []
    async with open_session(transport, store) as session:
        turn = await session.send_user_message("one")
        await finish(transport, turn)
        path = f"/c/projects/-w/{session.id}.jsonl"
        entries = [{"type": "user", "uuid": "1"}]
        transport.say({"type": "transcript_mirror", "filePath": path, "entries": entries})
    assert store.keys[-2:] == ["transcript user", "journal received"]


async def test_a_turn_that_the_cli_cut_off_is_not_received() -> None:
    store, transport = MemoryStore(), FakeTransport()
    async with open_session(transport, store) as session:
        turn = await session.send_user_message("one")
        transport.exit(-9)
        assert (await turn).reason is OutcomeReason.CLI_EXITED
    assert brief(await journal_of(store, session.id)) == [
        "prompt #1 one",
        "outcome #1 cli_exited",
    ]


async def test_a_session_that_is_dropped_receives_nothing() -> None:
    store, transport = MemoryStore(), FakeTransport()
    session = await open_session(transport, store)
    session_id, actor = session.id, session._actor
    _ = await session.send_user_message("one")
    del session
    gc.collect()
    await actor.wait_gone()
    assert "received #1" not in brief(await journal_of(store, session_id))


async def test_entries_go_to_the_journal_that_has_the_prompt() -> None:
    """The prompt may clear the conversation, which then has another id."""
    store, transport = MemoryStore(), FakeTransport()
    async with open_session(transport, store) as session:
        first = session.id
        turn = await session.send_user_message("/clear")
        transport.say(system("init", session_id=OTHER), result(turn.uuid, result=""))
        assert (await turn).ok
        second = await session.send_user_message("next")
        await finish(transport, second)
        assert session.id == OTHER
    assert brief(await journal_of(store, first)) == [
        "prompt #1 /clear",
        "outcome #1 completed",
        "received #1",
    ]
    assert brief(await journal_of(store, OTHER)) == [
        "prompt #1 next",
        "outcome #1 completed",
        "received #1",
    ]


# ---------------------------------------------------------------- doors


async def test_every_door_writes_the_journal() -> None:
    with FakeCli.auto() as cli:
        store = MemoryStore()
        agent = bridle.Agent(cli_path=cli.path, store=store)
        ids: list[str | None] = []
        ids.append((await agent.run("one")).session_id)
        stream = agent.query("one")
        async with stream:
            messages = [message async for message in stream]
        ids.append(next(one.session_id for one in messages if one.type == "result"))
        ids.append((await asyncio.to_thread(agent.sync.run, "one")).session_id)

        def in_thread() -> None:
            with sync.start_session(cli_path=cli.path, store=store) as session:
                session.send_user_message("one").outcome()
                ids.append(session.id)

        await asyncio.to_thread(in_thread)
        for session_id in ids:
            assert brief(await journal_of(store, session_id)) == [
                "prompt #1 one",
                "outcome #1 completed",
                "received #1",
            ]


class TranscriptsOnly(MemoryStore):
    """A store that is not for journals."""

    has_journals = False


@pytest.mark.parametrize("store", [None, TranscriptsOnly()])
async def test_a_session_without_a_store_for_journals_has_no_journal_and_no_hook(
    store: MemoryStore | None,
) -> None:
    with FakeCli.auto() as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        outcome = await agent.run("one")
        assert outcome.ok
        if store is not None:
            assert "journal" not in await store.subkeys(outcome.session_id or "")
        (greeting,) = [
            line["request"]
            for line in cli.received
            if line["type"] == "control_request" and line["request"]["subtype"] == "initialize"
        ]
        assert "hooks" not in greeting


async def test_run_with_retry_keeps_its_journal_in_memory() -> None:
    keys: list[str] = []

    @tool
    def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    from bridle._session.preflight import settle_keywords
    from bridle._session.run import Run

    with FakeCli.auto() as cli:
        options: Any = {
            "cli_path": cli.path,
            "mcp_servers": {"t": bridle.ToolServer([pay])},
            "on_can_use_tool": lambda _: bridle.Allow(),
        }
        settled = settle_keywords(None, None, None, options)
        job = Run('CALL mcp__t__pay {"amount": 1}', settled, retry=Retry())
        outcome = await job.outcome()
        assert outcome.ok
        journal = job.connection.journal
        assert isinstance(journal, SessionJournal)
        assert journal.entries is not None
        assert brief(journal.entries)[1:] == [
            "call mcp__t__pay #1",
            "result ok",
            "outcome #1 completed",
        ]
        call = journal.entries[1]
        assert isinstance(call, ToolCallEntry)
        assert keys == [call.idempotency_key]


async def test_a_continued_journal_repeats_the_keys_of_calls_that_were_cut_off() -> None:
    store, transport = MemoryStore(), FakeTransport()
    async with open_session(transport, store) as session:
        turn = await session.send_user_message("one")
        transport.say(echo(turn.uuid), ask_hook())
        await until(lambda: answers(transport))
        transport.exit(-9)
        _ = await turn
    cut_off = await journal_of(store, session.id)
    again = FakeTransport()
    async with open_session(again, store) as other:
        connection = other._connection
        assert connection.journal is not None
        connection.journal.continue_from(cut_off, Continue((turn.uuid,), "go on"))
        more = await connection.send("c", "go on", None, None, continues=turn.uuid)
        again.say(echo(more.uuid), ask_hook(2), ask_hook(3))
        await until(lambda: len(answers(again)) == 2)
        await finish(again, more)
        entries = await journal_of(store, other.id)
    calls = [entry for entry in entries if isinstance(entry, ToolCallEntry)]
    (before,) = [entry for entry in cut_off if isinstance(entry, ToolCallEntry)]
    assert calls[0].idempotency_key == before.idempotency_key != calls[1].idempotency_key
    # What continues a prompt belongs to it.
    assert brief(entries, turn.uuid, "c") == [
        "prompt #2 continues #1",
        "call Bash #2",
        "call Bash #2",
        "outcome #1 completed",
    ]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("how", ["interrupt", "aclose"])
async def test_the_result_of_a_call_that_is_stopped_is_not_that_of_the_tool(
    flavour: str, how: str
) -> None:
    """The tool may have run. Older CLIs do not say that it was stopped."""
    store = MemoryStore()
    started = asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        started.set()
        await asyncio.sleep(60)
        return "paid"

    with FakeCli.auto(flavour=flavour) as cli:
        session = await bridle.start_session(cli_path=cli.path, store=store, tools=[pay])
        turn = await session.send_user_message("CALL mcp__tools__pay")
        await started.wait()
        await getattr(session, how)()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        await session.aclose()
        entries = await journal_of(store, session.id)
    (entry,) = [one for one in entries if isinstance(one, ToolResultEntry)]
    assert (entry.is_error, entry.is_interrupted) == (True, True)


async def test_a_tool_without_a_journal_has_a_key_too() -> None:
    keys: list[tuple[str, str | None, str]] = []

    @tool
    def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        keys.append((context.session.id, context.tool_use_id, context.idempotency_key))
        return "paid"

    with FakeCli.auto() as cli:
        allow: Any = {"on_can_use_tool": lambda _: bridle.Allow()}
        agent = bridle.Agent(cli_path=cli.path, tools=[pay], **allow)
        async with agent.session() as session:
            for _ in range(2):
                turn = await session.send_user_message('CALL mcp__tools__pay {"amount": 1}')
                assert (await turn).ok
    assert len({key for _, _, key in keys}) == 2
    assert all(key == key_of_call(session, call) for session, call, key in keys)


async def test_a_journal_whose_end_is_cancelled_writes_nothing_later() -> None:
    """Its writers are closed by then, and an entry would start them again."""

    class Lane:
        entries: ClassVar[list[Entry]] = []

        async def write(self, entry: Entry) -> None:
            self.entries.append(entry)

        def put(self, entry: Entry) -> None:
            self.entries.append(entry)

        def hurry(self) -> None:
            raise NotImplementedError

    journal = SessionJournal(1.0)
    journal.connect(cast(Any, None), Lane)
    answer = asyncio.create_task(asyncio.Event().wait())
    journal.track(answer)
    journal.receive("a")
    finishing = asyncio.create_task(journal.finish(60.0))
    await asyncio.sleep(0)
    finishing.cancel()
    await asyncio.wait([finishing])
    journal.receive("b")
    assert [entry["prompt_uuid"] for entry in Lane.entries] == ["a"]
    answer.cancel()
