"""All exceptions that Bridle raises.

    BridleError                        base class of all errors of Bridle
    ├─ OptionsError                    (ValueError) an option is invalid; nothing was started
    ├─ StartError                      the session did not start; no process is left
    │  ├─ CliNotFoundError             (FileNotFoundError)
    │  ├─ UnsupportedCliVersionError
    │  ├─ UnverifiedCliError           `bridle verify` does not hold on the CLI of a worker
    │  ├─ SpawnError                   the operating system could not start the CLI
    │  ├─ InitializationError          the CLI rejected the handshake
    │  ├─ InitializationTimeout        (TimeoutError)
    │  ├─ CliExitedDuringInit
    │  ├─ SessionNotFoundError         there is no such session
    │  ├─ SessionInUseError            another process or session uses the same conversation
    │  └─ SessionLoadError             the store could not load the session to resume
    │     └─ SessionLoadTimeout        (TimeoutError)
    ├─ ControlError                    an operation of a session failed
    │  ├─ ControlTimeout               (TimeoutError)
    │  ├─ ControlRejected              the CLI responded with an error
    │  ├─ TransportError               the connection to the CLI was lost
    │  ├─ SessionStopped
    │  ├─ InitQueueOverflow
    │  ├─ TooManyPendingRequests
    │  ├─ SessionNotInitialized
    │  ├─ CheckpointingNotEnabled
    │  └─ ApprovalPending              a tool call waits for a decision
    ├─ OutcomeError                    a turn failed; raised by Outcome.raise_for_reason()
    │  ├─ TurnInterruptedError         ├─ MaxTurnsError          ├─ MaxBudgetError
    │  ├─ ApiError                     ├─ RateLimitedError       ├─ AuthFailedError
    │  ├─ RefusedError                 ├─ PromptBlockedError     ├─ StoppedByHookError
    │  ├─ ToolDeferredError            ├─ OutputMissingError     ├─ OutputInvalidError
    │  ├─ FirstEventLimitError         ├─ IdleLimitError         ├─ TotalLimitError (TimeoutError)
    │  ├─ TurnsLimitError              ├─ UsdLimitError          ├─ ExecutionError
    │  ├─ MessageLostError             ├─ CliExitedError         ├─ TurnStoppedError
    │  └─ StartFailedError             a run of run_many did not start
    ├─ StoreError                      an operation of a session store failed
    ├─ BufferOverflow                  a query received a line longer than max_buffer_size
    ├─ ConsumerTooSlow                 too many messages were unread
    ├─ PoolTimeout                     (TimeoutError) no process of a pool was free in time
    ├─ UsageError                      (RuntimeError) an object was used in a wrong way
    │  └─ CallMayHaveRun               an approved tool call was cut off
    └─ ToolFailure                     raise it in a tool: the model reads its text

Constructors take data and store it as attributes. The text of an error has three parts: what
happened, what is known about the process, what to do next. Types and attributes are stable, the
wording may change. All errors can be pickled and copied, and all classes are public. This module
imports only the two private modules below.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bridle.errors._process_info import ProcessInfo
from bridle.errors._redaction import redact_text

if TYPE_CHECKING:
    # At run time these modules set the names: they import this module, so not the reverse.
    from bridle.approvals import PendingApproval
    from bridle.outcomes import Outcome

__all__ = [
    "ApiError",
    "ApprovalPending",
    "AuthFailedError",
    "BridleError",
    "BufferOverflow",
    "CallMayHaveRun",
    "CheckpointingNotEnabled",
    "CliExitedDuringInit",
    "CliExitedError",
    "CliNotFoundError",
    "ConsumerTooSlow",
    "ControlError",
    "ControlRejected",
    "ControlTimeout",
    "ExecutionError",
    "FirstEventLimitError",
    "IdleLimitError",
    "InitQueueOverflow",
    "InitializationError",
    "InitializationTimeout",
    "MaxBudgetError",
    "MaxTurnsError",
    "MessageLostError",
    "OptionsError",
    "OutcomeError",
    "OutputInvalidError",
    "OutputMissingError",
    "PoolTimeout",
    "ProcessInfo",
    "PromptBlockedError",
    "RateLimitedError",
    "RefusedError",
    "SessionInUseError",
    "SessionLoadError",
    "SessionLoadTimeout",
    "SessionNotFoundError",
    "SessionNotInitialized",
    "SessionStopped",
    "SpawnError",
    "StartError",
    "StartFailedError",
    "StoppedByHookError",
    "StoreError",
    "TooManyPendingRequests",
    "ToolDeferredError",
    "ToolFailure",
    "TotalLimitError",
    "TransportError",
    "TurnInterruptedError",
    "TurnStoppedError",
    "TurnsLimitError",
    "UnsupportedCliVersionError",
    "UnverifiedCliError",
    "UsageError",
    "UsdLimitError",
]

# ---------------------------------------------------------------- the base


class BridleError(Exception):
    """Base class of all errors of Bridle.

    `fix` says what to do next. `process` describes the CLI process, or is None; `exit_code`,
    `signal`, `stderr_tail`, `cli_path`, `cli_version` and `argv` are read from it.
    """

    process: ProcessInfo | None = None
    #: Whether the text explains how the process ended.
    _explains_exit: ClassVar[bool] = True

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix

    def with_process(self, process: ProcessInfo | None) -> Self:
        """Attach a description of the process, and return this error."""
        self.process = process
        return self

    @property
    def exit_code(self) -> int | None:
        return self.process.exit_code if self.process else None

    @property
    def signal(self) -> str | None:
        return self.process.signal if self.process else None

    @property
    def stderr_tail(self) -> str:
        return self.process.stderr_tail if self.process else ""

    @property
    def cli_path(self) -> str | None:
        return self.process.cli_path if self.process else None

    @property
    def cli_version(self) -> str | None:
        return self.process.cli_version if self.process else None

    @property
    def argv(self) -> tuple[str, ...]:
        return self.process.argv if self.process else ()

    def __str__(self) -> str:
        process = [str(self.process)] if self.process else []
        if self.process and self._explains_exit:
            process.append(self.process.hint)
        return redact_text("\n".join(filter(None, [*self.args, *process, self.fix])))

    def __repr__(self) -> str:
        hidden = ("fix", "process", "__notes__")
        data = [f"{name}={value!r}" for name, value in vars(self).items() if name not in hidden]
        return redact_text(f"{type(self).__name__}({', '.join(data or map(repr, self.args))})")

    def __reduce__(self) -> tuple[Any, ...]:
        # Restore the state without the constructor: signatures differ, and OSError changes args.
        return _restore, (type(self), self.args, vars(self))


def _restore(kind: type[BridleError], args: tuple[Any, ...], state: dict[str, Any]) -> BridleError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


class OptionsError(BridleError, ValueError):
    """An option is unknown, invalid, or contradicts another one. Nothing was started.

    `field` and `problem` together are one sentence, such as "model" and "must be a string, got
    int".
    """

    def __init__(self, field: str, problem: str, *, fix: str = "") -> None:
        super().__init__(f"{field} {problem.removesuffix('.')}.", fix=fix)
        self.field = field
        self.problem = problem


# ---------------------------------------------------------------- starting


class StartError(BridleError):
    """The session did not start. Bridle has removed its processes, tasks and files."""


class CliNotFoundError(StartError, FileNotFoundError):
    """The Claude Code CLI was not found. `searched` lists the paths that were tried."""

    errno: int | None = 2  # ENOENT, for code that catches OSError

    def __init__(self, searched: Iterable[str] = ()) -> None:
        self.searched = tuple(searched)
        places = ", ".join(self.searched)
        super().__init__(
            "The Claude Code CLI was not found" + (f". Searched: {places}." if places else "."),
            fix="Install it with `pip install claude-agent-sdk` or `npm install -g "
            "@anthropic-ai/claude-code`, or set CliOptions.cli_path.",
        )


class UnsupportedCliVersionError(StartError):
    """The CLI is too old, or its version could not be read (`found` is then None)."""

    def __init__(self, found: str | None, minimum: str, *, unknown_option: bool = False) -> None:
        cli = f"Claude Code CLI {found}" if found else "The Claude Code CLI (version unknown)"
        what = f"{cli} is too old. Bridle needs {minimum} or newer."
        fix = "Update it with `claude update`, or set SdkOptions.skip_version_check."
        if unknown_option:
            what = f"{cli} rejected an option that it does not know."
            fix = "Remove the option that stderr names, or update the CLI with `claude update`."
        elif found is None:
            what = f"Could not read the Claude Code CLI's version. Bridle needs {minimum} or newer."
        super().__init__(what, fix=fix)
        self.found = found
        self.minimum = minimum


class UnverifiedCliError(StartError):
    """A worker requires a CLI on which `bridle verify` holds, and it does not.

    `path` is the CLI, `found` its version. `broken` has the ids of the promises that did not hold;
    it is empty if they could not be tried.
    """

    def __init__(self, path: str, found: str | None, broken: Iterable[str]) -> None:
        self.path = path
        self.found = found
        self.broken = tuple(broken)
        cli = f"Claude Code CLI {found}" if found else "the Claude Code CLI"
        what = f"Bridle's promises could not be tried on {cli} ({path})."
        if self.broken:
            what = f"Not all promises hold on {cli} ({path}): {', '.join(self.broken)}."
        fix = f"Run `bridle verify --cli {path}`, use another CLI, or remove verified=True."
        super().__init__(what, fix=fix)


class SpawnError(StartError):
    """The operating system could not start the CLI. `os_error` is the text of the OSError."""

    def __init__(self, os_error: str, errno: int | None = None) -> None:
        super().__init__(
            f"The Claude Code CLI could not be started: {os_error}",
            fix="Check that cli_path is an executable file and that cwd is an existing directory.",
        )
        self.os_error = os_error
        self.errno = errno


class InitializationError(StartError):
    """The CLI rejected the handshake. `message` is its error text."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"The CLI rejected the handshake: {message}",
            fix="Check the option that the message names, for example hooks, agents, mcp_servers "
            "or resume_session_id.",
        )
        self.message = message


