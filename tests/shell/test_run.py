"""`run` on the fake CLI: when an answer is complete, and what bounds it."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import gc
import time
from typing import Annotated, Any, cast

import pydantic
import pytest
from tests.soak.sessions import long_holds
from tests.support.processes import is_alive, run, until

import bridle
from bridle import (
    Allow,
    AssistantMessage,
    BidirOptions,
    CliOptions,
    Limits,
    OptionsError,
    Outcome,
    OutcomeReason,
    ResultMessage,
    Retry,
    SdkOptions,
    ToolContext,
    ToolServer,
)
from bridle._session.preflight import settle_options
from bridle._session.run import Run
from bridle.events import TurnEnded
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

TASK = {"type": "system", "subtype": "task_started", "task_id": "b1", "tool_use_id": "t1"}
TASK_DONE = {
    "type": "system",
    "subtype": "task_notification",
    "task_id": "b1",
    "tool_use_id": "t1",
    "status": "completed",
}
INIT = {"type": "system", "subtype": "init", "session_id": "s"}
FOLLOW_UP: dict[str, Any] = {"origin": {"kind": "task-notification"}}
BEGUN = FakeCli().expect_initialize().expect_user().start_turn().emit(TASK).result("It has begun.")
"""A turn that leaves work in the background."""


@dataclasses.dataclass
class Invoice:
    total: float


def play(cli: FakeCli, **options: Any) -> Outcome[Any]:
    """The outcome of one prompt; no process is left then."""

    async def main() -> Outcome[Any]:
        with cli:
            limits = options.pop("limits", Limits())
            outcome = await bridle.run(
                "hello", cli=CliOptions(cli_path=cli.path), sdk=SdkOptions(limits=limits), **options
            )
            assert cli.pid is not None
            assert not is_alive(cli.pid)
            return outcome

    return run(main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_answer_is_what_background_work_led_to(flavour: str) -> None:
    cli = FakeCli(flavour=flavour).expect_initialize().expect_user().start_turn().emit(TASK)
    cli = cli.result("It has begun.").silence(0.2).emit(TASK_DONE, INIT).assistant("Done.")
    outcome = play(cli.result("It is done.", **FOLLOW_UP), keep_messages=True)
    assert (outcome.ok, outcome.text) == (True, "It is done.")
    assert outcome.duration >= 0.2
    results = [one for one in outcome.messages or () if isinstance(one, ResultMessage)]
    assert [result.result for result in results] == ["It has begun.", "It is done."]


def test_background_work_counts_for_the_total() -> None:
    with long_holds():
        outcome = play(BEGUN.silence(), limits=Limits(total=0.5))
    assert (outcome.reason, outcome.text) == (OutcomeReason.LIMIT_TOTAL, "It has begun.")
    assert outcome.duration >= 0.5


def test_model_calls_of_background_work_count_too() -> None:
    again = BEGUN.emit(TASK_DONE, INIT).assistant("one").assistant("two")
    outcome = play(again.silence(), limits=Limits(turns=1))
    assert (outcome.reason, outcome.text) == (OutcomeReason.LIMIT_TURNS, "It has begun.")


def test_background_work_is_not_awaited_once_the_dollars_are_spent() -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(TASK)
    cli = cli.result("It has begun.", total_cost_usd=9.0)
    outcome = play(cli.silence(), limits=Limits(usd=5.0))
    assert (outcome.reason, outcome.text) == (OutcomeReason.LIMIT_USD, "It has begun.")
    assert outcome.cost_usd == 9.0


def test_an_answer_whose_background_work_is_done_stays_completed() -> None:
    again = BEGUN.emit(TASK_DONE, INIT).assistant("one").assistant("two")
    outcome = play(again.result("Done.", total_cost_usd=9.0, **FOLLOW_UP), limits=Limits(usd=5.0))
    assert (outcome.reason, outcome.text) == (OutcomeReason.COMPLETED, "Done.")
    assert outcome.cost_usd is not None
    assert outcome.cost_usd > 5.0


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_cli_that_ends_before_its_background_work_has_not_answered(exit_code: int) -> None:
    outcome = play(BEGUN.exit(exit_code))
    assert (outcome.reason, outcome.text) == (OutcomeReason.CLI_EXITED, "It has begun.")
    assert outcome.exit_code == exit_code


def test_one_that_ends_before_its_turn_has_not_either() -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn().assistant("one").exit(3)
    outcome = play(cli, keep_messages=True)
    assert (outcome.reason, outcome.exit_code) == (OutcomeReason.CLI_EXITED, 3)
    assert AssistantMessage in [type(message) for message in outcome.messages or ()]


def test_an_answer_comes_as_the_type_that_was_asked_for() -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn()
    outcome = play(cli.result("{}", structured_output={"total": 3.5}), output_type=Invoice)
    assert outcome.output == Invoice(3.5)


@pydantic.dataclasses.dataclass
class Offer:
    total: Annotated[float, pydantic.Field(gt=5)]
    parts: list[Offer] = dataclasses.field(default_factory=list)


@pytest.mark.parametrize("total", [9.0, 1.0])
def test_a_pydantic_dataclass_is_checked_as_pydantic_does(total: float) -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn()
    cli = cli.result("{}", structured_output={"total": total})
    outcome = play(cli, output_type=Offer, output_retries=0)
    assert outcome.output == (Offer(total) if total > 5 else None)
    assert outcome.ok is (total > 5)


def test_its_schema_tells_the_model_of_the_checks() -> None:
    options = Run("x", settle_options(None, None, None), Offer).connection.plan.cli
    schema: Any = options.json_schema
    assert (schema["type"], schema["properties"]["total"]["exclusiveMinimum"]) == ("object", 5)
    assert set(schema["$defs"]) == {"Offer"}


def test_a_session_that_is_stopped_before_its_background_work_has_not_answered() -> None:
    sessions: list[bridle.Session] = []

    @bridle.tool
    def remember(ctx: ToolContext) -> str:
        """Remember the session."""
        sessions.append(ctx.session)
        return "yes"

    async def stop(event: object) -> None:
        if sessions:
            await sessions[0].stop()

    call = {"name": "remember", "arguments": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(TASK)
    cli = cli.ask_mcp("self", message).expect_mcp_result().result("It has begun.")
    cli = cli.emit({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected"}})
    bidir = BidirOptions(
        mcp_servers={"self": ToolServer([remember])},
        on_can_use_tool=lambda _: Allow(),
        on_event=stop,
    )
    outcome = play(cli.silence(), bidir=bidir)
    assert (outcome.reason, outcome.text) == (OutcomeReason.STOPPED, "It has begun.")


def test_a_turn_that_failed_is_not_waited_for_any_longer() -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(TASK)
    with long_holds():
        outcome = play(cli.result(None, subtype="error_max_turns", is_error=True).silence())
    assert outcome.reason is OutcomeReason.MAX_TURNS


STALE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "terminal_reason": "completed",
    "result": "old",
    "num_turns": 1,
    "total_cost_usd": 0.0,
    "session_id": "s",
    "user_message_uuids": ["99999999-9999-4999-8999-999999999999"],
}
"""The result of a prompt that is not open."""


def test_messages_after_the_result_of_another_prompt_are_kept() -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(STALE)
    outcome = play(cli.assistant("one").assistant("two").result("new"), keep_messages=True)
    assert (outcome.ok, outcome.text) == (True, "new")
    kept = outcome.messages or ()
    assert [one.text for one in kept if isinstance(one, AssistantMessage)] == ["one", "two"]
    assert [one.result for one in kept if isinstance(one, ResultMessage)] == ["old", "new"]


def test_background_work_is_awaited_after_the_result_of_another_prompt() -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(STALE, TASK)
    cli = cli.result("It has begun.").emit(TASK_DONE, INIT).assistant("Done.")
    outcome = play(cli.result("It is done.", **FOLLOW_UP))
    assert (outcome.ok, outcome.text) == (True, "It is done.")


def fitting_at_last(*totals: float, **of_last: Any) -> FakeCli:
    """A CLI that answers each prompt with the next total."""
    cli = FakeCli().expect_initialize()
    for index, total in enumerate(totals, 1):
        cost: dict[str, Any] = {"total_cost_usd": float(index), "num_turns": 1}
        more = of_last if index == len(totals) else {}
        cli = cli.expect_user().start_turn().assistant(f"answer {index}")
        cli = cli.result("{}", structured_output={"total": total}, **cost, **more)
    return cli


def test_an_output_that_fails_validation_goes_back_to_the_model() -> None:
    script = fitting_at_last(1.0, 2.0, 9.0)
    outcome = play(script, output_type=Offer, output_retries=2, keep_messages=True)
    assert (outcome.ok, outcome.output) == (True, Offer(9.0))
    assert (outcome.cost_usd, outcome.num_turns, outcome.model_calls) == (3.0, 3, 3)
    prompts = [one for one in outcome.messages or () if isinstance(one, ResultMessage)]
    assert len(prompts) == 3


async def test_the_model_reads_what_was_wrong_with_its_output() -> None:
    with fitting_at_last(1.0, 9.0) as cli:
        options = CliOptions(cli_path=cli.path)
        await bridle.run("go", cli=options, output_type=Offer)
        assert "greater than 5" in str(cli.runs[0])


async def test_a_turn_does_not_show_an_outcome_before_its_output_is_valid() -> None:
    with fitting_at_last(1.0, 2.0) as cli:
        options = CliOptions(cli_path=cli.path)
        async with bridle.start_session(options, output_type=Offer) as session:
            turn = await session.send_user_message("go")
            async for _ in turn:
                pass
            assert repr(turn).endswith(", running)")
            await turn
            assert "output_invalid" in repr(turn)


def test_the_last_unfit_output_is_the_outcome() -> None:
    outcome = play(fitting_at_last(1.0, 2.0), output_type=Offer, output_retries=1)
    assert (outcome.reason, outcome.output) == (OutcomeReason.OUTPUT_INVALID, None)
    assert outcome.cost_usd == 2.0


def test_corrections_count_towards_the_limit_of_model_calls() -> None:
    again = fitting_at_last(1.0).expect_user().start_turn().assistant("2")
    outcome = play(again.assistant("3").silence(), output_type=Offer, limits=Limits(turns=2))
    assert outcome.reason is OutcomeReason.LIMIT_TURNS
    assert play(again.result("{}"), output_type=Offer, limits=Limits(turns=2)).model_calls == 2


@pytest.mark.parametrize("limits", [Limits(usd=0.5), Limits(turns=1)])
def test_a_correction_is_not_sent_when_a_limit_is_used_up(limits: Limits) -> None:
    outcome = play(fitting_at_last(1.0), output_type=Offer, limits=limits)
    assert (outcome.reason, outcome.cost_usd) == (OutcomeReason.OUTPUT_INVALID, 1.0)


async def test_prompts_that_share_a_turn_share_its_correction() -> None:
    script = FakeCli().expect_initialize().expect_user().expect_user()
    script = script.start_turn().assistant("1").result("{}", structured_output={"total": 1.0})
    script = script.expect_user().start_turn().assistant("2")
    with script.result("{}", structured_output={"total": 9.0}) as cli:
        options = CliOptions(cli_path=cli.path)
        async with bridle.Session(options, output_type=Offer) as session:
            turns = [await session.send_user_message(word) for word in ("one", "two")]
            outcomes = [await turn for turn in turns]
        assert [outcome.output for outcome in outcomes] == [Offer(9.0)] * 2
        assert [outcome.uuid for outcome in outcomes] == [turn.uuid for turn in turns]
        cli.check()


SENDER: contextvars.ContextVar[str] = contextvars.ContextVar("sender", default="nobody")


async def test_the_callbacks_of_a_correction_see_the_context_of_the_sender() -> None:
    seen: list[str] = []

    async def look(_: object) -> None:
        seen.append(SENDER.get())

    begun = fitting_at_last(1.0).expect_user().start_turn()
    asking = begun.ask_hook("PreToolUse", tool_name="Bash", tool_input={}).expect_answer()
    with asking.assistant("2").result("{}", structured_output={"total": 9.0}) as cli:
        options = CliOptions(cli_path=cli.path)
        bidir = BidirOptions(on_pre_tool_use=look)
        async with bridle.Session(options, bidir=bidir, output_type=Offer) as session:
            SENDER.set("the sender")
            turn = await session.send_user_message("one")
            SENDER.set("the awaiter")
            assert (await turn).ok
    assert seen == ["the sender"]


async def test_an_answer_is_not_corrected_after_a_later_prompt() -> None:
    with fitting_at_last(1.0, 9.0) as cli:
        options = CliOptions(cli_path=cli.path)
        async with bridle.Session(options, output_type=Offer) as session:
            # Both are written before the CLI can answer the first.
            first, second = await asyncio.gather(
                session.send_user_message("one"), session.send_user_message("two")
            )
            outcomes = [await first, await second]
    assert [one.reason for one in outcomes] == [
        OutcomeReason.OUTPUT_INVALID,
        OutcomeReason.COMPLETED,
    ]
    assert [one.output for one in outcomes] == [None, Offer(9.0)]


async def test_a_correction_is_not_named_in_merged_with() -> None:
    script = fitting_at_last(1.0).expect_user().expect_user().start_turn().assistant("2")
    with script.result("{}", structured_output={"total": 9.0}) as cli:
        options = CliOptions(cli_path=cli.path)
        async with bridle.Session(options, output_type=Offer) as session:
            messages = session.messages()
            first = await session.send_user_message("one")
            async for message in messages:
                if isinstance(message, ResultMessage):
                    break
            # Until the correction is sent.
            await until(lambda: session._actor.newest_turn != first.uuid)
            second = await session.send_user_message("two")
            outcomes = [await first, await second]
        assert [one.merged_with for one in outcomes] == [(second.uuid,), (first.uuid,)]


async def test_a_correction_and_a_prompt_that_share_a_turn_are_corrected_together() -> None:
    script = fitting_at_last(1.0).expect_user().expect_user().start_turn().assistant("2")
    script = script.result("{}", structured_output={"total": 1.0}, total_cost_usd=2.0)
    script = script.expect_user().start_turn().assistant("3")
    script = script.result("{}", structured_output={"total": 9.0}, total_cost_usd=3.0)
    with script.silence() as cli:
        options = CliOptions(cli_path=cli.path)
        session = bridle.Session(options, output_type=Offer, output_retries=2)
        await session.connect()
        messages = session.messages()
        first = await session.send_user_message("one")
        async for message in messages:
            if isinstance(message, ResultMessage):
                break
        # Until the correction is sent.
        await until(lambda: session._actor.newest_turn != first.uuid)
        second = await session.send_user_message("two")
        outcomes = [await first, await second]
        await session.stop()
        assert [one.output for one in outcomes] == [Offer(9.0)] * 2
        assert [one.uuid for one in outcomes] == [first.uuid, second.uuid]
        prompts = [line for line in cli.received if line.get("type") == "user"]
        assert len(prompts) == 4, "one correction of the shared turn"


async def test_an_answer_is_corrected_after_the_program_dropped_its_turn() -> None:
    with fitting_at_last(1.0, 9.0) as cli:
        options = CliOptions(cli_path=cli.path)
        async with bridle.Session(options, output_type=Offer) as session:
            messages = session.messages()
            turn = await session.send_user_message("one")
            del turn
            gc.collect()
            results = 0
            async for message in messages:
                results += isinstance(message, ResultMessage)
                if results == 2:
                    break
        assert results == 2


def test_a_slash_command_has_no_output_to_correct() -> None:
    script = FakeCli().expect_initialize().expect_user().start_turn()
    outcome = play(script.result("cleared", num_turns=0).silence(), output_type=Offer)
    assert (outcome.reason, outcome.model_calls) == (OutcomeReason.OUTPUT_MISSING, 0)


def test_model_calls_are_counted_for_the_limit_and_not_what_the_cli_calls_turns() -> None:
    script = FakeCli().expect_initialize().expect_user().start_turn().assistant("1")
    script = script.result("{}", structured_output={"total": 1.0}, num_turns=2)
    script = script.expect_user().start_turn().assistant("2")
    script = script.result("{}", structured_output={"total": 9.0}, num_turns=2)
    outcome = play(script, output_type=Offer, limits=Limits(turns=2))
    assert (outcome.ok, outcome.main_model_calls) == (True, 2)


def test_half_a_surrogate_pair_in_a_validation_error_does_not_end_the_run() -> None:
    class Odd(pydantic.BaseModel):
        total: float

        @pydantic.field_validator("total")
        @classmethod
        def _check(cls, total: float) -> float:
            if total < 5:
                raise ValueError("half \ud800")
            return total

    outcome = play(fitting_at_last(1.0, 9.0), output_type=Odd)
    assert outcome.output == Odd(total=9.0)


async def test_a_secret_in_a_validation_error_is_masked() -> None:
    class Keyed(pydantic.BaseModel):
        total: float

        @pydantic.field_validator("total")
        @classmethod
        def _check(cls, total: float) -> float:
            raise ValueError(f"unknown key {KEY}")

    with fitting_at_last(1.0) as cli:
        options = CliOptions(cli_path=cli.path)
        session = bridle.Session(options, output_type=Keyed, output_retries=0)
        async with session:
            outcome = await (await session.send_user_message("one"))
        assert "unknown key" in outcome.detail
        assert KEY not in outcome.detail


async def test_the_last_event_of_a_turn_has_the_validated_outcome() -> None:
    with fitting_at_last(1.0, 9.0) as cli:
        options = CliOptions(cli_path=cli.path)
        async with bridle.Session(options, output_type=Offer) as session:
            turn = await session.send_user_message("one")
            events = [event async for event in turn.events()]
            assert turn.done
        [ended] = [event for event in events if isinstance(event, TurnEnded)]
        assert (ended.outcome.ok, ended.outcome.output) == (True, Offer(9.0))


def test_the_last_event_of_a_blocking_turn_has_the_validated_outcome() -> None:
    with fitting_at_last(1.0, 9.0) as cli:
        options = CliOptions(cli_path=cli.path)
        with bridle.sync.Session(options, output_type=Offer) as session:
            events = list(session.send_user_message("one").events())
        [ended] = [event for event in events if isinstance(event, TurnEnded)]
        assert ended.outcome.output == Offer(9.0)


async def test_an_interrupt_ends_the_correction_of_a_turn() -> None:
    script = fitting_at_last(1.0).expect_user().start_turn().assistant("2")
    script = script.expect_request("interrupt").reply({"turn": "stopped"})
    aborted: dict[str, Any] = {"is_error": True, "terminal_reason": "aborted_streaming"}
    with script.result(None, subtype="error_during_execution", **aborted) as cli:
        options = CliOptions(cli_path=cli.path)
        session = bridle.Session(options, output_type=Offer, output_retries=5)
        async with session:
            messages = session.messages()
            turn = await session.send_user_message("one")
            async for message in messages:
                if isinstance(message, AssistantMessage) and message.text == "2":
                    break
            assert not turn.done
            await turn.interrupt()
            outcome = await turn
        assert outcome.reason is OutcomeReason.INTERRUPTED
        assert outcome.uuid == turn.uuid


async def test_an_interrupt_ends_the_wait_before_an_attempt() -> None:
    rejected = {"status": "rejected", "resetsAt": time.time() + 300.0}
    event = {"type": "rate_limit_event", "rate_limit_info": rejected, "uuid": "1"}
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(event)
    cli = cli.assistant("I begin.").result("limit", is_error=True, api_error_status=429)
    with cli.silence() as program:
        options = settle_options(CliOptions(cli_path=program.path), None, None)
        job = Run("go", options, retry=Retry())
        async with job:
            answer = asyncio.create_task(job.answer())
            await until(lambda: job.turn is not None and job.turn._state.outcome.done())
            assert job.turn is not None
            await job.turn.interrupt()
            assert (await answer).reason is OutcomeReason.RATE_LIMITED


async def test_a_session_validates_the_output_of_every_turn() -> None:
    with fitting_at_last(9.0, 1.0, 8.0) as cli:
        options = CliOptions(cli_path=cli.path)
        async with bridle.Session(options, output_type=Offer) as session:
            first = await (await session.send_user_message("one"))
            turn = await session.send_user_message("two")
            second, again = await asyncio.gather(turn, turn.outcome())
        assert (first.output, second.output) == (Offer(9.0), Offer(8.0))
        assert again is second
        assert second.uuid == turn.uuid


KEY = "sk-" + "ant-api03-" + "a" * 40

OVERLOADED: dict[str, Any] = {"is_error": True, "api_error_status": 529}


def failing(*, then: bool) -> FakeCli:
    """A CLI whose first answer is an API error."""
    cli = FakeCli().expect_initialize().expect_user().start_turn()
    cli = cli.assistant("I begin.").result("API Error: 529 overloaded", **OVERLOADED)
    return cli.expect_user().start_turn().assistant("done").result("done") if then else cli


@pytest.mark.parametrize("retry", [None, Retry(attempts=1)])
def test_an_api_error_is_the_outcome_without_another_attempt(retry: Retry | None) -> None:
    outcome = play(failing(then=False), retry=retry)
    assert (outcome.reason, outcome.retryable) == (OutcomeReason.API_ERROR, True)
    assert outcome.api_status == 529


def test_an_api_error_that_may_pass_is_retried_in_the_same_conversation() -> None:
    outcome = play(failing(then=True), retry=Retry(attempts=2))
    assert (outcome.ok, outcome.text) == (True, "done")
    assert outcome.duration >= 0.5, "it waits before the second attempt"
    assert outcome.api_status is None


@pytest.mark.parametrize("ending", ["the CLI exits", "the run is cancelled"])
def test_the_wait_before_an_attempt_ends_with_the_session(ending: str) -> None:
    rejected = {"status": "rejected", "resetsAt": time.time() + 300.0}
    event = {"type": "rate_limit_event", "rate_limit_info": rejected, "uuid": "1"}
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(event)
    cli = cli.assistant("I begin.").result("limit", is_error=True, api_error_status=429)
    exits = ending == "the CLI exits"

    async def main() -> None:
        with cli.exit(3) if exits else cli.silence() as program:
            options = CliOptions(cli_path=program.path)
            work = asyncio.create_task(bridle.run("go", cli=options, retry=Retry()))
            if exits:
                assert (await work).reason is OutcomeReason.RATE_LIMITED
            else:
                await until(lambda: len(asyncio.all_tasks()) > 4)
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work
            await until(lambda: asyncio.all_tasks() <= {asyncio.current_task()})

    run(main)  # it ends after LIMIT


def test_an_error_that_would_come_again_is_not_retried() -> None:
    cli = FakeCli().expect_initialize().expect_user().start_turn()
    cli = cli.assistant("I begin.").result("API Error", is_error=True, api_error_status=400)
    outcome = play(cli, retry=Retry())
    assert (outcome.reason, outcome.retryable) == (OutcomeReason.API_ERROR, False)


def test_an_attempt_that_does_not_fit_into_the_time_left_is_not_made() -> None:
    outcome = play(failing(then=False), retry=Retry(), limits=Limits(total=0.4))
    assert outcome.reason is OutcomeReason.API_ERROR


@pytest.mark.parametrize("retry", [Retry(max_wait=30.0), Retry(wait_for_reset=False)])
def test_a_limit_that_resets_too_late_is_not_awaited(retry: Retry) -> None:
    rejected = {"status": "rejected", "resetsAt": time.time() + 3600.0}
    event = {"type": "rate_limit_event", "rate_limit_info": rejected, "uuid": "1"}
    cli = FakeCli().expect_initialize().expect_user().start_turn().emit(event)
    outcome = play(cli.result("limit", is_error=True, api_error_status=429), retry=retry)
    assert (outcome.reason, outcome.retryable) == (OutcomeReason.RATE_LIMITED, True)


async def test_options_and_prompts_are_refused_before_anything_starts() -> None:
    with FakeCli.auto() as cli:
        options = CliOptions(cli_path=cli.path)
        schema = options.replace(json_schema={"type": "object"})
        nothing: Any = 5
        for field, refused in [
            ("prompt", bridle.run(nothing, cli=options)),
            ("prompt", bridle.run([], cli=options)),
            ("output_type", bridle.run("x", cli=schema, output_type=dict[str, int])),
            ("output_type", bridle.run("x", cli=options, output_type=cast("Any", "text"))),
            ("output_retries", bridle.run("x", cli=options, output_retries=-1)),
            ("retry", bridle.run("x", cli=options, retry=cast("Any", 3))),
        ]:
            with pytest.raises(OptionsError) as caught:
                await refused
            assert caught.value.field == field
        assert cli.runs == []
