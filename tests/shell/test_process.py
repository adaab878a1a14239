"""A CLI process is started as planned, heard and fed without blocking, and gone when closed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import (
    LIMIT,
    Programs,
    Recorder,
    is_alive,
    open_descriptors,
    plan,
    run,
    run_to_end,
    until,
    wait_until,
)

from bridle._engine.versions import MINIMUM, Version
from bridle._process import tree, watchdog
from bridle._process.launch.plan import LaunchFile
from bridle._process.locate import version_of
from bridle._process.process import CliProcess
from bridle._process.transport import Transport
from bridle._process.tree import MARK, SIGKILL
from bridle.errors import SpawnError
from bridle.testing import ScriptedModel, text, tool_use
from bridle.testing.pytest_plugin import TEST_CLIS, named_clis

pytestmark = pytest.mark.skipif(not tree.PROC, reason="looks into /proc")

UVLOOP = importlib.util.find_spec("uvloop") is not None
MIB = 1 << 20
SECRET = LaunchFile("\0--settings", ".json", b'{"secret": 1}')
BLANK = LaunchFile("\0--mcp-config", ".json", b"")

# A CLI that echoes and minds neither the end of its input nor SIGTERM.
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
for line in sys.stdin: print(line, end="", flush=True)
while True: time.sleep(300)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, set_limits: SetLimits) -> Path:
    """Where private files go in this test."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    set_limits(temporary_directory=str(directory))
    return directory


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """Open what the program keeps before a test counts descriptors.

    The watchdog ends when no session was open for ten seconds, and the next session starts another
    one. A tree without processes keeps the first one running.
    """
    run(lambda: run_to_end("/bin/true"))
    if UVLOOP:
        run_on_uvloop(lambda: run_to_end("/bin/true"))
    no_processes = tree.Tree("a-tree-without-processes")
    watchdog.shared.guard(no_processes, "")
    yield
    watchdog.shared.release(no_processes)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a child process or a descriptor behind."""
    descriptors, processes = open_descriptors(), children()
    yield
    deadline = time.monotonic() + LIMIT
    while left := [*leaked(descriptors), *(children() - processes)]:
        assert time.monotonic() < deadline, f"descriptors or processes were left: {left}"
        gc.collect()  # and the reaper's thread may be reading /proc at this moment
        time.sleep(0.01)


def leaked(before: set[str]) -> list[str]:
    """Return what new descriptors refer to."""
    found: list[str] = []
    for number in open_descriptors() - before:
        with contextlib.suppress(OSError):  # the listing itself, closed by now
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


Main = Callable[[], Coroutine[Any, Any, Any]]
RunOn = Callable[[Main], Any]


def run_on_uvloop(main: Main) -> Any:
    uvloop: Any = importlib.import_module("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main(), 60))


without_uvloop = pytest.mark.skipif(not UVLOOP, reason="uvloop is not installed")


@pytest.fixture(params=["asyncio", pytest.param("uvloop", marks=without_uvloop)])
def run_on(request: pytest.FixtureRequest) -> RunOn:
    """Runs a coroutine on each kind of loop."""
    return run if request.param == "asyncio" else run_on_uvloop


# ---------------------------------------------------------------- talking

Spawn = Callable[..., Transport]
SPAWN: Spawn = CliProcess.spawn
"""R164: it is what a session expects of a transport; the type checkers see to it."""


@pytest.mark.requirement("S105")
def test_what_is_written_comes_back_before_the_end_and_the_end_before_the_exit(
    programs: Programs, run_on: RunOn
) -> None:
    """R157, R158, R161: three kinds of news, in order."""
    recorder = run_on(lambda: run_to_end(programs.shell("exec cat"), data=b"a line\n"))
    assert recorder.log == [("received", b"a line\n"), ("output_ended", None), ("exited", 0)]


@pytest.mark.requirement("S077")
def test_bytes_pass_as_they_are(programs: Programs) -> None:
    """R160."""
    data = bytes(range(256)) * 5000
    assert run(lambda: run_to_end(programs.shell("exec cat"), data=data)).output == data


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 143", 143),
        ("kill -TERM $$", -signal.SIGTERM),
        ("kill -KILL $$", -SIGKILL),
    ],
)
def test_the_exit_code_is_reported_once(
    source: str, code: int, programs: Programs, run_on: RunOn
) -> None:
    recorder = run_on(lambda: run_to_end(programs.shell(source)))
    assert recorder.all("exited") == [code]


def test_a_lot_of_input_waits_for_a_slow_reader(programs: Programs, run_on: RunOn) -> None:
    """R157: `write` returns at once, `drain` when there is room."""
    slow = """
