"""CLIs that say the same in other words: Bridle stays on the safe side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.sabotaged_cli import rewriting_cli

import bridle
from bridle import Block, CliOptions, EndTurn, OutcomeReason
from bridle.errors import SessionNotFoundError, StartError
from bridle.testing import ScriptedModel, text

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.conftest import Lab

NOBODY = "11111111-1111-4111-8111-111111111111"
WORDS = {"No conversation found with session ID": "There is nothing under"}


async def resume(lab: Lab, cli: CliOptions, door: str) -> None:
    if door == "run":
        await bridle.run("hi", cli=cli, sdk=lab.sdk)
    elif door == "query":
        async for _ in bridle.query("hi", cli, lab.sdk):
            pass
    else:
        await bridle.start_session(cli, lab.sdk)


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("door", ["session", "run", "query"])
@pytest.mark.parametrize("is_reworded", [False, True])
async def test_a_conversation_that_does_not_exist_is_an_error_in_any_words(
    lab: Lab, tmp_path: Path, door: str, is_reworded: bool
) -> None:
    words = WORDS if is_reworded else {}
    async with ScriptedModel([[text("hello")]]) as model:
        path = rewriting_cli(tmp_path / "claude", lab.cli_path, words=words)
        cli = lab.cli(model, cli_path=path, resume_session_id=NOBODY)
        with pytest.raises(StartError) as caught:
            await resume(lab, cli, door)
        assert isinstance(caught.value, SessionNotFoundError) is not is_reworded
        assert NOBODY in str(caught.value)
        assert len(model.requests) == 0


HOOK_WORDS = {"operation blocked by hook": "says no", "Operation stopped by hook": "No more"}


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Block("not this"), OutcomeReason.PROMPT_BLOCKED),
        (EndTurn("not this"), OutcomeReason.STOPPED_BY_HOOK),
    ],
)
async def test_a_prompt_that_a_hook_keeps_from_the_model_is_not_completed_in_any_words(
    lab: Lab, tmp_path: Path, verdict: Block | EndTurn, reason: OutcomeReason
) -> None:
    async with ScriptedModel([[text("hello")]]) as model:
        path = rewriting_cli(tmp_path / "claude", lab.cli_path, words=HOOK_WORDS)
        bidir = bridle.BidirOptions(on_user_prompt_submit=lambda _: verdict)
        cli = lab.cli(model, cli_path=path)
        outcome = await bridle.run("go", cli=cli, sdk=lab.sdk, bidir=bidir)
        assert (outcome.reason, len(model.requests)) == (reason, 0)
        assert "not this" in outcome.detail
