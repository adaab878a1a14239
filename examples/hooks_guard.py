"""Hooks: a guard that stops dangerous commands before they run, and a log of what did run.

The guard is asked before every Bash command. Hooks fail open, so that a bug in one does not stop
the work; a guard had better fail closed, which is what `on_error="block"` says.
A list of bad words is a seat belt, not a wall: for a wall, use `CliOptions(sandbox=...)`.

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
    # Bash may run unasked, so the guard is all that stands in its way.
    cli = bridle.CliOptions(allowed_tools=["Bash"])
    bidir = bridle.BidirOptions(
        hooks={
            "PreToolUse": [bridle.Hook(guard, matcher="Bash", on_error="block")],
            "PostToolUse": [bridle.Hook(audit)],
        }
    )
    prompt = "With Bash: first run `echo hello`, then try `rm -rf ./build`. Say what happened."
    outcome = await bridle.run(prompt, cli=cli, bidir=bidir)
    print(outcome.raise_for_reason().text)


if __name__ == "__main__":
    asyncio.run(main())
