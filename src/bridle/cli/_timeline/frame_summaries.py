"""Describe each entry of a recording by a kind and a summary line. Pure; accepts any input.

A kind is the ``type`` of the line, followed by a slash and the subtype if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, cast

import msgspec

from bridle._spi import UserText
from bridle.testing.recording import Direction, Entry

Json: TypeAlias = Mapping[str, object]

_LONGEST = 160

# The input keys that describe a tool call best.
_TELLING = ("command", "file_path", "pattern", "query", "url", "description", "prompt", "path")


class Frame(msgspec.Struct, frozen=True):
    """An entry as shown in the list of frames."""

    t: float
    direction: Direction
    kind: str
    summary: str
    #: The group to filter by: messages, stream, control, stderr or process.
    group: str
    line: str
    times: int = 1
    partial: bool = False


def frame_of(entry: Entry, members: Json, asked: Mapping[str, str]) -> Frame:
    """Return the frame of an entry.

    ``members`` are the members of its line, if it is a JSON object. ``asked`` maps the ids of
    earlier requests to their subtypes, which a response does not contain.
    """
    kind, group, summary = _described(entry, members)
    request = asked.get(text(part(members, "response"), "request_id"))
    if kind == "control_response/success" and request is not None:
        kind = f"control_response/{request}"
    return Frame(
        t=entry.t,
        direction=entry.direction,
        kind=kind,
        summary=one_line(summary),
        group=group,
        line=entry.line,
        times=entry.times,
        partial=entry.partial,
    )


def _described(entry: Entry, members: Json) -> tuple[str, str, str]:
    if entry.direction == "err":
        return "stderr", "stderr", entry.line
    if entry.direction == "meta":
        name = next(iter(members), "")
        return f"meta/{name}" if name else "meta", "process", _plain(members.get(name, entry.line))
    if not members:
        return "not a frame", "messages", entry.line
    kind = text(members, "type") or "untyped"
    group = "control" if kind.startswith("control_") else "messages"
    if kind == "stream_event":
        group = "stream"
    subtype = _subtype(kind, members)
    return f"{kind}/{subtype}" if subtype else kind, group, _SUMMARIES.get(kind, _nothing)(members)


def _subtype(kind: str, members: Json) -> str:
    path, name = _SUBTYPES.get(kind, ((), ""))
    return text(part(members, *path), name)


# ------------------------------------------------------------------------- reading JSON


def part(frame: Json, *path: str) -> Json:
    """Return the object at a path; empty if there is none."""
    for name in path:
        value = frame.get(name)
        frame = cast("Json", value) if isinstance(value, Mapping) else {}
    return frame


def text(frame: Json, name: str) -> str:
    """Return a string member; empty if it is missing or not a string."""
    value = frame.get(name)
    return value if isinstance(value, str) else ""


def blocks(frame: Json) -> Iterator[Json]:
    """Yield the content blocks of a message."""
    content = part(frame, "message").get("content")
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        for block in cast("list[object]", content):
            if isinstance(block, Mapping):
                yield cast("Json", block)


def one_line(words: str, limit: int = _LONGEST) -> str:
    """Return the text on one line, cut after ``limit`` characters."""
    line = " ".join(words[: 8 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def said(value: object) -> str:
    """Return the text of a content, which is a string or a list of blocks."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = (part({"": item}, "") for item in cast("list[object]", value))
        return " ".join(text(one, "text") or f"[{text(one, 'type')}]" for one in parts)
    return ""


def prompt_of(frame: Json) -> str:
    """Return the prompt of a user message: its text, or a command as it was typed."""
    return UserText(said(part(frame, "message").get("content"))).as_typed


def input_of(values: Json) -> str:
    """Return arguments in a short form."""
    if len(values) == 1:
        return _plain(next(iter(values.values())))
    return ", ".join(f"{name}={_plain(value)}" for name, value in values.items())


def about(values: Json) -> str:
    """Describe a tool call: by the input key that describes it best, or by all keys."""
    telling = (text(values, name) for name in _TELLING)
    return next(filter(None, telling), "") or input_of(values)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _encoded(value)


def _encoded(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError):  # an unpaired surrogate, or nested too deeply
        return "…"


# ------------------------------------------------------------------------- summaries


def _message(frame: Json) -> str:
    parts = [_block(block) for block in blocks(frame)]
    return " · ".join(filter(None, parts))


def _block(block: Json) -> str:
    kind = text(block, "type")
    if kind == "text":
        return text(block, "text")
    if kind == "thinking":
        return f"thinking: {text(block, 'thinking')}"
    if kind == "tool_use":
        return f"{text(block, 'name')}({one_line(about(part(block, 'input')))})"
    if kind == "tool_result":
        mark = "error" if block.get("is_error") is True else "result"
        return f"{mark}: {said(block.get('content'))}"
    return kind


def _stream(frame: Json) -> str:
    event = part(frame, "event")
    delta = part(event, "delta")
    words = (text(delta, name) for name in ("text", "thinking", "partial_json"))
    block = part(event, "content_block")
    return next(filter(None, words), "") or _block(block) or text(part(event, "message"), "id")


def _request(frame: Json) -> str:
    request = part(frame, "request")
    describe = _REQUESTS.get(text(request, "subtype"))
    if describe is not None:
        return describe(request)
    return input_of({name: value for name, value in request.items() if name != "subtype"})


def _hook(request: Json) -> str:
    event, tool = (text(part(request, "input"), name) for name in ("hook_event_name", "tool_name"))
    return f"{event} {tool}".strip()


def _mcp(request: Json) -> str:
    message = part(request, "message")
    tool = text(part(message, "params"), "name")
    method = text(message, "method") or ("error" if "error" in message else "result")
    return " ".join(filter(None, [text(request, "server_name"), method, tool]))


def _answer(frame: Json) -> str:
    response = part(frame, "response")
    return text(response, "error") or input_of(part(response, "response"))


def _result(frame: Json) -> str:
    return text(frame, "result") or said(frame.get("errors")) or text(frame, "terminal_reason")


def _system(frame: Json) -> str:
    aside = ("type", "subtype", "uuid", "session_id")
    if frame.get("subtype") == "init":
        return f"{text(frame, 'model')} {text(frame, 'cwd')}".strip()
    return input_of({name: value for name, value in frame.items() if name not in aside})


def _lifecycle(frame: Json) -> str:
    return f"{text(frame, 'state')} {text(frame, 'command_uuid')}"


def _nothing(_: Json) -> str:
    return ""


_REQUESTS: Mapping[str, Callable[[Json], str]] = {
    "hook_callback": _hook,
    "can_use_tool": lambda request: (
        f"{text(request, 'tool_name')}({one_line(about(part(request, 'input')))})"
    ),
    "mcp_message": _mcp,
    "elicitation": lambda request: text(request, "message"),
    "request_user_dialog": lambda request: text(request, "dialog_kind"),
}

_SUMMARIES: Mapping[str, Callable[[Json], str]] = {
    "assistant": _message,
    "user": _message,
    "stream_event": _stream,
    "control_request": _request,
    "control_response": _answer,
    "control_cancel_request": lambda frame: text(frame, "request_id"),
    "result": _result,
    "system": _system,
    "command_lifecycle": _lifecycle,
}

# The place of the subtype in each type of line.
_SUBTYPES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "system": ((), "subtype"),
    "result": ((), "subtype"),
    "control_request": (("request",), "subtype"),
    "control_response": (("response",), "subtype"),
    "stream_event": (("event",), "type"),
}
