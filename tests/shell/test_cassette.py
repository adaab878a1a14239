"""Cassettes: a replay compares how the CLI is started with the recording."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bridle
from bridle import sync
from bridle.messages import JsonObject
from bridle.testing import FakeCli
from bridle.testing.cassette import Cassette
from bridle.testing.environment import cli_environment
from bridle.testing.recording import Recorder, read_recording
from bridle.testing.replaying import ReplayMismatch, replay_transport

SECRET = "hush-hush-0123456789abcdef"

USUAL: dict[str, Any] = {
    "settings": {"cleanupPeriodDays": 7, "env": {"STAGE": "test"}, "apiToken": SECRET},
    "sandbox": {"enabled": True, "network": {"allowedDomains": ["example.org"]}},
    "env": {"FLAVOUR": "sweet", "MY_TOKEN": SECRET},
    "limits": bridle.Limits(turns=3, usd=1),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassette.ndjson"


def ask(cassette: Cassette, **options: Any) -> None:
    with FakeCli.auto() as cli:
        outcome = sync.run("SAY hello", cli_path=cli.path, recorder=cassette, **options)
    assert outcome.text == "hello", outcome


def play(path: Path, *, expected: str | None = None, **options: Any) -> None:
    """Record if there is no recording, otherwise replay. ``expected`` is the first difference."""
    if expected is None:
        with Cassette(path) as cassette:
            ask(cassette, **options)
        return
    with pytest.raises(ReplayMismatch) as caught, Cassette(path) as cassette:
        ask(cassette, **options)
    assert str(caught.value.differences[0]) == expected
    assert expected in str(caught.value)


# ------------------------------------------------------------------------- changes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"settings": {**USUAL["settings"], "cleanupPeriodDays": 8}},
            "settings.cleanupPeriodDays at the start: recorded: 7, now: 8",
        ),
        (
            {"settings": {**USUAL["settings"], "env": {"STAGE": "live"}}},
            "settings.env_variables.STAGE at the start: "
            'recorded: "checksum 9f86", now: "checksum 2476"',
        ),
        (
            {"sandbox": {"enabled": False}},
            "settings.sandbox.enabled at the start: recorded: true, now: false",
        ),
        (
            {"sandbox": {"enabled": True, "network": {"allowedDomains": ["example.com"]}}},
            "settings.sandbox.network.allowedDomains[0] at the start: "
            'recorded: "example.org", now: "example.com"',
        ),
        (
            {"env": {**USUAL["env"], "FLAVOUR": "sour"}},
            'env_variables.FLAVOUR at the start: recorded: "checksum b904", now: "checksum 0d42"',
        ),
        (
            {"env": {"FLAVOUR": "sweet"}},
            'env_variables.MY_TOKEN at the start: recorded: "***", now: nothing',
        ),
        (
            {"env": {**USUAL["env"], "OTHER_TOKEN": SECRET}},
            'env_variables.OTHER_TOKEN at the start: recorded: nothing, now: "***"',
        ),
        ({"inherit_env": ["PATH"]}, 'inherit_env at the start: recorded: true, now: ["PATH"]'),
        (
            {"limits": bridle.Limits(turns=4, usd=1)},
            "limits.turns at the start: recorded: 3, now: 4",
        ),
        ({"limits": bridle.Limits(turns=3)}, "limits.usd at the start: recorded: 1, now: nothing"),
    ],
    ids=[
        "settings",
        "settings env",
        "sandbox",
        "sandbox domain",
        "env value",
        "env name gone",
        "env name new",
        "inherit_env",
        "limit",
        "limit gone",
    ],
)
def test_a_change_of_how_the_cli_is_started_fails_and_is_named(
    path: Path, change: dict[str, Any], said: str
) -> None:
    play(path, **USUAL)
    play(path, **USUAL)
    play(path, **{**USUAL, **change}, expected=said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"settings": {"a": 1}}, "settings.a at the start: recorded: nothing, now: 1"),
        ({"sandbox": {"enabled": True}}, "settings.sandbox at the start: recorded: nothing, "),
        ({"env": {"FLAVOUR": "sour"}}, "env_variables.FLAVOUR at the start: recorded: nothing, "),
        (
            {"limits": bridle.Limits(total=9)},
            "limits.total at the start: recorded: nothing, now: 9",
        ),
    ],
    ids=["settings", "sandbox", "env", "limits"],
)
def test_options_that_the_recording_lacks_are_named(
    path: Path, options: dict[str, Any], said: str
) -> None:
    play(path)
    with pytest.raises(ReplayMismatch) as caught, Cassette(path) as cassette:
        ask(cassette, **options)
    assert str(caught.value.differences[0]).startswith(said)


def test_the_content_of_a_settings_file_is_compared(path: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"a": 1}')
    play(path, settings=str(settings))
    play(path, settings=str(settings))
    settings.write_text('{"a": 2}')
    play(path, settings=str(settings), expected="settings.a at the start: recorded: 1, now: 2")


def test_the_runner_of_a_query_compares_settings_and_environment(path: Path) -> None:
    def query(**options: Any) -> None:
        with replay_transport(path) as runner:
            list(sync.query("SAY hello", runner=runner, **options))

    usual = {**USUAL, "limits": bridle.Limits(turns=3)}
    with FakeCli.auto() as cli:
        recorder = Recorder(path)
        list(sync.query("SAY hello", cli_path=cli.path, recorder=recorder, **usual))
    query(**usual)
    with pytest.raises(ReplayMismatch, match=r"settings\.sandbox\.enabled at .*true, now: false"):
        query(**{**usual, "sandbox": {"enabled": False}})
    with pytest.raises(ReplayMismatch, match=r"env_variables\.FLAVOUR"):
        query(**{**usual, "env": {**USUAL["env"], "FLAVOUR": "sour"}})


def test_a_query_with_a_limit_in_dollars_is_replayed_as_a_session(path: Path) -> None:
    def query(**options: Any) -> list[str]:
        return [one.type for one in sync.query("SAY hello", **options, **USUAL)]

    with FakeCli.auto() as cli:
        recorded = query(cli_path=cli.path, recorder=Recorder(path))
    with replay_transport(path) as factory:
        assert query(transport_factory=factory) == recorded
    with pytest.raises(ReplayMismatch, match="arguments of the CLI"), replay_transport(path) as one:
        query(runner=one)


# ------------------------------------------------------------------------- no changes


def test_values_that_differ_from_run_to_run_are_ignored(path: Path, tmp_path: Path) -> None:
    """The scripted model's address and home, keys, directories, and the user."""
    for number in ("1", "2"):
        own = tmp_path / number
        own.mkdir()
        env = {
            **cli_environment(f"http://127.0.0.1:1000{number}", own),
            "ANTHROPIC_API_KEY": f"key {number}",
            "MY_DATA": f"sub:{own}/data",
            "DATABASE": f"postgres://me:{number}@localhost/{number}",
            "FLAVOUR": "sweet",
        }
        env |= {"IS_SANDBOX": "1"} if number == "1" else {"IS_SANDBOX": ""}
        env |= {"NEWER_VARIABLE": ""} if number == "2" else {}
        settings = {"env": env, "apiKeyHelper": f"{own}/helper", "token": f"{number} {SECRET}"}
        with Cassette(path, directories={"own": own}) as cassette:
            ask(cassette, env=env, settings=settings, cwd=own)
        assert cassette.is_recording is (number == "1")


