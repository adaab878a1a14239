"""A bare pipe: blocking reads, nothing decoded but what the handshake needs.

On the fake CLI it tells how fast that one can be read at all; on the real CLI, how long the CLI
itself takes to start, to answer and to leave.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import IO, cast

from bench.jobs import Job, main

_READ = 1 << 16
_INITIALIZE = {
    "type": "control_request",
    "request_id": "req_0",
    "request": {"subtype": "initialize"},
}


class Driver:
    """See `bench.jobs.Driver`. It blocks, so it is alone in its process."""

    _process: subprocess.Popen[bytes]

    async def open(self, job: Job, cli: str) -> None:
        environ = {**os.environ, **(job.get("env") or {})}
        self._process = subprocess.Popen(
            [cli, *job.get("arguments", ())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environ,
            cwd=job.get("cwd"),
        )
        self._output = cast("IO[bytes]", self._process.stdout).fileno()
        self._write(_INITIALIZE)
        self._read_up_to("control_response")

    async def ask(self, prompt: str = "go") -> None:
        message = {"role": "user", "content": prompt}
        self._write({"type": "user", "message": message, "session_id": ""})

    async def first(self) -> None:
        os.read(self._output, _READ)

    async def read(self) -> int:
        return self._read_up_to("result")

    async def outcome(self) -> None:
        await self.ask()
        await self.read()

    async def operate(self) -> None:
        request = {"subtype": "set_model", "model": "sonnet"}
        self._write({"type": "control_request", "request_id": "req_1", "request": request})
        self._read_up_to("control_response")

    async def close(self) -> None:
        cast("IO[bytes]", self._process.stdin).close()
        while os.read(self._output, _READ):
            pass
        self._process.wait()
        cast("IO[bytes]", self._process.stdout).close()

    async def drop(self) -> None:
        self._process.kill()
        await self.close()

    def _write(self, frame: object) -> None:
        os.write(
            cast("IO[bytes]", self._process.stdin).fileno(), json.dumps(frame).encode() + b"\n"
        )

    def _read_up_to(self, kind: str) -> int:
        """Read until the last line there is is of that kind; how many lines it were."""
        count, tail = 0, b""
        while True:
            data = os.read(self._output, _READ)
            if not data:
                raise EOFError(f"the CLI ended before a {kind}")
            count += data.count(b"\n")
            tail = tail[-_READ:] + data
            if data.endswith(b"\n") and _kind(tail[:-1].rpartition(b"\n")[2]) == kind:
                return count


def _kind(line: bytes) -> object:
    try:
        return json.loads(line)["type"]
    except ValueError:  # only the end of a long line, so none that is waited for
        return None


if __name__ == "__main__":
    main(Driver)
