"""One simulated session: a seeded scheduler, the engine, and the model CLI.

The rule of this file: a seed decides everything. There is no clock but :attr:`World.now`, no
chance but :attr:`World.rng`. Each input of the engine goes through one method here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from random import Random
from typing import Any

from tests.simulation import callbacks
from tests.simulation.coverage import Coverage
from tests.simulation.lines import Kind, Line
from tests.simulation.model import Cli
from tests.simulation.promises import START, Promises
from tests.simulation.settings import CONTROL_TIMEOUT, HUGE_LINE, SETTINGS, SHARES
from tests.simulation.violation import Violation

from bridle._callbacks.results.serialise import serialise
from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.outgoing.operations import default_timeout
from bridle._engine.state import TERMINAL, Lifecycle
from bridle.errors import BridleError, SpawnError
from bridle.events import WarningKind

Event = Callable[["World"], None]
Events = tuple[list[float], list[Event]]
"""Running totals of weights, and what they stand for."""


class World(Promises):
    """A session from its start to its end. :meth:`run` is the whole story."""

    def __init__(
        self,
        seed: int,
        coverage: Coverage,
        make_engine: Callable[[EngineConfig], Engine] = Engine,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.rng = rng = Random(seed)
        setting, config = rng.choices(SETTINGS, cum_weights=SHARES)[0]
        cli = Cli(
            rng,
            newer=rng.random() < 0.5,
            hooks=bool(setting.incoming.hooks.by_callback_id),
            wants_output=setting.wants_output,
        )
        super().__init__(make_engine(config), cli, setting, coverage, trace)
        self.chance = rng.random  # type: ignore[method-assign]  # saves a call each time
        self.has_readers = rng.random() < 0.4
        #: The most bytes a read brings.
        self.chunk = (8, 60, 200, 200, 1000, 4000)[int(rng.random() * 6)]
        self._read_up_to = 0
        # -- the process
        self.spawned = False
        self.output_ended = False
        self.output_held = False
        #: It has come to rest, and nothing is open.
        self._is_quiet = False

    # -- the story -----------------------------------------------------------------------------

    def run(self, events: Events, operate: Event) -> None:
        """Start, live, come to rest, end."""
        self._begin(operate)
        weights, names = events
        count = 350 + int(self.chance() * 1300)
        for event in self.rng.choices(names, cum_weights=weights, k=count):
            if self.finished:
                break
            event(self)
        if not self.finished and self.chance() < 0.75:
            self.come_to_rest()
        self._end()
        self.coverage.seeds += 1
        self.coverage.steps += self.steps

    def _begin(self, operate: Event) -> None:
        way = self.chance()
        if way < 0.01:
            self._step(
                "spawn_failed", self.engine.spawn_failed(self._key(START), _NO_SPAWN, self.now)
            )
        elif way < 0.02:
            # It is gone before anybody was told that it runs.
            self.spawned = True
            self.cli.die(1)
            self.report_exit()
            self.report_output_end()
            self.start()
        elif way < 0.03:
            self.stop()
            if self.chance() < 0.5:
                self.start()
            else:
                self._step(
                    "spawn_failed", self.engine.spawn_failed(self._key(START), _NO_SPAWN, self.now)
                )
        else:
            while self.chance() < 0.2:
                operate(self)
            self.start()

    def start(self) -> None:
        self.spawned = True
        # A session asks for the version beside the handshake.
        self.engine.describe(cli_version="2.1.325" if self.cli.newer else "2.1.197")
        self._init_limit = self.now + self.setting.init_timeout
        self._step("start", self.engine.start(self._key(START), self.now))

    # -- inputs --------------------------------------------------------------------------------

    def deliver(self) -> None:
        """The engine reads some of what the CLI wrote."""
        output = self.cli.output
        if not output or self.output_ended or not self.spawned or self.readers.is_paused:
            return
        size = 1 + int(self.chance() * self.chunk)
        if len(output) > HUGE_LINE // 8:
            size += len(output) // 4
        data = bytes(output[:size])
        del output[:size]
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        self._read_up_to += len(data)
        if self.trace:
            self.trace(f"        <- {data!r:.400}")
        lines = self.cli.lines
        if not lines or lines[0].end > self._read_up_to:
            self._receive_part(data)
            return
        was_over = self.engine.lifecycle in TERMINAL
        while lines and lines[0].end <= self._read_up_to:
            self._note(lines.popleft())
        actions = self.engine.receive(data, self.now)
        if was_over and actions:
            raise Violation(f"a session that is over reacts to output: {actions}")
        self._step("receive", actions)
        self._after_reading()

    def _receive_part(self, data: bytes) -> None:
        """No line is whole yet: nothing may come of it but a word about its length."""
        self.steps += 1
        actions = self.engine.receive(data, self.now)
        for action in actions:
            if isinstance(action, act.Discard) or getattr(action, "kind", None) in _ANY_TIME:
                continue
            raise Violation(f"a part of a line made it do {action}")
        if actions:
            self._step("receive", actions)

    def report_output_end(self) -> None:
        """The engine comes to the end of the output, perhaps in the middle of a line."""
        if self.output_ended:
            return
        self.output_ended = True
        lines = self.cli.lines
        if lines:
            line = lines.popleft()
            missing = line.end - self._read_up_to
            if missing == 1:
                self._note(line)
            elif missing <= len(line.data):
                cut = len(line.data) + 1 - missing
                kind = Kind.OVERSIZED if cut > self.setting.max_line else Kind.JUNK
                self.cli.is_murky = True
                self._note(Line(line.data[:cut], 0, kind, ()))
                if line.asks is not None:
                    self._note_question(line.asks)
                    line.asks.instant = frozenset({"error"})
        self._step("output_ended", self.engine.output_ended(self.now))
        self._after_reading()

    def report_exit(self) -> None:
        """The engine learns that the process is gone."""
        code = self.cli.exit_code
        if code is not None and not self.exited:
            self.exited = True
            self._step("exited", self.engine.exited(code, "its last words", self.now))

    def fail_writes(self) -> None:
        if self.spawned and not self.exited:
            over = self.engine.lifecycle in TERMINAL
            self.input_over = True
            self._is_refusing = self._is_refusing or not over
            for question in self.cli.asked.values():
                question.dropped = bool(question.seen)
            self._step("write_failed", self.engine.write_failed("EPIPE", self.now))

    def advance(self) -> None:
        """The engine is told the time, whether or not anything is due."""
        self._step("advance", self.engine.advance(self.now))
        self._check_limits()
        deadline = self.engine.next_deadline
        if deadline is not None and deadline <= self.now:
            raise Violation(f"a deadline of {deadline} outlives {self.now}")
        if self.engine.lifecycle in TERMINAL:
            return
        for call_id, due in self._call_limits.items():
            if due <= self.now and call_id in self.calls:
                raise Violation(f"call {call_id} was due at {due}")
        for key, due in self._request_limits.items():
            if due <= self.now and self.keys[key] == "open":
                raise Violation(f"{key} was due at {due}")
        if self.engine.lifecycle is Lifecycle.INIT_SENT and self._init_limit <= self.now:
            raise Violation("the handshake was due")

    def advance_to_deadline(self) -> bool:
        deadline = self.engine.next_deadline
        if deadline is None:
            return False
        self.now = max(self.now, deadline)
        self.advance()
        return True

    def submit(
        self,
        operation: str,
        fields: Mapping[str, object],
        timeout: float | None = None,
    ) -> Hashable:
        key = self._key(operation)
        if self.engine.lifecycle is not Lifecycle.RUNNING:
            self._queued.append(key)
        self._submitted = key
        self._timeouts[key] = timeout or default_timeout(operation, CONTROL_TIMEOUT)
        self._step("submit", self.engine.submit(key, operation, fields, self.now, timeout))
        return key

    def send(self, content: Any) -> None:
        key = self._key("send")
        uuid = f"00000000-0000-4000-8000-{self._serial:012}"
        self.prompt_of[key] = uuid
        if self.engine.lifecycle is not Lifecycle.RUNNING:
            self._queued.append(key)
        self._submitted = key
        if self.has_readers and self.chance() < 0.7:
            self.readers.hold_turn(uuid)
        self._step("send", self.engine.send(key, uuid, content, self.now))

    def cancel(self, key: Hashable) -> None:
        if self.keys[key] == "open":
            self.keys[key] = "cancelled"
            if key in self._queued:
                self._queued.remove(key)
        self._step("cancel", self.engine.cancel(key))

    def end_input(self) -> None:
        self._is_refusing = True
        self._step("end_input", self.engine.end_input(self.now))
        self._is_refusing = self.input_over

    def close(self) -> None:
        self._is_refusing = True
        self._step("close", self.engine.close(self.now))

    def stop(self) -> None:
        self._step("stop", self.engine.stop(self.now))
        if self.engine.lifecycle not in TERMINAL:
            raise Violation("a stop did not stop")

    def break_off(self) -> None:
        self._step("break_off", self.engine.break_off(_BREAK_OFF, self.now))

    def _must_wait(self) -> bool:
        return self.chance() < 0.2

    def complete_call(self, call_id: int) -> None:
        """A callback comes to its end, in one of many ways; one that waits is started first."""
        if call_id in self.unstarted:
            way = self.chance()
            if way < 0.2:
                self._refuse_call(call_id)
                return
            self._start_call(call_id)
            if way < 0.6:
                return
        call, question = self.calls.pop(call_id)
        result, effect = callbacks.choose(self.rng, call, question)
        if question.stage == 1:
            question.is_deferred = False
        self._subject = question
        self._expected_verdict = wanted = callbacks.expected(question, effect)
        answers, stage = question.answers, question.stage
        if wanted == "allow" and not self._lets_run(question):
            self.held[question.request_id] = question
        if result is callbacks.RAISES:
            self._step("fail", self.engine.failed_call(call_id, "it raised", self.now))
        else:
            actions = self.engine.finished_call(call_id, serialise(call, result), self.now)
            self._step("finish", actions)
        self._subject = None
        question.is_deferred = question.is_deferred or effect == callbacks.DEFER
        if wanted == "next":
            if question.stage != stage + 1:
                raise Violation(f"the next hook of {question} was not called")
        elif question.answers != answers + (question.request_id not in self.held):
            raise Violation(f"{question} was not answered although its callback was done")
        if callbacks.is_failure(result, effect) and not self._warned:
            raise Violation(f"the callback of {question} failed silently")

    def _refuse_call(self, call_id: int) -> None:
        """No thread is left for a callback."""
        _, question = self.calls.pop(call_id)
        self.unstarted.discard(call_id)
        self._subject = question
        [self._expected_verdict] = callbacks.unasked(question)
        answers = question.answers
        actions = self.engine.failed_call(call_id, "no thread", self.now, was_called=False)
        self._step("refuse", actions)
        self._subject = None
        if question.answers != answers + 1:
            raise Violation(f"{question} was not answered although it could not be asked")

    # -- rest and end --------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Nothing new happens; all that is under way comes to its end. Then nothing may be open."""
        self.cli.spoil.clear()
        self.cli.too_long = self.cli.garbled = ""
        for _ in range(20_000):
            if self.finished:
                return
            if not self._settle_one():
                break
        else:
            raise Violation("it never comes to rest")
        self._check_rest()

    def _settle_one(self) -> bool:
        """Do one of the things that are left to do."""
        cli = self.cli
        if self.readers.is_paused:
            self.readers.read_all()
        elif cli.output and not self.output_ended:
            data = bytes(cli.output[: 1 + int(self.chance() * max(500, len(cli.output) // 4))])
            del cli.output[: len(data)]
            self._receive(data)
        elif cli.has_input:
            cli.read()
        elif cli.can_step:
            cli.step()
        elif self.calls:
            self.complete_call(next(iter(self.calls)))
        elif cli.tasks and cli.is_alive:
            cli.end_task()
        elif not cli.is_alive and not self.exited:
            self.report_exit()
        elif (not cli.is_alive or cli.is_mute) and not self.output_ended and not self.output_held:
            self.report_output_end()
        elif self.engine.next_deadline is not None:
            self.advance_to_deadline()
        elif cli.postponed and cli.is_alive:
            cli.catch_up()
        else:
            return False
        return True

    def _check_rest(self) -> None:
        engine = self.engine
        if engine.lifecycle is not Lifecycle.RUNNING:
            raise Violation(f"at rest, but {engine.lifecycle.value}")
        hanging = [uuid for uuid, state in self.turns.items() if state == "open"]
        self._check_limits_at_rest(hanging)
        if hanging and not self._excuses_hanging:
            raise Violation(f"the CLI is idle, but these turns are under way: {hanging}")
        waiting = [key for key, state in self.keys.items() if state == "open"]
        if waiting:
            raise Violation(f"the CLI is idle, but these wait: {waiting}")
        if not self.input_over:
            for question in self.cli.asked.values():
                if question.seen and not question.answers and not question.withdrawn:
                    raise Violation(f"{question} was never answered")
        self._is_quiet = not (hanging or engine.is_closing or self._excuses_hanging)
        total = self._cost + self._stray_cost
        if abs(total - self._last_total) > 1e-6 and not self.cli.is_murky:
            raise Violation(f"the bill is {total}, but {self._last_total} was spent")

    @property
    def _excuses_hanging(self) -> bool:
        """A deaf CLI never read them; nothing said to a mute or hung one comes back."""
        cli = self.cli
        return cli.is_deaf or cli.is_hung or cli.is_mute or (cli.is_murky and not cli.newer)

    def _end(self) -> None:
        """One of the ways out, and then whatever it takes."""
        way = self.chance()
        if self.finished:
            pass
        elif way < 0.4:
            self._close_for_good()
        elif way < 0.6:
            self.stop()
        elif way < 0.75:
            self.end_input()
        elif way < 0.9:
            self.cli.die((0, 1, 7)[int(self.chance() * 3)])
        else:
            self.cli.die(-9)
            self.cli.lose_output(int(self.chance() * len(self.cli.output)))
        asked_at = self.now
        for _ in range(20_000):
            if self.finished:
                break
            if not self._settle_one():
                self._nudge()
        else:
            raise Violation("it never ends")
        if way < 0.6 and self.now - asked_at > 60.0 and self._terminated:
            raise Violation("the end took too long")
        self._check_end()

    def _close_for_good(self) -> None:
        written = self.coverage.actions["Write"]
        self.close()
        if self._is_quiet and self.coverage.actions["Write"] > written:
            raise Violation("nothing was open, but closing interrupted or answered something")

    def _nudge(self) -> None:
        """The engine waits for the CLI, which waits for the engine: somebody has to leave."""
        if self.engine.is_closing and self.cli.is_alive:
            raise Violation("the ladder has come to a halt")
        if not self.spawned:
            raise Violation("no process, and no end")
        self.output_held = False
        if self.cli.is_alive:
            self.cli.die(0)

    def _check_end(self) -> None:
        engine = self.engine
        if self.engine.lifecycle not in TERMINAL:
            raise Violation(f"finished, but {engine.lifecycle.value}")
        if self._farewells != 1:
            raise Violation(f"{self._farewells} farewells")
        if self.calls:
            raise Violation(f"finished, but calls are open: {self.calls}")
        for what, states in (("key", self.keys), ("turn", self.turns)):
            for name, state in states.items():
                if state == "open":
                    raise Violation(f"finished, but {what} {name} is open")
        self._disturb()

    def _disturb(self) -> None:
        """What comes after the end finds nobody; only a caller is told so."""
        engine, now = self.engine, self.now + 1.0
        actions = [
            *engine.receive(b'{"type":"keep_alive"}\n', now),
            *(engine.exited(0, "", now) if self.spawned else ()),
            *(engine.output_ended(now) if self.spawned else ()),
            *engine.advance(now),
            *engine.started_call(1, now),
            *engine.finished_call(1, None, now),
            *engine.failed_call(2, "", now),
            *engine.write_failed("EPIPE", now),
            *engine.end_input(now),
            *engine.close(now),
            *engine.stop(now),
            *engine.break_off(_BREAK_OFF, now),
            *engine.cancel(START),
        ]
        self.steps += 13
        if actions or engine.next_deadline is not None:
            raise Violation(f"there is life after the end: {actions}")
        told = engine.submit("k", "interrupt", {}, now), engine.send("s", "u", "text", now)
        for key, actions in zip("ks", told, strict=True):
            if len(actions) != 1 or not isinstance(actions[0], act.Reject) or actions[0].key != key:
                raise Violation(f"a caller who came too late was told {actions}")


_ANY_TIME = {WarningKind.LONG_LINE, WarningKind.MISSED_MESSAGES}
"""Warnings that follow from a part of a line, or from a loop that was left."""

_BREAK_OFF = BridleError("nobody reads")

_NO_SPAWN = SpawnError("no such file")
