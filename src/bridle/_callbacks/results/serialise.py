"""Run a call of the engine and serialise its result. This runs in the task or thread of the call.

User code is called here: the callback itself, the validators of a tool's arguments, and the methods
of whatever the callback returns. The engine gets JSON, or a record that the result is not valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridle._callbacks.results.hook_results import serialise_hook
from bridle._callbacks.results.permission_results import (
    serialise_dialog,
    serialise_elicitation,
    serialise_permission,
)
from bridle._callbacks.results.tool_results import serialise_mcp, serialise_tool
from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.answers import InvalidResult, InvalidReturn
from bridle._engine.incoming.mcp.tool_server import arguments_of
from bridle._observe.user_values import describe_error

_TOOL = CallKind.TOOL

_SERIALISE: dict[CallKind, Callable[[object, Any], object]] = {
    CallKind.HOOK: serialise_hook,
    CallKind.PERMISSION: serialise_permission,
    CallKind.QUESTION: serialise_permission,
    CallKind.PLAN: serialise_permission,
    CallKind.ELICITATION: serialise_elicitation,
    CallKind.DIALOG: serialise_dialog,
    CallKind.MCP: serialise_mcp,
    _TOOL: serialise_tool,
}
"""Each takes the result and the subject of the call."""


def serialise(call: Call, result: object) -> object:
    """Return the result of a call as the engine takes it; `InvalidReturn` if it is not valid."""
    try:
        return _SERIALISE[call.kind](result, call.subject)
    except InvalidResult as invalid:
        return InvalidReturn(str(invalid), invalid.kind)
    except BaseException as error:  # raised by the methods of an object of the user
        # Also an exit: the callback has decided something, and a gate must not take it for a hook
        # that raised. (No cancellation arrives here, because nothing is awaited.)
        return InvalidReturn(f"its result raised {describe_error(error)}")


def invoke(call: Call) -> Any:
    """Call the function of a call. The arguments of a tool are validated first.

    Raises:
        ToolFailure: the arguments are not valid, or the tool raised it to answer the model.
    """
    if call.kind is not _TOOL:
        return call.callback(call.argument)
    arguments = arguments_of(call.subject.message["params"])
    return call.callback.run(call.callback.validate(arguments), call.argument)
