"""Keep what all parts of the engine know about their session."""

from __future__ import annotations

from msgspec import structs

from bridle._engine.state import Cause, Lifecycle, transition
from bridle.errors import BridleError, ProcessInfo


class SessionState:
    """What all parts of the engine know about their session."""

    def __init__(self) -> None:
        self.lifecycle = Lifecycle.STARTING
        #: What is known about the process. Errors carry it.
        self.process = ProcessInfo()
        #: The version in the CLI's response to initialize. None for older CLIs.
        self.sent_version: str | None = None
        #: Why the session failed, if it did.
        self.error: BridleError | None = None
        #: The same in words. Empty if it did not fail.
        self.failure = ""

    def move(self, cause: Cause) -> None:
        """Move to the lifecycle that follows after ``cause``."""
        self.lifecycle = transition(self.lifecycle, cause)

    @property
    def cli_version(self) -> str | None:
        """Return the version of the CLI, or None if it is not known."""
        return self.process.cli_version or self.sent_version

    def describe(self) -> ProcessInfo:
        """Return what is known about the process, with the version that the CLI sent."""
        if self.process.cli_version is not None or self.sent_version is None:
            return self.process
        return structs.replace(self.process, cli_version=self.sent_version)
