"""Small programs that play the CLI, and what a process object tells about them."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bridle._process.launch.plan import Launch
from bridle._process.process import CliProcess

LIMIT = 60.0
"""Seconds after which a test that waits for something fails. It may take long on a busy machine."""

Result = TypeVar("Result")

PLAIN = Launch(
    argv=(),
    env={},
    unset_env=(),
    inherit_env=True,
    cwd=None,
    files=(),
    initialize={},
    session_id=None,
)


def plan(**changes: Any) -> Launch:
    """A launch without arguments, but for the changes."""
    return msgspec.structs.replace(PLAIN, **changes)


class Recorder:
    """Keeps what a process tells, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.output = bytearray()

    def received(self, data: bytes) -> None:
        self.output += data
        self.log.append(("received", bytes(data)))

    def output_ended(self) -> None:
        self.log.append(("output_ended", None))

    def wrote_stderr(self, line: str) -> None:
        self.log.append(("wrote_stderr", line))

    def exited(self, exit_code: int | None) -> None:
        self.log.append(("exited", exit_code))

    def input_failed(self, reason: str) -> None:
        self.log.append(("input_failed", reason))

    def all(self, kind: str) -> list[Any]:
        """What was told of one kind."""
        return [value for name, value in self.log if name == kind]

    @property
    def has_exited(self) -> bool:
        return bool(self.all("exited"))

    @property
    def is_over(self) -> bool:
        """Nothing more will be told."""
        return self.has_exited and bool(self.all("output_ended"))


class Programs:
    """Writes executable programs into a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str, mode: int = 0o755) -> str:
        path = self.directory / name
        path.write_text(text, "utf-8")
        path.chmod(mode)
        return str(path)

    def python(self, source: str, name: str = "program") -> str:
        """An executable Python program with the usual imports."""
        imports = "import os, signal, subprocess, sys, time"
        return self.write(name, f"#!{sys.executable} -IS\n{imports}\n{source}\n")

    def shell(self, source: str, name: str = "program") -> str:
        """An executable shell script."""
        return self.write(name, f"#!/bin/sh\n{source}\n")


def run(main: Callable[[], Coroutine[Any, Any, Result]], timeout: float = 3 * LIMIT) -> Result:
    """Run a test's coroutine, for at most this many seconds."""

    async def bounded() -> Result:
        async with asyncio.timeout(timeout):
            return await main()

    return asyncio.run(bounded())


async def until(condition: Callable[[], Awaitable[object] | object], limit: float = LIMIT) -> Any:
    """Wait until a condition holds, for at most this many seconds, and return what it returned.

    The condition may be a coroutine function. The first looks are one iteration of the loop apart.
    A condition that takes long to evaluate is evaluated less often.
    """
    async with asyncio.timeout(limit):
        for look in itertools.count():
            began = time.thread_time()
            found = condition()
            result = await found if isinstance(found, Awaitable) else found
            if result:
                return result
            await asyncio.sleep(0.005 + 4 * (time.thread_time() - began) if look > 9 else 0)
    raise AssertionError  # not reached


async def until_on_trio(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, on trio or asyncio."""
    import anyio

    with anyio.fail_after(LIMIT):
        while not condition():
            await anyio.sleep(0.001)


def wait_until(condition: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait until a condition holds, where no loop is running."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def open_descriptors() -> set[str]:
    """The descriptors of this process."""
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


async def run_to_end(executable: str, launch: Launch = PLAIN, data: bytes = b"") -> Recorder:
    """Run a program, feed it, and return what it told when it is over and closed."""
    recorder = Recorder()
    process = CliProcess.spawn(executable, launch, recorder)
    try:
        if data:
            process.write(data)
        process.end_input()
        await until(lambda: recorder.is_over)
    finally:
        await process.aclose()
    return recorder
