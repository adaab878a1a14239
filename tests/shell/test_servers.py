"""The MCP servers of a session change one at a time, and a failed change leaves no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.support.processes import until

from bridle import ControlRejected, ControlTimeout, OptionsError, ToolServer
from bridle._session.changes.servers import Servers
from bridle.controls import McpServerChanges
from bridle.options._keywords import FunctionServer

CALC = ToolServer([])
EXTERNAL = {"command": "server"}

Configs = Mapping[str, Mapping[str, object]]
Send = Callable[[Configs], Awaitable[McpServerChanges]]


class Lab:
    """Servers of a session, and what the CLI and the engine are told about them."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.servers = Servers(given or {}, lambda name, message: None)
        self.sent: list[Configs] = []
        self.registered: dict[str, object] = dict(given or {})
        self.reply = McpServerChanges()
        self.calls: list[asyncio.Task[object]] = []

    async def send(self, configs: Configs) -> McpServerChanges:
        self.sent.append(configs)
        return self.reply

    def register(self, name: str, handler: object | None) -> None:
        self.registered[name] = handler
        if handler is None:
            del self.registered[name]

    async def change(
        self, changes: Mapping[str, object], *, replace: bool = False, send: Send | None = None
    ) -> McpServerChanges:
        return await self.servers.change(
            changes,
            replace=replace,
            send=send or self.send,
            register=self.register,
            rejected=lambda message: ControlRejected("mcp_set_servers", None, message),
        )


def handler(message: dict[str, Any]) -> dict[str, Any]:
    """A server by hand."""
    return message


async def test_every_change_sends_all_servers() -> None:
    lab = Lab({"calc": CALC})
    await lab.change({"raw": handler})
    await lab.change({"out": EXTERNAL})
    await lab.change({"calc": None})
    assert [list(configs) for configs in lab.sent] == [
        ["calc", "raw"],
        ["calc", "raw", "out"],
        ["raw", "out"],
    ]
    assert lab.sent[-1] == {
        "raw": {"type": "sdk", "name": "raw"},
        "out": {"command": "server", "args": []},
    }
    assert lab.registered == {"raw": handler}


async def test_replacing_keeps_the_servers_that_are_given_again() -> None:
    class Raw:
        def serve(self, message: dict[str, Any]) -> dict[str, Any]:
            return message

    raw = Raw()
    lab = Lab({"calc": CALC, "raw": raw.serve, "old": handler})
    await lab.change({"out": EXTERNAL})
    same = {"calc": CALC, "raw": raw.serve, "out": dict(EXTERNAL)}
    await lab.change({**same, "new": handler}, replace=True)
    assert [list(configs) for configs in lab.sent[1:]] == [["calc", "raw", "out", "new"]]
    assert lab.registered == {"calc": CALC, "raw": raw.serve, "new": handler}


async def test_replacing_removes_a_server_before_another_gets_its_name() -> None:
    """The CLI would keep the tools of the old server."""

    lab, other = Lab({"calc": CALC, "raw": handler}), ToolServer([])
    lab.reply = McpServerChanges(added=("a",), removed=("r",))
    changes = await lab.change({"calc": other, "raw": handler}, replace=True)
    assert [list(configs) for configs in lab.sent] == [["raw"], ["raw", "calc"]]
    assert lab.registered == {"calc": other, "raw": handler}
    assert lab.registered["calc"] is other
    assert (changes.added, changes.removed) == (("a",), ("r", "r"))


async def test_a_failed_replacement_puts_the_old_server_back() -> None:
    lab = Lab({"calc": CALC})

    async def fail(configs: Configs) -> McpServerChanges:
        await lab.send(configs)
        if len(lab.sent) == 2:
            raise ControlRejected("mcp_set_servers", "r", "no")
        return McpServerChanges()

    with pytest.raises(ControlRejected):
        await lab.change({"calc": ToolServer([])}, replace=True, send=fail)
    assert [list(configs) for configs in lab.sent] == [[], ["calc"], [], ["calc"]]
    assert lab.registered["calc"] is CALC


async def test_a_server_is_registered_before_the_cli_gets_it() -> None:
    lab = Lab()

    async def send(configs: Configs) -> McpServerChanges:
        assert lab.registered == {"late": CALC}
        return McpServerChanges()

    await lab.change({"late": CALC}, send=send)


@pytest.mark.parametrize(
    "error", [ControlRejected("mcp_set_servers", "r", "no"), ControlTimeout("x", "r", 1)]
)
async def test_a_change_that_fails_leaves_the_servers_as_they_were(error: Exception) -> None:
    lab = Lab({"calc": CALC})

    async def fail(configs: Configs) -> McpServerChanges:
        raise error

    with pytest.raises(type(error)):
        await lab.change({"late": handler}, send=fail)
    with pytest.raises(type(error)):
        await lab.change({"calc": None}, send=fail)
    assert lab.registered == {"calc": CALC}
    await lab.change({"late": handler})
    assert list(lab.sent[0]) == ["calc", "late"]


@pytest.mark.parametrize("replace", [False, True])
async def test_a_change_that_fails_is_taken_back_in_the_cli(replace: bool) -> None:
    lab = Lab({"calc": CALC})
    failed = ControlRejected("mcp_set_servers", "r", "no")

    async def fail_once(configs: Configs) -> McpServerChanges:
        await lab.send(configs)
        if len(lab.sent) == 1:
            raise failed
        return McpServerChanges()

    changes = {"calc": CALC, "late": handler} if replace else {"late": handler}
    with pytest.raises(ControlRejected) as caught:
        await lab.change(changes, replace=replace, send=fail_once)
    assert caught.value is failed
    assert [list(configs) for configs in lab.sent] == [["calc", "late"], ["calc"]]
    assert lab.registered == {"calc": CALC}


