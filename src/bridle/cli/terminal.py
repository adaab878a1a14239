"""The terminal a person sits at: lines read from it without blocking, its echo, and an editor."""

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
    """Whether a person can see our words and answer them: at a terminal that is ours."""
    if not sys.stdin.isatty() or not (sys.stdout.isatty() or sys.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # a terminal that belongs to nobody in particular
        return True


class Terminal:
    """The terminal behind our standard input.

    Keys are not echoed while :meth:`muted` lasts, but for the time of a question; what was typed
    before a question is no answer to it.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._typed = bytearray()
        self.is_lent = False
        """True while another program has the terminal."""

    @contextlib.contextmanager
    def muted(self) -> Generator[None]:
        """Keep what is typed from being echoed into what is drawn."""
        before = termios.tcgetattr(self._fd)
        self._echo(on=False)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Take keys from now on, and show them."""
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
        """The next line; None at the end of the input (Ctrl-D)."""
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
        """The text as a person left it in their editor.

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
            except asyncio.CancelledError:  # nobody waits for the answer any more
                process.terminate()
                await process.wait()
                raise
        finally:
            self.is_lent = False
        if code:
            raise OSError(f"the editor ended with exit code {code}")


def editor(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command of the editor to use.

    Raises:
        OSError: there is none.
    """
    for name in _EDITORS:
        words = shlex.split(environ.get(name, ""))
        if words:
            return words
    path = environ.get("PATH")
    found = next((place for name in _FALLBACKS if (place := shutil.which(name, path=path))), None)
    if found is None:
        raise OSError("there is no editor: set EDITOR to one")
    return [found]
