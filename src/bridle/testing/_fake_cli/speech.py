"""Write the lines of a turn in the right order, from the prompt to the result.

The script and the automatic conversation both use this module.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .frames import TIMINGS, Frames
from .port import Port
from .values import Json

PACK = 4096
"""The number of deltas that are encoded and written at once."""


class Prompt(NamedTuple):
    """A prompt: text, or a list of blocks."""

    content: Any
    uuid: str | None

    @property
    def text(self) -> str:
        """The text of the prompt."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(block.get("text", "")) for block in self.content)


class Speaker:
    """Writes turns, one at a time."""

    def __init__(self, port: Port, frames: Frames, *, echoes: bool, partial: bool) -> None:
        self._port = port
        self._frames = frames
        self._echoes = echoes
        self._partial = partial
        self._owed: Prompt | None = None
        self._unnamed = False
        #: The prompts that began this turn, and those that were merged into it later.
        self.prompts: list[Prompt] = []
        self.folded: list[Prompt] = []
        #: The number of model calls in this turn.
        self.calls = 0
        self.denials: list[Json] = []
        #: True if the last result was an error. It determines the exit code.
        self.failed = False

    @property
    def uuids(self) -> list[str]:
        """The uuids of the prompts of this turn, if they have any."""
        return [prompt.uuid for prompt in (*self.prompts, *self.folded) if prompt.uuid]

    # -- prompts -----------------------------------------------------------------------------------

    def lifecycle(self, prompt: Prompt, state: str) -> None:
        """Send the state of a prompt, if this version reports it."""
        if self._frames.newer and prompt.uuid:
            self._port.send(self._frames.lifecycle(prompt.uuid, state))

    def echo(self, prompt: Prompt, *, timestamped: bool = True) -> None:
        """Repeat a prompt, if the client asked for that."""
        if self._echoes:
            frame = self._frames.echo(prompt.content, prompt.uuid, timestamped=timestamped)
            self._port.send(frame)

    def admit(self, prompts: list[Prompt]) -> Prompt:
        """Merge the prompts of a new turn into one."""
        self.prompts, self.folded, self.calls, self.denials = prompts, [], 0, []
        self._frames.prompt_id = self._frames.new_id()
        for prompt in prompts[:-1]:
            self.echo(prompt, timestamped=False)
        for prompt in prompts:
            self.lifecycle(prompt, "started")
        if len(prompts) == 1:
            return prompts[0]
        return Prompt("\n".join(prompt.text for prompt in prompts), prompts[-1].uuid)

    def resume(self) -> str:
        """Begin the turn of a call that an earlier process deferred. Return the id of the turn."""
        self.prompts, self.folded, self.calls, self.denials = [], [], 0, []
        self._frames.prompt_id = ""
        uuid = self._frames.new_id()
        self.lifecycle(Prompt("", uuid), "started")
        return uuid

    def open(
        self,
        merged: Prompt | None,
        tools: list[str] | None = None,
        servers: list[Json] | None = None,
    ) -> None:
        """Begin the turn. Its prompt is repeated with the first message."""
        self._port.send(self._frames.init(self.uuids, tools or (), servers or ()))
        self._owed = merged
        self._unnamed = True

    def pay_echo(self) -> None:
        """Repeat the prompt now, if that has not been done."""
        if self._owed is not None:
            self.echo(self._owed)
            self._owed = None

    def forget_echo(self) -> None:
        """Do not repeat the prompt, because it never became part of the conversation."""
        self._owed = None

    def fold(self, prompts: list[Prompt]) -> None:
        """Merge prompts that arrived meanwhile into the turn."""
        for prompt in prompts:
            self.echo(prompt)
        for prompt in prompts:
            self.lifecycle(prompt, "started")
        self.folded += prompts

    # -- the model ---------------------------------------------------------------------------------

    def say(self, blocks: list[Json], chunks: int = 2) -> None:
        """Send all blocks in one message of the model."""
        tools = any(block.get("type") == "tool_use" for block in blocks)
        self._frames.stop_reason = "tool_use" if tools else "end_turn"
        self.start_message()
        for index, block in enumerate(blocks):
            self.start_block(index, block)
            self.pieces(index, block, chunks)
            self.finish_block(index, block)
        self.finish_message(self._frames.stop_reason)

    def start_message(self) -> None:
        """Begin a message of the model."""
        self._frames.calls += 1
        self.calls += 1
        if self._partial:
            named = {"user_message_uuids": self.uuids} if self._unnamed and self.uuids else {}
            self._port.send(self._frames.status("requesting", **named))
        self.pay_echo()
        message = self._frames.api_message([])
        shown = {"thinking_display": "updates"} if self._frames.newer else {}
        self._event({"type": "message_start", "message": message}, ttft_ms=5, **shown)

    def start_block(self, index: int, block: Json) -> None:
        """Begin a block, empty."""
        empty: Json = {
            **block,
            **{name: "" for name in ("text", "thinking", "signature") if name in block},
        }
        if "input" in block:
            empty["input"] = {}
        self._event({"type": "content_block_start", "index": index, "content_block": empty})

    def pieces(self, index: int, block: Json, chunks: int) -> None:
        """Send the deltas of a block; none if ``chunks`` is 0."""
        if not self._partial or not chunks:
            return
        kind, member, text = _streamed(block)
        size = max(1, -(-len(text) // chunks))
        for at in range(0, len(text), size):
            self._delta(index, {"type": kind, member: text[at : at + size]})
        if "signature" in block:
            self._delta(index, {"type": "signature_delta", "signature": block["signature"]})

    def flood(self, text: str, count: int) -> None:
        """Send ``count`` deltas of the same text, fast."""
        while self._partial and count > 0:
            self._port.write_lines(self._frames.delta_lines(text, min(count, PACK)))
            count -= PACK

    def finish_block(self, index: int, block: Json, **members: object) -> None:
        """Send the complete block, and the end of its stream events."""
        self._port.send(self._frames.assistant(block, **self._named(), **members))
        if "aborted" not in members:
            self._event({"type": "content_block_stop", "index": index})

    def finish_message(self, stop_reason: str) -> None:
        """End the message."""
        usage = self._frames.api_message([])["usage"] | {"output_tokens": 5}
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        self._event({"type": "message_delta", "delta": delta, "usage": usage})
        self._event({"type": "message_stop"})

    def _delta(self, index: int, delta: Json) -> None:
        self._event({"type": "content_block_delta", "index": index, "delta": delta})

    def _event(self, event: Json, **members: object) -> None:
        if self._partial:
            self._port.send(self._frames.stream_event(event, **members))

    def _named(self) -> Json:
        """Return the members that only the first line of a turn has."""
        if not self._unnamed or not self.uuids:
            return {}
        self._unnamed = False
        return {"user_message_uuid": self.prompts[-1].uuid, "user_message_uuids": self.uuids}

    def fail(self, status: int) -> tuple[str, Json]:
        """Send an API error. Return text and members of the result."""
        self.start_message()
        text = f"API Error: {status} Overloaded. Try again in a moment."
        self._port.send(self._frames.api_failure(text, status, **self._named()))
        self._frames.calls -= 1
        return text, {
            "state": "cancelled",
            "is_error": True,
            "stop_reason": "stop_sequence",
            "terminal_reason": "api_error" if self._frames.newer else "completed",
            "api_error_status": status,
            "api_error_type": "overloaded_error",
            "num_turns": 1,
        }

    # -- tools -------------------------------------------------------------------------------------

    def tool_result(
        self,
        tool_use_id: str,
        content: object,
        result: object = None,
        *,
        is_error: bool = False,
        resumed: str | None = None,
        **meta: object,
    ) -> None:
        """Send the result of a tool call, which the model reads.

        ``resumed`` is the message with the call if an earlier process had deferred it.
        """
        whole = content if result is None else result
        frame = self._frames.tool_result(tool_use_id, content, whole, meta, is_error=is_error)
        self._port.send(frame if resumed is None else self._frames.resumed_result(frame, resumed))

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, text: str | None, *, state: str = "completed", **members: object) -> None:
        """End the turn: send its result and the state of its prompts."""
        for prompt in self.folded:
            self.lifecycle(prompt, state)
        told: Json = {"permission_denials": self.denials, **members}
        if text is not None:
            told = {"result": text, "api_error_status": None, **TIMINGS, **told}
        if told.get("is_error") or not self.calls:
            told = {name: value for name, value in told.items() if name not in TIMINGS}
        if not self.calls:
            told = {"stop_reason": None, "terminal_reason": ..., **told, "api_error_status": ...}
        if self.uuids:
            told = {"user_message_uuid": (self.prompts[-1].uuid or self.uuids[0]), **told}
        self._port.send(self._frames.result(self.uuids, self.calls, **told))
        self.failed = bool(told.get("is_error"))
        for prompt in self.prompts:
            self.lifecycle(prompt, state)
        self._owed = None

    def abort(self, said: str, *, in_tool: bool) -> None:
        """End an interrupted turn: send the text so far and an error result."""
        self.pay_echo()
        if said:
            self.finish_block(0, {"type": "text", "text": said}, aborted=True)
            self._frames.calls -= 1
            self.calls -= 1
        where = " for tool use" if in_tool else ""
        self._port.send(self._frames.words(f"[Request interrupted by user{where}]"))
        if said and self._frames.newer:
            self._event({"type": "content_block_stop", "index": 0})
            self.finish_message("end_turn")
        stop_reason = "tool_use" if in_tool else None
        shown = json.dumps(stop_reason).strip('"')
        diagnostic = "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason="
        self.finish(
            None,
            state="cancelled",
            subtype="error_during_execution",
            is_error=True,
            errors=[diagnostic + shown],
            stop_reason=stop_reason,
            terminal_reason="aborted_tools" if in_tool else "aborted_streaming",
            num_turns=3 if in_tool else 2,
        )


def _streamed(block: Json) -> tuple[str, str, str]:
    """Return the type of a block's deltas, the member they extend, and its whole content."""
    if block["type"] == "tool_use":
        return "input_json_delta", "partial_json", json.dumps(block["input"])
    if block["type"] == "thinking":
        return "thinking_delta", "thinking", block["thinking"]
    return "text_delta", "text", str(block.get("text", ""))
