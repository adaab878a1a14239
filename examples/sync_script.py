"""Use Bridle without asyncio: the methods of `agent.sync` block.

This is for scripts, notebooks, task queues and views of a web framework. You can call it from any
thread, with or without a running event loop.

$ python examples/sync_script.py
"""

import bridle


def main() -> None:
    agent = bridle.Agent(include_partial_messages=True).sync
    outcome = agent.run("Pick a number between 1 and 9. Answer with the number alone.")
    number = outcome.raise_for_reason().text

    with agent.session() as session:
        for prompt in (f"Remember the number {number}.", "What is it, doubled?"):
            turn = session.send_user_message(prompt)
            for delta in turn.text_stream():
                print(delta, end="", flush=True)
            print(f"  [{turn.outcome().reason}]")


if __name__ == "__main__":
    main()
