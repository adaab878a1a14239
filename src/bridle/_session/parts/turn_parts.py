"""Runs: what their sessions do besides."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from msgspec import structs

from bridle._session.parts.part import Part

if TYPE_CHECKING:
    from bridle._process.launch.plan import Launch
    from bridle._session.run import OneTurn


class TurnPart(Part):
    """Stops a session in place of closing it, if its turn must not be interrupted."""

    def __init__(self, run: OneTurn) -> None:
        self._run = weakref.ref(run)

    def may_close(self) -> bool:
        """Return what the run says."""
        run = self._run()
        return run is None or run.may_close()


class RecoveryPart(Part):
    """Leaves the lock of the conversation to the recovery, which has it until its end."""

    async def prepare(self, launch: Launch) -> Launch:
        """Let the CLI of the launch take no lock."""
        return structs.replace(launch, writes_id=None)
