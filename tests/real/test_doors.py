"""Every door on the real CLIs: each case is one row, played through all doors that can have it.

The doors are `run`, `query` and the session, each in both flavours. A door with an outcome tells a
case by its reason and text; a query by the results it heard and the error it ended with. The doors
of a row are played at the same time, each with a CLI and a model of its own.

To start a CLI takes most of the time, so flavours take turns: every case goes through every door on
every CLI, and through both flavours of it, one on each CLI; the next case the other way round.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from tests.support.doors import DOORS, Door
from tests.support.processes import is_alive, run, until

import bridle
from bridle import (
    Allow,
    BidirOptions,
    Limits,
    OutcomeReason,
    ResultMessage,
    Retry,
    Session,
    SessionNotFoundError,
    StartError,
    ToolServer,
    tool,
)
from bridle.errors import (
    FirstEventLimitError,
    IdleLimitError,
    TotalLimitError,
    TurnsLimitError,
    UsdLimitError,
)
from bridle.testing import (
    Block,
    ModelRequest,
    Reply,
    ScriptedModel,
    error,
    repeat,
    text,
    tool_use,
)

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab

    from bridle.testing.script import Script

R = OutcomeReason
NOTHING: Mapping[str, Any] = MappingProxyType({})


# ---------------------------------------------------------------- rows


class Case(NamedTuple):
    """What is asked of whom, and what every door makes of it."""

    script: Script
    #: What a door with an outcome tells: why it ended, or that it did not start; and the text,
    #: unless it is the CLI's own.
    outcome: tuple[OutcomeReason | type[StartError], str | None]
    #: What a query hears: the subtypes of its results, "!" before those that are errors.
    results: tuple[str, ...]
    #: What a query ends with.
    error: type[Exception] | None = None
    options: Mapping[str, Any] = NOTHING
    limits: Limits = Limits()
    prompt: Any = "go"
    #: What the model was told of a tool's result, if it called one.
    tool_result: str | None = None
    variables: Mapping[str, str] = NOTHING
    bidir: BidirOptions | None = None


LOOK = tool_use("Bash", command="echo looked", description="look")
LOOKING = {"allowed_tools": ["Bash(echo looked)"]}
EXPENSIVE = {"input_tokens": 100_000, "output_tokens": 10_000}
SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
LONG = "abcdefgh" * (5 * 2**20 // 8)
SLOWLY = Reply(blocks=(text("w " * 40, chunks=40),), chunk_delay=0.5)
SLOW_HOOK = {
    "hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "sleep 9"}]}]}
}
MISSING = "11111111-2222-4333-8444-555555555555"


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


OURS = BidirOptions(mcp_servers={"calc": ToolServer([add])}, on_can_use_tool=lambda _: Allow())


def background(request: ModelRequest) -> list[Block]:
    """A model that has a subagent look around in the background."""
    if request.agent_id is not None:
        return [text("the agent's report")]
    if "task-notification" in str(request.messages[-1]["content"]):
        return [text("the agent is done")]
    if request.last_tool_result is None:
        task = {"description": "look", "prompt": "look around", "run_in_background": True}
        return [tool_use("Task", subagent_type="general-purpose", **task)]
    return [text("it has begun")]


async def failing(results: list[str]) -> AsyncIterator[str]:
    """Prompts that end badly once the first of them is answered."""
    yield "go"
    await until(lambda: results)  # on whichever loop, so there is no event to wait for
    raise LookupError("no more prompts")


CASES = {
    "plain text": Case([[text("Hello")]], (R.COMPLETED, "Hello"), ("success",)),
    "a tool of the CLI": Case(
        [[LOOK], [text("Seen.")]],
        (R.COMPLETED, "Seen."),
        ("success",),
        options=LOOKING,
        tool_result="looked",
    ),
    "a tool of ours": Case(
        [[tool_use("mcp__calc__add", a=2, b=3)], [text("Five.")]],
        (R.COMPLETED, "Five."),
        (),
        bidir=OURS,
        tool_result="5",
    ),
    "structured output": Case(
        [[tool_use("StructuredOutput", total=3.5)]],
        (R.COMPLETED, None),
        ("success",),
        options={"json_schema": SCHEMA},
    ),
    "prose only": Case(
        [repeat([text("about three fifty")])],
        (R.OUTPUT_MISSING, "about three fifty"),
        ("success",),
        options={"json_schema": SCHEMA},
    ),
    "a large prompt": Case([[text("Long.")]], (R.COMPLETED, "Long."), ("success",), prompt=LONG),
    "output that does not fit": Case(
        [repeat([tool_use("StructuredOutput", total="three fifty")])],
        (R.OUTPUT_INVALID, None),
        ("!error_max_structured_output_retries",),
        options={"json_schema": SCHEMA},
    ),
    "a background subagent": Case(
        background, (R.COMPLETED, "the agent is done"), ("success", "success")
    ),
    "prompts that raise": Case(
        [[text("Hello")]], (R.COMPLETED, None), ("success",), LookupError, prompt=failing
    ),
    # -- what the CLI ends
    "too many turns": Case(
        [repeat([LOOK])],
        (R.MAX_TURNS, None),
        ("!error_max_turns",),
        options={"max_turns": 1, **LOOKING},
    ),
    "too many dollars": Case(
        [repeat(Reply(blocks=(LOOK,), usage=EXPENSIVE))],
        (R.MAX_BUDGET, None),
        ("!error_max_budget_usd",),
        options={"max_budget_usd": 0.01, **LOOKING},
    ),
    "overloaded for ever": Case([repeat(error(529))], (R.API_ERROR, None), ("!success",)),
    "a refused key": Case([repeat(error(401))], (R.AUTH_FAILED, None), ("!success",)),
    "nobody logged in": Case(
        [], (R.AUTH_FAILED, None), ("!success",), variables={"ANTHROPIC_API_KEY": ""}
    ),
    "nothing to resume": Case(
        [],
        (StartError, None),
        ("!error_during_execution",),
        SessionNotFoundError,
        options={"resume_session_id": MISSING},
    ),
    # -- what we end
    "limit: first event": Case(
        [],
        (R.LIMIT_FIRST_EVENT, None),
        (),
        FirstEventLimitError,
        options={"settings": SLOW_HOOK},
        limits=Limits(first_event=1.5),
    ),
    "limit: idle": Case(
        [SLOWLY], (R.LIMIT_IDLE, None), (), IdleLimitError, limits=Limits(idle=1.0)
    ),
    "limit: total": Case(
        [SLOWLY], (R.LIMIT_TOTAL, None), (), TotalLimitError, limits=Limits(total=2.0)
    ),
    "limit: turns": Case(
        [repeat([LOOK])],
        (R.LIMIT_TURNS, None),
        (),
        TurnsLimitError,
        options=LOOKING,
        limits=Limits(turns=2),
    ),
    "limit: dollars": Case(
        [repeat(Reply(blocks=(LOOK,), usage=EXPENSIVE))],
        (R.LIMIT_USD, None),
        ("!error_during_execution",),
        UsdLimitError,
        options=LOOKING,
        limits=Limits(usd=0.01),
    ),
}

NOT_HERE = {
    ("a tool of ours", "query"): "a query answers nothing, so it has no tools of ours",
    ("prompts that raise", "run"): "a run has one prompt",
    ("prompts that raise", "session"): "prompts of a session are sent one by one",
}
"""Cases that a door cannot have, and why."""


# ---------------------------------------------------------------- doors


class Stage(NamedTuple):
    """A row, the flavour of the door it is played through, and where."""

    case: Case
    door: Door
    lab: Lab

    def options(self, model: ScriptedModel) -> tuple[Any, Any]:
        """Options of the CLI and of the SDK."""
        env = {**model.env, **self.case.variables}
        cli = self.lab.cli(model, env=env, **self.case.options)
        return cli, self.lab.sdk.replace(limits=self.case.limits)


async def by_run(stage: Stage, model: ScriptedModel) -> Any:
    cli, sdk = stage.options(model)
    outcome = await stage.door.run(stage.case.prompt, cli=cli, sdk=sdk, bidir=stage.case.bidir)
    return outcome.reason, outcome.text


async def by_session(stage: Stage, model: ScriptedModel) -> Any:
    cli, sdk = stage.options(model)
    async with stage.door.session(cli, sdk, stage.case.bidir) as session:
        messages = session.messages()
        outcome = await (await session.send_user_message(stage.case.prompt))
        if outcome.ok:
            # What follows a turn is not in its outcome, but in the session's messages.
            return outcome.reason, await last_of(messages, len(stage.case.results) or 1)
    return outcome.reason, outcome.text


async def last_of(messages: Any, count: int) -> str | None:
    """The text of the so-manieth result."""
    results: list[ResultMessage] = []
    async for message in messages:
        results += [message] if isinstance(message, ResultMessage) else []
        if len(results) == count:
            break
    return results[-1].result


async def by_query(stage: Stage, model: ScriptedModel) -> Any:
    results: list[str] = []
    prompt = stage.case.prompt
    given = prompt(results) if callable(prompt) else prompt
    stream = stage.door.query(given, *stage.options(model))
    problem: Exception | None = None
    try:
        async for message in stream:
            if isinstance(message, ResultMessage):
                results.append(f"{'!' * bool(message.is_error)}{message.subtype}")
    except Exception as raised:
        problem = raised
    assert not is_alive(stream.pid)
    # A CLI whose last result is an error exits as if it had failed; that is no error of the query.
    is_failure = problem is None and any(result.startswith("!") for result in results)
    # A query with a limit in dollars is a session, and sessions name what an older CLI cannot do.
    kinds = [str(one.kind) for one in stream.warnings if one.kind != "missing_capabilities"]
    assert kinds == ["exit_after_result"] * is_failure
    return tuple(results), None if problem is None else type(problem)


WAYS: dict[str, Callable[[Stage, ScriptedModel], Any]] = {
    "run": by_run,
    "session": by_session,
    "query": by_query,
}


def flavour_of(lab: Lab, number: int) -> Door:
    """The flavour whose turn it is on this CLI."""
    return list(DOORS.values())[(number + lab.is_newest) % len(DOORS)]


async def play(stage: Stage, way: str) -> Any:
    """What a door tells of a case."""
    async with ScriptedModel(stage.case.script) as model:
        try:
            told = await WAYS[way](stage, model)
        except StartError:
            told = (StartError, None)
        if stage.case.tool_result is not None:
            assert model.requests[-1].last_tool_result == stage.case.tool_result
        if model.requests and isinstance(stage.case.prompt, str):
            assert stage.case.prompt in str(model.requests[0].messages[-1]["content"])
    is_told_by_the_cli = way != "query" and stage.case.outcome[1] is None
    return (told[0], None) if is_told_by_the_cli else told


@pytest.mark.longer
@pytest.mark.parametrize("name", CASES)
async def test_every_door_tells_what_happened(lab: Lab, name: str) -> None:
    """S005, S008, S020, S033: each door by its own means, both flavours alike."""
    case = CASES[name]
    expected = {"run": case.outcome, "session": case.outcome, "query": (case.results, case.error)}
    doors = [way for way in WAYS if (name, way) not in NOT_HERE]
    row = list(CASES).index(name)
    flavours = [flavour_of(lab, row + column) for column, way in enumerate(WAYS) if way in doors]
    stages = [Stage(case, flavour, lab) for flavour in flavours]
    told = await asyncio.gather(*map(play, stages, doors))
    assert dict(zip(doors, told, strict=True)) == {way: expected[way] for way in doors}


# ---------------------------------------------------------------- types


@dataclasses.dataclass
class AsDataclass:
    total: float
    lines: list[str]

    def __post_init__(self) -> None:
        check(self.total)


class AsTypedDict(TypedDict):
    total: float
    lines: list[str]


class AsStruct(msgspec.Struct):
    total: float
    lines: list[str]

    def __post_init__(self) -> None:
        check(self.total)


class AsModel(pydantic.BaseModel):
    total: float
    lines: list[str]

    @pydantic.field_validator("total")
    @classmethod
    def check_total(cls, total: float) -> float:
        check(total)
        return total


def check(total: float) -> None:
    """What a type may want beyond its schema."""
    if total < 0:
        raise ValueError("an invoice does not owe")


KINDS: list[Any] = [AsDataclass, AsTypedDict, AsStruct, AsModel]
INVOICE: dict[str, Any] = {"total": 3.5, "lines": ["a", "b"]}
REFUSED = {**INVOICE, "total": -3.5}


class Answer(NamedTuple):
    """What the model answers, and what that is for each of the kinds of type."""

    script: Script
    expected: list[tuple[OutcomeReason, Any]]


ANSWERS = {
    "what was asked for": Answer(
        [[tool_use("StructuredOutput", **INVOICE)]],
        [(R.COMPLETED, kind(**INVOICE)) for kind in KINDS],
    ),
    "prose": Answer([repeat([text("about three fifty")])], [(R.OUTPUT_MISSING, None)] * 4),
    "what the type refuses": Answer(
        [repeat([tool_use("StructuredOutput", **REFUSED)])],
        [
            (R.COMPLETED, REFUSED) if kind is AsTypedDict else (R.OUTPUT_INVALID, None)
            for kind in KINDS
        ],
    ),
}


@pytest.mark.longer
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.requirement("S068")
def test_an_answer_is_of_the_type_that_was_asked_for_or_no_success(lab: Lab, name: str) -> None:
    """A TypedDict has no will of its own: it takes whatever has its fields."""
    answer = ANSWERS[name]

    async def ask(kind: Any) -> tuple[OutcomeReason, Any]:
        door = flavour_of(lab, KINDS.index(kind))
        async with ScriptedModel(answer.script) as model:
            outcome = await door.run("go", cli=lab.cli(model), sdk=lab.sdk, output_type=kind)
            return outcome.reason, outcome.output

    async def main() -> list[tuple[OutcomeReason, Any]]:
        return await asyncio.gather(*map(ask, KINDS))

    assert run(main) == answer.expected


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("in_session", [False, True])
async def test_an_output_that_fails_validation_is_corrected_by_the_model(
    lab: Lab, *, in_session: bool
) -> None:
    script: Script = [
        [tool_use("StructuredOutput", **REFUSED)],
        [tool_use("StructuredOutput", **INVOICE)],
    ]
    async with ScriptedModel(script) as model:
        if in_session:
            async with Session(lab.cli(model), lab.sdk, output_type=AsModel) as session:
                outcome = await (await session.send_user_message("go"))
        else:
            outcome = await bridle.run("go", cli=lab.cli(model), sdk=lab.sdk, output_type=AsModel)
        assert (outcome.ok, outcome.output) == (True, AsModel(**INVOICE))
        assert (outcome.model_calls, outcome.tool_calls) == (2, 2)
        assert "does not owe" in str(model.requests[1].messages)


@dataclasses.dataclass
class QuotingDataclass:
    name: str

    def __post_init__(self) -> None:
        quote(self.name)


class QuotingStruct(msgspec.Struct):
    name: str

    def __post_init__(self) -> None:
        quote(self.name)


class QuotingModel(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def check_name(cls, name: str) -> str:
        quote(name)
        return name


def quote(name: str) -> None:
    """Reject a value that begins as the CLI's own syntax, and quote it."""
    if name != "good":
        raise ValueError(name)


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("kind", [QuotingDataclass, QuotingStruct, QuotingModel])
@pytest.mark.parametrize("in_session", [False, True])
async def test_a_correction_that_quotes_a_path_attaches_no_file(
    lab: Lab, tmp_path: Path, kind: Any, *, in_session: bool
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    script: Script = [
        [tool_use("StructuredOutput", name=f" @{secret} \n\n/greet\n\n!touch made")],
        [tool_use("StructuredOutput", name="good")],
    ]
    greeting = lab.work / ".claude" / "commands" / "greet.md"
    greeting.parent.mkdir(parents=True)
    greeting.write_text("Say hello.")
    async with ScriptedModel(script) as model:
        cli = lab.cli(model, tools=[])
        if in_session:
            async with Session(cli, lab.sdk, output_type=kind) as session:
                outcome = await (await session.send_user_message("go"))
        else:
            outcome = await bridle.run("go", cli=cli, sdk=lab.sdk, output_type=kind)
        assert (outcome.ok, outcome.output) == (True, kind(name="good"))
        seen = str(model.requests[1].messages)
        assert f"@{secret}" in seen
        assert "top secret" not in seen
        assert "Say hello." not in seen
        assert not (lab.work / "made").exists()


@pytest.mark.longer
async def test_an_answer_may_be_a_list(lab: Lab) -> None:
    script: Script = [[tool_use("StructuredOutput", value=[1, 2, 3])]]
    async with ScriptedModel(script) as model:
        door = flavour_of(lab, 0)
        outcome = await door.run("go", cli=lab.cli(model), sdk=lab.sdk, output_type=list[int])
        assert outcome.output == [1, 2, 3]


async def test_an_overloaded_api_is_asked_again_in_the_same_conversation(lab: Lab) -> None:
    script: Script = [error(529), error(529), [text("at last")]]
    async with ScriptedModel(script) as model:
        cli = lab.cli(model)
        cli = cli.replace(env={**(cli.env or {}), "CLAUDE_CODE_MAX_RETRIES": "1"})
        outcome = await bridle.run("go", cli=cli, sdk=lab.sdk, retry=Retry(attempts=2))
        assert (outcome.ok, outcome.text) == (True, "at last")
        assert "Continue with the task" in str(model.requests[-1].messages)


@dataclasses.dataclass
class Folder:
    """A type that holds itself."""

    name: str
    folders: list[Folder] = dataclasses.field(default_factory=list)


async def test_an_answer_may_be_of_a_type_that_holds_itself(lab: Lab) -> None:
    inner = {"name": "b", "folders": []}
    script: Script = [[tool_use("StructuredOutput", name="a", folders=[inner])]]
    async with ScriptedModel(script) as model:
        door = flavour_of(lab, 0)
        outcome = await door.run("go", cli=lab.cli(model), sdk=lab.sdk, output_type=Folder)
        assert outcome.output == Folder("a", [Folder("b")])
