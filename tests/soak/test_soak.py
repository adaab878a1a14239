"""Hundreds of sessions, ended in every way, on every CLI. Long, so only when asked for.

``BRIDLE_SOAK=1`` asks for it, as ``make soak`` does; another number is the seed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridle._process.locate import candidates

SEED = os.environ.get("BRIDLE_SOAK", "")
REPOSITORY = Path(__file__).parents[2]
OLDER = REPOSITORY / ".clis" / "2.1.197" / "claude"

pytestmark = pytest.mark.skipif(not SEED, reason="takes minutes: `make soak` runs it")


def soak(directory: Path, *arguments: str) -> None:
    """Run the program with warnings as errors; it must have nothing to say but ok."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.soak.endings",
         "--seed", SEED, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=1200,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    # A real CLI keeps a directory of its own there, one for each user.
    left = [path.name for path in directory.iterdir() if not path.name.startswith("claude-")]
    assert left == []


@pytest.mark.parametrize("at_once", ["1", "25"])
def test_hundreds_of_sessions_on_the_fake_cli_leave_nothing(tmp_path: Path, at_once: str) -> None:
    """R356, R359, R362."""
    soak(tmp_path, "--sessions", "500" if at_once == "25" else "100", "--at-once", at_once)


@pytest.mark.parametrize("age", ["newest", "older"])
def test_dozens_of_sessions_on_a_real_cli_leave_nothing(tmp_path: Path, age: str) -> None:
    """R356, R359, R362."""
    wheels = [Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk"]
    path = OLDER if age == "older" else next((one for one in wheels if one.exists()), None)
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")
    soak(tmp_path, "--sessions", "40", "--at-once", "4", "--cli", str(path))


CROWD = """
import asyncio, os, resource
from tests.soak.sessions import options
from bridle import start_session
from bridle.testing import FakeCli

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    with FakeCli.auto() as cli:
        sessions = [await start_session(options(cli)) for _ in range(300)]
        turns = [await session.send_user_message("go") for session in sessions]
        outcomes = await asyncio.gather(*turns)
        print(sum(outcome.ok for outcome in outcomes), len(os.listdir("/proc/self/fd")) <= 940)
        await asyncio.gather(*(session.aclose() for session in sessions))

asyncio.run(main())
"""


def test_three_hundred_sessions_fit_into_the_usual_limit_of_descriptors() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CROWD], cwd=REPOSITORY, capture_output=True, text=True, timeout=600
    )
    assert (done.stdout, done.stderr) == ("300 True\n", "")
