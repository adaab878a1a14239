"""Print text while the model writes it, and interrupt the turn when there is enough.

An interrupted turn has an outcome like any other turn. The session continues.

$ python examples/streaming_text.py
"""

import asyncio

import bridle

ENOUGH = 400  # characters


async def main() -> None:
    agent = bridle.Agent(include_partial_messages=True)  # deltas while the model writes
    async with agent.session() as session:
        turn = await session.send_user_message("Tell me a long story about a horse.")
        length = 0
        async for delta in turn.text_stream():
            print(delta, end="", flush=True)
            length += len(delta)
            if length >= ENOUGH:
                await session.interrupt()
                break
        outcome = await turn
        print(f"\n[{outcome.reason} after {length} characters]")

        turn = await session.send_user_message("Thank you. End it in one sentence.")
        async for delta in turn.text_stream():
            print(delta, end="", flush=True)
        print(f"\n[{(await turn).reason}]")


if __name__ == "__main__":
    asyncio.run(main())
