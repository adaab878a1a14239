"""What sessions on the fake CLI log, and what they never do."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator

import pytest
from tests.soak.sessions import options
from tests.support.processes import run

import bridle
from bridle import (
    Allow,
    BidirOptions,
    ControlRejected,
    Hook,
    SdkOptions,
    SdkWarning,
    Session,
    ToolServer,
    start_session,
    tool,
)
from bridle.testing import FakeCli, tool_use

SECRET = "SECRET-MARKER"
LIMIT = 8192
HUGE = 20_000

RETRY = {
    "type": "system",
    "subtype": "api_retry",
    "attempt": 1,
    "max_retries": 10,
    "retry_delay_ms": 500,
    "error_status": 529,
    "error": SECRET,
}
in_turn = FakeCli().expect_initialize().start_turn()


class Keeper(logging.Handler):
    """Keeps every record."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    """Everything that is logged during a test, from debug on."""
    logger, keeper = logging.getLogger("bridle"), Keeper()
    logger.addHandler(keeper)
    logger.setLevel(logging.DEBUG)
    yield keeper.records
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(keeper)


def event_of(record: logging.LogRecord) -> str:
    """The name of a record."""
    return str(vars(record).get("bridle_event"))


def text_of(log: list[logging.LogRecord]) -> str:
    """All that a handler could write of these records."""
    formatter = logging.Formatter("%(message)s")
    return "\n".join(f"{formatter.format(record)} {vars(record)}" for record in log)


def broken(_: object) -> None:
    raise ValueError("boom")


async def slow(_: object) -> None:
    await asyncio.sleep(60)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def play(cli: FakeCli, sdk: SdkOptions, bidir: BidirOptions | None = None) -> None:
    """One prompt on a fake CLI."""

    async def main() -> None:
        with cli:
            async with start_session(options(cli), sdk, bidir) as talk:
                await (await talk.send_user_message("go"))
                cli.check()

    run(main)


def test_hooks_are_logged_with_their_time_and_their_failures_as_warnings(
    log: list[logging.LogRecord],
) -> None:
    """R450, R451: without any telemetry."""
    hooks = [Hook(lambda _: None), Hook(broken), Hook(slow, timeout=0.05)]
    script = in_turn.ask_hook("PreToolUse", tool_name="Bash").expect_continue().result()
    play(script, SdkOptions(), BidirOptions(hooks={"PreToolUse": hooks}))
    calls = [vars(record) for record in log if event_of(record) == "call_ended"]
    assert [(call["levelname"], call["label"], call["result"]) for call in calls] == [
        ("DEBUG", "PreToolUse hook", "ok"),
        ("DEBUG", "PreToolUse hook", "ValueError"),
        ("DEBUG", "PreToolUse hook", "timed_out"),
    ]
    assert all(call["duration"] >= 0 for call in calls)
    assert calls[2]["duration"] > 0.04
    failures = [record for record in log if event_of(record).startswith("hook_")]
    assert [(record.levelname, event_of(record)) for record in failures] == [
        ("WARNING", "hook_failed"),
        ("WARNING", "hook_timed_out"),
    ]


async def test_failed_operations_are_logged_at_debug_as_the_caller_gets_the_error(
    log: list[logging.LogRecord],
) -> None:
    """The name of the operation and of the error; what the CLI said is the caller's."""
    script = FakeCli().expect_initialize().expect_request("set_model").refuse(f"no {SECRET}")
    with script as cli:
        async with start_session(options(cli)) as talk:
            with pytest.raises(ControlRejected, match=SECRET):
                await talk.set_model(SECRET)
        with pytest.raises(bridle.SessionStopped):
            _ = await talk.send_user_message("too late")
    failures = [vars(record) for record in log if event_of(record) == "operation_failed"]
    assert [(one["levelname"], one["operation"], one["result"]) for one in failures] == [
        ("DEBUG", "set_model", "ControlRejected"),
        ("DEBUG", "send_user_message", "SessionStopped"),
    ]
    assert SECRET not in text_of(log)


def test_an_exception_that_is_raised_is_not_logged_without_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:

    async def main() -> None:
        script = (
            in_turn.ask_hook("Stop")
            .expect_continue()
            .result()
            .expect_request("set_model")
            .refuse("no")
            .expect_request("mcp_status")
            .reply()
        )
        with script as cli:
            bidir = BidirOptions(on_stop=lambda _: None)
            async with start_session(options(cli), SdkOptions(), bidir) as talk:
                assert (await (await talk.send_user_message("go"))).ok
                with pytest.raises(ControlRejected):
                    await talk.set_model("haiku")
                await talk.ping()
        with FakeCli().stderr("no").exit(1) as cli, pytest.raises(bridle.StartError):
            await start_session(options(cli))

    run(main)
    assert caplog.records == []


# A script that makes something odd happen in a turn, by the name of the event.
ODDITIES: dict[str, FakeCli] = {
    "unknown_callback": in_turn.ask_hook("Stop", callback_id="hook_99").expect_continue(),
    "orphan_response": in_turn.emit(
        {"type": "control_response", "response": {"subtype": "success", "request_id": "x"}}
    ),
    "malformed_line": in_turn.garbage(b"Debugger attached. " + b"x" * 300),
    "oversized_line": in_turn.huge_line(HUGE),
    "missing_capabilities": FakeCli().expect_initialize({}).start_turn(),
}
FACTS = {
    "unknown_callback": "hook_99",
    "orphan_response": "'x'",
    "malformed_line": "bytes that look like plain text",
    "oversized_line": f"{HUGE} bytes",
    "missing_capabilities": "",
}


