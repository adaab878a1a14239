"""What the application's callbacks return, and what that must come to on the wire.

Tables. The effect of a result is the verdict its answer must carry, or ``pass`` (the next hook is
asked, and if there is none the CLI is told to go on), ``defer`` (the same, but the tool is deferred
unless a later hook blocks), ``fail`` (the hook's `on_error` decides) or ``invalid`` (a gate blocks,
at other events it is a failure).
"""

from __future__ import annotations

from random import Random
from typing import Literal, NoReturn, cast

from tests.simulation.lines import CALLBACKS, Question
from tests.support import cli

from bridle import hooks, permissions
from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle._engine.incoming.hook_plan import HookPlan
from bridle.hooks import Hook
from bridle.tools import McpResponse

PASS = "pass"
DEFER = "defer"
FAIL = "fail"
INVALID = "invalid"

RAISES = object()
"""Stands for a callback that raises."""


class _Hostile:
    """A value that cannot even be printed."""

    def __str__(self) -> NoReturn:
        raise ArithmeticError("no text for you")

    __repr__ = __str__


def _never_called(_: object) -> None:
    raise AssertionError("the engine has called a function of the user's")


# ---------------------------------------------------------------- who is asked

#: The hooks of each event, by what their failure does.
ON_ERROR: dict[str, tuple[Literal["continue", "block"], ...]] = {
    "PreToolUse": ("continue", "block"),
    "PostToolUse": ("continue",),
    "UserPromptSubmit": ("block",),
    "Stop": ("continue",),
    "Notification": ("block", "continue"),
    "PermissionRequest": ("continue",),
}
assert list(ON_ERROR) == list(CALLBACKS)

HOOK_TIMEOUT = 20.0
UNBLOCKABLE = frozenset({"Notification"})
GATES = frozenset({"PreToolUse", "PermissionRequest", "UserPromptSubmit"})

_PLAN = HookPlan.from_options(
    {
        event: [Hook(callback=_never_called, on_error=kind) for kind in kinds]
        for event, kinds in ON_ERROR.items()
    },
    callback_timeout=HOOK_TIMEOUT,
)

EVERYTHING = cli.asking(
    hooks=_PLAN,
    can_use_tool=_never_called,
    question=_never_called,
    plan=_never_called,
    elicitation=_never_called,
    mcp_servers={"calc": _never_called},
    permission_timeout=40.0,
    max_open=24,
)
PATIENT = cli.asking(
    hooks=_PLAN,
    can_use_tool=_never_called,
    elicitation=_never_called,
    mcp_servers={"calc": _never_called},
)
NOTHING = IncomingConfig()

# ---------------------------------------------------------------- what they return

_UNENCODABLE = {"x": object()}

_HOOK_RESULTS: tuple[tuple[object, str], ...] = (
    (hooks.Continue(), PASS),
    (None, PASS),
    (hooks.Continue("context", "message"), PASS),
    (hooks.Block("not this"), "block"),
    (hooks.EndTurn("enough"), "end"),
    (hooks.ModifyInput({"command": "pwd"}), PASS),
    (hooks.HookOutput(permission_decision="deny"), "block"),
    (hooks.HookOutput(permission_decision="defer"), DEFER),
    (hooks.HookOutput(updated_input=_UNENCODABLE), INVALID),
    (hooks.HookOutput(continue_turn=cast("bool", "yes")), INVALID),
    (hooks.Block(cast("str", _Hostile())), INVALID),
    (42, INVALID),
    (False, INVALID),
    ({"decision": "block", "reason": "not this"}, "block"),
    (permissions.Deny("not this"), "block"),
    ({"continue_": True}, PASS),
    (RAISES, FAIL),
)
# Of these the other events know nothing: gates take them as invalid, the rest ignores them.
_ONLY_BEFORE_TOOLS = frozenset({5, 7, 8})
# A refusal in words that only some events know: every gate understands it.
_DENIAL = 6

_PERMISSION_RESULTS: tuple[tuple[object, str], ...] = (
    (permissions.Allow(), "allow"),
    (permissions.AllowOnce(), "allow"),
    (permissions.AllowAll(), "allow"),
    (permissions.Edit({"command": "pwd"}), "allow"),
    (permissions.Edit({}), "deny"),
    (permissions.Edit(_UNENCODABLE), "deny"),
    (permissions.Deny("no"), "deny"),
    (permissions.Deny("no", interrupt=True), "deny!"),
    (permissions.Answers({}), "deny"),
    (True, "deny"),
    (None, "deny"),
    (RAISES, "deny"),
)

_ELICITATION_RESULTS: tuple[tuple[object, str], ...] = (
    (permissions.Accept({"a": 1}), "accept"),
    (permissions.Decline(), "decline"),
    (permissions.Cancel(), "cancel"),
    (permissions.Accept(_UNENCODABLE), "cancel"),
    ("yes", "cancel"),
    (RAISES, "cancel"),
)

