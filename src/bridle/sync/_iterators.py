"""Blocking iterators: items that arrive on the event loop, for a thread.

Every iterator has an :class:`Inbox`, which a task on the loop fills. Dropping an iterator never
waits, because it can happen at any time, also during garbage collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.delivery.turn_events import TurnTranslator
from bridle._records.raw_line import line_size
from bridle._runtime.stored_errors import to_raise
from bridle.events import SdkWarning, TurnEvent
from bridle.messages import Message
from bridle.outcomes import Outcome
from bridle.sync._portal import Portal, nothing

_AHEAD = 2048
"""Maximum number of items to read ahead for a thread."""

_AHEAD_BYTES = 1 << 20
"""Maximum bytes of messages to read ahead. The last message may exceed it."""

_T = TypeVar("_T")


def drop(_: object) -> None:
    """Discard the value."""


_Item = TypeVar("_Item", covariant=True)


class Source(Protocol[_Item]):
    """An async iterator with ``aclose``, from which an :class:`Inbox` reads."""

    def __aiter__(self) -> AsyncIterator[_Item]: ...
    def __anext__(self) -> Coroutine[Any, Any, _Item]: ...
    def aclose(self) -> Coroutine[Any, Any, None]: ...


class _End:
    """The end marker after the last item. ``error`` is the failure, or None."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def take_error(self) -> BaseException | None:
        """Return the exception to raise, or None."""
        error = self.error
        if error is None:
            return None
        raised = to_raise(error)
        if raised is error:
            self.error = None  # its traceback will refer to the reader
        return raised


class Inbox(Generic[_T]):
    """Items of an async iterator, for a thread.

    A task on the loop reads ahead, so that a slow thread gets the next item without waiting for the
    loop. At the limit it pauses until the thread has taken all items. Further items stay in the
    source, and count as unread there.
    """

    def __init__(
        self,
        home: Portal,
        operation: str,
        make: Callable[[Inbox[_T]], Source[_T]],
        give_up: Callable[[], None] = nothing,
        give_back: Callable[[list[_T]], None] = drop,
        ahead: int = _AHEAD,
    ) -> None:
        """Start to read from a source.

        Args:
            make: returns the source. Called on the loop, with this inbox.
            give_up: called when an exception such as Ctrl-C ends a wait.
            give_back: called on the loop with the items that were read ahead but not taken.
            ahead: maximum number of items to read ahead.

        Raises the errors of ``Portal.call``.
        """
        self._portal = home
        self._operation = operation
        self._give_up = give_up
        self._give_back = give_back
        self._ahead = ahead
        self._items: SimpleQueue[_T | _End] = SimpleQueue()
        # Items that were taken when a signal handler raised. `get` returns them next.
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
        """Return True after the end was reported, or after `close`."""
        return self._end is not None

    def get(self) -> _T:
        """Wait for the next item and return it. An exception such as Ctrl-C loses no item.

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
                    # In C code only, so that no signal handler runs between taking and storing it.
                    taken.extend(map(self._items.get, (True,)))
                item: Any = taken[0]
                is_end = isinstance(item, _End)
            except BaseException:
                self._kept = taken + self._kept
                self._give_up()
                raise
            if not is_end:
                return item  # type: ignore[no-any-return]  # cast() is a call; a handler could run
            self._end = item
            self._items.put(item)  # another thread may be waiting too
        error = self._end.take_error()
        try:
            raise StopIteration if error is None else error
        finally:
            del error  # breaks the cycle of exception and traceback

    def close(self) -> None:
        """Give back the untaken items. Never waits, and may be called at any time."""
        self._end = _End()
        self._portal.post(self._stop)

    def give_way(self, error: BaseException) -> None:
        """End with `error`, and give back the items for a new reader. Runs on the loop."""
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
        self._items.put(self._end or _End())  # for other waiting threads

    def wait_closed(self) -> None:
        """Wait after `close` until the source is closed."""
        if not self._portal.is_over:
            self._portal.call("close", self._wait_closed)

    async def _wait_closed(self) -> None:
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
        except BaseException as error:  # passed to the thread, also SystemExit
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
            if count >= self._ahead or size >= _AHEAD_BYTES:
                await self._wait_for_room()
                count = size = 0

    async def _wait_for_room(self) -> None:
        self._room.clear()
        # Set this before the check: a thread that empties the queue after it will set `_room`.
        self._is_full = True
        if not self._items.empty():
            await self._room.wait()
        self._is_full = False


# ---------------------------------------------------------------- the iterators


class Subscription(Generic[_T]):
    """An iterator over the items that arrive after it was created.

    It ends when the session ends. To end it earlier, leave the loop, call ``close``, or drop the
    object; the session continues. The unread messages of a turn are kept for the next loop over
    that turn. Other unread items are discarded.

    Bridle reads up to 2048 items, or 1 MiB of messages, ahead for the thread. These no longer count
    as unread. Ctrl-C during the wait for the next item loses no item.
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
            del self  # or the traceback keeps the subscription alive, and it is not closed
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

    def __exit__(self, *_: object) -> None:
        self.close()


