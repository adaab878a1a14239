"""What option records are made of: a table of fields per class, and the checks of values.

The class body of a record is its table: one row per option with its type, its check, where it goes
and one line of documentation. Rules of the file: a check takes the name to blame and a value, and
returns the value as it is kept or raises `OptionsError`; lists are kept as tuples, mappings as
read-only copies, so nothing the caller does later changes a record; a check accepts what it
returned before, so that records can be rebuilt.
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
    """Whether this is a mapping, of whatever."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Whether this is a list or tuple; a lone string is not a list of letters."""
    return isinstance(value, (list, tuple))


# ---------------------------------------------------------------- the table


class Channel(msgspec.Struct, frozen=True):
    """How an option reaches its reader.

    `flag`: one `--name=value` (a bare `--name` for a boolean, a comma list for a tuple); `each`:
    one `--name=item` per item; `document`: a flag that takes a path, with content in a private
    file; `initialize`: a field of the handshake; `settings`: a key of the settings document;
    `variable`: the CLI's environment; `process`: how the CLI is started; `sdk`: stays in Bridle.
    """

    kind: Literal[
        "flag", "each", "document", "initialize", "settings", "variable", "process", "sdk"
    ]
    name: str = ""
    also: tuple[str, ...] = ()  # other spellings and companions Bridle speaks for as well


def flag(name: str, *also: str) -> Channel:
    """An option that is one argument."""
    return Channel("flag", name, also)


def each(name: str, *also: str) -> Channel:
    """An option that is one argument per item."""
    return Channel("each", name, also)


def document(name: str) -> Channel:
    """An option that is a path on the command line and content in a private file."""
    return Channel("document", name)


def initialize(name: str, *also: str) -> Channel:
    """A field of the handshake; `also` are the flags it stands for."""
    return Channel("initialize", name, also)


class Field(msgspec.Struct, frozen=True):
    """One row of a record's table."""

    name: str
    check: Check
    channel: Channel
    doc: str
    default: object = None
    required: bool = False
    env: Callable[[str], object] | None = None  # reads CLAUDE_<NAME>; None: not from there
    merge: Literal["replace", "append", "deep"] = "replace"
    config: bool = True  # may stand in a configuration file
    # Whether a value can weaken a gate (hooks, permissions, the version check). Such a value counts
    # only from the program or from a file that the program names.
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
    """A row with a default; type checkers see the annotation beside it."""
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
    """A row without a default."""
    return Field("", check, channel, doc, required=True)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(required,))
