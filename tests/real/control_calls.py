"""One call of each typed operation, in the order of the table, for a session on a real CLI."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from bridle import Session, ToolServer, Turn, tool

SERVER = Path(__file__).parents[1] / "support" / "mcp_stub.py"
"""An external MCP server with the tool `echo` and the resource `ui://stub/page`."""

EXTERNAL = {"command": sys.executable, "args": [str(SERVER)]}


@tool
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


class Stage(NamedTuple):
    """What the calls work on: the session, a finished turn, and a background command."""

    session: Session
    turn: Turn
    task_id: str
    work: Path


Operation = Callable[[Stage], Awaitable[object]]

CALLS: dict[str, Operation] = {
    "interrupt": lambda at: at.session.interrupt(),
    "set_model": lambda at: at.session.set_model("haiku"),
    "set_permission_mode": lambda at: at.session.set_permission_mode("acceptEdits"),
    "mcp.status": lambda at: at.session.mcp.status(),
    "mcp.reconnect": lambda at: at.session.mcp.reconnect("stub"),
    "mcp.toggle": lambda at: at.session.mcp.toggle("stub", True),
    "mcp.set_servers": lambda at: at.session.mcp.set_servers({"calc": ToolServer([add])}),
    "mcp.call": lambda at: at.session.mcp.call("mcp__stub__echo", {"text": "hi"}),
    "mcp.notify": lambda at: at.session.mcp.notify("calc", "notifications/tools/list_changed"),
    "mcp.read_resource": lambda at: at.session.mcp.read_resource("stub", "ui://stub/page"),
    "tasks.output": lambda at: at.session.tasks.output(at.task_id),
    "tasks.background": lambda at: at.session.tasks.background(),
    "tasks.stop": lambda at: at.session.tasks.stop(at.task_id),
    "context.usage": lambda at: at.session.context.usage("summary"),
    "models.list": lambda at: at.session.models.list(),
    "models.set_max_thinking_tokens": lambda at: at.session.models.set_max_thinking_tokens(None),
    "settings.get": lambda at: at.session.settings.get(),
    "settings.apply": lambda at: at.session.settings.apply({"cleanupPeriodDays": 30}),
    "settings.update": lambda at: at.session.settings.update(
        "localSettings", {"outputStyle": "Explanatory"}
    ),
    "settings.permission_rules": lambda at: at.session.settings.permission_rules(),
    "settings.hooks": lambda at: at.session.settings.hooks(),
    "settings.reload_output_styles": lambda at: at.session.settings.reload_output_styles(),
    "files.read": lambda at: at.session.files.read("notes.txt"),
    "files.suggest": lambda at: at.session.files.suggest("not"),
    "files.mark_read": lambda at: at.session.files.mark_read(
        str(at.work / "notes.txt"), (at.work / "notes.txt").stat().st_mtime * 1000
    ),
    "files.add_directory": lambda at: at.session.files.add_directory(str(at.work / "sub")),
    "files.rewind": lambda at: at.session.files.rewind(at.turn.uuid, dry_run=True),
    "files.diff": lambda at: at.session.files.diff(),
    "plugins.reload": lambda at: at.session.plugins.reload(),
    "plugins.reload_skills": lambda at: at.session.plugins.reload_skills(),
    "conversation.cancel_prompt": lambda at: at.session.conversation.cancel_prompt(at.turn.uuid),
    "conversation.rename": lambda at: at.session.conversation.rename("A title"),
    "conversation.generate_title": lambda at: at.session.conversation.generate_title(
        "Mend the parser", persist=False
    ),
    "conversation.ask_aside": lambda at: at.session.conversation.ask_aside("What was done?"),
    "conversation.export": lambda at: at.session.conversation.export(),
    "conversation.plan": lambda at: at.session.conversation.plan(),
    "info.status": lambda at: at.session.info.status(),
    "info.version": lambda at: at.session.info.version(),
    "info.cost": lambda at: at.session.info.cost(),
    "info.usage": lambda at: at.session.info.usage(skip_behaviors=True),
    "info.set_has_subscribers": lambda at: at.session.info.set_has_subscribers(
        has_subscribers=True
    ),
    "conversation.end": lambda at: at.session.conversation.end("done"),
}
"""The calls by method. The last one ends the CLI."""
