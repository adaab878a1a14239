"""Typed output: from a Python type to the schema the CLI is given, and from its answer back.

Dataclasses, TypedDicts and msgspec Structs are msgspec's; pydantic models bring their own methods,
so pydantic is never imported here.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from bridle.errors import OptionsError
from bridle.outcomes import Outcome, OutcomeReason

_FIX = "Give a dataclass, a TypedDict, a msgspec.Struct or a pydantic model."


def schema_of(output_type: Any) -> dict[str, object]:
    """The JSON schema of a type, as an object at the top.

    Raises:
        OptionsError: the type has no such schema.
    """
    if _is_model(output_type):
        return cast("dict[str, object]", output_type.model_json_schema())
    try:
        schema = msgspec.json.schema(output_type)
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionsError("output_type", f"has no JSON schema: {error}", fix=_FIX) from None
    return _object_schema(schema)


def _object_schema(schema: dict[str, Any]) -> dict[str, object]:
    """The schema with its reference at the top resolved: the CLI's tool wants an object there."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    top = {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema
    if top.get("type") != "object":
        raise OptionsError("output_type", "is no JSON object", fix=_FIX)
    others = {key: value for key, value in top.get("$defs", {}).items() if key != name}
    result = {key: value for key, value in top.items() if key != "$defs"}
    return {**result, "$defs": others} if others else result


def with_output(outcome: Outcome[Any], output_type: Any) -> Outcome[Any]:
    """The outcome with its structured output as ``output_type``, or as a failure if it is none."""
    if not outcome.ok:
        return outcome
    try:
        output = _load(output_type, outcome.structured_output)
    except Exception as error:  # a model's validators are the user's code and may raise anything
        detail = f"the structured output does not fit: {error}"
        failed = OutcomeReason.OUTPUT_INVALID
        return msgspec.structs.replace(outcome, reason=failed, detail=detail[:500])
    return msgspec.structs.replace(outcome, output=output)


def _is_model(kind: object) -> bool:
    return hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


def _load(output_type: Any, value: object) -> object:
    if _is_model(output_type):
        return output_type.model_validate(value)
    return msgspec.convert(value, output_type)
