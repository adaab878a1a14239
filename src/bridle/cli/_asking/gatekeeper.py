"""Answer the permission requests and questions of the CLI during ``bridle run``.

The policy answers first. If it does not decide, the user answers, or ``--yes`` or ``--deny``. The
model gets the reason of a denial. The view gets the name of whoever decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

from bridle.cli._asking import terminal_dialogs as dialogs
from bridle.cli._policy.policy import Policy, Ruling
from bridle.cli._screens.printable import one_line
from bridle.cli._screens.screens import Screen
from bridle.cli._screens.shown import Note, Span
from bridle.cli._screens.view import WARN, Verdict, View, allowed, denied
from bridle.hooks import (
    Block,
    Hook,
    HookOutput,
    HookResult,
    PreToolUseContext,
    UserPromptSubmitContext,
)
from bridle.permissions import (
    Allow,
    AllowAll,
    AllowOnce,
    Cancel,
    CanUseToolContext,
    Deny,
    Edit,
    ElicitationAnswer,
    ElicitationRequestContext,
    PermissionResult,
    PlanContext,
    PlanResult,
    QuestionContext,
    QuestionResult,
)

_Asked = TypeVar("_Asked", bound=CanUseToolContext)
_Result = TypeVar("_Result", bound=PermissionResult | QuestionResult | Block)

Otherwise = Literal["ask", "yes", "deny", "absent"]
"""How to answer if the policy does not decide: ask the user, use --yes or --deny, or deny because
there is no terminal."""

_SETTLED: Mapping[Otherwise, Verdict] = {
    "yes": allowed("allowed by --yes"),
    "deny": denied("denied by --deny"),
    "absent": denied("denied: there is no terminal to ask on"),
}
_TO_MODEL: Mapping[Otherwise, str] = {
    "deny": "The user denies all permission requests in this run.",
    "absent": "No user is available to give permission.",
}
_BY_POLICY = "The permission policy of this run denies this call."
_UNANSWERED = "No user is available to answer. Decide yourself, and state your assumptions."
_CATCH_UP = 50
"""Event loop iterations to wait until the view has the messages sent before a question."""


class Gatekeeper:
    """Answer the incoming requests of one run. ``clock`` returns the time that the view uses."""

    def __init__(
        self,
        view: View,
        screen: Screen,
        clock: Callable[[], float],
        *,
        policy: Policy | None = None,
        otherwise: Otherwise = "absent",
    ) -> None:
        self._view = view
        self._screen = screen
        self._clock = clock
        self._policy = policy or Policy()
        self._otherwise: Otherwise = otherwise
        # Permission requests overlap, but the user answers one at a time.
        self._turn = asyncio.Lock()
        # The working directory of each call. Only the PreToolUse hook contains it.
        self._directories: dict[str, str] = {}
        self._has_seen_prompt = False

    # -- hooks: calls that the CLI may run without asking ------------------------------------------

    @property
    def hooks(self) -> Mapping[str, Sequence[Hook]] | None:
        """Return the hooks that enforce the policy, if there is one. If they fail, they block."""
        if not self._policy.is_given:
            return None
        return {
            "UserPromptSubmit": [Hook(self.before_prompt, on_error="block")],
            "PreToolUse": [Hook(self.before_tool, on_error="block")],
        }

    @property
    def is_bypassed(self) -> bool:
        """True if there is a policy but the CLI did not run the hook of the prompt.

        Check this when the model begins to answer, because the hook runs before that.
        """
        return self._policy.is_given and not self._has_seen_prompt

    async def before_prompt(self, context: UserPromptSubmitContext) -> None:
        """Note that the CLI runs hooks."""
        self._has_seen_prompt = True

    async def before_tool(self, context: PreToolUseContext) -> HookResult | None:
        """Return the decision of the policy on a call that is about to run.

        The CLI runs this hook for every call, also for those that need no permission. If the user
        must be asked, the decision makes the CLI send a permission request.
        """
        if context.tool_use_id:
            self._directories[context.tool_use_id] = context.cwd
        ruling = self._policy.decide(context.tool_name, context.tool_input, context.cwd or None)
        if not ruling.is_binding:
            return None
        if ruling.decision == "ask":
            reason = ruling.reason or f"policy rule {ruling.rule}"
            return HookOutput(permission_decision="ask", permission_decision_reason=reason)
        return self._decided(context, Block(ruling.reason or _BY_POLICY), _verdict(ruling))

    def _ruling(self, context: CanUseToolContext) -> Ruling:
        directory = self._directories.pop(context.tool_use_id or "", None)
        return self._policy.decide(context.tool_name, context.tool_input, directory or None)

    # -- tools -------------------------------------------------------------------------------------

    async def can_use_tool(self, context: CanUseToolContext) -> PermissionResult:
        """Answer a permission request for a tool."""
        settled = self._settled(context, AllowOnce())
        return settled or await self._with_person(context, self._ask_permission)

    def _settled(self, context: CanUseToolContext, allow: _Result) -> _Result | Deny | None:
        """Return the answer of the policy, --yes or --deny; None if the user must be asked."""
        ruling = self._ruling(context)
        if ruling.decision == "ask":
            verdict = _SETTLED.get(self._otherwise)
            why = _TO_MODEL.get(self._otherwise, "")
        else:
            verdict = _verdict(ruling)
            why = ruling.reason or _BY_POLICY
        if verdict is None:
            return None
        return self._decided(context, allow if verdict.is_allowed else Deny(why), verdict)

    async def _ask_permission(self, context: CanUseToolContext) -> PermissionResult:
        result = await dialogs.ask_permission(self._screen, context)
        match result:
            case Deny():
                return self._refused(context, result)
            case AllowAll():
                return self._decided(context, result, allowed("always allowed by you"))
            case Edit():
                edited = allowed("edited by you", tool_input=result.new_input)
                return self._decided(context, result, edited)
            case AllowOnce():
                return self._decided(context, result, allowed("allowed by you"))

    def _decided(
        self, context: CanUseToolContext | PreToolUseContext, result: _Result, verdict: Verdict
    ) -> _Result:
        self._view.decided(context.tool_use_id or "", verdict, self._clock())
        return result

    def _refused(self, context: CanUseToolContext, result: Deny) -> Deny:
        said = "" if result.reason == dialogs.NO else result.reason
        return self._decided(context, result, denied("denied by you", said))

    async def _with_person(
        self, context: _Asked, ask: Callable[[_Asked], Awaitable[_Result]]
    ) -> _Result:
        """Wait for earlier questions and for the messages sent before this one, then ask."""
        call = context.tool_use_id or ""
        async with self._turn:
            for _ in range(_CATCH_UP):
                if self._view.input_of(call) is not None:
                    break
                await asyncio.sleep(0)
            self._view.asking(call, waits=True)
            try:
                return await ask(context)
            finally:
                self._view.asking(call, waits=False)

    # -- plans and questions -----------------------------------------------------------------------

    async def plan(self, context: PlanContext) -> PlanResult:
        """Answer whether a plan is approved."""
        settled = self._settled(context, Allow())
        return settled or await self._with_person(context, self._ask_plan)

    async def _ask_plan(self, context: PlanContext) -> PlanResult:
        # Some CLI versions omit the plan from the request. The tool call contains it.
        call = self._view.input_of(context.tool_use_id or "") or {}
        text = context.plan or call.get("plan")
        shown = text if isinstance(text, str) else None
        result = await dialogs.ask_plan(self._screen, context, shown)
        if isinstance(result, Deny):
            return self._refused(context, result)
        return self._decided(context, result, allowed("approved by you"))

    async def question(self, context: QuestionContext) -> QuestionResult:
        """Answer the questions of the model."""
        ruling = self._ruling(context)
        if ruling.decision == "deny" or self._otherwise != "ask":
            nobody = denied("unanswered: there is no terminal to ask on")
            return self._decided(context, Deny(ruling.reason or _UNANSWERED), nobody)
        return await self._with_person(context, self._ask_questions)

    async def _ask_questions(self, context: QuestionContext) -> QuestionResult:
        result = await dialogs.ask_questions(self._screen, context)
        is_dismissed = isinstance(result, Deny)
        verdict = denied("dismissed by you") if is_dismissed else allowed("answered by you")
        return self._decided(context, result, verdict)

    async def elicitation(self, context: ElicitationRequestContext) -> ElicitationAnswer:
        """Cancel an elicitation of an MCP server, because this command cannot show forms."""
        name, asked = one_line(context.mcp_server_name), one_line(context.message)
        text = f"MCP server {name} asks: {asked} (bridle run cannot answer this)"
        self._screen.show([Note((Span(f"  {WARN} ", "warn"), Span(text)), whole=True)])
        return Cancel()


def _verdict(ruling: Ruling) -> Verdict:
    rule = f"policy rule {ruling.rule}" if ruling.rule else "policy default"
    if ruling.decision == "allow":
        return allowed(f"allowed by {rule}", ruling.reason)
    return denied(f"denied by {rule}", ruling.reason)
