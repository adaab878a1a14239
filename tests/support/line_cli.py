"""A CLI of a few lines, for what real CLIs do rarely. It answers each line of its input."""

from __future__ import annotations

import sys
from pathlib import Path

TEXT = """#!{python}
import json, os, sys

if sys.argv[1] in ("-v", "--version"):
    print("2.1.326 (Claude Code)")
    sys.exit()

def say(**members):
    print(json.dumps(members), flush=True)

def answer(request, **response):
    say(type="control_response", response={{"request_id": request["request_id"], **response}})

def result(**members):
    say(type="result", subtype="success", is_error=False, result="done", duration_ms=1,
        duration_api_ms=1, num_turns=1, session_id="s", **members)

with open("pids", "a") as pids:
    print(os.getpid(), file=pids)
for line in sys.stdin:
    asked = json.loads(line)
    kind = asked.get("request", {{}}).get("subtype", asked["type"])
{behaviour}
    if kind == "initialize":
        answer(asked, subtype="success", response={{"capabilities": []}})
    elif kind == "user":
        with open("prompts", "a") as prompts:
            print(asked["message"]["content"], file=prompts)
        result()
    else:
        answer(asked, subtype="error", error="not today")
"""


def line_cli(directory: Path, behaviour: str = "") -> Path:
    """Write a CLI that runs `behaviour` for each line first, and return its path.

    `behaviour` can use `asked` (the line), `kind` (its subtype or type), `say`, `answer` and
    `result`.
    """
    path = directory / "claude"
    lines = "".join(f"    {line}\n" for line in behaviour.splitlines())
    path.write_text(TEXT.format(python=sys.executable, behaviour=lines))
    path.chmod(0o755)
    return path
