"""Recorded lines of real CLIs, and ways to spoil them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec

RECORDINGS = Path(__file__).resolve().parents[1] / "wire" / "golden"

_LONG = 6000
"""Bytes above which a line is used seldom: it costs much and tells little."""

_encode = msgspec.json.encode

_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    7,
    2**53,
    -(2**63),
    1e308,
    0.5,
    "",
    "x",
    "\u0000",
    "é\u2028😀",
    "result",
    "success",
    "control_request",
    "completed",
    "cancelled",
    "x" * 3000,
    [],
    [None],
    ["x", 1, {}],
    [[[[]]]],
    {},
    {"type": "text", "text": "t"},
    {"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
    {"a": {"b": {"c": [1]}}},
)

_SPLICES = (
    b"\n",
    b"\r\n",
    b"\x00",
    b"\xff",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"NaN",
)


class Recording:
    """What a CLI wrote in one recording, and the uuids of the prompts it was given."""

    def __init__(self, path: Path) -> None:
        self.lines: list[bytes] = []
        self.uuids: list[str] = []
        for text in path.read_text("utf-8").splitlines():
            entry = json.loads(text)
            if entry["dir"] == "out":
                self.lines.append(_addressed(entry["line"].encode()))
            elif entry["dir"] == "in" and '"uuid"' in entry["line"]:
                uuid = json.loads(entry["line"]).get("uuid")
                if isinstance(uuid, str) and uuid not in self.uuids:
                    self.uuids.append(uuid)


def _addressed(line: bytes) -> bytes:
    """Return a request of the CLI with the names that hooks and servers have in the fuzz target."""
    if b'"callback_id"' not in line and b'"server_name"' not in line:
        return line
    frame = json.loads(line)
    request = frame.get("request", {})
    if "callback_id" in request:
        request["callback_id"] = f"hook_{len(line) % 6}"
    if "server_name" in request:
        request["server_name"] = "calc"
    return _encode(frame)


class Corpus:
    """Every recording, and what is worked out of them once."""

    def __init__(self) -> None:
        self.recordings = [Recording(path) for path in sorted(RECORDINGS.glob("*/*.ndjson"))]
        lines = [line for recording in self.recordings for line in recording.lines]
        self.short = [line for line in lines if len(line) <= _LONG]
        self.long = [line for line in lines if len(line) > _LONG]
        self._parsed: dict[bytes, Any] = {}

    def parsed(self, line: bytes) -> Any:
        """Return a recorded line as JSON, which must not be changed."""
        frame = self._parsed.get(line)
        if frame is None:
            frame = self._parsed[line] = json.loads(line)
        return frame


class Mutator:
    """Spoils lines. The same seed spoils them in the same way."""

    def __init__(self, rng: Random, corpus: Corpus) -> None:
        self._rng = rng
        self._corpus = corpus

    def pick(self) -> bytes:
        """Return any recorded line."""
        lines = self._corpus.long if self._rng.random() < 0.01 else self._corpus.short
        return lines[int(self._rng.random() * len(lines))]

    def spoil(self, line: bytes, names: list[str]) -> bytes:
        """Return the line with something wrong in it; ``names`` are ids that mean something now."""
        way = self._rng.random()
        if way < 0.55:
            return self._change_value(self._corpus.parsed(line), names)
        if way < 0.62:
            return line + line[: int(self._rng.random() * len(line))]
        if way < 0.7:
            return line[: int(self._rng.random() * len(line))]
        position = int(self._rng.random() * (len(line) + 1))
        if way < 0.8:
            byte = bytes([int(self._rng.random() * 256)])
            return line[:position] + byte + line[position + 1 :]
        if way < 0.9:
            splice = _SPLICES[int(self._rng.random() * len(_SPLICES))]
            return line[:position] + splice + line[position:]
        if way < 0.95:
            return line[:position] + line[position + int(self._rng.random() * 40) :]
        other = self.pick()
        return line[:position] + other[int(self._rng.random() * len(other)) :]

    def _change_value(self, frame: Any, names: list[str]) -> bytes:
        for _ in range(1 + int(self._rng.random() * 2)):
            frame = self._changed(frame, names, 0)
        return _encode(frame)

    def _changed(self, value: Any, names: list[str], depth: int) -> Any:
        """Return a copy of the value in which one thing, at any depth, is something else."""
        chance = self._rng.random
        if isinstance(value, dict) and value and (depth == 0 or chance() < 0.75):
            keys = list(value)
            key = keys[int(chance() * len(keys))]
            copy = dict(value)
            way = chance()
            if way < 0.1:
                del copy[key]
            elif way < 0.15:
                copy[f"{key}_"] = copy.pop(key)
            else:
                copy[key] = self._changed(value[key], names, depth + 1)
            return copy
        if isinstance(value, list) and value and chance() < 0.75:
            position = int(chance() * len(value))
            items = list(value)
            if chance() < 0.2:
                items.insert(position, items[position])
            else:
                items[position] = self._changed(value[position], names, depth + 1)
            return items
        if names and chance() < 0.5:
            return names[int(chance() * len(names))]
        if chance() < 0.005:
            return self._nested()
        return _VALUES[int(chance() * len(_VALUES))]

    def _nested(self) -> Any:
        nested: Any = 1
        for _ in range(int(self._rng.random() * 400)):
            nested = [nested]
        return nested

    def renamed(self, line: bytes, name: str) -> bytes:
        """Return the line with a uuid or request id of the top level replaced."""
        frame = self._corpus.parsed(line)
        if isinstance(frame.get("response"), dict):
            return _encode({**frame, "response": {**frame["response"], "request_id": name}})
        for key in ("request_id", "command_uuid"):
            if key in frame:
                return _encode({**frame, key: name})
        if "user_message_uuids" in frame:
            return _encode({**frame, "user_message_uuids": [name], "user_message_uuid": name})
        return _encode({**frame, "uuid": name})
