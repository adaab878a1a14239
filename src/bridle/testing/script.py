"""What a scripted model says: blocks, replies, and the order in which they are played.

Everything here is data. A reply knows nothing of HTTP; how it looks on the wire is the business
of :mod:`bridle.testing.sse`, when it is sent that of :mod:`bridle.testing.scripted_model`.
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
"""The type the API gives an error, by its status."""

_DEFAULT_PIECES = 2  # more than one, so that whoever reads deltas has to join them
_RATE_LIMIT = "anthropic-ratelimit-unified-"


class Switch(Protocol):
    """Anything that is set at some time: an event of `threading`, of `asyncio`, or your own."""

    def is_set(self) -> bool:
        """Whether it is."""
        ...


class Block(msgspec.Struct, frozen=True):
    """A content block and the pieces in which its text, or the JSON of its input, is streamed."""

    content: JsonObject
    pieces: int | tuple[str, ...] = _DEFAULT_PIECES


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model.

    `stop_reason` follows from the blocks unless given; `usage` is laid over a small default.
    `headers` go out with the answer. `delay` seconds pass before it, `chunk_delay` before each of
    its deltas.

    A stream is a row of events: `message_start`, then for each block `content_block_start`, its
    deltas and `content_block_stop` (a `ping` follows the very first start), then `message_delta`
    and `message_stop`. `cut_after` drops the connection when so many of them are out, `hold`
    makes the stream wait when `hold_after` of them are: until `ScriptedModel.release` if it is
    True, else until that switch is set. Zero means before the first byte of the answer, and is
    all there is where the request was not for a stream.

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
        """The stop reason: as given, or as the blocks imply."""
        if self.stop_reason is not None:
            return self.stop_reason
        calls = any(block.content.get("type") == "tool_use" for block in self.blocks)
        return "tool_use" if calls else "end_turn"


Answer: TypeAlias = Reply | Sequence[Block]
"""A reply, or just its blocks."""

Player: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
"""Makes the answer from the request; runs in the model's thread, so it had better be quick."""


class Repeat(msgspec.Struct, frozen=True):
    """A turn for every request from here on. Made by :func:`repeat`."""

    turn: Answer | Player


Turn: TypeAlias = Answer | Player | Repeat
Script: TypeAlias = Sequence[Turn] | Player


# ---------------------------------------------------------------- blocks


def text(text: str, chunks: int | Sequence[str] | None = None) -> Block:
    """A text block, streamed in `chunks`: how many, or the very pieces."""
    pieces: int | tuple[str, ...] = _DEFAULT_PIECES
    if isinstance(chunks, int):
        pieces = chunks
    elif chunks is not None:
        pieces = tuple(chunks)
        if "".join(pieces) != text:
            raise ValueError(f"chunks: {pieces!r} do not join to {text!r}")
    if isinstance(pieces, int) and pieces < 1:
        raise ValueError(f"chunks: {pieces} is less than one piece")
    return Block({"type": "text", "text": text}, pieces)


def thinking(thinking: str, signature: str | None = None) -> Block:
    """A thinking block; without a signature it gets one that looks like one."""
    signed = "c2NyaXB0ZWQ=" if signature is None else signature
    return Block({"type": "thinking", "thinking": thinking, "signature": signed})


def redacted_thinking(data: str = "cmVkYWN0ZWQ=") -> Block:
    """Thinking that the API keeps to itself."""
    return Block({"type": "redacted_thinking", "data": data})


def tool_use(name: str, /, **input: object) -> Block:
    """A call of a tool. Its id is made when it is played, so it may be played again.

    For an id of your own write the block out: `raw({"type": "tool_use", "id": ..., ...})`.
    """
    return Block({"type": "tool_use", "name": name, "input": input})


def raw(content: Mapping[str, object]) -> Block:
    """Any block, as the API would give it."""
    if not isinstance(content.get("type"), str):
        raise ValueError(f"raw: a block says its type, this does not: {content!r}")
    return Block(dict(content))


# ---------------------------------------------------------------- replies


def error(
    status: int,
    type: str | None = None,
    message: str = "scripted failure",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error instead of a message; its type follows from the status unless given.

    Each time the CLI asks again takes a turn of the script. With `retries=0`, the default of a
    model, it does not, save that it may ask in other words after a 400 (without betas) and a 404
    (without a stream): for those, `repeat(error(404))`.
    """
    if not 400 <= status <= 599:
        raise ValueError(f"status: {status} is not an error")
    kind = type or ERROR_TYPES.get(status, "api_error")
    return Reply(status=status, error={"type": kind, "message": message}, headers=headers or {})


def stream_error(
    type: str = "overloaded_error",
    message: str = "scripted failure",
    blocks: Sequence[Block] = (),
) -> Reply:
    """A stream that begins well and ends in an error event, after these blocks."""
    return Reply(blocks=tuple(blocks), error={"type": type, "message": message})


def disconnect() -> Reply:
    """No answer: the connection is dropped.

    `Reply.cut_after` drops it later; the CLI then asks once more, without a stream.
    """
    return Reply(cut_after=0)


def refusal(said: str = "") -> Reply:
    """Decline, after saying this much.

    A newer CLI (2.1.325) asks the model once more after a refusal, in a message of its own, and
    each request takes a turn of the script; 2.1.197 ends the turn. `repeat(refusal())` fits both.
    """
    return Reply(blocks=(text(said),) if said else (), stop_reason="refusal")


def repeat(turn: Answer | Player) -> Repeat:
    """This turn for every request from here on; the last of a script."""
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
    """Headers that tell a subscriber's CLI (`login="oauth"`) how much of its limit is used.

    `status` is allowed, allowed_warning or rejected; send the last with `error(429)`.
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


# ---------------------------------------------------------------- playing


def turns(script: Script) -> Iterator[Answer | Player]:
    """The turns in order, without end where one repeats. Raises for a script that is none."""
    listed: list[Turn] = [Repeat(script)] if callable(script) else list(script)
    for number, turn in enumerate(listed):
        if isinstance(turn, Repeat) and number + 1 < len(listed):
            raise ValueError(f"script[{number}]: nothing after a repeated turn is ever played")
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
    """The reply an answer stands for. Raises TypeError for what is no :data:`Answer`."""
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, list | tuple):
        blocks = [block for block in cast("Sequence[object]", answer) if isinstance(block, Block)]
        if len(blocks) == len(cast("Sequence[object]", answer)):
            return Reply(blocks=tuple(blocks))
    raise TypeError(f"a turn is a Reply or a list of blocks such as [text('hi')], not {answer!r}")
