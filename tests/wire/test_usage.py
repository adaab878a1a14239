"""The running cost in the replies of real CLIs to `get_usage`, and in those of the fake CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import run

import bridle
from bridle import Session
from bridle._engine.turns.cost import GET_USAGE, USAGE_FIELDS, read_total
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

Json = dict[str, Any]

RECORDINGS = sorted((Path(__file__).parent / "golden").rglob("usage_in_turn.ndjson"))


def lines_of(recording: Path, direction: str) -> list[Json]:
    """The lines of one direction, parsed."""
    entries = map(json.loads, recording.read_text("utf-8").splitlines())
    return [json.loads(one["line"]) for one in entries if one["dir"] == direction]


def replies_of(recording: Path) -> list[Json]:
    """The payloads of the replies to `get_usage`."""
    asked = {
        one["request_id"]
        for one in lines_of(recording, "in")
        if one["type"] == "control_request" and one["request"]["subtype"] == "get_usage"
    }
    replies = [one["response"] for one in lines_of(recording, "out") if "response" in one]
    return [one["response"] for one in replies if one["request_id"] in asked]


def keys_of(value: object) -> object:
    """The names in a JSON value, at every depth."""
    if isinstance(value, dict):
        return {name: keys_of(member) for name, member in value.items()}
    return None


def test_two_generations_are_recorded() -> None:
    versions = [path.parent.name for path in RECORDINGS]
    assert versions[0] == "2.1.197"
    assert len(versions) > 1


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.parent.name)
def test_the_cost_grows_with_each_model_call_and_agrees_with_the_result(recording: Path) -> None:
    before, during, after = map(read_total, replies_of(recording))
    [result] = [one for one in lines_of(recording, "out") if one["type"] == "result"]
    assert before == 0.0
    assert during == pytest.approx(result["total_cost_usd"] / 2), "one of two model calls"
    assert after == result["total_cost_usd"]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.parent.name)
def test_the_fake_cli_answers_as_the_real_one(recording: Path) -> None:
    newest, *older = FLAVOURS
    version = recording.parent.name
    flavour = version if version in older else newest

    async def usage(session: Session) -> Json:
        return dict(await session.control(GET_USAGE, timeout=None, **USAGE_FIELDS) or {})

    async def main() -> list[Json]:
        with FakeCli.auto(flavour=flavour) as fake:
            async with bridle.start_session(cli_path=fake.path) as session:
                before = await usage(session)
                await (await session.send_user_message("hello"))
                return [before, await usage(session)]

    real = replies_of(recording)
    real = [real[0], real[2]]
    for ours, theirs in zip(run(main), real, strict=True):
        [name] = theirs["session"]["model_usage"] or [""]
        [own] = ours["session"]["model_usage"] or [""]
        if name:
            ours["session"]["model_usage"] = {name: ours["session"]["model_usage"][own]}
        assert keys_of(ours) == keys_of(theirs)
