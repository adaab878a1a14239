"""The API refuses the request."""

# model: [error(401, message="bad key")]

import anyio
from claude_agent_sdk import AssistantMessage, ResultError, ResultMessage, query


async def main():
    try:
        async for message in query(prompt="Hi"):
            if isinstance(message, AssistantMessage):
                print(message.error, message.model)
            elif isinstance(message, ResultMessage):
                print(message.subtype, message.is_error, message.api_error_status)
    except ResultError as problem:
        print(type(problem).__name__, problem)
        print(problem.subtype, problem.api_error_status, problem.exit_code, problem.result)


anyio.run(main)
