"""What a query hears: every way its output can go, and every way it can end."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from tests.support import cli

from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.delivery.unread import DeliveryConfig
from bridle._engine.engine import Engine
from bridle._engine.one_way import MAX_MALFORMED
from bridle._engine.shutdown import OUTPUT_GRACE
from bridle._engine.state import TERMINAL
from bridle._engine.turns.query_answers import EXIT_GRACE, UNSURE_EXIT_GRACE
from bridle.errors import (
    ApprovalPending,
    BufferOverflow,
    CliExitedDuringInit,
    IdleLimitError,
    InitializationError,
    InitializationTimeout,
    OptionsError,
    ProcessInfo,
    TotalLimitError,
    TransportError,
    UnsupportedCliVersionError,
)
from bridle.events import ApiRetry, SdkWarning, SessionEvent, WarningKind
from bridle.messages import AssistantMessage, Message, ResultMessage, UnknownMessage
from bridle.options import Limits

Told = Message | SessionEvent

_MAX_UNREAD = 100_000

GREETED = cli.success("req_0", {"commands": []})
BAD = b"this is no JSON\n"
REST = b'{"type":"assistant","mess'


class Phase(Enum):
    """How far a stream has come."""

    STREAMING = "streaming"
    RESULT_RECEIVED = "result_received"
    OVER = "over"


class Query:
    """The engine of a query, whose actions are told as messages, warnings and events."""

    def __init__(self, max_line: int, **limits: Any) -> None:
        config = EngineConfig(
            max_line=max_line,
            limits=Limits(**limits),
            init_timeout=60.0,
            delivery=DeliveryConfig(max_unread=_MAX_UNREAD, pauses_reading=True),
            is_one_way=True,
        )
        self.engine = Engine(config)
        self._prompts = 0
        self._reader = self.engine.delivery.subscribe(messages=True).reader
        self.written: list[bytes] = []
        self.has_result = False
        self._tell(self.engine.start("start", 0.0))

    def _tell(self, actions: list[act.Action]) -> list[Told]:
        told: list[Told] = []
        for action in actions:
            if isinstance(action, act.Deliver):
                told += action.messages
                self.has_result |= any(type(one) is ResultMessage for one in action.messages)
            elif isinstance(action, act.Warn) and action.kind is not WarningKind.UNKNOWN_MESSAGE:
                told.append(SdkWarning(action.kind, action.detail))
            elif isinstance(action, act.Publish) and isinstance(action.event, ApiRetry):
                told.append(action.event)
            elif isinstance(action, act.Write):
                self.written.append(action.data)
        return told

    def prompt(self, line: bytes, now: float) -> list[Told]:
        """Send a prompt as an encoded line."""
        self._prompts += 1
        return self._tell(self.engine.send(self._prompts, str(self._prompts), line, now))

    def pause(self, now: float) -> None:
        """Write more than the reader may have unread."""
        self.receive(cli.system("status", pad="x" * _MAX_UNREAD), now)

    def resume(self, now: float) -> None:
        """Let the reader take everything."""
        while self.engine.delivery.is_paused:
            self.engine.delivery.took(self._reader, _MAX_UNREAD, 0)
            self._tell(self.engine.react(now))

    @property
    def phase(self) -> Phase:
        if self.engine.lifecycle in TERMINAL:
            return Phase.OVER
        return Phase.RESULT_RECEIVED if self.has_result else Phase.STREAMING

    @property
    def error(self) -> BaseException | None:
        return self.engine.error

    @property
    def next_deadline(self) -> float | None:
        return self.engine.next_deadline

    def __getattr__(self, name: str) -> Callable[..., list[Told]]:
        def give(*inputs: Any, **named: Any) -> list[Told]:
            return self._tell(getattr(self.engine, name)(*inputs, **named) or [])

        return give


def reader(*output: bytes, max_line: int = 1 << 20, **limits: Any) -> Query:
    """A query whose CLI was started at time 0 and wrote this much."""
    query = Query(max_line, **limits)
    for data in output:
        query.receive(data, 0.0)
    return query


def finish(query: Query, exit_code: int | None, stderr: str = "") -> list[Told]:
    """The output ends, and then the process."""
    return [*query.output_ended(1.0), *query.exited(exit_code, stderr, 1.0)]


def kinds(told: list[Told]) -> list[str]:
    """Return the types of messages, the kinds of warnings and the names of events, in order."""
    return [
        str(item.kind)
        if isinstance(item, SdkWarning)
        else item.type
        if isinstance(item, Message)
        else type(item).__name__
        for item in told
    ]


def failure(query: Query) -> Any:
    """What ended it."""
    assert query.phase is Phase.OVER
    assert query.error is not None
    return query.error


# ---------------------------------------------------------------- messages


def test_messages_come_in_order_up_to_the_end() -> None:
    """S001, S003, S018: a result is a message, whatever it says, and others may follow."""
    query = reader(GREETED)
    lines = cli.init() + cli.assistant() + cli.result(is_error=True) + cli.system("status")
    assert kinds(query.receive(lines, 0.0)) == ["system", "assistant", "result", "system"]
    assert query.phase is Phase.RESULT_RECEIVED
    assert kinds(query.receive(cli.init() + cli.follow_up(), 0.0)) == ["system", "result"]
    assert (finish(query, 0), query.phase, query.error) == ([], Phase.OVER, None)


def test_a_stream_is_streaming_until_its_result() -> None:
    """S002."""
    query = Query(1024)
    phases = [query.phase]
    for line in (cli.assistant(), cli.result(), cli.assistant()):
        query.receive(line, 0.0)
        phases.append(query.phase)
    assert phases == [
        Phase.STREAMING,
        Phase.STREAMING,
        Phase.RESULT_RECEIVED,
        Phase.RESULT_RECEIVED,
    ]


def test_lines_are_cut_at_newlines_however_they_are_read() -> None:
    """S010: a CRLF, also over two reads, is one line ending; text is decoded by the line."""
    query = reader()
    data = cli.line(type="assistant", message={"content": [{"type": "text", "text": "é"}]})
    told = [
        item for byte in data.replace(b"\n", b"\r\n") for item in query.receive(bytes([byte]), 0.0)
    ]
    assert kinds(told) == ["assistant"]


def test_every_message_keeps_what_was_on_the_wire() -> None:
    """S012."""
    line = b'{"type":"assistant", "message":{"content":[]}, "new":[1, 2.50]}\n'
    (message,) = reader().receive(line, 0.0)
    assert isinstance(message, AssistantMessage)
    assert message.raw == json.loads(line)


def test_control_frames_are_not_messages() -> None:
    """Nothing is answered, so what is asked is only warned of."""
    query = reader()
    told = query.receive(
        GREETED
        + cli.can_use_tool("q1")
        + cli.request("q2", "brand_new")
        + cli.withdrawal("q1")
        + cli.success("req_7"),
        0.0,
    )
    assert told == [
        SdkWarning(WarningKind.UNANSWERED_REQUEST, "can_use_tool: a query answers nothing"),
        SdkWarning(WarningKind.UNANSWERED_REQUEST, "brand_new: a query answers nothing"),
        SdkWarning(WarningKind.ORPHAN_RESPONSE, "request id 'req_7'"),
    ]
    assert query.phase is Phase.STREAMING


# ---------------------------------------------------------------- what cannot be read


def test_the_query_continues_after_lines_that_are_not_json() -> None:
    """S009, S010: so is a line that is no text."""
    told = reader().receive(BAD + b'{"type":"assistant","message":"\xff"}\n' + cli.assistant(), 0.0)
    assert kinds(told) == ["malformed_line", "malformed_line", "assistant"]
    assert isinstance(told[0], SdkWarning)
    assert "15 bytes that look like plain text" in told[0].detail
    assert "this is no JSON" not in told[0].detail


def test_a_retry_is_a_message_and_an_event() -> None:
    retry = cli.system("api_retry", attempt=1, max_retries=10, retry_delay_ms=500)
    query = reader(GREETED)
    query.receive(retry, 1.0)
    _, event = query.receive(cli.system("api_retry", attempt=2, max_retries=10), 3.5)
    assert event == ApiRetry(attempt=2, max_retries=10, delay=0.0, waited=2.5)


def test_empty_lines_are_ignored() -> None:
    """S010."""
    query = reader(GREETED)
    assert kinds(query.receive(b"\n\r\n" * MAX_MALFORMED + cli.assistant(), 0.0)) == ["assistant"]


def test_the_fifth_in_a_row_ends_the_stream() -> None:
    """S009, S026."""
    query = reader(GREETED)
    told = query.receive(BAD * 7 + cli.assistant(), 0.0)
    assert kinds(told) == ["malformed_line"] * (MAX_MALFORMED - 1)
    assert isinstance(failure(query), TransportError)
    assert "5 lines in a row" in str(query.error)
    assert "15 bytes that look like plain text" in str(query.error)
    assert "this is no JSON" not in str(query.error)


@pytest.mark.parametrize(
    "line",
    [cli.assistant(), cli.line(type="brand_new"), GREETED, cli.request("q", "brand_new")],
    ids=["message", "unknown message", "answer", "question"],
)
def test_any_line_that_can_be_read_starts_the_count_anew(line: bytes) -> None:
    """S009."""
    query = reader(*([BAD * 4, line] * 3))
    assert query.phase is Phase.STREAMING


def test_unknown_messages_are_delivered() -> None:
    """S009."""
    (message,) = reader().receive(cli.line(type="brand_new", x=1), 0.0)
    assert isinstance(message, UnknownMessage)
    assert message.raw == {"type": "brand_new", "x": 1}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("cut", [1, 100, 1024, 1025, 4096])
def test_a_line_of_exactly_the_limit_passes(ending: bytes, cut: int) -> None:
    """The limit is an option."""
    line = cli.line(type="x", pad="").rstrip(b"\n")
    line = line.replace(b'""', b'"' + b"p" * (1024 - len(line)) + b'"')
    assert len(line) == 1024
    data = line + ending
    query = reader(max_line=1024)
    told = [
        item for at in range(0, len(data), cut) for item in query.receive(data[at : at + cut], 0.0)
    ]
    assert (kinds(told), query.phase) == (["x"], Phase.STREAMING)


def test_one_byte_more_ends_the_stream_before_the_line_does() -> None:
    """S026: what came before is delivered."""
    query = reader(max_line=1024)
    assert kinds(query.receive(cli.assistant() + b"{" * 1025, 0.0)) == ["assistant"]
    error = failure(query)
    assert isinstance(error, BufferOverflow)
    assert (error.limit, error.size) == (1024, 1025)


def test_a_stream_ignores_input_after_its_end() -> None:
    """S013."""
    query = reader(max_line=1024)
    query.receive(b"{" * 2000, 0.0)
    error = query.error
    assert query.receive(b"\n" + cli.result(), 0.0) == []
    query.write_failed("broken", 0.0)
    query.stop(0.0)
    assert (finish(query, 1), query.advance(100.0)) == ([], [])
    assert query.error is error


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("output", "exit_code", "told"),
    [
        ([cli.result()], 0, []),
        ([cli.result()], 1, ["exit_after_result"]),
        ([cli.result()], -9, ["exit_after_result"]),
        ([cli.result()], None, ["exit_after_result"]),
        ([cli.result(), REST], 0, ["incomplete_line"]),
        ([cli.result(), REST], 2, ["incomplete_line", "exit_after_result"]),
        ([], 0, ["no_result"]),
        ([GREETED, cli.assistant()], 0, ["no_result"]),
        ([GREETED, REST], 0, ["incomplete_line", "no_result"]),
    ],
)
def test_these_ends_raise_no_error(
    output: list[bytes], exit_code: int | None, told: list[str]
) -> None:
    """S004, S005, S007, S020: a warning says what was wrong."""
    query = reader(*output)
    assert kinds(finish(query, exit_code)) == told
    assert (query.phase, query.error) == (Phase.OVER, None)


def test_a_warning_says_what_was_wrong() -> None:
    """S005, S007: with the exit code, and the text."""
    cut, ended = finish(reader(cli.result(), REST), 3)
    assert isinstance(cut, SdkWarning)
    assert cut.kind is WarningKind.INCOMPLETE_LINE
    assert cut.detail.endswith("25 bytes that look like a JSON object that is cut off")
    assert ended == SdkWarning(WarningKind.EXIT_AFTER_RESULT, "it ended with exit code 3")


def test_a_last_line_without_its_newline_is_a_line() -> None:
    """S007: if it is whole."""
    query = reader(GREETED, cli.result().rstrip(b"\n"))
    (message,) = finish(query, 0)
    assert isinstance(message, ResultMessage)
    assert query.error is None


@pytest.mark.parametrize("exit_code", [1, 2, -11, None])
def test_a_failure_without_a_result_is_an_error(exit_code: int | None) -> None:
    """S004, S026, S029: it carries all that is known of the process."""
    query = reader(GREETED, cli.assistant())
    query.describe(cli_path="/bin/claude", cli_version="2.1.0", argv=("--verbose",))
    assert finish(query, exit_code, "last words") == []
    error = failure(query)
    assert isinstance(error, TransportError)
    assert error.process == ProcessInfo(
        exit_code=exit_code,
        stderr_tail="last words",
        cli_path="/bin/claude",
        cli_version="2.1.0",
        argv=("--verbose",),
    )
    assert (error.operation, "before a result" in error.reason) == ("query", True)


CUT, PLAIN = "25 bytes that look like a JSON object", "15 bytes that look like plain text"
WORDS = BAD.decode().strip()


@pytest.mark.parametrize(
    ("output", "said", "error"),
    [
        ([REST], CUT, CliExitedDuringInit),
        ([BAD], WORDS, CliExitedDuringInit),
        ([BAD, REST], CUT, CliExitedDuringInit),
        ([GREETED, REST], CUT, TransportError),
        ([GREETED, BAD], PLAIN, TransportError),
        ([cli.assistant(), BAD], PLAIN, CliExitedDuringInit),
        ([BAD * 5], WORDS, TransportError),
    ],
)
def test_the_error_describes_the_last_line_that_could_not_be_read(
    output: list[bytes], said: str, error: type[BaseException]
) -> None:
    """S007, S028: it quotes plain text in place of the handshake, and no conversation."""
    query = reader(*output)
    finish(query, 1)
    assert isinstance(failure(query), error)
    told = str(query.error)
    assert said in told
    assert (WORDS in told) is (said == WORDS)
    assert "mess" not in told


def test_an_exit_before_the_handshake_is_one_during_it() -> None:
    """S008, S027, S029: no output and exit code 1 means that nobody is logged in."""
    query = reader()
    finish(query, 1)
    error = failure(query)
    assert isinstance(error, CliExitedDuringInit)
    assert error.exit_code == 1
    assert "logged in" in str(error)


def test_an_option_the_cli_does_not_know_is_a_matter_of_its_version() -> None:
    """S027."""
    query = reader()
    finish(query, 1, "error: unknown option '--new'")
    assert isinstance(failure(query), UnsupportedCliVersionError)


@pytest.mark.parametrize("is_exit_first", [True, False])
def test_output_and_process_may_end_in_either_order(is_exit_first: bool) -> None:
    """S005."""
    query = reader(GREETED, cli.result())
    first = query.exited(1, "", 1.0) if is_exit_first else query.output_ended(1.0)
    assert (first, query.phase) == ([], Phase.RESULT_RECEIVED)
    second = query.output_ended(1.0) if is_exit_first else query.exited(1, "", 1.0)
    assert (kinds(second), query.phase) == (["exit_after_result"], Phase.OVER)


def test_output_that_another_process_holds_open_is_not_awaited() -> None:
    query = reader(GREETED, cli.assistant())
    query.exited(0, "", 5.0)
    assert query.next_deadline == 5.0 + OUTPUT_GRACE
    assert kinds(query.receive(cli.result() + REST, 0.0)) == ["result"]
    assert kinds(query.advance(5.0 + OUTPUT_GRACE)) == ["incomplete_line"]
    assert (query.phase, query.error) == (Phase.OVER, None)


def test_a_result_may_be_the_last_line_of_output_that_is_held_open() -> None:
    query = reader(GREETED)
    query.exited(0, "", 5.0)
    query.receive(cli.result().rstrip(b"\n"), 0.0)
    assert kinds(query.advance(5.0 + OUTPUT_GRACE)) == ["result"]
    assert (query.phase, query.error) == (Phase.OVER, None)


def test_a_refusal_may_be_the_last_line_too() -> None:
    query = reader()
    query.receive(cli.failure("req_0", "no").rstrip(b"\n"), 0.0)
    finish(query, 0)
    assert isinstance(failure(query), InitializationError)
    held = reader()
    held.exited(0, "", 5.0)
    held.receive(cli.failure("req_0", "no").rstrip(b"\n"), 0.0)
    held.advance(5.0 + OUTPUT_GRACE)
    assert isinstance(failure(held), InitializationError)


@pytest.mark.parametrize("lost", ["output", "input"])
@pytest.mark.parametrize(
    ("output", "error"),
    [([], CliExitedDuringInit), ([GREETED], TransportError), ([cli.result()], None)],
    ids=["no handshake", "no result", "result"],
)
def test_a_cli_that_cannot_be_reached_is_not_waited_for(
    lost: str, output: list[bytes], error: type[Exception] | None
) -> None:
    """S005: after a result that is a warning."""
    query = reader(*output)
    if lost == "output":
        query.output_ended(5.0)
    else:
        query.write_failed("Broken pipe", 5.0)
    told = query.advance(5.0 + OUTPUT_GRACE)
    assert query.phase is Phase.OVER
    assert kinds(told) == ([] if error else ["exit_after_result"])
    assert isinstance(query.error, error or type(None))


def test_a_cli_that_lost_its_input_is_judged_by_its_exit() -> None:
    query = reader(GREETED)
    query.write_failed("Broken pipe", 5.0)
    query.receive(cli.result(), 0.0)
    assert query.next_deadline == 5.0 + OUTPUT_GRACE
    query.exited(0, "", 5.5)
    assert query.advance(5.0 + OUTPUT_GRACE) == []
    assert query.phase is Phase.RESULT_RECEIVED
    assert (query.output_ended(6.2), query.error) == ([], None)


def test_repeated_ends_are_one() -> None:
    query = reader(cli.result())
    query.output_ended(1.0)
    query.output_ended(1.5)
    assert query.next_deadline == 1.0 + OUTPUT_GRACE
    other = reader(cli.result())
    other.exited(0, "", 1.0)
    other.exited(1, "", 1.5)
    assert (other.output_ended(1.6), other.error) == ([], None)


# ---------------------------------------------------------------- the handshake


def test_the_first_line_is_initialize() -> None:
    query = Query(1024)
    assert [json.loads(line) for line in query.written] == [
        {
            "type": "control_request",
            "request_id": "req_0",
            "request": {"subtype": "initialize"},
        }
    ]


def test_options_that_json_cannot_carry_are_refused() -> None:
    with pytest.raises(OptionsError):
        Engine(EngineConfig(initialize={"x": object()}, is_one_way=True))


def test_a_refused_handshake_ends_the_stream() -> None:
    query = reader()
    query.receive(cli.failure("req_0", "hooks: no") + cli.result(), 0.0)
    error = failure(query)
    assert isinstance(error, InitializationError)
    assert error.message == "hooks: no"


def test_a_cli_that_says_nothing_is_given_up() -> None:
    query = reader()
    assert query.next_deadline == 60.0
    assert (query.advance(59.9), query.phase) == ([], Phase.STREAMING)
    query.advance(60.0)
    error = failure(query)
    assert isinstance(error, InitializationTimeout)
    assert error.timeout == 60.0


@pytest.mark.parametrize("line", [GREETED, cli.system("hook_started")], ids=["answer", "message"])
def test_a_cli_that_says_anything_has_all_the_time(line: bytes) -> None:
    """What takes long is limited by the CLI's own options."""
    assert reader(line).next_deadline is None


