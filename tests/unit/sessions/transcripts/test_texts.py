"""Prompts of the user, and what the CLI writes in their place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.stored import assistant, result, user

from bridle.sessions._transcripts.texts import UserText, command_of
from bridle.sessions._transcripts.transcript import entry_of_line


def is_shown_as_prompt(members: dict[str, Any]) -> bool:
    message = entry_of_line(json.dumps(members).encode()).message
    assert message is not None
    return UserText.of_prompt(message) is not None


def test_a_prompt_is_what_the_user_wrote() -> None:
    assert is_shown_as_prompt(user("a", None, "text"))
    assert is_shown_as_prompt(user("a", None, [{"type": "image", "source": {}}]))
    assert is_shown_as_prompt(user("a", None, "<command-name>/x</command-name>"))
    for content in (
        result("1"),
        "[Request interrupted by user for tool use]",
        "<local-command-stdout>x</local-command-stdout>",
        "<local-command-stderr>x</local-command-stderr>",
        "<ide_selection>x</ide_selection>",
    ):
        assert not is_shown_as_prompt(user("a", None, content))
    assert not is_shown_as_prompt(user("a", None, "summary", isCompactSummary=True))
    assert not is_shown_as_prompt(assistant("a", None))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("<command-name>/a</command-name>\n  <command-args>b\nc</command-args>", ("/a", "b\nc")),
        ("<command-message>a</command-message>\n<command-name>/a</command-name>", ("/a", "")),
        ("<command-name>/a", None),
        ("<command-name></command-name>", None),
        ("What is <command-name>/a</command-name>?", None),
        ("", None),
    ],
)
def test_a_command_is_read_from_what_the_cli_writes(
    text: str, command: tuple[str, str] | None
) -> None:
    assert command_of(text) == command
    typed = text.strip() if command is None else " ".join(command).strip()
    assert UserText(text).as_typed == typed


def test_what_a_command_printed_is_read_without_styles() -> None:
    text = "\n<local-command-stdout>\x1b[1mone\x1b[22m\ntwo</local-command-stdout>"
    assert UserText(text).output == "one\ntwo"
    assert UserText("<local-command-stdout></local-command-stdout>").output == ""
    assert UserText(f"What is {text}?").output is None
