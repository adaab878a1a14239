"""The model behind the automatic conversation: what it says, given what it is told.

Either the prompt itself says what to do, line by line, in the words of :data:`WORDS`; or the test
has laid out the model's messages beforehand. Anything else is answered with a fixed reply.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from .values import Json


class Call(NamedTuple):
    """One answer of the model, and how it comes."""

    blocks: list[Json]
    #: The text comes in so many pieces.
    chunks: int = 2
    #: Deltas of the last block beyond its own text.
    deltas: int = 0
    #: Seconds to hold the last block, half said; infinite until interrupted.
    hold: float = 0.0
    #: The API refuses with this status.
    status: int = 0
    #: The process ends with this code instead; negative for a signal.
    exit_code: int | None = None


def text(words: str) -> Json:
    """A text block."""
    return {"type": "text", "text": words}


class Model:
    """Answers in turn. ``replies`` is a text, or a list of messages: ``blocks``, and ``hold``."""

    def __init__(self, replies: str | list[Json]) -> None:
        self._reply = replies if isinstance(replies, str) else "Done."
        self._messages = None if isinstance(replies, str) else replies
        self._said = 0
        self._tools = 0

    def hear(self, prompt: str) -> Call:
        """The first answer to a prompt."""
        if self._messages is not None:
            return self._next(self._reply)
        asked = [word_and_rest(line) for line in prompt.splitlines()]
        calls: list[Call] = [
            getattr(self, f"_{word.lower()}")(rest) for word, rest in asked if word in WORDS
        ]
        if not calls:
            return Call([text(self._reply.replace("{prompt}", prompt))])
        blocks = [block for call in calls for block in call.blocks]
        return max(calls, key=lambda call: call[1:] != Call([])[1:])._replace(blocks=blocks)

    def go_on(self, results: list[str]) -> Call:
        """The answer to what tools gave, or to being told to go on."""
        return self._next("\n".join(results) or "Done.")

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
        return {**block, "id": f"toolu_{self._tools:04d}"}

    def _tool(self, name: str, tool_input: Json) -> Call:
        return Call(
            [self._with_id({"type": "tool_use", "id": "", "name": name, "input": tool_input})]
        )

    # -- the words a prompt may use ----------------------------------------------------------------

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
    "SAY": "SAY text: the model says it",
    "THINK": "THINK text: the model thinks it",
    "BIG": "BIG n: a text of n bytes",
    "STREAM": "STREAM n: a text that comes in n pieces",
    "SLOW": "SLOW [seconds]: a text that is held half said, for ever or so long",
    "BASH": "BASH command: the tool Bash, which is not really run",
    "CALL": "CALL tool [json]: any tool; mcp__server__tool is called in the client",
    "FAIL": "FAIL [status]: the API refuses",
    "EXIT": "EXIT [code]: the process ends; a negative code is a signal",
}
"""What a prompt can ask of the model: one per line, at its start."""


def word_and_rest(line: str) -> tuple[str, str]:
    """The first word of a line, and what follows."""
    word, _, rest = line.strip().partition(" ")
    return word, rest.strip()
