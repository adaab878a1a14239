"""Tools that run in this process, called by the real CLI."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pydantic
import pytest
from tests.support.processes import run

from bridle import (
    Allow,
    AllowAll,
    BidirOptions,
    CanUseToolContext,
    ControlRejected,
    Deny,
    HookOutput,
    OutcomeReason,
    ToolContext,
    ToolFailure,
    ToolServer,
    start_session,
    tool,
)
from bridle.testing import ScriptedModel, text, tool_use
from bridle.testing.model_request import content_blocks
from bridle.testing.recording import Recorder, read_recording

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

Json = dict[str, Any]


def adder(calls: list[Json]) -> Callable[[Json], Json]:
    """An MCP server by hand: one tool, ``add``. It notes its calls."""
    number = {"type": "number"}
    schema = {"type": "object", "properties": {"a": number, "b": number}}
    listed = {"name": "add", "description": "Adds.", "inputSchema": schema}

    def called(message: Json) -> Json:
        arguments = message["params"]["arguments"]
        calls.append(arguments)
        return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}

    answers: Mapping[str, Callable[[Json], Json]] = {
        "initialize": lambda message: {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "calc", "version": "1"},
        },
        "tools/list": lambda message: {"tools": [listed]},
        "tools/call": called,
    }

    def handle(message: Json) -> Json:
        answer = answers.get(message["method"])
        result = answer(message) if answer else {}
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}

    return handle


@pytest.mark.requirement("S082")
async def test_a_raw_mcp_handler_is_called_and_the_model_reads_its_result(lab: Lab) -> None:
    """R425, R438, C34."""
    calls: list[Json] = []
    bidir = BidirOptions(
        mcp_servers={"calc": adder(calls)}, on_can_use_tool=lambda context: Allow()
    )
    script = [[tool_use("mcp__calc__add", a=40, b=2)], [text("42")]]
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        outcome = await (await session.send_user_message("add"))
        assert outcome.text == "42"
        assert model.requests[1].last_tool_result == "42"
    assert calls == [{"a": 40, "b": 2}]


@pytest.mark.longer
async def test_functions_are_tools_of_the_model_with_their_arguments_checked(lab: Lab) -> None:
    """R425, R438, C46."""
    contexts: list[ToolContext] = []

    @tool
    async def add(a: float, b: float, context: ToolContext) -> float:
        """Add two numbers."""
        contexts.append(context)
        return a + b

    @tool
    def fail(how: str) -> str:
        """Fail, politely or not."""
        raise ToolFailure("politely") if how == "politely" else RuntimeError("rudely")

    bidir = BidirOptions(
        mcp_servers={"calc": ToolServer([add, fail])}, on_can_use_tool=lambda context: Allow()
    )
    calls = [
        tool_use("mcp__calc__add", a=40, b=2),
        tool_use("mcp__calc__add", a="forty", b=2),
        tool_use("mcp__calc__fail", how="politely"),
        tool_use("mcp__calc__fail", how="rudely"),
    ]
    async with (
        ScriptedModel([*([call] for call in calls), [text("done")]]) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        assert (await (await session.send_user_message("calculate"))).text == "done"
        right, wrong, polite, rude = list(model.requests[-1].tool_results.values())
        assert float(right) == 42
        assert "a: Expected `float`" in wrong
        assert "politely" in polite
        assert rude == "Error: RuntimeError"
        assert [(one.name, one.server) for one in contexts] == [("add", "calc")]
        assert contexts[0].session is session
        assert contexts[0].tool_use_id in model.requests[-1].tool_results


@pytest.mark.longer
async def test_a_result_that_is_marked_as_an_error_is_one_for_the_model(lab: Lab) -> None:
    @tool
    def missing(key: str) -> Json:
        """Return a failed result."""
        return {"content": [{"type": "text", "text": "no such file"}], key: True}

    bidir = BidirOptions(mcp_servers={"files": ToolServer([missing])})
    calls = [tool_use("mcp__files__missing", key=key) for key in ("is_error", "isError")]
    options = {"allowed_tools": ["mcp__files"]}
    async with (
        ScriptedModel([calls, [text("done")]]) as model,
        start_session(lab.cli(model, **options), lab.sdk, bidir) as session,
    ):
        await (await session.send_user_message("look"))
        results = [
            block
            for message in model.requests[-1].messages
            for block in content_blocks(message)
            if block["type"] == "tool_result"
        ]
        assert [block.get("is_error") for block in results] == [True, True]


@pytest.mark.parametrize("read_only", [True, False], ids=["read only", "may change something"])
async def test_calls_of_one_message_overlap_only_if_the_tool_is_read_only(
    lab: Lab, *, read_only: bool
) -> None:
    started = [asyncio.Event(), asyncio.Event()]

    @tool(read_only=read_only)
    async def meet(number: int) -> bool:
        """Return whether the other call starts before this one has ended."""
        started[number].set()
        if number == 1:
            return False
        try:
            # Two calls that overlap meet at once. Otherwise the second starts after the first.
            await asyncio.wait_for(started[1].wait(), None if read_only else 1.0)
        except TimeoutError:
            return False
        return True

    bidir = BidirOptions(mcp_servers={"calc": ToolServer([meet])})
    calls = [tool_use("mcp__calc__meet", number=number) for number in (0, 1)]
    options = {"allowed_tools": ["mcp__calc"]}
    async with (
        ScriptedModel([calls, [text("done")]]) as model,
        start_session(lab.cli(model, **options), lab.sdk, bidir) as session,
    ):
        await (await session.send_user_message("meet"))
        assert ("true" in model.requests[-1].tool_results.values()) is read_only


@pytest.mark.longer
async def test_an_interrupt_reaches_a_tool_that_is_still_at_work(lab: Lab) -> None:
    """R439."""
    called, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bidir = BidirOptions(
        mcp_servers={"slow": ToolServer([wait])}, on_can_use_tool=lambda context: Allow()
    )
    async with (
        ScriptedModel([[tool_use("mcp__slow__wait")], [text("next")]]) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        turn = await session.send_user_message("go")
        await called.wait()
        await session.interrupt()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        await cancelled.wait()
        assert (await (await session.send_user_message("again"))).text == "next"


@pytest.mark.longer
async def test_the_tools_of_a_server_are_in_the_first_request_of_the_model(lab: Lab) -> None:
    """A newer CLI hides the tools of MCP servers behind its tool search unless a tool objects."""

    @tool
    def price(article: str) -> int:
        """Return the price of an article."""
        return 7

    @tool(always_load=False)
    def rare(article: str) -> int:
        """Do something that is seldom needed."""
        return 0

    bidir = BidirOptions(mcp_servers={"shop": ToolServer([price, rare])})
    # The CLI decides by the API's address whether to search; this setting decides for it.
    search = {"ENABLE_TOOL_SEARCH": "true"}
    async with (
        ScriptedModel([[text("hi")]]) as model,
        start_session(lab.cli(model, env=model.env | search), lab.sdk, bidir) as session,
    ):
        assert (await (await session.send_user_message("hello"))).ok
        offered = model.requests[0].tools
        assert "mcp__shop__price" in offered
        assert "mcp__shop__rare" not in offered


@pytest.mark.longer
async def test_a_large_result_reaches_the_model_whole_if_its_tool_says_so(lab: Lab) -> None:
    size = 300_000

    @tool(max_result_chars=400_000)
    def long() -> str:
        """Return a long text."""
        return "x" * size

    @tool
    def cut() -> str:
        """Return a long text that the CLI may cut."""
        return "y" * size

    bidir = BidirOptions(
        mcp_servers={"shop": ToolServer([long, cut])}, on_can_use_tool=lambda context: Allow()
    )
    script = [[tool_use("mcp__shop__long")], [tool_use("mcp__shop__cut")], [text("done")]]
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        assert (await (await session.send_user_message("go"))).ok
        assert model.requests[1].last_tool_result == "x" * size
        assert len(model.requests[2].last_tool_result or "") < size


@pytest.mark.longer
def test_arguments_of_a_plain_tool_are_validated_in_its_thread(lab: Lab) -> None:
    """The model reads the message of a validator that refuses, and the loop goes on meanwhile."""
    threads: list[threading.Thread] = []

    class Order(pydantic.BaseModel):
        count: int

        @pydantic.field_validator("count")
        @classmethod
        def check(cls, value: int) -> int:
            threads.append(threading.current_thread())
            if value > 10:
                raise ValueError("at most 10")
            return value

    def order(item: Any) -> str:
        threads.append(threading.current_thread())
        return f"{item.count} ordered"

    order.__annotations__["item"] = Order
    server = ToolServer([tool(order, description="Order something.")])

    async def main() -> None:
        bidir = BidirOptions(mcp_servers={"shop": server}, on_can_use_tool=lambda _: Allow())
        script = [
            [tool_use("mcp__shop__order", item={"count": 11})],
            [tool_use("mcp__shop__order", item={"count": 3})],
            [text("done")],
        ]
        async with (
            ScriptedModel(script) as model,
            start_session(lab.cli(model), lab.sdk, bidir) as session,
        ):
            assert (await (await session.send_user_message("order"))).text == "done"
            assert "at most 10" in (model.requests[1].last_tool_result or "")
            assert model.requests[2].last_tool_result == "3 ordered"

    run(main)
    assert len(threads) == 3
    assert threading.main_thread() not in threads


# ---------------------------------------------------------------- manifests

HANDSHAKE = ["initialize", "notifications/initialized", "tools/list"]


def mcp_methods(recording: Path) -> dict[str, list[str]]:
    """Return the methods of the MCP messages that the CLI sent, by server."""
    methods: dict[str, list[str]] = {}
    for entry in read_recording(recording):
        request = json.loads(entry.line).get("request", {}) if entry.direction == "out" else {}
        if request.get("subtype") == "mcp_message":
            called = methods.setdefault(request["server_name"], [])
            called.append(request["message"]["method"])
    return methods


@pytest.mark.both_clis
async def test_tool_servers_need_no_handshake_on_a_cli_that_takes_manifests(
    lab: Lab, tmp_path: Path
) -> None:
    """An older CLI ignores the manifests and makes the handshake with each server."""

    @tool
    def price(article: str, count: int = 1) -> int:
        """Return the price of an article.

        Args:
            article: The name in the catalogue.
        """
        return 7 * count

    @tool(max_result_chars=400_000)
    def read_log() -> str:
        """Return the log."""
        return "x" * 300_000

    servers: dict[str, object] = {
        "shop": ToolServer([price], instructions="Prices are in thalers."),
        "logs": ToolServer([read_log]),
        "calc": ToolServer([tool(lambda: 1, name="one", description="Return 1.")]),
        "raw": adder([]),
    }
    recording = tmp_path / "wire.ndjson"
    bidir = BidirOptions(mcp_servers=servers)
    script = [
        [tool_use("mcp__shop__price", article="saddle", count=3)],
        [tool_use("mcp__logs__read_log")],
        [text("done")],
    ]
    async with ScriptedModel(script) as model:
        cli = lab.cli(
            model,
            allowed_tools=["mcp__shop", "mcp__logs"],
            env=model.env | {"ENABLE_TOOL_SEARCH": "true"},
        )
        sdk = lab.sdk.replace(recorder=Recorder(recording))
        async with start_session(cli, sdk, bidir) as session:
            assert (await (await session.send_user_message("How much?"))).text == "done"
        first = model.requests[0]
        listed = cast("list[Json]", first.raw["tools"])
        offered = {one["name"]: one for one in listed}
        assert {"mcp__shop__price", "mcp__logs__read_log", "mcp__calc__one"} <= set(offered)
        shown = offered["mcp__shop__price"]
        assert shown["description"] == "Return the price of an article."
        assert shown["input_schema"]["properties"] == price.input_schema["properties"]
        assert shown["input_schema"]["required"] == ["article"]
        assert "Prices are in thalers." in json.dumps(first.raw)
        assert model.requests[1].last_tool_result == "21"
        assert model.requests[2].last_tool_result == "x" * 300_000
    before = [] if lab.is_newest else HANDSHAKE
    assert mcp_methods(recording) == {
        "shop": [*before, "tools/call"],
        "logs": [*before, "tools/call"],
        **({} if lab.is_newest else {"calc": HANDSHAKE}),
        "raw": HANDSHAKE,
    }


# ---------------------------------------------------------------- permission


def allow_by_hook(context: object) -> HookOutput:
    """Allow every tool."""
    return HookOutput(permission_decision="allow")


@pytest.mark.longer(after=2)
@pytest.mark.parametrize(
    ("options", "callbacks"),
    [
        ({"allowed_tools": ["mcp__bank"]}, {}),
        ({"allowed_tools": ["mcp__bank__pay__now", "mcp__bank__balance"]}, {}),
        ({"permission_mode": "bypassPermissions"}, {}),
        ({"allowed_tools": ["mcp__bank"]}, {"on_pre_tool_use": allow_by_hook}),
        (
            {"allowed_tools": ["mcp__bank"], "settings": {"permissions": {"ask": ["Bash"]}}},
            {},
        ),
    ],
    ids=["server allowed", "tool allowed", "bypass", "hook allows", "with settings"],
)
async def test_the_cli_asks_before_each_call_of_a_tool_that_wants_it(
    lab: Lab, options: Json, callbacks: Json
) -> None:
    """Rules, modes and hooks allow the other tools of the server, but not this one."""
    asked: list[str] = []
    paid: list[int] = []

    @tool(ask=True, name="pay__now")
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    @tool
    def balance() -> int:
        """Return the balance."""
        return 5

    def decide(context: CanUseToolContext) -> AllowAll | Deny:
        asked.append(context.tool_name)
        return AllowAll() if context.tool_input["amount"] < 10 else Deny("too much")

    bidir = BidirOptions(
        mcp_servers={"bank": ToolServer([pay, balance])}, on_can_use_tool=decide, **callbacks
    )
    script = [
        [tool_use("mcp__bank__balance")],
        [tool_use("mcp__bank__pay__now", amount=1)],
        [tool_use("mcp__bank__pay__now", amount=99)],
        [text("done")],
    ]
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model, **options), lab.sdk, bidir) as session,
    ):
        assert (await (await session.send_user_message("pay"))).text == "done"
        results = [request.last_tool_result or "" for request in model.requests[1:]]
        assert results[:2] == ["5", "paid"]
        assert "too much" in results[2]
    assert asked == ["mcp__bank__pay__now"] * 2
    assert paid == [1]


async def test_a_tool_that_must_be_asked_about_is_denied_if_no_callback_answers(lab: Lab) -> None:
    paid: list[int] = []

    @tool(ask=True)
    def pay(amount: int) -> None:
        """Pay an amount."""
        paid.append(amount)

    bidir = BidirOptions(mcp_servers={"bank": ToolServer([pay])})
    async with (
        ScriptedModel([[tool_use("mcp__bank__pay", amount=1)], [text("done")]]) as model,
        start_session(lab.cli(model, allowed_tools=["mcp__bank"]), lab.sdk, bidir) as session,
    ):
        outcome = await (await session.send_user_message("pay"))
        assert outcome.text == "done"
        assert outcome.result is not None
        denied = [one.tool_name for one in outcome.result.permission_denials]
        assert denied == ["mcp__bank__pay"]
    assert paid == []


@pytest.mark.longer
async def test_the_cli_asks_before_a_tool_of_a_server_that_was_added_later(lab: Lab) -> None:
    """The rules of the settings stay in force."""
    asked: list[str] = []

    @tool(ask=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return "paid"

    def decide(context: CanUseToolContext) -> Deny:
        asked.append(context.tool_name)
        return Deny("too much")

    script = [
        [tool_use("mcp__bank__pay", amount=1)],
        [tool_use("mcp__late__pay", amount=1)],
        [tool_use("mcp__last__pay", amount=1)],
        [tool_use("Bash", command="echo secret")],
        [tool_use("Bash", command="echo careful")],
        [text("done")],
    ]
    rules = {"deny": ["Bash(echo secret)"], "ask": ["Bash(echo careful)"]}
    options: Json = {
        "allowed_tools": ["mcp__late", "mcp__last", "mcp__bank", "Bash"],
        "settings": {"permissions": rules},
    }
    bidir = BidirOptions(mcp_servers={"bank": ToolServer([pay])}, on_can_use_tool=decide)
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model, **options), lab.sdk, bidir) as session,
    ):
        await session.mcp.add("late", ToolServer([pay]))
        await session.mcp.add("last", ToolServer([pay]))
        assert (await (await session.send_user_message("pay"))).text == "done"
        results = [request.last_tool_result or "" for request in model.requests[1:]]
        assert ["too much" in one for one in results] == [True] * 3 + [False, True]
        assert "secret" not in results[3].replace("echo secret", "")
    assert asked == ["mcp__bank__pay", "mcp__late__pay", "mcp__last__pay", "Bash"]


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("order", ["apply, add", "add, apply", "apply, add, remove", "raw, add"])
async def test_rules_of_the_program_and_of_a_server_added_later_are_both_in_force(
    lab: Lab, order: str
) -> None:
    """The CLI replaces all permissions that were applied before."""
    asked: list[str] = []
    paid: list[int] = []

    @tool(ask=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    def decide(context: CanUseToolContext) -> Deny:
        asked.append(context.tool_name)
        return Deny("too much")

    script = [
        [tool_use("mcp__late__pay", amount=1)],
        [tool_use("Bash", command="echo secret")],
        [tool_use("Bash", command="echo careful")],
        [text("done")],
    ]
    rules = {"deny": ["Bash(echo secret)"], "ask": ["Bash(echo careful)"]}
    settings = {"permissions": rules}
    bidir = BidirOptions(on_can_use_tool=decide)
    async with (
        ScriptedModel(script) as model,
        start_session(
            lab.cli(model, allowed_tools=["mcp__late", "Bash"]), lab.sdk, bidir
        ) as session,
    ):
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "apply": lambda: session.settings.apply(settings),
            "raw": lambda: session.control("apply_flag_settings", settings=settings),
            "add": lambda: session.mcp.add("late", ToolServer([pay])),
            "remove": lambda: session.mcp.remove("late"),
        }
        for step in order.split(", "):
            await steps[step]()
        assert (await (await session.send_user_message("pay"))).text == "done"
        results = [request.last_tool_result or "" for request in model.requests[1:]]
        assert "secret" not in results[1].replace("echo secret", "")
        assert "too much" in results[2]
    assert asked == (["Bash"] if "remove" in order else ["mcp__late__pay", "Bash"])
    assert paid == []


@pytest.mark.both_clis
async def test_an_invalid_setting_does_not_switch_off_the_rules_of_a_server_added_later(
    lab: Lab,
) -> None:
    """2.1.197 accepts it, and then ignores all settings that were applied."""
    asked: list[str] = []

    @tool(ask=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return "paid"

    def decide(context: CanUseToolContext) -> Deny:
        asked.append(context.tool_name)
        return Deny("too much")

    async with (
        ScriptedModel([[tool_use("mcp__late__pay", amount=1)], [text("done")]]) as model,
        start_session(
            lab.cli(model, allowed_tools=["mcp__late"]),
            lab.sdk,
            BidirOptions(on_can_use_tool=decide),
        ) as session,
    ):
        await session.mcp.add("late", ToolServer([pay]))
        with pytest.raises(ControlRejected) as refused:
            await session.settings.apply({"cleanupPeriodDays": "never"})
        assert refused.value.cli_version is not None
        assert (await (await session.send_user_message("pay"))).text == "done"
    assert asked == ["mcp__late__pay"]
