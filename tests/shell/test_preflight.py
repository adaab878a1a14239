"""What is checked about a CLI before and while it starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

import bridle
from bridle import CliOptions, OptionsError, UnsupportedCliVersionError, sync
from bridle._shell.locate import Failed, TimedOut, Unreadable, Version
from bridle._shell.preflight import (
    CALLS_NOBODY,
    FORBID_REAL_API,
    judge_version,
    refuse_real_api,
)
from bridle.testing import FakeCli, forbid_real_api

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
        refuse_real_api("/a/claude", FORBIDDEN, environment, None)
    assert refused.value.field == "env"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost:1/x", "http://[::1]:1", "http://127.9.9.9"]
)
def test_loopback_is_never_refused(url: str) -> None:
    refuse_real_api("/a/claude", FORBIDDEN, {"ANTHROPIC_BASE_URL": url}, {"env": {}})


def test_settings_that_lead_elsewhere_are_refused_too() -> None:
    settings = {"env": {"ANTHROPIC_BASE_URL": "https://api.example.com"}}
    with pytest.raises(OptionsError):
        refuse_real_api("/a/claude", FORBIDDEN, HERE, settings)


@pytest.mark.parametrize("ban", [{}, {FORBID_REAL_API: ""}, {FORBID_REAL_API: "0"}])
def test_without_a_ban_nothing_is_refused(ban: dict[str, str]) -> None:
    refuse_real_api("/a/claude", ban, {}, None)


def test_an_old_version_is_a_problem_and_a_new_one_is_none() -> None:
    """R141, R142, C21, C22: at or above the minimum goes on, below it fails with both versions."""
    with pytest.raises(UnsupportedCliVersionError) as caught:
        judge_version(Version(1, 0, 128))
    assert (caught.value.found, caught.value.minimum) == ("1.0.128", "2.0.0")
    assert judge_version(Version(2, 0, 0)) is None
    assert judge_version(Version(2, 1, 325)) is None


UNKNOWN: dict[str, Unreadable | TimedOut | Failed] = {
    "it answered --version with 'hello', which holds none": Unreadable("hello"),
    "it answered --version with nothing": Unreadable(""),
    "it did not answer --version within 2 s": TimedOut(2.0),
    "it failed at --version: no such file": Failed("no such file"),
}


@pytest.mark.parametrize("words", UNKNOWN)
def test_a_version_that_cannot_be_known_is_told_in_words(words: str) -> None:
    """R143, R144, R145: or refused, where that is asked for."""
    assert judge_version(UNKNOWN[words]) == words
    with pytest.raises(UnsupportedCliVersionError, match="permissive_version_check") as caught:
        judge_version(UNKNOWN[words], strict=True)
    assert words in str(caught.value)
    assert "too old" not in str(caught.value)


async def _in_query() -> None:
    async with bridle.query("x"):
        pass


@pytest.mark.parametrize(
    "work",
    [lambda: bridle.run("x"), _in_query, lambda: bridle.Session().connect()],
    ids=["run", "query", "session"],
)
def test_under_another_framework_the_blocking_door_is_named(
    work: Callable[[], Awaitable[object]],
) -> None:
    with pytest.raises(RuntimeError, match=r"bridle\.sync"):
        trio.run(work)


@pytest.mark.parametrize("kind", [Unreadable, Failed])
def test_what_a_cli_says_of_its_version_is_told_short_and_without_secrets(
    kind: type[Unreadable] | type[Failed],
) -> None:
    words = str(kind("password=aaaabbbb-ccccdddd-1234 " + "x" * 400))
    assert "aaaabbbb" not in words
    assert len(words) < 200


@pytest.mark.parametrize("door", [sync.run, lambda *a, **k: list(sync.query(*a, **k))])
def test_a_fake_cli_is_no_danger(door: Callable[..., object]) -> None:
    with forbid_real_api(), FakeCli.auto("fine") as cli:
        assert door("hello", cli=CliOptions(cli_path=cli.path))
        path = cli.path
    assert path not in CALLS_NOBODY
