"""Patterns for shell commands in a policy.

A pattern in a rule that allows is itself a command. It is compared with the call word by word.
Wildcards are accepted only for programs that read and print. A wildcard matches operands. It does
not match options, or paths outside the working directory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from bridle._spi import ShellCommand
from bridle.cli._policy.path_patterns import PathPattern, Place
from bridle.cli._policy.url_patterns import UrlPattern, is_url
from bridle.cli._policy.wildcards import compiled, has_wildcard


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


_Piece: TypeAlias = tuple[str, bool]
"""A part of a word, and whether it is a wildcard."""

READERS = _named(
    "basename cat cksum cmp comm cut diff dirname du echo egrep fgrep grep head ls md5sum nl od "
    "readlink realpath sha1sum sha256sum sha512sum stat tac tail wc which"
)
"""Programs that only read and print, with any options and operands."""

OPERAND_READERS = _named("file rg sort tree")
"""Programs that read and print operands, but have options that write files or run programs."""

GIT_READERS = _named(
    "blame describe diff log ls-files ls-tree merge-base rev-list rev-parse shortlog show show-ref "
    "status"
)
"""Subcommands of git that read and print, but have options that write files or run programs."""

URL_READERS = _named("curl")
"""Programs that fetch the URLs among their operands."""

_SYSTEM_DIRECTORIES = ("", "/bin/", "/usr/bin/")
_PARTS = re.compile(r"[=:,@]")


class CommandPattern:
    """A pattern for a shell command.

    Raises:
        ValueError: the pattern would allow more than its text suggests (only if ``allows``).
    """

    def __init__(self, pattern: str, place: Place, *, allows: bool) -> None:
        self._words = _checked(pattern, place) if allows else []
        self._open = bool(self._words) and self._words[-1].is_rest
        # A space in a pattern matches any number of spaces.
        text = " ".join(pattern.split()) or pattern
        self._wide = [_loose(pattern), _loose(text)]
        if text.endswith(" *"):
            self._wide.append(_loose(text[:-2]))
        # Matches the words of the pattern, in order, anywhere among the words of a command.
        named = [word for word in text.split() if word.strip("*")]
        self._mentioned = _loose("".join(f"* {word} " for word in named) + "*")

    def allows(self, command: str, cwd: str | None) -> bool:
        """Return whether a command is one simple command whose literal words match."""
        words = ShellCommand(command).words()
        if words is None:
            return False
        fixed = self._words[:-1] if self._open else self._words
        rest = words[len(fixed) :]
        if len(words) < len(fixed) or (rest and not self._open):
            return False
        return all(
            pattern.fits(word, cwd) for pattern, word in zip(fixed, words, strict=False)
        ) and all(self._words[-1].fits(word, cwd) for word in rest)

    def concerns(self, command: str) -> bool | None:
        """Return whether a command line may run a matching command; None if that is unclear."""
        reading = ShellCommand(command).reading()
        readings = (command, " ".join(command.split()), *reading.commands)
        if any(one.fullmatch(text) for one in self._wide for text in readings):
            return True
        mentioned = self._mentioned.fullmatch("".join(f" {word} " for word in reading.words))
        return False if reading.is_complete and mentioned is None else None


def _loose(pattern: str) -> re.Pattern[str]:
    return compiled(pattern, ignore_case=True)


class _WordPattern:
    """One word of a pattern in a rule that allows."""

    def __init__(self, pieces: Sequence[_Piece], place: Place, *, is_rest: bool) -> None:
        self.is_rest = is_rest
        self._literal = None
        if not _has_wild(pieces):
            self._literal = _text(pieces)
            return
        text = _text(pieces)
        self._lead = ""
        if text.startswith("-"):
            self._lead = _option(text)
            text = text[len(self._lead) :]
        self._url = UrlPattern(text) if is_url(text) else None
        self._path = None if self._url else PathPattern(text, place)
        self._below = PathPattern("*", place)

    def fits(self, word: str, cwd: str | None) -> bool:
        """Return whether a word of a command matches."""
        if self._literal is not None:
            return word == self._literal
        value = word[len(self._lead) :]
        if not word.startswith(self._lead) or not value:
            return False
        if self._url is not None:
            return self._url.allows(value)
        assert self._path is not None, "a wildcard is either in a URL or in a path"
        if not self._lead and value[0] in "-+":
            return False  # an option that the rule does not name
        if not self._path.allows(value, cwd):
            return False
        # Programs split their operands and use the parts as paths: of=/dev/sda, host:/etc,
        # @/etc/passwd.
        parts = (part.strip() for part in _PARTS.split(value)[1:])
        return all(self._below.allows(part, cwd) for part in parts if part)


def _text(pieces: Sequence[_Piece]) -> str:
    return "".join(text for text, _ in pieces)


def _option(text: str) -> str:
    """Return the name of an option, without its value."""
    name, equals, _ = text.partition("=")
    if not equals or has_wildcard(name):
        raise ValueError(f"{text!r} would allow options that the rule does not name")
    return name + equals


def _checked(pattern: str, place: Place) -> list[_WordPattern]:
    """Check a pattern of a rule that allows, and return its words."""
    if pattern.strip() == "*":
        raise ValueError("'*' matches every command: leave input.command out to allow them all")
    words = ShellCommand(pattern).pattern_words()
    if words is None:
        raise ValueError(
            f"{pattern!r} is not one simple command with literal words: a rule that allows may "
            "contain quotes, * and ?, but not ; & | < > $ ` ( ) { } [ ] ~ # ! ^ or a backslash"
        )
    if _has_wild(words[0]):
        raise ValueError(f"{pattern!r} has a wildcard in its first word: name the program")
    for word in words:
        quoted = (not is_wild and has_wildcard(text) for text, is_wild in word)
        if _has_wild(word) and any(quoted):
            raise ValueError(f"{pattern!r} has a wildcard and a quoted * or ? in one word")
    _check_program(pattern, words)
    last = len(words) - 1
    return [
        _WordPattern(word, place, is_rest=number == last and word == [("*", True)])
        for number, word in enumerate(words)
    ]


def _check_program(pattern: str, words: Sequence[Sequence[_Piece]]) -> None:
    """Reject a wildcard unless the program only reads the operands that the wildcard matches."""
    wild = [number for number, word in enumerate(words) if _has_wild(word)]
    if not wild:
        return
    directory, slash, program = _text(words[0]).rpartition("/")
    if directory + slash not in _SYSTEM_DIRECTORIES:
        program = ""
    if program in READERS:
        return
    if program in URL_READERS:
        if not all(is_url(_text(words[number])) for number in wild):
            raise ValueError(
                f"{pattern!r} would allow options and hosts that the rule does not name: put the "
                f'wildcard of {program} into a URL, as in "{program} https://example.com/*"'
            )
        return
    is_git = program == "git" and _text(words[1]) in GIT_READERS
    if not is_git and program not in OPERAND_READERS:
        raise ValueError(
            f"{pattern!r} would allow more than its text suggests: wildcards are only for programs "
            "that read, such as ls, cat, grep or git diff. Write the whole command, without "
            "wildcards"
        )
    for number in wild:
        before = _text(words[number - 1])
        if _text(words[number]).startswith("-") or (before.startswith("-") and before != "--"):
            raise ValueError(
                f"the wildcard in {pattern!r} could be the value of an option, and {program} has "
                "options that write files or run programs: write -- before the wildcard"
            )


def _has_wild(word: Sequence[_Piece]) -> bool:
    return any(is_wild for _, is_wild in word)
