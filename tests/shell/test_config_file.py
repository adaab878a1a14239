"""Options out of a configuration file, and who outranks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import bridle
from bridle import (
    BidirOptions,
    CliOptions,
    Message,
    OptionsError,
    ResultMessage,
    SdkOptions,
    SdkWarning,
    sync,
)
from bridle._session.preflight import CONFIG_VARIABLE, settle_options
from bridle.testing import FakeCli


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a configuration file."""

    def write(text: str) -> Path:
        path = tmp_path / "bridle.toml"
        path.write_text(text, "utf-8")
        return path

    return write


EVERYTHING = """
[cli]
model = "from-config"
max_turns = 3
env = { SHARED = "config", OWN = "config" }
add_dirs = ["/config"]

[sdk]
control_timeout = 5
limits = { idle = 2.5, turns = 7 }

[bidir]
callback_timeout = 9
"""


def test_the_file_sets_what_no_other_source_sets(config: Callable[[str], Path]) -> None:
    """R095, R097, R098, C40: arguments win, mappings merge, lists append."""
    options = settle_options(
        CliOptions(max_turns=1, env={"SHARED": "argument"}, add_dirs=["/argument"]),
        SdkOptions(config_file=config(EVERYTHING)),
        None,
        {},
    )
    assert (options.cli.model, options.cli.max_turns) == ("from-config", 1)
    assert options.cli.env == {"SHARED": "argument", "OWN": "config"}
    assert options.cli.add_dirs == ("/config", "/argument")
    assert (options.sdk.control_timeout, options.bidir.callback_timeout) == (5, 9)
    assert (options.sdk.limits.idle, options.sdk.limits.turns) == (2.5, 7)
    origins = {name: options.origin[f"cli.{name}"] for name in ("model", "max_turns", "env")}
    assert origins == {"model": "config", "max_turns": "argument", "env": "config+argument"}


def test_the_environment_outranks_the_file(config: Callable[[str], Path]) -> None:
    """R096: CLAUDE_MODEL beats the file and loses to an argument."""
    environ = {CONFIG_VARIABLE: str(config(EVERYTHING)), "CLAUDE_MODEL": "from-environment"}
    assert settle_options(None, None, None, environ).cli.model == "from-environment"
    given = settle_options(CliOptions(model="argument"), None, None, environ)
    assert (given.cli.model, given.cli.max_turns) == ("argument", 3)


