"""Return the text of a conversation as one stream, each part once."""

from __future__ import annotations

from bridle._engine.delivery.turn_events import TEXT, TurnTranslator
from bridle._engine.turns.model_text import is_error_report
from bridle.events import BlockEnded, TextDelta
from bridle.messages import (
    AssistantMessage,
    Message,
    MessageDelta,
    ResultMessage,
    StreamEvent,
    UserMessage,
)

SEPARATOR = "\n\n"
"""Separates two text blocks."""

_CONVERSATION = (StreamEvent, AssistantMessage, UserMessage, ResultMessage)
_REFUSAL = "refusal"


class TextStream:
    """Return the text that each message of a conversation adds.

    Text blocks are separated by ``separator``. Messages of subagents and error reports of the CLI
    add nothing.

    A safety classifier of the API may stop an answer (``stop_reason: "refusal"``) whose text has
    already been returned. Newer CLIs then ask the model once more. The text of that second answer
    is held back until the answer has ended, and dropped if it was stopped too.

    If the API's stream breaks off, the CLI asks the model again. Text that was already returned
    cannot be taken back. If the new answer repeats it, the repeated part is left out.
    """

    def __init__(self, separator: str = SEPARATOR) -> None:
        self._separator = separator
        self._translator = TurnTranslator()
        self._is_new_block = True
        self._has_text = False
        # The text of the open block. Joined only when needed, because there may be many parts.
        self._block: list[str] = []
        # The text of an abandoned block, and the part of it that the next block has repeated.
        self._abandoned = ""
        self._repeated: str = ""
        # Text of an answer after a refusal, until it is known whether that answer is valid.
        self._held: list[str] | None = None

    def feed(self, message: Message) -> str:
        """Return the text that ``message`` adds, or ""."""
        if not isinstance(message, _CONVERSATION):
            return ""
        if not isinstance(message, ResultMessage) and message.parent_tool_use_id is not None:
            return ""
        text = self._translate(message)
        if isinstance(message, ResultMessage):
            self._abandoned = ""  # the next answer is not a repetition
        elif isinstance(message, UserMessage) and not message.is_replay:
            self._abandoned = ""
            if message.refused_message_id is not None:
                self._held = []
                return ""
        if self._held is not None:
            text = self._hold(self._held, message, text)
        return self._show(text) if text else ""

    def end(self) -> str:
        """Return the text that is still held back, after the last message."""
        held, self._held = self._held, None
        text = "".join(held or ())
        return self._show(text) if text else ""

    def _translate(self, message: Message) -> str:
        self._translator.feed(message)
        ready, text = self._translator.ready, ""
        while ready:
            event = ready.popleft()
            if type(event) is TextDelta:
                text += self._add(event.text)
            elif type(event) is BlockEnded and event.kind == TEXT:
                self._end_block(event)
        return text

    def _add(self, text: str) -> str:
        if self._abandoned:
            text = self._repeated + text
            if self._abandoned.startswith(text):
                self._repeated = text
                return ""
            if text.startswith(self._abandoned):
                self._block.append(self._abandoned)
                text = text[len(self._abandoned) :]
                self._is_new_block = False
            self._abandoned = self._repeated = ""
        self._block.append(text)
        is_new, self._is_new_block = self._is_new_block, False
        return self._separator + text if is_new else text

    def _end_block(self, event: BlockEnded) -> None:
        text = "".join(self._block)
        if not event.abandoned:
            self._abandoned = ""
        elif text:
            self._abandoned = text
        self._repeated = ""
        self._block.clear()
        self._is_new_block = True

    def _hold(self, held: list[str], message: Message, text: str) -> str:
        held.append(text)
        stands = _stands(message)
        if stands is None:
            return ""
        self._held = None
        return "".join(held) if stands else ""

    def _show(self, text: str) -> str:
        if not self._has_text:
            self._has_text = True
            return text.removeprefix(self._separator)
        return text


def _stands(message: Message) -> bool | None:
    """Return True if the answer before ``message`` is valid, None if that is not known yet."""
    if isinstance(message, StreamEvent):
        event = message.event
        reason = event.delta.stop_reason if isinstance(event, MessageDelta) else None
        return None if reason is None else reason != _REFUSAL
    if isinstance(message, AssistantMessage):
        return False if is_error_report(message) else None
    if isinstance(message, ResultMessage):
        return message.stop_reason != _REFUSAL
    return True if isinstance(message, UserMessage) else None
