"""The raw line of every message, content block and control frame.

A typed value does not copy the parsed JSON. It holds its place on the line that it was read from.
The place of a message is the line itself. A part of a message (a content block, the body of a
control request) gets its place, the line and the path to the part, when the part is first read.
`.raw` parses the line at each access, so decoding a message costs only its fields.

The place is kept outside the msgspec fields: `==`, `repr()` and pattern matching see only the
fields, and a value made by `msgspec.structs.replace()` has no raw line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias, cast

import msgspec

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as a Python dict. The values are what the other side sent."""

Path: TypeAlias = tuple[str | int, ...]


_SLOTS = ("_place", "_agent")
"""The slots outside the fields: see `Sourced`, and `bridle.messages._message` for the other."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """The place of a part of a message: its line, the path to its container, and its key there.

    A place refers to the line and not to the message, so values and places form no cycle. A content
    block that is kept keeps only its line alive.
    """

    line: bytes
    parent: Path
    step: str | int
    misfits: tuple[str, ...] = ()


class MisfitLine(msgspec.Struct, frozen=True, gc=False):
    """A line with fields that do not fit their types."""

    line: bytes
    misfits: tuple[str, ...]


class Sourced:
    """Mixin for msgspec structs that may have been read from the wire.

    In a value built by hand the slot is unset, and `.raw` is made from the fields.
    """

    __slots__ = ("_place",)

    # In a message: its line, and after its parts are bound a place on the line (with a path that is
    # not used). In a part: its place. There is one slot because checking for an unset slot is slow.
    _place: bytes | MisfitLine | Place

    @property
    def raw(self) -> Any:
        """The whole JSON value as received. Each access parses it again: keep it to reuse it.

        Text and numbers that Python cannot hold are replaced. Half a surrogate pair, or bytes in an
        unknown field that are not UTF-8, become U+FFFD. A number out of range becomes an infinity.
        """
        place = getattr(self, "_place", None)
        if place is None:
            return to_wire(self)
        value = parse_json(_line_at(place))
        return value if isinstance(self, WholeLine) else _walk(value, place)

    @property
    def misfits(self) -> tuple[str, ...]:
        """The fields whose wire value did not fit, or was missing although the field is required.

        They are written as paths: `num_turns`, `message.content[0].text`. Such a field has its
        default value; `.raw` has the value that was received.
        """
        place = getattr(self, "_place", b"")
        return () if isinstance(place, bytes) else place.misfits

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles keep the raw line. The default for structs keeps only the fields.
        names = cast(msgspec.Struct, self).__struct_fields__
        values = {name: getattr(self, name) for name in names}
        slots = {name: getattr(self, name) for name in _SLOTS if hasattr(self, name)}
        return revive, (type(self), values, slots)

    def __copy__(self) -> Self:
        return self  # the value is frozen, so a copy is not needed


class WholeLine(Sourced):
    """Mixin for structs that are read from a whole line. Their parts use `Sourced`."""

    __slots__ = ()

    @property
    def raw_line(self) -> bytes:
        """The bytes of the line as received, without the line ending.

        Empty for a value built by hand. Decoding keeps the line, so this costs nothing until it
        is read.
        """
        return _line_at(getattr(self, "_place", b"")).rstrip(b"\r\n")


attach = cast(Callable[[Sourced, str, object], None], msgspec.structs.force_setattr)
"""Set a slot of a frozen value. Only for code that has just created the value."""


def revive(kind: Callable[..., Any], values: JsonObject, slots: JsonObject) -> Any:
    """Create a value from its fields and slots. Copies and pickles call this."""
    value = kind(**values)
    for name, content in slots.items():
        attach(value, name, content)
    return value


def bind_part(whole: WholeLine, part: Sourced, name: str) -> None:
    """Set the place of `part`, the only part of `whole` and its member `name`, if it is not set."""
    line = unbound_line(whole)
    if line is not None:
        attach(part, "_place", place_at(line, (), name))
        mark_bound(whole, line)


def unbound_line(whole: WholeLine) -> bytes | MisfitLine | None:
    """Return the line of `whole` if its parts have no places yet, otherwise None.

    None is also returned if `whole` was built by hand. Parts get their places once, when they are
    first read: a block that the user adds to the content of a message later has no place on the
    line.
    """
    try:
        line = whole._place  # pyright: ignore[reportPrivateUsage]
    except AttributeError:
        return None
    return None if isinstance(line, Place) else line


def place_at(line: bytes | MisfitLine, parent: Path, step: str | int) -> Place:
    """Return a place on the line, with the misfits that belong to it."""
    if isinstance(line, bytes):
        return Place(line, parent, step)
    prefix = spell_path((*parent, step)) + "."
    own = tuple(name[len(prefix) :] for name in line.misfits if name.startswith(prefix))
    return Place(line.line, parent, step, own)


def mark_bound(whole: WholeLine, line: bytes | MisfitLine) -> None:
    """Record that the parts of `whole` have their places.

    Call this after the places are set, because another thread may read the parts meanwhile.
    """
    if isinstance(line, bytes):
        attach(whole, "_place", Place(line, (), ""))
    else:
        attach(whole, "_place", Place(line.line, (), "", line.misfits))


def line_size(value: Sourced) -> int:
    """Return the size in bytes of the line of a value; 0 for a value built by hand."""
    return len(_line_at(getattr(value, "_place", b"")))


def lines_of(values: Sequence[Sourced]) -> list[bytes]:
    """Return the lines of values, all of which must have been read from the wire."""
    places = [value._place for value in values]  # pyright: ignore[reportPrivateUsage]
    if set(map(type, places)) <= {bytes}:  # the usual case: no part of them was read yet
        return cast("list[bytes]", places)
    return list(map(_line_at, places))


def _line_at(place: bytes | MisfitLine | Place) -> bytes:
    return place if isinstance(place, bytes) else place.line


def _walk(value: Any, place: Place) -> Any:
    try:
        for step in (*place.parent, place.step):
            value = value[step]
    except LookupError:
        return None  # the line lacks the part, and the value has a default in its place
    return value


def spell_path(path: Path) -> str:
    """Return a path in Python syntax: `message.content[0].text`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


