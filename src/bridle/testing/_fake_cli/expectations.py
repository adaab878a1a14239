"""The expectations of a script, and which of them were not met.

A script has no branches, so the order of its expectations is fixed, and a run reports only how
many were met. It reports each one immediately, so a run that was killed can be checked, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

Step: TypeAlias = Mapping[str, Any]
Facts: TypeAlias = Sequence[Mapping[str, object]]

NEVER_STARTED = "the fake CLI was never started"

_TURNS = ("turn", "start_turn")

_ANSWERS = {
    ("hook_callback", ""): "expect_hook",
    ("hook_callback", "continue"): "expect_continue",
    ("hook_callback", "block"): "expect_block",
    ("can_use_tool", "allow"): "expect_allow",
    ("can_use_tool", "deny"): "expect_deny",
    ("mcp_message", "result"): "expect_mcp_result",
    ("mcp_message", "error"): "expect_mcp_error",
    ("elicitation", ""): "expect_elicitation",
    (None, "error"): "expect_error",
}
"""The FakeCli methods that expect a response, by subtype and verdict, for messages."""


def shortfall(steps: Sequence[Step], runs: Sequence[Facts]) -> list[str]:
    """Return the expectations that were not met, given the facts about each run."""
    first = next(expectations(steps), None)
    if first is not None and not runs:
        return [NEVER_STARTED]
    # A run that refused to start did what its script says, unless it is the only run.
    played = [facts for facts in runs if not any("refused" in fact for fact in facts)]
    if first is not None and not played:
        return [f"{first} was never received"]
    return [problem for facts in played for problem in _problems(steps, facts)]


def _problems(steps: Sequence[Step], facts: Facts) -> list[str]:
    told = [str(fact["failure"]) for fact in facts if "failure" in fact]
    if told:
        return told
    met = sum("met" in fact for fact in facts)
    missing = next(islice(expectations(steps), met, None), None)
    return [] if missing is None else [f"{missing} was never received"]


def expectations(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a description of each expectation, in order, except in endless repetitions."""
    has_prompt = False
    for number, step in _unrolled(steps):
        if step["do"] not in _TURNS:
            has_prompt = has_prompt or step["do"] == "expect_user"
            yield f"step {number}: {_call(step)}"
        else:
            if not has_prompt:
                yield f"step {number}: the prompt for {step['do']}"
            has_prompt = False


def _unrolled(steps: Sequence[Step]) -> Iterator[tuple[int, Step]]:
    """Yield the steps that may wait for the client, with their numbers, repeated as they run."""
    for number, step in enumerate(steps, 1):
        if step["do"] == "repeat":
            # Skip steps that expect nothing, because they may be repeated a million times.
            times = step["times"] if any(_unrolled(step["steps"])) else 0
            for _ in range(times or 0):
                yield from _unrolled(step["steps"])
        elif step["do"] in _TURNS or step["do"].startswith("expect_"):
            yield number, step


def _call(step: Step) -> str:
    if step["do"] == "expect_answer":
        return _ANSWERS.get((step["subtype"], step["verdict"]), "expect_answer")
    main = step.get("text", step.get("subtype"))
    return str(step["do"]) if main is None else f"{step['do']}({main!r})"
