"""The permission vocabulary: contexts, updates and results as plain data."""

from __future__ import annotations

import copy
import typing
from collections.abc import Awaitable, Callable, Generator
from pickle import dumps, loads
from typing import Any

import pytest

from bridle.errors import UsageError
from bridle.permissions import (
    Accept,
    AddDirectories,
    AddRules,
    Allow,
    AllowAll,
    AllowOnce,
    CanUseToolContext,
    Deny,
    Edit,
    ElicitationRequestContext,
    PermissionResult,
    PermissionRule,
    PermissionUpdate,
    PlanContext,
    Question,
    QuestionContext,
    QuestionOption,
    RemoveDirectories,
    RemoveRules,
    ReplaceRules,
    SetMode,
    UnknownPermissionUpdate,
    UserDialogContext,
    Withdrawable,
    bind_raw,
    bind_update,
    bind_withdrawal,
)

CONTEXTS: list[Withdrawable] = [
    CanUseToolContext(tool_name="Bash"),
    QuestionContext(tool_name="AskUserQuestion"),
    ElicitationRequestContext(mcp_server_name="el"),
    UserDialogContext(dialog_kind="pick"),
]


class Withdrawn:
    """A withdrawal that has happened, and remembers how it was waited for."""

    def __init__(self, *, happened: bool) -> None:
        self.happened = happened
        self.deps: object = None
        self.timeouts: list[float | None] = []

    def is_set(self) -> bool:
        return self.happened

    def wait(self) -> Awaitable[None]:
        return self

    def wait_sync(self, timeout: float | None) -> bool:
        self.timeouts.append(timeout)
        return self.happened

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: type(context).__name__)
def test_a_context_built_by_hand_is_never_cancelled(context: Withdrawable) -> None:
    assert context.cancelled is False


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: type(context).__name__)
def test_waiting_on_a_context_built_by_hand_is_an_error_that_says_so(context: Withdrawable) -> None:
    with pytest.raises(UsageError, match=f"{type(context).__name__} belongs to no session"):
        context.wait_cancelled()  # type: ignore[unused-awaitable]  # it raises before there is one
    with pytest.raises(UsageError, match="belongs to no session"):
        context.wait_cancelled_sync(1.0)


@pytest.mark.parametrize("happened", [True, False], ids=["withdrawn", "open"])
def test_a_context_asks_its_withdrawal(happened: bool) -> None:
    context = CanUseToolContext(tool_name="Bash")
    withdrawal = Withdrawn(happened=happened)
    bind_withdrawal(context, withdrawal)
    assert context.cancelled is happened
    assert context.wait_cancelled() is withdrawal
    assert context.wait_cancelled_sync(2.5) is happened
    assert context.wait_cancelled_sync() is happened
    assert withdrawal.timeouts == [2.5, None]


def test_equality_and_repr_ignore_raw_and_withdrawal() -> None:
    plain, bound = CanUseToolContext(tool_name="Bash"), CanUseToolContext(tool_name="Bash")
    bind_raw(bound, {"tool_name": "Bash", "new": 1})
    bind_withdrawal(bound, Withdrawn(happened=True))
    assert plain == bound
    assert repr(plain) == repr(bound)


def test_raw_is_the_object_a_context_was_read_from() -> None:
    context = CanUseToolContext(tool_name="Bash")
    bind_raw(context, {})
    assert context.raw == {}


def test_raw_of_a_context_built_by_hand_is_made_of_its_fields() -> None:
    rule = AddRules((PermissionRule("Bash"),))
    context = CanUseToolContext(
        tool_name="Bash", tool_input={"command": "ls"}, permission_suggestions=(rule,)
    )
    assert context.raw["input"] == {"command": "ls"}
    assert context.raw["permission_suggestions"] == [rule.raw]


RULES = (PermissionRule("Bash", "ls *"), PermissionRule("Read"))
RULES_ON_THE_WIRE = [{"toolName": "Bash", "ruleContent": "ls *"}, {"toolName": "Read"}]


