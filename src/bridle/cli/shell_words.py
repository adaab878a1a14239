"""Parse shell commands: strictly for rules that allow, loosely for rules that deny.

The strict parser accepts only one simple command with literal words. It rejects everything that
bash, dash or zsh might expand, substitute, redirect or chain. The loose parser finds every program
that a command line may start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

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


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


_RESERVED = _named(
    "! [[ ]] { } case coproc do done elif else end esac fi for foreach function if in nocorrect "
    "noglob repeat select then time until while"
)
_RUNNERS = _named(
    ". bash builtin busybox chroot command csh dash doas env eval exec fish flock ionice ksh nice "
    "nohup nsenter parallel pkexec script setsid sh source ssh stdbuf strace su sudo systemd-run "
    "tcsh timeout trap unshare watch xargs zsh "
    "coproc function repeat time"
)
"""Words that are followed by a program to run, possibly after options or a name."""

_PREFIXES = _RESERVED | _RUNNERS
"""Words that the loose parser skips to find the program."""

_SHELLS = _named("ash bash csh dash fish ksh mksh pwsh sh tcsh zsh")
_INTERPRETERS = _named(
    "awk bun deno expect gawk java julia lua mawk nawk node nodejs osascript perl php pypy python "
    "rscript ruby tclsh ts-node tsx wish"
)
_OPAQUE = _named(". alias at batch crontab enable hash parallel source")
"""Programs and builtins that run a file or their input, or rename a program."""

_SPLIT = re.compile(r"[;&|\n\r()`]|[<>]\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_PLAIN_PROGRAM = re.compile(r"[\w./:@%+,~=-]+|\[")
_REDIRECTION = re.compile(r"\d*[<>]+")
_BOUNDARY = re.compile(r"[\s;&|()`<>{}]+")
_INNER_BOUNDARY = re.compile(r"[=,:!@+$^~#%]+")
_COMMAND_OPTION = re.compile(r"-[a-z]*c")
_REPLACING = ("-I", "-i", "-J", "--replace")
"""Options of xargs that can insert its input anywhere in the command."""

_LOOKED_AT = 32
"""Number of words after a prefix that may be the program."""

_RUNS_NEXT = {"-exec", "-execdir", "-ok", "-okdir"}
"""Options of find that are followed by a command."""


class Wild(msgspec.Struct, frozen=True):
    """A wildcard in a word of a pattern: ``*`` or ``?``."""

    sign: str


Piece = str | Wild
"""A part of a pattern's word: literal text, or a wildcard."""


def literal_words(command: str) -> tuple[str, ...] | None:
    """Return the words of a command, without quotes, as the program would get them.

    Returns None if the command is not one simple command with literal words.
    """
    words = _words(command, _WORD)
    if words is None or any(word.startswith("=") for word in words):
        return None
    if words[0] in _RESERVED or "=" in words[0]:
        return None
    return tuple(
        "".join(piece for piece in _pieces(word) if isinstance(piece, str)) for word in words
    )


def pattern_words(pattern: str) -> list[list[Piece]] | None:
    """Return the words of a pattern, in which an unquoted ``*`` or ``?`` is a wildcard.

    Returns None if the pattern is not one simple command with literal words and wildcards.
    """
    words = _words(pattern, _PATTERN_WORD)
    if words is None or words[0] in _RESERVED or any(word.startswith("=") for word in words):
        return None
    return [list(_pieces(word)) for word in words]


def _words(text: str, word: str) -> list[str] | None:
    if re.fullmatch(rf"[ \t]*{word}(?:[ \t]+{word})*[ \t]*", text) is None:
        return None
    return re.findall(word, text)


def _pieces(word: str) -> Iterator[Piece]:
    for found in _PIECE.finditer(word):
        if found["wild"]:
            yield Wild(found["wild"])
        else:
            yield found["bare"] or found["quoted"][1:-1]


