"""The state of a turn in the shell: the queue of its messages, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bridle._runtime.stored_errors import to_raise
from bridle._session.readers.queues import Queue, Subscriptions
from bridle.errors import ControlError, ControlRejected, UsageError
from bridle.messages import Message
from bridle.outcomes import Outcome


def taken_over() -> UsageError:
    """Return the error that ends a loop over a turn when another loop has begun."""
    return UsageError(
        "Another loop over this turn has begun and gets the rest of its messages.",
        fix="Use session.messages(), which any number of loops can read.",
    )


Submit = Callable[[str, Mapping[str, object], float | None], Awaitable[Mapping[str, object] | None]]
"""Sends a control request, given its fields and timeout, and returns the response."""


class TurnState:
    """The turn of one prompt. When the program drops it, its queue is removed.

    The core (:mod:`bridle._engine.delivery.unread`) decides what is kept for the next loop, and for
    how long.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        uuid: str,
        subscriptions: Subscriptions,
        *,
        submit: Submit,
        is_running: Callable[[str], bool],
    ) -> None:
        self.uuid = uuid
        self._submit = submit
        self._is_running = is_running
        self.outcome: asyncio.Future[Outcome[Any]] = loop.create_future()
        self._subscriptions = subscriptions
        self._delivery = subscriptions.delivery
        subscriptions.open_turn(uuid, self, self.outcome)

    @property
    def queue(self) -> Queue[Message]:
        """The messages that are unread."""
        return self._subscriptions.queue_of(self.uuid)

    def read(self) -> Queue[Message]:
        """Begin a loop. A loop that is still reading ends with an error.

        Raises:
            UsageError: the outcome was awaited while no loop was reading.
            ConsumerTooSlow: too many messages were unread.
        """
        self.settle()
        error = self._delivery.begin_loop(self.uuid)
        if error is not None:
            raise to_raise(error)
        # The loop that reads this queue may be collected at any moment. After the hand-over, its
        # note has no effect.
        return self._subscriptions.hand_over(self.uuid, taken_over())

    def leave(self, queue: Queue[Message]) -> None:
        """Note that a loop has ended. May be called at any time, also by the garbage collector.

        Its unread messages are kept for the next loop.
        """
        self._subscriptions.leave_loop(queue)

    def settle(self) -> None:
        """End the loops for which :meth:`leave` was called. Call this on the event loop."""
        self._subscriptions.settle()

    def put_back(self, messages: list[Message]) -> None:
        """Keep messages that a loop took and did not read, for the next one."""
        queue = self.queue
        if not self._delivery.put_back(self.uuid, *queue.put_back(messages)):
            queue.clear()

    async def wait(self) -> Outcome[Any]:
        """Wait for the outcome. Unread messages are discarded, unless a loop reads them."""
        self.settle()
        self._delivery.begin_wait(self.uuid)
        try:
            if self.outcome.done():
                await asyncio.sleep(0)  # a loop that begins in the same step still gets them
            return await asyncio.shield(self.outcome)
        finally:
            self.settle()
            if self._delivery.end_wait(self.uuid):
                self.queue.clear()

    def outcome_so_far(self) -> Outcome[Any] | None:
        """Return the outcome, or None if the turn has not ended."""
        return self.outcome.result() if self.outcome.done() else None

    async def interrupt(self, timeout: float | None) -> None:
        """End the turn: remove its prompt from the CLI's queue, or interrupt it if it runs.

        Newer CLIs do nothing if the turn that runs is another one by now. Older CLIs ignore the
        names and interrupt the turn that runs.
        """
        try:
            if self.outcome.done():
                return
            if not self._is_running(self.uuid):
                fields = {"message_uuid": self.uuid}
                response = await self._cancel_prompt(fields, timeout)
                if response is not None and response.get("cancelled") is True:
                    return
            if not self.outcome.done():
                await self._submit("interrupt", {"for_user_message_uuids": [self.uuid]}, timeout)
        except ControlError:
            if not self.outcome.done():
                raise

    async def _cancel_prompt(
        self, fields: Mapping[str, object], timeout: float | None
    ) -> Mapping[str, object] | None:
        """Remove the prompt from the CLI's queue. Return None if the CLI cannot do that."""
        try:
            return await self._submit("cancel_async_message", fields, timeout)
        except ControlRejected as error:
            if not error.is_unsupported:
                raise
            return None
