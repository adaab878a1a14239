"""What goes wrong on the real CLI, or around it, gets its name; and the session its due."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import LIMIT, is_alive, until
from tests.support.scenes import play

import bridle
from bridle import (
    Allow,
    ApiRetry,
    BidirOptions,
    CliOptions,
    InitializationTimeout,
    Outcome,
    OutcomeError,
    OutcomeReason,
    RateLimited,
    SdkOptions,
    Session,
    SessionFailed,
    SessionNotFoundError,
    SessionStopped,
    UnsupportedCliVersionError,
    start_session,
)
from bridle.errors import (
    ApiError,
    AuthFailedError,
    MaxBudgetError,
    MaxTurnsError,
    RateLimitedError,
    RefusedError,
)
from bridle.testing import (
    Block,
    ModelRequest,
    Reply,
    ScriptedModel,
    disconnect,
    error,
    rate_limit_headers,
    refusal,
    repeat,
    text,
    tool_use,
)

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

    from bridle.testing.script import Script

Json = dict[str, Any]

EXPENSIVE = {"input_tokens": 100_000, "output_tokens": 10_000}


# ---------------------------------------------------------------- sessions that do not start


DOORS: dict[str, Callable[[CliOptions, SdkOptions], Coroutine[Any, Any, object]]] = {
    "session": lambda cli, sdk: started(cli, sdk),
    "run": lambda cli, sdk: bridle.run("go", cli=cli, sdk=sdk),
    "query": lambda cli, sdk: read_all(bridle.query("go", cli, sdk)),
}


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("missing", ["5a6f0c1e-0000-4000-8000-000000000001", "no such title"])
@pytest.mark.parametrize("door", DOORS)
async def test_a_session_that_does_not_exist_cannot_be_resumed(
    lab: Lab, door: str, missing: str
) -> None:
    async with ScriptedModel([]) as model:
        options = lab.cli(model, resume_session_id=missing)
        with pytest.raises(SessionNotFoundError) as caught:
            await DOORS[door](options, lab.sdk)
        assert (caught.value.session_id, caught.value.exit_code) == (missing, 1)
        assert "CliOptions.cwd" in str(caught.value)
        assert "login" not in str(caught.value)


async def started(cli: CliOptions, sdk: SdkOptions) -> Session:
    """Start a session."""
    return await start_session(cli, sdk)


async def read_all(stream: bridle.QueryStream) -> None:
    """Read a query to its end."""
    async for _ in stream:
        pass


async def test_an_option_the_cli_does_not_know_is_named_as_such(lab: Lab) -> None:
    """R130, C23: it is passed on whatever the version, and the refusal is told as one."""
    async with ScriptedModel([]) as model:
        with pytest.raises(UnsupportedCliVersionError) as caught:
            await start_session(lab.cli(model, extra_args=["--no-such-flag"]), lab.sdk)
        assert "unknown option '--no-such-flag'" in caught.value.stderr_tail
        assert "unknown option '--no-such-flag'" in str(caught.value)
        assert caught.value.exit_code == 1


SLOW_START = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "sleep 2"}]}]}}


async def test_a_slow_command_hook_delays_the_start_and_does_not_fail_it(lab: Lab) -> None:
    async with ScriptedModel([[text("hello")]]) as model:
        began = time.monotonic()
        async with start_session(lab.cli(model, settings=SLOW_START), lab.sdk) as session:
            assert time.monotonic() - began > 2
            assert (await (await session.send_user_message("hi"))).text == "hello"


async def test_a_start_that_takes_longer_than_allowed_is_given_up_and_cleaned_up(lab: Lab) -> None:
    async with ScriptedModel([]) as model:
        sdk = lab.sdk.replace(init_timeout=1.5)
        session = Session(lab.cli(model, settings=SLOW_START), sdk)
        with pytest.raises(InitializationTimeout, match="SessionStart"):
            await session.connect()
        assert session.lifecycle == "failed"
        assert session.pid is not None
        assert not is_alive(session.pid)


async def test_a_start_that_is_cancelled_leaves_nothing_behind(lab: Lab) -> None:
    async with ScriptedModel([]) as model:
        session = Session(lab.cli(model, settings=SLOW_START), lab.sdk)
        connecting = asyncio.create_task(session.connect())
        await until(lambda: session.lifecycle == "init_sent")
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert session.lifecycle == "stopped"
        assert session.pid is not None
        assert not is_alive(session.pid)


# ---------------------------------------------------------------- turns that fail


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, OutcomeReason.AUTH_FAILED, AuthFailedError),
        (429, OutcomeReason.RATE_LIMITED, RateLimitedError),
        (500, OutcomeReason.API_ERROR, ApiError),
        (529, OutcomeReason.API_ERROR, ApiError),
    ],
)
@pytest.mark.requirement("S095")
def test_a_failure_of_the_api_is_reported_by_its_kind_and_the_session_lives_on(
    lab: Lab, status: int, reason: OutcomeReason, kind: type[OutcomeError]
) -> None:
    script: Script = [error(status, message="a scripted mishap"), [text("better")]]
    failed, again = play(lab, script, prompts=["go", "again"]).outcomes
    assert failed.reason is reason
    assert not failed.ok
    assert "a scripted mishap" in failed.detail or reason is OutcomeReason.RATE_LIMITED
    assert failed.text == ""
    with pytest.raises(kind):
        failed.raise_for_reason()
    assert (again.reason, again.text) == (OutcomeReason.COMPLETED, "better")


def call(lab: Lab) -> Block:
    """The model makes a harmless call."""
    return tool_use("Glob", pattern="*", path=str(lab.work))


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(
    ("options", "reason", "kind"),
    [
        ({"max_turns": 1}, OutcomeReason.MAX_TURNS, MaxTurnsError),
        ({"max_budget_usd": 0.01}, OutcomeReason.MAX_BUDGET, MaxBudgetError),
    ],
    ids=["turns", "dollars"],
)
@pytest.mark.requirement("S091")
def test_the_limits_of_the_cli_end_a_turn(
    lab: Lab, options: Json, reason: OutcomeReason, kind: type[OutcomeError]
) -> None:
    reply = Reply(blocks=(call(lab),), usage=EXPENSIVE)
    outcome = play(lab, [reply], **options).outcome
    assert outcome.reason is reason
    with pytest.raises(kind):
        outcome.raise_for_reason()
    assert (outcome.cost_usd or 0) > 0.01


def test_a_model_that_declines_is_a_failure(lab: Lab) -> None:
    outcome = play(lab, [repeat(refusal("I would rather not."))]).outcome
    assert outcome.reason is OutcomeReason.REFUSED
    with pytest.raises(RefusedError):
        outcome.raise_for_reason()


async def streamed(lab: Lab, script: Script, *, partial: bool) -> tuple[str, Outcome[Any]]:
    """Return the text stream of one prompt, joined, and its outcome."""
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model, include_partial_messages=partial), lab.sdk) as session,
    ):
        turn = await session.send_user_message("go")
        pieces = [piece async for piece in turn.text_stream()]
        return "".join(pieces), await turn


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("status", [401, 429, 529])
async def test_the_error_text_of_the_cli_is_not_text_of_the_model(
    lab: Lab, status: int, partial: bool
) -> None:
    script: Script = [[text("First."), call(lab)], error(status, message="a scripted mishap")]
    said, outcome = await streamed(lab, script, partial=partial)
    assert (said, outcome.text) == ("First.", "First.")
    assert not outcome.ok
    assert outcome.detail


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
async def test_text_that_the_model_is_made_to_discard_is_streamed_at_most_once(
    lab: Lab, partial: bool
) -> None:
    said, outcome = await streamed(lab, [repeat(refusal("I cannot"))], partial=partial)
    assert (said, outcome.text) == ("I cannot", "")
    assert outcome.reason is OutcomeReason.REFUSED
    assert "API Error" in outcome.detail


@pytest.mark.both_clis
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
async def test_the_answer_after_a_refusal_is_streamed(lab: Lab, partial: bool) -> None:
    script: Script = [refusal("I cannot"), [text("All right.")]]
    said, outcome = await streamed(lab, script, partial=partial)
    if lab.is_newest:  # it asks the model again
        assert (said, outcome.text) == ("I cannot\n\nAll right.", "All right.")
    else:
        assert (said, outcome.text) == ("I cannot", "")


@pytest.mark.longer
def test_a_missing_structured_output_is_a_failure(lab: Lab) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    outcome = play(lab, [repeat([text("just words")])], json_schema=schema).outcome
    assert outcome.reason is OutcomeReason.OUTPUT_MISSING


@pytest.mark.requirement("S088")
async def test_a_missing_login_is_an_outcome_that_says_so(lab: Lab) -> None:
    async with ScriptedModel([]) as model:
        nobody = {**model.env, "ANTHROPIC_API_KEY": ""}
        async with start_session(lab.cli(model, env=nobody), lab.sdk) as session:
            outcome = await (await session.send_user_message("hi"))
            assert outcome.reason is OutcomeReason.AUTH_FAILED
            assert "login" in outcome.detail
            assert session.alive


CUT = Reply(blocks=(text("only a part of"),), cut_after=4)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(
    "script",
    [[CUT, repeat(disconnect())], [repeat(disconnect())]],
    ids=["in the middle of the answer", "before the answer"],
)
def test_a_connection_that_is_lost_is_a_failure_of_the_api(lab: Lab, script: Script) -> None:
    assert play(lab, script).outcome.reason is OutcomeReason.API_ERROR


async def test_retries_of_the_cli_and_limits_of_the_account_are_reported(lab: Lab) -> None:
    near = rate_limit_headers("allowed_warning", utilization=0.9, threshold=0.75)
    script = [error(529), Reply(blocks=(text("at last"),), headers=near)]
    async with ScriptedModel(script, retries=2, login="oauth") as model:
        async with start_session(lab.cli(model), lab.sdk) as session:
            outcome = await (await session.send_user_message("go"))
            assert (outcome.reason, outcome.text) == (OutcomeReason.COMPLETED, "at last")
            assert outcome.api_retries == 1
            assert outcome.last_retry is not None
            assert outcome.last_retry.error_status == 529
        events = [event async for event in session.events()]
        (retry,) = [event for event in events if isinstance(event, ApiRetry)]
        assert retry.attempt == 1
        limits = [event for event in events if isinstance(event, RateLimited)]
        assert [limit.status for limit in limits] == ["allowed_warning"]


@pytest.mark.longer
async def test_retries_that_take_long_are_warnings_of_the_log(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Without them a turn is silent for minutes: the CLI tries ten times."""
    script = [repeat(error(529, headers={"retry-after": "6"}))]
    async with (
        ScriptedModel(script, retries=10) as model,
        start_session(lab.cli(model), lab.sdk) as session,
    ):
        turn = await session.send_user_message("go")
        await until(lambda: "an API request failed" in caplog.text)
        await session.stop()
        outcome = await turn
    (record,) = [one for one in caplog.records if "API request" in one.getMessage()]
    assert record.levelname == "WARNING"
    assert "status 529" in record.getMessage()
    assert outcome.api_retries == 1


