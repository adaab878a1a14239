"""Keep the tool call of a session that waits for a person, and apply the person's decision.

A call that a hook defers ends its turn, and a later session resumes it. Two things are needed then.
Every CLI must ask for permission before it runs the call, and the answer is the person's decision.
Before that answer the hooks of PreToolUse run again: as the CLI asks for them, or, on CLIs that do
not ask for them, when it asks for permission.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from bridle._engine.incoming.answers import Answer, InvalidResult
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.hook_run import HookAnswer, HookRun
from bridle._engine.session_state import SessionState
from bridle._engine.versions import Version, is_since
from bridle._engine.wire.codec import encode_json
from bridle._records.raw_line import JsonObject
from bridle.approvals import PendingApproval
from bridle.approvals._rules import ApprovalRule
from bridle.controls import CanUseToolRequest, HookCallbackRequest
from bridle.hooks import HookOutput
from bridle.messages import ResultMessage
from bridle.tools import ToolServer
from bridle.tools._cli_tools import is_known, names_of

PRE_TOOL_USE = "PreToolUse"
_PERMISSION_REQUEST = "PermissionRequest"

DEFER_SINCE = Version(2, 1, 197)
"""The oldest CLI that was seen to defer calls. An older one might run the tool instead."""

AWAIT_INITIALIZE_SINCE = Version(2, 1, 325)
"""The oldest CLI that was seen to wait for the handshake before it resumes a call."""

_MAX_INPUT = 512 << 10
"""Bytes of an input. The CLI looks for a call that waits in the last MiB of the transcript only."""

_OTHER_WAITS = "another call is waiting for approval"
_SUBAGENT = "a call of a subagent cannot wait for approval"
_NO_ID = "the CLI did not name the call"
_TOO_LARGE = "its input is too large for a call that waits for approval"
_TOO_OLD = f"the CLI must be {DEFER_SINCE} or newer to let a call wait for approval"


class Gate(Struct, frozen=True):
    """The calls that wait for approval although no hook defers them."""

    rules: tuple[ApprovalRule, ...] = ()
    #: The tool servers of the session by name. They can change.
    servers: Mapping[str, ToolServer] = {}

    @property
    def is_open(self) -> bool:
        """True if no call has to wait."""
        return not self.rules and not any(one.approving() for one in self.servers.values())

    def holds(self, tool_name: str, tool_input: object) -> bool:
        """Return True if a call has to wait. One without a name has to."""
        if self.is_open or not tool_name:
            return not self.is_open
        names, known = names_of(tool_name), is_known(tool_name)
        return any(rule.concerns(names, tool_input, is_known=known) for rule in self.rules) or any(
            f"mcp__{server}__{tool}" in names
            for server, one in self.servers.items()
            for tool in one.approving()
        )


class Approval(Struct, frozen=True, kw_only=True):
    """A call that a session resumes, and the decision about it."""

    pending: PendingApproval
    #: The decision as the CLI takes it in response to a permission request.
    decision: JsonObject
    #: The id of the resumed turn.
    uuid: str

    @property
    def tool_input(self) -> JsonObject:
        """The input that the person decided on."""
        changed: JsonObject | None = self.decision.get("updatedInput")
        return self.pending.tool_input if changed is None else changed


class ApprovalRun(HookRun):
    """The hooks of PreToolUse before a decision takes effect.

    A hook can refuse the call, change its input and add context. Other decisions of a hook have no
    effect, because the person has decided.
    """

    approval: Approval | None = None
    #: True if the CLI asked for these hooks. False if a permission request made them run.
    is_asked_for: bool = True
    #: True if the run belongs to a permission request.
    is_for_permission: bool = False

    @property
    def lets_run(self) -> bool:
        """True if the answer is that of the permission request, and lets the call run."""
        return self.is_for_permission and self.allows

    def _conclude(self) -> None:
        """Make the CLI ask for permission, because no hook has refused."""
        asking: JsonObject = {"permissionDecision": "ask"}
        if self._is_changed:
            asking["updatedInput"] = self.wire["tool_input"]
        try:
            self._settle({"hookSpecificOutput": asking})
        except InvalidResult as invalid:  # nested too deeply
            self.invalid(str(invalid), invalid.kind)

    @property
    def reply(self) -> Answer:
        """Return the answer to the request that the run belongs to."""
        answer = self.settled
        if not self.is_for_permission:
            return answer
        warnings = () if self.is_asked_for else answer.warnings
        if self._added and not self.is_asked_for:
            problem = f"{self.label}: this CLI ignores additional context for a resumed call"
            warnings += (("result_ignored", problem),)
        return Answer(encode_json(self._permission(answer)), warnings)

    def close(self, reason: str) -> HookAnswer:
        """Refuse the call, because the session is closing."""
        self.answer = None
        return super().close(reason)

    @property
    def allows(self) -> bool:
        """True if the answer to the permission request lets the call run."""
        return self._permission(self.settled).get("behavior") == "allow"

    def _permission(self, answer: HookAnswer) -> JsonObject:
        """Return the answer to the permission request: the refusal of a hook, or the decision."""
        assert self.approval is not None, "set with the run"
        if answer.refuses:
            denial: JsonObject = {"behavior": "deny", "message": answer.refusal}
            return {**denial, "interrupt": True} if answer.ends_turn else denial
        decision = self.approval.decision
        if decision.get("behavior") != "allow":
            return decision
        return {**decision, "updatedInput": self.wire["tool_input"]}

    @property
    def _is_changed(self) -> bool:
        assert self.approval is not None, "set with the run"
        return bool(self.wire["tool_input"] != self.approval.pending.tool_input)

    def _accept(self, output: HookOutput, called: str) -> None:
        undecided = structs.replace(output, decision=None, permission_decision=None)
        super()._accept(undecided, called)


class Approvals:
    """The call that a session resumes, and the call that it has deferred.

    ``gate`` says which calls wait without a hook.
    """

    def __init__(
        self,
        resumed: Approval | None = None,
        gate: Gate | None = None,
        state: SessionState | None = None,
    ) -> None:
        self.resumed = resumed
        self._gate = gate or Gate()
        self.state = state or SessionState()
        # The hooks that have run before the decision.
        self._run: ApprovalRun | None = None
        #: True once the CLI has begun the resumed turn.
        self.has_begun = False
        # True once the CLI has an answer about the resumed call, and if it was allowed.
        self._is_decided = False
        self._is_allowed = False
        # The input of the hook that deferred a call.
        self._deferred: JsonObject | None = None
        # True if the turn went on after it deferred a call.
        self._went_on = False
        #: The call that waits. Set when its turn ends.
        self.waiting: PendingApproval | None = None

    # -- deferring ---------------------------------------------------------------------------------

    @property
    def deferred(self) -> tuple[str, str] | None:
        """The name and the id of the deferred call. None if no call is deferred."""
        if self.waiting is not None:
            return self.waiting.tool_name, self.waiting.tool_use_id
        if self._deferred is not None:
            return str(self._deferred.get("tool_name")), str(self._deferred.get("tool_use_id"))
        return None

    def defer(self, run: HookRun, problem: str | None) -> None:
        """Let the call of a run wait, or deny it if it cannot wait.

        ``problem`` says why no call of the running turn can wait. None if one can.
        """
        call = {**run.wire, "tool_use_id": run.wire.get("tool_use_id") or run.tool_use_id}
        if self.deferred is not None:
            problem = _OTHER_WAITS
        elif call.get("agent_id"):
            problem = _SUBAGENT
        elif not call["tool_use_id"]:
            problem = _NO_ID
        elif not is_since(self.state.cli_version, DEFER_SINCE):
            problem = _TOO_OLD
        elif len(encode_json(call.get("tool_input"))) > _MAX_INPUT:
            problem = _TOO_LARGE
        if problem is None:
            self._deferred, self._went_on = call, False
        else:
            run.deny_deferral(problem)

    def hold(self, run: HookRun) -> None:
        """Defer the call of a run if the gate holds it and the hooks would let it run.

        The run of the resumed call is left alone, because the person has decided.
        """
        if type(run) is HookRun and run.needs_last:
            name, given = run.wire.get("tool_name"), run.wire.get("tool_input")
            if self._gate.holds(str(name or ""), given):
                run.defer()

    def note_call(self, tool_use_id: str | None) -> None:
        """Note that the CLI is about to run a call."""
        deferred = self._deferred
        if deferred is not None and tool_use_id != deferred["tool_use_id"]:
            self._went_on = True

    def hides_result(self, result: ResultMessage | None) -> bool:
        """Return True if the model will not see the result of the call that waits.

        This happens on 2.1.197 if the turn went on after the call was deferred: with another call
        of the same message, or because the hook answered before the message ended.
        """
        if self.waiting is None or result is None:
            return False
        went_on = self._went_on or result.terminal_reason != "tool_deferred"
        return went_on and not is_since(self.state.cli_version, AWAIT_INITIALIZE_SINCE)

    def end_turn(
        self, uuid: str, result: ResultMessage | None, cwd: str | None
    ) -> PendingApproval | None:
        """Return the call that waits after the turn of prompt ``uuid``, or None."""
        deferred, self._deferred = self._deferred, None
        named = None if result is None else result.deferred_tool_use
        resumed = self.resumed
        found: PendingApproval | None = None
        if resumed is not None and uuid == resumed.uuid and self.awaits_decision:
            # A result without the call means that the CLI dropped it, for example at an interrupt.
            if result is None or (named is not None and named.id == resumed.pending.tool_use_id):
                found = resumed.pending
        elif result is not None and named is not None and named.id:
            about = deferred if deferred and deferred.get("tool_use_id") == named.id else {}
            found = PendingApproval(
                session_id=result.session_id or "",
                tool_name=named.name,
                tool_input=named.input,
                tool_use_id=named.id,
                cwd=_text(about.get("cwd")) or cwd,
                transcript_path=_text(about.get("transcript_path")),
                permission_mode=_text(about.get("permission_mode")),
                cli_version=self.state.cli_version,
            )
        self.waiting = found or self.waiting
        return found

    def begin_turn(self) -> str | None:
        """Note that the CLI begins a turn. Return the id of a call that waits.

        The call still waits: the CLI runs it when the conversation is resumed. But the model has
        read that its result is missing.
        """
        self.has_begun = True
        return None if self.waiting is None else self.waiting.tool_use_id

    # -- resuming ----------------------------------------------------------------------------------

    def concerns(self, tool_use_id: str | None) -> bool:
        """Return True if a request is about the resumed call."""
        return self.resumed is not None and tool_use_id == self.resumed.pending.tool_use_id

    @property
    def awaits_decision(self) -> bool:
        """True until the CLI has an answer about the resumed call."""
        return self.resumed is not None and not self._is_decided

    def begin_hooks(self, plan: HookPlan, body: HookCallbackRequest) -> HookRun:
        """Start the hooks of an event about the resumed call."""
        self.has_begun = True
        event = plan.event_of(body.callback_id)
        if event == _PERMISSION_REQUEST:
            # The person has decided in place of these hooks.
            return HookRun.unasked(event)
        if event != PRE_TOOL_USE:
            return plan.begin(body.callback_id, body.input, body.tool_use_id)
        return self._begin(plan, body.callback_id, body.input)

    def begin_permission(
        self, plan: HookPlan, body: CanUseToolRequest, session_id: str
    ) -> ApprovalRun:
        """Start the hooks of PreToolUse for a permission request, unless they have run."""
        self.has_begun = True
        assert self.resumed is not None, "there is a call to ask about"
        if self._run is not None and self._run.answer is not None:
            self._run.is_for_permission = True
            return self._run
        pending = self.resumed.pending
        wire: JsonObject = {
            "session_id": session_id or pending.session_id,
            "transcript_path": pending.transcript_path or "",
            "cwd": pending.cwd or "",
            "permission_mode": pending.permission_mode,
            "hook_event_name": PRE_TOOL_USE,
            "tool_name": body.tool_name,
            "tool_use_id": pending.tool_use_id,
        }
        return self._begin(plan, plan.id_of(PRE_TOOL_USE), wire, is_asked_for=False)

    def _begin(
        self, plan: HookPlan, callback_id: str, wire: JsonObject, *, is_asked_for: bool = True
    ) -> ApprovalRun:
        approval = self.resumed
        assert approval is not None, "there is a call to ask about"
        run = ApprovalRun(
            PRE_TOOL_USE,
            {},
            approval.pending.tool_use_id,
            (),
            approval=approval,
            is_asked_for=is_asked_for,
            is_for_permission=not is_asked_for,
        )
        plan.fill(run, callback_id, {**wire, "tool_input": approval.tool_input})
        self._run = run
        return run

    def forbids(self, tool_use_id: str | None, tool_name: str | None = None) -> bool:
        """Return True if a call of an in-process tool is not to run now.

        The resumed call runs only if it was allowed. Another call of a tool that needs an approval
        does not run, even if the CLI did not ask for the hooks. ``tool_name`` is None for a message
        that is not a call.
        """
        if self.concerns(tool_use_id):
            return not self._is_allowed
        return tool_name is not None and self._gate.holds(tool_name, None)

    def answered(self, run: HookRun) -> None:
        """Note the answer of a run."""
        if isinstance(run, ApprovalRun) and (run.is_for_permission or run.settled.refuses):
            self._is_decided = True
            self._is_allowed = run.is_for_permission and run.allows

    def give_up(self) -> None:
        """Note that the CLI has no call to resume."""
        self._is_decided = True


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
