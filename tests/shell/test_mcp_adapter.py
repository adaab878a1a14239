"""Server objects of the mcp package, and objects that behave like one."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from unittest import mock

import pytest
from tests.support.limits import SetLimits

from bridle._session.changes import mcp_adapter
from bridle._session.changes.mcp_adapter import McpConversation, protocol_server
from bridle.errors import OptionsError

Json = dict[str, Any]

try:
    library: Any = importlib.import_module("mcp.server.mcpserver")
    MCPServer = library.MCPServer
except ImportError:  # the first major version has other names for the same
    library = importlib.import_module("mcp.server.fastmcp")
    MCPServer = library.FastMCP
Context = library.Context

PATIENCE = 5.0

INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "claude-code", "version": "2.1"},
    },
}
INITIALIZED: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def name_of(value: object) -> str:
    """A test's name must be the same in every run, so addresses are left out."""
    return re.sub(" at 0x[0-9a-f]+| id='[0-9]+'", "", str(value))


def request(method: str, id: object = 1, **params: object) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(name: str, id: object = 1, token: object = None, **arguments: object) -> Json:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return request("tools/call", id, name=name, arguments=arguments, **meta)


def text_of(answer: Json | None) -> str:
    assert answer is not None
    text: str = answer["result"]["content"][0]["text"]
    return text


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main, PATIENCE)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert {task.get_name() for task in left} == set()

    asyncio.run(bounded())


async def greeted(server: object, notify: Callable[[Json], object] = print) -> McpConversation:
    conversation = McpConversation("calc", server, notify)
    await conversation.handle(INITIALIZE)
    await conversation.handle(INITIALIZED)
    return conversation


class Bench:
    """A server with a few tools, and what became of their calls."""

    def __init__(self) -> None:
        self.server = MCPServer("calc", instructions="Count.")
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.release = asyncio.Event()
        self.server.tool()(self.add)
        self.server.tool()(self.report)
        self.server.tool()(self.wait)

    async def add(self, a: int, b: int) -> str:
        return str(a + b)

    async def report(self, word: str, ctx: Context) -> str:  # type: ignore[valid-type]  # differs by version
        await self.release.wait()
        await ctx.report_progress(1, 2)  # type: ignore[attr-defined]  # as above
        return word

    async def wait(self) -> str:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()
        return "never"


# ------------------------------------------------------------------------- real servers


def test_a_server_object_answers_as_it_would_over_a_pipe() -> None:
    async def main() -> None:
        conversation = McpConversation("calc", Bench().server, print)
        hello = await conversation.handle(INITIALIZE)
        assert hello is not None
        assert hello["id"] == 0
        assert hello["result"]["protocolVersion"] == "2025-06-18"
        assert hello["result"]["serverInfo"]["name"] == "calc"
        assert hello["result"]["instructions"] == "Count."
        assert await conversation.handle(INITIALIZED) is None
        listed = await conversation.handle(request("tools/list", "x"))
        assert listed is not None
        assert listed["id"] == "x"
        names = [tool["name"] for tool in listed["result"]["tools"]]
        assert names == ["add", "report", "wait"]
        assert text_of(await conversation.handle(call("add", a=1, b=2))) == "3"
        wrong = await conversation.handle(call("add", a="one", b=2))
        assert wrong is not None
        assert wrong["result"]["isError"] is True
        await conversation.close()

    run(main())


def test_the_server_inside_a_server_object_can_be_given_as_well() -> None:
    async def main() -> None:
        server = Bench().server
        inner = protocol_server(server)
        assert inner is not None
        assert inner is not server
        assert protocol_server(inner) is inner
        conversation = await greeted(inner)
        assert text_of(await conversation.handle(call("add", a=1, b=2))) == "3"
        await conversation.close()

    run(main())


