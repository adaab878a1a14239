"""Test an agent without an API key, a network or costs: a small agent and its tests.

`ScriptedModel` replaces the API: the real CLI and all of your code run, and the model returns the
replies in the test. `FakeCli` replaces the CLI, and can simulate faults that are rare in practice.
The fixture `scripted_model` is part of Bridle. Pytest finds it automatically.

$ pip install pytest
$ pytest examples/testing_your_agent.py
"""

from collections.abc import Callable
from pathlib import Path

import bridle
from bridle.testing import FakeCli, ScriptedModel, text, tool_use

# ---------------------------------------------------------------- the agent


def stock(article: str) -> int:
    """How many of an article are left."""
    return {"bridle": 4}.get(article, 0)


def policy(ask: bridle.CanUseToolContext) -> bridle.PermissionResult:
    return bridle.Deny(f"{ask.tool_name} is not one of the shop's own tools.")


agent = bridle.Agent(tools=[stock], on_can_use_tool=policy)


# ---------------------------------------------------------------- its tests

StartModel = Callable[..., ScriptedModel]


def test_a_tool_and_a_policy_are_functions() -> None:
    assert stock("bridle") == 4
    assert policy(bridle.CanUseToolContext(tool_name="Bash")) == bridle.Deny(
        "Bash is not one of the shop's own tools."
    )


def test_the_model_learns_what_is_left(scripted_model: StartModel) -> None:
    model = scripted_model([[tool_use("mcp__tools__stock", article="bridle")], [text("Four.")]])
    outcome = agent.replace(env=model.env).sync.run("Any bridles left?")
    assert outcome.raise_for_reason().text == "Four."
    assert model.requests[0].last_user_text == "Any bridles left?"
    assert model.requests[1].last_tool_result == "4"


def test_no_command_is_run(scripted_model: StartModel, tmp_path: Path) -> None:
    model = scripted_model([[tool_use("Bash", command="touch here")], [text("I may not.")]])
    outcome = agent.replace(env=model.env, cwd=tmp_path).sync.run("Make a file.")
    assert outcome.text == "I may not."
    assert "not one of the shop's own tools" in (model.requests[1].last_tool_result or "")
    assert list(tmp_path.iterdir()) == []


def test_a_cli_that_dies_is_an_outcome_like_any_other() -> None:
    with FakeCli().expect_initialize().expect_user("Hello?").start_turn().crash() as cli:
        outcome = agent.replace(cli_path=cli.path).sync.run("Hello?")
        cli.check()
    assert outcome.reason is bridle.OutcomeReason.CLI_EXITED
