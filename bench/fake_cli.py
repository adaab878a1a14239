"""The CLI of the benchmarks. It writes bytes that were prepared before, in large chunks.

    python -I -S fake_cli.py PLAN [what a CLI is called with]

The plan is a JSON file that says what happens after a prompt: see `ACTS`. This program must never
make the other side wait. It finds frames in the input by their bytes and answers with templates;
it parses only the handshake. It needs only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Plan = dict[str, Any]

VERSION = "2.1.326 (Claude Code)"
READ = 1 << 16

WARM_UP = b'"warm up"'
"""A prompt that is answered at once, with only the init message and the result."""

REQUEST_ID = re.compile(rb'"request_id":\s*"([^"]+)"')
UUID = re.compile(rb'"uuid":\s*"([^"]+)"')
SESSION_ID = re.compile(rb'"session_id":\s*"[^"]*"')
ANSWER = (
    b'{"type":"control_response","response":'
    b'{"subtype":"success","request_id":"%s","response":{}}}\n'
)


class Input:
    """The lines of the client, read with as few copies as possible."""

    def __init__(self) -> None:
        self._rest = b""

    def __iter__(self) -> Iterator[bytes]:
        while (line := self.line()) is not None:
            yield line

    def line(self) -> bytes | None:
        """Return the next line; None at the end."""
        while b"\n" not in self._rest:
            data = os.read(0, READ)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def write(data: bytes) -> None:
    """Write all data, in as many writes as the pipe needs."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


# ---------------------------------------------------------------- what happens after a prompt


def stream(plan: Plan, source: Input, hook: bytes) -> None:
    """Write the payload `repeats` times, as fast as it is read."""
    with open(plan["payload"], "rb") as file:
        block = file.read()
    for _ in range(plan["repeats"]):
        write(block)


def pace(plan: Plan, source: Input, hook: bytes) -> None:
    """Write `rate` lines of the payload per second, for `seconds`."""
    with open(plan["payload"], "rb") as file:
        line = file.readline()
    start = time.perf_counter()
    for number in range(int(plan["rate"] * plan["seconds"])):
        wait = start + number / plan["rate"] - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        write(line)


def ask(plan: Plan, source: Input, hook: bytes) -> None:
    """Send requests one after the other. Write the time of each response to the report."""
    for opening in plan["opening"]:
        write(opening.encode() + b"\n")
        source.line()
    template = plan["question"].encode().replace(b"HOOK", hook) + b"\n"
    before, after = template.split(b"NUMBER")
    taken: list[int] = []
    for number in range(plan["count"]):
        if plan["gap"]:
            time.sleep(plan["gap"])
        question = before + b"%d" % number + after
        start = time.perf_counter_ns()
        os.write(1, question)
        answer = source.line()
        taken.append(time.perf_counter_ns() - start)
        if (
            answer is None
            or b'"ask-%d"' % number not in answer
            or plan["expect"] not in str(answer)
        ):
            raise SystemExit(f"question {number} was answered with {answer!r}")
    with open(plan["report"], "w") as report:
        json.dump(taken, report)


def flood(plan: Plan, source: Input, hook: bytes) -> None:
    """Write the payload repeatedly, up to `limit` bytes. Report how much was written."""
    with open(plan["payload"], "rb") as file:
        block = file.read()
    report = os.open(plan["report"], os.O_WRONLY | os.O_CREAT)
    os.set_blocking(1, False)
    written = 0
    while written < plan["limit"]:
        readable, writable, _ = select.select([0], [1], [])
        if readable and not os.read(0, READ):  # the client is gone
            return
        if writable:
            written += os.write(1, block[written % len(block) :])
            os.pwrite(report, b"%d" % written, 0)


def rest(plan: Plan, source: Input, hook: bytes) -> None:
    """Write nothing after the init message."""


ACTS: dict[str, Callable[[Plan, Input, bytes], None]] = {
    "stream": stream,
    "pace": pace,
    "ask": ask,
    "flood": flood,
    "rest": rest,
}


# ---------------------------------------------------------------- handshake and main loop


def greet(line: bytes) -> bytes:
    """Answer initialize. Return the id of its hook."""
    frame = json.loads(line)
    answer = {
        "subtype": "success",
        "request_id": frame["request_id"],
        "response": {
            "commands": [],
            "models": [],
            "account": {},
            "output_style": "default",
            "available_output_styles": ["default"],
            "capabilities": ["fake"],
        },
    }
    write(json.dumps({"type": "control_response", "response": answer}).encode() + b"\n")
    hooks = frame["request"].get("hooks") or {}
    for matchers in hooks.values():
        for matcher in matchers:
            for name in matcher["hookCallbackIds"]:
                return str(name).encode()
    return b""


def main(path: str, arguments: list[str]) -> None:
    """Print the version, or serve the client until the input ends."""
    if arguments in (["--version"], ["-v"]):
        print(VERSION)
        return
    with open(path, "rb") as file:
        plan: Plan = json.load(file)
    act, hook, source = ACTS[plan["act"]], b"", Input()
    head, result = plan["head"].encode(), plan["result"].encode()
    for argument in arguments:
        if argument.startswith("--session-id="):
            # As a CLI does: Bridle locks the session that the CLI reports.
            own = argument.removeprefix("--session-id=").encode()
            head = SESSION_ID.sub(b'"session_id":"%s"' % own, head)
    for line in source:
        if b'"control_request"' not in line:
            if b'"control_response"' not in line:
                found = UUID.search(line)
                write(head.replace(b"PROMPT", found[1] if found else b""))
                if WARM_UP not in line:
                    act(plan, source, hook)
                write(result)
        elif b'"initialize"' in line:
            hook = greet(line)
        elif (found := REQUEST_ID.search(line)) is not None:
            write(ANSWER % found[1])


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
