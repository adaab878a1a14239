"""A server on loopback with a thread and a loop of its own.

Whoever uses it may be blocking, on any event loop, or both in turn: nothing here depends on the
caller's loop, and a caller that blocks does not keep the server from answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from bridle.testing.http1 import HttpRequest, MalformedRequest, Responder, read_request

Handler = Callable[[HttpRequest, Responder], Awaitable[None]]

_HOST = "127.0.0.1"
_LONGEST_HEAD = 1 << 16


class LoopbackServer:
    """Serves HTTP on a free port, from `start` to `stop`. Once."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[asyncio.Task[None]] = set()
        self._listening: Future[int] = Future()
        self._ended: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # A daemon: a test that never leaves its `with` must not keep the interpreter alive.
        self._thread = threading.Thread(target=self._run, name="bridle-model", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens. Valid once started."""
        return f"http://{_HOST}:{self._listening.result(timeout=0)}"

    def start(self) -> Future[int]:
        """Begin; the future has the port once there is one."""
        self._thread.start()
        return self._listening

    def stop(self) -> Future[None]:
        """Hang up on everyone; the future is done when nothing is left. May be called again."""
        self._listening.add_done_callback(self._tell_to_stop)  # at once, if it listens
        return self._ended

    def join(self) -> None:
        """Block until the thread is gone; after `stop`."""
        self._thread.join()

    def _tell_to_stop(self, _: Future[int]) -> None:
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._stopping.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if not self._listening.done():
                self._listening.set_exception(error)
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._accept, _HOST, 0, limit=_LONGEST_HEAD)
        self._listening.set_result(server.sockets[0].getsockname()[1])
        await self._stopping.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await read_request(reader)) is not None:
                responder = Responder(request, reader, writer)
                await self._handler(request, responder)
                if not responder.keeps_alive:
                    break
            writer.close()
            await writer.wait_closed()
        except MalformedRequest as error:
            text = str(error).encode("latin-1", "replace")
            writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n" + text)
            writer.close()
        except ConnectionError:
            pass  # the client hung up: its right
        finally:
            if not writer.is_closing():
                writer.transport.abort()
