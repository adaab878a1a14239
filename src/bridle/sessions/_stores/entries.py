"""Prepare entries and names for storage. All stores share this."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import quote, unquote

from bridle._records.session_store import Entry
from bridle.errors import OptionsError, StoreError

Redact = Callable[[Entry], Entry]
"""Returns the entry to store in place of an entry. It must accept its own result."""

_LONGEST_UUID = 200
"""Longer uuids are hashed, because a database index limits the length of its values."""


_LONGEST = 1e9
"""The longest duration in seconds, about 30 years. Databases overflow with longer ones."""


_encode = json.JSONEncoder(separators=(",", ":")).encode


class Row(NamedTuple):
    """An entry in the form in which it is stored."""

    #: What makes appending idempotent. None if the entry has no uuid.
    uuid: str | None
    #: The entry as JSON in ASCII: databases reject NUL characters and lone surrogates.
    body: str


class Probe(dict[str, object]):
    """An entry of Bridle that shows whether a store works. It has nothing to redact."""


def check_policy(store: str, redact: object, retention: object) -> None:
    """Check the keywords that all stores have. Raises `OptionsError`."""
    if redact is not None and not callable(redact):
        raise OptionsError(
            f"{store}.redact",
            f"must be a function, got {type(redact).__name__}",
            fix="It takes an entry and returns the entry to store.",
        )
    if retention is not None:
        check_seconds(f"{store}.retention", retention)


def check_seconds(field: str, value: object) -> None:
    """Check a duration. Raises `OptionsError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        got = repr(value) if isinstance(value, int | float) else type(value).__name__
        raise OptionsError(field, f"must be a positive number of seconds of at most 1e9, got {got}")


def to_rows(store: str, entries: Iterable[Entry], redact: Redact | None) -> list[Row]:
    """Redact and encode entries.

    Raises `StoreError` if ``redact`` fails or an entry is not JSON, so that nothing of the batch
    is stored. The error does not contain the entry.
    """
    return [_to_row(store, entry, redact) for entry in entries]


def _to_row(store: str, entry: Entry, redact: Redact | None) -> Row:
    problem = ""
    if redact is not None and not isinstance(entry, Probe):
        try:
            entry = redact(entry)
        except Exception as error:
            problem = f"the redact function raised {type(error).__name__}"
        else:
            if not isinstance(cast("object", entry), Mapping):
                problem = f"the redact function returned {type(entry).__name__}, not a dict"
    if not problem:
        try:
            return Row(uuid_of(entry), _encode(dict(entry)))
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"an entry could not be written as JSON ({type(error).__name__})"
    raise StoreError(store, "append", problem, fix="Nothing of this batch was stored.")


def uuid_of(entry: Entry) -> str | None:
    """Return what makes appending this entry idempotent. None if it has no uuid."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        return None
    name = quote_name(uuid)
    if len(name) <= _LONGEST_UUID:
        return name
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def from_body(store: str, body: str | bytes) -> dict[str, object]:
    """Decode a stored entry. Raises `StoreError` if something else has changed it."""
    try:
        return cast("dict[str, object]", json.loads(body))
    except ValueError:
        raise StoreError(store, "load", "a stored entry is not JSON") from None


def first_bodies(bodies: Iterable[str], size: int) -> list[str]:
    """Return the first entries, until their lines have more than ``size`` bytes."""
    found: list[str] = []
    for body in bodies:
        found.append(body)
        size -= len(body) + 1
        if size < 0:
            break
    return found


def join_ends(first: Sequence[str], last: Sequence[str], size: int) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a list. See `RangeStore.load_ends`.

    Args:
        first: the first entries, up to more than twice ``size`` bytes.
        last: the last entries, the last one first, up to more than ``size`` bytes.
        size: the number of bytes.
    """
    head = "\n".join(first).encode()
    if len(head) <= 2 * size:
        return head, b""
    return head[:size], "\n".join(reversed(last)).encode()[-size:]


def quote_name(name: str) -> str:
    """Percent-encode a session id, subkey or project. The usual ones stay as they are.

    Databases reject NUL characters and lone surrogates, and colons separate the parts of a key.
    """
    return quote(name, safe="/", errors="surrogatepass")


def unquote_name(name: str) -> str:
    """Reverse `quote_name`."""
    return unquote(name, errors="surrogatepass")


def location_of(*parts: object) -> str:
    """Return a hash of what tells a database from others. The parts must not be secrets."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
