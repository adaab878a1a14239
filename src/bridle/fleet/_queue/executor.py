"""DBOS in a worker: it runs the workflows that the worker has claimed, and writes their results."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from bridle.errors import StoreError, UsageError
from bridle.fleet._fleet_database import adding_subsec
from bridle.fleet._queue.claims import Claimant
from bridle.fleet._queue.dbos_internals import (
    active,
    base_error,
    close_returned,
    engine_of,
    execute,
    has_instance,
    json_serializer,
    statuses,
    stop_background,
)
from bridle.fleet._queue.dbos_log import SeldomLog, log
from bridle.fleet._queue.dbos_queue import RUN, SCHEDULED, SCHEMA, Queue

MAX_STARTS = 1000
"""How often a run is started before it fails, whatever the reason is that it does not end."""

_POLL = 0.5
"""Seconds between two looks of a worker into the queue."""

_CLOSING = 60.0
"""Seconds that a start of DBOS waits for the end of the last one."""

_instance = threading.Lock()
"""Held from the start of an executor to the end of its stop: DBOS has one instance per process."""


class Executor:
    """Run the workflows of a worker. The methods block. A process has one executor at a time.

    Args:
        queue: the queue, which claims the runs.
        executor: the name of this worker.
        at_once: how many runs this worker has at the same time.
        fleet_at_once: how many the whole fleet has. None for any number.
        tenant_at_once: how many each tenant has. None for any number.
        run: runs a segment and returns its result, both as JSON.
        scheduled: adds the run of a schedule, which has a name and a JSON text, for a time.
    """

    def __init__(
        self,
        queue: Queue,
        executor: str,
        *,
        at_once: int,
        fleet_at_once: int | None,
        tenant_at_once: int | None,
        run: Callable[[str], Awaitable[str]],
        scheduled: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._run = run
        self._scheduled = scheduled
        self._queue = queue
        self._claimant = Claimant(
            application=queue.name,
            version=queue.version,
            executor=executor,
            at_once=at_once,
            fleet_at_once=fleet_at_once,
            tenant_at_once=tenant_at_once,
        )
        self._taking: threading.Thread | None = None
        self._no_more = threading.Event()
        self._config: dict[str, Any] = {
            "name": queue.name,
            "system_database_url": queue.url,
            "dbos_system_schema": SCHEMA,
            "serializer": json_serializer(),
            "executor_id": executor,
            "application_version": queue.version,
            "run_migrations": False,
            "sys_db_pool_size": 5,
            "db_engine_kwargs": {"hide_parameters": True},
            "enable_otlp": False,
            "log_level": None,
            "use_listen_notify": False,
            "scheduler_polling_interval_sec": 5.0,
        }
        self._dbos: Any = None
        # `stop` waits for `start`.
        self._changing = threading.Lock()
        self._has_instance = False
        self._is_stopped = False

    def start(self) -> None:
        """Connect, and take runs from the queue from now on.

        Wait until the executor before has stopped. Do nothing if this one is stopped by then.

        Raises:
            UsageError: this program uses DBOS itself.
            StoreError: DBOS cannot start.
        """
        with self._changing:
            if not _instance.acquire(timeout=_CLOSING):
                raise StoreError("Fleet", "work", "DBOS of the last term has not closed yet")
            self._has_instance = True
            if not self._is_stopped:
                self._launch()

    def _launch(self) -> None:
        from dbos import DBOS

        if has_instance():
            self._has_instance = False
            _instance.release()
            what = "This process has a DBOS instance, and a process can have only one."
            raise UsageError(what, fix="Run `bridle work` in a process of its own.")
        self._dbos = DBOS(config=self._config)  # type: ignore[arg-type]  # a TypedDict

        @DBOS.workflow(name=RUN, max_recovery_attempts=MAX_STARTS)
        async def run(text: str) -> str:
            work = asyncio.run_coroutine_threadsafe(_coroutine(self._run(text)), self._loop)
            return await asyncio.wrap_future(work)

        @DBOS.workflow(name=SCHEDULED)
        async def scheduled(at: Any, context: Any) -> None:
            work = self._scheduled(str(context), str(at))
            done = asyncio.run_coroutine_threadsafe(_coroutine(work), self._loop)
            await asyncio.wrap_future(done)

        with adding_subsec():
            DBOS.launch()
        self._queue.prepare(engine_of(self._dbos))
        # DBOS knows nothing of the queue: Bridle claims the runs, and DBOS runs them.
        self._taking = threading.Thread(target=self._take, name="bridle-fleet-claim", daemon=True)
        self._taking.start()

    def _take(self) -> None:
        """Claim runs again and again, and start them."""
        seldom = SeldomLog()
        while not self._no_more.wait(_POLL):
            try:
                ids, token = self._queue.claim(self._claimant, self.active)
                found = statuses(self._dbos, ids)
            except Exception as error:
                # Runs that were claimed go back into the queue after some seconds.
                what = f"The worker cannot take runs: {type(error).__name__}"
                if isinstance(error, StoreError):
                    what = str(error)
                seldom.log(logging.WARNING, f"{what} The worker tries again.")
                continue
            for status in found:
                try:
                    execute(self._dbos, status, token)
                except Exception as error:  # such as: started too often
                    what = type(error).__name__
                    log.error("run %s cannot start: %s", status["workflow_uuid"], what)

    def stop_taking(self) -> None:
        """Take no more runs from the queue. Those that run go on."""
        self._no_more.set()
        if self._dbos is not None:
            stop_background(self._dbos)

    @property
    def active(self) -> set[str]:
        """Return the ids of the runs that are in progress, or whose results are being written."""
        return set() if self._dbos is None else {*active(self._dbos)}

    def stop(self) -> None:
        """Close everything, after `start` has returned. This may take a minute.

        A run whose function has not returned is left as it is.
        """
        from dbos import DBOS

        self._is_stopped = True
        with self._changing:
            if not self._has_instance:
                return
            self._no_more.set()
            if self._taking is not None:
                self._taking.join()
            if self._dbos is not None:
                with contextlib.suppress(base_error()):  # DBOS was not launched
                    close_returned(self._dbos)
            try:
                DBOS.destroy(destroy_registry=True)
            finally:
                self._has_instance = False
                _instance.release()


async def _coroutine(work: Awaitable[Any]) -> Any:
    return await work
