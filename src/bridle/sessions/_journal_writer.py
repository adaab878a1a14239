"""Write the journal of a session: what it is about to do, before it does it.

:class:`Journal` appends entries to a store. :class:`SessionJournal` makes the entries of a running
session, and knows which outcomes the program has received.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import uuid4

import msgspec
from msgspec import Struct

from bridle._engine import actions as act
from bridle._engine.engine import Engine
from bridle._engine.outgoing.requests import SEND_USER_MESSAGE
from bridle._engine.turns.turn_records import Used
from bridle._engine.wire.codec import Unencodable
from bridle._process.config_directory import working_directory
from bridle._process.launch.plan import Launch
from bridle._records.raw_line import JsonObject
from bridle._records.session_store import Entry, SessionKey
from bridle.content import Content
from bridle.errors import ControlTimeout, SessionInUseError, SessionNotInitialized, StoreError
from bridle.hooks import Block, Hook, PreToolUseContext
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._call_keys import CallKeys, hash_of_call
from bridle.sessions._journal import (
    MAX_RESULT_TEXT,
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    content_of,
    encode_entry,
    results_in,
    store_outcome,
)
from bridle.sessions._outbox.store_writer import StoreWriter
from bridle.tools import ToolContext, bind_key, key_of_call

if TYPE_CHECKING:
    from bridle._session.actor import Actor
    from bridle._session.readers.turn_state import TurnState
    from bridle.sessions._recovery import Continue, SendAgain

_T = TypeVar("_T")

WAIT = 5.0
"""Seconds that an entry waits for the store. Then it goes to the spool file."""

_CALL_TIMEOUT = 60.0
"""Seconds after which a tool call that is not in the journal is refused."""

_MAX_CALLS = 4096
"""Calls without a result that are remembered. The oldest one is forgotten first."""

_NOT_WRITTEN = (
    "The tool was not run, because the call could not be written to the journal of the session."
)


class Journal:
    """The journal of one session, under the subkey ``journal`` of its store.

    ``hurry`` appends what waits of the transcripts.
    """

    def __init__(
        self, writer: StoreWriter, key: SessionKey, hurry: Callable[[], None] = lambda: None
    ) -> None:
        self._writer = writer
        self._key = key
        self._hurry = hurry

    def hurry(self) -> None:
        """Append what waits, because a turn has ended."""
        self._hurry()

    async def write(self, entry: Entry) -> None:
        """Write an entry, which must have a ``uuid``, and wait until it is kept.

        Wait up to five seconds for the store. Then, or at once while the store is known to fail,
        write the entry to a local spool file. The first time this happens, the session warns
        (``store_failed``). The store gets the entries of the file when it works again.

        Raises:
            StoreError: the spool file could not be written either.
            SessionInUseError: another process has continued the session.
        """
        await self._writer.write(self._key, entry, WAIT)

    def put(self, entry: Entry) -> None:
        """Write an entry without a wait."""
        self._writer.put(self._key, [entry], len(msgspec.json.encode(entry)))


class Lane(Protocol):
    """Where entries go."""

    def hurry(self) -> None: ...

    async def write(self, entry: Entry) -> None: ...

    def put(self, entry: Entry) -> None: ...


class _NoStore:
    """The lane of a session without a store."""

    def hurry(self) -> None:
        """Do nothing."""

    async def write(self, entry: Entry) -> None:
        """Do nothing."""

    def put(self, entry: Entry) -> None:
        """Do nothing."""


class _Prompt(Struct):
    """A prompt of the program whose outcome the program has not received."""

    #: Where its entries go. The conversation may get another id before the prompt has ended.
    lane: Lane
    session_id: str
    #: The tool call that the turn continues, if it has no prompt.
    resumes: str | None = None
    #: The reason of its outcome. None before there is one.
    reason: OutcomeReason | None = None
    #: True if the program has taken the outcome.
    is_taken: bool = False


class _Call(Struct):
    """A tool call without a result."""

    lane: Lane
    key: str
    #: The callback, for a call of an in-process tool.
    call_id: int | None = None
    #: True if the callback was cancelled, so that the result is not that of the tool.
    is_cancelled: bool = False


class SessionJournal:
    """The journal of a running session.

    Args:
        start_timeout: seconds that a prompt waits for the start of the session.
        keeps_entries: True to keep the entries in memory too, in ``entries``.
        without_store: takes the entries if there is no store.
    """

    def __init__(
        self,
        start_timeout: float,
        *,
        keeps_entries: bool = False,
        without_store: Lane | None = None,
    ) -> None:
        self._start_timeout = start_timeout
        #: What this session has written, or None if only the store keeps it.
        self.entries: list[JournalEntry] | None = [] if keeps_entries else None
        #: True if the session is a step of a recovery. The recovery writes what was received.
        self.is_recovery = False
        self._keys = CallKeys()
        # The step of a recovery whose prompt was not written yet.
        self._step: Continue | SendAgain | None = None
        self._prompts: dict[str, _Prompt] = {}
        self._calls: dict[str, _Call] = {}
        # Tasks that make and write outcomes.
        self._answers: set[asyncio.Task[Any]] = set()
        self._engine: Engine | None = None
        no_store = without_store or _NoStore()
        self._open_lane: Callable[[], Lane] = lambda: no_store
        self._cwd = ""
        self._is_ready = asyncio.Event()
        # True once the program has closed the session.
        self._is_closed = False
        # True once nothing more can be written.
        self._is_finished = False

    def hook(self) -> Hook:
        """Return the hook that writes each tool call before it runs."""
        return Hook(self._note_call, timeout=_CALL_TIMEOUT, on_error="block")

    def connect(self, engine: Engine, open_lane: Callable[[], Lane] | None) -> None:
        """Set the engine of the session, and what returns the journal of its present id."""
        self._engine = engine
        self._open_lane = open_lane or self._open_lane

    def continue_from(
        self, entries: Sequence[JournalEntry | UnknownEntry], step: Continue | SendAgain
    ) -> None:
        """Continue the journal of a program or a CLI that crashed, to repeat its keys.

        The first prompt of the session is the one of ``step``.
        """
        self._keys = CallKeys(entries, step.recorded)
        self._step = step

    def begin(self, launch: Launch) -> None:
        """Accept prompts. With a store, the id of the session must be known."""
        self._cwd = working_directory(launch)
        self._is_ready.set()

    # -- prompts -----------------------------------------------------------------------------------

    async def send(
        self,
        actor: Actor,
        uuid: str,
        content: Content | bytes,
        timeout: float | None = None,
        *,
        deps: Any,
        continues: str | None = None,
        used: Used | None = None,
    ) -> TurnState:
        """Write a prompt, then send it as :meth:`Actor.send` does.

        ``continues`` is the prompt of the program that this prompt continues.

        Raises:
            StoreError: the prompt could not be written down, so it was not sent.
            SessionInUseError: another process has continued the session. It was not sent.
            ControlTimeout: the timeout has passed.
            SessionNotInitialized: the session was not started in time.
        """
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(timeout)
        end = None if timeout is None else loop.time() + timeout
        try:
            async with limit:
                await self._wait_ready()
                written = _content(content)
                # A prompt that the session refuses anyway is not written down.
                if written is not None and actor.engine.refusal(SEND_USER_MESSAGE) is None:
                    await self.write_prompt(uuid, written, continues=continues)
            left = None if end is None else max(0.0, end - loop.time())
            return await actor.send(uuid, content, left, deps=deps, used=used)
        except BaseException as error:
            if uuid in self._prompts:  # the program knows that it was not sent
                self.receive(uuid)
            if isinstance(error, TimeoutError) and timeout is not None and limit.expired():
                raise ControlTimeout(SEND_USER_MESSAGE, None, timeout) from None
            raise

    async def _wait_ready(self) -> None:
        limit = asyncio.timeout(self._start_timeout)
        try:
            async with limit:
                await self._is_ready.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            raise SessionNotInitialized(SEND_USER_MESSAGE, "connect() was not called") from None

    async def write_prompt(
        self,
        uuid: str,
        content: str | list[JsonObject] | None,
        *,
        continues: str | None = None,
        resumes: str | None = None,
    ) -> None:
        """Write a prompt. Send it only after this has returned.

        Outcomes that the program has taken count as received with its next prompt.

        Args:
            uuid: the id of the turn.
            content: text or content blocks. None for a turn that continues without a prompt.
            continues: the prompt of the program that this prompt corrects or continues.
            resumes: the tool call that waited for approval and that the turn continues.

        Raises:
            StoreError: the prompt could not be written.
        """
        if continues is None:
            for one in [one for one, known in self._prompts.items() if known.is_taken]:
                self.receive(one)
        step, self._step = self._step, None
        named = () if step is None else step.named
        self._keys.open(uuid, continues, named)
        first = self._keys.prompt_of_program(uuid)
        continues = continues and first
        prompt = self._prompts.get(first)
        if prompt is None:
            prompt = self._prompts[first] = _Prompt(self._open_lane(), self._session_id, resumes)
        entry = PromptEntry(
            **_stamp(),
            prompt_uuid=uuid,
            content=content,
            cwd=self._cwd,
            continues=continues,
            together_with=() if step is None else step.prompts[1:],
            resumes=resumes,
            named=named,
        )
        await self._write(entry, prompt.lane)

    async def write_outcome(self, uuid: str, outcome: Outcome[Any]) -> None:
        """Write the outcome of a prompt. Give it to the program after this has returned.

        The outcome of a prompt that continues another one belongs to the other one. A failure of
        the store and of the spool is not raised, because the program needs the outcome.
        """
        first = self._keys.prompt_of_program(uuid)
        prompt = self._prompts.get(first)
        if prompt is None:
            return
        entry = OutcomeEntry(**_stamp(), prompt_uuid=first, outcome=store_outcome(outcome))
        prompt.reason = outcome.reason
        prompt.lane.hurry()
        with contextlib.suppress(StoreError, SessionInUseError):  # the session has warned
            await self._write(entry, prompt.lane)

    def track(self, answer: asyncio.Task[_T]) -> None:
        """Keep a task that makes and writes an outcome until it has ended."""
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    def take(self, uuid: str) -> None:
        """Note that the program has taken the outcome of a prompt."""
        prompt = self._prompts.get(self._keys.prompt_of_program(uuid))
        if prompt is not None and prompt.reason is not None:
            prompt.is_taken = True

    def receive(self, uuid: str) -> None:
        """Write that a prompt of the program needs no recovery. Does not wait.

        The program has received its outcome, or knows that it was not sent.
        """
        if self.is_recovery:
            return
        prompt = self._prompts.pop(uuid, None)
        lane = self._open_lane() if prompt is None else prompt.lane
        self._keys.close(uuid)
        self._put(ReceivedEntry(**_stamp(), prompt_uuid=uuid), lane)

    # -- tool calls --------------------------------------------------------------------------------

    async def _note_call(self, context: PreToolUseContext) -> Block | None:
        """Write a call that is about to run. Refuse it if that fails."""
        assert self._engine is not None, "the session runs"
        tool_use_id = context.tool_use_id or str(uuid4())
        turn = self._engine.prompt_of(context.tool_use_id, context.agent_id)
        prompt = self._prompts.get(self._keys.prompt_of_program(turn or ""))
        lane = self._open_lane() if prompt is None else prompt.lane
        session_id = self._session_id if prompt is None else prompt.session_id
        name, given = context.tool_name, context.tool_input
        call_hash = hash_of_call(name, given)
        if prompt is not None and prompt.resumes == tool_use_id:
            # Every attempt to resume the call is a turn of its own. The id of the call stays.
            key = key_of_call(session_id, tool_use_id)
        else:
            key = self._keys.next(session_id, turn, call_hash, tool_use_id)
        self._calls[tool_use_id] = _Call(lane, key)
        if len(self._calls) > _MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        entry = ToolCallEntry(
            **_stamp(),
            tool_use_id=tool_use_id,
            tool_name=name,
            tool_input=given,
            call_hash=call_hash,
            agent_id=context.agent_id,
            prompt_uuid=turn,
            idempotency_key=key,
        )
        try:
            await self._write(entry, lane)
        except (StoreError, SessionInUseError):
            return Block(_NOT_WRITTEN)
        return None

    def bind_key(self, action: act.Call) -> None:
        """Give a call of an in-process tool the key that it has in the journal."""
        context: ToolContext = action.argument
        call = self._calls.get(context.tool_use_id or "")
        if call is not None:
            bind_key(context, call.key)
            call.call_id = action.call_id

    def note_cancelled(self, action: act.CancelCall) -> None:
        """Note that a callback was cancelled: the result of its call is not that of the tool."""
        for call in self._calls.values():
            if call.call_id == action.call_id:
                call.is_cancelled = not action.timed_out

    def note_results(self, action: act.Deliver) -> None:
        """Write the tool results in messages of the CLI. Does not wait."""
        for block, is_interrupted in results_in(action.messages):
            call = self._calls.pop(block.tool_use_id, None)
            text = block.text
            entry = ToolResultEntry(
                **_stamp(),
                tool_use_id=block.tool_use_id,
                is_error=block.is_error,
                text=text[:MAX_RESULT_TEXT],
                is_cut=len(text) > MAX_RESULT_TEXT,
                is_interrupted=is_interrupted or (call is not None and call.is_cancelled),
            )
            self._put(entry, self._open_lane() if call is None else call.lane)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Note that the program closes the session: it receives all outcomes."""
        self._is_closed = True
        self._is_ready.set()  # the session refuses the prompts that wait

    async def finish(self, timeout: float) -> None:
        """Write what is left, as the last thing before the store is closed.

        Wait up to ``timeout`` seconds for outcomes that are being written.

        A turn that ended because the CLI crashed does not count as received, so that it can be
        recovered.

        Cancellation: write the rest without the outcomes. A prompt whose outcome is not known yet
        stays open then, because its CLI may have crashed.
        """
        is_cancelled = True
        try:
            if self._answers:
                await asyncio.wait(self._answers, timeout=timeout)
            is_cancelled = False
        finally:
            if self._is_closed:
                for uuid, prompt in list(self._prompts.items()):
                    is_open = is_cancelled and prompt.reason is None
                    if not is_open and prompt.reason is not OutcomeReason.CLI_EXITED:
                        self.receive(uuid)
            self._is_finished = True

    # -- writing -----------------------------------------------------------------------------------

    @property
    def _session_id(self) -> str:
        return "" if self._engine is None else self._engine.session_id

    def _write(self, entry: JournalEntry, lane: Lane) -> Awaitable[None]:
        self._keep(entry)
        return (_NoStore() if self._is_finished else lane).write(encode_entry(entry))

    def _put(self, entry: JournalEntry, lane: Lane) -> None:
        self._keep(entry)
        if not self._is_finished:
            lane.put(encode_entry(entry))

    def _keep(self, entry: JournalEntry) -> None:
        if self.entries is not None:
            self.entries.append(entry)


def _content(prompt: Content | bytes) -> str | list[JsonObject] | None:
    """Return a prompt as JSON. None if it is invalid."""
    try:
        return content_of(prompt)
    except Unencodable:
        return None


def _stamp() -> dict[str, Any]:
    """Return the fields that every entry has."""
    return {"uuid": str(uuid4()), "at": time.time()}