def test_sessions_that_share_a_server_hear_nothing_of_one_another() -> None:
    async def main() -> None:
        bench = Bench()
        heard: list[list[Json]] = [[] for _ in range(20)]
        talks = [await greeted(bench.server, words.append) for words in heard]
        # Same ids everywhere, all at once.
        waiting = [
            asyncio.create_task(talk.handle(call("report", 2, token=number, word=str(number))))
            for number, talk in enumerate(talks)
        ]
        await asyncio.sleep(0)
        bench.release.set()
        said = [text_of(answer) for answer in await asyncio.gather(*waiting)]
        assert said == [str(number) for number in range(20)]
        tokens = [[word["params"]["progressToken"] for word in words] for words in heard]
        assert tokens == [[number] for number in range(20)]
        await talks[0].close()
        assert text_of(await talks[1].handle(call("add", a=1, b=2))) == "3"
        await asyncio.gather(*(talk.close() for talk in talks))

    run(main())


def test_a_client_that_connects_twice_at_once_is_served_twice() -> None:
    """The same ids come twice, and the second handshake comes amid the first."""

    async def main() -> None:
        conversation = McpConversation("calc", Bench().server, print)
        first, second = await asyncio.gather(
            conversation.handle(INITIALIZE), conversation.handle({**INITIALIZE, "id": "again"})
        )
        assert first is not None
        assert second == {**first, "id": "again"}
        await conversation.handle(INITIALIZED)
        third = await conversation.handle(INITIALIZE)
        lists = await asyncio.gather(*(conversation.handle(request("tools/list")) for _ in "ab"))
        await conversation.handle(INITIALIZED)
        assert third == first
        assert lists[0] == lists[1]
        assert lists[0] is not None
        assert lists[0]["id"] == 1
        await conversation.close()

    run(main())


def test_calls_overlap() -> None:
    async def main() -> None:
        bench = Bench()
        conversation = await greeted(bench.server)
        waiting = asyncio.create_task(conversation.handle(call("report", 1, word="a")))
        assert text_of(await conversation.handle(call("add", 2, a=1, b=2))) == "3"
        assert not waiting.done()
        bench.release.set()
        assert text_of(await waiting) == "a"
        await conversation.close()

    run(main())


def test_a_cancelled_call_is_cancelled_in_the_server() -> None:
    async def main() -> None:
        bench = Bench()
        conversation = await greeted(bench.server)
        waiting = asyncio.create_task(conversation.handle(call("wait", 5)))
        await bench.entered.wait()
        waiting.cancel()
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        assert await conversation.handle(notice) is None
        await bench.left.wait()
        assert waiting.cancelled()
        assert text_of(await conversation.handle(call("add", a=1, b=2))) == "3"
        await conversation.close()

    run(main())


def test_closing_ends_what_is_still_running() -> None:
    async def main() -> None:
        bench = Bench()
        conversation = await greeted(bench.server)
        waiting = asyncio.create_task(conversation.handle(call("wait")))
        await bench.entered.wait()
        await conversation.close()
        await conversation.close()
        assert bench.left.is_set()
        # Some versions answer with an error, others do not answer.
        if (await asyncio.wait([waiting]))[0].pop().exception() is None:
            assert waiting.result() is not None
        with pytest.raises(RuntimeError, match="calc does not answer: the session is over"):
            await conversation.handle(INITIALIZE)

    run(main())


# ------------------------------------------------------------------------- odd servers


class Odd:
    """A server as mcp knows them, that does with its streams what it is told."""

    def __init__(self, behave: Callable[[Any, Any], Awaitable[None]]) -> None:
        self._behave = behave

    def create_initialization_options(self) -> None:
        return None

    async def run(self, incoming: Any, outgoing: Any, options: object) -> None:
        assert options is None
        async with incoming, outgoing:
            await self._behave(incoming, outgoing)


def test_a_server_that_breaks_fails_what_waits_and_what_comes_later() -> None:
    async def main() -> None:
        async def breaks(incoming: Any, outgoing: Any) -> None:
            await anext(incoming)
            raise KeyError("lost")

        conversation = McpConversation("odd", Odd(breaks), print)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"odd .* it stopped with KeyError: 'lost'"):
                await conversation.handle(INITIALIZE)
        await conversation.close()

    run(main())


