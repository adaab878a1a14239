"""Tools in your process: functions that the model calls and that can use your objects.

The schema for the model is made from the annotations and the docstring. Bridle checks the
arguments against it before it calls the function. A plain `def` runs in a thread, an `async def`
on the event loop.

$ python examples/in_process_tools.py
"""

import asyncio
from typing import Literal

import bridle

Article = Literal["bridle", "saddle", "stirrup"]

PRICES: dict[Article, float] = {"bridle": 49.0, "saddle": 310.0, "stirrup": 22.5}
STOCK: dict[Article, int] = {"bridle": 4, "saddle": 0, "stirrup": 12}


@bridle.tool(read_only=True)  # the CLI may run several of these at once
def price(article: Article) -> float:
    """The price of one article, in euros."""
    return PRICES[article]


@bridle.tool(timeout=10.0)
async def order(article: Article, context: bridle.ToolContext, count: int = 1) -> dict[str, object]:
    """Order an article.

    Args:
        article: what to order.
        count: how many of it.
    """
    if STOCK[article] < count:
        # The model reads this text. For any other exception it reads one line without details.
        raise bridle.ToolFailure(f"Only {STOCK[article]} left. Offer something else.")
    STOCK[article] -= count
    print(f"{context.server}: {count} x {article}, call {context.tool_use_id}")
    return {"article": article, "count": count, "total": PRICES[article] * count}


async def main() -> None:
    agent = bridle.Agent(tools=[price, order])
    prompt = "What does a saddle cost? Order one, or two bridles if there is none left."
    outcome = await agent.run(prompt)
    print(outcome.raise_for_reason().text)


if __name__ == "__main__":
    asyncio.run(main())
