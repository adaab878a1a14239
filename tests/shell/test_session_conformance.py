"""One small suite on the fake CLI and on the real ones: what holds for one holds for all.

The model says the same to all of them: a real CLI asks a scripted one, the fake plays it itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.soak.sessions import told_by

from bridle import (
    Allow,
    AssistantMessage,
    BidirOptions,
    Block,
    CanUseToolContext,
    CliOptions,
    Deny,
    OutcomeReason,
    PreToolUseContext,
    ResultMessage,
    SdkOptions,
    Session,
    SessionEnded,
    SessionReady,
    ToolResultBlock,
    ToolServer,
    UserMessage,
    start_session,
    tool,
)
from bridle._process.locate import candidates
from bridle.testing import FakeCli, Reply, ScriptedModel, text, tool_use
from bridle.testing.fake_cli import FLAVOURS

NEWEST, OLDER = FLAVOURS[0], FLAVOURS[-1]

Start = Callable[..., contextlib.AbstractAsyncContextManager[Session]]

REAL_OLDER = Path(__file__).parents[2] / ".clis" / OLDER / "claude"


def real_newest() -> Path | None:
    """The CLI of the wheel the development environment installs."""
    wheels = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
    return next((path for path in wheels if path.exists()), None)


@pytest.fixture(params=["fake newest", "fake older", "real newest", "real older"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Starts a session whose model says what the test lays out."""
    kind, age = request.param.split()
    if kind == "fake":
        return lambda script, **bidir: _fake(NEWEST if age == "newest" else OLDER, script, bidir)
    path = real_newest() if age == "newest" else REAL_OLDER
    if path is None or not path.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")
    return lambda script, **bidir: _real(path, tmp_path, script, bidir)


@contextlib.asynccontextmanager
async def _fake(flavour: str, script: Any, bidir: dict[str, Any]) -> AsyncGenerator[Session]:
    with FakeCli.auto(script, flavour=flavour) as cli:
        chosen = CliOptions(cli_path=cli.path, allowed_tools=["mcp__calc__add"])
        async with start_session(chosen, bidir=BidirOptions(**bidir)) as session:
            yield session


@contextlib.asynccontextmanager
async def _real(
    path: Path, cwd: Path, script: Any, bidir: dict[str, Any]
) -> AsyncGenerator[Session]:
    async with ScriptedModel(script) as model:
        chosen = CliOptions(
            cli_path=path,
            env=model.env,
            cwd=cwd,
            model="claude-sonnet-4-5",
            allowed_tools=["mcp__calc__add"],
        )
        sdk = SdkOptions(inherit_env=["PATH"])
        async with start_session(chosen, sdk, BidirOptions(**bidir)) as session:
            yield session


@pytest.mark.requirement("S123")
async def test_a_turn(start: Start) -> None:
    """R005, R026, R424."""
    async with start([[text("Hello.")]]) as session:
        turn = await session.send_user_message("hi")
        messages = [message async for message in turn]
        outcome = await turn
        assert (outcome.ok, outcome.text, outcome.num_turns) == (True, "Hello.", 1)
        assert outcome.session_id == session.id
        kinds = [type(message) for message in messages]
        told = [k for k in kinds if k in (UserMessage, AssistantMessage, ResultMessage)]
        assert told == [UserMessage, AssistantMessage, ResultMessage]
        await session.ping()
    events = await told_by(session)
    assert [type(event) for event in events] == [SessionReady, SessionEnded]


async def test_three_prompts_one_after_the_other(start: Start) -> None:
    """R025."""
    async with start([[text("one")], [text("two")], [text("three")]]) as session:
        said = [(await (await session.send_user_message(f"{n}"))).text for n in range(3)]
        assert said == ["one", "two", "three"]


async def test_a_hook_blocks_a_tool(start: Start) -> None:
    """R271, R274, R279, R424."""
    seen: list[PreToolUseContext] = []

    def block(context: PreToolUseContext) -> Block:
        seen.append(context)
        return Block("not here")

    script = [[tool_use("Bash", command="ls")], [text("I could not.")]]
    async with start(script, on_pre_tool_use=block) as session:
        outcome = await (await session.send_user_message("go"))
        assert (outcome.ok, outcome.text) == (True, "I could not.")
        assert [(one.tool_name, one.tool_input["command"]) for one in seen] == [("Bash", "ls")]
        assert seen[0].session_id == session.id


@pytest.mark.parametrize("answer", [Allow(), Deny("no")], ids=["allow", "deny"])
async def test_a_permission_decides(start: Start, answer: Any, tmp_path: Path) -> None:
    """R068, R305, R312, R424."""
    asked: list[CanUseToolContext] = []

    async def decide(context: CanUseToolContext) -> Any:
        asked.append(context)
        return answer

    path = str(tmp_path / "note.txt")
    script = [[tool_use("Write", file_path=path, content="x")], [text("Done.")]]
    async with start(script, on_can_use_tool=decide) as session:
        turn = await session.send_user_message("go")
        blocks = [b async for m in turn if isinstance(m, UserMessage) for b in m.content]
        assert (await turn).ok
        refused = [bool(b.is_error) for b in blocks if isinstance(b, ToolResultBlock)]
        assert refused == [isinstance(answer, Deny)]
        assert [one.tool_name for one in asked] == ["Write"]
        assert asked[0].tool_input["file_path"] == path


async def test_a_tool_of_this_process_is_called(start: Start) -> None:
    """R320, R334, R424."""
    calls: list[tuple[float, float]] = []

    @tool
    async def add(a: float, b: float) -> float:
        """Add two numbers."""
        calls.append((a, b))
        return a + b

    script = [[tool_use("mcp__calc__add", a=1, b=2)], [text("3")]]
    async with start(script, mcp_servers={"calc": ToolServer([add])}) as session:
        assert (await (await session.send_user_message("add"))).text == "3"
    assert calls == [(1, 2)]


async def test_an_interrupt_while_a_tool_waits_for_permission(start: Start) -> None:
    """R011, R350: the question is withdrawn, the turn ends as interrupted, the session goes on."""
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def think(context: CanUseToolContext) -> Allow:
        asked.set()
        await context.wait_cancelled()
        withdrawn.set()
        return Allow()

    script: list[Any] = [[tool_use("Bash", command="touch x")], Reply(blocks=(text("next"),))]
    async with start(script, on_can_use_tool=think) as session:
        turn = await session.send_user_message("go")
        await asked.wait()
        await session.interrupt()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        await withdrawn.wait()
        assert (await (await session.send_user_message("more"))).text == "next"
