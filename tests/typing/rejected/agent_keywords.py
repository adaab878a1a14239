"""Mistakes that type checkers find. Each comment names the rules of mypy and pyright."""

from __future__ import annotations

import bridle
from bridle import sync


class Db:
    def rows(self) -> int:
        return 3


def guard(ctx: bridle.PreToolUseContext) -> bridle.Block | None:
    return bridle.Block("no") if ctx.tool_name == "Bash" else None


def number(ctx: bridle.CanUseToolContext) -> int:
    return len(ctx.tool_name)


async def mistakes(db: Db) -> None:
    agent = bridle.Agent(model="sonnet", tools=["Read", guard], on_pre_tool_use=guard, deps_type=Db)
    bridle.Agent(modle="sonnet")  # mypy: call-arg; pyright: reportCallIssue
    bridle.Agent(model=3)  # mypy: arg-type; pyright: reportArgumentType
    bridle.Agent(session_id="x")  # mypy: call-arg; pyright: reportCallIssue
    bridle.Agent(on_can_use_tool=number)  # mypy: arg-type; pyright: reportArgumentType
    bridle.Agent(on_pre_tool_use="guard")  # mypy: arg-type; pyright: reportArgumentType
    await agent.run("x", deps=db)
    await agent.run("x", deps="db")  # mypy: call-overload; pyright: reportArgumentType
    await agent.run("x", modle=1)  # mypy: call-overload; pyright: reportCallIssue
    await agent.session(deps=3)  # mypy: arg-type; pyright: reportArgumentType
    agent.query("x", deps=3)  # mypy: arg-type; pyright: reportArgumentType
    agent.sync.session(deps=3)  # mypy: arg-type; pyright: reportArgumentType
    agent.replace(deps=3)  # mypy: arg-type; pyright: reportArgumentType
    agent.replace(output_retries="1")  # mypy: arg-type; pyright: reportArgumentType
    agent.replace(deps=None, output_type=Db, output_retries=0).replace(output_type=None)
    await agent.run("x", deps=None, output_type=None)
    agent.replace(limits=None, model=None, strict_mcp_config=None)
    await agent.session(fork_session=None)
    bridle.Agent(limits=None)  # mypy: arg-type; pyright: reportArgumentType
    agent.replace(modle="x")  # mypy: call-arg; pyright: reportCallIssue
    agent.run_many(["x"], session_id="x")  # mypy: call-overload; pyright: reportArgumentType
    await bridle.run("x", modle="sonnet")  # mypy: call-overload; pyright: reportCallIssue
    bridle.query("x", modle="sonnet")  # mypy: call-arg; pyright: reportCallIssue
    await bridle.start_session(modle="sonnet")  # mypy: call-arg; pyright: reportCallIssue
    bridle.Session(modle="sonnet")  # mypy: call-arg; pyright: reportCallIssue
    sync.run("x", max_turns="3")  # mypy: call-overload; pyright: reportArgumentType
    sync.query("x", modle="sonnet")  # mypy: call-arg; pyright: reportCallIssue
    sync.start_session(modle="sonnet")  # mypy: call-arg; pyright: reportCallIssue
    sync.Session(modle="sonnet")  # mypy: call-arg; pyright: reportCallIssue
    await bridle.run("x", model="sonnet", session_id="x", on_can_use_tool=lambda _: bridle.Allow())
