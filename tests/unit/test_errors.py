"""The error tree: what each error carries, says, and survives."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
from collections.abc import Iterator

import pytest

from bridle import errors
from bridle.errors import BridleError, OutcomeError, ProcessInfo
from bridle.outcomes import OUTCOME_ERRORS, Outcome, OutcomeReason
from bridle.sessions._backlog import LEASE

DEAD = ProcessInfo(
    exit_code=1,
    stderr_tail="Error: one\nError: two\n",
    cli_path="/usr/bin/claude",
    cli_version="2.1.325",
    argv=("claude", "--verbose"),
)

PLAIN: list[tuple[BridleError, dict[str, object]]] = [
    (errors.BridleError("oh"), {"fix": ""}),
    (
        errors.OptionsError("session_id", "'x' is not a UUID", fix="Leave it out."),
        {"field": "session_id", "problem": "'x' is not a UUID", "fix": "Leave it out."},
    ),
    (errors.StartError("oh", fix="so"), {"fix": "so"}),
    (errors.CliNotFoundError(["/a", "/b"]), {"searched": ("/a", "/b"), "errno": 2}),
    (errors.CliNotFoundError(), {"searched": ()}),
    (
        errors.UnsupportedCliVersionError("1.0.33", "2.0.0"),
        {"found": "1.0.33", "minimum": "2.0.0"},
    ),
    (errors.UnsupportedCliVersionError(None, "2.0.0"), {"found": None, "minimum": "2.0.0"}),
    (
        errors.UnverifiedCliError("/bin/claude", "2.1.326", ["limit.usd"]),
        {"path": "/bin/claude", "found": "2.1.326", "broken": ("limit.usd",)},
    ),
    (
        errors.UnverifiedCliError("/bin/claude", None, []),
        {"path": "/bin/claude", "found": None, "broken": ()},
    ),
    (
        errors.SpawnError("[Errno 13] Permission denied", 13),
        {"os_error": "[Errno 13] Permission denied", "errno": 13},
    ),
    (errors.InitializationError("hooks must map"), {"message": "hooks must map"}),
    (errors.InitializationTimeout(60.0), {"timeout": 60.0}),
    (errors.CliExitedDuringInit("No conversation found"), {"message": "No conversation found"}),
    (errors.CliExitedDuringInit(), {"message": ""}),
    (errors.SessionNotFoundError("s-1"), {"session_id": "s-1"}),
    (errors.SessionInUseError("s-1"), {"session_id": "s-1"}),
    (errors.SessionLoadError("s-1", "it is down"), {"session_id": "s-1", "reason": "it is down"}),
    (errors.SessionLoadTimeout("s-1", 2.0), {"session_id": "s-1", "timeout": 2.0}),
    (
        errors.StoreError("MemoryStore", "append", "it is down"),
        {"store": "MemoryStore", "operation": "append", "reason": "it is down"},
    ),
    (errors.ControlError("ping"), {"operation": "ping", "request_id": None}),
    (
        errors.ControlTimeout("interrupt", "req_1", 30.0),
        {"operation": "interrupt", "request_id": "req_1", "timeout": 30.0},
    ),
    (
        errors.ControlRejected("set_model", "req_1", "not found", "not_found"),
        {"request_id": "req_1", "message": "not found", "error_code": "not_found"},
    ),
    (
        errors.ControlRejected("set_model", "req_1", "not found"),
        {"operation": "set_model", "error_code": None},
    ),
    (errors.TransportError("interrupt", "req_1", "broken pipe"), {"reason": "broken pipe"}),
    (errors.SessionStopped("interrupt"), {"operation": "interrupt", "request_id": None}),
    (errors.InitQueueOverflow("interrupt", 16), {"limit": 16}),
    (errors.TooManyPendingRequests("interrupt", 64), {"limit": 64}),
    (errors.SessionNotInitialized("interrupt", "timed out"), {"cause": "timed out"}),
    (errors.CheckpointingNotEnabled(), {"operation": "rewind_files"}),
    (
        errors.StoreError("SqliteStore", "append", "the disk is full", fix="so"),
        {"store": "SqliteStore", "operation": "append", "reason": "the disk is full", "fix": "so"},
    ),
    (
        errors.ApprovalPending("send_user_message", "Bash", "toolu_1"),
        {"tool_name": "Bash", "tool_use_id": "toolu_1"},
    ),
    (errors.BufferOverflow(10, 11), {"limit": 10, "size": 11}),
    (errors.ConsumerTooSlow(12, 10), {"unread_bytes": 12, "limit": 10}),
    (
        errors.PoolTimeout(2.5, 4, 3, "user-7"),
        {"timeout": 2.5, "size": 4, "waiting": 3, "key": "user-7"},
    ),
    (errors.UsageError("oh", fix="so"), {"fix": "so"}),
    (
        errors.CallMayHaveRun("Bash", "toolu_1", "so"),
        {"tool_name": "Bash", "tool_use_id": "toolu_1", "fix": "so"},
    ),
    (errors.ToolFailure("no such invoice"), {"text": "no such invoice"}),
]

FAILED: list[OutcomeError] = [
    kind(Outcome(reason=reason, detail="it went wrong", session_id="s-1", resets_at=5.0))
    for reason, kind in OUTCOME_ERRORS.items()
]

EVERY = [error for error, _ in PLAIN] + FAILED


def tree(kind: type[BridleError] = BridleError) -> Iterator[type[BridleError]]:
    if kind.__module__ == errors.__name__:
        yield kind
        for child in kind.__subclasses__():
            yield from tree(child)


def test_the_samples_of_this_file_cover_the_whole_tree() -> None:
    assert {type(error) for error in EVERY} | {OutcomeError} == set(tree())


def test_a_start_and_an_operation_fail_in_these_ways() -> None:
    """R390, S032, C19, C20: one base each, and no class per operation."""
    assert {kind.__name__ for kind in errors.StartError.__subclasses__()} == {
        "CliNotFoundError",
        "UnsupportedCliVersionError",
        "UnverifiedCliError",
        "SpawnError",
        "InitializationError",
        "InitializationTimeout",
        "CliExitedDuringInit",
        "SessionNotFoundError",
        "SessionInUseError",
        "SessionLoadError",
    }
    assert {kind.__name__ for kind in errors.ControlError.__subclasses__()} == {
        "ControlTimeout",
        "ControlRejected",
        "TransportError",
        "SessionStopped",
        "InitQueueOverflow",
        "TooManyPendingRequests",
        "SessionNotInitialized",
        "CheckpointingNotEnabled",
        "ApprovalPending",
    }
    failed = [error for error in EVERY if isinstance(error, errors.ControlError)]
    assert all(error.operation for error in failed)


def test_the_docstring_of_the_module_draws_every_class() -> None:
    """R397."""
    missing = [kind.__name__ for kind in tree() if kind.__name__ not in str(errors.__doc__)]
    assert missing == []


def test_the_module_imports_nothing_of_bridle_but_a_mask_at_run_time() -> None:
    """R395."""
    body = ast.parse(inspect.getsource(errors)).body
    imported = [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
    imported += [name.name for node in body if isinstance(node, ast.Import) for name in node.names]
    assert imported == [
        "__future__",
        "collections.abc",
        "typing",
        "bridle.errors._process_info",
        "bridle.errors._redaction",
    ]


def test_an_overflow_names_the_limit_and_asks_whether_the_cli_responds() -> None:
    """R252."""
    text = str(errors.InitQueueOverflow("interrupt", 16))
    assert "16 operations" in text
    assert "check that the CLI responds" in text


def test_a_session_in_use_names_the_seconds_of_a_lease() -> None:
    assert f"{LEASE:g} seconds" in errors.SessionInUseError("s-1").fix


def test_a_session_that_is_not_found_says_where_to_look() -> None:
    error = errors.SessionNotFoundError("s-1").with_process(DEAD)
    assert "'s-1'" in str(error.args[0])
    assert all(word in error.fix for word in ("CliOptions.cwd", "CLAUDE_CONFIG_DIR"))
    # What an exit code usually means would only mislead here.
    assert DEAD.hint not in str(error)


@pytest.mark.parametrize(("error", "data"), PLAIN, ids=repr)
def test_an_error_keeps_its_data_as_attributes(error: BridleError, data: dict[str, object]) -> None:
    """R386, R391, R392, R393."""
    assert {name: getattr(error, name) for name in data} == data


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.OptionsError, ValueError),
        (errors.CliNotFoundError, FileNotFoundError),
        (errors.InitializationTimeout, TimeoutError),
        (errors.ControlTimeout, TimeoutError),
        (errors.FirstEventLimitError, TimeoutError),
        (errors.IdleLimitError, TimeoutError),
        (errors.TotalLimitError, TimeoutError),
    ],
)
def test_errors_can_be_caught_as_what_the_standard_library_calls_them(
    kind: type[BridleError], base: type[Exception]
) -> None:
    assert issubclass(kind, base)


def test_only_the_time_limits_are_timeouts_among_outcomes() -> None:
    timeouts = {type(error) for error in FAILED if isinstance(error, TimeoutError)}
    assert timeouts == {
        errors.FirstEventLimitError,
        errors.IdleLimitError,
        errors.TotalLimitError,
    }


@pytest.mark.parametrize("error", EVERY, ids=repr)
@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
def test_every_error_survives_pickling_and_copying(error: BridleError, way: str) -> None:
    error = copy.copy(error).with_process(DEAD)
    error.add_note("seen in the nightly run")
    match way:
        case "pickle":
            twin = pickle.loads(pickle.dumps(error))
        case "copy":
            twin = copy.copy(error)
        case _:
            twin = copy.deepcopy(error)
    assert twin is not error
    assert type(twin) is type(error)
    assert vars(twin) == vars(error)
    assert (str(twin), repr(twin), twin.args) == (str(error), repr(error), error.args)
    assert twin.__notes__ == ["seen in the nightly run"]


def test_a_copy_does_not_share_its_attributes() -> None:
    error = errors.SessionStopped("interrupt")
    copy.copy(error).with_process(DEAD)
    assert error.process is None


def test_a_subclass_of_an_application_pickles_with_its_own_attributes() -> None:
    twin = pickle.loads(pickle.dumps(Custom(7)))
    assert (type(twin), twin.number, str(twin)) == (Custom, 7, "number 7")


class Custom(errors.ToolFailure):
    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")
        self.number = number


@pytest.mark.parametrize("error", EVERY, ids=repr)
def test_every_text_says_what_happened_then_the_process_then_what_to_do(error: BridleError) -> None:
    """R398, S031."""
    error = copy.copy(error).with_process(DEAD)
    what, process, fix = error.args[0], str(DEAD), error.fix
    # How the process ended is no surprise to somebody who stopped it.
    is_expected = isinstance(error, errors.SessionStopped | errors.SessionNotFoundError)
    hint = "" if is_expected else DEAD.hint
    assert str(error) == "\n".join(part for part in (what, process, hint, fix) if part)


def test_a_full_text_reads_well() -> None:
    """R398."""
    assert str(errors.CliExitedDuringInit("No conversation found").with_process(DEAD)) == (
        "The CLI exited during initialization: No conversation found\n"
        "CLI: /usr/bin/claude (version 2.1.325)\n"
        "Ended with exit code 1.\n"
        "Last lines of stderr:\n"
        "  | Error: one\n"
        "  | Error: two\n"
        "Read the stderr lines above. If they do not explain it, check the login with `claude`.\n"
        "To see why, run `claude --version`, or the CLI with the same options."
    )


def test_the_field_and_the_problem_of_an_option_are_one_sentence() -> None:
    error = errors.OptionsError("model", "must be a string, got int", fix="Use an alias.")
    assert str(error) == "model must be a string, got int.\nUse an alias."
    assert (error.field, error.problem) == ("model", "must be a string, got int")


def test_a_problem_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    assert str(errors.OptionsError("env", "is wrong.")) == "env is wrong."


def test_the_advice_for_silence_does_not_blame_tools() -> None:
    """The time in which a tool runs does not count for `Limits.idle`."""
    assert "tool" not in errors.IdleLimitError.advice


def test_a_tool_failure_says_its_text_and_nothing_else() -> None:
    assert str(errors.ToolFailure("no such invoice")) == "no such invoice"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.BridleError("oh", fix="so"), "BridleError('oh')"),
        (
            errors.ControlTimeout("interrupt", "req_1", 30.0).with_process(DEAD),
            "ControlTimeout(operation='interrupt', request_id='req_1', timeout=30.0)",
        ),
        (errors.CliNotFoundError(["/a"]), "CliNotFoundError(searched=('/a',))"),
    ],
    ids=repr,
)
def test_a_repr_shows_the_data_of_the_error(error: BridleError, expected: str) -> None:
    assert repr(error) == expected


def test_process_data_can_be_read_from_the_error_itself() -> None:
    error = errors.SpawnError("no").with_process(DEAD)
    assert error.process is DEAD
    assert (error.exit_code, error.signal, error.stderr_tail) == (1, None, DEAD.stderr_tail)
    assert (error.cli_path, error.cli_version) == ("/usr/bin/claude", "2.1.325")
    assert error.argv == ("claude", "--verbose")


def test_an_error_without_a_process_has_no_process_data() -> None:
    error = errors.SpawnError("no")
    assert (error.process, error.exit_code, error.signal) == (None, None, None)
    assert (error.stderr_tail, error.cli_path, error.cli_version, error.argv) == (
        "",
        None,
        None,
        (),
    )


@pytest.mark.parametrize(
    ("exit_code", "signal", "ending"),
    [
        (None, None, ""),
        (0, None, "exit code 0"),
        (1, None, "exit code 1"),
        (127, None, "exit code 127"),
        (128, None, "exit code 128"),
        (129, "SIGHUP", "SIGHUP (exit code 129)"),
        (137, "SIGKILL", "SIGKILL (exit code 137)"),
        (143, "SIGTERM", "SIGTERM (exit code 143)"),
        (255, None, "exit code 255"),
        (-2, "SIGINT", "SIGINT (exit code -2)"),
        (-9, "SIGKILL", "SIGKILL (exit code -9)"),
        (-15, "SIGTERM", "SIGTERM (exit code -15)"),
        (-63, "signal 63", "signal 63 (exit code -63)"),
    ],
)
def test_a_signal_is_named_whether_the_cli_caught_it_or_not(
    exit_code: int | None, signal: str | None, ending: str
) -> None:
    info = ProcessInfo(exit_code=exit_code)
    assert (info.signal, info.ending) == (signal, ending)


@pytest.mark.parametrize(
    ("exit_code", "stderr", "word"),
    [
        (1, "", "logged in"),
        (1, " \n", "logged in"),
        (1, "Error: unknown option", "stderr"),
        (2, "", "arguments"),
        (126, "", "executable"),
        (127, "", "reinstall"),
        (137, "", "memory"),
        (-9, "", "memory"),
        (143, "", "sent SIGTERM"),
        (-15, "", "sent SIGTERM"),
        (129, "", "supervisor"),
        (-11, "", "crashed"),
        (-6, "", "crashed"),
    ],
)
def test_usual_endings_come_with_a_hint(exit_code: int, stderr: str, word: str) -> None:
    assert word in ProcessInfo(exit_code=exit_code, stderr_tail=stderr).hint


@pytest.mark.parametrize("exit_code", [None, 0, 3, 128, 255, -63])
def test_other_endings_come_without_one(exit_code: int | None) -> None:
    assert ProcessInfo(exit_code=exit_code).hint == ""


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (ProcessInfo(), ""),
        (ProcessInfo(cli_path="/bin/claude"), "CLI: /bin/claude"),
        (ProcessInfo(cli_version="2.0.0"), "CLI: claude (version 2.0.0)"),
        (ProcessInfo(exit_code=0), "Ended with exit code 0."),
        (ProcessInfo(stderr_tail="\n a \n\n"), "Last lines of stderr:\n  |  a"),
    ],
)
def test_a_process_tells_what_is_known_and_no_more(info: ProcessInfo, expected: str) -> None:
    assert str(info) == expected


def test_only_the_last_lines_of_stderr_are_shown_and_long_ones_are_cut() -> None:
    info = ProcessInfo(stderr_tail="\n".join(f"line {n}" for n in range(30)) + "\n" + "x" * 999)
    shown = str(info).splitlines()
    assert shown[0] == "Last lines of stderr:"
    assert shown[1] == "  | line 21"
    assert shown[-1] == "  | " + "x" * 300
    assert len(shown) == 11


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key sk-" + "ant-api03-AbC_123-x end", "key *** end"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("sent bearer abc.def, refused", "sent bearer *** refused"),
        ("x-api-key: abc", "x-api-key: ***"),
        ("ANTHROPIC_API_KEY=abc def", "ANTHROPIC_API_KEY=*** def"),
        ("MY_TOKEN=abc,X=1", "MY_TOKEN=***,X=1"),
        ("client_secret=abc&x=1", "client_secret=***&x=1"),
        ("password=abc", "password=***"),
        ('{"apiKey": "abc", "x": "y"}', '{"apiKey": "***", "x": "y"}'),
        ("https://me:pass@host/x", "https://***@host/x"),
        ("Unexpected token } in JSON, see https://host:80/x", None),
        ("task-list of a disk-based tool", None),
    ],
)
def test_credentials_are_masked_in_what_a_process_said_and_was_given(
    text: str, masked: str | None
) -> None:
    expected = text if masked is None else masked
    once = ProcessInfo(stderr_tail=text, argv=("claude", text))
    twice = ProcessInfo(stderr_tail=once.stderr_tail, argv=once.argv)
    assert (once.stderr_tail, once.argv) == (expected, ("claude", expected))
    assert twice == once


def test_an_outcome_error_carries_the_outcome_its_text_and_its_process() -> None:
    outcome = Outcome(
        reason=OutcomeReason.CLI_EXITED, detail="gone", session_id="s-1", process=DEAD
    )
    error = errors.CliExitedError(outcome)
    assert error.outcome is outcome
    assert error.exit_code == 1
    assert error.args == ("The turn ended as cli_exited (session s-1): gone",)


def test_an_outcome_without_details_still_makes_a_sentence() -> None:
    error = errors.TurnStoppedError(Outcome(reason=OutcomeReason.STOPPED))
    assert str(error).splitlines()[0] == "The turn ended as stopped."


def test_a_rate_limit_says_when_it_resets() -> None:
    outcome = Outcome(reason=OutcomeReason.RATE_LIMITED, resets_at=1999999999.0)
    assert errors.RateLimitedError(outcome).resets_at == 1999999999.0


@pytest.mark.parametrize(
    ("message", "code", "is_unsupported"),
    [
        ("Unsupported control request subtype: x", None, True),
        ("Diese Anfrage gibt es nicht", "unsupported_request", True),
        ("Unsupported control request subtype: x", "other", False),
        ("Diese Anfrage gibt es nicht", None, False),
    ],
)
def test_an_unsupported_operation_is_known_by_its_code(
    message: str, code: str | None, is_unsupported: bool
) -> None:
    assert errors.ControlRejected("x", "req_1", message, code).is_unsupported is is_unsupported
