"""Exit codes: one table for the reason of an outcome, one for errors before the start."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from bridle.errors import BridleError, OptionsError, OutcomeError, StartError
from bridle.outcomes import OutcomeReason


class ExitCode(IntEnum):
    """The exit codes of ``bridle run``. Shells use codes from 126 for their errors and signals."""

    OK = 0
    FAILED = 1
    USAGE = 2
    LIMIT = 3
    AUTH = 4
    RATE_LIMITED = 5
    NOT_STARTED = 6
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """Describe the code in one line."""
        return _MEANINGS[self]


_MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "completed",
    ExitCode.FAILED: "failed: ended by the API, the CLI, a hook or the model",
    ExitCode.USAGE: "invalid argument, policy or configuration; no tool ran",
    ExitCode.LIMIT: "a limit was reached: model calls, cost or time",
    ExitCode.AUTH: "not logged in, or the credentials were rejected",
    ExitCode.RATE_LIMITED: "rate limited",
    ExitCode.NOT_STARTED: "the CLI could not be started (see `bridle doctor`)",
    ExitCode.INTERRUPTED: "interrupted",
}

BROKEN_PIPE = 141
"""The reader closed our output. Shells report this code for a program that SIGPIPE killed."""

# Every other reason is FAILED, and `completed` is OK.
_BY_REASON: Mapping[OutcomeReason, ExitCode] = MappingProxyType(
    {
        OutcomeReason.COMPLETED: ExitCode.OK,
        OutcomeReason.INTERRUPTED: ExitCode.INTERRUPTED,
        OutcomeReason.MAX_TURNS: ExitCode.LIMIT,
        OutcomeReason.MAX_BUDGET: ExitCode.LIMIT,
        OutcomeReason.LIMIT_FIRST_EVENT: ExitCode.LIMIT,
        OutcomeReason.LIMIT_IDLE: ExitCode.LIMIT,
        OutcomeReason.LIMIT_TOTAL: ExitCode.LIMIT,
        OutcomeReason.LIMIT_TURNS: ExitCode.LIMIT,
        OutcomeReason.LIMIT_USD: ExitCode.LIMIT,
        OutcomeReason.AUTH_FAILED: ExitCode.AUTH,
        OutcomeReason.RATE_LIMITED: ExitCode.RATE_LIMITED,
    }
)

_BY_ERROR: Mapping[type[BridleError], ExitCode] = MappingProxyType(
    {OptionsError: ExitCode.USAGE, StartError: ExitCode.NOT_STARTED}
)


def exit_code_for(reason: OutcomeReason) -> ExitCode:
    """Return the exit code for the reason of an outcome."""
    return _BY_REASON.get(reason, ExitCode.FAILED)


def exit_code_of(error: BridleError) -> ExitCode:
    """Return the exit code for an error that ends the program."""
    if isinstance(error, OutcomeError):
        return exit_code_for(error.outcome.reason)
    kinds = (code for kind, code in _BY_ERROR.items() if isinstance(error, kind))
    return next(kinds, ExitCode.FAILED)


def table() -> str:
    """Return the codes and their meanings for a help text."""
    return "\n".join(f"  {code:>3}  {code.meaning}" for code in ExitCode)
