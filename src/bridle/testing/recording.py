"""Record the lines between a session or query and its CLI in a file, and read such a file.

A recording has one JSON object per line, with ``t`` (seconds since the start), ``dir`` (``in`` to
the CLI, ``out`` from the CLI, ``err`` its stderr, ``meta`` about the process) and ``line``. A
replay uses the ``meta`` lines ``{"stdin": "EOF"}`` and ``{"exit": code}``. Other ``meta`` lines are
for information.

To record, pass a recorder to a session or query::

    recorder = Recorder("session.ndjson")
    async with bridle.start_session(sdk=bridle.SdkOptions(recorder=recorder)) as session:
        ...

If several sessions share a recorder, each gets its own file. Secrets that the session knows, and
values that look like secrets, are masked (`bridle.errors._redaction`). Prompts, answers and tool
outputs are recorded unchanged, so read a recording before you share it. If writing fails, the
recorder logs one warning and stops. The session continues.
"""

from __future__ import annotations

import json
import logging
import math
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import BinaryIO, Literal, TypeAlias, cast

import msgspec

from bridle._spi import Transport, TransportEvents, TransportFactory
from bridle.errors import BridleError, OptionsError
from bridle.messages import JsonObject
from bridle.testing._lines.line_redaction import LineRedactor

__all__ = [
    "Direction",
    "Entry",
    "Recorder",
    "Recording",
    "RecordingError",
    "read_recording",
]

Direction: TypeAlias = Literal["in", "out", "err", "meta"]

_DIRECTIONS: tuple[Direction, ...] = ("in", "out", "err", "meta")

END_OF_INPUT = {"stdin": "EOF"}

log = logging.getLogger("bridle.recording")

_LONGEST = 64 << 20
"""How many bytes of an unfinished line are kept in memory. A longer line is written in parts."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a recording."""

    t: float
    direction: Direction = msgspec.field(name="dir")
    line: str
    #: True if the end of the line is missing.
    partial: bool = False
    #: The number of similar lines that arrived together. This is the first of them.
    times: int = 1

    @property
    def data(self) -> bytes:
        """The bytes of the line, as sent or received."""
        ending = b"" if self.partial else b"\n"
        return self.line.encode("utf-8", "surrogateescape") + ending

    @property
    def value(self) -> object:
        """The line parsed as JSON; None if it is not JSON."""
        try:
            return cast("object", json.loads(self.line))
        except (ValueError, RecursionError):
            return None

    @property
    def members(self) -> JsonObject:
        """The line as a JSON object; empty if it is not an object."""
        value = self.value
        return cast("JsonObject", value) if isinstance(value, dict) else {}


# ------------------------------------------------------------------------- reading


class RecordingError(BridleError, ValueError):
    """A file is not a valid recording. ``line`` is the number of the invalid line, if known."""

    def __init__(self, path: str, line: int | None, problem: str) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(
            f"{where}: {problem}",
            fix="Each line of a recording must be a JSON object with t, dir and line.",
        )
        self.path = path
        self.line = line
        self.problem = problem


class Recording(list[Entry]):
    """The entries of a recording, in order."""

    def __init__(self, entries: Iterable[Entry] = (), *, cut_off: int | None = None) -> None:
        super().__init__(entries)
        #: The number of an incomplete last line, as left by a crash. The line is left out.
        self.cut_off = cut_off

    @property
    def is_complete(self) -> bool:
        """True if the recording contains the end of the process."""
        return any(one.direction == "meta" and "exit" in one.members for one in self[-20:])

    @property
    def gap(self) -> str:
        """A description of what is missing at the end; empty if nothing is missing."""
        if self.cut_off is not None:
            return f"line {self.cut_off} was cut off, and the end of the session is missing"
        return "" if self.is_complete else "the end of the session is missing"


def read_recording(path: str | PathLike[str]) -> Recording:
    """Return all entries of a recording, in order, without an incomplete last line.

    Raises:
        RecordingError: the file cannot be read, a line is not an entry, or the time goes back.
    """
    name = os.fspath(path)
    try:
        *lines, rest = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise RecordingError(name, None, f"cannot be read: {error.strerror}") from error
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = msgspec.convert(json.loads(line.decode()), Entry)
        except (ValueError, RecursionError) as problem:
            raise RecordingError(
                name, number, f"is not an entry of a recording: {problem}"
            ) from None
        if not math.isfinite(entry.t) or (entries and entry.t < entries[-1].t):
            what = "the time goes back. The file may contain two recordings"
            raise RecordingError(name, number, what)
        if entry.direction == "meta" and type(entry.members.get("exit")) not in (int, NoneType):
            raise RecordingError(name, number, "the exit code is not a number")
        entries.append(entry)
    return Recording(entries, cut_off=len(lines) + 1 if rest else None)


