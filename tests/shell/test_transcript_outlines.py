"""Entries whose content stays in their files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.stored import assistant, call, lines, result, user

from bridle.sessions._transcripts.outlines import Outlines
from bridle.sessions._transcripts.transcript import TranscriptEntry, conversation, entries_of_bytes

DATA = lines(
    user("a", None, "Look"),
    b"",
    b"  \r",
    b"\rnot json",
    assistant("b", "a", call("1")),
    user("c", "b", result("1"), toolDenialKind="interrupted"),
    {"type": "system", "uuid": "d", "parentUuid": None, "logicalParentUuid": "c", "isMeta": True},
    user("e", "d", "half \ud83d of a pair"),
    {"type": "last-prompt", "leafUuid": "e"},
) + (b'{"type":"user","uuid":"f","parentUuid":"e","teamName":"t"}')


def test_outlines_have_everything_but_the_content(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(DATA)
    whole = entries_of_bytes(DATA)
    with Outlines() as outlines:
        found = outlines.read(path)
        assert [one.raw_line for one in found] == [b""] * len(whole)
        assert [one.raw for one in found] == [one.raw for one in whole]
        for one, entry in zip(found, whole, strict=True):
            for name in set(TranscriptEntry.__struct_fields__) - {"raw_line", "timestamp"}:
                assert getattr(one, name) == getattr(entry, name)
        branch = [one.uuid for one in conversation(found, compacted=True)]
        assert branch == [one.uuid for one in conversation(whole, compacted=True)]
        assert all(
            structs.asdict(one)["parent_uuid"] in (None, *(entry.uuid for entry in whole))
            for one in found
        )


def test_several_files_are_read_in_any_order_with_one_open(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for path in paths:
        path.write_bytes(lines(user(path.stem, None), user(f"{path.stem}+", path.stem)))
    before = len(os.listdir("/dev/fd"))
    with Outlines() as outlines:
        files = [outlines.read(path) for path in paths]
        mixed = [entry.raw["uuid"] for pair in zip(*files, strict=True) for entry in pair]
        assert mixed == ["0", "1", "2", "0+", "1+", "2+"]
        assert len(os.listdir("/dev/fd")) == before + 1
    assert len(os.listdir("/dev/fd")) == before


def test_what_is_appended_meanwhile_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(lines(user("a", None)))
    with Outlines() as outlines:
        (entry,) = outlines.read(path)
        with path.open("ab") as file:
            file.write(lines(user("b", "a")))
        assert entry.raw["uuid"] == "a"


def test_a_file_that_was_cut_off_meanwhile_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(lines(user("a", None)))
    with Outlines() as outlines:
        (entry,) = outlines.read(path)
        os.truncate(path, 20)
        with pytest.raises(OSError, match="another program has changed the file"):
            _ = entry.raw


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_bytes(DATA)
    (tmp_path / "link.jsonl").symlink_to("one.jsonl")
    with Outlines() as outlines, pytest.raises(OSError, match="link"):
        outlines.read(tmp_path / "link.jsonl")
