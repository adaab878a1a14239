"""A CLI that runs as another system user is started, reads its files, and is ended like any other.

Only root may start a process as another user. As any other user, only the errors are tested.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import Programs, Recorder, is_alive, plan, until

from bridle import CliOptions, OptionsError, Session
from bridle._process import tree
from bridle._process.accounts import account_of
from bridle._process.launch.plan import LaunchFile
from bridle._process.process import CliProcess
from bridle.errors import SpawnError

OTHER = "nobody"
SECRET = LaunchFile("\0--settings", ".json", b'{"secret": 1}')
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may start a process as another user"
)

# Prints who runs it and its file, starts a descendant in its own session, and ignores SIGTERM.
PROGRAM = """
id -u; id -g; id -G; echo "$HOME $USER $LOGNAME"; cat "${1#*=}"; echo
setsid sleep 300 >/dev/null 2>&1 &
echo "$!"
trap "" TERM
while :; do sleep 1; done
"""


@pytest.fixture
def programs(set_limits: SetLimits) -> Iterator[Programs]:
    """Programs in a directory that every user can reach. Private files go there too."""
    directory = tempfile.mkdtemp(prefix="bridle-test-")
    os.chmod(directory, 0o755)
    set_limits(temporary_directory=directory)
    yield Programs(Path(directory))
    shutil.rmtree(directory)


@needs_root
@pytest.mark.skipif(not tree.PROC, reason="looks into /proc")
async def test_a_cli_of_another_user_is_supervised_like_any_other(programs: Programs) -> None:
    other = pwd.getpwnam(OTHER)
    launch = plan(
        argv=("--settings=\0--settings",),
        files=(SECRET,),
        inherit_env=("PATH",),
        cwd=str(programs.directory),
        user=OTHER,
    )

    recorder = Recorder()
    cli = CliProcess.spawn(programs.shell(PROGRAM), launch, recorder)
    await until(lambda: recorder.output.count(b"\n") == 6)
    *said, descendant = recorder.output.decode().splitlines()
    groups = os.getgrouplist(OTHER, other.pw_gid)
    assert said == [
        str(other.pw_uid),
        str(other.pw_gid),
        " ".join(map(str, groups)),
        f"{other.pw_dir} {OTHER} {OTHER}",
        SECRET.content.decode(),
    ]
    [private] = programs.directory.glob("bridle-*")
    [file] = private.iterdir()
    assert (private.stat().st_uid, stat.S_IMODE(private.stat().st_mode)) == (0, 0o710)
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (other.pw_uid, 0o600)
    cli.terminate()
    cli.kill()
    await until(lambda: recorder.has_exited)
    # Either signal may be the first that the process notices.
    assert recorder.all("exited")[0] in (-signal.SIGTERM, -signal.SIGKILL)
    await cli.aclose()
    assert not is_alive(int(descendant))
    assert not private.exists()


@needs_root
async def test_the_program_decides_about_the_home_directory(programs: Programs) -> None:
    launch = plan(env={"HOME": "/elsewhere"}, inherit_env=False, user=OTHER)

    recorder = Recorder()
    cli = CliProcess.spawn(programs.shell('echo "$HOME $USER"'), launch, recorder)
    await until(lambda: recorder.is_over)
    await cli.aclose()
    assert recorder.output == f"/elsewhere {OTHER}\n".encode()


async def test_the_user_of_this_process_needs_no_right(programs: Programs) -> None:
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert account_of(name) is None
    assert account_of(None) is None

    recorder = Recorder()
    cli = CliProcess.spawn(programs.shell("id -un"), plan(user=name), recorder)
    await until(lambda: recorder.is_over)
    await cli.aclose()
    assert recorder.output == f"{name}\n".encode()


def test_a_user_that_does_not_exist_is_an_error_before_anything_starts() -> None:
    with pytest.raises(OptionsError) as caught:
        Session(CliOptions(user="no-such-user"))
    assert caught.value.field == "user"


async def test_a_process_that_may_not_change_users_says_so(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(SpawnError) as caught:
        CliProcess.spawn(programs.shell("true"), plan(user=OTHER), Recorder())
    assert f"as the user {OTHER!r}" in caught.value.os_error
    assert list(programs.directory.glob("bridle-*")) == []
