"""Calling the user's functions: in tasks or threads, reported once, cancelled or left behind."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest
from tests.support.processes import LIMIT, run, until
from tests.support.steps import ReplaceSteps
from tests.support.values import Lazy

from bridle import CanUseToolContext, Hook
from bridle._callbacks.call_limits import MAX_ABANDONED, MAX_THREADS
from bridle._callbacks.callbacks import Callbacks, Notifier, is_async
from bridle._callbacks.prompt_contexts import Sender
from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.mcp.messages_of_servers import McpMessage
from bridle._runtime.workers import Worker, Workers

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Desk:
    """Collects what calls report."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reports: asyncio.Queue[tuple[int, object, BaseException | None]] = asyncio.Queue()
        self.going_on: dict[int, float] = {}
        self.refused: dict[int, str] = {}
        self.abandoned: list[str] = []
        self.callbacks = Callbacks(self.loop, self, lambda _, result: result)

    def sender_of(self, call: Call) -> Sender:
        return Sender(contextvars.copy_context(), None)

    def call_starts(self, call: Call, sender: Sender) -> None:
        pass

    def call_goes_on(self, call_id: int, started_at: float) -> None:
        self.going_on[call_id] = started_at

    def call_ended(self, call: Call, result: object, error: BaseException | None) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.reports.put_nowait((call.call_id, result, error))

    def call_refused(self, call_id: int, why: str) -> None:
        self.refused[call_id] = why

    def call_abandoned(self, call: Call) -> None:
        self.abandoned.append(call.label)

    async def abandon(self, number: int) -> None:
        """Cancel a call once it runs."""
        await until(lambda: number in self.going_on)
        self.callbacks.cancel(number)

    def start(
        self,
        function: object,
        argument: object = None,
        call_id: int = 1,
        kind: CallKind = CallKind.HOOK,
    ) -> None:
        label, subject = f"call {call_id}", None
        if kind is CallKind.TOOL:
            function, subject = _Tool(function), McpMessage("r", "s", {"params": {}})
        call = Call(call_id, kind, function, argument, label, subject=subject)
        self.callbacks.start(call)


