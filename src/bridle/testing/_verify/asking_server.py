"""A small MCP server over standard input and output, for promises about such servers."""

from __future__ import annotations

import sys
from pathlib import Path

# Its one tool returns a text, or asks the user for a name and returns the answer.
_PROGRAM = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def answer(number, words):
    send(id=number, result={"content": [{"type": "text", "text": words}]})

call = None
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "form", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        send(id=number, result=result)
    elif method == "tools/list":
        tool = {"name": "ask", "description": "Asks.", "inputSchema": {"type": "object"}}
        send(id=number, result={"tools": [tool]})
    elif method == "tools/call" and sys.argv[1] == "plain":
        answer(number, "plain")
    elif method == "tools/call":
        call = number
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = {"message": "Your name?", "requestedSchema": schema}
        send(id="question", method="elicitation/create", params=params)
    elif number == "question":
        answer(call, json.dumps(message.get("result"), sort_keys=True))
    elif number is not None:
        send(id=number, result={})
"""


def server_config(directory: Path, *, asks: bool) -> dict[str, object]:
    """Write the server to a directory and return its entry for ``mcp_config``."""
    program = directory / "server.py"
    program.write_text(_PROGRAM, "utf-8")
    words = [str(program), "asks" if asks else "plain"]
    return {"type": "stdio", "command": sys.executable, "args": words}
