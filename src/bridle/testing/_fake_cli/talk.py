"""The automatic conversation: handle prompts, requests and responses like a real CLI.

It uses one thread and one loop. All waiting happens in :meth:`Talk.pump`, which answers the
client's requests, queues its prompts, and ends the turn on an interrupt.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from . import controls
from .frames import Frames
from .model import Call, Model
from .port import Port
from .servers import Servers
from .speech import Prompt, Speaker
from .tools import Tools, find_hooks
from .values import Json, as_object


class Interrupted(Exception):
    """The turn was interrupted."""


class Halted(Exception):
    """A hook ended the turn. Contains the members of the result."""

    def __init__(self, text: str | None = None, **members: Any) -> None:
        super().__init__(text)
        self.text = text
        self.members = members


class Talk:
    """One session, from the first line to the last."""

    def __init__(
        self, port: Port, frames: Frames, speaker: Speaker, flags: Json, model: Model
    ) -> None:
        self.port = port
        self.frames = frames
        self.speaker = speaker
        self.flags = flags
        self.model = model
        self.servers = Servers(self)
        self.tools = Tools(self)
        self.hooks: Json = {}
        self.queue: list[Prompt] = []
        #: The uuids of all prompts, and whether their turns have begun.
        self.known: dict[str, bool] = {}
        #: Unanswered requests to the client, by request id.
        self.open: dict[str, Json] = {}
        self._answers: dict[str, Json | None] = {}
        self.in_turn = False
        self.interrupted = False
        #: If set, exit with this code as soon as no turn runs.
        self.leaving: int | None = None
        self.begun = False
        #: True once the client has sent initialize.
        self.is_initialized = False

    def run(self) -> int:
        """Serve the client until it closes the input. Return the exit code."""
        self.port.wake_on_signals()
        kept = self.port.transcript
        waiting = None if kept is None else kept.waiting
        if not self.frames.awaits_initialize:
            self.servers.connect(self.flags["servers"])
        while self.leaving is None:
            if waiting is not None and self._can_resume:
                use, waiting = waiting, None
                self._resume(use)
            elif self.queue and self.servers.ready and waiting is None:
                self._turn()
            elif self.port.inbox:
                self.dispatch(self.port.inbox.popleft())
            elif not self.port.ended:
                self.port.wait(None)
            elif self.queue:
                self.servers.give_up()
            else:
                break
        return int(self.speaker.failed) if self.leaving is None else self.leaving

    @property
    def _can_resume(self) -> bool:
        """Whether a deferred call can be resumed. Without its flag, the CLI does so at once."""
        return self.servers.ready and (self.is_initialized or not self.frames.awaits_initialize)

    def is_closed(self) -> bool:
        """True if the client has closed the input."""
        return self.port.ended and not self.port.inbox

    # -- waiting -----------------------------------------------------------------------------------

    def pump(self, seconds: float | None = None) -> None:
        """Handle input during a turn. Wait for it if necessary."""
        self.port.wait(0 if self.port.inbox else seconds)
        while self.port.inbox:
            self.dispatch(self.port.inbox.popleft())
        if self.interrupted:
            raise Interrupted

    def hold(self, seconds: float) -> None:
        """Wait this many seconds inside the turn."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.pump(min(left, 3600))

    def ask(self, *questions: Json) -> list[Json | None]:
        """Send requests and wait for all responses; None for each if the client is gone."""
        if self.is_closed():
            return [None for _ in questions]
        ids = [self.put(question) for question in questions]
        return [self._wait_for(one) for one in ids]

    def ask_first(self, *questions: Json) -> dict[int, Json | None]:
        """Send requests and wait for the first response. Return responses by position."""
        if self.is_closed():
            return {}
        ids = [self.put(question) for question in questions]
        while not any(one in self._answers for one in ids):
            if self.is_closed():
                return {}
            self.pump()
        return {n: self._answers.pop(one) for n, one in enumerate(ids) if one in self._answers}

    def wait_for(self, question: Json) -> Json | None:
        """Wait for the response to an earlier request."""
        return self._wait_for(question["request_id"])

    def _wait_for(self, request_id: str) -> Json | None:
        while request_id in self.open and not self.is_closed():
            self.pump()
        self.open.pop(request_id, None)
        return self._answers.pop(request_id, None)

    def put(self, question: Json) -> str:
        """Send a request without waiting for the response. Return its id."""
        request_id: str = question["request_id"]
        self.open[request_id] = question
        self.port.send(question)
        return request_id

    def withdraw(self, question: Json) -> None:
        """Withdraw a request."""
        if self.open.pop(question["request_id"], None) is not None:
            self.port.send(self.frames.withdrawal(question["request_id"]))

    # -- input -------------------------------------------------------------------------------------

    def dispatch(self, frame: Json) -> None:
        """Handle one line of the client."""
        if frame["type"] == "user":
            self._on_prompt(Prompt(frame["message"]["content"], frame.get("uuid")))
        elif frame["type"] == "control_request":
            controls.answer(self, frame)
        elif frame["type"] == "control_response":
            self._on_answer(frame)

    def _on_prompt(self, prompt: Prompt) -> None:
        uuid = prompt.uuid
        if self.flags["spare"]:
            controls.refuse_prompt(self)
            return
        if uuid is not None and uuid in self.known:
            if self.known[uuid] or not self.frames.newer:
                self.speaker.echo(prompt, timestamped=False)
            return
        if uuid is not None:
            self.known[uuid] = False
        self.queue.append(prompt)
        self.speaker.lifecycle(prompt, "queued")

    def _on_answer(self, frame: Json) -> None:
        if self.flags["echoes"]:
            self.port.send({"type": "control_response", "response": frame["response"]})
        response: Json = frame["response"]
        question = self.open.pop(str(response.get("request_id")), None)
        if question is None:
            return
        if not self.servers.on_answer(question, response):
            self._answers[question["request_id"]] = response

    def set_mode(self, mode: str) -> None:
        """Change the permission mode, and report it."""
        self.frames.permission_mode = mode
        self.port.send(self.frames.status(None, permissionMode=mode))

    def interrupt_now(self) -> None:
        """End the turn at once, because a response of the client says so."""
        raise Interrupted

    def on_sigint(self) -> None:
        """Interrupt the turn, then exit normally (Ctrl-C)."""
        self.leaving = 0
        self.interrupted = self.in_turn

    def on_interrupt(self) -> None:
        """End the turn, if there is one, as soon as possible."""
        if not self.in_turn:
            return
        for question in list(self.open.values()):
            if question["request"]["subtype"] != "mcp_message":
                self.withdraw(question)
            else:
                self.servers.cancel(question)
        self.interrupted = True

    # -- turns -------------------------------------------------------------------------------------

    def _turn(self) -> None:
        prompts, self.queue = self.queue, []
        self.known |= {prompt.uuid: True for prompt in prompts if prompt.uuid}
        if self.port.transcript is not None:
            self.port.transcript.close_last_turn()
        merged = self.speaker.admit(prompts)
        self._run_turn(lambda: self._hear(merged))

    def _hear(self, merged: Prompt) -> str:
        added = self._submit(merged)
        self.speaker.open(merged, self.servers.tool_names(), self.servers.told())
        self.pump(0)
        self.hold(self.flags["latency"])
        return self._converse(self.model.hear(merged.text, added))

    def _resume(self, use: Json) -> None:
        """Run the turn of a call that an earlier process deferred. It has no prompt."""
        uuid = self.speaker.resume()
        self._run_turn(lambda: self._go_on(use, uuid))
        self.speaker.lifecycle(Prompt("", uuid), "completed")

    def _go_on(self, use: Json, uuid: str) -> str:
        server = use["name"].split("__")[1] if use["name"].startswith("mcp__") else None
        if server is not None and server not in self.flags["servers"]:
            self._keep_waiting(use, is_error=True, stop_reason="tool_deferred_unavailable")
        results = self.tools.resume(use, use["source"])
        if self.tools.deferred is not None:
            self._keep_waiting(use, stop_reason="tool_deferred")
        if self.port.transcript is not None:
            self.port.transcript.go_on(uuid)
        self.speaker.open(None, self.servers.tool_names(), self.servers.told())
        return self._converse(self.model.go_on(results))

    def _keep_waiting(self, use: Json, **members: object) -> None:
        """End the turn of a resumed call, which waits as before."""
        call = {name: use[name] for name in ("id", "name", "input")}
        raise Halted("", terminal_reason=..., deferred_tool_use=call, **members)

    def _run_turn(self, converse: Callable[[], str]) -> None:
        self.in_turn = self.begun = True
        self.tools.begin()
        said = ""
        try:
            said = converse()
        except Interrupted:
            self.speaker.abort(self.tools.said, in_tool=self.tools.reject_rest())
        except Halted as halt:
            self.speaker.finish(halt.text, **halt.members)
        else:
            self.speaker.finish(said)
        self.in_turn = self.interrupted = False

    def _submit(self, merged: Prompt) -> str:
        """Run the UserPromptSubmit hooks, which may block the prompt. Return what they add."""
        added: list[str] = []
        for answer in self.ask_hooks("UserPromptSubmit", {"prompt": merged.text}):
            reason = str(answer.get("reason") or answer.get("stopReason") or "")
            if answer.get("decision") == "block":
                text = f"UserPromptSubmit operation blocked by hook:\n{reason}"
                self._keep_away(merged, f"{text}\n\nOriginal prompt: {merged.text}", reason)
            elif answer.get("continue") is False:
                self._keep_away(merged, f"Operation stopped by hook: {reason}", reason, kept=True)
            added.append(
                str(as_object(answer.get("hookSpecificOutput")).get("additionalContext", ""))
            )
        return "\n".join(filter(None, added))

    def _keep_away(self, merged: Prompt, text: str, reason: str, *, kept: bool = False) -> None:
        kind = "stopped_by_hook" if kept else "blocked_by_hook"
        outcome = {"kind": kind, "prompt_kept": kept, "reason": reason}
        self.speaker.open(merged, self.servers.tool_names(), self.servers.told())
        self.port.send(
            self.frames.system(
                "informational",
                content=text,
                level="warning",
                prevent_continuation=True,
                prompt_submit_outcome=outcome,
            )
        )
        if kept:
            self.speaker.pay_echo()
        self.speaker.forget_echo()
        raise Halted(text)

    def _converse(self, call: Call) -> str:
        """Alternate between model and tools until the model calls no tool."""
        while True:
            results = self._perform(call)
            if results is None:
                texts = [block["text"] for block in call.blocks if block["type"] == "text"]
                feedback = self._stop_hooks("\n".join(texts))
                if feedback is None:
                    return texts[-1] if texts else ""  # a result holds the last block only
                results = []
            if self.speaker.calls == self.flags["max_turns"]:
                raise Halted(
                    None,
                    subtype="error_max_turns",
                    is_error=True,
                    errors=[f"Reached maximum number of turns ({self.speaker.calls})"],
                    stop_reason="tool_use",
                    terminal_reason="max_turns",
                    num_turns=self.speaker.calls + 1,
                )
            self.pump(0)
            self.hold(self.flags["latency"])
            call = self.model.go_on(results)

    def _perform(self, call: Call) -> list[str] | None:
        """Send an answer of the model and run its tools. Return their results, if it has any."""
        if call.status:
            text, members = self.speaker.fail(call.status)
            raise Halted(text, **members)
        if call.exit_code is not None:
            self.port.leave(call.exit_code)
        if call.hold or call.deltas:
            self._say_slowly(call)
        else:
            self.speaker.say(call.blocks, call.chunks)
        uses = [block for block in call.blocks if block["type"] == "tool_use"]
        if not uses:
            return None
        results = self.tools.run(uses)
        joining, self.queue = self.queue, []
        self.known |= {prompt.uuid: True for prompt in joining if prompt.uuid}
        self.speaker.fold(joining)
        deferred = self.tools.deferred
        if deferred is not None:
            raise Halted(
                "",
                stop_reason="tool_deferred",
                terminal_reason="tool_deferred",
                num_turns=self.speaker.calls + bool(results),
                deferred_tool_use={name: deferred[name] for name in ("id", "name", "input")},
            )
        if self.tools.halts:
            raise Halted("", stop_reason="tool_use", terminal_reason="hook_stopped")
        if self.tools.output is not None:
            raise Halted(**self.tools.structured())
        return [*results, *(prompt.text for prompt in joining)]

    def _say_slowly(self, call: Call) -> None:
        """Send a message in parts. It can be interrupted between them."""
        self.speaker.start_message()
        last = len(call.blocks) - 1
        for index, block in enumerate(call.blocks):
            self.speaker.start_block(index, block)
            self.speaker.pieces(index, block, call.chunks)
            if index == last:
                self.tools.said = str(block.get("text", ""))
                self.speaker.flood("word ", call.deltas)
                self.hold(call.hold)
                self.tools.said = ""
            self.speaker.finish_block(index, block)
        self.speaker.finish_message("end_turn")

    def _stop_hooks(self, said: str) -> str | None:
        """Run the Stop hooks. Return their feedback to the model, or None."""
        fields: Json = {
            "stop_hook_active": self.tools.insisted,
            "last_assistant_message": said,
            "background_tasks": [],
            "session_crons": [],
        }
        feedback = None
        for answer in self.ask_hooks("Stop", fields):
            if answer.get("continue") is False:
                raise Halted(said, terminal_reason="stop_hook_prevented")
            if answer.get("decision") == "block":
                feedback = str(answer.get("reason", ""))
        if feedback is not None:
            self.tools.insisted = True
            self.port.send(self.frames.words(f"Stop hook feedback:\n{feedback}", isSynthetic=True))
            self.port.send(
                self.frames.system(
                    "notification",
                    key="stop-hook-error",
                    text="Stop hook error occurred",
                    priority="immediate",
                )
            )
        return feedback

    def ask_hooks(
        self, event: str, fields: Json, subject: str | None = None, tool_use_id: str | None = None
    ) -> list[Json]:
        """Run all hooks of an event at the same time. Return their valid responses."""
        questions = [
            self.frames.hook_callback(callback_id, event, fields, tool_use_id)
            for callback_id in find_hooks(self.hooks, event, subject)
        ]
        responses = self.ask(*questions) if questions else []
        return [as_object(as_object(response).get("response")) for response in responses]
