"""Bridle, by its session and by `query`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import bridle
from bench.jobs import Job, main
from bridle import (
    AssistantMessage,
    BidirOptions,
    CliOptions,
    ResultMessage,
    SdkOptions,
    StreamEvent,
    TextBlock,
)
from bridle.messages import ContentBlockDelta, TextDelta


async def _hook(context: bridle.PreToolUseContext) -> bridle.Continue:
    return bridle.Continue()


async def _permission(context: bridle.CanUseToolContext) -> bridle.Allow:
    assert context.permission_suggestions
    return bridle.Allow()


@bridle.tool
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


_WANTS = {
    "hook": BidirOptions(on_pre_tool_use=_hook),
    "permission": BidirOptions(on_can_use_tool=_permission),
    "permission to write 4 kB": BidirOptions(on_can_use_tool=_permission),
    "MCP tool call": BidirOptions(mcp_servers={"bench": bridle.ToolServer([add])}),
}


class Driver:
    """See `bench.jobs.Driver`."""

    _session: bridle.Session
    _messages: AsyncIterator[bridle.Message]

    async def open(self, job: Job, cli: str) -> None:
        self._door = job.get("door", "messages")
        self._options = CliOptions(
            cli_path=cli,
            env=job.get("env"),
            cwd=job.get("cwd"),
            include_partial_messages=job.get("partial", False),
        )
        if self._door == "query":
            return
        sdk = SdkOptions(max_unread_bytes=job.get("max_unread_bytes", 64 << 20))
        bidir = _WANTS.get(job.get("wants", ""))
        self._session = await bridle.start_session(self._options, sdk, bidir)
        if self._door == "messages" and job.get("reads", True):
            self._messages = self._session.messages()

    async def ask(self, prompt: str = "go") -> None:
        if self._door == "query":
            self._messages = aiter(bridle.query(prompt, self._options))
            await anext(self._messages)
            return
        turn = await self._session.send_user_message(prompt)
        if self._door == "turn":
            self._messages = aiter(turn)

    async def first(self) -> None:
        await anext(self._messages)

    async def read(self) -> int:
        count = size = 0
        is_done = False
        async for message in self._messages:
            count += 1
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, TextBlock):
                        size += len(block.text)
            elif isinstance(message, StreamEvent):
                event = message.event
                if isinstance(event, ContentBlockDelta) and isinstance(event.delta, TextDelta):
                    size += len(event.delta.text)
            elif isinstance(message, ResultMessage):
                assert size
                assert message.usage is not None
                is_done = True
                if self._door == "messages":
                    break
        if not is_done:
            raise EOFError("no result came")
        return count

    async def outcome(self) -> None:
        turn = await self._session.send_user_message("go")
        assert (await turn).ok

    async def operate(self) -> None:
        await self._session.set_model("sonnet")

    async def close(self) -> None:
        if self._door != "query":
            await self._session.aclose()

    async def drop(self) -> None:
        await self._session.stop()


if __name__ == "__main__":
    main(Driver)
