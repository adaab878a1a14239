"""The process's ends: standard input and output, and the transcript of what went through them.

The transcript is a recording (one JSON object per line: ``t``, ``dir``, ``line``). Every entry is
written before the thing it tells of happens, straight to the file, so it survives any death.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import deque
from typing import NoReturn

from .values import Json, as_object, is_object

_CHUNK = 1 << 18


def encode(frame: object) -> bytes:
    """A line as the CLI writes it."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class BadInput(Exception):
    """A line on standard input that makes the CLI give up; the text is for stderr."""


class Port:
    """Lines in, lines out, all of them noted."""

    def __init__(self, transcript: str, *, newer: bool = True) -> None:
        self._log = os.open(transcript, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._newer = newer
        self._started = time.monotonic()
        self._unfinished = bytearray()
        self._stdout: int | None = 1
        self._stdin: int | None = 0
        self._alarm: int | None = None
        #: What has been read and nobody has taken yet.
        self.inbox: deque[Json] = deque()
        #: Standard input is at its end.
        self.ended = False

    # -- the transcript ----------------------------------------------------------------------------

    def note(self, **facts: object) -> None:
        """Something about the process itself."""
        self._enter("meta", json.dumps(facts))

    def _enter(self, direction: str, line: str, **more: object) -> None:
        at = round(time.monotonic() - self._started, 6)
        entry = {"t": at, "dir": direction, "line": line, **more}
        os.write(self._log, json.dumps(entry).encode() + b"\n")

    def leave(self, code: int) -> NoReturn:
        """The process ends: with this code, or by the signal that a negative one means."""
        self.note(exit=code)
        if code < 0:
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)

    # -- output ------------------------------------------------------------------------------------

    def send(self, frame: Json) -> None:
        """Write a frame."""
        self.write(encode(frame))

    def write(self, data: bytes, times: int = 1) -> None:
        """Write these bytes, as often as asked for. A reader that is gone does not matter."""
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
        """Write many lines at once; the transcript tells of the first, and how many there were."""
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
        """No more output, while the process lives on."""
        self._stdout = None
        os.close(1)

    # -- input -------------------------------------------------------------------------------------

    def close_input(self) -> None:
        """Whoever writes to us from now on fails."""
        self._stdin = None
        os.close(0)

    def go_deaf(self) -> NoReturn:
        """Never read again; only a signal ends the process."""
        while True:
            time.sleep(3600)

    def wake_on_signals(self) -> None:
        """From now on a signal ends a wait, once its handler has run."""
        self._alarm, bell = os.pipe()
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(bell, warn_on_full_buffer=False)

    def wait(self, seconds: float | None) -> bool:
        """Read what there is, or what comes in time. False if no input came."""
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
        """False for what the CLI passes over in silence; an error for what kills it."""
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
