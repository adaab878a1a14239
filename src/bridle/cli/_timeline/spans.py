"""Spans of time in a recording: turns, model calls, tools, tasks. Pure.

Each follower takes all frames and creates the spans of one kind. A span without an end in the
recording lasts until the end of the recording.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from bridle._spi import actions as act
from bridle.cli._timeline.frame_summaries import (
    Json,
    about,
    blocks,
    input_of,
    one_line,
    part,
    prompt_of,
    said,
    text,
)
from bridle.outcomes import Outcome, OutcomeReason
from bridle.testing.recording import Direction

_LONGEST_FACT = 600


class Lane(StrEnum):
    """The lane in which a span is drawn, from the top."""

    TURNS = "turns"
    MODEL = "model"
    RETRIES = "retries"
    TOOLS = "tools"
    SUBAGENTS = "subagents"
    HOOKS = "hooks"
    PERMISSIONS = "permissions"
    SERVERS = "servers"
    CONTROL = "control"
    PROCESS = "process"


class State(StrEnum):
    """How a span ended."""

    OK = "ok"
    FAILED = "failed"
    DENIED = "denied"
    STOPPED = "stopped"
    OPEN = "open"


class Seen(msgspec.Struct, frozen=True):
    """An entry for the followers, with the actions of the engine for it."""

    index: int
    t: float
    direction: Direction
    frame: Json
    line: str
    steps: Sequence[act.Action]

    @property
    def kind(self) -> str:
        """The type of the frame."""
        return text(self.frame, "type")

    @property
    def subtype(self) -> str:
        """The subtype of a system message; empty for other frames."""
        return text(self.frame, "subtype") if self.kind == "system" else ""


class Draft(msgspec.Struct):
    """An unfinished span."""

    lane: Lane
    title: str
    start: float
    frames: list[int]
    facts: dict[str, str]
    end: float | None = None
    #: The state until the span ends.
    state: State = State.OPEN
    depth: int = 0

    def add(self, seen: Seen) -> None:
        """Add a frame to the span."""
        if not self.frames or self.frames[-1] != seen.index:
            self.frames.append(seen.index)

    def close(self, seen: Seen, state: State = State.OK, **facts: str) -> None:
        """End the span with this frame."""
        self.add(seen)
        self.end, self.state = seen.t, state
        self.facts.update(_worth_telling(facts))


def _worth_telling(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: one_line(value, _LONGEST_FACT) for name, value in facts.items() if value}


class Follower(ABC):
    """Creates the spans of one kind."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []

    @abstractmethod
    def see(self, seen: Seen) -> None:
        """Take the next entry."""

    def begin(self, lane: Lane, title: str, seen: Seen, **facts: str) -> Draft:
        """Begin a new span with this frame."""
        draft = Draft(lane, one_line(title, 80), seen.t, [seen.index], _worth_telling(facts))
        self.drafts.append(draft)
        return draft


# ------------------------------------------------------------------------- turns


