"""The permission policy: which answer the CLI gets for what a permission callback returned.

The rule of this file: pure functions, and whatever cannot be understood denies. The same holds
for the two tools whose permission question is really a conversation with the user (questions and
plans); the question of an MCP server is dismissed instead. Nothing here raises for what a callback
returned; only a request without its key field cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from bridle._source import JsonObject
from bridle.controls import CanUseToolRequest
from bridle.permissions import (
    Accept,
    AddDirectories,
    AddRules,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Cancel,
    CanUseToolContext,
    Decline,
    Deny,
    Edit,
    ElicitationRequestContext,
    McpServerRef,
    PermissionRule,
    PermissionUpdate,
    PlanContext,
    QuestionContext,
    RemoveDirectories,
    RemoveRules,
    ReplaceRules,
    SetMode,
    UnknownPermissionUpdate,
    Withdrawable,
    bind_update,
)

Warned: TypeAlias = tuple[str, str]
"""A warning to be given: its kind and its detail."""


class Answer(msgspec.Struct, frozen=True):
    """What to send as the body of a successful response, and what to warn about."""

    #: As JSON: an answer is written once, when it is made, and nobody can change it any more.
    body: bytes
    warnings: tuple[Warned, ...] = ()

    @property
    def payload(self) -> JsonObject:
        """The body as an object."""
        return cast("JsonObject", msgspec.json.decode(self.body))


# ---------------------------------------------------------------- requests in

_Asked = TypeVar("_Asked", bound=Withdrawable)

_KnownUpdate: TypeAlias = (
    AddRules | ReplaceRules | RemoveRules | SetMode | AddDirectories | RemoveDirectories
)


class _Updates(msgspec.Struct):
    """What updates are converted to: msgspec prepares a struct once and a union at each call."""

    permission_suggestions: tuple[_KnownUpdate, ...]


#: The tools whose permission question has a context of its own.
_CONTEXTS: Mapping[object, type[CanUseToolContext]] = {
    "AskUserQuestion": QuestionContext,
    "ExitPlanMode": PlanContext,
}


def decode_can_use_tool(request: CanUseToolRequest, session_id: str = "") -> CanUseToolContext:
    """The context of a permission question. Which session asks only the caller knows."""
    kind = _CONTEXTS.get(request.tool_name, CanUseToolContext)
    values: list[Any] = [*msgspec.structs.astuple(request), session_id]
    if request.permission_suggestions:
        values[_SUGGESTIONS] = _decode_updates(request)
    if request.mcp_server is not None:
        values[_MCP_SERVER] = _decode_server(request.mcp_server)
    return kind(*values)


# Where a request, and so its context, has what a context has in another form.
_SUGGESTIONS = CanUseToolRequest.__struct_fields__.index("permission_suggestions")
_MCP_SERVER = CanUseToolRequest.__struct_fields__.index("mcp_server")


def _decode_updates(request: CanUseToolRequest) -> tuple[PermissionUpdate, ...]:
    try:
        updates = msgspec.convert(request, _Updates, from_attributes=True).permission_suggestions
    except msgspec.ValidationError:  # one of them is new or odd
        return tuple(map(decode_update, request.permission_suggestions))
    for update, wire in zip(updates, request.permission_suggestions, strict=True):
        bind_update(update, wire)
    return updates


def _decode_server(wire: JsonObject) -> McpServerRef | None:
    try:
        return msgspec.convert(wire, McpServerRef)
    except msgspec.ValidationError:
        return None


def decode_elicitation(request: JsonObject) -> ElicitationRequestContext:
    """The context of an MCP server's question; `msgspec.ValidationError` without its name."""
    return decode_tolerantly(ElicitationRequestContext, request)


