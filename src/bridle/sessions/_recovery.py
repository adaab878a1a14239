"""Plan the recovery of a session whose program died.

The journal names the prompts whose outcome the program never received. For each of them the journal
or the transcript shows that its turn had finished, or the CLI is asked to continue the turn, or the
prompt is sent again. What is sent names every tool call that may have happened without a recorded
result.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Struct

from bridle._records.raw_line import JsonObject
from bridle.approvals import PendingApproval
from bridle.content import Content
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._call_keys import keys_of
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    end_of_chain,
)
from bridle.sessions._recovery_texts import MAX_CALLS, go_on, notice, send_again
from bridle.sessions._transcripts.stored_turns import (
    StoredTurn,
    denied_calls,
    ending_of,
    failed_results,
    prompts_in,
    turns_of,
    waiting_call,
)
from bridle.sessions._transcripts.transcript import Transcript, TranscriptEntry, conversation

UNFINISHED = frozenset(
    {OutcomeReason.CLI_EXITED, OutcomeReason.STOPPED, OutcomeReason.START_FAILED}
)
"""Reasons of outcomes that say nothing about the end of the turn."""


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
    #: The tool calls that the content names: the ids of their last attempts.
    named: tuple[str, ...] = ()
    #: The ids of the tool calls of the journal that are done, by the results there or in the
    #: transcript.
    recorded: frozenset[str] = frozenset()


class SendAgain(Struct, frozen=True):
    """A prompt that the conversation does not have. ``content`` is sent under its own uuid."""

    is_new_prompt: ClassVar = False

    prompt: str
    content: Content
    #: The tool calls that the content names: the ids of their last attempts.
    named: tuple[str, ...] = ()
    #: The ids of the tool calls of the journal that are done, by the results there or in the
    #: transcript.
    recorded: frozenset[str] = frozenset()

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts that get the outcome."""
        return (self.prompt,)


Step: TypeAlias = Finished | Continue | SendAgain


class RecoveryPlan(Struct, frozen=True):
    """What to do, in this order."""

    steps: tuple[Step, ...]
    #: The tool call at the end of the conversation that waits for a decision. The CLI drops it when
    #: it gets a prompt.
    waiting: PendingApproval | None = None

    def held_back(self, prompt: str, session_id: str) -> Outcome[Any] | None:
        """Return the outcome of a prompt if nothing may be sent, because a call waits."""
        if self.waiting is None:
            return None
        return Outcome(
            reason=OutcomeReason.TOOL_DEFERRED,
            detail="a tool call of the session waits for a decision",
            uuid=prompt,
            session_id=session_id,
            pending=self.waiting,
        )


def plan_recovery(
    journal: Iterable[JournalEntry | UnknownEntry], transcript: Transcript | None
) -> RecoveryPlan:
    """Return what to do about the prompts of the program without a received outcome.

    Args:
        journal: the journal of the session.
        transcript: everything that is known of the conversation. None if there is nothing.
    """
    planner = _Planner(_Book(journal), transcript)
    return RecoveryPlan(tuple(planner.steps()), planner.waiting())


def decided_calls(journal: Iterable[JournalEntry | UnknownEntry]) -> set[str]:
    """Return the tool calls of a journal that do not wait for a decision.

    They ran, or the turn that continued after the decision has ended. A call that was denied has
    no entry of its own.
    """
    return _Book(journal).decided


def begun_calls(journal: Iterable[JournalEntry | UnknownEntry]) -> dict[str, bool]:
    """Return the tool calls of a journal that began to run, and whether a recovery is needed.

    It is needed for a call whose turn has not ended, unless the program has received its outcome.
    """
    book = _Book(journal)
    return {
        id: not (book.has_ended(call.prompt_uuid) or book.is_received(call.prompt_uuid))
        for id, call in book.calls.items()
    }


# ---------------------------------------------------------------- the journal


class _Prompt(Struct):
    """What the journal says about a prompt."""

    #: The prompt of the program that it belongs to. Prompts that are continued together belong to
    #: the first of them. None if the journal does not have the prompt.
    owner: str | None = None
    #: The prompts that belong to it, in order.
    belonging: list[str] = []
    outcome: Outcome[Any] | None = None
    is_received: bool = False  #: True if the program has received its outcome
    place: int = 0  #: its place among the prompts of the program, for one of them


