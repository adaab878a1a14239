"""The functions for stored sessions do what those of the official SDK do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import claude_agent_sdk as official
import pytest
from tests.support.processes import run

from bridle.compat import claude_agent_sdk as dropin

HERE = "/srv/shop"
PROJECT = "-srv-shop"
PACKAGES = pytest.mark.parametrize("sdk", [official, dropin], ids=["official", "dropin"])
TIME = "2026-01-01T00:00:00.000Z"


def said(role: str, uuid: str, parent: str | None, session: str, **more: Any) -> Any:
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": session,
        "timestamp": TIME,
        "message": {"role": role, "content": "words"},
        **more,
    }


def key_of(session: str, **more: str) -> Any:
    return {"project_key": PROJECT, "session_id": session, **more}


async def filled(store: Any, count: int, **more: Any) -> list[str]:
    """Append sessions with one prompt each. Return their ids, the newest first."""
    sessions = [str(uuid4()) for _ in range(count)]
    for session in sessions:
        prompt = said("user", str(uuid4()), None, session, **more)
        await store.append(key_of(session), [prompt])
    return sessions[::-1]


@PACKAGES
async def test_a_store_that_raises_not_implemented_is_listed_without_summaries(sdk: Any) -> None:
    class Store(sdk.InMemorySessionStore):  # type: ignore[misc]  # of either package
        async def list_session_summaries(self, project_key: str) -> Any:
            raise NotImplementedError

    store = Store()
    sessions = await filled(store, 3)
    await filled(store, 2, isSidechain=True)
    listed = await sdk.list_sessions_from_store(store, HERE, limit=3)
    assert [one.session_id for one in listed] == sessions
    rest = await sdk.list_sessions_from_store(store, HERE, limit=3, offset=2)
    assert [one.session_id for one in rest] == sessions[2:]


@PACKAGES
async def test_only_sessions_of_the_page_are_loaded(sdk: Any) -> None:
    """Those without a summary, and those whose summary is older than the session."""

    class Store(sdk.InMemorySessionStore):  # type: ignore[misc]  # of either package
        def __init__(self) -> None:
            super().__init__()
            self.loaded: list[str] = []

        async def list_session_summaries(self, project_key: str) -> Any:
            newest, stale, *_ = reversed(await super().list_session_summaries(project_key))
            return [newest, {**stale, "mtime": 0, "data": {"is_sidechain": True}}]

        async def load(self, key: Any) -> Any:
            self.loaded.append(key["session_id"])
            return await super().load(key)

    store = Store()
    sessions = await filled(store, 5)
    listed = await sdk.list_sessions_from_store(store, HERE, limit=3)
    assert [one.session_id for one in listed] == sessions[:3]
    assert store.loaded == sessions[1:3]


@PACKAGES
@pytest.mark.parametrize("is_compacted", [False, True])
async def test_a_fork_has_the_entries_of_the_official_sdk(sdk: Any, is_compacted: bool) -> None:
    """After a compaction, the drop-in also names the last message, for older CLIs."""
    session, first, boundary, last = (str(uuid4()) for _ in range(4))

    store = sdk.InMemorySessionStore()
    replaced = {"type": "content-replacement", "sessionId": session, "replacements": [{"a": 1}]}
    more: Any = {"subtype": "compact_boundary"} if is_compacted else {}
    entries = [
        said("user", first, None, session),
        said("system" if is_compacted else "assistant", boundary, first, session, **more),
        said("user", last, boundary, session),
        replaced,
    ]
    await store.append(key_of(session), entries)
    made = await sdk.fork_session_via_store(store, session, HERE, title="copy")
    copied = store.get_entries(key_of(made.session_id))
    kinds = [entry["type"] for entry in copied]
    if is_compacted and sdk is dropin:
        kinds.remove("last-prompt")
    spoken = [entry["type"] for entry in entries[:3]]
    assert kinds == [*spoken, "content-replacement", "custom-title"]
    assert all(entry["uuid"] and entry["timestamp"] for entry in copied)
    assert {entry["sessionId"] for entry in copied} == {made.session_id}


@PACKAGES
async def test_ids_of_parents_that_are_not_texts_are_left_out(sdk: Any) -> None:
    session = str(uuid4())

    store = sdk.InMemorySessionStore()
    await store.append(key_of(session), [said("user", str(uuid4()), None, session)])
    about = {"type": "agent_metadata", "toolUseId": 7, "parentAgentId": ["x"]}
    prompt = said("user", str(uuid4()), None, session, isSidechain=True)
    await store.append(key_of(session, subpath="subagents/agent-a"), [about, prompt])
    [message] = await sdk.get_subagent_messages_from_store(store, session, "a", HERE)
    assert (message.parent_tool_use_id, message.parent_agent_id) == (None, None)


@PACKAGES
def test_an_import_keeps_the_kind_of_metadata_and_its_default_batches(
    sdk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    session = str(uuid4())
    project = tmp_path / "projects" / PROJECT
    agents = project / session / "subagents"
    agents.mkdir(parents=True)
    lines = [json.dumps(said("user", str(uuid4()), None, session)) + "\n" for _ in range(3)]
    (project / f"{session}.jsonl").write_text("".join(lines), "utf-8")
    (agents / "agent-a.jsonl").write_text(lines[0], "utf-8")
    (agents / "agent-a.meta.json").write_text('{"type": "other", "toolUseId": "t"}', "utf-8")
    batches: list[list[Any]] = []

    class Store(sdk.InMemorySessionStore):  # type: ignore[misc]  # of either package
        async def append(self, key: Any, entries: Any) -> None:
            batches.append(entries)

    run(lambda: sdk.import_session_to_store(session, Store(), batch_size=0))
    assert [len(batch) for batch in batches] == [3, 1, 1]
    assert batches[-1] == [{"type": "agent_metadata", "toolUseId": "t"}]
