"""The functions for stored sessions, on the files of the CLI. They block."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import bridle.sync
from bridle._spi import is_uuid
from bridle.compat.claude_agent_sdk._stored.session_checks import (
    agent_of,
    checked,
    in_directory,
    made,
    message_not_found,
    of_session,
    page,
    session_not_found,
    spoken,
)
from bridle.compat.claude_agent_sdk._types.session_types import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionMessage,
)
from bridle.errors import OptionsError, SessionNotFoundError
from bridle.sessions import SessionInfo

_T = TypeVar("_T")
_GIT_TIMEOUT = 5.0


def list_sessions(
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,  # noqa: FBT001, FBT002  # the signature of the official SDK
) -> list[SDKSessionInfo]:
    """Return the sessions of a directory and its git worktrees, or of all directories.

    The last changed session is the first.
    """
    places: list[str | None] = [directory]
    if directory is not None and include_worktrees:
        places += [one for one in _worktrees(directory) if one != os.path.realpath(directory)]
    found: dict[str, SDKSessionInfo] = {}
    for place in places:
        for info in map(_info, bridle.sync.sessions.list_sessions(place)):
            known = found.get(info.session_id)
            if known is None or known.last_modified < info.last_modified:
                found[info.session_id] = info
    ordered = sorted(found.values(), key=lambda info: info.last_modified, reverse=True)
    return page(ordered, limit, offset)


def get_session_info(session_id: str, directory: str | None = None) -> SDKSessionInfo | None:
    """Return what is known about a session. None if there is no such session."""
    found = _anywhere(bridle.sync.sessions.get_session, session_id, directory)
    return None if found is None else _info(found)


def get_session_messages(
    session_id: str, directory: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SessionMessage]:
    """Return the messages of a session. The list is empty if there is no such session."""
    found = _anywhere(bridle.sync.sessions.read_transcript, session_id, directory)
    return [] if found is None else page(spoken(found.entries), limit, offset)


def list_subagents(session_id: str, directory: str | None = None) -> list[str]:
    """Return the ids of the subagents of a session."""
    found = _anywhere(bridle.sync.sessions.read_transcript, session_id, directory)
    return [] if found is None else [agent.agent_id for agent in found.subagents]


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of a subagent."""
    found = _anywhere(bridle.sync.sessions.read_transcript, session_id, directory)
    agent = None if found is None else agent_of(found, agent_id)
    return [] if agent is None else page(spoken(agent.entries, agent), limit, offset)


def rename_session(session_id: str, title: str, directory: str | None = None) -> None:
    """Set the title of a session.

    Raises:
        ValueError: the id is not a UUID, or the title is blank.
        FileNotFoundError: there is no such session.
    """
    _append(bridle.sync.sessions.rename, session_id, title, directory)


def tag_session(session_id: str, tag: str | None, directory: str | None = None) -> None:
    """Set the tag of a session. None removes it.

    Raises:
        ValueError: the id is not a UUID, or the tag is blank.
        FileNotFoundError: there is no such session.
    """
    _append(bridle.sync.sessions.tag, session_id, tag, directory)


def delete_session(session_id: str, directory: str | None = None) -> None:
    """Delete a session and its subagents.

    Raises:
        ValueError: the id is not a UUID.
        FileNotFoundError: there is no such session.
    """
    of_session(bridle.sync.sessions.delete, session_id, directory)


def fork_session(
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a session, up to a message or all of it, and return the id of the copy.

    Raises:
        ValueError: an argument is invalid.
        FileNotFoundError: there is no such session.
    """
    checked(session_id)
    fork = partial(
        bridle.sync.sessions.fork,
        up_to=checked(up_to_message_id, "up_to_message_id") if up_to_message_id else None,
        title=(title or "").strip() or None,
    )
    try:
        return ForkSessionResult(of_session(fork, session_id, directory))
    except OptionsError as error:
        raise message_not_found(up_to_message_id, session_id) from error


def _anywhere(read: Callable[..., _T], session_id: str, directory: str | None) -> _T | None:
    """Read a session of a directory or of one of its worktrees. None if there is none."""
    if not is_uuid(session_id):
        return None
    for place in [directory, *(_worktrees(directory) if directory is not None else ())]:
        try:
            return read(session_id, directory=place)
        except SessionNotFoundError:
            continue
    return None


def _append(
    append: Callable[..., None], session_id: str, text: str | None, directory: str | None
) -> None:
    """Rename or tag a session."""
    try:
        made(append, checked(session_id), text, directory=directory)
    except SessionNotFoundError as error:
        has_any = os.path.isdir(error.place)
        anywhere = " in any project directory" if has_any else " (no projects directory)"
        raise session_not_found(session_id, in_directory(directory) or anywhere) from error


def _info(info: SessionInfo) -> SDKSessionInfo:
    return SDKSessionInfo(
        session_id=info.session_id,
        summary=info.summary,
        last_modified=int(info.updated_at * 1000),
        file_size=info.size,
        custom_title=info.custom_title,
        first_prompt=info.first_prompt,
        git_branch=info.git_branch,
        cwd=info.cwd,
        tag=info.tag,
        created_at=None if info.created_at is None else round(info.created_at * 1000),
    )


def _worktrees(directory: str) -> list[str]:
    """Return the worktrees of the git repository that a directory is in."""
    command = ["git", "worktree", "list", "--porcelain"]
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_GIT_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    mark = "worktree "
    return [line[len(mark) :] for line in done.stdout.splitlines() if line.startswith(mark)]
