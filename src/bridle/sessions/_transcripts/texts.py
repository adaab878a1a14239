"""Tell prompts from the texts that the CLI writes into user messages: commands, output, notes."""

from __future__ import annotations

import re

from msgspec import Struct

from bridle.messages import UserMessage
from bridle.messages._message import Message

INTERRUPTED = "[Request interrupted by user"
"""The start of the text with which the CLI notes an interrupt."""

_NOT_A_PROMPT = re.compile(
    r"\s*<local-command-\w+>|<session-start-hook>|<tick>|<goal>"
    rf"|{re.escape(INTERRUPTED)}[^\]]*\]"
    r"|\s*<ide_opened_file>[\s\S]*</ide_opened_file>\s*$|\s*<ide_selection>[\s\S]*</ide_selection>\s*$"
)
_OUTPUT = re.compile(r"\s*<(local-command-\w+)>(.*)</\1>\s*", re.DOTALL)
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class UserText(Struct, frozen=True):
    """A text in a user message."""

    text: str

    @classmethod
    def of_prompt(cls, message: Message) -> UserText | None:
        """Return the text of a message. None if the message is not a prompt of the user."""
        if not isinstance(message, UserMessage) or message.is_synthetic or message.agent_path:
            return None
        content = message.content
        if not isinstance(content, str) and any(block.type == "tool_result" for block in content):
            return None
        return cls(message.text) if is_prompt_text(message.text) else None

    @property
    def as_typed(self) -> str:
        """The prompt as the user typed it."""
        return " ".join(command_of(self.text) or (self.text,)).strip()

    @property
    def output(self) -> str | None:
        """What a command of the CLI printed. None if the text is something else."""
        found = _OUTPUT.fullmatch(self.text)
        return None if found is None else _STYLE.sub("", found[2]).strip()


def is_prompt_text(text: str) -> bool:
    """Return whether the user wrote the text of a user message."""
    return _NOT_A_PROMPT.match(text) is None


def command_of(text: str) -> tuple[str, str] | None:
    """Return the name and the arguments of a command, such as ``/model`` and ``sonnet``.

    Return None if the text is not what the CLI writes for a command.
    """
    name = _between(text, "<command-name>", "</command-name>")
    if not name or not text.lstrip().startswith("<command-"):
        return None
    return name, _between(text, "<command-args>", "</command-args>")


def _between(text: str, start: str, end: str) -> str:
    inside, found, _ = text.partition(start)[2].partition(end)
    return inside.strip() if found else ""
