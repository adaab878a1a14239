"""A request to the model, with properties that tests can check.

The body can be any JSON. A property of a missing or invalid part is empty or None.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

import msgspec

_END_OF_PROMPT = "End of the message."
"""The last block of a prompt in which an older CLI must interpret nothing."""

# The CLI adds text around prompts and after tool results.
_REMINDERS = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_SECRETS = ("x-api-key", "authorization", "proxy-authorization", "cookie")


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether this is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Return whether this is a JSON array."""
    return isinstance(value, list)


def objects(value: object) -> Iterator[dict[str, object]]:
    """Yield the objects in an array; nothing if the value is not an array."""
    return filter(is_object, value if is_array(value) else ())


def content_blocks(message: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the blocks of a message. A string becomes one text block, an empty string none."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(objects(content))


def redacted(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with credentials masked. An empty credential stays empty."""
    return {
        name: "[redacted]" if value and name in _SECRETS else value
        for name, value in headers.items()
    }


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to the API: its path, its headers (credentials masked) and its JSON body.

    `path` does not include the query. `raw` is empty if the body is not a JSON object.
    """

    method: str
    path: str
    headers: dict[str, str]
    raw: dict[str, object]

    @property
    def model(self) -> str:
        """The name of the requested model."""
        value = self.raw.get("model")
        return value if isinstance(value, str) else ""

    @property
    def messages(self) -> list[dict[str, object]]:
        """The conversation, as sent."""
        return list(objects(self.raw.get("messages")))

    @property
    def system_text(self) -> str:
        """The system prompt. Its parts are separated by newlines."""
        return _joined(self.raw.get("system"))

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools in the request."""
        return tuple(str(tool.get("name", "")) for tool in objects(self.raw.get("tools")))

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens in the reply."""
        value = self.raw.get("max_tokens")
        return value if isinstance(value, int) else None

    @property
    def stream(self) -> bool:
        """True if the CLI asks for a streamed reply."""
        return self.raw.get("stream") is True

    @property
    def thinking(self) -> dict[str, object] | None:
        """The thinking configuration of the request."""
        value = self.raw.get("thinking")
        return value if is_object(value) else None

    @property
    def agent_id(self) -> str | None:
        """The id of the subagent that sent the request; None for the main conversation."""
        return self.headers.get("x-claude-code-agent-id")

    @property
    def last_user_text(self) -> str:
        """The latest text of the user, without text that the CLI or Bridle adds.

        The CLI adds `<system-reminder>`, Bridle the last block of a prompt that an older CLI must
        not interpret.
        """
        for message in reversed(self.messages):
            if message.get("role") == "user":
                for block in reversed(content_blocks(message)):
                    words = block.get("text")
                    if not isinstance(words, str) or words == _END_OF_PROMPT:
                        continue
                    if left := _REMINDERS.sub("", words):
                        return left
        return ""

    @property
    def tool_results(self) -> dict[str, str]:
        """The text of every tool result, by the id of its tool call, in order.

        Text that the CLI adds (`<system-reminder>`) is removed.
        """
        return {
            str(block.get("tool_use_id")): _REMINDERS.sub("", _joined(block.get("content")))
            for message in self.messages
            for block in content_blocks(message)
            if block.get("type") == "tool_result"
        }

    @property
    def last_tool_result(self) -> str | None:
        """The text of the latest tool result; None if there is none yet."""
        results = list(self.tool_results.values())
        return results[-1] if results else None

    @property
    def answers_tool_call(self) -> bool:
        """True if the latest message of the user contains the result of a tool call.

        Use it in a function that replies as the model, to distinguish a prompt from a tool result.
        """
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return any(b.get("type") == "tool_result" for b in content_blocks(message))
        return False

    def __str__(self) -> str:
        """Describe the request in one line."""
        if self.path != "/v1/messages":
            return f"{self.method} {self.path}"
        who = f"agent {self.agent_id}" if self.agent_id else "main conversation"
        said = self.last_tool_result
        is_result = self.answers_tool_call
        last = f"tool result {said!r:.80}" if is_result else f"{self.last_user_text!r:.80}"
        count = len(self.messages)
        return f"POST {self.path} ({self.model}, {who}, {count} messages, last: {last})"


def _joined(content: object) -> str:
    """Return the text of a string or of a list of text blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(
        text for block in objects(content) if isinstance(text := block.get("text"), str)
    )


class SharedParts:
    """Keep equal parts of requests once.

    Every request repeats the conversation so far. Without this the memory of a model grows with
    the square of the number of turns.
    """

    def __init__(self) -> None:
        self._parts: dict[bytes, object] = {}

    def body(self, raw: dict[str, object]) -> dict[str, object]:
        """Return an equal body whose tools, system prompt and messages are shared."""
        messages = raw.get("messages")
        shared: dict[str, object] = {
            name: self._share(raw[name]) for name in ("system", "tools") if name in raw
        }
        if is_array(messages):
            shared["messages"] = [self._share(message) for message in messages]
        return {**raw, **shared}

    def _share(self, part: object) -> object:
        digest = hashlib.sha256(msgspec.json.encode(part)).digest()
        return self._parts.setdefault(digest, part)
