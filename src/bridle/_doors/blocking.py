"""What is iterated on the blocking door: items that come on the loop, for a thread.

Every iterator has an :class:`Inbox`, which a task on the loop fills. Nothing that ends one waits
for anything, so it may happen at any moment, garbage collection included.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from bridle._core.text import TextStream
from bridle._doors.portal import Portal, nothing
from bridle._source import line_size
from bridle.events import SdkWarning
from bridle.messages import Message

_AHEAD = 2048
"""Items that are read ahead for a thread at most."""

_AHEAD_BYTES = 1 << 20
"""Bytes of messages that are read ahead, but for the last one."""

_T = TypeVar("_T")


def drop(_: object) -> None:
    """Nobody wants it."""


_Item = TypeVar("_Item", covariant=True)


class Source(Protocol[_Item]):
    """What an :class:`Inbox` reads from: an async iterator that can be left."""

    def __aiter__(self) -> Source[_Item]: ...
    async def __anext__(self) -> _Item: ...
    async def aclose(self) -> None: ...


class _End:
    """Stands after the last item; ``error`` says why, if that was a failure."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Inbox(Generic[_T]):
    """Items of an async iterator, for a thread.

    A task on the loop reads ahead, so a thread that falls behind finds the next item without
    waiting for the loop. How far is bounded: then it waits until the thread has taken them all,
    and whatever comes meanwhile is held, and counted, where it comes from.
    """

    def __init__(
        self,
        home: Portal,
        operation: str,
        make: Callable[[Inbox[_T]], Source[_T]],
        give_up: Callable[[], None] = nothing,
        give_back: Callable[[list[_T]], None] = drop,
    ) -> None:
        """Begin to read what ``make``, called on the loop with this, returns.

        Raises as ``Portal.call``.

        ``give_up`` is called when a wait is broken off, as by Ctrl-C; ``give_back`` gets, on the
        loop, what was read ahead and is not wanted.
        """
        self._portal = home
        self._operation = operation
        self._give_up = give_up
        self._give_back = give_back
        self._items: SimpleQueue[_T | _End] = SimpleQueue()
        # What was taken when a signal handler raised: it comes next.
        self._kept: list[_T | _End] = []
        self._end: _End | None = None
        self._is_full = False
        self._room = asyncio.Event()
        self._pumping: asyncio.Task[None] | None = None

        async def begin() -> None:
            self._pumping = asyncio.get_running_loop().create_task(self._pump(make(self)))

        def break_off() -> None:
            self.close()
            give_up()

        home.call(operation, begin, break_off)

    @property
    def is_over(self) -> bool:
        """True once somebody has been told that there is no next item."""
        return self._end is not None

    def get(self) -> _T:
        """The next item, as soon as there is one. Being broken off loses nothing.

        Raises:
            StopIteration: there is no next item.
        """
        self._portal.check(self._operation)
        if self._is_full and self._items.empty():
            self._portal.post(self._room.set)
        if self._end is None:
            taken, self._kept = self._kept[:1], self._kept[1:]
            try:
                if not taken:
                    # By C code alone: no signal handler comes between taking and keeping it.
                    taken.extend(map(self._items.get, (True,)))
                item: Any = taken[0]
                is_end = isinstance(item, _End)
            except BaseException:
                self._kept = taken + self._kept
                self._give_up()
                raise
            if not is_end:
                return item  # type: ignore[no-any-return]  # a call would let a handler in
            self._end = item
            self._items.put(item)  # another thread may be waiting too
        if self._end.error is not None:
            raise self._end.error
        raise StopIteration

    def close(self) -> None:
        """Give back the rest. Never waits; at any moment, as ``Portal.post``."""
        self._end = _End()
        self._portal.post(self._stop)

    def give_way(self, error: BaseException) -> None:
        """Another one reads on, from the same place: give back what was read ahead. On the loop."""
        if self._end is None:
            self._end = _End(error)
            self._return_rest()
            self._room.set()

    def _stop(self) -> None:
        if self._pumping is None:
            return
        if self._pumping.done():
            self._return_rest()
        else:
            self._pumping.cancel()

    def _return_rest(self) -> None:
        rest, self._kept = self._kept, []
        with contextlib.suppress(Empty):
            while True:
                rest.append(self._items.get_nowait())
        self._give_back([item for item in rest if not isinstance(item, _End)])
        self._items.put(self._end or _End())  # for other threads that wait

    async def wait_closed(self) -> None:
        """Wait, on the loop, until what was read from is let go."""
        if self._pumping is not None:
            await asyncio.wait([self._pumping])

    async def _pump(self, source: Source[_T]) -> None:
        end = _End()
        try:
            await self._read(source)
        except asyncio.CancelledError:
            if self._end is not None:
                self._return_rest()
            raise
        except BaseException as error:  # the thread's, also if it is the end of the program
            end = _End(error)
        finally:
            if not self._portal.is_over:
                self._items.put(end)
            await source.aclose()

    async def _read(self, source: Source[_T]) -> None:
        count = size = 0
        async for item in source:
            self._items.put(item)
            count += 1
            if isinstance(item, Message):
                size += line_size(item)
            if count >= _AHEAD or size >= _AHEAD_BYTES:
                await self._wait_for_room()
                count = size = 0

    async def _wait_for_room(self) -> None:
        self._room.clear()
        # In this order: a thread that empties the box from now on will say so.
        self._is_full = True
        if not self._items.empty():
            await self._room.wait()
        self._is_full = False


