"""Permissions: your code decides which tools may run.

The CLI sends a permission request for a call that its rules and the user's settings do not allow.
If the callback raises an exception or returns an invalid value, Bridle denies the call.

$ python examples/permission_policy.py
"""

import asyncio
import tempfile
from datetime import date
from pathlib import Path

import bridle

TARGETS = {"make test", "make lint"}  # compare whole commands, so `make test; rm -rf ~` is denied
HEADER = "# Written by an agent: review before use.\n"


@bridle.tool
def today() -> str:
    """Today's date."""
    return date.today().isoformat()


class Policy:
    """The permissions of an agent that works on Python code in one directory."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace.resolve()

    def __call__(self, ask: bridle.CanUseToolContext) -> bridle.PermissionResult:
        decision = self.decide(ask)
        print(f"{ask.tool_name}: {type(decision).__name__}")
        return decision

    def decide(self, ask: bridle.CanUseToolContext) -> bridle.PermissionResult:
        match ask.tool_name, ask.tool_input:
            case "mcp__calendar__today", _:
                return bridle.AllowAll()  # this tool, for the rest of the session
            case "Bash", {"command": str(command)} if command in TARGETS:
                return bridle.Allow()
            case "Write", {"file_path": str(path), "content": str(content)} if self.is_code(path):
                return bridle.Edit({**ask.tool_input, "content": HEADER + content})
            case _:
                return bridle.Deny("Only Python files of this project, and its make targets.")

    def is_code(self, path: str) -> bool:
        file = (self.workspace / path).resolve()
        return file.suffix == ".py" and file.is_relative_to(self.workspace)


async def main() -> None:
    with tempfile.TemporaryDirectory() as workspace:
        agent = bridle.Agent(
            cwd=workspace,
            on_can_use_tool=Policy(Path(workspace)),
            mcp_servers={"calendar": bridle.ToolServer([today])},
        )
        prompt = (
            "Write today.py, which prints today's date as the calendar knows it, and notes.txt "
            "about it. Then run `make test`. Say what worked and what did not."
        )
        outcome = await agent.run(prompt)
        print(outcome.raise_for_reason().text)
        for path in sorted(Path(workspace).iterdir()):
            print(f"--- {path.name}\n{path.read_text('utf-8')}")


if __name__ == "__main__":
    asyncio.run(main())
