"""`Agent` and options by name, on the fake CLI: the doors, their twins, and `run_many`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import os
import pickle
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import is_alive, run, until, wait_until

import bridle
from bridle import (
    Agent,
    BidirOptions,
    CliOptions,
    OptionsError,
    Outcome,
    OutcomeReason,
    ResultMessage,
    SdkOptions,
    ToolContext,
    ToolServer,
    sync,
)
from bridle._session.preflight import settle_keywords
from bridle._session.run import Run
from bridle._session.run_many import RunMany
from bridle.agent import RunProgress
from bridle.errors import StartFailedError, UsageError
from bridle.testing import FakeCli

UUID = "01234567-89ab-4def-8123-456789abcdef"


def price(item: str) -> float:
    """Return the price of an item."""
    return len(item)


@bridle.tool(ask=True)
def stock(item: str) -> int:
    """Return how many are in stock."""
    return len(item)


def guard(_: object) -> None:
    return None


@pytest.fixture
def cli() -> Iterator[FakeCli]:
    with FakeCli.auto() as fake:
        yield fake


@pytest.fixture
def agent(cli: FakeCli) -> Agent[Any]:
    return Agent(cli_path=cli.path, model="opus")


def pids(cli: FakeCli) -> list[int]:
    """The processes that the fake CLI has run as."""
    facts = [entry.members for one in cli.runs for entry in one if entry.direction == "meta"]
    return [fact["pid"] for fact in facts if "pid" in fact]


# ---------------------------------------------------------------- an agent


async def test_an_agent_runs_prompts_queries_and_sessions(agent: Agent[Any], cli: FakeCli) -> None:
    assert (await agent.run("one")).text == "You said: one"
    messages = [message async for message in agent.query("two")]
    results = [message for message in messages if isinstance(message, ResultMessage)]
    assert [result.result for result in results] == ["You said: two"]
    async with agent.session() as session:
        assert (await (await session.send_user_message("three"))).text == "You said: three"
    assert "--model=opus" in cli.argv


def test_its_twin_does_the_same_and_blocks(agent: Agent[Any]) -> None:
    twin = agent.sync
    assert twin.run("one").text == "You said: one"
    results = [one for one in twin.query("two") if isinstance(one, ResultMessage)]
    assert [result.result for result in results] == ["You said: two"]
    with twin.session(prompt="three") as session:
        assert isinstance(session, sync.Session)
        assert session.send_user_message("four").outcome().text == "You said: four"
    pairs = {prompt: outcome.text for prompt, outcome in twin.run_many(["a", "b"])}
    assert pairs == {"a": "You said: a", "b": "You said: b"}
    assert twin.replace(model="sonnet").options.cli.model == "sonnet"


class Name(str):
    """A text of a class of the user."""

    __slots__ = ()


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("prompt", [Name("red"), Colour.RED], ids=["subclass", "enum"])
def test_a_prompt_may_be_a_text_of_another_class(agent: Agent[Any], prompt: str) -> None:
    said = "You said: red"

    async def main() -> None:
        assert (await agent.run(prompt)).text == said
        for given in (prompt, [prompt]):
            messages = [message async for message in agent.query(given)]
            assert [one.result for one in messages if isinstance(one, ResultMessage)] == [said]
        async with agent.session(prompt=prompt) as session:
            results = (one async for one in session.messages() if isinstance(one, ResultMessage))
            assert (await anext(results)).result == said
            assert (await (await session.send_user_message(prompt))).text == said
        assert [outcome.text async for _, outcome in agent.run_many([prompt])] == [said]
        async with agent.pool(size=1) as pool:
            assert (await pool.run(prompt)).text == said

    run(main)
    assert agent.sync.run(prompt).text == said


def test_the_doors_take_options_by_name(cli: FakeCli) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"cli_path": cli.path, "model": "opus"}
        assert (await bridle.run("x", **options)).ok
        assert "--model=opus" in cli.argv
        assert [one async for one in bridle.query("x", **options)]
        async with bridle.start_session(**options, deps=3) as session:
            assert session.deps == 3
        async with bridle.Session(**options) as session:
            assert session.alive

    run(main)
    assert sync.run("x", cli_path=cli.path).ok
    assert list(sync.query("x", cli_path=cli.path))
    with sync.start_session(cli_path=cli.path, deps=4) as session:
        assert session.deps == 4
    with sync.Session(cli_path=cli.path) as session:
        assert session.alive


def test_a_call_without_an_agent_may_choose_its_conversation(cli: FakeCli) -> None:
    outcome = run(lambda: bridle.run("x", cli_path=cli.path, session_id=UUID))
    assert outcome.session_id == UUID


@pytest.mark.parametrize("way", ["run", "query", "session"])
async def test_the_calls_of_an_agent_choose_the_conversation(
    way: str, agent: Agent[Any], cli: FakeCli
) -> None:
    match way:
        case "run":
            await agent.run("x", resume_session_id=UUID, fork_session=True)
        case "query":
            assert [one async for one in agent.query("x", resume_session_id=UUID)]
        case _:
            async with agent.session(resume_session_id=UUID):
                pass
    assert f"--resume={UUID}" in cli.argv
    assert ("--fork-session" in cli.argv) == (way == "run")
    await agent.run("x")
    assert f"--resume={UUID}" not in cli.argv


@pytest.mark.parametrize("given", ["keyword", "record", "file"])
def test_an_agent_has_no_conversation_of_its_own(given: str, tmp_path: Path) -> None:
    config = tmp_path / "bridle.toml"
    config.write_text('[cli]\nresume_session_id = "x"\n')
    ways: dict[str, dict[str, Any]] = {
        "keyword": {"resume_session_id": "x"},
        "record": {"cli": CliOptions(resume_session_id="x")},
        "file": {"config_file": config},
    }
    with pytest.raises(OptionsError) as caught:
        Agent(**ways[given])
    assert caught.value.field == "resume_session_id"
    assert "agent.run(prompt, resume_session_id=...)" in caught.value.fix


def test_the_choice_of_a_conversation_is_checked_before_anything_starts(
    agent: Agent[Any], cli: FakeCli
) -> None:
    wrong: Any = agent
    with pytest.raises(OptionsError, match="fork"):
        wrong.session(fork_session=True)
    with pytest.raises(OptionsError, match=r"agent\.replace\(model"):
        wrong.query("x", model="sonnet")
    with pytest.raises(OptionsError) as caught:
        wrong.run_many(["x"], session_id=UUID)
    assert caught.value.field == "session_id"
    with pytest.raises(OptionsError):
        wrong.replace(session_id=UUID)
    assert cli.runs == []


def check_nothing(_: object, __: object) -> None:
    """A callback with too many parameters."""


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"modle": "opus"}, "modle"),
        ({"max_turns": 0}, "max_turns"),
        ({"on_pre_tool_use": check_nothing}, "on_pre_tool_use"),
        ({"mcp_servers": {"x": object()}}, "mcp_servers['x']"),
        ({"settings": "/nowhere/settings.json"}, "settings"),
        ({"config_file": "/nowhere/bridle.toml"}, "config_file"),
        ({"on_can_use_tool": guard, "permission_prompts": "none"}, "permission_prompts"),
        ({"tools": [price], "mcp_servers": {"tools": ToolServer([price])}}, "tools"),
        ({"cli": CliOptions(model="a"), "model": "b"}, "model"),
        ({"cli": SdkOptions()}, "cli"),
    ],
)
def test_an_agent_checks_everything_when_it_is_created(options: dict[str, Any], field: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Agent(**options)
    assert caught.value.field == field


def test_the_environment_and_the_file_are_read_when_an_agent_is_created(
    cli: FakeCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "bridle.toml"
    config.write_text("[cli]\nmax_turns = 3\n")
    monkeypatch.setenv("CLAUDE_MODEL", "first")
    agent = Agent(cli_path=cli.path, config_file=config)
    monkeypatch.setenv("CLAUDE_MODEL", "second")
    config.write_text("[cli]\nmax_turns = 4\n")
    assert run(lambda: agent.run("x")).ok
    assert {"--model=first", "--max-turns=3"} <= set(cli.argv)
    later = agent.replace(effort="low")
    assert (later.options.cli.model, later.options.cli.max_turns) == ("second", 4)
    assert agent.options.origin["cli.model"] == "environment:CLAUDE_MODEL"


def test_rules_for_functions_join_those_of_the_file(tmp_path: Path) -> None:
    config = tmp_path / "bridle.toml"
    config.write_text('[cli]\nallowed_tools = ["Read"]\ntools = ["Read", "Grep"]\n')
    agent = Agent(tools=[price], config_file=config)
    assert agent.options.cli.allowed_tools == ("Read", "mcp__tools__price")
    assert agent.options.cli.tools == ("Read", "Grep")
    assert agent.options.origin["cli.allowed_tools"] == "config+argument"


def test_rules_for_functions_come_from_the_program() -> None:
    origin = Agent(tools=[price]).options.origin
    assert (origin["cli.allowed_tools"], origin["cli.tools"]) == ("argument", "default")
    assert Agent(tools=[stock]).options.origin["cli.allowed_tools"] == "default"
    agent = Agent(tools=[price], allowed_tools=["Read"])
    assert agent.options.origin["cli.allowed_tools"] == "argument"


def test_an_agent_never_changes(agent: Agent[Any]) -> None:
    with pytest.raises(AttributeError, match=r"\.replace\(model=\.\.\.\)"):
        agent.model = "sonnet"
    with pytest.raises(AttributeError):
        del agent._plan
    changed = agent.replace(model="sonnet", max_turns=3)
    assert (changed.options.cli.model, changed.options.cli.max_turns) == ("sonnet", 3)
    assert (agent.options.cli.model, agent.options.cli.max_turns) == ("opus", None)
    assert agent.replace(model=None).options.cli.model is None
    assert copy.copy(agent) is copy.deepcopy(agent) is agent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limits", bridle.Limits(usd=1.0)),
        ("strict_mcp_config", True),
        ("callback_timeout", 5.0),
        ("init_timeout", 5.0),
    ],
)
def test_none_unsets_an_option_that_has_a_default(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    unset: dict[str, Any] = {name: None}
    for agent in (Agent(**options), Agent()):
        changed = agent.replace(**unset).options
        table = next(
            table for table in ("cli", "sdk", "bidir") if f"{table}.{name}" in changed.origin
        )
        assert changed.origin[f"{table}.{name}"] == "default"
        assert getattr(changed, table) == getattr(Agent().options, table)


def test_the_choice_of_a_conversation_ignores_none(cli: FakeCli) -> None:
    nothing: dict[str, Any] = {"fork_session": None, "continue_session": None, "session_id": None}
    agent = Agent(cli_path=cli.path)
    assert agent.sync.run("x", **nothing).ok
    assert sync.run("x", cli_path=cli.path, **nothing).ok
    with agent.sync.session(**nothing) as session:
        assert session.alive
    assert list(agent.sync.run_many(["x"], **nothing))


class Clerk(Agent[Any]):
    """A subclass of a user."""


def test_a_copy_has_the_class_of_the_agent() -> None:
    assert type(Clerk(model="opus").replace(model="sonnet")) is Clerk


@pytest.mark.parametrize("way", ["agent", "twin"])
def test_pickling_an_agent_is_refused_with_advice(way: str) -> None:
    agent = Agent(model="opus")
    with pytest.raises(TypeError, match=r"cannot be pickled.*Create it in each process"):
        pickle.dumps(agent if way == "agent" else agent.sync)


def test_its_text_shows_the_options_without_secrets() -> None:
    agent = Agent(model="opus", env={"TOKEN": "hush"})
    assert repr(agent) == "Agent(CliOptions(model='opus', env={'TOKEN': ...}))"
    assert "hush" not in repr(agent.sync)


async def test_deps_are_those_of_the_call_or_of_the_agent(cli: FakeCli) -> None:
    agent = Agent(cli_path=cli.path, deps_type=str, deps="default")
    assert agent.deps == "default"
    async with agent.session() as session:
        assert session.deps == "default"
    async with agent.session(deps="other") as session:
        assert session.deps == "other"
    assert agent.replace(model="opus").deps == "default"
    assert agent.replace(deps="new").sync.deps == "new"


async def test_callbacks_get_the_deps_of_the_call(cli: FakeCli) -> None:
    seen: list[object] = []

    def note(context: ToolContext) -> str:
        seen.append(context.deps)
        return "noted"

    agent = Agent(cli_path=cli.path, tools=[note], deps="default")
    await agent.run("CALL mcp__tools__note {}")
    await agent.run("CALL mcp__tools__note {}", deps="other")
    async for _ in agent.run_many(["CALL mcp__tools__note {}"], deps="many"):
        pass
    assert [one async for one in agent.query("CALL mcp__tools__note {}", deps="query")]
    assert seen == ["default", "other", "many", "query"]


@pytest.mark.parametrize("way", ["run", "query"])
async def test_a_system_prompt_may_be_a_function_of_deps(way: str, cli: FakeCli) -> None:
    def prompt(deps: str) -> str:
        return f"You work for {deps.upper()}."

    agent = Agent(cli_path=cli.path, system_prompt=prompt)  # not called here: no deps yet
    if way == "run":
        await agent.run("x", deps="ada")
    else:
        assert [one async for one in agent.query("x", deps="ada")]
    request = next(one for one in cli.received if one["type"] == "control_request")
    assert request["request"]["systemPrompt"] in ("You work for ADA.", ["You work for ADA."])


async def test_an_agent_may_have_an_output_type(cli: FakeCli) -> None:
    agent = Agent(cli_path=cli.path, output_type=dict[str, int], output_retries=0)
    outcome = await agent.run("x")
    assert outcome.reason is OutcomeReason.OUTPUT_MISSING
    async with agent.replace(model="opus").session() as session:
        outcome = await (await session.send_user_message("x"))
        assert outcome.reason is OutcomeReason.OUTPUT_MISSING
    with pytest.raises(OptionsError, match="output_type"):
        Agent(output_type=dict[str, int], json_schema={"type": "object"})


async def test_no_other_server_gets_the_name_of_the_functions(cli: FakeCli) -> None:
    """Their rules would allow its tools."""
    agent = Agent(cli_path=cli.path, tools=[price])
    async with agent.session() as session:
        await session.mcp.remove("tools")
        with pytest.raises(OptionsError, match="'tools' is reserved"):
            await session.mcp.add("tools", {"command": "server"})
        with pytest.raises(OptionsError, match="'tools' is reserved"):
            await session.mcp.set_servers({"tools": bridle.ToolServer([price])})
        assert (await session.mcp.status()).servers == ()


def test_none_is_a_value_for_deps_and_output_type(cli: FakeCli) -> None:
    seen: list[object] = []

    def note(context: ToolContext) -> str:
        seen.append(context.deps)
        return "noted"

    prompt = "CALL mcp__tools__note {}"
    agent = Agent(cli_path=cli.path, tools=[note], deps="default", output_type=dict[str, int])

    async def main() -> None:
        assert (await agent.run(prompt, deps=None, output_type=None)).ok
        async for _, outcome in agent.run_many([prompt], deps=None, output_type=None):
            assert outcome.ok
        assert [one async for one in agent.query(prompt, deps=None)]
        async with agent.session(deps=None, output_type=None) as session:
            assert session.deps is None
            assert (await (await session.send_user_message("x"))).ok

    run(main)
    assert agent.sync.run(prompt, deps=None, output_type=None).ok
    with agent.sync.session(deps=None, output_type=None) as session:
        assert session.deps is None
        assert session.send_user_message("x").outcome().ok
    assert seen == [None] * 4
    assert agent.replace(deps=None).deps is None


@pytest.mark.parametrize("way", ["agent", "twin"])
def test_a_copy_may_have_another_output_type(way: str, cli: FakeCli) -> None:
    agent = Agent(cli_path=cli.path)
    options: dict[str, Any] = {"output_type": dict[str, int], "output_retries": 0}
    typed = agent.replace(**options).sync if way == "agent" else agent.sync.replace(**options)
    outcome = typed.replace(model="opus").run("x")
    assert (outcome.reason, outcome.num_turns) == (OutcomeReason.OUTPUT_MISSING, 1)
    assert typed.replace(output_type=None).run("x").ok
    with pytest.raises(OptionsError, match="output_retries"):
        agent.replace(output_retries=-1)


async def test_a_query_with_function_tools_is_a_session(cli: FakeCli) -> None:
    agent = Agent(cli_path=cli.path, tools=[price])
    assert [one async for one in agent.query("x")]
    assert "--permission-prompt-tool=stdio" in cli.argv
    assert [one async for one in agent.replace(tools=[]).query("x")]
    assert "--permission-prompt-tool=stdio" not in cli.argv
    assert "--tools=" in cli.argv


def test_threads_share_an_agent(agent: Agent[Any]) -> None:
    texts: list[str] = []

    def ask(word: str) -> None:
        texts.append(agent.sync.run(word).text)

    threads = [threading.Thread(target=ask, args=(word,)) for word in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts) == ["You said: a", "You said: b", "You said: c"]


def test_an_invalid_prompt_starts_no_blocking_session(agent: Agent[Any], cli: FakeCli) -> None:
    for start in (agent.sync.session, partial(sync.start_session, cli_path=cli.path)):
        with pytest.raises(OptionsError):
            start(prompt=[])
    assert cli.runs == []


# ---------------------------------------------------------------- many prompts


def counted(limit: int, drawn: list[int]) -> Iterator[str]:
    for number in range(limit):
        drawn.append(number)
        yield f"prompt {number}"


async def acounted(limit: int, drawn: list[int]) -> AsyncIterator[str]:
    for prompt in counted(limit, drawn):
        yield prompt


@pytest.mark.parametrize("kind", ["list", "iterator", "async iterator"])
async def test_prompts_come_from_any_iterable(kind: str, agent: Agent[Any]) -> None:
    makers: dict[str, Callable[[], Any]] = {
        "list": lambda: list(counted(3, [])),
        "iterator": lambda: counted(3, []),
        "async iterator": lambda: acounted(3, []),
    }
    pairs = agent.run_many(makers[kind]())
    texts = {prompt: outcome.text async for prompt, outcome in pairs}
    assert texts == {f"prompt {n}": f"You said: prompt {n}" for n in range(3)}


@pytest.mark.parametrize("make", [counted, acounted])
async def test_a_prompt_is_read_when_its_run_can_start(make: Any, agent: Agent[Any]) -> None:
    drawn: list[int] = []
    taken = 0
    async for _ in agent.run_many(make(6, drawn), at_once=2):
        taken += 1
        await asyncio.sleep(0.05)  # a slow loop does not make the others run ahead
        assert len(drawn) <= taken + 2
    assert (taken, len(drawn)) == (6, 6)


def test_the_blocking_twin_reads_one_outcome_ahead(agent: Agent[Any]) -> None:
    drawn: list[int] = []
    for taken, _ in enumerate(agent.sync.run_many(counted(6, drawn), at_once=2), 1):
        threading.Event().wait(0.05)
        assert len(drawn) <= taken + 3
    assert len(drawn) == 6


def test_outcomes_come_in_the_order_in_which_the_runs_end() -> None:
    slow = FakeCli.auto()

    async def main() -> list[str]:
        agent = Agent(cli_path=slow.path, limits=bridle.Limits(total=1.0))
        return [prompt async for prompt, _ in agent.run_many(["SLOW", "quick"], at_once=2)]

    with slow:
        assert run(main) == ["quick", "SLOW"]


async def test_no_more_than_the_given_number_run_at_once(agent: Agent[Any]) -> None:
    seen: list[RunProgress] = []
    prompts = [str(number) for number in range(5)]
    async for _ in agent.run_many(prompts, 2, seen.append):
        pass
    assert max(one.running for one in seen) == 2
    assert [one.finished for one in seen] == sorted(one.finished for one in seen)
    assert {one.total for one in seen} == {5}
    last = seen[-1]
    assert (last.running, last.ok, last.failed, last.finished) == (0, 5, 0, 5)
    assert last.cost_usd > 0


async def test_a_progress_callback_that_raises_is_logged_and_the_runs_go_on(
    agent: Agent[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(_: RunProgress) -> None:
        raise ValueError("no bar")

    pairs = agent.run_many(["a"], progress=failing)
    assert [outcome.ok async for _, outcome in pairs] == [True]
    assert "failing" in caplog.text
    assert "no bar" in caplog.text


async def test_a_run_that_cannot_start_is_an_outcome_and_the_others_go_on(cli: FakeCli) -> None:
    prompts: list[Any] = ["good", [], "also good"]
    agent = Agent(cli_path=cli.path)
    ended = [(prompt, outcome) async for prompt, outcome in agent.run_many(prompts)]
    failed = [outcome for prompt, outcome in ended if not prompt]
    assert [outcome.reason for outcome in failed] == [OutcomeReason.START_FAILED]
    assert "OptionsError: prompt is an empty list" in failed[0].detail
    with pytest.raises(StartFailedError):
        failed[0].raise_for_reason()
    assert [outcome.ok for _, outcome in ended].count(True) == 2
    missing = agent.replace(cli_path="/nowhere/claude")
    with pytest.raises(bridle.CliNotFoundError):
        await missing.run("x")
    ended = [pair async for pair in missing.run_many(["x", "y"])]
    assert {outcome.reason for _, outcome in ended} == {OutcomeReason.START_FAILED}
    assert "/nowhere/claude" in ended[0][1].detail


class LateRun(Run):
    """A run whose CLI dies, or is stopped, between the handshake and the prompt."""

    is_stopped = False

    async def answer(self) -> Outcome[Any]:
        if self.is_stopped:
            await self.session.stop()
        else:
            os.kill(self.session.pid or 0, signal.SIGKILL)
            await until(lambda: not self.session.alive)
        return await super().answer()


class StoppedRun(LateRun):
    is_stopped = True


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(LateRun, OutcomeReason.CLI_EXITED), (StoppedRun, OutcomeReason.STOPPED)],
)
async def test_a_cli_that_exits_after_the_start_did_not_fail_to_start(
    kind: type[Run], reason: OutcomeReason, cli: FakeCli
) -> None:
    options = settle_keywords(None, None, None, {"cli_path": cli.path})
    many = RunMany(prompts=["x"], make=lambda x: kind(x, options), at_once=1, progress=None)
    [outcome] = [outcome async for _, outcome in many.outcomes()]
    assert outcome.reason is reason
    assert outcome.retryable == (reason is OutcomeReason.CLI_EXITED)
    assert "send_user_message" in outcome.detail
    assert outcome.process is not None


@pytest.mark.parametrize("ending", ["aclosing", "break", "cancel"])
async def test_leaving_the_loop_ends_the_running_ones(
    ending: str, agent: Agent[Any], cli: FakeCli
) -> None:
    prompts = ["quick", "SLOW", "SLOW"]

    async def loop() -> None:
        outcomes = agent.run_many(prompts)
        if ending == "aclosing":
            async with contextlib.aclosing(outcomes) as closing:
                async for prompt, _ in closing:
                    assert prompt == "quick"
                    break
            assert not any(map(is_alive, pids(cli)))
        elif ending == "break":
            async for _ in outcomes:
                break
            del outcomes
            gc.collect()
        else:
            async for _ in outcomes:
                pass

    task = asyncio.ensure_future(loop())
    if ending == "cancel":
        await until(lambda: len(pids(cli)) == 3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    else:
        await task
    await until(lambda: not any(map(is_alive, pids(cli))))
    await until(lambda: len(asyncio.all_tasks()) == 1)


def test_leaving_the_blocking_loop_ends_the_running_ones(agent: Agent[Any], cli: FakeCli) -> None:
    outcomes = agent.sync.run_many(["quick", "SLOW", "SLOW"])
    assert next(outcomes)[0] == "quick"
    del outcomes
    gc.collect()
    wait_until(lambda: not any(map(is_alive, pids(cli))))


@pytest.mark.parametrize("ending", ["with", "close", "aclose"])
def test_closing_the_blocking_loop_waits_for_the_clis(
    ending: str, agent: Agent[Any], cli: FakeCli
) -> None:
    outcomes = agent.sync.run_many(["quick", "SLOW", "SLOW"])
    with outcomes if ending == "with" else contextlib.nullcontext():
        assert next(outcomes)[0] == "quick"
        wait_until(lambda: len(pids(cli)) == 3)
    if ending != "with":
        getattr(outcomes, ending)()
    assert not any(map(is_alive, pids(cli)))
    outcomes.close()
    assert list(outcomes) == []


async def test_what_the_iterable_raises_comes_after_the_running_ones(agent: Agent[Any]) -> None:
    def prompts() -> Iterator[str]:
        yield "one"
        yield "two"
        raise KeyError("three")

    done: list[str] = []

    async def loop() -> None:
        async for prompt, _ in agent.run_many(prompts()):
            done.append(prompt)

    with pytest.raises(KeyError, match="three"):
        await loop()
    assert sorted(done) == ["one", "two"]


@pytest.mark.parametrize("kind", ["iterator", "async iterator"])
async def test_an_iterable_that_raises_cancelled_error_does_not_cancel_the_program(
    kind: str, agent: Agent[Any]
) -> None:
    def plain() -> Iterator[str]:
        yield "one"
        raise asyncio.CancelledError

    async def asynchronous() -> AsyncIterator[str]:
        yield "one"
        raise asyncio.CancelledError

    done: list[str] = []
    prompts: Any = plain() if kind == "iterator" else asynchronous()

    async def loop() -> None:
        async for prompt, _ in agent.run_many(prompts):
            done.append(prompt)

    with pytest.raises(UsageError, match="iterable of prompts raised CancelledError"):
        await loop()
    assert done == ["one"]


async def test_a_run_that_is_cancelled_from_outside_is_an_outcome(agent: Agent[Any]) -> None:
    async def cancel_a_run(_: RunProgress) -> None:
        for task in asyncio.all_tasks():
            if "run_many" in repr(task) and "_Work._run" in repr(task):
                task.cancel()

    ended: list[tuple[str, OutcomeReason]] = []
    pairs = agent.run_many(["SLOW", "SLOW", "SLOW"], 1, cancel_a_run)
    async for prompt, outcome in pairs:
        ended.append((prompt, outcome.reason))
    assert ended == [("SLOW", OutcomeReason.STOPPED)] * 3


async def test_a_reading_of_prompts_that_is_cancelled_from_outside_is_an_error(
    agent: Agent[Any],
) -> None:
    async def endless() -> AsyncIterator[str]:
        yield "one"
        for task in asyncio.all_tasks():
            if "_Work.dispatch" in repr(task):
                task.cancel()
        await asyncio.Event().wait()

    async def loop() -> None:
        async for _, outcome in agent.run_many(endless()):
            assert outcome.ok

    with pytest.raises(UsageError, match="reads the prompts was cancelled"):
        await loop()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"prompts": "one prompt"}, "prompts"),
        ({"prompts": {"type": "user"}}, "prompts"),
        ({"prompts": 3}, "prompts"),
        ({"prompts": ["x"], "at_once": 0}, "at_once"),
        ({"prompts": ["x"], "progress": "bar"}, "progress"),
        ({"prompts": ["x"], "output_type": object()}, "output_type"),
    ],
)
def test_the_arguments_are_checked_by_the_call(
    arguments: dict[str, Any], field: str, agent: Agent[Any]
) -> None:
    for call in (agent.run_many, agent.sync.run_many):
        with pytest.raises(OptionsError) as caught:
            call(**arguments)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"retry": 3}, "retry"),
        ({"output_type": object()}, "output_type"),
        ({"output_retries": -1}, "output_retries"),
        ({"keep_messages": "yes"}, "keep_messages"),
    ],
)
def test_arguments_are_checked_also_if_the_system_prompt_is_a_function(
    arguments: dict[str, Any], field: str
) -> None:
    agent = Agent(system_prompt=str.upper)
    for call in (agent.run_many, agent.sync.run_many):
        with pytest.raises(OptionsError) as caught:
            call(["x"], **arguments)
        assert caught.value.field == field


def test_the_type_of_deps_must_be_a_type() -> None:
    with pytest.raises(OptionsError) as caught:
        Agent(deps_type=5)  # type: ignore[arg-type]  # what is refused
    assert caught.value.field == "deps_type"
    Agent(deps_type=dict[str, int])


def test_tools_get_a_blocking_session_from_the_twin() -> None:
    sessions: list[object] = []

    def note(context: ToolContext) -> str:
        sessions.append(context.session)
        return "noted"

    with FakeCli.auto() as cli:
        agent = Agent(cli_path=cli.path, tools=[note])
        pairs = list(agent.sync.run_many(["CALL mcp__tools__note {}"]))
    assert pairs[0][1].ok
    assert [isinstance(session, sync.Session) for session in sessions] == [True]


def test_records_and_names_can_be_mixed(cli: FakeCli) -> None:
    agent = Agent(
        cli=CliOptions(cli_path=cli.path),
        sdk=SdkOptions(control_timeout=5.0),
        bidir=BidirOptions(on_pre_tool_use=guard),
        model="opus",
        init_timeout=9.0,
        on_stop=guard,
    )
    options = agent.options
    assert (options.cli.model, options.sdk.init_timeout) == ("opus", 9.0)
    assert set(options.bidir.all_hooks()) == {"PreToolUse", "Stop"}
