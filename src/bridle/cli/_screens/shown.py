"""The output of a run as data: parts of the answer, and lines of styled text.

This module contains data types and small formatting functions. The text of a span must be
printable. The screen decides how a style (``tone``) looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

Tone = Literal["plain", "strong", "dim", "good", "bad", "warn", "ask"]


class Span(msgspec.Struct, frozen=True):
    """Text in one style."""

    text: str
    tone: Tone = "plain"


Line: TypeAlias = tuple[Span, ...]


class Said(msgspec.Struct, frozen=True):
    """A part of the answer, unchanged. It follows the previous part directly.

    A screen on a terminal must make it printable.
    """

    text: str


class Note(msgspec.Struct, frozen=True):
    """A line about the work. A long line is cut to the width, unless it is ``whole``."""

    line: Line
    whole: bool = False


Shown: TypeAlias = Said | Note


def plain(line: Iterable[Span]) -> str:
    """Return the text of a line, without styles."""
    return "".join(span.text for span in line)


def joined(parts: Iterable[str]) -> str:
    """Join facts with dots, without the empty ones."""
    return " · ".join(filter(None, parts))


def seconds(value: float) -> str:
    """Format a duration in seconds: ``0.4s``, ``12s``, ``2m 05s``, ``1h 03m``, ``2d 04h``."""
    if value < 10:
        return f"{max(0.0, value):.1f}s"
    whole = int(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def dollars(value: float | None) -> str:
    """Format an amount in dollars, small amounts with four decimals; "" if unknown."""
    if value is None:
        return ""
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def counted(number: int, thing: str) -> str:
    """Format a number and a noun: ``1 turn``, ``2 turns``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
