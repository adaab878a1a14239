"""Our ends of the pipes of a process. Nothing here blocks.

The event loop holds these objects weakly: when a process object is dropped without being closed,
its pipes are dropped with it.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import IO, TypeVar

CHUNK = 1 << 16
"""Bytes of one read: the size of a default pipe. Larger reads gain nothing."""

_PIPE_LIMIT = 1 << 20
"""Bytes that a pipe can hold at most, without privileges."""

_HIGH_WATER = 1 << 16
_LOW_WATER = 1 << 14
"""Unsent bytes above which `InputPipe.drain` waits, and below which it returns."""

_LINE_LIMIT = 1 << 14
_TAIL_LIMIT = 1 << 16
"""Bytes of a line and of the tail of stderr."""


_T = TypeVar("_T")


def weakly(method: Callable[[_T], object], owner: _T) -> Callable[[], None]:
    """Return a method as a callback that does not keep its object alive."""
    reference = weakref.ref(owner)

    def call() -> None:
        alive = reference()
        if alive is not None:
            method(alive)

    return call


class OutputPipe:
    """The output of a process.

    One iteration of the event loop reads at most one chunk, so that other work gets its turn.
    ``on_data`` gets each chunk, ``on_end`` is called at the end of the output. ``on_closed`` is
    called whenever the descriptor was closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file: IO[bytes],
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._file = file
        self._on_data = on_data
        self._on_end = on_end
        self._on_closed = on_closed
        self._is_reading = False
        self._fd = file.fileno()
        os.set_blocking(self._fd, False)
        self.resume()

    def pause(self) -> None:
        """Stop reading. New data stays in the pipe."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._file.fileno())

    def resume(self) -> None:
        """Read again."""
        if not self._is_reading and not self._file.closed:
            self._is_reading = True
            self._loop.add_reader(self._file.fileno(), weakly(OutputPipe._read, self))

    def drain(self) -> None:
        """Read what is in the pipe at this moment, paused or not."""
        left = _PIPE_LIMIT  # a descendant of the process may be writing all the time
        while left > 0 and (size := self._read()):
            left -= size

    def close(self) -> None:
        """Close the pipe now, without calling ``on_end``."""
        self.pause()
        self._file.close()
        self._on_closed()

    def _read(self) -> int:
        if self._file.closed:
            return 0
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._on_data(data)
        else:
            self.close()
            self._on_end()
        return len(data)


class InputPipe:
    """The input of a process. Data that does not fit into the pipe waits here, in order.

    ``on_failed`` gets the reason if the process closes its input before `end` was called.
    ``on_closed`` is called whenever the descriptor was closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file: IO[bytes],
        on_failed: Callable[[str], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._file = file
        self._on_failed = on_failed
        self._on_closed = on_closed
        self._fd = file.fileno()
        self._unsent = bytearray()
        self._is_ending = False
        self._waiters: list[asyncio.Future[None]] = []
        os.set_blocking(self._fd, False)

    def write(self, data: bytes) -> None:
        """Send data after everything written before. Ignore it if the input has ended."""
        if self._is_ending or self._file.closed:
            return
        if self._unsent:
            self._unsent += data
            return
        sent = self._send(data)
        if sent < len(data) and not self._file.closed:
            self._unsent += memoryview(data)[sent:]
            self._loop.add_writer(self._file.fileno(), weakly(InputPipe._continue, self))

    async def drain(self) -> None:
        """If more than 64 KiB are unsent, wait for at most 16 KiB or until the pipe is closed."""
        if len(self._unsent) > _HIGH_WATER:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def end(self) -> None:
        """Close the pipe when everything is sent. Failures from now on are not reported."""
        self._is_ending = True
        if not self._unsent:
            self.close()

    def close(self) -> None:
        """Close the pipe now and drop what is unsent."""
        if self._unsent:
            self._unsent.clear()
            self._loop.remove_writer(self._file.fileno())
        self._file.close()
        self._wake()
        self._on_closed()

    def _continue(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        if len(self._unsent) <= _LOW_WATER:
            self._wake()
        if not self._unsent and not self._file.closed:
            self._loop.remove_writer(self._file.fileno())
            if self._is_ending:
                self.close()

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.close()
            if not self._is_ending:
                # Report it later, because the caller of `write` does not expect a callback now.
                self._loop.call_soon(self._on_failed, error.strerror or str(error))
            return 0

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class StderrLines:
    """The stderr of a process: each line for a callback, and the last 64 KiB.

    A line of more than 16 KiB is delivered in parts. Invalid UTF-8 becomes escape sequences.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._partial = b""
        self._tail = bytearray()
        self._is_cut = False

    @property
    def tail(self) -> str:
        """The last 64 KiB, beginning with a whole line if there is one."""
        tail = bytes(self._tail)
        if self._is_cut:
            tail = tail.partition(b"\n")[2] or tail
        return _text(tail)

    def feed(self, data: bytes) -> None:
        """Take data that the process wrote."""
        self._tail += data
        if len(self._tail) > _TAIL_LIMIT:
            self._is_cut = True
            del self._tail[:-_TAIL_LIMIT]
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._deliver(line.removesuffix(b"\r"))
        while len(self._partial) > _LINE_LIMIT:
            self._deliver(self._partial[:_LINE_LIMIT])
            self._partial = self._partial[_LINE_LIMIT:]

    def finish(self) -> None:
        """Deliver the last line, which has no line ending. No data follows."""
        line, self._partial = self._partial, b""
        if line:
            self._deliver(line)

    def _deliver(self, line: bytes) -> None:
        for start in range(0, len(line) or 1, _LINE_LIMIT):
            self._on_line(_text(line[start : start + _LINE_LIMIT]))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
