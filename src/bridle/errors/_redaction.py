"""Masks secrets in recordings, errors, logs and spans.

A secret is recognized in one of three ways:

- By value: a secret that the session was given is masked everywhere, also if it is escaped,
  percent-encoded or in base64.
- By name: a value that is assigned to a name such as password, token or cookie.
- By look: keys of known providers, bearer tokens, private keys.

The first way is certain. The other two are heuristics, which mask too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

MASK = "***"

CONTEXT = 400
"""Number of characters before a text that may contain its name."""
_FEW = 4
"""Number of characters of a secret that do not reveal it."""
_LONGEST_NAME = 100
"""Number of characters at the end of a name that are checked."""
_SHORTEST = 6
"""Minimum length of a text that can contain a named secret, or look like one."""

# ------------------------------------------------------------------------- names

# Endings of names of secrets. A dash matches any separator, or none.
_ENDINGS = (
    "access-key-id", "access-key", "account-key", "api-keys", "api-key-helper", "api-key",
    "auth-header", "authorization", "connection-string", "cookies", "cookie", "credentials",
    "credential", "encryption-key", "jwt", "master-key", "pass-phrase", "passcode", "passwd",
    "password", "private-key", "secrets", "secret-key", "secret", "session-key", "signing-key",
    "token",
)  # fmt: skip
# PWD alone is the working directory.
_ENDING = "(?i)(?:" + "|".join(_ENDINGS).replace("-", "[-_. ]?") + r"|(?<=[_-])pwd)[\d_]*$"

# Names are also checked word by word: `SECRET_KEY_BASE`, `apiKeyProd`, `X-Auth`.
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+"
# A name is secret if one of these words is anywhere in it,
_ANYWHERE = frozenset({
    "apikey", "passcode", "passphrase", "passwd", "password", "passwords", "pwd", "secret",
    "secrets", "token",
})  # fmt: skip
# or one of these pairs of words,
_PAIRS = (" api key ", " access key ", " private key ", " pass phrase ")
# or one of these words at its end.
_LAST = frozenset({
    "auth", "bearer", "cred", "creds", "dsn", "pass", "pat",
})  # fmt: skip
# Last words of names that only describe a secret: its count, its place, its age.
_ABOUT = frozenset({
    "at", "budget", "cost", "count", "counts", "delta", "description", "details", "dir",
    "enabled", "endpoint", "error", "expires", "expiration", "expiry", "field", "file",
    "format", "id", "ids", "index", "kind", "length", "level", "limit", "manager", "max",
    "min", "mode", "name", "names", "path", "policy", "position", "provider", "required",
    "servers", "size", "source", "status", "store", "ttl", "type", "uri", "url", "usage",
    "version",
})  # fmt: skip
# First words of names that are yes/no values or counts.
_ASKING = frozenset({
    "can", "has", "is", "max", "min", "needs", "no", "num", "use", "uses",
})  # fmt: skip
# A name that ends in "key" is secret if it is a variable, as in OPENAI_KEY, or if one of these
# words is before "key". Otherwise it may be the key of a cache or of a table.
_KEEPERS = frozenset({
    "account", "anthropic", "app", "auth", "aws", "azure", "client", "deploy", "encryption",
    "functions", "gcp", "github", "gpg", "license", "master", "openai", "pgp", "rsa", "secret",
    "server", "service", "session", "signing", "ssh", "stripe", "subscription",
})  # fmt: skip
_NO_KEEPERS = frozenset({
    "cache", "foreign", "group", "hash", "hot", "index", "lookup", "partition", "primary",
    "public", "row", "sort", "unique",
})  # fmt: skip
# "tokens" is usually a count, so only these names with "tokens" are secret.
_TOKENS = r"(?i)(?:^|access|api|auth|bearer|refresh|secret)[-_]?tokens$"

# All members of an object with one of these names are secret.
_BAGS = "(?:env|env[-_]?vars|environment|headers)$"

# Variables that are not secret although the caller set them: paths, names, modes.
_PUBLIC = (
    r"(?i)PATH|HOME|PWD|OLDPWD|SHELL|USER|LOGNAME|LANG|LANGUAGE|TERM|TZ|TMP|TEMP|EDITOR|DISPLAY"
    r"|(?:LC|XDG|CLAUDE|DISABLE|ENABLE)_.*|ANTHROPIC_BASE_URL|NO_PROXY|TMPDIR"
    r"|.*_(?:PATH|DIR|HOME|ROOT|FILE|MODEL|REGION|LANG|LEVEL|MODE|ENV|VERSION|HOST|PORT)"
    r"|ACCEPT|CONTENT_TYPE|USER_AGENT"
)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a key, variable, header or flag of this name usually has a secret value."""
    if re.search(_ENDING, name) or re.search(_TOKENS, name):
        return True
    found = re.findall(_WORD, name)
    words = [word.lower() for word in found]
    if not words or words[0] in _ASKING or words[-1] in _ABOUT:
        return False
    if len(words) > 1 and words[-1] == "key":
        is_variable = "".join(found[-2:]).isupper() or words[0] == "x"
        return words[-2] in _KEEPERS or (is_variable and words[-2] not in _NO_KEEPERS)
    return (
        (words[-1] in _LAST)
        or (len(words) > 1 and not _ANYWHERE.isdisjoint(words))
        or any(pair in f" {' '.join(words)} " for pair in _PAIRS)
    )