@pytest.mark.parametrize(
    ("update", "wire"),
    [
        (
            AddRules(RULES),
            {
                "type": "addRules",
                "rules": RULES_ON_THE_WIRE,
                "behavior": "allow",
                "destination": "session",
            },
        ),
        (
            ReplaceRules(RULES, "deny", destination="userSettings"),
            {
                "type": "replaceRules",
                "rules": RULES_ON_THE_WIRE,
                "behavior": "deny",
                "destination": "userSettings",
            },
        ),
        (
            RemoveRules(RULES, "ask", destination="projectSettings"),
            {
                "type": "removeRules",
                "rules": RULES_ON_THE_WIRE,
                "behavior": "ask",
                "destination": "projectSettings",
            },
        ),
        (
            SetMode("acceptEdits", destination="localSettings"),
            {"type": "setMode", "mode": "acceptEdits", "destination": "localSettings"},
        ),
        (
            AddDirectories(("/a", "/b")),
            {"type": "addDirectories", "directories": ["/a", "/b"], "destination": "session"},
        ),
        (
            RemoveDirectories(("/a",)),
            {"type": "removeDirectories", "directories": ["/a"], "destination": "session"},
        ),
        (UnknownPermissionUpdate({"type": "new", "x": 1}), {"type": "new", "x": 1}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, PermissionUpdate) else "wire",
)
def test_an_update_has_a_wire_form(update: PermissionUpdate, wire: dict[str, object]) -> None:
    assert update.raw == wire


def test_an_update_from_the_wire_keeps_what_it_does_not_know() -> None:
    update = SetMode("plan")
    bind_update(update, {"type": "setMode", "mode": "plan", "new": 1})
    assert update.raw == {"type": "setMode", "mode": "plan", "new": 1}
    assert update == SetMode("plan")


def test_questions_are_read_from_the_input_of_the_tool() -> None:
    context = QuestionContext(
        tool_name="AskUserQuestion",
        tool_input={
            "questions": [
                {
                    "question": "Which?",
                    "header": "Pick",
                    "options": [{"label": "A", "description": "a"}, {"label": "B"}],
                    "multiSelect": True,
                },
                {"header": "no question"},
                {"question": "Why?"},
            ]
        },
    )
    options = (QuestionOption("A", "a"), QuestionOption("B"))
    assert context.questions == (
        Question("Which?", "Pick", options, multi_select=True),
        Question("Why?"),
    )


@pytest.mark.parametrize("tool_input", [{}, {"questions": "Which?"}], ids=["none", "no list"])
def test_an_input_without_questions_asks_nothing(tool_input: dict[str, object]) -> None:
    context = QuestionContext(tool_name="AskUserQuestion", tool_input=tool_input)
    assert context.questions == ()


@pytest.mark.parametrize(
    ("tool_input", "plan"),
    [({"plan": "1. do it"}, "1. do it"), ({}, None), ({"plan": 3}, None)],
    ids=["text", "none", "no text"],
)
def test_the_plan_is_read_from_the_input_of_the_tool(
    tool_input: dict[str, object], plan: str | None
) -> None:
    assert PlanContext(tool_name="ExitPlanMode", tool_input=tool_input).plan == plan


def test_the_results_of_a_permission_are_a_closed_union_of_frozen_records() -> None:
    """R306 to R308, C12: a further one is an addition, since nobody but Bridle spells them out."""
    results = typing.get_args(PermissionResult)
    assert results == (Allow, AllowOnce, AllowAll, Edit, Deny)
    assert all(kind.__struct_config__.frozen for kind in results)


def test_results_have_quiet_defaults() -> None:
    assert Allow().updated_permissions == ()
    assert Deny("no").interrupt is False
    assert Accept().content == {}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda it: loads(dumps(it))])
def test_a_copy_keeps_the_wire_form(duplicate: Callable[[Any], Any]) -> None:
    context = CanUseToolContext(tool_name="Bash")
    wire = {"tool_name": "Bash", "of_tomorrow": 1}
    bind_raw(context, wire)
    bind_withdrawal(context, Withdrawn(happened=False))
    copied = duplicate(context)
    assert (copied, copied.raw, copied.cancelled) == (context, wire, False)
    update = AddDirectories(("/w",))
    bind_update(update, {"type": "addDirectories", "directories": ["/w"], "of_tomorrow": 1})
    assert duplicate(update).raw == update.raw
    assert (duplicate(AddDirectories(("/w",))), duplicate(update)) == (update, update)
    by_hand = duplicate(CanUseToolContext(tool_name="Bash"))
    assert by_hand.raw["tool_name"] == "Bash"
