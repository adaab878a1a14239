"""Summarize a transcript: its title, first prompt, tag and place, from its first and last lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from msgspec import Struct

from bridle._records.raw_line import JsonObject, parse_json, repair_json
from bridle.sessions._transcripts.texts import command_of, is_prompt_text
from bridle.sessions._transcripts.transcript import Transcript, object_of_line, text_of

_LONGEST_PROMPT = 200
_MESSAGES = ("user", "assistant")
_NO_PROMPT = "[no prompt]"


class SessionInfo(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A stored session."""

    session_id: str
    #: The project: the working directory with "-" for all characters but letters and digits.
    project: str
    #: One line to show: the title, else the last or the first prompt. For a prompt without text,
    #: the type of its first content block, such as "[image]". "[no prompt]" if there is none.
    summary: str
    #: Seconds since the epoch of the last change.
    updated_at: float
    #: Seconds since the epoch of the first entry.
    created_at: float | None = None
    #: The title that a user gave the session.
    custom_title: str | None = None
    #: The start of the first prompt.
    first_prompt: str | None = None
    tag: str | None = None
    #: The working directory.
    cwd: str | None = None
    #: The git branch. None outside of a repository and on a detached commit.
    git_branch: str | None = None
    #: The size of the transcript in bytes. None for a session in a store.
    size: int | None = None
    #: The transcript file. None for a session in a store.
    path: str | None = None


class Ends(Struct, frozen=True):
    """The first and the last bytes of a transcript file."""

    head: bytes
    #: Empty if the head is the whole file.
    tail: bytes = b""


def whole_lines(ends: Ends) -> tuple[list[bytes], list[bytes], bytes]:
    """Return the whole lines of the head and of the tail, and the start of the line between."""
    if not ends.tail:
        return ends.head.split(b"\n"), [], b""
    *head, cut = ends.head.split(b"\n")
    return head, ends.tail.split(b"\n")[1:], cut


def summarize(
    ends: Ends,
    session_id: str,
    project: str,
    *,
    updated_at: float,
    size: int | None = None,
    path: str | None = None,
    title: str | None = None,
) -> SessionInfo | None:
    """Return the summary of a session. None if it is a subagent's, or has no message yet.

    ``title`` is used if there is none in the last lines.
    """
    head_lines, tail_lines, cut = whole_lines(ends)
    head, tail = _objects(head_lines), _objects(tail_lines)
    if head and head[0].get("isSidechain") is True:
        return None
    last = [*head, *tail]
    named = _last(tail, "customTitle") or title or _last(head, "customTitle")
    prompt = _first_prompt(head) or _cut_prompt(cut)
    summary = (
        named or _last(last, "aiTitle") or _last(last, "lastPrompt") or _last(last, "summary")
    ) or prompt
    if not summary:
        kind = next(filter(None, map(_first_type, last)), None) or _cut_type(cut)
        if kind is None and not any(one.get("type") in _MESSAGES for one in last):
            return None
        summary = f"[{kind}]" if kind else _NO_PROMPT
    branch = _last(last, "gitBranch")
    return SessionInfo(
        session_id=session_id,
        project=project,
        summary=" ".join(summary.split()),
        updated_at=updated_at,
        created_at=_first_time(head),
        custom_title=named,
        first_prompt=prompt,
        tag=_tag(last),
        cwd=next((cwd for one in last if (cwd := text_of(one, "cwd"))), None),
        git_branch=None if branch == "HEAD" else branch,
        size=size,
        path=path,
    )


def bare_info(transcript: Transcript) -> SessionInfo:
    """Return what a transcript without a message tells about its session."""
    times = (seconds_of(one.timestamp or "") for one in transcript.entries)
    known = [time for time in times if time is not None]
    return SessionInfo(
        session_id=transcript.session_id,
        project=transcript.project,
        summary=_NO_PROMPT,
        updated_at=known[-1] if known else 0.0,
    )


def fork_title(info: SessionInfo | None) -> str:
    """Return the title of a copy of a session. ``info`` is None if the session has no message."""
    return f"{_NO_PROMPT if info is None else info.summary} (fork)"