class _Tool:
    """A tool without arguments, as far as a call of it needs one."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def validate(self, arguments: object) -> object:
        return arguments

    def run(self, _: object, context: object) -> object:
        return self.function(context)


async def test_a_plain_function_runs_outside_the_loops_thread() -> None:
    """R292, C06."""
    desk = Desk()
    desk.start(lambda _: threading.current_thread())
    _, thread, error = await desk.reports.get()
    assert error is None
    assert thread is not threading.current_thread()
    assert isinstance(thread, threading.Thread)
    assert thread.daemon


async def test_an_async_function_runs_on_the_loop() -> None:
    async def hook(argument: object) -> object:
        await asyncio.sleep(0)
        return [argument, threading.current_thread()]

    desk = Desk()
    desk.start(hook, "input")
    assert await desk.reports.get() == (1, ["input", threading.current_thread()], None)
    assert len(desk.callbacks) == 0


async def test_what_a_function_raises_is_reported() -> None:
    """R301: it never propagates."""

    async def slow(_: object) -> None:
        raise KeyError("async")

    def quick(_: object) -> None:
        raise SystemExit(3)

    desk = Desk()
    desk.start(slow, call_id=1)
    desk.start(quick, call_id=2)
    reports = sorted([await desk.reports.get() for _ in range(2)], key=lambda report: report[0])
    assert [type(error) for _, _, error in reports] == [KeyError, SystemExit]


class Failed(BaseException):
    """As what `pytest.fail` raises: no Exception, and no end of the program either."""


@pytest.mark.parametrize("kind", [Failed, SystemExit, KeyboardInterrupt])
async def test_whatever_an_async_function_raises_in_its_first_step_is_reported(
    kind: type[BaseException],
) -> None:
    async def quick(_: object) -> None: ...

    async def raises(_: object) -> None:
        raise kind("enough")

    desk = Desk()
    desk.start(quick, call_id=1)  # the first has a task of its own
    await desk.reports.get()
    ends: asyncio.Future[str] = desk.loop.create_future()

    def start() -> None:
        try:
            desk.start(raises, call_id=2)
        except BaseException as error:
            ends.set_result(type(error).__name__)
        else:
            ends.set_result("nothing")

    desk.loop.call_soon(start)
    assert await ends == ("nothing" if kind is Failed else kind.__name__)
    call_id, _, error = await desk.reports.get()
    assert (call_id, type(error)) == (2, kind)


async def test_a_plain_function_may_return_an_object_that_hides_its_class() -> None:
    desk = Desk()
    desk.start(lambda _: Lazy())
    _, result, error = await desk.reports.get()
    assert (type(result), error) == (Lazy, None)


async def test_a_plain_function_may_return_something_to_await() -> None:
    async def later(argument: object) -> object:
        return argument

    desk = Desk()
    desk.start(lambda argument: later(argument), "soon")
    assert await desk.reports.get() == (1, "soon", None)


async def test_the_callers_context_reaches_the_function() -> None:
    WHO.set("somebody")
    desk = Desk()
    desk.start(lambda _: WHO.get())
    assert (await desk.reports.get())[1] == "somebody"


async def test_cancelling_an_async_call_stops_it_and_nothing_is_reported() -> None:
    """R365."""
    stopped: list[str] = []

    async def hook(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("yes")

    desk = Desk()
    desk.start(hook)
    await asyncio.sleep(0)
    desk.callbacks.cancel(1)
    desk.callbacks.cancel(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (stopped, desk.reports.empty(), desk.abandoned) == (["yes"], True, [])


async def test_the_error_of_a_call_that_is_cancelled_is_ignored() -> None:
    async def hook(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    unheard: list[object] = []
    desk = Desk()
    desk.loop.set_exception_handler(lambda _, context: unheard.append(context))
    desk.start(hook)
    await asyncio.sleep(0)
    desk.callbacks.cancel(1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (unheard, desk.reports.empty()) == ([], True)


async def test_a_plain_function_that_is_not_waited_for_is_left_behind_and_reported() -> None:
    desk = Desk()
    release, asked = threading.Event(), threading.Event()
    context = CanUseToolContext(tool_name="Bash")
    seen: list[bool] = []

    def hook(question: CanUseToolContext) -> None:
        asked.set()
        seen.append(question.wait_cancelled_sync(LIMIT))
        release.set()

    desk.start(hook, context)
    await asyncio.to_thread(asked.wait, LIMIT)
    assert not context.cancelled
    desk.callbacks.cancel(1)
    assert desk.abandoned == ["call 1"]
    await asyncio.to_thread(release.wait, LIMIT)
    await asyncio.sleep(0)
    assert (seen, context.cancelled, desk.reports.empty()) == ([True], True, True)


async def test_an_async_callback_that_awaits_the_withdrawal_ends_by_itself() -> None:
    desk = Desk()
    context = CanUseToolContext(tool_name="Bash")
    learnt = asyncio.Event()

    async def hook(question: CanUseToolContext) -> None:
        await question.wait_cancelled()
        learnt.set()

    desk.start(hook, context)
    await asyncio.sleep(0)
    desk.callbacks.cancel(1)
    await learnt.wait()
    await context.wait_cancelled()
    assert desk.reports.empty()


async def test_a_callback_that_knows_of_its_withdrawal_may_run_until_the_session_is_over() -> None:
    desk = Desk()
    context = CanUseToolContext(tool_name="Bash")
    told, stopped = asyncio.Event(), asyncio.Event()

    async def hook(question: CanUseToolContext) -> None:
        await question.wait_cancelled()
        told.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    desk.start(hook, context)
    await asyncio.sleep(0)
    desk.callbacks.cancel(1)
    await told.wait()
    desk.callbacks.close()
    await stopped.wait()


async def test_what_a_plain_function_returned_to_await_is_cancelled_even_in_its_first_step() -> (
    None
):
    desk = Desk()
    context = CanUseToolContext(tool_name="Bash")
    ended: asyncio.Future[bool] = desk.loop.create_future()

    async def later() -> None:
        desk.callbacks.cancel(1)
        withdrawn = context.cancelled
        try:
            await asyncio.Event().wait()
        finally:
            ended.set_result(withdrawn)

    desk.start(lambda _: later(), context)
    assert await ended
    assert (desk.abandoned, desk.reports.empty(), len(desk.callbacks)) == ([], True, 0)


def test_async_functions_are_recognised_in_every_disguise() -> None:
    async def function(_: object) -> None: ...

    class Caller:
        async def __call__(self, _: object) -> None: ...

        async def method(self, _: object) -> None: ...

    disguises = [function, functools.partial(function), Caller(), Caller().method]
    assert [is_async(each) for each in disguises] == [True] * 4
    assert [is_async(each) for each in (print, lambda _: None, functools.partial(print))] == [
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("kind", [Mock, MagicMock, AsyncMock])
@pytest.mark.parametrize("spec", [None, len], ids=["anything", "a function"])
async def test_a_mock_is_called_as_well(kind: type[Mock], spec: object) -> None:
    """It has every attribute one asks for, a function of its own among them, and so on for ever."""
    desk = Desk()
    desk.start(Hook(kind(spec, return_value="answer")).callback)
    assert await desk.reports.get() == (1, "answer", None)


def test_an_object_that_keeps_an_async_function_is_what_it_is_itself() -> None:
    class Blocking:
        async def func(self, _: object) -> str:
            return "answer"

        def __call__(self, argument: object) -> str:
            return asyncio.run(self.func(argument))

    async def main() -> None:
        desk = Desk()
        desk.start(Blocking())
        assert await desk.reports.get() == (1, "answer", None)

    run(main)


# ---------------------------------------------------------------- slots


class Gate:
    """A plain function that waits to be released, and counts how many run at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.order: list[Any] = []
        self.release = threading.Event()

    def __call__(self, argument: Any) -> Any:
        with self.lock:
            self.order.append(argument)
            self.running += 1
            self.most = max(self.most, self.running)
        self.release.wait(20)
        with self.lock:
            self.running -= 1
        return argument


