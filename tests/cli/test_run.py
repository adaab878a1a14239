"""``bridle run`` in a pipe: the answer, the notes, JSON, and an exit code for every ending."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from tests.support.processes import Programs, is_alive, wait_until

from bridle.cli import main
from bridle.options import PermissionMode
from bridle.testing import FakeCli, ScriptedModel, text, tool_use

Models = Callable[..., ScriptedModel]
Capture = pytest.CaptureFixture[str]

MODULE = (sys.executable, "-m", "bridle", "run")
OUTCOME = "bridle_outcome"


class Ran(NamedTuple):
    """What came of a run."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it said as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def bridle(capsys: Capture) -> Callable[..., Ran]:
    """The command, in this process; what it says is captured."""

    def run(*arguments: str) -> Ran:
        code = main(["run", *arguments])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


# ---------------------------------------------------------------- on the real CLI


@pytest.mark.longer
def test_a_pipe_gets_the_answer_and_nothing_is_permitted(
    real_cli: Path, scripted_model: Models, tmp_path: Path
) -> None:
    """Prompt from a pipe, answer into a pipe: nobody can be asked, so nothing that asks is run."""
    script = [[text("Let me see."), tool_use("Bash", command="touch x")], [text("Done\x1b[2J.")]]
    model = scripted_model(script)
    run = subprocess.run(
        [*MODULE, "--cli", str(real_cli), "Do this:", "-"],
        input="touch x",
        env={"PATH": os.environ["PATH"], **model.env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "Let me see.\nDone\x1b[2J.\n")
    assert "✗ Bash denied: there is no terminal to ask on  touch x" in run.stderr
    assert "✓ completed · 2 turns" in run.stderr
    assert list(tmp_path.iterdir()) == []
    assert model.requests[0].last_user_text == "Do this:\n\ntouch x"
    assert model.requests[1].last_tool_result == "No user is available to give permission."


def test_json_has_every_message_and_the_outcome_last(
    real_cli: Path, scripted_model: Models, tmp_path: Path
) -> None:
    model = scripted_model([[tool_use("Bash", command="touch x")], [text("Done.")]])
    run = subprocess.run(
        [*MODULE, "--cli", str(real_cli), "--json", "--yes", "--quiet", "go"],
        env={"PATH": os.environ["PATH"], **model.env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    *messages, outcome = Ran(run.returncode, run.stdout, run.stderr).lines
    kinds = [message["type"] for message in messages]
    assert run.stderr == ""
    assert {"system", "stream_event", "assistant", "user", "result"} <= set(kinds)
    assert (outcome["type"], outcome["ok"], outcome["exit_code"]) == (OUTCOME, True, 0)
    assert (outcome["text"], outcome["num_turns"]) == ("Done.", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


GIT_ONLY = """
[[rule]]
tool = "Bash"
input.command = "git --version"
decision = "allow"

[[rule]]
tool = "Bash"
input.command = "pwd"
decision = "ask"

[[rule]]
tool = "*"
decision = "deny"
reason = "Only git."
"""


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_policy_holds_for_what_the_cli_would_not_ask_about(
    mode: str, real_cli: Path, scripted_model: Models, tmp_path: Path
) -> None:
    """Reading in the working directory and commands that only read pass the CLI unasked."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".env").write_text("PASSWORD=marker\n")
    (tmp_path / "policy.toml").write_text(GIT_ONLY)
    model = scripted_model(
        [
            [tool_use("Read", file_path=str(work / ".env"))],
            [tool_use("Bash", command="ls; cat .env")],
            [tool_use("Bash", command="pwd")],
            [tool_use("Bash", command="git --version")],
            [text("Done.")],
        ]
    )
    policy = str(tmp_path / "policy.toml")
    run = subprocess.run(
        [*MODULE, "--cli", str(real_cli), "--policy", policy, "--permission-mode", mode, "go"],
        env={"PATH": os.environ["PATH"], **model.env, "IS_SANDBOX": "1"},
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    calls = [line.strip() for line in run.stderr.splitlines() if line.startswith("  ✗")]
    assert (run.returncode, run.stdout) == (0, "Done.\n")
    assert calls == [
        f"✗ Read denied by policy rule 3: Only git.  {work}/.env",
        "✗ Bash denied by policy rule 3: Only git.  ls; cat .env",
        "✗ Bash denied: there is no terminal to ask on  pwd",
    ]
    results = [str(request.last_tool_result) for request in model.requests[1:]]
    assert not any("marker" in result for result in results)
    assert "Only git." in results[0]
    assert "git version" in results[3]


GATED = """
[[rule]]
tool = "Bash"
input.command = "cat docs/*"
decision = "allow"

[[rule]]
tool = ["Task", "Write"]
decision = "deny"
reason = "Not here."

[[rule]]
tool = "Bash"
decision = "deny"
"""


def run_in(
    work: Path, model: ScriptedModel, *arguments: str, policy: str = GATED
) -> subprocess.CompletedProcess[str]:
    """Run a prompt in a directory, under a policy, with a home beside it."""
    home = work.parent / "home"
    (work.parent / "policy.toml").write_text(policy)
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], **model.env, "HOME": str(home)}
    del env["CLAUDE_CONFIG_DIR"]
    return subprocess.run(
        [*MODULE, "--policy", str(work.parent / "policy.toml"), *arguments, "go"],
        env=env,
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.longer
def test_a_policy_cannot_be_evaded(real_cli: Path, scripted_model: Models, tmp_path: Path) -> None:
    """Paths are resolved from where the shell is; the CLI calls the tool Task by another name."""
    work = tmp_path / "work"
    (work / "docs").mkdir(parents=True)
    (work / "docs/a.md").write_text("welcome")
    (work / ".env").write_text("PASSWORD=marker")
    (work / "docs/link.md").symlink_to(work / ".env")
    calls = ["cat docs/'..'/.env", "cat docs/link.md", "cat docs/../.env", "cat docs/a.md"]
    task = {"description": "x", "prompt": "x", "subagent_type": "general-purpose"}
    model = scripted_model(
        [
            *([tool_use("Bash", command=command)] for command in calls),
            [tool_use("Agent", **task)],
            [text("Done.")],
        ]
    )
    run = run_in(work, model, "--cli", str(real_cli), "--allowed-tools", "Bash(cat:*)")
    assert (run.returncode, run.stdout) == (0, "Done.\n")
    results = [str(request.last_tool_result) for request in model.requests[1:]]
    assert "marker" not in "".join(results)
    assert results[3] == "welcome"
    assert results[4].endswith("Not here.")


ASKS_FOR_RM = """
default = "allow"

[[rule]]
tool = "Bash"
input.command = "rm *"
decision = "ask"
"""


@pytest.mark.longer
def test_a_command_that_a_policy_asks_about_does_not_run_in_disguise(
    real_cli: Path, scripted_model: Models, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "victim").touch()
    calls = [
        "time -p rm victim",
        "function f { rm victim; }; f",
        "chronic rm victim || nice rm victim",
        "echo cm0gdmljdGlt | base64 -d | sh",
    ]
    model = scripted_model(
        [*([tool_use("Bash", command=command)] for command in calls), [text("Done.")]]
    )
    run = run_in(work, model, "--cli", str(real_cli), policy=ASKS_FOR_RM)
    assert (run.returncode, run.stdout) == (0, "Done.\n")
    assert (work / "victim").exists()
    assert run.stderr.count("✗ Bash denied") == len(calls)


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("where", ["project", "local", "user", "config", "file"])
def test_settings_do_not_switch_a_policy_off(
    where: str, real_cli: Path, scripted_model: Models, tmp_path: Path
) -> None:
    """2.1.197 skips hooks for a variable in any settings file, 2.1.325 for one in the user's."""
    work, home = tmp_path / "work", tmp_path / "home"
    (work / ".claude").mkdir(parents=True)
    (home / ".claude").mkdir(parents=True)
    places = {
        "project": work / ".claude/settings.json",
        "local": work / ".claude/settings.local.json",
        "user": home / ".claude/settings.json",
        "file": tmp_path / "settings.json",
    }
    config = tmp_path / "bridle.toml"
    config.write_text('[cli]\nallowed_tools = ["Bash"]\n')
    if where == "config":
        config.write_text('[cli.settings.env]\nCLAUDE_CODE_SIMPLE = "1"\n')
    else:
        if where == "file":
            config.write_text(f'[cli]\nsettings = "{places[where]}"\n')
        settings = {"env": {"CLAUDE_CODE_SIMPLE": "1"}, "permissions": {"allow": ["Bash"]}}
        places[where].write_text(json.dumps(settings))
    model = scripted_model([[tool_use("Bash", command="touch pwned")], [text("Done.")]])
    run = run_in(work, model, "--cli", str(real_cli), "--config", str(config))
    assert (run.returncode, run.stdout) == (0, "Done.\n")
    assert "✗ Bash denied by policy rule 3" in run.stderr
    assert not (work / "pwned").exists()


def test_a_cli_that_runs_no_hooks_is_stopped_before_it_runs_a_tool(
    bridle: Callable[..., Ran], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(GATED)
    silent = FakeCli().expect_initialize().expect_user().start_turn().stream("x").silence()
    with silent as fake:
        ran = bridle("--cli", fake.path, "--policy", str(policy), "go")
        assert not is_alive(fake.pid or 0)
    assert ran.code == 2
    assert "--policy cannot be enforced, because the CLI runs no hooks" in ran.err


@pytest.mark.longer
def test_a_flag_that_switches_hooks_off_is_noticed(
    repository: Path, scripted_model: Models, tmp_path: Path
) -> None:
    """Settings of an administrator do the same, and no other settings win over those."""
    older = repository / ".clis/2.1.197/claude"
    if not older.exists():
        pytest.skip("this CLI is not installed: `make setup` fetches it")
    work = tmp_path / "work"
    work.mkdir()
    config = tmp_path / "bridle.toml"
    config.write_text('[cli]\nextra_args = ["--bare"]\nallowed_tools = ["Bash"]\n')
    model = scripted_model([[tool_use("Bash", command="touch pwned")], [text("Done.")]])
    run = run_in(work, model, "--cli", str(older), "--config", str(config))
    assert run.returncode == 2
    assert "--policy cannot be enforced, because the CLI runs no hooks" in run.stderr
    assert not (work / "pwned").exists()


# ---------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("prompt", "arguments", "code", "reason"),
    [
        ("hello", (), 0, "completed"),
        ("FAIL 500", (), 1, "api_error"),
        ("EXIT 3", (), 1, "cli_exited"),
        ("SLOW", ("--timeout", "0.3"), 3, "limit_total"),
        ("SLOW", ("--idle", "0.3"), 3, "limit_idle"),
        ("FAIL 401", (), 4, "auth_failed"),
        ("FAIL 429", (), 5, "rate_limited"),
    ],
)
def test_the_exit_code_follows_the_outcome(
    prompt: str, arguments: tuple[str, ...], code: int, reason: str, bridle: Callable[..., Ran]
) -> None:
    with FakeCli.auto() as fake:
        ran = bridle("--json", "--cli", fake.path, *arguments, prompt)
    outcome = ran.lines[-1]
    assert (ran.code, outcome["exit_code"], outcome["reason"]) == (code, code, reason)
    assert reason.replace("_", " ") in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "error", "named"),
    [
        (("--max-turns", "0"), 2, "OptionsError", "--max-turns"),
        (("--resume", "x", "--continue"), 2, "OptionsError", "--resume"),
        (("--policy", "/nowhere"), 2, "OptionsError", "/nowhere"),
        (("--config", "/nowhere"), 2, "OptionsError", "--config"),
        (("--system-prompt-file", "/nowhere"), 2, "OptionsError", "--system-prompt-file"),
        (
            ("--mcp-config", "/nowhere"),
            2,
            "OptionsError",
            "--mcp-config names /nowhere, which is not a file",
        ),
        (
            ("--cwd", "/nowhere"),
            2,
            "OptionsError",
            "--cwd names /nowhere, which is not a directory",
        ),
        (("--cli", "/nowhere/claude"), 6, "CliNotFoundError", "--cli"),
        (("--cli", "/nowhere/claude"), 6, "CliNotFoundError", "`bridle doctor`"),
    ],
)
def test_what_cannot_start_says_why_in_words_of_the_command(
    arguments: tuple[str, ...], code: int, error: str, named: str, bridle: Callable[..., Ran]
) -> None:
    with FakeCli.auto() as fake:
        ran = bridle("--json", "--cli", fake.path, *arguments, "hello")
        assert fake.runs == []
    [said] = ran.lines
    assert (ran.code, said["exit_code"], said["error"]) == (code, code, error)
    assert (said["type"], said["ok"], said["reason"]) == (OUTCOME, False, None)
    assert named in ran.err
    assert "CliOptions" not in ran.err


def test_an_interrupt_from_outside_interrupts_the_turn(tmp_path: Path) -> None:
    with FakeCli.auto() as fake:
        command = [*MODULE, "--cli", fake.path, "--json", "SLOW"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path) as run:
            wait_until(lambda: any(line["type"] == "stream_event" for line in fake.sent))
            run.send_signal(signal.SIGINT)
            out, _ = run.communicate()
        assert run.returncode == 130
        assert json.loads(out.splitlines()[-1])["reason"] == "interrupted"
        assert not is_alive(fake.pid or 0)


def test_a_reader_that_leaves_ends_the_run(tmp_path: Path) -> None:
    """As a shell says it: 128 and the number of SIGPIPE."""
    with FakeCli.auto() as fake:
        command = [*MODULE, "--cli", fake.path, "STREAM 20000"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path) as run:
            assert run.stdout is not None
            assert run.stderr is not None
            run.stdout.read(10)
            run.stdout.close()
            assert run.wait() == 141
            assert b"Traceback" not in run.stderr.read()
        assert not is_alive(fake.pid or 0)


def test_a_signal_that_ends_the_run_leaves_the_id_to_go_on_with(tmp_path: Path) -> None:
    with FakeCli.auto() as fake:
        command = [*MODULE, "--cli", fake.path, "--json", "SLOW"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path) as run:
            wait_until(lambda: any(line["type"] == "stream_event" for line in fake.sent))
            run.terminate()
            out, err = run.communicate()
        outcome = json.loads(out.splitlines()[-1])
        assert (run.returncode, outcome["exit_code"]) == (143, 143)
        assert outcome["session_id"]
        assert f"bridle run --resume {outcome['session_id']}" in err.decode()


@pytest.mark.longer(after=2)
@pytest.mark.parametrize(
    ("redirection", "words", "code", "out"),
    [
        ("<&-", ("SAY", "hello"), 0, b"hello\n"),
        ("<&-", (), 2, b""),
        (">&-", ("SAY", "hello"), 0, b""),
        (">&-", ("--json", "SAY", "hello"), 0, b""),
        ("2>&-", ("SAY", "hello"), 0, b"hello\n"),
    ],
)
def test_a_standard_stream_that_is_closed_is_an_empty_one(
    redirection: str, words: tuple[str, ...], code: int, out: bytes
) -> None:
    with FakeCli.auto() as fake:
        command = [*MODULE, "--cli", fake.path, *words]
        shell = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *command]
        run = subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (run.returncode, run.stdout) == (code, out)
    assert b"Traceback" not in run.stderr


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_an_output_that_takes_no_more_is_reported_in_a_line(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with FakeCli.auto() as fake, full.open("wb", buffering=0) as out:
        run = subprocess.run(
            [*MODULE, "--cli", fake.path, "--quiet", *flags, "SAY hello"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert not is_alive(fake.pid or 0)
    assert run.returncode == 1
    assert run.stderr == "bridle run: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ("case $1 in --version) echo '1.0.33 (Claude Code)';; esac", "The CLI is 1.0.33, but "),
        ("echo 'cannot be used with root/sudo privileges' >&2; exit 1", "IS_SANDBOX=1"),
        ("exit 3", "Run `bridle doctor` to find the cause."),
    ],
    ids=["old", "root", "broken"],
)
def test_what_cannot_start_gets_the_doctors_advice(
    body: str, advice: str, bridle: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = bridle("--cli", Programs(tmp_path).shell(body), "hello")
    assert ran.code == 6
    assert advice in ran.err
    assert ran.err.endswith("Run `bridle doctor` to find the cause.\n")


# ---------------------------------------------------------------- prompts, permissions, options


@pytest.mark.parametrize(
    "words", [("SAY", "-q", "do", "it"), ("SAY", "do", "it", "-q"), ("-q", "--", "SAY", "do", "it")]
)
def test_options_stand_anywhere_among_the_words(
    words: tuple[str, ...], bridle: Callable[..., Ran]
) -> None:
    with FakeCli.auto() as fake:
        assert bridle("--cli", fake.path, *words) == (0, "do it\n", "")


def test_the_help_names_every_permission_mode(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    out = capsys.readouterr().out
    assert all(mode in out for mode in get_args(PermissionMode))
    assert "In a pipe, stdout gets only the answer" in out


@pytest.mark.parametrize(
    ("words", "piped", "expected"),
    [
        (["fix", "the", "bug"], b"unread", "fix the bug"),
        ([], b"from the pipe\n", "from the pipe"),
        (["-"], "é".encode(), "é"),
        (["Review:", "-"], b"a\nb\n", "Review:\n\na\nb"),
    ],
)
def test_a_prompt_is_words_or_a_pipe_or_both(
    words: list[str],
    piped: bytes,
    expected: str,
    bridle: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    with FakeCli.auto("{prompt}") as fake:
        assert bridle("--quiet", "--cli", fake.path, *words) == (0, f"{expected}\n", "")


@pytest.mark.parametrize(("words", "piped"), [([], b""), ([" "], b""), (["-"], b"\xff")])
def test_without_a_prompt_nothing_is_started(
    words: list[str], piped: bytes, bridle: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    with FakeCli.auto() as fake:
        assert bridle("--cli", fake.path, *words).code == 2
        assert fake.runs == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--yes",), "✓ Bash 0.0s · allowed by --yes  ls"),
        (("--deny",), "✗ Bash denied by --deny  ls"),
        ((), "✗ Bash denied: there is no terminal to ask on  ls"),
        (("--policy", "POLICY"), "✓ Bash 0.0s · allowed by policy rule 1  ls"),
        (("--policy", "POLICY", "--deny"), "✓ Bash 0.0s · allowed by policy rule 1  ls"),
    ],
)
def test_permissions_without_a_person_are_a_matter_of_arguments(
    arguments: tuple[str, ...], told: str, bridle: Callable[..., Ran], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\ntool = "Bash"\ninput.command = "ls *"\ndecision = "allow"\n')
    named = [str(policy) if word == "POLICY" else word for word in arguments]
    with FakeCli.auto() as fake:
        ran = bridle("--cli", fake.path, *named, "BASH ls")
    assert ran.code == 0
    assert told in [re.sub(r"\d+\.\ds", "0.0s", line.strip()) for line in ran.err.splitlines()]


def test_a_wrong_policy_starts_nothing(bridle: Callable[..., Ran], tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('\n[[rule]]\ntool = "Bash"\ndecision = "alow"\n')
    with FakeCli.auto() as fake:
        ran = bridle("--cli", fake.path, "--policy", str(policy), "hello")
        assert fake.runs == []
    assert ran.code == 2
    assert "rule 1 (line 2), decision is invalid: Invalid enum value 'alow'" in ran.err


def test_arguments_become_options(bridle: Callable[..., Ran], tmp_path: Path) -> None:
    """Texts travel in the handshake, paths are meant from here, whatever the working directory."""
    (tmp_path / "system.txt").write_text("You are a horse.")
    (tmp_path / "more.txt").write_text("A calm one.")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    with FakeCli.auto() as fake:
        here = os.path.relpath(tmp_path)
        ran = bridle(
            *("--cli", fake.path, "--model", "opus", "--permission-mode", "acceptEdits"),
            *("--max-turns", "3", "--max-budget-usd", "0.5", "--cwd", str(tmp_path)),
            *("--allowed-tools", "Read", "--allowed-tools", "Bash(git:*)"),
            *("--mcp-config", f"{here}/mcp.json", "--system-prompt-file", f"{here}/system.txt"),
            *("--append-system-prompt-file", f"{here}/more.txt", "--resume", "last week"),
            "hello",
        )
        assert ran.code == 0
        initialize = fake.received[0]["request"]
        expected = {
            "--model=opus",
            "--permission-mode=acceptEdits",
            "--max-turns=3",
            "--max-budget-usd=0.5",
            "--allowedTools=Read",
            "--allowedTools=Bash(git:*)",
            f"--mcp-config={tmp_path}/mcp.json",
            "--resume=last week",
            "--include-partial-messages",
            "--include-hook-events",
        }
        assert expected <= set(fake.argv)
        assert fake.environ["PWD"] == str(tmp_path)
    assert initialize["systemPrompt"] == "You are a horse."
    assert initialize["appendSystemPrompt"] == "A calm one."


def test_options_may_come_from_a_file(bridle: Callable[..., Ran], tmp_path: Path) -> None:
    with FakeCli.auto() as fake:
        config = tmp_path / "bridle.toml"
        config.write_text(f'[cli]\ncli_path = "{fake.path}"\nmodel = "haiku"\n')
        assert bridle("--config", str(config), "hello").code == 0
        assert "--model=haiku" in fake.argv


def test_a_file_that_a_file_names_is_looked_for_before_anything_starts(
    bridle: Callable[..., Ran], tmp_path: Path
) -> None:
    config = tmp_path / "bridle.toml"
    config.write_text('[cli]\nsettings = "nope.json"\n')
    with FakeCli.auto() as fake:
        place = ("--cwd", str(tmp_path))
        ran = bridle("--cli", fake.path, *place, "--config", str(config), "hello")
        assert fake.runs == []
    assert ran.code == 2
    assert f"config: cli.settings names {tmp_path}/nope.json, which is not a file" in ran.err


def test_a_cli_that_cannot_tell_of_hooks_is_used_without(bridle: Callable[..., Ran]) -> None:
    with FakeCli.auto().bad_flag("--include-hook-events") as old:
        # It refuses over that flag whatever it is given, so the second start fails as well.
        assert bridle("--cli", old.path, "hello").code == 6
        assert len(old.runs) == 2
        assert "--include-partial-messages" in old.argv
        assert "--include-hook-events" not in old.argv


TASK = {"type": "system", "subtype": "task_started", "task_id": "b1", "description": "dig"}
TASK_DONE = {
    "type": "system",
    "subtype": "task_notification",
    "task_id": "b1",
    "status": "completed",
    "summary": "dug",
}
BEGUN = FakeCli().expect_initialize().expect_user().start_turn().emit(TASK).result("Soon.")
"""A turn that leaves work in the background."""


def test_background_work_belongs_to_the_run(bridle: Callable[..., Ran]) -> None:
    fake = BEGUN.emit(TASK_DONE).assistant("All dug.")
    with fake.result("All dug.", origin={"kind": "task-notification"}) as fake:
        ran = bridle("--json", "--cli", fake.path, "hello")
    outcome = ran.lines[-1]
    assert (ran.code, outcome["reason"], outcome["text"]) == (0, "completed", "All dug.")
    assert "✓ task completed: dug" in ran.err


@pytest.mark.parametrize(
    ("limit", "fake"),
    [
        ("total = 0.5", BEGUN.silence()),
        ("turns = 1", BEGUN.emit(TASK_DONE).assistant("one").assistant("two").silence()),
    ],
)
def test_background_work_is_bounded_with_the_run(
    limit: str, fake: FakeCli, bridle: Callable[..., Ran], tmp_path: Path
) -> None:
    config = tmp_path / "bridle.toml"
    config.write_text(f"[sdk.limits]\n{limit}\n")
    with fake:
        ran = bridle("--json", "--cli", fake.path, "--config", str(config), "hello")
    assert (ran.code, ran.lines[-1]["reason"]) == (3, f"limit_{limit.split()[0]}")
    assert "background work included" in ran.err


def test_a_cli_that_ends_before_its_background_work_has_not_answered(
    bridle: Callable[..., Ran],
) -> None:
    with BEGUN.exit(3) as fake:
        ran = bridle("--json", "--cli", fake.path, "hello")
    outcome = ran.lines[-1]
    assert (ran.code, outcome["reason"], outcome["cli_exit_code"]) == (1, "cli_exited", 3)


def test_an_interrupt_while_background_work_runs_ends_the_run(tmp_path: Path) -> None:
    with BEGUN.silence() as fake:
        command = [*MODULE, "--cli", fake.path, "--json", "hello"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path) as run:
            assert run.stdout is not None
            assert any(json.loads(line)["type"] == "result" for line in run.stdout)
            run.send_signal(signal.SIGINT)
            out, err = run.communicate()
        outcome = json.loads(out.splitlines()[-1])
        assert (run.returncode, outcome["reason"], outcome["text"]) == (130, "interrupted", "Soon.")
        assert b"Traceback" not in err
        assert not is_alive(fake.pid or 0)


def test_what_the_cli_complains_of_is_reported_without_secrets(
    bridle: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hay4breakfast")
    fake = FakeCli().expect_initialize().expect_user()
    fake = fake.stderr("odd\x1b[2J model, with hay4breakfast and sk-1234567")
    with fake.turn("ok") as fake:
        ran = bridle("--cli", fake.path, "hello")
    assert (ran.code, ran.out) == (0, "ok\n")
    assert "  claude: odd␛[2J model, with *** and ***\n" in ran.err