# ------------------------------------------------------------------------- recording


class Recorder:
    """Write recordings of sessions and queries, one file for each.

    Pass it as ``SdkOptions.recorder``, or :meth:`wrap` your own transport factory. The first
    session is written to ``target``, each further session to a file with a number:
    ``session.ndjson``, ``session-2.ndjson``. A file is closed when its session is over.

    Args:
        target: A path, or an open binary file. A binary file takes one session and is not closed.
        secrets: Additional strings to mask.
    """

    def __init__(
        self, target: str | PathLike[str] | BinaryIO, *, secrets: Iterable[str] = ()
    ) -> None:
        self._path = Path(target) if isinstance(target, str | PathLike) else None
        self._secrets = [*secrets]
        # observe() can be called without a session, so the first file is opened now.
        self._files = [_RecordingFile(target, self._secrets)]
        self._unopened: OSError | None = None
        self._lock = threading.Lock()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the files, in the order of the sessions; empty for a binary file."""
        return tuple(file.path for file in self._files if file.path is not None)

    @property
    def written(self) -> dict[Direction, int]:
        """The number of written entries, by direction."""
        return {way: sum(file.written[way] for file in self._files) for way in _DIRECTIONS}

    @property
    def masked(self) -> Mapping[str, int]:
        """The number of masked secrets, by how they were found: ``value``, ``name``, ``look``."""
        total: Counter[str] = Counter()
        for file in self._files:
            total.update(file.masked)
        return total

    @property
    def failure(self) -> Exception | None:
        """The exception that stopped the recording, or None."""
        failures = (file.failure for file in self._files if file.failure is not None)
        return next(failures, self._unopened)

    def observe(self, direction: Direction, data: bytes) -> None:
        """Record bytes in one direction. They may be parts of lines. Complete lines are written."""
        self._files[0].observe(direction, data)

    def note(self, facts: Mapping[str, object]) -> None:
        """Record facts about the process."""
        self._files[0].note(facts)

    def close(self) -> None:
        """Write unfinished lines and close the files. May be called again."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wrap(
        self,
        factory: TransportFactory,
        *,
        secrets: Iterable[str] = (),
        about: Mapping[str, object] | None = None,
    ) -> TransportFactory:
        """Return a transport factory that records both directions and the end of the process.

        Args:
            secrets: Additional strings to mask.
            about: Facts to record first.

        Raises:
            OptionsError: the recorder writes to a binary file that has a session already.
        """
        try:
            with self._lock:
                file = self._free_file()
                file.begin([*self._secrets, *secrets])
        except OSError as problem:
            self._unopened = problem
            log.warning("The session continues without a recording: %s", problem.strerror)
            return factory
        if about is not None:
            place = {"cwd": about.get("cwd") or os.getcwd()} if "cwd" in about else {}
            started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            file.note({"started": started, **about, **place})
        return lambda events: _Recorded(factory, events, file)

    def _free_file(self) -> _RecordingFile:
        """Return a file without a session: a new one, or the file of a failed start."""
        for file in self._files:
            if file.is_free:
                return file
        if self._path is None or (self._path.exists() and not self._path.is_file()):
            fix = "Pass a path to the recorder, or create a recorder for each session."
            raise OptionsError(
                "recorder", "writes to a file object that already contains a session", fix=fix
            )
        number = len(self._files) + 1
        path = self._path.with_name(f"{self._path.stem}-{number}{self._path.suffix}")
        self._files.append(_RecordingFile(path, self._secrets))
        return self._files[-1]