def decode_tolerantly(kind: type[_Asked], wire: JsonObject) -> _Asked:
    """Decode a context from its wire object; fields that do not fit take their defaults.

    A required field that is missing or does not fit is a `msgspec.ValidationError`.
    """
    try:
        if "permission_suggestions" in wire:
            return msgspec.convert(wire, kind, dec_hook=_decode_custom)
        return msgspec.convert(wire, kind)  # a good deal cheaper
    except msgspec.ValidationError:
        return msgspec.convert(_fitting(kind, wire), kind, dec_hook=_decode_custom)


def _fitting(kind: type[Withdrawable], data: Mapping[str, Any]) -> JsonObject:
    fitting: JsonObject = {}
    for info in msgspec.structs.fields(cast("type[msgspec.Struct]", kind)):
        if info.encode_name not in data:
            continue
        value = data[info.encode_name]
        try:
            msgspec.convert(value, info.type, dec_hook=_decode_custom)
        except msgspec.ValidationError:
            continue
        fitting[info.encode_name] = value
    return fitting


def _decode_custom(_kind: type, value: object) -> object:
    """Permission updates are the one type in a context that msgspec leaves to us."""
    return decode_update(value)


def decode_update(value: object) -> PermissionUpdate:
    """A permission update from its wire object; what is new or odd is kept as it is."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
    wire = cast("JsonObject", value)
    try:
        update = _convert_update(wire)
    except msgspec.ValidationError:
        return UnknownPermissionUpdate(wire)
    bind_update(update, wire)
    return update


def _convert_update(wire: object) -> PermissionUpdate:
    (update,) = msgspec.convert(
        {"permission_suggestions": (wire,)}, _Updates
    ).permission_suggestions
    return update


# ---------------------------------------------------------------- answers out


_HOW_TO_ALLOW = "; return Allow(), Deny(reason) or Edit(new_input)"
_HOW_TO_ANSWER = "; return Answers({question: label, ...}) or Deny(reason)"


class InvalidResult(Exception):
    """A result that cannot be an answer; the text says why."""


def encode_permission(result: object, context: CanUseToolContext) -> Answer:
    """The answer to a permission question, for whatever the callback returned."""
    try:
        payload, warnings = _permission_payload(result, context)
    except Exception as error:  # also what the values in the result raise: they are the user's
        return deny("permission_failed", words_of(error))
    try:
        return Answer(_written(payload), warnings)
    except Exception as error:
        if context.tool_input and payload.get("updatedInput") is context.tool_input:
            # Not the callback's doing: the CLI's own input does not survive the round trip (a
            # lone surrogate). An empty object makes the CLI run the input it has.
            return encode_permission(result, msgspec.structs.replace(context, tool_input={}))
        detail = f"{type(result).__name__} cannot be sent as JSON: {error}"
        return deny("unencodable_result", detail)


def deny(kind: str, detail: str) -> Answer:
    """The answer when no callback gave one: it failed, was late, was not there, was not called."""
    message = f"Permission denied: the application gave no valid answer ({kind})."
    return Answer(_encode({"behavior": "deny", "message": message}), ((kind, detail),))


def _permission_payload(
    result: object, context: CanUseToolContext
) -> tuple[JsonObject, tuple[Warned, ...]]:
    if type(result) is Allow and not result.updated_permissions:  # what most answer
        return _allow(context.tool_input), ()
    if isinstance(result, Deny):
        denial: JsonObject = {"behavior": "deny", "message": as_text(result.reason)}
        if result.interrupt:
            denial["interrupt"] = True
        return denial, ()
    if isinstance(result, Allow):
        return _allow(context.tool_input, result.updated_permissions), ()
    if isinstance(result, AllowOnce):
        return _allow(context.tool_input), ()
    if isinstance(result, AllowAll):
        return _allow(context.tool_input, [AddRules((PermissionRule(context.tool_name),))]), ()
    if isinstance(result, Edit):
        return _allow(_edited(result.new_input, context)), ()
    if isinstance(result, Answers) and isinstance(context, QuestionContext):
        answers, warnings = _answers(result.answers, context)
        return _allow({**context.tool_input, "answers": answers}), warnings
    hint = _HOW_TO_ANSWER if isinstance(context, QuestionContext) else _HOW_TO_ALLOW
    raise InvalidResult(f"{kind_of(result)} is no answer to {context.tool_name}{hint}")


def _allow(tool_input: JsonObject, updates: Iterable[PermissionUpdate] = ()) -> JsonObject:
    """Older CLIs deny an allow without `updatedInput`, so it is always there."""
    allowed: JsonObject = {"behavior": "allow", "updatedInput": tool_input}
    changes = [_checked(update) for update in updates]
    if changes:
        allowed["updatedPermissions"] = changes
    return allowed


def _checked(update: object) -> JsonObject:
    """The wire form of an update; a CLI drops a misspelt one without a word, so it is refused."""
    if isinstance(update, UnknownPermissionUpdate):
        return update.raw
    if not isinstance(update, PermissionUpdate):
        raise InvalidResult(f"{type(update).__name__} is no PermissionUpdate")
    try:
        wire = update.raw
        _convert_update(wire)
    except Exception as error:
        raise InvalidResult(f"{type(update).__name__} is malformed: {error}") from error
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
    """One label as it is; several as the CLI itself would list them."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return ", ".join(str(label) for label in cast("Sequence[object]", value))
    raise InvalidResult(f"an answer is {type(value).__name__}, not a label or several")


