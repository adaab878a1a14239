"""What callbacks may do, and tools that run in this process."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest
from tests.soak.sessions import Clock, options, told_by, warnings_of
from tests.support.processes import LIMIT, run, until

from bridle import (
    Allow,
    BidirOptions,
    McpError,
    McpResponse,
    OptionsError,
    OutcomeReason,
    PreToolUseContext,
    Session,
    ToolContext,
    ToolFailure,
    ToolServer,
    start_session,
    tool,
)
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

# ---------------------------------------------------------------- what callbacks may do


ENDED = {
    "interrupt": {OutcomeReason.INTERRUPTED},
    "stop": {OutcomeReason.STOPPED},
    "aclose": {OutcomeReason.INTERRUPTED, OutcomeReason.COMPLETED},
}


@pytest.mark.parametrize("name", ["interrupt", "set_model", "send", "stop", "aclose"])
async def test_a_callback_may_operate_its_own_session(name: str) -> None:
    """R166: no deadlock, whatever it waits for."""
    sessions: list[Session] = []

    async def hook(context: PreToolUseContext) -> None:
        session = sessions[0]
        if name == "interrupt":
            await session.interrupt()
        elif name == "set_model":
            await session.set_model("opus")
        elif name == "send":
            _ = await session.send_user_message("SAY more")
        else:
            await getattr(session, name)()

    with FakeCli.auto() as cli:
        bidir = BidirOptions(on_pre_tool_use=hook, on_can_use_tool=lambda _: Allow())
        async with start_session(options(cli), bidir=bidir) as session:
            sessions.append(session)
            outcome = await (await session.send_user_message("BASH ls"))
            # A gentle end refuses the tool; the interrupt may come after the model's last word.
            assert outcome.reason in ENDED.get(name, {OutcomeReason.COMPLETED})
            assert session.alive is (name not in ("stop", "aclose"))


@pytest.mark.parametrize("form", ["def", "async def"])
async def test_callbacks_see_the_context_variables_of_the_starter_of_the_session(form: str) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nothing")
    seen: list[str] = []
    variable.set("set before the start")

    def look(_: object) -> None:
        seen.append(variable.get())

    async def look_async(_: object) -> None:
        seen.append(variable.get())

    with FakeCli.auto() as cli:
        bidir = BidirOptions(on_stop=look_async if form == "async def" else look)
        async with start_session(options(cli), bidir=bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
    assert seen == ["set before the start"]


STUCK = """
import asyncio, logging, time
from bridle import BidirOptions, CliOptions, start_session
from bridle.testing import FakeCli

logging.getLogger("bridle").addHandler(logging.NullHandler())

async def main():
    asyncio.get_running_loop().slow_callback_duration = 3600  # a busy machine is no fault
    bidir = BidirOptions(on_pre_tool_use=lambda _: time.sleep(3600), callback_timeout=0.1)
    with FakeCli.auto() as cli:
        async with start_session(CliOptions(cli_path=cli.path), bidir=bidir) as session:
            outcome = await (await session.send_user_message("CALL Read"))
            print([str(e.kind) async for e in first(session, 3) if hasattr(e, "kind")])

async def first(session, count):
    events = session.events()
    for _ in range(count):
        yield await anext(events)

asyncio.run(main())
"""


def test_a_callback_that_never_returns_does_not_keep_the_program_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", STUCK], capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['hook_timed_out', 'callback_abandoned']\n"


# ---------------------------------------------------------------- tools in this process

ALLOW: dict[str, Any] = {"on_can_use_tool": lambda _: Allow()}


def call(server: object, prompt: str, **more: Any) -> tuple[str, list[str]]:
    """One prompt to a session with a server; its text, and the kinds of warnings."""

    async def main() -> tuple[str, list[str]]:
        with FakeCli.auto() as cli:
            bidir = BidirOptions(mcp_servers={"calc": server}, **ALLOW, **more)
            async with start_session(options(cli), bidir=bidir) as session:
                outcome = await (await session.send_user_message(prompt))
                assert outcome.ok
            return outcome.text, warnings_of(await told_by(session))

    return run(main)


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_tool_is_called_with_its_arguments_and_gives_its_result(
    flavour: str, is_async: bool
) -> None:
    """R320, R329, R330, R334."""
    threads: list[str] = []

    @tool
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        threads.append(threading.current_thread().name)
        return a + b

    @tool(name="add")
    async def add_async(a: float, b: float) -> float:
        """Add two numbers."""
        threads.append(threading.current_thread().name)
        return a + b

    async def main() -> None:
        server = ToolServer([add_async if is_async else add])
        with FakeCli.auto(flavour=flavour) as cli:
            bidir = BidirOptions(mcp_servers={"calc": server}, **ALLOW)
            async with start_session(options(cli), bidir=bidir) as session:
                prompt = 'CALL mcp__calc__add {"a": 2, "b": 3}'
                assert (await (await session.send_user_message(prompt))).text in ("5", "5.0")

    run(main)
    assert [name == "MainThread" for name in threads] == [is_async]


def test_a_tool_that_fails_tells_the_model_little_and_the_application_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R301, R325."""

    @tool
    def broken() -> str:
        """Never works."""
        raise ValueError("swordfish is no password")

    @tool
    def honest() -> str:
        """Says why."""
        raise ToolFailure("There is no such file.")

    server = ToolServer([broken, honest])
    text_of, warned = call(server, "CALL mcp__calc__broken")
    assert text_of == "Error: ValueError"
    assert warned == ["mcp_failed"]
    assert "swordfish is no password" in caplog.text
    assert "Traceback" in caplog.text
    assert call(server, "CALL mcp__calc__honest") == ("There is no such file.", [])


