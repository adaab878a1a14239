"""The bridge for programs that use trio. Bridle runs on the event loop of `bridle.sync`."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

import outcome
import trio

from bridle._spi import portal

_T = TypeVar("_T")
_P = ParamSpec("_P")
_END: Any = object()


def trio_bridge() -> TrioBridge | None:
    """Return the bridge of the running trio task, or None outside trio."""
    return TrioBridge(trio.lowlevel.current_trio_token()) if trio.lowlevel.in_trio_run() else None


class TrioBridge:
    """The bridge between one run of trio and the background loop.

    `SystemExit`, `KeyboardInterrupt` and other exceptions of a callback that are not an `Exception`
    are raised in a task of the program that waits in `run`, or else by the next `run`.
    """

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        #: Each ends one `run` that waits. The functions are called in the thread of trio.
        self._waiting: list[Callable[[BaseException], object]] = []
        self._unraised: list[BaseException] = []
        self.checkpoint = trio.lowlevel.checkpoint_if_cancelled

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the background loop.

        Cancellation: cancels the coroutine, and waits for its end.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._unraised:
            raise self._unraised.pop(0)
        fatal: list[BaseException] = []
        waiting = trio.lowlevel.current_task()
        running: list[asyncio.Task[_T]] = []
        raise_cancel: list[Callable[[], object]] = []

        def finish(done: asyncio.Task[_T]) -> None:
            if done.cancelled() and raise_cancel:
                result: Any = outcome.capture(raise_cancel[0])
            elif done.cancelled() and fatal:
                result = outcome.Error(fatal[0])
            elif done.cancelled():
                result = outcome.Error(RuntimeError("the background loop has ended"))
            elif (error := done.exception()) is not None:
                result = outcome.Error(error)
            else:
                result = outcome.Value(done.result())
            self._in_trio(trio.lowlevel.reschedule, waiting, result)

        def start() -> None:
            task = asyncio.get_running_loop().create_task(work())
            running.append(task)
            task.add_done_callback(finish)

        def cancel() -> None:
            running[0].cancel()

        def abort(raises: Callable[[], object]) -> trio.lowlevel.Abort:
            raise_cancel.append(raises)
            portal().post(cancel)
            return trio.lowlevel.Abort.FAILED

        def stop(error: BaseException) -> None:
            fatal.append(error)
            portal().post(cancel)

        portal().post(start)
        self._waiting.append(stop)
        try:
            result: _T = await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._waiting.remove(stop)
            self._unraised += fatal
            if self._unraised:
                raise self._unraised.pop(0)
        return result

    def _raise_in_program(self, error: BaseException) -> None:
        if self._waiting:
            self._waiting[-1](error)
        else:
            self._unraised.append(error)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function on the background loop."""
        portal().post(function)

    def _in_trio(self, function: Callable[..., object], *args: object) -> bool:
        """Call a function in the thread of trio. Return False if trio has ended."""
        try:
            self._token.run_sync_soon(lambda: function(*args))
        except trio.RunFinishedError:
            return False
        return True

    def callback(
        self, function: Callable[_P, Awaitable[_T]], lost: type[BaseException] = RuntimeError
    ) -> Callable[_P, Awaitable[_T]]:
        """Return an asyncio function that calls ``function`` in a task of trio.

        It raises what ``function`` raises. If that is not an `Exception`, it is raised in the
        program of trio, and the asyncio function raises ``lost``. It also raises ``lost`` if trio
        has ended, or cancels the task.

        Cancellation: cancels the task.
        """

        async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[_T] = loop.create_future()
            scope = trio.CancelScope()
            context = contextvars.copy_context()

            def settle(result: outcome.Outcome[_T]) -> None:
                if done.done():
                    return
                if isinstance(result, outcome.Error):
                    done.set_exception(result.error)
                else:
                    done.set_result(result.unwrap())

            async def work() -> _T:
                return await function(*args, **kwargs)

            async def run() -> None:
                # A system task must not raise, so the result and every error go to the caller.
                result: Any = outcome.Error(lost("the callback was cancelled"))
                try:
                    with scope:
                        done_work: Any = await outcome.acapture(work)
                        if isinstance(done_work, outcome.Error):
                            error = _not_cancelled(done_work.error)
                            if error is None:
                                await trio.lowlevel.checkpoint()
                            elif not isinstance(error, Exception):
                                self._raise_in_program(error)
                                name = type(error).__name__
                                error = lost(f"the callback raised {name}")
                            if error is not None:
                                done_work = outcome.Error(error)
                        result = done_work
                finally:
                    portal().post(lambda: settle(result))

            def start() -> None:
                trio.lowlevel.spawn_system_task(run, name=function, context=context)

            if not self._in_trio(start):
                raise lost("the trio program of this callback has ended")
            try:
                return await done
            except asyncio.CancelledError:
                self._in_trio(scope.cancel)
                raise

        return call

    def pull(self, source: AsyncIterable[_T]) -> AsyncIterable[_T]:
        """Return an asyncio iterable that reads ``source`` in tasks of trio."""
        iterator = aiter(source)
        # A generator cannot be closed before its cancelled task has ended.
        reading = trio.Lock()

        async def following() -> _T:
            async with reading:
                return await anext(iterator, _END)

        async def close() -> None:
            aclose = getattr(iterator, "aclose", None)
            if aclose is not None:
                async with reading:
                    await aclose()

        take, end = self.callback(following), self.callback(close)

        async def items() -> AsyncIterator[_T]:
            try:
                while (item := await take()) is not _END:
                    yield item
            finally:
                await end()

        return items()


def _not_cancelled(error: BaseException) -> BaseException | None:
    """Return the error without the cancellations of trio. None if it has nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(trio.Cancelled)[1]
    return None if isinstance(error, trio.Cancelled) else error
