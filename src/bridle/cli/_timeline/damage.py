"""Find missing and damaged lines in a recording that can still be replayed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bridle.cli._timeline.frame_summaries import part, text
from bridle.testing.recording import Entry, Recording


def damage(recording: Recording) -> list[str]:
    """Return one sentence, without a period, for each missing or damaged part."""
    found = [*_spoiled(recording), *_missing(recording)]
    return [*found, recording.gap] if recording.gap else found


def _spoiled(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a sentence about frames that are not JSON objects. The CLI may have sent them so."""
    numbers = [
        number
        for number, entry in enumerate(entries, 1)
        if entry.direction in ("in", "out") and not entry.members and not entry.partial
    ]
    if numbers:
        count = "a frame is" if len(numbers) == 1 else f"{len(numbers)} frames are"
        yield f"{count} not JSON, the first one in line {numbers[0]}"


def _missing(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a sentence for each missing line that other lines refer to."""
    wire = [entry for entry in entries if entry.direction in ("in", "out") and entry.members]
    first = next((entry for entry in wire if entry.direction == "in"), None)
    if wire and (first is None or text(part(first.members, "request"), "subtype") != "initialize"):
        yield "the beginning of the session is missing"
    # Requests of both sides, because the CLI repeats our responses.
    asked = {
        text(entry.members, "request_id")
        for entry in wire
        if text(entry.members, "type") == "control_request"
    }
    for number, entry in enumerate(entries, 1):
        if text(entry.members, "type") == "control_response":
            request_id = text(part(entry.members, "response"), "request_id")
            if request_id not in asked:
                yield f"line {number} answers a request that is missing"
                return
