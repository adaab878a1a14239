"""The view model of a run: takes messages and events, returns lines to show.

:meth:`View.see` returns lines to print once. :meth:`View.status` returns the status lines, which
are redrawn all the time. This module does not draw or wait, and does not read the clock: ``now``
is passed in, in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from bridle._spi import TextStream
from bridle.cli._screens.printable import one_line, printable
from bridle.cli._screens.shown import Line, Note, Said, Shown, Span, Tone, counted, joined, seconds
from bridle.content import ToolResultBlock, ToolUseBlock
from bridle.events import ApiRetry, RateLimited, SdkWarning, SessionEvent
from bridle.messages import (
    AssistantMessage,
    BackgroundTasksChangedMessage,
    CompactBoundaryMessage,
    ContentBlockStart,
    ContentBlockStop,
    HookResponseMessage,
    HookStartedMessage,
    InformationalMessage,
    InitMessage,
    LocalCommandOutputMessage,
    Message,
    MessageStart,
    ModelFallbackMessage,
    NotificationMessage,
    ResultMessage,
    StatusMessage,
    StreamEvent,
    TaskNotificationMessage,
    TaskStartedMessage,
    ThinkingTokensMessage,
    UserMessage,
)

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10

GOOD, BAD, WARN, NOTE, ASK = "✓", "✗", "!", "·", "?"
"""Marks at the start of a line."""

# The input key of each tool that describes a call best.
_ABOUT = {
    "Bash": "command",
    "Edit": "file_path",
    "Glob": "pattern",
    "Grep": "pattern",
    "NotebookEdit": "notebook_path",
    "Read": "file_path",
    "Task": "description",
    "WebFetch": "url",
    "WebSearch": "query",
    "Write": "file_path",
}

# Tools whose successful result tells the user nothing new.
_SILENT = {
    "AskUserQuestion",
    "Edit",
    "EnterPlanMode",
    "ExitPlanMode",
    "NotebookEdit",
    "Read",
    "Task",
    "TodoWrite",
    "Write",
}

_WINDOWS = {"five_hour": "5-hour", "seven_day": "7-day"}

# Where a block of text begins or ends.
_BOUNDARIES = (MessageStart, ContentBlockStart, ContentBlockStop)

_Mark = tuple[str, Tone]
_WELL: _Mark = (GOOD, "good")
_BADLY: _Mark = (BAD, "bad")
_LOUD: Mapping[str, _Mark] = {"warning": (WARN, "warn"), "error": _BADLY}


class Verdict(msgspec.Struct, frozen=True):
    """The decision on a tool call, in words that name who decided."""

    is_allowed: bool
    words: str
    reason: str = ""
    #: The input, if it was edited.
    tool_input: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.words}: {one_line(self.reason)}" if self.reason else self.words


def allowed(
    words: str, reason: str = "", *, tool_input: Mapping[str, Any] | None = None
) -> Verdict:
    """Return the verdict that a call may run."""
    return Verdict(is_allowed=True, words=words, reason=reason, tool_input=tool_input)


def denied(words: str, reason: str = "") -> Verdict:
    """Return the verdict that a call must not run."""
    return Verdict(is_allowed=False, words=words, reason=reason)


class _Tool(msgspec.Struct):
    """A running tool call."""

    name: str
    input: Mapping[str, Any]
    began: float
    depth: int = 0


class View:
    """The state of one run. ``epoch`` is the Unix time at which the monotonic clock was zero."""

    def __init__(self, now: float, *, epoch: float = 0.0) -> None:
        self._epoch = epoch
        self._text = TextStream(separator="")  # each block begins on a new line anyway
        # True while the last line of the answer is unfinished.
        self._is_open = False
        self._tools: dict[str, _Tool] = {}
        # Permission requests arrive apart from messages, so a decision may precede its tool call.
        self._asking: set[str] = set()
        self._verdicts: dict[str, tuple[Verdict, float]] = {}
        self._hooks: dict[str, tuple[str, float]] = {}
        self._tasks: dict[str, str] = {}
        self._phase = "starting the CLI"
        self._since = now
        self._retry_at: float | None = None
        self._is_introduced = False
        self._is_interrupted = False

    # -- called by the driver ----------------------------------------------------------------------

    def enter(self, phase: str, now: float) -> None:
        """Show another phase in the status from now on."""
        self._retry_at = None
        if phase != self._phase:
            self._phase, self._since = phase, now

    def interrupt(self, now: float) -> None:
        """Show that the turn is being interrupted."""
        self._is_interrupted = True
        self.enter("interrupting (press Ctrl-C again to end the program)", now)

    def asking(self, tool_use_id: str, *, waits: bool) -> None:
        """Note whether a tool call waits for an answer of the user."""
        (self._asking.add if waits else self._asking.discard)(tool_use_id)

    def decided(self, tool_use_id: str, verdict: Verdict, now: float) -> None:
        """Note that a tool call was allowed or denied. It is shown when the call ends."""
        self._verdicts[tool_use_id] = (verdict, now)

    def input_of(self, tool_use_id: str) -> Mapping[str, Any] | None:
        """Return the model's input of a call, which some requests omit; None if not seen yet."""
        tool = self._tools.get(tool_use_id)
        return None if tool is None else tool.input

    def close_answer(self) -> list[Shown]:
        """End the last line of the answer."""
        was_open, self._is_open = self._is_open, False
        return [Said("\n")] if was_open else []

    def end_answer(self) -> list[Shown]:
        """Return text that was held back after a refusal, and end the last line of the answer."""
        return [*self._say(self._text.end()), *self.close_answer()]

    # -- status lines ------------------------------------------------------------------------------

    def status(self, now: float) -> list[Line]:
        """Return the status lines: running tools and hooks, or else the current phase."""
        if self._is_interrupted:
            return [(Span(self._phase, "warn"), Span(f" {seconds(now - self._since)}", "dim"))]
        spin = Span(SPINNER[int(now * _FRAMES_PER_SECOND) % len(SPINNER)] + " ", "ask")
        lines = [self._running(id, spin, now) for id in self._tools]
        lines += [
            (Span("  "), spin, Span(f"hook {name} {seconds(now - began)}", "dim"))
            for name, began in self._hooks.values()
        ]
        return lines or [(spin, *self._waiting(now))]

    def _running(self, id: str, spin: Span, now: float) -> Line:
        tool, _ = self._settled(id)
        state = "asking" if id in self._asking else seconds(now - tool.began)
        return (Span(_indent(tool)), spin, *_call(tool, Span(f" {state}", "dim")))

    def _settled(self, id: str) -> tuple[_Tool, Verdict | None]:
        """Return a call and its verdict. Its time counts from the decision that allowed it."""
        tool = self._tools[id]
        verdict, since = self._verdicts.get(id, (None, tool.began))
        given = verdict.tool_input if verdict is not None and verdict.tool_input else tool.input
        return _Tool(tool.name, given, max(tool.began, since), tool.depth), verdict

    def _waiting(self, now: float) -> Line:
        if self._retry_at is not None and now < self._retry_at:
            left = f"{self._phase}, again in {seconds(self._retry_at - now)}"
            return (Span(left, "warn"),)
        return (Span(self._phase), Span(f" {seconds(now - self._since)}", "dim"))

    # -- messages and events -----------------------------------------------------------------------

    def see(self, update: Message | SessionEvent, now: float) -> list[Shown]:
        """Take the next message or event. Return the lines to print for it."""
        seen = self._SEE.get(type(update))
        shown = [] if seen is None else seen(self, update, now)
        return [*self._answer(update), *shown] if isinstance(update, Message) else shown

    def _answer(self, message: Message) -> list[Shown]:
        """Return the text that a message adds. Every block begins and ends its own line."""
        text = self._text.feed(message)
        if not isinstance(message, StreamEvent):
            return [*self.close_answer(), *self._say(text), *self.close_answer()] if text else []
        if message.parent_tool_use_id is None and isinstance(message.event, _BOUNDARIES):
            return self.close_answer()
        return self._say(text)

    def _say(self, text: str) -> list[Shown]:
        if not text:
            return []
        self._is_open = not text.endswith("\n")
        return [Said(text)]

    def _see_init(self, message: InitMessage, now: float) -> list[Shown]:
        self.enter("waiting for the model", now)
        if self._is_introduced:
            return []
        self._is_introduced = True
        mode = message.permission_mode
        facts = (
            f"claude {message.claude_code_version}" if message.claude_code_version else "claude",
            message.model or "",
            "" if mode in (None, "default") else f"{mode} mode",
            message.cwd or "",
        )
        failed = (server for server in message.mcp_servers if server.status == "failed")
        return [
            Note((Span(one_line(joined(facts)), "dim"),)),
            *(
                _note(WARN, f"MCP server {one_line(server.name)} failed to start")
                for server in failed
            ),
        ]

    def _see_stream(self, message: StreamEvent, now: float) -> list[Shown]:
        event = message.event
        if message.parent_tool_use_id is not None:
            return []
        if message.text_delta:
            self.enter("writing", now)
        elif message.thinking_delta:
            self.enter("thinking", now)
        elif isinstance(event, ContentBlockStart) and isinstance(event.content_block, ToolUseBlock):
            self.enter(f"preparing {one_line(event.content_block.name)}", now)
        return []

    def _see_assistant(self, message: AssistantMessage, now: float) -> list[Shown]:
        depth = 0 if message.parent_tool_use_id is None else 1
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                self._tools.setdefault(block.id, _Tool(block.name, block.input, now, depth))
        return []

    def _see_user(self, message: UserMessage, now: float) -> list[Shown]:
        if isinstance(message.content, str):
            return []
        results = (block for block in message.content if isinstance(block, ToolResultBlock))
        shown: list[Shown] = []
        for result in results:
            if result.tool_use_id in self._tools:
                shown += self._ended(result, now)
        if shown and not self._tools:
            self.enter("waiting for the model", now)
        return shown

    def _ended(self, result: ToolResultBlock, now: float) -> list[Shown]:
        tool, verdict = self._settled(result.tool_use_id)
        del self._tools[result.tool_use_id]
        mark, tone = _BADLY if result.is_error else _WELL
        is_denied = verdict is not None and not verdict.is_allowed
        took = "" if is_denied else seconds(now - tool.began)
        stopped = "interrupted" if self._is_interrupted and result.is_error else ""
        facts = joined([took, str(verdict or ""), stopped])
        head = (Span(_indent(tool)), Span(f"{mark} ", tone))
        shown: list[Shown] = [Note((*head, *_call(tool, Span(f" {facts}", "dim"))))]
        if is_denied or stopped or (tool.name in _SILENT and not result.is_error):
            return shown
        lines = printable(_telling(result.text)).split("\n")
        if lines[0]:
            more = f" (+{counted(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
            first = Span(f"{_indent(tool)}    {one_line(lines[0])}{more}", "dim")
            shown.append(Note((first,), whole=result.is_error))
        return shown

    # -- hooks, tasks, the API, the session --------------------------------------------------------

    def _see_hook(self, message: HookStartedMessage, now: float) -> list[Shown]:
        self._hooks[message.hook_id] = (one_line(message.hook_name), now)
        return []

    def _see_hook_end(self, message: HookResponseMessage, now: float) -> list[Shown]:
        name, began = self._hooks.pop(message.hook_id, (one_line(message.hook_name), now))
        about = f"hook {name} {seconds(now - began)}"
        if message.outcome in (None, "success"):
            return [Note((Span("  "), Span(f"{GOOD} {about}", "dim")))]
        said = (message.stderr or message.output).strip() or f"exit code {message.exit_code}"
        return [Note((Span("  "), Span(f"{BAD} ", "bad"), Span(f"{about}: {one_line(said)}")))]

    def _see_task(self, message: TaskStartedMessage, now: float) -> list[Shown]:
        self._tasks[message.task_id] = message.description
        return []

    def _see_tasks(self, message: BackgroundTasksChangedMessage, now: float) -> list[Shown]:
        self._tasks = {task.task_id: task.description for task in message.tasks}
        return []

    def _see_task_end(self, message: TaskNotificationMessage, now: float) -> list[Shown]:
        self._tasks.pop(message.task_id, None)
        mark, tone = _WELL if message.status == "completed" else _BADLY
        return _told(mark, f"task {message.status}: {message.summary}", tone)

    def _see_result(self, message: ResultMessage, now: float) -> list[Shown]:
        self._tools.clear()
        if self._tasks:
            named = one_line("; ".join(self._tasks.values()), 60)
            self.enter(f"waiting for background tasks ({named})", now)
        return []

    def _see_status(self, message: StatusMessage, now: float) -> list[Shown]:
        if message.status == "requesting":
            self.enter("waiting for the model", now)
        elif message.status:
            self.enter(one_line(message.status), now)
        return []

    def _see_thinking(self, message: ThinkingTokensMessage, now: float) -> list[Shown]:
        self.enter("thinking", now)
        return []

    def _see_compaction(self, message: CompactBoundaryMessage, now: float) -> list[Shown]:
        before, after = message.compact_metadata.pre_tokens, message.compact_metadata.post_tokens
        sizes = f" from {before} to {after} tokens" if before and after else ""
        return _told(NOTE, f"the conversation was compacted{sizes}", "dim")

    def _see_fallback(self, message: ModelFallbackMessage, now: float) -> list[Shown]:
        model = message.fallback_model or "another model"
        return _told(WARN, message.content or f"switched to {model}")

    def _see_information(self, message: InformationalMessage, now: float) -> list[Shown]:
        return _told(NOTE, message.content, "dim")

    def _see_notification(self, message: NotificationMessage, now: float) -> list[Shown]:
        return _told(NOTE, message.text, "dim")

    def _see_command_output(self, message: LocalCommandOutputMessage, now: float) -> list[Shown]:
        return [*self.close_answer(), *self._say(message.content), *self.close_answer()]

    def _see_retry(self, event: ApiRetry, now: float) -> list[Shown]:
        status = f" {event.error_status}" if event.error_status else ""
        what = f"API error{status}" + (f" ({event.error})" if event.error else "")
        self.enter(f"{one_line(what)}, attempt {event.attempt} of {event.max_retries}", now)
        self._retry_at = now + event.delay
        again = f"retry {event.attempt} of {event.max_retries} in {seconds(event.delay)}"
        return _told(WARN, f"{what}; {again}")

    def _see_rate_limit(self, event: RateLimited, now: float) -> list[Shown]:
        if event.status == "allowed":
            return []
        window = _WINDOWS.get(event.limit_type or "", event.limit_type or "")
        used = "" if event.utilization is None else f"{event.utilization:.0%} used"
        left = None if event.resets_at is None else event.resets_at - self._epoch - now
        resets = "" if left is None else f"resets in {seconds(left)}"
        reached = event.status == "rejected"
        what = f"{window} rate limit {'reached' if reached else 'near'}".strip()
        mark, tone = _LOUD["error" if reached else "warning"]
        return _told(mark, joined([what, used, resets]), tone)

    def _see_warning(self, event: SdkWarning, now: float) -> list[Shown]:
        if event.level not in _LOUD:
            return []
        mark, tone = _LOUD[event.level]
        return _told(mark, str(event), tone)

    _SEE: ClassVar[Mapping[type, Callable[..., list[Shown]]]] = {
        ApiRetry: _see_retry,
        AssistantMessage: _see_assistant,
        BackgroundTasksChangedMessage: _see_tasks,
        CompactBoundaryMessage: _see_compaction,
        HookResponseMessage: _see_hook_end,
        HookStartedMessage: _see_hook,
        InformationalMessage: _see_information,
        InitMessage: _see_init,
        LocalCommandOutputMessage: _see_command_output,
        ModelFallbackMessage: _see_fallback,
        NotificationMessage: _see_notification,
        RateLimited: _see_rate_limit,
        ResultMessage: _see_result,
        SdkWarning: _see_warning,
        StatusMessage: _see_status,
        StreamEvent: _see_stream,
        TaskNotificationMessage: _see_task_end,
        TaskStartedMessage: _see_task,
        ThinkingTokensMessage: _see_thinking,
        UserMessage: _see_user,
    }


