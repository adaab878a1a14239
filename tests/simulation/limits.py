"""Promises about limits: no turn outlives its limit, and none is ended for one it has not reached.

The rule of this file: limits are worked out anew from what was sent and delivered, never asked of
the engine.
"""

from __future__ import annotations

from itertools import chain

from tests.simulation.lines import Line, Turns
from tests.simulation.violation import Violation

from bridle._engine.turns.cost import SPENDING_TIMEOUT, USAGE_TIMEOUT
from bridle._engine.turns.limits import REACTION
from bridle.options import Limits
from bridle.outcomes import OutcomeReason

_ROUNDING = 0.000_01
"""Dollars that a total may be off, because the CLI writes six decimals."""


class LimitPromises:
    """What is known of each turn that bears on its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._started: dict[str, float] = {}
        #: When each turn was heard of last; asking something counts for the one in front.
        self._heard: dict[str, float] = {}
        #: The turns that are open, by when it was their turn.
        self._open: dict[str, float] = {}
        #: When a tool or a callback was last awaited.
        self._busy_until = 0.0
        self._is_busy = False
        self._model_calls: dict[str, set[bytes]] = {}
        self._tools: set[bytes] = set()
        #: When a turn was first found to be past a limit, by its name.
        self._found: dict[tuple[str, str], float] = {}
        #: Interrupts so far, and at the start of each turn.
        self.interrupts = 0
        self._interrupts_before: dict[str, int] = {}
        self._first_told: float | None = None
        #: The first total told in each turn; the turn counts from there once tasks were started.
        self._told_in: dict[str, float] = {}
        self._has_tasks = False
        #: The prompts that shared the turn of each prompt when it was last heard of.
        self._shared: dict[str, Turns] = {}
        #: The CLI's total as of the last two results.
        self.totals = (0.0, 0.0)
        #: Prompts that share a turn whose cost the CLI reported as too high in this step, with
        #: the lowest total at its start for which the cost is within the limit.
        self._overspent: list[tuple[Turns, float]] = []
        #: Turns and results so far that have ended.
        self._endings = 0
        #: Requests for the cost without an answer: when each was sent, and the endings before it.
        self._asked: dict[str, tuple[float, int]] = {}
        #: The cost of the running turn was not told when it was asked for.
        self._is_unknown = False
        #: The same, of any turn so far.
        self._was_unknown = False

    # -- what happened -------------------------------------------------------------------------

    def start(self, uuid: str, now: float) -> None:
        self._started[uuid] = self._open[uuid] = now
        self._interrupts_before[uuid] = self.interrupts

    def end(self, uuid: str, now: float) -> None:
        front = self._front
        self._note_ending()
        del self._open[uuid]
        if self._front is not None and self._front != front:
            self._open[self._front] = now

    def _note_ending(self) -> None:
        """What was asked before may be out of date now. It is asked again."""
        self._endings += 1
        self._is_unknown = False

    @property
    def _front(self) -> str | None:
        """The turn that is first in line."""
        return next(iter(self._open), None)

    def ask(self) -> None:
        """The CLI asked something."""
        if self._front is not None:
            self._heard.setdefault(self._front, self._open[self._front])

    def note_work(self, now: float, *, is_waiting: bool) -> None:
        """A step is over."""
        was_busy, self._is_busy = self._is_busy, is_waiting or bool(self._tools)
        if was_busy or self._is_busy:
            self._busy_until = now

    def hear(self, line: Line, turns: Turns, now: float) -> None:
        """A line was delivered to these turns."""
        data = line.data
        if data.startswith(b'{"type":"command_lifecycle"'):
            return
        self._heard.update(dict.fromkeys(turns, now))
        self._shared.update(dict.fromkeys(turns, turns))
        if data.startswith(b'{"type":"assistant"') and b'"parent_tool_use_id":null' in data:
            message_id = data.partition(b'"id":"')[2].partition(b'"')[0]
            for uuid in turns:
                self._model_calls.setdefault(uuid, set()).add(message_id)
        if data.startswith(b'{"type":"assistant"') and any(
            now >= asked + SPENDING_TIMEOUT for asked, _ in self._asked.values()
        ):
            self._was_unknown = True
        if b'"task_started"' in data:
            self._has_tasks = True
        if b'"type":"tool_use"' in data:
            self._tools.add(data.partition(b'"id":"toolu_')[2].partition(b'"')[0])
        elif b'"tool_result"' in data:
            self._tools.discard(data.partition(b'"tool_use_id":"toolu_')[2].partition(b'"')[0])
        elif data.startswith(b'{"type":"result"') and not line.is_stale:
            self._tools.clear()
            self._note_ending()

    def ask_cost(self, request_id: str, now: float) -> None:
        """The CLI is asked for its cost."""
        self._asked[request_id] = (now, self._endings)

    def answer_cost(self, request_id: str, *, is_readable: bool) -> None:
        """The CLI has answered a request, or the time for its answer is over."""
        asked = self._asked.pop(request_id, None)
        if asked is not None and not is_readable:
            self._was_unknown = True
            self._is_unknown = self._is_unknown or asked[1] == self._endings

    def tell(self, turns: Turns, total: float) -> None:
        """The CLI has told its total while these turns ran."""
        usd = self._limits.usd
        # Before the first result the total is known once it was told.
        before = self.totals[1] or self._first_told
        if self._first_told is None:
            self._first_told = total
        for uuid in turns:
            self._told_in.setdefault(uuid, total)
        if self._has_tasks and turns:
            before = max(before or 0.0, min(self._told_in[uuid] for uuid in turns))
        if usd is not None and before is not None and total - before > usd + _ROUNDING:
            self._overspent.append((turns, total - usd - _ROUNDING))

    # -- what must hold ------------------------------------------------------------------------

    def check_time(self, open_turns: list[str], now: float) -> None:
        """The time is ``now``, and the engine knows."""
        limits = self._limits
        for request_id, (asked, _) in list(self._asked.items()):
            if now >= asked + USAGE_TIMEOUT:
                self.answer_cost(request_id, is_readable=False)
        for uuid in open_turns:
            if limits.total is not None:
                self._check_due(uuid, "total", self._started[uuid] + limits.total, now)
            heard = self._heard.get(uuid)
            if limits.first_event is not None and heard is None and uuid == self._front:
                self._check_due(uuid, "first_event", self._open[uuid] + limits.first_event, now)
            if limits.idle is not None and heard is not None:
                due = max(heard, self._busy_until) + limits.idle
                self._check_due(uuid, "idle", due, now)

    def _check_due(self, uuid: str, name: str, due: float, now: float) -> None:
        """Check that a turn has ended in time.

        Another turn may have to end first, or the prompt is taken back and begins all the same.
        """
        if due > now:
            self._found.pop((uuid, name), None)
            return
        if now >= self._found.setdefault((uuid, name), now) + 2 * REACTION:
            raise Violation(f"{uuid} reached {name} at {due} and is open at {now}")

    def check_told(self, open_turns: list[str]) -> None:
        """Everything that was read has had its effect."""
        for uuid in open_turns:
            if self._is_interrupted(uuid):
                continue
            # A prompt may join a turn that was interrupted before. No second interrupt is sent.
            # A result read in the same step may belong to the turn before, and sets the start.
            start = self.totals[1]
            shared = [turns for turns, least in self._overspent if uuid in turns and start < least]
            if shared and not any(self._is_interrupted(other) for other in chain(*shared)):
                raise Violation(f"{uuid} has spent too much, and goes on")
            is_unknown = self._is_unknown and uuid in self._model_calls
            if is_unknown and not any(map(self._is_interrupted, self._shared[uuid])):
                raise Violation(f"{uuid} goes on, and its cost is unknown")
            limit = self._limits.turns
            if limit is None or len(self._model_calls.get(uuid, ())) <= limit:
                continue
            if not any(map(self._is_interrupted, self._shared[uuid])):
                raise Violation(f"{uuid} has made too many model calls, and goes on")
        self._overspent.clear()

    def _is_interrupted(self, uuid: str) -> bool:
        return self._interrupts_before[uuid] < self.interrupts

    def check_rest(self, hanging: list[str], *, is_waiting: bool) -> None:
        """Nothing happens any more, and these turns are open."""
        if not hanging:
            return
        limits, oldest = self._limits, hanging[0]
        if limits.total is not None:
            raise Violation(f"open without an end in spite of the total: {hanging}")
        if is_waiting:
            return
        if limits.first_event is not None and oldest not in self._heard:
            raise Violation(f"{oldest} waits for its first event without an end")
        if limits.idle is not None and oldest in self._heard and not self._tools:
            raise Violation(f"{oldest} is idle without an end")

    def check_reason(self, uuid: str, reason: OutcomeReason, now: float, spent: float) -> None:
        """A turn ended for a limit."""
        limits = self._limits
        name = reason.removeprefix("limit_")
        allowed = getattr(limits, name)
        if allowed is None:
            raise Violation(f"{uuid} ended for the limit {name}, which is off")
        if name == "turns":
            is_reached = len(self._model_calls.get(uuid, ())) > allowed
        elif name == "usd":
            is_reached = spent - self.totals[0] > allowed or self._was_unknown
        else:
            is_reached = now >= self._started[uuid] + allowed
        if not is_reached:
            raise Violation(f"{uuid} ended for the limit {name}, which it has not reached")
