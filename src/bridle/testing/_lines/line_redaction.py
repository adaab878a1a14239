"""Mask secrets in the lines of a recording, also in texts that arrive in several deltas.

:mod:`bridle.errors._redaction` defines what a secret is. This module finds the places: the value of
a key, of a pair in a list, of an object with a name and a value, of a flag; text in a string, and
JSON in a string. It reads lines token by token, so deep nesting and invalid JSON do not stop it.
Everything that is not masked stays unchanged, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from bridle.errors._redaction import (
    CONTEXT,
    MASK,
    Redactor,
    Secret,
    escaped,
    is_bag,
    is_count,
    is_secret_name,
    unescaped,
)

_LONGEST = 1 << 16
"""How many characters of an unfinished secret, such as a private key, are remembered."""


class LineRedactor:
    """Masks secrets in the lines of one session. Pass the lines in order."""

    #: What takes the place of a secret.
    MASK = MASK

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._all = Redactor(secrets)
        # Checks the whole line first. Its strings are searched only if it has a known value.
        self._guesses = Redactor()
        self._guesses.masked = self._all.masked
        # Texts that are being streamed, by thread and block.
        self._pieces: dict[tuple[str, object], Pieces] = {}

    @property
    def masked(self) -> dict[str, int]:
        """The number of masked secrets, by how they were found: ``value``, ``name``, ``look``."""
        return self._all.masked

    def line(self, line: str) -> str:
        """Return a line with its secrets masked. JSON stays JSON. Other lines are text."""
        if '"stream_event"' in line:
            line = self._streamed(line)
        return self._redacted(line)

    def _redacted(self, line: str) -> str:
        if line.lstrip()[:1] not in ("{", "["):
            return self._all.text(line)
        # Unnecessary escapes, and escapes of escapes, may hide a known value.
        is_odd = "\\u00" in line or "\\/" in line or "\\\\" in line
        known = is_odd or self._all.knows(line)
        return _JsonLine(self._all if known else self._guesses, line).redacted()

    def _streamed(self, line: str) -> str:
        """Return a line with a text delta, with secrets masked that span several deltas."""
        try:
            frame: Any = json.loads(line)
            event, thread = frame["event"], str(frame.get("parent_tool_use_id"))
            if event["type"] == "message_start":
                self._pieces = {key: one for key, one in self._pieces.items() if key[0] != thread}
            if event["type"] != "content_block_delta":
                return line
            text = self._pieces.setdefault((thread, event.get("index")), Pieces(self._all))
            delta = event["delta"]
            for name in ("text", "thinking", "partial_json"):
                if isinstance(delta.get(name), str):
                    before, delta[name] = delta[name], text.redact(delta[name])
                    if before != delta[name]:
                        line = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            pass  # not a valid delta
        return line


class Pieces:
    """Masks secrets in a text that arrives in parts, as soon as the start of one is seen."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # The end of the text so far, unmasked, and whether its last part was masked.
        self._before = ""
        self._is_masked = False

    def redact(self, piece: str) -> str:
        """Mask the next part. It may become empty if it continues a masked secret."""
        whole, at = self._before + piece, len(self._before)
        secrets = self._redactor.find(whole)
        begins = self._redactor.find_beginning(whole)
        if begins < len(whole):
            secrets = [one for one in secrets if one.end <= begins]
            secrets.append(Secret(begins, len(whole), "value"))
        shown: list[str] = []
        for start, end, way in secrets:
            if end <= at:
                continue
            goes_on = self._is_masked and start < len(self._before)
            self._redactor.masked[way] += not goes_on
            shown += (whole[at : max(start, at)], "" if goes_on else MASK)
            at = end
        shown.append(whole[at:])
        self._is_masked = bool(secrets) and secrets[-1].end == len(whole)
        kept = _LONGEST if self._is_masked else CONTEXT
        self._before = whole[-kept:]
        return "".join(shown)


# ------------------------------------------------------------------------- lines of JSON

# A string with its closing quote, if it has one; a punctuation character; anything else.
_TOKEN = r'(?s)"([^"\\]*+(?:\\.[^"\\]*+)*+)("?)|([{}\[\]:,])|([^\s"{}\[\]:,]+)'
_LITERAL = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity"

_NAMING = frozenset({"name", "key", "header", "variable"})
_SHORT_NUMBER = 6


class _Container:
    """An object or array of the line that is being read."""

    __slots__ = (
        *("counts", "in_bag", "is_bag", "is_list", "is_schema", "is_secret"),
        *("key", "last", "pair"),
    )

    def __init__(self, parent: _Container | None, *, is_list: bool) -> None:
        key = parent.key if parent is not None else ""
        self.is_list: bool = is_list
        #: The key whose value comes next.
        self.key: str = ""
        #: In a list, the previous string.
        self.last = ""
        #: In objects with a ``name`` and a ``value``: the name, and the place of the value.
        self.pair: tuple[str, re.Match[str] | None] = ("", None)
        self.is_bag = is_bag(key) if key else False
        self.in_bag: bool = (
            parent is not None and parent.is_list and (parent.is_bag or parent.in_bag)
        )
        # The properties of a schema may be named like secrets, but do not contain any.
        self.is_schema = key == "properties"
        self.is_secret: bool = parent is not None and (
            parent.is_secret
            or (parent.is_bag and not parent.is_list)
            or (bool(key) and not parent.is_schema and is_secret_name(key))
        )
        #: True if numbers in it cannot be secrets.
        self.counts: bool = parent is not None and (parent.counts or is_count(key))
        if parent is not None and parent.is_list and is_list:
            self.last = "\0"  # a pair in a list whose first member has not been read


