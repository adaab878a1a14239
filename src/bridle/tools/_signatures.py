"""Read the signature of a tool: its JSON schema for the model, and the check of its arguments.

A signature is read once, when the tool is created. An error for a parameter that cannot work names
that parameter. The schema and the type that converts the arguments come from the same reading, so
they always agree.

Types that validate themselves (pydantic models) are recognised by their methods, and no package is
imported for them.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError

if TYPE_CHECKING:
    import inspect


_PLAIN = (str, int, float, bool, str | None, int | None, float | None, bool | None)
"""Types whose values are the same in JSON and in Python."""

_MAX_PROBLEM = 1000
"""Characters of a validation error that are sent to the model."""


class Signature(Struct, frozen=True, kw_only=True):
    """The parameters of a function."""

    #: The docstring without the descriptions of the parameters.
    description: str
    #: The JSON schema of all arguments.
    schema: JsonObject
    #: A struct with a field for each parameter. A missing optional argument is UNSET.
    arguments: type[Struct]
    #: The parameters that get the tool context.
    contexts: tuple[str, ...]
    #: Whether the function is a method without its instance.
    unbound: bool
    #: Whether the function takes arguments without a named parameter (`**arguments`).
    open: bool
    #: Whether msgspec converts the arguments without a hook, which takes a third of the time.
    plain: bool

    def convert(self, given: Mapping[str, object]) -> JsonObject:
        """Convert JSON arguments to keyword arguments.

        Raises:
            ValueError: an argument is not valid. The text names it and is written for the model.
            Exception: a validator of the user's types failed with another error.
        """
        if self.open:
            known = self.arguments.__struct_fields__
            extra = {name: value for name, value in given.items() if name not in known}
            given = {name: value for name, value in given.items() if name in known}
            return self._fill(given) | extra
        return self._fill(given)

    def _fill(self, given: Mapping[str, object]) -> JsonObject:
        try:
            if self.plain:
                fields = msgspec.convert(given, self.arguments)
            else:
                fields = msgspec.convert(given, self.arguments, dec_hook=_load, str_keys=True)
        except msgspec.ValidationError as error:
            raise ValueError(self._problem(str(error))) from error
        values = msgspec.structs.asdict(fields)
        if self.arguments.__struct_defaults__:
            return {name: value for name, value in values.items() if value is not UNSET}
        return values

    def _problem(self, error: str) -> str:
        said, _, where = error.rpartition(" - at `$.")
        if said:
            return f"{where.rstrip('`')}: {said}"[:_MAX_PROBLEM]
        takes = ", ".join(
            name if name in self.schema.get("required", ()) else f"{name} (optional)"
            for name in self.arguments.__struct_fields__
        )
        return f"{where.removeprefix('Object ')}. The arguments are: {takes or 'none'}"


class _Parameter(Struct, frozen=True):
    name: str
    type: Any
    #: UNSET for a required parameter.
    default: object


def read_signature(
    function: Callable[..., object],
    tool: str,
    *,
    context: type,
    schema: Mapping[str, object] | None = None,
) -> Signature:
    """Read the parameters of ``function``.

    A parameter of type ``context`` or ``context | None`` gets the context of the call.

    If ``schema`` is given, the model gets that schema. Parameters then need no annotation, and
    ``**arguments`` may take the arguments without a named parameter.

    Raises:
        OptionsError: a parameter cannot be set from JSON.
    """
    import inspect  # neither module is needed before the first tool

    from bridle.tools._docstrings import parse

    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        fix = "Return the whole result instead."
        raise OptionsError(f"tool {tool}", "is a generator function", fix=fix)
    declared = list(inspect.signature(function).parameters.values())
    unbound = bool(declared) and _is_receiver(declared[0])
    preset = _preset(function)
    names = _namespace(function, inspect.unwrap)
    taken: list[_Parameter] = []
    injected: list[str] = []
    is_open = False
    for parameter in declared[unbound:]:
        if parameter.kind is parameter.VAR_KEYWORD and schema is not None:
            is_open = True
        elif parameter.name not in preset:
            read = _parameter(parameter, names, tool, bare=schema is not None)
            if read.type is context or context in typing.get_args(read.type):
                injected.append(read.name)
            else:
                taken.append(read)
    doc = parse(inspect.cleandoc(function.__doc__ or ""))
    made = _schema(taken, doc.parameters, tool)
    return Signature(
        description=doc.text,
        schema=made if schema is None else _given_schema(schema, made, tool, is_open=is_open),
        arguments=_struct(taken, tool),
        contexts=tuple(injected),
        unbound=unbound,
        open=is_open,
        plain=all(parameter.type in _PLAIN for parameter in taken),
    )


# ---------------------------------------------------------------- annotations


def _is_receiver(parameter: inspect.Parameter) -> bool:
    return parameter.name == "self" and parameter.annotation is parameter.empty


def _parameter(
    parameter: inspect.Parameter, names: JsonObject, tool: str, *, bare: bool
) -> _Parameter:
    """Read one parameter. If ``bare`` is true, it needs no annotation."""
    label = f"tool {tool}: parameter {parameter.name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        fix = "The model passes arguments by name. Use named parameters, or one dict or list."
        raise OptionsError(label, f"is {parameter.kind.description}", fix=fix)
    kind: Any = Any
    if parameter.annotation is not parameter.empty:
        kind = _resolve(parameter.annotation, names, label)
    elif not bare:
        fix = f"Annotate it. `{parameter.name}: Any` accepts any value."
        raise OptionsError(label, "has no annotation", fix=fix)
    default: object = UNSET if parameter.default is parameter.empty else parameter.default
    if type(default).__module__.startswith("pydantic.") and type(default).__name__ == "FieldInfo":
        fix = "Write the default value itself. Use Annotated with msgspec.Meta for the rest."
        raise OptionsError(label, "has a pydantic field as its default", fix=fix)
    return _Parameter(parameter.name, kind, default)


def _preset(function: object) -> Mapping[str, object]:
    """Return the arguments that a partial sets, such as a secret. The model does not see them."""
    if not isinstance(function, functools.partial):
        return {}
    return cast("functools.partial[object]", function).keywords


def _namespace(function: object, unwrap: Callable[[Any], Any]) -> JsonObject:
    """Return the globals of the module in which the annotations of a function were written."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[object]", function).func
    function = unwrap(function)
    if not hasattr(function, "__globals__"):
        function = getattr(function, "__call__", None)  # noqa: B004  # a callable object
    return cast("JsonObject", getattr(function, "__globals__", {}))


