"""Stored sessions that the real CLIs wrote, and what the CLIs make of our changes to them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.steps import ReplaceSteps
from tests.support.transcripts import SCENES, TITLE, model_of, play, projects_of, say

import bridle
from bridle import AssistantMessage, SessionNotFoundError, UserMessage, sessions
from bridle.testing import ModelRequest, ScriptedModel

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


class Stage:
    """A CLI with a scripted model, whose sessions are listed and changed."""

    def __init__(self, lab: Lab, model: ScriptedModel) -> None:
        self.lab = lab
        self.model = model
        self.cli = lab.cli(model)
        self.config = model.home / ".claude"

    async def play(self, scene: str) -> str:
        return await play(scene, self.cli, self.lab.sdk)

    async def resume(self, name: str, *prompts: str) -> ModelRequest:
        """Resume a session, and return the last request to the model."""
        cli = self.cli.replace(resume_session_id=name)
        async with bridle.start_session(cli, self.lab.sdk) as session:
            await say(session, *(prompts or ("Again (plain)",)))
        return self.model.requests[-1]


@asynccontextmanager
async def stage_of(lab: Lab) -> AsyncIterator[Stage]:
    async with ScriptedModel(model_of) as model:
        yield Stage(lab, model)


def prompts_in(request: ModelRequest) -> list[str]:
    """The prompts in a request, without the reminders of the CLI."""
    found: list[str] = []
    for message in _messages(request):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "user":
            found += [b["text"] for b in blocks if b["type"] == "text" and b["text"].endswith(")")]
    return found


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    return [dict(message) for message in request.messages]


def kinds_in(request: ModelRequest) -> list[str]:
    """The kinds of tool blocks in a request."""
    blocks = [
        block
        for message in _messages(request)
        for block in message["content"]
        if isinstance(block, dict)
    ]
    return [block["type"] for block in blocks if block["type"].startswith("tool_")]


@pytest.mark.longer
async def test_a_fork_resumes_with_the_whole_history(lab: Lab) -> None:
    async with stage_of(lab) as stage:
        session_id = await stage.play("tools")
        before = (projects_of(stage.model) / _project(lab) / f"{session_id}.jsonl").read_bytes()
        copy = await sessions.fork(session_id, config_dir=stage.config)
        request = await stage.resume(copy)
        expected = ["List the files (tools)", "Thank you (plain)", "Now wait (wait)"]
        assert prompts_in(request) == [*expected, "Go on (plain)", "Again (plain)"]
        assert sorted(kinds_in(request)) == ["tool_result"] * 2 + ["tool_use"] * 2
        path = projects_of(stage.model) / _project(lab) / f"{session_id}.jsonl"
        assert path.read_bytes() == before
        info = await sessions.get_session(copy, config_dir=stage.config)
        assert info.custom_title == f"{TITLE} (fork)"
        assert await _texts(copy, stage) == [
            *await _texts(session_id, stage),
            "Again (plain)",
            "Done.",
        ]


@pytest.mark.longer
async def test_a_fork_ends_with_the_chosen_message(lab: Lab) -> None:
    async with stage_of(lab) as stage:
        session_id = await stage.play("tools")
        messages = await sessions.read_messages(session_id, config_dir=stage.config)
        done = next(m for m in messages if isinstance(m, AssistantMessage) and m.text == "Done.")
        copy = await sessions.fork(
            session_id, up_to=done.uuid, title="Half", config_dir=stage.config
        )
        request = await stage.resume("Half")
        assert prompts_in(request) == ["List the files (tools)", "Again (plain)"]
        assert sorted(kinds_in(request)) == ["tool_result"] * 2 + ["tool_use"] * 2
        assert (await _texts(copy, stage))[-2:] == ["Again (plain)", "Done."]


@pytest.mark.longer
async def test_a_fork_of_a_compacted_session_resumes_from_the_summary(lab: Lab) -> None:
    async with stage_of(lab) as stage:
        session_id = await stage.play("compacted")
        copy = await sessions.fork(session_id, config_dir=stage.config)
        ours, theirs = await stage.resume(copy), await stage.resume(session_id)
        assert "They listed files." in str(ours.messages[0])
        assert prompts_in(ours) == prompts_in(theirs) == ["And now (plain)", "Again (plain)"]
        # The message that the compaction kept is still there.
        assert _answers(ours) == _answers(theirs)


@pytest.mark.longer
async def test_a_fork_has_its_subagents(lab: Lab) -> None:
    async with stage_of(lab) as stage:
        session_id = await stage.play("subagents")
        copy = await sessions.fork(session_id, config_dir=stage.config)
        ours = await _texts(copy, stage, subagents=True)
        assert ours == await _texts(session_id, stage, subagents=True)
        assert "inner is done" in ours
        assert prompts_in(await stage.resume(copy)) == ["Ask both (agents)", "Again (plain)"]


@pytest.mark.longer
async def test_the_cli_finds_a_renamed_session_by_its_title(lab: Lab) -> None:
    async with stage_of(lab) as stage:
        session_id = await stage.play("tools")
        await sessions.rename(session_id, "  Ours now ", config_dir=stage.config)
        await sessions.tag(session_id, "kept", config_dir=stage.config)
        assert prompts_in(await stage.resume("Ours now"))[-2:] == ["Go on (plain)", "Again (plain)"]
        with pytest.raises(SessionNotFoundError):
            await stage.resume(TITLE)
        (info,) = await sessions.list_sessions(lab.work, config_dir=stage.config)
        assert (info.session_id, info.custom_title, info.tag) == (session_id, "Ours now", "kept")


@pytest.mark.longer
async def test_a_session_is_renamed_while_the_cli_uses_it(lab: Lab) -> None:
    async with stage_of(lab) as stage:
        # The CLI writes the file of a new session late, so this one exists already.
        async with bridle.start_session(stage.cli, lab.sdk) as session:
            await say(session, "One (plain)")
            session_id = str(session.id)
        again = stage.cli.replace(resume_session_id=session_id)
        async with bridle.start_session(again, lab.sdk) as session:
            await sessions.rename(session_id, "In use", config_dir=stage.config)
            await say(session, "Two (plain)")
        transcript = await sessions.read_transcript(session_id, config_dir=stage.config)
        assert transcript.damaged == ()
        assert prompts_in(await stage.resume("In use")) == [
            "One (plain)",
            "Two (plain)",
            "Again (plain)",
        ]


@pytest.mark.longer
async def test_an_exported_session_resumes_from_its_file_in_another_place(
    lab: Lab, tmp_path: Path
) -> None:
    async with stage_of(lab) as stage:
        session_id = await stage.play("subagents")
        path = tmp_path / f"{session_id}.jsonl"
        await sessions.export(session_id, path, config_dir=stage.config)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        await sessions.delete(session_id, config_dir=stage.config)
        assert await sessions.list_sessions(config_dir=stage.config) == []
        assert list(projects_of(stage.model).glob(f"*/{session_id}*")) == []
        stage.cli = stage.cli.replace(cwd=str(elsewhere))
        request = await stage.resume(str(path))
        assert prompts_in(request) == ["Ask both (agents)", "Again (plain)"]


@pytest.mark.longer
@pytest.mark.parametrize("is_missing", [False, True])
async def test_a_damaged_line_is_reported_and_the_rest_is_read_as_the_cli_does(
    lab: Lab, is_missing: bool
) -> None:
    async with stage_of(lab) as stage:
        async with bridle.start_session(stage.cli, lab.sdk) as session:
            await say(session, "One (plain)", "Two (plain)", "Three (plain)")
            session_id = str(session.id)
        path = next(projects_of(stage.model).glob(f"*/{session_id}.jsonl"))
        lines = path.read_bytes().splitlines(keepends=True)
        (place,) = [
            n
            for n, one in enumerate(lines)
            if json.loads(one).get("type") == "user" and b"Two (plain)" in one
        ]
        lines[place] = b"" if is_missing else lines[place][:40] + b"\n"
        path.write_bytes(b"".join(lines))
        transcript = await sessions.read_transcript(session_id, config_dir=stage.config)
        damaged = [entry.raw_line for entry in transcript.damaged]
        assert damaged == ([] if is_missing else [lines[place].rstrip()])
        ours = [text for text in await _texts(session_id, stage) if text.endswith(")")]
        assert [*ours, "Again (plain)"] == prompts_in(await stage.resume(session_id))
        copy = await sessions.fork(session_id, config_dir=stage.config)
        assert prompts_in(await stage.resume(copy))[:2] == ["One (plain)", "Three (plain)"]


@pytest.mark.longer
async def test_the_branch_that_the_cli_resumes_is_read(
    lab: Lab, replace_steps: ReplaceSteps
) -> None:
    """Two processes on one session write two branches. The one that exits last wins."""
    # Programs that do not use Bridle take no lock.
    replace_steps(take_session_locks=lambda *_: None)
    async with stage_of(lab) as stage:
        async with bridle.start_session(stage.cli, lab.sdk) as session:
            await say(session, "Root (plain)")
            session_id = str(session.id)
        again = stage.cli.replace(resume_session_id=session_id)
        winner, loser = (bridle.start_session(again, lab.sdk) for _ in range(2))
        async with winner as last, loser as first:  # the second one is closed first
            await say(last, "Wins (plain)")
            await say(first, "Loses (plain)")
        ours = [text for text in await _texts(session_id, stage) if text.endswith(")")]
        request = await stage.resume(session_id)
        assert prompts_in(request) == [*ours, "Again (plain)"]
        assert ours == ["Root (plain)", "Wins (plain)"]


@pytest.mark.longer
@pytest.mark.parametrize("scene", SCENES)
async def test_sessions_of_this_cli_read_like_in_the_official_sdk(
    lab: Lab, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = pytest.importorskip("claude_agent_sdk", reason="the official SDK is not installed")
    async with stage_of(lab) as stage:
        session_id = await stage.play(scene)
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(stage.config))
        (ours,) = await sessions.list_sessions(lab.work)
        (theirs,) = official.list_sessions(str(lab.work))
        assert (ours.session_id, ours.summary, ours.first_prompt, ours.cwd, ours.size) == (
            theirs.session_id,
            theirs.summary,
            theirs.first_prompt,
            theirs.cwd,
            theirs.file_size,
        )
        messages = [
            (each.uuid, each.raw["message"]) for each in await sessions.read_messages(session_id)
        ]
        read = [(each.uuid, each.message) for each in official.get_session_messages(session_id)]
        if scene == "compacted":
            # CLI 2.1.197 may write the command after the summary, as a child of what was before.
            # The official SDK then reads what was before, and not the summary.
            del messages[0]
            read = read[-len(messages) :]
        assert messages == read


async def test_sessions_of_the_official_sdk_read_the_same(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = pytest.importorskip("claude_agent_sdk", reason="the official SDK is not installed")
    async with stage_of(lab) as stage:
        options = official.ClaudeAgentOptions(
            cli_path=lab.cli_path,
            cwd=str(lab.work),
            env=stage.model.env,
            model="claude-sonnet-4-5",
            permission_mode="bypassPermissions",
        )
        async for _ in official.query(prompt="List the files (tools)", options=options):
            pass
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(stage.config))
        (info,) = await sessions.list_sessions(lab.work)
        assert info.first_prompt == "List the files (tools)"
        # What the official SDK writes is read, too.
        await asyncio.to_thread(official.rename_session, info.session_id, "Theirs")
        await asyncio.to_thread(official.tag_session, info.session_id, "t")
        made = await asyncio.to_thread(official.fork_session, info.session_id)
        found = {each.session_id: each for each in await sessions.list_sessions(lab.work)}
        assert (found[info.session_id].custom_title, found[info.session_id].tag) == ("Theirs", "t")
        assert found[made.session_id].custom_title == "Theirs (fork)"
        assert await _texts(made.session_id, stage) == await _texts(info.session_id, stage)
        # And the official SDK reads what Bridle writes.
        copy = await sessions.fork(info.session_id, title="Ours")
        await sessions.tag(copy, "b")
        theirs = official.get_session_info(copy)
        assert (theirs.custom_title, theirs.tag) == ("Ours", "b")
        assert [each.message for each in official.get_session_messages(copy)] == [
            each.raw["message"] for each in await sessions.read_messages(info.session_id)
        ]


def _project(lab: Lab) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in os.path.realpath(lab.work))


async def _texts(session_id: str, stage: Stage, **options: Any) -> list[str]:
    messages = await sessions.read_messages(session_id, config_dir=stage.config, **options)
    said = [each for each in messages if isinstance(each, AssistantMessage | UserMessage)]
    return [each.text for each in said if each.text]


def _answers(request: ModelRequest) -> list[Any]:
    return [
        [block["text"] for block in message["content"] if block["type"] == "text"]
        for message in _messages(request)
        if message["role"] == "assistant"
    ]
