"""What facts about a machine mean: a finding each, advice for what is wrong, one exit code."""

from __future__ import annotations

from typing import Any

import pytest

from bridle import (
    BridleError,
    CliExitedDuringInit,
    CliNotFoundError,
    InitializationError,
    InitializationTimeout,
    Limits,
    OptionsError,
    OutcomeReason,
    SdkOptions,
    SpawnError,
    UnsupportedCliVersionError,
)
from bridle._engine.versions import Version
from bridle.cli.diagnosis import (
    Answer,
    Directory,
    Facts,
    Finding,
    Handshake,
    NoVersion,
    Place,
    Problem,
    diagnose,
    exit_code,
    misconfigured,
    verdict,
)
from bridle.errors import ProcessInfo

INFO: dict[str, Any] = {
    "account": {"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY"},
    "capabilities": ["a_v1", "b_v1"],
    "models": [1, 2],
    "commands": [1],
}
HEALTHY: dict[str, Any] = {
    "bridle": "1.0",
    "platform": "Python 3.11",
    "cli": "/bin/claude",
    "places": [
        Place("/home/me/.claude/local/claude", "local install", is_there=False),
        Place("/bin/claude", "PATH", is_there=True),
        Place("/usr/bin/claude", "PATH", is_there=True),
    ],
    "version": Version(2, 1, 0),
    "directories": [Directory("/home/me/.claude", "config")],
    "handshake": Handshake(0.25, INFO),
    "sdk": SdkOptions(),
}


def test_a_setting_that_was_ignored_is_a_warning() -> None:
    found = findings(ignored=["CLAUDE_PERMISSION_MODE is ignored."])["options"]
    assert (found.state, found.text) == ("warning", "CLAUDE_PERMISSION_MODE is ignored.")


def findings(**changes: object) -> dict[str, Finding]:
    """The findings about a machine that is healthy but for the changes."""
    return {one.check: one for one in diagnose(Facts(**{**HEALTHY, **changes}))}


def told(finding: Finding) -> tuple[str, str, Problem | None]:
    return finding.state, finding.text, finding.problem


def failed(error: BridleError, stderr: str = "") -> BridleError:
    return error.with_process(ProcessInfo(exit_code=1, stderr_tail=stderr))


def test_a_healthy_machine_has_no_problem() -> None:
    found = findings()
    assert exit_code(list(found.values())) == 0
    assert verdict(list(found.values())) == "Healthy."
    assert {check: one.state for check, one in found.items()} == {
        "bridle": "ok",
        "cli": "ok",
        "version": "ok",
        "verified": "note",
        "config": "ok",
        "user": "ok",
        "handshake": "ok",
        "capabilities": "ok",
        "login": "ok",
        "limits": "note",
    }


def test_the_cli_that_was_found_is_reported_with_those_that_were_not_used() -> None:
    cli = findings()["cli"]
    assert cli.text == "/bin/claude (PATH)"
    assert list(cli.details) == ["also at /usr/bin/claude (PATH)", "no CLI in 1 other place"]
    named = findings(named_by="--cli", cli="/opt/claude", places=[])["cli"]
    assert (named.text, list(named.details)) == ("/opt/claude (named by --cli)", [])


@pytest.mark.parametrize(
    ("changes", "problem", "text"),
    [
        ({"cli": CliNotFoundError(["/a"])}, Problem.NO_CLI, "not found"),
        (
            {"cli": CliNotFoundError(["/a"]), "named_by": "BRIDLE_CLI"},
            Problem.NO_CLI,
            "not found: /a (named by BRIDLE_CLI)",
        ),
        (
            {"cli": SpawnError("Not executable: /a")},
            Problem.CLI_DOES_NOT_RUN,
            "Not executable: /a",
        ),
    ],
)
def test_a_cli_that_is_missing_or_unusable_is_a_problem(
    changes: dict[str, Any], problem: Problem, text: str
) -> None:
    found = findings(**changes, version=None, handshake=None)
    assert told(found["cli"]) == ("problem", text, problem)
    assert found.keys().isdisjoint({"version", "handshake", "login"})
    assert exit_code(list(found.values())) == problem


def test_where_no_cli_is_found_every_place_is_reported() -> None:
    missing = findings(cli=CliNotFoundError(["/a"]))["cli"]
    assert list(missing.details)[1] == "not at /bin/claude (PATH)"


