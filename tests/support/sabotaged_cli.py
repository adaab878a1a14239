"""A CLI between Bridle and a real CLI that breaks something, to see a promise fail.

The breakage is Python code that may define ``to_cli(frame)`` and ``from_cli(frame)``, which return
the frames to pass on, ``argv(words)`` and ``stderr(line)``.
"""

from __future__ import annotations

import sys
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
    """Write the executable to ``path`` and return it as text, for ``cli_path``."""
    script = SCRIPT.format(python=sys.executable, real=str(real), breakage=breakage)
    path.write_text(script, "utf-8")
    path.chmod(0o755)
    return str(path)
