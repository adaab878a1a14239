"""Open session stores for tests: each test gets its own file, schema or prefix."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import pytest
from tests.support.processes import until
from tests.support.servers import PostgresServer, RedisServer

from bridle.sessions import (
    MemoryStore,
    PostgresStore,
    RedisStore,
    SessionKey,
    SessionStore,
    SqliteStore,
)

T = TypeVar("T")

DATABASES = ("sqlite", "postgres", "redis")
KINDS = ("memory", *DATABASES)

Store: TypeAlias = MemoryStore | SqliteStore | PostgresStore | RedisStore


class Place(ABC):
    """Where the stores of one test keep their sessions."""

    @property
    @abstractmethod
    def arguments(self) -> tuple[str, dict[str, str]]:
        """The class and the arguments that open a store, also in another process."""

    @abstractmethod
    def open(self, **options: Any) -> Store:
        """Return a new store object on the same sessions."""

    @abstractmethod
    def age(self, seconds: float) -> None:
        """Make all sessions look as if they were appended to this much earlier."""


class MemoryPlace(Place):
    def __init__(self) -> None:
        self._aged = 0.0

    @property
    def arguments(self) -> tuple[str, dict[str, str]]:
        return "MemoryStore", {}

    def open(self, **options: Any) -> Store:
        options.pop("timeout", None)
        return MemoryStore(clock=lambda: time.time() + self._aged, **options)

    def age(self, seconds: float) -> None:
        self._aged += seconds


class SqlitePlace(Place):
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def arguments(self) -> tuple[str, dict[str, str]]:
        return "SqliteStore", {"path": str(self.path)}

    def open(self, **options: Any) -> Store:
        return SqliteStore(self.path, **options)

    def age(self, seconds: float) -> None:
        import sqlite3

        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("UPDATE bridle_sessions SET updated_at = updated_at - ?", (seconds,))
        connection.close()


class PostgresPlace(Place):
    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.schema = f"test_{uuid4().hex}"
        self.execute(f"CREATE SCHEMA {self.schema}")

    @property
    def url(self) -> str:
        return f"{self.server.url}?options=-csearch_path%3D{self.schema}"

    @property
    def arguments(self) -> tuple[str, dict[str, str]]:
        return "PostgresStore", {"url": self.url}

    def open(self, **options: Any) -> Store:
        return PostgresStore(self.url, **options)

    def age(self, seconds: float) -> None:
        self.execute(
            f"UPDATE {self.schema}.bridle_sessions SET updated_at = updated_at - interval "
            f"'{seconds} s'"
        )

    def execute(self, statement: str) -> None:
        """Run a statement as the owner of the database."""
        import psycopg

        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(statement.encode())


class RedisPlace(Place):
    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.prefix = f"test:{uuid4().hex}:"

    @property
    def arguments(self) -> tuple[str, dict[str, str]]:
        return "RedisStore", {"url": self.server.url, "prefix": self.prefix}

    def open(self, **options: Any) -> Store:
        return RedisStore(self.server.url, prefix=self.prefix, **options)

    def age(self, seconds: float) -> None:
        import redis

        with redis.Redis.from_url(self.server.url, decode_responses=True) as client:
            found: Any = client.zrange(f"{self.prefix}sessions", 0, -1)
            for member in found:
                client.zincrby(f"{self.prefix}sessions", -seconds * 1e6, member)


def open_place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a new place of a kind. Skips the test if its server is not installed."""
    match kind:
        case "memory":
            return MemoryPlace()
        case "sqlite":
            return SqlitePlace(tmp_path / "sessions.db")
        case "postgres":
            return PostgresPlace(request.getfixturevalue("postgres_server"))
        case "redis":
            return RedisPlace(request.getfixturevalue("redis_server"))
        case _:
            raise ValueError(kind)


async def until_stored(store: SessionStore, key: SessionKey, text: str) -> None:
    """Wait until a store has a text of a conversation."""

    async def look() -> bool:
        return text in json.dumps(await store.load(key))

    await until(look)
