"""Find the turns in a transcript, and how each of them ended.

A transcript has no results. The last entries of a turn tell whether it had finished: the last
answer of the model calls no tool, or the CLI wrote that the turn was interrupted or failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from msgspec import Struct, field

from bridle._engine.turns.classify import api_reason
from bridle._engine.turns.model_text import SYNTHETIC
from bridle._engine.wire.codec import encode_json
from bridle._records.raw_line import JsonObject
from bridle.approvals import PendingApproval
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._backlog import DEFERRED
from bridle.sessions._transcripts.texts import INTERRUPTED
from bridle.sessions._transcripts.transcript import TranscriptEntry, blocks_of, object_of, text_of

_STRUCTURED = "StructuredOutput"
"""The tool that the model calls to give a structured output."""

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
        attached = object_of(entry.raw.get("attachment"))
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
    notes = _Notes()
    for entry in branch:
        prompts = prompts_in(entry)
        is_prompt = entry.type == "user" and not notes.is_note(entry) and _is_prompt(entry)
        if has_answer and prompts and is_prompt:
            turns.append(StoredTurn())
            has_answer = False
        if turns:
            turns[-1].prompts.extend(prompts)
            turns[-1].entries.append(entry)
            turns[-1].calls.update(entry.tool_calls)
        has_answer = has_answer or entry.type == "assistant" or _is_output(entry)
    return turns


class _Notes:
    """Find the texts in the name of the user with which the CLI notes that a turn was interrupted.

    From 2.1.197 on, a prompt has an id and a source. The note has the same id and no source. Older
    entries have neither, so their words decide.
    """

    def __init__(self) -> None:
        self._prompts: set[str] = set()

    def is_note(self, entry: TranscriptEntry) -> bool:
        """Return whether the entry is such a note. Takes the entries of type ``user`` in order."""
        raw = entry.raw
        id = text_of(raw, "promptId")
        if "promptSource" in raw:
            if id is not None:
                self._prompts.add(id)
            return False
        if entry.tool_results or entry.is_meta or raw.get("isCompactSummary") is True:
            return False
        is_of_prompt = id in self._prompts and "origin" not in raw
        return is_of_prompt or _text(raw).startswith(INTERRUPTED)


def failed_results(entry: TranscriptEntry) -> tuple[str, ...]:
    """Return the ids of the tool calls whose results an entry has as errors, for whatever reason.

    A call that did not run, as the CLI says, is left out.
    """
    if denied_calls(entry):
        return ()
    blocks = blocks_of(object_of(entry.raw.get("message")).get("content"))
    errors = (one.get("tool_use_id") for one in blocks if one.get("is_error") is True)
    return tuple(one for one in errors if isinstance(one, str))


def denied_calls(entry: TranscriptEntry) -> tuple[str, ...]:
    """Return the ids of the tool calls that did not run, as the CLI says in an entry."""
    is_denial = "toolDenialKind" in entry.raw and not entry.is_cut_off
    return entry.tool_results if is_denial else ()


def _is_prompt(entry: TranscriptEntry) -> bool:
    """Return False for text that the CLI wrote in the name of the user, but for interrupts."""
    raw = entry.raw
    is_notice = object_of(raw.get("origin")).get("kind") == "task-notification"
    is_summary = raw.get("isCompactSummary") is True
    text = _text(raw)
    is_result = text.startswith("<local-command-")
    return not (entry.is_meta or is_notice or is_summary or is_result)


def _is_output(entry: TranscriptEntry) -> bool:
    return entry.type == "system" and entry.raw.get("subtype") == "local_command"


# ---------------------------------------------------------------- calls that wait


def waiting_call(entries: Iterable[TranscriptEntry], session_id: str) -> PendingApproval | None:
    """Return the tool call that waits for approval. None if no call waits.

    It is the last call that a hook deferred, unless a prompt or an entry that names it followed.
    Entries are compared in the order of the file, as the CLI does: the entry of a call may lie
    beside the branch that the CLI resumes. The CLI would also run a call that a prompt followed, so
    it must not get the entries of other calls that were deferred.
    """
    found: PendingApproval | None = None
    notes = _Notes()
    for entry in entries:
        is_note = entry.type == "user" and notes.is_note(entry)
        deferred = _deferred(entry.raw, session_id) if entry.type == "attachment" else None
        if deferred is not None:
            found = deferred
        elif found is not None and (
            naming_call(found.tool_use_id) in entry.raw_line
            or (prompts_in(entry) and not is_note and _is_prompt(entry))
        ):
            found = None
    return found


def naming_call(tool_use_id: str) -> bytes:
    """Return the part of a line by which the CLI knows that a deferred call waits no more.

    It is in the result of the call, and in the API requests that newer CLIs save.
    """
    return b'"tool_use_id":' + encode_json(tool_use_id)


def _deferred(raw: JsonObject, session_id: str) -> PendingApproval | None:
    """Return the call that an attachment defers. None for another attachment."""
    attached = object_of(raw.get("attachment"))
    name, call = text_of(attached, "toolName"), text_of(attached, "toolUseID")
    if attached.get("type") != DEFERRED or name is None or call is None:
        return None
    return PendingApproval(
        session_id=session_id,
        tool_name=name,
        tool_input=object_of(attached.get("toolInput")),
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
        self._notes = _Notes()

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
        message = object_of(raw.get("message"))
        is_failure = raw.get("isApiErrorMessage") is True
        if message.get("model") == SYNTHETIC and not is_failure:
            return  # the CLI closes a turn that was cut off, before a prompt that follows it
        self.outcome = None
        blocks = blocks_of(message.get("content"))
        texts = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
        stop = message.get("stop_reason")
        if is_failure:
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
        is_note = self._notes.is_note(entry)
        if entry.tool_results:
            if raw.get("toolEndsTurn") is True and self._output is not None:
                self._end(OutcomeReason.COMPLETED, structured_output=self._output)
        elif is_note:
            self._end(OutcomeReason.INTERRUPTED, "the turn was interrupted")

    def _read_attachment(self, raw: JsonObject) -> None:
        attached = object_of(raw.get("attachment"))
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


def _text(raw: JsonObject) -> str:
    content = object_of(raw.get("message")).get("content")
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text") or "") for block in blocks_of(content))
