"""Text as the model writes it, and an interrupt when there is enough of it.

An interrupted turn ends with an outcome like any other, and the conversation goes on.

$ python examples/streaming_text.py
"""

import asyncio

import bridle

ENOUGH = 400  # characters


async def main() -> None:
    cli = bridle.CliOptions(include_partial_messages=True)  # pieces instead of whole paragraphs
    async with bridle.start_session(cli) as session:
        turn = await session.send_user_message("Tell me a long story about a horse.")
        length = 0
        async for piece in turn.text_stream():
            print(piece, end="", flush=True)
            length += len(piece)
            if length >= ENOUGH:
                await session.interrupt()
                break
        outcome = await turn
        print(f"\n[{outcome.reason} after {length} characters]")

        turn = await session.send_user_message("Thank you. End it in one sentence.")
        async for piece in turn.text_stream():
            print(piece, end="", flush=True)
        print(f"\n[{(await turn).reason}]")


if __name__ == "__main__":
    asyncio.run(main())
