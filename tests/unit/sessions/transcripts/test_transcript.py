from __future__ import annotations

import json

import pytest
from tests.support.stored import ONE, assistant, call, entry, lines, result, user

from bridle import AssistantMessage, UserMessage
from bridle._records.session_store import Entry
from bridle.messages import UnknownSystemMessage
from bridle.sessions._transcripts.transcript import (
    Transcript,
    conversation,
    entries_of_bytes,
    entries_of_objects,
    entry_of_line,
    is_project,
    line_of_object,
    metadata_entry,
    objects_of_bytes,
    project_name,
    split_metadata,
    subagent_name,
    subagent_transcript,
)


def uuids(data: bytes, **options: bool) -> list[str | None]:
    return [one.uuid for one in conversation(entries_of_bytes(data), **options)]


def leaf(uuid: str) -> dict[str, object]:
    return {"type": "last-prompt", "leafUuid": uuid, "sessionId": ONE}


# ------------------------------------------------------------------------- entries


@pytest.mark.parametrize(
    ("line", "damage"),
    [
        (b'{"type":"user","uu', "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_a_damaged_line_is_kept_with_the_reason(line: bytes, damage: str) -> None:
    found = entry_of_line(line)
    assert found.damage.startswith(damage)
    assert (found.raw_line, found.raw, found.message, found.type) == (line, {}, None, "")


def test_unknown_kinds_of_entries_are_kept_whole() -> None:
    told = {"type": "brand-new", "uuid": "x", "extra": [1, {"a": None}]}
    (found,) = entries_of_objects([told])
    assert (found.type, found.uuid, found.raw, found.message) == ("brand-new", "x", told, None)


def test_a_value_of_a_store_that_is_not_json_is_damaged() -> None:
    (found,) = entries_of_objects([{"type": "user", "bad": object()}])
    assert "JSON" in found.damage


def test_members_of_the_wrong_type_are_ignored() -> None:
    told = {"type": 1, "uuid": 2, "parentUuid": [], "message": "text", "isSidechain": "yes"}
    (found,) = entries_of_objects([told])
    assert (found.type, found.uuid, found.parent_uuid, found.is_sidechain) == (
        "",
        None,
        None,
        False,
    )
    (other,) = entries_of_objects([user("a", None, [None, {"type": "tool_result"}])])
    assert other.tool_results == ()


def test_blank_lines_and_carriage_returns_are_not_entries() -> None:
    data = b"\n" + lines(user("a", None)).replace(b"\n", b"\r\n") + b"  \n\n"
    assert [one.uuid for one in entries_of_bytes(data)] == ["a"]


def test_a_message_has_the_fields_of_the_wire_and_the_line_of_the_transcript() -> None:
    told = user("a", None, result("t"), toolUseResult={"stdout": "x"}, isMeta=True, agentId="g")
    line = json.dumps(told).encode()
    message = entry_of_line(line).message
    assert isinstance(message, UserMessage)
    assert (message.session_id, message.uuid, message.agent_id) == (ONE, "a", "g")
    assert (message.tool_use_result, message.is_synthetic) == ({"stdout": "x"}, True)
    assert (message.raw_line, message.raw, message.content[0].raw) == (line, told, result("t")[0])  # type: ignore[union-attr]


def test_a_message_whose_fields_do_not_fit_keeps_its_class_and_line() -> None:
    line = json.dumps(assistant("a", None, requestId=7, isApiErrorMessage=True)).encode()
    message = entry_of_line(line).message
    assert isinstance(message, AssistantMessage)
    assert (message.misfits, message.request_id) == (("request_id",), None)
    assert (message.is_api_error_message, message.raw_line) == (True, line)


def test_a_system_entry_of_an_unknown_kind_is_a_message() -> None:
    message = entry_of_line(json.dumps(entry("system", "a", None, subtype="new")).encode()).message
    assert isinstance(message, UnknownSystemMessage)
    assert message.raw["subtype"] == "new"


# ------------------------------------------------------------------------- the conversation


def test_the_conversation_is_the_path_to_the_last_leaf() -> None:
    chain = [user("a", None), assistant("b", "a"), user("c", "b"), assistant("d", "c")]
    assert uuids(lines(*chain)) == ["a", "b", "c", "d"]
    assert uuids(lines(*chain, user("e", "b"), assistant("f", "e"))) == ["a", "b", "e", "f"]
    assert uuids(b"") == []


def test_the_branch_that_was_named_last_wins_over_a_newer_one() -> None:
    chain = [user("a", None), assistant("b", "a"), user("c", "a"), assistant("d", "c")]
    assert uuids(lines(*chain, leaf("b"))) == ["a", "b"]
    assert uuids(lines(*chain, leaf("b"), leaf("unknown"))) == ["a", "b"]
    # The branch went on after it was named.
    assert uuids(lines(*chain, leaf("b"), user("e", "b"))) == ["a", "b", "e"]


def test_a_leaf_named_inside_a_parallel_call_does_not_hide_the_other_results() -> None:
    data = lines(
        user("a", None),
        assistant("b", "a", call("1"), id="m"),
        assistant("c", "b", call("2"), id="m"),
        leaf("c"),
        user("d", "c", result("2")),
        user("e", "b", result("1")),
        assistant("f", "e"),
    )
    assert uuids(data) == ["a", "b", "c", "d", "e", "f"]
    assert uuids(data.replace(b'"leafUuid": "c"', b'"leafUuid": "d"')) == [*"abcdef"]


@pytest.mark.parametrize("order", ["12", "21"])
def test_results_of_parallel_calls_come_in_the_order_of_the_file(order: str) -> None:
    results = {
        "1": user("r1", "b", result("1")),
        "2": user("r2", "c", result("2")),
    }
    data = lines(
        user("a", None),
        assistant("b", "a", call("1"), id="m"),
        assistant("c", "b", call("2"), id="m"),
        *(results[one] for one in order),
        assistant("d", f"r{order[-1]}"),
    )
    assert uuids(data) == ["a", "b", "c", *(f"r{one}" for one in order), "d"]


def test_a_result_that_nothing_follows_is_kept() -> None:
    data = lines(
        user("a", None),
        assistant("b", "a", call("1"), id="m"),
        assistant("c", "b", call("2"), id="m"),
        user("r1", "b", result("1")),
        user("r2", "c", result("2")),
    )
    assert uuids(data) == ["a", "b", "c", "r1", "r2"]


def test_messages_with_one_id_in_different_places_are_not_joined() -> None:
    data = lines(
        user("a", None), assistant("b", "a", id="m"), user("c", "b"), assistant("d", "c", id="m")
    )
    assert uuids(data) == ["a", "b", "c", "d"]


def test_what_was_before_a_compaction_is_read_on_request() -> None:
    boundary = entry("system", "s", None, subtype="compact_boundary", logicalParentUuid="b")
    data = lines(user("a", None), assistant("b", "a"), leaf("b"), boundary, user("c", "s"))
    assert uuids(data) == ["s", "c"]
    assert uuids(data, compacted=True) == ["a", "b", "s", "c"]


def test_a_damaged_or_missing_line_does_not_end_the_conversation() -> None:
    data = lines(user("a", None), assistant("b", "a"), b'{"uuid":"lost', assistant("d", "lost"))
    assert uuids(data) == ["a", "b", "d"]
    assert uuids(lines(user("a", None), assistant("d", "missing"))) == ["a", "d"]
    assert uuids(lines(b"{", assistant("d", "lost"))) == ["d"]


def test_a_cycle_ends() -> None:
    assert uuids(lines(user("a", "b"), assistant("b", "a"))) == ["a", "b"]
    assert uuids(lines(user("a", "a"))) == ["a"]


def test_entries_that_only_have_a_uuid_are_not_part_of_the_conversation() -> None:
    """A store gives every entry a uuid."""
    title = {"type": "custom-title", "customTitle": "t", "uuid": "x", "sessionId": ONE}
    assert uuids(lines(user("a", None), title)) == ["a"]
    assert uuids(lines(user("a", None), entry("new-kind", "n", "a"), user("b", "n"))) == [*"anb"]


def test_sidechains_teammates_and_hidden_text_are_not_shown() -> None:
    data = lines(
        user("a", None),
        user("s", "a", isSidechain=True),
        user("t", "a", teamName="team"),
        user("m", "a", isMeta=True),
        assistant("b", "m"),
        user("h", "b", isMeta=True),
    )
    transcript = Transcript(session_id=ONE, project="", entries=entries_of_bytes(data))
    assert [message.uuid for message in transcript.messages()] == ["a", "b"]


def test_only_hidden_text_is_still_a_conversation() -> None:
    assert uuids(lines(user("a", None, isMeta=True))) == ["a"]


# ------------------------------------------------------------------------- subagents


def test_a_subagent_is_placed_by_the_call_in_its_metadata() -> None:
    inner = entries_of_bytes(
        lines(user("x", None, isSidechain=True), assistant("y", "x", isSidechain=True), b"{")
    )
    agents = (
        subagent_transcript("deep/agent-7", inner, {"toolUseId": "1", "agentType": "Explore"}),
        subagent_transcript("agent-8", inner, {}),
    )
    main = lines(user("a", None), assistant("b", "a", call("1"), call("1")), b"[]")
    transcript = Transcript(
        session_id=ONE, project="", entries=entries_of_bytes(main), subagents=agents
    )
    assert [one.uuid for one in transcript.messages()] == ["a", "b"]
    found = transcript.messages(subagents=True)
    assert [one.uuid for one in found] == ["a", "b", "x", "y"]
    assert [(one.id, one.type) for one in found[-1].agent_path] == [("1", "Explore")]
    assert isinstance(found[-1], AssistantMessage)
    assert (found[-1].parent_tool_use_id, found[-1].subagent_type) == ("1", "Explore")
    assert (agents[0].agent_id, agents[0].name) == ("7", "deep/agent-7")
    assert [one.raw_line for one in transcript.damaged] == [b"[]", b"{", b"{"]


def test_the_last_description_of_a_subagent_is_split_off() -> None:
    listed: list[Entry] = [
        {"type": "agent_metadata", "agentType": "old", "description": "gone"},
        {"type": "user", "uuid": "1"},
        {"type": "agent_metadata", "agentType": "new", "toolUseId": "2"},
    ]
    entries, metadata = split_metadata(listed)
    assert (entries, metadata) == ([listed[1]], {"agentType": "new", "toolUseId": "2"})
    assert split_metadata([]) == ([], {})
    agent = subagent_transcript("deep/agent-7", entries_of_objects(entries), metadata)
    assert (agent.agent_id, agent.agent_type, agent.tool_use_id) == ("7", "new", "2")
    assert agent.description is None
    assert metadata_entry(agent) == listed[2]


# ------------------------------------------------------------------------- entries in stores


def test_a_store_keeps_damaged_lines() -> None:
    data = b'{"uuid":"1"}\n{"cut\n[1]\n\n\xff\r\n{"type":"new kind"}\n'
    stored = objects_of_bytes(data)
    assert stored[0] == {"uuid": "1"}
    assert [line_of_object(one) for one in stored] == [
        b'{"uuid":"1"}',
        b'{"cut',
        b"[1]",
        "\ufffd".encode(),
        b'{"type":"new kind"}',
    ]
    from_store, from_file = entries_of_objects(stored), entries_of_bytes(data)
    assert [one.damage for one in from_store] == [one.damage for one in from_file]
    assert sum(bool(one.damage) for one in from_store) == 3


def test_an_entry_with_half_of_a_surrogate_pair_is_readable() -> None:
    (found,) = entries_of_objects([{"type": "user", "uuid": "1", "text": "\ud800"}])
    assert (found.raw_line, found.uuid, found.damage) == (
        b'{"type":"user","uuid":"1","text":"\\ud800"}',
        "1",
        "",
    )


def test_an_entry_of_a_store_that_is_not_json_is_damaged() -> None:
    strange: list[Entry] = [
        {"type": "user", "value": object()},
        {"type": "bridle_damaged_line", "line": "two\nlines"},
        {"type": "bridle_damaged_line", "line": 7},
    ]
    first, *rest = entries_of_objects(strange)
    assert first.damage
    assert [one.raw_line.count(b"\n") for one in rest] == [0, 0]


# ------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("subkey", "name"),
    [
        ("subagents/agent-a1", "agent-a1"),
        ("subagents/deep/agent-a.b", "deep/agent-a.b"),
        ("subagents/agent a@team", "agent a@team"),
        ("journal", None),
        ("subagents", None),
        ("subagents/", None),
        ("subagents/../../x", None),
        ("subagents/a/..", None),
        ("subagents/.hidden", None),
        ("subagents//etc/passwd", None),
        ("subagents/a\0b", None),
        ("subagents/a\n", None),
        ("subagents/\ud800", None),
        ("/subagents/a", None),
    ],
)
def test_a_subagent_has_a_name_that_is_safe_as_the_name_of_a_file(
    subkey: str, name: str | None
) -> None:
    assert subagent_name(subkey) == name


def test_a_project_is_named_after_its_directory() -> None:
    assert project_name("/home/me/My Project_1.0") == "-home-me-My-Project-1-0"
    assert project_name("/e\u0301") == project_name("/\u00e9") == "--"
    assert is_project("-a", "/a")
    assert not is_project("-a-b", "/a")


def test_a_long_name_ends_in_a_hash_and_is_found_by_its_start() -> None:
    """The hash is the one that both tested CLIs wrote for this path."""
    path = "/tmp/long-project/" + "w" * 120 + "/" + "x" * 120 + "/\u00e9"
    name = project_name(path)
    assert name == "-tmp-long-project-" + "w" * 120 + "-" + "x" * 61 + "-atxu3b"
    assert is_project(name, path)
    assert is_project(name[:-6] + "other", path)
    assert not is_project(name[:-20], path)


@pytest.mark.parametrize("parent", ["b", "c"])
def test_a_cycle_in_a_damaged_transcript_ends(parent: str) -> None:
    parts = [assistant("b", parent, id="m"), assistant("c", "b", id="m")]
    assert set(uuids(lines(*parts, leaf("c")))) == {"b", "c"}
    entries = entries_of_bytes(lines(*parts, leaf("b")))
    assert Transcript(session_id=ONE, project="-p", entries=entries).messages()


def test_a_command_that_was_written_after_its_compaction_follows_the_summary() -> None:
    boundary = entry("system", "d", None, subtype="compact_boundary", logicalParentUuid="b")
    compacted = [user("a", None), assistant("b", "a"), boundary, user("e", "d"), user("c", "b")]
    data = lines(*compacted, user("f", "c"), leaf("f"))
    assert uuids(data) == ["d", "e", "c", "f"]
    assert uuids(data, compacted=True) == ["a", "b", "d", "e", "c", "f"]
