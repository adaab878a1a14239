"""What is observed of sessions and queries on the fake CLI."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.soak.sessions import options
from tests.support.processes import plan, run, until

import bridle.sync
from bridle import (
    Allow,
    BidirOptions,
    CanUseToolContext,
    CliOptions,
    ControlRejected,
    ControlTimeout,
    Hook,
    OutcomeReason,
    SdkOptions,
    SdkWarning,
    Session,
    ToolServer,
    query,
    start_session,
    tool,
)
from bridle._engine.actions import Deliver
from bridle._observe.log_records import Journal
from bridle._observe.observer import SessionObserver, Teller, traced
from bridle._session.actor import Actor
from bridle.telemetry import (
    Began,
    CallBegan,
    CallEnded,
    Ended,
    Happened,
    Observation,
    OperationBegan,
    OperationEnded,
    QueryBegan,
    QueryEnded,
    ToolUseBegan,
    TurnBegan,
    TurnEnded,
)
from bridle.testing import FakeCli, tool_use

place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")

in_turn = FakeCli().expect_initialize().start_turn()


class Notes:
    """Telemetry that keeps what it is told, and where."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []
        self.places: dict[str, str] = {}

    def observe(self, observation: Observation, /) -> None:
        self.seen.append(observation)
        self.places.setdefault(name_of(observation), place.get())

    @property
    def sdk(self) -> SdkOptions:
        """Options with this telemetry."""
        return SdkOptions(telemetry=self, skip_version_check=True)

    @property
    def story(self) -> list[str]:
        """What was seen, in order: ``name`` began, ``name: how`` ended, ``name!`` happened."""
        return [self._line(one) for one in self.seen]

    def parents(self) -> dict[str, str | None]:
        """What began, and in what."""
        began = {one.id: name_of(one) for one in self.seen if isinstance(one, Began)}
        parts = [one for one in self.seen if isinstance(one, Began | Happened)]
        return {name_of(one): began.get(one.parent or 0) for one in parts}

    def _line(self, one: Observation) -> str:
        if isinstance(one, Ended):
            return f"{name_of(one.began)}: {one.failure or 'ok'}"
        return f"{name_of(one)}!" if isinstance(one, Happened) else name_of(one)


def name_of(one: Observation) -> str:
    """What an observation is about."""
    match one:
        case TurnBegan():
            return "turn"
        case QueryBegan():
            return "query"
        case ToolUseBegan(tool=name):
            return f"use of {name}"
        case CallBegan(label=label):
            return label
        case OperationBegan(operation=operation):
            return operation
        case Happened(event=SdkWarning(kind=kind)):
            return kind.value
        case Happened(event=event):
            return type(event).__name__
        case Ended(began=began):
            return f"end of {name_of(began)}"
        case _:
            raise AssertionError(one)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def allow(_: CanUseToolContext) -> Allow:
    return Allow()


def broken(_: object) -> None:
    raise ValueError("boom")


async def slow(_: object) -> Any:
    await asyncio.sleep(60)


def play(
    cli: FakeCli, bidir: BidirOptions | None = None, prompt: str = "go", sdk: Any = None
) -> Notes:
    """One prompt on a fake CLI, observed from the start to the end."""
    notes = Notes()

    async def main() -> None:
        with cli:
            async with start_session(options(cli, model="opus"), sdk or notes.sdk, bidir) as talk:
                await (await talk.send_user_message(prompt))
                cli.check()

    run(main)
    return notes


STARTED = ["start", "SessionReady!", "start: ok", "send_user_message", "turn"]


# ---------------------------------------------------------------- whole stories


