"""Transcripts that real CLIs wrote: nothing is lost, and the official SDK reads the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.transcripts import SCENES, TITLE

from bridle import AssistantMessage, UnknownMessage, UserMessage
from bridle.messages import CompactBoundaryMessage
from bridle.sessions._transcripts.files import TranscriptFiles
from bridle.sessions._transcripts.transcript import Transcript, entries_of_bytes

RECORDED = Path(__file__).parent / "transcripts"
VERSIONS = sorted(path.name for path in RECORDED.iterdir())
FILES = sorted(RECORDED.rglob("*.jsonl"))

Home = Callable[[str, str], tuple[Path, str]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a configuration directory with one of the sessions, and its id."""

    def make(version: str, scene: str) -> tuple[Path, str]:
        source = RECORDED / version / f"{scene}.jsonl"
        session_id = json.loads(source.read_bytes().splitlines()[0])["sessionId"]
        project = tmp_path / "projects" / "-project"
        project.mkdir(parents=True)
        shutil.copy(source, project / f"{session_id}.jsonl")
        if source.with_suffix("").exists():
            shutil.copytree(source.with_suffix(""), project / session_id)
        return tmp_path, session_id

    return make


def both(function: Any) -> Any:
    scenes = pytest.mark.parametrize("scene", SCENES)
    return pytest.mark.parametrize("version", VERSIONS)(scenes(function))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RECORDED)))
def test_every_line_is_kept_and_every_message_keeps_its_fields(path: Path) -> None:
    data = path.read_bytes()
    entries = entries_of_bytes(data)
    assert b"".join(entry.raw_line + b"\n" for entry in entries) == data
    for entry in entries:
        assert entry.damage == ""
        assert entry.raw == json.loads(entry.raw_line)
        message = entry.message
        assert (message is not None) == (entry.type in ("user", "assistant", "system"))
        if message is not None:
            assert not isinstance(message, UnknownMessage)
            assert (message.misfits, message.raw_line) == ((), entry.raw_line)
            assert message.raw == entry.raw
            assert (message.uuid, message.session_id) == (entry.uuid, entry.raw["sessionId"])


@both
def test_the_official_sdk_reads_the_same_messages(
    version: str, scene: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = pytest.importorskip("claude_agent_sdk", reason="the official SDK is not installed")
    config, session_id = home(version, scene)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(config))
    transcript = TranscriptFiles(config_dir=config).load(session_id)
    ours = [(each.type, each.uuid, each.raw["message"]) for each in transcript.messages()]
    theirs = official.get_session_messages(session_id)
    assert ours == [(each.type, each.uuid, each.message) for each in theirs]
    assert ours != []
    assert [agent.agent_id for agent in transcript.subagents] == sorted(
        official.list_subagents(session_id)
    )
    for agent in transcript.subagents:
        inside = [
            (message.type, message.uuid, message.raw["message"], agent.tool_use_id)
            for message in transcript.messages(subagents=True)
            if message.agent_path and message.agent_path[-1].id == agent.tool_use_id
        ]
        assert inside == [
            (each.type, each.uuid, each.message, each.parent_tool_use_id)
            for each in official.get_subagent_messages(session_id, agent.agent_id)
        ]


@both
def test_the_official_sdk_lists_the_same_sessions(
    version: str, scene: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = pytest.importorskip("claude_agent_sdk", reason="the official SDK is not installed")
    config, session_id = home(version, scene)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(config))
    (ours,) = TranscriptFiles(config_dir=config).list(None, 0)
    (theirs,) = official.list_sessions()
    assert ours.created_at is not None
    assert {
        "session_id": ours.session_id,
        "summary": ours.summary,
        "last_modified": int(ours.updated_at * 1000),
        "file_size": ours.size,
        "custom_title": ours.custom_title,
        "first_prompt": ours.first_prompt,
        # The CLI writes HEAD where there is no branch.
        "git_branch": ours.git_branch or "HEAD",
        "cwd": ours.cwd,
        "tag": ours.tag,
        "created_at": round(ours.created_at * 1000),
    } == vars(theirs)
    assert (ours.custom_title == TITLE) == (scene == "tools")
    assert TranscriptFiles(config_dir=config).info(session_id) == ours


@pytest.mark.parametrize("version", VERSIONS)
def test_parallel_calls_and_an_interruption_are_in_the_conversation(
    version: str, home: Home
) -> None:
    config, session_id = home(version, "tools")
    messages = TranscriptFiles(config_dir=config).load(session_id).messages()
    told = [_told(message) for message in messages]
    # The CLI may run the first call before the model has written the second one.
    assert sorted(told[3:7]) == [["tool_result"]] * 2 + [["tool_use"]] * 2
    assert told[:3] + told[7:] == [
        "List the files (tools)",
        ["thinking"],
        "I look.",
        "Done.",
        "Thank you (plain)",
        "Done.",
        "Now wait (wait)",
        "I wa",
        "[Request interrupted by user]",
        "Go on (plain)",
        "Done.",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_before_a_compaction_are_read_on_request(version: str, home: Home) -> None:
    config, session_id = home(version, "compacted")
    transcript = TranscriptFiles(config_dir=config).load(session_id)
    after = transcript.messages()
    assert _told(after[0]).startswith("This session is being continued")
    assert isinstance(after[0], UserMessage)
    assert after[0].is_synthetic
    everything = transcript.messages(compacted=True, system=True)
    (boundary,) = [each for each in everything if isinstance(each, CompactBoundaryMessage)]
    assert boundary.compact_metadata.trigger == "manual"
    assert boundary.compact_metadata.pre_tokens
    before = everything[: everything.index(boundary)]
    assert _told(before[0]) == "List the files (tools)"
    assert _told(before[-1]) == "Done."
    rest = [each.uuid for each in everything[everything.index(boundary) :]]
    assert [each.uuid for each in after] == [uuid for uuid in rest if uuid in _uuids(after)]


@pytest.mark.parametrize("version", VERSIONS)
def test_subagents_come_after_the_call_that_started_them(version: str, home: Home) -> None:
    config, session_id = home(version, "subagents")
    transcript: Transcript = TranscriptFiles(config_dir=config).load(session_id)
    messages = transcript.messages(subagents=True)
    told = [("/".join(str(a.type) for a in each.agent_path), _told(each)) for each in messages]
    one, inner = "general-purpose", "general-purpose/general-purpose"
    assert told == [
        ("", "Ask both (agents)"),
        ("", ["tool_use"]),
        (one, "<one>"),
        (one, ["tool_use"]),
        (inner, "<inner>"),
        (inner, "inner is done"),
        (one, ["tool_result"]),
        (one, "one is done"),
        ("", ["tool_use"]),
        (one, "<two>"),
        (one, "two is done"),
        ("", ["tool_result"]),
        ("", ["tool_result"]),
        ("", "Done."),
    ]
    assert {agent.description for agent in transcript.subagents} == {"one", "two", "inner"}


def _told(message: Any) -> Any:
    assert isinstance(message, AssistantMessage | UserMessage)
    return message.text or [block.type for block in message.content if not isinstance(block, str)]


def _uuids(messages: list[Any]) -> set[str]:
    return {message.uuid for message in messages}
