"""``python -m bench``: measure, compare, and check the targets.

Each round measures all sides one after the other, so other load on the machine affects all sides
alike. A full run of all scenarios writes ``bench/results.json`` and the picture of the
documentation. Any other run only prints. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench import report
from bench.cases import CASES, SIZES, Case
from bench.chart import chart
from bench.instructions import perf_works
from bench.jobs import Figures
from bench.laboratory import SIDES, Failed, Laboratory, available, laboratory
from bench.targets import TARGETS

RESULTS = Path(__file__).with_name("results.json")
PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "bench.svg"


def run_case(lab: Laboratory, case: Case, size: str, number: int) -> dict[str, Figures]:
    """Run one round of a case: each side once. The order rotates from round to round."""
    sides = [side for side in case.sides if side not in SIDES or available(side)]
    moved = number % len(sides)
    figures: dict[str, Figures] = {}
    for side in (*sides[moved:], *sides[:moved]):
        try:
            figures[side] = {"failed": 0.0, **case.measure(lab, side, case.size.of(size))}
        except Failed as problem:
            figures[side] = {"failed": 1.0}
            print(f"{case.key}, {side}: {problem}", file=sys.stderr)
    return {side: figures[side] for side in sides}


def net_of_the_interpreter(figures: dict[str, Figures]) -> None:
    """Subtract the cost of a process that imports nothing from the cost of each import."""
    bare = figures["bare"].get("cpu_ms")
    for each in figures.values():
        if bare is not None and "cpu_ms" in each:
            each["net_ms"] = each["cpu_ms"] - bare


def run(cases: list[Case], size: str, rounds: int | None) -> dict[str, dict[str, list[Figures]]]:
    """Measure all cases. Return the figures of each round by case and side."""
    results: dict[str, dict[str, list[Figures]]] = {}
    with laboratory(with_real_cli=any(case.scenario == "real CLI" for case in cases)) as lab:
        for scenario in dict.fromkeys(case.scenario for case in cases):
            mine = [case for case in cases if case.scenario == scenario]
            counts = {case.key: rounds or case.rounds.of(size) for case in mine}
            start = time.monotonic()
            for number in range(max(counts.values())):
                for case in mine:
                    if number < counts[case.key]:
                        figures = run_case(lab, case, size, number)
                        if scenario == "import":
                            net_of_the_interpreter(figures)
                        sides = results.setdefault(case.key, {})
                        for side, each in figures.items():
                            sides.setdefault(side, []).append(each)
            print(f"{scenario}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return results


def draw(recorded: dict[str, Any]) -> str:
    """Return the picture of a run that was recorded."""
    shown = {(target.case, target.what): target.shown for target in TARGETS}
    bars = [
        (name, one["figure"])
        for one in recorded["targets"]
        if (name := shown.get((one["case"], one["what"]))) and one["figure"] is not None
    ]
    facts, found = recorded["machine"], recorded["versions"]
    note = (
        f"claude-agent-sdk {found['claude-agent-sdk']}, Python {facts['python']}, "
        f"{facts['system']}, {facts['cores']} cores; medians of one run, side by side"
    )
    return chart(bars, note)


def is_wanted(case: Case, size: str, only: list[str] | None) -> bool:
    """Return whether a run includes the case. Slow counting must be selected by name."""
    if not case.rounds.of(size):
        return False
    if only:
        return case.scenario in only or case.key in only
    return case.scenario != "instructions" or perf_works()


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    scenarios = list(dict.fromkeys(case.scenario for case in CASES))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", action="append", metavar="SCENARIO", help=", ".join(scenarios))
    parser.add_argument("--rounds", type=int, help="number of rounds (default: see cases.py)")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--quick", action="store_const", const="quick", dest="size", help="the same as --size quick"
    )
    parser.set_defaults(size="full")
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - set(scenarios) - {case.key for case in CASES}
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    cases = [case for case in CASES if is_wanted(case, options.size, options.only)]
    results = run(cases, options.size, options.rounds)
    verdicts = report.judged(results)
    report.print_figures(results)
    report.print_targets(verdicts)
    if not options.only and not perf_works():
        print("\nperf cannot count instructions here; --only instructions uses valgrind")
    if options.size == "full" and not options.only:
        whole = report.record(results, verdicts, options.size)
        RESULTS.write_text(json.dumps(whole, indent=1) + "\n")
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_text(draw(whole))
    return 0 if all(verdict.is_met for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
