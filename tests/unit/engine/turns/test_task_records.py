"""The running tasks of a session: `session.tasks.list()`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridle._engine.turns.subagents import AgentBook
from bridle._engine.turns.task_records import MAX_TASKS, Tasks
from bridle.messages import LiveTask, Message, Subagent, TaskStartedMessage, TaskUsage


class Book:
    """The tasks, and the subagents that they belong to."""

    def __init__(self) -> None:
        self.agents = AgentBook()
        self.tasks = Tasks(self.agents)

    def tell(self, subtype: str, task_id: str | None = "t", **members: Any) -> list[LiveTask]:
        wire = {"type": "system", "subtype": subtype, **members}
        if task_id is not None:
            wire["task_id"] = task_id
        message = self.agents.decode(msgspec.json.encode(wire))
        assert isinstance(message, Message)
        self.tasks.observe(message)
        return self.tasks.list()

    def background(self, *tasks: str) -> list[LiveTask]:
        listed = [{"task_id": each, "task_type": "local_bash"} for each in tasks]
        return self.tell("background_tasks_changed", None, tasks=listed)


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_task_that_started_is_listed(book: Book) -> None:
    assert book.tell(
        "task_started",
        run_id="r",
        tool_use_id="call",
        task_type="local_agent",
        subagent_type="Explore",
        description="look",
        prompt="look around",
        is_backgrounded=False,
    ) == [
        LiveTask(
            task_id="t",
            run_id="r",
            tool_use_id="call",
            task_type="local_agent",
            subagent_type="Explore",
            description="look",
            prompt="look around",
            is_backgrounded=False,
            agent_path=(Subagent("call", "Explore"),),
        )
    ]


@pytest.mark.parametrize(
    ("subtype", "members"),
    [
        ("task_notification", {"status": "completed"}),
        ("task_notification", {"status": "stopped"}),
        ("task_updated", {"patch": {"status": "completed", "end_time": 5}}),
        ("task_updated", {"patch": {"status": "killed"}}),
        ("task_updated", {"patch": {"status": "failed"}}),
        ("task_updated", {"patch": {"end_time": 5}}),
    ],
)
def test_a_task_that_ended_is_not_listed(book: Book, subtype: str, members: dict[str, Any]) -> None:
    book.tell("task_started", "other")
    book.tell("task_started")
    assert [task.task_id for task in book.tell(subtype, **members)] == ["other"]


def test_progress_and_updates_change_a_task(book: Book) -> None:
    book.tell("task_started", description="d", is_backgrounded=False)
    book.tell(
        "task_progress",
        description="Running ls",
        last_tool_name="Bash",
        usage={"total_tokens": 9},
        summary="looks",
    )
    (task,) = book.tell("task_updated", patch={"status": "paused", "is_backgrounded": True})
    assert task == LiveTask(
        task_id="t",
        description="d",
        activity="Running ls",
        last_tool_name="Bash",
        usage=TaskUsage(9),
        summary="looks",
        status="paused",
        is_backgrounded=True,
    )


def test_values_of_the_wrong_type_change_nothing(book: Book) -> None:
    (before,) = book.tell("task_started", description="d")
    patch = {"status": 5, "description": [], "is_backgrounded": "yes"}
    assert book.tell("task_updated", patch=patch) == [before]


def test_an_event_of_an_unknown_task_lists_nothing(book: Book) -> None:
    assert book.tell("task_progress", description="late") == []
    assert book.tell("task_updated", patch={"status": "running"}) == []
    assert book.tell("task_notification", status="completed") == []


def test_the_list_of_background_tasks_replaces_those_in_the_background(book: Book) -> None:
    book.tell("task_started", "foreground", is_backgrounded=False)
    book.tell("task_started", "gone", is_backgrounded=True)
    book.tell("task_started", "moved", is_backgrounded=False)
    listed = book.background("moved", "new")
    assert [(task.task_id, task.is_backgrounded) for task in listed] == [
        ("foreground", False),
        ("moved", True),
        ("new", True),
    ]
    # 2.1.325 lists a background task before it announces it.
    (*_, new) = book.tell("task_started", "new", tool_use_id="call", description="d")
    assert (new.tool_use_id, new.description, new.is_backgrounded) == ("call", "d", True)
    assert [task.task_id for task in book.background()] == ["foreground"]


def test_a_task_of_a_subagent_has_its_path(book: Book) -> None:
    book.tell("task_started", "agent", tool_use_id="call", subagent_type="Explore")
    listed = book.tell("task_started", "shell", task_type="local_bash", parent_task_id="agent")
    assert [task.agent_path for task in listed] == [(Subagent("call", "Explore"),)] * 2


def test_nothing_runs_after_the_cli_has_exited(book: Book) -> None:
    book.tell("task_started")
    book.tasks.clear()
    assert book.tasks.list() == []


def test_the_list_is_bounded(book: Book) -> None:
    for number in range(MAX_TASKS + 3):
        book.tasks.observe(TaskStartedMessage(task_id=str(number)))
    listed = book.tasks.list()
    assert (len(listed), listed[0].task_id) == (MAX_TASKS, "3")
