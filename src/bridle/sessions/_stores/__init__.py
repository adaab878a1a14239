"""The session stores. Users import them from `bridle.sessions`.

No driver is imported before a store that needs it is created.
"""

from __future__ import annotations

from bridle.sessions._stores.accept import as_store
from bridle.sessions._stores.entries import Redact
from bridle.sessions._stores.memory import MemoryStore
from bridle.sessions._stores.official import OfficialStore
from bridle.sessions._stores.postgres import PostgresStore
from bridle.sessions._stores.redis import RedisStore
from bridle.sessions._stores.sqlite import SqliteStore

__all__ = [
    "MemoryStore",
    "OfficialStore",
    "PostgresStore",
    "Redact",
    "RedisStore",
    "SqliteStore",
    "as_store",
]
