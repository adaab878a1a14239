"""`import bridle` is cheap: what it loads is counted in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridle.testing import FakeCli

LOADED = """
import sys
before = set(sys.modules)
{statement}
print(*sorted(set(sys.modules) - before))
"""
HEAVY = {
    "asyncio",
    "concurrent",
    "dataclasses",
    "inspect",
    "json",
    "logging",
    "multiprocessing",
    "pathlib",
    "random",
    "selectors",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "urllib",
    "uuid",
}


def loaded_by(statement: str) -> set[str]:
    """Top-level names of the modules a statement adds to a fresh interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return {name.partition(".")[0] for name in run.stdout.split()}


def test_importing_bridle_loads_one_third_party_package() -> None:
    """What msgspec brings along is its own affair."""
    added = loaded_by("import bridle") - loaded_by("import msgspec")
    assert added - sys.stdlib_module_names == {"bridle"}


def test_all_of_bridle_runs_on_asyncio_alone() -> None:
    """R471: every name that `bridle` exports, with the code behind it, and the blocking twins."""
    added = loaded_by("from bridle import *; import bridle.sync") - loaded_by("import msgspec")
    assert "asyncio" in added
    assert added - sys.stdlib_module_names == {"bridle"}


@pytest.mark.parametrize("module", ["bridle.errors", "bridle.options", "bridle._engine.engine"])
def test_the_pure_modules_load_nothing_heavy(module: str, package: Path) -> None:
    """R395, R460: neither errors nor the engine bring a runtime along."""
    path = package / module.partition(".")[2].replace(".", "/")
    assert path.is_dir() or path.with_suffix(".py").exists()
    assert (loaded_by(f"import {module}") - loaded_by("import msgspec")) & HEAVY == set()


def test_a_heavy_import_would_be_seen() -> None:
    assert loaded_by("import asyncio") & HEAVY >= {"asyncio", "selectors"}


SESSION = """
import asyncio, bridle, sys
async def main():
    async with bridle.start_session(cli_path=sys.argv[1]):
        pass
asyncio.run(main())
print(*sys.modules)
"""


def test_a_session_without_a_store_does_not_load_the_stores() -> None:
    with FakeCli.auto() as cli:
        run = subprocess.run(
            [sys.executable, "-c", SESSION, cli.path], capture_output=True, text=True, check=True
        )
    loaded = run.stdout.split()
    assert "bridle._session.session" in loaded
    assert [
        name for name in loaded if name.startswith(("bridle.sessions", "json", "sqlite3"))
    ] == []
