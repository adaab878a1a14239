"""Talk to something other than the CLI through a transport of our own."""

import json

import anyio
from claude_agent_sdk import AssistantMessage, ResultMessage, Transport, query


class Echo(Transport):
    """Answers every prompt with its own words."""

    def __init__(self):
        self.send, self.receive = anyio.create_memory_object_stream(100)
        self.ready = self.ended = False

    async def connect(self):
        self.ready = True
        print("connect")

    def is_ready(self):
        return self.ready

    async def write(self, data):
        for line in data.splitlines():
            message = json.loads(line)
            if message["type"] == "control_request":
                print("asked", message["request"]["subtype"])
                answer = {"subtype": "success", "request_id": message["request_id"], "response": {}}
                await self.send.send({"type": "control_response", "response": answer})
            elif message["type"] == "user":
                said = message["message"]["content"]
                content = [{"type": "text", "text": said}]
                await self.send.send(
                    {"type": "assistant", "message": {"model": "echo", "content": content}}
                )
                await self.send.send(
                    {
                        "type": "result",
                        "subtype": "success",
                        "duration_ms": 1,
                        "duration_api_ms": 1,
                        "is_error": False,
                        "num_turns": 1,
                        "session_id": "echo",
                        "result": said,
                    }
                )

    async def read_messages(self):
        async with self.receive:
            async for message in self.receive:
                yield message

    async def end_input(self):
        self.ended = True  # before or after the answer
        await self.send.aclose()

    async def close(self):
        self.ready = False
        await self.send.aclose()
        print("close, input ended:", self.ended)


async def main():
    async for message in query(prompt="Hello?", transport=Echo()):
        if isinstance(message, AssistantMessage):
            print(message.model, message.content)
        elif isinstance(message, ResultMessage):
            print(message.result)


anyio.run(main)
