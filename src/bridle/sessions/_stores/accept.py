"""Accept an object as a session store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from bridle._records.session_store import RangeStore, SessionStore, SubkeyStore, fencing_store
from bridle.errors import OptionsError
from bridle.sessions._stores.official import OfficialStore

_METHODS = ("append", "load", "list", "delete")
_OFFICIAL = ("append", "load")


def as_store(store: object, *, field: str = "store") -> SessionStore:
    """Return a Bridle store for an object.

    An object with ``list`` or ``subkeys`` must have all methods of `SessionStore`. Any other
    object must have ``append`` and ``load`` of the official SDK's protocol, and is adapted.
    Raises `OptionsError`, which begins with ``field`` and names the first missing method.
    """
    fix = "Use a store of bridle.sessions, or an object with the methods of SessionStore."
    if store is None or isinstance(store, str | bytes | int | float | dict | list):
        raise OptionsError(
            field, f"must be a session store, got {type(cast('object', store)).__name__}", fix=fix
        )
    if isinstance(store, type):
        raise OptionsError(
            field, f"must be a session store, got the class {store.__name__}", fix="Create one."
        )
    name = type(store).__name__
    is_ours = any(callable(getattr(store, method, None)) for method in ("list", "subkeys"))
    for method in _METHODS if is_ours else _OFFICIAL:
        if not callable(getattr(store, method, None)):
            raise OptionsError(field, f"needs the method {method!r}, which {name} lacks", fix=fix)
    return cast("SessionStore", store) if is_ours else OfficialStore(store)


class StoreMethods:
    """The optional methods of a store that sessions use."""

    def __init__(self, store: SessionStore) -> None:
        self.ranges = ranges_of(store)
        self.fencing = fencing_store(store)
        self.subkeys = partial(subkeys_of, store)


def ranges_of(store: SessionStore) -> RangeStore | None:
    """Return a store that can load a part of a list. None if it can only load whole lists.

    A class that overrides ``load`` alone may change entries there. Parts would lack the changes.
    """
    if not isinstance(store, RangeStore) or "load" in getattr(store, "__dict__", ()):
        return None
    kinds = type(store).__mro__
    places = [
        next((at for at, kind in enumerate(kinds) if name in vars(kind)), len(kinds))
        for name in ("load", "load_ends", "load_after")
    ]
    return store if places[0] >= max(places) else None


async def subkeys_of(store: SessionStore, session_id: str) -> Sequence[str]:
    """Return the subkeys of a session; none if the store has no method ``subkeys``."""
    return await store.subkeys(session_id) if isinstance(store, SubkeyStore) else ()