def test_a_cli_whose_first_words_are_its_answer_has_all_the_time() -> None:
    """It may answer initialize late, or never."""
    assert reader(cli.init() + cli.result()).next_deadline is None


# ---------------------------------------------------------------- ends of ours


def test_a_reader_that_leaves_gets_no_more_messages() -> None:
    """S013."""
    query = reader(GREETED, cli.result())
    query.stop(0.0)
    assert (finish(query, -9), query.phase, query.error) == ([], Phase.OVER, None)


def test_readers_share_nothing() -> None:
    """S019."""
    first, second = reader(b'{"type":"assis'), reader()
    second.receive(cli.result(), 0.0)
    (message,) = first.receive(b'tant"}\n', 0.0)
    assert isinstance(message, Message)
    assert (first.phase, second.phase) == (Phase.STREAMING, Phase.RESULT_RECEIVED)


# ---------------------------------------------------------------- limits


def test_a_limit_ends_the_stream_with_the_error_of_its_reason() -> None:
    query = reader(GREETED, total=60.0)
    query.describe(cli_path="/bin/claude")
    query.prompt(b"{}\n", 10.0)
    assert kinds(query.receive(cli.init(session_id="s") + cli.assistant(), 20.0)) == [
        "system",
        "assistant",
    ]
    assert query.next_deadline == 70.0
    assert query.advance(70.0) == []
    error = failure(query)
    assert isinstance(error, TotalLimitError)
    assert (error.outcome.session_id, error.outcome.duration) == ("s", 60.0)
    assert error.cli_path == "/bin/claude"
    assert query.advance(1000.0) == []


