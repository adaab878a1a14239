"""The MCP servers that a session has in its process or added at run time.

The CLI takes such servers only as a whole: a request replaces all of them, also those of the
handshake. So this module keeps their list, and changes are made one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from bridle._core.operations import MCP_SET_SERVERS
from bridle._fields import callback, close_to, is_mapping, line
from bridle._option_checks import mcp_config, mcp_servers
from bridle._shell.mcp_adapter import McpConversation, Notify, protocol_server
from bridle.controls import McpServerChanges
from bridle.errors import ControlRejected, OptionsError
from bridle.tools import Tool, ToolServer

Config = Mapping[str, object]
"""What the CLI is told about a server."""


class _Server(NamedTuple):
    #: Handles the messages for an in-process server. None for an external server.
    handler: object | None
    config: Config
    conversation: McpConversation | None = None


class Servers:
    """The in-process servers of a session, and the external servers added at run time.

    ``forward`` sends a notification of the server with a name to the CLI.
    """

    def __init__(
        self, given: Mapping[str, object], forward: Callable[[str, Mapping[str, object]], None]
    ) -> None:
        self._forward = forward
        self._changing = asyncio.Lock()
        #: Called at the end of the session, to end the conversations with server objects.
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._servers = {name: self._prepare(name, server) for name, server in given.items()}

    @property
    def handlers(self) -> dict[str, object]:
        """The functions that handle raw messages, by the name of their server."""
        servers = self._servers.items()
        return {
            name: one.handler for name, one in servers if not isinstance(one.handler, ToolServer)
        }

    @property
    def tool_servers(self) -> dict[str, ToolServer]:
        """The tool servers by name."""
        servers = self._servers.items()
        return {name: one.handler for name, one in servers if isinstance(one.handler, ToolServer)}

    async def change(
        self,
        changes: Mapping[str, object],
        *,
        replace: bool,
        send: Callable[[Mapping[str, Config]], Awaitable[McpServerChanges]],
        register: Callable[[str, object | None], None],
    ) -> McpServerChanges:
        """Add servers, and remove those whose new value is None.

        Args:
            changes: the servers by name.
            replace: also remove all servers that are not in ``changes``, and keep those that are.
            send: sends the configuration of all servers to the CLI.
            register: passes messages for the server with a name to its handler from now on, or to
                nothing if the handler is None.

        Raises:
            OptionsError: a name or a server is invalid. Nothing was sent.
            ControlRejected: without ``replace``, the CLI could not connect to a new server.
        """
        async with self._changing:
            added, removed = self._plan(changes, replace=replace)
            # Messages for a new server may come before the response.
            for name, server in added.items():
                if server.handler is not None:
                    register(name, server.handler)
            kept = {name: one for name, one in self._servers.items() if name not in removed}
            wanted = kept | added
            try:
                reply = await send({name: one.config for name, one in wanted.items()})
                for name, problem in reply.errors.items():
                    if name in added and not replace:
                        raise ControlRejected(MCP_SET_SERVERS.subtype, None, f"{name}: {problem}")
            except BaseException:
                for name in added:
                    register(name, None)
                raise
            ended = [self._servers[name] for name in removed]
            self._servers = wanted
            for name in removed:
                register(name, None)
            for server in ended:
                if server.conversation is not None:
                    await server.conversation.close()
                    self.closers.remove(server.conversation.close)
            return reply

    def _plan(
        self, changes: Mapping[str, object], *, replace: bool
    ) -> tuple[dict[str, _Server], list[str]]:
        """Return the servers to add, and the names of those to remove."""
        names = {line("name", name): server for name, server in changes.items()}
        if replace:
            removed = [name for name in self._servers if name not in names]
            names = {name: one for name, one in names.items() if name not in self._servers}
        else:
            removed = [name for name, server in names.items() if server is None]
            names = {name: server for name, server in names.items() if server is not None}
        for name in removed:
            if name not in self._servers:
                fix = close_to(name, self._servers) or "session.mcp.toggle() can disable it."
                raise OptionsError("name", f"{name!r} was not added by this program", fix=fix)
        for name in names:
            if name in self._servers:
                fix = "Remove that server first, or use another name."
                raise OptionsError("name", f"there is already a server {name!r}", fix=fix)
        return {name: self._checked(name, server) for name, server in names.items()}, removed

    def _checked(self, name: str, server: object) -> _Server:
        """Check the name and the kind of a server, and prepare it."""
        if not is_mapping(server):
            mcp_servers("servers", {name: server})
            return self._prepare(name, server)
        config: Any = mcp_config("servers", {"mcpServers": {name: server}})
        external: dict[str, object] = dict(config["mcpServers"][name])
        if "command" in external:
            external.setdefault("args", [])  # newer CLIs fail without it
        return _Server(None, external)

    def _prepare(self, name: str, server: object) -> _Server:
        """Check an in-process server, and return it with its handler.

        Raises:
            OptionsError: it is not a server.
        """
        config = {"type": "sdk", "name": name}
        if isinstance(server, ToolServer):
            return _Server(server, config)
        if isinstance(server, Tool) or server is ToolServer:
            fix = "Use a server with a list of tools: ToolServer([...])."
            raise OptionsError(f"mcp_servers[{name!r}]", f"is {server!r}", fix=fix)
        if protocol_server(server) is None and callable(server):
            return _Server(callback(f"mcp_servers[{name!r}]", server), config)
        conversation = McpConversation(name, server, self._notify(name))
        self.closers.append(conversation.close)
        return _Server(conversation.handle, config, conversation)

    def _notify(self, name: str) -> Notify:
        forward = self._forward
        return lambda message: forward(name, message)
