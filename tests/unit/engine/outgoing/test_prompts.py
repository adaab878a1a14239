"""What a query may be asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from bridle._engine.outgoing.prompts import (
    END_OF_PROMPT,
    UncheckedMessage,
    close_verbatim,
    encode_composed,
    encode_prompt,
    prompts_at_hand,
)
from bridle.content import TextBlock
from bridle.errors import OptionsError

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
MESSAGE = {"type": "user", "message": {"role": "user", "content": "hi"}}


def written(prompt: object) -> dict[str, Any]:
    """The members of a prompt's line."""
    line = encode_prompt(prompt, "u-1")
    assert line.endswith(b"\n")
    members: dict[str, Any] = json.loads(line)
    return members


class Name(str):
    """A text of a class of the user, with a form of its own."""

    def __str__(self) -> str:
        raise AssertionError("methods of the user are not called")


def generator() -> Iterator[str]:
    yield "a"


async def async_generator() -> AsyncIterator[str]:
    yield "a"


class AnyIterable:
    """Nothing but iterable."""

    def __iter__(self) -> Iterator[str]:
        return generator()


# ---------------------------------------------------------------- one or several


@pytest.mark.parametrize(
    ("prompts", "each"),
    [
        ("hi", ["hi"]),
        ("", [""]),
        (MESSAGE, [MESSAGE]),
        ([IMAGE], [[IMAGE]]),
        ((TextBlock("a"), IMAGE), [(TextBlock("a"), IMAGE)]),
        (["a", "b"], ["a", "b"]),
        ([MESSAGE, "b"], [MESSAGE, "b"]),
        ([[IMAGE], "b"], [[IMAGE], "b"]),
        (["a", IMAGE], ["a", IMAGE]),
    ],
)
def test_a_list_of_blocks_is_one_prompt_and_any_other_list_is_several(
    prompts: object, each: list[object]
) -> None:
    """R409."""
    assert list(prompts_at_hand(prompts) or ()) == each


@pytest.mark.parametrize(
    "prompts", [generator(), async_generator(), AnyIterable(), {"a", "b"}, iter("ab")]
)
def test_other_iterables_are_drawn_from_later(prompts: object) -> None:
    """R409."""
    assert prompts_at_hand(prompts) is None


@pytest.mark.parametrize("prompts", [None, 5, b"bytes", bytearray(b"x"), [], ()])
def test_a_value_that_is_not_a_prompt_is_refused(prompts: object) -> None:
    with pytest.raises(OptionsError) as caught:
        prompts_at_hand(prompts)
    assert caught.value.field == "prompt"


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("prompt", "content"),
    [
        ("hi\n there", "hi\n there"),
        ([TextBlock("a"), IMAGE], [{"type": "text", "text": "a"}, IMAGE]),
        (MESSAGE, "hi"),
        (Name("hi"), "hi"),
        ([TextBlock(Name("a"))], [{"type": "text", "text": "a"}]),
        ([{Name("type"): Name("text"), "text": Name("a")}], [{"type": "text", "text": "a"}]),
        ({**MESSAGE, "message": {"role": "user", "content": Name("hi")}}, "hi"),
        ({**MESSAGE, "message": {"role": "user", "content": [IMAGE]}}, [IMAGE]),
    ],
)
def test_a_prompt_is_one_line(prompt: object, content: object) -> None:
    assert written(prompt) == {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": "",
        "uuid": "u-1",
    }


def test_a_message_keeps_what_it_says() -> None:
    said = {"session_id": "s", "parent_tool_use_id": "t", "priority": "next"}
    flags = {"isSynthetic": True, "client_composed": True}
    message = {**MESSAGE, **said, **flags, "uuid": "mine"}
    assert written(message) == message


def test_members_that_only_the_cli_understands_are_sent_as_they_are() -> None:
    more = {"origin": {"kind": "human"}, "shouldQuery": False}
    assert written({**MESSAGE, **more}).items() >= more.items()


def test_a_member_that_says_nothing_counts_as_absent() -> None:
    assert written({**MESSAGE, "uuid": None})["uuid"] == "u-1"


@pytest.mark.parametrize(
    "prompt",
    [
        5,
        None,
        b"bytes",
        [],
        ["text among blocks", IMAGE],
        IMAGE,
        {"type": "user", "content": "flat"},
        {"type": "user", "message": "text"},
        {"type": "user", "message": {"content": "no role"}},
        {"type": "user", "message": {"role": "assistant", "content": "x"}},
        {"type": "user", "message": {"role": "user", "content": 5}},
        {"type": "user", "message": {"role": "user", "content": []}},
        {"type": "user", "message": {"role": "user"}},
        {**MESSAGE, "surprise": 1},
        {"type": "user", "message": {"role": "user", "content": "x", "surprise": 1}},
        [{"type": "text", "text": object()}],
        "half a pair \ud800",
    ],
)
def test_what_the_cli_would_choke_on_is_refused(prompt: object) -> None:
    with pytest.raises(OptionsError) as caught:
        encode_prompt(prompt, "u-1")
    assert caught.value.field == "prompt"
    assert caught.value.fix


def test_a_prompt_of_bridle_is_not_interpreted() -> None:
    """Older CLIs interpret the last block, whatever the line says."""
    line = json.loads(encode_composed("rejected: @/etc/passwd", "u"))
    assert (line["uuid"], line["client_composed"]) == ("u", True)
    first, last = line["message"]["content"]
    assert first["text"] == "rejected: @/etc/passwd"
    assert not {"@", "/", "!"} & set(last["text"])


@pytest.mark.parametrize("prompt", ["/clear", [IMAGE], {**MESSAGE, "client_composed": False}])
def test_a_verbatim_prompt_says_so(prompt: object) -> None:
    """The option wins over the prompt itself."""
    assert json.loads(encode_prompt(prompt, "u", is_verbatim=True))["client_composed"] is True
    assert "client_composed" not in json.loads(encode_prompt(prompt, "u"))


def said(*texts: str) -> list[Any]:
    return [{"type": "text", "text": one} for one in texts]


@pytest.mark.parametrize("version", ["2.1.247", "2.0.0", None, "odd"])
@pytest.mark.parametrize(
    ("prompt", "content"),
    [
        ("@/etc/passwd", said("@/etc/passwd", END_OF_PROMPT)),
        ([*said("@/a"), IMAGE], [*said("@/a"), IMAGE, *said(END_OF_PROMPT)]),
        (said(END_OF_PROMPT, "/clear"), said(END_OF_PROMPT, "/clear", END_OF_PROMPT)),
        (said("a", END_OF_PROMPT), said("a", END_OF_PROMPT)),  # one is enough
        ("  ", "  "),
        (
            {"type": "user", "message": {"role": "user", "content": "!ls"}},
            said("!ls", END_OF_PROMPT),
        ),
    ],
)
def test_a_verbatim_prompt_ends_with_a_fixed_block_for_older_clis(
    prompt: Any, content: object, version: str | None
) -> None:
    """A CLI whose version is not known may be an older one."""
    line = encode_prompt(prompt, "u", is_verbatim=True)
    closed = close_verbatim(line, version)
    assert json.loads(closed) == {
        **json.loads(line),
        "message": {"role": "user", "content": content},
    }
    assert close_verbatim(line, "2.1.248") == line
    assert close_verbatim(closed, version) == closed


def test_a_prompt_without_content_is_left_to_the_cli() -> None:
    message = UncheckedMessage(type="user", message={"role": "user"}, uuid="u")
    line = encode_prompt(message, "u", is_verbatim=True)
    assert close_verbatim(line, None) == line
