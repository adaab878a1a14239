"""A query with callbacks: a session that ends when all its prompts are answered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bridle._callbacks.iterated_prompts import draw
from bridle._engine.outgoing.prompts import encode_prompt, prompts_at_hand
from bridle._runtime.stored_errors import to_raise
from bridle._session.actor import Actor
from bridle._session.connection.connection import Connection
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.readers.queues import Closed
from bridle._session.session import InnerSession
from bridle._session.turn import Turn
from bridle.content import Prompts
from bridle.errors import ControlError
from bridle.messages import Message
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome, OutcomeReason

_ITERABLE_GRACE = 1.0
"""Seconds an iterable of prompts has to clean up once the session has ended."""

_LIMITS = frozenset(reason for reason in OutcomeReason if reason.value.startswith("limit_"))


class QuerySession:
    """One query that is a session. The constructor checks prompts that are not from an iterator."""

    def __init__(self, prompts: Prompts, options: ResolvedOptions, deps: Any) -> None:
        at_hand = prompts_at_hand(prompts)
        for prompt in at_hand or ():
            encode_prompt(prompt, "")
        #: The session, as tools get it.
        self.session = InnerSession(Connection(SessionPlan(options, deps, awaits_follow_ups=True)))
        self._prompts: Any = prompts if at_hand is None else at_hand
        # The turns without an outcome. A long query must not keep those that have ended.
        self._open: dict[asyncio.Task[Outcome[Any]], Turn] = {}
        # What the first prompt that failed raises at the end.
        self._error: Exception | None = None
        #: Whether the iterable of prompts has ended, or failed.
        self.has_drawn = False

    async def start(self) -> RunningQuery:
        """Start the CLI on the running event loop."""
        return RunningQuery(self, self.session.connection.actor)

    async def answer(self) -> None:
        """Connect, send every prompt, wait for the outcomes, and shut down the session.

        Raises:
            StartError: the CLI did not start.
            OutcomeError: a prompt reached a limit, or has no result.
            Exception: an exception from the iterable of prompts.
        """
        async with self.session:
            error = await self._send_all()
            if error is not None and not isinstance(error, ControlError):
                raise error
            while self._open:  # prompts may come meanwhile
                await asyncio.wait(self._open)
            if self._error is not None:
                raise self._error

    async def send_prompt(self, prompt: object) -> Turn:
        """Send a prompt, unless all prompts of the query are answered: the session then ends.

        Raises:
            OptionsError: the prompt is invalid.
            ControlError: the session ends, or has ended.
        """
        if self.has_drawn and all(turn.done for turn in self._open.values()):
            raise ControlError("send_prompt", what="the query has answered all its prompts.")
        turn = await self.session.send_prompt(prompt)
        waiting = asyncio.ensure_future(turn.outcome())
        self._open[waiting] = turn
        waiting.add_done_callback(self._on_outcome)
        return turn

    def _on_outcome(self, waiting: asyncio.Task[Outcome[Any]]) -> None:
        del self._open[waiting]
        if waiting.cancelled():
            return
        try:
            outcome = waiting.result()
            if outcome.result is None or outcome.reason in _LIMITS:
                outcome.raise_for_reason()
        except Exception as error:
            self._error = self._error or error

    async def _send_all(self) -> BaseException | None:
        """Send every prompt until the session ends. Return what the iterable of prompts raised.

        A prompt that comes after the end cannot be sent; that is returned as a ControlError.
        """
        sending = asyncio.ensure_future(self._draw_and_send())
        gone = asyncio.ensure_future(self.session.connection.actor.wait_gone())
        try:
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not sending.done():
                sending.cancel()
                await asyncio.wait([sending], timeout=_ITERABLE_GRACE)
        return None if not sending.done() or sending.cancelled() else sending.exception()

    async def _draw_and_send(self) -> None:
        try:
            async with contextlib.aclosing(draw(self._prompts)) as prompts:
                async for prompt in prompts:
                    _ = await self.send_prompt(prompt)
        finally:
            self.has_drawn = True


class RunningQuery:
    """A running query that is a session."""

    def __init__(self, query: QuerySession, actor: Actor) -> None:
        self._actor = actor
        #: The unread messages.
        self.messages = actor.subscriptions.messages()
        self.warnings = actor.outlet.keep()
        self._loop = asyncio.get_running_loop()
        self._answering = self._loop.create_task(query.answer(), name="bridle-query")
        # The stream raises what the task raised.
        self._answering.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def pid(self) -> int | None:
        """Return the process id of the CLI, or None if it was not started."""
        return self._actor.pid

    @property
    def gone(self) -> asyncio.Future[None]:
        """Done when no process of the query is left."""
        return self._actor.gone

    async def take(self) -> Message:
        """Return the next message.

        Raises:
            Closed: there are no more messages, and all processes have exited.

        Cancellation: loses no message.
        """
        try:
            return await self.messages.take()
        except Closed as end:
            await asyncio.wait([self._answering])
            error = end.error
            if error is None and not self._answering.cancelled():
                error = self._answering.exception()
            end.error = error and to_raise(error)
            raise

    async def close(self) -> None:
        """End the query, and return when all processes have exited.

        Cancellation: the query ends even if the wait is cancelled.
        """
        self._actor.subscriptions.leave(self.messages)
        self._answering.cancel()
        await self._actor.stop()
        await asyncio.wait([self._answering])

    def abandon(self) -> None:
        """End the query because its stream was dropped. Any thread may call it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answering.cancel)
        self._actor.abandon()
