"""Use a tool first, then answer in a shape; the first try does not fit the schema."""

# model: [[tool_use("Read", file_path="notes.txt")], [tool_use("StructuredOutput", aisle="seven")],
#   [tool_use("StructuredOutput", aisle=7)], [text("Done.")]]
# in any order: tools, because the drop-in does not pass the schema as an argument of the CLI.

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

SCHEMA = {
    "type": "object",
    "properties": {"aisle": {"type": "integer"}},
    "required": ["aisle"],
    "additionalProperties": False,
}


async def main():
    options = ClaudeAgentOptions(
        allowed_tools=["Read"], output_format={"type": "json_schema", "schema": SCHEMA}
    )
    async for message in query(prompt="Where are the saddles?", options=options):
        if isinstance(message, ResultMessage):
            print(message.structured_output, message.num_turns)


anyio.run(main)
