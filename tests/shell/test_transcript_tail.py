"""Reading what a CLI adds to its transcripts."""

from __future__ import annotations

import os
from pathlib import Path

from bridle.sessions._transcripts.tail import TranscriptTail, size_of
from bridle.sessions._transcripts.transcript import line_of_object


def test_whole_lines_after_the_position_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    tail = TranscriptTail(str(file))
    assert tail.read() == ([], 0, 0)
    file.write_bytes(b'{"uuid":"1"}\nnot json\n[1]\n{"type":"mode"}\n{"uu')
    added = tail.read()
    assert [line_of_object(entry) for entry in added.entries] == [
        b'{"uuid":"1"}',
        b"not json",
        b"[1]",
        b'{"type":"mode"}',
    ]
    assert tail.read() == added  # nothing changes until the entries are copied
    tail.position = added.end
    with file.open("ab") as stream:
        stream.write(b'id":"2"}\n')
    assert tail.read().entries == [{"uuid": "2"}]


def test_entries_after_a_uuid_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        b'{"uuid":"1"}\n{"uuid":"2","parentUuid":"1"}\n{"type":"mode"}\n{"uuid":"3"}\n{"uu'
    )
    tail = TranscriptTail(str(file))
    assert [entry["uuid"] for entry in tail.read_after("1").entries] == ["2", "3"]
    assert [entry["uuid"] for entry in tail.read_after("3").entries] == []
    for uuid in (None, "unknown"):
        assert [entry["uuid"] for entry in tail.read_after(uuid).entries] == ["1", "2", "3"]


def test_a_link_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"uuid":"1"}\n')
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "b.jsonl")
    for name in ("a.jsonl", "b.jsonl"):
        assert TranscriptTail(str(tmp_path / name)).read() == ([], 0, 0)


def test_a_missing_file_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("123")
    assert (size_of(str(tmp_path / "a")), size_of(str(tmp_path / "b"))) == (3, 0)