class _RecordingFile:
    """The file of one session."""

    def __init__(self, target: str | PathLike[str] | BinaryIO, secrets: Iterable[str]) -> None:
        self.path = Path(target) if isinstance(target, str | PathLike) else None
        self._file = open_private(target) if isinstance(target, str | PathLike) else target
        self._redactor = LineRedactor(secrets)
        self._started = time.monotonic()
        self._unfinished: dict[Direction, bytearray] = {}
        self._is_taken = False
        self._is_closed = False
        self.written: dict[Direction, int] = dict.fromkeys(_DIRECTIONS, 0)
        self.failure: Exception | None = None

    @property
    def masked(self) -> Mapping[str, int]:
        return self._redactor.masked

    @property
    def is_free(self) -> bool:
        """True if no session uses the file, or its CLI never wrote anything."""
        if self._is_closed:
            return self.path is not None and not self.written["out"]
        return not self._is_taken and not self.written["out"]

    def begin(self, secrets: Iterable[str]) -> None:
        """Use the file for a session."""
        if self._is_closed and self.path is not None:  # overwrite the recording of a failed start
            self._file, self._is_closed = open_private(self.path), False
            self.written = dict.fromkeys(_DIRECTIONS, 0)
        self._is_taken = True
        self._redactor = LineRedactor(secrets)
        self._started = time.monotonic()

    def observe(self, direction: Direction, data: bytes) -> None:
        if self.failure is None and not self._is_closed:
            try:
                self._take(direction, data)
            except Exception as problem:  # a failed recording must not end the session
                self._give_up(problem)

    def note(self, facts: Mapping[str, object]) -> None:
        self.observe("meta", json.dumps(facts, default=repr).encode() + b"\n")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for direction, line in self._unfinished.items():
                if line:
                    self._write(direction, line, partial=True)
        except Exception as problem:
            self._give_up(problem)
        try:
            if self.path is not None:
                self._file.close()
        except Exception as problem:
            self._give_up(problem)

    def _take(self, direction: Direction, data: bytes) -> None:
        unfinished = self._unfinished.setdefault(direction, bytearray())
        unfinished += data
        if b"\n" in data:
            *lines, rest = unfinished.split(b"\n")
            for line in lines:
                self._write(direction, line)
            self._unfinished[direction] = rest
        elif len(unfinished) > _LONGEST:
            self._write(direction, unfinished, partial=True)
            self._unfinished[direction] = bytearray()

    def _write(self, direction: Direction, line: bytearray, *, partial: bool = False) -> None:
        text = self._redactor.line(line.decode("utf-8", "surrogateescape"))
        at = round(time.monotonic() - self._started, 4)
        entry: JsonObject = {"t": at, "dir": direction, "line": text}
        if partial:
            entry["partial"] = True
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        self.written[direction] += 1

    def _give_up(self, problem: Exception) -> None:
        if self.failure is not None:
            return
        self.failure = problem
        # The message of other exceptions may contain the line. That of an OSError does not.
        reason = problem.strerror if isinstance(problem, OSError) else type(problem).__name__
        log.warning("The recording was stopped, the session continues: %s", reason)
        self._unfinished.clear()


def open_private(path: str | PathLike[str], *, overwrite: bool = True) -> BinaryIO:
    """Open an empty file that only its owner can read, even if it existed before.

    Raises:
        OSError: the file cannot be opened. Its content is unchanged.
    """
    new = 0 if overwrite else os.O_EXCL
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | new, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # do not change a pipe or a device
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "wb")


class _Recorded:
    """A transport that records everything between the session and another transport."""

    def __init__(
        self, factory: TransportFactory, events: TransportEvents, file: _RecordingFile
    ) -> None:
        self._events = events
        self._record = file
        self._transport: Transport = factory(self)

    # -- events of the transport

    def received(self, data: bytes) -> None:
        self._record.observe("out", data)
        self._events.received(data)

    def output_ended(self) -> None:
        self._events.output_ended()

    def wrote_stderr(self, line: str) -> None:
        self._record.observe("err", line.encode("utf-8", "surrogateescape") + b"\n")
        self._events.wrote_stderr(line)

    def exited(self, exit_code: int | None) -> None:
        self._record.note({"exit": exit_code})
        self._events.exited(exit_code)

    def input_failed(self, reason: str) -> None:
        self._record.note({"input_failed": reason})
        self._events.input_failed(reason)

    # -- calls of the session

    @property
    def pid(self) -> int | None:
        return self._transport.pid

    @property
    def stderr_tail(self) -> str:
        return self._transport.stderr_tail

    def write(self, data: bytes) -> None:
        self._record.observe("in", data)
        self._transport.write(data)

    async def drain(self) -> None:
        await self._transport.drain()

    def end_input(self) -> None:
        self._record.note(END_OF_INPUT)
        self._transport.end_input()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def terminate(self) -> None:
        self._record.note({"signal": "SIGTERM"})
        self._transport.terminate()

    def kill(self) -> None:
        self._record.note({"signal": "SIGKILL"})
        self._transport.kill()

    async def aclose(self) -> None:
        try:
            await self._transport.aclose()
        finally:
            self._record.close()
