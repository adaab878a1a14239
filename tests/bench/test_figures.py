"""Figures that the documentation quotes are those of the committed run of the benchmarks."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bench.__main__ import PICTURE, draw
from bench.report import commit

import bench_figures

REPOSITORY = Path(__file__).resolve().parents[2]
QUOTES = re.compile(
    r"\d[\d.,]* ?(?:%|times)[^.|]*\bofficial SDK|official SDK[^.|]*\b\d[\d.,]* ?(?:%|times)"
)
"""A ratio to the official SDK."""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench_figures.RESULTS.read_text("utf-8"))
    return found


def test_the_results_say_what_was_measured(results: dict[str, Any]) -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", results["commit"])
    versions = results["versions"]
    assert [name for name in ("claude-agent-sdk", "cli") if not versions[name]] == []


def test_a_run_records_the_commit() -> None:
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, text=True).strip()
    assert commit() in (head, f"{head}-dirty")


def test_the_picture_is_that_of_the_results(results: dict[str, Any]) -> None:
    assert PICTURE.read_text("utf-8") == draw(results)


def test_the_figures_of_the_readme_are_those_of_the_results(results: dict[str, Any]) -> None:
    """`test_generated` compares the text with the README. This is where its numbers come from."""
    text = bench_figures.bench_figures()
    figures = {(one["case"], one["what"]): one["figure"] for one in results["targets"]}
    delta = figures["throughput/delta", "CPU per message, official / Bridle"]
    memory = figures["awaited turns/200 sessions", "peak memory, Bridle / official"]
    assert f"{delta:.0f} for reading a text delta" in text
    assert f"long turns take {100 * memory:.0f} % of the memory" in text
    assert f"`{results['commit'][:10]}`, with CLI {results['versions']['cli'].split()[0]}" in text


def test_no_other_text_quotes_a_ratio_to_the_official_sdk() -> None:
    """Such a figure would not change with the results."""
    pages = [
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "bench/README.md")),
    ]
    generated = re.compile(r"<!-- begin generated.*?<!-- end generated -->", re.DOTALL)
    texts = {page.name: generated.sub("", page.read_text("utf-8")) for page in pages}
    assert {name: quotes for name, text in texts.items() if (quotes := QUOTES.findall(text))} == {}


def test_a_quoted_ratio_is_found() -> None:
    assert QUOTES.search("200 sessions peak at 60 % of what the official SDK needs.")
    assert QUOTES.search("Than the official SDK it is 3.1 times faster.")
    assert not QUOTES.search("The test suite runs 100 programs on the official SDK.")
