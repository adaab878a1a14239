"""What tests of whole sessions on the fake CLI share."""

from __future__ import annotations

import time
from typing import Any

from bridle import CliOptions, SdkWarning, Session, SessionEvent, start_session
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

SOON = 1.5
"""Seconds from a cause to its consequence: far less than any timeout meant for something else."""

GRACE = 1.0
"""Seconds a CLI that only closed a pipe has for leaving by itself."""


def options(cli: FakeCli, **more: Any) -> CliOptions:
    """The options of a session on this fake CLI."""
    return CliOptions(cli_path=cli.path, **more)


class Clock:
    """Measures from the moment it is made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self._start


async def works(flavour: str = FLAVOURS[0]) -> None:
    """Check that a new session is as good as any, whatever happened to others before."""
    with FakeCli.auto(flavour=flavour) as cli:
        async with start_session(options(cli)) as session:
            outcome = await (await session.send_user_message("again"))
            assert (outcome.ok, outcome.text) == (True, "You said: again")


async def told_by(session: Session) -> list[SessionEvent]:
    """Every event of a session that ends."""
    return [event async for event in session.events()]


def warnings_of(events: list[SessionEvent]) -> list[str]:
    """The kinds of the warnings among events."""
    return [str(event.kind) for event in events if isinstance(event, SdkWarning)]
