"""Enforce the limits of Bridle on turns.

The watch observes prompts that begin and end, messages, and callbacks that run. Time counts for a
prompt from the moment it is written. The idle timer stops while a tool or a callback runs, because
the CLI is then silent for a good reason. Any message of a turn and any request of the CLI counts
as activity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct, structs

from bridle import messages as msg
from bridle._engine.actions import Action, Call, Deliver, Outbox, TurnEnded, TurnStarted, Warn
from bridle._engine.deadlines import Deadlines
from bridle._engine.session_state import SessionState
from bridle._engine.turns.book import TurnBook
from bridle._engine.turns.classify import LimitHit, LimitName, ProcessEnd
from bridle._engine.turns.cost import GET_USAGE, USAGE_FIELDS, Spending
from bridle._engine.turns.follow_ups import HeldOutcomes
from bridle._engine.turns.model_text import SYNTHETIC
from bridle._engine.turns.subagents import keep
from bridle._engine.turns.turn_records import Standing, Turn
from bridle._engine.versions import USAGE_SINCE, is_since
from bridle.content import ToolResultBlock, ToolUseBlock
from bridle.errors import BridleError
from bridle.options import Limits
from bridle.outcomes import OutcomeReason

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


class Interrupt(Struct, frozen=True):
    """Interrupt the running turn, because a prompt of it has reached a limit."""


class Withdraw(Struct, frozen=True):
    """Withdraw a prompt that has reached a limit while it waited for its turn."""

    uuid: str


class GiveUp(Struct, frozen=True):
    """End the session, because its CLI does not do what it has to.

    ``what`` says why.
    """

    what: str


class Fail(Struct, frozen=True):
    """End the query with this error, because an answer has reached a limit."""

    error: BridleError


class Begun(Struct, frozen=True):
    """Stop waiting for the handshake of a query, because its messages have begun."""


Verdict: TypeAlias = Interrupt | Withdraw | GiveUp | Fail | Begun
"""What the engine has to do because of a limit."""

Verdicts: TypeAlias = Iterator[Verdict]
"""The engine applies each one before it asks for the next."""


class Budget(Protocol):
    """Define what the engine needs from its limits."""

    def sift(self, actions: list[Action], now: float) -> list[Action]:
        """Return the actions of an input, without the outcomes that wait for something."""
        ...

    def check(self, actions: Sequence[Action], now: float, *, is_waiting: bool) -> Verdicts:
        """Observe actions at ``now``. ``is_waiting`` is True while a callback runs."""
        ...

    def overdue(self, kind: str, subject: str, now: float) -> Verdicts | None:
        """Handle a deadline that has passed. Return None if it belongs to another module."""

    def end(self, ending: ProcessEnd, now: float) -> None:
        """Stop watching, because the session has ended."""


class LimitWatch:
    """Watch the time, the silence and the model calls of prompts.

    Returns a limit when a prompt reaches it. The owner then decides what happens to the prompt,
    and calls :meth:`stop_turn` if it is to be ended.
    """

    def __init__(self, limits: Limits, deadlines: Deadlines) -> None:
        self._limits = limits
        self._deadlines = deadlines
        #: The prompts that are watched, in the order they began.
        self.watched: list[Turn] = []
        # Prompts that have reached a limit and have no outcome yet.
        self._stopped: list[Turn] = []
        #: Prompts whose turn has ended and whose outcome waits for background work.
        self.held: list[Turn] = []
        #: Tool calls without a result, by id: the agent that made the call, and the message's id.
        self.tools: dict[str, tuple[str | None, str | None]] = {}

    def start(self, turn: Turn, now: float) -> None:
        """Start watching a prompt that was written."""
        if not turn.is_watched:
            turn.is_watched = True
            self.watched.append(turn)
        turn.calls = set()
        if self._limits.total is not None:
            left = max(0.0, self._limits.total - turn.used.seconds)
            self._deadlines.set((TOTAL, turn.uuid), now + left)
        self.expect_life(now)

    def hold(self, turn: Turn) -> None:
        """Keep watching a prompt whose turn has ended and whose outcome waits for background work.

        Silence does not count from here on.
        """
        if turn not in self.held:
            self.held.append(turn)
        turn.is_alive = False
        self._deadlines.clear((FIRST_EVENT, turn.uuid))
        self._deadlines.clear((IDLE, turn.uuid))

    def end(self, turn: Turn, now: float) -> None:
        """Stop watching a prompt that has its outcome."""
        self._forget(turn)
        if turn in self.held:
            self.held.remove(turn)
        if turn in self._stopped:
            self._stopped.remove(turn)
        turn.stopped = None
        self._clear_deadlines(turn)
        if not self.watched:
            self.tools.clear()
        self.expect_life(now)

    def stop_turn(self, turn: Turn, standing: Standing, now: float) -> None:
        """Note that a prompt is ended for its limit. It must end within `REACTION` seconds."""
        self._forget(turn)
        if turn not in self._stopped:
            self._stopped.append(turn)
        turn.stopped = standing
        self._clear_deadlines(turn)
        self._deadlines.set((REACTION_TIMEOUT, turn.uuid), now + REACTION)

    def _forget(self, turn: Turn) -> None:
        if turn.is_watched:
            turn.is_watched = False
            self.watched.remove(turn)
        turn.is_alive = False

    def stop(self) -> None:
        """Stop watching, because the session has ended."""
        for turn in (*self.watched, *self._stopped):
            self._clear_deadlines(turn)

    def _clear_deadlines(self, turn: Turn) -> None:
        for kind in (FIRST_EVENT, IDLE, TOTAL, REACTION_TIMEOUT):
            self._deadlines.clear((kind, turn.uuid))

    @property
    def is_interrupting(self) -> bool:
        """True while a turn is being ended for its limit."""
        return any(turn.stopped is Standing.RUNNING for turn in self._stopped)

    def has_begun(self, running: Sequence[str], now: float) -> bool:
        """Return True if the turn of a prompt that was withdrawn for its limit has to be ended.

        The CLI had started it before the request to withdraw it arrived.
        """
        in_turn = [turn for uuid in running for turn in self._stopped if turn.uuid == uuid]
        is_interrupted = any(turn.stopped is Standing.RUNNING for turn in in_turn)
        begun = [turn for turn in in_turn if turn.stopped is Standing.QUEUED]
        for turn in begun:
            turn.stopped = Standing.RUNNING
            self._deadlines.set((REACTION_TIMEOUT, turn.uuid), now + REACTION)
        return bool(begun) and not is_interrupted

    @property
    def _oldest(self) -> Turn | None:
        """Return the prompt whose turn runs. None while a turn is being ended for its limit."""
        if self.is_interrupting:
            return None
        return next((turn for turn in self.watched if turn not in self.held), None)

    def expect_life(self, now: float) -> None:
        """Start the timer of the first event for the oldest prompt, which is the one that runs."""
        oldest = self._oldest
        if self._limits.first_event is None or oldest is None or oldest.is_alive:
            return
        token = (FIRST_EVENT, oldest.uuid)
        if token not in self._deadlines:
            self._deadlines.set(token, now + self._limits.first_event)

    def note_life(self) -> None:
        """Count a request of the CLI as activity of the prompt whose turn runs."""
        oldest = self._oldest
        if oldest is not None:
            oldest.is_alive = True
            self._deadlines.clear((FIRST_EVENT, oldest.uuid))

    def expired(self, kind: str) -> LimitHit | None:
        """Return the limit whose deadline has passed. None for another deadline."""
        name = _TIMED.get(kind)
        return None if name is None else LimitHit(name, getattr(self._limits, name))

    def hear(self, turn: Turn, messages: Sequence[msg.Message], now: float) -> LimitHit | None:
        """Take messages of a prompt's turn. Call :meth:`mind_idleness` afterwards.

        Return the limit that the prompt has reached, or None.
        """
        if not turn.is_watched:
            return None
        if all(isinstance(message, msg.CommandLifecycle) for message in messages):
            return None  # the CLI has only acknowledged the prompt: that is not activity
        if turn not in self.held:
            turn.is_alive = True
        self._deadlines.clear((FIRST_EVENT, turn.uuid))
        hit: LimitHit | None = None
        for message in messages:
            if isinstance(message, msg.AssistantMessage):
                self._note_tools(message)
                hit = hit or self._count(turn, message)
            elif isinstance(message, msg.UserMessage) and not isinstance(message.content, str):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        self._end_tool(block.tool_use_id)
            elif isinstance(message, msg.TaskNotificationMessage):
                self._end_tool(message.tool_use_id or "")
            elif isinstance(message, msg.ResultMessage):
                self.tools.clear()
        if self._limits.idle is not None and hit is None and turn not in self.held:
            self._deadlines.set((IDLE, turn.uuid), now + self._limits.idle)
        return hit

    def _count(self, turn: Turn, message: msg.AssistantMessage) -> LimitHit | None:
        """Count a call of the main agent. Return the limit if there are more than allowed."""
        limit, call = self._limits.turns, message.message_id
        if message.parent_tool_use_id is not None or call is None or limit is None:
            return None
        if message.model == SYNTHETIC:  # a message of the CLI's own
            return None
        turn.calls.add(call)
        is_over = len(turn.calls) + turn.used.turns > limit
        return LimitHit("turns", limit) if is_over else None

    # -- tools -------------------------------------------------------------------------------------

    def _note_tools(self, message: msg.AssistantMessage) -> None:
        speaker = message.parent_tool_use_id
        if message.message_id is not None:
            # An agent that writes again waits for no tool: calls without a result get none.
            self._forget_tools(speaker, but_of=message.message_id)
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                keep(self.tools, block.id, (speaker, message.message_id), _MAX_TOOLS)

    def _end_tool(self, tool_use_id: str) -> None:
        """Note that a tool has its result. If it was a subagent, end its own tools as well."""
        self.tools.pop(tool_use_id, None)
        self._forget_tools(tool_use_id)

    def _forget_tools(self, speaker: str | None, but_of: str | None = None) -> None:
        self.tools = {
            tool: (who, message)
            for tool, (who, message) in self.tools.items()
            if who != speaker or (but_of is not None and message == but_of)
        }

    def mind_idleness(self, now: float, *, is_waiting: bool) -> None:
        """Stop the idle timer while a tool or a callback runs, and restart it afterwards."""
        if self._limits.idle is None:
            return
        stands_still = bool(self.tools) or is_waiting
        for turn in self.watched:
            token = (IDLE, turn.uuid)
            if stands_still:
                self._deadlines.clear(token)
            elif token not in self._deadlines and turn.is_alive:
                self._deadlines.set(token, now + self._limits.idle)


class TurnBudget:
    """Enforce the limits of turns, and of the background work that their outcomes wait for.

    A prompt that reaches a limit is interrupted, or withdrawn if it still waits for its turn. If
    the turn does not end after that, the session ends. ``ask`` sends a control request: subtype,
    fields, time, timeout, and what gets the answer. The CLI may take ``usage_timeout`` seconds to
    report its cost.
    """

    def __init__(
        self,
        limits: Limits,
        deadlines: Deadlines,
        outbox: Outbox,
        book: TurnBook,
        held: HeldOutcomes | None,
        ask: Callable[..., None],
        state: SessionState,
        usage_timeout: float,
    ) -> None:
        self._outbox = outbox
        self._turns = book.turns
        self._book = book
        self._held = held
        self._spending: Spending | None = None
        if limits.usd is not None:
            self._spending = Spending(
                limits.usd,
                book.meter,
                ask=lambda then, now: ask(GET_USAGE, USAGE_FIELDS, now, usage_timeout, then),
                is_silent=lambda: not is_since(state.cli_version, USAGE_SINCE),
                warn=lambda kind, detail: outbox.emit(Warn(kind, detail)),
            )
        self._watch = LimitWatch(limits, deadlines)

    @property
    def _spent(self) -> float:
        """Return the dollars spent since the turn began, according to the CLI's last answer."""
        return 0.0 if self._spending is None else self._spending.spent

    def sift(self, actions: list[Action], now: float) -> list[Action]:
        """Return the actions of an input, without the outcomes that wait for background work."""
        ended = [action for action in actions if isinstance(action, TurnEnded)]
        sifted = actions if self._held is None else self._held.sift(actions, now)
        for action in ended:
            if (turn := self._turns.records[action.uuid]).held is not None:
                self._watch.hold(turn)
                if self._spending is not None:
                    self._spending.hold(action.outcome)
        return _with_cost(sifted, spent) if (spent := self._spent) else sifted

    def check(self, actions: Sequence[Action], now: float, *, is_waiting: bool) -> Verdicts:
        """Observe the actions of the engine at ``now``. Yield what follows from the limits."""
        watch, records = self._watch, self._turns.records
        was_open = bool(watch.watched)
        for action in actions:
            if isinstance(action, TurnStarted):
                watch.start(records[action.uuid], now)
            elif isinstance(action, TurnEnded):
                if action.outcome.result is not None:
                    watch.tools.clear()  # also the tools of a turn that has reached a limit
                watch.end(records[action.uuid], now)
            elif isinstance(action, Deliver):
                # Messages without a turn come from background work, or from the turn after it.
                for turn in [records[uuid] for uuid in action.turns] or tuple(watch.held):
                    if (hit := watch.hear(turn, action.messages, now)) is not None:
                        yield from self._reach([turn], hit, now)
            elif isinstance(action, Call):
                watch.note_life()
        watch.mind_idleness(now, is_waiting=is_waiting)
        if watch.has_begun(self._book.running, now):
            yield Interrupt()
        if self._spending is not None:
            yield from self._check_spending(self._spending, actions, now, was_open=was_open)
        for action in actions:
            if isinstance(action, TurnEnded) and action.uuid not in self._turns.open:
                turn = records[action.uuid]
                turn.is_limited = False
                self._turns.forget(turn)

    def _check_spending(
        self, spending: Spending, actions: Sequence[Action], now: float, *, was_open: bool
    ) -> Verdicts:
        """Request the cost of the running turn after its model calls.

        End the turn if the cost is too high, or cannot be read.
        """
        records = self._turns.records
        for action in actions:
            if isinstance(action, TurnEnded):
                spending.end(action.outcome, records[action.uuid].used.usd)
            elif isinstance(action, TurnStarted) and not was_open:
                was_open = True
                spending.begin(now)
            elif isinstance(action, Deliver):
                for message in action.messages:
                    spending.observe(message)
        named = [records[uuid] for uuid in self._book.running if uuid in self._turns]
        running = [turn for turn in (*named, *self._watch.held) if turn.is_watched]
        if not running:
            return
        passed = [turn for turn in running if spending.is_passed(turn.used.usd)]
        if passed:
            yield from self._reach(passed, LimitHit("usd", spending.allowed), now)
            return
        for action in actions:
            if isinstance(action, Deliver):
                for message in action.messages:
                    spending.hear(message, now)
        if spending.problem:
            hit = LimitHit("usd", spending.allowed, problem=spending.problem)
            yield from self._reach(running, hit, now)
        else:
            spending.request_if_due(now)

    def overdue(self, kind: str, subject: str, now: float) -> Verdicts | None:
        """Handle a deadline that has passed. Return None if it belongs to another module."""
        if kind == REACTION_TIMEOUT:
            self._book.give_up_limits()
            return iter((GiveUp("it did not end a turn it was told to end"),))
        hit = self._watch.expired(kind)
        return None if hit is None else self._reach([self._turns.records[subject]], hit, now)

    def end(self, ending: ProcessEnd, now: float) -> None:
        """Stop watching and release the held outcomes, because the session has ended."""
        self._watch.stop()
        for action in () if self._held is None else self._held.end(ending, now):
            self._outbox.emit(action)

    def _reach(self, turns: Iterable[Turn], hit: LimitHit, now: float) -> Verdicts:
        """End prompts that have reached a limit.

        Prompts that share a turn are interrupted together, once: a second interrupt could hit the
        next turn.
        """
        is_interrupting = self._watch.is_interrupting
        interrupts = False
        for turn in turns:
            standing = self._note_limit(turn, hit, now)
            if standing is Standing.ENDED:
                continue
            self._watch.stop_turn(turn, standing, now)
            if standing is Standing.RUNNING:
                interrupts = True
            else:
                yield Withdraw(turn.uuid)
        if interrupts and not is_interrupting:
            yield Interrupt()

    def _note_limit(self, turn: Turn, hit: LimitHit, now: float) -> Standing:
        if self._held is None or turn.held is None:
            return self._book.note_limit(turn, hit)
        for action in self._held.reach(hit, now, self._spent):
            self._outbox.emit(action)
        return Standing.ENDED


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
