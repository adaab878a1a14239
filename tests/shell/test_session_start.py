"""A CLI that does not start, or not as it should: one typed error, soon, with all that is known."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.soak.sessions import Clock, long_holds, options, told_by, warnings_of, works
from tests.support.limits import SetLimits
from tests.support.processes import is_alive, run, until

from bridle import (
    CliExitedDuringInit,
    CliNotFoundError,
    CliOptions,
    InitializationError,
    InitializationTimeout,
    SdkOptions,
    SdkWarning,
    Session,
    SessionFailed,
    SessionNotFoundError,
    SpawnError,
    StartError,
    UnsupportedCliVersionError,
    start_session,
)
from bridle._engine.outgoing.prompts import END_OF_PROMPT
from bridle._engine.versions import TESTED, Version
from bridle._process.locate import VERSION_TIMEOUT
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

WORDS = "these are my last words"
SESSION = "11111111-2222-4333-8444-555555555555"


# ---------------------------------------------------------------- no session comes to be


class BadStart(NamedTuple):
    """A CLI that does not start, and what is told about it."""

    cli: FakeCli
    error: type[StartError]
    exit_code: int | None = None
    stderr: str = ""
    told: str = ""
    resumes: bool = False
    init_timeout: float = 60.0


asked = FakeCli().stderr(WORDS).expect_request("initialize").ignore()

BAD_STARTS = {
    "exit 0 at once": BadStart(FakeCli().exit(0), CliExitedDuringInit, 0),
    "exit 1 at once": BadStart(FakeCli().stderr(WORDS).exit(1), CliExitedDuringInit, 1, WORDS),
    "exit 1 without a word": BadStart(FakeCli().exit(1), CliExitedDuringInit, 1, told="logged in"),
    "killed at once": BadStart(FakeCli().stderr(WORDS).crash(), CliExitedDuringInit, -9, WORDS),
    "crash at once": BadStart(FakeCli().crash(signal.SIGSEGV), CliExitedDuringInit, -11),
    "exit 0 when asked": BadStart(asked.exit(0), CliExitedDuringInit, 0, WORDS),
    "exit 1 when asked": BadStart(asked.exit(1), CliExitedDuringInit, 1, WORDS),
    "killed when asked": BadStart(asked.crash(), CliExitedDuringInit, -9, WORDS, "SIGKILL"),
    "half an answer": BadStart(
        asked.half_line(b'{"type":"control_response","resp').exit(3), CliExitedDuringInit, 3, WORDS
    ),
    "output closed": BadStart(asked.close_stdout().silence(), CliExitedDuringInit, None, WORDS),
    "silence": BadStart(asked.silence(), InitializationTimeout, told="0.4 s", init_timeout=0.4),
    "silence, input closed": BadStart(
        FakeCli().close_stdin().silence(), InitializationTimeout, init_timeout=0.4
    ),
    "refused": BadStart(
        FakeCli().expect_initialize(error="no such agent"),
        InitializationError,
        told="no such agent",
    ),
    "unknown option": BadStart(
        FakeCli().bad_flag("--replay"), UnsupportedCliVersionError, 1, "--replay", "unknown"
    ),
    "unknown session": BadStart(
        FakeCli().unknown_session(),
        SessionNotFoundError,
        1,
        "No conversation found",
        SESSION,
        resumes=True,
    ),
}


@pytest.mark.parametrize("name", BAD_STARTS)
@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_cli_that_does_not_start_is_a_typed_error_with_everything_known(
    name: str, flavour: str
) -> None:
    """R002, R146, R151, R412: at once, and nothing is left."""
    case = BAD_STARTS[name]
    cli = case.cli._set(flavour=flavour)
    resume = {"resume_session_id": SESSION} if case.resumes else {}
    sdk = SdkOptions(init_timeout=case.init_timeout)
    session = Session(options(cli, **resume), sdk)
    with long_holds(), pytest.raises(StartError) as caught:
        await session.connect()
    error = caught.value
    assert type(error) is case.error
    assert error.exit_code == case.exit_code
    assert case.stderr in error.stderr_tail
    assert case.told in str(error)
    assert error.cli_path == cli.path
    assert "--output-format=stream-json" in error.argv
    assert (session.alive, session.lifecycle) == (False, "failed")
    assert session.pid is not None
    assert not is_alive(session.pid)
    events = [event async for event in session.events()]
    failures = [event for event in events if isinstance(event, SessionFailed)]
    assert [(type(one.error), str(one.error)) for one in failures] == [(type(error), str(error))]
    await works(flavour)
    cli.close()


async def test_a_cli_that_is_killed_from_outside_while_it_initializes_says_so() -> None:
    """R239, R240."""
    with FakeCli().silence() as cli:
        session = Session(options(cli))
        connecting = asyncio.ensure_future(session.connect())
        await until(lambda: cli.received)
        assert (session.lifecycle, session.alive) == ("init_sent", False)
        os.kill(session.pid or 0, signal.SIGKILL)
        with long_holds(), pytest.raises(CliExitedDuringInit) as caught:
            await connecting
        assert (caught.value.exit_code, caught.value.signal) == (-9, "SIGKILL")
    await works()


async def test_a_handshake_that_is_too_long_to_keep_is_still_an_answer() -> None:
    script = FakeCli().expect_request("initialize").huge_line(100_000, "control_response")
    with script.turn() as cli:
        async with start_session(options(cli), SdkOptions(max_buffer_size=50_000)) as session:
            assert session.server_info is None
            assert (await (await session.send_user_message("go"))).ok


async def test_noise_before_the_handshake_is_survived() -> None:
    """Lines that are no JSON are warned about and skipped."""
    script = FakeCli().garbage(b"Welcome!\n\n\r\n").invalid_utf8().expect_initialize().turn()
    with script as cli:
        async with start_session(options(cli)) as session:
            assert (await (await session.send_user_message("go"))).ok
        assert warnings_of(await told_by(session)) == ["malformed_line", "malformed_line"]


# ---------------------------------------------------------------- which executable


def _text_file(directory: Path) -> Path:
    path = directory / "claude"
    path.write_text("no program", "utf-8")
    return path


def _no_interpreter(directory: Path) -> Path:
    path = directory / "claude"
    path.write_text("#!/no/such/interpreter\n", "utf-8")
    path.chmod(0o755)
    return path


NO_PROGRAM: dict[str, tuple[Callable[[Path], Path], type[StartError], str]] = {
    "missing": (lambda directory: directory / "claude", CliNotFoundError, "Searched"),
    "directory": (lambda directory: directory, SpawnError, "Not a file"),
    "not executable": (_text_file, SpawnError, "Not executable"),
    "no interpreter": (_no_interpreter, SpawnError, "interpreter"),
}


@pytest.mark.parametrize("name", NO_PROGRAM)
async def test_an_executable_that_cannot_be_run_is_named(name: str, tmp_path: Path) -> None:
    """R132, R133, R240."""
    make, kind, told = NO_PROGRAM[name]
    path = make(tmp_path)
    session = Session(CliOptions(cli_path=str(path)))
    with pytest.raises(kind) as caught:
        await session.connect()
    assert type(caught.value) is kind
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    assert (session.lifecycle, session.alive, session.pid) == ("failed", False, None)
    await session.stop()
    await works()


async def test_a_missing_cli_is_also_a_file_not_found_error(tmp_path: Path) -> None:
    """R133, R138."""
    with pytest.raises(FileNotFoundError):
        await start_session(CliOptions(cli_path=str(tmp_path / "claude")))


async def test_a_wrong_working_directory_is_named(tmp_path: Path) -> None:
    """R240."""
    with FakeCli.auto() as cli, pytest.raises(SpawnError, match="nowhere") as caught:
        await start_session(options(cli, cwd=str(tmp_path / "nowhere")))
    assert caught.value.cli_path == cli.path


# ---------------------------------------------------------------- which version


class VersionCase(NamedTuple):
    """What ``--version`` does, and what comes of it: an error, or a warning, or nothing."""

    version: dict[str, Any]
    sdk: Mapping[str, Any] = MappingProxyType({})
    error: type[StartError] | None = None
    warned: tuple[str, ...] = ()


VERSIONS = {
    "new enough": VersionCase({"text": "2.0.0 (Claude Code)"}),
    "too old": VersionCase({"text": "1.0.33 (Claude Code)"}, error=UnsupportedCliVersionError),
    "too old, and slow to say so": VersionCase(
        {"text": "1.0.33 (Claude Code)", "after": 1.5}, error=UnsupportedCliVersionError
    ),
    "too old, permissive": VersionCase(
        {"text": "1.0.33"}, {"permissive_version_check": True}, error=UnsupportedCliVersionError
    ),
    "too old, unasked": VersionCase({"text": "1.0.35"}, {"skip_version_check": True}),
    "unreadable": VersionCase({"text": "nightly build"}, warned=("version_inconclusive",)),
    "failing": VersionCase({"exit_code": 3}, warned=("version_inconclusive",)),
    "hanging, unasked": VersionCase({"hang": True}, {"skip_version_check": True}),
}


@pytest.mark.parametrize("name", VERSIONS)
async def test_only_a_version_that_is_known_to_be_too_old_is_refused(name: str) -> None:
    """R058, R059, R147, R153: unless the options say otherwise."""
    case = VERSIONS[name]
    with FakeCli.auto().version(**case.version) as cli:
        session = Session(options(cli), SdkOptions(**case.sdk))
        if case.error is not None:
            with pytest.raises(case.error) as caught:
                await session.connect()
            assert caught.value.cli_version == "1.0.33"
            assert "1.0.33" in str(caught.value)
            # It may be ended before it reads initialize; a prompt is never written.
            assert {line["type"] for line in cli.received} <= {"control_request"}
        else:
            await session.connect()
            assert (await (await session.send_user_message("go"))).ok
        await session.stop()
        assert tuple(warnings_of(await told_by(session))) == case.warned


@pytest.mark.parametrize(
    ("version", "content"),
    [
        ("2.1.247", [{"type": "text", "text": t} for t in ("/go", END_OF_PROMPT)]),
        ("2.1.248", "/go"),
    ],
)
async def test_a_verbatim_prompt_has_the_form_that_the_cli_needs(
    version: str, content: object
) -> None:
    with FakeCli.auto().version(version) as cli:
        async with start_session(options(cli).replace(verbatim_prompts=True)) as session:
            assert (await (await session.send_user_message("/go"))).ok
        [prompt] = [line for line in cli.received if line["type"] == "user"]
        assert prompt["client_composed"] is True
        assert prompt["message"]["content"] == content
        assert warnings_of(await told_by(session)) == []


def test_a_cli_newer_than_the_tested_ones_is_logged_once_with_the_command(
    set_limits: SetLimits, caplog: pytest.LogCaptureFixture
) -> None:
    set_limits(reported_versions=set())
    caplog.set_level(logging.INFO, logger="bridle")
    newer = str(Version(TESTED.major, TESTED.minor, TESTED.patch + 1))

    async def main() -> None:
        for version in (str(TESTED), newer, newer):
            with FakeCli.auto().version(version) as cli:
                async with start_session(options(cli)) as session:
                    assert (await (await session.send_user_message("go"))).ok

    run(main)
    told = [record for record in caplog.records if "untested_version" in str(vars(record))]
    assert [record.levelno for record in told] == [logging.INFO]
    assert newer in told[0].getMessage()
    assert "bridle verify" in told[0].getMessage()


@pytest.mark.parametrize("name", ["system_prompt", "append_system_prompt"])
@pytest.mark.parametrize(
    ("version", "warned"), [("2.0.0", ["option_unsupported"]), ("2.1.197", [])]
)
async def test_a_system_prompt_that_the_cli_may_ignore_is_a_warning(
    name: str, version: str, warned: list[str]
) -> None:
    with FakeCli.auto().version(version) as cli:
        async with start_session(options(cli).replace(**{name: "Be brief."})) as session:
            assert (await (await session.send_user_message("go"))).ok
        assert warnings_of(await told_by(session)) == warned


@pytest.mark.parametrize(
    ("flavour", "error"),
    [("2.1.326", None), ("2.1.325", InitializationError), ("2.1.197", UnsupportedCliVersionError)],
)
async def test_mcp_servers_in_the_handshake_reach_the_cli_or_fail_the_start(
    flavour: str, error: type[StartError] | None
) -> None:
    servers = {"db": {"command": "db", "args": ["--port=1"]}}
    with FakeCli.auto(flavour=flavour) as cli:
        given = options(cli, mcp_config={"mcpServers": servers}, mcp_config_delivery="initialize")
        if error is not None:
            with pytest.raises(error):
                await start_session(given)
            return
        await (await start_session(given)).stop()
        assert cli.received[0]["request"]["mcpServers"] == servers
        assert not [argument for argument in cli.argv if "mcp-config" in argument]


async def test_a_version_that_is_never_reported_is_a_warning_before_the_session_runs(
    set_limits: SetLimits,
) -> None:
    """R140, R144."""
    assert VERSION_TIMEOUT == 5.0, "seconds that a CLI has to tell its version"
    set_limits(reporting_version=0.3)
    with FakeCli.auto().version(hang=True) as cli:
        clock = Clock()
        session = await start_session(options(cli))
        assert clock.elapsed >= 0.3
        assert (await (await session.send_user_message("go"))).ok
        await session.stop()
        events = [type(event).__name__ for event in await told_by(session)]
        assert events[:2] == ["SdkWarning", "SessionReady"]


async def test_a_version_that_is_known_is_not_asked_for_again(set_limits: SetLimits) -> None:
    with FakeCli.auto().version(after=0.1) as cli:
        await (await start_session(options(cli))).stop()
        set_limits(reporting_version=0.01)  # too short to ask again
        session = await start_session(options(cli))
        await session.stop()
        assert warnings_of(await told_by(session)) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_cli_that_names_no_capabilities_is_reported_to_on_warning(flavour: str) -> None:
    """R224: it is not among the events, where it would be the same each time."""
    warnings: list[SdkWarning] = []
    with FakeCli.auto(flavour=flavour) as cli:
        sdk = SdkOptions(on_warning=warnings.append)
        session = await start_session(options(cli), sdk)
        names_none = not session.capabilities
        await session.stop()
        assert names_none is (flavour == "2.1.197")
        assert [str(one.kind) for one in warnings] == ["missing_capabilities"] * names_none
        assert warnings_of(await told_by(session)) == []


def test_a_session_that_was_not_awaited_says_so() -> None:
    started: Any = start_session()
    with pytest.raises(AttributeError, match="session = await start_session"):
        started.send_user_message("hello")
    assert "await it" in repr(started)