def test_nothing_is_delivered_after_the_read_that_passes_a_limit() -> None:
    query = reader(GREETED, usd=0.5)
    query.prompt(b"{}\n", 1.0)
    told = query.receive(cli.init() + cli.result(total_cost_usd=0.75) + cli.init(), 2.0)
    assert kinds(told) == ["system", "result", "system"]
    assert failure(query).outcome.cost_usd == 0.75
    assert query.receive(cli.assistant(), 3.0) == []


def test_silence_is_not_counted_while_output_is_not_read() -> None:
    query = reader(GREETED, idle=5.0)
    query.prompt(b"{}\n", 1.0)
    query.receive(cli.init(), 2.0)
    query.pause(3.0)
    query.advance(99.0)
    query.resume(100.0)
    assert query.next_deadline == 105.0
    query.advance(105.0)
    assert isinstance(failure(query), IdleLimitError)


@pytest.mark.parametrize("limits", [{}, {"total": 60.0}], ids=["without limits", "after the end"])
def test_then_prompts_and_pauses_mean_nothing(limits: dict[str, Any]) -> None:
    query = reader(GREETED, **limits)
    if limits:
        query.stop(0.0)
        finish(query, 0)
    query.prompt(b"{}\n", 1.0)
    query.pause(2.0)
    query.resume(3.0)
    assert query.next_deadline is None