def test_a_turn_with_a_tool_a_hook_and_a_permission_is_reported_from_start_to_end() -> None:
    """R453: everything that takes time begins and ends once, inside what it is part of."""
    bidir = BidirOptions(
        on_pre_tool_use=lambda context: None,
        on_can_use_tool=allow,
        mcp_servers={"calc": ToolServer([add])},
    )
    prompt = 'CALL mcp__calc__add {"a": 1, "b": 2}'
    notes = play(FakeCli.auto(), bidir, prompt)
    assert notes.story == [
        *STARTED,
        "send_user_message: ok",
        "use of mcp__calc__add",
        "PreToolUse hook",
        "PreToolUse hook: ok",
        "permission for mcp__calc__add",
        "permission for mcp__calc__add: ok",
        "tool add of MCP server calc",
        "tool add of MCP server calc: ok",
        "use of mcp__calc__add: ok",
        "turn: ok",
        "SessionEnded!",
    ]
    use = "use of mcp__calc__add"
    assert notes.parents() == {
        "start": None,
        "SessionReady": None,
        "send_user_message": None,
        "turn": None,
        use: "turn",
        "PreToolUse hook": use,
        "permission for mcp__calc__add": use,
        "tool add of MCP server calc": use,
        "SessionEnded": None,
    }
    (call,) = (one for one in notes.seen if isinstance(one, CallBegan) and one.kind == "tool")
    (used,) = (one for one in notes.seen if isinstance(one, ToolUseBegan))
    assert (call.tool, call.tool_use_id) == ("add", used.tool_use_id)
    (ended,) = (one for one in notes.seen if isinstance(one, TurnEnded))
    assert (ended.outcome.reason, ended.began.model) == (OutcomeReason.COMPLETED, "opus")
    assert ended.model == "claude-opus-5-5"
    assert ended.duration > 0
    ids = [one.id for one in notes.seen if isinstance(one, Began)]
    assert len(set(ids)) == len(ids)
    assert {one.session_id for one in notes.seen} == {ended.outcome.session_id}


def test_a_hook_that_raises_and_one_that_is_late_say_so() -> None:
    script = in_turn.ask_hook("PreToolUse", tool_name="Bash").expect_continue().result()
    hooks = [Hook(broken), Hook(slow, timeout=0.05)]
    notes = play(script, BidirOptions(hooks={"PreToolUse": hooks}))
    begin = notes.story.index("PreToolUse hook")
    assert notes.story[begin:-2] == [
        "PreToolUse hook",
        "PreToolUse hook: ValueError",
        "hook_failed!",
        "PreToolUse hook",
        "PreToolUse hook: timed_out",
        "hook_timed_out!",
    ]
    assert notes.parents()["hook_failed"] == "turn"
    errors = [one.error for one in notes.seen if isinstance(one, CallEnded)]
    assert (repr(errors[0]), errors[1]) == ("ValueError('boom')", None)


def test_a_question_that_is_taken_back_is_cancelled() -> None:
    notes = play(
        in_turn.ask_permission("Bash").withdraw().result(), BidirOptions(on_can_use_tool=slow)
    )
    assert "permission for Bash: cancelled" in notes.story


async def test_control_operations_end_well_refused_overdue_or_withdrawn() -> None:
    """Each under its own name; what nobody waits for any more has not failed."""
    notes = Notes()
    script = (
        FakeCli()
        .expect_initialize()
        .expect_request("set_model")
        .reply()
        .expect_request("set_permission_mode")
        .refuse("no")
        .expect_request("interrupt")
        .ignore()
        .expect_request("mcp_status")
        .ignore()
    )
    with script as cli:
        async with start_session(options(cli), notes.sdk) as talk:
            await talk.set_model("haiku")
            with pytest.raises(ControlRejected):
                await talk.set_permission_mode("plan")
            with pytest.raises(ControlTimeout):
                await talk.interrupt(timeout=0.05)
            asking = asyncio.ensure_future(talk.ping())
            await until(lambda: notes.story[-1] == "mcp_status")
            asking.cancel()
            await asyncio.wait([asking])
    assert notes.story[3:-1] == [
        "set_model",
        "set_model: ok",
        "set_permission_mode",
        "set_permission_mode: ControlRejected",
        "interrupt",
        "interrupt: ControlTimeout",
        "mcp_status",
        "mcp_status: cancelled",
    ]
    ends = [one for one in notes.seen if isinstance(one, OperationEnded)]
    assert [type(one.error).__name__ for one in ends if one.error] == [
        "ControlRejected",
        "ControlTimeout",
    ]


RETRY = {
    "type": "system",
    "subtype": "api_retry",
    "attempt": 1,
    "max_retries": 10,
    "retry_delay_ms": 500,
    "error_status": 529,
    "error": "overloaded",
}


def test_a_retry_belongs_to_the_turn_it_holds_up() -> None:
    notes = play(in_turn.emit(RETRY).result())
    assert notes.story[6:-1] == ["ApiRetry!", "turn: ok"]
    assert notes.parents()["ApiRetry"] == "turn"


