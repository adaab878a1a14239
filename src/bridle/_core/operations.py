"""Check the fields of control operations before anything is written.

Older CLIs do not answer a request with invalid fields: their reader fails and the process hangs
until it is killed. So an invalid request is never sent. Subtypes without a row are not checked,
because the CLI supports many more and new ones are added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bridle._core.unknown_values import unknown_value
from bridle._fields import positive
from bridle._option_checks import PERMISSION_MODES
from bridle.errors import OptionsError

Check = Callable[[object], bool]

_MISSING = object()  # fails every check


class Field(NamedTuple):
    """One field of an operation: the check of its value, and the text for a failed check."""

    name: str
    is_valid: Check
    expected: str
    required: bool = True


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_model(value: object) -> bool:
    return value is None or _is_text(value)


def _is_token_count(value: object) -> bool:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value is None or is_count


def _text(name: str) -> Field:
    return Field(name, _is_text, "a non-empty string")


def _mapping(name: str, *, required: bool = True) -> Field:
    return Field(name, _is_mapping, "a mapping", required)


def _flag(name: str, *, required: bool = True) -> Field:
    return Field(name, _is_flag, "True or False", required)


FIELDS: dict[str, tuple[Field, ...]] = {
    "interrupt": (_flag("cancel_queued", required=False),),
    "set_model": (Field("model", _is_model, "a model name, or None for the default"),),
    "set_permission_mode": (
        Field("mode", _is_text, f"a permission mode, such as {', '.join(PERMISSION_MODES)}"),
    ),
    "set_max_thinking_tokens": (
        Field("max_thinking_tokens", _is_token_count, "a number of tokens, or None"),
    ),
    "rewind_files": (_text("user_message_id"), _flag("dry_run", required=False)),
    "cancel_async_message": (_text("message_uuid"),),
    "apply_flag_settings": (_mapping("settings"),),
    "mcp_set_servers": (_mapping("servers"),),
    "mcp_reconnect": (_text("serverName"),),
    "mcp_toggle": (_text("serverName"), _flag("enabled")),
    "mcp_call": (_text("tool"), _mapping("arguments", required=False)),
    "mcp_message": (_text("server_name"), _mapping("message")),
    "stop_task": (_text("task_id"),),
    "get_task_output": (_text("task_id"),),
}


_SLOW_OPERATIONS = {"rewind_files": 4}
"""Operations that take longer, such as writing many files, with the factor for their timeout."""


def default_timeout(operation: str, control_timeout: float) -> float:
    """Return the seconds that an operation waits for its response by default."""
    return control_timeout * _SLOW_OPERATIONS.get(operation, 1)


def check_timeout(timeout: object) -> None:
    """Raise OptionsError if ``timeout`` is not a positive number or None."""
    if timeout is not None:
        positive("timeout", timeout)


def prepare_operation(
    operation: object, fields: Mapping[str, object], timeout: float | None = None
) -> Mapping[str, object]:
    """Return the fields to send, after checking that the CLI can accept the request.

    Raises:
        OptionsError: the operation is not for callers, a field is missing or of the wrong type,
            or the timeout is not positive.
    """
    if not isinstance(operation, str) or not operation:
        problem = f"must be the name of a control request, got {operation!r:.80}"
        raise OptionsError("subtype", problem, fix="Pass a name such as 'interrupt'.")
    if "subtype" in fields:
        raise OptionsError("subtype", "is given twice", fix="Remove it from the fields.")
    check_timeout(timeout)
    if operation == "initialize":
        raise OptionsError(
            "subtype",
            "is 'initialize', which only the session itself sends",
            fix="Set hooks, agents and servers in the options of a new session.",
        )
    for name, is_valid, expected, required in FIELDS.get(operation, ()):
        value = fields.get(name, _MISSING)
        if is_valid(value) or (value is _MISSING and not required):
            continue
        problem = "is missing" if value is _MISSING else f"is {value!r:.80}"
        raise OptionsError(f"{operation}.{name}", problem, fix=f"Give {expected}.")
    if operation == "set_permission_mode" and fields["mode"] == "manual":
        # "manual" is the newest name of the default mode. Older CLIs accept it and do nothing.
        return {**fields, "mode": "default"}
    return fields


def unknown_mode(operation: str, fields: Mapping[str, object]) -> str | None:
    """Return the text of a warning if this sets a permission mode that Bridle does not know."""
    if operation != "set_permission_mode" or fields["mode"] in PERMISSION_MODES:
        return None
    return unknown_value("set_permission_mode: mode", fields["mode"], PERMISSION_MODES)
