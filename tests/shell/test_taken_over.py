"""A session whose lease lapsed does not undo what another machine has done with it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import InMemorySessionStore
from tests.support.limits import SetLimits
from tests.support.processes import until
from tests.support.stores import until_stored

import bridle
from bridle import Agent, SdkWarning, SessionInUseError, tool
from bridle.errors import ControlError, StoreError
from bridle.sessions import MemoryStore, SessionKey, as_store, read_messages
from bridle.sessions._outbox import leases
from bridle.testing import FakeCli

LEASE = 3000.0
"""Seconds of a lease. Nothing is renewed while a test runs, as in a process that is frozen."""


class Leasing:
    """A store of a user with the public protocol and leases."""

    location = "test"

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner
        self.append, self.load = inner.append, inner.load
        self.list, self.delete = inner.list, inner.delete
        self.acquire, self.release = inner.acquire, inner.release


class Plain:
    """A store of a user with the four required methods."""

    location = "test"

    def __init__(self, inner: MemoryStore) -> None:
        self.append, self.load = inner.append, inner.load
        self.list, self.delete = inner.list, inner.delete


class Counting(MemoryStore):
    """A subclass that replaces `append` without `append_leased`."""

    ends_with_program = False
    appends = 0

    async def append(self, key: SessionKey, entries: Sequence[Any]) -> None:
        self.appends += 1
        await super().append(key, entries)


class Lasting(MemoryStore):
    ends_with_program = False  # it has spool files


KINDS = ("fencing", "counting", "leasing", "plain", "official")


class Apart:
    """Machines with one store. Time can pass without any renewal."""

    def __init__(self, kind: str, directory: Path, cli: FakeCli, patch: Any) -> None:
        self.directory = directory
        self.cli = cli
        #: Seconds that have passed without a renewal.
        self.late = 0.0
        SetLimits(patch)(lease_clock=lambda: time.monotonic() + self.late)
        SetLimits(patch)(lease=LEASE)
        clock: Any = {"clock": lambda: time.time() + self.late}
        made: dict[str, Any] = {
            "fencing": lambda: Lasting(**clock),
            "counting": lambda: Counting(**clock),
            "leasing": lambda: Leasing(Lasting(**clock)),
            "plain": lambda: Plain(Lasting(**clock)),
            "official": InMemorySessionStore,
        }
        self.store: Any = made[kind]()
        if kind == "official":
            self.store.location = "test"
        self.warnings: list[SdkWarning] = []

    def agent(self, machine: str, **options: Any) -> Agent:
        home = self.directory / machine
        home.mkdir(exist_ok=True)
        env = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
        return Agent(
            store=self.store,
            cli_path=self.cli.path,
            cwd=str(self.directory),
            env=env,
            on_warning=self.warnings.append,
            **options,
        )

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Let the lease of the first machine lapse."""
        self.late += LEASE + 1.0
        yield

    async def take_over(self, session_id: str) -> None:
        """Continue the session on another machine, for two turns."""
        async with self.agent("b").session(resume_session_id=session_id) as session:
            for text in ("b one", "b two"):
                assert (await (await session.send_user_message(f"SAY {text}"))).text == text

    async def stored(self, session_id: str, text: str) -> None:
        """Wait until the store has a text."""
        store = as_store(self.store)
        key = SessionKey(session_id, "", self.project)
        await until_stored(store, key, text)

    @property
    def project(self) -> str:
        from bridle.sessions._transcripts.transcript import project_name

        return project_name(str(self.directory))

    async def shown(self, session_id: str) -> list[str]:
        """The prompts of the conversation in the store."""
        found = await read_messages(session_id, directory=self.directory, store=self.store)
        texts = [str(one.raw.get("message", {}).get("content")) for one in found]
        return [one.removeprefix("SAY ") for one in texts if one.startswith("SAY ")]

    @property
    def spooled(self) -> dict[str, str]:
        """The spool files, by path."""
        files = (self.directory / "state").glob("bridle/spool/*")
        return {str(file): file.read_text() for file in files}

    def check_named(self, text: str) -> None:
        """The file that has a text is named in a warning."""
        paths = [path for path, content in self.spooled.items() if text in content]
        assert paths
        details = [one.detail for one in self.warnings if one.kind == "store_failed"]
        assert any(paths[0] in detail for detail in details)


@pytest.fixture(params=KINDS)
def apart(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Apart]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with FakeCli.auto(transcripts=True) as cli:
        yield Apart(request.param, tmp_path, cli, monkeypatch)


def failure(session: bridle.Session) -> object:
    return session._engine.error


async def test_a_prompt_after_another_machine_continued_is_refused(apart: Apart) -> None:
    async with apart.agent("a").session() as session:
        assert (await (await session.send_user_message("SAY a one"))).ok
        assert session.id is not None
        await apart.stored(session.id, "SAY a one")
        async with apart.away():
            await apart.take_over(session.id)
        with pytest.raises((SessionInUseError, ControlError)):
            _ = await session.send_user_message("SAY a two")
        await until(lambda: not session.alive)
        assert isinstance(failure(session), SessionInUseError)
    assert await apart.shown(session.id) == ["a one", "b one", "b two"]
    apart.check_named("SAY a two")  # the journal has the prompt
    await apart.agent("c").run("SAY c one", resume_session_id=session.id)
    assert await apart.shown(session.id) == ["a one", "b one", "b two", "c one"]


