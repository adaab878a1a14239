"""What is permitted happens, what is not does not: looked up on disk, on the real CLI."""

from __future__ import annotations

import asyncio
import queue
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.processes import LIMIT, until
from tests.support.scenes import play

import bridle
from bridle import (
    Accept,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    BidirOptions,
    CanUseToolContext,
    Decline,
    Deny,
    Edit,
    ElicitationAnswer,
    ElicitationRequestContext,
    Hook,
    HookOutput,
    OutcomeReason,
    PermissionResult,
    PlanContext,
    PlanResult,
    QuestionContext,
    Session,
    start_session,
)
from bridle.hooks import PermissionRequestContext
from bridle.permissions import AddRules, PermissionRule, SetMode
from bridle.testing import Block, ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.conftest import Lab

QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [
        {"label": "Red", "description": "warm"},
        {"label": "Blue", "description": "cold"},
    ],
}

# An MCP server over stdio whose one tool asks the user for a name and returns the answer.
ASKING_SERVER = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

call = None
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "form", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        send(id=number, result=result)
    elif method == "tools/list":
        tool = {"name": "ask", "description": "Asks.", "inputSchema": {"type": "object"}}
        send(id=number, result={"tools": [tool]})
    elif method == "tools/call":
        call = number
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = {"message": "Your name?", "requestedSchema": schema}
        send(id="question", method="elicitation/create", params=params)
    elif number == "question":
        words = json.dumps(message.get("result"), sort_keys=True)
        send(id=call, result={"content": [{"type": "text", "text": words}]})
    elif number is not None:
        send(id=number, result={})
