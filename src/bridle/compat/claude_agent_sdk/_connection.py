"""One conversation with the CLI, for `query` and for `ClaudeSDKClient`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar, cast
from uuid import uuid4

from bridle import QueryStream
from bridle import messages as native
from bridle._spi import Feed, InnerSession, QuerySession, UncheckedMessage, stream
from bridle.compat.claude_agent_sdk._errors import (
    CLIConnectionError,
    OptionsRejected,
    ProcessError,
    process_error,
    result_error,
    translated,
)
from bridle.compat.claude_agent_sdk._loops.bridge import Bridge
from bridle.compat.claude_agent_sdk._options import native_options, wants_replay
from bridle.compat.claude_agent_sdk._parsing import parse, parse_alike
from bridle.compat.claude_agent_sdk._stored.official_stores import AdaptedStore, flush
from bridle.compat.claude_agent_sdk._transport import AdaptedTransport, Transport
from bridle.compat.claude_agent_sdk._types.agent_options import ClaudeAgentOptions
from bridle.compat.claude_agent_sdk._types.message_types import Message, ResultMessage
from bridle.errors import (
    BridleError,
    OptionsError,
    SessionInUseError,
    SpawnError,
)

_T = TypeVar("_T")

_log = logging.getLogger("bridle.query")

_BUSY_TIMEOUT = 10.0
_BUSY_PAUSE = 0.05
"""Seconds to wait for a session that this program still uses, and between two attempts."""

_ROUNDS = 20
"""Rounds of the event loop until a query that the program has left begins to end. Generators of the
program around the query take two rounds each."""

_REPEATED = 64
"""Number of repeated prompts to remember, in case the CLI repeats one again."""

_STOPPED = ("SIGTERM", "SIGKILL")
"""The signals with which Bridle ends a CLI that does not exit."""


_OPEN: weakref.WeakSet[Connection] = weakref.WeakSet()
"""The connections of this program that have not ended."""


class Connection:
    """One conversation. The methods run in the program's event loop."""

    def __init__(
        self, options: ClaudeAgentOptions, transport: Transport | None, bridge: Bridge
    ) -> None:
        self._bridge = bridge
        self._options = options
        self._transport = None if transport is None else AdaptedTransport(transport, bridge)
        given = options.session_store
        self._store = None if given is None else AdaptedStore(given, bridge)
        try:
            self._resolved = native_options(options, bridge, self._transport, self._store)
        except OptionsError as error:
            raise self._official(error) from error
        self._shows_replay = wants_replay(options)
        self._source: Feed | None = None
        # Starts a query and returns its first messages. None after the start.
        self._first: Callable[[], Awaitable[list[native.Message]]] | None = None
        #: The session of a client; None for a query.
        self.session: InnerSession | None = None
        #: What to await before each message. None: nothing.
        self.checkpoint = bridge.checkpoint
        #: The messages that have arrived and that the program has not taken.
        self.pending: deque[Message] = deque()
        # The prompts that were sent. Bridle lets the CLI repeat them, to follow the turns.
        self._sent: set[str] = set()
        # The last ones that the CLI has repeated.
        self._repeated: deque[str] = deque(maxlen=_REPEATED)
        # The last message that the program gets.
        self._last: native.Message | None = None
        # False from the moment a prompt is sent until there is a result.
        self._is_answered = True
        # False from the moment a prompt is sent until there is a message.
        self._has_reply = True
        # Whether the last prompt was sent after the start, without an error.
        self._has_asked = False
        # False until the program has got the first messages.
        self._has_shown = False
        self._receiving = asyncio.Lock()
        self._is_over = False
        self._is_closed = False

    # -- starting ----------------------------------------------------------------------------------

    def start_query(self, prompt: object) -> None:
        """Prepare a query. Reading the first message starts the CLI."""
        prompts = self._prompts(prompt, "", ends_on_error=True)

        async def start() -> list[native.Message]:
            if self._shows_replay:
                messages = QueryStream(QuerySession(prompts, self._resolved, None))
            else:
                messages = stream(prompts, self._resolved, None)
            self._source = Feed(messages)
            return await self._source.take_batch()

        self._first = start

    async def start_client(self, prompt: object) -> None:
        """Start the CLI. Send the prompt, unless it is None."""

        async def start() -> Feed:
            if prompt is None or isinstance(prompt, str):
                session = InnerSession.make(self._resolved)
                messages = session.messages()
                await session.connect()
                return Feed(messages, session)
            prompts = self._prompts(prompt, "default", ends_on_error=True)
            query = QuerySession(prompts, self._resolved, None)
            await query.session.connect()
            return Feed(await QueryStream(query).__aenter__())

        source: Feed = await self.call(lambda: self._when_free(start))
        self._source, self.session = source, source.session
        if isinstance(prompt, str):
            try:
                await self.send(prompt, "default")
            except BaseException:
                await self.close()
                raise

    async def _when_free(self, start: Callable[[], Awaitable[_T]]) -> _T:
        """Start the CLI. If the session is still in use by this program, wait for its end.

        A program may leave the loop of a query and resume the session at once. The first CLI then
        ends in the background.
        """
        _OPEN.add(self)
        if self._options.continue_conversation:
            # The CLI chooses the session, so Bridle cannot try again.
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
            loop = asyncio.get_running_loop()
            if ending := [task for task in _ending if task.get_loop() is loop]:
                await asyncio.wait(ending, timeout=_BUSY_TIMEOUT)
        deadline = time.monotonic() + _BUSY_TIMEOUT
        while True:
            has_others = len(_OPEN) > 1  # the last of them may end during the attempt
            try:
                return await start()
            except SessionInUseError:
                if not has_others or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_BUSY_PAUSE)

    # -- prompts -----------------------------------------------------------------------------------

    async def send(self, prompt: object, session_id: str) -> None:
        """Send a prompt, or every prompt of an iterable.

        Raises:
            CLIConnectionError: the CLI has ended, or its input is closed. With prompts from
                an iterable at the start, the input is closed after the last one. If there are
                callbacks, it is closed when all prompts are answered.
        """
        session = self.session
        assert session is not None, "a client is connected"
        query = None if self._source is None else self._source.query
        if query is not None and query.has_drawn and not self._calls_back():
            raise CLIConnectionError("The prompts of connect() have ended, which ends the input.")

        async def send() -> None:
            prompts = self._prompts(prompt, session_id)
            if isinstance(prompt, AsyncIterable):
                async for one in prompts:
                    _ = await (query or session).send_prompt(one)
            else:
                _ = await (query or session).send_prompt(prompts)

        self._has_asked = False
        await self.request(send)
        self._has_asked = True

    def _calls_back(self) -> bool:
        """Return whether the CLI sends requests to the program."""
        options = self._options
        servers = options.mcp_servers
        return bool(options.hooks or options.can_use_tool) or (
            isinstance(servers, dict) and any(one.get("type") == "sdk" for one in servers.values())
        )

    def _prompts(self, prompt: object, session_id: str, *, ends_on_error: bool = False) -> Any:
        """Return the prompts as whole user messages, each with an id.

        With ``ends_on_error``, an exception of an async iterable is logged and ends the prompts, so
        that the program gets the answers to the earlier ones. An item that is not a prompt ends
        them, too: an iterable that waits for its answer would wait forever.
        """
        if isinstance(prompt, AsyncIterable):
            source = self._bridge.pull(cast("AsyncIterable[object]", prompt))

            async def marked() -> AsyncIterator[object]:
                try:
                    async for one in source:
                        if ends_on_error:
                            UncheckedMessage.check(one)
                        yield self._marked(one, session_id)
                except Exception:
                    if not ends_on_error:
                        raise
                    _log.exception("The iterable of prompts failed. No more prompts are sent.")
                    if (close := getattr(source, "aclose", None)) is not None:
                        with contextlib.suppress(Exception):  # it has failed already
                            await close()

            return marked()
        if isinstance(prompt, list | tuple):
            return [self._marked(one, session_id) for one in cast("list[object]", prompt)]
        return self._marked(prompt, session_id)

    def _marked(self, prompt: object, session_id: str) -> object:
        if isinstance(prompt, str):
            content = {"role": "user", "content": prompt}
            prompt = {"type": "user", "message": content, "parent_tool_use_id": None}
        if not isinstance(prompt, Mapping):
            return prompt  # Bridle rejects it
        message = UncheckedMessage({"session_id": session_id, **cast("Mapping[str, Any]", prompt)})
        named = message.get("uuid")
        uuid = message["uuid"] = (named if isinstance(named, str) else "") or str(uuid4())
        self._sent.add(uuid)
        if message.get("shouldQuery") is not False:
            self._is_answered = self._has_reply = False
        return message

    # -- messages ----------------------------------------------------------------------------------

    async def more(self) -> bool:
        """Wait until messages have arrived. Return False if the CLI has ended.

        `pending` may be empty afterwards, if another task has taken the messages.

        Raises:
            ClaudeSDKError: the CLI failed.
        """
        if not self._is_over:
            await self.call(self._receive)
        elif not self.pending:
            self._judge()
            return False
        return True

    async def _receive(self) -> None:
        """Add messages to `pending`. Runs on the loop of Bridle, for one task at a time."""
        async with self._receiving:
            while not self.pending and not self._is_over:
                await self._receive_batch()
            while self._is_refusal():
                await self._receive_batch()
            self._has_shown = True

    async def _receive_batch(self) -> None:
        batch: list[native.Message]
        if self._first is not None:
            first, self._first = self._first, None
            batch = await self._when_free(first)
        else:
            assert self._source is not None, "it was started"
            batch = await self._source.take_batch()
        try:
            if self._store is not None:
                await self._report_store(self._store, batch)
        finally:  # a cancelled wait for the store must not lose the messages
            self._is_over = not batch
            self._add(batch)

    def _add(self, batch: list[native.Message]) -> None:
        """Add messages that have arrived to those that the program can take."""
        if not batch:
            return
        alike = parse_alike(batch)
        if alike is not None:
            self.pending.extend(alike)
            self._note(batch[-1])
            return
        for one in batch:
            if type(one) is native.UserMessage and self._is_echo(one):
                continue
            message = parse(one)
            if message is not None:
                self._note(one)
                self.pending.append(message)

    def _note(self, last: native.Message) -> None:
        self._last = last
        self._has_reply = True
        self._is_answered = self._is_answered or type(last) is native.ResultMessage

    def _is_echo(self, message: native.UserMessage) -> bool:
        """Return whether the CLI repeats a prompt of the program, which did not ask for it."""
        uuid = message.uuid
        if uuid is None or not message.is_replay or self._shows_replay:
            return False
        if uuid in self._sent:
            self._sent.remove(uuid)
            self._repeated.append(uuid)
        return uuid in self._repeated

    def _is_refusal(self) -> bool:
        """Return whether the only message says that the CLI did not accept the session.

        The program gets an error in place of it, if the CLI then ends with one.
        """
        assert self._source is not None, "it was started"
        if self._has_shown or self._is_over or self._source.is_accepted:
            return False
        messages = list(self.pending)
        first = messages[0] if len(messages) == 1 else None
        return isinstance(first, ResultMessage) and first.is_error

    async def _report_store(self, store: AdaptedStore, batch: list[native.Message]) -> None:
        """Let the store have the entries of a turn before the program sees its result.

        Add messages about entries that the store does not take.
        """
        if any(type(one) is native.ResultMessage for one in batch):
            assert self._source is not None, "it was started"
            await flush(self._source, store)
        if not batch:  # the last entries of the CLI
            store.note_failing()
        while store.problems:
            self.pending.append(store.problems.popleft())

    def _judge(self) -> None:
        """Raise an error if the CLI failed by itself."""
        assert self._source is not None, "it was started"
        process = self._source.process_info()
        code = process.exit_code
        if self._transport is not None and self._transport.error is not None:
            raise self._transport.error
        if self._is_closed:
            return
        if not code:
            if self._has_asked and not self._has_reply:
                raise CLIConnectionError("The CLI has ended without an answer to the last prompt.")
            return
        if isinstance(self._last, native.ResultMessage) and self._last.is_error:
            raise result_error(self._last.raw, code)
        if process.signal in _STOPPED and self._is_answered:
            return
        raise process_error(code, process.stderr_tail)

    # -- requests and the end ----------------------------------------------------------------------

    async def call(self, work: Any) -> Any:
        """Run a coroutine of Bridle, and translate its errors."""
        try:
            return await self._bridge.run(work)
        except BridleError as error:
            raise self._official(error) from error

    async def request(self, work: Any) -> Any:
        """Run a coroutine of Bridle that sends something to the CLI, and translate its errors.

        Only reading raises the error of a CLI that has failed.
        """
        try:
            return await self.call(work)
        except OptionsRejected:
            raise
        except ProcessError as error:
            raise CLIConnectionError(f"The CLI has ended. {error}") from error

    async def close(self) -> None:
        """End the CLI. Messages that have arrived can still be read.

        Cancellation: the CLI ends even if the wait is cancelled.
        """
        self._is_closed = True
        source = self._source
        if source is None:
            return

        async def end() -> None:
            try:
                # A transport of the user is closed at once, as by the official SDK.
                await source.close(at_once=self._transport is not None)
            finally:
                _OPEN.discard(self)

        async def wait() -> None:
            await asyncio.shield(ending[0])

        ending: list[asyncio.Task[None]] = []
        self._bridge.post(lambda: ending.append(_start(end())))
        await self._bridge.run(wait)

    def _official(self, error: BridleError) -> BaseException:
        """Return the error that the program gets."""
        if self._transport is not None and self._transport.error is not None:
            return self._transport.error
        is_settings = isinstance(error, OptionsError) and error.field == "settings"
        if is_settings and self._options.sandbox is not None:
            return CLIConnectionError(f"The settings cannot be loaded. {error}")
        place = self._options.cwd
        if isinstance(error, SpawnError) and place and not os.path.isdir(place):
            return CLIConnectionError(f"Working directory does not exist: {place}")
        return translated(error)


_ending: set[asyncio.Task[None]] = set()


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task and keep it until it ends. The event loop has only weak references."""
    task = asyncio.get_running_loop().create_task(work)
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    return task