class _Book:
    """The journal, in order of time and by prompt of the program."""

    def __init__(self, journal: Iterable[JournalEntry | UnknownEntry]) -> None:
        #: The prompts of the program, in order.
        self.prompts: dict[str, PromptEntry] = {}
        # Every prompt that an entry names.
        self._named: dict[str, _Prompt] = {}
        self.calls: dict[str, ToolCallEntry] = {}
        #: The results of tools, by call.
        self.results: dict[str, ToolResultEntry] = {}
        #: The calls that were stopped while they ran.
        self.interrupted: set[str] = set()
        #: The calls that waited for a decision at the end of a turn, and the prompt of the turn.
        self.deferred: dict[str, tuple[PendingApproval, str]] = {}
        #: The last of them, unless another turn has ended since then.
        self.last_deferred: str | None = None
        self._sent: list[PromptEntry] = []
        # How many prompts were sent before the last call that waited.
        self._sent_before_deferred = 0
        # The calls without a known prompt since the program last received an outcome.
        self._since_received: set[str] = set()
        # In the order of the store, because the clocks of machines differ. A spool file may reach
        # the store late, so only the order of the steps depends on the order of the entries.
        for entry in journal:
            if not isinstance(entry, UnknownEntry):
                self._read(entry)
        self._find_owners()

    def _read(self, entry: JournalEntry) -> None:
        match entry:
            case PromptEntry(prompt_uuid=uuid):
                self._sent.append(entry)
                if entry.continues is None and uuid not in self.prompts:
                    self.prompt(uuid).place = len(self.prompts)
                    self.prompts[uuid] = entry
            case ToolCallEntry():
                self._since_received.add(entry.tool_use_id)
                self.calls[entry.tool_use_id] = entry
            case ToolResultEntry(is_interrupted=True):
                self.interrupted.add(entry.tool_use_id)
            case ToolResultEntry():
                self.results[entry.tool_use_id] = entry
            case OutcomeEntry(prompt_uuid=uuid):
                self._read_deferral(entry)
                # Entries may come late: a turn that has ended stays ended.
                if entry.outcome.reason not in UNFINISHED or self.finished(uuid) is None:
                    self.prompt(uuid).outcome = entry.outcome.restored()
            case ReceivedEntry(prompt_uuid=uuid):
                self.prompt(uuid).is_received = True
                self._since_received.clear()

    def _read_deferral(self, entry: OutcomeEntry) -> None:
        pending = entry.outcome.pending
        if pending is not None:
            self.deferred[pending.tool_use_id] = (pending, entry.prompt_uuid)
            self.last_deferred = pending.tool_use_id
            self._sent_before_deferred = len(self._sent)
        elif entry.outcome.reason not in UNFINISHED:
            self.last_deferred = None

    def _find_owners(self) -> None:
        belongs: dict[str, str] = {}
        for one in self._sent:
            if one.continues is not None:
                belongs |= dict.fromkeys((one.prompt_uuid, *one.together_with), one.continues)
        for one in self._sent:
            prompt = self.prompt(one.prompt_uuid)
            if prompt.owner is None:
                prompt.owner = end_of_chain(one.prompt_uuid, belongs)
                self.prompt(prompt.owner).belonging.append(one.prompt_uuid)

    def prompt(self, uuid: str | None) -> _Prompt:
        """Return what is known of a prompt."""
        return self._named.setdefault(uuid or "", _Prompt())

    @property
    def since_deferred(self) -> set[str]:
        """The prompts that were sent since a call waited at the end of a turn."""
        return {one.prompt_uuid for one in self._sent[self._sent_before_deferred :]}

    @property
    def decided(self) -> set[str]:
        """The calls that do not wait for a decision, as far as the journal tells."""
        resumed: dict[str, bool] = {}
        for uuid, prompt in self.prompts.items():
            outcome = self.finished(uuid)
            if prompt.resumes is not None and outcome is not None:
                # The last decision counts: an earlier one may not have found the call.
                pending = outcome.pending
                resumed[prompt.resumes] = pending is None or pending.tool_use_id != prompt.resumes
        return {*self.calls, *self.results, *(call for call in resumed if resumed[call])}

    def open_prompts(self) -> list[str]:
        """Return the prompts of the program whose outcome it has not received."""
        return [uuid for uuid in self.prompts if not self.prompt(uuid).is_received]

    def prompts_of(self, prompt: str) -> list[str]:
        """Return the prompts that belong to the same prompt of the program, in order."""
        return self.prompt(self.prompt(prompt).owner).belonging

    def finished(self, prompt: str) -> Outcome[Any] | None:
        """Return the outcome of a prompt of the program if its turn has ended."""
        for one in (prompt, self.prompt(prompt).owner or prompt):
            outcome = self.prompt(one).outcome
            if outcome is not None and outcome.reason not in UNFINISHED:
                return outcome
        return None

    def calls_to_name(self, present: Container[str]) -> Iterator[ToolCallEntry]:
        """Yield the last attempts of calls that no prompt of a recovery has named.

        ``present`` are the prompts that reached the conversation. The others named nothing, and
        those whose turn has not ended may have been without effect.
        """
        named = {
            call
            for one in self._sent
            if one.prompt_uuid in present and self.has_ended(one.prompt_uuid)
            for call in one.named
        }
        last = {call.idempotency_key: call for call in self.calls.values()}
        yield from (call for call in last.values() if call.tool_use_id not in named)

    @property
    def stopped_calls(self) -> set[str]:
        """The calls that were stopped while they ran, in a turn that has ended."""
        return {
            id
            for id in self.interrupted
            if id in self.calls and self.has_ended(self.calls[id].prompt_uuid)
        }

    def has_ended(self, prompt: str | None) -> bool:
        """Return whether the turn of a prompt has ended. False if the prompt is not known."""
        owner = self.prompt(prompt).owner
        return owner is not None and self.finished(owner) is not None

    def is_received(self, prompt: str | None) -> bool:
        """Return whether the program has received the outcome of a prompt. False if not known."""
        return self.prompt(self.prompt(prompt).owner).is_received

    def is_of_open_prompt(self, call: ToolCallEntry) -> bool:
        """Return whether the program has not received the outcome of the call's prompt.

        A call without a known prompt counts as one of the prompt that runs.
        """
        owner = self.prompt(call.prompt_uuid).owner
        if owner is None:
            return call.tool_use_id in self._since_received
        return not self.prompt(owner).is_received


