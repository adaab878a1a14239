"""Engines whose accounts of unread messages are broken on purpose.

Each mutant wraps an input of the readers, or the actions that the engine returns. None reaches into
a part of the engine, so that a change inside cannot make one of them lose its effect unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle.events import WarningKind

Effect = Callable[[], None]
Mutation = Callable[[Engine, Effect], None]


class ReaderMutant:
    """A way to make engines with one broken account."""

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


READER_MUTANTS: dict[str, ReaderMutant] = {}


def reader_mutant(mutation: Mutation) -> Mutation:
    """Enter a mutation into the table."""
    READER_MUTANTS[mutation.__name__] = ReaderMutant(mutation)
    return mutation


_INPUTS = (
    "start",
    "spawn_failed",
    "receive",
    "output_ended",
    "exited",
    "write_failed",
    "version_accepted",
    "advance",
    "submit",
    "send",
    "cancel",
    "started_call",
    "finished_call",
    "failed_call",
    "end_input",
    "close",
    "stop",
    "break_off",
    "react",
)
"""The inputs of the engine that return actions."""


def _rewrite(engine: Engine, change: Callable[[act.Action], act.Action | None]) -> None:
    """Let ``change`` replace each action that the engine returns, or drop it with None."""

    def wrapped(real: Callable[..., list[act.Action]]) -> Callable[..., list[act.Action]]:
        def called(*arguments: Any, **named: Any) -> list[act.Action]:
            changed = [change(action) for action in real(*arguments, **named)]
            return [action for action in changed if action is not None]

        return called

    for name in _INPUTS:
        setattr(engine, name, wrapped(getattr(engine, name)))


def _without(engine: Engine, effect: Effect, is_meant: Callable[[act.Action], bool]) -> None:
    def drop(action: act.Action) -> act.Action | None:
        if not is_meant(action):
            return action
        effect()
        return None

    _rewrite(engine, drop)


# ---------------------------------------------------------------- in the actions


@reader_mutant
def keeps_the_messages_of_turns_that_no_loop_reads(engine: Engine, effect: Effect) -> None:
    _without(engine, effect, lambda action: isinstance(action, act.Discard))


@reader_mutant
def keeps_every_event(engine: Engine, effect: Effect) -> None:
    _without(engine, effect, lambda action: isinstance(action, act.DropOldest))


@reader_mutant
def never_pauses_reading(engine: Engine, effect: Effect) -> None:
    _without(engine, effect, lambda action: isinstance(action, act.PauseReading))


@reader_mutant
def never_warns_of_a_slow_reader(engine: Engine, effect: Effect) -> None:
    def is_meant(action: act.Action) -> bool:
        return isinstance(action, act.Warn) and action.kind is WarningKind.UNREAD_MESSAGES

    _without(engine, effect, is_meant)


@reader_mutant
def forgets_a_reader(engine: Engine, effect: Effect) -> None:
    def forget(action: act.Action) -> act.Action:
        if not isinstance(action, act.Deliver) or len(action.readers) < 2:
            return action
        effect()
        return structs.replace(action, readers=action.readers[1:])

    _rewrite(engine, forget)


# ---------------------------------------------------------------- in the inputs of readers


def _replace(engine: Engine, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    setattr(engine.delivery, name, make(getattr(engine.delivery, name)))


@reader_mutant
def counts_what_is_taken_twice(engine: Engine, effect: Effect) -> None:
    def twice(took: Callable[..., bool]) -> Callable[..., bool]:
        def take(reader: act.Reader, size: int, items: int) -> bool:
            effect()
            return took(reader, 2 * size, 2 * items)

        return take

    _replace(engine, "took", twice)


@reader_mutant
def never_counts_what_is_taken(engine: Engine, effect: Effect) -> None:
    """Sessions of readers that keep up fail."""

    def never(_: object) -> Callable[..., bool]:
        def take(*_: object) -> bool:
            effect()
            return False

        return take

    _replace(engine, "took", never)


@reader_mutant
def delivers_to_readers_that_left(engine: Engine, effect: Effect) -> None:
    _replace(engine, "closed", lambda _: lambda reader: effect())


@reader_mutant
def takes_a_loop_that_was_left_for_one_that_reads(engine: Engine, effect: Effect) -> None:
    _replace(engine, "left_loop", lambda _: lambda uuid, size, items: effect())


@reader_mutant
def forgets_what_a_loop_returns(engine: Engine, effect: Effect) -> None:
    def forget(left: Callable[..., None]) -> Callable[..., None]:
        def leave(uuid: str, size: int, items: int) -> None:
            if size:
                effect()
            left(uuid, 0, 0)

        return leave

    _replace(engine, "left_loop", forget)


@reader_mutant
def keeps_messages_of_turns_that_are_only_awaited(engine: Engine, effect: Effect) -> None:
    def keep(_: object) -> Callable[[str], None]:
        def begin(uuid: str) -> None:
            effect()

        return begin

    _replace(engine, "begin_wait", keep)
