"""The CLI is found where the user would expect it, and asked for its version."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import Programs, is_alive, plan, run, until
from tests.support.steps import ReplaceSteps

import bridle.compat
from bridle._engine.versions import Version
from bridle._process import locate, tree
from bridle._process.locate import (
    Candidate,
    Failed,
    TimedOut,
    Unreadable,
    candidates,
    find_cli,
    version_of,
)
from bridle._process.process import CliProcess, _live  # pyright: ignore[reportPrivateUsage]
from bridle.compat import claude_agent_sdk
from bridle.errors import CliNotFoundError, SpawnError

HOME_PLACES = (
    ".claude/local", ".npm-global/bin", ".local/bin", "node_modules/.bin", ".yarn/bin"
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Two directories on PATH, the first of which does not exist."""
    return {"PATH": f"{tmp_path}/absent::{tmp_path}/bin", "HOME": "/nowhere"}


@pytest.fixture(autouse=True)
def no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> None:
    """An installed claude-agent-sdk is out of sight, and the places of the machine are empty."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)  # other tests import it
    places = [place for place in locate._USUAL if place.startswith("~")]  # pyright: ignore[reportPrivateUsage]
    set_limits(usual_places_of_cli=places)


def install(path: Path, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(mode)
    return str(path)


# ---------------------------------------------------------------- finding


def test_the_first_place_that_has_one_wins(
    tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    """R131, R134, R135, R139: installed from the last place to the first, each wins in turn."""
    bundled = tmp_path / "site/claude_agent_sdk/_bundled/claude"
    usual = [home / place / "claude" for place in HOME_PLACES[1:]]
    places = [home / ".claude/local/claude", tmp_path / "bin/claude", *usual, bundled]
    for path in reversed(places):
        installed = install(path)
        assert find_cli(environ=environ, home=str(home)) == installed


def test_places_are_listed_in_order_with_what_is_there(
    tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    on_path = install(tmp_path / "bin/claude", 0o644)
    bundled = install(tmp_path / "site/claude_agent_sdk/_bundled/claude")
    listed = list(candidates(environ, str(home)))
    assert listed == [
        Candidate(f"{home}/.claude/local/claude", "local install"),
        Candidate(f"{tmp_path}/absent/claude", "PATH"),
        Candidate(on_path, "PATH"),
        *(Candidate(f"{home}/{place}/claude", "usual place") for place in HOME_PLACES[1:]),
        Candidate(bundled, "claude-agent-sdk"),
    ]
    assert [place.path for place in listed if place.is_file] == [on_path, bundled]
    assert [place.path for place in listed if place.is_usable] == [bundled]


def test_the_wheel_is_found_without_importing_it(
    tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    bundled = install(tmp_path / "site/claude_agent_sdk/_bundled/claude")
    (tmp_path / "site/claude_agent_sdk/__init__.py").write_text("raise SystemExit")
    assert find_cli(environ=environ, home=str(home)) == bundled
    assert "claude_agent_sdk" not in sys.modules


def test_the_wheel_is_found_although_the_drop_in_replaces_its_module(
    tmp_path: Path, home: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = install(tmp_path / "site/claude_agent_sdk/_bundled/claude")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    bridle.compat.install()
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", claude_agent_sdk)
    assert find_cli(environ=environ, home=str(home)) == bundled


def test_a_module_made_by_hand_in_place_of_the_wheel_is_ignored(
    home: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", type(sys)("claude_agent_sdk"))
    with pytest.raises(CliNotFoundError):
        find_cli(environ=environ, home=str(home))


def test_what_cannot_be_run_is_passed_over(
    tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    install(home / ".claude/local/claude", 0o644)
    (tmp_path / "bin/claude").mkdir(parents=True)
    found = install(home / ".local/bin/claude")
    assert find_cli(environ=environ, home=str(home)) == found


def test_not_found_names_every_place(home: Path, environ: dict[str, str]) -> None:
    """R133."""
    with pytest.raises(CliNotFoundError) as caught:
        find_cli(environ=environ, home=str(home))
    assert list(caught.value.searched) == [place.path for place in candidates(environ, str(home))]


def test_the_machines_usual_places_come_after_path(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C44."""
    monkeypatch.undo()
    listed = list(candidates(environ))
    origins = [place.origin for place in listed]
    usual = [place.path for place in listed if place.origin == "usual place"]
    assert origins[:4] == ["local install", "PATH", "PATH", "usual place"]
    assert {"/usr/local/bin/claude", "/opt/homebrew/bin/claude"} < set(usual)
    assert listed[0].path == os.path.expanduser("~/.claude/local/claude")


