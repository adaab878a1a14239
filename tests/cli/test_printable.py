"""Foreign text on a terminal: shown, never obeyed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.cli._screens.printable import one_line, printable, printable_json


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[2J", "␛[2J"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("a\r\nb\rc", "a\nbc"),
        ("\x7f\x9b1m", "␡\\x9b1m"),
        ("a\u202eb\u2069", "a<U+202E>b<U+2069>"),
        ("a\u2028b\u2029c", "a\nb\nc"),
        ("half \ud83d", "half \ufffd"),
        ("é 漢 👩\u200d🚀", "é 漢 👩\u200d🚀"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, expected: str) -> None:
    assert printable(text) == expected


@given(st.text())
def test_nothing_is_left_to_obey_however_it_is_cut_up(text: str) -> None:
    whole = printable(text)
    assert "".join(map(printable, text)) == whole
    assert all(char in "\n\t" or ord(char) >= 0x20 for char in whole)
    assert not any(0x7F <= ord(char) < 0xA0 for char in whole)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("  a\n\n b ", "a b"), ("x" * 12, "x" * 9 + "…"), ("x" * 10, "x" * 10), ("", "")],
)
def test_one_line_is_one_and_not_longer(text: str, expected: str) -> None:
    assert one_line(text, 10) == expected


@given(st.text())
def test_json_for_a_terminal_stands_for_the_same_value(text: str) -> None:
    shown = printable_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not any(0x7F <= ord(char) < 0xA0 or char == "\u202e" for char in shown)
