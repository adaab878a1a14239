"""A session with a store: what the store gets, how a session resumes from it, and who may."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import LIMIT, open_descriptors, run, until, wait_until
from tests.support.steps import ReplaceSteps
from tests.support.stored import plain

import bridle
from bridle import OptionsError, SessionInUseError, SessionNotFoundError, SessionStopped
from bridle._engine.actions import Mirror
from bridle._records.session_store import Entry, SessionKey, SessionStore
from bridle.errors import SessionLoadError, SessionLoadTimeout
from bridle.events import SdkWarning
from bridle.messages import TranscriptMirror
from bridle.sessions import MemoryStore, SqliteStore
from bridle.sessions._backlog import LEASE, Batch
from bridle.sessions._outbox.spool import Spool, left_behind, spool_name
from bridle.sessions._store_session import StoreSession
from bridle.sessions._transcripts.files import write_transcript
from bridle.testing import FakeCli
from bridle.testing.fake_transport import FakeTransport

ID = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limits: SetLimits) -> Path:
    """A home directory, temporary directory and directory for spool files of its own."""
    for name, place in {
        "XDG_STATE_HOME": "state",
        "HOME": "home",
        "CLAUDE_CONFIG_DIR": "home/.claude",
        "TMPDIR": "tmp",
    }.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(tmp_path / place))
    set_limits(temporary_directory=None)
    set_limits(closing_store=0.5)
    return tmp_path


def mirror(session_id: str, *uuids: str, inside: str = "") -> Mapping[str, object]:
    """A report of the CLI about its transcript."""
    entries = [{"type": "user", "uuid": uuid, "sessionId": session_id} for uuid in uuids]
    path = f"/c/projects/-work/{session_id}{inside}.jsonl"
    return {"type": "transcript_mirror", "filePath": path, "entries": entries}


async def uuids(store: MemoryStore, session_id: str, subkey: str = "") -> list[object]:
    found = await store.load(SessionKey(session_id, subkey)) or []
    return [entry["uuid"] for entry in found if "uuid" in entry]


def left(home: Path) -> list[str]:
    """Everything in the temporary directory and the spool directory."""
    places = (home / "tmp", home / "state/bridle/spool")
    return [str(path) for place in places for path in place.rglob("*") if path.is_file()]


def open_session(
    transport: FakeTransport, store: SessionStore, **options: Any
) -> bridle.SessionStart:
    return bridle.start_session(transport_factory=transport, store=store, **options)


# ---------------------------------------------------------------- the option


@pytest.mark.parametrize("store", [1, "store.db", object(), MemoryStore])
def test_an_object_that_is_not_a_store_is_rejected(store: Any) -> None:
    for door in (
        lambda: bridle.Agent(store=store),
        lambda: bridle.start_session(store=store),
        lambda: bridle.query("x", store=store),
        lambda: bridle.sync.query("x", store=store),
    ):
        with pytest.raises(OptionsError) as caught:
            door()
        assert caught.value.field == "store"


def test_a_store_without_its_methods_is_rejected() -> None:
    class Half:
        async def append(self, key: object, entries: object) -> None: ...
        async def load(self, key: object) -> None: ...
        async def list(self) -> None: ...

    store: Any = Half()
    with pytest.raises(OptionsError) as caught:
        bridle.Agent(store=store)
    assert caught.value.field == "store"


class FourMethods:
    """A store with the required methods only."""

    def __init__(self) -> None:
        inner = self.inner = MemoryStore()
        self.append, self.load = inner.append, inner.load
        self.list, self.delete = inner.list, inner.delete


async def test_a_store_without_subkeys_resumes_without_subagents_and_warns_once(home: Path) -> None:
    store = FourMethods()
    warnings: list[SdkWarning] = []
    transport = FakeTransport()
    async with open_session(transport, store, on_warning=warnings.append):
        transport.say(mirror(ID, "1"), mirror(ID, "2", inside="/subagents/agent-a"))
        transport.say(mirror(ID, "3", inside="/subagents/agent-b"))
    assert await uuids(store.inner, ID, "subagents/agent-a") == ["2"]
    async with open_session(FakeTransport(), store, resume_session_id=ID) as session:
        directory = Path(session._connection.launch.directory)
        assert [path.name for path in directory.rglob("*.jsonl")] == [f"{ID}.jsonl"]
    transcript = await bridle.sessions.read_transcript(ID, store=store)
    assert transcript.subagents == ()
    details = [one.detail for one in warnings if one.kind == "store_failed"]
    assert len(details) == 1
    assert "FourMethods has no method 'subkeys'" in details[0]


def test_the_entries_of_a_conversation_are_not_read_in_the_event_loop() -> None:
    """A long conversation would hold up the program for a part of a second."""
    threads: set[int] = set()

    class Watched(dict[str, Any]):
        def get(self, *arguments: Any) -> Any:
            threads.add(threading.get_ident())
            return super().get(*arguments)

    class Store(MemoryStore):
        async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
            return [Watched(entry) for entry in await super().load(key) or ()]

    async def main() -> int:
        store, transport = Store(), FakeTransport()
        async with open_session(transport, store):
            transport.say(mirror(ID, "1", "2"))
        async with open_session(FakeTransport(), store, resume_session_id=ID):
            return threading.get_ident()

    assert run(main) not in threads
    assert threads


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"no_session_persistence": True}, "no_session_persistence"),
        ({"resume_session_id": "my title"}, "resume_session_id"),
    ],
)
def test_options_that_a_store_cannot_work_with_are_rejected(
    options: dict[str, Any], field: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        _ = bridle.start_session(store=MemoryStore(), **options)
    assert caught.value.field == field


# ---------------------------------------------------------------- copying


async def test_the_store_gets_what_the_cli_reports_and_readers_do_not(home: Path) -> None:
    store = MemoryStore()
    transport = FakeTransport()
    async with open_session(transport, store) as session:
        messages = session.messages()
        transport.say(mirror(ID, "1", "2"), {"type": "keep_alive"})
        transport.say(mirror(ID, "3", inside="/subagents/agent-a"), mirror(ID, "4"))
        first = await anext(messages)
        assert first.type == "keep_alive"
    assert [one async for one in messages if isinstance(one, TranscriptMirror)] == []
    assert await uuids(store, ID) == ["1", "2", "4"]
    assert await uuids(store, ID, "subagents/agent-a") == ["3"]
    assert [one.project for one in await store.list()] == ["-work"]
    assert left(home) == []


async def test_without_a_store_the_reports_are_messages() -> None:
    transport = FakeTransport()
    async with bridle.start_session(transport_factory=transport) as session:
        messages = session.messages()
        transport.say(mirror(ID, "1"))
        assert isinstance(await anext(messages), TranscriptMirror)


async def test_reports_that_come_after_the_end_of_the_session_reach_the_store() -> None:
    store = MemoryStore()

    class Slow(FakeTransport):
        def terminate(self) -> None:
            self.say(mirror(ID, "2"))
            super().terminate()

    transport = Slow()
    session = await open_session(transport, store)
    transport.say(mirror(ID, "1"))
    await session.stop()
    assert await uuids(store, ID) == ["1", "2"]


async def test_a_session_waits_only_with_its_journal_for_a_store_that_hangs(
    set_limits: SetLimits,
) -> None:
    set_limits(journal_wait=0.5)

    class Hanging(MemoryStore):
        async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
            await asyncio.Event().wait()

        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            await asyncio.Event().wait()
            return True

    warnings: list[SdkWarning] = []
    with FakeCli.auto() as cli:
        session = await bridle.start_session(
            cli_path=cli.path, store=Hanging(), on_warning=warnings.append
        )
        session._actor.received(
            b'{"type":"transcript_mirror","filePath":"/p/%s.jsonl","entries":[{"uuid":"1"}]}\n'
            % ID.encode()
        )
        turn = await session.send_user_message("hello")
        assert (await turn.outcome()).ok
        await session.aclose()
    details = [warning.detail for warning in warnings if warning.kind == "store_failed"]
    assert any("1 entry is not in the store" in detail for detail in details)


# ---------------------------------------------------------------- resuming


async def fill(store: MemoryStore, session_id: str = ID) -> None:
    await store.append(SessionKey(session_id, "", "-a"), [{"type": "user", "uuid": "1"}])
    await store.append(
        SessionKey(session_id, "subagents/agent-a", "-a"),
        [{"type": "agent_metadata", "agentType": "x"}, {"type": "user", "uuid": "2"}],
    )
    await store.append(SessionKey(session_id, "subagents/../evil", "-a"), [{"uuid": "3"}])
    await store.append(SessionKey(session_id, "journal", "-a"), [{"uuid": "4"}])


async def test_a_conversation_is_resumed_from_private_files(home: Path) -> None:
    store = MemoryStore()
    await fill(store)
    transport = FakeTransport()
    async with open_session(transport, store, resume_session_id=ID) as session:
        launch = session._connection.launch
        directory = Path(launch.directory)
        files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
        assert files == [
            ID,
            f"{ID}.jsonl",
            f"{ID}/subagents",
            f"{ID}/subagents/agent-a.jsonl",
            f"{ID}/subagents/agent-a.meta.json",
        ]
        assert f"--resume={directory}/{ID}.jsonl" in launch.argv
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for file in directory.rglob("*.json*"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert (directory / f"{ID}.jsonl").read_bytes() == b'{"type":"user","uuid":"1"}\n'
        transcript = directory / ID / "subagents" / "agent-a.jsonl"
        assert transcript.read_bytes() == b'{"type":"user","uuid":"2"}\n'
        assert session.id == ID
    assert not directory.exists()
    assert left(home) == []


async def test_a_fork_copies_the_conversation_and_has_its_own_id(home: Path) -> None:
    store = MemoryStore()
    await fill(store)
    assert await store.acquire(ID, "another process", 60.0)
    options: dict[str, Any] = {"resume_session_id": ID, "fork_session": True}
    async with open_session(FakeTransport(), store, **options) as session:
        assert session.id not in (None, ID)
        argv = session._connection.launch.argv
        assert "--fork-session" in argv
        assert any(arg.endswith(f"/{ID}.jsonl") for arg in argv)
    assert left(home) == []


async def test_the_last_conversation_of_a_directory_is_continued_from_the_store(home: Path) -> None:
    store = MemoryStore()
    work = home / "work"
    work.mkdir()
    project = str(work).replace("/", "-").replace("_", "-")
    await store.append(SessionKey(ID, "", project), [{"uuid": "1"}])
    other = ID.replace("1", "2")
    await store.append(SessionKey(other, "", "-elsewhere"), [{"uuid": "2"}])
    options: dict[str, Any] = {"continue_session": True, "cwd": str(work)}
    async with open_session(FakeTransport(), store, **options) as session:
        assert session.id == ID
        assert "--continue" not in session._connection.launch.argv


@pytest.mark.parametrize("fork", [False, True])
async def test_a_session_with_nothing_to_continue_is_a_new_one_with_an_id(
    home: Path, fork: bool
) -> None:
    """The journal is written under the id of the session, so it has to be known at the start."""
    store = MemoryStore()
    (home / "work").mkdir()
    options: dict[str, Any] = {"continue_session": True, "fork_session": fork}
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store, cwd=str(home / "work"))
        async with agent.session(**options) as session:
            assert session.id is not None
            assert f"--session-id={session.id}" in cli.argv
            assert not {"--continue", "--fork-session"} & set(cli.argv)
            await (await session.send_user_message("hello"))
        assert await store.load(SessionKey("", "journal")) is None
        assert len(await store.load(SessionKey(session.id, "journal")) or ()) == 3


async def test_a_store_cannot_choose_where_the_transcript_is_written(home: Path) -> None:
    store = MemoryStore()
    work = home / "work"
    work.mkdir()
    project = str(work).replace("/", "-").replace("_", "-")
    await store.append(SessionKey(ID, "", project), [{"uuid": "1"}])
    await store.append(SessionKey(str(home / "evil"), "", project), [{"uuid": "2"}])
    options: dict[str, Any] = {"continue_session": True, "cwd": str(work)}
    async with open_session(FakeTransport(), store, **options) as session:
        assert session.id == ID
    assert not (home / "evil.jsonl").exists()


async def test_a_conversation_that_only_the_cli_has_is_copied_to_the_store(home: Path) -> None:
    store = MemoryStore()
    project = home / "home" / ".claude" / "projects" / "-work"
    (project / ID / "subagents").mkdir(parents=True)
    (project / f"{ID}.jsonl").write_text('{"uuid":"1"}\nnot json\n{"uuid":"2"}\n')
    (project / ID / "subagents" / "agent-a.jsonl").write_text('{"uuid":"3"}\n')
    transport = FakeTransport()
    async with open_session(transport, store, resume_session_id=ID) as session:
        assert f"--resume={project}/{ID}.jsonl" in session._connection.launch.argv
        transport.say(mirror(ID, "4"))
    assert await uuids(store, ID) == ["1", "2", "4"]
    assert await uuids(store, ID, "subagents/agent-a") == ["3"]
    assert (project / f"{ID}.jsonl").exists()


async def test_damaged_lines_reach_the_store_and_the_next_machine(home: Path) -> None:
    store = MemoryStore()
    project = home / "home" / ".claude" / "projects" / "-work"
    project.mkdir(parents=True)
    written = b'{"type":"user","uuid":"1"}\n{"type":"us\n{"type":"user","uuid":"2"}\n'
    (project / f"{ID}.jsonl").write_bytes(written)
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        pass
    async with open_session(FakeTransport(), store, resume_session_id=ID) as session:
        directory = Path(session._connection.launch.directory)
        assert (directory / f"{ID}.jsonl").read_bytes() == written
    transcript = await bridle.sessions.read_transcript(ID, store=store)
    assert [entry.raw_line for entry in transcript.damaged] == [b'{"type":"us']


async def test_the_copy_that_changed_last_is_resumed_and_links_are_not_copied(home: Path) -> None:
    store = MemoryStore()
    projects = home / "home" / ".claude" / "projects"
    for number, name in enumerate(("-c", "-b", "-a")):
        path = projects / name / f"{ID}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(f'{{"uuid":"{name}"}}\n')
        os.utime(path, (100 - number, 100 - number))
    (home / "secret.jsonl").write_text('{"uuid":"secret"}\n')
    (projects / "-c" / ID / "subagents").mkdir(parents=True)
    (projects / "-c" / ID / "subagents" / "agent-a.jsonl").symlink_to(home / "secret.jsonl")
    async with open_session(FakeTransport(), store, resume_session_id=ID) as session:
        assert f"--resume={projects}/-c/{ID}.jsonl" in session._connection.launch.argv
    assert await uuids(store, ID) == ["-c"]
    assert await store.subkeys(ID) == []


async def test_a_subagent_is_not_continued_as_the_last_session(home: Path) -> None:
    work = home / "work"
    work.mkdir()
    project = home / "home" / ".claude" / "projects" / str(work).replace("/", "-").replace("_", "-")
    project.mkdir(parents=True)
    (project / f"{ID}.jsonl").write_bytes(plain(ID))
    (project / f"{OTHER}.jsonl").write_bytes(plain(OTHER, isSidechain=True))
    os.utime(project / f"{ID}.jsonl", (100, 100))
    options: dict[str, Any] = {"continue_session": True, "cwd": str(work)}
    async with open_session(FakeTransport(), MemoryStore(), **options) as session:
        assert session.id == ID


async def test_a_session_that_is_nowhere_is_not_found(home: Path) -> None:
    with pytest.raises(SessionNotFoundError) as caught:
        await open_session(FakeTransport(), MemoryStore(), resume_session_id=ID)
    assert caught.value.session_id == ID
    assert left(home) == []


async def test_a_store_that_fails_to_load_is_reported() -> None:
    class Failing(MemoryStore):
        async def load(self, key: SessionKey) -> Any:
            raise ConnectionError("down")

    class Hanging(MemoryStore):
        async def load(self, key: SessionKey) -> Any:
            await asyncio.Event().wait()

    before = open_descriptors()
    with pytest.raises(SessionLoadError, match="down"):
        await open_session(FakeTransport(), Failing(), resume_session_id=ID)
    with pytest.raises(SessionLoadTimeout) as caught:
        await open_session(FakeTransport(), Hanging(), resume_session_id=ID, load_timeout=0.05)
    assert caught.value.timeout == 0.05
    assert open_descriptors() <= before
    await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})


@pytest.mark.parametrize("step", ["find_own_transcript", "read_spool", "remove_spool"])
async def test_a_file_that_fails_while_a_session_is_loaded_is_named(
    home: Path, replace_steps: ReplaceSteps, step: str
) -> None:
    store = SqliteStore(home / "store.db")
    spool = Spool(f"{spool_name(store, ID)}transcript.", "dead")
    if step != "find_own_transcript":
        spool.write([Batch(SessionKey(ID), [{"uuid": "1"}], 10, 1)])
        spool.close()

    def fail(*_: object) -> Any:
        raise OSError(errno.EIO, "Input/output error", "/some/file")

    replace_steps(**{step: fail})
    unhandled: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    with FakeCli.auto(transcripts=True) as cli, pytest.raises(SessionLoadError) as caught:
        await bridle.start_session(cli_path=cli.path, store=store, resume_session_id=ID)
    assert "/some/file" in str(caught.value)
    await store.aclose()
    del caught
    gc.collect()
    assert unhandled == []


async def test_a_file_that_fails_at_the_end_of_a_session_is_reported(
    home: Path, replace_steps: ReplaceSteps
) -> None:
    """The session ends as without the file."""
    told: list[SdkWarning] = []

    def fail(*_: object) -> Any:
        raise OSError(errno.EIO, "Input/output error", "/some/file")

    transport = FakeTransport()
    async with open_session(transport, MemoryStore(), on_warning=told.append) as session:
        replace_steps(find_own_transcript=fail)
        await session.stop()
    [failed] = [one.detail for one in told if one.kind == "store_failed"]
    assert "/some/file" in failed


@pytest.mark.parametrize("step", ["list_sessions_of_store", "list_transcripts"])
async def test_a_last_session_that_cannot_be_found_out_is_reported(
    replace_steps: ReplaceSteps, step: str
) -> None:
    def fail(*_: object) -> Any:
        raise OSError(errno.EIO, "Input/output error", "/some/file")

    replace_steps(**{step: fail})
    with FakeCli.auto() as cli, pytest.raises(SessionLoadError) as caught:
        await bridle.start_session(cli_path=cli.path, store=MemoryStore(), continue_session=True)
    assert str(caught.value).startswith(
        "The last session of the working directory could not be loaded: OSError"
    )
    assert caught.value.session_id == ""


async def test_a_session_that_is_stopped_while_it_loads_does_not_start(home: Path) -> None:
    begun, may_load = asyncio.Event(), asyncio.Event()

    class Hanging(MemoryStore):
        async def load(self, key: SessionKey) -> Any:
            begun.set()
            await may_load.wait()
            return [{"uuid": "1"}]

    session = bridle.Session(
        transport_factory=FakeTransport(), store=Hanging(), resume_session_id=ID
    )
    connecting = asyncio.ensure_future(session.connect())
    await begun.wait()
    stopping = asyncio.ensure_future(session.stop())
    await asyncio.sleep(0)
    may_load.set()
    await stopping
    with pytest.raises(SessionStopped):
        await connecting
    begun.clear()
    may_load.clear()
    cancelled = bridle.Session(
        transport_factory=FakeTransport(), store=Hanging(), resume_session_id=ID
    )
    connecting = asyncio.ensure_future(cancelled.connect())
    await begun.wait()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    may_load.set()
    await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})
    assert left(home) == []


@pytest.mark.parametrize("method", ["load", "acquire", "list", "subkeys"])
async def test_the_limit_for_loading_holds_for_a_store_that_ignores_a_cancellation(
    method: str,
) -> None:
    end = asyncio.Event()
    store = MemoryStore()
    await fill(store)

    async def ignore(*_: object) -> None:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    setattr(store, method, ignore)
    chosen: dict[str, Any] = {"resume_session_id": ID}
    if method == "list":
        chosen = {"continue_session": True}
    started = asyncio.ensure_future(
        bridle.Session(
            transport_factory=FakeTransport(), store=store, **chosen, load_timeout=0.1
        ).connect()
    )
    try:
        await asyncio.wait([started], timeout=LIMIT)
        assert started.done()
        assert isinstance(started.exception(), SessionLoadTimeout)
    finally:
        end.set()
        await asyncio.wait([started])


@pytest.mark.parametrize("found", [7, [7], "text", {"uuid": "1"}], ids=repr)
@pytest.mark.parametrize("subkey", ["", "subagents/agent-a"])
async def test_a_store_that_loads_something_else_is_reported(found: object, subkey: str) -> None:
    class Odd(MemoryStore):
        async def load(self, key: SessionKey) -> Any:
            return found if key.subkey == subkey else await super().load(key)

    store = Odd()
    await fill(store)
    with pytest.raises(SessionLoadError, match="did not return a list of dicts"):
        await open_session(FakeTransport(), store, resume_session_id=ID)


async def test_a_store_that_cancels_its_own_work_is_reported() -> None:
    class Cancelling(MemoryStore):
        async def load(self, key: SessionKey) -> Any:
            raise asyncio.CancelledError

    with pytest.raises(SessionLoadError, match="load was cancelled"):
        await open_session(FakeTransport(), Cancelling(), resume_session_id=ID)


async def test_a_start_that_is_cancelled_while_it_writes_leaves_no_files(
    home: Path, replace_steps: ReplaceSteps
) -> None:
    is_writing, may_write = threading.Event(), threading.Event()

    def slow_write(*arguments: Any) -> None:
        is_writing.set()
        assert may_write.wait(10.0)
        write_transcript(*arguments)

    replace_steps(write_loaded_transcript=slow_write)
    store = MemoryStore()
    await fill(store)
    session = bridle.Session(transport_factory=FakeTransport(), store=store, resume_session_id=ID)
    connecting = asyncio.ensure_future(session.connect())
    await until(is_writing.is_set)
    connecting.cancel()
    await asyncio.sleep(0)
    may_write.set()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})
    assert os.listdir(home / "tmp") == []


# ---------------------------------------------------------------- closing


class Failing(MemoryStore):
    """A store that can fail."""

    is_down = True
    ends_with_program = False

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if self.is_down:
            raise ConnectionError("down")
        await super().append(key, entries)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_the_session_continues_if_another_program_removes_its_spool(
    home: Path, set_limits: SetLimits, *, comes_back: bool
) -> None:
    set_limits(append_outage=0.05)
    store = Failing()
    transport = FakeTransport()
    session = await open_session(transport, store)
    transport.say(mirror(ID, "1"))
    await until(lambda: left(home))
    await until(lambda: ID in store._leases)
    [spool] = left(home)
    os.unlink(spool)
    store.is_down = not comes_back
    await session.aclose()
    assert store._leases == {}
    if comes_back:
        assert await uuids(store, ID) == ["1"]
        assert left(home) == []
    else:
        assert left(home) == [spool]
        store.is_down = False
        async with open_session(FakeTransport(), store, resume_session_id=ID):
            assert await uuids(store, ID) == ["1"]


@pytest.mark.parametrize("method", ["append", "release", "acquire"])
async def test_stopping_a_session_does_not_wait_long_for_a_store_that_hangs(
    method: str, set_limits: SetLimits
) -> None:
    set_limits(closing_store=600.0, stopping_store=0.2)
    store = MemoryStore()

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    setattr(store, method, hang)
    transport = FakeTransport()
    session = await open_session(transport, store)
    transport.say(mirror(ID, "1"))
    await session.stop()


class Hanging(MemoryStore):
    """A store that never ends an append."""

    ends_with_program = False

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await asyncio.Event().wait()


def stored_session(store: MemoryStore) -> StoreSession:
    """A session with one entry of its transcript and one of its journal."""
    session = StoreSession(store, 5.0, session_id=lambda: ID, warn=ignore, fail=ignore)
    path = f"/c/projects/-work/{ID}.jsonl"
    session.add(Mirror(path=path, entries=[{"type": "user", "uuid": "1"}], size=10))
    session.journal().put({"type": "tool_result", "uuid": "2"})
    return session


def ignore(_: object) -> None:
    """Ignore a warning."""


async def test_all_waits_of_a_stop_end_within_its_timeout(set_limits: SetLimits) -> None:
    set_limits(stopping_store=3.0)

    class HangingRelease(Hanging):
        async def release(self, session_id: str, owner: str) -> None:
            await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    session = stored_session(HangingRelease())
    session.finish_journal = asyncio.sleep  # an outcome that is never written
    before = loop.time()
    await session.aclose(is_stopped=True)
    assert loop.time() - before < 6.0  # 9 s if each of the three has its own timeout


def test_entries_for_a_store_in_memory_wait_in_memory(home: Path) -> None:
    """The next session of the program sends them. There is no file that could be left."""

    class InMemory(Failing):
        ends_with_program = True

    async def main() -> None:
        store, other = InMemory(), InMemory()
        for one in (store, other):
            await stored_session(one).aclose(is_stopped=True)
        assert left(home) == []
        for session_id in (ID, OTHER):  # the store still fails; another session
            agent = bridle.Agent(store=store, load_timeout=0.2)
            with pytest.raises(bridle.BridleError):
                await agent.recover(session_id)
        store.is_down = False
        async with open_session(FakeTransport(), store, resume_session_id=ID):
            assert await uuids(store, ID) == ["1"]
            assert await uuids(store, ID, "journal") == ["2"]
        assert left(home) == []

    run(main)
    gc.collect()
    assert list(left_behind("")) == []


async def test_a_cancelled_close_loses_nothing_for_a_store_in_memory(home: Path) -> None:
    store = MemoryStore()
    closing = asyncio.create_task(stored_session(store).aclose(is_stopped=False))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert left(home) == []
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        assert await uuids(store, ID) == ["1"]


def test_a_forked_child_has_its_own_copy_of_the_entries_for_a_store_in_memory(home: Path) -> None:
    class InMemory(Failing):
        ends_with_program = True

    store = InMemory()

    async def close() -> None:
        await stored_session(store).aclose(is_stopped=True)

    async def resume() -> None:
        store.is_down = False
        async with open_session(FakeTransport(), store, resume_session_id=ID):
            assert await uuids(store, ID) == ["1"]

    run(close)
    child = os.fork()
    if not child:
        status = 1
        try:
            run(resume)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    run(resume)
    assert left(home) == []


class Unhashable:
    """A store in memory that has no hash and no weak references."""

    __slots__ = ("is_down", "store")
    __hash__ = None  # type: ignore[assignment]
    ends_with_program = True
    location = "here"

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.is_down = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        if self.is_down:
            raise ConnectionError("down")
        await self.store.append(key, entries)


async def test_a_store_of_a_user_that_ends_with_the_program_can_be_any_object(home: Path) -> None:
    store: Any = Unhashable()
    await stored_session(store).aclose(is_stopped=True)
    assert left(home) == []
    store.is_down = False
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        assert await uuids(store, ID) == ["1"]


@pytest.mark.parametrize("has_outcome", [False, True])
async def test_a_close_that_is_cancelled_keeps_the_journal_and_gives_the_lease_back(
    home: Path, *, has_outcome: bool
) -> None:
    store = Hanging()
    session = stored_session(store)
    is_finishing = asyncio.Event()

    async def finish(timeout: float) -> None:
        is_finishing.set()
        await asyncio.sleep(timeout)

    session.finish_journal = finish
    await until(lambda: ID in store._leases)
    closing = asyncio.create_task(session.aclose(is_stopped=False))
    if has_outcome:
        await is_finishing.wait()
    else:
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    spooled = "".join(Path(path).read_text() for path in left(home))
    assert '"uuid":"1"' in spooled
    assert '"uuid":"2"' in spooled
    assert is_finishing.is_set()
    assert await store.acquire(ID, "another", 10.0)
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


# ---------------------------------------------------------------- leases


@pytest.mark.parametrize("place", ["store", "files"])
@pytest.mark.parametrize("is_followed", [True, False])
async def test_a_fork_of_a_session_in_use_does_not_touch_its_lease(
    home: Path, place: str, set_limits: SetLimits, *, is_followed: bool
) -> None:
    set_limits(follow_pause=0.01)
    store = MemoryStore()
    project = home / "home" / ".claude" / "projects" / "-work"
    project.mkdir(parents=True)
    (project / f"{ID}.jsonl").write_text('{"uuid":"1"}\n')
    if place == "store":
        await fill(store)
    assert await store.acquire(ID, "another process", 60.0)
    chosen: dict[str, Any] = {"resume_session_id": ID, "fork_session": True}
    session = await open_session(FakeTransport(), store, **chosen)
    await until(lambda: session.id in store._leases)
    watching = session._connection.store
    assert watching is not None
    if is_followed:
        await watching._copy_files()
    await watching.read_files(is_clean=False)
    await asyncio.sleep(0.05)
    assert session.alive
    assert store._leases[ID][0] == "another process"
    await session.aclose()
    assert list(store._leases) == [ID]


async def test_a_lease_is_renewed_after_the_store_cancelled_a_renewal(
    set_limits: SetLimits,
) -> None:
    set_limits(lease=0.1)

    class Cancelling(MemoryStore):
        calls = 0

        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            self.calls += 1
            if self.calls == 2:
                raise asyncio.CancelledError
            return await super().acquire(session_id, owner, seconds)

    store = Cancelling()
    await fill(store)
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        await until(lambda: store.calls >= 4)
    assert store._leases == {}


async def test_a_lease_is_renewed_by_a_store_that_ignored_a_cancellation(
    set_limits: SetLimits,
) -> None:
    set_limits(lease=0.1)
    end = asyncio.Event()

    class Stubborn(MemoryStore):
        calls = 0

        async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
            self.calls += 1
            while self.calls == 2 and not end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await end.wait()
            return await super().acquire(session_id, owner, seconds)

    store = Stubborn()
    await fill(store)
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        await until(lambda: store.calls >= 4)
        end.set()


async def test_a_session_holds_its_lease_until_it_ends(set_limits: SetLimits) -> None:
    set_limits(lease=0.3)
    store = MemoryStore()
    await fill(store)
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        with pytest.raises(SessionInUseError) as caught:
            await open_session(FakeTransport(), store, resume_session_id=ID)
        assert caught.value.session_id == ID
        await asyncio.sleep(0.6)  # longer than a lease: it is renewed
        assert not await store.acquire(ID, "another process", 1.0)
    assert await store.acquire(ID, "another process", 1.0)


async def test_a_lease_expires_after_a_crash() -> None:
    now = 0.0
    store = MemoryStore(clock=lambda: now)
    await fill(store)
    assert await store.acquire(ID, "a process that crashed", LEASE)
    with pytest.raises(SessionInUseError):
        await open_session(FakeTransport(), store, resume_session_id=ID)
    now = LEASE + 1
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        pass


async def test_a_new_session_takes_its_lease_in_the_background() -> None:
    store = MemoryStore()
    async with open_session(FakeTransport(), store) as session:
        assert session.id is not None
        await until(lambda: session.id in store._leases)


async def test_a_session_that_lost_its_lease_ends(set_limits: SetLimits) -> None:
    set_limits(lease=0.1)
    store = MemoryStore()
    await fill(store)
    session = await open_session(FakeTransport(), store, resume_session_id=ID)
    store._leases[ID] = ("another process", float("inf"))
    await until(lambda: not session.alive)
    await session.aclose()
    assert isinstance(session._engine.error, SessionInUseError)


# ---------------------------------------------------------------- files


async def test_what_a_killed_cli_saved_but_did_not_report_is_copied(home: Path) -> None:
    store = MemoryStore()
    project = home / "home" / ".claude" / "projects" / "-work"
    project.mkdir(parents=True)
    transport = FakeTransport()
    session = await open_session(transport, store)
    file = project / f"{session.id}.jsonl"
    file.write_text('{"uuid":"1"}\n{"uuid":"2"}\n{"type":"mode"}\n{"uuid":"3"}\n{"uu')
    entries = [{"uuid": "1"}]
    transport.say({"type": "transcript_mirror", "filePath": str(file), "entries": entries})
    await session.stop()
    assert await uuids(store, str(session.id)) == ["1", "2", "3"]


async def test_a_cli_that_reports_nothing_is_followed(home: Path, set_limits: SetLimits) -> None:
    set_limits(follow_pause=0.02)
    store = MemoryStore()
    project = home / "home" / ".claude" / "projects" / "-work"
    project.mkdir(parents=True)
    with FakeCli.auto().version("2.1.100 (Claude Code)") as cli:
        async with bridle.start_session(cli_path=cli.path, store=store) as session:
            assert "--session-mirror" not in session._connection.launch.argv
            session_id = str(session.id)
            file = project / f"{session_id}.jsonl"
            file.write_text('{"uuid":"1"}\n{"type":"mode"}\n')
            await until(lambda: session_id in store._sessions)
            inside = project / session_id / "subagents"
            inside.mkdir(parents=True)
            (inside / "agent-a.jsonl").write_text('{"uuid":"2"}\n')
            with file.open("a") as stream:
                stream.write('{"uuid":"3"}\n')
        found = await store.load(SessionKey(session_id)) or []
        assert found == [{"uuid": "1"}, {"type": "mode"}, {"uuid": "3"}]
        assert await uuids(store, session_id, "subagents/agent-a") == ["2"]


async def test_a_report_that_is_too_long_is_read_from_the_file(home: Path) -> None:
    store = MemoryStore()
    project = home / "home" / ".claude" / "projects" / "-work"
    project.mkdir(parents=True)
    transport = FakeTransport()
    async with open_session(transport, store, max_buffer_size=2048) as session:
        file = project / f"{session.id}.jsonl"
        file.write_text('{"uuid":"1"}\n{"uuid":"2","text":"%s"}\n{"uuid":"3"}\n' % ("x" * 4096))
        for uuid, text in (("1", ""), ("2", "x" * 4096), ("3", "")):
            entry = {"uuid": uuid, "text": text}
            transport.say({"type": "transcript_mirror", "filePath": str(file), "entries": [entry]})
    assert sorted(map(str, await uuids(store, str(session.id)))) == ["1", "2", "3"]


async def test_the_spool_of_an_earlier_process_is_sent_before_the_conversation_is_loaded(
    home: Path,
) -> None:
    store = Failing()
    transport = FakeTransport()
    async with open_session(transport, store, session_id=ID):
        transport.say(mirror(ID, "1", "2"))
    assert len(left(home)) == 1
    store.is_down = False
    async with open_session(FakeTransport(), store, resume_session_id=ID) as session:
        file = Path(session._connection.launch.directory) / f"{ID}.jsonl"
        assert len(file.read_bytes().splitlines()) == 2
    assert left(home) == []
    assert os.listdir(home / "state" / "bridle" / "spool") == []


async def test_entries_after_a_clear_are_spooled_under_the_new_id(home: Path) -> None:
    store = Failing()
    transport = FakeTransport()
    async with open_session(transport, store, session_id=ID):
        transport.say(mirror(ID, "1"), mirror(OTHER, "2"))
    store.is_down = False
    async with open_session(FakeTransport(), store, resume_session_id=OTHER):
        assert await uuids(store, OTHER) == ["2"]
    async with open_session(FakeTransport(), store, resume_session_id=ID):
        assert await uuids(store, ID) == ["1"]
    assert left(home) == []


# ---------------------------------------------------------------- other doors and endings


def test_a_blocking_run_copies_to_the_store_too() -> None:
    store = MemoryStore()
    with FakeCli.auto() as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        assert agent.sync.run("hello").ok
        assert "result" in [message.type for message in agent.sync.query("hello")]
    assert store._leases == {}


async def test_a_store_for_the_official_protocol_is_accepted(home: Path) -> None:
    official = pytest.importorskip("claude_agent_sdk", reason="needs the official SDK")
    theirs = official.InMemorySessionStore()
    transport = FakeTransport()
    async with open_session(transport, theirs, session_id=ID):
        transport.say(mirror(ID, "1", "2"))
    async with open_session(FakeTransport(), theirs, resume_session_id=ID) as session:
        file = Path(session._connection.launch.directory) / f"{ID}.jsonl"
        assert file.read_bytes().count(b"\n") == 2
    assert left(home) == []


PROGRAM = """
import asyncio, sys
import bridle
from bridle.sessions import MemoryStore, SessionKey

