"""Tell stores apart, so that entries in a spool file reach only the store they are meant for."""

from __future__ import annotations

import logging
import os
import weakref
from threading import Lock
from uuid import uuid4

log = logging.getLogger("bridle.sessions")

_words: dict[int, str] = {}
"""A random word for each object without a location, by the object's id."""
_kept: list[object] = []
"""The objects that cannot be referenced weakly. They stay, so that their ids are not used again."""
_lock = Lock()


def class_and_location(store: object, location: str | None = None) -> str:
    """Return what tells a store from others: its class and its location.

    The location is the argument, else the attribute ``location``. Without one, each object counts
    as a store of its own, because two objects of one class may belong to different tenants.
    """
    kind = type(store)
    location = location or getattr(store, "location", None) or _word(store)
    # The stores of Bridle keep their first name: it is in spool files of earlier versions.
    home = kind.__module__.replace("bridle.sessions._stores.", "bridle._stores.")
    return f"{home}.{kind.__qualname__} {location}"


def _word(store: object) -> str:
    """Return a random word for an object, the same one for each call."""
    with _lock:
        word = _words.get(id(store))
        if word is not None:
            return word
        word = _words[id(store)] = uuid4().hex
        try:
            weakref.finalize(store, _words.pop, id(store), None).atexit = False
        except TypeError:
            _kept.append(store)
    log.warning(
        "The store %s has no location. If the program ends while the store fails, no later "
        "program can send the spool files. Set `location` to a string that names the database.",
        type(store).__name__,
        extra={"bridle_event": "store_without_location"},
    )
    return word


def _after_fork() -> None:
    global _lock
    _lock = Lock()  # another thread of the parent may hold it


os.register_at_fork(after_in_child=_after_fork)
