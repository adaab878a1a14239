"""The checks for session stores: broken stores fail them, with a text that names the rule."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import run

from bridle.errors import OptionsError
from bridle.sessions import Entry, MemoryStore, SessionKey, StoredSession
from bridle.testing.stores import STORE_CHECKS, check_store


class Reversed(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await super().append(key, list(reversed(entries)))


class Repeating(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        named = [
            {**entry, "uuid": None, "_uuid": entry["uuid"]} if entry.get("uuid") else entry
            for entry in entries
        ]
        await super().append(key, named)

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        found = await super().load(key)
        return found and [
            {**entry, "uuid": entry.pop("_uuid")} if "_uuid" in entry else entry for entry in found
        ]


class OneUuidPerSession(MemoryStore):
    """Skips a uuid that another key of the session holds."""

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        known: set[object] = set()
        for subkey in ("", *await self.subkeys(key.session_id)):
            found = await self.load(SessionKey(key.session_id, subkey))
            known |= {entry.get("uuid") for entry in found or ()} - {None}
        await super().append(key, [one for one in entries if one.get("uuid") not in known])


class DropsEqualEntries(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        known = await self.load(key) or []
        await super().append(key, [one for one in entries if one not in known])


class EmptyIsAList(MemoryStore):
    async def load(self, key: SessionKey) -> Any:
        return await super().load(key) or []


class FloatsOnly(MemoryStore):
    """As a database that stores all numbers as floats."""

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        rounded = json.loads(json.dumps(list(entries)), parse_int=lambda text: int(float(text)))
        await super().append(key, rounded)


class DropsNulCharacters(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await super().append(key, json.loads(json.dumps(list(entries)).replace("\\u0000", "")))


class Truncating(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        short = [
            {
                name: value[:65535] if isinstance(value, str) else value
                for name, value in one.items()
            }
            for one in entries
        ]
        await super().append(key, short)


class OldestFirst(MemoryStore):
    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        return list(reversed(await super().list(project)))


class EveryProject(MemoryStore):
    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        return await super().list()


class Milliseconds(MemoryStore):
    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        return [
            StoredSession(one.session_id, one.project, one.updated_at * 1000)
            for one in await super().list(project)
        ]


class ListsJournals(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await super().append(key, entries)
        if key.subkey:
            await super().append(SessionKey(key.session_id, "", key.project), [{}])


class DoesNotCascade(MemoryStore):
    async def delete(self, key: SessionKey) -> None:
        kept = {
            subkey: await self.load(SessionKey(key.session_id, subkey)) or []
            for subkey in await self.subkeys(key.session_id)
        }
        await super().delete(key)
        if not key.subkey:
            for subkey, entries in kept.items():
                await self.append(SessionKey(key.session_id, subkey, key.project), entries)


class DeletesAll(MemoryStore):
    async def delete(self, key: SessionKey) -> None:
        await super().delete(SessionKey(key.session_id))


class RemembersDeletedUuids(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[str, str, object]] = set()

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        def is_new(entry: Entry) -> bool:
            uuid = entry.get("uuid")
            return uuid is None or (key.session_id, key.subkey, uuid) not in self._seen

        new = [entry for entry in entries if is_new(entry)]
        self._seen |= {(key.session_id, key.subkey, entry.get("uuid")) for entry in new}
        await super().append(key, new)


class ProjectIsIdentity(MemoryStore):
    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        projects = {one.session_id: one.project for one in await self.list()}
        is_other = projects.get(key.session_id, key.project) != key.project
        return None if is_other else await super().load(key)


class SubkeysWithTranscript(MemoryStore):
    async def subkeys(self, session_id: str) -> Sequence[str]:
        return ["", *await super().subkeys(session_id)]


class TornBatches(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        for entry in entries:
            await super().append(key, [entry])
            await asyncio.sleep(0)


class LosesUpdates(MemoryStore):
    """Reads, waits, and writes back."""

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        before = await self.load(key) or []
        await asyncio.sleep(0)
        if entries:
            subkeys = {
                subkey: await self.load(SessionKey(key.session_id, subkey)) or []
                for subkey in ("", *await self.subkeys(key.session_id))
            }
            subkeys[key.subkey] = [*before, *map(dict, entries)]
            await super().delete(SessionKey(key.session_id))
            for subkey, content in subkeys.items():
                await super().append(SessionKey(key.session_id, subkey, key.project), content)


class OneLoop(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        assert asyncio.get_running_loop() is self._loop
        await super().append(key, entries)


class LeasesTwice(MemoryStore):
    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        return True


class LeasesNeverEnd(MemoryStore):
    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        return await super().acquire(session_id, owner, 1e6)


class LeasesCannotBeRenewed(MemoryStore):
    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        return session_id not in self._leases and await super().acquire(session_id, owner, seconds)


class AnyoneReleases(MemoryStore):
    async def release(self, session_id: str, owner: str) -> None:
        self._leases.pop(session_id, None)


class LeasesWithoutLock(MemoryStore):
    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        holder = self._leases.get(session_id, (owner, 0.0))[0]
        await asyncio.sleep(0)
        if holder != owner:
            return await super().acquire(session_id, owner, seconds)
        self._leases.pop(session_id, None)
        return await super().acquire(session_id, owner, seconds)


class SharesEntries(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._loaded: dict[SessionKey, Any] = {}

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        self._loaded.clear()
        await super().append(key, entries)

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        if key not in self._loaded:
            self._loaded[key] = await super().load(key)
        found: list[dict[str, object]] | None = self._loaded[key]
        return found

    async def delete(self, key: SessionKey) -> None:
        self._loaded.clear()
        await super().delete(key)


class StopsInTheMiddle(MemoryStore):
    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        for at in range(0, len(entries), 1):
            await super().append(key, entries[at : at + 1])


class ColonsSeparate(MemoryStore):
    """Joins session id and subkey with a colon."""

    @staticmethod
    def _joined(key: SessionKey) -> SessionKey:
        session_id, _, rest = f"{key.session_id}:{key.subkey}".partition(":")
        return SessionKey(session_id, rest, key.project)

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await super().append(self._joined(key), entries)

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        return await super().load(self._joined(key))


class EndsOverlap(MemoryStore):
    """Returns the lines at the cuts as a whole."""

    async def load_ends(self, key: SessionKey, size: int) -> tuple[bytes, bytes]:
        head, tail = await super().load_ends(key, size)
        return (head, tail) if not tail else await super().load_ends(key, 2 * size)


class PartsBegin(MemoryStore):
    """Counts positions from the part before, not from the first entry."""

    async def load_after(
        self, key: SessionKey, position: int, size: int
    ) -> tuple[Sequence[Entry], int]:
        found, end = await super().load_after(key, position, size)
        return found, end - position


class FailsTheSecondClose(MemoryStore):
    is_closed = False

    async def aclose(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class AppendsForAll(MemoryStore):
    async def append_leased(
        self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
    ) -> bool:
        await self.append(key, entries)
        return True


class DoesNotRenew(MemoryStore):
    async def append_leased(
        self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
    ) -> bool:
        if self._leases.get(key.session_id, ("", 0.0))[0] != owner:
            return False
        await self.append(key, entries)
        return True


class TakesFreeLeases(MemoryStore):
    async def append_leased(
        self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
    ) -> bool:
        if not await self.acquire(key.session_id, owner, seconds):
            return False
        await self.append(key, entries)
        return True


class ChecksTooEarly(MemoryStore):
    async def append_leased(
        self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
    ) -> bool:
        if not await super().append_leased(key, (), owner, seconds):
            return False
        for _ in range(3):
            await asyncio.sleep(0)
        await self.append(key, entries)
        return True


BROKEN: list[tuple[Callable[[], object], str]] = [
    (Reversed, "keeps the order"),
    (Repeating, "stores a uuid once"),
    (OneUuidPerSession, "knows uuids by key"),
    (DropsEqualEntries, "stores entries without a uuid every time"),
    (EmptyIsAList, "has no entries for an unknown key"),
    (FloatsOnly, "keeps every JSON value"),
    (DropsNulCharacters, "keeps every JSON value"),
    (Truncating, "keeps large entries"),
    (OldestFirst, "lists sessions"),
    (EveryProject, "lists sessions"),
    (Milliseconds, "lists sessions"),
    (ListsJournals, "lists only sessions with a transcript"),
    (DoesNotCascade, "deletes a session with its subkeys"),
    (RemembersDeletedUuids, "deletes a session with its subkeys"),
    (DeletesAll, "deletes a subkey"),
    (ProjectIsIdentity, "finds a session from any project"),
    (SubkeysWithTranscript, "separates subkeys"),
    (TornBatches, "takes concurrent appends"),
    (LosesUpdates, "takes concurrent appends"),
    (OneLoop, "works on several event loops"),
    (LeasesTwice, "leases a session to one owner"),
    (LeasesCannotBeRenewed, "leases a session to one owner"),
    (AnyoneReleases, "leases a session to one owner"),
    (LeasesNeverEnd, "ends leases in time"),
    (LeasesWithoutLock, "leases a session once in a race"),
    (AppendsForAll, "appends for the owner of the lease only"),
    (DoesNotRenew, "appends for the owner of the lease only"),
    (TakesFreeLeases, "appends for the owner of the lease only"),
    (ChecksTooEarly, "lets no append follow a lost lease"),
    (EndsOverlap, "loads parts of a list"),
    (PartsBegin, "loads parts of a list"),
    (SharesEntries, "keeps its own copies"),
    (StopsInTheMiddle, "appends all or nothing"),
    (ColonsSeparate, "takes any text as a name"),
]


@pytest.mark.parametrize(("store", "check"), BROKEN)
def test_a_broken_store_fails_the_check_of_the_rule(
    store: Callable[[], object], check: str, set_limits: SetLimits
) -> None:
    set_limits(lease_check=1.0)
    with pytest.raises(AssertionError, match=check):
        run(lambda: check_store(store, only=[check]))


def test_every_check_detects_a_broken_store() -> None:
    assert set(STORE_CHECKS) - {check for _, check in BROKEN} == {"closes twice"}
    with pytest.raises(AssertionError):
        run(lambda: check_store(FailsTheSecondClose, only=["closes twice"]))


def test_all_broken_rules_are_listed() -> None:
    class Broken(Reversed, LeasesTwice):
        pass

    with pytest.raises(AssertionError) as caught:
        run(lambda: check_store(Broken, only=["keeps the order", "leases a session to one owner"]))
    assert "3 1 2 9 0, got [2, 1, 3, 0, 9]" in str(caught.value)
    assert "acquire() must return False if another owner holds the lease" in str(caught.value)


def test_an_error_of_the_store_is_a_failure_of_the_check() -> None:
    class Failing(MemoryStore):
        async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
            raise ConnectionError("gone")

    with pytest.raises(AssertionError, match="the store raised ConnectionError: gone"):
        run(lambda: check_store(Failing, only=["keeps the order"]))


def test_a_factory_may_be_async_and_the_store_is_closed() -> None:
    closed = []

    class Closing(MemoryStore):
        async def aclose(self) -> None:
            closed.append(self)

    async def make() -> Closing:
        return Closing()

    run(lambda: check_store(make, only=["keeps the order"]))
    assert len(closed) == 1


@pytest.mark.parametrize(
    "check", ["separates subkeys", "deletes a session with its subkeys", "deletes a subkey"]
)
def test_a_store_needs_no_subkeys(check: str) -> None:
    names = ("append", "load", "list", "delete")

    def four_methods() -> object:
        inner = MemoryStore()
        return type("FourMethods", (), {name: getattr(inner, name) for name in names})()

    run(lambda: check_store(four_methods, only=[check]))


def test_the_checks_leave_nothing_in_the_store() -> None:
    store = MemoryStore()
    run(lambda: check_store(lambda: store))
    assert run(store.list) == []
    assert repr(store) == "MemoryStore(<0 sessions>)"


def test_an_unknown_check_is_rejected() -> None:
    with pytest.raises(OptionsError, match="no such check"):
        run(lambda: check_store(MemoryStore, only=["no such check"]))


def test_an_object_that_is_not_a_store_is_rejected() -> None:
    with pytest.raises(OptionsError, match="append"):
        run(lambda: check_store(object))
