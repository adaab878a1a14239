"""The wildcards of a policy: ``*`` for any number of characters, ``?`` for one."""

from __future__ import annotations

import re

ANY = "."


def has_wildcard(text: str) -> bool:
    """Return whether a text has a wildcard in it."""
    return re.search(r"[*?]", text) is not None


def compiled(
    pattern: str, *, star: str = ANY, mark: str = ANY, ignore_case: bool = False
) -> re.Pattern[str]:
    """Return the regular expression of a pattern, to be used with ``fullmatch``.

    ``star`` and ``mark`` are expressions for one character that ``*`` or ``?`` may stand for. The
    time to match grows with the length of the text, not with a power of it: each part between two
    stars is matched where it first occurs, and never anywhere else.
    """
    first, *others = [
        "".join(mark if char == "?" else re.escape(char) for char in part)
        for part in re.split(r"\*+", pattern)
    ]
    expression = first
    if others:
        *middle, last = others
        expression += "".join(f"(?>(?:{star})*?{part})" for part in middle)
        expression += f"(?:{star})*{last}"
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else re.NOFLAG)
    return re.compile(expression, flags)
