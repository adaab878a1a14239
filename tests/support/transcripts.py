"""Conversations on a real CLI that leave transcripts of every kind, and scrubbed copies of them.

``python -m tests.support.transcripts CLI DIRECTORY`` writes the transcripts of `tests/wire`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import bridle
from bridle import CliOptions, SdkOptions
from bridle.testing import ModelRequest, Reply, ScriptedModel, text, thinking, tool_use

SCENES = ("tools", "subagents", "compacted")
TITLE = "A renamed session"


def agent(name: str) -> Any:
    return tool_use(
        "Task",
        description=name,
        prompt=f"<{name}>",
        subagent_type="general-purpose",
        run_in_background=False,
    )


def model_of(request: ModelRequest) -> Reply:
    """Answer by what the last message holds."""
    last, first = str(request.messages[-1]), str(request.messages[0])
    has_result = "tool_result" in last
    if request.agent_id is not None:
        if "<one>" in first:
            return Reply(blocks=(text("one is done"),) if has_result else (agent("inner"),))
        return Reply(blocks=(text("two is done" if "<two>" in first else "inner is done"),))
    if "<summary>" in last:
        return Reply(blocks=(text("<summary>They listed files.</summary>"),))
    if "(wait)" in last:
        return Reply(blocks=(text("I wait."),), hold=True, hold_after=4)
    if "(tools)" in last and not has_result:
        calls = (tool_use("Bash", command="echo one"), tool_use("Bash", command="echo two"))
        return Reply(blocks=(thinking("Two commands."), text("I look."), *calls))
    if "(agents)" in last and not has_result:
        return Reply(blocks=(agent("one"), agent("two")))
    return Reply(blocks=(text("Done."),))


async def say(session: bridle.Session, *prompts: str) -> None:
    for prompt in prompts:
        outcome = await (await session.send_user_message(prompt))
        assert outcome.ok, (prompt, outcome.reason, outcome.detail)


async def interrupted(session: bridle.Session, prompt: str) -> None:
    """Send a prompt, and interrupt its turn while the model writes."""
    turn = await session.send_user_message(prompt)
    async for message in turn:
        if isinstance(message, bridle.StreamEvent) and message.text_delta:
            await turn.interrupt()
            break
    assert (await turn).reason == "interrupted"


async def play(scene: str, cli: CliOptions, sdk: SdkOptions) -> str:
    """Play a scene on the CLI. Return the id of its session."""
    cli = cli.replace(permission_mode="bypassPermissions", include_partial_messages=True)
    async with bridle.start_session(cli, sdk) as session:
        assert session.id is not None
        if scene == "tools":
            await say(session, "List the files (tools)", "Thank you (plain)")
            await session.conversation.rename(TITLE)
            await interrupted(session, "Now wait (wait)")
            await say(session, "Go on (plain)")
        elif scene == "subagents":
            await say(session, "Ask both (agents)")
        else:
            await say(session, "List the files (tools)", "Thank you (plain)", "/compact")
            await say(session, "And now (plain)", "/cost")
        return session.id


def projects_of(model: ScriptedModel) -> Path:
    """The directory with the transcripts that the CLI wrote."""
    return model.home / ".claude" / "projects"


# ------------------------------------------------------------------------- scrubbed copies

_LONGEST = 60


def scrubbed(line: bytes, names: dict[str, str]) -> bytes:
    """Return a line without long texts of the CLI, and without names of this machine."""
    entry = json.loads(line)
    if entry.get("type") in ("attachment", "api-request-shape", "api-request-blob"):
        entry = _short(entry)
    told = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    for name, short in names.items():
        told = told.replace(name, short).replace(_dashed(name), _dashed(short))
    return re.sub(r"Linux [0-9][^\"\\]*", "Linux", told).encode()


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[:20] + "…"
    if isinstance(value, list):
        return [_short(item) for item in value[:2]]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return value


def _dashed(path: str) -> str:
    return re.sub("[^a-zA-Z0-9]", "-", path)


def main(cli_path: str, target: Path) -> None:
    """Play all scenes, and write their transcripts."""

    async def scenes() -> None:
        work = target / "work"
        work.mkdir(parents=True)
        async with ScriptedModel(model_of) as model:
            cli = CliOptions(
                cli_path=cli_path, env=model.env, cwd=str(work), model="claude-sonnet-4-5"
            )
            for scene in SCENES:
                session_id = await play(scene, cli, SdkOptions(inherit_env=["PATH"]))
                found = next(projects_of(model).glob(f"*/{session_id}.jsonl"))
                for source in [found, *found.with_suffix("").rglob("*.json*")]:
                    name = str(source.relative_to(found.parent)).replace(session_id, scene)
                    copy = target / name
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    names = {str(work): "/project", str(model.home): "/home"}
                    lines = [scrubbed(line, names) for line in source.read_bytes().splitlines()]
                    copy.write_bytes(b"".join(line + b"\n" for line in lines))
        work.rmdir()

    asyncio.run(scenes())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
