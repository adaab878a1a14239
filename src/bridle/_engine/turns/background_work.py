"""Know which tasks run in the background, which the CLI still has to report, and whose they are.

A subagent in the background may call tools while another prompt runs. When it ends, the CLI runs a
turn of its own about it, possibly after other prompts. Both belong to the prompt that started it.
"""

from __future__ import annotations

from bridle._engine.turns.live_tasks import MAX_TASKS
from bridle._engine.turns.subagents import keep
from bridle.content import ToolResultBlock
from bridle.messages import (
    BackgroundTasksChangedMessage,
    Message,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserMessage,
)

Uuids = tuple[str, ...]
"""Uuids of prompts."""


class BackgroundWork:
    """The background tasks of one conversation, and those that the CLI still has to report.

    A task is in the background if it still runs after its tool call has a result or its turn has
    ended. When it ends, the CLI notifies the model: in the running turn if a tool runs there, else
    in a turn of its own, one for each task. The difference is visible only if the CLI ``echoes``
    what it sends to the model, as it does in a session. Otherwise a follow-up turn is known only
    once it is announced.
    """

    def __init__(self, *, echoes: bool = True) -> None:
        self._echoes = echoes
        # The running tasks, each with the id of the tool call that started it.
        self._living: dict[str, str | None] = {}
        self._in_background: set[str] = set()
        #: Tasks that ended in the background and whose turn has not ended yet, in that order, each
        #: with the id of the tool call that started it.
        self.announced: dict[str, str | None] = {}

    def observe(self, message: Message) -> None:
        """Observe the next message of the session."""
        if isinstance(message, TaskStartedMessage):
            self._living[message.task_id] = message.tool_use_id
            if len(self._living) > MAX_TASKS:
                del self._living[next(iter(self._living))]
                self._in_background.intersection_update(self._living)
        elif isinstance(message, TaskUpdatedMessage):
            if not self._echoes and "end_time" in message.patch:
                self._living.pop(message.task_id, None)
        elif isinstance(message, TaskNotificationMessage):
            self._observe_end(message)
        elif isinstance(message, BackgroundTasksChangedMessage):
            listed = [task.task_id for task in message.tasks]
            self._living = {task: self._living.get(task) for task in listed}
            self._in_background.update(listed)
        elif isinstance(message, UserMessage):
            self._observe_words(message)
        elif isinstance(message, ResultMessage):
            self._observe_result(message)

    def announce(self, message: TaskNotificationMessage) -> None:
        """Note a task that ended between two turns. A stopped task is not announced."""
        self._living.pop(message.task_id, None)
        self._in_background.discard(message.task_id)
        if message.status != "stopped":
            self.announced[message.task_id] = message.tool_use_id

    def _observe_end(self, message: TaskNotificationMessage) -> None:
        # A task that ended in the foreground is part of its turn.
        if message.task_id in self._in_background:
            self.announce(message)
        self._living.pop(message.task_id, None)

    def _observe_words(self, message: UserMessage) -> None:
        if message.is_replay:
            origin = message.origin
            tasks = (*self._living, *self.announced)
            told = {task for task in tasks if f">{task}<" in message.text}
            if origin is not None and origin.kind == "task-notification":
                told = told or set([*self.announced][:1])
            elif origin is not None:
                told.clear()
            # 2.1.197 sends no origin. Its notice has the id of the task in an element.
            for task in told:
                self._living.pop(task, None)
                self.announced.pop(task, None)
        elif self._living and not isinstance(message.content, str):
            done = {one.tool_use_id for one in message.content if isinstance(one, ToolResultBlock)}
            self._in_background |= {task for task, call in self._living.items() if call in done}

    def _observe_result(self, message: ResultMessage) -> None:
        self._in_background.update(self._living)
        if message.origin is not None:
            self.announced.pop(next(iter(self.announced), ""), None)
        elif not self._echoes:
            self.announced.clear()

    @property
    def is_working(self) -> bool:
        """True while background work runs."""
        return bool(self._living)

    @property
    def is_pending(self) -> bool:
        """True while background work runs, or its follow-up turn has not run yet."""
        return self.is_working or bool(self.announced)

    def clear(self) -> None:
        """Forget all tasks, because the CLI has exited."""
        self._living.clear()
        self._in_background.clear()
        self.announced.clear()


class TaskTurns:
    """The prompts that started the tasks of one session, by the tool call of the task."""

    def __init__(self) -> None:
        self._turns: dict[str, Uuids] = {}
        self._work = BackgroundWork()

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def is_report_due(self) -> bool:
        """True if a task has ended and the CLI will run a turn of its own about it."""
        return bool(self._work.announced)

    @property
    def reported(self) -> Uuids:
        """Return the prompts whose task a turn of the CLI's own is about, if one runs now."""
        for call in self._work.announced.values():
            return self._turns.get(call or "", ())
        return ()

    def of_call(self, call: str | None) -> Uuids:
        """Return the prompts that started a task by this tool call. Empty if none is known."""
        return self._turns.get(call or "", ())

    def of_message(self, message: Message) -> Uuids | None:
        """Return the prompts that started the task of a message. None if it belongs to no task."""
        for name in ("parent_tool_use_id", "tool_use_id"):
            turns = self._turns.get(getattr(message, name, None) or "")
            if turns is not None:
                return turns
        return None

    def has_tasks(self, uuid: str) -> bool:
        """Return True if a task that was started for this prompt runs or has to be reported."""
        return any(uuid in turns for turns in self._turns.values())

    def start(self, message: TaskStartedMessage, running: Uuids) -> None:
        """Note a task that starts in the turn of these prompts."""
        self._work.observe(message)
        if message.tool_use_id:
            # A subagent in the background may start tasks while another prompt runs.
            path = message.agent_path
            outermost = path[0].id if path else ""
            turns = self._turns.get(outermost, running or self.reported)
            keep(self._turns, message.tool_use_id, turns, MAX_TASKS)

    def end(self, message: TaskNotificationMessage, *, is_between_turns: bool) -> None:
        """Note the end of a task. Forget it now if no turn of the CLI's own follows."""
        if is_between_turns:
            # No turn follows the end of a task in the foreground, or of a stopped task.
            self._work.announce(message)
        else:
            self._work.observe(message)
        if message.task_id not in self._work.announced:
            self._turns.pop(message.tool_use_id or "", None)

    def observe(self, message: Message) -> None:
        """Note another message about tasks, what the CLI tells the model, or a result."""
        due = dict(self._work.announced)
        self._work.observe(message)
        for task, call in due.items():
            if task not in self._work.announced:
                self._turns.pop(call or "", None)

    def clear(self) -> None:
        """Forget all tasks, because the CLI has exited."""
        self._turns.clear()
        self._work.clear()
