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

CONTINUE = "Continue from where you left off."
MISSING = "[Tool result missing due to internal error]"
NO_RESPONSE = "No response requested."
CUT_OFF = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its"
    " outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
"""What the CLI writes into a conversation that it resumes."""

DEFERRED = "hook_deferred_tool"
"""The type of the attachment about a call that waits for approval."""


class Transcript:
    """The transcript of one session.

    Args:
        frames: builds the reports.
        path: the file. It may hold an earlier part of the conversation.
        reports: whether the client is told what was added.
        delay: seconds between a message and the moment at which the file has it.
    """

    def __init__(self, frames: Frames, path: str, *, reports: bool, delay: float) -> None:
        self._frames = frames
        self._path = path
        self._reports = reports
        self._delay = delay
        self._waiting: list[Json] = []
        self._since = 0.0
        #: The uuids of the entries that the file had at the start.
        self.known: list[str] = []
        #: The call that waits for approval, with the ``source`` of its message. None if none does.
        self.waiting: Json | None = None
        self._last: str | None = None
        # The calls of the last turn without a result: the entries that have them.
        self._open: dict[str, Json] = {}
        # Whether the conversation ends in the midst of a turn of an earlier process.
        self._is_cut_off = False
        # The call that this process has deferred.
        self._deferred: str | None = None
        for line in _lines(path):
            self._read(as_object(json.loads(line)))
            self._drop_call_in(line)

    def _drop_call_in(self, line: str) -> None:
        """Note that the call that waits does not, if a line says what came of it."""
        call = "" if self.waiting is None else f'"tool_use_id":"{self.waiting["id"]}"'
        if call and call in line.replace('": "', '":"'):
            self.waiting = None

    def _read(self, entry: Json) -> None:
        """Read an entry of an earlier process."""
        if "uuid" not in entry:
            return
        self.known.append(entry["uuid"])
        attached = as_object(entry.get("attachment"))
        if attached.get("type") == DEFERRED:
            call = {"id": attached["toolUseID"], "name": attached["toolName"]}
            call["input"] = as_object(attached.get("toolInput"))
            self.waiting = {**call, "source": entry.get("parentUuid")}
        if entry["type"] not in ("user", "assistant"):
            return
        self._last = entry["uuid"]
        content = as_list(as_object(entry.get("message")).get("content"))
        blocks = [as_object(block) for block in content]
        results = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        if entry["type"] == "assistant":
            calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
            self._open |= dict.fromkeys(calls, entry)
        elif results:
            self._open = {call: self._open[call] for call in self._open if call not in results}
        elif not entry.get("isMeta"):
            self._open = {}
        self._is_cut_off = entry["type"] == "user" or bool(self._open)

    def move(self, path: str) -> None:
        """Write to another file, because the process was claimed for another directory."""
        self._path = path

    def seconds_left(self) -> float | None:
        """Return after how many seconds something has to be written. None if nothing waits."""
        if not self._waiting:
            return None
        return max(0.0, self._since + self._delay - time.monotonic())

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
            message["stop_reason"] = self._frames.stop_reason
        more: Json = {}
        if frame.get("is_api_error_message"):
            more = {"isApiErrorMessage": True, "error": frame.get("error")}
        for meta in as_list(frame.get("tool_result_meta")):
            if "non_execution_kind" in meta:
                more = {"toolDenialKind": meta["non_execution_kind"]}
        self._add(kind, uuid, message=message, **more)

    def defer(self, use: Json) -> None:
        """Take a call that a hook has deferred. The entry is beside the conversation."""
        last, attachment = (
            self._last,
            {
                "type": DEFERRED,
                "toolUseID": use["id"],
                "toolName": use["name"],
                "toolInput": use["input"],
                "hookName": "settings",
                "hookEvent": "PreToolUse",
                "permissionMode": self._frames.permission_mode,
            },
        )
        self._add("attachment", self._frames.new_id(), attachment=attachment)
        self._last, self._deferred = last, use["id"]

    def go_on(self, uuid: str) -> None:
        """Take what the model is told after the result of a resumed call."""
        self._is_cut_off = False
        self._say(CONTINUE, uuid)

    def close_last_turn(self) -> None:
        """Before a prompt, end the turn before it, if it was deferred or cut off.

        The model gets a result of a call that this process has deferred, and newer CLIs save that.
        For a turn of an earlier process that was cut off, a newer CLI writes a result in place of
        each one that is missing. An older one leaves out the calls without a result.
        """
        if self._deferred is not None and self._frames.newer:
            told = {"type": "tool_result", "tool_use_id": self._deferred, "content": MISSING}
            self._append({"type": "api-request-blob", "message": {"content": [told]}})
        self._deferred = None
        if not self._is_cut_off:
            return
        self._is_cut_off = False
        if self._frames.newer:
            for call, entry in self._open.items():
                block: Json = {"type": "tool_result", "content": CUT_OFF, "is_error": True}
                message = {"role": "user", "content": [{**block, "tool_use_id": call}]}
                about = {"toolUseResult": CUT_OFF, "sourceToolAssistantUUID": entry["uuid"]}
                uuid = self._frames.new_id()
                self._add("user", uuid, message=message, toolDenialKind="interrupted", **about)
        else:
            for entry in list(self._open.values())[:1]:
                self._last = entry["parentUuid"]
            self._say(CONTINUE, self._frames.new_id())
        message = self._frames.api_message([{"type": "text", "text": NO_RESPONSE}])
        own = {"id": self._frames.new_id(), "model": "<synthetic>", "stop_reason": "stop_sequence"}
        self._add(
            "assistant", self._frames.new_id(), message={**message, **own}, isApiErrorMessage=False
        )

    def _say(self, text: str, uuid: str) -> None:
        content = [{"type": "text", "text": text}]
        self._add("user", uuid, message={"role": "user", "content": content}, isMeta=True)

    def _add(self, kind: str, uuid: str, **members: object) -> None:
        entry = {
            "parentUuid": self._last,
            "isSidechain": False,
            "type": kind,
            **members,
            "uuid": uuid,
            "timestamp": timestamp(),
            "cwd": self._frames.cwd,
            "sessionId": self._frames.session_id,
            "version": self._frames.flavour,
        }
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
        self._append(*entries)
        if not self._reports:
            return None
        return {"type": "transcript_mirror", "filePath": self._path, "entries": entries}

    def _append(self, *entries: Json) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


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
