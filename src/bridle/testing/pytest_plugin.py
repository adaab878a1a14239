"""Fixtures to test programs that use Bridle: `scripted_model`, `fake_cli`, `real_cli`, `cassette`.

The test kit is imported when a test first uses it. The variable `BRIDLE_TEST_CLIS` names the CLIs
to test with. A test that uses `real_cli` runs once with each of them. The option `--bridle-record`
records all cassettes again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bridle.testing.cassette import Cassette
    from bridle.testing.fake_cli import FakeCli
    from bridle.testing.scripted_model import ScriptedModel

TEST_CLIS = "BRIDLE_TEST_CLIS"
"""Paths of CLIs, separated like the entries of PATH."""

_NO_CLI = f"no CLI to test with: set {TEST_CLIS} to the path of a CLI, or to several paths"


_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--bridle-record`."""
    parser.getgroup("bridle").addoption(
        "--bridle-record",
        action="store_true",
        help="Run the tests that use the cassette fixture on the real CLI and record them again.",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test passed, for its cassette."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def named_clis() -> list[Path]:
    """Return the CLIs to test with. Raise if one does not exist, so a typo cannot skip tests."""
    paths = [Path(name) for name in os.environ.get(TEST_CLIS, "").split(os.pathsep) if name]
    for path in paths:
        if not os.access(path, os.X_OK) or path.is_dir():
            raise pytest.UsageError(f"{TEST_CLIS}: {path} is not an executable file")
    return paths


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `real_cli` once with each CLI."""
    paths = named_clis() if "real_cli" in metafunc.fixturenames else []
    if paths:
        ids = [f"cli{number}" for number in range(len(paths))]
        metafunc.parametrize("real_cli", paths, indirect=True, ids=ids)


@pytest.fixture
def real_cli(request: pytest.FixtureRequest) -> Path:
    """Return the path of a real CLI. Without one, the test is skipped."""
    path: Path | None = getattr(request, "param", None)
    if path is None:
        pytest.skip(_NO_CLI)
    return path


@pytest.fixture
def scripted_model() -> Generator[Callable[..., ScriptedModel]]:
    """Start models: `model = scripted_model([[text("hi")]])`, with the options of ScriptedModel.

    The models stop at the end of the test. The test fails if a request had no turn in its script.
    """
    from bridle.testing.scripted_model import ScriptedModel

    with contextlib.ExitStack() as running:

        def start(*script: Any, **options: Any) -> ScriptedModel:
            return running.enter_context(ScriptedModel(*script, **options))

        yield start


@pytest.fixture
def fake_cli() -> FakeCli:
    """Return a fake CLI with an empty script.

    Every method returns a new fake CLI and does not change this one. Write
    `cli = fake_cli.expect_initialize()`, then use `cli`. Call `cli.check()` at the end of the test:
    the fixture does not do that.
    """
    from bridle.testing.fake_cli import FakeCli

    return FakeCli()


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Generator[Cassette]:
    """Record the sessions of the test in the first run, and replay them in later runs.

    Use it as `sync.run("Say hello.", sdk=SdkOptions(recorder=cassette))`. The first run needs the
    real CLI. The files are in the directory `cassettes` beside the test. A test that fails records
    nothing. A test fails if its sessions differ from the recording. `--bridle-record` records
    again.
    """
    from bridle.testing.cassette import Cassette

    temporary = "tmp_path" in request.fixturenames
    made = Cassette(
        request.path.parent
        / "cassettes"
        / request.path.stem
        / f"{_file_name(request.node)}.ndjson",
        record=True if request.config.getoption("--bridle-record") else None,
        directories={"tmp_path": request.getfixturevalue("tmp_path")} if temporary else None,
    )
    yield made
    made.finish(passed=request.node.stash.get(_PASSED, False))


def _file_name(item: pytest.Item) -> str:
    """Return a file name for a test: its own name, with special characters replaced."""
    name = ".".join(item.nodeid.split("::")[1:])
    plain = re.sub(r"[^\w.=,\[\]-]", "_", name)[:150]
    # Two parameters may become equal without their special characters.
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
