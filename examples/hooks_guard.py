"""Hooks: block dangerous commands before they run, and log the commands that ran.

The guard runs before every Bash command. By default, a hook that raises an exception lets the work
continue. `on_error="block"` makes the guard block instead.
A list of forbidden words can be bypassed. For real isolation, use `sandbox=...`.

$ python examples/hooks_guard.py
"""

import asyncio
import re

import bridle

DANGEROUS = re.compile(r"\brm\s+-\w*[rf]|\bsudo\b|\bgit\s+push\b|\bcurl\b.*\|\s*(ba)?sh\b")


def guard(context: bridle.PreToolUseContext) -> bridle.HookResult:
    command = context.tool_input["command"]
    if DANGEROUS.search(command):
        print(f"blocked: {command}")
        return bridle.Block("This command is not allowed here. Do not look for a way around it.")
    return bridle.Continue()


def audit(context: bridle.PostToolUseContext) -> None:
    print(f"ran: {context.tool_name} {context.tool_input} in {context.duration_ms or 0:.0f} ms")


async def main() -> None:
    # Bash runs without a permission request here, so only the guard can block it.
    agent = bridle.Agent(
        allowed_tools=["Bash"],
        hooks={
            "PreToolUse": [bridle.Hook(guard, matcher="Bash", on_error="block")],
            "PostToolUse": [bridle.Hook(audit)],
        },
    )
    prompt = "With Bash: first run `echo hello`, then try `rm -rf ./build`. Say what happened."
    outcome = await agent.run(prompt)
    print(outcome.raise_for_reason().text)


if __name__ == "__main__":
    asyncio.run(main())
