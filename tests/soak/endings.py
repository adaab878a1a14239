"""Sessions ended in every way there is, and a look at what is left of them: nothing.

A program of its own, so that warnings can be errors, its temporary files be told from others, and
its exit be watched: ``python -X dev -W error -m tests.soak.endings --sessions 500 [--cli PATH]``.
It says ``ok`` and nothing else, or raises. With ``--hang`` it stays in the midst of a turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

from tests.support.processes import LIMIT, until, wait_until

from bridle import (
    Allow,
    BidirOptions,
    CliOptions,
    SdkOptions,
    Session,
    StartError,
    start_session,
)
from bridle.testing import FakeCli, Reply, ScriptedModel, text, tool_use
from bridle.testing.fake_cli import FLAVOURS

TAG = "BRIDLE_SOAK_TAG"
OURS = ("bridle-callback", "bridle-sync", "bridle-reaper")
"""Threads that stay for the next call: daemons, shared by all sessions."""


# ---------------------------------------------------------------- what is left


def tagged(tag: str) -> list[int]:
    """The processes that carry a tag in their environment, zombies apart."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{TAG}={tag}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def children() -> list[int]:
    """Return our child processes, zombies included, without the watchdog all sessions share."""
    path = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    found = [int(pid) for pid in path.read_text("utf-8").split()]
    return [pid for pid in found if b"tree.watch" not in _command(pid)]


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def descriptors() -> list[str]:
    """What our descriptors are."""
    names: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(names)


def threads() -> list[str]:
    """Our threads, but for the main one and the shared daemons that wait for work."""
    living = [one for one in threading.enumerate() if one is not threading.main_thread()]
    return [one.name for one in living if not (one.daemon and one.name.startswith(OURS))]


# ---------------------------------------------------------------- where


class Lab:
    """A CLI, fake or real, and what chooses among the possibilities."""

    def __init__(self, cli: str | None, seed: int) -> None:
        self.real = cli
        self.tag = f"{os.getpid()}-{seed}"
        self.random = random.Random(seed)
        self.work = tempfile.gettempdir()
        self.fakes = [FakeCli.auto(flavour=flavour) for flavour in FLAVOURS]

    def close(self) -> None:
        """Remove the fakes."""
        for fake in self.fakes:
            fake.close()

    def options(self, path: str, env: dict[str, str] | None = None, **more: Any) -> CliOptions:
        """Options of a CLI that carries our tag; one of three has a private file too."""
        if self.random.random() < 0.3:
            more["settings"] = {"env": {"SECRET": "kept in a private file"}}
        return CliOptions(cli_path=path, cwd=self.work, env={**(env or {}), TAG: self.tag}, **more)

    @contextlib.contextmanager
    def place(self, *, slow: bool = False, tool: bool = False) -> Generator[CliOptions]:
        """Options of a session whose model answers, or never ends, or wants to run a tool.

        The model runs in a thread of its own: it may have to outlive the session's event loop.
        """
        if self.real is None:
            yield self.options(self.random.choice(self.fakes).path)
            return
        replies: list[Any] = [[text("hi")], [text("hi")]]
        if slow:
            replies = [Reply(blocks=(text("one two"),), hold=True, hold_after=4)]
        elif tool:
            replies = [[tool_use("Bash", command="touch x")], [text("hi")]]
        with ScriptedModel(replies) as model:
            yield self.options(self.real, dict(model.env), model="claude-sonnet-4-5")

    def prompt(self, *, slow: bool = False, tool: bool = False) -> str:
        """What makes the fake one do so."""
        return "SLOW" if slow else "BASH ls" if tool else "SAY hi"


SDK = SdkOptions(inherit_env=["PATH", "TMPDIR"])


# ---------------------------------------------------------------- the ways


async def talk(session: Session, lab: Lab, *, slow: bool = False) -> None:
    """Send a prompt and read until its answer is there, or has begun."""
    messages = session.messages()
    turn = await session.send_user_message(lab.prompt(slow=slow))
    if not slow:
        assert (await turn).ok
        return
    async for message in messages:
        if message.type in ("system", "user"):
            return


