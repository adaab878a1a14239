"""A fleet on SQLite in which something goes wrong: in the worker, in DBOS, with its files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.shell.test_fleet import WAIT, Place, working
from tests.support.fleets import info_when, reach
from tests.support.limits import SetLimits
from tests.support.processes import run, until
from tests.support.steps import ReplaceSteps

import bridle
from bridle import Agent, OptionsError, OutcomeReason
from bridle._process.session_locks import lock_session
from bridle.errors import CliNotFoundError, StoreError, UsageError
from bridle.fleet import Fleet, RunInfo, RunStatus, TenantLimits, _worker
from bridle.fleet._decisions import Segment
from bridle.fleet._fleet_database import add_unixepoch
from bridle.fleet._locks import FileLock, LockLost
from bridle.fleet._queue import rows as _rows
from bridle.sessions._outbox.spool import spool_directory, spool_name
from bridle.testing import FakeCli

pytest.importorskip("dbos", reason="needs the extra 'fleet' (dbos)")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    with FakeCli.auto(transcripts=True) as cli:
        yield Place(tmp_path, cli)


def change(place: Place, statement: str, *values: object) -> None:
    """Change the tables of DBOS."""
    with contextlib.closing(sqlite3.connect(place.path / "runs.db", timeout=30)) as connection:
        add_unixepoch(connection)
        connection.execute(statement, values)
        connection.commit()


# ---------------------------------------------------------------- several fleets


async def test_two_fleets_share_a_database(place: Place) -> None:
    one, other = place.fleet(name="one"), place.fleet(name="other")
    runs = [await fleet.submit("SAY Fine.", key="same") for fleet in (one, other)]
    for fleet, submitted in zip((one, other), runs, strict=True):
        async with working(fleet):
            assert (await submitted.outcome(WAIT)).ok
            assert [found.id async for found in fleet.runs()] == [submitted.id]
    with pytest.raises(UsageError, match="no run"):
        await one.run(runs[1].id).status()
    await one.aclose()


async def test_an_invalid_schedule_changes_nothing_and_fleets_have_their_own(place: Place) -> None:
    one, other = place.fleet(name="one"), place.fleet(name="other")
    await one.schedule("nightly", "0 3 * * *", "SAY One.")
    with pytest.raises(OptionsError, match="cron"):
        await one.schedule("nightly", "often", "SAY One.")
    with pytest.raises(OptionsError, match="cron"):
        await one.schedule("nightly", "0 4 * * *", "SAY One.", timezone="Mars/Base")
    await other.schedule("nightly", "0 5 * * *", "SAY Other.")
    await other.unschedule("nightly")
    found = one._queue._client.list_schedules()
    assert [schedule["schedule"] for schedule in found] == ["0 3 * * *"]
    await one.schedule("nightly", "0 6 * * *", "SAY One.")
    found = one._queue._client.list_schedules()
    assert [schedule["schedule"] for schedule in found] == ["0 6 * * *"]
    await one.aclose()
    await other.aclose()


# ---------------------------------------------------------------- the lock and DBOS


async def test_a_term_begins_after_dbos_of_the_last_one_has_closed(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    replace_steps: ReplaceSteps,
    set_limits: SetLimits,
) -> None:
    import dbos

    closing, may_close = threading.Event(), threading.Event()
    destroy = dbos.DBOS.destroy
    confirm = FileLock.confirm
    lose = threading.Event()

    def slow_destroy(**options: Any) -> None:
        if not closing.is_set():
            closing.set()
            may_close.wait()
        destroy(**options)

    async def losing(lock: FileLock) -> None:
        await confirm(lock)
        if lose.is_set():
            lose.clear()
            raise LockLost

    monkeypatch.setattr(dbos.DBOS, "destroy", slow_destroy)
    replace_steps(confirm_lock=losing)
    set_limits(worker_closing=0.2)
    fleet = place.fleet()
    first = await fleet.submit("SAY Fine.")
    async with working(fleet):
        assert (await first.outcome(WAIT)).ok
        lose.set()
        await until(lambda: closing.is_set())
        await asyncio.sleep(1.0)  # enough for a term that would not wait
        may_close.set()
        second = await fleet.submit("SAY Fine.")
        assert (await second.outcome(WAIT)).ok


def test_a_run_that_dbos_cannot_start_does_not_stop_the_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dbos import _core

    execute = _core.execute_dequeued_workflow
    failed: list[str] = []

    def failing(dbos: Any, status: Any, token: Any) -> Any:
        if not failed:
            failed.append(status["workflow_uuid"])
            raise ValueError("a secret")
        return execute(dbos, status, token)

    monkeypatch.setattr(_core, "execute_dequeued_workflow", failing)

    async def main() -> None:
        fleet = place.fleet()
        await fleet.submit("SAY One.")
        async with working(fleet):
            await until(lambda: failed)
            second = await fleet.submit("SAY Two.")
            assert (await second.outcome(WAIT)).ok

    run(main)
    assert f"run {failed[0]} cannot start: ValueError" in caplog.text
    assert "a secret" not in caplog.text


def slow_launch(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let DBOS wait while it starts its threads. Return events: it waits, and it may go on."""
    import dbos
    from dbos._dbos import DBOSRegistry

    launching, may_launch = threading.Event(), threading.Event()
    launch, internal = dbos.DBOS.launch, DBOSRegistry.get_internal_queue
    launcher: list[int] = []

    def slow() -> None:
        launcher.append(threading.get_ident())
        launch()

    def wait(registry: DBOSRegistry) -> Any:
        if threading.get_ident() in launcher:
            launching.set()
            may_launch.wait()
        return internal(registry)

    monkeypatch.setattr(dbos.DBOS, "launch", slow)
    monkeypatch.setattr(DBOSRegistry, "get_internal_queue", wait)
    SetLimits(monkeypatch)(worker_closing=0.2)
    return launching, may_launch


