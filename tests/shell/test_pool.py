"""Pools on the fake CLI: ready processes, keys, the queue, limits, and the blocking twin."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.pools import Lab, Processes, ask, chat, parked, pool_of
from tests.support.processes import is_alive, run, until
from tests.support.steps import ReplaceSteps

import bridle
from bridle import Agent, OptionsError, PoolTimeout, ToolContext
from bridle._pool.pooled import PooledRun
from bridle.errors import (
    CliNotFoundError,
    SessionInUseError,
    SessionNotFoundError,
    StartError,
    UsageError,
)
from bridle.sessions import MemoryStore, SessionKey
from bridle.testing import FakeCli


@pytest.fixture(params=["2.1.326", "2.1.197"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A laboratory for each of the CLIs that the fake can imitate."""
    made = Lab(tmp_path, request.param)
    with made.cli:
        yield made


@pytest.fixture
def newest(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "2.1.326")
    with made.cli:
        yield made


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "2.1.197")
    with made.cli:
        yield made


# -- runs ------------------------------------------------------------------------------------------


async def test_runs_use_processes_that_were_started_before(lab: Lab) -> None:
    async with lab.agent().pool(size=2) as pool:
        assert pool.metrics.ready == 2
        first = [one.pid for one in parked(pool)]
        outcomes = await asyncio.gather(*(pool.run(f"number {n}") for n in range(5)))
        assert [one.text for one in outcomes] == [f"You said: number {n}" for n in range(5)]
        assert len({one.session_id for one in outcomes}) == 5
        await until(lambda: pool.metrics.ready == 2)
        numbers = pool.metrics
        assert (numbers.in_use, numbers.waiting, numbers.lost) == (0, 0, 0)
        assert numbers.from_ready + numbers.from_start == 5
        assert numbers.from_ready >= 2
        last = [one.pid for one in parked(pool)]
        assert not {*first} & {*last}  # a process that was used is not used again
    assert not any(map(is_alive, [*first, *last]))


async def test_a_run_takes_all_arguments_of_an_agents_run(lab: Lab) -> None:
    seen: list[Any] = []

    @bridle.tool
    def price(item: str, context: ToolContext) -> int:
        """Return a price."""
        seen.append(context.deps)
        return len(item)

    agent = lab.agent(tools=[price], append_system_prompt=lambda deps: f"You serve {deps}.")
    async with agent.pool(size=1, retry=bridle.Retry(attempts=2)) as pool:
        prompt = 'CALL mcp__tools__price {"item": "abc"}'
        outcome = await pool.run(prompt, deps="Ada", keep_messages=True)
        assert (outcome.ok, outcome.tool_calls) == (True, 1)
        assert outcome.messages
        await pool.run(prompt, deps="Bob", retry=None)
    lines = [entry.members for entries in lab.cli.runs for entry in entries]
    greetings = [one["request"] for one in lines if "appendSystemPrompt" in str(one)]
    prompts = {one["appendSystemPrompt"] for one in greetings}
    assert prompts == {"You serve Ada.", "You serve Bob."}
    assert seen == ["Ada", "Bob"]


async def test_a_process_that_has_died_is_never_handed_out(lab: Lab) -> None:
    async with lab.agent().pool(size=1) as pool:
        [ready] = parked(pool)
        os.kill(ready.pid, signal.SIGKILL)
        await until(lambda: pool.metrics.lost == 1)
        assert (await pool.run("hi")).text == "You said: hi"
        assert pool.metrics.from_start == 1


async def test_a_process_that_dies_in_the_moment_of_the_hand_over_is_replaced(lab: Lab) -> None:
    async with lab.agent().pool(size=1) as pool:
        [ready] = parked(pool)
        os.kill(ready.pid, signal.SIGKILL)
        # The event loop had no chance to notice it.
        assert (await pool.run("hi")).text == "You said: hi"
        assert pool.metrics.from_ready == 1


