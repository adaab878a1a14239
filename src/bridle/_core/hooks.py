"""The hook policy: what is registered with the CLI, which hook runs next, what is answered.

The rule of this file: the CLI sees one callback per event, and everything else happens here, so
that hooks run in their order and the first decision wins (callbacks of the CLI's own run at the
same time). What an event understands is a row of one table, `_RULES`: what a row claims was seen
on real CLIs, or is marked as documented only. Nothing here raises for what a hook or the CLI did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from bridle._core.permissions import (
    Answer,
    Warned,
    as_json,
    as_text,
    decode_tolerantly,
    encode_permission,
    kind_of,
    words_of,
)
from bridle._source import JsonObject
from bridle.hooks import (
    CONTEXTS,
    Block,
    Continue,
    EndTurn,
    Hook,
    HookContext,
    HookOutput,
    Matcher,
    ModifyInput,
    ToolHookContext,
    UnknownHookContext,
    compile_matcher,
)
from bridle.permissions import CanUseToolContext, bind_raw

# ---------------------------------------------------------------- what an event understands


def _decision_block(reason: str) -> JsonObject:
    return {"decision": "block", "reason": reason}


def _deny_tool(reason: str) -> JsonObject:
    specific = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": specific}


def _deny_permission(reason: str) -> JsonObject:
    return {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": reason}}}


def _deny_and_interrupt(reason: str) -> JsonObject:
    decision = {"behavior": "deny", "message": reason, "interrupt": True}
    return {"hookSpecificOutput": {"decision": decision}}


class EventRule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    #: The field of the context a matcher is held against; without one matchers are ignored.
    subject: str | None = None
    #: How a block is spelled; None where the CLI takes no notice of any spelling.
    block: Callable[[str], JsonObject] | None = None
    #: False where some CLIs take no notice of the block, or none was seen to honour it.
    surely_blocks: bool = True
    #: What has to stand beside the end of the turn, so that nothing more happens before it.
    beside_end: Callable[[str], JsonObject] | None = None
    #: Whether every CLI ends the turn on `continue: false`.
    surely_ends: bool = False
    #: The members of `hookSpecificOutput` it knows. Any other makes the CLI drop the whole answer.
    specific: frozenset[str] = frozenset()


_CONTEXT = frozenset({"additionalContext"})
_PRE_TOOL_USE = _CONTEXT | {"permissionDecision", "permissionDecisionReason", "updatedInput"}
_POST_TOOL_USE = _CONTEXT | {"updatedToolOutput", "updatedMCPToolOutput"}
_PRE_MODEL_SWITCH = frozenset({"permissionDecision", "permissionDecisionReason"})

_RULES: Mapping[str, EventRule] = {
    "PreToolUse": EventRule(
        subject="tool_name", block=_deny_tool, beside_end=_deny_tool, specific=_PRE_TOOL_USE
    ),
    "PostToolUse": EventRule(
        subject="tool_name", block=_decision_block, surely_ends=True, specific=_POST_TOOL_USE
    ),
    "PostToolUseFailure": EventRule(subject="tool_name", block=_decision_block, specific=_CONTEXT),
    "PostToolBatch": EventRule(block=_decision_block, surely_ends=True, specific=_CONTEXT),
    "PermissionRequest": EventRule(
        subject="tool_name",
        block=_deny_permission,
        beside_end=_deny_and_interrupt,
        specific=frozenset({"decision"}),
    ),
    "PermissionDenied": EventRule(subject="tool_name"),  # documented only
    "UserPromptSubmit": EventRule(block=_decision_block, surely_ends=True, specific=_CONTEXT),
    "UserPromptExpansion": EventRule(
        subject="command_name", block=_decision_block, surely_ends=True, specific=_CONTEXT
    ),
    "MessageDisplay": EventRule(),
    "Stop": EventRule(block=_decision_block, surely_ends=True, specific=_CONTEXT),
    "StopFailure": EventRule(subject="error"),
    "SubagentStart": EventRule(subject="agent_type", specific=_CONTEXT),
    "SubagentStop": EventRule(subject="agent_type", block=_decision_block, specific=_CONTEXT),
    "PreCompact": EventRule(subject="trigger", block=_decision_block),
    "PostCompact": EventRule(subject="trigger"),
    "SessionStart": EventRule(subject="source", specific=_CONTEXT),
    "SessionEnd": EventRule(subject="reason"),
    "Setup": EventRule(subject="trigger"),  # documented only
    "Notification": EventRule(
        subject="notification_type",
        specific=_CONTEXT,  # the context is documented only
    ),
    # Newer CLIs decline the question; older ones put it all the same.
    "Elicitation": EventRule(subject="mcp_server_name", block=_decision_block, surely_blocks=False),
    "ElicitationResult": EventRule(
        subject="mcp_server_name", block=_decision_block, surely_blocks=False
    ),
    "TaskCreated": EventRule(block=_decision_block),
    "TaskCompleted": EventRule(block=_decision_block),
    "TeammateIdle": EventRule(block=_decision_block, surely_blocks=False),  # documented only
    "PreModelSwitch": EventRule(
        subject="to_model", block=_decision_block, specific=_PRE_MODEL_SWITCH
    ),
    "PostModelSwitch": EventRule(subject="to_model", specific=_CONTEXT),
    "InstructionsLoaded": EventRule(subject="load_reason"),
    "ConfigChange": EventRule(
        subject="source",
        block=_decision_block,
        surely_blocks=False,  # documented only
    ),
    "DirectoryAdded": EventRule(subject="source"),
    "CwdChanged": EventRule(),
    "FileChanged": EventRule(),  # it has a subject, but which part of the path is not known
    "WorktreeCreate": EventRule(),
    "WorktreeRemove": EventRule(),
}

_UNKNOWN_EVENT = EventRule(block=_decision_block, surely_blocks=False)

#: The fields of `HookOutput` that go into `hookSpecificOutput`.
_SPECIFIC_NAMES: Mapping[str, str] = {
    "permission_decision": "permissionDecision",
    "permission_decision_reason": "permissionDecisionReason",
    "updated_input": "updatedInput",
    "updated_tool_output": "updatedToolOutput",
    "updated_mcp_tool_output": "updatedMCPToolOutput",
    "permission": "decision",
}

#: The fields of `HookOutput` with few possible values. The CLI drops an answer with any other.
_POSSIBLE: Mapping[str, tuple[object, ...]] = {
    "decision": (None, "approve", "block"),
    "permission_decision": (None, "allow", "deny", "ask", "defer"),
}

#: Tools that answer to an older name as well, as the CLI's own matchers do.
_OLDER_NAMES: Mapping[str, str] = {"Agent": "Task"}

# ---------------------------------------------------------------- the plan of a session

#: What the CLI waits beyond the deadlines of our hooks. It fails closed and we fail open, so its
#: own timeout must never be the first to come.
_CLI_PATIENCE = 10.0

#: The longest timer of a JavaScript runtime; one beyond it would fire at once.
_LONGEST_TIMEOUT = (2**31 - 1) // 1000


class PlannedHook(msgspec.Struct, frozen=True):
    """A hook and the seconds it has."""

    hook: Hook
    timeout: float
    matcher: Matcher


class _PlannedEvent(msgspec.Struct, frozen=True):
    event: str
    hooks: tuple[PlannedHook, ...]
    has_matchers: bool
    label: str

    def cli_timeout(self) -> int:
        total = math.ceil(sum(planned.timeout for planned in self.hooks) + _CLI_PATIENCE)
        return min(total, _LONGEST_TIMEOUT)


class HookPlan(msgspec.Struct, frozen=True):
    """All hooks of a session under the ids the CLI calls them by."""

    by_callback_id: Mapping[str, _PlannedEvent]

    @classmethod
    def from_options(
        cls,
        hooks: Mapping[str, Sequence[Hook]],
        callback_timeout: float,
        hook_timeouts: Mapping[str, float] | None = None,
    ) -> HookPlan:
        """One callback id per event that has hooks, counted in the order given.

        A hook's own timeout wins over its event's, and that over the general one.
        """
        timeouts = hook_timeouts or {}
        planned: dict[str, _PlannedEvent] = {}
        for event, listed in hooks.items():
            if not listed:
                continue
            default = timeouts.get(event, callback_timeout)
            every = tuple(
                PlannedHook(
                    hook,
                    default if hook.timeout is None else hook.timeout,
                    compile_matcher(hook.matcher),
                )
                for hook in listed
            )
            has_matchers = any(hook.matcher is not None for hook in every)
            planned[f"hook_{len(planned)}"] = _PlannedEvent(
                event, every, has_matchers, f"{event} hook"
            )
        return cls(planned)

    def initialize_payload(self) -> JsonObject | None:
        """The member `hooks` of the initialize request; None: leave it out."""
        registered: JsonObject = {
            planned.event: [
                {
                    "matcher": None,
                    "hookCallbackIds": [callback_id],
                    "timeout": planned.cli_timeout(),
                }
            ]
            for callback_id, planned in self.by_callback_id.items()
        }
        return registered or None

    def begin(self, callback_id: str, hook_input: JsonObject, tool_use_id: str | None) -> HookRun:
        """Start answering one hook callback of the CLI."""
        planned = self.by_callback_id.get(callback_id)
        if planned is None:
            run = HookRun("", UnknownHookContext(), ())
            run.abandon("unknown_callback", f"no hook is registered as {callback_id!r}")
            return run
        try:
            context = decode_context(planned.event, hook_input, tool_use_id)
        except msgspec.ValidationError as error:
            run = HookRun(planned.event, UnknownHookContext(), planned.hooks, planned.label)
            run.abandon("hook_failed", f"the input of {planned.event} cannot be read: {error}")
            return run
        hooks = planned.hooks
        if planned.has_matchers:
            subjects = _subjects(planned.event, context)
            hooks = tuple(hook for hook in hooks if _matches(hook.matcher, subjects))
        run = HookRun(planned.event, context, hooks, planned.label)
        if not hooks:
            run.conclude()
        return run


def decode_context(event: str, wire: JsonObject, tool_use_id: str | None) -> HookContext:
    """The context of an event; `msgspec.ValidationError` without the event's key field."""
    told = wire
    if wire.get("hook_event_name") != event:
        told = {**told, "hook_event_name": event}
    if "tool_use_id" not in wire and event in _TOOL_EVENTS:
        # The id beside the input is the tool call's for these events; for others it is made up.
        told = {**told, "tool_use_id": tool_use_id}
    context = decode_tolerantly(CONTEXTS.get(event, UnknownHookContext), told)
    bind_raw(context, wire)
    return context


