"""Fixtures for tests of programs that use Bridle: `scripted_model`, `fake_cli`, `real_cli`,
`cassette`.

Nothing of the kit is imported before a test asks for it. The variable `BRIDLE_TEST_CLIS` names
the CLIs to test with; a test that asks for `real_cli` runs once with each of them. The option
`--bridle-record` records cassettes anew.
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
"""Paths of CLIs, separated as those of PATH are."""

_NO_CLI = f"no CLI to test with: set {TEST_CLIS} to the path of one, or of several"


_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--bridle-record`."""
    parser.getgroup("bridle").addoption(
        "--bridle-record",
        action="store_true",
        help="Run the tests that use the cassette fixture on the real CLI and record them anew.",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passed, for its cassette."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def named_clis() -> list[Path]:
    """The CLIs to test with. Raises for a path that leads nowhere: a typo must not skip tests."""
    paths = [Path(name) for name in os.environ.get(TEST_CLIS, "").split(os.pathsep) if name]
    for path in paths:
        if not os.access(path, os.X_OK) or path.is_dir():
            raise pytest.UsageError(f"{TEST_CLIS}: {path} is not an executable file")
    return paths


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `real_cli` once with each CLI."""
    paths = named_clis() if "real_cli" in metafunc.fixturenames else []
    if paths:
        ids = [f"cli{number}" for number in range(len(paths))]
        metafunc.parametrize("real_cli", paths, indirect=True, ids=ids)


@pytest.fixture
def real_cli(request: pytest.FixtureRequest) -> Path:
    """The path of a real CLI; without one, the test is skipped."""
    path: Path | None = getattr(request, "param", None)
    if path is None:
        pytest.skip(_NO_CLI)
    return path


@pytest.fixture
def scripted_model() -> Generator[Callable[..., ScriptedModel]]:
    """Starts models: `model = scripted_model([[text("hi")]])`, with the options of the class.

    They end with the test, and what no script foresaw fails it.
    """
    from bridle.testing.scripted_model import ScriptedModel

    with contextlib.ExitStack() as running:

        def start(*script: Any, **options: Any) -> ScriptedModel:
            return running.enter_context(ScriptedModel(*script, **options))

        yield start


@pytest.fixture
def fake_cli() -> FakeCli:
    """A fake CLI without a line in its script yet.

    Every method returns a new one and leaves this as it is: `cli = fake_cli.expect_initialize()`,
    then use `cli`. Nobody checks it for the test: call `cli.check()` at the end.
    """
    from bridle.testing.fake_cli import FakeCli

    return FakeCli()


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Generator[Cassette]:
    """Records the test's sessions on the real CLI the first time, and replays them from then on.

    `sync.run("Say hello.", sdk=SdkOptions(recorder=cassette))`. The files are in the directory
    `cassettes` beside the test. A test that fails records nothing, and one whose sessions differ
    from the recording fails. `--bridle-record` records anew.
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
    """Return a name for the file of a test: its own, without what a file cannot be called."""
    name = ".".join(item.nodeid.split("::")[1:])
    plain = re.sub(r"[^\w.=,\[\]-]", "_", name)[:150]
    # Two parameters may look the same without their special characters.
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
