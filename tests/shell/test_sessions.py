"""Stored sessions in files and in a store: finding, reading, changing."""

from __future__ import annotations

import inspect
import json
import logging
import os
import stat
import threading
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import claude_agent_sdk
import pytest
from tests.support.processes import run
from tests.support.steps import ReplaceSteps
from tests.support.stored import (
    NOBODY,
    ONE,
    TWO,
    Home,
    ListStore,
    assistant,
    call,
    lines,
    plain,
    result,
    user,
)

import bridle
from bridle import OptionsError, SessionNotFoundError, sessions
from bridle.errors import StoreError
from bridle.sessions import SessionKey
from bridle.sessions._backlog import Batch
from bridle.sessions._outbox.spool import Spool, spool_name
from bridle.sessions._transcripts import files as transcript_files
from bridle.sessions._transcripts import transcript as transcripts

MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "config")


def ids(found: list[sessions.SessionInfo]) -> list[str]:
    return [info.session_id for info in found]


def list_of(home: Home, *arguments: Any, **options: Any) -> list[str]:
    return ids(run(lambda: sessions.list_sessions(*arguments, config_dir=home.path, **options)))


# ---------------------------------------------------------------- listing


def numbered(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def test_sessions_are_listed_by_time_and_in_pages(home: Home) -> None:
    for number in range(5):
        path = home.write(numbered(number), plain(numbered(number)), project=f"-p{number % 2}")
        os.utime(path, (100 + number, 100 + number))
    newest_first = [numbered(number) for number in (4, 3, 2, 1, 0)]
    assert list_of(home) == newest_first
    assert list_of(home, limit=2) == newest_first[:2]
    assert list_of(home, limit=2, offset=1) == newest_first[1:3]
    assert list_of(home, offset=4) == newest_first[4:]
    assert list_of(home, offset=9) == []


def test_a_directory_selects_its_project(home: Home, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "link").symlink_to(work)
    name = "".join(c if c.isalnum() else "-" for c in os.path.realpath(work))
    home.write(ONE, plain(ONE), project=name)
    home.write(TWO, plain(TWO), project="-elsewhere")
    assert list_of(home, work) == list_of(home, str(tmp_path / "link")) == [ONE]
    assert list_of(home, tmp_path) == []
    assert sorted(list_of(home)) == [ONE, TWO]


def test_a_long_directory_is_found_by_its_start_and_not_mixed_with_another(
    home: Home, tmp_path: Path
) -> None:
    long = tmp_path / ("w" * 120) / ("x" * 120)
    long.mkdir(parents=True)
    start = "".join(c if c.isalnum() else "-" for c in os.path.realpath(long))[:200]
    home.write(ONE, plain(ONE, cwd=os.path.realpath(long)), project=f"{start}-otherhash")
    home.write(TWO, plain(TWO, cwd=os.path.realpath(long) + "/y"), project=f"{start}-third")
    assert list_of(home, long) == [ONE]


def test_files_that_are_not_sessions_are_left_out(home: Home, tmp_path: Path) -> None:
    home.write(ONE, plain())
    home.write("notes", plain())
    home.write(TWO, b"")
    home.write(numbered(1), lines(user("a", None, isSidechain=True)))
    home.write(numbered(2), lines({"type": "queue-operation"}))
    (home.path / "projects" / "file").write_text("x")
    assert list_of(home) == [ONE]
    assert list_of(Home(tmp_path / "nowhere")) == []


def test_links_and_pipes_are_not_followed(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(plain(ONE))
    path = home.file(ONE)
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    os.mkfifo(home.file(TWO))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f"{numbered(3)}.jsonl").write_bytes(plain(numbered(3)))
    (home.path / "projects" / "-linked").symlink_to(tmp_path / "other")
    assert list_of(home) == []
    for session_id in (ONE, TWO, numbered(3)):
        for function in (READ["read_messages"], READ["delete"], READ["fork"]):
            with pytest.raises(SessionNotFoundError):
                run(partial(function, session_id, config_dir=home.path))
    assert outside.read_bytes() == plain(ONE)


def test_a_thousand_large_sessions_are_listed_from_their_ends(home: Home) -> None:
    for number in range(1000):
        path = home.write(numbered(number), plain(numbered(number), f"prompt {number}"))
        with path.open("r+b") as file:
            file.truncate(10 * MIB)  # a sparse file: the middle is one unreadable line
            file.seek(0, os.SEEK_END)
            file.write(b"\n" + lines({"type": "custom-title", "customTitle": f"title {number}"}))
    before = _bytes_read()
    found = run(lambda: sessions.list_sessions(config_dir=home.path))
    read = _bytes_read() - before
    assert len(found) == 1000
    assert {info.summary for info in found} == {f"title {number}" for number in range(1000)}
    assert {info.first_prompt for info in found} == {f"prompt {number}" for number in range(1000)}
    assert 100 * MIB < read < 130 * MIB  # of 10,000 MiB
    before = _bytes_read()
    run(lambda: sessions.list_sessions(config_dir=home.path, limit=10))
    assert _bytes_read() - before < 2 * MIB


def test_a_page_of_files_reads_only_its_own_sessions(
    home: Home, replace_steps: ReplaceSteps
) -> None:
    for number in range(40):
        path = home.write(numbered(number), plain(numbered(number)), project=f"-p{number % 3}")
        os.utime(path, (100 + number, 100 + number))
    read: list[str] = []
    original = transcript_files._ends

    def watched(path: Path) -> Any:
        read.append(path.stem)
        return original(path)

    replace_steps(read_ends=watched)
    page = list_of(home, limit=3, offset=30)
    assert page == read == [numbered(number) for number in (9, 8, 7)]


async def test_pages_fit_together_although_sessions_without_a_message_lie_between_them(
    home: Home,
) -> None:
    """A page cannot know that a session which it skips has no message, unless it was read."""

    memory = sessions.MemoryStore(clock=iter(range(1000)).__next__)
    for number in range(24):
        is_empty = number % 3 == 1
        data = lines({"type": "queue-operation"}) if is_empty else plain(numbered(number))
        path = home.write(numbered(number), data)
        os.utime(path, (100 + number, 100 + number))
        entries = [json.loads(line) for line in data.splitlines()]
        await memory.append(SessionKey(numbered(number)), entries)
    whole = [numbered(number) for number in range(23, -1, -1) if number % 3 != 1]
    places: list[dict[str, Any]] = [{"config_dir": home.path}, {"store": memory}]
    for place in places:
        found: list[str] = []
        while page := ids(await sessions.list_sessions(**place, limit=5, offset=len(found))):
            found += page
        assert found == whole
        for offset in range(20):
            page = ids(await sessions.list_sessions(**place, limit=2, offset=offset))
            assert page == whole[offset : offset + 2]


def _bytes_read() -> int:
    """How many bytes this process has read, from caches too."""
    facts = Path("/proc/self/io")
    if not facts.exists():
        pytest.skip("only Linux counts the bytes that a process reads")
    return int(facts.read_text().split()[1])


def test_the_configuration_directory_comes_from_the_environment(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(ONE, plain())
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.path))
    assert ids(run(sessions.list_sessions)) == [ONE]
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    home.path.rename(tmp_path / ".claude")
    assert ids(run(sessions.list_sessions)) == [ONE]


