"""Options that the CLI rejects, and odd ones that it accepts."""

# model: [[text("Yes.")]] * 4

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKError, ProcessError, query


async def main():
    for options in (
        {"max_budget_usd": 0},
        {"settings": "/no/such/settings.json"},
        {"mcp_servers": "/no/such/servers.json"},
        {"system_prompt": {"type": "file", "path": "/no/such/prompt"}},
        {"resume_session_at": "x"},
        {"session_id": "abc"},
        {"max_turns": -1},
        {"extra_args": {"fork-session": None}},
        {"extra_args": {"permission-prompt-tool": "stdio"}},
    ):
        count = 0
        try:
            async for _ in query(prompt="Hi", options=ClaudeAgentOptions(**options)):
                count += 1
            print(options, count)
        except ClaudeSDKError as problem:
            print(options, count, isinstance(problem, ProcessError))


anyio.run(main)