class Conversing:
    """A server object, and the conversations with it that are open."""

    def __init__(self) -> None:
        self.open = 0

    def create_initialization_options(self) -> object:
        """Return no options."""
        return None

    async def run(self, *streams: object) -> None:
        """Serve until the session closes the conversation."""
        self.open += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.open -= 1


async def begin(lab: Lab, name: str) -> None:
    """Send a message to a server, as the CLI does when it connects."""
    serve: Any = lab.registered[name]
    task = asyncio.create_task(
        serve({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    )
    lab.calls.append(task)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_change_that_fails_closes_the_conversations_with_new_servers() -> None:
    lab, server = Lab(), Conversing()

    async def fail(configs: Configs) -> McpServerChanges:
        if "full" in configs:
            await begin(lab, "full")
            assert server.open == 1
            raise ControlRejected("mcp_set_servers", "r", "no")
        return McpServerChanges()

    with pytest.raises(ControlRejected):
        await lab.change({"full": server}, send=fail)
    assert server.open == 0
    assert lab.servers.conversations == []
    with pytest.raises(OptionsError):
        await lab.change({"full": server, "bad": 5})
    assert lab.servers.conversations == []
    await asyncio.gather(*lab.calls, return_exceptions=True)


async def test_a_cancelled_change_does_not_wait_for_the_cli() -> None:
    """The CLI may hang. The next change waits until the CLI has the previous list again."""

    lab, answered = Lab({"calc": CALC}), asyncio.Event()

    async def hang(configs: Configs) -> McpServerChanges:
        await lab.send(configs)
        await answered.wait()
        return McpServerChanges()

    first = asyncio.create_task(lab.change({"late": CALC}, send=hang))
    await until(lambda: len(lab.sent) == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert lab.registered == {"calc": CALC}
    second = asyncio.create_task(lab.change({"next": CALC}))
    await until(lambda: len(lab.sent) == 2)
    assert not second.done()
    answered.set()
    await second
    assert [list(configs) for configs in lab.sent] == [
        ["calc", "late"],
        ["calc"],
        ["calc", "next"],
    ]


async def test_a_cancelled_change_leaves_the_servers_as_they_were_and_the_next_one_runs() -> None:
    lab = Lab()

    async def hang(configs: Configs) -> McpServerChanges:
        if "one" in configs:
            await asyncio.Event().wait()
        return McpServerChanges()

    first = asyncio.create_task(lab.change({"one": CALC}, send=hang))
    second = asyncio.create_task(lab.change({"two": CALC}))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert list(lab.sent[-1]) == ["two"]
    assert lab.registered == {"two": CALC}


async def test_a_server_that_the_cli_cannot_connect_to_is_not_kept() -> None:
    lab = Lab()
    lab.reply = McpServerChanges(added=("out",), errors={"out": "no such file"})
    with pytest.raises(ControlRejected, match="out: no such file"):
        await lab.change({"out": EXTERNAL})
    assert (await lab.change({"out": EXTERNAL}, replace=True)).errors["out"] == "no such file"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"calc": CALC}, "'calc' is already the name of a server"),
        ({"clac": None}, "Did you mean 'calc'"),
        ({"": CALC}, "is empty"),
        ({"late": 5}, "must be an MCP server, got int"),
        ({"late": "text"}, "not an in-process server"),
        ({"late": {"type": "sdk"}}, "in-process"),
    ],
)
async def test_an_invalid_change_is_not_sent(changes: dict[str, object], problem: str) -> None:
    lab = Lab({"calc": CALC})
    with pytest.raises(OptionsError, match=problem):
        await lab.change(changes)
    assert lab.sent == []
    assert lab.registered == {"calc": CALC}


@pytest.mark.parametrize("replace", [False, True])
async def test_the_name_of_the_functions_is_reserved(replace: bool) -> None:
    """The rules that allow the functions stay in force after their server is removed."""

    lab = Lab({"tools": FunctionServer([])})
    await lab.change({"tools": None})
    for server in (ToolServer([]), handler, EXTERNAL):
        with pytest.raises(OptionsError, match="'tools' is reserved"):
            await lab.change({"tools": server}, replace=replace)
    assert len(lab.sent) == 1
    assert lab.registered == {}
    plain = Lab({"tools": ToolServer([])})
    await plain.change({"tools": None})
    await plain.change({"tools": EXTERNAL}, replace=replace)


@pytest.mark.parametrize(
    "config",
    [{"foo": 1}, {"command": ""}, {"command": 5}, {"type": "http"}, {"type": "stdio", "url": "u"}],
)
async def test_a_configuration_without_command_or_url_is_not_sent(config: object) -> None:
    lab = Lab()
    with pytest.raises(OptionsError) as refused:
        await lab.change({"x": config})
    assert refused.value.field == "servers['x']"
    assert lab.sent == []


@pytest.mark.parametrize(
    "config", [{"url": "http://x"}, {"type": "ws", "url": "ws://x"}, {"type": "newer"}]
)
async def test_other_configurations_are_left_to_the_cli(config: Mapping[str, object]) -> None:
    lab = Lab()
    await lab.change({"x": config})
    assert lab.sent == [{"x": config}]
