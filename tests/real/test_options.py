"""Options that travel in the handshake, in variables or in prompts have their effect on real CLIs.

Each test names what an older CLI does with an option that it does not know.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import run

from bridle import (
    BidirOptions,
    CliOptions,
    Hook,
    InitializationError,
    InitMessage,
    SdkOptions,
    SdkWarning,
    UnsupportedCliVersionError,
    query,
    start_session,
)
from bridle.messages import TaskNotificationMessage
from bridle.testing import ModelRequest, Reply, ScriptedModel, repeat, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

ANSWER = [repeat([text("ok")])]


@pytest.fixture
def plugin(work: Path) -> Path:
    """Return the directory of a plugin with a command and two skills."""
    place = work / "plug"
    (place / ".claude-plugin").mkdir(parents=True)
    (place / ".claude-plugin" / "plugin.json").write_text('{"name": "plug", "version": "1.0.0"}')
    (place / "commands").mkdir()
    (place / "commands" / "greet.md").write_text("Say hello")
    for name in ("zebra", "horse"):
        (place / "skills" / name).mkdir(parents=True)
        skill = f"---\nname: {name}\ndescription: Draws a {name}\n---\nDraw it.\n"
        (place / "skills" / name / "SKILL.md").write_text(skill)
    return place


def first_request(lab: Lab, prompt: str = "hi", **options: Any) -> ModelRequest:
    """Return the first request to the model of a session with these options."""
    return asked(lab, prompt, **options)[0]


def asked(lab: Lab, prompt: str = "hi", **options: Any) -> tuple[ModelRequest, list[SdkWarning]]:
    """Return the first request to the model, and the warnings of the session."""
    warnings: list[SdkWarning] = []

    async def main() -> ModelRequest:
        async with ScriptedModel(ANSWER) as model:
            sdk = lab.sdk.replace(on_warning=warnings.append)
            async with start_session(lab.cli(model, **options), sdk) as session:
                assert (await (await session.send_user_message(prompt))).ok
            return model.requests[0]

    return run(main), warnings


def content(request: ModelRequest) -> str:
    return json.dumps(request.messages[-1])


@pytest.mark.longer
def test_verbatim_prompts_run_no_slash_command(lab: Lab, plugin: Path) -> None:
    plain = first_request(lab, "/plug:greet", plugins=[plugin])
    assert "Say hello" in content(plain)
    request = first_request(lab, "/plug:greet", plugins=[plugin], verbatim_prompts=True)
    assert "/plug:greet" in content(request)
    assert "Say hello" not in content(request)


async def test_a_query_sends_verbatim_prompts_too(lab: Lab, plugin: Path) -> None:
    async with ScriptedModel(ANSWER) as model:
        cli = lab.cli(model, plugins=[plugin], verbatim_prompts=True)
        async for _ in query("/plug:greet", cli, lab.sdk):
            pass
        assert "/plug:greet" in content(model.requests[0])
        assert "Say hello" not in content(model.requests[0])


@pytest.mark.longer
def test_tool_config_changes_what_the_model_reads_about_a_tool(lab: Lab) -> None:
    def described(**options: Any) -> str:
        request = first_request(lab, tools=["AskUserQuestion"], **options)
        return json.dumps(request.raw["tools"])

    assert "HTML" not in described()
    config = {"ask_user_question": {"preview_format": "html"}}
    assert "HTML" in described(tool_config=config)


@pytest.mark.both_clis
async def test_plugins_travel_in_the_handshake(lab: Lab, plugin: Path) -> None:
    """2.1.197 does not know the flag and exits, which is a typed error."""
    async with ScriptedModel(ANSWER) as model:
        cli = lab.cli(model, plugins=[plugin], plugin_delivery="initialize")
        if not lab.is_newest:
            with pytest.raises(UnsupportedCliVersionError):
                await start_session(cli, lab.sdk)
            return
        async with start_session(cli, lab.sdk) as session:
            assert session.server_info
            assert session.server_info["plugins_applied"] is True
            messages = session.messages()
            assert (await (await session.send_user_message("hi"))).ok
            init = await anext(m async for m in messages if isinstance(m, InitMessage))
            assert "plug" in [one["name"] for one in init.raw["plugins"]]


@pytest.mark.both_clis
async def test_mcp_servers_travel_in_the_handshake(lab: Lab, tmp_path: Path) -> None:
    """Nothing of them is on the command line or on disk. 2.1.197 exits, which is a typed error."""
    secret = "secret-of-the-server"
    server = {"command": "cat", "env": {"SERVER_TOKEN": secret}}
    async with ScriptedModel(ANSWER) as model:
        cli = lab.cli(
            model,
            env={**model.env, "TMPDIR": str(tmp_path)},
            mcp_config={"mcpServers": {"db": server}},
            mcp_config_delivery="initialize",
            strict_mcp_config=True,
        )
        if not lab.is_newest:
            with pytest.raises(UnsupportedCliVersionError):
                await start_session(cli, lab.sdk)
            return
        async with start_session(cli, lab.sdk) as session:
            assert session.server_info
            assert session.server_info["mcp_servers_applied"] is True
            status = await session.mcp.status()
            assert [one.name for one in status.servers] == ["db"]
            command = Path(f"/proc/{session.pid}/cmdline")
            assert not command.exists() or b"mcp-config=" not in command.read_bytes()
            written = [path for path in tmp_path.rglob("*") if path.is_file()]
            assert not [path for path in written if secret.encode() in path.read_bytes()]


@pytest.mark.both_clis
async def test_managed_settings_remove_a_tool_and_are_not_on_the_command_line(lab: Lab) -> None:
    """2.1.197 exits: it never runs without a policy that it was given."""
    async with ScriptedModel(ANSWER) as model:
        managed = {"permissions": {"deny": ["Bash"]}}
        cli = lab.cli(model, managed_settings=managed, tools=["Bash", "Read"])
        if not lab.is_newest:
            with pytest.raises(UnsupportedCliVersionError):
                await start_session(cli, lab.sdk)
            return
        async with start_session(cli, lab.sdk) as session:
            command = Path(f"/proc/{session.pid}/cmdline")
            assert not command.exists() or b"deny" not in command.read_bytes()
            assert (await (await session.send_user_message("hi"))).ok
        assert model.requests[0].tools == ("Read",)


@pytest.mark.longer(after=2)
@pytest.mark.parametrize(
    ("skills", "listed"), [(None, [1, 1]), ("all", [1, 1]), (["zebra"], [1, 0]), ([], [0, 0])]
)
def test_skills_select_what_the_model_sees(
    lab: Lab, plugin: Path, skills: Any, listed: list[int]
) -> None:
    request = json.dumps(first_request(lab, plugins=[plugin], skills=skills).raw)
    assert ["plug:zebra" in request, "plug:horse" in request] == list(map(bool, listed))


@pytest.mark.longer
def test_per_task_stop_keeps_background_agents_running(lab: Lab) -> None:
    """Without it, and on 2.1.197, an interrupt stops them."""

    def reply(request: ModelRequest) -> Any:
        is_subagent = "subagent work" in json.dumps(request.messages[0])
        is_held = is_subagent or "again" in json.dumps(request.messages[-1])
        return Reply(blocks=(text("done"),), hold=True) if is_held else [text("ok")]

    async def status(per_task_stop: bool) -> str:
        work = tool_use(
            "Task",
            description="d",
            prompt="subagent work",
            subagent_type="general-purpose",
            run_in_background=True,
        )
        async with ScriptedModel([[work], repeat(reply)]) as model:
            cli = lab.cli(model, per_task_stop=per_task_stop)
            async with start_session(cli, lab.sdk) as session:
                messages = session.messages()
                assert (await (await session.send_user_message("go"))).ok
                turn = await session.send_user_message("again")
                await model.wait_for_hold(2)  # the subagent, and the turn
                await session.interrupt()
                assert (await turn).reason == "interrupted"
                model.release()
                ended = await anext(
                    one async for one in messages if isinstance(one, TaskNotificationMessage)
                )
                return ended.status

    assert run(lambda: status(False)) == "stopped"
    assert run(lambda: status(True)) == ("completed" if lab.is_newest else "stopped")


@pytest.mark.both_clis
async def test_extra_initialize_reaches_the_cli(lab: Lab) -> None:
    """The newest CLI reports a wrong type of a field. Both ignore fields that they do not know."""
    async with ScriptedModel(ANSWER) as model:
        cli = lab.cli(model, extra_initialize={"somethingNew": 5})
        async with start_session(cli, lab.sdk) as session:
            assert session.alive
        name = "webSearchIsolationExemptMcpServers"
        if lab.is_newest:  # 2.1.197 would hang
            with pytest.raises(InitializationError, match=name):
                await start_session(cli.replace(extra_initialize={name: 5}), lab.sdk)


@pytest.mark.longer
async def test_an_unknown_hook_event_is_registered_with_a_warning(lab: Lab) -> None:
    """The known hooks of the session still work."""
    warnings: list[SdkWarning] = []
    called: list[str] = []

    def guard(context: Any) -> None:
        called.append(context.hook_event_name)

    async with ScriptedModel([[tool_use("Bash", command="true")], [text("ok")]]) as model:
        bidir = BidirOptions(hooks={"BrandNew": [Hook(guard)], "PreToolUse": [Hook(guard)]})
        sdk = lab.sdk.replace(on_warning=warnings.append)
        cli = lab.cli(model, allowed_tools=["Bash"])
        async with start_session(cli, sdk, bidir) as session:
            assert (await (await session.send_user_message("hi"))).ok
    assert called == ["PreToolUse"]
    [warning] = [one for one in warnings if one.kind == "unknown_value"]
    assert warning.detail.startswith("BidirOptions.hooks is 'BrandNew'")


def test_an_unknown_agent_field_is_passed_on(lab: Lab) -> None:
    """The agents of the session are still there."""
    agents = {"helper": {"description": "d", "prompt": "p", "colour": "red", "omitClaudeMd": True}}
    request, warnings = asked(lab, agents=agents)
    assert "helper" in json.dumps(request.raw)
    assert [one.kind for one in warnings if one.kind == "unknown_value"] == ["unknown_value"]


# ---------------------------------------------------------------- another system user


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a directory that belongs to the user `nobody`."""
    if os.geteuid() != 0:
        pytest.skip("only root may start a process as another user")
    other = pwd.getpwnam("nobody")
    place = Path(tempfile.mkdtemp(prefix="bridle-user-"))
    for directory in (place, place / "home", place / "work"):
        directory.mkdir(exist_ok=True)
        os.chown(directory, other.pw_uid, other.pw_gid)
    yield place
    shutil.rmtree(place)


