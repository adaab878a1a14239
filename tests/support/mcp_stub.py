"""An external MCP server on stdio: the tool `echo`, and the resource `ui://stub/page`."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
        case "resources/list":
            return {"resources": [{"uri": "ui://stub/page", "name": "page"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "mimeType": "text/html", "text": "<p>"}]}
        case _:
            return {}


def main() -> None:
    """Answer every request on stdin."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params") or {})
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
