"""Every exception Bridle raises, and nothing else.

    BridleError                        catch this to catch all of Bridle
    ├─ OptionsError                    (ValueError) an option was refused; nothing was started
    ├─ StartError                      no session came to be; nothing is left behind
    │  ├─ CliNotFoundError             (FileNotFoundError)
    │  ├─ UnsupportedCliVersionError
    │  ├─ SpawnError                   the operating system refused to run it
    │  ├─ InitializationError          the CLI refused the handshake
    │  ├─ InitializationTimeout        (TimeoutError)
    │  ├─ CliExitedDuringInit
    │  └─ SessionNotFoundError         the conversation to resume does not exist
    ├─ ControlError                    one operation of a session did not happen, or may not have
    │  ├─ ControlTimeout               (TimeoutError)
    │  ├─ ControlRejected              the CLI answered with an error
    │  ├─ TransportError               the pipe broke
    │  ├─ SessionStopped
    │  ├─ InitQueueOverflow
    │  ├─ TooManyPendingRequests
    │  ├─ SessionNotInitialized
    │  └─ CheckpointingNotEnabled
    ├─ OutcomeError                    a turn ended, but not as completed; raised on request only
    │  ├─ TurnInterruptedError         ├─ MaxTurnsError          ├─ MaxBudgetError
    │  ├─ ApiError                     ├─ RateLimitedError       ├─ AuthFailedError
    │  ├─ RefusedError                 ├─ PromptBlockedError     ├─ StoppedByHookError
    │  ├─ ToolDeferredError            ├─ OutputMissingError     ├─ OutputInvalidError
    │  ├─ FirstEventLimitError         ├─ IdleLimitError         ├─ TotalLimitError (TimeoutError)
    │  ├─ TurnsLimitError              ├─ UsdLimitError          ├─ ExecutionError
    │  └─ MessageLostError             ├─ CliExitedError         └─ TurnStoppedError
    ├─ BufferOverflow                  a query read a line longer than it may keep
    ├─ ConsumerTooSlow                 nobody read the messages and memory is bounded
    ├─ UsageError                      (RuntimeError) an object was used in a way it cannot be
    └─ ToolFailure                     raise it inside a tool: its text goes to the model

Rules of this file: constructors take data and keep it as attributes; the text is made from them, in
three parts: what happened, what is known about the process, what to do next. Types and attributes
are the contract, wording is not. Everything pickles and copies, every class is public, and nothing
of Bridle is imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bridle._process_info import ProcessInfo
from bridle._redaction import redact_text

if TYPE_CHECKING:
    # At run time `bridle.outcomes` puts it here: it is made of the errors below.
    from bridle.outcomes import Outcome

__all__ = [
    "ApiError",
    "AuthFailedError",
    "BridleError",
    "BufferOverflow",
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
    "ProcessInfo",
    "PromptBlockedError",
    "RateLimitedError",
    "RefusedError",
    "SessionNotFoundError",
    "SessionNotInitialized",
    "SessionStopped",
    "SpawnError",
    "StartError",
    "StoppedByHookError",
    "TooManyPendingRequests",
    "ToolDeferredError",
    "ToolFailure",
    "TotalLimitError",
    "TransportError",
    "TurnInterruptedError",
    "TurnStoppedError",
    "TurnsLimitError",
    "UnsupportedCliVersionError",
    "UsageError",
    "UsdLimitError",
]

# ---------------------------------------------------------------- the base


class BridleError(Exception):
    """Base of every error of Bridle.

    `fix` says what to do next. `process`, where known, is the CLI process concerned; `exit_code`,
    `signal`, `stderr_tail`, `cli_path`, `cli_version` and `argv` read from it.
    """

    process: ProcessInfo | None = None
    #: Whether the way the process ended needs an explanation.
    _is_surprised: ClassVar[bool] = True

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix

    def with_process(self, process: ProcessInfo | None) -> Self:
        """Attach what is known about the process; returns the same error, ready to raise."""
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
        if self.process and self._is_surprised:
            process.append(self.process.hint)
        return redact_text("\n".join(filter(None, [*self.args, *process, self.fix])))

    def __repr__(self) -> str:
        hidden = ("fix", "process", "__notes__")
        data = [f"{name}={value!r}" for name, value in vars(self).items() if name not in hidden]
        return redact_text(f"{type(self).__name__}({', '.join(data or map(repr, self.args))})")

    def __reduce__(self) -> tuple[Any, ...]:
        # By state and not through the constructor: signatures differ, and OSError changes its args.
        return _restore, (type(self), self.args, vars(self))


def _restore(kind: type[BridleError], args: tuple[Any, ...], state: dict[str, Any]) -> BridleError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


class OptionsError(BridleError, ValueError):
    """An option is unknown, malformed or contradicts another one. Nothing was started."""

    def __init__(self, field: str, problem: str, *, fix: str = "") -> None:
        super().__init__(f"{field}: {problem}", fix=fix)
        self.field = field
        self.problem = problem


# ---------------------------------------------------------------- starting


class StartError(BridleError):
    """The session did not start. No process, task or file of it is left behind."""


class CliNotFoundError(StartError, FileNotFoundError):
    """There is no Claude Code CLI in any of the places `searched`."""

    errno: int | None = 2  # ENOENT, for code that catches OSError and looks

    def __init__(self, searched: Iterable[str] = ()) -> None:
        self.searched = tuple(searched)
        places = ", ".join(self.searched)
        super().__init__(
            "The Claude Code CLI was not found" + (f"; searched: {places}." if places else "."),
            fix="Install it with `pip install claude-agent-sdk` or `npm install -g "
            "@anthropic-ai/claude-code`, or set CliOptions.cli_path.",
        )


class UnsupportedCliVersionError(StartError):
    """The CLI is too old, or would not say how old it is (`found` is then None)."""

    def __init__(self, found: str | None, minimum: str, *, unknown_option: bool = False) -> None:
        cli = f"Claude Code CLI {found}" if found else "The Claude Code CLI (version unknown)"
        what = f"{cli} is too old: {minimum} or newer is needed."
        fix = "Update it with `claude update`, or set SdkOptions.skip_version_check at your risk."
        if unknown_option:
            what = f"{cli} does not know an option it was given."
            fix = "Leave out the option that stderr names, or update the CLI with `claude update`."
        elif found is None:
            what = f"The Claude Code CLI's version is not known: {minimum} or newer is needed."
        super().__init__(what, fix=fix)
        self.found = found
        self.minimum = minimum


class SpawnError(StartError):
    """The operating system could not start the CLI; `os_error` is its reason in words."""

    def __init__(self, os_error: str, errno: int | None = None) -> None:
        super().__init__(
            f"The Claude Code CLI could not be started: {os_error}",
            fix="Check that cli_path is an executable file and that cwd is an existing directory.",
        )
        self.os_error = os_error
        self.errno = errno


class InitializationError(StartError):
    """The CLI answered the handshake with an error; `message` is what it said."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"The CLI refused to initialize: {message}",
            fix="Check what the message names: hooks, agents, MCP servers, the session to resume.",
        )
        self.message = message


