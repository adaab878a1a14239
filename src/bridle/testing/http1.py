"""As much of HTTP/1.1 as the CLI speaks to an API: requests with a body, answers whole or chunked.

A connection serves one request after the other. There is no pipelining: a client that sends the
next request before it has its answer is not one of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, whole. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants to use the connection again."""
        return self.headers.get("connection", "").lower() != "close"


class MalformedRequest(Exception):
    """What came is not HTTP as we know it."""


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request; None if the client has closed the connection between two."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise MalformedRequest("the connection ended within the headers") from None
        return None
    except asyncio.LimitOverrunError:
        raise MalformedRequest("the headers are too long") from None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise MalformedRequest(f"not a request line: {first!r}")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    try:
        body = await _read_body(reader, headers)
    except (ValueError, asyncio.IncompleteReadError) as error:
        raise MalformedRequest(f"the body is broken: {error}") from None
    return HttpRequest(method=words[0], target=words[1], headers=headers, body=body)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = bytearray()
    while size := int((await reader.readline()).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return bytes(body)


class Responder:
    """Answers one request: `answer`, or `begin`, `send`... and `end`, or `drop`."""

    def __init__(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._wants_body = request.method != "HEAD"
        self.keeps_alive = request.keeps_alive
        """Whether the connection can serve another request when this one is answered."""

    @property
    def hung_up(self) -> bool:
        """Whether the client is gone."""
        return self._reader.at_eof()

    async def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a whole answer."""
        self._head(status, {**headers, "content-length": str(len(body))})
        self._writer.write(body if self._wants_body else b"")
        await self._writer.drain()

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begin an answer whose length nobody knows yet."""
        self._head(200, {**headers, "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def send(self, data: bytes) -> None:
        """Send a piece of it; not an empty one, which would be the end."""
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()

    async def end(self) -> None:
        """End it."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def drop(self) -> None:
        """Hang up; what was sent so far still arrives."""
        self.keeps_alive = False

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        phrase = _PHRASES.get(status, "Error")  # the API has a status or two of its own
        ending = {} if self.keeps_alive else {"connection": "close"}
        lines = [f"{name}: {value}" for name, value in {**headers, **ending}.items()]
        text = "\r\n".join([f"HTTP/1.1 {status} {phrase}", *lines, "", ""])
        self._writer.write(text.encode("latin-1"))
