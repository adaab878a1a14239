"""What `make setup` downloads: after a failure it is tried again, not taken for complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TARGETS = (".clis/2.1.197", ".clis/declarations")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose environment is installed, and which has the programs of bin/."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    shutil.copytree(REPOSITORY / "tools", tmp_path / "tools")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / ".installed").touch()
    (tmp_path / "bin").mkdir()
    for name in ("make", "mkdir", "touch", "sh", "sed"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def make(checkout: Path, target: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(checkout / "bin"), "HOME": os.environ.get("HOME", "/")}
    command = ["make", f"PYTHON={sys.executable}", target]
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_download_that_failed_is_tried_again(checkout: Path, target: str) -> None:
    npm = checkout / "bin" / "npm"
    npm.write_text("#!/bin/sh\necho 'npm: no network' >&2\nexit 1\n")
    npm.chmod(0o755)
    for _ in range(2):
        done = make(checkout, target)
        assert done.returncode != 0
        assert "no network" in done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_without_npm_the_next_make_looks_for_it_again(checkout: Path, target: str) -> None:
    for _ in range(2):
        done = make(checkout, target)
        assert done.returncode == 0, done.stderr
        assert "no npm" in done.stderr
