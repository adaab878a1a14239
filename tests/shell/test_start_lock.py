"""A conversation is locked from the look for a waiting call until the end of the CLI."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.shell.test_approvals import CALLED, DEFERRED
from tests.support.limits import SetLimits
from tests.support.processes import open_descriptors, until
from tests.support.steps import ReplaceSteps
from tests.support.stored import lines, result, user

import bridle
from bridle import Agent, SessionInUseError
from bridle._process import session_locks
from bridle._process.session_locks import SessionLock, lock_session
from bridle.approvals import PendingApproval
from bridle.errors import ApprovalPending, UsageError
from bridle.sessions import MemoryStore
from bridle.sessions import _waiting_calls as resuming
from bridle.testing import FakeCli

WAIT = 60.0

DECIDED = user("r1", "a1", result("toolu_1"))
"""The result of the call."""

PROGRAM = """
import sys
from pathlib import Path
from bridle._process.session_locks import lock_session
lock = lock_session(sys.argv[1], sys.argv[2])
print("locked", flush=True)
added = sys.stdin.read()
if added:
    path = Path(sys.argv[3])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(added)
"""


class Place:
    """A conversation of the fake CLI, and the means to use it elsewhere."""

    def __init__(self, cli: FakeCli, path: Path) -> None:
        self.cli = cli
        self.config = str(path / "config")
        self.options: dict[str, Any] = {"cli_path": cli.path, "cwd": str(path)}
        self.agent = Agent(**self.options)

    async def begin(self) -> None:
        """Have the first turn."""
        self.id = (await self.agent.run("SAY One.")).session_id or ""
        (self.path,) = Path(self.config).rglob(f"{self.id}.jsonl")

    def in_use(self) -> subprocess.Popen[str]:
        """Start another program that has the conversation until its input ends.

        It adds its input to the transcript.
        """
        command = [sys.executable, "-c", PROGRAM, self.config, self.id, str(self.path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        return process

    def is_free(self) -> bool:
        """Return True if nobody has the conversation."""
        try:
            lock_session(self.config, self.id).release()
        except SessionInUseError:
            return False
        return True


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    with FakeCli.auto(transcripts=True) as cli:
        yield Place(cli, tmp_path)


@pytest.fixture
def refused(replace_steps: ReplaceSteps) -> asyncio.Event:
    """Set when a session has tried to lock a conversation that is in use."""
    event, lock = asyncio.Event(), session_locks.lock_session

    def watched(*arguments: Any) -> SessionLock:
        try:
            return lock(*arguments)
        except SessionInUseError:
            event.set()
            raise

    replace_steps(take_session_lock=watched)
    return event


async def in_session(agent: Agent, **chosen: Any) -> str:
    async with agent.session(**chosen) as session:
        return (await (await session.send_user_message("SAY Two."))).text


async def in_run(agent: Agent, **chosen: Any) -> str:
    return (await agent.run("SAY Two.", **chosen)).text


async def in_query(agent: Agent, **chosen: Any) -> str:
    stream = agent.query("SAY Two.", **chosen)
    return "".join([m.text async for m in stream if isinstance(m, bridle.AssistantMessage)])


Door = Callable[..., Coroutine[Any, Any, str]]
DOORS = pytest.mark.parametrize("door", [in_session, in_run, in_query])
CHOSEN = pytest.mark.parametrize("by_id", [True, False], ids=["by id", "the last one"])


def choice(place: Place, *, by_id: bool) -> dict[str, Any]:
    return {"resume_session_id": place.id} if by_id else {"continue_session": True}


@pytest.mark.longer(after=3)
@DOORS
@CHOSEN
async def test_it_waits_for_another_program(
    place: Place, refused: asyncio.Event, door: Door, *, by_id: bool
) -> None:
    await place.begin()
    chosen = choice(place, by_id=by_id)
    with place.in_use() as other:
        before = len(place.cli.runs)
        with pytest.raises(SessionInUseError) as caught:
            await door(place.agent, **chosen)
        assert caught.value.session_id == place.id
        assert len(place.cli.runs) == before, "no CLI was started"
        refused.clear()
        waiting = asyncio.create_task(door(place.agent, **chosen, wait=WAIT))
        await refused.wait()
        await asyncio.to_thread(other.communicate)
        assert await waiting == "Two."
    assert place.is_free()


@DOORS
async def test_a_conversation_with_a_title_is_locked_before_the_cli_starts(
    place: Place, door: Door
) -> None:
    await place.begin()
    title = {"type": "custom-title", "customTitle": "orders", "sessionId": place.id}
    with place.path.open("a") as file:
        file.write(json.dumps(title) + "\n")
    with place.in_use():
        before = len(place.cli.runs)
        with pytest.raises(SessionInUseError) as caught:
            await door(place.agent, resume_session_id="orders")
        assert caught.value.session_id == place.id
        assert len(place.cli.runs) == before, "no CLI was started"


@pytest.mark.longer(after=3)
@DOORS
@pytest.mark.parametrize("is_new", [False, True], ids=["old file", "new file"])
async def test_a_call_that_was_deferred_meanwhile_is_found(
    place: Place, refused: asyncio.Event, door: Door, *, is_new: bool
) -> None:
    """The other program may have had no turn yet when the wait begins."""
    await place.begin()
    if is_new:
        place.path.unlink()
    with place.in_use() as other:
        before = len(place.cli.runs)
        waiting = asyncio.create_task(door(place.agent, resume_session_id=place.id, wait=WAIT))
        await refused.wait()
        await asyncio.to_thread(other.communicate, lines(CALLED, DEFERRED).decode())
        with pytest.raises(ApprovalPending) as caught:
            await waiting
        assert caught.value.tool_use_id == "toolu_1"
        assert len(place.cli.runs) == before, "no CLI was started"
    assert place.is_free()


@DOORS
@CHOSEN
@pytest.mark.parametrize("wait", [None, WAIT])
async def test_the_conversation_is_locked_between_the_look_and_the_start(
    place: Place, monkeypatch: pytest.MonkeyPatch, door: Door, wait: float | None, *, by_id: bool
) -> None:
    """Two programs that wait: the second one gets it when the CLI of the first has ended."""
    release = SessionLock.release
    seen: list[int] = []

    def taken_by_another(lock: SessionLock) -> None:
        release(lock)
        with contextlib.suppress(SessionInUseError):
            release(lock_session(place.config, place.id))
            seen.append(len(place.cli.runs))

    await place.begin()
    before = len(place.cli.runs)
    with monkeypatch.context() as patch:
        ReplaceSteps(patch)(release_session_lock=taken_by_another)
        assert await door(place.agent, **choice(place, by_id=by_id), wait=wait) == "Two."
    assert seen
    assert set(seen) == {before + 1}


async def test_a_decision_about_a_call_of_a_conversation_in_use_starts_nothing(
    place: Place,
) -> None:
    await place.begin()
    with place.path.open("ab") as file:
        file.write(lines(CALLED, DEFERRED))
    pending = resuming.waiting_in_file(place.path)
    assert pending is not None
    with place.in_use():
        before = len(place.cli.runs)
        with pytest.raises(SessionInUseError):
            await place.agent.resume(pending, bridle.Allow())
        assert len(place.cli.runs) == before, "no CLI was started"
    assert place.is_free()


async def test_a_decision_waits_as_long_as_asked_for_another_program(
    place: Place, refused: asyncio.Event, set_limits: SetLimits
) -> None:
    """Then the other program has decided, and the decision is refused for that."""
    set_limits(closing_session=0.0)
    await place.begin()
    with place.path.open("ab") as file:
        file.write(lines(CALLED, DEFERRED))
    pending = resuming.waiting_in_file(place.path)
    assert pending is not None
    with place.in_use() as other:
        before = len(place.cli.runs)
        for wait in (None, 0.0):
            with pytest.raises(SessionInUseError):
                await place.agent.resume(pending, bridle.Deny("no"), wait=wait)
        refused.clear()
        decision = place.agent.resume(pending, bridle.Deny("no"), wait=WAIT)
        waiting = asyncio.create_task(decision)
        await refused.wait()
        await asyncio.to_thread(other.communicate, lines(DECIDED).decode())
        with pytest.raises(UsageError, match="does not wait"):
            await waiting
        assert len(place.cli.runs) == before, "no CLI was started"
    assert place.is_free()


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_wait_that_is_cancelled_leaves_nothing(
    place: Place, refused: asyncio.Event, *, has_store: bool
) -> None:
    await place.begin()
    store = MemoryStore() if has_store else None
    with place.in_use():
        before, tasks = open_descriptors(), asyncio.all_tasks()
        session = bridle.Session(
            **place.options, store=store, resume_session_id=place.id, wait=WAIT
        )
        waiting = asyncio.create_task(session.connect())
        await refused.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert session.lifecycle.value == "stopped"
        assert asyncio.all_tasks() == tasks
        assert open_descriptors() <= before
    assert place.is_free()


@pytest.mark.parametrize("door", [in_session, in_query])
async def test_a_look_that_is_cancelled_unlocks_the_conversation(
    place: Place, replace_steps: ReplaceSteps, door: Door
) -> None:
    await place.begin()
    loop = asyncio.get_running_loop()
    begun, end, look = asyncio.Event(), threading.Event(), resuming.waiting_in_file

    def slow(path: Path) -> PendingApproval | None:
        loop.call_soon_threadsafe(begun.set)
        end.wait()
        return look(path)

    replace_steps(find_waiting_call=slow)
    looking = asyncio.create_task(door(place.agent, resume_session_id=place.id))
    await begun.wait()
    assert not place.is_free()
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    end.set()
    assert place.is_free()


class Gates:
    """A store without leases and journals, which can be held up."""

    has_journals = False
    location = "here"

    def __init__(self) -> None:
        self._store = MemoryStore()
        #: Set while `load` has read, and while `append` waits.
        self.is_loaded, self.is_appending = asyncio.Event(), asyncio.Event()
        self.may_load, self.may_append = asyncio.Event(), asyncio.Event()
        self.may_load.set()
        self.may_append.set()

    async def append(self, key: Any, entries: Any) -> None:
        self.is_appending.set()
        await self.may_append.wait()
        await self._store.append(key, entries)

    async def load(self, key: Any) -> Any:
        found = await self._store.load(key)
        self.is_loaded.set()
        await self.may_load.wait()
        return found

    async def list(self, project: str | None = None) -> Any:
        return await self._store.list(project)

    async def delete(self, key: Any) -> None:
        await self._store.delete(key)


async def test_a_conversation_is_locked_before_a_store_without_leases_loads_it(
    place: Place,
) -> None:
    """Else two programs load the same call that waits, and both decide about it."""
    store: Any = Gates()
    agent = place.agent.replace(store=store)
    place.id = (await agent.run("SAY One.")).session_id or ""
    store.may_load.clear()
    store.is_loaded.clear()
    first = asyncio.ensure_future(in_run(agent, resume_session_id=place.id))
    await store.is_loaded.wait()
    assert not place.is_free()
    store.may_load.set()
    assert await first == "Two."
    assert place.is_free()


async def test_a_conversation_is_locked_until_its_store_has_it(place: Place) -> None:
    """Else another program loads it without the last turn, in which a call was decided."""
    store: Any = Gates()
    agent = place.agent.replace(store=store)
    session = await agent.session()
    await (await session.send_user_message("SAY One."))
    place.id = session.id or ""
    store.may_append.clear()
    store.is_appending.clear()
    await (await session.send_user_message("SAY Two."))
    ending = asyncio.ensure_future(session.aclose())
    await store.is_appending.wait()
    await until(lambda: session.pid is None or not Path(f"/proc/{session.pid}").exists())
    assert not place.is_free()
    with pytest.raises(SessionInUseError):
        await in_run(agent, resume_session_id=place.id)
    store.may_append.set()
    await ending
    assert place.is_free()
    assert await in_run(agent, resume_session_id=place.id) == "Two."
