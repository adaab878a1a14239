"""What is checked about a CLI before and while it starts."""

from __future__ import annotations

import pytest

from bridle import OptionsError, UnsupportedCliVersionError
from bridle._shell.locate import Failed, TimedOut, Unreadable, Version
from bridle._shell.preflight import FORBID_REAL_API, refuse_real_api, version_problem

FORBIDDEN = {FORBID_REAL_API: "1"}
HERE = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"ANTHROPIC_BASE_URL": ""},
        {"ANTHROPIC_BASE_URL": "https://api.example.com"},
        {"ANTHROPIC_BASE_URL": "http://127.0.0.1.example.com"},
        {"ANTHROPIC_BASE_URL": "127.0.0.1:8080"},
        {**HERE, "CLAUDE_CODE_USE_BEDROCK": "1"},
    ],
)
def test_where_real_calls_are_forbidden_only_loopback_will_do(environment: dict[str, str]) -> None:
    with pytest.raises(OptionsError) as refused:
        refuse_real_api(FORBIDDEN, environment, None)
    assert refused.value.field == "env"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost:1/x", "http://[::1]:1", "http://127.9.9.9"]
)
def test_loopback_is_never_refused(url: str) -> None:
    refuse_real_api(FORBIDDEN, {"ANTHROPIC_BASE_URL": url}, {"env": {}})


def test_settings_that_lead_elsewhere_are_refused_too() -> None:
    settings = {"env": {"ANTHROPIC_BASE_URL": "https://api.example.com"}}
    with pytest.raises(OptionsError):
        refuse_real_api(FORBIDDEN, HERE, settings)


@pytest.mark.parametrize("ban", [{}, {FORBID_REAL_API: ""}, {FORBID_REAL_API: "0"}])
def test_without_a_ban_nothing_is_refused(ban: dict[str, str]) -> None:
    refuse_real_api(ban, {}, None)


def test_an_old_version_is_a_problem_and_a_new_one_is_none() -> None:
    """R141, R142: at or above the minimum goes on, below it fails with both versions."""
    problem = version_problem(Version(1, 0, 128))
    assert isinstance(problem, UnsupportedCliVersionError)
    assert (problem.found, problem.minimum) == ("1.0.128", "2.0.0")
    assert version_problem(Version(2, 0, 0)) is None
    assert version_problem(Version(2, 1, 325)) is None


@pytest.mark.parametrize("answer", [Unreadable("hello"), TimedOut(2.0), Failed("no such file")])
def test_a_version_that_cannot_be_known_is_told_in_words(
    answer: Unreadable | TimedOut | Failed,
) -> None:
    """R143, R144, R145."""
    assert isinstance(version_problem(answer), str)