def test_the_title_beside_a_file_is_used_if_its_lines_are_not_read(home: Home) -> None:
    """CLI 2.1.325 writes such a file. The title in the last lines is newer."""
    path = home.write(ONE, plain())
    path.with_suffix("").mkdir()
    beside = path.with_suffix("") / "custom-title.json"
    beside.write_text('{"customTitle":"beside"}')
    info = run(lambda: sessions.get_session(ONE, config_dir=home.path))
    assert info.custom_title == "beside"
    beside.write_text("{")
    assert run(lambda: sessions.get_session(ONE, config_dir=home.path)).custom_title is None


# ---------------------------------------------------------------- bad arguments

READ: dict[str, Callable[..., Any]] = {
    "get_session": sessions.get_session,
    "read_messages": sessions.read_messages,
    "read_transcript": sessions.read_transcript,
    "delete": sessions.delete,
    "fork": sessions.fork,
    "rename": lambda session_id, **where: sessions.rename(session_id, "t", **where),
    "tag": lambda session_id, **where: sessions.tag(session_id, "t", **where),
    "export": lambda session_id, **where: sessions.export(session_id, "x.json", **where),
}


@pytest.mark.parametrize("name", READ)
def test_an_unknown_session_is_an_error_with_its_id(name: str, home: Home, tmp_path: Path) -> None:
    home.write(ONE, plain())
    before = sorted(tmp_path.rglob("*"))
    places: list[dict[str, Any]] = [{"config_dir": home.path}, {"store": ListStore()}]
    for where in places:
        with pytest.raises(SessionNotFoundError) as caught:
            run(partial(READ[name], NOBODY, **where))
        assert (caught.value.session_id, bool(caught.value.place)) == (NOBODY, True)
        assert "bridle sessions list" in caught.value.fix
        with pytest.raises(SessionNotFoundError):
            run(partial(READ[name], ONE, directory=tmp_path, **where))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("session_id", ["", "../../x", f"../-project/{ONE}", f"{ONE}/x", None])
