"""The interface between a session and its process.

:class:`bridle._process.process.CliProcess` implements it. A test can use another implementation
with ``BidirOptions.transport_factory``: a function that takes the session's
:class:`TransportEvents` and returns a :class:`Transport`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol


class TransportEvents(Protocol):
    """What a transport reports to its session. Call these on the session's event loop, in order."""

    def received(self, data: bytes) -> None:
        """Report bytes of the CLI's output. A line may come in several parts."""
        ...

    def output_ended(self) -> None:
        """Report the end of the output. Once, whether or not the process has exited."""
        ...

    def wrote_stderr(self, line: str) -> None:
        """Report a line of stderr, without its line ending."""
        ...

    def exited(self, exit_code: int | None) -> None:
        """Report the exit of the process, once.

        The exit code is negative for a signal, and None if it is unknown.
        """
        ...

    def input_failed(self, reason: str) -> None:
        """Report that the CLI has closed its input. Not called after ``end_input``."""
        ...


class Transport(Protocol):
    """The process of a session. No method blocks, and every method may be called again."""

    @property
    def pid(self) -> int | None:
        """The process id, or None if there is no process."""
        ...

    @property
    def stderr_tail(self) -> str:
        """The last part of what the CLI wrote to stderr."""
        ...

    def write(self, data: bytes) -> None:
        """Send whole lines to the CLI, after everything written before. Never blocks."""
        ...

    async def drain(self) -> None:
        """Wait until most of what was written has been sent, or the input is closed."""
        ...

    def end_input(self) -> None:
        """Close the CLI's input after everything written has been sent."""
        ...

    def pause_reading(self) -> None:
        """Stop reading until ``resume_reading``. The CLI waits when its pipe is full."""
        ...

    def resume_reading(self) -> None:
        """Read again."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to the whole process tree."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to the whole process tree."""
        ...

    async def aclose(self) -> None:
        """Kill what is left of the process tree and release everything.

        Returns when no process, descriptor or file is left. The session calls this when the
        process has exited, or to give up a start. Cancelling the call does not stop the work.
        """
        ...


TransportFactory = Callable[[TransportEvents], Transport]


class TransportRecorder(Protocol):
    """Records the traffic of transports: ``SdkOptions.recorder``.

    See :mod:`bridle.testing.recording`.
    """

    def wrap(
        self, factory: TransportFactory, *, secrets: Iterable[str], about: Mapping[str, object]
    ) -> TransportFactory:
        """Return a factory whose transports are recorded. The recordings omit these secrets."""
        ...
