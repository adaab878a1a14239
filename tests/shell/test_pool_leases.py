"""The entry and the lease of a key in a store: failures, cancellations and other programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.pools import Lab, ask, pool_of
from tests.support.processes import until
from tests.support.steps import ReplaceSteps
from tests.support.stores import until_stored

from bridle import Agent, OptionsError
from bridle._pool import keys as pool_keys
from bridle._pool.keys import Conversation, PoolKeys
from bridle._pool.pooled import PooledSession
from bridle.errors import SessionInUseError, SessionStopped, StoreError
from bridle.sessions import MemoryStore, SessionKey
from bridle.sessions import _backlog as mirroring
from bridle.sessions._outbox import leases
from bridle.testing import FakeCli

NAME = pool_keys._name("a")
"""Where a store keeps the conversation of the key of these tests."""


@pytest.fixture
def newest(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "2.1.326")
    with made.cli:
        yield made


class Store(MemoryStore):
    """A store whose lease of the key another program can take, and whose writes can fail."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: Whether another program has the lease of the key.
        self.is_taken = False
        #: Whether writing the conversation of the key fails.
        self.is_full = False
        #: Set when the conversation of the key was written. The call goes on until `go` is set.
        self.wrote, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        if self.is_taken and session_id == NAME.session_id:
            return False
        return await super().acquire(session_id, owner, seconds)

    async def append(self, key: SessionKey, entries: Sequence[Any]) -> None:
        is_ours = key.subkey == NAME.subkey
        if is_ours and self.is_full:
            raise OSError("disk full")
        await super().append(key, entries)
        if is_ours:
            self.wrote.set()
            await self.go.wait()

    async def saved(self) -> list[str]:
        """Return the ids of the conversation of the key, in the order of writing."""
        return [str(entry["session_id"]) for entry in await self.load(NAME) or ()]


# -- another program takes the key -----------------------------------------------------------------


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_a_first_prompt_after_a_lost_lease_leaves_the_key_to_the_other_program(
    newest: Lab, set_limits: SetLimits, is_noticed: bool
) -> None:
    """Whether the renewal has noticed the loss before the prompt, or not."""
    if is_noticed:
        set_limits(lease=0.2)

    store = Store()
    async with pool_of(newest.agent(store=store), size=1, ready=0) as pool:
        async with pool.session(key="a") as session:
            store.is_taken = True
            if is_noticed:
                await until(lambda: not session.alive)
            with pytest.raises(SessionStopped if is_noticed else SessionInUseError):
                _ = await session.send_user_message("hi")
            assert not session.alive
        assert await store.saved() == []


async def test_a_session_whose_lease_was_lost_during_its_start_is_not_kept(
    newest: Lab, replace_steps: ReplaceSteps, set_limits: SetLimits
) -> None:
    """It replaces the idle process of the key, which works in another directory."""
    set_limits(lease=0.2)
    connect = PooledSession.connect

    store = Store()
    async with pool_of(newest.agent(store=store), size=1, ready=0) as pool:
        async with pool.session(key="a", cwd=newest.other):
            pass

        async def lose(session: PooledSession) -> None:
            store.is_taken = True
            await until(lambda: pool._work._keys.is_lost("a"))
            await connect(session)

        replace_steps(connect_pooled=lose)
        with pytest.raises(SessionInUseError):
            async with pool.session(key="a", cwd=newest.work):
                pass
        await until(lambda: pool.metrics.closing == 0)
        assert pool.metrics.idle == 0
        replace_steps(connect_pooled=connect)
        with pytest.raises(SessionInUseError):
            async with pool.session(key="a"):
                pass
        store.is_taken = False
        store._leases.clear()
        async with pool.session(key="a") as session:
            assert await ask(session) == "You said: hi"


