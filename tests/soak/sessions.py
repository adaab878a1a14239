"""What tests of whole sessions on the fake CLI share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bridle import CliOptions, SdkWarning, Session, SessionEvent, start_session
from bridle._engine.shutdown import HOLD, ShutdownStep
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS


def options(cli: FakeCli, **more: Any) -> CliOptions:
    """The options of a session on this fake CLI."""
    return CliOptions(cli_path=cli.path, **more)


@contextlib.contextmanager
def long_holds(*steps: ShutdownStep) -> Iterator[None]:
    """Give the CLI ten minutes for these steps of a shutdown. Default: all of them.

    A test that waits for the end of one fails.
    """
    with pytest.MonkeyPatch.context() as patch:
        for step in steps or tuple(HOLD):
            patch.setitem(HOLD, step, 600.0)
        yield


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
