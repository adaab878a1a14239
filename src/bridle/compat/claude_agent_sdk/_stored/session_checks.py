"""What the functions for stored sessions share: checks of arguments, pages and messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from bridle._spi import is_uuid
from bridle.compat.claude_agent_sdk._types.session_types import (
    SessionMessage,
)
from bridle.errors import OptionsError, SessionNotFoundError
from bridle.sessions import SubagentTranscript, Transcript, TranscriptEntry
from bridle.sessions._transcripts.transcript import conversation, project_name, text_of

_T = TypeVar("_T")


def project_key_for_directory(directory: str | Path | None = None) -> str:
    """Return the name that the CLI gives to a working directory. None is that of this process."""
    return project_name(os.path.realpath("." if directory is None else directory))


def checked(value: str, name: str = "session_id") -> str:
    """Return an id. Raise ValueError if it is not a UUID."""
    if not is_uuid(value):
        raise ValueError(f"Invalid {name}: {value}")
    return value


def session_not_found(session_id: str, where: str = "") -> FileNotFoundError:
    """Return the error for a session that does not exist."""
    return FileNotFoundError(f"Session {session_id} not found{where}")


def in_directory(directory: str | None) -> str:
    """Return the part of an error that names the directory, if there is one."""
    return f" in project directory for {directory}" if directory else ""


_BLANK = {
    "title": "title must be non-empty",
    "tag": "tag must be non-empty (use None to clear)",
}
"""The texts of errors for arguments without a visible character."""


def made(make: Callable[..., _T], *values: object, **named: object) -> _T:
    """Call a function of Bridle that checks its arguments."""
    try:
        return make(*values, **named)
    except OptionsError as error:
        is_blank = error.field in _BLANK and isinstance(values[-1], str)
        raise ValueError(_BLANK[error.field] if is_blank else str(error)) from error


def page(items: Sequence[_T], limit: int | None, offset: int) -> list[_T]:
    """Return the items of one page. A limit of None or 0 means all."""
    rest = items[offset:] if offset > 0 else items
    return list(rest[:limit] if limit is not None and limit > 0 else rest)


def spoken(
    entries: Sequence[TranscriptEntry], agent: SubagentTranscript | None = None
) -> list[SessionMessage]:
    """Return the messages of a conversation that users see."""
    facts = {} if agent is None else agent.metadata
    messages: list[SessionMessage] = []
    for entry in conversation(entries, subagent=agent is not None):
        if entry.type in ("user", "assistant") and not entry.is_meta:
            raw = entry.raw
            messages.append(
                SessionMessage(
                    type=cast("Any", entry.type),
                    uuid=entry.uuid or "",
                    session_id=raw.get("sessionId", ""),
                    message=raw.get("message"),
                    parent_tool_use_id=text_of(facts, "toolUseId"),
                    parent_agent_id=text_of(facts, "parentAgentId"),
                )
            )
    return messages


def agent_of(transcript: Transcript, agent_id: str) -> SubagentTranscript | None:
    """Return the transcript of a subagent, or None."""
    found = (one for one in transcript.subagents if one.agent_id == agent_id)
    return next(found, None)


def message_not_found(uuid: str | None, session_id: str) -> ValueError:
    """Return the error for a message that is not in its session."""
    return ValueError(f"Message {uuid} not found in session {session_id}")


def of_session(work: Callable[..., _T], session_id: str, directory: str | None) -> _T:
    """Call a function of Bridle with a session that must exist."""
    try:
        return work(checked(session_id), directory=directory)
    except SessionNotFoundError as error:
        raise session_not_found(session_id, in_directory(directory)) from error