@pytest.mark.parametrize("name", ODDITIES)
def test_odd_things_are_logged_by_name_and_reach_the_application(
    name: str, log: list[logging.LogRecord]
) -> None:
    """R454, R455: what is more than a detail is also told to the callback, and is the same."""
    told: list[SdkWarning] = []
    sdk = SdkOptions(max_buffer_size=LIMIT, on_warning=told.append, skip_version_check=True)
    play(ODDITIES[name].result(), sdk)
    (record,) = (record for record in log if event_of(record) == name)
    assert FACTS[name] in record.getMessage()
    assert len(record.getMessage()) < 300
    is_told = record.levelno >= logging.INFO
    assert [warning.kind.value for warning in told] == ([name] if is_told else [])


async def test_late_answers_limits_and_unknown_versions_are_logged_by_name(
    log: list[logging.LogRecord],
) -> None:
    """R454, R455."""
    told: list[SdkWarning] = []
    script = (
        FakeCli()
        .version("nightly build")
        .expect_initialize(delay=0.3)
        .expect_request("mcp_status")
        .silence(0.2)
        .reply()
        .start_turn()
        .result()
    )
    with script as cli:
        talk = Session(options(cli), SdkOptions(on_warning=told.append))
        connecting = asyncio.ensure_future(talk.connect())
        await asyncio.sleep(0)
        crowd = await asyncio.gather(
            *(talk.ping(timeout=0.05) for _ in range(17)), return_exceptions=True
        )
        assert isinstance(crowd[-1], bridle.InitQueueOverflow)
        await connecting
        assert (await (await talk.send_user_message("go"))).ok
        await talk.stop()
    found = {event_of(record): record.getMessage() for record in log}
    assert "16" in found["limit_reached"]
    assert "nightly build" not in found["version_inconclusive"]  # the CLI's own words
    assert "req_1" in found["late_response"]
    assert sorted(warning.kind.value for warning in told) == [
        "limit_reached",
        "version_inconclusive",
    ]
    assert any("nightly build" in warning.detail for warning in told)


def test_nothing_that_was_said_is_logged(log: list[logging.LogRecord]) -> None:
    """Prompts, answers, what tools get and give, variables, and the CLI's own words."""
    bidir = BidirOptions(
        on_pre_tool_use=lambda _: None,
        on_can_use_tool=lambda _: Allow(),
        on_elicitation=lambda _: bridle.Accept({"name": SECRET}),
        mcp_servers={"calc": ToolServer([add])},
    )
    call = {"name": "add", "arguments": {"a": SECRET, "b": 2}}
    script = (
        in_turn.assistant(SECRET, tool_use("Bash", command=SECRET))
        .ask_hook("PreToolUse", tool_name="Bash", tool_input={"command": SECRET})
        .expect_continue()
        .ask_permission("Bash", command=SECRET)
        .expect_allow()
        .ask_mcp("calc", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        .expect_mcp_result()
        .ask_elicitation(SECRET)
        .expect_elicitation("accept")
        .tool_result(SECRET, is_error=True)
        .emit(RETRY, {"type": "novelty", "text": SECRET})
        .garbage(b'{"type":"assistant","text":"' + SECRET.encode() + b"\n")
        .huge_line(HUGE)
        .result(SECRET, is_error=True, subtype="error_during_execution", errors=[SECRET])
    )
    sdk = SdkOptions(max_buffer_size=LIMIT)
    with script as cli:

        async def main() -> None:
            chosen = options(cli, env={"TOKEN": SECRET}, system_prompt=SECRET)
            async with start_session(chosen, sdk, bidir) as talk:
                await (await talk.send_user_message(SECRET))
                cli.check()

        run(main)
    assert {"turn_ended", "call_ended", "malformed_line", "api_retry"} < set(map(event_of, log))
    assert SECRET not in text_of(log)


def test_a_log_handler_that_ends_the_program_ends_it() -> None:
    """It is not the session that holds it up."""

    class Leaving(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit(3)

    handler, logger = Leaving(), logging.getLogger("bridle")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with FakeCli.auto() as cli, pytest.raises(SystemExit):
            asyncio.run(start_session(options(cli)).__aenter__())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("raised", [OSError, KeyboardInterrupt])
def test_a_log_handler_that_raises_keeps_no_answer_from_the_cli(
    raised: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """R300, R428: the warning comes before the answer, and is only a warning."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                raise raised("the log server is down")

    async def fail(_: object) -> Allow:
        raise ValueError("no")

    async def main(cli: FakeCli) -> None:
        bidir = BidirOptions(on_can_use_tool=fail)
        async with start_session(options(cli), bidir=bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
            cli.check()

    handler = Broken()
    logging.getLogger("bridle").addHandler(handler)
    loop = asyncio.new_event_loop()
    script = FakeCli().expect_initialize().start_turn()
    try:
        with script.ask_permission("Bash").expect_deny().result() as cli:
            task = loop.create_task(main(cli))
            if raised is KeyboardInterrupt:  # this one is passed on, and the program may go on
                with pytest.raises(KeyboardInterrupt):
                    loop.run_until_complete(task)
            loop.run_until_complete(task)
    finally:
        logging.getLogger("bridle").removeHandler(handler)
        loop.close()
    assert ("the log server is down" in capsys.readouterr().err) == (raised is OSError)


def test_a_session_that_is_over_may_outlive_its_loop_without_a_word(
    log: list[logging.LogRecord],
) -> None:
    async def main() -> Session:
        with FakeCli.auto() as cli:
            async with start_session(options(cli)) as talk:
                return talk

    kept = run(main)
    assert not kept.alive
    del kept
    gc.collect()
    assert event_of(log[-1]) == "session_ended"