async def main():
    store = MemoryStore()
    await store.append(SessionKey(sys.argv[2]), [{"uuid": "1"}])
    await store.append(SessionKey(sys.argv[2], "subagents/agent-a"), [{"uuid": "2"}])
    session = await bridle.start_session(
        cli_path=sys.argv[1], store=store, resume_session_id=sys.argv[2]
    )
    print(session._connection.launch.directory, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_program_that_is_killed_leaves_no_copy_of_the_conversation(home: Path) -> None:
    with FakeCli.auto() as cli:
        command = [sys.executable, "-c", PROGRAM, cli.path, ID]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            directory = program.stdout.readline().strip()
            assert (Path(directory) / ID / "subagents" / "agent-a.jsonl").exists()
            program.kill()
        wait_until(lambda: not os.path.exists(directory))


def test_a_session_that_the_end_of_its_loop_cuts_off_is_stored_and_unlocked(
    replace_steps: ReplaceSteps,
) -> None:
    """The loop ends while a server of the session closes."""
    store = FourMethods()

    async def hang(_: object) -> None:
        await asyncio.sleep(60)

    replace_steps(close_servers=hang)

    async def leave() -> str:
        session = await agent.session().__aenter__()
        turn = await session.send_user_message("hi")
        assert (await turn).ok
        closing = asyncio.create_task(session.aclose())
        await asyncio.wait([closing], timeout=0.2)
        sessions.append(session)
        assert session.id is not None
        return session.id

    async def resume(session_id: str) -> None:
        async with agent.session(resume_session_id=session_id):
            pass

    sessions: list[bridle.Session] = []
    with FakeCli.auto(transcripts=True, lifetime=60) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        session_id = asyncio.run(leave())
        replace_steps(close_servers=_close_nothing)
        asyncio.run(resume(session_id))


async def _close_nothing(_: object) -> None:
    """Close no servers."""