async def started(gate: Gate, count: int) -> None:
    await until(lambda: len(gate.order) >= count)


async def test_a_call_that_waits_for_a_slot_keeps_the_sender_of_its_prompt() -> None:
    """Another prompt may run when the call starts."""
    desk, gate = Desk(), Gate()
    seen: list[str] = []
    for number in range(MAX_THREADS):
        desk.start(gate, number, number)
    WHO.set("sender of the prompt")
    desk.start(lambda _: seen.append(WHO.get()), call_id=MAX_THREADS)
    WHO.set("sender of another prompt")
    gate.release.set()
    for _ in range(MAX_THREADS + 1):
        await desk.reports.get()
    assert seen == ["sender of the prompt"]


async def test_plain_functions_wait_for_a_slot_in_their_order_and_all_run() -> None:
    desk, gate = Desk(), Gate()
    for number in range(100):
        desk.start(gate, number, number)
    await started(gate, MAX_THREADS)
    assert (len(desk.going_on), len(desk.callbacks)) == (MAX_THREADS, 100)
    gate.release.set()
    reports = [await desk.reports.get() for _ in range(100)]
    results: list[Any] = [result for _, result, _ in reports]
    assert sorted(results) == list(range(100))
    assert gate.most <= MAX_THREADS
    assert sorted(gate.order[:MAX_THREADS]) == list(range(MAX_THREADS))
    assert (len(desk.callbacks), desk.refused, len(desk.going_on)) == (0, {}, 100)


async def test_a_call_starts_only_when_it_has_a_slot() -> None:
    desk, gate = Desk(), Gate()
    for number in range(MAX_THREADS):
        desk.start(gate, number, number)
    desk.start(lambda _: "late", None, 1000)
    await asyncio.sleep(0.05)
    assert 1000 not in desk.going_on
    before = desk.loop.time()
    gate.release.set()
    reports = {}
    while 1000 not in reports:
        call_id, result, _ = await desk.reports.get()
        reports[call_id] = result
    assert (reports[1000], desk.going_on[1000] >= before) == ("late", True)


@pytest.mark.parametrize("kind", [CallKind.PERMISSION, CallKind.ELICITATION, CallKind.TOOL])
async def test_functions_of_other_kinds_do_not_hold_up_a_hook(kind: CallKind) -> None:
    desk, gate = Desk(), Gate()
    for number in range(MAX_THREADS + 5):
        desk.start(gate, number, number, kind)
    desk.start(lambda _: "at once", None, 1000)
    assert await desk.reports.get() == (1000, "at once", None)
    gate.release.set()


async def test_async_functions_need_no_slot() -> None:
    desk, gate = Desk(), Gate()
    go = asyncio.Event()

    async def wait(argument: object) -> object:
        await go.wait()
        return argument

    for number in range(MAX_THREADS):
        desk.start(gate, number, number)
    for number in range(100, 1100):
        desk.start(wait, number, number)
    await asyncio.sleep(0)
    assert len(desk.going_on) == MAX_THREADS + 1000
    go.set()
    reports = [await desk.reports.get() for _ in range(1000)]
    assert {call_id for call_id, _, _ in reports} == set(range(100, 1100))
    gate.release.set()


