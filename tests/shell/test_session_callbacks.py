"""Questions of the CLI to functions of the application: every kind of function, every way it goes.

The fake CLI checks the answers: a script that does not get what it expects says so (``check``).
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import anyio
import pytest
from tests.soak.sessions import options, told_by, warnings_of
from tests.support.processes import LIMIT, run, until

from bridle import (
    Accept,
    Allow,
    AllowAll,
    AllowOnce,
    BidirOptions,
    Block,
    CanUseToolContext,
    CliOptions,
    Continue,
    Deny,
    Edit,
    EndTurn,
    Hook,
    ModifyInput,
    OptionsError,
    PreToolUseContext,
    SdkWarning,
    Session,
    ToolContext,
    ToolServer,
    start_session,
    tool,
)
from bridle._callbacks.call_limits import MAX_ABANDONED, MAX_THREADS
from bridle.errors import UsageError
from bridle.hooks import UnknownHookContext
from bridle.permissions import Complete
from bridle.testing import FakeCli, with_deps

Function = Callable[[Any], Any]

in_turn = FakeCli().expect_initialize().start_turn()
LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
INPUT = {"command": "ls"}

# What is asked, by kind of callback.
ASK: dict[str, FakeCli] = {
    "hook": in_turn.ask_hook("PreToolUse", tool_name="Bash", tool_input=INPUT),
    "permission": in_turn.ask_permission("Bash", **INPUT),
    "handler": in_turn.ask_mcp("raw", LIST),
    "elicitation": in_turn.ask_elicitation("Your name?"),
    "dialog": in_turn.ask("request_user_dialog", dialog_kind="pick", payload={"from": ["a"]}),
}


def registered(kind: str, function: Function, **more: Any) -> BidirOptions:
    """Options with the function in its place."""
    places: dict[str, dict[str, Any]] = {
        "hook": {"on_pre_tool_use": function},
        "permission": {"on_can_use_tool": function},
        "handler": {"mcp_servers": {"raw": function}},
        "elicitation": {"on_elicitation": function},
        "dialog": {"on_user_dialog": function, "supported_dialog_kinds": ["pick"]},
    }
    return BidirOptions(**places[kind], **more)


def play(script: FakeCli, bidir: BidirOptions) -> list[str]:
    """One prompt against the script; returns the kinds of warnings there were."""

    async def main() -> list[str]:
        with script.result() as cli:
            async with start_session(options(cli), bidir=bidir) as session:
                outcome = await (await session.send_user_message("go"))
                cli.check()
                assert outcome.ok
            return warnings_of(await told_by(session))

    return run(main)


class Method:
    """Callbacks may be methods and callable objects too."""

    def __init__(self, value: object) -> None:
        self.value = value

    def plain(self, _: object) -> object:
        return self.value

    async def asynchronous(self, _: object) -> object:
        return self.value

    async def __call__(self, _: object) -> object:
        return self.value


FORMS: dict[str, Callable[[object], Function]] = {
    "def": lambda value: lambda _: value,
    "async def": lambda value: Method(value).asynchronous,
    "method": lambda value: Method(value).plain,
    "object": Method,
    "lambda around async": lambda value: lambda _: Method(value).asynchronous(_),
}


# ---------------------------------------------------------------- what functions answer


class Case(NamedTuple):
    """What a callback returns, and what the CLI makes of it."""

    kind: str
    value: object
    expect: Callable[[FakeCli], FakeCli]
    warned: tuple[str, ...] = ()


ANSWERS = {
    "hook None": Case("hook", None, lambda c: c.expect_continue()),
    "hook Continue": Case("hook", Continue(), lambda c: c.expect_continue()),
    "hook Block": Case("hook", Block("no"), lambda c: c.expect_block()),
    "hook ModifyInput": Case(
        "hook",
        ModifyInput({"command": "pwd"}),
        lambda c: c.expect_hook({"hookSpecificOutput": {"updatedInput": {"command": "pwd"}}}),
    ),
    "hook EndTurn": Case("hook", EndTurn("enough"), lambda c: c.expect_hook({"continue": False})),
    "hook Deny": Case("hook", Deny("no"), lambda c: c.expect_block()),
    "hook False": Case("hook", False, lambda c: c.expect_block(), ("hook_failed",)),
    "hook junk": Case("hook", 42, lambda c: c.expect_block(), ("hook_failed",)),
    "hook official block": Case(
        "hook", {"decision": "block", "reason": "no"}, lambda c: c.expect_block()
    ),
    "hook official deny": Case(
        "hook",
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}},
        lambda c: c.expect_block(),
    ),
    "hook unencodable": Case(
        "hook", ModifyInput({"x": object()}), lambda c: c.expect_block(), ("unencodable_result",)
    ),
    "permission Allow": Case("permission", Allow(), lambda c: c.expect_allow(INPUT)),
    "permission AllowOnce": Case("permission", AllowOnce(), lambda c: c.expect_allow(INPUT)),
    "permission AllowAll": Case("permission", AllowAll(), lambda c: c.expect_allow(INPUT)),
    "permission Edit": Case(
        "permission", Edit({"command": "pwd"}), lambda c: c.expect_allow({"command": "pwd"})
    ),
    "permission Deny": Case("permission", Deny("no"), lambda c: c.expect_deny("no")),
    "permission None": Case("permission", None, lambda c: c.expect_deny(), ("permission_failed",)),
    "permission junk": Case("permission", True, lambda c: c.expect_deny(), ("permission_failed",)),
    "permission unencodable": Case(
        "permission", Edit({"x": object()}), lambda c: c.expect_deny(), ("unencodable_result",)
    ),
    "handler result": Case(
        "handler",
        {"jsonrpc": "2.0", "id": 7, "result": {"tools": []}},
        lambda c: c.expect_mcp_result({"tools": []}),
    ),
    "handler error": Case(
        "handler",
        {"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "bad"}},
        lambda c: c.expect_mcp_error({"code": -32602, "message": "bad"}),
    ),
    "handler junk": Case(
        "handler", 42, lambda c: c.expect_mcp_error({"code": -32603}), ("unencodable_result",)
    ),
    "elicitation Accept": Case(
        "elicitation",
        Accept({"name": "Bo"}),
        lambda c: c.expect_elicitation("accept", {"name": "Bo"}),
    ),
    "elicitation junk": Case(
        "elicitation", 42, lambda c: c.expect_elicitation("cancel"), ("elicitation_failed",)
    ),
    "dialog Complete": Case(
        "dialog",
        Complete("a"),
        lambda c: c.expect_answer({"response": {"behavior": "completed", "result": "a"}}),
    ),
    "dialog junk": Case(
        "dialog",
        42,
        lambda c: c.expect_answer({"response": {"behavior": "cancelled"}}),
        ("dialog_failed",),
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_callback_returns_reaches_the_cli(name: str) -> None:
    """R280, R304, R306, R314."""
    kind, value, expect, warned = ANSWERS[name]
    for form in ("def", "async def"):
        # The expectation is replayed by a CLI that knows what it asked.
        assert play(expect(ASK[kind]), registered(kind, FORMS[form](value))) == list(warned), form


def test_a_hook_of_an_event_that_bridle_does_not_know_is_called() -> None:
    """The event is registered, its context has everything, and a warning names it."""
    seen: list[Any] = []

    def watch(context: Any) -> Block:
        seen.append(context)
        return Block("not now")

    script = in_turn.ask_hook("BrandNew", subject="x", tool_name="Bash").expect_hook(
        {"decision": "block", "reason": "not now"}
    )
    warned = play(script, BidirOptions(hooks={"BrandNew": [Hook(watch)]}))
    [context] = seen
    assert type(context) is UnknownHookContext
    assert (context.hook_event_name, context.raw["subject"]) == ("BrandNew", "x")
    # Whether the CLI honours the block is not known either.
    assert warned == ["unknown_value", "cannot_block"]


@pytest.mark.parametrize("form", FORMS)
def test_a_callback_may_be_any_kind_of_function(form: str) -> None:
    """R312."""
    assert play(ASK["hook"].expect_block(), registered("hook", FORMS[form](Block("no")))) == []


# ---------------------------------------------------------------- failing and being late

FAIL_SAFE: dict[str, tuple[Callable[[FakeCli], FakeCli], str, str]] = {
    "hook": (lambda c: c.expect_continue(), "hook_failed", "hook_timed_out"),
    "permission": (lambda c: c.expect_deny(), "permission_failed", "permission_timed_out"),
    "elicitation": (
        lambda c: c.expect_elicitation("cancel"),
        "elicitation_failed",
        "elicitation_failed",
    ),
    "dialog": (
        lambda c: c.expect_answer({"response": {"behavior": "cancelled"}}),
        "dialog_failed",
        "dialog_failed",
    ),
    "handler": (lambda c: c.expect_mcp_error({"code": -32603}), "mcp_failed", ""),
}


def raising(is_async: bool, error: BaseException) -> Function:
    async def fail_later(_: object) -> None:
        raise error

    def fail(_: object) -> None:
        raise error

    return fail_later if is_async else fail


class Unspeakable(Exception):
    """Breaks whatever looks at it closely, as those do that pass every name on to a response."""

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


class Nothing(Exception):
    """Counts as false."""

    def __len__(self) -> int:
        return 0


def raising_late(error: BaseException) -> Function:
    async def fail(_: object) -> None:
        await asyncio.sleep(0)
        raise error

    return fail


# What ends an event loop when a task raises it is reported like any other exception of a thread.
RAISED: dict[str, tuple[bool, BaseException]] = {
    "def": (False, ValueError("oops")),
    "async def": (True, ValueError("oops")),
    "def, exit": (False, SystemExit(3)),
    "def, Ctrl-C": (False, KeyboardInterrupt()),
    "async def, cancelled": (True, asyncio.CancelledError()),
}


@pytest.mark.parametrize("how", RAISED)
@pytest.mark.parametrize("kind", FAIL_SAFE)
def test_a_callback_that_raises_is_answered_for_and_reported(kind: str, how: str) -> None:
    """R296, R299, R300, C26: hooks fail open, the rest is refused.

    A hook that ends the program has not decided, so it blocks.
    """
    is_async, error = RAISED[how]
    expect, failed, _ = FAIL_SAFE[kind]
    if kind == "hook" and not isinstance(error, Exception):
        expect = FakeCli.expect_block
    assert play(expect(ASK[kind]), registered(kind, raising(is_async, error))) == [failed]


@pytest.mark.parametrize("error", [Unspeakable("oops"), Nothing()], ids=["unspeakable", "false"])
@pytest.mark.parametrize("how", ["def", "async def", "later"])
def test_an_odd_exception_is_answered_for_like_any_other(how: str, error: Exception) -> None:
    """R296, R300: whatever it does to those who print it, or ask whether it is true."""
    function = raising_late(error) if how == "later" else raising(how == "async def", error)
    # Twice, since the first call of an async function has a task of its own.
    for kind, (expect, failed, _) in FAIL_SAFE.items():
        script = expect(ASK[kind]).ask_permission("Bash", **INPUT).expect_deny()
        given = registered(kind, function)
        if kind != "permission":
            given = BidirOptions(**{**vars(given), "on_can_use_tool": function})
        assert play(script, given) == [failed, "permission_failed"]


async def test_the_notes_of_an_exception_are_for_the_log_alone() -> None:
    """R296: what is told, to the model too, is the exception."""
    error = ValueError("the disk is full")
    error.add_note("account 4711")
    with FAIL_SAFE["permission"][0](ASK["permission"]).result() as cli:
        bidir = registered("permission", raising(True, error))
        async with start_session(options(cli), bidir=bidir) as session:
            await (await session.send_user_message("go"))
        [warning] = [each for each in await told_by(session) if isinstance(each, SdkWarning)]
        assert warning.detail.startswith("permission for Bash (")
        assert warning.detail.endswith("): ValueError: the disk is full")


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("kind", ["hook", "permission", "elicitation", "dialog"])
def test_a_callback_that_is_late_is_answered_for_and_left(kind: str, is_async: bool) -> None:
    """R295, R299, R300, C55: a plain function is abandoned with a warning."""
    expect, _, late = FAIL_SAFE[kind]
    over, cancelled = threading.Event(), threading.Event()

    async def wait_async(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def wait(_: object) -> None:
        over.wait(30)

    bidir = registered(
        kind, wait_async if is_async else wait, callback_timeout=0.1, permission_timeout=0.1
    )
    try:
        warned = play(expect(ASK[kind]), bidir)
    finally:
        over.set()
    assert warned == ([late] if is_async else [late, "callback_abandoned"])
    assert cancelled.is_set() is is_async


TIMEOUTS: dict[str, Mapping[str, Any]] = {
    "callback_timeout": {"on_pre_tool_use": None, "callback_timeout": 0.1},
    "hook_timeouts": {"on_pre_tool_use": None, "hook_timeouts": {"PreToolUse": 0.1}},
    "Hook": {"hooks": {"PreToolUse": 0.1}},
}


@pytest.mark.parametrize("name", TIMEOUTS)
def test_the_nearest_deadline_of_a_hook_counts(name: str) -> None:
    """R071, R072, R280, C09."""

    async def wait(_: object) -> None:
        await asyncio.Event().wait()

    given = dict(TIMEOUTS[name])
    if "hooks" in given:
        given["hooks"] = {"PreToolUse": [Hook(wait, timeout=0.1)]}
    else:
        given["on_pre_tool_use"] = wait
    assert play(ASK["hook"].expect_continue(), BidirOptions(**given)) == ["hook_timed_out"]


@pytest.mark.parametrize("is_late", [False, True], ids=["raises", "is late"])
def test_a_hook_may_block_instead_when_it_fails(is_late: bool) -> None:
    async def fail(_: object) -> None:
        if is_late:
            await asyncio.Event().wait()
        raise ValueError("oops")

    hook = Hook(fail, timeout=0.1, on_error="block")
    warned = play(ASK["hook"].expect_block(), BidirOptions(hooks={"PreToolUse": [hook]}))
    assert warned == ["hook_timed_out" if is_late else "hook_failed"]


async def test_a_slow_callback_holds_up_nothing_but_its_own_answer() -> None:
    """R158, R165, R260, R336."""
    release = threading.Event()
    script = ASK["hook"].expect_request("mcp_status").reply().assistant("meanwhile")
    with script.expect_continue().result() as cli:
        bidir = registered("hook", lambda _: release.wait(LIMIT) and None)
        async with start_session(options(cli), bidir=bidir) as session:
            turn = await session.send_user_message("go")
            await session.ping()
            async for message in session.messages():
                if message.type == "assistant":
                    break
            release.set()
            assert (await turn).ok
            cli.check()


# ---------------------------------------------------------------- several hooks


def test_hooks_run_in_order_and_the_first_decision_counts() -> None:
    """R284, R285, R286, R289."""
    order: list[str] = []

    def named(name: str, value: object) -> Hook:
        def note(_: PreToolUseContext) -> Any:
            order.append(name)
            return value

        return Hook(note)

    bidir = BidirOptions(
        on_pre_tool_use=named("single", None).callback,
        hooks={
            "PreToolUse": [
                named("first", Continue()), named("second", Block("no")), named("third", None)
            ],
            "Stop": [],
        },
    )  # fmt: skip
    assert play(ASK["hook"].expect_block(), bidir) == []
    assert order == ["single", "first", "second"]


async def test_matchers_choose_the_tools_a_hook_is_for() -> None:
    """R282, R283, R288, C10, on the automatic CLI, which matches as the real one does."""
    seen: list[tuple[str, str]] = []

    def note(name: str, matcher: str | None = None) -> Hook:
        return Hook(lambda context: seen.append((name, context.tool_name)), matcher=matcher)

    hooks = {"PreToolUse": [note("all"), note("bash", "Bash"), note("files", "Read|Write")]}
    with FakeCli.auto() as cli:
        bidir = BidirOptions(hooks=hooks, on_can_use_tool=lambda _: Allow())
        async with start_session(options(cli), bidir=bidir) as session:
            for prompt in ("BASH ls", 'CALL Read {"file_path": "/x"}', "CALL Other"):
                assert (await (await session.send_user_message(prompt))).ok
    expected = [
        ("all", "Bash"),
        ("bash", "Bash"),
        ("all", "Read"),
        ("files", "Read"),
        ("all", "Other"),
    ]
    assert sorted(seen) == sorted(expected)


# ---------------------------------------------------------------- withdrawn questions


@pytest.mark.parametrize("form", ["async", "awaits", "thread"])
async def test_the_callback_of_a_withdrawn_request_gets_the_withdrawal(form: str) -> None:
    """It is not answered either."""
    told = threading.Event()
    asked = threading.Event()

    async def think(context: CanUseToolContext) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert context.cancelled
            told.set()

    async def await_it(context: CanUseToolContext) -> Any:
        asked.set()
        await context.wait_cancelled()
        told.set()

    def in_thread(context: CanUseToolContext) -> Any:
        asked.set()
        if context.wait_cancelled_sync(LIMIT):
            told.set()

    function: Function = {"async": think, "awaits": await_it, "thread": in_thread}[form]
    script = ASK["permission"].expect_request("mcp_status").reply().withdraw()
    with script.result().silence() as cli:
        async with start_session(options(cli), bidir=registered("permission", function)) as session:
            turn = await session.send_user_message("go")
            await until(asked.is_set)
            await session.ping()
            assert (await turn).ok
            await until(told.is_set)
            assert [line for line in cli.received if line["type"] == "control_response"] == []
            await session.stop()


# ---------------------------------------------------------------- capacity


@pytest.mark.parametrize("form", ["async def", "def"])
async def test_two_thousand_requests_at_once_all_get_the_callbacks_answer(form: str) -> None:
    """R327: they wait, in a bounded number of threads; load decides nothing."""
    count = 2000
    asked = running = most = 0
    go_async, go = asyncio.Event(), threading.Event()

    async def wait_async(_: object) -> Allow:
        nonlocal asked
        asked += 1
        await go_async.wait()
        return Allow()

    def wait(_: object) -> Allow:
        nonlocal asked, running, most
        with lock:
            asked += 1
            running += 1
            most = max(most, running)
        go.wait(LIMIT)
        with lock:
            running -= 1
        return Allow()

    lock = threading.Lock()
    script = in_turn
    for number in range(count):
        script = script.ask_permission("Bash", command=str(number))
    with script.expect_request("mcp_status").reply().silence() as cli:
        bidir = registered("permission", wait_async if form == "async def" else wait)
        async with start_session(options(cli), bidir=bidir) as session:
            _ = await session.send_user_message("go")
            await session.ping()
            await until(lambda: asked >= (count if form == "async def" else MAX_THREADS))
            assert behaviors(cli) == []
            assert (form == "async def") or asked == MAX_THREADS
            go_async.set()
            go.set()
            await until(lambda: len(behaviors(cli)) == count)
            assert set(behaviors(cli)) == {"allow"}
            await session.stop()
        assert warnings_of(await told_by(session)) == []
    assert most == (0 if form == "async def" else MAX_THREADS)


async def test_permission_functions_that_wait_for_a_person_do_not_hold_up_a_guard() -> None:
    answered = threading.Event()

    def ask_a_person(_: object) -> Allow:
        answered.wait(LIMIT)
        return Allow()

    script = in_turn
    for number in range(MAX_THREADS + 8):
        script = script.ask_permission("Bash", command=str(number))
    script = script.ask_hook("PreToolUse", tool_name="Bash", tool_input=INPUT).expect_block()
    with script.silence() as cli:
        bidir = BidirOptions(
            on_can_use_tool=ask_a_person,
            on_pre_tool_use=lambda _: Block("no"),
        )
        async with start_session(options(cli), bidir=bidir) as session:
            _ = await session.send_user_message("go")
            await until(lambda: len(responses(cli)) == 1)
            assert "deny" in str(responses(cli))
            answered.set()
            await until(lambda: len(responses(cli)) == MAX_THREADS + 9)
            await session.stop()


def test_a_guard_blocks_once_too_many_of_its_calls_hang() -> None:
    """The first ones fail open by their deadline, as hooks do; then no thread is left for more."""
    release = threading.Event()

    async def main() -> None:
        script = in_turn
        for _ in range(MAX_ABANDONED + 20):
            script = script.ask_hook("PreToolUse", tool_name="Bash", tool_input=INPUT)
        with script.silence() as cli:
            bidir = registered("hook", lambda _: release.wait(30) and None, callback_timeout=0.2)
            async with start_session(options(cli), bidir=bidir) as session:
                _ = await session.send_user_message("go")
                await until(lambda: len(responses(cli)) == MAX_ABANDONED + 20)
                blocked = [one for one in responses(cli) if "deny" in str(one)]
                # Those that ran when the bound was reached still had their own deadline.
                assert 0 < len(blocked) <= 20
                await session.stop()
            assert "limit_reached" in warnings_of(await told_by(session))

    try:
        run(main)
    finally:
        release.set()


def responses(cli: FakeCli) -> list[Any]:
    """What the session answered."""
    answers = [line["response"] for line in cli.received if line["type"] == "control_response"]
    return [answer["response"] for answer in answers]


# ---------------------------------------------------------------- context variables


@pytest.mark.parametrize("kind", ["hook", "permission", "elicitation"])
@pytest.mark.parametrize("form", ["async def", "def"])
async def test_a_callback_gets_the_deps_of_its_prompt_or_of_its_session(
    kind: str, form: str
) -> None:
    seen: list[object] = []

    async def look_async(ctx: Any) -> None:
        seen.append(ctx.deps)

    def look(ctx: Any) -> None:
        seen.append(ctx.deps)

    function = look if form == "def" else look_async
    script = FakeCli().expect_initialize()
    for _ in range(3):
        script = asking_once(script.start_turn(), kind).result()
    with script as cli:
        bidir = registered(kind, function)
        async with Session(options(cli), bidir=bidir, deps="the session") as session:
            await (await session.send_user_message("one"))
            await (await session.send_user_message("two", deps="the prompt"))
            await (await session.send_user_message("three", deps=None))
            cli.check()
            assert session.deps == "the session"
    assert seen == ["the session", "the prompt", None]


async def test_a_tool_gets_the_deps_of_its_prompt() -> None:
    seen: list[object] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look at the deps."""
        seen.append(ctx.deps)
        return "seen"

    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "look", "arguments": {}},
    }
    script = FakeCli().expect_initialize().start_turn()
    with script.ask_mcp("calc", call).expect_answer().result() as cli:
        bidir = BidirOptions(mcp_servers={"calc": ToolServer([look])})
        async with Session(options(cli), bidir=bidir) as session:
            await (await session.send_user_message("one", deps=["a database"]))
            cli.check()
    assert seen == [["a database"]]


