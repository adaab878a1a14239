"""Decide about the runs of a fleet: what a worker does with a run, and when it may do it.

A run is a chain of segments. A segment is the work from the queue to an outcome. The first one
sends the prompt. Another one follows if a person decides about a tool call, or if the run is
cancelled while it waits for that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct, structs

from bridle.approvals import PendingApproval
from bridle.messages import JsonObject
from bridle.outcomes import OutcomeReason

if TYPE_CHECKING:
    from bridle._spi import StoredOutcome

PING = 0.3
"""Seconds between two requests with which a worker checks that it still holds its lock."""

LOOK = 0.3
"""Seconds between two looks of a worker at the runs of all workers."""

CUT_OFF = 2.5
"""Seconds without an answer after which a worker kills its CLIs."""

ANSWER = CUT_OFF
"""Seconds that the server has to answer a request."""

RELEASE = 20.0
"""Seconds without a request after which the server releases the lock of a worker.

Also the seconds after a start of the server in which no worker takes runs over.
"""

FREE = 3.1
"""Seconds for which the lock of a worker must have been free before others take its runs.

It is longer than `CUT_OFF`. So the CLIs of a worker are dead by then, also if the server has ended
its session and the worker has not heard of it.
"""

RELOCK = 2.0
"""Seconds in which a worker can take its lock again after its connection broke."""

ORPHANED = 5.0
"""Seconds after which a worker puts back a run that it has claimed but not started."""

SUSPECT = 2
"""After how many deaths of its workers a run is started alone."""

GIVE_UP = 5
"""After how many deaths of workers that had no other run a run fails."""

LONGEST_BACKOFF = 60.0
"""Seconds after which a run is started again whose workers died, at most."""

STALL = 1.0
"""Seconds for which a worker stood still, if it lost its lock for that reason."""

_NAMESPACE = UUID("8a0c8d1e-6f1b-4b0f-9d7c-2f5e1a3b4c6d")
"""The namespace of the run ids that are computed from keys."""

# ---------------------------------------------------------------- runs and segments


class RunStatus(StrEnum):
    """The status of a run."""

    #: In the queue.
    QUEUED = "queued"
    #: Not in the queue before a time.
    DELAYED = "delayed"
    #: A worker runs it.
    RUNNING = "running"
    #: A tool call waits for the decision of a person. See `Run.approve`.
    WAITING = "waiting"
    #: Ended with the outcome ``completed``.
    COMPLETED = "completed"
    #: Ended with another outcome.
    FAILED = "failed"
    #: Cancelled.
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Return True if the run has ended."""
        return self in _FINAL


_FINAL = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)

SegmentKind: TypeAlias = Literal["start", "decide", "cancel"]


