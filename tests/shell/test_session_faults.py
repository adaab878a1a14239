"""Whatever happens to a running CLI is one typed error or outcome, soon, with all that is known.

The fake CLI waits with its fault for a sign of life to be asked for (``ping``), so the test decides
when it happens, and an operation is always pending when it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.soak.sessions import Clock, long_holds, options, told_by, works
from tests.support.processes import LIMIT, is_alive, until

from bridle import (
    BidirOptions,
    BridleError,
    OutcomeReason,
    SdkWarning,
    SessionCompleted,
    SessionEnded,
    SessionFailed,
    SessionReady,
    SessionStopped,
    TransportError,
    start_session,
)
from bridle._engine.shutdown import HOLD, ShutdownStep
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

WORDS = "these are my last words"

greeted = FakeCli().stderr(WORDS).expect_initialize()
in_turn = greeted.start_turn().assistant("Half a")


class Stage(NamedTuple):
    """Where a session is when the fault happens."""

    script: FakeCli
    prompts: bool = False
    asks: bool = False


class Death(NamedTuple):
    """How the CLI ends, and how that reads."""

    fault: Callable[[FakeCli], FakeCli]
    exit_code: int | None
    signal: str | None = None
    event: type[object] = SessionFailed


STAGES = {
    "idle": Stage(greeted),
    "mid-turn": Stage(in_turn, prompts=True),
    "hook pending": Stage(
        in_turn.ask_hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}),
        prompts=True,
        asks=True,
    ),
    "permission pending": Stage(
        in_turn.ask_permission("Bash", command="ls"), prompts=True, asks=True
    ),
    "handler pending": Stage(
        in_turn.ask_mcp("raw", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        prompts=True,
        asks=True,
    ),
}
DEATHS = {
    "exit 0": Death(lambda cli: cli.exit(0), 0, event=SessionCompleted),
    "exit 1": Death(lambda cli: cli.exit(1), 1),
    "exit 143": Death(lambda cli: cli.exit(143), 143, "SIGTERM"),
    "SIGKILL": Death(lambda cli: cli.crash(), -9, "SIGKILL"),
    "SIGSEGV": Death(lambda cli: cli.crash(signal.SIGSEGV), -11, "SIGSEGV"),
    "half a line": Death(lambda cli: cli.half_line().exit(1), 1),
    "held output": Death(lambda cli: cli.fork_grandchild(setsid=True, hold_stdout=True).exit(1), 1),
    "closed output": Death(lambda cli: cli.close_stdout().silence(), None),
}
ORDER = [(stage, death) for stage in STAGES for death in DEATHS]


@pytest.mark.parametrize(("stage", "death"), ORDER, ids=[" ".join(case) for case in ORDER])
async def test_the_end_of_the_cli_settles_everything_at_once(stage: str, death: str) -> None:
    """R343, R359, R367, R370."""
    where, how = STAGES[stage], DEATHS[death]
    flavour = FLAVOURS[ORDER.index((stage, death)) % len(FLAVOURS)]
    script = how.fault(where.script.expect_request("mcp_status").ignore())._set(flavour=flavour)
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def ponder(_: object) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bidir = BidirOptions(
        on_pre_tool_use=ponder, on_can_use_tool=ponder, mcp_servers={"raw": ponder}
    )
    with script as cli:
        session = await start_session(options(cli), bidir=bidir)
        turn = await session.send_user_message("go") if where.prompts else None
        if where.asks:
            await asked.wait()
        with long_holds():
            with pytest.raises((SessionStopped, TransportError)) as caught:
                await session.ping()
            events = await told_by(session)
        check_error(caught.value, how, cli)
        if turn is not None:
            outcome = await turn
            assert outcome.reason is OutcomeReason.CLI_EXITED
            assert outcome.exit_code == how.exit_code
            assert WORDS in outcome.stderr_tail
            assert outcome.process is not None
            assert outcome.process.cli_path == cli.path
        if where.asks:
            await cancelled.wait()
        ended = [event for event in events if not isinstance(event, SessionReady | SdkWarning)]
        assert [type(event) for event in ended] == [how.event]
        assert getattr(ended[0], "exit_code", None) == how.exit_code
        assert not session.alive
        with pytest.raises((SessionStopped, TransportError)):
            await session.interrupt()
        kinds = [message.type async for message in session.messages()]
        assert ("assistant" in kinds) is where.prompts
        await session.stop()
        assert not is_alive(session.pid or 0)
        assert not any(map(is_alive, cli.grandchildren))
    await works(flavour)


def check_error(error: BridleError, how: Death, cli: FakeCli) -> None:
    """The error tells all that is known of the process."""
    assert (error.exit_code, error.signal) == (how.exit_code, how.signal)
    assert error.cli_path == cli.path
    assert WORDS in error.stderr_tail
    assert WORDS in str(error)


async def test_a_cli_that_is_killed_from_outside_ends_its_turn() -> None:
    """R241, R367."""
    with FakeCli.auto() as cli:
        session = await start_session(options(cli))
        turn = await session.send_user_message("SLOW")
        await until(lambda: "user" in [line["type"] for line in cli.sent])
        os.kill(session.pid or 0, signal.SIGKILL)
        outcome = await turn
        assert (outcome.reason, outcome.exit_code) == (OutcomeReason.CLI_EXITED, -9)
        await session.aclose()
    await works()


async def test_the_version_of_the_cli_is_attached_once_it_is_known() -> None:
    with greeted.expect_request("mcp_status").exit(1) as cli:
        warm = await start_session(options(cli))
        await until(lambda: warm._engine.process.cli_version)
        await warm.stop()
        session = await start_session(options(cli))
        with pytest.raises(SessionStopped) as caught:
            await session.ping()
        assert caught.value.cli_version == FLAVOURS[0]
        assert FLAVOURS[0] in str(caught.value)
        await session.stop()


async def test_an_input_that_the_cli_closed_is_reported_to_writers() -> None:
    """R168, R346: and a CLI that then stays is not waited for."""
    with greeted.start_turn().close_stdin().assistant("deaf").silence() as cli:
        session = await start_session(options(cli))
        turn = await session.send_user_message("go")
        async for message in session.messages():
            if message.type == "assistant":
                break
        with pytest.raises(TransportError) as caught:
            await session.interrupt()
        assert caught.value.operation == "interrupt"
        assert caught.value.cli_path == cli.path
        with pytest.raises(TransportError):
            _ = await session.send_user_message("hello?")
        outcome = await turn
        assert outcome.reason is OutcomeReason.CLI_EXITED
        assert not session.alive
        assert isinstance((await told_by(session))[-1], SessionFailed)
        await session.stop()
        assert not is_alive(session.pid or 0)


# ---------------------------------------------------------------- during the end


class End(NamedTuple):
    """What the CLI does while the session ends, and how the session is ended."""

    script: FakeCli
    way: str = "aclose"
    prompts: bool = True
    not_waited_for: tuple[ShutdownStep, ...] = tuple(HOLD)


AFTER_INTERRUPT = (ShutdownStep.DRAINING, ShutdownStep.TERMINATING)
interrupted = in_turn.expect_request("interrupt")
ENDS = {
    "exit 1 at the end of input": End(greeted.wait_for_eof().exit(1), prompts=False),
    "killed at the end of input": End(greeted.wait_for_eof().crash(), prompts=False),
    "exit 1 when interrupted": End(interrupted.exit(1)),
    "killed when interrupted": End(interrupted.crash()),
    "output closed when interrupted": End(interrupted.close_stdout().silence()),
    "input closed": End(in_turn.close_stdin().silence(), not_waited_for=AFTER_INTERRUPT),
    "interrupt refused": End(
        interrupted.refuse("no").wait_for_eof(), not_waited_for=AFTER_INTERRUPT
    ),
    "not reading": End(in_turn.silence(reading=False), "stop"),
    "flooding": End(in_turn.emit({"type": "assistant", "message": {}}).forever(), "stop"),
    "flooding stderr": End(in_turn.flood_stderr(1 << 20).forever(), "stop"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_a_fault_while_the_session_ends_does_not_hold_up_the_end(name: str) -> None:
    """R333, R354, R356, R366."""
    case = ENDS[name]
    with case.script as cli:
        session = await start_session(options(cli), prompt="go" if case.prompts else None)
        await until(lambda: not case.prompts or "assistant" in [line["type"] for line in cli.sent])
        ping = asyncio.ensure_future(session.ping())
        await asyncio.sleep(0)
        with long_holds(*case.not_waited_for):
            await getattr(session, case.way)()
        with pytest.raises((SessionStopped, TransportError)):
            await ping
        events = await told_by(session)
        assert isinstance(events[-1], SessionEnded)
        assert events[-1].exit_code is not None
        assert (session.alive, session.lifecycle) == (False, "stopped")
        assert not is_alive(session.pid or 0)


async def test_a_cli_that_ignores_sigterm_is_killed_after_five_seconds() -> None:
    """R354, R355, R356, C01."""
    with greeted.ignore_sigterm().ignore_eof().turn() as cli:
        session = await start_session(options(cli))
        assert (await (await session.send_user_message("go"))).ok
        clock = Clock()
        await session.stop()
        assert clock.elapsed > 4.5
        assert not is_alive(session.pid or 0)


# ---------------------------------------------------------------- the program leaves, awkwardly

IMPORTS = """
import asyncio, sys
from bridle import CliOptions, query, start_session

