"""Finalizers that keep nothing alive.

The interpreter refers to a finalizer and its arguments until its object is collected. An argument
that refers to the object, by whatever chain, would keep both until the program ends.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any


def when_dropped(
    owner: object, method: Callable[..., object], argument: object
) -> weakref.finalize[..., Any]:
    """Call a method when ``owner`` is collected, unless its object or the argument is gone."""
    finalizer = weakref.finalize(owner, _call, weakref.WeakMethod(method), _weak(argument))
    finalizer.atexit = False
    return finalizer


def _weak(value: object) -> Callable[[], object]:
    try:
        return weakref.ref(value)
    except TypeError:  # a string, for example, which refers to nothing
        return lambda: value


def _call(
    method: Callable[[], Callable[..., object] | None], argument: Callable[[], object]
) -> None:
    alive, value = method(), argument()
    if alive is not None and value is not None:
        alive(value)


def when_dropped_before(
    owner: object, over: asyncio.Future[Any], function: Callable[[], object]
) -> None:
    """Call a function if ``owner`` is collected before ``over`` is done.

    The function and its object are kept alive until then.
    """
    finalizer = weakref.finalize(owner, function)
    finalizer.atexit = False
    over.add_done_callback(lambda _: finalizer.detach())
