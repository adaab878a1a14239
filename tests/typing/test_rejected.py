"""mypy and pyright reject wrong keywords, callbacks and deps: exactly those in the files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((Path(__file__).parent / "rejected").glob("*.py"))
COMMENT = re.compile(r"# mypy: (?P<mypy>[\w, -]+); pyright: (?P<pyright>[\w, ]+)$")


def expected(path: Path, checker: str) -> dict[int, str]:
    """Return the rules that the comments of a file name, by line."""
    lines = enumerate(path.read_text("utf-8").splitlines(), 1)
    return {number: found[checker] for number, line in lines if (found := COMMENT.search(line))}


def by_mypy(path: Path) -> dict[int, set[str]]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500)
    errors = re.findall(r":(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    return collected((int(line), rule) for line, rule in errors)


def by_pyright(path: Path) -> dict[int, set[str]]:
    # The configuration of the repository excludes these files, so they are checked elsewhere.
    config = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (path.parent / "pyrightconfig.json").write_text(json.dumps(config), "utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, str(path)], capture_output=True, text=True, cwd=path.parent, timeout=500
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return collected((one["range"]["start"]["line"] + 1, one["rule"]) for one in found)


def collected(errors: Iterable[tuple[int, str]]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line, rule in errors:
        found.setdefault(line, set()).add(rule)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_every_mistake_is_found_and_nothing_else(path: Path, checker: str, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    found = (by_mypy if checker == "mypy" else by_pyright)(copy)
    wanted = expected(path, checker)
    assert {line: ", ".join(sorted(rules)) for line, rules in found.items()} == wanted
