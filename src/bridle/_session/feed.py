"""The messages of a query or of a session in batches, with what is known about its CLI.

The drop-in reads in this way: it passes many messages at a time to another thread or event loop.
"""

from __future__ import annotations

from typing import Any, cast

from bridle._engine.engine import Engine
from bridle._session.one_way.query import QueryStream
from bridle._session.one_way.query_session import QuerySession
from bridle._session.readers.subscription import Subscription
from bridle._session.session import InnerSession
from bridle.errors import ProcessInfo
from bridle.messages import Message

# pyright: reportPrivateUsage=false
# The classes keep these attributes private from users.


class Feed:
    """One reader of a query that is not started, or of a session.

    Args:
        messages: the query, or what ``session.messages()`` returned.
        session: the session, if ``messages`` is not a query.
    """

    def __init__(
        self, messages: QueryStream | Subscription[Message], session: InnerSession | None = None
    ) -> None:
        self._messages = messages
        plan = messages._plan if isinstance(messages, QueryStream) else None
        #: The query, if it runs as a session.
        self.query = plan if isinstance(plan, QuerySession) else None
        #: The session, or None for a one-way query.
        self.session = session if self.query is None else self.query.session
        self._engine: Engine = cast("Any", self.session or plan)._engine

    async def take_batch(self) -> list[Message]:
        """Wait for messages and return all that are there, or an empty list at the end.

        Raises what the query or subscription raises. Cancellation: loses no message.
        """
        messages = self._messages
        try:
            first = await messages.__anext__()
        except StopAsyncIteration:
            return []
        ready = messages._ready if isinstance(messages, QueryStream) else messages._queue.ready
        rest = ready[::-1]
        ready.clear()
        return [first, *rest]

    @property
    def is_accepted(self) -> bool:
        """Whether the CLI has accepted the session."""
        return self._engine.handshake.is_done

    def process_info(self) -> ProcessInfo:
        """Return what is known about the CLI process."""
        return self._engine.process

    async def flush(self) -> None:
        """Wait until the store of the session has all entries so far, also while it fails."""
        store = None if self.session is None else self.session.connection.store
        if store is not None:
            await store.flush()

    async def close(self, *, at_once: bool) -> None:
        """End the CLI. With ``at_once``, a session is stopped instead of being closed gently."""
        if isinstance(self._messages, QueryStream):
            await self._messages.aclose()
        elif self.session is not None:
            await (self.session.stop() if at_once else self.session.aclose())