async def test_a_session_gets_another_process_if_the_ready_one_dies(lab: Lab) -> None:
    async with lab.agent().pool(size=1) as pool:
        [ready] = parked(pool)
        os.kill(ready.pid, signal.SIGKILL)
        async with pool.session() as session:
            assert session.pid != ready.pid
            assert await ask(session) == "You said: hi"


async def test_a_pool_without_a_cli_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(CliNotFoundError):
        async with Agent(cli_path=str(tmp_path / "none")).pool():
            pass


async def test_callers_get_the_error_of_a_cli_that_does_not_start(tmp_path: Path) -> None:
    with FakeCli().bad_flag() as cli:
        async with Agent(cli_path=cli.path, cwd=str(tmp_path)).pool(size=1) as pool:
            with pytest.raises(StartError):
                await pool.run("hi")
            assert pool.metrics.in_use == 0


# -- directories -----------------------------------------------------------------------------------


async def test_a_claimed_process_works_in_another_directory(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(cwd=newest.other) as session:
            await ask(session)
        assert pool.metrics.from_ready == 1
    assert newest.notes("claimed") == [str(newest.other)]


async def test_an_older_cli_is_started_in_another_directory(older: Lab) -> None:
    async with older.agent().pool(size=1) as pool:
        async with pool.session(cwd=older.other) as session:
            await ask(session)
        assert (pool.metrics.from_ready, pool.metrics.from_start) == (0, 1)
    assert str(older.other) in older.notes("cwd")
    assert not any("--await-claim" in argv for argv in older.notes("argv"))


async def test_a_directory_that_cannot_be_claimed_gets_a_new_process(newest: Lab) -> None:
    """Settings with `env` count only at its start: `project_settings_not_claimable`."""
    (newest.other / ".claude").mkdir()
    (newest.other / ".claude" / "settings.json").write_text('{"env": {"A": "b"}}')

    async with newest.agent().pool(size=1) as pool:
        for _ in range(2):
            assert (await pool.run("hi", cwd=newest.other)).ok
        # The second run does not try again.
        assert (pool.metrics.from_ready, pool.metrics.from_start) == (1, 1)
        assert (await pool.run("hi")).ok
        await until(lambda: pool.metrics.ready == 1)
        assert parked(pool)[0].launch.awaits_claim


async def test_an_agent_whose_own_directory_cannot_be_claimed_keeps_started_processes(
    newest: Lab,
) -> None:
    (newest.work / ".claude").mkdir()
    (newest.work / ".claude" / "settings.json").write_text('{"env": {"A": "b"}}')

    async with newest.agent().pool(size=1) as pool:
        assert (await pool.run("hi")).ok
        await until(lambda: pool.metrics.ready == 1)
        assert not parked(pool)[0].launch.awaits_claim
        assert (await pool.run("hi")).ok
        assert pool.metrics.from_ready == 2


@pytest.mark.parametrize("is_run", [True, False])
async def test_a_caller_that_cannot_use_a_ready_process_leaves_it(
    newest: Lab, is_run: bool
) -> None:
    """A relative path means another file in another directory."""

    for directory in (newest.work, newest.other):
        (directory / "more").mkdir()
    async with pool_of(newest.agent(add_dirs=["more"]), size=2, ready=1) as pool:
        [ready] = parked(pool)
        for _ in range(2):
            if is_run:
                assert (await pool.run("hi", cwd=newest.other)).ok
            else:
                async with pool.session(cwd=newest.other) as session:
                    await ask(session)
        assert (pool.metrics.from_ready, pool.metrics.from_start) == (0, 2)
        assert parked(pool) == [ready]
        assert (await pool.run("hi")).ok
        assert pool.metrics.from_ready == 1


async def test_options_that_change_on_the_disk_count_for_the_next_session(lab: Lab) -> None:
    settings = lab.home / "settings.json"
    settings.write_text("{}")

    agent = lab.agent(settings=str(settings), on_pre_tool_use=lambda _: None)
    async with agent.pool(size=1) as pool:
        [ready] = parked(pool)
        settings.write_text('{"model": "opus"}')
        async with pool.session() as session:
            assert session.pid != ready.pid


async def test_no_process_waits_that_would_miss_a_hook(older: Lab) -> None:
    """A CLI without a claim runs SessionStart hooks when it starts."""

    hooks = {"SessionStart": [bridle.Hook(lambda _: None)]}
    async with older.agent(hooks=hooks).pool(size=1) as pool:
        assert pool.metrics.ready == 0
        assert (await pool.run("hi")).ok


# -- the queue -------------------------------------------------------------------------------------


async def test_callers_wait_in_order(lab: Lab) -> None:
    order: list[int] = []

    async def use(number: int) -> None:
        async with pool.session():
            order.append(number)

    async with lab.agent().pool(size=1) as pool:
        async with pool.session():
            tasks = [asyncio.create_task(use(number)) for number in range(4)]
            await until(lambda: pool.metrics.waiting == 4)
        await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]


