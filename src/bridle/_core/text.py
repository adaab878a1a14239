"""The text of a turn as it is written, each word once.

With partial messages the CLI sends the text twice: in pieces as the model writes, and whole when a
block is done. Without them it sends it whole only. Either way each part of the answer comes out of
:meth:`TextStream.feed` exactly once. What subagents say among themselves is left out.
"""

from __future__ import annotations

from bridle.api import MessageStart
from bridle.messages import AssistantMessage, Message, StreamEvent

_UNKNOWN = ""


class TextStream:
    """Turns messages into pieces of text."""

    def __init__(self) -> None:
        # The message that is coming, or came, in pieces: its whole form is skipped.
        self._in_pieces: str | None = None

    def feed(self, message: Message) -> str:
        """The text ``message`` adds; empty if it adds none."""
        if isinstance(message, StreamEvent):
            if message.parent_tool_use_id is not None:
                return ""
            event = message.event
            if isinstance(event, MessageStart):
                self._in_pieces = event.message.id
            elif self._in_pieces is None and message.text_delta:
                self._in_pieces = _UNKNOWN  # somebody else has heard it begin
            return message.text_delta or ""
        if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
            return "" if self._is_in_pieces(message) else message.text
        return ""

    def _is_in_pieces(self, message: AssistantMessage) -> bool:
        if self._in_pieces == _UNKNOWN:
            self._in_pieces = message.message_id
            return True
        return self._in_pieces is not None and message.message_id == self._in_pieces
