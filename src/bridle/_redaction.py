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
_LONGEST_NAME = 100
"""Characters at the end of a name that are looked at."""
_SHORTEST = 6
"""Characters of a text that can name a secret, or look like one."""

# ------------------------------------------------------------------------- names

# How the names of secrets end; a dash is any separator or none.
_ENDINGS = (
    "access-key-id", "access-key", "account-key", "api-keys", "api-key-helper", "api-key",
    "auth-header", "authorization", "connection-string", "cookies", "cookie", "credentials",
    "credential", "encryption-key", "jwt", "master-key", "pass-phrase", "passcode", "passwd",
    "password", "private-key", "secrets", "secret-key", "secret", "session-key", "signing-key",
    "token",
)  # fmt: skip
# PWD alone is a directory.
_ENDING = "(?i)(?:" + "|".join(_ENDINGS).replace("-", "[-_. ]?") + r"|(?<=[_-])pwd)[\d_]*$"

# Names are also read word by word: `SECRET_KEY_BASE`, `apiKeyProd`, `X-Auth`.
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+"
# These make a secret of a name wherever they stand in it,
_ANYWHERE = frozenset({
    "apikey", "passcode", "passphrase", "passwd", "password", "passwords", "pwd", "secret",
    "secrets", "token",
})  # fmt: skip
# also two of them in a row,
_PAIRS = (" api key ", " access key ", " private key ", " pass phrase ")
# and these at its end.
_LAST = frozenset({
    "auth", "bearer", "cred", "creds", "dsn", "pass", "pat",
})  # fmt: skip
# What comes after them and says that it is only about a secret: how many, where, since when.
_ABOUT = frozenset({
    "at", "budget", "cost", "count", "counts", "delta", "description", "details", "dir",
    "enabled", "endpoint", "error", "expires", "expiration", "expiry", "field", "file",
    "format", "id", "ids", "index", "kind", "length", "level", "limit", "manager", "max",
    "min", "mode", "name", "names", "path", "policy", "position", "provider", "required",
    "servers", "size", "source", "status", "store", "ttl", "type", "uri", "url", "usage",
    "version",
})  # fmt: skip
_ASKING = frozenset({
    "can", "has", "is", "max", "min", "needs", "no", "num", "use", "uses",
})  # fmt: skip
# A key is a secret if it is a variable's, as in OPENAI_KEY, or that of one of these. Others are
# those of a cache or of a table.
_KEEPERS = frozenset({
    "account", "anthropic", "app", "auth", "aws", "azure", "client", "deploy", "encryption",
    "functions", "gcp", "github", "gpg", "license", "master", "openai", "pgp", "rsa", "secret",
    "server", "service", "session", "signing", "ssh", "stripe", "subscription",
})  # fmt: skip
_NO_KEEPERS = frozenset({
    "cache", "foreign", "group", "hash", "hot", "index", "lookup", "partition", "primary",
    "public", "row", "sort", "unique",
})  # fmt: skip
# Tokens are counted more often than kept.
_TOKENS = r"(?i)(?:^|access|api|auth|bearer|refresh|secret)[-_]?tokens$"

# Members of these are secret whatever they are called.
_BAGS = "(?:env|env[-_]?vars|environment|headers)$"

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
    """Whether numbers under this name, though it sounds like a secret's, only count something."""
    return name.lower().endswith("tokens")


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
        yield from _parts(value) if is_secret else _addressed(value)


