"""The raw line behind every message, content block and control frame.

A typed value never copies the wire: it holds its place on the line it was read from. The place of
a message is the line itself. A part of a message (a content block, the body of a control request)
gets its place, the line and the path to the part, when the message hands it out for the first
time. `.raw` parses the line when it is read, so decoding pays for the fields alone.

The place is kept outside the msgspec fields: `==`, `repr()` and pattern matching see the fields
only, and a value made by `msgspec.structs.replace()` has no raw line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias, cast

import msgspec

__all__ = [
    "JsonObject",
    "MisfitLine",
    "Path",
    "Place",
    "Sourced",
    "WholeLine",
    "attach",
    "bind_part",
    "line_of",
    "line_size",
    "lines_of",
    "mark_bound",
    "parse_json",
    "place_at",
    "repair_json",
    "revive",
    "spell_path",
    "tag_of",
    "to_wire",
    "unbound_line",
]

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as Python reads it; the values are whatever the other side wrote."""

Path: TypeAlias = tuple[str | int, ...]


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a part of a message is: its line, the path to what holds it, and the step from there.

    A place refers to the line and never to the message, so values and places form no cycle, and a
    block that is kept keeps its line alive and nothing else.
    """

    line: bytes
    parent: Path
    step: str | int
    misfits: tuple[str, ...] = ()


class MisfitLine(msgspec.Struct, frozen=True, gc=False):
    """A line of which some fields do not fit their types."""

    line: bytes
    misfits: tuple[str, ...]


class Sourced:
    """Mixin for msgspec structs that may have been read from the wire.

    The slot is unset in a value built by hand; its `.raw` is made from its fields.
    """

    __slots__ = ("_place",)

    # In a message: its line, until its parts are bound, and then a place on it (the path is then
    # of no account). In a part: its place. One slot, as it is slow to find that a slot is unset.
    _place: bytes | MisfitLine | Place

    @property
    def raw(self) -> Any:
        """The JSON value on the wire, whole. Parsed anew at each reading: keep it if you need it.

        What Python text and numbers cannot hold is replaced: half a surrogate pair, or bytes in
        an unknown field that are not UTF-8, read as U+FFFD; a number beyond every range reads as
        an infinity.
        """
        place = getattr(self, "_place", None)
        if place is None:
            return to_wire(self)
        value = parse_json(_line_at(place))
        return value if isinstance(self, WholeLine) else _walk(value, place)

    @property
    def misfits(self) -> tuple[str, ...]:
        """The fields whose wire value did not fit, or was missing though the field is required.

        Written as paths: `num_turns`, `message.content[0].text`. Such a field holds its default;
        `.raw` still has what was sent.
        """
        place = getattr(self, "_place", b"")
        return () if isinstance(place, bytes) else place.misfits

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles keep the raw line; a struct alone would save its fields only.
        names = cast(msgspec.Struct, self).__struct_fields__
        values = {name: getattr(self, name) for name in names}
        slots = {name: getattr(self, name) for name in Sourced.__slots__ if hasattr(self, name)}
        return revive, (type(self), values, slots)

    def __copy__(self) -> Self:
        return self  # frozen: a copy could not come to differ


class WholeLine(Sourced):
    """Mixin for the structs that a whole line becomes; `Sourced` alone is for their parts."""

    __slots__ = ()


attach = cast(Callable[[Sourced, str, object], None], msgspec.structs.force_setattr)
"""Set a slot of a frozen value; for the code that made the value, before it hands it out."""


def revive(kind: Callable[..., Any], values: JsonObject, slots: JsonObject) -> Any:
    """Make a value anew from its fields and what its slots held; copies and pickles call this."""
    value = kind(**values)
    for name, content in slots.items():
        attach(value, name, content)
    return value


def bind_part(whole: WholeLine, part: Sourced, name: str) -> None:
    """Give the only part of `whole`, its member `name`, its place on the line, unless it has it."""
    line = unbound_line(whole)
    if line is not None:
        attach(part, "_place", place_at(line, (), name))
        mark_bound(whole, line)


def unbound_line(whole: WholeLine) -> bytes | MisfitLine | None:
    """Return the line of `whole` if its parts have no places yet; None if it was built by hand.

    Parts are bound once, when they are first read: a block that the user puts into the content of
    a message later has no place on the line.
    """
    try:
        line = whole._place  # pyright: ignore[reportPrivateUsage]
    except AttributeError:
        return None
    return None if isinstance(line, Place) else line


def place_at(line: bytes | MisfitLine, parent: Path, step: str | int) -> Place:
    """Return a place on the line, with its share of the misfits."""
    if isinstance(line, bytes):
        return Place(line, parent, step)
    prefix = spell_path((*parent, step)) + "."
    own = tuple(name[len(prefix) :] for name in line.misfits if name.startswith(prefix))
    return Place(line.line, parent, step, own)


def mark_bound(whole: WholeLine, line: bytes | MisfitLine) -> None:
    """Remember that the parts of `whole` have their places.

    Called last: a second thread that reads the parts meanwhile must not find them unbound.
    """
    if isinstance(line, bytes):
        attach(whole, "_place", Place(line, (), ""))
    else:
        attach(whole, "_place", Place(line.line, (), "", line.misfits))


def line_size(value: Sourced) -> int:
    """Return the bytes of the line a value was read from; 0 for one built by hand."""
    return len(_line_at(getattr(value, "_place", b"")))


def line_of(value: Sourced) -> bytes:
    """Return the line a value was read from, without its ending; empty for one built by hand."""
    return _line_at(getattr(value, "_place", b"")).rstrip(b"\r\n")


def lines_of(values: Sequence[Sourced]) -> list[bytes]:
    """Return the lines that many values were read from; none of them may be built by hand."""
    places = [value._place for value in values]  # pyright: ignore[reportPrivateUsage]
    if set(map(type, places)) <= {bytes}:  # as a rule: nothing of them was read yet
        return cast("list[bytes]", places)
    return list(map(_line_at, places))


def _line_at(place: bytes | MisfitLine | Place) -> bytes:
    return place if isinstance(place, bytes) else place.line


def _walk(value: Any, place: Place) -> Any:
    try:
        for step in (*place.parent, place.step):
            value = value[step]
    except LookupError:
        return None  # stands for a part the line should have had
    return value


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