@pytest.mark.longer
def test_the_cli_runs_as_another_user(lab: Lab, shared: Path) -> None:
    """It reads its private files, its tools write as that user, and nothing is left of it."""
    other = pwd.getpwnam("nobody").pw_uid
    check = ["test", "-x", lab.cli_path]
    if subprocess.run(check, user=other, check=False).returncode != 0:
        pytest.skip("the user `nobody` cannot reach the directory of this CLI")
    target = shared / "work" / "note.txt"
    home = str(shared / "home")
    write = tool_use("Write", file_path=str(target), content="x")

    async def main() -> int | None:
        async with asyncio.timeout(60), ScriptedModel([[write], [text("ok")]]) as model:
            cli = CliOptions(
                cli_path=lab.cli_path,
                env={
                    name: value.replace(str(model.home), home) for name, value in model.env.items()
                },
                cwd=str(shared / "work"),
                settings={"permissions": {"deny": ["Bash"]}},
                permission_mode="acceptEdits",
                user="nobody",
            )
            async with start_session(cli, SdkOptions(inherit_env=["PATH"])) as session:
                assert (await (await session.send_user_message("hi"))).ok
                pid = session.pid
            assert "Bash" not in model.requests[0].tools
            return pid

    pid = run(main)
    assert target.stat().st_uid == other
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.longer
async def test_tools_that_the_cli_does_not_have_are_warned_about(lab: Lab) -> None:
    warnings: list[SdkWarning] = []
    sdk = lab.sdk.replace(on_warning=warnings.append)
    async with ScriptedModel(ANSWER) as model:
        options = lab.cli(model, tools=["Bahs", "Read", "Agent"])
        async with start_session(options, sdk) as session:
            for _ in range(2):
                await (await session.send_user_message("hi"))
        async for _ in query("hi", options, sdk):
            pass
    about = [warning for warning in warnings if "'Bahs'" in warning.detail]
    # Once when it starts and once when the CLI has listed its tools: in the session, in the query.
    assert [warning.kind for warning in about] == ["unknown_value", "option_unsupported"] * 2
    assert "Did you mean 'Bash'?" in about[0].detail
    assert about[1].detail.endswith("It has: Task, Read.")