async def test_a_crash_ends_everything_that_was_under_way() -> None:
    """R453: whatever began has an end, also when nobody is left to tell of it."""
    script = in_turn.assistant(tool_use("Bash", command="ls")).ask_permission("Bash").silence(0.2)
    notes = Notes()
    with script.exit(3) as cli:
        bidir = BidirOptions(on_can_use_tool=slow)
        async with start_session(options(cli), notes.sdk, bidir) as talk:
            turn = await talk.send_user_message("go")
            await until(lambda: "permission for Bash" in notes.story)
            pinging = asyncio.ensure_future(talk.ping())
            await asyncio.wait([pinging])
            assert isinstance(pinging.exception(), bridle.SessionStopped)
            assert (await turn).reason is OutcomeReason.CLI_EXITED
    begun = sorted(one.id for one in notes.seen if isinstance(one, Began))
    ended = sorted(one.began.id for one in notes.seen if isinstance(one, Ended))
    assert begun == ended
    told = {"permission for Bash: cancelled", "use of Bash: unfinished", "turn: cli_exited"}
    assert told | {"SessionFailed!", "mcp_status: SessionStopped"} <= set(notes.story)


async def test_a_session_that_does_not_start_says_why() -> None:
    notes = Notes()
    with FakeCli().exit(9) as cli, pytest.raises(bridle.StartError):
        await Session(options(cli), notes.sdk).connect()
    assert notes.story == ["start", "SessionFailed!", "start: CliExitedDuringInit"]


def test_tools_of_a_subagent_are_part_of_its_own() -> None:
    """Those of one that works in the background are nobody's, and survive the turn."""

    def uses(name: str, number: str, parent: str | None) -> dict[str, Any]:
        block = {"type": "tool_use", "id": number, "name": name, "input": {}}
        message = {"role": "assistant", "content": [block]}
        return {"type": "assistant", "message": message, "parent_tool_use_id": parent}

    def gives(number: str, **more: object) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": number, "content": "x", **more}
        return {"type": "user", "message": {"role": "user", "content": [block]}}

    script = in_turn.emit(
        uses("Task", "t1", None),
        uses("Read", "t2", "t1"),
        uses("Read", "t2", "t1"),
        gives("t2", is_error=True),
        uses("Grep", "t3", "t1"),
        gives("t4"),
        uses("Task", "t5", None),
        gives("t5"),
        uses("Glob", "t6", "t5"),
    )
    notes = play(script.result())
    end = notes.story.index("turn: ok")
    assert notes.story[6:end] == [
        "use of Task",
        "use of Read",
        "use of Read: error",
        "use of Grep",
        "use of Task",
        "use of Task: ok",
        "use of Glob",
        "use of Grep: unfinished",
        "use of Task: unfinished",
    ]
    assert "use of Glob: unfinished" in notes.story[end:]
    parents = notes.parents()
    assert [parents[f"use of {name}"] for name in ("Read", "Grep", "Task", "Glob")] == [
        "use of Task",
        "use of Task",
        "turn",
        None,
    ]