def test_arguments_are_checked_before_a_tool_is_called() -> None:
    called: list[float] = []

    @tool
    def half(a: float) -> float:
        """Half of it."""
        called.append(a)
        return a / 2

    answer, _ = call(ToolServer([half]), 'CALL mcp__calc__half {"a": "much"}')
    assert "a" in answer
    assert called == []


class Strict(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        raise RuntimeError("swordfish")


class Odd(dict[str, object]):
    def items(self) -> Any:
        raise RuntimeError("swordfish")


def test_the_texts_of_validators_and_results_that_raise_stay_in_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def strict(value: Strict) -> str:
        """Never called."""
        return str(value)

    @tool
    def odd() -> Odd:
        """Return what cannot be read."""
        return Odd(content=[{"type": "text", "text": "x"}])

    server = ToolServer([strict, odd])
    answer = call(server, 'CALL mcp__calc__strict {"value": {"a": 1}}')
    assert answer == ("Error: RuntimeError", ["mcp_failed"])
    told, _ = call(server, "CALL mcp__calc__odd")
    assert told == "Error: the result of the tool cannot be sent"
    assert caplog.text.count("RuntimeError: swordfish") >= 2


async def test_a_tool_gets_its_session_and_its_call() -> None:
    seen: list[tuple[object, str | None]] = []

    @tool
    async def whoami(context: ToolContext) -> str:
        """Who asks."""
        assert isinstance(context.session, Session)
        seen.append((context.session, context.tool_use_id))
        return str(context.session.id)

    with FakeCli.auto() as cli:
        bidir = BidirOptions(mcp_servers={"calc": ToolServer([whoami])}, **ALLOW)
        async with start_session(options(cli), bidir=bidir) as session:
            outcome = await (await session.send_user_message("CALL mcp__calc__whoami"))
            assert outcome.text == session.id
            assert seen[0][0] is session
            assert seen[0][1]


async def test_calls_without_a_tool_use_have_different_keys_also_in_another_session() -> None:
    keys: list[str] = []

    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        assert context.tool_use_id is None
        assert context.idempotency_key == keys[-1]
        return "paid"

    message = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "pay"}}
    said = {"content": [{"type": "text", "text": "paid"}]}
    for _ in range(2):
        script = FakeCli().expect_initialize().start_turn()
        for number in range(2):
            script = script.ask_mcp("shop", {**message, "id": number}).expect_mcp_result(said)
        with script.result() as cli:
            bidir = BidirOptions(mcp_servers={"shop": ToolServer([pay])})
            async with start_session(options(cli), bidir=bidir) as session:
                assert (await (await session.send_user_message("go"))).ok
                cli.check()
    assert len(set(keys)) == 4
    assert all(len(bytes.fromhex(key)) == 16 for key in keys)


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
async def test_calls_that_come_together_run_together(is_async: bool) -> None:
    """R336, C06: three calls that can only end when all three have begun."""
    barrier = threading.Barrier(3, timeout=5)
    arrived: list[int] = []

    @tool
    def meet(number: int) -> str:
        """Waits for the others."""
        barrier.wait()
        return f"met {number}"

    @tool(name="meet")
    async def meet_async(number: int) -> str:
        """Waits for the others."""
        arrived.append(number)
        await until(lambda: len(arrived) == 3)
        return f"met {number}"

    script = FakeCli().expect_initialize().start_turn()
    for number in range(3):
        params = {"name": "meet", "arguments": {"number": number}}
        script = script.ask_mcp(
            "calc", {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        )
    for number in range(3):
        said = [{"type": "text", "text": f"met {number}"}]
        script = script.expect_mcp_result({"content": said})
    with script.result() as cli:
        server = ToolServer([meet_async if is_async else meet])
        bidir = BidirOptions(mcp_servers={"calc": server})
        async with start_session(options(cli), bidir=bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
            cli.check()


RPC = {"jsonrpc": "2.0", "id": "123", "method": "tools/list"}


async def test_a_raw_handler_gets_the_message_as_it_is_and_its_answer_the_id_of_the_question() -> (
    None
):
    """R315, R323, R324, C07."""
    seen: list[object] = []

    def handle(message: dict[str, Any]) -> McpResponse:
        seen.append(message)
        if message["method"] == "tools/list":
            return McpResponse(id=message["id"], result={"tools": []})
        return McpResponse(id=message["id"], error=McpError(-32601, "no such method"))

    script = FakeCli().expect_initialize(like={"sdkMcpServers": ["test"]})
    script = script.ask_mcp("test", RPC).expect_mcp_result({"tools": []})
    script = script.ask_mcp("test", {**RPC, "method": "x"}).expect_mcp_error({"code": -32601})
    script = script.ask_mcp("nobody", RPC).expect_mcp_error({"code": -32601})
    with script.turn() as cli:
        bidir = BidirOptions(mcp_servers=[("test", handle)])
        async with start_session(options(cli), bidir=bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
            cli.check()
        answers = [
            x["response"]["response"] for x in cli.received if x["type"] == "control_response"
        ]
        assert [answer["mcp_response"]["id"] for answer in answers] == ["123"] * 3
    assert seen == [RPC, {**RPC, "method": "x"}]


async def test_a_raw_handler_that_exits_is_reported_as_failed() -> None:
    def handle(message: dict[str, Any]) -> McpResponse:
        raise SystemExit(3)

    text = "the server failed to handle the message"
    script = FakeCli().expect_initialize()
    script = script.ask_mcp("test", RPC).expect_mcp_error({"message": text})
    with script.turn() as cli:
        bidir = BidirOptions(mcp_servers=[("test", handle)])
        async with start_session(options(cli), bidir=bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
            cli.check()


ODD_RPC: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "123",
    "method": "from/the_future",
    "params": {"deep": [{"x": None}, 1.5, "ü"], "_meta": {"progressToken": 7}},
    "trace": {"id": "t-1"},
    "": [],
}


async def test_members_of_json_rpc_that_bridle_does_not_know_survive_the_routing() -> None:
    """R314: in both directions, at every depth, and beside a result."""
    seen: list[dict[str, Any]] = []
    answer = {
        "jsonrpc": "2.0",
        "id": "123",
        "result": {"content": [], "extension": {"deep": [None, {"y": 1}]}},
        "trace": {"id": "t-2"},
    }

    def handle(message: dict[str, Any]) -> dict[str, Any]:
        seen.append(message)
        return answer

    script = FakeCli().expect_initialize().ask_mcp("test", ODD_RPC)
    with script.expect_mcp_result().turn() as cli:
        bidir = BidirOptions(mcp_servers={"test": handle})
        async with start_session(options(cli), bidir=bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
        [sent] = [line for line in cli.received if line["type"] == "control_response"]
    assert seen == [ODD_RPC]
    assert sent["response"]["response"] == {"mcp_response": answer}


async def test_a_cli_that_answers_the_handshake_only_after_its_servers_is_not_kept_waiting() -> (
    None
):
    """R317, C05: early messages wait a second for it, then they are routed as if it had come."""

    def handle(message: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}

    script = FakeCli().expect_request("initialize")
    script = script.ask_mcp("test", RPC).expect_mcp_result().reply({"commands": []}).turn()
    with script as cli:
        bidir = BidirOptions(mcp_servers={"test": handle})
        clock = Clock()
        async with start_session(options(cli), bidir=bidir) as session:
            assert clock.elapsed > 0.9
            assert (await (await session.send_user_message("go"))).ok
            cli.check()


async def test_messages_for_servers_wait_until_the_session_runs() -> None:
    """R316, R319, C05: in order, before the handshake is answered."""
    seen: list[int] = []

    async def handle(message: dict[str, Any]) -> dict[str, Any]:
        seen.append(message["id"])
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}

    script = FakeCli()
    for number in range(5):
        script = script.ask_mcp("test", {**RPC, "id": number})
    script = script.expect_initialize()
    for _ in range(5):
        script = script.expect_mcp_result()
    with script.turn() as cli:
        bidir = BidirOptions(mcp_servers={"test": handle})
        async with start_session(options(cli), bidir=bidir) as session:
            assert (await (await session.send_user_message("go"))).ok
            cli.check()
    assert seen == list(range(5))


@tool
def lonely(n: int) -> int:
    """Return it."""
    return n


@pytest.mark.parametrize("server", [lonely, ToolServer], ids=["a tool", "the class"])
def test_what_only_looks_like_a_server_is_refused_before_anything_starts(server: object) -> None:
    with pytest.raises(OptionsError, match=r"ToolServer\(\[") as refusal:
        Session(bidir=BidirOptions(mcp_servers={"calc": server}))
    assert refusal.value.field == "mcp_servers['calc']"
