"""The conversation of a recording: messages, and tool calls with their results. Pure.

Stream deltas are left out, because the complete messages follow them.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from bridle._spi import UserText
from bridle._spi import actions as act
from bridle.cli._timeline.frame_summaries import (
    Json,
    about,
    blocks,
    one_line,
    part,
    prompt_of,
    said,
    text,
)
from bridle.cli._timeline.spans import Seen

Who = Literal["user", "model", "tool", "cli", "outcome"]


class Item(msgspec.Struct, kw_only=True):
    """A message, a tool call or an outcome."""

    who: Who
    t: float
    #: Indices of its frames, in order.
    frames: list[int]
    text: str = ""
    #: 1 for a message or tool call of a subagent.
    depth: int = 0
    #: The tool's name, or "thinking".
    title: str = ""
    #: For a tool: a short form of its input, the whole input, and the time of the result.
    summary: str = ""
    input: str = ""
    end: float | None = None
    #: How the tool or turn ended; empty if it has not ended.
    state: Literal["", "ok", "failed"] = ""


class Conversation:
    """Collects the items of a conversation from the entries."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._tools: dict[str, Item] = {}

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.kind == "user":
            self._user(seen)
        elif seen.kind == "assistant" and seen.direction == "out":
            self._assistant(seen)
        for step in seen.steps:
            if isinstance(step, act.TurnEnded):
                outcome = step.outcome
                told = str(outcome.reason).replace("_", " ")
                words = told if outcome.ok else f"{told}: {outcome.detail}".rstrip(": ")
                cost = "" if outcome.cost_usd is None else f" · ${outcome.cost_usd:.4f}"
                self._add(seen, "outcome", words + cost, state="ok" if outcome.ok else "failed")

    def _user(self, seen: Seen) -> None:
        if seen.direction == "in":
            self._add(seen, "user", prompt_of(seen.frame))
            return
        if seen.frame.get("isReplay") is True:
            return  # the CLI repeats our prompt
        for block in blocks(seen.frame):
            tool = self._tools.pop(text(block, "tool_use_id"), None)
            if text(block, "type") == "tool_result" and tool is not None:
                tool.text = said(block.get("content"))
                tool.end = seen.t
                tool.state = "failed" if block.get("is_error") is True else "ok"
                tool.frames.append(seen.index)
            elif text(block, "type") == "text":
                words = text(block, "text")
                output = UserText(words).output
                self._add(seen, "cli", words if output is None else output)

    def _assistant(self, seen: Seen) -> None:
        # If a request fails, the CLI writes a message in place of the model.
        is_synthetic = text(part(seen.frame, "message"), "model") == "<synthetic>"
        for block in blocks(seen.frame):
            kind = text(block, "type")
            if kind == "tool_use":
                self._use(seen, block)
            elif kind == "text":
                self._add(seen, "cli" if is_synthetic else "model", text(block, "text"))
            elif kind == "thinking":
                self._add(seen, "model", text(block, "thinking"), title="thinking")
            else:
                self._add(seen, "model", f"[{kind}]")

    def _use(self, seen: Seen, block: Json) -> None:
        values = part(block, "input")
        item = self._add(
            seen,
            "tool",
            title=text(block, "name"),
            summary=one_line(about(values), 160),
            input=json.dumps(values, indent=2, ensure_ascii=False),
        )
        self._tools[text(block, "id")] = item

    def _add(
        self,
        seen: Seen,
        who: Who,
        words: str = "",
        *,
        title: str = "",
        summary: str = "",
        input: str = "",
        state: Literal["", "ok", "failed"] = "",
    ) -> Item:
        item = Item(
            who=who,
            t=seen.t,
            frames=[seen.index],
            text=words,
            depth=1 if text(seen.frame, "parent_tool_use_id") else 0,
            title=title,
            summary=summary,
            input=input,
            state=state,
        )
        self.items.append(item)
        return item
