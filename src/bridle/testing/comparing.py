"""Compare the lines that a client writes to the CLI with those of a recorded client.

This module does no I/O. A client chooses new names in every run (request ids, uuids of prompts,
ids of hooks, the session id), and its directories may differ. :class:`Names` translates them.
:class:`Comparison` pairs each written line with a recorded line and finds the differences.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeAlias, cast

import msgspec

from bridle.messages import JsonObject
from bridle.testing._lines.line_redaction import LineRedactor
from bridle.testing.recording import Entry

__all__ = ["Difference", "Normalize"]

Normalize: TypeAlias = Callable[[JsonObject], JsonObject]
"""A function that removes values from a line that differ from run to run."""

LAUNCH_FACTS = ("settings", "env_variables", "inherit_env", "limits")
"""The facts at the start of a recording that are compared as JSON values."""

_SHOWN = 120
"""How many characters of a value a difference shows."""


def part(frame: Mapping[str, object], name: str) -> JsonObject:
    """Return the object under this name; empty if there is none."""
    value = frame.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def kind_of(frame: JsonObject) -> tuple[str, ...]:
    """Return the kind of a line to the CLI: prompt, request and subtype, or response and id.

    The CLI chose the id in a response, so it is the same in every replay.
    """
    kind = str(frame.get("type"))
    if kind == "control_request":
        return kind, str(part(frame, "request").get("subtype"))
    if kind == "control_response":
        return kind, str(part(frame, "response").get("request_id"))
    return (kind,)


# ------------------------------------------------------------------------- names


class Names:
    """Maps names in the recording to names of the live client."""

    def __init__(self) -> None:
        self._requests: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._directories: dict[str, str] = {}

    def learn(self, recorded: JsonObject, written: JsonObject) -> None:
        """Learn the names from two lines with the same meaning."""
        if recorded.get("type") == "control_request":
            self._requests[str(recorded.get("request_id"))] = str(written.get("request_id"))
            ours = _callbacks(part(written, "request"))
            for place, name in _callbacks(part(recorded, "request")).items():
                self.learn_word(name, ours.get(place, name))
        elif "uuid" in recorded and "uuid" in written:
            self.learn_word(str(recorded["uuid"]), str(written["uuid"]))

    def learn_word(self, recorded: str, live: str) -> None:
        """Map a string of the recording to the live one."""
        if recorded != live:
            self._words[recorded] = live

    def learn_directory(self, recorded: str, live: str) -> None:
        """Map a directory of the recording, and all paths in it, to the live one."""
        if recorded != live and os.path.dirname(recorded) != recorded:
            self._directories[recorded] = live

    def translate(self, entry: Entry) -> bytes:
        """Return a recorded line of the CLI with the names of the live client."""
        data = entry.data.decode("utf-8", "surrogateescape")
        members = entry.members
        response = part(members, "response")
        ours = self._requests.get(str(response.get("request_id")))
        if members.get("type") == "control_response" and ours is not None:
            response["request_id"] = ours
            data = json.dumps(members, ensure_ascii=False) + "\n"
        data = _renamed(data, self._words, self._directories)
        return data.encode("utf-8", "surrogateescape")

    def translate_back(self, written: JsonObject) -> JsonObject:
        """Return a line of the live client with the names of the recording."""
        words = {new: old for old, new in self._words.items()}
        directories = {new: old for old, new in self._directories.items()}
        text = _renamed(json.dumps(written, ensure_ascii=False), words, directories)
        return cast("JsonObject", json.loads(text))


def _renamed(line: str, words: Mapping[str, str], directories: Mapping[str, str]) -> str:
    """Replace whole strings, and directories inside strings, in a JSON line."""
    for old, new in words.items():
        line = line.replace(json.dumps(old), json.dumps(new))
    if not directories:
        return line
    known = {_escaped(old): _escaped(new) for old, new in directories.items()}
    # Longest first. The lookahead excludes directories whose name only begins with this one.
    longest = sorted(known, key=len, reverse=True)
    pattern = f"({'|'.join(map(re.escape, longest))})" + r"(?!\.?[\w-])"
    return re.sub(pattern, lambda found: known[found[1]], line)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _callbacks(request: JsonObject) -> dict[tuple[str, int, int], str]:
    """Return the callback ids of an initialize request, by their position."""
    return {
        (event, row, column): str(name)
        for event, entries in part(request, "hooks").items()
        for row, entry in enumerate(_list(entries))
        for column, name in enumerate(_list(part({"": entry}, "").get("hookCallbackIds")))
    }


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


# ------------------------------------------------------------------------- differences


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between the program and the recording."""

    #: The prompt, request or response that differs, in words.
    what: str
    #: The value in the recording, and the present value. Secrets are masked.
    recorded: str
    now: str

    def __str__(self) -> str:
        return f"{self.what}: recorded: {self.recorded}, now: {self.now}"


