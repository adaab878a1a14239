"""The table of cases that are measured. Each side of a case runs in turn.

A run has one of three sizes. The published figures come from `full`. `quick` gives approximate
figures within a minute. `tiny` only checks that the programs run.
"""

from __future__ import annotations

import sys

from msgspec import Struct

from bench.jobs import Figures, Job
from bench.laboratory import Laboratory, Measure

MIB = 1 << 20
SIZES = ("full", "quick", "tiny")


class Sizes(Struct, frozen=True):
    """One number for each size of a run."""

    full: int
    quick: int
    tiny: int

    def of(self, size: str) -> int:
        """Return the number for this size."""
        number: int = getattr(self, size)
        return number


class Case(Struct, frozen=True):
    """One row of the table."""

    scenario: str
    name: str
    measure: Measure
    sides: tuple[str, ...]
    #: The amount of work in one round. The unit depends on the kind of case.
    size: Sizes
    #: The number of rounds. With 0 rounds, the case is left out of a run of that size.
    rounds: Sizes

    @property
    def key(self) -> str:
        """The key of the figures."""
        return f"{self.scenario}/{self.name}"


PAIR = ("official", "ours")
DROP_IN = ("official", "drop-in")
BASE = (*PAIR, "floor")
ALL = (*BASE, "uvloop")

# ---------------------------------------------------------------- how each kind is measured

IMPORTS = {
    "bare": "pass",
    "floor": "import asyncio, msgspec",
    "ours": "import bridle",
    "doors": "import bridle; bridle.start_session",
    "official": "import claude_agent_sdk",
}
"""The import of each side. `doors` is Bridle with everything that the first session loads."""


def importing(lab: Laboratory, side: str, _: int) -> Figures:
    """Import in a new interpreter. The cost of the interpreter alone is subtracted later."""
    held, names = lab.loaded(IMPORTS[side])
    # Do not count modules that msgspec or every start of Python in this environment loads.
    known = lab.loaded("import msgspec")[1]
    packages = {name.partition(".")[0] for name in names - known} - sys.stdlib_module_names
    return {
        **lab.statement(IMPORTS[side]),
        "rss_mib": held,
        "modules": len(names),
        "third_party": len(packages - {"bridle", "claude_agent_sdk"}),
    }


def streaming(payload: str, **more: object) -> Measure:
    """Read `size` messages that are written as fast as they are read."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        path, repeats, lines = lab.stage.payload(payload, size)
        cli = lab.stage.executable("stream", payload=path, repeats=repeats)
        job: Job = {"kind": "stream", "cli": cli, "lines": lines, "partial": True, **more}
        return lab.run(side, job)

    return measure


def pacing(rate: int) -> Measure:
    """Read deltas that arrive at a fixed rate, for `size` milliseconds."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        path, _, _ = lab.stage.payload("delta", 1)
        cli = lab.stage.executable("pace", payload=path, rate=rate, seconds=size / 1e3)
        lines = int(rate * size / 1e3)
        return lab.run(side, {"kind": "stream", "cli": cli, "lines": lines, "partial": True})

    return measure


def answering(question: str) -> Measure:
    """Answer `size` incoming requests, with both processes on one core."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        job: Job = {"kind": "answer", "count": size, "wants": question, "core": 0}
        return lab.answers(side, job, question)

    return measure


def operating(lab: Laboratory, side: str, size: int) -> Figures:
    """Send `size` control requests, with both processes on one core."""
    cli = lab.stage.executable("rest")
    return lab.run(side, {"kind": "operate", "cli": cli, "count": size, "core": 0})


def gathering(sessions: int) -> Measure:
    """Open sessions, each of which reads `size` deltas."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        path, repeats, _ = lab.stage.payload("delta", size)
        cli = lab.stage.executable("stream", payload=path, repeats=repeats)
        return lab.run(side, {"kind": "gather", "cli": cli, "sessions": sessions, "partial": True})

    return measure


def waiting(sessions: int) -> Measure:
    """Open sessions, each of which waits for the outcome of a turn of `size` messages."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        path, repeats, _ = lab.stage.payload("small", size)
        cli = lab.stage.executable("stream", payload=path, repeats=repeats)
        return lab.run(side, {"kind": "wait", "cli": cli, "sessions": sessions, "reads": False})

    return measure


def closing(sessions: int) -> Measure:
    """Close sessions at once, with `size` other processes on the machine."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        cli = lab.stage.executable("rest")
        with lab.other_processes(size):
            return lab.run(side, {"kind": "closing", "cli": cli, "sessions": sessions})

    return measure


