"""The codec: one line of the wire to one typed value, and values back to lines.

The rule of this file: decoding is total. Every line becomes a value, at worst `MalformedLine`;
nothing a CLI may write raises. Two roads lead there:

* the straight one: msgspec reads the line into its class in one pass, choosing by `type` (and, in
  control frames, blocks and stream events, by their own tag); `system` lines take a second pass,
  their class depends on `subtype`;
* the patient one, taken when the straight one fails: the line is parsed as plain JSON and the
  class rebuilt field by field. What does not fit keeps its default and is named in `.misfits`;
  what has an unknown tag becomes the `Unknown…` of its family.

Encoding is strict: what JSON cannot say raises `Unencodable`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from bridle._api import ApiEvent
from bridle._raw_line import JsonObject, MisfitLine, Path, attach, parse_json, spell_path
from bridle._system import SYSTEM_KINDS
from bridle.content import Block, Content, UnknownBlock
from bridle.controls import (
    Answer,
    CanUseToolRequest,
    ControlCancel,
    ControlFailure,
    ControlFrame,
    ControlRequest,
    ControlResponse,
    IncomingRequest,
    UnknownControlRequest,
)
from bridle.messages import (
    Delta,
    Frame,
    MalformedLine,
    Message,
    SystemMessage,
    UnknownDelta,
    UnknownMessage,
    UnknownStreamEvent,
    UnknownSystemMessage,
)

__all__ = [
    "Unencodable",
    "decode_line",
    "encode_error",
    "encode_json",
    "encode_request",
    "encode_success",
    "encode_user_message",
    "utf8",
]

_WellFormed: TypeAlias = Message | ControlRequest | ControlResponse | ControlCancel

# ------------------------------------------------------------------------- the straight road

_KINDS: dict[str, type[Message | ControlFrame]] = {
    str(kind.__struct_config__.tag): kind
    for family in (Message, ControlFrame)
    for kind in family.__subclasses__()
    if kind is not UnknownMessage
}


def _first_decode(line: bytes) -> Any:
    """Build the decoder, which takes milliseconds, when there is something to decode."""
    global _decode
    union: Any = Union[tuple(_KINDS.values())]  # noqa: UP007  # the arms come from a table
    _decode = msgspec.json.Decoder(union).decode
    return _decode(line)


_decode: Callable[[bytes], Any] = _first_decode


@cache
def _system_decoder(kind: type[SystemMessage]) -> msgspec.json.Decoder[SystemMessage]:
    return msgspec.json.Decoder(kind)


def decode_line(line: bytes) -> Frame:
    """Read one line, with or without its line ending. Never raises.

    Unknown types, subtypes and blocks arrive as `UnknownMessage`, `UnknownSystemMessage`,
    `UnknownControlRequest` and `UnknownBlock`; a known kind keeps its class whatever its fields
    hold (see `.misfits`). A line that is not JSON, not an object, nested beyond measure, or not
    UTF-8 where it is read, is a `MalformedLine`.
    """
    try:
        frame: _WellFormed = _decode(line)
        if type(frame) is SystemMessage:
            kind = SYSTEM_KINDS.get(frame.subtype, UnknownSystemMessage)
            frame = _system_decoder(kind).decode(line)
    except (ValueError, RecursionError):
        return _decode_patiently(line)
    attach(frame, "_place", line)
    return frame


def decode_all(items: Sequence[Any]) -> tuple[list[Any], set[type]]:
    """`decode_line` of every line among the items, and the kinds of what came of it.

    Whatever is no line stays as it is. A read may hold hundreds of lines, so none of the usual
    steps is a step of Python's.
    """
    try:
        frames: list[Any] = list(map(_decode, items))
        deque(map(attach, frames, ["_place"] * len(frames), items), maxlen=0)
    except (TypeError, ValueError, RecursionError):  # something odd is among them
        frames = [decode_line(item) if isinstance(item, bytes) else item for item in items]
    kinds: set[type] = set(map(type, frames))
    if SystemMessage in kinds:
        frames = [
            decode_line(line) if type(frame) is SystemMessage else frame
            for frame, line in zip(frames, items, strict=True)
        ]
        kinds = set(map(type, frames))
    return frames, kinds


# ------------------------------------------------------------------------- the patient road


def _decode_patiently(line: bytes) -> Frame:
    misfits: list[str] = []
    said = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        said.decode()
        value = parse_json(said)
        if not isinstance(value, dict):
            return MalformedLine("not a JSON object", said)
        members = cast(JsonObject, value)
        frame: _WellFormed = _rebuild(_kind_of(members), members, (), misfits)
    except RecursionError:
        return MalformedLine("nested too deeply", said)
    except UnicodeDecodeError as error:
        return MalformedLine(f"not UTF-8: {error.reason} at byte {error.start}", said)
    except ValueError as error:
        return MalformedLine(f"not JSON: {error}", said)
    attach(frame, "_place", MisfitLine(line, tuple(misfits)))
    return frame


def _kind_of(members: JsonObject) -> type[Message | ControlFrame]:
    """The class of a line, by the words of its writer."""
    kind = _KINDS.get(_word(members, "type"), UnknownMessage)
    if kind is SystemMessage:
        return SYSTEM_KINDS.get(_word(members, "subtype"), UnknownSystemMessage)
    return kind


def _word(members: JsonObject, name: str) -> str:
    word = members.get(name)
    return word if isinstance(word, str) else ""


_NOTHING: Any = object()  # the answer of _fit when nothing of the value can be used

# Names other writers of this protocol use.
_ALIASES: dict[tuple[type, str], str] = {
    (CanUseToolRequest, "input"): "tool_input",
    (ControlFailure, "error"): "message",
}

# What stands for a member of the family whose tag is unknown, or that is no object.
_UNKNOWN: dict[type, Callable[[str, Any], Struct]] = {
    Block: UnknownBlock,
    Delta: UnknownDelta,
    ApiEvent: UnknownStreamEvent,
    IncomingRequest: UnknownControlRequest,
    Answer: lambda _subtype, _value: ControlFailure(""),
}


@cache
def _fields(kind: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _rebuild(kind: type[Struct], members: JsonObject, path: Path, misfits: list[str]) -> Any:
    """Make a `kind` of the members that fit; the names of the others go to `misfits`."""
    values: JsonObject = {}
    for info in _fields(kind):
        here = (*path, info.encode_name if info.name.startswith("_") else info.name)
        name = info.encode_name
        if name not in members:
            name = _ALIASES.get((kind, name), name)
        if name in members:
            value = _fit(info.type, members[name], here, misfits)
        elif info.required:
            value = _NOTHING
        else:
            continue
        if value is not _NOTHING:
            values[info.name] = value
            continue
        misfits.append(spell_path(here))
        if info.required:
            values[info.name] = _blank(info.type, members.get(name))
    return kind(**values)


def _fit(wanted: Any, value: object, path: Path, misfits: list[str]) -> Any:
    """`value` as the type `wanted`, as much of it as fits; `_NOTHING` if that is nothing."""
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        pass
    arms = _arms(wanted)
    if isinstance(value, list):
        items = enumerate(cast("list[object]", value))
        for arm in arms:
            if get_origin(arm) in (list, tuple):
                fitted = [item for _, item in _fit_each(get_args(arm)[0], items, path, misfits)]
                return fitted if get_origin(arm) is list else tuple(fitted)
    elif isinstance(value, dict):
        members = cast(JsonObject, value)
        for arm in arms:
            if get_origin(arm) is dict:
                return dict(_fit_each(get_args(arm)[1], members.items(), path, misfits))
            if isinstance(arm, type) and issubclass(arm, Struct):
                return _fit_struct(wanted, members, path, misfits)
    return _NOTHING


def _fit_each(
    wanted: Any, entries: Iterable[tuple[str | int, object]], path: Path, misfits: list[str]
) -> Iterator[tuple[str | int, Any]]:
    """The entries of a list or an object that can be used, each under its index or name."""
    for key, entry in entries:
        here = (*path, key)
        value = _fit(wanted, entry, here, misfits)
        if value is _NOTHING:
            misfits.append(spell_path(here))
            if _family(wanted) is None:
                continue
            value = _blank(wanted, entry)  # a block keeps its place: its neighbours count on it
        yield key, value


def _fit_struct(wanted: Any, members: JsonObject, path: Path, misfits: list[str]) -> Any:
    """The class of a union that the tag names, rebuilt; without tags, the only class."""
    kinds = [arm for arm in _arms(wanted) if arm is not NoneType]
    family = _family(wanted)
    if family is None:
        return _rebuild(kinds[0], members, path, misfits)
    tag_field = kinds[0].__struct_config__.tag_field
    tag = _word(members, tag_field)
    for kind in kinds:
        if kind.__struct_config__.tag == tag:
            return _rebuild(kind, members, path, misfits)
    if family is Answer:  # whoever waits for it must hear that it is none
        misfits.append(spell_path((*path, tag_field)))
        return _rebuild(ControlFailure, members, path, misfits)
    return _UNKNOWN[family](tag, members)


def _blank(wanted: Any, value: object) -> Any:
    """What a required field holds when `value` cannot be used for it."""
    family = _family(wanted)
    if family is not None:
        return _UNKNOWN[family]("", value)
    return None if wanted is Any else (get_origin(wanted) or wanted)()


def _arms(wanted: Any) -> tuple[Any, ...]:
    return get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)


def _family(wanted: Any) -> type | None:
    """The family of tagged classes a type chooses from, if it does."""
    first = _arms(wanted)[0]
    if not isinstance(first, type):
        return None
    return next((family for family in _UNKNOWN if issubclass(first, family)), None)


# ------------------------------------------------------------------------- encoding


class Unencodable(ValueError):
    """A value that JSON cannot say: a foreign type, half a surrogate pair, a cycle.

    The only error the encoders raise. NaN and the infinities are not errors: they become null.
    """


def encode_request(request_id: str, subtype: str, fields: Mapping[str, object]) -> bytes:
    """Return a control request."""
    body = _whole(encode_json({"subtype": subtype, **fields}))
    return b"".join((_REQUEST, _encode(request_id), b',"request":', body, b"}\n"))


def encode_success(request_id: str, body: bytes) -> bytes:
    """Return the response to a request of the CLI, around a body that is JSON already."""
    return b"".join((_SUCCESS, _encode(request_id), b',"response":', _whole(body), b"}}\n"))


_REQUEST = b'{"type":"control_request","request_id":'
_SUCCESS = b'{"type":"control_response","response":{"subtype":"success","request_id":'


def encode_error(request_id: str, text: str) -> bytes:
    """Return the error response to a request of the CLI."""
    response = {"subtype": "error", "request_id": request_id, "error": text}
    return _line({"type": "control_response", "response": response})


def encode_user_message(
    content: Content,
    uuid: str,
    *,
    session_id: str = "",
    parent_tool_use_id: str | None = None,
    priority: str | None = None,
    is_synthetic: bool = False,
    client_composed: bool = False,
) -> bytes:
    """A prompt: text, or blocks given as our structs or as plain mappings.

    A block that was read from the wire is written as it was read. `client_composed` keeps the
    CLI from taking slash commands and `@paths` out of the text.
    """
    if not isinstance(content, str):
        content = _blocks(content)
    line: JsonObject = {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": parent_tool_use_id,
        "session_id": session_id,
        "uuid": uuid,
    }
    if priority is not None:
        line["priority"] = priority
    if is_synthetic:
        line["isSynthetic"] = True
    if client_composed:
        line["client_composed"] = True
    return _line(line)


def _blocks(content: object) -> list[Any]:
    """Blocks as plain JSON. The CLI dies of a prompt that is none, so anything else is refused."""
    if not isinstance(content, list | tuple):
        raise Unencodable(f"a prompt is text or a list of blocks, not {type(content).__name__}")
    blocks = [
        block.raw if isinstance(block, Block) else block
        for block in cast("Sequence[object]", content)
    ]
    for block in blocks:
        kind = (
            cast("Mapping[str, object]", block).get("type") if isinstance(block, Mapping) else None
        )
        if not isinstance(kind, str):
            raise Unencodable(f"{type(cast('object', block)).__name__} is no block: it has no type")
    return blocks


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    raise TypeError(f"{type(value).__name__} is no JSON type")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def encode_json(value: object) -> bytes:
    """Any value; what cannot be written raises `Unencodable`."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise Unencodable(f"cannot be written as JSON: {error}") from error


def utf8(text: str) -> str:
    """Return text that JSON can carry: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _line(value: JsonObject) -> bytes:
    return _whole(encode_json(value)) + b"\n"


def _whole(json: bytes) -> bytes:
    """JSON that fits into a line. Only a ready-made msgspec.Raw can bring a line break in."""
    if 0x0A in json:
        raise Unencodable("cannot be written as JSON: a raw value holds a line break")
    return json