# ---------------------------------------------------------------- a CLI that does not exit


def answered(*more: bytes, prompts: int = 1) -> Query:
    """A query whose prompts were written at time 1, and answered at time 2."""
    query = reader(GREETED)
    for _ in range(prompts):
        query.prompt(b"{}\n", 1.0)
    query.end_input(1.0)
    query.receive(cli.init() + cli.result() + b"".join(more), 2.0)
    return query


def test_a_cli_that_has_answered_has_some_time_to_exit() -> None:
    query = answered()
    assert query.next_deadline == 2.0 + EXIT_GRACE
    assert kinds(query.advance(2.0 + EXIT_GRACE)) == ["exit_after_result"]
    assert (query.phase, query.error) == (Phase.OVER, None)


def test_its_messages_give_it_more_time() -> None:
    query = answered()
    query.receive(cli.system("status"), 20.0)
    assert query.next_deadline == 20.0 + EXIT_GRACE


def test_a_cli_that_may_have_a_prompt_left_has_more_time() -> None:
    assert answered(prompts=2).next_deadline == 2.0 + UNSURE_EXIT_GRACE


TASK = cli.system("task_started", task_id="t", tool_use_id="u")


@pytest.mark.parametrize(
    "more",
    [cli.init(), cli.system("background_tasks_changed", tasks=[{"task_id": "t"}]), TASK],
    ids=["another turn", "a background task", "a task"],
)
def test_a_cli_that_works_has_all_the_time(more: bytes) -> None:
    assert answered(more).next_deadline is None


