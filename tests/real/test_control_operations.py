"""Every typed operation, called once on each CLI; and MCP servers that come and go at run time."""

from __future__ import annotations

import asyncio
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.real.control_calls import CALLS, EXTERNAL, Stage, add
from tests.real.test_tools import adder
from tests.support.processes import run

import bridle
from bridle import (
    BidirOptions,
    ControlRejected,
    OptionsError,
    ToolServer,
    start_session,
    sync,
)
from bridle._engine.outgoing.operations import OPERATIONS
from bridle._engine.versions import TESTED
from bridle.controls import McpServerChanges, Reply
from bridle.messages import TaskStartedMessage
from bridle.testing import ScriptedModel, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

RESULTS = Path(__file__).parents[1] / "wire" / "control_operations.json"
"""What each CLI did with each operation, recorded. The documentation shows it as a table."""

METHODS = {row.method: row for row in OPERATIONS.values()}

CALC = ToolServer([add])
UNTYPED = {"interrupt", "set_model", "set_permission_mode"}
"""Methods whose results are older than the typed replies."""


@pytest.mark.longer
def test_each_operation_answers_with_its_type_or_names_the_version(
    lab: Lab, request: pytest.FixtureRequest
) -> None:
    """R347: what this CLI does is what the recorded results say (`--bridle-record` writes them).

    A CLI without results, newer than the tested one, does what that one does.
    """
    assert set(CALLS) == set(METHODS)
    replies: dict[str, Any] = {}
    rejected: dict[str, ControlRejected] = {}

    async def main() -> None:
        (lab.work / "notes.txt").write_text("hello")
        (lab.work / "sub").mkdir()
        command = {"command": "echo out; sleep 60", "run_in_background": True, "description": "x"}
        script = [[tool_use("Bash", **command)], [text("started")], *[[text("words")]] * 8]
        bidir = BidirOptions(mcp_servers={"calc": CALC}, file_checkpointing_enabled=True)
        async with ScriptedModel(script) as model:
            servers = {"mcpServers": {"stub": EXTERNAL}}
            cli = lab.cli(model, allowed_tools=["Bash"], mcp_config=servers)
            async with start_session(cli, lab.sdk, bidir) as session:
                turn = await session.send_user_message("Start it.")
                ids = [one.task_id async for one in turn if isinstance(one, TaskStartedMessage)]
                await turn
                stage = Stage(session, turn, str(ids[0]), lab.work)
                for method, call in CALLS.items():
                    try:
                        replies[method] = await call(stage)
                    except ControlRejected as error:
                        rejected[method] = error

    run(main)
    for method, reply in replies.items():
        wanted: type = METHODS[method].reply
        if method not in UNTYPED:
            assert type(reply) is wanted, method
        if isinstance(reply, Reply):
            assert reply.misfits == (), method
            assert isinstance(reply.raw, dict), method
    version = replies["info.version"].version
    for error in rejected.values():
        assert error.is_unsupported, error
        assert error.cli_version == version
        assert version in str(error)
    results = {method: "works" if method in replies else "unsupported" for method in METHODS}
    recorded = json.loads(RESULTS.read_text("utf-8"))
    if request.config.getoption("--bridle-record"):
        recorded = {**recorded, version: results}
        RESULTS.write_text(json.dumps(recorded, indent=2) + "\n", "utf-8")
    assert recorded.get(version, recorded[str(TESTED)]) == results


# ---------------------------------------------------------------- servers at run time


def allow_all(model: ScriptedModel, lab: Lab) -> bridle.CliOptions:
    return lab.cli(model, allowed_tools=["mcp__calc", "mcp__late", "mcp__raw", "mcp__full"])


def full_server() -> object:
    """A server object of the `mcp` package."""
    library: Any
    try:
        library = importlib.import_module("mcp.server.mcpserver")
        server = library.MCPServer("full")
    except ImportError:  # the older major version
        library = importlib.import_module("mcp.server.fastmcp")
        server = library.FastMCP("full")

    @server.tool()  # type: ignore[untyped-decorator]  # imported by name
    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    return server


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("kind", ["late", "raw", "full"])
async def test_a_server_added_at_run_time_serves_calls_until_it_is_removed(
    lab: Lab, kind: str
) -> None:
    calls: list[dict[str, Any]] = []
    servers = {"late": lambda: ToolServer([add]), "raw": lambda: adder(calls), "full": full_server}
    script = [
        [tool_use(f"mcp__{kind}__add", a=40, b=2)],
        [text("first")],
        [tool_use("mcp__calc__add", a=1, b=2)],
        [text("second")],
        [tool_use(f"mcp__{kind}__add", a=40, b=2)],
        [text("third")],
    ]
    bidir = BidirOptions(mcp_servers={"calc": CALC})
    async with (
        ScriptedModel(script) as model,
        start_session(allow_all(model, lab), lab.sdk, bidir) as session,
    ):
        changes = await session.mcp.add(kind, servers[kind]())
        assert (changes.added, changes.removed, changes.errors) == ((kind,), (), {})
        assert (await (await session.send_user_message("add"))).text == "first"
        assert "42" in str(model.requests[-1].last_tool_result)
        # The server that was there from the start still serves its calls.
        assert (await (await session.send_user_message("add"))).text == "second"
        assert model.requests[-1].last_tool_result == "3"
        assert (await session.mcp.remove(kind)).removed == (kind,)
        names = [server.name for server in (await session.mcp.status()).servers]
        assert names == ["calc"]
        assert (await (await session.send_user_message("add"))).text == "third"
        assert "No such tool" in (model.requests[-1].last_tool_result or "")


