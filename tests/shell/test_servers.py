"""The MCP servers of a session change one at a time, and a failed change leaves no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.support.processes import run

from bridle import ControlRejected, OptionsError, ToolServer
from bridle._doors.servers import Servers
from bridle.controls import McpServerChanges

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
            changes, replace=replace, send=send or self.send, register=self.register
        )


def handler(message: dict[str, Any]) -> dict[str, Any]:
    """A server by hand."""
    return message


def test_every_change_sends_all_servers() -> None:
    async def main() -> None:
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

    run(main)


def test_replacing_keeps_the_servers_that_are_named_again() -> None:
    async def main() -> None:
        lab = Lab({"calc": CALC, "raw": handler})
        await lab.change({"calc": ToolServer([]), "new": CALC}, replace=True)
        assert list(lab.sent[0]) == ["calc", "new"]
        assert lab.registered == {"calc": CALC, "new": CALC}
        assert lab.registered["calc"] is CALC

    run(main)


def test_a_server_is_registered_before_the_cli_is_told() -> None:
    async def main() -> None:
        lab = Lab()

        async def send(configs: Configs) -> McpServerChanges:
            assert lab.registered == {"late": CALC}
            return McpServerChanges()

        await lab.change({"late": CALC}, send=send)

    run(main)


@pytest.mark.parametrize("error", [ControlRejected("mcp_set_servers", "r", "no"), TimeoutError()])
def test_a_change_that_fails_leaves_the_servers_as_they_were(error: Exception) -> None:
    async def main() -> None:
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

    run(main)


def test_a_cancelled_change_leaves_the_servers_as_they_were_and_the_next_one_runs() -> None:
    async def main() -> None:
        lab = Lab()

        async def hang(configs: Configs) -> McpServerChanges:
            await asyncio.Event().wait()
            return McpServerChanges()

        first = asyncio.create_task(lab.change({"one": CALC}, send=hang))
        second = asyncio.create_task(lab.change({"two": CALC}))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert list(lab.sent[0]) == ["two"]
        assert lab.registered == {"two": CALC}

    run(main)


def test_a_server_that_the_cli_cannot_connect_to_is_not_kept() -> None:
    async def main() -> None:
        lab = Lab()
        lab.reply = McpServerChanges(added=("out",), errors={"out": "no such file"})
        with pytest.raises(ControlRejected, match="out: no such file"):
            await lab.change({"out": EXTERNAL})
        assert (await lab.change({"out": EXTERNAL}, replace=True)).errors["out"] == "no such file"

    run(main)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"calc": CALC}, "already a server 'calc'"),
        ({"clac": None}, "Did you mean 'calc'"),
        ({"": CALC}, "is empty"),
        ({"late": 5}, "must be an MCP server, got int"),
        ({"late": "text"}, "not an in-process server"),
        ({"late": {"type": "sdk"}}, "in-process"),
    ],
)
def test_an_invalid_change_is_not_sent(changes: dict[str, object], problem: str) -> None:
    async def main() -> None:
        lab = Lab({"calc": CALC})
        with pytest.raises(OptionsError, match=problem):
            await lab.change(changes)
        assert lab.sent == []
        assert lab.registered == {"calc": CALC}

    run(main)