def _objects(lines: Iterable[bytes]) -> list[JsonObject]:
    """Return the objects of the lines that can be read. A line may be empty."""
    return [one for one in map(object_of_line, lines) if not isinstance(one, str)]


def _last(members: Sequence[JsonObject], name: str) -> str | None:
    return next((value for one in reversed(members) if (value := text_of(one, name))), None)


def _tag(members: Sequence[JsonObject]) -> str | None:
    return next(
        (text_of(one, "tag") for one in reversed(members) if one.get("type") == "tag"), None
    )


# ------------------------------------------------------------------------- the first prompt


def _first_prompt(members: Iterable[JsonObject]) -> str | None:
    command: str | None = None
    for one in members:
        prompt, name = prompt_of(one)
        if prompt is not None:
            return prompt
        command = command or name
    return command


def prompt_of(entry: JsonObject) -> tuple[str | None, str | None]:
    """Return the start of the prompt in an entry, and the first slash command before it."""
    command: str | None = None
    for text in _texts(entry) if _is_of_user(entry) else ():
        if found := command_of(text):
            command = command or found[0]
        elif text.strip() and is_prompt_text(text):
            return _shortened(text), command
    return None, command


def _is_of_user(entry: JsonObject) -> bool:
    """Return whether a user entry is not a note of the CLI."""
    is_note = entry.get("isMeta") or entry.get("isCompactSummary")
    return entry.get("type") == "user" and not is_note


def _texts(entry: JsonObject) -> list[str]:
    """Return the texts of a user entry; none if it has tool results."""
    texts = (text_of(block, "text") for block in _blocks(entry) if block.get("type") == "text")
    return [text for text in texts if text is not None]


def _first_type(entry: JsonObject) -> str | None:
    """Return the type of the first content block of a prompt that is not text."""
    blocks = _blocks(entry) if _is_of_user(entry) else []
    kinds = (text_of(block, "type") for block in blocks)
    return next((kind for kind in kinds if kind and kind != "text"), None)


def _blocks(entry: JsonObject) -> list[JsonObject]:
    """Return the content blocks of an entry; none if it has tool results."""
    message = entry.get("message")
    content = cast(JsonObject, message).get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    items = cast("list[object]", content) if isinstance(content, list) else []
    blocks = [cast(JsonObject, block) for block in items if isinstance(block, dict)]
    return [] if any(block.get("type") == "tool_result" for block in blocks) else blocks


_CUT_TEXT = re.compile(
    rb'"role":"user","content":(?:\[\{"type":"text","text":)?("(?:[^"\\]|\\.)*)', re.DOTALL
)


_CUT_TYPE = re.compile(rb'"role":"user","content":\[\{"type":"(image|document)"')


def _cut_type(line: bytes) -> str | None:
    """Return the type of the first content block of a prompt whose line is cut off."""
    found = _CUT_TYPE.search(line)
    return None if found is None else found[1].decode()


def _cut_prompt(line: bytes) -> str | None:
    """Return the start of a prompt that is so long that its line is cut off."""
    found = _CUT_TEXT.search(line)
    if found is None:
        return None
    start = found[1][: 8 * _LONGEST_PROMPT]
    start = re.sub(rb"\\u[0-9a-fA-F]{0,3}$", b"", start).rstrip(b"\\")  # half an escape
    try:
        text = str(parse_json(repair_json(start + b'"'))).rstrip("\ufffd")
    except ValueError:
        return None
    return _shortened(text) if text.strip() else None


def _shortened(text: str) -> str:
    text = text.replace("\n", " ").strip()
    return text if len(text) <= _LONGEST_PROMPT else text[:_LONGEST_PROMPT].rstrip() + "…"


# ------------------------------------------------------------------------- times


def _first_time(members: Iterable[JsonObject]) -> float | None:
    times = (seconds_of(text_of(one, "timestamp") or "") for one in members)
    return next((time for time in times if time is not None), None)


def seconds_of(timestamp: str) -> float | None:
    """Return the seconds since the epoch of an ISO 8601 time in UTC. None if it is not one."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp.endswith("Z") else None
    except ValueError:
        return None
