"""BRIDLE_FORBID_REAL_API: which CLIs may start, and what they are started with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits

from bridle import CliOptions, OptionsError, SdkOptions, sync
from bridle._process.launch.plan import plan_query
from bridle._process.launch.real_api import CALLS_NOBODY, FORBID_REAL_API, keep_on_loopback
from bridle.testing import FakeCli, forbid_real_api

FORBIDDEN = {FORBID_REAL_API: "1"}
URL = "ANTHROPIC_BASE_URL"
HERE = {URL: "http://127.0.0.1:8080"}
AWAY = {URL: "https://api.example.com"}


def pinned(
    cli: CliOptions, variables: dict[str, str] | None = None, ban: dict[str, str] = FORBIDDEN
) -> dict[str, Any]:
    """Return the settings of a CLI that is started under the ban; empty if it gets none."""
    cli = cli.replace(env={"HOME": "/nowhere", **(variables or {}), **(cli.env or {})})
    plan = plan_query(cli, SdkOptions(inherit_env=False))
    launch = keep_on_loopback("/a/claude", plan, ban)
    [*settings] = [file for file in launch.files if file.token == "\0--settings"]
    assert [arg for arg in launch.argv if "--settings" in arg] == [
        "--settings=\0--settings" for _ in settings
    ]
    return json.loads(settings[0].content) if settings else {}


@pytest.fixture(autouse=True)
def no_administrator(tmp_path: Path, set_limits: SetLimits) -> Path:
    """The settings of an administrator are in a directory of the test."""
    directory = tmp_path / "managed"
    set_limits(managed_settings=str(directory))
    return directory


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {URL: ""},
        AWAY,
        {URL: "http://127.0.0.1.example.com"},
        {URL: "127.0.0.1:8080"},
        {**HERE, "CLAUDE_CODE_USE_BEDROCK": "1"},
    ],
)
def test_where_real_calls_are_forbidden_only_loopback_will_do(environment: dict[str, str]) -> None:
    with pytest.raises(OptionsError) as refused:
        pinned(CliOptions(), environment)
    assert refused.value.field == "env"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost:1/x", "http://[::1]:1", "http://127.9.9.9"]
)
def test_the_settings_of_the_flag_repeat_the_address_on_loopback(url: str) -> None:
    env = pinned(CliOptions(), {URL: url, "no_proxy": "*"})["env"]
    kept = {name: value for name, value in env.items() if value}
    assert kept == {URL: url, "no_proxy": "*"}
    assert {"CLAUDE_CODE_USE_BEDROCK", "ANTHROPIC_UNIX_SOCKET", "HTTP_PROXY"} < env.keys()


@pytest.mark.parametrize("form", ["mapping", "text", "file"])
def test_the_callers_own_settings_stay_and_are_checked(form: str, tmp_path: Path) -> None:
    def given(settings: dict[str, Any]) -> CliOptions:
        text = json.dumps(settings)
        (tmp_path / "own.json").write_text(text)
        forms: dict[str, Any] = {
            "mapping": settings,
            "text": text,
            "file": str(tmp_path / "own.json"),
        }
        return CliOptions(settings=forms[form])

    own = given({"model": "opus", "env": {"A": "b"}})
    settings = pinned(own, HERE)
    assert settings["model"] == "opus"
    assert (settings["env"]["A"], settings["env"][URL]) == ("b", HERE[URL])
    with pytest.raises(OptionsError, match="not on loopback"):
        pinned(given({"env": AWAY}), HERE)


@pytest.mark.parametrize("ban", [{}, {FORBID_REAL_API: ""}, {FORBID_REAL_API: "0"}])
def test_without_a_ban_nothing_changes(ban: dict[str, str]) -> None:
    assert pinned(CliOptions(), ban=ban) == {}


@pytest.mark.parametrize("name", ["managed-settings.json", "managed-settings.d/10-api.json"])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (json.dumps({"env": AWAY}), f"set {URL}"),
        (json.dumps({"env": {"CLAUDE_CODE_USE_VERTEX": "1"}}), "set CLAUDE_CODE_USE_VERTEX"),
        (json.dumps({"env": {"HTTP_PROXY": "http://proxy"}}), "set HTTP_PROXY"),
        ("{", "not a JSON object"),
        (json.dumps({"env": {**HERE, "A": "b"}, "model": "opus"}), None),
    ],
)
def test_managed_settings_that_lead_elsewhere_are_refused(
    name: str, text: str, complaint: str | None, no_administrator: Path
) -> None:
    path = no_administrator / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    if complaint is None:
        assert pinned(CliOptions(), HERE)["env"][URL] == HERE[URL]
        return
    with pytest.raises(OptionsError, match=complaint) as refused:
        pinned(CliOptions(), HERE)
    assert str(path) in refused.value.problem


def test_managed_settings_that_the_cli_has_fetched_count_too(tmp_path: Path) -> None:
    (tmp_path / "remote-settings.json").write_text(json.dumps({"env": AWAY}))
    with pytest.raises(OptionsError, match="remote-settings"):
        pinned(CliOptions(), {**HERE, "CLAUDE_CONFIG_DIR": str(tmp_path)})


@pytest.mark.parametrize("door", [sync.run, lambda *a, **k: list(sync.query(*a, **k))])
def test_a_fake_cli_is_allowed(door: Callable[..., object]) -> None:
    with forbid_real_api(), FakeCli.auto("fine") as cli:
        assert door("hello", cli=CliOptions(cli_path=cli.path))
        path = cli.path
    assert path not in CALLS_NOBODY
