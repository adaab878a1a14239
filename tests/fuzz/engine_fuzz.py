"""Fuzz the engine itself: it is fed spoiled recordings of real CLIs in random states.

    python tests/fuzz/engine_fuzz.py --lines N [--jobs N] [--start N]   N lines in seeded sessions
    python tests/fuzz/engine_fuzz.py --seed N                           one session, step by step

A session is an engine from its start to its end. Recorded lines are changed in their bytes and
values, repeated, reordered and cut, and come in between operations of the application, results of
callbacks, deadlines and ends of every kind. Whatever comes, the engine must not raise, must answer
each request of the CLI once, must end each turn in one outcome, must settle each key once, must not
have a deadline that has passed, and must not grow.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

if __package__ in (None, ""):  # started as a file: the imports below are by full name
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.engine_lines import Corpus, Mutator
from tests.simulation import callbacks
from tests.support.sizes import largest_container

from bridle._callbacks.results.serialise import serialise
from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.state import TERMINAL, Lifecycle
from bridle.errors import BridleError, SpawnError
from bridle.options import Limits

SESSION = 600
"""Lines in a session at most."""
BATCH = 20
"""Sessions that a process runs before it reports."""
MOST = 3000
"""Entries that a table of the engine may have: far more than a session of this size needs."""

_LIMITS = (
    Limits(),
    Limits(),
    Limits(total=15.0),
    Limits(first_event=3.0, idle=5.0),
    Limits(turns=3, usd=0.01),
    Limits(first_event=5.0, idle=5.0, total=40.0, turns=2, usd=0.001),
)
_INCOMING = (callbacks.EVERYTHING, callbacks.EVERYTHING, callbacks.PATIENT, callbacks.NOTHING)
_RESULTS: tuple[object, ...] = tuple(
    result
    for table in (
        callbacks._HOOK_RESULTS,
        callbacks._PERMISSION_RESULTS,
        callbacks._ELICITATION_RESULTS,
        callbacks._MCP_RESULTS,
    )
    for result, _ in table
)
_OPERATIONS: tuple[tuple[str, dict[str, object]], ...] = (
    ("interrupt", {}),
    ("interrupt", {"cancel_queued": True}),
    ("set_model", {"model": "opus"}),
    ("set_model", {"model": 7}),
    ("set_permission_mode", {"mode": "plan"}),
    ("rewind_files", {"user_message_id": "u"}),
    ("get_session_cost", {}),
    ("brand_new", {"x": object()}),
    ("initialize", {}),
)
_ERROR = BridleError("nobody reads")
_HOLD = 10.0
"""Seconds that an allow is held at most once no callback is running."""
# Of a line that is too long to be kept, a longer id is not kept either (`wire/oversized.py`).
_LONGEST_ID = 256


class Finding(AssertionError):
    """Something that must not be."""


class Session:
    """One engine, and all that has to be remembered to judge it."""

    def __init__(
        self, seed: int, corpus: Corpus, trace: Callable[[str], None] | None = None
    ) -> None:
        self._rng = rng = Random(seed)
        self._chance = rng.random
        self._trace = trace
        self._recordings = corpus.recordings
        self._mutator = Mutator(rng, corpus)
        self._recording = self._one_of(self._recordings)
        self._position = 0
        self._max_line = (2_000, 60_000, 16 * 2**20)[int(rng.random() * 3)]
        self._spoils = (0.0, 0.3, 0.7, 0.9)[int(rng.random() * 4)]
        incoming = self._one_of(_INCOMING)
        self._limits: Limits = self._one_of(_LIMITS)
        self.engine = Engine(
            EngineConfig(
                initialize={},
                incoming=incoming,
                control_timeout=30.0,
                init_timeout=10.0,
                max_line=self._max_line,
                limits=self._limits,
                wants_output=rng.random() < 0.2,
                checkpointing=rng.random() < 0.5,
                awaits_follow_ups=rng.random() < 0.3,
            )
        )
        self.now = 1000.0
        self.lines = 0
        self._keys: dict[Hashable, str] = {}
        self._turns: dict[str, str] = {}
        self._sent: list[str] = []
        self._calls: dict[int, act.Call] = {}
        self._asked: Counter[str] = Counter()
        self._mentioned: list[bytes] = []
        self._pending: list[str] = []
        self._unread = b""
        self._input_over = False
        self._terminated = False
        self._is_finished = False

    def _one_of(self, choices: Any) -> Any:
        return choices[int(self._chance() * len(choices))]

    # -- the story -----------------------------------------------------------------------------

    def run(self, size: int) -> None:
        """Start, feed lines in every state, and end."""
        if self._chance() < 0.02:
            self._live(5)  # before there is a process
        self._keys["start"] = "open"
        if self._chance() < 0.01:
            self._do("spawn_failed", "start", SpawnError("no such file"), self.now)
        else:
            self._do("start", "start", self.now)
        if self._chance() < 0.9:
            self._greet()
        self._live(size)
        self._end()

    def _greet(self) -> None:
        newer = {"claude_code_version": "2.1.325", "capabilities": ["a"]}
        info = newer if self._chance() < 0.5 else {}
        response = {"subtype": "success", "request_id": "req_0", "response": info}
        self._feed(json.dumps({"type": "control_response", "response": response}).encode())

    def _live(self, size: int) -> None:
        while self.lines < size and not self._is_finished:
            way = self._chance()
            if way < 0.8:
                self._feed_recorded()
            elif way < 0.8115:
                self._junk()
            else:
                self._read()
                self._act(way)
            if self.engine.lifecycle in TERMINAL and self._chance() < 0.05:
                break
        self._read()

    def _act(self, way: float) -> None:
        if way < 0.87:
            self._operate()
        elif way < 0.94:
            self._finish_call()
        elif way < 0.9965:
            self._pass_time()
        else:
            self._disrupt()

    def _feed_recorded(self) -> None:
        lines = self._recording.lines
        if self._chance() < 0.7 and self._position < len(lines):
            line = lines[self._position]
            self._position += 1
        else:
            line = self._mutator.pick()
            if self._chance() < 0.01:
                self._recording, self._position = self._one_of(self._recordings), 0
        names = self._names()
        if self._chance() < self._spoils:
            line = self._mutator.spoil(line, names)
        elif names and self._chance() < 0.4:
            line = self._mutator.renamed(line, self._one_of(names))
        for _ in range(2 if self._chance() < 0.03 else 1):
            self._feed(line)

    def _names(self) -> list[str]:
        return [*self._pending[-4:], *self._sent[-4:], *list(self._asked)[-4:]]

    def _junk(self) -> None:
        self._feed(self._rng.randbytes(int(self._chance() * 60)))

    # -- inputs --------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        """Feed one line or several. A read brings some of them together, and is cut anywhere."""
        for part in data.split(b"\n"):
            line = part + b"\n"
            self.lines += 1
            self._note(line)
            self._unread += line
            if self._chance() < 0.6 or len(self._unread) > 2**20:
                self._read()

    def _read(self) -> None:
        """Let the engine read everything that was fed."""
        data, self._unread = self._unread, b""
        cut = int(self._chance() * len(data)) if self._chance() < 0.3 else 0
        if cut:
            self._do("receive", data[:cut], self.now)
        if data:
            self._do("receive", data[cut:], self.now)

    def _note(self, line: bytes) -> None:
        """Note which request a line makes, or takes back."""
        if b"control" not in line or self.engine.lifecycle in TERMINAL:
            return
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict):
            self._mentioned.append(line)  # it may be answered if it shows an id
            return
        name = frame.get("request_id")
        if not isinstance(name, str) or not name.isascii():
            self._mentioned.append(line)
        elif len(name) > _LONGEST_ID and len(line) > self._max_line:
            self._mentioned.append(line)  # its id is not kept
        elif frame.get("type") == "control_request" and name not in self._asked:
            self._asked[name] = 1
        elif frame.get("type") == "control_cancel_request":
            if self._asked.pop(name, None) and name.encode() in self._unread:
                self._mentioned.append(line)  # its answer may be written before this is read
        else:
            self._mentioned.append(line)

    def _operate(self) -> None:
        way = self._chance()
        key = ("key", len(self._keys))
        if way < 0.55:
            uuids = self._recording.uuids
            uuid = self._one_of(uuids) if uuids and self._chance() < 0.8 else f"u{len(self._keys)}"
            if uuid in self._sent:
                uuid = f"u{len(self._keys)}"
            self._sent.append(uuid)
            self._keys[key] = "open"
            content = [{"type": "text", "text": object()}] if self._chance() < 0.02 else "prompt"
            self._do("send", key, uuid, content, self.now)
        elif way < 0.9:
            self._keys[key] = "open"
            operation, fields = self._one_of(_OPERATIONS)
            if self._chance() < 0.2 and self._sent:
                operation, fields = (
                    "cancel_async_message",
                    {"message_uuid": self._one_of(self._sent)},
                )
            self._do("submit", key, operation, fields, self.now, self._one_of((None, 1.0, 5.0)))
        else:
            waiting = [key for key, state in self._keys.items() if state == "open"]
            if waiting:
                key = self._one_of(waiting)
                self._keys[key] = "cancelled"
                self._do("cancel", key)

    def _finish_call(self) -> None:
        open_calls = list(self._calls)
        call_id = self._one_of(open_calls) if open_calls else 1 + int(self._chance() * 50)
        call = self._calls.pop(call_id, None)
        result = self._one_of(_RESULTS)
        if result is callbacks.RAISES:
            self._do("failed_call", call_id, "it raised", self.now)
        else:
            value = None if call is None else serialise(call, result)
            self._do("finished_call", call_id, value, self.now)

    def _pass_time(self) -> None:
        deadline = self.engine.next_deadline
        way = self._chance()
        if way < 0.7:
            self.now += way
        elif way < 0.95 and deadline is not None:
            self.now = max(self.now, deadline)
        elif way > 0.97:
            self.now += 100.0
        self._advance()

    def _advance(self) -> None:
        self._do("advance", self.now)
        deadline = self.engine.next_deadline
        if deadline is not None and not self.now < deadline < math.inf:
            raise Finding(f"the next deadline is {deadline} at {self.now}")

    def _disrupt(self) -> None:
        way = self._chance()
        if way < 0.15:
            self._do("exited", self._one_of((0, 1, -9, None)), "its last words", self.now)
        elif way < 0.3:
            self._do("output_ended", self.now)
        elif way < 0.45:
            self._input_over = True
            self._do("write_failed", "EPIPE", self.now)
        elif way < 0.6:
            self._do("end_input", self.now)
        elif way < 0.8:
            self._do("close", self.now)
        elif way < 0.9:
            self._do("break_off", _ERROR, self.now)
        else:
            self._do("stop", self.now)

    def _end(self) -> None:
        """End the session in one of the ways there are, and check that nothing is left."""
        way = self._chance()
        if way < 0.3:
            self._settle()
        if way < 0.5:
            self._do("close", self.now)
        elif way < 0.7:
            self._do("stop", self.now)
        for _ in range(200):
            if self._is_finished or self.engine.next_deadline is None:
                break
            self.now = max(self.now, self.engine.next_deadline)
            self._advance()
        self._check_total()
        self._do("exited", 0, "", self.now)
        self._do("output_ended", self.now)
        while self.engine.next_deadline is not None:
            self.now = max(self.now, self.engine.next_deadline)
            self._advance()
        self._check_end()

    def _check_total(self) -> None:
        """After a silence without an end, no turn is open that has a total limit."""
        late = [uuid for uuid, state in self._turns.items() if state == "open"]
        if self._limits.total is not None and late and self.engine.next_deadline is None:
            raise Finding(f"{late[:5]} passed their total and are open")

    def _settle(self) -> None:
        """Finish every call; then each request of the CLI must have its answer in time.

        An allow waits for the hooks about the same tool call, which the CLI may never call.
        """
        while self._calls:
            self._finish_call()
        self.now += _HOLD
        self._advance()
        if self._input_over or self.engine.lifecycle is not Lifecycle.RUNNING:
            return
        if self._asked:
            raise Finding(f"these requests were not answered: {list(self._asked)[:5]}")

    def _check_end(self) -> None:
        if self._calls:
            raise Finding(f"calls are open at the end: {list(self._calls)[:5]}")
        if self.engine.lifecycle not in TERMINAL or not self._is_finished:
            raise Finding(f"it does not end: {self.engine.lifecycle}")
        for what, states in (("turn", self._turns), ("key", self._keys)):
            for name, state in states.items():
                if state == "open":
                    raise Finding(f"{what} {name} is open at the end")

    # -- what comes of it ----------------------------------------------------------------------

    def _do(self, name: str, *arguments: Any) -> None:
        if self._trace:
            self._trace(f"{self.now:9.2f} {name} {arguments!r:.300}")
        actions = getattr(self.engine, name)(*arguments)
        for action in actions:
            if self._trace:
                self._trace(f"              {action!r:.300}")
            if self._is_finished:
                raise Finding(f"{action} after the end")
            check = _CHECKS.get(type(action))
            if check is not None:
                check(self, action)
        for action in actions:
            if isinstance(action, act.Call) and action.call_id in self._calls:
                self.engine.started_call(action.call_id, self.now)
        if name == "receive" and self.lines % 50 == 0:
            self._check_size()

    def _check_size(self) -> None:
        size = largest_container(self.engine)
        if size > MOST:
            raise Finding(f"it grows: something in it has {size} entries")

    def _on_write(self, action: act.Write) -> None:
        data = action.data
        if data.count(b"\n") != 1 or not data.endswith(b"\n"):
            raise Finding(f"not one line: {data!r:.200}")
        if self._terminated:
            raise Finding(f"written to a process that was told to go: {data!r:.200}")
        frame = json.loads(data)
        if frame["type"] == "control_request":
            self._pending.append(frame["request_id"])
        elif frame["type"] == "control_response":
            name = frame["response"]["request_id"]
            if self._asked.pop(name, None) is None and not self._was_mentioned(name):
                raise Finding(f"{name!r:.100} was answered once too often")

    def _was_mentioned(self, name: str) -> bool:
        """Return True if a line that is no proper request shows this id; it counts once."""
        spelled = json.dumps(name)[1:-1].encode()
        for number, line in enumerate(self._mentioned):
            if spelled in line or not name.isascii() or "\\" in spelled.decode():
                del self._mentioned[number]
                return True
        return False

    def _on_call(self, action: act.Call) -> None:
        self._calls[action.call_id] = action

    def _on_cancel_call(self, action: act.CancelCall) -> None:
        if action.call_id not in self._calls:
            raise Finding(f"call {action.call_id} is cancelled and not open")
        del self._calls[action.call_id]

    def _on_deliver(self, action: act.Deliver) -> None:
        for uuid in action.turns:
            if self._turns.get(uuid) != "open":
                raise Finding(f"delivered to {uuid}, which is {self._turns.get(uuid)}")

    def _on_turn_started(self, action: act.TurnStarted) -> None:
        if action.uuid in self._turns:
            raise Finding(f"{action.uuid} starts twice")
        self._turns[action.uuid] = "open"

    def _on_turn_ended(self, action: act.TurnEnded) -> None:
        if self._turns.get(action.uuid) != "open":
            raise Finding(f"{action.uuid} ends, and is {self._turns.get(action.uuid)}")
        self._turns[action.uuid] = "ended"
        if not action.outcome.ok and not action.outcome.detail:
            raise Finding(f"{action.outcome!r:.200} has no cause")

    def _on_settled(self, action: act.Resolve | act.Reject) -> None:
        if self._keys.get(action.key) != "open":
            raise Finding(f"{action.key} is settled, and is {self._keys.get(action.key)}")
        self._keys[action.key] = "settled"

    def _on_terminate(self, _: object) -> None:
        self._terminated = self._input_over = True

    def _on_end_input(self, _: object) -> None:
        self._input_over = True

    def _on_finished(self, _: object) -> None:
        self._is_finished = True


_CHECKS: dict[type, Callable[[Session, Any], None]] = {
    act.Write: Session._on_write,
    act.Call: Session._on_call,
    act.CancelCall: Session._on_cancel_call,
    act.Deliver: Session._on_deliver,
    act.TurnStarted: Session._on_turn_started,
    act.TurnEnded: Session._on_turn_ended,
    act.Resolve: Session._on_settled,
    act.Reject: Session._on_settled,
    act.Terminate: Session._on_terminate,
    act.EndInput: Session._on_end_input,
    act.Finished: Session._on_finished,
}


@cache
def _corpus() -> Corpus:
    return Corpus()


def fuzz(
    seed: int, trace: Callable[[str], None] | None = None, *, size: int = SESSION
) -> tuple[int, str | None]:
    """Run one session: the lines that were fed, and what was found, if anything."""
    session = Session(seed, _corpus(), trace)
    try:
        chance = session._rng.random
        session.run(20 + int(chance() * size) * (20 if chance() < 0.002 else 1))
    except Finding as finding:
        return session.lines, f"Finding: {finding}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return session.lines, f"{type(error).__name__}: {error} ({place})"
    return session.lines, None


def fuzz_batch(first: int) -> tuple[int, list[tuple[int, str]]]:
    """Run some sessions: the lines that were fed, and the seeds that found something."""
    lines, findings = 0, []
    for seed in range(first, first + BATCH):
        fed, finding = fuzz(seed)
        lines += fed
        if finding is not None:
            findings.append((seed, finding))
    return lines, findings


def fuzz_lines(count: int, *, start: int = 0, jobs: int = 1) -> tuple[int, list[tuple[int, str]]]:
    """Run sessions until so many lines were fed: their number, and the seeds with a finding."""
    lines = 0
    findings: list[tuple[int, str]] = []
    seeds = iter(range(start, sys.maxsize, BATCH))
    if jobs == 1:
        while lines < count and len(findings) < 20:
            fed, found = fuzz_batch(next(seeds))
            lines += fed
            findings += found
        return lines, findings
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:  # it tells if a process is killed
        under_way = [pool.submit(fuzz_batch, next(seeds)) for _ in range(2 * jobs)]
        while lines < count and len(findings) < 20:
            fed, found = under_way.pop(0).result()
            under_way.append(pool.submit(fuzz_batch, next(seeds)))
            lines += fed
            findings += found
    return lines, findings


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, help="run this session alone, step by step")
    options = parser.parse_args()
    if options.seed is not None:
        _, finding = fuzz(options.seed, print)
        print(finding or f"seed {options.seed} holds")
        return 1 if finding else 0
    began = time.monotonic()
    lines, findings = fuzz_lines(options.lines, start=options.start, jobs=options.jobs)
    for seed, finding in findings:
        print(f"FOUND by seed {seed}: {finding[:400]}")
    print(f"{lines:,} lines in {time.monotonic() - began:.0f} s, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
