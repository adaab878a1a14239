"""Send two prompts through an async generator."""

# model: [[text("Hello Ada.")], [text("You are Ada.")]]

import anyio
from claude_agent_sdk import AssistantMessage, ResultMessage, query

answered = None


def user(text):
    return {"type": "user", "message": {"role": "user", "content": text}}


async def prompts():
    yield user("My name is Ada.")
    await answered.wait()
    yield user("What is my name?")


async def main():
    global answered
    answered = anyio.Event()
    async for message in query(prompt=prompts()):
        if isinstance(message, AssistantMessage):
            print(message.content[0].text)
        elif isinstance(message, ResultMessage):
            print(message.subtype)
            answered.set()


anyio.run(main)
