"""Find out the identity of a line that is too long to keep.

`ShallowScan` reads the bytes of one JSON object in pieces of any size, keeps none of them, and
reports the few strings that identify the line. It takes linear time and constant memory and never
raises. Malformed input only makes fields `None`.

Most of the work runs in C for speed. Escapes are masked first, so that a string is everything
between two quotes. Values that are not needed are skipped a window at a time by cancelling their
brackets.
"""

from __future__ import annotations

import re

import msgspec


def shape_of(line: bytes) -> str:
    """Describe an unreadable line by its length and form, without quoting it.

    It may be part of the conversation.
    """
    start = line.lstrip()[:1]
    if start == b"{":
        looks = "a JSON object" if line.rstrip()[-1:] == b"}" else "a JSON object that is cut off"
    elif start in (b"[", b'"'):
        looks = "other JSON"
    else:
        looks = "binary data" if _BINARY.search(line[:_LOOK]) else "plain text"
    return f"{len(line)} bytes that look like {looks}"


_LOOK = 1024
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\xff]")

_TOP = ""
# The fields of a control frame are in a nested object: line type -> key of that object.
_BODY = {"control_request": "request", "control_response": "response"}
_BODIES = frozenset(_BODY.values())
_WANTED = frozenset(
    {
        (_TOP, "type"),
        (_TOP, "subtype"),
        (_TOP, "request_id"),
        (_TOP, "uuid"),
        (_TOP, "user_message_uuid"),
        (_TOP, "parent_tool_use_id"),
        ("request", "subtype"),
        ("request", "callback_id"),
        ("response", "subtype"),
        ("response", "request_id"),
    }
)

_WINDOW = 64 * 1024
_LONGEST_CAPTURE = 256 + len(b'""')
_MOST_NESTED = 32

_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE = b'":,{}'
_OPENING = b"{["
_CLOSING = b"}]"
# A whole string, a string cut off by the end of the window, or one structural character.
_TOKEN = re.compile(rb'"[^"]*"?|[{}\[\]:,]')
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_decode_string = msgspec.json.Decoder(str).decode


class LineIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a line. A field is `None` if it is absent, not a string, or too long.

    `subtype` and `request_id` are those of the frame: a control request keeps its subtype inside
    `request`, a control response keeps both inside `response`.
    """

    type: str | None = None
    subtype: str | None = None
    request_id: str | None = None
    uuid: str | None = None
    user_message_uuid: str | None = None
    parent_tool_use_id: str | None = None
    #: Of a control request: the id of the hook callback.
    callback_id: str | None = None


class ShallowScan:
    """Scan one line incrementally. The result does not depend on how the line is split."""

    __slots__ = (
        "_captured",
        "_container",
        "_done",
        "_escaped",
        "_found",
        "_ignored",
        "_in_string",
        "_key",
        "_label",
        "_opened",
    )

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str] = {}
        self._opened = False
        self._done = False
        # The object being read: the line itself or one of the nested objects.
        self._container = _TOP
        # The nesting depth inside a value that is skipped.
        self._ignored = 0
        # The last string in key position, and the key whose value is being read.
        self._label: str | None = None
        self._key: str | None = None
        self._in_string = False
        self._captured: bytes | None = None
        # True if the window ended after the backslash of an escape.
        self._escaped = False

    def feed(self, data: bytes | bytearray) -> None:
        """Read the next bytes of the line."""
        for start in range(0, len(data), _WINDOW):
            if self._done:
                return
            self._read(bytes(data[start : start + _WINDOW]))

    def identity(self) -> LineIdentity:
        """Return what has been found so far."""
        found = self._found.get
        kind = found((_TOP, "type"))
        body = _BODY.get(kind or "", _TOP)
        return LineIdentity(
            type=kind,
            subtype=found((body, "subtype")),
            request_id=found((body, "request_id")) or found((_TOP, "request_id")),
            uuid=found((_TOP, "uuid")),
            user_message_uuid=found((_TOP, "user_message_uuid")),
            parent_tool_use_id=found((_TOP, "parent_tool_use_id")),
            callback_id=found(("request", "callback_id")),
        )

    def _read(self, raw: bytes) -> None:
        text = self._mask(raw)
        start = self._continue_string(raw, text) if self._in_string else 0
        if self._in_string:
            return
        # Only once per window, because a leap always costs the whole window.
        if self._ignored and self._leap(text[start:]):
            return
        for match in _TOKEN.finditer(text, start):
            begin, end = match.span()
            token = text[begin]
            if not self._opened:
                # Only an object has an identity.
                self._opened = True
                self._done = token != _OPEN
            elif token == _QUOTE:
                self._read_string(raw[begin:end], whole=end - begin > 1 and text[end - 1] == _QUOTE)
            elif self._ignored:
                self._ignored += (token in _OPENING) - (token in _CLOSING)
            else:
                self._read_structure(token)
            if self._done:
                return

    def _mask(self, raw: bytes) -> bytes:
        """Replace every escaped backslash and quote by a neutral character of the same length."""
        if self._escaped and raw[0] in b'\\"':
            raw = b"_" + raw[1:]
        self._escaped = False
        if b"\\" not in raw:
            return raw
        text = raw.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        self._escaped = text.endswith(b"\\")
        return text

    def _leap(self, text: bytes) -> bool:
        """Skip all of `text` if the skipped value certainly does not end in it."""
        between_quotes = text.split(b'"')
        rest = _unmatched_brackets(b"".join(between_quotes[::2]))
        if rest is None:
            return False
        closing = rest.count(b"]")
        if closing >= self._ignored:
            return False
        self._ignored += len(rest) - 2 * closing
        self._in_string = len(between_quotes) % 2 == 0
        self._captured = None
        return True

    def _read_string(self, quoted: bytes, *, whole: bool) -> None:
        """Read a string. `quoted` starts with its quote and, if whole, ends with one."""
        captured = quoted if self._wants_string() else None
        if whole:
            self._take_string(captured)
        else:
            self._in_string = True
            self._captured = captured

    def _continue_string(self, raw: bytes, text: bytes) -> int:
        """Continue a string that was split between windows. Return the offset after it."""
        end = text.find(b'"') + 1
        stop = end or len(text)
        if self._captured is not None:
            self._captured += raw[:stop]
            if len(self._captured) > _LONGEST_CAPTURE:
                self._captured = None
        if end:
            self._in_string = False
            self._take_string(self._captured)
        return stop

    def _wants_string(self) -> bool:
        if self._ignored:
            return False
        return self._key is None or (self._container, self._key) in _WANTED

    def _take_string(self, quoted: bytes | None) -> None:
        if self._ignored:
            return
        text = _unquote(quoted)
        if self._key is None:
            self._label = text
        elif text is not None:
            self._found[self._container, self._key] = text

    def _read_structure(self, token: int) -> None:
        if token == _COLON:
            self._key = self._label or ""
            self._forget(self._container, self._key)
        elif token == _COMMA:
            self._key = self._label = None
        elif token in _OPENING:
            if token == _OPEN and self._container == _TOP and self._key in _BODIES:
                self._container, self._key, self._label = self._key, None, None
            else:
                self._ignored = 1
        elif token == _CLOSE:
            self._done = self._container == _TOP
            self._container, self._key = _TOP, ""

    def _forget(self, container: str, key: str) -> None:
        """Remove earlier values of a repeated key, because the last one counts."""
        self._found.pop((container, key), None)
        if container == _TOP and key in _BODIES:
            self._found.pop((key, "subtype"), None)
            self._found.pop((key, "request_id"), None)


def _unmatched_brackets(text: bytes) -> bytes | None:
    """Return the unmatched brackets of `text` as `]]…[[…`, or `None` if nested too deeply."""
    brackets = text.translate(_TO_SQUARE, _NOT_BRACKETS)
    for _ in range(_MOST_NESTED):
        shorter = brackets.replace(b"[]", b"")
        if len(shorter) == len(brackets):
            return brackets
        brackets = shorter
    return None


def _unquote(quoted: bytes | None) -> str | None:
    if quoted is None or len(quoted) > _LONGEST_CAPTURE:
        return None
    try:
        return _decode_string(quoted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def identify(line: bytes) -> LineIdentity:
    """Return the identity of a whole line."""
    scan = ShallowScan()
    scan.feed(line)
    return scan.identity()
