"""Send one prompt and get one outcome.

$ python examples/quickstart.py
"""

import asyncio

import bridle


async def main() -> None:
    agent = bridle.Agent(model="sonnet")
    outcome = await agent.run("What is 2 + 2? Answer with the number alone.")
    outcome.raise_for_reason()  # raises a typed error if the turn failed
    print(outcome.text)
    print(f"{outcome.reason} in {outcome.duration:.1f} s for ${outcome.cost_usd or 0:.4f}")


if __name__ == "__main__":
    asyncio.run(main())