async def test_a_worker_that_is_cancelled_while_dbos_starts_takes_no_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    launching, may_launch = slow_launch(monkeypatch)
    fleet = place.fleet()
    task = asyncio.create_task(fleet.work())
    await until(lambda: launching.is_set())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_launch.set()
    submitted = await fleet.submit("SAY Fine.")
    await asyncio.sleep(3.0)  # DBOS would look into the queue several times
    assert (await submitted.info()).starts == 0
    assert not [one.name for one in threading.enumerate() if one.name.startswith("queue-")]
    # The process can have a worker again.
    async with working(fleet):
        assert (await submitted.outcome(WAIT)).ok


async def test_a_worker_can_be_stopped_while_dbos_starts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    launching, may_launch = slow_launch(monkeypatch)
    fleet = place.fleet()
    stop = asyncio.Event()
    task = asyncio.create_task(fleet.work(stop=stop))
    await until(lambda: launching.is_set())
    stop.set()
    try:
        async with asyncio.timeout(WAIT):
            await task
    finally:
        may_launch.set()
    await fleet.aclose()


async def test_a_run_that_was_claimed_and_not_started_goes_back(place: Place) -> None:
    """DBOS forgets a claim if the connection breaks at its commit."""
    fleet = place.fleet()
    first = await fleet.submit("SLOW 30")
    lost = await fleet.submit("SAY Fine.", delay=3600)
    async with working(fleet, drain=0.1):
        info = await reach(first, RunStatus.RUNNING)
        change(
            place,
            "UPDATE workflow_status SET status = 'PENDING', executor_id = ?"
            " WHERE workflow_uuid = ?",
            info.worker,
            lost.id,
        )
        assert (await lost.outcome(WAIT)).ok
        assert await first.status() is RunStatus.RUNNING


