"""A workflow of DBOS as a row of the fleet: its status, its segment and what is noted about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from bridle._spi import StoredOutcome
from bridle.fleet._decisions import Segment, decode_segment, head_of
from bridle.fleet._queue.claims import DUE

_HEAD = "head"
"""The attribute with the head of a segment, for lists. See `head_of`."""

_T = TypeVar("_T")


class SegmentResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a workflow."""

    outcome: StoredOutcome


# Built here, as `decode_segment` is.
decode_result = msgspec.json.Decoder(SegmentResult).decode


class Row(Struct, frozen=True, kw_only=True):
    """A workflow as it is in the database."""

    id: str
    #: ENQUEUED, DELAYED, PENDING, SUCCESS, ERROR, CANCELLED or MAX_RECOVERY_ATTEMPTS_EXCEEDED.
    status: str
    executor: str | None
    attributes: Mapping[str, Any]
    starts: int
    #: Seconds since the epoch.
    created_at: float
    started_at: float | None
    completed_at: float | None
    delayed_until: float | None
    #: None if it was not read, or cannot be decoded.
    segment: Segment | None
    result: SegmentResult | None
    #: True if the segment has only the beginning of its prompt.
    is_cut: bool = False
    #: The name of the exception with which the workflow failed.
    error: str | None = None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _due(milliseconds_: int | None) -> int | None:
    """Return the time in a row, which older versions have stored as it is."""
    return milliseconds_ - DUE if milliseconds_ and milliseconds_ >= DUE else milliseconds_


def _decoded(text: object, decode: Callable[[str], _T]) -> _T | None:
    """Decode a text of a row. One row with invalid data must not hide the others."""
    if not isinstance(text, str):
        return None
    try:
        return decode(text)
    except msgspec.DecodeError:
        return None


def tenant_in(context: str) -> str | None:
    """Return the tenant of a schedule, by its context: a segment as JSON, in a string of JSON."""
    segment = _decoded(_decoded(context, msgspec.json.decode), decode_segment)
    return None if segment is None else segment.tenant


def created_at(one: Any) -> float:
    """Return when a workflow was created, in seconds since the epoch."""
    return (one.created_at or 0) / 1000


def segment_of(one: Any) -> Segment | None:
    """Return the segment of a workflow. None if it was not read, or cannot be decoded."""
    given: dict[str, Any] = one.input or {}
    arguments: Any = given.get("args")
    return _decoded(arguments[0], decode_segment) if arguments else None


def row_of(one: Any, segment: Segment | None, *, is_cut: bool = False) -> Row:
    """Return the row of a workflow with this segment."""
    error = one.error
    return Row(
        id=one.workflow_id,
        status=one.status,
        executor=one.executor_id,
        attributes=one.attributes or {},
        starts=one.recovery_attempts or 0,
        created_at=created_at(one),
        started_at=_seconds(one.dequeued_at),
        completed_at=_seconds(one.completed_at),
        delayed_until=_seconds(_due(one.delay_until_epoch_ms)),
        segment=segment,
        result=_decoded(one.output, decode_result),
        is_cut=is_cut,
        # The name of an exception is safe to show. Its text may contain data of the user.
        error=None if error is None else getattr(error, "name", None) or type(error).__name__,
    )


def attributes_of(segment: Segment) -> dict[str, Any]:
    """Return the attributes by which segments are found, and the head of a long one."""
    found = {
        "run": segment.run_id,
        "kind": None if segment.kind == "start" else segment.kind,
        "key": segment.key,
        "tenant": segment.tenant,
        "at": segment.submitted_at,
        _HEAD: head_of(segment),
    }
    return {name: value for name, value in found.items() if value is not None}


def head_in(attributes: Mapping[str, Any] | None) -> Segment | None:
    """Return the head of a long segment that its attributes have. None if they have none."""
    return _decoded((attributes or {}).get(_HEAD), decode_segment)
