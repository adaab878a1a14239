"""`query`: send prompts and iterate over the messages."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from bridle.compat.claude_agent_sdk._connection import Connection
from bridle.compat.claude_agent_sdk._loops.bridge import current_bridge
from bridle.compat.claude_agent_sdk._transport import Transport
from bridle.compat.claude_agent_sdk._types.agent_options import ClaudeAgentOptions
from bridle.compat.claude_agent_sdk._types.message_types import Message


async def query(
    *,
    prompt: str | AsyncIterable[dict[str, Any]],
    options: ClaudeAgentOptions | None = None,
    transport: Transport | None = None,
) -> AsyncIterator[Message]:
    """Send a prompt, or the prompts of an iterable, and yield the messages until the CLI ends.

    Args:
        prompt: text, or an iterable of user messages.
        options: the options.
        transport: a replacement for the CLI process. Options that are flags of the CLI then have
            no effect.

    Raises:
        ClaudeSDKError: the CLI did not start, or failed. After a result that is an error, this is
            a `ResultError`.
    """
    connection = Connection(options or ClaudeAgentOptions(), transport, current_bridge())
    connection.start_query(prompt)
    pending, checkpoint = connection.pending, connection.checkpoint
    try:
        while await connection.more():
            while pending:
                if checkpoint is not None:
                    await checkpoint()
                yield pending.popleft()
    finally:
        await connection.close()