def test_an_id_that_is_not_a_uuid_is_an_error_before_anything_is_touched(
    name: str, session_id: Any, home: Home
) -> None:
    path = home.write(ONE, plain())
    with pytest.raises(OptionsError) as caught:
        run(lambda: READ[name](session_id, config_dir=home.path))
    assert caught.value.field == "session_id"
    assert path.read_bytes() == plain()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": "2"}, "limit"),
        ({"limit": True}, "limit"),
        ({"offset": -1}, "offset"),
        ({"offset": None}, "offset"),
        ({"directory": 7}, "directory"),
        ({"directory": ""}, "directory"),
        ({"store": ListStore()}, "config_dir"),
    ],
)
def test_invalid_arguments_of_a_list_are_named(
    options: dict[str, Any], field: str, home: Home
) -> None:
    with pytest.raises(OptionsError) as caught:
        list_of(home, **options)
    assert caught.value.field == field


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"here"


@pytest.mark.parametrize("path", ["a\0b", BytesPath(), b"here", "\ud800", ""])
def test_a_path_that_cannot_be_one_is_an_error(path: Any, home: Home) -> None:
    home.write(ONE, plain())
    for field, work in {
        "directory": lambda: sessions.list_sessions(path, config_dir=home.path),
        "config_dir": lambda: sessions.list_sessions(config_dir=path),
        "path": lambda: sessions.export(ONE, path, format="json", config_dir=home.path),
    }.items():
        with pytest.raises(OptionsError) as caught:
            run(work)
        assert caught.value.field == field


@pytest.mark.parametrize("path", [".", "/", "out", "out.v1", "out.txt", ".jsonl"])
def test_a_transcript_is_exported_only_to_a_file_that_the_cli_can_resume(
    path: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_subagent(home)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OptionsError) as caught:
        run(
            lambda: sessions.export(ONE, path, format="jsonl", overwrite=True, config_dir=home.path)
        )
    assert caught.value.field == "path"
    assert sorted(tmp_path.rglob("*")) == before


def test_halves_of_surrogate_pairs_are_removed_from_titles_and_tags(home: Home) -> None:
    home.write(ONE, plain())
    run(lambda: sessions.rename(ONE, "\ud83d New", config_dir=home.path))
    run(lambda: sessions.tag(ONE, "blue\ud83d", config_dir=home.path))
    info = run(lambda: sessions.get_session(ONE, config_dir=home.path))
    assert (info.custom_title, info.tag) == ("New", "blue")
    with pytest.raises(OptionsError):
        run(lambda: sessions.rename(ONE, "\ud83d", config_dir=home.path))


def test_a_blank_title_changes_nothing(home: Home, tmp_path: Path) -> None:
    path = home.write(ONE, plain())
    for work in (
        lambda: sessions.rename(ONE, " ", config_dir=home.path),
        lambda: sessions.tag(ONE, "", config_dir=home.path),
        lambda: sessions.fork(ONE, title="\n", config_dir=home.path),
        lambda: sessions.fork(ONE, up_to="nothing", config_dir=home.path),
        lambda: sessions.export(ONE, tmp_path / "x.pdf", config_dir=home.path),
        lambda: sessions.export(ONE, tmp_path / "no" / "x.md", config_dir=home.path),
        lambda: sessions.export(ONE, path, format="json", config_dir=home.path),
    ):
        with pytest.raises(OptionsError):
            run(work)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == plain()


# ---------------------------------------------------------------- reading


