"""`Transport`, the replacement for the CLI process, and its adapter to the transport of Bridle."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from bridle._spi import TransportEvents
from bridle.compat.claude_agent_sdk._loops.bridge import Bridge

_GRACE = 5.0
"""Seconds that `close()` of a transport may take."""

_TIME_TO_LEAVE = 1.0
"""Seconds that the reader and the writer of a transport have to end before it is closed."""


class Transport(ABC):
    """The connection to the CLI. Subclass it to replace the process."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect. Called once, before everything else."""

    @abstractmethod
    async def write(self, data: str) -> None:
        """Send data: JSON objects, each followed by a newline."""

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over the JSON objects that the CLI sends."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection and release everything."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the transport can be used."""

    @abstractmethod
    async def end_input(self) -> None:
        """Close the input of the CLI."""


class AdaptedTransport:
    """Use a `Transport` as the process of a session: ``BidirOptions.transport_factory``.

    ``error`` is the exception with which ``connect`` or ``read_messages`` ended, if any.
    """

    def __init__(self, transport: Transport, bridge: Bridge) -> None:
        self._transport = transport
        self._bridge = bridge
        self._events: TransportEvents | None = None
        self._commands: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._is_gone = False
        self.error: BaseException | None = None

    def __call__(self, events: TransportEvents) -> AdaptedTransport:
        """Return the transport of a session that connects."""
        self._events = events
        self._reading = asyncio.ensure_future(self._read())
        self._writing = asyncio.ensure_future(self._write())
        return self

    async def _read(self) -> None:
        assert self._events is not None, "a session connects"
        exit_code: int | None = 0
        try:
            await self._bridge.callback(self._transport.connect)()
            self._connected.set()
            async for message in self._bridge.pull(self._transport.read_messages()):
                self._events.received(json.dumps(message).encode() + b"\n")
        except asyncio.CancelledError:
            exit_code = None
        except Exception as error:  # raised by the transport of the user
            self._failed(error)
            exit_code = getattr(error, "exit_code", None) or 1
        finally:
            self._leave(exit_code)

    def _leave(self, exit_code: int | None) -> None:
        """Report the end to the session, once."""
        if not self._is_gone and self._events is not None:
            self._is_gone = True
            self._events.output_ended()
            self._events.exited(exit_code)

    async def _write(self) -> None:
        assert self._events is not None, "a session connects"
        write = self._bridge.callback(self._transport.write)
        try:
            await self._connected.wait()
            while (data := await self._commands.get()) is not None:
                for line in data.splitlines(keepends=True):
                    await write(line.decode())
                self._commands.task_done()
            await self._bridge.callback(self._transport.end_input)()
        except Exception as error:  # raised by the transport of the user
            self._failed(error)
            self._events.input_failed(f"{type(error).__name__}: {error}")

    # -- the session's side

    @property
    def pid(self) -> int | None:
        """None, because the process is not known."""
        return None

    @property
    def stderr_tail(self) -> str:
        """Nothing, because stderr is not known."""
        return ""

    def write(self, data: bytes) -> None:
        """Send lines after those before."""
        self._commands.put_nowait(data)

    async def drain(self) -> None:
        """Return at once: the transport of the user has its own buffer."""

    def end_input(self) -> None:
        """Close the input after everything written has been sent."""
        self._commands.put_nowait(None)

    def pause_reading(self) -> None:
        """Do nothing: a transport of the user cannot be paused."""

    def resume_reading(self) -> None:
        """Do nothing: reading was not paused."""

    def terminate(self) -> None:
        """Stop reading and writing, and close the transport of the user."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())

    async def _close(self) -> None:
        """Close the transport of the user when nobody uses it any more.

        A read in a thread cannot be cancelled: it ends when the transport is closed.
        """
        if self._reading is not None and self._writing is not None:
            self._reading.cancel()
            written = asyncio.ensure_future(self._written(self._writing))
            await asyncio.wait([self._reading, written], timeout=_TIME_TO_LEAVE)
            written.cancel()
            self._writing.cancel()
            await asyncio.wait([self._writing], timeout=_TIME_TO_LEAVE)
        await self._bridge.callback(self._transport.close)()

    async def _written(self, writing: asyncio.Task[None]) -> None:
        """Wait until everything that was accepted is written, if that is possible."""
        if self._connected.is_set():
            rest = asyncio.ensure_future(self._commands.join())
            try:
                await asyncio.wait([rest, writing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                rest.cancel()

    def kill(self) -> None:
        """Do the same as `terminate`."""
        self.terminate()

    async def aclose(self) -> None:
        """Close the transport of the user."""
        self.terminate()
        tasks = (self._reading, self._writing, self._closing)
        await asyncio.wait([task for task in tasks if task is not None], timeout=_GRACE)

    def _failed(self, error: Exception) -> None:
        """Note the first error, unless the transport is being closed."""
        if self._closing is None:
            self.error = self.error or error
