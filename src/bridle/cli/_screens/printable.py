"""Make text from models, tools, files and servers safe to print on a terminal.

Such text may contain escape sequences, which a terminal executes: they move the cursor, change the
title or paste text. It may contain text-direction characters, which make one command look like
another. This module replaces each such character with a visible one. It works character by
character, so text may arrive in parts.
"""

from __future__ import annotations

from collections.abc import Iterator

_KEPT = "\n\t"
_DIRECTION_MARKS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))


def _shown() -> Iterator[tuple[int, str]]:
    yield from ((code, chr(0x2400 + code)) for code in range(0x20) if chr(code) not in _KEPT)
    yield 0x0D, ""  # a carriage return would overwrite the line; before a newline it has no effect
    yield 0x7F, "\u2421"
    yield from ((code, f"\\x{code:02x}") for code in range(0x80, 0xA0))
    yield from ((code, f"<U+{code:04X}>") for code in _DIRECTION_MARKS)
    yield from ((code, "\n") for code in (0x2028, 0x2029))
    yield from ((code, "\ufffd") for code in range(0xD800, 0xE000))


_TABLE = dict(_shown())
# The same characters inside JSON text, where they can occur only in strings.
_JSON_TABLE = {code: f"\\u{code:04x}" for code in (0x7F, *range(0x80, 0xA0), *_DIRECTION_MARKS)}


def printable(text: str) -> str:
    """Replace every character that a terminal would execute, except newlines and tabs."""
    return text.translate(_TABLE)


def one_line(text: str, limit: int = 200) -> str:
    """Return the text on one line, cut after ``limit`` characters."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable_json(text: str) -> str:
    """Escape such characters in JSON text. The JSON value stays the same."""
    return text.translate(_JSON_TABLE)
