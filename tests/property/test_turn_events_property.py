"""For random answers the events with and without partial messages are the same once joined."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.cli import result
from tests.support.turn_lines import (
    OUTCOME,
    abandoned,
    call,
    joined,
    parts,
    start,
    stop,
    text,
    thinking,
    tool_result,
    translated,
    whole,
)

Json = dict[str, Any]
WORDS = st.text("ab \n", min_size=1, max_size=12)


@st.composite
def blocks(draw: st.DrawFn) -> Json:
    """A block of an answer. The ids of calls are set later."""
    make = draw(st.sampled_from([text, thinking]))
    return draw(
        st.one_of(WORDS.map(make), WORDS.map(lambda words: call("", "Bash", command=words)))
    )


ANSWERS = st.lists(st.lists(blocks(), min_size=1, max_size=4), min_size=1, max_size=4)


def cuts(draw: st.DrawFn, block: Json) -> list[int]:
    size = len(block.get("text") or block.get("thinking") or "") or 5
    return draw(st.lists(st.integers(0, size), max_size=3))


@st.composite
def turns(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The lines of a turn: with partial messages, then without.

    A stream may break off in any block. The CLI then asks again, and the model gives the same
    answer or another one.
    """
    streamed, complete = [], []
    calls = 0
    for number, answer in enumerate(draw(ANSWERS)):
        id = f"m{number}"
        if draw(st.booleans()):
            broken = draw(st.one_of(st.just(answer[0]), blocks()))
            places = cuts(draw, broken)
            if broken["type"] == "tool_use":
                broken = {**broken, "id": f"broken{number}"}
            streamed += [start(f"b{number}"), parts(broken, *places, closed=draw(st.booleans()))]
            streamed += [abandoned()] if draw(st.booleans()) else []
        in_parts = draw(st.booleans())  # a repeated answer may come whole
        streamed += [start(id)] if in_parts else []
        results = []
        for index, block in enumerate(answer):
            if block["type"] == "tool_use":
                calls += 1
                block = {**block, "id": f"t{calls}"}  # every call has its own
                results.append(tool_result(f"t{calls}"))
            if in_parts:
                streamed.append(parts(block, *cuts(draw, block), index=index, closed=False))
            line = whole(block, id=id)
            streamed.append(line)
            complete.append(line)
        streamed += [stop()] if in_parts else []
        streamed += results
        complete += results
    return b"".join([*streamed, result()]), b"".join([*complete, result()])


@given(turns())
def test_the_joined_events_are_the_same_with_and_without_partial_messages(
    lines: tuple[bytes, bytes],
) -> None:
    streamed, complete = (translated(one, outcome=OUTCOME) for one in lines)
    assert joined(streamed) == joined(complete)
