"""Where measured processes run: each alone, fresh, and with an environment of its own."""

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
from bridle._shell.locate import candidates
from bridle.testing import ScriptedModel, text

ROOT = Path(__file__).parents[1]
PATIENCE = 600.0
"""Seconds a measured process may take before it counts as failed."""

REAL_ARGUMENTS = (
    "--output-format",
    "stream-json",
    "--input-format",
    "stream-json",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
)
"""What a CLI is started with at least, to speak the protocol."""


class Side(Struct, frozen=True):
    """One of those compared."""

    title: str
    program: str
    #: The package without which it cannot take part.
    needs: str = "bridle"
    loop: str | None = None


SIDES = {
    "official": Side("official SDK", "official", needs="claude_agent_sdk"),
    "ours": Side("Bridle", "ours"),
    "uvloop": Side("Bridle on uvloop", "ours", needs="uvloop", loop="uvloop"),
    "floor": Side("floor: asyncio + msgspec", "floor"),
    "bare": Side("bare pipe", "bare"),
}


Measure = Callable[["Laboratory", str, int], Figures]
"""Have a side do a case of some size."""


class Failed(Exception):
    """A measured process ended without figures."""


class Laboratory:
    """Runs measured processes. Everything they need or leave is in one directory."""

    def __init__(self, directory: Path, real: Job | None) -> None:
        self.stage = Stage(directory)
        self._real = real
        self._seen: dict[str, tuple[float, set[str]]] = {}
        # Where the instructions of the next process are counted, if they are.
        self._log: Path | None = None
        home = directory / "home"
        home.mkdir()
        # Whoever runs this has settings and credentials that are none of its business.
        self._environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
        }

    @property
    def real(self) -> Job:
        """How the real CLI is started, offline."""
        if self._real is None:
            raise Failed("no real CLI is installed: make setup")
        return self._real

    def run(self, side: str, job: Job) -> Figures:
        """Have a side do a job; its figures."""
        one = SIDES[side]
        job = {**job, "loop": one.loop}
        command = [sys.executable, "-m", f"bench.sides.{one.program}"]
        figures: Figures = json.loads(self._output(command, job))
        return figures

    def answers(self, side: str, job: Job, question: str, gap: float = 0.0) -> Figures:
        """Have a side answer `job["count"]` questions; its figures, and the times the CLI saw."""
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
        """How many instructions the measured process takes."""
        if instructions.counter() is None:
            raise Failed("neither perf nor valgrind can count here")
        self._log = self.stage.path("instructions")
        try:
            measure(self, side, size)
            return instructions.count_in(self._log)
        finally:
            self._log = None

    def statement(self, code: str) -> Figures:
        """Run a line of Python in a fresh interpreter, seen from outside."""
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
        """MiB held and modules loaded after a line of Python in a fresh interpreter."""
        if code not in self._seen:
            look = f"{code}\nimport sys\nprint(*sys.modules, open('/proc/self/status').read())"
            said = self._output([sys.executable, "-I", "-c", look], {})
            names, _, status = said.partition("Name:")
            held = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            self._seen[code] = int(held.split()[1]) / 1024, set(names.split())
        return self._seen[code]

    @contextlib.contextmanager
    def other_processes(self, count: int) -> Iterator[None]:
        """Have that many other processes on the machine."""
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
            raise Failed(f"no end after {PATIENCE:g} s") from error
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["no word"]
            raise Failed(f"exit code {done.returncode}: {said[-1][:200]}")
        return done.stdout


def available(side: str) -> bool:
    """True if what the side needs is installed."""
    return find_spec(SIDES[side].needs) is not None


def real_cli() -> Path | None:
    """The CLI inside the installed wheel of the official SDK."""
    places = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
    return next((path for path in places if path.exists()), None)


@contextlib.contextmanager
def laboratory(*, with_real_cli: bool) -> Iterator[Laboratory]:
    """A laboratory with a directory of its own; the real CLI talks to a scripted model."""
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
