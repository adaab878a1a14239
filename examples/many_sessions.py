"""Run many prompts, a few at a time, and print a table of the outcomes.

Every run starts a CLI process, so limit how many run at once. The outcomes come in the order in
which the runs end. A failed turn is reported in its outcome and does not affect the others.

$ python examples/many_sessions.py
"""

import asyncio

import bridle

PROMPTS = [f"Name a river in {country}. One word." for country in ("France", "Peru", "India")]


async def main() -> None:
    agent = bridle.Agent(model="haiku")
    outcomes = {prompt: outcome async for prompt, outcome in agent.run_many(PROMPTS, at_once=2)}
    for prompt in PROMPTS:
        outcome = outcomes[prompt]
        said = outcome.text if outcome.ok else outcome.detail
        print(f"{prompt:34} {outcome.reason:12} {outcome.duration:5.1f} s  {said}")
    print(f"${sum(outcome.cost_usd or 0 for outcome in outcomes.values()):.4f} in all")


if __name__ == "__main__":
    asyncio.run(main())