"""


def write(lab: Lab, name: str = "note.txt", content: str = "text") -> Block:
    """The model writes a file."""
    return tool_use("Write", file_path=str(lab.work / name), content=content)


def touch(*names: str) -> Block:
    """The model makes empty files with a command."""
    return tool_use("Bash", command=f"touch {' '.join(names)}")


def files(lab: Lab) -> list[str]:
    """The files that were really written."""
    return sorted(path.name for path in lab.work.iterdir() if path.is_file())


# ---------------------------------------------------------------- whatever fails, denies


async def misbehave(context: CanUseToolContext) -> PermissionResult:
    """What the file to write is called after."""
    match context.tool_input["file_path"].rpartition("/")[2]:
        case "raise.txt":
            raise RuntimeError("the guard fell asleep")
        case "slow.txt":
            await asyncio.Event().wait()
        case "true.txt":
            return True  # type: ignore[return-value]  # what this is about
        case "none.txt":
            return None  # type: ignore[return-value]  # what this is about
        case "empty.txt":
            return Edit({})
        case "unsendable.txt":
            return Edit({"content": object()})
        case _:
            return Allow()
    raise AssertionError("nobody wakes the slow one")


@pytest.mark.longer
@pytest.mark.requirement("S086")
def test_a_permission_that_fails_is_a_denial_and_the_file_is_not_there(lab: Lab) -> None:
    stems = ["raise", "slow", "true", "none", "empty", "unsendable", "fine"]
    scene = play(
        lab,
        [*([write(lab, f"{stem}.txt")] for stem in stems), [text("done")]],
        BidirOptions(on_can_use_tool=misbehave, permission_timeout=0.3),
    )
    assert scene.outcome.text == "done"
    assert files(lab) == ["fine.txt"]
    assert scene.kinds == [
        "permission_failed",
        "permission_timed_out",
        "permission_failed",
        "permission_failed",
        "permission_failed",
        "unencodable_result",
    ]
    assert isinstance(scene.warnings[0].error, RuntimeError)
    assert scene.outcome.result is not None
    assert len(scene.outcome.result.permission_denials) == 6


@pytest.mark.longer
def test_without_a_callback_what_is_asked_about_is_denied(lab: Lab) -> None:
    """R313, C33."""
    scene = play(lab, [[write(lab)], [touch("other.txt")], [text("done")]])
    assert scene.outcome.text == "done"
    assert files(lab) == []
    assert set(scene.kinds) == {"no_permission_callback"}


# ---------------------------------------------------------------- what a permission is for


@pytest.mark.longer
def test_a_permission_once_is_asked_for_again_and_one_for_all_is_not(lab: Lab) -> None:
    """R307, C11."""
    asked: list[str] = []

    def decide(context: CanUseToolContext) -> PermissionResult:
        asked.append(context.tool_input["command"])
        return AllowOnce() if len(asked) == 1 else AllowAll()

    names = ["a", "b", "c", "d"]
    script = [*([touch(name)] for name in names), [text("done")]]
    scene = play(lab, script, BidirOptions(on_can_use_tool=decide))
    assert scene.outcome.text == "done"
    assert asked == ["touch a", "touch b"]
    assert files(lab) == names


@pytest.mark.longer
@pytest.mark.requirement("S081")
def test_an_edited_input_is_what_runs(lab: Lab) -> None:
    """R307, C11."""

    def edit(context: CanUseToolContext) -> PermissionResult:
        return Edit({**context.tool_input, "content": "edited"})

    script = [[write(lab, content="original")], [text("done")]]
    scene = play(lab, script, BidirOptions(on_can_use_tool=edit))
    assert scene.outcome.ok
    assert (lab.work / "note.txt").read_text("utf-8") == "edited"


@pytest.mark.longer
def test_an_added_rule_permits_what_it_names_and_nothing_else(lab: Lab) -> None:
    asked: list[str] = []

    def decide(context: CanUseToolContext) -> PermissionResult:
        asked.append(context.tool_input["command"])
        if len(asked) > 1:
            return Deny("enough")
        return Allow(updated_permissions=[AddRules((PermissionRule("Bash", "touch b"),))])

    script = [[touch("a")], [touch("b")], [touch("c")], [text("done")]]
    scene = play(lab, script, BidirOptions(on_can_use_tool=decide))
    assert scene.outcome.text == "done"
    assert asked == ["touch a", "touch c"]
    assert files(lab) == ["a", "b"]


@pytest.mark.longer
def test_a_permission_may_change_the_mode(lab: Lab) -> None:
    asked: list[str] = []

    def decide(context: CanUseToolContext) -> PermissionResult:
        asked.append(context.tool_input["file_path"])
        return Allow(updated_permissions=[SetMode(mode="acceptEdits")])

    script = [[write(lab, "a")], [write(lab, "b")], [text("done")]]
    scene = play(lab, script, BidirOptions(on_can_use_tool=decide))
    assert scene.outcome.text == "done"
    assert asked == [str(lab.work / "a")]
    assert files(lab) == ["a", "b"]


@pytest.mark.longer
def test_what_the_cli_suggests_can_be_given_back(lab: Lab) -> None:
    """C32."""
    asked: list[int] = []

    def decide(context: CanUseToolContext) -> PermissionResult:
        asked.append(len(context.permission_suggestions))
        return Allow(updated_permissions=context.permission_suggestions)

    script = [[write(lab, "a")], [write(lab, "b")], [text("done")]]
    scene = play(lab, script, BidirOptions(on_can_use_tool=decide))
    assert scene.outcome.text == "done"
    assert len(asked) == 1
    assert asked[0] > 0
    assert files(lab) == ["a", "b"]


def test_a_denial_may_interrupt_the_turn_and_the_next_one_works(lab: Lab) -> None:
    bidir = BidirOptions(on_can_use_tool=lambda context: Deny("stop it", interrupt=True))
    scene = play(lab, [[write(lab)], [text("next")]], bidir, prompts=["go", "again"])
    interrupted, again = scene.outcomes
    assert interrupted.reason is OutcomeReason.INTERRUPTED
    assert again.text == "next"
    assert files(lab) == []


async def test_permissions_that_are_asked_for_together_are_answered_together(
    lab: Lab, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"content of {name}", "utf-8")
    together = asyncio.Barrier(2)

    async def decide(context: CanUseToolContext) -> PermissionResult:
        await together.wait()
        return AllowOnce()

    reads = [tool_use("Read", file_path=str(tmp_path / name)) for name in ("one", "two")]
    bidir = BidirOptions(on_can_use_tool=decide)
    async with (
        ScriptedModel([reads, [text("done")]]) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        assert (await (await session.send_user_message("go"))).text == "done"
        results = list(model.requests[1].tool_results.values())
        assert ["content of" in result for result in results] == [True, True]


# ---------------------------------------------------------------- questions that are withdrawn


async def test_an_async_callback_is_notified_that_its_request_was_withdrawn(lab: Lab) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def decide(context: CanUseToolContext) -> PermissionResult:
        asked.set()
        await context.wait_cancelled()
        withdrawn.set()
        return Allow()

    async with (
        ScriptedModel([[write(lab)], [text("next")]]) as model,
        start_session(lab.cli(model), lab.sdk, BidirOptions(on_can_use_tool=decide)) as session,
    ):
        turn = await session.send_user_message("go")
        await asked.wait()
        await session.interrupt()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        async with asyncio.timeout(LIMIT):
            await withdrawn.wait()
        assert (await (await session.send_user_message("again"))).text == "next"
    assert files(lab) == []


@pytest.mark.longer
async def test_a_plain_callback_is_notified_that_its_request_was_withdrawn(lab: Lab) -> None:
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    told: queue.Queue[tuple[bool, bool]] = queue.Queue()

    def decide(context: CanUseToolContext) -> PermissionResult:
        loop.call_soon_threadsafe(asked.set)
        told.put((context.wait_cancelled_sync(20), context.cancelled))
        return Allow()

    async with (
        ScriptedModel([[write(lab)]]) as model,
        start_session(lab.cli(model), lab.sdk, BidirOptions(on_can_use_tool=decide)) as session,
    ):
        turn = await session.send_user_message("go")
        await asked.wait()
        await session.interrupt()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        assert await asyncio.to_thread(told.get, timeout=20) == (True, True)
    assert files(lab) == []


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_a_permission_hook_that_answers_first_withdraws_the_question(
    lab: Lab, answer: str
) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def decide(context: CanUseToolContext) -> PermissionResult:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return Deny("never said")

    async def hook(context: PermissionRequestContext) -> HookOutput:
        await asked.wait()
        result = AllowOnce() if answer == "allow" else Deny("the hook says no")
        return HookOutput(permission=result)

    bidir = BidirOptions(on_can_use_tool=decide, hooks={"PermissionRequest": [Hook(hook)]})
    async with (
        ScriptedModel([[write(lab)], [text("done")]]) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        assert (await (await session.send_user_message("go"))).text == "done"
        await withdrawn.wait()
    assert files(lab) == (["note.txt"] if answer == "allow" else [])


@pytest.mark.longer
@pytest.mark.parametrize("first", ["callback", "hook"])
@pytest.mark.parametrize("result", [Allow(), AllowAll(), Edit({"command": "touch edited"})])
def test_a_hook_that_blocks_wins_over_a_callback_that_allows(
    lab: Lab, first: str, result: PermissionResult
) -> None:
    """Also for parallel calls, and whichever of the two answers first."""
    answered: dict[str | None, asyncio.Event] = {}

    def event(tool_use_id: str | None) -> asyncio.Event:
        return answered.setdefault(tool_use_id, asyncio.Event())

    async def allow(context: CanUseToolContext) -> PermissionResult:
        if first == "hook":
            await event(context.tool_use_id).wait()
        else:
            event(context.tool_use_id).set()
        return result

    async def block(context: PermissionRequestContext) -> bridle.Block:
        if first == "hook":
            event(context.tool_use_id).set()
        else:
            await event(context.tool_use_id).wait()
        return bridle.Block("not this one")

    bidir = BidirOptions(on_can_use_tool=allow, hooks={"PermissionRequest": [Hook(block)]})
    calls = [tool_use("Bash", command=f"touch file{number}") for number in range(3)]
    scene = play(lab, [calls, [text("done")]], bidir)
    assert scene.outcome.text == "done"
    assert files(lab) == []
    assert list(scene.requests[1].tool_results.values()) == ["not this one"] * 3
    assert scene.warnings == []


def test_an_allow_takes_effect_after_a_hook_that_lets_the_call_run(lab: Lab) -> None:
    order: list[str] = []
    allowed = asyncio.Event()

    async def allow(_: CanUseToolContext) -> Allow:
        order.append("callback")
        allowed.set()
        return Allow()

    async def look(_: PermissionRequestContext) -> None:
        await allowed.wait()
        order.append("hook")

    bidir = BidirOptions(on_can_use_tool=allow, hooks={"PermissionRequest": [Hook(look)]})
    scene = play(lab, [[tool_use("Bash", command="touch file")], [text("done")]], bidir)
    assert (scene.outcome.text, order, files(lab)) == ("done", ["callback", "hook"], ["file"])


# ---------------------------------------------------------------- questions to the user


@pytest.mark.longer
def test_the_answers_to_a_question_reach_the_model(lab: Lab) -> None:
    asked: list[str] = []

    async def answer(context: QuestionContext) -> Answers:
        (question,) = context.questions
        asked.append(question.question)
        assert [option.label for option in question.options] == ["Red", "Blue"]
        return Answers({question.question: "Blue"})

    script = [[tool_use("AskUserQuestion", questions=[QUESTION])], [text("blue it is")]]
    scene = play(lab, script, BidirOptions(on_question=answer))
    assert scene.outcome.text == "blue it is"
    assert asked == ["Which colour?"]
    assert "Blue" in (scene.requests[1].last_tool_result or "")
    assert scene.warnings == []


def test_a_question_without_an_answer_is_refused(lab: Lab) -> None:
    script = [[tool_use("AskUserQuestion", questions=[QUESTION])], [text("I decide")]]
    scene = play(lab, script)
    assert scene.outcome.text == "I decide"
    assert "denied" in (scene.requests[1].last_tool_result or "")
    assert set(scene.kinds) == {"no_permission_callback"}


@pytest.mark.longer
@pytest.mark.parametrize("approved", [True, False], ids=["approved", "refused"])
def test_a_plan_is_approved_or_sent_back(lab: Lab, approved: bool) -> None:
    seen: list[PlanContext] = []

    def decide(context: PlanContext) -> PlanResult:
        seen.append(context)
        return Allow() if approved else Deny("make it shorter")

    script = [[tool_use("ExitPlanMode", plan="1. Write a note.")], [text("done")]]
    scene = play(lab, script, BidirOptions(on_plan=decide), permission_mode="plan")
    assert scene.outcome.text == "done"
    assert [context.tool_name for context in seen] == ["ExitPlanMode"]
    result = scene.requests[1].last_tool_result or ""
    assert ("make it shorter" in result) is not approved
    assert ("approved" in result) is approved


# ---------------------------------------------------------------- questions of MCP servers


@pytest.mark.longer
@pytest.mark.parametrize(
    ("answer", "received"),
    [
        (Accept({"name": "Ada"}), '{"action": "accept", "content": {"name": "Ada"}}'),
        (Decline(), '{"action": "decline"}'),
        (None, '{"action": "cancel"}'),
    ],
    ids=["accepted", "declined", "without a callback"],
)
async def test_an_mcp_server_gets_the_answer_to_what_it_asks(
    lab: Lab, tmp_path: Path, answer: ElicitationAnswer | None, received: str
) -> None:
    asked: list[tuple[str, str]] = []

    def elicit(context: ElicitationRequestContext) -> ElicitationAnswer:
        asked.append((context.mcp_server_name, context.message))
        assert context.requested_schema is not None
        assert answer is not None
        return answer

    program = tmp_path / "server.py"
    program.write_text(ASKING_SERVER, "utf-8")
    server = {"command": sys.executable, "args": ["-IS", str(program)]}
    options = {"mcp_config": {"mcpServers": {"form": server}}, "allowed_tools": ["mcp__form__ask"]}
    bidir = BidirOptions(on_elicitation=None if answer is None else elicit)
    async with (
        ScriptedModel([[tool_use("mcp__form__ask")], [text("thanks")]]) as model,
        start_session(lab.cli(model, **options), lab.sdk, bidir) as session,
    ):
        await connected(session)
        assert (await (await session.send_user_message("go"))).text == "thanks"
        assert model.requests[1].last_tool_result == received
    assert asked == ([] if answer is None else [("form", "Your name?")])


async def connected(session: Session) -> None:
    """Wait until the session's only MCP server is there: older CLIs begin without it."""

    async def look() -> bool:
        status = cast("dict[str, Any]", await session.control("mcp_status"))
        return [server["status"] for server in status["mcpServers"]] == ["connected"]

    await until(look)
