"""Run one program on the official SDK and on the drop-in, and bring what it did into one form.

A run has three parts: what the program printed, the messages it received, and the requests that
reached the model. `normalised` replaces what differs between two runs of the same implementation:
ids, paths, times. Equal ids stay equal: the first id of a run becomes `<id 1>`, and so on.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sdk_program import PRINTS

import bridle.testing
from bridle._process.locate import VARIABLE, candidates
from bridle.testing import FORBID_REAL_API, ScriptedModel

REPOSITORY = Path(__file__).parents[2]
OLDER_CLI = REPOSITORY / ".clis" / "2.1.197" / "claude"
TIMEOUT = 600.0
"""Seconds that a program may run. It is only reached if the program hangs."""

_WORDS = {name: getattr(bridle.testing, name) for name in bridle.testing.__all__}


# ---------------------------------------------------------------- programs


@dataclass(frozen=True)
class Program:
    """A program, and the replies of the model that its comment `# model: ...` holds."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Program:
        """Read a program."""
        return cls(path, path.read_text("utf-8"))

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return self.path.stem

    @property
    def backends(self) -> list[str]:
        """The backends that the program runs on: `anyio.run` can use either."""
        return ["asyncio", "trio"] if "anyio.run(" in self.text else ["asyncio"]

    @property
    def not_compared(self) -> set[str]:
        """The parts of a run that differ on purpose: `# not compared: messages, because ...`.

        "error texts" are the contents of tool results that are errors.
        """
        return self._parts("not compared")

    @property
    def in_any_order(self) -> set[str]:
        """The lists whose order differs on purpose: `# in any order: tools, because ...`."""
        return self._parts("in any order")

    def _parts(self, title: str) -> set[str]:
        lines = re.findall(rf"^# {title}: (.*?), because ", self.text, re.MULTILINE)
        return {part for line in lines for part in line.split(" and ")}

    def model(self) -> ScriptedModel:
        """Return a new model with the replies of the program."""
        lines = re.findall(r"^# model:(.*(?:\n#   .*)*)", self.text, re.MULTILINE)
        options = re.findall(r"^# model options:(.*)", self.text, re.MULTILINE)
        script = "".join(re.sub(r"\n#   ", "\n", one) for one in lines).strip() or "[]"
        given = eval(f"dict({options[0] if options else ''})", dict(_WORDS))
        return ScriptedModel(eval(script, dict(_WORDS)), **given)

    def main_functions(self) -> set[str]:
        """Return `main` and the functions that it calls. The others are callbacks."""
        tree = ast.parse(self.text)
        functions = {
            node.name: node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        found = {"<module>"}
        names = {"main", *_called(node for node in tree.body if not isinstance(node, _DEFINES))}
        while names := {name for name in names if name in functions} - found:
            found |= names
            names = set(_called(functions[name] for name in names))
        return found

    def uses(self) -> set[str]:
        """Return the names that the program imports from the official SDK."""
        return {
            alias.name
            for node in ast.walk(ast.parse(self.text))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("claude_agent")
            for alias in node.names
        }


_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _called(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names of the functions that this code calls."""
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id


# ---------------------------------------------------------------- running


@dataclass(frozen=True)
class Run:
    """What one run did. `stderr` is for people; the rest is compared."""

    exit_code: int
    printed: dict[str, list[str]]
    messages: list[Any]
    requests: list[Any]
    stderr: str

    @property
    def compared(self) -> dict[str, Any]:
        """Return the parts that must be equal. Those that are not compared are empty."""
        return {
            "exit code": self.exit_code,
            "printed": self.printed,
            "messages": self.messages,
            "requests": self.requests,
        }


def difference(ours: Run, official: Run) -> str:
    """Return the lines of JSON that differ; "" if nothing does."""
    theirs, mine = (
        json.dumps(one.compared, indent=1, sort_keys=True).splitlines() for one in (official, ours)
    )
    return "\n".join(difflib.unified_diff(theirs, mine, "official", "drop-in", lineterm="", n=2))


def newest_cli() -> Path | None:
    """Return the CLI inside the wheel of the official SDK, which both implementations use."""
    wheels = (Path(place.path) for place in candidates() if place.origin == "claude-agent-sdk")
    return next((path for path in wheels if path.exists()), None)


def run(
    program: Program, implementation: str, backend: str, place: Path, cli: Path | None = None
) -> Run:
    """Run a program in a directory of its own, and return what it did, normalised.

    ``cli`` is the CLI of the drop-in. Default: the newest one, which the official SDK always uses.
    """
    work, record = place / "work", place / "messages.ndjson"
    work.mkdir(parents=True)
    (work / "notes.txt").write_text("Saddles are in aisle 7.\n")
    with program.model() as model:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.support.sdk_program"),
                *(implementation, backend, str(program.path), str(record)),
            ],
            cwd=work,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(REPOSITORY),
                **model.env,
                VARIABLE: str(cli or newest_cli()),
                FORBID_REAL_API: "1",
                "CLAUDE_AGENT_SDK_CLIENT_APP": "tests/1.0",
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        lines = record.read_text("utf-8").splitlines() if record.exists() else []
        found: dict[str, Any] = {
            "printed": printed(done.stdout, program.main_functions()),
            "messages": [json.loads(line) for line in lines],
            "requests": [
                {"betas": one.headers.get("anthropic-beta", ""), **one.raw}
                for one in model.requests
            ],
        }
        # Parts that are not compared would use up ids.
        found |= {part: [] for part in found.keys() & program.not_compared}
        if "error texts" in program.not_compared:
            found = _without_error_texts(found)
        found = _sorted_lists(found, program.in_any_order)
        places = {
            str(model.home): "<home>",
            str(work): "<work>",
            model.url.removeprefix("http://"): "<api>",
        }
    return Run(exit_code=done.returncode, stderr=done.stderr, **normalised(found, places))


def printed(text: str, main: Collection[str]) -> dict[str, list[str]]:
    """Separate what callbacks printed: they run beside the loop that reads the messages."""
    pieces = text.split(PRINTS)
    found: dict[str, list[str]] = {"main": pieces[0].splitlines(), "callbacks": []}
    for name, said in zip(pieces[1::2], pieces[2::2], strict=True):
        found["main" if name in main else "callbacks"] += said.splitlines()
    return found


def _sorted_lists(value: Any, names: Collection[str]) -> Any:
    """Return the same JSON with the lists of these names in an order that ids do not decide."""
    if isinstance(value, dict):
        return {
            key: sorted(item, key=lambda one: _IDS.sub("", json.dumps(one)))
            if key in names and isinstance(item, list)
            else _sorted_lists(item, names)
            for key, item in value.items()
        }
    return [_sorted_lists(item, names) for item in value] if isinstance(value, list) else value


def _without_error_texts(value: Any) -> Any:
    """Return the same JSON without the contents of tool results that are errors."""
    if isinstance(value, dict):
        hidden = {"content"} if value.get("is_error") and "tool_use_id" in value else set[str]()
        if str(value.get("tool_use_result")).startswith("Error"):
            hidden.add("tool_use_result")
        return {
            key: "<error text>" if key in hidden else _without_error_texts(item)
            for key, item in value.items()
        }
    return [_without_error_texts(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- one form

_IDS = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # uuids
    r"|\b(?:msg|toolu|req)_[0-9a-f]{8,}"  # of the scripted model
    r"|\b[0-9a-f]{64}\b|\ba[0-9a-f]{16}\b|\b0[0-9a-z]{8}-[0-9a-f]{8}\b"  # machine, tasks, runs
    r"|(?<=/cc-socks/)\d+(?=\.sock)|(?<=/plans/)[a-z-]+(?=\.md)|(?<=-blob-)\d+-\w+"  # files
)
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_DURATIONS = re.compile(r"(duration_ms: )\d+")
_MEASURED = {
    *("duration_ms", "duration_api_ms", "totalDurationMs", "ttft_ms", "ttft_stream_ms"),
    *("time_to_request_ms", "start_time", "end_time", "last_modified"),
}
"""Numbers that a run measures. Their value is replaced, whatever the key belongs to."""


TOLERATED = {
    "user_message_uuid": "Bridle names each prompt, and the CLI repeats the name in some messages.",
    "user_message_uuids": "Bridle names each prompt, and the CLI repeats the name in init.",
}
"""Fields that only the drop-in's messages have, with the reason."""


def normalised(found: Any, places: dict[str, str]) -> Any:
    """Return the same JSON without what differs between two runs."""
    text = json.dumps(_without(found, TOLERATED))
    for path, name in places.items():
        text = text.replace(path, name)
        text = text.replace(re.sub(r"[^0-9A-Za-z]", "-", path), f"{name} as a key")
    # The official SDK resumes from a store in a temporary configuration directory.
    text = re.sub(r"<home>/claude-resume-\w+", "<home>/.claude", text)
    # Bridle passes settings in a private file.
    text = re.sub(r'("flagSettings": )"<home>/bridle-\w+"', r'\1"<work>"', text)
    seen: dict[str, str] = {}
    text = _IDS.sub(lambda match: seen.setdefault(match[0], f"<id {len(seen) + 1}>"), text)
    text = _DURATIONS.sub(r"\1<measured>", _TIMES.sub("<time>", text))
    return _without_measurements(json.loads(text))


def _without(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, names) for key, item in value.items() if key not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _without_measurements(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "<measured>"
            if key in _MEASURED and isinstance(item, int | float)
            else _without_measurements(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_measurements(item) for item in value]
    return value
