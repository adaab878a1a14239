"""Find the turns in a transcript, and how each of them ended.

A transcript has no results. The last entries of a turn tell whether it had finished: the last
answer of the model calls no tool, or the CLI wrote that the turn was interrupted or failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from msgspec import Struct, field

from bridle._core.classify import api_reason
from bridle._core.mirroring import DEFERRED
from bridle._core.transcripts import TranscriptEntry, text_of
from bridle._raw_line import JsonObject
from bridle.approvals import PendingApproval
from bridle.outcomes import Outcome, OutcomeReason

_STRUCTURED = "StructuredOutput"
"""The tool that the model calls to give a structured output."""

_INTERRUPTED = "[Request interrupted by user"

_OUTPUT = re.compile(r"<local-command-(stdout|stderr)>(.*)</local-command-\1>", re.DOTALL)
"""What a slash command wrote."""

_FINAL = frozenset({"end_turn", "stop_sequence"})
"""Reasons for which the model stops that end a turn. After others, the CLI asks it again."""


class StoredTurn(Struct, frozen=True):
    """A part of a conversation: prompts, and what followed until the next prompt."""

    prompts: list[str] = field(default_factory=list[str])
    entries: list[TranscriptEntry] = field(default_factory=list[TranscriptEntry])
    #: The ids of its tool calls.
    calls: set[str] = field(default_factory=set[str])


def prompts_in(entry: TranscriptEntry) -> tuple[str, ...]:
    """Return the uuids of the prompts that an entry holds.

    The CLI joins queued prompts in one entry with the uuid of the last. It attaches prompts that
    arrive while a tool runs to the running turn.
    """
    if entry.type == "attachment":
        attached = _object(entry.raw.get("attachment"))
        source = text_of(attached, "source_uuid")
        is_prompt = attached.get("type") == "queued_command" and source is not None
        return (cast(str, source),) if is_prompt else ()
    if entry.type != "user" or entry.uuid is None or entry.tool_results:
        return ()
    merged = entry.raw.get("mergedSendUuids")
    others = cast("list[object]", merged) if isinstance(merged, list) else []
    return (*(one for one in others if isinstance(one, str)), entry.uuid)


def turns_of(branch: Iterable[TranscriptEntry]) -> list[StoredTurn]:
    """Return the turns of a conversation. Prompts without an answer between them are one turn."""
    turns: list[StoredTurn] = []
    has_answer = True
    for entry in branch:
        prompts = prompts_in(entry)
        if has_answer and entry.type == "user" and prompts and _is_prompt(entry):
            turns.append(StoredTurn())
            has_answer = False
        if turns:
            turns[-1].prompts.extend(prompts)
            turns[-1].entries.append(entry)
            turns[-1].calls.update(entry.tool_calls)
        has_answer = has_answer or entry.type == "assistant" or _is_output(entry)
    return turns


def _is_prompt(entry: TranscriptEntry) -> bool:
    """Return False for text that the CLI wrote in the name of the user."""
    raw = entry.raw
    is_notice = _object(raw.get("origin")).get("kind") == "task-notification"
    is_summary = raw.get("isCompactSummary") is True
    text = _text(raw)
    is_result = text.startswith((_INTERRUPTED, "<local-command-"))
    return not (entry.is_meta or is_notice or is_summary or is_result)


def _is_output(entry: TranscriptEntry) -> bool:
    return entry.type == "system" and entry.raw.get("subtype") == "local_command"


# ---------------------------------------------------------------- calls that wait


def waiting_call(entries: Iterable[TranscriptEntry], session_id: str) -> PendingApproval | None:
    """Return the tool call that waits for approval. None if no call waits.

    It is the last call that a hook deferred, if it has no result and no prompt followed. Entries
    are compared in the order of the file, as the CLI does: the entry of a call may lie beside the
    branch that the CLI resumes.
    """
    found: PendingApproval | None = None
    for entry in entries:
        deferred = _deferred(entry.raw, session_id) if entry.type == "attachment" else None
        if deferred is not None:
            found = deferred
        elif found is not None and (
            found.tool_use_id in entry.tool_results or (prompts_in(entry) and _is_prompt(entry))
        ):
            found = None
    return found


def _deferred(raw: JsonObject, session_id: str) -> PendingApproval | None:
    """Return the call that an attachment defers. None for another attachment."""
    attached = _object(raw.get("attachment"))
    name, call = text_of(attached, "toolName"), text_of(attached, "toolUseID")
    if attached.get("type") != DEFERRED or name is None or call is None:
        return None
    return PendingApproval(
        session_id=session_id,
        tool_name=name,
        tool_input=_object(attached.get("toolInput")),
        tool_use_id=call,
        cwd=text_of(raw, "cwd"),
        permission_mode=text_of(attached, "permissionMode"),
        cli_version=text_of(raw, "version"),
    )


# ---------------------------------------------------------------- how a turn ended


def ending_of(turn: StoredTurn, session_id: str) -> Outcome[Any] | None:
    """Return the outcome of a turn, without costs. None if it had not finished."""
    end = _Ending(session_id)
    for entry in turn.entries:
        end.read(entry)
    return end.outcome


class _Ending:
    """Reads the entries of a turn. Each of them may end the turn, or show that it went on."""

    def __init__(self, session_id: str) -> None:
        self.outcome: Outcome[Any] | None = None
        self._session_id = session_id
        self._text = ""
        self._output: object = None

    def read(self, entry: TranscriptEntry) -> None:
        match entry.type:
            case "assistant":
                self._read_answer(entry.raw)
            case "user":
                self._read_user(entry)
            case "attachment":
                self._read_attachment(entry.raw)
            case "system":
                self._read_system(entry.raw)
            case _:
                return

    def _end(self, reason: OutcomeReason, detail: str = "", **fields: Any) -> None:
        told: dict[str, Any] = {"text": self._text, "session_id": self._session_id, **fields}
        self.outcome = Outcome(reason=reason, detail=detail, **told)

    def _read_answer(self, raw: JsonObject) -> None:
        self.outcome = None
        message = _object(raw.get("message"))
        blocks = _blocks(message.get("content"))
        texts = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
        stop = message.get("stop_reason")
        if raw.get("isApiErrorMessage") is True:
            name, status = text_of(raw, "error"), raw.get("apiErrorStatus")
            reason = api_reason(name, status if isinstance(status, int) else None)
            if stop == "refusal":
                reason = OutcomeReason.REFUSED
            self._end(reason, "".join(texts), api_error=name)
            return
        if texts and stop != "refusal":
            self._text = texts[-1]
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        for call in calls:
            if call.get("name") == _STRUCTURED:
                self._output = call.get("input")
        if texts and stop in _FINAL and not calls:
            self._end(OutcomeReason.COMPLETED)

    def _read_user(self, entry: TranscriptEntry) -> None:
        self.outcome = None
        raw = entry.raw
        if entry.tool_results:
            if raw.get("toolEndsTurn") is True and self._output is not None:
                self._end(OutcomeReason.COMPLETED, structured_output=self._output)
        elif _text(raw).startswith(_INTERRUPTED):
            self._end(OutcomeReason.INTERRUPTED, "the turn was interrupted")

    def _read_attachment(self, raw: JsonObject) -> None:
        attached = _object(raw.get("attachment"))
        match attached.get("type"):
            case "queued_command":
                self.outcome = None
            case "max_turns_reached":
                limit = attached.get("maxTurns")
                detail = f"the CLI reached its max_turns: {limit}"
                self._end(OutcomeReason.MAX_TURNS, detail)
            case "hook_stopped_continuation":
                why = text_of(attached, "message") or ""
                self._end(OutcomeReason.STOPPED_BY_HOOK, f"a hook ended the turn: {why}")
            case _ if (pending := _deferred(raw, self._session_id)) is not None:
                reason = OutcomeReason.TOOL_DEFERRED
                self._end(reason, "a hook deferred a tool call", pending=pending)
            case _:
                return

    def _read_system(self, raw: JsonObject) -> None:
        match raw.get("subtype"):
            case "local_command":
                found = _OUTPUT.fullmatch(text_of(raw, "content") or "")
                if found is not None:
                    self._end(OutcomeReason.COMPLETED, text=found[2])
            case "stop_hook_summary" if raw.get("preventedContinuation") is True:
                why = text_of(raw, "stopReason") or ""
                self._end(OutcomeReason.STOPPED_BY_HOOK, f"a hook ended the turn: {why}")
            case _:
                return


def _object(value: object) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _blocks(content: object) -> list[JsonObject]:
    found = cast("list[object]", content) if isinstance(content, list) else []
    return [_object(block) for block in found]


def _text(raw: JsonObject) -> str:
    content = _object(raw.get("message")).get("content")
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text") or "") for block in _blocks(content))
