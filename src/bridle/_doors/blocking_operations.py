"""The typed control operations of a blocking session: the same groups and methods, without await.

Every method is made from its twin in `bridle.operations`, so signature, types and documentation are
written once.
"""

from __future__ import annotations

import builtins
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from bridle import operations as twin
from bridle._doors.portal import Work
from bridle._doors.session import InnerSession
from bridle.messages import LiveTask

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class _Method(Protocol[_P, _T_co]):
    """A blocking method, as type checkers see it."""

    def __get__(self, instance: object, owner: type | None = None) -> Callable[_P, _T_co]: ...


class _Call(Protocol):
    """Runs a coroutine on the event loop and returns its result."""

    def __call__(self, operation: str, work: Work[_T]) -> _T: ...


class _Group:
    """Base class of the groups. A group keeps its session alive."""

    def __init__(self, call: _Call, group: object) -> None:
        self._call = call
        self._twin = group


def blocking(method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]) -> _Method[_P, _T]:
    """Return the blocking version of a method of a group."""

    @functools.wraps(method)
    def run(self: _Group, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        # The attributes are private so that completion shows only the operations.
        group = self._twin  # pyright: ignore[reportPrivateUsage]
        call = self._call  # pyright: ignore[reportPrivateUsage]
        return call(method.__name__, lambda: method(group, *args, **kwargs))

    return cast("_Method[_P, _T]", run)


class McpOperations(_Group):
    """Operations on MCP servers: ``session.mcp``."""

    status = blocking(twin.McpOperations.status)
    reconnect = blocking(twin.McpOperations.reconnect)
    toggle = blocking(twin.McpOperations.toggle)
    add = blocking(twin.McpOperations.add)
    remove = blocking(twin.McpOperations.remove)
    set_servers = blocking(twin.McpOperations.set_servers)
    call = blocking(twin.McpOperations.call)
    notify = blocking(twin.McpOperations.notify)
    read_resource = blocking(twin.McpOperations.read_resource)


class TaskOperations(_Group):
    """Operations on background tasks: ``session.tasks``."""

    def list(self) -> builtins.list[LiveTask]:
        """Return the tasks that run now, the oldest first. Nothing is sent to the CLI.

        Subagents in the foreground are included. A shell command in the foreground is included
        once it has run for a few seconds. After the session has ended, the list is empty.
        """
        return cast("twin.TaskOperations", self._twin).list()

    stop = blocking(twin.TaskOperations.stop)
    output = blocking(twin.TaskOperations.output)
    background = blocking(twin.TaskOperations.background)


class ContextOperations(_Group):
    """Operations on the context window: ``session.context``."""

    usage = blocking(twin.ContextOperations.usage)


class ModelOperations(_Group):
    """Operations on models: ``session.models``. See also ``session.set_model``."""

    list = blocking(twin.ModelOperations.list)
    set_max_thinking_tokens = blocking(twin.ModelOperations.set_max_thinking_tokens)


class SettingsOperations(_Group):
    """Operations on settings, permission rules and configured hooks: ``session.settings``."""

    get = blocking(twin.SettingsOperations.get)
    apply = blocking(twin.SettingsOperations.apply)
    update = blocking(twin.SettingsOperations.update)
    permission_rules = blocking(twin.SettingsOperations.permission_rules)
    hooks = blocking(twin.SettingsOperations.hooks)
    reload_output_styles = blocking(twin.SettingsOperations.reload_output_styles)


class FileOperations(_Group):
    """Operations on files and directories: ``session.files``."""

    read = blocking(twin.FileOperations.read)
    suggest = blocking(twin.FileOperations.suggest)
    mark_read = blocking(twin.FileOperations.mark_read)
    add_directory = blocking(twin.FileOperations.add_directory)
    rewind = blocking(twin.FileOperations.rewind)
    diff = blocking(twin.FileOperations.diff)


class PluginOperations(_Group):
    """Operations on plugins and skills: ``session.plugins``."""

    reload = blocking(twin.PluginOperations.reload)
    reload_skills = blocking(twin.PluginOperations.reload_skills)


class ConversationOperations(_Group):
    """Operations on the conversation: ``session.conversation``."""

    cancel_prompt = blocking(twin.ConversationOperations.cancel_prompt)
    rename = blocking(twin.ConversationOperations.rename)
    generate_title = blocking(twin.ConversationOperations.generate_title)
    ask_aside = blocking(twin.ConversationOperations.ask_aside)
    export = blocking(twin.ConversationOperations.export)
    plan = blocking(twin.ConversationOperations.plan)
    end = blocking(twin.ConversationOperations.end)


class InfoOperations(_Group):
    """Operations that report on the session and the CLI: ``session.info``."""

    status = blocking(twin.InfoOperations.status)
    version = blocking(twin.InfoOperations.version)
    cost = blocking(twin.InfoOperations.cost)
    usage = blocking(twin.InfoOperations.usage)
    set_has_subscribers = blocking(twin.InfoOperations.set_has_subscribers)


class OperationGroups(ABC):
    """The groups of operations, as properties of a blocking session."""

    _session: InnerSession

    @abstractmethod
    def _call(self, operation: str, work: Work[_T]) -> _T:
        """Run a coroutine on the event loop. The session implements this."""

    @property
    def mcp(self) -> McpOperations:
        """Return the operations on MCP servers."""
        return McpOperations(self._call, self._session.mcp)

    @property
    def tasks(self) -> TaskOperations:
        """Return the operations on background tasks."""
        return TaskOperations(self._call, self._session.tasks)

    @property
    def context(self) -> ContextOperations:
        """Return the operations on the context window."""
        return ContextOperations(self._call, self._session.context)

    @property
    def models(self) -> ModelOperations:
        """Return the operations on models."""
        return ModelOperations(self._call, self._session.models)

    @property
    def settings(self) -> SettingsOperations:
        """Return the operations on settings, permission rules and configured hooks."""
        return SettingsOperations(self._call, self._session.settings)

    @property
    def files(self) -> FileOperations:
        """Return the operations on files and directories."""
        return FileOperations(self._call, self._session.files)

    @property
    def plugins(self) -> PluginOperations:
        """Return the operations on plugins and skills."""
        return PluginOperations(self._call, self._session.plugins)

    @property
    def conversation(self) -> ConversationOperations:
        """Return the operations on the conversation."""
        return ConversationOperations(self._call, self._session.conversation)

    @property
    def info(self) -> InfoOperations:
        """Return the operations that report version, status, cost and usage."""
        return InfoOperations(self._call, self._session.info)
