"""Engines that are broken on purpose. A simulation that lets one of them pass is worth nothing.

Each mutant is a function that takes a healthy engine and breaks one promise of it. It calls
``effect`` whenever it makes the engine do something else than a healthy one, so that a mutant that
no longer changes anything is found out. Only a :class:`Violation` counts as a catch: a mutant that
raises on its own account proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from bridle._core import actions as act
from bridle._core import budget
from bridle._core.budget import TurnBudget
from bridle._core.config import EngineConfig
from bridle._core.ending import Rung
from bridle._core.engine import Engine
from bridle._core.permissions import Answer
from bridle._core.state import Cause, InvalidTransition
from bridle.errors import TransportError
from bridle.hooks import Block

Actions = list[act.Action]
Effect = Callable[[], None]
Mutation = Callable[[Engine, Effect], None]


class Mutant:
    """A way to make broken engines."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation
        #: How often one of them did something else than a healthy engine.
        self.effects = 0

    def __call__(self, config: EngineConfig) -> Engine:
        engine = Engine(config)
        self._mutation(engine, self._note_effect)
        return engine

    def _note_effect(self) -> None:
        self.effects += 1


MUTANTS: dict[str, Mutant] = {}


def mutant(mutation: Mutation) -> Mutation:
    """Enter a mutation into the table, as a way to make engines."""
    MUTANTS[mutation.__name__] = Mutant(mutation)
    return mutation


