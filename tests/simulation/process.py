"""The model CLI from outside: a process that lives and dies, reads, keeps a queue, and answers.

The rule of this file: what is read has its effect at once; turns only see what it left behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from random import Random

import msgspec
from tests.simulation import lines as wire
from tests.simulation.lines import Kind, Line, Question, Reasons, Turns
from tests.simulation.output import Json, Output, verdict_of

from bridle.outcomes import OutcomeReason as Reason

_decode = msgspec.json.decode

Turn = Generator[None, None, None]

_SHARE_OF_UNREADABLE = 0.1
"""How many answers to get_usage have no total that can be read."""


class Prompt(msgspec.Struct):
    """A prompt that waits."""

    uuid: str
    text: str

    @property
    def is_command(self) -> bool:
        return self.text.startswith("/")


class Notice(msgspec.Struct):
    """The end of a background task, waiting for its turn."""

    task: int
    #: The prompts of the turn it was started in.
    started_in: Turns


class Process(Output):
    """The process and its session; :mod:`tests.simulation.model` adds what it does in turns."""

    def __init__(self, rng: Random, *, newer: bool, hooks: bool, wants_output: bool) -> None:
        super().__init__()
        self._random = rng.random
        self.newer = newer
        self._hooks = hooks
        self._wants_output = wants_output
        # -- the process
        self._stdin: deque[bytes] = deque()
        self.input_ended = False
        self.exit_code: int | None = None
        #: It does not read its input any more.
        self.is_deaf = False
        self.ignores_sigterm = False
        # -- the session
        self.initialized = False
        #: How it takes the handshake: "answer", "refuse", "ignore", "hook", "permission".
        self.handshake = "answer"
        #: What happens to the next answers: ignore, refuse, repeat, postpone, or nothing special.
        self.spoil: deque[str] = deque()
        self.postponed: list[tuple[bytes, Json]] = []
        self._queue: list[Prompt | Notice] = []
        self._turn: Turn | None = None
        self._was_busy = False
        self._kill_next = False
        self._is_interrupted = False
        self._echoed: set[str] = set()
        self._unsettled: set[str] = set()
        #: What the turn has shown already, and the prompts that were folded into it.
        self._is_announced = False
        self._has_begun = False
        self._folded: set[str] = set()
        #: What it said about prompts that hooks blocked. A compaction repeats it.
        self._notices: list[bytes] = []
        self._waits_for: tuple[Question, ...] = ()
        self._share_of_tasks = 0.45 if rng.random() < 0.5 else 0.8
        #: Background tasks: number, prompts of the turn they were started in.
        self.tasks: dict[int, Turns] = {}
        self.cost = 0.0
        #: The last result that names its prompts, and these.
        self._last_result: tuple[bytes, Turns] = (b"", ())
        self._last_failed = False
        self._in_tool = False

    # -- the process as others see it ----------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        return self.exit_code is None

    @property
    def has_input(self) -> bool:
        reads = not self.is_deaf and not self.is_hung
        return bool(self._stdin) and reads and self.exit_code is None

    @property
    def can_step(self) -> bool:
        """True if time alone takes it further."""
        if self.exit_code is not None or self.is_hung:
            return False
        if self._turn is not None:
            if self._is_interrupted or not self._waits_for or self._is_alone:
                return True
            return any(question.verdict for question in self._waits_for)
        if self._queue:
            return True
        return self._is_alone and not self.is_deaf

    @property
    def _is_alone(self) -> bool:
        """Nobody will write to it any more."""
        return self.input_ended and not self._stdin

    @property
    def is_idle(self) -> bool:
        """True if nothing is to come unless something is written to it."""
        return not self._stdin and self._turn is None and not self._queue

    def write(self, data: bytes) -> None:
        """Its standard input gets some whole lines."""
        self._stdin.extend(data.splitlines())

    def end_input(self) -> None:
        """Its standard input is closed: nobody will answer any more."""
        self.input_ended = True

    def terminate(self) -> None:
        """SIGTERM."""
        if not self.ignores_sigterm:
            self.die(143)

    def die(self, code: int) -> None:
        """It is gone, whatever it was doing."""
        if self.exit_code is None:
            self.exit_code = code
            self._turn = None
            self._queue.clear()
            self._stdin.clear()
            self.tasks.clear()

    # -- waiting -------------------------------------------------------------------------------

    def _wait(self, question: Question) -> Turn:
        self._waits_for = (question,)
        while not question.verdict:
            if self._is_alone:
                question.verdict = "closed"
                break
            yield
        self._waits_for = ()

    # -- input ---------------------------------------------------------------------------------

    def read(self) -> None:
        """Read one line of input."""
        raw = self._stdin.popleft()
        frame: Json = _decode(raw)
        if frame["type"] == "user":
            self._on_prompt(frame)
        elif frame["type"] == "control_request":
            self._on_request(frame["request_id"].encode(), frame["request"])
        else:
            self._on_answer(raw, frame["response"])

    def _on_prompt(self, frame: Json) -> None:
        prompt = Prompt(frame["uuid"], frame["message"]["content"])
        self._unsettled.add(prompt.uuid)
        self._queue.append(prompt)
        self._tell(prompt.uuid, b"queued")

    def _on_answer(self, raw: bytes, response: Json) -> None:
        question = self.asked.get(response["request_id"])
        if question is not None and not question.verdict:
            question.verdict = verdict_of(question.kind, response)
        # In replay mode it repeats what it is told.
        self.control(raw)

    def _on_request(self, request_id: bytes, request: Json) -> None:
        spoil = self.spoil.popleft() if self.spoil else ""
        if spoil == "postpone":
            self.postponed.append((request_id, request))
        elif spoil == "refuse" and request["subtype"] != "initialize":
            self._respond(request_id, wire.FAILURE % request_id)
        elif spoil != "ignore":
            said = len(self.lines)
            self._do(request_id, request)
            if spoil == "repeat" and len(self.lines) > said:  # and not what it said earlier
                last = self.lines[-1]
                self._put(Line(last.data, 0, last.kind, ()), "control")

    def _do(self, request_id: bytes, request: Json) -> None:
        _REQUESTS.get(request["subtype"], Process._do_other)(self, request_id, request)

    def catch_up(self) -> None:
        """Do what it was asked for some time ago, and say so."""
        self._do(*self.postponed.pop(0))

    def _answer(
        self, request_id: bytes, payload: bytes, ends: dict[str, Reasons] | None = None
    ) -> None:
        """Acknowledge; newer CLIs say more."""
        data = wire.SUCCESS % (request_id, payload) if payload else wire.ACK % request_id
        self._respond(request_id, data, ends)

    def _respond(
        self, request_id: bytes, data: bytes, ends: dict[str, Reasons] | None = None
    ) -> None:
        self._put(Line(data, 0, Kind.CONTROL, (), ends, answers=request_id.decode()), "response")

    def _do_initialize(self, request_id: bytes, _: Json) -> None:
        way = self.handshake
        self.initialized = way != "refuse"
        if way == "ignore":
            return
        if way == "refuse":
            self._respond(request_id, wire.FAILURE % request_id)
            return
        if way == "hook" and self._hooks:
            self.ask("hook", "Notification")
        elif way == "permission":
            self.ask("permission")
        template = wire.INITIALIZED_NEWER if self.newer else wire.INITIALIZED_OLDER
        self._respond(request_id, template % request_id)

    def _do_interrupt(self, request_id: bytes, request: Json) -> None:
        cancelled = b""
        if self.newer and request.get("cancel_queued"):
            gone = [entry for entry in self._queue if isinstance(entry, Prompt)]
            self._queue = [entry for entry in self._queue if isinstance(entry, Notice)]
            for prompt in gone:
                self._take_back(prompt.uuid)
            named = ",".join(f'"{prompt.uuid}"' for prompt in gone)
            cancelled = b',"cancelled":[%s]' % named.encode()
        if self._turn is not None:
            self._is_interrupted = True
            self._withdraw_open()
        elif self._queue:
            self._kill_next = True
        self._answer(request_id, b'{"still_queued":[]%s}' % cancelled if self.newer else b"")

    def _withdraw_open(self) -> None:
        for question in self._waits_for:
            if question.kind == "mcp" and not question.verdict:
                self._cancel_mcp(question)
            else:
                self.withdraw(question)

    def _cancel_mcp(self, question: Question) -> None:
        """No cancel frame for these: a message of its own, which wants an answer too."""
        question.verdict = "withdrawn"
        name = f"q{self.next_id()}"
        rest = b',"params":{"requestId":"%s"}' % question.request_id.encode()
        method = b"notifications/cancelled"
        data = wire.MCP % (name.encode(), b"calc", method, name.encode(), rest)
        self.put_question(Question(name, "mcp", "notify"), data)

    def _do_cancel_message(self, request_id: bytes, request: Json) -> None:
        uuid = request["message_uuid"]
        waiting = [e for e in self._queue if isinstance(e, Prompt) and e.uuid == uuid]
        for prompt in waiting:
            self._queue.remove(prompt)
        if not waiting:
            self._answer(request_id, b'{"cancelled":false}')
        elif self.newer:
            self._take_back(uuid)
            self._answer(request_id, b'{"cancelled":true}')
        else:
            self._unsettled.discard(uuid)
            ends = {uuid: frozenset({Reason.INTERRUPTED})}
            self._answer(request_id, b'{"cancelled":true}', ends)

    def _do_set_model(self, request_id: bytes, _: Json) -> None:
        self.say(wire.FOREIGN_ECHO % (b"Set model", self.next_id()))
        self._answer(request_id, b'{"model":"m"}' if self.newer else b"")

    def _do_stop_task(self, request_id: bytes, _: Json) -> None:
        """The end of a task that was stopped is told as well, but no turn follows."""
        if self.tasks:
            number, started_in = self.tasks.popitem()
            self.say(wire.TASK_UPDATED % number)
            self._notify(Notice(number, started_in))
        self._answer(request_id, b"{}")

    def _do_end_session(self, request_id: bytes, _: Json) -> None:
        self._answer(request_id, b"")
        self.die(0)

    def _do_get_usage(self, request_id: bytes, _: Json) -> None:
        is_readable = self._random() >= _SHARE_OF_UNREADABLE
        session = b'"total_cost_usd":%.6f' % self.cost if is_readable else b'"total_cost":"$1"'
        data = wire.SUCCESS % (request_id, b'{"session":{%s}}' % session)
        total = self.cost if is_readable else None
        answers = request_id.decode()
        line = Line(data, 0, Kind.CONTROL, self.current, answers=answers, total=total)
        self._put(line, "response")

    def _do_other(self, request_id: bytes, request: Json) -> None:
        self._answer(request_id, b'{"mode":"plan"}' if self.newer else b"")

    # -- the fate of prompts -------------------------------------------------------------------

    def _tell(self, uuid: str, state: bytes, ends: dict[str, Reasons] | None = None) -> None:
        if self.newer:
            turns = (uuid,) if uuid in self._unsettled else ()
            # Too short to be lost for its length.
            self.say(wire.LIFECYCLE % (uuid.encode(), state), turns, ends, "lifecycle")

    def _take_back(self, uuid: str) -> None:
        self._tell(uuid, b"cancelled", {uuid: frozenset({Reason.INTERRUPTED})})
        self._unsettled.discard(uuid)

    def _echo(self, prompt: Prompt) -> None:
        if prompt.uuid not in self._echoed:
            self._echoed.add(prompt.uuid)
            if prompt.uuid not in self.current:
                self.current = (*self.current, prompt.uuid)
            self.say(wire.ECHO % (prompt.text.encode(), prompt.uuid.encode()), sort="echo")

    def repeat_result(self) -> bool:
        """Write the last result once more, if all prompts it names have ended."""
        data, turns = self._last_result
        if not turns or not self._unsettled.isdisjoint(turns):
            return False
        self._put(Line(data, 0, Kind.MESSAGE, (), is_stale=True), "stale")
        return True

    # -- background tasks ----------------------------------------------------------------------

    def end_task(self) -> None:
        """A background task comes to its end."""
        number, started_in = next(iter(self.tasks.items()))
        self.say(wire.TASK_UPDATED % number)
        notice = Notice(number, started_in)
        if self.newer:
            self._notify(notice)
        del self.tasks[number]
        self._queue.append(notice)

    def talk_in_task(self) -> None:
        """A background task says something."""
        number, started_in = next(iter(self.tasks.items()))
        self.say(wire.SUBAGENT % (self.next_id(), number), self._open(started_in))

    def _notify(self, notice: Notice) -> None:
        number = notice.task
        self.say(wire.TASK_NOTIFICATION % (number, number), self._open(notice.started_in))

    def _open(self, turns: Turns) -> Turns:
        """Whose a line from inside a task is: of those who started it, as far as they are open."""
        return tuple(uuid for uuid in turns if uuid in self._unsettled)


_REQUESTS: dict[str, Callable[[Process, bytes, Json], None]] = {
    "initialize": Process._do_initialize,
    "interrupt": Process._do_interrupt,
    "cancel_async_message": Process._do_cancel_message,
    "set_model": Process._do_set_model,
    "stop_task": Process._do_stop_task,
    "end_session": Process._do_end_session,
    "get_usage": Process._do_get_usage,
}
