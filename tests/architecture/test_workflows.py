"""The workflows of the repository: what they call, and which runs they cancel."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

WORKFLOWS = ["drift", "release", "test", "test-all"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_calls_commands_that_exist(name: str, repository: Path) -> None:
    workflow = (repository / f".github/workflows/{name}.yml").read_text("utf-8")
    targets = re.findall(r"^([a-z-]+):", (repository / "Makefile").read_text("utf-8"), re.MULTILINE)
    called = re.findall(r"run: make ([a-z-]+)$", workflow, re.MULTILINE)
    files = re.findall(r"run: (\.ci/\S+)$", workflow, re.MULTILINE)
    assert called or files
    assert set(called) <= set(targets)
    assert [file for file in files if not (repository / file).exists()] == []


def test_every_workflow_is_listed(repository: Path) -> None:
    found = (repository / ".github/workflows").glob("*")
    assert sorted(path.stem for path in found) == WORKFLOWS


@pytest.mark.parametrize(
    ("event", "ref", "cancels"),
    [("push", "refs/heads/main", False), ("pull_request", "refs/pull/7/merge", True)],
)
def test_a_run_is_cancelled_by_the_next_one_of_its_pull_request_only(
    event: str, ref: str, cancels: bool, repository: Path
) -> None:
    """Each push to main keeps its own result."""
    workflow = (repository / ".github/workflows/test.yml").read_text("utf-8")
    concurrency = (
        r"^concurrency:\n(?:  #.*\n)?  group: test-\$\{\{ (.*) \}\}\n  cancel-in-progress: true$"
    )
    [expression] = re.findall(concurrency, workflow, re.MULTILINE)
    for word, operator in (("&&", "and"), ("||", "or")):
        expression = expression.replace(word, operator)
    runs = [SimpleNamespace(event_name=event, ref=ref, run_id=number) for number in (1, 2)]
    first, second = (eval(expression, {"github": one}) for one in runs)
    assert (first == second) == cancels
