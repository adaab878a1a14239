"""What a session store adds to a turn of 1,000 messages on the real CLI.

    python bench/micro/mirroring.py

Every run is a new process with a session, a turn of 500 tool calls, and the close. A run without a
store and a run with a `SqliteStore` alternate. The figure that counts is the ratio of their CPU
times: user and system time of the program and of the CLI, which reports its transcript only if
there is a store. The model runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
REPLIES, CALLS = 5, 100
"""Each reply of the model calls so many tools. Each call is two messages."""

LIMIT = 1.10
"""The most CPU time that a turn with a store may take, as a multiple of one without."""


async def serve(directory: str) -> None:
    """Run the model until the input ends."""
    from bridle.testing import ScriptedModel, text, tool_use

    path = str(Path(directory) / "notes.txt")
    reply = [tool_use("Read", file_path=path) for _ in range(CALLS)]
    async with ScriptedModel([*([reply] * REPLIES), [text("done")]] * (2 * ROUNDS)) as model:
        print(json.dumps(model.env), flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measure(directory: str, cli: str, database: str) -> None:
    """Run one turn. Print the CPU time of the program alone, and with the CLI."""
    import bridle
    from bridle.sessions import SqliteStore

    store = SqliteStore(database) if database else None
    env = json.loads(sys.stdin.readline())
    async with bridle.start_session(
        cli_path=cli, env=env, cwd=directory, inherit_env=["PATH"], store=store
    ) as session:
        turn = await session.send_user_message("go")
        count = len([message async for message in turn])
    assert count >= 2 * REPLIES * CALLS, count
    if store is not None:
        [stored] = await store.list()
        assert stored.session_id == session.id
        await store.aclose()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, children = (usage.ru_utime + usage.ru_stime for usage in usages)
    print(json.dumps([own, own + children, count]))


def main() -> int:
    """Compare both, print the figures, and return 1 if the limit is passed."""
    from bridle._shell.locate import candidates

    cli = next(p.path for p in candidates() if os.path.exists(p.path))
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "notes.txt").write_text("a line of text\n" * 20)
        this = [sys.executable, __file__]
        model = subprocess.Popen(
            [*this, "model", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert model.stdout is not None
        env = model.stdout.readline()
        ratios: dict[str, list[float]] = {"program": [], "program and CLI": []}
        try:
            for number in range(ROUNDS):
                taken: dict[str, list[float]] = {}
                databases = ["", str(Path(directory) / f"{number}.db")]
                for database in databases[:: 1 if number % 2 else -1]:
                    job = [*this, "turn", directory, cli, database]
                    done = subprocess.run(job, input=env, capture_output=True, text=True)
                    assert done.returncode == 0, done.stderr
                    taken[database] = json.loads(done.stdout)
                plain, stored = (taken[database] for database in databases)
                for index, name in enumerate(ratios):
                    ratios[name].append(stored[index] / plain[index])
                print(f"  CPU s without {plain[0]:.2f} / {plain[1]:.2f}, ", end="")
                print(f"with {stored[0]:.2f} / {stored[1]:.2f} (program / with CLI)")
        finally:
            model.communicate()
    middle = {name: statistics.median(values) for name, values in ratios.items()}
    for name, ratio in middle.items():
        print(f"a turn of {2 * REPLIES * CALLS:,} messages, CPU of {name}: {ratio:.3f} x")
    return int(middle["program and CLI"] > LIMIT)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["model", directory]:
            asyncio.run(serve(directory))
        case ["turn", directory, cli, database]:
            asyncio.run(measure(directory, cli, database))
        case _:
            sys.exit(main())
