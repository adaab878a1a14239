"""Enforce the limits of Bridle on turns.

The watch observes prompts that begin and end, messages, and callbacks that run. Time counts for a
prompt from the moment it is written. The idle timer stops while a tool or a callback runs, because
the CLI is then silent for a good reason. Any message of a turn and any request of the CLI counts
as activity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from bridle._core.actions import Action, Call, Deliver, Outbox, TurnEnded, TurnStarted, Warn
from bridle._core.classify import LimitHit, LimitName, ProcessEnd
from bridle._core.deadlines import Deadlines
from bridle._core.follow_ups import HeldOutcomes
from bridle._core.outgoing import CANCEL_PROMPT, INTERRUPT
from bridle._core.spending import GET_USAGE, USAGE_FIELDS, Spending
from bridle._core.text import SYNTHETIC
from bridle._core.turns import TurnBook
from bridle._core.versions import USAGE_SINCE, is_before
from bridle.content import ToolResultBlock, ToolUseBlock
from bridle.messages import (
    AssistantMessage,
    CommandLifecycle,
    Message,
    ResultMessage,
    TaskNotificationMessage,
    UserMessage,
)
from bridle.options import Limits
from bridle.outcomes import Outcome, OutcomeReason

FIRST_EVENT = "limit: first event"
IDLE = "limit: idle"
TOTAL = "limit: total"
REACTION_TIMEOUT = "limit: patience"
"""The kinds of the deadline tokens. The subject is the uuid of a prompt."""

_TIMED: dict[str, LimitName] = {FIRST_EVENT: "first_event", IDLE: "idle", TOTAL: "total"}

REACTION = 5.0
"""Seconds in which an interrupted turn must end. After that the session fails."""


_MAX_TOOLS = 1024
"""Tool calls without a result that are remembered. The oldest one is forgotten first."""


class Used(Struct, frozen=True):
    """What earlier prompts of the same answer have used of its limits."""

    seconds: float = 0.0
    turns: int = 0
    usd: float = 0.0


_NOTHING = Used()


class Budget(Protocol):
    """Define what the engine needs from its limits."""

    def take(self, now: float) -> list[Action]:
        """Return the actions of an input at ``now``, with those of the limits it reached."""
        ...

    def overdue(self, kind: str, subject: str, now: float) -> bool:
        """Handle a deadline that has passed. Return False if it belongs to another module."""
        ...

    def end(self, ending: ProcessEnd, now: float) -> None:
        """Stop watching, because the session has ended."""
        ...


class LimitWatch:
    """Watch the limits of the turns of one session.

    A prompt that reaches a limit is interrupted, or withdrawn if it still waits for its turn:
    ``note_limit`` returns True for the first, False for the second, None for a prompt that has
    ended. If the turn does not end after that, ``give_up`` ends the session. ``is_waiting`` returns
    True while a callback runs. ``spending`` and ``running`` (the prompts of the running turn) serve
    the limit in dollars.
    """

    def __init__(
        self,
        limits: Limits,
        deadlines: Deadlines,
        *,
        note_limit: Callable[[str, LimitHit, float], bool | None],
        is_waiting: Callable[[], bool],
        interrupt: Callable[[float], None],
        withdraw: Callable[[str, float], None],
        give_up: Callable[[str, float], None],
        spending: Spending | None = None,
        running: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._limits = limits
        self._deadlines = deadlines
        self._note_limit = note_limit
        self._is_waiting = is_waiting
        self._interrupt = interrupt
        self._withdraw = withdraw
        self._give_up = give_up
        self._spending = spending
        self._running = running
        # The prompts that are watched, each with the ids of the model's messages seen so far.
        self._calls: dict[str, set[str]] = {}
        # What earlier prompts of the same answer have used, by the prompt that continues it.
        self._carried: dict[str, Used] = {}
        # The prompts for which the CLI has shown activity.
        self._alive: set[str] = set()
        # Prompts that have reached a limit and have no outcome yet. True for those that run.
        self._reached: dict[str, bool] = {}
        # Prompts whose turn has ended and whose outcome waits for background work.
        self._held: set[str] = set()
        # Tool calls without a result, by id: the agent that made the call, and the message's id.
        self._tools: dict[str, tuple[str | None, str | None]] = {}

    def observe(self, actions: Sequence[Action], now: float) -> None:
        """Observe the actions of the engine at ``now``."""
        was_open = bool(self._calls)
        for action in actions:
            if isinstance(action, TurnStarted):
                self.start(action.uuid, now)
            elif isinstance(action, TurnEnded):
                if action.outcome.result is not None:
                    self._tools.clear()  # also the tools of a turn that has reached a limit
                self.end(action.uuid, now)
            elif isinstance(action, Deliver):
                # Messages without a turn come from background work, or from the turn after it.
                for uuid in action.turns or tuple(self._held):
                    self.hear(uuid, action.messages, now)
            elif isinstance(action, Call):
                self._note_life()
        self.mind_idleness(now)
        if self._reached:
            self._interrupt_begun(now)
        if self._spending is not None:
            self._mind_spending(self._spending, actions, now, was_open=was_open)
        if self._carried:
            for action in actions:
                if isinstance(action, TurnEnded):
                    self._carried.pop(action.uuid, None)

    def _mind_spending(
        self, spending: Spending, actions: Sequence[Action], now: float, *, was_open: bool
    ) -> None:
        """Request the cost of the running turn after its model calls.

        End the turn if the cost is too high, or cannot be read.
        """
        for action in actions:
            if isinstance(action, TurnEnded):
                spending.end(action.outcome, self._carried.get(action.uuid, _NOTHING).usd)
            elif isinstance(action, TurnStarted) and not was_open:
                was_open = True
                spending.begin(now)
            elif isinstance(action, Deliver):
                for message in action.messages:
                    spending.observe(message)
        watched = (*self._running(), *self._held)
        running = [uuid for uuid in watched if uuid in self._calls]
        if not running:
            return
        passed = [
            uuid for uuid in running if spending.is_passed(self._carried.get(uuid, _NOTHING).usd)
        ]
        if passed:
            self._reach(passed, LimitHit("usd", spending.allowed), now)
            return
        for action in actions:
            if isinstance(action, Deliver):
                for message in action.messages:
                    spending.hear(message, now)
        if spending.problem:
            self._reach(running, LimitHit("usd", spending.allowed, problem=spending.problem), now)
        else:
            spending.request_if_due(now)

    def overdue(self, kind: str, uuid: str, now: float) -> bool:
        """Handle a deadline that has passed. Return False if it belongs to another module."""
        if kind == REACTION_TIMEOUT:
            self._give_up("it did not end a turn it was told to end", now)
            return True
        if kind not in _TIMED:
            return False
        name = _TIMED[kind]
        self._reach([uuid], LimitHit(name, getattr(self._limits, name)), now)
        return True

    def start(self, uuid: str, now: float) -> None:
        """Start watching a prompt that was written."""
        self._calls[uuid] = set()
        if self._limits.total is not None:
            used = self._carried.get(uuid, _NOTHING).seconds
            self._deadlines.set((TOTAL, uuid), now + max(0.0, self._limits.total - used))
        self.expect_life(now)

    def carry(self, uuid: str, used: Used) -> None:
        """Count what earlier prompts have used towards the limits of the prompt ``uuid``."""
        self._carried[uuid] = used

    def hold(self, uuid: str, outcome: Outcome[Any]) -> None:
        """Keep watching a prompt whose turn has ended and whose outcome waits for background work.

        Silence does not count from here on.
        """
        self._held.add(uuid)
        self._alive.discard(uuid)
        self._deadlines.clear((FIRST_EVENT, uuid))
        self._deadlines.clear((IDLE, uuid))
        if self._spending is not None:
            self._spending.hold(outcome)

    @property
    def spent(self) -> float:
        """Return the dollars spent since the turn began, according to the CLI's last answer."""
        return 0.0 if self._spending is None else self._spending.spent

    def end(self, uuid: str, now: float) -> None:
        """Stop watching a prompt that has its outcome."""
        self._calls.pop(uuid, None)
        self._held.discard(uuid)
        self._alive.discard(uuid)
        self._reached.pop(uuid, None)
        self._clear_deadlines(uuid)
        if not self._calls:
            self._tools.clear()
        self.expect_life(now)

    def stop(self) -> None:
        """Stop watching, because the session has ended."""
        for uuid in (*self._calls, *self._reached):
            self._clear_deadlines(uuid)

    def _clear_deadlines(self, uuid: str) -> None:
        for kind in (FIRST_EVENT, IDLE, TOTAL, REACTION_TIMEOUT):
            self._deadlines.clear((kind, uuid))

    @property
    def _oldest(self) -> str | None:
        """Return the prompt whose turn runs. None while a turn is being ended for its limit."""
        if any(self._reached.values()):
            return None
        return next((uuid for uuid in self._calls if uuid not in self._held), None)

    def expect_life(self, now: float) -> None:
        """Start the timer of the first event for the oldest prompt, which is the one that runs."""
        oldest = self._oldest
        token = (FIRST_EVENT, oldest)
        if self._limits.first_event is None or oldest is None or oldest in self._alive:
            return
        if token not in self._deadlines:
            self._deadlines.set(token, now + self._limits.first_event)

    def _note_life(self) -> None:
        """Count a request of the CLI as activity of the prompt whose turn runs."""
        oldest = self._oldest
        if oldest is not None:
            self._alive.add(oldest)
            self._deadlines.clear((FIRST_EVENT, oldest))

    def hear(self, uuid: str, messages: Sequence[Message], now: float) -> None:
        """Take messages of a prompt's turn. Call :meth:`mind_idleness` afterwards."""
        if uuid not in self._calls:
            return
        if all(isinstance(message, CommandLifecycle) for message in messages):
            return  # the CLI has only acknowledged the prompt, which does not count as activity
        if uuid not in self._held:
            self._alive.add(uuid)
        self._deadlines.clear((FIRST_EVENT, uuid))
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._hear_model(uuid, message, now)
            elif isinstance(message, UserMessage) and not isinstance(message.content, str):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        self._end_tool(block.tool_use_id)
            elif isinstance(message, TaskNotificationMessage):
                self._end_tool(message.tool_use_id or "")
            elif isinstance(message, ResultMessage):
                self._tools.clear()
        if self._limits.idle is not None and uuid in self._calls and uuid not in self._held:
            self._deadlines.set((IDLE, uuid), now + self._limits.idle)

    def _hear_model(self, uuid: str, message: AssistantMessage, now: float) -> None:
        speaker = message.parent_tool_use_id
        if message.message_id is not None:
            # An agent that writes again waits for no tool: calls without a result get none.
            self._forget_tools(speaker, but_of=message.message_id)
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                self._tools[block.id] = (speaker, message.message_id)
                if len(self._tools) > _MAX_TOOLS:
                    del self._tools[next(iter(self._tools))]
        if message.parent_tool_use_id is not None or message.message_id is None:
            return
        if message.model == SYNTHETIC:  # a message of the CLI's own
            return
        calls = self._calls.get(uuid)
        limit = self._limits.turns
        if calls is None or limit is None:
            return
        calls.add(message.message_id)
        if len(calls) + self._carried.get(uuid, _NOTHING).turns > limit:
            self._reach([uuid], LimitHit("turns", limit), now)

    def _end_tool(self, tool_use_id: str) -> None:
        """Note that a tool has its result. If it was a subagent, end its own tools as well."""
        self._tools.pop(tool_use_id, None)
        self._forget_tools(tool_use_id)

    def _forget_tools(self, speaker: str | None, but_of: str | None = None) -> None:
        self._tools = {
            tool: (who, message)
            for tool, (who, message) in self._tools.items()
            if who != speaker or (but_of is not None and message == but_of)
        }

    def mind_idleness(self, now: float) -> None:
        """Stop the idle timer while a tool or a callback runs, and restart it afterwards."""
        if self._limits.idle is None:
            return
        stands_still = bool(self._tools) or self._is_waiting()
        for uuid in self._calls:
            token = (IDLE, uuid)
            if stands_still:
                self._deadlines.clear(token)
            elif token not in self._deadlines and uuid in self._alive:
                self._deadlines.set(token, now + self._limits.idle)

    def _interrupt_begun(self, now: float) -> None:
        """Interrupt a prompt that was queued when it reached its limit and runs now.

        The CLI had started it before the request to withdraw it arrived.
        """
        running = self._running()
        is_interrupted = any(self._reached.get(uuid) for uuid in running)
        begun = [uuid for uuid in running if self._reached.get(uuid) is False]
        for uuid in begun:
            self._reached[uuid] = True
            self._deadlines.set((REACTION_TIMEOUT, uuid), now + REACTION)
        if begun and not is_interrupted:
            self._interrupt(now)

    def _reach(self, uuids: Iterable[str], hit: LimitHit, now: float) -> None:
        """End prompts that have reached a limit. They must end within `REACTION` seconds.

        Prompts that share a turn are interrupted together, once: a second interrupt could hit the
        next turn.
        """
        is_interrupted = any(self._reached.values())
        interrupts = False
        for uuid in uuids:
            is_running = self._note_limit(uuid, hit, now)
            if is_running is None:
                continue
            self._calls.pop(uuid, None)
            self._alive.discard(uuid)
            self._reached[uuid] = is_running
            self._clear_deadlines(uuid)
            self._deadlines.set((REACTION_TIMEOUT, uuid), now + REACTION)
            interrupts = interrupts or is_running
            if not is_running:
                self._withdraw(uuid, now)
        if interrupts and not is_interrupted:
            self._interrupt(now)


