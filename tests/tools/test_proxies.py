"""The proxy that cuts a program off: a server does not see what was given up during a cut."""

from __future__ import annotations

import socket

from tests.support.proxies import Proxy


def test_a_server_sees_no_connection_that_was_given_up_during_a_cut() -> None:
    """Otherwise a program that tries again and again uses up the connections of the server."""
    server = socket.create_server(("127.0.0.1", 0))
    with server, Proxy(server.getsockname()[1]) as proxy:
        place = ("127.0.0.1", proxy.port)
        proxy.cut()
        for _ in range(3):
            socket.create_connection(place).close()
        with socket.create_connection(place, timeout=30.0) as client:
            proxy.restore()
            client.sendall(b"x")
            server.settimeout(30.0)
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1) == b"x"
