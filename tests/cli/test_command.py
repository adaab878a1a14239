"""The command itself: its table, its help, and what it says to what it does not know."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from tests.support.steps import ReplaceSteps

from bridle.cli import COMMANDS, main
from bridle.testing import FakeCli


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main([]), main(["--help"]), main(["-h"]), main(["help"])] == [0, 0, 0, 0]
    out = capsys.readouterr().out
    assert all(out.count(f"{name:8}  {summary}") == 4 for name, (_, summary) in COMMANDS.items())


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("dcotor", "Did you mean `bridle doctor`?"),
        ("fix the bug", "bridle run"),
        ("\x1b[2J", "The commands are demo, run, doctor, verify, record, replay"),
        ("--verbose", "bridle --help"),
    ],
)
def test_an_unknown_command_is_met_with_help(
    word: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert hint in err
    assert "\x1b" not in err


def test_the_versions_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeCli().version("2.3.4 (Claude Code)") as fake:
        monkeypatch.setenv("BRIDLE_CLI", fake.path)
        assert main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("bridle 0.")
    assert lines[1] == f"claude 2.3.4 ({fake.path})"


@pytest.mark.parametrize(
    ("fake", "expected"),
    [(FakeCli().version("soon"), "claude of unknown version"), (None, "claude: not found")],
)
def test_a_version_is_reported_as_far_as_it_is_known(
    fake: FakeCli | None,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BRIDLE_CLI", fake.path if fake else "/nowhere/claude")
    assert main(["--version"]) == 0
    assert expected in capsys.readouterr().out


def test_a_command_is_imported_when_it_is_used() -> None:
    """Help must not wait for what it does not need, and Ctrl-C is minded while it is loaded."""
    source = "import sys, bridle.cli; bridle.cli.main([]); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    later = {"argparse", "asyncio", "logging", "rich", *(module for module, _ in COMMANDS.values())}
    assert loaded & later == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_keeps_the_contract(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module_name, summary = COMMANDS[name]
    module = import_module(module_name)
    assert callable(module.arguments)
    assert callable(module.main)
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert summary in " ".join(capsys.readouterr().out.split())


def test_an_interrupt_while_a_command_is_loaded_ends_it(
    replace_steps: ReplaceSteps, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    replace_steps(load_command=interrupted)
    assert main(["run", "hello"]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_while_the_module_is_loaded_ends_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "bridle.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "bridle.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(repository / "src/bridle/__main__.py"), run_name="__main__")
    assert caught.value.code == 130


def test_another_failure_of_the_system_is_not_taken_for_a_full_disk(
    replace_steps: ReplaceSteps,
) -> None:
    def failing(_: str) -> None:
        raise PermissionError(13, "no")

    replace_steps(load_command=failing)
    with pytest.raises(PermissionError):
        main(["run", "hello"])


def test_help_that_cannot_be_written_is_reported_in_a_line(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    command = [sys.executable, "-m", "bridle", "--help"]
    with full.open("wb", buffering=0) as out:
        run = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    said = "bridle: cannot write the output: No space left on device\n"
    assert (run.returncode, run.stderr) == (1, said)


def test_an_unknown_argument_is_a_mistake_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "--modle", "opus"])
    assert caught.value.code == 2
    assert "--modle" in capsys.readouterr().err


def test_the_script_and_the_module_are_the_same_command(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"bridle": "bridle.cli:main"}
    command = [sys.executable, "-m", "bridle", "nothing"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("bridle: unknown command 'nothing'.")


def test_the_extra_that_brings_the_cli_brings_the_live_view(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(extras["tui"]) < set(extras["cli"])
