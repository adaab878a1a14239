"""Write a transcript in another format: the CLI's own lines, one JSON object, or Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from bridle._engine.wire.codec import encode_json
from bridle.content import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from bridle.messages import AssistantMessage, CompactBoundaryMessage, UserMessage
from bridle.messages._message import Message
from bridle.sessions._transcripts.summaries import SessionInfo
from bridle.sessions._transcripts.texts import UserText
from bridle.sessions._transcripts.transcript import Transcript

ExportFormat: TypeAlias = Literal["jsonl", "json", "markdown"]
"""The formats of `bridle.sessions.export`."""

FORMATS: tuple[ExportFormat, ...] = ("jsonl", "json", "markdown")


def exported(transcript: Transcript, info: SessionInfo, format: ExportFormat) -> bytes:
    """Return a transcript in one of the formats.

    ``jsonl`` has the lines of the session as they are stored, also damaged ones, without those of
    its subagents. The others have all messages, also those of subagents and before a compaction.
    """
    if format == "jsonl":
        return b"".join(entry.raw_line + b"\n" for entry in transcript.entries)
    messages = transcript.messages(subagents=True, compacted=True, system=True)
    if format == "json":
        value = {
            "session": msgspec.to_builtins(info),
            "messages": [_with_agents(message) for message in messages],
            "damaged": [
                {"damage": entry.damage, "line": entry.raw_line.decode("utf-8", "replace")}
                for entry in transcript.damaged
            ],
        }
        return encode_json(value) + b"\n"
    return "\n\n".join([*_heading(transcript, info), *_sections(messages)]).encode() + b"\n"


def _with_agents(message: Message) -> dict[str, object]:
    path = [msgspec.to_builtins(agent) for agent in message.agent_path]
    return {**message.raw, **({"agent_path": path} if path else {})}


# ------------------------------------------------------------------------- Markdown


def _heading(transcript: Transcript, info: SessionInfo) -> Iterator[str]:
    yield f"# {_inline(info.summary)}"
    facts = {"Session": f"`{info.session_id}`", "Directory": info.cwd, "Branch": info.git_branch}
    facts |= {"Tag": info.tag, "Unreadable lines": str(len(transcript.damaged) or "")}
    yield "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)


def _sections(messages: list[Message]) -> Iterator[str]:
    speaker = ""
    results = _results(messages)
    for message in messages:
        agents = " / ".join(agent.type or agent.id for agent in message.agent_path)
        parts = list(_parts(message, results))
        if not parts:
            continue
        name = _speaker(message)
        now = f"{name} ({_inline(agents)})" if agents else name
        # The results of tools follow their calls, without a heading of their own.
        if now != speaker and name:
            yield f"## {now}"
            speaker = now
        yield from parts


_Results = dict[str, ToolResultBlock | None]
"""The results to show with their calls, by the id of the call. None if it was shown."""


def _results(messages: list[Message]) -> _Results:
    """Return the results of tools. That of a subagent is left out: it comes after its messages."""
    agents = {agent.id for message in messages for agent in message.agent_path}
    found = (block for message in messages for block in _content(message))
    results = (block for block in found if isinstance(block, ToolResultBlock))
    return {block.tool_use_id: block for block in results if block.tool_use_id not in agents}


def _speaker(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return "Assistant"
    if any(isinstance(block, ToolResultBlock) for block in _content(message)):
        return ""
    return "User" if UserText.of_prompt(message) or message.agent_path else "Claude Code"


def _content(message: Message) -> Sequence[Block]:
    if not isinstance(message, AssistantMessage | UserMessage):
        return ()
    content = message.content
    return [TextBlock(content)] if isinstance(content, str) else content


def _parts(message: Message, results: _Results) -> Iterator[str]:
    if isinstance(message, CompactBoundaryMessage):
        yield "*The conversation was compacted here.*"
    output = message.raw.get("content")
    if isinstance(output, str) and UserText(output).output:
        yield from _block(TextBlock(output), results)
    for block in _content(message):
        yield from _block(block, results)


def _block(block: Block, results: _Results) -> Iterator[str]:
    match block:
        case TextBlock(text=text):
            said = UserText(text)
            output = said.output
            if output:
                yield _fenced(output)
            elif output is None and text.strip():
                yield said.as_typed
        case ThinkingBlock(thinking=text):
            if text.strip():
                yield "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
        case ToolUseBlock(name=name, input=values):
            told = msgspec.json.format(encode_json(values), indent=2).decode()
            yield f"**{_inline(name)}**\n\n{_fenced(told, 'json')}"
            result = results.get(block.id)
            if result is not None:
                results[block.id] = None
                yield _result(result)
        case ToolResultBlock():
            if results.get(block.tool_use_id, block) is not None:
                yield _result(block)
        case _:
            yield f"*[{_inline(block.type)}]*"


def _result(block: ToolResultBlock) -> str:
    return f"{'Error' if block.is_error else 'Result'}:\n\n{_fenced(block.text)}"


def _fenced(text: str, language: str = "") -> str:
    """Return a code block. Its fence is longer than any in the text."""
    runs = re.findall(r"`{3,}", text)
    fence = "`" * (1 + max(map(len, runs), default=2))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _inline(text: str) -> str:
    """Return text on one line, in which Markdown sees no markup."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))
