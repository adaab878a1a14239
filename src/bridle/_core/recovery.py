"""Plan the recovery of a session whose program died.

The journal names the prompts whose outcome the program never received. For each of them the journal
or the transcript shows that its turn had finished, or the CLI is asked to continue the turn, or the
prompt is sent again. What is sent names every tool call that may have happened without a recorded
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Struct

from bridle._core.journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    restore_outcome,
)
from bridle._core.transcript_turns import StoredTurn, ending_of, prompts_in, turns_of
from bridle._core.transcripts import Transcript, TranscriptEntry, conversation
from bridle._raw_line import JsonObject
from bridle.content import Content
from bridle.outcomes import Outcome, OutcomeReason

MAX_INPUT_TEXT = 600
"""Characters of a tool call's input that a prompt quotes."""

_UNFINISHED = frozenset(
    {OutcomeReason.CLI_EXITED, OutcomeReason.STOPPED, OutcomeReason.START_FAILED}
)
"""Reasons of outcomes that say nothing about the end of the turn."""

_STOPPED = (
    "The program that runs this conversation stopped before your answer was complete. It has "
    "started again."
)
_CONTINUE = "Continue with the task where it stopped. Do not repeat what is already done."
_UNKNOWN = (
    "These tool calls may have happened, completely or in part. Their results were not recorded. "
    "Check what they have changed before you repeat any of them:"
)
_KNOWN = "These tool calls are done, with the result after each. Do not repeat them:"
_AGAIN = "This is the prompt that you were working on:"


class Finished(Struct, frozen=True):
    """A prompt whose turn has an outcome."""

    prompt: str
    outcome: Outcome[Any]

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts that have the outcome."""
        return (self.prompt,)


class Continue(Struct, frozen=True):
    """Prompts whose turn was cut off. ``content`` is sent as one new prompt."""

    is_new_prompt: ClassVar = True

    prompts: tuple[str, ...]
    content: Content


class SendAgain(Struct, frozen=True):
    """A prompt that the conversation does not have. ``content`` is sent under its own uuid."""

    is_new_prompt: ClassVar = False

    prompt: str
    content: Content

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts that get the outcome."""
        return (self.prompt,)


Step: TypeAlias = Finished | Continue | SendAgain


class RecoveryPlan(Struct, frozen=True):
    """What to do, in this order."""

    steps: tuple[Step, ...]
    #: The working directory of the last prompt. None if there is no prompt.
    cwd: str | None


def plan_recovery(
    journal: Iterable[JournalEntry | UnknownEntry], transcript: Transcript | None
) -> RecoveryPlan:
    """Return what to do about the prompts of the program without a received outcome.

    Args:
        journal: the journal of the session.
        transcript: everything that is known of the conversation. None if there is nothing.
    """
    book = _Book(journal)
    return RecoveryPlan(tuple(_Planner(book, transcript).steps()), book.cwd)


# ---------------------------------------------------------------- the journal


