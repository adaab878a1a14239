"""Engines that are broken on purpose. The simulation must catch every one of them.

A mutant stands between the world and a healthy engine and changes what goes in or what comes out:
the configuration, the arguments of an input, the actions. It uses only the public names of the
engine, so a change inside the core can neither disable a mutant nor crash it. A mutant counts an
effect whenever it makes the engine do something that a healthy engine would not do.
"""

from __future__ import annotations

from functools import cache, partial
from inspect import BoundArguments, Signature, signature
from typing import Any, ClassVar, cast

import msgspec
from msgspec import structs
from tests.simulation.callbacks import subject_of
from tests.simulation.output import Json, verdict_of

from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.state import TERMINAL, UNCONFIRMED, Lifecycle
from bridle._engine.turns.limits import REACTION
from bridle.errors import ApprovalPending, ControlTimeout
from bridle.events import SessionCompleted, SessionEnded, SessionFailed, WarningKind
from bridle.messages import ResultMessage
from bridle.options import Limits
from bridle.outcomes import Outcome, OutcomeReason

Actions = list[act.Action]


class Mutant:
    """A healthy engine behind a changed surface. This one changes nothing.

    A subclass overrides `configure`, `feed` or `alter`, or a public property of the engine.
    """

    def __init__(self, config: EngineConfig) -> None:
        #: How often the mutant did something that a healthy engine would not do.
        self.effects = 0
        self._engine = Engine(self.configure(config))

    def __getattr__(self, name: str) -> Any:
        """Return a public attribute of the engine; a method becomes an input of the mutant."""
        if name.startswith("_"):
            raise AttributeError(f"the engine's {name} is private")
        value = getattr(self._engine, name)
        return partial(self._input, name) if callable(value) else value

    def _input(self, name: str, *arguments: object, **named: object) -> Actions:
        return self.feed(name, _signature(name).bind(self._engine, *arguments, **named))

    def configure(self, config: EngineConfig) -> EngineConfig:
        """Return the configuration that the engine gets."""
        return config

    def feed(self, name: str, given: BoundArguments) -> Actions:
        """Pass an input on to the engine and return the actions that the world gets."""
        result = getattr(Engine, name)(*given.args, **given.kwargs)
        is_input = isinstance(result, list) and bool(result)
        return self.alter(name, given.arguments, result) if is_input else result

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        """Return what the world gets in place of `actions`, the result of an input."""
        return actions


@cache
def _signature(name: str) -> Signature:
    return signature(getattr(Engine, name))


MUTANTS: dict[str, type[Mutant]] = {}


def mutant(kind: type[Mutant]) -> type[Mutant]:
    """Enter a mutant into the table."""
    MUTANTS[kind.__name__] = kind
    return kind


def _response_in(action: act.Action) -> Json | None:
    """Return the response of ours that an action writes, if it writes one."""
    if isinstance(action, act.Write) and b'"control_response"' in action.data:
        return cast("Json", msgspec.json.decode(action.data)["response"])
    return None


def _is_about(action: act.Action, kind: WarningKind) -> bool:
    """Return True if the action is a warning of that kind."""
    return isinstance(action, act.Warn) and action.kind is kind


def _interrupts(action: act.Action) -> bool:
    """Whether this writes an interrupt."""
    return isinstance(action, act.Write) and b'"subtype":"interrupt"' in action.data


def _response(response: Json) -> act.Write:
    """Return the action that writes a response."""
    frame = {"type": "control_response", "response": response}
    return act.Write(msgspec.json.encode(frame) + b"\n")


# ---------------------------------------------------------------- twice, or never


class Repeating(Mutant):
    """Does something twice."""

    def is_repeated(self, action: act.Action) -> bool:
        raise NotImplementedError

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        repeated: Actions = []
        for action in actions:
            repeated.append(action)
            if self.is_repeated(action):
                self.effects += 1
                repeated.append(action)
        return repeated


@mutant
class AnswersTwice(Repeating):
    def is_repeated(self, action: act.Action) -> bool:
        return _response_in(action) is not None


