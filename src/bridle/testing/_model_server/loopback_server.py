"""An HTTP server on loopback that runs an event loop in its own thread.

It does not depend on an event loop of the caller. Blocking code can use it, because the server
answers while the caller blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from bridle.testing._model_server.http1 import (
    HttpRequest,
    MalformedRequest,
    Responder,
    read_request,
)

Handler = Callable[[HttpRequest, Responder], Awaitable[None]]

_HOST = "127.0.0.1"
_LONGEST_HEAD = 1 << 16


class LoopbackServer:
    """Serves HTTP on a free port, from `start` to `stop`. It cannot be restarted."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[asyncio.Task[None]] = set()
        self._listening: Future[int] = Future()
        self._ended: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # A daemon thread, so that a test that never leaves its `with` does not keep Python running.
        self._thread = threading.Thread(target=self._run, name="bridle-model", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the server. Valid once it has started."""
        return f"http://{_HOST}:{self._listening.result(timeout=0)}"

    def start(self) -> Future[int]:
        """Start the server. The result of the future is the port."""
        self._thread.start()
        return self._listening

    def stop(self) -> Future[None]:
        """Close all connections and stop. The future is done at the end. May be called again."""
        self._listening.add_done_callback(self._tell_to_stop)  # runs at once if it listens already
        return self._ended

    def join(self) -> None:
        """Block until the thread has ended. Call `stop` first."""
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
            pass  # the client closed the connection
        finally:
            if not writer.is_closing():
                writer.transport.abort()
