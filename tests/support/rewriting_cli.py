"""A CLI between Bridle and another CLI that changes what both say: words, fields and replies.

It stands for a CLI of the future. The script is one executable file that needs only Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SCRIPT = r'''#!{python} -IS
"""Run {real} and rewrite the lines in both directions."""
import json
import os
import signal
import subprocess
import sys
import threading

REAL = {real!r}
RULES = json.loads({rules!r})

child = subprocess.Popen(
    [REAL, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
)
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
asked = {{}}  # the subtype of each control request
lock = threading.Lock()


def write(stream, line):
    with lock:
        stream.write(line)
        stream.flush()


def reworded(line):
    for old, new in RULES["words"].items():
        line = line.replace(old.encode(), new.encode())
    return line


def parsed(line):
    try:
        frame = json.loads(line)
    except ValueError:
        return {{}}
    return frame if isinstance(frame, dict) else {{}}


def renamed(value, names):
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {{names.get(name, name): renamed(item, names) for name, item in value.items()}}
    return {{name: item for name, item in kept.items() if name is not None}}


def fixed(value, values):
    if isinstance(value, list):
        return [fixed(item, values) for item in value]
    if not isinstance(value, dict):
        return value
    return {{name: values.get(name, fixed(item, values)) for name, item in value.items()}}


def to_cli():
    for line in sys.stdin.buffer:
        frame = parsed(line)
        if frame.get("type") == "control_request":
            subtype = frame["request"].get("subtype")
            asked[frame["request_id"]] = subtype
            if subtype in RULES["ignored"]:
                continue
            if subtype in RULES["rejected"]:
                error = {{"request_id": frame["request_id"], "error": RULES["rejected"][subtype]}}
                reply = {{"type": "control_response", "response": {{"subtype": "error", **error}}}}
                write(sys.stdout.buffer, json.dumps(reply).encode() + b"\n")
                continue
        try:
            write(child.stdin, line)
        except BrokenPipeError:
            break
    try:
        child.stdin.close()
    except BrokenPipeError:
        pass


def from_cli():
    for line in child.stdout:
        frame = parsed(line)
        reply = frame.get("response") if frame.get("type") == "control_response" else None
        subtype = asked.get(reply["request_id"]) if reply else None
        names, values = RULES["renamed"].get(subtype), RULES["fixed"].get(subtype)
        if names is not None or values is not None:
            changed = fixed(reply.get("response"), values or {{}})
            reply["response"] = renamed(changed, names or {{}})
            line = json.dumps(frame).encode() + b"\n"
        write(sys.stdout.buffer, reworded(line))


def errors():
    for line in child.stderr:
        write(sys.stderr.buffer, reworded(line))


threading.Thread(target=to_cli, daemon=True).start()
told = [threading.Thread(target=target) for target in (from_cli, errors)]
for thread in told:
    thread.start()
for thread in told:
    thread.join()
code = child.wait()
os._exit(code if code >= 0 else 128 - code)  # the thread that reads the input cannot be joined
'''


def rewriting_cli(
    path: Path,
    real: str | Path,
    *,
    words: Mapping[str, str] | None = None,
    renamed: Mapping[str, Mapping[str, str | None]] | None = None,
    fixed: Mapping[str, Mapping[str, object]] | None = None,
    rejected: Mapping[str, str] | None = None,
    ignored: Sequence[str] = (),
) -> str:
    """Write the script to ``path`` and return it as text, for ``CliOptions.cli_path``.

    Args:
        path: where the executable is written.
        real: the CLI that does the work.
        words: texts to replace in everything that the CLI writes, standard error included.
        renamed: new names of fields in the replies to control requests, by subtype. None removes
            the field.
        fixed: values that fields always have in the replies to control requests, by subtype.
        rejected: control requests that are answered with this error.
        ignored: control requests that are never answered.
    """
    rules = {
        "words": dict(words or {}),
        "renamed": {subtype: dict(names) for subtype, names in (renamed or {}).items()},
        "fixed": {subtype: dict(values) for subtype, values in (fixed or {}).items()},
        "rejected": dict(rejected or {}),
        "ignored": list(ignored),
    }
    script = SCRIPT.format(python=sys.executable, real=str(real), rules=json.dumps(rules))
    path.write_text(script, "utf-8")
    path.chmod(0o755)
    return str(path)
