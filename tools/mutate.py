"""Break the core on purpose, one small change at a time, and see whether a test fails.

Usage::

    python tools/mutate.py [--sample 200] [--seed 1] [--jobs 2] [--keep DIRECTORY]

cosmic-ray finds the possible mutations of `src/bridle/_core`. A seeded sample of them is tried,
each against the unit and property tests in a copy of the repository. Prints every mutant that no
test noticed, and the share that was killed. Exit code 1: fewer than 90 % were killed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "tools", "pyproject.toml", "docs", "README.md", "CHANGELOG.md")
TESTS = ("tests/unit/core", "tests/property")
ENOUGH = 0.90

# The other operators change what no test can see: an annotation that is never evaluated, or the
# stars of a signature.
OPERATORS = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceFalseWithTrue",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ZeroIterationForLoop",
)

CONFIGURATION = f"""\
[cosmic-ray]
module-path = "src/bridle/_core"
timeout = 180.0
excluded-modules = []
test-command = "{{python}} -m pytest -x -q -p no:cacheprovider -p no:xdist {" ".join(TESTS)}"

[cosmic-ray.distributor]
name = "local"
"""


class Tried(NamedTuple):
    """One mutant and what the tests made of it."""

    place: str
    operator: str
    outcome: str
    diff: str


def prepare(directory: Path) -> Path:
    """Copy what the tests need; return the path of the session with every possible mutation."""
    directory.mkdir(parents=True)
    for name in COPIED:
        source = REPOSITORY / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, directory / name)
    (directory / "mutate.toml").write_text(CONFIGURATION.format(python=sys.executable), "utf-8")
    cosmic_ray(directory, "init", "mutate.toml", "session.sqlite")
    return directory / "session.sqlite"


def cosmic_ray(directory: Path, *arguments: str) -> None:
    """Run cosmic-ray in a copy of the repository, on the sources of that copy."""
    program = Path(sys.executable).with_name("cosmic-ray")
    environment = {**os.environ, "PYTHONPATH": str(directory / "src"), "PYTHONHASHSEED": "0"}
    subprocess.run([program, *arguments], cwd=directory, env=environment, check=True)


def choose(session: Path, size: int, seed: int) -> list[str]:
    """Return the job ids of a seeded sample of the mutations that OPERATORS allow."""
    names = [f"core/{name}" for name in OPERATORS]
    marks = ", ".join("?" * len(names))
    query = (
        f"select job_id from mutation_specs where operator_name in ({marks}) "
        "order by module_path, start_pos_row, start_pos_col, operator_name, occurrence"
    )
    with sqlite3.connect(session) as database:
        jobs = [job for (job,) in database.execute(query, names)]
    print(f"{len(jobs)} possible mutations, {min(size, len(jobs))} are tried (seed {seed})")
    return random.Random(seed).sample(jobs, min(size, len(jobs)))


def keep_only(session: Path, jobs: list[str]) -> None:
    """Remove every other mutation from the session."""
    with sqlite3.connect(session) as database:
        database.execute("create temporary table kept (job_id varchar primary key)")
        database.executemany("insert into kept values (?)", [(job,) for job in jobs])
        for table in ("mutation_specs", "work_items"):
            database.execute(f"delete from {table} where job_id not in (select job_id from kept)")


def results(session: Path) -> list[Tried]:
    """Return what became of the mutants of a session."""
    query = (
        "select module_path, start_pos_row, operator_name, test_outcome, diff "
        "from mutation_specs left join work_results using (job_id) "
        "order by module_path, start_pos_row"
    )
    with sqlite3.connect(session) as database:
        return [
            Tried(f"{path}:{row}", operator.removeprefix("core/"), str(outcome), diff or "")
            for path, row, operator, outcome, diff in database.execute(query)
        ]


def changed_lines(diff: str) -> str:
    """Return the changed lines of a diff."""
    lines = diff.splitlines()
    return "\n".join(f"    {line}" for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))  # fmt: skip  # noqa: E501


def run(work: Path, *, sample: int, seed: int, jobs: int) -> int:
    """Try the sample in several copies at once and report; 1 if too many survived."""
    session = prepare(work / "0")
    chosen = choose(session, sample, seed)
    copies = [work / str(number) for number in range(jobs)]
    for copy in copies[1:]:
        shutil.copytree(work / "0", copy)
    for number, copy in enumerate(copies):
        keep_only(copy / "session.sqlite", chosen[number::jobs])
    with ThreadPoolExecutor(jobs) as pool:
        list(
            pool.map(lambda copy: cosmic_ray(copy, "exec", "mutate.toml", "session.sqlite"), copies)
        )
    tried = [each for copy in copies for each in results(copy / "session.sqlite")]
    survivors = [each for each in tried if "KILLED" not in each.outcome.upper()]
    for each in sorted(survivors):
        print(f"{each.outcome}: {each.place} {each.operator}\n{changed_lines(each.diff)}")
    killed = 1 - len(survivors) / len(tried)
    print(f"{len(tried) - len(survivors)} of {len(tried)} mutants killed: {killed:.1%}")
    return 0 if killed >= ENOUGH else 1


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="how many mutants to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="work in this directory and leave it there")
    options = parser.parse_args()
    chosen = {"sample": options.sample, "seed": options.seed, "jobs": options.jobs}
    if options.keep is not None:
        return run(options.keep, **chosen)
    with tempfile.TemporaryDirectory(prefix="bridle-mutate-") as directory:
        return run(Path(directory) / "copies", **chosen)


if __name__ == "__main__":
    sys.exit(main())