async def stopped(lab: Lab) -> None:
    """By stop(), after a turn."""
    with lab.place() as cli:
        session = await start_session(cli, SDK)
        await talk(session, lab)
        await session.stop()


async def stopped_in_turn(lab: Lab) -> None:
    """By stop(), in the midst of one."""
    with lab.place(slow=True) as cli:
        session = await start_session(cli, SDK)
        await talk(session, lab, slow=True)
        await session.stop()


async def closed(lab: Lab) -> None:
    """By leaving the block."""
    with lab.place() as cli:
        async with start_session(cli, SDK) as session:
            await talk(session, lab)


async def closed_in_turn(lab: Lab) -> None:
    """By leaving the block in the midst of a turn."""
    with lab.place(slow=True) as cli:
        async with start_session(cli, SDK) as session:
            await talk(session, lab, slow=True)


async def closed_when_asked(lab: Lab) -> None:
    """While a permission is being thought about."""
    asked = asyncio.Event()

    async def think(_: object) -> Allow:
        asked.set()
        await asyncio.Event().wait()
        return Allow()

    bidir = BidirOptions(on_can_use_tool=think)
    with lab.place(tool=True) as cli:
        async with start_session(cli, SDK, bidir) as session:
            _ = await session.send_user_message(lab.prompt(tool=True))
            await asyncio.wait_for(asked.wait(), LIMIT)


async def left_iteration(lab: Lab) -> None:
    """By a break."""
    with lab.place() as cli:
        async with start_session(cli, SDK, prompt=lab.prompt()) as session:
            async for _ in session.messages():
                break


async def raised(lab: Lab) -> None:
    """By an exception."""
    with contextlib.suppress(ZeroDivisionError), lab.place(slow=True) as cli:
        async with start_session(cli, SDK) as session:
            await talk(session, lab, slow=True)
            raise ZeroDivisionError


async def cancelled(lab: Lab) -> None:
    """By cancellation, anywhere."""
    conversation = asyncio.ensure_future(closed(lab))
    await asyncio.wait([conversation], timeout=lab.random.uniform(0, 2.0 if lab.real else 0.08))
    conversation.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await conversation


async def dropped(lab: Lab) -> None:
    """By forgetting it."""
    with lab.place(slow=True) as cli:
        session = await start_session(cli, SDK)
        await talk(session, lab, slow=True)
        pid = session.pid
        del session
        gc.collect()
        await until(lambda: not Path(f"/proc/{pid}").exists(), LIMIT)


async def crashed(lab: Lab) -> None:
    """By the death of the CLI."""
    with lab.place(slow=True) as cli:
        async with start_session(cli, SDK) as session:
            turn = await session.send_user_message(lab.prompt(slow=True))
            os.kill(session.pid or 0, signal.SIGKILL)
            assert not (await turn).ok


async def never_started(lab: Lab) -> None:
    """It did not come to be."""
    with contextlib.suppress(StartError):
        if lab.real is not None:
            with lab.place() as cli:
                await start_session(cli.replace(extra_args=["--no-such-flag"]), SDK)
        with FakeCli().expect_initialize(error="no") as fake:
            await start_session(lab.options(fake.path), SDK)
    with contextlib.suppress(StartError):
        await start_session(lab.options("/nowhere/claude"), SDK)


async def input_ended(lab: Lab) -> None:
    """By the CLI, when its input ends."""
    with lab.place() as cli:
        session = await start_session(cli, SDK)
        await talk(session, lab)
        await session.end_input()
        assert [type(event).__name__ async for event in session.events()][-1] == "SessionCompleted"
        await session.stop()


async def with_descendants(lab: Lab) -> None:
    """With processes of the CLI that hold on to life as well as they can."""
    script = FakeCli().expect_initialize()
    for n in range(3):
        script = script.fork_grandchild(
            setsid=bool(n & 1), hold_stdout=bool(n & 2), ignore_sigterm=n > 0
        )
    with script.turn() as fake:
        session = await start_session(lab.options(fake.path), SDK)
        assert (await (await session.send_user_message("go"))).ok
        living = fake.grandchildren
        assert len(living) == 3
        await (session.stop() if lab.random.random() < 0.5 else session.aclose())
        assert not any(Path(f"/proc/{pid}").exists() and _command(pid) for pid in living)


