"""Read what a hook returned: the official SDK's output dicts, and whether an output says no.

A result that cannot be read raises `InvalidResult`. What happens then is up to the hook policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from bridle._core.permissions import InvalidResult, as_text, kind_of
from bridle._fields import is_mapping
from bridle.hooks import HookOutput
from bridle.permissions import Deny

#: Members of `hookSpecificOutput` and the fields of `HookOutput` that hold them.
_SPECIFIC: Mapping[str, str] = {
    "additionalContext": "additional_context",
    "permissionDecision": "permission_decision",
    "permissionDecisionReason": "permission_decision_reason",
    "updatedInput": "updated_input",
    "updatedToolOutput": "updated_tool_output",
    "updatedMCPToolOutput": "updated_mcp_tool_output",
}

#: The other members of an output dict and the fields that hold them. Python programs write
#: `continue_` and `async_`, because the names on the wire are keywords.
_TOP_LEVEL: Mapping[str, str] = {
    "continue": "continue_turn",
    "continue_": "continue_turn",
    "stopReason": "stop_reason",
    "suppressOutput": "suppress_output",
    "systemMessage": "system_message",
    "decision": "decision",
    "reason": "reason",
}
_ASYNC = frozenset({"async", "async_", "asyncTimeout"})

#: Fields with few possible values. The CLI drops an answer with any other value.
_POSSIBLE: Mapping[str, tuple[object, ...]] = {
    "decision": (None, "approve", "block"),
    "permission_decision": (None, "allow", "deny", "ask", "defer"),
    "continue_turn": (None, True, False),
    "suppress_output": (None, True, False),
}

_NO_REASON = "Blocked by a hook of the application."


def from_dict(output: Mapping[Any, Any], event: str) -> HookOutput:
    """Return what an output dict of the official SDK says.

    A member whose value is None counts as absent. Raises `InvalidResult` for unknown members: a
    misspelt one may have been meant as a refusal.
    """
    fields: dict[str, Any] = {}
    for name, value in output.items():
        # The CLI goes on at once after an asynchronous output.
        if value is None or name in _ASYNC:
            continue
        if name == "hookSpecificOutput":
            fields["specific"] = _specific(value, event)
        elif name not in _TOP_LEVEL:
            raise InvalidResult(f"its dict has the member {name!r:.40}, which no hook output has")
        elif fields.setdefault(field := _TOP_LEVEL[name], value) is not value:
            raise InvalidResult(f"its dict says {field} twice")
    return HookOutput(**fields)


def _specific(value: object, event: str) -> dict[Any, Any]:
    if not is_mapping(value):
        raise InvalidResult(f"its hookSpecificOutput is {kind_of(value)}, not a dict")
    members: dict[Any, Any] = dict(value)
    if members.pop("hookEventName", None) != event:
        raise InvalidResult(f"its hookSpecificOutput.hookEventName is not {event!r}")
    return members


def checked(output: HookOutput, called: str, event: str) -> HookOutput:
    """Return the output with known members of `specific` moved to their fields.

    Raises `InvalidResult` for values that make the CLI drop the whole answer. `called` is what
    the output is called in the message.
    """
    for name in ("updated_input", "specific"):
        value: object = getattr(output, name)
        if value is not None and not isinstance(value, Mapping):
            raise InvalidResult(f"{called}.{name} is {kind_of(value)}, not a mapping")
    others = dict(output.specific)
    if others.get("hookEventName") == event:
        del others["hookEventName"]  # every answer names its event
        output = structs.replace(output, specific=others)
    moved: dict[str, Any] = {}
    for wire_name, name in _SPECIFIC.items():
        value = others.pop(wire_name, None)
        if value is not None and getattr(output, name) is not None:
            raise InvalidResult(f"{called} has {name} and specific[{wire_name!r}]")
        if value is not None:
            moved[name] = value
    if moved:
        moved_output = structs.replace(output, specific=others, **moved)
        return checked(moved_output, called, event)
    for name, possible in _POSSIBLE.items():
        value = getattr(output, name)
        is_known = type(value) in (str, bool, type(None)) and value in possible
        if not is_known:
            raise InvalidResult(f"{called}.{name} cannot be {value!r:.40}")
    return output


def refuse_unknown_members(
    output: HookOutput, called: str, event: str, known: frozenset[str]
) -> None:
    """Raise `InvalidResult` if `specific` has a member that the event does not know.

    The CLI would ignore it, and a misspelt one may have been meant as a refusal.
    """
    for name in output.specific:
        if name not in known:
            problem = f"hookSpecificOutput of {event} has no member {name!r:.40}"
            raise InvalidResult(f"{called}: {problem}")


def has_lone_reason(output: HookOutput) -> bool:
    """Tell whether the output gives a reason for a decision that it does not make."""
    reasons = (output.reason, output.permission_decision_reason, output.stop_reason)
    decisions = (
        output.continue_turn,
        output.decision,
        output.permission_decision,
        output.permission,
        output.updated_input,
    )
    is_silent = all(one is None for one in decisions) and not output.specific
    return is_silent and any(one is not None for one in reasons)


def refusal_of(output: HookOutput) -> str | None:
    """Return the reason if any part of the output refuses, in whichever words; else None."""
    if output.permission_decision == "deny":
        return _first_text(output.permission_decision_reason, output.reason)
    if output.decision == "block":
        return _first_text(output.reason, output.permission_decision_reason)
    if isinstance(output.permission, Deny):
        return _first_text(output.permission.reason)
    decision = _permission_decision(output)
    if decision is not None and decision.get("behavior") != "allow":
        return _first_text(decision.get("message"), output.reason)
    return None


def interrupts(output: HookOutput) -> bool:
    """Tell whether an output that refuses a permission ends the turn as well."""
    if isinstance(output.permission, Deny):
        return output.permission.interrupt
    decision = _permission_decision(output) or {}
    return decision.get("interrupt") is True


def _permission_decision(output: HookOutput) -> Mapping[Any, Any] | None:
    """Return the decision of a PermissionRequest hook that is spelled for the wire."""
    decision: object = output.specific.get("decision")
    if decision is None or is_mapping(decision):
        return decision
    raise InvalidResult(f"its decision is {kind_of(decision)}, not a dict")


def _first_text(*reasons: object) -> str:
    texts = (as_text(reason) for reason in reasons if reason is not None)
    return next((text for text in texts if text), _NO_REASON)