class InitializationTimeout(StartError, TimeoutError):
    """The CLI ran, but did not respond to the handshake within `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        super().__init__(
            f"The CLI did not initialize within {timeout:g} s.",
            fix="A SessionStart command hook in the settings may delay the start. Make the hook "
            "faster, or increase SdkOptions.init_timeout.",
        )
        self.timeout = timeout


class CliExitedDuringInit(StartError):
    """The CLI exited before it responded to the handshake. `message` is its error text."""

    def __init__(self, message: str = "") -> None:
        reason = f": {message}" if message else "."
        super().__init__(
            f"The CLI exited during initialization{reason}",
            fix="To see why, run `claude --version`, or the CLI with the same options.",
        )
        self.message = message


class SessionNotFoundError(StartError):
    """No session has this `session_id`.

    If a function of `bridle.sessions` raised the error, `place` says where it searched. If a
    session could not be resumed, `place` is empty, and `session_id` may be a title.
    """

    # The exit code adds nothing: the CLI exits when it cannot find the session.
    _explains_exit = False

    def __init__(self, session_id: str, place: str = "") -> None:
        what = f"There is no session {session_id!r} to resume."
        fix = (
            "Check the id, CliOptions.cwd and CLAUDE_CONFIG_DIR: sessions belong to a working "
            "directory. If the session is in a store, set SdkOptions.store. To start a new "
            "session, remove resume_session_id."
        )
        if place:
            what = f"There is no session {session_id!r} in {place}."
            fix = (
                "Run `bridle sessions list` to see the sessions. To search all working "
                "directories, do not pass a directory."
            )
        super().__init__(what, fix=fix)
        self.session_id = session_id
        self.place = place


class SessionInUseError(StartError):
    """Another process, or another session of this process, uses the conversation `session_id`.

    Two CLIs that continue one conversation at the same time do not see each other's turns, and
    one of the two continuations is lost.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The session {session_id!r} is in use by another process or session.",
            fix="Close the other session first, wait for it with wait=30 (seconds), or continue in "
            "a copy with fork_session=True. If another machine crashed, its lock in the store (the "
            "lease) expires after 30 seconds.",
        )
        self.session_id = session_id


