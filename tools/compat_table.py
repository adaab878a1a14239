"""Compare the drop-in with the official SDK, name by name: ``python tools/compat_table.py``.

Each public name of the official package must exist in `bridle.compat.claude_agent_sdk`, as the same
kind of object, with the same signature, fields, values and parents. `DIFFERENT` lists the
exceptions, each with its reason. Any other difference makes the program fail.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
import typing
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import doc_tables

OFFICIAL = "claude_agent_sdk"
DROP_IN = "bridle.compat.claude_agent_sdk"
MODULES = ("", ".types", ".testing")
"""The public modules, after the name of the package."""

DIFFERENT: Mapping[str, str] = {
    "ToolAnnotations": "A class of its own with the same arguments and attributes, because the "
    "official one is a pydantic model of `mcp`, which the drop-in does not import.",
}
"""Names that differ on purpose, with the reason."""

_MISSING = object()


class Row(NamedTuple):
    """One public name: what kind of object it is, what was compared, and what differs."""

    module: str
    name: str
    kind: str
    compared: str
    differences: tuple[str, ...]


def public(module: ModuleType) -> list[str]:
    """Return the public names of a module: `__all__`, or what the module itself defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    )


def rows() -> list[Row]:
    """Compare every public name."""
    found = []
    seen: set[str] = set()
    for suffix in MODULES:
        theirs = importlib.import_module(OFFICIAL + suffix)
        ours = importlib.import_module(DROP_IN + suffix)
        for name in public(theirs):
            if name not in seen:
                seen.add(name)
                their_value, our_value = getattr(theirs, name), getattr(ours, name, _MISSING)
                found.append(_row(OFFICIAL + suffix, name, their_value, our_value))
    return found


def _row(module: str, name: str, theirs: Any, ours: Any) -> Row:
    kind = kind_of(theirs)
    parts = dict(described(theirs))
    if ours is _MISSING:
        return Row(module, name, kind, "", ("missing",))
    our_parts = dict(described(ours))
    differences = [] if kind_of(ours) == kind else [f"is a {kind_of(ours)}"]
    for what in sorted(parts.keys() | our_parts.keys()):
        mine, their = our_parts.get(what, "absent"), parts.get(what, "absent")
        if mine != their:
            differences.append(f"{what}: {mine} instead of {their}")
    return Row(module, name, kind, _summary(parts), tuple(differences))


# ---------------------------------------------------------------- describing an object


def kind_of(value: Any) -> str:
    """Return the kind of an object in words."""
    if typing.is_typeddict(value):
        return "typed dictionary"
    if isinstance(value, type):
        if issubclass(value, BaseException):
            return "warning" if issubclass(value, Warning) else "exception"
        if dataclasses.is_dataclass(value):
            return "dataclass"
        return "protocol" if getattr(value, "_is_protocol", False) else "class"
    if inspect.isasyncgenfunction(value):
        return "async generator"
    if inspect.iscoroutinefunction(value):
        return "coroutine function"
    if inspect.isfunction(value):
        return "function"
    return "type" if _is_type_form(value) else "value"


def described(value: Any) -> Iterator[tuple[str, str]]:
    """Yield what can be compared: fields, parameters, methods, parents and values."""
    if typing.is_typeddict(value):
        for name in value.__annotations__:
            needed = "required" if name in value.__required_keys__ else "optional"
            yield f"key {name}", needed
    elif isinstance(value, type):
        yield from _class(value)
    elif inspect.isfunction(value):
        yield from _parameters(value)
    elif values := literals(value):
        yield "values", ", ".join(map(str, values))
    elif _is_type_form(value):
        members = [getattr(one, "__name__", str(one)) for one in typing.get_args(value)]
        yield "members", str(len(members))
    else:
        yield "value", repr(value if not isinstance(value, frozenset) else sorted(value))


def literals(value: Any) -> list[object]:
    """Return the values of a literal type."""
    return list(typing.get_args(value)) if typing.get_origin(value) is typing.Literal else []


def _class(kind: type) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            yield f"field {field.name}", _default_of(field)
    else:
        yield from _parameters(vars(kind).get("__init__", kind), method="__init__" in vars(kind))
    parents = [one.__name__ for one in kind.__mro__[1:] if one.__module__.startswith(_PACKAGES)]
    if parents:
        yield "parents", ", ".join(parents)
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        if not member.__module__.startswith(_PACKAGES):
            continue
        for what, how in _parameters(member, method=True):
            yield f"{name}() {what}", how
        yield f"{name}()", kind_of(member)


_PACKAGES = (OFFICIAL, DROP_IN)


def _default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        if field.default is sys.stderr or field.name == "debug_stderr":
            return "sys.stderr"
        return f"= {field.default!r}"
    if field.default_factory is not dataclasses.MISSING:
        return f"= {field.default_factory()!r}"
    return "required"


def _parameters(function: Any, *, method: bool = False) -> Iterator[tuple[str, str]]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return
    for position, one in enumerate(parameters[1:] if method else parameters):
        place = position if one.kind is not inspect.Parameter.KEYWORD_ONLY else "keyword"
        default = "required" if one.default is one.empty else f"= {one.default!r}"
        yield f"parameter {one.name}", f"{place} {default}"


def _is_type_form(value: Any) -> bool:
    return typing.get_origin(value) is not None or value in (str, int, dict)


def _summary(parts: Mapping[str, str]) -> str:
    """Count what was compared: ``12 fields``, ``3 parameters``."""
    counts: dict[str, int] = {}
    for what, how in parts.items():
        noun = what.split()[0]
        if noun.endswith("()"):
            noun = "method" if " " not in what else ""
        elif noun in ("values", "members"):
            counts[noun] = len(how.split(", ")) if noun == "values" else int(how)
            continue
        elif noun in ("parents", "value"):
            noun = ""
        if noun:
            counts[noun] = counts.get(noun, 0) + 1
    return ", ".join(f"{count} {_plural(noun, count)}" for noun, count in counts.items())


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun.rstrip("s")
    return noun if noun.endswith("s") else f"{noun}s"


# ---------------------------------------------------------------- the page


def compat_names() -> str:
    """Return the table for the documentation."""
    listed = [
        [
            doc_tables.code(row.name),
            row.module.removeprefix(f"{OFFICIAL}.").replace(OFFICIAL, ""),
            row.kind,
            row.compared,
            DIFFERENT.get(row.name, "; ".join(row.differences)),
        ]
        for row in rows()
    ]
    return doc_tables.table(["name", "submodule", "kind", "same", "different"], listed)


def problems() -> list[str]:
    """Return the differences without a reason, and the reasons without a difference."""
    found = rows()
    unexplained = [
        f"{row.name}: {one}"
        for row in found
        if row.name not in DIFFERENT
        for one in row.differences
    ]
    stale = set(DIFFERENT) - {row.name for row in found if row.differences}
    return [*unexplained, *(f"{name}: is the same, delete its reason" for name in sorted(stale))]


def main() -> int:
    """Print the table and the problems. Return 1 if there are any."""
    print(compat_names())
    for problem in problems():
        print(problem, file=sys.stderr)
    return int(bool(problems()))


if __name__ == "__main__":
    sys.exit(main())
