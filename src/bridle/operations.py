"""The typed control operations of a session, in groups: ``session.mcp``, ``session.tasks`` …

Every operation sends one control request and returns the CLI's reply as a class of
`bridle.controls`. ``session.control()`` sends requests that have no method here.

All operations behave alike:

* ``timeout`` is the longest wait for the reply in seconds. The default is
  ``SdkOptions.control_timeout``, or a multiple of it for operations that take longer.
* They raise ``ControlRejected`` if the CLI responds with an error. Its ``is_unsupported`` is True,
  and it names the version of the CLI, if this version does not have the operation.
* They raise ``ControlTimeout`` if the CLI does not respond in time, ``OptionsError`` for an invalid
  argument, and ``ControlError`` if the session has stopped.
* Cancelling an operation cancels the request. The CLI may still carry it out.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from bridle._engine.outgoing import operations as table
from bridle._engine.outgoing.operations import Operation, Result
from bridle._engine.wire.codec import decode_reply
from bridle.controls import (
    BinaryVersion,
    ContextUsage,
    ConversationExport,
    ConversationPlan,
    FileContents,
    FileSuggestions,
    HookList,
    McpCallResult,
    McpResource,
    McpServerChanges,
    McpServerList,
    ModelList,
    OutputStyleList,
    PermissionRuleList,
    PluginReload,
    PromptCancellation,
    RegisteredDirectory,
    RewindResult,
    SessionCost,
    SessionStatus,
    SessionTitle,
    SettingsReport,
    SideAnswer,
    SkillList,
    TaskOutput,
    UsageReport,
    WorkspaceDiff,
)
from bridle.errors import OptionsError
from bridle.messages import LiveTask

__all__ = [
    "ContextOperations",
    "ConversationOperations",
    "FileOperations",
    "InfoOperations",
    "McpOperations",
    "ModelOperations",
    "PluginOperations",
    "SettingsOperations",
    "TaskOperations",
]


class _Control(Protocol):
    """Sends a control request and returns the payload of the response."""

    async def __call__(
        self, subtype: str, /, *, timeout: float | None = None, **fields: object
    ) -> Mapping[str, object] | None: ...


class _ChangeServers(Protocol):
    """Adds and removes MCP servers."""

    async def __call__(
        self, changes: Mapping[str, object], *, replace: bool, timeout: float | None
    ) -> McpServerChanges: ...


class OperationGroups(ABC):
    """The groups of operations, as properties of a session."""

    @abstractmethod
    async def control(
        self, subtype: str, /, *, timeout: float | None = None, **fields: object
    ) -> Mapping[str, object] | None:
        """Send a control request. The session implements this."""

    @abstractmethod
    async def _change_servers(
        self, changes: Mapping[str, object], *, replace: bool, timeout: float | None
    ) -> McpServerChanges:
        """Add and remove MCP servers. The session implements this."""

    @abstractmethod
    def _running_tasks(self) -> list[LiveTask]:
        """Return the tasks that run now. The session implements this."""

    @property
    def mcp(self) -> McpOperations:
        """Return the operations on MCP servers."""
        return McpOperations(self.control, self._change_servers)

    @property
    def tasks(self) -> TaskOperations:
        """Return the operations on background tasks."""
        return TaskOperations(self.control, self._running_tasks)

    @property
    def context(self) -> ContextOperations:
        """Return the operations on the context window."""
        return ContextOperations(self.control)

    @property
    def models(self) -> ModelOperations:
        """Return the operations on models."""
        return ModelOperations(self.control)

    @property
    def settings(self) -> SettingsOperations:
        """Return the operations on settings, permission rules and configured hooks."""
        return SettingsOperations(self.control)

    @property
    def files(self) -> FileOperations:
        """Return the operations on files and directories."""
        return FileOperations(self.control)

    @property
    def plugins(self) -> PluginOperations:
        """Return the operations on plugins and skills."""
        return PluginOperations(self.control)

    @property
    def conversation(self) -> ConversationOperations:
        """Return the operations on the conversation."""
        return ConversationOperations(self.control)

    @property
    def info(self) -> InfoOperations:
        """Return the operations that report version, status, cost and usage."""
        return InfoOperations(self.control)


class _Group:
    """Base class of the groups. A group keeps its session alive."""

    def __init__(self, control: _Control) -> None:
        self._control = control

    async def _send(
        self, operation: Operation[Result], timeout: float | None, **fields: object
    ) -> Result:
        """Send a request with the fields that are not None, and decode the reply."""
        given = {name: value for name, value in fields.items() if value is not None}
        return await self._send_all(operation, timeout, given)

    async def _send_all(
        self, operation: Operation[Result], timeout: float | None, fields: Mapping[str, object]
    ) -> Result:
        payload = await self._control(operation.subtype, timeout=timeout, **fields)
        return decode_reply(operation.reply, payload)


class McpOperations(_Group):
    """Operations on MCP servers: ``session.mcp``."""

    def __init__(self, control: _Control, change_servers: _ChangeServers) -> None:
        super().__init__(control)
        self._change_servers = change_servers

    async def status(self, *, timeout: float | None = None) -> McpServerList:
        """Return all MCP servers with their state and their tools."""
        return await self._send(table.MCP_STATUS, timeout)

    async def reconnect(self, name: str, *, timeout: float | None = None) -> None:
        """Connect to a server again, for example after it failed.

        In-process servers cannot be reconnected. Use :meth:`toggle` for them.
        """
        await self._send(table.MCP_RECONNECT, timeout, serverName=name)

    async def toggle(self, name: str, enabled: bool, *, timeout: float | None = None) -> None:  # noqa: FBT001  # the contract's order
        """Enable or disable a server. The model does not see tools of a disabled server."""
        await self._send(table.MCP_TOGGLE, timeout, serverName=name, enabled=enabled)

    async def add(
        self, name: str, server: object, *, timeout: float | None = None
    ) -> McpServerChanges:
        """Add an MCP server to the running session.

        The CLI connects to it in the background. The model can use its tools from the next prompt
        on.

        Args:
            name: the name of the server. The model sees its tools as ``mcp__<name>__<tool>``.
            server: a ``ToolServer``, a function that handles messages, a server object of the
                ``mcp`` package, or the configuration of an external server, such as
                ``{"command": "server", "args": []}``.

        Raises:
            OptionsError: the name is in use, or reserved for the functions in ``tools``, or the
                server is invalid. Nothing was sent.
            ControlRejected: the CLI could not add the server.

        If this fails, times out or is cancelled, Bridle removes the server from the CLI again.
        After a timeout or a cancellation this happens in the background.
        """
        if server is None:  # for the session, None means to remove the server
            raise OptionsError("server", "is None", fix="session.mcp.remove() removes a server.")
        return await self._change_servers({name: server}, replace=False, timeout=timeout)

    async def remove(self, name: str, *, timeout: float | None = None) -> McpServerChanges:
        """Remove a server that was added with :meth:`add`, or any in-process server.

        Running calls of its tools are cancelled.

        Raises:
            OptionsError: there is no such server. Nothing was sent. Servers of the CLI's own
                configuration cannot be removed; use :meth:`toggle`.
        """
        return await self._change_servers({name: None}, replace=False, timeout=timeout)

    async def set_servers(
        self, servers: Mapping[str, object], *, timeout: float | None = None
    ) -> McpServerChanges:
        """Replace all in-process servers and all servers that were added at run time.

        A server that is already there under the same name is kept: the same object, or the same
        configuration. Another server with that name replaces it, and running calls of the old one
        are cancelled. The reply has the servers that could not be connected in ``errors``. For the
        kinds of servers see :meth:`add`.

        Raises:
            OptionsError: the servers, or one of them, are invalid. Nothing was sent.
        """
        if not isinstance(cast("object", servers), Mapping):
            problem = f"must be a mapping of names to servers, got {type(servers).__name__}"
            raise OptionsError("servers", problem, fix='Use {"calc": ToolServer([...])}.')
        return await self._change_servers(servers, replace=True, timeout=timeout)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
    ) -> McpCallResult:
        """Call a tool of an external server without the model and without a permission request.

        ``tool`` is the full name: ``mcp__<server>__<tool>``. The CLI rejects tools of in-process
        servers.
        """
        return await self._send(table.MCP_CALL, timeout, tool=tool, arguments=arguments or {})

    async def notify(
        self,
        server: str,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Send a notification of an in-process server to the CLI.

        After ``notify("calc", "notifications/tools/list_changed")`` newer CLIs read the list of
        tools again.
        """
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self._send(table.MCP_MESSAGE, timeout, server_name=server, message=message)

    async def read_resource(
        self, name: str, uri: str, *, timeout: float | None = None
    ) -> McpResource:
        """Read a resource of a server. The CLI accepts only ``ui://`` URIs."""
        return await self._send(table.MCP_READ_RESOURCE, timeout, serverName=name, uri=uri)