# ---------------------------------------------------------------- the plan


class _Planner:
    def __init__(self, book: _Book, transcript: Transcript | None) -> None:
        self._book = book
        self._session_id = "" if transcript is None else transcript.session_id
        entries = () if transcript is None else transcript.entries
        branch = conversation(entries, compacted=True)
        self._turns = turns_of(branch)
        self._waiting = waiting_call(entries, self._session_id)
        # Also those of other branches: the CLI remembers the uuid of every prompt in the file.
        self._present = _uuids(entries)
        # Also those before a compaction.
        self._called = {call for entry in entries for call in entry.tool_calls}
        self._recorded = _results(entries)
        # Calls with a result of the tool, also those of subagents.
        finished = {*book.results, *_real_results(entries)}
        self._agents: dict[str, str | None] = {}
        agents = () if transcript is None else transcript.subagents
        for agent in agents:
            self._agents[agent.agent_id] = agent.tool_use_id
            self._recorded |= _results(agent.entries)
            finished |= _real_results(agent.entries)
        calls = book.calls.values()
        # If the program has died, an MCP tool in it fails for the CLI, also after it has run. Older
        # CLIs do not say so. A failure of the tool itself is in the journal.
        lost = {id for id, call in book.calls.items() if call.tool_name.startswith("mcp__")}
        lost -= book.results.keys()
        everything = (entries, *(agent.entries for agent in agents))
        failed = _failed(lost, *everything)
        # An attempt that did not run says nothing about earlier attempts of its call.
        denied = {id for found in everything for entry in found for id in denied_calls(entry)}
        denied -= book.results.keys() | failed
        finished -= failed | denied
        self._shown = _real_results(branch) - failed - denied
        # By key: the calls with a result, those whose result the model sees, and those about which
        # it is not told, because they have a result, their turn ended when they were stopped, or no
        # attempt of them ran.
        self._done = keys_of(calls, finished)
        self._seen = {call.idempotency_key for call in calls if self._is_shown(call)}
        tried = {call.idempotency_key for call in calls if call.tool_use_id not in denied}
        never_ran = keys_of(calls, denied) - tried
        self._settled = self._done | keys_of(calls, book.stopped_calls) | never_ran
        #: The keys of the calls whose last attempt was denied.
        last = {call.idempotency_key: call.tool_use_id for call in calls}
        self._denied = {key for key, id in last.items() if id in denied}

    def steps(self) -> Iterator[Step]:
        notice, named = self._notice()
        calls = self._book.calls
        recorded = frozenset(id for id, call in calls.items() if not self._is_uncertain(call))
        done: set[str] = set()
        for prompt in self._book.open_prompts():
            if prompt in done:
                continue
            outcome = self._outcome(prompt)
            if outcome is not None:
                yield Finished(prompt, self._without_decided(outcome))
                continue
            entry = self._book.prompts[prompt]
            # A turn that goes on after an approval has no prompt that could be sent again.
            if entry.content is not None and self._present.isdisjoint(
                self._book.prompts_of(prompt)
            ):
                yield SendAgain(prompt, send_again(notice, entry.content), named, recorded)
                notice, named = "", ()
                continue
            together = self._merged_with(prompt)
            done.update(together)
            hidden = [
                content
                for one in together
                if self._turn(one) is None
                and (content := self._book.prompts[one].content) is not None
            ]
            text = go_on(notice, self._earlier(together), hidden)
            yield Continue(tuple(together), text, named, recorded)
            notice, named = "", ()

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
        ending = None if turn is None else ending_of(turn, self._session_id)
        if turn is None or ending is None:
            return None
        # An interrupt ends a turn whose call was stopped. Otherwise the transcript is behind.
        stopped = self._recorded if ending.reason is OutcomeReason.INTERRUPTED else ()
        # After a denial, the model has ended the turn without the call.
        uncertain = (call for call in self._calls_of(prompt) if self._is_uncertain(call))
        unseen = (call for call in uncertain if call.idempotency_key not in self._denied)
        if any(call.tool_use_id not in stopped for call in unseen):
            return None
        return self._named(ending, prompt, turn.prompts)

    def _without_decided(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Return an outcome without its call that waited if another program has decided since."""
        pending = outcome.pending
        if pending is None or pending.tool_use_id not in self._recorded | self._book.decided:
            return outcome
        detail = f"{outcome.detail}; another program has decided about it since"
        return msgspec.structs.replace(outcome, pending=None, detail=detail)

    def _named(self, outcome: Outcome[Any], prompt: str, merged: Iterable[str]) -> Outcome[Any]:
        """Return an outcome of a prompt with the names of the program's own prompts."""
        book = self._book
        known = (one for one in (prompt, *merged) if book.prompt(one).owner is not None)
        found = {one for name in known for one in book.prompts_of(name)} & book.prompts.keys()
        names = tuple(sorted(found - {prompt}, key=lambda one: book.prompt(one).place))
        return msgspec.structs.replace(outcome, uuid=prompt, merged_with=names)

    def _still_waits(self, entry: PromptEntry) -> Outcome[Any] | None:
        """Return the outcome of a decision that had no effect: the call waits as before."""
        call = entry.resumes
        if call is None or call in self._recorded or call in self._book.calls:
            return None
        if call not in self._book.deferred:
            return None
        return Outcome(
            reason=OutcomeReason.TOOL_DEFERRED,
            detail="the program stopped before the decision about the call took effect",
            uuid=entry.prompt_uuid,
            session_id=self._session_id,
            pending=self._book.deferred[call][0],
        )

    def waiting(self) -> PendingApproval | None:
        """Return the tool call at the end of the conversation that waits for a decision.

        The journal may lack the outcome of its turn, and the transcript may lack the call.
        """
        decided = self._recorded | self._book.decided
        found = (one for one in self._deferred_at_end() if one.tool_use_id not in decided)
        return next(found, None)

    def _deferred_at_end(self) -> Iterator[PendingApproval]:
        """Yield the calls that may have been deferred last: first those that entries show."""
        deferred = self._book.deferred
        last = self._turns[-1] if self._turns else StoredTurn()
        ending = ending_of(last, self._session_id)
        if self._waiting is not None:
            # The journal has more fields of it.
            yield deferred.get(self._waiting.tool_use_id, (self._waiting,))[0]
        if ending is None or ending.pending is not None:
            yield from self._deferred_in(last)
        # Without a conversation the call cannot be resumed, so it holds no prompt back.
        if self._book.last_deferred is not None and self._turns:
            pending, prompt = deferred[self._book.last_deferred]
            later = {*self._places(pending, prompt), *self._book.since_deferred}
            if later.isdisjoint(self._present | self._called):
                yield pending  # the transcript has neither its turn nor a later one

    def _deferred_in(self, turn: StoredTurn) -> Iterator[PendingApproval]:
        """Yield the call that the journal has as deferred after the last entries of a turn."""
        places = {
            name: pending
            for pending, prompt in self._book.deferred.values()
            for name in self._places(pending, prompt)
        }
        for entry in reversed(turn.entries):
            prompts = () if entry.is_meta else prompts_in(entry)
            for name in (*entry.tool_calls, *prompts):
                if name in places:
                    yield places[name]
                    return
            if prompts:
                return

    def _places(self, pending: PendingApproval, prompt: str) -> Iterable[str]:
        """Return the calls and prompts of the conversation that a deferred call can come after."""
        call = pending.tool_use_id
        if any(call in turn.calls for turn in self._turns):
            return (call,)
        names = self._book.prompts_of(prompt) or [prompt]
        resumed = (self._book.prompts[one].resumes for one in names if one in self._book.prompts)
        return (*names, *(one for one in resumed if one is not None))

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

    def _earlier(self, prompts: Sequence[str]) -> list[str | list[JsonObject]]:
        """Return the prompts to continue. Empty if the conversation ends with their turn."""
        return [
            content
            for one in prompts
            if (turn := self._turn(one)) is not None
            and turn is not self._turns[-1]
            and (content := self._book.prompts[one].content) is not None
        ]

    # -- tool calls --------------------------------------------------------------------------------

    def _calls_of(self, prompt: str) -> Iterator[ToolCallEntry]:
        for call in self._book.calls.values():
            if self._book.prompt(call.prompt_uuid).owner == self._book.prompt(prompt).owner:
                yield call

    def _is_uncertain(self, call: ToolCallEntry) -> bool:
        """Return whether no attempt of a call has a result, and its turn has not ended so."""
        return call.idempotency_key not in self._settled

    def _notice(self) -> tuple[str, tuple[str, ...]]:
        """Return what the model has to know about tool calls, and the ids of those it names."""
        book = self._book
        # A background subagent works on after the program has received the outcome.
        last = list(book.calls_to_name(self._present))
        unknown = [call for call in last if self._is_uncertain(call)]
        results = {
            call.idempotency_key: call for id, call in book.calls.items() if id in book.results
        }
        is_open = {
            call.idempotency_key for call in book.calls.values() if book.is_of_open_prompt(call)
        }
        to_tell = (self._done - self._seen) & is_open
        known = [call for call in last if call.idempotency_key in to_tell]
        # Those of the main agent count as the newest: subagents make many more calls.
        known.sort(key=lambda call: call.agent_id is None)
        named = (*unknown[-MAX_CALLS:], *known[-MAX_CALLS:])
        shown = [results.get(call.idempotency_key, call) for call in known]
        return notice(unknown, shown, book.results), tuple(call.tool_use_id for call in named)

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


def _real_results(entries: Iterable[TranscriptEntry]) -> set[str]:
    return _results(entry for entry in entries if not entry.is_cut_off)


def _failed(calls: Container[str], *transcripts: Iterable[TranscriptEntry]) -> set[str]:
    """Return those of the calls for which a transcript has an error."""
    return {
        id
        for entries in transcripts
        for entry in entries
        if any(one in calls for one in entry.tool_results)
        for id in failed_results(entry)
        if id in calls
    }
