"""The generated types of keywords are those of the option records."""

from __future__ import annotations

import typing

import build_keywords
from bridle.options import RECORDS
from bridle.options._keyword_types import AgentChanges, AgentOptions, ConversationOptions, Options
from bridle.options._keywords import CONVERSATION


def test_the_file_is_current() -> None:
    """If this fails, an option has changed: run `python tools/build_keywords.py`."""
    assert build_keywords.TARGET.read_text("utf-8") == build_keywords.build()


def test_every_option_is_a_keyword_of_the_same_type() -> None:
    hints = typing.get_type_hints(Options)
    records = {
        name: hint
        for cls in RECORDS.values()
        for name, hint in typing.get_type_hints(cls).items()
        if name in cls.fields
    }
    assert hints.pop("tools") != records.pop("tools")  # functions, too
    for name in CONVERSATION:
        records[name] |= None
    assert hints == records


def test_every_option_of_an_agent_can_be_unset() -> None:
    options, changes = typing.get_type_hints(AgentOptions), typing.get_type_hints(AgentChanges)
    assert changes == {name: hint | None for name, hint in options.items()}


def test_the_choice_of_a_conversation_is_apart() -> None:
    assert set(ConversationOptions.__annotations__) == set(CONVERSATION)
    assert not set(AgentOptions.__annotations__) & set(CONVERSATION)