async def test_a_turn_that_goes_on_after_a_lapse_runs_no_further_tool(apart: Apart) -> None:
    """Its entries stay in the spool, which is named, and those of the other machine stay."""
    ran: list[str] = []
    entered, go = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        entered.set()
        await go.wait()
        return "held"

    @tool
    async def act() -> str:
        """Do something."""
        ran.append("acted")
        return "acted"

    async with apart.agent("a", tools=[hold, act]).session() as session:
        assert (await (await session.send_user_message("SAY a one"))).ok
        assert session.id is not None
        await apart.stored(session.id, "SAY a one")
        calls = "CALL mcp__tools__hold {}\nCALL mcp__tools__act {}\nSAY a two"
        turn = await session.send_user_message(calls)
        await entered.wait()
        await apart.stored(session.id, '"mcp__tools__act"')
        async with apart.away():
            await apart.take_over(session.id)
        go.set()
        _ = await turn
        await until(lambda: not session.alive)
        assert isinstance(failure(session), SessionInUseError)
    assert ran == []
    shown = await apart.shown(session.id)
    assert shown == ["a one", "b one", "b two"]
    apart.check_named("a two")


async def test_a_lapse_without_another_machine_changes_nothing(apart: Apart) -> None:
    async with apart.agent("a").session() as session:
        for text in ("a one", "a two", "a three"):
            assert (await (await session.send_user_message(f"SAY {text}"))).text == text
            async with apart.away():
                pass
        assert session.alive
        assert session.id is not None
    assert await apart.shown(session.id) == ["a one", "a two", "a three"]
    assert apart.warnings == []
    assert apart.spooled == {}


@pytest.mark.parametrize("apart", ["plain", "official"], indirect=True)
async def test_a_store_without_leases_that_was_cut_off_for_long_is_compared(apart: Apart) -> None:
    """The session was alive, and could not reach the store while others could."""
    line, failed = ContextVar("line", default=""), asyncio.Event()
    cut: set[str] = set()

    def cutting(method: Any) -> Any:
        async def call(*arguments: Any) -> Any:
            if line.get() in cut:
                failed.set()
                raise ConnectionError("unreachable")
            return await method(*arguments)

        return call

    apart.store.append = cutting(apart.store.append)
    apart.store.load = cutting(apart.store.load)

    reaching = line.set("a")
    session = await apart.agent("a").session()
    line.reset(reaching)
    async with session:
        assert (await (await session.send_user_message("SAY a one"))).ok
        assert session.id is not None
        await apart.stored(session.id, "SAY a one")
        cut.add("a")
        sending = asyncio.create_task(session.send_user_message("SAY a two"))
        await failed.wait()
        async with apart.away():
            await apart.take_over(session.id)
        cut.clear()
        with contextlib.suppress(SessionInUseError, ControlError):
            await (await sending)
        await until(lambda: not session.alive)
        assert isinstance(failure(session), SessionInUseError)
    assert await apart.shown(session.id) == ["a one", "b one", "b two"]


@pytest.mark.parametrize("apart", ["counting"], indirect=True)
async def test_a_subclass_that_replaces_append_is_called(apart: Apart) -> None:
    assert (await apart.agent("a").run("SAY a one")).ok
    assert apart.store.appends >= 2


class Refusing(MemoryStore):
    """A store with a fault: it grants leases and takes no entries with them."""

    refused = 0

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        return True

    async def append_leased(
        self, key: SessionKey, entries: Sequence[Any], owner: str, seconds: float
    ) -> bool:
        self.refused += bool(entries)
        return False


async def test_a_store_that_grants_the_lease_and_refuses_entries_has_failed() -> None:
    store, lost = Refusing(), list[SessionInUseError]()
    held = leases.Leases(store, lost.append, load_timeout=60.0)
    held.take_soon("s")
    async with asyncio.timeout(60):
        with pytest.raises(StoreError, match="although acquire had granted the lease"):
            await held.append(SessionKey("s"), [{"uuid": "1"}])
    assert (store.refused, lost) == (3, [])
    await held.aclose()


class Slow(MemoryStore):
    """A store that loads until the lease of the session was renewed twice."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.acquired = asyncio.Semaphore(0)

    async def load(self, key: SessionKey) -> Any:
        self.acquired = asyncio.Semaphore(0)
        for _ in range(2):
            await self.acquired.acquire()
        return await super().load(key)

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        self.acquired.release()
        return await super().acquire(session_id, owner, seconds)


async def test_a_lease_is_renewed_while_a_long_transcript_is_compared(
    set_limits: SetLimits,
) -> None:
    late = 0.0
    set_limits(lease_clock=lambda: time.monotonic() + late, lease=0.3)
    lost: list[SessionInUseError] = []
    store = Slow(clock=lambda: time.time() + late)
    held = leases.Leases(store, lost.append, load_timeout=60.0)
    held.take_soon("s")
    late = 1000.0
    async with asyncio.timeout(60):
        await held.append(SessionKey("s"), [{"uuid": "1"}])
    assert lost == []
    assert await MemoryStore.load(store, SessionKey("s")) == [{"uuid": "1"}]
    await held.aclose()
