"""Why a turn ended: what real CLIs sent, and every combination of what they might."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bridle._engine.turns.classify import (
    Ending,
    Facts,
    HookNotice,
    LimitHit,
    LimitName,
    OutputState,
    ProcessEnd,
    ResultEnd,
    ResultLost,
    TurnedAway,
    Withdrawn,
    classify,
)
from bridle.errors import ProcessInfo
from bridle.outcomes import OutcomeReason

Fields = dict[str, Any]

# ---------------------------------------------------------------- as recorded

CLEAN: Fields = {
    "subtype": "success",
    "is_error": False,
    "terminal_reason": "completed",
    "stop_reason": "end_turn",
    "num_turns": 1,
    "text": "hi there",
}
LOCAL: Fields = {"subtype": "success", "is_error": False, "num_turns": 0}
BROKEN: Fields = {"subtype": "error_during_execution", "is_error": True}
API_325: Fields = CLEAN | {
    "is_error": True,
    "terminal_reason": "api_error",
    "stop_reason": "stop_sequence",
    "text": "API Error",
}
API_197: Fields = API_325 | {"terminal_reason": "completed"}

BLOCKED_TEXT = "UserPromptSubmit operation blocked by hook:\nR\n\nOriginal prompt: P"
STOPPED_TEXT = "Operation stopped by hook: R"
ABORTED = ("[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null",)
NO_SESSION = ("No conversation found with session ID: 12345678",)


def api(error: str, status: int | None = None, **fields: Any) -> list[tuple[Fields, Fields]]:
    """An API failure as 2.1.325 and as 2.1.197 report it."""
    return [
        (kind | {"api_error_status": status} | fields, {"assistant_error": error})
        for kind in (API_325, API_197)
    ]


# Reason, then the result's fields and the turn's other facts, for each version that differs.
RECORDED: dict[str, tuple[str, list[tuple[Fields, Fields]]]] = {
    "a text answer": ("completed", [(CLEAN, {})]),
    "a text answer of 2.0, which has neither reason": (
        "completed",
        [({"subtype": "success", "is_error": False, "num_turns": 3, "text": "ok"}, {})],
    ),
    "a failure that a retry got over": ("completed", [(CLEAN | {"text": "after retry"}, {})]),
    "a refusal the model was talked out of": ("completed", [(CLEAN | {"num_turns": 2}, {})]),
    "a rate limit warning": ("completed", [(CLEAN, {"rate_limit_rejected": False})]),
    "/clear, /compact": ("completed", [(LOCAL, {})]),
    "/context": ("completed", [(LOCAL | {"text": "Total cost: $0.0002"}, {})]),
    "/compact that fails": (
        "execution_error",
        [
            (LOCAL | {"text": "Error during compaction"}, {"command_error": "Error during"}),
            (LOCAL, {"command_error": "Error: No messages to compact"}),
        ],
    ),
    "an unknown /command on 2.1.197": (
        "execution_error",
        [(LOCAL | {"text": "Unknown command: /nonesuch"}, {})],
    ),
    "structured output": (
        "completed",
        [(CLEAN | {"stop_reason": "tool_use", "text": '{"x":5}'}, {"output": "valid"})],
    ),
    "text where structured output was asked for": (
        "output_missing",
        [(CLEAN | {"num_turns": 2, "text": "just text"}, {"output": "missing"})],
    ),
    "structured output we find fault with": ("output_invalid", [(CLEAN, {"output": "invalid"})]),
    "structured output that is never valid": (
        "output_invalid",
        [
            (
                {
                    "subtype": "error_max_structured_output_retries",
                    "is_error": True,
                    "terminal_reason": terminal,
                    "stop_reason": "tool_use",
                    "num_turns": 6,
                    "errors": ("Failed to provide valid structured output after 5 attempts",),
                },
                {"output": "missing"},
            )
            for terminal in ("structured_output_retry_exhausted", None)
        ],
    ),
    "max_turns": (
        "max_turns",
        [
            (
                {
                    "subtype": "error_max_turns",
                    "is_error": True,
                    "terminal_reason": "max_turns",
                    "stop_reason": "tool_use",
                    "num_turns": 3,
                    "errors": ("Reached maximum number of turns (2)",),
                },
                {},
            )
        ],
    ),
    "max_budget_usd, in a tool and for a later prompt": (
        "max_budget",
        [
            (
                {
                    "subtype": "error_max_budget_usd",
                    "is_error": True,
                    "terminal_reason": terminal,
                    "stop_reason": stop,
                    "num_turns": 1,
                    "errors": ("Reached maximum budget ($0.5)",),
                },
                {},
            )
            for terminal in ("budget_exhausted", None)
            for stop in ("tool_use", None)
        ],
    ),
    "an interrupt; end_session; SIGINT": (
        "interrupted",
        [
            (
                BROKEN | {"terminal_reason": "aborted_streaming", "errors": ABORTED},
                {"interrupt_sent": sent},
            )
            for sent in (True, False)
        ],
    ),
    "an interrupt in a tool; a permission denied with interrupt": (
        "interrupted",
        [
            (
                BROKEN
                | {"terminal_reason": "aborted_tools", "stop_reason": "tool_use", "num_turns": 3},
                {},
            )
        ],
    ),
    "a hook that ends the turn after a tool": (
        "stopped_by_hook",
        [(CLEAN | {"terminal_reason": "hook_stopped", "stop_reason": "tool_use", "text": ""}, {})],
    ),
    "a Stop hook that ends the turn": (
        "stopped_by_hook",
        [(CLEAN | {"terminal_reason": "stop_hook_prevented", "text": "after tool"}, {})],
    ),
    "a hook of ours that ends the turn of 2.1.197 by an interrupt": (
        "stopped_by_hook",
        [
            (
                BROKEN | {"terminal_reason": "aborted_tools", "errors": ABORTED},
                {"ended_by_hook": "enough", "interrupt_sent": True},
            )
        ],
    ),
    "a deferred tool": (
        "tool_deferred",
        [
            (
                CLEAN
                | {"terminal_reason": "tool_deferred", "stop_reason": "tool_deferred", "text": ""},
                {},
            )
        ],
    ),
    "a blocked prompt": (
        "prompt_blocked",
        [
            (
                LOCAL | {"text": BLOCKED_TEXT},
                {
                    "hook_notice": HookNotice(
                        prevent_continuation=True, kind="blocked_by_hook", reason="R"
                    )
                },
            ),
            (
                LOCAL | {"text": BLOCKED_TEXT},
                {"hook_notice": HookNotice(prevent_continuation=True)},
            ),
            (LOCAL | {"text": BLOCKED_TEXT}, {}),
            (LOCAL, {"block_reason": "R"}),
            (LOCAL | {"text": "other words"}, {"block_reason": "R"}),
        ],
    ),
    "a stopped prompt": (
        "stopped_by_hook",
        [
            (
                LOCAL | {"text": STOPPED_TEXT},
                {
                    "hook_notice": HookNotice(
                        prevent_continuation=True, kind="stopped_by_hook", reason="R"
                    )
                },
            ),
            (
                LOCAL | {"text": STOPPED_TEXT},
                {"hook_notice": HookNotice(prevent_continuation=True)},
            ),
            (LOCAL | {"text": STOPPED_TEXT}, {}),
            (LOCAL | {"text": "other words"}, {"hook_reason": "R", "stops_prompt": True}),
        ],
    ),
    "a command that ran while a hook of another event ended the turn": (
        "completed",
        [(LOCAL | {"text": "## Context"}, {"hook_reason": "R"})],
    ),
    "a turn into which another prompt was not let": (
        "completed",
        [
            (
                CLEAN | {"num_turns": 2},
                {"hook_notice": HookNotice(prevent_continuation=True, kind="blocked_by_hook")},
            )
        ],
    ),
    "400": ("api_error", api("unknown", 400)),
    "400, credit": ("api_error", api("billing_error", 400)),
    "400, too long": (
        "api_error",
        api("invalid_request", 400, terminal_reason="prompt_too_long"),
    ),
    "401": ("auth_failed", api("authentication_failed", 401)),
    "403": ("auth_failed", api("authentication_failed", 403)),
    "404": ("api_error", api("model_not_found", 404)),
    "413": ("api_error", api("invalid_request", 413, terminal_reason="image_error")),
    "429": ("rate_limited", api("rate_limit", 429)),
    "500": ("api_error", api("server_error", 500)),
    "529": ("api_error", api("server_error", 529)),
    "no connection": ("api_error", api("server_error")),
    "an error in the stream": ("api_error", api("unknown")),
    "an answer that is always too long": ("api_error", api("max_output_tokens", num_turns=4)),
    "not logged in": (
        "auth_failed",
        api("authentication_failed", text="Not logged in · Please run /login"),
    ),
    "the account's limit": (
        "rate_limited",
        [
            (kind | {"api_error_status": 429}, facts)
            for kind in (API_325, API_197)
            for facts in ({"assistant_error": "rate_limit", "rate_limit_rejected": True},)
        ],
    ),
    "a refusal": ("refused", api("invalid_request", stop_reason="refusal")),
    "a session that cannot be resumed": (
        "execution_error",
        [(BROKEN | {"num_turns": 0, "errors": NO_SESSION}, {})],
    ),
}


def facts_of(fields: Fields, others: Fields) -> Facts:
    return Facts(ending=ResultEnd(**fields), **others)


@pytest.mark.parametrize(
    ("expected", "facts"),
    [
        pytest.param(reason, facts_of(*variant), id=f"{name} ({number})")
        for name, (reason, variants) in RECORDED.items()
        for number, variant in enumerate(variants)
    ],
)
def test_what_was_recorded_is_reported_for_what_it_was(expected: str, facts: Facts) -> None:
    assert classify(facts)[0] == expected


# ---------------------------------------------------------------- not recorded, still decided


@pytest.mark.parametrize(
    ("expected", "fields", "others"),
    [
        # 2.0 names no terminal reason: our own interrupt is what explains the failure.
        ("interrupted", BROKEN, {"interrupt_sent": True}),
        ("stopped_by_hook", BROKEN, {"interrupt_sent": True, "ended_by_hook": "enough"}),
        ("execution_error", BROKEN, {}),
        # An interrupt, or the wish of a hook, that came too late to matter.
        ("completed", CLEAN, {"interrupt_sent": True, "ended_by_hook": "enough"}),
        # A rejection explains a failure, but is none.
        ("rate_limited", API_197, {"rate_limit_rejected": True}),
        ("rate_limited", BROKEN, {"rate_limit_rejected": True}),
        ("completed", CLEAN, {"rate_limit_rejected": True}),
        ("api_error", API_325 | {"api_error_status": 500}, {"rate_limit_rejected": True}),
        # The assistant's error is more precise than the status, the status than nothing.
        ("auth_failed", API_325 | {"api_error_status": 401}, {}),
        ("auth_failed", API_325 | {"api_error_status": 403}, {}),
        ("rate_limited", API_325 | {"api_error_status": 429}, {}),
        ("auth_failed", API_325, {"assistant_error": "oauth_org_not_allowed"}),
        ("rate_limited", API_325 | {"api_error_status": 403}, {"assistant_error": "rate_limit"}),
        ("api_error", API_197, {}),
        ("api_error", CLEAN, {"assistant_error": "something new"}),
        ("api_error", CLEAN | {"api_error_status": 418}, {}),
        ("api_error", CLEAN | {"terminal_reason": "api_error"}, {}),
        # A part of an answer.
        ("api_error", CLEAN | {"stop_reason": "max_tokens"}, {}),
        ("api_error", CLEAN | {"stop_reason": "model_context_window_exceeded"}, {}),
        ("api_error", CLEAN | {"stop_reason": "pause_turn"}, {}),
        ("completed", CLEAN | {"stop_reason": "something_new"}, {}),
        # Nobody vouches for these.
        ("execution_error", CLEAN | {"terminal_reason": "something_new"}, {}),
        ("execution_error", CLEAN | {"subtype": "error_something_new"}, {}),
        ("execution_error", CLEAN | {"subtype": None}, {}),
        ("execution_error", CLEAN | {"subtype": ""}, {}),
        ("execution_error", CLEAN | {"is_error": None}, {}),
        ("execution_error", CLEAN | {"errors": ("odd",)}, {}),
        ("execution_error", CLEAN | {"misfits": ("is_error",)}, {}),
        ("execution_error", {}, {}),
        # A field that could not be read but does not tell how the turn went.
        ("completed", CLEAN | {"misfits": ("usage", "modelUsage")}, {}),
        # A hook that stopped the prompt in a way only a newer CLI has a name for.
        (
            "stopped_by_hook",
            LOCAL,
            {"hook_notice": HookNotice(prevent_continuation=True, kind="something_new")},
        ),
        ("completed", LOCAL, {"hook_notice": HookNotice(kind="something_new")}),
        # The model may say what it likes.
        ("completed", CLEAN | {"text": BLOCKED_TEXT}, {}),
        ("completed", CLEAN | {"text": STOPPED_TEXT}, {}),
        ("completed", CLEAN | {"text": "Unknown command: /x"}, {}),
        # An automatic compaction that failed was survived.
        ("completed", CLEAN, {"command_error": "Error during compaction"}),
        # What is missing is only asked after when nothing else is wrong.
        ("api_error", API_325, {"output": "missing"}),
        ("refused", CLEAN | {"stop_reason": "refusal"}, {"output": "invalid"}),
        ("output_missing", LOCAL, {"output": "missing"}),
    ],
)
def test_what_was_not_recorded_is_decided_by_what_is_certain(
    expected: str, fields: Fields, others: Fields
) -> None:
    assert classify(facts_of(fields, others))[0] == expected


# ---------------------------------------------------------------- endings without a result


@pytest.mark.parametrize(
    ("ending", "reason", "detail"),
    [
        (
            ResultLost(),
            "message_lost",
            "the result could not be read",
        ),
        (Withdrawn(), "interrupted", "the prompt was withdrawn before it ran"),
        (TurnedAway(), "prompt_blocked", "a hook blocked the prompt"),
        (ProcessEnd(), "cli_exited", "the CLI ended before the turn did"),
        (
            ProcessEnd(process=ProcessInfo(exit_code=-9)),
            "cli_exited",
            "the CLI ended before the turn did: SIGKILL (exit code -9)",
        ),
        (
            ProcessEnd(process=ProcessInfo(exit_code=0), cause="its output ended"),
            "cli_exited",
            "the CLI ended before the turn did: its output ended",
        ),
        (
            ProcessEnd(process=ProcessInfo(exit_code=143), by_us=True),
            "stopped",
            "the session was stopped before the turn ended",
        ),
        (
            ProcessEnd(by_us=True, cause="nobody read the messages"),
            "stopped",
            "the session was stopped before the turn ended: nobody read the messages",
        ),
    ],
)
def test_a_turn_without_a_result_ends_with_its_cause(
    ending: Ending, reason: str, detail: str
) -> None:
    assert classify(Facts(ending=ending)) == (reason, detail)


@pytest.mark.parametrize(
    ("name", "allowed", "detail"),
    [
        ("first_event", 30.0, "nothing came within 30 s of the prompt"),
        ("idle", 0.5, "nothing came for 0.5 s"),
        ("total", 600.0, "the turn was not over after 600 s"),
        ("turns", 3, "more than 3 model calls were made"),
        ("usd", 0.25, "more than $0.25 was spent"),
    ],
)
@pytest.mark.parametrize(
    ("ending", "then"),
    [
        (ResultEnd(subtype="error_during_execution", terminal_reason="aborted_tools"), ""),
        (ResultLost("too long"), "; then the result could not be read: too long"),
        (Withdrawn(), ""),
        (ProcessEnd(by_us=True), ""),
        (ProcessEnd(cause="it did not end"), ""),
    ],
    ids=repr,
)
def test_a_turn_that_was_ended_for_a_limit_has_it_as_its_reason(
    name: LimitName, allowed: float, detail: str, ending: Ending, then: str
) -> None:
    given_up = isinstance(ending, ProcessEnd) and not ending.by_us
    facts = Facts(ending=ending, limit=LimitHit(name, allowed, given_up))
    assert classify(facts) == (f"limit_{name}", detail + then)
    completed = Facts(ending=ResultEnd(**CLEAN), limit=LimitHit(name, allowed))
    assert classify(completed) == ("completed", "")


def test_a_turn_that_ends_otherwise_after_it_reached_a_limit_keeps_its_cause() -> None:
    limit = LimitHit("total", 9.0)
    before = "; before that, the turn was not over after 9 s"
    reason, detail = classify(Facts(ending=ProcessEnd(), limit=limit))
    assert (reason, detail) == ("cli_exited", "the CLI ended before the turn did" + before)
    reason, detail = classify(Facts(ending=TurnedAway("no"), limit=limit))
    assert (reason, detail) == ("prompt_blocked", "a hook blocked the prompt: no" + before)
    rejected = ResultEnd(**{**API_325, "api_error_status": 429})
    reason, detail = classify(Facts(ending=rejected, limit=limit))
    assert reason == "rate_limited"
    assert detail.endswith(before)
    reason, detail = classify(Facts(ending=ResultEnd(**BROKEN), limit=limit))
    assert reason == "limit_total"
    assert "; then the CLI reported a failure" in detail


# ---------------------------------------------------------------- the cause in words

_BLOCKED = "UserPromptSubmit operation blocked by hook:"
_STOPPED = "Operation stopped by hook:"


@pytest.mark.parametrize(
    ("fields", "others", "detail"),
    [
        (CLEAN, {}, ""),
        (
            API_325 | {"api_error_status": 529, "text": "API Error: 529 Overloaded"},
            {},
            "the API call failed with status 529: API Error: 529 Overloaded",
        ),
        (API_325 | {"text": ""}, {}, "the API call failed"),
        (
            BROKEN | {"terminal_reason": "aborted_tools", "errors": ABORTED},
            {},
            "interrupted while a tool ran or waited for permission",
        ),
        (BROKEN, {"interrupt_sent": True}, "interrupted"),
        (
            BROKEN | {"terminal_reason": "aborted_tools"},
            {"ended_by_hook": "enough"},
            "a hook ended the turn: enough",
        ),
        (
            BROKEN | {"errors": (*ABORTED, "one", "two")},
            {},
            "the CLI reported a failure (error_during_execution, None, is_error True): one; two",
        ),
        (
            CLEAN | {"terminal_reason": "stop_hook_prevented", "text": "the answer"},
            {},
            "a Stop hook ended the turn",
        ),
        (
            LOCAL | {"text": BLOCKED_TEXT},
            {"hook_notice": HookNotice(kind="blocked_by_hook", reason="R")},
            "a hook blocked the prompt: R",
        ),
        (
            CLEAN | {"terminal_reason": "stop_hook_prevented", "text": "the answer"},
            {"hook_reason": "enough"},
            "a Stop hook ended the turn: enough",
        ),
        (
            CLEAN | {"terminal_reason": "hook_stopped", "text": ""},
            {"hook_reason": "enough"},
            "a hook ended the turn: enough",
        ),
        (
            LOCAL | {"text": f"{_BLOCKED}\nwhy\n\nOriginal prompt: my words"},
            {},
            "a hook blocked the prompt: why",
        ),
        (LOCAL | {"text": f"{_STOPPED} why"}, {}, "a hook stopped the prompt: why"),
        (
            LOCAL | {"text": f"{_BLOCKED}\nothers"},
            {"block_reason": "ours"},
            "a hook blocked the prompt: ours",
        ),
        (LOCAL, {"command_error": " too short "}, "the command failed: too short"),
        (
            CLEAN | {"misfits": ("usage", "is_error", "errors")},
            {},
            "the result cannot be read: is_error, errors",
        ),
        (
            CLEAN,
            {"output": "invalid", "output_problem": "x: expected int"},
            "the structured output does not fit: x: expected int",
        ),
        (
            API_325 | {"text": "x" * 501},
            {},
            "the API call failed: " + "x" * 500 + "…",
        ),
        (API_325 | {"text": "x" * 500}, {}, "the API call failed: " + "x" * 500),
    ],
)
def test_the_detail_says_what_happened_in_the_words_of_the_cli(
    fields: Fields, others: Fields, detail: str
) -> None:
    assert classify(facts_of(fields, others))[1] == detail


# ---------------------------------------------------------------- every combination

SUBTYPES = (
    "success",
    "error_during_execution",
    "error_max_turns",
    "error_max_budget_usd",
    "error_max_structured_output_retries",
    "error_new",
    None,
)
TERMINAL_REASONS = (
    None,
    "completed",
    "aborted_streaming",
    "aborted_tools",
    "max_turns",
    "budget_exhausted",
    "structured_output_retry_exhausted",
    "hook_stopped",
    "stop_hook_prevented",
    "tool_deferred",
    "api_error",
    "prompt_too_long",
    "new",
)
STOP_REASONS = (None, "end_turn", "refusal", "tool_deferred", "max_tokens")
STATUSES = (None, 400, 401, 429)
ASSISTANT_ERRORS = (None, "unknown", "authentication_failed", "rate_limit")
NOTICES = (
    None,
    HookNotice(prevent_continuation=True),
    HookNotice(prevent_continuation=True, kind="blocked_by_hook"),
    HookNotice(prevent_continuation=True, kind="stopped_by_hook"),
)
OUTPUTS: tuple[OutputState, ...] = ("unasked", "valid", "missing", "invalid")
BOOLS = (False, True)
TEXTS = ("an answer", BLOCKED_TEXT, STOPPED_TEXT, "Unknown command: /x")


def signs_of_failure(facts: Facts, result: ResultEnd) -> dict[str, bool]:
    """Everything in the facts that forbids calling the turn completed, told field by field."""
    no_model = result.terminal_reason is None
    return {
        "subtype": result.subtype != "success",
        "is_error": result.is_error is not False,
        "terminal_reason": result.terminal_reason not in (None, "completed"),
        "stop_reason": result.stop_reason in ("refusal", "tool_deferred", "max_tokens"),
        "api_error_status": result.api_error_status is not None,
        "errors": result.errors != (),
        "misfits": "is_error" in result.misfits,
        "assistant_error": facts.assistant_error is not None,
        "hook_notice": no_model and facts.hook_notice is not None,
        "command_error": no_model and facts.command_error is not None,
        "text": no_model and result.num_turns == 0 and result.text != "an answer",
        "output": facts.output in ("missing", "invalid"),
    }


def check(facts: Facts, result: ResultEnd) -> OutcomeReason:
    reason, detail = classify(facts)
    failed = any(signs_of_failure(facts, result).values())
    assert (reason is not OutcomeReason.COMPLETED) == failed, facts
    assert bool(detail) == failed, facts
    return reason


def test_every_combination_of_a_result_gets_one_reason_and_only_a_clean_one_is_ok() -> None:
    seen: set[OutcomeReason] = set()
    for subtype, is_error, terminal, stop, status in itertools.product(
        SUBTYPES, (False, True, None), TERMINAL_REASONS, STOP_REASONS, STATUSES
    ):
        result = ResultEnd(
            subtype=subtype,
            is_error=is_error,
            terminal_reason=terminal,
            stop_reason=stop,
            api_error_status=status,
            num_turns=1,
        )
        for error, notice, rejected in itertools.product(ASSISTANT_ERRORS, NOTICES, BOOLS):
            facts = Facts(
                ending=result,
                assistant_error=error,
                hook_notice=notice,
                rate_limit_rejected=rejected,
            )
            seen.add(check(facts, result))
    assert seen == set(OutcomeReason) - {
        reason
        for reason in OutcomeReason
        if reason.startswith("limit_")
        or reason in ("output_missing", "message_lost", "cli_exited", "stopped", "start_failed")
    }


def test_every_combination_of_the_other_facts_gets_one_reason_and_only_a_clean_one_is_ok() -> None:
    for subtype, is_error, terminal, turns, text, errors, misfits in itertools.product(
        ("success", "error_during_execution", None),
        (False, True, None),
        (None, "completed", "aborted_tools", "new"),
        (0, 1),
        TEXTS,
        ((), ("odd",)),
        ((), ("usage",), ("is_error",)),
    ):
        result = ResultEnd(
            subtype=subtype,
            is_error=is_error,
            terminal_reason=terminal,
            num_turns=turns,
            text=text,
            errors=errors,
            misfits=misfits,
        )
        for output, interrupted, by_hook, command, limit in itertools.product(
            OUTPUTS, BOOLS, (None, "enough"), (None, "failed"), (None, LimitHit("idle", 1.0))
        ):
            facts = Facts(
                ending=result,
                output=output,
                interrupt_sent=interrupted,
                ended_by_hook=by_hook,
                command_error=command,
                limit=limit,
            )
            reason = check(facts, result)
            assert limit is not None or reason != "limit_idle"
            assert limit is None or reason not in ("interrupted", "execution_error")
