"""The base class of option records, and the checks of option values.

The class body of a record is a table: one row per option with its type, its check, its channel and
its documentation. A check takes the name of the option, for the error message, and a value. It
returns the value to store, or raises `OptionsError`. Lists are stored as tuples and mappings as
read-only copies, so later changes by the caller do not affect a record. A check accepts a value
that it returned before, so that records can be rebuilt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import (
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Self,
    TypeGuard,
    cast,
    dataclass_transform,
)

import msgspec

from bridle.errors import OptionsError

Check = Callable[[str, object], object]


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    """Return whether the value is a mapping."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Return whether the value is a list or tuple. A string is neither."""
    return isinstance(value, (list, tuple))


# ---------------------------------------------------------------- rows and records


class Channel(msgspec.Struct, frozen=True):
    """How an option reaches its reader.

    - `flag`: one `--name=value`; only `--name` for a boolean; a comma-separated list for a tuple.
    - `each`: one `--name=item` per item.
    - `document`: a flag that takes a path; Bridle writes content to a private file.
    - `initialize`: a field of the handshake.
    - `prompt`: a field of every prompt.
    - `settings`: a key of the settings document.
    - `variable`: a variable in the CLI's environment.
    - `process`: a parameter of the process, such as its working directory.
    - `sdk`: only Bridle reads it.
    """

    kind: Literal[
        "flag", "each", "document", "initialize", "prompt", "settings", "variable", "process", "sdk"
    ]
    name: str = ""
    also: tuple[str, ...] = ()  # other flags that this option controls


def flag(name: str, *also: str) -> Channel:
    """Return the channel of an option that is one argument."""
    return Channel("flag", name, also)


def each(name: str, *also: str) -> Channel:
    """Return the channel of an option that is one argument per item."""
    return Channel("each", name, also)


def document(name: str) -> Channel:
    """Return the channel of an option whose flag takes the path of a document."""
    return Channel("document", name)


def initialize(name: str, *also: str) -> Channel:
    """Return the channel of a handshake field; `also` names the flags that it replaces."""
    return Channel("initialize", name, also)


class Field(msgspec.Struct, frozen=True):
    """One row of a record's table."""

    name: str
    check: Check
    channel: Channel
    doc: str
    default: object = None
    required: bool = False
    env: Callable[[str], object] | None = (
        None  # parses the variable CLAUDE_<NAME>; None: there is none
    )
    merge: Literal["replace", "append", "deep"] = "replace"
    config: bool = True  # whether a configuration file may set it
    # Whether a value can weaken a gate (hooks, permissions, the version check). Bridle accepts such
    # a value only from the program, or from a file that the program names.
    weakens: Callable[[Any], bool] | None = None


def always(_: object) -> bool:
    """Return True: every value of this option can weaken a gate."""
    return True


def option(
    check: Check,
    channel: Channel,
    doc: str,
    *,
    default: object = None,
    env: Callable[[str], object] | None = None,
    merge: Literal["replace", "append", "deep"] = "replace",
    config: bool = True,
    weakens: Callable[[Any], bool] | None = None,
) -> Any:
    """Return a row that has a default. The type is Any: type checkers use the annotation."""
    return Field(
        "",
        check,
        channel,
        doc,
        default=default,
        env=env,
        merge=merge,
        config=config,
        weakens=weakens,
    )


def required(check: Check, channel: Channel, doc: str) -> Any:
    """Return a row that has no default."""
    return Field("", check, channel, doc, required=True)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(required,))
