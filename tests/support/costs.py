"""What tests cost: CPU seconds of the test process and of the processes that it reaped.

``pytest --costs`` prints tables by directory, file and test; ``--costs-file FILE`` also writes the
figures of every test as JSON. CPU seconds say more than wall time on a machine that does other
work. A process that outlives its test counts for a later test, and one that is reaped by another
process than the test's counts for none.
"""

from __future__ import annotations

import json
import resource
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

MOST = 40
"""Number of rows of the longest tables."""


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that were reaped."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Costs:
    """Measures each phase of each test, and prints the sums at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.target: Path | None = config.getoption("costs_file")
        self.measured = 0.0
        self.collecting = 0.0
        self.cpu = defaultdict[str, float](float)
        self.wall = defaultdict[str, float](float)

    def pytest_collection_finish(self) -> None:
        self.measured = self.collecting = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Attach to a report what was used since the report before; xdist carries it."""
        report = yield
        now = cpu_seconds()
        report.cpu_seconds, self.measured = now - self.measured, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.cpu[report.nodeid] += getattr(report, "cpu_seconds", 0.0)
        self.wall[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send what a worker used before its first test and after its last one."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["collecting"] = self.collecting

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        self.collecting += output.get("collecting", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(self.cpu.values())
        terminalreporter.section("costs")
        terminalreporter.write_line(
            f"{total:.1f} CPU seconds in {len(self.cpu)} tests, {self.collecting:.1f} before them"
        )
        for title, key in {"directory": directory, "file": file, "test": test}.items():
            sums = defaultdict[str, list[float]](lambda: [0.0, 0.0, 0])
            for nodeid, used in self.cpu.items():
                own = (used, self.wall[nodeid], 1)
                sums[key(nodeid)] = [a + b for a, b in zip(sums[key(nodeid)], own, strict=True)]
            terminalreporter.write_line(f"{'CPU s':>9} {'wall s':>9} {'tests':>6}  {title}")
            for name, (cpu, wall, count) in sorted(sums.items(), key=lambda row: -row[1][0])[:MOST]:
                terminalreporter.write_line(f"{cpu:9.2f} {wall:9.2f} {count:6}  {name}")
        if self.target:
            figures = {one: [self.cpu[one], self.wall[one]] for one in self.cpu}
            self.target.write_text(json.dumps(figures, indent=0), encoding="utf-8")


def file(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def directory(nodeid: str) -> str:
    """Return the directory of a test."""
    return file(nodeid).rpartition("/")[0]


def test(nodeid: str) -> str:
    """Return the name of a test, without its parameters."""
    return nodeid.partition("[")[0]