def is_count(name: str) -> bool:
    """Return whether a number with this name is a count, although the name looks secret."""
    return name.lower().endswith("tokens")


@lru_cache(maxsize=4096)
def is_bag(name: str) -> bool:
    """Return whether all members of an object with this name may be secret."""
    return re.search(rf"(?i){_BAGS}", name) is not None


# ------------------------------------------------------------------------- values


def is_telling(value: str) -> bool:
    """Return whether a value is distinctive enough to be masked everywhere.

    It needs six characters with four different ones, and ten if all are letters or all are digits.
    Masking shorter values would make recordings unreadable.
    """
    return (
        len(value) >= 6
        and len(set(value)) >= 4
        and (len(value) >= 10 or not (value.isalpha() or value.isdigit()))
    )


def secret_variables(variables: Mapping[str, str], *, given: bool) -> Iterator[str]:
    """Yield the secrets in variables.

    If the caller set them (`given`), all except well-known public ones are secrets. Otherwise only
    those with a secret name are.
    """
    for name, value in variables.items():
        is_public = re.fullmatch(_PUBLIC, name.replace("-", "_")) is not None
        is_secret = is_secret_name(name) or (given and not is_public)
        yield from _parts(value) if is_secret else _addressed(value)


def secrets_in(document: object) -> Iterator[str]:
    """Yield the secrets in settings or in a configuration of MCP servers.

    These are variables, headers, values with a secret name, and secrets in URLs and arguments.
    """
    pending: list[tuple[object, str, bool]] = [(document, "", False)]
    while pending:
        value, name, is_secret = pending.pop()
        if isinstance(value, Mapping):
            for key, item in cast("Mapping[object, object]", value).items():
                if is_bag(str(key)) and isinstance(item, Mapping):
                    bag = cast("Mapping[object, object]", item)
                    yield from secret_variables(
                        {str(one): str(part) for one, part in bag.items()}, given=True
                    )
                else:
                    pending.append((item, str(key), is_secret or is_secret_name(str(key))))
        elif isinstance(value, list | tuple):
            items = list(cast("Iterable[object]", value))
            pending += [(item, name, is_secret) for item in items]
            yield from _arguments([item for item in items if isinstance(item, str)])
        elif is_secret and isinstance(value, str | int | float):
            yield from _parts(str(value))
        elif isinstance(value, str):
            yield from _addressed(value)
            if name in ("args", "url"):
                yield from filter(_is_random, re.split(r"[/?&=#\s]", value))


def _arguments(words: list[str]) -> Iterator[str]:
    """Yield the secrets of a command line: values of flags and assignments with secret names."""
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and is_secret_name(name):
            yield from _parts(value)
        elif before[:1] == "-" and word[:1] != "-" and is_secret_name(before):
            yield from _parts(word)
        before = word


def _parts(value: str) -> Iterator[str]:
    """Yield a secret and its parts that may occur alone: a token in a header, lines of a key."""
    parts = [value, value.rpartition(" ")[2], *_addressed(value)]
    parts += (line for line in value.splitlines() if len(line) >= 16)
    if "\n" in value or "," in value:  # several headers in one variable
        parts += re.findall(r"[:=]\s*([^,\r\n]+)", value)
    return filter(is_telling, parts)


