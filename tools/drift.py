"""Compare the newest CLI with the tested one: ``python tools/drift.py``, or ``make drift``.

The program installs the newest CLI and the newest claude-agent-sdk below ``.drift/``, in a virtual
environment of its own. It tries Bridle's promises on it, runs the suites that use a CLI, and runs
the same short sessions on both CLIs. ``.drift/report.md`` says what failed, and what is new, gone
or reworded. The program changes nothing else in the repository.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bridle
from bridle._engine.versions import TESTED
from bridle._process.locate import candidates
from bridle.testing import ModelRequest, Reply, ScriptedModel, text, tool_use
from bridle.testing.recording import Recorder, Recording, read_recording
from fetch_cli import fetch, package_name

REPOSITORY = Path(__file__).parent.parent
DRIFT = REPOSITORY / ".drift"
GOLDEN = REPOSITORY / "tests" / "wire" / "golden"
SUITES = ("tests/real", "tests/compat", "tests/wire")
_VARIABLES = re.compile(rb"\b(?:CLAUDE_CODE|CLAUDE|ANTHROPIC)_[A-Z0-9_]{3,60}\b")
_FLAG = re.compile(r"^\s+(?:-\w, )?(--[\w-]+)(?:,? [<\[\w].*?)?(?:\s{2,}(.*))?$")
_CHANGING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|/[\w./-]+|\b(?=\w*\d)\w{8,}\b|\d+(?:[.:,]\d+)*(?:Z\b)?"
)
_LISTS = re.compile(r"\[\](\.(name|value))?$")
_NAME = re.compile(r"[A-Za-z][\w.:/-]{1,60}")
_LISTED = 80


# ---------------------------------------------------------------- what a CLI says


@dataclass
class Shape:
    """The frames of a CLI: the fields of each kind, their types, and the texts in them."""

    #: Kind of frame → paths of its fields.
    fields: dict[str, set[str]] = field(default_factory=dict)
    #: Kind of frame and path → texts, without what differs between runs.
    texts: dict[str, set[str]] = field(default_factory=dict)
    #: Kind of frame and path → types of the values.
    types: dict[str, set[str]] = field(default_factory=dict)

    def add(self, kind: str, frame: Any) -> None:
        """Add a frame."""
        paths = self.fields.setdefault(kind, set())
        for path, value in _leaves(frame):
            paths.add(path)
            self.types.setdefault(f"{kind} {path}", set()).add(_type(value))
            if isinstance(value, str):
                words = _CHANGING.sub("#", value)
                self.texts.setdefault(f"{kind} {path}", set()).add(words)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, member in value.items():
            named = "*" if _CHANGING.fullmatch(str(name)) else name
            yield from _leaves(member, f"{path}.{named}" if path else named)
    elif isinstance(value, list):
        for member in value:
            yield from _leaves(member, f"{path}[]")
    else:
        yield path, value


def _type(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def shape_of(recordings: Iterable[Recording]) -> Shape:
    """Return the shape of everything that a CLI wrote in these recordings."""
    shape = Shape()
    for recording in recordings:
        asked: dict[str, str] = {}
        for entry in recording:
            frame: Any = entry.members
            if entry.direction == "in" and frame.get("type") == "control_request":
                asked[str(frame.get("request_id"))] = str(frame.get("request", {}).get("subtype"))
            elif entry.direction == "out" and frame:
                shape.add(_kind(frame, asked), frame)
            elif entry.direction == "err":
                shape.add("stderr", {"line": entry.line})
    return shape


def _kind(frame: Mapping[str, Any], asked: Mapping[str, str]) -> str:
    kind = str(frame.get("type"))
    if kind == "control_response":
        response = frame.get("response") or {}
        return f"reply to {asked.get(str(response.get('request_id')), 'an unknown request')}"
    if kind == "control_request":
        request = frame.get("request") or {}
        event = (request.get("input") or {}).get("hook_event_name", "")
        return " ".join(filter(None, ["request", str(request.get("subtype")), str(event)]))
    return f"{kind}/{frame['subtype']}" if isinstance(frame.get("subtype"), str) else kind


def flags_of(help_text: str) -> dict[str, str]:
    """Return the flags of ``claude --help`` with their descriptions."""
    found: dict[str, str] = {}
    current = ""
    for line in help_text.splitlines():
        match = _FLAG.match(line)
        if match:
            current = match[1]
            found[current] = (match[2] or "").strip()
        elif current and line.startswith(" " * 20) and line.strip():
            found[current] = f"{found[current]} {line.strip()}".strip()
        else:
            current = ""
    return found


def variables_of(binary: bytes) -> set[str]:
    """Return the names of environment variables in the bytes of a CLI."""
    return {name.decode() for name in _VARIABLES.findall(binary)}


# ---------------------------------------------------------------- what differs


def changes(title: str, old: Iterable[str], new: Iterable[str]) -> list[str]:
    """Return Markdown about the names that are new or gone; empty if there are none."""
    before, after = set(old), set(new)
    lines = [f"- new: `{name}`" for name in sorted(after - before)]
    lines += [f"- gone: `{name}`" for name in sorted(before - after)]
    return _section(title, lines)


def rewordings(
    title: str, old: Mapping[str, Iterable[str]], new: Mapping[str, Iterable[str]]
) -> list[str]:
    """Return Markdown about texts that differ although their place is the same."""
    lines: list[str] = []
    for place in sorted(old.keys() & new.keys()):
        before, after = set(old[place]), set(new[place])
        if before and after and not before & after:
            lines.append(f"- `{place}`: {_difference(min(before), min(after))}")
    return _section(title, lines)


def _difference(old: str, new: str) -> str:
    """Return both texts from the first place at which they differ, with a few words before it."""
    pairs = enumerate(zip(old, new, strict=False))
    same = next((place for place, (a, b) in pairs if a != b), min(len(old), len(new)))
    begin = max(0, same - 30)
    shown = [json.dumps(text[begin : begin + 120], ensure_ascii=False) for text in (old, new)]
    return " → ".join(shown)


def _type_changes(old: Shape, new: Shape) -> list[str]:
    """Return Markdown about fields whose values never have a type that they had."""
    lines = [
        f"- `{place}`: {' or '.join(sorted(old.types[place]))} → "
        f"{' or '.join(sorted(new.types[place]))}"
        for place in sorted(old.types.keys() & new.types.keys())
        if not old.types[place] & new.types[place]
    ]
    return _section("Types", lines)


def _names(shape: Shape, kinds: Iterable[str]) -> set[str]:
    """Return the names in lists, such as those of tools, commands and capabilities."""
    return {
        f"{place}: {text}"
        for kind in kinds
        for place, texts in shape.texts.items()
        if place.startswith(f"{kind} ") and _LISTS.search(place)
        for text in texts
        if _NAME.fullmatch(text)
    }


def _section(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    rest = [f"- and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return [f"### {title}", "", *lines[:_LISTED], *rest, ""]


def compare(old: Shape, new: Shape) -> list[str]:
    """Return Markdown about the frames, fields and texts that differ."""
    both = sorted(old.fields.keys() & new.fields.keys())
    return [
        *changes("Frames and control replies", old.fields, new.fields),
        *changes(
            "Fields",
            (f"{kind}: {path}" for kind in both for path in old.fields[kind]),
            (f"{kind}: {path}" for kind in both for path in new.fields[kind]),
        ),
        *_type_changes(old, new),
        *changes("Names in lists", _names(old, both), _names(new, both)),
        *rewordings("Texts", old.texts, new.texts),
    ]


# ---------------------------------------------------------------- short sessions


async def probe(cli_path: str, directory: Path) -> Shape:
    """Run short sessions on a CLI, and return the shape of what it said."""
    work = directory / "work"
    work.mkdir(parents=True)

    def reply(request: ModelRequest) -> Reply:
        if not request.tools:
            return Reply(blocks=(text("<summary>nothing</summary>"),))
        results = len(request.tool_results)
        task = {"description": "look", "prompt": "look", "subagent_type": "general-purpose"}
        calls = [
            tool_use("Write", file_path=str(work / "note.txt"), content="text"),
            tool_use("Bash", command="exit 3", description="fail"),
            tool_use("Task", run_in_background=False, **task),
        ]
        if request.agent_id is None and results < len(calls) and request.last_user_text == "go":
            return Reply(blocks=(calls[results],))
        return Reply(blocks=(text("done"),))

    async def ask(name: str, **options: Any) -> None:
        async with ScriptedModel(reply, tolerate_rejected=True) as model:
            given: dict[str, Any] = {
                "cli_path": cli_path,
                "env": model.env,
                "cwd": str(work),
                "model": "claude-sonnet-4-5",
                "inherit_env": ["PATH"],
                "recorder": Recorder(directory / f"{name}.ndjson"),
                "include_partial_messages": True,
                **options,
            }
            try:
                async with asyncio.timeout(60), bridle.start_session(**given) as session:
                    await (await session.send_user_message("go"))
                    for subtype in CONTROLS:
                        try:
                            await session.control(subtype, timeout=10.0)
                        except bridle.ControlError:
                            continue
                    await (await session.send_user_message("/compact"))
            except (bridle.BridleError, TimeoutError) as problem:
                print(f"session {name!r}: {type(problem).__name__}", file=sys.stderr)

    hooks = {event: [bridle.Hook(lambda _: None)] for event in EVENTS}
    await ask("work", hooks=hooks, on_can_use_tool=lambda _: bridle.Allow())
    await ask("denied")
    await ask("missing", resume_session_id="5a6f0c1e-0000-4000-8000-000000000001")
    await ask("plan", permission_mode="plan", file_checkpointing_enabled=True)
    return shape_of(read_recording(path) for path in sorted(directory.glob("*.ndjson")))


EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "PermissionRequest",
)
CONTROLS = (
    "get_usage",
    "get_session_cost",
    "get_context_usage",
    "get_status",
    "get_settings",
    "mcp_status",
    "no_such_request",
)


# ---------------------------------------------------------------- recorded sessions


def recorded(cli: Path, directory: Path) -> tuple[Shape, Shape]:
    """Record the sessions of `tests/wire/golden` anew. Return the old shape and the new one.

    Each is compared with its recording of the newest CLI that has one.
    """
    shutil.rmtree(directory, ignore_errors=True)
    _checked([sys.executable, "tools/record_golden.py", str(cli), "--out", str(directory)])
    known: dict[str, Path] = {}
    for path in sorted(GOLDEN.glob("*/*.ndjson"), key=lambda path: _numbers(path.parent.name)):
        known[path.name] = path
    made = [path for path in sorted(directory.glob("*/*.ndjson")) if path.name in known]
    old = shape_of(read_recording(known[path.name]) for path in made)
    return old, shape_of(read_recording(path) for path in made)


# ---------------------------------------------------------------- the newest CLI


def _run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})}
    return subprocess.run(words, cwd=REPOSITORY, text=True, env=environment, check=False, **options)


def _checked(words: list[str]) -> str:
    done = _run(words, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def bundled(python: Path) -> Path:
    """Return the CLI in the claude-agent-sdk that an interpreter has."""
    program = "import claude_agent_sdk as sdk, os; print(os.path.dirname(sdk.__file__))"
    return Path(_checked([str(python), "-c", program]).strip()) / "_bundled" / "claude"


def install(drift: Path) -> tuple[Path, str]:
    """Install the newest CLI and SDK. Return the interpreter and the version of the CLI.

    If the npm package is newer than the CLI of the SDK, it replaces that CLI in this environment.
    """
    python = drift / "venv" / "bin" / "python"
    if not python.exists():
        _checked([sys.executable, "-m", "venv", str(drift / "venv")])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    constraints = drift / "constraints.txt"
    pinned = (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines()
    kept = [line for line in pinned if not line.startswith("claude-agent-sdk")]
    constraints.write_text("\n".join(kept), "utf-8")
    _checked([*pip, "--upgrade", "--constraint", str(constraints), "pip"])
    _checked([*pip, "--constraint", str(constraints), "--group", "dev", "--editable", "."])
    _checked([*pip, "--upgrade", "claude-agent-sdk"])
    cli = bundled(python)
    version = version_of(cli)
    if shutil.which("npm"):
        newest = _checked(["npm", "view", package_name(), "version"]).strip()
        if _numbers(newest) > _numbers(version):
            shutil.copyfile(fetch(newest, drift), cli)
            version = newest
    return python, version


def version_of(cli: Path | str) -> str:
    """Return the version that a CLI prints."""
    return _checked([str(cli), "--version"]).split()[0]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _tested_cli() -> Path:
    wheels = (Path(one.path) for one in candidates() if one.origin == "claude-agent-sdk")
    return next(path for path in wheels if path.exists())


def _tree() -> str:
    """Return what is changed in the repository, also within files that were changed before."""
    return _checked(["git", "status", "--porcelain"]) + _checked(["git", "diff", "HEAD"])


# ---------------------------------------------------------------- the report


def _outcome(name: str, done: subprocess.CompletedProcess[str]) -> list[str]:
    tail = "\n".join((done.stdout or done.stderr).strip().splitlines()[-25:])
    verdict = "passed" if done.returncode == 0 else f"**failed** (exit code {done.returncode})"
    return [f"### {name}: {verdict}", "", "```text", tail, "```", ""]


def _suites(python: Path, *, long: bool) -> Iterator[list[str]]:
    """Run `bridle verify`, the suites and `make surface`. Yield Markdown about each of them."""
    done = _run([str(python), "-m", "bridle", "verify"], capture_output=True)
    yield _outcome("bridle verify", done)
    for suite in SUITES if long else SUITES[-1:]:
        words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "3"]
        # The tests of the pinned versions cannot pass with newer ones.
        words += ["-m", "not pinned", suite]
        yield _outcome(suite, _run(words, capture_output=True))
    done = _run([str(python), "tools/surface.py", "--newest"], capture_output=True)
    yield _outcome("make surface NEWEST=1", done)


def write_report(path: Path, lines: list[str], rest: Iterable[str] = ()) -> None:
    """Replace the report. It is written after each step, because the suites take long."""
    path.write_text("\n".join([*lines, *rest]), "utf-8")


def main() -> int:
    """Write the report. Return 1 if the repository was changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-install", action="store_true", help="use what .drift/ has already")
    parser.add_argument("--no-suites", action="store_true", help="compare the two CLIs only")
    parser.add_argument(
        "--short", action="store_true", help="leave out the recordings, tests/real and tests/compat"
    )
    parser.add_argument("--cli", type=Path, help="the CLI to compare, in place of the newest one")
    options = parser.parse_args()
    DRIFT.mkdir(exist_ok=True)
    before = _tree()
    python = DRIFT / "venv" / "bin" / "python"
    if options.cli:
        python, new = Path(sys.executable), options.cli
    elif options.no_install:
        new = bundled(python)
    else:
        python, _ = install(DRIFT)
        new = bundled(python)
    old = _tested_cli()
    versions = [version_of(old), version_of(new)]
    report = [f"# CLI {versions[1]} compared with {versions[0]}", ""]
    report += [f"The newest tested CLI is {TESTED}.", ""]
    with tempfile.TemporaryDirectory(prefix="bridle-drift-", ignore_cleanup_errors=True) as made:
        places = {"old": old, "new": new}
        shapes = [asyncio.run(probe(str(cli), Path(made) / n)) for n, cli in places.items()]
    flags = [flags_of(_checked([str(cli), "--help"])) for cli in (old, new)]
    variables = [variables_of(cli.resolve().read_bytes()) for cli in (old, new)]
    report += ["## What differs", "", *compare(*shapes)]
    report += changes("Flags", *flags)
    described = [{flag: [words] for flag, words in one.items()} for one in flags]
    report += rewordings("Descriptions of flags", *described)
    report += changes("Variables in the program", *variables)
    path = DRIFT / "report.md"
    write_report(path, report, ["The program still runs, or was interrupted here."])
    if not options.short and not options.no_suites:
        report += [
            "## What differs in recorded sessions",
            "",
            *compare(*recorded(new, DRIFT / "golden")),
        ]
    if not options.no_suites and not options.cli:
        report += ["## What was run", ""]
        for part in _suites(python, long=not options.short):
            report += part
            write_report(path, report, ["The program still runs, or was interrupted here."])
    is_changed = _tree() != before
    if is_changed:
        report += ["**The repository was changed meanwhile.**", ""]
    write_report(path, report)
    print(path)
    return int(is_changed)


if __name__ == "__main__":
    sys.exit(main())
