"""A watchdog ends what a program leaves behind, however the program dies, and is no trouble."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import termios
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import Programs, is_alive, run, run_to_end, wait_until
from tests.support.steps import ReplaceSteps

from bridle._process import reaper, tree, watchdog
from bridle._process.private_directories import make_private_directory, remove_private_directory
from bridle._process.tree import MARK, SIGKILL, Tree
from bridle._process.watchdog import Watchdog

pytestmark = pytest.mark.skipif(not tree.PROC, reason="looks into /proc")

# A program with a CLI that has a private file and three kinds of offspring, all deaf to SIGTERM.
# It tells the pids of all, its watchdog last, and waits for what happens to it.
CLI = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
null = subprocess.DEVNULL
def sleep(**options):
    return subprocess.Popen(["sleep", "300"], stdin=null, stdout=null, stderr=null, **options).pid
reading, writing = os.pipe()
if not os.fork():
    os.setsid()
    os.write(writing, str(sleep(start_new_session=True)).encode())
    os._exit(0)
os.wait()
daemon = os.read(reading, 99).decode()
print(os.getpid(), sleep(), sleep(start_new_session=True), daemon, flush=True)
while True: time.sleep(300)
"""
PROGRAM = """
import asyncio, os, signal, sys, tempfile, time
# A shell may have started the tests in the background, or with nohup: without these signals.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from bridle._process.launch.plan import LaunchFile
from bridle._process import watchdog
from tests.support.processes import *
cli, tempfile.tempdir = sys.argv[1:]
async def main():
    recorder = Recorder()
    launch = plan(argv=("--settings=\\0x",), files=(LaunchFile("\\0x", ".json", b"{{}}"),))
    process = CliProcess.spawn(cli, launch, recorder)
    await until(lambda: recorder.output.endswith(b"\\n"))
    print(recorder.output.decode().strip(), watchdog.shared.pid, flush=True)
    {then}
asyncio.run(main())
"""
WAIT = "await asyncio.sleep(300)"


class Running:
    """A program that runs the CLI above."""

    def __init__(self, tmp_path: Path, then: str) -> None:
        self.temporary = tmp_path / "tmp"
        self.temporary.mkdir()
        cli = Programs(tmp_path).python(CLI)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(then=then), cli, str(self.temporary)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        *self.pids, self.watchdog = map(int, self.process.stdout.readline().split())

    def has_left_nothing(self) -> bool:
        alive = [pid for pid in (*self.pids, self.watchdog) if is_alive(pid)]
        return not alive and list(self.temporary.iterdir()) == []


@contextlib.contextmanager
def running(tmp_path: Path, then: str = WAIT) -> Iterator[Running]:
    program = Running(tmp_path, then)
    with program.process:
        try:
            yield program
        finally:
            program.process.kill()
            program.process.wait()
            wait_until(program.has_left_nothing)


@pytest.fixture
def own() -> Iterator[Watchdog]:
    """A watchdog of the test's own."""
    own = Watchdog()
    yield own
    own.close()


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], Tree]]:
    """A process to guard."""
    mark = os.urandom(16).hex()
    environ = {**os.environ, MARK: mark}
    with subprocess.Popen(["sleep", "300"], env=environ, start_new_session=True) as process:
        yield process, Tree(mark, process.pid)
        process.kill()


Sleeper = tuple[subprocess.Popen[bytes], Tree]


# ---------------------------------------------------------------- how programs end


@pytest.mark.parametrize("number", [SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGHUP])
def test_nothing_survives_a_program_that_is_killed(number: int, tmp_path: Path) -> None:
    with running(tmp_path) as program:
        assert all(map(is_alive, (*program.pids, program.watchdog)))
        assert len(list(program.temporary.iterdir())) == 1
        program.process.send_signal(number)
        assert program.process.wait() == -number
        wait_until(program.has_left_nothing)


def test_nothing_survives_a_program_whose_terminal_is_interrupted(tmp_path: Path) -> None:
    with running(tmp_path) as program:
        os.killpg(program.process.pid, signal.SIGINT)
        program.process.wait()
        wait_until(program.has_left_nothing)


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("then", ["pass", "await process.aclose()", "sys.exit(3)", "os._exit(3)"])
def test_the_watchdog_ends_with_its_program(then: str, tmp_path: Path) -> None:
    with running(tmp_path, then) as program:
        program.process.wait()
        wait_until(program.has_left_nothing)


