"""The timeline of a recording: all frames, their spans of time, and facts about the session.

:func:`timeline` is pure: it turns entries into a model. The page only draws the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from bridle._spi import actions as act
from bridle.cli._timeline.conversation import Conversation, Item
from bridle.cli._timeline.frame_summaries import Frame, Json, frame_of, part, text
from bridle.cli._timeline.request_spans import CommandHooks, Process, Requests
from bridle.cli._timeline.spans import (
    Draft,
    Follower,
    Lane,
    Model,
    Seen,
    State,
    Tasks,
    Tools,
    Turns,
)
from bridle.testing.recording import Entry
from bridle.testing.replaying import EnginePlayer

_QUIET = 5.0
"""Seconds without a frame after which the page can hide the pause."""


class Span(msgspec.Struct, frozen=True):
    """A period of time, or a moment if start and end are equal."""

    lane: Lane
    title: str
    start: float
    end: float
    state: State
    #: Indices of its frames, in order.
    frames: list[int]
    #: Other facts, by name.
    facts: dict[str, str]
    #: The row in the lane. Spans that overlap are drawn in different rows.
    row: int = 0
    #: 1 for a span of a subagent.
    depth: int = 0


class Timeline(msgspec.Struct, frozen=True):
    """Everything that the page shows of a recording."""

    duration: float
    frames: list[Frame]
    spans: list[Span]
    #: Facts about the session, by name.
    facts: dict[str, str]
    #: Periods without a frame: start and end.
    quiet: list[tuple[float, float]]
    #: The items of the conversation, in order.
    conversation: list[Item]
    #: A description of what is missing; empty if nothing is.
    gap: str = ""


def timeline(entries: Sequence[Entry], *, gap: str = "") -> Timeline:
    """Return the timeline of these entries."""
    player = EnginePlayer()
    followers: list[Follower] = [
        *(Turns(), Model(), Tools(), Tasks()),
        *(Requests(), CommandHooks(), Process()),
    ]
    facts = _Facts()

    def steps_of(entry: Entry) -> list[act.Action]:
        return [action for _, action in player.play(entry)]

    return drawn(entries, followers, facts.found, gap=gap, steps_of=steps_of, see=facts.see)


def drawn(
    entries: Sequence[Entry],
    followers: Sequence[Follower],
    facts: dict[str, str],
    *,
    gap: str,
    steps_of: Callable[[Entry], Sequence[act.Action]] = lambda entry: (),
    see: Callable[[Seen], None] = lambda seen: None,
) -> Timeline:
    """Return a timeline with the spans of the followers.

    ``steps_of`` returns the actions of the engine for an entry. ``see`` gets every entry.
    """
    frames: list[Frame] = []
    conversation = Conversation()
    asked: dict[str, str] = {}
    for index, entry in enumerate(entries):
        members = entry.members
        if members.get("type") == "control_request":
            asked[text(members, "request_id")] = text(part(members, "request"), "subtype")
        frames.append(frame_of(entry, members, asked))
        seen = Seen(index, entry.t, entry.direction, members, entry.line, steps_of(entry))
        for follower in followers:
            follower.see(seen)
        see(seen)
        conversation.see(seen)
    drafts = [draft for follower in followers for draft in follower.drafts]
    last = max([entries[-1].t if entries else 0.0, *(draft.end or 0.0 for draft in drafts)])
    return Timeline(
        duration=last,
        frames=frames,
        spans=_placed(drafts, last),
        facts=facts,
        quiet=_quiet([entry.t for entry in entries]),
        conversation=conversation.items,
        gap=gap,
    )


def _placed(drafts: Iterable[Draft], last: float) -> list[Span]:
    """Return the spans sorted by lane and start, each in the first free row."""
    order = list(Lane)
    rows: dict[Lane, list[float]] = {}
    spans: list[Span] = []
    for draft in sorted(drafts, key=lambda one: (order.index(one.lane), one.start)):
        end = last if draft.end is None else draft.end
        taken = rows.setdefault(draft.lane, [])
        free = (number for number, until in enumerate(taken) if until <= draft.start)
        row = next(free, len(taken))
        taken[row : row + 1] = [end]
        spans.append(
            Span(
                lane=draft.lane,
                title=draft.title,
                start=draft.start,
                end=end,
                state=State.OPEN if draft.end is None else draft.state,
                frames=sorted(draft.frames),
                facts=draft.facts,
                row=row,
                depth=draft.depth,
            )
        )
    return spans


def _quiet(times: Sequence[float]) -> list[tuple[float, float]]:
    return [(before, after) for before, after in pairwise(times) if after - before >= _QUIET]


class _Facts:
    """Collects facts about the whole session."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        frame = seen.frame
        if seen.subtype == "init":
            self._keep(
                session=text(frame, "session_id"),
                model=text(frame, "model"),
                cli=text(frame, "claude_code_version"),
                directory=text(frame, "cwd"),
                mode=text(frame, "permissionMode"),
            )
        elif seen.kind == "result":
            self._keep(cost=_dollars(frame))
        elif seen.direction == "meta":
            exit_code = frame.get("exit", "")
            self._keep(started=text(frame, "started"), exit=str(exit_code))

    def _keep(self, **facts: str) -> None:
        self.found.update({name: value for name, value in facts.items() if value})


def _dollars(frame: Json) -> str:
    cost = frame.get("total_cost_usd")
    return f"${cost:.4f}" if isinstance(cost, int | float) else ""
