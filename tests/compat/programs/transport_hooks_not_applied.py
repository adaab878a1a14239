"""A process that says that it did not register the hooks: the client does not connect."""

# model: []

import json

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, Transport


class Process(Transport):
    def __init__(self):
        self.send, self.receive = anyio.create_memory_object_stream(100)

    async def connect(self): ...

    async def write(self, data):
        line = json.loads(data)
        if line["type"] == "control_request":
            told = {"hook_on_failure_supported": True, "hooks_applied": False}
            answer = {"subtype": "success", "request_id": line["request_id"], "response": told}
            await self.send.send({"type": "control_response", "response": answer})

    async def read_messages(self):
        async for one in self.receive:
            yield one

    async def close(self):
        self.send.close()

    def is_ready(self):
        return True

    async def end_input(self):
        self.send.close()


async def guard(input_data, tool_use_id, context):
    return {}


async def main():
    for event in ("PreToolUse", "PreCompact", "PreModelSwitch"):
        hooks = {event: [HookMatcher(hooks=[guard], on_failure="block")]}
        try:
            with anyio.fail_after(20):
                async with ClaudeSDKClient(ClaudeAgentOptions(hooks=hooks), transport=Process()):
                    print("connected")
        except Exception as error:
            print(type(error).__name__)


anyio.run(main)
