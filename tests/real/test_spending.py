"""`Limits.usd` on the real CLIs: a turn is ended while it runs, by the CLI's own account.

Where the CLI does not tell its cost, or tells it in another way, the turn ends as well.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import run
from tests.support.sabotaged_cli import rewriting_cli, sabotaged_cli

import bridle
from bridle import CliOptions, Limits, Outcome, OutcomeReason, ResultMessage
from bridle._engine.turns.cost import read_total
from bridle.errors import UsdLimitError
from bridle.testing import ModelRequest, Reply, ScriptedModel, text, tool_use
from bridle.testing.script import Script

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.conftest import Lab

PRICE = 0.18
"""Dollars of one model call with this usage."""
USAGE = {"input_tokens": 50_000, "output_tokens": 2_000}
CALLS = 41
DELAY = 0.25
"""Seconds a model call takes; those of a real model take longer."""


def looking(lab: Lab, calls: int = CALLS, delay: float = DELAY) -> Script:
    """A model that calls a tool again and again, and answers after so many calls."""
    made = 0

    def reply(_: ModelRequest) -> Reply:
        nonlocal made
        made += 1
        if made % calls:
            look = tool_use("Glob", pattern="*", path=str(lab.work))
            return Reply(blocks=(text("Let me look."), look), usage=USAGE, delay=delay)
        return Reply(blocks=(text("done"),), usage=USAGE)

    return reply


async def converse(
    lab: Lab, cli: CliOptions, usd: float, prompts: int
) -> tuple[str | None, list[Outcome[Any]]]:
    async with bridle.start_session(cli, lab.sdk.replace(limits=Limits(usd=usd))) as session:
        outcomes = [await (await session.send_user_message("go")) for _ in range(prompts)]
        return session.id, outcomes


@pytest.mark.longer
def test_a_turn_of_a_session_ends_soon_after_it_passes_its_dollars(lab: Lab) -> None:
    async def main() -> tuple[list[Outcome[Any]], int]:
        async with ScriptedModel(looking(lab)) as model:
            _, outcomes = await converse(lab, lab.cli(model), 0.3, prompts=2)
            return outcomes, len(model.requests)

    outcomes, calls = run(main)
    for outcome in outcomes:
        assert outcome.reason is OutcomeReason.LIMIT_USD
        assert outcome.detail == "more than $0.3 was spent"
        assert 0.3 < (outcome.cost_usd or 0) < 4.5 * PRICE
    assert 4 <= calls <= 8


@pytest.mark.longer
def test_a_resumed_conversation_is_not_charged_for_what_it_cost_before(lab: Lab) -> None:
    async def main() -> list[Outcome[Any]]:
        async with ScriptedModel(looking(lab, calls=3)) as model:
            cli = lab.cli(model)
            session_id, first = await converse(lab, cli, 9.0, prompts=1)
            resumed = cli.replace(resume_session_id=session_id)
            _, second = await converse(lab, resumed, 1.0, prompts=2)
            return [*first, *second]

    for outcome in run(main):
        assert outcome.reason is OutcomeReason.COMPLETED
        assert outcome.cost_usd == pytest.approx(3 * PRICE)


def test_a_run_ends_when_it_passes_its_dollars(lab: Lab) -> None:
    async def main() -> tuple[Outcome[Any], int]:
        async with ScriptedModel(looking(lab)) as model:
            sdk = lab.sdk.replace(limits=Limits(usd=0.3))
            outcome = await bridle.run("go", cli=lab.cli(model), sdk=sdk)
            return outcome, len(model.requests)

    outcome, calls = run(main)
    assert outcome.reason is OutcomeReason.LIMIT_USD
    assert outcome.detail == "more than $0.3 was spent"
    assert 2 <= calls <= 4
    assert 0.3 < (outcome.cost_usd or 0) < 4.5 * PRICE


def test_a_query_ends_when_it_passes_its_dollars(lab: Lab) -> None:
    async def main() -> tuple[float | None, int]:
        async with ScriptedModel(looking(lab)) as model:
            sdk = lab.sdk.replace(limits=Limits(usd=0.3))
            messages: list[object] = []
            try:
                async for message in bridle.query("go", lab.cli(model), sdk):
                    messages.append(message)
            except UsdLimitError as error:
                assert ResultMessage in map(type, messages)
                return error.outcome.cost_usd, len(model.requests)
            raise AssertionError("the query did not end for its limit")

    cost, calls = run(main)
    assert 2 <= calls <= 4
    assert 0.3 < (cost or 0) < 4.5 * PRICE


@pytest.mark.parametrize("door", ["session", "run"])
def test_an_answer_that_passes_its_dollars_at_its_end_stays_completed(lab: Lab, door: str) -> None:
    async def main() -> Outcome[Any]:
        async with ScriptedModel(looking(lab, calls=1)) as model:
            sdk = lab.sdk.replace(limits=Limits(usd=0.01))
            if door == "run":
                return await bridle.run("go", cli=lab.cli(model), sdk=sdk)
            _, outcomes = await converse(lab, lab.cli(model), 0.01, prompts=1)
            return outcomes[0]

    outcome = run(main)
    assert (outcome.reason, outcome.text) == (OutcomeReason.COMPLETED, "done")
    assert outcome.cost_usd == pytest.approx(PRICE)


@pytest.mark.both_clis
async def test_the_calls_of_a_subagent_count(lab: Lab) -> None:
    task = tool_use(
        "Agent" if lab.is_newest else "Task",
        description="look",
        prompt="look around",
        subagent_type="general-purpose",
        run_in_background=False,
    )

    def reply(request: ModelRequest) -> Reply:
        look = tool_use("Glob", pattern="*", path=str(lab.work))
        return Reply(blocks=(look if request.agent_id else task,), usage=USAGE, delay=DELAY)

    async with ScriptedModel(reply) as model:
        _, outcomes = await converse(lab, lab.cli(model), 0.6, prompts=1)
        [outcome], calls = outcomes, len(model.requests)
    assert outcome.reason is OutcomeReason.LIMIT_USD
    assert 4 <= calls <= 6


@pytest.mark.longer
def test_the_calls_of_background_work_count_in_a_run(lab: Lab) -> None:
    task = tool_use(
        "Agent" if lab.is_newest else "Task",
        description="look",
        prompt="look around",
        subagent_type="general-purpose",
        run_in_background=True,
    )
    made = {"main": 0, "subagent": 0}

    def reply(request: ModelRequest) -> Reply:
        who = "subagent" if request.agent_id else "main"
        made[who] += 1
        if who == "subagent" and made[who] < 20:
            look = tool_use("Glob", pattern="*", path=str(lab.work))
            return Reply(blocks=(look,), usage=USAGE, delay=DELAY)
        begins = who == "main" and made[who] == 1
        return Reply(blocks=(task if begins else text("done"),), usage=USAGE)

    async def main() -> tuple[Outcome[Any], int]:
        async with ScriptedModel(reply) as model:
            sdk = lab.sdk.replace(limits=Limits(usd=0.6))
            outcome = await bridle.run("go", cli=lab.cli(model), sdk=sdk)
            return outcome, len(model.requests)

    outcome, calls = run(main)
    assert outcome.reason is OutcomeReason.LIMIT_USD
    assert outcome.detail == "more than $0.6 was spent, background work included"
    assert 0.6 < (outcome.cost_usd or 0) < 6.5 * PRICE
    assert 4 <= calls <= 7


# ------------------------------------------------------------------------- a CLI that has changed

CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "the field is gone": (
        {"renamed": {"get_usage": {"total_cost_usd": None}}},
        "the response has no number in session.total_cost_usd",
    ),
    "the field has another name": (
        {"renamed": {"get_usage": {"session": "process"}}},
        "the response has no number in session.total_cost_usd",
    ),
    "the request is rejected": (
        {"rejected": {"get_usage": "Unsupported control request subtype: get_usage"}},
        "the CLI rejected the request",
    ),
    "the request is not answered": (
        {"ignored": ["get_usage"]},
        "the CLI did not answer within 1 s",
    ),
    "the total never rises": (
        {"fixed": {"get_usage": {"total_cost_usd": 0}}},
        "the CLI's total does not rise",
    ),
}
DOORS = ("session", "run", "run_many", "pool", "query", "query of one prompt")


async def spend(lab: Lab, cli: CliOptions, door: str, **more: float) -> Outcome[Any]:
    """Send a prompt with a limit of 30 cents through one of the doors."""
    sdk = lab.sdk.replace(limits=Limits(usd=0.3), **more)
    if door == "run":
        return await bridle.run("go", cli=cli, sdk=sdk)
    if door == "run_many":
        async with aclosing(bridle.Agent(cli=cli, sdk=sdk).run_many(["go"])) as outcomes:
            [outcome] = [outcome async for _, outcome in outcomes]
            return outcome
    if door == "pool":
        async with bridle.Agent(cli=cli, sdk=sdk).pool(size=1) as pool:
            return await pool.run("go")
    if door.startswith("query"):
        prompts = ["go", "go on"] if door == "query" else ["go"]
        with pytest.raises(UsdLimitError) as caught:
            async for _ in bridle.query(prompts, cli, sdk):
                pass
        return caught.value.outcome
    async with bridle.start_session(cli, sdk) as session:
        return await (await session.send_user_message("go"))


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("change", CHANGES)
def test_no_limit_is_passed_if_the_cli_does_not_tell_its_cost(
    lab: Lab, tmp_path: Path, change: str, door: str
) -> None:
    rules, why = CHANGES[change]
    # The timeout has to pass before the third model call.
    more, delay = ({"control_timeout": 1.0}, 1.0) if "ignored" in rules else ({}, DELAY)

    async def main() -> tuple[Outcome[Any], int]:
        async with ScriptedModel(looking(lab, delay=delay)) as model:
            changed = rewriting_cli(tmp_path / "claude", lab.cli_path, **rules)
            outcome = await spend(lab, lab.cli(model, cli_path=changed), door, **more)
            return outcome, len(model.requests)

    outcome, calls = run(main)
    assert outcome.reason is OutcomeReason.LIMIT_USD
    assert outcome.detail == f"the cost could not be read: {why}"
    assert calls < CALLS, "the model never stops by itself"


async def test_a_cli_that_does_not_answer_cannot_spend_ten_seconds_long(
    lab: Lab, tmp_path: Path
) -> None:
    """With the timeouts that programs have."""
    async with ScriptedModel(looking(lab)) as model:
        changed = rewriting_cli(tmp_path / "claude", lab.cli_path, ignored=["get_usage"])
        _, outcomes = await converse(lab, lab.cli(model, cli_path=changed), 0.3, prompts=1)
        [outcome], calls = outcomes, len(model.requests)
    assert outcome.reason is OutcomeReason.LIMIT_USD
    assert outcome.detail.startswith("the cost could not be read: the CLI did not answer")
    assert calls <= 6


@pytest.mark.longer
def test_the_words_of_the_cost_for_people_do_not_matter(lab: Lab, tmp_path: Path) -> None:
    words = {"Total cost:": "Gesamtkosten:", "Estimated cost:": "Gesamtkosten:"}

    async def main() -> tuple[Outcome[Any], str]:
        async with ScriptedModel(looking(lab)) as model:
            changed = rewriting_cli(tmp_path / "claude", lab.cli_path, words=words)
            cli = lab.cli(model, cli_path=changed)
            sdk = lab.sdk.replace(limits=Limits(usd=0.3))
            async with bridle.start_session(cli, sdk) as session:
                outcome = await (await session.send_user_message("go"))
                return outcome, (await session.info.cost()).text

    outcome, told = run(main)
    assert told.startswith("Gesamtkosten:")
    assert outcome.detail == "more than $0.3 was spent"
    assert 0.3 < (outcome.cost_usd or 0) < 4.5 * PRICE


NO_BUDGET = """
def argv(words):
    return [word for word in words if not word.startswith("--max-budget-usd")]