async def test_a_run_that_was_taken_from_its_worker_is_continued(place: Place) -> None:
    """A worker that finds its run in the queue again kills its CLI. It does not interrupt it."""
    fleet = place.fleet()
    one = await fleet.submit("SLOW 5")
    async with working(fleet, drain=0.1):
        await reach(one, RunStatus.RUNNING)
        await asyncio.to_thread(
            change,
            place,
            "UPDATE workflow_status SET status = 'DELAYED', delay_until_epoch_ms = ?,"
            " owner_xid = NULL, started_at_epoch_ms = NULL WHERE workflow_uuid = ?",
            int((time.time() + 3) * 1000),
            one.id,
        )
        outcome = await one.outcome(WAIT)
        assert (outcome.reason, outcome.ok) == (OutcomeReason.COMPLETED, True)


async def test_a_fleet_is_closed_while_its_worker_runs(place: Place) -> None:
    fleet = place.fleet()
    first = await fleet.submit("SLOW 2")
    async with working(fleet, at_once=1):
        await reach(first, RunStatus.RUNNING)
        for _ in range(30):
            await fleet.aclose()
            await asyncio.sleep(0.1)
        assert (await first.outcome(WAIT)).ok
        second = await fleet.submit("SLOW")
        await reach(second, RunStatus.RUNNING)
        await second.cancel()
        third = await fleet.submit("SAY Fine.")
        assert (await third.outcome(WAIT)).ok, "the worker has ended the second run"


def test_a_symlink_to_the_database_is_the_same_fleet(place: Place, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "runs.db").touch()
    (tmp_path / "other.db").symlink_to(tmp_path / "real" / "runs.db")
    urls = {
        Fleet(place.agent(), f"sqlite:///{tmp_path}/{name}")._queue.url
        for name in ("real/runs.db", "link/runs.db", "other.db")
    }
    assert len(urls) == 1


