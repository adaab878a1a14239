"""The transcript of the conversation: a file that is written late, as the real CLI does it.

The CLI keeps what was said for a moment before it writes it to the file and reports it to the
client (``--session-mirror``). Everything of a turn is written before its result.
"""

from __future__ import annotations

import json
import os
import re
import time

from .frames import Frames, timestamp
from .values import Json, as_list, as_object

LATE = 0.03
"""Seconds between a message and the moment at which the file has it."""


class Transcript:
    """The transcript of one session.

    Args:
        frames: builds the reports.
        path: the file. It may hold an earlier part of the conversation.
        reports: whether the client is told what was added.
    """

    def __init__(self, frames: Frames, path: str, *, reports: bool) -> None:
        self._frames = frames
        self._path = path
        self._reports = reports
        self._waiting: list[Json] = []
        self._since = 0.0
        #: The uuids of the entries that the file had at the start.
        self.known: list[str] = []
        self._last: str | None = None
        for line in _lines(path):
            entry = as_object(json.loads(line))
            if "uuid" in entry:
                self.known.append(entry["uuid"])
                self._last = entry["uuid"]

    def move(self, path: str) -> None:
        """Write to another file, because the process was claimed for another directory."""
        self._path = path

    def seconds_left(self) -> float | None:
        """Return after how many seconds something has to be written. None if nothing waits."""
        if not self._waiting:
            return None
        return max(0.0, self._since + LATE - time.monotonic())

    def note(self, frame: Json) -> None:
        """Take a message that the client is about to get."""
        kind = frame["type"]
        if kind not in ("user", "assistant"):
            return
        uuid = frame["uuid"]
        if uuid in self.known:  # the echo of a prompt that was sent again
            return
        message = dict(frame["message"])
        if kind == "assistant" and message.get("stop_reason") is None and "aborted" not in frame:
            blocks = [as_object(block).get("type") for block in as_list(message["content"])]
            message["stop_reason"] = "tool_use" if "tool_use" in blocks else "end_turn"
        entry = {
            "parentUuid": self._last,
            "isSidechain": False,
            "type": kind,
            "message": message,
            "uuid": uuid,
            "timestamp": timestamp(),
            "cwd": self._frames.cwd,
            "sessionId": self._frames.session_id,
            "version": self._frames.flavour,
        }
        if frame.get("is_api_error_message"):
            entry |= {"isApiErrorMessage": True, "error": frame.get("error")}
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(entry)
        self._last = uuid
        self.known.append(uuid)

    def flush(self) -> Json | None:
        """Write what waits. Return the report for the client, if there is one."""
        entries, self._waiting = self._waiting, []
        if not entries:
            return None
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
        if not self._reports:
            return None
        return {"type": "transcript_mirror", "filePath": self._path, "entries": entries}


def place_of(resumed: str | None, session_id: str) -> str:
    """Return the path of the transcript of a session."""
    if resumed is not None and resumed.endswith(".jsonl"):
        return resumed
    home = os.environ.get("HOME") or os.path.expanduser("~")
    config = os.environ.get("CLAUDE_CONFIG_DIR") or f"{home}/.claude"
    project = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(os.getcwd()))
    return f"{config}/projects/{project}/{session_id}.jsonl"


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
