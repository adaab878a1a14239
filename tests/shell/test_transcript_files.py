"""The transcript files of the CLI: the newest copy, subagents, and private files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.stored import ONE, TWO, Home, plain

from bridle import OptionsError
from bridle._records.session_store import SessionKey
from bridle.sessions._backlog import key_of
from bridle.sessions._transcripts.files import (
    SubagentFile,
    TranscriptFiles,
    subagent_files,
    write_transcript,
)


def test_the_copy_that_changed_last_is_found(tmp_path: Path) -> None:
    home = Home(tmp_path)
    files = TranscriptFiles(None, tmp_path)
    assert files.path(ONE) is None
    for number, project in enumerate(("-c", "-b", "-a")):
        path = home.write(ONE, plain(), project=project)
        os.utime(path, (100 - number, 100 - number))
    home.write(ONE, b"", project="-empty")
    (tmp_path / "projects" / "-d").mkdir()
    home.file(ONE, "-d").symlink_to(home.write(TWO, plain()))
    assert files.path(ONE) == home.file(ONE, "-c")
    assert str(files.load(ONE).project) == "-c"


def test_subagents_are_listed_without_links(tmp_path: Path) -> None:
    path = tmp_path / f"{ONE}.jsonl"
    assert subagent_files(path) == {}
    inside = tmp_path / ONE / "subagents"
    (inside / "deep").mkdir(parents=True)
    for name in ("b.c.jsonl", "deep/a.jsonl", "b.c.meta.json", "notes.txt"):
        (inside / name).write_text("{}\n")
    (inside / "link.jsonl").symlink_to(inside / "notes.txt")
    (inside / "linked").symlink_to(inside / "deep")
    found = subagent_files(path)
    assert found == {
        "subagents/b.c": inside / "b.c.jsonl",
        "subagents/deep/a": inside / "deep" / "a.jsonl",
    }
    for subkey, file in found.items():  # as for a file that the CLI reports
        assert key_of(str(file), "-p") == SessionKey(ONE, subkey, "-p")


def written(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_a_session_and_its_subagents_are_written_for_their_owner_only(tmp_path: Path) -> None:
    agents = [
        SubagentFile("agent-a.b", [b"{}"], {"agentType": "x"}),
        SubagentFile("agent-a.c", [b"2"], {}),
        SubagentFile("deep/agent-d", [], {"text": "\ud800"}),
    ]
    write_transcript(tmp_path / "copy.v1.jsonl", iter([b"1", b"2"]), agents)
    assert written(tmp_path) == {
        "copy.v1.jsonl": b"1\n2\n",
        "copy.v1/subagents/agent-a.b.jsonl": b"{}\n",
        "copy.v1/subagents/agent-a.b.meta.json": b'{"agentType":"x"}\n',
        "copy.v1/subagents/agent-a.c.jsonl": b"2\n",
        "copy.v1/subagents/deep/agent-d.jsonl": b"",
        "copy.v1/subagents/deep/agent-d.meta.json": b'{"text":"\\ud800"}\n',
    }
    for name in written(tmp_path):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


def test_nothing_is_changed_if_one_of_the_files_exists(tmp_path: Path) -> None:
    inside = tmp_path / "copy" / "subagents"
    inside.mkdir(parents=True)
    (inside / "agent-b.jsonl").write_text("mine")
    agents = [SubagentFile(name, [b"{}"], {}) for name in ("agent-a", "agent-b")]
    before = written(tmp_path)
    with pytest.raises(FileExistsError) as caught:
        write_transcript(tmp_path / "copy.jsonl", [b"1"], agents)
    assert caught.value.filename == str(inside / "agent-b.jsonl")
    assert written(tmp_path) == before


def test_a_session_that_replaces_another_does_not_get_its_subagents(tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    write_transcript(path, [b"1"], [SubagentFile("agent-a", [b"{}"], {"a": 1})])
    write_transcript(path, [b"2"], [SubagentFile("agent-b", [b"{}"], {})], overwrite=True)
    assert written(tmp_path) == {
        "copy.jsonl": b"2\n",
        "copy/subagents/agent-b.jsonl": b"{}\n",
    }


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"1"
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_transcript(tmp_path / "a.jsonl", lines(), [SubagentFile("agent-a", [b"{}"], {})])
    assert written(tmp_path) == {}


@pytest.mark.parametrize("name", ["", "../a", "deep/../../a", "/a", ".a", "a\0"])
def test_the_name_of_a_subagent_cannot_leave_the_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError):
        write_transcript(tmp_path / "in" / "a.jsonl", [], [SubagentFile(name, [b"{}"], {})])
    assert written(tmp_path) == {}
