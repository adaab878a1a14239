"""Bridle, by its session."""

from __future__ import annotations

import bridle
from bench.jobs import Job, main
from bridle import (
    AssistantMessage,
    BidirOptions,
    CliOptions,
    ResultMessage,
    SdkOptions,
    StreamEvent,
)


async def _hook(context: bridle.PreToolUseContext) -> bridle.Continue:
    return bridle.Continue()


async def _permission(context: bridle.CanUseToolContext) -> bridle.Allow:
    return bridle.Allow()


@bridle.tool
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


_WANTS = {
    "hook": BidirOptions(on_pre_tool_use=_hook),
    "permission": BidirOptions(on_can_use_tool=_permission),
    "MCP tool call": BidirOptions(mcp_servers={"bench": bridle.ToolServer([add])}),
}


class Driver:
    """See `bench.jobs.Driver`."""

    _session: bridle.Session
    _messages: bridle.Subscription[bridle.Message]

    async def open(self, job: Job, cli: str) -> None:
        options = CliOptions(
            cli_path=cli,
            env=job.get("env"),
            cwd=job.get("cwd"),
            include_partial_messages=job.get("partial", False),
        )
        sdk = SdkOptions(max_unread_bytes=job.get("max_unread_bytes", 64 << 20))
        bidir = _WANTS.get(job.get("wants", ""))
        self._session = await bridle.start_session(options, sdk, bidir)
        if job.get("reads", True):
            self._messages = self._session.messages()

    async def ask(self, prompt: str = "go") -> None:
        _ = await self._session.send_user_message(prompt)

    async def first(self) -> None:
        await anext(self._messages)

    async def read(self) -> int:
        count = size = 0
        async for message in self._messages:
            count += 1
            if isinstance(message, AssistantMessage):
                size += len(message.text)
            elif isinstance(message, StreamEvent):
                size += len(message.text_delta or "")
            elif isinstance(message, ResultMessage):
                assert size
                assert message.usage is not None
                return count
        raise EOFError("no result came")

    async def outcome(self) -> None:
        turn = await self._session.send_user_message("go")
        assert (await turn).ok

    async def operate(self) -> None:
        await self._session.set_model("sonnet")

    async def close(self) -> None:
        await self._session.aclose()

    async def drop(self) -> None:
        await self._session.stop()


if __name__ == "__main__":
    main(Driver)
