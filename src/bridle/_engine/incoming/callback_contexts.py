"""Make the contexts that callbacks get from incoming requests.

A field that does not fit takes its default. Only a request without a required field is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from bridle._records.raw_line import JsonObject
from bridle.controls import CanUseToolRequest
from bridle.permissions import (
    AddDirectories,
    AddRules,
    CanUseToolContext,
    ElicitationRequestContext,
    McpServerRef,
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

_Asked = TypeVar("_Asked", bound=Withdrawable)

_KnownUpdate: TypeAlias = (
    AddRules | ReplaceRules | RemoveRules | SetMode | AddDirectories | RemoveDirectories
)


class _Updates(msgspec.Struct):
    """The type for `msgspec.convert`, which prepares a struct once but a union at each call."""

    permission_suggestions: tuple[_KnownUpdate, ...]


#: The tools whose permission requests have their own context class.
_CONTEXTS: Mapping[object, type[CanUseToolContext]] = {
    "AskUserQuestion": QuestionContext,
    "ExitPlanMode": PlanContext,
}


def decode_can_use_tool(request: CanUseToolRequest, session_id: str = "") -> CanUseToolContext:
    """Return the context of a permission request of a session."""
    kind = _CONTEXTS.get(request.tool_name, CanUseToolContext)
    values: list[Any] = [*msgspec.structs.astuple(request), session_id]
    if request.permission_suggestions:
        values[_SUGGESTIONS] = _decode_updates(request)
    if request.mcp_server is not None:
        values[_MCP_SERVER] = _decode_server(request.mcp_server)
    return kind(*values)


# The positions of fields that a context has in another form than its request.
_SUGGESTIONS = CanUseToolRequest.__struct_fields__.index("permission_suggestions")
_MCP_SERVER = CanUseToolRequest.__struct_fields__.index("mcp_server")


def _decode_updates(request: CanUseToolRequest) -> tuple[PermissionUpdate, ...]:
    try:
        updates = msgspec.convert(
            {"permission_suggestions": request.permission_suggestions}, _Updates
        ).permission_suggestions
    except msgspec.ValidationError:  # one of them is unknown or malformed
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
    """Return the context of an elicitation. Raises `msgspec.ValidationError`."""
    return decode_tolerantly(ElicitationRequestContext, request)


def decode_tolerantly(kind: type[_Asked], wire: JsonObject) -> _Asked:
    """Decode a context from its wire object. Fields that do not fit take their defaults.

    Raises `msgspec.ValidationError` if a required field is missing or does not fit.
    """
    try:
        if "permission_suggestions" in wire:
            return msgspec.convert(wire, kind, dec_hook=_decode_custom)
        return msgspec.convert(wire, kind)  # much cheaper without the hook
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
    """Decode permission updates, the only type in a context that msgspec does not know."""
    return decode_update(value)


def decode_update(value: object) -> PermissionUpdate:
    """Return a permission update from its wire object. Unknown kinds keep the object as it is."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
    wire = cast("JsonObject", value)
    try:
        update = convert_update(wire)
    except msgspec.ValidationError:
        return UnknownPermissionUpdate(wire)
    bind_update(update, wire)
    return update


def convert_update(wire: object) -> PermissionUpdate:
    """Return a permission update of a known kind. Raises `msgspec.ValidationError`."""
    (update,) = msgspec.convert(
        {"permission_suggestions": (wire,)}, _Updates
    ).permission_suggestions
    return update


copied = cast("Callable[[JsonObject], JsonObject]", msgspec.to_builtins)
"""Return a deep copy of a JSON object, so that a callback may change its argument."""
