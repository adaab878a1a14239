"""A conversation has one writer on a machine, and the kernel frees it when the writer dies."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import open_descriptors, until
from tests.support.steps import ReplaceSteps

import bridle
from bridle import SessionInUseError, SessionStopped
from bridle._process.accounts import Account, account_of
from bridle._process.session_locks import CannotLock, lock_session
from bridle.events import SdkWarning
from bridle.testing import FakeCli

ID = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"

HOLDER = """
import sys, time
from bridle._process.session_locks import lock_session
from bridle.errors import SessionInUseError
try:
    lock = lock_session(sys.argv[1], sys.argv[2])
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
    config = str(tmp_path / "config")
    before = open_descriptors()
    first = lock_session(config, ID)
    second = lock_session(config, OTHER)
    assert len(open_descriptors()) == len(before) + 1
    with pytest.raises(SessionInUseError) as caught:
        lock_session(config, ID)
    assert caught.value.session_id == ID
    first.release()
    first.release()
    again = lock_session(config, ID)
    again.release()
    second.release()
    assert open_descriptors() <= before


def test_a_session_is_locked_once_on_a_machine(tmp_path: Path) -> None:
    config = str(tmp_path)
    lock = lock_session(config, OTHER)
    with hold(tmp_path, ID) as holder:
        assert say(holder) == "locked"
        with pytest.raises(SessionInUseError):
            lock_session(config, ID)
        with hold(tmp_path, OTHER) as other:
            assert say(other) == "in use"
        holder.kill()
    freed = lock_session(config, ID)
    lock.release()
    freed.release()


def test_a_child_that_is_forked_holds_no_lock(tmp_path: Path) -> None:
    config = str(tmp_path)
    lock = lock_session(config, ID)
    child = os.fork()
    if not child:
        try:
            lock_session(config, ID)
        except SessionInUseError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(SessionInUseError):
        lock_session(config, ID)
    lock.release()


READER = """
import fcntl, sys
if sys.argv[3] == "without the name":
    del fcntl.F_OFD_SETLK
from bridle._process.session_locks import lock_session
lock = lock_session(sys.argv[1], sys.argv[2])
open(sys.argv[1] + "/bridle-sessions.lock").close()
print("read", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have POSIX locks only")
@pytest.mark.parametrize("python", ["with the name", "without the name"])
def test_a_tool_that_reads_the_lock_file_does_not_unlock_sessions(
    tmp_path: Path, python: str
) -> None:
    """A Python that was compiled with old headers lacks the name F_OFD_SETLK."""
    command = [sys.executable, "-c", READER, str(tmp_path), ID, python]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert say(reader) == "read"
        with pytest.raises(SessionInUseError):
            lock_session(str(tmp_path), ID)
        reader.kill()
    lock_session(str(tmp_path), ID).release()


FORKING = """
import os, sys
from bridle._process.session_locks import lock_session
lock = lock_session(sys.argv[1], sys.argv[2])
if not os.fork():
    print(os.getpid(), flush=True)  # the child has closed the file by then
