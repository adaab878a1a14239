"""Require that Bridle's promises hold on the CLI before a worker takes runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from bridle._spi import find_cli
from bridle.errors import UnverifiedCliError
from bridle.fleet._waiting import in_thread
from bridle.options import CliOptions
from bridle.testing.verifications import Verification, decode_verification, stored_verification

_TIMEOUT = 600.0
"""Seconds for all promises. On a healthy machine they take about half a minute."""

_GRACE = 10.0
"""Seconds that the process has to end after SIGTERM."""


async def verified_cli(cli: CliOptions) -> str:
    """Return the path of the CLI of these options, with links resolved.

    Unless a result of ``bridle verify`` in which all promises hold is stored for this CLI, it is
    run first, in a process of its own. Cancellation ends that process.

    Raises:
        CliNotFoundError: there is no CLI.
        SpawnError: the CLI cannot be executed.
        UnverifiedCliError: a promise does not hold, or they could not be tried.
    """
    path = os.path.realpath(find_cli(None if cli.cli_path is None else os.fspath(cli.cli_path)))
    found = await in_thread(stored_verification, path)
    if found is None or not found.holds:
        found = await _verify(path)
    if not found.holds:
        raise UnverifiedCliError(path, found.cli_version, [one.id for one in found.failed])
    return path


async def _verify(path: str) -> Verification:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bridle", "verify", "--json", "--cli", path),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    output = b""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                output, _ = await process.communicate()
    finally:
        await _end(process)
    try:
        return decode_verification(output)
    except msgspec.MsgspecError:
        raise UnverifiedCliError(path, None, []) from None


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process with its group, unless it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await process.wait()
