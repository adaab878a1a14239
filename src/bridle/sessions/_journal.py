"""Define the journal of a session: what it was about to do, and what came of it.

A journal is a list of entries under the subkey ``journal`` of a session store. It holds each prompt
before it is sent, each tool call before it runs, the results of the calls, the outcomes of the
prompts, and which outcomes the program has received. Recovery reads it after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from bridle._engine.wire.codec import (
    decode_line,
    encode_json,
    encode_user_message,
    may_have_run,
    utf8,
)
from bridle._records.raw_line import JsonObject
from bridle._records.session_store import Entry
from bridle.approvals import PendingApproval
from bridle.content import Content, ToolResultBlock
from bridle.errors import ProcessInfo
from bridle.events import ApiRetry
from bridle.messages import Message, ResultMessage, Usage, UserMessage
from bridle.outcomes import Outcome, OutcomeReason

MAX_RESULT_TEXT = 4000
"""Characters of a tool result that the journal keeps."""


class _Entry(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base class of the entries."""

    #: Random. It makes appending idempotent.
    uuid: str
    #: Seconds since the epoch.
    at: float


class PromptEntry(_Entry, frozen=True, kw_only=True, tag="prompt"):
    """A prompt that is about to be sent."""

    prompt_uuid: str
    #: Text, or a list of content blocks as JSON. None for a turn that continues without a prompt.
    content: str | list[JsonObject] | None
    #: The working directory of the CLI.
    cwd: str
    #: The prompt of the program that this prompt corrects, retries or continues. None for a prompt
    #: of the program.
    continues: str | None = None
    #: Other prompts of the program that this prompt continues too. From here on, they share their
    #: outcome with the first one.
    together_with: tuple[str, ...] = ()
    #: The tool call that waited for approval and that this turn continues. Then there is no prompt
    #: to send.
    resumes: str | None = None
    #: The ids of the tool calls that a prompt of a recovery tells the model about.
    named: tuple[str, ...] = ()


class ToolCallEntry(_Entry, frozen=True, kw_only=True, tag="tool_call"):
    """A tool call that is about to run. A permission request may still deny it."""

    tool_use_id: str
    tool_name: str
    #: The input, with the changes of the hooks.
    tool_input: JsonObject
    #: A hash of the name and the input. A store may have redacted the input.
    call_hash: str = ""
    #: The subagent that makes the call. None for the main agent.
    agent_id: str | None = None
    #: The prompt of the turn that runs. None if it is not known.
    prompt_uuid: str | None = None
    idempotency_key: str


class ToolResultEntry(_Entry, frozen=True, kw_only=True, tag="tool_result"):
    """The result of a tool call, as the model reads it. A denied call has one too."""

    tool_use_id: str
    is_error: bool = False
    #: The text, at most `MAX_RESULT_TEXT` characters.
    text: str = ""
    #: True if the text is longer than that.
    is_cut: bool = False
    #: True if the call was stopped while it ran. The text is not that of the tool, which may have
    #: done its work.
    is_interrupted: bool = False


class StoredOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An outcome as JSON. ``output`` and ``messages`` are left out."""

    reason: OutcomeReason
    detail: str = ""
    text: str = ""
    structured_output: Any = None
    errors: tuple[str, ...] = ()
    uuid: str | None = None
    merged_with: tuple[str, ...] = ()
    session_id: str | None = None
    cost_usd: float | None = None
    usage: Usage | None = None
    num_turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    main_model_calls: int = 0
    duration: float = 0.0
    #: The line of the result.
    result: JsonObject | None = None
    pending: PendingApproval | None = None
    api_error: str | None = None
    resets_at: float | None = None
    api_retries: int = 0
    last_retry: ApiRetry | None = None
    process: ProcessInfo | None = None

    def restored(self) -> Outcome[Any]:
        """Return the outcome. Its ``output`` has to be converted again."""
        result = None if self.result is None else decode_line(encode_json(self.result))
        kept: dict[str, Any] = {name: getattr(self, name) for name in _COPIED}
        if not isinstance(result, ResultMessage):
            return Outcome(**kept)
        return Outcome(**kept, result=result, deferred_tool_use=result.deferred_tool_use)


class OutcomeEntry(_Entry, frozen=True, kw_only=True, tag="outcome"):
    """The outcome of a prompt of the program."""

    prompt_uuid: str
    outcome: StoredOutcome


class ReceivedEntry(_Entry, frozen=True, kw_only=True, tag="received"):
    """A prompt that needs no recovery: the program has its outcome, or knows that it has none."""

    prompt_uuid: str


class UnknownEntry(Struct, frozen=True):
    """An entry of a newer version, or one that is damaged."""

    raw: Mapping[str, object]


JournalEntry: TypeAlias = (
    PromptEntry | ToolCallEntry | ToolResultEntry | OutcomeEntry | ReceivedEntry
)

# ---------------------------------------------------------------- encoding


def encode_entry(entry: JournalEntry) -> Entry:
    """Return an entry as a store takes it."""
    return cast("Entry", msgspec.to_builtins(entry))


def decode_entries(entries: Iterable[Entry]) -> list[JournalEntry | UnknownEntry]:
    """Return the entries of a store. Never raises: an unknown entry is kept as it is."""
    return [_decoded(entry) for entry in entries]


# Build the decoder before threads use it: msgspec crashes the process if one thread decodes a
# class while another one builds its decoder.
msgspec.json.Decoder(JournalEntry)


def _decoded(entry: Entry) -> JournalEntry | UnknownEntry:
    try:
        return cast("JournalEntry", msgspec.convert(entry, JournalEntry, strict=False))
    except (msgspec.ValidationError, RecursionError):
        return UnknownEntry(entry)


def is_probe(entry: JournalEntry | UnknownEntry) -> bool:
    """Return whether an entry only shows that the store works. See ``_outbox/rejected.py``."""
    return isinstance(entry, UnknownEntry) and entry.raw.get("type") == "probe"


def content_of(prompt: Content | bytes) -> str | list[JsonObject]:
    """Return the content of a prompt, or of its encoded line, as JSON.

    Raises:
        Unencodable: it is not a prompt.
    """
    line = prompt if isinstance(prompt, bytes) else encode_user_message(prompt, "")
    content: str | list[JsonObject] = msgspec.json.decode(line)["message"]["content"]
    return content


def last_directory(entries: Sequence[JournalEntry | UnknownEntry]) -> str | None:
    """Return the working directory of the last prompt. None if there is no prompt."""
    for entry in reversed(entries):
        if isinstance(entry, PromptEntry):
            return entry.cwd
    return None


def end_of_chain(name: str, following: Mapping[str, str]) -> str:
    """Return the last of the names that follow each other. Ends in a circle too."""
    seen: set[str] = set()
    while name in following and name not in seen:
        seen.add(name)
        name = following[name]
    return name


def results_in(messages: Sequence[Message]) -> list[tuple[ToolResultBlock, bool]]:
    """Return the tool results in messages of the CLI, and whether each call was interrupted."""
    return [
        (block, _was_interrupted(message, block.tool_use_id))
        for message in messages
        if type(message) is UserMessage and not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


def _was_interrupted(message: UserMessage, call: str) -> bool:
    return any(
        meta.get("id") == call and may_have_run(meta.get("non_execution_kind"))
        for meta in message.tool_result_meta
    )


def store_outcome(outcome: Outcome[Any]) -> StoredOutcome:
    """Return an outcome as the journal keeps it."""
    kept: dict[str, Any] = {name: getattr(outcome, name) for name in _COPIED}
    result = None if outcome.result is None else outcome.result.raw
    # The text of a validator may hold half of a surrogate pair, which JSON cannot carry.
    kept["detail"], kept["errors"] = utf8(outcome.detail), tuple(map(utf8, outcome.errors))
    return StoredOutcome(**kept, result=result)


_COPIED = tuple(name for name in StoredOutcome.__struct_fields__ if name != "result")
"""The fields that an outcome and its stored form have in common."""
