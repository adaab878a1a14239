"""Where code of the user runs: in the task or thread of its callback, never inside the engine."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pydantic
import pytest
from tests.soak.sessions import options
from tests.support.processes import LIMIT, run

from bridle import (
    Allow,
    BidirOptions,
    Block,
    HookOutput,
    ToolServer,
    start_session,
    tool,
)
from bridle.permissions import Edit
from bridle.testing import FakeCli


class Place(NamedTuple):
    """Where some code ran."""

    thread: threading.Thread
    task: object
    is_in_engine: bool


def here() -> Place:
    """Return where this is called."""
    try:
        task: object = asyncio.current_task()
    except RuntimeError:
        task = None
    files = [frame.filename for frame in traceback.extract_stack()]
    is_in_engine = any("/bridle/_engine/" in file for file in files)
    return Place(threading.current_thread(), task, is_in_engine)


def session_with(prompt: str, **bidir: Any) -> str:
    """Run one prompt in a session with these callbacks and return its text."""

    async def main() -> str:
        with FakeCli.auto() as cli:
            settings = {"on_can_use_tool": lambda _: Allow(), **bidir}
            async with start_session(options(cli), bidir=BidirOptions(**settings)) as session:
                return (await (await session.send_user_message(prompt))).text

    return run(main)


# ---------------------------------------------------------------- arguments of tools


def models(note: Callable[[], None]) -> dict[str, type]:
    """Return types whose validation calls ``note``."""

    class Model(pydantic.BaseModel):
        a: int

        @pydantic.field_validator("a")
        @classmethod
        def check(cls, value: int) -> int:
            note()
            return value

    @dataclasses.dataclass
    class Record:
        a: int

        def __post_init__(self) -> None:
            note()

    return {"pydantic": Model, "dataclass": Record}


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("kind", ["pydantic", "dataclass"])
def test_arguments_are_validated_where_the_tool_runs(kind: str, is_async: bool) -> None:
    validated: list[Place] = []
    called: list[Place] = []
    model = models(lambda: validated.append(here()))[kind]

    def take(item: Any) -> str:
        called.append(here())
        return f"took {item.a}"

    async def take_async(item: Any) -> str:
        return take(item)

    function = take_async if is_async else take
    function.__annotations__["item"] = model
    server = ToolServer([tool(function, name="take", description="Take it.")])
    text = session_with('CALL mcp__calc__take {"item": {"a": 3}}', mcp_servers={"calc": server})
    assert text == "took 3"
    assert validated == called
    [place] = validated
    assert not place.is_in_engine
    assert (place.thread is threading.main_thread()) is is_async
    assert (place.task is not None) is is_async


def test_a_slow_validator_of_a_plain_tool_does_not_stop_the_event_loop() -> None:
    """The validator waits for the event loop to do something else."""
    ticked = threading.Event()

    def wait_for_the_loop() -> None:
        assert ticked.wait(10)

    model = models(wait_for_the_loop)["pydantic"]

    def take(item: Any) -> str:
        return "done"

    take.__annotations__["item"] = model

    async def main() -> str:
        with FakeCli.auto() as cli:
            server = ToolServer([tool(take, description="Take it.")])
            bidir = BidirOptions(mcp_servers={"calc": server}, on_can_use_tool=lambda _: Allow())
            async with start_session(options(cli), bidir=bidir) as session:
                turn = await session.send_user_message('CALL mcp__calc__take {"item": {"a": 3}}')
                tick = asyncio.get_running_loop().call_later(0.3, ticked.set)
                try:
                    return (await turn).text
                finally:
                    tick.cancel()

    assert run(main) == "done"


# ---------------------------------------------------------------- results


class Observed(Mapping[str, object]):
    """A mapping that notes where it is read."""

    def __init__(self, places: list[Place], **members: object) -> None:
        self._places, self._members = places, members

    def __getitem__(self, key: str) -> object:
        self._places.append(here())
        return self._members[key]

    def __iter__(self) -> Iterator[str]:
        self._places.append(here())
        return iter(self._members)

    def __len__(self) -> int:
        self._places.append(here())
        return len(self._members)


MCP_ANSWER = {"jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": "ok"}]}}


def callbacks(kind: str, places: list[Place]) -> tuple[str, str, Callable[[Any], object]]:
    """Return a prompt, the option that takes the callback, and what the callback returns."""
    read = Observed(places, command="ls")
    if kind == "hook":
        return "BASH ls", "on_pre_tool_use", lambda _: HookOutput(updated_input=read)
    if kind == "hook dict":
        return "BASH ls", "on_pre_tool_use", lambda _: Observed(places, systemMessage="hi")
    return "BASH ls", "on_can_use_tool", lambda _: Edit(read)


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("kind", ["hook", "hook dict", "permission"])
def test_results_are_serialised_where_the_callback_runs(kind: str, is_async: bool) -> None:
    read: list[Place] = []
    called: list[Place] = []
    prompt, option, make = callbacks(kind, read)

    def plain(context: object) -> object:
        called.append(here())
        return make(context)

    async def awaited(context: object) -> object:
        return plain(context)

    session_with(prompt, **{option: awaited if is_async else plain})
    assert read
    assert set(read) == set(called)
    assert not any(place.is_in_engine for place in read)
    assert {place.thread is threading.main_thread() for place in read} == {is_async}


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_results_of_tools_are_serialised_where_the_tool_runs(is_async: bool) -> None:
    read: list[Place] = []

    def look() -> Any:
        return Observed(read, found=1)

    async def look_async() -> Any:
        return look()

    server = ToolServer([tool(look_async if is_async else look, name="look", description="Look.")])
    session_with("CALL mcp__calc__look {}", mcp_servers={"calc": server})
    assert read
    assert not any(place.is_in_engine for place in read)
    assert {place.thread is threading.main_thread() for place in read} == {is_async}


def test_messages_of_raw_handlers_are_serialised_where_the_handler_runs() -> None:
    read: list[Place] = []

    def handle(message: Mapping[str, Any]) -> object:
        if "id" not in message:
            return None
        results: dict[str, object] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "calc", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
        }
        result = results.get(message["method"], MCP_ANSWER["result"])
        return Observed(read, jsonrpc="2.0", id=message["id"], result=result)

    assert session_with("CALL mcp__calc__look {}", mcp_servers={"calc": handle}) == "ok"
    assert read
    assert not any(place.is_in_engine for place in read)
    assert all(place.thread is not threading.main_thread() for place in read)


# ---------------------------------------------------------------- objects that raise


class Panic(BaseException):
    """Not an Exception, as the panics of extension modules are."""


class Odd:
    """An object whose text cannot be made."""

    def __str__(self) -> str:
        raise Panic


class OddError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise Panic


def raise_odd(context: object) -> Any:
    raise OddError


def block_odd(context: object) -> Any:
    return Block(Odd())  # type: ignore[arg-type]


IN_TURN = FakeCli().expect_initialize().start_turn()
HOOK = IN_TURN.ask_hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
PERMISSION = IN_TURN.ask_permission("Bash", command="ls")


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("script", "name", "function"),
    [
        (HOOK.expect_block(), "on_pre_tool_use", block_odd),
        (PERMISSION.expect_deny(), "on_can_use_tool", raise_odd),
    ],
    ids=["a hook that blocks", "a permission callback that raises"],
)
async def test_a_gate_is_answered_although_an_object_of_the_user_raises(
    script: FakeCli, name: str, function: Callable[[object], Any], is_async: bool
) -> None:
    async def later(context: object) -> Any:
        return function(context)

    callback: Any = {name: later if is_async else function}
    bidir = BidirOptions(**callback)
    with script.result() as cli:
        async with start_session(options(cli), bidir=bidir) as session:
            async with asyncio.timeout(LIMIT):
                assert (await (await session.send_user_message("go"))).ok
        cli.check()


# ---------------------------------------------------------------- texts of exceptions


class ObservedError(Exception):
    """An exception that notes where its text is made."""

    def __init__(self, places: list[Place]) -> None:
        super().__init__()
        self._places = places

    def __str__(self) -> str:
        self._places.append(here())
        return "observed"


def log_texts(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(map(logging.Formatter().format, caplog.records))


@pytest.mark.parametrize("option", ["on_pre_tool_use", "on_can_use_tool", "on_event"])
def test_the_text_of_an_exception_is_made_in_the_thread_of_the_callback(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also the text in the log, where the record has the traceback."""
    read: list[Place] = []

    def fail(_: object) -> Any:
        raise ObservedError(read)

    caplog.set_level("WARNING", "bridle")
    session_with("BASH ls", **{option: fail})
    logged = log_texts(caplog)
    assert "ObservedError: observed" in logged
    assert "in fail" in logged
    assert read
    assert all(place.thread is not threading.main_thread() for place in read)
