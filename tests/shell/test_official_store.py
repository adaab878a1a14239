"""Accepting objects as session stores, those of the official SDK among them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import InMemorySessionStore
from claude_agent_sdk import SessionStore as OfficialProtocol

from bridle import sessions
from bridle.errors import OptionsError, StoreError
from bridle.sessions import MemoryStore, OfficialStore, SessionKey, as_store
from bridle.sessions._outbox.spool import spool_name
from bridle.sessions._transcripts.transcript import project_name

ID = "00000000-0000-4000-8000-000000000001"


class Minimal:
    """Has only the required methods of the official protocol."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, ...], list[Any]] = {}

    async def append(self, key: dict[str, str], entries: list[Any]) -> None:
        self.entries.setdefault(tuple(key.values()), []).extend(entries)

    async def load(self, key: dict[str, str]) -> list[Any] | None:
        return self.entries.get(tuple(key.values()))


class Inheriting(OfficialProtocol):
    """Inherits the optional methods, which only raise."""

    async def append(self, key: Any, entries: Any) -> None:
        return None

    async def load(self, key: Any) -> Any:
        return None


def inheriting() -> object:
    kind: Any = Inheriting  # type checkers take the protocol's optional methods for abstract
    return kind()


def test_a_store_of_bridle_is_used_as_it_is() -> None:
    store = MemoryStore()
    assert as_store(store) is store


@pytest.mark.parametrize("store", [Minimal(), InMemorySessionStore(), inheriting()])
def test_an_official_store_is_adapted(store: object) -> None:
    adapted = as_store(store)
    assert isinstance(adapted, OfficialStore)
    assert repr(adapted) == f"OfficialStore(<{type(store).__name__}>)"


def without(method: str) -> object:
    names = {"append", "load", "list", "delete", "subkeys"} - {method}
    return type("Partial", (), {name: getattr(MemoryStore, name) for name in names})()


@pytest.mark.parametrize("method", ["append", "load", "list", "delete"])
def test_a_missing_method_is_named(method: str) -> None:
    with pytest.raises(OptionsError, match=f"'{method}', which Partial lacks") as caught:
        as_store(without(method), field="Agent.store")
    assert caught.value.field == "Agent.store"


@pytest.mark.parametrize("method", ["append", "load"])
def test_a_missing_method_of_an_official_store_is_named(method: str) -> None:
    store = type("Half", (), {"append": Minimal.append, "load": Minimal.load, method: None})()
    with pytest.raises(OptionsError, match=f"'{method}', which Half lacks"):
        as_store(store)


@pytest.mark.parametrize("value", [None, "sqlite:///a.db", 7, {}, []], ids=repr)
def test_a_value_of_another_type_is_rejected(value: object) -> None:
    with pytest.raises(OptionsError, match="must be a session store"):
        as_store(value)


def test_a_class_is_rejected() -> None:
    with pytest.raises(OptionsError, match="the class MemoryStore"):
        as_store(MemoryStore)


async def test_keys_are_translated() -> None:
    official = Minimal()
    store = OfficialStore(official)
    await store.append(SessionKey("s", "", "-home-me"), [{"uuid": "1"}])
    await store.append(SessionKey("s", "subagents/agent-1", "-home-me"), [{"uuid": "2"}])
    await store.append(SessionKey("s", "journal", "-elsewhere"), [{"uuid": "3"}])
    noted = official.entries.pop(("bridle-index", "s"))
    assert [entry["project"] for entry in noted] == ["-home-me"]
    assert official.entries == {
        ("-home-me", "s"): [{"uuid": "1"}],
        ("-home-me", "s", "subagents/agent-1"): [{"uuid": "2"}],
        ("-home-me", "s", "journal"): [{"uuid": "3"}],
    }


async def test_another_process_finds_the_session_from_another_directory() -> None:
    official = InMemorySessionStore()

    await OfficialStore(official).append(SessionKey("s", "", "-a"), [{"uuid": "1"}])
    await OfficialStore(official).append(SessionKey("s", "journal", "-b"), [{"uuid": "2"}])
    other = OfficialStore(official)
    assert await other.load(SessionKey("s", "", "-b")) == [{"uuid": "1"}]
    assert await other.subkeys("s") == ["journal"]
    assert [(one.session_id, one.project) for one in await other.list()] == [("s", "-a")]
    await other.delete(SessionKey("s"))
    assert await OfficialStore(official).list() == []
    assert official.size == 0


async def test_a_session_that_the_official_sdk_has_stored_is_found_by_its_project() -> None:
    official = InMemorySessionStore()

    entry: Any = {"type": "user", "uuid": "1"}
    await official.append({"project_key": "-a", "session_id": "s"}, [entry])
    sub: Any = {"project_key": "-a", "session_id": "s", "subpath": "subagents/agent-1"}
    await official.append(sub, [entry])
    store = OfficialStore(official)
    assert [one.session_id for one in await store.list("-a")] == ["s"]
    assert await store.load(SessionKey("s", "", "-a")) == [entry]
    assert await store.subkeys("s") == ["subagents/agent-1"]


