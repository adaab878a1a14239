"""What callbacks get from the sender of the prompt: its context (`contextvars`) and its deps."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from msgspec import Struct


class Sender(Struct, eq=False):
    """The code that sent a prompt: the context it ran in, and the ``deps`` it gave."""

    context: Context
    deps: Any
    #: True once the prompt has its outcome.
    has_ended: bool = False


class Senders:
    """Remembers the senders of prompts that are open or have tasks, and of the last one.

    ``deps`` is the default of the session. ``has_tasks`` returns whether tasks of a prompt run.
    """

    def __init__(
        self, deps: Any = None, has_tasks: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._deps = deps
        self._has_tasks = has_tasks
        self._senders: dict[str, Sender] = {}
        #: The sender of the prompt that has had its outcome last.
        self._last: Sender | None = None

    def sending(self, prompt: str, deps: Any) -> None:
        """Remember the context of the caller and the deps for the prompt that it sends."""
        self._senders[prompt] = Sender(copy_context(), deps)

    def ended(self, prompt: str) -> None:
        """Forget a prompt that has its outcome, once its background tasks have ended."""
        sender = self._senders.get(prompt)
        if sender is not None and not sender.has_ended:
            sender.has_ended, self._last = True, sender
        self._senders = {
            uuid: one
            for uuid, one in self._senders.items()
            if not one.has_ended or one is self._last or self._has_tasks(uuid)
        }

    def reset(self, deps: Any) -> None:
        """Forget the senders: another caller uses the session, with these deps."""
        self._deps, self._last = deps, None
        self._senders = {uuid: one for uuid, one in self._senders.items() if not one.has_ended}

    def failed(self, prompt: str) -> None:
        """Forget a prompt that was never sent."""
        self._senders.pop(prompt, None)

    def of(self, prompt: str | None) -> Sender:
        """Return the sender of ``prompt``, with a copy of its context.

        Work that belongs to no prompt gets the sender of the last prompt. Before the first prompt,
        and if the sender of ``prompt`` is not known, it gets the current context and the deps of
        the session: never the sender of another prompt.
        """
        known = self._senders.get(prompt) if prompt else self._last
        if known is None:
            return Sender(copy_context(), self._deps)
        return Sender(known.context.copy(), known.deps)
