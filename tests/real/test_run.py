"""`run` on the real CLIs: one call, one outcome, background work and typed output included."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pydantic
import pytest

from bridle import BidirOptions, Limits, OutcomeReason, run
from bridle.testing import Reply, ScriptedModel, error, repeat, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab


@dataclasses.dataclass
class AsDataclass:
    total: float
    lines: list[str]


class AsTypedDict(TypedDict):
    total: float
    lines: list[str]


class AsStruct(msgspec.Struct):
    total: float
    lines: list[str]


class AsModel(pydantic.BaseModel):
    total: float
    lines: list[str]


INVOICE = {"total": 3.5, "lines": ["a", "b"]}


def play(lab: Lab, script: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60), ScriptedModel(script) as model:
            sdk = lab.sdk.replace(limits=options.pop("limits", Limits()))
            return await run("go", cli=lab.cli(model), sdk=sdk, **options)

    return asyncio.run(main())


def test_a_plain_answer_is_an_outcome(lab: Lab) -> None:
    outcome = play(lab, [[text("Hello")]], keep_messages=True)
    assert (outcome.ok, outcome.text, outcome.num_turns) == (True, "Hello", 1)
    assert outcome.cost_usd > 0
    assert "ResultMessage" in [type(message).__name__ for message in outcome.messages]


@pytest.mark.parametrize("kind", [AsDataclass, AsTypedDict, AsStruct, AsModel])
def test_the_answer_comes_as_the_type_that_was_asked_for(lab: Lab, kind: Any) -> None:
    outcome = play(lab, [[tool_use("StructuredOutput", **INVOICE)]], output_type=kind)
    assert outcome.raise_for_reason() is outcome
    expected = INVOICE if kind is AsTypedDict else kind(**INVOICE)
    assert outcome.output == expected


def test_prose_instead_of_the_type_is_no_success(lab: Lab) -> None:
    outcome = play(lab, [repeat([text("about three fifty")])], output_type=AsDataclass)
    assert outcome.reason is OutcomeReason.OUTPUT_MISSING
    assert (outcome.output, outcome.text) == (None, "about three fifty")


def test_background_work_is_part_of_the_answer(lab: Lab) -> None:
    script = [
        [
            tool_use(
                "Bash", command="sleep 0.3; echo done", run_in_background=True, description="wait"
            )
        ],
        [text("started")],
        [text("it is done")],
    ]
    bidir = BidirOptions(on_can_use_tool=_allow)
    outcome = play(lab, script, bidir=bidir)
    assert (outcome.ok, outcome.text, outcome.num_turns) == (True, "it is done", 3)


def _allow(_: object) -> Any:
    import bridle

    return bridle.Allow()


def test_an_api_that_fails_is_a_failing_outcome(lab: Lab) -> None:
    outcome = play(lab, [repeat(error(529))])
    assert outcome.reason is OutcomeReason.API_ERROR


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(total=1.5), OutcomeReason.LIMIT_TOTAL),
        (Limits(idle=1.0), OutcomeReason.LIMIT_IDLE),
    ],
    ids=["total", "idle"],
)
def test_a_slow_answer_reaches_its_limit(lab: Lab, limits: Limits, reason: OutcomeReason) -> None:
    slow = Reply(blocks=(text("w " * 40, chunks=40),), chunk_delay=0.5)
    outcome = play(lab, [slow], limits=limits)
    assert outcome.reason is reason
