"""Which messages belong to which turn, what a turn cost, and what its evidence is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support import cli
from tests.support.cli import (
    assistant,
    delivered,
    echo,
    feed,
    follow_up,
    init,
    lifecycle,
    only,
    result,
    running,
    stream_event,
    synthetic,
    system,
    user,
)
from tests.support.sizes import largest_container

from bridle._engine.actions import Action, Attribute, Deliver, TurnEnded
from bridle._engine.engine import Engine
from bridle.events import WarningKind
from bridle.outcomes import Outcome

Steps = list[str | bytes]

NOTICE = system("task_notification", task_id="t", tool_use_id="tool", status="completed")
STARTED = system("task_started", task_id="t", tool_use_id="tool")
PLAIN = init() + echo("a") + assistant() + result()


def play(info: cli.Json, steps: Steps, **config: Any) -> list[Action]:
    """What comes of prompts sent (uuids) and lines read, one second apart."""
    engine = running(info, **config)
    actions: list[Action] = []
    for now, step in enumerate(steps):
        if isinstance(step, str):
            actions += engine.send(step, step, "prompt", float(now))
        else:
            actions += feed(engine, float(now), *step.splitlines(keepends=True))
    return actions


def outcomes(actions: list[Action]) -> dict[str, Outcome[Any]]:
    return {one.uuid: one.outcome for one in only(TurnEnded, actions)}


# ------------------------------------------------------------------------- messages of a turn


def test_what_a_newer_cli_writes_belongs_to_the_prompts_it_names() -> None:
    first = init("a") + echo("a") + assistant() + result("a")
    second = echo("b") + init("b", "c") + echo("c") + assistant() + result("b", "c")
    actions = play(cli.NEWER, [*"abc", first + second])
    kinds = [(kind, "".join(turns)) for kind, turns in delivered(actions) if kind != "user"]
    assert kinds == [
        ("system", "a"),
        ("assistant", "a"),
        ("result", "a"),
        ("system", "bc"),
        ("assistant", "bc"),
        ("result", "bc"),
    ]


def test_what_an_older_cli_writes_belongs_to_the_prompt_that_is_next_in_line() -> None:
    actions = play(cli.OLDER, ["a", "b", init() + assistant() + echo("a") + assistant() + result()])
    assert [turns for _, turns in delivered(actions)] == [("a",)] * 5


def test_a_lifecycle_line_belongs_to_its_prompt_alone() -> None:
    actions = play(
        cli.NEWER, [*"ab", init("a") + lifecycle("b", "queued") + lifecycle("z", "queued")]
    )
    assert delivered(actions)[1:] == [("command_lifecycle", ("b",)), ("command_lifecycle", ())]


def test_a_wrong_guess_is_corrected_by_the_echo() -> None:
    actions = play(cli.OLDER, [*"ab", init() + echo("b") + assistant() + result()])
    assert delivered(actions)[-1] == ("result", ("b",))
    assert list(outcomes(actions)) == ["b"]


def test_a_wrong_guess_keeps_the_merged_prompts_that_were_echoed_before() -> None:
    actions = play(cli.OLDER, [*"bcd", echo("b") + init() + echo("d") + assistant() + result()])
    merged = {uuid: one.merged_with for uuid, one in outcomes(actions).items()}
    assert merged == {"b": ("d",), "d": ("b",)}


def test_a_turn_of_a_newer_cli_without_names_belongs_to_no_prompt() -> None:
    actions = play(cli.NEWER, ["a", lifecycle("a", "queued") + init() + assistant() + follow_up()])
    assert [turns for _, turns in delivered(actions)[1:]] == [(), (), ()]
    assert cli.warned(actions) == [WarningKind.STRAY_RESULT]


WAITING: Steps = ["a", PLAIN + NOTICE, "b"]
"""A notification and a prompt both wait: an older CLI does not say whose turn begins."""


@pytest.mark.parametrize(
    ("rest", "attributed"),
    [
        (stream_event() + echo("b") + assistant() + result(), ["system", "stream_event"]),
        (synthetic("text") + result(num_turns=0), ["system", "assistant"]),
        (stream_event() + assistant() + follow_up(), []),
        (assistant() + user("tool output") + echo("b") + assistant() + follow_up(), []),
    ],
    ids=["the prompt's", "a command's", "of background work", "of background work, folded into"],
)
def test_a_turn_whose_owner_is_not_known_yet_is_attributed_after_the_fact(
    rest: bytes, attributed: list[str]
) -> None:
    actions = play(cli.OLDER, [*WAITING, init() + rest])
    before = len(delivered(play(cli.OLDER, WAITING)))
    assert delivered(actions)[before] == ("system", ())
    late = only(Attribute, actions)
    told = [(message.type, one.turns) for one in late for message in one.messages]
    assert told == [(kind, ("b",)) for kind in attributed]


def test_a_foreground_subagent_of_an_older_cli_leaves_no_doubt_behind() -> None:
    """Its notification comes inside the turn, and no turn follows it."""
    actions = play(
        cli.OLDER,
        ["a", init() + echo("a") + STARTED + NOTICE + result(), "b", init() + assistant()],
    )
    assert delivered(actions)[-1] == ("assistant", ("b",))


def test_an_echo_before_the_start_is_kept_without_another_waiter() -> None:
    steps: Steps = [
        "a",
        echo("a") + init(),
        "b",
        user("tool output") + echo("b") + assistant() + result(),
    ]
    merged = {uuid: one.merged_with for uuid, one in outcomes(play(cli.OLDER, steps)).items()}
    assert merged == {"a": ("b",), "b": ("a",)}
    assert list(outcomes(play(cli.OLDER, ["a", echo("a") + init() + follow_up()]))) == ["a"]


# ------------------------------------------------------------------------- tasks


def inside(text: str = "words") -> bytes:
    return assistant(text, parent_tool_use_id="tool")


@pytest.mark.parametrize(
    "line",
    [
        inside(),
        user("x", parent_tool_use_id="tool"),
        stream_event(parent_tool_use_id="tool"),
        cli.line(type="tool_progress", tool_use_id="x", parent_tool_use_id="tool"),
        system("task_progress", task_id="t", tool_use_id="tool"),
        NOTICE,
    ],
    ids=["assistant", "user", "stream_event", "tool_progress", "task_progress", "notification"],
)
def test_messages_of_a_task_belong_to_the_turn_that_started_it(line: bytes) -> None:
    actions = play(cli.NEWER, ["a", init("a") + STARTED + line])
    assert delivered(actions)[-1][1] == ("a",)
    later = play(cli.NEWER, ["a", init("a") + STARTED + result("a"), "b", init("b") + line])
    assert delivered(later)[-1][1] == ()


def test_messages_of_other_tool_calls_belong_to_the_running_turn() -> None:
    actions = play(cli.NEWER, ["a", init("a") + STARTED + assistant(parent_tool_use_id="other")])
    assert delivered(actions)[-1][1] == ("a",)
    plain = cli.line(type="tool_progress", tool_use_id="x")
    assert delivered(play(cli.NEWER, ["a", init("a") + plain]))[-1][1] == ("a",)


def test_a_task_that_has_ended_is_forgotten() -> None:
    actions = play(
        cli.NEWER, ["a", init("a") + STARTED + NOTICE + result("a"), "b", init("b") + inside()]
    )
    assert delivered(actions)[-1][1] == ("b",)


def test_tasks_without_a_tool_call_are_not_kept() -> None:
    actions = play(cli.NEWER, ["a", init("a") + system("task_started", task_id="t") + inside()])
    assert delivered(actions)[-1][1] == ("a",)


@pytest.mark.parametrize(("count", "first"), [(1024, ()), (1025, ("b",))])
def test_of_very_many_tasks_the_oldest_are_forgotten(count: int, first: tuple[str, ...]) -> None:
    """What is forgotten counts as part of the turn that runs."""
    many = b"".join(system("task_started", tool_use_id=f"tool{n}") for n in range(count))
    inner = b"".join(assistant(parent_tool_use_id=f"tool{n}") for n in (0, count - 1))
    actions = play(cli.NEWER, ["a", init("a") + many + result("a"), "b", init("b") + inner])
    assert [turns for _, turns in delivered(actions)[-2:]] == [first, ()]


# ------------------------------------------------------------------------- outcomes


def test_an_outcome_carries_what_the_result_said() -> None:
    line = result(
        "a",
        result="done",
        session_id="s9",
        num_turns=3,
        total_cost_usd=0.5,
        structured_output={"x": 1},
        errors=["e"],
        usage={"input_tokens": 7},
        deferred_tool_use={"id": "t", "name": "Bash", "input": {}},
    )
    outcome = outcomes(play(cli.NEWER, ["a", init("a"), line]))["a"]
    assert outcome.result is not None
    assert (outcome.text, outcome.session_id, outcome.num_turns) == ("done", "s9", 3)
    assert (outcome.cost_usd, outcome.structured_output) == (0.5, {"x": 1})
    assert (outcome.errors, outcome.uuid, outcome.duration) == (("e",), "a", 2.0)
    assert outcome.usage is not None
    assert outcome.usage.input_tokens == 7
    assert outcome.deferred_tool_use is not None


def test_each_turn_costs_what_the_total_grew_by() -> None:
    """The CLI reports what it has spent since it started; a total that fell has begun anew."""
    steps: Steps = []
    for uuid, total in [("a", 0.25), ("b", 1.0), ("c", None), ("d", 1.5), ("e", 0.5), ("f", 0.75)]:
        steps += [uuid, result(uuid, total_cost_usd=total)]
    costs = {uuid: one.cost_usd for uuid, one in outcomes(play(cli.NEWER, steps)).items()}
    assert costs == {"a": 0.25, "b": 0.75, "c": None, "d": 0.5, "e": 0.5, "f": 0.25}


def test_the_cost_of_background_work_belongs_to_no_prompt() -> None:
    lines = follow_up(total_cost_usd=2.0) + init("a") + result("a", total_cost_usd=2.5)
    assert outcomes(play(cli.NEWER, ["a", init() + lines]))["a"].cost_usd == 0.5


def test_merged_prompts_share_one_bill() -> None:
    usage = {"input_tokens": 7}
    line = result("a", "b", total_cost_usd=1.0, usage=usage, result="done")
    ended = outcomes(play(cli.NEWER, [*"ab", init("a", "b") + line]))
    assert [(one.cost_usd, one.usage is not None) for one in ended.values()] == [
        (1.0, True),
        (0.0, False),
    ]
    assert [(one.text, one.merged_with) for one in ended.values()] == [
        ("done", ("b",)),
        ("done", ("a",)),
    ]


def test_structured_output_that_was_asked_for_must_come() -> None:
    without = outcomes(play(cli.NEWER, ["a", result("a")], wants_output=True))
    given = outcomes(play(cli.NEWER, ["a", result("a", structured_output={})], wants_output=True))
    assert (without["a"].reason, given["a"].reason) == ("output_missing", "completed")


@pytest.mark.parametrize(
    ("statuses", "reason", "resets_at"),
    [
        (["rejected"], "rate_limited", 1700000000.0),
        (["rejected", "allowed"], "api_error", 1700000000.0),
        (["allowed_warning"], "api_error", None),
    ],
)
def test_the_last_word_on_the_rate_limit_explains_a_failure(
    statuses: list[str], reason: str, resets_at: float | None
) -> None:
    lines = b"".join(
        cli.line(
            type="rate_limit_event", rate_limit_info={"status": status, "resetsAt": 1700000000}
        )
        for status in statuses
    )
    outcome = outcomes(play(cli.NEWER, ["a", init("a") + lines + result("a", is_error=True)]))["a"]
    assert (outcome.reason, outcome.resets_at) == (reason, resets_at)


def test_the_evidence_of_one_turn_is_not_the_next_ones() -> None:
    first = init("a") + assistant(error="rate_limit") + result("a", is_error=True)
    ended = outcomes(play(cli.NEWER, [*"ab", first + init("b") + result("b", is_error=True)]))
    assert [str(one.reason) for one in ended.values()] == ["rate_limited", "api_error"]


def test_retries_of_a_turn_are_counted_in_its_outcome() -> None:
    retries = [
        system("api_retry", attempt=attempt, max_retries=10, retry_delay_ms=500, error_status=529)
        for attempt in (1, 2)
    ]
    first = init("a") + b"".join(retries) + result("a")
    ended = outcomes(play(cli.NEWER, [*"ab", first, init("b") + result("b")]))
    last = ended["a"].last_retry
    assert (ended["a"].ok, ended["a"].api_retries) == (True, 2)
    assert last is not None
    assert (last.attempt, last.error_status, last.delay) == (2, 529, 0.5)
    assert (ended["b"].api_retries, ended["b"].last_retry) == (0, None)


def test_a_notice_of_a_hook_without_a_verdict_changes_nothing() -> None:
    quiet = system("informational", content="x", prevent_continuation=False)
    odd = system("informational", prevent_continuation=True, prompt_submit_outcome={"kind": 5})
    line = result("a", terminal_reason=None, num_turns=0)
    assert outcomes(play(cli.NEWER, ["a", init("a") + quiet + line]))["a"].ok
    assert not outcomes(play(cli.NEWER, ["a", init("a") + odd + line]))["a"].ok


def test_a_compaction_during_a_turn_is_not_a_failure() -> None:
    compacting = system("status", status="compacting")
    assert outcomes(play(cli.NEWER, ["a", init("a") + compacting + result("a")]))["a"].ok


def test_an_interrupt_that_was_not_sent_explains_nothing() -> None:
    failed = result(subtype="error_during_execution", is_error=True, terminal_reason=None)
    engine = running(cli.OLDER)
    engine.send("a", "a", "prompt", 0.0)
    feed(engine, 0.0, init(), echo("a"))
    for number in range(64):
        engine.submit(number, "mcp_status", {}, 1.0)
    engine.submit("refused", "interrupt", {}, 1.0)
    assert outcomes(feed(engine, 2.0, failed))["a"].reason == "execution_error"


def test_an_interrupt_explains_the_failure_of_a_turn_under_way() -> None:
    """An interrupt of ours is remembered for the turn that runs, and for no other."""
    failed = result(subtype="error_during_execution", is_error=True, terminal_reason=None)
    engine = running(cli.OLDER)
    engine.submit("too early", "interrupt", {}, 0.0)
    engine.send("a", "a", "prompt", 1.0)
    feed(engine, 1.0, init(), echo("a"))
    assert outcomes(feed(engine, 2.0, failed))["a"].reason == "execution_error"
    engine.send("b", "b", "prompt", 3.0)
    feed(engine, 3.0, init(), echo("b"))
    engine.submit("in time", "interrupt", {}, 3.0)
    assert outcomes(feed(engine, 4.0, failed))["b"].reason == "interrupted"


def test_a_result_with_fields_that_do_not_fit_still_ends_its_turn() -> None:
    line = cli.line(type="result", subtype=5, is_error="no", user_message_uuids=["a"])
    outcome = outcomes(play(cli.NEWER, ["a", init("a") + line]))["a"]
    assert outcome.reason == "execution_error"


def test_a_stray_result_is_only_a_message() -> None:
    actions = play(cli.NEWER, [result(total_cost_usd=1.0)])
    assert delivered(actions) == [("result", ())]
    assert cli.warned(actions) == [WarningKind.STRAY_RESULT]


@pytest.mark.parametrize("members", [{}, {"user_message_uuids": []}], ids=["list", "single"])
def test_a_result_that_names_only_closed_prompts_ends_nothing(members: cli.Json) -> None:
    stale = result("a", user_message_uuid="a", **members)
    engine = cli.running()
    engine.send("a", "a", "prompt", 1.0)
    feed(engine, 1.0, init("a"), result("a"))
    engine.send("b", "b", "prompt", 2.0)
    actions = feed(engine, 2.0, stale)
    assert outcomes(actions) == {}
    assert cli.warned(actions) == [WarningKind.STRAY_RESULT]
    actions = feed(engine, 3.0, init("b"), stale, cli.assistant())
    assert outcomes(actions) == {}
    assert delivered(actions) == [("system", ("b",)), ("result", ()), ("assistant", ("b",))]
    assert outcomes(feed(engine, 4.0, result("b")))["b"].reason == "completed"


def test_a_stale_result_does_not_change_what_the_next_turn_costs() -> None:
    engine = cli.running()
    steps = [("a", 1.0), ("b", 3.0)]
    for uuid, total in steps:
        engine.send(uuid, uuid, "prompt", 1.0)
        feed(engine, 1.0, init(uuid), result(uuid, total_cost_usd=total))
    engine.send("c", "c", "prompt", 2.0)
    feed(engine, 2.0, init("c"), result("a", total_cost_usd=1.0))
    assert outcomes(feed(engine, 3.0, result("c", total_cost_usd=3.5)))["c"].cost_usd == 0.5


def test_a_turn_of_the_clis_own_that_names_a_closed_prompt_is_over_with_its_result() -> None:
    engine = cli.running()
    engine.send("a", "a", "prompt", 1.0)
    feed(engine, 1.0, init("a"), result("a"), init(), follow_up("a"))
    engine.send("b", "b", "prompt", 2.0)
    assert outcomes(feed(engine, 3.0, init("b"), result("b")))["b"].reason == "completed"
    engine.close(4.0)
    assert engine.next_deadline == 9.0, "no turn is waited for"


def test_an_unreadable_result_that_names_a_closed_prompt_ends_nothing() -> None:
    engine = cli.running(max_line=300)
    engine.send("a", "a", "prompt", 1.0)
    feed(engine, 1.0, init("a"), result("a"))
    engine.send("b", "b", "prompt", 2.0)
    lost = cli.line(type="result", user_message_uuid="a", result="x" * 900)
    assert outcomes(feed(engine, 3.0, init("b"), lost)) == {}


def test_messages_whose_turn_is_never_reported_are_not_held_for_ever() -> None:
    engine = cli.running(cli.OLDER)
    feed(engine, 1.0, cli.system("task_notification", task_id="t", status="completed"))
    engine.send("a", "a", "prompt", 1.0)
    feed(engine, 2.0, init())
    for _ in range(3000):
        feed(engine, 2.0, cli.assistant())
    assert largest_container(engine) <= 1024
    assert outcomes(feed(engine, 3.0, echo("a"), result()))["a"].reason == "completed"


def test_results_while_closing_are_answered_by_a_bounded_number_of_interrupts() -> None:
    engine = cli.running()
    for uuid in ("a", "b"):
        engine.send(uuid, uuid, "prompt", 1.0)
    feed(engine, 1.0, init("a"))
    engine.close(2.0)
    actions = feed(engine, 2.0, *[follow_up()] * 200)
    assert len(cli.written(actions)) < 100


# ------------------------------------------------------------------------- without a result


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_a_result_too_long_to_keep_ends_its_turn_as_lost(named: bool) -> None:
    members = {"user_message_uuid": "a"} if named else {}
    lost = cli.line(type="result", **members, result="x" * 900)
    actions = play(cli.NEWER, [*"ab", init("a") + lost], max_line=600)
    ended = outcomes(actions)
    assert {uuid: str(one.reason) for uuid, one in ended.items()} == {"a": "message_lost"}
    assert WarningKind.OVERSIZED_LINE in cli.warned(actions)
    assert ended["a"].result is None


def test_after_a_lost_result_the_next_turn_is_distinguished() -> None:
    lost = cli.line(type="result", result="x" * 900)
    lines = init() + echo("a") + lost + init() + echo("b") + assistant() + result()
    ended = outcomes(play(cli.OLDER, [*"ab", lines], max_line=600))
    assert [str(one.reason) for one in ended.values()] == ["message_lost", "completed"]


@pytest.mark.parametrize(
    ("answer", "withdrawn"),
    [
        (cli.success("req_1", {"cancelled": True}), True),
        (cli.success("req_1", {"cancelled": False}), False),
        (cli.success("req_1"), False),
        (cli.failure("req_1", "no"), False),
    ],
    ids=["taken back", "too late", "nothing said", "refused"],
)
def test_a_waiting_prompt_that_is_taken_back_ends_as_interrupted(
    answer: bytes, withdrawn: bool
) -> None:
    engine = running(cli.OLDER)
    for uuid in ("a", "b"):
        engine.send(uuid, uuid, "prompt", 0.0)
    feed(engine, 1.0, init(), echo("a"))
    engine.submit("k", "cancel_async_message", {"message_uuid": "b"}, 1.0)
    ended = outcomes(feed(engine, 2.0, answer))
    assert {uuid: str(one.reason) for uuid, one in ended.items()} == (
        {"b": "interrupted"} if withdrawn else {}
    )
    assert list(outcomes(feed(engine, 3.0, result()))) == ["a"]


def give_up(engine: Engine) -> None:
    engine.cancel("k")


def wait_too_long(engine: Engine) -> None:
    engine.advance(31.0)


@pytest.mark.parametrize("leave", [give_up, wait_too_long])
def test_a_prompt_taken_back_ends_without_a_waiter_for_the_answer(
    leave: Callable[[Engine], None],
) -> None:
    """An older CLI says it in the answer alone."""
    engine = running(cli.OLDER)
    for uuid in ("a", "b"):
        engine.send(uuid, uuid, "prompt", 0.0)
    feed(engine, 1.0, init(), echo("a"))
    engine.submit("k", "cancel_async_message", {"message_uuid": "b"}, 1.0)
    leave(engine)
    actions = feed(engine, 32.0, cli.success("req_1", {"cancelled": True}))
    assert list(outcomes(actions)) == ["b"]


def test_a_prompt_that_runs_already_is_not_taken_back() -> None:
    engine = running(cli.OLDER)
    engine.send("a", "a", "prompt", 0.0)
    feed(engine, 1.0, init(), echo("a"))
    engine.submit("k", "cancel_async_message", {"message_uuid": "a"}, 1.0)
    assert outcomes(feed(engine, 2.0, cli.success("req_1", {"cancelled": True}))) == {}


def test_prompts_that_wait_at_the_end_have_nothing_to_do_with_the_running_turn() -> None:
    engine = running()
    for uuid in "abcd":
        engine.send(uuid, uuid, "prompt", 0.0)
    limited = cli.line(
        type="rate_limit_event", rate_limit_info={"status": "rejected", "resetsAt": 9}
    )
    feed(engine, 1.0, init("a", "b"), limited)
    ended = outcomes(engine.stop(2.0))
    assert {uuid: (one.merged_with, one.resets_at) for uuid, one in ended.items()} == {
        "a": (("b",), 9.0),
        "b": (("a",), 9.0),
        "c": ((), None),
        "d": ((), None),
    }
    assert {str(one.reason) for one in ended.values()} == {"stopped"}


def test_a_notification_that_had_its_turn_leaves_no_doubt_about_the_next_one() -> None:
    engine = cli.running(cli.OLDER)
    origin = {"kind": "task-notification"}
    feed(engine, 1.0, NOTICE, init(), cli.assistant(), cli.result(origin=origin))
    engine.send("a", "a", "prompt", 2.0)
    delivered = only(Deliver, feed(engine, 3.0, init(), cli.assistant()))
    assert {action.turns for action in delivered} == {("a",)}


def test_the_text_of_a_failed_turn_is_the_last_one_although_a_task_runs() -> None:
    engine = cli.running()
    engine.send("key", "a", "prompt", 0.0)
    engine.receive(cli.init("a"), 1.0)
    task = {"subtype": "task_started", "task_id": "b1", "tool_use_id": "t1"}
    engine.receive(cli.line(type="system", **task), 1.0)
    say = {"id": "m", "content": [{"type": "text", "text": "I begin."}]}
    use = {"id": "m", "content": [{"type": "tool_use", "id": "t2", "name": "Bash", "input": {}}]}
    for message in (say, use):
        engine.receive(cli.line(type="assistant", message=message), 1.0)
    failed = {"subtype": "error_max_turns", "is_error": True, "user_message_uuids": ["a"]}
    [ended] = cli.only(TurnEnded, engine.receive(cli.line(type="result", **failed), 2.0))
    assert ended.outcome.text == "I begin."


# ------------------------------------------------------------------------- tasks and usage


def used(**models: int) -> cli.Json:
    """The totals of a result: input tokens by model."""
    return {"modelUsage": {name: {"inputTokens": count} for name, count in models.items()}}


def test_running_tasks_are_listed_until_the_cli_exits() -> None:
    engine = running(cli.NEWER)
    engine.send("a", "a", "prompt", 0.0)
    feed(engine, 1.0, init("a"), STARTED, system("task_progress", task_id="t", description="d"))
    assert [(task.task_id, task.activity) for task in engine.live_tasks.list()] == [("t", "d")]
    engine.output_ended(2.0)
    engine.exited(0, "", 2.0)
    assert engine.live_tasks.list() == []


@pytest.mark.parametrize("batch", [True, False])
def test_the_usage_of_a_running_turn_is_replaced_by_its_result(batch: bool) -> None:
    message = {"id": "m", "model": "opus", "usage": {"input_tokens": 5, "output_tokens": 1}}
    answer = cli.line(type="assistant", message=message)
    engine = running(cli.NEWER)
    engine.send("a", "a", "prompt", 0.0)
    feed(engine, 1.0, init("a"))
    feed(engine, 1.0, *([answer + answer] if batch else [answer, answer]))
    assert (engine.usage.read().input_tokens, engine.usage.read().turns) == (5, ())
    feed(engine, 2.0, result("a", total_cost_usd=0.5, **used(opus=7)))
    found = engine.usage.read()
    assert (found.input_tokens, found.cost_usd) == (7, 0.5)
    assert [turn.prompts for turn in found.turns] == [("a",)]


def test_a_turn_of_the_cli_itself_is_counted_for_no_prompt() -> None:
    engine = running(cli.NEWER)
    engine.send("a", "a", "prompt", 0.0)
    feed(engine, 1.0, init("a"), result("a", total_cost_usd=0.5, **used(opus=7)))
    own = {"origin": {"kind": "task-notification"}, "total_cost_usd": 0.75}
    feed(engine, 2.0, init(), result(**own, **used(opus=9)))
    found = engine.usage.read()
    assert [(turn.prompts, turn.input_tokens, turn.cost_usd) for turn in found.turns] == [
        (("a",), 7, 0.5),
        ((), 2, 0.25),
    ]


def test_a_stale_result_never_lowers_the_usage() -> None:
    engine = running(cli.NEWER)
    engine.send("a", "a", "prompt", 0.0)
    feed(engine, 1.0, init("a"), result("a", total_cost_usd=0.5, **used(opus=7)))
    stale = {"user_message_uuid": "a"}
    feed(engine, 2.0, result("a", total_cost_usd=0.25, **stale, **used(opus=3)))
    assert (engine.usage.read().input_tokens, engine.usage.read().cost_usd) == (7, 0.5)
    feed(engine, 3.0, result("a", total_cost_usd=0.75, **stale, **used(opus=8)))
    assert (engine.usage.read().input_tokens, engine.usage.read().cost_usd) == (8, 0.75)