def test_nothing_is_left_of_a_cli_that_was_killed_before_its_program(tmp_path: Path) -> None:
    with running(tmp_path) as program:
        os.kill(program.pids[0], SIGKILL)
        wait_until(lambda: not is_alive(program.pids[0]))
        program.process.kill()
        wait_until(program.has_left_nothing)


def test_a_forked_child_does_not_hide_the_death_of_its_parent(tmp_path: Path) -> None:
    fork = """
    if not os.fork(): time.sleep(300)
    print("forked", flush=True); time.sleep(300)
"""
    with running(tmp_path, fork.strip()) as program:
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == b"forked\n"
        [child] = [
            int(pid)
            for pid in Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children")
            .read_text()
            .split()
            if int(pid) not in (program.pids[0], program.watchdog)
        ]
        program.process.kill()
        wait_until(program.has_left_nothing)
        assert is_alive(child)
        os.kill(child, SIGKILL)


def test_a_forked_child_has_a_watchdog_of_its_own(tmp_path: Path) -> None:
    fork = """
    if not os.fork():
        assert watchdog.shared.pid is None
        asyncio.events._set_running_loop(None)
        asyncio.run(run_to_end("/bin/true"))
        print(watchdog.shared.pid, flush=True)
        os._exit(0)
    os.wait()
    print(watchdog.shared.pid, flush=True)
"""
    with running(tmp_path, fork.strip()) as program:
        assert program.process.stdout is not None
        theirs, ours = map(int, program.process.stdout.read().split())
        assert ours == program.watchdog
        assert theirs != ours
        wait_until(lambda: not is_alive(theirs))


HAS_FILES = """
from pathlib import Path
from time import sleep
from bridle._process.private_directories import make_private_directory

directory = make_private_directory()
Path(directory, "session.jsonl").write_text("what the user said")
Path(directory, "session").mkdir()
print(directory, flush=True)
sleep(3600)
"""


def test_private_files_do_not_survive_a_program_that_is_killed_before_its_cli_starts(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HAS_FILES],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        directory = Path(program.stdout.readline().strip())
        assert directory.parent == tmp_path
        program.kill()
    wait_until(lambda: not directory.exists())


def test_the_watchdog_rests_after_a_private_directory_was_removed() -> None:
    directory = make_private_directory()
    assert watchdog.shared.pid is not None
    remove_private_directory(directory)
    assert not Path(directory).exists()
    wait_until(watchdog.shared.rest)


# ---------------------------------------------------------------- the watchdog itself


