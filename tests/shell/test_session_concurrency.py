"""Many sessions at once, in one loop and in several, share handlers and mix up nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.soak.sessions import options
from tests.support.processes import is_alive, run, until

from bridle import (
    Allow,
    BidirOptions,
    CanUseToolContext,
    Outcome,
    PreToolUseContext,
    Session,
    ToolContext,
    ToolServer,
    start_session,
    tool,
)
from bridle._process import tree
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

MANY = 50


class Shared:
    """Handlers that all sessions share, and what they were told, by the session's id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen: dict[str, set[str]] = {}

        @tool
        async def whose(tag: str, context: ToolContext) -> str:
            """Says whose call it is."""
            assert isinstance(context.session, Session)
            self.note(str(context.session.id), f"tool {tag}")
            await asyncio.sleep(0)
            return f"{tag} of {context.session.id}"

        self.server = ToolServer([whose])

    def note(self, session_id: str, what: str) -> None:
        with self._lock:
            self.seen.setdefault(session_id, set()).add(what)

    def hook(self, context: PreToolUseContext) -> None:
        self.note(context.session_id, f"hook {context.tool_input.get('tag')}")

    async def permit(self, context: CanUseToolContext) -> Allow:
        self.note(context.session_id, f"permission {context.tool_input.get('tag')}")
        return Allow()

    def raw(self, message: dict[str, Any]) -> dict[str, Any]:
        """A server by hand: one tool that gives its tag back."""
        method, params = message["method"], message.get("params", {})
        result: dict[str, Any] = {}
        if method == "initialize":
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": info}  # fmt: skip
        elif method == "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": params["arguments"]["tag"]}]}
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}

    def options(self) -> BidirOptions:
        return BidirOptions(
            on_pre_tool_use=self.hook,
            on_can_use_tool=self.permit,
            mcp_servers={"typed": self.server, "raw": self.raw},
        )


def called(server_tool: str, tag: str) -> str:
    return f"CALL mcp__{server_tool} {json.dumps({'tag': tag})}"


async def converse(cli: FakeCli, shared: Shared, tag: str) -> int:
    """A session whose every answer must carry its own tag; returns its process id."""
    async with start_session(options(cli), bidir=shared.options()) as session:
        typed = await say(session, called("typed__whose", tag))
        assert typed.text == f"{tag} of {session.id}"
        assert (await say(session, called("raw__echo", tag))).text == tag
        assert (await say(session, f"SAY {tag}")).text == tag
        assert shared.seen[str(session.id)] == {f"hook {tag}", f"permission {tag}", f"tool {tag}"}
        assert session.pid is not None
        return session.pid


async def say(session: Session, prompt: str) -> Outcome[Any]:
    outcome = await (await session.send_user_message(prompt))
    assert outcome.ok
    assert outcome.session_id == session.id
    return outcome


@pytest.mark.longer
@pytest.mark.requirement("S098")
async def test_fifty_sessions_at_once_share_handlers_without_mixing_them_up() -> None:
    """R166, R422."""
    shared = Shared()
    with FakeCli.auto() as newest, FakeCli.auto(flavour=FLAVOURS[-1]) as older:
        talks = [
            converse(older if number % 2 else newest, shared, f"tag-{number}")
            for number in range(MANY)
        ]
        pids = await asyncio.gather(*talks)
        assert len(set(pids)) == MANY
        assert not any(map(is_alive, pids))
    assert len(shared.seen) == MANY


def test_sessions_of_several_event_loops_in_threads_do_not_meet() -> None:
    """R166."""
    shared = Shared()
    failures: list[BaseException] = []

    def work(cli: FakeCli, thread: int) -> None:
        async def main() -> None:
            talks = [converse(cli, shared, f"tag-{thread}-{number}") for number in range(4)]
            await asyncio.gather(*talks)

        try:
            run(main)
        except BaseException as error:
            failures.append(error)

    with FakeCli.auto() as cli:
        threads = [threading.Thread(target=work, args=(cli, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert len(shared.seen) == 16


async def test_one_session_that_dies_does_not_touch_its_neighbours() -> None:
    with FakeCli.auto() as cli:
        sessions = [await start_session(options(cli)) for _ in range(4)]
        turns = [await s.send_user_message("SLOW 0.5") for s in sessions[1:]]
        _ = await sessions[0].send_user_message("EXIT 1")
        await until(lambda: not sessions[0].alive)
        outcomes = await asyncio.gather(*turns)
        assert all(outcome.ok for outcome in outcomes)
        assert [session.alive for session in sessions] == [False, True, True, True]
        await asyncio.gather(*(session.aclose() for session in sessions))


@pytest.mark.longer
def test_closing_many_sessions_keeps_the_steps_of_the_event_loop_short() -> None:
    """The process table is read by another thread, once for all of them."""
    sessions, limit = 20, 0.010
    looks: list[int] = []
    real = tree.find

    def find(trees: list[tree.Tree]) -> dict[int, int]:
        looks.append(threading.get_ident())
        until_then = time.thread_time() + 2 * limit  # as on a machine with thousands of processes
        while time.thread_time() < until_then:
            pass
        return real(trees)

    async def main() -> list[float]:
        with FakeCli.auto() as cli:
            running: list[Session] = await asyncio.gather(
                *(start_session(options(cli)) for _ in range(sessions))
            )
            gc.collect()
            gc.disable()  # it may come at any step, and takes as long as the program is large
            try:
                with timed_steps() as steps:
                    await asyncio.gather(*(session.aclose() for session in running))
            finally:
                gc.enable()
            return steps

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "find", find)
        steps = run(main)
    assert max(steps) < limit
    assert threading.get_ident() not in looks
    assert len(looks) < sessions


@contextlib.contextmanager
def timed_steps() -> Iterator[list[float]]:
    """Collect the CPU seconds of this thread that each callback of the loop takes."""
    steps: list[float] = []
    real = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        before = time.thread_time()
        real(handle)
        steps.append(time.thread_time() - before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield steps
