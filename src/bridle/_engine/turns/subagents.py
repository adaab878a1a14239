"""Find the subagent that each message comes from.

Messages of a subagent name only the tool call that started it. A nested subagent is started by a
tool call in a message of another subagent. :class:`AgentBook` remembers these calls, so that
``message.agent_path`` holds the whole path. It also decodes, because a message that was kept as a
line gets its place again when it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from bridle._engine.wire.codec import decode_all, decode_line
from bridle._records.raw_line import attach
from bridle.content import ToolUseBlock
from bridle.messages import (
    AssistantMessage,
    Frame,
    InformationalMessage,
    PermissionDeniedMessage,
    StreamEvent,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    ToolProgress,
    UserMessage,
)
from bridle.messages._message import AgentNode, AgentPath

MAX_AGENTS = 1024
"""Subagents and tasks that are remembered. The oldest one is forgotten first."""

MAX_CALLS = 4096
"""Tool calls of subagents that are remembered."""

_AGENT_TASK = "local_agent"

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class AgentBook:
    """The subagents of one session."""

    def __init__(self) -> None:
        # By the tool call that started it.
        self._agents: dict[str, AgentNode] = {}
        # The subagent that made a tool call. Calls of the main agent are not kept.
        self._callers: dict[str, AgentNode] = {}
        # The subagent that a task is, or that started it. Tasks of the main agent are not kept.
        self._tasks: dict[str, AgentNode] = {}

    # -- decoding ------------------------------------------------------------------------------

    def decode(self, line: bytes) -> Frame:
        """Decode a line, as `decode_line` does, and set the subagent of the message."""
        frame = decode_line(line)
        if self._agents or type(frame) in _FIRST:
            self._place(frame)
        return frame

    def decode_all(self, items: Sequence[Any]) -> tuple[list[Any], set[type]]:
        """Decode lines, as the function of the codec does, and set the subagents of the messages.

        Before the first subagent this costs one comparison for all of them.
        """
        frames, kinds = decode_all(items)
        if self._agents or not _FIRST.isdisjoint(kinds):
            for frame in frames:
                self._place(frame)
        return frames, kinds

    def _place(self, frame: Any) -> None:
        find = self._FINDERS.get(type(frame))  # pyright: ignore[reportUnknownArgumentType]
        if find is not None:
            agent = find(self, frame)
            if agent is not None:
                attach(frame, "_agent", agent)

    # -- paths ---------------------------------------------------------------------------------

    def path_of_task(self, task_id: str) -> AgentPath:
        """Return the path of the subagent that a task is, or that started it."""
        agent = self._tasks.get(task_id)
        return () if agent is None else agent.path

    def outermost(self, tool_use_id: str | None, agent_id: str | None) -> str | None:
        """Return the call of the main agent that led to a tool use, or to a subagent.

        None if the main agent itself made the tool use, or if no message named the subagent.
        """
        agent = self._tasks.get(agent_id or "") or self._callers.get(tool_use_id or "")
        return None if agent is None else agent.path[0].id

    def _agent(self, call: str, type: str | None = None) -> AgentNode:
        """Return the subagent that a tool call started."""
        agent = self._agents.get(call)
        if agent is None:
            agent = AgentNode(call, type, self._callers.get(call))
            keep(self._agents, call, agent, MAX_AGENTS)
        elif agent.type is None:
            agent.type = type
        return agent

    def _note_call(self, call: str, caller: AgentNode) -> None:
        """Remember which subagent made a tool call. 2.1.197 announces the callee before that."""
        keep(self._callers, call, caller, MAX_CALLS)
        callee = self._agents.get(call)
        if callee is not None:
            callee.caller = caller

    # -- the subagent of a message -------------------------------------------------------------

    def _of_assistant(self, message: AssistantMessage) -> AgentNode | None:
        if message.parent_tool_use_id is None:
            return None
        agent = self._agent(message.parent_tool_use_id, message.subagent_type)
        for block in message.content:
            if type(block) is ToolUseBlock:
                self._note_call(block.id, agent)
        return agent

    def _of_part(self, message: UserMessage | StreamEvent) -> AgentNode | None:
        call = message.parent_tool_use_id
        return None if call is None else self._agent(call, getattr(message, "subagent_type", None))

    def _of_progress(self, message: ToolProgress) -> AgentNode | None:
        call = message.parent_tool_use_id
        if call is None or message.heartbeat:  # the parent of a heartbeat is the call itself
            return self._callers.get(call or message.tool_use_id)
        return self._agent(call, message.subagent_type)

    def _of_task_start(self, message: TaskStartedMessage) -> AgentNode | None:
        call = message.tool_use_id or ""
        agent = self._tasks.get(message.parent_task_id or "") or self._callers.get(call)
        if call and (message.subagent_type is not None or message.task_type == _AGENT_TASK):
            caller, agent = agent, self._agent(call, message.subagent_type)
            agent.caller = agent.caller or caller
        if agent is not None:
            keep(self._tasks, message.task_id, agent, MAX_AGENTS)
        return agent

    def _of_task(
        self, message: TaskProgressMessage | TaskUpdatedMessage | TaskNotificationMessage
    ) -> AgentNode | None:
        return self._tasks.get(message.task_id)

    def _of_denial(self, message: PermissionDeniedMessage) -> AgentNode | None:
        return self._tasks.get(message.agent_id or "") or self._of_note(message)

    def _of_note(self, message: InformationalMessage | PermissionDeniedMessage) -> AgentNode | None:
        return self._callers.get(message.tool_use_id or "")

    _FINDERS: ClassVar[dict[type, Callable[[AgentBook, Any], AgentNode | None]]] = {
        AssistantMessage: _of_assistant,
        UserMessage: _of_part,
        StreamEvent: _of_part,
        ToolProgress: _of_progress,
        TaskStartedMessage: _of_task_start,
        TaskProgressMessage: _of_task,
        TaskUpdatedMessage: _of_task,
        TaskNotificationMessage: _of_task,
        PermissionDeniedMessage: _of_denial,
        InformationalMessage: _of_note,
    }


_FIRST: frozenset[type] = frozenset({UserMessage, TaskStartedMessage})
"""The kinds of message that can be the first one of a subagent."""


def keep(book: dict[_Key, _Value], key: _Key, value: _Value, limit: int) -> None:
    """Remember a value by its key. Forget the oldest one if there are more than ``limit``."""
    book[key] = value
    if len(book) > limit:
        del book[next(iter(book))]