class TaskOperations(_Group):
    """Operations on background tasks: ``session.tasks``."""

    def __init__(self, control: _Control, running: Callable[[], builtins.list[LiveTask]]) -> None:
        super().__init__(control)
        self._running = running

    def list(self) -> builtins.list[LiveTask]:
        """Return the tasks that run now, the oldest first. Nothing is sent to the CLI.

        Subagents in the foreground are included. A shell command in the foreground is included
        once it has run for a few seconds. After the session has ended, the list is empty.
        """
        return self._running()

    async def stop(self, task_id: str, *, timeout: float | None = None) -> None:
        """Stop a task. The CLI ignores an unknown id."""
        await self._send(table.STOP_TASK, timeout, task_id=task_id)

    async def output(self, task_id: str, *, timeout: float | None = None) -> TaskOutput:
        """Return the end of the output of a background command, at most 8 KiB."""
        return await self._send(table.GET_TASK_OUTPUT, timeout, task_id=task_id)

    async def background(
        self, tool_use_id: str | None = None, *, timeout: float | None = None
    ) -> None:
        """Move running commands and subagents to the background, so that the turn continues.

        With ``tool_use_id`` only the task of that tool call.
        """
        await self._send(table.BACKGROUND_TASKS, timeout, tool_use_id=tool_use_id)


