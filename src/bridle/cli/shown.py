"""What there is to show: pieces of the answer, and lines made of words with a tone.

The rule of this file: data, and small functions that put facts into words. Whoever makes a span
makes it of printable text; whoever draws it decides what a tone looks like.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

Tone = Literal["plain", "strong", "dim", "good", "bad", "warn", "ask"]


class Span(msgspec.Struct, frozen=True):
    """Words in one tone."""

    text: str
    tone: Tone = "plain"


Line: TypeAlias = tuple[Span, ...]


class Said(msgspec.Struct, frozen=True):
    """A piece of the answer as it was written, to be put right behind the piece before it.

    Whoever draws it on a terminal makes it printable.
    """

    text: str


class Note(msgspec.Struct, frozen=True):
    """A line about the work. Where there is no room for it, it is cut unless it is ``whole``."""

    line: Line
    whole: bool = False


Shown: TypeAlias = Said | Note


def plain(line: Iterable[Span]) -> str:
    """A line without its tones."""
    return "".join(span.text for span in line)


def joined(parts: Iterable[str]) -> str:
    """Facts in a row; those that are empty are left out."""
    return " · ".join(filter(None, parts))


def seconds(value: float) -> str:
    """A duration: ``0.4s``, ``12s``, ``2m 05s``, ``1h 03m``, ``2d 04h``."""
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
    """A sum of money, to the hundredth of a cent where it is small; empty if not known."""
    if value is None:
        return ""
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def counted(number: int, thing: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
