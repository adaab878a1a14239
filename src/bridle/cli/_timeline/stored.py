"""The timeline of a stored session: its messages at the times of the transcript. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bridle._core.transcript_summaries import SessionInfo, seconds_of
from bridle._core.transcripts import Transcript
from bridle._core.wire import encode_json
from bridle.cli._timeline.frames import part, said
from bridle.cli._timeline.model import Timeline, drawn
from bridle.cli._timeline.spans import Follower, Lane, Model, Seen, Tools
from bridle.messages import Message, UserMessage
from bridle.testing.recording import Direction, Entry


def stored_timeline(transcript: Transcript, info: SessionInfo, *, gap: str = "") -> Timeline:
    """Return the timeline of a transcript, with its subagents and what was compacted."""
    messages = transcript.messages(subagents=True, compacted=True, system=True)
    facts = {
        "session": info.session_id,
        "title": info.custom_title or "",
        "directory": info.cwd or "",
        "branch": info.git_branch or "",
        "tag": info.tag or "",
    }
    told = {name: value for name, value in facts.items() if value}
    return drawn(list(_entries(messages)), [_Prompts(), Model(), Tools()], told, gap=gap)


def is_prompt(message: Message) -> bool:
    """Return whether a message is a prompt of the user."""
    if not isinstance(message, UserMessage) or message.is_synthetic or message.agent_path:
        return False
    content = message.content
    return isinstance(content, str) or all(block.type != "tool_result" for block in content)


def _entries(messages: list[Message]) -> Iterator[Entry]:
    """Yield the messages by time, as lines between a program and the CLI."""
    found: list[tuple[float, Message]] = []
    now = 0.0
    for message in messages:
        now = seconds_of(str(message.raw.get("timestamp"))) or now
        found.append((now, message))
    found.sort(key=lambda one: one[0])  # subagents run at the same time
    for now, message in found:
        path = message.agent_path
        line = {**message.raw, **({"parent_tool_use_id": path[-1].id} if path else {})}
        direction: Direction = "in" if is_prompt(message) else "out"
        yield Entry(now - found[0][0], direction, encode_json(line).decode())


class _Prompts(Follower):
    """A span from each prompt to the last message before the next one."""

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.direction == "in":
            prompt = said(part(seen.frame, "message").get("content"))
            self.begin(Lane.TURNS, prompt or "a prompt", seen, prompt=prompt)
        if self.drafts:
            self.drafts[-1].close(seen)
