"""A terminal for tests: a program on a pseudo-terminal, and the screen a person would see.

The screen knows the few control sequences that a well-behaved program needs to draw lines and to
erase them again. Any other one is a failure, so no text can have smuggled one in.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.processes import LIMIT

_SEQUENCE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])")
_CURSOR = "25"


class Screen:
    """The text on a terminal, its scrolled part included."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows = [[" "] * columns]
        self._row = self._column = 0
        self._unread = ""
        self.is_cursor_shown = True

    @property
    def text(self) -> str:
        """Everything on it, row by row, without blanks at the ends."""
        return "\n".join("".join(row).rstrip() for row in self._rows).rstrip()

    def write(self, text: str) -> None:
        """What a program wrote."""
        self._unread += text
        while self._unread:
            if self._unread[0] != "\x1b":
                self._put(self._unread[0])
                self._unread = self._unread[1:]
                continue
            sequence = _SEQUENCE.match(self._unread)
            if sequence is None:
                assert len(self._unread) < 12, f"an odd sequence: {self._unread[:12]!r}"
                return
            self._obey(*sequence.groups())
            self._unread = self._unread[sequence.end() :]

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._down()
        else:
            assert char.isprintable(), f"a control character: {char!r}"
            if self._column == self._columns:
                self._column = 0
                self._down()
            self._rows[self._row][self._column] = char
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([" "] * self._columns)

    def _obey(self, private: str, numbers: str, command: str) -> None:
        match private, command:
            case "", "m":  # colours
                assert re.fullmatch(r"[\d;]*", numbers)
            case "", "A":
                self._row -= int(numbers or 1)
            case "", "K":
                assert numbers == "2", "only whole lines are erased"
                self._rows[self._row] = [" "] * self._columns
            case "?", "h" | "l":
                assert numbers == _CURSOR, f"mode {numbers}"
                self.is_cursor_shown = command == "h"
            case _:
                raise AssertionError(f"an odd sequence: {private}{numbers}{command}")


# A program has a terminal of its own when it leads a session and claims the one it was given.
_CLAIM = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A program on a terminal of its own; a context manager."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, *, columns: int = 100
    ) -> None:
        self.screen = Screen(columns)
        self.raw = b""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-IS", "-c", _CLAIM, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        os.close(theirs)

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    def expect(self, text: str, times: int = 1) -> None:
        """Wait until this is on the screen so often."""
        complaint = f"{text!r} did not appear {times} times"
        self._read_until(lambda: self.screen.text.count(text) >= times, complaint)

    def send(self, text: str) -> None:
        """Type this."""
        os.write(self._fd, text.encode())

    def is_echoing(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)

    def wait(self) -> int:
        """Wait for the program to end; its exit code, negative for a signal."""
        self._read_until(lambda: self._process.poll() is not None, "it did not end")
        while self._read(0.0):
            pass
        return self._process.wait()

    def _read_until(self, condition: Callable[[], bool], complaint: str) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, f"{complaint}; on the screen:\n{self.screen.text}"
            self._read(0.02)

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], timeout)
        if not ready:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            data = b""
        self.raw += data
        self.screen.write(self._decode(data))
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)
