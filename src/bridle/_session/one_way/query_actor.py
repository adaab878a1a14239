"""Run a query: a session with one subscription that sends the prompts itself.

A separate task reads the prompts, because they come from an iterable of the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any, ClassVar

from msgspec import structs

from bridle._engine import actions as act
from bridle._engine.engine import Engine
from bridle._observe.known_secrets import clean
from bridle._observe.listeners import Listeners
from bridle._observe.observer import QueryObserver
from bridle._process.transport import Transport
from bridle._runtime.stored_errors import to_raise
from bridle._session.actor import Actor
from bridle._session.readers.queues import Closed
from bridle.errors import BridleError
from bridle.events import ApiRetry, RateLimited, SdkWarning
from bridle.messages import Message

log = logging.getLogger("bridle.query")

_FEEDER_GRACE = 1.0
"""Seconds that the iterable of prompts has to clean up after the query has ended."""

Lines = AsyncGenerator[tuple[str, bytes], None]
"""The prompts as lines, each with its uuid."""


class QueryActor(Actor):
    """The process, engine, prompts and subscription of one query, on one event loop."""

    def __init__(
        self,
        engine: Engine,
        observer: QueryObserver,
        *,
        listeners: Listeners,
        redact: Callable[[str], str],
    ) -> None:
        super().__init__(
            engine,
            observer,
            listeners=listeners,
            redact=redact,
            closers=[self._end_feeding],
        )
        observer.error = lambda: self.error
        #: The subscription with the messages that are unread.
        self.messages = self.subscriptions.messages()
        self._feeding: asyncio.Task[None] | None = None
        self._wants_prompts = True
        # The exception of the iterable of prompts.
        self._input_error: BaseException | None = None
        self.warnings = self.outlet.keep()

    async def begin(
        self, spawn: Callable[[Actor], Transport], lines: Lines, *warnings: SdkWarning
    ) -> None:
        """Start the process and send it these lines.

        Raises:
            StartError: the process could not be started. No task is left.
        """
        try:
            key = self.launch(spawn, *warnings)
            key.add_done_callback(lambda done: done.cancelled() or done.exception())
            if self._transport is None and self._engine.error is not None:
                raise self._engine.error
        except BaseException:
            if self._guard is not None:
                await asyncio.wait([self._guard])
            raise
        self._feeding = self._loop.create_task(self._feed(lines), name="bridle-query-input")
        self._feeding.add_done_callback(self._on_fed)

    # -- messages ----------------------------------------------------------------------------------

    async def take(self) -> Message:
        """Return the next message. Cancellation loses nothing.

        Raises:
            Closed: there are no more messages, and no process is left.
        """
        try:
            return await self.messages.take()
        except Closed:
            await self.wait_gone()
            error = self.error
            raise Closed(error and to_raise(error)) from None

    async def close(self) -> None:
        """Stop the query and wait until no process is left.

        Cancelling the call does not stop the work.
        """
        self.subscriptions.leave(self.messages)
        self._stop_feeding()
        await self.stop()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the query, with the stderr of the CLI, or None."""
        error = self._start_error or self._input_error or self._engine.error
        clean(error, self._redact)
        if isinstance(error, BridleError) and error.process is None:
            error.with_process(self._engine.process)
        if isinstance(error, BridleError) and error.process and error.process.exit_code is None:
            tail = "" if self._transport is None else self._redact(self._transport.stderr_tail)
            error.with_process(structs.replace(error.process, stderr_tail=tail))
        return error

    # -- prompts -----------------------------------------------------------------------------------

    async def _feed(self, lines: Lines) -> None:
        async with contextlib.aclosing(lines):
            async for uuid, line in lines:
                written: asyncio.Future[str] = self._loop.create_future()
                # The engine rejects a prompt that comes after the end.
                written.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._do(self._engine.send(written, uuid, line, self._loop.time()))
                await self._process.drain()
        self.end_input()

    def input_failed(self, reason: str) -> None:
        """Stop reading prompts, because the CLI has closed its input."""
        self._stop_feeding()
        super().input_failed(reason)

    def _stop_feeding(self) -> None:
        self._wants_prompts = False
        if self._feeding is not None:
            self._feeding.cancel()

    def _on_fed(self, feeding: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if feeding.cancelled() else feeding.exception()
        if error is None:
            return
        if self._wants_prompts:
            self._input_error = error
            self._stop_soon()
        elif not feeding.cancelled():
            log.debug("the prompts failed after the query had ended: %s", type(error))

    async def _end_feeding(self) -> None:
        self._stop_feeding()
        if self._feeding is not None:
            await asyncio.wait([self._feeding], timeout=_FEEDER_GRACE)

    # -- events ------------------------------------------------------------------------------------

    def _publish(self, action: act.Publish) -> None:
        if isinstance(action.event, (RateLimited, ApiRetry)):
            super()._publish(action)

    def _terminate(self, _: act.Terminate) -> None:
        self._stop_feeding()  # the query is over, whatever the reason
        super()._terminate(_)

    _PERFORM: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        **Actor._PERFORM,
        act.Publish: _publish,
        act.Terminate: _terminate,
    }
