"""Wait for a condition that another thread fulfils, from blocking code or any event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

Condition = Callable[[], bool]


class Milestones:
    """Conditions on a state that `lock` protects. Change the state only while holding the lock.

    Call `changed` after each change, before releasing the lock. `describe` returns the state in
    words, for the message of a timeout. A failure ends every wait, because the conditions may
    never be fulfilled then.
    """

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe
        self.lock = threading.RLock()
        self._failure: Exception | None = None
        self._waiting: list[tuple[Condition, Future[None]]] = []

    def changed(self) -> None:
        """Wake up the waiters whose condition is true now."""
        still: list[tuple[Condition, Future[None]]] = []
        for condition, watch in self._waiting:
            if not condition() and self._failure is None:
                still.append((condition, watch))
            elif watch.set_running_or_notify_cancel():
                if condition() or self._failure is None:
                    watch.set_result(None)
                else:
                    watch.set_exception(self._failure)
        self._waiting = still

    def fail(self, failure: Exception) -> None:
        """Raise this in all present and future waiters whose condition is not true."""
        with self.lock:
            self._failure = self._failure or failure
            self.changed()

    async def wait(self, condition: Condition, what: str, timeout: float) -> None:
        """Return once the condition is true. Raise the failure, or TimeoutError with `what`."""
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wrap_future(self._watch(condition))
        except TimeoutError:
            raise TimeoutError(self._missed(what, timeout)) from None

    def wait_sync(self, condition: Condition, what: str, timeout: float) -> None:
        """Do the same as :meth:`wait`, blocking."""
        watch = self._watch(condition)
        try:
            watch.result(timeout)
        except TimeoutError:
            raise TimeoutError(self._missed(what, timeout)) from None
        finally:
            watch.cancel()

    def _missed(self, what: str, timeout: float) -> str:
        with self.lock:
            return f"no {what} within {timeout} s; so far: {self._describe()}"

    def _watch(self, condition: Condition) -> Future[None]:
        watch: Future[None] = Future()
        with self.lock:
            self._waiting.append((condition, watch))
            self.changed()
        return watch