"""


@pytest.mark.parametrize("door", ["query", "query of one prompt"])
def test_every_prompt_of_a_query_is_measured_while_it_runs(
    lab: Lab, tmp_path: Path, door: str
) -> None:
    """By its cost: no option of the CLI decides whether the limit holds."""

    async def main() -> tuple[Outcome[Any], int]:
        async with ScriptedModel(looking(lab)) as model:
            changed = sabotaged_cli(tmp_path / "claude", lab.cli_path, NO_BUDGET)
            outcome = await spend(lab, lab.cli(model, cli_path=changed), door)
            return outcome, len(model.requests)

    outcome, calls = run(main)
    assert outcome.detail == "more than $0.3 was spent"
    assert calls <= 8


# ------------------------------------------------------------------------- what a result counts


@pytest.mark.both_clis
def test_a_model_call_that_was_cut_off_belongs_to_the_turn_that_was_interrupted(lab: Lab) -> None:
    """Newer CLIs count what the model had written. Older ones count nothing."""

    def reply(_: ModelRequest) -> Reply:
        is_cut = len(model.requests) == 2
        return Reply(blocks=(text("some words"),), usage=USAGE, hold=is_cut, hold_after=4)

    model = ScriptedModel(reply)

    async def main() -> tuple[list[Outcome[Any]], float | None, float | str]:
        async with model:
            cli = lab.cli(model, include_partial_messages=True)
            async with bridle.start_session(cli, lab.sdk) as session:
                outcomes: list[Outcome[Any]] = []
                for number in range(3):
                    turn = await session.send_user_message("go")
                    if number == 1:
                        async for _ in turn.text_stream():
                            break
                        await turn.interrupt()
                    outcomes.append(await turn)
                usage = await session.control("get_usage", skip_behaviors=True)
                return outcomes, session.usage.cost_usd, read_total(usage)

    outcomes, session_cost, told = run(main)
    first, cut, last = [outcome.cost_usd for outcome in outcomes]
    assert [outcome.reason for outcome in outcomes][1] is OutcomeReason.INTERRUPTED
    assert first == pytest.approx(PRICE)
    assert last == pytest.approx(PRICE)
    assert cut == pytest.approx(0.15 if lab.is_newest else 0.0, abs=0.01)
    assert session_cost == pytest.approx(told)
