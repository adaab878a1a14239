"""Spend more than the budget."""

# model: [Reply(blocks=(tool_use("Read", file_path="notes.txt"),), usage={"output_tokens": 90000})]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultError, ResultMessage, query


async def main():
    options = ClaudeAgentOptions(max_budget_usd=0.01, allowed_tools=["Read"])
    try:
        async for message in query(prompt="Read it.", options=options):
            if isinstance(message, ResultMessage):
                print(message.subtype, message.is_error, message.total_cost_usd > 0.01)
    except ResultError as problem:
        print(problem.subtype, problem.errors, problem.exit_code)


anyio.run(main)
