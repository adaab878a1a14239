"""Keep the list of running tasks of a session: subagents, background shells, monitors.

A task is announced with ``task_started`` and ends with ``task_updated`` or ``task_notification``.
Newer CLIs also send the whole list of background tasks whenever it changes. That list corrects an
end that was not reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import structs

from bridle._engine.turns.subagents import AgentBook, keep
from bridle.messages import (
    BackgroundTasksChangedMessage,
    LiveTask,
    Message,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
)

MAX_TASKS = 1024
"""Running tasks that are remembered. The oldest one is forgotten first."""

_ENDED = frozenset({"completed", "failed", "killed"})
"""The statuses of tasks that have ended."""


class LiveTasks:
    """The running tasks of one session."""

    def __init__(self, agents: AgentBook) -> None:
        self._agents = agents
        self._tasks: dict[str, LiveTask] = {}
        #: True if a task has ended and the model may not know it. The CLI tells the model with the
        #: next tool results of the main agent, or begins a turn about it.
        self.has_news = False

    def list(self) -> list[LiveTask]:
        """Return the running tasks, the oldest first."""
        path = self._agents.path_of_task
        return [
            structs.replace(task, agent_path=path(task.task_id)) for task in self._tasks.values()
        ]

    @property
    def is_working(self) -> bool:
        """True if a task runs, other than the ambient ones that the CLI starts for itself."""
        return any(not task.ambient for task in self._tasks.values())

    def clear(self) -> None:
        """Forget all tasks, because the CLI has exited."""
        self._tasks.clear()

    def observe(self, message: Message) -> None:
        """Take a message of a kind in ``KINDS``."""
        self._OBSERVERS[type(message)](self, message)

    def _on_start(self, message: TaskStartedMessage) -> None:
        listed = self._tasks.get(message.task_id)
        in_background = message.is_backgrounded
        if in_background is None and listed is not None:
            in_background = listed.is_backgrounded
        task = LiveTask(
            task_id=message.task_id,
            run_id=message.run_id,
            task_type=message.task_type,
            subagent_type=message.subagent_type,
            description=message.description,
            prompt=message.prompt,
            tool_use_id=message.tool_use_id,
            parent_task_id=message.parent_task_id,
            is_backgrounded=in_background,
            ambient=message.ambient,
        )
        keep(self._tasks, task.task_id, task, MAX_TASKS)

    def _on_progress(self, message: TaskProgressMessage) -> None:
        self._change(
            message.task_id,
            activity=message.description or None,
            last_tool_name=message.last_tool_name,
            summary=message.summary,
            usage=message.usage,
        )

    def _on_update(self, message: TaskUpdatedMessage) -> None:
        patch = message.patch
        status, description = patch.get("status"), patch.get("description")
        moved = patch.get("is_backgrounded")
        if "end_time" in patch or (isinstance(status, str) and status in _ENDED):
            self._tasks.pop(message.task_id, None)
            self.has_news = True
            return
        self._change(
            message.task_id,
            status=status if isinstance(status, str) else None,
            description=description if isinstance(description, str) else None,
            is_backgrounded=moved if isinstance(moved, bool) else None,
        )

    def _on_end(self, message: TaskNotificationMessage) -> None:
        self._tasks.pop(message.task_id, None)
        self.has_news = True

    def _on_list(self, message: BackgroundTasksChangedMessage) -> None:
        """Replace the tasks in the background. The list does not contain other tasks."""
        listed = {task.task_id for task in message.tasks}
        for known in tuple(self._tasks.values()):
            if known.is_backgrounded and known.task_id not in listed:
                del self._tasks[known.task_id]
                self.has_news = True
        for task in message.tasks:
            if task.task_id in self._tasks:
                self._change(task.task_id, is_backgrounded=True, ambient=task.ambient or None)
            else:  # a task is listed before it is announced
                found = LiveTask(
                    task_id=task.task_id,
                    run_id=task.run_id,
                    task_type=task.task_type,
                    subagent_type=task.subagent_type,
                    description=task.description,
                    parent_task_id=task.parent_task_id,
                    is_backgrounded=True,
                    ambient=task.ambient,
                )
                keep(self._tasks, task.task_id, found, MAX_TASKS)

    def _change(self, task_id: str, **values: object) -> None:
        """Set the values that are not None, if the task runs."""
        task = self._tasks.get(task_id)
        if task is not None:
            given = {name: value for name, value in values.items() if value is not None}
            self._tasks[task_id] = structs.replace(task, **given)

    _OBSERVERS: ClassVar[dict[type[Message], Callable[[LiveTasks, Any], None]]] = {
        TaskStartedMessage: _on_start,
        TaskProgressMessage: _on_progress,
        TaskUpdatedMessage: _on_update,
        TaskNotificationMessage: _on_end,
        BackgroundTasksChangedMessage: _on_list,
    }

    KINDS: ClassVar[frozenset[type[Message]]] = frozenset(_OBSERVERS)
    """The kinds of message that change the list."""
