"""The contexts (`contextvars`) in which prompts were sent, for the callbacks of their turns."""

from __future__ import annotations

from contextvars import Context, copy_context


class Senders:
    """Remembers the context of each open prompt, and of the last one that ended."""

    def __init__(self) -> None:
        self._open: dict[str, Context] = {}
        self._last: Context | None = None

    def sending(self, prompt: str) -> None:
        """Remember the context of the caller for the prompt that it sends."""
        self._open[prompt] = copy_context()

    def ended(self, prompt: str) -> None:
        """Forget a prompt that has its outcome. Its background tasks may still call back."""
        self._last = self._open.pop(prompt, self._last)

    def failed(self, prompt: str) -> None:
        """Forget a prompt that was never sent."""
        self._open.pop(prompt, None)

    def context(self, prompt: str | None) -> Context:
        """Return a copy of the context in which ``prompt`` was sent.

        Work that belongs to no open prompt gets the context of the last prompt, and before the
        first prompt the current context.
        """
        sender = self._open.get(prompt or "") or self._last
        return copy_context() if sender is None else sender.copy()