async def test_a_cancelled_call_that_waits_for_a_slot_never_starts() -> None:
    desk, gate = Desk(), Gate()
    for number in range(MAX_THREADS + 3):
        desk.start(gate, number, number)
    await started(gate, MAX_THREADS)
    desk.callbacks.cancel(MAX_THREADS + 1)
    assert len(desk.callbacks) == MAX_THREADS + 2
    gate.release.set()
    for _ in range(MAX_THREADS + 2):
        await desk.reports.get()
    assert MAX_THREADS + 1 not in gate.order
    assert desk.abandoned == []


@pytest.mark.parametrize("close", [False, True], ids=["cancel", "close"])
async def test_calls_that_are_cancelled_together_do_not_start_one_another(close: bool) -> None:
    desk, gate = Desk(), Gate()
    for number in range(MAX_THREADS * 3):
        desk.start(gate, number, number)
    await started(gate, MAX_THREADS)
    if close:
        desk.callbacks.close()
    else:
        for number in range(MAX_THREADS * 3):
            desk.callbacks.cancel(number)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(gate.order), len(desk.callbacks)) == (MAX_THREADS, 0)
    gate.release.set()


async def test_an_abandoned_function_gives_its_slot_back() -> None:
    desk, gate = Desk(), Gate()
    for number in range(MAX_THREADS):
        desk.start(gate, number, number)
    desk.start(lambda _: "started", None, 1000)
    desk.callbacks.cancel(0)
    assert await desk.reports.get() == (1000, "started", None)
    assert desk.abandoned == ["call 0"]
    gate.release.set()


async def test_too_many_abandoned_functions_make_further_calls_be_refused_until_one_returns() -> (
    None
):
    desk, gate = Desk(), Gate()
    for number in range(MAX_ABANDONED):
        desk.start(gate, number, number)
        desk.callbacks.cancel(number)
    await started(gate, MAX_ABANDONED)
    desk.start(lambda _: None, None, 1000)
    assert list(desk.refused) == [1000]
    assert str(MAX_ABANDONED) in desk.refused[1000]
    desk.start(lambda _: "another kind", None, 1001, CallKind.PERMISSION)
    assert await desk.reports.get() == (1001, "another kind", None)
    gate.release.set()

    def is_accepted() -> bool:
        desk.refused.clear()
        desk.start(lambda _: "again", None, 1002)
        return not desk.refused

    await until(is_accepted)
    assert await desk.reports.get() == (1002, "again", None)


async def test_abandoned_and_running_functions_together_keep_to_the_bound() -> None:
    """Functions that run may be abandoned next, so a thread is not started for them in advance."""
    desk, gate = Desk(), Gate()
    for number in range(MAX_ABANDONED + MAX_THREADS):
        desk.start(gate, number, number)
    for number in range(MAX_ABANDONED - 1):
        await desk.abandon(number)
    await asyncio.sleep(0)
    assert len(desk.going_on) == MAX_ABANDONED
    assert desk.refused == {}
    desk.callbacks.cancel(MAX_ABANDONED - 1)
    await asyncio.sleep(0)
    assert len(desk.refused) == MAX_THREADS
    gate.release.set()


async def test_calls_that_wait_are_refused_when_the_last_slot_is_abandoned() -> None:
    desk, gate = Desk(), Gate()
    for number in range(MAX_ABANDONED + 10):
        desk.start(gate, number, number)
    for number in range(MAX_ABANDONED):
        await desk.abandon(number)
    await asyncio.sleep(0)
    assert sorted(desk.refused) == list(range(MAX_ABANDONED, MAX_ABANDONED + 10))
    gate.release.set()


def refuse() -> Worker:
    raise RuntimeError("can't start new thread")


async def test_a_function_that_gets_no_thread_is_refused(replace_steps: ReplaceSteps) -> None:
    desk = Desk()
    replace_steps(take_thread=refuse)
    desk.start(lambda _: None)
    assert list(desk.refused) == [1]
    assert "can't start new thread" in desk.refused[1]
    assert len(desk.callbacks) == 0


