"""Stored sessions: the stores that keep conversations outside the CLI's files."""

from __future__ import annotations

from bridle._store import Entry, LeasingStore, SessionKey, SessionStore, StoredSession
from bridle._stores import (
    MemoryStore,
    OfficialStore,
    PostgresStore,
    Redact,
    RedisStore,
    SqliteStore,
    as_store,
)

__all__ = [
    "Entry",
    "LeasingStore",
    "MemoryStore",
    "OfficialStore",
    "PostgresStore",
    "Redact",
    "RedisStore",
    "SessionKey",
    "SessionStore",
    "SqliteStore",
    "StoredSession",
    "as_store",
]
