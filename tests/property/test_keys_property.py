"""Idempotency keys and what the model is told, for random histories with any number of crashes.

A small model of a session runs prompts, is killed after a random number of things have happened,
and is recovered, again and again. Its tool is careful: it acts once for each idempotency key. Its
model is obedient: it makes every call that it was asked for and that is not known to be done, and
it repeats every call that a recovery names as uncertain. So each call acts exactly once if and only
if the keys and the notices of recovery are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field
from tests.support.stored import ONE, assistant, call, result, user

from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._call_keys import CallKeys, hash_of_call
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    store_outcome,
)
from bridle.sessions._recovery import Continue, Finished, SendAgain, plan_recovery
from bridle.sessions._recovery_texts import KNOWN, UNKNOWN
from bridle.sessions._transcripts.transcript import Transcript, entries_of_objects

Json = dict[str, Any]


class Kill(Exception):
    """The program and its CLI are killed."""


class World(Struct):
    """A session that runs until it is killed, and is recovered until nothing is left to do."""

    #: How often each prompt asks for each of its calls.
    prompts: list[list[int]]
    #: Whether the CLI writes a result in place of one that is missing when it resumes.
    is_newer: bool
    #: Results that never reach the journal, by the number of the event.
    lost: set[int]
    #: The lives in which the program dies before its CLI, for which the tool that runs then fails.
    failing: set[int] = field(default_factory=set[int])
    #: The lives in which a CLI whose hook is not answered denies the call.
    denying: set[int] = field(default_factory=set[int])
    lives: int = 0
    #: How many things may still happen.
    left: int = 0
    number: int = 0
    journal: list[JournalEntry] = field(default_factory=list[JournalEntry])
    entries: list[Json] = field(default_factory=list[Json])
    #: How many entries of the transcript are safe.
    saved: int = 0
    keys: CallKeys = field(default_factory=CallKeys)
    #: The keys for which the tool has acted, by call.
    acts: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    #: The ids of the calls that reached the tool.
    ran: set[str] = field(default_factory=set[str])
    #: The call of each id, and how often each prompt asks for each call.
    calls: dict[str, str] = field(default_factory=dict[str, str])
    asked: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    #: The ids of calls that recoveries have told the model to be done.
    told: set[str] = field(default_factory=set[str])
    received: set[str] = field(default_factory=set[str])

    # -- time --------------------------------------------------------------------------------------

    def happen(self) -> Json:
        if self.left <= 0:
            raise Kill
        self.left -= 1
        self.number += 1
        return {"uuid": f"j{self.number}", "at": float(self.number)}

    def live(self, things: int, behind: int, *, is_first: bool) -> None:
        """Run, or recover what was left, until so many things have happened."""
        self.left, begun = things, len(self.entries)
        try:
            if is_first:
                self.run()
            else:
                self.recover()
        except Kill:
            if self.lives in self.failing | self.denying:
                self.fail_open_calls(begun)
            self.saved = max(self.saved, len(self.entries) - behind)
            del self.entries[self.saved :]
        self.lives += 1

    # -- the conversation --------------------------------------------------------------------------

    def keep(self, made: Json, parent: str | None = None) -> None:
        last = self.entries[-1]["uuid"] if self.entries else None
        self.entries.append({**made, "parentUuid": parent or last})

    def results(self) -> set[str]:
        """The ids of the calls whose real results the model sees."""
        return {
            block["tool_use_id"]
            for entry in self.entries
            if entry["type"] == "user" and "toolDenialKind" not in entry
            for block in entry["message"]["content"]
            if isinstance(block, dict) and not block.get("is_error")
        }

    def fail_open_calls(self, begun: int) -> None:
        """Write what a CLI writes if the program of a tool dies before the tool has answered."""
        missing = {id for entry in self.entries[begun:] for id in _calls_in(entry)}
        for id in sorted(missing - _results_in(self.entries)):
            self.number += 1
            if id in self.ran and self.lives not in self.failing:
                continue
            failed = [{**one, "is_error": True} for one in result(id)]
            is_denied = id not in self.ran and self.lives in self.denying
            denial = {"toolDenialKind": "permission-rule"} if is_denied else {}
            self.keep(user(f"{id}-f{self.number}", None, failed, **denial))

    def close_cut_off_turn(self) -> None:
        """Write what the CLI writes before the first prompt of a conversation that it resumes."""
        if not self.entries:
            return
        start = max(
            (
                n
                for n, entry in enumerate(self.entries)
                if not entry["uuid"].startswith(("t", "none")) and entry["type"] == "user"
            ),
            default=0,
        )
        missing = {id: one for one in self.entries[start:] for id in _calls_in(one)}
        for id in _results_in(self.entries):
            missing.pop(id, None)
        is_open = bool(missing) or self.entries[-1]["type"] == "user"
        parent: str | None = None
        for id, one in missing.items():
            if self.is_newer:
                self.keep(user(f"cut-{id}", None, result(id), toolDenialKind="interrupted"))
            else:
                parent = parent or one["parentUuid"]
        if is_open:
            self.number += 1
            closed = assistant(f"none{self.number}", None)
            closed["message"] |= {"model": "<synthetic>", "stop_reason": "stop_sequence"}
            self.keep({**closed, "isApiErrorMessage": False}, parent)

    # -- the program -------------------------------------------------------------------------------

    def run(self) -> None:
        for number, wanted in enumerate(self.prompts):
            prompt = f"p{number}"
            self.asked[prompt] = {f"{prompt}-{n}": times for n, times in enumerate(wanted)}
            self.turn(prompt, [prompt])
            self.receive(prompt)

    def recover(self) -> None:
        while True:
            plan = plan_recovery(self.journal, self.transcript())
            to_do = [one for one in plan.steps if not isinstance(one, Finished)]
            for one in plan.steps:
                if isinstance(one, Finished):
                    assert one.outcome.text == f"answer to {one.prompt}"
            if not to_do:
                break
            step = to_do[0]
            self.check(step)
            self.keys = CallKeys(self.journal, step.recorded)
            is_new = isinstance(step, Continue)
            uuid = f"c{self.number}" if is_new else step.prompts[0]
            first = step.prompts[0] if is_new else None
            self.close_cut_off_turn()
            self.turn(uuid, step.prompts, continues=first, named=step.named)
        for prompt in [one for step in plan.steps for one in step.prompts]:
            self.receive(prompt)

    def check(self, step: Continue | SendAgain) -> None:
        """Check that each uncertain call is named once, and that no other is named as uncertain."""
        attempts = [one for one in self.journal if isinstance(one, ToolCallEntry)]
        done = {one.idempotency_key for one in attempts if one.tool_use_id in self.real_results()}
        uncertain = {
            one.idempotency_key: str(one.tool_input["name"])
            for one in attempts
            if one.idempotency_key not in done and one.prompt_uuid not in self.received
            if one.tool_use_id not in self.denied()
        }
        _, _, text = str(step.content).partition(UNKNOWN)
        text = text.partition(KNOWN)[0]
        named = list(uncertain.values())
        assert {name: text.count(f'"{name}"') for name in self.calls.values()} == {
            name: named.count(name) for name in self.calls.values()
        }

    def real_results(self) -> set[str]:
        found = {one.tool_use_id for one in self.journal if isinstance(one, ToolResultEntry)}
        return found | self.results()

    def denied(self) -> set[str]:
        """The calls that did not run, as the CLI says."""
        denials = [one for one in self.entries if one.get("toolDenialKind") == "permission-rule"]
        return _results_in(denials)

    def is_done(self, id: str) -> bool:
        """Whether an attempt of the same call has a result."""
        keys = {
            one.tool_use_id: one.idempotency_key
            for one in self.journal
            if isinstance(one, ToolCallEntry)
        }
        return any(keys.get(one) == keys[id] for one in self.real_results())

    def transcript(self) -> Transcript | None:
        entries = entries_of_objects(self.entries)
        return Transcript(session_id=ONE, project="-w", entries=entries) if entries else None

    def turn(
        self, uuid: str, prompts: Sequence[str], named: Sequence[str] = (), **more: Any
    ) -> None:
        stamp = self.happen()
        self.keys.open(uuid, more.get("continues"), named)
        self.journal.append(
            PromptEntry(
                **stamp, prompt_uuid=uuid, content=uuid, cwd="/w", named=tuple(named), **more
            )
        )
        self.happen()
        self.keep(user(uuid, None, uuid))
        self.told.update(id for id in named if self.is_done(id))
        repeats = [self.calls[id] for id in named if id not in self.told]
        for prompt in prompts:
            for name, times in self.asked[prompt].items():
                done = [id for id in self.results() | self.told if self.calls[id] == name]
                for _ in range(max(times - len(done), repeats.count(name))):
                    self.call(uuid, name)
        self.happen()
        answer = assistant(f"{uuid}-a{self.number}", None)
        answer["message"]["stop_reason"] = "end_turn"
        answer["message"]["content"][0]["text"] = f"answer to {prompts[0]}"
        self.keep(answer)
        for prompt in prompts:
            outcome = Outcome[Any](
                reason=OutcomeReason.COMPLETED, uuid=uuid, text=f"answer to {prompt}"
            )
            self.journal.append(
                OutcomeEntry(**self.happen(), prompt_uuid=prompt, outcome=store_outcome(outcome))
            )
            # Everything of a turn is in the transcript before its result.
            self.saved = len(self.entries)

    def receive(self, prompt: str) -> None:
        self.journal.append(ReceivedEntry(**self.happen(), prompt_uuid=prompt))
        self.keys.close(prompt)
        self.received.add(prompt)

    def call(self, prompt: str, name: str) -> None:
        self.happen()
        id = f"t{self.number}"
        self.calls[id] = name
        made = assistant(f"{id}-c", None, call(id))
        made["message"]["stop_reason"] = "tool_use"
        self.keep(made)
        given = {"name": name}
        hashed = hash_of_call("mcp__t__pay", given)
        key = self.keys.next(ONE, prompt, hashed, id)
        self.journal.append(
            ToolCallEntry(
                **self.happen(),
                tool_use_id=id,
                tool_name="mcp__t__pay",
                tool_input=given,
                call_hash=hashed,
                prompt_uuid=prompt,
                idempotency_key=key,
            )
        )
        self.happen()
        self.ran.add(id)
        self.acts.setdefault(name, set()).add(key)
        self.happen()
        self.keep(user(f"{id}-r", None, result(id)))
        stamp = self.happen()
        if self.number not in self.lost:
            self.journal.append(ToolResultEntry(**stamp, tool_use_id=id, text="fine"))


def _calls_in(entry: Json) -> list[str]:
    blocks = entry["message"]["content"]
    return [one["id"] for one in blocks if isinstance(one, dict) and one["type"] == "tool_use"]


def _results_in(entries: Sequence[Json]) -> set[str]:
    return {
        block["tool_use_id"]
        for entry in entries
        if entry["type"] == "user"
        for block in entry["message"]["content"]
        if isinstance(block, dict)
    }


BEHIND = st.integers(0, 6) | st.just(100)
"""How many of the last entries of a life are lost with its process. Perhaps all of them."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World(
        prompts=draw(st.lists(st.lists(st.integers(1, 2), max_size=3), min_size=1, max_size=3)),
        is_newer=draw(st.booleans()),
        lost=draw(st.sets(st.integers(0, 80))),
        failing=draw(st.sets(st.integers(0, 5))),
        denying=draw(st.sets(st.integers(0, 5))),
    )
    for number, things in enumerate(draw(st.lists(st.integers(0, 30), min_size=1, max_size=6))):
        world.live(things, draw(BEHIND), is_first=number == 0)
    world.live(1000, 0, is_first=False)
    return world