class InitializationTimeout(StartError, TimeoutError):
    """The CLI was alive but did not answer the handshake within `timeout` seconds."""

    def __init__(self, timeout: float) -> None:
        super().__init__(
            f"The CLI did not initialize within {timeout:g} s.",
            fix="A SessionStart command hook in the settings may hold it: make it faster, or raise "
            "SdkOptions.init_timeout.",
        )
        self.timeout = timeout


class CliExitedDuringInit(StartError):
    """The CLI ended before it answered the handshake; `message` is its reason, if it gave one."""

    def __init__(self, message: str = "") -> None:
        reason = f": {message}" if message else "."
        super().__init__(
            f"The CLI exited during initialization{reason}",
            fix="Run the CLI by hand with the same options, or `claude --version`, to see why.",
        )
        self.message = message


class SessionNotFoundError(StartError):
    """There is no conversation to resume under `session_id`, which may also be a title."""

    # It ended because of what it was asked for.
    _is_surprised = False

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The CLI has no conversation {session_id!r} to resume.",
            fix="The CLI looks below its configuration directory for conversations of its working "
            "directory: check the id, CliOptions.cwd and CLAUDE_CONFIG_DIR. Without "
            "resume_session_id a new conversation begins.",
        )
        self.session_id = session_id


# ---------------------------------------------------------------- operating a session


