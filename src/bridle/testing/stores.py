"""Check that a session store keeps the contract of `bridle.sessions.SessionStore`.

With pytest::

    @pytest.mark.parametrize("check", STORE_CHECKS)
    def test_my_store(check: str) -> None:
        asyncio.run(check_store(lambda: MyStore("…"), only=[check]))
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from uuid import uuid4

from bridle._spi import StoreMethods
from bridle.errors import OptionsError
from bridle.sessions import Entry, SessionKey, SubkeyStore, as_store
from bridle.testing._store_checks.lease_checks import (
    check_append,
    check_append_race,
    check_expiry,
    check_lease,
    check_race,
)
from bridle.testing._store_checks.store_subject import Broken, Subject, entries, expect, sub

__all__ = ["STORE_CHECKS", "check_store"]

_TIMEOUT = 120.0
"""Seconds after which a check fails."""


async def check_store(
    open_store: Callable[[], object], *, only: Iterable[str] | None = None
) -> None:
    """Check a session store, and raise an AssertionError that lists every rule it breaks.

    The checks use session ids of their own and delete them afterwards, so the store may hold
    other sessions. A store with ``acquire`` and ``release`` is also checked as a `LeasingStore`,
    one with ``append_leased`` as well as a `FencingStore`, and one with ``subkeys`` as a
    `SubkeyStore`.

    Args:
        open_store: Returns the store, or an awaitable of it. It is called once for each check.
            Objects written for the official SDK's protocol are accepted.
        only: The names of the checks to run, from `STORE_CHECKS`. None runs all.
    """
    names = STORE_CHECKS if only is None else tuple(only)
    unknown = sorted(set(names) - set(STORE_CHECKS))
    if unknown:
        raise OptionsError("only", f"names unknown checks: {', '.join(unknown)}")
    failures: list[str] = []
    for name in names:
        opened = open_store()
        store = as_store(await opened if inspect.isawaitable(opened) else opened)
        subject = Subject(store)
        try:
            async with asyncio.timeout(_TIMEOUT):
                await _CHECKS[name](subject)
                await subject.clean()
        except Broken as error:
            failures.append(f"{name}: {error}")
        except Exception as error:
            failures.append(f"{name}: the store raised {type(error).__name__}: {error}")
        finally:
            close = getattr(store, "aclose", None)
            if close is not None:
                await close()
    if failures:
        raise AssertionError("The store breaks its contract.\n" + "\n".join(failures))


# ---------------------------------------------------------------- appending and loading


async def _order(subject: Subject) -> None:
    key = subject.key()
    await subject.append(key, entries(3, 1, 2))
    await subject.append(key, entries(9, 0))
    found = await subject.numbers(key)
    expect(
        found == [3, 1, 2, 9, 0],
        f"load() must return the entries in the order of appending, 3 1 2 9 0, got {found}.",
    )
    many = subject.key()
    await subject.append(many, entries(*range(2000)))
    found = await subject.numbers(many)
    expect(found == list(range(2000)), "load() must return 2000 entries of one append() in order.")


async def _unknown(subject: Subject) -> None:
    key = subject.key()
    found = await subject.store.load(key)
    expect(found is None, f"load() of a key without entries must return None, got {found!r}.")
    await subject.append(key, [])
    found = await subject.store.load(key)
    expect(found is None, f"append() of no entries must store nothing, load() got {found!r}.")
    listed = await subject.listed(None)
    expect(not listed, "list() must not contain a session without entries.")
    expect(
        list(await StoreMethods(subject.store).subkeys(key.session_id)) == [],
        "subkeys() of an unknown session must be empty.",
    )
    await subject.store.delete(key)


async def _idempotent(subject: Subject) -> None:
    key = subject.key()
    await subject.append(key, entries(1, 2, 2))
    found = await subject.numbers(key)
    expect(found == [1, 2], f"a uuid that is twice in one append() must be stored once: {found}.")
    await subject.append(key, entries(1, 2))
    found = await subject.numbers(key)
    expect(found == [1, 2], f"append() of known uuids must change nothing, got {found}.")
    await subject.append(key, entries(2, 3, 1, 4))
    found = await subject.numbers(key)
    expect(
        found == [1, 2, 3, 4],
        f"append() must skip known uuids and keep the others: expected 1 2 3 4, got {found}.",
    )


async def _without_uuid(subject: Subject) -> None:
    key = subject.key()
    entry = {"type": "tag", "tag": "x"}
    await subject.append(key, [entry, entry])
    await subject.append(key, [entry, {"uuid": None}])
    found = await subject.store.load(key)
    expect(
        found is not None and len(found) == 4,
        f"append() must store entries without a uuid every time: expected 4, got "
        f"{len(found or ())}.",
    )


async def _uuid_by_key(subject: Subject) -> None:
    key, other = subject.key(), subject.key()
    for one in (key, sub(key, "journal"), sub(key, "subagents/agent-1"), other):
        await subject.append(one, entries(1))
        found = await subject.numbers(one)
        expect(
            found == [1],
            f"a uuid must be known per key, not per session or store: subkey {one.subkey!r} of "
            f"another key must store it too, got {found}.",
        )


_VALUES: dict[str, Any] = {
    "integers": [0, -1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**40],
    "floats": [0.1, -1.5e300, 5e-324, 1.0, 3.141592653589793],
    "constants": [None, True, False],
    "empty": {"string": "", "list": [], "object": {}},
    "text in several scripts": "naïve Ωμέγα 日本語 עברית 👩‍👩‍👧 \u2028\u2029 e\u0301",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x85",
    "a NUL character": "a\x00b",
    "a lone surrogate": "a\ud800b\udfff",
    "quotes and backslashes": "'\"\\ \\u0000 %s %(a)s {0} $1 ?",
    "nesting": [[[[[[[[[[{"a": [{}]}]]]]]]]]]],
    "odd names": {"": 1, "\x00": 2, "a.b": 3, "$set": 4, "日": 5},
}


async def _json(subject: Subject) -> None:
    for what, value in _VALUES.items():
        key = subject.key()
        entry = {"uuid": "1", "value": value}
        await subject.append(key, [entry])
        found = await subject.store.load(key)
        expect(
            found is not None and _equal(list(found), [entry]),
            f"load() must return every JSON value as it was appended. Changed: {what}.",
        )


def _equal(one: object, other: object) -> bool:
    """Compare deeply, also the types: 1, 1.0 and True are different in JSON."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return all(_equal(left[name], right[name]) for name in left)
    if isinstance(one, list):
        return all(map(_equal, cast("list[object]", one), cast("list[object]", other)))
    return True


