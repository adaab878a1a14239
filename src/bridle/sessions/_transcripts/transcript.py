"""Read transcripts: the files in which the CLI keeps conversations.

A transcript has one JSON object per line. Most entries have a ``uuid`` and the ``parentUuid`` of
the entry before them, so a transcript is a tree. :func:`conversation` finds the branch that the CLI
resumes. Entries of unknown kinds and lines that are not JSON are kept.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from bridle._engine.wire.codec import Unencodable, decode_stored, encode_json, may_have_run
from bridle._records.raw_line import JsonObject, attach, parse_json
from bridle._records.session_store import Entry
from bridle.messages._message import AgentNode, Message

SUBAGENTS = "subagents"
"""The directory, and the first part of the subkey in a store, of a session's subagents."""

_METADATA = "agent_metadata"
"""The type of the entry that describes a subagent. The CLI keeps it in a file of its own."""

_DAMAGED = "bridle_damaged_line"
"""The type of the entry that a store has for a line that is not a JSON object."""


class TranscriptEntry(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """One line of a transcript. `raw` has its content, also if its kind is unknown."""

    #: The bytes of the line, without the line ending.
    raw_line: bytes
    #: The kind: `user`, `assistant`, `system`, `attachment`, `custom-title` and others.
    type: str = ""
    uuid: str | None = None
    #: The entry before this one in its branch.
    parent_uuid: str | None = None
    #: The entry before a compaction, which has no `parent_uuid`.
    logical_parent_uuid: str | None = None
    #: When it was written, as ISO 8601.
    timestamp: str | None = None
    #: Why the line could not be read. Empty if it could.
    damage: str = ""
    #: True for an entry that is not part of the visible conversation: of a subagent or a teammate.
    is_sidechain: bool = False
    #: True for text that the CLI wrote for the model and hides from the user.
    is_meta: bool = False
    #: The id of the API message that an `assistant` entry is a part of.
    message_id: str | None = None
    #: The ids of the tool calls in an `assistant` entry.
    tool_calls: tuple[str, ...] = ()
    #: The ids of the tool calls whose results a `user` entry has.
    tool_results: tuple[str, ...] = ()
    #: True for results that the CLI wrote in place of the real ones: of a call that was stopped
    #: while it ran, or that was cut off by the end of the CLI. Only newer CLIs say so.
    is_cut_off: bool = False

    @property
    def raw(self) -> JsonObject:
        """The JSON object of the line, empty if it is damaged. Each access parses it again."""
        return {} if self.damage else cast(JsonObject, parse_json(self.raw_line))

    @property
    def message(self) -> Message | None:
        """The entry as a message. None if it is not a `user`, `assistant` or `system` entry."""
        if self.type not in _MESSAGES:
            return None
        frame = decode_stored(self.raw_line)
        return frame if isinstance(frame, Message) else None


_MESSAGES = ("user", "assistant", "system")


# ------------------------------------------------------------------------- entries


def entries_of_bytes(data: bytes) -> tuple[TranscriptEntry, ...]:
    """Return the entries of a transcript file."""
    return tuple(map(entry_of_line, _lines(data)))


def entries_of_objects(objects: Iterable[Entry]) -> tuple[TranscriptEntry, ...]:
    """Return the entries of JSON objects, as a store returns them."""
    return tuple(map(_entry_of_object, objects))


def _entry_of_object(value: Entry) -> TranscriptEntry:
    try:
        return entry_of_line(line_of_object(value))
    except Unencodable as error:
        return TranscriptEntry(raw_line=repr(value).encode(), damage=str(error))


def objects_of_bytes(data: bytes) -> list[Entry]:
    """Return the lines of a transcript file as JSON objects for a store.

    A damaged line becomes an object that `line_of_object` turns into this line again.
    """
    found = ((line, object_of_line(line)) for line in _lines(data))
    return [
        {"type": _DAMAGED, "line": line.decode("utf-8", "replace")} if isinstance(one, str) else one
        for line, one in found
    ]


def line_of_object(value: Entry) -> bytes:
    """Return the line of a JSON object from a store, without a line ending.

    Raises:
        Unencodable: the object is not JSON.
    """
    line = value.get("line") if value.get("type") == _DAMAGED else None
    if isinstance(line, str) and "\n" not in line:
        return line.encode("utf-8", "replace")
    try:
        return encode_json(value)
    except Unencodable as error:  # half of a surrogate pair, or a mapping that is not a dict
        try:
            return json.dumps(dict(value), separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError):
            raise error from None


def _lines(data: bytes) -> Iterator[bytes]:
    lines = (line.strip(b"\r") for line in data.split(b"\n"))
    return (line for line in lines if line.strip())


def object_of_line(line: bytes) -> JsonObject | str:
    """Return the JSON object of a line. For a damaged line, return what is wrong with it."""
    try:
        members = parse_json(line)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return f"not JSON: {error}"
    return cast(JsonObject, members) if isinstance(members, dict) else "not a JSON object"


def entry_of_line(line: bytes) -> TranscriptEntry:
    """Return the entry of one line, without its line ending. Never raises."""
    fields = object_of_line(line)
    if isinstance(fields, str):
        return TranscriptEntry(raw_line=line, damage=fields)
    message = object_of(fields.get("message"))
    blocks = blocks_of(message.get("content"))
    kind = text_of(fields, "type") or ""
    return TranscriptEntry(
        raw_line=line,
        type=kind,
        uuid=text_of(fields, "uuid"),
        parent_uuid=text_of(fields, "parentUuid"),
        logical_parent_uuid=text_of(fields, "logicalParentUuid"),
        timestamp=text_of(fields, "timestamp"),
        is_sidechain=fields.get("isSidechain") is True or text_of(fields, "teamName") is not None,
        is_meta=fields.get("isMeta") is True,
        message_id=text_of(message, "id") if kind == "assistant" else None,
        tool_calls=_ids(blocks, "tool_use", "id") if kind == "assistant" else (),
        tool_results=_ids(blocks, "tool_result", "tool_use_id") if kind == "user" else (),
        is_cut_off=may_have_run(fields.get("toolDenialKind")),
    )


def text_of(members: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a non-empty string, else None."""
    value = members.get(name)
    return value if isinstance(value, str) and value else None


def object_of(value: object) -> JsonObject:
    """Return a value that is an object, else an empty one."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def blocks_of(content: object) -> list[JsonObject]:
    """Return the content blocks of a message; none if the content is text."""
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return [object_of(block) for block in blocks]


def _ids(blocks: Iterable[JsonObject], kind: str, name: str) -> tuple[str, ...]:
    found = (text_of(block, name) for block in blocks if block.get("type") == kind)
    return tuple(one for one in found if one is not None)


# ------------------------------------------------------------------------- the conversation


def conversation(
    entries: Sequence[TranscriptEntry], *, compacted: bool = False, subagent: bool = False
) -> list[TranscriptEntry]:
    """Return the entries of the branch that the CLI resumes, in order.

    ``compacted`` adds the entries before a compaction. ``subagent`` is for the transcript of a
    subagent, in which every entry is a sidechain.
    """
    tree = _Tree([entry for entry in entries if subagent or not entry.is_sidechain], entries)
    leaf = tree.leaf()
    return [] if leaf is None else tree.with_parallel_calls(tree.path(leaf, compacted=compacted))


_LINKED = ("user", "assistant", "system", "attachment", "progress")


def is_linked(entry: Entry) -> bool:
    """Return whether an entry of a store is in the conversation. Others may have a uuid too."""
    uuid, parent = text_of(entry, "uuid"), text_of(entry, "parentUuid")
    return _is_in_tree(entry.get("type"), uuid, parent)


def is_in_tree(entry: TranscriptEntry) -> bool:
    """Return whether an entry has a place in the tree of the conversation."""
    return _is_in_tree(entry.type, entry.uuid, entry.parent_uuid)


def _is_in_tree(kind: object, uuid: str | None, parent: str | None) -> bool:
    return uuid is not None and (kind in _LINKED or parent is not None)


class _Tree:
    """The entries with a uuid and a parent, as a tree."""

    def __init__(
        self, entries: Sequence[TranscriptEntry], everything: Sequence[TranscriptEntry]
    ) -> None:
        self._everything = everything
        self._nodes = [entry for entry in entries if is_in_tree(entry)]
        self._by_uuid = {entry.uuid: entry for entry in self._nodes}
        # Entries are compared by identity: a damaged file may contain a line twice.
        self._position = {id(entry): number for number, entry in enumerate(everything)}
        self._children: dict[str, list[TranscriptEntry]] = {}
        self._results: dict[str, list[TranscriptEntry]] = {}
        for entry in self._nodes:
            parent = entry.parent_uuid or entry.logical_parent_uuid
            if parent is not None:
                self._children.setdefault(parent, []).append(entry)
            for call in entry.tool_results:
                self._results.setdefault(call, []).append(entry)

    # -- the leaf ----------------------------------------------------------------------------------

    def leaf(self) -> TranscriptEntry | None:
        """Return the last entry of the branch that the CLI resumes.

        At exit, and often before, the CLI writes a ``last-prompt`` entry that names the leaf of its
        branch. Two processes on one session write two branches: the CLI follows the one that was
        named last, even if the other one is newer.
        """
        named = self._named_leaf()
        within = None if named is None else self._descendants(named)
        for entry in reversed(self._nodes):
            is_leaf = entry.uuid not in self._children
            if is_leaf and not entry.is_meta and (within is None or id(entry) in within):
                return entry
        return named or (self._nodes[-1] if self._nodes else None)

    def _named_leaf(self) -> TranscriptEntry | None:
        for entry in reversed(self._everything):
            if entry.type == "last-prompt":
                leaf = self._by_uuid.get(text_of(entry.raw, "leafUuid"))
                if leaf is not None:
                    return leaf
        return None

    def _descendants(self, entry: TranscriptEntry) -> set[int]:
        """Return the entry and those after it. A parallel call has them on several branches."""
        parent = self._by_uuid.get(entry.parent_uuid)
        above: set[int] = set()  # a damaged file may have a cycle
        while (
            parent is not None
            and id(entry) not in above
            and (
                (entry.message_id is not None and parent.message_id == entry.message_id)
                or not set(entry.tool_results).isdisjoint(parent.tool_calls)
            )
        ):
            above.add(id(entry))
            entry, parent = parent, self._by_uuid.get(parent.parent_uuid)
        found: set[int] = set()
        waiting = [entry]
        while waiting:
            one = waiting.pop()
            if id(one) not in found:
                found.add(id(one))
                waiting += self._children.get(one.uuid or "", ())
        return found

    # -- the path ----------------------------------------------------------------------------------

    def path(self, leaf: TranscriptEntry, *, compacted: bool) -> list[TranscriptEntry]:
        """Return the entries from the root to the leaf."""
        found: dict[int, TranscriptEntry] = {}
        entry: TranscriptEntry | None = leaf
        while entry is not None and id(entry) not in found:  # a damaged file may have a cycle
            found[id(entry)] = entry
            entry = self._before(entry, compacted=compacted)
        return list(found.values())[::-1]

    def _before(self, entry: TranscriptEntry, *, compacted: bool) -> TranscriptEntry | None:
        parent = entry.parent_uuid
        if parent is None and compacted:
            parent = entry.logical_parent_uuid
        if parent is None or parent in self._by_uuid:
            return self._after_compaction(entry, parent) or self._by_uuid.get(parent)
        return self._across_gap(entry)

    def _after_compaction(
        self, entry: TranscriptEntry, parent: str | None
    ) -> TranscriptEntry | None:
        """Return the summary, or the boundary, of a compaction between an entry and its parent.

        CLI 2.1.197 may write the command that compacts after the boundary, as a child of the last
        entry before it.
        """
        here = self._position[id(entry)]
        for boundary in self._children.get(parent or "", ()):
            is_boundary = boundary.parent_uuid is None and boundary is not entry
            if is_boundary and self._position[id(boundary)] < here:
                after = self._children.get(boundary.uuid or "", ())
                return next((one for one in after if self._position[id(one)] < here), boundary)
        return None

    def _across_gap(self, entry: TranscriptEntry) -> TranscriptEntry | None:
        """Return the entry before this one in the file, if the parent is damaged or missing.

        The CLI does the same.
        """
        earlier = (self._everything[at] for at in range(self._position[id(entry)] - 1, -1, -1))
        return next((one for one in earlier if self._by_uuid.get(one.uuid) is one), None)

    # -- parallel tool calls -----------------------------------------------------------------------

    def with_parallel_calls(self, path: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
        """Add what belongs to a message of the path and is on a side branch.

        The CLI writes each tool call of a message as an entry, and each result after its call. The
        conversation continues after one of the results, so the others are beside the path.
        """
        on_path = set(map(id, path))
        found: dict[int, TranscriptEntry] = {}
        beside: list[TranscriptEntry] = []  # results that are not on the path
        for entry in path:
            if entry.tool_results:
                beside.append(entry)  # all results of a message, in the order of the file
                beside.sort(key=lambda one: self._position[id(one)])
            elif entry.type not in ("user", "assistant"):
                found.setdefault(id(entry), entry)
                continue
            found.update((id(one), one) for one in beside if id(one) not in found)
            beside = []
            parts = self._parts(entry)
            found.update((id(one), one) for one in parts if id(one) not in found)
            for call in (call for part in parts for call in part.tool_calls):
                answers = self._results.get(call, [])
                if on_path.isdisjoint(map(id, answers)):
                    beside += answers[-1:]
        found.update((id(one), one) for one in beside if id(one) not in found)
        return list(found.values())

    def _parts(self, entry: TranscriptEntry) -> list[TranscriptEntry]:
        """Return the entry and the later entries of the same API message."""
        parts = {id(entry): entry}
        waiting = [entry]
        while waiting:
            for child in self._children.get(waiting.pop(0).uuid or "", ()):
                is_part = entry.message_id is not None and child.message_id == entry.message_id
                if is_part and id(child) not in parts:  # a damaged file may have a cycle
                    parts[id(child)] = child
                    waiting.append(child)
        return list(parts.values())


# ------------------------------------------------------------------------- whole transcripts


class SubagentTranscript(Struct, frozen=True, kw_only=True):
    """The transcript of a subagent."""

    #: The id that the CLI gave the subagent.
    agent_id: str
    entries: tuple[TranscriptEntry, ...]
    #: The id of the tool call that started it.
    tool_use_id: str | None = None
    #: The kind of subagent, such as `general-purpose`.
    agent_type: str | None = None
    description: str | None = None
    #: Its place below `subagents/`, without the ending.
    name: str = ""
    #: What the CLI wrote about the subagent.
    metadata: JsonObject = {}


def subagent_transcript(
    name: str, entries: tuple[TranscriptEntry, ...], metadata: JsonObject
) -> SubagentTranscript:
    """Return the transcript of a subagent. ``name`` is its place below ``subagents/``."""
    return SubagentTranscript(
        agent_id=name.rpartition("/")[2].removeprefix("agent-"),
        entries=entries,
        tool_use_id=text_of(metadata, "toolUseId"),
        agent_type=text_of(metadata, "agentType"),
        description=text_of(metadata, "description"),
        name=name,
        metadata=metadata,
    )


def subagent_of_objects(name: str, objects: Iterable[Entry]) -> SubagentTranscript:
    """Return the transcript of a subagent from the entries that a store has of it."""
    entries, metadata = split_metadata(objects)
    return subagent_transcript(name, entries_of_objects(entries), metadata)


def split_metadata(entries: Iterable[Entry]) -> tuple[list[Entry], JsonObject]:
    """Split the entries that a store has of a subagent into its transcript and its description.

    The CLI keeps the description in a file, and reports each version of this file as an entry. The
    last one is returned; an empty one if there is none.
    """
    transcript: list[Entry] = []
    metadata: JsonObject = {}
    for entry in entries:
        if entry.get("type") == _METADATA:
            metadata = {name: value for name, value in entry.items() if name != "type"}
        else:
            transcript.append(entry)
    return transcript, metadata


def metadata_entry(agent: SubagentTranscript) -> JsonObject:
    """Return the description of a subagent as an entry for a store."""
    return {**agent.metadata, "type": _METADATA}


class Transcript(Struct, frozen=True, kw_only=True):
    """A stored conversation: every entry of its transcript and of its subagents."""

    session_id: str
    #: The project: the working directory with "-" for all characters but letters and digits.
    project: str
    #: Every line, in the order of the file. Entries of unknown kinds and damaged lines are kept.
    entries: tuple[TranscriptEntry, ...]
    subagents: tuple[SubagentTranscript, ...] = ()

    @property
    def damaged(self) -> tuple[TranscriptEntry, ...]:
        """The lines that could not be read, also those of subagents. `entry.damage` says why."""
        lists = [self.entries, *(agent.entries for agent in self.subagents)]
        return tuple(entry for entries in lists for entry in entries if entry.damage)

    def messages(
        self, *, subagents: bool = False, compacted: bool = False, system: bool = False
    ) -> list[Message]:
        """Return the messages of the conversation, in order.

        Args:
            subagents: add the messages of subagents, each after the tool call that started it.
                ``message.agent_path`` tells which subagent a message comes from.
            compacted: add the messages before a compaction, which the model no longer sees.
            system: add messages of the CLI, such as `CompactBoundaryMessage`.
        """
        agents = _agents(self.subagents) if subagents else {}
        main = conversation(self.entries, compacted=compacted)
        return list(_messages(main, None, agents, system=system))


_Agents = dict[str, tuple[SubagentTranscript, AgentNode]]


def _agents(transcripts: Iterable[SubagentTranscript]) -> _Agents:
    """Return the subagents by the tool call that started them."""
    nodes: _Agents = {
        one.tool_use_id: (one, AgentNode(one.tool_use_id, one.agent_type))
        for one in transcripts
        if one.tool_use_id is not None
    }
    for transcript, node in nodes.values():
        for entry in transcript.entries:
            for call in entry.tool_calls:
                if call in nodes and nodes[call][1] is not node:
                    nodes[call][1].caller = node
    return nodes


def _messages(
    entries: Iterable[TranscriptEntry], node: AgentNode | None, agents: _Agents, *, system: bool
) -> Iterator[Message]:
    kinds = _MESSAGES if system else _MESSAGES[:2]
    for entry in entries:
        if entry.is_meta or entry.type not in kinds:
            continue
        message = entry.message
        if message is None:
            continue
        if node is not None:
            attach(message, "_agent", node)
            if entry.type != "system":
                attach(message, "parent_tool_use_id", node.id)
                attach(message, "subagent_type", node.type)
        yield message
        for call in entry.tool_calls:
            # Each subagent once: a damaged file may name a call twice.
            transcript, inner = agents.pop(call, (None, None))
            if transcript is not None:
                inside = conversation(transcript.entries, subagent=True)
                yield from _messages(inside, inner, agents, system=system)


# ------------------------------------------------------------------------- names

_LONGEST_NAME = 200
# A name that begins with a dot is hidden, or leads to another directory.
_STEP = r"[^./\x00-\x1f\ud800-\udfff][^/\x00-\x1f\ud800-\udfff]*"
_SUBKEY = re.compile(rf"{SUBAGENTS}/(?P<name>{_STEP}(?:/{_STEP})*)")


def subagent_name(subkey: str) -> str | None:
    """Return the name of a subagent: its subkey without ``subagents/``.

    Return None for another subkey, or if the name must not become the name of a file.
    """
    found = _SUBKEY.fullmatch(subkey)
    return None if found is None else found["name"]


def project_name(path: str) -> str:
    """Return the name that the CLI gives the project of an absolute path without links."""
    path = unicodedata.normalize("NFC", path)
    name = re.sub(r"[^a-zA-Z0-9]", "-", path)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{_hash(path)}"


def is_project(name: str, path: str) -> bool:
    """Return whether a directory may hold the sessions of a path.

    Versions of the CLI shorten a long name with different hashes, so only the start is compared.
    """
    wanted = project_name(path)
    if len(wanted) <= _LONGEST_NAME:
        return name == wanted
    return name[: _LONGEST_NAME + 1] == wanted[: _LONGEST_NAME + 1]


def _hash(text: str) -> str:
    """Return the hash that the CLI appends to a long name: 32 bits, in base 36."""
    value = 0
    data = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(data[::2], data[1::2], strict=True):
        value = (value * 31 + low + 256 * high) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >> 31 else value)
    digits = ""
    while value or not digits:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits
