"""Options that the SDK refuses before it starts anything."""

import anyio
from claude_agent_sdk import ClaudeAgentOptions, CLIConnectionError, query


async def main():
    for options in (
        {"plugins": [{"type": "remote", "path": "x"}]},
        {"sandbox": {"enabled": True}, "settings": "/no/such/settings.json"},
        {"sandbox": {"enabled": True}, "settings": "{broken}"},
    ):
        try:
            async for _ in query(prompt="Hi", options=ClaudeAgentOptions(**options)):
                pass
        except (ValueError, CLIConnectionError) as problem:
            print(isinstance(problem, ValueError), isinstance(problem, CLIConnectionError))


anyio.run(main)
