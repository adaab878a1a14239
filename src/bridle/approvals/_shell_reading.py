"""Read shell commands for a policy: strictly for rules that allow, loosely for rules that ask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from bridle.approvals._shell_words import (
    INTERPRETERS,
    OPAQUE,
    RESERVED,
    SHELLS,
    Piece,
    family,
    literal_words,
    named,
    pattern_words,
)

_RUNNERS = named(
    ". bash builtin busybox chroot command csh dash doas env eval exec fish flock ionice ksh nice "
    "nohup nsenter parallel pkexec script setsid sh source ssh stdbuf strace su sudo systemd-run "
    "tcsh timeout trap unshare watch xargs zsh "
    "coproc function repeat time"
)
"""Words that are followed by a program to run, possibly after options or a name."""

_PREFIXES = RESERVED | _RUNNERS
"""Words that the loose parser skips to find the program."""

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


class Reading(msgspec.Struct, frozen=True):
    """The commands that a command line may run, found in its text."""

    #: Each begins with the program. Quotes are removed, words are separated by one space.
    commands: tuple[str, ...]
    #: Every word of the text, quoted or not, and the parts of each.
    words: tuple[str, ...]
    #: True if the text names every program: no variable, substitution, glob, script or
    #: interpreter hides one.
    is_complete: bool


class ShellCommand:
    """A shell command, or a pattern for some."""

    def __init__(self, text: str) -> None:
        self._text = text

    def words(self) -> tuple[str, ...] | None:
        """Return the words as the program would get them.

        Returns None if the command is not one simple command with literal words.
        """
        return literal_words(self._text)

    def pattern_words(self) -> list[list[Piece]] | None:
        """Return the words of a pattern, in which an unquoted ``*`` or ``?`` is a wildcard.

        Returns None if the pattern is not one simple command with literal words and wildcards.
        """
        return pattern_words(self._text)

    def reading(self) -> Reading:
        """Return every command that the text may run.

        Quotes and backslashes are removed first, so text inside quotes also counts as commands.
        """
        joined = self._text.replace("\\\r\n", "").replace("\\\n", "")
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
    if any(family(word) in OPAQUE for word in programs):
        return True
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name = family(word)
        if name in INTERPRETERS or (name in SHELLS and not _COMMAND_OPTION.fullmatch(after)):
            return True
    is_replaced = any(word.startswith(_REPLACING) for word in words)
    return is_replaced and any(family(word) == "xargs" for word in programs)


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