sys.stdin.read()
"""


def test_a_forked_child_does_not_keep_the_lock_of_a_process_that_dies(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path), ID]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        child = int(say(holder))
        with pytest.raises(SessionInUseError):
            lock_session(str(tmp_path), ID)
        holder.kill()
        holder.wait()
        os.kill(child, 0)
        lock_session(str(tmp_path), ID).release()


def test_posix_locks_are_used_if_the_system_has_no_others(
    tmp_path: Path, replace_steps: ReplaceSteps
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    replace_steps(system_lock=refuse)
    lock = lock_session(str(tmp_path), ID)
    with hold(tmp_path, ID) as other:
        assert say(other) == "in use"
    lock.release()
    with hold(tmp_path, ID) as other:
        assert say(other) == "locked"
        with pytest.raises(SessionInUseError):
            lock_session(str(tmp_path), ID)
        other.kill()


async def test_a_session_that_cannot_be_locked_runs_and_warns(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "bridle-sessions.lock").symlink_to(tmp_path / "elsewhere")
    warnings: list[SdkWarning] = []
    with FakeCli.auto() as cli:
        env = {"CLAUDE_CONFIG_DIR": str(config)}
        outcome = await bridle.run("x", cli_path=cli.path, env=env, on_warning=warnings.append)
        assert outcome.ok
    [warning] = [one for one in warnings if one.kind == "session_unlocked"]
    assert str(config / "bridle-sessions.lock") in warning.detail
    assert os.strerror(errno.ELOOP) in warning.detail
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_cannot_be_written_gives_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotLock):
        lock_session(str(tmp_path / "file"), ID)


# ---------------------------------------------------------------- another user

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may start a process as another user"
)


@pytest.fixture
def user() -> Account:
    account = account_of("nobody")
    assert account is not None
    return account


@pytest.fixture
def home_of_user(user: Account) -> Iterator[Path]:
    """The home directory of the user, in a directory of root that all users can reach."""
    place = Path(tempfile.mkdtemp(prefix="bridle-test-"))
    place.chmod(0o755)
    home = place / "home"
    home.mkdir()
    os.chown(home, user.user, user.group)
    yield home
    shutil.rmtree(place)


@needs_root
def test_the_lock_file_belongs_to_the_user_that_the_cli_runs_as(
    user: Account, home_of_user: Path
) -> None:
    config = home_of_user / ".claude"
    for _ in range(2):
        lock_session(str(config), ID, user).release()
    for path, mode in ((config, 0o700), (config / "bridle-sessions.lock", 0o600)):
        facts = path.stat()
        assert (facts.st_uid, facts.st_gid) == (user.user, user.group)
        assert stat.S_IMODE(facts.st_mode) == mode


@needs_root
@pytest.mark.parametrize("is_missing", [False, True])
def test_root_creates_nothing_behind_a_link_of_another_user(
    user: Account, home_of_user: Path, is_missing: bool
) -> None:
    target = home_of_user.parent / "of root"
    target.mkdir(mode=0o755)
    (home_of_user / ".claude").symlink_to(target / "inside" if is_missing else target)
    with pytest.raises(CannotLock) as caught:
        lock_session(f"{home_of_user}/.claude", ID, user)
    assert "the user 'nobody' cannot create it" in str(caught.value)
    assert list(target.iterdir()) == []
    assert target.stat().st_uid == 0


@needs_root
def test_root_does_not_give_its_files_to_another_user(user: Account, home_of_user: Path) -> None:
    config = home_of_user / ".claude"
    config.mkdir()
    victim = home_of_user.parent / "victim"
    victim.write_text("secret")
    (config / "bridle-sessions.lock").hardlink_to(victim)
    with pytest.raises(CannotLock) as caught:
        lock_session(f"{home_of_user}/.claude", ID, user)
    assert "it is not a file of the user 'nobody'" in str(caught.value)
    assert victim.stat().st_uid == 0


@needs_root
def test_a_link_between_directories_of_the_other_user_is_followed(
    user: Account, home_of_user: Path
) -> None:
    target = home_of_user / "elsewhere"
    target.mkdir()
    os.chown(target, user.user, user.group)
    (home_of_user / ".claude").symlink_to(target)
    lock = lock_session(f"{home_of_user}/.claude", ID, user)
    with pytest.raises(SessionInUseError):
        lock_session(str(target), ID)
    lock.release()
    assert (target / "bridle-sessions.lock").stat().st_uid == user.user


# ---------------------------------------------------------------- sessions


def named(session_id: str) -> FakeCli:
    """A CLI that reports the id of its session when a turn starts."""
    init = {"type": "system", "subtype": "init", "session_id": session_id}
    return FakeCli().expect_initialize().expect_user().emit(init)


async def test_a_session_is_locked_once_its_id_is_known(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}

    with named(ID) as cli:
        session = await bridle.start_session(cli_path=cli.path, env=env, continue_session=True)
        lock_session(str(tmp_path), ID).release()
        _turn = await session.send_user_message("x")
        await until(lambda: session.id == ID)
        with pytest.raises(SessionInUseError):
            lock_session(str(tmp_path), ID)
        await session.stop()
        lock_session(str(tmp_path), ID).release()


async def test_a_session_that_turns_out_to_be_in_use_ends(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}

    lock = lock_session(str(tmp_path), ID)
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
        lock_session(str(tmp_path), ID)
    lock.release()


async def test_a_relative_configuration_directory_is_that_of_the_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI resolves it in its working directory, not in that of the program."""
    for name in ("program", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "program")

    env = {"CLAUDE_CONFIG_DIR": "config"}
    work = str(tmp_path / "work")
    with FakeCli.auto() as cli:
        async with bridle.start_session(cli_path=cli.path, env=env, cwd=work) as session:
            assert session.id is not None
            with pytest.raises(SessionInUseError):
                lock_session(f"{work}/config", session.id)
    assert list((tmp_path / "program").iterdir()) == []


async def test_a_session_that_is_not_saved_needs_no_lock(tmp_path: Path) -> None:
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path)}

    lock = lock_session(str(tmp_path), ID)
    with named(ID) as cli:
        session = await bridle.start_session(
            cli_path=cli.path, env=env, no_session_persistence=True
        )
        _turn = await session.send_user_message("x")
        await until(lambda: session.id == ID)
        assert session.alive
        await session.stop()
    lock.release()


@pytest.mark.parametrize("door", ["session", "query"])
async def test_a_conversation_that_runs_cannot_be_resumed(tmp_path: Path, door: str) -> None:
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
            assert open_descriptors() <= before
        outcome = await bridle.run("x", cli_path=cli.path, env=env, resume_session_id=session_id)
        assert outcome.ok
