"""Where a value came from: the line on the wire behind every message, block and control frame.

The rule of this file: a typed value never copies the wire, it points at it. A message holds the
bytes of its line; a part of a message (a block, the body of a request) holds the same bytes and
the path to itself. `.raw` parses them when somebody asks, so decoding pays for the fields alone
and an unread message costs its line and its fields, nothing more.

The slots live outside the msgspec fields on purpose: `==`, `repr()` and pattern matching see
fields only, and `msgspec.structs.replace()` gives a value that no longer claims to be the wire's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

__all__ = [
    "JsonObject",
    "Path",
    "Sourced",
    "attach",
    "bind",
    "line_of",
    "line_size",
    "parse_json",
    "repair_json",
    "revive",
    "spell_path",
    "tag_of",
    "to_wire",
]

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as Python reads it; the values are whatever the other side wrote."""

Path: TypeAlias = tuple[str | int, ...]


class Sourced:
    """Mixin for msgspec structs that may have been read from the wire.

    The slots stay unset on a value built by hand; its `.raw` is made from its fields.
    """

    __slots__ = ("_line", "_misfits", "_path")

    _line: bytes
    _misfits: tuple[str, ...]
    _path: Path

    @property
    def raw(self) -> Any:
        """The JSON value on the wire, whole. Parsed anew at each reading: keep it if you need it.

        What Python text and numbers cannot hold is replaced: half a surrogate pair, or bytes in
        an unknown field that are not UTF-8, read as U+FFFD; a number beyond every range reads as
        an infinity.
        """
        line = getattr(self, "_line", None)
        if line is None:
            return to_wire(self)
        value = parse_json(line)
        try:
            for step in getattr(self, "_path", ()):
                value = value[step]
        except LookupError:
            return None  # stands for a part the line should have had
        return value

    @property
    def misfits(self) -> tuple[str, ...]:
        """The fields whose wire value did not fit, or was missing though the field is required.

        Written as paths: `num_turns`, `message.content[0].text`. Such a field holds its default;
        `.raw` still has what was sent.
        """
        return getattr(self, "_misfits", ())

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles keep the wire behind them; a struct alone would save its fields only.
        names = cast(msgspec.Struct, self).__struct_fields__
        values = {name: getattr(self, name) for name in names}
        slots = {name: getattr(self, name) for name in Sourced.__slots__ if hasattr(self, name)}
        return revive, (type(self), values, slots)

    def __copy__(self) -> Sourced:
        return self  # frozen: a copy could not come to differ


attach = cast(Callable[[Sourced, str, object], None], msgspec.structs.force_setattr)
"""Set a slot of a frozen value; for those who made the value, before anybody else has it."""


def revive(kind: Callable[..., Any], values: JsonObject, slots: JsonObject) -> Any:
    """A value anew, from its fields and what its slots held; what copies and pickles call."""
    value = kind(**values)
    for name, content in slots.items():
        attach(value, name, content)
    return value


def bind(part: Sourced, whole: Sourced, *path: str | int) -> None:
    """Point `part` at its place in the line behind `whole`, once; by hand built: do nothing.

    The misfits of the whole that lie below the path become the part's own.
    """
    line = getattr(whole, "_line", None)
    if line is None or hasattr(part, "_line"):
        return
    attach(part, "_line", line)
    attach(part, "_path", (*getattr(whole, "_path", ()), *path))
    if whole.misfits:
        prefix = spell_path(path) + "."
        own = tuple(name[len(prefix) :] for name in whole.misfits if name.startswith(prefix))
        attach(part, "_misfits", own)


def line_size(value: Sourced) -> int:
    """The bytes of the line a value was read from; 0 for one built by hand."""
    return len(getattr(value, "_line", b""))


def line_of(value: Sourced) -> bytes:
    """The line a value was read from, without its ending; empty for one built by hand."""
    return getattr(value, "_line", b"").rstrip(b"\r\n")


def spell_path(path: Path) -> str:
    """Write a path the way Python reads it: `message.content[0].text`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


# ------------------------------------------------------------------------- JSON, both ways

_decode = msgspec.json.Decoder(float_hook=float).decode  # `float` knows infinity, msgspec does not

# Compiled when first needed: hardly any line is odd.
# In JSON a backslash stands inside strings only, so escapes can be found without a parser:
# whole pairs first, then halves, then every other escape, which hides its second character.
_ESCAPE = (
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\."
)
_LONG_INTEGER = rb'"(?:[^"\\]|\\.)*"|(-?)[0-9]{4000,}(?![0-9.eE])'


def parse_json(line: bytes) -> Any:
    """Parse one line; `ValueError` or `RecursionError` where it is no JSON we can hold."""
    try:
        return _decode(line)
    except ValueError:
        return _decode(repair_json(line))


def repair_json(line: bytes) -> bytes:
    """Rewrite what JSON allows and Python text or numbers do not; other lines stay as they are.

    JavaScript writes half a surrogate pair when it cuts a string inside an emoji: U+FFFD takes
    its place, and that of bytes that are not UTF-8. An integer too long for the interpreter to
    convert becomes an infinity.
    """
    line = line.decode("utf-8", "replace").encode()
    line = re.sub(_ESCAPE, lambda found: rb"\ufffd" if found[1] else found[0], line)
    return re.sub(
        _LONG_INTEGER,
        lambda found: found[0] if found[1] is None else found[1] + b"1e999",
        line,
    )


def to_wire(value: object) -> Any:
    """The JSON value of structs built by hand: wire names, tags, fields that are None left out."""
    if isinstance(value, list | tuple):
        return [to_wire(item) for item in cast("list[object]", value)]
    if not isinstance(value, msgspec.Struct):
        return value
    if "raw" in value.__struct_fields__:  # an Unknown… value keeps its wire form
        return getattr(value, "raw")  # noqa: B009  # a field, as just seen, which Struct lacks
    config = value.__struct_config__
    members: JsonObject = {} if config.tag is None else {str(config.tag_field): config.tag}
    for name, wire_name in zip(
        value.__struct_fields__, value.__struct_encode_fields__, strict=True
    ):
        content = getattr(value, name)
        if content is not None:
            members[wire_name] = to_wire(content)
    return members


def tag_of(value: msgspec.Struct) -> str:
    """The word on the wire that chose this class."""
    return str(value.__struct_config__.tag)
