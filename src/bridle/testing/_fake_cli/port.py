"""Standard input and output of the fake CLI, and the transcript of both.

The transcript is a recording (one JSON object per line: ``t``, ``dir``, ``line``). Each entry is
written to the file, without a buffer, before the event itself, so it is there even after a kill.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from .values import Json, as_object, is_object

if TYPE_CHECKING:
    from .transcripts import Transcript

_CHUNK = 1 << 18


def encode(frame: object) -> bytes:
    """Encode a line like the CLI."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class BadInput(Exception):
    """A line on standard input that makes the CLI exit. The text is written to stderr."""


class Port:
    """Reads and writes lines, and adds them to the transcript."""

    def __init__(self, transcript: str, *, newer: bool = True) -> None:
        self._log = os.open(transcript, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._newer = newer
        self._started = time.monotonic()
        self._unfinished = bytearray()
        self._stdout: int | None = 1
        self._stdin: int | None = 0
        self._alarm: int | None = None
        #: Lines that were read and not yet taken.
        self.inbox: deque[Json] = deque()
        #: True at the end of standard input.
        self.ended = False
        #: The transcript of the conversation, if one is kept.
        self.transcript: Transcript | None = None

    # -- the transcript ----------------------------------------------------------------------------

    def note(self, **facts: object) -> None:
        """Record facts about the process."""
        self._enter("meta", json.dumps(facts))

    def _enter(self, direction: str, line: str, **more: object) -> None:
        at = round(time.monotonic() - self._started, 6)
        entry = {"t": at, "dir": direction, "line": line, **more}
        os.write(self._log, json.dumps(entry).encode() + b"\n")

    def leave(self, code: int) -> NoReturn:
        """Exit with this code. A negative code kills the process with a signal."""
        if code >= 0:
            self._flush()
        self.note(exit=code)
        if code < 0:
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)

    # -- output ------------------------------------------------------------------------------------

    def send(self, frame: Json) -> None:
        """Write a frame."""
        if self.transcript is not None:
            self.transcript.note(frame)
            if frame["type"] == "result":
                self._flush()
        self.write(encode(frame))

    def _flush(self) -> None:
        """Write the transcript, and report what was added to it."""
        report = None if self.transcript is None else self.transcript.flush()
        if report is not None:
            self.write(encode(report))

    def write(self, data: bytes, times: int = 1) -> None:
        """Write these bytes ``times`` times. Ignore a reader that has closed the pipe."""
        text = data.decode("utf-8", "surrogateescape")
        more: Json = {} if times == 1 else {"times": times}
        if not text.endswith("\n"):
            more["partial"] = True
        self._enter("out", text.removesuffix("\n"), **more)
        per_push = max(1, _CHUNK // max(1, len(data)))
        pushes, rest = divmod(times, per_push)
        block = data * per_push if pushes else b""
        for _ in range(pushes):
            self._push(block)
        self._push(data * rest)

    def write_lines(self, lines: list[bytes]) -> None:
        """Write many lines at once. The transcript contains the first line and the number."""
        self._enter("out", lines[0].decode().rstrip("\n"), times=len(lines))
        self._push(b"".join(lines))

    def _push(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and self._stdout is not None:
            try:
                rest = rest[os.write(self._stdout, rest) :]
            except BrokenPipeError:
                self._stdout = None

    def complain(self, data: bytes) -> None:
        """Write to stderr."""
        self._enter("err", data[:2000].decode("utf-8", "replace").removesuffix("\n"))
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(2, rest) :]
            except OSError:
                return

    def close_output(self) -> None:
        """Close the output. The process continues."""
        self._stdout = None
        os.close(1)

    # -- input -------------------------------------------------------------------------------------

    def close_input(self) -> None:
        """Close the input, so that writing to it fails."""
        self._stdin = None
        os.close(0)

    def go_deaf(self) -> NoReturn:
        """Never read again. Only a signal ends the process."""
        while True:
            time.sleep(3600)

    def wake_on_signals(self) -> None:
        """Make a signal end a wait, after its handler has run."""
        self._alarm, bell = os.pipe()
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(bell, warn_on_full_buffer=False)

    def wait(self, seconds: float | None) -> bool:
        """Wait for input and read it. Return False if none arrives in time."""
        late = None if self.transcript is None else self.transcript.seconds_left()
        if late is not None and (seconds is None or late <= seconds):
            if self._wait(late):
                return True
            self._flush()
            return self._wait(None if seconds is None else seconds - late)
        return self._wait(seconds)

    def _wait(self, seconds: float | None) -> bool:
        stdin = None if self.ended else self._stdin
        ready, _, _ = select.select(
            [end for end in (stdin, self._alarm) if end is not None], [], [], seconds
        )
        if self._alarm in ready:
            os.read(self._alarm or 0, 64)
        if stdin not in ready:
            return False
        self._feed(os.read(stdin or 0, _CHUNK))
        return True

    def _feed(self, data: bytes) -> None:
        self._unfinished += data if data else b"\n"
        if not data:
            self.ended = True
        if b"\n" in data or not data:
            *lines, rest = bytes(self._unfinished).split(b"\n")
            self._unfinished = bytearray(rest)
            for line in lines:
                self._take(line)
        if not data:
            self.note(stdin="EOF")

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        text = line.decode("utf-8", "surrogateescape")
        self._enter("in", text)
        try:
            value: object = json.loads(text)
        except ValueError:
            raise BadInput(
                f"Error parsing streaming input line ({len(text)} chars): SyntaxError"
            ) from None
        if value is None:
            raise BadInput("Error parsing streaming input line: null is not an object")
        frame = as_object(value)
        if frame and self._is_usable(frame):
            self.inbox.append(frame)

    def _is_usable(self, frame: Json) -> bool:
        """Return False for a line that the CLI ignores. Raise for one that makes it exit."""
        kind = frame.get("type")
        if kind == "control_request":
            if not is_object(frame.get("request")):
                raise BadInput("Error: Missing request on control_request")
        elif kind == "control_response":
            if not is_object(frame.get("response")):
                if not self._newer:
                    raise BadInput("Error parsing streaming input line: no response")
                return False
        elif kind == "user":
            message = as_object(frame.get("message"))
            role = message.get("role", "undefined")
            if role != "user":
                raise BadInput(f"Error: Expected message role 'user', got '{role}'")
            return isinstance(message.get("content"), str | list)
        return kind in ("control_request", "control_response", "control_cancel_request")