async def test_a_session_inside_a_callback_does_not_inherit_its_deps() -> None:
    seen: list[object] = []

    def script() -> FakeCli:
        begun = FakeCli().expect_initialize().start_turn()
        return asking_once(begun, "hook").result()

    async def look(ctx: PreToolUseContext) -> None:
        seen.append(ctx.deps)

    async def start_another(ctx: PreToolUseContext) -> None:
        with script() as cli:
            bidir = BidirOptions(on_pre_tool_use=look)
            async with start_session(options(cli), bidir=bidir) as session:
                await (await session.send_user_message("inner"))

    with script() as cli:
        bidir = BidirOptions(on_pre_tool_use=start_another)
        async with Session(options(cli), bidir=bidir, deps="outer") as session:
            await (await session.send_user_message("outer"))
    assert seen == [None]


def test_a_context_outside_a_session_has_no_deps() -> None:
    context = PreToolUseContext(tool_name="Bash")
    assert context.deps is None
    given = with_deps(context, "a database")
    assert given is context
    assert given.deps == "a database"
    assert not given.cancelled
    assert not given.wait_cancelled_sync(0.0)
    with pytest.raises(UsageError):
        _ = given.wait_cancelled()


def asking_once(script: FakeCli, kind: str) -> FakeCli:
    """The script with one request of that kind."""
    return {
        "hook": script.ask_hook("PreToolUse", tool_name="Bash", tool_input=INPUT),
        "permission": script.ask_permission("Bash", **INPUT),
        "elicitation": script.ask_elicitation("Your name?"),
    }[kind].expect_answer()


