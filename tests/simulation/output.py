"""What the model CLI says and asks: lines with the truth about them, perhaps spoiled on their way.

The rule of this file: every line goes out through :meth:`Output._put`, so that a fault which hits
lines is told in one place, and the model knows what was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation import lines as wire
from tests.simulation.lines import CALLBACKS, Kind, Line, Question, Reasons, Turns
from tests.simulation.settings import MAX_LINE

_PADDING = b"x" * MAX_LINE

Json = dict[str, Any]


class Output:
    """The CLI's standard output, and the questions that were put on it."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.lines: deque[Line] = deque()
        self._written = 0
        #: The next line of this sort (message, echo, result, request, response) is too long, or
        #: spoiled so that it is no JSON any more.
        self.too_long = ""
        self.garbled = ""
        #: Whether conversation lines were lost, so that nobody can tell what belongs where.
        self.is_murky = False
        #: Its output is closed: what it says goes nowhere.
        self.is_mute = False
        #: It does nothing any more, and only a signal ends it.
        self.is_hung = False
        #: The prompts of the turn, as told so far.
        self.current: Turns = ()
        self.asked: dict[str, Question] = {}
        self._serial = 0

    def say(
        self,
        data: bytes,
        turns: Turns | None = None,
        ends: dict[str, Reasons] | None = None,
        sort: str = "message",
    ) -> None:
        """Write a line of the conversation."""
        turns = self.current if turns is None else turns
        self._put(Line(data, 0, Kind.MESSAGE, turns, ends), sort)

    def control(self, data: bytes) -> None:
        """Write a line that is no part of the conversation."""
        self._put(Line(data, 0, Kind.CONTROL, ()), "control")

    def junk(self, data: bytes) -> None:
        """Write a line that is no frame."""
        self._put(Line(data, 0, Kind.JUNK, ()), "junk")

    def _put(self, line: Line, sort: str) -> None:
        if self.is_mute or self.is_hung:
            return
        if sort == self.too_long:
            self.too_long = ""
            line.data = b'%s,"padding":"%s"}' % (line.data[:-1], _PADDING)
            self.is_murky = self.is_murky or line.kind is Kind.MESSAGE or bool(line.ends)
            line.kind = Kind.OVERSIZED
        elif sort == self.garbled:
            self.garbled = ""
            line.data = line.data[:-1] + b"]"
            self.is_murky = self.is_murky or line.kind is Kind.MESSAGE or bool(line.ends)
            line.kind = Kind.JUNK
        self.output += line.data
        self.output += b"\n"
        self._written += len(line.data) + 1
        line.end = self._written
        self.lines.append(line)

    def blank(self) -> None:
        """Write lines without content: nothing comes of them."""
        self.output += b"\n\r\n"
        self._written += 3

    def lose_output(self, keep: int) -> None:
        """Of what was written but not read yet, only ``keep`` bytes ever arrive."""
        start = self._written - len(self.output)
        del self.output[keep:]
        self._written = start + len(self.output)

    # -- questions -----------------------------------------------------------------------------

    def next_id(self) -> int:
        self._serial += 1
        return self._serial

    def ask(
        self,
        kind: str,
        about: str = "",
        instant: frozenset[str] = frozenset(),
        tool: str = "Bash",
        use: str = "",
    ) -> Question:
        """Put a question of ``kind`` to the engine, perhaps about a tool call."""
        name = f"q{self.next_id()}"
        question = Question(name, kind, about, instant, use=use)
        request_id = name.encode()
        if kind == "hook":
            callback = CALLBACKS.get(about, b"hook_unknown")
            data = wire.HOOK % {
                b"id": request_id,
                b"callback": callback,
                b"event": about.encode(),
                b"use": use.encode() or request_id,
            }
        elif kind == "permission":
            data = wire.PERMISSION % (request_id, tool.encode(), request_id, use.encode())
        elif kind == "elicitation":
            data = wire.ELICITATION % (request_id, request_id)
        elif kind == "mcp":
            data = self._mcp_message(request_id, about)
        else:
            data = wire.UNKNOWN_REQUEST % request_id
        self.put_question(question, data)
        return question

    @staticmethod
    def _mcp_message(request_id: bytes, about: str) -> bytes:
        server = b"nobody" if about == "nobody" else b"calc"
        method = b"notifications/initialized" if about == "notify" else b"tools/call"
        rest = b"" if about == "notify" else b',"id":"%s","params":{}' % request_id
        return wire.MCP % (request_id, server, method, request_id, rest)

    def put_question(self, question: Question, data: bytes) -> None:
        """Write a question that is spelled already."""
        self.asked[question.request_id] = question
        if "request" in (self.too_long, self.garbled):
            question.instant = frozenset({"error"})
        self._put(Line(data, 0, Kind.CONTROL, (), asks=question), "request")

    def withdraw(self, question: Question) -> None:
        """Take a question back."""
        if not question.verdict:
            question.verdict = "withdrawn"
            data = wire.CANCEL % question.request_id.encode()
            self._put(Line(data, 0, Kind.CONTROL, (), withdraws=question), "control")


def verdict_of(kind: str, response: Json) -> str:
    """What an answer of ours comes to, in one word."""
    if response["subtype"] != "success":
        return "error"
    return _VERDICTS[kind](response["response"])


def _hook_verdict(payload: Json) -> str:
    specific = payload.get("hookSpecificOutput", {})
    if payload.get("continue") is False:
        return "end"
    if payload.get("decision") == "block" or specific.get("permissionDecision") == "deny":
        return "block"
    if specific.get("decision", {}).get("behavior") == "deny":
        return "block"
    return "defer" if specific.get("permissionDecision") == "defer" else "go"


def _permission_verdict(payload: Json) -> str:
    if payload["behavior"] == "allow":
        # Older CLIs deny an allow without it.
        return "allow" if isinstance(payload.get("updatedInput"), dict) else "invalid"
    return "deny!" if payload.get("interrupt") else "deny"


_VERDICTS: dict[str, Callable[[Json], str]] = {
    "hook": _hook_verdict,
    "permission": _permission_verdict,
    "elicitation": lambda payload: str(payload["action"]),
    "mcp": lambda payload: "failed" if "error" in payload["mcp_response"] else "ok",
    "odd": lambda _: "ok",
}
