"""What a session store adds to a turn of 1,000 messages on the real CLI.

    python bench/micro/mirroring.py

There are two turns: a text in 1,000 deltas, and 500 tool calls. With a store, the CLI reports its
transcript in both. In the second, each call is also written to the journal before it runs.

Every run is a new process with a session, a turn and the close. A run without a store and a run
with a `SqliteStore` alternate. The figure that counts is the ratio of their CPU times: user and
system time of the program and of the CLI. The model runs in a process of its own.
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

ROUNDS = 5
DELTAS = 1000
REPLIES, CALLS = 5, 100
"""Each reply of the model calls so many tools. Each call is two messages."""

TURNS = {"deltas": "1,000 deltas", "calls": "500 tool calls"}

LIMIT = 1.10
"""The most CPU time that a turn with a store may take, as a multiple of one without."""


async def serve(directory: str, turn: str) -> None:
    """Run the model until the input ends."""
    from bridle.testing import ScriptedModel, text, tool_use

    path = str(Path(directory) / "notes.txt")
    calls = [tool_use("Read", file_path=path) for _ in range(CALLS)]
    replies = {
        "deltas": [[text("some words " * DELTAS, chunks=DELTAS)]],
        "calls": [*([calls] * REPLIES), [text("done")]],
    }
    async with ScriptedModel(replies[turn] * (2 * ROUNDS)) as model:
        print(json.dumps(model.env), flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measure(directory: str, turn_name: str, cli: str, database: str) -> None:
    """Run one turn. Print the CPU time of the program alone, and with the CLI."""
    import bridle
    from bridle.sessions import SqliteStore

    store = SqliteStore(database) if database else None
    env = json.loads(sys.stdin.readline())
    async with bridle.start_session(
        cli_path=cli,
        env=env,
        cwd=directory,
        inherit_env=["PATH"],
        include_partial_messages=turn_name == "deltas",
        store=store,
    ) as session:
        turn = await session.send_user_message("go")
        count = len([message async for message in turn])
    assert count >= 1000, count
    if store is not None:
        [stored] = await store.list()
        assert stored.session_id == session.id
        await store.aclose()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, children = (usage.ru_utime + usage.ru_stime for usage in usages)
    print(json.dumps([own, own + children, count]))


def compare(turn: str, cli: str) -> float:
    """Compare both, print the figures, and return the ratio that counts."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "notes.txt").write_text("a line of text\n" * 20)
        this = [sys.executable, __file__]
        model = subprocess.Popen(
            [*this, "model", directory, turn],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert model.stdout is not None
        env = model.stdout.readline()
        taken: dict[bool, list[list[float]]] = {False: [], True: []}
        try:
            for number in range(ROUNDS):
                for has_store in (False, True) if number % 2 else (True, False):
                    database = str(Path(directory) / f"{number}.db") if has_store else ""
                    job = [*this, "turn", directory, turn, cli, database]
                    done = subprocess.run(job, input=env, capture_output=True, text=True)
                    assert done.returncode == 0, done.stderr
                    taken[has_store].append(json.loads(done.stdout))
        finally:
            model.communicate()
    ratio = 0.0
    for index, name in enumerate(("program", "program and CLI")):
        plain, stored = (
            statistics.median(run[index] for run in taken[has_store]) for has_store in (False, True)
        )
        ratio = stored / plain
        print(
            f"{TURNS[turn]}, CPU of {name}: {plain:.2f} s without a store, "
            f"{stored:.2f} s with one, {ratio:.3f} x"
        )
    return ratio


def main() -> int:
    """Compare both turns. Return 1 if one passes the limit."""
    from bridle._process.locate import candidates

    cli = next(p.path for p in candidates() if os.path.exists(p.path))
    return int(max([compare(turn, cli) for turn in TURNS]) > LIMIT)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["model", directory, turn]:
            asyncio.run(serve(directory, turn))
        case ["turn", directory, turn, cli, database]:
            asyncio.run(measure(directory, turn, cli, database))
        case _:
            sys.exit(main())
