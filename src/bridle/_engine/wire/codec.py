"""Decode lines of the wire into typed values, and encode values into lines.

Decoding is total: every line becomes a value, at worst a `MalformedLine`, and nothing that a CLI
writes raises. There are two ways to decode:

* fast: msgspec reads the line into its class in one pass, chosen by `type` (and, in control
  frames, blocks and stream events, by their own tag). `system` lines take a second pass, because
  their class depends on `subtype`;
* tolerant, if the fast way fails: the line is parsed as plain JSON and the class is rebuilt field
  by field. A field that does not fit keeps its default and is named in `.misfits`. An unknown tag
  becomes the `Unknown…` class of its family.

Encoding is strict: a value that JSON cannot represent raises `Unencodable`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from bridle._records.raw_line import (
    JsonObject,
    MisfitLine,
    Path,
    Place,
    Sourced,
    attach,
    parse_json,
    spell_path,
)
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
from bridle.messages._stream_objects import ApiEvent
from bridle.messages._system import SYSTEM_KINDS

_DENIALS = ("permission-rule", "automode-blocked", "automode-unavailable", "automode-parsing-error")


def may_have_run(kind: object) -> bool:
    """Return whether the tool of a result that is not its own may have run.

    ``kind`` is ``non_execution_kind`` of the wire or ``toolDenialKind`` of transcripts. None is a
    result of the tool. Only known kinds say that the tool did not run.
    """
    return kind is not None and kind not in _DENIALS


_WellFormed: TypeAlias = Message | ControlRequest | ControlResponse | ControlCancel

# ------------------------------------------------------------------------- fast decoding


def _first_decode(line: bytes) -> Any:
    """Load the decoders and decode a line. Threads that call this at the same time wait."""
    global _decode, _decode_system
    from bridle._engine.wire.decoders import decode, decode_system

    _decode_system = decode_system
    _decode = decode  # the last one: other threads read both
    return decode(line)


_decode: Callable[[bytes], Any] = _first_decode
_decode_system: Mapping[type[SystemMessage], Callable[[bytes], SystemMessage]] = {}


def decode_line(line: bytes) -> Frame:
    """Decode one line, with or without its line ending. Never raises.

    Unknown types, subtypes and blocks become `UnknownMessage`, `UnknownSystemMessage`,
    `UnknownControlRequest` and `UnknownBlock`. A known kind keeps its class whatever its fields
    hold (see `.misfits`). A line that is not JSON, not an object, nested too deeply, or not UTF-8
    where it is read becomes a `MalformedLine`.
    """
    try:
        frame: _WellFormed = _decode(line)
        if type(frame) is SystemMessage:
            kind = SYSTEM_KINDS.get(frame.subtype, UnknownSystemMessage)
            frame = _decode_system[kind](line)
    except (ValueError, RecursionError):
        return _decode_patiently(line)
    attach(frame, "_place", line)
    return frame


def decode_all(items: Sequence[Any]) -> tuple[list[Any], set[type]]:
    """Decode every line among the items. Return the frames and the set of their classes.

    Items that are not lines are kept unchanged. A read may hold hundreds of lines, so the common
    case avoids Python loops.
    """
    try:
        frames: list[Any] = list(map(_decode, items))
        deque(map(attach, frames, ["_place"] * len(frames), items), maxlen=0)
    except (TypeError, ValueError, RecursionError):  # one of them needs the slower way
        frames = [decode_line(item) if isinstance(item, bytes) else item for item in items]
    kinds: set[type] = set(map(type, frames))
    if SystemMessage in kinds:
        frames = [
            decode_line(line) if type(frame) is SystemMessage else frame
            for frame, line in zip(frames, items, strict=True)
        ]
        kinds = set(map(type, frames))
    return frames, kinds


# ------------------------------------------------------------------------- tolerant decoding


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
    """Return the class of a line by its `type` and `subtype`."""
    from bridle._engine.wire.decoders import KINDS

    kind = KINDS.get(_word(members, "type"), UnknownMessage)
    if kind is SystemMessage:
        return SYSTEM_KINDS.get(_word(members, "subtype"), UnknownSystemMessage)
    return kind


def _word(members: JsonObject, name: str) -> str:
    word = members.get(name)
    return word if isinstance(word, str) else ""


_NOTHING: Any = object()  # returned by _fit if the value cannot be used

# Field names that other implementations of this protocol use.
_ALIASES: dict[tuple[type, str], str] = {
    (CanUseToolRequest, "input"): "tool_input",
    (ControlFailure, "error"): "message",
}

# Replaces a value of the family whose tag is unknown, or that is not an object.
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
    """Build a `kind` from the fields that fit. Add the names of the others to `misfits`."""
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
    """Convert the parts of `value` that fit the type `wanted`. Return `_NOTHING` if none fit."""
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
    """Yield the usable entries of a list or an object, each with its index or name."""
    for key, entry in entries:
        here = (*path, key)
        value = _fit(wanted, entry, here, misfits)
        if value is _NOTHING:
            misfits.append(spell_path(here))
            if _family(wanted) is None:
                continue
            value = _blank(wanted, entry)  # keep the position of a block in its list
        yield key, value


def _fit_struct(wanted: Any, members: JsonObject, path: Path, misfits: list[str]) -> Any:
    """Rebuild the class of a union that the tag names, or the only class if there are no tags."""
    kinds = [arm for arm in _arms(wanted) if arm is not NoneType]
    family = _family(wanted)
    if family is None:
        return _rebuild(kinds[0], members, path, misfits)
    tag_field = kinds[0].__struct_config__.tag_field
    tag = _word(members, tag_field)
    for kind in kinds:
        if kind.__struct_config__.tag == tag:
            return _rebuild(kind, members, path, misfits)
    if family is Answer:  # the request must end with an error
        misfits.append(spell_path((*path, tag_field)))
        return _rebuild(ControlFailure, members, path, misfits)
    return _UNKNOWN[family](tag, members)


def _blank(wanted: Any, value: object) -> Any:
    """Return the value of a required field if `value` cannot be used for it."""
    family = _family(wanted)
    if family is not None:
        return _UNKNOWN[family]("", value)
    return None if wanted is Any else (get_origin(wanted) or wanted)()


def _arms(wanted: Any) -> tuple[Any, ...]:
    return get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)


def _family(wanted: Any) -> type | None:
    """Return the family of tagged classes that a type chooses from, or None."""
    first = _arms(wanted)[0]
    if not isinstance(first, type):
        return None
    return next((family for family in _UNKNOWN if issubclass(first, family)), None)


# ------------------------------------------------------------------------- replies

_Reply = TypeVar("_Reply")


def decode_reply(kind: type[_Reply], payload: Mapping[str, object] | None) -> _Reply:
    """Decode the payload of a response to a control request. Never raises.

    A payload that is missing counts as empty. NoneType as `kind` ignores the payload.
    """
    if kind is NoneType:
        return cast(_Reply, None)
    misfits: list[str] = []
    members = dict(payload or {})
    reply = _fit(kind, members, (), misfits)
    line = encode_json(members)
    attach(reply, "_place", MisfitLine(line, tuple(misfits)) if misfits else line)
    _bind_parts(reply, members, line, ())
    return cast(_Reply, reply)


def _bind_parts(whole: Struct, members: JsonObject, line: bytes, path: Path) -> None:
    """Set the places of all parts of a reply."""
    for info in _fields(type(whole)):
        value: object = getattr(whole, info.name)
        source: object = members.get(info.encode_name)
        here = (*path, info.encode_name)
        if isinstance(value, Sourced) and isinstance(source, dict):
            _bind(value, cast(JsonObject, source), line, here)
        elif isinstance(value, tuple) and isinstance(source, list):
            # Items of a list that are not objects were left out.
            items = cast("list[object]", source)
            steps = [step for step, item in enumerate(items) if isinstance(item, dict)]
            parts = [one for one in cast("tuple[object, ...]", value) if isinstance(one, Sourced)]
            for part, step in zip(parts, steps, strict=False):
                _bind(part, cast(JsonObject, items[step]), line, (*here, step))


def _bind(part: Sourced, members: JsonObject, line: bytes, path: Path) -> None:
    attach(part, "_place", Place(line, path[:-1], path[-1]))
    _bind_parts(cast(Struct, part), members, line, path)


# ------------------------------------------------------------------------- transcripts


def decode_stored(line: bytes) -> Frame:
    """Decode a line of a transcript file. Never raises.

    Transcripts have the classes of the wire, but write the names beside `message` in camelCase.
    `.raw` and `.raw_line` are those of the transcript.
    """
    frame = decode_line(line)
    if not isinstance(frame, Message) or isinstance(frame, UnknownMessage):
        return frame
    frame = decode_line(encode_json(_wire_names(type(frame), frame.raw)))
    place = cast("bytes | MisfitLine", getattr(frame, "_place"))  # noqa: B009  # private
    own = line if isinstance(place, bytes) else MisfitLine(line, place.misfits)
    attach(cast(Message, frame), "_place", own)
    return frame


def _wire_names(kind: type[Struct], members: JsonObject) -> JsonObject:
    """Return the members with the names of the wire, also inside the records of the class."""
    renamed: JsonObject = {}
    for name, value in members.items():
        wire_name, record = _camel_names(kind).get(name, (name, None))
        if record is not None and isinstance(value, dict):
            value = _wire_names(record, cast(JsonObject, value))
        renamed[wire_name] = value
    if members.get("isMeta") is True or members.get("isCompactSummary") is True:
        renamed["isSynthetic"] = True  # the CLI wrote it, not the user
    return renamed


@cache
def _camel_names(kind: type[Struct]) -> dict[str, tuple[str, type[Struct] | None]]:
    """Return the fields of a class by their camelCase name: the wire name, and their class."""
    found: dict[str, tuple[str, type[Struct] | None]] = {}
    for info in _fields(kind):
        first, *rest = info.encode_name.split("_")
        camel = first + "".join(word.capitalize() for word in rest)
        records = [arm for arm in _arms(info.type) if isinstance(arm, type)]
        record = next((arm for arm in records if issubclass(arm, Struct)), None)
        if rest and first:
            found[camel] = (info.encode_name, record)
    return found


# ------------------------------------------------------------------------- encoding


class Unencodable(ValueError):
    """A value that JSON cannot represent: a foreign type, half a surrogate pair, a cycle.

    It is the only error that the encoders raise. NaN and the infinities are encoded as null.
    """


def encode_request(request_id: str, subtype: str, fields: Mapping[str, object]) -> bytes:
    """Return the line of a control request."""
    body = _whole(encode_json({"subtype": subtype, **fields}))
    return b"".join((_REQUEST, _encode(request_id), b',"request":', body, b"}\n"))


def encode_success(request_id: str, body: bytes) -> bytes:
    """Return the response to an incoming request, with a body that is already JSON."""
    return b"".join((_SUCCESS, _encode(request_id), b',"response":', _whole(body), b"}}\n"))


_REQUEST = b'{"type":"control_request","request_id":'
_SUCCESS = b'{"type":"control_response","response":{"subtype":"success","request_id":'


def encode_error(request_id: str, text: str) -> bytes:
    """Return the error response to an incoming request."""
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
    more: Mapping[str, object] | None = None,
) -> bytes:
    """Return the line of a prompt: text, or blocks as our structs or as plain mappings.

    A block that was decoded from the wire is written unchanged. `client_composed` keeps the CLI
    from interpreting slash commands and `@paths` in the text. `more` has other fields of the line.
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
    return _line({**line, **more} if more else line)