_TOOL_EVENTS = frozenset(
    event for event, kind in CONTEXTS.items() if issubclass(kind, ToolHookContext)
)


def _subjects(event: str, context: HookContext) -> tuple[str, ...]:
    """The names a matcher may match; empty where the event ignores matchers."""
    field = _RULES.get(event, _UNKNOWN_EVENT).subject
    if field is None:
        return ()
    subject: str = getattr(context, field) or ""
    older = _OLDER_NAMES.get(subject) if isinstance(context, ToolHookContext) else None
    return (subject,) if older is None else (subject, older)


def _matches(matcher: Matcher, subjects: tuple[str, ...]) -> bool:
    if matcher is None or not subjects:
        return True
    if isinstance(matcher, frozenset):
        return not matcher.isdisjoint(subjects)
    return any(matcher.search(subject) for subject in subjects)


# ---------------------------------------------------------------- one callback being answered


class HookAnswer(Answer, frozen=True):
    """The answer to one hook callback.

    `ends_turn`: a hook asked for the end of the turn. `needs_interrupt`: not every CLI ends it on
    this answer, so whoever sends it must see to it that the turn does not go on.
    """

    ends_turn: bool = False
    needs_interrupt: bool = False

    @property
    def reason(self) -> str:
        """Return the reason to end the turn, or else to block; "" if there is none."""
        reason = self.payload.get("stopReason" if self.ends_turn else "reason")
        return reason if isinstance(reason, str) else ""


