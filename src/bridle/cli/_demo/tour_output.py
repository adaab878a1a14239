"""Print the titles, code and output of the tour at a readable speed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import keyword
import re
import shutil
import textwrap
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType

import msgspec

from bridle import Turn
from bridle.cli._screens.printable import printable
from bridle.cli._screens.screens import PlainScreen, Screen
from bridle.cli._screens.shown import Note, Said, Span, Tone, plain
from bridle.cli._screens.view import View
from bridle.messages import InitMessage, Message

_WIDEST = 80
_FRAME = 0.1
"""Seconds between two redraws of the status lines."""

_TOKENS: Mapping[Tone, str] = {
    "dim": r"#.*",
    "good": r'"[^"\n]*"',
    "ask": rf"\b(?:{'|'.join(keyword.kwlist)})\b",
    "strong": r"@\w+|(?<=def )\w+|(?<=class )\w+",
}
_TOKEN = re.compile("|".join(f"(?P<{tone}>{pattern})" for tone, pattern in _TOKENS.items()))


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses in seconds: per line of code, after a result, and between words of the model."""

    line: float = 0.2
    look: float = 0.8
    word: float = 0.035


AT_ONCE = Pace(line=0.0, look=0.0, word=0.0)


class PageScreen(PlainScreen):
    """Plain text, with the notes on stdout, too."""

    def _note(self, note: Note) -> None:
        self._say(plain(note.line) + "\n")


class Stage:
    """The output of the tour."""

    def __init__(self, screen: Screen, pace: Pace) -> None:
        self.pace = pace
        self._screen = screen
        self._view = View(time.monotonic())
        self._columns = min(_WIDEST, shutil.get_terminal_size().columns)
        self._is_open = False
        #: The times of the text deltas that were printed since the last :meth:`acting`.
        self.printed: list[float] = []

    # -- printed lines -----------------------------------------------------------------------------

    def show(self, *spans: Span) -> None:
        """Print a line. Without spans, print an empty line."""
        self._close_line()
        self._screen.show([Note(spans, whole=bool(spans))])

    def tell(self, text: str, tone: Tone = "plain", *, indent: str = "  ") -> None:
        """Print a paragraph."""
        width = self._columns - len(indent)
        for line in textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False):
            self.show(Span(f"{indent}{line}", tone))

    def title(self, text: str) -> None:
        """Print the title of a part."""
        rule = "─" * max(2, self._columns - len(text) - 4)
        self.show()
        self.show(Span("── ", "dim"), Span(text, "strong"), Span(f" {rule}", "dim"))

    async def code(self, code: str) -> None:
        """Print lines of the program, with pauses to read them."""
        self.show()
        for line in code.splitlines():
            self.show(Span("  │ " if line else "  │", "dim"), *_coloured(line))
        self.show()
        await asyncio.sleep(self.pace.line * code.count("\n"))

    def print(self, value: object, /, *, end: str = "\n", flush: bool = False) -> None:
        """Print the output of the program."""
        self.printed.append(time.monotonic())
        self._view.enter("writing", time.monotonic())
        text = printable(f"{value}{end}")
        self._is_open = not text.endswith("\n")
        self._screen.show([Said(text)])

    def _close_line(self) -> None:
        if self._is_open:
            self._is_open = False
            self._screen.show([Said("\n")])

    async def pause(self) -> None:
        """Pause so that the viewer can read the result."""
        await asyncio.sleep(self.pace.look)

    # -- status lines ------------------------------------------------------------------------------

    @asynccontextmanager
    async def acting(self, phase: str) -> AsyncGenerator[None]:
        """Show the status inside this block, at first ``phase``."""
        self.printed.clear()
        self._view.enter(phase, time.monotonic())
        drawing = asyncio.create_task(self._draw())
        try:
            yield
        finally:
            drawing.cancel()
            self._screen.draw(())
            self._close_line()

    async def _draw(self) -> None:
        while self._screen.is_live:
            self._screen.draw(self._view.status(time.monotonic()))
            await asyncio.sleep(_FRAME)

    async def watch(self, turn: Turn) -> list[Message]:
        """Show a turn while it runs, like `bridle run`. Return its messages."""
        messages: list[Message] = []
        async for message in turn:
            messages.append(message)
            if not isinstance(message, InitMessage):  # it would print the CLI version each time
                self._screen.show(self._view.see(message, time.monotonic()))
        self._screen.show(self._view.close_answer())
        return messages


# ---------------------------------------------------------------- code


def excerpt(module: ModuleType, *names: str) -> str:
    """Return the source of members of a module: the body of a coroutine, all of other members."""
    source = inspect.getsource(module)
    nodes = {name: node for node in ast.parse(source).body for name in _names(node)}
    parts = (_lines(nodes[name]) for name in names)
    lines = source.splitlines()
    return "\n\n".join(textwrap.dedent("\n".join(lines[first - 1 : last])) for first, last in parts)


def line_of(module: ModuleType, name: str) -> int:
    """Return the line number where a member of a module begins."""
    nodes = ast.parse(inspect.getsource(module)).body
    return next(node.lineno for node in nodes if name in _names(node))


def _names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.AnnAssign(target=ast.Name(name)):
            yield name
        case _:
            pass


def _lines(node: ast.stmt) -> tuple[int, int]:
    """Return the first and the last line to show."""
    last = node.end_lineno or node.lineno
    match node:
        case ast.AsyncFunctionDef():
            return node.body[0].lineno, last - 1
        case ast.FunctionDef(decorator_list=[first, *_]) | ast.ClassDef(decorator_list=[first, *_]):
            return first.lineno, last
        case _:
            return node.lineno, last


def _coloured(line: str) -> Iterator[Span]:
    at = 0
    for found in _TOKEN.finditer(line):
        yield Span(line[at : found.start()])
        yield Span(found[0], next(tone for tone in _TOKENS if found[tone]))
        at = found.end()
    yield Span(line[at:])
