"""Both flavours of every door in one shape, so that a behaviour is written once and run on each.

Behaviours are written for the asynchronous doors. A blocking one stands in for its twin behind
:class:`Blocking`, which makes every call in a thread and knows nothing but the names that differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, NamedTuple

import bridle
from bridle import sync

WAITS_FOR_NOTHING = {"messages", "events", "subscribe", "text_stream"}
OVER = object()


class Blocking:
    """A blocking object in the shape of its asynchronous twin."""

    def __init__(self, twin: Any) -> None:
        self._twin = twin

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._twin, "close" if name == "aclose" else name)
        if not callable(value):
            return value
        if name in WAITS_FOR_NOTHING:
            return lambda: Blocking(value())
        return lambda *values, **named: self._call(value, *values, **named)

    async def _call(self, function: Callable[..., Any], *values: Any, **named: Any) -> Any:
        result = await asyncio.to_thread(function, *values, **named)
        return Blocking(result) if isinstance(result, sync.Turn) else result

    def __await__(self) -> Generator[Any, None, Any]:
        outcome: Coroutine[Any, Any, Any] = self.outcome()
        return outcome.__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = iter(self._twin)
        while (item := await asyncio.to_thread(next, items, OVER)) is not OVER:
            yield item

    async def __aenter__(self) -> Blocking:
        await asyncio.to_thread(self._twin.__enter__)
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await asyncio.to_thread(self._twin.__exit__, *problem)


class Door(NamedTuple):
    """The ways in, in their asynchronous shape."""

    session: Callable[..., Any]
    run: Callable[..., Coroutine[Any, Any, Any]]
    query: Callable[..., Any]
    #: What a session is here.
    kind: type[bridle.Session | sync.Session]


DOORS = {
    "async": Door(bridle.Session, bridle.run, bridle.query, bridle.Session),
    "sync": Door(
        lambda *options: Blocking(sync.Session(*options)),
        lambda *values, **named: asyncio.to_thread(sync.run, *values, **named),
        lambda *values: Blocking(sync.query(*values)),
        sync.Session,
    ),
}
