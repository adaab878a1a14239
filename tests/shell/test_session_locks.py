"""A conversation has one writer on a machine, and the kernel frees it when the writer dies."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import open_descriptors, run, until

import bridle
from bridle import SessionInUseError, SessionStopped
from bridle._shell.session_locks import CannotLock, lock_session
from bridle.events import SdkWarning
from bridle.testing import FakeCli

ID = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"

HOLDER = """
import sys, time
from bridle._shell.session_locks import lock_session
from bridle.errors import SessionInUseError
try:
    lock = lock_session({"CLAUDE_CONFIG_DIR": sys.argv[1]}, sys.argv[2])
except SessionInUseError:
    print("in use", flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


def hold(directory: Path, session_id: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(directory), session_id]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def say(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_session_is_locked_once_in_a_process(tmp_path: Path) -> None:
    environment = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    before = open_descriptors()
    first = lock_session(environment, ID)
    second = lock_session(environment, OTHER)
    assert len(open_descriptors()) == len(before) + 1
    with pytest.raises(SessionInUseError) as caught:
        lock_session(environment, ID)
    assert caught.value.session_id == ID
    first.release()
    first.release()
    again = lock_session(environment, ID)
    again.release()
    second.release()
    assert open_descriptors() == before


def test_a_session_is_locked_once_on_a_machine(tmp_path: Path) -> None:
    environment = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    lock = lock_session(environment, OTHER)
    with hold(tmp_path, ID) as holder:
        assert say(holder) == "locked"
        with pytest.raises(SessionInUseError):
            lock_session(environment, ID)
        with hold(tmp_path, OTHER) as other:
            assert say(other) == "in use"
        holder.kill()
    freed = lock_session(environment, ID)
    lock.release()
    freed.release()


def test_a_child_that_is_forked_holds_no_lock(tmp_path: Path) -> None:
    environment = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    lock = lock_session(environment, ID)
    child = os.fork()
    if not child:
        try:
            lock_session(environment, ID)
        except SessionInUseError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(SessionInUseError):
        lock_session(environment, ID)
    lock.release()


def test_a_session_that_cannot_be_locked_runs_and_warns(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "bridle-sessions.lock").symlink_to(tmp_path / "elsewhere")
    warnings: list[SdkWarning] = []

    async def main() -> None:
        with FakeCli.auto() as cli:
            env = {"CLAUDE_CONFIG_DIR": str(config)}
            outcome = await bridle.run("x", cli_path=cli.path, env=env, on_warning=warnings.append)
            assert outcome.ok

    run(main)
    [warning] = [one for one in warnings if one.kind == "session_unlocked"]
    assert str(config / "bridle-sessions.lock") in warning.detail
    assert os.strerror(errno.ELOOP) in warning.detail
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_cannot_be_written_gives_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotLock):
        lock_session({"CLAUDE_CONFIG_DIR": str(tmp_path / "file")}, ID)


def named(session_id: str) -> FakeCli:
    """A CLI that reports the id of its session when a turn starts."""
    init = {"type": "system", "subtype": "init", "session_id": session_id}
    return FakeCli().expect_initialize().expect_user().emit(init)


def test_a_session_is_locked_once_its_id_is_known(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}

    async def main() -> None:
        with named(ID) as cli:
            session = await bridle.start_session(cli_path=cli.path, env=env, continue_session=True)
            lock_session(env, ID).release()
            _turn = await session.send_user_message("x")
            await until(lambda: session.id == ID)
            with pytest.raises(SessionInUseError):
                lock_session(env, ID)
            await session.stop()
            lock_session(env, ID).release()

    run(main)


def test_a_session_that_turns_out_to_be_in_use_ends(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}

    async def main() -> None:
        lock = lock_session(env, ID)
        with named(ID) as cli:
            session = await bridle.start_session(cli_path=cli.path, env=env, continue_session=True)
            turn = await session.send_user_message("x")
            outcome = await turn.outcome()
            assert not outcome.ok
            with pytest.raises(SessionStopped) as caught:
                _ = await session.send_user_message("y")
            assert f"{ID!r} is in use" in str(caught.value.cause)
            await session.aclose()
        with pytest.raises(SessionInUseError):
            lock_session(env, ID)
        lock.release()

    run(main)


def test_a_session_that_is_not_saved_needs_no_lock(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}

    async def main() -> None:
        lock = lock_session(env, ID)
        with named(ID) as cli:
            session = await bridle.start_session(
                cli_path=cli.path, env=env, no_session_persistence=True
            )
            _turn = await session.send_user_message("x")
            await until(lambda: session.id == ID)
            assert session.alive
            await session.stop()
        lock.release()

    run(main)


@pytest.mark.parametrize("door", ["session", "query"])
def test_a_conversation_that_runs_cannot_be_resumed(tmp_path: Path, door: str) -> None:
    async def main() -> None:
        with FakeCli.auto() as cli:
            env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
            async with bridle.start_session(cli_path=cli.path, env=env) as first:
                before = open_descriptors()
                session_id = first.id
                assert session_id is not None
                chosen: Any = {
                    "cli_path": cli.path,
                    "env": env,
                    "resume_session_id": session_id,
                }
                stream = bridle.query("x", **chosen)
                start = anext(stream) if door == "query" else bridle.run("x", **chosen)
                with pytest.raises(SessionInUseError) as caught:
                    await start
                assert caught.value.session_id == session_id
                assert open_descriptors() == before
            outcome = await bridle.run(
                "x", cli_path=cli.path, env=env, resume_session_id=session_id
            )
            assert outcome.ok

    run(main)
