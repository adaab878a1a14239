"""The user's terminal: read lines without blocking, switch the echo, start an editor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import termios
from collections.abc import Generator, Mapping

_EDITORS = ("VISUAL", "EDITOR")
_FALLBACKS = ("nano", "vi")


def is_attended() -> bool:
    """Return whether a user can read our output and answer on a terminal of this process."""
    if not sys.stdin.isatty() or not (sys.stdout.isatty() or sys.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # a terminal without a foreground process group
        return True


class Terminal:
    """The terminal of our standard input.

    Inside :meth:`muted`, typed keys are echoed only during a question. Keys typed before a
    question are discarded, so they cannot answer it.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._typed = bytearray()
        self.is_lent = False
        """True while another program has the terminal."""

    @contextlib.contextmanager
    def muted(self) -> Generator[None]:
        """Do not echo typed keys into the output."""
        before = termios.tcgetattr(self._fd)
        self._echo(on=False)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Discard keys typed so far, and echo new ones."""
        before = termios.tcgetattr(self._fd)
        self._echo(on=True)
        termios.tcflush(self._fd, termios.TCIFLUSH)
        self._typed.clear()
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def _echo(self, *, on: bool) -> None:
        mode = termios.tcgetattr(self._fd)
        mode[3] = mode[3] | termios.ECHO if on else mode[3] & ~termios.ECHO
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)

    async def line(self) -> str | None:
        """Return the next line; None at the end of the input (Ctrl-D)."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._typed:
            readable = asyncio.Event()
            loop.add_reader(self._fd, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(self._fd)
            data = os.read(self._fd, 4096)
            if not data:
                return None
            self._typed += data
        line, _, rest = bytes(self._typed).partition(b"\n")
        self._typed[:] = rest
        return line.decode("utf-8", "replace")

    async def edit(self, text: str) -> str:
        """Open the text in the user's editor and return the edited text.

        Raises:
            OSError: there is no editor, or it failed.
        """
        with tempfile.TemporaryDirectory(prefix="bridle-") as directory:
            path = os.path.join(directory, "input.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            await self._lend(*editor(), path)
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()

    async def _lend(self, *command: str) -> None:
        self.is_lent = True
        try:
            process = await asyncio.create_subprocess_exec(*command)
            try:
                code = await process.wait()
            except asyncio.CancelledError:  # the question was withdrawn
                process.terminate()
                await process.wait()
                raise
        finally:
            self.is_lent = False
        if code:
            raise OSError(f"the editor ended with exit code {code}")


def editor(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the user's editor.

    Raises:
        OSError: no editor was found.
    """
    for name in _EDITORS:
        words = shlex.split(environ.get(name, ""))
        if words:
            return words
    path = environ.get("PATH")
    found = next((place for name in _FALLBACKS if (place := shutil.which(name, path=path))), None)
    if found is None:
        raise OSError("no editor was found: set EDITOR to the command of an editor")
    return [found]