def encode_elicitation(result: object) -> Answer:
    """The answer to an MCP server's question, for whatever the callback returned."""
    if isinstance(result, Decline):
        return Answer(b'{"action":"decline"}')
    if isinstance(result, Cancel):
        return Answer(_CANCELLED)
    if not isinstance(result, Accept) or not isinstance(cast("object", result.content), Mapping):
        return cancel("elicitation_failed", f"{type(result).__name__} is no answer")
    try:
        return Answer(_written({"action": "accept", "content": dict(result.content)}))
    except Exception as error:
        return cancel("unencodable_result", f"Accept.content cannot be sent as JSON: {error}")


_CANCELLED = b'{"action":"cancel"}'


def cancel(kind: str, detail: str) -> Answer:
    """The answer to an MCP server when no callback gave one."""
    return Answer(_CANCELLED, ((kind, detail),))


# ---------------------------------------------------------------- JSON out

_encode = msgspec.json.Encoder().encode
_check = msgspec.json.Decoder(msgspec.Raw).decode


def _written(payload: JsonObject) -> bytes:
    """`payload` as JSON on one line.

    What an application gave may hold a ready-made msgspec.Raw: anything, on any number of lines.
    """
    return checked(_encode(payload))


def checked(body: bytes) -> bytes:
    """`body`, on one line; `msgspec.DecodeError` if it is no JSON."""
    _check(body)
    return _encode(msgspec.json.decode(body)) if 0x0A in body else body


def as_json(payload: JsonObject) -> JsonObject:
    """A copy of what holds values of the application's, made of plain JSON values.

    Raises whatever the encoder (or an object of the user's it walks into) raises.
    """
    return cast("JsonObject", msgspec.json.decode(_encode(payload)))


def kind_of(value: object) -> str:
    """What somebody gave, in words that show when parentheses were forgotten."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def name_of(function: object) -> str:
    """Return the name of a callback, for messages that say which one they are about."""
    inner: Any = function.func if isinstance(function, partial) else function
    try:
        name = str(getattr(inner, "__qualname__", ""))
    except Exception:  # a proxy whose object cannot be reached here
        name = ""
    return name or type(inner).__qualname__


def copied(value: JsonObject) -> JsonObject:
    """Return a deep copy of a JSON object, so that a callback may change what it is given."""
    return cast("JsonObject", msgspec.to_builtins(value))


def words_of(error: BaseException) -> str:
    """What an exception says, if it can: the user's may raise anything when it is asked."""
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:
        return name
    return f"{name}: {said}" if said else name


def as_text(value: object) -> str:
    """`value` as text that JSON can carry: a reason must never be what breaks a refusal."""
    return str(value).encode("utf-8", "replace").decode("utf-8")
