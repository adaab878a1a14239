"""Print cost and usage from the result."""

# model: [[text("Four.")]]

import anyio
from claude_agent_sdk import ResultMessage, query


async def main():
    async for message in query(prompt="What is 2 + 2?"):
        if isinstance(message, ResultMessage):
            print(f"${message.total_cost_usd:.6f}", message.usage["output_tokens"])
            print(sorted(message.model_usage), message.stop_reason, message.terminal_reason)
            print(message.result, message.errors, message.permission_denials)
            assert message.duration_ms >= 0


anyio.run(main)
