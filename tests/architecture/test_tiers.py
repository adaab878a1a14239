"""What `make test` leaves to `make test-all`, and what it must hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bridle.testing.fake_cli import FLAVOURS

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from tests.support.tiers import mark_longer

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_longer(items)

@pytest.fixture(params=["newest", "2.1.197"])
def cli_path(request):
    return request.param
"""
MARKS = """
[pytest]
markers =
    longer
    both_clis
"""


def chosen(pytester: pytest.Pytester, tests: str) -> list[str]:
    """Return the tests that `make test` runs."""
    pytester.makeconftest(CONFTEST)
    pytester.makeini(MARKS)
    pytester.makepyfile(f"import pytest\n{tests}")
    result = pytester.runpytest("--collect-only", "-q", "-m", "not longer", "-p", "no:bridle")
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


def test_the_older_cli_is_tested_where_its_behaviour_differs(pytester: pytest.Pytester) -> None:
    tests = """
def test_same(cli_path): ...
@pytest.mark.both_clis
def test_different(cli_path): ...
"""
    assert chosen(pytester, tests) == [
        "test_same[newest]",
        "test_different[newest]",
        "test_different[2.1.197]",
    ]


def test_a_longer_test_keeps_its_first_cases(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.mark.longer
def test_none(cli_path): ...
@pytest.mark.longer(after=2)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_two(cli_path, n): ...
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.longer)])
def test_one(n): ...
"""
    names = chosen(pytester, tests)
    assert names == ["test_two[newest-1]", "test_two[newest-2]", "test_one[1]"]


def test_the_fake_cli_plays_the_newest_and_the_oldest_version(pytester: pytest.Pytester) -> None:
    tests = """
from bridle.testing.fake_cli import FLAVOURS
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_each(flavour): ...
@pytest.mark.parametrize("flavour", FLAVOURS[1:])
def test_some(flavour): ...
"""
    newest, between, oldest = FLAVOURS
    each = [f"test_each[{newest}]", f"test_each[{oldest}]"]
    assert chosen(pytester, tests) == [*each, f"test_some[{between}]", f"test_some[{oldest}]"]


def test_every_promise_is_proven_by_make_test(repository: Path) -> None:
    """That test compares the ids of the promises with the table of `bridle verify`."""
    options = ["-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "--collect-only", "-q"]
    file = "tests/real/test_verify.py"
    collected = subprocess.run(
        [sys.executable, *options, "-m", "not longer", file],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "::test_all_promises_hold[newest]\n" in collected


def test_make_runs_each_test_in_exactly_one_of_its_two_parts(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text("utf-8")
    assert re.search(r"^unit:.*\n\t.*-m \"not longer\"", makefile, re.MULTILINE)
    assert re.search(r"^longer:.*\n\t.*-m longer$", makefile, re.MULTILINE)
    assert re.search(r"^test:.*\n.*\n\t\$\(MAKE\) unit$", makefile, re.MULTILINE)
    assert re.search(r"^test-all: test .*\n(\t.*\n)*\t\$\(MAKE\) longer ", makefile, re.MULTILINE)