class ContextOperations(_Group):
    """Operations on the context window: ``session.context``."""

    async def usage(
        self, detail: str | None = None, *, timeout: float | None = None
    ) -> ContextUsage:
        """Return how the context window is used.

        ``detail="full"``, the CLI's default, counts tokens with the API. ``"summary"`` estimates
        them without a request.
        """
        return await self._send(table.GET_CONTEXT_USAGE, timeout, detail=detail)


class ModelOperations(_Group):
    """Operations on models: ``session.models``. See also ``session.set_model``."""

    async def list(self, *, timeout: float | None = None) -> ModelList:
        """Return the models that this session can use."""
        return await self._send(table.LIST_MODELS, timeout)

    async def set_max_thinking_tokens(
        self, max_thinking_tokens: int | None, *, timeout: float | None = None
    ) -> None:
        """Set the number of tokens for thinking. 0 turns thinking off, None is the default."""
        fields = {"max_thinking_tokens": max_thinking_tokens}
        await self._send_all(table.SET_MAX_THINKING_TOKENS, timeout, fields)


class SettingsOperations(_Group):
    """Operations on settings, permission rules and configured hooks: ``session.settings``."""

    async def get(self, *, timeout: float | None = None) -> SettingsReport:
        """Return the merged settings, and those of each source."""
        return await self._send(table.GET_SETTINGS, timeout)

    async def apply(self, settings: Mapping[str, object], *, timeout: float | None = None) -> None:
        """Set settings for this session, without writing a file.

        Each setting replaces the value of an earlier call as a whole: ``permissions`` with an
        ``ask`` list delete the ``deny`` list of the call before. None removes the setting. The
        settings of the start and of files stay in force, and so do the rules for tools with
        ``ask=True``.

        CLI 2.1.197 accepts an invalid setting and then ignores all that were set this way.

        Raises:
            OptionsError: ``permissions`` have the wrong type; or the session has hooks or
                permission callbacks, and ``env`` has ``CLAUDE_CODE_SIMPLE``, which switches hooks
                off. Nothing was sent.
            ControlRejected: a setting is invalid. The earlier settings stay in force.
            ControlTimeout: no response within ``timeout`` seconds. The CLI may still apply the
                settings. If the session has tools with ``ask=True``, Bridle then restores the
                earlier ones.

        Cancellation: the same as for a timeout. A call that waits for an earlier one is not sent.
        """
        await self._send(table.APPLY_FLAG_SETTINGS, timeout, settings=settings)

    async def update(
        self, source: str, settings: Mapping[str, object], *, timeout: float | None = None
    ) -> None:
        """Write settings to a file and apply them.

        The CLI accepts ``"localSettings"`` with ``outputStyle``, and ``"userSettings"`` with
        ``effortLevel``.

        Raises:
            OptionsError: as :meth:`apply`.
        """
        await self._send(table.UPDATE_SETTINGS, timeout, source=source, settings=settings)

    async def permission_rules(self, *, timeout: float | None = None) -> PermissionRuleList:
        """Return the permission rules of this session, with their sources."""
        return await self._send(table.LIST_PERMISSION_RULES, timeout)

    async def hooks(self, *, timeout: float | None = None) -> HookList:
        """Return the hooks of settings files and plugins. Callbacks are not in the list."""
        return await self._send(table.GET_HOOKS_LISTING, timeout)

    async def reload_output_styles(self, *, timeout: float | None = None) -> OutputStyleList:
        """Read the output styles from disk again, and return their names."""
        return await self._send(table.RELOAD_OUTPUT_STYLES, timeout)


