"""Programs for the official SDK do the same on the drop-in.

Each program in `programs` is run twice, on the real CLI with a scripted model: on the official
package, and with `bridle.compat.install()`. What it prints, the messages that it receives and the
requests that reach the model must be equal, apart from ids, paths and times. A program that uses
`anyio.run` is run on trio, too. `make test` runs some of them, `make test-all` all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.sdk_runs import OLDER_CLI, Program, difference, newest_cli, run

PROGRAMS = {path.stem: path for path in sorted(Path(__file__).parent.glob("programs/*.py"))}
SOAK = bool(os.environ.get("BRIDLE_SOAK"))

ALWAYS = {
    ("hook_block_command", "asyncio"),
    ("mcp_calculator", "asyncio"),
    ("store_mirror", "asyncio"),
}
"""The programs that `make test` runs, and on what: a guard, tools, and a query with a store."""

GUARDS = [
    "hook_failure_blocks",
    "hook_failure_closed",
    "hook_reason_no_string",
    "hook_timeout",
    "hook_timeout_permission",
    "permission_edited_in_place",
    "permission_fails",
]
"""Programs that print whether something was prevented."""


def cases() -> Iterator[Any]:
    """Yield each program with each backend that it runs on."""
    for name, path in PROGRAMS.items():
        for backend in Program.read(path).backends:
            marks = [] if (name, backend) in ALWAYS else [pytest.mark.longer]
            yield pytest.param(name, backend, id=f"{name}-{backend}", marks=marks)


needs_cli = pytest.mark.skipif(
    newest_cli() is None, reason="the official SDK is not installed: `make setup` installs it"
)
needs_soak = pytest.mark.skipif(not SOAK, reason="takes minutes: `make soak` runs it")


@needs_cli
@pytest.mark.parametrize(("name", "backend"), list(cases()))
def test_a_program_does_the_same_on_the_drop_in(name: str, backend: str, tmp_path: Path) -> None:
    program = Program.read(PROGRAMS[name])
    # The directories have names of one length: the CLI counts tokens of paths.
    official = run(program, "official", backend, tmp_path / "a")
    assert official.exit_code == 0, official.stderr
    ours = run(program, "drop-in", backend, tmp_path / "b")
    assert ours.exit_code == 0, ours.stderr
    assert difference(ours, official) == ""


@pytest.mark.longer
@needs_cli
@pytest.mark.skipif(
    not OLDER_CLI.exists(), reason="CLI 2.1.197 is not installed: `make setup` fetches it"
)
@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_guards_on_the_older_cli(name: str, tmp_path: Path) -> None:
    program = Program.read(PROGRAMS[name])
    official = run(program, "official", "asyncio", tmp_path / "a")
    ours = run(program, "drop-in", "asyncio", tmp_path / "b", OLDER_CLI)
    assert (ours.exit_code, official.exit_code) == (0, 0), ours.stderr
    assert ours.printed == official.printed


@needs_cli
@needs_soak
@pytest.mark.parametrize("name", sorted({name for name, _ in ALWAYS}))
def test_a_program_does_the_same_when_it_is_run_again(name: str, tmp_path: Path) -> None:
    """Otherwise the comparison above would show differences that mean nothing."""
    program = Program.read(PROGRAMS[name])
    first, second = (run(program, "official", "asyncio", tmp_path / again) for again in "ab")
    assert difference(first, second) == ""


def test_the_programs_cover_every_part_of_the_sdk() -> None:
    assert len(PROGRAMS) >= 60
    assert {case.values for case in cases() if not case.marks} == ALWAYS
    parts = {name.partition("_")[0] for name in PROGRAMS}
    assert parts >= {
        *("agent", "ask", "client", "error", "hook", "mcp", "options", "partial", "permission"),
        *("session", "store", "stream", "structured", "transport"),
    }
