"""Decide which turn a message belongs to, and how each turn ended.

Prompts and turns do not match one to one: queued prompts are merged into one turn, prompts that
arrive while a tool runs are added to the running turn, some prompts never run, and the CLI runs
turns of its own when background work ends. So counting does not work. Each prompt carries a uuid
of ours, and the book follows the uuids:

* Newer CLIs name the prompts of a turn at its start (``system/init``) and in its result.
* Every CLI echoes a prompt (``isReplay``) when it takes it into a turn. The prompt belongs to the
  next result after its echo. All but the last of merged prompts are echoed before the turn's
  ``system/init``, the last one after it, just before the first answer.
* Older CLIs never echo some prompts: slash commands, blocked prompts, prompts over the budget.
  A result without an ``origin`` and without an echo belongs to them, in the order they were sent.
* A turn about background work has ``origin`` on its result. It echoes a prompt of ours only if
  that prompt was added to it.

A message is attributed when it arrives, by what is known then. With older CLIs one case is
uncertain at the start of a turn: a notification and a prompt are both queued. Messages are then
held until an echo or the result decides, and attributed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, ClassVar

from msgspec import structs

from bridle import messages as msg
from bridle._engine.actions import Attribute, Outbox, TurnEnded, TurnStarted, Warn
from bridle._engine.incoming.hook_run import HookAnswer
from bridle._engine.incoming.waiting_call import Approvals
from bridle._engine.turns.classify import (
    Ending,
    Facts,
    HookNotice,
    LimitHit,
    NothingWaits,
    ProcessEnd,
    ResultEnd,
    ResultLost,
    TurnedAway,
    Withdrawn,
    classify,
    with_result,
)
from bridle._engine.turns.cost import Meter
from bridle._engine.turns.evidence import Certainty, Evidence
from bridle._engine.turns.model_text import is_failed_command, model_text
from bridle._engine.turns.subagents import AgentBook
from bridle._engine.turns.task_records import Tasks, Uuids
from bridle._engine.turns.turn_records import Standing, Turn, Turns
from bridle._engine.turns.usage import UsageBook
from bridle._records.raw_line import line_size
from bridle.approvals import PendingApproval
from bridle.events import ApiRetry, SessionEvent, WarningKind
from bridle.outcomes import Outcome, OutcomeReason

NO_TURN: Uuids = ()

_MAX_HELD = 1024
"""Messages held until their turn is known. If there are more, they belong to no turn."""


class TurnBook:
    """The open prompts of a session, in the order they were sent, and the running turn."""

    def __init__(
        self,
        outbox: Outbox,
        agents: AgentBook | None = None,
        approvals: Approvals | None = None,
        turns: Turns | None = None,
        *,
        wants_output: bool = False,
    ) -> None:
        self._outbox = outbox
        self._approvals = approvals or Approvals()
        # The working directory of the CLI.
        self._cwd: str | None = None
        self._emit = outbox.emit
        self._wants_output = wants_output
        self.turns = turns = turns or Turns()  #: the records of the prompts
        self._open = turns.open
        #: The prompts of the running turn. Messages that arrive now belong to them.
        self.running: Uuids = NO_TURN
        self._certainty = Certainty.IDLE
        # Messages delivered to no turn while their turn is uncertain. None while it is certain.
        self._held: list[msg.Message] | None = None
        # True if the CLI reports the state of each prompt by name.
        self._names_prompts = False
        #: The CLI's total cost at the last result.
        self.meter = Meter()
        self.usage = UsageBook()
        self._agents = agents or AgentBook()
        self.tasks = tasks = Tasks(self._agents)  #: the records of the tasks
        self.has_tasks = tasks.has_tasks
        self._task_calls = tasks.by_call
        self.evidence = Evidence()

    # -- state ---------------------------------------------------------------------------------

    def __contains__(self, uuid: str) -> bool:
        """True if that prompt has no outcome yet."""
        return uuid in self._open

    @property
    def is_idle(self) -> bool:
        """True if no prompt waits for its outcome and no turn runs."""
        return not self._open and self._certainty is Certainty.IDLE

    @property
    def is_quiet(self) -> bool:
        """True if it is idle, no task runs, and no turn about a task will follow."""
        return self.is_idle and not (self.tasks.announced or self.tasks.is_busy)

    @property
    def waits(self) -> bool:
        """True if a tool call waits for approval since the last turn ended."""
        return self._approvals.waiting is not None

    def deferral_problem(self) -> str | None:
        """Return why no call of the running turn can wait for approval. None if one can.

        The next turn would discard the call. And only the outcome of a prompt tells of it.
        """
        if not self._open:
            return "a call of a turn without a prompt cannot wait for approval"
        if self.tasks.has_news:
            return "a call cannot wait before you know how background work ended: make it again"
        if len(self._open) > 1 and any(uuid not in self.running for uuid in self._open):
            return "a call cannot wait for approval while another prompt is queued"
        return None

    @property
    def current(self) -> str | None:
        """Return the prompt the CLI works on, the first of merged ones.

        In a turn about a task that has ended, that is the prompt that started the task. None in
        other turns of the CLI's own.
        """
        if self.running:
            return self.running[0]
        if self._certainty is Certainty.KNOWN or self._is_turn_of_the_cli:
            return next(iter(self.tasks.reported), None)
        return next(iter(self._open or self.tasks.reported), None)

    @property
    def _is_turn_of_the_cli(self) -> bool:
        """True if an open turn was answered. A turn echoes its own prompt before that."""
        return self._certainty is Certainty.OPEN and self.evidence.assistant is not None

    def prompt_of(self, tool_use_id: str | None, agent_id: str | None) -> str | None:
        """Return the prompt that a tool use or a subagent belongs to.

        The prompt of a background subagent may have its outcome already, while another one runs.
        """
        if not self._task_calls:  # most sessions have no background subagents
            return self.running[0] if self.running else self.current
        call = self._agents.outermost(tool_use_id, agent_id)
        started_in = self.tasks.prompts_of(call)
        return started_in[0] if started_in else self.current

    def is_running(self, uuid: str) -> bool:
        """Return True if that prompt is certainly part of the running turn."""
        return uuid in self.running and self._certainty is Certainty.KNOWN

    # -- inputs --------------------------------------------------------------------------------

    def start(self, uuid: str, now: float) -> None:
        """Note that a prompt was written. It gets exactly one outcome."""
        self.turns.start(uuid, now)
        self._emit(TurnStarted(uuid))

    def resume(self, uuid: str, now: float) -> None:
        """Note that the CLI continues a turn that waited for approval, without a prompt.

        The CLI does not name this turn, so everything up to the first result belongs to it.
        """
        self.start(uuid, now)
        self._known((uuid,))

    def find_nothing(self, uuid: str, now: float) -> None:
        """End a turn that the CLI does not continue, because no call waits for approval."""
        self._end((uuid,), NothingWaits(), None, now)
        self._next_turn()

    def note_interrupt(self) -> None:
        """Note that an interrupt is sent. If a turn runs, the interrupt explains its end."""
        if not self.is_idle:
            self.evidence.interrupt_sent = True

    def note_hook(self, event: str, answer: HookAnswer, *, interrupt: bool) -> bool:
        """Note the reason of a hook that ended the turn, or blocked a prompt.

        Returns ``interrupt``: True if the turn must be interrupted to end it.
        """
        if not answer.ends_turn:
            self.evidence.block_reason = answer.reason
        else:
            self.evidence.hook_reason = answer.reason
            self.evidence.stops_prompt = event == "UserPromptSubmit"
            if interrupt:
                self.evidence.ended_by_hook = answer.reason
        return interrupt

    def note_event(self, event: SessionEvent) -> None:
        """Note an event made from a message of the running turn."""
        if isinstance(event, ApiRetry):
            self.evidence.retries += 1
            self.evidence.last_retry = event

    def note_limit(self, turn: Turn, hit: LimitHit) -> Standing:
        """Make a limit the outcome of a prompt, unless its answer still completes."""
        if turn.uuid not in self._open:
            return Standing.ENDED
        turn.hit = hit
        is_running = turn.uuid in self.running or not self.running
        return Standing.RUNNING if is_running else Standing.QUEUED

    def give_up_limits(self) -> None:
        """Note that prompts that have reached a limit did not end after the interrupt."""
        for turn in self._open.values():
            if turn.hit is not None:
                turn.hit = structs.replace(turn.hit, is_given_up=True)

    def deliver(self, message: msg.Message) -> None:
        """Attribute and deliver a message other than a :meth:`result`."""
        owner = self.tasks.of_message(message) if self._task_calls else None
        observe = self._OBSERVERS.get(type(message))
        turns = self.running if observe is None else observe(self, message)
        if owner in (None, self.running) and self._certainty is not Certainty.IDLE:
            self.evidence.calls.add((message,))
        if owner is not None:
            turns = tuple(uuid for uuid in owner if uuid in self._open)
        elif self._held is not None:
            self._held.append(message)
            if len(self._held) > _MAX_HELD:
                self._held = None
        self._outbox.deliver([message], turns, line_size(message))

    def deliver_all(self, messages: list[msg.Message], kinds: Set[type], size: int) -> None:
        """Do the same for a list of messages of these kinds and that size. Keeps the list."""
        if self._task_calls or self._held is not None or not kinds.isdisjoint(self._NEWS):
            for message in messages:
                self.deliver(message)
            return
        if msg.AssistantMessage in kinds:
            self.usage.note(messages)
            self._note_last(messages)
            if self._certainty is not Certainty.IDLE:
                self.evidence.calls.add(messages)
        self._outbox.deliver(messages, self.running, size)

    def result(self, message: msg.ResultMessage, now: float) -> None:
        """Deliver a result. The outcome follows the last message of its turn."""
        named = message.user_message_uuids or (message.user_message_uuid or "",)
        if self._is_stale(named):
            self._pass_over(message)
            return
        self._name_result(named, is_follow_up=message.origin is not None)
        self._outbox.deliver([message], self.running, line_size(message))
        self._close_turn(message, now)

    def settle(self, message: msg.CommandLifecycle, now: float) -> None:
        """Deliver the CLI's report about a prompt, and end the prompt if no result will follow.

        For a prompt of the running turn the report changes nothing: its result came before, or is
        certain to follow.
        """
        self._names_prompts = True
        uuid = message.command_uuid
        turns = (uuid,) if uuid in self._open else NO_TURN
        self._outbox.deliver([message], turns, line_size(message))
        if uuid in self.running:
            return
        if message.state == "cancelled":
            self._end((uuid,), Withdrawn(), None, now)
        elif message.state == "completed":
            self._end((uuid,), TurnedAway(self.evidence.block_reason), None, now)
            self.evidence.block_reason = ""

    def lose_echo(self, uuid: str) -> None:
        """Note that a prompt was echoed, although the echo was too long to keep."""
        if uuid in self._open:
            self._echo(uuid)

    def lose_result(self, uuid: str | None, what: str, now: float) -> None:
        """End the turns of a result that could not be read."""
        named = () if uuid is None else (uuid,)
        if self._is_stale(named):
            return
        self._name_result(named, is_follow_up=False)
        self._end(self.running, ResultLost(what), None, now)
        self._next_turn()

    def withdraw(self, uuid: str, now: float) -> None:
        """End a prompt that the CLI removed from its queue, even if we guessed that it runs."""
        if uuid in self.running and self._certainty is Certainty.KNOWN:
            return
        self.running = tuple(other for other in self.running if other != uuid)
        self._end((uuid,), Withdrawn(), None, now)

    def end_all(self, ending: ProcessEnd, now: float) -> None:
        """End every open prompt, because no more messages will come."""
        self._end(self.running, ending, None, now)
        for uuid in tuple(self._open):
            self._end((uuid,), ending, None, now)
        self._next_turn()
        self.tasks.clear()

    # -- which turn runs -----------------------------------------------------------------------

    def _on_init(self, message: msg.InitMessage) -> Uuids:
        """Start a turn. Newer CLIs name its prompts, or none for a turn of their own."""
        echoed = self.running
        self.evidence.assistant = None
        self._cwd = message.cwd or self._cwd
        if waiting := self._approvals.begin_turn():
            detail = (
                f"call {waiting!r:.80}: the CLI began another turn, so it will not show its result"
            )
            self._emit(Warn(WarningKind.APPROVAL_LOST, f"{detail} to the model"))
        if self._names_prompts or message.user_message_uuids:
            self._known(dict.fromkeys((*echoed, *(message.user_message_uuids or ()))))
        elif echoed:
            # The last of merged prompts is echoed later, or never if a hook blocks it.
            guess = tuple(self._waiting(1))
            self.running = (*echoed, *guess)
            self._certainty = Certainty.LIKELY if guess else Certainty.KNOWN
        elif self.tasks.announced and self._open:
            self._certainty = Certainty.OPEN
            self._held = []
        else:
            self.running = tuple(self._waiting(1))
            self._certainty = Certainty.LIKELY if self.running else Certainty.KNOWN
        return self.running

    def _on_user(self, message: msg.UserMessage) -> Uuids:
        """Note from an echo that a prompt is part of the running turn, or of the next one."""
        is_of_main_agent = message.parent_tool_use_id is None and not message.is_replay
        if message.is_replay and message.uuid in self._open:
            self._echo(message.uuid)
        elif is_of_main_agent and message.refused_message_id is not None:
            self.evidence.text = ""
        self.tasks.observe(message)
        return self.running

    def _echo(self, uuid: str) -> None:
        if self._certainty is Certainty.LIKELY and uuid not in self.running:
            # Only the last member was a guess. Prompts that were echoed before stay.
            self.running = self.running[:-1]
        if self._is_turn_of_the_cli:
            # This prompt was added to it, and the messages held before belong to no prompt.
            self._held = None
        between_turns = self._certainty is Certainty.IDLE
        self._known((*self.running, uuid) if uuid not in self.running else self.running)
        if between_turns:
            self._certainty = Certainty.IDLE

    def _known(self, uuids: Iterable[str]) -> None:
        self.running = tuple(uuid for uuid in uuids if uuid in self._open)
        self._certainty = Certainty.KNOWN
        self._release()

    def _release(self) -> None:
        if self._held and self.running:
            self._emit(Attribute(self._held, self.running))
        self._held = None

    def _waiting(self, count: int) -> Iterator[str]:
        """Yield the oldest ``count`` prompts that are not part of the turn."""
        waiting = (uuid for uuid in self._open if uuid not in self.running)
        return (uuid for uuid, _ in zip(waiting, range(count), strict=False))

    def _next_turn(self) -> None:
        self.running = NO_TURN
        self._certainty = Certainty.IDLE
        self._held = None
        self.evidence = Evidence()

    # -- outcomes --------------------------------------------------------------------------------

    def _is_stale(self, named: Iterable[str]) -> bool:
        """Return True if a result names prompts and each of them already has its outcome.

        Such a result ends nothing: the open prompts belong to another turn.
        """
        names = [uuid for uuid in named if uuid]
        return bool(names) and not any(uuid in self._open for uuid in names)

    def _pass_over(self, message: msg.ResultMessage) -> None:
        """Deliver a stale result to no turn, without changing the prompts that run."""
        self._outbox.deliver([message], NO_TURN, line_size(message))
        self._emit(Warn(WarningKind.STRAY_RESULT, f"subtype {message.subtype}, of a closed prompt"))
        self._note_result(message)
        cost = self.meter.charge_late(message)
        if cost is not None:
            self.usage.charge(message, cost, NO_TURN)
        if not self.running and self._certainty is not Certainty.IDLE:
            self._next_turn()  # it was a turn of the CLI's own

    def _note_result(self, message: msg.ResultMessage) -> None:
        self.meter.has_tasks = self.tasks.is_costly
        self.tasks.observe(message)

    def _name_result(self, named: Iterable[str], *, is_follow_up: bool) -> None:
        """Decide which prompts a result belongs to."""
        sure = self.running
        if is_follow_up and self._certainty is Certainty.LIKELY:
            sure = sure[:-1]
        mine = dict.fromkeys(uuid for uuid in (*sure, *named) if uuid in self._open)
        nobodys = self._names_prompts and self._certainty is Certainty.KNOWN
        if not mine and not is_follow_up and not nobodys:
            mine = dict.fromkeys(self._waiting(1))
        self._known(mine)

    def _close_turn(self, message: msg.ResultMessage, now: float) -> None:
        cost = self.meter.charge(message)
        self.usage.charge(message, cost, self.running)
        self._note_result(message)
        if not self.running:
            self._emit(Warn(WarningKind.STRAY_RESULT, f"subtype {message.subtype}"))
        ending = ResultEnd.of(message)
        self._end(self.running, ending, message, now, cost)
        self._next_turn()

    def _end(
        self,
        uuids: Uuids,
        ending: Ending,
        result: msg.ResultMessage | None,
        now: float,
        cost: float | None = None,
    ) -> None:
        """Give each open prompt in ``uuids`` its outcome. The first one carries the cost."""
        mine = tuple(uuid for uuid in self._open if uuid in uuids)
        pending: PendingApproval | None = None
        # The end of another prompt, or a late report about one, does not end the running turn.
        if uuids == self.running or not self.running:
            # A hook in the settings of the CLI may defer a call of a turn without a prompt.
            pending = self._approvals.end_turn(mine[0] if mine else "", result, self._cwd)
        if not mine:
            return
        # The evidence of the turn does not apply to a prompt outside it.
        seen = self.evidence if mine[0] in self.running else Evidence()
        facts = self._facts(ending, result, seen)
        if pending is not None and self._approvals.hides_result(result):
            detail = f"call {pending.tool_use_id!r:.80}: this CLI will not show its result"
            self._emit(Warn(WarningKind.APPROVAL_LOST, f"{detail} to the model"))
        for uuid in mine:
            turn = self._open.pop(uuid)
            self.turns.forget(turn)
            reason, detail = classify(structs.replace(facts, limit=turn.hit))
            outcome: Outcome[Any] = Outcome(
                reason=reason,
                detail=detail,
                text="" if reason is OutcomeReason.REFUSED else seen.text,
                uuid=uuid,
                merged_with=tuple(other for other in mine if other != uuid),
                duration=now - turn.sent_at,
                api_error=facts.assistant_error,
                resets_at=seen.resets_at,
                api_retries=seen.retries,
                model_calls=seen.calls.model_calls,
                main_model_calls=seen.calls.main_model_calls,
                tool_calls=seen.calls.tool_calls,
                last_retry=seen.last_retry,
                pending=None if reason is OutcomeReason.COMPLETED else pending,
                process=ending.process if isinstance(ending, ProcessEnd) else None,
            )
            if result is not None:
                outcome = with_result(outcome, result, cost, pays=uuid == mine[0])
            self._emit(TurnEnded(uuid, outcome))

    def _facts(self, ending: Ending, result: msg.ResultMessage | None, seen: Evidence) -> Facts:
        has_output = result is not None and result.structured_output is not None
        return Facts(
            ending=ending,
            interrupt_sent=seen.interrupt_sent,
            ended_by_hook=seen.ended_by_hook,
            hook_reason=seen.hook_reason,
            stops_prompt=seen.stops_prompt,
            block_reason=seen.block_reason,
            assistant_error=seen.assistant.error if seen.assistant else None,
            command_error=seen.compact_error or _complaint(seen.assistant),
            hook_notice=seen.hook_notice,
            rate_limit_rejected=seen.rate_limit_rejected,
            output="unasked" if not self._wants_output else "valid" if has_output else "missing",
        )

    # -- evidence ------------------------------------------------------------------------------

    def _on_assistant(self, message: msg.AssistantMessage) -> Uuids:
        self.usage.note((message,))
        if message.parent_tool_use_id is None:
            self.evidence.assistant = message
            self.evidence.text = model_text(message) or self.evidence.text
        return self.running

    def _note_last(self, messages: list[msg.Message]) -> None:
        """Note the last of many messages, and the last text among them."""
        last: msg.AssistantMessage | None = None
        for message in reversed(messages):
            if type(message) is msg.AssistantMessage and message.parent_tool_use_id is None:
                last = last or message
                if text := model_text(message):
                    self.evidence.text = text
                    break
        self.evidence.assistant = last or self.evidence.assistant

    def _on_status(self, message: msg.StatusMessage) -> Uuids:
        if message.compact_error:
            self.evidence.compact_error = message.compact_error
        return self.running

    def _on_informational(self, message: msg.InformationalMessage) -> Uuids:
        if message.prevent_continuation and not self.evidence.is_compacted:
            self.evidence.hook_notice = HookNotice.of(message)
        return self.running

    def _on_compact_boundary(self, _: msg.CompactBoundaryMessage) -> Uuids:
        self.evidence.is_compacted = True
        return self.running

    def _on_rate_limit(self, message: msg.RateLimitEvent) -> Uuids:
        info = message.rate_limit_info
        self.evidence.rate_limit_rejected = info.status == "rejected"
        if info.status == "rejected":
            self.evidence.resets_at = info.resets_at
        return self.running

    def _on_task(self, message: msg.Message) -> Uuids:
        is_between_turns = self._certainty is Certainty.IDLE
        self.tasks.observe(message, self.running, is_between_turns=is_between_turns)
        return self.running

    _OBSERVERS: ClassVar[dict[type[msg.Message], Callable[[TurnBook, Any], Uuids]]] = {
        **dict.fromkeys(Tasks.KINDS, _on_task),
        msg.InitMessage: _on_init,
        msg.UserMessage: _on_user,
        msg.AssistantMessage: _on_assistant,
        msg.StatusMessage: _on_status,
        msg.InformationalMessage: _on_informational,
        msg.CompactBoundaryMessage: _on_compact_boundary,
        msg.RateLimitEvent: _on_rate_limit,
    }
    """The observer of each kind of message. Other kinds only belong to the running turn."""

    _NEWS: ClassVar[frozenset[type]] = frozenset(_OBSERVERS) - {msg.AssistantMessage}
    """Kinds that may change which turn runs or how it ends. Each message is handled alone."""


def _complaint(message: msg.AssistantMessage | None) -> str | None:
    """Return the error text of a slash command that failed, or None."""
    return message.text if message is not None and is_failed_command(message) else None