class Segment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The argument of a workflow: everything that a worker has to know about a run."""

    run_id: str
    #: Chosen at random when the run is submitted. The id of a run with a key would not do: the CLI
    #: refuses the id of a session that it has on this machine, such as that of another database.
    session_id: str
    #: Text, or a list of content blocks as JSON.
    prompt: str | list[JsonObject]
    number: int = 0
    kind: SegmentKind = "start"
    key: str | None = None
    tenant: str | None = None
    priority: int = 0
    metadata: JsonObject = {}
    #: When the program put the segment into the queue: nanoseconds since the epoch. Two segments of
    #: a program differ.
    submitted_at: int | None = None
    #: The delay that was asked for: ``{"delay": seconds}``, ``{"at": unix time}`` or ``{}``. None
    #: in segments of older versions.
    start: JsonObject | None = None
    #: US dollars that the segments before this one have cost.
    spent: float = 0.0
    #: The tool call that was decided about, and the decision.
    pending: PendingApproval | None = None
    decision: JsonObject | None = None
    #: Chosen at random by the program that decided. It tells this decision from an equal one.
    decision_id: str | None = None

    @property
    def id(self) -> str:
        """Return the id of the workflow."""
        return segment_id(self.run_id, self.number)


# Built here, before threads use them: msgspec crashes the process if one thread decodes a class
# while another one builds its decoder.
decode_segment = msgspec.json.Decoder(Segment).decode


_HEAD = 1000
"""How many characters of a long prompt the head of a segment has."""

_LONG = 10_000
"""Characters from which a prompt is long."""

_LONGEST_HEAD = 10_000
"""Characters of the longest head that is written, as JSON."""


def head_of(segment: Segment) -> str | None:
    """Return a segment as JSON with the beginning of its prompt, and without its decision.

    Return None if the whole segment is to be read instead: if its prompt is short, or if its
    metadata are long.
    """
    if not _is_long(segment.prompt):
        return None
    prompt = _beginning(segment.prompt)
    head = structs.replace(segment, prompt=prompt, pending=None, decision=None)
    text = msgspec.json.encode(head).decode()
    return text if len(text) <= _LONGEST_HEAD else None


def _is_long(prompt: str | list[JsonObject]) -> bool:
    if isinstance(prompt, str):
        return len(prompt) > _LONG
    return len(msgspec.json.encode(prompt)) > _LONG


def _beginning(prompt: str | list[JsonObject]) -> str | list[JsonObject]:
    """Return the beginning of a prompt. Of content blocks, only text is kept."""
    if isinstance(prompt, str):
        return prompt[:_HEAD]
    left = _HEAD
    kept: list[JsonObject] = []
    for block in prompt:
        text = block.get("text") if block.get("type") == "text" else None
        if left and isinstance(text, str):
            kept.append({"type": "text", "text": text[:left]})
            left = max(0, left - len(text))
    return kept


def segment_id(run_id: str, number: int) -> str:
    """Return the id of the workflow of a segment."""
    return run_id if number == 0 else f"{run_id}/{number}"


def ids_of_key(fleet: str, key: str, tenant: str | None) -> tuple[str, str]:
    """Return the two ids that the run with a key of a tenant may have, as UUIDs.

    The first one depends on the key only. Older versions used it for all tenants, so it may be that
    of another tenant's run.
    """
    names = (f"{fleet}\0{key}", f"{fleet}\0{key}\0{tenant or ''}")
    return str(uuid5(_NAMESPACE, names[0])), str(uuid5(_NAMESPACE, names[1]))


def different_settings(stored: Segment, wanted: Segment) -> list[str]:
    """Return the arguments of `Fleet.submit` in which two first segments of a key differ."""
    names = ("prompt", "priority", "metadata")
    differ = [one for one in names if getattr(stored, one) != getattr(wanted, one)]
    if stored.start is not None and wanted.start is not None and stored.start != wanted.start:
        differ += sorted({*stored.start, *wanted.start})
    return differ


def state_of(outcome: StoredOutcome) -> RunStatus:
    """Return the status of a run whose last segment has this outcome."""
    if outcome.reason is OutcomeReason.COMPLETED:
        return RunStatus.COMPLETED
    if outcome.reason is OutcomeReason.TOOL_DEFERRED and outcome.pending is not None:
        return RunStatus.WAITING
    return RunStatus.FAILED


def is_undecided(segment: Segment, outcome: StoredOutcome) -> bool:
    """Return whether the worker could not carry out a decision, so that the run is put off.

    Its agent may lack the tool, for example. What was decided stays decided.
    """
    call, waiting = segment.pending, outcome.pending
    if call is None or waiting is None or call.tool_use_id != waiting.tool_use_id:
        return False
    return state_of(outcome) is RunStatus.FAILED


# ---------------------------------------------------------------- locks of workers


def lock_number(executor: str) -> int:
    """Return the number of the advisory lock of an executor: a signed integer of 64 bits."""
    digest = sha256(b"bridle worker\0" + executor.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class Tenure:
    """Whether a worker may run CLIs, by the answers of the server that has its lock.

    Times are seconds of one monotonic clock. What counts is when a request was sent: the server
    may have received it at any moment after that.
    """

    def __init__(self, now: float, limit: float | None = CUT_OFF) -> None:
        self._limit = limit
        self._confirmed = now

    def confirm(self, sent: float) -> None:
        """Take note that the server has answered a request."""
        self._confirmed = max(self._confirmed, sent)

    def is_over(self, now: float) -> bool:
        """Return whether the worker must kill its CLIs."""
        return self._limit is not None and now - self._confirmed >= self._limit


class SeenFor:
    """How long names have been seen without a break, such as executors whose locks are free.

    ``wait`` is the seconds after which a name is due.
    """

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._since: dict[str, float] = {}

    def due(self, seen: Collection[str], now: float) -> list[str]:
        """Take note of the names that are seen now. Return those that are due."""
        self._since = {one: self._since.get(one, now) for one in seen}
        return [one for one, since in self._since.items() if now - since >= self._wait]

    def forget(self) -> None:
        """Forget all names, after a look that failed."""
        self._since = {}

    def pause(self, now: float, limit: float) -> float:
        """Return after how many seconds to look again: when a name becomes due, or ``limit``."""
        waits = [since + self._wait - now for since in self._since.values()]
        return min([limit, *(one for one in waits if one > 0)])


# ---------------------------------------------------------------- workers that died


class Crashes(Struct, frozen=True):
    """The workers that died while they had a run, by name, and how many runs each of them had."""

    workers: Mapping[str, int] = {}

    @property
    def alone(self) -> list[str]:
        """Return the workers that had no other run, so that no other run was the reason."""
        return [name for name, count in self.workers.items() if count == 1]

    @property
    def is_hopeless(self) -> bool:
        """Return whether the run fails instead of being started again."""
        return len(self.alone) >= GIVE_UP

    @property
    def is_suspect(self) -> bool:
        """Return whether a worker must not have another run beside this one."""
        return len(self.workers) >= SUSPECT and not self.is_hopeless

    @property
    def backoff(self) -> float:
        """Return after how many seconds the run goes into the queue again."""
        exponent = min(len(self.workers) - SUSPECT, 10)
        return min(2.0**exponent, LONGEST_BACKOFF) if self.is_suspect else 0.0

    @property
    def text(self) -> str:
        """Return the sentence for people."""
        count = len(self.workers)
        if self.is_hopeless:
            alone = self.alone
            return (
                f"{len(alone)} workers died while this run was the only one that they had, so it "
                f"is not started again. The last one was {alone[-1]}: see its log"
            )
        return f"{count} workers died while they had this run, so it is started alone"

    def and_of(self, worker: str, runs: int) -> Crashes:
        """Return these crashes and that of a worker that had so many runs."""
        return Crashes({**self.workers, worker: runs})

    def without(self, worker: str) -> Crashes:
        """Return these crashes without that of a worker."""
        return Crashes({name: runs for name, runs in self.workers.items() if name != worker})


# ---------------------------------------------------------------- dollars of tenants


class Ledger:
    """What the runs of one tenant have cost in a window of time. Reads of the database fill it."""

    #: Seconds that are read again: costs may be added to a run after it has ended.
    OVERLAP = 120.0

    def __init__(self, window: float) -> None:
        self._window = window
        self._costs: dict[str, tuple[float, float]] = {}
        self._read_at: float | None = None

    def after(self, now: float) -> float:
        """Return from which time on runs have to be read."""
        start = now - self._window
        return start if self._read_at is None else max(start, self._read_at - self.OVERLAP)

    def add(self, costs: Mapping[str, tuple[float, float]], now: float) -> None:
        """Add what was read at a time: when each run ended, and US dollars."""
        self._read_at = now
        start = now - self._window
        kept = {**self._costs, **costs}
        self._costs = {one: cost for one, cost in kept.items() if cost[0] > start}

    @property
    def costs(self) -> list[tuple[float, float]]:
        """Return when each run ended, and US dollars."""
        return [*self._costs.values()]


def seconds_until_affordable(
    costs: Sequence[tuple[float, float]], limit: float, window: float, now: float
) -> float:
    """Return after how many seconds a tenant may start a run. 0.0 if it may do so now.

    Args:
        costs: when each run of the tenant ended, and what it cost in US dollars. An unknown cost
            is infinite.
        limit: dollars of a window.
        window: seconds.
        now: the time.
    """
    spent = 0.0
    for at, usd in sorted(costs, reverse=True):
        if at <= now - window:
            break
        spent += usd
        if spent >= limit:  # this run has to leave the window
            return max(at + window - now, 0.0)
    return 0.0