def test_a_request_of_a_server_to_the_client_is_answered_with_an_error() -> None:
    async def main() -> None:
        heard: asyncio.Queue[Any] = asyncio.Queue()
        wrap = mcp_adapter._wrapper()

        async def asks(incoming: Any, outgoing: Any) -> None:
            first = (await anext(incoming)).message.model_dump()
            await outgoing.send(wrap({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}))
            heard.put_nowait((await anext(incoming)).message.model_dump())
            # An answer nobody waits for is dropped; then the one that is waited for.
            for number in (99, first["id"], first["id"]):
                await outgoing.send(wrap({"jsonrpc": "2.0", "id": number, "result": {"n": number}}))
            assert [item async for item in incoming] == []
            assert [item async for item in incoming] == []

        conversation = McpConversation("odd", Odd(asks), print)
        answer = await conversation.handle(request("ping", "p"))
        assert answer is not None
        assert answer["id"] == "p"
        refusal = await heard.get()
        assert (refusal["id"], refusal["error"]["code"]) == (1, -32601)
        await conversation.close()

    run(main())


def test_a_handshake_that_failed_may_be_tried_again() -> None:
    async def main() -> None:
        wrap = mcp_adapter._wrapper()

        async def refuses_once(incoming: Any, outgoing: Any) -> None:
            answers: list[Json] = [{"error": {"code": 1, "message": "not yet"}}, {"result": {}}]
            for answer in answers:
                number = (await anext(incoming)).message.model_dump()["id"]
                await outgoing.send(wrap({"jsonrpc": "2.0", "id": number, **answer}))
            await anext(incoming, None)

        conversation = McpConversation("odd", Odd(refuses_once), print)
        refused = await conversation.handle(INITIALIZE)
        assert refused is not None
        assert refused["error"]["message"] == "not yet"
        assert await conversation.handle(INITIALIZE) == {"jsonrpc": "2.0", "id": 0, "result": {}}
        await conversation.close()

    run(main())


def test_a_server_that_will_not_end_is_cancelled_and_then_left_behind(
    set_limits: SetLimits, caplog: pytest.LogCaptureFixture
) -> None:
    set_limits(closing_mcp_server=0.01)

    async def main() -> None:
        release = asyncio.Event()

        async def clings(incoming: Any, outgoing: Any) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        conversation = McpConversation("odd", Odd(clings), print)
        await conversation.handle(INITIALIZED)
        await conversation.close()
        release.set()
        task = conversation._task
        assert task is not None
        await task

    run(main())
    assert caplog.messages == ["MCP server odd does not end and is left behind"]


def test_an_answer_without_a_question_is_ignored() -> None:
    async def main() -> None:
        conversation = McpConversation("calc", Bench().server, print)
        assert await conversation.handle({"jsonrpc": "2.0", "id": 1, "result": {}}) is None
        await conversation.close()
        with pytest.raises(RuntimeError, match="the session is over"):
            await conversation.handle(INITIALIZE)

    run(main())


# ------------------------------------------------------------------------- what is no server


@pytest.mark.parametrize("server", [object(), print, {}, None, mock.Mock()], ids=name_of)
def test_an_object_that_is_not_a_server_is_refused(server: object) -> None:
    assert protocol_server(server) is None
    with pytest.raises(OptionsError, match="Pass a ToolServer") as refusal:
        McpConversation("calc", server, print)
    assert refusal.value.field == "mcp_servers['calc']"


def test_a_server_without_its_package_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def idle(incoming: Any, outgoing: Any) -> None: ...

    mcp_adapter._wrapper.cache_clear()
    monkeypatch.setitem(sys.modules, "mcp.types", None)
    with pytest.raises(OptionsError, match=r"pip install bridle\[mcp\]") as refusal:
        McpConversation("calc", Odd(idle), print)
    assert refusal.value.field == "mcp_servers['calc']"
