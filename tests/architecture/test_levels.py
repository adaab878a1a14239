"""The suite itself: what users call is tried on every level, and what no test reaches is shown."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from bridle import Session

# What a session offers to be called (the rest of it is read), and the ways in.
CALLED = {
    name for name, value in vars(Session).items() if not name.startswith("_") and callable(value)
} | {"run", "query", "start_session"}

LEVELS = {"fake": ("shell", "conformance"), "real": ("real",)}


def parsed(repository: Path, *directories: str) -> list[ast.Module]:
    """The tests in these directories."""
    paths = [
        path
        for directory in directories
        for path in sorted((repository / "tests" / directory).glob("test_*.py"))
    ]
    return [ast.parse(path.read_text("utf-8")) for path in paths]


def called_in(tree: ast.Module) -> set[str]:
    """The last name of everything that is called."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {ast.unparse(function).rpartition(".")[2] for function in calls}


@pytest.mark.parametrize("level", LEVELS)
def test_everything_users_call_is_called_on_this_level(level: str, repository: Path) -> None:
    """R418, R430, R438: on the fake CLI and on real ones; the unit tests are below both."""
    reached = set[str]().union(*map(called_in, parsed(repository, *LEVELS[level])))
    assert CALLED - reached == set()


def test_tests_on_real_clis_are_left_out_where_there_is_none(repository: Path) -> None:
    """R433: each takes the CLI from a fixture, which skips with a reason; no flag."""
    functions = [
        node
        for tree in parsed(repository, "real")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    fixtures = {"lab", "cli_path"}
    without = [f.name for f in functions if fixtures.isdisjoint(one.arg for one in f.args.args)]
    assert functions != []
    assert without == []


def test_coverage_is_shown_and_gates_nothing(repository: Path) -> None:
    """R419: `make cov` measures branches of the whole package and reports what is missed."""
    makefile = (repository / "Makefile").read_text("utf-8")
    recipe = re.search(r"^cov:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert recipe is not None
    assert re.findall(r"coverage (\w+)", recipe[1]) == ["run", "report"]
    coverage = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["tool"]["coverage"]
    assert (coverage["run"]["branch"], coverage["run"]["source"]) == (True, ["bridle"])
    assert coverage["report"]["show_missing"] is True
    assert "fail_under" not in coverage["report"]
