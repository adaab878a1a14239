"""``.ci/run`` on machines that lack something: what it installs, and when it fails."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which

import pytest

REPOSITORY = Path(__file__).parents[2]

STUBS: dict[str, str | None] = {
    "id": "echo 0",
    "env": 'while [ "${1#*=}" != "$1" ]; do shift; done; "$@"',
    "apt-get": 'echo "apt-get $*" >>"$CALLS"; case "$*" in *"$BROKEN"*) exit 100; esac',
    "make": 'echo "make $*" >>"$CALLS"',
    "git": "",
    "npm": "",
    "chromium": "",
    "redis-server": "",
    "ls": "",
    "python3": "",
    "tee": "",
    "chmod": "",
    "rm": "",
}
"""The programs of a machine that lacks nothing. They change nothing but the list of calls."""

INSTALL = "apt-get install -qq -y --no-install-recommends "


def run_ci(
    place: Path, changed: dict[str, str | None], *, broken: str = "nothing"
) -> tuple[int, list[str]]:
    """Run it with these programs only. Return its exit code and what it has called."""
    programs = place / "bin"
    programs.mkdir()
    for name, text in (STUBS | changed).items():
        if text is not None:
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
    (programs / "dirname").symlink_to(str(which("dirname")))
    calls = place / "calls"
    calls.touch()
    environment = {"PATH": str(programs), "CALLS": str(calls), "BROKEN": broken}
    if broken.startswith("hosted "):
        environment |= {"GITHUB_ACTIONS": "true", "BROKEN": broken.removeprefix("hosted ")}
    done = subprocess.run(
        [str(which("bash")), str(REPOSITORY / ".ci" / "run")],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    found = calls.read_text().splitlines()
    return done.returncode, [one for one in found if one != "apt-get update -qq"]


def test_nothing_is_installed_on_a_machine_that_lacks_nothing(tmp_path: Path) -> None:
    assert run_ci(tmp_path, {}) == (0, ["make test test-all"])


@pytest.mark.parametrize("lacks", ["git", "python3"])
def test_a_bare_debian_gets_what_the_makefile_needs(tmp_path: Path, lacks: str) -> None:
    """Without python3-venv, python3 is there and has no ensurepip."""
    code, calls = run_ci(tmp_path, {lacks: "exit 1" if lacks == "python3" else None})
    needed = "ca-certificates git make python3 python3-venv"
    assert (code, calls) == (0, [f"{INSTALL}{needed}", "make test test-all"])


@pytest.mark.parametrize(
    ("lacks", "packages"),
    [("npm", "npm"), ("chromium", "chromium"), ("redis-server", "postgresql redis-server")],
)
def test_what_tests_need_is_installed(tmp_path: Path, lacks: str, packages: str) -> None:
    code, calls = run_ci(tmp_path, {lacks: None})
    assert (code, calls) == (0, [f"{INSTALL}{packages}", "make test test-all"])


def test_databases_may_be_missing_at_home_but_not_on_a_hosted_runner(tmp_path: Path) -> None:
    for number, (machine, code) in enumerate({"": 0, "hosted ": 1}.items()):
        place = tmp_path / str(number)
        place.mkdir()
        found, calls = run_ci(place, {"redis-server": None}, broken=f"{machine}install")
        assert (found, "make test test-all" in calls) == (code, code == 0)


@pytest.mark.parametrize("lacks", ["git", "npm", "chromium"])
def test_make_says_what_it_cannot_do_without(tmp_path: Path, lacks: str) -> None:
    """It may need neither, such as npm if the older CLI is there."""
    code, calls = run_ci(tmp_path, {lacks: None}, broken="install")
    assert (code, calls[-1]) == (0, "make test test-all")
