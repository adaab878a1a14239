"""A TCP proxy in a thread that can stop forwarding, as a network does that is cut."""

from __future__ import annotations

import contextlib
import select
import socket
import threading


class Proxy:
    """Forwards connections to a port of this machine.

    A cut keeps all connections open and takes new ones, but no byte arrives. The server does not
    see those that were given up before the end of the cut.
    """

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._target = port
        self._listener = socket.create_server((address, 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_cut = threading.Event()
        self._is_closed = threading.Event()
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Forward nothing any more."""
        self._is_cut.set()

    def restore(self) -> None:
        """Forward again."""
        self._is_cut.clear()

    def close(self) -> None:
        """End all connections."""
        self._is_closed.set()
        for one in self._sockets:
            one.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client:
            while self._is_cut.is_set() and not self._is_closed.wait(0.1):
                pass
            if self._is_closed.is_set() or _is_given_up(client):
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets.append(server)
            with server:
                self._copy(client, server)

    def _copy(self, client: socket.socket, server: socket.socket) -> None:
        while not self._is_closed.is_set():
            ready, _, _ = select.select([client, server], [], [], 0.1)
            if self._is_cut.is_set():
                self._is_closed.wait(0.1)
                continue
            for one in ready:
                data = one.recv(1 << 16)
                if not data:
                    return
                (server if one is client else client).sendall(data)


def _is_given_up(client: socket.socket) -> bool:
    """Return whether the other end of a connection has been closed. Read nothing."""
    poll = select.poll()
    poll.register(client, select.POLLRDHUP)
    return bool(poll.poll(0))
