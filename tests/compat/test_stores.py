"""Session stores of the official protocol and the functions that use them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.processes import run

from bridle._records.session_store import SessionKey as NativeKey
from bridle.compat import claude_agent_sdk as sdk
from bridle.compat.claude_agent_sdk._loops.bridge import AsyncioBridge
from bridle.compat.claude_agent_sdk._stored.official_stores import AdaptedStore
from bridle.compat.claude_agent_sdk.testing import run_session_store_conformance

ID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
HERE = "/srv/shop"
KEY = sdk.SessionKey(project_key="-srv-shop", session_id=ID)


def said(role: str, uuid: str, parent: str | None, content: Any) -> Any:
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": ID,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "message": {"role": role, "content": content},
    }


TALK = [said("user", "u1", None, "Hello"), said("assistant", "a1", "u1", [])]


def test_the_store_in_memory_keeps_the_contract() -> None:
    run(lambda: run_session_store_conformance(sdk.InMemorySessionStore))


@pytest.mark.parametrize("method", ["load", "list_sessions", "delete", "list_subkeys"])
def test_a_store_that_breaks_the_contract_is_found(method: str) -> None:
    class Broken(sdk.InMemorySessionStore):
        pass

    async def nothing(self: object, key: object) -> list[Any]:
        return []

    setattr(Broken, method, nothing)
    with pytest.raises(AssertionError):
        run(lambda: run_session_store_conformance(Broken))


def test_the_official_store_is_judged_alike() -> None:
    official = pytest.importorskip("claude_agent_sdk")
    run(lambda: run_session_store_conformance(official.InMemorySessionStore))


async def test_sessions_of_a_store_are_listed_read_and_changed() -> None:
    store = sdk.InMemorySessionStore()
    await store.append(KEY, TALK)
    [listed] = await sdk.list_sessions_from_store(store, HERE)
    assert (listed.session_id, listed.summary) == (ID, "Hello")
    read = await sdk.get_session_messages_from_store(store, ID, HERE)
    assert [(one.type, one.uuid) for one in read] == [("user", "u1"), ("assistant", "a1")]
    await sdk.rename_session_via_store(store, ID, " New ", HERE)
    await sdk.tag_session_via_store(store, ID, "mine", HERE)
    info = await sdk.get_session_info_from_store(store, ID, HERE)
    assert info is not None
    assert (info.custom_title, info.tag) == ("New", "mine")
    fork = await sdk.fork_session_via_store(store, ID, HERE)
    copied = await sdk.get_session_messages_from_store(store, fork.session_id, HERE)
    assert [one.message for one in copied] == [one.message for one in read]
    await sdk.delete_session_via_store(store, ID, HERE)
    assert await sdk.get_session_info_from_store(store, ID, HERE) is None


async def test_what_is_wrong_with_a_session_has_the_official_type() -> None:
    store = sdk.InMemorySessionStore()
    cases: list[tuple[type[Exception], Any, tuple[str, ...]]] = [
        (ValueError, sdk.rename_session_via_store, ("bad", "x")),
        (ValueError, sdk.rename_session_via_store, (ID, " ")),
        (FileNotFoundError, sdk.fork_session_via_store, (ID,)),
    ]
    for error, function, values in cases:
        with pytest.raises(error) as caught:
            await function(store, *values, directory=HERE)
        assert caught.type is error


def test_files_of_the_cli_are_read_and_changed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    place = str(tmp_path)
    project = tmp_path / "projects" / sdk.project_key_for_directory(place)
    project.mkdir(parents=True)
    import json

    (project / f"{ID}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in TALK))
    assert [one.uuid for one in sdk.get_session_messages(ID, place)] == ["u1", "a1"]
    sdk.rename_session(ID, "New", place)
    [listed] = sdk.list_sessions(place)
    assert (listed.session_id, listed.custom_title) == (ID, "New")
    store = sdk.InMemorySessionStore()
    run(lambda: sdk.import_session_to_store(ID, store, directory=place))
    assert store.size == 1
    sdk.delete_session(ID, place)
    assert sdk.get_session_info(ID, place) is None
    with pytest.raises(FileNotFoundError):
        sdk.delete_session(ID, place)


async def test_a_session_adds_nothing_of_bridle_to_the_store() -> None:
    store = sdk.InMemorySessionStore()
    adapted = AdaptedStore(store, AsyncioBridge())
    await adapted.append(NativeKey(ID, "", "-srv-shop"), TALK)
    assert not adapted.has_journals
    assert store.get_entries(KEY) == TALK
    session = sdk.SessionListSubkeysKey(project_key="-srv-shop", session_id=ID)
    assert await store.list_subkeys(session) == []
    assert await store.list_sessions("bridle-index") == []
    assert await adapted.load(NativeKey(ID, "", "-srv-shop")) == TALK


async def test_the_third_failure_of_a_store_is_reported_once() -> None:
    class Broken(sdk.InMemorySessionStore):
        async def append(self, key: Any, entries: Any) -> None:
            raise OSError("full")

    adapted = AdaptedStore(Broken(), AsyncioBridge())
    for _ in range(5):
        with pytest.raises(OSError, match="full"):
            await adapted.append(NativeKey(ID, "", "-srv-shop"), TALK)
    [problem] = adapted.problems
    assert (problem.key, problem.error) == (KEY, "full")
