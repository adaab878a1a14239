"""Stop hooks that fail, or answer asynchronously: the turn ends."""

# model: [*([text(f"Answer {number}.")] for number in range(4))]
# not compared: messages, because Bridle logs the exception and the CLI gets no error.

import anyio
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, ResultMessage, query

calls = []


async def broken(input_data, tool_use_id, context):
    calls.append("broken")
    raise KeyError("oops")


async def later(input_data, tool_use_id, context):
    calls.append("later")
    return {"async_": True, "decision": "block", "reason": "Log it."}


async def main():
    matchers = [HookMatcher(hooks=[broken], on_failure="block"), HookMatcher(hooks=[later])]
    options = ClaudeAgentOptions(hooks={"Stop": matchers})
    async for message in query(prompt="Hi.", options=options):
        if isinstance(message, ResultMessage):
            print(message.subtype, message.result)
    print(sorted(calls))


anyio.run(main)
