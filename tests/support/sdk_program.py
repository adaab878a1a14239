"""Run a program that uses the official SDK, on one of two implementations, and record its messages.

``python -m tests.support.sdk_program official|drop-in asyncio|trio PROGRAM RECORD``

The program is run as it is. ``drop-in`` calls `bridle.compat.install()` first. ``trio`` makes
`anyio.run` use trio. RECORD receives every message that the program took, one JSON object a line.
Before each text that the program prints is the name of the function that printed it.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import importlib
import json
import runpy
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TextIO

import anyio

PRINTS = "\x02"
"""Stands around the name of a function that prints."""

_PARTS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
"""Names of parts of functions."""


def as_json(value: Any) -> Any:
    """Return a message as JSON, with the name of each class."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: as_json(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {"class": type(value).__name__, **fields}
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, enum.Enum)):
        return value
    return f"{type(value).__name__} object"


class Recorder:
    """Writes each message once, even if one recorded iterator reads from another."""

    def __init__(self, record: TextIO) -> None:
        self._record = record
        self._last: object = None

    def watch(self, place: Any, name: str) -> None:
        """Record what the async iterator that this function returns yields."""
        original: Callable[..., AsyncIterator[Any]] = getattr(place, name)

        @functools.wraps(original)
        async def watched(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
            stream: Any = original(*arguments, **options)
            try:
                async for message in stream:
                    self._write(message)
                    yield message
            finally:
                if hasattr(stream, "aclose"):
                    await stream.aclose()

        setattr(place, name, watched)

    def _write(self, message: object) -> None:
        if message is not self._last:
            self._last = message
            print(json.dumps(as_json(message)), file=self._record, flush=True)


def name_the_functions_that_print() -> None:
    """Let `print` write the name of the function that calls it before each text."""
    plain: Callable[..., None] = builtins.print

    def named(*values: object, file: TextIO | None = None, **options: Any) -> None:
        if file is None:
            caller = sys._getframe(1)
            while caller.f_back is not None and caller.f_code.co_name in _PARTS:
                caller = caller.f_back
            plain(PRINTS, caller.f_code.co_name, PRINTS, sep="", end="")
        plain(*values, file=file, **options)

    setattr(builtins, "print", named)  # noqa: B010  # mypy


def main(implementation: str, backend: str, program: str, record: str) -> None:
    """Run the program."""
    if implementation == "drop-in":
        importlib.import_module("bridle.compat").install()
    if backend == "trio":
        setattr(anyio, "run", functools.partial(anyio.run, backend="trio"))  # noqa: B010  # mypy
    sdk = importlib.import_module("claude_agent_sdk")
    name_the_functions_that_print()
    with Path(record).open("w", encoding="utf-8") as opened:
        recorder = Recorder(opened)
        recorder.watch(sdk, "query")
        recorder.watch(sdk.ClaudeSDKClient, "receive_messages")
        recorder.watch(sdk.ClaudeSDKClient, "receive_response")
        sys.argv = [program]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
