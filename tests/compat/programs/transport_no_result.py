"""A transport that ends after a message, without a result: the loop ends."""

# model: []

import json

import anyio
from claude_agent_sdk import ClaudeSDKClient, Transport


class Process(Transport):
    def __init__(self):
        self.send, self.receive = anyio.create_memory_object_stream(100)

    async def connect(self): ...

    async def write(self, data):
        line = json.loads(data)
        if line["type"] == "control_request":
            answer = {"subtype": "success", "request_id": line["request_id"], "response": {}}
            await self.send.send({"type": "control_response", "response": answer})
        if line["type"] == "user":
            content = [{"type": "text", "text": "hello"}]
            message = {"role": "assistant", "model": "m", "content": content}
            await self.send.send({"type": "assistant", "message": message})
            self.send.close()

    async def read_messages(self):
        async for one in self.receive:
            yield one

    async def close(self): ...

    def is_ready(self):
        return True

    async def end_input(self): ...


async def main():
    async with ClaudeSDKClient(transport=Process()) as client:
        await client.query("Hi.")
        async for message in client.receive_messages():
            print(type(message).__name__)
        print("ended")


anyio.run(main)
