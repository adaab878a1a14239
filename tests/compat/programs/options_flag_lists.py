"""Flags in extra_args that add to the lists of options, and flags that replace a value."""

# model: [[text("One.")], [text("Two.")], [text("Three.")], [text("Four.")]]

import json

import anyio
from claude_agent_sdk import ClaudeAgentOptions, SystemMessage, query


def server(name):
    return {name: {"command": "/no/such/program"}}


async def main():
    with open("servers.json", "w") as file:
        json.dump({"mcpServers": server("from_file")}, file)
    for options in (
        {"disallowed_tools": ["Bash"], "extra_args": {"disallowedTools": "Write"}},
        {"tools": ["Read"], "extra_args": {"tools": "Grep,Glob"}},
        {"mcp_servers": server("mine"), "extra_args": {"mcp-config": "servers.json"}},
        {
            "mcp_servers": server("mine"),
            "extra_args": {"mcp-config": json.dumps({"mcpServers": server("text")})},
        },
    ):
        options["extra_args"]["strict-mcp-config"] = None
        async for message in query(prompt="Hi", options=ClaudeAgentOptions(**options)):
            if isinstance(message, SystemMessage) and message.subtype == "init":
                tools = ("Bash", "Write", "Read", "Grep", "Glob")
                print([name for name in tools if name in message.data["tools"]])
                print(sorted(one["name"] for one in message.data["mcp_servers"]))


anyio.run(main)
