"""Recordings of real CLIs against the engine: does every prompt get what the recording implies?

The rule of this file: what a recording implies is worked out here from its lines as a whole, with
hindsight; the engine has to come to the same while they arrive, cut anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, field

from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle.outcomes import OutcomeReason as Reason

Frame = dict[str, Any]

RECORDINGS = Path(__file__).resolve().parent.parent / "wire" / "golden"

#: A uuid that is used twice gets no turn of its own; Bridle never does that.
_NOT_OURS = {"duplicate_uuid", "duplicate_uuid_running"}
# They have no prompt: the CLI continues a turn that waited for approval.
_NOT_OURS |= {"approval_allow", "approval_awaited", "approval_deny"}


def recordings() -> list[Path]:
    """Every recording that can be replayed."""
    return [path for path in sorted(RECORDINGS.glob("*/*.ndjson")) if path.stem not in _NOT_OURS]


class Implied(Struct):
    """What hindsight says of one prompt."""

    reason: Reason
    together_with: frozenset[str] = frozenset()


# ---------------------------------------------------------------- hindsight

_BY_TERMINAL_REASON = {
    "aborted_streaming": Reason.INTERRUPTED,
    "aborted_tools": Reason.INTERRUPTED,
    "max_turns": Reason.MAX_TURNS,
    "hook_stopped": Reason.STOPPED_BY_HOOK,
    "stop_hook_prevented": Reason.STOPPED_BY_HOOK,
    "tool_deferred": Reason.TOOL_DEFERRED,
}
_BY_SUBTYPE = {
    "error_max_budget_usd": Reason.MAX_BUDGET,
    "error_max_structured_output_retries": Reason.OUTPUT_INVALID,
}
_BY_STATUS = {401: Reason.AUTH_FAILED, 403: Reason.AUTH_FAILED, 429: Reason.RATE_LIMITED}
_BY_TEXT = {
    "UserPromptSubmit operation blocked by hook:": Reason.PROMPT_BLOCKED,
    "Operation stopped by hook:": Reason.STOPPED_BY_HOOK,
    "Not logged in": Reason.AUTH_FAILED,
    "Unknown command:": Reason.EXECUTION_ERROR,
    "Not enough messages to compact": Reason.EXECUTION_ERROR,
}


def reason_of(result: Frame, before: list[Frame], *, wants_output: bool) -> Reason:
    """How a turn ended, going by its result and the lines before it."""
    named = _BY_TERMINAL_REASON.get(result.get("terminal_reason", "")) or _BY_SUBTYPE.get(
        result["subtype"]
    )
    if named is not None:
        return named
    if result.get("stop_reason") == "refusal":
        return Reason.REFUSED
    text = result.get("result") or ""
    told = next((reason for words, reason in _BY_TEXT.items() if text.startswith(words)), None)
    if told is not None:
        return told
    if (result.get("errors") or [""])[0].startswith("not_claimed:"):
        return Reason.EXECUTION_ERROR
    if result["is_error"]:
        return _BY_STATUS.get(result.get("api_error_status") or 0, Reason.API_ERROR)
    complaints = [
        frame
        for frame in before
        if (frame.get("local_command_outcome") or {}).get("kind") == "failed"
        or (frame.get("type") == "assistant" and "Error: No messages" in json.dumps(frame))
    ]
    if complaints:
        return Reason.EXECUTION_ERROR
    if wants_output and "structured_output" not in result:
        return Reason.OUTPUT_MISSING
    return Reason.COMPLETED


def implied_outcomes(path: Path) -> dict[str, Implied]:
    """What becomes of each prompt of a recording."""
    frames = list(_frames(path))
    sent = [frame["uuid"] for way, frame in frames if way == "in" and frame["type"] == "user"]
    found: dict[str, Implied] = {}
    since: list[Frame] = []
    for way, frame in frames:
        if way != "out":
            continue
        if frame["type"] != "result":
            since.append(frame)
            continue
        mine = _prompts_of(frame, since, [uuid for uuid in sent if uuid not in found])
        reason = reason_of(frame, since, wants_output=wants_output(path))
        for uuid in mine:
            found[uuid] = Implied(reason, frozenset(mine) - {uuid})
        since = []
    for uuid in sent:
        if uuid not in found:
            found[uuid] = Implied(_without_result(uuid, frames))
    return found


def _prompts_of(result: Frame, since: list[Frame], waiting: list[str]) -> list[str]:
    if "user_message_uuids" in result:
        return list(result["user_message_uuids"])
    echoes = [f["uuid"] for f in since if f.get("isReplay") and f.get("uuid") in waiting]
    kinds = [frame.get("subtype") for frame in since]
    begun = kinds.index("init") if "init" in kinds else 0
    early = [f["uuid"] for f in since[:begun] if f.get("isReplay") and f.get("uuid") in waiting]
    rest = [uuid for uuid in waiting if uuid not in echoes]
    if early and early == echoes:
        return [*echoes, *rest[:1]]
    if not echoes and "origin" not in result:
        return rest[:1]
    return echoes


def _without_result(uuid: str, frames: list[tuple[str, Frame]]) -> Reason:
    states = [f["state"] for _, f in frames if f.get("command_uuid") == uuid]
    return Reason.PROMPT_BLOCKED if "completed" in states else Reason.INTERRUPTED


def _frames(path: Path) -> Iterator[tuple[str, Frame]]:
    for way, line in _lines(path):
        yield way, json.loads(line)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for record in path.read_text("utf-8").splitlines():
        entry = json.loads(record)
        if entry["dir"] in ("in", "out"):
            yield entry["dir"], entry["line"]


def wants_output(path: Path) -> bool:
    """True if the recording's session was given a schema."""
    return path.stem.startswith("structured")


