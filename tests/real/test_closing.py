"""How sessions end on the real CLI: nothing runs that was not decided, and no process is left."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.soak.sessions import long_holds
from tests.support.processes import LIMIT, is_alive, run, until, wait_until

from bridle import (
    Allow,
    BidirOptions,
    CanUseToolContext,
    OutcomeReason,
    PreToolUseContext,
    Session,
    SessionCompleted,
    SessionEnded,
    SessionReady,
    SessionStopped,
    start_session,
)
from bridle._engine.shutdown import ShutdownStep
from bridle.testing import Block, Reply, ScriptedModel, repeat, text, tool_use
from bridle.testing.script import Script

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

# A program that runs a session; the options are in its environment, the rest is filled in.
PROGRAM = """
import asyncio, json, os
from bridle import CliOptions, SdkOptions, start_session

async def main():
    options, sdk = json.loads(os.environ["OPTIONS"]), SdkOptions(inherit_env=["PATH"])
    session = await start_session(CliOptions(**options), sdk, prompt="go")
    {rest}

asyncio.run(main())
"""
NEVER_ENDS = PROGRAM.format(rest="await asyncio.Event().wait()")
# The events are over when the process is, but before everything of it is given back.
ENDS_MEANWHILE = PROGRAM.format(
    rest="closing = asyncio.create_task(session.aclose()); [_ async for _ in session.events()]"
)


def write(lab: Lab) -> Block:
    """The model writes a file."""
    return tool_use("Write", file_path=str(lab.work / "note.txt"), content="text")


def new_marker() -> str:
    """Seconds to sleep that nobody else sleeps: they tell our processes from others."""
    return f"1000.{random.SystemRandom().randrange(10**12):012d}"


def marked(marker: str) -> list[int]:
    """The processes with the marker on their command line, this one apart."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in command:
                found.append(int(entry.name))
    return found


def sleepers(marker: str) -> list[int]:
    """Those of them that sleep, without the shells that started them."""
    found: list[int] = []
    for pid in marked(marker):
        try:
            if Path(f"/proc/{pid}/comm").read_text("utf-8").strip() == "sleep":
                found.append(pid)
        except OSError:
            continue
    return found


def sleep(marker: str) -> Block:
    """The model runs a command that does not end, and one that has left its process group."""
    return tool_use("Bash", command=f"setsid sleep {marker} & sleep {marker}", timeout=600_000)


def killed(marker: str) -> Script:
    """The model runs these commands. The CLI may report that they were killed before it ends."""
    return [[sleep(marker)], repeat([text("killed")])]


# ---------------------------------------------------------------- the gentle end


async def test_a_tool_whose_hook_is_pending_at_the_close_does_not_run(lab: Lab) -> None:
    asked = asyncio.Event()

    async def think(context: PreToolUseContext) -> None:
        asked.set()
        await asyncio.Event().wait()

    options = {"permission_mode": "acceptEdits"}
    async with ScriptedModel([[write(lab)]]) as model:
        session = await start_session(
            lab.cli(model, **options), lab.sdk, BidirOptions(on_pre_tool_use=think)
        )
        turn = await session.send_user_message("go")
        await asked.wait()
        with long_holds(ShutdownStep.DRAINING, ShutdownStep.TERMINATING):
            await session.aclose()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
    assert list(lab.work.glob("*.txt")) == []


async def test_a_tool_whose_permission_is_pending_at_the_close_does_not_run(lab: Lab) -> None:
    asked = asyncio.Event()

    async def think(context: CanUseToolContext) -> Allow:
        asked.set()
        await asyncio.Event().wait()
        return Allow()

    # Now and then the older CLI asks the model once more before it takes the interrupt.
    async with ScriptedModel([[write(lab)], repeat([text("late")])]) as model:
        session = await start_session(lab.cli(model), lab.sdk, BidirOptions(on_can_use_tool=think))
        turn = await session.send_user_message("go")
        await asked.wait()
        with long_holds(ShutdownStep.DRAINING, ShutdownStep.TERMINATING):
            await session.aclose()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
    assert list(lab.work.glob("*.txt")) == []


@pytest.mark.longer
async def test_a_close_in_the_middle_of_an_answer_interrupts_it_and_is_quick(lab: Lab) -> None:
    """R425, R438."""
    slow = Reply(blocks=(text("one two"),), hold=True, hold_after=4)
    async with ScriptedModel([slow]) as model:
        session = await start_session(lab.cli(model), lab.sdk)
        turn = await session.send_user_message("go")
        await model.wait_for_hold()
        with long_holds(ShutdownStep.DRAINING, ShutdownStep.TERMINATING):
            await session.aclose()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        assert session.pid is not None
        assert not is_alive(session.pid)
        events = [event async for event in session.events()]
        assert [type(event) for event in events] == [SessionReady, SessionEnded]


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(("way", "exit_code"), [("stop", 143), ("aclose", 0)])
async def test_the_last_event_tells_how_the_process_ended(
    lab: Lab, way: str, exit_code: int
) -> None:
    async with ScriptedModel([]) as model:
        session = await start_session(lab.cli(model), lab.sdk)
        await getattr(session, way)()
        events = [event async for event in session.events()]
        assert events[-1] == SessionEnded(exit_code)


