"""The errors of the official SDK, and the translation of Bridle's errors to them."""

from __future__ import annotations

import re
from errno import ENOENT
from typing import Any, TypeVar, cast

from bridle import errors

__all__ = [
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "ClaudeSDKError",
    "MessageParseError",
    "ProcessError",
    "ResultError",
]

_T = TypeVar("_T")

_QUOTED = 100
"""Characters of a line that the text of an error contains."""


class ClaudeSDKError(Exception):
    """Base class of the errors of this module."""


class CLIConnectionError(ClaudeSDKError):
    """There is no connection to the CLI."""


class CLINotFoundError(CLIConnectionError):
    """The CLI is not installed, or not at the given path."""

    def __init__(self, message: str = "Claude Code not found", cli_path: str | None = None) -> None:
        self.cli_path = cli_path
        super().__init__(f"{message}: {cli_path}" if cli_path else message)


class ProcessError(ClaudeSDKError):
    """The CLI failed. ``stderr`` is the last part of what it wrote to stderr."""

    def __init__(
        self, message: str, exit_code: int | None = None, stderr: str | None = None
    ) -> None:
        code = "" if exit_code is None else f" (exit code: {exit_code})"
        output = f"\nError output: {stderr}" if stderr else ""
        super().__init__(message + code + output)
        self.exit_code, self.stderr = exit_code, stderr


class OptionsRejected(ProcessError, ValueError):
    """Bridle rejected an option, a prompt or a file that they name.

    With the official SDK the CLI rejects most of them, and the program gets a `ProcessError`. The
    others are `ValueError`.
    """


class ResultError(ProcessError):
    """The CLI exited with an error after a result that is an error. ``data`` is that result."""

    def __init__(
        self, message: str, data: dict[str, Any] | None = None, exit_code: int | None = None
    ) -> None:
        self.data = data or {}
        self.subtype: str | None = self._member("subtype", str)
        self.errors: list[str] = texts_of(self.data.get("errors"))
        self.result: str | None = self._member("result", str)
        self.api_error_status: int | None = self._member("api_error_status", int)
        self.terminal_reason: str | None = self._member("terminal_reason", str)
        self.session_id: str | None = self._member("session_id", str)
        self._message = message
        super().__init__(message, exit_code)

    def _member(self, name: str, kind: type[_T]) -> _T | None:
        value = self.data.get(name)
        return value if isinstance(value, kind) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._message, self.data, self.exit_code)


class CLIJSONDecodeError(ClaudeSDKError):
    """A line of the CLI cannot be read."""

    def __init__(self, line: str, original_error: Exception) -> None:
        start = line[:_QUOTED]
        super().__init__(f"Failed to decode JSON: {start}...")
        self.line, self.original_error = line, original_error


class MessageParseError(ClaudeSDKError):
    """A message does not have the expected form. The drop-in never raises it."""

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        self.data = data
        super().__init__(message)


def texts_of(value: object) -> list[str]:
    """Return the texts in the ``errors`` of a result, without blank ones and other values."""
    given = cast("list[object]", value if isinstance(value, list) else [value])
    texts = (item.strip() for item in given if isinstance(item, str))
    return [text for text in texts if text]


def result_error(result: dict[str, Any], exit_code: int | None) -> ResultError:
    """Return the error for a CLI that exited after this result, which is an error."""
    status = result.get("api_error_status")
    subtype = result.get("subtype")
    text = (
        "; ".join(texts_of(result.get("errors")))
        or result.get("result")
        or (subtype if subtype != "success" else None)
        or (f"API error (HTTP {status})" if status else None)
        or "unknown error"
    )
    return ResultError(f"Claude Code returned an error result: {text}", result, exit_code)


def translated(error: BaseException) -> BaseException:
    """Return the official error for an error of Bridle, or the same error if there is none."""
    if not isinstance(error, errors.BridleError):
        return error
    made = _translated(error)
    made.__cause__ = error
    return made


def _translated(error: errors.BridleError) -> Exception:
    process = error.process
    if isinstance(error, errors.OptionsError):
        return OptionsRejected(_official_names(str(error)))
    if isinstance(error, errors.CliNotFoundError):
        return CLINotFoundError(_not_found(error.searched))
    if isinstance(error, errors.SpawnError):
        if error.errno == ENOENT:
            return CLINotFoundError(f"Claude Code not found. {error}")
        return CLIConnectionError(f"Failed to start Claude Code: {error}")
    if isinstance(error, errors.SessionLoadError):
        return RuntimeError(str(error))
    if isinstance(error, errors.ControlRejected):
        return ClaudeSDKError(error.message)
    if isinstance(error, errors.CheckpointingNotEnabled):
        return ClaudeSDKError("File rewinding is not enabled.")
    if isinstance(error, errors.ApprovalPending):
        return CLIConnectionError(
            f"A call of {error.tool_name} is deferred, so the session takes no more prompts. "
            "Disconnect, and decide with bridle.Agent(...).resume(error.__cause__.pending, ...)."
        )
    if isinstance(error, errors.ControlTimeout):
        return ClaudeSDKError(f"Control request timeout: {error.operation}")
    if isinstance(error, errors.BufferOverflow):
        return CLIJSONDecodeError(str(error), ValueError(str(error)))
    exit_code = None if process is None else process.exit_code
    if isinstance(error, errors.SessionNotFoundError):
        text = f"No conversation found with session ID: {error.session_id}"
        made = {"subtype": "error_during_execution", "is_error": True, "errors": [text]}
        return result_error(made, exit_code)
    if exit_code:
        return process_error(exit_code, error.stderr_tail)
    return CLIConnectionError(str(error))


def _not_found(searched: tuple[str, ...]) -> str:
    install = "Install it with `pip install claude-agent-sdk`, or set ClaudeAgentOptions.cli_path."
    if len(searched) == 1:
        return f"Claude Code not found at: {searched[0]}\n{install}"
    return f"Claude Code not found. Searched: {', '.join(searched)}.\n{install}"


_NAMES = {
    "allow_dangerously_skip_permissions": "permission_mode",
    "append_system_prompt": "system_prompt",
    "continue_session": "continue_conversation",
    "file_checkpointing_enabled": "enable_file_checkpointing",
    "json_schema": "output_format",
    "load_timeout": "load_timeout_ms",
    "mcp_config": "mcp_servers",
    "on_can_use_tool": "can_use_tool",
    "on_stderr": "stderr",
    "resume_session_id": "resume",
    "store": "session_store",
    "system_prompt_file": "system_prompt",
}
"""Names of options of Bridle, and of the options of the official SDK that set them."""

_NAME = re.compile(
    rf"(?<![\w/.'\"-])(?:(?:Cli|Sdk|Bidir)Options\.)?({'|'.join(_NAMES)})(?![\w/'\"-]|\.\w)"
)
"""The name of an option. Paths and quoted values are left as they are."""


def _official_names(text: str) -> str:
    """Return the text of an error with the names of the official options."""
    return _NAME.sub(lambda found: _NAMES[found[1]], text)


def process_error(exit_code: int, stderr: str) -> ProcessError:
    """Return the error for a CLI that exited with this code."""
    return ProcessError(f"Command failed with exit code {exit_code}", exit_code, stderr)
