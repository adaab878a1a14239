"""Read the journal of a session from a store."""

from __future__ import annotations

from bridle._records.session_store import JOURNAL, SessionKey, SessionStore
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    decode_entries,
)


async def journal_of(store: SessionStore, session_id: str | None) -> list[JournalEntry]:
    """Return the entries of a journal, all of which must be known."""
    entries = decode_entries(await store.load(SessionKey(str(session_id), JOURNAL)) or ())
    known = [entry for entry in entries if not isinstance(entry, UnknownEntry)]
    assert len(known) == len(entries)
    return known


def brief(entries: list[JournalEntry], *prompts: str) -> list[str]:
    """Return one line for each entry. Prompts are numbered from 1 in the order given or found."""
    numbers = {uuid: f"#{number}" for number, uuid in enumerate(prompts, 1)}

    def number(uuid: str | None) -> str:
        return "-" if uuid is None else numbers.setdefault(uuid, f"#{len(numbers) + 1}")

    lines: list[str] = []
    for entry in entries:
        match entry:
            case PromptEntry(content=content, continues=None, resumes=None):
                lines.append(f"prompt {number(entry.prompt_uuid)} {content}")
            case PromptEntry(resumes=None):
                first = number(entry.continues)
                lines.append(f"prompt {number(entry.prompt_uuid)} continues {first}")
            case PromptEntry():
                lines.append(f"turn {number(entry.prompt_uuid)} resumes")
            case ToolCallEntry():
                lines.append(f"call {entry.tool_name} {number(entry.prompt_uuid)}")
            case ToolResultEntry():
                lines.append(f"result {'error' if entry.is_error else 'ok'}")
            case OutcomeEntry():
                lines.append(f"outcome {number(entry.prompt_uuid)} {entry.outcome.reason}")
            case ReceivedEntry():
                lines.append(f"received {number(entry.prompt_uuid)}")
    return lines