class SessionLoadError(StartError):
    """The session `session_id` could not be loaded from its store. `reason` says why.

    With `continue_session`, `session_id` is empty if Bridle could not find out which session is the
    last one of the working directory.
    """

    def __init__(self, session_id: str, reason: str) -> None:
        last = "The last session of the working directory"
        name = f"The session {session_id!r}" if session_id else last
        super().__init__(
            f"{name} could not be loaded: {reason.removesuffix('.')}.",
            fix="Check that the store can be reached, then resume again. Nothing was changed.",
        )
        self.session_id = session_id
        self.reason = reason


class SessionLoadTimeout(SessionLoadError, TimeoutError):
    """The store did not load the session within `timeout` seconds."""

    def __init__(self, session_id: str, timeout: float, when: str = "") -> None:
        reason = f"the store did not answer within {timeout:g} s"
        super().__init__(session_id, f"{reason}, {when}" if when else reason)
        self.fix = "Check that the store can be reached, or increase SdkOptions.load_timeout."
        self.timeout = timeout


# ---------------------------------------------------------------- operating a session


class ControlError(BridleError):
    """An operation of a session failed. `request_id` is None if no request was sent."""

    def __init__(
        self, operation: str, request_id: str | None = None, *, what: str = "", fix: str = ""
    ) -> None:
        super().__init__(f"{operation}: {what or 'the operation failed.'}", fix=fix)
        self.operation = operation
        self.request_id = request_id


