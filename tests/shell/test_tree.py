"""Process trees are found whole, whatever their members do to get lost, and nobody else is hit."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import is_alive, wait_until
from tests.support.steps import ReplaceSteps

from bridle._process import tree
from bridle._process.tree import MARK, SIGKILL, Tree

pytestmark = pytest.mark.skipif(not tree.PROC, reason="needs /proc")

# Ways to leave a trace only a good tracker finds. Each runs the sleeper and goes on.
ESCAPES = {
    "child": "subprocess.Popen(sleeper)",
    "setsid": "subprocess.Popen(sleeper, start_new_session=True)",
    "nohup": "subprocess.Popen(['sh', '-c', 'nohup \"$@\" >/dev/null 2>&1 &', 'sh', *sleeper])",
    "orphan": "subprocess.Popen(['sh', '-c', '\"$@\" & exit', 'sh', *sleeper])",
    "daemon": """
if not os.fork():
    os.setsid()
    if not os.fork():
        os.execv(sleeper[0], sleeper)
    os._exit(0)
os.wait()""",
    "bare orphan": "subprocess.Popen(['sh', '-c', '\"$@\" & exit', 'sh', *sleeper], env={})",
    "bare setsid": "subprocess.Popen(sleeper, env={}, start_new_session=True)",
}


@contextlib.contextmanager
def start(
    tmp_path: Path, source: str, mark: str, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that knows a `sleeper`, which notes its pid; it waits to be killed."""
    pids = tmp_path / "pids"
    deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    note = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')"
    sleeper = [sys.executable, "-ISc", f"{deaf}; {note}; time.sleep(300)"]
    program = f"import os, subprocess, sys, time\nsleeper = {sleeper!r}\n{source}\ntime.sleep(300)"
    with subprocess.Popen[bytes](
        [sys.executable, "-ISc", program],
        env={**os.environ, MARK: mark},
        start_new_session=True,
        **options,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pid_of_sleeper(tmp_path: Path) -> int:
    """The pid of the sleeper, once it is noted."""
    pids = tmp_path / "pids"
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    return int(pids.read_text())


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark; whatever carries it is gone after the test."""
    mark = os.urandom(16).hex()
    yield mark
    Tree(mark).end(5.0)


@pytest.mark.parametrize("how", ESCAPES)
def test_no_member_escapes(how: str, tmp_path: Path, mark: str) -> None:
    with start(tmp_path, ESCAPES[how], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        assert sleeper in tree.find([Tree(mark, process.pid)])
        assert Tree(mark, process.pid).end(10.0)
        assert not is_alive(sleeper)
        assert process.wait() == -SIGKILL


@pytest.mark.parametrize("how", ["setsid", "nohup", "orphan", "daemon"])
def test_members_are_found_long_after_the_root_has_ended(
    how: str, tmp_path: Path, mark: str
) -> None:
    with start(tmp_path, ESCAPES[how], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        members = Tree(mark, process.pid)
        process.kill()
        process.wait()
        assert list(tree.find([members])) == [sleeper]
        assert members.end(10.0)
        assert not is_alive(sleeper)


DETACHED = {
    "bare setsid": ESCAPES["bare setsid"],
    "bare daemon": ESCAPES["daemon"].replace(
        "execv(sleeper[0], sleeper)", "execve(sleeper[0], sleeper, {})"
    ),
}


@pytest.mark.parametrize("how", DETACHED)
def test_a_label_is_inherited_whatever_else_a_member_leaves_behind(
    how: str, tmp_path: Path, mark: str
) -> None:
    with start(tmp_path, f"os.read(0, 1)\n{DETACHED[how]}", mark, stdin=subprocess.PIPE) as process:
        members = tree.labelled(mark, process.pid)
        assert members.label
        assert process.stdin
        os.write(process.stdin.fileno(), b"g")
        sleeper = pid_of_sleeper(tmp_path)
        process.kill()
        process.wait()
        assert list(tree.find([members])) == [sleeper]
        assert members.end(10.0)
        assert not is_alive(sleeper)


def test_inside_another_tree_both_labels_count(tmp_path: Path, mark: str) -> None:
    """As when the CLI runs a program that uses Bridle."""
    inner = os.urandom(16).hex()
    source = f"""
sys.path.insert(0, {str(Path(tree.__file__).parent)!r})
import tree
os.read(0, 1)
child = subprocess.Popen(sleeper, env={{}}, start_new_session=True)
print(tree.labelled({inner!r}, child.pid).label, flush=True)"""
    with start(tmp_path, source, mark, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        outer = tree.labelled(mark, process.pid)
        assert process.stdin
        assert process.stdout
        os.write(process.stdin.fileno(), b"g")
        label = int(process.stdout.readline())
        sleeper = pid_of_sleeper(tmp_path)
        assert list(tree.find([Tree(inner, label=label)])) == [sleeper]
        assert list(tree.find([outer])) == [process.pid, sleeper]
        assert outer.end(10.0)
        assert not is_alive(sleeper)


# Ways to start a process without the label. Each needs another rule to be found.
UNLABELLED = {
    "child": "subprocess.Popen(sleeper, env={}, preexec_fn=change)",
    "setsid": "subprocess.Popen(sleeper, env={}, start_new_session=True, preexec_fn=change)",
    "orphan in the session": "subprocess.Popen(orphan, env={}, preexec_fn=change)",
    "orphan with the mark": "subprocess.Popen(orphan, start_new_session=True, preexec_fn=change)",
}


@pytest.mark.parametrize("how", UNLABELLED)
def test_a_member_that_changes_its_limit_is_found_by_the_other_rules(
    how: str, tmp_path: Path, mark: str
) -> None:
    source = f"""
import resource
orphan = ['sh', '-c', '"$@" & exit', 'sh', *sleeper]
change = lambda: resource.setrlimit(10, (5, 5))
os.read(0, 1)
{UNLABELLED[how]}"""
    with start(tmp_path, source, mark, stdin=subprocess.PIPE) as process:
        members = tree.labelled(mark, process.pid)
        assert members.label
        assert process.stdin
        os.write(process.stdin.fileno(), b"g")
        sleeper = pid_of_sleeper(tmp_path)
        try:
            assert resource.prlimit(sleeper, 10) == (5, 5)
            assert members.end(10.0)
            assert not is_alive(sleeper)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sleeper, SIGKILL)


def test_three_trees_inside_each_other_are_each_found_whole(tmp_path: Path, mark: str) -> None:
    """The innermost process has two limits for three labels."""
    second, third = (os.urandom(16).hex() for _ in range(2))
    module = f"sys.path.insert(0, {str(Path(tree.__file__).parent)!r})\nimport tree"
    inner = f"""
import os, subprocess, sys
{module}
os.read(0, 1)
environ = {{**os.environ, {MARK!r}: {f"{mark}:{second}:{third}"!r}}}
options = dict(env=environ, start_new_session=True, stdin=subprocess.PIPE)
orphan = ["sh", "-c", 'read go; "$@" & exit', "sh", *sys.argv[1:]]
child = subprocess.Popen(orphan, **options)
tree.labelled({third!r}, child.pid)
child.stdin.write(b"go\\n")
child.stdin.close()
child.wait()
os._exit(0)"""
    source = f"""
{module}
os.read(0, 1)
environ = {{**os.environ, {MARK!r}: {f"{mark}:{second}"!r}}}
options = dict(env=environ, start_new_session=True, stdin=subprocess.PIPE)
child = subprocess.Popen([sys.executable, "-ISc", {inner!r}, *sleeper], **options)
ours = tree.labelled({second!r}, child.pid)
child.stdin.write(b"g")
child.stdin.close()
child.wait()
os.read(0, 1)
print(*tree.find([ours]), flush=True)"""
    with start(tmp_path, source, mark, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        outer = tree.labelled(mark, process.pid)
        assert process.stdin
        assert process.stdout
        os.write(process.stdin.fileno(), b"g")
        sleeper = pid_of_sleeper(tmp_path)
        os.write(process.stdin.fileno(), b"g")
        assert [int(pid) for pid in process.stdout.readline().split()] == [sleeper]
        assert list(tree.find([outer])) == [process.pid, sleeper]
        assert outer.end(10.0)
        assert not is_alive(sleeper)


@pytest.mark.parametrize("limit", [None, resource.RLIM_INFINITY], ids=["hidden", "removed"])
def test_a_member_whose_limit_is_hidden_or_removed_is_found_by_the_other_rules(
    limit: int | None, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that run as another group hide their limits; removing one takes privileges."""
    with start(tmp_path, ESCAPES["setsid"], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        members = tree.labelled(mark, process.pid)
        real = resource.prlimit

        def prlimit(pid: int, *rest: Any) -> tuple[int, int]:
            if pid != sleeper:
                return real(pid, *rest)
            if limit is None:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return limit, limit

        monkeypatch.setattr(resource, "prlimit", prlimit)
        assert list(tree.find([members])) == [process.pid, sleeper]
        assert members.end(10.0)
        assert not is_alive(sleeper)


@pytest.fixture
def crowd() -> Iterator[list[int]]:
    """Three hundred processes that belong to no tree."""
    processes = [subprocess.Popen(["/bin/sleep", "300"]) for _ in range(300)]
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def reads(replace_steps: ReplaceSteps) -> list[str]:
    """The files of the process table that are read."""
    paths: list[str] = []
    real = tree._read  # pyright: ignore[reportPrivateUsage]

    def read(path: str) -> bytes:
        paths.append(path)
        return real(path)

    replace_steps(read_proc=read)
    return paths


def test_a_search_reads_the_files_of_few_strangers(
    crowd: list[int], tmp_path: Path, mark: str, reads: list[str]
) -> None:
    """Asking for limits and sessions is cheap; reading files is not."""
    with start(tmp_path, "", mark) as process:
        members = tree.labelled(mark, process.pid)
        reads.clear()
        assert list(tree.find([members])) == [process.pid]
        strangers = {int(path.split("/")[2]) for path in reads}.intersection(crowd)
        assert len(strangers) <= 200
        assert members.end(10.0)
        assert all(map(is_alive, crowd))


@pytest.mark.parametrize("last", ["", "1", "4000000"], ids=["unreadable", "wrapped", "faked"])
def test_labelling_reads_the_files_of_few_processes(
    last: str,
    crowd: list[int],
    tmp_path: Path,
    mark: str,
    reads: list[str],
    replace_steps: ReplaceSteps,
) -> None:
    """Labelling happens on the event loop, whatever the system says about its last process id."""
    real = tree._read  # pyright: ignore[reportPrivateUsage]

    def read(path: str) -> bytes:
        return last.encode() if path == "/proc/loadavg" else real(path)

    replace_steps(read_proc=read)
    with start(tmp_path, ESCAPES["setsid"], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        reads.clear()
        members = tree.labelled(mark, process.pid)
        assert members.label in resource.prlimit(sleeper, 10)
        assert len(reads) < 500
        assert members.end(10.0)
        assert all(map(is_alive, crowd))


def test_a_limit_that_is_in_use_is_left_alone(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    with subprocess.Popen(["/bin/sleep", "300"]) as process:
        assert tree.labelled(mark, process.pid).label == 0
        process.kill()


def test_a_system_that_does_not_allow_labels_is_searched_by_mark(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "prlimit", refuse)
    with start(tmp_path, ESCAPES["daemon"], mark) as process:
        members = tree.labelled(mark, process.pid)
        assert members.label == 0
        sleeper = pid_of_sleeper(tmp_path)
        assert members.end(10.0)
        assert not is_alive(sleeper)
        assert process.wait() == -SIGKILL


def test_a_process_table_that_cannot_be_read_is_not_taken_for_an_empty_one(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["/bin/sleep", "300"], env={MARK: mark}) as process:
        members = Tree(mark, process.pid)
        real, failures = os.listdir, [OSError(errno.EMFILE, "Too many open files")] * 2

        def listdir(path: str) -> list[str]:
            if failures:
                raise failures.pop()
            return real(path)

        monkeypatch.setattr(os, "listdir", listdir)
        with pytest.raises(OSError, match="Too many"):
            tree.find([members])
        assert members.end(10.0)
        assert process.wait() == -SIGKILL


def test_a_member_of_the_session_is_found_as_long_as_the_root_is_not_reaped(
    tmp_path: Path, mark: str
) -> None:
    """An orphan without its environment: nothing but the session tells whose it is."""
    with start(tmp_path, ESCAPES["bare orphan"], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        members = Tree(mark, process.pid)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(process.pid))
        assert list(tree.find([members])) == [sleeper]
        assert members.end(10.0)


def test_a_process_that_was_found_stays_found(tmp_path: Path, mark: str) -> None:
    with start(tmp_path, ESCAPES["bare setsid"], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        members = Tree(mark, process.pid)
        assert list(tree.find([members])) == [process.pid, sleeper]
        process.kill()
        process.wait()
        assert list(tree.find([members])) == [sleeper]
        assert members.end(10.0)
        assert not is_alive(sleeper)


def test_a_signal_goes_to_every_member_and_says_how_many(tmp_path: Path, mark: str) -> None:
    with start(tmp_path, ESCAPES["setsid"], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        members = Tree(mark, process.pid)
        assert members.signal(signal.SIGTERM) == 2
        assert process.wait() == -signal.SIGTERM
        assert is_alive(sleeper)
        assert members.signal(SIGKILL) == 1
        wait_until(lambda: not is_alive(sleeper))
        assert members.signal(SIGKILL) == 0


def test_the_mark_of_an_outer_tree_counts_too(tmp_path: Path, mark: str) -> None:
    with start(tmp_path, "", f"{mark}:{'0' * 32}") as process:
        wait_until(lambda: process.pid in tree.find([Tree(mark)]))
        assert Tree(mark).end(10.0)
        assert process.wait() == -SIGKILL


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {MARK: "another"},
        {MARK: "{mark}0"},
        {"OTHER": f"{MARK}={{mark}}"},
        {f"X{MARK}": "{mark}"},
    ],
    ids=["no mark", "other mark", "longer mark", "in a value", "other name"],
)
def test_a_process_without_the_mark_is_left_alone(variables: dict[str, str], mark: str) -> None:
    environ = {name: value.format(mark=mark) for name, value in variables.items()}
    with subprocess.Popen(["/bin/sleep", "300"], env=environ) as stranger:
        assert Tree(mark).end(1.0)
        assert Tree(mark, stranger.pid, started=1).end(1.0)  # the number was another's once
        assert is_alive(stranger.pid)
        stranger.kill()


def test_a_number_that_was_given_away_is_not_signalled(mark: str) -> None:
    with subprocess.Popen(["/bin/sleep", "300"]) as stranger:
        tree._signal(stranger.pid, 1, SIGKILL)  # pyright: ignore[reportPrivateUsage]
        assert is_alive(stranger.pid)
        stranger.kill()


def test_without_process_handles_the_number_is_used(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with subprocess.Popen(["/bin/sleep", "300"]) as process:
        assert Tree(mark, process.pid).end(10.0)
        assert process.wait() == -SIGKILL


def test_without_proc_the_process_group_is_reached(
    tmp_path: Path, mark: str, set_limits: SetLimits
) -> None:
    """R137, C56: as on macOS."""
    set_limits(has_proc=False)
    with start(tmp_path, ESCAPES["child"], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        members = Tree(mark, process.pid)
        assert (members.started, members.signal(0)) == (0, 1)
        assert members.signal(SIGKILL) == 1
        assert process.wait() == -SIGKILL
        wait_until(lambda: not is_alive(sleeper))
        assert members.end(10.0)
        assert Tree(mark).signal(SIGKILL) == 0  # not started: 0 is not a group to signal


def test_ending_gives_up_in_time(mark: str, replace_steps: ReplaceSteps) -> None:
    replace_steps(signal_process=lambda *_: None)
    with subprocess.Popen(["/bin/sleep", "300"], env={MARK: mark}) as process:
        begun = time.monotonic()
        assert not Tree(mark, process.pid).end(0.1)
        assert time.monotonic() - begun > 0.1
        process.kill()


def test_an_odd_process_name_is_read(tmp_path: Path, mark: str) -> None:
    odd = tmp_path / "a) Z 1 ("
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "300"]) as process:
        assert list(tree.find([Tree(mark, process.pid)])) == [process.pid]
        process.kill()


def test_a_long_environment_is_read_to_its_end(mark: str) -> None:
    long = {f"V{number}": "x" * 100_000 for number in range(3)}
    with subprocess.Popen(["/bin/sleep", "300"], env={**long, MARK: mark}) as process:
        wait_until(lambda: process.pid in tree.find([Tree(mark)]))
        process.kill()


# ---------------------------------------------------------------- what the watchdog does


def watch(records: bytes) -> None:
    """Tell a watchdog these records, then die."""
    reading, writing = os.pipe()
    os.write(writing, records)
    os.close(writing)
    try:
        tree.watch(reading)
    finally:
        os.close(reading)


def test_at_the_end_of_the_pipe_everything_guarded_is_ended(tmp_path: Path, mark: str) -> None:
    directory = tmp_path / "with a space"
    directory.mkdir()
    (directory / "0.json").touch()
    with start(tmp_path, ESCAPES["daemon"], mark) as process:
        sleeper = pid_of_sleeper(tmp_path)
        guarded = Tree(mark, process.pid)
        first = f"+ {mark} 0 0 0 {directory}\0"
        watch(f"{first}+ {mark} {guarded.pid} {guarded.started} 0 {directory}\0".encode())
        assert process.wait() == -SIGKILL
        assert not is_alive(sleeper)
        assert not directory.exists()


def test_a_tree_is_ended_at_once_on_request(mark: str) -> None:
    with subprocess.Popen(["/bin/sleep", "300"], env={MARK: mark}) as process:
        started = Tree(mark, process.pid).started
        watch(f"+ {mark} {process.pid} {started} 0 \0! never\0! {mark}\0- {mark}\0".encode())
        assert process.wait() == -SIGKILL


def test_what_was_released_or_only_half_said_is_left_alone(tmp_path: Path, mark: str) -> None:
    with start(tmp_path, "", mark) as process:
        watch(f"+ {mark} {process.pid} 0 0 {tmp_path}\0- {mark}\0- never\0+ {mark}".encode())
        assert is_alive(process.pid)
        assert tmp_path.exists()
        process.kill()


def test_removing_a_directory_takes_what_is_there(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "a").touch()
    tree.remove_directory(str(directory))
    tree.remove_directory(str(directory))
    tree.remove_directory("")
    assert list(tmp_path.iterdir()) == []
