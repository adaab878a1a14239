"""The session stores: what all of them promise, on real servers."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import InMemorySessionStore
from tests.support.processes import LIMIT, run
from tests.support.servers import PASSWORD, PostgresServer, RedisServer
from tests.support.stores import (
    DATABASES,
    KINDS,
    MemoryPlace,
    Place,
    PostgresPlace,
    RedisPlace,
    SqlitePlace,
    open_place,
)

from bridle.errors import OptionsError, StoreError
from bridle.sessions import (
    LeasingStore,
    MemoryStore,
    PostgresStore,
    RedisStore,
    SessionKey,
    SessionStore,
    SqliteStore,
)
from bridle.sessions._stores.accept import ranges_of
from bridle.sessions._stores.locations import class_and_location
from bridle.testing.stores import STORE_CHECKS, check_store

KEY = SessionKey("session-1", "", "project-1")
SECRET = "my-secret-prompt"


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return open_place(request.param, request, tmp_path)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return open_place(request.param, request, tmp_path)


@pytest.fixture(params=("postgres", "redis"))
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> PostgresPlace | RedisPlace:
    found = open_place(request.param, request, tmp_path)
    assert isinstance(found, PostgresPlace | RedisPlace)
    return found


def entries(*numbers: int) -> list[dict[str, object]]:
    return [{"uuid": f"uuid-{number}", "n": number} for number in numbers]


async def numbers(store: SessionStore, key: SessionKey = KEY) -> list[object]:
    return [entry.get("n") for entry in await store.load(key) or ()]


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize("check", STORE_CHECKS)
def test_every_store_keeps_the_contract(place: Place, check: str) -> None:
    run(lambda: check_store(place.open, only=[check]))


@pytest.mark.parametrize("check", STORE_CHECKS)
def test_a_store_of_the_official_sdk_keeps_the_contract(check: str) -> None:
    run(lambda: check_store(InMemorySessionStore, only=[check]))


def test_every_store_is_a_leasing_store(place: Place) -> None:
    store = place.open()
    assert isinstance(store, SessionStore)
    assert isinstance(store, LeasingStore)


async def test_every_store_loads_parts_of_long_lists(place: Place) -> None:
    store = place.open()
    assert ranges_of(store) is store
    await store.append(KEY, entries(*range(1300)))
    lines = [json.dumps(one, separators=(",", ":")).encode() for one in entries(*range(1300))]
    whole = b"\n".join(lines)
    assert await store.load_ends(KEY, 1 << 16) == (whole, b"")
    assert await store.load_ends(KEY, 15_000) == (whole[:15_000], whole[-15_000:])
    found: list[Any] = []
    position = 0
    while (part := await store.load_after(KEY, position, 30_000))[0]:
        position = part[1]
        assert 0 < len(part[0]) < 1300
        found += part[0]
    assert found == entries(*range(1300))
    await store.append(KEY, [{"uuid": "long", "text": "x" * 1_000_000}])
    head, tail = await store.load_ends(KEY, 100)
    assert (head, tail) == (whole[:100], b"x" * 98 + b'"}')
    await store.aclose()


async def test_names_and_uuids_may_be_any_text(place: Place) -> None:
    """Also texts that databases reject, or that are too long for an index."""
    odd = "a\x00b\ud800c:/%日" + "x" * 1500
    store = place.open()
    key = SessionKey(odd[:300], f"subagents/{odd[:200]}", odd[:300])
    main = SessionKey(odd[:300], "", odd[:300])
    await store.append(key, [{"uuid": odd, "n": 1}, {"uuid": odd + "y", "n": 2}])
    await store.append(key, [{"uuid": odd, "n": 3}])
    await store.append(main, entries(1))
    assert await numbers(store, key) == [1, 2]
    assert list(await store.subkeys(key.session_id)) == [key.subkey]
    found = await store.list(key.project)
    assert [(one.session_id, one.project) for one in found] == [(key.session_id, key.project)]
    assert await store.acquire(key.session_id, odd, 5)
    assert not await store.acquire(key.session_id, odd + "y", 5)
    await store.aclose()


async def test_the_project_is_the_first_one_that_is_named(place: Place) -> None:
    store = place.open()
    await store.append(SessionKey("s", "journal"), entries(1))
    await store.append(SessionKey("s", "", "first"), entries(2))
    await store.append(SessionKey("s", "", "second"), entries(3))
    assert [one.project for one in await store.list()] == ["first"]
    assert not await store.list("second")
    await store.aclose()


async def test_repeated_entries_do_not_make_a_session_newer(place: Place) -> None:
    store = place.open()
    for name in ("old", "new"):
        await store.append(SessionKey(name), entries(1))
    await store.append(SessionKey("old"), entries(1))
    assert [one.session_id for one in await store.list()] == ["new", "old"]
    await store.aclose()


# ---------------------------------------------------------------- several processes

WRITER = """
import asyncio, json, sys
from bridle import sessions
kind, arguments, writer = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
key = sessions.SessionKey("session-1", "", "project-1")
async def main():
    store = getattr(sessions, kind)(**arguments)
    print("ready", flush=True)
    sys.stdin.readline()
    for batch in range(10):
        first = writer * 1000 + batch * 5
        await store.append(key, [{"uuid": str(n), "n": n} for n in range(first, first + 5)])
        # Every process appends the same entry: one of them wins.
        await store.append(key, [{"uuid": f"shared-{batch}", "n": -1 - batch}])
    print(await store.acquire("session-1", f"owner-{writer}", 60), flush=True)
    await store.aclose()
