"""Read the output of a hook: whether it refuses, defers or interrupts, and why."""

from __future__ import annotations

from typing import cast

from bridle._engine.incoming.answers import InvalidResult
from bridle._records.raw_line import JsonObject
from bridle.hooks import HookOutput

NO_REASON = "Blocked by a hook of the application."


def refuse_unknown_members(
    output: HookOutput, called: str, event: str, known: frozenset[str]
) -> None:
    """Raise `InvalidResult` if `specific` has a field that the event does not support.

    The CLI would ignore it, and a misspelt field may have been meant as a refusal.
    """
    for name in output.specific:
        if name not in known:
            problem = f"hookSpecificOutput of {event} has no member {name!r:.40}"
            raise InvalidResult(f"{called}: {problem}")


def _object(owner: JsonObject, name: str) -> JsonObject:
    value = owner.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def defers(given: JsonObject) -> bool:
    """Return True if an output dict defers the call."""
    return _object(given, "hookSpecificOutput").get("permissionDecision") == "defer"


def read_refusal(given: JsonObject) -> HookOutput:
    """Return the parts of an output dict that refuse, in any form, and their reasons."""
    members = _object(given, "hookSpecificOutput")
    decision = _object(members, "decision")
    denies = decision.get("behavior") == "deny"
    ends = given.get("continue") is False
    blocks = given.get("decision") == "block"
    refuses = members.get("permissionDecision") == "deny"
    if not (ends or blocks or denies or refuses):
        return HookOutput()

    def text(owner: JsonObject, name: str) -> str | None:
        return value if isinstance(value := owner.get(name), str) else None

    return HookOutput(
        continue_turn=False if ends else None,
        stop_reason=text(given, "stopReason"),
        decision="block" if blocks else None,
        reason=text(given, "reason"),
        permission_decision="deny" if refuses else None,
        permission_decision_reason=text(members, "permissionDecisionReason"),
        specific={"decision": decision} if denies else {},
    )


def has_lone_reason(output: HookOutput) -> bool:
    """Return True if the output gives a reason but no decision."""
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
    """Return the reason if any part of the output refuses, in any form, else None."""
    if output.permission_decision == "deny":
        return _first_text(output.permission_decision_reason, output.reason)
    if output.decision == "block":
        return _first_text(output.reason, output.permission_decision_reason)
    decision = _permission_decision(output)
    if decision is not None and decision.get("behavior") != "allow":
        return _first_text(decision.get("message"), output.reason)
    return None


def interrupts(output: HookOutput) -> bool:
    """Return True if an output that refuses a permission also ends the turn."""
    decision = _permission_decision(output) or {}
    return decision.get("interrupt") is True


def _permission_decision(output: HookOutput) -> JsonObject | None:
    """Return the decision of a PermissionRequest hook in the CLI's form."""
    return cast("JsonObject | None", output.permission or output.specific.get("decision"))


def _first_text(*reasons: object) -> str:
    texts = (str(reason) for reason in reasons if reason is not None)
    return next((text for text in texts if text), NO_REASON)
