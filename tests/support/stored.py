"""Transcripts written by hand, a home for them, and a store in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridle.sessions import SessionKey, StoredSession

Json = dict[str, Any]

ONE = "11111111-1111-4111-8111-111111111111"
TWO = "22222222-2222-4222-8222-222222222222"
NOBODY = "99999999-9999-4999-8999-999999999999"


def user(uuid: str, parent: str | None, content: Any = None, **members: Any) -> Json:
    message = {"role": "user", "content": f"prompt {uuid}" if content is None else content}
    return entry("user", uuid, parent, message=message, **members)


def assistant(uuid: str, parent: str | None, *content: Json, id: str = "", **members: Any) -> Json:
    blocks = list(content) or [{"type": "text", "text": f"answer {uuid}"}]
    message = {"id": id or f"msg_{uuid}", "role": "assistant", "model": "m", "content": blocks}
    return entry("assistant", uuid, parent, message=message, **members)


def entry(kind: str, uuid: str, parent: str | None, **members: Any) -> Json:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": kind,
        "uuid": uuid,
        "sessionId": ONE,
        "timestamp": "2026-01-02T03:04:05.678Z",
        **members,
    }


def call(id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}


def result(id: str) -> list[Json]:
    return [{"type": "tool_result", "tool_use_id": id, "content": f"result {id}"}]


def lines(*entries: Json | bytes) -> bytes:
    """The lines of a transcript. Bytes are written as they are."""
    said = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in entries)
    return b"".join(one + b"\n" for one in said)


def plain(session_id: str = ONE, text: str = "Hello", **members: Any) -> bytes:
    """A short conversation."""
    told = {"sessionId": session_id, "cwd": "/project", "gitBranch": "main", **members}
    return lines(user("u1", None, text, **told), assistant("a1", "u1", **told))


class Home:
    """A configuration directory of the CLI."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, session_id: str, project: str = "-project") -> Path:
        return self.path / "projects" / project / f"{session_id}.jsonl"

    def write(self, session_id: str, data: bytes, project: str = "-project") -> Path:
        path = self.file(session_id, project)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


class ListStore:
    """A session store: lists in memory, as the protocol describes it."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], list[Mapping[str, object]]] = {}
        self.projects: dict[str, str] = {}
        self.times: dict[str, float] = {}

    async def append(self, key: SessionKey, entries: Sequence[Mapping[str, object]]) -> None:
        held = self.entries.setdefault((key.session_id, key.subkey), [])
        known = {one.get("uuid") for one in held if one.get("uuid")}
        held += [one for one in entries if one.get("uuid") not in known]
        self.projects.setdefault(key.session_id, key.project)
        self.times[key.session_id] = max(self.times.values(), default=0.0) + 1.0

    async def load(self, key: SessionKey) -> Sequence[Mapping[str, object]] | None:
        return self.entries.get((key.session_id, key.subkey))

    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        found = [
            StoredSession(session_id, self.projects[session_id], self.times[session_id])
            for session_id, subkey in self.entries
            if not subkey and project in (None, self.projects[session_id])
        ]
        return sorted(found, key=lambda one: one.updated_at, reverse=True)

    async def delete(self, key: SessionKey) -> None:
        for name in list(self.entries):
            if name == (key.session_id, key.subkey) or (
                name[0] == key.session_id and not key.subkey
            ):
                del self.entries[name]

    async def subkeys(self, session_id: str) -> Sequence[str]:
        return sorted(subkey for name, subkey in self.entries if name == session_id and subkey)