async def test_repeated_uuids_are_skipped_by_load() -> None:
    store = OfficialStore(Minimal())
    for _ in range(2):
        await store.append(SessionKey("s"), [{"uuid": "1"}, {"tag": "x"}])
    assert await store.load(SessionKey("s")) == [{"uuid": "1"}, {"tag": "x"}, {"tag": "x"}]


@pytest.mark.parametrize("official", [Minimal(), inheriting()])
async def test_missing_optional_methods_are_named_when_they_are_needed(official: object) -> None:
    store = OfficialStore(official)
    await store.append(SessionKey("s"), [{"uuid": "1"}])
    with pytest.raises(StoreError, match="list_sessions"):
        await store.list()
    with pytest.raises(StoreError, match="delete"):
        await store.delete(SessionKey("s"))
    assert await store.subkeys("s") == []


async def test_entries_are_redacted_before_they_are_passed_on() -> None:
    official = Minimal()
    store = OfficialStore(official, redact=lambda entry: {**entry, "text": "***"})
    await store.append(SessionKey("s", "", "p"), [{"uuid": "1", "text": "secret"}])
    assert official.entries[("p", "s")] == [{"uuid": "1", "text": "***"}]


async def test_sessions_of_the_official_sdk_are_listed_and_read(tmp_path: Path) -> None:
    official = InMemorySessionStore()
    project = project_name(os.path.realpath(tmp_path))
    message = {"role": "user", "content": "hello"}
    entry = {"type": "user", "uuid": "1", "parentUuid": None, "message": message}
    agent = {**entry, "uuid": "2", "isSidechain": True}

    key: Any = {"project_key": project, "session_id": ID}
    append: Any = official.append
    await append(key, [entry])
    await append({**key, "subpath": "subagents/agent-1"}, [agent])
    store: Any = official
    place: Any = {"directory": tmp_path, "store": store}
    [info] = await sessions.list_sessions(**place)
    assert info.session_id == ID
    assert (await sessions.get_session(ID, **place)).session_id == ID
    assert len(await sessions.read_messages(ID, **place)) == 1
    transcript = await sessions.read_transcript(ID, **place)
    assert [one.name for one in transcript.subagents] == ["agent-1"]
    await sessions.delete(ID, **place)
    assert await sessions.list_sessions(**place) == []


# ---------------------------------------------------------------- where spool files belong


class Slotted:
    """Cannot be referenced weakly or hashed, and is equal to every other object of its class."""

    __slots__ = ()
    append = Minimal.append
    load = Minimal.load

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted)

    __hash__ = None  # type: ignore[assignment]


class Located(Minimal):
    def __init__(self, location: str) -> None:
        super().__init__()
        self.location = location


@pytest.mark.parametrize("kind", [Minimal, Slotted])
def test_spool_files_of_a_store_without_a_location_belong_to_one_object(kind: type) -> None:
    one, other = kind(), kind()
    name = spool_name(as_store(one), ID)
    assert spool_name(as_store(one), ID) == name
    assert spool_name(as_store(other), ID) != name


def test_spool_files_of_an_own_store_without_a_location_belong_to_one_object() -> None:
    methods = {name: getattr(MemoryStore, name) for name in ("append", "load", "list", "delete")}
    kind = type("Own", (), methods)
    one, other = kind(), kind()
    assert spool_name(one, ID) == spool_name(one, ID) != spool_name(other, ID)


def test_the_name_of_an_object_is_not_given_to_a_later_object_at_its_address() -> None:
    names = {spool_name(as_store(Minimal()), ID) for _ in range(20)}
    assert len(names) == 20


def test_a_location_makes_the_spool_files_usable_for_other_objects() -> None:
    def name(store: object) -> str:
        return spool_name(as_store(store), ID)

    assert name(Located("a")) == name(Located("a")) != name(Located("b"))
    given = [OfficialStore(Minimal(), location=place) for place in ("a", "a", "b")]
    assert name(given[0]) == name(given[1]) != name(given[2])
    # The argument wins, because the program that passes it knows the database.
    assert name(OfficialStore(Located("a"), location="b")) == name(Located("b"))


@pytest.mark.parametrize("location", ["", 7])
def test_a_location_must_be_a_string(location: Any) -> None:
    with pytest.raises(OptionsError, match=r"OfficialStore\.location must be a non-empty string"):
        OfficialStore(Minimal(), location=location)


def test_a_store_without_a_location_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    store = Minimal()
    for _ in range(2):
        as_store(store)
    as_store(Located("a"))
    as_store(MemoryStore())
    [record] = caplog.records
    assert record.name == "bridle.sessions"
    assert "Minimal has no location" in record.getMessage()


async def test_a_session_that_was_loaded_first_is_added_to_the_index() -> None:
    official = InMemorySessionStore()

    entry: Any = {"type": "user", "uuid": "1"}
    await official.append({"project_key": "-a", "session_id": "s"}, [entry])
    store = OfficialStore(official)
    assert await store.load(SessionKey("s", "", "-a")) == [entry]
    await store.append(SessionKey("s", "", "-b"), [{"type": "user", "uuid": "2"}])
    other = OfficialStore(official)
    assert len(await other.load(SessionKey("s", "", "-elsewhere")) or ()) == 2
    assert [(one.session_id, one.project) for one in await other.list()] == [("s", "-a")]