class Turns(Follower):
    """Turns with their outcomes from the engine, and turns without a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Draft] = {}
        self._all: dict[str, Draft] = {}
        self._follow_up: Draft | None = None
        # The entry with which each prompt was sent. Its turn may begin later.
        self._prompts: dict[str, Seen] = {}
        # The entry that contained each message.
        self._places: dict[int, Seen] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.kind == "user" and seen.direction == "in":
            self._prompts[text(seen.frame, "uuid")] = seen
        for step in seen.steps:
            if isinstance(step, act.TurnStarted):
                sent = self._prompts.get(step.uuid, seen)
                prompt = prompt_of(sent.frame)
                draft = self.begin(Lane.TURNS, prompt or "a prompt", sent, prompt=prompt)
                self._open[step.uuid] = self._all[step.uuid] = draft
            elif isinstance(step, act.Deliver | act.Attribute):
                self._deliver(step, seen)
            elif isinstance(step, act.TurnEnded) and step.uuid in self._open:
                outcome = step.outcome
                self._open.pop(step.uuid).close(seen, _ending(outcome), **_outcome_facts(outcome))
        if seen.kind == "command_lifecycle":
            self._add(text(seen.frame, "command_uuid"), seen)

    def _add(self, uuid: str, seen: Seen) -> None:
        if uuid in self._all:
            self._all[uuid].add(seen)

    def _deliver(self, step: act.Deliver | act.Attribute, seen: Seen) -> None:
        for message in step.messages:
            place = self._places.setdefault(id(message), seen)
            for uuid in step.turns:
                self._add(uuid, place)
        if seen.subtype == "init" and not step.turns:
            # A turn that the CLI starts itself, from its init message to its result. Before the
            # first prompt it finishes a turn of an earlier process, which waited for approval.
            title = ("follow-up", "background work") if self._all else ("resumed turn", "approval")
            self._follow_up = self.begin(Lane.TURNS, title[0], seen, cause=title[1])
        elif self._follow_up is not None and seen.kind == "result":
            state = State.FAILED if seen.frame.get("is_error") is True else State.OK
            self._follow_up.close(seen, state)
            self._follow_up = None
        elif self._follow_up is not None and not step.turns:
            self._follow_up.add(seen)


_ENDINGS: Mapping[OutcomeReason, State] = {
    OutcomeReason.COMPLETED: State.OK,
    OutcomeReason.INTERRUPTED: State.STOPPED,
    OutcomeReason.STOPPED: State.STOPPED,
    OutcomeReason.STOPPED_BY_HOOK: State.DENIED,
    OutcomeReason.PROMPT_BLOCKED: State.DENIED,
    OutcomeReason.REFUSED: State.DENIED,
}


def _ending(outcome: Outcome) -> State:
    return _ENDINGS.get(outcome.reason, State.FAILED)


def _outcome_facts(outcome: Outcome) -> dict[str, str]:
    cost = "" if outcome.cost_usd is None else f"${outcome.cost_usd:.4f}"
    return {
        "outcome": str(outcome.reason),
        "detail": outcome.detail,
        "answer": outcome.text,
        "cost": cost,
        "model calls": str(outcome.num_turns or ""),
        "merged with": ", ".join(outcome.merged_with),
    }


# ------------------------------------------------------------------------- the model


class Model(Follower):
    """Replies of the model, from the request to the end of the reply.

    The recording does not contain the time of the request. The span begins with the last frame
    that the request had to wait for.
    """

    def __init__(self) -> None:
        super().__init__()
        # By thread: "" for the conversation, the tool use id for a subagent.
        self._asked: dict[str, float] = {}
        self._open: dict[str, Draft] = {}
        self._by_message: dict[str, Draft] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.direction != "out":
            return
        thread = text(seen.frame, "parent_tool_use_id")
        if seen.kind == "assistant":
            message = part(seen.frame, "message")
            self._answer(seen, thread, text(message, "id"), text(message, "model"))
            for block in blocks(seen.frame):
                if block.get("type") == "tool_use":
                    self._asked[text(block, "id")] = seen.t
        elif seen.kind == "stream_event":
            message = part(seen.frame, "event", "message")
            self._answer(seen, thread, text(message, "id"), text(message, "model"))
        elif seen.subtype == "init" or (seen.kind == "user" and not seen.frame.get("isReplay")):
            self.ask(thread, seen)
        elif seen.subtype == "api_retry":
            self._retries(seen)

    def ask(self, thread: str, seen: Seen) -> None:
        """Note that the next reply of a thread cannot have begun before this frame."""
        self._asked[thread] = seen.t
        self._open.pop(thread, None)

    def _answer(self, seen: Seen, thread: str, message_id: str, model: str) -> None:
        if model == "<synthetic>":
            return
        draft = self._by_message.get(message_id) if message_id else self._open.get(thread)
        if draft is None:
            draft = self.begin(Lane.MODEL, model or "model", seen, model=model, message=message_id)
            draft.start = self._asked.get(thread, seen.t)
            draft.depth = 1 if thread else 0
            self._open[thread] = self._by_message[message_id] = draft
        draft.close(seen)
        words = _words(seen.frame)
        if words:
            before = draft.facts.get("answer")
            draft.facts["answer"] = one_line(f"{before} · {words}" if before else words)
            draft.title = one_line(draft.facts["answer"], 80)

    def _retries(self, seen: Seen) -> None:
        frame = seen.frame
        delay = frame.get("retry_delay_ms")
        status = frame.get("error_status")
        title = f"{status or 'no answer'} · {frame.get('attempt')} of {frame.get('max_retries')}"
        error = text(frame, "error")
        draft = self.begin(Lane.RETRIES, title, seen, error=error, status=str(status or ""))
        draft.state = State.FAILED
        draft.end = seen.t + (delay / 1000 if isinstance(delay, int | float) else 0.0)


def _words(frame: Json) -> str:
    told = (
        text(block, "text") or text(block, "name") or text(block, "type") for block in blocks(frame)
    )
    return " · ".join(told)


# ------------------------------------------------------------------------- tools and tasks


class Tools(Follower):
    """Tool calls, from the call to the result."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Draft] = {}
        # By the id of the permission request.
        self._questions: dict[str, Draft] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.kind == "assistant":
            for block in blocks(seen.frame):
                if block.get("type") == "tool_use":
                    self._use(block, seen)
        elif seen.kind == "user" and seen.direction == "out":
            for block in blocks(seen.frame):
                if block.get("type") == "tool_result":
                    self._result(block, seen)
        elif seen.kind in ("control_request", "system", "tool_progress"):
            self._mention(seen)
        elif seen.kind == "control_response" and seen.direction == "in":
            self._ruling(seen)
        elif seen.kind == "result" and not seen.frame.get("origin"):
            self._give_up(seen)

    def _use(self, block: Json, seen: Seen) -> None:
        name, called = text(block, "name"), part(block, "input")
        short = name.rpartition("__")[2] if name.startswith("mcp__") else name
        title = f"{short} {about(called)}"
        draft = self.begin(Lane.TOOLS, title, seen, tool=name, input=input_of(called))
        draft.depth = 1 if seen.frame.get("parent_tool_use_id") else 0
        self._open[text(block, "id")] = draft

    def _result(self, block: Json, seen: Seen) -> None:
        draft = self._open.pop(text(block, "tool_use_id"), None)
        if draft is None:
            return
        state = State.OK
        if block.get("is_error") is True:
            state = State.DENIED if draft.state is State.DENIED else State.FAILED
        draft.close(seen, state, result=said(block.get("content")))

    def _mention(self, seen: Seen) -> None:
        """Add a frame about a tool: its permission request, a hook, its progress."""
        request = part(seen.frame, "request")
        name = text(seen.frame, "tool_use_id") or text(request, "tool_use_id")
        if name in self._open:
            self._open[name].add(seen)
            if request.get("subtype") == "can_use_tool":
                self._questions[text(seen.frame, "request_id")] = self._open[name]

    def _ruling(self, seen: Seen) -> None:
        response = part(seen.frame, "response")
        draft = self._questions.pop(text(response, "request_id"), None)
        if draft is not None and part(response, "response").get("behavior") == "deny":
            draft.state = State.DENIED

    def _give_up(self, seen: Seen) -> None:
        """End the tools of the main thread, because the turn is over."""
        for name, draft in list(self._open.items()):
            if not draft.depth:
                draft.close(seen, State.STOPPED)
                del self._open[name]