class _Book:
    """The journal, in order of time and by prompt of the program."""

    def __init__(self, journal: Iterable[JournalEntry | UnknownEntry]) -> None:
        #: The prompts of the program, in order.
        self.prompts: dict[str, PromptEntry] = {}
        #: The prompt of the program, by each prompt that belongs to it.
        self.owners: dict[str, str] = {}
        self.outcomes: dict[str, Outcome[Any]] = {}
        self.calls: dict[str, ToolCallEntry] = {}
        self.results: dict[str, ToolResultEntry] = {}
        self.cwd: str | None = None
        self._sent: list[PromptEntry] = []
        self._received: dict[str, float] = {}
        known = [entry for entry in journal if not isinstance(entry, UnknownEntry)]
        # Entries that waited in a spool file may come late.
        for entry in sorted(known, key=lambda one: one.at):
            self._read(entry)

    def _read(self, entry: JournalEntry) -> None:
        match entry:
            case PromptEntry(prompt_uuid=uuid, continues=first):
                self.cwd = entry.cwd
                self._sent.append(entry)
                self.owners[uuid] = self.owners.get(first or uuid, first or uuid)
                if first is None:
                    self.prompts.setdefault(uuid, entry)
            case ToolCallEntry():
                self.calls[entry.tool_use_id] = entry
            case ToolResultEntry():
                self.results[entry.tool_use_id] = entry
            case OutcomeEntry(prompt_uuid=uuid):
                self.outcomes[uuid] = restore_outcome(entry.outcome)
            case ReceivedEntry(prompt_uuid=uuid):
                self._received[uuid] = entry.at

    def open_prompts(self) -> list[str]:
        """Return the prompts of the program whose outcome it has not received."""
        return [uuid for uuid in self.prompts if uuid not in self._received]

    def prompts_of(self, prompt: str) -> list[str]:
        """Return a prompt of the program and those that continue it, in order."""
        return [uuid for uuid, owner in self.owners.items() if owner == prompt]

    def finished(self, prompt: str) -> Outcome[Any] | None:
        """Return the outcome of a prompt of the program if its turn has ended."""
        outcome = self.outcomes.get(prompt)
        return None if outcome is None or outcome.reason in _UNFINISHED else outcome

    def open_calls(self) -> Iterator[ToolCallEntry]:
        """Yield the calls that belong to no prompt with a received outcome.

        A call that an earlier step of the recovery has named is left out if that step has ended.
        """
        last = max(self._received.values(), default=0.0)
        told = "\n".join(
            str(one.content)
            for one in self._sent
            if self.finished(self.owners[one.prompt_uuid]) is not None
        )
        for call in self.calls.values():
            owner = self.owners.get(call.prompt_uuid or "")
            is_open = owner not in self._received and (owner is not None or call.at >= last)
            if is_open and _call(call) not in told:
                yield call


# ---------------------------------------------------------------- the plan