async def test_a_lease_that_is_lost_during_a_claim_starts_no_other_process(
    tmp_path: Path, replace_steps: ReplaceSteps, set_limits: SetLimits
) -> None:
    set_limits(lease=0.2)

    class Claiming(Store):
        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            self.is_taken = any("claim_session" in str(lines) for lines in cli.runs)
            return await super().acquire(session_id, owner, seconds)

    starts: list[object] = []
    start = PooledSession.connect

    async def count(session: PooledSession) -> None:
        starts.append(session)
        await start(session)

    replace_steps(connect_pooled=count)
    fake = FakeCli(flavour="2.1.326").expect_initialize().expect_request("claim_session")
    with fake.silence() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path), store=Claiming())
        async with agent.pool(size=1) as pool:
            with pytest.raises(SessionInUseError) as caught:
                async with pool.session(key="a"):
                    pass
            assert caught.value.session_id == "a"
    assert len(starts) == 1


class Apart:
    """Two programs on two machines, with one store. Time can pass without any renewal."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lab = lab
        #: Seconds that have passed without a renewal.
        self.late = 0.0
        SetLimits(monkeypatch)(lease_clock=lambda: time.monotonic() + self.late)
        self.store = Store(clock=lambda: time.time() + self.late)

    def pool(self, name: str, **options: Any) -> Any:
        """Return the pool of a machine."""
        home = self._lab.home / name
        home.mkdir()
        agent = self._lab.agent(store=self.store, env={"HOME": str(home)})
        return pool_of(agent, size=1, ready=0, **options)

    async def is_stored(self, session_id: str, text: str) -> None:
        """Wait until the store has a text of a conversation."""
        await until_stored(self.store, SessionKey(session_id), text)

    async def ask_elsewhere(self, prompt: str) -> str | None:
        """Ask on another machine, and give the key back. Return the id of the conversation."""
        async with self.pool("elsewhere") as pool, pool.session(key="a") as session:
            await ask(session, prompt)
            found: str | None = session.id
        return found


async def test_a_kept_process_whose_lease_lapsed_is_replaced(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may have continued the conversation and given the key back."""

    apart = Apart(newest, monkeypatch)
    async with apart.pool("here") as pool:
        async with pool.session(key="a") as session:
            await ask(session, "one")
            pid = session.pid
        await apart.is_stored(session.id, "You said: one")
        apart.late = mirroring.LEASE + 1.0
        assert await apart.ask_elsewhere("two") == session.id
        async with pool.session(key="a") as session:
            assert session.pid != pid
            await ask(session, "three")
    entries = await apart.store.load(SessionKey(session.id)) or ()
    texts = {one.get("uuid"): str(one.get("message")) for one in entries}
    last = next(one for one in entries if "'three'" in str(one.get("message")))
    assert "You said: two" in texts[last["parentUuid"]]