class FileOperations(_Group):
    """Operations on files and directories: ``session.files``."""

    async def read(
        self,
        path: str,
        *,
        max_bytes: int | None = None,
        encoding: str | None = None,
        timeout: float | None = None,
    ) -> FileContents:
        """Read a file as the CLI sees it. Permission rules of the Read tool apply.

        ``encoding`` is ``"utf-8"``, the default, or ``"base64"`` for binary files.
        """
        return await self._send(
            table.READ_FILE, timeout, path=path, max_bytes=max_bytes, encoding=encoding
        )

    async def suggest(self, query: str, *, timeout: float | None = None) -> FileSuggestions:
        """Return files whose paths match the beginning of a path, for completion."""
        return await self._send(table.FILE_SUGGESTIONS, timeout, query=query)

    async def mark_read(self, path: str, mtime: float, *, timeout: float | None = None) -> None:
        """Treat a file as read by the model, so that it can edit the file.

        ``mtime`` is the modification time that the program saw, in milliseconds since 1970. The CLI
        rejects the edit if the file was changed after it.
        """
        await self._send(table.SEED_READ_STATE, timeout, path=path, mtime=mtime)

    async def add_directory(
        self,
        directory: str,
        *,
        reload_claude_md: bool | None = None,
        reload_plugins: bool | None = None,
        reload_skills: bool | None = None,
        timeout: float | None = None,
    ) -> RegisteredDirectory:
        """Add a working directory: a subdirectory of the session's directories.

        The flags make the CLI read CLAUDE.md files, plugins and skills again.
        """
        return await self._send(
            table.REGISTER_REPO_ROOT,
            timeout,
            directory=directory,
            reload_claude_md=reload_claude_md,
            reload_plugins=reload_plugins,
            reload_skills=reload_skills,
        )

    async def rewind(
        self, user_message_id: str, *, dry_run: bool = False, timeout: float | None = None
    ) -> RewindResult:
        """Restore files to their state when the prompt with this UUID (``turn.uuid``) was sent.

        With ``dry_run=True`` the CLI changes nothing and reports what it would change. The same as
        ``session.rewind_files``, with a typed reply.

        Raises:
            CheckpointingNotEnabled: the session has no file checkpointing.
            ControlRejected: there is no checkpoint for that prompt.
        """
        return await self._send(
            table.REWIND_FILES, timeout, user_message_id=user_message_id, dry_run=dry_run or None
        )

    async def diff(self, *, timeout: float | None = None) -> WorkspaceDiff:
        """Return the uncommitted changes in the working directory."""
        return await self._send(table.GET_WORKSPACE_DIFF, timeout)


