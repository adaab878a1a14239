"""Engines that are broken on purpose. A simulation that lets one of them pass is worth nothing.

Each mutant is a function that takes a healthy engine and breaks one promise of it. Those that can
be told by what the engine does are made from its actions; the others reach into its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from bridle._core import actions as act
from bridle._core.config import EngineConfig
from bridle._core.ending import Rung
from bridle._core.engine import Engine
from bridle._core.permissions import Answer
from bridle.hooks import Block

Actions = list[act.Action]
Mutation = Callable[[Engine], None]

MUTANTS: dict[str, Callable[[EngineConfig], Engine]] = {}


def mutant(mutation: Mutation) -> Mutation:
    """Enter a mutation into the table, as a way to make engines."""

    def make(config: EngineConfig) -> Engine:
        engine = Engine(config)
        mutation(engine)
        return engine

    MUTANTS[mutation.__name__] = make
    return mutation


def _replace(part: object, name: str, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` makes of a method in its place; a method that is gone is an error."""
    setattr(part, name, make(getattr(part, name)))


def _rewrite(engine: Engine, rewrite: Callable[[Actions], Actions]) -> None:
    """Let ``rewrite`` change what the engine wants done."""
    _replace(engine, "_take", lambda take: lambda: rewrite(take()))


def _twice(actions: Actions, is_meant: Callable[[act.Action], bool]) -> Actions:
    return [action for each in actions for action in ([each, each] if is_meant(each) else [each])]


# ---------------------------------------------------------------- seen in the actions


@mutant
def answers_twice(engine: Engine) -> None:
    def is_answer(action: act.Action) -> bool:
        return isinstance(action, act.Write) and b'"control_response"' in action.data

    _rewrite(engine, lambda actions: _twice(actions, is_answer))


@mutant
def settles_twice(engine: Engine) -> None:
    _rewrite(engine, lambda actions: _twice(actions, lambda a: isinstance(a, act.Resolve)))


@mutant
def ends_turns_twice(engine: Engine) -> None:
    _rewrite(engine, lambda actions: _twice(actions, lambda a: isinstance(a, act.TurnEnded)))


@mutant
def loses_a_message(engine: Engine) -> None:
    seen = 0

    def lose(actions: Actions) -> Actions:
        nonlocal seen
        for action in actions:
            if isinstance(action, act.Deliver):
                seen += 1
                if seen == 30:
                    action.messages.pop()
        return actions

    _rewrite(engine, lose)


@mutant
def forgets_whose_message_it_is(engine: Engine) -> None:
    def forget(action: act.Action) -> act.Action:
        is_meant = isinstance(action, act.Deliver) and len(action.turns) > 1
        return structs.replace(action, turns=action.turns[1:]) if is_meant else action  # type: ignore[union-attr]  # mypy does not see through is_meant

    _rewrite(engine, lambda actions: [forget(action) for action in actions])


@mutant
def forgets_to_cancel_calls(engine: Engine) -> None:
    _rewrite(engine, lambda actions: [a for a in actions if not isinstance(a, act.CancelCall)])


# ---------------------------------------------------------------- inside its parts


def _without_deadline(engine: Engine, kind: str) -> None:
    def keep(set_deadline: Callable[[Any, float], None]) -> Callable[[Any, float], None]:
        def set_others(token: Any, when: float) -> None:
            if token[0] != kind:
                set_deadline(token, when)

        return set_others

    _replace(engine.deadlines, "set", keep)


@mutant
def forgets_request_timeouts(engine: Engine) -> None:
    _without_deadline(engine, "request")


@mutant
def forgets_callback_timeouts(engine: Engine) -> None:
    _without_deadline(engine, "call")


@mutant
def forgets_to_kill(engine: Engine) -> None:
    departure = engine._departure

    def climb_on(real: Callable[[float], None]) -> Callable[[float], None]:
        return lambda now: None if departure.rung is Rung.TERMINATING else real(now)

    _replace(departure, "climb_on", climb_on)


@mutant
def permits_when_the_callback_fails(engine: Engine) -> None:
    questions = engine._questions

    def allow(real: Callable[..., None]) -> Callable[..., None]:
        def fail(call: act.Call, kind: str, detail: str, now: float, **more: bool) -> None:
            if call.kind is not act.CallKind.PERMISSION:
                real(call, kind, detail, now, **more)
            else:
                allowed = b'{"behavior":"allow","updatedInput":{}}'
                questions._answer(call.request_id, Answer(allowed, ((kind, detail),)))

        return fail

    _replace(questions, "_fail", allow)


@mutant
def blocks_when_a_hook_fails(engine: Engine) -> None:
    questions = engine._questions

    def block(real: Callable[..., None]) -> Callable[..., None]:
        def fail(call: act.Call, kind: str, detail: str, now: float, **more: bool) -> None:
            if call.kind is not act.CallKind.HOOK:
                real(call, kind, detail, now, **more)
            else:
                call.subject.warn(kind, detail)
                call.subject.done(Block("it failed"))
                questions._step_hook(call.request_id, call.subject, now)

        return fail

    _replace(questions, "_fail", block)


@mutant
def takes_requests_beyond_the_bound(engine: Engine) -> None:
    _replace(engine._questions, "_is_full", lambda _: lambda label, now: False)


@mutant
def goes_on_when_a_callback_cannot_be_called(engine: Engine) -> None:
    def pass_on(failed: Callable[..., None]) -> Callable[..., None]:
        def fail(call_id: int, detail: str, now: float, *, was_called: bool = True) -> None:
            failed(call_id, detail, now)

        return fail

    _replace(engine._questions, "failed", pass_on)


@mutant
def counts_the_deadline_of_calls_that_have_not_started(engine: Engine) -> None:
    questions = engine._questions

    def at_once(call: Callable[..., None]) -> Callable[..., None]:
        def make(*arguments: Any) -> None:
            call(*arguments)
            questions.started(questions._calls, 0.0)

        return make

    _replace(questions, "_call", at_once)


@mutant
def answers_what_was_taken_back(engine: Engine) -> None:
    _replace(engine._questions, "withdraw", lambda _: lambda request_id: None)


@mutant
def writes_after_the_end_of_input(engine: Engine) -> None:
    _replace(engine._questions, "_can_write", lambda _: lambda: True)


@mutant
def leaves_a_queued_operation(engine: Engine) -> None:
    _replace(engine._requests, "take_queue", lambda take: lambda: take()[:-1])


@mutant
def drops_the_news_of_a_withdrawn_prompt(engine: Engine) -> None:
    _replace(engine._turns, "withdraw", lambda _: lambda uuid, now: None)


@mutant
def forgets_merged_prompts(engine: Engine) -> None:
    _replace(engine._turns, "_known", lambda known: lambda uuids: known(list(uuids)[:1]))


@mutant
def bills_again_and_again(engine: Engine) -> None:
    turns = engine._turns

    def bill(close: Callable[..., None]) -> Callable[..., None]:
        def from_zero(*arguments: Any) -> None:
            turns.meter.total = 0.0
            close(*arguments)

        return from_zero

    _replace(turns, "_close_turn", bill)