# A name with a password, or a token alone, before the host of a URL. A name alone is not secret.
# The password may contain an @. It may contain a slash, unless it looks like a port.
_USERINFO = (
    r"://([^/\s:@\"'<>]{0,256}:(?:[^/\s\"'<>]{1,256}|(?!\d{1,5}[/?\#])[^\s@\"'<>]{1,256})"
    r"|(?=[^/\s@]{0,256}\d)[\w.~%+-]{8,256}|[\w.~%+-]{20,256})@"
)


def _addressed(value: str) -> Iterator[str]:
    """Yield the secrets in the URLs of a value: before the host, and in the query."""
    if "://" not in value:
        return
    for login in re.findall(_USERINFO, value):
        password = login.partition(":")[2] or login
        if is_telling(password):
            yield password
    for name, word in re.findall(r"[?&]([\w.-]+)=([^&\s#\"']+)", value):
        if is_telling(word) and _is_secret_parameter(name):
            yield word


def _is_secret_parameter(name: str) -> bool:
    """Return whether a URL parameter is secret. Here the names key, sig and signature are."""
    return name.lower() in ("key", "sig", "signature") or is_secret_name(name)


def _is_random(word: str) -> bool:
    """Return whether a word looks randomly generated."""
    kinds = (r"\d", "[a-z]", "[A-Z]")
    is_mixed = re.fullmatch(r"[\w.~-]{16,}", word) and all(re.search(one, word) for one in kinds)
    return bool(is_mixed or re.fullmatch("[0-9a-fA-F]{32,}", word))


def _forms(secret: str) -> Iterator[str]:
    """Yield the secret in its possible encodings. Encodings shorter than six are omitted."""
    data = secret.encode("utf-8", "surrogatepass")
    quoted = "".join(
        chr(byte) if re.match(rb"[\w.~-]", bytes([byte])) else f"%{byte:02X}" for byte in data
    )
    forms = [
        *(escaped(secret), escaped(secret, ascii_only=True)),
        *(quoted, quoted.replace("%2F", "/"), quoted.replace("%20", "+")),
        *(data.hex(), data.hex().upper()),
    ]
    forms += [re.sub("%..", lambda one: one[0].lower(), form) for form in forms[2:5]]
    for shift in range(3):
        # Base64 of a longer text: the characters that depend only on the secret.
        whole = msgspec.json.encode(bytes(shift) + data).decode()[1:-1]
        core = whole[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        forms += (core, core.replace("+", "-").replace("/", "_"))
    yield secret
    yield from (form for form in forms if len(form) >= 6)


# ------------------------------------------------------------------------- looks

# A substring that every such text contains (in lower case), and the pattern. If a pattern has a
# group, only the group is masked.
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
    ("://", _USERINFO),
    (" -u ", r" -u +([^\s:]+:\S+)"),
    (" --user", r" --user[ =]+([^\s:]+:\S+)"),
    ("sshpass", r"\bsshpass +-p *(\S+)"),
    ("login", r"\blogin\s+\S+\s+password\s+(\S+)"),
    ("</", r"(?i)<[\w:.-]*(?:password|passwd|secret|token|api[_-]?key)(?: [^<>]*)?>([^<]+)</"),
)

# Values after a name that are not secret: references, types, empty values.
_NO_VALUE = (
    r"(?!\*{3}|\$\{?\w+\}?(?!\w)|\$\(|<|os\.|process\.|(?:none|null|true|false|str|string"
    r"|undefined|required|optional)\b)"
)
_QUOTED = r"(?P<quote>\\*[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\r\n])+)"
_BARE = r"(?:(?!,\s*[\w-]+[=:])[^\s\"';&\\])+"
# A YAML block: lines with the indentation of the first one.
_BLOCK = r"[|>][-+\d]*[ \t]*\r?\n(?P<indent>[ \t]+)(?P<block>\S[^\n]*(?:\n(?P=indent)[^\n]*)*)"
_VALUE = rf"{_NO_VALUE}(?:{_QUOTED}|{_BLOCK}|(?P<bare>{_BARE}))"
_HEADER = rf"{_NO_VALUE}(?P<bare>[^\r\n\"'\\]+)"
_NUMBER = r"\d[\d.,_]*[kM]?"

