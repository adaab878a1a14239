"""A transport that a test controls, without a process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from bridle._spi import TransportEvents

JsonObject: TypeAlias = dict[str, Any]


class FakeTransport:
    """A transport without a process: ``BidirOptions(transport_factory=FakeTransport())``.

    :attr:`written` contains the lines that the session wrote. :meth:`say` sends lines as the CLI.
    The transport answers the handshake. Like a CLI, it exits when its input ends or when it is
    terminated. Use one transport for one session.

    Threads: all methods may be called from any thread once the session has begun to connect. Lines
    arrive in order, when the session's event loop runs next.

    Args:
        greets: True answers initialize; False leaves that to the test.
        server_info: The payload of the response to initialize.
    """

    def __init__(
        self, *, greets: bool = True, server_info: Mapping[str, object] | None = None
    ) -> None:
        self._greets = greets
        self._server_info = server_info or {}
        self._events: TransportEvents | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard = asyncio.Event()
        self._stderr: list[str] = []
        self._gone = False
        #: All lines that the session wrote, parsed as JSON.
        self.written: list[JsonObject] = []
        #: True once the session has closed the CLI's input.
        self.input_ended = False

    def __call__(self, events: TransportEvents) -> FakeTransport:
        """Return the transport. A session calls this when it connects."""
        if self._events is not None:
            raise RuntimeError("a FakeTransport serves one session: create another one")
        self._events = events
        self._loop = asyncio.get_running_loop()
        return self

    # -- the CLI's side

    def say(self, *lines: Mapping[str, object] | bytes) -> None:
        """Write lines to the CLI's output: objects as JSON, bytes unchanged."""
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self._soon(self._session.received, data)

    def say_stderr(self, line: str) -> None:
        """Write a line to the CLI's stderr."""
        self._stderr.append(line)
        self._soon(self._session.wrote_stderr, line)

    def answer(self, request_id: str, payload: Mapping[str, object] | None = None) -> None:
        """Answer a control request of the session with success and this payload."""
        response = {"subtype": "success", "request_id": request_id, "response": payload or {}}
        self.say({"type": "control_response", "response": response})

    def exit(self, exit_code: int | None = 0) -> None:
        """End the output and the process. A negative code means a signal."""
        if not self._gone:
            self._gone = True
            self._soon(self._session.output_ended)
            self._soon(self._session.exited, exit_code)

    async def wait_for_written(self, count: int) -> list[JsonObject]:
        """Wait until the session has written ``count`` lines, and return all lines.

        Call it on the session's event loop.
        """
        while len(self.written) < count:
            self._heard.clear()
            await self._heard.wait()
        return self.written

    @property
    def _session(self) -> TransportEvents:
        if self._events is None:
            raise RuntimeError("no session has begun to connect yet")
        return self._events

    def _soon(self, tell: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None, "the session sets it when it connects"
        self._loop.call_soon_threadsafe(tell, *arguments)

    # -- the session's side

    @property
    def pid(self) -> int | None:
        """None, because there is no process."""
        return None

    @property
    def stderr_tail(self) -> str:
        """All lines of stderr."""
        return "\n".join(self._stderr)

    def write(self, data: bytes) -> None:
        """Store what the session writes."""
        lines = [cast("JsonObject", json.loads(line)) for line in data.splitlines()]
        self.written += lines
        self._heard.set()
        for line in lines if self._greets else ():
            if line.get("request", {}).get("subtype") == "initialize":
                self.answer(line["request_id"], self._server_info)

    async def drain(self) -> None:
        """Return at once: the buffer is never full."""

    def end_input(self) -> None:
        """Exit, as a CLI does at the end of its input."""
        self.input_ended = True
        self.exit(0)

    def pause_reading(self) -> None:
        """Do nothing: the test controls the output."""

    def resume_reading(self) -> None:
        """Do nothing: the output was not paused."""

    def terminate(self) -> None:
        """Exit with 143, as a CLI does after SIGTERM."""
        self.exit(143)

    def kill(self) -> None:
        """Exit as after SIGKILL."""
        self.exit(-9)

    async def aclose(self) -> None:
        """Do nothing: there are no resources to release."""
        self._gone = True
