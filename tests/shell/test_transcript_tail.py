"""Reading what a CLI adds to its transcripts, and writing transcripts for a CLI."""

from __future__ import annotations

import os
from pathlib import Path

from bridle._shell.transcript_tail import (
    TranscriptTail,
    find_transcript,
    newest_transcript,
    size_of,
    subagent_transcripts,
    write_transcripts,
)

ID = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"


def test_only_whole_lines_after_the_position_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    tail = TranscriptTail(str(file))
    assert tail.read() == ([], 0, 0)
    file.write_bytes(b'{"uuid":"1"}\nnot json\n[1]\n{"type":"mode"}\n{"uu')
    added = tail.read()
    assert added.entries == [{"uuid": "1"}, {"type": "mode"}]
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


def test_transcripts_are_found(tmp_path: Path) -> None:
    config = str(tmp_path)
    assert find_transcript(config, ID, "/work") is None
    assert newest_transcript(config, "/work") is None
    for project, names in {"-other": [ID, OTHER], "-work": [ID, "notes"]}.items():
        (tmp_path / "projects" / project).mkdir(parents=True)
        for name in names:
            (tmp_path / "projects" / project / f"{name}.jsonl").write_text("")
    assert find_transcript(config, ID, "/work") == f"{config}/projects/-work/{ID}.jsonl"
    assert find_transcript(config, OTHER, "/work") == f"{config}/projects/-other/{OTHER}.jsonl"
    assert newest_transcript(config, "/work") == f"{config}/projects/-work/{ID}.jsonl"


def test_a_conversation_is_written_for_its_owner_only(tmp_path: Path) -> None:
    entries = [{"uuid": "1", "text": "\ud800"}, {"uuid": "2"}]
    inner = [{"type": "agent_metadata", "agentType": "x"}, {"uuid": "3"}]
    path = write_transcripts(str(tmp_path), ID, entries, {"subagents/deep/agent-a": inner})
    assert Path(path).read_bytes() == b'{"uuid":"1","text":"\\ud800"}\n{"uuid":"2"}\n'
    [subagent] = subagent_transcripts(path)
    assert subagent == str(tmp_path / ID / "subagents" / "deep" / "agent-a.jsonl")
    assert Path(subagent).read_bytes() == b'{"uuid":"3"}\n'
    metadata = Path(subagent.replace(".jsonl", ".meta.json"))
    assert metadata.read_bytes() == b'{"agentType":"x"}\n'
    for place, directories, files in os.walk(tmp_path / ID):
        for name in directories + files:
            assert os.stat(os.path.join(place, name)).st_mode & 0o077 == 0
    assert (size_of(path), size_of(f"{path}.none")) == (os.path.getsize(path), 0)
