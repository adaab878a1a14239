"""Serialise what permission, elicitation and dialog callbacks return.

A result that is not a valid answer raises `InvalidResult`, or whatever its own methods raise.
The core then denies the permission, or cancels the elicitation or the dialog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Raw

from bridle._engine.incoming.answers import Answer, InvalidResult, Warned
from bridle._engine.incoming.callback_contexts import convert_update
from bridle._engine.wire.codec import Unencodable, encode_json
from bridle._observe.user_values import as_line, as_text, describe_error, kind_of
from bridle._records.raw_line import JsonObject
from bridle.hooks import Defer
from bridle.permissions import (
    Accept,
    AddRules,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Cancel,
    CanUseToolContext,
    Complete,
    Decline,
    Deny,
    Edit,
    PermissionRule,
    PermissionUpdate,
    QuestionContext,
    UnknownPermissionUpdate,
)

_HOW_TO_ALLOW = "; return Allow(), Deny(reason) or Edit(new_input)"
_NO_DEFER = "; only a PreToolUse hook can return Defer()"
_HOW_TO_ANSWER = "; return Answers({question: label, ...}) or Deny(reason)"


_ALLOW = b'{"behavior":"allow","updatedInput":'


def serialise_permission(result: object, context: CanUseToolContext) -> Answer:
    """Return the answer to a permission request. `context` holds the input that the CLI sent."""
    if type(result) is Allow and not result.updated_permissions:
        # The most frequent result. It holds no values of the user, so nothing has to be checked.
        return Answer(_ALLOW + _sent_back(context.tool_input) + b"}")
    payload, warnings = _payload(result, context)
    try:
        return Answer(as_line(payload), warnings)
    except Exception as error:  # raised by values of the user
        problem = f"{type(result).__name__} cannot be sent as JSON: {describe_error(error)}"
        raise InvalidResult(problem, "unencodable_result") from error


def _sent_back(tool_input: JsonObject) -> bytes:
    """Return an input of the CLI as JSON.

    An input with a lone surrogate cannot be encoded. It is sent back as an empty object, and the
    CLI then runs the original input.
    """
    try:
        return encode_json(tool_input)
    except Unencodable:
        return b"{}"


def _payload(result: object, context: CanUseToolContext) -> tuple[JsonObject, tuple[Warned, ...]]:
    """Return the decision as the CLI expects it, and warnings. It may hold values of the user."""
    if isinstance(result, Deny):
        denial: JsonObject = {"behavior": "deny", "message": as_text(result.reason)}
        if result.interrupt:
            denial["interrupt"] = True
        return denial, ()
    if isinstance(result, Allow | AllowOnce | AllowAll):
        return _allow(Raw(_sent_back(context.tool_input)), _updates(result, context)), ()
    if isinstance(result, Edit):
        return _allow(_edited(result.new_input, context), result.updated_permissions), ()
    if isinstance(result, Answers) and isinstance(context, QuestionContext):
        answers, warnings = _answers(result.answers, context)
        return _allow({**context.tool_input, "answers": answers}), warnings
    hint = _HOW_TO_ANSWER if isinstance(context, QuestionContext) else _HOW_TO_ALLOW
    if isinstance(result, Defer):
        hint = _NO_DEFER
    raise InvalidResult(f"{kind_of(result)} is not an answer to {context.tool_name}{hint}")


def _updates(
    result: Allow | AllowOnce | AllowAll, context: CanUseToolContext
) -> Iterable[PermissionUpdate]:
    if isinstance(result, AllowAll):
        return [AddRules((PermissionRule(context.tool_name),))]
    return result.updated_permissions if isinstance(result, Allow) else ()


def _allow(tool_input: object, updates: Iterable[PermissionUpdate] = ()) -> JsonObject:
    """Return an allow. It always has `updatedInput`, because older CLIs deny without it."""
    allowed: JsonObject = {"behavior": "allow", "updatedInput": tool_input}
    changes = [_checked_update(update) for update in updates]
    if changes:
        allowed["updatedPermissions"] = changes
    return allowed


def _checked_update(update: object) -> JsonObject:
    """Return the wire form of an update. The CLI would silently ignore a malformed one."""
    if isinstance(update, UnknownPermissionUpdate):
        return update.raw
    if not isinstance(update, PermissionUpdate):
        raise InvalidResult(f"{type(update).__name__} is not a PermissionUpdate")
    try:
        wire = update.raw
        convert_update(wire)
    except Exception as error:
        raise InvalidResult(
            f"{type(update).__name__} is malformed: {describe_error(error)}"
        ) from error
    return wire


def _edited(new_input: object, context: CanUseToolContext) -> JsonObject:
    if not isinstance(new_input, Mapping):
        raise InvalidResult(f"Edit.new_input is {type(new_input).__name__}, not a mapping")
    if not new_input and context.tool_input:
        raise InvalidResult("Edit.new_input is empty, which makes the CLI run the original input")
    return dict(cast("Mapping[str, Any]", new_input))


def _answers(
    answers: object, context: QuestionContext
) -> tuple[dict[str, str], tuple[Warned, ...]]:
    if not isinstance(answers, Mapping):
        problem = f"Answers.answers is {type(answers).__name__}, not a mapping"
        raise InvalidResult(problem + _HOW_TO_ANSWER)
    given = cast("Mapping[object, object]", answers)
    asked = {question.question for question in context.questions}
    stray = sum(key not in asked for key in given)
    counted = f"{stray} keys of Answers are not questions of the CLI"
    warnings = (("result_ignored", counted),) if stray else ()
    return {str(key): _labels(value) for key, value in given.items()}, warnings


def _labels(value: object) -> str:
    """Return one label as it is, and several labels in one string, in the format of the CLI."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return ", ".join(str(label) for label in cast("Sequence[object]", value))
    raise InvalidResult(f"an answer is {type(value).__name__}; use a label or a list of labels")


def serialise_elicitation(result: object, _: object) -> Answer:
    """Return the answer to an elicitation."""
    if isinstance(result, Decline):
        return Answer(b'{"action":"decline"}')
    if isinstance(result, Cancel):
        return Answer(b'{"action":"cancel"}')
    if not isinstance(result, Accept) or not isinstance(cast("object", result.content), Mapping):
        raise InvalidResult(
            f"{kind_of(result)} is not an answer; return Accept({{...}}) or Decline()"
        )
    try:
        return Answer(as_line({"action": "accept", "content": dict(result.content)}))
    except Exception as error:  # raised by values of the user
        problem = f"Accept.content cannot be sent as JSON: {describe_error(error)}"
        raise InvalidResult(problem, "unencodable_result") from error


def serialise_dialog(result: object, _: object) -> Answer:
    """Return the answer to a dialog."""
    if isinstance(result, Cancel):
        return Answer(b'{"behavior":"cancelled"}')
    if not isinstance(result, Complete):
        raise InvalidResult(f"{kind_of(result)} is not an answer; return Complete(...) or Cancel()")
    try:
        return Answer(as_line({"behavior": "completed", "result": result.result}))
    except Exception as error:  # raised by values of the user
        problem = f"Complete.result cannot be sent as JSON: {describe_error(error)}"
        raise InvalidResult(problem, "unencodable_result") from error
