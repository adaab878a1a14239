"""What every test may rely on: where the repository is, and property tests that repeat exactly."""

from __future__ import annotations

import inspect
import os
import signal
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.costs import Costs
from tests.support.limits import SetLimits
from tests.support.processes import run
from tests.support.servers import PostgresServer, RedisServer, run_postgres, run_redis
from tests.support.steps import ReplaceSteps
from tests.support.tiers import mark_longer

from bridle._process.locate import candidates

REPOSITORY = Path(__file__).resolve().parent.parent

# The CLIs `make` provides, for the tests that ask the pytest plugin for real ones.
_WHEELS = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
_CLIS = [*_WHEELS, *REPOSITORY.glob(".clis/*/claude")]
os.environ.setdefault("BRIDLE_TEST_CLIS", os.pathsep.join(str(p) for p in _CLIS if p.exists()))

# A job that a shell started in the background ignores Ctrl-C, and so would what the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The suite gives the same verdict twice in a row; looking for new cases is what the simulation
# and the fuzzers are for. No deadline: a shared machine is slow now and then.
settings.register_profile(
    "bridle",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # as above: it measures seconds
)
settings.load_profile("bridle")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    parser.addoption("--costs", action="store_true", help="print the CPU seconds of the tests")
    parser.addoption("--costs-file", type=Path, help="also write them to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Give this process a home of its own, and measure what tests cost if that is wanted.

    Tests in other processes use the same ids of sessions, and locks of sessions lie in the home.
    """
    home = tempfile.TemporaryDirectory(prefix="bridle-home-")
    config.add_cleanup(home.cleanup)
    os.environ["HOME"] = home.name
    if config.getoption("costs"):
        config.pluginmanager.register(Costs(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves out, before `-m` selects by marks."""
    mark_longer(items)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test on a loop of its own, for a bounded time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run(lambda: pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture
def set_limits(monkeypatch: pytest.MonkeyPatch) -> SetLimits:
    """Other limits and clocks for this test."""
    return SetLimits(monkeypatch)


@pytest.fixture
def replace_steps(monkeypatch: pytest.MonkeyPatch) -> ReplaceSteps:
    """Steps of the shell that this test delays, watches or makes fail."""
    return ReplaceSteps(monkeypatch)


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
