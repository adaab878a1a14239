"""Every reason a turn can end for: reached, told apart from all others, and raised as its error.

The scenes are played on the fake CLI, in both its flavours; that the real ones end turns in these
ways is shown by the tests on them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.support.processes import run

from bridle import (
    Agent,
    BidirOptions,
    Block,
    CliOptions,
    EndTurn,
    Limits,
    Outcome,
    OutcomeError,
    OutcomeReason,
    SdkOptions,
    Session,
    start_session,
)
from bridle.messages import DeferredToolUse
from bridle.outcomes import OUTCOME_ERRORS
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

R = OutcomeReason
NOTHING: Mapping[str, Any] = MappingProxyType({})
WORDS = "these are my last words"


async def interrupt(session: Session) -> None:
    await session.interrupt()


async def stop(session: Session) -> None:
    await session.stop()


class Scene(NamedTuple):
    """What a CLI does to a prompt, and what is known of the turn in the end."""

    cli: Callable[[str], FakeCli]
    #: Attributes of the outcome.
    data: Mapping[str, Any] = NOTHING
    prompt: str = "hello"
    #: What is done while the turn runs.
    act: Callable[[Session], Coroutine[Any, Any, None]] | None = None
    options: Mapping[str, Any] = NOTHING
    sdk: Mapping[str, Any] = NOTHING
    bidir: BidirOptions | None = None
    #: Whether the prompt is given to `run_many`.
    is_one_of_many: bool = False


def talk(prompt: str, **more: Any) -> Scene:
    """A scene of the CLI that holds a conversation by itself."""
    return Scene(lambda flavour: FakeCli.auto(flavour=flavour), prompt=prompt, **more)


def asked(flavour: str) -> FakeCli:
    """The prompt has come."""
    return FakeCli(flavour=flavour).expect_initialize().expect_user().start_turn()


def said(flavour: str) -> FakeCli:
    """The model has said something."""
    return asked(flavour).assistant("one")


def spent(flavour: str) -> FakeCli:
    """The model has called a tool, and the CLI has told its cost before and after."""
    cli = asked(flavour).expect_request("get_usage").reply({"session": {"total_cost_usd": 0}})
    cli = cli.assistant({"type": "tool_use", **CALL})
    return cli.expect_request("get_usage").reply({"session": {"total_cost_usd": 9.0}})


def ends(data: Mapping[str, Any] = NOTHING, **members: Any) -> Scene:
    """A scene whose turn ends with a result that has these members."""
    return Scene(lambda flavour: said(flavour).result(None, **members), data)


def exceeds(cli: Callable[[str], FakeCli], **limits: Any) -> Scene:
    """A scene that goes on until a limit of ours is reached and the turn is interrupted."""

    def obey(flavour: str) -> FakeCli:
        return cli(flavour).expect_request("interrupt").reply().result(None, **ABORTED)

    return Scene(obey, sdk={"limits": Limits(**limits)})


ABORTED: dict[str, Any] = {
    "subtype": "error_during_execution",
    "is_error": True,
    "terminal_reason": "aborted_streaming",
}
REJECTED = {
    "type": "rate_limit_event",
    "rate_limit_info": {"status": "rejected", "resetsAt": 1_999_999_999},
}
CALL: dict[str, Any] = {"id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
FAILED: dict[str, Any] = {"is_error": True, "errors": ["it went wrong"]}
TOLD = {"errors": ("it went wrong",)}

SCENES = {
    R.COMPLETED: talk("hello", data={"text": "You said: hello", "num_turns": 1}),
    R.INTERRUPTED: talk("SLOW", act=interrupt),
    R.MAX_TURNS: ends(TOLD, subtype="error_max_turns", **FAILED),
    R.MAX_BUDGET: ends(
        {"cost_usd": 9.0}, subtype="error_max_budget_usd", total_cost_usd=9.0, **FAILED
    ),
    R.API_ERROR: talk("FAIL 529"),
    R.RATE_LIMITED: Scene(
        lambda flavour: asked(flavour).emit(REJECTED).result("Wait.", is_error=True),
        {"resets_at": 1_999_999_999.0, "text": ""},
    ),
    R.AUTH_FAILED: talk("FAIL 401"),
    R.REFUSED: ends(stop_reason="refusal"),
    R.PROMPT_BLOCKED: talk(
        "hello", bidir=BidirOptions(on_user_prompt_submit=lambda _: Block("not that"))
    ),
    # The older CLI has to be interrupted for it, before its model has answered again.
    R.STOPPED_BY_HOOK: Scene(
        lambda flavour: FakeCli.auto(flavour=flavour, latency=0.3),
        prompt="BASH ls",
        bidir=BidirOptions(on_pre_tool_use=lambda _: EndTurn("no")),
    ),
    R.TOOL_DEFERRED: ends(
        {"deferred_tool_use": DeferredToolUse(**CALL)},
        terminal_reason="tool_deferred",
        deferred_tool_use=CALL,
    ),
    R.OUTPUT_MISSING: talk(
        "hello",
        options={"json_schema": {"type": "object"}},
        data={"text": "You said: hello", "structured_output": None},
    ),
    R.OUTPUT_INVALID: ends(TOLD, subtype="error_max_structured_output_retries", **FAILED),
    R.LIMIT_FIRST_EVENT: exceeds(
        lambda flavour: FakeCli(flavour=flavour).expect_initialize().expect_user(), first_event=0.2
    ),
    R.LIMIT_IDLE: exceeds(said, idle=0.2),
    R.LIMIT_TOTAL: exceeds(said, total=0.2),
    R.LIMIT_TURNS: exceeds(lambda flavour: said(flavour).assistant("two"), turns=1),
    R.LIMIT_USD: exceeds(spent, usd=1.0),
    R.EXECUTION_ERROR: ends(TOLD, subtype="error_during_execution", **FAILED),
    R.MESSAGE_LOST: Scene(
        lambda flavour: asked(flavour).huge_line(5000, "result"), sdk={"max_buffer_size": 4096}
    ),
    R.CLI_EXITED: Scene(
        lambda flavour: asked(flavour).stderr(WORDS).exit(3),
        {"exit_code": 3, "stderr_tail": WORDS + "\n"},
    ),
    R.STOPPED: talk("SLOW", act=stop),
    R.START_FAILED: Scene(
        lambda flavour: FakeCli(flavour=flavour).stderr(WORDS).exit(3),
        {"exit_code": 3, "stderr_tail": WORDS + "\n"},
        is_one_of_many=True,
    ),
}


async def play(scene: Scene, flavour: str) -> Outcome[Any]:
    """The outcome of the scene's one turn."""
    with scene.cli(flavour) as cli:
        if scene.is_one_of_many:
            agent = Agent(cli_path=cli.path)
            ended = [pair async for pair in agent.run_many([scene.prompt])]
            return ended[0][1]
        options = CliOptions(cli_path=cli.path, **scene.options)
        async with start_session(options, SdkOptions(**scene.sdk), scene.bidir) as session:
            turn = await session.send_user_message(scene.prompt)
            if scene.act is not None:
                await scene.act(session)
            return await turn