_TASK_ENDINGS = {
    "completed": State.OK,
    "failed": State.FAILED,
    "stopped": State.STOPPED,
    "killed": State.STOPPED,
}


class Tasks(Follower):
    """Background tasks (subagents and shells) and their work."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, Draft] = {}
        self._by_tool: dict[str, Draft] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        frame = seen.frame
        parent = self._by_tool.get(text(frame, "parent_tool_use_id"))
        if parent is not None:
            parent.add(seen)
        task = self._open.get(text(frame, "task_id"))
        if seen.subtype == "task_started":
            self._start(seen)
        elif task is not None:
            status = text(frame, "status") or text(part(frame, "patch"), "status")
            task.add(seen)
            if status in _TASK_ENDINGS:
                told = text(frame, "summary")
                task.close(seen, _TASK_ENDINGS[status], status=status, summary=told)

    def _start(self, seen: Seen) -> None:
        frame = seen.frame
        draft = self.begin(
            Lane.SUBAGENTS,
            text(frame, "description") or text(frame, "task_type"),
            seen,
            agent=text(frame, "subagent_type"),
            task=text(frame, "task_type"),
            background="yes" if frame.get("is_backgrounded") is True else "",
            prompt=text(frame, "prompt"),
        )
        self._open[text(frame, "task_id")] = draft
        self._by_tool[text(frame, "tool_use_id")] = draft
