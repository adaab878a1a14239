"""A model of the CLI: it reads what the engine writes and answers the way two real versions do.

The rule of this file: written from recordings of the wire, never from the engine. Two flavours
exist. The *newer* one names the prompts of a turn everywhere and tells the fate of each; the
*older* one repeats prompts and says no more. Every line it writes carries the truth about it
(:class:`~tests.simulation.lines.Line`), so that whoever reads can be held to it.

A turn is a generator: each ``yield`` is a point where time passes, input may be read, and an
interrupt may strike (it is thrown in).
"""

from __future__ import annotations

from collections.abc import Generator

from tests.simulation import lines as wire
from tests.simulation.lines import Ending
from tests.simulation.process import Notice, Process, Prompt, Turn

from bridle.outcomes import OutcomeReason as Reason

Asking = Generator[None, None, Ending | None]


class Interrupted(Exception):
    """Thrown into a turn."""


class Cli(Process):
    """One process. The world steps it, lets it read, and takes what it wrote."""

    def step(self) -> None:
        """Go on with what it is doing."""
        turn = self._turn
        if turn is None:
            if self._queue:
                self._turn = self._next_turn()
                next(self._turn)
                if self._kill_next:
                    self._kill_next = False
                    self._is_interrupted = True
            elif self.tasks:
                self.end_task()
            else:
                self.die(1 if self._last_failed else 0)
            return
        try:
            if self._is_interrupted:
                self._is_interrupted = False
                self._waits_for = ()
                turn.throw(Interrupted())
            else:
                next(turn)
        except StopIteration:
            self._turn = None
            self._is_interrupted = False
            self._was_busy = bool(self._queue)

    def _next_turn(self) -> Turn:
        queue = self._queue
        first = queue.pop(0)
        if isinstance(first, Notice):
            if not self.newer:
                self._notify(first)
            return self._guard([], self._follow_up())
        batch = [first]
        if not first.is_command and self._was_busy:
            # What waited for the end of a turn runs as one.
            while queue and isinstance(queue[0], Prompt) and not queue[0].is_command:
                merged = queue.pop(0)
                assert isinstance(merged, Prompt)
                batch.append(merged)
        return self._guard(batch, self._user_turn(batch))

    def _guard(self, batch: list[Prompt], body: Turn) -> Turn:
        """Run a turn; an interrupt ends it in the way the real one does."""
        self._is_announced = self._has_begun = self._in_tool = False
        self._folded.clear()
        try:
            yield
            yield from body
        except Interrupted:
            self._announce(batch)
            if not self._has_begun:
                self._init(batch)
            for prompt in batch:
                self._echo(prompt)
            if self._random() < 0.5:
                rest = b',"aborted":true' if self.newer else b""
                self.say(wire.ASSISTANT % (self.next_id(), rest))
            self.say(wire.INTERRUPTED)
            where = b"tools" if self._in_tool else b"streaming"
            ending = wire.ABORTED._replace(fields=wire.ABORTED.fields % where)
            self._result(ending, is_follow_up=not batch)

    def _announce(self, batch: list[Prompt]) -> None:
        """All but the last of merged prompts are echoed before the turn begins."""
        if not self._is_announced:
            self._is_announced = True
            for prompt in batch[:-1]:
                self._echo(prompt)
            for prompt in batch:
                self._tell(prompt.uuid, b"started")

    def _init(self, batch: list[Prompt]) -> None:
        self._has_begun = True
        named = b""
        if self.newer and batch:
            named = wire.NAMED % b",".join(b'"%s"' % p.uuid.encode() for p in batch)
        self.current = tuple(prompt.uuid for prompt in batch)
        self.say(wire.INIT % named)

    def _user_turn(self, batch: list[Prompt]) -> Turn:
        self._announce(batch)
        yield
        if batch[0].is_command:
            yield from self._command(batch[0])
            return
        if self._hooks and self._random() < 0.4:
            question = self.ask("hook", "UserPromptSubmit")
            yield from self._wait(question)
            if question.verdict in ("block", "end"):
                self._turn_away(batch, blocked=question.verdict == "block")
                return
        self._init(batch)
        yield
        if self._random() < 0.04:
            self._result(wire.BUDGET)
            return
        yield from self._converse(batch[-1], is_follow_up=False)

    def _turn_away(self, batch: list[Prompt], *, blocked: bool) -> None:
        self._init(batch)
        words = b"UserPromptSubmit operation blocked by hook:" if blocked else b"Operation stopped"
        if self.newer:
            kind = b"blocked_by_hook" if blocked else b"stopped_by_hook"
            self._give_notice(wire.HOOK_NOTICE_NEWER % (words, kind))
            if not blocked:
                self._echo(batch[-1])
        else:
            self._give_notice(wire.HOOK_NOTICE_OLDER % words)
        self._result(wire.BLOCKED if blocked else wire.HALTED)

    def _give_notice(self, notice: bytes) -> None:
        """Say what a hook did to a prompt. The notice stays in the conversation."""
        self.say(notice)
        self._notices.append(notice)

    def _command(self, prompt: Prompt) -> Turn:
        self._init([prompt])
        if self.newer and prompt.text == "/no":
            # Newer CLIs pass what they do not know to the model.
            yield
            yield from self._converse(prompt, is_follow_up=False)
            return
        # Local commands are over before anything can come in between.
        if prompt.text == "/compact":
            for line in (wire.COMPACT_BOUNDARY, *self._notices):
                self.say(line)
            self.say(wire.FOREIGN_ECHO % (b"Compacted", self.next_id()))
        else:
            self.say(wire.ASSISTANT % (self.next_id(), b',"local_command_source":"x"'))
        if self.newer:
            self._echo(prompt)
        self._result(wire.UNKNOWN_COMMAND if prompt.text == "/no" else wire.LOCAL)

    def _follow_up(self) -> Turn:
        self._init([])
        yield
        yield from self._converse(None, is_follow_up=True)

    def _converse(self, prompt: Prompt | None, *, is_follow_up: bool) -> Turn:
        """Model calls and tools, until there is an answer."""
        chance = self._random
        partial = chance() < 0.3
        while True:
            if chance() < 0.15:
                self.say(wire.NOISE[int(chance() * len(wire.NOISE))])
                yield
            if prompt is not None and self.newer:
                self._echo(prompt)
            if partial:
                self.say(wire.DELTA)
                yield
            if prompt is not None:
                self._echo(prompt)
            if chance() < 0.55:
                ending = yield from self._answer_prompt()
                self._result(ending, is_follow_up=is_follow_up)
                return
            cut_short = yield from self._tool()
            if cut_short is not None:
                self._result(cut_short, is_follow_up=is_follow_up)
                return
            yield from self._fold()

    def _answer_prompt(self) -> Generator[None, None, Ending]:
        chance = self._random
        names = wire.UNUSUAL if chance() < 0.3 else wire.USUAL
        ending = wire.RESULTS[names[int(chance() * len(names))]]
        rest = b',"error":"%s"' % ending.assistant_error if ending.assistant_error else b""
        if ending.assistant_error == b"rate_limit":
            self.say(b'{"type":"rate_limit_event","rate_limit_info":{"status":"rejected"}}')
        self.say(wire.ASSISTANT % (self.next_id(), rest))
        yield
        if ending.is_success and self._hooks and chance() < 0.2:
            question = self.ask("hook", "Stop")
            yield from self._wait(question)
            if question.verdict == "end":
                return wire.STOP_PREVENTED
            if question.verdict == "block":
                self.say(wire.ASSISTANT % (self.next_id(), b""))
                yield
        return ending

    def _tool(self) -> Asking:
        """One tool call with all its questions; the way it ends the turn, if it does."""
        chance = self._random
        number = self.next_id()
        self.cost += 0.0004
        self.say(wire.TOOL_USE % (number, number))
        self._in_tool = True
        yield
        runs = True
        if self._hooks and chance() < 0.5:
            question = self.ask("hook", "PreToolUse")
            yield from self._wait(question)
            if question.verdict == "defer":
                return wire.DEFERRED
            if question.verdict == "end" and self.newer:
                return wire.HOOK_STOPPED
            runs = question.verdict == "go"
        if runs and chance() < 0.4:
            runs = yield from self._permission(f"toolu_{number}")
        if runs:
            yield from self._run_tool(number)
        self.say(wire.TOOL_RESULT % number)
        yield
        if runs and self._hooks and chance() < 0.2:
            question = self.ask("hook", "PostToolUse")
            yield from self._wait(question)
            if question.verdict == "end":
                return wire.HOOK_STOPPED
        return None

    def _permission(self, use: str) -> Generator[None, None, bool]:
        tools = ("Bash", "Bash", "AskUserQuestion", "ExitPlanMode")
        question = self.ask("permission", tool=tools[int(self._random() * len(tools))], use=use)
        way = self._random()
        if self._hooks and way < 0.9:  # else it never calls the hooks
            rival = self.ask("hook", "PermissionRequest", use=use)
            if way < 0.1:
                yield
                self.withdraw(rival)
            self._waits_for = (question, rival)
            # The first decision wins, the other question is taken back.
            while not (question.verdict or rival.verdict in ("block", "end")):
                if self._is_alone:
                    return False
                if rival.verdict:
                    self._waits_for = (question,)
                yield
            self.withdraw(rival)
            self.withdraw(question)
            if rival.verdict == "end":
                raise Interrupted
        yield from self._wait(question)
        if question.verdict == "deny!":
            raise Interrupted
        return question.verdict == "allow"

    def _run_tool(self, number: int) -> Turn:
        way = self._random()
        if way < 0.25:
            yield from self._wait(self.ask("mcp", "call"))
        elif way < 0.35:
            yield from self._wait(self.ask("elicitation"))
        elif way < self._share_of_tasks:
            self.say(wire.TASK_STARTED % (number, number))
            self.tasks[number] = self.current
        elif way < 0.9:
            # A subagent in the foreground: its lines are the turn's.
            self.say(wire.SUBAGENT % (self.next_id(), number))
        yield
        yield

    def _fold(self) -> Turn:
        """Take in what arrived while a tool ran."""
        while self._queue:
            entry = self._queue[0]
            if isinstance(entry, Notice):
                if self._random() < 0.5:
                    return
                self._queue.pop(0)
                self.say(wire.FOREIGN_ECHO % (b"<task-notification>", self.next_id()))
                continue
            if entry.is_command:
                return
            self._queue.pop(0)
            if self.newer and self._hooks and self._random() < 0.3:
                question = self.ask("hook", "UserPromptSubmit")
                try:
                    yield from self._wait(question)
                except Interrupted:
                    self._queue.insert(0, entry)
                    raise
                if question.verdict in ("block", "end"):
                    self._tell(entry.uuid, b"started")
                    ends = {entry.uuid: frozenset({Reason.PROMPT_BLOCKED})}
                    self._tell(entry.uuid, b"completed", ends)
                    self._unsettled.discard(entry.uuid)
                    self._give_notice(wire.HOOK_NOTICE_NEWER % (b"blocked", b"blocked_by_hook"))
                    continue
            self._folded.add(entry.uuid)
            self._echo(entry)
            self._tell(entry.uuid, b"started")
        self._in_tool = False

    def _result(self, ending: Ending, *, is_follow_up: bool = False) -> None:
        turns = self.current
        self.cost += 0.001 * len(turns) + 0.0005
        rest = b""
        if is_follow_up:
            rest = b',"origin":{"kind":"task-notification"}'
        if self.newer and turns:
            named = b",".join(b'"%s"' % uuid.encode() for uuid in turns)
            rest += b',"user_message_uuid":"%s","user_message_uuids":[%s]' % (
                turns[0].encode(),
                named,
            )
        reasons = ending.reasons
        if ending.is_success and self._wants_output and b"structured_output" not in ending.fields:
            reasons = frozenset({Reason.OUTPUT_MISSING})
        if "result" in (self.too_long, self.garbled):
            reasons = frozenset({Reason.MESSAGE_LOST})
        ends = dict.fromkeys(turns, reasons)
        early = self._folded if ending.state == b"completed" else set()
        for uuid in early:
            self._tell(uuid, b"completed")
        data = wire.result_line(ending, self.cost, rest)
        if self.newer and turns:
            self._last_result = (data, turns)
        self.say(data, ends=ends, sort="result")
        self._last_failed = ending.is_error
        self._unsettled.difference_update(turns)
        self._echoed.clear()
        self.current = ()
        for uuid in turns:
            if uuid not in early:
                self._tell(uuid, ending.state)
