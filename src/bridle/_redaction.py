"""Masking of secrets in what others may see: recordings, errors, logs, spans.

A secret is known in one of three ways. By its value: what a session was given as one is masked
wherever it stands, also escaped, percent-encoded or in base64. By its name: what is assigned to a
password, a token, a cookie. By its look: keys of known makers, bearer tokens, private keys.

The first way is certain, the other two are guesses that rather mask too much than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

MASK = "***"

CONTEXT = 400
"""Characters before a piece of text that may say what the piece is."""
_FEW = 4
"""Characters of a secret that do not give it away."""
_SHORTEST = 6
"""Characters of a text that can name a secret, or look like one."""

# ------------------------------------------------------------------------- names

# How the names of secrets end; a dash is any separator or none.
_SECRET_NAMES = (
    "access-key-id", "access-key", "account-key", "api-key-helper", "api-key", "auth-header",
    "authorization", "connection-string", "cookies", "cookie", "credentials", "credential",
    "encryption-key", "jwt", "master-key", "pass-phrase", "passwd", "password", "private-key",
    "secrets", "secret-key", "secret", "session-key", "signing-key", "token",
)  # fmt: skip
# PWD alone is a directory.
_NAMES = "|".join(_SECRET_NAMES).replace("-", "[-_. ]?") + "|(?<=[_-])pwd"

# Members of these are secret whatever they are called.
_BAGS = "(?:env|environment|headers)$"

# Variables that are no secret although they were given: where things are and what they are called.
_PUBLIC = (
    r"(?i)PATH|HOME|PWD|OLDPWD|SHELL|USER|LOGNAME|LANG|LANGUAGE|TERM|TZ|TMP|TEMP|EDITOR|DISPLAY"
    r"|(?:LC|XDG|CLAUDE|DISABLE|ENABLE)_.*|ANTHROPIC_BASE_URL|NO_PROXY|TMPDIR"
    r"|.*_(?:PATH|DIR|HOME|ROOT|FILE|MODEL|REGION|LANG|LEVEL|MODE|ENV|VERSION|HOST|PORT)"
    r"|ACCEPT|CONTENT_TYPE|USER_AGENT"
)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a key, variable, header or flag of this name usually holds a secret."""
    return re.search(rf"(?i)(?:{_NAMES})[\d_]*$", name) is not None


@lru_cache(maxsize=4096)
def is_bag(name: str) -> bool:
    """Whether everything under this name may be secret, whatever it is called."""
    return re.search(rf"(?i){_BAGS}", name) is not None


# ------------------------------------------------------------------------- values


def is_telling(value: str) -> bool:
    """Whether a value can be masked wherever it stands: others would shred what is recorded.

    That takes six characters, four of them different, and ten if all are letters or all digits.
    """
    return (
        len(value) >= 6
        and len(set(value)) >= 4
        and (len(value) >= 10 or not (value.isalpha() or value.isdigit()))
    )


def secret_variables(variables: Mapping[str, str], *, given: bool) -> Iterator[str]:
    """The secrets among variables: all that were given, of others those whose name says so."""
    for name, value in variables.items():
        is_public = re.fullmatch(_PUBLIC, name.replace("-", "_")) is not None
        is_secret = is_secret_name(name) or (given and not is_public)
        yield from _parts(value) if is_secret else _passwords(value)


def secrets_in(document: object) -> Iterator[str]:
    """The secrets in settings or a configuration of servers: variables, headers, named ones."""
    pending: list[tuple[object, bool]] = [(document, False)]
    while pending:
        value, is_secret = pending.pop()
        if isinstance(value, Mapping):
            for name, item in cast("Mapping[object, object]", value).items():
                if is_bag(str(name)) and isinstance(item, Mapping):
                    bag = cast("Mapping[object, object]", item)
                    yield from secret_variables(
                        {str(key): str(part) for key, part in bag.items()}, given=True
                    )
                else:
                    pending.append((item, is_secret or is_secret_name(str(name))))
        elif isinstance(value, list | tuple):
            pending += [(item, is_secret) for item in cast("Iterable[object]", value)]
        elif is_secret and isinstance(value, str | int | float):
            yield from _parts(str(value))


def _parts(value: str) -> Iterator[str]:
    """A secret, and what of it may stand alone: the token of a header, the lines of a key."""
    parts = [value, value.rpartition(" ")[2], *_passwords(value)]
    parts += (line for line in value.splitlines() if len(line) >= 16)
    if "\n" in value or "," in value:  # several headers in one variable
        parts += re.findall(r"[:=]\s*([^,\r\n]+)", value)
    return filter(is_telling, parts)


