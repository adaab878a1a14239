"""What a hook answers has its effect on the real CLI: looked up on disk and at the model."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.scenes import play

from bridle import (
    AllowOnce,
    BidirOptions,
    CanUseToolContext,
    Continue,
    EndTurn,
    Hook,
    HookContext,
    HookOutput,
    HookResult,
    OutcomeReason,
    PostToolUseContext,
    PreCompactContext,
    PreToolUseContext,
    StopContext,
    SubagentStopContext,
    UserPromptSubmitContext,
    start_session,
)
from bridle import Block as Refuse
from bridle.hooks import HookCallback
from bridle.testing import Block, ModelRequest, Reply, ScriptedModel, repeat, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab


def write(lab: Lab, name: str = "note.txt") -> Block:
    """The model writes a file."""
    return tool_use("Write", file_path=str(lab.work / name), content=name)


def files(lab: Lab) -> list[str]:
    """The files that were really written."""
    return sorted(path.name for path in lab.work.iterdir() if path.is_file())


def said(request: ModelRequest) -> str:
    """All the model can read in the last message to it."""
    return str(request.messages[-1]["content"])


# ---------------------------------------------------------------- Block


@pytest.mark.longer
def test_a_blocked_tool_does_not_run_and_asks_no_callback(lab: Lab) -> None:
    asked: list[str] = []

    def allow(context: CanUseToolContext) -> AllowOnce:
        asked.append(context.tool_name)
        return AllowOnce()

    bidir = BidirOptions(
        on_pre_tool_use=lambda context: Refuse("not in this house"), on_can_use_tool=allow
    )
    scene = play(lab, [[write(lab)], [text("understood")]], bidir)
    assert (scene.outcome.reason, scene.outcome.text) == (OutcomeReason.COMPLETED, "understood")
    assert files(lab) == []
    assert asked == []
    assert "not in this house" in (scene.requests[1].last_tool_result or "")


@pytest.mark.longer
def test_a_blocked_prompt_does_not_reach_the_model_and_the_next_one_does(lab: Lab) -> None:
    def guard(context: UserPromptSubmitContext) -> HookResult | None:
        return Refuse("no secrets") if "secret" in context.prompt else None

    scene = play(
        lab,
        [[text("hello")]],
        BidirOptions(on_user_prompt_submit=guard),
        prompts=["the secret is 7", "hi"],
    )
    blocked, answered = scene.outcomes
    assert blocked.reason is OutcomeReason.PROMPT_BLOCKED
    assert "no secrets" in blocked.detail
    assert "secret is 7" not in f"{blocked.detail} {blocked.text}"
    assert answered.text == "hello"
    assert [request.last_user_text for request in scene.requests] == ["hi"]
    assert "secret is 7" not in str(scene.requests[0].messages)


@pytest.mark.longer
async def test_a_compaction_after_a_blocked_notification_completes(lab: Lab) -> None:
    """The CLI repeats its notice about what was blocked after the compaction."""
    blocked = asyncio.Event()

    async def guard(context: UserPromptSubmitContext) -> HookResult | None:
        if "task-notification" not in context.prompt:
            return None
        blocked.set()
        return Refuse("no notifications")

    waits = "until [ -e ended ]; do sleep 0.05; done"
    background = tool_use("Bash", command=waits, run_in_background=True, description="d")
    bidir = BidirOptions(on_user_prompt_submit=guard)
    async with ScriptedModel([[background], repeat([text("hello")])]) as model:
        cli = lab.cli(model, allowed_tools=["Bash"])
        async with start_session(cli, lab.sdk, bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
            (lab.work / "ended").touch()
            await blocked.wait()
            outcome = await (await session.send_user_message("/compact"))
            assert outcome.reason is OutcomeReason.COMPLETED


@pytest.mark.longer
def test_a_block_after_a_tool_is_read_by_the_model(lab: Lab) -> None:
    seen: list[PostToolUseContext] = []

    def review(context: PostToolUseContext) -> HookResult:
        seen.append(context)
        return Refuse("the file lacks a title")

    bidir = BidirOptions(on_post_tool_use=review)
    script = [[write(lab)], [text("I see")]]
    scene = play(lab, script, bidir, permission_mode="acceptEdits")
    assert scene.outcome.text == "I see"
    assert "the file lacks a title" in said(scene.requests[1])
    assert [(one.tool_name, bool(one.tool_output)) for one in seen] == [("Write", True)]
    assert files(lab) == ["note.txt"]


@pytest.mark.longer
def test_a_blocked_stop_makes_the_same_turn_go_on(lab: Lab) -> None:
    stops: list[tuple[bool, str | None]] = []

    def insist(context: StopContext) -> HookResult | None:
        stops.append((context.stop_hook_active, context.last_assistant_message))
        return None if context.stop_hook_active else Refuse("now say goodbye")

    script = [[text("hello")], [text("goodbye")]]
    scene = play(lab, script, BidirOptions(on_stop=insist))
    assert (scene.outcome.reason, scene.outcome.text) == (OutcomeReason.COMPLETED, "goodbye")
    assert "now say goodbye" in said(scene.requests[1])
    assert stops == [(False, "hello"), (True, "goodbye")]


def test_a_block_where_nothing_can_be_blocked_is_warned_about(lab: Lab) -> None:
    bidir = BidirOptions(hooks={"MessageDisplay": [Hook(lambda context: Refuse("too late"))]})
    scene = play(lab, [[text("hello")]], bidir)
    assert scene.outcome.text == "hello"
    assert set(scene.kinds) == {"cannot_block"}


# ---------------------------------------------------------------- EndTurn


@pytest.mark.parametrize(
    ("event", "requests", "written"),
    [
        ("UserPromptSubmit", 0, []),
        ("PreToolUse", 1, []),
        ("PostToolUse", 1, ["note.txt"]),
        ("Stop", 2, ["note.txt"]),
    ],
)
async def test_the_end_of_a_turn_is_where_a_hook_puts_it(
    lab: Lab, event: str, requests: int, written: list[str]
) -> None:
    done: list[str] = []

    def end(context: HookContext) -> HookResult | None:
        done.append(context.hook_event_name)
        return EndTurn("enough for today") if len(done) == 1 else None

    bidir = BidirOptions(hooks={event: [Hook(end)]}, on_can_use_tool=lambda context: AllowOnce())
    script = [[write(lab)], [text("written")]][:requests]
    async with (
        ScriptedModel([*script, [text("next")]]) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        outcome = await (await session.send_user_message("go"))
        assert outcome.reason is OutcomeReason.STOPPED_BY_HOOK
        assert outcome.detail.endswith(": enough for today")
        assert len(model.requests) == requests
        assert files(lab) == written
        again = await (await session.send_user_message("again"))
        assert (again.reason, again.text) == (OutcomeReason.COMPLETED, "next")


async def test_a_hook_after_a_tool_ends_the_turn_while_the_model_still_writes(lab: Lab) -> None:
    """CLI 2.1.197 would ask the model again: its message ended after the answer of the hook."""
    second_tool_ran = threading.Event()

    def end(context: HookContext) -> HookResult | None:
        if files(lab) == ["first.txt"]:
            return EndTurn("enough for today")
        second_tool_ran.set()
        return None

    bidir = BidirOptions(
        hooks={"PostToolUse": [Hook(end)]}, on_can_use_tool=lambda context: AllowOnce()
    )
    writes = Reply(
        blocks=(write(lab, "first.txt"), write(lab, "second.txt")),
        hold=second_tool_ran,
        hold_after=10,  # the end of the second block
    )
    async with (
        ScriptedModel([writes, [text("next")]]) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        turn = await session.send_user_message("go")
        queued = await session.send_user_message("and then")
        outcome = await turn
        assert outcome.reason is OutcomeReason.STOPPED_BY_HOOK
        assert outcome.detail.endswith(": enough for today")
        assert (await queued).text == "next"
        assert [request.last_user_text for request in model.requests] == ["go", "and then"]
    assert files(lab) == ["first.txt", "second.txt"]


# ---------------------------------------------------------------- failing hooks


async def misbehave(context: PreToolUseContext) -> HookResult | None:
    """What the file to write is called after."""
    match context.tool_input["file_path"].rpartition("/")[2]:
        case "raise.txt":
            raise RuntimeError("the guard fell asleep")
        case "slow.txt":
            await asyncio.Event().wait()
        case "junk.txt":
            return "let it pass"  # type: ignore[return-value]  # what this is about
        case _:
            return None
    return None


@pytest.mark.longer
@pytest.mark.parametrize(
    ("on_error", "written"),
    [("continue", ["fine.txt", "raise.txt", "slow.txt"]), ("block", ["fine.txt"])],
)
@pytest.mark.requirement("S085")
def test_a_failing_hook_fails_open_by_default_and_is_warned_about(
    lab: Lab, on_error: str, written: list[str]
) -> None:
    """R299, R301, C26."""
    names = ["raise.txt", "slow.txt", "junk.txt", "fine.txt"]
    hook = Hook(misbehave, timeout=0.3, on_error=on_error)  # type: ignore[arg-type]  # a literal
    scene = play(
        lab,
        [*([write(lab, name)] for name in names), [text("done")]],
        BidirOptions(hooks={"PreToolUse": [hook]}),
        permission_mode="acceptEdits",
    )
    assert scene.outcome.text == "done"
    assert files(lab) == written
    assert scene.kinds == ["hook_failed", "hook_timed_out", "hook_failed"]
    assert isinstance(scene.warnings[0].error, RuntimeError)
    assert "the guard fell asleep" in scene.warnings[0].detail


@pytest.mark.longer
@pytest.mark.parametrize("parallel", [False, True], ids=["in order", "parallel"])
def test_a_guard_that_does_not_answer_in_time_blocks(lab: Lab, *, parallel: bool) -> None:
    hook = Hook(misbehave, timeout=0.3, on_timeout="block")
    scene = play(
        lab,
        [*([write(lab, name)] for name in ("raise.txt", "slow.txt", "fine.txt")), [text("done")]],
        BidirOptions(hooks={"PreToolUse": [hook]}, parallel_hooks=parallel),
        permission_mode="acceptEdits",
    )
    assert scene.outcome.text == "done"
    assert files(lab) == ["fine.txt", "raise.txt"]
    assert scene.kinds == ["hook_failed", "hook_timed_out"]
    assert "did not answer in time" in (scene.requests[2].last_tool_result or "")


@pytest.mark.longer
def test_the_cli_decides_about_an_invalid_output_unless_it_refuses(lab: Lab) -> None:
    def check(context: PreToolUseContext) -> object:
        refuses = context.tool_input["file_path"].endswith("no.txt")
        return {"trace": 1, "decision": "block" if refuses else "bogus", "reason": "not this"}

    scene = play(
        lab,
        [[write(lab, "yes.txt")], [write(lab, "no.txt")], [text("done")]],
        BidirOptions(hooks={"PreToolUse": [Hook(check, on_invalid="send")]}),  # type: ignore[arg-type]  # what this is about
        permission_mode="acceptEdits",
    )
    assert files(lab) == ["yes.txt"]
    assert "not this" in (scene.requests[2].last_tool_result or "")


@pytest.mark.longer
def test_a_plain_function_that_hangs_is_left_behind_with_a_warning(lab: Lab) -> None:
    end = threading.Event()

    def hang(context: PreToolUseContext) -> None:
        end.wait(30)

    bidir = BidirOptions(on_pre_tool_use=hang, hook_timeouts={"PreToolUse": 0.2})
    scene = play(lab, [[write(lab)], [text("done")]], bidir, permission_mode="acceptEdits")
    end.set()
    assert scene.outcome.text == "done"
    assert files(lab) == ["note.txt"]
    assert sorted(scene.kinds) == ["callback_abandoned", "hook_timed_out"]


# ---------------------------------------------------------------- several hooks


@pytest.mark.longer
def test_hooks_run_in_their_order_for_what_they_match_and_context_adds_up(lab: Lab) -> None:
    """R282, R283, R285, C10."""
    called: list[str] = []

    def note(name: str) -> HookCallback:
        def hook(context: PreToolUseContext) -> HookResult:
            called.append(f"{name}:{context.tool_name}")
            return Continue(additional_context=f"context of {name}")

        return hook

    listed = [
        Hook(note("names"), matcher="Write|Edit"),
        Hook(note("other"), matcher="Read"),
        Hook(note("pattern"), matcher="^Wr"),
        Hook(note("any")),
    ]
    bidir = BidirOptions(on_pre_tool_use=note("single"), hooks={"PreToolUse": listed})
    script = [[write(lab)], [text("done")]]
    scene = play(lab, script, bidir, permission_mode="acceptEdits")
    assert called == ["single:Write", "names:Write", "pattern:Write", "any:Write"]
    for name in ("single", "names", "pattern", "any"):
        assert f"context of {name}" in said(scene.requests[1])
    assert "context of other" not in said(scene.requests[1])


@pytest.mark.longer
@pytest.mark.parametrize("decision", ["block", "allow"])
def test_the_first_hook_that_decides_is_the_last_that_is_called(lab: Lab, decision: str) -> None:
    """R286, C10."""
    called: list[str] = []

    def undecided(context: PreToolUseContext) -> HookResult:
        called.append("undecided")
        return Continue(additional_context="for the record")

    def decide(context: PreToolUseContext) -> HookResult:
        called.append("decides")
        if decision == "block":
            return Refuse("no")
        changed = {**context.tool_input, "content": "changed"}
        return HookOutput(permission_decision="allow", updated_input=changed)

    def late(context: PreToolUseContext) -> HookResult:
        called.append("late")
        return Refuse("too late")

    hooks = [Hook(undecided), Hook(decide), Hook(late)]
    scene = play(
        lab,
        [[write(lab)], [text("done")]],
        BidirOptions(hooks={"PreToolUse": hooks}),
        permission_mode="acceptEdits",
    )
    assert scene.outcome.text == "done"
    assert called == ["undecided", "decides"]
    assert "for the record" in said(scene.requests[1])
    assert files(lab) == ([] if decision == "block" else ["note.txt"])


@pytest.mark.longer
@pytest.mark.requirement("S080")
def test_the_six_hooks_with_a_field_of_their_own_are_all_called(lab: Lab) -> None:
    """R425, R438, R439."""
    seen: list[HookContext] = []

    def model_says(request: ModelRequest) -> list[Block]:
        if request.agent_id is not None:
            return [text("the agent's report")]
        if request.last_user_text != "go":
            return [text("<summary>nothing happened</summary>")]
        if request.last_tool_result is None:
            task = {"description": "look", "prompt": "look around", "run_in_background": False}
            return [tool_use("Task", subagent_type="general-purpose", **task)]
        return [text("done")]

    note = seen.append
    bidir = BidirOptions(
        on_pre_tool_use=note,
        on_post_tool_use=note,
        on_user_prompt_submit=note,
        on_stop=note,
        on_subagent_stop=note,
        on_pre_compact=note,
    )
    scene = play(lab, model_says, bidir, prompts=["go", "/compact"])
    assert [outcome.ok for outcome in scene.outcomes] == [True, True]
    # Compacting is done by an agent of its own, whose end comes last.
    assert [type(context) for context in seen[:6]] == [
        UserPromptSubmitContext,
        PreToolUseContext,
        SubagentStopContext,
        PostToolUseContext,
        StopContext,
        PreCompactContext,
    ]
    assert {context.session_id for context in seen} == {scene.outcome.session_id}
    assert seen[2].agent_id is not None
    assert scene.warnings == []


# ---------------------------------------------------------------- everything the CLI reads


def test_a_hook_may_permit_a_tool_that_would_be_asked_about(lab: Lab) -> None:
    bidir = BidirOptions(on_pre_tool_use=lambda context: HookOutput(permission_decision="allow"))
    scene = play(lab, [[write(lab)], [text("done")]], bidir)
    assert scene.outcome.text == "done"
    assert files(lab) == ["note.txt"]


@pytest.mark.both_clis
def test_a_deferred_tool_call_ends_the_turn_and_is_handed_over(lab: Lab) -> None:
    bidir = BidirOptions(on_pre_tool_use=lambda context: HookOutput(permission_decision="defer"))
    # 2.1.197 asks the model once more if the hook answers before the model's message has ended.
    scene = play(lab, [[write(lab)], repeat([text("unheard")])], bidir)
    assert scene.outcome.reason is OutcomeReason.TOOL_DEFERRED
    assert len(scene.requests) == 1 or not lab.is_newest
    assert scene.outcome.deferred_tool_use is not None
    assert scene.outcome.deferred_tool_use.name == "Write"
    assert files(lab) == []


@pytest.mark.longer
async def test_an_interrupt_withdraws_a_hook_and_its_tool_does_not_run(lab: Lab) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def think(context: PreToolUseContext) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert context.cancelled
            cancelled.set()

    bidir = BidirOptions(on_pre_tool_use=think)
    options = {"permission_mode": "acceptEdits"}
    async with (
        ScriptedModel([[write(lab)], [text("next")]]) as model,
        start_session(lab.cli(model, **options), lab.sdk, bidir) as session,
    ):
        turn = await session.send_user_message("go")
        await asked.wait()
        await session.interrupt()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        await cancelled.wait()
        assert (await (await session.send_user_message("again"))).text == "next"
    assert files(lab) == []