# ------------------------------------------------------------------------- JSON

_decode = msgspec.json.Decoder(float_hook=float).decode  # msgspec alone rejects infinity

# Compiled at the first use, because few lines need it. In JSON a backslash occurs only inside
# strings, so a pattern can find escapes: first whole pairs, then halves, then every other escape
# with the character after it.
_ESCAPE = (
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\."
)
_LONG_INTEGER = rb'"(?:[^"\\]|\\.)*"|(-?)[0-9]{4000,}(?![0-9.eE])'


def parse_json(line: bytes) -> Any:
    """Parse one line. Raise `ValueError` or `RecursionError` if Python cannot read it as JSON."""
    try:
        return _decode(line)
    except ValueError:
        return _decode(repair_json(line))


def repair_json(line: bytes) -> bytes:
    """Replace text and numbers that JSON allows and Python cannot hold. Keep everything else.

    JavaScript writes half a surrogate pair when it cuts a string inside an emoji. Such a half, and
    bytes that are not UTF-8, become U+FFFD. An integer that is too long for the interpreter to
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
    """Return the JSON value of structs built by hand, with wire names and tags and without None."""
    if isinstance(value, list | tuple):
        return [to_wire(item) for item in cast("list[object]", value)]
    if not isinstance(value, msgspec.Struct):
        return value
    if "raw" in value.__struct_fields__:  # an Unknown… value has its JSON in a field
        return getattr(value, "raw")  # noqa: B009  # `Struct` does not declare it
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
    """Return the tag on the wire that selects this class."""
    return str(value.__struct_config__.tag)