class ControlTimeout(ControlError, TimeoutError):
    """The CLI did not respond within `timeout` seconds. It may still perform the operation."""

    def __init__(self, operation: str, request_id: str | None, timeout: float) -> None:
        super().__init__(
            operation,
            request_id,
            what=f"the CLI did not respond within {timeout:g} s.",
            fix="The CLI may still perform the operation. Pass a longer timeout=, increase "
            "SdkOptions.control_timeout, or stop the session.",
        )
        self.timeout = timeout


class ControlRejected(ControlError):
    """The CLI responded with an error. `message` is its text.

    `error_code` is the code of the error, or None if this version of the CLI sends no code.
    `is_unsupported` is True if this version of the CLI (`cli_version`) does not have the operation.
    """

    def __init__(
        self, operation: str, request_id: str | None, message: str, error_code: str | None = None
    ) -> None:
        code = f" [{error_code}]" if error_code else ""
        # CLI 2.1.197 sends no code.
        is_named = error_code is None and message.startswith("Unsupported control request")
        self.is_unsupported = is_named or error_code == "unsupported_request"
        fix = "This version does not support it. Update the CLI with `claude update`."
        what = f"the CLI responded with an error: {message}{code}"
        super().__init__(operation, request_id, what=what, fix=fix if self.is_unsupported else "")
        self.message = message
        self.error_code = error_code


class TransportError(ControlError):
    """The connection to the CLI was lost during the operation. `reason` says how."""

    def __init__(self, operation: str, request_id: str | None, reason: str) -> None:
        super().__init__(
            operation,
            request_id,
            what=f"the connection to the CLI was lost: {reason}",
            fix="Start a new session. To continue this conversation, set resume_session_id.",
        )
        self.reason = reason


class SessionStopped(ControlError):
    """The session has stopped. `cause` says why, if it failed."""

    _explains_exit = False

    def __init__(self, operation: str, request_id: str | None = None, cause: str = "") -> None:
        super().__init__(
            operation,
            request_id,
            what=f"the session has stopped: {cause}" if cause else "the session has stopped.",
            fix="Start a new session. To continue this conversation, set resume_session_id.",
        )
        self.cause = cause


class InitQueueOverflow(ControlError):
    """More than `limit` operations were started before the session was running."""

    def __init__(self, operation: str, limit: int) -> None:
        super().__init__(
            operation,
            what=f"{limit} operations already wait for the session to start. This is the limit.",
            fix="Wait until the session has started before you start more operations. If it does "
            "not start, check that the CLI responds.",
        )
        self.limit = limit


class TooManyPendingRequests(ControlError):
    """`limit` requests are already waiting for the CLI's response."""

    def __init__(self, operation: str, limit: int) -> None:
        what = f"{limit} requests are already waiting for the CLI's response."
        super().__init__(operation, what=what, fix="Await earlier operations first.")
        self.limit = limit


class SessionNotInitialized(ControlError):
    """The session did not start, so the queued operation was not sent. `cause` says why."""

    def __init__(self, operation: str, cause: str) -> None:
        what = f"the session is not initialized: {cause}"
        super().__init__(
            operation,
            what=what,
            fix="Start the session with `async with`, `await` or connect(). If the start failed, "
            "start a new session.",
        )
        self.cause = cause


class CheckpointingNotEnabled(ControlError):
    """`rewind_files` was called in a session without file checkpointing."""

    def __init__(self, operation: str = "rewind_files") -> None:
        super().__init__(
            operation,
            what="file checkpointing is not enabled in this session.",
            fix="Start the session with BidirOptions(file_checkpointing_enabled=True).",
        )