def first_difference(recorded: Any, now: Any, path: str = "") -> tuple[str, str, str] | None:
    """Return the path of the first difference of two JSON values, and both values there.

    Returns None if they are equal. A masked part of a recorded text equals any text.
    """
    ours: object = recorded
    theirs: object = now
    if isinstance(recorded, str) and LineRedactor.MASK in recorded:
        pattern = ".*".join(map(re.escape, recorded.split(LineRedactor.MASK)))
        text = now if isinstance(now, str) else json.dumps(now)
        is_same = re.fullmatch(pattern, text, re.DOTALL) is not None
        return None if is_same else (path, _shown(recorded), _shown(now))
    if isinstance(recorded, dict) and isinstance(now, dict):
        return _first_member(cast("JsonObject", recorded), cast("JsonObject", now), path)
    if isinstance(recorded, list) and isinstance(now, list):
        return _first_item(cast("list[object]", recorded), cast("list[object]", now), path)
    same = recorded == now and isinstance(recorded, bool) == isinstance(now, bool)
    return None if same else (path, _shown(ours, theirs), _shown(theirs, ours))


def _first_member(recorded: JsonObject, now: JsonObject, path: str) -> tuple[str, str, str] | None:
    for key in dict.fromkeys([*recorded, *now]):
        inside = f"{path}.{key}" if path else key
        if key not in now:
            return inside, _shown(recorded[key]), "nothing"
        if key not in recorded:
            return inside, "nothing", _shown(now[key])
        if (found := first_difference(recorded[key], now[key], inside)) is not None:
            return found
    return None


def _first_item(
    recorded: list[object], now: list[object], path: str
) -> tuple[str, str, str] | None:
    for index, (one, other) in enumerate(zip(recorded, now, strict=False)):
        if (found := first_difference(one, other, f"{path}[{index}]")) is not None:
            return found
    return None if len(recorded) == len(now) else (path, _shown(recorded), _shown(now))