class RunOutcomes(Subscription[_T]):
    """The outcomes of a ``run_many``. ``close`` and ``with`` wait until its CLIs have exited."""

    def close(self) -> None:
        """End the runs in progress, and wait until their CLIs have exited."""
        super().close()
        self._inbox.wait_closed()


class TextPieces:
    """An iterator over the text of messages, without repetitions."""

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
        """End the subscription to the messages."""
        self._messages.close()

    def aclose(self) -> None:
        """End the subscription to the messages.

        The same as :meth:`close`.
        """
        self.close()


class TurnEvents:
    """An iterator over the events of a turn. The last event is `TurnEnded`.

    To end it earlier, leave the loop, call ``close``, or drop the object; the turn continues. The
    unread events are kept for the next loop over the events of that turn. Ctrl-C during the wait
    for the next event loses no event.
    """

    def __init__(
        self,
        messages: Subscription[Message],
        translator: TurnTranslator,
        outcome: Callable[[], Outcome[Any] | None],
    ) -> None:
        self._messages = messages
        self._translator = translator
        self._outcome = outcome
        self._has_ended = False

    def __iter__(self) -> TurnEvents:
        return self

    def __next__(self) -> TurnEvent:
        translator = self._translator
        try:
            while not translator.ready and not self._has_ended:
                translator.feed(next(self._messages))
        except StopIteration:
            outcome = self._outcome()
            self._has_ended = True
            if outcome is not None:  # None after close()
                translator.end(outcome)
        except BaseException:
            del self  # as above
            raise
        if not translator.ready:
            raise StopIteration
        return translator.ready.popleft()

    def close(self) -> None:
        """End the subscription to the messages."""
        self._messages.close()

    def aclose(self) -> None:
        """End the subscription to the messages.

        The same as :meth:`close`.
        """
        self.close()

    def __enter__(self) -> TurnEvents:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class QuerySource(Source[Message], Protocol):
    """The query behind a stream."""

    @property
    def warnings(self) -> tuple[SdkWarning, ...]:
        """Return the warnings so far."""
        ...

    @property
    def pid(self) -> int | None:
        """Return the process id."""
        ...


class QueryStream:
    """The messages of a query, in order: an iterator and a context manager.

    Leaving the loop early, ``close``, the end of ``with``, or dropping the stream ends the CLI.
    ``close`` and ``with`` wait until it has exited.
    """

    def __init__(self, source: QuerySource, home: Portal, keep: object = None) -> None:
        self._source = source
        # The session object that tools get. The query has only a weak reference to it.
        self._keep = keep
        self._inbox: Inbox[Message] = Inbox(home, "query", lambda _: source)
        self._messages = Subscription(self._inbox)

    @property
    def warnings(self) -> tuple[SdkWarning, ...]:
        """Return the warnings so far, such as a CLI that failed after it sent its result."""
        return self._source.warnings

    @property
    def pid(self) -> int | None:
        """Return the process id of the CLI, or None if it was not started."""
        return self._source.pid

    def __iter__(self) -> QueryStream:
        return self

    def __next__(self) -> Message:
        try:
            return next(self._messages)
        except Exception:
            if self._inbox.is_over:  # raise an error only once
                self._messages.close()
            raise

    def close(self) -> None:
        """End the CLI and discard unread messages. You can call it more than once."""
        self._messages.close()
        self._inbox.wait_closed()

    def aclose(self) -> None:
        """End the CLI and discard unread messages. You can call it more than once.

        The same as :meth:`close`.
        """
        self.close()

    def __enter__(self) -> QueryStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
