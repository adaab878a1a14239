"""The part of HTTP/1.1 that the CLI uses: requests with a body, complete and chunked responses.

A connection serves one request after the other. Pipelining is not supported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A complete request. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The request target without its query."""
        return self.target.partition("?")[0]

    @property
    def keeps_alive(self) -> bool:
        """True if the client wants to use the connection again."""
        return self.headers.get("connection", "").lower() != "close"


class MalformedRequest(Exception):
    """The client sent invalid or unsupported HTTP."""


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Return the next request; None if the client closed the connection between two requests."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise MalformedRequest("the connection was closed inside the headers") from None
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
        raise MalformedRequest(f"the body is invalid: {error}") from None
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
    """Answers one request: with `answer`, or with `begin`, `send`... and `end`, or with `drop`."""

    def __init__(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._wants_body = request.method != "HEAD"
        self.keeps_alive = request.keeps_alive
        """True if the connection can serve another request after this one."""

    @property
    def hung_up(self) -> bool:
        """True if the client closed the connection."""
        return self._reader.at_eof()

    async def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a complete response."""
        self._head(status, {**headers, "content-length": str(len(body))})
        self._writer.write(body if self._wants_body else b"")
        await self._writer.drain()

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begin a chunked response."""
        self._head(200, {**headers, "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def send(self, data: bytes) -> None:
        """Send a chunk. It must not be empty, because an empty chunk ends the response."""
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()

    async def end(self) -> None:
        """End the chunked response."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def drop(self) -> None:
        """Close the connection. Data sent so far still arrives."""
        self.keeps_alive = False

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        phrase = _PHRASES.get(status, "Error")  # the API uses status codes that are not standard
        ending = {} if self.keeps_alive else {"connection": "close"}
        lines = [f"{name}: {value}" for name, value in {**headers, **ending}.items()]
        text = "\r\n".join([f"HTTP/1.1 {status} {phrase}", *lines, "", ""])
        self._writer.write(text.encode("latin-1"))
