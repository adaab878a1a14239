"""The plan of a recovery, for random histories: a session that is killed at a random moment.

A history is a list of steps of a small model of a session. The model knows what really happened,
so that the plan can be compared with it. The journal has everything before it happens, as the
session writes it. The transcript is behind, as the CLI writes it, by a random number of entries.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field
from tests.support.stored import ONE, assistant, call, result, user

from bridle._core.journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    store_outcome,
)
from bridle._core.recovery import Continue, Finished, SendAgain, plan_recovery
from bridle._core.transcripts import Transcript, entries_of_objects
from bridle.outcomes import Outcome, OutcomeReason

Json = dict[str, Any]


class Kill(Exception):
    """The program and its CLI are killed."""


class World(Struct):
    """A session that runs until it is killed."""

    #: How many things may still happen.
    left: int
    #: The calls of each turn.
    turns: list[int]
    #: How many of the results reach the journal late, or never.
    lost_results: set[int]
    journal: list[JournalEntry] = field(default_factory=list[JournalEntry])
    entries: list[Json] = field(default_factory=list[Json])
    #: The prompts that were sent, and those whose outcome the program has received.
    sent: list[str] = field(default_factory=list[str])
    received: set[str] = field(default_factory=set[str])
    ran: set[str] = field(default_factory=set[str])
    number: int = 0

    def happen(self) -> Json:
        if self.left <= 0:
            raise Kill
        self.left -= 1
        self.number += 1
        return {"uuid": f"j{self.number}", "at": float(self.number)}

    def keep(self, made: Json) -> None:
        parent = self.entries[-1]["uuid"] if self.entries else None
        self.entries.append({**made, "parentUuid": parent})

    def run(self) -> None:
        for number, calls in enumerate(self.turns):
            self.turn(f"p{number}", calls)

    def turn(self, prompt: str, calls: int) -> None:
        stamp = self.happen()
        self.journal.append(PromptEntry(**stamp, prompt_uuid=prompt, content=prompt, cwd="/w"))
        self.sent.append(prompt)
        self.happen()
        self.keep(user(prompt, None, prompt))
        for number in range(calls):
            self.call(prompt, f"{prompt}-t{number}")
        self.happen()
        answer = assistant(f"{prompt}-a", None)
        answer["message"]["stop_reason"] = "end_turn"
        self.keep(answer)
        outcome = Outcome[Any](reason=OutcomeReason.COMPLETED, uuid=prompt)
        self.journal.append(
            OutcomeEntry(**self.happen(), prompt_uuid=prompt, outcome=store_outcome(outcome))
        )
        self.journal.append(ReceivedEntry(**self.happen(), prompt_uuid=prompt))
        self.received.add(prompt)

    def call(self, prompt: str, id: str) -> None:
        self.happen()
        made = assistant(f"{id}-c", None, call(id))
        made["message"]["stop_reason"] = "tool_use"
        self.keep(made)
        self.journal.append(
            ToolCallEntry(
                **self.happen(),
                tool_use_id=id,
                tool_name="Bash",
                tool_input={"command": id},
                prompt_uuid=prompt,
                idempotency_key=id,
            )
        )
        self.happen()
        self.ran.add(id)
        self.happen()
        self.keep(user(f"{id}-r", None, result(id)))
        stamp = self.happen()
        if self.number not in self.lost_results:
            self.journal.append(ToolResultEntry(**stamp, tool_use_id=id, text="fine"))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, Transcript | None]:
    world = World(
        left=draw(st.integers(0, 60)),
        turns=draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        lost_results=draw(st.sets(st.integers(0, 60))),
    )
    with contextlib.suppress(Kill):
        world.run()
    behind = draw(st.integers(0, len(world.entries)))
    # Everything of a turn is in the transcript before its result.
    done = [n for n, one in enumerate(world.entries) if _outcome_of(world, one["uuid"])]
    kept = max(len(world.entries) - behind, *(n + 1 for n in done), 0)
    entries = entries_of_objects(world.entries[:kept])
    return world, Transcript(session_id=ONE, project="-w", entries=entries) if entries else None


def _outcome_of(world: World, answer: str) -> bool:
    prompts = {one.prompt_uuid for one in world.journal if isinstance(one, OutcomeEntry)}
    return answer.removesuffix("-a") in prompts and answer.endswith("-a")


def _prompts(step: Finished | Continue | SendAgain) -> tuple[str, ...]:
    return (step.prompt,) if isinstance(step, Finished) else step.prompts


@given(worlds())
@settings(max_examples=500, deadline=None)
def test_every_prompt_gets_one_outcome_and_the_model_knows_every_call(
    made: tuple[World, Transcript | None],
) -> None:
    world, transcript = made
    steps = plan_recovery(world.journal, transcript).steps
    covered = [prompt for step in steps for prompt in _prompts(step)]
    assert covered == [prompt for prompt in world.sent if prompt not in world.received]
    present = {entry.uuid for entry in transcript.entries} if transcript else set[str | None]()
    for step in steps:
        if isinstance(step, SendAgain):
            assert step.prompt not in present
        if isinstance(step, Continue):
            assert present.issuperset(step.prompts)
    sent = [str(step.content) for step in steps if not isinstance(step, Finished)]
    known = (
        {call for entry in transcript.entries for call in entry.tool_results} if transcript else ()
    )
    for id in world.ran:
        is_open = id.partition("-")[0] not in world.received
        if is_open and id not in known:
            assert sent, "a call ran whose result is unknown, so something is sent"
            assert f'"{id}"' in sent[0]
