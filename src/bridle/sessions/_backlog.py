"""Decide where the entries of transcripts go in a store, in which batches, and when to spool them.

The CLI reports what it adds to its transcript files. Bridle appends the same entries to the store.
Entries wait in memory while the store works on earlier ones. If the store fails, or too much waits,
the entries are written to a local file, the spool.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from bridle._records.fields import is_mapping
from bridle._records.session_store import Entry, SessionKey
from bridle.options._checks import UUID

MAX_BATCH_ENTRIES = 500
MAX_BATCH_BYTES = 1 << 20
"""The most that one append has, unless a single entry is larger."""

MAX_MEMORY = 8 << 20
"""Bytes that may wait in memory. Then the entries go to the spool."""

MAX_UNSPOOLED = 64 << 20
"""Bytes that may wait in memory after the spool failed. Then entries are dropped."""

APPEND_TIMEOUT = 5.0
"""Seconds after which an append that has not ended counts as failed."""

LINGER = 0.1
"""Seconds that entries wait for more, if no caller waits for them. Fewer appends cost less."""

MAX_FAILING = 2.0
"""Seconds for which the store may fail before the entries go to the spool."""

LEASE = 30.0
"""Seconds for which a session takes the lease in the store. It renews the lease in time."""

_DELAYS = (0.1, 5.0)
"""The first and the longest pause, in seconds, between two attempts."""

# A directory may have a UUID as its name too: above the projects, or below the session.
_PATHS = (
    re.compile(rf".*/projects/(?P<project>[^/]+)/(?P<session>{UUID})(?P<inside>/.+)?\.jsonl"),
    re.compile(rf"(?P<project>)(?:.*?/)?(?P<session>{UUID})(?P<inside>/subagents/.+)?\.jsonl"),
)


def key_of(path: str, project: str) -> SessionKey | None:
    """Return the key in the store of a transcript file. None for another file.

    ``project`` is used for a file that is not in the directory of a project, such as the private
    file of a session that was resumed from a store.
    """
    for pattern in _PATHS:
        found = pattern.fullmatch(path)
        if found is not None:
            subkey = (found["inside"] or "").removeprefix("/")
            return SessionKey(found["session"], subkey, found["project"] or project)
    return None


DEFERRED = "hook_deferred_tool"
"""The type of the attachment with which the CLI saves that a tool call waits."""


def deferred_call(entry: Entry) -> str:
    """Return the tool call that waits for approval by this entry. Empty for another entry."""
    attached = entry.get("attachment")
    if not is_mapping(attached) or attached.get("type") != DEFERRED:
        return ""
    call = attached.get("toolUseID")
    return call if isinstance(call, str) else ""


def delay_after(failures: int) -> float:
    """Return the seconds to wait after this number of failed attempts in a row."""
    first, longest = _DELAYS
    return min(longest, first * (1 << min(failures - 1, 16)))


class Batch(Struct):
    """Entries of one key that are appended together."""

    key: SessionKey
    #: None while they are only in the spool.
    entries: list[Entry] | None
    #: Bytes of the entries, approximately.
    size: int
    #: Number of the entries.
    count: int
    #: The position and the length in the spool. None if the batch is not there.
    place: tuple[int, int] | None = None
    #: True while the batch must not grow, because it is being appended or spooled.
    is_sealed: bool = False
    #: The uuid of the entry of the transcript before these. None if it is not known.
    after: str | None = None


class Backlog:
    """The batches that are not in the store yet, in order.

    ``after`` is the uuid of the last entry of the transcript that the store has.
    """

    def __init__(self, after: str | None = None) -> None:
        self._batches: deque[Batch] = deque()
        self._after = after
        #: Bytes of entries in memory.
        self.size = 0
        #: Entries that were dropped because too many waited.
        self.dropped = 0
        #: Whether new entries go to the spool.
        self.is_spooling = False
        #: Whether the last write to the spool failed.
        self.is_spool_failing = False

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def entries(self) -> int:
        """The number of entries."""
        return sum(batch.count for batch in self._batches)

    @property
    def first(self) -> Batch:
        """The batch that is appended next."""
        return self._batches[0]

    @property
    def wants_spool(self) -> bool:
        """Whether the entries in memory have to go to the spool."""
        return self.is_spooling or self.size > MAX_MEMORY

    def add(self, key: SessionKey, entries: Sequence[Entry], size: int) -> Batch | None:
        """Add entries of ``size`` bytes. Return the last batch that has them; None if dropped."""
        if self.is_spool_failing and self._batches and self.size + size > MAX_UNSPOOLED:
            self.dropped += len(entries)
            return None
        step = _entries_per_batch(len(entries), size)
        for start in range(0, len(entries), step):
            part = entries[start : start + step]
            self._add(key, part, size * len(part) // len(entries))
        return self._batches[-1]

    def _add(self, key: SessionKey, entries: Sequence[Entry], size: int) -> None:
        self.size += size
        last = self._batches[-1] if self._batches else None
        if (
            last is not None
            and last.entries is not None
            and not last.is_sealed
            and last.key == key
            and len(last.entries) + len(entries) <= MAX_BATCH_ENTRIES
            and last.size + size <= MAX_BATCH_BYTES
        ):
            last.entries.extend(entries)
            last.size += size
            last.count += len(entries)
        else:
            self._batches.append(Batch(key, list(entries), size, len(entries), after=self._after))
        if not key.subkey:
            uuids = (entry.get("uuid") for entry in reversed(entries))
            self._after = next((one for one in uuids if isinstance(one, str)), self._after)

    def unspooled(self) -> list[Batch]:
        """Return the batches that are only in memory, and seal them."""
        found = [batch for batch in self._batches if batch.place is None]
        for batch in found:
            batch.is_sealed = True
        return found

    def forget_entries(self, batch: Batch) -> None:
        """Drop the entries of a batch from memory, because the spool has them."""
        if batch.entries is not None:
            self.size -= batch.size
            batch.entries = None

    def keep_only(self, batch: Batch, entries: list[Entry]) -> None:
        """Drop the other entries of a batch, because they are stored or cannot be stored."""
        if batch.entries is None:  # they are in memory again
            self.size += batch.size
        batch.entries, batch.count = entries, len(entries)
        if not entries:
            self.remove(batch)

    def remove(self, batch: Batch) -> None:
        """Remove a batch, because it does not wait any more. It may have been removed already."""
        # The batch is the first one as a rule. Equal batches are not the same batch.
        for number, one in enumerate(self._batches):
            if one is batch:
                del self._batches[number]
                self.forget_entries(batch)
                break
        if not self._batches:
            self.is_spool_failing = False


def _entries_per_batch(count: int, size: int) -> int:
    """Return how many entries one append has, if ``count`` entries have ``size`` bytes."""
    fitting = MAX_BATCH_BYTES * count // max(size, 1)
    return max(1, min(MAX_BATCH_ENTRIES, fitting))