def secrets_in(document: object) -> Iterator[str]:
    """The secrets in settings or a configuration of servers.

    Variables, headers, what is named as one, and what addresses and arguments hold.
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
    """The secrets of a command line: values of flags and of assignments with such names."""
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and is_secret_name(name):
            yield from _parts(value)
        elif before[:1] == "-" and word[:1] != "-" and is_secret_name(before):
            yield from _parts(word)
        before = word


def _parts(value: str) -> Iterator[str]:
    """A secret, and what of it may stand alone: the token of a header, the lines of a key."""
    parts = [value, value.rpartition(" ")[2], *_addressed(value)]
    parts += (line for line in value.splitlines() if len(line) >= 16)
    if "\n" in value or "," in value:  # several headers in one variable
        parts += re.findall(r"[:=]\s*([^,\r\n]+)", value)
    return filter(is_telling, parts)


# A name and a password before the host of a URL, or a token alone; names alone are no secret. The
# password may hold an @, and a slash, if it is not a port.
_USERINFO = (
    r"://([^/\s:@\"'<>]{0,256}:(?:[^/\s\"'<>]{1,256}|(?!\d{1,5}[/?\#])[^\s@\"'<>]{1,256})"
    r"|(?=[^/\s@]{0,256}\d)[\w.~%+-]{8,256}|[\w.~%+-]{20,256})@"
)


def _addressed(value: str) -> Iterator[str]:
    """The secrets in the URLs of a value: before the host, and in the query."""
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
    """Whether a parameter of a URL is a secret: there, a mere key is one."""
    return name.lower() in ("key", "sig", "signature") or is_secret_name(name)


def _is_random(word: str) -> bool:
    """Whether nobody would make up such a word."""
    kinds = (r"\d", "[a-z]", "[A-Z]")
    is_mixed = re.fullmatch(r"[\w.~-]{16,}", word) and all(re.search(one, word) for one in kinds)
    return bool(is_mixed or re.fullmatch("[0-9a-fA-F]{32,}", word))


def _forms(secret: str) -> Iterator[str]:
    """How a secret may be written. Encodings so short that anything may hold them are left out."""
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
    ("://", _USERINFO),
    (" -u ", r" -u +([^\s:]+:\S+)"),
    (" --user", r" --user[ =]+([^\s:]+:\S+)"),
    ("sshpass", r"\bsshpass +-p *(\S+)"),
    ("login", r"\blogin\s+\S+\s+password\s+(\S+)"),
    ("</", r"(?i)<[\w:.-]*(?:password|passwd|secret|token|api[_-]?key)(?: [^<>]*)?>([^<]+)</"),
)

# What stands after a name but is no secret: a reference, a type, nothing.
_NO_VALUE = (
    r"(?!\*{3}|\$\{?\w+\}?(?!\w)|\$\(|<|os\.|process\.|(?:none|null|true|false|str|string"
    r"|undefined|required|optional)\b)"
)
_QUOTED = r"(?P<quote>\\*[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\r\n])+)"
_BARE = r"(?:(?!,\s*[\w-]+[=:])[^\s\"';&\\])+"
# Lines of YAML, as deep as the first of them.
_BLOCK = r"[|>][-+\d]*[ \t]*\r?\n(?P<indent>[ \t]+)(?P<block>\S[^\n]*(?:\n(?P=indent)[^\n]*)*)"
_VALUE = rf"{_NO_VALUE}(?:{_QUOTED}|{_BLOCK}|(?P<bare>{_BARE}))"
_HEADER = rf"{_NO_VALUE}(?P<bare>[^\r\n\"'\\]+)"
_NUMBER = r"\d[\d.,_]*[kM]?"

# Where something is assigned: a name of up to three words and a sign, or a flag and a space.
_TYPE = r"(?:&?(?:'static )?str|string|bytes|SecretStr|Optional\[str\])(?:[ \t]*\|[ \t]*None)?"
_ASSIGNMENT = (
    r"(?<![\w.-])(?P<name>(?:[A-Za-z]++[ ]){0,2}(?P<last>[\w.-]++))(?:\\*[\"'`])?[ \t]*"
    rf"(?::[ \t]*(?i:{_TYPE})[ \t]*=(?!=)|:=|=>|=(?![=>])|:(?![:=])(?:\*\*(?=[ \t]))?)[ \t]*+"
)
_FLAG = r"(?<![\w-])--(?P<name>(?P<last>[\w-]++))[ \t]++(?!-)"
# What may become a key of a known maker, at the end of a text that goes on.
_BEGINNING = r"\b(?:sk-|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|AIza|npm_|AKIA|ASIA|eyJ)[\w.-]*\Z"

_NAME_HINT = "(?i)key|auth|bearer|cookie|cred|connection|dsn|jwt|pass|[_-]pat|pwd|secret|sig|token"


# ------------------------------------------------------------------------- masking


def redact_text(text: str) -> str:
    """The text with everything masked that has the name or the look of a secret."""
    return Redactor().text(text)


@lru_cache(256)
def redact_argument(text: str) -> str:
    """Mask secrets in a command line argument; the same few come again and again."""
    return redact_text(text)


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
