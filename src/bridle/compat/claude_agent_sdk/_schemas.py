"""Make the JSON schema of a tool from what the program gives for ``input_schema``."""

from __future__ import annotations

import enum
import types
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from bridle._spi import OutputType
from bridle.messages import JsonObject

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_QUALIFIERS = (Required, NotRequired)


def input_schema(given: Any) -> JsonObject:
    """Return the schema for a JSON schema, a mapping from name to type, or a class.

    All names of a mapping are required, as in the official SDK.
    """
    if isinstance(given, dict):
        fields = cast("JsonObject", given)
        if isinstance(fields.get("type"), str):
            return fields
        return {
            "type": "object",
            "properties": {name: _schema(kind) for name, kind in fields.items()},
            "required": list(fields),
        }
    if is_typeddict(given) or _describes_itself(given):
        return _schema(given)
    return {"type": "object", "properties": {}}


def _describes_itself(kind: Any) -> bool:
    marks = ("__dataclass_fields__", "__struct_fields__", "model_json_schema")
    return isinstance(kind, type) and any(hasattr(kind, mark) for mark in marks)


def _schema(kind: Any) -> JsonObject:
    if isinstance(kind, str):  # the description of a text
        return {"type": "string"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        notes = [note for note in arguments[1:] if isinstance(note, str)]
        schema = _schema(arguments[0])
        return {**schema, "description": notes[0]} if notes else schema
    if origin in _QUALIFIERS:
        return _schema(arguments[0])
    if origin in (Union, types.UnionType):
        members = [_schema(one) for one in arguments if one is not type(None)]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if origin is Literal:
        return {"enum": list(arguments)}
    if kind is list or origin is list:
        items: JsonObject = {"items": _schema(arguments[0])} if arguments else {}
        return {"type": "array", **items}
    if kind is dict or origin is dict:
        return {"type": "object"}
    if is_typeddict(kind):
        return _typed_dict(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if _describes_itself(kind):
        return cast("JsonObject", OutputType(kind).schema)
    return {} if kind is Any else {"type": _SCALARS.get(cast("type", kind), "string")}


def _typed_dict(kind: Any) -> JsonObject:
    hints = get_type_hints(kind, include_extras=True)
    schema: JsonObject = {
        "type": "object",
        "properties": {name: _schema(hint) for name, hint in hints.items()},
    }
    # With `from __future__ import annotations`, Python does not see NotRequired itself.
    known = cast("frozenset[str]", kind.__required_keys__)
    required = sorted(
        name
        for name, hint in hints.items()
        if get_origin(hint) is Required or (name in known and get_origin(hint) is not NotRequired)
    )
    return {**schema, "required": required} if required else schema
