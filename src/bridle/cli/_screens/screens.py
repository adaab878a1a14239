"""The screens without a live view: plain text and JSON.

The answer goes to stdout and everything else to stderr, so a pipe gets only the answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from bridle.cli._screens.printable import printable, printable_json
from bridle.cli._screens.shown import Line, Note, Said, Shown, plain
from bridle.cli._screens.user_terminal import Terminal
from bridle.messages import Message


def answered(text: str) -> str:
    """Prepare a part of the answer for stdout: make it printable if stdout is a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def text_of(shown: Iterable[Shown]) -> Iterator[str]:
    """Yield the text of lines and of parts of the answer for stdout, without styles."""
    for one in shown:
        yield answered(one.text) if isinstance(one, Said) else f"{plain(one.line)}\n"


class Screen(Protocol):
    """Shows a run, from entering to leaving this context manager."""

    @property
    def is_live(self) -> bool:
        """True if :meth:`draw` has an effect."""
        ...

    def hear(self, message: Message) -> None:
        """Receive every message, before :meth:`show` gets the lines about it."""
        ...

    def show(self, shown: Iterable[Shown]) -> None:
        """Print lines or parts of the answer."""
        ...

    def draw(self, status: Sequence[Line]) -> None:
        """Replace the status lines."""
        ...

    async def ask(self, lines: Sequence[Line], prompt: str) -> str | None:
        """Ask the user and return the answer; None if the user gives no answer."""
        ...

    async def edit(self, text: str) -> str:
        """Let the user edit a text and return the result. Raises OSError if that fails."""
        ...

    def finish(self, summary: dict[str, object]) -> None:
        """Receive the summary of the run."""
        ...

    def __enter__(self) -> Screen: ...

    def __exit__(self, *_: object) -> None: ...


class PlainScreen:
    """Plain text. ``terminal`` is for questions, or None. ``quiet`` omits notes."""

    is_live = False

    def __init__(self, terminal: Terminal | None = None, *, quiet: bool = False) -> None:
        self._terminal = terminal
        self._quiet = quiet
        # If both streams go to one terminal, they must not write into each other's lines.
        self._shares = sys.stdout.isatty() and sys.stderr.isatty()
        self._is_open = False

    def hear(self, message: Message) -> None:
        """Do nothing: :meth:`show` gets the text of the message."""

    def show(self, shown: Iterable[Shown]) -> None:
        for one in shown:
            if isinstance(one, Said):
                self._say(one.text)
            elif not self._quiet:
                self._note(one)

    def _say(self, text: str) -> None:
        self._is_open = not text.endswith("\n")
        sys.stdout.write(answered(text))
        sys.stdout.flush()

    def _note(self, note: Note) -> None:
        if self._shares and self._is_open:
            self._say("\n")
        print(plain(note.line), file=sys.stderr, flush=True)

    def draw(self, status: Sequence[Line]) -> None:
        """Do nothing: plain text has no status lines."""

    async def ask(self, lines: Sequence[Line], prompt: str) -> str | None:
        if self._terminal is None:
            return None
        answer = None
        with self._terminal.listening():
            for line in lines:
                self._note(Note(line))
            print(prompt, end="", file=sys.stderr, flush=True)
            try:
                answer = await self._terminal.line()
            finally:
                if answer is None:  # end of input: the cursor is still on the line
                    print(file=sys.stderr)
        return answer

    async def edit(self, text: str) -> str:
        if self._terminal is None:
            raise OSError("there is no terminal")
        return await self._terminal.edit(text)

    def finish(self, summary: dict[str, object]) -> None:
        """Do nothing: the last lines were shown already."""

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the terminal was not changed."""


class JsonScreen(PlainScreen):
    """Prints every message as its raw line, and the outcome as the last line."""

    def hear(self, message: Message) -> None:
        line = message.raw_line or msgspec.json.encode(message.raw)
        self._write(line.decode("utf-8", "replace"))

    def _say(self, text: str) -> None:
        """Do nothing: the messages contain the text."""

    def finish(self, summary: dict[str, object]) -> None:
        self._write(msgspec.json.encode(summary).decode())

    def _write(self, line: str) -> None:
        # A pipe gets the bytes unchanged. A terminal would execute control characters in them.
        shown = printable_json(line) if sys.stdout.isatty() else line
        sys.stdout.write(shown.rstrip("\n") + "\n")
        sys.stdout.flush()
