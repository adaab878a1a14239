"""Turn objects of the user into text and JSON. This runs their methods, which may raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from bridle._core.wire import utf8
from bridle._raw_line import JsonObject
from bridle._signatures import dump
from bridle.errors import OptionsError

_encode = msgspec.json.Encoder(enc_hook=dump).encode
_check = msgspec.json.Decoder(msgspec.Raw).decode


def kind_of(value: object) -> str:
    """Return the class of a value, or "the class X" for a class (forgotten parentheses)."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def words_of(error: BaseException) -> str:
    """Return the class and the text of an exception; only the class if its text raises."""
    name = type(error).__name__
    try:
        said = str(error)
    except BaseException:  # the request must be answered, whatever the text raises
        return name
    return f"{name}: {said}" if said else name


def as_text(value: object) -> str:
    """Return a value as text that JSON can carry."""
    return utf8(str(value))


def as_json(value: JsonObject) -> JsonObject:
    """Return a copy of an object, made of plain JSON values.

    Raises any exception of the encoder or of the user's objects that it reads.
    """
    return cast("JsonObject", msgspec.json.decode(_encode(value)))


def as_line(value: object) -> bytes:
    """Return a value as JSON on one line.

    Raises any exception of the encoder or of the user's objects that it reads.
    """
    return checked(_encode(value))


def checked(body: bytes) -> bytes:
    """Return JSON on one line. Raises `msgspec.DecodeError` if `body` is not JSON.

    A `msgspec.Raw` of the application can hold anything, on any number of lines.
    """
    _check(body)
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
            problem = f"cannot be sent as JSON: {words_of(error)}"
            raise OptionsError(f"{operation}.{name}", problem, fix="Use JSON values.") from error
    return plain
