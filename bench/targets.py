"""The table of targets for the figures.

A target is met if one of its checks passes. A check uses the median over the rounds of a figure,
or of the ratio or difference of two figures of the same round. Both figures of a round are
measured at about the same time, so other load affects both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from bench.cases import SLOW_CAP
from bench.jobs import Figures

Rounds = Mapping[str, Sequence[Figures]]
"""The figures of a case: by side, one for each round."""


class Missing(LookupError):
    """There is no such figure."""


class Check(Struct, frozen=True):
    """Check that `figure`, or `figure` compared with `other`, is at least or at most a limit.

    Figures are written `side.name`. Latencies are taken from the best round of each side, because
    the slowest percentiles depend on the scheduler.
    """

    figure: str
    limit: float
    at: str = "least"
    other: str | None = None
    by: str = "/"
    quietest: bool = False

    def values(self, rounds: Rounds) -> list[float]:
        """Return one value for each round. Raise Missing if there is none."""
        mine = _by_round(rounds, self.figure)
        if self.other is None:
            return list(mine.values())
        put, theirs = _BY[self.by], _by_round(rounds, self.other)
        if self.quietest:
            return [put(min(mine.values()), min(theirs.values()))]
        return [put(mine[number], theirs[number]) for number in mine.keys() & theirs.keys()]

    def holds(self, value: float) -> bool:
        """Return whether the value is within the limit."""
        return value >= self.limit if self.at == "least" else value <= self.limit


_BY: dict[str, Callable[[float, float], float]] = {"/": operator.truediv, "-": operator.sub}


def _by_round(rounds: Rounds, figure: str) -> dict[int, float]:
    side, _, name = figure.partition(".")
    values = {n: each[name] for n, each in enumerate(rounds.get(side, ())) if name in each}
    if not values:
        raise Missing(figure)
    return values


class Target(Struct, frozen=True):
    """One target."""

    case: str
    #: A description of the figure.
    what: str
    checks: tuple[Check, ...]
    unit: str = "x"
    #: A better value to aim for, beyond the limit.
    aim: float | None = None
    #: Whether the picture in the documentation shows it.
    shown: str = ""


class Verdict(Struct, frozen=True):
    """The result of a target: the check that passed, or the first one."""

    target: Target
    check: Check
    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def is_met(self) -> bool:
        """True if the target is met."""
        return self.value is not None and self.check.holds(self.value)


def judge(target: Target, rounds: Rounds) -> Verdict:
    """Compare a target with the figures of its case."""
    verdicts = [_verdict(target, check, rounds) for check in target.checks]
    return next((verdict for verdict in verdicts if verdict.is_met), verdicts[0])


def _verdict(target: Target, check: Check, rounds: Rounds) -> Verdict:
    try:
        values = check.values(rounds)
    except Missing:
        values = []
    if not values:
        return Verdict(target, check, None)
    return Verdict(target, check, median(values), min(values), max(values))


# ---------------------------------------------------------------- the table


def _less(case: str, what: str, name: str, least: float, aim: float | None, shown: str) -> Target:
    """Return a target for how many times less than the official SDK Bridle needs."""
    check = Check(f"official.{name}", least, other=f"ours.{name}")
    return Target(case, what, (check,), aim=aim, shown=shown)


def _most(case: str, what: str, figure: str, most: float, other: str, by: str = "/") -> Target:
    """Return a target for at most this multiple of another figure."""
    return Target(case, what, (Check(figure, most, "most", other, by),))


def _within(case: str, what: str, figure: str, most: float, unit: str) -> Target:
    """Return a target for at most this value."""
    return Target(case, what, (Check(figure, most, "most"),), unit=unit)


def _message(name: str, least: float, aim: float | None = None) -> tuple[Target, Target]:
    case = f"throughput/{name}"
    return (
        _less(case, "CPU per message, official / Bridle", "cpu_us", least, aim, f"{name} message"),
        _most(case, "CPU per message, Bridle / floor", "ours.cpu_us", 1.6, "floor.cpu_us"),
    )


def _trip(name: str, least: float) -> tuple[Target, Target]:
    case = f"round trips/{name}"
    late = Check("ours.p99", 1.0, "most", "official.p90", quietest=True)
    return (
        _less(case, "CPU per round trip, official / Bridle", "cpu_us", least, None, name),
        Target(case, "Bridle's p99 / official's p90", (late,)),
    )


def _as_fast(what: str, step: str) -> Target:
    """Return a target for the wall time of the bare driver, or for little additional CPU time."""
    checks = (
        Check(f"ours.{step}_wall", 1.1, "most", f"bare.{step}_wall"),
        Check(f"ours.{step}_cpu", 0.03, "most", f"bare.{step}_cpu", "-"),
    )
    return Target("real CLI/session", what, checks)


def _drop_in(name: str, least: float) -> Target:
    check = Check("official.cpu_us", least, other="drop-in.cpu_us")
    return Target(f"drop-in/{name}", "CPU, official / drop-in", (check,))


def _instructions(name: str, least: float) -> Target:
    what = "official / Bridle"
    return _less(f"instructions/{name}", what, "instructions", least, None, "")


MIB = 1 << 20

# At four times `max_unread_bytes` the session ends. The factor 1.3 is Python's overhead.
_BOUND = ("ours.growth_mib", 1.3 * 4 * SLOW_CAP / MIB, "MiB")

TARGETS = (
    _less(
        "import/import",
        "CPU net of the interpreter, official / Bridle",
        "net_ms",
        8,
        None,
        "import",
    ),
    _most(
        "import/import", "the same, Bridle / asyncio + msgspec", "ours.net_ms", 1.3, "floor.net_ms"
    ),
    _within("import/import", "third-party packages besides msgspec", "ours.third_party", 0, ""),
    *_message("small", 7, 10),
    *_message("delta", 8, 10),
    *_message("small, turn", 7),
    *_message("delta, turn", 8),
    *_message("small, query", 7),
    *_message("delta, query", 8),
    *_message("50 kB", 1.5),
    *_message("900 kB", 1.4),
    _message("15 MB", 1.2)[0],
    _within("throughput/15 MB, default options", "Bridle fails", "ours.failed", 0, ""),
    *_trip("hook", 3),
    *_trip("permission", 3),
    *_trip("permission to write 4 kB", 3),
    *_trip("MCP tool call", 50),
    *_trip("control", 3.5),
    _within("concurrency/200 sessions", "sessions of Bridle's that fail", "ours.failed", 0, ""),
    _less(
        "concurrency/200 sessions",
        "messages per CPU second, Bridle / official",
        "cpu_us",
        5,
        None,
        "200 sessions at once",
    ),
    _within("concurrency/200 sessions", "memory of an idle session", "ours.idle_mib", 0.3, "MiB"),
    _within("concurrency/200 sessions", "descriptors of a session", "ours.descriptors", 3, ""),
    _most(
        "awaited turns/200 sessions",
        "peak memory, Bridle / official",
        "ours.peak_mib",
        1.0,
        "official.peak_mib",
    ),
    _within("closing/200 sessions", "longest round of the event loop", "ours.round_ms", 20, "ms"),
    _most(
        "closing/200 sessions",
        "the same, Bridle / official",
        "ours.round_ms",
        1.0,
        "official.round_ms",
    ),
    *(
        _within(f"slow consumer/{name}", "growth, up to the session's end", *_BOUND)
        for name in ("small", "50 kB", "900 kB")
    ),
    _within(
        "turns/one session", "growth over 10,000 turns, after a tenth", "ours.growth_mib", 5, "MiB"
    ),
    _as_fast("initialize, Bridle / bare driver (or CPU, less)", "start"),
    _as_fast("one-word turn, Bridle / bare driver (or CPU, less)", "turn"),
    _most(
        "real CLI/session",
        "close, Bridle / the CLI's own exit",
        "ours.close_wall",
        1.3,
        "bare.close_wall",
    ),
    _most(
        "real CLI/whole program", "wall time, Bridle / official", "ours.wall", 0.5, "official.wall"
    ),
    _drop_in("small", 4),
    _drop_in("delta", 4),
    _drop_in("small, query", 4),
    _drop_in("hook", 2.5),
    _drop_in("permission", 2.5),
    _drop_in("MCP tool call", 30),
    *(_instructions(f"small{door}", 7) for door in ("", ", turn", ", query")),
    *(_instructions(f"delta{door}", 8) for door in ("", ", turn", ", query")),
    _instructions("hook", 3),
    _instructions("permission", 3),
    _instructions("permission to write 4 kB", 3),
    _instructions("MCP tool call", 50),
    _instructions("control", 3.5),
)
