"""Run measured processes: one at a time, each new and with its own environment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from bench import instructions
from bench.jobs import Figures, Job, percentiles
from bench.plans import Stage
from bridle._process.locate import candidates
from bridle.testing import ScriptedModel, text

ROOT = Path(__file__).parents[1]
PATIENCE = 600.0
"""Timeout of a measured process, in seconds."""

REAL_ARGUMENTS = (
    "--output-format",
    "stream-json",
    "--input-format",
    "stream-json",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
)
"""The minimal arguments of a CLI for the protocol."""


class Side(Struct, frozen=True):
    """One side of the comparison."""

    title: str
    program: str
    #: The package that this side needs.
    needs: str = "bridle"
    loop: str | None = None


SIDES = {
    "official": Side("official SDK", "official", needs="claude_agent_sdk"),
    "ours": Side("Bridle", "ours"),
    "drop-in": Side("drop-in for the official SDK", "drop_in"),
    "uvloop": Side("Bridle on uvloop", "ours", needs="uvloop", loop="uvloop"),
    "floor": Side("floor: asyncio + msgspec", "floor"),
    "bare": Side("bare pipe", "bare"),
}


Measure = Callable[["Laboratory", str, int], Figures]
"""A function that runs a case of a given size with a side."""


class Failed(Exception):
    """A measured process ended without figures."""


class Laboratory:
    """Runs measured processes. All of their files are in one directory."""

    def __init__(self, directory: Path, real: Job | None) -> None:
        self.stage = Stage(directory)
        self._real = real
        self._seen: dict[str, tuple[float, set[str]]] = {}
        # The file for the instruction count of the next process, or None.
        self._log: Path | None = None
        home = directory / "home"
        home.mkdir()
        # Keep the settings and credentials of the user out of the measurement.
        self._environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
        }

    @property
    def real(self) -> Job:
        """The job members that start the real CLI offline."""
        if self._real is None:
            raise Failed("no real CLI is installed: make setup")
        return self._real

    def run(self, side: str, job: Job) -> Figures:
        """Run a job with a side. Return its figures."""
        one = SIDES[side]
        job = {**job, "loop": one.loop}
        command = [sys.executable, "-m", f"bench.sides.{one.program}"]
        figures: Figures = json.loads(self._output(command, job))
        return figures

    def answers(self, side: str, job: Job, question: str, gap: float = 0.0) -> Figures:
        """Answer `job["count"]` requests with a side. Return figures, with times from the CLI."""
        cli, report = self.stage.asking(question, job["count"], gap)
        figures = self.run(side, {**job, "asking_cli": cli})
        taken = [each / 1e3 for each in json.loads(report.read_text())]
        return {**figures, **percentiles(taken)}

    def program(self, side: str) -> Figures:
        """Run a whole program on the real CLI."""
        path = Path(__file__).with_name("programs") / f"{SIDES[side].program}.py"
        start = time.perf_counter()
        used = self._output([sys.executable, str(path)], self.real)
        return {"wall": time.perf_counter() - start, "cpu": float(used)}

    def instructions(self, measure: Measure, side: str, size: int) -> int:
        """Count the instructions of the measured process."""
        if instructions.counter() is None:
            raise Failed("cannot count instructions: perf and valgrind do not work here")
        self._log = self.stage.path("instructions")
        try:
            measure(self, side, size)
            return instructions.count_in(self._log)
        finally:
            self._log = None

    def statement(self, code: str) -> Figures:
        """Run a line of Python in a new interpreter, and measure the process from outside."""
        start = time.perf_counter()
        pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-c", code], self._environ)
        _, status, used = os.wait4(pid, 0)
        wall = time.perf_counter() - start
        if status:
            raise Failed(f"{code!r} ended with status {status}")
        return {
            "cpu_ms": (used.ru_utime + used.ru_stime) * 1e3,
            "wall_ms": wall * 1e3,
        }

    def loaded(self, code: str) -> tuple[float, set[str]]:
        """Return memory in MiB and loaded modules after a line of Python in a new interpreter."""
        if code not in self._seen:
            look = f"{code}\nimport sys\nprint(*sys.modules, open('/proc/self/status').read())"
            said = self._output([sys.executable, "-I", "-c", look], {})
            names, _, status = said.partition("Name:")
            held = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            self._seen[code] = int(held.split()[1]) / 1024, set(names.split())
        return self._seen[code]

    @contextlib.contextmanager
    def other_processes(self, count: int) -> Iterator[None]:
        """Start this many other processes, and end them afterwards."""
        script = 'for n in $(seq "$0"); do sleep 3600 & done; echo; wait'
        others = subprocess.Popen(
            ["/bin/sh", "-c", script, str(count)],
            stdout=subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
        )
        with others:
            try:
                assert others.stdout is not None
                others.stdout.readline()
                yield
            finally:
                os.killpg(others.pid, signal.SIGKILL)

    def _output(self, command: list[str], job: Job) -> str:
        if self._log is not None:
            command = instructions.counted(command, self._log)
        try:
            done = subprocess.run(
                command,
                input=json.dumps(job),
                capture_output=True,
                text=True,
                cwd=ROOT,
                env=self._environ,
                timeout=PATIENCE if self._log is None else 5 * PATIENCE,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"did not end within {PATIENCE:g} s") from error
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["no output"]
            raise Failed(f"exit code {done.returncode}: {said[-1][:200]}")
        return done.stdout


def available(side: str) -> bool:
    """Return whether the package that a side needs is installed."""
    return find_spec(SIDES[side].needs) is not None


def real_cli() -> Path | None:
    """Return the CLI inside the installed wheel of the official SDK."""
    places = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
    return next((path for path in places if path.exists()), None)


@contextlib.contextmanager
def laboratory(*, with_real_cli: bool) -> Iterator[Laboratory]:
    """Create a laboratory in a new directory. The real CLI uses a scripted model."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        real: Job | None = None
        path = real_cli()
        if with_real_cli and path is not None:
            model = stack.enter_context(ScriptedModel(lambda _: [text("ok")]))
            work = directory / "work"
            work.mkdir()
            real = {
                "cli": str(path),
                "env": model.env,
                "cwd": str(work),
                "arguments": REAL_ARGUMENTS,
            }
        yield Laboratory(directory, real)
