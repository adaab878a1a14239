"""Run many prompts, a few at a time, and print a table of the outcomes.

Every `run` starts a CLI process, so limit how many run at once. A failed turn is reported in its
outcome and raises nothing, so it does not affect the others.

$ python examples/many_sessions.py
"""

import asyncio

import bridle

PROMPTS = [f"Name a river in {country}. One word." for country in ("France", "Peru", "India")]
AT_ONCE = 2


async def run_all(prompts: list[str], at_once: int) -> list[bridle.Outcome]:
    """Return the outcomes in the order of the prompts."""
    free = asyncio.Semaphore(at_once)

    async def run_one(prompt: str) -> bridle.Outcome:
        async with free:
            return await bridle.run(prompt)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_one(prompt)) for prompt in prompts]
    return [task.result() for task in tasks]


async def main() -> None:
    outcomes = await run_all(PROMPTS, AT_ONCE)
    for prompt, outcome in zip(PROMPTS, outcomes, strict=True):
        said = outcome.text if outcome.ok else outcome.detail
        print(f"{prompt:34} {outcome.reason:12} {outcome.duration:5.1f} s  {said}")
    print(f"${sum(outcome.cost_usd or 0 for outcome in outcomes):.4f} in all")


if __name__ == "__main__":
    asyncio.run(main())
