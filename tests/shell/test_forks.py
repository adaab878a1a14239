"""Programs that fork with an open session: the session stays that of the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from bridle.testing import FakeCli

LIMIT = 60.0

PROGRAM = """
import asyncio, gc, os, sys, warnings
import bridle

warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork, in newer Pythons

async def main():
    async with bridle.start_session(bridle.CliOptions(cli_path=sys.argv[1])) as session:
        await asyncio.to_thread(int)  # the child has to shut down an executor, too
        turn = await session.send_user_message("SLOW")
        child = os.fork()
        if not child:
            {child}
        status = await asyncio.to_thread(os.waitpid, child, 0)
        await session.interrupt()
        reason = (await turn).reason.value
        again = await (await session.send_user_message("hello"))
        print(os.waitstatus_to_exitcode(status[1]), reason, again.ok, flush=True)
    print("closed", session.lifecycle.value)

asyncio.run(main())
"""


@pytest.mark.longer(after=2)
@pytest.mark.parametrize(
    ("child", "status"),
    [
        ("os._exit(7)", 7),
        ("sys.exit(7)", 7),
        ("return", 0),
        ("raise SystemExit(3)", 3),
        ("await session.aclose(); return", 0),
        ("await session.stop(); return", 0),
        ("del session, turn; gc.collect(); return", 0),
    ],
)
def test_a_forked_child_leaves_the_session_of_its_parent_alone(child: str, status: int) -> None:
    with FakeCli.auto() as cli:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(child=child), cli.path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=LIMIT)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert (errors, process.returncode) == ("", 0)
    assert output == f"{status} interrupted True\nclosed stopped\n"