async def test_a_worker_whose_lock_file_is_deleted_starts_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Other workers would use a new file, and find the lock of this worker free."""
    caplog.set_level(logging.INFO, "bridle.fleet")
    fleet = place.fleet()
    one = await fleet.submit("SLOW 3")
    async with working(fleet):
        await reach(one, RunStatus.RUNNING)
        for path in [*place.path.glob("runs.db-workers*/*"), *place.path.glob("*.lock")]:
            path.unlink()
        assert (await one.outcome(WAIT)).ok
        assert (await one.info()).starts == 2
    assert "has lost its lock" in caplog.text


def test_a_forked_child_does_not_keep_the_lock_of_its_worker(tmp_path: Path) -> None:
    database = str(tmp_path / "runs.db")
    program = (
        "import asyncio, os, sys, time\n"
        "from bridle.fleet._locks import FileLock\n"
        "lock = FileLock('worker', sys.argv[1])\n"
        "asyncio.run(lock.take())\n"
        "if not os.fork():\n"
        "    print(os.getpid(), flush=True)\n"  # the child has closed the file by then
        "time.sleep(600)\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", program, database], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    child = int(worker.stdout.readline())

    async def main() -> None:
        lock = FileLock("other", database)
        await lock.take()
        assert await lock.free(["worker"]) == []
        async with lock.taking("worker") as is_taken:
            assert not is_taken
        worker.kill()
        worker.wait()
        assert await lock.free(["worker"]) == ["worker"]
        async with lock.taking("worker") as is_taken:
            assert is_taken
        await lock.aclose()

    try:
        run(main)
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        os.kill(child, signal.SIGKILL)


async def test_a_tool_that_reads_the_lock_file_does_not_release_the_lock(tmp_path: Path) -> None:
    database = str(tmp_path / "runs.db")
    lock, other = FileLock("worker", database), FileLock("other", database)
    await lock.take()
    for path in tmp_path.iterdir():
        path.read_bytes()
    await other.take()
    assert await other.free(["worker"]) == []
    await other.aclose()
    third = FileLock("third", database)
    await third.take()
    assert await third.free(["worker"]) == []
    await third.aclose()
    await lock.aclose()


async def test_a_worker_takes_a_posix_lock_again(
    tmp_path: Path, replace_steps: ReplaceSteps
) -> None:
    """Systems other than Linux release the lock when any code of the worker closes the file."""
    database = str(tmp_path / "runs.db")
    program = (
        "import asyncio, sys\n"
        "from bridle.fleet._locks import FileLock\n"
        "async def main():\n"
        "    lock = FileLock('other', sys.argv[1])\n"
        "    await lock.take()\n"
        "    print(await lock.free(['worker']))\n"
        "asyncio.run(main())\n"
    )

    def free() -> str:
        command = [sys.executable, "-c", program, database]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    replace_steps(system_lock=refuse)
    lock = FileLock("worker", database)
    await lock.take()
    Path(f"{database}-workers.lock").read_bytes()
    assert free() == "['worker']"
    await lock.confirm()
    assert free() == "[]"
    await lock.aclose()


def test_a_worker_works_on_a_python_without_the_name_of_the_lock(tmp_path: Path) -> None:
    program = (
        "import asyncio, fcntl, sys\n"
        "del fcntl.F_OFD_SETLK\n"
        "from bridle.fleet._locks import FileLock\n"
        "asyncio.run(FileLock('worker', sys.argv[1]).take())\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "runs.db")], check=True)


def test_a_program_that_uses_dbos_itself_cannot_be_a_worker(place: Place, tmp_path: Path) -> None:
    from dbos import DBOS

    url = f"sqlite:///{tmp_path}/own.db"
    DBOS(config={"name": "own", "system_database_url": url, "enable_otlp": False})

    async def main() -> None:
        fleet = place.fleet()
        with pytest.raises(UsageError, match="DBOS"):
            await fleet.work()
        await fleet.aclose()

    try:
        run(main)
    finally:
        DBOS.destroy(destroy_registry=True)


# ---------------------------------------------------------------- runs


async def test_one_run_that_cannot_be_read_does_not_hide_the_others(place: Place) -> None:
    fleet = place.fleet()
    wrong: Any = [1]
    with pytest.raises(OptionsError, match="metadata"):
        await fleet.submit("SAY Fine.", metadata=wrong)
    good = await fleet.submit("SAY Fine.")
    run_id = "00000000-0000-4000-8000-000000000000"
    bad = Segment(run_id=run_id, session_id=run_id, prompt="x", metadata=wrong)
    fleet._queue.add(bad)
    assert [found.id async for found in fleet.runs()] == [good.id]
    with pytest.raises(StoreError, match="cannot be decoded"):
        await fleet.run(bad.run_id).info()
    async with working(fleet):
        assert (await good.outcome(WAIT)).ok
        assert not (await fleet.run(bad.run_id).outcome(WAIT)).ok


async def test_a_run_that_is_cancelled_while_it_is_put_off_stays_cancelled(
    place: Place, set_limits: SetLimits
) -> None:
    fleet = place.fleet(tenants=TenantLimits(usd=1.0, per=3600.0))
    one = await fleet.submit("SAY Never.", tenant="a")
    asked = 0

    def seconds(*_: object) -> float:
        nonlocal asked
        asked += 1
        if asked == 1:
            fleet._queue.cancel(one.id)
            return 0.5
        return 0.0

    set_limits(pause_until_affordable=seconds)
    async with working(fleet):
        assert (await one.outcome(WAIT)).reason is OutcomeReason.STOPPED
        await asyncio.sleep(2.0)  # more than it is put off
        assert await one.status() is RunStatus.CANCELLED
    assert place.prompts() == []


async def test_a_run_that_is_put_off_many_times_does_not_fail(
    place: Place, set_limits: SetLimits
) -> None:
    fleet = place.fleet(tenants=TenantLimits(usd=1.0, per=3600.0))
    one = await fleet.submit("SAY Fine.", tenant="a")
    asked = 0

    def seconds(*_: object) -> float:
        nonlocal asked
        asked += 1
        return 0.1 if asked < 3 else 0.0

    set_limits(pause_until_affordable=seconds)
    async with working(fleet):
        assert (await one.outcome(WAIT)).ok
        assert asked == 3
        assert (await one.info()).starts == 1


async def test_the_dollars_of_a_cancelled_run_count(place: Place) -> None:
    began = asyncio.Event()

    @bridle.tool
    async def build() -> str:
        """Build."""
        began.set()
        await asyncio.sleep(600)
        return "built"

    limits = TenantLimits(usd=0.00001, per=3600.0)
    fleet = place.fleet(place.agent(tools=[build]), tenants=limits)
    first = await fleet.submit("CALL mcp__tools__build", tenant="a")
    async with working(fleet):
        await asyncio.wait_for(began.wait(), WAIT)
        await first.cancel()
        assert await first.status() is RunStatus.CANCELLED
        await info_when(first, lambda info: info.cost_usd)
        second = await fleet.submit("SAY Fine.", tenant="a")
        await reach(second, RunStatus.DELAYED)


async def test_a_run_that_is_taken_over_is_not_put_off(place: Place) -> None:
    began = asyncio.Event()

    @bridle.tool
    async def build() -> str:
        """Build."""
        if not began.is_set():
            began.set()
            await asyncio.sleep(600)
        return "built"

    limits = TenantLimits(usd=0.00001, per=3600.0)
    fleet = place.fleet(place.agent(tools=[build]), tenants=limits)
    one = await fleet.submit("CALL mcp__tools__build", tenant="a")
    async with working(fleet, drain=0.1):
        async with asyncio.timeout(WAIT):
            await began.wait()
        change(
            place,
            "INSERT INTO workflow_status (workflow_uuid, status, name, priority, completed_at,"
            " attributes, application_name, queue_partition_key)"
            " VALUES ('spent', 'SUCCESS', 'bridle_run', 0, strftime('%s', 'now') * 1000,"
            " '{\"tenant\": \"a\", \"cost_usd\": 1.0}', 'bridle-default', 'a')",
        )
    async with working(fleet):
        assert (await one.outcome(WAIT)).ok


def test_a_run_waits_from_the_first_failure_of_the_store(
    place: Place, replace_steps: ReplaceSteps, set_limits: SetLimits
) -> None:
    set_limits(worker_outage=0.5)
    failing(replace_steps, [StoreError("Fleet", "append", "broken")], after=1.0)
    check_one_run(place, ok=True)


async def test_a_run_whose_session_is_in_use_lets_others_run(
    place: Place, set_limits: SetLimits
) -> None:
    set_limits(worker_outage=0.1, worker_longest_pause=1.0)
    fleet = place.fleet()
    held = await fleet.submit("SAY Held.")
    session_id = (await held.info()).session_id
    lock = lock_session(str(place.path / "config"), session_id)
    other = await fleet.submit("SAY Other.")
    async with working(fleet, at_once=1):
        assert (await other.outcome(WAIT)).ok
        assert not (await held.status()).is_final
        reason = (await reach(held, RunStatus.DELAYED)).delay_reason or ""
        assert "another program" in reason
        assert "uses the session" in reason
        lock.release()
        assert (await held.outcome(WAIT)).ok
        assert (await held.info()).starts == 1, "a run that is put off has not started"
    await fleet.aclose()


def test_a_run_fails_if_the_store_keeps_failing(
    place: Place, replace_steps: ReplaceSteps, set_limits: SetLimits
) -> None:
    set_limits(worker_outage=0.5)
    failing(replace_steps, [StoreError("Fleet", "append", "broken")] * 9)
    check_one_run(place, ok=False)


def failing(replace_steps: ReplaceSteps, errors: list[Exception], after: float = 0.0) -> None:
    """Let the first attempts of the runs raise errors, after some seconds."""
    attempt: Callable[..., Any] = _worker._Term._attempt
    left = [*errors]

    async def faulty(*arguments: Any) -> Any:
        if left:
            await asyncio.sleep(after)
            raise left.pop(0)
        return await attempt(*arguments)

    replace_steps(work_on_run=faulty)


def check_one_run(place: Place, *, ok: bool) -> None:
    async def main() -> None:
        fleet = place.fleet()
        one = await fleet.submit("SAY Fine.")
        async with working(fleet):
            assert (await one.outcome(WAIT)).ok is ok

    run(main)


async def test_an_outcome_of_the_transcript_is_found_again(
    place: Place, replace_steps: ReplaceSteps
) -> None:
    """A worker recovers the outcome and dies before the queue has it. Another one recovers it."""
    attempt: Callable[..., Any] = _worker._Term._attempt
    attempts: list[object] = []

    async def faulty(*arguments: Any) -> Any:
        attempts.append(await attempt(*arguments))
        if len(attempts) == 1:
            raise StoreError("Fleet", "append", "broken")
        return attempts[-1]

    replace_steps(work_on_run=faulty)
    fleet = place.fleet()
    one = await fleet.submit("SAY Once.")
    await place.agent(store=fleet.store).run("SAY Once.", session_id=(await one.info()).session_id)
    change(
        place,
        "DELETE FROM bridle_entries WHERE subkey = 'journal'"
        " AND (body LIKE '%\"outcome\"%' OR body LIKE '%\"received\"%')",
    )
    async with working(fleet):
        assert (await one.outcome(WAIT)).text == "Once."
    assert len(attempts) == 2
    assert place.prompts() == ["SAY Once."]


async def test_a_run_starts_if_a_spool_file_has_no_complete_entry(place: Place) -> None:
    """A worker of this machine died while it wrote the prompt to the file."""
    fleet = place.fleet()
    one = await fleet.submit("SAY Fine.")
    session_id = (await one.info()).session_id
    directory = Path(spool_directory())
    directory.mkdir(parents=True)
    file = directory / f"{spool_name(fleet.store, session_id)}journal.1.jsonl"
    file.write_bytes(b'+{"key": {"session_id"')
    async with working(fleet):
        assert (await one.outcome(WAIT)).text == "Fine."
    assert place.prompts() == ["SAY Fine."]
    assert not file.exists()


async def test_the_reason_of_a_failure_in_the_worker_is_reported(
    place: Place, replace_steps: ReplaceSteps
) -> None:
    failing(replace_steps, [KeyError("a secret")])
    fleet = place.fleet()
    one = await fleet.submit("SAY Fine.")
    async with working(fleet):
        outcome = await one.outcome(WAIT)
    info = await one.info()
    assert "KeyError" in outcome.detail
    assert info.worker is not None
    assert info.worker in outcome.detail
    assert "secret" not in outcome.detail
    assert info.reason is outcome.reason is OutcomeReason.STOPPED
    await fleet.aclose()


def test_warnings_of_dbos_are_explained_in_the_log_of_the_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dbos._sys_db import SystemDatabase

    def claim(*_: object, **__: object) -> None:
        raise RuntimeError("permission denied for table workflow_status\n[SQL: a secret]")

    monkeypatch.setattr(SystemDatabase, "start_queued_workflows", claim)
    monkeypatch.setattr(logging.getLogger("dbos"), "handlers", [])
    # As DBOS sets it when a process first uses it.
    level = logging.INFO
    monkeypatch.setattr(logging.getLogger("dbos"), "level", level)

    async def main() -> None:
        fleet = place.fleet()
        async with working(fleet):
            await until(lambda: "permission denied" in caplog.text)
            await asyncio.sleep(1.5)

    run(main)
    told = [one for one in caplog.records if "permission denied" in one.getMessage()]
    assert len(told) == 1, "a repeated report is logged once"
    assert "DBOS, the library that keeps the queue" in told[0].getMessage()
    assert "check that the database answers" in told[0].getMessage()
    assert {one.name for one in told} == {"bridle.fleet"}
    assert "secret" not in caplog.text
    assert logging.getLogger("dbos").level == level


async def test_a_worker_on_which_no_cli_starts_pauses(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = place.fleet(Agent(cli_path=str(place.path / "missing"), cwd=str(place.path)))
    runs = [await fleet.submit("SAY Fine.") for _ in range(5)]
    async with working(fleet, at_once=1):
        for one in runs:
            assert (await one.outcome(WAIT)).reason is OutcomeReason.START_FAILED
    infos = [await one.info() for one in runs]
    # Pauses of 1 s and 2 s. The database of DBOS has the times in whole seconds.
    assert (infos[4].ended_at or 0) - (infos[2].ended_at or 0) > 2.0
    assert "did not start on this worker" in caplog.text
    await fleet.aclose()


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("kind", ["raises", "raises a StartError", "missing", "not a path"])
def test_runs_that_cannot_be_prepared_do_not_delay_others(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare(info: RunInfo) -> Any:
        if info.tenant == "good":
            return place.path
        match kind:
            case "raises":
                raise ValueError("a secret")
            case "raises a StartError":
                raise CliNotFoundError
            case "missing":
                return place.path / "missing"
            case _:
                return 7

    async def main() -> None:
        fleet = place.fleet(prepare=prepare)
        bad = [await fleet.submit("SAY Fine.", tenant="bad") for _ in range(4)]
        good = await fleet.submit("SAY Fine.", tenant="good")
        async with working(fleet, at_once=1):
            assert (await good.outcome(WAIT)).ok
            for one in bad:
                outcome = await one.outcome(WAIT)
                assert outcome.reason is OutcomeReason.START_FAILED
                assert "prepare" in outcome.detail
                assert "secret" not in outcome.detail
        await fleet.aclose()

    run(main)
    assert "did not start on this worker" not in caplog.text


# ---------------------------------------------------------------- lists


async def test_a_short_list_reads_few_rows(place: Place, replace_steps: ReplaceSteps) -> None:
    row = _rows.row_of
    read: list[str] = []

    def counted(one: Any, *rest: Any, **options: Any) -> Any:
        read.append(one.workflow_id)
        return row(one, *rest, **options)

    fleet = place.fleet()
    runs = [await fleet.submit("x", key=f"run{one}") for one in range(30)]
    replace_steps(read_queue_row=counted)
    found = [one.id async for one in fleet.runs(limit=2)]
    assert found == [runs[29].id, runs[28].id]
    assert len(read) <= 4
    read.clear()
    assert [one.id async for one in fleet.runs(key="run3")] == [runs[3].id]
    assert [one async for one in fleet.runs(key="run3", status="failed")] == []
    assert [one async for one in fleet.runs(key="missing")] == []
    assert len(read) <= 2
    for limit in (0, -1, True, "x"):
        wrong: Any = limit
        with pytest.raises(OptionsError, match="limit"):
            [one async for one in fleet.runs(limit=wrong)]
    await fleet.aclose()


async def test_a_list_is_complete_while_runs_are_added(place: Place, set_limits: SetLimits) -> None:
    set_limits(page_of_queue=3, page_of_runs=3)
    fleet = place.fleet()
    runs = [await fleet.submit("x") for _ in range(10)]
    # All in one millisecond, and some in others.
    change(place, "UPDATE workflow_status SET created_at = 1000")
    for one in runs[:2]:
        statement = "UPDATE workflow_status SET created_at = 2000 WHERE workflow_uuid = ?"
        change(place, statement, one.id)
    found: list[str] = []
    async for one in fleet.runs():
        found.append(one.id)
        added = await fleet.submit("y")
        if len(found) == 5:
            await added.cancel()
    assert sorted(found) == sorted(one.id for one in runs)
    assert {*found[:2]} == {runs[0].id, runs[1].id}
    await fleet.aclose()