# An assignment: a name of up to three words and an operator, or a flag and a space.
_TYPE = r"(?:&?(?:'static )?str|string|bytes|SecretStr|Optional\[str\])(?:[ \t]*\|[ \t]*None)?"
_ASSIGNMENT = (
    r"(?<![\w.-])(?P<name>(?:[A-Za-z]++[ ]){0,2}(?P<last>[\w.-]++))(?:\\*[\"'`])?[ \t]*"
    rf"(?::[ \t]*(?i:{_TYPE})[ \t]*=(?!=)|:=|=>|=(?![=>])|:(?![:=])(?:\*\*(?=[ \t]))?)[ \t]*+"
)
_FLAG = r"(?<![\w-])--(?P<name>(?P<last>[\w-]++))[ \t]++(?!-)"
# The beginning of a key of a known provider, at the end of an incomplete text.
_BEGINNING = r"\b(?:sk-|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|AIza|npm_|AKIA|ASIA|eyJ)[\w.-]*\Z"

_NAME_HINT = "(?i)key|auth|bearer|cookie|cred|connection|dsn|jwt|pass|[_-]pat|pwd|secret|sig|token"


# ------------------------------------------------------------------------- masking


def redact_text(text: str) -> str:
    """Return the text with secrets masked that are recognized by name or look."""
    return Redactor().text(text)


@lru_cache(256)
def redact_argument(text: str) -> str:
    """Return a command line argument with masked secrets. Cached: the same few are repeated."""
    return redact_text(text)


class Secret(NamedTuple):
    """The position of a secret in a text. `way` is ``value``, ``name`` or ``look``."""

    start: int
    end: int
    way: str


class Redactor:
    """Masks secrets: the given values, and those that are recognized by name or look."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms = sorted({form for one in secrets if one for form in _forms(one)})
        #: Number of masked secrets, by the way they were recognized.
        self.masked: dict[str, int] = {"value": 0, "name": 0, "look": 0}

    def text(self, text: str) -> str:
        """Return the text with its secrets masked."""
        pieces: list[str] = []
        at = 0
        for start, end, way in self.find(text):
            self.masked[way] += 1
            pieces += (text[at:start], MASK)
            at = end
        return "".join([*pieces, text[at:]]) if pieces else text

    def knows(self, text: str) -> bool:
        """Return whether the text contains one of the given values."""
        return any(form in text for form in self._forms)

    def find(self, text: str) -> list[Secret]:
        """Return the secrets in a text, from left to right. Overlapping ones are merged."""
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
        """Return where a secret may begin at the end of an incomplete text.

        Returns the length of the text if there is none.
        """
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
        """Return where a given value may end at the start of a text that was cut there, or 0."""
        longest = 0
        for form in self._forms:
            head = text[: len(form) - 1]
            at = head.rfind(form[-_FEW:])
            while at >= 0 and not form.endswith(head[: at + _FEW]):
                at = head.rfind(form[-_FEW:], 0, at + _FEW - 1)
            longest = max(longest, at + _FEW if at >= 0 else 0)
        return longest

    def excerpt(self, text: str) -> str:
        """Return an excerpt with its secrets masked, also those that were cut at its ends."""
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
    if not re.search(_NAME_HINT, text):
        return
    for pattern in (_ASSIGNMENT, _FLAG):
        for place in re.finditer(pattern, text):
            name = place["last"][-_LONGEST_NAME:]
            is_parameter = text[place.start() - 1 : place.start()] in ("?", "&")
            if not (
                is_secret_name(name)
                or (place["name"] != place["last"] and re.search(_ENDING, place["name"]))
                or (is_parameter and _is_secret_parameter(name))
            ):
                continue
            is_header = re.search("(?i)(?:authorization|cookie)$", name) and ":" in place[0]
            found = re.compile(_HEADER if is_header else _VALUE).match(text, place.end())
            if found is None:
                continue
            group = found.lastgroup or "bare"
            if not (is_count(name) and re.fullmatch(_NUMBER, found[group])):
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
    """Return the text of a JSON string, given the part between its quotes."""
    if "\\" not in body:
        return body

    def plain(found: re.Match[str]) -> str:
        code, letter = found.groups()
        return chr(int(code, 16)) if code else _UNESCAPED.get(letter, letter)

    text = re.sub(_ESCAPE, plain, body)
    if re.search("[\ud800-\udbff]", text):  # a surrogate pair: two escapes for one character
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def escaped(text: str, *, ascii_only: bool = False) -> str:
    """Return the text as the part of a JSON string between the quotes."""

    def escape(found: re.Match[str]) -> str:
        one = found[0]
        if one in _LETTERS:
            return f"\\{_LETTERS[one]}"
        units = one.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return re.sub(_NOT_ASCII if ascii_only else _TO_ESCAPE, escape, text)
