"""Histories of an approved call whose programs are killed, and that is approved again and again.

``python -m tests.histories.begun_calls PLAN`` is a program that approves the calls of several
conversations. `play` defers the calls, runs and kills such programs, and then decides about each
call until its turn has ended. A history has what each decision was told, and how often the tool
ran. `judge` says what is wrong with it: no decision lets a call run that may have run before.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from msgspec import json as msgjson
from tests.histories.programs import LIMIT, note, notes, run_and_kill

import bridle
from bridle import Allow, Defer, Deny, PendingApproval, ToolContext, tool
from bridle.errors import CallMayHaveRun, UsageError
from bridle.sessions import SqliteStore
from bridle.sessions._outbox import leases

LEASE = 1.5
"""Seconds of a lease in these programs."""

STORES = ("journal", "plain", "none")
"""A store, a store that keeps no journals, or no store."""

NAME = "mcp__tools__pay"


class Plain(SqliteStore):
    """A store that keeps no journals."""

    has_journals = False


class Plan(Struct):
    """What a program does."""

    directory: str
    #: One of `STORES`.
    store: str
    options: dict[str, Any]
    #: The calls to approve, as JSON.
    pending: list[str] = []

    @property
    def home(self) -> Path:
        return Path(self.directory)

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[bridle.Agent]:
        """The agent of all programs. Its tool notes each call before and after it acts."""
        chance, log = random.Random(), self.home / "log"

        @tool
        async def pay(case: int, context: ToolContext) -> str:
            """Pay."""
            facts = {"case": case, "id": context.tool_use_id, "key": context.idempotency_key}
            note(log, paid=True, **facts)
            await asyncio.sleep(chance.uniform(0, 0.1))
            note(log, returned=True, **facts)
            return f"paid {case}"

        kinds = {"journal": SqliteStore, "plain": Plain}
        store = kinds[self.store](self.home / "store.db") if self.store in kinds else None
        yield bridle.Agent(store=store, tools=[pay], **self.options)
        if store is not None:
            await store.aclose()


async def run_program(plan: Plan) -> None:
    """Approve all calls at the same time."""
    async with plan.agent() as agent:
        found = [PendingApproval.from_json(one) for one in plan.pending]
        await asyncio.gather(*(_approve(plan, agent, one) for one in found))


async def _approve(plan: Plan, agent: bridle.Agent, pending: PendingApproval) -> str:
    """Approve a call. Return and note what this was told."""
    log, call = plan.home / "log", pending.tool_use_id
    note(log, id=call, approving=True)
    told = await _told(agent, pending)
    note(log, id=call, told=told)
    return told


async def _told(agent: bridle.Agent, pending: PendingApproval) -> str:
    try:
        return str((await agent.resume(pending, Allow(), wait=LIMIT)).reason)
    except (CallMayHaveRun, UsageError) as error:
        return type(error).__name__


# ---------------------------------------------------------------- the history


class History(Struct):
    """What happened to one call."""

    call: str
    store: str
    #: The notes about the call: approvals, what they were told, and what the tool did.
    facts: list[dict[str, Any]]
    #: How the turn ended at last.
    ended: str
    #: What a decision was told after that.
    after: str


def play(plan: Plan, calls: int, deaths: int, seed: int) -> tuple[list[History], int]:
    """Kill programs that approve these calls. Return the histories, and the number of kills."""
    chance, kills = random.Random(seed), 0
    plan = structs.replace(plan, pending=asyncio.run(_defer(plan, calls)))
    for _ in range(deaths):
        steps = chance.randint(calls, 4 * calls)
        module, data = "tests.histories.begun_calls", msgjson.encode(plan)
        kills += run_and_kill(
            module, plan.home, data, ["log"], steps, chance, cli_first=chance.random() < 0.3
        )
    endings = asyncio.run(_end(plan))
    facts = notes(plan.home / "log")
    found = [
        History(call, plan.store, [one for one in facts if one.get("id") == call], *ending)
        for call, ending in endings.items()
    ]
    return found, kills


async def _defer(plan: Plan, calls: int) -> list[str]:
    async with plan.agent() as agent:
        deferring = agent.replace(on_pre_tool_use=lambda _: Defer())
        prompts = [f'CALL {NAME} {{"case": {case}}}' for case in range(calls)]
        outcomes = await asyncio.gather(*map(deferring.run, prompts))
    assert all(one.pending is not None for one in outcomes), outcomes
    return [one.pending.to_json() for one in outcomes if one.pending is not None]


async def _end(plan: Plan) -> dict[str, tuple[str, str]]:
    """Finish the turn of each call, then approve the call once more."""
    async with plan.agent() as agent:

        async def end(pending: PendingApproval) -> tuple[str, str]:
            told = await _approve(plan, agent, pending)
            if told == "CallMayHaveRun" and plan.store == "journal":
                outcomes = await agent.recover(pending.session_id)
                told = str(outcomes[-1].reason)
            elif told == "CallMayHaveRun":
                told = str(
                    (await agent.resume(pending, Deny("it may have run"), wait=LIMIT)).reason
                )
            return told, await _approve(plan, agent, pending)

        found = [PendingApproval.from_json(one) for one in plan.pending]
        endings = await asyncio.gather(*map(end, found))
    return {one.tool_use_id: told for one, told in zip(found, endings, strict=True)}


# ---------------------------------------------------------------- the verdict


def judge(history: History) -> list[str]:
    """Return what is wrong with a history."""
    return [*_repeated(history), *_ended(history), *_told_wrongly(history)]


def _repeated(history: History) -> Iterator[str]:
    paid = [one for one in history.facts if "paid" in one]
    if len(paid) > 1:
        yield f"the call ran {len(paid)} times, with the keys {[one['key'] for one in paid]}"


def _ended(history: History) -> Iterator[str]:
    if history.ended not in ("completed", "UsageError"):
        yield f"the turn ended as {history.ended}"
    if history.after != "UsageError":
        yield f"after the end of the turn, a decision was told {history.after}"


def _told_wrongly(history: History) -> Iterator[str]:
    """What a decision is told follows from what happened before it."""
    has_returned = any("returned" in one for one in history.facts)
    if history.store == "journal" and history.ended == "UsageError" and not has_returned:
        yield "the call was cut off, and no decision was told that it may have run"
    paid = began = False
    approvals = 0
    for fact in history.facts:
        approvals += "approving" in fact
        began = began or "paid" in fact
        paid = paid or "returned" in fact
        match fact.get("told"):
            case "completed" if not paid:
                yield "a decision was told that the turn has completed, and the tool did not run"
            case "UsageError" if not began and history.ended != "UsageError":
                if approvals < 2:
                    yield "the first decision was refused"
            case "CallMayHaveRun" if approvals < 2:
                yield "the first decision was told that the call may have run"
            case _:
                continue


def report(problems: Sequence[str], history: History) -> str:
    """Return the problems of a history, and the history."""
    ending = f"{history.ended}, {history.after}"
    return "\n".join([*problems, history.store, *map(str, history.facts), ending])


def check(histories: Sequence[History]) -> None:
    """Raise if something is wrong with a history."""
    wrong = [report(problems, one) for one in histories if (problems := judge(one))]
    assert not wrong, "\n\n".join(wrong)


if __name__ == "__main__":
    leases.__dict__["LEASE"] = LEASE
    asyncio.run(run_program(msgjson.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))
