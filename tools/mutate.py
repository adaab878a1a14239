"""Change the core in one small way at a time, and list the changes that no test notices.

Usage::

    python tools/mutate.py [--sample 200] [--seed 1] [--jobs 2] [--minutes 30] [--work build/mutate]

cosmic-ray finds the possible changes (mutants) of `src/bridle/_engine`. Each mutant of a seeded
sample is run against the unit tests of the core, the property tests and a short simulation, in a
copy of the repository. The program prints each mutant that survives and the share that was killed.
The exit code is 1 if fewer than 90 % were killed.

`tools/equivalent_mutants.toml` lists mutants that no test can notice, with the reason; they do not
count. A run that was stopped, or that came to the end of its `--minutes`, continues where it left
off if nothing has changed in the meantime.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "tools", "pyproject.toml", "docs", "README.md", "CHANGELOG.md")
MUTATED = "src/bridle/_engine"
ENOUGH = 0.90

# Ordered by how fast they find a change: the first failure ends the trial of a mutant.
PYTEST = "-m pytest -x -q -p no:cacheprovider -p no:xdist tests/unit tests/property"
SIMULATION = "-m tests.simulation.run --start 0 --seeds 300 --jobs 1"

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
module-path = "{MUTATED}"
timeout = 1.0
excluded-modules = []
test-command = "true"

[cosmic-ray.distributor]
name = "local"
"""


class Tried(NamedTuple):
    """One mutant and what the tests made of it."""

    place: str
    operator: str
    outcome: str
    removed: str
    added: str


# ---------------------------------------------------------------- copies of the repository


def prepare(work: Path, *, sample: int, seed: int, jobs: int) -> list[Path]:
    """Return one directory for each job, with its copy of the repository and its mutants.

    The directories of an earlier run are used again if they are for the same code and arguments.
    """
    purpose = json.dumps({"code": digest(), "sample": sample, "seed": seed, "jobs": jobs})
    copies = [work / str(number) for number in range(jobs)]
    marker = work / "purpose.json"
    if marker.exists() and marker.read_text("utf-8") == purpose:
        print(f"continuing the run in {work}")
        for copy in copies:  # it may have been stopped while a mutant was in place
            shutil.rmtree(copy / MUTATED)
            shutil.copytree(REPOSITORY / MUTATED, copy / MUTATED)
        return copies
    shutil.rmtree(work, ignore_errors=True)
    copy_repository(copies[0])
    chosen = choose(copies[0] / "session.sqlite", sample, seed)
    for copy in copies[1:]:
        shutil.copytree(copies[0], copy)
    for number, copy in enumerate(copies):
        keep_only(copy / "session.sqlite", chosen[number::jobs])
    marker.write_text(purpose, "utf-8")
    return copies


def digest() -> str:
    """Return a digest of everything that decides about a mutant."""
    state = hashlib.sha256()
    for top in ("src", "tests", "tools"):
        for path in sorted((REPOSITORY / top).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()


def copy_repository(directory: Path) -> None:
    """Copy what the tests need, and list every possible mutation of the core."""
    directory.mkdir(parents=True)
    caches = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=caches)
        else:
            shutil.copy2(source, directory / name)
    (directory / "mutate.toml").write_text(CONFIGURATION, "utf-8")
    program = Path(sys.executable).with_name("cosmic-ray")
    subprocess.run([program, "init", "mutate.toml", "session.sqlite"], cwd=directory, check=True)


def choose(session: Path, size: int, seed: int) -> list[str]:
    """Return the job ids of a seeded sample of the mutations that OPERATORS allow."""
    names = [f"core/{name}" for name in OPERATORS]
    marks = ", ".join("?" * len(names))
    query = (
        f"select job_id from mutation_specs where operator_name in ({marks}) "
        "order by module_path, start_pos_row, start_pos_col, operator_name, occurrence"
    )
    with closing(sqlite3.connect(session)) as database, database:
        jobs = [job for (job,) in database.execute(query, names)]
    print(f"{len(jobs)} possible mutants, a sample of {min(size, len(jobs))} (seed {seed})")
    return random.Random(seed).sample(jobs, min(size, len(jobs)))


def keep_only(session: Path, jobs: list[str]) -> None:
    """Remove every other mutation from the session."""
    with closing(sqlite3.connect(session)) as database, database:
        database.execute("create temporary table kept (job_id varchar primary key)")
        database.executemany("insert into kept values (?)", [(job,) for job in jobs])
        for table in ("mutation_specs", "work_items"):
            database.execute(f"delete from {table} where job_id not in (select job_id from kept)")


# ---------------------------------------------------------------- trying mutants


def environment(copy: Path) -> dict[str, str]:
    """Return the environment in which the tests of a copy run on the code of that copy."""
    paths = os.pathsep.join([str(copy / "src"), str(copy)])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}


