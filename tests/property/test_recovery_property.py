"""The plan of a recovery, for random histories: a session that is killed and recovered.

A history is a list of steps of a small model of a session. The model knows what really happened,
so that the plan can be compared with it. The journal has everything before it happens, as the
session writes it. The transcript is behind, as the CLI writes it, by a random number of entries.
Each recovery is killed too. All tool calls have the same input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field
from tests.support.stored import ONE, assistant, call, result, user

from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    store_outcome,
)
from bridle.sessions._recovery import Continue, Finished, SendAgain, Step, plan_recovery
from bridle.sessions._transcripts.transcript import Transcript, entries_of_objects

Json = dict[str, Any]

LINE = '- Bash {"command":"make deploy"}'


class Kill(Exception):
    """The program and its CLI are killed."""


class World(Struct):
    """A session that runs until it is killed, and is recovered."""

    #: The calls of each turn.
    turns: list[int]
    #: How many of the results reach the journal late, or never.
    lost_results: set[int]
    #: The calls that a background subagent of the first prompt makes.
    in_background: set[int]
    #: How many things may still happen.
    left: int = 0
    journal: list[JournalEntry] = field(default_factory=list[JournalEntry])
    entries: list[Json] = field(default_factory=list[Json])
    #: How many entries of the transcript are safe.
    saved: int = 0
    #: The prompts that were sent, and those whose outcome the program has received.
    sent: list[str] = field(default_factory=list[str])
    received: set[str] = field(default_factory=set[str])
    #: The prompt of the program, by call.
    calls: dict[str, str] = field(default_factory=dict[str, str])
    #: The calls that a prompt whose turn has ended has named.
    named: set[str] = field(default_factory=set[str])
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

    def transcript(self) -> Transcript | None:
        entries = entries_of_objects(self.entries)
        return Transcript(session_id=ONE, project="-w", entries=entries) if entries else None

    def plan(self) -> tuple[Step, ...]:
        return plan_recovery(self.journal, self.transcript()).steps

    def live(self, things: int, behind: int, *, is_first: bool) -> None:
        """Run, or recover what was left, until so many things have happened."""
        self.left = things
        try:
            if is_first:
                self.run()
            else:
                self.recover()
        except Kill:
            kept = max(self.saved, len(self.entries) - behind)
            del self.entries[kept:]
            self.saved = kept

    def run(self) -> None:
        for number, calls in enumerate(self.turns):
            prompt = f"p{number}"
            self.turn(prompt, calls, [prompt])
            self.receive(prompt)

    def recover(self) -> None:
        while True:
            steps = self.plan()
            to_do = [one for one in steps if not isinstance(one, Finished)]
            if not to_do:
                break
            step, calls = to_do[0], self.turns[self.number % len(self.turns)]
            is_new = isinstance(step, Continue)
            uuid = f"c{self.number}" if is_new else step.prompts[0]
            first = step.prompts[0] if is_new else None
            self.turn(uuid, calls, step.prompts, continues=first, named=step.named)
        for prompt in [one for step in steps for one in step.prompts]:
            self.receive(prompt)

    def turn(
        self, uuid: str, calls: int, prompts: Sequence[str], named: Sequence[str] = (), **more: Any
    ) -> None:
        stamp = self.happen()
        self.journal.append(
            PromptEntry(
                **stamp, prompt_uuid=uuid, content=uuid, cwd="/w", named=tuple(named), **more
            )
        )
        if uuid == prompts[0] and uuid not in self.sent:
            self.sent.append(uuid)
        self.happen()
        self.keep(user(uuid, None, uuid))
        for _ in range(calls):
            self.call(uuid, prompts[0])
        self.happen()
        answer = assistant(f"{uuid}-a{self.number}", None)
        answer["message"]["stop_reason"] = "end_turn"
        self.keep(answer)
        outcome = Outcome[Any](reason=OutcomeReason.COMPLETED, uuid=uuid)
        for prompt in prompts:
            self.journal.append(
                OutcomeEntry(**self.happen(), prompt_uuid=prompt, outcome=store_outcome(outcome))
            )
            # Everything of a turn is in the transcript before its result.
            self.saved = len(self.entries)
            self.named.update(named)

    def receive(self, prompt: str) -> None:
        self.journal.append(ReceivedEntry(**self.happen(), prompt_uuid=prompt))
        self.received.add(prompt)

    def call(self, prompt: str, first: str) -> None:
        self.happen()
        id = f"t{self.number}"
        is_background = self.number in self.in_background
        if not is_background:
            made = assistant(f"{id}-c", None, call(id))
            made["message"]["stop_reason"] = "tool_use"
            self.keep(made)
        self.journal.append(
            ToolCallEntry(
                **self.happen(),
                tool_use_id=id,
                tool_name="Bash",
                tool_input={"command": "make deploy"},
                prompt_uuid="p0" if is_background else prompt,
                agent_id="a" if is_background else None,
                idempotency_key=id,
            )
        )
        self.calls[id] = "p0" if is_background else first
        self.happen()
        if not is_background:
            self.keep(user(f"{id}-r", None, result(id)))
        stamp = self.happen()
        if self.number not in self.lost_results:
            self.journal.append(ToolResultEntry(**stamp, tool_use_id=id, text="fine"))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World(
        turns=draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        lost_results=draw(st.sets(st.integers(0, 60))),
        in_background=draw(st.sets(st.integers(0, 60))),
    )
    for number, things in enumerate(draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))):
        world.live(things, draw(st.integers(0, 8)), is_first=number == 0)
    return world


@given(worlds())
@settings(max_examples=500, deadline=None)
def test_every_prompt_gets_one_outcome_and_the_model_knows_every_call(world: World) -> None:
    steps = world.plan()
    covered = [prompt for step in steps for prompt in step.prompts]
    assert covered == [prompt for prompt in world.sent if prompt not in world.received]
    present = {entry["uuid"] for entry in world.entries}
    for step in steps:
        if isinstance(step, SendAgain):
            assert step.prompt not in present
        if isinstance(step, Continue):
            assert present.issuperset(step.prompts)
    results = {one.tool_use_id for one in world.journal if isinstance(one, ToolResultEntry)}
    entries = entries_of_objects(world.entries)
    shown = {call for entry in entries for call in entry.tool_results}
    is_open = {id for id, prompt in world.calls.items() if prompt not in world.received}
    to_do = [step for step in steps if not isinstance(step, Finished)]
    if to_do:
        first = to_do[0]
        to_name = (world.calls.keys() - results) | is_open
        assert to_name - shown - world.named == set(first.named)
        assert str(first.content).count(LINE) == len(first.named)
        assert world.named.isdisjoint(first.named)
