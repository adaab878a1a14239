"""Serialise what hooks return: check it and make it plain JSON values.

A result that is not valid raises `InvalidResult`, or whatever its own methods raise. The core then
blocks if the event is a gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import structs

from bridle._callbacks.results.permission_results import serialise_permission
from bridle._engine.incoming.answers import InvalidResult
from bridle._engine.incoming.hook_outputs import read_refusal
from bridle._engine.incoming.hook_rules import rule_of
from bridle._engine.incoming.hook_run import (
    CheckedOutput,
    GivenOutput,
    HookReturn,
    HookRun,
)
from bridle._observe.user_values import as_json, as_text, describe_error, kind_of
from bridle._records.fields import is_mapping
from bridle._records.raw_line import JsonObject
from bridle.hooks import Block, Continue, Defer, EndTurn, HookOutput, ModifyInput
from bridle.permissions import CanUseToolContext, Deny

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
_WIRE_NAMES: Mapping[object, str] = {"continue_": "continue", "async_": "async"}
_ASYNC = ("async", "async_")

#: Fields with few possible values. The CLI drops an answer with any other value.
_POSSIBLE: Mapping[str, tuple[object, ...]] = {
    "decision": (None, "approve", "block"),
    "permission_decision": (None, "allow", "deny", "ask", "defer"),
    "continue_turn": (None, True, False),
    "suppress_output": (None, True, False),
}
_TEXTS = (
    "stop_reason",
    "system_message",
    "reason",
    "permission_decision_reason",
    "additional_context",
)
_VALUES = ("updated_input", "updated_tool_output", "updated_mcp_tool_output", "permission")

_PRE_TOOL_USE = "PreToolUse"
_PERMISSION_REQUEST = "PermissionRequest"

_HOW_TO_RETURN = "; return Continue(), Block(reason), EndTurn(reason), another result, or None"


def serialise_hook(result: object, run: HookRun) -> HookReturn:
    """Return the result of a hook of `run` with plain values."""
    if result is None:
        return None
    if isinstance(result, Continue):
        added, message = result.additional_context, result.system_message
        if added is None and message is None:
            return None
        return Continue(
            None if added is None else as_text(added),
            None if message is None else as_text(message),
        )
    if isinstance(result, Block):
        return Block(as_text(result.reason))
    if isinstance(result, Deny):
        return Deny(as_text(result.reason), interrupt=bool(result.interrupt))
    if isinstance(result, EndTurn):
        return EndTurn(as_text(result.reason))
    if isinstance(result, Defer):
        if run.event != _PRE_TOOL_USE:
            raise InvalidResult(f"{run.event} does not support Defer; only PreToolUse hooks can")
        return CheckedOutput(HookOutput(permission_decision="defer"), "Defer")
    if isinstance(result, ModifyInput):
        return _plain(HookOutput(updated_input=result.new_input), "ModifyInput", run)
    if isinstance(result, HookOutput):
        return _plain(result, "HookOutput", run)
    if isinstance(result, Mapping):
        official = cast("Mapping[object, object]", result)
        return _from_mapping(official, run)
    raise InvalidResult(f"it returned {kind_of(result)}{_HOW_TO_RETURN}")


def _from_mapping(output: Mapping[Any, Any], run: HookRun) -> HookReturn:
    """Return an output dict with plain values.

    Raises `InvalidResult` if it is not valid, unless the hook wants it to be sent nevertheless.
    """
    if any(value is True and name in _ASYNC for name, value in output.items()):
        return _asynchronous(output, run.event)
    sends = bool(run.waiting) and run.waiting[0].hook.on_invalid == "send"
    given = _given(output) if sends else None
    try:
        read = _from_dict(output, run.event)
        if given is not None or (rule_of(run.event).is_gate and not _refuses(read)):
            _reject_nulls(output)
        checked = _plain(read, "its dict", run, is_sent=given is not None)
    except InvalidResult as invalid:
        if given is None:
            raise
        return GivenOutput(given, str(invalid))
    return checked if given is None else structs.replace(checked, given=given)


def _asynchronous(output: Mapping[Any, Any], event: str) -> HookReturn:
    """Return what an asynchronous output refuses at a gate.

    The CLI continues at once after such an output and ignores its other members, so nothing else
    in it may take effect.
    """
    if not rule_of(event).is_gate:
        return None
    given = _given(output)
    if given is None:
        raise InvalidResult("its dict cannot be sent as JSON", "unencodable_result")
    refusal = read_refusal(given)
    return None if refusal == HookOutput() else CheckedOutput(refusal, "its dict")


def _reject_nulls(output: Mapping[Any, Any], called: str = "its dict") -> None:
    """Raise `InvalidResult` if a member is None. Newer CLIs reject an output with a null."""
    for name, value in output.items():
        if value is None:
            raise InvalidResult(f"{called} sets {name!r:.40} to None")
        if name == "hookSpecificOutput" and is_mapping(value):
            _reject_nulls(value, called)


def _refuses(output: HookOutput) -> bool:
    """Return whether an output blocks, denies, or ends the turn."""
    decision = output.specific.get("decision")
    decisions = (
        output.permission_decision,
        output.specific.get("permissionDecision"),
        decision.get("behavior") if is_mapping(decision) else None,
    )
    return (
        output.continue_turn is False
        or output.decision == "block"
        or isinstance(output.permission, Deny)
        or "deny" in decisions
    )


def _given(output: Mapping[Any, Any]) -> JsonObject | None:
    """Return an output dict as plain values with the names of the wire. None if it has none."""
    named = {_WIRE_NAMES.get(name, name): value for name, value in output.items()}
    try:
        return as_json(named)
    except Exception:  # raised by values of the user
        return None


def _from_dict(output: Mapping[Any, Any], event: str) -> HookOutput:
    """Convert an output dict of the official SDK.

    Leaves out members whose value is None. Raises `InvalidResult` for unknown members: a misspelt
    one may have been meant as a refusal.
    """
    fields: dict[str, Any] = {}
    for name, value in output.items():
        if value is None or name == "asyncTimeout":
            continue
        if name in _ASYNC:
            if value is not False:
                raise InvalidResult(f"its dict sets async to {value!r:.40}, not True or False")
            continue
        if name == "hookSpecificOutput":
            fields["specific"] = _specific(value, event)
        elif name not in _TOP_LEVEL:
            raise InvalidResult(f"its dict has the unknown key {name!r:.40}")
        elif fields.setdefault(field := _TOP_LEVEL[name], value) is not value:
            raise InvalidResult(f"its dict sets {field} twice")
    return HookOutput(**fields)


def _specific(value: object, event: str) -> dict[Any, Any]:
    if not is_mapping(value):
        raise InvalidResult(f"its hookSpecificOutput is {kind_of(value)}, not a dict")
    members: dict[Any, Any] = {name: one for name, one in value.items() if one is not None}
    if members.pop("hookEventName", None) != event:
        raise InvalidResult(f"its hookSpecificOutput.hookEventName is not {event!r}")
    return members


def _checked(output: HookOutput, called: str, event: str) -> HookOutput:
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
        return _checked(moved_output, called, event)
    for name, possible in _POSSIBLE.items():
        value = getattr(output, name)
        is_known = type(value) in (str, bool, type(None)) and value in possible
        if not is_known:
            raise InvalidResult(f"{called}.{name} cannot be {value!r:.40}")
    if output.permission is not None and "decision" in output.specific:
        raise InvalidResult(f"{called} has permission and specific['decision']")
    decision: object = output.specific.get("decision", {})
    if not isinstance(decision, Mapping):
        raise InvalidResult(f"its decision is {kind_of(decision)}, not a dict")
    return output


def _plain(given: HookOutput, called: str, run: HookRun, *, is_sent: bool = False) -> CheckedOutput:
    """Return an output whose fields hold plain JSON values only.

    Raises `InvalidResult` at a gate for a text that is not a string, and for a None in `specific`:
    the CLI rejects both. An output that refuses stays valid, because it must take effect, unless
    ``is_sent``: the CLI then gets it if it is invalid. At other events, where nothing can be
    allowed by mistake, such an output takes effect, too.
    """
    output = _checked(given, called, run.event)
    is_gate = rule_of(run.event).is_gate
    must_hold = not is_sent and (_refuses(output) or not is_gate)
    if is_gate and not must_hold:
        _reject_nulls(given.specific, f"{called}.specific")
    if run.event == _PERMISSION_REQUEST:
        _check_decision(output.specific.get("decision", {}), called, run.wire)
    fields: JsonObject = {name: getattr(output, name) for name in _POSSIBLE}
    for name in _TEXTS:
        value = getattr(output, name)
        if not (value is None or isinstance(value, str) or must_hold):
            raise InvalidResult(f"{called}.{name} is {kind_of(value)}, not a string")
        fields[name] = None if value is None else as_text(value)
    values: JsonObject = {name: getattr(output, name) for name in _VALUES}
    if output.permission is not None:
        values["permission"] = _permission(output.permission, run.wire)
    values["specific"] = dict(output.specific)
    try:
        fields |= as_json(values)
    except Exception as error:  # raised by values of the user
        problem = f"{called} cannot be sent as JSON: {describe_error(error)}"
        raise InvalidResult(problem, "unencodable_result") from error
    return CheckedOutput(HookOutput(**fields), called)


def _check_decision(decision: Mapping[str, object], called: str, wire: JsonObject) -> None:
    """Check a decision in the CLI's form. Raises `InvalidResult` for an input that it cannot use.

    A CLI rejects a decision whose input is not an object, and runs the original input in place of
    an empty one.
    """
    if decision.get("behavior") != "allow" or "updatedInput" not in decision:
        return
    changed = decision["updatedInput"]
    if not isinstance(changed, Mapping):
        problem = f"is {kind_of(changed)}, not a mapping; leave it out to keep the input"
    elif not changed and wire.get("tool_input"):
        problem = "is empty, which makes the CLI run the original input"
    else:
        return
    raise InvalidResult(f"{called}: decision.updatedInput {problem}")


def _permission(result: object, wire: JsonObject) -> JsonObject:
    tool_name, tool_input = wire.get("tool_name"), wire.get("tool_input")
    context = CanUseToolContext(tool_name=str(tool_name), tool_input=tool_input or {})
    return serialise_permission(result, context).payload