def test_damaged_lines_are_kept_and_reported(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.write(ONE, plain() + b'{"secret text')
    with caplog.at_level(logging.WARNING):
        messages = run(lambda: sessions.read_messages(ONE, config_dir=home.path))
    assert [message.uuid for message in messages] == ["u1", "a1"]
    (record,) = caplog.records
    assert (record.name, vars(record)["bridle_event"]) == ("bridle.sessions", "damaged_transcript")
    assert record.getMessage().endswith("could not be read: 1")
    assert "secret" not in record.getMessage()
    transcript = run(lambda: sessions.read_transcript(ONE, config_dir=home.path))
    assert [entry.raw_line for entry in transcript.damaged] == [b'{"secret text']
    assert len(transcript.entries) == 3


def test_the_newest_copy_of_a_session_is_read(home: Home) -> None:
    old = home.write(ONE, plain(ONE, "old"), project="-a")
    new = home.write(ONE, plain(ONE, "new"), project="-b")
    os.utime(old, (1, 1))
    assert list_of(home) == [ONE]
    info = run(lambda: sessions.get_session(ONE, config_dir=home.path))
    assert (info.first_prompt, info.path) == ("new", str(new))


async def test_files_are_opened_in_threads_and_not_on_the_event_loop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(ONE, plain())
    openers: list[int] = []
    original = os.open

    def watched(path: Any, *arguments: Any, **options: Any) -> int:
        if str(home.path) in str(path):
            openers.append(threading.get_ident())
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", watched)
    await sessions.list_sessions(config_dir=home.path)
    await sessions.read_messages(ONE, config_dir=home.path)
    await sessions.rename(ONE, "t", config_dir=home.path)
    await sessions.fork(ONE, config_dir=home.path)
    loop = threading.get_ident()
    assert len(openers) >= 5
    assert loop not in openers


# ---------------------------------------------------------------- changing


def test_a_change_is_appended_even_after_an_unfinished_line(home: Home) -> None:
    path = home.write(ONE, plain() + b'{"cut')
    before = path.read_bytes()
    inode = path.stat().st_ino
    run(lambda: sessions.rename(ONE, "New", config_dir=home.path))
    run(lambda: sessions.tag(ONE, "blue", config_dir=home.path))
    assert path.read_bytes() == before + b"\n" + lines(
        {"type": "custom-title", "customTitle": "New", "sessionId": ONE},
        {"type": "tag", "tag": "blue", "sessionId": ONE},
    ).replace(b": ", b":").replace(b", ", b",")
    assert path.stat().st_ino == inode
    info = run(lambda: sessions.get_session(ONE, config_dir=home.path))
    assert (info.summary, info.tag) == ("New", "blue")
    run(lambda: sessions.tag(ONE, None, config_dir=home.path))
    assert run(lambda: sessions.get_session(ONE, config_dir=home.path)).tag is None


def with_subagent(home: Home) -> Path:
    path = home.write(
        ONE,
        lines(user("a", None, "Look"), assistant("b", "a", call("1")), user("c", "b", result("1"))),
    )
    inside = path.with_suffix("") / "subagents" / "deep"
    inside.mkdir(parents=True)
    (inside / "agent-7.jsonl").write_bytes(lines(user("x", None, "Inner", isSidechain=True)))
    (inside / "agent-7.meta.json").write_text('{"toolUseId":"1","agentType":"Explore"}')
    return path


def texts(session_id: str, **where: Any) -> list[str]:
    messages = run(lambda: sessions.read_messages(session_id, subagents=True, **where))
    return [getattr(message, "text") for message in messages if getattr(message, "text")]  # noqa: B009


def test_a_fork_is_a_private_file_beside_the_original(home: Home) -> None:
    path = with_subagent(home)
    before = path.read_bytes()
    copy = run(lambda: sessions.fork(ONE, config_dir=home.path))
    made = path.with_name(f"{copy}.jsonl")
    files = [made, *(one for one in made.with_suffix("").rglob("*") if one.is_file())]
    assert len(files) == 3
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
    assert path.read_bytes() == before
    assert texts(copy, config_dir=home.path) == ["Look", "Inner"]
    info = run(lambda: sessions.get_session(copy, config_dir=home.path))
    assert info.custom_title == "Look (fork)"
    assert not list(path.parent.glob(".*"))


def test_subagents_with_dots_in_their_names_are_copied(home: Home, tmp_path: Path) -> None:
    path = home.write(ONE, lines(user("a", None), assistant("b", "a", call("1"), call("2"))))
    inside = path.with_suffix("") / "subagents"
    inside.mkdir(parents=True)
    for name, tool_use in (("agent-a.b", "1"), ("agent-a.c", "2")):
        (inside / f"{name}.jsonl").write_bytes(lines(user(name, None, name, isSidechain=True)))
        (inside / f"{name}.meta.json").write_text(json.dumps({"toolUseId": tool_use}))
    copy = run(lambda: sessions.fork(ONE, config_dir=home.path))
    read = run(lambda: sessions.read_transcript(copy, config_dir=home.path))
    assert [agent.name for agent in read.subagents] == ["agent-a.b", "agent-a.c"]
    run(lambda: sessions.export(ONE, tmp_path / "out.jsonl", config_dir=home.path))
    assert sorted(one.name for one in (tmp_path / "out" / "subagents").iterdir()) == sorted(
        one.name for one in inside.iterdir()
    )


def test_an_export_does_not_overwrite_the_files_of_subagents(home: Home, tmp_path: Path) -> None:
    with_subagent(home)
    other = tmp_path / "out" / "subagents" / "deep" / "agent-7.jsonl"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    with pytest.raises(OptionsError, match=r"agent-7\.jsonl, which already exists"):
        run(lambda: sessions.export(ONE, tmp_path / "out.jsonl", config_dir=home.path))
    assert (other.read_text(), (tmp_path / "out.jsonl").exists()) == ("mine", False)


def test_delete_removes_the_subagents_and_nothing_else(home: Home, tmp_path: Path) -> None:
    path = with_subagent(home)
    other = home.write(TWO, plain(TWO))
    kept = tmp_path / "kept"
    kept.mkdir()
    other.with_suffix("").symlink_to(kept)
    run(lambda: sessions.delete(ONE, config_dir=home.path))
    assert sorted(path.parent.iterdir()) == [other.with_suffix(""), other]
    run(lambda: sessions.delete(TWO, config_dir=home.path))
    assert list(path.parent.iterdir()) == []
    assert kept.exists()


def test_export_writes_private_files(home: Home, tmp_path: Path) -> None:
    path = with_subagent(home)
    target = tmp_path / "copy.jsonl"
    run(lambda: sessions.export(ONE, target, config_dir=home.path))
    assert target.read_bytes() == path.read_bytes()
    inner = tmp_path / "copy" / "subagents" / "deep" / "agent-7.jsonl"
    assert (
        inner.read_bytes()
        == (path.with_suffix("") / "subagents" / "deep" / "agent-7.jsonl").read_bytes()
    )
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(inner.stat().st_mode) == 0o600
    with pytest.raises(OptionsError, match="exists"):
        run(lambda: sessions.export(ONE, target, config_dir=home.path))
    run(
        lambda: sessions.export(
            ONE, target, format="markdown", overwrite=True, config_dir=home.path
        )
    )
    assert target.read_text().startswith("# Look\n")
    run(lambda: sessions.export(ONE, tmp_path / "x.json", config_dir=home.path))
    assert json.loads((tmp_path / "x.json").read_bytes())["session"]["session_id"] == ONE


# ---------------------------------------------------------------- stores


async def filled() -> ListStore:
    store = ListStore()
    told = [user("a", None, "Look"), assistant("b", "a", call("1")), user("c", "b", result("1"))]
    inner = [
        {"type": "agent_metadata", "toolUseId": "1", "agentType": "Explore", "uuid": "m"},
        user("x", None, "Inner", isSidechain=True),
    ]
    await store.append(SessionKey(ONE, project="-project"), told)
    await store.append(SessionKey(ONE, "subagents/agent-7", "-project"), inner)
    await store.append(SessionKey(ONE, "journal", "-project"), [{"type": "prompt"}])
    await store.append(SessionKey(TWO, project="-other"), [user("z", None, "Other")])
    await store.append(SessionKey(numbered(1)), [{"type": "queue-operation"}])
    await store.append(SessionKey("not-a-uuid"), [user("z", None, "Other")])
    return store


async def test_a_store_is_listed_read_and_changed_like_files(tmp_path: Path) -> None:
    store = await filled()
    assert ids(await sessions.list_sessions(store=store)) == [TWO, ONE]
    assert ids(await sessions.list_sessions(store=store, limit=1)) == [TWO]
    assert ids(await sessions.list_sessions(store=store, limit=1, offset=1)) == [ONE]
    assert ids(await sessions.list_sessions("/project", store=store)) == [ONE]
    info = await sessions.get_session(ONE, store=store)
    assert (info.project, info.summary, info.size, info.path) == (
        "-project",
        "Look",
        None,
        None,
    )
    await sessions.rename(ONE, "Title", store=store)
    await sessions.tag(ONE, "blue", store=store)
    info = await sessions.get_session(ONE, store=store)
    assert (info.custom_title, info.tag, info.updated_at) == ("Title", "blue", 8.0)
    assert all(entry["uuid"] for entry in store.entries[ONE, ""])
    messages = await sessions.read_messages(ONE, store=store, subagents=True)
    assert [message.uuid for message in messages] == ["a", "b", "x", "c"]
    copy = await sessions.fork(ONE, store=store)
    copied = await sessions.read_transcript(copy, store=store)
    assert copied.project == "-project"
    assert [message.raw["message"] for message in copied.messages(subagents=True)] == [
        message.raw["message"] for message in messages
    ]
    assert copied.subagents[0].agent_type == "Explore"
    assert (await sessions.get_session(copy, store=store)).summary == "Title (fork)"
    path = tmp_path / f"{copy}.jsonl"
    await sessions.export(copy, path, store=store)
    assert (tmp_path / copy / "subagents" / "agent-7.meta.json").exists()
    await sessions.delete(ONE, store=store)
    assert sorted(key[0] for key in store.entries if not key[1])[1:3] == sorted([TWO, copy])
    assert not [key for key in store.entries if key[0] == ONE]


async def test_a_name_in_a_store_cannot_leave_the_directory_of_an_export(tmp_path: Path) -> None:
    store = await filled()
    await store.append(SessionKey(ONE, "subagents/../../../evil"), [user("x", None, "Inner")])
    await sessions.export(ONE, tmp_path / "deep.jsonl", store=store)
    assert not list(tmp_path.parent.glob("evil*"))
    assert len(list(tmp_path.rglob("*.jsonl"))) == 2


async def test_transcripts_of_a_store_are_parsed_in_threads(replace_steps: ReplaceSteps) -> None:
    parsers: list[int] = []
    original = transcripts.entry_of_line

    def watched(line: bytes) -> Any:
        parsers.append(threading.get_ident())
        return original(line)

    replace_steps(decode_entry=watched)
    store = await filled()
    await sessions.list_sessions(store=store)
    await sessions.read_transcript(ONE, store=store)
    loop = threading.get_ident()
    assert len(parsers) > 5
    assert loop not in parsers


@pytest.mark.parametrize("text", ["<command-name>" * 4000, "<command-name>x</command-name>" * 2000])
def test_a_prompt_full_of_tags_is_listed_at_once(text: str, home: Home) -> None:
    home.write(ONE, plain(ONE, text))
    before = time.process_time()
    assert list_of(home) == [ONE]
    assert time.process_time() - before < 0.5  # quadratic time would be seconds


async def test_a_session_whose_prompt_is_an_image_can_be_used_like_others(
    home: Home, tmp_path: Path
) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}
    told = [user("a", None, [image]), assistant("b", "a")]
    home.write(ONE, lines(*told))

    store = sessions.MemoryStore()
    await store.append(SessionKey(ONE), told)
    places: list[Any] = [{"config_dir": home.path}, {"store": store}]
    for number, place in enumerate(places):
        assert [one.summary for one in await sessions.list_sessions(**place)] == ["[image]"]
        copy = await sessions.fork(ONE, **place)
        assert (await sessions.get_session(copy, **place)).summary == "[image] (fork)"
        await sessions.export(ONE, tmp_path / f"{number}.md", **place)
        await sessions.delete(ONE, **place)


