"""The figures of the README that `make bench` measured: `bench/results.json`, as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "bench/results.json"

_CPU = (
    (
        "reading",
        (
            ("throughput/delta", "a text delta"),
            ("throughput/small", "a small message"),
            ("throughput/50 kB", "a 50 kB message"),
        ),
    ),
    (
        "answering",
        (
            ("round trips/MCP tool call", "a call of a tool in your process"),
            ("round trips/hook", "a hook"),
            ("round trips/permission", "a permission request"),
        ),
    ),
    ("starting", (("import/import", "importing the package"),)),
)
"""By kind of work: the cases whose first target compares CPU times, and their names."""

_SHARES = (
    ("real CLI/whole program", "wall time, Bridle / official", "elapsed time of a whole program"),
    (
        "awaited turns/200 sessions",
        "peak memory, Bridle / official",
        "peak memory of 200 sessions that await long turns",
    ),
)
"""Targets that compare Bridle with the official SDK, and what they are about."""


def bench_figures() -> str:
    """Return the figures of the committed run, and what they were measured on."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    figures = {(one["case"], one["what"]): one["figure"] for one in results["targets"]}
    first = {one["case"]: one["figure"] for one in reversed(results["targets"])}
    machine, versions = results["machine"], results["versions"]
    cli = versions["cli"].split()[0]
    lines = [
        f"These are the results of one run of commit `{results['commit'][:10]}` with CLI {cli} and "
        f"claude-agent-sdk {versions['claude-agent-sdk']}, on {machine['cores']} shared cores, "
        f"with Python {machine['python']}. Each number is the CPU time of the official Python SDK "
        "divided by Bridle's CPU time for the same work:",
        "",
    ]
    for kind, cases in _CPU:
        said = (f"{_rounded(first[case])} for {name}" for case, name in cases)
        lines.append(f"- {kind}: {', '.join(said)}")
    lines += ["", "In percent of what the official SDK takes:", ""]
    for case, what, name in _SHARES:
        lines.append(f"- {name}: {figures[case, what]:.0%}".replace("%", " %"))
    return "\n".join(lines)


def _rounded(figure: float) -> str:
    return f"{figure:.0f}" if figure >= 10 else f"{figure:.1f}"