def _shown(value: object, other: object = None) -> str:
    """Return a value as JSON. Of a long text, return the part around the difference."""
    if isinstance(value, str) and isinstance(other, str) and len(value) > _SHOWN:
        same = (one == two for one, two in zip(value, other, strict=False))
        begin = max(0, sum(takewhile(bool, same)) - _SHOWN // 2)
        value = ("…" if begin else "") + value[begin:]
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# ------------------------------------------------------------------------- pairs


class Comparison:
    """Pair the lines of a live client with those of the recorded client.

    Prompts, and control requests that change something, are compared in order. Responses are
    compared by request id, because the CLI sends several requests at once and the callbacks finish
    in any order. A line that the CLI wrote after a response is also replayed after it.

    The number of control requests that only read something (``mcp_status``, ``get_…``) may differ,
    because it can depend on timing. :meth:`answer` finds their responses.

    Args:
        normalize: Applied to both lines before they are compared.
        secrets: Strings to mask in differences.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        names: Names,
        *,
        normalize: Normalize | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        self._names = names
        self._normalize = normalize
        self._redactor = LineRedactor(secrets)
        self._asked: dict[str, JsonObject] = {}
        self._answers: dict[str, Entry] = {}
        self._queries: dict[str, JsonObject] = {}
        # Indices of lines of the CLI that are not control messages.
        self._messages: list[int] = []
        # Recorded lines that the live client has not written yet, by index.
        self._left: dict[int, JsonObject] = {}
        for index, entry in enumerate(entries):
            frame = entry.members
            if entry.direction == "in" and "type" in frame:
                self._left[index] = frame
                if is_query(frame):
                    self._queries[str(frame.get("request_id"))] = frame
            elif entry.direction == "out" and frame.get("type") == _ANSWER:
                self._answers[str(part(frame, "response").get("request_id"))] = entry
            elif entry.direction == "out" and frame.get("type") == "control_request":
                self._asked[str(frame.get("request_id"))] = part(frame, "request")
            elif entry.direction == "out":
                self._messages.append(index)
        self._answered = {
            kind[1] for frame in self._left.values() if (kind := kind_of(frame))[0] == _ANSWER
        }
        self._prompts = 0

    def is_written(self, index: int) -> bool:
        """Return whether the client has written the line with this index."""
        return index not in self._left or is_query(self._left[index])

    def answers_query(self, entry: Entry) -> bool:
        """Return whether a line of the CLI is the response to a request that only reads."""
        frame = entry.members
        if frame.get("type") != _ANSWER:
            return False
        return str(part(frame, "response").get("request_id")) in self._queries

    def answer(self, written: JsonObject, played: int) -> tuple[Difference | None, bytes]:
        """Pair a request that only reads. Return its difference, if any, and its response.

        If the recording has no further response, the last one is used, or an error.

        Args:
            written: The request.
            played: Number of entries of the recording that have been played.
        """
        kind = kind_of(written)
        left = [index for index, one in self._left.items() if kind_of(one) == kind]
        while len(left) > 1 and left[1] < played and self._is_message_between(*left[:2]):
            del self._left[left.pop(0)]  # skipped in this run: its response is outdated
        difference = None
        if left:
            recorded = self._left.pop(left[0])
            difference = self._compare(recorded, written)
            if (found := self._answer_of(recorded, written)) is not None:
                return difference, found
        same = [recorded for recorded in self._queries.values() if kind_of(recorded) == kind]
        for recorded in reversed(same):
            if (found := self._answer_of(recorded, written)) is not None:
                return difference, found
        error = f"The recording has no answer to {kind[1]}."
        response = {"subtype": "error", "request_id": written.get("request_id"), "error": error}
        return difference, json.dumps({"type": _ANSWER, "response": response}).encode() + b"\n"

    def _is_message_between(self, first: int, second: int) -> bool:
        return any(first < index < second for index in self._messages)

    def _answer_of(self, recorded: JsonObject, written: JsonObject) -> bytes | None:
        entry = self._answers.get(str(recorded.get("request_id")))
        if entry is None:
            return None
        self._names.learn(recorded, written)
        return self._names.translate(entry)

    def take(self, written: JsonObject) -> tuple[Difference | None, bool]:
        """Pair a line. Return its difference, if any, and whether the replay can continue.

        It cannot continue after a prompt or request without a recorded response.
        """
        kind = kind_of(written)
        self._prompts += kind == ("user",)
        pair = next(((i, one) for i, one in self._left.items() if kind_of(one) == kind), None)
        if pair is None:
            if kind[0] == _ANSWER and kind[1] not in self._answered:
                return None, True  # in the recording, the CLI withdrew the request or exited first
            extra = self._differs(written, "nothing", self._text_of(written))
            return extra, kind[0] == _ANSWER
        index, recorded = pair
        del self._left[index]
        self._names.learn(recorded, written)
        return self._compare(recorded, written) or self._out_of_order(index, written), True

    def compare_launch(
        self, recorded: Mapping[str, object], now: Mapping[str, object]
    ) -> Difference | None:
        """Compare those of :data:`LAUNCH_FACTS` that both have. An older recording has none."""
        names = [name for name in LAUNCH_FACTS if name in recorded and name in now]
        then, ours = (
            {"type": "launch", **{name: one[name] for name in names}} for one in (recorded, now)
        )
        # A recording can also have masked names, so compare with the masked facts too.
        if self._first(then, ours) is None:
            return None
        if (found := self._first(then, self._masked(ours))) is None:
            return None
        path, theirs, value = found
        # Between the name of a variable and a colon: errors mask what follows `MY_TOKEN:`.
        return Difference(what=f"{path} at the start", recorded=theirs, now=value)

    def missing(self) -> Difference | None:
        """Return the first recorded line that the client has not written."""
        recorded = next((one for one in self._left.values() if not is_query(one)), None)
        if recorded is None:
            return None
        label = self._label(recorded, self._prompts + 1)
        return Difference(what=label, recorded=self._text_of(recorded), now="nothing")

    def _compare(self, recorded: JsonObject, written: JsonObject) -> Difference | None:
        if self._first(recorded, written) is None:
            return None
        # Mask after comparing: a secret of this run may be an ordinary word in the recording.
        found = self._first(recorded, self._masked(written))
        path, theirs, now = found or ("a secret", LineRedactor.MASK, LineRedactor.MASK)
        if path == "response.behavior":
            return self._differs(recorded, theirs.strip('"'), now.strip('"'))
        return self._differs(recorded, theirs, now, path)

    def _first(self, recorded: JsonObject, written: JsonObject) -> tuple[str, str, str] | None:
        ours = self._names.translate_back(written)
        if self._normalize is not None:
            recorded, ours = self._normalize(recorded), self._normalize(ours)
        return first_difference(_content(recorded), _content(ours))

    def _masked(self, frame: JsonObject) -> JsonObject:
        line = self._redactor.line(json.dumps(frame, ensure_ascii=False))
        return cast("JsonObject", json.loads(line))

    def _out_of_order(self, index: int, written: JsonObject) -> Difference | None:
        if not _is_ordered(written):
            return None
        for earlier, recorded in self._left.items():
            if earlier > index:
                break
            if _is_ordered(recorded):
                return self._differs(written, f"after the {_name(recorded)}", "before it")
        return None

    def _differs(self, frame: JsonObject, recorded: str, now: str, path: str = "") -> Difference:
        label = self._label(frame, self._prompts)
        what = f"{label}, {path}" if path else label
        return Difference(what=what, recorded=recorded, now=now)

    def _label(self, frame: JsonObject, prompt: int) -> str:
        kind, *rest = kind_of(frame)
        if kind == "user":
            return f"prompt {prompt}"
        if kind == _ANSWER:
            return f"answer to {_request_name(self._asked.get(rest[0], {}))}"
        return _name(frame)

    def _text_of(self, frame: JsonObject) -> str:
        clean = self._masked(frame)
        if frame.get("type") == "user":
            return _shown(part(clean, "message").get("content"))
        return _shown(_content(clean))


_ANSWER = "control_response"


def is_query(frame: JsonObject) -> bool:
    """Return whether a line is a control request that only reads something."""
    kind, *rest = kind_of(frame)
    return kind == "control_request" and (rest[0] == "mcp_status" or rest[0].startswith("get_"))


def compare_arguments(recorded: Iterable[str], now: Iterable[str]) -> Difference | None:
    """Compare the arguments of two CLIs, except the session id, which is new in every run."""
    ours, theirs = (
        [arg for arg in argv if not arg.startswith("--session-id")] for argv in (now, recorded)
    )
    gone = " ".join(arg for arg in theirs if arg not in ours)
    new = " ".join(arg for arg in ours if arg not in theirs)
    if not gone and not new:
        return None
    return Difference(what="arguments of the CLI", recorded=gone or "nothing", now=new or "nothing")


def _is_ordered(frame: JsonObject) -> bool:
    kind, *rest = kind_of(frame)
    if kind == "control_request":
        return rest[0] != "mcp_message" and not is_query(frame)
    return kind == "user"


def _name(frame: JsonObject) -> str:
    kind, *rest = kind_of(frame)
    if kind == "user":
        return f"prompt {_shown(part(frame, 'message').get('content'))}"
    return f"control request {rest[0]}" if kind == "control_request" else f"line of type {kind}"


def _request_name(request: JsonObject) -> str:
    """Describe a request of the CLI in words."""
    match request.get("subtype"):
        case "can_use_tool":
            return f"the permission request for {request.get('tool_name')}"
        case "hook_callback":
            about = part(request, "input")
            tool = f" for {about['tool_name']}" if "tool_name" in about else ""
            return f"the {about.get('hook_event_name')} hook{tool}"
        case "mcp_message":
            message = part(request, "message")
            name = part(message, "params").get("name")
            called = f" {name}" if message.get("method") == "tools/call" else ""
            return f"{message.get('method')}{called} for the server {request.get('server_name')}"
        case subtype:
            return f"the request {subtype}"


def _content(frame: JsonObject) -> JsonObject:
    """Return the content of a line without names that are new in every run."""
    if frame.get("type") == _ANSWER:
        answer = {k: value for k, value in part(frame, "response").items() if k != "request_id"}
        if (said := part(answer, "response")).get("continue") is True:  # the default of a hook
            answer["response"] = {k: value for k, value in said.items() if k != "continue"}
        return answer
    if frame.get("type") == "control_request":
        request = part(frame, "request")
        return _greeting(request) if request.get("subtype") == "initialize" else request
    volatile = ("uuid", "session_id", "type")
    return {key: value for key, value in frame.items() if key not in volatile and value is not None}


def _greeting(request: JsonObject) -> JsonObject:
    """Replace the callback ids in an initialize request by their number per hook."""
    hooks = {
        event: [
            {"matcher": entry.get("matcher"), "callbacks": len(_list(entry.get("hookCallbackIds")))}
            for entry in (part({"": one}, "") for one in _list(entries))
        ]
        for event, entries in part(request, "hooks").items()
    }
    said = {key: value for key, value in request.items() if value is not None}
    return {**said, "hooks": hooks}