def test_the_file_that_is_named_outranks_the_one_of_the_environment(
    config: Callable[[str], Path], tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[cli]\nmodel = "other"\n', "utf-8")
    environ = {CONFIG_VARIABLE: str(config(EVERYTHING))}
    options = settle_options(None, SdkOptions(config_file=other), None, environ)
    assert (options.cli.model, options.cli.max_turns) == ("other", None)


def test_the_cli_of_the_environment_outranks_that_of_the_file(
    config: Callable[[str], Path],
) -> None:
    sdk = SdkOptions(config_file=config('[cli]\ncli_path = "/of/config"\n'))
    environ = {"BRIDLE_CLI": "/of/environment"}
    assert settle_options(None, sdk, None, {}).cli.cli_path == "/of/config"
    assert settle_options(None, sdk, None, environ).cli.cli_path == "/of/environment"
    named = settle_options(CliOptions(cli_path="/argument"), sdk, None, environ)
    assert named.cli.cli_path == "/argument"


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("[cli]\nmodell = 'x'\n", "config: cli.modell", "model"),
        ("[cli]\nmax_turns = 'x'\n", "config: cli.max_turns", "integer"),
        ("[client]\n", "config: client", "[cli], [sdk], [bidir]"),
        ("cli = 3\n", "config: cli", "[cli]"),
        ("[sdk]\non_stderr = 'print'\n", "config: sdk.on_stderr", "in your program"),
        ("[sdk]\nlimits = { idel = 3 }\n", "config: sdk.limits", "idle"),
        ("[cli\n", "config_file", "line 1"),
        ("", "config_file", "No such file"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(
    config: Callable[[str], Path], text: str, field: str, words: str
) -> None:
    path = config(text)
    if not text:
        path.unlink()
    with pytest.raises(OptionsError) as refused:
        settle_options(None, SdkOptions(config_file=path), None, {})
    assert refused.value.field.startswith(field)
    assert words in str(refused.value)


def test_the_error_of_a_missing_file_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=CONFIG_VARIABLE):
        settle_options(None, None, None, {CONFIG_VARIABLE: str(tmp_path / "none.toml")})


def test_an_empty_variable_names_no_file() -> None:
    """C40."""
    assert settle_options(None, None, None, {CONFIG_VARIABLE: ""}).cli.model is None


WEAKENING = """
[cli]
model = "from-config"
permission_mode = "acceptEdits"
allowed_tools = ["Bash"]

[sdk]
skip_version_check = true

[bidir]
callback_timeout = 0.01
"""


def test_a_file_that_a_variable_names_cannot_weaken_a_gate(config: Callable[[str], Path]) -> None:
    path = config(WEAKENING)
    options = settle_options(None, None, None, {CONFIG_VARIABLE: str(path)})
    assert options.cli == CliOptions(model="from-config")
    assert (options.sdk, options.bidir) == (SdkOptions(), BidirOptions())
    assert {setting.field for setting in options.ignored} == {
        "cli.permission_mode",
        "cli.allowed_tools",
        "sdk.skip_version_check",
        "bidir.callback_timeout",
    }


def test_a_file_that_the_program_names_may(config: Callable[[str], Path]) -> None:
    path = config(WEAKENING)
    # The variable names it too; the program's word counts.
    environ = {CONFIG_VARIABLE: str(path)}
    options = settle_options(None, SdkOptions(config_file=path), None, environ)
    assert options.cli.permission_mode == "acceptEdits"
    assert (options.sdk.skip_version_check, options.bidir.callback_timeout) == (True, 0.01)
    assert options.ignored == ()


async def _run(sdk: SdkOptions) -> str:
    return (await bridle.run("hello", sdk=sdk)).text


async def _session(sdk: SdkOptions) -> str:
    async with bridle.start_session(sdk=sdk) as session:
        return (await (await session.send_user_message("hello"))).text


async def _query(sdk: SdkOptions) -> str:
    return "".join([answer(message) async for message in bridle.query("hello", sdk=sdk)])


def _sync_run(sdk: SdkOptions) -> str:
    return sync.run("hello", sdk=sdk).text


def _sync_session(sdk: SdkOptions) -> str:
    with sync.start_session(sdk=sdk) as session:
        return session.send_user_message("hello").outcome().text


def _sync_query(sdk: SdkOptions) -> str:
    return "".join(answer(message) for message in sync.query("hello", sdk=sdk))


def answer(message: Message) -> str:
    return message.result or "" if isinstance(message, ResultMessage) else ""


DOORS: dict[str, Callable[[SdkOptions], str]] = {
    "run": lambda sdk: asyncio.run(_run(sdk)),
    "session": lambda sdk: asyncio.run(_session(sdk)),
    "query": lambda sdk: asyncio.run(_query(sdk)),
    "sync.run": _sync_run,
    "sync.session": _sync_session,
    "sync.query": _sync_query,
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_reads_the_file(door: str, config: Callable[[str], Path]) -> None:
    """The CLI itself is known from the file alone, and is started with what else is in it."""
    with FakeCli.auto("fine") as cli:
        path = config(f'[cli]\ncli_path = "{cli.path}"\nmodel = "from-config"\n')
        assert DOORS[door](SdkOptions(config_file=path)) == "fine"
        assert "--model=from-config" in cli.argv


@pytest.mark.parametrize("door", DOORS)
def test_every_door_warns_of_a_setting_that_it_ignores(
    door: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CLAUDE_CALLBACK_TIMEOUT", "0.01")
    warnings: list[SdkWarning] = []
    with FakeCli.auto("fine") as cli:
        monkeypatch.setenv("BRIDLE_CLI", str(cli.path))
        assert DOORS[door](SdkOptions(on_warning=warnings.append)) == "fine"
    [warning] = [one for one in warnings if one.kind == "setting_ignored"]
    assert "CLAUDE_CALLBACK_TIMEOUT is ignored" in warning.detail
    assert "BidirOptions.callback_timeout" in warning.detail
    assert "CLAUDE_CALLBACK_TIMEOUT is ignored" in caplog.text
