"""Encode the prompts of a query: one prompt or several, each as one line for the CLI.

A prompt is a text, a list of content blocks, or a whole user message as a mapping. Prompts that
would make the CLI exit or do nothing are rejected here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import cast

import msgspec

from bridle._engine.versions import Version, is_since
from bridle._engine.wire.codec import Unencodable, encode_user_mapping, encode_user_message
from bridle._records.fields import is_list, is_mapping
from bridle.content import Block
from bridle.errors import OptionsError

_FIX = "Give text, a list of content blocks, a user message, or an iterable of these."
_SHAPE = '{"type": "user", "message": {"role": "user", "content": ...}}'

_BYTES = (bytes, bytearray, memoryview)  # iterables, but of numbers

# Fields of a user message that are sent as they are.
_PASSED_ON = ("origin", "shouldQuery", "timestamp", "tool_use_result")

# Other fields of a user message, with the matching arguments of the encoder.
_MEMBERS = {
    "uuid": "uuid",
    "session_id": "session_id",
    "parent_tool_use_id": "parent_tool_use_id",
    "priority": "priority",
    "isSynthetic": "is_synthetic",
    "client_composed": "client_composed",
}


class UncheckedMessage(dict[str, object]):
    """A whole user message with a uuid. It is sent as it is, with fields that are not known."""

    @classmethod
    def check(cls, item: object) -> None:
        """Raise OptionsError if an item of an iterable of prompts cannot be sent."""
        encode_prompt(cls(cast("Mapping[str, object]", item)) if is_mapping(item) else item, "")


END_OF_PROMPT = "End of the message."
"""The last block of a prompt in which an older CLI must interpret nothing."""

VERBATIM_SINCE = Version(2, 1, 248)
"""The first CLI that interprets nothing in a prompt with ``client_composed``."""


def prompts_at_hand(prompts: object) -> Sequence[object] | None:
    """Return the prompts as a sequence, or None for an iterable that has to be read first.

    A list that holds only content blocks is one prompt. Any other list holds one prompt per item.

    Raises:
        OptionsError: the value is not a prompt.
    """
    if isinstance(prompts, str) or is_mapping(prompts):
        return [prompts]
    if isinstance(prompts, list | tuple):
        several = cast("Sequence[object]", prompts)
        if not several:
            raise OptionsError("prompt", "is an empty list", fix=_FIX)
        return [several] if all(map(_is_block, several)) else several
    if _is_iterable(prompts):
        return None
    raise _refusal(prompts)


def encode_prompt(prompt: object, uuid: str, *, is_verbatim: bool = False) -> bytes:
    """Return a prompt as a line for the CLI. ``uuid`` is used unless the prompt has its own.

    ``is_verbatim`` keeps the CLI from interpreting the prompt, whatever the prompt itself says.

    Raises:
        OptionsError: the value is not a prompt, or JSON cannot carry its content.
    """
    try:
        if isinstance(prompt, str):
            return encode_user_message(prompt, uuid, client_composed=is_verbatim)
        if is_mapping(prompt):
            own = {**prompt, "client_composed": True} if is_verbatim else prompt
            if isinstance(prompt, UncheckedMessage):
                _check_shape(prompt)
                return encode_user_mapping(cast("Mapping[str, object]", own))
            return _encode_message(own, uuid)
        if is_list(prompt):
            return encode_user_message(_blocks(prompt), uuid, client_composed=is_verbatim)
    except Unencodable as problem:
        raise OptionsError("prompt", str(problem), fix="Use JSON values.") from None
    raise _refusal(prompt)


def encode_composed(text: str, uuid: str) -> bytes:
    """Return a prompt that Bridle has written as a line for the CLI.

    It may quote what the model, a tool or a person has written, so the CLI must interpret no
    ``@path``, slash command or ``!`` in it. Newer CLIs interpret nothing in a line that says so.
    Older ones ignore that, but interpret only the last block.
    """
    blocks = [_text_block(text), _text_block(END_OF_PROMPT)]
    return encode_user_message(blocks, uuid, client_composed=True)


def close_verbatim(line: bytes, cli_version: str | None) -> bytes:
    """Return the line of a verbatim prompt in the form for a CLI of this version.

    A CLI before 2.1.248 ignores ``client_composed``, so the prompt gets a last block, as in
    `encode_composed`. A CLI whose version is not known gets it too.
    """
    if is_since(cli_version, VERBATIM_SINCE):
        return line
    prompt = msgspec.json.decode(line)
    content, end = prompt["message"].get("content"), _text_block(END_OF_PROMPT)
    if isinstance(content, str) and content.strip():
        content = [_text_block(content)]
    if not is_list(content) or not content or content[-1] == end:
        return line
    prompt["message"]["content"] = [*content, end]
    return encode_user_mapping(prompt)


def _text_block(text: str) -> Mapping[str, object]:
    return {"type": "text", "text": text}


def uuid_of(prompt: object) -> str | None:
    """Return the uuid that a prompt contains, or None."""
    named = prompt.get("uuid") if is_mapping(prompt) else None
    return named if isinstance(named, str) else None


def _check_shape(message: Mapping[object, object] | UncheckedMessage) -> Mapping[object, object]:
    """Return the inner message of a user message."""
    inner = message.get("message")
    if message.get("type") != "user" or not is_mapping(inner) or inner.get("role") != "user":
        raise OptionsError("prompt", "is a mapping, but not a user message", fix=f"Write {_SHAPE}.")
    return inner


def _encode_message(message: Mapping[object, object], uuid: str) -> bytes:
    inner = _check_shape(message)
    content = inner.get("content")
    known = {*_MEMBERS, *_PASSED_ON, "type", "message"}
    strays = {*message} - known | {*inner} - {"role", "content"}
    if strays:
        names = ", ".join(sorted(map(str, strays)))
        raise OptionsError("prompt", f"has unknown keys: {names}", fix=f"Write {_SHAPE}.")
    said = {
        _MEMBERS[str(name)]: value
        for name, value in message.items()
        if name in _MEMBERS and value is not None
    }
    more = {name: message[name] for name in _PASSED_ON if name in message}
    encode = cast("Callable[..., bytes]", encode_user_message)
    return encode(
        content if isinstance(content, str) else _blocks(content),
        **{"uuid": uuid, **said, "more": more},
    )


def _blocks(content: object) -> Sequence[Block | Mapping[str, object]]:
    if is_list(content) and content and all(map(_is_block, content)):
        return cast("Sequence[Block | Mapping[str, object]]", content)
    raise OptionsError("prompt", "has content that is neither text nor a list of blocks", fix=_FIX)


def _is_block(item: object) -> bool:
    return isinstance(item, Block) or (is_mapping(item) and item.get("type") != "user")


def _is_iterable(value: object) -> bool:
    return isinstance(value, AsyncIterable | Iterable) and not isinstance(value, _BYTES)


def _refusal(value: object) -> OptionsError:
    return OptionsError("prompt", f"cannot be a {type(value).__name__}", fix=_FIX)
