"""The whole of a program that asks one thing: with a pipe and nothing else."""

import json
import os
import resource
import subprocess
import sys

job = json.load(sys.stdin)
prompt = {"type": "user", "message": {"role": "user", "content": "Say ok."}, "session_id": ""}
text = None
with subprocess.Popen(
    [job["cli"], *job["arguments"]],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    env={**os.environ, **job["env"]},
    cwd=job["cwd"],
) as process:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(prompt).encode() + b"\n")
    process.stdin.close()
    for line in process.stdout:
        message = json.loads(line)
        if message["type"] == "result":
            text = message["result"]
assert text == "ok"
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
