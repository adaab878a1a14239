"""Remember the conversation of each key of a pool: in the session store, or in memory.

A store holds one entry list for each key, under an id that is computed from the key. While a
process of this pool has the conversation, the pool holds the lease of that id, so that no other
program starts a second conversation for the key.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from msgspec import Struct, structs

from bridle._records.session_store import Entry, SessionKey, SessionStore
from bridle.errors import SessionInUseError, SessionLoadError, StoreError
from bridle.options._checks import is_uuid
from bridle.sessions._outbox.leases import Leases
from bridle.sessions._start_calls import StartCalls
from bridle.sessions._transcripts.transcript import project_name

log = logging.getLogger("bridle.pool")

SUBKEY = "pool"
"""The subkey of the entries that name the conversation of a key."""

_REFRESH_AFTER = 3600.0
"""Seconds after which the use of a key writes its conversation again, unless the store keeps
everything."""

_LEAVE_TIMEOUT = 5.0
"""Seconds that the store has for a call whose failure is only logged."""

_now = time.time

_NAMESPACE = uuid5(NAMESPACE_URL, "bridle:pool-key")


class Conversation(Struct, frozen=True):
    """The conversation of a key."""

    session_id: str
    #: The working directory of its CLI.
    cwd: str
    #: True if the model has scheduled prompts. The CLI restores them when it resumes.
    has_schedule: bool = False


def _in_use(key: str) -> SessionInUseError:
    """Return the error of a key whose lease another program has."""
    error = SessionInUseError(key)
    error.fix = (
        "Send all requests of this key to one program, or wait until the other program has closed "
        "its process (max_idle), for example with pool.session(key, wait=30). If that program has "
        "crashed on another machine, its lock in the store (the lease) expires after 30 seconds."
    )
    return error


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
        # What the store may have, because a call to write it was started.
        self._tried: dict[str, Conversation] = {}
        # When the conversation of a key was written, in seconds since the epoch.
        self._written: dict[str, float] = {}
        # A store deletes what was last written too long ago. One of the user may do so, too.
        retention = getattr(store, "retention", math.inf)
        self._refresh_after = math.inf
        if isinstance(retention, int | float):
            self._refresh_after = min(_REFRESH_AFTER, retention / 4)
        self._leases: dict[str, Leases] = {}
        # Keys whose lease another program has taken.
        self._lost: set[str] = set()

    @property
    def is_shared(self) -> bool:
        """Return True if other programs can use the keys, because they are in a store."""
        return self._store is not None

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
            entries = await asking.ask(key, self._store.load, _name(key))
            found, self._written[key] = _last(entries or ())
            if found is None:
                self._known.pop(key, None)
            else:
                self._known[key] = found
        return self._known.get(key)

    async def save(self, key: str, conversation: Conversation) -> None:
        """Set the conversation of a key. Does nothing if it is the same as before.

        Raises:
            SessionInUseError: another program has taken the lease of the key.
            StoreError: the store failed.
        """
        if self._known.get(key) != conversation:
            await self._write(key, conversation, self._timeout)

    async def refresh(self, key: str, used: Conversation) -> None:
        """Set the conversation of a key after a use. A key that has a directory keeps it.

        Write it to the store again after some time, because a store deletes what was last written
        too long ago (its ``retention``). If this fails, log it.

        Raises:
            SessionInUseError: the conversation is a new one, and another program has taken the
                lease of the key.
            StoreError: the conversation is a new one, and the store failed.
        """
        known = self._known.get(key)
        if known is not None:
            used = structs.replace(used, cwd=known.cwd)
        if known is None or known.session_id != used.session_id:
            await self.save(key, used)
            return
        used = structs.replace(used, has_schedule=used.has_schedule or known.has_schedule)
        # The clock of another machine may be ahead.
        age = abs(_now() - self._written.get(key, 0.0))
        if used == known and (self._store is None or age < self._refresh_after):
            return
        try:
            await self._write(key, used, min(self._timeout, _LEAVE_TIMEOUT))
        except (SessionInUseError, StoreError) as error:
            log.warning("The conversation of a key could not be written again: %s", error)

    async def undo(self, key: str) -> bool:
        """Remove a conversation that was saved for a first prompt which was not sent.

        Return False and log it if this fails.
        """
        try:
            await self._renew(key, calls := StartCalls(min(self._timeout, _LEAVE_TIMEOUT)))
            await self._remove(key, calls)
        except (SessionInUseError, SessionLoadError) as error:
            log.warning("A key without a conversation could not be removed: %s", error)
            return False
        return True

    async def _write(self, key: str, conversation: Conversation, timeout: float) -> None:
        if self._store is not None:
            now = _now()
            entry = _entry(written=now, **structs.asdict(conversation))
            name, calls = _name(key, conversation.cwd), StartCalls(timeout)
            operation = "acquire"
            try:
                await self._renew(key, calls)
                operation = "append"
                self._tried[key] = conversation
                await self._append(key, name, entry, calls)
            except SessionLoadError as error:
                raise StoreError(type(self._store).__name__, operation, error.reason) from error
            self._written[key] = now
        self._known[key] = conversation

    async def _append(self, key: str, name: SessionKey, entry: Entry, calls: StartCalls) -> None:
        """Append an entry, unless another program has taken the lease of the key.

        Raises:
            SessionInUseError: another program has it.
            SessionLoadError: the store failed.
        """
        ask = partial(calls.ask, key)
        leases = self._leases.get(key)
        assert self._store is not None, "there is a store"
        if leases is None:
            await ask(self._store.append, name, [entry])
            return
        try:
            await leases.append(name, [entry], ask)
        except SessionInUseError:
            raise _in_use(key) from None  # the id of the lease means nothing to the user

    async def _renew(self, key: str, calls: StartCalls) -> None:
        """Renew the lease of a key before a change, so that it is not that of another program.

        Raises:
            SessionInUseError: another program has it, or has changed the conversation of the key.
            SessionLoadError: the store failed.
        """
        leases = self._leases.get(key)
        if leases is not None and key not in self._lost:
            # The error has the id of the lease, which means nothing to the user.
            with contextlib.suppress(SessionInUseError):
                await calls.ask(key, leases.renew)
            if leases.has_lapsed and self._store is not None:
                entries = await calls.ask(key, self._store.load, _name(key))
                found, _ = _last(entries or ())
                if found not in (self._known.get(key), self._tried.get(key)):
                    self._lost.add(key)
        self.check(key)

    async def _remove(self, key: str, calls: StartCalls) -> None:
        """Remove the conversation of a key.

        Raises:
            SessionLoadError: the store failed.
        """
        if self._store is not None:
            try:
                await calls.ask(key, self._store.delete, _name(key))
            except SessionLoadError:  # a store of the user may not have `delete`
                await self._append(key, _name(key), _entry(), calls)
        self._known.pop(key, None)

    async def forget(self, key: str) -> None:
        """Remove the conversation of a key. Its transcript stays.

        Raises:
            SessionLoadError: the store failed.
        """
        await self._remove(key, StartCalls(self._timeout))

    async def take(
        self,
        key: str,
        on_lost: Callable[[SessionInUseError], None] = lambda _: None,
        wait: float = 0.0,
    ) -> None:
        """Take the lease of a key, if the store has leases.

        ``on_lost`` is called if another program takes the lease, because it was not renewed in
        time. Call `release` afterwards, also if this fails or is cancelled. ``wait`` is the seconds
        to wait while another program has the lease.

        Raises:
            SessionInUseError: another program has it.
            SessionLoadError: the store failed.
        """
        if key in self._lost:
            await self.release(key)
        ask = partial(StartCalls(self._timeout).ask, key)
        if key in self._leases:
            if self.may_be_old(key):
                try:
                    await ask(self._leases[key].renew_lapsed)
                except SessionInUseError:
                    raise _in_use(key) from None
            return
        if self._store is None:
            return

        def lose(_: SessionInUseError) -> None:
            self._lost.add(key)
            on_lost(_in_use(key))

        leases = self._leases[key] = Leases(self._store, lose)
        try:
            await leases.take_when_free(_name(key).session_id, self._asking(key), wait)
        except SessionInUseError:
            del self._leases[key]
            raise _in_use(key) from None  # the id of the lease means nothing to the user

    def _asking(self, key: str) -> Callable[..., Awaitable[Any]]:
        """Return a function that calls a method of the store, each time with the whole timeout."""

        async def ask(method: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
            return await StartCalls(self._timeout).ask(key, method, *arguments)

        return ask

    def is_lost(self, key: str) -> bool:
        """Return True if another program has taken the lease of a key."""
        return key in self._lost

    def may_be_old(self, key: str) -> bool:
        """Return True if another program has or may have had the lease of a key.

        An idle process then may not know the last turns of the conversation.
        """
        leases = self._leases.get(key)
        return key in self._lost or (leases is not None and leases.has_lapsed)

    def check(self, key: str) -> None:
        """Raise SessionInUseError if another program has taken the lease."""
        if self.is_lost(key):
            raise _in_use(key)

    async def release(self, key: str) -> None:
        """Give the lease of a key back."""
        leases = self._leases.pop(key, None)
        self._lost.discard(key)
        self._written.pop(key, None)
        self._tried.pop(key, None)
        if self._store is not None:
            # Another program may change it now. And the store has it.
            self._known.pop(key, None)
        if leases is not None:
            await leases.aclose()


def _name(key: str, cwd: str = "") -> SessionKey:
    return SessionKey(str(uuid5(_NAMESPACE, key)), SUBKEY, project_name(cwd) if cwd else "")


def _entry(session_id: str | None = None, **more: object) -> dict[str, object]:
    """Return the entry that sets the conversation of a key. None means that it has none."""
    return {"type": "pool_key", "uuid": str(uuid4()), "session_id": session_id, **more}


def _last(entries: Iterable[Entry]) -> tuple[Conversation | None, float]:
    """Return the conversation that the last valid entry names, and when it was written."""
    found, written = None, 0.0
    for entry in entries:
        session_id, cwd, when = (entry.get(name) for name in ("session_id", "cwd", "written"))
        # The id becomes the name of a file, so nothing but a UUID may come from a store.
        if isinstance(session_id, str) and is_uuid(session_id) and isinstance(cwd, str):
            found = Conversation(session_id, cwd, entry.get("has_schedule") is True)
            written = float(when) if isinstance(when, int | float) else 0.0
        elif session_id is None and entry.get("type") == "pool_key":
            found = None
    return found, written
