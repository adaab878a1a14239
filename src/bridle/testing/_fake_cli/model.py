"""The model of an automatic fake CLI: its answers to prompts and tool results.

The lines of a prompt, of a tool result, or of the context that a UserPromptSubmit hook adds can
control the answer with the words in :data:`WORDS`. Or the test passes a list of messages. Otherwise
the model answers with a fixed text.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from .values import Json


class Call(NamedTuple):
    """One answer of the model, and how it is sent."""

    blocks: list[Json]
    #: The number of deltas of the text.
    chunks: int = 2
    #: The number of additional deltas of the last block.
    deltas: int = 0
    #: Seconds to pause in the middle of the last block; infinite waits for an interrupt.
    hold: float = 0.0
    #: The status of an API error instead of an answer.
    status: int = 0
    #: The code with which the process exits instead; negative for a signal.
    exit_code: int | None = None


def text(words: str) -> Json:
    """Return a text block."""
    return {"type": "text", "text": words}


class Model:
    """Answers in order. ``replies`` is a text, or messages with ``blocks`` and ``hold``.

    ``run`` is a part of the ids of tool calls, so that no other process has the same ids.
    """

    def __init__(self, replies: str | list[Json], run: str) -> None:
        self._run = run
        self._reply = replies if isinstance(replies, str) else "Done."
        self._messages = None if isinstance(replies, str) else replies
        self._said = 0
        self._tools = 0

    def hear(self, prompt: str, added: str = "") -> Call:
        """Return the first answer to a prompt, and to what the hooks have added to it."""
        told = f"{prompt}\n{added}" if added else prompt
        return self._obey(told, self._reply.replace("{prompt}", prompt))

    def go_on(self, results: list[str]) -> Call:
        """Return the answer to tool results, or to the feedback of a Stop hook."""
        told = "\n".join(results)
        return self._obey(told, told or "Done.")

    def _obey(self, told: str, otherwise: str) -> Call:
        """Return the answer to a text."""
        if self._messages is not None:
            return self._next(otherwise)
        asked = [word_and_rest(line) for line in told.splitlines()]
        calls: list[Call] = [
            getattr(self, f"_{word.lower()}")(rest) for word, rest in asked if word in WORDS
        ]
        if not calls:
            return Call([text(otherwise)])
        blocks = [block for call in calls for block in call.blocks]
        return max(calls, key=lambda call: call[1:] != Call([])[1:])._replace(blocks=blocks)

    def _next(self, otherwise: str) -> Call:
        if self._messages is None or self._said >= len(self._messages):
            return Call([text(otherwise)])
        message = self._messages[self._said]
        self._said += 1
        blocks = [self._with_id(block) for block in message["blocks"]]
        return Call(blocks, hold=float("inf") if message["hold"] else 0.0)

    def _with_id(self, block: Json) -> Json:
        if block["type"] != "tool_use" or block.get("id"):
            return block
        self._tools += 1
        return {**block, "id": f"toolu_{self._run}_{self._tools:04d}"}

    def _tool(self, name: str, tool_input: Json) -> Call:
        return Call(
            [self._with_id({"type": "tool_use", "id": "", "name": name, "input": tool_input})]
        )

    # -- words that a prompt may contain -----------------------------------------------------------

    def _say(self, rest: str) -> Call:
        return Call([text(rest)])

    def _think(self, rest: str) -> Call:
        return Call([{"type": "thinking", "thinking": rest, "signature": "c2lnbmVk"}])

    def _big(self, rest: str) -> Call:
        return Call([text("x" * int(rest))], chunks=1)

    def _stream(self, rest: str) -> Call:
        return Call([text("word " * int(rest))], chunks=0, deltas=int(rest))

    def _slow(self, rest: str) -> Call:
        return Call([text("Working on it.")], hold=float(rest or "inf"))

    def _bash(self, rest: str) -> Call:
        return self._tool("Bash", {"command": rest})

    def _call(self, rest: str) -> Call:
        name, _, tool_input = rest.partition(" ")
        return self._tool(name, json.loads(tool_input or "{}"))

    def _fail(self, rest: str) -> Call:
        return Call([], status=int(rest or 529))

    def _exit(self, rest: str) -> Call:
        return Call([], exit_code=int(rest or 0))


WORDS = {
    "SAY": "SAY text: answers with this text",
    "THINK": "THINK text: writes a thinking block with this text",
    "BIG": "BIG n: writes a text of n bytes",
    "STREAM": "STREAM n: writes a text in n deltas",
    "SLOW": "SLOW [seconds]: writes a text and pauses in the middle for this time; without a "
    "number, until an interrupt",
    "BASH": "BASH command: calls the tool Bash; the command is not run",
    "CALL": "CALL tool [json]: calls any tool; your own tools (mcp__<server>__<tool>) run",
    "FAIL": "FAIL [status]: fails with this HTTP status, by default 529",
    "EXIT": "EXIT [code]: the CLI exits with this code, by default 0; a negative code is a signal",
}
"""The words that control the model, with descriptions. Each must be at the start of a line."""


def word_and_rest(line: str) -> tuple[str, str]:
    """Return the first word of a line, and the rest."""
    word, _, rest = line.strip().partition(" ")
    return word, rest.strip()
