"""Define the journal of a session: what it was about to do, and what came of it.

A journal is a list of entries under the subkey ``journal`` of a session store. It holds each prompt
before it is sent, each tool call before it runs, the results of the calls, the outcomes of the
prompts, and which outcomes the program has received. Recovery reads it after a crash.

An idempotency key belongs to a tool call. A call that was cut off by a crash and is repeated in a
recovery has the same key. :class:`CallKeys` makes the keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from bridle._core.wire import decode_line, encode_json, encode_user_message, utf8
from bridle._raw_line import JsonObject
from bridle._store import Entry
from bridle.approvals import PendingApproval
from bridle.content import Content, ToolResultBlock
from bridle.errors import ProcessInfo
from bridle.events import ApiRetry
from bridle.messages import Message, ResultMessage, Usage, UserMessage
from bridle.outcomes import Outcome, OutcomeReason
from bridle.tools import key_of_call

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


def _decoded(entry: Entry) -> JournalEntry | UnknownEntry:
    try:
        return cast("JournalEntry", msgspec.convert(entry, JournalEntry, strict=False))
    except (msgspec.ValidationError, RecursionError):
        return UnknownEntry(entry)


def is_probe(entry: JournalEntry | UnknownEntry) -> bool:
    """Return whether an entry only shows that the store works. See ``_shell/rejections.py``."""
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


def results_in(messages: Sequence[Message]) -> list[ToolResultBlock]:
    """Return the tool results in messages of the CLI."""
    return [
        block
        for message in messages
        if type(message) is UserMessage and not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


def store_outcome(outcome: Outcome[Any]) -> StoredOutcome:
    """Return an outcome as the journal keeps it."""
    kept: dict[str, Any] = {name: getattr(outcome, name) for name in _COPIED}
    result = None if outcome.result is None else outcome.result.raw
    # The text of a validator may hold half of a surrogate pair, which JSON cannot carry.
    kept["detail"], kept["errors"] = utf8(outcome.detail), tuple(map(utf8, outcome.errors))
    return StoredOutcome(**kept, result=result)


def restore_outcome(stored: StoredOutcome) -> Outcome[Any]:
    """Return an outcome of the journal. Its ``output`` has to be converted again."""
    result = None if stored.result is None else decode_line(encode_json(stored.result))
    kept: dict[str, Any] = {name: getattr(stored, name) for name in _COPIED}
    if not isinstance(result, ResultMessage):
        return Outcome(**kept)
    return Outcome(**kept, result=result, deferred_tool_use=result.deferred_tool_use)


_COPIED = tuple(name for name in StoredOutcome.__struct_fields__ if name != "result")
"""The fields that an outcome and its stored form have in common."""

# ---------------------------------------------------------------- idempotency keys


def hash_of_call(tool_name: str, tool_input: Mapping[str, object]) -> str:
    """Return a text that is the same for equal calls."""
    json = msgspec.json.encode([tool_name, tool_input], order="deterministic")
    return sha256(json).hexdigest()[:32]


class _CutOff(Struct, frozen=True):
    """A call that a crash cut off. The first equal call that repeats it gets its key."""

    #: The prompt of the program.
    prompt: str | None
    key: str
    #: Its ids. A repeated call that was cut off too has another id and the same key.
    ids: set[str]


class CallKeys:
    """Makes the idempotency keys of a session.

    The key of a call is made from the session, the prompt of the program, the name and the input of
    the tool, and a number that counts equal calls of that prompt. A recovery passes the
    ``entries`` of the journal: a call that is equal to a call without a recorded result then gets
    the key of that one, if both belong to the same prompt or the prompt of the recovery named it.
    ``recorded`` has the ids of calls whose result is elsewhere than in the journal.
    """

    def __init__(
        self,
        entries: Iterable[JournalEntry | UnknownEntry] = (),
        recorded: Collection[str] = (),
    ) -> None:
        # The prompt of the program, by every prompt that belongs to it. Only prompts whose outcome
        # the program has not received.
        self._prompts: dict[str, str] = {}
        # How many keys were made, by prompt of the program and hash of the call.
        self._counts: dict[str, dict[str, int]] = {}
        # The calls that the prompts of a recovery have named, by prompt of the program.
        self._named: dict[str, set[str]] = {}
        # By hash of the call, and by key.
        self._cut_off: dict[str, dict[str, _CutOff]] = {}
        self._read(list(entries), recorded)

    def _read(self, entries: list[JournalEntry | UnknownEntry], recorded: Collection[str]) -> None:
        finished = {one.tool_use_id for one in entries if isinstance(one, ToolResultEntry)}
        finished.update(recorded)
        done = {
            one.idempotency_key
            for one in entries
            if isinstance(one, ToolCallEntry) and one.tool_use_id in finished
        }
        # A spool file may reach the store late, so a call may come before its prompt.
        prompts = [one for one in entries if isinstance(one, PromptEntry)]
        continued = {one.prompt_uuid: one.continues for one in prompts if one.continues is not None}
        for one in prompts:
            self.open(one.prompt_uuid, end_of_chain(one.prompt_uuid, continued), one.named)
        seen: set[str] = set()
        for entry in entries:
            if isinstance(entry, ToolCallEntry):
                key, first = entry.idempotency_key, self._prompts.get(entry.prompt_uuid or "")
                call = entry.call_hash or hash_of_call(entry.tool_name, entry.tool_input)
                if first is not None and key not in seen:
                    self._count(first, call)
                seen.add(key)
                if key not in done:
                    calls = self._cut_off.setdefault(call, {})
                    calls.setdefault(key, _CutOff(first, key, set())).ids.add(entry.tool_use_id)
        for entry in entries:
            if isinstance(entry, ReceivedEntry):
                self.close(entry.prompt_uuid)

    def open(self, prompt: str, continues: str | None = None, named: Iterable[str] = ()) -> None:
        """Note a prompt that is about to be sent.

        Args:
            prompt: the prompt.
            continues: a prompt that belongs to the same prompt of the program.
            named: the ids of the calls that the prompt names, which the model may repeat.
        """
        first = self._prompts.get(continues or prompt, continues or prompt)
        self._prompts[prompt] = first
        self._counts.setdefault(first, {})
        self._named.setdefault(first, set()).update(named)

    def close(self, prompt: str) -> None:
        """Forget a prompt of the program that needs no recovery any more."""
        self._named.pop(prompt, None)
        if self._counts.pop(prompt, None) is not None:
            self._prompts = {one: first for one, first in self._prompts.items() if first != prompt}

    def prompt_of_program(self, prompt: str) -> str:
        """Return the prompt of the program that a prompt belongs to, which may be itself."""
        return self._prompts.get(prompt, prompt)

    def next(self, session_id: str, prompt: str | None, call: str, tool_use_id: str) -> str:
        """Return the key of the next call.

        ``prompt`` is the prompt of the turn that runs, ``call`` the hash of the call.
        """
        first = self._prompts.get(prompt or "")
        if first is None:
            return key_of_call(session_id, tool_use_id)
        repeated = self._repeated(first, call)
        if repeated is not None:
            return self._cut_off[call].pop(repeated.key).key
        return key_of_call(session_id, first, call, self._count(first, call))

    def _count(self, first: str, call: str) -> int:
        """Return the number of a new call among the equal calls of a prompt of the program."""
        counts = self._counts[first]
        counts[call] = counts.get(call, 0) + 1
        return counts[call] - 1

    def _repeated(self, first: str, call: str) -> _CutOff | None:
        """Return the call that a new one repeats. One of the same prompt comes first."""
        named, other = self._named[first], None
        for one in self._cut_off.get(call, {}).values():
            if one.prompt == first:
                return one
            if other is None and not named.isdisjoint(one.ids):
                other = one
        return other