# ---------------------------------------------------------------- the iterators


class Subscription(Generic[_T]):
    """An iterator over what comes, from the moment it was made.

    It ends when the session does. Leaving it early (``break``, ``close``, or just dropping it)
    ends the subscription; the session goes on. What a turn's has not read is for the next loop over
    that turn; what another has not read is let go.

    Up to 2048 items, or a mebibyte of messages, are read ahead for its thread; they no longer count
    as unread. Ctrl-C during the wait for the next item loses nothing.
    """

    def __init__(self, inbox: Inbox[_T]) -> None:
        self._inbox = inbox
        self._leave = weakref.finalize(self, inbox.close)
        self._leave.atexit = False

    def __iter__(self) -> Subscription[_T]:
        return self

    def __next__(self) -> _T:
        try:
            return self._inbox.get()
        except BaseException:
            del self  # or the traceback would hold it, and nobody else reads on
            raise

    def close(self) -> None:
        """End the subscription."""
        self._leave()

    def aclose(self) -> None:
        """End the subscription.

        The same as :meth:`close`.
        """
        self.close()

    def __enter__(self) -> Subscription[_T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TextPieces:
    """An iterator over the text of messages, each piece once."""

    def __init__(self, messages: Subscription[Message], stream: TextStream) -> None:
        self._messages = messages
        self._stream = stream

    def __iter__(self) -> TextPieces:
        return self

    def __next__(self) -> str:
        try:
            while not (text := self._stream.feed(next(self._messages))):
                pass
        except StopIteration:
            if not (text := self._stream.end()):
                raise
        except BaseException:
            del self  # as above
            raise
        return text

    def close(self) -> None:
        """End it."""
        self._messages.close()

    def aclose(self) -> None:
        """End it.

        The same as :meth:`close`.
        """
        self.close()


class QuerySource(Source[Message], Protocol):
    """The query behind a stream."""

    @property
    def warnings(self) -> tuple[SdkWarning, ...]:
        """What was survived."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id."""
        ...


class QueryStream:
    """The messages of a query, in order; an iterator and a context manager.

    Leaving it early (``break``, ``close``, leaving ``with``, or just dropping it) ends the CLI;
    ``close`` and ``with`` wait until it is gone.
    """

    def __init__(self, source: QuerySource, home: Portal, keep: object = None) -> None:
        self._source = source
        # The session as its tools get it, which the query itself does not hold.
        self._keep = keep
        self._inbox: Inbox[Message] = Inbox(home, "query", lambda _: source)
        self._messages = Subscription(self._inbox)
        self._portal = home

    @property
    def warnings(self) -> tuple[SdkWarning, ...]:
        """What Bridle survived so far, such as a CLI that failed after it had given its result."""
        return self._source.warnings

    @property
    def pid(self) -> int | None:
        """The CLI's process id, once there is one."""
        return self._source.pid

    def __iter__(self) -> QueryStream:
        return self

    def __next__(self) -> Message:
        try:
            return next(self._messages)
        except Exception:
            if self._inbox.is_over:  # then an error is told once
                self._messages.close()
            raise

    def close(self) -> None:
        """End the CLI, and let go of what was not read. Calling it again is fine."""
        self._messages.close()
        if not self._portal.is_over:
            self._portal.call("close", self._inbox.wait_closed)

    def aclose(self) -> None:
        """End the CLI, and let go of what was not read. Calling it again is fine.

        The same as :meth:`close`.
        """
        self.close()

    def __enter__(self) -> QueryStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