async def test_a_caller_that_waits_too_long_gets_a_typed_error(newest: Lab) -> None:
    async with newest.agent().pool(size=1, timeout=0.05) as pool, pool.session(key="a"):
        with pytest.raises(PoolTimeout) as caught:
            await pool.run("hi")
        assert (caught.value.timeout, caught.value.size, caught.value.key) == (0.05, 1, None)
        with pytest.raises(TimeoutError):
            async with pool.session(key="a", timeout=0.01):
                pass
        assert (pool.metrics.timeouts, pool.metrics.waiting) == (2, 0)


async def test_a_cancelled_caller_leaves_the_queue(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session():
            waiting = asyncio.create_task(pool.run("one"))
            second = asyncio.create_task(pool.run("two"))
            await until(lambda: pool.metrics.waiting == 2)
            waiting.cancel()
            await until(lambda: pool.metrics.waiting == 1)
        assert (await second).text == "You said: two"
        assert waiting.cancelled()


async def test_a_caller_that_is_cancelled_with_its_place_gives_it_back(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
        calls: list[dict[str, Any]] = [{}, {"key": "a"}, {"cwd": newest.other}]
        for wanted in calls:
            task = asyncio.create_task(pool.session(**wanted).__aenter__())
            await asyncio.sleep(0)  # it has its place, or has asked for it
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        assert (await pool.run("hi")).ok


async def test_a_cancelled_run_frees_its_place(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        task = asyncio.create_task(pool.run("SLOW"))
        await until(lambda: pool.metrics.in_use == 1)
        task.cancel()
        await asyncio.wait([task])
        assert pool.metrics.in_use == 0
        assert (await pool.run("hi")).ok


# -- keys ------------------------------------------------------------------------------------------


async def test_a_key_keeps_its_process_and_its_conversation(lab: Lab) -> None:
    async with lab.agent().pool(size=2) as pool:
        pids, ids = set(), set()
        for _ in range(3):
            async with pool.session(key="user-7") as session:
                await ask(session)
                pids.add(session.pid)
                ids.add(session.id)
        assert (len(pids), len(ids)) == (1, 1)
        assert pool.metrics.from_idle == 2


@pytest.mark.longer
async def test_twenty_users_chat_on_four_processes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key has one conversation, and never two processes."""
    rounds = 2
    processes = Processes(monkeypatch)
    async with lab.agent().pool(size=4) as pool:
        ids = await chat(pool, 20, rounds)
        numbers = pool.metrics
        served = numbers.from_ready + numbers.from_idle + numbers.from_start
        assert served == 20 * rounds
        assert numbers.idle <= 4
    assert all(len(one) == 1 for one in ids.values())
    used = set.union(*ids.values())
    assert len(used) == 20
    assert used <= processes.seen
    assert processes.starts >= 20
    assert (processes.of_one, processes.in_all) == (1, 4)


async def test_an_unused_key_is_closed_and_resumed(lab: Lab) -> None:
    async with pool_of(lab.agent(), size=1, ready=0, max_idle=0.05) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
            first = (session.pid, session.id)
        await until(lambda: pool.metrics.idle == pool.metrics.closing == 0)
        assert not is_alive(first[0] or 0)
        async with pool.session(key="a") as session:
            assert session.pid != first[0]
            assert session.id == first[1]
            assert await ask(session) == "You said: hi"


async def test_an_old_process_is_replaced(newest: Lab) -> None:
    async with pool_of(newest.agent(), size=1, ready=0, max_age=1e-6) as pool:
        seen = []
        for _ in range(2):
            async with pool.session(key="a") as session:
                await ask(session)
                seen.append((session.pid, session.id))
        assert seen[0][0] != seen[1][0]
        assert seen[0][1] == seen[1][1]


async def test_the_idle_process_of_a_key_that_died_is_replaced(lab: Lab) -> None:
    async with lab.agent().pool(size=1) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
            first = session.pid or 0
        os.kill(first, signal.SIGKILL)
        async with pool.session(key="a") as session:
            assert session.pid != first
            assert await ask(session) == "You said: hi"


async def test_a_process_that_hangs_is_never_handed_out(newest: Lab) -> None:
    """Neither one that is ready, nor the idle one of a key."""

    agent = newest.agent(init_timeout=6.0, control_timeout=2.0)
    async with agent.pool(size=1) as pool:
        [ready] = parked(pool)
        os.kill(ready.pid, signal.SIGSTOP)
        async with pool.session(key="a") as session:
            assert await ask(session) == "You said: hi"
            second = session.pid or 0
        os.kill(second, signal.SIGSTOP)
        async with pool.session(key="a") as session:
            assert await ask(session) == "You said: hi"
            assert len({ready.pid, second, session.pid}) == 3
    assert not any(map(is_alive, (ready.pid, second)))


async def test_a_session_that_is_left_in_a_turn_is_closed(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
            first = session.pid
            turn = await session.send_user_message("SLOW")
        assert (await turn).reason == "interrupted"
        async with pool.session(key="a") as session:
            assert session.pid != first
            assert await ask(session) == "You said: hi"


async def test_a_session_that_the_caller_stopped_is_replaced(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        for _ in range(2):
            async with pool.session(key="a") as session:
                await ask(session)
                await session.aclose()


async def test_a_key_without_a_prompt_has_no_conversation_to_resume(lab: Lab) -> None:
    async with pool_of(lab.agent(), size=1, ready=0, max_age=1e-6) as pool:
        async with pool.session(key="a") as session:
            first = session.id
        async with pool.session(key="a") as session:
            assert session.id != first
            await ask(session)


async def test_each_caller_of_a_key_has_its_own_deps_and_readers(newest: Lab) -> None:
    seen: list[object] = []

    @bridle.tool
    def note(context: ToolContext) -> None:
        """Note the deps."""
        seen.append(context.deps)

    async with newest.agent(tools=[note]).pool(size=1) as pool:
        async with pool.session(key="a", deps=1) as session:
            left = session.messages()
            await ask(session, "CALL mcp__tools__note {}")
        async with pool.session(key="a", deps=2) as session:
            assert session.deps == 2
            await ask(session, "CALL mcp__tools__note {}")
            assert [message async for message in left] == []
    assert seen == [1, 2]


async def test_a_key_keeps_its_directory(lab: Lab) -> None:
    async with pool_of(lab.agent(), size=1, ready=0, max_age=1e-6) as pool:
        async with pool.session(key="a", cwd=lab.other) as session:
            await ask(session)
        with pytest.raises(OptionsError) as caught:
            async with pool.session(key="a", cwd=lab.work):
                pass
        assert caught.value.field == "cwd"
        for cwd in (None, lab.other):
            async with pool.session(key="a", cwd=cwd) as session:
                await ask(session)


async def test_a_key_can_be_forgotten(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
            first = session.id
            with pytest.raises(UsageError):
                await pool.forget("a")
        await pool.forget("a")
        async with pool.session(key="a") as session:
            assert session.id != first


async def test_a_conversation_whose_transcript_was_removed_is_reported(newest: Lab) -> None:
    store = MemoryStore()
    async with pool_of(newest.agent(store=store), size=1, ready=0) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
            first = session.id
            await session.stop()
        await until(lambda: pool.metrics.closing == 0)
        await store.delete(SessionKey(first or ""))
        for path in newest.home.rglob(f"{first}.jsonl"):
            path.unlink()
        with pytest.raises(SessionNotFoundError):
            async with pool.session(key="a"):
                pass
        await pool.forget("a")
        async with pool.session(key="a") as session:
            assert await ask(session) == "You said: hi"


async def test_a_store_keeps_the_keys_for_the_next_program(lab: Lab) -> None:
    store = MemoryStore()

    ids = []
    for _ in range(2):
        pool = lab.agent(store=store).pool(size=1)
        async with pool, pool.session(key="a") as session:
            await ask(session)
            ids.append(session.id)
    assert ids[0] == ids[1]
    assert len(await store.list()) == 1


async def test_another_program_cannot_use_an_open_key(newest: Lab) -> None:
    store = MemoryStore()

    agent = newest.agent(store=store)
    pool, other = agent.pool(size=1), agent.pool(size=1)
    async with pool, other, pool.session(key="a"):
        with pytest.raises(SessionInUseError):
            async with other.session(key="a"):
                pass
        assert other.metrics.in_use == 0


# -- closing ---------------------------------------------------------------------------------------


async def test_closing_rejects_callers_and_lets_work_finish(newest: Lab) -> None:
    pool = newest.agent().pool(size=1)
    await pool.__aenter__()
    left = asyncio.Event()

    async def use() -> str:
        async with pool.session() as session:
            await left.wait()
            return await ask(session)

    using = asyncio.create_task(use())
    await until(lambda: pool.metrics.in_use == 1)
    waiting = asyncio.create_task(pool.run("hi"))
    await until(lambda: pool.metrics.waiting == 1)
    closing = asyncio.create_task(pool.aclose())
    with pytest.raises(UsageError):
        await waiting
    with pytest.raises(UsageError):
        await pool.run("hi")
    left.set()
    assert await using == "You said: hi"
    await closing
    await pool.aclose()
    assert pool.metrics.in_use == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_closing_ends_work_that_takes_too_long(
    newest: Lab, set_limits: SetLimits, is_cancelled: bool
) -> None:
    set_limits(closing_pool=60.0 if is_cancelled else 0.05)
    pool = newest.agent().pool(size=2)
    await pool.__aenter__()
    job = asyncio.create_task(pool.run("SLOW"))
    await until(lambda: any("SLOW" in str(lines[-3:]) for lines in newest.cli.runs))
    async with pool.session(key="a") as session:
        turn = await session.send_user_message("SLOW")
        pid = session.pid or 0
        closing = asyncio.create_task(pool.aclose())
        if is_cancelled:
            await asyncio.sleep(0)
            closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled() == is_cancelled
        assert not (await turn).ok
        assert not is_alive(pid)
    assert not (await job).ok


async def test_a_run_with_an_outcome_returns_it_if_the_pool_is_closed(tmp_path: Path) -> None:
    """The pool closes while the CLI takes long to exit."""

    fake = FakeCli(flavour="2.1.326").expect_initialize().expect_user().turn("Paid.")
    with fake.silence(reading=False) as cli:
        pool = pool_of(Agent(cli_path=cli.path, cwd=str(tmp_path)), size=1, ready=0)
        await pool.__aenter__()
        job = asyncio.create_task(pool.run("hi"))
        held = pool._work.places._held

        def is_shutting_down() -> bool:
            runs = [one for one in held.values() if isinstance(one, PooledRun)]
            return any(one.turn is not None and not one.session.alive for one in runs)

        await until(is_shutting_down)
        await pool.__aexit__(asyncio.CancelledError, None, None)
        assert (await job).text == "Paid."


async def test_a_pool_that_is_closed_while_it_opens_starts_nothing(
    newest: Lab, replace_steps: ReplaceSteps
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(*_: Any, **__: Any) -> None:
        asked.set()
        await go.wait()

    replace_steps(claim_version=slow)
    pool = newest.agent().pool(size=2)
    opening = asyncio.create_task(pool.__aenter__())
    await asked.wait()
    await pool.aclose()
    go.set()
    with pytest.raises(UsageError, match="closed"):
        await opening
    assert pool.metrics.ready == 0
    with pytest.raises(UsageError):
        await pool.run("hi")


async def test_a_closed_pool_forgets_no_key(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        pass
    with pytest.raises(UsageError, match="closed"):
        await pool.forget("a")


def test_a_pool_is_opened_once_on_one_event_loop(newest: Lab) -> None:
    pool = newest.agent().pool(size=1)
    with pytest.raises(UsageError):
        run(lambda: pool.run("hi"))

    async def main() -> None:
        await pool.aclose()  # nothing to do
        assert pool.metrics.ready == 0
        async with pool:
            with pytest.raises(UsageError):
                await pool.__aenter__()
            with pytest.raises(UsageError):
                await asyncio.to_thread(asyncio.run, pool.run("hi"))

    run(main)
    with pytest.raises(TypeError):
        pickle.dumps(pool)
    assert "size=1" in repr(pool)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("size", {"size": 0}),
        ("max_idle", {"max_idle": 0}),
        ("timeout", {"timeout": 0}),
        ("retry", {"retry": 3}),
        ("resume_session_id", {"resume_session_id": "x"}),
    ],
)
def test_arguments_of_a_pool_are_checked(
    newest: Lab, field: str, arguments: dict[str, Any]
) -> None:
    for make in (newest.agent().pool, newest.agent().sync.pool):
        with pytest.raises(OptionsError) as caught:
            make(**arguments)
        assert caught.value.field == field


async def test_arguments_of_runs_and_sessions_are_checked(newest: Lab) -> None:
    pool = newest.agent().pool()
    wrong: list[dict[str, Any]] = [{"key": ""}, {"key": 7}, {"cwd": 7}, {"session_id": "x"}]
    for arguments in wrong:
        with pytest.raises(OptionsError):
            pool.session(**arguments)
    wrong = [{"cwd": 7}, {"continue_session": True}, {"prompt": []}]
    for arguments in wrong:
        whole: dict[str, Any] = {"prompt": "hi", **arguments}
        with pytest.raises(OptionsError):
            await pool.run(**whole)
    with pytest.raises(OptionsError):
        newest.agent(no_session_persistence=True).pool().session(key="a")
    with pytest.raises(AttributeError, match="async with"):
        _ = pool.session().send_user_message


# -- the blocking twin -----------------------------------------------------------------------------


def test_the_blocking_twin_runs_prompts_and_hands_out_sessions(lab: Lab) -> None:
    sessions: list[object] = []

    @bridle.tool
    def note(context: ToolContext) -> str:
        """Note the session."""
        assert isinstance(context.session, bridle.sync.Session)
        sessions.append(context.session.id)
        return "noted"

    with lab.agent(tools=[note]).sync.pool(size=2) as pool:
        outcome = pool.run("CALL mcp__tools__note {}")
        assert (outcome.ok, sessions) == (True, [outcome.session_id])
        ids = []
        for _ in range(2):
            with pool.session(key="a") as session:
                assert isinstance(session, bridle.sync.Session)
                assert session.send_user_message("CALL mcp__tools__note {}").outcome().ok
                ids.append(session.id)
        assert sessions[1:] == ids
        assert ids[0] == ids[1]
        assert pool.metrics.from_idle == 1
        pool.forget("a")
        with pool.session(timeout=5.0), pool.session(), pytest.raises(PoolTimeout):
            pool.run("hi", timeout=0.05)
    with pytest.raises(UsageError):
        pool.run("hi")
    pool.aclose()


def test_the_blocking_twin_is_opened_once(newest: Lab) -> None:
    pool = newest.agent().sync.pool(size=1)
    pool.close()
    with pytest.raises(UsageError):
        pool.run("hi")
    with pool, pytest.raises(UsageError):
        pool.__enter__()
    with pytest.raises(TypeError):
        pickle.dumps(pool)
    assert "1 processes" in repr(pool)
