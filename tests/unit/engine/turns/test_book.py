"""Whose turn it is and how it ended, as two flavours of the CLI tell it.

Each story is what the application sends (a uuid) and what the CLI writes (lines), in the order of
real recordings. A newer CLI names the prompts of its turns; an older one repeats prompts and
leaves the rest to their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from tests.support import cli
from tests.support.cli import (
    aborted,
    assistant,
    echo,
    feed,
    follow_up,
    init,
    lifecycle,
    only,
    result,
    running,
    synthetic,
    system,
    user,
)

from bridle._engine.actions import Action, Deliver, Outbox, TurnEnded
from bridle._engine.turns.book import TurnBook
from bridle._engine.turns.subagents import AgentBook
from bridle.messages import Message, ResultMessage
from bridle.outcomes import Outcome, OutcomeReason

Step = str | bytes
Ends = list[tuple[str, str, tuple[str, ...]]]

TOOL_RESULT = user("tool output")
NOTICE = system("task_notification", task_id="t", tool_use_id="tool", status="completed")
STARTED = system("task_started", task_id="t", tool_use_id="tool")
COMPACTED = system("compact_boundary")
BLOCKED = "UserPromptSubmit operation blocked by hook:\nno"
SUBAGENT_ERROR = assistant(error="server_error", parent_tool_use_id="x")
STOPPED = "Operation stopped by hook: no"


def play(info: cli.Json, steps: Sequence[Step]) -> list[Action]:
    engine = running(info)
    actions: list[Action] = []
    for now, step in enumerate(steps):
        if isinstance(step, str):
            actions += engine.send(step, step, "prompt", float(now))
        else:
            actions += feed(engine, float(now), *step.splitlines(keepends=True))
    return actions


def ends(actions: list[Action]) -> Ends:
    """Uuid, reason and companions of each outcome, in order."""
    outcomes = [one.outcome for one in only(TurnEnded, actions)]
    return [(one.uuid or "", str(one.reason), one.merged_with) for one in outcomes]


def informational(**members: object) -> bytes:
    return system("informational", content="x", prevent_continuation=True, **members)


def local(*uuids: str, **members: object) -> bytes:
    """The result of what the CLI did without the model."""
    return result(*uuids, terminal_reason=None, num_turns=0, **members)


def completed(*uuids: str) -> Ends:
    """Each of these as a turn of its own."""
    return [(uuid, "completed", ()) for uuid in uuids]


class Story(NamedTuple):
    newer: Sequence[Step]
    older: Sequence[Step]
    ends: Ends
    #: Where an older CLI does something else.
    older_ends: Ends | None = None


def turn(uuid: str, *, names: bool) -> bytes:
    """A plain turn of one prompt."""
    named = (uuid,) if names else ()
    if not names:
        return init() + echo(uuid) + assistant() + result()
    return (
        lifecycle(uuid, "queued", "started")
        + init(*named)
        + echo(uuid)
        + assistant(user_message_uuids=[uuid])
        + result(*named)
        + lifecycle(uuid, "completed")
    )


MERGED: Ends = [
    ("a", "completed", ()),
    ("b", "completed", ("c",)),
    ("c", "completed", ("b",)),
]

STORIES = {
    "one prompt": Story(
        newer=["a", turn("a", names=True)],
        older=["a", turn("a", names=False)],
        ends=completed("a"),
    ),
    "one after another": Story(
        newer=["a", turn("a", names=True), "b", turn("b", names=True)],
        older=["a", turn("a", names=False), "b", turn("b", names=False)],
        ends=completed("a", "b"),
    ),
    "three at once: the waiting ones are merged": Story(
        newer=[
            *"abc",
            lifecycle("a", "queued", "started")
            + lifecycle("b", "queued")
            + lifecycle("c", "queued"),
            init("a") + echo("a") + assistant() + result("a") + lifecycle("a", "completed"),
            echo("b") + lifecycle("b", "started") + lifecycle("c", "started") + init("b", "c"),
            echo("c") + assistant() + result("b", "c"),
            lifecycle("b", "completed") + lifecycle("c", "completed"),
        ],
        older=[
            *"abc",
            init() + echo("a") + assistant() + result(),
            echo("b") + init() + echo("c") + assistant() + result(),
        ],
        ends=MERGED,
    ),
    "four at once": Story(
        newer=[
            *"abcd",
            init("a") + echo("a") + assistant() + result("a"),
            echo("b") + echo("c") + init("b", "c", "d") + echo("d") + result("b", "c", "d"),
        ],
        older=[
            *"abcd",
            init() + echo("a") + assistant() + result(),
            echo("b") + echo("c") + init() + echo("d") + assistant() + result(),
        ],
        ends=[
            *completed("a"),
            ("b", "completed", ("c", "d")),
            ("c", "completed", ("b", "d")),
            ("d", "completed", ("b", "c")),
        ],
    ),
    "a prompt while a tool runs is folded in": Story(
        newer=[
            "a",
            lifecycle("a", "queued", "started") + init("a") + echo("a") + assistant(),
            "b",
            lifecycle("b", "queued") + TOOL_RESULT + echo("b") + lifecycle("b", "started"),
            assistant() + lifecycle("b", "completed") + result("a", "b"),
            lifecycle("a", "completed"),
        ],
        older=[
            "a",
            init() + echo("a") + assistant(),
            "b",
            TOOL_RESULT + echo("b") + assistant() + result(),
        ],
        ends=[("a", "completed", ("b",)), ("b", "completed", ("a",))],
    ),
    "an interrupted turn, another prompt waits": Story(
        newer=[
            *"ab",
            lifecycle("a", "queued", "started") + lifecycle("b", "queued") + init("a") + echo("a"),
            user("[Request interrupted by user]") + aborted("a") + lifecycle("a", "cancelled"),
            lifecycle("b", "started") + init("b") + echo("b") + assistant() + result("b"),
        ],
        older=[
            *"ab",
            init() + echo("a") + user("[Request interrupted by user]") + aborted(),
            init() + echo("b") + assistant() + result(),
        ],
        ends=[("a", "interrupted", ()), *completed("b")],
    ),
    "the queue is cancelled with the turn": Story(
        newer=[
            *"abc",
            lifecycle("a", "queued", "started") + init("a") + echo("a"),
            lifecycle("b", "queued", "cancelled") + lifecycle("c", "queued", "cancelled"),
            aborted("a") + lifecycle("a", "cancelled"),
        ],
        older=[
            *"abc",
            init() + echo("a") + aborted(),
            echo("b") + init() + echo("c") + assistant() + result(),
        ],
        ends=[("b", "interrupted", ()), ("c", "interrupted", ()), ("a", "interrupted", ())],
        older_ends=[("a", "interrupted", ()), *MERGED[1:]],
    ),
    "background work has a turn of its own": Story(
        newer=[
            "a",
            turn("a", names=True),
            NOTICE + init() + assistant() + follow_up(),
            "b",
            turn("b", names=True),
        ],
        older=[
            "a",
            turn("a", names=False),
            NOTICE + init() + assistant() + follow_up(),
            "b",
            turn("b", names=False),
        ],
        ends=completed("a", "b"),
    ),
    "a prompt during the turn of background work waits for its own": Story(
        newer=[
            "a",
            turn("a", names=True) + NOTICE + init(),
            "b",
            lifecycle("b", "queued") + assistant() + follow_up() + turn("b", names=True),
        ],
        older=[
            "a",
            turn("a", names=False) + NOTICE + init(),
            "b",
            assistant() + follow_up() + turn("b", names=False),
        ],
        ends=completed("a", "b"),
    ),
    "a prompt while a tool of background work runs is folded in": Story(
        newer=[
            "a",
            turn("a", names=True) + NOTICE + init() + assistant(),
            "b",
            lifecycle("b", "queued") + TOOL_RESULT + echo("b") + lifecycle("b", "started"),
            assistant(user_message_uuids=["b"]) + lifecycle("b", "completed") + follow_up("b"),
        ],
        older=[
            "a",
            turn("a", names=False) + NOTICE + init() + assistant(),
            "b",
            TOOL_RESULT + echo("b") + assistant() + follow_up(),
        ],
        ends=completed("a", "b"),
    ),
    "a prompt and a notification both wait, the notification first": Story(
        newer=[
            "a",
            turn("a", names=True) + NOTICE,
            "b",
            lifecycle("b", "queued") + init() + assistant() + follow_up() + turn("b", names=True),
        ],
        older=[
            "a",
            turn("a", names=False) + NOTICE,
            "b",
            init() + assistant() + follow_up() + turn("b", names=False),
        ],
        ends=completed("a", "b"),
    ),
    "a prompt and a notification both wait, the prompt first": Story(
        newer=[
            "a",
            turn("a", names=True) + NOTICE,
            "b",
            turn("b", names=True) + init() + assistant() + follow_up(),
        ],
        older=[
            "a",
            turn("a", names=False) + NOTICE,
            "b",
            turn("b", names=False) + init() + assistant() + follow_up(),
        ],
        ends=completed("a", "b"),
    ),
    "a notification folded into a turn is nobody's prompt": Story(
        newer=[
            "a",
            init("a") + echo("a") + assistant() + TOOL_RESULT,
            echo("foreign", "<task-notification>") + assistant() + result("a"),
        ],
        older=[
            "a",
            init() + echo("a") + assistant() + TOOL_RESULT,
            echo("foreign", "<task-notification>") + assistant() + result(),
        ],
        ends=completed("a"),
    ),
    "an interrupted turn of background work": Story(
        newer=[
            "a",
            turn("a", names=True) + NOTICE + init(),
            "b",
            follow_up(subtype="error_during_execution", is_error=True) + turn("b", names=True),
        ],
        older=[
            "a",
            turn("a", names=False) + NOTICE + init(),
            "b",
            follow_up(subtype="error_during_execution", is_error=True) + turn("b", names=False),
        ],
        ends=completed("a", "b"),
    ),
    "a blocked prompt": Story(
        newer=[
            *"ab",
            lifecycle("a", "queued", "started") + init("a"),
            informational(prompt_submit_outcome={"kind": "blocked_by_hook", "reason": "no"}),
            local("a", result=BLOCKED) + lifecycle("a", "completed") + turn("b", names=True),
        ],
        older=[
            *"ab",
            init() + informational() + local(result=BLOCKED) + turn("b", names=False),
        ],
        ends=[("a", "prompt_blocked", ()), *completed("b")],
    ),
    "a compaction that repeats the notice of a blocked prompt": Story(
        newer=[
            "a",
            lifecycle("a", "queued", "started") + init("a"),
            informational(prompt_submit_outcome={"kind": "blocked_by_hook", "reason": "no"}),
            local("a", result=BLOCKED) + lifecycle("a", "completed"),
            "b",
            lifecycle("b", "queued", "started") + init("b") + COMPACTED,
            informational(prompt_submit_outcome={"kind": "blocked_by_hook", "reason": "no"}),
            local("b", result="") + lifecycle("b", "completed"),
        ],
        older=[
            "a",
            init() + informational() + local(result=BLOCKED),
            "b",
            init() + COMPACTED + informational() + local(result=""),
        ],
        ends=[("a", "prompt_blocked", ()), *completed("b")],
    ),
    "a prompt that a hook stopped": Story(
        newer=[
            "a",
            init("a"),
            informational(prompt_submit_outcome={"kind": "stopped_by_hook", "reason": "no"}),
            echo("a") + local("a", result=STOPPED),
        ],
        older=["a", init() + informational() + local(result=STOPPED)],
        ends=[("a", "stopped_by_hook", ())],
    ),
    "merged prompts that are blocked": Story(
        newer=[
            *"abc",
            turn("a", names=True) + echo("b") + init("b", "c"),
            informational(prompt_submit_outcome={"kind": "blocked_by_hook"}),
            local("b", "c", result=BLOCKED),
        ],
        older=[
            *"abc",
            turn("a", names=False) + echo("b") + init() + informational(),
            local(result=BLOCKED),
        ],
        ends=[
            *completed("a"),
            ("b", "prompt_blocked", ("c",)),
            ("c", "prompt_blocked", ("b",)),
        ],
    ),
    "a prompt blocked on its way into a turn": Story(
        newer=[
            "a",
            lifecycle("a", "queued", "started") + init("a") + echo("a") + assistant(),
            "b",
            lifecycle("b", "queued") + TOOL_RESULT + lifecycle("b", "started", "completed"),
            informational(prompt_submit_outcome={"kind": "blocked_by_hook"}) + assistant(),
            result("a") + lifecycle("a", "completed"),
        ],
        older=[
            "a",
            init() + echo("a") + assistant(),
            "b",
            TOOL_RESULT + echo("b") + assistant() + result(),
        ],
        ends=[("b", "prompt_blocked", ()), *completed("a")],
        older_ends=[("a", "completed", ("b",)), ("b", "completed", ("a",))],
    ),
    "slash commands keep to themselves": Story(
        newer=[
            *"abc",
            turn("a", names=True),
            init("b")
            + assistant()
            + echo("b", "<command-name>")
            + local("b")
            + turn("c", names=True),
        ],
        older=[
            *"abc",
            turn("a", names=False) + init() + synthetic("text") + local() + turn("c", names=False),
        ],
        ends=completed("a", "b", "c"),
    ),
    "a slash command that fails": Story(
        newer=[
            "a",
            init("a") + synthetic("No messages", local_command_outcome={"kind": "failed"}),
            echo("a") + local("a", result=""),
        ],
        older=[
            "a",
            init() + system("status", compact_result="failed", compact_error="Not enough"),
            synthetic("Not enough") + local(result="Not enough"),
        ],
        ends=[("a", "execution_error", ())],
    ),
    "a slash command that does not exist, in other words": Story(
        newer=[
            "a",
            init("a") + synthetic("Not known", local_command_outcome={"kind": "unknown"}),
            echo("a") + local("a", result="Not known"),
        ],
        older=[
            "a",
            init() + synthetic("Unknown command: /a") + local(result="Unknown command: /a"),
        ],
        ends=[("a", "execution_error", ())],
    ),
    "a slash command that needs a terminal": Story(
        newer=[
            "a",
            init("a") + synthetic("No", local_command_outcome={"kind": "unavailable_headless"}),
            echo("a") + local("a", result="No"),
        ],
        older=[
            "a",
            init() + synthetic("Unknown command: /a") + local(result="Unknown command: /a"),
        ],
        ends=[("a", "execution_error", ())],
    ),
    "a slash command that fails in words alone": Story(
        newer=["a", init("a") + synthetic("Error: No messages to compact") + local("a", result="")],
        older=["a", init() + synthetic("Error: No messages to compact") + local(result="")],
        ends=[("a", "execution_error", ())],
    ),
    "an unknown command": Story(
        newer=["a", turn("a", names=True)],
        older=["a", init() + assistant() + local(result="Unknown command: /x")],
        ends=completed("a"),
        older_ends=[("a", "execution_error", ())],
    ),
    "the API fails": Story(
        newer=[
            "a",
            init("a") + echo("a") + assistant(error="authentication_failed"),
            result("a", is_error=True, terminal_reason="api_error", api_error_status=401),
        ],
        older=[
            "a",
            init() + echo("a") + assistant(error="authentication_failed"),
            result(is_error=True, api_error_status=401),
        ],
        ends=[("a", "auth_failed", ())],
    ),
    "an error of the API that was survived": Story(
        newer=["a", init("a") + assistant(error="server_error") + assistant() + result("a")],
        older=["a", init() + echo("a") + assistant(error="server_error") + assistant() + result()],
        ends=completed("a"),
    ),
    "an error of a subagent is not the turn's": Story(
        newer=[
            "a",
            init("a") + assistant(error="server_error", parent_tool_use_id="x") + result("a"),
        ],
        older=[
            "a",
            init() + echo("a") + assistant(error="server_error", parent_tool_use_id="x") + result(),
        ],
        ends=completed("a"),
    ),
    "the budget is spent, then another prompt": Story(
        newer=[
            *"abc",
            init("a") + echo("a") + result("a", subtype="error_max_budget_usd", is_error=True),
            echo("b") + init("b", "c"),
            result("b", "c", subtype="error_max_budget_usd", is_error=True),
        ],
        older=[
            *"abc",
            init() + echo("a") + result(subtype="error_max_budget_usd", is_error=True),
            echo("b") + init() + result(subtype="error_max_budget_usd", is_error=True),
        ],
        ends=[
            ("a", "max_budget", ()),
            ("b", "max_budget", ("c",)),
            ("c", "max_budget", ("b",)),
        ],
    ),
    "a foreign echo of set_model before the turn's own": Story(
        newer=[
            "a",
            init("a") + echo("foreign", "Set model") + echo("a") + assistant() + result("a"),
        ],
        older=["a", init() + echo("foreign", "Set model") + echo("a") + assistant() + result()],
        ends=completed("a"),
    ),
    "a hook ends the turn": Story(
        newer=["a", init("a") + echo("a") + result("a", terminal_reason="hook_stopped")],
        older=["a", init() + echo("a") + result(terminal_reason="hook_stopped")],
        ends=[("a", "stopped_by_hook", ())],
    ),
    "a finished prompt repeated": Story(
        newer=["a", turn("a", names=True) + echo("a", "again"), "b", turn("b", names=True)],
        older=["a", turn("a", names=False) + echo("a", "again"), "b", turn("b", names=False)],
        ends=completed("a", "b"),
    ),
    "no sign but the result": Story(
        newer=["a", result("a")],
        older=["a", result()],
        ends=completed("a"),
    ),
    "only the results of two prompts": Story(
        newer=[*"ab", result("a"), result("b")],
        older=[*"ab", result(), result()],
        ends=completed("a", "b"),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_newer_cli_gives_each_prompt_its_one_outcome(name: str) -> None:
    story = STORIES[name]
    assert ends(play(cli.NEWER, story.newer)) == story.ends


@pytest.mark.parametrize("name", STORIES)
def test_an_older_cli_gives_each_prompt_its_one_outcome(name: str) -> None:
    story = STORIES[name]
    expected = story.ends if story.older_ends is None else story.older_ends
    assert ends(play(cli.OLDER, story.older)) == expected


@pytest.mark.parametrize(
    ("info", "steps", "expected"),
    [
        (cli.NEWER, ["a", init("a")], True),
        (cli.NEWER, ["a", lifecycle("a", "queued")], False),
        (cli.NEWER, ["a", init("a"), result("a")], False),
        (cli.OLDER, ["a", init()], False),  # the order of sending says so, which may be wrong
        (cli.OLDER, ["a", init(), echo("a")], True),
    ],
    ids=["named", "queued", "ended", "likely", "echoed"],
)
def test_a_prompt_runs_for_certain_when_the_cli_names_it(
    info: cli.Json, steps: Sequence[Step], expected: bool
) -> None:
    engine = running(info)
    for step in steps:
        if isinstance(step, str):
            engine.send(step, step, "prompt", 0.0)
        else:
            feed(engine, 0.0, step)
    assert engine.is_running("a") is expected


AGENT = system("task_started", task_id="t", tool_use_id="tool", task_type="local_agent")
NESTED = system("task_started", task_id="n", tool_use_id="inner", task_type="local_agent")


def calls(name: str, parent: str | None = None) -> bytes:
    use = {"type": "tool_use", "id": name, "name": "Task", "input": {}}
    message = {"role": "assistant", "model": "opus", "content": [use]}
    return cli.line(type="assistant", message=message, parent_tool_use_id=parent)


def begin(name: str, info: cli.Json = cli.NEWER) -> bytes:
    return (init(name) if info is cli.NEWER else init()) + echo(name)


def task(name: str, *subtypes: str, **members: object) -> list[Step]:
    """What the CLI says about the task ``name``, which the tool call of this name has started."""
    named = {"task_id": name, "tool_use_id": name, "task_type": "local_agent"}
    return [system(subtype, **named, **members) for subtype in subtypes]


def did(name: str) -> bytes:
    block = {"type": "tool_result", "tool_use_id": name, "content": "it runs in the background"}
    return cli.line(type="user", message={"role": "user", "content": [block]})


class Told:
    """A book of turns, and the prompts and lines that it is told."""

    def __init__(self, *steps: Step) -> None:
        self.agents = AgentBook()
        self.book = TurnBook(Outbox(), self.agents)
        self.tell(*steps)

    def tell(self, *steps: Step) -> None:
        for step in steps:
            if isinstance(step, str):
                self.book.start(step, 0.0)
                continue
            for line in step.splitlines():
                message = self.agents.decode(line)
                if isinstance(message, ResultMessage):
                    self.book.result(message, 0.0)
                else:
                    assert isinstance(message, Message)
                    self.book.deliver(message)


@pytest.mark.parametrize("info", [cli.NEWER, cli.OLDER], ids=["newer", "older"])
def test_a_background_subagent_belongs_to_the_prompt_that_started_it(info: cli.Json) -> None:
    a: list[Step] = ["a", begin("a", info), calls("tool"), AGENT, result("a")]
    b: list[Step] = ["b", begin("b", info), calls("own")]
    below: list[Step] = [calls("inner", "tool"), NESTED, calls("deep", "inner")]
    book = Told(*a, *b, *below).book
    assert book.prompt_of("own", None) == "b"
    assert book.prompt_of(None, None) == "b"
    assert book.prompt_of("inner", None) == "a"
    assert book.prompt_of("unseen", "t") == "a"
    assert book.prompt_of("deep", "n") == "a"
    assert (book.has_tasks("a"), book.has_tasks("b")) == (True, False)


@pytest.mark.parametrize("info", [cli.NEWER, cli.OLDER], ids=["newer", "older"])
def test_a_turn_about_a_task_belongs_to_the_prompt_that_started_it(info: cli.Json) -> None:
    """Also if other prompts ran before it. The CLI runs one turn for each task."""
    steps: list[Step] = []
    for name in "ab":
        steps += [name, begin(name, info), *task(name, "task_started"), did(name), result(name)]
    told = Told(*steps, "c", begin("c", info))
    book = told.book
    assert [book.has_tasks(name) for name in "abc"] == [True, True, False]
    for name in "ab":
        told.tell(*task(name, "task_notification", status="completed"))
    assert book.prompt_of(None, None) == "c"
    told.tell(result("c"), init(), calls("again"))
    assert book.prompt_of("again", None) == "a"
    told.tell(*task("deeper", "task_started"))
    assert book.prompt_of(None, "deeper") == "a"
    told.tell(follow_up(), init())
    assert [book.has_tasks(name) for name in "abc"] == [True, True, False]
    assert book.prompt_of("again", None) == "b"
    assert not book.is_quiet
    told.tell(follow_up())
    assert book.prompt_of(None, None) is None
    assert [book.has_tasks(name) for name in "abc"] == [True, False, False]
    told.tell(did("deeper"), *task("deeper", "task_notification", status="stopped"))
    assert not book.has_tasks("a")
    assert book.is_quiet


def test_a_task_that_is_reported_in_a_running_turn_has_no_turn_of_its_own() -> None:
    a: list[Step] = ["a", begin("a"), *task("a", "task_started"), did("a"), result("a")]
    ended = task("a", "task_notification", status="completed")
    notice = echo("x", "<task-notification>\n<task-id>a</task-id>")
    told = Told(*a, "b", begin("b"), *ended, notice)
    book = told.book
    assert book.prompt_of(None, None) == "b"
    assert not book.has_tasks("a")
    told.tell(result("b"))
    assert book.is_quiet


@pytest.mark.parametrize("is_about_the_task", [True, False])
def test_an_answer_without_an_echo_shows_whose_turn_of_an_older_cli_it_is(
    *, is_about_the_task: bool
) -> None:
    """A prompt and the end of a task are both queued."""
    a: list[Step] = ["a", begin("a", cli.OLDER), *task("a", "task_started"), did("a"), result()]
    ended = task("a", "task_notification", status="completed")
    told = Told(*a, *ended, "b", init())
    if not is_about_the_task:
        told.tell(echo("b"))
    told.tell(calls("tool"))
    assert told.book.prompt_of("tool", None) == ("a" if is_about_the_task else "b")


# ------------------------------------------------------------------------- many lines at once


def ended(*chunks: bytes) -> Outcome[Any]:
    """Return the outcome of a prompt. Each of the chunks is read at once."""
    engine = running(cli.NEWER)
    engine.send("a", "a", "prompt", 0.0)
    actions = [action for chunk in chunks for action in engine.receive(chunk, 1.0)]
    [end] = only(TurnEnded, actions)
    return end.outcome


def answer(message_id: str) -> bytes:
    message = {"id": message_id, "model": "opus", "content": [{"type": "text", "text": "x"}]}
    return cli.line(type="assistant", message=message)


def test_model_calls_that_arrive_at_once_are_counted() -> None:
    outcome = ended(init("a"), answer("1") + answer("1") + answer("2"), result("a"))
    assert outcome.model_calls == 2


def test_model_calls_between_two_turns_are_not_counted() -> None:
    assert ended(answer("1") + answer("2"), init("a") + answer("3"), result("a")).model_calls == 1


def test_the_last_message_of_many_explains_a_failure() -> None:
    failed = assistant("", error="authentication_failed")
    outcome = ended(init("a"), assistant("words") + failed, result("a", is_error=True))
    assert (outcome.reason, outcome.text) == (OutcomeReason.AUTH_FAILED, "words")


@pytest.mark.parametrize("turns", [0, 3])
def test_the_outcome_has_the_number_of_turns_of_its_result(turns: int) -> None:
    assert ended(init("a"), result("a", num_turns=turns)).num_turns == turns


def test_a_follow_up_result_of_a_closed_prompt_ends_the_turn_of_its_notification() -> None:
    """The next turn is that of the next prompt then, although an older CLI does not name it."""
    engine = running(cli.OLDER)
    engine.send("a", "a", "prompt", 0.0)
    feed(engine, 1.0, init(), echo("a"), result(), NOTICE, follow_up("a"))
    engine.send("b", "b", "prompt", 2.0)
    [delivered] = only(Deliver, feed(engine, 3.0, init()))
    assert delivered.turns == ("b",)
