"""Replay a recorded session through an engine, at the recorded times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridle._engine.actions import Action, Call
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle.content import Content

Steps = list[tuple[float, Action]]
"""Actions of an engine with their times."""


class EngineReplay:
    """An engine without callbacks and without a process. Each method returns its actions.

    Times are seconds since the start of the recording, and never decrease.
    """

    def __init__(self, config: EngineConfig | None = None) -> None:
        self._engine = Engine(config or EngineConfig())
        # Tells the operations from each other.
        self._count = 0

    def advance(self, now: float) -> Steps:
        """Let the deadlines pass that are due until now."""
        steps: Steps = []
        while (due := self._engine.next_deadline) is not None and due <= now:
            steps += self._timed(self._engine.advance(due), due)
        return steps

    def receive(self, data: bytes, now: float) -> Steps:
        """Take output of the CLI."""
        return self._timed(self._engine.receive(data, now), now)

    def send(self, uuid: str, content: Content, now: float) -> Steps:
        """Send a prompt."""
        self._count += 1
        return self._timed(self._engine.send(("prompt", self._count), uuid, content, now), now)

    def submit(self, subtype: str, fields: Mapping[str, Any], now: float) -> Steps:
        """Send a control request. ``initialize`` starts the session, with the fields of the config.

        The id of the written request differs from the recorded one.
        """
        self._count += 1
        key = ("request", self._count)
        if subtype == "initialize":
            return self._timed(self._engine.start(key, now), now)
        return self._timed(self._engine.submit(key, subtype, dict(fields), now), now)

    def end_input(self, now: float) -> Steps:
        """Close the input of the CLI."""
        return self._timed(self._engine.end_input(now), now)

    def exited(self, code: int | None, stderr: str, now: float) -> Steps:
        """End the CLI."""
        engine = self._engine
        return self._timed(engine.output_ended(now) + engine.exited(code, stderr, now), now)

    def _timed(self, actions: list[Action], now: float) -> Steps:
        for action in actions:
            if isinstance(action, Call):  # callbacks are not run, so the call times out
                self._engine.started_call(action.call_id, now)
        return [(now, action) for action in actions]
