"""Raise exceptions that were stored.

Raising an exception adds the frames of its readers to its traceback. A stored exception would keep
these frames, with everything that they refer to, as long as it is stored.
"""

from __future__ import annotations

import copy

from bridle.errors import BridleError


def to_raise(stored: BaseException) -> BaseException:
    """Return the exception to raise for a stored one.

    That is a copy without a traceback for errors of Bridle. Other exceptions are returned as they
    are, because not all of them can be copied: forget them when they are raised.
    """
    if not isinstance(stored, BridleError):
        return stored
    error = copy.copy(stored)
    error.__cause__ = stored.__cause__
    error.__suppress_context__ = stored.__suppress_context__
    return error