def test_every_reason_has_its_scene() -> None:
    assert list(SCENES) == list(OutcomeReason)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("reason", OutcomeReason)
@pytest.mark.requirement("S120")
def test_a_turn_ends_for_one_reason_and_raises_the_error_of_that_reason(
    reason: OutcomeReason, flavour: str
) -> None:
    """S026, S031: one class each, with all that is known, and what to do next."""
    scene = SCENES[reason]
    outcome = run(lambda: play(scene, flavour))
    assert outcome.reason is reason
    assert {name: getattr(outcome, name) for name in scene.data} == scene.data
    if reason is R.COMPLETED:
        assert (outcome.ok, outcome.detail) == (True, "")
        assert outcome.raise_for_reason() is outcome
        return
    assert not outcome.ok
    assert outcome.detail
    with pytest.raises(OutcomeError) as caught:
        outcome.raise_for_reason()
    error = caught.value
    assert type(error) is OUTCOME_ERRORS[reason]
    assert [other for other in OUTCOME_ERRORS.values() if isinstance(error, other)] == [type(error)]
    assert (error.outcome, error.process) == (outcome, outcome.process)
    # What happened, why, and what to do.
    assert f"ended as {reason}" in str(error)
    assert outcome.detail in str(error)
    assert len(error.fix) > 20
    assert str(error).endswith(error.fix)
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), twin.outcome, twin.process) == (type(error), outcome, outcome.process)
    assert (str(twin), repr(twin), twin.fix) == (str(error), repr(error), error.fix)