async def _large(subject: Subject) -> None:
    key = subject.key()
    entry = {"uuid": "1", "text": "0123456789abcdef" * 655_360}
    await subject.append(key, [entry, {"uuid": "2"}])
    found = await subject.store.load(key)
    expect(
        found is not None and list(found) == [entry, {"uuid": "2"}],
        "an entry of 10 MiB must be stored and loaded unchanged.",
    )


async def _ranges(subject: Subject) -> None:
    store = StoreMethods(subject.store).ranges
    if store is None:
        return
    key = subject.key()
    expect(await store.load_ends(key, 10) == (b"", b""), "load_ends() of no entries must be empty.")
    await subject.append(key, entries(*range(10)))
    whole, rest = await store.load_ends(key, 10_000)
    found = [json.loads(line)["n"] for line in whole.splitlines()]
    expect(
        (found, rest) == (list(range(10)), b""),
        "load_ends() must return a short list as a whole, one entry per line, in the first part.",
    )
    await subject.append(key, [{"uuid": "x", "text": "x" * 1000}, *entries(10)])
    whole, _ = await store.load_ends(key, 10_000)
    for size in (5, len(whole) // 2 - 1):
        ends = await store.load_ends(key, size)
        expect(
            ends == (whole[:size], whole[-size:]),
            f"load_ends() of a long list must return its first and its last {size} bytes.",
        )
    loaded = list(await subject.store.load(key) or ())
    end = 0
    for size in (1, 500, 100_000):
        parts: list[Entry] = []
        end, before = 0, -1
        while end != before:
            before = end
            part, end = await store.load_after(key, end, size)
            parts += part
        expect(parts == loaded, "load_after() must return all entries in order, part by part.")
    part, _ = await store.load_after(key, 0, 1)
    expect(len(part) < len(loaded), "load_after() must stop after `size` bytes.")
    await subject.append(key, entries(11))
    part, _ = await store.load_after(key, end, 1)
    expect(
        [one.get("n") for one in part] == [11],
        "load_after() must return what was appended after a position.",
    )


async def _copies(subject: Subject) -> None:
    key = subject.key()
    given: dict[str, Any] = {"uuid": "1", "list": [1]}
    await subject.append(key, [given])
    given["list"].append(2)
    first: Any = await subject.store.load(key) or [{"list": None}]
    expect(
        first[0]["list"] == [1],
        "a change of an entry after append() must not change the stored entry.",
    )
    first[0]["list"].append(3)
    second: Any = await subject.store.load(key) or [{"list": None}]
    expect(
        second[0]["list"] == [1],
        "a change of a loaded entry must not change the stored entry.",
    )


async def _atomic(subject: Subject) -> None:
    key = subject.key()
    bad: list[Entry] = [*entries(1), {"uuid": "bad", "value": object()}, *entries(2)]
    try:
        await subject.append(key, bad)
    except Exception:
        found = await subject.numbers(key)
        expect(found is None, f"an append() that fails must store nothing, got {found}.")


async def _project_is_not_identity(subject: Subject) -> None:
    key = subject.key(project="bridle-check-one")
    await subject.append(key, entries(1))
    for project in ("bridle-check-two", ""):
        same = SessionKey(key.session_id, "", project)
        found = await subject.numbers(same)
        expect(
            found == [1],
            f"a session must be found from any project: load() with project {project!r} got "
            f"{found}.",
        )
    await subject.append(SessionKey(key.session_id, "", "bridle-check-two"), entries(1, 2))
    found = await subject.numbers(key)
    expect(
        found == [1, 2],
        f"append() with another project must continue the same session: expected 1 2, got {found}.",
    )


async def _odd_names(subject: Subject) -> None:
    base = subject.key(name=":a").session_id
    keys = [
        SessionKey(base, "b", "bridle-check"),
        SessionKey(base.removesuffix(":a"), "a:b", "bridle-check"),
        subject.key(name="Straße-日本"),
        subject.key(name="%s'\"\\%41"),
        subject.key(name="A"),
    ]
    keys.append(SessionKey(keys[-1].session_id.removesuffix("A") + "a", "", "bridle-check"))
    for number, key in enumerate(keys):
        await subject.append(key, entries(number))
    for number, key in enumerate(keys):
        found = await subject.numbers(key)
        expect(
            found == [number],
            f"session ids and subkeys are arbitrary text: {key.session_id!r} with subkey "
            f"{key.subkey!r} expected [{number}], got {found}.",
        )
    for key in keys:
        await subject.store.delete(SessionKey(key.session_id, "", "bridle-check"))


# ---------------------------------------------------------------- subkeys, lists, deleting


async def _subkeys(subject: Subject) -> None:
    key = subject.key()
    names = ["subagents/agent-b", "journal", "subagents/agent-a"]
    await subject.append(key, entries(0))
    for number, name in enumerate(names, 1):
        await subject.append(sub(key, name), entries(number))
    for number, name in enumerate(["", *names]):
        found = await subject.numbers(sub(key, name))
        expect(
            found == [number],
            f"each subkey must have its own entries: {name!r} expected [{number}], got {found}.",
        )
    if not isinstance(subject.store, SubkeyStore):
        return
    found = list(await subject.store.subkeys(key.session_id))
    expect(
        found == sorted(names),
        f"subkeys() must return the subkeys sorted and without '': expected {sorted(names)}, "
        f"got {found}.",
    )


async def _list(subject: Subject) -> None:
    one, two = f"bridle-check-{uuid4()}", f"bridle-check-{uuid4()}"
    first, second, third = (subject.key(project=project) for project in (one, two, one))
    for key in (first, second, third):
        await subject.append(key, entries(1))
        await asyncio.sleep(0.01)  # a store may count in milliseconds
    ids = [key.session_id for key in (third, second, first)]
    found = await subject.listed(None)
    expect(found == ids, "list() must return all sessions, the last updated first.")
    found = [session.session_id for session in await subject.store.list(one)]
    expect(
        found == [third.session_id, first.session_id],
        "list(project) must return the sessions of this project only, the last updated first.",
    )
    await subject.append(first, entries(2))
    found = [session.session_id for session in await subject.store.list(one)]
    expect(
        found == [first.session_id, third.session_id],
        "append() must move a session to the front of list().",
    )
    sessions = await subject.store.list(one)
    expect(
        all(session.project == one for session in sessions),
        "list() must return the project of each session.",
    )
    expect(
        all(abs(session.updated_at - time.time()) < 3600 for session in sessions),
        "StoredSession.updated_at must be the time of the last append in seconds since the epoch.",
    )
    expect(list(await subject.store.list("bridle-check-none")) == [], "list() of an unknown "
            "project must be empty.")  # fmt: skip


async def _list_needs_a_transcript(subject: Subject) -> None:
    project = f"bridle-check-{uuid4()}"
    key = subject.key("journal", project=project)
    await subject.append(key, entries(1))
    expect(
        not list(await subject.store.list(project)),
        "list() must not contain a session that has only subkeys.",
    )
    await subject.append(sub(key, ""), entries(1))
    found = [session.session_id for session in await subject.store.list(project)]
    expect(found == [key.session_id], "list() must contain a session once it has a transcript.")


async def _delete(subject: Subject) -> None:
    key, other = subject.key(), subject.key()
    for one in (key, sub(key, "journal"), sub(key, "subagents/agent-1"), other):
        await subject.append(one, entries(1))
    await subject.store.delete(key)
    for subkey in ("", "journal", "subagents/agent-1"):
        found = await subject.numbers(sub(key, subkey))
        expect(
            found is None,
            f"delete() of a session must delete its subkeys: {subkey!r} still has {found}.",
        )
    found = list(await StoreMethods(subject.store).subkeys(key.session_id))
    expect(not found, f"subkeys() of a deleted session must be empty, got {found}.")
    listed = await subject.listed(None)
    expect(key.session_id not in listed, "list() must not contain a deleted session.")
    expect(
        listed == [other.session_id] and await subject.numbers(other) == [1],
        "delete() must not touch other sessions.",
    )
    await subject.append(key, entries(1, 2))
    found = await subject.numbers(key)
    expect(found == [1, 2], f"a deleted session can be stored again, uuids included: {found}.")


async def _delete_subkey(subject: Subject) -> None:
    key = subject.key()
    for subkey in ("", "journal", "journal-2"):
        await subject.append(sub(key, subkey), entries(1))
    await subject.store.delete(sub(key, "journal"))
    found = await subject.numbers(sub(key, "journal"))
    expect(found is None, f"delete() of a subkey must delete its entries, load() got {found}.")
    expect(
        await subject.numbers(key) == [1] and await subject.numbers(sub(key, "journal-2")) == [1],
        "delete() of a subkey must keep the transcript and the other subkeys.",
    )
    await subject.append(sub(key, "journal"), entries(1))
    found = await subject.numbers(sub(key, "journal"))
    expect(found == [1], "a deleted subkey can be stored again, uuids included.")


# ---------------------------------------------------------------- many at once


async def _concurrent(subject: Subject) -> None:
    key = subject.key()
    writers, batches, size = 8, 8, 5

    async def write(writer: int) -> None:
        for batch in range(batches):
            first = writer * 1000 + batch * size
            await subject.append(key, entries(*range(first, first + size)))

    await asyncio.gather(*map(write, range(writers)))
    _check_batches(await subject.numbers(key) or [], writers, batches, size)


async def _loops(subject: Subject) -> None:
    key = subject.key()
    writers, batches, size = 3, 5, 5
    problems: list[BaseException] = []

    async def write(writer: int) -> None:
        for batch in range(batches):
            first = writer * 1000 + batch * size
            await subject.append(key, entries(*range(first, first + size)))

    def run(writer: int) -> None:
        try:
            asyncio.run(write(writer))
        except BaseException as error:
            problems.append(error)

    threads = [
        threading.Thread(target=run, args=(writer,), daemon=True) for writer in range(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, _TIMEOUT)
    expect(
        not problems,
        f"append() must work from several event loops at once, but raised {problems[:1]}.",
    )
    _check_batches(await subject.numbers(key) or [], writers, batches, size)


def _check_batches(found: list[object], writers: int, batches: int, size: int) -> None:
    numbers = [number for number in found if isinstance(number, int)]
    expected = writers * batches * size
    expect(
        len(numbers) == len(set(numbers)) == expected,
        f"concurrent append() calls must lose and repeat nothing: {expected} entries expected, "
        f"got {len(numbers)}, {len(set(numbers))} of them different.",
    )
    for at in range(0, expected, size):
        batch = numbers[at : at + size]
        expect(
            batch == list(range(batch[0], batch[0] + size)),
            "the entries of one append() must stay together and in order.",
        )
    for writer in range(writers):
        own = [number for number in numbers if number // 1000 == writer]
        expect(own == sorted(own), "append() calls that follow each other must stay in order.")


async def _close(subject: Subject) -> None:
    close = getattr(subject.store, "aclose", None)
    if close is not None:
        await subject.append(subject.key(), entries(1))
        await close()
        await close()


_CHECKS: dict[str, Callable[[Subject], Awaitable[None]]] = {
    "keeps the order": _order,
    "has no entries for an unknown key": _unknown,
    "stores a uuid once": _idempotent,
    "stores entries without a uuid every time": _without_uuid,
    "knows uuids by key": _uuid_by_key,
    "keeps every JSON value": _json,
    "keeps large entries": _large,
    "loads parts of a list": _ranges,
    "keeps its own copies": _copies,
    "appends all or nothing": _atomic,
    "finds a session from any project": _project_is_not_identity,
    "takes any text as a name": _odd_names,
    "separates subkeys": _subkeys,
    "lists sessions": _list,
    "lists only sessions with a transcript": _list_needs_a_transcript,
    "deletes a session with its subkeys": _delete,
    "deletes a subkey": _delete_subkey,
    "takes concurrent appends": _concurrent,
    "works on several event loops": _loops,
    "leases a session to one owner": check_lease,
    "ends leases in time": check_expiry,
    "leases a session once in a race": check_race,
    "appends for the owner of the lease only": check_append,
    "lets no append follow a lost lease": check_append_race,
    "closes twice": _close,
}

STORE_CHECKS: tuple[str, ...] = tuple(_CHECKS)
"""The names of the checks."""