@mutant
class SettlesTwice(Repeating):
    def is_repeated(self, action: act.Action) -> bool:
        return isinstance(action, act.Resolve)


@mutant
class EndsTurnsTwice(Repeating):
    def is_repeated(self, action: act.Action) -> bool:
        return isinstance(action, act.TurnEnded)


class Forgetting(Mutant):
    """Leaves something out."""

    def is_forgotten(self, action: act.Action) -> bool:
        raise NotImplementedError

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        kept = [action for action in actions if not self.is_forgotten(action)]
        self.effects += len(actions) - len(kept)
        return kept


@mutant
class ForgetsToCancelCalls(Forgetting):
    def is_forgotten(self, action: act.Action) -> bool:
        return isinstance(action, act.CancelCall)


@mutant
class ForgetsToKill(Forgetting):
    def is_forgotten(self, action: act.Action) -> bool:
        return isinstance(action, act.Kill)


@mutant
class ForgetsRequestTimeouts(Forgetting):
    def is_forgotten(self, action: act.Action) -> bool:
        return isinstance(action, act.Reject) and isinstance(action.error, ControlTimeout)


@mutant
class FailsSilently(Forgetting):
    def is_forgotten(self, action: act.Action) -> bool:
        return isinstance(action, act.Warn)


@mutant
class EndsWithoutALastEvent(Forgetting):
    def is_forgotten(self, action: act.Action) -> bool:
        last = SessionCompleted | SessionEnded | SessionFailed
        return isinstance(action, act.Publish) and isinstance(action.event, last)


# ---------------------------------------------------------------- messages and turns


@mutant
class LosesAMessage(Mutant):
    """Loses the last message of the thirtieth delivery."""

    _deliveries = 0

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        for action in actions:
            if isinstance(action, act.Deliver):
                self._deliveries += 1
                if self._deliveries == 30:
                    self.effects += 1
                    action.messages.pop()
        return actions


@mutant
class ForgetsOneOfSeveralTurns(Mutant):
    """Delivers a message of merged prompts to all but the first of them."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        return [self._forget(action) for action in actions]

    def _forget(self, action: act.Action) -> act.Action:
        if not isinstance(action, act.Deliver) or len(action.turns) < 2:
            return action
        self.effects += 1
        return structs.replace(action, turns=action.turns[1:])


@mutant
class ForgetsMergedPrompts(Mutant):
    """Ends only the first of the prompts that share an outcome."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        merged: set[str] = set()
        kept: Actions = []
        for action in actions:
            if isinstance(action, act.TurnEnded):
                if action.uuid in merged:
                    self.effects += 1
                    continue
                merged.update(action.outcome.merged_with)
            kept.append(action)
        return kept


@mutant
class IgnoresThatAPromptWasWithdrawn(Mutant):
    """Leaves a prompt open that the CLI has taken out of its queue at our request."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._asked: set[str] = set()

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        return [action for action in actions if not self._is_ignored(name, action)]

    def _is_ignored(self, name: str, action: act.Action) -> bool:
        if isinstance(action, act.Write) and b'"cancel_async_message"' in action.data:
            self._asked.add(msgspec.json.decode(action.data)["request"]["message_uuid"])
        is_withdrawn = (
            isinstance(action, act.TurnEnded)
            and action.uuid in self._asked
            and action.outcome.reason is OutcomeReason.INTERRUPTED
            and name == "receive"
        )
        self.effects += is_withdrawn
        return is_withdrawn


@mutant
class EndsTheNextPromptByAStaleResult(Mutant):
    """Takes a result that the CLI repeats for the result of the prompt that runs now."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._open: dict[str, None] = {}
        self._ended: dict[str, Outcome[Any]] = {}

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        altered: Actions = []
        for action in actions:
            altered.append(action)
            if isinstance(action, act.TurnStarted):
                self._open[action.uuid] = None
            elif isinstance(action, act.TurnEnded):
                self._open.pop(action.uuid, None)
                self._ended[action.uuid] = action.outcome
            elif isinstance(action, act.Deliver):
                altered += self._ended_by(action)
        return altered

    def _ended_by(self, action: act.Deliver) -> Actions:
        for message in action.messages:
            if isinstance(message, ResultMessage):
                uuids = message.raw.get("user_message_uuids") or ["none"]
                if self._open and all(uuid in self._ended for uuid in uuids):
                    self.effects += 1
                    return [act.TurnEnded(next(iter(self._open)), self._ended[uuids[0]])]
        return []


