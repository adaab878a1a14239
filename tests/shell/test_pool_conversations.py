"""The conversation of a key: its directory, its options, its readers and its place in a store."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.pools import Lab, ask, parked, pool_of
from tests.support.processes import until
from tests.support.steps import ReplaceSteps

from bridle import Agent, Allow, AllowAll, OptionsError, ResultMessage
from bridle._pool.keys import _name
from bridle._process import locate
from bridle._session.actor import Actor
from bridle.content import TextBlock
from bridle.errors import (
    InitializationTimeout,
    SessionInUseError,
    SessionStopped,
    StoreError,
    UsageError,
)
from bridle.sessions import MemoryStore, SessionKey
from bridle.testing import FakeCli


@pytest.fixture
def newest(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "2.1.326")
    with made.cli:
        yield made


# -- directories -----------------------------------------------------------------------------------


async def test_an_idle_process_without_a_prompt_is_not_used_for_another_directory(
    newest: Lab,
) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a", cwd=newest.other):
            pass
        async with pool.session(key="a", cwd=newest.work) as session:
            assert session._connection.launch.cwd == str(newest.work)
            assert await ask(session) == "You said: hi"
        # Without a directory, the key keeps the one that it has.
        async with pool.session(key="a") as session:
            assert session._connection.launch.cwd == str(newest.work)


async def test_a_caller_that_waits_for_a_key_gets_no_session_in_another_directory(
    newest: Lab,
) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a", cwd=newest.other) as session:
            waiting = asyncio.create_task(pool.session(key="a", cwd=newest.work).__aenter__())
            await until(lambda: pool.metrics.waiting == 1)
            await ask(session)
            pid = session.pid
        with pytest.raises(OptionsError) as caught:
            await waiting
        assert caught.value.field == "cwd"
        # The error costs the key nothing.
        async with pool.session(key="a") as session:
            assert session.pid == pid


async def test_a_key_of_another_machine_uses_the_directory_of_the_agent(newest: Lab) -> None:
    store = MemoryStore()
    gone = newest.home / "gone"
    gone.mkdir()
    pool = newest.agent(store=store, cwd=str(gone)).pool(size=1)
    async with pool, pool.session(key="a") as session:
        await ask(session)
        first = session.id
    gone.rmdir()
    agent = newest.agent(store=store)
    for cwd in (None, newest.work):
        async with agent.pool(size=1) as pool, pool.session(key="a", cwd=cwd) as session:
            assert session.id == first
            assert await ask(session) == "You said: hi"


async def test_a_key_keeps_its_directory_while_another_machine_uses_it(newest: Lab) -> None:
    """The other machine does not have the directory, and uses that of its agent."""
    first, hidden = newest.home / "first", newest.home / "hidden"
    first.mkdir()

    store = MemoryStore()

    async def use(directory: Path, cwd: Path | None = None) -> str:
        agent = newest.agent(store=store, cwd=str(directory))
        async with pool_of(agent, size=1, ready=0) as pool, pool.session(key="a", cwd=cwd) as one:
            assert await ask(one) == "You said: hi"
            session: Any = one
            return str(session._connection.launch.cwd)

    assert await use(newest.work, first) == str(first)
    first.rename(hidden)
    assert await use(newest.other) == str(newest.other)
    hidden.rename(first)
    assert await use(newest.work) == str(first)
    assert await use(newest.work, first) == str(first)


# -- what a store keeps ----------------------------------------------------------------------------


async def test_a_key_that_is_used_outlives_the_retention_of_its_store(
    newest: Lab, set_limits: SetLimits
) -> None:
    """A store deletes what was last written too long ago. Each use of a key counts."""
    day = 86400.0
    now = [0.0]
    set_limits(key_clock=lambda: now[0])

    store = MemoryStore(retention=7 * day, clock=lambda: now[0])
    async with pool_of(newest.agent(store=store), size=1, ready=0, max_age=1e-6) as pool:
        ids = set()
        for _ in range(10):
            for key in ("a", "b"):
                async with pool.session(key=key) as session:
                    await ask(session)
                    ids.add(session.id)
                await until(lambda: pool.metrics.closing == 0)
            now[0] += day
        assert len(ids) == 2


async def test_a_store_without_delete_can_forget_a_key(newest: Lab) -> None:
    """The official protocol does not require `delete`."""

    class Smallest:
        def __init__(self) -> None:
            self.lists: dict[str, list[Any]] = {}

        async def append(self, key: Any, entries: list[Any]) -> None:
            self.lists.setdefault(str(key), []).extend(entries)

        async def load(self, key: Any) -> list[Any] | None:
            return self.lists.get(str(key))

    store = Smallest()
    for is_forgotten in (False, True):
        async with pool_of(newest.agent(store=store), size=1, ready=0, max_age=1e-6) as pool:
            async with pool.session(key="a") as session:
                if is_forgotten:
                    await ask(session)
                else:
                    with pytest.raises(OptionsError):
                        _ = await session.send_user_message([])
                first = session.id
            if is_forgotten:
                await pool.forget("a")
        async with newest.agent(store=store).pool(size=1) as pool:
            async with pool.session(key="a") as session:
                assert await ask(session) == "You said: hi"
                assert session.id != first
            await pool.forget("a")


async def test_a_first_prompt_that_was_not_sent_leaves_the_key_usable(newest: Lab) -> None:
    store = MemoryStore()
    for options in ({}, {"store": store}):
        async with pool_of(newest.agent(**options), size=1, ready=0, max_age=1e-6) as pool:
            async with pool.session(key="a") as session:
                with pytest.raises(OptionsError):
                    _ = await session.send_user_message([])
                first = session.id
            async with pool.session(key="a") as session:
                assert session.id != first
                with pytest.raises(OptionsError):
                    _ = await session.send_user_message([])
                assert await ask(session) == "You said: hi"
                second = session.id
            async with pool.session(key="a") as session:
                assert session.id == second


async def test_a_prompt_of_a_key_says_that_the_store_failed(newest: Lab) -> None:
    class Full(MemoryStore):
        async def append(self, key: SessionKey, entries: Any) -> None:
            if key.subkey == "pool":
                raise OSError("disk full")
            await super().append(key, entries)

    pool = newest.agent(store=Full()).pool(size=1)
    async with pool, pool.session(key="a") as session:
        with pytest.raises(StoreError, match="disk full"):
            _ = await session.send_user_message("hi")


async def test_a_caller_waits_while_its_key_is_forgotten(
    newest: Lab, set_limits: SetLimits
) -> None:
    class Slow(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.go = asyncio.Event(), asyncio.Event()

        async def delete(self, key: SessionKey) -> None:
            self.begun.set()
            await self.go.wait()
            await super().delete(key)

    set_limits(closing_pool=0.0)
    store = Slow()
    async with newest.agent(store=store).pool(size=2) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
            first = session.id
        forgetting = asyncio.create_task(pool.forget("a"))
        await store.begun.wait()
        with pytest.raises(UsageError):
            await pool.forget("a")
        entering = asyncio.create_task(pool.session(key="a").__aenter__())
        await until(lambda: pool.metrics.waiting == 1)
        store.go.set()
        await forgetting
        assert (await entering).id != first


async def test_a_key_that_another_program_uses_is_not_forgotten(newest: Lab) -> None:
    agent = newest.agent(store=MemoryStore())
    pool, other = agent.pool(size=1), agent.pool(size=1)
    async with pool, other:
        async with pool.session(key="a") as session:
            await ask(session)
            with pytest.raises(SessionInUseError) as caught:
                await other.forget("a")
            assert caught.value.session_id == "a"
            first = session.id
        await pool.forget("other")
        async with pool.session(key="a") as session:
            assert session.id == first


@pytest.mark.parametrize("is_idle", [False, True])
async def test_a_session_ends_if_another_program_takes_its_key(
    newest: Lab, set_limits: SetLimits, is_idle: bool
) -> None:
    """So that a key never has two conversations."""
    set_limits(lease=0.2)
    taken: list[str] = []

    class Expiring(MemoryStore):
        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            if session_id in taken:
                return False
            return await super().acquire(session_id, owner, seconds)

    store = Expiring()
    async with pool_of(newest.agent(store=store), size=1, ready=0) as pool:
        async with pool.session(key="a") as session:
            if is_idle:
                await ask(session)
            else:
                taken.extend(id for id in store._leases if id != session.id)
                await until(lambda: not session.alive)
                with pytest.raises(SessionStopped):
                    _ = await session.send_user_message("hi")
        if is_idle:
            taken.extend(id for id in store._leases if id != session.id)
        # The place is free again, although no caller has asked for the key.
        await until(lambda: pool.metrics.idle == pool.metrics.closing == 0)
        with pytest.raises(SessionInUseError):
            async with pool.session(key="a"):
                pass
        entries = await store.load(_name("a")) or []
        assert [one["session_id"] for one in entries] == ([session.id] if is_idle else [])


# -- what the next caller of a key finds -----------------------------------------------------------


@pytest.mark.parametrize("change", ["mode", "model", "settings", "raw"])
async def test_a_change_of_a_caller_ends_with_its_block(newest: Lab, change: str) -> None:
    """The next caller has the options of the agent, whether the process was kept or not."""

    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
            first = (session.pid, session.id)
            match change:
                case "mode":
                    await session.set_permission_mode("acceptEdits")
                case "model":
                    await session.set_model("opus")
                case "settings":
                    await session.settings.apply({"model": "opus"})
                case _:
                    await session.control("set_max_thinking_tokens", max_thinking_tokens=1)
        async with pool.session(key="a") as session:
            assert session.pid != first[0]
            assert session.id == first[1]
            await session.mcp.status()
            await session.interrupt()
            pid = session.pid
        async with pool.session(key="a") as session:
            assert session.pid == pid  # nothing was changed


async def test_a_permission_rule_that_a_callback_adds_ends_with_the_block(tmp_path: Path) -> None:
    decisions: list[Any] = [AllowAll(), Allow()]
    fake = FakeCli(flavour="2.1.197").expect_initialize().expect_user().start_turn()
    fake = fake.ask_permission("Bash", input={"command": "ls"}).expect_allow()
    with fake.assistant("Done.").result().wait_for_eof() as cli:
        agent = Agent(
            cli_path=cli.path, cwd=str(tmp_path), on_can_use_tool=lambda _: decisions.pop()
        )
        async with pool_of(agent, size=1, ready=0) as pool:
            for kept in (1, 0):
                async with pool.session(key=str(kept)) as session:
                    assert (await (await session.send_user_message("go"))).ok
                await until(lambda: pool.metrics.closing == 0)
                assert pool.metrics.idle == kept


async def test_a_caller_gets_the_system_prompt_for_its_deps(newest: Lab) -> None:
    agent = newest.agent(append_system_prompt=lambda deps: f"You serve {deps}.")
    async with agent.pool(size=1) as pool:
        pids, ids = [], set()
        for deps in ("Ada", "Ada", "Bob"):
            async with pool.session(key="a", deps=deps) as session:
                await ask(session)
                pids.append(session.pid)
                ids.add(session.id)
        assert pids[0] == pids[1] != pids[2]
        assert len(ids) == 1
    assert "You serve Bob." in str(newest.cli.runs[-1])


async def test_a_system_prompt_is_made_again_if_the_same_deps_have_changed(newest: Lab) -> None:
    deps = {"mode": "strict"}
    agent = newest.agent(append_system_prompt=lambda deps: f"Be {deps['mode']}.")
    async with agent.pool(size=1) as pool:
        for mode in ("strict", "lenient"):
            deps["mode"] = mode
            async with pool.session(key="a", deps=deps) as session:
                await ask(session)
    assert "Be lenient." in str(newest.cli.runs[-1])


async def test_a_system_prompt_that_always_differs_counts_as_a_start(newest: Lab) -> None:
    count = itertools.count()
    agent = newest.agent(append_system_prompt=lambda _: f"Now: {next(count)}")
    async with pool_of(agent, size=1, ready=0) as pool:
        for _ in range(3):
            async with pool.session(key="a") as session:
                await ask(session)
        assert (pool.metrics.from_idle, pool.metrics.from_start) == (0, 3)


async def test_a_caller_reads_no_message_of_the_caller_before(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a") as session:
            assert await ask(session, "first") == "You said: first"
            pid = session.pid
        async with pool.session(key="a") as session:
            assert session.pid == pid
            turn = await session.send_user_message("second")
            await turn
            # As in a new session, the first reader gets what came before it.
            async for message in session.messages():
                if isinstance(message, ResultMessage):
                    assert message.result == "You said: second"
                    break
            events = session.events()
            await session.stop()
            assert [type(one).__name__ async for one in events] == ["SessionEnded"]


async def test_a_turn_stays_usable_when_its_session_has_another_caller(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        async with pool.session(key="a") as session:
            turn = await session.send_user_message("first")
            assert (await turn).ok
            unread = await session.send_user_message("second")
            await until(lambda: unread.done)
        async with pool.session(key="a") as session:
            await ask(session)
            assert (await turn).text == "You said: first"
            assert (await unread).text == "You said: second"
            for one in (turn, unread):
                with pytest.raises(UsageError):
                    async for _ in one:
                        pass


TASK = {
    "type": "system",
    "subtype": "task_started",
    "task_id": "t1",
    "tool_use_id": "toolu_1",
    "description": "build",
    "task_type": "local_bash",
    "uuid": "00000000-0000-4000-8000-00000000000a",
    "session_id": "s",
}


BEGIN = {
    "type": "system",
    "subtype": "init",
    "cwd": "/",
    "session_id": "s",
    "tools": [],
    "mcp_servers": [],
    "model": "m",
    "permissionMode": "default",
    "uuid": "00000000-0000-4000-8000-00000000000b",
}


@pytest.mark.parametrize("is_ambient", [False, True])
async def test_a_process_with_background_work_is_not_kept(tmp_path: Path, is_ambient: bool) -> None:
    """It would start a turn by itself when the work ends, perhaps that of another caller."""

    fake = FakeCli(flavour="2.1.197").expect_initialize().expect_user().start_turn()
    fake = fake.assistant("Started.").emit({**TASK, "ambient": is_ambient}).result()
    with fake.wait_for_eof() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path))
        async with pool_of(agent, size=1, ready=0) as pool:
            async with pool.session(key="a") as session:
                assert (await (await session.send_user_message("go"))).ok
                assert [one.task_id for one in session.tasks.list()] == ["t1"]
            await until(lambda: pool.metrics.closing == 0)
            assert pool.metrics.idle == (1 if is_ambient else 0)


async def test_a_process_that_began_a_turn_while_it_was_idle_is_not_handed_out(
    tmp_path: Path,
) -> None:
    fake = FakeCli(flavour="2.1.197").expect_initialize().expect_user().turn("Done.")
    # The turn begins before the answer to the check whether the process responds.
    begin = fake.expect_request("mcp_status").emit(BEGIN).reply()
    with begin.wait_for_eof() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path), inherit_env=["PATH"])
        async with pool_of(agent, size=1, ready=0) as pool:
            async with pool.session(key="a") as session:
                assert (await (await session.send_user_message("go"))).ok
                first = session.pid
            async with pool.session(key="a") as session:
                assert session.pid != first


async def test_an_idle_process_that_begins_a_turn_is_closed(tmp_path: Path) -> None:
    """The CLI does that by itself, for example at a time that the model has chosen."""

    fake = FakeCli(flavour="2.1.197").expect_initialize().expect_user().turn("Done.")
    begin = fake.expect_request("mcp_status").reply().emit(BEGIN)
    with begin.wait_for_eof() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path), inherit_env=["PATH"])
        async with pool_of(agent, size=1, ready=0) as pool:
            async with pool.session(key="a") as session:
                assert (await (await session.send_user_message("go"))).ok
            assert pool.metrics.idle == 1
            _ = await session.mcp.status()
            await until(lambda: pool.metrics.idle == pool.metrics.closing == 0)


@pytest.mark.parametrize("name", ["CronCreate", "ScheduleWakeup"])
async def test_a_process_with_a_scheduled_prompt_is_not_kept(tmp_path: Path, name: str) -> None:
    fake = FakeCli(flavour="2.1.197").expect_initialize().expect_user().start_turn()
    call = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
    with fake.assistant(call).assistant("Done.").result().wait_for_eof() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path))
        async with pool_of(agent, size=1, ready=0) as pool:
            async with pool.session(key="a") as session:
                assert (await (await session.send_user_message("go"))).ok
            await until(lambda: pool.metrics.closing == 0)
            assert pool.metrics.idle == 0


def block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("prompt", "is_kept"),
    [
        ("hi /effort low", True),
        ("/context", True),
        ("/compact and keep the names", True),
        ("/effort low", False),
        ("/goal", False),
        ("/unknown", False),
        ("/", False),
        (" /effort low", False),
        ([block("look:"), block("/effort low")], False),
        ([TextBlock("look:"), TextBlock("/effort low")], False),
        ([block("look:"), block("/usage")], True),
        ([{"type": "text", "text": 1}], True),
    ],
)
async def test_a_process_that_got_a_slash_command_is_not_kept(
    newest: Lab, prompt: Any, is_kept: bool
) -> None:
    """The command may have changed the model, the effort or the hooks of the process."""

    async with pool_of(newest.agent(), size=1, ready=0) as pool:
        async with pool.session(key="a") as session:
            _ = await (await session.send_user_message(prompt))
        await until(lambda: pool.metrics.closing == 0)
        assert pool.metrics.idle == (1 if is_kept else 0)


async def test_a_process_whose_prompts_are_not_interpreted_is_kept(newest: Lab) -> None:
    async with pool_of(newest.agent(verbatim_prompts=True), size=1, ready=0) as pool:
        async with pool.session(key="a") as session:
            await ask(session, "/effort low")
        assert pool.metrics.idle == 1


STATUS = {
    "type": "system",
    "subtype": "status",
    "status": None,
    "uuid": "00000000-0000-4000-8000-00000000000c",
    "session_id": "s",
}


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        (STATUS, True),
        ({**STATUS, "permissionMode": "default"}, True),
        ({**STATUS, "permissionMode": "plan"}, False),
        (BEGIN, True),
        ({**BEGIN, "permissionMode": "acceptEdits"}, False),
        ({**BEGIN, "model": "other"}, False),
    ],
)
async def test_a_process_that_changed_its_mode_or_model_is_not_kept(
    tmp_path: Path, line: dict[str, Any], is_kept: bool
) -> None:
    """The CLI does that by itself, for example when the model calls ExitPlanMode."""

    fake = FakeCli(flavour="2.1.197").expect_initialize().expect_user()
    with fake.emit(BEGIN).emit(line).assistant("Done.").result().wait_for_eof() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path))
        async with pool_of(agent, size=1, ready=0) as pool:
            async with pool.session(key="a") as session:
                assert (await (await session.send_user_message("go"))).ok
            await until(lambda: pool.metrics.closing == 0)
            assert pool.metrics.idle == (1 if is_kept else 0)


async def test_a_process_that_has_used_up_its_budget_is_not_kept(tmp_path: Path) -> None:
    """The CLI counts the budget for each process."""

    fake = FakeCli(flavour="2.1.197").expect_initialize().expect_user().start_turn()
    with fake.result(subtype="error_max_budget_usd", is_error=True).wait_for_eof() as cli:
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path), max_budget_usd=1.0)
        async with pool_of(agent, size=1, ready=0) as pool:
            async with pool.session(key="a") as session:
                outcome = await (await session.send_user_message("go"))
                assert outcome.reason == "max_budget"
            await until(lambda: pool.metrics.closing == 0)
            assert pool.metrics.idle == 0


async def test_many_uses_of_a_process_register_one_callback_for_its_end(newest: Lab) -> None:
    async with newest.agent().pool(size=1) as pool:
        counts = set()
        for _ in range(3):
            async with pool.session(key="a") as session:
                await ask(session)
            gone: Any = session._actor.gone
            counts.add(len(gone._callbacks))
        assert len(counts) == 1


async def test_the_idle_process_of_a_key_that_exits_frees_its_place(newest: Lab) -> None:
    async with pool_of(newest.agent(), size=1, ready=0) as pool:
        async with pool.session(key="a") as session:
            await ask(session)
        assert pool.metrics.idle == 1
        os.kill(session.pid or 0, signal.SIGKILL)
        await until(lambda: pool.metrics.idle == pool.metrics.closing == 0)


# -- processes -------------------------------------------------------------------------------------


async def test_a_ready_process_that_hangs_costs_seconds_and_not_the_timeout_of_a_start(
    newest: Lab, set_limits: SetLimits
) -> None:
    set_limits(ready_in_pool=1.0)

    async with newest.agent(init_timeout=3600.0).pool(size=1) as pool:
        [ready] = parked(pool)
        ready._started -= 3600.0
        os.kill(ready.pid, signal.SIGSTOP)
        assert (await pool.run("hi")).ok
        assert pool.metrics.from_ready == 1


async def test_a_claim_that_is_not_answered_is_a_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, replace_steps: ReplaceSteps
) -> None:
    send = Actor.submit

    async def send_impatiently(
        actor: Actor, operation: str, fields: Mapping[str, object], timeout: float | None = None
    ) -> Mapping[str, object] | None:
        return await send(
            actor, operation, fields, 0.1 if operation == "claim_session" else timeout
        )

    replace_steps(send_request=send_impatiently)
    fake = FakeCli(flavour="2.1.326", patience=2.0).expect_initialize()
    fake = fake.expect_request("claim_session").silence()
    with fake as cli, caplog.at_level("INFO", "bridle.pool"):
        agent = Agent(cli_path=cli.path, cwd=str(tmp_path))
        async with agent.pool(size=1) as pool:
            await pool.run("hi")  # in a new process
    [told] = [one.args for one in caplog.records if "could not be used" in one.message]
    assert isinstance(told, tuple)
    assert isinstance(told[0], InitializationTimeout)


async def test_a_cli_that_tells_its_version_slowly_is_claimed(
    newest: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine. Without a claim, 2.1.325 runs no SessionStart callback at its start."""
    defaults = {**(locate.version_of.__kwdefaults__ or {}), "timeout": 0.001}
    monkeypatch.setattr(locate.version_of, "__kwdefaults__", defaults)

    async with newest.agent().pool(size=1) as pool:
        assert parked(pool)[0].launch.awaits_claim


def test_an_invalid_timeout_is_reported_by_the_call(newest: Lab) -> None:
    with pytest.raises(OptionsError):
        newest.agent().pool().session(timeout=-1.0)


def test_the_blocking_twin_has_metrics_before_it_is_opened(newest: Lab) -> None:
    assert newest.agent().sync.pool(size=3).metrics.size == 3