def crowding(sessions: int, rate: int) -> Measure:
    """Answer `size` hooks, one every ten milliseconds, while other sessions stream."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        gap = 0.01
        path, _, _ = lab.stage.payload("delta", 1)
        cli = lab.stage.executable("pace", payload=path, rate=rate, seconds=size * gap + 0.5)
        job: Job = {"kind": "crowd", "cli": cli, "sessions": sessions, "count": size}
        return lab.answers(side, {**job, "partial": True}, "hook", gap)

    return measure


SLOW_CAP = 8 * MIB
"""`max_unread_bytes` of a sleeping consumer. At four times that, Bridle ends the session."""


def sleeping(payload: str) -> Measure:
    """Sleep `size` milliseconds while the CLI tries to write half a gigabyte."""

    def measure(lab: Laboratory, side: str, size: int) -> Figures:
        path, _, _ = lab.stage.payload(payload, MIB)
        report = lab.stage.path("flood")
        report.unlink(missing_ok=True)
        cli = lab.stage.executable("flood", payload=path, limit=512 * MIB, report=str(report))
        job: Job = {"kind": "sleep", "cli": cli, "seconds": size / 1e3}
        figures = lab.run(side, {**job, "max_unread_bytes": SLOW_CAP})
        written = int(report.read_bytes() or b"0") / MIB if report.exists() else 0.0
        return {**figures, "written_mib": written}

    return measure


def turning(lab: Laboratory, side: str, size: int) -> Figures:
    """Run `size` short turns on one session."""
    cli = lab.stage.executable("rest", echo=True)
    return lab.run(side, {"kind": "turns", "cli": cli, "count": size})


def living(lab: Laboratory, side: str, _: int) -> Figures:
    """Start a session on the real CLI, run a turn of one word, and close."""
    return lab.run(side, {"kind": "live", **lab.real})


def running(lab: Laboratory, side: str, _: int) -> Figures:
    """Run a whole program on the real CLI, from its start to the answer."""
    return lab.program(side)


def counting(measure: Measure) -> Measure:
    """Count instructions per message or round trip: the slope between `size` and 3 * `size`."""

    def count(lab: Laboratory, side: str, size: int) -> Figures:
        few, many = (lab.instructions(measure, side, times * size) for times in (1, 3))
        return {"instructions": (many - few) / (2 * size)}

    return count


# ---------------------------------------------------------------- the table

_READS = (*ALL, "bare")
_REAL = ("official", "ours", "bare")
_RAISED = streaming("15 MB", max_buffer_size=32 * MIB)
_HOOK, _PERMISSION, _MCP = map(answering, ("hook", "permission", "MCP tool call"))
_WRITE = answering("permission to write 4 kB")


def _door(payload: str, door: str) -> Measure:
    return streaming(payload, door=door)


def _counted(payload: str, door: str) -> Measure:
    return counting(_door(payload, door))


def _case(
    name: str,
    measure: Measure,
    sides: tuple[str, ...],
    size: tuple[int, int, int],
    rounds: tuple[int, int, int],
) -> Case:
    scenario, _, case = name.partition("/")
    return Case(scenario, case, measure, sides, Sizes(*size), Sizes(*rounds))


# name, measure, sides, size and number of rounds in a full, quick and tiny run (0: left out)
CASES = (
    _case("import/import", importing, tuple(IMPORTS), (1, 1, 1), (15, 4, 1)),
    _case("throughput/small", streaming("small"), _READS, (40_000, 10_000, 20), (5, 2, 1)),
    _case("throughput/delta", streaming("delta"), _READS, (40_000, 10_000, 0), (5, 2, 0)),
    _case("throughput/small, turn", _door("small", "turn"), BASE, (40_000, 10_000, 20), (5, 2, 1)),
    _case("throughput/delta, turn", _door("delta", "turn"), BASE, (40_000, 10_000, 0), (5, 2, 0)),
    _case(
        "throughput/small, query", _door("small", "query"), BASE, (40_000, 10_000, 20), (5, 2, 1)
    ),
    _case("throughput/delta, query", _door("delta", "query"), BASE, (40_000, 10_000, 0), (5, 2, 0)),
    _case("throughput/50 kB", streaming("50 kB"), BASE, (2_000, 400, 0), (5, 1, 0)),
    _case("throughput/900 kB", streaming("900 kB"), BASE, (100, 40, 0), (5, 1, 0)),
    _case("throughput/15 MB", _RAISED, BASE, (6, 2, 0), (5, 1, 0)),
    _case("throughput/15 MB, default options", streaming("15 MB"), PAIR, (1, 1, 0), (1, 1, 0)),
    _case("pacing/100 messages/s", pacing(100), BASE, (2_000, 500, 50), (2, 1, 1)),
    _case("pacing/1,000 messages/s", pacing(1_000), BASE, (2_000, 500, 0), (2, 1, 0)),
    _case("round trips/hook", _HOOK, ALL, (4_000, 1_000, 5), (5, 2, 1)),
    _case("round trips/permission", _PERMISSION, ALL, (4_000, 1_000, 5), (5, 2, 0)),
    _case("round trips/permission to write 4 kB", _WRITE, BASE, (4_000, 1_000, 5), (5, 2, 0)),
    _case("round trips/MCP tool call", _MCP, ALL, (2_000, 400, 5), (5, 1, 1)),
    _case("round trips/control", operating, ALL, (4_000, 1_000, 5), (5, 2, 0)),
    _case("concurrency/1 session", gathering(1), PAIR, (20_000, 0, 20), (2, 0, 1)),
    _case("concurrency/10 sessions", gathering(10), PAIR, (2_000, 0, 0), (2, 0, 0)),
    _case("concurrency/50 sessions", gathering(50), PAIR, (1_000, 0, 0), (2, 0, 0)),
    _case("concurrency/200 sessions", gathering(200), PAIR, (500, 200, 0), (2, 1, 0)),
    _case("awaited turns/3 sessions", waiting(3), PAIR, (0, 0, 20), (0, 0, 1)),
    _case("awaited turns/200 sessions", waiting(200), PAIR, (6_000, 600, 0), (2, 1, 0)),
    _case("closing/3 sessions", closing(3), PAIR, (0, 0, 5), (0, 0, 1)),
    _case("closing/200 sessions", closing(200), PAIR, (2_000, 500, 0), (3, 1, 0)),
    _case("crowd/hook among 2", crowding(2, 50), PAIR, (0, 0, 5), (0, 0, 1)),
    _case("crowd/hook among 10", crowding(10, 50), PAIR, (200, 50, 0), (2, 1, 0)),
    _case("crowd/hook among 50", crowding(50, 50), PAIR, (200, 0, 0), (2, 0, 0)),
    _case("slow consumer/small", sleeping("small"), PAIR, (1_500, 0, 50), (2, 0, 1)),
    _case("slow consumer/50 kB", sleeping("50 kB"), PAIR, (1_500, 1_500, 0), (2, 1, 0)),
    _case("slow consumer/900 kB", sleeping("900 kB"), PAIR, (1_500, 0, 0), (2, 0, 0)),
    _case("turns/one session", turning, PAIR, (10_000, 2_000, 20), (2, 1, 1)),
    _case("real CLI/session", living, _REAL, (1, 1, 1), (7, 2, 1)),
    _case("real CLI/whole program", running, _REAL, (1, 1, 0), (7, 2, 0)),
    _case("drop-in/small", streaming("small"), DROP_IN, (40_000, 10_000, 20), (5, 2, 1)),
    _case("drop-in/delta", streaming("delta"), DROP_IN, (40_000, 10_000, 0), (5, 2, 0)),
    _case("drop-in/small, query", _door("small", "query"), DROP_IN, (40_000, 10_000, 0), (5, 2, 0)),
    _case("drop-in/hook", _HOOK, DROP_IN, (4_000, 1_000, 5), (5, 2, 1)),
    _case("drop-in/permission", _PERMISSION, DROP_IN, (4_000, 1_000, 5), (5, 2, 0)),
    _case("drop-in/MCP tool call", _MCP, DROP_IN, (2_000, 400, 5), (5, 1, 1)),
    _case("instructions/small", counting(streaming("small")), BASE, (2_000, 0, 0), (1, 0, 0)),
    _case("instructions/delta", counting(streaming("delta")), BASE, (2_000, 0, 0), (1, 0, 0)),
    _case("instructions/small, turn", _counted("small", "turn"), BASE, (2_000, 0, 0), (1, 0, 0)),
    _case("instructions/delta, turn", _counted("delta", "turn"), BASE, (2_000, 0, 0), (1, 0, 0)),
    _case("instructions/small, query", _counted("small", "query"), BASE, (2_000, 0, 0), (1, 0, 0)),
    _case("instructions/delta, query", _counted("delta", "query"), BASE, (2_000, 0, 0), (1, 0, 0)),
    _case("instructions/hook", counting(_HOOK), BASE, (500, 0, 0), (1, 0, 0)),
    _case("instructions/permission", counting(_PERMISSION), BASE, (500, 0, 0), (1, 0, 0)),
    _case("instructions/permission to write 4 kB", counting(_WRITE), BASE, (500, 0, 0), (1, 0, 0)),
    _case("instructions/MCP tool call", counting(_MCP), BASE, (200, 0, 0), (1, 0, 0)),
    _case("instructions/control", counting(operating), BASE, (500, 0, 0), (1, 0, 0)),
)
"""The cases, in the order in which they run."""
