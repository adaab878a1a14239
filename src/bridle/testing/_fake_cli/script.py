"""Run the steps of a script: what the CLI sends and what it expects, in order.

An expectation takes the first unread line of its kind. Lines of other kinds stay unread for later
steps. If an expectation is not met in time, the process writes a message to stderr and exits with
:data:`UNMET`. Each met expectation is recorded immediately, so a killed process can be checked.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from .frames import Frames
from .port import Port, encode
from .speech import Prompt, Speaker
from .tools import find_hooks, read_pre_tool_use
from .values import Json, as_object, is_list, is_object

UNMET = 70
"""The exit code of a script whose expectations were not met."""

UNANSWERED = (
    "received initialize, but the script has no expect_initialize to answer it. Every method of"
    " FakeCli returns a new fake CLI: use the returned one"
)
"""The failure of a script that ends before the session has begun."""

GRANDCHILD_LIFE = 120.0
"""Seconds after which a grandchild exits by itself."""


class Unmet(Exception):
    """An expectation was not met. The text says what was expected and what was received."""


def is_like(wanted: object, value: object) -> bool:
    """Return whether a value equals the wanted one. Objects may have additional members."""
    if is_object(wanted) and is_object(value):
        return all(name in value and is_like(part, value[name]) for name, part in wanted.items())
    if is_list(wanted) and is_list(value):
        return len(wanted) == len(value) and all(map(is_like, wanted, value))
    return wanted == value


class Script:
    """Runs steps. Each step is an object: ``do`` names the method, the rest are its arguments."""

    def __init__(
        self, port: Port, frames: Frames, speaker: Speaker, flags: Json, patience: float
    ) -> None:
        self._port = port
        self._frames = frames
        self._speaker = speaker
        self._echoes: bool = flags["echoes"]
        self._patience = patience
        self._hooks: Json = {}
        self._unread: list[Json] = []
        self._prompts: list[Prompt] = []
        self._open: list[Json] = []
        self._requests: list[Json] = []
        self._tools = 0
        self._ignores_eof = False
        self._met = 0
        #: True inside endless steps, whose expectations are not counted.
        self._is_endless = False
        #: True if initialize was answered, or is left unanswered on purpose. A script with its own
        #: version may expect the client to reject that version, so it must not exit before.
        self._may_leave_initialize: bool = flags["odd_version"]

    def run(self, steps: list[Json]) -> int:
        """Run all steps, wait for the end of the input, and return the exit code."""
        try:
            self._perform(steps)
            self._outlive_script()
        except Unmet as failure:
            self._port.note(failure=str(failure))
            self._port.complain(f"fake CLI: {failure}\n".encode())
            return UNMET
        return int(self._speaker.failed)

    def _outlive_script(self) -> None:
        """Wait for the end of the input after the last step. Fail if initialize is unanswered."""
        while True:
            if not self._may_leave_initialize and any(map(_is_initialize, self._unread)):
                raise Unmet(UNANSWERED)
            if self._port.ended:
                break
            self._collect(None)
        self._do_wait_for_eof()

    def _perform(self, steps: list[Json]) -> None:
        for number, step in enumerate(steps, 1):
            arguments = {name: value for name, value in step.items() if name != "do"}
            perform: Callable[..., None] = getattr(self, f"_do_{step['do']}")
            try:
                perform(**arguments)
            except Unmet as failure:
                if str(failure).startswith("step "):
                    raise
                raise Unmet(f"step {number} ({step['do']}): {failure}") from None

    def _do_repeat(self, steps: list[Json], times: int | None) -> None:
        data = [line.encode("latin-1") for s in steps for line in s.get("lines", ())]
        if times is not None and all(step["do"] == "emit" for step in steps):
            self._port.write(b"".join(data), times)
            return
        self._is_endless = self._is_endless or times is None
        while times is None or times > 0:
            self._perform(steps)
            times = None if times is None else times - 1

    # -- input -------------------------------------------------------------------------------------

    def _collect(self, seconds: float | None) -> None:
        self._port.wait(seconds)
        while self._port.inbox:
            frame = self._port.inbox.popleft()
            if frame["type"] == "control_response" and self._echoes:
                self._port.send({"type": frame["type"], "response": frame["response"]})
            self._unread.append(frame)

    def _take(self, is_wanted: Callable[[Json], bool], what: str) -> Json:
        """Return the first unread line that is wanted. Wait for it if necessary."""
        until = time.monotonic() + self._patience
        while True:
            for frame in self._unread:
                if is_wanted(frame):
                    self._unread.remove(frame)
                    self._may_leave_initialize |= _is_initialize(frame)
                    return frame
            left = until - time.monotonic()
            if self._port.ended or left <= 0:
                late = f"nothing was received within {self._patience:g} s"
                why = "the input ended" if self._port.ended else late
                raise Unmet(f"expected {what}, but {why}. Unread lines: {_shown(self._unread)}")
            self._collect(left)

    def _demand(self, like: object, value: object, what: str) -> None:
        if not is_like(like, value):
            raise Unmet(f"expected {what} like {_shown(like)}, got {_shown(value)}")

    def _note_met(self) -> None:
        """Record a met expectation, before anything is sent to the client about it."""
        if not self._is_endless:
            self._met += 1
            self._port.note(met=self._met)

    def _do_expect_initialize(
        self, answer: Json | None, delay: float, error: str | None, like: Json
    ) -> None:
        request = self._take(_is_initialize, "an initialize request")
        self._demand(like, request["request"], "an initialize request")
        self._note_met()
        self._hooks = request["request"].get("hooks") or {}
        time.sleep(delay)
        if error is not None:
            self._port.send(self._frames.refusal(request, error))
        else:
            self._port.send(self._frames.initialized(request, answer))

    def _do_expect_user(self, text: str | None, like: Json) -> None:
        frame = self._take(lambda frame: frame["type"] == "user", "a prompt")
        self._demand(like, frame, "a prompt")
        prompt = Prompt(frame["message"]["content"], frame.get("uuid"))
        if text is not None and prompt.text != text:
            raise Unmet(f"expected the prompt {text!r}, got {prompt.text!r}")
        self._note_met()
        self._prompts.append(prompt)

    def _do_expect_request(self, subtype: str, like: Json) -> None:
        request = self._take(
            lambda frame: (
                frame["type"] == "control_request" and frame["request"].get("subtype") == subtype
            ),
            f"the request {subtype}",
        )
        self._demand(like, request["request"], f"the request {subtype}")
        self._note_met()
        self._requests.append(request)

    def _do_reply(self, payload: Json | None) -> None:
        self._port.send(self._frames.answer(self._last_request(), payload))

    def _do_refuse(self, error: str, code: str | None) -> None:
        named = {} if code is None else {"error_code": code}
        self._port.send(self._frames.refusal(self._last_request(), error, **named))

    def _do_ignore(self) -> None:
        self._last_request()

    def _last_request(self) -> Json:
        if not self._requests:
            raise Unmet("there is no request to answer: call expect_request first")
        return self._requests.pop()

    def _do_wait_for_eof(self) -> None:
        self._may_leave_initialize = True
        while not self._port.ended:
            self._collect(None)
        if self._ignores_eof:
            self._port.go_deaf()

    def _do_ignore_eof(self) -> None:
        self._ignores_eof = True

    # -- output ------------------------------------------------------------------------------------

    def _do_emit(self, lines: list[str]) -> None:
        for line in lines:
            self._port.write(line.encode("latin-1"))

    def _do_start_turn(self) -> None:
        if not self._prompts:
            self._do_expect_user(None, {})
        prompts, self._prompts = self._prompts, []
        for prompt in prompts:
            self._speaker.lifecycle(prompt, "queued")
        self._speaker.open(self._speaker.admit(prompts))

    def _do_assistant(self, blocks: list[Json]) -> None:
        self._speaker.say([self._with_id(block) for block in blocks])

    def _do_stream(self, text: str, count: int) -> None:
        self._speaker.start_message()
        block = {"type": "text", "text": text * count}
        self._speaker.start_block(0, block)
        self._speaker.flood(text, count)
        self._speaker.finish_block(0, block)
        self._speaker.finish_message("end_turn")

    def _do_tool_result(self, content: str, *, is_error: bool) -> None:
        use = self._tool_use_id
        self._speaker.tool_result(use, content, is_error=is_error)

    def _do_result(self, text: str | None, state: str, members: Json) -> None:
        self._speaker.finish(text, state=state, **members)

    def _do_turn(self, text: str, tools: list[list[Any]]) -> None:
        self._do_start_turn()
        for name, tool_input, content in tools:
            self._do_assistant([{"type": "tool_use", "name": name, "input": tool_input}])
            self._do_tool_result(content, is_error=False)
        self._do_assistant([{"type": "text", "text": text}])
        self._speaker.finish(text)

    @property
    def _tool_use_id(self) -> str:
        """The id of the last tool call."""
        return f"toolu_{self._frames.run}_{self._tools:04d}"

    def _with_id(self, block: Json) -> Json:
        if block["type"] != "tool_use" or block.get("id"):
            return block
        self._tools += 1
        return {"type": "tool_use", "id": self._tool_use_id, **block}

    def _do_huge_line(self, size: int, kind: str) -> None:
        frame, holder, member = self._paddable(kind)
        holder[member] = "x" * (size - len(encode(frame)) + 1)
        self._port.send(frame)

    def _paddable(self, kind: str) -> tuple[Json, Json, str]:
        """Return a frame, and its member that can have any length."""
        if kind == "control_request":
            frame = self._frames.can_use_tool("Write", {"content": ""}, "toolu_huge")
            self._open.append(frame)
            return frame, frame["request"]["input"], "content"
        if kind == "control_response":
            frame = self._frames.answer(self._last_request(), {"text": ""})
            return frame, frame["response"]["response"], "text"
        if kind == "result":
            frame = self._frames.result(self._speaker.uuids, 1, result="")
            return frame, frame, "result"
        block = {"type": "text", "text": ""}
        return self._frames.assistant(block), block, "text"

    # -- requests to the client --------------------------------------------------------------------

    def _do_ask_hook(self, event: str, callback_id: str | None, fields: Json) -> None:
        subject = fields.get("tool_name")
        known = find_hooks(self._hooks, event, subject)
        if callback_id is None and not known:
            raise Unmet(f"no {event} hook is registered for {subject}: {_shown(self._hooks)}")
        tool_use_id = fields.get("tool_use_id")
        self._ask(self._frames.hook_callback(callback_id or known[0], event, fields, tool_use_id))

    def _do_ask_permission(self, tool: str, fields: Json) -> None:
        self._tools += 1
        self._ask(self._frames.can_use_tool(tool, fields, self._tool_use_id))

    def _do_ask_mcp(self, server: str, message: Json) -> None:
        self._ask(self._frames.mcp_message(server, message))

    def _do_ask_elicitation(self, server: str, message: str, schema: Json) -> None:
        self._ask(
            self._frames.question(
                "elicitation",
                mcp_server_name=server,
                message=message,
                mode="form",
                requested_schema=schema,
                property_order=list(schema.get("properties", {})),
            )
        )

    def _do_ask(self, subtype: str, fields: Json) -> None:
        self._ask(self._frames.question(subtype, **fields))

    def _ask(self, question: Json) -> None:
        self._open.append(question)
        self._port.send(question)

    def _do_withdraw(self) -> None:
        if not self._open:
            raise Unmet("there is no request to withdraw")
        self._port.send(self._frames.withdrawal(self._open.pop()["request_id"]))

    def _do_expect_answer(self, subtype: str | None, verdict: str, like: Any) -> None:
        """Wait for the response to the oldest open request of the subtype."""
        asked = [q for q in self._open if subtype in (None, q["request"]["subtype"])]
        if not asked:
            raise Unmet(f"there is no open request {subtype or ''}")
        question = asked[0]
        what = f"a response to {question['request']['subtype']}"
        answer = self._take(
            lambda frame: (
                frame["type"] == "control_response"
                and frame["response"].get("request_id") == question["request_id"]
            ),
            what,
        )
        self._open.remove(question)
        response: Json = answer["response"]
        told = read_answer(question["request"], response, newer=self._frames.newer)
        if verdict and told != verdict:
            raise Unmet(f"expected {what} that is {verdict!r}, got {told!r}: {_shown(response)}")
        self._demand(like, response, what)
        self._note_met()

    # -- the process -------------------------------------------------------------------------------

    def _do_exit(self, code: int) -> NoReturn:
        self._port.leave(code)

    def _do_silence(self, seconds: float | None, *, reading: bool) -> None:
        until = None if seconds is None else time.monotonic() + seconds
        while until is None or time.monotonic() < until:
            left = 3600.0 if until is None else max(0.0, until - time.monotonic())
            if reading and not self._port.ended:
                self._collect(left)
            else:
                time.sleep(left)

    def _do_stderr(self, data: str, times: int) -> None:
        self._port.complain(data.encode("latin-1") * times)

    def _do_close_stdout(self) -> None:
        self._port.close_output()

    def _do_close_stdin(self) -> None:
        self._port.close_input()

    def _do_ignore_sigterm(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _do_fork_grandchild(self, *, setsid: bool, hold_stdout: bool, ignore_sigterm: bool) -> None:
        ready, done = os.pipe()
        pid = os.fork()
        if pid == 0:
            _live_on(done, setsid=setsid, hold_stdout=hold_stdout, ignore_sigterm=ignore_sigterm)
        os.close(done)
        os.read(ready, 1)
        os.close(ready)
        self._port.note(grandchild=pid)


def _is_initialize(frame: Json) -> bool:
    is_request = frame["type"] == "control_request"
    return is_request and bool(frame["request"].get("subtype") == "initialize")


def _live_on(done: int, *, setsid: bool, hold_stdout: bool, ignore_sigterm: bool) -> NoReturn:
    """Run a grandchild."""
    handling = signal.SIG_IGN if ignore_sigterm else signal.SIG_DFL
    signal.signal(signal.SIGTERM, handling)
    if setsid:
        os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for end in (0,) if hold_stdout else (0, 1, 2):
        os.dup2(nothing, end)
    os.close(done)
    time.sleep(GRANDCHILD_LIFE)
    os._exit(0)


def read_answer(request: Json, response: Json, *, newer: bool) -> str:
    """Return what a response means: allow, deny, continue, block, result or error."""
    if response.get("subtype") != "success":
        return "error"
    payload = as_object(response.get("response"))
    subtype = request["subtype"]
    if subtype == "can_use_tool":
        changed = payload.get("updatedInput", {} if newer else None)
        allowed = payload.get("behavior") == "allow" and is_object(changed)
        return "allow" if allowed else "deny"
    if subtype == "hook_callback":
        return "block" if _blocks(request["input"]["hook_event_name"], payload) else "continue"
    if subtype == "mcp_message":
        answer = as_object(payload.get("mcp_response"))
        return "result" if answer and "error" not in answer else "error"
    return "result"


def _blocks(event: str, payload: Json) -> bool:
    if event == "PreToolUse":
        return read_pre_tool_use(payload)[0] == "deny"
    decision = as_object(payload.get("hookSpecificOutput")).get("decision")
    if is_object(decision):
        return as_object(decision).get("behavior") == "deny"
    return payload.get("decision") == "block" or payload.get("continue") is False


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:600]
