"""Decide why a turn ended: facts go in, one `OutcomeReason` and its cause as text come out.

The CLI's own success counts only if every field agrees with it. The CLI reports API failures as
`subtype: "success"`, older versions call them `terminal_reason: "completed"`, and a blocked prompt
or a failed slash command looks like a normal answer. So each sign of a failure is looked up
separately, in tables that are read from top to bottom. A turn without such a sign is `completed`.
`classify` is total: any combination of values gets exactly one reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from bridle._engine.turns.model_text import UNKNOWN_COMMAND, result_text
from bridle.errors import ProcessInfo
from bridle.messages import InformationalMessage, ResultMessage
from bridle.outcomes import Outcome, OutcomeReason

# ---------------------------------------------------------------- facts

LimitName: TypeAlias = Literal["first_event", "idle", "total", "turns", "usd"]
OutputState: TypeAlias = Literal["unasked", "valid", "missing", "invalid"]


class LimitHit(msgspec.Struct, frozen=True):
    """A limit of ours that a turn has reached. The turn was interrupted for it."""

    name: LimitName
    allowed: float
    #: True if the turn did not end after the interrupt and the session was ended for that.
    is_given_up: bool = False
    #: Why it cannot be known whether the limit is reached. It then counts as reached.
    problem: str = ""

    @property
    def detail(self) -> str:
        """Return what happened, for the outcome."""
        if self.problem:
            return f"the cost could not be read: {self.problem}"
        return _LIMITS[self.name][1].format(self.allowed)


class ResultEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a `result` line that say how the turn ended. None if a field is absent."""

    subtype: str | None = None
    is_error: bool | None = None
    terminal_reason: str | None = None
    stop_reason: str | None = None
    api_error_status: int | None = None
    num_turns: int | None = None
    text: str = ""
    errors: tuple[str, ...] = ()
    #: Fields whose value has the wrong type, so that their meaning is unknown.
    misfits: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: ResultMessage) -> ResultEnd:
        """Return the fields of a result message."""
        return cls(
            subtype=message.subtype,
            is_error=message.is_error,
            terminal_reason=message.terminal_reason,
            stop_reason=message.stop_reason,
            api_error_status=message.api_error_status,
            num_turns=message.num_turns,
            text=message.result or "",
            errors=message.errors,
            misfits=message.misfits,
        )


class ResultLost(msgspec.Struct, frozen=True):
    """A `result` line arrived but could not be read."""

    what: str = ""


class Withdrawn(msgspec.Struct, frozen=True):
    """The prompt was withdrawn from the CLI's queue before it ran. There is no result."""


class TurnedAway(msgspec.Struct, frozen=True):
    """The CLI finished a prompt that never became part of a turn. There is no result."""

    #: The reason of the hook that blocked it.
    reason: str = ""


