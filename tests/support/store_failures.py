"""Sessions on the real CLI whose store fails in the middle of a turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.processes import until
from tests.support.servers import PostgresServer, RedisServer
from tests.support.stores import Store

import bridle
from bridle._records.session_store import SessionKey
from bridle.events import SdkWarning
from bridle.testing import ScriptedModel, text, tool_use

if TYPE_CHECKING:
    from tests.real.conftest import Lab

Server = PostgresServer | RedisServer


class Machine:
    """A home and a working directory of their own."""

    def __init__(self, lab: Lab, model: ScriptedModel, name: str) -> None:
        self.home = lab.work.parent / f"home-{name}"
        work = lab.work.parent / f"work-{name}"
        for directory in (self.home, work):
            directory.mkdir(exist_ok=True)
        config = {"HOME": str(self.home), "CLAUDE_CONFIG_DIR": str(self.home / ".claude")}
        self.options: dict[str, Any] = {
            "cli_path": lab.cli_path,
            "env": {**model.env, **config},
            "cwd": str(work),
            "inherit_env": ["PATH"],
        }

    def saved(self) -> list[str]:
        """The uuids of the messages in the transcript file of the CLI."""
        [file] = (self.home / ".claude").glob("projects/*/*.jsonl")
        entries = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        return [one["uuid"] for one in entries if one["type"] in ("user", "assistant")]


async def run_while_away(
    lab: Lab,
    store: Store,
    state: Path,
    *,
    leave: Callable[[], None],
    come_back: Callable[[], None] | None,
    seconds: float,
    call: float,
) -> tuple[Machine, str, list[str]]:
    """Run one turn with tool calls, during which the server is away for some seconds.

    Args:
        lab: which CLI to use.
        store: the store of the session.
        state: the directory with the spool files.
        leave: makes the server stop.
        come_back: makes the server work again. None if it stays away.
        seconds: how long the server is away. Tool calls go on for as long.
        call: how long one tool call takes, in seconds.

    Returns:
        The machine, the id of the session, and the details of the warnings about the store.
    """
    warnings: list[SdkWarning] = []
    count = int(seconds / call) + 2
    calls = [[tool_use("Bash", command=f"sleep {call}; echo call-{one}")] for one in range(count)]
    async with ScriptedModel([*calls, [text("done")]]) as model:
        machine = Machine(lab, model, "a")
        options: dict[str, Any] = {**machine.options, "store": store, "allowed_tools": ["Bash"]}
        session = await bridle.start_session(**options, on_warning=warnings.append)
        turn = await session.send_user_message("first prompt")
        await until(lambda: len(model.requests) >= 2)
        await asyncio.to_thread(leave)
        try:
            await asyncio.sleep(seconds)
            # The session has told where the entries are, and goes on.
            await until(lambda: any(state.rglob("*.jsonl")))
            await until(lambda: len(model.requests) > 2)
        finally:
            if come_back is not None:
                await asyncio.to_thread(come_back)
        assert (await turn.outcome()).text == "done"
        assert session.id is not None
        await session.aclose()
    details = [one.detail for one in warnings if one.kind == "store_failed"]
    return machine, session.id, details


async def check_that_nothing_is_lost(machine: Machine, store: Store, session_id: str) -> None:
    """The store has every message of the transcript file, once."""
    entries = await store.load(SessionKey(session_id)) or []
    uuids = [entry["uuid"] for entry in entries if "uuid" in entry]
    assert len(uuids) == len(set(uuids))
    saved = machine.saved()
    assert len(saved) > 5
    assert [one for one in uuids if one in saved] == saved
