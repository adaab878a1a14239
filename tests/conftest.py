"""What every test may rely on: where the repository is, and property tests that repeat exactly."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support.servers import PostgresServer, RedisServer, run_postgres, run_redis

from bridle._shell.locate import candidates

REPOSITORY = Path(__file__).resolve().parent.parent

# The CLIs `make` provides, for the tests that ask the pytest plugin for real ones.
_WHEELS = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
_CLIS = [*_WHEELS, *REPOSITORY.glob(".clis/*/claude")]
os.environ.setdefault("BRIDLE_TEST_CLIS", os.pathsep.join(str(p) for p in _CLIS if p.exists()))

# The suite gives the same verdict twice in a row; looking for new cases is what the simulation
# and the fuzzers are for. No deadline: a shared machine is slow now and then.
settings.register_profile("bridle", derandomize=True, deadline=None)
settings.load_profile("bridle")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server. A test that stops it must start it again."""
    yield from run_postgres()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server. A test that stops it must start it again."""
    yield from run_redis()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many requirements there are after every run."""
    content = tomllib.loads((REPOSITORY / "tests/requirements.toml").read_text("utf-8"))
    retired = len(content["retired"])
    kept = len(content["requirements"]) - retired
    terminalreporter.write_line(f"requirements: {kept} kept, {retired} retired")
