"""Run a one-way query: an actor with one subscription, and the prompts that it sends.

A separate task reads the prompts, because they come from an iterable of the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from msgspec import structs

from bridle._engine import actions as act
from bridle._engine.engine import Engine
from bridle._observe.known_secrets import clean
from bridle._observe.listeners import Listeners
from bridle._observe.observer import QueryObserver
from bridle._process.transport import Transport
from bridle._runtime.stored_errors import to_raise
from bridle._session.actor import Actor
from bridle._session.parts.part import Part, Sees
from bridle._session.parts.telemetry_part import TelemetryPart
from bridle._session.readers.queues import Closed
from bridle.errors import BridleError
from bridle.events import SdkWarning
from bridle.messages import Message

log = logging.getLogger("bridle.query")

_FEEDER_GRACE = 1.0
"""Seconds that the iterable of prompts has to clean up after the query has ended."""


class _FeedingPart(Part):
    """Ends the iterable of prompts when the query is over, whatever the reason."""

    def __init__(self, run: OneWayRun) -> None:
        self._run = run

    def sees(self) -> Sees:
        """See that the CLI is terminated."""
        return {act.Terminate: lambda _: self._run.stop_feeding()}

    def input_lost(self) -> None:
        """Stop reading prompts that the CLI does not take."""
        self._run.stop_feeding()

    async def close(self) -> None:
        """Wait until the iterable has cleaned up."""
        await self._run.end_feeding()


Lines = AsyncGenerator[tuple[str, bytes], None]
"""The prompts as lines, each with its uuid."""


class OneWayRun:
    """The actor, prompts and subscription of one query, on one event loop."""

    def __init__(
        self,
        engine: Engine,
        observer: QueryObserver,
        *,
        listeners: Listeners,
        redact: Callable[[str], str],
        parts: Sequence[Part] = (),
    ) -> None:
        parts = [TelemetryPart(observer), *parts, _FeedingPart(self)]
        self.actor = actor = Actor(
            engine, observer, listeners=listeners, redact=redact, parts=parts
        )
        observer.error = lambda: self.error
        #: Done when no process of the query is left.
        self.gone = actor.gone
        #: Stops the query because its stream was dropped. Any thread may call it.
        self.abandon = actor.abandon
        self._redact = redact
        #: The subscription with the messages that are unread.
        self.messages = actor.subscriptions.messages()
        self.warnings: Iterable[SdkWarning] = actor.outlet.keep()
        self._transport: Transport | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._wants_prompts = True
        # The exception of the runner, or of the iterable of prompts.
        self._error: BaseException | None = None

    async def begin(
        self, spawn: Callable[[Actor], Transport], lines: Lines, *warnings: SdkWarning
    ) -> None:
        """Start the process and send it these lines.

        Raises:
            StartError: the process could not be started. No task is left.
        """

        def spawn_noted(actor: Actor) -> Transport:
            try:
                self._transport = spawn(actor)
            except BaseException as error:
                self._error = error
                raise
            return self._transport

        try:
            key = self.actor.launch(spawn_noted, *warnings)
            key.add_done_callback(lambda done: done.cancelled() or done.exception())
            if self._error is not None:
                raise self._error
        except BaseException:
            await self.actor.stop()
            await asyncio.sleep(0)  # lets the task that watches over the actor end
            raise
        self._feeding = asyncio.create_task(self._feed(lines), name="bridle-query-input")
        self._feeding.add_done_callback(self._on_fed)

    # -- messages ----------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """The process id of the CLI, or None if it was not started."""
        return self.actor.pid

    async def take(self) -> Message:
        """Return the next message. Cancellation loses nothing.

        Raises:
            Closed: there are no more messages, and no process is left.
        """
        try:
            return await self.messages.take()
        except Closed as end:
            await self.actor.wait_gone()
            error = self.error
            end.error = error and to_raise(error)
            raise

    async def close(self) -> None:
        """Stop the query and wait until no process is left.

        Cancelling the call does not stop the work.
        """
        self.actor.subscriptions.leave(self.messages)
        self.stop_feeding()
        await self.actor.stop()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the query, with the stderr of the CLI, or None."""
        error = self._error or self.actor.engine.error
        clean(error, self._redact)
        if isinstance(error, BridleError) and error.process is None:
            error.with_process(self.actor.engine.process)
        if isinstance(error, BridleError) and error.process and error.process.exit_code is None:
            tail = "" if self._transport is None else self._redact(self._transport.stderr_tail)
            error.with_process(structs.replace(error.process, stderr_tail=tail))
        return error

    # -- prompts -----------------------------------------------------------------------------------

    async def _feed(self, lines: Lines) -> None:
        async with contextlib.aclosing(lines):
            async for uuid, line in lines:
                if not self.actor.post(uuid, line):
                    return  # the CLI has closed its input, or the query is over
                if self._transport is not None:
                    await self._transport.drain()
        self.actor.end_input()

    def stop_feeding(self) -> None:
        """Cancel the iterable of prompts. What it raises from now on is only logged."""
        self._wants_prompts = False
        if self._feeding is not None:
            self._feeding.cancel()

    def _on_fed(self, feeding: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if feeding.cancelled() else feeding.exception()
        if error is None:
            return
        if self._wants_prompts:
            self._error = error
            self.actor.abandon()
        elif not feeding.cancelled():
            log.debug("the prompts failed after the query had ended: %s", type(error))

    async def end_feeding(self) -> None:
        """Cancel the iterable of prompts, and wait until it has cleaned up."""
        self.stop_feeding()
        if self._feeding is not None:
            await asyncio.wait([self._feeding], timeout=_FEEDER_GRACE)
