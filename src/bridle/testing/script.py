"""The script of a model: blocks, replies and their order.

This module contains data. :mod:`bridle.testing._model_server.sse` encodes replies, and
:mod:`bridle.testing.scripted_model` sends them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

import msgspec

from bridle.messages import JsonObject
from bridle.testing.model_request import ModelRequest

ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The error type of the API for each status."""

_DEFAULT_PIECES = 2  # more than one, so that a test also covers joining deltas
_RATE_LIMIT = "anthropic-ratelimit-unified-"


class Switch(Protocol):
    """An object with `is_set`, such as an event of `threading` or `asyncio`."""

    def is_set(self) -> bool:
        """Return whether the switch is set."""
        ...


class Block(msgspec.Struct, frozen=True):
    """A content block, and the deltas in which its text or the JSON of its input is streamed."""

    content: JsonObject
    pieces: int | tuple[str, ...] = _DEFAULT_PIECES


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of the model.

    `stop_reason` is derived from the blocks unless given. `usage` is merged with a small default.
    `headers` are sent with the reply. The model waits `delay` seconds before the reply and
    `chunk_delay` seconds before each delta.

    A stream consists of events: `message_start`, then for each block `content_block_start`, its
    deltas and `content_block_stop` (a `ping` follows the first `content_block_start`), then
    `message_delta` and `message_stop`. `cut_after` closes the connection after that many events.
    `hold` pauses the stream after `hold_after` events: True until `ScriptedModel.release`, a switch
    until it is set. Zero means before the first byte of the reply. If the request does not ask for
    a stream, only zero is possible.

    `status` and `error` are set by :func:`error` and :func:`stream_error`.
    """

    blocks: tuple[Block, ...] = ()
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Mapping[str, object] = {}
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    chunk_delay: float = 0.0
    cut_after: int | None = None
    hold: bool | Switch = False
    hold_after: int = 0
    status: int = 200
    error: JsonObject | None = None

    def reason(self) -> str:
        """The stop reason: as given, or derived from the blocks."""
        if self.stop_reason is not None:
            return self.stop_reason
        calls = any(block.content.get("type") == "tool_use" for block in self.blocks)
        return "tool_use" if calls else "end_turn"


Answer: TypeAlias = Reply | Sequence[Block]
"""A reply, or only its blocks."""

Player: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
"""A function from the request to the reply. It runs in the model's thread and must be fast."""


class Repeat(msgspec.Struct, frozen=True):
    """A turn for all further requests. Created by :func:`repeat`."""

    turn: Answer | Player


Turn: TypeAlias = Answer | Player | Repeat
Script: TypeAlias = Sequence[Turn] | Player


# ---------------------------------------------------------------- blocks


def text(text: str, chunks: int | Sequence[str] | None = None) -> Block:
    """Return a text block. `chunks` is the number of deltas, or a list with the deltas."""
    pieces: int | tuple[str, ...] = _DEFAULT_PIECES
    if isinstance(chunks, int):
        pieces = chunks
    elif chunks is not None:
        pieces = tuple(chunks)
        if "".join(pieces) != text:
            raise ValueError(f"chunks: {pieces!r} must join to {text!r}")
    if isinstance(pieces, int) and pieces < 1:
        raise ValueError(f"chunks: must be at least 1, got {pieces}")
    return Block({"type": "text", "text": text}, pieces)


def thinking(thinking: str, signature: str | None = None) -> Block:
    """Return a thinking block. Without a signature, a placeholder is used."""
    signed = "c2NyaXB0ZWQ=" if signature is None else signature
    return Block({"type": "thinking", "thinking": thinking, "signature": signed})


def redacted_thinking(data: str = "cmVkYWN0ZWQ=") -> Block:
    """Return a redacted thinking block."""
    return Block({"type": "redacted_thinking", "data": data})


def tool_use(name: str, /, **input: object) -> Block:
    """Return a tool call. Its id is created when it is sent, so the block can be used again.

    To choose the id, write the whole block: `raw({"type": "tool_use", "id": ..., ...})`.
    """
    return Block({"type": "tool_use", "name": name, "input": input})


