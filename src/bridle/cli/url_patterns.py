"""Patterns for URLs in a policy: scheme and host are compared as such, not as text."""

from __future__ import annotations

import re

from bridle.cli.wildcards import compiled

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?P<port>:\d+)?"
    r"(?P<rest>[/?#][!-\[\]-~]*)?",
    re.IGNORECASE,
)
_PATTERN = re.compile(
    r"(?P<scheme>https?)://(?P<any>\*\.)?(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)"
    r"(?P<port>:\d+)?(?P<rest>[/?#].*)?",
    re.IGNORECASE,
)
# What servers and clients may resolve by themselves: ".." in every spelling.
_CLIMBING = re.compile(r"(?:^|[/\\])(?:\.|%2e){1,2}(?:[/\\?#]|$)", re.IGNORECASE)
_ENCODED_SLASH = re.compile(r"%(?:2f|5c)", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Return whether a pattern has a scheme."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


class UrlPattern:
    """A pattern for URLs, for a rule that allows.

    Raises:
        ValueError: it does not name scheme and host, or has a wildcard in the host that would let
            others in.
    """

    def __init__(self, pattern: str) -> None:
        parts = _PATTERN.fullmatch(pattern)
        if parts is None:
            raise ValueError(
                f"{pattern!r} does not name http or https and a host: write "
                '"https://example.com/*" or "https://*.example.com/*"'
            )
        self._scheme = parts["scheme"].lower()
        self._host = parts["host"].lower()
        self._has_subdomains = parts["any"] is not None
        self._port = parts["port"]
        rest = parts["rest"] or "/"
        self._rest = compiled(rest)

    def allows(self, url: str) -> bool:
        """Return whether a URL is meant."""
        parts = _URL.fullmatch(url)
        if parts is None or parts["scheme"].lower() != self._scheme or parts["port"] != self._port:
            return False
        host, rest = parts["host"].lower(), parts["rest"] or "/"
        path = re.split(r"[?#]", rest, maxsplit=1)[0]
        if _CLIMBING.search(path) or _ENCODED_SLASH.search(path):
            return False
        is_host = host.endswith(f".{self._host}") if self._has_subdomains else host == self._host
        return is_host and self._rest.fullmatch(rest) is not None