class NothingWaits(msgspec.Struct, frozen=True):
    """The conversation was resumed to decide about a tool call, but no call waits in it."""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI exited, or Bridle gave up on it, before any result."""

    process: ProcessInfo | None = None
    #: True if Bridle ended it: by a stop, a close, or because the session had failed.
    by_us: bool = False
    #: The cause, if more is known than the exit code.
    cause: str = ""


Ending: TypeAlias = ResultEnd | ResultLost | Withdrawn | TurnedAway | NothingWaits | ProcessEnd


class HookNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A `system/informational` line that says what a hook did to the prompt."""

    prevent_continuation: bool = False
    #: `prompt_submit_outcome.kind` and `.reason`; older CLIs do not send them.
    kind: str | None = None
    reason: str | None = None

    @classmethod
    def of(cls, message: InformationalMessage) -> HookNotice:
        """Return the notice in a message of the CLI."""
        said = message.prompt_submit_outcome or {}
        kind, reason = said.get("kind"), said.get("reason")
        return cls(
            prevent_continuation=message.prevent_continuation,
            kind=kind if isinstance(kind, str) else None,
            reason=reason if isinstance(reason, str) else None,
        )


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides how one turn ended."""

    ending: Ending
    limit: LimitHit | None = None
    #: True if an interrupt of ours was sent while the turn ran.
    interrupt_sent: bool = False
    #: Reason of a hook of ours that ended the turn by an interrupt. 2.1.197 needs the interrupt: it
    #: goes on after a tool that was denied with `continue: false`.
    ended_by_hook: str | None = None
    #: Reason of the last hook of ours that ended the turn (`EndTurn`), and of the last one that
    #: blocked a prompt (`Block`). Not every CLI repeats them.
    hook_reason: str = ""
    block_reason: str = ""
    #: True if the hook that ended the turn was one of UserPromptSubmit.
    stops_prompt: bool = False
    #: `error` of the last message of the main thread. The turn recovered from earlier ones.
    assistant_error: str | None = None
    #: Error text of a slash command outside the result: `compact_error` of a system/status, or the
    #: text of an assistant message whose local_command_outcome is failed.
    command_error: str | None = None
    hook_notice: HookNotice | None = None
    #: True if the turn's last rate_limit_event was a rejection. It explains a failure but does not
    #: count as one: with overage or a fallback model the turn still completes.
    rate_limit_rejected: bool = False
    output: OutputState = "unasked"
    #: Why the output is invalid.
    output_problem: str = ""


# ---------------------------------------------------------------- tables

_R = OutcomeReason

_LIMITS: Mapping[LimitName, tuple[OutcomeReason, str]] = {
    "first_event": (_R.LIMIT_FIRST_EVENT, "nothing came within {:g} s of the prompt"),
    "idle": (_R.LIMIT_IDLE, "nothing came for {:g} s"),
    "total": (_R.LIMIT_TOTAL, "the turn was not over after {:g} s"),
    "turns": (_R.LIMIT_TURNS, "more than {:g} model calls were made"),
    "usd": (_R.LIMIT_USD, "more than ${:g} was spent"),
}

# Reasons of turns that we end for a limit, and failures that our interrupt may have caused.
_INTERRUPTED = frozenset({_R.INTERRUPTED, _R.STOPPED})
_UNEXPLAINED = frozenset({_R.EXECUTION_ERROR, _R.MESSAGE_LOST})

_Verdicts: TypeAlias = Mapping[str | None, tuple[OutcomeReason, str]]

# Caused by an interrupt, a permission denied with interrupt, SIGINT, or end_session in a turn.
_ABORTED: Mapping[str | None, str] = {
    "aborted_streaming": "interrupted while the model answered",
    "aborted_tools": "interrupted while a tool ran or waited for permission",
}

_TERMINAL_REASONS: _Verdicts = {
    # These also have an error subtype. 2.1.197 sends only max_turns here.
    "max_turns": (_R.MAX_TURNS, "the CLI reached its max_turns"),
    "budget_exhausted": (_R.MAX_BUDGET, "the CLI reached its max_budget_usd"),
    "structured_output_retry_exhausted": (
        _R.OUTPUT_INVALID,
        "the model did not produce valid structured output",
    ),
    # The next three have subtype success and is_error false. A hook's `continue: false`:
    "hook_stopped": (_R.STOPPED_BY_HOOK, "a hook ended the turn"),
    "stop_hook_prevented": (_R.STOPPED_BY_HOOK, "a Stop hook ended the turn"),
    "tool_deferred": (_R.TOOL_DEFERRED, "a hook deferred a tool call"),
}

_SUBTYPES: _Verdicts = {
    # 2.1.197 reports the last two by subtype only.
    "error_max_turns": _TERMINAL_REASONS["max_turns"],
    "error_max_budget_usd": _TERMINAL_REASONS["budget_exhausted"],
    "error_max_structured_output_retries": _TERMINAL_REASONS["structured_output_retry_exhausted"],
}

_STOP_REASONS: _Verdicts = {
    # 2.1.197 ends with is_error and assistant error "invalid_request". 2.1.325 first asks the model
    # again, and then this field describes the second answer.
    "refusal": (_R.REFUSED, "the model declined to answer"),
    "tool_deferred": _TERMINAL_REASONS["tool_deferred"],
    # The CLI resumed a deferred call whose tool it does not have. The call still waits.
    "tool_deferred_unavailable": (
        _R.EXECUTION_ERROR,
        "the tool of the call that waits for approval is not available",
    ),
}

# The answer is incomplete. The CLI requests the rest a few times and then reports an API failure
# (assistant error "max_output_tokens"). No CLI was seen to send these stop reasons of the API in a
# result. They are listed in case a CLI passes an incomplete answer as complete.
_CUT_OFF: _Verdicts = {
    "max_tokens": (_R.API_ERROR, "the answer was cut off at the model's output limit"),
    "model_context_window_exceeded": (
        _R.API_ERROR,
        "the answer was cut off at the end of the context window",
    ),
    "pause_turn": (_R.API_ERROR, "the model paused and was not asked to go on"),
}

# The kind of API failure: by the assistant message's error, else by the HTTP status. The other
# values (billing_error, invalid_request, model_not_found, server_error, max_output_tokens, unknown;
# 400, 404, 413, 5xx) have no reason of their own. A missing login has no status.
# oauth_org_not_allowed has not been seen.
_ASSISTANT_ERRORS: Mapping[str | None, OutcomeReason] = {
    "authentication_failed": _R.AUTH_FAILED,
    "oauth_org_not_allowed": _R.AUTH_FAILED,
    "rate_limit": _R.RATE_LIMITED,
}
_API_STATUSES: Mapping[int | None, OutcomeReason] = {
    401: _R.AUTH_FAILED,
    403: _R.AUTH_FAILED,
    429: _R.RATE_LIMITED,
}

# The only signs in 2.1.197 of a prompt that did not reach the model, each with num_turns 0.
_BLOCKED_TEXT = "UserPromptSubmit operation blocked by hook:"
_STOPPED_TEXT = "Operation stopped by hook:"
_ORIGINAL_PROMPT = "\n\nOriginal prompt:"

# A success with another terminal reason cannot be trusted. 2.0, slash commands and blocked prompts
# have no such field.
_CLEAN_TERMINAL_REASONS = (None, "completed")

# A success cannot be trusted either if one of these fields could not be read.
_VERDICT_FIELDS = frozenset(
    {"subtype", "is_error", "terminal_reason", "stop_reason", "api_error_status", "errors"}
)


# ---------------------------------------------------------------- reading a result line

_Verdict: TypeAlias = tuple[OutcomeReason, str]
_Sign: TypeAlias = Callable[[Facts, ResultEnd], _Verdict | None]


def _aborted(facts: Facts, result: ResultEnd) -> _Verdict | None:
    """Detect an interrupted turn.

    In 2.0, which has no terminal_reason, a failure after an interrupt of ours counts as its effect.
    This was not seen on the wire.
    """
    unexplained = result.subtype == "error_during_execution" and result.terminal_reason is None
    if result.terminal_reason not in _ABORTED and not (facts.interrupt_sent and unexplained):
        return None
    if facts.ended_by_hook is not None:
        return _R.STOPPED_BY_HOOK, _join("a hook ended the turn", _clip(facts.ended_by_hook))
    return _R.INTERRUPTED, _ABORTED.get(result.terminal_reason, "interrupted")


def _named(facts: Facts, result: ResultEnd) -> _Verdict | None:
    """Look for a field that names the reason. The more specific field comes first."""
    verdict = (
        _TERMINAL_REASONS.get(result.terminal_reason)
        or _SUBTYPES.get(result.subtype)
        or _STOP_REASONS.get(result.stop_reason)
    )
    if verdict is None:
        return None
    reason, sentence = verdict
    if reason is _R.STOPPED_BY_HOOK:
        return reason, _join(sentence, _clip(facts.hook_reason or facts.block_reason))
    return reason, _with_words(sentence, result)


def _hooked(facts: Facts, result: ResultEnd) -> _Verdict | None:
    """Detect a prompt that a UserPromptSubmit hook kept from the model: a success with no turns.

    Such a result has no terminal_reason. A result that has one belongs to a turn that went on. The
    notice was then about another prompt, which was blocked on its way into that turn. CLIs that
    do not name the kind are judged by what a hook of ours decided about the prompt.
    """
    if (result.subtype, result.is_error, result.terminal_reason) != ("success", False, None):
        return None
    notice = facts.hook_notice or HookNotice()
    text = _local_text(result)
    ours = facts.hook_reason or facts.block_reason
    words = _clip(notice.reason or ours or _hook_words(text))
    if notice.kind == "blocked_by_hook" or text.startswith(_BLOCKED_TEXT):
        return _R.PROMPT_BLOCKED, _join("a hook blocked the prompt", words)
    if notice.kind == "stopped_by_hook" or text.startswith(_STOPPED_TEXT):
        return _R.STOPPED_BY_HOOK, _join("a hook stopped the prompt", words)
    if result.num_turns == 0 and facts.block_reason and not facts.stops_prompt:
        return _R.PROMPT_BLOCKED, _join("a hook blocked the prompt", words)
    if notice.prevent_continuation or (result.num_turns == 0 and facts.stops_prompt):
        return _R.STOPPED_BY_HOOK, _join("a hook stopped the prompt", words)
    return None


def _api_failed(facts: Facts, result: ResultEnd) -> _Verdict | None:
    """Detect an API failure: `subtype: success` with is_error, and the message as the text."""
    rejected = facts.rate_limit_rejected and result.is_error is not False
    if not (
        rejected
        or facts.assistant_error is not None
        or result.api_error_status is not None
        or result.terminal_reason == "api_error"
        or (result.subtype == "success" and result.is_error)
    ):
        return None
    status = result.api_error_status
    # A rate limit rejection explains a failure that nothing else explains.
    otherwise = _R.RATE_LIMITED if rejected and status is None else _R.API_ERROR
    reason = api_reason(facts.assistant_error, status, otherwise)
    sentence = "the API call failed" + (f" with status {status}" if status is not None else "")
    return reason, _with_words(sentence, result)


def api_reason(
    error: str | None, status: int | None, otherwise: OutcomeReason = OutcomeReason.API_ERROR
) -> OutcomeReason:
    """Return the reason of a turn that ended with this API error and HTTP status."""
    return _ASSISTANT_ERRORS.get(error) or _API_STATUSES.get(status) or otherwise


def _command_failed(facts: Facts, result: ResultEnd) -> _Verdict | None:
    """Detect a failed slash command: a success without terminal_reason, with the error as the text.

    A turn of the model, which has a terminal_reason, recovered from a failed compaction.
    """
    error = facts.command_error
    if error is None and _local_text(result).startswith(UNKNOWN_COMMAND):
        error = result.text
    if error is None or result.terminal_reason is not None:
        return None
    return _R.EXECUTION_ERROR, _join("the command failed", _clip(error))


def _cut_off(_: Facts, result: ResultEnd) -> _Verdict | None:
    """Detect an answer that the model did not finish."""
    return _CUT_OFF.get(result.stop_reason)


def _unproven(_: Facts, result: ResultEnd) -> _Verdict | None:
    """Detect other results that are not a success in all fields: failures to resume, new kinds."""
    unread = [name for name in result.misfits if name in _VERDICT_FIELDS]
    if unread:
        return _R.EXECUTION_ERROR, f"the result cannot be read: {', '.join(unread)}"
    if (
        result.subtype == "success"
        and result.is_error is False
        and result.terminal_reason in _CLEAN_TERMINAL_REASONS
        and not result.errors
    ):
        return None
    said = f"{result.subtype}, {result.terminal_reason}, is_error {result.is_error}"
    return _R.EXECUTION_ERROR, _with_words(f"the CLI reported a failure ({said})", result)


def _output_lacking(facts: Facts, _: ResultEnd) -> _Verdict | None:
    """Detect a success without the requested output. The CLI requests it again only once."""
    if facts.output == "missing":
        return _R.OUTPUT_MISSING, "structured output was requested, but the model did not send any"
    if facts.output == "invalid":
        problem = _clip(facts.output_problem)
        return _R.OUTPUT_INVALID, _join("the structured output does not fit", problem)
    return None


# The first function that returns a reason decides. The way the turn was ended comes before the
# errors in it. The output is checked last, when everything else succeeded.
_SIGNS: tuple[_Sign, ...] = (
    _aborted,
    _named,
    _hooked,
    _api_failed,
    _command_failed,
    _cut_off,
    _unproven,
    _output_lacking,
)


# ---------------------------------------------------------------- the decision


def classify(facts: Facts) -> tuple[OutcomeReason, str]:
    """Return the reason and its cause as text. The text is empty only for `completed`.

    A limit is the reason if the turn ended because of it: by our interrupt, because we gave up on
    the turn, or in a failure that nothing else explains. A turn that ended for another reason after
    reaching a limit keeps that reason, and an answer that completed stays completed.
    """
    reason, words = _judge(facts)
    limit = facts.limit
    if limit is None or reason is _R.COMPLETED:
        return reason, words
    limit_reason, limit_words = _LIMITS[limit.name][0], limit.detail
    if reason in _INTERRUPTED or (reason is _R.CLI_EXITED and limit.is_given_up):
        return limit_reason, limit_words
    if reason in _UNEXPLAINED:
        return limit_reason, f"{limit_words}; then {words}"
    return reason, f"{words}; before that, {limit_words}"


def _judge(facts: Facts) -> tuple[OutcomeReason, str]:
    """Return how the turn ended, ignoring limits."""
    match facts.ending:
        case ResultEnd() as result:
            spoken = (sign(facts, result) for sign in _SIGNS)
            return next(filter(None, spoken), (_R.COMPLETED, ""))
        case ResultLost(what):
            return _R.MESSAGE_LOST, _join("the result could not be read", what)
        case Withdrawn():
            return _R.INTERRUPTED, "the prompt was withdrawn before it ran"
        case TurnedAway(why):
            # 2.1.325 does this with a prompt that a hook blocks on its way into a running turn.
            return _R.PROMPT_BLOCKED, _join("a hook blocked the prompt", _clip(why))
        case NothingWaits():
            sentence = "no call waits for approval in this conversation"
            return _R.EXECUTION_ERROR, f"{sentence}: it was decided, or a prompt discarded it"
        case ProcessEnd() as end:
            if end.by_us:
                return _R.STOPPED, _join("the session was stopped before the turn ended", end.cause)
            how = end.cause or (end.process.ending if end.process else "")
            return _R.CLI_EXITED, _join("the CLI ended before the turn did", how)
        case _:
            assert_never(facts.ending)


# ---------------------------------------------------------------- texts

_MAX_WORDS = 500
# Lines that the CLI adds for its own developers.
_DIAGNOSTIC = "[ede_diagnostic]"


def _with_words(sentence: str, result: ResultEnd) -> str:
    """Append the CLI's own error text. `text` describes the failure only if `is_error` is set."""
    errors = "; ".join(error for error in result.errors if not error.startswith(_DIAGNOSTIC))
    return _join(sentence, _clip(errors or (result.text if result.is_error else "")))


def _local_text(result: ResultEnd) -> str:
    """Return the text if the CLI wrote it without calling a model, else ""."""
    return result.text if result.num_turns == 0 else ""


def _hook_words(text: str) -> str:
    """Return a hook's reason from the CLI's text about it, without the prompt it quotes."""
    text = text.partition(_ORIGINAL_PROMPT)[0]
    return text.removeprefix(_BLOCKED_TEXT).removeprefix(_STOPPED_TEXT)


def _join(sentence: str, words: str) -> str:
    return f"{sentence}: {words}" if words else sentence


def _clip(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]}…"


def with_result(
    outcome: Outcome[Any], result: ResultMessage, cost: float | None, *, pays: bool
) -> Outcome[Any]:
    """Return the outcome with the fields of a result. Of merged prompts one carries the cost."""
    return msgspec.structs.replace(
        outcome,
        text=result_text(result, outcome.text, completed=outcome.ok),
        structured_output=result.structured_output,
        errors=tuple(result.errors or ()),
        session_id=result.session_id,
        cost_usd=cost if pays else 0.0,
        usage=result.usage if pays else None,
        num_turns=result.num_turns,
        result=result,
        deferred_tool_use=result.deferred_tool_use,
    )