@pytest.mark.parametrize("field", ["system_prompt", "append_system_prompt"])
def test_a_system_prompt_may_be_a_function_of_the_deps(field: str) -> None:
    wire = {"system_prompt": "systemPrompt", "append_system_prompt": "appendSystemPrompt"}[field]
    prompt: dict[str, Any] = {field: lambda deps: f"You serve {deps}."}
    session = Session(CliOptions(**prompt), deps="Anna")
    assert "You serve Anna." in str(session._connection.launch.initialize[wire])


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda _: 1 / 0, "raised ZeroDivisionError"),
        (lambda _: 3, "returned int"),
    ],
)
def test_a_system_prompt_function_that_fails_is_an_options_error(
    function: Callable[[object], Any], problem: str
) -> None:
    with pytest.raises(OptionsError, match=problem):
        Session(CliOptions(system_prompt=function))


def test_an_async_system_prompt_function_is_rejected_with_the_options() -> None:
    async def prompt(_: object) -> str:
        return ""

    with pytest.raises(OptionsError, match="plain `def` function"):
        CliOptions(system_prompt=prompt)  # type: ignore[arg-type]  # pyright: ignore


SENDER: contextvars.ContextVar[str] = contextvars.ContextVar("sender", default="nobody")


@pytest.mark.parametrize("kind", ASK)
@pytest.mark.parametrize("form", ["async def", "def", "lambda around async"])
async def test_a_callback_sees_the_context_variables_of_the_code_that_sent_the_prompt(
    kind: str, form: str
) -> None:
    seen: list[str] = []

    async def look_async(_: object) -> None:
        seen.append(SENDER.get())
        SENDER.set("the callback")

    def look(_: object) -> None:
        seen.append(SENDER.get())
        SENDER.set("the callback")

    function: Function = {
        "async def": look_async,
        "def": look,
        "lambda around async": lambda argument: look_async(argument),
    }[form]

    async def send(session: Session, who: str) -> None:
        SENDER.set(who)
        await (await session.send_user_message(who))

    def asking(script: FakeCli) -> FakeCli:
        return {
            "hook": script.ask_hook("PreToolUse", tool_name="Bash", tool_input=INPUT),
            "permission": script.ask_permission("Bash", **INPUT),
            "handler": script.ask_mcp("raw", LIST),
            "elicitation": script.ask_elicitation("Your name?"),
            "dialog": script.ask("request_user_dialog", dialog_kind="pick", payload={}),
        }[kind].expect_answer()

    script = asking(asking(FakeCli().expect_initialize().start_turn())).result()
    script = asking(script.start_turn()).result()
    SENDER.set("the start")
    with script as cli:
        async with start_session(options(cli), bidir=registered(kind, function)) as session:
            for who in ("anna", "bert"):
                await asyncio.create_task(send(session, who))
            cli.check()
            assert seen == ["anna", "anna", "bert"]
    assert SENDER.get() == "the start"