def about(name: str, tool_input: Mapping[str, Any]) -> str:
    """Describe a call on one line."""
    said = tool_input.get(_ABOUT.get(name, ""))
    if not isinstance(said, str):
        texts = [value for value in tool_input.values() if isinstance(value, str)]
        said = texts[0] if texts else ""
    return one_line(said)


def _call(tool: _Tool, facts: Span) -> Line:
    """Return a call's name, facts and description. The least important part is last, to be cut."""
    return (
        Span(one_line(tool.name), "strong"),
        facts,
        Span(f"  {about(tool.name, tool.input)}".rstrip()),
    )


def _indent(tool: _Tool) -> str:
    return "  " * (1 + tool.depth)


def _note(mark: str, text: str, tone: Tone = "warn") -> Note:
    return Note(
        (Span(f"  {mark} ", tone), Span(text, "dim" if tone == "dim" else "plain")), whole=True
    )


def _told(mark: str, text: str, tone: Tone = "warn") -> list[Shown]:
    return [_note(mark, one_line(text, 500), tone)]


def _telling(text: str) -> str:
    """Return a tool's result without the CLI's error tags and its text for empty output."""
    for empty in ("<tool_use_error>", "</tool_use_error>", "(Bash completed with no output)"):
        text = text.replace(empty, "")
    return text.strip()