@pytest.mark.parametrize(
    ("answer", "state", "text", "problem"),
    [
        (Version(2, 0, 0), "ok", "2.0.0 (Bridle needs 2.0.0 or newer)", None),
        (
            Version(1, 9, 9),
            "problem",
            "1.9.9 is too old: Bridle needs 2.0.0 or newer",
            Problem.CLI_TOO_OLD,
        ),
        (NoVersion("it failed", has_failed=True), "problem", "it failed", Problem.CLI_DOES_NOT_RUN),
        (NoVersion("it is slow"), "warning", "it is slow", None),
    ],
)
def test_the_version_is_compared_with_the_oldest_supported_one(
    answer: Version | NoVersion, state: str, text: str, problem: Problem | None
) -> None:
    assert told(findings(version=answer)["version"]) == (state, text, problem)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (failed(CliExitedDuringInit("no"), "oh"), Problem.CLI_DOES_NOT_RUN),
        (SpawnError("no"), Problem.CLI_DOES_NOT_RUN),
        (InitializationTimeout(2.0), Problem.CLI_DOES_NOT_ANSWER),
        (InitializationError("no"), Problem.CLI_DOES_NOT_ANSWER),
        (
            UnsupportedCliVersionError(None, "2.0.0", unknown_option=True),
            Problem.CLI_TOO_OLD,
        ),
        (OptionsError("env", "leads out"), Problem.OPTIONS),
    ],
)
def test_a_handshake_that_fails_is_a_problem_of_its_kind(
    error: BridleError, problem: Problem
) -> None:
    found = findings(handshake=error)
    assert found["handshake"].problem is problem
    assert "login" not in found
    assert exit_code(list(found.values())) == problem


def test_a_failed_handshake_tells_the_last_words() -> None:
    error = failed(CliExitedDuringInit(), "cannot find module\x1b[2J")
    assert any(
        "cannot find module" in line for line in findings(handshake=error)["handshake"].details
    )


@pytest.mark.parametrize(
    ("is_root", "is_sandbox", "mode", "state"),
    [
        (False, False, "bypassPermissions", "ok"),
        (True, True, "bypassPermissions", "ok"),
        (True, False, "default", "note"),
        (True, False, None, "note"),
        (True, False, "bypassPermissions", "problem"),
    ],
)
def test_root_may_not_bypass_outside_a_sandbox(
    is_root: bool, is_sandbox: bool, mode: str | None, state: str
) -> None:
    found = findings(is_root=is_root, is_sandbox=is_sandbox, permission_mode=mode)
    assert found["user"].state == state
    assert found["user"].problem is (Problem.ROOT if state == "problem" else None)


def test_a_refusal_of_root_that_settings_caused_is_reported_where_it_belongs() -> None:
    refusal = "cannot be used with root/sudo privileges for security reasons"
    found = findings(is_root=True, handshake=failed(CliExitedDuringInit(), refusal))
    assert found["user"].problem is Problem.ROOT
    assert "(set in its settings)" in found["user"].text
    assert "handshake" not in found


def test_a_directory_that_cannot_be_written_to_is_a_problem() -> None:
    found = findings(directories=[Directory("/a", "config", "Not a directory")])
    text = "/a cannot be written to: Not a directory"
    assert told(found["config"]) == ("problem", text, Problem.UNWRITABLE)


@pytest.mark.parametrize(
    ("account", "state", "text"),
    [
        (
            {"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY"},
            "ok",
            "by ANTHROPIC_API_KEY",
        ),
        ({"tokenSource": "claude.ai"}, "ok", "by claude.ai"),
        ({"tokenSource": "apiKeyHelper", "apiKeySource": "apiKeyHelper"}, "ok", "by apiKeyHelper"),
        (
            {"apiProvider": "bedrock"},
            "note",
            "through bedrock (its credentials are not checked)",
        ),
        ({"tokenSource": "none", "apiProvider": "firstParty"}, "problem", "not logged in"),
        ({}, "problem", "not logged in"),
        (None, "warning", "unknown: the CLI does not report it"),
    ],
)
def test_the_login_is_what_the_cli_says(account: object, state: str, text: str) -> None:
    login = findings(handshake=Handshake(0.1, {"account": account}))["login"]
    assert (login.state, login.text) == (state, text)
    assert login.problem is (Problem.LOGIN if state == "problem" else None)