async def test_a_first_prompt_after_a_lapse_keeps_the_conversation_of_the_other_program(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = Apart(newest, monkeypatch)
    async with apart.pool("here") as pool:
        async with pool.session(key="a") as session:
            apart.late = mirroring.LEASE + 1.0
            theirs = await apart.ask_elsewhere("hi")
            with pytest.raises(SessionInUseError):
                await ask(session)
        assert await apart.store.saved() == [theirs]
        async with pool.session(key="a") as session:
            assert await ask(session) == "You said: hi"
            assert session.id == theirs


async def test_a_lapse_without_another_program_loses_nothing(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first prompt is sent, and a conversation that was cleared in the block is saved."""
    cleared = "00000000-0000-4000-8000-000000000009"

    apart = Apart(newest, monkeypatch)
    async with apart.pool("here") as pool, pool.session(key="a") as session:
        apart.late = mirroring.LEASE + 1.0
        assert await ask(session, "one") == "You said: one"
        first = session.id
        apart.late *= 2
        session._engine.name_session(cleared)
    assert await apart.store.saved() == [first, cleared]


async def test_a_first_prompt_that_was_not_sent_is_undone_after_a_lapse(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = Apart(newest, monkeypatch)
    async with apart.pool("here") as pool:
        async with pool.session(key="a") as session:
            with pytest.raises(OptionsError):
                await session.send_user_message([])
            apart.late = mirroring.LEASE + 1.0
        async with pool.session(key="a") as session:
            assert await ask(session, "one") == "You said: one"


async def test_a_key_that_another_program_has_after_a_lapse_is_named_in_the_error(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = Apart(newest, monkeypatch)
    async with apart.pool("here") as pool:
        async with pool.session(key="a") as session:
            await ask(session, "one")
        await apart.is_stored(session.id, "You said: one")
        apart.late = mirroring.LEASE + 1.0
        async with apart.pool("elsewhere") as other, other.session(key="a"):
            with pytest.raises(SessionInUseError, match="'a'") as caught:
                await pool.session(key="a").__aenter__()
            assert "fork_session" not in str(caught.value)


async def test_a_write_that_was_cancelled_is_not_that_of_another_program(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has it nevertheless. Then the lease lapses."""

    apart = Apart(newest, monkeypatch)
    async with apart.pool("here") as pool, pool.session(key="a") as session:
        apart.store.go.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.send_user_message("one"), 0.3)
        apart.store.go.set()
        apart.late = mirroring.LEASE + 1.0
        assert await ask(session, "two") == "You said: two"


async def test_a_lapse_does_not_lock_the_key_out_of_its_own_pool(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the store cannot release the lease of the key."""

    async def fail(session_id: str, owner: str) -> None:
        if session_id == NAME.session_id:
            raise OSError("connection reset")
        await Store.release(apart.store, session_id, owner)

    apart = Apart(newest, monkeypatch)

    async with apart.pool("here") as pool:
        async with pool.session(key="a") as session:
            await ask(session, "one")
            pid = session.pid
        apart.late = mirroring.LEASE + 1.0
        await pool._work._keys._leases["a"].renew()
        with monkeypatch.context() as patch:
            patch.setattr(apart.store, "release", fail)
            async with pool.session(key="a") as session:
                assert session.pid != pid
                pid = session.pid
        async with pool.session(key="a") as session:
            assert session.pid == pid  # the lapse is over


async def test_a_lease_that_lapsed_and_is_free_is_kept(set_limits: SetLimits) -> None:
    """A session that could not reach its store for a while goes on."""
    late = 0.0
    set_limits(lease_clock=lambda: time.monotonic() + late)

    async def ask(acquire: Any, *args: Any) -> bool:
        return bool(await acquire(*args))

    lost: list[SessionInUseError] = []
    held = leases.Leases(Store(clock=lambda: time.time() + late), lost.append)
    await held.take("a", ask)
    late = mirroring.LEASE + 1.0
    assert held.has_lapsed
    await held.renew()
    assert (lost, held.has_lapsed) == ([], True)
    await held.aclose()


async def test_a_lost_lease_is_taken_again_before_the_next_use() -> None:
    store = Store()
    keys = PoolKeys(store, 5.0)
    await keys.take("a")
    keys._lost.add("a")
    store.is_taken = True
    with pytest.raises(SessionInUseError):
        await keys.take("a")
    store.is_taken = False
    store._leases.clear()
    await keys.take("a")
    assert not keys.is_lost("a")
    await keys.release("a")
    assert store._leases == {}


# -- writing the conversation of a key -------------------------------------------------------------


@pytest.mark.parametrize("is_repeated", [False, True])
async def test_a_first_prompt_whose_save_was_cancelled_leaves_the_key_usable(
    newest: Lab, is_repeated: bool
) -> None:
    """Some libraries repeat a cancellation until the block has ended."""

    store = Store()
    async with pool_of(newest.agent(store=store), size=1, ready=0, max_age=1e-6) as pool:

        async def use() -> None:
            async with pool.session(key="a") as session:
                await ask(session)

        store.go.clear()
        using = asyncio.create_task(use())
        await store.wrote.wait()
        using.cancel()
        while is_repeated and not using.done():
            await asyncio.sleep(0)
            using.cancel()
        await asyncio.wait([using])
        store.go.set()
        async with pool.session(key="a") as session:
            assert await ask(session) == "You said: hi"
            assert await store.saved() == [session.id]


@pytest.mark.parametrize("limits", [{}, {"ready": 0, "max_age": 1e-6}])
@pytest.mark.parametrize(("retention", "later"), [(None, 1), (1e6, 2)])
async def test_the_uses_of_a_key_write_it_at_most_once_in_an_hour(
    newest: Lab,
    set_limits: SetLimits,
    limits: dict[str, Any],
    retention: float | None,
    later: int,
) -> None:
    """Whether its process was kept or not. A store that keeps everything gets it once."""

    store = Store(retention=retention)
    async with pool_of(newest.agent(store=store), size=1, **limits) as pool:
        for number, expected in enumerate((1, 1, 1, later, later)):
            if number == 3:
                set_limits(key_clock=lambda: time.time() + 3600.0)
            async with pool.session(key="a") as session:
                await ask(session)
            assert len(await store.saved()) == expected


async def test_a_key_is_written_more_often_if_the_retention_is_short(
    set_limits: SetLimits,
) -> None:
    now = [0.0]
    set_limits(key_clock=lambda: now[0])
    store, session_id = Store(retention=600.0), "00000000-0000-4000-8000-000000000001"
    keys = PoolKeys(store, 5.0)
    await keys.save("a", Conversation(session_id, "/"))
    for now[0], expected in ((149.0, 1), (150.0, 2), (299.0, 2), (300.0, 3)):
        await keys.refresh("a", Conversation(session_id, "/"))
        assert len(await store.saved()) == expected


async def test_a_store_that_fails_does_not_replace_the_error_of_a_block(
    newest: Lab, caplog: pytest.LogCaptureFixture, set_limits: SetLimits
) -> None:
    with caplog.at_level("WARNING", "bridle.pool"):
        store = Store(retention=1e6)
        async with pool_of(newest.agent(store=store), size=1, ready=0, max_age=1e-6) as pool:
            async with pool.session(key="a") as session:
                await ask(session)
            store.is_full = True
            set_limits(key_clock=lambda: time.time() + 3600.0)

            async def fail() -> None:
                async with pool.session(key="a") as session:
                    await ask(session)
                    raise ValueError("mine")

            with pytest.raises(ValueError, match="mine"):
                await fail()
            async with pool.session(key="a") as session:
                assert await ask(session) == "You said: hi"
    assert "disk full" in caplog.text


async def test_a_first_prompt_that_cannot_be_undone_is_logged(
    newest: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(Store):
        async def delete(self, key: SessionKey) -> None:
            self.is_full = True
            raise OSError("no delete")

    with caplog.at_level("WARNING", "bridle.pool"):
        pool = newest.agent(store=Stuck()).pool(size=1)
        async with pool, pool.session(key="a") as session:
            with pytest.raises(OptionsError):
                _ = await session.send_user_message([])
    assert "disk full" in caplog.text


async def test_a_conversation_that_was_cleared_and_not_saved_is_reported(newest: Lab) -> None:
    store = Store()
    async with newest.agent(store=store).pool(size=1) as pool:
        borrowed = pool.session(key="a")
        session: Any = await borrowed.__aenter__()
        await ask(session)
        store.is_full = True
        session._engine.name_session("00000000-0000-4000-8000-000000000000")
        with pytest.raises(StoreError, match="disk full"):
            await borrowed.__aexit__(None, None, None)


# -- cancellation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_forgetting", [False, True])
async def test_a_caller_that_is_cancelled_again_and_again_leaves_no_lease(
    newest: Lab, is_forgetting: bool
) -> None:
    """As anyio does it until its scope has ended."""

    class Slow(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.granted = asyncio.Event()

        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            is_ours = await super().acquire(session_id, owner, seconds)
            if not self.granted.is_set():
                self.granted.set()
                await asyncio.Event().wait()
            return is_ours

        async def release(self, session_id: str, owner: str) -> None:
            await asyncio.sleep(0)
            await super().release(session_id, owner)

    store = Slow()
    async with pool_of(newest.agent(store=store), size=1, ready=0) as pool:
        work: Any = pool.forget("a") if is_forgetting else pool.session(key="a").__aenter__()
        using = asyncio.create_task(work)
        await store.granted.wait()
        while not using.done():
            using.cancel()
            await asyncio.sleep(0)
        async with pool.session(key="a") as session:
            assert await ask(session) == "You said: hi"