@mutant
class BillsAgainAndAgain(Mutant):
    """Bills for a turn what the whole session has cost so far."""

    _billed = 0.0

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        return [self._bill(action) for action in actions]

    def _bill(self, action: act.Action) -> act.Action:
        if not isinstance(action, act.TurnEnded) or not action.outcome.cost_usd:
            return action
        self.effects += self._billed > 0.0
        self._billed += action.outcome.cost_usd
        outcome = structs.replace(action.outcome, cost_usd=self._billed)
        return act.TurnEnded(action.uuid, outcome)


# ---------------------------------------------------------------- requests


@mutant
class PermitsWhenTheCallbackFails(Mutant):
    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        return [self._permit(action) for action in actions] if name == "failed_call" else actions

    def _permit(self, action: act.Action) -> act.Action:
        response = _response_in(action)
        if response is None or response.get("response", {}).get("behavior") != "deny":
            return action
        self.effects += 1
        return _response({**response, "response": {"behavior": "allow", "updatedInput": {}}})


@mutant
class AllowsWhatAHookHasBlocked(Mutant):
    """Sends the allow that waited for hooks although they have not let the call run."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        return [self._permit(action) for action in actions] if name == "advance" else actions

    def _permit(self, action: act.Action) -> act.Action:
        response = _response_in(action)
        answer = {} if response is None else response.get("response", {})
        blocked = "a hook of the application has blocked the call"
        if response is None or blocked not in answer.get("message", ""):
            return action
        self.effects += 1
        return _response({**response, "response": {"behavior": "allow", "updatedInput": {}}})


@mutant
class BlocksWhenAHookFails(Mutant):
    """Blocks although the hook was registered to let the CLI go on."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._hooks: set[int] = set()

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        self._hooks.update(
            action.call_id
            for action in actions
            if isinstance(action, act.Call) and action.kind is act.CallKind.HOOK
        )
        if name == "failed_call" and given["call_id"] in self._hooks:
            return [self._block(action) for action in actions]
        return actions

    def _block(self, action: act.Action) -> act.Action:
        response = _response_in(action)
        if response is None or verdict_of("hook", response) != "go":
            return action
        self.effects += 1
        return _response({**response, "response": {"decision": "block", "reason": "it failed"}})


