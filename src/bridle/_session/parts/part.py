"""The seam of a session: the points at which its parts take part, and when each is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from bridle._process.launch.plan import Launch
    from bridle._process.process import CliProcess
    from bridle._session.actor import Actor
    from bridle.content import Content

Sees: TypeAlias = Mapping[type, Callable[[Any], None]]
"""Functions that get the actions of these types before the actor performs them."""

Perform: TypeAlias = Callable[[Any, Any], None]
"""Performs an action. The first argument is the actor."""


class Part:
    """Something that a session does beside the conversation. Every method does nothing by default.

    The session calls the methods in the order in which they are defined here, on its event loop.
    It calls `input_lost` at any time, or never.
    """

    actor: Actor

    def join(self, actor: Actor) -> None:
        """Take the actor of the session, as ``self.actor``. Nothing has started."""
        self.actor = actor

    def sees(self) -> Sees:
        """Return functions that get actions of the engine before they are performed.

        Called once, after `join`. The functions must not wait and must not raise.
        """
        return {}

    async def prepare(self, launch: Launch) -> Launch:
        """Return the launch to use: load, lock or choose what the CLI needs.

        Raises:
            StartError: the session cannot start.
        """
        return launch

    async def starting(self) -> None:
        """Do the last thing before the CLI is started. What it raises stops the session."""

    def started(self, process: CliProcess) -> None:
        """Take the process of the CLI. A transport of the application has none."""

    async def connected(self) -> None:
        """Do the first thing when the session is running. What it raises stops the session."""

    async def sending(self, content: Content | bytes) -> None:
        """Do something before a prompt is written. What it raises is raised to the caller.

        ``content`` is the prompt, or its encoded line.
        """

    def sent(self, uuid: str) -> None:
        """Note that a prompt was written, or that this or `sending` failed.

        Called only if `sending` is defined and was called.
        """

    def input_lost(self) -> None:
        """Note that the CLI has closed its input. It takes no more prompts."""

    def may_close(self) -> bool:
        """Return False if the session has to be stopped when it is closed."""
        return True

    async def close(self) -> None:
        """Release what the part holds. All turns and requests have ended.

        The process may still run. If the call is cancelled, the next parts are closed, too.
        """


def shown_to(parts: Sequence[Part], perform: Mapping[type, Perform]) -> Mapping[type, Perform]:
    """Return the functions that perform actions, so that the parts see the actions before.

    It is chosen once: an action that no part sees costs nothing extra.
    """
    changed = dict(perform)
    for part in reversed(parts):  # the function that is added last is called first
        for kind, see in part.sees().items():
            changed[kind] = _seen(see, changed[kind])
    return changed


def _seen(see: Callable[[Any], None], perform: Perform) -> Perform:
    def see_and_perform(actor: Actor, action: Any) -> None:
        see(action)
        perform(actor, action)

    return see_and_perform
