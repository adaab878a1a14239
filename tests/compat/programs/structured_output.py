"""Get an answer that fits a schema."""

# model: [[tool_use("StructuredOutput", name="Bella", age=7)], [text("Done.")]]
# in any order: tools, because the drop-in does not pass the schema as an argument of the CLI.

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


async def main():
    options = ClaudeAgentOptions(output_format={"type": "json_schema", "schema": SCHEMA})
    async for message in query(prompt="Describe the horse.", options=options):
        if isinstance(message, ResultMessage):
            print(message.subtype, message.structured_output)


anyio.run(main)
