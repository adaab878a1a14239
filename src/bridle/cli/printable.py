"""Foreign text made safe for a terminal.

Models, tools, files and servers write what they like, and a terminal obeys what it reads: escape
sequences move the cursor, change the title, paste; direction marks make a command look like
another one. Here every character that a terminal would obey becomes one that it shows. It works
character by character, so text may come in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator

_KEPT = "\n\t"
_DIRECTION_MARKS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))


def _shown() -> Iterator[tuple[int, str]]:
    yield from ((code, chr(0x2400 + code)) for code in range(0x20) if chr(code) not in _KEPT)
    yield 0x0D, ""  # it would overwrite its line; before a newline it means nothing anyway
    yield 0x7F, "\u2421"
    yield from ((code, f"\\x{code:02x}") for code in range(0x80, 0xA0))
    yield from ((code, f"<U+{code:04X}>") for code in _DIRECTION_MARKS)
    yield from ((code, "\n") for code in (0x2028, 0x2029))
    yield from ((code, "\ufffd") for code in range(0xD800, 0xE000))


_TABLE = dict(_shown())
# The same characters inside JSON text, where they can only stand in strings.
_JSON_TABLE = {code: f"\\u{code:04x}" for code in (0x7F, *range(0x80, 0xA0), *_DIRECTION_MARKS)}


def printable(text: str) -> str:
    """The text with nothing left in it that a terminal would obey, but newlines and tabs."""
    return text.translate(_TABLE)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, cut where it gets long."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable_json(text: str) -> str:
    """JSON text that a terminal may be shown; it stands for the same value."""
    return text.translate(_JSON_TABLE)
