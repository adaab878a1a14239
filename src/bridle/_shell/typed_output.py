"""Typed output: make the JSON schema of a Python type, and convert structured output to the type.

msgspec handles dataclasses, TypedDicts and its Structs. Pydantic models, and any other class with
``model_json_schema`` and ``model_validate``, are handled by these two methods. So pydantic is never
imported here.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from bridle._fields import is_list, is_mapping
from bridle.errors import OptionsError
from bridle.outcomes import Outcome, OutcomeReason

_FIX = "Give a dataclass, a TypedDict, a msgspec.Struct or a pydantic model."


def schema_of(output_type: Any) -> dict[str, object]:
    """Return the JSON schema of a type, with an object at the top.

    Raises:
        OptionsError: the type has no JSON schema, or its schema does not describe an object.
    """
    try:
        if _is_model(output_type):
            schema = cast("dict[str, Any]", output_type.model_json_schema())
        else:
            schema = msgspec.json.schema(output_type)
    except Exception as error:  # code of the user may make the schema of a model
        raise OptionsError("output_type", f"has no JSON schema: {error}", fix=_FIX) from None
    return _object_schema(schema)


def _object_schema(schema: dict[str, Any]) -> dict[str, object]:
    """Resolve the reference at the top of a schema, because the CLI needs an object there."""
    reference = str(schema.get("$ref", ""))
    name = reference.removeprefix("#/$defs/")
    top = {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema
    if top.get("type") != "object":
        raise OptionsError("output_type", "does not describe a JSON object", fix=_FIX)
    parts: dict[str, Any] = top.get("$defs", {})
    # A type that refers to itself needs its own definition.
    if name and not _refers(parts, reference):
        parts = {key: value for key, value in parts.items() if key != name}
    result = {key: value for key, value in top.items() if key != "$defs"}
    return {**result, "$defs": parts} if parts else result


def _refers(schema: object, reference: str) -> bool:
    """Return whether a schema contains this reference."""
    if is_mapping(schema):
        return schema.get("$ref") == reference or any(
            _refers(value, reference) for value in schema.values()
        )
    return is_list(schema) and any(_refers(value, reference) for value in schema)


def with_output(outcome: Outcome[Any], output_type: Any) -> Outcome[Any]:
    """Return the outcome with its output converted, or a failed outcome if that is not possible."""
    if not outcome.ok:
        return outcome
    try:
        output = _load(output_type, outcome.structured_output)
    except Exception as error:  # validators of a model are code of the user
        detail = f"the structured output does not fit: {_problem(error)}"
        failed = OutcomeReason.OUTPUT_INVALID
        return msgspec.structs.replace(outcome, reason=failed, detail=detail[:500])
    return msgspec.structs.replace(outcome, output=output)


def _problem(error: Exception) -> str:
    """Describe what is wrong with an output. Omit the output itself, which pydantic quotes."""
    found: object = getattr(error, "errors", None)
    if not callable(found):
        return str(error)
    try:
        told = cast("list[dict[str, Any]]", found(include_url=False, include_input=False))
        places = [".".join(map(str, one["loc"])) for one in told]
        return "; ".join(f"{place}: {one['msg']}" for place, one in zip(places, told, strict=True))
    except Exception:  # the exception is not pydantic's
        return type(error).__name__


def _is_model(kind: object) -> bool:
    return hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


def _load(output_type: Any, value: object) -> object:
    if _is_model(output_type):
        return output_type.model_validate(value)
    return msgspec.convert(value, output_type)