options = CliOptions(cli_path=sys.argv[1])
"""

LEAVING = {
    "with an operation": """
        async def main() -> None:
            session = await start_session(options)
            print(session.pid, flush=True)
            try:
                await session.set_model("opus")
            except Exception:
                sys.exit(7)
    """,
    "as a query begins": """
        async def main() -> None:
            stream = query("hi", options)
            asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            print(stream.pid, flush=True)
            sys.exit(7)
    """,
    "cancelling everything": """
        async def main() -> None:
            session = await start_session(options)
            print(session.pid, flush=True)
            for task in asyncio.all_tasks():
                task.cancel()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                sys.exit(7)
    """,
}
"""The loop ends before what releases the process has taken a step, or cancels it once more."""

STAYING = FakeCli().ignore_sigterm().expect_initialize()
SCRIPTS = {
    "with an operation": greeted.expect_request("set_model").exit(3),
    "as a query begins": FakeCli().silence(),
    "cancelling everything": STAYING.silence(),
}


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("how", LEAVING)
def test_a_program_that_leaves_at_an_awkward_moment_leaves_nothing_behind(how: str) -> None:
    source = IMPORTS + textwrap.dedent(LEAVING[how]) + "asyncio.run(main())"
    with SCRIPTS[how] as cli:
        command = [sys.executable, "-X", "dev", "-c", source, cli.path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 7
    assert not any(word in done.stderr for word in ("Traceback", "never", "destroyed", "outlived"))
    assert not is_alive(int(done.stdout))
