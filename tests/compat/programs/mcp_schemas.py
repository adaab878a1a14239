"""The ways to describe the input of a tool."""

# model: [[tool_use("mcp__shop__order", items=["hay"], count=2, customer={"name": "Ada"})],
#   [tool_use("mcp__shop__search", query="hay")], [text("Done.")]]

from typing import Annotated, NotRequired, TypedDict

import anyio
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, query, tool


class Customer(TypedDict):
    name: str
    city: NotRequired[str]


class Order(TypedDict):
    items: list[str]
    count: Annotated[int, "How many of each"]
    customer: Customer
    note: NotRequired[str | None]


@tool("order", "Order goods", Order)
async def order(args):
    print("order", args)
    return {"content": [{"type": "text", "text": "Ordered."}]}


@tool(
    "search",
    "Search the shop",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "default": 10},
        },
        "required": ["query"],
    },
)
async def search(args):
    print("search", args)
    return {"content": [{"type": "text", "text": "Found."}]}


@tool("mixed", "Simple types", {"name": str, "price": float, "tags": list, "new": bool, "x": dict})
async def mixed(args):
    return {"content": []}


async def main():
    shop = create_sdk_mcp_server("shop", tools=[order, search, mixed])
    options = ClaudeAgentOptions(mcp_servers={"shop": shop}, allowed_tools=["mcp__shop"])
    async for _ in query(prompt="Order hay.", options=options):
        pass


anyio.run(main)