asyncio.run(main())
"""


@pytest.mark.longer(after=2)
def test_processes_append_and_lease_at_the_same_time(database: Place) -> None:
    """They also create the tables at the same time."""
    kind, arguments = database.arguments
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, kind, json.dumps(arguments), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        said = []
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        for writer in writers:
            out, err = writer.communicate(timeout=120)
            assert (writer.returncode, err) == (0, "")
            said.append(out.strip())
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
                writer.communicate()
    assert sorted(said) == ["False", "False", "True"]

    async def load() -> list[object]:
        store = database.open()
        found = await numbers(store)
        await store.aclose()
        return found

    found = [number for number in run(load) if isinstance(number, int)]
    shared = [number for number in found if number < 0]
    assert shared == [-1 - batch for batch in range(10)]
    own = [number for number in found if number >= 0]
    assert sorted(own) == [w * 1000 + n for w in range(3) for n in range(50)]
    for number in range(3):
        mine = [one for one in own if one // 1000 == number]
        assert mine == sorted(mine)
    without_shared = iter(found)
    for number in without_shared:
        if number >= 0:
            batch = [number, *(next(without_shared) for _ in range(4))]
            assert batch == list(range(number, number + 5)), "a batch was torn apart"


async def test_stores_that_open_a_new_database_at_once_create_it_once(database: Place) -> None:
    stores = [database.open() for _ in range(8)]
    await asyncio.gather(
        *(store.append(KEY, entries(number)) for number, store in enumerate(stores))
    )
    assert sorted(map(str, await numbers(stores[0]))) == list("01234567")
    for store in stores:
        await store.aclose()


FORKED = """
import asyncio, json, os, sys
from bridle import sessions
kind, arguments = sys.argv[1], json.loads(sys.argv[2])
key = sessions.SessionKey("session-1")
store = getattr(sessions, kind)(**arguments)
asyncio.run(store.append(key, [{"n": 1}]))
child = os.fork()
asyncio.run(store.append(key, [{"n": 2}]))
if child == 0:
    asyncio.run(store.aclose())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
asyncio.run(store.append(key, [{"n": 3}]))
print([entry["n"] for entry in asyncio.run(store.load(key))])
asyncio.run(store.aclose())
"""


def test_a_forked_child_can_name_a_store_although_another_thread_did() -> None:
    program = """
import os, signal
from bridle.sessions._stores import locations

class Store: pass

