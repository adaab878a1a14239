"""``bridle doctor`` on machines that are well and on machines that are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.processes import Programs, is_alive

from bridle.testing import FakeCli, ScriptedModel, error, text

Models = Callable[..., ScriptedModel]
IS_ROOT = os.geteuid() == 0
SECRET = "sk-scripted-and-secret"


class Told(NamedTuple):
    """What the doctor said."""

    code: int
    out: str

    @property
    def problems(self) -> dict[str, str]:
        """The findings that are problems, by what was looked at."""
        lines = (line.split(maxsplit=2) for line in self.out.splitlines())
        return {words[1]: words[2] for words in lines if words[:1] == ["✗"]}


class Machine:
    """A machine with a home of its own, somebody logged in, and nothing else."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "ANTHROPIC_API_KEY": SECRET,
            "LANG": "C.UTF-8",
            "TMPDIR": str(home / "tmp"),
        }
        (home / "tmp").mkdir(exist_ok=True)

    def ask(self, *arguments: str, **env: str) -> Told:
        """Ask the doctor."""
        run = subprocess.run(
            [sys.executable, "-m", "bridle", "doctor", *arguments],
            env={**self.env, **env},
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.stderr == ""
        assert SECRET not in run.stdout
        assert list((self.home / "tmp").iterdir()) == []  # neither ours nor the CLI's
        return Told(run.returncode, run.stdout)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine."""
    home = tmp_path / "home"
    home.mkdir()
    return Machine(home)


# ---------------------------------------------------------------- the real CLI


def test_a_real_cli_is_healthy(real_cli: Path, machine: Machine) -> None:
    told = machine.ask("--cli", str(real_cli))
    assert (told.code, told.problems) == (0, {})
    assert told.out.splitlines()[-1] == "Healthy."
    assert "✓ login        by ANTHROPIC_API_KEY" in told.out


@pytest.mark.longer
def test_a_real_cli_without_a_login_says_so(real_cli: Path, machine: Machine) -> None:
    told = machine.ask("--json", BRIDLE_CLI=str(real_cli), ANTHROPIC_API_KEY="")
    whole: dict[str, Any] = json.loads(told.out)
    assert (told.code, whole["exit_code"], whole["healthy"]) == (16, 16, False)
    [login] = [one for one in whole["findings"] if one["check"] == "login"]
    assert "ANTHROPIC_API_KEY" in login["advice"]
    assert any(place["origin"] == "PATH" for place in whole["searched"])


@pytest.mark.longer
@pytest.mark.skipif(not IS_ROOT, reason="only root is refused")
@pytest.mark.parametrize("by", ["argument", "settings"])
def test_root_that_would_bypass_permissions_is_warned(
    by: str, real_cli: Path, machine: Machine
) -> None:
    """The CLI would only exit; where its own settings ask for it, its last words tell."""
    arguments = ("--permission-mode", "bypassPermissions") if by == "argument" else ()
    if by == "settings":
        (machine.home / ".claude").mkdir()
        settings = {"permissions": {"defaultMode": "bypassPermissions"}}
        (machine.home / ".claude/settings.json").write_text(json.dumps(settings))
    told = machine.ask("--cli", str(real_cli), *arguments)
    assert (told.code, list(told.problems)) == (15, ["user"])
    assert "IS_SANDBOX=1" in told.out
    if by == "argument":
        assert machine.ask("--cli", str(real_cli), *arguments, IS_SANDBOX="1").code == 0


@pytest.mark.longer
def test_a_variable_that_would_weaken_a_gate_is_a_warning(real_cli: Path, machine: Machine) -> None:
    told = machine.ask("--cli", str(real_cli), CLAUDE_PERMISSION_MODE="bypassPermissions")
    assert told.code == 0
    assert "CLAUDE_PERMISSION_MODE is ignored" in told.out


# ---------------------------------------------------------------- CLIs that are not well


def test_no_cli_is_reported_with_every_place_that_was_looked_at(machine: Machine) -> None:
    told = machine.ask(BRIDLE_CLI="/nowhere/claude")
    assert told.code == 10
    assert told.problems == {"cli": "not found: /nowhere/claude (named by BRIDLE_CLI)"}
    assert "pip install claude-agent-sdk" in told.out


def test_a_cli_that_ends_at_once_is_reported_with_its_last_words(
    machine: Machine, tmp_path: Path
) -> None:
    broken = Programs(tmp_path).shell("echo 'cannot find module' >&2; exit 3")
    told = machine.ask("--cli", broken)
    assert (told.code, set(told.problems)) == (11, {"version", "handshake"})
    assert told.problems["version"] == "--version failed: exit code 3: cannot find module"


@pytest.mark.parametrize("code", [0, 3])
def test_a_cli_that_tells_secrets_is_not_quoted(
    machine: Machine, tmp_path: Path, code: int
) -> None:
    loud = Programs(tmp_path).shell(f'echo "bad $MY_TOKEN sk-{"abc" * 4}"; exit {code}')
    told = machine.ask("--cli", loud, "--timeout", "0.5", MY_TOKEN="marker-4711")
    assert "bad *** ***" in told.out
    assert "4711" not in told.out


def test_a_cli_that_is_not_a_program_is_reported(machine: Machine, tmp_path: Path) -> None:
    told = machine.ask("--cli", str(tmp_path))
    assert (told.code, told.problems["cli"]) == (11, f"Not a file: {tmp_path} (named by --cli)")


def test_a_cli_that_is_too_old_is_not_greeted(machine: Machine) -> None:
    with FakeCli().version("1.0.33 (Claude Code)") as old:
        told = machine.ask("--cli", old.path)
        assert old.runs == []
    assert told.code == 12
    assert told.problems == {"version": "1.0.33 is too old: Bridle needs 2.0.0 or newer"}


def test_a_cli_with_invalid_output_is_given_up(machine: Machine, tmp_path: Path) -> None:
    """Also report a program that is not Claude Code."""
    other = Programs(tmp_path).shell("echo hello; exec cat > /dev/null")
    told = machine.ask("--cli", other, "--timeout", "0.5")
    assert told.code == 13
    assert told.problems == {"handshake": "The CLI did not initialize within 0.5 s."}
    assert "! version      --version printed 'hello', which is not a version" in told.out


def test_a_cli_that_refuses_is_reported_in_its_words(machine: Machine) -> None:
    with FakeCli().expect_initialize(error="not today\x1b[2J") as fake:
        told = machine.ask("--cli", fake.path)
    assert told.code == 13
    assert told.problems == {"handshake": "The CLI rejected the handshake: not today␛[2J"}


@pytest.mark.parametrize("place", ["file", "proc"])
def test_a_config_directory_that_cannot_be_written_to_is_reported(
    place: str, machine: Machine, tmp_path: Path
) -> None:
    """Permissions do not bind root, so it is tried; nothing can be written to either of these."""
    (tmp_path / "file").touch()
    path = str(tmp_path / "file") if place == "file" else "/proc/claude"
    with FakeCli.auto() as fake:
        told = machine.ask("--cli", fake.path, CLAUDE_CONFIG_DIR=path)
    assert (told.code, list(told.problems)) == (14, ["config"])
    assert told.problems["config"].startswith(f"{path} cannot be written to: ")


def test_a_home_that_cannot_be_written_to_is_reported(machine: Machine) -> None:
    with FakeCli.auto() as fake:
        told = machine.ask("--cli", fake.path, HOME="/proc/home")
    assert (told.code, set(told.problems)) == (14, {"config", "home"})


def test_wrong_options_are_reported_before_anything_is_started(machine: Machine) -> None:
    with FakeCli.auto() as fake:
        told = machine.ask("--cli", fake.path, CLAUDE_MAX_TURNS="many")
        assert fake.runs == []
    assert (told.code, told.problems) == (2, {"options": "CLAUDE_MAX_TURNS is 'many'."})


def test_a_path_that_is_not_a_directory_is_a_wrong_option(machine: Machine) -> None:
    with FakeCli.auto() as fake:
        told = machine.ask("--cli", fake.path, "--cwd", "/nowhere")
        config = machine.home / "bridle.toml"
        config.write_text('[cli]\ncwd = "/nowhere"\n')
        from_file = machine.ask("--cli", fake.path, "--config", str(config))
        assert fake.runs == []
    assert (told.code, told.problems) == (
        2,
        {"options": "--cwd names /nowhere, which is not a directory."},
    )
    assert from_file.problems == {
        "options": "cwd (config) names /nowhere, which is not a directory."
    }


# ---------------------------------------------------------------- what the doctor does not do


def test_the_doctor_reads_no_input_and_leaves_nothing(machine: Machine) -> None:
    """One handshake; hooks, servers, updates, telemetry and every way out are closed."""
    with FakeCli.auto() as fake:
        assert machine.ask("--cli", fake.path, HTTPS_PROXY="http://proxy.example:1").code == 0
        assert [line["request"]["subtype"] for line in fake.received] == ["initialize"]
        assert len(fake.runs) == 1
        nowhere = {"ANTHROPIC_BASE_URL", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"}
        assert {fake.environ[name] for name in nowhere} == {"http://127.0.0.1:9"}
        switched_off = {"DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING"}
        assert {fake.environ[name] for name in switched_off} == {"1"}
        assert {"--strict-mcp-config", "--no-session-persistence"} <= set(fake.argv)
        assert any(argument.startswith("--settings=") for argument in fake.argv)
        assert not is_alive(fake.pid or 0)
    assert [path.name for path in machine.home.iterdir()] == ["tmp"]


HELPERS = (
    *("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh"),
    *("otelHeadersHelper", "proxyAuthHelper"),
)


def plant(directory: Path, marks: Path) -> None:
    """Write settings with every kind of command; each makes a file with its name if it is run."""
    marks.mkdir(exist_ok=True)
    commands = {name: f"touch {marks}/{name}; echo sk-x" for name in HELPERS}
    hook = [{"hooks": [{"type": "command", "command": f"touch {marks}/hook"}]}]
    settings = {
        **commands,
        "statusLine": {"type": "command", "command": f"touch {marks}/statusLine"},
        "hooks": dict.fromkeys(("Setup", "SessionStart", "SessionEnd", "UserPromptSubmit"), hook),
        "env": {"CLAUDE_CODE_ENABLE_TELEMETRY": "1", "OTEL_METRICS_EXPORTER": "otlp"},
        "enableAllProjectMcpServers": True,
    }
    (directory / ".claude").mkdir()
    (directory / ".claude/settings.json").write_text(json.dumps(settings))
    server = {"command": "touch", "args": [f"{marks}/server"]}
    (directory / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": server}}))


@pytest.mark.longer
@pytest.mark.parametrize("where", ["user", "project"])
def test_no_command_of_a_settings_file_is_run(
    where: str, real_cli: Path, machine: Machine, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    marks = tmp_path / "marks"
    plant(machine.home if where == "user" else project, marks)
    arguments = ("--cli", str(real_cli), "--cwd", str(project))
    told = machine.ask(*arguments, ANTHROPIC_API_KEY="")
    assert told.code == 0
    assert "· login        unknown: settings name a login" in told.out
    assert ".claude/settings.json has apiKeyHelper" in told.out
    assert list(marks.iterdir()) == []


# ---------------------------------------------------------------- a real call


@pytest.mark.longer
def test_a_live_check_makes_one_call(
    real_cli: Path, machine: Machine, scripted_model: Models, tmp_path: Path
) -> None:
    """Without commands of the directory, and without a transcript."""
    project = tmp_path / "project"
    project.mkdir()
    marks = tmp_path / "marks"
    plant(project, marks)
    model = scripted_model([[text("OK")]])
    env = {**model.env, "ANTHROPIC_API_KEY": SECRET}
    arguments = ("--cli", str(real_cli), "--cwd", str(project))
    assert machine.ask(*arguments, **env).code == 0
    assert model.requests == []
    told = machine.ask(*arguments, "--live", **env)
    assert (told.code, told.problems) == (0, {})
    assert "✓ model        answered one prompt · " in told.out
    assert len(model.requests) == 1
    assert list(marks.iterdir()) == []


@pytest.mark.longer
def test_a_live_check_that_is_refused_tells_why(
    real_cli: Path, machine: Machine, scripted_model: Models
) -> None:
    model = scripted_model([error(401, "authentication_error", "invalid x-api-key")])
    env = {**model.env, "ANTHROPIC_API_KEY": SECRET}
    told = machine.ask("--cli", str(real_cli), "--live", **env)
    assert (told.code, list(told.problems)) == (16, ["model"])
    assert told.problems["model"].startswith("no answer: auth failed")


def test_a_live_check_without_a_session_asks_nothing(machine: Machine) -> None:
    with FakeCli().expect_initialize(error="not today") as fake:
        told = machine.ask("--cli", fake.path, "--live")
    assert (told.code, list(told.problems)) == (13, ["handshake"])