async def test_a_session_without_a_conversation_can_be_exported(home: Home, tmp_path: Path) -> None:
    home.write(ONE, lines({"type": "queue-operation"}))
    assert await sessions.list_sessions(config_dir=home.path) == []
    await sessions.export(ONE, tmp_path / "a.md", config_dir=home.path)
    await sessions.export(ONE, tmp_path / "a.jsonl", config_dir=home.path)
    assert "no prompt" in (tmp_path / "a.md").read_text()
    assert "queue-operation" in (tmp_path / "a.jsonl").read_text()


@pytest.mark.parametrize("kind", ["ranges", "lists", "official"])
async def test_a_page_of_a_store_loads_only_its_own_sessions(kind: str) -> None:
    loaded: list[str] = []

    class Ranges(sessions.MemoryStore):
        async def load(self, key: SessionKey) -> Any:
            raise AssertionError("a list needs the ends of transcripts only")

        async def load_ends(self, key: SessionKey, size: int) -> tuple[bytes, bytes]:
            loaded.append(key.session_id)
            return await super().load_ends(key, size)

        async def load_after(self, key: SessionKey, position: int, size: int) -> Any:
            raise AssertionError("a list needs the ends of transcripts only")

    class Lists(ListStore):
        async def load(self, key: SessionKey) -> Any:
            loaded.append(key.session_id)
            return await super().load(key)

    class Official(claude_agent_sdk.InMemorySessionStore):
        async def load(self, key: Any) -> Any:
            loaded.append(key["session_id"])
            return await super().load(key)

    stores: dict[str, Any] = {"ranges": Ranges, "lists": Lists, "official": Official}
    store: Any = stores[kind]()
    for number in range(40):
        key = SessionKey(numbered(number), project=f"-p{number % 2}")
        await sessions.as_store(store).append(key, [user("a", None, f"Prompt {number}")])
    loaded.clear()
    page = ids(await sessions.list_sessions(store=store, limit=3, offset=30))
    assert len(page) == 3
    assert set(page) <= set(loaded)
    # In the official protocol, the index tells the project of a session.
    assert len(loaded) == (3 if kind != "official" else 2 + 2 * 3)