class TurnBudget:
    """Enforce the limits of turns, and of the background work that their outcomes wait for.

    ``ask`` sends a control request: subtype, fields, time, timeout, and what gets the answer. The
    CLI may take ``usage_timeout`` seconds to report its cost. ``cli_version`` returns its version.
    ``is_waiting`` returns True while a callback runs. ``give_up`` ends the session.
    """

    def __init__(
        self,
        limits: Limits,
        deadlines: Deadlines,
        outbox: Outbox,
        turns: TurnBook,
        held: HeldOutcomes | None,
        *,
        ask: Callable[..., None],
        is_waiting: Callable[[], bool],
        give_up: Callable[[str, float], None],
        cli_version: Callable[[], str | None],
        usage_timeout: float,
    ) -> None:
        self._outbox = outbox
        self._turns = turns
        self._held = held
        self._give_up = give_up
        spending: Spending | None = None
        if limits.usd is not None:
            spending = Spending(
                limits.usd,
                turns.meter,
                ask=lambda then, now: ask(GET_USAGE, USAGE_FIELDS, now, usage_timeout, then),
                is_silent=lambda: is_before(cli_version(), USAGE_SINCE),
                warn=lambda kind, detail: outbox.emit(Warn(kind, detail)),
            )
        self._watch = LimitWatch(
            limits,
            deadlines,
            note_limit=self._note_limit,
            is_waiting=is_waiting,
            interrupt=lambda now: ask(INTERRUPT, {}, now),
            withdraw=lambda uuid, now: ask(CANCEL_PROMPT, {"message_uuid": uuid}, now),
            give_up=self._give_up_turns,
            spending=spending,
            running=lambda: turns.running,
        )
        if held is not None:
            held.on_hold = self._watch.hold

    def take(self, now: float) -> list[Action]:
        """Return the actions of an input at ``now``, with those of the limits it reached."""
        actions = self._outbox.take()
        if self._held is not None:
            actions = self._held.sift(actions, now)
        if spent := self._watch.spent:
            actions = _with_cost(actions, spent)
        self._watch.observe(actions, now)
        if added := self._outbox.take():
            self._watch.observe(added, now)
            actions += added + self._outbox.take()
        return actions

    def carry(self, uuid: str, used: Used) -> None:
        """Count what earlier prompts have used towards the limits of the prompt ``uuid``."""
        self._watch.carry(uuid, used)

    def overdue(self, kind: str, subject: str, now: float) -> bool:
        """Handle a deadline that has passed. Return False if it belongs to another module."""
        return self._watch.overdue(kind, subject, now)

    def end(self, ending: ProcessEnd, now: float) -> None:
        """Stop watching and release the held outcomes, because the session has ended."""
        self._watch.stop()
        for action in () if self._held is None else self._held.end(ending, now):
            self._outbox.emit(action)

    def _note_limit(self, uuid: str, hit: LimitHit, now: float) -> bool | None:
        if self._held is None or uuid not in self._held:
            return self._turns.note_limit(uuid, hit)
        for action in self._held.reach(hit, now, self._watch.spent):
            self._outbox.emit(action)
        return None

    def _give_up_turns(self, what: str, now: float) -> None:
        self._turns.give_up_limits()
        self._give_up(what, now)


def _with_cost(actions: list[Action], spent: float) -> list[Action]:
    """Add what a turn has spent to its outcome if the CLI exited before it sent the cost.

    The first outcome is that of the running turn. The other prompts were queued.
    """
    for index, action in enumerate(actions):
        if isinstance(action, TurnEnded):
            outcome = action.outcome
            if outcome.reason is OutcomeReason.CLI_EXITED and outcome.cost_usd is None:
                actions[index] = TurnEnded(action.uuid, structs.replace(outcome, cost_usd=spent))
            break
    return actions
