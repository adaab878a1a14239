"""Make the idempotency keys of tool calls, and decide by key which calls are done.

An idempotency key belongs to a tool call. A call that was cut off by a crash and is repeated in a
recovery has the same key, through any number of crashes. Each attempt has an id of its own. A call
is done if one of its attempts has a result; otherwise it is uncertain whether the tool has run.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from bridle.sessions._journal import (
    JournalEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    end_of_chain,
)
from bridle.tools import key_of_call


def hash_of_call(tool_name: str, tool_input: Mapping[str, object]) -> str:
    """Return a text that is the same for equal calls."""
    json = msgspec.json.encode([tool_name, tool_input], order="deterministic")
    return sha256(json).hexdigest()[:32]


def keys_of(calls: Iterable[ToolCallEntry], ids: Container[str]) -> set[str]:
    """Return the keys of the calls with an attempt that has one of these ids."""
    return {one.idempotency_key for one in calls if one.tool_use_id in ids}


class _CutOff(Struct, frozen=True):
    """A call that a crash cut off. The first equal call that repeats it gets its key."""

    #: The prompt of the program. None if it is not known.
    prompt: str | None
    key: str
    #: The ids of its attempts.
    ids: set[str]


class _Open(Struct):
    """A prompt of the program whose outcome the program has not received."""

    #: The prompts that belong to it.
    prompts: list[str] = []
    #: How many keys were made, by hash of the call.
    counts: dict[str, int] = {}
    #: The calls that the prompts of a recovery have named.
    named: set[str] = set()


class CallKeys:
    """Makes the idempotency keys of a session.

    The key of a call is made from the session, the prompt of the program, the name and the input of
    the tool, and a number that counts equal calls of that prompt. A recovery passes the
    ``entries`` of the journal: a call that is equal to a call without a result then gets the key of
    that one, if both belong to the same prompt or the prompt of the recovery named it.
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
        self._open: dict[str, _Open] = {}
        # By hash of the call, and by key.
        self._cut_off: dict[str, dict[str, _CutOff]] = {}
        # The keys in the journal. It may lack others, so that the count is too small.
        self._used: set[str] = set()
        self._read(list(entries), recorded)

    def _read(self, entries: list[JournalEntry | UnknownEntry], recorded: Collection[str]) -> None:
        results = (one for one in entries if isinstance(one, ToolResultEntry))
        finished = {one.tool_use_id for one in results if not one.is_interrupted}
        finished.update(recorded)
        calls = [one for one in entries if isinstance(one, ToolCallEntry)]
        done = keys_of(calls, finished)
        # A spool file may reach the store late, so a call may come before its prompt.
        prompts = [one for one in entries if isinstance(one, PromptEntry)]
        continued = {one.prompt_uuid: one.continues for one in prompts if one.continues is not None}
        for one in prompts:
            self.open(one.prompt_uuid, end_of_chain(one.prompt_uuid, continued), one.named)
        for attempt in calls:
            key, first = attempt.idempotency_key, self._prompts.get(attempt.prompt_uuid or "")
            call = attempt.call_hash or hash_of_call(attempt.tool_name, attempt.tool_input)
            if first is not None and key not in self._used:
                self._count(first, call)
            self._used.add(key)
            if key not in done:
                cut_off = self._cut_off.setdefault(call, {})
                cut_off.setdefault(key, _CutOff(first, key, set())).ids.add(attempt.tool_use_id)
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
        owner = self._open.setdefault(first, _Open())
        owner.prompts.append(prompt)
        owner.named.update(named)

    def close(self, prompt: str) -> None:
        """Forget a prompt of the program that needs no recovery any more."""
        owner = self._open.pop(prompt, _Open())
        for one in owner.prompts:
            if self._prompts.get(one) == prompt:
                del self._prompts[one]

    def prompt_of_program(self, prompt: str) -> str:
        """Return the prompt of the program that a prompt belongs to, which may be itself."""
        return self._prompts.get(prompt, prompt)

    def next(self, session_id: str, prompt: str | None, call: str, tool_use_id: str) -> str:
        """Return the key of the next call.

        ``prompt`` is the prompt of the turn that runs, ``call`` the hash of the call.
        """
        first = self._prompts.get(prompt or "")
        if prompt is None or first is not None:
            repeated = self._repeated(first, call)
            if repeated is not None:
                return self._cut_off[call].pop(repeated.key).key
        if first is None:
            return key_of_call(session_id, tool_use_id)
        while (key := key_of_call(session_id, first, call, self._count(first, call))) in self._used:
            pass
        return key

    def _count(self, first: str, call: str) -> int:
        """Return the number of a new call among the equal calls of a prompt of the program."""
        counts = self._open[first].counts
        counts[call] = counts.get(call, 0) + 1
        return counts[call] - 1

    def _repeated(self, first: str | None, call: str) -> _CutOff | None:
        """Return the call that a new one repeats. One of the same prompt comes first.

        If the prompt of the new call is not known, any prompt of the recovery may have named it.
        """
        owners = self._open.values() if first is None else (self._open[first],)
        other = None
        for one in self._cut_off.get(call, {}).values():
            if one.prompt == first:
                return one
            if other is None and any(not one.ids.isdisjoint(owner.named) for owner in owners):
                other = one
        return other
