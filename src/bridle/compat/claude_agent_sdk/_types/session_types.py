"""Types of stored sessions and of session stores."""

from dataclasses import dataclass
from typing import (
    Any,
    Literal,
    NotRequired,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    runtime_checkable,
)

from bridle.compat.claude_agent_sdk._types.message_types import SystemMessage

__all__ = [
    "ForkSessionResult",
    "MirrorErrorMessage",
    "SDKSessionInfo",
    "SessionKey",
    "SessionListSubkeysKey",
    "SessionMessage",
    "SessionStore",
    "SessionStoreEntry",
    "SessionStoreFlushMode",
    "SessionStoreListEntry",
    "SessionSummaryEntry",
]


class SessionKey(TypedDict):
    """The name of one list of entries in a store."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]


class SessionListSubkeysKey(TypedDict):
    """The session whose subkeys are listed."""

    project_key: str
    session_id: str


class SessionStoreEntry(TypedDict, total=False):
    """A line of a transcript. It has more keys than these."""

    type: Required[str]
    uuid: str
    timestamp: str


class SessionStoreListEntry(TypedDict):
    """A session in a store. `mtime` is in milliseconds since the epoch."""

    session_id: str
    mtime: int


class SessionSummaryEntry(TypedDict):
    """What `fold_session_summary` has collected about a session."""

    session_id: str
    mtime: int
    data: dict[str, Any]


SessionStoreFlushMode: TypeAlias = Literal["batched", "eager"]
"""When entries are written to the store."""


@runtime_checkable
class SessionStore(Protocol):
    """A place for transcripts outside the CLI's files.

    ``append`` and ``load`` are required. The other methods are optional: a class that inherits
    from this one may leave them out.
    """

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries in order. An entry whose ``uuid`` is stored already may be skipped."""
        ...

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries in the order of appending. None if there are none."""
        ...

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project."""
        ...

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return what `fold_session_summary` has collected about the sessions of a project."""
        ...

    async def delete(self, key: SessionKey) -> None:
        """Delete entries. A key without ``subpath`` also deletes those with one."""
        ...

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return every ``subpath`` of a session."""
        ...


@dataclass
class SDKSessionInfo:
    """A stored session. Times are in milliseconds since the epoch."""

    session_id: str
    summary: str
    last_modified: int
    file_size: int | None = None
    custom_title: str | None = None
    first_prompt: str | None = None
    git_branch: str | None = None
    cwd: str | None = None
    tag: str | None = None
    created_at: int | None = None


@dataclass
class SessionMessage:
    """A message of a stored session. `message` is the message of the API as JSON."""

    type: Literal["user", "assistant"]
    uuid: str
    session_id: str
    message: Any
    parent_tool_use_id: str | None = None
    parent_agent_id: str | None = None


@dataclass
class ForkSessionResult:
    """The id of the copy that `fork_session` made."""

    session_id: str


@dataclass
class MirrorErrorMessage(SystemMessage):
    """Entries could not be written to the session store."""

    key: SessionKey | None = None
    error: str = ""