with locations._lock:  # as if another thread of the parent held it
    child = os.fork()
    if not child:
        signal.alarm(10)
        locations.class_and_location(Store())
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_name_of_a_store_in_spool_files_does_not_follow_its_module(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    name = class_and_location(store, "here")
    assert name == "bridle._stores.sqlite.SqliteStore here"


def test_a_forked_child_uses_connections_of_its_own(database: Place) -> None:
    kind, arguments = database.arguments
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED),
            *(kind, json.dumps(arguments)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[1, 2, 2, 3]\n", "")


# ---------------------------------------------------------------- servers that fail


async def test_a_restarted_server_is_used_again(remote: PostgresPlace | RedisPlace) -> None:
    store = remote.open()
    await asyncio.gather(*(store.append(KEY, [{"n": 1}]) for _ in range(8)))
    remote.server.stop()
    try:
        with pytest.raises(StoreError) as caught:
            await store.append(KEY, [{"n": SECRET}])
    finally:
        remote.server.start()
    assert_silent(caught.value)
    # Each of the connections from before is gone.
    await asyncio.gather(*(store.append(KEY, [{"n": 2}]) for _ in range(8)))
    found = await numbers(store)
    assert found == [1] * 8 * isinstance(remote, PostgresPlace) + [2] * 8
    await store.aclose()


async def test_a_restart_between_two_operations_is_not_noticed(
    remote: PostgresPlace | RedisPlace,
) -> None:
    store = remote.open()
    await asyncio.gather(*(store.append(KEY, [{"n": 1}]) for _ in range(8)))
    remote.server.stop()
    remote.server.start()
    await asyncio.gather(*(store.append(KEY, [{"n": 2}]) for _ in range(8)))
    assert (await numbers(store))[-8:] == [2] * 8
    await store.aclose()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to find the processes")
async def test_a_server_that_hangs_fails_the_operation_and_not_the_loop(
    remote: PostgresPlace | RedisPlace,
) -> None:
    store = remote.open(timeout=1.0)
    await store.append(KEY, entries(1))
    remote.server.pause()
    try:
        with pytest.raises(StoreError, match="within 1 s") as caught:
            await store.append(KEY, [{"uuid": "2", "n": SECRET}])
        assert_silent(caught.value)
    finally:
        remote.server.resume()
    await store.append(KEY, entries(3))
    assert (await numbers(store))[-1] == 3
    await store.aclose()


async def test_a_cancelled_operation_leaves_no_response_for_the_next_one(
    remote: PostgresPlace | RedisPlace,
) -> None:
    store = remote.open()
    other = SessionKey("session-2")
    await store.append(KEY, [{"n": "x" * 1_000_000}])
    await store.append(other, entries(2))
    for _ in range(20):
        loads = [asyncio.create_task(store.load(KEY)) for _ in range(4)]
        await asyncio.sleep(0)
        for load in loads:
            load.cancel()
        assert await numbers(store, other) == [2]
        await asyncio.gather(*loads, return_exceptions=True)
    await store.aclose()


async def test_a_locked_file_delays_the_operation_and_not_the_loop(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "sessions.db"
    store = SqliteStore(path, timeout=0.1)
    await store.append(KEY, entries(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await store.append(KEY, entries(2))
    await store.aclose()
    store = SqliteStore(path, timeout=LIMIT)
    assert await numbers(store) == [1]
    waiting = asyncio.create_task(store.append(KEY, entries(2)))
    await asyncio.sleep(0)  # an operation that holds up the loop would fail here
    other.execute("ROLLBACK")
    other.close()
    await waiting
    assert await numbers(store) == [1, 2]
    await store.aclose()


# ---------------------------------------------------------------- retention and redaction


async def test_a_session_is_deleted_when_its_retention_is_over(place: Place) -> None:
    store = place.open(retention=1000)
    await store.append(KEY, entries(1))
    await store.append(SessionKey("session-1", "journal"), entries(1))
    place.age(900)
    await store.append(SessionKey("session-2"), entries(2))
    place.age(200)
    assert await store.load(KEY) is None
    assert list(await store.subkeys("session-1")) == []
    assert [one.session_id for one in await store.list()] == ["session-2"]
    # What was deleted does not count as known.
    await store.append(KEY, entries(1))
    assert await numbers(store) == [1]
    await store.aclose()


@pytest.mark.parametrize("operation", ["append", "load", "list", "subkeys"])
async def test_each_operation_deletes_sessions_that_are_too_old(
    place: Place, operation: str
) -> None:
    store = place.open(retention=1000)
    await store.append(KEY, entries(1))
    place.age(1100)
    match operation:
        case "append":
            await store.append(KEY, entries(2))
        case "load":
            await store.load(KEY)
        case "list":
            await store.list()
        case _:
            await store.subkeys("session-1")
    if not isinstance(place, MemoryPlace):
        await store.aclose()
        store = place.open()  # without a retention
    assert await numbers(store) == ([2] if operation == "append" else [])
    await store.aclose()


async def test_a_leased_session_is_kept(place: Place) -> None:
    store = place.open(retention=1000)
    await store.append(KEY, entries(1))
    place.age(1100)
    assert await store.acquire("session-1", "owner", 60)
    await store.append(KEY, entries(2))
    place.age(0)
    assert await numbers(store) == [1, 2]
    await store.aclose()


async def test_entries_are_redacted_before_they_are_stored(place: Place) -> None:
    def redact(entry: Mapping[str, object]) -> dict[str, object]:
        return {**entry, "text": "***"}

    store = place.open(redact=redact)
    assert store.redact is redact
    await store.append(KEY, [{"uuid": "1", "text": SECRET}])
    assert await store.load(KEY) == [{"uuid": "1", "text": "***"}]
    await store.aclose()


@pytest.mark.parametrize("result", ["an exception", "None"])
async def test_nothing_is_stored_if_redacting_fails(place: Place, result: str) -> None:
    def redact(entry: Mapping[str, object]) -> Any:
        if entry["uuid"] == "1":
            return entry
        if result == "None":
            return None
        raise ValueError(SECRET)

    store = place.open(redact=redact)
    with pytest.raises(StoreError, match="redact") as caught:
        await store.append(KEY, [{"uuid": "1"}, {"uuid": "2", "text": SECRET}])
    assert_silent(caught.value)
    assert await store.load(KEY) is None
    await store.aclose()


async def test_an_entry_that_is_not_json_is_named_by_the_type_of_the_error(place: Place) -> None:
    store = place.open()
    with pytest.raises(StoreError, match="JSON") as caught:
        await store.append(KEY, [{"uuid": "1"}, {"text": SECRET, "value": object()}])
    assert_silent(caught.value)
    assert await store.load(KEY) is None
    await store.aclose()


# ---------------------------------------------------------------- secrecy


def assert_silent(error: BaseException) -> None:
    """An error shows neither the password nor an entry, also in a traceback."""
    shown = [str(error), repr(error), *traceback.format_exception(error)]
    if isinstance(error, OptionsError | StoreError):
        shown.append(repr(vars(error)))
    text = "".join(line for one in shown for line in one.splitlines() if "await" not in line)
    assert PASSWORD not in text
    assert SECRET not in text


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_wrong_password_is_reported_without_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = open_place(kind, request, tmp_path)
    assert isinstance(place, PostgresPlace | RedisPlace)
    wrong = place.server.url.replace(PASSWORD, SECRET)
    store = PostgresStore(wrong) if kind == "postgres" else RedisStore(wrong)
    caplog.set_level(logging.DEBUG)

    async def work() -> None:
        with pytest.raises(StoreError, match="password") as caught:
            await store.list()
        assert "url" in caught.value.fix
        assert_silent(caught.value)
        await store.aclose()

    run(work)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", ["postgres", "redis"])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:1"])
async def test_an_unreachable_server_is_reported_without_the_url(kind: str, host: str) -> None:
    store = (
        PostgresStore(f"postgresql://user:{SECRET}@{host}/app")
        if kind == "postgres"
        else RedisStore(f"redis://user:{SECRET}@{host}/0")
    )
    with pytest.raises(StoreError, match="connect") as caught:
        await store.list()
    assert "host" in caught.value.fix
    assert_silent(caught.value)
    await store.aclose()


async def test_an_unknown_database_is_reported(postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_server.url.replace("/postgres", "/nowhere"))
    with pytest.raises(StoreError) as caught:
        await store.list()
    assert "does not exist" in str(caught.value)
    assert_silent(caught.value)
    await store.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "",
        f"mysql://user:{SECRET}@host/app",
        f"postgresql://user:{SECRET}@host:port/app",
        f"postgresql://user:{SECRET}@host/app?no_such_parameter=1",
        f"user:{SECRET}@host",
        f"postgresql+psycopg://user:{SECRET}@host/app",
        f"postgresql://user:{SECRET}%zz@host/app",
        None,
        7,
    ],
    ids=repr,
)
def test_a_wrong_postgres_url_is_rejected_without_showing_it(url: Any) -> None:
    with pytest.raises(OptionsError, match=r"PostgresStore\.url") as caught:
        PostgresStore(url)
    assert "postgresql://user:password@host" in caught.value.fix
    assert_silent(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        f"http://user:{SECRET}@host",
        f"redis://user:{SECRET}@host:port/0",
        f"user:{SECRET}@host",
        f"redis://user:{SECRET}@host/0?socket_timeout={SECRET}",
        None,
        7,
    ],
    ids=repr,
)
def test_a_wrong_redis_url_is_rejected_without_showing_it(url: Any) -> None:
    with pytest.raises(OptionsError, match=r"RedisStore\.url") as caught:
        RedisStore(url)
    assert "redis://user:password@host" in caught.value.fix
    assert_silent(caught.value)


