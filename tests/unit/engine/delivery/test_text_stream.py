"""The text of a conversation as a stream: what the model wrote, each part once, blocks apart."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cli import assistant, decoded, line, result, synthetic, system, user

from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.turns.model_text import is_error_report
from bridle.messages import AssistantMessage, Message

Json = dict[str, Any]


def whole(*texts: str, id: str = "m1", **members: object) -> bytes:
    """Return an assistant line with these text blocks."""
    content = [{"type": "text", "text": text} for text in texts]
    message = {"id": id, "role": "assistant", "model": "opus", "content": content}
    return line(type="assistant", message=message, **members)


def event(type_: str, **members: object) -> bytes:
    return line(type="stream_event", event={"type": type_, **members})


def start(id: str = "m1") -> bytes:
    return event("message_start", message={"id": id, "model": "opus", "content": []})


def block(*deltas: str, index: int = 0) -> bytes:
    """Return the events of one text block."""
    return open_block(*deltas, index=index) + event("content_block_stop", index=index)


def open_block(*deltas: str, index: int = 0) -> bytes:
    """Return the events of a text block that does not end."""
    begin = event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    pieces = [
        event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})
        for text in deltas
    ]
    return b"".join([begin, *pieces])


def stop(reason: str) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}) + event("message_stop")


def refused(id: str) -> bytes:
    """Return the line by which a newer CLI asks again after a refusal."""
    return user("Do not produce that again.", isSynthetic=True, refused_message_id=id)


def shown_at_the_end(*lines: bytes) -> tuple[list[str], str, str]:
    """Return what is shown, then what the end adds, twice."""
    stream = TextStream()
    pieces = [text for message in decoded(b"".join(lines)) if (text := stream.feed(message))]
    return pieces, stream.end(), stream.end()


API_ERROR: Json = {"error": "server_error"}


def shown(*lines: bytes, separator: str | None = None) -> list[str]:
    stream = TextStream() if separator is None else TextStream(separator)
    return [text for message in decoded(b"".join(lines)) if (text := stream.feed(message))]


# ---------------------------------------------------------------- blocks


def test_whole_blocks_are_separated_by_a_blank_line() -> None:
    lines = (whole("One."), whole("Two."), user("a tool's result"), whole("Three.", id="m2"))
    assert shown(*lines) == ["One.", "\n\nTwo.", "\n\nThree."]


def test_blocks_of_one_message_are_separated_too() -> None:
    assert shown(whole("One.", "", "Two.")) == ["One.\n\nTwo."]


def test_deltas_of_a_block_are_not_separated_and_blocks_are() -> None:
    lines = (
        start(),
        block("On", "e."),
        whole("One."),
        block("Two.", index=1),
        whole("Two."),
        start("m2"),
        block("Three."),
        whole("Three.", id="m2"),
    )
    assert shown(*lines) == ["On", "e.", "\n\nTwo.", "\n\nThree."]


def test_with_and_without_partial_messages_the_text_is_the_same() -> None:
    parts = (start(), block("On", "e."), whole("One."), start("m2"), block("Two."))
    assert "".join(shown(*parts)) == "".join(shown(whole("One."), whole("Two.", id="m2")))


def test_an_answer_that_is_sent_again_without_a_stream_is_a_new_block() -> None:
    lines = (start(), block("only a "), whole("second try", id="m2"))
    assert shown(*lines) == ["only a ", "\n\nsecond try"]


FIRST, SECOND = ("Hello ", "brave "), ("Hello ", "brave new ", "world")


@pytest.mark.parametrize(
    "again",
    [
        (whole("Hello brave new world", id="m2"),),
        (user("The prompt.", isReplay=True), whole("Hello brave new world", id="m2")),
        (start("m2"), block(*SECOND), whole("".join(SECOND), id="m2"), stop("end_turn")),
        (start("m2"), open_block("He"), start("m3"), block(*SECOND), stop("end_turn")),
        (start("m2"), open_block("Hello brave new "), whole("Hello brave new world", id="m3")),
    ],
    ids=[
        "whole",
        "after the prompt",
        "in deltas",
        "in deltas that break off too",
        "after a second, longer part",
    ],
)
def test_an_answer_that_is_sent_again_does_not_repeat_what_was_shown(
    again: tuple[bytes, ...],
) -> None:
    pieces = shown(start(), open_block(*FIRST), *again, result(), whole("Hello brave ", id="m9"))
    assert "".join(pieces) == "Hello brave new world\n\nHello brave "


def test_an_answer_that_the_cli_abandoned_is_not_repeated() -> None:
    """CLI 2.1.325 closes the block and the message of a stream that broke off."""
    abandoned = line(
        type="stream_event", event={"type": "message_stop"}, abandoned_blocks={"indexes": [0]}
    )
    lines = (start("m1"), block("one "), abandoned, whole("one two three", id="m2"))
    assert "".join(shown(*lines)) == "one two three"


def thought(id: str = "m2") -> bytes:
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    message = {"id": id, "role": "assistant", "model": "opus", "content": [block]}
    return line(type="assistant", message=message)


def test_an_answer_that_thinks_before_it_repeats_what_was_shown_does_not_repeat_it() -> None:
    begun = event("content_block_start", index=0, content_block={"type": "thinking"})
    in_deltas = (start("m2"), begun, thought(), block(*SECOND, index=1), stop("end_turn"))
    for again in ((thought(), whole("".join(SECOND), id="m2")), in_deltas):
        assert "".join(shown(start(), open_block(*FIRST), *again)) == "Hello brave new world"


def test_an_answer_that_breaks_off_while_it_repeats_is_left_out() -> None:
    second = (thought("m2"), start("m3"), open_block("Hel"), thought("m4"))
    lines = (start(), open_block("Hello "), *second, whole("Hello you", id="m4"))
    assert shown(*lines) == ["Hello ", "you"]


def test_an_answer_that_thinks_and_then_differs_is_shown_whole() -> None:
    lines = (start(), open_block("Hello "), thought(), whole("Help!", id="m2"))
    assert shown(*lines) == ["Hello ", "\n\nHelp!"]


def test_another_answer_in_place_of_one_that_broke_off_is_shown_whole() -> None:
    lines = (start(), open_block("Hello brave"), start("m2"), block("Hello ", "world"))
    assert shown(*lines) == ["Hello brave", "\n\nHello world"]


@pytest.mark.parametrize("between", [user("Next."), result()], ids=["prompt", "result"])
def test_a_later_answer_that_begins_as_an_interrupted_one_is_shown_whole(between: bytes) -> None:
    lines = (start(), open_block("Hello"), between, whole("Hello again", id="m2"))
    assert shown(*lines) == ["Hello", "\n\nHello again"]


def test_a_block_without_text_adds_no_separator() -> None:
    empty = event("content_block_start", index=0, content_block={"type": "thinking"})
    assert shown(start(), empty, block("", "One.", index=1), whole("")) == ["One."]


def test_a_reader_that_comes_in_the_middle_of_a_message_gets_the_rest_once() -> None:
    rest = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo"})
    assert shown(rest, whole("Hello"), whole("Next.", id="m2")) == ["lo", "\n\nNext."]


def test_another_separator_may_be_chosen() -> None:
    assert shown(whole("One."), whole("Two."), separator=" | ") == ["One.", " | Two."]


def test_text_of_subagents_is_left_out() -> None:
    of = {"parent_tool_use_id": "t1"}
    delta = {"type": "text_delta", "text": "sub"}
    inside = line(
        type="stream_event",
        event={"type": "content_block_delta", "index": 0, "delta": delta},
        parent_tool_use_id="t1",
    )
    assert shown(whole("sub", **of), inside, user("x", refused_message_id="m", **of)) == []


# ---------------------------------------------------------------- words of the CLI


@pytest.mark.parametrize(
    "report",
    [
        synthetic("API Error: 529 Overloaded", **API_ERROR),
        synthetic("API Error: 529", is_api_error_message=True),
        synthetic("Not logged in · Please run /login", error="authentication_failed"),
        synthetic("Error: no", local_command_outcome={"kind": "failed"}),
        synthetic("Error during compaction: API Error: 400"),
        synthetic("Unknown command: /nosuch"),
    ],
)
def test_a_report_of_a_failure_is_not_text(report: bytes) -> None:
    (message,) = decoded(report)
    assert isinstance(message, AssistantMessage)
    assert is_error_report(message)
    assert shown(whole("First."), report) == ["First."]


def test_the_output_of_a_slash_command_is_text() -> None:
    assert shown(synthetic("Total cost: $0.01")) == ["Total cost: $0.01"]


def test_a_model_may_write_about_errors() -> None:
    assert shown(whole("Error: is what you saw.")) == ["Error: is what you saw."]


# ---------------------------------------------------------------- refusals

AGAIN = (start("m1"), block("I ca", "nnot"), whole("I cannot"), stop("refusal"), refused("m1"))


def test_an_answer_that_is_refused_twice_is_shown_once_in_deltas() -> None:
    second = (start("m2"), block("I ca", "nnot"), whole("I cannot", id="m2"))
    report = synthetic("API Error: can't help", error="invalid_request", refused_message_id="m2")
    end = result(is_error=True, stop_reason="refusal", result="API Error: can't help")
    assert shown(*AGAIN, *second, report, stop("refusal"), end) == ["I ca", "nnot"]


def test_an_answer_that_is_refused_twice_is_shown_once_in_whole() -> None:
    report = synthetic("API Error: can't help", error="invalid_request")
    lines = (whole("I cannot"), refused("m1"), whole("I cannot", id="m2"), report)
    assert shown(*lines, result(is_error=True, stop_reason="refusal")) == ["I cannot"]


def test_the_answer_after_a_refusal_is_shown_when_it_has_ended() -> None:
    stream = TextStream()
    seen = [stream.feed(one) for one in decoded(b"".join(AGAIN))]
    assert "".join(seen) == "I cannot"
    second = decoded(start("m2") + block("All", " right.") + whole("All right.", id="m2"))
    assert [stream.feed(one) for one in second] == [""] * len(second)
    assert "".join(stream.feed(one) for one in decoded(stop("end_turn"))) == "\n\nAll right."


@pytest.mark.parametrize("end", [user("a tool's result"), result(stop_reason="end_turn")])
def test_without_deltas_the_next_line_tells_that_the_answer_stands(end: bytes) -> None:
    lines = (refused("m1"), whole("All right.", id="m2"), system("informational"), end)
    assert shown(*lines) == ["All right."]


def test_a_second_refusal_that_is_asked_again_drops_the_second_answer() -> None:
    lines = (refused("m1"), whole("No.", id="m2"), refused("m2"), whole("Yes.", id="m3"))
    assert shown(*lines, result()) == ["Yes."]


def test_other_messages_add_nothing() -> None:
    stream = TextStream()
    messages: list[Message] = decoded(system("init") + user("hello") + result(result="4"))
    assert [stream.feed(message) for message in messages] == ["", "", ""]


def test_a_plain_answer_needs_no_id() -> None:
    assert shown(assistant("words"), assistant("more")) == ["words", "\n\nmore"]


def test_text_that_is_held_back_is_shown_at_the_end_of_the_stream() -> None:
    """A CLI that ends in the middle of an answer after a refusal sends no stop reason."""
    lines = (start(), block("No"), refused("m1"), start("m2"), open_block("Second ", "answer"))
    assert shown_at_the_end(*lines) == (["No"], "\n\nSecond answer", "")
    assert shown_at_the_end(start(), block("Yes")) == (["Yes"], "", "")


def test_interleaved_deltas_of_subagents_do_not_disturb_the_text() -> None:
    stream, shown = TextStream(), ""
    mine = decoded(start() + block("one ", "two ", "three") + whole("one two three"))
    for message in mine:
        for agent in ("t1", "t2"):
            of = {"parent_tool_use_id": agent}
            change = {"type": "text_delta", "text": f"of {agent}"}
            delta = {"type": "content_block_delta", "delta": change}
            foreign = (
                line(type="stream_event", event={"type": "message_start", "message": {}}, **of)
                + line(type="stream_event", event=delta, **of)
                + whole("whole", id=f"m-{agent}", **of)
                + user("a result", **of)
            )
            assert [stream.feed(each) for each in decoded(foreign)] == [""] * 4
        shown += stream.feed(message)
    assert shown + stream.end() == "one two three"