def trial_command() -> list[str]:
    """Return the command that fails if a test notices the mutant."""
    return ["sh", "-c", f"'{sys.executable}' {PYTEST} && '{sys.executable}' {SIMULATION}"]


def measure(copy: Path) -> float:
    """Run the tests on the unchanged code, which they must accept; return the seconds it took."""
    began = time.monotonic()
    run = subprocess.run(
        trial_command(),
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        sys.exit(f"The tests fail without any mutant:\n{run.stdout[-3000:]}{run.stderr[-2000:]}")
    return time.monotonic() - began


def try_all(copies: list[Path], timeout: float, until: float) -> None:
    """Try the mutants of all copies, each copy in a process of its own."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", str(timeout), str(until)],
            cwd=copy,
            env=environment(copy),
        )
        for copy in copies
    ]
    for worker in workers:
        worker.wait()


def work_off(timeout: float, until: float) -> None:
    """Try the pending mutants of the copy in the current directory, up to a point in time."""
    # Only `make mutate` installs cosmic-ray.
    testing, work_db, work_item = (
        import_module(f"cosmic_ray.{name}") for name in ("mutating", "work_db", "work_item")
    )
    command = subprocess.list2cmdline(["sh", "-c", trial_command()[2]])
    with work_db.use_db("session.sqlite", work_db.WorkDB.Mode.open) as database:
        for item in list(database.pending_work_items):
            if time.time() > until:
                return
            began = time.monotonic()
            result = testing.mutate_and_test(item.mutations, command, timeout)
            database.set_result(item.job_id, result)
            [mutation] = item.mutations
            verdict = (
                "killed" if result.test_outcome is work_item.TestOutcome.KILLED else "SURVIVED"
            )
            place = f"{Path(mutation.module_path).name}:{mutation.start_pos[0]}"
            print(f"{verdict:8} {time.monotonic() - began:5.1f} s  {place}", flush=True)


# ---------------------------------------------------------------- results


def results(session: Path) -> Iterator[Tried]:
    """Return what became of the mutants of a session that were tried."""
    query = (
        "select module_path, start_pos_row, operator_name, test_outcome, diff "
        "from mutation_specs join work_results using (job_id)"
    )
    with closing(sqlite3.connect(session)) as database, database:
        for path, row, operator, outcome, diff in database.execute(query):
            name = operator.removeprefix("core/")
            yield Tried(f"{path}:{row}", name, str(outcome), *changed_lines(diff or ""))


def changed_lines(diff: str) -> tuple[str, str]:
    """Return the line that a mutant removes and the line that it adds."""
    lines = [line for line in diff.splitlines() if line[:3] not in ("+++", "---")]
    removed = [line[1:].strip() for line in lines if line.startswith("-")]
    added = [line[1:].strip() for line in lines if line.startswith("+")]
    return "\n".join(removed), "\n".join(added)


def equivalents() -> dict[tuple[str, str], str]:
    """Return the reasons of the mutants that no test can notice, by the lines that they change."""
    content: dict[str, Any] = tomllib.loads(
        (REPOSITORY / "tools/equivalent_mutants.toml").read_text("utf-8")
    )
    return {(entry["line"], entry["becomes"]): entry["reason"] for entry in content["equivalent"]}


def report(copies: list[Path], sample: int) -> int:
    """Print the survivors and the share that was killed; return the exit code."""
    known = equivalents()
    tried = sorted(each for copy in copies for each in results(copy / "session.sqlite"))
    survivors = [each for each in tried if "KILLED" not in each.outcome.upper()]
    real = [each for each in survivors if (each.removed, each.added) not in known]
    for each in real:
        print(f"survived: {each.place} {each.operator}\n  - {each.removed}\n  + {each.added}")
    for each in survivors:
        if each not in real:
            print(f"equivalent: {each.place}: {known[each.removed, each.added]}")
    if len(tried) < sample:
        print(f"{len(tried)} of {sample} were tried; run the same command again to continue")
    counted = len(tried) - len(survivors) + len(real)
    killed = 1 - len(real) / counted if counted else 0.0
    print(f"{counted - len(real)} of {counted} mutants killed: {killed:.1%}")
    return 0 if killed >= ENOUGH else 1


def main() -> int:
    """Read the command line."""
    if sys.argv[1:2] == ["--worker"]:
        work_off(float(sys.argv[2]), float(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="how many mutants to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=60.0, help="start no mutant after that")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build/mutate")
    options = parser.parse_args()
    until = time.time() + 60.0 * options.minutes
    work = options.work.resolve()
    copies = prepare(work, sample=options.sample, seed=options.seed, jobs=options.jobs)
    seconds = measure(copies[0])
    print(f"the tests take {seconds:.0f} s without a mutant")
    # A mutant may loop without end; several trials at once slow one another down.
    try_all(copies, timeout=30.0 + 4.0 * seconds, until=until)
    return report(copies, options.sample)


if __name__ == "__main__":
    sys.exit(main())
