"""Remember the conversation of each key of a pool: in the session store, or in memory.

A store holds one entry list for each key, under an id that is computed from the key. While a
process of this pool has the conversation, the pool holds the lease of that id, so that no other
program starts a second conversation for the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from uuid import NAMESPACE_URL, uuid4, uuid5

from msgspec import Struct

from bridle._core.transcripts import project_name
from bridle._option_checks import is_uuid
from bridle._shell.leases import Leases
from bridle._shell.store_loading import StartCalls
from bridle._store import Entry, SessionKey, SessionStore
from bridle.errors import SessionInUseError

SUBKEY = "pool"
"""The subkey of the entries that name the conversation of a key."""

_NAMESPACE = uuid5(NAMESPACE_URL, "bridle:pool-key")


class Conversation(Struct, frozen=True):
    """The conversation of a key."""

    session_id: str
    #: The working directory of its CLI.
    cwd: str


class PoolKeys:
    """The conversations of the keys of one pool.

    Args:
        store: the session store, or None.
        timeout: seconds that the store has for one call.
    """

    def __init__(self, store: SessionStore | None, timeout: float) -> None:
        self._store = store
        self._timeout = timeout
        self._known: dict[str, Conversation] = {}
        self._leases: dict[str, Leases] = {}

    def known(self, key: str) -> Conversation | None:
        """Return the conversation of a key, as far as this process knows it."""
        return self._known.get(key)

    async def load(self, key: str) -> Conversation | None:
        """Return the conversation of a key. Ask the store, if there is one.

        Raises:
            SessionLoadError: the store failed.
        """
        if self._store is not None:
            asking = StartCalls(self._timeout)
            name = _name(key)
            entries = await asking.ask(name.session_id, self._store.load, name)
            found = _last(entries or ())
            if found is None:
                self._known.pop(key, None)
            else:
                self._known[key] = found
        return self._known.get(key)

    async def save(self, key: str, conversation: Conversation) -> None:
        """Set the conversation of a key.

        Raises:
            SessionLoadError: the store failed.
        """
        if self._known.get(key) == conversation:
            return
        if self._store is not None:
            entry = {
                "type": "pool_key",
                "uuid": str(uuid4()),
                "session_id": conversation.session_id,
                "cwd": conversation.cwd,
            }
            name = _name(key, conversation.cwd)
            asking = StartCalls(self._timeout)
            await asking.ask(conversation.session_id, self._store.append, name, [entry])
        self._known[key] = conversation

    async def forget(self, key: str) -> None:
        """Remove the conversation of a key. Its transcript stays.

        Raises:
            SessionLoadError: the store failed.
        """
        self._known.pop(key, None)
        if self._store is not None:
            name = _name(key)
            await StartCalls(self._timeout).ask(name.session_id, self._store.delete, name)

    async def take(self, key: str) -> None:
        """Take the lease of a key, if the store has leases.

        Raises:
            SessionInUseError: another program has it.
            SessionLoadError: the store failed.
        """
        if self._store is None or key in self._leases:
            return
        name = _name(key).session_id
        leases = self._leases[key] = Leases(self._store, uuid4().hex, _ignore)
        try:
            await leases.take(name, partial(StartCalls(self._timeout).ask, name))
        except BaseException:
            await self.release(key)
            raise

    async def release(self, key: str) -> None:
        """Give the lease of a key back."""
        leases = self._leases.pop(key, None)
        if leases is not None:
            await leases.aclose()


def _ignore(_: SessionInUseError) -> None:
    """Do nothing: the session has a lease of its own, and fails if it loses it."""


def _name(key: str, cwd: str = "") -> SessionKey:
    return SessionKey(str(uuid5(_NAMESPACE, key)), SUBKEY, project_name(cwd) if cwd else "")


def _last(entries: Iterable[Entry]) -> Conversation | None:
    """Return the conversation that the last valid entry names."""
    found = None
    for entry in entries:
        session_id, cwd = entry.get("session_id"), entry.get("cwd")
        # The id becomes the name of a file, so nothing but a UUID may come from a store.
        if isinstance(session_id, str) and is_uuid(session_id) and isinstance(cwd, str):
            found = Conversation(session_id, cwd)
    return found
