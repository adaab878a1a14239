"""Report the calls of a session to its engine and its observer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bridle._callbacks.prompt_contexts import Sender, Senders
from bridle._engine import actions as act
from bridle._engine.engine import Engine
from bridle._engine.incoming.answers import InvalidReturn
from bridle._observe.observer import SessionObserver
from bridle._observe.user_values import describe_error
from bridle.events import WarningKind


class Failure(NamedTuple):
    """A warning of the engine with its exception. The engine knows only the text of it."""

    warning: act.Warn
    error: BaseException


class CallReports:
    """Implements :class:`bridle._callbacks.callbacks.CallEvents` for a session.

    ``do`` performs the actions that the engine returns.
    """

    def __init__(
        self,
        engine: Engine,
        observer: SessionObserver,
        senders: Senders,
        clock: Callable[[], float],
        do: Callable[[Iterable[act.Action | Failure]], None],
    ) -> None:
        self._engine = engine
        self._observer = observer
        self._senders = senders
        self._clock = clock
        self._do = do

    def sender_of(self, call: act.Call) -> Sender:
        """Return the sender of the prompt that a new call belongs to."""
        return self._senders.of(call.prompt)

    def call_starts(self, call: act.Call, sender: Sender) -> None:
        """Report that a call is about to start."""
        self._observer.call_began(call, sender.context)

    def call_goes_on(self, call_id: int, started_at: float) -> None:
        """Start the deadline of a call."""
        self._do(self._engine.started_call(call_id, started_at))

    def call_ended(self, call: act.Call, result: Any, error: BaseException | None) -> None:
        """Report the serialised result of a call, or its exception.

        An exception that is not an `Exception` ends the program or the call, so a hook has not
        decided anything: gates block, whatever their `on_error` says.
        """
        call_id, now = call.call_id, self._clock()
        self._observer.call_ended(call_id, error)
        if error is None:
            self._do(self._engine.finished_call(call_id, result, now))
            return
        detail = describe_error(error)
        actions = (
            self._engine.failed_call(call_id, detail, now, error=type(error).__name__)
            if isinstance(error, Exception) or call.kind is not act.CallKind.HOOK
            else self._engine.finished_call(call_id, InvalidReturn(f"it raised {detail}"), now)
        )
        self._do([Failure(one, error) if isinstance(one, act.Warn) else one for one in actions])

    def call_refused(self, call_id: int, why: str) -> None:
        """Report that a call will never start."""
        self._do(self._engine.failed_call(call_id, why, self._clock(), was_called=False))

    def call_abandoned(self, call: act.Call) -> None:
        """Warn that a plain function goes on although its result is no longer needed."""
        self._do([act.Warn(WarningKind.CALLBACK_ABANDONED, call.who)])
