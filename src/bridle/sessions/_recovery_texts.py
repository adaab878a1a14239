"""Write what a recovery tells the model: that the program stopped, and which calls it made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bridle._records.raw_line import JsonObject
from bridle.content import Content
from bridle.sessions._journal import ToolCallEntry, ToolResultEntry

MAX_INPUT_TEXT = 600
"""Characters of a tool call's input that a prompt quotes. Fewer if it names many calls."""

MAX_CALLS = 300
"""Calls with and calls without a result that a prompt names, the newest. It counts the others."""

_MAX_INPUTS = 20_000
_MAX_RESULTS = 20_000
"""Characters of all inputs and of all results that a prompt quotes."""

_STOPPED = (
    "The program that runs this conversation stopped before your answer was complete. It has "
    "started again."
)
_CONTINUE = "Continue with the task where it stopped. Do not repeat what is already done."
UNKNOWN = (
    "These tool calls may have happened, completely or in part. Their results were not recorded. "
    "Check what they have changed before you repeat any of them:"
)
KNOWN = (
    "These tool calls are done. The result follows the call if there is room for it. Do not repeat "
    "them:"
)
_EARLIER = "The task is that of an earlier prompt, not of the prompts after it:"
_AGAIN = "This is the prompt that you were working on:"


def notice(
    unknown: Sequence[ToolCallEntry],
    known: Sequence[ToolCallEntry],
    results: Mapping[str, ToolResultEntry],
) -> str:
    """Return what the model has to know about tool calls. Empty if there is nothing.

    ``results`` are those of known calls, by id. Some may be missing.
    """
    parts: list[str] = []
    if unknown:
        parts.append("\n".join((UNKNOWN, *_listed(unknown, {}))))
    if known:
        parts.append("\n".join((KNOWN, *_listed(known, results))))
    return "\n\n".join(parts)


def send_again(notice: str, content: str | list[JsonObject]) -> Content:
    """Return a prompt with a notice before it."""
    if not notice:
        return content
    return _joined("\n\n".join((_STOPPED, notice, _AGAIN)), [content])


def go_on(
    notice: str,
    earlier: Sequence[str | list[JsonObject]],
    hidden: Sequence[str | list[JsonObject]],
) -> Content:
    """Return a prompt that continues a turn.

    Args:
        notice: what the model has to know about tool calls.
        earlier: the prompts of the turn if the conversation does not end with it.
        hidden: the prompts of the turn that the conversation lacks.
    """
    task = "\n".join((_EARLIER, *map(_prompt, earlier))) if earlier else ""
    return _joined("\n\n".join(filter(None, (_STOPPED, notice, _CONTINUE, task))), hidden)


def _listed(
    calls: Sequence[ToolCallEntry], results: Mapping[str, ToolResultEntry]
) -> Iterator[str]:
    """Yield a line for each of the newest calls, with its result, and one that counts the others.

    The newest results are quoted as far as there is room.
    """
    others, shown = calls[:-MAX_CALLS], calls[-MAX_CALLS:]
    limit = min(MAX_INPUT_TEXT, _MAX_INPUTS // len(shown))
    quoted: dict[str, str] = {}
    room = _MAX_RESULTS
    for call in reversed(shown):
        result = results.get(call.tool_use_id)
        text = "" if result is None else _result(result)
        if text and len(text) <= room:
            room -= len(text)
            quoted[call.tool_use_id] = text
    for call in shown:
        yield f"- {call.tool_name} {_cut(_quoted(call.tool_input), limit)}"
        if call.tool_use_id in quoted:
            yield quoted[call.tool_use_id]
    if others:
        counts = Counter(call.tool_name for call in others).most_common()
        names = ", ".join(f"{number} {name}" for name, number in counts)
        yield f"- and {len(others)} more, not listed here: {_cut(names)}"


def _result(result: ToolResultEntry) -> str:
    failed = "failed: " if result.is_error else ""
    return f"  {failed}{_quoted(result.text)}{' (cut)' if result.is_cut else ''}"


def _prompt(content: str | list[JsonObject]) -> str:
    """Return the text of a prompt that the model has seen, in one line."""
    if not isinstance(content, str):
        content = "\n".join(str(one["text"]) for one in content if one.get("type") == "text")
    return f"- {_cut(_quoted(content))}"


def _cut(text: str, limit: int = MAX_INPUT_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _quoted(value: object) -> str:
    """Return a value as JSON. Without "@", which the CLI replaces by the content of files."""
    return msgspec.json.encode(value).decode().replace("@", "\\u0040")


def _joined(text: str, contents: Sequence[str | list[JsonObject]]) -> Content:
    """Return one prompt of a text and the content of other prompts.

    Each is a block of its own. The CLI expands a slash command only at the start of a block.
    """
    if not contents:
        return text
    blocks: list[JsonObject] = [{"type": "text", "text": text}]
    for one in contents:
        blocks += [{"type": "text", "text": one}] if isinstance(one, str) else one
    return blocks
