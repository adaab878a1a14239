"""Accept an object as a session store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from bridle._store import SessionStore, SubkeyStore
from bridle._stores.official import OfficialStore
from bridle.errors import OptionsError

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


async def subkeys_of(store: SessionStore, session_id: str) -> Sequence[str]:
    """Return the subkeys of a session; none if the store has no method ``subkeys``."""
    return await store.subkeys(session_id) if isinstance(store, SubkeyStore) else ()
