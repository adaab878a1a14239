"""``session.tasks``: the running tasks of a session."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from bridle.messages import LiveTask


class Tasks:
    """The subagents, background shells and monitors of a session."""

    def __init__(self, running: Callable[[], builtins.list[LiveTask]]) -> None:
        self._running = running

    def list(self) -> builtins.list[LiveTask]:
        """Return the tasks that run now, the oldest first. Nothing is sent to the CLI.

        Subagents in the foreground are included. A shell command in the foreground is included
        once it has run for a few seconds. After the session has ended, the list is empty.
        """
        return self._running()
