"""Translate the messages of a turn to events for user interfaces.

The CLI sends each content block as one whole message. With partial messages it sends the parts of
the block before that. The translator reports a part as soon as it arrives, and reports with the
whole block only what is still missing. So the events are the same with and without partial
messages, except that a text comes in more deltas.

Each agent has its own open block. Agents that run at the same time never share one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from bridle._engine.turns.model_text import is_error_report
from bridle._records.fields import is_mapping
from bridle.content import (
    ContentBlock,
    McpToolUseBlock,
    RedactedThinkingBlock,
    ServerToolUseBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from bridle.events import (
    BlockEnded,
    RetryScheduled,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolInput,
    ToolStarted,
    TurnEnded,
    TurnEvent,
)
from bridle.messages import (
    AgentPath,
    ApiRetryMessage,
    AssistantMessage,
    BackgroundTasksChangedMessage,
    ContentBlockDelta,
    ContentBlockStart,
    Message,
    MessageStart,
    MessageStop,
    ResultMessage,
    StreamError,
    StreamEvent,
    Subagent,
    TaskNotificationMessage,
    TaskStartedMessage,
    UserMessage,
)
from bridle.messages import TextDelta as ApiTextDelta
from bridle.messages import ThinkingDelta as ApiThinkingDelta
from bridle.outcomes import Outcome

TEXT = "text"
"""The kind of a text block."""

_THINKING = "thinking"
_AGENT_TOOLS = ("Agent", "Task")
_CALLS = (ToolUseBlock, ServerToolUseBlock, McpToolUseBlock)
# Blocks without text give no event. The CLI sends redacted thinking only with partial messages.
_WITHOUT_EVENT = (TextBlock, ThinkingBlock, RedactedThinkingBlock)


class _OpenBlock(Struct):
    """A block of which only parts have arrived."""

    kind: str
    path: AgentPath
    #: The parts that were reported. Joined only when needed, because there may be many.
    parts: list[str] = []
    #: The id of a tool call.
    call: str | None = None
    #: The stream ended before the block was complete.
    is_broken: bool = False
    #: The first parts were not seen, because the reader began later.
    began_before: bool = False
    #: What a new answer has repeated of the parts so far. None if it repeats nothing.
    repeated: str | None = None

    @property
    def shown(self) -> str:
        self.parts = ["".join(self.parts)]
        return self.parts[0]


class _Call(Struct):
    """A tool call."""

    name: str
    path: AgentPath
    #: The input of a call that starts a subagent. None until the input is complete.
    input: Mapping[str, Any] | None = None


class _Run(Struct):
    """A subagent that was started."""

    path: AgentPath
    task_id: str
    in_background: bool
    is_open: bool = True


class TurnTranslator:
    """Translate the messages of one turn. The events wait in ``ready`` until a reader takes them.

    Feed it every message of the turn in order, then call :meth:`end`.
    """

    def __init__(self) -> None:
        self.ready: deque[TurnEvent] = deque()
        # By agent: None for the main agent, or the id of the tool call that started it.
        self._open: dict[str | None, _OpenBlock] = {}
        self._calls: dict[str, _Call] = {}
        self._runs: dict[str, _Run] = {}
        # Subagents whose tool call is not complete yet. Older CLIs announce nested ones first.
        self._early: dict[str, TaskStartedMessage] = {}
        # Ids of the tasks that run in the background.
        self._background: frozenset[str] = frozenset()

    def feed(self, message: Message) -> None:
        """Add the events of the next message to ``ready``."""
        handle = self._HANDLERS.get(type(message))
        if handle is not None:
            handle(self, message)

    def end(self, outcome: Outcome[Any]) -> None:
        """Add the last events to ``ready``: the turn has ended."""
        self._abandon_all()
        self.ready.append(TurnEnded(outcome))

    # -- parts of blocks ---------------------------------------------------------------------------

    def _on_stream_event(self, message: StreamEvent) -> None:
        agent, event = message.parent_tool_use_id, message.event
        if type(event) is ContentBlockDelta:  # checked first because most events are deltas
            delta = event.delta
            if type(delta) is ApiTextDelta:
                self._on_delta(agent, TEXT, delta.text)
            elif type(delta) is ApiThinkingDelta:
                self._on_delta(agent, _THINKING, delta.thinking)
        elif isinstance(event, ContentBlockStart):
            self._on_start(agent, event.content_block)
        elif isinstance(event, MessageStart | StreamError):
            self._break(agent)
        elif isinstance(event, MessageStop):
            # Newer CLIs also end a broken stream in order, and say so in this field.
            if message.abandoned_blocks is None:
                self._finish(agent)
            else:
                self._break(agent)

    def _on_start(self, agent: str | None, block: ContentBlock) -> None:
        kind, text = _kind_and_text(block)
        old = self._open.get(agent)
        if old is not None and old.is_broken and old.kind == kind and old.call is None:
            old.repeated = ""
        else:
            self._finish(agent)
            path = self._path(agent)
            if isinstance(block, _CALLS):
                self._start_call(block, path)
                self._open[agent] = _OpenBlock(kind, path, call=block.id)
            elif text is not None:
                self._open[agent] = _OpenBlock(kind, path)
        if text is not None:
            self._on_delta(agent, kind, text)

    def _on_delta(self, agent: str | None, kind: str, text: str) -> None:
        if not text:
            return
        block = self._open.get(agent)
        if block is None or block.kind != kind:
            self._finish(agent)
            block = self._open[agent] = _OpenBlock(kind, self._path(agent), began_before=True)
        elif block.repeated is not None:
            text = block.repeated + text
            shown = block.shown
            if shown.startswith(text):
                block.repeated = text
                return
            if text.startswith(shown):
                text = text[len(shown) :]
                block.repeated, block.is_broken = None, False
            else:
                self._abandon(agent)
                block = self._open[agent] = _OpenBlock(kind, block.path)
        block.parts.append(text)
        self._show(kind, text, block.path)

    def _break(self, agent: str | None) -> None:
        """Note that a stream ended early. A new answer may repeat its open block."""
        block = self._open.get(agent)
        if block is not None:
            block.is_broken, block.repeated = True, None

    def _finish(self, agent: str | None) -> None:
        """End the open block of an agent, if any. It is complete unless its stream broke off."""
        block = self._open.get(agent)
        if block is None or block.is_broken or block.call is not None:
            self._abandon(agent)
            return
        del self._open[agent]
        if text := block.shown:
            whole = TextBlock(text) if block.kind == TEXT else ThinkingBlock(text)
            self.ready.append(BlockEnded(block.kind, whole, agent_path=block.path))

    def _abandon(self, agent: str | None) -> None:
        """End the open block of an agent, if any, because the CLI abandoned it."""
        block = self._open.pop(agent, None)
        if block is not None and (block.shown or block.call is not None):
            self.ready.append(BlockEnded(block.kind, abandoned=True, agent_path=block.path))

    def _abandon_all(self) -> None:
        for agent in list(self._open):
            self._abandon(agent)

    def _show(self, kind: str, text: str, path: AgentPath) -> None:
        make = TextDelta if kind == TEXT else ThinkingDelta
        self.ready.append(make(text, agent_path=path))

    # -- whole messages ----------------------------------------------------------------------------

    def _on_assistant(self, message: AssistantMessage) -> None:
        agent = message.parent_tool_use_id
        if message.is_partial:
            return
        if is_error_report(message):
            self._abandon(agent)
            return
        path = self._path(agent, message)
        for block in message.content:
            kind, text = _kind_and_text(block)
            if isinstance(block, _CALLS):
                self._complete_call(agent, block, path)
            elif text:
                self._complete(agent, kind, text, block, path)
            elif hasattr(block, "tool_use_id"):
                self._on_api_result(block, path)
            elif not isinstance(block, _WITHOUT_EVENT):
                self.ready.append(BlockEnded(kind, block, agent_path=path))

    def _complete(
        self, agent: str | None, kind: str, text: str, block: ContentBlock, path: AgentPath
    ) -> None:
        opened = self._open.get(agent)
        if opened is not None:
            shown = opened.shown
            if opened.kind == kind and text.startswith(shown):
                text = text[len(shown) :]
                del self._open[agent]
            elif opened.kind == kind and opened.began_before and text.endswith(shown):
                text = ""
                del self._open[agent]
            else:
                self._abandon(agent)
        if text:
            self._show(kind, text, path)
        self.ready.append(BlockEnded(kind, block, agent_path=path))

    def _start_call(
        self, block: ToolUseBlock | ServerToolUseBlock | McpToolUseBlock, path: AgentPath
    ) -> None:
        self._calls[block.id] = _Call(block.name, path)
        self.ready.append(ToolStarted(block.id, block.name, agent_path=path))

    def _complete_call(
        self,
        agent: str | None,
        block: ToolUseBlock | ServerToolUseBlock | McpToolUseBlock,
        path: AgentPath,
    ) -> None:
        opened = self._open.get(agent)
        if opened is not None and opened.call == block.id:
            del self._open[agent]
        else:
            self._abandon(agent)
            self._start_call(block, path)
        self._calls[block.id].input = block.input if block.name in _AGENT_TOOLS else {}
        self.ready.append(ToolInput(block.id, block.name, block.input, agent_path=path))
        self.ready.append(BlockEnded(block.type, block, agent_path=path))
        if block.id in self._early:
            self._on_task_started(self._early[block.id])

    def _on_api_result(self, block: Any, path: AgentPath) -> None:
        """Report the result of a tool that the API ran."""
        content: object = block.content
        is_error = getattr(block, "is_error", False)
        if is_mapping(content):
            is_error = str(content.get("type")).endswith("_error")
        self._end_call(block.tool_use_id, content, path, is_error=is_error)

    def _on_user(self, message: UserMessage) -> None:
        if message.is_replay:
            return
        agent, content = message.parent_tool_use_id, message.content
        path = self._path(agent, message)
        blocks = [] if isinstance(content, str) else content
        results = [block for block in blocks if isinstance(block, ToolResultBlock)]
        for block in results:
            self._end_call(block.tool_use_id, block.content, path, is_error=block.is_error)
        if not results:  # a prompt, or a text of the CLI: what follows is a new answer
            self._abandon(agent)

    def _end_call(self, call_id: str, content: object, path: AgentPath, *, is_error: bool) -> None:
        run = self._runs.get(call_id)
        if run is not None and not run.in_background and run.task_id not in self._background:
            # When the CLI stops a subagent, it reports its end after the result of the call.
            self._end_run(run, "stopped" if is_error else "completed")
        call = self._calls.get(call_id)
        name = "" if call is None else call.name
        self.ready.append(ToolEnded(call_id, name, content, is_error, agent_path=path))

    # -- subagents ---------------------------------------------------------------------------------

    def _path(
        self, agent: str | None, message: AssistantMessage | UserMessage | None = None
    ) -> AgentPath:
        """Return the path of an agent. Start a subagent that was not announced."""
        if agent is None:
            return ()
        run = self._runs.get(agent)
        if run is None:
            task = self._early.get(agent) or TaskStartedMessage(
                tool_use_id=agent,
                subagent_type=None if message is None else message.subagent_type,
            )
            run = self._start_run(agent, task)
        return run.path

    def _on_task_started(self, message: TaskStartedMessage) -> None:
        agent = message.tool_use_id
        is_subagent = message.subagent_type is not None or message.task_type == "local_agent"
        if agent is None or not is_subagent or agent in self._runs:
            return
        call = self._calls.get(agent)
        if call is None or call.input is None:
            self._early[agent] = message
        else:
            self._start_run(agent, message)

    def _start_run(self, agent: str, task: TaskStartedMessage) -> _Run:
        self._early.pop(agent, None)
        call = self._calls.get(agent)
        asked: Mapping[str, Any] = {} if call is None or call.input is None else call.input
        kind = task.subagent_type or asked.get("subagent_type")
        path = (*(() if call is None else call.path), Subagent(agent, kind))
        in_background = task.is_backgrounded or bool(asked.get("run_in_background"))
        run = self._runs[agent] = _Run(path, task.task_id, in_background)
        description = task.description or asked.get("description", "")
        prompt = task.prompt or asked.get("prompt", "")
        self.ready.append(SubagentStarted(description, prompt, agent_path=path))
        return run

    def _on_task_notification(self, message: TaskNotificationMessage) -> None:
        agent = message.tool_use_id or ""
        if agent in self._early:
            self._start_run(agent, self._early[agent])
        if agent in self._runs:
            self._end_run(self._runs[agent], message.status)

    def _end_run(self, run: _Run, status: str) -> None:
        if run.is_open:
            run.is_open = False
            self._abandon(run.path[-1].id)
            self.ready.append(SubagentEnded(status, agent_path=run.path))

    def _on_background(self, message: BackgroundTasksChangedMessage) -> None:
        self._background = frozenset(task.task_id for task in message.tasks)

    # -- the rest ----------------------------------------------------------------------------------

    def _on_retry(self, message: ApiRetryMessage) -> None:
        self.ready.append(
            RetryScheduled(
                attempt=message.attempt,
                max_retries=message.max_retries,
                delay=message.retry_delay_ms / 1000,
                error_status=message.error_status,
                error=message.error or "",
            )
        )

    def _on_result(self, _: ResultMessage) -> None:
        self._abandon_all()
        self._calls.clear()

    _HANDLERS: ClassVar[dict[type[Message], Callable[[TurnTranslator, Any], None]]] = {
        StreamEvent: _on_stream_event,
        AssistantMessage: _on_assistant,
        UserMessage: _on_user,
        ResultMessage: _on_result,
        TaskStartedMessage: _on_task_started,
        TaskNotificationMessage: _on_task_notification,
        BackgroundTasksChangedMessage: _on_background,
        ApiRetryMessage: _on_retry,
    }


def _kind_and_text(block: ContentBlock) -> tuple[str, str | None]:
    """Return the kind of a block, and its text if it is text or thinking."""
    if isinstance(block, TextBlock):
        return TEXT, block.text
    if isinstance(block, ThinkingBlock):
        return _THINKING, block.thinking
    return block.type, None
