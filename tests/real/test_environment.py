"""The environment cannot switch off a gate of the program, on the real CLI."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import run

from bridle import (
    BidirOptions,
    Block,
    CanUseToolContext,
    Deny,
    PreToolUseContext,
    SdkOptions,
    SdkWarning,
    start_session,
)
from bridle.testing import ScriptedModel, text, tool_use

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

    def block(self, context: PreToolUseContext) -> Block:
        """Block every tool."""
        self.asked.append(context.tool_name)
        return Block("never")

    def block_slowly(self, context: PreToolUseContext) -> Block:
        """Block every tool, after some thought."""
        time.sleep(0.3)
        return self.block(context)

    def let_the_model_try(self, bidir: BidirOptions, **options: object) -> None:
        """Let the model run a command that leaves a file."""
        command = f"touch {self.lab.work / 'made.txt'}"

        async def main() -> None:
            script = [[tool_use("Bash", command=command)], [text("done")]]
            async with ScriptedModel(script) as model:
                # Root may bypass permissions in a sandbox only.
                env = {**model.env, "IS_SANDBOX": "1"}
                # The kit sets it, and what the program sets is passed on.
                del env["CLAUDE_CODE_SIMPLE"]
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
