"""Pools on the real CLIs: ready processes, claims, keys, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.pools import pool_of
from tests.support.processes import is_alive, until

import bridle
from bridle import Agent, Allow, Hook, Session
from bridle.testing import ScriptedModel, text, tool_use

pytestmark = pytest.mark.longer

if TYPE_CHECKING:
    from tests.real.conftest import Lab


def agent(lab: Lab, model: ScriptedModel, **options: Any) -> Agent[Any]:
    """An agent with the options that every test needs."""
    return Agent(
        cli_path=lab.cli_path,
        env=model.env,
        cwd=str(lab.work),
        model="claude-sonnet-4-5",
        inherit_env=["PATH"],
        **options,
    )


async def ask(session: Session, prompt: str) -> str:
    outcome = await (await session.send_user_message(prompt))
    return outcome.raise_for_reason().text


@pytest.mark.longer
async def test_runs_use_ready_processes_and_leave_none(lab: Lab) -> None:
    """Callbacks, tools and prompts of each run reach a process that was started before it."""
    called: list[tuple[str, object]] = []

    def guard(ctx: bridle.PreToolUseContext) -> None:
        called.append((ctx.tool_name, ctx.deps))

    @bridle.tool
    def price(item: str) -> int:
        """Return the price of an item."""
        return len(item)

    script = [[tool_use("mcp__tools__price", item="saddle")], [text("It costs 6.")]] * 2
    async with ScriptedModel(script) as model:
        made = agent(
            lab,
            model,
            tools=[price],
            on_pre_tool_use=guard,
            append_system_prompt=lambda deps: f"You serve {deps}.",
        )
        async with made.pool(size=1) as pool:
            for deps in ("Ada", "Bob"):
                await until(lambda: pool.metrics.ready == 1)
                outcome = await pool.run("price?", deps=deps)
                assert (outcome.ok, outcome.text) == (True, "It costs 6.")
                assert f"You serve {deps}." in model.requests[-1].system_text
            assert (pool.metrics.from_ready, pool.metrics.lost) == (2, 0)
    assert called == [("mcp__tools__price", "Ada"), ("mcp__tools__price", "Bob")]


@pytest.mark.both_clis
async def test_a_session_can_work_in_another_directory(lab: Lab) -> None:
    other = lab.work.parent / "other"
    other.mkdir()
    script = [[tool_use("Bash", command="pwd", description="where")], [text("There.")]]
    async with ScriptedModel(script) as model:
        made = agent(lab, model, allowed_tools=["Bash"])
        async with made.pool(size=1) as pool, pool.session(cwd=other) as session:
            assert await ask(session, "where?") == "There."
            assert model.requests[1].last_tool_result == str(other)
            assert pool.metrics.from_ready == (1 if lab.is_newest else 0)


@pytest.mark.longer
async def test_a_directory_with_settings_that_cannot_be_claimed_gets_a_new_process(
    lab: Lab,
) -> None:
    (lab.work / ".claude").mkdir()
    settings = {"env": {"FROM_SETTINGS": "yes"}}
    (lab.work / ".claude" / "settings.json").write_text(json.dumps(settings))
    call = tool_use("Bash", command="echo $FROM_SETTINGS", description="say")
    async with ScriptedModel([[call], [text("Done.")]] * 2) as model:
        made = agent(lab, model, allowed_tools=["Bash"], setting_sources=["project"])
        async with made.pool(size=1) as pool:
            for number in (1, 3):
                await until(lambda: pool.metrics.ready == 1)
                assert (await pool.run("say it")).text == "Done."
                assert model.requests[number].last_tool_result == "yes"
            assert pool.metrics.from_ready == 2


@pytest.mark.longer
async def test_a_hook_for_the_start_of_a_session_runs_once_for_each(lab: Lab) -> None:
    """A claimed process runs it with the claim. CLI 2.1.197 never calls this hook."""
    started: list[str] = []
    hooks = {"SessionStart": [Hook(lambda ctx: started.append(ctx.raw["source"]))]}
    async with ScriptedModel([[text("Hello.")]] * 2) as model:
        pool = agent(lab, model, hooks=hooks).pool(size=1)
        async with pool:
            for _ in range(2):
                assert (await pool.run("hi")).ok
            assert pool.metrics.from_ready == (2 if lab.is_newest else 0)
    assert started == (["startup", "startup"] if lab.is_newest else [])


@pytest.mark.longer
async def test_a_key_is_one_conversation_that_is_resumed(lab: Lab) -> None:
    async with ScriptedModel([[text("One.")], [text("Two.")], [text("Three.")]]) as model:
        async with agent(lab, model).pool(size=1) as pool:
            pids = []
            for number in range(3):
                if number == 2:
                    async with pool.session():  # takes the place of the key
                        pass
                async with pool.session(key="user-7") as session:
                    await ask(session, f"prompt {number}")
                    pids.append(session.pid or 0)
            assert pids[0] == pids[1] != pids[2]
            said = json.dumps(model.requests[-1].messages)
            assert all(word in said for word in ("prompt 0", "One.", "prompt 1", "Two."))
        assert not any(map(is_alive, pids))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("mode", "call", "changed"),
    [
        ("plan", tool_use("ExitPlanMode", plan="Do it."), "default"),
        ("default", tool_use("EnterPlanMode"), "plan"),
    ],
    ids=["leave plan mode", "enter plan mode"],
)
async def test_the_next_caller_of_a_key_has_the_mode_of_the_agent(
    lab: Lab, mode: str, call: Any, changed: str
) -> None:
    """Also if the model has changed the permission mode in its turn."""
    script = [[call], [text("One.")], [text("Two.")]]
    async with ScriptedModel(script) as model:
        made = agent(lab, model, permission_mode=mode, on_can_use_tool=lambda _: Allow())
        async with made.pool(size=1) as pool:
            seen = []
            for _ in range(2):
                async with pool.session(key="user-7") as session:
                    turn = await session.send_user_message("go")
                    async for message in turn:
                        found = getattr(message, "permission_mode", None)
                        seen += [] if found is None else [found]
            assert seen == [mode, changed, mode]


@pytest.mark.longer
async def test_a_process_that_would_go_on_by_itself_is_closed(lab: Lab) -> None:
    """The CLI runs no prompt of its schedule when the caller has left the block."""
    job = tool_use("CronCreate", cron="* * * * *", prompt="go on", recurring=True)
    model = ScriptedModel([[job], [text("Scheduled.")], [text("Here.")]])
    async with model, pool_of(agent(lab, model), size=1, ready=0) as pool:
        # The CLI restores the schedule when it resumes the conversation.
        for answer in ("Scheduled.", "Here."):
            async with pool.session(key="user-7") as session:
                assert await ask(session, "go") == answer
                pid = session.pid or 0
            await until(lambda: pool.metrics.closing == 0)
            assert (pool.metrics.idle, is_alive(pid)) == (0, False)
        assert "Scheduled recurring job" in str(model.requests[1].last_tool_result)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("command", "member"), [("/model haiku", "model"), ("/effort low", "output_config")]
)
async def test_the_next_caller_of_a_key_has_the_model_and_effort_of_the_agent(
    lab: Lab, command: str, member: str
) -> None:
    """Also if a caller has sent a slash command. CLI 2.1.197 rejects these."""
    model = ScriptedModel([[text("One.")], [text("Two.")]])
    async with model, agent(lab, model).pool(size=1) as pool:
        for prompts in (["first", command], ["second"]):
            async with pool.session(key="user-7") as session:
                for prompt in prompts:
                    _ = await (await session.send_user_message(prompt))
        first, second = (one.raw.get(member) for one in model.requests)
        assert first == second


@pytest.mark.longer
async def test_a_process_that_has_used_up_its_budget_is_replaced(lab: Lab) -> None:
    model = ScriptedModel([[text("Yes.")]] * 2)
    async with model, agent(lab, model, max_budget_usd=1e-9).pool(size=1) as pool:
        for number in (1, 2):
            async with pool.session(key="user-7") as session:
                outcome = await (await session.send_user_message("go"))
                assert outcome.reason == "max_budget"
            # The process that resumes the conversation has a budget of its own.
            assert len(model.requests) == number


@pytest.mark.longer
async def test_users_chat_on_fewer_processes(lab: Lab) -> None:
    """Eight users on two processes, two prompts each, at the same time."""
    async with ScriptedModel([[text("Yes.")]] * 16) as model:

        async def chat(key: str) -> None:
            for number in range(2):
                async with pool.session(key=key, timeout=None) as session:
                    assert await ask(session, f"{key} says {number}") == "Yes."

        async with agent(lab, model).pool(size=2) as pool:
            await asyncio.gather(*(chat(f"user-{number}") for number in range(8)))
        # Every second request holds the first prompt of the same user, and of no other.
        for request in model.requests:
            said = json.dumps(request.messages)
            users = {f"user-{n}" for n in range(8) if f"user-{n} says" in said}
            assert len(users) == 1
            [user] = users
            assert f"{user} says 0" in said


@pytest.mark.longer
@pytest.mark.parametrize("count", [5])
async def test_processes_are_borrowed_and_returned_many_times(lab: Lab, count: int) -> None:
    async with ScriptedModel([[text("Yes.")]] * count) as model:
        async with agent(lab, model).pool(size=2) as pool:
            pids = set()
            for _ in range(count):
                async with pool.session() as session:
                    await ask(session, "?")
                    pids.add(session.pid or 0)
            assert len(pids) == count
        assert not any(map(is_alive, pids))