def test_a_message_for_a_server_is_part_of_the_tool_use_it_is_sent_for() -> None:
    async def serve(message: Mapping[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}

    meta = {"_meta": {"claudecode/toolUseId": "t1"}, "name": "price", "arguments": {}}
    use = {"type": "tool_use", "id": "t1", "name": "mcp__raw__price", "input": {}}
    script = (
        in_turn.assistant(use)
        .ask_mcp("raw", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": meta})
        .expect_mcp_result()
        .ask_mcp("raw", {"jsonrpc": "2.0", "id": 2, "method": "ping"})
        .expect_mcp_result()
        .result()
    )
    parents = play(script, BidirOptions(mcp_servers={"raw": serve})).parents()
    assert parents["tools/call for MCP server raw"] == "use of mcp__raw__price"
    assert parents["ping for MCP server raw"] == "turn"


def test_what_never_began_does_not_end() -> None:
    notes = Notes()
    observer = SessionObserver(notes, clock=lambda: 0.0, session_id=lambda: "s")
    observer.call_ended(7)
    observer.call_cancelled(7, timed_out=True)
    assert notes.seen == []


# ---------------------------------------------------------------- observers


def test_the_session_continues_if_an_observer_raises_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R453."""

    class Clumsy(Notes):
        def observe(self, observation: Observation, /) -> None:
            super().observe(observation)
            raise ZeroDivisionError

        def environment(self) -> Mapping[str, str]:
            raise ZeroDivisionError

    clumsy = Clumsy()
    notes = play(FakeCli.auto(), sdk=clumsy.sdk)
    assert notes.seen == []
    assert "turn: ok" in clumsy.story
    events = [(vars(record).get("bridle_event"), record) for record in caplog.records]
    told = [record for event, record in events if event == "telemetry_failed"]
    assert [record.exc_info is not None for record in told] == [True]


@pytest.mark.parametrize("variables", [{"A": 1}, {2: "b"}, {"A=B": "c"}, {"A": "\0"}, {"": "d"}, 3])
def test_variables_no_process_can_have_are_logged_and_left_out(
    variables: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the observer raises what would cancel a task."""

    class Careless(Notes):
        def observe(self, observation: Observation, /) -> None:
            super().observe(observation)
            raise asyncio.CancelledError

        def environment(self) -> Mapping[str, str]:
            told: Mapping[str, str] = variables
            return told

    careless = Careless()
    play(FakeCli.auto(), sdk=careless.sdk)
    assert "turn: ok" in careless.story
    told = [vars(record).get("bridle_event") for record in caplog.records]
    assert told.count("telemetry_failed") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_observer_may_end_the_program(error: type[BaseException]) -> None:
    class Last(Notes):
        def observe(self, observation: Observation, /) -> None:
            raise error

        def environment(self) -> Mapping[str, str]:
            raise error

    teller = Teller(Last(), Journal("bridle.session"))
    with pytest.raises(error):
        teller.tell(QueryBegan(at=0.0, id=1))
    with pytest.raises(error):
        teller.environment()


async def test_an_observer_is_called_in_the_context_of_the_caller() -> None:
    """Also of one whose prompt has to wait until the session is ready."""
    notes = Notes()

    async def send(talk: Session, where: str) -> None:
        place.set(where)
        await (await talk.send_user_message("go"))

    with FakeCli.auto().slow_start(0.1) as cli:
        talk = Session(options(cli), notes.sdk)
        place.set("connecting")
        connecting = asyncio.ensure_future(talk.connect())
        await asyncio.sleep(0)
        place.set("elsewhere")
        sending = asyncio.ensure_future(send(talk, "sending"))
        await connecting
        await sending
        place.set("asking")
        await talk.set_model("haiku")
        await talk.stop()
    assert {name: notes.places[name] for name in ("start", "turn", "set_model")} == {
        "start": "connecting",
        "turn": "sending",
        "set_model": "asking",
    }


def test_the_blocking_door_brings_its_callers_context_along() -> None:
    notes = Notes()
    with FakeCli.auto() as cli, bridle.sync.start_session(options(cli), notes.sdk) as talk:
        token = place.set("a thread")
        assert talk.send_user_message("go").outcome().ok
        place.reset(token)
    assert (notes.places["turn"], notes.places["start"]) == ("a thread", "nowhere")


def plain(found: list[str]) -> Callable[[Any], Any]:
    return lambda _: found.append(place.get())


def asynchronous(found: list[str]) -> Callable[[Any], Any]:
    async def look(_: Any) -> None:
        found.append(place.get())

    return look


def around(found: list[str]) -> Callable[[Any], Any]:
    return lambda context: asynchronous(found)(context)


@pytest.mark.parametrize("function", [plain, asynchronous, around])
def test_what_an_observer_sets_as_a_call_begins_is_the_functions(
    function: Callable[[list[str]], Callable[[Any], Any]],
) -> None:
    class Marking(Notes):
        def observe(self, observation: Observation, /) -> None:
            super().observe(observation)
            if isinstance(observation, CallBegan):
                place.set(f"inside {observation.label}")

    found: list[str] = []
    marking = Marking()
    script = in_turn.ask_hook("Stop").expect_continue().ask_hook("Stop").expect_continue().result()
    play(script, BidirOptions(on_stop=function(found)), sdk=marking.sdk)
    assert found == ["inside Stop hook"] * 2
    # Each call had a context of its own: none saw the mark of another.
    assert marking.places["Stop hook"] == "nowhere"
    assert place.get() == "nowhere"


def test_telemetry_adds_variables_for_the_cli_unless_the_application_has_its_own() -> None:
    """R453."""

    class Tracing(Notes):
        def environment(self) -> Mapping[str, str]:
            return {"TRACEPARENT": f"from {place.get()}", "TRACESTATE": "s"}

    def found(**env: str) -> tuple[str | None, str | None]:
        cli = FakeCli.auto()

        async def main() -> None:
            place.set("here")
            async with start_session(options(cli, env=env), Tracing().sdk):
                pass

        with cli:
            run(main)
            told = cli.environ
            return told.get("TRACEPARENT"), told.get("TRACESTATE")

    assert found() == ("from here", "s")
    assert found(TRACEPARENT="mine") == ("mine", None)


async def test_no_telemetry_looks_at_no_message() -> None:
    """R453: without it, the very functions run that would run if there were no such thing."""

    with FakeCli.auto() as cli:
        async with (
            start_session(options(cli)) as blind,
            start_session(options(cli), Notes().sdk) as seen,
        ):
            plain, watched = blind._actor._perform, seen._actor._perform
            assert plain[Deliver] is Actor._PERFORM[Deliver]
            assert {
                kind
                for kind in Actor._PERFORM
                if (watched[kind] is Actor._PERFORM[kind]) != (plain[kind] is Actor._PERFORM[kind])
            } == {Deliver}


# ---------------------------------------------------------------- queries


def ask(cli: FakeCli, notes: Notes) -> None:
    """Read a query to its end."""

    async def main() -> None:
        place.set("asking")
        stream = query("go", CliOptions(cli_path=cli.path, model="opus"), notes.sdk)
        async for _ in stream:
            pass

    with cli:
        run(main)


def test_a_query_is_one_thing_with_its_tools_inside() -> None:
    """R453."""
    notes = Notes()
    script = FakeCli().expect_initialize().emit(RETRY)
    ask(script.turn("Hi.", tools=[("Bash", {"command": "ls"}, "x")]), notes)
    assert notes.story == ["query", "ApiRetry!", "use of Bash", "use of Bash: ok", "query: ok"]
    assert set(notes.parents().values()) == {None, "query"}
    assert notes.places["query"] == "asking"
    (ended,) = (one for one in notes.seen if isinstance(one, QueryEnded))
    assert [result.result for result in ended.results] == ["Hi."]
    assert (ended.began.model, ended.model) == ("opus", "claude-opus-5-5")
    assert ended.session_id == ended.results[0].session_id != ""


def test_what_a_query_warns_of_is_part_of_it() -> None:
    notes = Notes()
    ask(in_turn.garbage().result(), notes)
    assert notes.story == ["query", "malformed_line!", "query: ok"]
    assert notes.parents()["malformed_line"] == "query"


def test_a_query_that_fails_says_so() -> None:
    notes = Notes()
    with pytest.raises(bridle.TransportError):
        ask(in_turn.assistant(tool_use("Bash", command="ls")).exit(3), notes)
    assert notes.story[-2:] == ["use of Bash: unfinished", "query: TransportError"]


async def test_a_query_that_does_not_start_says_so() -> None:
    notes = Notes()
    with pytest.raises(bridle.StartError):
        await anext(query("go", CliOptions(cli_path="/nowhere/claude"), notes.sdk))
    assert notes.story == ["query", "query: CliNotFoundError"]


def test_the_cli_of_a_query_gets_what_its_telemetry_says_once_the_query_has_begun() -> None:
    class Tracing(Notes):
        def observe(self, observation: Observation, /) -> None:
            super().observe(observation)
            if isinstance(observation, QueryBegan):
                place.set("inside the query")

        def environment(self) -> Mapping[str, str]:
            return {"TRACEPARENT": place.get()}

    with FakeCli().expect_initialize().turn("Hi.") as cli:
        tracing = Tracing()

        async def main() -> None:
            async with query("go", CliOptions(cli_path=cli.path), tracing.sdk) as stream:
                _ = [message async for message in stream]
            assert place.get() == "nowhere"

        run(main)
        assert cli.environ["TRACEPARENT"] == "inside the query"


def test_a_launch_keeps_the_variables_of_the_application() -> None:
    launch = plan(env={"A": "1", "TRACEPARENT": "mine"})
    assert traced(launch, {"TRACEPARENT": "x", "TRACESTATE": "y"}) is launch
    assert traced(launch, {"TRACESTATE": "y"}).env == {**launch.env, "TRACESTATE": "y"}
