"""Without asyncio: the same names in `bridle.sync`, and they block.

For scripts, notebooks, task queues, views of a web framework: from any thread, with or without an
event loop running in it.

$ python examples/sync_script.py
"""

from bridle import CliOptions, sync


def main() -> None:
    outcome = sync.run("Pick a number between 1 and 9. Answer with the number alone.")
    number = outcome.raise_for_reason().text

    with sync.start_session(CliOptions(include_partial_messages=True)) as session:
        for prompt in (f"Remember the number {number}.", "What is it, doubled?"):
            turn = session.send_user_message(prompt)
            for piece in turn.text_stream():
                print(piece, end="", flush=True)
            print(f"  [{turn.outcome().reason}]")


if __name__ == "__main__":
    main()
