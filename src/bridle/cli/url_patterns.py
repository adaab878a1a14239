"""Patterns for URLs in a policy.

A rule that allows compares scheme, host and port. A rule that denies compares every URL that a
client may make of a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from posixpath import normpath
from urllib.parse import unquote

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

# What clients make of a text: controls and spaces are dropped, slashes may be missing.
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
"""How many times percent-encoding is decoded: clients and servers may each do it."""


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


class UrlConcern:
    """A pattern for URLs, for a rule that denies or asks. It is matched as text.

    Without a path it covers every path. ``*.example.com`` covers ``example.com``, too.
    """

    def __init__(self, pattern: str) -> None:
        text = pattern.strip().casefold()
        wide = [pattern.casefold(), text]
        if re.search(r"(?<!/)/(?!/)", text) is None:
            wide.append(f"{text}/*")
        wide += [one.replace("://*.", "://", 1) for one in wide]
        self._wide = [compiled(one) for one in dict.fromkeys(wide)]

    def concerns(self, url: str) -> bool | None:
        """Return whether a URL may be meant; None if clients may disagree about its host."""
        texts, is_clear = _readings(url)
        if any(one.fullmatch(text) for one in self._wide for text in texts):
            return True
        return False if is_clear else None


def _readings(url: str) -> tuple[Sequence[str], bool]:
    """Return the URLs that a text may stand for, and whether they are all."""
    text = _IGNORED.sub("", unicodedata.normalize("NFKC", url)).strip().casefold()
    found = {url.casefold(): None, text: None}
    is_clear = "\\" not in text
    for spelled in dict.fromkeys((text.replace("\\", "/"), text)):
        parts = _PARTS.fullmatch(spelled)
        assert parts is not None, "every part of a URL may be missing"
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
    """Return whether every client takes a host for the same one."""
    if _PLAIN_HOST.fullmatch(host) is None or re.search(r"(?:^|\.)xn--", host):
        return False
    return _NUMBER.fullmatch(host) is None or _PLAIN_ADDRESS.fullmatch(host) is not None


def _rests(rest: str) -> Iterator[str]:
    """Yield what a path, query and fragment may stand for."""
    for one in _decoded(rest):
        whole = one if one.startswith("/") else f"/{one}"
        yield whole
        path = re.split(r"[?#]", whole, maxsplit=1)[0]
        tidy = "/" + normpath(path.replace("\\", "/")).lstrip("/")
        query = whole[len(path) :]
        yield from (f"{tidy}{query}", f"{tidy.rstrip('/')}/{query}")


def _decoded(text: str) -> list[str]:
    """Return a text as it is, and with percent-encoding decoded once and more."""
    texts = [text]
    for _ in range(_DECODED):
        texts.append(unquote(texts[-1], errors="replace").casefold())
    return list(dict.fromkeys(texts))
