"""Use Bridle without asyncio: `bridle.sync` has the same names, and they block.

This is for scripts, notebooks, task queues and views of a web framework. You can call it from any
thread, with or without a running event loop.

$ python examples/sync_script.py
"""

from bridle import CliOptions, sync


def main() -> None:
    outcome = sync.run("Pick a number between 1 and 9. Answer with the number alone.")
    number = outcome.raise_for_reason().text

    with sync.start_session(CliOptions(include_partial_messages=True)) as session:
        for prompt in (f"Remember the number {number}.", "What is it, doubled?"):
            turn = session.send_user_message(prompt)
            for delta in turn.text_stream():
                print(delta, end="", flush=True)
            print(f"  [{turn.outcome().reason}]")


if __name__ == "__main__":
    main()
