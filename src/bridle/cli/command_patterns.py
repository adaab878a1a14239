"""Patterns for shell commands in a policy.

A pattern that allows is a command of its own, matched word by word. Its wildcards stand for
operands: never for an option, and never for a path outside the working directory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from bridle.cli.path_patterns import PathPattern, Place
from bridle.cli.shell_words import Piece, Wild, literal_words, loose_reading, pattern_words
from bridle.cli.url_patterns import UrlPattern, is_url
from bridle.cli.wildcards import compiled, has_wildcard


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


# No list can name them all: these are the usual programs that run what they are given, or write
# where they are told to, so that a wildcard would allow anything.
_RUNNERS = _named(
    ". [ alias ash at awk bash batch builtin bun bunx busybox chroot command crontab csh dash deno "
    "doas ed emacs enable env eval ex exec expect fish gawk gdb hash ionice java just ksh lua make "
    "mawk nano nawk nice nix node nohup npx nvim osascript parallel perl php pipx pkexec pwsh "
    "python rscript rsync ruby scp screen script sed setsid sh socat source ssh stdbuf strace su "
    "sudo tar tcsh time timeout tmux trap ts-node tsx unshare uvx vi vim watch xargs zsh"
)
_WITH_SUBCOMMANDS = _named(
    "apt apt-get aws az brew bundle bundler cargo composer conda docker dotnet gcloud gem gh git "
    "go gradle helm hg kubectl mvn npm pip pnpm podman poetry rustup svn systemctl terraform uv "
    "yarn"
)
# What follows these is run, set or reached.
_LEADING_OPTIONS = _named("--command --eval --exec -exec -execdir -ok -okdir")
_LEADING_SUBCOMMANDS = _named(
    "bisect clone compose config dlx difftool exec explore fetch filter-branch foreach generate "
    "get i install mergetool pull push rebase remote run submodule tool x"
)
_PARTS = re.compile(r"[=:,@]")


class CommandPattern:
    """A pattern for a shell command.

    Raises:
        ValueError: a rule with it would allow more than it shows (only if ``allows``).
    """

    def __init__(self, pattern: str, place: Place, *, allows: bool) -> None:
        self._words = _checked(pattern, place) if allows else []
        self._open = bool(self._words) and self._words[-1].is_rest
        # Spaces in a pattern stand for any number of them.
        text = " ".join(pattern.split()) or pattern
        self._wide = [_loose(pattern), _loose(text)]
        if text.endswith(" *"):
            self._wide.append(_loose(text[:-2]))
        # The words of the pattern in their order, anywhere among the words of a command.
        named = [word for word in text.split() if word.strip("*")]
        self._mentioned = _loose("".join(f"* {word} " for word in named) + "*")

    def allows(self, command: str, cwd: str | None) -> bool:
        """Return whether a command is one simple command with literal words that fit."""
        words = literal_words(command)
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
        """Return whether a command line may run what is meant; None if its text does not tell."""
        reading = loose_reading(command)
        readings = (command, " ".join(command.split()), *reading.commands)
        if any(one.fullmatch(text) for one in self._wide for text in readings):
            return True
        mentioned = self._mentioned.fullmatch("".join(f" {word} " for word in reading.words))
        return False if reading.is_complete and mentioned is None else None


def _loose(pattern: str) -> re.Pattern[str]:
    return compiled(pattern, ignore_case=True)


class _WordPattern:
    """One word of a pattern that allows."""

    def __init__(self, pieces: Sequence[Piece], place: Place, *, is_rest: bool) -> None:
        self.is_rest = is_rest
        self._literal = None
        if all(isinstance(piece, str) for piece in pieces):
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
        """Return whether a word of a command fits."""
        if self._literal is not None:
            return word == self._literal
        value = word[len(self._lead) :]
        if not word.startswith(self._lead) or not value:
            return False
        if self._url is not None:
            return self._url.allows(value)
        assert self._path is not None, "a wildcard is either in a URL or in a path"
        if not self._lead and value[0] in "-+":
            return False  # an option, which nobody has named
        if not self._path.allows(value, cwd):
            return False
        # Programs take apart what they are given: of=/dev/sda, host:/etc, @/etc/passwd.
        parts = (part.strip() for part in _PARTS.split(value)[1:])
        return all(self._below.allows(part, cwd) for part in parts if part)


def _text(pieces: Sequence[Piece]) -> str:
    return "".join(piece.sign if isinstance(piece, Wild) else piece for piece in pieces)


def _option(text: str) -> str:
    """The part of an option that is not its value."""
    name, equals, _ = text.partition("=")
    if not equals or has_wildcard(name):
        raise ValueError(f"{text!r} would allow options that the rule does not name")
    return name + equals


def _checked(pattern: str, place: Place) -> list[_WordPattern]:
    """The words of a pattern that allows."""
    if pattern.strip() == "*":
        raise ValueError("'*' fits every command: leave input.command out to allow all of them")
    words = pattern_words(pattern)
    if words is None:
        raise ValueError(
            f"{pattern!r} is more than one simple command with literal words: a rule that allows "
            "may have quotes, * and ?, but no ; & | < > $ ` ( ) { } [ ] ~ # ! ^ nor backslashes"
        )
    if any(isinstance(piece, Wild) for piece in words[0]):
        raise ValueError(f"{pattern!r} must name the program: its first word has a wildcard")
    for word in words:
        quoted = (isinstance(piece, str) and has_wildcard(piece) for piece in word)
        if any(isinstance(piece, Wild) for piece in word) and any(quoted):
            raise ValueError(f"{pattern!r} has a wildcard and a quoted * or ? in one word")
    _check_program(pattern, words)
    last = len(words) - 1
    return [
        _WordPattern(word, place, is_rest=number == last and word == [Wild("*")])
        for number, word in enumerate(words)
    ]


def _check_program(pattern: str, words: Sequence[Sequence[Piece]]) -> None:
    """Refuse a wildcard where the program would take a command for it."""
    wild = [any(isinstance(piece, Wild) for piece in word) for word in words]
    if not any(wild):
        return
    program = _text(words[0]).rpartition("/")[2].lower()
    family = re.sub(r"[\d.]+$", "", program)
    if "=" in program:
        raise ValueError(f"{pattern!r} begins with an assignment, which no rule allows")
    if program in _RUNNERS or family in _RUNNERS:
        raise ValueError(
            f"{program} runs what it is given, so {pattern!r} would allow anything: write the "
            "command out, without wildcards"
        )
    leading = _LEADING_OPTIONS
    if program in _WITH_SUBCOMMANDS or family in _WITH_SUBCOMMANDS:
        leading = _LEADING_OPTIONS | _LEADING_SUBCOMMANDS
        if wild[1] or _text(words[1]).startswith("-"):
            raise ValueError(
                f"{program} has subcommands that run anything, and {pattern!r} would allow them: "
                f'name the subcommand right after it, as in "{program} status *"'
            )
    for before, word in pairwise(words):
        if isinstance(word[0], Wild) and _text(before) in leading:
            raise ValueError(
                f"what follows {_text(before)!r} may be run or reached, so {pattern!r} would allow "
                "anything: write more of the command out"
            )
