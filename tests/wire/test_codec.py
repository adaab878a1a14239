"""Nothing on the wire is lost: recordings of real CLIs, and lines nobody has written yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle._engine.wire.codec import decode_line
from bridle._records.raw_line import Sourced
from bridle.content import Block, UnknownBlock
from bridle.controls import (
    Answer,
    ControlFrame,
    ControlRequest,
    IncomingRequest,
    UnknownControlRequest,
)
from bridle.messages import (
    ActiveGoalMessage,
    AssistantMessage,
    AutocompactStateMessage,
    Delta,
    MalformedLine,
    Message,
    ModelRefusalFallbackMessage,
    PluginInstallMessage,
    StreamEvent,
    SystemMessage,
    UnknownMessage,
    UnknownSystemMessage,
    UserMessage,
)
from bridle.messages._stream_objects import ApiEvent
from bridle.messages._system import SYSTEM_KINDS

GOLDEN = Path(__file__).parent / "golden"
RECORDINGS = sorted(GOLDEN.rglob("*.ndjson"))


@cache
def lines_of(recording: Path) -> list[bytes]:
    """What the CLI wrote in this recording."""
    entries = (json.loads(line) for line in recording.read_text("utf-8").splitlines())
    return [entry["line"].encode() for entry in entries if entry["dir"] == "out"]


def values_in(value: object) -> Iterator[object]:
    """A frame and everything typed inside it, read the way a user reads it."""
    yield value
    if isinstance(value, msgspec.Struct):
        names = {name.lstrip("_") for name in value.__struct_fields__ if hasattr(value, name)}
        for name in names - {"raw"}:
            yield from values_in(getattr(value, name, None))
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from values_in(item)


def read(line: bytes) -> Message | ControlFrame:
    frame = decode_line(line)
    assert not isinstance(frame, MalformedLine), frame.reason
    return frame


# ---------------------------------------------------------------- recordings

TRANSCRIPT_ENTRIES = {"attachment", "progress"}
"""Lines that the CLI writes when it resumes a tool call. They are entries of its transcript."""


def test_there_are_recordings_of_two_versions() -> None:
    assert len({recording.parent for recording in RECORDINGS}) >= 2
    assert all(lines_of(recording) for recording in RECORDINGS)


@pytest.mark.parametrize(
    "recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
@pytest.mark.requirement("S090")
@pytest.mark.requirement("S087")
def test_a_recording_is_understood_whole(recording: Path) -> None:
    """R213."""
    for line in lines_of(recording):
        frame = read(line)
        assert (frame.raw, frame.misfits) == (json.loads(line), ())
        unknown = [v for v in values_in(frame) if type(v).__name__.startswith("Unknown")]
        assert [v for v in unknown if getattr(v, "type", None) not in TRANSCRIPT_ENTRIES] == []


@pytest.mark.parametrize(
    ("recording", "kind"),
    [
        ("2.1.197/plugin_install", PluginInstallMessage),
        ("2.1.325/plugin_install", PluginInstallMessage),
        ("2.1.197/refusal_fallback", ModelRefusalFallbackMessage),
        ("2.1.325/active_goal", ActiveGoalMessage),
        ("2.1.325/active_goal", AutocompactStateMessage),
    ],
)
def test_a_rare_message_of_a_real_cli_has_its_class(recording: str, kind: type[Message]) -> None:
    """The CLI sends these only in special cases.

    No recording has the following messages. The official SDKs make `mirror_error` themselves.
    The bridge to claude.ai sends `worker_shutting_down`. `session_writes_lost` needs a full disk.
    `memory_recall` did not come offline, with memories in the project's memory directory. After a
    refusal, 2.1.325 asked the same model again instead of sending `model_refusal_fallback`.
    2.1.197 sent no `active_goal`.
    """
    assert any(type(read(line)) is kind for line in lines_of(GOLDEN / f"{recording}.ndjson"))


@pytest.mark.parametrize(
    "recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_block_of_a_recording_finds_itself_on_the_wire(recording: Path) -> None:
    for line in lines_of(recording):
        whole = json.dumps(json.loads(line))
        for value in values_in(read(line)):
            if isinstance(value, Block | IncomingRequest | Answer):
                assert json.dumps(value.raw) in whole


@pytest.mark.parametrize(
    "recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_what_is_written_again_reads_the_same(recording: Path) -> None:
    for line in lines_of(recording):
        frame = read(line)
        assert read(msgspec.json.encode(frame.raw)) == frame


# ---------------------------------------------------------------- lines nobody has written yet

Json: TypeAlias = st.SearchStrategy[Any]
Objects: TypeAlias = st.SearchStrategy[dict[str, Any]]

JSON: Json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def tags(family: type[msgspec.Struct]) -> list[str]:
    kinds = (kind.__struct_config__.tag for kind in family.__subclasses__())
    return [str(tag) for tag in kinds if tag is not None]


def merge(*parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def tagged(tag_field: str, known: list[str], *families: type[msgspec.Struct]) -> Objects:
    """Objects with a known tag and members of the right names, with any values."""
    kinds = [kind for family in families for kind in (family, *family.__subclasses__())]
    names = sorted({name for kind in kinds for name in kind.__struct_encode_fields__})
    members = st.dictionaries(st.sampled_from(names) | st.text(), JSON, max_size=6)
    return st.builds(merge, members, st.fixed_dictionaries({tag_field: st.sampled_from(known)}))


def sometimes(**members: Json) -> Objects:
    return st.fixed_dictionaries({}, optional=members)


BLOCKS = tagged("type", tags(Block), Block)
CONTENT: Json = st.lists(BLOCKS | JSON, max_size=3) | JSON
NESTED: Json = st.lists(
    st.builds(merge, BLOCKS, st.fixed_dictionaries({"content": CONTENT})), max_size=2
)
BODIES = sometimes(content=CONTENT | NESTED, id=JSON, model=JSON, usage=JSON, role=JSON)
EVENTS = st.builds(
    merge,
    sometimes(delta=tagged("type", tags(Delta), Delta) | JSON, content_block=BLOCKS | JSON),
    tagged("type", tags(ApiEvent), ApiEvent),
)
QUESTIONS = tagged("subtype", tags(IncomingRequest), IncomingRequest)
ANSWERS = tagged("subtype", tags(Answer), Answer)
TYPES = [tag for tag in tags(Message) + tags(ControlFrame) if tag != "system"]
LINES = st.builds(
    merge,
    tagged("type", TYPES, Message, ControlFrame),
    sometimes(
        message=BODIES,
        content=CONTENT,
        event=EVENTS,
        request=QUESTIONS | JSON,
        response=ANSWERS | JSON,
    ),
)
SYSTEM_LINES = st.builds(
    merge,
    tagged("subtype", list(SYSTEM_KINDS), SystemMessage),
    st.fixed_dictionaries({"type": st.just("system")}),
)


def encode(value: object) -> bytes:
    return json.dumps(value).encode()


@given(LINES)
@pytest.mark.requirement("S035")
def test_a_known_type_keeps_its_class_whatever_its_fields_hold(line: dict[str, Any]) -> None:
    """R213."""
    frame = read(encode(line))
    assert frame.__struct_config__.tag == line["type"]
    assert frame.raw == json.loads(encode(line))
    for value in values_in(frame):
        if isinstance(value, Sourced) and value.raw is not None:  # None: the line lacks the part
            assert json.dumps(value.raw) in json.dumps(frame.raw)
    assert read(encode(line)) == frame


@given(SYSTEM_LINES)
def test_a_known_subtype_keeps_its_class_whatever_its_fields_hold(line: dict[str, Any]) -> None:
    frame = read(encode(line))
    assert type(frame) is SYSTEM_KINDS[line["subtype"]]
    assert frame.raw == json.loads(encode(line))


@given(
    st.dictionaries(st.text(), JSON), st.text().filter(lambda word: word not in [*TYPES, "system"])
)
def test_an_unknown_type_is_kept_whole(members: dict[str, Any], word: str) -> None:
    line = {**members, "type": word}
    frame = read(encode(line))
    assert isinstance(frame, UnknownMessage)
    assert (frame.type, frame.raw) == (word, line)


@given(st.dictionaries(st.text(), JSON), st.text().filter(lambda word: word not in SYSTEM_KINDS))
def test_an_unknown_subtype_is_kept_whole(members: dict[str, Any], word: str) -> None:
    line = {**members, "type": "system", "subtype": word}
    frame = read(encode(line))
    assert isinstance(frame, UnknownSystemMessage)
    assert (frame.subtype, frame.raw) == (word, line)


@given(
    st.dictionaries(st.text(), JSON),
    st.text().filter(lambda word: word not in tags(IncomingRequest)),
)
def test_an_unknown_question_is_kept_whole(members: dict[str, Any], word: str) -> None:
    request = {**members, "subtype": word}
    frame = read(encode({"type": "control_request", "request_id": "r", "request": request}))
    assert isinstance(frame, ControlRequest)
    assert (frame.request_id, frame.request) == ("r", UnknownControlRequest(word, request))


@given(st.dictionaries(st.text(), JSON), st.text().filter(lambda word: word not in tags(Block)))
def test_an_unknown_block_is_kept_whole(members: dict[str, Any], word: str) -> None:
    block = {**members, "type": word}
    for kind in (AssistantMessage, UserMessage):
        line = {"type": kind.__struct_config__.tag, "message": {"content": [block]}}
        frame = read(encode(line))
        assert isinstance(frame, AssistantMessage | UserMessage)
        assert (frame.content, frame.misfits) == ([UnknownBlock(word, block)], ())


@given(EVENTS)
def test_a_stream_event_keeps_the_class_of_its_event(event: dict[str, Any]) -> None:
    """C38."""
    frame = read(encode({"type": "stream_event", "event": event}))
    assert isinstance(frame, StreamEvent)
    assert frame.event.__struct_config__.tag == event["type"]


@given(JSON)
def test_any_json_becomes_some_value(value: object) -> None:
    """R213."""
    frame = decode_line(encode(value))
    if isinstance(value, dict):
        assert isinstance(frame, Message | ControlFrame)
    else:
        assert frame == MalformedLine("not a JSON object", encode(value))


@given(st.binary())
def test_any_bytes_become_some_value(line: bytes) -> None:
    frame = decode_line(line)
    if isinstance(frame, MalformedLine):
        assert frame.line == line.removesuffix(b"\n").removesuffix(b"\r")
    else:
        assert isinstance(frame.raw, dict)


@given(LINES, st.data())
def test_a_damaged_line_becomes_some_value_and_raw_stays_readable(
    line: dict[str, Any], data: st.DataObject
) -> None:
    whole = encode(line)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(start + 4, len(whole))))
    patch = data.draw(
        st.binary(max_size=3) | st.sampled_from([b"\\ud800", b"1e999", b"null", b'"'])
    )
    frame = decode_line(whole[:start] + patch + whole[end:])
    assert isinstance(frame, MalformedLine) or isinstance(frame.raw, dict)