class PluginOperations(_Group):
    """Operations on plugins and skills: ``session.plugins``."""

    async def reload(
        self,
        *,
        add_plugins: Sequence[Mapping[str, object]] | None = None,
        hold_on_cache_impact: bool | None = None,
        refuse_if_busy: bool | None = None,
        timeout: float | None = None,
    ) -> PluginReload:
        """Read all plugins from disk again.

        Args:
            add_plugins: plugins to load as well, such as ``{"type": "local", "path": "/plugin"}``.
            hold_on_cache_impact: do not apply the reload if it would change the list of tools and
                so the prompt cache. The reply has ``held`` and ``cache_impact``.
            refuse_if_busy: respond with an error while the session works.
        """
        return await self._send(
            table.RELOAD_PLUGINS,
            timeout,
            add_plugins=add_plugins,
            hold_on_cache_impact=hold_on_cache_impact,
            refuse_if_busy=refuse_if_busy,
        )

    async def reload_skills(self, *, timeout: float | None = None) -> SkillList:
        """Read all skills from disk again, and return them."""
        return await self._send(table.RELOAD_SKILLS, timeout)


class ConversationOperations(_Group):
    """Operations on the conversation: ``session.conversation``."""

    async def cancel_prompt(
        self, message_uuid: str, *, timeout: float | None = None
    ) -> PromptCancellation:
        """Cancel a queued prompt (``turn.uuid``). Has no effect on a prompt that runs."""
        return await self._send(table.CANCEL_ASYNC_MESSAGE, timeout, message_uuid=message_uuid)

    async def rename(self, title: str, *, timeout: float | None = None) -> None:
        """Set the title of the session."""
        await self._send(table.RENAME_SESSION, timeout, title=title)

    async def generate_title(
        self, description: str, *, persist: bool | None = None, timeout: float | None = None
    ) -> SessionTitle:
        """Let the model write a title for the session. ``persist=False`` does not set it."""
        return await self._send(
            table.GENERATE_SESSION_TITLE, timeout, description=description, persist=persist
        )

    async def ask_aside(self, question: str, *, timeout: float | None = None) -> SideAnswer:
        """Ask the model about the conversation. Question and answer do not become part of it."""
        return await self._send(table.SIDE_QUESTION, timeout, question=question)

    async def export(self, *, timeout: float | None = None) -> ConversationExport:
        """Return the conversation as text."""
        return await self._send(table.EXPORT_CONVERSATION, timeout)

    async def plan(self, *, timeout: float | None = None) -> ConversationPlan:
        """Return the plan of plan mode, if there is one."""
        return await self._send(table.GET_PLAN, timeout)

    async def end(self, reason: str | None = None, *, timeout: float | None = None) -> None:
        """Let the CLI exit by itself. A running turn is interrupted.

        ``session.aclose()`` also ends the processes that the CLI leaves behind.
        """
        await self._send(table.END_SESSION, timeout, reason=reason)


class InfoOperations(_Group):
    """Operations that report on the session and the CLI: ``session.info``."""

    async def status(self, *, timeout: float | None = None) -> SessionStatus:
        """Return the status of the session as the CLI shows it to people."""
        return await self._send(table.GET_STATUS, timeout)

    async def version(self, *, timeout: float | None = None) -> BinaryVersion:
        """Return the version of the CLI."""
        return await self._send(table.GET_BINARY_VERSION, timeout)

    async def cost(self, *, timeout: float | None = None) -> SessionCost:
        """Return the cost of the session as text. :meth:`usage` has numbers."""
        return await self._send(table.GET_SESSION_COST, timeout)

    async def usage(
        self, *, skip_behaviors: bool | None = None, timeout: float | None = None
    ) -> UsageReport:
        """Return cost and token counts of the session, and the limits of the subscription.

        The default also reads all transcripts of the last seven days, to find what contributes to
        the limits. ``skip_behaviors=True`` leaves this out.
        """
        return await self._send(table.GET_USAGE, timeout, skip_behaviors=skip_behaviors)

    async def set_has_subscribers(
        self, *, has_subscribers: bool | None, timeout: float | None = None
    ) -> None:
        """Say whether a person watches the output. None means that this is not known.

        It matters only if ``CLAUDE_CODE_STREAM_EVENT_HOLD_MS`` is set for the CLI.
        """
        fields = {"has_subscribers": has_subscribers}
        await self._send_all(table.SET_HAS_SUBSCRIBERS, timeout, fields)