def test_a_cli_whose_input_is_open_has_all_the_time() -> None:
    query = reader(GREETED)
    query.prompt(b"{}\n", 1.0)
    query.receive(cli.init() + cli.result(), 2.0)
    assert query.next_deadline is None
    query.end_input(9.0)
    assert query.next_deadline == 9.0 + EXIT_GRACE


def test_a_paused_reader_stops_the_time() -> None:
    query = answered()
    query.pause(3.0)
    assert query.next_deadline is None
    query.resume(50.0)
    assert query.next_deadline == 50.0 + EXIT_GRACE


# ---------------------------------------------------------------- calls that wait for approval

DEFERRED = cli.result(
    session_id="s1",
    terminal_reason="tool_deferred",
    deferred_tool_use={"id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
)


def test_a_query_whose_call_waits_takes_no_more_prompts() -> None:
    """A hook in the settings of the CLI deferred it. The prompt would discard the call."""
    query = reader(GREETED)
    query.prompt(b"one\n", 1.0)
    assert kinds(query.receive(DEFERRED, 2.0)) == ["result"]
    assert query.engine._shutdown.input_ended
    query.prompt(b"two\n", 3.0)
    error = failure(query)
    assert isinstance(error, ApprovalPending)
    assert error.pending is not None
    assert (error.pending.session_id, error.pending.tool_input) == ("s1", {"command": "ls"})
    assert query.written[1:] == [b"one\n"]


def test_a_query_ends_if_a_prompt_was_sent_before_its_call_waited() -> None:
    query = reader(GREETED)
    for line in (b"one\n", b"two\n"):
        query.prompt(line, 1.0)
    query.receive(DEFERRED, 2.0)
    assert isinstance(failure(query), ApprovalPending)


def test_a_query_ends_well_after_its_last_prompt_has_a_call_that_waits() -> None:
    query = reader(GREETED)
    query.prompt(b"one\n", 1.0)
    query.end_input(1.0)
    query.receive(DEFERRED, 2.0)
    assert finish(query, 0) == []
    assert query.error is None
