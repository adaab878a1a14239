"""What the blocking `Session` and `Turn` stand on: the async object, and the calls on its loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.delivery.turn_events import TurnTranslator
from bridle._session.readers.turn_state import taken_over
from bridle._session.session import InnerSession
from bridle._session.turn import Turn as AsyncTurn
from bridle._session.turn import final_outcome, take_back
from bridle.messages import Message
from bridle.outcomes import Outcome
from bridle.sync._iterators import Inbox, Source, Subscription
from bridle.sync._operations_twin import OperationGroups
from bridle.sync._portal import Portal, Work, portal

_T = TypeVar("_T")


class TurnBase:
    """A turn on the event loop, and its one reader."""

    def __init__(self, turn: AsyncTurn, home: Portal) -> None:
        self._turn = turn
        self._text = TextStream()
        self._translator = TurnTranslator()
        self._reading: Inbox[Message] | None = None
        self._portal = home

    def _call(self, operation: str, work: Work[_T]) -> _T:
        return self._portal.call(operation, work)

    def _read(self) -> Subscription[Message]:
        keep = partial(take_back, self._turn)
        make = self._take_over
        return Subscription(Inbox(self._portal, "reading a turn", make, self._interrupt, keep))

    def _take_over(self, inbox: Inbox[Message]) -> Source[Message]:
        # Runs on the event loop in one step, so that there is always exactly one reader.
        if self._reading is not None:
            self._reading.give_way(taken_over())
        self._reading = inbox
        return self._turn.__aiter__()

    def _final_outcome(self) -> Outcome[Any] | None:
        return self._portal.call("outcome", partial(final_outcome, self._turn), self._interrupt)

    def _interrupt(self) -> None:
        if not self._turn.done:
            self._portal.start(self._turn.interrupt)

    def __repr__(self) -> str:
        return f"sync.{self._turn!r}"


class SessionBase(OperationGroups):
    """A session on the event loop."""

    def _adopt(self, session: InnerSession) -> None:
        session.show_as(self)
        self._session = session
        # Set at the first use, not here: the process may fork in between.
        self._made: Portal | None = None
        self._connecting = False

    def _connect(self) -> None:
        self._connecting = True
        home, session = self._portal, self._session
        home.call("connect", session.connect, lambda: home.start(session.stop))

    @property
    def _portal(self) -> Portal:
        if self._made is None:
            self._made = portal()
        return self._made

    @property
    def _is_lost(self) -> bool:
        return self._made is not None and self._made.is_over

    def _call(self, operation: str, work: Work[_T]) -> _T:
        return self._portal.call(operation, work)

    def _subscribe(self, operation: str, make: Callable[[], Source[_T]]) -> Subscription[_T]:
        return Subscription(Inbox(self._portal, operation, lambda _: make()))

    def _end(self, operation: str, work: Work[None]) -> None:
        # In a forked child the session has stopped already. The parent ends its process.
        if not self._is_lost:
            self._call(operation, work)

    def __repr__(self) -> str:
        return f"sync.{self._session!r}"