@pytest.mark.longer
async def test_an_ended_session_refuses_operations_and_ends_again_in_peace(lab: Lab) -> None:
    """R425."""
    async with ScriptedModel([]) as model:
        session = await start_session(lab.cli(model), lab.sdk)
        await session.aclose()
        await session.aclose()
        await session.stop()
        assert not session.alive
        assert session.lifecycle == "stopped"
        for operation in (session.interrupt, session.ping):
            with pytest.raises(SessionStopped):
                await operation()
        with pytest.raises(SessionStopped):
            _ = await session.send_user_message("hello?")


@pytest.mark.longer
async def test_input_that_ends_lets_the_cli_finish_and_leave_by_itself(lab: Lab) -> None:
    """R368, C57."""
    slow = Reply(blocks=(text("finished"),), hold=True)
    async with ScriptedModel([slow]) as model:
        session = await start_session(lab.cli(model), lab.sdk)
        events = session.events()
        assert isinstance(await anext(events), SessionReady)
        turn = await session.send_user_message("go")
        await model.wait_for_hold()
        await session.end_input()
        model.release()
        outcome = await turn
        assert (outcome.reason, outcome.text) == (OutcomeReason.COMPLETED, "finished")
        assert [event async for event in events] == [SessionCompleted(exit_code=0)]
        assert not session.alive
        await session.aclose()


# ---------------------------------------------------------------- nothing is left


async def asleep(session: Session, marker: str) -> None:
    """Start the commands of :func:`sleep` and wait until both run."""
    _ = await session.send_user_message("go")
    await until(lambda: len(sleepers(marker)) == 2)


@pytest.mark.longer
@pytest.mark.parametrize("way", ["stop", "aclose"])
async def test_an_end_in_the_middle_of_a_command_leaves_no_process(lab: Lab, way: str) -> None:
    marker = new_marker()
    options = {"allowed_tools": ["Bash"]}
    async with ScriptedModel(killed(marker)) as model:
        session = await start_session(lab.cli(model, **options), lab.sdk)
        turn = await session.send_user_message("go")
        await until(lambda: len(sleepers(marker)) == 2)
        await (session.stop() if way == "stop" else session.aclose())
        assert marked(marker) == []
        assert session.pid is not None
        assert not is_alive(session.pid)
        expected = OutcomeReason.STOPPED if way == "stop" else OutcomeReason.INTERRUPTED
        assert (await turn).reason is expected


@pytest.mark.longer
async def test_a_session_that_is_dropped_is_stopped(lab: Lab) -> None:
    marker = new_marker()
    options = {"allowed_tools": ["Bash"]}
    async with ScriptedModel(killed(marker)) as model:
        session = await start_session(lab.cli(model, **options), lab.sdk)
        await asleep(session, marker)
        pid = session.pid
        assert pid is not None
        del session
        gc.collect()
        await until(lambda: not marked(marker) and not Path(f"/proc/{pid}").exists())


@pytest.mark.longer
def test_a_loop_that_ends_takes_its_sessions_along(lab: Lab) -> None:
    marker = new_marker()
    sessions: list[Session] = []

    async def main(model: ScriptedModel) -> None:
        options = {"allowed_tools": ["Bash"]}
        session = await start_session(lab.cli(model, **options), lab.sdk)
        sessions.append(session)
        await asleep(session, marker)

    with ScriptedModel(killed(marker)) as model:
        run(lambda: main(model))
        assert marked(marker) == []
        assert not is_alive(sessions[0].pid or 0)


def environment(lab: Lab, model: ScriptedModel, **more: object) -> dict[str, str]:
    """The environment of a program: ours, and the options of its session."""
    place = {"cli_path": lab.cli_path, "cwd": str(lab.work), "env": model.env}
    options = {**place, "model": "claude-sonnet-4-5", **more}
    return {**os.environ, "OPTIONS": json.dumps(options)}


def test_a_loop_that_ends_while_a_session_ends_does_not_hang(lab: Lab) -> None:
    with ScriptedModel([Reply(blocks=(text("hello"),), hold=True)]) as model:
        command, env = [sys.executable, "-c", ENDS_MEANWHILE], environment(lab, model)
        assert subprocess.run(command, env=env, timeout=LIMIT, check=False).returncode == 0


@pytest.mark.longer
def test_a_program_that_is_killed_leaves_neither_process_nor_file(lab: Lab, tmp_path: Path) -> None:
    marker, session_id = new_marker(), str(uuid.uuid4())
    private = tmp_path / "private"
    private.mkdir()
    with ScriptedModel(killed(marker)) as model:
        env = environment(
            lab,
            model,
            session_id=session_id,
            allowed_tools=["Bash"],
            settings={"env": {"SECRET": "kept in a private file"}},
        )
        with subprocess.Popen(
            [sys.executable, "-c", NEVER_ENDS],
            env={**env, "TMPDIR": str(private)},
            start_new_session=True,
        ) as program:
            try:
                wait_until(lambda: len(sleepers(marker)) == 2)
                assert len(list(private.iterdir())) == 1
            finally:
                program.send_signal(signal.SIGKILL)
        wait_until(lambda: not marked(marker) and not marked(session_id))
        wait_until(lambda: not list(private.iterdir()))