class ApprovalPending(ControlError):
    """Bridle rejected a prompt because a tool call of the conversation waits for a decision.

    If the CLI received the prompt, it would drop the call, or run it without a decision. So Bridle
    does not start a CLI for such a conversation either.

    `tool_name` and `tool_use_id` identify the call. `pending` is the `PendingApproval` for
    `Agent.resume`, or None while the turn of the call has not ended.
    """

    def __init__(
        self,
        operation: str,
        tool_name: str,
        tool_use_id: str,
        pending: PendingApproval | None = None,
    ) -> None:
        super().__init__(
            operation,
            what=f"a call of {tool_name} ({tool_use_id}) waits for approval.",
            fix="Call agent.resume(error.pending, decision), or pool.resume(key, decision), with "
            "Allow(), Deny(reason) or Edit(new_input). After that, resume_session_id continues the "
            "conversation.",
        )
        self.tool_name = tool_name
        self.tool_use_id = tool_use_id
        self.pending = pending


# ---------------------------------------------------------------- session stores


class StoreError(BridleError):
    """An operation of a session store failed.

    `store` is the name of the store's class, `operation` is the method, and `reason` says what went
    wrong. The text contains neither the url of the store nor data of the conversation.
    """

    def __init__(self, store: str, operation: str, reason: str, *, fix: str = "") -> None:
        super().__init__(f"{store}.{operation} failed: {reason.removesuffix('.')}.", fix=fix)
        self.store = store
        self.operation = operation
        self.reason = reason


# ---------------------------------------------------------------- outcomes


class OutcomeError(BridleError):
    """A turn failed. `outcome` has everything that is known about it, such as its text and cost.

    `Outcome.raise_for_reason()` raises the subclass that belongs to the reason.
    """

    outcome: Outcome
    advice: ClassVar[str] = ""

    def __init__(self, outcome: Outcome) -> None:
        session = f" (session {outcome.session_id})" if outcome.session_id else ""
        detail = f": {outcome.detail}" if outcome.detail else "."
        super().__init__(f"The turn ended as {outcome.reason}{session}{detail}", fix=self.advice)
        self.outcome = outcome
        self.process = outcome.process


class TurnInterruptedError(OutcomeError):
    """The turn was interrupted or cancelled, by the program or by `Deny(interrupt=True)`."""

    advice = "Send another prompt: the session is still usable."


class MaxTurnsError(OutcomeError):
    """The turn needed more model calls than `CliOptions.max_turns` allows."""

    advice = "Increase CliOptions.max_turns, or send another prompt: each prompt counts anew."


class MaxBudgetError(OutcomeError):
    """The session reached `CliOptions.max_budget_usd`."""

    advice = "Increase CliOptions.max_budget_usd: the budget is for the whole session."


class ApiError(OutcomeError):
    """A request to the model API failed, after the CLI's own retries."""

    advice = "If the server failed, try again. Otherwise correct the request."


class RateLimitedError(OutcomeError):
    """The rate limit of the account or of the API was reached."""

    advice = "Wait until the limit resets, use another model, or another account."

    @property
    def resets_at(self) -> float | None:
        """Return when the limit resets (Unix time in seconds), or None if the CLI did not say."""
        return self.outcome.resets_at


class AuthFailedError(OutcomeError):
    """The CLI is not logged in, or the API rejected its credentials."""

    advice = "Log in by running `claude` once, or set ANTHROPIC_API_KEY in CliOptions.env."


class RefusedError(OutcomeError):
    """The model declined to answer."""

    advice = "Rephrase the prompt, start a new session, or use another model."


class PromptBlockedError(OutcomeError):
    """A UserPromptSubmit hook blocked the prompt. The model did not receive it."""

    advice = "Change the prompt, or the UserPromptSubmit hook that blocked it."


class StoppedByHookError(OutcomeError):
    """A hook ended the turn."""

    advice = "Check the hook that ended the turn. The session is still usable."


class ToolDeferredError(OutcomeError):
    """A hook deferred a tool call, so the turn ended. The call waits for a decision."""

    advice = "Call agent.resume(outcome.pending, Allow()), or pass Deny(reason) or Edit(new_input)."


class OutputMissingError(OutcomeError):
    """Structured output was requested, but the model did not send any."""

    advice = "Ask for the structured output in the prompt. outcome.text has the answer as text."


class OutputInvalidError(OutcomeError):
    """The structured output does not match the requested type or schema."""

    advice = "Relax the schema, or explain its fields in the prompt."