_HOW_TO_RETURN = "; return Continue(), Block(reason), EndTurn(reason), another result, or None"

_GO_ON = HookAnswer(b'{"continue":true}')
"""What most hooks come to."""


class _Unusable(Exception):
    """A result that cannot be taken; counts as a failure of its hook."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


class HookRun(msgspec.Struct):
    """One hook callback in flight: which hook to call next, until there is an answer.

    Call the first of those waiting with `context`, and report `done` or `failed`; repeat until
    `answer` is there. Reports that come after the answer are ignored.
    """

    event: str
    context: HookContext
    #: The hooks to call, the next one first.
    waiting: tuple[PlannedHook, ...]
    #: What they are called for, in words.
    label: str = "unknown hook"
    #: The answer to send; None as long as there is a hook to call.
    answer: HookAnswer | None = None
    _added: tuple[str, ...] = ()
    _messages: tuple[str, ...] = ()
    _quiet: bool = False
    #: What is to be warned about and was not yet.
    warnings: tuple[Warned, ...] = ()

    def conclude(self) -> None:
        """Without a hook left to call and without a decision, the CLI goes on."""
        if self.waiting or self.answer is not None:
            return
        if self._added or self._messages or self._quiet or self.warnings:
            self._settle({"continue": True})
        else:
            self.answer = _GO_ON

    def take_warnings(self) -> tuple[Warned, ...]:
        """What is to be warned about so far, once: the answer carries only what comes later."""
        warnings, self.warnings = self.warnings, ()
        return warnings

    @property
    def _who(self) -> str:
        """The hook that is being called, in words: an event may have several."""
        function: object = self.waiting[0].hook.callback
        try:
            name = str(getattr(function, "__qualname__", ""))
        except Exception:  # an object that stands for another one, which cannot be had here
            name = ""
        return f"{self.label} {name or type(function).__qualname__}"

    @property
    def _rule(self) -> EventRule:
        return _RULES.get(self.event, _UNKNOWN_EVENT)

    def done(self, result: object) -> None:
        """The current hook returned `result`."""
        if self.answer is not None:
            return
        try:
            if result is not None:
                self._take(result)
        except _Unusable as unusable:
            self.failed(unusable.kind, f"{self._who}: {unusable.detail}")
        except Exception as error:  # raised by the values in the result: they are the user's
            self.failed("hook_failed", f"{self._who}: its result raised {words_of(error)}")
        else:
            self.waiting = self.waiting[1:]
            if not self.waiting:
                self.conclude()

    def failed(self, kind: str, detail: str) -> None:
        """The current hook raised, was late or returned nonsense: its `on_error` says what now."""
        if self.answer is None:
            failed, self.waiting = self.waiting[:1], self.waiting[1:]
            self._fail(failed, kind, detail)

    def abandon(self, kind: str, detail: str) -> None:
        """None of the hooks left can be called; they all count as failed."""
        if self.answer is None:
            left, self.waiting = self.waiting, ()
            self._fail(left, kind, detail)

    def _fail(self, hooks: Sequence[PlannedHook], kind: str, detail: str) -> None:
        self._warn(kind, detail)
        if any(planned.hook.on_error == "block" for planned in hooks):
            # Not the detail: it may hold what the model is not meant to read.
            self._block("Blocked because a required hook of the application did not succeed.")
        self.conclude()

    # -- results

    def _take(self, result: object) -> None:
        if type(result) is Continue or isinstance(result, Continue):  # the usual one is cheap
            self._keep(result.additional_context, result.system_message)
        elif isinstance(result, Block):
            self._block(as_text(result.reason))
        elif isinstance(result, ModifyInput):
            changed = HookOutput(continue_turn=True, updated_input=result.new_input)
            self._output(changed, called="ModifyInput")
        elif isinstance(result, EndTurn):
            self._end_turn(as_text(result.reason))
        elif isinstance(result, HookOutput):
            self._output(result, called="HookOutput")
        else:
            raise _Unusable("hook_failed", f"it returned {kind_of(result)}{_HOW_TO_RETURN}")

    def _keep(self, additional_context: str | None, system_message: str | None) -> None:
        # Both are read before either is kept: nothing of a result that fails is sent.
        added = None if additional_context is None else as_text(additional_context)
        message = None if system_message is None else as_text(system_message)
        if added is not None:
            self._added += (added,)
        if message is not None:
            self._messages += (message,)

    def _block(self, reason: str) -> None:
        self._doubt_block(blocks=self._rule.block is not None)
        if self._rule.block is not None:
            self._settle(self._rule.block(reason))

    def _end_turn(self, reason: str) -> None:
        beside = self._rule.beside_end(reason) if self._rule.beside_end else {}
        self._settle({"continue": False, "stopReason": reason, **beside})

    def _output(self, output: HookOutput, *, called: str) -> None:
        _check_output(output, called)
        decision = self._top_level(output)
        specific = self._specific(output, called)
        if specific:
            decision["hookSpecificOutput"] = specific
        before = self._added, self._messages, self._quiet
        try:
            self._keep(output.additional_context, output.system_message)
            self._quiet = self._quiet or bool(output.suppress_output)
            if output.continue_turn is False or decision:
                proceed = {} if output.continue_turn is None else {"continue": output.continue_turn}
                self._settle({**proceed, **decision})
        except Exception:  # nothing of an output that fails is sent
            self._added, self._messages, self._quiet = before
            raise

    def _top_level(self, output: HookOutput) -> JsonObject:
        members: JsonObject = {}
        if output.stop_reason is not None:
            members["stopReason"] = as_text(output.stop_reason)
        if output.decision is not None:
            members["decision"] = output.decision
        if output.reason is not None:
            members["reason"] = as_text(output.reason)
        if output.decision == "block":
            self._doubt_block(blocks=self._rule.block in (_decision_block, _deny_tool))
        return members

    def _specific(self, output: HookOutput, called: str) -> JsonObject:
        members: JsonObject = dict(output.specific)
        for name, wire_name in _SPECIFIC_NAMES.items():
            value = getattr(output, name)
            if value is None:
                continue
            if wire_name not in self._rule.specific:
                self._warn("result_ignored", f"{self.event} knows no {name} ({called})")
                continue
            if name == "permission":
                value = self._permission(value)
            elif name == "permission_decision_reason":
                value = as_text(value)
            members[wire_name] = value
        return members

    def _permission(self, result: object) -> JsonObject:
        asked = cast("ToolHookContext", self.context)
        context = CanUseToolContext(tool_name=asked.tool_name, tool_input=asked.tool_input)
        answer = encode_permission(result, context)
        self.warnings += answer.warnings
        return answer.payload

    # -- the answer

    def _settle(self, decision: JsonObject) -> None:
        """Make the answer of a decision and of all that the hooks so far have added."""
        payload = dict(decision)
        specific: JsonObject = dict(payload.pop("hookSpecificOutput", {}))
        carried = "additionalContext" in self._rule.specific
        if self._added and carried:
            specific["additionalContext"] = "\n".join(self._added)
        if specific:
            payload["hookSpecificOutput"] = {**specific, "hookEventName": self.event}
        if self._messages:
            payload["systemMessage"] = "\n".join(self._messages)
        if self._quiet:
            payload["suppressOutput"] = True
        try:
            plain = as_json(payload)
            body = msgspec.json.encode(plain)
        except Exception as error:
            detail = f"its result cannot be sent as JSON: {error}"
            raise _Unusable("unencodable_result", detail) from error
        if self._added and not carried:
            self._warn("result_ignored", f"{self.event} carries no additional context")
        ends = plain.get("continue") is False
        self.answer = HookAnswer(
            body,
            self.warnings,
            ends_turn=ends,
            needs_interrupt=ends and not self._rule.surely_ends,
        )

    def _doubt_block(self, *, blocks: bool) -> None:
        if not blocks:
            self._warn("cannot_block", f"{self.event} cannot be blocked")
        elif not self._rule.surely_blocks:
            self._warn("cannot_block", f"not every CLI lets a hook block {self.event}")

    def _warn(self, kind: str, detail: str) -> None:
        self.warnings += ((kind, detail),)


def _check_output(output: HookOutput, called: str) -> None:
    """Refuse what would make the CLI drop the whole answer, whatever else it says."""
    for name, possible in _POSSIBLE.items():
        value = getattr(output, name)
        if value not in possible:
            raise _Unusable("hook_failed", f"{called}.{name} cannot be {value!r}")
    for name in ("continue_turn", "suppress_output"):
        value = getattr(output, name)
        if value is not None and not isinstance(value, bool):
            raise _Unusable("hook_failed", f"{called}.{name} is {type(value).__name__}, not a bool")
    for name in ("updated_input", "specific"):
        value = getattr(output, name)
        if value is not None and not isinstance(value, Mapping):
            kind = type(value).__name__
            raise _Unusable("hook_failed", f"{called}.{name} is {kind}, not a mapping")
