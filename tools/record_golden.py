"""Record golden transcripts of a real Claude Code CLI against a scripted API.

Usage::

    python tools/record_golden.py /path/to/claude [--out DIR] [--jobs N] [SCENARIO ...]

Every scenario of :mod:`golden_scenarios` (or those named) is played against the CLI and
written to ``<out>/<version>/<scenario>.ndjson``, one JSON object per line::

    {"t": seconds, "dir": "in" | "out" | "err" | "meta", "line": "..."}

``in`` is what was written to the CLI's stdin, ``out`` and ``err`` what it wrote.  ``meta``
lines (argv, requests seen by the scripted API, EOF, exit code) are for human readers; a
replayer skips them.  Temporary paths are replaced by fixed ones.

The CLI gets an explicit environment with a dummy key and a loopback API.  Where possible
run the recorder without a network at all::

    unshare -n sh -c 'ip link set lo up; exec python tools/record_golden.py ...'
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cli_session import Scenario, Session, Transcript
from golden_scenarios import SCENARIOS
from scripted_api import ScriptedApi

LINE_LIMIT = 1 << 26
BASE_ARGS = (
    "--output-format",
    "stream-json",
    "--input-format",
    "stream-json",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
    "--replay-user-messages",
    "--model",
    "claude-sonnet-4-5",
)
DUMMY_KEY = "dummy-key"


def environment(home: Path, scratch: Path, url: str, scenario: Scenario) -> dict[str, str]:
    """Return the whole environment of the CLI. Only PATH is inherited."""
    values: dict[str, str | None] = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "CLAUDE_CODE_TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": DUMMY_KEY,
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",
        **scenario.env,
    }
    return {name: value for name, value in values.items() if value is not None}


async def stop(process: asyncio.subprocess.Process, patience: float) -> int:
    """Wait for the CLI to exit. Then terminate it."""
    for nudge in (None, signal.SIGTERM, signal.SIGKILL):
        if nudge is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, nudge)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), patience)
    raise RuntimeError(f"process {process.pid} does not end")


async def record(cli: Path, scenario: Scenario, target: Path) -> str:
    """Run one scenario and write its transcript. Return a note for the console."""
    with tempfile.TemporaryDirectory(prefix="golden-") as made:
        root = Path(made).resolve()
        (root / "home" / "user" / "project").mkdir(parents=True)
        (root / "tmp").mkdir()
        dashed = re.sub(r"[^A-Za-z0-9]", "-", str(root))
        paths = [(str(cli), "/usr/local/bin/claude"), (f"{root}/", "/"), (f"{dashed}-", "-")]
        log = Transcript(paths)
        async with ScriptedApi(scenario.script, log.meta) as api:
            paths.append((f"127.0.0.1:{api.port}", "127.0.0.1:8080"))
            if scenario.after is not None:
                await play(cli, scenario.after, root, api, Transcript(paths))
            note, code = await play(cli, scenario, root, api, log)
        log.write(target)
        return f"{note} (exit {code})"


async def play(
    cli: Path, scenario: Scenario, root: Path, api: ScriptedApi, log: Transcript
) -> tuple[str, int]:
    """Run the CLI for one scenario. Return a note and the exit code."""
    note = "ok"
    home = root / "home" / "user"
    args = [*BASE_ARGS, *scenario.args]
    shown = {name: value or "" for name, value in scenario.env.items()}
    log.meta({"argv": ["claude", *args], "env": shown, "cwd": "/home/user/project"})
    process = await asyncio.create_subprocess_exec(
        str(cli),
        *args,
        cwd=home / "project",
        env=environment(home, root / "tmp", api.url, scenario),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    session = Session(scenario, process, log)
    readers = [
        asyncio.create_task(session.read_output(process.stdout)),
        asyncio.create_task(session.read_errors(process.stderr)),
    ]
    try:
        await asyncio.wait_for(scenario.play(session), scenario.timeout)
    except TimeoutError:
        note = "TIMEOUT"
        log.meta({"timeout": scenario.timeout})
    await session.eof()
    code = await stop(process, 15.0)
    await asyncio.gather(*readers)
    log.meta({"exit": code})
    return note, code


async def version_of(cli: Path) -> str:
    """Return the version that the CLI reports."""
    process = await asyncio.create_subprocess_exec(
        str(cli),
        "--version",
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": tempfile.gettempdir()},
    )
    output, _ = await process.communicate()
    return output.decode().split()[0]


async def record_all(
    cli: Path, scenarios: Sequence[Scenario], out: Path, jobs: int, rounds: int
) -> bool:
    """Record scenarios, ``jobs`` at a time. Return False if one of them timed out."""
    version = await version_of(cli)
    gate = asyncio.Semaphore(jobs)
    clean = True

    async def one(scenario: Scenario) -> None:
        nonlocal clean
        async with gate:
            for turn in range(rounds):
                name = scenario.name if turn == 0 else f"{scenario.name}.{turn + 1}"
                note = await record(cli, scenario, out / version / f"{name}.ndjson")
                clean = clean and note.startswith("ok")
                print(f"{version} {name}: {note}", flush=True)

    await asyncio.gather(*[one(scenario) for scenario in scenarios])
    return clean


def main() -> int:
    """Parse the command line and record."""
    parser = argparse.ArgumentParser(description="Record golden transcripts of the CLI.")
    parser.add_argument("cli", type=Path, help="the claude executable")
    parser.add_argument("scenario", nargs="*", help="names to record (default: all)")
    parser.add_argument("--out", type=Path, default=Path("tests/wire/golden"))
    parser.add_argument("--jobs", type=int, default=2, help="sessions at a time")
    parser.add_argument("--rounds", type=int, default=1, help="recordings of each scenario")
    options = parser.parse_intermixed_args()
    unknown = set(options.scenario) - SCENARIOS.keys()
    if unknown:
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    names = options.scenario or list(SCENARIOS)
    chosen = [SCENARIOS[name] for name in names]
    clean = asyncio.run(
        record_all(options.cli.resolve(), chosen, options.out, options.jobs, options.rounds)
    )
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
