"""Options by name: which record takes each, what is rejected, and how names are explained."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from bridle.errors import OptionsError
from bridle.options import RECORDS, BidirOptions, CliOptions, Limits, SdkOptions
from bridle.options._keywords import (
    CONVERSATION,
    HINTS,
    conversation,
    gather,
    refuse_conversation,
)
from bridle.tools import ToolServer, tool

ALL = {name for cls in RECORDS.values() for name in cls.fields}


def price(item: str) -> float:
    """Return the price of an item."""
    return len(item)


@tool(name="stock")
def count(item: str) -> int:
    """Return how many are in stock."""
    return len(item)


def guard(_: object) -> None:
    return None


def given(**keywords: Any) -> Any:
    return gather(None, None, None, keywords)


def refusal(**keywords: Any) -> OptionsError:
    with pytest.raises(OptionsError) as caught:
        given(**keywords).callbacks()
    return caught.value


def test_the_names_of_all_options_differ() -> None:
    assert len(ALL) == sum(len(cls.fields) for cls in RECORDS.values())


def test_each_keyword_goes_to_its_record() -> None:
    found = given(model="opus", limits=Limits(usd=1.0), on_pre_tool_use=guard)
    assert found.cli == CliOptions(model="opus")
    assert found.sdk == SdkOptions(limits=Limits(usd=1.0))
    assert found.bidir == BidirOptions(on_pre_tool_use=guard)


def test_keywords_complete_the_records() -> None:
    cli, bidir = CliOptions(model="opus"), BidirOptions()
    found = gather(cli, None, bidir, {"max_turns": 3})
    assert found.cli == CliOptions(model="opus", max_turns=3)
    assert (found.sdk, found.bidir) == (None, bidir)


def test_without_keywords_the_records_are_passed_on() -> None:
    cli = CliOptions(model="opus")
    found = gather(cli, None, None, {})
    assert found.cli is cli
    assert found.callbacks() is None
    assert found.allowed_tools() == []


def test_an_option_given_both_ways_is_rejected() -> None:
    with pytest.raises(OptionsError) as caught:
        gather(CliOptions(model="opus"), None, None, {"model": "sonnet"})
    assert caught.value.field == "model"
    assert "CliOptions(model=...)" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("modle", "Did you mean 'model'?"),
        ("resume", "Use resume_session_id."),
        ("can_use_tool", "Use on_can_use_tool."),
        ("canUseTool", "Use on_can_use_tool."),
        ("resumeSessionAt", "Use resume_session_at."),
        ("maxBudgetUsd", "Use max_budget_usd."),
        ("mcpServers", "Use mcp_servers."),
        ("pathToClaudeCodeExecutable", "Use cli_path."),
        ("session_store", "Use store."),
        ("sessionStore", "Use store."),
        (
            "session_store_flush",
            "Remove it: Bridle sends entries to the store as they come.",
        ),
        ("load_timeout_ms", "Use load_timeout, in seconds."),
        ("xyzzy", "The reference of the options lists all names."),
    ],
)
def test_an_unknown_name_is_rejected_with_the_right_one(name: str, advice: str) -> None:
    error = refusal(**{name: 1})
    assert (error.field, error.problem, error.fix) == (name, "is not an option", advice)


def test_every_hint_names_something_that_exists() -> None:
    others = {"output_type", "run_many"}
    for name, hint in HINTS.items():
        assert name not in ALL, name
        named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", hint))
        assert named <= ALL | others, name


@pytest.mark.parametrize("matcher", [SimpleNamespace(hooks=[guard]), {"hooks": [guard]}])
def test_the_matchers_of_the_official_sdks_are_explained(matcher: Any) -> None:
    error = refusal(hooks={"PreToolUse": [matcher]})
    assert error.fix.startswith("Use Hook(callback, matcher='Bash')")


def test_a_value_is_checked_by_its_record() -> None:
    error = refusal(max_turns=0)
    assert (error.field, error.fix) == ("max_turns", "Use 1 or more.")


# ---------------------------------------------------------------- tools


def test_functions_become_a_server_and_names_stay_built_in_tools() -> None:
    found = given(tools=["Read", price, "Grep", count])
    assert found.cli == CliOptions(tools=["Read", "Grep"])
    assert list(found.callbacks().mcp_servers) == ["tools"]
    assert list(found.functions.tools) == ["price", "stock"]
    assert found.allowed_tools() == ["mcp__tools__price", "mcp__tools__stock"]


@pytest.mark.parametrize(
    ("tools", "built_in"),
    [([], ()), ([price], None), (["Read"], ("Read",)), ("default", "default"), (None, None)],
    ids=["none", "functions only", "names only", "default", "not set"],
)
def test_only_names_choose_built_in_tools(tools: Any, built_in: Any) -> None:
    assert given(tools=tools).cli.tools == built_in


def test_functions_stand_beside_other_servers() -> None:
    other = ToolServer([count])
    servers = given(tools=[price], mcp_servers={"shop": other}).callbacks().mcp_servers
    assert list(servers) == ["shop", "tools"]
    assert servers["shop"] is other


def test_a_second_server_named_tools_is_rejected() -> None:
    error = refusal(tools=[price], mcp_servers={"tools": ToolServer([count])})
    assert error.field == "tools"
    assert "mcp_servers" in error.problem


@pytest.mark.parametrize("item", [3, None, ToolServer([price]), int])
def test_other_objects_are_refused_as_tools(item: Any) -> None:
    assert refusal(tools=[price, item]).field == "tools[1]"


def test_two_functions_of_one_name_are_rejected() -> None:
    def other(amount: int) -> int:
        return amount

    error = refusal(tools=[price, tool(other, name="price")])
    assert "two tools named 'price'" in error.problem


# ---------------------------------------------------------------- changed copies


def test_a_copy_has_the_changes_wherever_the_option_was_given() -> None:
    first = gather(CliOptions(model="opus"), None, None, {"max_turns": 3, "tools": [price]})
    second = first.replace({"model": "sonnet", "control_timeout": 5.0})
    assert second.cli == CliOptions(model="sonnet", max_turns=3)
    assert second.sdk == SdkOptions(control_timeout=5.0)
    assert second.functions is first.functions
    assert first.cli == CliOptions(model="opus", max_turns=3)


def test_a_copy_can_have_other_tools_or_none() -> None:
    first = given(tools=["Read", price])
    assert list(first.replace({"tools": [count]}).functions.tools) == ["stock"]
    assert first.replace({"tools": [count]}).cli.tools is None
    assert first.replace({"tools": []}).functions is None
    assert first.replace({"tools": None}).cli.tools is None


def test_none_unsets_an_option_of_a_copy_wherever_it_was_given() -> None:
    first = gather(None, SdkOptions(limits=Limits(usd=1.0)), None, {"callback_timeout": 5.0})
    second = first.replace({"limits": None, "callback_timeout": None, "model": None})
    assert (second.sdk, second.bidir) == (SdkOptions(), BidirOptions())
    assert [record.given() for record in (second.sdk, second.bidir) if record] == [{}, {}]
    with pytest.raises(OptionsError, match="modle"):
        first.replace({"modle": None})


def test_a_new_option_may_not_be_none_if_it_has_a_default() -> None:
    assert refusal(inherit_env=None).field == "inherit_env"


# ---------------------------------------------------------------- conversations


@pytest.mark.parametrize("name", CONVERSATION)
def test_options_that_choose_a_conversation_are_found(name: str) -> None:
    with pytest.raises(OptionsError) as caught:
        refuse_conversation({name: "x"}, "Use run({name}=...).")
    assert (caught.value.field, caught.value.fix) == (name, f"Use run({name}=...).")
    refuse_conversation({name: None, "model": "opus"}, "")
    refuse_conversation({name: False}, "")
    assert conversation({name: "x"}) == {name: "x"}
    assert conversation({name: None}) == {}


def test_a_call_takes_no_other_options() -> None:
    with pytest.raises(OptionsError) as caught:
        conversation({"model": "opus"})
    assert caught.value.fix == "Use a changed copy: agent.replace(model=...)."
    with pytest.raises(OptionsError, match="Use resume_session_id"):
        conversation({"resume": "x"})
