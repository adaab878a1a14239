"""`run` on the real CLIs: background commands are part of the answer, and of its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import run

import bridle
from bridle import Allow, BidirOptions, Limits, Outcome, OutcomeReason
from bridle.testing import ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab


def play(lab: Lab, command: str, **limits: Any) -> Outcome[Any]:
    """What comes of a command in the background."""
    call = tool_use("Bash", command=command, run_in_background=True, description="wait")

    async def main() -> Outcome[Any]:
        async with ScriptedModel([[call], [text("started")], [text("it is done")]]) as model:
            sdk = lab.sdk.replace(limits=Limits(**limits))
            bidir = BidirOptions(on_can_use_tool=lambda _: Allow())
            return await bridle.run("go", cli=lab.cli(model), sdk=sdk, bidir=bidir)

    return run(main)


@pytest.mark.longer
def test_what_it_led_to_is_the_answer(lab: Lab) -> None:
    outcome = play(lab, "sleep 0.3; echo done")
    assert (outcome.ok, outcome.text, outcome.num_turns) == (True, "it is done", 3)
    assert outcome.duration >= 0.3


@pytest.mark.longer
def test_a_command_without_an_end_reaches_the_limit_of_the_whole(lab: Lab) -> None:
    outcome = play(lab, "tail -f /dev/null", total=2.0)
    assert (outcome.reason, outcome.text) == (OutcomeReason.LIMIT_TOTAL, "started")
    assert outcome.duration >= 2.0