def _resolve(annotation: object, names: JsonObject, label: str) -> Any:
    """Return the type of an annotation, which may be written as a string."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        kind = typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]
    except NameError as error:
        fix = "Import or define it at the top of the module, before the tool."
        problem = f"has the annotation {annotation!r}, but {error.name!r} is not defined"
        raise OptionsError(label, problem, fix=fix) from None
    except (TypeError, SyntaxError) as error:
        problem = f"has the invalid annotation {annotation!r}: {error}"
        raise OptionsError(label, problem, fix="Annotate it with a type.") from None
    for note in _notes(kind):
        package = type(note).__module__.partition(".")[0]
        if package in ("pydantic", "annotated_types"):
            fix = "Use msgspec.Meta(ge=0, description=...), or put the field into a model."
            raise OptionsError(
                label, f"has {package} metadata, which Bridle does not read", fix=fix
            )
    return kind


def _notes(kind: object) -> tuple[object, ...]:
    """Return the metadata of an ``Annotated`` type."""
    return cast("tuple[object, ...]", getattr(kind, "__metadata__", ()))


# ---------------------------------------------------------------- the schema


def _schema(parameters: list[_Parameter], described: Mapping[str, str], tool: str) -> JsonObject:
    schemas, shared = _schemas(parameters, tool)
    for parameter, schema in zip(parameters, schemas, strict=True):
        texts = [note for note in _notes(parameter.type) if isinstance(note, str)]
        text = texts[0] if texts else described.get(parameter.name)
        if text:
            schema.setdefault("description", text)
        if parameter.default is not UNSET:
            schema.update(_default(parameter.default))
    names = [parameter.name for parameter in parameters]
    made: JsonObject = {
        "type": "object",
        "properties": dict(zip(names, schemas, strict=True)),
        "required": [parameter.name for parameter in parameters if parameter.default is UNSET],
        "additionalProperties": False,
        "$defs": shared,
    }
    definitions: dict[str, JsonObject] = {}
    made = _hoist(made, definitions)
    return {**made, "$defs": definitions} if definitions else made


def _schemas(
    parameters: list[_Parameter], tool: str
) -> tuple[list[JsonObject], dict[str, JsonObject]]:
    def of(some: list[_Parameter]) -> tuple[tuple[JsonObject, ...], dict[str, JsonObject]]:
        return msgspec.json.schema_components(
            [parameter.type for parameter in some],
            schema_hook=_model_schema,
            ref_template="#/$defs/{name}",
        )

    for parameter in parameters:  # one by one, so that an error can name the parameter
        try:
            of([parameter])
        except TypeError as error:
            label = f"tool {tool}: parameter {parameter.name!r}"
            fix = "Use types that JSON can represent: numbers, text, lists, dataclasses, models."
            raise OptionsError(label, f"has no JSON schema: {error}", fix=fix) from None
    # All together, so that two types of the same name get two definitions.
    schemas, shared = of(parameters)
    return list(schemas), shared


def _model_schema(kind: Any) -> JsonObject:
    """Return the schema of a type that msgspec does not support."""
    if kind is object:
        return {"description": "Anything."}
    if not _is_model(kind):
        raise TypeError(f"{kind!r} is not supported")
    name = kind.__name__
    schema: JsonObject = kind.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
    if "$defs" in schema:
        schema["$defs"] = {f"{name}.{key}": part for key, part in schema["$defs"].items()}
    return schema


def _hoist(schema: Any, into: dict[str, JsonObject]) -> Any:
    """Move all definitions from ``schema``, at any depth, to ``into``. Return the rest."""
    if isinstance(schema, list):
        return [_hoist(part, into) for part in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast("JsonObject", schema)
    definitions = members.get("$defs")
    if isinstance(definitions, dict):
        for name, part in cast("dict[str, JsonObject]", definitions).items():
            into[name] = _hoist(part, into)
    return {key: _hoist(part, into) for key, part in members.items() if key != "$defs"}


def _default(value: object) -> JsonObject:
    """Return the default for the schema; nothing if JSON cannot represent it."""
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(value, enc_hook=dump))}
    except (TypeError, ValueError, RecursionError, OverflowError):
        return {}


def _given_schema(
    given: Mapping[str, object], made: JsonObject, tool: str, *, is_open: bool
) -> JsonObject:
    """Check that a schema given by the user fits the parameters of the function, and return it."""
    field = f"tool {tool}: schema"
    if given.get("type") != "object":
        raise OptionsError(field, "is not of type object", fix='Write {"type": "object", ...}.')
    properties = given.get("properties", {})
    required = given.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        fix = "properties must be an object, and required a list of names."
        raise OptionsError(field, "is malformed", fix=fix)
    offered = {str(name) for name in cast("Mapping[object, object]", properties)}
    taken = set(made["properties"])
    if not is_open and offered - taken:
        name = min(offered - taken)
        fix = "Add the parameter to the function, or **arguments for all others."
        raise OptionsError(
            field, f"has {name!r}, which is not a parameter of the function", fix=fix
        )
    missing = set(made["required"]) - offered
    if missing:
        fix = "Add it to the schema, or give the parameter a default."
        raise OptionsError(field, f"lacks the parameter {min(missing)!r}", fix=fix)
    return dict(given)


# ---------------------------------------------------------------- values


def _struct(parameters: list[_Parameter], tool: str) -> type[Struct]:
    fields: list[Any] = [
        (parameter.name, parameter.type)
        if parameter.default is UNSET
        else (parameter.name, typing.Union[parameter.type, UnsetType], UNSET)  # noqa: UP007  # a value
        for parameter in parameters
    ]
    struct = msgspec.defstruct(tool, fields, kw_only=True, forbid_unknown_fields=True)
    msgspec.json.Decoder(struct)  # raises for unsupported types now, not at the first call
    return struct


def _is_model(kind: object) -> bool:
    return hasattr(kind, "model_validate") and hasattr(kind, "model_json_schema")


def _load(kind: Any, value: object) -> object:
    if kind is object:  # the same as `Any`
        return value
    return kind.model_validate(value)


def dump(value: object) -> object:
    """Return JSON for a value that msgspec does not support.

    These are models, mappings other than dict, and texts of a subclass of str.

    Raises:
        TypeError: the value is none of them.
    """
    model_dump = getattr(value, "model_dump", None)
    if callable(model_dump):
        return model_dump(mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