@mutant
class DefersEveryCall(Mutant):
    """Defers a call although another one waits, or although it cannot wait."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        if not any(_is_about(action, WarningKind.CANNOT_DEFER) for action in actions):
            return actions
        return [
            self._defer(action)
            for action in actions
            if not _is_about(action, WarningKind.CANNOT_DEFER)
        ]

    def _defer(self, action: act.Action) -> act.Action:
        response = _response_in(action)
        if response is None or verdict_of("hook", response) != "block":
            return action
        self.effects += 1
        specific = {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
        return _response({**response, "response": {"hookSpecificOutput": specific}})


@mutant
class SendsAPromptWhileACallWaits(Mutant):
    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        is_refused = any(
            isinstance(action, act.Reject) and isinstance(action.error, ApprovalPending)
            for action in actions
        )
        if not is_refused:
            return actions
        self.effects += 1
        return [act.Write(b'{"type":"user"}\n'), *actions]


@mutant
class TakesRequestsBeyondTheBound(Mutant):
    def configure(self, config: EngineConfig) -> EngineConfig:
        self._bound = config.incoming.max_open
        self._calls: set[int] = set()
        incoming = structs.replace(config.incoming, max_open=1_000_000)
        return structs.replace(config, incoming=incoming)

    def feed(self, name: str, given: BoundArguments) -> Actions:
        if name in ("finished_call", "failed_call"):
            self._calls.discard(given.arguments["call_id"])
        return super().feed(name, given)

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        for action in actions:
            if isinstance(action, act.CancelCall):
                self._calls.discard(action.call_id)
            elif isinstance(action, act.Call):
                self._calls.add(action.call_id)
                self.effects += len(self._calls) > self._bound
        return actions


@mutant
class GoesOnWhenACallbackCannotBeCalled(Mutant):
    """Treats a gate that could not be asked as one that failed."""

    def feed(self, name: str, given: BoundArguments) -> Actions:
        if name == "failed_call" and not given.arguments.get("was_called", True):
            self.effects += 1
            given.arguments["was_called"] = True
        return super().feed(name, given)


@mutant
class ForgetsCallbackTimeouts(Mutant):
    """Never learns that a callback has started, so its deadline never counts."""

    def feed(self, name: str, given: BoundArguments) -> Actions:
        if name == "started_call":
            self.effects += 1
            return []
        return super().feed(name, given)


@mutant
class CountsTheDeadlineOfCallsThatHaveNotStarted(Mutant):
    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._started: set[int] = set()

    def feed(self, name: str, given: BoundArguments) -> Actions:
        if name == "started_call":
            self._started.add(given.arguments["call_id"])
        return super().feed(name, given)

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        for action in actions:
            if isinstance(action, act.Call):
                self._engine.started_call(action.call_id, given["now"])
            elif isinstance(action, act.CancelCall) and action.timed_out:
                self.effects += action.call_id not in self._started
        return actions


@mutant
class AnswersWhatWasTakenBack(Mutant):
    """Answers a request of the CLI after the CLI has withdrawn it."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._requests: dict[int, str] = {}
        self._withdrawn: list[str] = []

    def feed(self, name: str, given: BoundArguments) -> Actions:
        actions = super().feed(name, given)
        if name != "advance" or self._engine.lifecycle in TERMINAL:
            return actions
        late = [
            _response({"subtype": "error", "request_id": request, "error": "late"})
            for request in self._withdrawn
        ]
        self.effects += len(late)
        self._withdrawn.clear()
        return [*late, *actions]

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        for action in actions:
            if isinstance(action, act.Call):
                self._requests[action.call_id] = subject_of(action)
            elif isinstance(action, act.CancelCall) and name == "receive":
                self._withdrawn.append(self._requests[action.call_id])
            elif isinstance(action, act.EndInput):
                self._withdrawn.clear()
        return actions


@mutant
class WritesAfterTheEndOfInput(Mutant):
    """Ends the input before it writes what belongs in front of the end."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        ends = [action for action in actions if isinstance(action, act.EndInput)]
        rest = [action for action in actions if not isinstance(action, act.EndInput)]
        if ends and any(isinstance(action, act.Write) for action in rest):
            self.effects += 1
            return [*ends, *rest]
        return actions


@mutant
class InterruptsWhenNothingRuns(Mutant):
    """Takes a turn for running that has ended, and interrupts it before it closes."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        if name != "close" or not isinstance(actions[0], act.EndInput):
            return actions
        self.effects += 1
        request = {"subtype": "interrupt"}
        frame = {"type": "control_request", "request_id": "req_late", "request": request}
        return [act.Write(msgspec.json.encode(frame) + b"\n"), *actions]


@mutant
class LeavesAQueuedOperation(Mutant):
    """Forgets every operation but the first of those that wait for the CLI to start."""

    _queued = 0

    def feed(self, name: str, given: BoundArguments) -> Actions:
        if name in ("submit", "send") and self._engine.lifecycle in UNCONFIRMED:
            self._queued += 1
            if self._queued > 1:
                self.effects += 1
                return []
        return super().feed(name, given)


# ---------------------------------------------------------------- limits


class WithoutLimit(Mutant):
    """Does not enforce one of the limits."""

    limit: ClassVar[str]
    instead: ClassVar[float | None] = None

    def configure(self, config: EngineConfig) -> EngineConfig:
        self._is_changed = getattr(config.limits, self.limit) is not None
        if not self._is_changed:
            return config
        return structs.replace(config, limits=config.limits.replace(**{self.limit: self.instead}))

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        if self._is_changed:
            self.effects += sum(isinstance(action, act.TurnStarted) for action in actions)
        return actions