# ---------------------------------------------------------------- a named one


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_named_one_is_used_whatever_else_there_is(
    by: str, tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    """R132, R431, C44."""
    install(home / ".claude/local/claude")
    named = install(tmp_path / "else/where")
    if by == "argument":
        environ["BRIDLE_CLI"] = "/nowhere"
        assert find_cli(named, environ=environ, home=str(home)) == named
    else:
        environ["BRIDLE_CLI"] = named
        assert find_cli(environ=environ, home=str(home)) == named


@pytest.mark.parametrize("name", ["~/other/claude", "./other/claude", "other"])
def test_a_name_is_read_as_a_shell_would(
    name: str, tmp_path: Path, home: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    install(tmp_path / "bin/other")
    install(home / "other/claude")
    expected = tmp_path / "bin/other" if name == "other" else home / "other/claude"
    assert find_cli(name, environ=environ, home=str(home)) == str(expected)


@pytest.mark.parametrize("name", ["/nowhere/claude", "nothing"])
def test_a_named_cli_that_does_not_exist_is_not_replaced(
    name: str, tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    """C44."""
    install(home / ".claude/local/claude")
    places = [f"{tmp_path}/absent/nothing", f"{tmp_path}/bin/nothing"]
    with pytest.raises(CliNotFoundError) as caught:
        find_cli(name, environ=environ, home=str(home))
    assert list(caught.value.searched) == ([name] if name[0] == "/" else places)


def test_a_named_one_that_cannot_be_run_says_so(
    tmp_path: Path, home: Path, environ: dict[str, str]
) -> None:
    plain = install(tmp_path / "plain", 0o644)
    for name, reason in ((plain, "Not executable"), (str(tmp_path), "Not a file")):
        with pytest.raises(SpawnError) as caught:
            find_cli(name, environ=environ, home=str(home))
        assert caught.value.os_error == f"{reason}: {name}"
        assert caught.value.errno == errno.EACCES


# ---------------------------------------------------------------- versions


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("echo '2.1.3 (Claude Code)'", Version(2, 1, 3)),
        ("echo 2.1.3; exit 1", Version(2, 1, 3)),
        ("echo; echo unknown; echo 1.2.3 >&2", Unreadable("unknown")),
        ("exit 0", Unreadable("")),
        ("exit 3", Failed("exit code 3")),
        ("echo oops; exit 3", Failed("exit code 3: oops")),
        ("echo oops; echo node is missing >&2; exit 127", Failed("exit code 127: node is missing")),
        ("kill -9 $$", Failed("exit code -9")),
        ('[ "$*" = --version ] && echo 1.0.0', Version(1, 0, 0)),
        ("cat; echo 1.0.0", Version(1, 0, 0)),
    ],
)
def test_the_answer_is_data(source: str, answer: locate.VersionAnswer, programs: Programs) -> None:
    """R141, R143, R145: what is made of it is not decided here."""
    assert run(lambda: version_of(programs.shell(source))) == answer


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (Failed("a secret reason"), ("--version failed: a *** reason", True)),
        (TimedOut(2.0), ("the CLI did not answer --version within 2 s", False)),
        (Unreadable("no secret"), ("--version printed 'no ***', which is not a version", False)),
        (Unreadable(""), ("--version printed nothing", False)),
    ],
)
def test_an_answer_is_shown_without_secrets(
    answer: Failed | TimedOut | Unreadable, shown: tuple[str, bool]
) -> None:
    assert answer.shown(lambda text: text.replace("secret", "***")) == shown


def test_a_long_answer_is_cut(programs: Programs) -> None:
    answer = run(lambda: version_of(programs.shell("yes x | head -c 300000")))
    assert isinstance(answer, Unreadable)
    assert len(answer.text) == 500


