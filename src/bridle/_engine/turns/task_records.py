"""Keep one record for each task of a session: subagents, background shells, monitors.

A task is announced with ``task_started`` and ends with ``task_updated`` or ``task_notification``.
Newer CLIs also send the whole list of background tasks whenever it changes. That list corrects an
end that was not reported.

A subagent in the background may call tools while another prompt runs. When it ends, the CLI runs a
turn of its own about it, possibly after other prompts. Both belong to the prompt that started it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, structs

from bridle._engine.turns.subagents import AgentBook, keep
from bridle.content import ToolResultBlock
from bridle.messages import (
    BackgroundTasksChangedMessage,
    LiveTask,
    Message,
    ResultMessage,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserMessage,
)

Uuids: TypeAlias = tuple[str, ...]
"""Uuids of prompts."""

MAX_TASKS = 1024
"""Tasks that are remembered. The oldest one that has ended is forgotten first."""

_ENDED = frozenset({"completed", "failed", "killed"})
"""The statuses of tasks that have ended."""

_COMMON = (
    *("task_id", "run_id", "task_type", "subagent_type"),
    *("description", "parent_task_id", "ambient"),
)
"""The fields that messages about the start of a task and lists of tasks have."""


class Task(Struct, eq=False):
    """What the engine knows of one task."""

    task_id: str
    #: The tool call that started it.
    call: str | None = None
    #: The prompts that started it. None if they are not known.
    prompts: Uuids | None = None
    #: What the program sees of it. None once it has ended.
    shown: LiveTask | None = None
    #: True until the CLI has told the model, or us in a notification, that it has ended.
    is_alive: bool = False
    #: True if it runs on after its tool call had a result, or its turn ended.
    is_in_background: bool = False
    #: True from its start until the notification of its end.
    is_costly: bool = False


class Tasks:
    """The tasks of one session.

    When a task ends in the background, the CLI notifies the model: in the running turn if a tool
    runs there, else in a turn of its own, one for each task. The difference is visible only if the
    CLI ``echoes`` what it sends to the model, as it does in a session. Otherwise such a turn is
    known only once it is announced.
    """

    def __init__(self, agents: AgentBook | None = None, *, echoes: bool = True) -> None:
        self._agents = agents or AgentBook()
        self._echoes = echoes
        self._records: dict[str, Task] = {}
        #: The tasks whose prompts are known, by the tool call that started them.
        self.by_call: dict[str, Task] = {}
        #: Tasks that ended in the background and whose turn has not ended yet, in that order.
        self.announced: list[Task] = []
        #: True if a task has ended and the model may not know it. The CLI tells the model with the
        #: next tool results of the main agent, or begins a turn about it.
        self.has_news = False

    # -- state ---------------------------------------------------------------------------------

    def list(self) -> list[LiveTask]:
        """Return the running tasks, the oldest first."""
        path = self._agents.path_of_task
        shown = [task.shown for task in self._records.values() if task.shown is not None]
        return [structs.replace(task, agent_path=path(task.task_id)) for task in shown]

    @property
    def is_busy(self) -> bool:
        """True if a task runs, other than the ambient ones that the CLI starts for itself."""
        records = self._records.values()
        return any(task.shown is not None and not task.shown.ambient for task in records)

    @property
    def is_alive(self) -> bool:
        """True while a task runs whose end the model does not know."""
        return any(task.is_alive for task in self._records.values())

    @property
    def is_costly(self) -> bool:
        """True while a task may cause costs."""
        return any(task.is_costly for task in self._records.values())

    @property
    def reported(self) -> Uuids:
        """Return the prompts whose task a turn of the CLI's own is about, if one runs now."""
        return (self.announced[0].prompts or ()) if self.announced else ()

    def prompts_of(self, call: str | None) -> Uuids | None:
        """Return the prompts that started a task by this tool call. None if none is known."""
        task = self.by_call.get(call or "")
        return None if task is None else task.prompts

    def of_message(self, message: Message) -> Uuids | None:
        """Return the prompts that started the task of a message. None if it belongs to no task."""
        for name in ("parent_tool_use_id", "tool_use_id"):
            prompts = self.prompts_of(getattr(message, name, None))
            if prompts is not None:
                return prompts
        return None

    def has_tasks(self, uuid: str) -> bool:
        """Return True if a task that was started for this prompt runs or has to be reported."""
        return any(uuid in (task.prompts or ()) for task in self.by_call.values())

    # -- inputs --------------------------------------------------------------------------------

    def observe(
        self, message: Message, running: Uuids = (), *, is_between_turns: bool = False
    ) -> None:
        """Take the next message, which arrives in the turn of the prompts ``running``."""
        if type(message) is TaskStartedMessage:
            self._on_start(message, running)
        elif type(message) is TaskNotificationMessage:
            self._on_notification(message, is_between_turns=is_between_turns)
        elif (observe := self._OBSERVERS.get(type(message))) is not None:
            observe(self, message)

    def clear(self) -> None:
        """Forget all tasks, because the CLI has exited."""
        self._records.clear()
        self.by_call.clear()
        self.announced.clear()

    def _on_start(self, message: TaskStartedMessage, running: Uuids) -> None:
        task = self._record(message.task_id)
        in_background = message.is_backgrounded
        if in_background is None and task.shown is not None:
            in_background = task.shown.is_backgrounded
        shown = _shown(message, is_backgrounded=in_background)
        self._show(
            task, structs.replace(shown, prompt=message.prompt, tool_use_id=message.tool_use_id)
        )
        task.is_alive = task.is_costly = True
        if message.tool_use_id:
            task.call = message.tool_use_id
            # A subagent in the background may start tasks while another prompt runs.
            path = message.agent_path
            started_in = self.prompts_of(path[0].id) if path else None
            task.prompts = (running or self.reported) if started_in is None else started_in
            keep(self.by_call, task.call, task, MAX_TASKS)

    def _on_progress(self, message: TaskProgressMessage) -> None:
        named = {name: getattr(message, name) for name in ("last_tool_name", "summary", "usage")}
        self._change(message.task_id, activity=message.description or None, **named)

    def _on_update(self, message: TaskUpdatedMessage) -> None:
        patch = message.patch
        status, description = patch.get("status"), patch.get("description")
        moved = patch.get("is_backgrounded")
        if "end_time" in patch or (isinstance(status, str) and status in _ENDED):
            self.has_news = True
            if (task := self._records.get(message.task_id)) is not None:
                task.shown = None
                task.is_alive = task.is_alive and (self._echoes or "end_time" not in patch)
            return
        self._change(
            message.task_id,
            status=status if isinstance(status, str) else None,
            description=description if isinstance(description, str) else None,
            is_backgrounded=moved if isinstance(moved, bool) else None,
        )

    def _on_notification(self, message: TaskNotificationMessage, *, is_between_turns: bool) -> None:
        """Note the end of a task. A task that ended in the foreground is part of its turn.

        A stopped task is not announced.
        """
        self.has_news = True
        task = self._record(message.task_id)
        was_in_background = task.is_in_background or is_between_turns
        task.shown = None
        task.is_alive = task.is_costly = task.is_in_background = False
        task.call = message.tool_use_id or task.call
        if was_in_background and message.status != "stopped" and task not in self.announced:
            self.announced.append(task)
        if task not in self.announced:
            self._forget(task)

    def _on_list(self, message: BackgroundTasksChangedMessage) -> None:
        """Replace the tasks in the background. The list does not contain other tasks."""
        listed = {task.task_id for task in message.tasks}
        for known in self._records.values():
            if known.task_id not in listed:
                known.is_alive = False
                if known.shown is not None and known.shown.is_backgrounded:
                    known.shown = None
                    self.has_news = True
        for item in message.tasks:
            task = self._record(item.task_id)
            task.is_alive = task.is_in_background = True
            if task.shown is None:  # a task is listed before it is announced
                self._show(task, _shown(item, is_backgrounded=True))
            else:
                self._change(item.task_id, is_backgrounded=True, ambient=item.ambient or None)

    def _on_user(self, message: UserMessage) -> None:
        """Note the tasks that an echo tells the model about, or whose call has a result."""
        if message.is_replay:
            origin = message.origin
            # 2.1.197 sends no origin. Its notice has the id of the task in an element.
            told = [task for task in self._records.values() if self._is_told(task, message.text)]
            if origin is not None and origin.kind == "task-notification":
                told = told or self.announced[:1]
            elif origin is not None:
                told.clear()
            for task in told:
                task.is_alive = False
                if task in self.announced:
                    self._forget(task)
            return
        if message.parent_tool_use_id is None:
            self.has_news = False
        if self._records and not isinstance(message.content, str):
            done = {one.tool_use_id for one in message.content if isinstance(one, ToolResultBlock)}
            for task in self._records.values():
                if task.is_alive and task.call in done:
                    task.is_in_background = True

    def _is_told(self, task: Task, text: str) -> bool:
        return (task.is_alive or task in self.announced) and f">{task.task_id}<" in text

    def _on_result(self, message: ResultMessage) -> None:
        for task in self._records.values():
            task.is_in_background = task.is_in_background or task.is_alive
        if message.origin is not None:
            self.has_news = False
        reported = self.announced[:1] if message.origin is not None else self.announced[:]
        if message.origin is not None or not self._echoes:
            for task in reported:
                self._forget(task)

    # -- records -------------------------------------------------------------------------------

    def _record(self, task_id: str) -> Task:
        """Return the record of a task."""
        task = self._records.get(task_id)
        if task is None:
            if len(self._records) >= MAX_TASKS:
                ended = (one for one in self._records.values() if one.shown is None)
                oldest = next(ended, None) or next(iter(self._records.values()))
                self._forget(oldest)
                self._records.pop(oldest.task_id, None)
            task = self._records[task_id] = Task(task_id)
        return task

    def _show(self, task: Task, shown: LiveTask) -> None:
        """List a task. One that had ended is the newest now."""
        if task.shown is None:
            self._records[task.task_id] = self._records.pop(task.task_id)
        task.shown = shown

    def _change(self, task_id: str, **values: object) -> None:
        """Set the values that are not None, if the task runs."""
        task = self._records.get(task_id)
        if task is not None and task.shown is not None:
            given = {name: value for name, value in values.items() if value is not None}
            task.shown = structs.replace(task.shown, **given)

    def _forget(self, task: Task) -> None:
        """Note that no turn about a task will follow. Forget it unless it may be heard of again."""
        if task in self.announced:
            self.announced.remove(task)
        for call in [call for call, one in self.by_call.items() if one is task]:
            del self.by_call[call]
        task.prompts = None
        if not (task.shown or task.is_alive or task.is_in_background or task.is_costly):
            self._records.pop(task.task_id, None)

    _OBSERVERS: ClassVar[dict[type[Message], Callable[[Tasks, Any], None]]] = {
        TaskProgressMessage: _on_progress,
        TaskUpdatedMessage: _on_update,
        BackgroundTasksChangedMessage: _on_list,
        UserMessage: _on_user,
        ResultMessage: _on_result,
    }

    KINDS: ClassVar[tuple[type[Message], ...]] = (
        *(TaskStartedMessage, TaskProgressMessage, TaskUpdatedMessage),
        *(TaskNotificationMessage, BackgroundTasksChangedMessage),
    )
    """The kinds of message about tasks."""


def _shown(task: Any, *, is_backgrounded: bool | None) -> LiveTask:
    """Return what a message says about a task when it starts or is listed."""
    return LiveTask(
        **{name: getattr(task, name) for name in _COMMON}, is_backgrounded=is_backgrounded
    )