def test_a_recording_without_these_facts_still_replays(path: Path) -> None:
    play(path, **USUAL)
    first, *rest = path.read_text().splitlines(keepends=True)
    entry = json.loads(first)
    about = json.loads(entry["line"])
    for name in ("settings", "env_variables", "inherit_env", "limits"):
        del about[name]
    path.write_text("".join([json.dumps({**entry, "line": json.dumps(about)}) + "\n", *rest]))
    play(path, **{**USUAL, "sandbox": {"enabled": False}, "env": {}, "limits": bridle.Limits()})


def test_an_option_whose_name_is_masked_in_the_recording_still_replays(path: Path) -> None:
    changed: dict[str, Any] = {"settings": {"model-4711-x": 1}, "env": {"FLAVOUR": "model-4711-x"}}
    play(path, **changed)
    assert "model-4711-x" not in path.read_text()
    play(path, **changed)


@pytest.mark.parametrize("name", ["env_variables", "settings"])
def test_normalize_can_remove_what_differs(path: Path, name: str) -> None:
    def without(frame: JsonObject) -> JsonObject:
        is_launch = frame["type"] == "launch"
        return {key: one for key, one in frame.items() if not is_launch or key != name}

    def run(normalize: Callable[[JsonObject], JsonObject] | None, number: int) -> None:
        change: dict[str, dict[str, Any]] = {
            "env_variables": {"env": {"RUN": f"{number}"}},
            "settings": {"settings": {"a": number}},
        }
        with Cassette(path, normalize=normalize) as cassette:
            ask(cassette, **change[name])

    run(None, 1)
    run(without, 2)
    with pytest.raises(ReplayMismatch):
        run(None, 2)


def test_the_facts_contain_no_secret_and_no_value_of_a_variable(path: Path) -> None:
    settings = {
        "apiKey": SECRET,
        "env": {"OTHER": "bitter-1"},
        "mcp": {"headers": {"x": "salty-22"}},
    }
    play(path, **{**USUAL, "settings": settings})
    recorded = path.read_text()
    for word in (SECRET, "sweet", "bitter", "salty"):
        assert word not in recorded
    facts = read_recording(path)[0].members
    assert facts["limits"] == {"turns": 3, "usd": 1}
    assert facts["env_variables"] == {
        "CLAUDE_CODE_ENTRYPOINT": "checksum 721d",
        "FLAVOUR": "checksum b904",
        "MY_TOKEN": "***",
    }