async def test_no_repr_shows_a_password_or_an_entry(place: Place) -> None:
    store = place.open()
    await store.append(KEY, [{"text": SECRET}])
    assert PASSWORD not in repr(store)
    assert SECRET not in repr(store)
    await store.aclose()


# ---------------------------------------------------------------- options and extras


@pytest.mark.parametrize("name", ["retention", "timeout"])
@pytest.mark.parametrize("value", [0, -1, True, "1", float("nan"), float("inf"), 1e10])
def test_a_duration_must_be_a_positive_number(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(OptionsError, match=rf"SqliteStore\.{name}"):
        SqliteStore(tmp_path / "a.db", **{name: value})


def test_redact_must_be_a_function() -> None:
    with pytest.raises(OptionsError, match=r"MemoryStore\.redact"):
        MemoryStore(redact=True)  # type: ignore[arg-type]


def test_a_prefix_must_be_a_string() -> None:
    with pytest.raises(OptionsError, match=r"RedisStore\.prefix"):
        RedisStore("redis://localhost", prefix=None)  # type: ignore[arg-type]


async def test_prefixes_separate_stores(redis_server: RedisServer) -> None:
    one = RedisStore(redis_server.url, prefix="one:")
    two = RedisStore(redis_server.url, prefix="two:")
    await one.append(KEY, entries(1))
    assert await two.load(KEY) is None
    assert await two.list() == []
    await one.delete(KEY)
    await one.aclose()
    await two.aclose()


@pytest.mark.parametrize("path", ["", ":memory:", "sqlite:///a.db", None, 7, "/no/such/dir/a.db"])
def test_a_wrong_path_is_rejected(path: Any) -> None:
    with pytest.raises(OptionsError, match=r"SqliteStore\.path"):
        SqliteStore(path)


def test_a_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="directory"):
        SqliteStore(tmp_path)


