"""Hear of a rate limit that comes near."""

# model: [Reply(blocks=(text("Yes."),), headers=rate_limit_headers("allowed_warning",
#   utilization=0.9, threshold=0.8))]
# model options: login="oauth"

import anyio
from claude_agent_sdk import RateLimitEvent, query


async def main():
    async for message in query(prompt="Hi"):
        if isinstance(message, RateLimitEvent):
            info = message.rate_limit_info
            print(info.status, info.rate_limit_type, info.utilization, info.resets_at)


anyio.run(main)
