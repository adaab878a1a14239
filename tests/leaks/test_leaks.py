"""Nothing is left of a session, however it ends: no process, descriptor, task, thread or file."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections import Counter
from pathlib import Path

import pytest
from tests.soak.endings import TAG, WAYS, Lab, children, descriptors, tagged, threads
from tests.soak.sessions import options
from tests.support.pools import cycle
from tests.support.processes import is_alive, open_descriptors, run, until, wait_until

import bridle
from bridle import BidirOptions, Session, SessionStopped, ToolContext, start_session, tool
from bridle.testing import FakeCli

REPOSITORY = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.soak.endings"]


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(directory)}


@pytest.mark.longer
@pytest.mark.parametrize("seed", ["1", "2"])
@pytest.mark.requirement("S100")
def test_sixty_sessions_ended_in_every_way_leave_nothing(tmp_path: Path, seed: str) -> None:
    """R356, R359, R362: with warnings as errors, and not a word on stderr."""
    done = subprocess.run(
        [*PROGRAM, "--sessions", "30", "--seed", seed],
        cwd=REPOSITORY,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
def test_a_program_that_is_killed_takes_its_processes_and_files_along(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*PROGRAM, "--hang"],
        cwd=REPOSITORY,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            tag = program.stdout.readline().strip()
            assert len(tagged(tag)) >= 1
        finally:
            program.send_signal(number)
    wait_until(lambda: not tagged(tag))
    wait_until(lambda: not list(tmp_path.glob("bridle-*")))


def test_the_search_for_what_is_left_finds_what_is_left() -> None:
    """A check that finds nothing must be able to find something."""
    sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    before = descriptors()
    running = threads()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(20,), name="left over")
    with subprocess.Popen(sleeper, env={TAG: "left-over"}, stdin=subprocess.PIPE) as process:
        thread.start()
        try:
            wait_until(lambda: tagged("left-over") == [process.pid])
            assert process.pid in children()
            # Threads and files of earlier tests may end meanwhile.
            assert Counter(threads()) - Counter(running) == {"left over": 1}
            assert (Counter(descriptors()) - Counter(before)).total() == 1
        finally:
            process.kill()
            stop.set()
            thread.join()


@pytest.mark.longer(after=3)
@pytest.mark.parametrize("way", WAYS)
def test_each_way_by_itself_leaves_no_task_and_no_descriptor(way: str, tmp_path: Path) -> None:
    """S087."""
    lab = Lab(None, 7)
    lab.work = str(tmp_path)

    async def main() -> None:
        await WAYS["closed"](lab)
        await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})
        gc.collect()
        before = open_descriptors()  # those of earlier tests may be closed at any time
        await WAYS[way](lab)
        await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})
        gc.collect()
        await until(lambda: open_descriptors() <= before)

    run(main)
    lab.close()
    assert tagged(lab.tag) == []


NASTY = {
    "plain": {},
    "own session": {"setsid": True},
    "holds the output": {"hold_stdout": True},
    "deaf": {"ignore_sigterm": True},
    "all of it": {"setsid": True, "hold_stdout": True, "ignore_sigterm": True},
}


# Every kind of descendant for one way, and the worst of them for every way.
DESCENDANTS = [
    *((name, "stop") for name in NASTY),
    *(("all of it", way) for way in ("aclose", "drop", "crash", "loop")),
]


@pytest.mark.parametrize(("name", "way"), DESCENDANTS, ids=[", ".join(one) for one in DESCENDANTS])
def test_descendants_of_the_cli_are_ended_with_it(name: str, way: str) -> None:
    """R356: however they try to get away, and however the session ends."""
    kept: list[Session] = []

    async def main(cli: FakeCli) -> None:
        session = await start_session(options(cli))
        await until(lambda: cli.grandchildren)
        if way in ("stop", "aclose"):
            await getattr(session, way)()
        elif way == "crash":
            os.kill(session.pid or 0, signal.SIGKILL)
            await session.aclose()
        elif way == "loop":
            kept.append(session)
            return
        else:
            del session
            gc.collect()
            await until(lambda: not any(map(is_alive, cli.grandchildren)))
        assert not any(map(is_alive, cli.grandchildren))

    with FakeCli().expect_initialize().fork_grandchild(**NASTY[name]) as cli:
        run(lambda: main(cli))
        assert not any(map(is_alive, cli.grandchildren))
        assert not is_alive(cli.pid or 0)


# Ends a session while no descriptor is free; prints the pids of its processes that are left.
EXHAUSTED = """
import asyncio, os, resource, sys
from tests.soak.sessions import options
from tests.support.processes import is_alive, until
from bridle import start_session
from bridle.testing import FakeCli

async def main():
    script = FakeCli().expect_initialize().fork_grandchild(setsid=True, ignore_sigterm=True)
    with script as cli:
        session = await start_session(options(cli))
        await until(lambda: cli.grandchildren)
        pids = [session.pid, *cli.grandchildren]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        async with asyncio.timeout(60):
            await session.{way}()
        print([pid for pid in pids if is_alive(pid)])
        for descriptor in held:
            os.close(descriptor)

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["stop", "aclose"])
def test_a_session_ends_without_free_descriptors(way: str) -> None:
    """R356."""
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED.format(way=way)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


async def test_a_version_that_is_still_asked_for_does_not_outlive_the_session() -> None:
    """The CLI that was only to tell its version is a process of the session too."""
    with FakeCli.auto().version(hang=True) as cli:
        session = Session(options(cli, env={TAG: "version"}))
        starting = asyncio.ensure_future(session.connect())
        await until(lambda: len(tagged("version")) == 2)
        await session.stop()
        assert tagged("version") == []
        with pytest.raises(SessionStopped):
            await starting


def test_threads_of_plain_functions_are_idle_daemons_afterwards() -> None:
    running = threads()  # the background loop keeps its own

    async def main() -> None:
        with FakeCli.auto() as cli:
            bidir = BidirOptions(on_stop=lambda _: None, on_user_prompt_submit=lambda _: None)
            for _ in range(5):
                async with start_session(options(cli), bidir=bidir) as session:
                    assert (await (await session.send_user_message("go"))).ok

    run(main)
    assert threads() == running


def test_a_session_that_is_never_connected_leaves_nothing() -> None:
    with FakeCli.auto() as cli:
        before = descriptors()
        session = Session(options(cli))
        del session
        gc.collect()
        assert not Counter(descriptors()) - Counter(before)
        assert cli.pid is None


def test_a_session_whose_tool_was_called_is_collected() -> None:
    """The collector follows the tool's context, which refers to the session."""

    @tool
    def echo(word: str, context: ToolContext) -> str:
        """Repeat a word."""
        seen.append(weakref.ref(context.session))
        return word

    async def main() -> None:
        with FakeCli.auto() as cli:
            outcome = await bridle.run(
                'CALL mcp__tools__echo {"word": "hello"}\nSAY done.',
                cli_path=cli.path,
                tools=[echo],
            )
            assert outcome.ok, outcome

    seen: list[weakref.ref[object]] = []
    run(main)
    gc.collect()
    assert [session() for session in seen] == [None]


@pytest.mark.longer
@pytest.mark.parametrize("flavour", ["2.1.326", "2.1.197"])
def test_a_pool_that_is_used_forty_times_leaves_nothing(tmp_path: Path, flavour: str) -> None:
    cycle(tmp_path, uses=40, flavour=flavour)