# ---------------------------------------------------------------- replay


class Replayed(Struct):
    """What the engine made of a recording."""

    outcomes: dict[str, Implied] = field(default_factory=dict)
    #: The lines that were delivered, and those that should have been.
    delivered: list[bytes] = field(default_factory=list)
    spoken: list[bytes] = field(default_factory=list)
    under_way: set[str] = field(default_factory=set)


class Replay:
    """One recording, fed to an engine in random pieces."""

    def __init__(self, path: Path, seed: int) -> None:
        self._rng = Random(seed)
        self._engine = Engine(EngineConfig(wants_output=wants_output(path)))
        self._ids: dict[str, str] = {}
        self._asked: list[str] = []
        self._buffer = b""
        self.outcome = Replayed()
        self._perform(self._engine.start("start", 0.0))
        for way, line in _lines(path):
            frame = json.loads(line)
            if way == "out":
                self._hear(line, frame)
            else:
                self._feed(len(self._buffer))
                self._say(frame)
        self._feed(len(self._buffer))

    def _say(self, frame: Frame) -> None:
        if frame["type"] == "user":
            content = frame["message"]["content"]
            self._perform(self._engine.send(frame["uuid"], frame["uuid"], content, 0.0))
        elif frame["type"] == "control_request":
            request = dict(frame["request"])
            operation = request.pop("subtype")
            if operation != "initialize":
                key = frame["request_id"]
                self._perform(self._engine.submit(key, operation, request, 0.0))
            self._ids[frame["request_id"]] = self._asked[-1]

    def _hear(self, line: str, frame: Frame) -> None:
        if frame["type"] == "control_response":
            theirs = frame["response"].get("request_id")
            line = line.replace(f'"{theirs}"', f'"{self._ids.get(theirs, theirs)}"', 1)
        elif not frame["type"].startswith("control_"):
            self.outcome.spoken.append(line.encode())
        self._buffer += line.encode() + b"\n"
        self._feed(int(self._rng.random() * len(self._buffer)))

    def _feed(self, size: int) -> None:
        while size > 0:
            piece = min(size, 1 + int(self._rng.random() ** 4 * 5000))
            self._perform(self._engine.receive(self._buffer[:piece], 0.0))
            self._buffer = self._buffer[piece:]
            size -= piece

    def _perform(self, actions: list[act.Action]) -> None:
        for action in actions:
            if isinstance(action, act.Write):
                frame = json.loads(action.data)
                if frame["type"] == "control_request":
                    self._asked.append(frame["request_id"])
            elif isinstance(action, act.Deliver):
                self.outcome.delivered.extend(one.raw_line for one in action.messages)
            elif isinstance(action, act.TurnStarted):
                self.outcome.under_way.add(action.uuid)
            elif isinstance(action, act.TurnEnded):
                self.outcome.under_way.remove(action.uuid)
                together = frozenset(action.outcome.merged_with)
                self.outcome.outcomes[action.uuid] = Implied(action.outcome.reason, together)
