"""A CLI between Bridle and another CLI that breaks or changes what both say.

The script is one executable file that needs only Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SCRIPT = r'''#!{python} -IS
import json, os, signal, subprocess, sys, threading, time

def to_cli(frame): return [frame]
def from_cli(frame): return [frame]
def argv(words): return words
def stderr(line): return line
lock = threading.Lock()

def answer(frame, **response):
    """Tell Bridle that its request succeeded."""
    reply = {{"subtype": "success", "request_id": frame["request_id"], "response": response}}
    pass_on(sys.stdout.buffer, {{"type": "control_response", "response": reply}})

def reject(frame, error):
    """Tell Bridle that its request failed."""
    reply = {{"subtype": "error", "request_id": frame["request_id"], "error": error}}
    pass_on(sys.stdout.buffer, {{"type": "control_response", "response": reply}})

def tell_cli(frame, **response):
    """Tell the CLI that its request succeeded."""
    reply = {{"subtype": "success", "request_id": frame["request_id"], "response": response}}
    pass_on(child.stdin, {{"type": "control_response", "response": reply}})

def subtype(frame):
    is_request = frame.get("type") == "control_request"
    return frame["request"].get("subtype") if is_request else None

{breakage}

child = subprocess.Popen([{real!r}, *argv(sys.argv[1:])], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
signal.signal(signal.SIGTERM, lambda *_: child.terminate())

def pass_on(stream, frame):
    with lock:
        stream.write(json.dumps(frame).encode() + b"\n")
        stream.flush()

def pump(source, target, change):
    try:
        for line in source:
            try:
                frames = change(json.loads(line))
            except ValueError:
                with lock:
                    target.write(line)
                    target.flush()
                continue
            for frame in frames:
                pass_on(target, frame)
        target.close()
    except OSError:
        pass

def errors():
    for line in child.stderr:
        sys.stderr.write(stderr(line.decode("utf-8", "replace")))
        sys.stderr.flush()

threading.Thread(target=pump, args=(sys.stdin.buffer, child.stdin, to_cli), daemon=True).start()
readers = [threading.Thread(target=pump, args=(child.stdout, sys.stdout.buffer, from_cli)),
           threading.Thread(target=errors)]
for reader in readers:
    reader.start()
for reader in readers:
    reader.join()
code = child.wait()
os._exit(code if code >= 0 else 128 - code)
'''


def sabotaged_cli(path: Path, real: str | Path, breakage: str) -> str:
    """Write the executable to ``path`` and return it as text, for ``cli_path``.

    ``breakage`` is Python code that may define ``to_cli(frame)`` and ``from_cli(frame)``, which
    return the frames to pass on, ``argv(words)`` and ``stderr(line)``.
    """
    script = SCRIPT.format(python=sys.executable, real=str(real), breakage=breakage)
    path.write_text(script, "utf-8")
    path.chmod(0o755)
    return str(path)


REWRITING = r"""
RULES = json.loads({rules!r})
asked = {{}}  # the subtype of each control request

def reworded(text):
    for old, new in RULES["words"].items():
        text = text.replace(old, new)
    return text

def changed(value, names, values):
    if isinstance(value, list):
        return [changed(item, names, values) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {{name: values[name] if name in values else changed(item, names, values)
            for name, item in value.items()}}
    renamed = {{names.get(name, name): item for name, item in kept.items()}}
    return {{name: item for name, item in renamed.items() if name is not None}}

def to_cli(frame):
    kind = subtype(frame)
    if kind is not None:
        asked[frame["request_id"]] = kind
    if kind in RULES["rejected"]:
        reject(frame, RULES["rejected"][kind])
    return [] if kind in RULES["rejected"] or kind in RULES["ignored"] else [frame]

def from_cli(frame):
    reply = frame["response"] if frame.get("type") == "control_response" else {{}}
    kind = asked.get(reply.get("request_id"))
    if kind in RULES["renamed"] or kind in RULES["fixed"]:
        names, values = RULES["renamed"].get(kind, {{}}), RULES["fixed"].get(kind, {{}})
        reply["response"] = changed(reply.get("response"), names, values)
    return [json.loads(reworded(json.dumps(frame)))]

def stderr(line):
    return reworded(line)
"""


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
    """Write a CLI that says the same in other words or fields, and return it as text.

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
    return sabotaged_cli(path, real, REWRITING.format(rules=json.dumps(rules)))