# ---------------------------------------------------------------- a CLI that dies


@pytest.mark.longer
@pytest.mark.requirement("S097")
async def test_a_cli_that_is_killed_in_a_turn_is_noticed_at_once(lab: Lab) -> None:
    slow = Reply(blocks=(text("one two"),), hold=True, hold_after=4)
    async with ScriptedModel([slow]) as model:
        session = await start_session(lab.cli(model), lab.sdk)
        turn = await session.send_user_message("go")
        await model.wait_for_hold()
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)
        async with asyncio.timeout(LIMIT):
            outcome = await turn
        assert outcome.reason is OutcomeReason.CLI_EXITED
        assert outcome.exit_code == -signal.SIGKILL
        assert outcome.process is not None
        assert outcome.process.signal == "SIGKILL"
        assert "SIGKILL" in outcome.detail

        assert not session.alive
        assert session.lifecycle == "stopped"
        for operation in (session.ping, session.interrupt):
            with pytest.raises(SessionStopped):
                await operation()
        with pytest.raises(SessionStopped):
            _ = await session.send_user_message("hello?")
        await session.aclose()
        assert not is_alive(session.pid)
        last = [event async for event in session.events()][-1]
        assert isinstance(last, SessionFailed)
        assert last.exit_code == -signal.SIGKILL


