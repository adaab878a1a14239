"""Make the entries that rename, tag or fork a session. They are appended or written as new."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError
from bridle.sessions._backlog import deferred_call
from bridle.sessions._transcripts.transcript import (
    SubagentTranscript,
    Transcript,
    TranscriptEntry,
    conversation,
    text_of,
)

# Names that belong to the process or the team that wrote the entry.
_NOT_FORKED = ("teamName", "agentName", "sessionKind", "slug", "sourceToolAssistantUUID")

# Members that hold the conversation: what looks like a UUID in them is not a reference.
_CONTENT = ("message", "toolUseResult")


def title_entry(session_id: str, title: str) -> JsonObject:
    """Return the entry that sets the title of a session.

    Raises:
        OptionsError: the title is not a string, or is blank.
    """
    return {"type": "custom-title", "customTitle": _text("title", title), "sessionId": session_id}


def tag_entry(session_id: str, tag: str | None) -> JsonObject:
    """Return the entry that sets the tag of a session, or removes it.

    Raises:
        OptionsError: the tag is not a string, or is blank.
    """
    text = "" if tag is None else _text("tag", _visible(_text("tag", tag)))
    return {"type": "tag", "tag": text, "sessionId": session_id}


def _text(name: str, value: object) -> str:
    """Return a text without spaces around it, and without halves of surrogate pairs."""
    if not isinstance(value, str):
        raise OptionsError(name, f"must be a string, got {type(value).__name__}")
    text = value.encode("utf-8", "ignore").decode().strip()
    if not text:
        raise OptionsError(name, "must not be blank")
    return text


def _visible(text: str) -> str:
    """Return the text without characters that are invisible or have no meaning."""
    before = None
    while text != before:
        before = text
        text = unicodedata.normalize("NFKC", text)
        text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Co", "Cn", "Cs"))
    return text


# ------------------------------------------------------------------------- fork


class Fork(Struct, frozen=True):
    """The entries of a new session: of its transcript, and of each subagent by its name."""

    entries: list[JsonObject]
    subagents: list[tuple[SubagentTranscript, list[JsonObject]]]


def fork_of(
    source: Transcript,
    session_id: str,
    *,
    up_to: str | None,
    title: str,
    now: str,
    uuids: Iterator[str],
) -> Fork:
    """Return a copy of a conversation as a new session. See `ForkPlan`."""
    plan = ForkPlan(source, session_id, up_to=up_to, title=title, now=now, uuids=uuids)
    agents = [(agent, [*entries]) for agent, entries in plan.subagents()]
    return Fork([*plan.entries()], agents)


class ForkPlan:
    """A copy of a conversation as a new session, made one entry at a time.

    The copy has the branch that the CLI resumes, with what was before a compaction. Its entries
    have new uuids. A tool call that waits for approval waits in the source only.

    Args:
        source: the conversation.
        session_id: the id of the new session.
        up_to: the uuid of the last message to copy. None copies all.
        title: the title of the new session.
        now: the time of the last entry, as ISO 8601.
        uuids: new uuids.

    Raises:
        OptionsError: ``up_to`` is not a message of the conversation.
    """

    def __init__(
        self,
        source: Transcript,
        session_id: str,
        *,
        up_to: str | None,
        title: str,
        now: str,
        uuids: Iterator[str],
    ) -> None:
        self._source = source
        self._session_id = session_id
        self._now = now
        self._chosen = [one for one in _kept(source, up_to) if not self._is_left_out(one)]
        self._names = {one.uuid: next(uuids) for one in self._chosen if one.uuid is not None}
        self._own = [*self._session_entries(), *self._leaf_entry(), title_entry(session_id, title)]

    def __len__(self) -> int:
        return len(self._chosen) + len(self._own)

    def entries(self) -> Iterator[JsonObject]:
        """Yield the entries of the new transcript. Every call yields them anew."""
        parents = {entry.uuid: entry.parent_uuid for entry in self._source.entries}
        copied: dict[str | None, str] = {}
        before: str | None = None
        last = len(self._chosen)
        for number, entry in enumerate(self._chosen, 1):
            members = _copied(entry.raw, self._names, self._session_id)
            members["parentUuid"] = _copied_parent(entry, copied, parents, before)
            before = copied[entry.uuid] = members["uuid"]
            members["forkedFrom"] = {
                "sessionId": self._source.session_id,
                "messageUuid": entry.uuid,
            }
            if number == last:
                members["timestamp"] = self._now
            yield members
        yield from self._own

    def subagents(self) -> Iterator[tuple[SubagentTranscript, Iterator[JsonObject]]]:
        """Yield the subagents that the copied calls started, also nested ones."""
        calls = {call for entry in self._chosen for call in entry.tool_calls}
        waiting = list(self._source.subagents)
        while True:
            found = [agent for agent in waiting if agent.tool_use_id in calls]
            if not found:
                return
            for agent in found:
                waiting.remove(agent)
                readable = [entry for entry in agent.entries if not entry.damage]
                calls |= {call for entry in readable for call in entry.tool_calls}
                yield agent, map(self._in_new_session, readable)

    def _in_new_session(self, entry: TranscriptEntry) -> JsonObject:
        return {**entry.raw, "sessionId": self._session_id}

    def _is_left_out(self, entry: TranscriptEntry) -> bool:
        """Return True for progress, and for the entry that lets the CLI run a deferred call."""
        if entry.type == "attachment":
            return bool(deferred_call(entry.raw))
        return entry.type == "progress"

    def _session_entries(self) -> Iterator[JsonObject]:
        """Yield the entries without a uuid that the CLI needs to resume the copy."""
        replacements: list[object] = []
        moved: str | None = None
        for entry in self._source.entries:
            if entry.type == "content-replacement":
                found = entry.raw.get("replacements")
                replacements += cast("list[object]", found) if isinstance(found, list) else []
            elif entry.type == "relocated":
                moved = text_of(entry.raw, "relocatedCwd") or moved
        if replacements:
            yield {
                "type": "content-replacement",
                "sessionId": self._session_id,
                "replacements": replacements,
            }
        if moved is not None:
            yield {"type": "relocated", "sessionId": self._session_id, "relocatedCwd": moved}

    def _leaf_entry(self) -> Iterator[JsonObject]:
        """Yield the entry that names the last message.

        Without it, CLI 2.1.197 resumes a compacted session at a message before the compaction.
        """
        uuids = (one.uuid or "" for one in reversed(self._chosen) if one.type in _SPOKEN)
        leaf = next(filter(None, map(self._names.get, uuids)), None)
        if leaf is not None:
            yield {"type": "last-prompt", "leafUuid": leaf, "sessionId": self._session_id}


_SPOKEN = ("user", "assistant", "system")


def _kept(source: Transcript, up_to: str | None) -> list[TranscriptEntry]:
    entries = conversation(source.entries, compacted=True)
    if up_to is None:
        return entries
    for number, entry in enumerate(entries):
        if entry.uuid == up_to and entry.type in ("user", "assistant"):
            return entries[: number + 1]
    raise OptionsError(
        "up_to",
        f"must be the uuid of a message of the session, got {up_to!r}",
        fix="Use the uuid of a message that read_messages returns.",
    )


def _copied_parent(
    entry: TranscriptEntry,
    copied: Mapping[str | None, str],
    parents: Mapping[str | None, str | None],
    before: str | None,
) -> str | None:
    """Return the new uuid of the nearest ancestor that was copied.

    If there is none, because the parent is a damaged line, return the entry ``before``.
    """
    parent = entry.parent_uuid
    seen: set[str] = set()  # a damaged file may have a cycle
    while parent is not None and parent not in copied and parent not in seen:
        seen.add(parent)
        parent = parents.get(parent)
    return copied.get(parent, before if entry.parent_uuid is not None else None)


def _copied(members: JsonObject, names: Mapping[str, str], session_id: str) -> JsonObject:
    copy = {
        name: value if name in _CONTENT else _renamed(value, names)
        for name, value in members.items()
        if name not in _NOT_FORKED
    }
    return {**copy, "sessionId": session_id, "isSidechain": False}


def _renamed(value: object, names: Mapping[str, str]) -> Any:
    """Return a value with the new uuids in place of the old ones, at any depth."""
    copied = [value]
    # Copies whose members are not renamed yet. Recursion would limit the depth.
    waiting: list[Any] = [copied]
    while waiting:
        copy = waiting.pop()
        is_list = isinstance(copy, list)
        places: Iterable[Any] = range(len(cast(Any, copy))) if is_list else list(copy)
        for place in places:
            item: object = copy[place]
            if isinstance(item, str):
                copy[place] = names.get(item, item)
            elif isinstance(item, list | dict):
                copy[place] = cast(Any, item).copy()
                waiting.append(copy[place])
    return copied[0]
