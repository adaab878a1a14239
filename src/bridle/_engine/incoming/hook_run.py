"""Run one hook callback: call the hooks of an event in order and combine them into one answer.

A gate blocks unless each of its hooks was called and allowed it, or failed in a way that its
`on_error`, `on_timeout` or `on_invalid` lets pass. Nothing here raises for what a hook or the CLI
did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from bridle._engine.incoming.answers import Answer, InvalidResult, InvalidReturn, Warned
from bridle._engine.incoming.callback_contexts import copied, decode_tolerantly
from bridle._engine.incoming.hook_outputs import (
    NO_REASON,
    defers,
    has_lone_reason,
    interrupts,
    read_refusal,
    refusal_of,
    refuse_unknown_members,
)
from bridle._engine.incoming.hook_rules import EventRule, decision_block, deny_permission, rule_of
from bridle._engine.versions import CHANGED_INPUT_SINCE, is_before
from bridle._engine.wire.codec import Unencodable, encode_json
from bridle._records.matchers import Matcher
from bridle._records.raw_line import JsonObject
from bridle.hooks import (
    CONTEXTS,
    Block,
    Continue,
    EndTurn,
    Hook,
    HookContext,
    HookOutput,
    ToolHookContext,
    UnknownHookContext,
)
from bridle.permissions import Deny, bind_raw

#: The fields of `HookOutput` that go into `hookSpecificOutput`.
_SPECIFIC_NAMES: Mapping[str, str] = {
    "permission_decision": "permissionDecision",
    "permission_decision_reason": "permissionDecisionReason",
    "updated_input": "updatedInput",
    "updated_tool_output": "updatedToolOutput",
    "updated_mcp_tool_output": "updatedMCPToolOutput",
    "permission": "decision",
}

#: The fields that decide. At a gate that does not support one of them the output is invalid.
_DECIDING = frozenset({"permission_decision", "updated_input", "permission"})

#: The fields of `hookSpecificOutput` that decide.
_DECISIONS = frozenset({"permissionDecision", "decision"})

#: The context fields in which the following hooks see a changed value.
_SHOWN_AS: Mapping[str, str] = {
    "updatedInput": "tool_input",
    "updatedToolOutput": "tool_response",
    "updatedMCPToolOutput": "tool_response",
}


class PlannedHook(msgspec.Struct, frozen=True):
    """A hook, its timeout in seconds, and the name of its callback."""

    hook: Hook
    timeout: float
    matcher: Matcher
    name: str


class CheckedOutput(msgspec.Struct, frozen=True):
    """A hook output that holds only plain JSON values, and its name in messages.

    Its `permission` is the decision in the CLI's form.
    """

    output: HookOutput
    called: str
    #: The output as the hook gave it, to send if the event does not support it.
    given: JsonObject | None = None


class GivenOutput(msgspec.Struct, frozen=True):
    """An output dict that is not valid, to send to the CLI as it is. ``problem`` says why."""

    given: JsonObject
    problem: str


HookReturn: TypeAlias = Continue | Block | Deny | EndTurn | CheckedOutput | GivenOutput | None
"""The result of a hook, with plain values."""


def decode_context(event: str, wire: JsonObject, tool_use_id: str | None) -> HookContext:
    """Return the context of an event, made from a copy of its input.

    Raises `msgspec.ValidationError` if the event's key field is missing. At a gate it also raises
    if the tool's input is not an object, so that a hook never judges an empty input in its place.
    """
    if event in _TOOL_GATES:
        tool_input = wire.get("tool_input", {})
        if not isinstance(tool_input, dict):
            kind = type(tool_input).__name__
            raise msgspec.ValidationError(f"tool_input is {kind}, not an object")
    told = own = copied(wire)
    if wire.get("hook_event_name") != event:
        told = {**told, "hook_event_name": event}
    if "tool_use_id" not in wire and event in _TOOL_EVENTS:
        # The id beside the input is the tool call's id for these events. For others it is made up.
        told = {**told, "tool_use_id": tool_use_id}
    context = decode_tolerantly(CONTEXTS.get(event, UnknownHookContext), told)
    bind_raw(context, own)
    return context


_TOOL_EVENTS = frozenset(
    event for event, kind in CONTEXTS.items() if issubclass(kind, ToolHookContext)
)
_TOOL_GATES = frozenset(event for event in _TOOL_EVENTS if rule_of(event).is_gate)


class HookAnswer(Answer, frozen=True):
    """The answer to one hook callback.

    `ends_turn`: a hook requested the end of the turn. `needs_interrupt`: not every CLI ends the
    turn on this answer, so the sender of the answer must interrupt it.
    """

    ends_turn: bool = False
    needs_interrupt: bool = False
    #: True if the answer refuses what the event is about.
    refuses: bool = False
    #: True if the answer lets a tool call wait for a person's decision.
    defers: bool = False

    @property
    def refusal(self) -> str:
        """Return the reason of an answer of PreToolUse that refuses."""
        specific: JsonObject = self.payload.get("hookSpecificOutput") or {}
        return str(specific.get("permissionDecisionReason") or NO_REASON)

    @property
    def reason(self) -> str:
        """Return the reason to end the turn, or else to block; "" if there is none."""
        reason = self.payload.get("stopReason" if self.ends_turn else "reason")
        return reason if isinstance(reason, str) else ""


class HookVerdict(msgspec.Struct, frozen=True):
    """A hook has ended the turn, or has answered about a prompt."""

    event: str
    answer: HookAnswer


Decided: TypeAlias = HookVerdict | None
"""What a hook has decided about the turn, if it has."""

_ENDED_BY_NEWER_CLIS = frozenset({"PreToolUse", "PermissionRequest"})
"""Events at which newer CLIs end the turn, while older ones only skip the tool."""


def needs_interrupt(event: str, answer: HookAnswer, *, older: bool) -> bool:
    """Return True if an interrupt must follow this answer to end the turn."""
    return answer.needs_interrupt and (older or event not in _ENDED_BY_NEWER_CLIS)


# Texts for the model. They leave out details, which may be confidential.
_INVALID = "Blocked because a hook of the application returned an invalid value."
_FAILED = "Blocked because a required hook of the application did not succeed."
_LATE = "Blocked because a hook of the application did not answer in time."
_OLD_CLI = f"Blocked because the CLI must be {CHANGED_INPUT_SINCE} or newer to change an input."
_NOT_ASKED = "Blocked because the hooks of the application could not be asked."

_GO_ON = HookAnswer(b'{"continue":true}')
"""The answer of most hooks."""


class HookRun(msgspec.Struct):
    """One hook callback in progress: which hook to call next, until there is an answer.

    Call the first hook in `waiting` with `context`, and report `done` or `failed`. Repeat until
    `answer` is set. Reports after the answer are ignored.
    """

    event: str
    #: The input from the wire, with the changes that hooks have made so far.
    wire: JsonObject
    tool_use_id: str | None
    #: The hooks to call, the next one first.
    waiting: tuple[PlannedHook, ...]
    #: A description of the event for logs.
    label: str = "unknown hook"
    #: The argument of the next hook. Each hook gets its own copy of the input.
    context: HookContext = UnknownHookContext()
    #: The answer to send. None while there is a hook to call.
    answer: HookAnswer | None = None
    #: True if the CLI blocks when it cannot read the output of a hook with ``on_error="block"``.
    cli_blocks: bool = False
    cli_version: str | None = None  #: None if it is not known
    #: The id under which the CLI knows the hooks.
    callback_id: str = ""
    _added: tuple[str, ...] = ()
    _messages: tuple[str, ...] = ()
    _quiet: bool = False
    #: Fields of `hookSpecificOutput` that stay whatever the following hooks decide, except for a
    #: refusal: a changed input or output, a deferral.
    _kept: JsonObject = {}
    #: Warnings that have not been given yet.
    warnings: tuple[Warned, ...] = ()
    #: The answer of the other hooks while the last one is called, and whether that one was called.
    _held: HookAnswer | None = None
    _has_called_last: bool = False

    @property
    def needs_last(self) -> bool:
        """True if the answer lets the tool run and the last hook was not called yet."""
        return self.answer is not None and not self._has_called_last and self.lets_run

    @property
    def lets_run(self) -> bool:
        """True if the answer lets the tool of PreToolUse run, as far as hooks decide it."""
        return self.event == "PreToolUse" and not (self.settled.refuses or self.settled.defers)

    def call_last(self, hook: PlannedHook) -> None:
        """Call one more hook before the answer takes effect. It can only refuse."""
        self._has_called_last = True
        self._held, self.answer, self.waiting = self.answer, None, (hook,)
        self._go_on()

    def conclude(self) -> None:
        """Let the CLI go on if no hook is left to call and none has decided."""
        if self.waiting or self.answer is not None:
            return
        if self._held is not None:
            self.answer = msgspec.structs.replace(self._held, warnings=self.warnings)
        else:
            self._conclude()

    def _conclude(self) -> None:
        if not (self._added or self._messages or self._quiet or self._kept or self.warnings):
            self.answer = _GO_ON
            return
        try:
            self._settle({"continue": True})
        except InvalidResult as invalid:  # a changed value that is nested too deeply
            self.warn("unencodable_result", f"{self.label}: {invalid}")
            self._kept = {}
            if self._rule.is_gate:
                self._block(_INVALID)
            else:
                self._settle({"continue": True})

    def take_warnings(self) -> tuple[Warned, ...]:
        """Remove and return the warnings so far. The answer carries only later ones."""
        warnings, self.warnings = self.warnings, ()
        return warnings

    @property
    def _who(self) -> str:
        """Return the label and the name of the current hook. An event may have several hooks."""
        names = (planned.name for planned in self.waiting)
        return f"{self.label} ({next(names, 'unknown')})"

    @property
    def _rule(self) -> EventRule:
        return rule_of(self.event)

    def done(self, result: HookReturn | InvalidReturn) -> None:
        """Take the result of the current hook."""
        if self.answer is not None:
            return
        if result is not None:
            try:
                self._take(result)
            except InvalidResult as invalid:
                given = result.given if isinstance(result, CheckedOutput) else None
                if given is None or not self._sent(given, str(invalid)):
                    self.invalid(str(invalid), invalid.kind)
                    return
        self.waiting = self.waiting[1:]
        self._go_on()

    def invalid(self, detail: str, kind: str | None = None) -> None:
        """Note that the current hook returned an invalid value. A gate blocks."""
        if self.answer is not None:
            return
        kind = kind or "hook_failed"
        if self._rule.is_gate:
            self.warn(kind, f"{self._who}: {detail}")
            self._block(_INVALID)
        else:
            self.failed(kind, f"{self._who}: {detail}")

    def failed(self, kind: str, detail: str) -> None:
        """Note that the current hook raised or timed out. It says itself what happens then."""
        if self.answer is None:
            self.warn(kind, detail)
            failed, self.waiting = self.waiting[:1], self.waiting[1:]
            on_timeout = failed[0].hook.on_timeout if failed and kind == "hook_timed_out" else None
            if on_timeout == "block":
                self._block(_LATE)
            self._fail(failed if on_timeout is None else ())

    def refuse(self) -> None:
        """Skip the hooks that are left, because none of them can be called. A gate blocks."""
        if self.answer is not None:
            return
        left, self.waiting = self.waiting, ()
        if self._rule.is_gate:
            self._block(_NOT_ASKED)
        else:
            self._fail(left)

    def close(self, reason: str) -> HookAnswer:
        """Skip the hooks that are left, because the session is closing."""
        if self.answer is None:
            self.waiting = ()
            if self._rule.is_gate:
                self._block(reason)
            else:
                self.answer = HookAnswer(b"{}", self.warnings)
        return self.settled

    @classmethod
    def unasked(cls, event: str) -> HookRun:
        """Return a run without hooks, which lets the CLI go on."""
        return cls(event, {}, None, (), answer=_GO_ON)

    def defer(self) -> None:
        """Defer the call in place of the answer, which lets it run."""
        self._kept, self.answer = {**self._kept, "permissionDecision": "defer"}, None
        self.conclude()

    def deny_deferral(self, problem: str) -> None:
        """Deny a call that a hook deferred and that cannot wait. ``problem`` says why."""
        self.warn("cannot_defer", f"{self.label}: {problem}")
        self._block(problem)

    @property
    def reply(self) -> Answer:
        """Return the answer to the request that the run belongs to."""
        return self.settled

    @property
    def settled(self) -> HookAnswer:
        """Return the answer of a run that has no hook left to call."""
        assert self.answer is not None, "every way to give up on the hooks makes an answer"
        return self.answer

    def _fail(self, hooks: Sequence[PlannedHook]) -> None:
        if any(planned.hook.on_error == "block" for planned in hooks):
            self._block(_FAILED)
        self._go_on()

    def _go_on(self) -> None:
        """Make the argument of the next hook, or conclude."""
        if self.answer is None and self.waiting:
            try:
                self.context = decode_context(self.event, self.wire, self.tool_use_id)
            except (msgspec.ValidationError, RecursionError) as error:
                self.warn("hook_failed", f"the input of {self.event} cannot be read: {error}")
                self.refuse()
        self.conclude()

    def warn(self, kind: str, detail: str) -> None:
        """Add a warning."""
        self.warnings += ((kind, detail),)

    # -- results

    def _take(self, result: HookReturn | InvalidReturn) -> None:
        if isinstance(result, Continue):
            self._keep(result.additional_context, result.system_message)
        elif isinstance(result, Block):
            self._block(result.reason)
        elif isinstance(result, Deny):
            self._deny(result.reason, interrupt=result.interrupt)
        elif isinstance(result, EndTurn):
            self._end_turn(result.reason)
        elif isinstance(result, CheckedOutput):
            self._output(result.output, result.called)
        elif isinstance(result, GivenOutput):
            if not self._sent(result.given, result.problem):
                raise InvalidResult(result.problem)
        elif isinstance(result, InvalidReturn):
            raise InvalidResult(result.problem, result.kind)

    def _keep(self, additional_context: str | None, system_message: str | None) -> None:
        if additional_context is not None:
            self._added += (additional_context,)
        if system_message is not None:
            self._messages += (system_message,)

    def _block(self, reason: str) -> None:
        self._doubt_block(blocks=self._rule.block is not None)
        if self._rule.block is not None:
            self._settle(self._rule.block(reason), refuses=self._rule.is_gate)

    def _deny(self, reason: str, *, interrupt: bool) -> None:
        """Block. End the turn as well if ``interrupt`` is set and the event supports it."""
        if not interrupt or self._rule.beside_end is None:
            self._block(reason)
        elif self._rule.block is deny_permission:
            self._settle(self._rule.beside_end(reason), refuses=True)
        else:
            self._end_turn(reason)

    def _end_turn(self, reason: str, beside: JsonObject | None = None) -> None:
        if beside is None:
            beside = self._rule.beside_end(reason) if self._rule.beside_end else {}
        ending = {"continue": False, "stopReason": reason, **beside}
        self._settle(ending, refuses=self._rule.is_gate)

    def _output(self, output: HookOutput, called: str) -> None:
        rule = self._rule
        before = self._added, self._messages, self._quiet, self._kept, self.wire, self.warnings
        try:
            self._keep(output.additional_context, output.system_message)
            self._quiet = self._quiet or bool(output.suppress_output)
            if not (rule.is_gate and self._refused(output)):
                if rule.is_gate:
                    refuse_unknown_members(output, called, self.event, rule.specific)
                self._accept(output, called)
        except InvalidResult:  # send no part of an invalid output
            self._added, self._messages, self._quiet, self._kept, self.wire, self.warnings = before
            raise

    def _sent(self, given: JsonObject, problem: str) -> bool:
        """Answer with an output that is not valid. Return False if it cannot be sent.

        What it refuses is refused, and a call that it defers is deferred, although the CLI may
        ignore an output that it cannot read. A hook that must not fail needs a CLI that blocks
        then.
        """
        if self._rule.is_gate and self._refused(read_refusal(given)):
            return True
        if self.event == "PreToolUse" and defers(given):
            self.warn("hook_failed", f"{self._who}: {problem}; the call is deferred")
            self._kept = {"permissionDecision": "defer"}
            return True
        must_succeed = self.waiting[0].hook.on_error == "block"
        if must_succeed and not self.cli_blocks:
            return False
        try:
            body = encode_json(given)
        except Unencodable:
            return False
        self.warn("hook_failed", f"{self._who}: {problem}; the CLI decides what it means")
        ends = given.get("continue") is False
        ends_late = ends and not self._rule.surely_ends
        self.answer = HookAnswer(
            body,
            self.warnings,
            ends_turn=ends,
            needs_interrupt=ends_late,
            refuses=must_succeed and self._rule.is_gate,
        )
        return True

    def _refused(self, output: HookOutput) -> bool:
        """Settle an output that refuses in any form. Return True if it does.

        The answer uses the form of the event and contains nothing else: another field could
        contradict the refusal, or make the CLI drop it.
        """
        if has_lone_reason(output):
            raise InvalidResult("it gives a reason but no decision; return Block(reason) to block")
        reason = refusal_of(output)
        if output.continue_turn is False:
            text = output.stop_reason or reason or output.reason or ""
            refusal = self._rule.beside_end or (self._rule.block if reason else None)
            self._end_turn(text, refusal(reason or text) if refusal else {})
        elif reason is not None:
            self._deny(reason, interrupt=interrupts(output))
        return self.answer is not None

    def _accept(self, output: HookOutput, called: str) -> None:
        """Take an output that does not refuse, or that belongs to an event that is not a gate."""
        decision = self._top_level(output)
        specific = self._specific(output, called)
        if "updatedInput" in specific and is_before(self.cli_version, CHANGED_INPUT_SINCE):
            self.warn("hook_failed", f"{called}: CLI {self.cli_version} ignores a changed input")
            self._block(_OLD_CLI)
            return
        for wire_name, shown_as in _SHOWN_AS.items():
            if wire_name in specific:
                changed = specific.pop(wire_name)
                if wire_name == "updatedInput" and not changed and self.wire.get("tool_input"):
                    problem = "has an empty input: a CLI then runs the original one"
                    raise InvalidResult(f"{called} {problem}")
                self._kept = {**self._kept, wire_name: changed}
                self.wire = {**self.wire, shown_as: changed}
        # At a gate, fields other than a decision let the following hooks decide.
        settles = specific.get("permissionDecision") != "defer" and (
            output.continue_turn is False
            or "decision" in decision
            or not specific.keys().isdisjoint(_DECISIONS)
            or bool(specific and not self._rule.is_gate)
        )
        if settles:
            proceed = {} if output.continue_turn is None else {"continue": output.continue_turn}
            self._settle({**proceed, **decision, "hookSpecificOutput": specific})
        elif specific:
            self._kept = {**self._kept, **specific}

    def _top_level(self, output: HookOutput) -> JsonObject:
        members: JsonObject = {}
        if output.stop_reason is not None:
            members["stopReason"] = output.stop_reason
        if output.decision is not None:
            members["decision"] = output.decision
        if output.reason is not None:
            members["reason"] = output.reason
        if output.decision == "block":
            self._doubt_block(blocks=self._rule.block is decision_block)
        return members

    def _specific(self, output: HookOutput, called: str) -> JsonObject:
        members: JsonObject = dict(output.specific)
        if self._rule.block is deny_permission and "decision" in members:
            # Older CLIs deny an allow without its input.
            tool_input: JsonObject = self.wire.get("tool_input") or {}
            members["decision"] = {"updatedInput": tool_input, **members["decision"]}
        for name, wire_name in _SPECIFIC_NAMES.items():
            value = getattr(output, name)
            if value is None:
                continue
            if wire_name not in self._rule.specific:
                if self._rule.is_gate and name in _DECIDING:
                    raise InvalidResult(f"{self.event} does not support {name} ({called})")
                self.warn("result_ignored", f"{self.event} does not support {name} ({called})")
                continue
            members[wire_name] = value
        return members

    # -- the answer

    def _settle(self, decision: JsonObject, *, refuses: bool = False) -> None:
        """Make the answer from a decision and from everything that the hooks so far have added.

        A refusal leaves out the values they have changed.
        """
        payload = dict(decision)
        specific: JsonObject = dict(payload.pop("hookSpecificOutput", {}))
        defers = not refuses and "permissionDecision" in self._kept
        if not refuses:
            specific.update(self._kept)
        if defers:  # which an approval of another hook does not undo
            payload.pop("decision", None)
            # The hooks run again before the call does, and then change its input.
            specific.pop("updatedInput", None)
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
            body = encode_json(payload)
        except Unencodable as error:
            raise InvalidResult(f"its result {error}", "unencodable_result") from error
        if self._added and not carried:
            self.warn("result_ignored", f"{self.event} does not support additional context")
        ends = payload.get("continue") is False
        self.answer = HookAnswer(
            body,
            self.warnings,
            ends_turn=ends,
            needs_interrupt=ends and not self._rule.surely_ends,
            refuses=refuses,
            defers=defers and self.event == "PreToolUse",
        )

    def _doubt_block(self, *, blocks: bool) -> None:
        if not blocks:
            self.warn("cannot_block", f"{self.event} cannot be blocked")
        elif not self._rule.surely_blocks:
            self.warn("cannot_block", f"not every CLI lets a hook block {self.event}")