class Record:
    """Base class of option records: keyword-only, checked, frozen, compared by value.

    An instance stores only the values that it was given; defaults come from the class. So `given()`
    can tell which options were set, and an explicit default overrides the environment.
    """

    fields: ClassVar[Mapping[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        """Collect the rows of the class body, and replace each by its default."""
        rows = {name: row for name, row in vars(cls).items() if isinstance(row, Field)}
        cls.fields = {name: msgspec.structs.replace(row, name=name) for name, row in rows.items()}
        for name, row in rows.items():
            setattr(cls, name, row.default)

    def __init__(self, **given: object) -> None:
        """Check and store the given values. None means "not set" if the default is None."""
        for name, value in given.items():
            row = self.fields.get(name)
            if row is None:
                refuse_unknown(name, type(self))
            if value is not None or row.default is not None or row.required:
                self.__dict__[name] = row.check(name, value)
        for name, row in self.fields.items():
            if row.required and name not in given:
                fix = f"Pass {name}=... to {type(self).__name__}."
                raise OptionsError(name, "is missing", fix=fix)
        self._check()

    def _check(self) -> None:
        """Raise OptionsError if values contradict each other. Subclasses override this."""

    def given(self) -> Mapping[str, object]:
        """Return the values that were set explicitly, as they are stored."""
        return MappingProxyType(self.__dict__)

    def replace(self, **changes: object) -> Self:
        """Return a changed copy. None unsets a field whose default is None."""
        return type(self)(**{**self.__dict__, **changes})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Raise AttributeError: records are frozen."""
        raise AttributeError(f"{type(self).__name__} is frozen. Use .replace({name}=...).")

    def __delattr__(self, name: str) -> NoReturn:
        """Raise AttributeError: records are frozen."""
        raise AttributeError(f"{type(self).__name__} is frozen. Use .replace().")

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.fields)

    def __eq__(self, other: object) -> bool:
        """Compare all fields, explicit or default."""
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __repr__(self) -> str:
        """Show the given values. Values of mappings and flags are hidden: they may be secrets."""
        words = (f"{name}={_shown(value)}" for name, value in self.given().items())
        return f"{type(self).__name__}({', '.join(words)})"

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickle and deepcopy by rebuilding: a read-only mapping supports neither."""
        return _rebuild, (type(self), _thawed(self.given()))


def _shown(value: object) -> str:
    if is_mapping(value):
        return f"{{{', '.join(f'{key!r}: ...' for key in value)}}}"
    if is_list(value):
        return f"[{', '.join(_shown_items(value))}]"
    if isinstance(value, str) and value.startswith("--") and "=" in value:
        return repr(f"{value.split('=', 1)[0]}=...")
    return repr(value)


def _shown_items(values: Iterable[object]) -> Iterator[str]:
    is_value = False
    for item in values:
        is_flag = isinstance(item, str) and item.startswith("--")
        yield "..." if is_value and not is_flag else _shown(item)
        is_value = is_flag  # unless another flag follows


def _thawed(value: object) -> object:
    if is_mapping(value):
        return {key: _thawed(item) for key, item in value.items()}
    return [_thawed(item) for item in value] if is_list(value) else value


def _rebuild(cls: type[Record], given: dict[str, object]) -> Record:
    return cls(**given)


def close_to(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean …?" with the most similar known name, or an empty text."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else ""


def refuse_unknown(name: str, cls: type[Record], blame: str | None = None) -> NoReturn:
    """Raise OptionsError for a field that `cls` does not have, and suggest the right one."""
    # Use the last class that has it: parts are defined before the records that contain them.
    owners = [other.__name__ for other in Record.__subclasses__() if name in other.fields]
    if owners:
        fix = f"It is a field of {owners[-1]}."
    else:
        fix = close_to(name, cls.fields) or f"See the list of options of {cls.__name__}."
    raise OptionsError(blame or name, f"is not a field of {cls.__name__}", fix=fix)


# ---------------------------------------------------------------- checks of single values


def shown(value: object) -> str:
    """Return the repr of a value for an error message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wrong_type(field: str, value: object, expected: str) -> OptionsError:
    problem = f"must be {expected}, got {type(value).__name__}"
    return OptionsError(field, problem, fix=f"Pass {expected}.")


def text(field: str, value: object) -> str:
    """Check text that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise _wrong_type(field, value, "a string")
    kept = str.__str__(value)  # a plain str, also for a member of a string enumeration
    try:
        kept.encode()
    except UnicodeEncodeError:
        fix = "Decode the bytes with the right encoding."
        raise OptionsError(field, "has a lone surrogate", fix=fix) from None
    return kept


_BREAKS = frozenset("\0\r\n")


def line(field: str, value: object) -> str:
    """Check non-empty text without line breaks, which can be an argument of a command line."""
    kept = text(field, value)
    if not kept:
        raise OptionsError(field, "is empty", fix="Remove it, or set it to None.")
    if not _BREAKS.isdisjoint(kept):
        fix = "Use one line of text."
        raise OptionsError(field, "has a line break or a NUL character", fix=fix)
    return kept


def path(field: str, value: object) -> str:
    """Check a path: a string, or an object with `__fspath__`; return a string."""
    if not isinstance(value, str):
        fspath = getattr(value, "__fspath__", None)
        value = fspath() if callable(fspath) else value
    if not isinstance(value, str):
        raise _wrong_type(field, value, "a path as str or pathlib.Path")
    if not value or not _BREAKS.isdisjoint(value):
        problem = "has a line break or a NUL character" if value else "is an empty path"
        raise OptionsError(field, problem, fix="Use the path of a file or directory.")
    return str.__str__(value)


def matching(pattern: str, expected: str) -> Check:
    """Return a check for one line of text that matches `pattern`.

    `expected` describes the pattern in error messages.
    """

    def check(field: str, value: object) -> str:
        kept = line(field, value)
        if re.fullmatch(pattern, kept) is None:  # `re` compiles and caches it at the first use
            raise OptionsError(field, f"is {shown(kept)}", fix=f"Use {expected}.")
        return kept

    return check


def one_of(*choices: str) -> Check:
    """Return a check for one of a few words."""

    def check(field: str, value: object) -> str:
        kept = line(field, value)
        if kept not in choices:
            fix = f"Use {' or '.join(map(repr, choices))}."
            raise OptionsError(field, f"is {shown(kept)}", fix=fix)
        return kept

    return check


def boolean(field: str, value: object) -> bool:
    """Check a bool. Other truthy or falsy values are rejected."""
    if not isinstance(value, bool):
        raise _wrong_type(field, value, "True or False")
    return value


def integer(minimum: int) -> Check:
    """Return a check for an integer that is at least `minimum`."""

    def check(field: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(field, value, "an integer")
        if value < minimum:
            raise OptionsError(field, f"is {value}", fix=f"Use {minimum} or more.")
        return int(value)

    return check


def positive(field: str, value: object) -> float:
    """Check a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(field, value, "a number")
    try:
        number = float(value)
    except OverflowError:  # the integer is too large for a float
        value = number = math.inf
    if not 0 < number < math.inf:
        raise OptionsError(field, f"is {value!r}", fix="Use a finite number above 0, or remove it.")
    return value


def not_negative(field: str, value: object) -> float:
    """Check a finite number that is at least zero."""
    return 0.0 if value == 0 and not isinstance(value, bool) else positive(field, value)


def callback(field: str, value: object) -> Callable[..., object]:
    """Check a callable that accepts one argument and is not a generator function."""
    if not callable(value):
        raise _wrong_type(field, value, "a function or another callable")
    _check_one_argument(field, value)
    if _yields(value):
        fix = "Use return instead of yield: Bridle calls the function once, for one result."
        raise OptionsError(
            field, "is a generator function, so calling it does not run its code", fix=fix
        )
    return value


def _check_one_argument(field: str, function: Callable[..., object]) -> None:
    """Raise OptionsError for a function that cannot be called with one argument, the context.

    Without this check the call would fail later, and a hook that fails does not block by default.
    """
    import inspect  # asyncio has loaded it by the time anything is started

    try:
        if "__signature__" in getattr(_unwrapped(function), "__dict__", ()):
            return  # a declared signature may differ from the real one
        # Inspect the decorated function, not the wrapped one: a decorator may add arguments.
        called: Any = function
        if not inspect.isroutine(called) and not isinstance(called, type | partial):
            # As Python does: look up `__call__` on the type, not on the object.
            kind = cast("type[object]", type(called))
            called = inspect.getattr_static(kind, "__call__").__get__(called, kind)
        signature = inspect.signature(cast("Any", called), follow_wrapped=False)
    except Exception:  # accept a callable without an inspectable signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        fix = "Use a function with one parameter: the context."
        raise OptionsError(field, f"cannot be called with one argument: {error}", fix=fix) from None


def _yields(function: object) -> bool:
    import inspect

    try:
        inner: Any = _unwrapped(function)
        kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        return any(is_one(each) for is_one in kinds for each in (inner, type(inner).__call__))
    except Exception:  # cannot be inspected, as above
        return False


def _unwrapped(function: object) -> object:
    while isinstance(function, partial):
        function = cast("object", function.func)
    return function


def anything(field: str, value: object) -> object:
    """Accept any value."""
    return value


# ---------------------------------------------------------------- checks of many values


def items(field: str, value: object) -> tuple[object, ...]:
    """Check a list or tuple; return its items."""
    if not is_list(value):
        problem = f"must be a list, got {type(value).__name__}"
        raise OptionsError(field, problem, fix="Pass a list, also for a single value.")
    return tuple(value)


def many(check: Check) -> Check:
    """Return a check for a list whose items all pass `check`."""

    def check_all(field: str, value: object) -> tuple[object, ...]:
        return tuple(
            check(f"{field}[{index}]", item) for index, item in enumerate(items(field, value))
        )

    return check_all


def pairs(field: str, value: object) -> Iterable[tuple[object, object]]:
    """Check a mapping; return its pairs of key and value."""
    if not is_mapping(value):
        raise _wrong_type(field, value, "a mapping")
    return value.items()


def mapping(check: Check, *, key: Check = line) -> Check:
    """Return a check for a mapping whose values pass `check` and whose keys pass `key`."""

    def check_all(field: str, value: object) -> Mapping[object, object]:
        return MappingProxyType(
            {
                key(f"{field} key", name): check(f"{field}[{name!r}]", item)
                for name, item in pairs(field, value)
            }
        )

    return check_all


def record(cls: type[Record]) -> Check:
    """Return a check for a record, or a mapping of its fields."""

    def check(field: str, value: object) -> Record:
        if isinstance(value, cls):
            return value
        if not is_mapping(value):
            raise _wrong_type(field, value, f"{cls.__name__}(...) or a mapping")
        try:
            return cls(**{text(f"{field} key", name): item for name, item in value.items()})
        except OptionsError as error:
            blame = error.field if error.field.startswith(field) else f"{field}.{error.field}"
            raise OptionsError(blame, error.problem, fix=error.fix) from None

    return check


# ---------------------------------------------------------------- checks of JSON


def json_value(field: str, value: object) -> object:
    """Return a deep copy of a JSON value. The error names the part that is not JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(field, value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            problem = f"is {value!r}, which JSON cannot represent"
            raise OptionsError(field, problem, fix="Use a finite number.")
        return float(value)
    if is_list(value):
        return [json_value(f"{field}[{index}]", item) for index, item in enumerate(value)]
    if is_mapping(value):
        return {
            text(f"{field} key", key): json_value(f"{field}.{key}", item)
            for key, item in value.items()
        }
    raise _wrong_type(field, value, "a JSON value (dict, list, str, int, float, bool or None)")


def json_object(field: str, value: object) -> Mapping[str, object]:
    """Check a JSON object, given as a mapping or as JSON text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(text(field, value))
        except (msgspec.DecodeError, RecursionError) as error:
            fix = "Correct the text, or pass a mapping."
            raise OptionsError(field, f"is not valid JSON: {error}", fix=fix) from None
    try:
        kept = {
            text(f"{field} key", key): json_value(f"{field}.{key}", item)
            for key, item in pairs(field, value)
        }
    except RecursionError:
        fix = "Remove the reference to itself, or the deep nesting."
        raise OptionsError(field, "contains itself or is nested too deep", fix=fix) from None
    return MappingProxyType(kept)


def json_or_path(field: str, value: object) -> str | Mapping[str, object]:
    """Check a JSON object (a mapping, or text that begins with a brace) or a path."""
    if is_mapping(value) or (isinstance(value, str) and value.lstrip()[:1] == "{"):
        return json_object(field, value)
    kept = path(field, value)
    # Only a path object can begin with a brace here. As text it would be read as JSON later.
    return f"./{kept}" if kept.lstrip()[:1] == "{" else kept
