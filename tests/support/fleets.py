"""Workers of a fleet in processes of their own, which can be killed, and checks of their runs.

``python -m tests.support.fleets PLAN NUMBER`` is a worker. It has a tool that appends to a file,
and writes its log to a file. A call whose line starts with "ask" waits for a decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec import json as msgjson
from tests.support.processes import LIMIT, until, wait_until

import bridle
from bridle import Defer, PreToolUseContext, ToolContext, tool
from bridle.fleet import Fleet, Run, RunInfo, RunStatus, TenantLimits
from bridle.testing import ModelRequest, Reply, text, tool_use

ROOT = Path(__file__).parents[2]

NOTICES = (
    # The prompt of a recovery.
    "program that runs this conversation stopped",
    # Results of the call if the CLI lives a moment longer than the worker.
    "tool call was interrupted before a result was received",
    "hook did not respond. The tool call was not executed",
)
"""What a model is told about a call whose worker was killed before it ran."""


class FleetPlan(Struct):
    """A fleet and its workers, on one machine: with one directory for their files."""

    directory: str
    database: str
    #: Options of the agent.
    options: dict[str, Any]
    at_once: int = 4
    #: Seconds that the tool takes, at most.
    slow: float = 0.3
    #: Words before the command of a worker.
    prefix: list[str] = []
    #: Limits of the fleet and of each tenant. None for any number.
    fleet_at_once: int | None = None
    tenant_at_once: int | None = None

    #: The program of a worker.
    module: ClassVar[str] = "tests.support.fleets"

    @property
    def home(self) -> Path:
        return Path(self.directory)

    def fleet(self, **options: Any) -> Fleet:
        """The same fleet in every process."""
        appended, calls = self.home / "appended", self.home / "calls"
        chance = random.Random()

        @tool
        async def append(line: str, context: ToolContext) -> str:
            """Append a line to a file."""
            append_line(calls, {"line": line, "event": "start"})
            try:
                await asyncio.sleep(chance.uniform(0, self.slow))
                facts = {"line": line, "key": context.idempotency_key, "at": time.time()}
                append_line(appended, facts)
                await asyncio.sleep(chance.uniform(0, self.slow))
            finally:  # a worker that loses its lock cancels the call
                append_line(calls, {"line": line, "event": "end"})
            return f"appended {line}"

        def ask(context: PreToolUseContext) -> Defer | None:
            is_asked = str(context.tool_input.get("line", "")).startswith("ask")
            return Defer() if is_asked else None

        agent = bridle.Agent(tools=[append], on_pre_tool_use=ask, **self.options)
        limits = TenantLimits(at_once=self.tenant_at_once)
        chosen = {"at_once": self.fleet_at_once, "tenants": limits, **options}
        return Fleet(agent, self.database, **chosen)

    @property
    def appended(self) -> list[dict[str, Any]]:
        """The lines that the tool has appended."""
        return lines_of(self.home / "appended")

    @property
    def calls(self) -> list[dict[str, Any]]:
        """When calls of the tool began and ended, in this order."""
        return lines_of(self.home / "calls")

    @property
    def log(self) -> list[dict[str, Any]]:
        """The log of all workers."""
        found = [one for path in self.home.glob("log-*") for one in lines_of(path)]
        return sorted(found, key=lambda one: float(one["at"]))


def append_line(path: Path, facts: dict[str, Any]) -> None:
    """Append a line of JSON. Several processes may do so at the same time."""
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(facts).encode() + b"\n")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines that were appended. A killed process may have written a part of one."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


class Workers:
    """Worker processes. Those that are killed are replaced."""

    def __init__(self, plan: FleetPlan, count: int) -> None:
        self.plan = plan
        (plan.home / "plan.json").write_bytes(msgjson.encode(plan))
        self._number = 0
        #: When each process was killed, by its id.
        self.kills: dict[int, float] = {}
        self.processes = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        self._number += 1
        words = ["-m", self.plan.module, str(self.plan.home / "plan.json")]
        environment = os.environ | {
            "XDG_STATE_HOME": str(self.plan.home / "state"),
            "CLAUDE_CONFIG_DIR": str(self.plan.home / "config"),
        }
        with open(self.plan.home / f"stderr-{self._number}", "ab") as errors:
            return subprocess.Popen(
                [*self.plan.prefix, sys.executable, *words, str(self._number)],
                cwd=ROOT,
                stderr=errors,
                env=environment,
            )

    def kill(self, chance: random.Random) -> int:
        """Kill one of the workers, and start another one. Return the process id."""
        index = chance.randrange(len(self.processes))
        victim = self.processes[index]
        victim.send_signal(signal.SIGKILL)
        self.kills[victim.pid] = time.time()
        victim.wait()
        self.processes[index] = self._start()
        return victim.pid

    def revive(self) -> list[int]:
        """Start a worker for each that has died. Return the process ids of the dead ones."""
        dead = [one for one in self.processes if one.poll() is not None]
        for one in dead:
            self.kills[one.pid] = time.time()
            self.processes[self.processes.index(one)] = self._start()
        return [one.pid for one in dead]

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60.0) -> list[int]:
        """End all workers. Return their exit codes."""
        wait_until(self._have_started, timeout)  # before, SIGTERM would kill them
        for one in self.processes:
            one.send_signal(number)
        codes = [one.wait(timeout) for one in self.processes]
        self.processes = []
        return codes

    def _have_started(self) -> bool:
        started = {one["pid"] for one in self.plan.log if str(one["text"]).endswith("has started")}
        return all(one.pid in started or one.poll() is not None for one in self.processes)

    def close(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()

    def errors(self) -> str:
        """What the workers have written to stderr."""
        return "".join(path.read_text() for path in self.plan.home.glob("stderr-*"))

    def take_overs(self) -> list[float]:
        """The seconds from each kill to the take-over of a run of the killed worker."""
        found: list[float] = []
        for one in self.plan.log:
            text = str(one["text"])
            if text.startswith("took run"):
                pid = int(text.split("from worker ")[1].split(",")[0].rsplit("-", 2)[1])
                if pid in self.kills:
                    found.append(float(one["at"]) - self.kills[pid])
        return found


@contextlib.asynccontextmanager
async def working(plan: FleetPlan, count: int) -> AsyncIterator[Workers]:
    """Start workers, and end them afterwards."""
    workers = Workers(plan, count)
    try:
        yield workers
    finally:
        workers.close()


async def submit_all(fleet: Fleet, count: int) -> dict[str, Run]:
    """Submit runs that append a line each. Return them by this line."""
    found: dict[str, Run] = {}
    for number in range(count):
        line = f"line{number}"
        prompt = f"CALL mcp__tools__append {json.dumps({'line': line})}"
        found[line] = await fleet.submit(prompt, key=line)
    return found


async def another_line(plan: FleetPlan, most: int, limit: float = LIMIT) -> None:
    """Wait until the tool appends another line, if there are not as many as there will be."""
    before = len(plan.appended)
    await until(lambda: before >= most or len(plan.appended) != before, limit)


async def check_all(plan: FleetPlan, runs: dict[str, Run], timeout: float) -> list[str]:
    """Check that each run has ended in one outcome. Return the lines that were repeated."""
    for line, run in runs.items():
        outcome = await run.outcome(timeout=timeout)
        assert outcome.ok, (line, outcome, (await run.info()))
        assert await run.outcome() == outcome, "the outcome stays the same"
    keys: dict[str, list[str]] = {}
    for fact in plan.appended:
        keys.setdefault(fact["line"], []).append(fact["key"])
    assert keys.keys() <= runs.keys()
    for line in runs.keys() - keys.keys():
        # Its worker was killed before the tool wrote. These models do not call it again.
        assert (await runs[line].info()).starts > 1, "a run has called its tool"
        told = str([message.raw for message in await runs[line].messages()])
        assert any(one in told for one in NOTICES), (line, told)
    repeated = [line for line, found in keys.items() if len(found) > 1]
    for line in repeated:
        assert len(set(keys[line])) == 1, "a repeated call has the same idempotency key"
        assert (await runs[line].info()).starts > 1, "only a run that was taken over repeats a call"
    return repeated


# ---------------------------------------------------------------- the worker


class _ToFile(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"at": time.time(), "text": record.getMessage(), "pid": os.getpid()}
        append_line(self._path, facts)


async def work_on(plan: FleetPlan, number: str) -> None:
    """Be a worker until SIGTERM."""
    log = logging.getLogger("bridle.fleet")
    log.setLevel(logging.INFO)
    log.addHandler(_ToFile(plan.home / f"log-{number}"))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    fleet = plan.fleet()
    await fleet.work(plan.at_once, stop=stop, drain=5.0)
    await fleet.aclose()


_CALL = re.compile(r'CALL mcp__tools__append (\{"line": "[\w-]+"\})')


def model_of(request: ModelRequest) -> Reply:
    """Call the tool once for each line of the last prompt, one after the other."""
    prompt, results = "", 0
    for message in request.messages:
        said = json.dumps(message.get("content"), ensure_ascii=False)
        if message.get("role") == "user":
            if "tool_result" in said:
                results += 1
            if "CALL " in said or "SAY " in said or "Continue with the task" in said:
                prompt, results = said.replace('\\"', '"'), 0
    calls = [json.loads(one) for one in _CALL.findall(prompt)]
    if results < len(calls):
        return Reply(blocks=(tool_use("mcp__tools__append", **calls[results]),))
    return Reply(blocks=(text("Done."),))


if __name__ == "__main__":
    asyncio.run(
        work_on(msgjson.decode(Path(sys.argv[1]).read_bytes(), type=FleetPlan), sys.argv[2])
    )


async def info_when(
    run: Run, condition: Callable[[RunInfo], object], limit: float = LIMIT
) -> RunInfo:
    """Wait until what the fleet knows about a run meets a condition, and return it."""

    async def look() -> RunInfo | None:
        info = await run.info()
        return info if condition(info) else None

    found: RunInfo = await until(look, limit)
    return found


async def reach(run: Run, status: RunStatus, limit: float = LIMIT) -> RunInfo:
    """Wait until a run has a status."""

    def has_reached(info: RunInfo) -> bool:
        assert info.status is status or not info.status.is_final, info
        return info.status is status

    return await info_when(run, has_reached, limit)
