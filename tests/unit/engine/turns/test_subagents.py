"""The subagent of each message: the path that `message.agent_path` returns."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import msgspec
import pytest

from bridle import decode_line
from bridle._engine.delivery.partial_messages import PartialMessages
from bridle._engine.turns import subagents as agents
from bridle._engine.turns.subagents import AgentBook
from bridle.messages import AssistantMessage, KeepAlive, Message, Subagent

A, B, C = Subagent("a", "general-purpose"), Subagent("b", "Explore"), Subagent("c", "reviewer")


def line(type: str, **members: object) -> bytes:
    return msgspec.json.encode({"type": type, **members})


def task(subtype: str, task_id: str, **members: object) -> bytes:
    return line("system", subtype=subtype, task_id=task_id, **members)


def started(call: str, kind: str | None = "general-purpose", **members: object) -> bytes:
    return task(
        "task_started",
        f"task-{call}",
        tool_use_id=call,
        subagent_type=kind,
        task_type="local_agent",
        **members,
    )


def said(parent: str | None, *calls: str, **members: object) -> bytes:
    content = [{"type": "tool_use", "id": call, "name": "Task", "input": {}} for call in calls]
    message = {"id": "m", "content": content}
    return line("assistant", message=message, parent_tool_use_id=parent, **members)


def delta(parent: str | None, text: str = "x") -> bytes:
    change = {"type": "text_delta", "text": text}
    event = {"type": "content_block_delta", "index": 0, "delta": change}
    return line("stream_event", event=event, parent_tool_use_id=parent)


def read(book: AgentBook, *lines: bytes) -> Message:
    """Decode the lines one by one and return the last message."""
    frames = [book.decode(each) for each in lines]
    assert isinstance(frames[-1], Message)
    return frames[-1]


@pytest.mark.parametrize("wire", [said(None), delta(None), line("user"), line("keep_alive")])
def test_a_message_of_the_main_agent_has_an_empty_path(wire: bytes) -> None:
    assert read(AgentBook(), started("a"), wire).agent_path == ()


@pytest.mark.parametrize("wire", [said("a"), delta("a"), line("user", parent_tool_use_id="a")])
def test_a_message_of_a_subagent_names_it(wire: bytes) -> None:
    assert read(AgentBook(), started("a"), wire).agent_path == (A,)


def test_a_nested_subagent_has_the_path_of_its_caller() -> None:
    book = AgentBook()
    last = read(
        book,
        started("a"),
        said("a", "b"),
        started("b", "Explore"),
        said("b", "c"),
        started("c", "reviewer"),
        delta("c"),
    )
    assert last.agent_path == (A, B, C)
    assert read(book, delta("b")).agent_path == (A, B)


def test_siblings_have_different_paths() -> None:
    book = AgentBook()
    read(book, started("a"), started("b", "Explore"))
    assert [read(book, delta(call)).agent_path for call in "abab"] == [(A,), (B,)] * 2


def test_a_nested_subagent_may_be_announced_before_its_call() -> None:
    """2.1.197 sends `task_started` before the message with the tool call."""
    book = AgentBook()
    announced = read(book, started("a"), started("b", "Explore"))
    read(book, said("a", "b"))
    assert announced.agent_path == (A, B)
    assert read(book, delta("b")).agent_path == (A, B)


def test_the_task_of_the_caller_also_tells_the_path() -> None:
    """2.1.325 names the task of the caller, so a missed tool call does not matter."""
    last = read(AgentBook(), started("a"), started("b", "Explore", parent_task_id="task-a"))
    assert last.agent_path == (A, B)


@pytest.mark.parametrize("subtype", ["task_progress", "task_updated", "task_notification"])
def test_messages_about_a_task_come_from_its_subagent(subtype: str) -> None:
    last = read(AgentBook(), started("a"), task(subtype, "task-a", tool_use_id="a"))
    assert last.agent_path == (A,)


def test_messages_about_a_shell_come_from_the_agent_that_started_it() -> None:
    book = AgentBook()
    read(book, started("a"), said("a", "sh"))
    begin = task("task_started", "s", tool_use_id="sh", task_type="local_bash")
    assert read(book, begin).agent_path == (A,)
    assert read(book, task("task_updated", "s", patch={"status": "killed"})).agent_path == (A,)
    assert (book.path_of_task("s"), book.path_of_task("task-a")) == ((A,), (A,))
    mine = task("task_started", "t", tool_use_id="mine", task_type="local_bash")
    assert read(book, mine).agent_path == ()
    assert book.path_of_task("t") == ()


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"tool_use_id": "sh-heartbeat-0", "parent_tool_use_id": "sh", "heartbeat": True}, (A,)),
        ({"tool_use_id": "a-heartbeat-0", "parent_tool_use_id": "a", "heartbeat": True}, ()),
        ({"tool_use_id": "sh", "parent_tool_use_id": "a"}, (A,)),
        ({"tool_use_id": "sh", "parent_tool_use_id": None}, (A,)),
        ({"tool_use_id": "mine", "parent_tool_use_id": None}, ()),
    ],
)
def test_progress_of_a_tool_comes_from_the_agent_that_called_it(
    members: dict[str, object], path: tuple[Subagent, ...]
) -> None:
    book = AgentBook()
    read(book, started("a"), said("a", "sh"))
    assert read(book, line("tool_progress", **members)).agent_path == path


@pytest.mark.parametrize("ids", [{"agent_id": "task-a"}, {"tool_use_id": "sh"}])
def test_a_denied_call_of_a_subagent_has_its_path(ids: dict[str, str]) -> None:
    book = AgentBook()
    read(book, started("a"), said("a", "sh"))
    denied = line("system", subtype="permission_denied", **ids)
    assert read(book, denied).agent_path == (A,)


def test_a_note_about_a_call_of_a_subagent_has_its_path() -> None:
    book = AgentBook()
    read(book, started("a"), said("a", "sh"))
    note = line("system", subtype="informational", tool_use_id="sh")
    assert read(book, note).agent_path == (A,)


def test_the_type_of_a_subagent_may_be_known_later() -> None:
    book = AgentBook()
    first = read(book, started("a", None), delta("a"))
    assert first.agent_path == (Subagent("a"),)
    read(book, said("a", subagent_type="general-purpose"))
    assert first.agent_path == (A,)


def test_a_subagent_that_was_never_announced_is_known_by_its_messages() -> None:
    last = read(AgentBook(), line("user", parent_tool_use_id="a"), delta("a"))
    assert last.agent_path == (Subagent("a"),)


def test_a_message_decoded_alone_names_only_its_own_subagent() -> None:
    """`decode_line` has no session that knows the callers."""
    for wire, path in [
        (said("c", subagent_type="reviewer"), (C,)),
        (said(None), ()),
        (line("tool_progress", parent_tool_use_id="sh", heartbeat=True), ()),
        (started("a"), ()),
    ]:
        message = decode_line(wire)
        assert isinstance(message, Message)
        assert message.agent_path == path
    assert KeepAlive().agent_path == ()


def test_many_lines_are_placed_as_each_of_them_is() -> None:
    book = AgentBook()
    lines = [said(None, "a"), started("a"), said("a", "b"), started("b", "Explore"), delta("b")]
    frames, kinds = book.decode_all(lines)
    assert [frame.agent_path for frame in frames] == [(), (A,), (A,), (A, B), (A, B)]
    assert kinds == set(map(type, frames))
    frames, _ = book.decode_all([delta("a"), delta(None), delta("b")])
    assert [frame.agent_path for frame in frames] == [(A,), (), (A, B)]


def test_a_line_that_is_decoded_again_gets_its_path_again() -> None:
    """Unread messages are kept as lines and decoded when a reader takes them."""
    book = AgentBook()
    lines = [started("a"), said("a", "b"), started("b", "Explore"), delta("b")]
    book.decode_all(lines)
    frames, _ = book.decode_all(lines)
    assert frames[-1].agent_path == (A, B)


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_and_pickles_keep_the_path(clone: Callable[[Message], Message]) -> None:
    last = read(AgentBook(), started("a"), said("a", "b"), started("b", "Explore"), said("b"))
    again = clone(last)
    assert (again, again.agent_path, again.raw) == (last, (A, B), last.raw)


def test_a_partial_message_has_the_path_of_its_events() -> None:
    book, partial = AgentBook(), PartialMessages()
    start = line("stream_event", event={"type": "message_start", "message": {}})
    block = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
    read(book, started("a"), said("a", "b"), started("b", "Explore"))
    found: list[AssistantMessage | None] = []
    for wire in (start, line("stream_event", event=block)):
        members = msgspec.json.decode(wire)
        again = msgspec.json.encode({**members, "parent_tool_use_id": "b"})
        found.append(partial.feed(read(book, again)))
    assert [each and each.agent_path for each in found] == [(A, B)] * 2


def test_a_call_that_starts_itself_does_not_hang() -> None:
    """A broken CLI must not stop the program."""
    book = AgentBook()
    last = read(book, started("a"), said("a", "a"), said("a", "b"), said("b", "a"))
    assert len(last.agent_path) == 2
    assert read(book, delta("a")).agent_path[-1] == A


def test_the_book_is_bounded() -> None:
    book = AgentBook()
    for number in range(agents.MAX_AGENTS + 10):
        read(book, started(f"agent-{number}"), said(f"agent-{number}", *"12345"))
    for number in range(agents.MAX_CALLS + 10):
        read(book, said("agent-1", f"call-{number}"))
    sizes = {name: len(value) for name, value in vars(book).items()}
    assert sizes == {
        "_agents": agents.MAX_AGENTS,
        "_callers": agents.MAX_CALLS,
        "_tasks": agents.MAX_AGENTS,
    }
    # A subagent that was forgotten is still named by its own messages.
    assert read(book, delta("agent-0")).agent_path == (Subagent("agent-0"),)
