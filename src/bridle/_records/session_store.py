"""Define what a session store is: a place for transcripts and journals outside the CLI's files.

The implementations are in ``bridle.sessions._stores``. Users import these names from
`bridle.sessions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

JOURNAL = "journal"
"""The subkey of the journal, which is reserved for records of Bridle."""

Entry = Mapping[str, object]
"""A JSON object. Its ``uuid``, if it has one, makes appending idempotent."""


class SessionKey(Struct, frozen=True):
    """The name of one list of entries in a store."""

    #: The id of the session.
    session_id: str
    #: "" for the transcript, "journal" for the journal, "subagents/agent-<id>" for a subagent.
    subkey: str = ""
    #: The name that the CLI gives to the working directory: its path, with "-" in place of every
    #: character that is not a letter or a digit. `append` stores it for a new session and `list`
    #: selects by it. Stores find a session by its id alone, so any directory can be used.
    project: str = ""


class StoredSession(Struct, frozen=True):
    """A session that a store holds."""

    session_id: str
    #: The project of the first entry.
    project: str
    #: Seconds since the epoch of the last append.
    updated_at: float


@runtime_checkable
class SessionStore(Protocol):
    """Store the entries of sessions.

    Write the methods with ``async def``. A store may also have:

    - ``subkeys`` (see `SubkeyStore`). Without it, Bridle still stores the transcripts of subagents,
      but cannot find them: a resumed session, `bridle.sessions.read_messages` and forks lack them.
      A session whose subagents are concerned warns once (``store_failed``).
    - ``acquire`` and ``release`` (see `LeasingStore`), and with them ``append_leased`` (see
      `FencingStore`).
    - ``load_ends`` and ``load_after`` (see `RangeStore`). Without them, Bridle loads a whole
      transcript where it needs a part of it.
    - ``aclose``.
    - An attribute ``has_journals``: False if the store is for transcripts only. Sessions then write
      no journal, so `bridle.recover` cannot continue their turns.
    - An attribute ``location``: a string that differs for different databases, without a password.
      Bridle sends entries that it kept in a local file only to a store of the same class with the
      same ``location``. Without this attribute, it sends them only to the same object, so entries
      that are in the file when the program ends stay there.
    - An attribute ``ends_with_program``: True if the store keeps sessions only in the memory of the
      program. Then Bridle keeps entries that the store did not take in memory, not in a file.

    Objects that implement the store protocol of the official SDK are accepted in its place.
    """

    def append(self, key: SessionKey, entries: Sequence[Entry]) -> Awaitable[None]:
        """Append entries in order, all or none. Skip those whose ``uuid`` the key already holds."""
        ...

    def load(self, key: SessionKey) -> Awaitable[Sequence[Entry] | None]:
        """Return the entries of a key in the order of appending. None if there are none."""
        ...

    def list(self, project: str | None = None) -> Awaitable[Sequence[StoredSession]]:
        """Return the sessions that have a transcript, the last updated first.

        ``project`` selects the sessions of one project. None selects all.
        """
        ...

    def delete(self, key: SessionKey) -> Awaitable[None]:
        """Delete one list. If the subkey is ``""``, delete all lists of the session."""
        ...


@runtime_checkable
class SubkeyStore(Protocol):
    """A store that can tell which subkeys a session has, so that subagents are found again."""

    def subkeys(self, session_id: str) -> Awaitable[Sequence[str]]:
        """Return the subkeys that the session has entries for, sorted, without ``""``."""
        ...


@runtime_checkable
class RangeStore(Protocol):
    """A store that can load a part of a list, so that a long transcript is not loaded as a whole.

    `bridle.sessions.list_sessions` needs the ends of transcripts. A program that follows a run of a
    fleet needs what is new.
    """

    def load_ends(self, key: SessionKey, size: int) -> Awaitable[tuple[bytes, bytes]]:
        """Return the first and the last bytes of a list, as JSON with one entry per line.

        A list of at most twice ``size`` bytes is the first part, and the second part is empty.
        Otherwise, both have ``size`` bytes, and the lines at the cuts are not complete.
        """
        ...

    def load_after(
        self, key: SessionKey, position: int, size: int
    ) -> Awaitable[tuple[Sequence[Entry], int]]:
        """Return the entries after a position, and the position after the last of them.

        0 is the position before the first entry. An entry that is appended later has a higher
        position. At the end of the list, there are no entries, and the position is the given one.

        ``size`` is the number of bytes after which to stop. At least one entry is returned, if
        there is one.
        """
        ...


@runtime_checkable
class LeasingStore(Protocol):
    """A store with leases, so that one process at a time uses a session.

    A lease is a lock that belongs to one owner and expires unless the owner renews it. For sessions
    with a store, Bridle calls ``acquire`` and ``release`` itself.

    A process that is frozen or cut off cannot renew its lease. When it comes back, Bridle takes the
    lease again and looks for entries of others before it appends more. See also `FencingStore`.
    """

    def acquire(self, session_id: str, owner: str, seconds: float) -> Awaitable[bool]:
        """Take or renew the lease for ``seconds``. Return False if another owner holds it."""
        ...

    def release(self, session_id: str, owner: str) -> Awaitable[None]:
        """Give the lease back. Does nothing if another owner holds it."""
        ...


@runtime_checkable
class FencingStore(Protocol):
    """A store with leases that takes entries only from the owner of the lease.

    Without this method, an append may be on its way while the lease expires, and reach the store
    after another owner has continued the session.

    A subclass that replaces ``append`` or ``acquire`` has to replace ``append_leased``, too.
    Otherwise Bridle does not use it.
    """

    def append_leased(
        self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
    ) -> Awaitable[bool]:
        """Append entries as ``append`` does, and renew the lease of the session for ``seconds``.

        Return False and change nothing if ``owner`` does not have the lease. Check the lease and
        append in one step, so that no other owner can take the lease in between. Bridle also calls
        this without entries, to renew the lease.
        """
        ...


def fencing_store(store: object) -> FencingStore | None:
    """Return a store if Bridle can use its ``append_leased``, else None."""
    if not isinstance(store, LeasingStore) or not isinstance(store, FencingStore):
        return None
    # A subclass or an object that replaces a method expects that Bridle calls it.
    for names in (getattr(store, "__dict__", {}), *map(vars, type(store).__mro__)):
        if not names.keys().isdisjoint(("append", "acquire", "append_leased")):
            return store if "append_leased" in names else None
    return store


def has_journals(store: object) -> bool:
    """Return whether sessions write their journals to a store."""
    return bool(getattr(store, "has_journals", True))
