"""Call a store for what the start of a session needs, with one deadline, and name its failures."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from bridle._observe.user_values import describe_error
from bridle.errors import BridleError, SessionInUseError, SessionLoadError, SessionLoadTimeout
from bridle.events import SdkWarning
from bridle.sessions._store_calls import StoreCallCancelled, StoreCallTimeout, call_store

_T = TypeVar("_T")

log = logging.getLogger("bridle.session")


def log_warning(warning: SdkWarning) -> None:
    """Log a warning about a session that has no callbacks yet."""
    log.warning("%s: %s", warning.kind, warning.detail)


class StartCalls:
    """Call a store for what the start of a session needs. All calls share one deadline.

    Args:
        timeout: seconds from now until the deadline.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._deadline = asyncio.get_running_loop().time() + timeout

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def ask(
        self,
        session_id: str,
        method: Callable[..., Awaitable[_T]],
        *arguments: object,
        limit: float = math.inf,
    ) -> _T:
        """Call a method of the store and return its result. Errors name the session.

        Args:
            session_id: the id of the session.
            method: the method of the store.
            arguments: its arguments.
            limit: seconds after which the call counts as failed, if the deadline is not earlier.

        Raises:
            SessionLoadError: the store failed, or did not answer within ``limit`` seconds.
            SessionLoadTimeout: the store did not answer before the deadline.
            SessionInUseError: the method raised it.
        """
        left = self.left
        try:
            return await call_store(min(left, limit), method, *arguments)
        except SessionInUseError:
            raise
        except StoreCallTimeout as error:
            if limit < left:
                raise SessionLoadError(session_id, str(error)) from None
            raise SessionLoadTimeout(session_id, self._timeout) from None
        except StoreCallCancelled as error:
            raise SessionLoadError(session_id, str(error)) from None
        except Exception as error:
            raise SessionLoadError(session_id, describe_error(error)) from error

    async def pause(self, delay: float) -> bool:
        """Wait for ``delay`` seconds. Return False at once if the deadline is earlier."""
        if asyncio.get_running_loop().time() + delay >= self._deadline:
            return False
        await asyncio.sleep(delay)
        return True


@contextmanager
def naming_session(session_id: str) -> Generator[None]:
    """Let the error of a local file name the session that was to be loaded.

    Raises:
        SessionLoadError: instead of an OSError.
    """
    try:
        yield
    except BridleError:
        raise
    except OSError as error:
        named = SessionLoadError(session_id, describe_error(error))
        named.fix = "Check the file that the error names, then try again."
        raise named from error


async def in_thread(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function in a thread. Cancellation ends the wait only."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


async def finish_in_thread(
    function: Callable[[], _T], undo: Callable[[_T], None] | None = None
) -> _T:
    """Call a function in a thread.

    Cancellation: wait until the thread is done, then call ``undo`` with what the function returned.
    """
    calling = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        await asyncio.wait([calling])
    except asyncio.CancelledError:
        calling.add_done_callback(partial(_undo, undo))
        await asyncio.wait([calling])
        raise
    return calling.result()


def _undo(undo: Callable[[_T], None] | None, done: asyncio.Future[_T]) -> None:
    if not done.cancelled() and done.exception() is None and undo is not None:
        undo(done.result())
