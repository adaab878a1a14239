"""What the engine does with entries that the CLI adds to its transcripts."""

from __future__ import annotations

from tests.support.cli import assistant, delivered, line, only, result, running

from bridle._engine.actions import Mirror

PATH = "/c/projects/-work/00000000-0000-4000-8000-000000000001.jsonl"


def mirrored(*uuids: str) -> bytes:
    entries = [{"uuid": uuid} for uuid in uuids]
    return line(type="transcript_mirror", filePath=PATH, entries=entries)


def test_with_a_store_entries_are_an_action_and_not_a_message() -> None:
    engine = running(has_store=True)
    frame = mirrored("1", "2")
    actions = engine.receive(frame + assistant("a") + mirrored("3"), 1.0)
    assert [(one.path, one.entries) for one in only(Mirror, actions)] == [
        (PATH, ({"uuid": "1"}, {"uuid": "2"})),
        (PATH, ({"uuid": "3"},)),
    ]
    assert only(Mirror, actions)[0].size == len(frame)
    assert [kind for kind, _ in delivered(actions)] == ["assistant"]


def test_without_a_store_entries_are_a_message() -> None:
    engine = running()
    actions = engine.receive(mirrored("1"), 1.0)
    assert only(Mirror, actions) == []
    assert [kind for kind, _ in delivered(actions)] == ["transcript_mirror"]


def test_entries_that_come_after_the_session_has_stopped_still_go_to_the_store() -> None:
    engine = running(has_store=True)
    engine.stop(1.0)
    actions = engine.receive(assistant("late") + mirrored("1"), 2.0)
    assert [one.entries for one in only(Mirror, actions)] == [({"uuid": "1"},)]
    assert delivered(actions) == []


def test_after_the_session_has_stopped_nothing_else_is_read() -> None:
    engine = running()
    engine.stop(1.0)
    assert engine.receive(mirrored("1") + result(), 2.0) == []


def test_entries_in_a_line_that_is_too_long_have_to_be_read_from_the_file() -> None:
    engine = running(has_store=True, max_line=600)
    actions = engine.receive(mirrored(*map(str, range(100))), 1.0)
    assert only(Mirror, actions) == [Mirror("", (), 0)]