_MCP_RESULTS: tuple[tuple[object, str], ...] = (
    ({"jsonrpc": "2.0", "id": 1, "result": {}}, "ok"),
    (McpResponse(id=1, result={}), "ok"),
    (None, "failed"),
    (_UNENCODABLE, "failed"),
    (RAISES, "failed"),
)


def choose(rng: Random, call: Call, question: Question) -> tuple[object, str]:
    """A result for a call, and its effect."""
    if question.kind == "hook":
        number = int(rng.random() * len(_HOOK_RESULTS))
        result, effect = _HOOK_RESULTS[number]
        if question.about in GATES:
            if number in _ONLY_BEFORE_TOOLS and question.about != "PreToolUse":
                effect = INVALID
        elif number in _ONLY_BEFORE_TOOLS or number == _DENIAL:
            effect = PASS
        elif question.about in UNBLOCKABLE and effect == "block":
            # A whole output is sent as it is, with a warning.
            effect = effect if isinstance(result, dict) else PASS
        return result, effect
    if question.kind == "permission":
        result, effect = _PERMISSION_RESULTS[int(rng.random() * len(_PERMISSION_RESULTS))]
        is_answer = isinstance(result, permissions.Answers)
        if is_answer and isinstance(call.argument, permissions.QuestionContext):
            effect = "allow"
        return result, effect
    if question.kind == "elicitation":
        return _ELICITATION_RESULTS[int(rng.random() * len(_ELICITATION_RESULTS))]
    result, effect = _MCP_RESULTS[int(rng.random() * len(_MCP_RESULTS))]
    # Nobody waits for the answer to a notification.
    return result, "ok" if result is None and question.about == "notify" else effect


def expected(question: Question, effect: str) -> str:
    """The verdict an effect comes to; ``next`` if another hook is to be called instead."""
    if question.kind != "hook" or effect not in (PASS, DEFER, FAIL, INVALID):
        return effect
    if effect == INVALID and question.about in GATES:
        return "block"
    kinds = ON_ERROR[question.about]
    blocks = kinds[question.stage - 1] == "block" and question.about not in UNBLOCKABLE
    if effect in (FAIL, INVALID) and blocks:
        return "block"
    if question.stage < len(kinds):
        return "next"
    return "defer" if effect == DEFER or question.is_deferred else "go"


# ---------------------------------------------------------------- answers without a callback

_FAILED = {"permission": "deny", "elicitation": "cancel", "mcp": "failed", "odd": "error"}


def failure(question: Question) -> frozenset[str]:
    """What a question gets whose callback is late."""
    if question.kind == "hook":
        return frozenset({expected(question, FAIL)} if question.stage else ())
    return frozenset({_FAILED[question.kind]})


def unasked(question: Question) -> frozenset[str]:
    """What a request gets whose callbacks cannot be called: a gate blocks."""
    if question.kind == "hook":
        left = ON_ERROR[question.about][max(0, question.stage - 1) :]
        blocks = "block" in left and question.about not in UNBLOCKABLE
        return frozenset({"block" if blocks or question.about in GATES else "go"})
    return frozenset({_FAILED[question.kind]})


def unread(question: Question, config: IncomingConfig) -> frozenset[str]:
    """What a hook callback gets that cannot be read; its id tells the event."""
    is_known = bool(config.hooks.by_callback_id) and question.about in ON_ERROR
    return unasked(question) if is_known else frozenset({"error"})


def refusal(question: Question) -> frozenset[str]:
    """What a question gets from a session that closes."""
    if question.kind == "hook":
        return frozenset({"block" if question.about in GATES else "go"})
    return frozenset({_FAILED[question.kind]})


def nobody(question: Question) -> frozenset[str]:
    """What a question gets where no callback is set."""
    hook = "block" if question.about in GATES else "go"
    answers = {"hook": hook, "permission": "deny", "elicitation": "cancel", "mcp": "failed"}
    return frozenset({answers.get(question.kind, "error")})


def time_limit(question: Question, config: IncomingConfig) -> float | None:
    """Seconds a callback has."""
    if question.kind == "hook":
        return HOOK_TIMEOUT
    return config.permission_timeout if question.kind in ("permission", "elicitation") else None


def is_failure(result: object, effect: str) -> bool:
    """True if the callback did not do what it is for; that is never passed over in silence."""
    if effect in (FAIL, INVALID):
        return True
    on_purpose = (permissions.Deny, permissions.Decline, permissions.Cancel)
    return effect in ("deny", "cancel", "failed") and not isinstance(result, on_purpose)


def subject_of(call: Call) -> str:
    """The id of the question a call is for; the model hides it where callbacks can see it."""
    argument = cast("dict[str, str]", call.argument)
    if call.kind is CallKind.MCP:
        return argument["tag"]
    if call.kind is CallKind.ELICITATION:
        return cast(permissions.ElicitationRequestContext, call.argument).message
    if call.kind is CallKind.HOOK:
        return cast(hooks.HookContext, call.argument).prompt_id or ""
    return cast(permissions.CanUseToolContext, call.argument).description or ""
