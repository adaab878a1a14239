"""What a session needs of a process: the seam between the actor and the operating system.

The real one is :class:`bridle._shell.process.CliProcess`. Tests put their own in its place with
``BidirOptions.transport_factory``: a function that is given the session's :class:`TransportEvents`
and returns a :class:`Transport`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol


class TransportEvents(Protocol):
    """What a transport tells its session. Call these on the session's event loop, in order."""

    def received(self, data: bytes) -> None:
        """The CLI wrote to its output: any piece of it, in order."""
        ...

    def output_ended(self) -> None:
        """The output is at its end. Once, whether or not the process has exited."""
        ...

    def wrote_stderr(self, line: str) -> None:
        """The CLI wrote a line to stderr; without its line ending."""
        ...

    def exited(self, exit_code: int | None) -> None:
        """The process is gone: negative for a signal, None if nobody can tell. Once."""
        ...

    def input_failed(self, reason: str) -> None:
        """What was written cannot reach the CLI any more. Not called after ``end_input``."""
        ...


class Transport(Protocol):
    """A process as its session sees it. Nothing here blocks; everything may be called again."""

    @property
    def pid(self) -> int | None:
        """The process id, where there is one."""
        ...

    @property
    def stderr_tail(self) -> str:
        """The last of what the CLI wrote to stderr."""
        ...

    def write(self, data: bytes) -> None:
        """Send whole lines to the CLI, after everything written before. Never blocks."""
        ...

    async def drain(self) -> None:
        """Wait until little enough is unsent that more may be written, or the input is gone."""
        ...

    def end_input(self) -> None:
        """Close the CLI's input once everything written has left."""
        ...

    def pause_reading(self) -> None:
        """Let the CLI wait: nothing is received until ``resume_reading``."""
        ...

    def resume_reading(self) -> None:
        """Receive again."""
        ...

    def terminate(self) -> None:
        """Ask the whole process tree to end (SIGTERM)."""
        ...

    def kill(self) -> None:
        """End the whole process tree (SIGKILL)."""
        ...

    async def aclose(self) -> None:
        """Release everything: returns when no process, descriptor or file of it is left.

        The session calls it when the process has exited, or to abandon a start. What is still
        alive is killed. Cancelling the wait does not cancel the work.
        """
        ...


TransportFactory = Callable[[TransportEvents], Transport]


class TransportRecorder(Protocol):
    """Takes down what passes: ``SdkOptions.recorder``. See :mod:`bridle.testing.recording`."""

    def wrap(
        self, factory: TransportFactory, *, secrets: Iterable[str], about: Mapping[str, object]
    ) -> TransportFactory:
        """A factory of transports that are recorded, without these secrets."""
        ...
