"""Our ends of a process's pipes: pushed on as data comes, written without ever blocking.

The event loop holds these objects weakly. Whoever drops a process without closing it therefore
drops its pipes too, instead of leaving them to the loop for ever.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import IO, TypeVar

CHUNK = 1 << 16  # a default pipe in one read; larger reads gain nothing
_PIPE_LIMIT = 1 << 20  # as much as a pipe can hold without privileges
_HIGH_WATER = 1 << 16
_LOW_WATER = 1 << 14
_LINE_LIMIT = 1 << 14
_TAIL_LIMIT = 1 << 16


_T = TypeVar("_T")


def weakly(method: Callable[[_T], object], owner: _T) -> Callable[[], None]:
    """A method as a callback that does not keep its object alive."""
    reference = weakref.ref(owner)

    def call() -> None:
        alive = reference()
        if alive is not None:
            method(alive)

    return call


class OutputPipe:
    """What a process writes: one read at most for each turn of the loop, so none starves others."""

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
        """Leave what comes in the pipe."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._file.fileno())

    def resume(self) -> None:
        """Read what comes."""
        if not self._is_reading and not self._file.closed:
            self._is_reading = True
            self._loop.add_reader(self._file.fileno(), weakly(OutputPipe._read, self))

    def drain(self) -> None:
        """Read what is in the pipe at this moment, paused or not."""
        left = _PIPE_LIMIT  # somebody may be writing all the time
        while left > 0 and (size := self._read()):
            left -= size

    def close(self) -> None:
        """Receive nothing any more, not even the end."""
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
    """What a process reads. What its pipe does not take at once waits here, in order."""

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
        """Send, after all that was written before. Nothing happens when the input has ended."""
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
        """Wait until little is unsent, or the pipe is closed."""
        if len(self._unsent) > _HIGH_WATER:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def end(self) -> None:
        """Close the pipe when everything is sent. From now on a failure is nobody's business."""
        self._is_ending = True
        if not self._unsent:
            self.close()

    def close(self) -> None:
        """Close the pipe now."""
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
                # Later: whoever is writing need not expect to be called in the midst of it.
                self._loop.call_soon(self._on_failed, error.strerror or str(error))
            return 0

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class StderrLines:
    """What a process writes to stderr, as lines and as a tail of the last of them.

    A line that is too long comes in pieces. Bytes that are no text are shown as escapes.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._partial = b""
        self._tail = bytearray()
        self._is_cut = False

    @property
    def tail(self) -> str:
        """The last of what was written; it begins with a whole line where there is one."""
        tail = bytes(self._tail)
        if self._is_cut:
            tail = tail.partition(b"\n")[2] or tail
        return _text(tail)

    def feed(self, data: bytes) -> None:
        """Take what was written."""
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
        """Nothing more will come: what is there of the last line is a line."""
        line, self._partial = self._partial, b""
        if line:
            self._deliver(line)

    def _deliver(self, line: bytes) -> None:
        for start in range(0, len(line) or 1, _LINE_LIMIT):
            self._on_line(_text(line[start : start + _LINE_LIMIT]))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
