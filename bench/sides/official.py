"""The official SDK, by its client and by `query`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import claude_agent_sdk as official
from claude_agent_sdk import AssistantMessage, ResultMessage, StreamEvent, TextBlock

from bench.jobs import Job, main


async def _hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
    return {}


async def _permission(
    name: str, given: dict[str, Any], context: official.ToolPermissionContext
) -> official.PermissionResultAllow:
    assert context.suggestions
    return official.PermissionResultAllow()


@official.tool("add", "Add two numbers.", {"a": float, "b": float})
async def add(arguments: dict[str, Any]) -> dict[str, Any]:
    """Add two numbers."""
    return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}


_WANTS: dict[str, dict[str, Any]] = {
    "hook": {"hooks": {"PreToolUse": [official.HookMatcher(hooks=[_hook])]}},
    "permission": {"can_use_tool": _permission},
    "permission to write 4 kB": {"can_use_tool": _permission},
    "MCP tool call": {
        "mcp_servers": {"bench": official.create_sdk_mcp_server("bench", tools=[add])}
    },
}


class Driver:
    """See `bench.jobs.Driver`."""

    _client: official.ClaudeSDKClient
    _messages: AsyncIterator[official.Message]

    async def open(self, job: Job, cli: str) -> None:
        self._is_query = job.get("door") == "query"
        self._options = official.ClaudeAgentOptions(
            cli_path=cli,
            env=job.get("env") or {},
            cwd=job.get("cwd"),
            include_partial_messages=job.get("partial", False),
            max_buffer_size=job.get("max_buffer_size"),
            **_WANTS.get(job.get("wants", ""), {}),
        )
        if not self._is_query:
            self._client = official.ClaudeSDKClient(self._options)
            await self._client.connect()

    async def ask(self, prompt: str = "go") -> None:
        if self._is_query:
            self._messages = official.query(prompt=prompt, options=self._options)
            await anext(self._messages)
        else:
            await self._client.query(prompt)
            self._messages = self._client.receive_response()

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
                if event["type"] == "content_block_delta" and (
                    event["delta"]["type"] == "text_delta"
                ):
                    size += len(event["delta"]["text"])
            elif isinstance(message, ResultMessage):
                assert size
                assert message.usage is not None
                is_done = True
        if not is_done:
            raise EOFError("no result came")
        return count

    async def outcome(self) -> None:
        await self._client.query("go")
        async for message in self._client.receive_response():
            if isinstance(message, ResultMessage):
                assert not message.is_error

    async def operate(self) -> None:
        await self._client.set_model("sonnet")

    async def close(self) -> None:
        if not self._is_query:
            await self._client.disconnect()

    async def drop(self) -> None:
        await self._client.disconnect()


if __name__ == "__main__":
    main(Driver)