def _passwords(value: str) -> Iterator[str]:
    """The passwords of the URLs in a value."""
    return filter(is_telling, re.findall(r"://[^/\s:@]*:([^/\s@]+)@", value))


def _forms(secret: str) -> Iterator[str]:
    """How a secret may be written. Encodings so short that anything may hold them are left out."""
    data = secret.encode("utf-8", "surrogatepass")
    quoted = "".join(
        chr(byte) if re.match(rb"[\w.~-]", bytes([byte])) else f"%{byte:02X}" for byte in data
    )
    forms = [
        *(escaped(secret), escaped(secret, ascii_only=True)),
        *(quoted, quoted.replace("%2F", "/"), quoted.replace("%20", "+")),
    ]
    for shift in range(3):
        # Base64 of a text around the secret: the characters that depend on the secret alone.
        whole = msgspec.json.encode(bytes(shift) + data).decode()[1:-1]
        core = whole[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        forms += (core, core.replace("+", "-").replace("/", "_"))
    yield secret
    yield from (form for form in forms if len(form) >= 6)


# ------------------------------------------------------------------------- looks

# A piece that every text of the kind has in it, in lower case, and the pattern. Of a pattern with
# a group only the group is masked.
_LOOKS = (
    ("-----begin", r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|\Z)"),
    ("sk-", r"\bsk-[\w-]{6,}"),
    ("bearer ", r"(?i:\bbearer) +([^\s\"'\\]+)"),
    ("basic ", r"(?i:\bbasic) +([A-Za-z0-9+/]{8,}=*)"),
    ("eyj", r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"),
    ("gh", r"\b(?:gh[oprsu]_|github_pat_)\w{16,}"),
    ("glpat-", r"\bglpat-[\w-]{16,}"),
    ("xox", r"\bxox[a-z]-[\w-]{8,}"),
    ("hooks.", r"\bhooks\.slack\.com/services/([\w/]+)"),
    ("aiza", r"\bAIza[\w-]{30,}"),
    ("npm_", r"\bnpm_\w{30,}"),
    ("akia", r"\bAKIA[A-Z0-9]{16}\b"),
    ("asia", r"\bASIA[A-Z0-9]{16}\b"),
    ("://", r"://([^/\s:@\"']*:[^/\s@\"']+)@"),
    (" -u ", r" -u +([^\s:]+:\S+)"),
    ("<password>", r"<password>([^<]+)"),
)

# What stands after a name but is no secret: a reference, a type, nothing.
_NO_VALUE = (
    r"(?!\*{3}|\$\{?\w+\}?(?!\w)|\$\(|<|os\.|process\.|(?:none|null|true|false|str|string"
    r"|undefined|required|optional)\b)"
)
_QUOTED = r"(?P<quote>\\*[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\r\n])+)"
_BARE = r"(?:(?!,\s*[\w-]+[=:])[^\s\"';&\\])+"
_VALUE = rf"{_NO_VALUE}(?:{_QUOTED}|(?P<bare>{_BARE}))"

# Assignments to secret names: a header to the end of its line, anything else, a flag.
_ASSIGNMENTS = (
    rf"(?i)(?:authorization|cookie):[ \t]*+{_NO_VALUE}(?P<bare>[^\r\n\"'\\]+)",
    rf"(?i)(?:{_NAMES})[\d_]*(?:\\*[\"'`])?[ \t]*(?::=|=>|=(?![=>])|:(?![:=]))[ \t]*+{_VALUE}",
    rf"(?i)(?<![\w-])--[\w-]{{0,40}}(?:{_NAMES})[ \t]++(?!-){_VALUE}",
)
# What may become a key of a known maker, at the end of a text that goes on.
_BEGINNING = r"\b(?:sk-|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|AIza|npm_|AKIA|ASIA|eyJ)[\w.-]*$"

_NAME_HINT = "(?i)key|auth|cookie|credential|connection|jwt|pass|pwd|secret|token"


# ------------------------------------------------------------------------- masking


def redact_text(text: str) -> str:
    """The text with everything masked that has the name or the look of a secret."""
    return Redactor().text(text)


class Secret(NamedTuple):
    """Where a secret stands in a text, and how it is known: by ``value``, ``name`` or ``look``."""

    start: int
    end: int
    way: str


class Redactor:
    """Masks secrets: these values, and whatever has the name or the look of one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms = sorted({form for one in secrets if one for form in _forms(one)})
        #: How many secrets were masked, by how they were known.
        self.masked: dict[str, int] = {"value": 0, "name": 0, "look": 0}

    def text(self, text: str) -> str:
        """A text without its secrets."""
        pieces: list[str] = []
        at = 0
        for start, end, way in self.find(text):
            self.masked[way] += 1
            pieces += (text[at:start], MASK)
            at = end
        return "".join([*pieces, text[at:]]) if pieces else text

    def knows(self, text: str) -> bool:
        """Whether a known value is in the text."""
        return any(form in text for form in self._forms)

    def find(self, text: str) -> list[Secret]:
        """The secrets of a text, from left to right; those that overlap are one."""
        found = list(self._known(text))
        if len(text) >= _SHORTEST:
            found += (*_named(text), *_looking(text))
        merged: list[Secret] = []
        for one in sorted(found):
            if merged and one.start < merged[-1].end:
                merged[-1] = merged[-1]._replace(end=max(merged[-1].end, one.end))
            else:
                merged.append(one)
        return merged

    def find_beginning(self, text: str) -> int:
        """Where, at the end of a text that goes on, a secret may begin; its length if nowhere."""
        partial = re.search(_BEGINNING, text[-CONTEXT:])
        longest = 0 if partial is None else len(partial[0])
        for form in self._forms:
            tail = text[1 - len(form) :]
            at = tail.find(form[:_FEW])
            while at >= 0 and not form.startswith(tail[at:]):
                at = tail.find(form[:_FEW], at + 1)
            longest = max(longest, len(tail) - at if at >= 0 else 0)
        return len(text) - longest

    def find_ending(self, text: str) -> int:
        """Where, at the start of a text that was cut there, a known value may end; 0 if nowhere."""
        longest = 0
        for form in self._forms:
            head = text[: len(form) - 1]
            at = head.rfind(form[-_FEW:])
            while at >= 0 and not form.endswith(head[: at + _FEW]):
                at = head.rfind(form[-_FEW:], 0, at + _FEW - 1)
            longest = max(longest, at + _FEW if at >= 0 else 0)
        return longest

    def excerpt(self, text: str) -> str:
        """A text without its secrets, also those that were cut at one of its ends."""
        start, end = self.find_ending(text), self.find_beginning(text)
        if start >= end:
            return MASK if text else text
        inside = self.text(text[start:end])
        return f"{MASK if start else ''}{inside}{MASK if end < len(text) else ''}"

    def _known(self, text: str) -> Iterator[Secret]:
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                yield Secret(at, at + len(form), "value")
                at = text.find(form, at + len(form))


def _named(text: str) -> Iterator[Secret]:
    if re.search(_NAME_HINT, text):
        for pattern in _ASSIGNMENTS:
            for found in re.finditer(pattern, text):
                group = "bare" if found["bare"] is not None else "quoted"
                yield Secret(*found.span(group), "name")


def _looking(text: str) -> Iterator[Secret]:
    lowered = text.lower()
    for hint, pattern in _LOOKS:
        if hint in lowered:
            for found in re.finditer(pattern, text):
                if MASK not in found[found.re.groups]:
                    yield Secret(*found.span(found.re.groups), "look")


# ------------------------------------------------------------------------- JSON strings

_ESCAPE = r"(?s)\\(?:u([0-9a-fA-F]{4})|(.))"
_UNESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_LETTERS = {char: letter for letter, char in _UNESCAPED.items()} | {'"': '"', "\\": "\\"}
_NOT_ASCII = r'["\\\x00-\x1f]|[^\x00-\x7f]'
_TO_ESCAPE = r'["\\\x00-\x1f\ud800-\udfff]'


def unescaped(body: str) -> str:
    """The text whose JSON string has this inside."""
    if "\\" not in body:
        return body

    def plain(found: re.Match[str]) -> str:
        code, letter = found.groups()
        return chr(int(code, 16)) if code else _UNESCAPED.get(letter, letter)

    text = re.sub(_ESCAPE, plain, body)
    if re.search("[\ud800-\udbff]", text):  # two escapes for one character
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def escaped(text: str, *, ascii_only: bool = False) -> str:
    """The inside of a JSON string."""

    def escape(found: re.Match[str]) -> str:
        one = found[0]
        if one in _LETTERS:
            return f"\\{_LETTERS[one]}"
        units = one.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return re.sub(_NOT_ASCII if ascii_only else _TO_ESCAPE, escape, text)
