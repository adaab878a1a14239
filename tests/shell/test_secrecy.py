"""Secrets planted everywhere a session has any: none is in what it leaves behind."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.support.markers import MARKERS, leaks
from tests.support.processes import run

import bridle
from bridle import BidirOptions, CliOptions, SdkOptions, start_session
from bridle.testing import FakeCli
from bridle.testing.recording import Recorder, read_recording

SERVERS = {
    "local": {"command": "x", "env": {"ANY": MARKERS["server_variable"]}},
    "remote": {
        "type": "http",
        "url": "http://127.0.0.1:9/",
        "headers": {"X-Any": f"Basic {MARKERS['server_header']}"},
    },
}


def options(cli: FakeCli, settings: Path) -> CliOptions:
    settings.write_text(
        json.dumps({"env": {"ANY": MARKERS["settings_variable"]}, "apiKeyHelper": "x"})
    )
    return CliOptions(
        cli_path=cli.path,
        env={"ANTHROPIC_API_KEY": MARKERS["api_key"], "ANY": MARKERS["cli_variable"]},
        mcp_config={"mcpServers": SERVERS},
        settings=str(settings),
        extra_args=["--new-flag", MARKERS["extra_argument"]],
    )


def talkative() -> FakeCli:
    """A CLI that says everything it knows, in every way it can."""
    known = " ".join(
        MARKERS[place]
        for place in (
            *("api_key", "process_variable", "cli_variable", "settings_variable"),
            *("server_variable", "server_header", "extra_argument"),
        )
    )
    encoded = base64.b64encode(f"me:{MARKERS['api_key']}".encode()).decode()
    told = f"{known} {encoded} DB_PASSWORD={MARKERS['tool_output']}"
    called = {"command": f"login --token {HOOKED}", "more": told}
    pieces = [{"type": "text_delta", "text": told[at : at + 5]} for at in range(0, len(told), 5)]
    deltas: list[dict[str, object]] = [
        {
            "type": "stream_event",
            "event": {"type": "content_block_delta", "index": 0, "delta": delta},
            "parent_tool_use_id": None,
        }
        for delta in pieces
    ]
    return (
        FakeCli()
        .expect_initialize()
        .stderr(f"Authorization: {MARKERS['stderr_line']} {known}\n")
        .start_turn()
        .emit(*deltas)
        .ask_hook("PreToolUse", tool_name="Bash", tool_input=called)
        .expect_continue()
        .ask_permission("Bash", command=told)
        .expect_deny()
        .tool_result(told)
        .emit({"type": "brand_new", "detail": told, "config": SERVERS})
        .garbage(f"what is {known}?\n".encode())
        .assistant(told)
        .result(told)
        .exit(1)
    )


HOOKED = MARKERS["hook_input"]


def test_what_a_session_leaves_behind_holds_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recordings, logs, warnings, errors and the text of options."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_SERVICE_TOKEN", MARKERS["process_variable"])
    path = tmp_path / "session.ndjson"
    recorder = Recorder(path)
    left: list[str] = []

    seen: list[str] = []

    def look(context: bridle.PreToolUseContext) -> None:
        seen.append(str(context.tool_input))

    async def main() -> None:
        with talkative() as cli:
            given = options(cli, tmp_path / "settings.json")
            sdk = SdkOptions(recorder=recorder, on_warning=lambda one: left.append(repr(one)))
            bidir = BidirOptions(on_pre_tool_use=look, on_can_use_tool=lambda _: bridle.Deny("no"))
            left.extend(map(repr, (given, sdk, bidir)))
            async with start_session(given, sdk, bidir) as session:
                turn = await session.send_user_message(f"Use Bearer {MARKERS['prompt']} for it.")
                outcome = await turn
                assert MARKERS["api_key"] in outcome.text
                left.append(repr(session))
            left.extend(repr(event) for event in [one async for one in session.events()])

    run(main)
    assert HOOKED in seen[0]  # the application itself is told everything
    entries = read_recording(path)
    assert entries.gap == ""
    assert leaks(path.read_text("utf-8")) == []
    assert leaks(caplog.text) == []
    assert leaks("\n".join(left)) == []
    ways = recorder.masked
    assert min(ways.values()) > 0
    assert json.loads(entries[-1].line) == {"exit": 1}


async def test_what_an_error_tells_holds_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_SERVICE_TOKEN", MARKERS["process_variable"])
    known = " ".join(marker for place, marker in MARKERS.items() if place not in UNKNOWN)
    said = f"error: {known} password: {MARKERS['stderr_line']}"
    cli = FakeCli().stderr(f"{said}\n").exit(2)
    path = tmp_path / "session.ndjson"
    with cli:
        sdk = SdkOptions(recorder=Recorder(path))
        with pytest.raises(bridle.StartError) as caught:
            await start_session(options(cli, tmp_path / "settings.json"), sdk)
        error = caught.value
    copy: Any = pickle.loads(pickle.dumps(error))
    told = [str(error), repr(error), repr(error.process), str(error.argv), error.stderr_tail]
    assert "error: ***" in error.stderr_tail
    assert leaks("\n".join([*told, str(vars(copy))])) == []
    assert leaks(caplog.text) == []
    assert leaks(path.read_text("utf-8")) == []


UNKNOWN = ("settings_file", "tool_output", "hook_input", "stderr_line", "prompt")
"""What no session is told."""


async def test_a_query_keeps_them_as_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    known = f"{MARKERS['api_key']} {MARKERS['settings_variable']}"
    cli = FakeCli().stderr(f"{known}\n").garbage(f"{known}\n".encode()).exit(1)
    path = tmp_path / "query.ndjson"
    warnings: list[str] = []
    with cli:
        given = options(cli, tmp_path / "settings.json")
        sdk = SdkOptions(recorder=Recorder(path), on_warning=lambda one: warnings.append(repr(one)))
        with pytest.raises(bridle.BridleError) as caught:
            async for _ in bridle.query("go", given, sdk):
                pass
        error = caught.value
    assert leaks(f"{error} {error!r} {error.process} {caplog.text} {warnings}") == []
    assert leaks(path.read_text("utf-8")) == []
    assert "***" in error.stderr_tail


def test_a_version_that_tells_a_secret_does_not_pass_it_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The words are for the application, without the secret; the log has none of them."""
    told = f"nightly {MARKERS['api_key']} and {MARKERS['settings_variable']}"
    caplog.set_level(logging.DEBUG)
    warnings: list[str] = []

    async def main() -> None:
        with FakeCli.auto().slow_start(0.4).version(told) as cli:
            given = options(cli, tmp_path / "settings.json").replace(extra_args=None)
            sdk = SdkOptions(
                permissive_version_check=True, on_warning=lambda one: warnings.append(one.detail)
            )
            async with start_session(given, sdk) as session:
                assert (await (await session.send_user_message("go"))).ok
            async for _ in bridle.query("go", given, sdk):
                pass

    run(main)
    assert [one.count("*** and ***") for one in warnings] == [1, 1]
    assert leaks(f"{warnings} {caplog.text}") == []
    assert "version_inconclusive" in caplog.text
    assert "nightly" not in caplog.text


