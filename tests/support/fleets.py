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
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import json as msgjson

import bridle
from bridle import Defer, PreToolUseContext, ToolContext, tool
from bridle.fleet import Fleet, Run, TenantLimits

ROOT = Path(__file__).parents[2]

_NOTICES = (
    # The prompt of a recovery.
    "program that runs this conversation stopped",
    # Results of the call if the CLI lives a moment longer than the worker.
    "tool call was interrupted before a result was received",
    "hook did not respond. The tool call was not executed",
)


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
            _append(calls, {"line": line, "event": "start"})
            await asyncio.sleep(chance.uniform(0, self.slow))
            facts = {"line": line, "key": context.idempotency_key, "at": time.time()}
            _append(appended, facts)
            await asyncio.sleep(chance.uniform(0, self.slow))
            _append(calls, {"line": line, "event": "end"})
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
        return _lines(self.home / "appended")

    @property
    def calls(self) -> list[dict[str, Any]]:
        """When calls of the tool began and ended, in this order."""
        return _lines(self.home / "calls")

    @property
    def log(self) -> list[dict[str, Any]]:
        """The log of all workers."""
        found = [one for path in self.home.glob("log-*") for one in _lines(path)]
        return sorted(found, key=lambda one: float(one["at"]))


def _append(path: Path, facts: dict[str, Any]) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(facts).encode() + b"\n")


def _lines(path: Path) -> list[dict[str, Any]]:
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
        words = ["-m", "tests.support.fleets", str(self.plan.home / "plan.json")]
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

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60.0) -> list[int]:
        """End all workers. Return their exit codes."""
        for one in self.processes:
            one.send_signal(number)
        codes = [one.wait(timeout) for one in self.processes]
        self.processes = []
        return codes

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
        assert any(one in told for one in _NOTICES), (line, told)
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
        _append(self._path, facts)


async def _work(plan: FleetPlan, number: str) -> None:
    log = logging.getLogger("bridle.fleet")
    log.setLevel(logging.INFO)
    log.addHandler(_ToFile(plan.home / f"log-{number}"))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    fleet = plan.fleet()
    await fleet.work(plan.at_once, stop=stop, drain=5.0)
    await fleet.aclose()


if __name__ == "__main__":
    asyncio.run(_work(msgjson.decode(Path(sys.argv[1]).read_bytes(), type=FleetPlan), sys.argv[2]))
