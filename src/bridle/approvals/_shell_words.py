"""Parse shell commands strictly: only simple commands with literal words.

Everything that bash, dash or zsh might expand, substitute or redirect is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

# These characters need no quotes in bash, dash and zsh. Letters outside ASCII are excluded,
# because some locales treat a few of them as blanks.
_BARE = r"[A-Za-z0-9_./:=@%+,-]"
# Excludes control characters, and unpaired surrogates, which cannot be encoded.
_QUOTED = r"\x00-\x1f\x7f\ud800-\udfff"
_SINGLE = rf"'[^'{_QUOTED}]*'"
_DOUBLE = rf'"[^"$`\\!{_QUOTED}]*"'
_WORD = rf"(?:{_BARE}|{_SINGLE}|{_DOUBLE})+"
_PATTERN_WORD = rf"(?:{_BARE}|[*?]|{_SINGLE}|{_DOUBLE})+"
_PIECE = re.compile(rf"(?P<bare>(?:{_BARE})+)|(?P<quoted>{_SINGLE}|{_DOUBLE})|(?P<wild>[*?])")
_PART = re.compile(rf"(?P<command>(?:{_BARE}|{_SINGLE}|{_DOUBLE}|[ \t])+)(?P<end>&&|\|\||;|\||$)")


def named(names: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(names.split())


RESERVED = named(
    "! [[ ]] { } case coproc do done elif else end esac fi for foreach function if in nocorrect "
    "noglob repeat select then time until while"
)
"""Words with a meaning for the shell."""

SHELLS = named("ash bash csh dash fish ksh mksh pwsh sh tcsh zsh")
INTERPRETERS = named(
    "awk bun deno expect gawk irb java julia lua mawk nawk node nodejs osascript perl php pypy "
    "python raku rscript ruby tclsh ts-node tsx wish"
)
OPAQUE = named(". alias at batch crontab enable hash parallel source")
"""Programs and builtins that run a file or their input, or rename a program."""


Piece: TypeAlias = tuple[str, bool]
"""A part of a pattern's word, and whether it is a wildcard: ``*`` or ``?``."""


class Simple(msgspec.Struct, frozen=True):
    """A simple command: its words without quotes, and whether its input is another command."""

    words: tuple[str, ...]
    is_piped: bool = False


def literal_words(command: str) -> tuple[str, ...] | None:
    """Return the words of a command, without quotes, as the program would get them.

    Returns None if the command is not one simple command with literal words.
    """
    words = _words(command, _WORD)
    if words is None or any(word.startswith("=") for word in words):
        return None
    if words[0] in RESERVED or "=" in words[0]:
        return None
    return tuple("".join(text for text, _ in _pieces(word)) for word in words)


def simple_commands(line: str) -> list[Simple] | None:
    """Return the commands of a line that joins them with ``&&``, ``||``, ``;`` and ``|``.

    Returns None if a part of the line is not a simple command with literal words.
    """
    found: list[Simple] = []
    position, is_piped = 0, False
    while part := _PART.match(line, position):
        words = literal_words(part["command"])
        if words is None:
            return None
        found.append(Simple(words, is_piped))
        position, is_piped = part.end(), part["end"] == "|"
        if not part["end"]:
            return found
    return None


def pattern_words(pattern: str) -> list[list[Piece]] | None:
    """Return the words of a pattern, in which an unquoted ``*`` or ``?`` is a wildcard.

    Returns None if the pattern is not one simple command with literal words and wildcards.
    """
    words = _words(pattern, _PATTERN_WORD)
    if words is None or words[0] in RESERVED or any(word.startswith("=") for word in words):
        return None
    return [list(_pieces(word)) for word in words]


def family(word: str) -> str:
    """Return the name of a program without its directory and version."""
    name = word.rpartition("/")[2].lower()
    return re.sub(r"(?<=\w)[\d.]+$", "", name)


def _words(text: str, word: str) -> list[str] | None:
    if re.fullmatch(rf"[ \t]*{word}(?:[ \t]+{word})*[ \t]*", text) is None:
        return None
    return re.findall(word, text)


def _pieces(word: str) -> Iterator[Piece]:
    for found in _PIECE.finditer(word):
        if found["wild"]:
            yield found["wild"], True
        else:
            yield found["bare"] or found["quoted"][1:-1], False
