"""A CLI that records how it was started and what it reads, for any SDK that speaks the protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = r"""#!/bin/sh
# Records arguments, environment, working directory, documents and input beside this file.
# Answers every control request, and every prompt with a result. Exits when its input ends.
here=${0%/*}
case $1 in -v | --version) echo '2.1.326 (Claude Code)'; exit ;; esac
pwd -P > "$here/cwd"
env -0 > "$here/environ"
printf '%s\0' "$@" > "$here/argv"
flag=
for word in "$@"; do
    case $word in
        --settings | --mcp-config) flag=$word; continue ;;
        --settings=* | --mcp-config=*) flag=${word%%=*}; word=${word#*=} ;;
    esac
    # A private file is gone when the process has ended, so its content is copied.
    if [ -n "$flag" ] && [ -f "$word" ]; then cat "$word" > "$here/document$flag"; fi
    flag=
done
while IFS= read -r line; do
    printf '%s\n' "$line" >> "$here/stdin"
    id=${line#*'"request_id":'}
    id=${id#*'"'}
    id=${id%%'"'*}
    case $line in
        *'"control_request"'*)
            printf '{"type":"control_response","response":{"subtype":"success",'
            printf '"request_id":"%s","response":{"claude_code_version":"2.1.326",' "$id"
            printf '"hook_on_failure_supported":true,"hooks_applied":true,'
            printf '"commands":[],"capabilities":[],"mcpServers":[]}}}\n' ;;
        *)
            printf '{"type":"result","subtype":"success","is_error":false,"result":"done",'
            printf '"duration_ms":1,"duration_api_ms":1,"num_turns":1,"total_cost_usd":0,'
            printf '"session_id":"00000000-0000-4000-8000-000000000000"}\n' ;;
    esac
done
"""


@dataclass(frozen=True)
class Recorded:
    """How a CLI was started, and what was written to its input."""

    arguments: list[str]
    environ: dict[str, str]
    cwd: str
    documents: dict[str, Any]  # the content of files that arguments name, by flag
    requests: list[dict[str, Any]]  # control requests, in order
    prompts: list[dict[str, Any]]  # user lines, in order


class RecordingCli:
    """One executable, for one start. It writes its records into its own directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self.path = directory / "claude"
        self.path.write_text(SCRIPT)
        self.path.chmod(0o755)

    def recorded(self) -> Recorded:
        """Return the records, after the process has ended."""
        lines = [json.loads(line) for line in self._read("stdin").splitlines()]
        variables = (item.partition("=") for item in self._read("environ").split("\0")[:-1])
        return Recorded(
            arguments=self._read("argv").split("\0")[:-1],
            environ={name: value for name, _, value in variables},
            cwd=self._read("cwd").rstrip("\n"),
            documents={
                path.name.removeprefix("document"): json.loads(path.read_text("utf-8"))
                for path in self._directory.glob("document--*")
            },
            requests=[line["request"] for line in lines if line["type"] == "control_request"],
            prompts=[line for line in lines if line["type"] == "user"],
        )

    def _read(self, name: str) -> str:
        return (self._directory / name).read_text("utf-8")