async def test_a_function_that_gets_no_thread_waits_for_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, gate = Desk(), Gate()
    desk.start(gate, "first", 1)
    with monkeypatch.context() as patch:
        ReplaceSteps(patch)(take_thread=refuse)
        desk.start(lambda _: "second", None, 2)
        assert desk.refused == {}
    gate.release.set()
    assert [(await desk.reports.get())[1] for _ in range(2)] == ["first", "second"]


def test_threads_are_reused_when_they_are_free() -> None:
    workers, threads = Workers(), set[int]()
    for _ in range(20):
        done = threading.Event()

        def job(done: threading.Event = done) -> None:
            threads.add(threading.get_ident())
            done.set()

        workers.run(job)
        assert done.wait(5)
    assert len(threads) < 20


def test_jobs_never_wait_for_one_another() -> None:
    workers, gate = Workers(), threading.Barrier(9)

    def job() -> None:
        gate.wait(5)

    for _ in range(8):
        workers.run(job)
    assert gate.wait(5) in range(9)


async def test_a_listener_gets_events_in_order_one_at_a_time_and_survives_its_own_failure() -> None:
    """R455, C24, C26: a failing listener changes nothing."""
    heard: list[object] = []
    failures: list[BaseException] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listener(news: object) -> None:
        heard.append(news)
        if news == 3:
            loop.call_soon_threadsafe(done.set)
        raise ValueError(news)

    notifier = Notifier(loop, listener, failures.append)
    for news in (1, 2, 3):
        notifier.tell(news)
    await done.wait()
    await until(lambda: len(failures) >= 3)
    assert heard == [1, 2, 3]


async def test_an_async_listener_is_awaited_before_the_next_event() -> None:
    heard: list[str] = []
    done = asyncio.Event()

    async def listener(news: str) -> None:
        heard.append(f"{news} begins")
        await asyncio.sleep(0)
        heard.append(f"{news} ends")
        if news == "b":
            done.set()

    notifier = Notifier(asyncio.get_running_loop(), listener, lambda _: None)
    notifier.tell("a")
    notifier.tell("b")
    await done.wait()
    assert heard == ["a begins", "a ends", "b begins", "b ends"]


async def test_a_plain_listener_that_returns_a_coroutine_has_it_awaited() -> None:
    heard: list[str] = []
    failures: list[BaseException] = []

    async def listen(news: str) -> None:
        await asyncio.sleep(0)
        heard.append(news)
        if news == "b":
            raise ValueError(news)

    notifier = Notifier(asyncio.get_running_loop(), lambda news: listen(news), failures.append)
    for news in "abc":
        notifier.tell(news)
    await notifier.drained()
    assert heard == ["a", "b", "c"]
    assert [str(failure) for failure in failures] == ["b"]


async def test_what_it_returns_after_the_end_is_not_awaited() -> None:
    heard: list[str] = []
    begun, gate = threading.Event(), threading.Event()

    async def listen(news: str) -> None:
        heard.append(news)

    def listener(news: str) -> object:
        begun.set()
        gate.wait(5)
        return listen(news)

    notifier = Notifier(asyncio.get_running_loop(), listener, lambda _: None)
    notifier.tell("a")
    await asyncio.to_thread(begun.wait, LIMIT)
    notifier.close()
    gate.set()
    await notifier.drained()
    assert heard == []


def test_a_listener_that_would_end_the_program_gets_nothing_more() -> None:
    """Else it would break off the clean-up, whose events come to it, too."""

    async def main() -> None:
        heard: list[object] = []
        failures: list[BaseException] = []

        async def listener(news: object) -> None:
            heard.append(news)
            raise SystemExit(news)

        notifier = Notifier(asyncio.get_running_loop(), listener, failures.append)
        for news in (1, 2, 3):
            notifier.tell(news)
        try:
            await asyncio.sleep(60)
        finally:
            notifier.tell(4)
            await notifier.drained()
            assert (heard, [str(error) for error in failures]) == ([1], ["1"])

    with pytest.raises(SystemExit):
        run(main)


async def test_a_listener_that_gets_no_thread_has_failed(replace_steps: ReplaceSteps) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    failures: list[BaseException] = []
    notifier = Notifier(asyncio.get_running_loop(), lambda _: None, failures.append)
    replace_steps(run_in_thread=refuse)
    notifier.tell("a")
    notifier.tell("b")
    assert failures == []
    await notifier.drained()
    assert [str(failure) for failure in failures] == ["can't start new thread"] * 2
