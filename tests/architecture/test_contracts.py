"""The import contracts of pyproject.toml hold, and each of them can fail."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import house


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of `root` on the sources of `root`."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_contracts_hold(repository: Path) -> None:
    """R456, R461: imports point down only, without cycles, and the core touches no I/O."""
    run = lint_imports(repository)
    assert run.returncode == 0, run.stdout


def test_every_pure_module_is_under_the_purity_contract(
    repository: Path, pure_modules: dict[str, ast.Module]
) -> None:
    settings = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [purity] = [contract for contract in contracts if contract["id"] == "purity"]
    covered = set(purity["source_modules"])
    names = {f"bridle.{name.removesuffix('.py')}".replace("/", ".") for name in pure_modules}
    used = {one for one in covered if any(f"{name}.".startswith(f"{one}.") for name in names)}
    assert used == covered
    assert [
        name for name in names if not any(f"{name}.".startswith(f"{one}.") for one in covered)
    ] == []


def test_every_private_module_is_behind_the_wall(repository: Path) -> None:
    settings = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [wall] = [contract for contract in contracts if contract["id"] == "wall"]
    private = {
        re.sub(r"(\._\w+).*", r"\1", name)
        for name in map(house.dotted, house.house())
        if house.is_private(name)
    }
    assert set(wall["forbidden_modules"]) == private - {"bridle.__main__", "bridle._spi"}
    assert {f"bridle.{name}" for name in house.ANNEXES} == set(wall["source_modules"])


@pytest.mark.longer(after=2)
@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("errors/_redaction", "import bridle.options", "Inside the vocabulary"),
        ("content", "def late():\n    import bridle._engine.engine", "Imports point down only"),
        ("unplaced", "", "Imports point down only"),
        ("_engine/unplaced", "", "Inside the engine"),
        ("_engine/wire/framing", "import bridle._engine.engine", "Inside the engine"),
        ("_engine/engine", "import asyncio", "The core and the vocabulary are pure"),
        ("sessions/_recovery", "import time", "The core and the vocabulary are pure"),
        ("outcomes", "import os", "The core and the vocabulary are pure"),
        ("cli/exits", "import bridle._process.tree", "Annexes import public names and bridle._spi"),
    ],
    ids=[
        "up",
        "up-in-function",
        "unplaced",
        "unplaced-core",
        "up-core",
        "loop",
        "clock",
        "os",
        "wall",
    ],
)
def test_a_planted_violation_breaks_its_contract(
    module: str, line: str, broken: str, repository: Path, tmp_path: Path
) -> None:
    # Other tests write compiled files meanwhile.
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(repository / "src", tmp_path / "src", ignore=compiled)
    shutil.copy(repository / "pyproject.toml", tmp_path)
    with (tmp_path / "src/bridle" / f"{module}.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    run = lint_imports(tmp_path)
    assert run.returncode == 1
    assert f"{broken} BROKEN" in run.stdout
