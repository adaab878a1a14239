from __future__ import annotations

import json
from typing import Any

from tests.support.stored import ONE, assistant, call, entry, lines, result, user

from bridle.sessions._transcripts.export import exported
from bridle.sessions._transcripts.summaries import SessionInfo
from bridle.sessions._transcripts.transcript import (
    Transcript,
    entries_of_bytes,
    subagent_transcript,
)

INFO = SessionInfo(session_id=ONE, project="-p", summary="A *title*", updated_at=1.0, cwd="/p")
INNER = entries_of_bytes(lines(user("x", None, "look", isSidechain=True)))
BOUNDARY = entry("system", "s", "e", subtype="compact_boundary")
DATA = lines(
    user("a", None, "Run it"),
    assistant("b", "a", {"type": "thinking", "thinking": "Hm.\nYes."}, call("1")),
    user("c", "b", [{**result("1")[0], "content": "```\nfence"}]),
    assistant("d", "c", {"type": "text", "text": "Done. "}, {"type": "image", "source": {}}),
    user("e", "d", "by the CLI", isCompactSummary=True),
    BOUNDARY,
    user("f", "s", [{**result("2")[0], "is_error": True}]),
    b"{damaged",
)
WHOLE = Transcript(
    session_id=ONE,
    project="-p",
    entries=entries_of_bytes(DATA),
    subagents=(subagent_transcript("agent-1", INNER, {"toolUseId": "1", "agentType": "Explore"}),),
)

MARKDOWN = """\
# A \\*title\\*

- Session: `11111111-1111-4111-8111-111111111111`
- Directory: /p
- Unreadable lines: 1

## User

Run it

## Assistant

> Hm.
> Yes.

**Bash**

```json
{
  "command": "1"
}
```

## User (Explore)

look

Result:

````
```
fence
````

## Assistant

Done.

*[image]*

## Claude Code

by the CLI

*The conversation was compacted here.*

Error:

```
result 2
```
"""


def test_lines_are_exported_unchanged() -> None:
    assert exported(WHOLE, INFO, "jsonl") == DATA


def test_json_has_the_messages_with_their_agents_and_the_damaged_lines() -> None:
    value: Any = json.loads(exported(WHOLE, INFO, "json"))
    assert value["session"]["session_id"] == ONE
    assert [one["uuid"] for one in value["messages"]] == [*"abx", *"cdesf"]
    assert value["messages"][2]["agent_path"] == [{"id": "1", "type": "Explore"}]
    assert "agent_path" not in value["messages"][0]
    assert [one["line"] for one in value["damaged"]] == ["{damaged"]


def test_markdown_can_be_read_by_people() -> None:
    assert exported(WHOLE, INFO, "markdown").decode() == MARKDOWN


def test_markdown_shows_each_result_with_its_call_and_commands_as_they_were_typed() -> None:
    data = lines(
        user("a", None, "<command-name>/do</command-name><command-args>it</command-args>"),
        user("b", "a", "<local-command-stdout>\x1b[1mDone\x1b[0m</local-command-stdout>"),
        assistant("c", "b", call("1"), call("2")),
        user("d", "c", result("2")),
        user("e", "d", result("1")),
        user("f", "e", "[Request interrupted by user]"),
        entry("system", "g", "f", content="<local-command-stdout>cost</local-command-stdout>"),
    )
    transcript = Transcript(session_id=ONE, project="-p", entries=entries_of_bytes(data))
    told = exported(transcript, INFO, "markdown").decode().split("\n\n")
    told = [one for one in told if one.startswith(("#", "/", "```", "["))][1:]
    assert told == [
        "## User",
        "/do it",
        "## Claude Code",
        "```\nDone\n```",
        "## Assistant",
        '```json\n{\n  "command": "1"\n}\n```',
        "```\nresult 1\n```",
        '```json\n{\n  "command": "2"\n}\n```',
        "```\nresult 2\n```",
        "## Claude Code",
        "[Request interrupted by user]",
        "```\ncost\n```\n",
    ]
