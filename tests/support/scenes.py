"""A session on the real CLI in one call: a script for the model, a prompt, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.processes import run

from bridle import BidirOptions, Outcome, SdkWarning, SessionEvent, start_session
from bridle.testing import ModelRequest, ScriptedModel

if TYPE_CHECKING:
    from tests.real.conftest import Lab

    from bridle.testing.script import Script


class Scene(NamedTuple):
    """What came of the prompts, what the model was asked, and what the session told."""

    outcomes: list[Outcome[Any]]
    requests: list[ModelRequest]
    events: list[SessionEvent]

    @property
    def outcome(self) -> Outcome[Any]:
        """The outcome of the first prompt."""
        return self.outcomes[0]

    @property
    def warnings(self) -> list[SdkWarning]:
        """The warnings among the events."""
        return [event for event in self.events if isinstance(event, SdkWarning)]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the warnings."""
        return [str(warning.kind) for warning in self.warnings]


def play(
    lab: Lab,
    script: Script,
    bidir: BidirOptions | None = None,
    *,
    prompts: Sequence[str] = ("go",),
    **options: object,
) -> Scene:
    """Send the prompts one after the other, each when the one before is answered; then close."""

    async def main() -> Scene:
        async with ScriptedModel(script) as model:
            async with start_session(lab.cli(model, **options), lab.sdk, bidir) as session:
                turns = (session.send_user_message(prompt) for prompt in prompts)
                outcomes = [await (await turn) for turn in turns]
            events = [event async for event in session.events()]
            return Scene(outcomes, model.requests, events)

    return run(main)