async def test_removing_a_server_cancels_its_running_calls(lab: Lab) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    @bridle.tool
    async def wait() -> str:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    script = [[tool_use("mcp__late__wait")], [text("went on")]]
    async with (
        ScriptedModel(script) as model,
        start_session(allow_all(model, lab), lab.sdk) as session,
    ):
        await session.mcp.add("late", ToolServer([wait]))
        turn = await session.send_user_message("wait")
        await began.wait()
        await session.mcp.remove("late")
        await cancelled.wait()
        assert (await turn).text == "went on"


@pytest.mark.longer
async def test_an_external_server_is_added_and_removed(lab: Lab) -> None:
    async with (
        ScriptedModel([]) as model,
        start_session(allow_all(model, lab), lab.sdk) as session,
    ):
        await session.mcp.add("stub", EXTERNAL)
        called = await session.mcp.call("mcp__stub__echo", {"text": "hi"})
        assert called.content == [{"type": "text", "text": '{"text": "hi"}'}]
        with pytest.raises(ControlRejected, match="broken: "):
            await session.mcp.add("broken", {"command": "/no/such/program"})
        with pytest.raises(OptionsError, match="'stub' is already the name of a server"):
            await session.mcp.add("stub", EXTERNAL)
        changes = await session.mcp.remove("stub")
        assert type(changes) is McpServerChanges
        assert changes.removed == ("stub",)


async def test_a_server_that_cannot_be_added_names_the_version_and_no_secret(lab: Lab) -> None:
    secret = "tok-5c1d7e90ab"
    broken = {"command": f"/no/such/{secret}", "args": [], "env": {"API_TOKEN": secret}}
    async with (
        ScriptedModel([]) as model,
        start_session(allow_all(model, lab), lab.sdk) as session,
    ):
        version = (await session.info.version()).version
        with pytest.raises(ControlRejected, match="broken: ") as caught:
            await session.mcp.add("broken", broken)
        error = caught.value
        assert secret not in f"{error} {error.message} {error.args}"
        assert error.cli_version == version
        assert version in str(error)
        changes = await session.mcp.set_servers({"other": broken})
        assert changes.errors
        assert secret not in f"{changes.errors} {changes.raw}"


async def test_the_cli_forgets_a_server_that_was_not_added(lab: Lab) -> None:
    script = [[tool_use("mcp__calc__add", a=1, b=2)], [text("done")]]
    bidir = BidirOptions(mcp_servers={"calc": CALC})
    async with (
        ScriptedModel(script) as model,
        start_session(allow_all(model, lab), lab.sdk, bidir) as session,
    ):
        with pytest.raises(ControlRejected, match="broken: "):
            await session.mcp.add("broken", {"command": "/no/such/program"})
        names = [server.name for server in (await session.mcp.status()).servers]
        assert "broken" not in names
        # The server that was there from the start still serves its calls.
        assert (await (await session.send_user_message("add"))).text == "done"
        assert model.requests[-1].last_tool_result == "3"


async def test_a_server_is_replaced_by_another_with_its_name(lab: Lab) -> None:
    @bridle.tool
    def multiply(a: int, b: int) -> str:
        """Multiply two numbers."""
        return str(a * b)

    script = [[tool_use("mcp__calc__multiply", a=6, b=7)], [text("done")]]
    bidir = BidirOptions(mcp_servers={"calc": CALC})
    async with (
        ScriptedModel(script) as model,
        start_session(allow_all(model, lab), lab.sdk, bidir) as session,
    ):
        changes = await session.mcp.set_servers({"calc": ToolServer([multiply])})
        assert (changes.added, changes.removed) == (("calc",), ("calc",))
        assert (await (await session.send_user_message("multiply"))).text == "done"
        assert model.requests[-1].last_tool_result == "42"


@pytest.mark.longer
async def test_servers_added_at_the_same_time_are_all_kept(lab: Lab) -> None:
    names = ["one", "two", "three"]
    async with (
        ScriptedModel([]) as model,
        start_session(allow_all(model, lab), lab.sdk) as session,
    ):
        await asyncio.gather(*[session.mcp.add(name, ToolServer([add])) for name in names])
        # 2.1.197 lists a server up to some 100 ms after it has confirmed it.
        listed: set[str] = set()
        while listed != set(names):
            listed = {server.name for server in (await session.mcp.status()).servers}
            assert listed <= set(names)


@pytest.mark.longer
async def test_the_blocking_session_has_the_same_operations(lab: Lab) -> None:
    script = [[tool_use("mcp__late__add", a=40, b=2)], [text("done")]]
    async with ScriptedModel(script) as model:

        def work() -> None:
            with sync.start_session(allow_all(model, lab), lab.sdk) as session:
                assert session.mcp.add("late", ToolServer([add])).added == ("late",)
                assert session.send_user_message("add").outcome().text == "done"
                assert [one.name for one in session.mcp.status().servers] == ["late"]
                assert session.info.version().version

        await asyncio.to_thread(work)