# ---------------------------------------------------------------- many at once

CROWD = 8


@pytest.mark.longer
async def test_many_sessions_share_an_mcp_handler_without_mixing_them_up(lab: Lab) -> None:
    together = asyncio.Barrier(CROWD)

    async def handle(message: Json) -> Json:
        result: Json = {}
        if message["method"] == "initialize":
            info = {"name": "echo", "version": "1"}
            version = message["params"]["protocolVersion"]
            capabilities: Json = {"tools": {}}
            result = {
                "protocolVersion": version,
                "capabilities": capabilities,
                "serverInfo": info,
            }
        elif message["method"] == "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        elif message["method"] == "tools/call":
            await together.wait()
            words = f"echo of {message['params']['arguments']['word']}"
            result = {"content": [{"type": "text", "text": words}]}
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}

    def model_says(request: ModelRequest) -> list[Block]:
        if request.last_tool_result is None:
            return [tool_use("mcp__echo__echo", word=request.last_user_text)]
        return [text(request.last_tool_result)]

    bidir = BidirOptions(mcp_servers={"echo": handle}, on_can_use_tool=lambda _: Allow())

    async def one(model: ScriptedModel, word: str) -> str:
        async with start_session(lab.cli(model), lab.sdk, bidir) as session:
            return (await (await session.send_user_message(word))).text

    words = [f"word {number}" for number in range(CROWD)]
    async with ScriptedModel(model_says) as model:
        answers = await asyncio.gather(*(one(model, word) for word in words))
        assert answers == [f"echo of {word}" for word in words]


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("retries", [0, 1])
async def test_a_lost_connection_is_retryable_whether_or_not_the_cli_repeats_the_request(
    lab: Lab, retries: int
) -> None:
    async with ScriptedModel([repeat(disconnect())], retries=retries) as model:
        outcome = await bridle.run("go", cli=lab.cli(model), sdk=lab.sdk)
        assert (outcome.reason, outcome.api_status) == (OutcomeReason.API_ERROR, None)
        assert (outcome.retryable, outcome.api_error) == (True, "server_error")
        assert outcome.api_retries == retries


async def test_an_answer_that_is_too_long_is_not_retryable(lab: Lab) -> None:
    cut_off = Reply(blocks=(text("x"),), stop_reason="max_tokens")
    async with ScriptedModel([repeat(cut_off)]) as model:
        outcome = await bridle.run("go", cli=lab.cli(model), sdk=lab.sdk)
        assert (outcome.reason, outcome.api_status) == (OutcomeReason.API_ERROR, None)
        assert (outcome.retryable, outcome.api_error) == (False, "max_output_tokens")
