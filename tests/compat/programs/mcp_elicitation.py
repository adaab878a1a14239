"""A server asks the user for data. No hook answers, so the elicitation is cancelled."""

# model: [[tool_use("mcp__forms__ask")], [text("Nobody answered.")]]

import sys
from pathlib import Path

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, UserMessage

SERVER = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}
RESULTS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "forms", "version": "1"}},
    "tools/list": {"tools": [{"name": "ask", "description": "Ask the user",
                              "inputSchema": {"type": "object", "properties": {}}}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/call":
        call = asked["id"]
        send(id="form", method="elicitation/create", params=FORM)
    elif asked.get("id") == "form":
        answer = {"type": "text", "text": json.dumps(asked["result"])}
        send(id=call, result={"content": [answer]})
    elif "id" in asked:
        send(id=asked["id"], result=RESULTS.get(asked["method"], {}))
"""


async def main():
    Path("server.py").write_text(SERVER)
    options = ClaudeAgentOptions(
        mcp_servers={"forms": {"type": "stdio", "command": sys.executable, "args": ["server.py"]}},
        allowed_tools=["mcp__forms__ask"],
        strict_mcp_config=True,
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Ask.")
        async for message in client.receive_response():
            if isinstance(message, UserMessage):
                print(message.content[0].content)


anyio.run(main)
