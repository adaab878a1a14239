"""A query at work: its process, what goes in, what comes out, and its end.

Two tasks exist for a query. One feeds prompts: it runs code of the application's, so nothing waits
for it for long. The other outlives it: it releases the process when the stream is over, and also
when it is cancelled itself, as ``asyncio.run`` does with everything on its way out.

The consumer pulls. What it has not read yet waits in a mailbox, and when that is full the CLI's
output is left in its pipe: a query asks for nothing, so nothing else needs that channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from msgspec import structs

from bridle._core.permissions import words_of
from bridle._core.query_stream import QueryReader, Told
from bridle._redaction import redact_text
from bridle._shell.begun import Begun
from bridle._shell.callbacks import Notifier
from bridle._shell.known_secrets import clean
from bridle._shell.listeners import LISTENER_FAILED, WarningOutlet
from bridle._shell.mailbox import Mailbox, size_of
from bridle._shell.observing import QueryObserver
from bridle._shell.preflight import running_loop
from bridle._shell.transport import Transport
from bridle.errors import BridleError
from bridle.events import SdkWarning, WarningKind
from bridle.messages import Message
from bridle.telemetry import Telemetry

log = logging.getLogger("bridle.query")

_HIGH_WATER = 4 << 20
"""Unread bytes beyond which the CLI has to wait, unless the options say less."""

_KEPT_WARNINGS = 1000
_FEEDER_PATIENCE = 1.0
"""Seconds an iterable of prompts has for cleaning up once nobody wants its prompts."""

Lines = AsyncGenerator[bytes, None]


class QueryRun:
    """What a stream holds while its CLI runs. Belongs to the loop it was made on.

    It is kept alive by its process; the stream is not, so that it can be dropped.
    """

    def __init__(
        self,
        reader: QueryReader,
        *,
        max_unread_bytes: int,
        on_stderr: Callable[[str], object] | None = None,
        on_warning: Callable[[SdkWarning], object] | None = None,
        redact: Callable[[str], str] = redact_text,
        telemetry: Telemetry | None = None,
        model: str | None = None,
    ) -> None:
        self._loop = running_loop()
        self.observer = QueryObserver(telemetry, clock=self._loop.time, model=model)
        self._reader = reader
        # Keeps secrets out of what the query tells of the CLI's words.
        self._redact = redact
        self._high_water = min(max_unread_bytes, _HIGH_WATER)
        self._mailbox: Mailbox[Message] = Mailbox()
        self._is_paused = False
        self._transport: Transport | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._wants_prompts = True
        self._living: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._armed: float | None = None
        self._outlet = WarningOutlet(self._loop, self._deliver_warning)
        #: Tells that something was survived.
        self.warn = self._outlet.tell
        self._stderr = self._notifier(on_stderr, WarningKind.STDERR_CALLBACK_FAILED)
        self._warning = self._notifier(on_warning, WarningKind.EVENT_CALLBACK_FAILED)
        #: The last of what was warned of.
        self.warnings: deque[SdkWarning] = deque(maxlen=_KEPT_WARNINGS)

    @property
    def pid(self) -> int | None:
        """The CLI's process id, where there is one."""
        return self._transport.pid if self._transport else None

    # -- the stream --------------------------------------------------------------------------------

    def start(
        self,
        spawn: Callable[[QueryRun], Transport],
        greeting: bytes,
        lines: Lines,
        init_timeout: float,
    ) -> None:
        """Start the process, greet it, and feed it these lines.

        Raises:
            StartError: there is no process.
        """
        try:
            self._transport = spawn(self)
        except BaseException as error:
            self.observer.ended(error)
            raise
        self._transport.write(greeting)
        self._reader.start(init_timeout, self._loop.time())
        self._feeding = self._loop.create_task(self._feed(lines), name="bridle-query-input")
        self._feeding.add_done_callback(self._on_fed)
        self._living = self._loop.create_task(Begun(self._live()), name="bridle-query")
        self._tell([])

    async def take(self) -> Message:
        """The next message. Cancellation loses nothing.

        Raises:
            Closed: there is none, and no process is left either.
        """
        message = await self._mailbox.take()
        if self._is_paused and 2 * self._mailbox.unread_bytes <= self._high_water:
            self._is_paused = False
            self._process.resume_reading()
            self._reader.resume(self._loop.time())
            self._tell([])
        return message

    async def close(self) -> None:
        """End it; returns when no process is left. Cancelling the wait does not cancel the end."""
        self._mailbox.close()
        self._mailbox.clear()
        self._stop()
        if self._living is not None:
            await asyncio.wait([self._living])

    def abandon(self) -> None:
        """Nobody holds the stream any more: end it, without anybody waiting. From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._stop)
        except RuntimeError:
            log.debug("a query outlived its event loop; its process is ended on its own")

    def _deliver_warning(self, warning: SdkWarning) -> None:
        warning = structs.replace(warning, detail=self._redact(warning.detail))
        self.observer.happened(warning)
        self.warnings.append(warning)
        if self._warning is not None and warning.kind not in LISTENER_FAILED:
            self._warning.tell(warning)

    # -- the transport (TransportEvents) -----------------------------------------------------------

    def received(self, data: bytes) -> None:
        """The CLI wrote something."""
        self._tell(self._reader.receive(data, self._loop.time()))

    def output_ended(self) -> None:
        """The CLI's output is at its end."""
        self._tell(self._reader.output_ended(self._loop.time()))

    def wrote_stderr(self, line: str) -> None:
        """The CLI wrote a line to stderr."""
        if self._stderr is not None:
            self._stderr.tell(line)

    def exited(self, exit_code: int | None) -> None:
        """The process is gone."""
        tail = self._redact(self._transport.stderr_tail) if self._transport else ""
        self._tell(self._reader.exited(exit_code, tail, self._loop.time()))

    def input_failed(self, reason: str) -> None:
        """The CLI takes no more prompts."""
        self._stop_feeding()
        self._reader.input_failed(reason, self._loop.time())
        self._tell([])

    # -- what comes out ----------------------------------------------------------------------------

    def _tell(self, told: list[Told]) -> None:
        """Pass on what the reader has to tell, and see where that leaves the query."""
        messages: list[Message] = []
        reads = self.observer.reads
        for item in told:
            if isinstance(item, Message):
                messages.append(item)
                if reads:
                    self.observer.delivered([item])
            elif isinstance(item, SdkWarning):
                self.warn(item)
            else:
                self.observer.happened(item)
        if messages:
            self._mailbox.put_messages(messages, size_of(messages))
        if self._reader.is_over:
            self._stop()
        elif self._mailbox.unread_bytes > self._high_water and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
            self._reader.pause(self._loop.time())
        if self._reader.next_deadline != self._armed:
            self._arm(self._reader.next_deadline)

    def _arm(self, deadline: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = deadline
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._advance)

    def _advance(self) -> None:
        self._armed = None
        # A timer may come a hair early; the reader must not find its deadline in the future.
        now = max(self._loop.time(), self._reader.next_deadline or 0.0)
        self._tell(self._reader.advance(now))

    def _notifier(
        self, listener: Callable[[Any], object] | None, kind: WarningKind
    ) -> Notifier | None:
        if listener is None:
            return None

        def failed(error: BaseException) -> None:
            self.warn(SdkWarning(kind, words_of(error), error))

        return Notifier(self._loop, listener, failed)

    # -- what goes in ------------------------------------------------------------------------------

    async def _feed(self, lines: Lines) -> None:
        async with contextlib.aclosing(lines):
            async for line in lines:
                self._process.write(line)
                self._reader.prompted(self._loop.time())
                self._tell([])
                await self._process.drain()
        self._process.end_input()
        self._reader.input_ended(self._loop.time())
        self._tell([])

    def _stop_feeding(self) -> None:
        self._wants_prompts = False
        if self._feeding is not None:
            self._feeding.cancel()

    def _on_fed(self, feeding: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if feeding.cancelled() else feeding.exception()
        if error is None:
            return
        if self._wants_prompts:
            self._reader.end(error)
            self._tell([])
        elif not feeding.cancelled():
            log.debug("the prompts failed when nobody wanted them any more: %r", error)

    # -- the end -----------------------------------------------------------------------------------

    def _stop(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    async def _live(self) -> None:
        try:
            await self._over
        finally:
            self._reader.end()
            self._arm(None)
            self._stop_feeding()
            try:
                await self._process.aclose()
                # (A loop that was closed in the midst of it has no time for that.)
                if self._feeding is not None and not self._loop.is_closed():
                    await asyncio.wait([self._feeding], timeout=_FEEDER_PATIENCE)
            finally:  # whatever happens, a reader is not left waiting
                self._outlet.flush()
                error = self._complete(self._reader.error)
                self.observer.ended(error)
                self._mailbox.close(error)

    def _complete(self, error: BaseException | None) -> BaseException | None:
        """Add what the CLI said on stderr, where the reader could not know it."""
        clean(error, self._redact)
        if isinstance(error, BridleError) and error.process and error.process.exit_code is None:
            tail = self._redact(self._process.stderr_tail)
            error.with_process(structs.replace(error.process, stderr_tail=tail))
        return error

    @property
    def _process(self) -> Transport:
        assert self._transport is not None, "what is done to a process follows its start"
        return self._transport
