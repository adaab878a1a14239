"""The CLI ends with an error before it has said anything."""

import os
from pathlib import Path

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKError,
    CLIConnectionError,
    ProcessError,
    query,
)


async def main():
    script = Path("claude").resolve()
    script.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    os.chmod(script, 0o755)
    options = ClaudeAgentOptions(cli_path=script, stderr=lambda line: print("stderr:", line))
    try:
        async for _ in query(prompt="Hi", options=options):
            pass
    except ClaudeSDKError as problem:
        # The CLI may end before or after the SDK has written to it.
        print(isinstance(problem, ProcessError | CLIConnectionError))


anyio.run(main)