def test_it_is_shared_and_touches_nothing_of_its_program(own: Watchdog, sleeper: Sleeper) -> None:
    process, guarded = sleeper
    own.guard(guarded, "")
    pid = own.pid
    own.guard(Tree("0" * 32), "")
    assert own.pid == pid
    # Until it reads what it is told, Python starts in it and opens files of its own.
    wait_until(lambda: fcntl.ioctl(own._pipe, termios.FIONREAD, bytes(4)) == bytes(4))
    targets = {entry.name: os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    assert targets.pop("0").startswith("pipe:")
    assert targets == {"1": os.devnull, "2": os.devnull}
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid or 0) == pid
    assert is_alive(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_for_the_program_do_not_end_it(
    number: int, own: Watchdog, sleeper: Sleeper
) -> None:
    process, guarded = sleeper
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    own.guard(guarded, "")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask
    os.kill(own.pid or 0, number)
    own.guard(guarded, "")
    assert is_alive(own.pid or 0)
    own.close()
    assert process.wait() == -SIGKILL


def test_what_is_released_is_not_ended(own: Watchdog, sleeper: Sleeper, tmp_path: Path) -> None:
    process, guarded = sleeper
    own.guard(guarded, str(tmp_path))
    own.release(guarded)
    own.release(guarded)
    own.close()
    assert not is_alive(own.pid or 0)
    assert is_alive(process.pid)
    assert tmp_path.exists()


def test_it_names_itself_in_lists_of_processes(own: Watchdog, sleeper: Sleeper) -> None:
    own.guard(sleeper[1], "")
    wait_until(lambda: fcntl.ioctl(own._pipe, termios.FIONREAD, bytes(4)) == bytes(4))
    place = Path(f"/proc/{own.pid}")
    assert place.joinpath("comm").read_text() == "bridle-watchdog\n"
    assert b"bridle-watchdog" in place.joinpath("cmdline").read_bytes().split(b"\0")


def test_it_rests_only_while_it_has_nothing_to_guard(own: Watchdog, sleeper: Sleeper) -> None:
    process, guarded = sleeper
    own.guard(guarded, "")
    first = own.pid or 0
    own.rest()
    assert own.pid == first
    own.release(guarded)
    wait_until(own.rest)
    assert not Path(f"/proc/{first}").exists()
    assert is_alive(process.pid)
    own.rest()
    own.guard(guarded, "")
    assert own.pid not in (None, first)
    own.close()
    assert process.wait() == -SIGKILL


def test_it_ends_some_time_after_the_last_session(tmp_path: Path) -> None:
    """Not at once: the next session of a busy program need not start another one."""
    then = """
    from bridle._process import reaper
    reaper._LINGER = 0.3
    first = watchdog.shared.pid
    await process.aclose()
    print(first == watchdog.shared.pid, flush=True)
    await until(lambda: not os.path.exists(f"/proc/{first}"))
    print(watchdog.shared.pid, flush=True)
"""
    with running(tmp_path, then.strip()) as program:
        assert program.process.stdout is not None
        assert program.process.stdout.read().split() == [b"True", b"None"]


def test_a_killed_watchdog_is_replaced_by_one_that_watches_all_processes(
    own: Watchdog, sleeper: Sleeper
) -> None:
    process, guarded = sleeper
    own.guard(guarded, "")
    first = own.pid or 0
    os.kill(first, SIGKILL)
    wait_until(lambda: not is_alive(first))
    own.guard(Tree("0" * 32), "")
    assert own.pid != first
    own.close()
    assert process.wait() == -SIGKILL


def test_one_that_was_killed_is_not_replaced_for_nothing(own: Watchdog, sleeper: Sleeper) -> None:
    _, guarded = sleeper
    own.guard(guarded, "")
    first = own.pid or 0
    os.kill(first, SIGKILL)
    wait_until(lambda: not is_alive(first))
    own.release(guarded)
    assert own.pid == first


def test_a_stopped_watchdog_does_not_block_its_program(
    own: Watchdog, sleeper: Sleeper, caplog: pytest.LogCaptureFixture
) -> None:
    process, guarded = sleeper
    own.guard(guarded, "")
    os.kill(own.pid or 0, signal.SIGSTOP)
    while not caplog.records:
        own.guard(guarded, "x" * 2000)
    assert caplog.messages == [f"The watchdog does not read its pipe (pid {own.pid})"]
    os.kill(own.pid or 0, signal.SIGCONT)
    assert is_alive(process.pid)
    own.close()
    assert process.wait() == -SIGKILL


def test_one_that_does_not_respond_delays_no_close(
    own: Watchdog, sleeper: Sleeper, replace_steps: ReplaceSteps, set_limits: SetLimits
) -> None:
    process, guarded = sleeper
    replace_steps(watchdog=own)
    set_limits(watchdog_linger=0.1)
    own.guard(guarded, "")
    first = own.pid or 0
    os.kill(first, signal.SIGSTOP)
    thread, is_done = reaper.Reaper(), threading.Event()
    thread.release(guarded)
    wait_until(lambda: own.pid is None)
    thread.end(guarded, lambda: process.poll() is not None, 5.0, is_done.set)
    assert is_done.wait(2.0)
    assert is_alive(first)
    os.kill(first, signal.SIGCONT)
    wait_until(lambda: not thread._is_running)
    assert not Path(f"/proc/{first}").exists()


def test_a_pipe_that_other_code_has_closed_is_ignored(own: Watchdog, sleeper: Sleeper) -> None:
    process, guarded = sleeper
    own.guard(guarded, "")
    os.close(own._pipe)
    own.release(guarded)
    own.rest()
    assert process.wait() == -SIGKILL  # the watchdog cannot tell this from our death


def fail(error: BaseException) -> NoReturn:
    raise error


def test_a_failure_in_the_reaper_ends_neither_the_thread_nor_other_work(
    sleeper: Sleeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, guarded = sleeper
    thread = reaper.Reaper()
    failed, is_done = threading.Event(), threading.Event()
    monkeypatch.setattr(watchdog.shared, "release", lambda _: fail(ValueError("release")))
    thread.release(guarded)
    wrong = thread.end(Tree("0" * 32), lambda: fail(ValueError("is_dead")), 0.05, failed.set)
    assert failed.wait(10.0)
    assert not wrong.is_complete
    thread.end(Tree("1" * 32), lambda: True, 5.0, lambda: fail(ValueError("done")))
    ending = thread.end(guarded, lambda: process.poll() is not None, 5.0, is_done.set)
    assert is_done.wait(10.0)
    assert ending.is_complete
    assert {str(record.exc_info[1]) for record in caplog.records if record.exc_info} == {
        "release",
        "is_dead",
        "done",
    }


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [ValueError("a defect"), SystemExit()])
def test_waiters_continue_after_any_failure_in_the_reaper(
    error: BaseException, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, guarded = sleeper
    thread = reaper.Reaper()
    is_done = threading.Event()
    with monkeypatch.context() as patch:
        ReplaceSteps(patch)(signal_all=lambda *_: fail(error))
        ending = thread.end(guarded, lambda: True, 0.05, is_done.set)
        assert is_done.wait(10.0)
        assert not ending.is_complete
        wait_until(lambda: isinstance(error, ValueError) or not thread._is_running)
    is_done.clear()
    ending = thread.end(guarded, lambda: process.poll() is not None, 5.0, is_done.set)
    assert is_done.wait(10.0)
    assert ending.is_complete


@pytest.mark.parametrize(
    ("executable", "reason"),
    [
        ("", "there is no Python interpreter to run it"),
        ("/bin/sh", "there is no Python interpreter to run it"),
        ("/nowhere/python", "there is no Python interpreter to run it"),
        ("{junk}", "[Errno 8] Exec format error: '{junk}'"),
    ],
)
def test_without_a_watchdog_there_is_one_warning_and_no_failure(
    executable: str,
    reason: str,
    own: Watchdog,
    sleeper: Sleeper,
    tmp_path: Path,
    set_limits: SetLimits,
    replace_steps: ReplaceSteps,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, guarded = sleeper
    junk = Programs(tmp_path).write("python", "\x01")
    set_limits(python=executable.format(junk=junk))
    set_limits(python_prefix="/nowhere")
    replace_steps(watchdog=own)
    own.guard(guarded, "")
    own.guard(guarded, "")
    assert run(lambda: run_to_end("/bin/true")).all("exited") == [0]
    own.release(guarded)
    assert own.pid is None
    text = "No watchdog: if this program is killed, the CLI may survive it"
    assert caplog.record_tuples == [
        ("bridle", logging.WARNING, f"{text} ({reason.format(junk=junk)})")
    ]


def test_a_program_that_embeds_python_is_not_taken_for_one(
    own: Watchdog, sleeper: Sleeper, set_limits: SetLimits
) -> None:
    process, guarded = sleeper
    set_limits(python="/bin/sh")
    own.guard(guarded, "")
    own.close()
    assert process.wait() == -SIGKILL


def test_one_that_fails_by_itself_is_not_tried_for_ever(
    own: Watchdog,
    sleeper: Sleeper,
    tmp_path: Path,
    set_limits: SetLimits,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, guarded = sleeper
    set_limits(python=Programs(tmp_path).shell("exit 3", "python"))
    own.guard(guarded, "")
    wait_until(lambda: not is_alive(own.pid or 0))
    own.guard(guarded, "")
    own.guard(guarded, "")
    assert [message[-37:] for message in caplog.messages] == [
        "(it ended by itself with exit code 3)"
    ]


def test_after_the_end_of_the_program_no_process_is_started(
    own: Watchdog, sleeper: Sleeper
) -> None:
    own.close()
    own.guard(sleeper[1], "")
    assert own.pid is None


def test_forgetting_is_for_forked_children(own: Watchdog, sleeper: Sleeper) -> None:
    process, guarded = sleeper
    own.guard(guarded, "")
    parents = own.pid or 0
    os.set_blocking(spare := os.dup(own._pipe), False)  # pyright: ignore[reportPrivateUsage]
    own.forget()
    assert own.pid is None
    assert is_alive(process.pid)
    os.close(spare)
    assert process.wait() == -SIGKILL
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        os.waitpid(parents, 0)
