"""When an answer is complete: background work, its notices and its turns."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import structs
from tests.support import cli

from bridle import Message, Outcome, OutcomeReason, ResultMessage, decode_line
from bridle._engine.turns.follow_ups import FollowUps
from bridle.messages import ApiRetryMessage


def read(**members: object) -> Message:
    return cast("Message", decode_line(cli.line(**members)))


def system(subtype: str, **members: object) -> Message:
    return read(type="system", subtype=subtype, **members)


def result(total: float = 1.0, **members: object) -> Message:
    base = {"subtype": "success", "is_error": False, "num_turns": 1, "result": "words"}
    return read(type="result", total_cost_usd=total, **{**base, **members})


ORIGIN = {"kind": "task-notification"}
STARTED = system("task_started", task_id="t1", tool_use_id="u1")
NOTICE = system("task_notification", task_id="t1", tool_use_id="u1", status="completed")
TOLD = read(
    type="user",
    isReplay=True,
    uuid="x",
    message={"role": "user", "content": "<task-notification>\n<task-id>t1</task-id>"},
)


CALL_DONE = read(
    type="user",
    message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u1"}]},
)
ENDED = system("task_updated", task_id="t1", patch={"status": "completed", "end_time": 1})
LISTED = system("background_tasks_changed", tasks=[{"task_id": "t1"}])
UNLISTED = system("background_tasks_changed", tasks=[])


def after(*messages: Message, echoes: bool = True) -> FollowUps:
    follow_ups = FollowUps(echoes=echoes)
    for message in messages:
        follow_ups.observe(message)
    return follow_ups


@pytest.mark.parametrize(
    ("messages", "pending"),
    [
        ([result()], False),
        ([STARTED, result()], True),
        ([STARTED, result(), NOTICE], True),
        ([STARTED, result(), NOTICE, result(origin=ORIGIN)], False),
        ([STARTED, NOTICE, result()], False),
        ([STARTED, TOLD, result()], False),
        ([STARTED, result(), system("task_updated", task_id="t1", patch={})], True),
        ([STARTED, result(), UNLISTED], False),
        ([LISTED, STARTED, CALL_DONE, NOTICE, UNLISTED, result()], True),
        ([LISTED, STARTED, CALL_DONE, NOTICE, UNLISTED, TOLD, result()], False),
        ([STARTED, CALL_DONE, NOTICE, result()], True),
        ([STARTED, NOTICE, CALL_DONE, result()], False),
        ([STARTED, CALL_DONE, ENDED, result()], True),
        ([NOTICE, result()], False),
        ([system("background_tasks_changed", tasks=[{"task_id": "t2"}]), result()], True),
        ([STARTED, result(), system("task_notification", task_id="t1", status="stopped")], False),
    ],
    ids=[
        "no background work",
        "it runs",
        "its turn is to come",
        "its turn is over",
        "it ended in the foreground",
        "it was told within the turn",
        "news of it",
        "the list says it is gone",
        "it ended before the turn did",
        "it ended before the turn did and was told within it",
        "it ended before the turn did, and an older CLI lists nothing",
        "it ended before its call did",
        "an older CLI has yet to say so to the model",
        "it never began",
        "the list says it runs",
        "it was stopped",
    ],
)
def test_an_answer_is_complete_when_nothing_more_is_to_come(
    messages: list[Message], *, pending: bool
) -> None:
    assert after(*messages).is_pending is pending


def test_a_notice_in_other_words_is_known_by_its_origin() -> None:
    """A turn would otherwise wait for a follow-up that never comes."""
    said = {"role": "user", "content": "The background work is done."}
    told = read(type="user", isReplay=True, uuid="x", message=said, origin=ORIGIN)
    ended = [LISTED, STARTED, CALL_DONE, NOTICE, UNLISTED]
    assert after(*ended, result()).is_pending
    assert not after(*ended, told, result()).is_pending


def test_a_notice_in_other_words_and_without_an_origin_is_known_by_the_id_of_its_task() -> None:
    said = {"role": "user", "content": "<done>\n<id>t1</id>"}
    told = read(type="user", isReplay=True, uuid="x", message=said)
    ended = [LISTED, STARTED, CALL_DONE, NOTICE, UNLISTED]
    assert not after(*ended, told, result()).is_pending


@pytest.mark.parametrize(
    ("content", "origin"),
    [("What is <task-notification>?", None), ("<id>t1</id>", {"kind": "human"})],
)
def test_a_prompt_that_quotes_a_notice_does_not_end_background_work(
    content: str, origin: dict[str, str] | None
) -> None:
    said = {"role": "user", "content": content}
    prompt = read(type="user", isReplay=True, uuid="x", message=said, origin=origin)
    ended = [LISTED, STARTED, CALL_DONE, NOTICE, UNLISTED]
    assert after(*ended, prompt, result()).is_pending


@pytest.mark.parametrize(
    ("messages", "pending"),
    [
        ([STARTED, CALL_DONE, result()], True),
        ([STARTED, CALL_DONE, ENDED, result()], False),
        ([LISTED, STARTED, CALL_DONE, ENDED, NOTICE, UNLISTED, result()], False),
        ([STARTED, CALL_DONE, result(), ENDED], False),
        ([STARTED, CALL_DONE, result(), ENDED, NOTICE], True),
        ([STARTED, CALL_DONE, result(), ENDED, NOTICE, result(origin=ORIGIN)], False),
    ],
    ids=["it runs", "it ended", "and that is known", "not announced", "announced", "over"],
)
def test_without_echoes_nothing_follows_before_it_is_announced(
    messages: list[Message], *, pending: bool
) -> None:
    assert after(*messages, echoes=False).is_pending is pending


def outcome_of(message: Message) -> Outcome[Any]:
    return Outcome(
        reason=OutcomeReason.COMPLETED,
        text="first",
        num_turns=2,
        cost_usd=0.5,
        result=cast("ResultMessage", message),
    )


def test_what_followed_is_the_answer_and_costs_add_up() -> None:
    follow_up = result(1.25, origin=ORIGIN, result="second")
    outcome = after(follow_up).complete(outcome_of(result(1.0)))
    assert (outcome.text, outcome.num_turns, outcome.cost_usd) == ("second", 3, 0.75)


@pytest.mark.parametrize(("later", "expected"), [({"n": 2}, {"n": 2}), (None, {"n": 1})])
def test_the_answer_has_the_last_structured_output(later: object, expected: object) -> None:
    first = structs.replace(outcome_of(result(1.0)), structured_output={"n": 1})
    outcome = after(result(origin=ORIGIN, structured_output=later)).complete(first)
    assert outcome.structured_output == expected


@pytest.mark.parametrize(
    ("before", "total", "cost"),
    [(1.0, 1.25, 0.75), (1.0, 0.25, 0.5), (1.0, None, 0.5), (None, 0.25, 0.75)],
    ids=["it grew", "it is lower", "no total", "no result before"],
)
def test_a_follow_up_adds_the_growth_of_the_total(
    before: float | None, total: float | None, cost: float
) -> None:
    first = structs.replace(outcome_of(result(before or 0.0)), cost_usd=0.5)
    if before is None:
        first = structs.replace(first, result=None)
    follow_up = read(type="result", subtype="success", origin=ORIGIN, total_cost_usd=total)
    assert after(follow_up).complete(first).cost_usd == cost


def test_a_follow_up_that_failed_fails_the_whole() -> None:
    failed = result(1.0, origin=ORIGIN, is_error=True, api_error_status=529)
    outcome = after(failed).complete(outcome_of(result(1.0)))
    assert outcome.reason is OutcomeReason.API_ERROR
    assert outcome.text == "first"


def test_retries_after_the_turns_own_result_are_counted_too() -> None:
    def retry(attempt: int) -> Message:
        return ApiRetryMessage(attempt=attempt, max_retries=10, retry_delay_ms=500.0)

    seen = after(retry(1), result(), retry(1), retry(2), result(origin=ORIGIN, result="second"))
    outcome = seen.complete(structs.replace(outcome_of(result(1.0)), api_retries=1))
    assert outcome.api_retries == 3
    assert outcome.last_retry is not None
    assert outcome.last_retry.attempt == 2


def test_a_turn_that_failed_is_not_saved_by_what_followed() -> None:
    failed: Outcome[Any] = Outcome(reason=OutcomeReason.MAX_TURNS)
    assert after(result(origin=ORIGIN)).complete(failed) is failed