async def test_a_long_transcript_in_a_store_is_summarized_like_a_file(home: Home) -> None:
    told = [
        user("a", None, "First"),
        *(assistant(f"b{at}", f"b{at - 1}" if at else "a") for at in range(2000)),
        {"type": "custom-title", "customTitle": "Title", "sessionId": ONE},
    ]
    path = home.write(ONE, lines(*told))

    class OwnLoad(sessions.MemoryStore):
        """Changes entries when it loads them, so that parts of the list would be wrong."""

        async def load(self, key: SessionKey) -> Any:
            found = await super().load(key) or []
            return [{**one, "customTitle": "Changed"} for one in found]

    file = await sessions.get_session(ONE, config_dir=home.path)
    for store, title in ((sessions.MemoryStore(), "Title"), (OwnLoad(), "Changed")):
        await store.append(SessionKey(ONE, project="-project"), told)
        (info,) = await sessions.list_sessions(store=store)
        assert (info.summary, info.first_prompt) == (title, "First")
        assert info.created_at == file.created_at
    assert (file.summary, file.size) == ("Title", path.stat().st_size)


def memory_of(work: Callable[[], Any]) -> int:
    """How many bytes of Python objects there were more at one time."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def long_told(entries: int) -> list[Any]:
    """A conversation with entries of 1 MiB."""
    text = {"type": "text", "text": "x" * MIB}
    told = (assistant(f"a{at}", f"a{at - 1}" if at else "u", text) for at in range(entries))
    return [user("u", None, "Look"), *told]


def test_a_fork_of_a_file_has_one_entry_at_a_time_in_memory(home: Home) -> None:
    peaks: list[int] = []
    for session_id, entries in ((ONE, 4), (TWO, 16)):
        home.write(session_id, lines(*long_told(entries)))
        fork = partial(sessions.fork, session_id, config_dir=home.path)
        peaks.append(memory_of(partial(run, fork)))
    assert peaks[1] - peaks[0] < 2 * MIB  # of 12 MiB more


def test_a_fork_in_a_database_needs_twice_its_size_in_memory(tmp_path: Path) -> None:
    """It is appended at once, so that it is there as a whole or not at all."""

    async def fill() -> None:
        store = sessions.SqliteStore(tmp_path / "store.db")
        await store.append(SessionKey(ONE), long_told(16))
        await store.aclose()

    async def fork() -> None:
        store = sessions.SqliteStore(tmp_path / "store.db")
        copy = await sessions.fork(ONE, store=store)
        assert len((await sessions.read_transcript(copy, store=store)).entries) == 19
        await store.aclose()

    run(fill)
    assert memory_of(lambda: run(fork)) < 3 * 16 * MIB


def test_a_fork_of_a_file_that_changes_meanwhile_leaves_nothing(
    home: Home, replace_steps: ReplaceSteps
) -> None:
    path = home.write(ONE, lines(*long_told(2)))
    write = transcript_files.write_transcript

    def cut_off(*arguments: Any) -> None:
        os.truncate(path, 1000)
        write(*arguments)

    replace_steps(write_fork=cut_off)
    with pytest.raises(OSError, match="another program has changed the file"):
        run(lambda: sessions.fork(ONE, config_dir=home.path))
    assert [one.name for one in path.parent.iterdir()] == [path.name]


# ---------------------------------------------------------------- stores that fail or spool


async def test_a_fork_that_fails_leaves_nothing_in_the_store() -> None:
    class Failing(sessions.MemoryStore):
        is_full = False

        async def append(self, key: SessionKey, entries: Any) -> None:
            if self.is_full and not key.subkey:
                raise StoreError("Failing", "append", "full")
            await super().append(key, entries)

    store = Failing()
    for (session_id, subkey), entries in (await filled()).entries.items():
        await store.append(SessionKey(session_id, subkey, "-project"), entries)
    before = set(store._sessions)
    store.is_full = True
    with pytest.raises(StoreError, match="full"):
        await sessions.fork(ONE, store=store)
    assert set(store._sessions) == before


async def test_delete_removes_the_spool_files_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = sessions.MemoryStore()

    def spooled(session_id: str, of: object = store) -> Spool:
        spool = Spool(f"{spool_name(of, session_id)}transcript.", uuid4().hex)
        spool.write([Batch(SessionKey(session_id), [user("a", None, "Look")], 10, 1)])
        return spool

    await store.append(SessionKey(ONE), [user("a", None, "Look")])
    used = spooled(ONE)
    kept = [used, spooled(TWO), spooled(ONE, sessions.MemoryStore())]
    damaged = spooled(ONE)
    for spool in [*kept[1:], spooled(ONE), damaged]:
        spool.close()
    name = Path(damaged.path)
    name.rename(name.with_name(f"damaged.{name.name}"))
    await sessions.delete(ONE, store=store)
    assert sorted(map(str, (tmp_path / "bridle" / "spool").iterdir())) == sorted(
        spool.path for spool in kept
    )
    used.close()
    await sessions.delete(ONE, store=store)  # the store has nothing of it
    assert not os.path.exists(used.path)
    with pytest.raises(SessionNotFoundError):
        await sessions.delete(ONE, store=store)


# ---------------------------------------------------------------- blocking code


def test_blocking_code_has_the_same_functions(home: Home) -> None:
    home.write(ONE, plain())
    blocking = bridle.sync.sessions
    assert ids(blocking.list_sessions(config_dir=home.path)) == [ONE]
    blocking.rename(ONE, "Title", config_dir=home.path)
    assert blocking.get_session(ONE, config_dir=home.path).summary == "Title"
    copy = blocking.fork(ONE, config_dir=home.path)
    assert [m.uuid for m in blocking.read_messages(ONE, config_dir=home.path)] == ["u1", "a1"]
    blocking.delete(copy, config_dir=home.path)
    with pytest.raises(SessionNotFoundError):
        blocking.read_transcript(copy, config_dir=home.path)
    functions = [
        name for name in sessions.__all__ if inspect.iscoroutinefunction(getattr(sessions, name))
    ]
    assert sorted(blocking.__all__) == functions
    for name in functions:
        assert getattr(blocking, name).__doc__ == getattr(sessions, name).__doc__


async def test_a_session_that_has_only_a_journal_can_be_deleted(tmp_path: Path) -> None:
    store = sessions.MemoryStore()

    await store.append(SessionKey(ONE, "journal", "-p"), [{"uuid": "1"}])
    with pytest.raises(SessionNotFoundError):
        await sessions.delete(ONE, store=store, directory=tmp_path)
    await sessions.delete(ONE, store=store)
    assert await store.load(SessionKey(ONE, "journal")) is None
    with pytest.raises(SessionNotFoundError):
        await sessions.delete(ONE, store=store)
