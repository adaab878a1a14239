"""Turn objects of the user into text and JSON. This runs their methods, which may raise."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from bridle._engine.wire.codec import utf8
from bridle._records.fields import is_mapping
from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError
from bridle.tools._signatures import dump

_encode = msgspec.json.Encoder(enc_hook=dump).encode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def kind_of(value: object) -> str:
    """Return the class of a value, or "the class X" for a class (forgotten parentheses)."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


class ErrorTexts(NamedTuple):
    """The texts of an exception: class and message on one line, and the traceback."""

    line: str
    traceback: str


_TEXTS = "_bridle_texts"
"""The attribute of an exception that holds its `ErrorTexts`."""


def keep_texts(error: BaseException) -> None:
    """Make the texts of an exception in this thread, and keep them in the exception.

    They call methods of the user, which must not run on the event loop if the function that raised
    the exception ran in a thread.
    """
    with contextlib.suppress(BaseException):  # the failure is reported, whatever this raises
        lines = "".join(traceback.format_exception(error)).rstrip("\n")
        BaseException.__setattr__(error, _TEXTS, ErrorTexts(_describe(error), lines))


def texts_of(error: BaseException) -> ErrorTexts | None:
    """Return what :func:`keep_texts` kept, or None."""
    try:
        texts = BaseException.__getattribute__(error, _TEXTS)
    except Exception:
        return None
    return texts if isinstance(texts, ErrorTexts) else None


def describe_error(error: BaseException) -> str:
    """Return the class and the text of an exception; only the class if its text raises."""
    texts = texts_of(error)
    return _describe(error) if texts is None else texts.line


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        said = str(error)
    except BaseException:  # the request must be answered, whatever the text raises
        return name
    return f"{name}: {said}" if said else name


def as_text(value: object) -> str:
    """Return a value as text that JSON can carry."""
    return utf8(str(value))


def encode(value: object) -> bytes:
    """Return a value as JSON, perhaps on several lines if it holds a `msgspec.Raw`.

    Raises `ValueError` for a value that JSON would change, and any exception of the encoder or of
    the user's objects that it reads.
    """
    check_json(value)
    return _encode(value)


_UNCHANGED = frozenset({str, int, bool, type(None)})
"""Types whose values JSON holds as they are."""


def check_json(value: object) -> None:
    """Check that JSON can hold a value without changing it.

    Raises:
        ValueError: a number is infinite or not a number, which would become null; or two keys of a
            mapping, such as 1 and "1", would become the same one. The text names them.
    """
    if type(value) in _SCALARS and (not isinstance(value, float) or math.isfinite(value)):
        return
    waiting: list[tuple[str, object]] = [("", msgspec.to_builtins(value, enc_hook=_builtin))]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                raise ValueError(f"{path or 'it'} is {item}, and JSON has only finite numbers")
        elif is_mapping(item):
            texts: dict[str, object] = {}
            for key, member in item.items():
                text = key if isinstance(key, str) else _encode(key).decode()
                if text in texts:
                    place = f" of {path}" if path else ""
                    problem = f"the keys {texts[text]!r:.40} and {key!r:.40}{place}"
                    raise ValueError(f"{problem} are the same key in JSON")
                texts[text] = key
                if type(member) not in _UNCHANGED:
                    waiting.append((f"{path}.{text:.40}" if path else f"{text:.40}", member))
        elif isinstance(item, list | tuple):
            items = cast("Sequence[object]", item)
            waiting += [
                (f"{path}[{index}]", each)
                for index, each in enumerate(items)
                if type(each) not in _UNCHANGED
            ]


def _builtin(value: object) -> object:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else dump(value)


def as_json(value: JsonObject) -> JsonObject:
    """Return a copy of an object, made of plain JSON values. Raises as :func:`encode` does."""
    return cast("JsonObject", msgspec.json.decode(encode(value)))


def as_line(value: object) -> bytes:
    """Return a value as JSON on one line. Raises as :func:`encode` does."""
    return one_line(encode(value))


def one_line(body: bytes) -> bytes:
    """Return JSON on one line. Raises `msgspec.DecodeError` if `body` is not JSON.

    A `msgspec.Raw` of the application can hold anything, on any number of lines.
    """
    _decode_raw(body)
    return _encode(msgspec.json.decode(body)) if 0x0A in body else body


_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain_fields(operation: str, fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields of a control request as plain JSON values.

    Raises:
        OptionsError: JSON cannot carry one of them.
    """
    plain: dict[str, object] = {}
    for name, value in fields.items():
        if type(value) in _SCALARS:
            plain[name] = value
            continue
        try:
            plain[name] = as_json({name: value})[name]
        except Exception as error:  # raised by an object of the user
            problem = f"cannot be sent as JSON: {describe_error(error)}"
            raise OptionsError(f"{operation}.{name}", problem, fix="Use JSON values.") from error
    return plain


_EXACT = (1 << 53) - 1
"""The largest integer that every JSON reader keeps exactly."""


def exact_json(option: str, value: object) -> Any:
    """Return the value of an option as it is read again from a database.

    Raises:
        OptionsError: JSON would change it, or has no such value.
    """
    try:
        _check_integers(value)
        return as_json({option: value})[option]
    except Exception as error:  # also raised by objects of the user
        problem = f"cannot be stored as JSON: {error!s:.200}"
        raise OptionsError(option, problem, fix="Use JSON values, and texts for ids.") from None


def _check_integers(value: object) -> None:
    """Check that JSON readers keep all integers of a value."""
    waiting: list[Any] = [msgspec.to_builtins(value, enc_hook=dump)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += cast("Sequence[Any]", item)
        elif isinstance(item, int) and abs(item) > _EXACT:
            raise ValueError(f"many JSON readers change the integer {item!s:.40}")