total = 0
while data := os.read(0, 200_000):
    total += len(data)
    time.sleep(0.001)
print(total)
"""

    async def main() -> None:
        recorder = Recorder()
        process = CliProcess.spawn(programs.python(slow), plan(), recorder)
        for _ in range(5):
            process.write(b"x" * MIB)
        before = time.perf_counter()
        await process.drain()
        assert time.perf_counter() - before > 0.001
        process.write(b"y")
        await process.drain()
        process.end_input()
        process.write(b"too late")
        await until(lambda: recorder.is_over)
        await process.aclose()
        assert recorder.output == f"{5 * MIB + 1}\n".encode()
        assert recorder.all("input_failed") == []

    run_on(main)


def test_what_is_unsent_at_the_end_of_the_input_is_sent_before_it(programs: Programs) -> None:
    source = "time.sleep(0.1); print(len(sys.stdin.read()))"
    recorder = run(lambda: run_to_end(programs.python(source), data=b"x" * MIB))
    assert recorder.output == f"{MIB}\n".encode()


def test_a_broken_input_is_reported_once_and_not_in_the_midst_of_a_write(
    programs: Programs, run_on: RunOn
) -> None:
    """R168."""

    async def main() -> None:
        recorder = Recorder()
        process = CliProcess.spawn(
            programs.shell("exec 0<&-; echo ready; exec sleep 300"), plan(), recorder
        )
        await until(lambda: recorder.output)
        process.write(b"a\n")
        process.write(b"b\n")
        assert recorder.all("input_failed") == []
        await until(lambda: recorder.all("input_failed"))
        process.write(b"c\n")
        process.end_input()
        await process.drain()
        await process.aclose()
        assert recorder.all("input_failed") == ["Broken pipe"]

    run_on(main)


@pytest.mark.parametrize("ended", [False, True])
async def test_an_input_that_breaks_wakes_its_waiters(ended: bool, programs: Programs) -> None:
    recorder = Recorder()
    process = CliProcess.spawn(programs.shell("read line; exec 0<&-; sleep 300"), plan(), recorder)
    process.write(b"line\n" + b"x" * MIB)
    if ended:
        process.end_input()
    await process.drain()
    await asyncio.sleep(0)
    assert recorder.all("input_failed") == ([] if ended else ["Broken pipe"])
    await process.aclose()


async def test_closing_wakes_callers_that_wait_for_room(programs: Programs) -> None:
    process = CliProcess.spawn(programs.shell("exec sleep 300"), plan(), Recorder())
    process.write(b"x" * MIB)
    draining = asyncio.create_task(process.drain())
    given_up = asyncio.create_task(process.drain())
    await asyncio.sleep(0)
    given_up.cancel()
    await process.aclose()
    await draining
    process.write(b"x")
    process.end_input()


async def test_reading_can_wait(programs: Programs) -> None:
    recorder = Recorder()
    say = "print({!r}, flush=True); sys.stdin.readline()\n"
    program = programs.python(say.format("one") + say.format("two"))
    process = CliProcess.spawn(program, plan(), recorder)
    await until(lambda: recorder.output == b"one\n")
    process.pause_reading()
    process.pause_reading()
    process.write(b"go on\n")
    output = Path(f"/proc/{process.pid}/syscall")
    await until(lambda: output.read_text().startswith("0 0x0 "))  # it reads from 0 again
    assert recorder.output == b"one\n"
    process.resume_reading()
    process.resume_reading()
    await until(lambda: recorder.output == b"one\ntwo\n")
    await process.aclose()


async def test_the_last_output_of_a_process_is_read_later(
    programs: Programs,
) -> None:
    recorder = Recorder()
    process = CliProcess.spawn(programs.shell("echo bye; echo why >&2"), plan(), recorder)
    process.pause_reading()
    await until(lambda: recorder.is_over)
    process.pause_reading()
    await process.aclose()
    assert recorder.output == b"bye\n"
    assert recorder.log[-1] == ("exited", 0)
    assert process.stderr_tail == "why\n"


async def test_an_error_over_the_last_words_does_not_hide_the_exit(programs: Programs) -> None:
    class Clumsy(Recorder):
        def received(self, data: bytes) -> None:
            raise ValueError(data)

    problems: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(str(context["exception"])))
    recorder = Clumsy()
    process = CliProcess.spawn(programs.shell("echo bye"), plan(), recorder)
    process.pause_reading()
    await until(lambda: recorder.has_exited)
    await process.aclose()
    assert problems == ["b'bye\\n'"]


# ---------------------------------------------------------------- stderr


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\n\ntwo", ["one", "", "two"]),
        (b"caf\xc3\xa9 \xff\n", ["caf\u00e9 \\xff"]),
        (b"x" * 40_000, ["x" * 16_384, "x" * 16_384, "x" * 7232]),
        (b"y" * 20_000 + b"\nz", ["y" * 16_384, "y" * 3616, "z"]),
    ],
    ids=["nothing", "lines", "endings", "no text", "long line", "long whole line"],
)
def test_stderr_comes_as_lines_of_bounded_length(
    written: bytes, lines: list[str], programs: Programs
) -> None:
    """R414, R415, C24: apart from the output, always captured."""
    source = programs.python(f"os.write(2, {written!r}); print('out')")
    recorder = run(lambda: run_to_end(source))
    assert recorder.all("wrote_stderr") == lines
    assert recorder.output == b"out\n"


async def test_the_tail_of_stderr_is_bounded_and_begins_with_a_whole_line(
    programs: Programs,
) -> None:
    """R413, C24."""
    recorder = Recorder()
    source = "for n in range(100_000): print(f'line {n}', file=sys.stderr)"
    process = CliProcess.spawn(programs.python(source), plan(), recorder)
    await until(lambda: recorder.is_over)
    await process.aclose()
    tail = process.stderr_tail.splitlines()
    assert 60_000 < len(process.stderr_tail) <= 1 << 16
    assert tail == [f"line {n}" for n in range(100_000 - len(tail), 100_000)]
    assert recorder.all("wrote_stderr") == [f"line {n}" for n in range(100_000)]


async def test_the_tail_of_one_endless_line_is_its_end(programs: Programs) -> None:
    recorder = Recorder()
    source = f"os.write(2, b'a' * {MIB} + b'z')"
    process = CliProcess.spawn(programs.python(source), plan(), recorder)
    await until(lambda: recorder.is_over)
    await process.aclose()
    assert process.stderr_tail == "a" * 65_535 + "z"


def test_a_flood_on_stderr_does_not_hold_up_the_output(programs: Programs, run_on: RunOn) -> None:
    line = "x" * 63
    flood = f"subprocess.Popen(['sh', '-c', 'yes {line} >&2'], stdin=subprocess.DEVNULL)"

    async def main() -> None:
        recorder = Recorder()
        process = CliProcess.spawn(programs.python(flood + STUBBORN), plan(), recorder)
        await until(lambda: len(recorder.log) > 10 * MIB // 64)
        seen = len(recorder.log)
        process.write(b"hello\n")
        await until(lambda: recorder.output == b"ready\nhello\n")
        assert len(recorder.log) - seen < 10 * MIB // 64
        await process.aclose()

    run_on(main)


# ---------------------------------------------------------------- starting


async def test_it_runs_as_planned(programs: Programs, tmp_path: Path) -> None:
    """R159: no shell, the planned arguments, environment and directory, a session of its own."""
    facts = "sys.argv[1:], dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()"
    program = programs.python(f"import json; print(json.dumps([{facts}]))")
    launch = plan(
        argv=("--a=$HOME *", "--b"), env={"B": "2"}, inherit_env=("A",), cwd=str(tmp_path)
    )
    recorder = Recorder()
    process = CliProcess.spawn(
        program, launch, recorder, environ={"A": "1", "X": "9", MARK: "outer"}
    )
    await until(lambda: recorder.is_over)
    await process.aclose()
    argv, environ, cwd, is_leader = json.loads(recorder.output)
    outer, _, mark = environ.pop(MARK).partition(":")
    environ.pop("LC_CTYPE", None)  # Python's own doing
    assert argv == ["--a=$HOME *", "--b"]
    assert environ == {"A": "1", "B": "2", "PWD": str(tmp_path)}
    assert cwd == str(tmp_path)
    assert is_leader
    assert (outer, len(mark)) == ("outer", 32)


async def test_it_inherits_no_descriptor(programs: Programs) -> None:
    """R422."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    first = CliProcess.spawn(programs.python(STUBBORN), plan(), Recorder())
    recorder = await run_to_end(
        programs.python("print(sorted(map(int, os.listdir('/proc/self/fd'))))", "b")
    )
    assert recorder.output == b"[0, 1, 2, 3]\n"  # 3 is that of the directory it lists
    await first.aclose()
    os.close(reading)
    os.close(writing)