class ControlError(BridleError):
    """An operation failed. `request_id` is None when nothing was sent to the CLI for it."""

    def __init__(
        self, operation: str, request_id: str | None = None, *, what: str = "", fix: str = ""
    ) -> None:
        super().__init__(f"{operation}: {what or 'the operation failed.'}", fix=fix)
        self.operation = operation
        self.request_id = request_id


class ControlTimeout(ControlError, TimeoutError):
    """The CLI did not answer within `timeout` seconds. It may still act on the request."""

    def __init__(self, operation: str, request_id: str | None, timeout: float) -> None:
        super().__init__(
            operation,
            request_id,
            what=f"no answer from the CLI within {timeout:g} s.",
            fix="The CLI may still carry it out. Pass timeout=, raise SdkOptions.control_timeout, "
            "or stop a session that no longer answers.",
        )
        self.timeout = timeout


class ControlRejected(ControlError):
    """The CLI answered with an error: `message`, and `error_code` where its version gives one."""

    def __init__(
        self, operation: str, request_id: str | None, message: str, error_code: str | None = None
    ) -> None:
        code = f" [{error_code}]" if error_code else ""
        super().__init__(operation, request_id, what=f"the CLI refused: {message}{code}")
        self.message = message
        self.error_code = error_code


class TransportError(ControlError):
    """The pipe to the CLI broke while the operation was under way; `reason` says how."""

    def __init__(self, operation: str, request_id: str | None, reason: str) -> None:
        super().__init__(
            operation,
            request_id,
            what=f"the connection to the CLI was lost: {reason}",
            fix="Start a new session; resume_session_id continues this conversation.",
        )
        self.reason = reason


class SessionStopped(ControlError):
    """The session is over, or ended meanwhile; `cause` says why, if that was a failure."""

    _is_surprised = False

    def __init__(self, operation: str, request_id: str | None = None, cause: str = "") -> None:
        super().__init__(
            operation,
            request_id,
            what=f"the session has stopped: {cause}" if cause else "the session has stopped.",
            fix="Start a new session; resume_session_id continues this conversation.",
        )
        self.cause = cause


class InitQueueOverflow(ControlError):
    """More than `limit` operations were issued before the session was running."""

    def __init__(self, operation: str, limit: int) -> None:
        super().__init__(
            operation,
            what=f"{limit} operations already wait for the session to initialize, the limit.",
            fix="Does the CLI respond? Wait until the session is running before issuing more.",
        )
        self.limit = limit


class TooManyPendingRequests(ControlError):
    """`limit` requests are unanswered already."""

    def __init__(self, operation: str, limit: int) -> None:
        super().__init__(
            operation,
            what=f"{limit} requests already wait for the CLI's answer.",
            fix="Await earlier operations before issuing more.",
        )
        self.limit = limit


class SessionNotInitialized(ControlError):
    """The session never got to running, so the queued operation was not sent; `cause` says why."""

    def __init__(self, operation: str, cause: str) -> None:
        super().__init__(
            operation,
            what=f"the session is not initialized: {cause}",
            fix="Start the session, or repair what kept it from starting.",
        )
        self.cause = cause


class CheckpointingNotEnabled(ControlError):
    """Files can only be rewound in a session that was started with checkpoints."""

    def __init__(self, operation: str = "rewind_files") -> None:
        super().__init__(
            operation,
            what="file checkpointing is not enabled in this session.",
            fix="Start the session with BidirOptions(file_checkpointing_enabled=True).",
        )


# ---------------------------------------------------------------- outcomes


class OutcomeError(BridleError):
    """A turn did not complete. `outcome` is all that is known about it, its text and cost included.

    Raised by `Outcome.raise_for_reason()`, as the one child class that belongs to the reason.
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
    """The turn was interrupted or withdrawn, by us or by a permission answer that said so."""

    advice = "Send another prompt: the session goes on."


class MaxTurnsError(OutcomeError):
    """The CLI reached its own max_turns."""

    advice = "Raise CliOptions.max_turns, or send another prompt: the count starts anew."


class MaxBudgetError(OutcomeError):
    """The CLI reached its own max_budget_usd."""

    advice = "Raise CliOptions.max_budget_usd: the budget is the session's, it does not start anew."


class ApiError(OutcomeError):
    """The model API failed, after the CLI's own retries."""

    advice = "If the failure is on the server's side, try again; otherwise correct the request."


