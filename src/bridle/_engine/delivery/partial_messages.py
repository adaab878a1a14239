"""Assemble partial messages from stream events."""

from __future__ import annotations

import msgspec

from bridle.content import CompactionBlock, ContentBlock, TextBlock, ThinkingBlock
from bridle.messages import (
    ApiMessage,
    AssistantMessage,
    CitationsDelta,
    CompactionDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    StreamError,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)
from bridle.messages._message import same_agent
from bridle.messages._stream_objects import ApiEvent


class PartialMessages:
    """Assemble messages from stream events while the model writes them.

    Feed it every message of a turn or a session. Whenever the model has written more,
    :meth:`feed` returns the message so far, with ``is_partial`` set. The CLI also sends the
    complete message, block by block, which is not partial. Requires
    ``CliOptions(include_partial_messages=True)``::

        partial_messages = PartialMessages()
        async for message in turn:
            if (so_far := partial_messages.feed(message)) is not None:
                show(so_far.text)

    Messages of subagents are kept apart. ``parent_tool_use_id`` says which agent wrote a message.
    """

    def __init__(self) -> None:
        # By writer: None for the main conversation, or the tool call of a subagent.
        self._open: dict[str | None, _Growing] = {}

    def feed(self, message: Message) -> AssistantMessage | None:
        """Return the message so far if ``message`` adds to it, else None.

        The input of a tool is included once it is complete.
        """
        if not isinstance(message, StreamEvent):
            return None
        whose, event = message.parent_tool_use_id, message.event
        if isinstance(event, MessageStart):
            self._open[whose] = _Growing(event.message)
        elif isinstance(event, MessageStop | StreamError):
            self._open.pop(whose, None)
        growing = self._open.get(whose)
        if growing is None or not growing.take(event):
            return None
        partial = AssistantMessage(
            growing.so_far(),
            is_partial=True,
            parent_tool_use_id=whose,
            session_id=message.session_id,
            user_message_uuids=message.user_message_uuids,
        )
        same_agent(message, partial)
        return partial


class _Growing:
    """One message that is being written."""

    def __init__(self, message: ApiMessage) -> None:
        self._message = message
        self._blocks: dict[int, ContentBlock] = dict(enumerate(message.content))
        # Inputs of tools, as incomplete JSON text.
        self._inputs: dict[int, str] = {}

    def so_far(self) -> ApiMessage:
        content = [self._blocks[index] for index in sorted(self._blocks)]
        return msgspec.structs.replace(self._message, content=content)

    def take(self, event: ApiEvent) -> bool:
        """Add the content of an event. Return False if nothing visible changed."""
        match event:
            case MessageStart():
                return True
            case ContentBlockStart():
                self._blocks[event.index] = event.content_block
                return True
            case ContentBlockDelta():
                return self._grow(event)
            case ContentBlockStop():
                return self._complete_input(event.index)
            case MessageDelta():
                end = {"stop_reason": event.delta.stop_reason, "usage": event.usage}
                said = {name: value for name, value in end.items() if value is not None}
                self._message = msgspec.structs.replace(self._message, **said)
                return bool(said)
            case _:
                return False

    def _grow(self, event: ContentBlockDelta) -> bool:
        block, delta = self._blocks.get(event.index), event.delta
        if isinstance(delta, InputJsonDelta):
            self._inputs[event.index] = self._inputs.get(event.index, "") + delta.partial_json
            return False
        grown: ContentBlock
        match block, delta:
            case TextBlock(), TextDelta():
                grown = msgspec.structs.replace(block, text=block.text + delta.text)
            case TextBlock(), CitationsDelta():
                citations = [*(block.citations or ()), delta.citation]
                grown = msgspec.structs.replace(block, citations=citations)
            case ThinkingBlock(), ThinkingDelta():
                grown = msgspec.structs.replace(block, thinking=block.thinking + delta.thinking)
            case ThinkingBlock(), SignatureDelta():
                grown = msgspec.structs.replace(block, signature=delta.signature)
            case CompactionBlock(), CompactionDelta():
                text = (block.content or "") + (delta.content or "")
                grown = msgspec.structs.replace(
                    block,
                    content=text or None,
                    encrypted_content=delta.encrypted_content or block.encrypted_content,
                )
            case _:  # an unknown delta, or one for a block that was not started
                return False
        self._blocks[event.index] = grown
        return True

    def _complete_input(self, index: int) -> bool:
        text, block = self._inputs.pop(index, ""), self._blocks.get(index)
        if not text or block is None or not hasattr(block, "input"):
            return False
        try:
            whole = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.DecodeError:  # cut off; the complete message holds the input
            return False
        self._blocks[index] = msgspec.structs.replace(block, input=whole)
        return True
