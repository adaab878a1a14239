"""Extract the text of a turn: what the model wrote, once, without the CLI's error messages.

With partial messages the CLI sends each text twice: as deltas while the model writes, and whole
when the block is complete. Without them it sends only the whole block. :class:`TextStream` returns
each part once in both cases. :func:`result_text` returns the text at the end of a turn.
"""

from __future__ import annotations

from bridle.content import TextBlock
from bridle.messages import (
    AssistantMessage,
    ContentBlockStart,
    Message,
    MessageDelta,
    MessageStart,
    MessageStop,
    ResultMessage,
    StreamEvent,
    UserMessage,
)

SEPARATOR = "\n\n"
"""Separates two text blocks."""

SYNTHETIC = "<synthetic>"
"""The model name of messages that the CLI wrote itself."""

UNKNOWN_COMMAND = "Unknown command:"
"""The beginning of the CLI's answer to an unknown slash command."""

# 2.1.197 marks a failed slash command only by its wording.
_FAILED_COMMAND = ("Error:", "Error during compaction:", UNKNOWN_COMMAND)

_CONVERSATION = (StreamEvent, AssistantMessage, UserMessage, ResultMessage)
_REFUSAL = "refusal"
_UNKNOWN_ID = ""


def is_failed_command(message: AssistantMessage) -> bool:
    """Return True if the message reports that a slash command failed."""
    if message.model != SYNTHETIC or message.error is not None:
        return False
    outcome = message.local_command_outcome or {}
    return outcome.get("kind") == "failed" or message.text.startswith(_FAILED_COMMAND)


def is_error_report(message: AssistantMessage) -> bool:
    """Return True if the CLI wrote the message itself, to report a failure.

    The output of a slash command that succeeded counts as text.
    """
    return message.error is not None or message.is_api_error_message or is_failed_command(message)


def model_text(message: AssistantMessage) -> str:
    """Return the text of a message if the model wrote it, else ""."""
    return "" if message.model == SYNTHETIC or is_error_report(message) else message.text


def result_text(result: ResultMessage, last: str, *, completed: bool) -> str:
    """Return the model's text at the end of a turn, never the CLI's report of a failure.

    If the turn completed, this is the text of the result. Otherwise the text of the result may be
    a report: always with ``is_error``, and also without a model call (a slash command that failed,
    a prompt that a hook blocked). In these cases this is ``last``, the last text the model wrote.
    """
    if completed:
        return result.result or ""
    is_report = result.is_error or not result.num_turns
    return last if is_report else result.result or last


class TextStream:
    """Return the text that each message of a conversation adds.

    Text blocks are separated by ``separator``. Messages of subagents and error reports of the CLI
    add nothing.

    A safety classifier of the API may stop an answer (``stop_reason: "refusal"``) whose text has
    already been returned. Newer CLIs then ask the model once more. The text of that second answer
    is held back until the answer has ended, and dropped if it was stopped too.

    If the API's stream breaks off, the CLI asks the model again. Older CLIs have already sent a
    part of the answer in deltas by then. The part that the new answer repeats is left out.
    """

    def __init__(self, separator: str = SEPARATOR) -> None:
        self._separator = separator
        # The id of the message that comes in deltas. Its whole blocks are skipped.
        self._in_deltas: str | None = None
        self._is_new_block = True
        self._has_text = False
        # Text of an answer after a refusal, until it is known whether that answer is valid.
        self._held: list[str] | None = None
        # Text from deltas of a block that is not complete yet.
        self._incomplete: list[str] = []
        # Text of an answer whose stream broke off, and the part that the next one has repeated.
        self._broken = ""
        self._repeated: str = ""

    def feed(self, message: Message) -> str:
        """Return the text that ``message`` adds, or ""."""
        if not isinstance(message, _CONVERSATION):
            return ""
        if not isinstance(message, ResultMessage) and message.parent_tool_use_id is not None:
            return ""
        text = ""
        if isinstance(message, StreamEvent):
            text = self._without_repetition(self._of_event(message))
        elif isinstance(message, AssistantMessage):
            text = self._without_repetition(self._of_message(message))
        elif isinstance(message, ResultMessage) or not message.is_replay:
            self._complete()  # older CLIs repeat a prompt when its answer has begun
        if isinstance(message, UserMessage) and message.refused_message_id is not None:
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

    def _of_event(self, message: StreamEvent) -> str:
        event = message.event
        if isinstance(event, MessageStart):
            self._begin_answer()
            self._in_deltas = event.message.id
        elif isinstance(event, MessageStop):
            if "abandoned_blocks" not in message.raw:  # newer CLIs end a broken answer in this way
                self._complete()
        elif isinstance(event, ContentBlockStart):
            self._is_new_block = True
        delta = message.text_delta
        if not delta:
            return ""
        if self._in_deltas is None:
            self._in_deltas = _UNKNOWN_ID  # this reader started after the message had begun
            self._is_new_block = False
        text = self._begin(delta)
        self._incomplete.append(text)
        return text

    def _of_message(self, message: AssistantMessage) -> str:
        if is_error_report(message):
            return ""
        if self._came_in_deltas(message):
            self._complete()
            return ""
        if self._incomplete:
            self._begin_answer()
        texts: list[str] = []
        for block in message.content:
            if isinstance(block, TextBlock) and block.text:
                self._is_new_block = True
                texts.append(self._begin(block.text))
        self._is_new_block = True
        return "".join(texts)

    def _came_in_deltas(self, message: AssistantMessage) -> bool:
        if self._in_deltas == _UNKNOWN_ID:
            self._in_deltas = message.message_id
            return True
        return self._in_deltas is not None and message.message_id == self._in_deltas

    def _begin(self, text: str) -> str:
        """Put the separator before the first text of a block."""
        is_new, self._is_new_block = self._is_new_block, False
        return self._separator + text if is_new else text

    def _complete(self) -> None:
        """Note that no answer is incomplete, so the next one repeats nothing."""
        self._incomplete = []
        self._broken = self._repeated = ""

    def _begin_answer(self) -> None:
        """Note that an answer begins. If another one is incomplete, its stream broke off."""
        text = "".join(self._incomplete)
        if not self._broken.startswith(text):
            self._broken = text
        self._incomplete = []
        self._repeated = ""

    def _without_repetition(self, text: str) -> str:
        """Return a text without the part that it repeats of an answer whose stream broke off."""
        if not self._broken or not text:
            return text
        text = self._repeated + text
        if self._broken.startswith(text):
            self._repeated = text
            return ""
        text = text.removeprefix(self._broken)
        self._broken = self._repeated = ""
        return text

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
