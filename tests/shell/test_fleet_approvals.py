"""Decisions about the runs of a fleet, on the fake CLI."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleets import info_when, reach
from tests.support.steps import ReplaceSteps

from bridle import Agent, Allow, Deny, tool
from bridle.cli import main as command
from bridle.errors import (
    UsageError,
)
from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")

from tests.shell.test_fleet import WAIT, working

from bridle.fleet import Fleet, Run, RunStatus

PAY = 'CALL mcp__tools__pay {"amount": 7}'


class Place:
    """A fleet whose tool writes down what it paid, and asks for the next payment."""

    def __init__(self, path: Path, cli: FakeCli) -> None:
        self._path = path
        self._cli = cli
        self.database = f"sqlite:///{path}/runs.db"
        self.paid: list[int] = []

    def fleet(self, *, has_tool: bool = True, **options: Any) -> Fleet:
        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return 'CALL mcp__tools__pay {"amount": 8}' if amount == 7 else f"paid {amount}"

        given: dict[str, Any] = {"cli_path": self._cli.path, "cwd": str(self._path), **options}
        agent = Agent(tools=[pay] if has_tool else None, **given)
        return Fleet(agent, self.database)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    with FakeCli.auto(transcripts=True) as cli:
        yield Place(tmp_path, cli)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize(
    ("lack", "why"),
    [
        ({"has_tool": False}, "not available"),
        ({"cli_path": "/nowhere/claude"}, "CliNotFoundError"),
        ({"permission_mode": "dontAsk"}, "permission_mode"),
    ],
)
async def test_a_decision_that_a_worker_cannot_carry_out_is_left_to_another_one(
    place: Place, lack: dict[str, Any], why: str
) -> None:
    async with working(place.fleet()):
        one = await place.fleet().submit(PAY)
        pending = (await reach(one, RunStatus.WAITING)).pending
    await one.approve(Allow(), pending=pending)
    async with working(place.fleet(**lack)):
        info = await reach(one, RunStatus.DELAYED)
        assert info.delay_reason is not None
        assert why in info.delay_reason
        with pytest.raises(UsageError):
            await one.approve(Deny("no"), pending=pending)
    assert place.paid == []
    async with working(place.fleet()):
        second = (await reach(one, RunStatus.WAITING)).pending
        assert place.paid == [7]
        assert second is not None
        await one.approve(Allow(), pending=second)
        outcome = await one.outcome(WAIT)
        assert (outcome.ok, outcome.text) == (True, "paid 8"), outcome
    assert place.paid == [7, 8]


@pytest.mark.parametrize("status", ["ENQUEUED", "DELAYED", "PENDING"])
async def test_a_run_is_listed_as_cancelled_while_a_worker_carries_that_out(
    place: Place, status: str
) -> None:
    async with place.fleet() as fleet:
        async with working(place.fleet()):
            one = await fleet.submit(PAY)
            await reach(one, RunStatus.WAITING)
        await one.cancel()
        with contextlib.closing(sqlite3.connect(place.database.partition(":///")[2])) as file:
            rule = "WHERE status = 'ENQUEUED'"
            changed = file.execute(f"UPDATE workflow_status SET status = ? {rule}", [status])
            assert changed.rowcount == 1
            file.commit()
        assert await one.status() is RunStatus.CANCELLED
        for chosen, expected in {"cancelled": [one.id], "running": [], "queued": []}.items():
            assert [found.id async for found in fleet.runs(status=chosen)] == expected


async def test_a_run_whose_decision_is_put_off_can_be_cancelled(place: Place) -> None:
    async with working(place.fleet()):
        one = await place.fleet().submit(PAY)
        await reach(one, RunStatus.WAITING)
    await one.approve(Allow())
    async with working(place.fleet(has_tool=False)):
        await reach(one, RunStatus.DELAYED)
        await one.cancel()
        assert await one.status() is RunStatus.CANCELLED
    assert place.paid == []


async def test_one_of_two_equal_decisions_at_once_takes_effect(
    place: Place, replace_steps: ReplaceSteps
) -> None:
    """Both programs see that the call waits before one of them decides."""
    both = asyncio.Barrier(2)
    add_next = Run._add_next

    async def together(one: Run, *arguments: Any, **more: Any) -> None:
        await both.wait()
        await add_next(one, *arguments, **more)

    replace_steps(decide_about_run=together)
    async with working(place.fleet()):
        one = await place.fleet().submit(PAY)
        seen = (await reach(one, RunStatus.WAITING)).pending
    programs = [place.fleet().run(one.id) for _ in range(2)]
    deciding = (program.approve(Allow(), pending=seen) for program in programs)
    told = await asyncio.gather(*deciding, return_exceptions=True)
    assert sorted(type(one).__name__ for one in told) == ["NoneType", "UsageError"]


async def test_a_late_decision_does_not_decide_about_the_next_call(place: Place) -> None:
    """Two people see a call. The second one decides while the run waits for another call."""
    async with working(place.fleet()):
        one = await place.fleet().submit(PAY)
        seen = (await reach(one, RunStatus.WAITING)).pending
        assert seen is not None
        await one.approve(Allow(), pending=seen)
        info = await info_when(one, lambda info: info.pending not in (None, seen))
        assert info.pending is not None
        with pytest.raises(UsageError, match=info.pending.tool_use_id):
            await one.approve(Allow(), pending=seen)
        assert await one.status() is RunStatus.WAITING
    assert place.paid == [7]


async def _approved(
    place: Place, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    """Run ``bridle runs approve``. Return its exit code and its output."""
    given = ["runs", "approve", *words, "--database", place.database]
    code = await asyncio.to_thread(command, given)
    found = capsys.readouterr()
    return code, found.out + found.err


async def test_the_command_shows_the_call_and_asks_on_a_terminal(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[str] = []

    def answer(question: str) -> str:
        print(question)
        if not answers:
            raise EOFError
        return answers.pop()

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)

    async def approve(*words: str) -> tuple[int, str]:
        return await _approved(place, capsys, *words)

    async with working(place.fleet()):
        one = await place.fleet().submit(PAY)
        pending = (await reach(one, RunStatus.WAITING)).pending
        assert pending is not None
    for answered in (["n"], [""], []):
        answers[:] = answered
        for words in ((one.id,), (one.id, "--call", pending.tool_use_id)):
            code, said = await approve(*words)
            assert 'mcp__tools__pay {"amount": 7}' in said
            assert "Allow this call?" in said
            assert (code, "Nothing was decided" in said) == (0, True)
    answers[:] = ["y"]
    code, said = await approve(one.id, "--call", "toolu_other")
    assert code == 1
    assert pending.tool_use_id in said
    assert await one.status() is RunStatus.WAITING
    code, said = await approve(one.id, "--call", pending.tool_use_id)
    assert (code, "in the queue again" in said) == (0, True)
    code, said = await approve(one.id, "--call", pending.tool_use_id)
    assert (code, "does not wait for a decision" in said) == (1, True)


async def test_the_command_shows_the_input_that_will_run(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    def answer(question: str) -> str:
        shown[:] = [*capsys.readouterr().out.splitlines(), question]
        return "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)
    async with working(place.fleet()):
        one = await place.fleet().submit(PAY)
        await reach(one, RunStatus.WAITING)
        code, said = await _approved(place, capsys, one.id, "--input", '{"amount": 3}')
        assert (code, "in the queue again" in said) == (0, True)
        assert shown == [
            'mcp__tools__pay {"amount": 7}',
            'It will run with this input instead: {"amount": 3}',
            "Allow this call? [y/N] ",
        ]
        assert (await one.outcome(WAIT)).text == "paid 3"
    assert place.paid == [3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--deny", "no", "--input", '{"amount": 3}'), "--deny"),
        (("--input", "[3]"), "must be a JSON object"),
        (("--input", "null"), "must be a JSON object"),
    ],
)
async def test_the_command_refuses_an_input_that_cannot_be_used(
    place: Place, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    async with working(place.fleet()):
        one = await place.fleet().submit(PAY)
        pending = (await reach(one, RunStatus.WAITING)).pending
        assert pending is not None
        given = (one.id, "--call", pending.tool_use_id, *words)
        code, printed = await _approved(place, capsys, *given)
        assert (code, said in printed) == (2, True), printed
        assert "--input" in printed
        assert await one.status() is RunStatus.WAITING
