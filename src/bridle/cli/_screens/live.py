"""The live view, drawn with rich: finished lines scroll up, status lines stay at the bottom.

Text is passed to rich as plain text, never as markup, after it was made printable. The status
lines are erased before anything else is written, so that no parts of them remain on the screen.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from bridle.cli._screens.printable import printable
from bridle.cli._screens.shown import Line, Note, Said, Shown, Tone
from bridle.cli._screens.user_terminal import Terminal
from bridle.messages import Message

_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "ask": "cyan",
}


class LiveScreen:
    """A terminal with status lines at the bottom. ``terminal`` is None if no user can answer."""

    is_live = True

    def __init__(self, terminal: Terminal | None, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._terminal = terminal
        self._muted = terminal.muted() if terminal is not None else None
        self._live: Live | None = None
        # The unfinished last line of the answer, and the output held back during a question.
        self._line = ""
        self._waiting: list[Shown] | None = None
        self._status: Sequence[Line] = ()

    # -- scrolling lines ---------------------------------------------------------------------------

    def hear(self, message: Message) -> None:
        """Do nothing: :meth:`show` gets the text of the message."""

    def show(self, shown: Iterable[Shown]) -> None:
        if self._waiting is not None:
            self._waiting += shown
            return
        for one in shown:
            if isinstance(one, Said):
                self._say(one.text)
            else:
                self._note(one)
        self._redraw()

    def _say(self, text: str) -> None:
        *lines, self._line = (self._line + printable(text)).split("\n")
        for line in lines:
            self._console.print(Text(line))

    def _note(self, note: Note) -> None:
        if note.whole:
            self._print_whole(note.line)
        else:
            self._console.print(_text(note.line), no_wrap=True, overflow="ellipsis")

    def _print_whole(self, line: Line) -> None:
        """Print a line on as many rows as it needs, each indented like the first."""
        text = _text(line)
        indent = len(text.plain) - len(text.plain.lstrip())
        self._console.print(Padding(text[indent:], (0, 0, 0, indent), expand=False))

    # -- status lines ------------------------------------------------------------------------------

    def draw(self, status: Sequence[Line]) -> None:
        self._status = status
        self._redraw()

    def _redraw(self) -> None:
        if self._live is not None:
            self._live.update(self._below(), refresh=True)

    def _below(self) -> Group:
        """Return the last lines of the answer and the status lines, as many as fit."""
        room = max(1, self._console.height - 1 - len(self._status))
        rows: list[Text] = []
        if self._line:
            rows = list(Text(self._line).wrap(self._console, self._console.width))[-room:]
        lines = [_text(line) for line in self._status]
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*rows, *lines)

    def __enter__(self) -> LiveScreen:
        if self._muted is not None:
            self._muted.__enter__()
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._line:
            self._say("\n")
        if self._muted is not None:
            self._muted.__exit__(None, None, None)

    def _start(self) -> None:
        self._live = Live(
            self._below(),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    # -- questions ---------------------------------------------------------------------------------

    async def ask(self, lines: Sequence[Line], prompt: str) -> str | None:
        if self._terminal is None:
            return None
        answer = None
        with self._aside(self._terminal):
            for line in lines:
                self._print_whole(line)
            self._console.print(Text(prompt, _STYLES["ask"]), end="")
            try:
                answer = await self._terminal.line()
            finally:
                if answer is None:  # end of input: the cursor is still on the line
                    self._console.print()
        return answer

    async def edit(self, text: str) -> str:
        if self._terminal is None:
            raise OSError("there is no terminal")
        with self._aside(self._terminal):
            return await self._terminal.edit(text)

    @contextmanager
    def _aside(self, terminal: Terminal) -> Generator[None]:
        """Give the terminal to a question. Output that arrives meanwhile is shown afterwards."""
        self._stop()
        self._waiting = []
        try:
            with terminal.listening():
                yield
        finally:
            waited, self._waiting = self._waiting, None
            self._start()
            self.show(waited)

    def finish(self, summary: dict[str, object]) -> None:
        """Do nothing: the last lines were shown already."""


def _text(line: Line) -> Text:
    return Text.assemble(*((span.text, _STYLES[span.tone]) for span in line))
