"""Print the figures as tables, and create the record for `results.json`."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases import CASES, Case
from bench.laboratory import SIDES, real_cli
from bench.targets import TARGETS, Rounds, Verdict, judge

Results = Mapping[str, Rounds]
"""Figures by case."""

# By scenario: (heading, figure, digits) for each column. The first column is compared.
COLUMNS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "import": (
        ("net CPU ms", "net_ms", 1),
        ("CPU ms", "cpu_ms", 1),
        ("wall ms", "wall_ms", 1),
        ("memory MiB", "rss_mib", 1),
        ("modules", "modules", 0),
        ("third-party", "third_party", 0),
    ),
    "throughput": (
        ("CPU us/message", "cpu_us", 2),
        ("messages/s", "rate", 0),
        ("peak MiB", "peak_mib", 0),
        ("failed", "failed", 0),
    ),
    "pacing": (("CPU %", "share", 2), ("CPU us/message", "cpu_us", 1)),
    "round trips": (
        ("CPU us", "cpu_us", 1),
        ("p50 us", "p50", 1),
        ("p90 us", "p90", 1),
        ("p99 us", "p99", 1),
    ),
    "concurrency": (
        ("CPU us/message", "cpu_us", 2),
        ("messages/s", "rate", 0),
        ("MiB/idle session", "idle_mib", 3),
        ("descriptors", "descriptors", 2),
        ("peak MiB", "peak_mib", 0),
        ("CPU s to connect", "connect_cpu", 3),
        ("failed", "failed", 0),
    ),
    "awaited turns": (
        ("growth MiB", "growth_mib", 1),
        ("peak MiB", "peak_mib", 1),
        ("CPU s", "cpu", 2),
        ("failed", "failed", 0),
    ),
    "closing": (
        ("longest step ms", "step_ms", 2),
        ("longest round ms", "round_ms", 2),
        ("wall s", "wall", 2),
        ("CPU s", "cpu", 2),
        ("failed", "failed", 0),
    ),
    "crowd": (
        ("p99 us", "p99", 0),
        ("p50 us", "p50", 0),
        ("CPU %", "share", 1),
    ),
    "slow consumer": (
        ("growth MiB", "growth_mib", 1),
        ("CLI wrote MiB", "written_mib", 1),
    ),
    "turns": (
        ("CPU us/turn", "cpu_us", 0),
        ("growth MiB", "growth_mib", 2),
    ),
    "drop-in": (("CPU us", "cpu_us", 1), ("p50 us", "p50", 1)),
    "instructions": (("instructions", "instructions", 0),),
    "real CLI": (
        ("start s", "start_wall", 3),
        ("turn s", "turn_wall", 3),
        ("close s", "close_wall", 3),
        ("start CPU s", "start_cpu", 4),
        ("turn CPU s", "turn_cpu", 4),
        ("close CPU s", "close_cpu", 4),
        ("whole s", "wall", 3),
        ("CPU s", "cpu", 3),
    ),
}

# Sides that have another name in a scenario.
TITLES = {
    ("import", "bare"): "bare interpreter",
    ("import", "floor"): "asyncio + msgspec",
    ("import", "doors"): "Bridle, first session",
}


def title(scenario: str, side: str) -> str:
    """Return the name of a side in a scenario."""
    return TITLES.get((scenario, side)) or SIDES[side].title


def middle(rounds: Rounds, side: str, figure: str) -> float | None:
    """Return the median over the rounds; None if there is no such figure."""
    values = [each[figure] for each in rounds.get(side, ()) if figure in each]
    return median(values) if values else None


# ---------------------------------------------------------------- in the terminal


def print_figures(results: Results) -> None:
    """Print a table for each scenario: medians, and the ratio to the official SDK."""
    scenario = ""
    for case in CASES:
        if case.key not in results:
            continue
        if case.scenario != scenario:
            scenario = case.scenario
            _print_heading(scenario)
        for number, side in enumerate(results[case.key]):
            _print_row(case, results[case.key], side, case.name if number == 0 else "")


def _print_heading(scenario: str) -> None:
    heads = "".join(f"{head:>18}" for head, _, _ in COLUMNS[scenario])
    print(f"\n{scenario:<24}{'':<26}{heads}{'official / this':>18}")


def _print_row(case: Case, rounds: Rounds, side: str, name: str) -> None:
    cells = ""
    for _, figure, digits in COLUMNS[case.scenario]:
        value = middle(rounds, side, figure)
        cells += f"{'':>18}" if value is None else f"{value:>18,.{digits}f}"
    figure = COLUMNS[case.scenario][0][1]
    theirs, mine = middle(rounds, "official", figure), middle(rounds, side, figure)
    ratio = f"{theirs / mine:>17.1f}x" if theirs and mine else ""
    print(f"{name:<24}{title(case.scenario, side):<26}{cells}{ratio}")


def print_targets(verdicts: Iterable[Verdict]) -> None:
    """Print each target, its figure, and whether it is met."""
    print(f"\n{'target':<84}{'limit (aim)':>14}{'figure':>10}{'rounds from..to':>20}")
    for verdict in verdicts:
        check, target = verdict.check, verdict.target
        sign = ">=" if check.at == "least" else "<="
        unit = "s" if check.by == "-" else target.unit
        aim = "" if target.aim is None else f" ({target.aim:g})"
        limit = f"{sign} {check.limit:g}{aim} {unit}"
        value = "none" if verdict.value is None else f"{verdict.value:.2f}"
        span = "" if verdict.low is None else f"{verdict.low:.2f}..{verdict.high:.2f}"
        word = "pass" if verdict.is_met else "MISS"
        what = f"{target.case}: {target.what}"
        print(f"{what:<84}{limit:>14}{value:>10}{span:>20}  {word}")


def judged(results: Results) -> list[Verdict]:
    """Return the verdicts on all targets whose case was measured."""
    return [judge(target, results[target.case]) for target in TARGETS if target.case in results]


# ---------------------------------------------------------------- for the record


def record(results: Results, verdicts: Iterable[Verdict], size: str) -> dict[str, Any]:
    """Return everything as JSON: each round of each side, and facts about the machine."""
    return {
        "size": size,
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "targets": [_target(verdict) for verdict in verdicts],
        "rounds": {
            case: {side: list(each) for side, each in sides.items()}
            for case, sides in results.items()
        },
    }


def _target(verdict: Verdict) -> dict[str, Any]:
    check = verdict.check
    return {
        "case": verdict.target.case,
        "what": verdict.target.what,
        "limit": {f"at_{check.at}": check.limit},
        "figure": verdict.value,
        "met": verdict.is_met,
    }


def machine() -> dict[str, Any]:
    """Return facts about the machine that affect the figures, without its name."""
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def commit() -> str:
    """Return the commit that was measured, with "-dirty" if files differ from it.

    "unknown" if this is not a checkout.
    """
    command = ("git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    told = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def versions() -> dict[str, str | None]:
    """Return the versions of everything that is compared."""
    found: dict[str, str | None] = {}
    for name in ("bridle", "claude-agent-sdk", "msgspec", "mcp", "anyio", "uvloop"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    cli = real_cli()
    told = cli.with_name("claude.version") if cli else None
    found["cli"] = told.read_text().strip() if told and told.exists() else None
    return found
