"""The fake CLI: what its script says happens, what it expects is checked, and it is told."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.soak.sessions import options

import bridle
from bridle.sessions import MemoryStore, SessionKey
from bridle.testing import Reply, text, tool_use
from bridle.testing.fake_cli import FLAVOURS, FakeCli
from bridle.testing.recording import Entry

Json: TypeAlias = dict[str, Any]

LIFETIME = 20
"""Seconds after which a fake is gone, whatever a test does wrong."""

ECHO = "--replay-user-messages"
ASK = ("--permission-prompt-tool", "stdio")


class Client:
    """The other end: writes lines, reads lines."""

    def __init__(self, cli: FakeCli, *arguments: str) -> None:
        # A file takes any amount of stderr while nobody reads it.
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the client)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [cli.path, *arguments], stdin=pipe, stdout=pipe, stderr=self.stderr
        )

    def write(self, *frames: Json | bytes) -> None:
        assert self.process.stdin is not None
        for frame in frames:
            line = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
            self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the output has ended"
        frame: Json = json.loads(line)
        return frame

    def until(self, kind: str, subtype: str | None = None) -> Json:
        """The next line of a kind; others are read over."""
        while True:
            frame = self.read()
            body = frame.get("request", frame)
            if frame["type"] == kind and subtype in (None, body.get("subtype")):
                return frame

    def answer(self, question: Json, payload: Json | None, *, error: str | None = None) -> None:
        response: Json = {"subtype": "success", "response": payload}
        if error is not None:
            response = {"subtype": "error", "error": error}
        response["request_id"] = question["request_id"]
        self.write({"type": "control_response", "response": response})

    def control(self, subtype: str, **fields: object) -> Json:
        """Send a request; the body of its response."""
        self.write(request(subtype, **fields))
        while True:
            body: Json = self.until("control_response")["response"]
            if body["request_id"] == f"req_{subtype}":
                return body

    def start(self, **fields: object) -> Json:
        body = self.control("initialize", **fields)
        payload: Json = body["response"]
        return payload

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None

    def leave(self) -> tuple[int, list[str], str]:
        """End the input: the exit code, the rest of the output, and stderr."""
        if self.process.stdin is not None:
            self.end_input()
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        code = self.process.wait(LIFETIME)
        self.stderr.seek(0)
        return code, out.decode("utf-8", "replace").splitlines(), self.stderr.read().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.stderr.close()


@contextmanager
def running(cli: FakeCli, *arguments: str) -> Iterator[Client]:
    client = Client(cli, *arguments)
    try:
        yield client
    finally:
        client.close()


def request(subtype: str, **fields: object) -> Json:
    body = {"subtype": subtype, **fields}
    return {"type": "control_request", "request_id": f"req_{subtype}", "request": body}


def prompt(content: object, uuid: str | None = None) -> Json:
    named = {} if uuid is None else {"uuid": uuid}
    return {"type": "user", "message": {"role": "user", "content": content}, **named}


def script(**options: Any) -> FakeCli:
    return FakeCli(lifetime=LIFETIME, **options)


def auto(*reply: Any, **options: Any) -> FakeCli:
    return FakeCli.auto(*reply, lifetime=LIFETIME, **options)


def play(cli: FakeCli, *frames: Json | bytes, arguments: tuple[str, ...] = ()) -> Any:
    """Run the whole of it: write everything, end the input, and wait."""
    with running(cli, *arguments) as client:
        client.write(*frames)
        return client.leave()


def kinds(lines: list[str]) -> list[str]:
    """What lines are, in short."""
    shown: list[str] = []
    for line in lines:
        frame = json.loads(line)
        kind = frame["type"]
        if kind == "command_lifecycle":
            kind = f"{frame['command_uuid']} {frame['state']}"
        elif kind == "user" and frame.get("isReplay"):
            kind = f"echo {frame['message']['content']}"
        shown.append(kind)
    return shown


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + LIFETIME
    while time.monotonic() < deadline:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True).stdout
        if state.strip()[:1] in (b"", b"Z"):
            return
    raise AssertionError(f"{pid} is still there")


# ------------------------------------------------------------------------- the builder


def test_every_step_makes_a_new_script() -> None:
    first = script()
    second = first.expect_initialize()
    assert first is not second
    assert play(first)[0] == 0
    assert play(second)[0] == 70


def test_the_executable_is_there_until_the_script_is_closed() -> None:
    with script() as cli:
        path = Path(cli.path)
        assert os.access(path, os.X_OK)
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.parent.exists()
    cli.close()


def test_the_executable_goes_with_the_last_reference() -> None:
    cli = script()
    path = Path(cli.path)
    assert path.exists()
    del cli
    gc.collect()
    assert not path.parent.exists()


def test_the_executable_outlives_a_forked_child() -> None:
    """A child that leaves as Python programs do has the same objects to clean up."""
    leaving = """
import os, sys
from bridle.testing import FakeCli

cli, other = FakeCli(), FakeCli()
path, other_path = cli.path, other.path
child = os.fork()
if child == 0:
    other.close()
    sys.exit(0)
