"""Run simulations: ``python -m tests.simulation.run --seeds 100000``.

Prints how fast it went, how often everything happened, and the seeds that failed; a failing seed
is told step by step with ``--seed X --trace``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

if __package__ in (None, ""):  # started as a file: the imports below are by full name
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.simulation import faults
from tests.simulation.coverage import Coverage
from tests.simulation.world import World

from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine

BATCH = 500
ENOUGH_FAILURES = 20
SUITE_SEEDS = 5000
"""The seeds below are those of the test suite: a run of its own starts here."""
RARE = 1000
"""In a million seeds everything should have happened this often."""


def simulate_range(
    seeds: range, make_engine: Callable[[EngineConfig], Engine] = Engine
) -> tuple[Coverage, list[tuple[int, str]]]:
    """Run some seeds; what happened, and the seeds that failed with their complaints."""
    coverage = Coverage()
    coverage.watch_moves()
    failures: list[tuple[int, str]] = []
    for seed in seeds:
        problem = simulate_one(seed, coverage, make_engine)
        if problem is not None:
            failures.append((seed, problem))
    return coverage, failures


def simulate_one(
    seed: int,
    coverage: Coverage,
    make_engine: Callable[[EngineConfig], Engine] = Engine,
    trace: Callable[[str], None] | None = None,
) -> str | None:
    """Run one seed; what went wrong, if anything did."""
    try:
        faults.simulate(World(seed, coverage, make_engine, trace))
    except AssertionError as violation:
        return f"{type(violation).__name__}: {violation}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    return None


def _batches(start: int, count: int) -> Iterator[range]:
    for first in range(start, start + count, BATCH):
        yield range(first, min(first + BATCH, start + count))


def _show(title: str, table: dict[str, int], seeds: int) -> None:
    print(f"\n{title}")
    bar = RARE * seeds / 1_000_000
    for name, count in sorted(table.items(), key=lambda item: (-item[1], item[0])):
        rare = "   under the bar" if count < bar else ""
        print(f"  {name:<44} {count:>12,}{rare}")


def _report(coverage: Coverage, elapsed: float) -> None:
    seeds = coverage.seeds or 1
    for name in faults.FAULTS:
        coverage.faults.setdefault(name, 0)
    moves = {f"{state.value} + {cause.value}": n for (state, cause), n in coverage.moves.items()}
    _show("transitions", moves, seeds)
    for title in ("actions", "faults", "operations", "reasons", "warnings", "verdicts", "readers"):
        _show(title, getattr(coverage, title), seeds)
    print(
        f"\n{coverage.seeds:,} seeds in {elapsed:.1f} s: {coverage.seeds / elapsed:,.0f} seeds/s, "
        f"{coverage.steps / seeds:.0f} engine steps a seed, "
        f"{coverage.steps / elapsed:,.0f} steps/s"
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--start", type=int, default=SUITE_SEEDS, help="the first one")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="print every step of --seed")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    options = parse(arguments)
    if options.seed is not None:
        problem = simulate_one(options.seed, Coverage(), trace=print if options.trace else None)
        print(problem or f"seed {options.seed} holds")
        return 1 if problem else 0
    return run(options.start, options.seeds, options.jobs)


def run(start: int, count: int, jobs: int) -> int:
    """Run many seeds in several processes and report; 1 if any failed."""
    total = Coverage()
    failures: list[tuple[int, str]] = []
    began = time.monotonic()
    with multiprocessing.Pool(jobs) as pool:
        for coverage, failed in pool.imap_unordered(simulate_range, _batches(start, count)):
            total.add(coverage)
            failures.extend(failed)
            if len(failures) >= ENOUGH_FAILURES:
                pool.terminate()
                break
    _report(total, time.monotonic() - began)
    for seed, problem in sorted(failures)[:ENOUGH_FAILURES]:
        print(f"FAILED seed {seed}: {problem[:400]}")
    print("every promise was kept" if not failures else "replay one with --seed X --trace")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
