"""Typed output: make the JSON schema of a Python type, and convert structured output to the type.

msgspec describes most types. Pydantic describes its models and dataclasses, and the types that
msgspec cannot describe if pydantic is installed. Other classes with ``model_json_schema`` and
``model_validate`` describe themselves.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, cast, get_args, get_type_hints

import msgspec

from bridle._records.fields import is_list, is_mapping
from bridle.errors import OptionsError
from bridle.outcomes import Outcome, OutcomeReason

_FIX = "Use a type that msgspec or pydantic can describe, such as a dataclass or list[int]."

_VALUE = "value"
"""The CLI needs an object at the top of a schema. Other types are the only field of one."""


class OutputType:
    """A type for structured output.

    Raises:
        OptionsError: the type has no JSON schema.
    """

    def __init__(self, kind: Any) -> None:
        try:
            self._describer = _describer(kind)
            schema = _resolved(self._describer.model_json_schema())
        except Exception as error:  # code of the user may make the schema of a model
            raise OptionsError("output_type", f"has no JSON schema: {error}", fix=_FIX) from None
        self._is_wrapped = schema.get("type") != "object"
        #: The JSON schema, with an object at the top.
        self.schema: dict[str, object] = _wrapped(schema) if self._is_wrapped else schema

    def convert(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Return the outcome with its output converted, or a failed outcome if that fails."""
        if not outcome.ok:
            return outcome
        value = outcome.structured_output
        try:
            if self._is_wrapped:
                value = _unwrapped(value)
            output = _validated(self._describer, value)
        except Exception as error:  # validators of a model are code of the user
            detail = f"the structured output does not fit: {_problem(error)}"
            failed = OutcomeReason.OUTPUT_INVALID
            return msgspec.structs.replace(outcome, reason=failed, detail=detail[:500])
        return msgspec.structs.replace(outcome, output=output)

    def convert_stored(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Convert the output of an outcome that was stored, which may not have one."""
        if not outcome.ok or outcome.structured_output is not None:
            return self.convert(outcome)
        missing, detail = OutcomeReason.OUTPUT_MISSING, "the turn ended without structured output"
        return msgspec.structs.replace(outcome, reason=missing, detail=detail)


# ---------------------------------------------------------------- who describes a type


class _Msgspec:
    """A type that msgspec describes, with the methods of a pydantic model."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._schema = msgspec.json.schema(kind)

    def model_json_schema(self) -> dict[str, Any]:
        return self._schema

    def model_validate(self, value: object) -> object:
        return msgspec.convert(value, self._kind, str_keys=True)


class _Pydantic:
    """A type that pydantic describes. Raises ImportError if pydantic is not installed."""

    def __init__(self, kind: Any) -> None:
        adapter: Any = importlib.import_module("pydantic").TypeAdapter(kind)
        self.model_json_schema = adapter.json_schema
        self.model_validate_json = adapter.validate_json


def _describer(kind: Any) -> Any:
    """Return an object with the methods ``model_json_schema`` and ``model_validate``."""
    if hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema"):
        return kind
    if _has_pydantic(kind):
        return _Pydantic(kind)
    try:
        return _Msgspec(kind)
    except TypeError as error:
        try:
            return _Pydantic(kind)
        except Exception:  # not installed, or it cannot describe the type either
            raise error from None


def _validated(describer: Any, value: object) -> object:
    """Return the value as the type. Pydantic reads JSON, in which a date is a text."""
    read = getattr(describer, "model_validate_json", None)
    return describer.model_validate(value) if read is None else read(msgspec.json.encode(value))


def _has_pydantic(kind: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Return whether pydantic describes a part of a type: a class, or a constraint."""
    if any(kind is one for one in seen):
        return False
    seen = (*seen, kind)
    constraints = getattr(kind, "__metadata__", ())
    if hasattr(kind, "__pydantic_validator__") or any(map(_is_constraint, constraints)):
        return True
    parts: list[Any] = list(get_args(kind))
    # The type behind a NewType, or behind an alias of the statement `type`.
    parts += [getattr(kind, name) for name in ("__supertype__", "__value__") if hasattr(kind, name)]
    if dataclasses.is_dataclass(kind) or any(hasattr(kind, name) for name in _HAS_FIELDS):
        parts += get_type_hints(kind, include_extras=True).values()
    return any(_has_pydantic(part, seen) for part in parts)


_HAS_FIELDS = ("__required_keys__", "_fields")
"""Attributes of a TypedDict and of a NamedTuple."""


def _is_constraint(metadata: object) -> bool:
    return type(metadata).__module__.partition(".")[0] in ("pydantic", "annotated_types")


# ---------------------------------------------------------------- schemas


def _wrapped(schema: dict[str, Any]) -> dict[str, object]:
    """Return the schema of an object whose only field has this schema."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    parts = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {
        "type": "object",
        "properties": {_VALUE: inner},
        "required": [_VALUE],
        "additionalProperties": False,
        **parts,
    }


def _unwrapped(value: object) -> object:
    if not is_mapping(value) or _VALUE not in value:
        raise ValueError(f"it has no field {_VALUE!r}")
    return value[_VALUE]


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Resolve the reference at the top of a schema."""
    reference = str(schema.get("$ref", ""))
    name = reference.removeprefix("#/$defs/")
    top = {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema
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
