"""The last lines of a run: the facts, and after a failure the reason and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridle.cli._screens.printable import printable
from bridle.cli._screens.shown import Note, Span, counted, dollars, joined, seconds
from bridle.cli._screens.view import BAD, GOOD
from bridle.cli.exits import exit_code_for
from bridle.errors import BridleError
from bridle.outcomes import OUTCOME_ERRORS, Outcome, OutcomeReason

# Advice that names the flags of this command. It replaces the advice of the error class.
_ADVICE: Mapping[OutcomeReason, str] = {
    OutcomeReason.AUTH_FAILED: "Log in by running `claude` once, or set ANTHROPIC_API_KEY. "
    "`bridle doctor` shows which login the CLI uses.",
    OutcomeReason.CLI_EXITED: "Run `bridle doctor` to find the cause.",
    OutcomeReason.INTERRUPTED: "",
    OutcomeReason.LIMIT_IDLE: "Raise --idle if a tool may run that long without output.",
    OutcomeReason.LIMIT_TOTAL: "Raise --timeout if the run may take that long.",
    OutcomeReason.MAX_BUDGET: "Raise --max-budget-usd.",
    OutcomeReason.MAX_TURNS: "Raise --max-turns.",
    OutcomeReason.STOPPED: "",
}

# Reasons whose cause the CLI may have printed to stderr.
_PROCESS = {OutcomeReason.CLI_EXITED, OutcomeReason.EXECUTION_ERROR}

# Reasons after which the user may want to continue the conversation.
_TO_BE_CONTINUED = {
    OutcomeReason.CLI_EXITED,
    OutcomeReason.INTERRUPTED,
    OutcomeReason.LIMIT_IDLE,
    OutcomeReason.LIMIT_TOTAL,
    OutcomeReason.MAX_TURNS,
    OutcomeReason.STOPPED,
}


def ending(outcome: Outcome[Any]) -> list[Note]:
    """Return the last lines of a run."""
    facts = joined(
        [
            counted(outcome.num_turns, "turn") if outcome.num_turns else "",
            seconds(outcome.duration),
            dollars(outcome.cost_usd),
            f"session {printable(outcome.session_id)}" if outcome.ok and outcome.session_id else "",
        ]
    )
    words = str(outcome.reason).replace("_", " ")
    result = Span(f"{GOOD} {words}", "good") if outcome.ok else Span(f"{BAD} {words}", "bad")
    head = (result, Span(f" · {facts}", "dim"))
    why = [] if outcome.ok else [Note((Span(f"  {line}"),), whole=True) for line in _why(outcome)]
    return [Note(head, whole=True), *why]


def _why(outcome: Outcome[Any]) -> Iterator[str]:
    if outcome.reason is not OutcomeReason.INTERRUPTED:  # the detail is about CLI internals
        yield from printable(outcome.detail).splitlines()
    if outcome.reason in _PROCESS and outcome.process is not None:
        yield from printable(str(outcome.process)).splitlines()
    advice = _ADVICE.get(outcome.reason, OUTCOME_ERRORS[outcome.reason].advice)
    if advice:
        yield advice
    if outcome.session_id is not None and outcome.reason in _TO_BE_CONTINUED:
        yield f'To continue: bridle run --resume {printable(outcome.session_id)} "..."'


def summary(outcome: Outcome[Any]) -> dict[str, object]:
    """Return the outcome as the last line of ``--json``."""
    return {
        "type": "bridle_outcome",
        "ok": outcome.ok,
        "exit_code": int(exit_code_for(outcome.reason)),
        "reason": str(outcome.reason),
        "detail": outcome.detail,
        "text": outcome.text,
        "errors": list(outcome.errors),
        "session_id": outcome.session_id,
        "num_turns": outcome.num_turns,
        "api_retries": outcome.api_retries,
        "cost_usd": outcome.cost_usd,
        "duration": round(outcome.duration, 3),
        "resets_at": outcome.resets_at,
        "cli_exit_code": outcome.exit_code,
    }


def failure(error: BridleError, exit_code: int) -> dict[str, object]:
    """Return the error of a run without an outcome, as the last line of ``--json``."""
    return {
        "type": "bridle_outcome",
        "ok": False,
        "exit_code": exit_code,
        "reason": None,
        "error": type(error).__name__,
        "detail": str(error),
    }