class _Planner:
    def __init__(self, book: _Book, transcript: Transcript | None) -> None:
        self._book = book
        self._session_id = "" if transcript is None else transcript.session_id
        entries = () if transcript is None else transcript.entries
        branch = conversation(entries, compacted=True)
        self._turns = turns_of(branch)
        # Also those of other branches: the CLI remembers the uuid of every prompt in the file.
        self._present = _uuids(entries)
        self._shown = _results(branch)
        self._recorded = self._shown | _results(entries)
        self._agents: dict[str, str | None] = {}
        for agent in () if transcript is None else transcript.subagents:
            self._agents[agent.agent_id] = agent.tool_use_id
            self._recorded |= _results(agent.entries)

    def steps(self) -> Iterator[Step]:
        notice = self._notice()
        done: set[str] = set()
        for prompt in self._book.open_prompts():
            if prompt in done:
                continue
            outcome = self._outcome(prompt)
            if outcome is not None:
                yield Finished(prompt, outcome)
                continue
            entry = self._book.prompts[prompt]
            # A turn that goes on after an approval has no prompt that could be sent again.
            if entry.content is not None and self._present.isdisjoint(
                self._book.prompts_of(prompt)
            ):
                yield SendAgain(prompt, _with_notice(notice, entry.content))
                notice = ""
                continue
            together = self._merged_with(prompt)
            done.update(together)
            hidden = [
                content
                for one in together
                if self._turn(one) is None
                and (content := self._book.prompts[one].content) is not None
            ]
            text = "\n\n".join(filter(None, (_STOPPED, notice, _CONTINUE)))
            yield Continue(tuple(together), _joined(text, hidden))
            notice = ""

    # -- turns that have finished ------------------------------------------------------------------

    def _outcome(self, prompt: str) -> Outcome[Any] | None:
        """Return how the turn of a prompt ended. None if it did not."""
        journaled = self._book.finished(prompt)
        if journaled is not None:
            return self._named(journaled, prompt, journaled.merged_with)
        waiting = self._still_waits(self._book.prompts[prompt])
        if waiting is not None:
            return waiting
        turn = self._turn(prompt)
        if turn is None or any(self._is_open(call) for call in self._calls_of(prompt)):
            return None
        ending = ending_of(turn, self._session_id)
        if ending is None:
            return None
        return self._named(ending, prompt, turn.prompts)

    def _named(self, outcome: Outcome[Any], prompt: str, merged: Iterable[str]) -> Outcome[Any]:
        """Return an outcome of a prompt with the names of the program's own prompts."""
        others = dict.fromkeys(self._book.owners.get(one) for one in merged)
        names = tuple(one for one in others if one is not None and one != prompt)
        return msgspec.structs.replace(outcome, uuid=prompt, merged_with=names)

    def _still_waits(self, entry: PromptEntry) -> Outcome[Any] | None:
        """Return the outcome of a decision that had no effect: the call waits as before."""
        call = entry.resumes
        if call is None or call in self._recorded or call in self._book.calls:
            return None
        for outcome in self._book.outcomes.values():
            if outcome.pending is not None and outcome.pending.tool_use_id == call:
                return Outcome(
                    reason=OutcomeReason.TOOL_DEFERRED,
                    detail="the program stopped before the decision about the call took effect",
                    uuid=entry.prompt_uuid,
                    session_id=self._session_id,
                    pending=outcome.pending,
                )
        return None

    def _turn(self, prompt: str) -> StoredTurn | None:
        """Return the last turn that worked on a prompt."""
        names = set(self._book.prompts_of(prompt))
        resumed = self._book.prompts[prompt].resumes
        for turn in reversed(self._turns):
            if not names.isdisjoint(turn.prompts) or (
                resumed is not None and resumed in turn.calls
            ):
                return turn
        return None

    def _merged_with(self, prompt: str) -> list[str]:
        """Return the open prompts of the turn of a prompt, which was cut off."""
        turn = self._turn(prompt)
        if turn is None:
            return [prompt]
        return [
            one
            for one in self._book.open_prompts()
            if one == prompt or (self._turn(one) is turn and self._outcome(one) is None)
        ]

    # -- tool calls --------------------------------------------------------------------------------

    def _calls_of(self, prompt: str) -> Iterator[ToolCallEntry]:
        for call in self._book.calls.values():
            if self._book.owners.get(call.prompt_uuid or "") == prompt:
                yield call

    def _is_open(self, call: ToolCallEntry) -> bool:
        """Return whether a call has no recorded result."""
        return call.tool_use_id not in self._recorded and call.tool_use_id not in self._book.results

    def _notice(self) -> str:
        """Return what the model has to know about tool calls. Empty if there are none."""
        unknown: list[str] = []
        known: list[str] = []
        for call in self._book.open_calls():
            result = self._book.results.get(call.tool_use_id)
            if self._is_open(call):
                unknown.append(_call(call))
            elif result is not None and not self._is_shown(call):
                cut = " (cut)" if result.is_cut else ""
                failed = "failed: " if result.is_error else ""
                known.append(f"{_call(call)}\n  {failed}{_quoted(result.text)}{cut}")
        parts: list[str] = []
        if unknown:
            parts.append("\n".join((_UNKNOWN, *unknown)))
        if known:
            parts.append("\n".join((_KNOWN, *known)))
        return "\n\n".join(parts)

    def _is_shown(self, call: ToolCallEntry) -> bool:
        """Return whether the model sees the result of a call, or of the subagent that made it."""
        if call.tool_use_id in self._shown:
            return True
        started_by = self._agents.get(call.agent_id or "")
        return started_by is not None and started_by in self._shown


def _uuids(entries: Iterable[TranscriptEntry]) -> set[str]:
    return {uuid for entry in entries for uuid in prompts_in(entry)}


def _results(entries: Iterable[TranscriptEntry]) -> set[str]:
    return {call for entry in entries for call in entry.tool_results}


# ---------------------------------------------------------------- text


def _call(call: ToolCallEntry) -> str:
    text = _quoted(call.tool_input)
    return f"- {call.tool_name} {text if len(text) <= MAX_INPUT_TEXT else _cut(text)}"


def _cut(text: str) -> str:
    return f"{text[:MAX_INPUT_TEXT]}… ({len(text)} characters)"


def _quoted(value: object) -> str:
    """Return a value as JSON. Without "@", which the CLI replaces by the content of files."""
    return msgspec.json.encode(value).decode().replace("@", "\\u0040")


def _with_notice(notice: str, content: str | list[JsonObject]) -> Content:
    if not notice:
        return content
    return _joined("\n\n".join((_STOPPED, notice, _AGAIN)), [content])


def _joined(text: str, contents: Sequence[str | list[JsonObject]]) -> Content:
    """Return one prompt of a text and the content of other prompts."""
    if all(isinstance(one, str) for one in contents):
        return "\n\n".join((text, *map(str, contents)))
    blocks: list[JsonObject] = [{"type": "text", "text": text}]
    for one in contents:
        blocks += [{"type": "text", "text": one}] if isinstance(one, str) else one
    return blocks