class RateLimitedError(OutcomeError):
    """The account's or the API's rate limit was reached."""

    advice = "Wait until the limit resets, use another model, or another account."

    @property
    def resets_at(self) -> float | None:
        """When the limit resets, as unix time in seconds, if the CLI said so."""
        return self.outcome.resets_at


class AuthFailedError(OutcomeError):
    """The CLI is not logged in, or its credentials were refused."""

    advice = "Log in by running `claude` once, or set ANTHROPIC_API_KEY in CliOptions.env."


class RefusedError(OutcomeError):
    """The model declined to answer."""

    advice = "Rephrase the prompt, begin a new session, or use another model."


class PromptBlockedError(OutcomeError):
    """A UserPromptSubmit hook blocked the prompt; the model never saw it."""

    advice = "Change the prompt, or the UserPromptSubmit hook that blocked it."


class StoppedByHookError(OutcomeError):
    """A hook ended the turn."""

    advice = "Look at the hook that ended the turn; the session goes on."


class ToolDeferredError(OutcomeError):
    """A hook deferred a tool call, which ends the turn until the session is resumed."""

    advice = "Resume the session to be asked again about outcome.deferred_tool_use."


class OutputMissingError(OutcomeError):
    """Structured output was asked for and none came."""

    advice = "outcome.text holds the answer as prose; make the prompt ask for the structure."


class OutputInvalidError(OutcomeError):
    """Structured output came, but it does not fit what was asked for."""

    advice = "Loosen the schema, or say in the prompt what its fields mean."


class FirstEventLimitError(OutcomeError, TimeoutError):
    """Nothing came within Limits.first_event seconds."""

    advice = "Raise SdkOptions.limits.first_event if such a wait is normal here."


class IdleLimitError(OutcomeError, TimeoutError):
    """Nothing came for Limits.idle seconds."""

    advice = "Raise SdkOptions.limits.idle if tools may be quiet for that long."


class TotalLimitError(OutcomeError, TimeoutError):
    """The turn took longer than Limits.total seconds."""

    advice = "Raise SdkOptions.limits.total, or give the turn less to do."


class TurnsLimitError(OutcomeError):
    """The turn made more model calls than Limits.turns."""

    advice = "Raise SdkOptions.limits.turns, or give the turn less to do."


class UsdLimitError(OutcomeError):
    """The turn was ended because it had cost more than Limits.usd."""

    advice = "Raise SdkOptions.limits.usd, or give the turn less to do."


class ExecutionError(OutcomeError):
    """The CLI failed while it worked on the turn, or did not clearly say that it succeeded."""

    advice = "Read the detail and outcome.errors; the session may go on."


class MessageLostError(OutcomeError):
    """The result was too long to keep, so how the turn went is not known."""

    advice = "Raise SdkOptions.max_buffer_size."


class CliExitedError(OutcomeError):
    """The CLI ended before the turn did."""

    advice = "Start a new session; resume_session_id continues this conversation."


class TurnStoppedError(OutcomeError):
    """The session was stopped before the turn ended."""

    advice = "Start a new session; resume_session_id continues this conversation."


# ---------------------------------------------------------------- the rest


class BufferOverflow(BridleError):
    """A query met a line longer than `limit` bytes; `size` is how much of it had come by then."""

    def __init__(self, limit: int, size: int) -> None:
        super().__init__(
            f"A line of the CLI reached {size} bytes; at most {limit} are kept.",
            fix="Raise SdkOptions.max_buffer_size.",
        )
        self.limit = limit
        self.size = size


class ConsumerTooSlow(BridleError):
    """`unread_bytes` of messages waited unread, `limit` may.

    The session was ended, or the messages of a turn that no loop read were dropped.
    """

    def __init__(self, unread_bytes: int, limit: int) -> None:
        super().__init__(
            f"{unread_bytes} bytes of messages wait unread; at most {limit} may.",
            fix="Read messages() and the turns you iterate all the time, close iterators you no "
            "longer read, or raise SdkOptions.max_unread_bytes.",
        )
        self.unread_bytes = unread_bytes
        self.limit = limit


class UsageError(BridleError, RuntimeError):
    """An object was used in a way it cannot be: twice, too late, or from another event loop."""


class ToolFailure(BridleError):
    """Raise this in a tool to say what went wrong: `text` is what the model reads."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
