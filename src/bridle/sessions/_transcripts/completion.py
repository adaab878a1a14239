"""Find out what a store lacks of a conversation: entries of a file, the beginning, or turns.

The CLI writes an entry to its file before Bridle can append it to the store. If the program dies in
between, only the file has the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bridle._records.session_store import Entry
from bridle.outcomes import OutcomeReason
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    StoredOutcome,
    UnknownEntry,
)
from bridle.sessions._transcripts.stored_turns import prompts_in
from bridle.sessions._transcripts.transcript import (
    TranscriptEntry,
    conversation,
    entries_of_objects,
    is_linked,
    subagent_name,
    text_of,
)


def missing_entries(
    stored: Mapping[str, Sequence[Entry]], found: Mapping[str, Sequence[Entry]]
) -> dict[str, list[Entry]]:
    """Return the entries that only the files of the CLI have, by subkey.

    Nothing is missing if the conversation in the store has gone on elsewhere: then the file is an
    old branch. Entries without a uuid are left out, because a store cannot tell whether it has
    them. A ``last-prompt`` is added if the CLI would resume another branch without it.

    Args:
        stored: the entries in the store, by subkey, "" for the main transcript.
        found: the entries in the files, by subkey.
    """
    ours, theirs = found.get("", ()), stored.get("", ())
    if not _uuids(ours).issuperset(_uuids(filter(is_linked, theirs))):
        return {}
    missing: dict[str, list[Entry]] = {}
    for subkey, entries in found.items():
        known = _uuids(stored.get(subkey, ()))
        new = [one for one in entries if "uuid" in one and one["uuid"] not in known]
        if new and (not subkey or subagent_name(subkey) is not None):
            missing[subkey] = new
    if main := missing.get(""):
        main += _branch_choice([*theirs, *main], ours)
    return missing


def _branch_choice(merged: Sequence[Entry], ours: Sequence[Entry]) -> list[Entry]:
    """Return the ``last-prompt`` with which the CLI resumes the branch that it has in its file."""
    leaf = _leaf(ours)
    if leaf is None or leaf == _leaf(merged):
        return []
    last = next((one for one in reversed(ours) if one.get("type") == "last-prompt"), None)
    if last is not None and _leaf([*merged, last]) == leaf:
        return [last]
    return [{"type": "last-prompt", "leafUuid": leaf}]


def _leaf(entries: Sequence[Entry]) -> str | None:
    branch = conversation(entries_of_objects(entries))
    return branch[-1].uuid if branch else None


def lacks_beginning(stored: Iterable[Entry]) -> bool:
    """Return whether the first message of a transcript follows one that is not there."""
    entries = list(stored)
    first = next((one for one in entries if is_linked(one)), None)
    parent = None if first is None else text_of(first, "parentUuid")
    return parent is not None and parent not in _uuids(entries)


def lost_answers(
    journal: Iterable[JournalEntry | UnknownEntry], transcript: Iterable[TranscriptEntry]
) -> list[str]:
    """Return the prompts that the model answered, by the journal, and that the transcript lacks.

    Only those after the last prompt that the transcript has: the others were reported before.
    """
    saved = {uuid for entry in transcript for uuid in prompts_in(entry)}
    prompts: dict[str, PromptEntry] = {}
    lost: list[str] = []
    for entry in journal:
        if isinstance(entry, PromptEntry):
            prompts[entry.prompt_uuid] = entry
        elif isinstance(entry, OutcomeEntry):
            outcome, prompt = entry.outcome, prompts.get(entry.prompt_uuid)
            if not saved.isdisjoint((entry.prompt_uuid, *outcome.merged_with)):
                lost.clear()
            elif prompt is not None and _is_saved(prompt, outcome):
                lost.append(entry.prompt_uuid)
    return lost


def _is_saved(prompt: PromptEntry, outcome: StoredOutcome) -> bool:
    """Return whether the model answered a prompt that the CLI saves under its uuid.

    The CLI does not save each command, nor what it answers itself, for example a blank prompt.
    """
    content = prompt.content
    is_command = isinstance(content, str) and content.startswith("/")
    is_answer = outcome.reason is OutcomeReason.COMPLETED and outcome.num_turns > 0
    return is_answer and content is not None and not is_command


def _uuids(entries: Iterable[Entry]) -> set[object]:
    return {entry["uuid"] for entry in entries if "uuid" in entry}
