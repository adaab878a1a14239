"""What a script expects of its client, and what of it never came.

The order is known beforehand, for a script has no branches: so a run needs to tell only how many of
its expectations were met. It tells each at once, and thus a run that is killed is judged as well.
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
"""The methods that expect an answer, by its subtype and verdict, for those who wrote them."""


def shortfall(steps: Sequence[Step], runs: Sequence[Facts]) -> list[str]:
    """What was expected and did not come, given what each run has told about itself."""
    first = next(expectations(steps), None)
    if first is not None and not runs:
        return [NEVER_STARTED]
    # Not starting is what such a run was for, unless there is no other.
    played = [facts for facts in runs if not any("refused" in fact for fact in facts)]
    if first is not None and not played:
        return [f"{first} never came"]
    return [problem for facts in played for problem in _problems(steps, facts)]


def _problems(steps: Sequence[Step], facts: Facts) -> list[str]:
    told = [str(fact["failure"]) for fact in facts if "failure" in fact]
    if told:
        return told
    met = sum("met" in fact for fact in facts)
    missing = next(islice(expectations(steps), met, None), None)
    return [] if missing is None else [f"{missing} never came"]


def expectations(steps: Sequence[Step]) -> Iterator[str]:
    """What is expected, in order and in words. What is repeated without end is not demanded."""
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
    """The steps that may wait for the client, with their numbers, as often as they are played."""
    for number, step in enumerate(steps, 1):
        if step["do"] == "repeat":
            # A million lines to write expect nothing, and need not be counted one by one.
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