print(os.waitpid(child, 0)[1], os.path.exists(path), os.path.exists(other_path))
cli.close()
print(os.path.exists(path))
"""
    done = subprocess.run([sys.executable, "-c", leaving], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0 True True\nFalse\n", "")


def test_a_flavour_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=rf"must be one of {', '.join(FLAVOURS)}, got 1\.0"):
        FakeCli(flavour="1.0")


def test_an_automatic_cli_takes_no_steps() -> None:
    with pytest.raises(TypeError, match="no script"):
        auto().turn()


def test_there_must_be_something_to_repeat() -> None:
    with pytest.raises(ValueError, match="no step"):
        script().repeat(2)
    with pytest.raises(ValueError, match="no step"):
        script().forever()


# ------------------------------------------------------------------------- the start


@pytest.mark.parametrize(
    ("cli", "expected"),
    [
        (script(), (0, [f"{FLAVOURS[0]} (Claude Code)"])),
        (script(flavour="2.1.197"), (0, ["2.1.197 (Claude Code)"])),
        (script().version("0.1"), (0, ["0.1"])),
        (script().version("0.1").version(), (0, [f"{FLAVOURS[0]} (Claude Code)"])),
        (script().version(exit_code=3), (3, [])),
    ],
    ids=["newest", "older", "text", "default", "code"],
)
@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_the_version_is_reported(cli: FakeCli, expected: object, flag: str) -> None:
    assert play(cli, arguments=(flag,))[:2] == expected
    assert cli.runs == []


def test_the_version_may_never_come() -> None:
    with running(script().version(hang=True), "--version") as client:
        with pytest.raises(subprocess.TimeoutExpired):
            client.process.wait(0.1)
        client.process.terminate()
        assert client.process.wait(LIFETIME) == -signal.SIGTERM


def test_a_bad_flag_ends_it_before_anything_is_said() -> None:
    result = play(script().bad_flag("--odd").expect_initialize(), request("initialize"))
    assert result == (1, [], "error: unknown option '--odd'\n")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("arguments", [("--resume", "abc"), ("--resume=abc",)])
def test_an_unknown_session_ends_in_an_error_result(
    flavour: str, arguments: tuple[str, ...]
) -> None:
    cli = script(flavour=flavour).unknown_session()
    code, (line,), stderr = play(cli, request("initialize"), arguments=arguments)
    assert (code, stderr) == (1, "No conversation found with session ID: abc\n")
    frame = json.loads(line)
    assert (frame["type"], frame["errors"]) == ("result", [stderr.strip()])


def test_a_slow_start_is_slow() -> None:
    cli = script().slow_start(0.2).expect_initialize()
    started = time.monotonic()
    with running(cli) as client:
        client.start()
        assert time.monotonic() - started > 0.2


def test_arguments_and_environment_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLD", "yes")
    cli = script()
    assert (cli.argv, cli.environ, cli.pid, cli.transcript()) == ([], {}, None, [])
    with running(cli, "--model", "opus", "x y") as client:
        client.leave()
        assert cli.argv == ["--model", "opus", "x y"]
        assert cli.environ["TOLD"] == "yes"
        assert cli.pid == client.process.pid


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        (("--session-id", "S"), True),
        (("--session-id=S",), True),
        (("--resume", "S"), True),
        (("--resume=S", "--fork-session"), False),
        ((), False),
    ],
)
def test_the_session_id_is_the_one_it_was_given(arguments: tuple[str, ...], same: bool) -> None:
    _, lines, _ = play(auto(), prompt("x"), arguments=arguments)
    assert (json.loads(lines[0])["session_id"] == "S") is same


def test_starting_costs_little() -> None:
    cli = script().expect_initialize()
    play(cli, request("initialize"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(5):
        play(cli, request("initialize"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 5
    assert spent < 0.1, "30 ms on a quiet machine"


# ------------------------------------------------------------------------- expectations


@pytest.mark.parametrize(
    ("cli", "lines", "failure"),
    [
        (
            script().expect_initialize(),
            [],
            "step 1 (expect_initialize): expected an initialize request, but the input ended",
        ),
        (
            script().expect_initialize(like={"title": "t"}),
            [request("initialize", title="u")],
            'expected an initialize request like {"title": "t"}, got {"subtype": "initialize",',
        ),
        (
            script().expect_user("hello"),
            [prompt("goodbye")],
            "expected the prompt 'hello', got 'goodbye'",
        ),
        (
            script().expect_user(like={"uuid": "u"}),
            [prompt("hello")],
            'expected a prompt like {"uuid": "u"}',
        ),
        (
            script().expect_request("interrupt", cancel_queued=True),
            [request("interrupt")],
            "expected the request interrupt like",
        ),
        (script().reply(), [], "there is no request to answer"),
        (script().withdraw(), [], "there is no request to withdraw"),
        (script().expect_allow(), [], "there is no open request can_use_tool"),
        (script().ask_hook("Stop"), [], "no Stop hook is registered"),
        (
            script().repeat(2, script().expect_user("x")),
            [prompt("x"), prompt("y")],
            "step 1 (expect_user): expected the prompt 'x', got 'y'",
        ),
    ],
)
def test_an_expectation_that_is_not_met_is_reported(
    cli: FakeCli, lines: list[Json], failure: str
) -> None:
    code, _, stderr = play(cli, *lines)
    assert code == 70
    assert failure in stderr
    assert [failure in one for one in cli.failures] == [True]
    with pytest.raises(AssertionError, match="step 1"):
        cli.check()


def test_an_expectation_is_given_up_after_a_while() -> None:
    cli = script(patience=0.05).expect_user()
    with running(cli) as client:
        assert client.process.wait(LIFETIME) == 70
    assert "but nothing was received within 0.05 s" in cli.failures[0]


def test_a_met_expectation_passes() -> None:
    cli = script().expect_initialize(like={"title": "t"}).expect_user("hello").turn()
    assert play(cli, request("initialize", title="t"), prompt("hello"))[0] == 0
    assert cli.failures == []
    cli.check()


def killed(cli: FakeCli, *frames: Json, until: str | None = None) -> None:
    """Run it until it has said a line of that kind, and then no longer."""
    with running(cli) as client:
        client.write(*frames)
        if until is not None:
            client.until(until)


HELLO: Json = {"type": "hello"}

begun = script().emit(HELLO)


@pytest.mark.parametrize(
    ("cli", "missing"),
    [
        (begun.expect_user("x"), "step 2: expect_user('x')"),
        (begun.expect_user(), "step 2: expect_user"),
        (begun.expect_request("interrupt"), "step 2: expect_request('interrupt')"),
        (begun.expect_initialize(), "step 2: expect_initialize"),
        (begun.turn(), "step 2: the prompt for turn"),
        (begun.ask_permission("A").expect_allow(), "step 3: expect_allow"),
        (begun.ask_permission("A").expect_deny("no"), "step 3: expect_deny"),
        (begun.ask_hook("Stop", callback_id="h").expect_block(), "step 3: expect_block"),
        (begun.ask("odd").expect_answer({}), "step 3: expect_answer"),
        (begun.repeat(3, script().emit("x").expect_user()), "step 2: expect_user"),
        (begun.emit("x").repeat(10**9).expect_user("y"), "step 3: expect_user('y')"),
        (begun.start_turn().start_turn(), "step 2: the prompt for start_turn"),
        (begun.exit(0).expect_user("late"), "step 3: expect_user('late')"),
        (begun.forever(script().emit("x")).expect_user("y"), "step 3: expect_user('y')"),
    ],
)
def test_what_a_killed_run_was_still_to_get_is_reported(cli: FakeCli, missing: str) -> None:
    killed(cli, until="hello")
    assert cli.failures == [f"{missing} was never received"]
    with pytest.raises(AssertionError, match="was never received"):
        cli.check()


def test_prompts_that_were_met_are_not_reported_again() -> None:
    cli = script().repeat(3, script().expect_user().emit(HELLO)).turn().expect_user("last")
    killed(cli, prompt("a"), prompt("b"), until="hello")
    assert cli.failures == ["step 1: expect_user was never received"]
    killed(cli, *map(prompt, "abc"), until="result")
    assert cli.failures[1:] == ["step 3: expect_user('last') was never received"]


@pytest.mark.parametrize(
    "cli",
    [
        script().expect_user().emit(HELLO).silence(),
        script().expect_user().emit(HELLO).wait_for_eof().emit("bye").result().exit(3),
        begun.ask_permission("A"),
        begun,
        script().forever(script().expect_user().emit(HELLO)),
        begun.expect_user("x").repeat(0),
    ],
    ids=["silence", "more to say", "a question", "nothing", "for ever", "never"],
)
def test_what_is_only_to_be_said_may_be_left_unsaid(cli: FakeCli) -> None:
    killed(cli, prompt("x"), until="hello")
    cli.check()


def test_an_automatic_cli_expects_nothing() -> None:
    cli = auto()
    killed(cli, prompt("x"), until="result")
    killed(cli, prompt("SLOW"))
    cli.check()


def test_every_run_is_to_get_what_is_expected() -> None:
    cli = script().expect_user("x").emit(HELLO)
    killed(cli, prompt("x"), until="hello")
    cli.check()
    killed(cli, prompt("x"), until="hello")
    cli.check()
    play(cli, prompt("y"))
    killed(cli, prompt("x"), until="hello")
    assert cli.failures == ["step 1 (expect_user): expected the prompt 'x', got 'y'"]


def test_a_run_that_dies_of_a_bad_line_did_not_get_the_rest() -> None:
    cli = script().expect_user("x")
    play(cli, b"{not json")
    assert cli.failures == ["step 1: expect_user('x') was never received"]


def test_a_run_that_is_to_refuse_its_session_plays_no_script() -> None:
    cli = script().unknown_session().expect_user("x")
    play(cli, arguments=("--resume", "abc"))
    assert cli.failures == ["step 1: expect_user('x') was never received"]
    play(cli, prompt("x"))
    cli.check()
    refusing = script().bad_flag()
    play(refusing)
    refusing.check()


def test_a_script_that_was_never_started_expected_in_vain() -> None:
    cli = script().expect_initialize().expect_user("x")
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"^the fake CLI was never started$"):
            cli.check()
        play(cli, arguments=("--version",))


@pytest.mark.parametrize("cli", [script(), script().emit("x"), auto()])
def test_what_expects_nothing_need_not_be_started(cli: FakeCli) -> None:
    cli.check()
    with cli:
        pass
    cli.check()


def test_what_is_closed_can_no_longer_be_checked() -> None:
    with script().expect_user("x") as cli:
        play(cli, prompt("x"))
        cli.check()
    with pytest.raises(AssertionError, match="was closed"):
        cli.check()


async def test_a_session_that_is_stopped_before_its_prompt_is_found_out() -> None:
    cli = script().expect_initialize().expect_user("never sent")
    async with bridle.start_session(options(cli)) as session:
        await session.stop()
    with pytest.raises(
        AssertionError, match=r"^step 2: expect_user\('never sent'\) was never received$"
    ):
        cli.check()


async def test_a_session_that_never_began_is_found_out() -> None:
    cli = script().expect_initialize(delay=LIFETIME).expect_user("never sent")
    sdk = bridle.SdkOptions(init_timeout=0.4)
    with pytest.raises(bridle.InitializationTimeout):
        async with bridle.start_session(options(cli), sdk):
            pass
    with pytest.raises(AssertionError, match=r"expect_user\('never sent'\) was never received"):
        cli.check()


USE_WHAT_IT_RETURNS = "Every method of FakeCli returns a new fake CLI: use the returned one"


@pytest.mark.parametrize("cli", [script(), begun, script().ignore_eof()])
def test_initialize_is_not_kept_waiting_by_a_script_that_is_over(cli: FakeCli) -> None:
    with running(cli) as client:
        client.write(request("initialize"))
        assert client.process.wait(LIFETIME) == 70
        assert USE_WHAT_IT_RETURNS in client.leave()[2]
    with pytest.raises(AssertionError, match="no expect_initialize"):
        cli.check()


async def test_the_error_of_a_session_names_the_script_that_was_collected() -> None:
    cli = script()
    cli.expect_initialize().turn()
    with pytest.raises(bridle.CliExitedDuringInit, match=USE_WHAT_IT_RETURNS) as caught:
        await bridle.run("x", cli=options(cli))
    assert caught.value.exit_code == 70


@pytest.mark.parametrize(
    "cli",
    [
        script().silence(),
        script().expect_request("initialize").ignore(),
        script().wait_for_eof(),
        script().expect_initialize(),
        script().version("1.0.0 (Claude Code)"),
    ],
    ids=["silence", "ignored", "waiting", "answered before", "old"],
)
def test_initialize_can_be_left_without_an_answer_on_purpose(cli: FakeCli) -> None:
    with running(cli) as client:
        client.write(request("initialize"), request("initialize"))
        with pytest.raises(subprocess.TimeoutExpired):
            client.process.wait(0.2)


def test_lines_of_other_kinds_wait_for_their_step() -> None:
    cli = script().expect_request("interrupt").reply().expect_user("x").expect_initialize()
    code, lines, _ = play(cli, request("initialize"), prompt("x"), request("interrupt"))
    assert code == 0
    ids = [json.loads(line)["response"]["request_id"] for line in lines]
    assert ids == ["req_interrupt", "req_initialize"]


def test_requests_are_answered_as_the_script_says() -> None:
    """R436."""
    cli = (
        script()
        .expect_initialize(error="not today")
        .expect_request("a", x=1)
        .reply({"y": 2})
        .expect_request("b")
        .refuse("no", code="never")
        .expect_request("c")
        .ignore()
        .expect_request("d")
        .huge_line(3000, "control_response")
    )
    asked = [request("initialize"), request("a", x=1), *map(request, "bcd")]
    _, lines, _ = play(cli, *asked)
    cli.check()
    assert len(lines[-1]) == 3000
    assert [json.loads(line)["response"] for line in lines[:-1]] == [
        {"subtype": "error", "request_id": "req_initialize", "error": "not today"},
        {"subtype": "success", "request_id": "req_a", "response": {"y": 2}},
        {"subtype": "error", "request_id": "req_b", "error": "no", "error_code": "never"},
    ]


def test_initialize_can_be_answered_late_and_with_anything() -> None:
    cli = script().expect_initialize({"own": 1}, delay=0.1)
    started = time.monotonic()
    _, (line,), _ = play(cli, request("initialize"))
    assert time.monotonic() - started > 0.1
    assert json.loads(line)["response"]["response"] == {"own": 1}


# ------------------------------------------------------------------------- questions

HOOKS = {
    "PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["h1"]}],
    "PermissionRequest": [{"hookCallbackIds": ["h2"]}],
    "Stop": [{"hookCallbackIds": ["h3"]}],
}


def hook_output(**members: object) -> Json:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **members}}


def greeted(**options: Any) -> FakeCli:
    return script(**options).expect_initialize()


def on_hook(event: str, **fields: Any) -> FakeCli:
    return greeted().ask_hook(event, **fields)


BASH: Json = {"tool_name": "Bash", "tool_input": {}}
RPC = {"jsonrpc": "2.0", "id": 0}


@pytest.mark.parametrize(
    ("cli", "payload", "met"),
    [
        (on_hook("PreToolUse", **BASH).expect_continue(), {}, True),
        (on_hook("PreToolUse", **BASH).expect_continue(), {"continue": True}, True),
        (on_hook("PreToolUse", **BASH).expect_continue(), {"decision": "block"}, False),
        (on_hook("PreToolUse", **BASH).expect_block(), {"decision": "block"}, True),
        (
            on_hook("PreToolUse", **BASH).expect_block(),
            hook_output(permissionDecision="deny"),
            True,
        ),
        (on_hook("PreToolUse", **BASH).expect_block(), {"continue": False}, False),
        (on_hook("PreToolUse", **BASH).expect_block({"reason": "r"}), {"decision": "block"}, False),
        (on_hook("PreToolUse", **BASH).expect_hook({"a": 1}), {"a": 1, "b": 2}, True),
        (on_hook("PreToolUse", **BASH).expect_hook({"a": [1]}), {"a": [1, 2]}, False),
        (on_hook("Stop").expect_block(), {"decision": "block"}, True),
        (on_hook("Stop").expect_block(), {"continue": False}, True),
        (on_hook("Stop", callback_id="own").expect_continue(), None, True),
        (
            on_hook("PermissionRequest", **BASH).expect_block(),
            {"hookSpecificOutput": {"decision": {"behavior": "deny"}}},
            True,
        ),
        (
            greeted().ask_permission("Bash", command="ls").expect_allow(),
            {"behavior": "allow", "updatedInput": {}},
            True,
        ),
        (
            greeted().ask_permission("Bash", command="ls").expect_allow({"command": "x"}),
            {"behavior": "allow", "updatedInput": {"command": "y"}},
            False,
        ),
        (greeted().ask_permission("Bash").expect_allow(), {"behavior": "allow"}, True),
        (
            greeted(flavour="2.1.197").ask_permission("Bash").expect_allow(),
            {"behavior": "allow"},
            False,
        ),
        (
            greeted().ask_permission("Bash").expect_deny("no"),
            {"behavior": "deny", "message": "no"},
            True,
        ),
        (
            greeted().ask_permission("Bash").expect_deny(),
            {"behavior": "allow", "updatedInput": {}},
            False,
        ),
        (
            greeted().ask_mcp("s", RPC).expect_mcp_result({"a": 1}),
            {"mcp_response": {"result": {"a": 1}}},
            True,
        ),
        (greeted().ask_mcp("s", RPC).expect_mcp_result(), {"mcp_response": {"error": {}}}, False),
        (
            greeted().ask_mcp("s", RPC).expect_mcp_error({"code": 1}),
            {"mcp_response": {"error": {"code": 1}}},
            True,
        ),
        (
            greeted().ask_elicitation("?").expect_elicitation("accept", {"a": 1}),
            {"action": "accept", "content": {"a": 1}},
            True,
        ),
        (
            greeted().ask_elicitation("?").expect_elicitation("accept"),
            {"action": "decline"},
            False,
        ),
        (greeted().ask("odd", a=1).expect_answer({"subtype": "success"}), {}, True),
        (greeted().ask("odd", a=1).expect_error(), {}, False),
    ],
)
def test_answers_are_judged(cli: FakeCli, payload: Json | None, met: bool) -> None:
    """R436, R437."""
    with running(cli) as client:
        client.write(request("initialize", hooks=HOOKS))
        client.answer(client.until("control_request"), payload)
        code, _, stderr = client.leave()
    assert (code == 0, cli.failures == []) == (met, met), stderr


def test_an_error_for_an_answer_is_one() -> None:
    cli = script().ask_permission("Bash").expect_error()
    with running(cli) as client:
        client.answer(client.until("control_request"), None, error="broken")
        assert client.leave()[0] == 0


def test_answers_may_come_in_any_order() -> None:
    cli = script().ask_permission("A").ask_permission("B").expect_allow().expect_deny()
    with running(cli) as client:
        first, second = client.read(), client.read()
        client.answer(second, {"behavior": "deny", "message": ""})
        client.answer(first, {"behavior": "allow", "updatedInput": {}})
        assert client.leave()[0] == 0


def test_the_last_question_is_taken_back() -> None:
    cli = script().ask_permission("A").ask_permission("B").withdraw().expect_deny()
    with running(cli) as client:
        first, second = client.read(), client.read()
        withdrawal = {"type": "control_cancel_request", "request_id": second["request_id"]}
        assert client.read() == withdrawal
        client.answer(first, {"behavior": "deny", "message": ""})
        assert client.leave()[0] == 0


# ------------------------------------------------------------------------- output


def test_a_turn_is_a_whole_one() -> None:
    cli = script().expect_initialize().turn("hello", tools=[("Bash", {"command": "ls"}, "out")])
    frames = [request("initialize"), prompt("hi", "u1")]
    _, lines, _ = play(cli, *frames, arguments=(ECHO,))
    assert kinds(lines) == [
        "control_response",
        "u1 queued",
        "u1 started",
        "system",
        "echo hi",
        "assistant",
        "user",
        "assistant",
        "result",
        "u1 completed",
    ]
    result = json.loads(lines[-2])
    assert (result["result"], result["num_turns"]) == ("hello", 2)
    assert result["user_message_uuids"] == ["u1"]


def test_prompts_expected_together_share_a_turn() -> None:
    cli = script().expect_user().expect_user().turn()
    _, lines, _ = play(cli, prompt("a", "u1"), prompt([{"type": "text", "text": "b"}], "u2"))
    assert json.loads(lines[-3])["user_message_uuids"] == ["u1", "u2"]


def test_an_older_cli_says_less() -> None:
    cli = script(flavour="2.1.197").turn("hello")
    _, lines, _ = play(cli, prompt("hi", "u1"), arguments=(ECHO,))
    assert kinds(lines) == ["system", "echo hi", "assistant", "result"]


def test_a_turn_can_be_made_of_parts() -> None:
    cli = (
        script()
        .start_turn()
        .assistant("words", {"type": "tool_use", "name": "Bash", "input": {}})
        .tool_result("broken", is_error=True)
        .stream("la ", 3)
        .result("la la la", num_turns=7)
        .emit({"type": "own", "é": 1}, b"as it is", "text\n")
    )
    _, lines, _ = play(cli, prompt("hi"), arguments=("--include-partial-messages",))
    frames = [json.loads(line) for line in lines[:-2]]
    blocks = [f["message"]["content"][0] for f in frames if f["type"] in ("assistant", "user")]
    assert blocks[2:3] == [
        {
            "type": "tool_result",
            "content": "broken",
            "is_error": True,
            "tool_use_id": blocks[1]["id"],
        }
    ]
    deltas = [f["event"]["delta"] for f in frames if "delta" in f.get("event", {})]
    assert deltas.count({"type": "text_delta", "text": "la "}) == 3
    assert [f["num_turns"] for f in frames if f["type"] == "result"] == [7]
    assert frames[-1] == {"type": "own", "é": 1}
    assert lines[-2:] == ["as it is", "text"]


def test_a_script_ends_with_the_last_word_about_its_turns() -> None:
    cli = script().start_turn().result(None, is_error=True, errors=["x"], state="cancelled")
    code, lines, _ = play(cli, prompt("hi", "u"))
    assert (code, kinds(lines)[-1]) == (1, "u cancelled")


def test_steps_can_be_repeated() -> None:
    cli = script().emit("a").repeat(3).repeat(2, script().emit("b", "c").stderr("d")).emit("e")
    _, lines, stderr = play(cli)
    assert (lines, stderr) == (["a"] * 3 + ["b", "c"] * 2 + ["e"], "d\nd\n")


def test_steps_can_go_on_for_ever() -> None:
    with running(script().forever(script().expect_user().emit({"type": "pong"}))) as client:
        for _ in range(5):
            client.write(prompt("ping"))
            assert client.read() == {"type": "pong"}
    with running(script().emit({"type": "x"}).forever()) as client:
        assert [client.read()["type"] for _ in range(5)] == ["x"] * 5


def test_fifty_thousand_lines_are_sent() -> None:
    cli = script().emit({"type": "x", "text": "y" * 400}).repeat(50_000)
    _, lines, _ = play(cli)
    assert len(lines) == 50_000
    assert [entry.times for entry in cli.transcript() if entry.direction == "out"] == [50_000]


@pytest.mark.parametrize("kind", ["assistant", "result", "control_request"])
def test_a_line_can_be_as_long_as_one_likes(kind: str) -> None:
    _, (line,), _ = play(script().huge_line(100_000, kind))
    assert (len(line), json.loads(line)["type"]) == (100_000, kind)


# ------------------------------------------------------------------------- faults


def test_output_can_be_broken() -> None:
    """R436."""
    cli = script().garbage().invalid_utf8().half_line().exit(3)
    with running(cli) as client:
        out, _ = client.process.communicate(timeout=LIFETIME)
    assert client.process.returncode == 3
    assert out == (
        b'this is not JSON\n{"type":"assistant","message":"\xff\xfe"}\n'
        b'{"type":"assistant","message":{"ro'
    )
    told = [entry for entry in cli.transcript() if entry.direction == "out"]
    assert b"".join(entry.data for entry in told) == out
    assert [entry.partial for entry in told] == [False, False, True]


def test_stderr_can_be_flooded() -> None:
    _, _, stderr = play(script().flood_stderr(1_000_000))
    assert 1_000_000 <= len(stderr) < 1_000_100


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_it_can_die_of_a_signal(number: signal.Signals) -> None:
    with running(script().crash(number)) as client:
        assert client.process.wait(LIFETIME) == -number


def test_silence_may_have_an_end_or_none() -> None:
    with running(script().silence(0.1).emit({"type": "x"}).silence()) as client:
        started = time.monotonic()
        client.read()
        assert time.monotonic() - started > 0.1
        client.end_input()
        with pytest.raises(subprocess.TimeoutExpired):
            client.process.wait(0.1)


def test_what_comes_in_silence_is_read_or_not() -> None:
    for reading in (True, False):
        cli = script().emit({"type": "x"}).silence(0.3, reading=reading).emit({"type": "y"})
        with running(cli) as client:
            client.read()
            client.write(prompt("hello"))
            client.read()
            client.leave()
        said = [entry.line for entry in cli.transcript() if entry.direction != "meta"]
        assert ("hello" in said[1]) is reading


def test_output_can_be_closed_while_it_lives() -> None:
    with running(script().close_stdout().emit("lost")) as client:
        assert client.process.stdout is not None
        assert client.process.stdout.read() == b""
        assert client.process.poll() is None
        assert client.leave()[0] == 0


def test_input_can_be_closed_while_it_lives() -> None:
    with running(script().close_stdin().emit({"type": "x"}).silence()) as client:
        client.read()
        assert client.process.stdin is not None
        with pytest.raises(BrokenPipeError):
            os.write(client.process.stdin.fileno(), b"hello\n")


def test_the_end_of_input_can_be_ignored() -> None:
    with running(script().ignore_eof().emit({"type": "x"})) as client:
        client.read()
        client.end_input()
        with pytest.raises(subprocess.TimeoutExpired):
            client.process.wait(0.1)


def test_the_end_of_input_can_be_waited_for() -> None:
    with running(script().wait_for_eof().emit("bye").exit(4)) as client:
        assert client.leave()[:2] == (4, ["bye"])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)]
)
def test_signals_end_it_as_they_end_a_real_one(number: signal.Signals, code: int) -> None:
    with running(script().emit({"type": "x"})) as client:
        client.read()
        client.process.send_signal(number)
        assert client.process.wait(LIFETIME) == code


def test_sigterm_can_be_ignored() -> None:
    with running(script().ignore_sigterm().emit({"type": "x"})) as client:
        client.read()
        client.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            client.process.wait(0.1)
        assert client.leave()[0] == 0


@pytest.mark.parametrize("setsid", [True, False])
@pytest.mark.parametrize("hold_stdout", [True, False])
def test_a_grandchild_lives_on(setsid: bool, hold_stdout: bool) -> None:
    cli = script().fork_grandchild(setsid=setsid, hold_stdout=hold_stdout).exit(0)
    with running(cli) as client:
        assert client.process.wait(LIFETIME) == 0
        (grandchild,) = cli.grandchildren
        assert (os.getsid(grandchild) == os.getsid(0)) is not setsid
        assert client.process.stdout is not None
        os.set_blocking(client.process.stdout.fileno(), False)
        assert (client.process.stdout.read() is None) is hold_stdout
        os.kill(grandchild, signal.SIGTERM)
        wait_until_gone(grandchild)


def test_a_grandchild_can_ignore_signals() -> None:
    cli = script().fork_grandchild(ignore_sigterm=True).exit(0)
    with running(cli) as client:
        client.process.wait(LIFETIME)
        (grandchild,) = cli.grandchildren
        os.kill(grandchild, signal.SIGTERM)
        os.kill(grandchild, 0)
        os.kill(grandchild, signal.SIGKILL)
        wait_until_gone(grandchild)


def test_no_fake_outlives_its_lifetime() -> None:
    with running(FakeCli(lifetime=1).ignore_sigterm().silence()) as client:
        assert client.process.wait(LIFETIME) == -signal.SIGALRM


def test_the_transcript_survives_a_sudden_death() -> None:
    cli = script().expect_user().emit({"type": "x"}).silence()
    with running(cli) as client:
        client.write(prompt("hello"))
        client.read()
        client.process.kill()
        client.process.wait(LIFETIME)
    assert [entry["message"]["content"] for entry in cli.received] == ["hello"]
    assert cli.sent == [{"type": "x"}]
    times = [entry.t for entry in cli.transcript()]
    assert times == sorted(times)


def test_every_run_has_its_transcript() -> None:
    cli = script().expect_user()
    play(cli, prompt("one"))
    play(cli, prompt("two"))
    assert [text_of(run) for run in cli.runs] == ["one", "two"]
    assert text_of(cli.transcript()) == "two"


def text_of(run: list[Entry]) -> object:
    (frame,) = [entry.members for entry in run if entry.direction == "in"]
    message: Any = frame["message"]
    return message["content"]


# ------------------------------------------------------------------------- lines that kill


@pytest.mark.parametrize(
    ("line", "flavour", "complaint"),
    [
        (b"{not json", "2.1.325", "SyntaxError"),
        (b"null", "2.1.325", "null is not an object"),
        (b'{"type":"user","content":"flat"}', "2.1.325", "got 'undefined'"),
        (b'{"type":"user","message":{"role":"assistant"}}', "2.1.325", "got 'assistant'"),
        (b'{"type":"control_request"}', "2.1.325", "Missing request on control_request"),
        (b'{"type":"control_response"}', "2.1.197", "no response"),
    ],
)
def test_bad_lines_kill_it(line: bytes, flavour: str, complaint: str) -> None:
    code, lines, stderr = play(auto(flavour=flavour), line)
    assert (code, lines, complaint in stderr) == (1, [], True)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   \r",
        b"[]",
        b'"text"',
        b'{"type":"odd"}',
        b"{}",
        b'{"type":"control_response"}',
        b'{"type":"user","message":{"role":"user","content":5}}',
        b'{"type":"control_cancel_request","request_id":"x"}',
    ],
)
def test_odd_lines_are_passed_over(line: bytes) -> None:
    _, lines, _ = play(auto(), line, prompt("x"))
    assert kinds(lines) == ["system", "assistant", "result"]


# ------------------------------------------------------------------------- the automatic one


def test_every_prompt_is_answered() -> None:
    with running(auto("Yes: {prompt}"), ECHO) as client:
        assert client.start()["claude_code_version"] == FLAVOURS[0]
        for word in ("one", "two"):
            client.write(prompt(word, word))
            assert client.until("result")["result"] == f"Yes: {word}"
        assert client.leave()[0] == 0


def test_the_model_can_be_scripted() -> None:
    cli = auto([[tool_use("Bash", command="ls")], [text("listed")], [text("bye")]])
    with running(cli, *ASK) as client:
        client.start()
        client.write(prompt("go"))
        question = client.until("control_request", "can_use_tool")
        assert question["request"]["input"] == {"command": "ls"}
        client.answer(question, {"behavior": "allow", "updatedInput": {}})
        assert client.until("result")["result"] == "listed"
        for said in ("bye", "Done."):
            client.write(prompt("more"))
            assert client.until("result")["result"] == said


def test_a_scripted_reply_can_be_held_until_it_is_interrupted() -> None:
    cli = auto([Reply(blocks=(text("a long story"),), hold=True), [text("bye")]])
    with running(cli, "--include-partial-messages") as client:
        client.start()
        client.write(prompt("go"))
        client.until("stream_event")
        client.control("interrupt")
        assert client.until("result")["terminal_reason"] == "aborted_streaming"
        client.write(prompt("more"))
        assert client.until("result")["result"] == "bye"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_prompts_that_come_together_merge(flavour: str) -> None:
    names = [prompt(name.upper(), name) for name in "abc"]
    _, lines, _ = play(auto(flavour=flavour), *names, arguments=(ECHO,))
    lifecycle = flavour != "2.1.197"
    expected = [
        *(["a queued", "a started"] if lifecycle else []),
        "system",
        *(["b queued", "c queued"] if lifecycle else []),
        "echo A",
        "assistant",
        "result",
        *(["a completed"] if lifecycle else []),
        "echo B",
        *(["b started", "c started"] if lifecycle else []),
        "system",
        "echo B\nC",
        "assistant",
        "result",
        *(["b completed", "c completed"] if lifecycle else []),
    ]
    assert kinds(lines) == expected


def test_a_prompt_that_comes_while_a_tool_runs_joins_the_turn() -> None:
    with running(auto(), ECHO, *ASK) as client:
        client.write(prompt("BASH ls", "a"))
        question = client.until("control_request")
        client.write(prompt("also this", "b"))
        assert client.until("command_lifecycle")["command_uuid"] == "b"
        client.answer(question, {"behavior": "allow", "updatedInput": {}})
        result = client.until("result")
        assert (result["user_message_uuid"], result["user_message_uuids"]) == ("a", ["a", "b"])
        assert result["result"] == "Bash ran: ls\nalso this"
        _, lines, _ = client.leave()
        assert kinds(lines) == ["a completed"]


def test_a_uuid_is_good_for_one_prompt() -> None:
    _, lines, _ = play(auto(), prompt("x", "u"), prompt("y", "u"), arguments=(ECHO,))
    assert [kind for kind in kinds(lines) if kind[:4] in ("echo", "resu")] == [
        "echo y",
        "echo x",
        "result",
    ]


def bash(client: Client, command: str = "ls") -> Json:
    client.write(prompt(f"BASH {command}"))
    return client.until("control_request", "can_use_tool")


@pytest.mark.parametrize(
    ("payload", "flavour", "ran"),
    [
        ({"behavior": "allow", "updatedInput": {}}, "2.1.325", "Bash ran: ls"),
        ({"behavior": "allow", "updatedInput": {"command": "pwd"}}, "2.1.197", "Bash ran: pwd"),
        ({"behavior": "allow"}, "2.1.325", "Bash ran: ls"),
        ({"behavior": "allow"}, "2.1.197", None),
        ({"behavior": "deny", "message": "no"}, "2.1.325", None),
        ({"behavior": "deny"}, "2.1.325", None),
        ({}, "2.1.325", None),
    ],
)
def test_a_tool_runs_if_it_may(payload: Json, flavour: str, ran: str | None) -> None:
    with running(auto(flavour=flavour), *ASK) as client:
        client.answer(bash(client), payload)
        result = client.until("result")
        assert (len(result["permission_denials"]) == 0) is (ran is not None)
        assert ran is None or result["result"] == ran


def test_an_error_for_a_permission_is_a_denial() -> None:
    with running(auto(), *ASK) as client:
        client.answer(bash(client), None, error="broken")
        told = "Tool permission request failed: Error: broken"
        assert client.until("result")["result"] == told


def test_a_denial_can_interrupt() -> None:
    with running(auto(), *ASK) as client:
        client.answer(bash(client), {"behavior": "deny", "message": "no", "interrupt": True})
        result = client.until("result")
        assert (result["terminal_reason"], len(result["permission_denials"])) == (
            "aborted_tools",
            1,
        )


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), False),
        (ASK, True),
        ((*ASK, "--permission-mode", "dontAsk"), False),
        ((*ASK, "--permission-mode", "bypassPermissions"), False),
        ((*ASK, "--dangerously-skip-permissions"), False),
        ((*ASK, "--allowedTools", "Read,Bash"), False),
        ((*ASK, "--allowedTools", "Read", "Bash"), False),
        ((*ASK, "--allowedTools=Read", "--allowedTools=Bash"), False),
        ((*ASK, "--allowedTools=Bash", "--allowedTools=Read"), False),
        ((*ASK, "--allowed-tools=Bash"), False),
        ((*ASK, "--allowedTools=Write(a, b),Bash(l*)"), False),
        ((*ASK, "--allowedTools=Bash(ls:*)"), False),
        ((*ASK, "--allowedTools=Bash(rm *)"), True),
        ((*ASK, "--allowedTools=Bas"), True),
        ((*ASK, "--permission-mode", "acceptEdits"), True),
    ],
)
def test_permission_is_asked_where_a_real_one_asks(arguments: tuple[str, ...], asked: bool) -> None:
    cli = auto()
    play(cli, prompt("BASH ls"), arguments=arguments)
    # The client has left by then, so no question is put: it counts as denied all the same.
    with running(cli, *arguments) as client:
        client.write(prompt("BASH ls"))
        while (frame := client.read())["type"] not in ("control_request", "result"):
            pass
        assert (frame["type"] == "control_request") is asked


@pytest.mark.parametrize("rule", ["mcp__calc", "mcp__calc__*", "mcp__calc__add"])
def test_a_rule_can_allow_the_tools_of_a_server(rule: str) -> None:
    with running(auto(), *ASK, f"--allowedTools={rule}") as client:
        client.write(prompt("CALL mcp__calc__add {}"))
        assert client.until("result")["permission_denials"] == []
    with running(auto(), *ASK, f"--allowedTools={rule}") as client:
        client.write(prompt("CALL mcp__calculator__add {}"))
        client.until("control_request", "can_use_tool")


def test_no_two_processes_have_the_same_ids() -> None:
    with auto() as cli:
        calls: list[str] = []
        for _ in range(2):
            _, lines, _ = play(cli, prompt("BASH ls"), arguments=("--allowedTools=Bash",))
            frames = [json.loads(line) for line in lines]
            calls += [
                block["id"]
                for frame in frames
                if frame["type"] == "assistant"
                for block in (frame["message"], *frame["message"]["content"])
                if "id" in block
            ]
    assert len(calls) == 6
    assert len(set(calls)) == 6


def test_rules_the_client_adds_are_kept() -> None:
    rule = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "Bash"}]}
    mode = {"type": "setMode", "mode": "plan"}
    with running(auto(), *ASK) as client:
        answer = {"behavior": "allow", "updatedInput": {}, "updatedPermissions": [rule, mode]}
        client.answer(bash(client), answer)
        assert client.until("system", "status")["permissionMode"] == "plan"
        client.until("result")
        client.write(prompt("BASH ls"))
        assert client.until("result")["result"] == "Bash ran: ls"


@pytest.mark.parametrize(
    ("matcher", "called"),
    [
        (None, True),
        ("", True),
        ("*", True),
        (".*", True),
        ("Bash", True),
        ("Write|Bash", True),
        ("Write, Bash", True),
        ("as.", True),
        ("bash", False),
        ("Ba", False),
        ("[", False),
        ("Bash(ls)", False),
    ],
)
def test_hooks_are_matched_as_a_real_one_matches_them(matcher: str | None, called: bool) -> None:
    hooks = {"PreToolUse": [{"matcher": matcher, "hookCallbackIds": ["h"]}]}
    with running(auto(), *ASK) as client:
        client.start(hooks=hooks)
        client.write(prompt("BASH ls"))
        subtype = client.until("control_request")["request"]["subtype"]
        assert (subtype == "hook_callback") is called


@pytest.mark.parametrize(
    ("answers", "asked", "text"),
    [
        ([{}], True, "Bash ran: ls"),
        ([{"decision": "approve"}], False, "Bash ran: ls"),
        ([hook_output(permissionDecision="allow")], False, "Bash ran: ls"),
        ([hook_output(permissionDecision="ask")], True, "Bash ran: ls"),
        (
            [hook_output(permissionDecision="allow", updatedInput={"command": "pwd"})],
            False,
            "Bash ran: pwd",
        ),
        ([hook_output(updatedInput={"command": "pwd"})], True, "Bash ran: pwd"),
        (
            [{"decision": "block", "reason": "no"}],
            False,
            "PreToolUse:Bash hook error: no",
        ),
        (
            [hook_output(permissionDecision="allow"), hook_output(permissionDecision="deny")],
            False,
            "PreToolUse:Bash hook error: Blocked by hook",
        ),
        ([{"hookSpecificOutput": {"updatedInput": {"command": "x"}}}], True, "Bash ran: ls"),
        (
            [{"hookSpecificOutput": {"hookEventName": "Stop"}}],
            False,
            "PreToolUse:Bash hook error: PreToolUse hook failed with an unexpected error",
        ),
    ],
)
def test_hooks_decide(answers: list[Json], asked: bool, text: str) -> None:
    ids = [f"h{number}" for number in range(len(answers))]
    with running(auto(), *ASK) as client:
        client.start(hooks={"PreToolUse": [{"hookCallbackIds": ids}]})
        client.write(prompt("BASH ls"))
        questions = [client.until("control_request", "hook_callback") for _ in answers]
        for question, answer in zip(questions, answers, strict=True):
            client.answer(question, answer)
        if asked:
            question = client.until("control_request", "can_use_tool")
            client.answer(question, {"behavior": "allow", "updatedInput": {}})
        assert client.until("result")["result"] == text


def test_a_hook_can_end_the_turn() -> None:
    with running(auto(), *ASK) as client:
        client.start(hooks={"PreToolUse": [{"hookCallbackIds": ["h"]}]})
        client.write(prompt("BASH ls"))
        client.answer(client.until("control_request"), {"continue": False})
        question = client.until("control_request", "can_use_tool")
        client.answer(question, {"behavior": "allow", "updatedInput": {}})
        result = client.until("result")
        assert (result["terminal_reason"], result["result"]) == ("hook_stopped", "")


@pytest.mark.parametrize("event", ["PostToolUse", "Stop"])
def test_hooks_after_the_fact_can_end_the_turn(event: str) -> None:
    with running(auto(), "--permission-mode", "bypassPermissions") as client:
        client.start(hooks={event: [{"hookCallbackIds": ["h"]}]})
        client.write(prompt("BASH ls"))
        client.answer(client.until("control_request", "hook_callback"), {"continue": False})
        reasons = {"PostToolUse": "hook_stopped", "Stop": "stop_hook_prevented"}
        assert client.until("result")["terminal_reason"] == reasons[event]


@pytest.mark.parametrize("hook_first", [True, False])
def test_the_first_answer_to_a_permission_counts(hook_first: bool) -> None:
    with running(auto(), *ASK) as client:
        client.start(hooks={"PermissionRequest": [{"hookCallbackIds": ["h"]}]})
        permission = bash(client)
        hook = client.until("control_request", "hook_callback")
        decision = {"hookSpecificOutput": {"decision": {"behavior": "allow"}}}
        if hook_first:
            client.answer(hook, decision)
        else:
            client.answer(permission, {"behavior": "allow", "updatedInput": {}})
        loser = permission if hook_first else hook
        assert client.until("control_cancel_request")["request_id"] == loser["request_id"]
        assert client.until("result")["result"] == "Bash ran: ls"


def test_a_hook_that_decides_nothing_leaves_it_to_the_client() -> None:
    with running(auto(), *ASK) as client:
        client.start(hooks={"PermissionRequest": [{"hookCallbackIds": ["h"]}]})
        permission = bash(client)
        client.answer(client.until("control_request", "hook_callback"), {})
        client.answer(permission, {"behavior": "allow", "updatedInput": {}})
        assert client.until("result")["result"] == "Bash ran: ls"


# ------------------------------------------------------------------------- MCP


def serve(client: Client, **results: Json) -> None:
    """Answer a handshake, until the server is connected."""
    defaults: Json = {
        "initialize": {"serverInfo": {"name": "calc", "version": "1"}},
        "tools/list": {"tools": [{"name": "add"}]},
    }
    for _ in range(3):
        question = client.until("control_request", "mcp_message")
        message = question["request"]["message"]
        result = {**defaults, **results}.get(message["method"], {})
        answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        client.answer(question, {"mcp_response": answer})


CALL = prompt('CALL mcp__calc__add {"a": 1}')
BYPASS = ("--permission-mode", "bypassPermissions")


@pytest.mark.parametrize(
    ("response", "told"),
    [
        ({"result": {"content": [{"type": "text", "text": "3"}]}}, "3"),
        ({"result": {"content": [{"type": "text", "text": "no"}], "isError": True}}, "no"),
        ({"error": {"code": 1, "message": "broken"}}, "broken"),
    ],
)
def test_the_clients_tools_are_called(response: Json, told: str) -> None:
    """R437."""
    with running(auto(), *BYPASS) as client:
        client.write(request("initialize", sdkMcpServers=["calc"]), CALL)
        serve(client)
        assert client.until("system", "init")["mcp_servers"][0]["status"] == "connected"
        question = client.until("control_request", "mcp_message")
        message = question["request"]["message"]
        assert (message["method"], message["params"]["arguments"]) == ("tools/call", {"a": 1})
        client.answer(question, {"mcp_response": {"jsonrpc": "2.0", "id": 2, **response}})
        assert client.until("result")["result"] == told


INTRODUCTION: Json = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "calc", "version": "1"},
}
TOOLS: Json = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
HANDSHAKE = ["initialize", "notifications/initialized", "tools/list"]


@pytest.mark.parametrize(
    ("manifests", "verdict", "methods"),
    [
        (
            {"calc": {"initializeResult": INTRODUCTION, "toolsListResult": TOOLS}, "other": {}},
            "parked",
            [],
        ),
        ({"calc": {"initializeResult": INTRODUCTION}}, "parked", ["tools/list"]),
        (
            {"calc": {"initializeResult": INTRODUCTION, "toolsListResult": {"tools": [{}]}}},
            "parked",
            HANDSHAKE,
        ),
        (
            {
                "calc": {
                    "initializeResult": {**INTRODUCTION, "protocolVersion": "2025-06-18"},
                    "toolsListResult": TOOLS,
                }
            },
            "protocol_version_mismatch",
            HANDSHAKE,
        ),
        ({"calc": {"initializeResult": 1}}, "malformed", HANDSHAKE),
        ([1], "malformed", HANDSHAKE),
        ({}, None, HANDSHAKE),
    ],
)
def test_a_manifest_takes_the_place_of_the_handshake(
    manifests: Any, verdict: str | None, methods: list[str]
) -> None:
    """As the newest CLI does it. The number of the first call is the same either way."""
    with running(auto(), *BYPASS) as client:
        greeting = request("initialize", sdkMcpServers=["calc"], sdkMcpServerManifests=manifests)
        client.write(greeting, CALL)
        asked: list[str] = []
        parked = call = None
        while call is None:
            frame = client.read()
            if frame["type"] == "control_response":
                parked = frame["response"]["response"].get("sdk_mcp_manifests_parked")
            elif frame["type"] == "control_request":
                message = frame["request"]["message"]
                if message["method"] == "tools/call":
                    call = message
                    continue
                asked.append(message["method"])
                result = {"initialize": INTRODUCTION, "tools/list": TOOLS}.get(asked[-1], {})
                answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
                client.answer(frame, {"mcp_response": answer})
        assert (asked, call["id"].partition(":")[2]) == (methods, "2")
        assert parked == (verdict and {"calc": verdict})


def test_an_older_cli_ignores_manifests() -> None:
    manifests = {"calc": {"initializeResult": INTRODUCTION, "toolsListResult": TOOLS}}
    with running(auto(flavour="2.1.197"), *BYPASS) as client:
        client.write(request("initialize", sdkMcpServers=["calc"], sdkMcpServerManifests=manifests))
        question = client.until("control_request", "mcp_message")
        assert question["request"]["message"]["method"] == "initialize"


def test_settings_can_tell_it_to_ask_about_a_tool(tmp_path: Path) -> None:
    """Stronger than the mode. What is no settings file is ignored."""
    file = tmp_path / "settings.json"
    file.write_text('{"permissions": {"ask": ["Bash"]}}')
    for settings in (str(file), file.read_text()):
        with running(auto(), *BYPASS, "--settings", settings, *ASK) as client:
            client.write(request("initialize"), prompt("BASH ls"))
            asked = client.until("control_request", "can_use_tool")["request"]
            assert asked["tool_name"] == "Bash"
    with running(auto(), *BYPASS, "--settings", "/nowhere.json", *ASK) as client:
        client.write(request("initialize"), prompt("BASH ls"))
        assert client.until("result")["subtype"] == "success"


def test_a_server_that_refuses_is_not_there() -> None:
    with running(auto(), *BYPASS) as client:
        client.write(request("initialize", sdkMcpServers=["calc"]), CALL)
        client.answer(client.until("control_request"), None, error="no")
        assert client.until("system", "init")["mcp_servers"][0]["status"] == "failed"
        assert client.until("result")["result"] == "MCP server not connected: calc"


def test_an_answer_without_its_wrapper_is_none() -> None:
    with running(auto()) as client:
        client.write(request("initialize", sdkMcpServers=["calc"]), prompt("x"))
        client.answer(client.until("control_request"), {"jsonrpc": "2.0", "id": 0, "result": {}})
        assert client.control("get_settings")["subtype"] == "success"
        code, lines, _ = client.leave()
        # Only when the input has ended is it given up.
        assert [json.loads(line)["mcp_servers"][0]["status"] for line in lines[:1]] == ["failed"]
        assert code == 0


def test_an_interrupted_call_is_cancelled_at_the_server() -> None:
    with running(auto(), *BYPASS) as client:
        client.write(request("initialize", sdkMcpServers=["calc"]), CALL)
        serve(client)
        call = client.until("control_request", "mcp_message")["request"]["message"]
        client.write(request("interrupt"))
        message = client.until("control_request", "mcp_message")["request"]["message"]
        assert (message["method"], message["params"]["requestId"]) == (
            "notifications/cancelled",
            call["id"],
        )
        assert client.until("result")["terminal_reason"] == "aborted_tools"


def test_servers_can_be_changed_and_read() -> None:
    with running(auto()) as client:
        client.write(request("mcp_set_servers", servers={"calc": {"type": "sdk"}}))
        added = client.until("control_response")["response"]["response"]
        assert added == {"added": ["calc"], "removed": [], "errors": {}}
    with running(auto()) as client:
        client.write(request("initialize", sdkMcpServers=["calc"]))
        serve(client)
        (told,) = client.control("mcp_status")["response"]["mcpServers"]
        assert (told["name"], told["status"]) == ("calc", "connected")
        client.write(
            request(
                "mcp_message",
                server_name="calc",
                message={"method": "notifications/tools/list_changed"},
            )
        )
        asked = client.until("control_request", "mcp_message")["request"]["message"]
        assert asked["method"] == "tools/list"
        assert client.control("mcp_reconnect", serverName="calc")["subtype"] == "error"
        assert client.control("mcp_toggle", serverName="calc", enabled=False) == {
            "subtype": "success",
            "request_id": "req_mcp_toggle",
        }
        assert client.control("mcp_toggle", serverName="calc")["error"] == "Server not found: calc"
        assert client.control("mcp_set_servers", servers={})["response"]["removed"] == []


# ------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_slow_answer_can_be_interrupted(flavour: str) -> None:
    with running(auto(flavour=flavour), ECHO, "--include-partial-messages") as client:
        client.write(prompt("SLOW", "a"))
        while client.until("stream_event")["event"]["type"] != "content_block_delta":
            pass
        client.write(prompt("later", "b"))
        response = client.control("interrupt")
        newer = flavour != "2.1.197"
        assert response.get("response") == ({"still_queued": ["b"]} if newer else None)
        assert client.until("assistant")["message"]["content"][0]["text"] == "Working on it."
        assert client.until("result")["terminal_reason"] == "aborted_streaming"
        assert client.until("result")["result"] == "You said: later"
        assert client.leave()[0] == 0


def test_an_interrupt_can_take_the_queue_with_it() -> None:
    with running(auto()) as client:
        client.write(prompt("SLOW", "a"))
        client.until("system", "init")
        client.write(prompt("later", "b"), request("interrupt", cancel_queued=True))
        assert client.until("command_lifecycle")["state"] == "queued"
        assert client.until("command_lifecycle")["state"] == "cancelled"
        payload = client.until("control_response")["response"]["response"]
        assert payload == {"still_queued": [], "cancelled": ["b"]}
        client.until("result")
        code, lines, _ = client.leave()
        assert (code, kinds(lines)) == (1, ["a cancelled"])


@pytest.mark.parametrize("event", [None, "PreToolUse"])
def test_an_interrupt_takes_open_questions_back(event: str | None) -> None:
    with running(auto(), *ASK) as client:
        client.start(hooks={event: [{"hookCallbackIds": ["h"]}]} if event else None)
        client.write(prompt("BASH ls"))
        question = client.until("control_request")
        client.write(request("interrupt"))
        assert client.read() == {
            "type": "control_cancel_request",
            "request_id": question["request_id"],
        }
        assert client.read()["response"]["request_id"] == "req_interrupt"
        client.answer(question, {})
        assert client.until("result")["terminal_reason"] == "aborted_tools"
        client.write(prompt("and now"))
        assert client.until("result")["result"] == "You said: and now"


def test_an_interrupt_without_a_turn_does_nothing() -> None:
    with running(auto()) as client:
        assert client.control("interrupt")["response"] == {"still_queued": []}
        assert client.leave() == (0, [], "")


def test_a_prompt_can_be_taken_back() -> None:
    with running(auto()) as client:
        client.write(prompt("SLOW", "a"), prompt("b", "b"))
        client.until("system", "init")
        for uuid, expected in (("b", True), ("a", False)):
            body = client.control("cancel_async_message", message_uuid=uuid)
            assert body["response"] == {"cancelled": expected}


def test_ctrl_c_interrupts_the_turn_and_leaves() -> None:
    with running(auto()) as client:
        client.write(prompt("SLOW"))
        client.until("system", "init")
        # It is told that the model has begun, then that it was stopped.
        client.control("get_settings")
        client.process.send_signal(signal.SIGINT)
        assert client.until("result")["subtype"] == "error_during_execution"
        assert client.process.wait(LIFETIME) == 0


def test_a_session_can_be_ended_by_request() -> None:
    with running(auto()) as client:
        client.control("end_session")
        assert client.process.wait(LIFETIME) == 0
    with running(auto()) as client:
        client.write(prompt("SLOW"))
        client.until("system", "init")
        client.control("end_session")
        client.until("result")
        assert client.process.wait(LIFETIME) == 1


# ------------------------------------------------------------------------- the end of input


def test_what_runs_is_finished_when_the_input_ends() -> None:
    code, lines, _ = play(auto(), prompt("SLOW 0.1"))
    assert (code, json.loads(lines[-1])["result"]) == (0, "Working on it.")


def test_a_pending_permission_is_denied_when_the_input_ends() -> None:
    with running(auto(), *ASK) as client:
        bash(client)
        code, lines, _ = client.leave()
    result = json.loads(lines[-1])
    assert (code, len(result["permission_denials"])) == (0, 1)
    assert "stream closed" in result["result"]


@pytest.mark.parametrize(("flavour", "ran"), [("2.1.325", False), ("2.1.197", True)])
def test_a_pending_hook_fails_as_it_does_for_real(flavour: str, ran: bool) -> None:
    with running(auto(flavour=flavour), *BYPASS) as client:
        client.start(hooks={"PreToolUse": [{"hookCallbackIds": ["h"]}]})
        client.write(prompt("BASH ls"))
        client.until("control_request")
        _, lines, _ = client.leave()
    assert (json.loads(lines[-1])["result"] == "Bash ran: ls") is ran


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_pending_call_is_lost_when_the_input_ends(flavour: str) -> None:
    """Older versions do not say that the call was interrupted."""
    with running(auto(flavour=flavour), *BYPASS) as client:
        client.write(request("initialize", sdkMcpServers=["calc"]), CALL)
        serve(client)
        client.until("control_request", "mcp_message")
        _, lines, _ = client.leave()
    frames = [json.loads(line) for line in lines]
    [told] = [one for one in frames if one["type"] == "user"]
    if flavour == FLAVOURS[-1]:
        assert told["message"]["content"][0]["content"] == frames[-1]["result"] == "Stream closed"
    else:
        assert "interrupted before a result" in frames[-1]["result"]
        assert told["tool_result_meta"][0]["non_execution_kind"] == "interrupted"


# ------------------------------------------------------------------------- what prompts can say


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("SAY a\nSAY b", "b"),
        ("THINK a\nSAY b", "b"),
        ("BIG 5000", "x" * 5000),
        ("STREAM 3", "word word word "),
        ("say nothing", "You said: say nothing"),
        ('CALL Write {"a": 1}', "Write ran: "),
        ('CALL StructuredOutput {"a":"é"}', '{"a":"é"}'),
    ],
)
def test_prompts_say_what_the_model_does(said: str, expected: str) -> None:
    _, lines, _ = play(auto(), prompt(said), arguments=BYPASS)
    assert json.loads(lines[-1])["result"] == expected


def test_fifty_thousand_deltas_are_sent() -> None:
    _, lines, _ = play(auto(), prompt("STREAM 50000"), arguments=("--include-partial-messages",))
    deltas = [line for line in lines if '"content_block_delta"' in line]
    assert len(deltas) == 50_000
    assert len({json.loads(line)["uuid"] for line in deltas}) == 50_000


def test_the_api_can_fail() -> None:
    code, lines, _ = play(auto(), prompt("FAIL 529", "u"))
    result = json.loads(lines[-2])
    assert (code, kinds(lines)[-1]) == (1, "u cancelled")
    told = (result["subtype"], result["is_error"], result["api_error_status"])
    assert told == ("success", True, 529)


@pytest.mark.parametrize(("said", "code"), [("EXIT 3", 3), ("EXIT", 0), ("EXIT -9", -9)])
def test_the_process_can_go_in_the_middle_of_a_turn(said: str, code: int) -> None:
    with running(auto()) as client:
        client.write(prompt(said))
        client.until("system", "init")
        assert client.process.wait(LIFETIME) == code


def test_turns_are_limited() -> None:
    cli = auto([[tool_use("Bash", command="ls")]] * 3)
    _, lines, _ = play(cli, prompt("go"), arguments=(*BYPASS, "--max-turns", "2"))
    result = json.loads(lines[-1])
    assert (result["subtype"], result["num_turns"]) == ("error_max_turns", 3)


def test_the_model_takes_its_time() -> None:
    started = time.monotonic()
    play(auto(latency=0.1), prompt("x"))
    assert time.monotonic() - started > 0.1


# ------------------------------------------------------------------------- control requests


@pytest.mark.parametrize(
    ("subtype", "fields", "expected"),
    [
        ("set_model", {"model": "haiku"}, {"response": {"model": "claude-haiku-5-5"}}),
        ("set_model", {}, {"response": {"model": "claude-opus-5-5"}}),
        ("set_model", {"model": ""}, {"error_code": "catalog_unknown"}),
        ("set_model", {"model": 5}, {"error_code": "invalid_request"}),
        ("set_permission_mode", {"mode": "plan"}, {"response": {"mode": "plan"}}),
        ("set_permission_mode", {"mode": "manual"}, {"response": {"mode": "default"}}),
        ("set_permission_mode", {"mode": "odd"}, {"error_code": "invalid_mode"}),
        ("set_permission_mode", {"mode": "auto"}, {"error_code": "auto_mode_model"}),
        (
            "set_permission_mode",
            {"mode": "bypassPermissions"},
            {"error_code": "bypass_not_launched"},
        ),
        ("set_max_thinking_tokens", {"max_thinking_tokens": None}, {"subtype": "success"}),
        ("set_max_thinking_tokens", {"max_thinking_tokens": "x"}, {"subtype": "error"}),
        ("apply_flag_settings", {"settings": {}}, {"subtype": "success"}),
        ("apply_flag_settings", {}, {"subtype": "error"}),
        ("mcp_set_servers", {}, {"subtype": "error"}),
        ("mcp_reconnect", {}, {"error": "mcp_reconnect: serverName must be a string"}),
        ("mcp_reconnect", {"serverName": "x"}, {"error": "Server not found: x"}),
        ("initialize", {"hooks": {"Stop": "x"}}, {"subtype": "error"}),
        ("rewind_files", {"user_message_id": "u"}, {"error": "File rewinding is not enabled."}),
        (
            "rewind_files",
            {"user_message_id": "u", "dry_run": True},
            {"response": {"canRewind": False, "error": "File rewinding is not enabled."}},
        ),
        ("stop_task", {"task_id": "x"}, {"response": {}}),
        ("seed_read_state", {}, {"subtype": "success"}),
        ("get_task_output", {}, {"subtype": "error"}),
        ("get_context_usage", {}, {"subtype": "success"}),
        ("get_session_cost", {}, {"response": {"text": "Estimated cost:        $0.0000"}}),
        ("get_usage", {"skip_behaviors": True}, {"subtype": "success"}),
        ("get_usage", {"skip_behaviors": 1}, {"subtype": "error"}),
        (
            "get_binary_version",
            {},
            {"response": {"version": FLAVOURS[0], "buildTime": "2026-01-01T00:00:00Z"}},
        ),
        ("list_models", {}, {"subtype": "success"}),
        (
            "ping",
            {},
            {
                "error": "Unsupported control request subtype: ping",
                "error_code": "unsupported_request",
            },
        ),
    ],
)
def test_control_requests_are_answered(subtype: str, fields: Json, expected: Json) -> None:
    with running(auto()) as client:
        body = client.control(subtype, **fields)
        assert {name: body.get(name) for name in expected} == expected


def test_a_request_without_an_id_is_answered_without_one() -> None:
    line = {"type": "control_request", "request": {"subtype": "get_settings"}}
    _, (answer,), _ = play(auto(), line)
    assert "request_id" not in json.loads(answer)["response"]


def test_an_older_cli_acknowledges_and_supports_less() -> None:
    with running(auto(flavour="2.1.197")) as client:
        assert "claude_code_version" not in client.start()
        assert client.control("set_model", model="opus").keys() == {"subtype", "request_id"}
        body = client.control("list_models")
        assert (body["subtype"], "error_code" in body) == ("error", False)
        assert client.control("set_permission_mode", mode="odd")["subtype"] == "success"


def test_an_older_cli_stops_reading_after_input_that_it_cannot_use() -> None:
    cli = auto(flavour="2.1.197")
    with running(cli) as client:
        client.write(request("set_model", model=5), request("get_settings"))
        client.end_input()
        with pytest.raises(subprocess.TimeoutExpired):
            client.process.wait(0.2)
        assert cli.sent == []


def test_files_can_be_rewound_where_that_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true")
    with running(auto()) as client:
        client.write(prompt("x", "u"))
        client.until("result")
        for dry_run in (True, False):
            body = client.control("rewind_files", user_message_id="u", dry_run=dry_run)
            assert body["response"]["canRewind"] is True
        body = client.control("rewind_files", user_message_id="other")
        assert body["error"] == "No file checkpoint found for this message."


def test_another_model_is_reported_once_the_conversation_has_begun() -> None:
    with running(auto()) as client:
        client.write(request("set_model", model="sonnet"))
        assert client.read()["type"] == "control_response"
        client.write(prompt("x"))
        client.until("result")
        client.write(request("set_model", model="haiku"))
        assert "Set model to `claude-haiku-5-5`" in client.read()["message"]["content"]


def test_a_later_initialize_replaces_the_hooks_of_the_newest_only() -> None:
    for flavour, expected in (("2.1.325", "second"), ("2.1.197", "first")):
        with running(auto(flavour=flavour), *ASK) as client:
            for name in ("first", "second"):
                client.start(hooks={"PreToolUse": [{"hookCallbackIds": [name]}]})
            client.write(prompt("BASH ls"))
            assert client.until("control_request")["request"]["callback_id"] == expected


def test_answers_are_echoed_where_prompts_are() -> None:
    with running(auto(), ECHO, *ASK) as client:
        client.answer(bash(client), {"behavior": "deny", "message": "no"})
        echoed = client.until("control_response")["response"]
        assert echoed["response"] == {"behavior": "deny", "message": "no"}


# ------------------------------------------------------------------------- transcripts


async def test_the_fake_cli_keeps_reports_and_resumes_transcripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = MemoryStore()
    with FakeCli.auto(transcripts=True) as cli:
        agent = bridle.Agent(cli_path=cli.path, store=store)
        first = await agent.run("BASH ls")
        session_id = str(first.session_id)
        stored = await store.load(SessionKey(session_id)) or []
        assert [entry["type"] for entry in stored] == ["user", "assistant", "user", "assistant"]
        [file] = (tmp_path / "config").glob("projects/*/*.jsonl")
        assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == stored
        assert (stored[0]["uuid"], file.stem) == (first.uuid, session_id)
        again = await agent.run("more", resume_session_id=session_id)
        assert (again.session_id, again.text) == (session_id, "You said: more")
        stored = await store.load(SessionKey(session_id)) or []
        assert stored[4]["parentUuid"] == stored[3]["uuid"]
        assert len({entry["uuid"] for entry in stored}) == len(stored) == 6


async def test_a_fake_cli_without_transcripts_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    with FakeCli.auto() as cli:
        await bridle.run("hello", cli_path=cli.path)
    assert list(tmp_path.glob("projects")) == []