@given(worlds())
@settings(max_examples=1000, deadline=None)
def test_every_call_acts_exactly_once_through_any_number_of_crashes(world: World) -> None:
    sent = {one.prompt_uuid for one in world.journal if isinstance(one, PromptEntry)}
    asked = {name: n for prompt in world.asked if prompt in sent
             for name, n in world.asked[prompt].items()}  # fmt: skip
    assert {name: len(keys) for name, keys in world.acts.items()} == asked
    assert world.received == set(world.asked) & sent


@pytest.mark.parametrize("is_newer", [True, False])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_call_has_one_key_after_each_crash(is_newer: bool, behind: int) -> None:
    """The program dies in the call, three times."""
    for things in range(4, 8):
        world = World(prompts=[[1]], is_newer=is_newer, lost=set(range(100)))
        world.live(things, behind, is_first=True)
        for _ in range(3):
            world.live(things, behind, is_first=False)
        world.live(100, 0, is_first=False)
        assert [len(keys) for keys in world.acts.values()] == [1], things


@pytest.mark.parametrize("things", range(4, 8))
@pytest.mark.parametrize("more", range(2, 8))
def test_a_repeat_that_the_cli_denies_leaves_the_key_of_its_call(things: int, more: int) -> None:
    """The program dies in the call, and in its repeat."""
    world = World(prompts=[[1]], is_newer=True, lost=set(range(100)), denying={1})
    world.live(things, 0, is_first=True)
    world.live(more, 0, is_first=False)
    world.live(1000, 0, is_first=False)
    assert {name: len(keys) for name, keys in world.acts.items()} == {"p0-0": 1}