Way = Callable[[Lab], Awaitable[None]]

WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        stopped,
        stopped_in_turn,
        closed,
        closed_in_turn,
        closed_when_asked,
        left_iteration,
        raised,
        cancelled,
        dropped,
        crashed,
        never_started,
        input_ended,
        with_descendants,
    )
}
MIX = [*WAYS.values(), cancelled, cancelled, cancelled]
"""Cancellation hits another place each time, so it gets more tries."""


# ---------------------------------------------------------------- the loop ends first


async def left_open(lab: Lab, cli: CliOptions, kept: list[object]) -> None:
    """The loop ends and a session is open."""
    session = await start_session(cli, SDK)
    await talk(session, lab, slow=True)
    kept.append(session)


async def left_connecting(lab: Lab, cli: CliOptions, kept: list[object]) -> None:
    """The loop ends and a session is about to start."""
    kept.append(asyncio.ensure_future(Session(cli, SDK).connect()))
    await asyncio.sleep(lab.random.uniform(0, 0.05))


async def left_closing(lab: Lab, cli: CliOptions, kept: list[object]) -> None:
    """The loop ends and a session is ending."""
    session = await start_session(cli, SDK)
    kept.append(asyncio.ensure_future(session.aclose()))
    await asyncio.sleep(lab.random.uniform(0, 0.03))


LEFT = [left_open, left_connecting, left_closing]


def run(main: Awaitable[None]) -> None:
    """Run a loop that does not complain of a busy machine, for a bounded time."""

    async def bounded() -> None:
        asyncio.get_running_loop().slow_callback_duration = 60.0
        async with asyncio.timeout(300):
            await main

    asyncio.run(bounded())


async def round_of(lab: Lab, ways: list[Way]) -> None:
    """Some sessions at once; then no task of theirs is left."""
    await asyncio.gather(*(way(lab) for way in ways))
    mine = asyncio.current_task()
    with contextlib.suppress(TimeoutError):
        await until(lambda: asyncio.all_tasks() == {mine}, LIMIT)
    assert asyncio.all_tasks() == {mine}, "tasks are left"


def check(lab: Lab, before: list[str]) -> None:
    """Nothing is left of any session."""
    gc.collect()
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not tagged(lab.tag), LIMIT)
        # The reaper's thread may be reading /proc at this moment.
        wait_until(lambda: descriptors() == before, LIMIT)
    assert tagged(lab.tag) == [], "processes are left"
    assert children() == [], f"children are left: {children()}"
    assert threads() == [], f"threads are left: {threads()}"
    assert descriptors() == before, f"descriptors differ: {before} {descriptors()}"
    places = [one.name for one in Path(tempfile.gettempdir()).iterdir()]
    assert not [name for name in places if name.startswith("bridle-")], f"files are left: {places}"


def soak(lab: Lab, sessions: int, at_once: int) -> None:
    """That many sessions, so many at once, then those whose loop ends first."""
    run(round_of(lab, [closed]))  # starts what is shared by all sessions
    before = descriptors()
    begun = 0
    while begun < sessions:
        ways = [MIX[(begun + n) % len(MIX)] for n in range(min(at_once, sessions - begun))]
        run(round_of(lab, ways))
        begun += len(ways)
        check(lab, before)
    for number in range(max(3, sessions // 10)):
        kept: list[object] = []
        with lab.place(slow=True) as cli:
            run(LEFT[number % len(LEFT)](lab, cli, kept))
            kept.clear()
            gc.collect()
        check(lab, before)


def hang(lab: Lab) -> None:
    """Stay in the midst of a turn for ever; with a descendant, if the CLI is a fake one."""

    async def main() -> None:
        with lab.place(slow=True) as cli:
            async with start_session(cli, SDK) as session:
                await talk(session, lab, slow=True)
                print(lab.tag, flush=True)
                await asyncio.Event().wait()

    run(main())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cli")
    parser.add_argument("--hang", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("bridle").addHandler(logging.NullHandler())
    lab = Lab(arguments.cli, arguments.seed)
    if arguments.hang:
        hang(lab)
    soak(lab, arguments.sessions, arguments.at_once)
    lab.close()
    print("ok")


if __name__ == "__main__":
    main()
