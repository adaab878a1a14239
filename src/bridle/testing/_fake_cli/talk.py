"""The automatic conversation: prompts, questions and requests as a real CLI handles them.

One thread, one loop: whatever waits, waits in :meth:`Talk.pump`, which goes on answering the
client's requests, queues its prompts, and ends the turn when it is interrupted.
"""

from __future__ import annotations

import time
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
    """The turn is to end now."""


class Halted(Exception):
    """A hook ended the turn: the members of its result."""

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
        #: Every uuid there has been, and whether its turn has begun.
        self.known: dict[str, bool] = {}
        #: Questions nobody has answered yet, by request id.
        self.open: dict[str, Json] = {}
        self._answers: dict[str, Json | None] = {}
        self.in_turn = False
        self.interrupted = False
        #: Leave with this code as soon as nothing runs.
        self.leaving: int | None = None
        self.begun = False

    def run(self) -> int:
        """Until the client leaves; the exit code."""
        self.port.wake_on_signals()
        while self.leaving is None:
            if self.queue and self.servers.ready:
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

    def is_closed(self) -> bool:
        """Nothing more will come from the client."""
        return self.port.ended and not self.port.inbox

    # -- waiting -----------------------------------------------------------------------------------

    def pump(self, seconds: float | None = None) -> None:
        """Inside a turn: handle what there is, waiting for it if need be."""
        self.port.wait(0 if self.port.inbox else seconds)
        while self.port.inbox:
            self.dispatch(self.port.inbox.popleft())
        if self.interrupted:
            raise Interrupted

    def hold(self, seconds: float) -> None:
        """Stay in the turn for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.pump(min(left, 3600))

    def ask(self, *questions: Json) -> list[Json | None]:
        """Put questions and wait for every answer; None where the client has gone."""
        if self.is_closed():
            return [None for _ in questions]
        ids = [self.put(question) for question in questions]
        return [self._wait_for(one) for one in ids]

    def ask_first(self, *questions: Json) -> dict[int, Json | None]:
        """Put questions and wait for one answer; the rest stay open. By position."""
        if self.is_closed():
            return {}
        ids = [self.put(question) for question in questions]
        while not any(one in self._answers for one in ids):
            if self.is_closed():
                return {}
            self.pump()
        return {n: self._answers.pop(one) for n, one in enumerate(ids) if one in self._answers}

    def wait_for(self, question: Json) -> Json | None:
        """The answer to a question put before."""
        return self._wait_for(question["request_id"])

    def _wait_for(self, request_id: str) -> Json | None:
        while request_id in self.open and not self.is_closed():
            self.pump()
        self.open.pop(request_id, None)
        return self._answers.pop(request_id, None)

    def put(self, question: Json) -> str:
        """Put a question; its answer is looked for later."""
        request_id: str = question["request_id"]
        self.open[request_id] = question
        self.port.send(question)
        return request_id

    def withdraw(self, question: Json) -> None:
        """Take a question back."""
        if self.open.pop(question["request_id"], None) is not None:
            self.port.send(self.frames.withdrawal(question["request_id"]))

    # -- what comes in -----------------------------------------------------------------------------

    def dispatch(self, frame: Json) -> None:
        """One line of the client's."""
        if frame["type"] == "user":
            self._on_prompt(Prompt(frame["message"]["content"], frame.get("uuid")))
        elif frame["type"] == "control_request":
            controls.answer(self, frame)
        elif frame["type"] == "control_response":
            self._on_answer(frame)

    def _on_prompt(self, prompt: Prompt) -> None:
        uuid = prompt.uuid
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
        """Another permission mode is in force, which is told."""
        self.frames.permission_mode = mode
        self.port.send(self.frames.status(None, permissionMode=mode))

    def interrupt_now(self) -> None:
        """An answer of the client's ends the turn on the spot."""
        raise Interrupted

    def on_sigint(self) -> None:
        """Ctrl-C: the turn is interrupted, and then the process leaves in peace."""
        self.leaving = 0
        self.interrupted = self.in_turn

    def on_interrupt(self) -> None:
        """The turn, if there is one, ends as soon as it can."""
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
        merged = self.speaker.admit(prompts)
        self.in_turn = self.begun = True
        self.tools.begin()
        said = ""
        try:
            self._submit(merged)
            self.speaker.open(merged, self.servers.tool_names(), self.servers.told())
            self.pump(0)
            self.hold(self.flags["latency"])
            said = self._converse(self.model.hear(merged.text))
        except Interrupted:
            self.speaker.abort(self.tools.said, in_tool=self.tools.reject_rest())
        except Halted as halt:
            self.speaker.finish(halt.text, **halt.members)
        else:
            self.speaker.finish(said)
        self.in_turn = self.interrupted = False

    def _submit(self, merged: Prompt) -> None:
        """The UserPromptSubmit hooks see the prompt first, and may keep it away."""
        for answer in self.ask_hooks("UserPromptSubmit", {"prompt": merged.text}):
            reason = str(answer.get("reason") or answer.get("stopReason") or "")
            if answer.get("decision") == "block":
                text = f"UserPromptSubmit operation blocked by hook:\n{reason}"
                self._keep_away(merged, f"{text}\n\nOriginal prompt: {merged.text}", reason)
            elif answer.get("continue") is False:
                self._keep_away(merged, f"Operation stopped by hook: {reason}", reason, kept=True)

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
        """Model and tools take turns until the model has nothing more to ask for."""
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
        """The model says this; what its tools gave, or None if it called none."""
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
        if self.tools.halts:
            raise Halted("", stop_reason="tool_use", terminal_reason="hook_stopped")
        if self.tools.output is not None:
            raise Halted(**self.tools.structured())
        return [*results, *(prompt.text for prompt in joining)]

    def _say_slowly(self, call: Call) -> None:
        """A message that comes bit by bit, and can be interrupted between them."""
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
        """The Stop hooks may insist; what they want is told to the model."""
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
        """Run the hooks of an event, all at once; the answers that are any."""
        questions = [
            self.frames.hook_callback(callback_id, event, fields, tool_use_id)
            for callback_id in find_hooks(self.hooks, event, subject)
        ]
        responses = self.ask(*questions) if questions else []
        return [as_object(as_object(response).get("response")) for response in responses]