def encode_user_mapping(message: Mapping[str, object]) -> bytes:
    """Return the line of a prompt that is a whole user message, unchanged."""
    return _line(dict(message))


def _blocks(content: object) -> list[Any]:
    """Return blocks as plain JSON. Rejects other values, because the CLI would exit on them."""
    if not isinstance(content, list | tuple):
        raise Unencodable(f"must be text or a list of blocks, got {type(content).__name__}")
    if not content:
        raise Unencodable("is an empty list")
    blocks = [
        block.raw if isinstance(block, Block) else block
        for block in cast("Sequence[object]", content)
    ]
    for block in blocks:
        kind = (
            cast("Mapping[str, object]", block).get("type") if isinstance(block, Mapping) else None
        )
        if not isinstance(kind, str):
            found = type(cast("object", block)).__name__
            raise Unencodable(f"contains a {found}, which is not a content block: it has no type")
    return blocks


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, str):  # msgspec writes only plain strings
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is no JSON type")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def encode_json(value: object) -> bytes:
    """Encode any value. Raises `Unencodable` if JSON cannot represent it."""
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
    """Return JSON that fits into a line. Only a msgspec.Raw value can contain a line break."""
    if 0x0A in json:
        raise Unencodable("cannot be written as JSON: a raw value contains a line break")
    return json
