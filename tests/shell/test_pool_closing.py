"""Closing a pool: whatever a caller does at that moment, no process is left or started later."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.pools import Lab, ask, clis, pool_of
from tests.support.processes import LIMIT, run, until

from bridle import Agent, Retry
from bridle._pool.pool_work import PoolWork
from bridle.agent import Pool
from bridle.errors import UsageError
from bridle.sessions import MemoryStore, SessionKey
from bridle.sync import _portal as portal
from bridle.testing import FakeCli


@pytest.fixture
def newest(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "2.1.326")
    with made.cli:
        yield made


async def close_now(pool: Pool[Any]) -> None:
    """Close a pool, and cancel the call so that it waits for no caller."""
    closing = asyncio.create_task(pool.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])


@pytest.mark.parametrize("use", ["run", "session", "key"])
async def test_closing_during_a_claim_starts_no_other_process(tmp_path: Path, use: str) -> None:
    fake = FakeCli(flavour="2.1.326").expect_initialize().expect_request("claim_session")
    with fake.silence() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path))
        pool = agent.pool(size=1)
        await pool.__aenter__()

        async def borrow() -> None:
            async with pool.session(key="a" if use == "key" else None):
                pass

        caller = asyncio.create_task(pool.run("hi") if use == "run" else borrow())
        await until(lambda: any("claim_session" in str(lines) for lines in cli.runs))
        await close_now(pool)
        assert clis() == set()
        with pytest.raises(UsageError):
            await caller
        assert (len(cli.runs), pool.metrics.in_use) == (1, 0)


async def test_closing_during_the_handshake_is_reported_as_such(tmp_path: Path) -> None:
    with FakeCli(flavour="2.1.326").silence(reading=False) as cli:
        pool = pool_of(Agent(cli_path=cli.path, cwd=str(tmp_path)), size=1, ready=0)
        await pool.__aenter__()
        caller = asyncio.create_task(pool.run("hi"))
        await until(clis)
        await close_now(pool)
        assert clis() == set()
        with pytest.raises(UsageError):
            await caller


@pytest.mark.parametrize("is_pausing", [False, True])
async def test_closing_ends_a_run_that_continues_after_a_crash(
    newest: Lab, set_limits: SetLimits, is_pausing: bool
) -> None:
    """In its new process, and in the pause before that."""
    pauses: list[float] = []

    def pause(*_: object) -> float:
        pauses.append(3600.0 if is_pausing else 0.0)
        return pauses[-1]

    set_limits(pause_after_crash=pause)

    pool = newest.agent().pool(size=1, retry=Retry(attempts=2))
    await pool.__aenter__()
    job = asyncio.create_task(pool.run("SLOW"))
    await until(lambda: any("SLOW" in str(lines[-3:]) for lines in newest.cli.runs))
    [first] = clis()
    os.kill(first, signal.SIGKILL)
    await until(lambda: pauses)
    if not is_pausing:
        await until(lambda: [pid for pid in clis() if pid != first])
    await close_now(pool)
    assert clis() == set()
    with pytest.raises(UsageError):
        await job
    assert clis() == set()


async def test_closing_while_the_store_loads_a_key_starts_no_process(newest: Lab) -> None:
    class Stuck(MemoryStore):
        calls = 0

        async def load(self, key: SessionKey) -> Any:
            self.calls += 1
            if self.calls == 2:  # the caller has its place
                await asyncio.Event().wait()
            return await super().load(key)

    store = Stuck()
    pool = pool_of(newest.agent(store=store), size=1, ready=0)
    await pool.__aenter__()

    async def borrow() -> None:
        async with pool.session(key="a"):
            pass

    caller = asyncio.create_task(borrow())
    await until(lambda: store.calls == 2)
    await close_now(pool)
    with pytest.raises(UsageError):
        await caller
    assert newest.cli.runs == []


async def test_a_caller_that_gets_its_place_while_the_pool_closes_starts_no_process(
    newest: Lab, set_limits: SetLimits
) -> None:
    set_limits(closing_pool=0.0)
    pool = pool_of(newest.agent(), size=1, ready=0)
    await pool.__aenter__()
    caller = asyncio.create_task(pool.run("hi"))
    work: PoolWork = pool._work
    await until(lambda: work.places.table.metrics().in_use == 1)
    await pool.aclose()
    with pytest.raises(UsageError):
        await caller
    assert clis() == set()


async def test_cancelling_the_block_waits_for_no_caller(newest: Lab, set_limits: SetLimits) -> None:
    set_limits(closing_pool=3600.0)
    entered = asyncio.Event()
    jobs: list[asyncio.Task[Any]] = []

    async def serve() -> None:
        async with newest.agent().pool(size=1) as pool:
            jobs.append(asyncio.create_task(pool.run("SLOW")))
            await until(lambda: any("SLOW" in str(lines[-3:]) for lines in newest.cli.runs))
            entered.set()
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await entered.wait()
    serving.cancel()
    await asyncio.wait([serving], timeout=LIMIT)
    assert serving.cancelled()
    assert (await jobs[0]).reason == "interrupted"
    assert clis() == set()


async def test_an_unexpected_error_of_a_start_in_advance_costs_no_caller_its_place(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(newest.agent(), size=2, ready=1)
    async with pool:
        places = pool._work.places

        def fail(_: object) -> Any:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(places, "_make_parked", fail)
        # The ready process is handed out, and another one is started in advance.
        assert (await pool.run("hi")).ok
        assert (pool.metrics.in_use, pool.metrics.lost) == (0, 1)
        assert places._timer is not None


# -- Ctrl-C in the blocking twin -------------------------------------------------------------------


class Interrupting:
    """Raises KeyboardInterrupt in the thread that waits, at a chosen moment."""

    def __init__(self, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = pool._made[0]
        self._patch = monkeypatch

    def after_the_call(self) -> None:
        """Ctrl-C when the coroutine has ended, and the thread has not seen it."""
        real = portal._Call

        def make(work: Any, home: Any) -> Any:
            self._patch.setattr(portal, "_Call", real)
            call = real(work, home)
            done = call.done

            class Waiting:
                put = staticmethod(done.put)

                @staticmethod
                def get() -> Any:
                    _ = done.get()
                    raise KeyboardInterrupt

            call.done = Waiting()  # type: ignore[assignment]
            return call

        self._patch.setattr(portal, "_Call", make)

    def before_the_first_step(self) -> None:
        """Ctrl-C while the loop is busy, so that the call is cancelled before it begins."""
        real = portal._Call

        def make(work: Any, home: Any) -> Any:
            self._patch.setattr(portal, "_Call", real)
            call = real(work, home)
            go = threading.Event()
            home.post(go.wait)

            class Waiting:
                put = staticmethod(call.done.put)

                @staticmethod
                def get() -> Any:
                    # The loop starts and cancels the task in one step.
                    home.post(call.cancel)
                    go.set()
                    raise KeyboardInterrupt

            call.done = Waiting()  # type: ignore[assignment]
            return call

        self._patch.setattr(portal, "_Call", make)


def test_ctrl_c_loses_no_place_of_the_blocking_twin(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with newest.agent().sync.pool(size=1, timeout=20.0) as pool:
        ctrl_c = Interrupting(pool, monkeypatch)
        session = pool.session()
        ctrl_c.after_the_call()
        with pytest.raises(KeyboardInterrupt):
            session.__enter__()
        with pool.session(key="a") as used:
            assert used.send_user_message("hi").outcome().ok

        session = pool.session(key="a")
        session.__enter__()
        ctrl_c.before_the_first_step()
        with pytest.raises(KeyboardInterrupt):
            session.__exit__(None, None, None)
        assert pool.run("hi").ok


def test_ctrl_c_while_the_blocking_twin_closes_ends_its_processes(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = newest.agent().sync.pool(size=1)
    pool.__enter__()
    Interrupting(pool, monkeypatch).before_the_first_step()
    with pytest.raises(KeyboardInterrupt):
        pool.close()
    run(lambda: until(lambda: clis() == set()))


async def test_one_session_object_is_borrowed_by_one_caller_at_a_time(newest: Lab) -> None:
    async with newest.agent().pool(size=2) as pool:
        one = pool.session()
        async with one as session:
            with pytest.raises(UsageError):
                await one.__aenter__()
            assert await ask(session) == "You said: hi"
        async with one as session:
            assert await ask(session) == "You said: hi"


@pytest.mark.parametrize("is_forced", [False, True])
async def test_closing_a_pool_waits_until_a_key_is_forgotten(newest: Lab, is_forced: bool) -> None:
    """A forced close ends the call. The lease of the key is given back in both cases."""

    class Slow(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.go = asyncio.Event(), asyncio.Event()

        async def delete(self, key: SessionKey) -> None:
            self.begun.set()
            await self.go.wait()
            await super().delete(key)

    store = Slow()
    pool = pool_of(newest.agent(store=store), size=1, ready=0)
    await pool.__aenter__()
    async with pool.session(key="a") as session:
        await ask(session)
    forgetting = asyncio.create_task(pool.forget("a"))
    await store.begun.wait()
    if is_forced:
        await close_now(pool)
        with pytest.raises(UsageError, match="closed"):
            await forgetting
    else:
        closing = asyncio.create_task(pool.aclose())
        await asyncio.sleep(0.1)
        assert not closing.done()
        store.go.set()
        await closing
        assert forgetting.done()
        await forgetting
    assert store._leases == {}
