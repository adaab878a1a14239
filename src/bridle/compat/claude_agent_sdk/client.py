"""`ClaudeSDKClient`: a conversation that the program steers."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from types import TracebackType
from typing import Any, cast

from bridle._spi import InnerSession
from bridle.compat.claude_agent_sdk._connection import Connection
from bridle.compat.claude_agent_sdk._errors import CLIConnectionError
from bridle.compat.claude_agent_sdk._loops.bridge import current_bridge
from bridle.compat.claude_agent_sdk._transport import Transport
from bridle.compat.claude_agent_sdk._types.agent_options import ClaudeAgentOptions
from bridle.compat.claude_agent_sdk._types.config_types import PermissionMode
from bridle.compat.claude_agent_sdk._types.control_types import (
    ContextUsageResponse,
    McpStatusResponse,
)
from bridle.compat.claude_agent_sdk._types.message_types import Message, ResultMessage

__all__ = ["ClaudeSDKClient"]


class ClaudeSDKClient:
    """A conversation with its own CLI: ``async with ClaudeSDKClient() as client``.

    Every method except `connect` and `disconnect` raises `CLIConnectionError` before `connect`.
    """

    def __init__(
        self, options: ClaudeAgentOptions | None = None, transport: Transport | None = None
    ) -> None:
        self.options = ClaudeAgentOptions() if options is None else options
        self._transport = transport
        self._connection: Connection | None = None

    async def connect(self, prompt: str | AsyncIterable[dict[str, Any]] | None = None) -> None:
        """Start the CLI, and send the prompt if there is one.

        Prompts of an iterable are sent as it yields them. When they are answered, the CLI ends. If
        the client is connected already, it is disconnected first.
        """
        await self.disconnect()
        connection = Connection(self.options, self._transport, current_bridge())
        await connection.start_client(prompt)
        self._connection = connection

    async def query(
        self, prompt: str | AsyncIterable[dict[str, Any]], session_id: str = "default"
    ) -> None:
        """Send a prompt, or every prompt of an iterable."""
        await self._connected.send(prompt, session_id)

    async def receive_messages(self) -> AsyncIterator[Message]:
        """Yield the messages until the CLI ends."""
        connection = self._connected
        pending, checkpoint = connection.pending, connection.checkpoint
        while pending or await connection.more():
            while pending:
                if checkpoint is not None:
                    await checkpoint()
                yield pending.popleft()

    async def receive_response(self) -> AsyncIterator[Message]:
        """Yield the messages up to the next `ResultMessage`, which is the last one."""
        connection = self._connected
        pending, checkpoint = connection.pending, connection.checkpoint
        while pending or await connection.more():
            while pending:
                if checkpoint is not None:
                    await checkpoint()
                message = pending.popleft()
                yield message
                if type(message) is ResultMessage:
                    return

    # -- control requests --------------------------------------------------------------------------

    async def interrupt(self) -> None:
        """Interrupt the running turn."""
        await self._control("interrupt")

    async def set_permission_mode(self, mode: PermissionMode) -> None:
        """Change when the CLI asks for permission."""
        await self._control("set_permission_mode", mode=mode)

    async def set_model(self, model: str | None = None) -> None:
        """Use another model. None means the default model."""
        await self._control("set_model", model=model)

    async def rewind_files(self, user_message_id: str) -> None:
        """Restore files to their state when the prompt with this id was sent."""
        await self._control("rewind_files", user_message_id=user_message_id)

    async def reconnect_mcp_server(self, server_name: str) -> None:
        """Connect to an MCP server again."""
        await self._control("mcp_reconnect", serverName=server_name)

    async def toggle_mcp_server(self, server_name: str, enabled: bool) -> None:  # noqa: FBT001
        """Switch an MCP server on or off."""
        await self._control("mcp_toggle", serverName=server_name, enabled=enabled)

    async def stop_task(self, task_id: str) -> None:
        """Stop a task."""
        await self._control("stop_task", task_id=task_id)

    async def get_mcp_status(self) -> McpStatusResponse:
        """Return the state of the MCP servers."""
        return cast("McpStatusResponse", await self._control("mcp_status"))

    async def get_context_usage(self) -> ContextUsageResponse:
        """Return what fills the context window."""
        return cast("ContextUsageResponse", await self._control("get_context_usage"))

    async def get_server_info(self) -> dict[str, Any] | None:
        """Return what the CLI said about itself when it was started."""
        info = self._session.server_info
        return None if info is None else dict(info)

    async def _control(self, subtype: str, **fields: Any) -> dict[str, Any]:
        session = self._session
        reply: Mapping[str, Any] | None = await self._connected.request(
            lambda: session.control(subtype, **fields)
        )
        return dict(reply or {})

    # -- the end -----------------------------------------------------------------------------------

    async def disconnect(self) -> None:
        """End the CLI. The client can be connected again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> ClaudeSDKClient:
        await self.connect()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool:
        await self.disconnect()
        return False

    @property
    def _connected(self) -> Connection:
        if self._connection is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return self._connection

    @property
    def _session(self) -> InnerSession:
        session = self._connected.session
        assert session is not None, "a client has a session"
        return session
