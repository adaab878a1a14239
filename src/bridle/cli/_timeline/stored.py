"""The timeline of a stored session: its messages at the times of the transcript. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bridle._engine.wire.codec import encode_json
from bridle._spi import UserText, seconds_of
from bridle.cli._timeline.frame_summaries import prompt_of
from bridle.cli._timeline.spans import Follower, Lane, Model, Seen, State, Tools
from bridle.cli._timeline.timeline import Timeline, drawn
from bridle.messages import Message
from bridle.sessions import SessionInfo, Transcript
from bridle.testing.recording import Direction, Entry

_INTERRUPTED = "[Request interrupted by user"
"""The start of the text with which the CLI notes an interrupt."""


def stored_timeline(transcript: Transcript, info: SessionInfo, *, gap: str = "") -> Timeline:
    """Return the timeline of a transcript, with its subagents and what was compacted."""
    messages = transcript.messages(subagents=True, compacted=True, system=True)
    facts = {
        "session": info.session_id,
        "directory": info.cwd or "",
        "branch": info.git_branch or "",
        "tag": info.tag or "",
        "started": _started(messages),
    }
    told = {name: value for name, value in facts.items() if value}
    return drawn(list(_entries(messages)), [_Prompts(), _Replies(), Tools()], told, gap=gap)


def _started(messages: list[Message]) -> str:
    """Return the time of the first message that has one."""
    times = (str(message.raw.get("timestamp", "")) for message in messages)
    first = next((time for time in times if seconds_of(time) is not None), "")
    return first[:19].replace("T", " ") + " UTC" if first else ""


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
        direction: Direction = "in" if UserText.of_prompt(message) else "out"
        yield Entry(now - found[0][0], direction, encode_json(line).decode())


class _Prompts(Follower):
    """A span from each prompt to the last message before the next one."""

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.direction == "in":
            prompt = prompt_of(seen.frame)
            self.begin(Lane.TURNS, prompt or "a prompt", seen, prompt=prompt)
        if self.drafts:
            is_interrupt = prompt_of(seen.frame).startswith(_INTERRUPTED)
            self.drafts[-1].close(seen, State.STOPPED if is_interrupt else State.OK)


class _Replies(Model):
    """Replies of the model. They begin after the prompt, because there are no init messages."""

    def see(self, seen: Seen) -> None:
        """Take the next entry."""
        if seen.direction == "in":
            self.ask("", seen)
        super().see(seen)
