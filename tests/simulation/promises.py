"""What must always hold: every action of the engine is held against what is known to be true.

The rule of this file: it only looks. Whoever drives the engine says what is about to happen
(:meth:`Promises._note`), hands over the actions (:meth:`Promises._step`), and a promise that is not
kept raises :class:`Violation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
from tests.simulation import callbacks
from tests.simulation.coverage import Coverage
from tests.simulation.limits import LimitPromises
from tests.simulation.lines import Kind, Line, Question, Reasons, Turns
from tests.simulation.model import Cli
from tests.simulation.output import verdict_of
from tests.simulation.readers import Readers
from tests.simulation.settings import Setting
from tests.simulation.violation import Violation

from bridle._engine import actions as act
from bridle._engine.engine import Engine
from bridle._engine.incoming.mcp.messages_of_servers import MAX_EARLY
from bridle._engine.outgoing.requests import MAX_QUEUED
from bridle._engine.shutdown import HOLD
from bridle._engine.state import TERMINAL
from bridle.errors import ControlRejected, ControlTimeout, OptionsError
from bridle.events import (
    SdkWarning,
    SessionCompleted,
    SessionEnded,
    SessionFailed,
    SessionReady,
    WarningKind,
)
from bridle.messages import InitMessage, Message
from bridle.outcomes import Outcome
from bridle.outcomes import OutcomeReason as Reason

_decode = msgspec.json.decode

START = "start"
"""What the key of the start is called."""

_LONGEST_RUNG = max(HOLD.values())
_READING = ("receive", "output_ended")
_ENDINGS_WITHOUT_RESULT = (Reason.STOPPED, Reason.CLI_EXITED)


class Promises:
    """The promises of one engine, and all that has to be remembered to judge it."""

    def __init__(
        self,
        engine: Engine,
        cli: Cli,
        setting: Setting,
        coverage: Coverage,
        trace: Callable[[str], None] | None,
    ) -> None:
        self.engine = engine
        self.cli = cli
        self.setting = setting
        self.coverage = coverage
        self.trace = trace
        self.now = 1000.0
        self.steps = 0
        self.exited = False
        # -- what the application waits for: open, or how it was settled
        self.keys: dict[Hashable, str] = {}
        self._serial = 0
        self._queued: list[Hashable] = []
        self._requests: dict[str, Hashable] = {}
        self._must_settle: set[Hashable] = set()
        self.prompt_of: dict[Hashable, str] = {}
        # -- turns: open or done
        self.turns: dict[str, str] = {}
        self.calls: dict[int, tuple[act.Call, Question]] = {}
        #: Permissions that were allowed and wait for the hooks about the same tool call.
        self.held: dict[str, Question] = {}
        #: Calls that wait for a thread.
        self.unstarted: set[int] = set()
        # -- when what was asked for is due at the latest
        self._call_limits: dict[int, float] = {}
        self._request_limits: dict[Hashable, float] = {}
        self._init_limit = 0.0
        self._timeouts: dict[Hashable, float] = {}
        self._submitted: Hashable = None
        self._limits = LimitPromises(setting.limits)
        self.readers = Readers(
            engine.delivery,
            setting.delivery,
            lambda: self.chance(),
            self._react_to_readers,
            self._count_reader,
        )
        #: Whether the program reads anything.
        self.has_readers = False
        # -- the step under way
        self._cause = ""
        self._warned = False
        self._subject: Question | None = None
        self._expected_verdict = ""
        self._expected: deque[Line] = deque()
        self._due: dict[str, Reasons] = {}
        self._taken_back: list[Question] = []
        #: The last result that was read, and whether a line was lost.
        self._result: Message | None = None
        self._has_lost_line = False
        # -- what was seen
        self._unattributed: dict[int, tuple[Message, Line]] = {}
        self._cost = 0.0
        self._stray_cost = 0.0
        self._last_total = 0.0
        self.input_over = False
        self._is_refusing = False
        #: What we did that may explain the end of the running turn, and of the one just ended.
        self._explanations: set[str] = set()
        self._explained_by: set[str] = set()
        #: The call that waits for a person, by the request that was answered so.
        self._waits: str | None = None
        self._terminated = False
        self._killed = False
        self._ready = False
        # The ids that the CLI gave the session.
        self._names: set[str] = set()
        self._farewells = 0
        self.finished = False

    # -- what was read -------------------------------------------------------------------------

    def _note(self, line: Line) -> None:
        """A line has been read whole: this is what must come of it."""
        if line.kind is not Kind.CONTROL:
            self._expected.append(line)
        if line.ends:
            self._due.update(line.ends)
        if line.asks is not None:
            self._note_question(line.asks)
        elif line.withdraws is not None:
            self._taken_back.append(line.withdraws)
        elif line.answers:
            self._limits.answer_cost(line.answers, is_readable=line.total is not None)
            if line.total is not None and line.kind is Kind.CONTROL:
                self._limits.tell(line.turns, line.total)
            key = self._requests.pop(line.answers, None)
            if key is not None and self.keys[key] == "open":
                self._must_settle.add(key)

    def _note_question(self, question: Question) -> None:
        question.seen += 1
        question.dropped = False
        if question.seen == 1:
            return
        # Put again after it was settled, it is a new question under an old name.
        was_taken_back = question in self._taken_back
        if was_taken_back:
            self._taken_back.remove(question)
        if was_taken_back or all(asked is not question for _, asked in self.calls.values()):
            question.stage = 0
            question.withdrawn = False

    def _after_reading(self) -> None:
        if self.engine.lifecycle not in TERMINAL:
            if self._expected:
                raise Violation(f"nothing came of {self._expected[0]}")
            if self._due and not self.cli.is_murky:
                raise Violation(f"no outcome for {self._due}")
            for key in self._must_settle:
                if self.keys[key] == "open":
                    raise Violation(f"the answer for {key} was dropped")
            if not (self.cli.is_murky or self._is_refusing or self.input_over):
                self._limits.check_told(self._open_turns())
        self._explained_by.clear()
        for question in self._taken_back:
            question.withdrawn = True
            self.held.pop(question.request_id, None)
        self._taken_back.clear()
        self._expected.clear()
        self._due.clear()
        self._must_settle.clear()
        if not self._ready and self.engine.lifecycle not in TERMINAL:
            self._check_early()

    def _check_early(self) -> None:
        """Few MCP messages wait for a session that has not started."""
        early = [
            question
            for question in self.cli.asked.values()
            if question.kind == "mcp" and question.seen and not question.withdrawn
            if not question.answers and not question.stage and not question.dropped
            if "error" not in question.instant  # a line that was cut off waits for nothing
        ]
        if len(early) > MAX_EARLY:
            raise Violation(f"{len(early)} early MCP messages wait")

    # -- what comes of it ----------------------------------------------------------------------

    def _key(self, name: str) -> Hashable:
        self._serial += 1
        key = (name, self._serial)
        self.keys[key] = "open"
        return key

    def _step(self, cause: str, actions: list[act.Action]) -> None:
        self.steps += 1
        self._cause = cause
        self._warned = False
        self._result = None
        self._has_lost_line = False
        self.readers.begin_step(actions)
        if self.trace:
            self.trace(f"{self.now:9.2f} {cause} -> {self.engine.lifecycle.value}")
            for action in actions:
                self.trace(f"            {action!r:.300}")
        for action in actions:
            _CHECKS[type(action)](self, action)
        if len(self._queued) > MAX_QUEUED:
            raise Violation("too many operations are queued")
        self._limits.note_work(self.now, is_waiting=bool(self.calls or self.held))
        for action in actions:
            if isinstance(action, act.Call) and not self._must_wait():
                self._start_call(action.call_id)
        if self._terminated and not (self._killed or self.exited):
            deadline = self.engine.next_deadline
            if deadline is None or deadline > self.now + _LONGEST_RUNG:
                raise Violation("the ladder has no next step")
        if self.has_readers:
            self._check_readers(actions)

    def _check_readers(self, actions: list[act.Action]) -> None:
        delivered = any(isinstance(one, act.Deliver | act.Attribute) for one in actions)
        is_over = self.engine.lifecycle in TERMINAL
        self.readers.check(delivered=delivered, is_over=is_over)
        self.readers.publish_events()

    def _react_to_readers(self) -> None:
        """What follows from what a reader did, as a step of its own."""
        self._step_within("readers", self.engine.react(self.now))

    def _step_within(self, cause: str, actions: list[act.Action]) -> None:
        """Check a step that happens while another one is checked."""
        before = self._cause, self._warned
        self._step(cause, actions)
        self._cause, self._warned = before

    def _count_reader(self, what: str) -> None:
        self.coverage.readers[what] += 1

    def chance(self) -> float:
        """Return a number from 0 to 1, which the seed decides."""
        raise NotImplementedError

    def _must_wait(self) -> bool:
        """Whether a call finds no thread and starts later."""
        return False

    def _start_call(self, call_id: int) -> None:
        """A callback starts: its deadline counts from here.

        Nothing else may come of it. But a loop that was left takes effect with the next input,
        which may be this one, and the messages that it left may be too many.
        """
        self.unstarted.discard(call_id)
        actions = self.engine.started_call(call_id, self.now)
        if not all(map(_drops_messages, actions)):
            raise Violation(f"the start of call {call_id} made the engine act")
        if actions:
            self._step_within("started", actions)
        if call_id in self.calls:
            limit = callbacks.time_limit(self.calls[call_id][1], self.setting.incoming)
            if limit is not None:
                self._call_limits[call_id] = self.now + limit

    def _on_write(self, action: act.Write) -> None:
        self.coverage.actions["Write"] += 1
        if self.input_over or self._is_past:
            raise Violation(f"written after the end: {action.data!r}")
        if not action.data.endswith(b"\n") or action.data.count(b"\n") != 1:
            raise Violation(f"not one line: {action.data!r}")
        is_prompt = action.data.startswith(b'{"type":"user"')
        if is_prompt and self._waits is not None:
            raise Violation(f"a prompt was sent while call {self._waits} waits for approval")
        self.cli.write(action.data)
        if is_prompt:
            return
        frame = _decode(action.data)
        if frame["type"] == "control_response":
            self._check_answer(frame["response"])
        else:
            self._check_request(frame)

    @property
    def _is_past(self) -> bool:
        """The session was over before this step; its own last words are checked elsewhere."""
        return self.finished or self._farewells > 0

    def _check_request(self, frame: dict[str, Any]) -> None:
        subtype = frame["request"]["subtype"]
        if subtype == "interrupt":
            self._explanations.add("interrupt")
            self._limits.interrupts += 1
        elif subtype == "get_usage":
            self._limits.ask_cost(frame["request_id"], self.now)
        key: Hashable = None
        if self._cause == "submit":
            key = self._submitted
        elif self._queued and self._queued[0][0] == subtype:  # type: ignore[index]
            key = self._queued.pop(0)
        if key is not None:
            self._requests[frame["request_id"]] = key
            self._request_limits[key] = self.now + self._timeouts[key]

    def _check_answer(self, response: dict[str, Any]) -> None:
        question = self.cli.asked.get(response["request_id"])
        if question is None:
            raise Violation(f"an answer to no question: {response}")
        question.answers += 1
        if question.answers > question.seen:
            raise Violation(f"{question} was answered too often")
        if question.withdrawn:
            raise Violation(f"{question} was answered although it was taken back")
        verdict = verdict_of(question.kind, response)
        self.coverage.verdicts[f"{question.kind}: {verdict}"] += 1
        if verdict == "end":
            self._explanations.add("hook")
        allowed = self._allowed(question)
        if verdict == "allow" and not self._lets_run(question):
            raise Violation(f"{question} was allowed although its hooks have not let it run")
        question.told = verdict
        self.held.pop(question.request_id, None)
        if "defer" in allowed:
            self._check_deferral(question, verdict)
        elif verdict not in allowed:
            raise Violation(f"{question} got {verdict}, not {sorted(allowed)}")

    def _lets_run(self, question: Question) -> bool:
        """Return True if an allow may be sent: every hook about the same call lets it run."""
        if not question.use or self.setting.incoming is callbacks.NOTHING:
            return True
        hooks = [
            other
            for other in self.cli.asked.values()
            if other.about == "PermissionRequest" and other.use == question.use and other.seen
        ]
        running = [asked.request_id for _, asked in self.calls.values()]
        return bool(hooks) and all(
            hook.told == "go" and hook.request_id not in running for hook in hooks
        )

    def _check_deferral(self, question: Question, verdict: str) -> None:
        """At most one call of a turn waits. Another one is denied with a warning."""
        if verdict == "block" and self._warned:
            return
        if verdict != "defer":
            raise Violation(f"{question} got {verdict}, but it was deferred")
        if self._waits is not None:
            raise Violation(f"{question} was deferred while call {self._waits} waits")
        self._waits = question.request_id

    def _allowed(self, question: Question) -> frozenset[str]:
        """What a question may be answered with in this step."""
        if question is self._subject:
            return frozenset({self._expected_verdict})
        if question.request_id in self.held:
            return frozenset({"allow" if self._lets_run(question) else "deny"})
        if question.kind == "hook" and question.instant == {"error"} and question.about:
            # It could not be read: an error would make the CLI go on.
            return callbacks.unread(question, self.setting.incoming)
        if question.instant:
            return question.instant
        if question.kind == "hook" and self.setting.incoming is callbacks.NOTHING:
            return callbacks.nobody(question)
        if self._is_refusing:
            return callbacks.refusal(question)
        if self._cause == "advance":
            return callbacks.failure(question)
        if len(self.calls) + len(self.held) >= self.setting.incoming.max_open:
            return callbacks.unasked(question)
        if self.setting.incoming is callbacks.NOTHING:
            return callbacks.nobody(question)
        # All that is left is a call the CLI itself has cancelled, or one crowded out early.
        return frozenset({"failed"}) if question.kind == "mcp" else frozenset()

    def _on_call(self, action: act.Call) -> None:
        self.coverage.actions["Call"] += 1
        question = self.cli.asked[callbacks.subject_of(action)]
        if question.withdrawn or not question.seen:
            raise Violation(f"a call for {question}")
        if question is self._subject and self._expected_verdict != "next":
            raise Violation(f"another call for {question}, which is settled")
        question.stage += 1
        self._limits.ask()
        self.calls[action.call_id] = (action, question)
        self.unstarted.add(action.call_id)
        if len(self.calls) + len(self.held) > self.setting.incoming.max_open:
            raise Violation("too many requests are open")

    def _on_cancel_call(self, action: act.CancelCall) -> None:
        self.coverage.actions["CancelCall"] += 1
        entry = self.calls.pop(action.call_id, None)
        if entry is None:
            raise Violation(f"call {action.call_id} is not open")
        _, question = entry
        if action.timed_out and action.call_id in self.unstarted:
            raise Violation(f"call {action.call_id} timed out before it started")
        self.unstarted.discard(action.call_id)
        if self._cause in _READING:
            # It was taken back. Should it be put again, its hooks begin anew.
            question.stage = 0
            question.told = "withdrawn"

    def _on_deliver(self, action: act.Deliver) -> None:
        turns = action.turns
        if self.has_readers:
            self.readers.deliver(action)
        for uuid in turns:
            if self.turns.get(uuid) != "open":
                raise Violation(f"delivered to {uuid}, which is not under way")
        counted = self.coverage.actions
        for message in action.messages:
            counted["Deliver"] += 1
            line = self._next_expected(Kind.MESSAGE)
            if isinstance(message, InitMessage):
                self._waits = None  # another turn has begun, which discards the call
            if message.raw_line != line.data:
                raise Violation(f"{message} was delivered in the place of {line}")
            if turns != line.turns and not self.cli.is_murky:
                self._check_attribution(message, line, turns)
            self._limits.hear(line, turns, self.now)
            if line.data.startswith(b'{"type":"result"') and not line.is_stale:
                self._result = message
                # From here on an explanation is one for the next turn.
                self._explained_by |= self._explanations
                self._explanations.clear()
                self._count_cost(line)

    def _check_attribution(self, message: Message, line: Line, turns: Turns) -> None:
        """Older CLIs leave it open at times whose a message is; then it is said later."""
        if self.cli.newer or turns:
            raise Violation(f"{line} was delivered to {turns}")
        self._unattributed[id(message)] = (message, line)

    def _count_cost(self, line: Line) -> None:
        total = float(line.data.split(b'"total_cost_usd":')[1].split(b",")[0])
        if not line.ends:
            self._stray_cost += total - self._last_total
        self._last_total = total
        self._limits.totals = (self._limits.totals[1], total)

    def _next_expected(self, kind: Kind) -> Line:
        if not self._expected:
            raise Violation("something came of nothing")
        line = self._expected.popleft()
        if line.kind is not kind:
            raise Violation(f"{line} was taken for {kind.name}")
        return line

    def _on_attribute(self, action: act.Attribute) -> None:
        self.coverage.actions["Attribute"] += 1
        if self.has_readers:
            self.readers.deliver(action)
        for message in action.messages:
            _, line = self._unattributed.pop(id(message), (None, None))
            truth = line.turns if line is not None else ()
            if action.turns != truth and not self.cli.is_murky:
                raise Violation(f"{message} was attributed to {action.turns}, not {truth}")

    def _on_discard(self, action: act.Discard) -> None:
        self.coverage.actions["Discard"] += 1
        self.readers.discard(action)

    def _on_drop_oldest(self, action: act.DropOldest) -> None:
        self.coverage.actions["DropOldest"] += 1
        self.readers.drop_oldest(action)

    def _on_pause(self, action: act.PauseReading) -> None:
        self.coverage.actions["PauseReading"] += 1
        self.readers.pause(action)

    def _on_resume(self, action: act.ResumeReading) -> None:
        self.coverage.actions["ResumeReading"] += 1
        self.readers.resume(action)

    def _on_turn_started(self, action: act.TurnStarted) -> None:
        self.coverage.actions["TurnStarted"] += 1
        if action.uuid in self.turns:
            raise Violation(f"{action.uuid} started twice")
        self.turns[action.uuid] = "open"
        self._limits.start(action.uuid, self.now)

    def _on_turn_ended(self, action: act.TurnEnded) -> None:
        self.coverage.actions["TurnEnded"] += 1
        uuid, outcome = action.uuid, action.outcome
        if self.turns.get(uuid) != "open":
            raise Violation(f"{uuid} ended, but it was {self.turns.get(uuid)}")
        self.turns[uuid] = "done"
        self.readers.end_turn(uuid)
        self._limits.end(uuid, self.now)
        self.coverage.reasons[outcome.reason.value] += 1
        if outcome.result is not None:
            self._cost += outcome.cost_usd or 0.0
        if outcome.pending is None:
            self._waits = None
        reasons = self._due.pop(uuid, None)
        if outcome.reason.startswith("limit_"):
            self._limits.check_reason(uuid, outcome.reason, self.now, self.cli.cost)
        if self.engine.lifecycle in TERMINAL and reasons is None:
            is_known = outcome.reason in _ENDINGS_WITHOUT_RESULT
            if not (is_known or outcome.reason.startswith("limit_") or self._is_mistaken(outcome)):
                raise Violation(f"{uuid} ended with the session as {outcome.reason}")
        elif not self.cli.is_murky:
            self._check_reason(uuid, outcome.reason, reasons)
            if self._unattributed and uuid in {
                turn for _, line in self._unattributed.values() for turn in line.turns
            }:
                raise Violation(f"{uuid} ended before its messages were attributed")

    def _is_mistaken(self, outcome: Outcome[Any]) -> bool:
        """Whether a line of this step ended a prompt before the session ended.

        After a lost line the engine may take a result for that of another prompt.
        """
        if outcome.reason is Reason.MESSAGE_LOST:
            return self.cli.is_murky and self._has_lost_line
        return self.cli.is_murky and outcome.result is not None and outcome.result is self._result

    def _check_reason(self, uuid: str, reason: Reason, reasons: Reasons | None) -> None:
        if reasons is None:
            raise Violation(f"{uuid} ended as {reason} out of the blue")
        if reason in reasons:
            return
        if reason.startswith("limit_") and Reason.COMPLETED not in reasons:
            return
        explained_by = self._explained_by
        # Without a reason given, a failure is put down to an interrupt of ours if there was one.
        if Reason.EXECUTION_ERROR in reasons and "interrupt" in explained_by:
            reasons = frozenset({Reason.INTERRUPTED})
        if reason is Reason.INTERRUPTED and reason in reasons:
            return
        ended_by_hook = reason is Reason.STOPPED_BY_HOOK and "hook" in explained_by
        if ended_by_hook and Reason.INTERRUPTED in reasons:
            return
        raise Violation(f"{uuid} ended as {reason}, not {sorted(reasons)}")

    def _open_turns(self) -> list[str]:
        return [uuid for uuid, state in self.turns.items() if state == "open"]

    def _check_limits(self) -> None:
        """Every turn ends within its limit plus the time it has to react to an interrupt."""
        self._limits.check_time(self._open_turns(), self.now)

    def _check_limits_at_rest(self, hanging: list[str]) -> None:
        self._limits.check_rest(hanging, is_waiting=bool(self.calls or self.held))

    def _on_resolve(self, action: act.Resolve) -> None:
        self.coverage.actions["Resolve"] += 1
        self._settle_key(action.key, "resolved")
        name = action.key[0]  # type: ignore[index]
        if name == "send":
            if self.turns.get(str(action.value)) is None:
                raise Violation("a prompt was accepted before its turn began")
            if action.key in self._queued:
                self._queued.remove(action.key)
        elif name != START and self._cause not in _READING:
            raise Violation(f"{action.key} succeeded by {self._cause}")

    def _on_reject(self, action: act.Reject) -> None:
        self.coverage.actions["Reject"] += 1
        self._settle_key(action.key, "rejected")
        if action.key in self._queued:
            self._queued.remove(action.key)
        error = type(action.error)
        if error is ControlTimeout and self._cause != "advance":
            raise Violation(f"{action.key} timed out by {self._cause}")
        if error is ControlRejected and self._cause not in _READING:
            raise Violation(f"{action.key} was refused by {self._cause}")
        if action.key[0] == "invalid" and error is not OptionsError:  # type: ignore[index]
            raise Violation(f"{action.key} failed with {action.error!r}")

    def _settle_key(self, key: Hashable, how: str) -> None:
        state = self.keys.get(key)
        if state != "open":
            raise Violation(f"{key} was {how}, but it was {state}")
        self.keys[key] = how

    def _on_publish(self, action: act.Publish) -> None:
        self.coverage.actions["Publish"] += 1
        event = action.event
        if self.has_readers:
            self.readers.published(event)
        if isinstance(event, SessionReady):
            if self._ready or self._is_past:
                raise Violation("ready twice, or too late")
            self._ready = True
        elif isinstance(event, SessionCompleted | SessionEnded | SessionFailed):
            self._farewells += 1
            if self._farewells > 1 or self.engine.lifecycle not in TERMINAL:
                raise Violation(f"{event} is not the one last_event")

    def _on_warn(self, action: act.Warn) -> None:
        self.coverage.actions["Warn"] += 1
        self.coverage.warnings[action.kind.value] += 1
        self._warned = True
        if self.has_readers:
            self.readers.warn(action)
            self.readers.published(SdkWarning(action.kind, action.detail))
        if action.kind is WarningKind.MALFORMED_LINE:
            self._next_expected(Kind.JUNK)
            self._has_lost_line = True
        elif action.kind is WarningKind.UNANSWERED_REQUEST:
            question = self.cli.asked.get(action.detail.split("'")[1])
            if question is None or not self.input_over:
                raise Violation(f"{action} without need")
            question.dropped = True
        elif action.kind is WarningKind.OVERSIZED_LINE:
            self._next_expected(Kind.OVERSIZED)
            self._has_lost_line = True

    def _on_end_input(self, _: act.EndInput) -> None:
        self.coverage.actions["EndInput"] += 1
        if self.input_over:
            raise Violation("the input ended twice")
        self.input_over = True
        self.cli.end_input()

    def _on_terminate(self, _: act.Terminate) -> None:
        self.coverage.actions["Terminate"] += 1
        if self._terminated or self._killed or self.exited:
            raise Violation("the ladder was climbed down")
        self._terminated = True
        self.cli.terminate()

    def _on_kill(self, _: act.Kill) -> None:
        self.coverage.actions["Kill"] += 1
        if not self._terminated or self._killed or self.exited:
            raise Violation("a kill out of order")
        self._killed = True
        self.cli.die(-9)

    def _on_session_named(self, action: act.SessionNamed) -> None:
        self.coverage.actions["SessionNamed"] += 1
        if action.session_id != self.engine.session_id or action.session_id in self._names:
            raise Violation(f"the session was named {action.session_id!r} wrongly, or twice")
        self._names.add(action.session_id)

    def _on_finished(self, _: act.Finished) -> None:
        self.coverage.actions["Finished"] += 1
        if self.finished:
            raise Violation("finished twice")
        self.finished = True


def _drops_messages(action: act.Action) -> bool:
    """Return True for what the engine does if unread messages of turns are too many."""
    is_warning = isinstance(action, act.Warn) and action.kind is WarningKind.MISSED_MESSAGES
    return is_warning or isinstance(action, act.Discard)


_CHECKS: dict[type, Callable[[Promises, Any], None]] = {
    act.Write: Promises._on_write,
    act.EndInput: Promises._on_end_input,
    act.Terminate: Promises._on_terminate,
    act.Kill: Promises._on_kill,
    act.Deliver: Promises._on_deliver,
    act.Attribute: Promises._on_attribute,
    act.Discard: Promises._on_discard,
    act.DropOldest: Promises._on_drop_oldest,
    act.PauseReading: Promises._on_pause,
    act.ResumeReading: Promises._on_resume,
    act.TurnStarted: Promises._on_turn_started,
    act.TurnEnded: Promises._on_turn_ended,
    act.Resolve: Promises._on_resolve,
    act.Reject: Promises._on_reject,
    act.Call: Promises._on_call,
    act.CancelCall: Promises._on_cancel_call,
    act.Publish: Promises._on_publish,
    act.Warn: Promises._on_warn,
    act.SessionNamed: Promises._on_session_named,
    act.Finished: Promises._on_finished,
}
