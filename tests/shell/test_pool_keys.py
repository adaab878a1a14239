"""The conversations of the keys of a pool, in memory and in a store."""

from __future__ import annotations

import pytest

from bridle._pool.keys import Conversation, PoolKeys, _name
from bridle.errors import SessionInUseError, SessionLoadError
from bridle.sessions import MemoryStore, SessionKey

ONE = Conversation("00000000-0000-4000-8000-000000000001", "/a")
TWO = Conversation("00000000-0000-4000-8000-000000000002", "/a")


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_key_has_the_conversation_that_was_saved_last(has_store: bool) -> None:
    store = MemoryStore() if has_store else None
    keys = PoolKeys(store, 5.0)
    assert await keys.load("a") is None
    for conversation in (ONE, ONE, TWO):
        await keys.save("a", conversation)
    assert (keys.known("a"), await keys.load("a")) == (TWO, TWO)
    assert await keys.load("b") is None
    other = PoolKeys(store, 5.0)
    assert await other.load("a") == (TWO if has_store else None)
    await keys.forget("a")
    assert await keys.load("a") is None


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_new_conversation_of_a_key_keeps_the_directory(has_store: bool) -> None:
    """The process may work in another directory, because the machine does not have this one."""

    keys = PoolKeys(MemoryStore() if has_store else None, 5.0)
    await keys.save("a", ONE)
    for conversation in (ONE, TWO):
        await keys.refresh("a", Conversation(conversation.session_id, "/b"))
        assert await keys.load("a") == conversation


async def test_entries_that_name_no_conversation_are_ignored() -> None:
    """The id becomes a file name, so it must be a UUID."""

    store = MemoryStore()
    keys = PoolKeys(store, 5.0)
    await keys.save("a", ONE)
    wrong = [{"session_id": "../../etc", "cwd": "/a"}, {"session_id": ONE.session_id}, {}]
    await store.append(_name("a"), wrong)
    assert await keys.load("a") == ONE


async def test_a_key_is_held_by_one_program_at_a_time() -> None:
    store = MemoryStore()
    mine, theirs = PoolKeys(store, 5.0), PoolKeys(store, 5.0)
    await mine.take("a")
    await mine.take("a")
    await theirs.take("b")
    with pytest.raises(SessionInUseError) as caught:
        await theirs.take("a")
    assert "max_idle" in caught.value.fix
    assert "fork_session" not in str(caught.value)
    await mine.release("a")
    await theirs.take("a")
    for keys, name in ((mine, "a"), (theirs, "a"), (theirs, "b")):
        await keys.release(name)


async def test_a_store_that_fails_is_reported() -> None:
    class Broken(MemoryStore):
        async def load(self, key: SessionKey) -> None:
            raise OSError("no disk")

    with pytest.raises(SessionLoadError):
        await PoolKeys(Broken(), 5.0).load("a")