class Reading(msgspec.Struct, frozen=True):
    """The commands that a command line may run, found in its text."""

    #: Each begins with the program. Quotes are removed, words are separated by one space.
    commands: tuple[str, ...]
    #: Every word of the text, quoted or not, and the parts of each.
    words: tuple[str, ...]
    #: True if the text names every program: no variable, substitution, glob, script or
    #: interpreter hides one.
    is_complete: bool


def loose_reading(command: str) -> Reading:
    """Return every command that a command line may run.

    Quotes and backslashes are removed first, so text inside quotes also counts as commands.
    """
    joined = command.replace("\\\r\n", "").replace("\\\n", "")
    is_complete = "$" not in joined and "`" not in joined
    found: dict[str, None] = {}
    for part in _SPLIT.split(joined):
        words = re.sub(r"[\\'\"]", "", part).split()
        if not words:
            continue
        start, runs_next = _program_of(words)
        starts = {0, start}
        if runs_next:  # options may take values, so the program may be any of the next words
            starts |= set(range(start, min(len(words), start + _LOOKED_AT)))
            is_complete = is_complete and len(words) - start <= _LOOKED_AT
        found_by_find = [i + 1 for i, word in enumerate(words) if word in _RUNS_NEXT]
        starts |= set(found_by_find[:_LOOKED_AT])
        for first in sorted(start for start in starts if start < len(words)):
            rest = words[first + 1 :]
            found[" ".join([words[first], *rest])] = None
            found[" ".join([words[first].rpartition("/")[2], *rest])] = None
        if start < len(words) and _PLAIN_PROGRAM.fullmatch(words[start]) is None:
            is_complete = False
        if runs_next and words[-1].rpartition("/")[2] in _PREFIXES:
            is_complete = False  # the command may come through a pipe
        programs = [words[first] for first in starts if first < len(words)]
        is_complete = is_complete and not _hides_commands(words, [*words[:start], *programs])
    return Reading(tuple(found), tuple(_all_words(joined)), is_complete)


def _hides_commands(words: Sequence[str], programs: Sequence[str]) -> bool:
    """Return whether a part of a command line runs commands that its text does not show.

    Shells and interpreters count at any position, because not all programs that run others are
    known.
    """
    if any(_family(word) in _OPAQUE for word in programs):
        return True
    for word, after in pairwise([*words, ""]):
        name = _family(word)
        if name in _INTERPRETERS or (name in _SHELLS and not _COMMAND_OPTION.fullmatch(after)):
            return True
    is_replaced = any(word.startswith(_REPLACING) for word in words)
    return is_replaced and any(_family(word) == "xargs" for word in programs)


def _family(word: str) -> str:
    """Return the name of a program without its directory and version."""
    name = word.rpartition("/")[2].lower()
    return re.sub(r"(?<=\w)[\d.]+$", "", name)


def _all_words(text: str) -> Iterator[str]:
    """Yield every word, with and without its directory, and its parts between punctuation."""
    for word in _BOUNDARY.split(re.sub(r"[\\'\"]", "", text)):
        for part in dict.fromkeys((word, *_INNER_BOUNDARY.split(word))):
            if part:
                yield from dict.fromkeys((part, part.rpartition("/")[2]))


def _program_of(words: Sequence[str]) -> tuple[int, bool]:
    """Return the index of the program, and whether it follows a program that runs others."""
    position, runs_next = 0, False
    while position < len(words) and _is_before_program(words[position]):
        name = words[position].rpartition("/")[2]
        runs_next = runs_next or name in _RUNNERS
        position += 2 if _REDIRECTION.fullmatch(words[position]) else 1
    return position, runs_next


def _is_before_program(word: str) -> bool:
    name = word.rpartition("/")[2]
    return (
        name in _PREFIXES
        or _ASSIGNMENT.match(word) is not None
        or _REDIRECTION.match(word) is not None
    )
