"""A transport in the hands of a test: no process, both sides of the pipe in one place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from bridle._shell.transport import TransportEvents

JsonObject: TypeAlias = dict[str, Any]


class FakeTransport:
    """Takes the place of the process: ``BidirOptions(transport_factory=FakeTransport())``.

    What the session writes is kept in :attr:`written`; what the CLI says, the test says with
    :meth:`say`. The handshake is answered, and the process is gone when its input ends or it is
    told to end, as with a CLI. One is good for one session.

    Threads: everything may be called from any thread once the session has begun to connect. What
    is said is heard in its order, when the session's event loop next runs.

    Args:
        greets: Whether initialize is answered; if not, that is for the test to do.
        server_info: What it is answered with.
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
        #: Every line the session wrote, read as JSON.
        self.written: list[JsonObject] = []
        #: The session has closed the CLI's input.
        self.input_ended = False

    def __call__(self, events: TransportEvents) -> FakeTransport:
        """The transport of a session, which calls this when it connects."""
        if self._events is not None:
            raise RuntimeError("a FakeTransport is good for one session; make another")
        self._events = events
        self._loop = asyncio.get_running_loop()
        return self

    # -- the CLI's side

    def say(self, *lines: Mapping[str, object] | bytes) -> None:
        """Write lines to the CLI's output: objects as JSON, bytes as they are."""
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self._soon(self._session.received, data)

    def say_stderr(self, line: str) -> None:
        """Write a line to the CLI's stderr."""
        self._stderr.append(line)
        self._soon(self._session.wrote_stderr, line)

    def answer(self, request_id: str, payload: Mapping[str, object] | None = None) -> None:
        """Answer a request of the session: success, with this payload."""
        response = {"subtype": "success", "request_id": request_id, "response": payload or {}}
        self.say({"type": "control_response", "response": response})

    def exit(self, exit_code: int | None = 0) -> None:
        """End the output and the process; negative for a signal."""
        if not self._gone:
            self._gone = True
            self._soon(self._session.output_ended)
            self._soon(self._session.exited, exit_code)

    async def wait_for_written(self, count: int) -> list[JsonObject]:
        """All that was written, once it is so many lines; on the session's event loop."""
        while len(self.written) < count:
            self._heard.clear()
            await self._heard.wait()
        return self.written

    @property
    def _session(self) -> TransportEvents:
        if self._events is None:
            raise RuntimeError("no session has begun to connect")
        return self._events

    def _soon(self, tell: Callable[..., None], *news: object) -> None:
        assert self._loop is not None, "it is known with the session"
        self._loop.call_soon_threadsafe(tell, *news)

    # -- the session's side

    @property
    def pid(self) -> int | None:
        """There is no process."""
        return None

    @property
    def stderr_tail(self) -> str:
        """All that was said on stderr."""
        return "\n".join(self._stderr)

    def write(self, data: bytes) -> None:
        """Keep what the session writes."""
        lines = [cast("JsonObject", json.loads(line)) for line in data.splitlines()]
        self.written += lines
        self._heard.set()
        for line in lines if self._greets else ():
            if line.get("request", {}).get("subtype") == "initialize":
                self.answer(line["request_id"], self._server_info)

    async def drain(self) -> None:
        """There is always room."""

    def end_input(self) -> None:
        """A CLI leaves at the end of its input."""
        self.input_ended = True
        self.exit(0)

    def pause_reading(self) -> None:
        """A test is not held up."""

    def resume_reading(self) -> None:
        """Nothing was held up."""

    def terminate(self) -> None:
        """A CLI that gets SIGTERM exits with 143."""
        self.exit(143)

    def kill(self) -> None:
        """End it as SIGKILL would."""
        self.exit(-9)

    async def aclose(self) -> None:
        """Nothing is left to release."""
        self._gone = True
