"""Check the leases of a session store. See `bridle.testing.stores`."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from bridle._spi import StoreMethods
from bridle.sessions import LeasingStore, SessionKey
from bridle.testing._store_checks.store_subject import Broken, Subject, entries, expect

_LEASE_LIMIT = 10.0
"""Seconds within which a lease of half a second must end."""


def _leasing(subject: Subject) -> LeasingStore | None:
    return subject.store if isinstance(subject.store, LeasingStore) else None


async def check_lease(subject: Subject) -> None:
    store = _leasing(subject)
    if store is None:
        return
    one, two = subject.key().session_id, subject.key().session_id
    expect(await store.acquire(one, "a", 60), "acquire() of a free session must return True.")
    expect(not await store.acquire(one, "b", 60), "acquire() must return False if another owner "
            "holds the lease.")  # fmt: skip
    expect(await store.acquire(one, "a", 60), "acquire() by the owner must renew the lease.")
    expect(await store.acquire(two, "b", 60), "the lease of one session must not lock another.")
    await store.release(one, "b")
    expect(not await store.acquire(one, "b", 60), "release() by another owner must do nothing.")
    await store.release(one, "a")
    expect(await store.acquire(one, "b", 60), "acquire() after release() must return True.")
    expect(not await store.acquire(one, "a", 60), "the new owner must hold the lease alone.")
    await store.release(one, "b")
    await store.release(one, "b")
    await store.release(two, "b")


async def check_expiry(subject: Subject) -> None:
    store = _leasing(subject)
    if store is None:
        return
    session_id = subject.key().session_id
    began = time.monotonic()
    await store.acquire(session_id, "a", 0.5)
    is_taken = await store.acquire(session_id, "b", 60)
    if time.monotonic() - began < 0.4:
        expect(not is_taken, "a lease must hold until its time is over.")
    while not is_taken and time.monotonic() - began < _LEASE_LIMIT:
        await asyncio.sleep(0.05)
        is_taken = await store.acquire(session_id, "b", 60)
    expect(is_taken, f"a lease of 0.5 s must be free within {_LEASE_LIMIT:g} s.")
    expect(not await store.acquire(session_id, "a", 60), "an expired lease has a new owner.")
    await store.release(session_id, "b")

    renewed = subject.key().session_id
    await store.acquire(renewed, "a", 0.2)
    await store.acquire(renewed, "a", 60)
    await asyncio.sleep(0.4)
    expect(not await store.acquire(renewed, "b", 60), "renewing a lease must extend its time.")
    await store.release(renewed, "a")


async def check_race(subject: Subject) -> None:
    store = _leasing(subject)
    if store is None:
        return
    session_id = subject.key().session_id
    owners = [f"owner-{number}" for number in range(16)]
    taken = await asyncio.gather(*(store.acquire(session_id, owner, 60) for owner in owners))
    expect(sum(taken) == 1, f"one of 16 owners must get the lease, but {sum(taken)} got it.")
    await store.release(session_id, owners[taken.index(True)])


async def check_append(subject: Subject) -> None:
    store = StoreMethods(subject.store).fencing
    if store is None:
        return
    leases = cast("LeasingStore", store)
    key = subject.key()
    session_id = key.session_id

    async def append(owner: str, numbers: list[int], rule: str, *, is_allowed: bool) -> None:
        before = await subject.numbers(key)
        found = await store.append_leased(key, entries(*numbers), owner, 60)
        expect(found is is_allowed, f"append_leased() must return {is_allowed} {rule}.")
        changed = await subject.numbers(key)
        expected = [*(before or []), *numbers] or None if is_allowed else before
        expect(
            changed == expected,
            f"append_leased() {rule} must leave {expected}, load() got {changed}.",
        )

    await append("a", [1], "if no owner has the lease", is_allowed=False)
    await leases.acquire(session_id, "a", 60)
    await append("a", [1, 2], "if the owner has the lease", is_allowed=True)
    await append("b", [3], "if another owner has the lease", is_allowed=False)
    await append("a", [], "if the owner has the lease, and there are no entries", is_allowed=True)
    await store.append_leased(key, entries(2, 4), "a", 60)
    found = await subject.numbers(key)
    expect(found == [1, 2, 4], f"append_leased() must skip known uuids, got {found}.")
    await leases.release(session_id, "a")
    await append("a", [5], "if the owner has given the lease back", is_allowed=False)
    expect(
        await leases.acquire(session_id, "b", 60),
        "append_leased() must not take a lease that is free.",
    )
    await append("a", [6], "if the owner had the lease before another one", is_allowed=False)
    await leases.release(session_id, "b")
    await append("a", [7], "if another owner had the lease since", is_allowed=False)

    renewed = subject.key()
    for _ in range(5):  # the machine may be slow
        await leases.acquire(renewed.session_id, "a", 0.5)
        if await store.append_leased(renewed, entries(1), "a", 60):
            break
    else:
        raise Broken("append_leased() must return True until the lease expires.")
    await asyncio.sleep(0.7)
    expect(
        not await leases.acquire(renewed.session_id, "b", 60),
        "append_leased() must renew the lease for the given time.",
    )
    await leases.release(renewed.session_id, "a")


async def check_append_race(subject: Subject) -> None:
    store = StoreMethods(subject.store).fencing
    if store is None:
        return
    leases = cast("LeasingStore", store)
    for _ in range(10):
        key = subject.key()
        await leases.acquire(key.session_id, "a", 60)
        taken = asyncio.Event()

        async def append(number: int, key: SessionKey = key, taken: Any = taken) -> None:
            was_taken = taken.is_set()
            is_appended = await store.append_leased(key, entries(number), "a", 60)
            expect(
                not (was_taken and is_appended),
                "append_leased() must not append after another owner took the lease.",
            )

        async def take(key: SessionKey = key, taken: Any = taken) -> list[object]:
            await leases.release(key.session_id, "a")
            await leases.acquire(key.session_id, "b", 60)
            taken.set()
            return await subject.numbers(key) or []

        *_, before = await asyncio.gather(*map(append, range(8)), take())
        found = await subject.numbers(key) or []
        expect(
            found == before,
            f"append_leased() must append before another owner has the lease or not at all: "
            f"{before} when it had, {found} now.",
        )
        await leases.release(key.session_id, "b")