async def test_private_files_are_for_the_owner_alone_and_removed_at_the_end(
    programs: Programs, temporary: Path
) -> None:
    recorder = Recorder()
    program = programs.shell('for file; do cat "${file#*=}"; echo; done; cat')
    argv = ("--settings=\0--settings", "--mcp-config=\0--mcp-config")
    process = CliProcess.spawn(program, plan(argv=argv, files=(SECRET, BLANK)), recorder)
    await until(lambda: recorder.output.endswith(b"\n\n"))
    [directory] = temporary.iterdir()
    assert directory.name.startswith("bridle-")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = sorted(directory.iterdir())
    assert [file.read_bytes() for file in files] == [SECRET.content, BLANK.content]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert b"secret" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    await process.aclose()
    assert recorder.output == SECRET.content + b"\n\n"
    assert list(temporary.iterdir()) == []


FAILURES: dict[str, tuple[str, dict[str, Any], int | None, str]] = {
    "missing": ("/nowhere/claude", {}, errno.ENOENT, "No such file or directory: /nowhere/claude"),
    "not executable": ("{plain}", {}, errno.EACCES, "Permission denied: {plain}"),
    "no program": ("{junk}", {}, errno.ENOEXEC, "Exec format error: {junk}"),
    "no interpreter": (
        "{orphan}", {}, errno.ENOENT,
        "The interpreter or loader it is made for was not found: {orphan}",
    ),
    "missing cwd": (
        "{good}", {"cwd": "/nowhere"}, errno.ENOENT, "No such file or directory: /nowhere",
    ),
    "too long": (
        "{good}", {"argv": ("x" * 200_000,)}, errno.E2BIG, "Argument list too long: {good}",
    ),
    "NUL": ("{good}", {"argv": ("a\0b",)}, None, "embedded null byte"),
    "variable": ("{good}", {"env": {"A=B": "1"}}, None, "illegal environment variable name"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILURES)
async def test_a_failed_start_says_why_and_leaves_nothing(
    what: str, programs: Programs, temporary: Path
) -> None:
    path, changes, number, reason = FAILURES[what]
    names = {
        "plain": programs.write("plain", "text", 0o644),
        "junk": programs.write("junk", "\x01\x02"),
        "orphan": programs.write("orphan", "#!/nowhere/node\n"),
        "good": programs.shell("exec cat", "good"),
    }
    with pytest.raises(SpawnError) as caught:
        CliProcess.spawn(path.format(**names), plan(files=(SECRET,), **changes), Recorder())
    assert (caught.value.errno, caught.value.os_error) == (number, reason.format(**names))
    assert list(temporary.iterdir()) == []


async def test_no_private_directory_means_no_start(
    programs: Programs, set_limits: SetLimits
) -> None:
    set_limits(temporary_directory="/nowhere")
    with pytest.raises(SpawnError, match="No such file or directory: /nowhere/bridle-"):
        CliProcess.spawn(programs.shell("exec cat"), plan(files=(SECRET,)), Recorder())


def test_a_loop_that_cannot_watch_descriptors_gets_an_error_and_no_process(
    programs: Programs, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("cannot")

    loop = asyncio.new_event_loop()
    monkeypatch.setattr(loop, "add_reader", refuse)
    with pytest.raises(OSError, match="cannot"):
        CliProcess.spawn(programs.python(STUBBORN), plan(files=(SECRET,)), Recorder(), loop=loop)
    loop.close()
    assert list(temporary.iterdir()) == []


def test_it_runs_on_the_loop_of_any_thread(programs: Programs) -> None:
    recorders: list[Recorder] = []

    def main() -> None:
        recorders.append(run(lambda: run_to_end(programs.shell("exec cat"), data=b"x")))

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    assert recorders[0].output == b"x"


# ---------------------------------------------------------------- the end

# The ways of test_tree, from inside a CLI; `sleeper` ignores SIGTERM.
OFFSPRING = {
    "child": "subprocess.Popen(sleeper, stdout=null)",
    "setsid": "subprocess.Popen(sleeper, stdout=null, start_new_session=True)",
    "holds the output": "subprocess.Popen(sleeper, start_new_session=True)",
    "daemon": """
if not os.fork():
    os.setsid()
    if not os.fork(): os.execv(sleeper[0], sleeper)
    os._exit(0)
os.wait()
""",
    "nohup": "subprocess.run(['sh', '-c', 'nohup \"$@\" >/dev/null 2>&1 &', 'sh', *sleeper])",
}
FAMILY = """
null = subprocess.DEVNULL
note = "open('pid.tmp', 'w').write(str(os.getpid())); os.rename('pid.tmp', 'pid')"
deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
sleeper = [sys.executable, "-ISc", f"{deaf}; {note}; time.sleep(300)"]
"""


def family(programs: Programs, how: str, then: str) -> str:
    wait = "\nwhile not os.path.exists('pid'): time.sleep(0.005)\n"
    return programs.python(FAMILY + OFFSPRING[how] + wait + then)


@pytest.mark.parametrize("how", OFFSPRING)
@pytest.mark.parametrize("then", ["lives on", "exits", "is killed"])
async def test_no_descendant_survives_the_close(
    how: str, then: str, programs: Programs, tmp_path: Path
) -> None:
    """R356, R362: not even one that let go of everything, or whose CLI is gone already."""
    recorder = Recorder()
    program = family(programs, how, "print('x')" if then == "exits" else STUBBORN)
    process = CliProcess.spawn(program, plan(cwd=str(tmp_path)), recorder)
    await until(lambda: recorder.output)
    sleeper = int((tmp_path / "pid").read_text())
    if then == "is killed":
        os.kill(process.pid, SIGKILL)
    if then != "lives on":
        await until(lambda: recorder.has_exited)
    assert is_alive(sleeper)
    await process.aclose()
    assert not is_alive(sleeper)
    assert not is_alive(process.pid)
    assert recorder.all("exited") == [0 if then == "exits" else -SIGKILL]


async def test_the_exit_is_reported_while_a_descendant_holds_the_output_open(
    programs: Programs, tmp_path: Path
) -> None:
    recorder = Recorder()
    program = family(programs, "holds the output", "print('last words')")
    process = CliProcess.spawn(program, plan(cwd=str(tmp_path)), recorder)
    await until(lambda: recorder.has_exited)
    assert recorder.log == [("received", b"last words\n"), ("exited", 0)]
    await process.aclose()
    assert recorder.all("output_ended") == []


async def test_a_descendant_that_never_stops_writing_does_not_hide_the_exit(
    programs: Programs,
) -> None:
    recorder = Recorder()
    program = programs.shell("yes & echo $! >&2")
    process = CliProcess.spawn(program, plan(), recorder)
    await until(lambda: recorder.has_exited)
    [pid] = recorder.all("wrote_stderr")
    await process.aclose()
    assert not is_alive(int(pid))


def test_terminating_and_killing_reach_the_whole_tree(
    programs: Programs, tmp_path: Path, run_on: RunOn
) -> None:
    """R354, R355: the two rungs of the ladder."""

    async def main() -> None:
        recorder = Recorder()
        program = family(programs, "setsid", "print('x', flush=True); time.sleep(300)")
        process = CliProcess.spawn(program, plan(cwd=str(tmp_path)), recorder)
        await until(lambda: recorder.output)
        sleeper = int((tmp_path / "pid").read_text())
        process.terminate()
        await until(lambda: recorder.has_exited)
        assert recorder.all("exited") == [-signal.SIGTERM]
        assert process.exit_code == -signal.SIGTERM
        assert is_alive(sleeper)
        process.kill()
        await until(lambda: not is_alive(sleeper))
        await process.aclose()
        process.terminate()
        process.kill()
        (tmp_path / "pid").unlink()

    run_on(main)


def test_closing_may_be_repeated_and_shared(programs: Programs, run_on: RunOn) -> None:
    """R358."""

    async def main() -> None:
        recorder = Recorder()
        process = CliProcess.spawn(programs.python(STUBBORN), plan(), recorder)
        assert repr(process) == f"<CliProcess pid {process.pid}, running>"
        await asyncio.gather(process.aclose(), process.aclose())
        await process.aclose()
        assert repr(process) == f"<CliProcess pid {process.pid}, exit code -9>"
        # It may have had the time to say that it is ready, or not.
        assert [entry for entry in recorder.log if entry[0] != "received"] == [("exited", -SIGKILL)]

    run_on(main)


ESCAPES = {
    "own session": "subprocess.Popen(sleeper, env={}, start_new_session=True, **null)",
    "orphan": """
if not os.fork():
    os.setsid()
    print(subprocess.Popen(sleeper, env={}, start_new_session=True, **null).pid, flush=True)
    os._exit(0)
os.wait()""",
}
ESCAPES["own session"] = f"print({ESCAPES['own session']}.pid, flush=True)"


@pytest.mark.parametrize("how", ESCAPES)
@pytest.mark.parametrize("end", ["exit", "kill", "terminate", "close"])
async def test_a_descendant_without_environment_in_its_own_session_is_ended(
    how: str, end: str, programs: Programs
) -> None:
    """R137: also if the CLI is gone before anything looks for its descendants."""
    source = f"""
null = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
sleeper = [sys.executable, "-ISc", deaf]
{ESCAPES[how]}
sys.stdin.read()
"""
    recorder = Recorder()
    process = CliProcess.spawn(programs.python(source), plan(), recorder)
    await until(lambda: recorder.output.endswith(b"\n"))
    child = int(recorder.output)
    assert is_alive(child)
    if end == "exit":
        process.end_input()
    elif end == "kill":
        os.kill(process.pid, SIGKILL)
    elif end == "terminate":
        process.terminate()
    if end != "close":
        await until(lambda: recorder.has_exited)
    await process.aclose()
    assert not is_alive(child)


def test_a_process_that_the_cli_starts_at_once_is_ended(programs: Programs) -> None:
    """It may be started before the CLI is labelled, and inherit no label then."""
    source = "for n in 1 2 3; do setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!; done"

    for _ in range(20):
        recorder = run(lambda: run_to_end(programs.shell(source)))
        assert not any(map(is_alive, map(int, recorder.output.split())))


async def test_a_descriptor_that_other_code_closed_does_not_stop_the_close(
    programs: Programs,
) -> None:
    """As ``os.closerange`` does, or a library that turns the program into a daemon."""
    recorder = Recorder()
    process = CliProcess.spawn(programs.python(STUBBORN), plan(), recorder)
    popen = process._resources.popen
    assert popen.stdin is not None
    os.close(popen.stdin.fileno())
    await process.aclose()
    assert not os.path.exists(f"/proc/{process.pid}")
    assert ("exited", -SIGKILL) in recorder.log


async def test_cancelling_the_close_does_not_stop_it(programs: Programs) -> None:
    process = CliProcess.spawn(programs.python(STUBBORN), plan(), Recorder())
    pid = process.pid
    closing = asyncio.create_task(process.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    del process, closing
    await until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_closing_gives_up_in_time_and_the_watchdog_goes_on(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> int:
        recorder = Recorder()
        child = CliProcess.spawn(programs.shell("exec sleep 300"), plan(), recorder)
        with monkeypatch.context() as immortal:
            SetLimits(immortal)(closing_process=0.1)
            immortal.setattr(tree, "_signal", lambda *_: None)
            immortal.setattr(os, "kill", lambda *_: None)
            await child.aclose()
        assert recorder.log == [("exited", None)]
        return child.pid

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        pid = run(main)
        wait_until(lambda: not is_alive(pid))
        gc.collect()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.longer(after=1)
def test_a_loop_that_ends_in_the_midst_of_closing_leaves_nothing(
    steps: int, programs: Programs, temporary: Path
) -> None:
    async def main() -> int:
        recorder = Recorder()
        launch = plan(files=(SECRET,))
        process = CliProcess.spawn(programs.python(STUBBORN), launch, recorder)
        asyncio.create_task(process.aclose()).add_done_callback(tasks.append)
        for _ in range(steps):
            await asyncio.sleep(0)
        assert tasks == []
        return process.pid

    tasks: list[asyncio.Task[None]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # with no step at all, nobody closed it
        pid = run(main)
        gc.collect()
    assert not os.path.exists(f"/proc/{pid}")
    assert list(temporary.iterdir()) == []


@contextlib.contextmanager
def never_closed(pid: int) -> Iterator[None]:
    """What happens inside makes garbage of a process, which is warned of."""
    with pytest.warns(ResourceWarning, match=f"CLI process {pid} was never closed"):  # noqa: PT031
        yield
        gc.collect()


@pytest.mark.parametrize("leave", ["dropped", "closed later"])
@pytest.mark.longer(after=1)
def test_a_process_whose_loop_is_closed_can_still_be_closed(
    leave: str, programs: Programs, temporary: Path, run_on: RunOn
) -> None:
    processes: list[CliProcess] = []

    async def main() -> int:
        launch = plan(files=(SECRET,))
        processes.append(CliProcess.spawn(programs.python(STUBBORN), launch, Recorder()))
        return processes[0].pid

    pid = run_on(main)
    if leave == "closed later":
        asyncio.run(processes[0].aclose())
        processes.clear()
    else:
        with never_closed(pid):
            processes.clear()
    assert not os.path.exists(f"/proc/{pid}")
    assert list(temporary.iterdir()) == []


@pytest.mark.longer(after=1)
def test_a_dropped_process_is_killed_while_the_loop_goes_on(
    programs: Programs, temporary: Path, run_on: RunOn
) -> None:
    async def main() -> None:
        before = open_descriptors()
        recorder = Recorder()
        launch = plan(files=(SECRET,))
        process = CliProcess.spawn(programs.python(STUBBORN), launch, recorder)
        process.write(b"x" * MIB)
        await until(lambda: recorder.output)
        pid = process.pid
        with never_closed(pid):
            del process
        assert not os.path.exists(f"/proc/{pid}")
        await until(lambda: open_descriptors() <= before)
        assert list(temporary.iterdir()) == []
        assert recorder.all("exited") == []
        await run_to_end(programs.shell("exec cat", "next"), data=b"the numbers are free again")

    run_on(main)


async def test_a_process_in_a_cycle_of_garbage_is_killed(programs: Programs) -> None:
    class Session(Recorder):
        process: CliProcess

    async def talk() -> tuple[int, weakref.ref[Session]]:
        session = Session()
        session.process = CliProcess.spawn(programs.python(STUBBORN), plan(), session)
        await until(lambda: session.output)
        return session.process.pid, weakref.ref(session)

    pid, session = await talk()
    with never_closed(pid):
        pass
    assert session() is None
    assert not os.path.exists(f"/proc/{pid}")
    await asyncio.sleep(0.01)


async def test_fifty_processes_leave_no_descriptor(programs: Programs) -> None:
    before = open_descriptors()
    await asyncio.gather(*(run_to_end(programs.shell("exec cat"), data=b"x\n") for _ in range(50)))
    await until(lambda: open_descriptors() <= before)


def test_a_process_takes_three_descriptors(programs: Programs, run_on: RunOn) -> None:
    """One for each pipe. What watches for the exit takes the place of a pipe that was closed."""

    async def main() -> None:
        before = len(open_descriptors())
        recorders = [Recorder() for _ in range(6)]
        program = programs.shell("read line; exec 1>&-; read line; exit 3")
        processes = [CliProcess.spawn(program, plan(), recorder) for recorder in recorders]
        assert len(open_descriptors()) - before == 3 * 6
        for each in processes[:3]:
            each.write(b"close the output\n")
        await until(lambda: all(recorder.all("output_ended") for recorder in recorders[:3]))
        for each in processes[3:]:
            each.end_input()
        assert len(open_descriptors()) - before <= 3 * 6
        for each in processes[:3]:
            each.write(b"exit\n")
        await until(lambda: all(recorder.has_exited for recorder in recorders))
        assert {code for recorder in recorders for code in recorder.all("exited")} == {3}
        for each in processes:
            await each.aclose()
        await until(lambda: len(open_descriptors()) <= before)

    run_on(main)


CROWD = """
import asyncio, resource, sys
from tests.support.processes import *
async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    processes = [CliProcess.spawn("/bin/cat", plan(), Recorder()) for _ in range(300)]
    print(len(processes), len(open_descriptors()) < 1024)
    await asyncio.gather(*(process.aclose() for process in processes))
asyncio.run(main())
"""


def test_three_hundred_processes_fit_into_the_usual_limit_of_descriptors() -> None:
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("300 True\n", "")


# ---------------------------------------------------------------- odd surroundings


async def test_without_process_descriptors_the_exit_is_noticed(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    recorder = await run_to_end(programs.shell("exit 3"))
    assert recorder.log == [("output_ended", None), ("exited", 3)]
    await test_no_descendant_survives_the_close("daemon", "is killed", programs, tmp_path)


def test_without_proc_the_group_is_ended(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits
) -> None:
    """R137: as on macOS."""
    monkeypatch.delattr(os, "pidfd_open")
    set_limits(has_proc=False)

    async def main() -> None:
        recorder = Recorder()
        process = CliProcess.spawn(
            family(programs, "child", STUBBORN), plan(cwd=str(tmp_path)), recorder
        )
        await until(lambda: recorder.output)
        sleeper = int((tmp_path / "pid").read_text())
        await process.aclose()
        await until(lambda: not is_alive(sleeper))
        assert recorder.all("exited") == [-SIGKILL]

    run(main)
    assert run(lambda: run_to_end(programs.shell("exit 3"))).all("exited") == [3]


def test_an_exit_code_that_was_collected_elsewhere_is_unknown(programs: Programs) -> None:
    """The system reaps children by itself where SIGCHLD is ignored."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run(lambda: run_to_end(programs.shell("exit 3"))).all("exited") == [None]
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_forked_child_neither_holds_the_input_open_nor_ends_the_process(
    programs: Programs,
) -> None:
    async def main() -> None:
        recorder = Recorder()
        process = CliProcess.spawn(programs.shell("exec cat"), plan(), recorder)
        process.write(b"x\n")
        await until(lambda: recorder.output)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                os.close(writing)
                process.kill()
                del process
                gc.collect()
                os.read(reading, 1)  # until the parent is done
            os._exit(0)
        os.close(reading)
        process.end_input()
        await until(lambda: recorder.is_over)
        assert recorder.all("exited") == [0]
        await process.aclose()
        os.close(writing)
        os.waitpid(child, 0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork, in newer Pythons
        run(main)


def test_a_program_that_ends_without_closing_leaves_nothing(
    programs: Programs, tmp_path: Path
) -> None:
    program = family(programs, "daemon", STUBBORN)
    helper = f"""
import asyncio, sys
from tests.support.processes import *
async def main():
    global process
    recorder = Recorder()
    process = CliProcess.spawn({program!r}, plan(cwd={str(tmp_path)!r}), recorder)
    await until(lambda: recorder.output)
    print(process.pid)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", helper], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    wait_until(lambda: not os.path.exists(f"/proc/{int(done.stdout)}"))
    assert not is_alive(int((tmp_path / "pid").read_text()))


# ---------------------------------------------------------------- real ones

CLIS = [pytest.param(path, id=f"cli{number}") for number, path in enumerate(named_clis())] or [
    pytest.param(
        Path(), id="none", marks=pytest.mark.skip(f"set {TEST_CLIS} to the paths of real CLIs")
    )
]
FLAGS = (
    "--output-format=stream-json",
    "--input-format=stream-json",
    "--verbose",
    "--permission-mode=bypassPermissions",
)
DETACHED = """
setsid sleep 300 >/dev/null 2>&1 & echo $! >>pids
nohup sleep 300 >/dev/null 2>&1 & echo $! >>pids
(setsid sh -c 'sleep 300 & echo $! >>pids' >/dev/null 2>&1 &)
while [ $(wc -l <pids) -lt 3 ]; do sleep 0.01; done
"""


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("cli", CLIS)
@pytest.mark.parametrize("ending", ["closed", "terminated", "killed from outside"])
async def test_a_real_cli_leaves_nothing_of_what_its_tools_started(cli: Path, ending: str) -> None:
    initialize = {
        "type": "control_request",
        "request_id": "1",
        "request": {"subtype": "initialize"},
    }
    prompt = {"type": "user", "message": {"role": "user", "content": "Go"}}
    async with ScriptedModel([[tool_use("Bash", command=DETACHED)], [text("Done")]]) as model:
        recorder = Recorder()
        launch = plan(argv=FLAGS, env=model.env, inherit_env=("PATH",), cwd=str(model.home))
        process = CliProcess.spawn(str(cli), launch, recorder)
        process.write(b"".join(json.dumps(line).encode() + b"\n" for line in (initialize, prompt)))
        await until(lambda: b'"type":"result"' in recorder.output)
        pids = [int(pid) for pid in (model.home / "pids").read_text().split()]
        assert all(map(is_alive, pids))
        if ending == "terminated":
            process.terminate()
        elif ending == "killed from outside":
            os.kill(process.pid, SIGKILL)
        if ending != "closed":
            await until(lambda: recorder.has_exited)
        await process.aclose()
        assert not any(map(is_alive, (*pids, process.pid)))
        # Closed, it is killed, unless the end of its input made it leave a moment earlier.
        codes = {"closed": (-SIGKILL, 0), "terminated": (143,)}.get(ending, (-SIGKILL,))
        [code] = recorder.all("exited")
        assert code in codes


@pytest.mark.parametrize("cli", CLIS)
def test_a_real_cli_tells_its_version(cli: Path) -> None:
    answer = run(lambda: version_of(str(cli), timeout=30.0))
    assert isinstance(answer, Version)
    assert answer >= MINIMUM
