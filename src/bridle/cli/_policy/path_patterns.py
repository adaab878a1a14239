"""Patterns for paths in a policy. Paths are resolved before they are compared.

Paths are relative to the working directory. ``~``, ``..`` and symbolic links are resolved. Some
paths can be read in several ways. A rule that allows must match all readings of the path. A rule
that denies must match one of them.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator

import msgspec

from bridle.cli._policy.wildcards import compiled, has_wildcard

# As in a shell, a wildcard does not match the dot at the start of a name. Unlike in a shell, a
# star matches slashes, so a pattern for a directory includes its subdirectories.
_STAR = r"(?:(?<!/)[^\0]|(?<=/)[^\0.])"
_MARK = r"(?:(?<!/)[^/\0]|(?<=/)[^/\0.])"


# The content of these directories depends on the process that opens it.
_OF_A_PROCESS = re.compile(r"/(?:proc|dev/fd)(?:/|$)")
_MOST_LINKS = 40
"""Number of symbolic links in one path after which the system fails."""


class Place(msgspec.Struct, frozen=True):
    """The directory of a run, which relative patterns are relative to, and its home directory."""

    directory: str
    home: str


def here() -> Place:
    """Return the working directory and the home directory of this process."""
    return Place(os.getcwd(), os.path.expanduser("~"))


class PathPattern:
    """A pattern for paths. Its directory is resolved once, before a tool can change it."""

    def __init__(self, pattern: str, place: Place) -> None:
        self._place = place
        is_literal = not has_wildcard(pattern)
        whole = _joined(place.directory, _at_home(pattern, place.home))
        whole = whole.rstrip("/") if is_literal else whole
        head = re.split(r"[*?]", whole, maxsplit=1)[0]
        directory = head.rpartition("/")[0] + "/"
        rest = whole[len(directory) :]
        if ".." in rest.split("/"):
            raise ValueError(f"{pattern!r} never matches, because it has '..' after a wildcard")
        rest = re.sub(r"/(?:\.?/)+", "/", rest)
        lexical, real = _normal(directory), _real(directory)
        wholes = [f"{base.rstrip('/')}/{rest}" for base in dict.fromkeys((lexical, real))]
        self._lexical = [_narrow(one) for one in wholes]
        self._real = _narrow(f"{real.rstrip('/')}/{rest}")
        wide = [pattern, _composed(pattern), *wholes]
        if is_literal:  # also match the target of the link, and everything below it
            wide = [*wide, _real(whole)]
            wide += [f"{one.rstrip('/')}/*" for one in wide]
        self._wide = [compiled(one.casefold()) for one in dict.fromkeys(wide)]

    def allows(self, path: str, cwd: str | None) -> bool:
        """Return whether all readings of a path match.

        ``cwd`` is the working directory of the call. If it is None (unknown), a relative path does
        not match.
        """
        # The CLI trims paths, composes Unicode characters, and expands only "~" and "~/".
        if not path or path != path.strip() or path != _composed(path) or "\0" in path:
            return False
        if path.startswith("~") and path[1:2] not in ("", "/"):
            return False
        expanded = _at_home(path, self._place.home)
        if not expanded.startswith("/") and cwd is None:
            return False
        full = _joined(cwd or "", expanded)
        try:
            lexical = _normal(full)
            if _depends_on_process(full) or _depends_on_process(lexical):
                return False
            reals = {_real(full), _real(lexical)}
        except (OSError, ValueError):
            return False
        return any(one.fullmatch(lexical) for one in self._lexical) and all(
            self._real.fullmatch(real) for real in reals
        )

    def concerns(self, path: str, cwd: str | None) -> bool | None:
        """Return whether a reading of a path may match.

        Returns None if that depends on the process that opens the path.
        """
        readings = {reading.casefold() for reading in self._readings(path, cwd)}
        readings |= {f"{reading}/" for reading in readings}
        if any(one.fullmatch(reading) for one in self._wide for reading in readings):
            return True
        full = _joined(cwd or self._place.directory, _at_home(path.strip(), self._place.home))
        return None if _depends_on_process(full) else False

    def _readings(self, path: str, cwd: str | None) -> Iterator[str]:
        for text in dict.fromkeys((path, path.strip(), _composed(path.strip()))):
            yield from (text, text.rstrip("/"))
            for directory in dict.fromkeys((cwd or self._place.directory, self._place.directory)):
                full = _joined(directory, _at_home(text, self._place.home))
                try:
                    places = {_normal(full), _real(full), _real(_normal(full))}
                except (OSError, ValueError):
                    continue
                yield from places
                for place in places:
                    yield os.path.relpath(place, directory)


def _narrow(pattern: str) -> re.Pattern[str]:
    return compiled(pattern, star=_STAR, mark=_MARK)


def _composed(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def _at_home(path: str, home: str) -> str:
    is_home = path == "~" or path.startswith("~/")
    return home.rstrip("/") + path[1:] if is_home else path


def _joined(directory: str, path: str) -> str:
    return path if path.startswith("/") else f"{directory.rstrip('/')}/{path}"


def _normal(path: str) -> str:
    # normpath keeps two slashes at the start, as POSIX permits. On Linux they mean one.
    return "/" + os.path.normpath(path).lstrip("/")


def _real(path: str) -> str:
    return "/" + os.path.realpath(path).lstrip("/")


def _depends_on_process(path: str) -> bool:
    """Return whether an absolute path passes through /proc or /dev/fd while it is resolved.

    Also returns True for a path with too many symbolic links.
    """
    current, links = "/", 0
    names = path.split("/")[::-1]
    while names:
        name = names.pop()
        if name == "..":
            current = os.path.dirname(current)
        if name in ("", ".", ".."):
            continue
        current = os.path.join(current, name)
        if _OF_A_PROCESS.match(current):
            return True
        try:
            target = os.readlink(current)
        except (OSError, ValueError):  # not a link, or missing
            continue
        links += 1
        if links > _MOST_LINKS:
            return True
        current = "/" if target.startswith("/") else os.path.dirname(current)
        names += target.split("/")[::-1]
    return False
