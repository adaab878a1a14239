"""Wire traffic on file: recording a session's, reading it back, playing it again.

A recording has one JSON object per line: ``t`` (seconds since the start), ``dir`` (``in`` to the
CLI, ``out`` from it, ``err`` its stderr, ``meta`` about the process) and ``line``. The ``meta``
lines that count are ``{"stdin": "EOF"}`` and ``{"exit": code}``; others inform. Secrets never
reach the file.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast

import msgspec

from bridle._shell.transport import Transport, TransportEvents, TransportFactory

Direction: TypeAlias = Literal["in", "out", "err", "meta"]
JsonObject: TypeAlias = dict[str, object]

END_OF_INPUT = {"stdin": "EOF"}
MASK = "***"

_SECRET_NAME = re.compile(
    r"(api[-_]?key|authorization|cookie|password|secret|(access|auth|oauth|refresh)[-_]?token"
    r"|(?<![a-z])token|private[-_]?key)$",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"\bsk-[\w-]{8,}|(?<=bearer )[^\s\"\\]+|(?<=authorization: )[^\r\n\"\\]+"
    r"|(?<=api-key: )[^\s\"\\]+|(?<=://)[^/\s:@\"]+:[^/\s@\"]+(?=@)",
    re.IGNORECASE,
)
_SECRET_BAGS = frozenset({"env", "headers"})


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a recording."""

    t: float
    direction: Direction = msgspec.field(name="dir")
    line: str
    #: The line was cut off before its end.
    partial: bool = False
    #: So many lines of this kind came at once; this is the first.
    times: int = 1

    @property
    def data(self) -> bytes:
        """The bytes that were on the wire."""
        ending = b"" if self.partial else b"\n"
        return self.line.encode("utf-8", "surrogateescape") + ending

    @property
    def value(self) -> object:
        """The line as JSON; None if it is none."""
        try:
            return cast("object", json.loads(self.line))
        except ValueError:
            return None

    @property
    def members(self) -> JsonObject:
        """The line as a JSON object; empty if it is none."""
        value = self.value
        return cast("JsonObject", value) if isinstance(value, dict) else {}


def read_recording(path: str | PathLike[str]) -> list[Entry]:
    """All entries of a recording, in order; without a last one that a crash cut off.

    Raises:
        ValueError: A line is no entry.
    """
    *lines, _unfinished = Path(path).read_bytes().split(b"\n")
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(msgspec.convert(json.loads(line), Entry))
        except ValueError as problem:
            raise ValueError(f"{path}, line {number}: {problem}") from None
    return entries


# ------------------------------------------------------------------------- secrets


class Redactor:
    """Masks secrets: what looks like one, what is kept where secrets are, and any given string."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._given = sorted({secret for secret in secrets if secret}, key=len, reverse=True)

    def line(self, line: str) -> str:
        """A line without its secrets; itself, byte for byte, if it has none."""
        if line.lstrip().startswith("{"):
            try:
                value = cast("object", json.loads(line))
            except ValueError:
                return self._text(line)
            clean = self._value(value)
            if clean != value:
                return json.dumps(clean, ensure_ascii=False, separators=(",", ":"))
            return line
        return self._text(line)

    def _text(self, text: str) -> str:
        for secret in self._given:
            text = text.replace(secret, MASK)
        return _SECRET_TEXT.sub(MASK, text)

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.line(value)
        if isinstance(value, list):
            return [self._value(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            members = cast("JsonObject", value)
            return {name: self._member(name, part) for name, part in members.items()}
        return value

    def _member(self, name: str, value: object) -> object:
        if name.lower() in _SECRET_BAGS and isinstance(value, dict):
            return dict.fromkeys(cast("JsonObject", value), MASK)
        if isinstance(value, str) and _SECRET_NAME.search(name):
            return MASK
        return self._value(value)


# ------------------------------------------------------------------------- recording


class Recorder:
    """Writes a recording. :meth:`observe` takes whatever passes, in pieces of any size.

    Args:
        target: A path, or a binary file that stays open when the recorder is closed.
        secrets: Strings to mask wherever they occur, beside what looks like a secret.
    """

    def __init__(
        self, target: str | PathLike[str] | BinaryIO, *, secrets: Iterable[str] = ()
    ) -> None:
        self._owns = isinstance(target, str | PathLike)
        self._file = _private(target) if isinstance(target, str | PathLike) else target
        self._redactor = Redactor(secrets)
        self._started = time.monotonic()
        self._unfinished: dict[Direction, bytes] = {}

    def observe(self, direction: Direction, data: bytes) -> None:
        """These bytes passed. A line is written once it is whole."""
        *lines, rest = (self._unfinished.pop(direction, b"") + data).split(b"\n")
        for line in lines:
            self._write(direction, line)
        if rest:
            self._unfinished[direction] = rest

    def note(self, facts: Mapping[str, object]) -> None:
        """Something about the process."""
        self._write("meta", json.dumps(facts).encode())

    def close(self) -> None:
        """Write what is unfinished, and let go of the file. May be called again."""
        for direction, line in self._unfinished.items():
            self._write(direction, line, partial=True)
        self._unfinished.clear()
        if self._owns:
            self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wrap(self, factory: TransportFactory) -> TransportFactory:
        """A factory whose transports are recorded: everything both ways, the end included."""
        return lambda events: _Recorded(factory, events, self)

    def _write(self, direction: Direction, line: bytes, *, partial: bool = False) -> None:
        text = self._redactor.line(line.decode("utf-8", "surrogateescape"))
        at = round(time.monotonic() - self._started, 4)
        entry: JsonObject = {"t": at, "dir": direction, "line": text}
        if partial:
            entry["partial"] = True
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()


def _private(path: str | PathLike[str]) -> BinaryIO:
    """A new file that nobody else may read: it holds what was said."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


class _Recorded:
    """A transport and its events, with a recorder between them and the session."""

    def __init__(
        self, factory: TransportFactory, events: TransportEvents, recorder: Recorder
    ) -> None:
        self._events = events
        self._recorder = recorder
        self._transport: Transport = factory(self)

    # -- what the transport tells

    def received(self, data: bytes) -> None:
        self._recorder.observe("out", data)
        self._events.received(data)

    def output_ended(self) -> None:
        self._events.output_ended()

    def wrote_stderr(self, line: str) -> None:
        self._recorder.observe("err", line.encode("utf-8", "surrogateescape") + b"\n")
        self._events.wrote_stderr(line)

    def exited(self, exit_code: int | None) -> None:
        self._recorder.note({"exit": exit_code})
        self._events.exited(exit_code)

    def input_failed(self, reason: str) -> None:
        self._recorder.note({"input_failed": reason})
        self._events.input_failed(reason)

    # -- what the session does

    @property
    def pid(self) -> int | None:
        return self._transport.pid

    @property
    def stderr_tail(self) -> str:
        return self._transport.stderr_tail

    def write(self, data: bytes) -> None:
        self._recorder.observe("in", data)
        self._transport.write(data)

    async def drain(self) -> None:
        await self._transport.drain()

    def end_input(self) -> None:
        self._recorder.note(END_OF_INPUT)
        self._transport.end_input()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def terminate(self) -> None:
        self._recorder.note({"signal": "SIGTERM"})
        self._transport.terminate()

    def kill(self) -> None:
        self._recorder.note({"signal": "SIGKILL"})
        self._transport.kill()

    async def aclose(self) -> None:
        await self._transport.aclose()