def _replace(part: object, name: str, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` makes of a method in its place; a method that is gone is an error."""
    setattr(part, name, make(getattr(part, name)))


def _rewrite(engine: Engine, rewrite: Callable[[Actions], Actions]) -> None:
    """Let ``rewrite`` change what the engine wants done."""
    _replace(engine, "_take", lambda take: lambda now: rewrite(take(now)))


def _twice(engine: Engine, effect: Effect, is_meant: Callable[[act.Action], bool]) -> None:
    def repeat(actions: Actions) -> Actions:
        repeated: Actions = []
        for action in actions:
            repeated.append(action)
            if is_meant(action):
                effect()
                repeated.append(action)
        return repeated

    _rewrite(engine, repeat)


# ---------------------------------------------------------------- seen in the actions


@mutant
def answers_twice(engine: Engine, effect: Effect) -> None:
    def is_answer(action: act.Action) -> bool:
        return isinstance(action, act.Write) and b'"control_response"' in action.data

    _twice(engine, effect, is_answer)


@mutant
def settles_twice(engine: Engine, effect: Effect) -> None:
    _twice(engine, effect, lambda action: isinstance(action, act.Resolve))


@mutant
def ends_turns_twice(engine: Engine, effect: Effect) -> None:
    _twice(engine, effect, lambda action: isinstance(action, act.TurnEnded))


@mutant
def loses_a_message(engine: Engine, effect: Effect) -> None:
    seen = 0

    def lose(actions: Actions) -> Actions:
        nonlocal seen
        for action in actions:
            if isinstance(action, act.Deliver):
                seen += 1
                if seen == 30:
                    effect()
                    action.messages.pop()
        return actions

    _rewrite(engine, lose)


@mutant
def forgets_whose_message_it_is(engine: Engine, effect: Effect) -> None:
    def forget(action: act.Action) -> act.Action:
        if not isinstance(action, act.Deliver) or len(action.turns) < 2:
            return action
        effect()
        return structs.replace(action, turns=action.turns[1:])

    _rewrite(engine, lambda actions: [forget(action) for action in actions])


@mutant
def forgets_to_cancel_calls(engine: Engine, effect: Effect) -> None:
    def forget(actions: Actions) -> Actions:
        kept: Actions = [one for one in actions if not isinstance(one, act.CancelCall)]
        if len(kept) < len(actions):
            effect()
        return kept

    _rewrite(engine, forget)


# ---------------------------------------------------------------- inside its parts


def _without_deadline(engine: Engine, effect: Effect, kind: str) -> None:
    def keep(set_deadline: Callable[[Any, float], None]) -> Callable[[Any, float], None]:
        def set_others(token: Any, when: float) -> None:
            if token[0] == kind:
                effect()
            else:
                set_deadline(token, when)

        return set_others

    _replace(engine.deadlines, "set", keep)


@mutant
def forgets_request_timeouts(engine: Engine, effect: Effect) -> None:
    _without_deadline(engine, effect, "request")


@mutant
def forgets_callback_timeouts(engine: Engine, effect: Effect) -> None:
    _without_deadline(engine, effect, "call")


@mutant
def forgets_to_kill(engine: Engine, effect: Effect) -> None:
    departure = engine._departure

    def climb_on(real: Callable[[float], None]) -> Callable[[float], None]:
        def stay(now: float) -> None:
            if departure.rung is Rung.TERMINATING:
                effect()
            else:
                real(now)

        return stay

    _replace(departure, "climb_on", climb_on)


@mutant
def permits_when_the_callback_fails(engine: Engine, effect: Effect) -> None:
    questions = engine._questions

    def allow(real: Callable[..., None]) -> Callable[..., None]:
        def fail(call: act.Call, kind: str, detail: str, now: float, **more: bool) -> None:
            if call.kind is not act.CallKind.PERMISSION:
                real(call, kind, detail, now, **more)
                return
            effect()
            allowed = b'{"behavior":"allow","updatedInput":{}}'
            questions._answer(call.request_id, Answer(allowed, ((kind, detail),)))

        return fail

    _replace(questions, "_fail", allow)


@mutant
def blocks_when_a_hook_fails(engine: Engine, effect: Effect) -> None:
    questions = engine._questions

    def block(real: Callable[..., None]) -> Callable[..., None]:
        def fail(call: act.Call, kind: str, detail: str, now: float, **more: bool) -> None:
            if call.kind is not act.CallKind.HOOK:
                real(call, kind, detail, now, **more)
                return
            effect()
            call.subject.warn(kind, detail)
            call.subject.done(Block("it failed"))
            questions._step_hook(call.request_id, call.subject, now)

        return fail

    _replace(questions, "_fail", block)


@mutant
def takes_requests_beyond_the_bound(engine: Engine, effect: Effect) -> None:
    def never(is_full: Callable[..., bool]) -> Callable[..., bool]:
        def is_not_full(label: str, now: float) -> bool:
            if is_full(label, now):
                effect()
            return False

        return is_not_full

    _replace(engine._questions, "_is_full", never)


@mutant
def goes_on_when_a_callback_cannot_be_called(engine: Engine, effect: Effect) -> None:
    def pass_on(failed: Callable[..., None]) -> Callable[..., None]:
        def fail(call_id: int, detail: str, now: float, *, was_called: bool = True) -> None:
            if not was_called:
                effect()
            failed(call_id, detail, now)

        return fail

    _replace(engine._questions, "failed", pass_on)


@mutant
def counts_the_deadline_of_calls_that_have_not_started(engine: Engine, effect: Effect) -> None:
    questions = engine._questions

    def at_once(call: Callable[..., None]) -> Callable[..., None]:
        def make(*arguments: Any) -> None:
            effect()
            call(*arguments)
            questions.started(questions._calls, 0.0)

        return make

    _replace(questions, "_call", at_once)


@mutant
def answers_what_was_taken_back(engine: Engine, effect: Effect) -> None:
    _replace(engine._questions, "withdraw", lambda _: lambda request_id: effect())


@mutant
def writes_after_the_end_of_input(engine: Engine, effect: Effect) -> None:
    questions = engine._questions

    def write(_: object) -> Callable[[str, bytes], None]:
        def always(request_id: str, line: bytes) -> None:
            if engine._departure.input_ended:
                effect()
            questions._answered[request_id] = None
            engine._emit(act.Write(line))

        return always

    _replace(questions, "_write", write)


@mutant
def leaves_a_queued_operation(engine: Engine, effect: Effect) -> None:
    def take(real: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
        def but_the_last() -> list[Any]:
            queue = real()
            if queue:
                effect()
            return queue[:-1]

        return but_the_last

    _replace(engine._outgoing, "take_queue", take)


@mutant
def drops_the_news_of_a_withdrawn_prompt(engine: Engine, effect: Effect) -> None:
    _replace(engine._turns, "withdraw", lambda _: lambda uuid, now: effect())


@mutant
def forgets_merged_prompts(engine: Engine, effect: Effect) -> None:
    def forget(known: Callable[[Any], None]) -> Callable[[Any], None]:
        def know_one(uuids: Any) -> None:
            several = list(uuids)
            if len(several) > 1:
                effect()
            known(several[:1])

        return know_one

    _replace(engine._turns, "_known", forget)


@mutant
def bills_again_and_again(engine: Engine, effect: Effect) -> None:
    turns = engine._turns

    def bill(close: Callable[..., None]) -> Callable[..., None]:
        def from_zero(*arguments: Any) -> None:
            if turns.meter.total:
                effect()
            turns.meter.total = 0.0
            close(*arguments)

        return from_zero

    _replace(turns, "_close_turn", bill)


# ---------------------------------------------------------------- limits, and stale results


@mutant
def raises_when_two_prompts_are_given_up(engine: Engine, effect: Effect) -> None:
    """The limits of a session that is over still count, and giving it up again raises.

    An event loop reports what a timer raises, and goes on.
    """
    watch = engine._budget._watch if isinstance(engine._budget, TurnBudget) else None
    if watch is None:
        return

    def give_up(what: str, now: float) -> None:
        engine._fail(Cause.BROKEN, TransportError("session", None, what), now)

    def advance(real: Callable[[float], Actions]) -> Callable[[float], Actions]:
        def report(now: float) -> Actions:
            try:
                return real(now)
            except InvalidTransition:
                effect()
                return []

        return report

    _replace(watch, "stop", lambda _: lambda: None)
    _replace(watch, "_give_up", lambda _: give_up)
    _replace(engine, "advance", advance)


@mutant
def ends_the_next_prompt_by_a_stale_result(engine: Engine, effect: Effect) -> None:
    def is_stale(real: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def never(named: Any) -> bool:
            if real(named):
                effect()
            return False

        return never

    _replace(engine._turns, "_is_stale", is_stale)


@mutant
def forgets_the_total(engine: Engine, effect: Effect) -> None:
    _without_deadline(engine, effect, budget.TOTAL)


@mutant
def forgets_the_first_event(engine: Engine, effect: Effect) -> None:
    _without_deadline(engine, effect, budget.FIRST_EVENT)


@mutant
def forgets_idleness(engine: Engine, effect: Effect) -> None:
    _without_deadline(engine, effect, budget.IDLE)


@mutant
def waits_for_a_turn_that_does_not_end_when_told(engine: Engine, effect: Effect) -> None:
    _without_deadline(engine, effect, budget.PATIENCE)


def _unlimited(engine: Engine, effect: Effect, name: str) -> None:
    def but_this(reach: Callable[..., None]) -> Callable[..., None]:
        def ignore(uuids: Any, hit: Any, now: float) -> None:
            if hit.name == name:
                effect()
            else:
                reach(uuids, hit, now)

        return ignore

    if isinstance(engine._budget, TurnBudget):
        _replace(engine._budget._watch, "_reach", but_this)


@mutant
def lets_a_turn_make_any_number_of_model_calls(engine: Engine, effect: Effect) -> None:
    _unlimited(engine, effect, "turns")


@mutant
def lets_a_turn_spend_any_number_of_dollars(engine: Engine, effect: Effect) -> None:
    _unlimited(engine, effect, "usd")


@mutant
def ends_a_prompt_before_its_time(engine: Engine, effect: Effect) -> None:
    def early(set_deadline: Callable[[Any, float], None]) -> Callable[[Any, float], None]:
        def set_early(token: Any, when: float) -> None:
            if token[0] == budget.TOTAL:
                effect()
                when -= 1.0
            set_deadline(token, when)

        return set_early

    _replace(engine.deadlines, "set", early)


@mutant
def relabels_a_completed_answer(engine: Engine, effect: Effect) -> None:
    turns = engine._turns

    def relabel(end: Callable[..., None]) -> Callable[..., None]:
        def with_limits(*arguments: Any) -> None:
            hits = dict(turns._limits)
            began = len(engine._outbox._actions)
            end(*arguments)
            actions = engine._outbox._actions
            for number, action in enumerate(actions[began:], began):
                if isinstance(action, act.TurnEnded) and action.outcome.ok and action.uuid in hits:
                    effect()
                    reason = f"limit_{hits[action.uuid].name}"
                    outcome = structs.replace(
                        action.outcome, reason=type(action.outcome.reason)(reason)
                    )
                    actions[number] = act.TurnEnded(action.uuid, outcome)

        return with_limits

    _replace(turns, "_end", relabel)