def behaviors(cli: FakeCli) -> list[str]:
    """What became of the permissions the CLI asked for."""
    answers = [line["response"] for line in cli.received if line["type"] == "control_response"]
    return [answer["response"]["behavior"] for answer in answers]


# ---------------------------------------------------------------- tasks


async def test_state_that_a_hook_keeps_under_its_task_does_not_reach_the_next_hook() -> None:
    """Libraries do that: cancel scopes, timeouts, connections in use."""
    state: dict[object, str] = {}

    async def hook(context: PreToolUseContext) -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append(state.setdefault(task, str(context.tool_input["command"])))

    seen: list[str] = []
    script = in_turn
    for command in "abcd":
        tool_input = {"command": command}
        script = script.ask_hook("PreToolUse", tool_name="Bash", tool_input=tool_input)
        script = script.expect_answer()
    with script.result() as cli:
        async with start_session(options(cli), bidir=registered("hook", hook)) as session:
            await (await session.send_user_message("go"))
            cli.check()
    assert seen == ["a", "b", "c", "d"]


@pytest.mark.parametrize("library", ["asyncio", "anyio"])
async def test_a_timeout_in_a_hook_ends_an_operation_of_the_session(library: str) -> None:
    seen: list[str] = []

    async def hook(_: object) -> None:
        try:
            if library == "anyio":
                with anyio.fail_after(0.05):
                    await sessions[0].set_model("haiku")
            else:
                async with asyncio.timeout(0.05):
                    await sessions[0].set_model("haiku")
        except TimeoutError:
            seen.append("timeout")

    sessions: list[Session] = []
    script = in_turn.ask_hook("PreToolUse", tool_name="Bash", tool_input=INPUT)
    with script.expect_answer().result() as cli:
        async with start_session(options(cli), bidir=registered("hook", hook)) as session:
            sessions.append(session)
            assert (await (await session.send_user_message("go"))).ok
    assert seen == ["timeout"]
