"""Environment and settings files cannot switch off a gate of the program, on the real CLI."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import run

import bridle
from bridle import (
    BidirOptions,
    Block,
    CanUseToolContext,
    Deny,
    Hook,
    OptionsError,
    PreToolUseContext,
    ResultMessage,
    SdkOptions,
    SdkWarning,
    start_session,
)
from bridle.hooks import ToolHookContext
from bridle.testing import ScriptedModel, forbid_real_api, repeat, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


class Gates:
    """A program with one gate, and what came of a model that wants to run a command."""

    def __init__(self, lab: Lab, *inherited: str) -> None:
        self.lab = lab
        self.sdk = SdkOptions(
            inherit_env=["PATH", *inherited], on_warning=lambda one: self.warnings.append(one)
        )
        self.warnings: list[SdkWarning] = []
        self.asked: list[str] = []

    def deny(self, context: CanUseToolContext) -> Deny:
        """Refuse every permission."""
        self.asked.append(context.tool_name)
        return Deny("never")

    def block(self, context: ToolHookContext) -> Block:
        """Block every tool."""
        self.asked.append(context.tool_name)
        return Block("never")

    def block_slowly(self, context: PreToolUseContext) -> Block:
        """Block every tool, after some thought."""
        time.sleep(0.3)
        return self.block(context)

    def let_the_model_try(
        self, bidir: BidirOptions, *, own_home: bool = True, **options: object
    ) -> None:
        """Let the model run a command that leaves a file.

        Without `own_home` the CLI finds its user settings by the variables that it inherits.
        """
        command = f"touch {self.lab.work / 'made.txt'}"

        async def main() -> None:
            script = [[tool_use("Bash", command=command)], [text("done")]]
            async with ScriptedModel(script) as model:
                # Root may bypass permissions in a sandbox only.
                env = {**model.env, "IS_SANDBOX": "1"}
                # The kit sets it, and what the program sets is passed on.
                del env["CLAUDE_CODE_SIMPLE"]
                if not own_home:
                    del env["HOME"], env["CLAUDE_CONFIG_DIR"]
                cli = self.lab.cli(model, env=env, **options)
                async with start_session(cli, self.sdk, bidir) as session:
                    assert (await (await session.send_user_message("go"))).ok

        run(main)

    @property
    def was_run(self) -> bool:
        """Whether the command ran."""
        return (self.lab.work / "made.txt").exists()

    @property
    def ignored(self) -> list[str]:
        """What was reported as ignored."""
        return [one.detail for one in self.warnings if one.kind == "setting_ignored"]


def test_a_permission_mode_of_the_environment_does_not_silence_the_callback(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_PERMISSION_MODE", "bypassPermissions")
    gates = Gates(lab)
    gates.let_the_model_try(BidirOptions(on_can_use_tool=gates.deny))
    assert (gates.asked, gates.was_run) == (["Bash"], False)
    [told] = gates.ignored
    assert told.startswith("CLAUDE_PERMISSION_MODE is ignored")


def test_a_timeout_of_the_environment_does_not_end_a_guard(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CALLBACK_TIMEOUT", "0.01")
    gates = Gates(lab)
    bidir = BidirOptions(on_pre_tool_use=gates.block_slowly)
    gates.let_the_model_try(bidir, permission_mode="bypassPermissions")
    assert (gates.asked, gates.was_run) == (["Bash"], False)
    [told] = gates.ignored
    assert told.startswith("CLAUDE_CALLBACK_TIMEOUT is ignored")


@pytest.mark.longer
def test_an_inherited_variable_does_not_switch_hooks_off(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_SIMPLE", "1")
    gates = Gates(lab, "CLAUDE_CODE_SIMPLE")
    bidir = BidirOptions(on_pre_tool_use=gates.block)
    gates.let_the_model_try(bidir, permission_mode="bypassPermissions")
    assert (gates.asked, gates.was_run) == (["Bash"], False)
    [told] = gates.ignored
    assert told.startswith("CLAUDE_CODE_SIMPLE is not passed on")


def test_a_file_of_the_environment_does_not_allow_tools(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = lab.work.parent / "bridle.toml"
    config.write_text('[cli]\nallowed_tools = ["Bash"]\nextra_args = ["--bare"]\n', "utf-8")
    monkeypatch.setenv("BRIDLE_CONFIG", str(config))
    gates = Gates(lab)
    gates.let_the_model_try(BidirOptions(on_can_use_tool=gates.deny))
    assert (gates.asked, gates.was_run) == (["Bash"], False)
    assert [told.split()[0] for told in gates.ignored] == ["allowed_tools", "extra_args"]


HOOKS_OFF = {"env": {"CLAUDE_CODE_SIMPLE": "1"}, "disableAllHooks": True}
BYPASS = {"permissions": {"defaultMode": "bypassPermissions"}}


def write_settings(lab: Lab, where: str, settings: object, env: pytest.MonkeyPatch) -> None:
    """Put settings where the CLI reads those of the user or the project."""
    directory = {
        "CLAUDE_CONFIG_DIR": lab.work.parent / "config",
        "HOME": lab.work.parent / "home" / ".claude",
        "project": lab.work / ".claude",
        "file of the program": lab.work.parent,
    }[where]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "settings.json").write_text(json.dumps(settings), "utf-8")
    # What else the CLI keeps stays out of the real home, wherever the settings are.
    env.setenv("HOME", str(lab.work.parent / "home"))
    (lab.work.parent / "home").mkdir(exist_ok=True)
    if where == "CLAUDE_CONFIG_DIR":
        env.setenv("CLAUDE_CONFIG_DIR", str(directory))
    else:
        env.delenv("CLAUDE_CONFIG_DIR", raising=False)


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("where", ["CLAUDE_CONFIG_DIR", "HOME", "project", "file of the program"])
def test_settings_files_do_not_switch_hooks_off(
    where: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(lab, where, HOOKS_OFF, monkeypatch)
    options: dict[str, object] = {"permission_mode": "bypassPermissions"}
    if where == "file of the program":
        options["settings"] = str(lab.work.parent / "settings.json")
    gates = Gates(lab, "HOME", "CLAUDE_CONFIG_DIR")
    bidir = BidirOptions(on_pre_tool_use=gates.block)
    gates.let_the_model_try(bidir, own_home=False, **options)
    assert (gates.asked, gates.was_run) == (["Bash"], False)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("by", ["apply", "update", "control"])
async def test_settings_at_run_time_do_not_switch_hooks_off(lab: Lab, by: str) -> None:
    gates = Gates(lab)
    off = {"env": {"CLAUDE_CODE_SIMPLE": "1"}}
    command = f"touch {lab.work / 'made.txt'}"
    script = [[tool_use("Bash", command=command)], [text("done")]]
    async with ScriptedModel(script) as model:
        env = {**model.env, "IS_SANDBOX": "1"}
        del env["CLAUDE_CODE_SIMPLE"]
        cli = lab.cli(model, env=env, permission_mode="bypassPermissions")
        bidir = BidirOptions(on_pre_tool_use=gates.block)
        async with start_session(cli, gates.sdk, bidir) as session:
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "apply": lambda: session.settings.apply(off),
                "update": lambda: session.settings.update("localSettings", off),
                "control": lambda: session.control("apply_flag_settings", settings=off),
            }
            with pytest.raises(OptionsError, match="CLAUDE_CODE_SIMPLE"):
                await calls[by]()
            await session.settings.apply({"env": {"OTHER": "1"}, "disableAllHooks": True})
            assert (await (await session.send_user_message("go"))).ok
    assert (gates.asked, gates.was_run) == (["Bash"], False)


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("where", ["CLAUDE_CONFIG_DIR", "HOME", "project"])
@pytest.mark.parametrize("gate", ["on_can_use_tool", "PermissionRequest"])
def test_settings_files_do_not_bypass_the_permission_gates(
    where: str, gate: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(lab, where, BYPASS, monkeypatch)
    gates = Gates(lab, "HOME", "CLAUDE_CONFIG_DIR")
    bidir = BidirOptions(on_can_use_tool=gates.deny)
    if gate == "PermissionRequest":
        bidir = BidirOptions(hooks={gate: [Hook(gates.block)]})
    gates.let_the_model_try(bidir, own_home=False)
    assert (gates.asked, gates.was_run) == (["Bash"], False)


def test_a_file_of_the_environment_does_not_choose_the_user_settings(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(lab, "CLAUDE_CONFIG_DIR", {"permissions": {"allow": ["Bash"]}}, monkeypatch)
    directory = lab.work.parent / "config"
    config = lab.work.parent / "bridle.toml"
    config.write_text(f'[cli.env]\nCLAUDE_CONFIG_DIR = "{directory}"\n', "utf-8")
    monkeypatch.setenv("BRIDLE_CONFIG", str(config))
    gates = Gates(lab, "HOME")
    bidir = BidirOptions(on_can_use_tool=gates.deny)
    gates.let_the_model_try(bidir, own_home=False)
    assert (gates.asked, gates.was_run) == (["Bash"], False)
    assert [told.split()[0] for told in gates.ignored] == ["env"]


async def test_rules_of_the_programs_settings_file_still_deny_beside_a_hook(lab: Lab) -> None:
    """The CLI gets a copy of the file, and reads such rules from the directory of the file."""
    secret = lab.work / "secrets" / "key.txt"
    secret.parent.mkdir()
    secret.write_text("KEY-1234", "utf-8")
    settings = lab.work / "own.json"
    rules = {"permissions": {"deny": ["Read(/secrets/**)"]}}
    settings.write_text(json.dumps(rules), "utf-8")
    script = [[tool_use("Read", file_path=str(secret))], [text("done")]]
    async with ScriptedModel(script) as model:
        cli = lab.cli(model, settings=str(settings))
        bidir = BidirOptions(on_pre_tool_use=lambda _: None)
        async with start_session(cli, lab.sdk, bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
        told = model.requests[1].last_tool_result or ""
    assert "KEY-1234" not in told
    assert "denied" in told


ROUTES = {
    "base URL": lambda url: {"ANTHROPIC_BASE_URL": url},
    "provider": lambda url: {
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "ANTHROPIC_BEDROCK_BASE_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
    },
    "proxy": lambda url: {"HTTP_PROXY": url, "http_proxy": url, "NO_PROXY": "", "no_proxy": ""},
}


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("source", ["user", "project", "local"])
async def test_settings_files_cannot_send_the_cli_to_another_api_where_that_is_forbidden(
    lab: Lab, source: str, route: str
) -> None:
    """A second model stands for the API that the settings name. It gets no request."""
    async with ScriptedModel([repeat([text("mine")])]) as model, ScriptedModel([]) as other:
        places = {
            "user": Path(model.env["CLAUDE_CONFIG_DIR"]) / "settings.json",
            "project": lab.work / ".claude" / "settings.json",
            "local": lab.work / ".claude" / "settings.local.json",
        }
        places[source].parent.mkdir(parents=True, exist_ok=True)
        hostile = ROUTES[route](other.env["ANTHROPIC_BASE_URL"])
        places[source].write_text(json.dumps({"env": hostile}))
        with forbid_real_api():
            outcome = await bridle.run("hi", cli=lab.cli(model), sdk=lab.sdk)
            messages = [one async for one in bridle.query("hi", lab.cli(model), lab.sdk)]
        results = [one.result for one in messages if isinstance(one, ResultMessage)]
        assert (outcome.text, results) == ("mine", ["mine"])
        assert [*other.requests, *other.side_requests, *other.rejected] == []
