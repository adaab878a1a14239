"""Tokens and cost of a session, from results and from the answers of the running turn."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from tests.support.sizes import largest_container

from bridle import decode_line
from bridle._engine.turns import usage
from bridle._engine.turns.usage import CallCount, UsageBook
from bridle.messages import AssistantMessage, Message, ModelUsage, ResultMessage
from bridle.outcomes import SessionUsage, TurnUsage


def tokens(inputs: int, outputs: int, cost: float = 0.0, **more: Any) -> dict[str, object]:
    return {"inputTokens": inputs, "outputTokens": outputs, "costUSD": cost, **more}


def result(since: dict[str, object] | None = None, **models: dict[str, object]) -> ResultMessage:
    wire: dict[str, object] = {"type": "result", "subtype": "success", "modelUsage": models}
    wire["usage"] = {"input_tokens": 7, "output_tokens": 7}  # of the main agent only
    if since is not None:
        wire["model_usage_since_last_result"] = since
    message = decode_line(msgspec.json.encode(wire))
    assert isinstance(message, ResultMessage)
    return message


def answer(id: str | None, inputs: int = 10, model: str | None = "opus", **more: int) -> Message:
    counts = {"input_tokens": inputs, "output_tokens": 1, **more}
    wire = {"type": "assistant", "message": {"id": id, "model": model, "usage": counts}}
    message = decode_line(msgspec.json.encode(wire))
    assert isinstance(message, AssistantMessage)
    return message


def counted(found: SessionUsage | TurnUsage) -> tuple[int, int, float | None]:
    return found.input_tokens, found.output_tokens, found.cost_usd


@pytest.fixture
def book() -> UsageBook:
    return UsageBook()


def test_a_session_starts_at_zero(book: UsageBook) -> None:
    assert book.read() == SessionUsage(models={}, cost_usd=None, turns=())
    assert counted(book.read()) == (0, 0, None)


def test_results_carry_totals_and_each_one_adds_the_difference(book: UsageBook) -> None:
    book.charge(result(opus=tokens(20, 28, 0.5)), 0.5, ("u1",))
    book.charge(result(opus=tokens(25, 35, 0.75), haiku=tokens(1, 2)), 0.25, ())
    found = book.read()
    assert counted(found) == (26, 37, 0.75)
    assert [(turn.prompts, counted(turn)) for turn in found.turns] == [
        (("u1",), (20, 28, 0.5)),
        ((), (6, 9, 0.25)),
    ]
    assert found.models["opus"] == ModelUsage(input_tokens=25, output_tokens=35, cost_usd=0.75)


def test_the_first_result_of_a_resumed_conversation_adds_what_is_new(book: UsageBook) -> None:
    """2.1.325 continues the totals of the conversation that it resumes."""
    book.charge(result({"opus": tokens(5, 6, 0.1)}, opus=tokens(105, 106, 2.1)), 0.1, ("u",))
    book.charge(result({"opus": tokens(1, 1)}, opus=tokens(107, 108, 2.2)), 0.1, ("v",))
    assert counted(book.read())[:2] == (7, 8)


def test_lower_totals_mean_that_the_counters_were_reset(book: UsageBook) -> None:
    """2.1.325 sets them to zero when the conversation is cleared."""
    book.charge(result(opus=tokens(20, 28, 0.5)), 0.5, ("u",))
    book.charge(result(), 0.0, ("clear",))
    book.charge(result(opus=tokens(30, 1, 0.2)), 0.2, ("v",))
    book.charge(result(opus=tokens(4, 1, 0.1)), 0.1, ("w",))
    assert counted(book.read())[:2] == (54, 30)
    assert [turn.input_tokens for turn in book.read().turns] == [20, 0, 30, 4]


def test_counts_that_older_clis_do_not_send_stay_unknown(book: UsageBook) -> None:
    book.charge(result(opus=tokens(1, 1)), 0.0, ())
    assert book.read().models["opus"].thinking_tokens is None
    book.charge(result(opus=tokens(2, 2, thinkingTokens=5, contextWindow=200)), 0.0, ())
    book.charge(result(opus=tokens(3, 3, thinkingTokens=7)), 0.0, ())
    found = book.read().models["opus"]
    assert (found.thinking_tokens, found.context_window) == (7, 200)


def test_cache_tokens_are_summed(book: UsageBook) -> None:
    cached = {"cacheReadInputTokens": 3, "cacheCreationInputTokens": 4}
    book.charge(result(opus=tokens(1, 1, **cached), haiku=tokens(1, 1, **cached)), None, ())
    book.note([answer("m", cache_read_input_tokens=10, cache_creation_input_tokens=20)])
    found = book.read()
    assert (found.cache_read_input_tokens, found.cache_creation_input_tokens) == (16, 28)
    assert found.cost_usd is None


def test_messages_of_one_answer_count_once(book: UsageBook) -> None:
    """The CLI sends one message per block, each with the usage of the whole answer."""
    book.note([answer("m1"), answer("m1"), answer("m2", 5)])
    book.note([answer("m2", 5)])
    assert counted(book.read())[:2] == (15, 2)


def test_answers_of_parallel_subagents_count_once(book: UsageBook) -> None:
    book.note([answer("a", 1), answer("b", 2), answer("a", 1), answer("b", 2), answer("a", 1)])
    assert counted(book.read())[:2] == (3, 2)


def test_a_result_replaces_the_answers_that_it_includes(book: UsageBook) -> None:
    book.note([answer("m1"), answer("m2")])
    book.charge(result(opus=tokens(20, 50)), 0.1, ("u",))
    assert counted(book.read()) == (20, 50, 0.1)
    book.note([answer("m3", 4)])
    assert counted(book.read()) == (24, 51, 0.1)


@pytest.mark.parametrize(
    "message",
    [
        answer(None),
        answer("m", model=None),
        answer("m", model="<synthetic>"),
        AssistantMessage(),
        result(),
    ],
)
def test_other_messages_count_nothing(book: UsageBook, message: Message) -> None:
    book.note([message])
    assert book.read().models == {}


def test_the_book_is_bounded_and_loses_no_tokens(book: UsageBook) -> None:
    for number in range(5 * usage.MAX_CALLS):
        book.note([answer(f"m{number}", 1)])
    assert book.read().input_tokens == 5 * usage.MAX_CALLS
    assert largest_container(book) <= 2 * usage.MAX_CALLS
    for number in range(usage.MAX_TURNS + 5):
        book.charge(result(opus=tokens(number + 1, 0)), None, (str(number),))
    found = book.read()
    assert (len(found.turns), found.turns[0].prompts) == (usage.MAX_TURNS, ("5",))
    assert found.input_tokens == usage.MAX_TURNS + 5


def test_a_long_turn_holds_little_memory(book: UsageBook) -> None:
    tracemalloc.start()
    try:
        for number in range(6000):
            book.note([answer(f"m{number}", 1)])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000


# ------------------------------------------------------------------------- calls


def call(
    id: str | None, *tools: str, parent: str | None = None, model: str = "opus"
) -> AssistantMessage:
    content = [{"type": "tool_use", "id": tool, "name": "Bash", "input": {}} for tool in tools]
    wire = {
        "type": "assistant",
        "parent_tool_use_id": parent,
        "message": {"id": id, "model": model, "content": content},
    }
    message = decode_line(msgspec.json.encode(wire))
    assert isinstance(message, AssistantMessage)
    return message


def counts(*messages: Message) -> tuple[int, int, int]:
    """Return the model calls, those of the main agent, and the tool calls."""
    calls = CallCount()
    calls.add(messages)
    return calls.model_calls, calls.main_model_calls, calls.tool_calls


def test_the_messages_of_one_answer_are_one_model_call() -> None:
    assert counts(call("1"), call("1", "t1"), call("2", "t2", "t3")) == (2, 2, 3)


def test_calls_of_subagents_are_not_calls_of_the_main_agent() -> None:
    messages = call("1", "t1"), call("s", "t2", parent="t1"), call("1", "t3")
    assert counts(*messages) == (2, 1, 3)


def test_a_message_that_the_cli_wrote_is_not_a_model_call() -> None:
    assert counts(call("1", model="<synthetic>"), call("2"), result()) == (1, 1, 0)
