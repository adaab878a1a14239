"""The session stores. Users import them from `bridle.sessions`.

No driver is imported before a store that needs it is created.
"""

from __future__ import annotations

from bridle._stores.accept import as_store
from bridle._stores.entries import Redact
from bridle._stores.memory import MemoryStore
from bridle._stores.official import OfficialStore
from bridle._stores.postgres import PostgresStore
from bridle._stores.redis import RedisStore
from bridle._stores.sqlite import SqliteStore

__all__ = [
    "MemoryStore",
    "OfficialStore",
    "PostgresStore",
    "Redact",
    "RedisStore",
    "SqliteStore",
    "as_store",
]
