"""The figures of the README that `make bench` measured: `bench/results.json`, as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "bench/results.json"

_CPU = (
    ("throughput/delta", "reading a text delta"),
    ("throughput/small", "reading a small message"),
    ("throughput/50 kB", "reading a 50 kB message"),
    ("round trips/MCP tool call", "a call of a tool in your process"),
    ("round trips/hook", "a hook"),
    ("round trips/permission", "a permission request"),
    ("import/import", "importing the package"),
)
"""Cases whose first target compares CPU times, and what they are about."""

_SHARES = (
    ("real CLI/whole program", "wall time, Bridle / official", "a whole program takes", "time"),
    (
        "awaited turns/200 sessions",
        "peak memory, Bridle / official",
        "200 sessions that await long turns take",
        "memory",
    ),
)
"""Targets that compare Bridle with the official SDK, and what they are about."""


def bench_figures() -> str:
    """Return the figures of the committed run, and what they were measured on."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    figures = {(one["case"], one["what"]): one["figure"] for one in results["targets"]}
    first = {one["case"]: one["figure"] for one in reversed(results["targets"])}
    machine, versions = results["machine"], results["versions"]
    cpu = ", ".join(f"{_rounded(first[case])} for {name}" for case, name in _CPU)
    shares = ", and ".join(
        f"{what} {100 * figures[case, target]:.0f} % of the {unit}"
        for case, target, what, unit in _SHARES
    )
    return (
        f"One run of commit `{results['commit'][:10]}`, with CLI {versions['cli'].split()[0]} and "
        f"claude-agent-sdk {versions['claude-agent-sdk']}, on {machine['cores']} shared cores, "
        f"with Python {machine['python']}. CPU time of the official Python SDK divided by "
        f"Bridle's, for the same work: {cpu}. "
        f"Compared with the official SDK, {shares}."
    )


def _rounded(figure: float) -> str:
    return f"{figure:.0f}" if figure >= 10 else f"{figure:.1f}"
