"""The MCP servers that a session has in its process or added at run time.

The CLI takes such servers only as a whole: a request replaces all of them, also those of the
handshake. So this module keeps their list, and changes are made one at a time. If a change fails,
the CLI gets the previous list again.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import structs

from bridle._records.fields import callback, close_to, is_mapping, line
from bridle._session.changes.mcp_adapter import McpConversation, Notify, protocol_server
from bridle.controls import McpServerChanges
from bridle.errors import BridleError, ControlRejected, OptionsError
from bridle.options._checks import mcp_config, mcp_servers
from bridle.options._keywords import FunctionServer
from bridle.tools import Tool, ToolServer

Config = Mapping[str, object]
"""What the CLI is told about a server."""

Send = Callable[[Mapping[str, Config]], Awaitable[McpServerChanges]]
"""Sends the configuration of all servers to the CLI."""

Register = Callable[[str, object | None], None]
"""Sets the handler for the messages of a server. None removes it."""

_NEEDED: Mapping[object, tuple[str, ...]] = {
    None: ("command", "url"),
    "stdio": ("command",),
    "http": ("url",),
    "sse": ("url",),
    "ws": ("url",),
}
"""The fields of a configuration by its type. One of them must be there."""


class _Server(NamedTuple):
    #: What the program gave.
    given: object
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
        #: Takes back the last change that failed.
        self._undoing: asyncio.Task[None] | None = None
        self._servers = {name: self._prepare(name, server) for name, server in given.items()}
        #: The conversations with server objects that are not closed.
        self.conversations = _conversations(self._servers.values())
        # The CLI cannot take back the rules that allow the functions, so their name stays theirs.
        self._reserved = {name for name, one in given.items() if isinstance(one, FunctionServer)}

    async def close(self) -> None:
        """End all conversations with server objects. The session has ended."""
        if self._undoing is not None:
            await asyncio.wait([self._undoing])
        for conversation in list(self.conversations):
            await conversation.close()

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
        send: Send,
        register: Register,
        rejected: Callable[[str], ControlRejected],
    ) -> McpServerChanges:
        """Add servers, and remove those whose new value is None.

        If this fails, the CLI gets the previous list again. A caller that was cancelled, or whose
        request timed out, does not wait for that, but the next change does.

        Args:
            changes: the servers by name.
            replace: also remove all servers that are not in ``changes``, and keep those that are
                already there under the same name.
            send: sends the configuration of all servers to the CLI.
            register: passes messages for the server with a name to its handler from now on, or to
                nothing if the handler is None.
            rejected: makes the error from its text.

        Raises:
            OptionsError: a name or a server is invalid. Nothing was sent.
            ControlRejected: without ``replace``, the CLI could not connect to a new server.
        """
        async with self._changing:
            if self._undoing is not None:
                await asyncio.wait([self._undoing])
            added, removed = self._plan(changes, replace=replace)
            self.conversations += _conversations(added.values())
            kept = {name: one for name, one in self._servers.items() if name not in removed}
            replaced = [name for name in removed if name in added]
            wanted = kept | added
            first: McpServerChanges | None = None
            try:
                if replaced:
                    # Otherwise the CLI keeps the connection, and with it the tools of the old one.
                    first = await send(_configs(kept))
                    for name in replaced:
                        register(name, None)
                # Messages for a new server may come before the response.
                for name, server in added.items():
                    if server.handler is not None:
                        register(name, server.handler)
                reply = await send(_configs(wanted))
                for name, problem in reply.errors.items():
                    if name in added and not replace:
                        failure = rejected(f"{name}: {problem}")
                        raise failure
            except BaseException as error:
                for name in added:
                    register(name, None)
                for name in replaced:
                    register(name, self._servers[name].handler)
                self._undoing = asyncio.create_task(self._undo(added, send), name="bridle-servers")
                if isinstance(error, ControlRejected):
                    await asyncio.wait([self._undoing])
                raise
            ended = [self._servers[name] for name in removed]
            self._servers = wanted
            for name in removed:
                if name not in added:
                    register(name, None)
            await self._end(ended)
            if first is None:
                return reply
            return structs.replace(reply, removed=first.removed + reply.removed)

    async def _undo(self, added: Mapping[str, _Server], send: Send) -> None:
        """Send the previous list once, and close the conversations with the added servers."""
        previous = self._servers
        with contextlib.suppress(BridleError):  # The caller gets the first error.
            if any(name in added for name in previous):
                rest = {name: one for name, one in previous.items() if name not in added}
                await send(_configs(rest))
            await send(_configs(previous))
        await self._end(added.values())

    async def _end(self, servers: Iterable[_Server]) -> None:
        """Close the conversations with these servers."""
        for conversation in _conversations(servers):
            await conversation.close()
            self.conversations.remove(conversation)

    def _plan(
        self, changes: Mapping[str, object], *, replace: bool
    ) -> tuple[dict[str, _Server], list[str]]:
        """Return the servers to add, and the names of those to remove first."""
        names = {line("name", name): server for name, server in changes.items()}
        if replace:
            names = {name: one for name, one in names.items() if not self._has(name, one)}
            removed = [name for name in self._servers if name in names or name not in changes]
        else:
            removed = [name for name, server in names.items() if server is None]
            names = {name: server for name, server in names.items() if server is not None}
        for name in removed:
            if name not in self._servers:
                fix = close_to(name, self._servers) or (
                    "To disable a server of the CLI's own configuration, call session.mcp.toggle()."
                )
                raise OptionsError("name", f"{name!r} was not added by this program", fix=fix)
        for name in names:
            if name in self._reserved:
                problem = f"{name!r} is reserved for the functions of this session"
                raise OptionsError("name", problem, fix="Use another name.")
            if name in self._servers and not replace:
                fix = "Remove that server first, or use another name."
                raise OptionsError("name", f"{name!r} is already the name of a server", fix=fix)
        return {name: self._checked(name, server) for name, server in names.items()}, removed

    def _has(self, name: str, server: object) -> bool:
        """Return whether this very server, or this configuration, is there under the name."""
        there = self._servers.get(name)
        if there is None:
            return False
        if is_mapping(server):
            return there.handler is None and there.config == self._checked(name, server).config
        # Each access to a method makes a new object.
        return there.given is server or (inspect.ismethod(server) and there.given == server)

    def _checked(self, name: str, server: object) -> _Server:
        """Check the name and the kind of a server, and prepare it."""
        if not is_mapping(server):
            mcp_servers("servers", {name: server})
            return self._prepare(name, server)
        config: Any = mcp_config("servers", {"mcpServers": {name: server}})
        external: dict[str, object] = dict(config["mcpServers"][name])
        _check_external(name, external)
        if "command" in external:
            external.setdefault("args", [])  # newer CLIs fail without it
        return _Server(server, None, external)

    def _prepare(self, name: str, server: object) -> _Server:
        """Check an in-process server, and return it with its handler.

        Raises:
            OptionsError: it is not a server.
        """
        config = {"type": "sdk", "name": name}
        if isinstance(server, ToolServer):
            return _Server(server, server, config)
        if isinstance(server, Tool) or server is ToolServer:
            fix = "Use a server with a list of tools: ToolServer([...])."
            raise OptionsError(f"mcp_servers[{name!r}]", f"is not a server: {server!r}", fix=fix)
        if protocol_server(server) is None and callable(server):
            return _Server(server, callback(f"mcp_servers[{name!r}]", server), config)
        conversation = McpConversation(name, server, self._notify(name))
        return _Server(server, conversation.handle, config, conversation)

    def _notify(self, name: str) -> Notify:
        forward = self._forward
        return lambda message: forward(name, message)


def _check_external(name: str, config: Config) -> None:
    """Check that a configuration has what the CLI needs to connect. Unknown types are passed on.

    Raises:
        OptionsError: the command or the URL is missing.
    """
    needed = _NEEDED.get(config.get("type"), ())
    if needed and not any(isinstance(config.get(key), str) and config[key] for key in needed):
        fix = 'Use {"command": ...} or {"type": "http", "url": ...}.'
        raise OptionsError(f"servers[{name!r}]", f"has no {' or '.join(needed)}", fix=fix)


def _configs(servers: Mapping[str, _Server]) -> dict[str, Config]:
    return {name: one.config for name, one in servers.items()}


def _conversations(servers: Iterable[_Server]) -> list[McpConversation]:
    return [one.conversation for one in servers if one.conversation is not None]