def test_what_an_outcome_tells_holds_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The detail, the errors, and the exception that is made of them."""
    caplog.set_level(logging.DEBUG)
    said = f"API Error: 401 invalid key {MARKERS['cli_variable']}"

    def failing() -> FakeCli:
        script = FakeCli().expect_initialize().start_turn()
        return script.result(said, is_error=True, errors=[said])

    async def main() -> list[bridle.Outcome[Any]]:
        with failing() as cli:
            ran = await bridle.run("go", cli=options(cli, tmp_path / "settings.json"))
        with failing() as cli:
            async with start_session(options(cli, tmp_path / "settings.json")) as session:
                return [ran, await (await session.send_user_message("go"))]

    for outcome in run(main):
        with pytest.raises(bridle.OutcomeError) as caught:
            outcome.raise_for_reason()
        error = caught.value
        assert "invalid key ***" in outcome.detail
        told = (outcome.detail, outcome.errors, outcome, error, repr(error), error.args)
        assert leaks(" ".join(map(str, told))) == []
    assert leaks(caplog.text) == []


async def test_what_is_said_of_a_session_that_failed_holds_no_secret(tmp_path: Path) -> None:
    """By those who waited for its start, and by those who come later."""

    secret = MARKERS["cli_variable"]
    with FakeCli().expect_initialize(error=f"what is {secret}?") as cli:
        session = bridle.Session(options(cli, tmp_path / "settings.json"))
        waiting = asyncio.ensure_future(session.ping())
        with pytest.raises(bridle.StartError):
            await session.connect()
        for operation in (waiting, session.ping()):
            with pytest.raises(bridle.ControlError) as refused:
                await operation
            assert leaks(f"{refused.value} {refused.value!r} {vars(refused.value)}") == []