class Record:
    """Base of the option records: keyword-only, checked, frozen, compared by value.

    An instance holds only what it was given; the rest is read from the class. So "was it said?"
    is a question a record can answer, and an explicit default still beats the environment.
    """

    fields: ClassVar[Mapping[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        """Collect the rows and put their defaults in their place."""
        rows = {name: row for name, row in vars(cls).items() if isinstance(row, Field)}
        cls.fields = {name: msgspec.structs.replace(row, name=name) for name, row in rows.items()}
        for name, row in rows.items():
            setattr(cls, name, row.default)

    def __init__(self, **given: object) -> None:
        """Check and keep what was given; None counts as not given where it is the default."""
        for name, value in given.items():
            row = self.fields.get(name)
            if row is None:
                refuse_unknown(name, type(self))
            if value is not None or row.default is not None or row.required:
                self.__dict__[name] = row.check(name, value)
        for name, row in self.fields.items():
            if row.required and name not in given:
                raise OptionsError(name, "is missing", fix=f"Give {type(self).__name__} a {name}.")
        self._check()

    def _check(self) -> None:
        """Refuse values that contradict each other."""

    def given(self) -> Mapping[str, object]:
        """What was said explicitly, as it is kept."""
        return MappingProxyType(self.__dict__)

    def replace(self, **changes: object) -> Self:
        """A new record with these fields changed; None takes back what has no other default."""
        return type(self)(**{**self.__dict__, **changes})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: records are frozen."""
        raise AttributeError(f"{type(self).__name__} is frozen: use .replace({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: records are frozen."""
        raise AttributeError(f"{type(self).__name__} is frozen: use .replace()")

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.fields)

    def __eq__(self, other: object) -> bool:
        """Equal when every field is, said explicitly or not."""
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __repr__(self) -> str:
        """What was given; of mappings the keys, of flags the names: their values may be secrets."""
        words = (f"{name}={_shown(value)}" for name, value in self.given().items())
        return f"{type(self).__name__}({', '.join(words)})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and deep copy by rebuilding: a read-only mapping does neither by itself."""
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
    """The question whether a similar name was meant, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else ""


def refuse_unknown(name: str, cls: type[Record], blame: str | None = None) -> NoReturn:
    """Raise for a field `cls` does not have, with the best guess at what was meant."""
    # The last to have it: parts are defined before the records that contain them.
    owners = [other.__name__ for other in Record.__subclasses__() if name in other.fields]
    if owners:
        fix = f"It is a field of {owners[-1]}."
    else:
        fix = close_to(name, cls.fields) or "See the list of options."
    raise OptionsError(blame or name, f"is not a field of {cls.__name__}", fix=fix)


# ---------------------------------------------------------------- checks of single values


def shown(value: object) -> str:
    """A value for an error message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _wrong_type(field: str, value: object, expected: str) -> OptionsError:
    article = "an" if type(value).__name__[0] in "aeiouAEIOU" else "a"
    return OptionsError(field, f"is {article} {type(value).__name__}", fix=f"Give {expected}.")


def text(field: str, value: object) -> str:
    """Any text that can be written as UTF-8."""
    if not isinstance(value, str):
        raise _wrong_type(field, value, "a string")
    kept = str.__str__(value)  # the content, also of a string enumeration
    try:
        kept.encode()
    except UnicodeEncodeError:
        raise OptionsError(
            field, "has a lone surrogate, which is no text", fix="Decode the bytes properly."
        ) from None
    return kept


_BREAKS = frozenset("\0\r\n")


def line(field: str, value: object) -> str:
    """Non-empty text of one line: what may stand on a command line."""
    kept = text(field, value)
    if not kept:
        raise OptionsError(field, "is empty", fix="Leave it out, or set it to None.")
    if not _BREAKS.isdisjoint(kept):
        raise OptionsError(field, "has a line break or a NUL", fix="Give one line of text.")
    return kept


def path(field: str, value: object) -> str:
    """A path as a string: given as one, or as anything that knows its path."""
    if not isinstance(value, str):
        fspath = getattr(value, "__fspath__", None)
        value = fspath() if callable(fspath) else value
    if not isinstance(value, str):
        raise _wrong_type(field, value, "a path as str or pathlib.Path")
    if not value or not _BREAKS.isdisjoint(value):
        problem = "has a line break or a NUL" if value else "is an empty path"
        raise OptionsError(field, problem, fix="Give the path of a file or directory.")
    return str.__str__(value)


def matching(pattern: str, expected: str) -> Check:
    """A check for one line of text of a certain form."""

    def check(field: str, value: object) -> str:
        kept = line(field, value)
        if re.fullmatch(pattern, kept) is None:  # compiled by `re` when first needed
            raise OptionsError(field, f"is {shown(kept)}", fix=f"Give {expected}.")
        return kept

    return check


def one_of(*choices: str) -> Check:
    """A check for one of a few words."""

    def check(field: str, value: object) -> str:
        kept = line(field, value)
        if kept not in choices:
            raise OptionsError(field, f"is {shown(kept)}", fix=f"Use one of {', '.join(choices)}.")
        return kept

    return check


def boolean(field: str, value: object) -> bool:
    """True or False, nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise _wrong_type(field, value, "True or False")
    return value


def integer(minimum: int) -> Check:
    """A check for a whole number from `minimum` up."""

    def check(field: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(field, value, "a whole number")
        if value < minimum:
            raise OptionsError(field, f"is {value}", fix=f"Give {minimum} or more.")
        return int(value)

    return check


def positive(field: str, value: object) -> float:
    """A finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(field, value, "a number")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        value = number = math.inf
    if not 0 < number < math.inf:
        raise OptionsError(field, f"is {value!r}", fix="Give a number above 0, or leave it out.")
    return value


def callback(field: str, value: object) -> Callable[..., object]:
    """Something that can be called with one argument."""
    if not callable(value):
        raise _wrong_type(field, value, "a function or another callable")
    _takes_one(field, value)
    if _yields(value):
        fix = "Use return: a callback is called once and gives one answer."
        raise OptionsError(field, "yields, so calling it would do nothing", fix=fix)
    return value


def _takes_one(field: str, function: Callable[..., object]) -> None:
    """Refuse a function that could never be called with one argument, the context.

    Found out only when it is called, it would be a failure of the callback's, and a guard that
    fails lets things go on.
    """
    import inspect  # asyncio has it loaded by the time anything is started

    try:
        if "__signature__" in getattr(_unwrapped(function), "__dict__", ()):
            return  # what it says of itself need not be how it is called
        # What is called, not what it wraps: a decorator may add arguments of its own.
        called: Any = function
        if not inspect.isroutine(called) and not isinstance(called, type | partial):
            # As Python does it: an attribute of the object itself is not asked.
            kind = cast("type[object]", type(called))
            called = inspect.getattr_static(kind, "__call__").__get__(called, kind)
        signature = inspect.signature(cast("Any", called), follow_wrapped=False)
    except Exception:  # one that does not tell is taken at its word
        return
    try:
        signature.bind(None)
    except TypeError as error:
        fix = "Give a function of one argument: it holds everything that is known."
        raise OptionsError(field, f"cannot be called with one argument: {error}", fix=fix) from None


def _yields(function: object) -> bool:
    import inspect

    try:
        inner: Any = _unwrapped(function)
        kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        return any(is_one(each) for is_one in kinds for each in (inner, type(inner).__call__))
    except Exception:  # one that does not tell, as above
        return False


def _unwrapped(function: object) -> object:
    while isinstance(function, partial):
        function = cast("object", function.func)
    return function


def anything(field: str, value: object) -> object:
    """An object only its user understands."""
    return value


# ---------------------------------------------------------------- checks of many values


def items(field: str, value: object) -> tuple[object, ...]:
    """The items of a list or tuple."""
    if not is_list(value):
        raise _wrong_type(field, value, "a list")
    return tuple(value)


def many(check: Check) -> Check:
    """A check for a list whose items all pass `check`."""

    def check_all(field: str, value: object) -> tuple[object, ...]:
        return tuple(
            check(f"{field}[{index}]", item) for index, item in enumerate(items(field, value))
        )

    return check_all


def pairs(field: str, value: object) -> Iterable[tuple[object, object]]:
    """The pairs of a mapping."""
    if not is_mapping(value):
        raise _wrong_type(field, value, "a mapping")
    return value.items()


def mapping(check: Check, *, key: Check = line) -> Check:
    """A check for a mapping whose keys and values pass."""

    def check_all(field: str, value: object) -> Mapping[object, object]:
        return MappingProxyType(
            {
                key(f"{field} key", name): check(f"{field}[{name!r}]", item)
                for name, item in pairs(field, value)
            }
        )

    return check_all


def record(cls: type[Record]) -> Check:
    """A check for a record, or a mapping of its fields."""

    def check(field: str, value: object) -> Record:
        if isinstance(value, cls):
            return value
        try:
            return cls(**{text(f"{field} key", name): item for name, item in pairs(field, value)})
        except OptionsError as error:
            blame = error.field if error.field.startswith(field) else f"{field}.{error.field}"
            raise OptionsError(blame, error.problem, fix=error.fix) from None

    return check


# ---------------------------------------------------------------- checks of JSON


def json_value(field: str, value: object) -> object:
    """A deep copy of a JSON value: what is not JSON is refused where it stands."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(field, value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OptionsError(field, f"is {value!r}, which JSON cannot say", fix="Use a number.")
        return float(value)
    if is_list(value):
        return [json_value(f"{field}[{index}]", item) for index, item in enumerate(value)]
    if is_mapping(value):
        return {
            text(f"{field} key", key): json_value(f"{field}.{key}", item)
            for key, item in value.items()
        }
    raise _wrong_type(field, value, "JSON: objects, lists, text, numbers, booleans, None")


def json_object(field: str, value: object) -> Mapping[str, object]:
    """A JSON object, given as a mapping or as its text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(text(field, value))
        except (msgspec.DecodeError, RecursionError) as error:
            raise OptionsError(field, f"is not JSON: {error}", fix="Give a mapping.") from None
    try:
        kept = {
            text(f"{field} key", key): json_value(f"{field}.{key}", item)
            for key, item in pairs(field, value)
        }
    except RecursionError:
        raise OptionsError(field, "contains itself", fix="Give plain, finite JSON.") from None
    return MappingProxyType(kept)


def json_or_path(field: str, value: object) -> str | Mapping[str, object]:
    """A JSON object (mapping, or text that begins with a brace) or the path of a file."""
    if is_mapping(value) or (isinstance(value, str) and value.lstrip()[:1] == "{"):
        return json_object(field, value)
    kept = path(field, value)
    # Only a path object gets here with a brace; as text it would be read as JSON from now on.
    return f"./{kept}" if kept.lstrip()[:1] == "{" else kept