def raw(content: Mapping[str, object]) -> Block:
    """Return any block, in the format of the API."""
    if not isinstance(content.get("type"), str):
        raise ValueError(f"raw: a block needs a type, got {content!r}")
    return Block(dict(content))


# ---------------------------------------------------------------- replies


def error(
    status: int,
    type: str | None = None,
    message: str = "scripted failure",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Return an error instead of a message. Its type is derived from the status unless given.

    Each retry of the CLI takes a turn of the script. With `retries=0`, the default of a model, the
    CLI does not retry, with two exceptions: after 400 it may retry without betas, and after 404
    without a stream. Use `repeat(error(404))` for these.
    """
    if not 400 <= status <= 599:
        raise ValueError(f"status: must be an error status, got {status}")
    kind = type or ERROR_TYPES.get(status, "api_error")
    return Reply(status=status, error={"type": kind, "message": message}, headers=headers or {})


def stream_error(
    type: str = "overloaded_error",
    message: str = "scripted failure",
    blocks: Sequence[Block] = (),
) -> Reply:
    """Return a stream that ends with an error event after these blocks."""
    return Reply(blocks=tuple(blocks), error={"type": type, "message": message})


def disconnect() -> Reply:
    """Return a reply that closes the connection without an answer.

    `Reply.cut_after` closes it later. The CLI then retries once, without a stream.
    """
    return Reply(cut_after=0)


def refusal(said: str = "") -> Reply:
    """Return a refusal, after this text.

    After a refusal, CLI 2.1.326 sends the model another request, which takes another turn of the
    script. CLI 2.1.197 ends the turn. `repeat(refusal())` works with both.
    """
    return Reply(blocks=(text(said),) if said else (), stop_reason="refusal")


def repeat(turn: Answer | Player) -> Repeat:
    """Use this reply for all further requests. It must be the last reply of a script."""
    return Repeat(turn)


def rate_limit_headers(
    status: str = "allowed",
    *,
    resets_at: int = 1_999_999_999,
    claim: str = "five_hour",
    utilization: float | None = None,
    threshold: float | None = None,
    overage_status: str | None = None,
) -> dict[str, str]:
    """Return headers that report the rate limit to the CLI of a subscriber (`login="oauth"`).

    `status` is allowed, allowed_warning or rejected. Send rejected with `error(429)`.
    """
    window = {"five_hour": "5h", "seven_day": "7d"}.get(claim, claim)
    values: dict[str, object] = {
        "status": status,
        "reset": resets_at,
        "representative-claim": claim,
        f"{window}-status": status,
        f"{window}-reset": resets_at,
        f"{window}-utilization": utilization,
        f"{window}-surpassed-threshold": threshold,
        "overage-status": overage_status,
    }
    return {_RATE_LIMIT + name: str(value) for name, value in values.items() if value is not None}


# ---------------------------------------------------------------- running a script


def turns(script: Script) -> Iterator[Answer | Player]:
    """Yield the turns in order, without end if the last one repeats. Raise if it is invalid."""
    listed: list[Turn] = [Repeat(script)] if callable(script) else list(script)
    for number, turn in enumerate(listed):
        if isinstance(turn, Repeat) and number + 1 < len(listed):
            raise ValueError(f"script[{number}]: repeat(...) must be the last reply")
        what = turn.turn if isinstance(turn, Repeat) else turn
        if not callable(what):
            as_reply(what)
    return _play(listed)


def _play(listed: Sequence[Turn]) -> Iterator[Answer | Player]:
    for turn in listed:
        if not isinstance(turn, Repeat):
            yield turn
            continue
        while True:
            yield turn.turn


def as_reply(answer: object) -> Reply:
    """Convert an answer to a reply. Raise TypeError if it is not an :data:`Answer`."""
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, list | tuple):
        blocks = [block for block in cast("Sequence[object]", answer) if isinstance(block, Block)]
        if len(blocks) == len(cast("Sequence[object]", answer)):
            return Reply(blocks=tuple(blocks))
    raise TypeError(
        f"a turn must be a Reply or a list of blocks such as [text('hi')], got {answer!r}"
    )
