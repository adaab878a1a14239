"""The errors of the official SDK, and the translation of Bridle's errors to them."""

from __future__ import annotations

from collections.abc import Sequence
from errno import ENOENT
from typing import Any, cast

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
        self.exit_code = exit_code
        self.stderr = stderr
        if exit_code is not None:
            message = f"{message} (exit code: {exit_code})"
        if stderr:
            message = f"{message}\nError output: {stderr}"
        super().__init__(message)


class ResultError(ProcessError):
    """The CLI exited with an error after a result that is an error. ``data`` is that result."""

    def __init__(
        self, message: str, data: dict[str, Any] | None = None, exit_code: int | None = None
    ) -> None:
        result = data or {}
        self.data = result
        self.subtype: str | None = result.get("subtype")
        self.errors: list[str] = texts_of(result.get("errors"))
        self.result: str | None = result.get("result")
        self.api_error_status: int | None = result.get("api_error_status")
        self.terminal_reason: str | None = result.get("terminal_reason")
        self.session_id: str | None = result.get("session_id")
        self._message = message
        super().__init__(message, exit_code)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._message, self.data, self.exit_code)


class CLIJSONDecodeError(ClaudeSDKError):
    """A line of the CLI cannot be read."""

    def __init__(self, line: str, original_error: Exception) -> None:
        self.line = line
        self.original_error = original_error
        super().__init__(f"Failed to decode JSON: {line[:100]}...")


class MessageParseError(ClaudeSDKError):
    """A message does not have the expected form. The drop-in never raises it."""

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        self.data = data
        super().__init__(message)


def texts_of(value: object) -> list[str]:
    """Return the texts in the ``errors`` of a result."""
    if isinstance(value, str):
        return [value]
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    return [item if isinstance(item, str) else str(item) for item in items]


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
    if not isinstance(error, errors.BridleError) or isinstance(error, errors.UsageError):
        return error
    made = _translated(error)
    made.__cause__ = error
    return made


def _translated(error: errors.BridleError) -> Exception:
    process = error.process
    if isinstance(error, errors.OptionsError):
        return ValueError(str(error))
    if isinstance(error, errors.CliNotFoundError):
        return CLINotFoundError(str(error))
    if isinstance(error, errors.SpawnError):
        kind = CLINotFoundError if error.errno == ENOENT else CLIConnectionError
        return kind(str(error))
    if isinstance(error, errors.SessionLoadError):
        return RuntimeError(str(error))
    if isinstance(error, errors.ControlRejected):
        return ClaudeSDKError(error.message)
    if isinstance(error, errors.CheckpointingNotEnabled):
        return ClaudeSDKError("File rewinding is not enabled.")
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


def process_error(exit_code: int, stderr: str) -> ProcessError:
    """Return the error for a CLI that exited with this code."""
    return ProcessError(f"Command failed with exit code {exit_code}", exit_code, stderr)
