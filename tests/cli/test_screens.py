"""Where a run is shown: plain text, JSON, and the live view."""

from __future__ import annotations

import asyncio
import io
import json

import pytest
from rich.console import Console
from tests.support import cli
from tests.support.terminals import Screen

from bridle.cli._screens.live import LiveScreen
from bridle.cli._screens.screens import JsonScreen, PlainScreen
from bridle.cli._screens.shown import Note, Said, Span

NOTE = Note((Span("  ✓ ", "good"), Span("Bash [red]x[/red]", "strong")))


def test_a_pipe_gets_the_answer_and_stderr_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainScreen() as screen:
        screen.show([Said("Hel"), NOTE, Said("lo\n")])
        screen.finish({"type": "bridle_outcome"})
    assert capsys.readouterr() == ("Hello\n", "  ✓ Bash [red]x[/red]\n")


def test_an_answer_is_escaped_for_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = "a\r\nb\x1b[1mc\u200fd\u2028e\n"
    PlainScreen(quiet=True).show([Said(odd)])
    assert capsys.readouterr().out == odd
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    PlainScreen(quiet=True).show([Said(odd)])
    assert capsys.readouterr().out == "a\nb␛[1mc<U+200F>d\ne\n"


def test_quiet_leaves_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    PlainScreen(quiet=True).show([Said("Hello\n"), NOTE])
    assert capsys.readouterr() == ("Hello\n", "")


def test_no_person_can_be_asked_without_a_terminal() -> None:
    screen = PlainScreen()
    assert asyncio.run(screen.ask([], "?")) is None
    with pytest.raises(OSError, match="no terminal"):
        asyncio.run(screen.edit(""))


def test_json_is_every_line_as_it_came_and_the_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    line = b'{"type":"assistant",  "message":{"content":"\xc2\x9b"}, "new": 1}'
    screen = JsonScreen()
    for message in cli.decoded(line):
        screen.hear(message)
    screen.show([Said("not again"), NOTE])
    screen.finish({"type": "bridle_outcome", "ok": True})
    out, err = capsys.readouterr()
    assert out.encode().splitlines()[0] == line
    assert json.loads(out.splitlines()[1]) == {"type": "bridle_outcome", "ok": True}
    assert err == "  ✓ Bash [red]x[/red]\n"


def test_a_message_made_by_hand_is_json_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    from bridle.messages import KeepAlive

    JsonScreen().hear(KeepAlive())
    assert json.loads(capsys.readouterr().out)["type"] == "keep_alive"


# ---------------------------------------------------------------- the live view


class Window:
    """A live view in a window of so many columns, and what is seen there."""

    def __init__(self, columns: int = 40, rows: int = 10) -> None:
        self._written = io.StringIO()
        self._screen = Screen(columns)
        console = Console(
            file=self._written,
            force_terminal=True,
            width=columns,
            height=rows,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
            _environ={"TERM": "xterm-256color"},
        )
        self.view = LiveScreen(None, console)

    @property
    def seen(self) -> list[str]:
        self._screen.write(self._written.getvalue().replace("\n", "\r\n"))
        self._written.seek(0)
        self._written.truncate()
        return self._screen.text.splitlines()

    @property
    def is_cursor_shown(self) -> bool:
        return self._screen.is_cursor_shown


def test_what_goes_on_stands_below_what_stays() -> None:
    window = Window()
    with window.view as view:
        view.show([Said("One line\nand a ha")])
        view.draw([(Span("* ", "ask"), Span("writing"))])
        assert window.seen == ["One line", "and a ha", "* writing"]
        view.show([Said("lf"), NOTE])
        assert window.seen == ["One line", "  ✓ Bash [red]x[/red]", "and a half", "* writing"]
        view.draw([(Span("* reading"),), (Span("* listening"),)])
        view.show([Said("\n")])
        assert window.seen[2:] == ["and a half", "* reading", "* listening"]
        assert not window.is_cursor_shown
    assert window.seen == ["One line", "  ✓ Bash [red]x[/red]", "and a half"]
    assert window.is_cursor_shown


def test_an_answer_cannot_command_the_live_view() -> None:
    window = Window()
    with window.view as view:
        view.show([Said("a\x1b[2Jb\n")])
        assert window.seen == ["a␛[2Jb"]


def test_an_answer_that_breaks_off_stays() -> None:
    window = Window()
    with window.view as view:
        view.show([Said("half a li")])
    assert window.seen == ["half a li"]


def test_long_lines_are_cut_or_wrapped_as_they_are_meant_to_be() -> None:
    window = Window(columns=20)
    with window.view as view:
        view.show([Note((Span("  ✗ cut at the edge of the window"),))])
        view.show([Note((Span("  wrapped and indented like its first row"),), whole=True)])
        view.draw([(Span("* a status that is too long for it"),)])
        assert window.seen == [
            "  ✗ cut at the edge…",
            "  wrapped and",
            "  indented like its",
            "  first row",
            "* a status that is …",
        ]


def test_a_long_paragraph_is_followed_at_its_end() -> None:
    """The window is never overfull: what scrolled out of it could not be erased any more."""
    window = Window(columns=20, rows=5)
    words = " ".join(f"word{number:02}" for number in range(30))
    with window.view as view:
        view.draw([(Span("* writing"),)])
        view.show([Said(words)])
        assert window.seen == [
            "word21 word22 word23",
            "word24 word25 word26",
            "word27 word28 word29",
            "* writing",
        ]
    assert " ".join(window.seen) == words


def test_a_live_view_without_a_person_asks_no_question() -> None:
    view = Window().view
    assert asyncio.run(view.ask([], "?")) is None
    with pytest.raises(OSError, match="no terminal"):
        asyncio.run(view.edit(""))