@pytest.mark.parametrize(
    ("module", "extra", "code"),
    [
        ("psycopg", "postgres", "sessions.PostgresStore('postgresql://localhost/app')"),
        ("redis", "redis", "sessions.RedisStore('redis://localhost')"),
    ],
)
def test_a_missing_extra_is_named(module: str, extra: str, code: str) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from bridle import sessions, OptionsError\n"
        f"try: {code}\n"
        "except OptionsError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert f"pip install 'bridle[{extra}]'" in done.stdout, done.stderr


def test_no_driver_is_imported_before_a_store_needs_it() -> None:
    program = (
        "import sys, bridle, bridle.sessions; bridle.sessions.MemoryStore()\n"
        "print({'sqlite3', 'psycopg', 'redis', 'claude_agent_sdk'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "set()\n", done.stderr


# ---------------------------------------------------------------- the threads of the stores


@pytest.fixture
def new_threads() -> Callable[[], list[threading.Thread]]:
    """Return the threads of stores that were started during the test."""
    before = set(threading.enumerate())

    def find() -> list[threading.Thread]:
        new = set(threading.enumerate()) - before
        return [thread for thread in new if thread.name == "bridle-store"]

    return find


def wait_for_no_threads(find: Callable[[], list[threading.Thread]]) -> None:
    for thread in find():
        thread.join(10)
    assert find() == []


def test_closing_ends_the_thread_and_the_store_stays_usable(
    database: Place, new_threads: Callable[[], list[threading.Thread]]
) -> None:
    async def work() -> None:
        store = database.open()
        for number in range(3):
            await store.append(KEY, entries(number))
            assert len(new_threads()) == 1
            await store.aclose()
            wait_for_no_threads(new_threads)
        assert await numbers(store) == [0, 1, 2]
        await store.aclose()

    run(work)
    wait_for_no_threads(new_threads)


async def test_closing_waits_for_operations_that_have_begun(database: Place) -> None:
    store = database.open()
    await store.append(KEY, entries(0))
    begun = [asyncio.create_task(store.append(KEY, entries(n))) for n in range(1, 20)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*begun)
    assert len(await numbers(store)) == 20
    await store.aclose()


def test_a_store_that_is_not_closed_ends_its_thread_when_it_is_collected(
    database: Place, new_threads: Callable[[], list[threading.Thread]]
) -> None:
    async def work() -> None:
        await database.open().append(KEY, entries(1))

    run(work)
    gc.collect()
    wait_for_no_threads(new_threads)


def test_a_program_ends_although_a_store_is_open(database: Place) -> None:
    kind, arguments = database.arguments
    program = (
        "import asyncio, json, sys\nfrom bridle import sessions\n"
        "store = getattr(sessions, sys.argv[1])(**json.loads(sys.argv[2]))\n"
        "asyncio.run(store.append(sessions.SessionKey('a'), [{}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, kind, json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------- one database only


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("postgresql://v-app-1:p@h/db", "postgresql://v-app-2:p@h/db", True),
        ("postgresql://u@h/db", "postgresql://u@h:5432/db", True),
        ("postgresql://u@h,i/db", "postgresql://u@h:5432,i:5432/db", True),
        ("postgresql://u@h,i/db", "postgresql://u@h,i:5432/db", True),
        ("postgresql://app:p@h", "postgresql://app:p@h/app", True),
        ("postgresql://a:p@h", "postgresql://b:p@h", False),
        ("postgresql://u@h/db", "postgresql://u@h:5433/db", False),
        ("postgresql://u@h:5433,i:5434/db", "postgresql://u@h:5434,i:5433/db", False),
        ("postgresql://u@h/db", "postgresql://u@h/other", False),
        ("postgresql://u@h/db", "postgresql://u@i/db", False),
        ("postgresql://u@h/db", "postgresql://u@h/db?options=-csearch_path%3Da", False),
    ],
)
def test_the_location_names_the_database_and_not_its_user(
    one: str, other: str, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    assert (PostgresStore(one).location == PostgresStore(other).location) is is_same


async def test_the_file_belongs_to_its_owner_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    await store.append(KEY, entries(1))
    assert {path.name for path in tmp_path.iterdir()} == {"a.db", "a.db-wal", "a.db-shm"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    await store.aclose()


async def test_deleted_text_is_not_left_in_the_files(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", retention=1000)

    def is_left() -> bool:
        return any(b"a secret text" in path.read_bytes() for path in tmp_path.iterdir())

    secrets = [{"uuid": str(number), "text": "a secret text" * 50} for number in range(200)]
    await store.append(KEY, secrets)
    await store.append(SessionKey("other"), [{"uuid": "1"}])
    assert is_left()
    await store.delete(KEY)
    assert not is_left()
    await store.append(KEY, secrets)
    await store.append(SessionKey("other"), [{"uuid": "2"}])
    assert is_left()
    SqlitePlace(tmp_path / "a.db").age(2000)
    await store.list()
    assert not is_left()
    await store.aclose()


async def test_a_reader_does_not_make_a_deletion_fail(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", timeout=600.0)
    await store.append(KEY, entries(3))
    reader = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM bridle_entries").fetchone()
    await store.delete(KEY)  # it does not wait for the reader
    assert await store.load(KEY) is None
    reader.close()
    await store.aclose()


def test_a_relative_path_is_fixed_when_the_store_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("a.db")
    monkeypatch.chdir("/")
    assert store.path == str(tmp_path / "a.db")


@pytest.mark.parametrize("content", [b"not a database" * 100])
async def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="not a database"):
        await store.append(KEY, entries(1))
    await store.aclose()
    assert path.read_bytes() == content


async def test_a_directory_that_was_removed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    store = SqliteStore(tmp_path / "there" / "a.db")
    (tmp_path / "there").rmdir()
    with pytest.raises(StoreError, match="No such file or directory"):
        await store.append(KEY, entries(1))
    await store.aclose()


async def test_a_user_without_the_right_to_create_tables_can_use_them(
    postgres_server: PostgresServer,
) -> None:
    place = PostgresPlace(postgres_server)
    role = f"role_{place.schema}"
    place.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    place.execute(f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    url = place.url.replace("//bridle:", f"//{role}:")
    limited = PostgresStore(url)
    with pytest.raises(StoreError, match="42501") as caught:
        await limited.append(KEY, entries(1))
    assert "administrator" in caught.value.fix
    owner = place.open()
    await owner.list()
    tables = f"ALL TABLES IN SCHEMA {place.schema}"
    place.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}")
    await limited.append(KEY, entries(1))
    assert await numbers(owner) == [1]
    await limited.aclose()
    await owner.aclose()


async def test_dropped_tables_are_created_again(postgres_server: PostgresServer) -> None:
    place = PostgresPlace(postgres_server)
    store = place.open()
    await store.append(KEY, entries(1))
    place.execute(f"DROP TABLE {place.schema}.bridle_entries, {place.schema}.bridle_sessions")
    await store.append(KEY, entries(2))
    assert await numbers(store) == [2]
    await store.aclose()


async def test_a_deleted_sqlite_file_is_an_error_and_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    key = SessionKey("session-1")
    store = SqliteStore(path)
    await store.append(key, [{"uuid": "1"}])
    path.rename(tmp_path / "moved.db")
    for operation in (store.append(key, [{"uuid": "2"}]), store.load(key), store.list()):
        with pytest.raises(StoreError, match="deleted") as caught:
            await operation
        assert "Restore the file" in caught.value.fix
    (tmp_path / "moved.db").rename(path)
    await store.append(key, [{"uuid": "2"}])
    assert await store.load(key) == [{"uuid": "1"}, {"uuid": "2"}]
    other = SqliteStore(tmp_path / "other.db")
    await other.append(key, [{"uuid": "3"}])
    await other.aclose()
    (tmp_path / "other.db").rename(path)  # a backup takes its place
    for name in ("sessions.db-wal", "sessions.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    assert await store.load(key) == [{"uuid": "3"}]
    path.unlink()
    await store.aclose()
    assert await store.load(key) is None
    await store.aclose()


async def test_sqlite_places_are_files(tmp_path: Path) -> None:
    """Two stores on one file are one store."""
    place = SqlitePlace(tmp_path / "a.db")
    one, two = place.open(), place.open()
    await one.append(KEY, entries(1))
    await two.append(KEY, entries(1, 2))
    assert await numbers(one) == [1, 2]
    await one.aclose()
    await two.aclose()


async def test_a_script_that_the_server_has_forgotten_is_sent_again(
    redis_server: RedisServer,
) -> None:
    import redis

    place = RedisPlace(redis_server)
    store = place.open()
    await store.append(KEY, entries(1))
    with redis.Redis.from_url(redis_server.url) as client:
        client.script_flush()
    await store.append(KEY, entries(2))
    assert await numbers(store) == [1, 2]
    await store.aclose()


@pytest.mark.parametrize(
    ("setting", "value", "default", "fix"),
    [
        ("maxmemory", "1", "0", "maxmemory"),
        ("replicaof", "127.0.0.1 1", "no one", "primary"),
    ],
)
async def test_a_server_that_cannot_write_is_explained(
    redis_server: RedisServer, setting: str, value: str, default: str, fix: str
) -> None:
    import redis

    place = RedisPlace(redis_server)

    def set_to(client: Any, value: str) -> None:
        if setting == "maxmemory":
            client.execute_command("CONFIG", "SET", "maxmemory", value)
        else:
            client.execute_command("REPLICAOF", *value.split())

    store = place.open()
    await store.append(KEY, entries(1))
    with redis.Redis.from_url(redis_server.url) as client:
        set_to(client, value)
        try:
            with pytest.raises(StoreError) as caught:
                await store.append(KEY, [{"uuid": "2", "text": SECRET}])
        finally:
            set_to(client, default)
    assert fix in caught.value.fix
    assert_silent(caught.value)
    assert await numbers(store) == [1]
    await store.aclose()


async def test_a_user_without_rights_on_the_keys_is_explained(redis_server: RedisServer) -> None:
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command("ACL", "SETUSER", "guest", "on", f">{PASSWORD}", "~other:*", "+@all")
    store = RedisStore(redis_server.url.replace("//:", "//guest:"))
    with pytest.raises(StoreError) as caught:
        await store.append(KEY, [{"text": SECRET}])
    assert "Grant" in caught.value.fix
    assert_silent(caught.value)
    await store.aclose()
