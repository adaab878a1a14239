"""Where a run is shown when nobody watches it live: plain text, or JSON.

The answer goes to stdout and everything else to stderr, so that a pipe gets the answer alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

import msgspec

from bridle._source import line_of
from bridle.cli.printable import printable, printable_json
from bridle.cli.shown import Line, Note, Said, Shown, plain
from bridle.cli.terminal import Terminal
from bridle.messages import Message


def answered(text: str) -> str:
    """A piece of the answer for stdout. A pipe gets it as it is; a terminal would obey some."""
    return printable(text) if sys.stdout.isatty() else text


class Screen(Protocol):
    """What a run is shown on, from entering to leaving it."""

    @property
    def is_live(self) -> bool:
        """Whether :meth:`draw` does anything."""
        ...

    def hear(self, message: Message) -> None:
        """A message came, whatever there is to show of it."""
        ...

    def show(self, shown: Iterable[Shown]) -> None:
        """Show something that stays."""
        ...

    def draw(self, status: Sequence[Line]) -> None:
        """Show what is true right now, in place of what was."""
        ...

    async def ask(self, lines: Sequence[Line], prompt: str) -> str | None:
        """Ask whoever is there; None if they want to give no answer."""
        ...

    async def edit(self, text: str) -> str:
        """Have whoever is there edit a text. Raises OSError if that is not possible."""
        ...

    def finish(self, summary: dict[str, object]) -> None:
        """The run is over and came to this."""
        ...

    def __enter__(self) -> Screen: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PlainScreen:
    """Text. ``terminal`` is where questions are asked, if anywhere; ``quiet`` leaves out notes."""

    is_live = False

    def __init__(self, terminal: Terminal | None = None, *, quiet: bool = False) -> None:
        self._terminal = terminal
        self._quiet = quiet
        # Both streams on one screen must not write into each other's lines.
        self._shares = sys.stdout.isatty() and sys.stderr.isatty()
        self._is_open = False

    def hear(self, message: Message) -> None:
        """Nothing of it is shown as it is."""

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
        """Nothing is ever replaced."""

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
                if answer is None:  # nobody ended the line
                    print(file=sys.stderr)
        return answer

    async def edit(self, text: str) -> str:
        if self._terminal is None:
            raise OSError("nobody is there")
        return await self._terminal.edit(text)

    def finish(self, summary: dict[str, object]) -> None:
        """What there is to say was said."""

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to put back."""


class JsonScreen(PlainScreen):
    """Every message as the line it came in, and the outcome as the last one."""

    def hear(self, message: Message) -> None:
        line = line_of(message) or msgspec.json.encode(message.raw)
        self._write(line.decode("utf-8", "replace"))

    def _say(self, text: str) -> None:
        """It is in the messages."""

    def finish(self, summary: dict[str, object]) -> None:
        self._write(msgspec.json.encode(summary).decode())

    def _write(self, line: str) -> None:
        # A pipe gets the very bytes; a terminal would obey some of them.
        shown = printable_json(line) if sys.stdout.isatty() else line
        sys.stdout.write(shown.rstrip("\n") + "\n")
        sys.stdout.flush()
