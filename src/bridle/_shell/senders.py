"""What callbacks get from the sender of the prompt: its context (`contextvars`) and its deps."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Any, NamedTuple


class Sender(NamedTuple):
    """The code that sent a prompt: the context it ran in, and the ``deps`` it gave."""

    context: Context
    deps: Any


class Senders:
    """Remembers the sender of each open prompt, and of the last one that ended.

    ``deps`` is the default of the session.
    """

    def __init__(self, deps: Any = None) -> None:
        self._deps = deps
        self._open: dict[str, Sender] = {}
        self._last: Sender | None = None

    def sending(self, prompt: str, deps: Any) -> None:
        """Remember the context of the caller and the deps for the prompt that it sends."""
        self._open[prompt] = Sender(copy_context(), deps)

    def ended(self, prompt: str) -> None:
        """Forget a prompt that has its outcome. Its background tasks may still call back."""
        self._last = self._open.pop(prompt, self._last)

    def failed(self, prompt: str) -> None:
        """Forget a prompt that was never sent."""
        self._open.pop(prompt, None)

    def of(self, prompt: str | None) -> Sender:
        """Return the sender of ``prompt``, with a copy of its context.

        Work that belongs to no open prompt gets the sender of the last prompt. Before the first
        prompt it gets the current context and the deps of the session.
        """
        sender = self._open.get(prompt or "") or self._last
        if sender is None:
            return Sender(copy_context(), self._deps)
        return Sender(sender.context.copy(), sender.deps)