NOBODY = Handshake(0.25, {**INFO, "account": {"apiKeySource": "none"}})
COMPLETED = Answer(reason=OutcomeReason.COMPLETED, duration=1.25, model="opus", cost_usd=0.01)


@pytest.mark.parametrize(
    ("changes", "state", "problem"),
    [
        ({}, "problem", Problem.LOGIN),
        ({"helpers": ["settings.json has apiKeyHelper"]}, "note", None),
        ({"answer": COMPLETED}, "ok", None),
    ],
)
def test_a_login_that_only_settings_name_is_not_known(
    changes: dict[str, Any], state: str, problem: Problem | None
) -> None:
    login = findings(handshake=NOBODY, **changes)["login"]
    assert (login.state, login.problem) == (state, problem)
    assert list(login.details) == changes.get("helpers", [])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (COMPLETED, ("ok", "answered one prompt · 1.2s · opus · $0.0100", None)),
        (
            Answer(reason=OutcomeReason.AUTH_FAILED, detail="invalid key"),
            ("problem", "no answer: auth failed · 0.0s", Problem.LOGIN),
        ),
        (
            Answer(reason=OutcomeReason.LIMIT_TOTAL, duration=60.0),
            ("problem", "no answer: limit total · 1m 00s", Problem.NO_ANSWER),
        ),
        (SpawnError("no"), ("problem", "prompt not sent", Problem.NO_ANSWER)),
    ],
)
def test_an_answer_of_the_model_is_reported(
    answer: Answer | BridleError, expected: tuple[str, str, Problem | None]
) -> None:
    assert told(findings(answer=answer)["model"]) == expected


def test_a_login_names_other_credentials_beside_the_one_in_use() -> None:
    set_too = ["ANTHROPIC_API_KEY is set", "/home/me/.claude/.credentials.json is there"]
    assert list(findings(credentials=set_too)["login"].details) == set_too[1:]


@pytest.mark.parametrize(
    ("info", "state", "text", "details"),
    [
        (INFO, "ok", "2 named · 2 models · 1 command", ["a_v1, b_v1"]),
        ({"capabilities": []}, "ok", "0 named", []),
        ({}, "note", "not listed by this CLI (older versions do not list them)", []),
    ],
)
def test_capabilities_are_listed_where_the_cli_lists_them(
    info: dict[str, Any], state: str, text: str, details: list[str]
) -> None:
    found = findings(handshake=Handshake(0.1, info))["capabilities"]
    assert (found.state, found.text, list(found.details)) == (state, text, details)


def test_limits_are_reported_as_they_are_set() -> None:
    assert findings()["limits"].text == "turn: no limits set"
    sdk = SdkOptions(limits=Limits(total=30.0, turns=3), init_timeout=5.0)
    limits = findings(sdk=sdk, open_files=256)["limits"]
    assert limits.text == "turn: total 30, turns 3"
    assert list(limits.details) == [
        "handshake: 5 s, control requests: 30 s",
        "one line: 16 MiB, unread messages: 64 MiB",
        "open files: 256",
    ]


def test_the_problem_to_solve_first_gives_the_exit_code() -> None:
    found = list(
        findings(
            directories=[Directory("/a", "config", "no")],
            handshake=Handshake(0.1, {"account": {}}),
        ).values()
    )
    assert exit_code(found) == Problem.UNWRITABLE
    assert verdict(found) == (
        "2 problems. Fix this one first: the CLI cannot write to one of its directories "
        "(exit code 14)."
    )


def test_a_warning_is_not_a_problem() -> None:
    found = list(findings(version=NoVersion("it is slow")).values())
    assert (exit_code(found), verdict(found)) == (0, "Healthy, with 1 warning.")


def test_wrong_options_are_a_problem_of_their_own() -> None:
    found = misconfigured(OptionsError("CLAUDE_MODEL", "is odd", fix="Mend it."))
    assert (exit_code(found), found[0].text, list(found[0].details)) == (
        2,
        "CLAUDE_MODEL is odd.",
        ["Mend it."],
    )


@pytest.mark.parametrize("problem", Problem)
def test_every_problem_has_a_meaning_and_advice(problem: Problem) -> None:
    finding = Finding(check="x", state="problem", text="x", problem=problem)
    assert problem.meaning
    assert finding.advice or problem is Problem.OPTIONS  # whose error says what to do
