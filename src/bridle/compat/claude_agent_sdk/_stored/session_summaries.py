"""Collect what is known about a stored session: `fold_session_summary`."""

from __future__ import annotations

from typing import Any, cast

from bridle._spi import seconds_of
from bridle.compat.claude_agent_sdk._types.session_types import (
    SDKSessionInfo,
    SessionKey,
    SessionStoreEntry,
    SessionSummaryEntry,
)
from bridle.sessions._transcripts.summaries import prompt_of

# Keys of the collected data whose last value counts, and the keys of an entry that hold them.
_LAST = {
    "custom_title": "customTitle",
    "ai_title": "aiTitle",
    "last_prompt": "lastPrompt",
    "summary_hint": "summary",
    "git_branch": "gitBranch",
}


def milliseconds_of(timestamp: object) -> int | None:
    """Return the milliseconds since the epoch of an ISO 8601 time, or None."""
    seconds = seconds_of(timestamp) if isinstance(timestamp, str) else None
    return None if seconds is None else round(seconds * 1000)


def fold_session_summary(
    prev: SessionSummaryEntry | None, key: SessionKey, entries: list[SessionStoreEntry]
) -> SessionSummaryEntry:
    """Return what is known about a session after more entries.

    A store can keep the result with each session, so that listing sessions loads no transcripts.
    ``mtime`` is that of ``prev``: the store sets it.
    """
    data: dict[str, Any] = {} if prev is None else dict(prev["data"])
    for entry in cast("list[dict[str, Any]]", entries):
        data.setdefault("is_sidechain", entry.get("isSidechain") is True)
        created = milliseconds_of(entry.get("timestamp"))
        if created is not None:
            data.setdefault("created_at", created)
        if entry.get("cwd"):
            data.setdefault("cwd", entry["cwd"])
        for name, wire in _LAST.items():
            value = entry.get(wire)
            if isinstance(value, str) and value:
                data[name] = value
        if entry.get("type") == "tag":
            data.pop("tag", None)
            if entry.get("tag"):
                data["tag"] = entry["tag"]
        if not data.get("first_prompt_locked"):
            prompt, command = prompt_of(entry)
            if prompt is not None:
                data |= {"first_prompt": prompt, "first_prompt_locked": True}
            elif command is not None:
                data.setdefault("command_fallback", command)
    mtime = 0 if prev is None else prev["mtime"]
    return SessionSummaryEntry(session_id=key["session_id"], mtime=mtime, data=data)


def info_of(summary: SessionSummaryEntry, directory: str | None = None) -> SDKSessionInfo | None:
    """Return a session as users see it. None for a subagent, or without a conversation."""
    data = summary["data"]
    prompt = data.get("first_prompt") or data.get("command_fallback")
    names = ("custom_title", "ai_title", "last_prompt", "summary_hint")
    shown = next((data[name] for name in names if data.get(name)), None) or prompt
    if data.get("is_sidechain") or not shown:
        return None
    return SDKSessionInfo(
        session_id=summary["session_id"],
        summary=shown,
        last_modified=summary["mtime"],
        custom_title=data.get("custom_title") or data.get("ai_title"),
        first_prompt=prompt,
        git_branch=data.get("git_branch"),
        cwd=data.get("cwd") or directory,
        tag=data.get("tag"),
        created_at=data.get("created_at"),
    )
