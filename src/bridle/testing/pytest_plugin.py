"""Fixtures for tests of what is built on Bridle: `scripted_model`, `fake_cli`, `real_cli`.

Nothing of the kit is imported before a test asks for it. The variable `BRIDLE_TEST_CLIS` names
the CLIs to test with; a test that asks for `real_cli` runs once with each of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bridle.testing.fake_cli import FakeCli
    from bridle.testing.scripted_model import ScriptedModel

TEST_CLIS = "BRIDLE_TEST_CLIS"
"""Paths of CLIs, separated as those of PATH are."""

_NO_CLI = f"no CLI to test with: set {TEST_CLIS} to the path of one, or of several"


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