class _JsonLine:
    """Masks secrets in one line. Reads tokens, so deep nesting and invalid JSON do not stop it."""

    def __init__(self, redactor: Redactor, line: str) -> None:
        self._redactor = redactor
        self._line = line
        self._edits: dict[int, tuple[int, str]] = {}
        self._stack: list[_Container] = []
        self._is_json = True
        self._expects_value = True

    def redacted(self) -> str:
        """Return the line with its secrets masked."""
        for token in re.finditer(_TOKEN, self._line):
            body, quote, mark, literal = token.groups()
            if mark is not None:
                self._mark(mark)
            elif literal is not None:
                self._literal(token, literal)
            else:
                self._is_json = self._is_json and bool(quote)
                self._string(token, body)
        while self._stack:
            self._close()
        text = self._edited()
        return text if self._is_json else self._redactor.text(text)

    def _edited(self) -> str:
        pieces: list[str] = []
        at = 0
        for start, (end, text) in sorted(self._edits.items()):
            pieces += [self._line[at:start], text]
            at = end
        return "".join([*pieces, self._line[at:]])

    def _mark(self, mark: str) -> None:
        if mark in "{[":
            parent = self._stack[-1] if self._stack else None
            self._stack.append(_Container(parent, is_list=mark == "["))
            self._expects_value = mark == "["
        elif mark in "}]":
            if self._stack:
                self._close()
            else:
                self._is_json = False
        else:
            inside_list = not self._stack or self._stack[-1].is_list
            self._expects_value = mark == ":" or inside_list

    def _close(self) -> None:
        inside = self._stack.pop()
        name, place = inside.pair
        if place is not None and name and (is_secret_name(name) or inside.in_bag):
            self._mask(place)

    def _literal(self, token: re.Match[str], text: str) -> None:
        if not re.fullmatch(_LITERAL, text):
            self._is_json = False
        elif not text[-1].isdigit():
            return  # a word
        elif len(text) >= _SHORT_NUMBER and not self._is_counted() and self._is_masked(""):
            self._mask(token)
        elif self._redactor.knows(text):
            self._mask(token, "value")

    def _string(self, token: re.Match[str], body: str) -> None:
        text = unescaped(body)
        inside = self._stack[-1] if self._stack else None
        if inside is not None and not inside.is_list and not self._expects_value:
            inside.key = text
        elif self._is_masked(text):
            self._mask(token)
            return
        self._note(inside, token, text)
        is_json = text.lstrip()[:1] in ("{", "[")
        redactor = self._redactor
        clean = _JsonLine(redactor, text).redacted() if is_json else redactor.text(text)
        if clean == text and inside is not None and inside.is_list and inside.is_bag:
            clean = re.sub(r"^([^=:]+[=:]\s*).+", rf"\1{MASK}", text, flags=re.DOTALL)
            redactor.masked["name"] += clean != text
        if clean != text:
            self._edits[token.start()] = (token.end(), f'"{escaped(clean)}{token[2]}')

    def _note(self, inside: _Container | None, token: re.Match[str], text: str) -> None:
        """Remember keys and names that describe the strings after them."""
        if inside is None:
            return
        if inside.is_list:
            inside.last = f"\0{text}" if inside.last == "\0" else text
        elif self._expects_value and inside.key.lower() in _NAMING:
            inside.pair = (text, inside.pair[1])
        elif self._expects_value and inside.key.lower() == "value":
            inside.pair = (inside.pair[0], token)

    def _is_counted(self) -> bool:
        inside = self._stack[-1] if self._stack else None
        return inside is not None and (inside.counts or is_count(inside.key))

    def _is_masked(self, text: str) -> bool:
        """Return whether the next value is a secret, according to its key or name."""
        if not self._stack:
            return False
        inside = self._stack[-1]
        if inside.is_secret:
            return True
        if inside.is_list:
            if inside.last[:1] == "\0":
                return len(inside.last) > 1 and (inside.in_bag or is_secret_name(inside.last))
            return inside.last[:1] == "-" and text[:1] != "-" and is_secret_name(inside.last)
        return inside.is_bag or (not inside.is_schema and is_secret_name(inside.key))

    def _mask(self, token: re.Match[str], way: str = "name") -> None:
        if token[1] not in ("", MASK):
            self._redactor.masked[way] += 1
            self._edits[token.start()] = (token.end(), f'"{MASK}' + ('"' if token[2] != "" else ""))
