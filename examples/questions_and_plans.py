"""Answer questions of the model, and approve its plan before it does anything.

`terminal.ask` shows a question or a plan on the terminal and returns what the user decides. It is a
callback itself, or a callback of yours calls it.

$ python examples/questions_and_plans.py
"""

import asyncio

import bridle
from bridle import terminal

MOST_LINES = 40


async def approve(ask: bridle.PlanContext) -> bridle.PlanResult:
    """Ask the user about a plan that is short enough to be read."""
    if len((ask.plan or "").splitlines()) > MOST_LINES:
        return bridle.Deny(f"Shorten the plan to at most {MOST_LINES} lines.")
    return await terminal.ask(ask)


async def main() -> None:
    agent = bridle.Agent(permission_mode="plan", on_question=terminal.ask, on_plan=approve)
    outcome = await agent.run(
        "Plan a birthday poem for a horse. Ask me which form it should have, then show your plan, "
        "then recite the poem."
    )
    print(outcome.raise_for_reason().text)


if __name__ == "__main__":
    asyncio.run(main())
