"""Patterns for URLs in a policy.

A rule that allows compares scheme, host and port. A rule that denies compares all URLs that a
client may derive from a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from posixpath import normpath
from urllib.parse import unquote

from bridle.cli._policy.wildcards import compiled

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
# ".." in every spelling, because clients and servers may resolve it. Some servers ignore what
# follows a semicolon.
_CLIMBING = re.compile(r"(?:^|[/\\])(?:\.|%2e){1,2}(?:[/\\?#;]|%3b|$)", re.IGNORECASE)
# A slash or a backslash that a server may decode, and a percent sign that it may decode twice.
_ENCODED_SLASH = re.compile(r"%(?:2f|5c|25)", re.IGNORECASE)
# curl requests several URLs for one with braces or brackets: /v1/{..}/admin is /v1/../admin.
_EXPANDED = re.compile(r"[{}\[\]]")

# How clients parse a text: they drop control characters and spaces, and accept missing slashes.
_IGNORED = re.compile(r"[\x00-\x1f\x7f\xad\u200b-\u200d\u2060\ufeff]")
_PARTS = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*):(?=//)|(?P<known>https?|wss?|ftp|file):|)/*"
    r"(?P<authority>[^/?#]*)(?P<rest>.*)",
    re.DOTALL,
)
_PLAIN_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?")
_PLAIN_ADDRESS = re.compile(r"(?:(?:0|[1-9]\d{0,2})(?:\.(?!$)|$)){4}")
_NUMBER = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)", re.DOTALL)
_DEFAULT_PORTS = {"http": ("80",), "https": ("443",)}
_DECODED = 3
"""How many times percent-encoding is decoded, because clients and servers may each decode it."""


def is_url(text: str) -> bool:
    """Return whether a pattern has a scheme."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


class UrlPattern:
    """A pattern for URLs, for a rule that allows.

    Raises:
        ValueError: the pattern has no scheme or host, or a wildcard in the host that would match
            hosts of other owners.
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
        """Return whether a URL matches."""
        parts = _URL.fullmatch(url)
        if parts is None or parts["scheme"].lower() != self._scheme or parts["port"] != self._port:
            return False
        host, rest = parts["host"].lower(), parts["rest"] or "/"
        path = re.split(r"[?#]", rest, maxsplit=1)[0]
        if _EXPANDED.search(rest) or _CLIMBING.search(path) or _ENCODED_SLASH.search(path):
            return False
        is_host = host.endswith(f".{self._host}") if self._has_subdomains else host == self._host
        return is_host and self._rest.fullmatch(rest) is not None


class UrlConcern:
    """A pattern for URLs, for a rule that denies or asks. It is compared as text.

    A pattern without a path matches every path. ``*.example.com`` also matches ``example.com``.
    """

    def __init__(self, pattern: str) -> None:
        text = pattern.strip().casefold()
        wide = [pattern.casefold(), text]
        if re.search(r"(?<!/)/(?!/)", text) is None:
            wide.append(f"{text}/*")
        wide += [one.replace("://*.", "://", 1) for one in wide]
        self._wide = [compiled(one) for one in dict.fromkeys(wide)]

    def concerns(self, url: str) -> bool | None:
        """Return whether a URL may match; None if clients may disagree about its host."""
        texts, is_clear = _readings(url)
        if any(one.fullmatch(text) for one in self._wide for text in texts):
            return True
        return False if is_clear else None


def _readings(url: str) -> tuple[Sequence[str], bool]:
    """Return the URLs that clients may read from a text, and whether the list is complete."""
    text = _IGNORED.sub("", unicodedata.normalize("NFKC", url)).strip().casefold()
    found = {url.casefold(): None, text: None}
    is_clear = "\\" not in text
    for spelled in dict.fromkeys((text.replace("\\", "/"), text)):
        parts = _PARTS.fullmatch(spelled)
        assert parts is not None, "the pattern matches any text"
        scheme = parts["scheme"] or parts["known"]
        host, _, port = parts["authority"].rpartition("@")[2].partition(":")
        host = unicodedata.normalize("NFKC", _decoded(host)[-1]).casefold()
        host = host.replace("\N{IDEOGRAPHIC FULL STOP}", ".").rstrip(".")
        is_clear = is_clear and scheme in _DEFAULT_PORTS and _is_plain(host)
        is_clear = is_clear and (not port or port.isdecimal())
        schemes = dict.fromkeys((scheme or "https", "http", "https"))
        ports = (port,) if port else _DEFAULT_PORTS.get(scheme or "", ("80", "443"))
        hosts = [host, *(f"{host}:{one}" for one in ports)]
        for rest in _rests(parts["rest"]):
            for place in hosts:
                found[f"{place}{rest}"] = None
                found.update(dict.fromkeys(f"{one}://{place}{rest}" for one in schemes))
    return tuple(found), is_clear


def _is_plain(host: str) -> bool:
    """Return whether all clients read a host in the same way."""
    if _PLAIN_HOST.fullmatch(host) is None or re.search(r"(?:^|\.)xn--", host):
        return False
    return _NUMBER.fullmatch(host) is None or _PLAIN_ADDRESS.fullmatch(host) is not None


def _rests(rest: str) -> Iterator[str]:
    """Yield the possible readings of a path, query and fragment."""
    for one in _decoded(rest):
        whole = one if one.startswith("/") else f"/{one}"
        yield whole
        path = re.split(r"[?#]", whole, maxsplit=1)[0]
        tidy = "/" + normpath(path.replace("\\", "/")).lstrip("/")
        query = whole[len(path) :]
        yield from (f"{tidy}{query}", f"{tidy.rstrip('/')}/{query}")


def _decoded(text: str) -> list[str]:
    """Return a text unchanged, and with percent-encoding decoded one or more times."""
    texts = [text]
    for _ in range(_DECODED):
        texts.append(unquote(texts[-1], errors="replace").casefold())
    return list(dict.fromkeys(texts))