class FirstEventLimitError(OutcomeError, TimeoutError):
    """The CLI sent no message or request within `Limits.first_event` seconds."""

    advice = "If such a delay is normal, increase SdkOptions.limits.first_event."


class IdleLimitError(OutcomeError, TimeoutError):
    """The CLI sent nothing for `Limits.idle` seconds, and no tool or callback was running."""

    advice = "If the model may be silent for that long, increase SdkOptions.limits.idle."


class TotalLimitError(OutcomeError, TimeoutError):
    """The turn took longer than `Limits.total` seconds."""

    advice = "Increase SdkOptions.limits.total, or split the task."


class TurnsLimitError(OutcomeError):
    """The turn made more model calls than `Limits.turns`."""

    advice = "Increase SdkOptions.limits.turns, or split the task."


class UsdLimitError(OutcomeError):
    """The turn cost more than `Limits.usd`, and Bridle ended it."""

    advice = "Increase SdkOptions.limits.usd, or split the task."


class ExecutionError(OutcomeError):
    """The CLI failed during the turn, or its result reports a failure or cannot be read."""

    advice = "Read outcome.detail and outcome.errors. The session may still be usable."


class MessageLostError(OutcomeError):
    """The result was longer than `max_buffer_size`, so it is unknown how the turn ended."""

    advice = "Increase SdkOptions.max_buffer_size."


class CliExitedError(OutcomeError):
    """The CLI exited before the turn ended."""

    advice = "Start a new session. To continue this conversation, set resume_session_id."


class TurnStoppedError(OutcomeError):
    """The session was stopped before the turn ended."""

    advice = "Start a new session. To continue this conversation, set resume_session_id."


class StartFailedError(OutcomeError):
    """A run of `run_many` did not start: its prompt is invalid, or the CLI did not start."""

    advice = "Read outcome.detail. To get the original exception, call `run` with the same prompt."


# ---------------------------------------------------------------- the rest


class BufferOverflow(BridleError):
    """A query received a line longer than `limit` bytes. `size` is the number of bytes received."""

    def __init__(self, limit: int, size: int) -> None:
        super().__init__(
            f"A line from the CLI has {size} bytes or more. The limit is {limit} bytes.",
            fix="Increase SdkOptions.max_buffer_size.",
        )
        self.limit = limit
        self.size = size


class ConsumerTooSlow(BridleError):
    """`unread_bytes` bytes of messages are unread, more than `limit`.

    Bridle ended the session, or dropped the messages of a turn that no loop was reading.
    """

    def __init__(self, unread_bytes: int, limit: int) -> None:
        super().__init__(
            f"{unread_bytes} bytes of messages are unread. The limit is {limit} bytes.",
            fix="Read messages() and turns without long pauses, close iterators that you no longer "
            "read, or increase SdkOptions.max_unread_bytes.",
        )
        self.unread_bytes = unread_bytes
        self.limit = limit


class PoolTimeout(BridleError, TimeoutError):
    """No process of the pool was free within `timeout` seconds.

    For a caller with a key, the reason may also be that another caller was using the session of
    the key.

    `size` is the size of the pool, `waiting` the number of callers that still wait. `key` is the
    key that the caller asked for, or None.
    """

    def __init__(self, timeout: float, size: int, waiting: int = 0, key: str | None = None) -> None:
        or_key = "" if key is None else ", or another caller was using the session of this key"
        super().__init__(
            f"No process of the pool was free within {timeout:g} s{or_key} (size: {size}, other "
            f"callers that wait: {waiting}).",
            fix="Increase the pool's size or the timeout, or leave its sessions earlier.",
        )
        self.timeout = timeout
        self.size = size
        self.waiting = waiting
        self.key = key


class UsageError(BridleError, RuntimeError):
    """An object was used in a wrong way: twice, too late, or from another event loop."""


class CallMayHaveRun(UsageError):
    """An approved tool call was cut off, so its tool may have run. It does not run again."""

    def __init__(self, tool_name: str, tool_use_id: str, fix: str) -> None:
        what = f"The call {tool_use_id} of {tool_name} was approved before. Its tool may have run."
        super().__init__(what, fix=fix)
        self.tool_name = tool_name
        self.tool_use_id = tool_use_id


class ToolFailure(BridleError):
    """Raise this in a tool to report a failure. The model reads `text`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
