"""Read and compare versions of the CLI."""

from __future__ import annotations

import re
from typing import ClassVar

from msgspec import Struct


class Version(Struct, frozen=True, order=True):
    """A version that can be compared. Anything after the third number is ignored."""

    major: int
    minor: int
    patch: int

    #: The oldest CLI that Bridle supports: the first whose control protocol has sessions.
    MINIMUM: ClassVar[Version]
    #: The newest CLI that this version of Bridle was tested with.
    TESTED: ClassVar[Version]

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


MINIMUM = Version.MINIMUM = Version(2, 0, 0)
TESTED = Version.TESTED = Version(2, 1, 327)

CHANGED_INPUT_SINCE = Version(2, 0, 10)
"""The first CLI in which a PreToolUse hook can change the input of a call. Others ignore it."""

USAGE_SINCE = Version(2, 1, 197)
"""The oldest CLI that was seen to answer `get_usage`. 2.0.0 does not answer it."""

_VERSION = re.compile(r"(?<!\d)(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


def parse_version(text: str) -> Version | None:
    """Return the first MAJOR.MINOR.PATCH in a text, or None."""
    match = _VERSION.search(text)
    return Version(*map(int, match.groups())) if match else None


def is_before(text: str | None, first: Version) -> bool:
    """Return True if a text has a version that is older than ``first``."""
    version = parse_version(text or "")
    return version is not None and version < first


def is_since(text: str | None, first: Version) -> bool:
    """Return True if a text has a version that is ``first`` or newer."""
    version = parse_version(text or "")
    return version is not None and version >= first
