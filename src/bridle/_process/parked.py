"""Start a CLI before there is a session for it, and hand its process over to a session later.

Such a process gets no input before the session has it, so the handshake of the session is the first
line that it reads. Whatever the CLI writes before is kept for the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bridle._engine.versions import Version
from bridle._process.launch.plan import Launch
from bridle._process.process import CliProcess
from bridle._process.transport import TransportEvents
from bridle.errors import SpawnError

CLAIM_SINCE = Version(2, 1, 325)
"""The oldest CLI that is known to support ``--await-claim``."""

_MAX_KEPT = 1 << 20
"""Bytes of output that are kept for the session. A process that writes more is not used."""

_EXIT_TIMEOUT = 5.0
"""Seconds that a process has to exit after its input was closed."""


class ParkedCli:
    """A CLI process without a session.

    Args:
        path: the CLI.
        launch: how to start it.
        on_exit: called if the process can no longer be used, unless a session has it.

    Raises:
        SpawnError: the process could not be started.
    """

    def __init__(self, path: str, launch: Launch, on_exit: Callable[[ParkedCli], None]) -> None:
        self.launch = launch
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._target: TransportEvents | None = None
        self._kept: list[Callable[[TransportEvents], None]] = []
        self._size = 0
        self._exited = asyncio.Event()
        #: False once the process has exited, closed a pipe, or was closed.
        self.is_alive = True
        #: True once a session has the process, and ends it.
        self.is_handed_over = False
        self._started = self._loop.time()
        self._process = CliProcess.spawn(path, launch, self)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def age(self) -> float:
        """Return the seconds since the start of the process."""
        return self._loop.time() - self._started

    def hand_over(self, events: TransportEvents) -> CliProcess:
        """Return the process for a session. From now on the session gets its events.

        Raises:
            SpawnError: the process has exited.
        """
        if not self.is_alive or self.is_handed_over:
            raise SpawnError("The process that was started in advance has exited")
        self.is_handed_over = True
        # The session expects the first event after it has the process.
        self._loop.call_soon(self._deliver_to, events)
        return self._process

    def _deliver_to(self, events: TransportEvents) -> None:
        self._target = events
        kept, self._kept = self._kept, []
        for event in kept:
            event(events)

    async def aclose(self) -> None:
        """End the process, unless a session has it. Cancelling the call does not stop this."""
        if self.is_handed_over:
            return
        self.is_alive, process = False, self._process
        if not self.launch.awaits_claim:
            # The CLI has started servers and run hooks, so it gets the time to end them.
            process.end_input()
            waiting = self._loop.create_task(self._exited.wait())
            try:
                await asyncio.wait([waiting], timeout=_EXIT_TIMEOUT)
            finally:
                waiting.cancel()
                closing = self._loop.create_task(process.aclose())
            await asyncio.shield(closing)
        else:
            await process.aclose()

    # -- events of the process ---------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Pass on output, or keep it."""
        if self._target is not None:
            self._target.received(data)
            return
        self._kept.append(lambda events: events.received(data))
        self._size += len(data)
        if self._size > _MAX_KEPT:
            self._lose()

    def output_ended(self) -> None:
        """Pass on the end of the output."""
        self._tell(lambda events: events.output_ended())

    def wrote_stderr(self, line: str) -> None:
        """Pass on a line of stderr, or keep it."""
        if self._target is not None:
            self._target.wrote_stderr(line)
        elif len(self._kept) < 1000:
            self._kept.append(lambda events: events.wrote_stderr(line))

    def exited(self, exit_code: int | None) -> None:
        """Pass on the exit of the process."""
        self._exited.set()
        self._tell(lambda events: events.exited(exit_code))

    def input_failed(self, reason: str) -> None:
        """Pass on that the process has closed its input."""
        self._tell(lambda events: events.input_failed(reason))

    def _tell(self, event: Callable[[TransportEvents], None]) -> None:
        if self._target is not None:
            event(self._target)
            return
        self._kept.append(event)
        self._lose()

    def _lose(self) -> None:
        if self.is_alive and not self.is_handed_over:
            self.is_alive = False
            # As a separate callback, so that the process is not closed in one of its own callbacks.
            self._loop.call_soon(partial(self._on_exit, self))