def test_one_that_cannot_be_asked_says_why(programs: Programs) -> None:
    """R145."""
    plain = programs.write("plain", "", 0o644)
    assert run(lambda: version_of(plain)) == Failed(f"Permission denied: {plain}")
    missing = "/nowhere/claude"
    assert run(lambda: version_of(missing)) == Failed(f"No such file or directory: {missing}")


@pytest.mark.skipif(not tree.PROC, reason="needs /proc")
def test_one_that_does_not_answer_is_ended(programs: Programs, tmp_path: Path) -> None:
    """R140, R144."""
    program = programs.shell(f"sleep 300 & echo $! $$ >{tmp_path}/pids; wait")
    assert run(lambda: version_of(program, timeout=0.5)) == TimedOut(0.5)
    assert not any(is_alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())


async def test_each_caller_has_its_own_timeout(programs: Programs) -> None:
    program = programs.shell("sleep 0.6; echo 2.1.7")
    hasty, patient = version_of(program, timeout=0.1), version_of(program, timeout=20.0)
    first, second = await asyncio.gather(hasty, patient)
    assert (first, second) == (TimedOut(0.1), Version(2, 1, 7))


def test_a_version_is_asked_for_once_until_the_file_changes(
    programs: Programs, tmp_path: Path
) -> None:
    def counting(version: str) -> str:
        return programs.shell(f"echo x >>{tmp_path}/count; echo {version}")

    async def both() -> tuple[locate.VersionAnswer, locate.VersionAnswer]:
        first = asyncio.create_task(version_of(program))
        return await version_of(program), await first

    program = counting("2.0.1")
    assert run(both) == (Version(2, 0, 1), Version(2, 0, 1))
    assert run(lambda: version_of(program)) == Version(2, 0, 1)
    assert (tmp_path / "count").read_text() == "x\n"
    counting("2.0.12")
    assert run(lambda: version_of(program)) == Version(2, 0, 12)
    assert (tmp_path / "count").read_text() == "x\n" * 2


def test_no_answer_is_not_remembered(programs: Programs, tmp_path: Path) -> None:
    program = programs.shell(f"cat {tmp_path}/version")
    assert isinstance(run(lambda: version_of(program)), Failed)
    (tmp_path / "version").write_text("2.0.0")
    assert run(lambda: version_of(program)) == Version(2, 0, 0)


async def test_giving_up_waiting_does_not_take_the_answer_from_others(programs: Programs) -> None:
    program = programs.shell("sleep 0.05; echo 2.2.2")
    first = asyncio.create_task(version_of(program))
    second = asyncio.create_task(version_of(program))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == Version(2, 2, 2)


def test_a_program_that_ends_meanwhile_waits_until_it_has_ended(
    programs: Programs, replace_steps: ReplaceSteps
) -> None:
    program = programs.shell("exec sleep 300")
    end_tree = CliProcess._end_tree  # pyright: ignore[reportPrivateUsage]
    ended: list[bool] = []

    async def end_slowly(process: CliProcess) -> bool:
        await asyncio.sleep(0.05)
        ended.append(await end_tree(process))
        return ended[-1]

    async def main() -> None:
        asking.append(asyncio.create_task(version_of(program, timeout=60.0)))
        await until(lambda: _live)

    asking: list[asyncio.Task[locate.VersionAnswer]] = []
    replace_steps(end_process_tree=end_slowly)
    for count in range(1, 11):  # a loop that ends cancels its tasks in any order
        run(main)
        assert (ended, len(_live)) == ([True] * count, 0)
    assert all(task.cancelled() for task in asking)


def test_it_is_asked_in_the_environment_of_the_launch(programs: Programs, tmp_path: Path) -> None:
    program = programs.shell('[ "$A$B$(pwd -P)" = "1$PWD" ] && echo 2.0.0 || echo "$A$B $(pwd)"')
    launch = plan(argv=("--x=1",), inherit_env=("A",), cwd=str(tmp_path))
    asked = version_of(program, launch, environ={"A": "1", "B": "2"})
    assert asyncio.run(asked) == Version(2, 0, 0)