@mutant
class ForgetsTheTotal(WithoutLimit):
    limit = "total"


@mutant
class ForgetsTheFirstEvent(WithoutLimit):
    limit = "first_event"


@mutant
class ForgetsIdleness(WithoutLimit):
    limit = "idle"


@mutant
class LetsATurnMakeAnyNumberOfModelCalls(WithoutLimit):
    limit = "turns"


@mutant
class LetsATurnSpendAnyNumberOfDollars(WithoutLimit):
    limit = "usd"
    instead: ClassVar[float | None] = (
        1_000_000.0  # The engine must still ask the CLI what the turn has cost.
    )


@mutant
class GoesOnAlthoughTheCostIsUnknown(Mutant):
    """Warns that the CLI does not report its cost, as healthy engines do, and no more."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        if not any(_is_about(action, WarningKind.COST_UNKNOWN) for action in actions):
            return actions
        kept = [action for action in actions if not _interrupts(action)]
        self.effects += len(actions) - len(kept)
        return kept


@mutant
class EndsAPromptBeforeItsTime(Mutant):
    def configure(self, config: EngineConfig) -> EngineConfig:
        total = config.limits.total
        if total is None:
            return config
        return structs.replace(config, limits=config.limits.replace(total=total - 1.0))

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        self.effects += sum(
            isinstance(action, act.TurnEnded) and action.outcome.reason is OutcomeReason.LIMIT_TOTAL
            for action in actions
        )
        return actions


@mutant
class RelabelsACompletedAnswer(Mutant):
    """Reports a turn as over its limit although its answer was complete."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._total = config.limits.total
        self._started: dict[str, float] = {}

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        if self._total is None:
            return actions
        return [self._relabel(action, given["now"], self._total) for action in actions]

    def _relabel(self, action: act.Action, now: float, total: float) -> act.Action:
        if isinstance(action, act.TurnStarted):
            self._started[action.uuid] = now
        if not isinstance(action, act.TurnEnded) or not action.outcome.ok:
            return action
        if now < self._started[action.uuid] + total:
            return action
        self.effects += 1
        outcome = structs.replace(action.outcome, reason=OutcomeReason.LIMIT_TOTAL)
        return act.TurnEnded(action.uuid, outcome)


@mutant
class WaitsForATurnThatIgnoresItsInterrupt(Mutant):
    """Never learns that the time is up which a turn has to end after an interrupt for a limit."""

    _until: float | None = None

    def configure(self, config: EngineConfig) -> EngineConfig:
        self._is_limited = config.limits != Limits()
        return config

    @property
    def next_deadline(self) -> float | None:
        deadline = self._engine.next_deadline
        if deadline is None or self._until is None or deadline <= self._until or self._is_ending:
            return deadline
        self.effects += 1
        return None

    def feed(self, name: str, given: BoundArguments) -> Actions:
        now = given.arguments.get("now", 0.0)
        is_late = self._until is not None and now > self._until
        if name == "advance" and is_late and not self._is_ending:
            self.effects += 1
            given.arguments["now"] = self._until
        return super().feed(name, given)

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        for action in actions:
            if isinstance(action, act.TurnEnded):
                self._until = None
            elif self._is_limited and name in ("advance", "receive") and _interrupts(action):
                self._until = given["now"] + REACTION - 0.1
        return actions

    @property
    def _is_ending(self) -> bool:
        return self._engine.is_closing or self._engine.lifecycle in TERMINAL


@mutant
class LosesTheActionsOfGivingUp(Mutant):
    """Returns nothing when a limit ends the session, as if the input had raised."""

    def alter(self, name: str, given: dict[str, Any], actions: Actions) -> Actions:
        is_for_a_limit = any(
            isinstance(action, act.TurnEnded) and action.outcome.reason.startswith("limit_")
            for action in actions
        )
        if name == "advance" and is_for_a_limit and self._engine.lifecycle is Lifecycle.FAILED:
            self.effects += 1
            return []
        return actions
