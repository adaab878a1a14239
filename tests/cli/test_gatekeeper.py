"""Answers to the CLI's requests: by the policy, the user, --yes, --deny, or without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from tests.support import cli

from bridle import (
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Block,
    Cancel,
    CanUseToolContext,
    Deny,
    Edit,
    ElicitationRequestContext,
    HookOutput,
    PlanContext,
    PreToolUseContext,
    QuestionContext,
    UserPromptSubmitContext,
)
from bridle.cli._asking.gatekeeper import Gatekeeper, Otherwise
from bridle.cli._policy.path_patterns import Place
from bridle.cli._policy.policy import parse_policy
from bridle.cli._screens.screens import PlainScreen
from bridle.cli._screens.shown import Line, Note, plain
from bridle.cli._screens.view import View

POLICY = """
[[rule]]
tool = "Read"
decision = "allow"

[[rule]]
tool = "Bash"
decision = "deny"
reason = "No shell."

[[rule]]
tool = "Write"
decision = "deny"
"""


ALLOW = 'decision = "allow"'


class Person(PlainScreen):
    """A screen with somebody before it, who has their answers ready."""

    def __init__(self, *answers: str | None, editor: Callable[[str], str] | None = None) -> None:
        super().__init__()
        self._answers = list(answers)
        self._editor = editor
        self.asked: list[list[str]] = []

    async def ask(self, lines: Sequence[Line], prompt: str) -> str | None:
        self.asked.append([plain(line) for line in lines])
        answer = self._answers.pop(0)
        await asyncio.sleep(0)  # others may come forward meanwhile
        return answer

    async def edit(self, text: str) -> str:
        if self._editor is None:
            raise OSError("there is no editor")
        return self._editor(text)


class Case:
    """A gatekeeper, the person it asks, and the call it is asked about."""

    def __init__(self, person: Person, otherwise: Otherwise, policy: str = "") -> None:
        self.person = person
        self.view = View(0.0)
        self.gate = Gatekeeper(
            self.view,
            person,
            lambda: 0.0,
            policy=parse_policy(policy, "policy", Place("/repo", "/home")),
            otherwise=otherwise,
        )

    def begin(self, **tool_input: object) -> None:
        """The model makes the call."""
        block = {"type": "tool_use", "id": "t1", "name": "Tool", "input": tool_input}
        line = cli.line(type="assistant", message={"content": [block]})
        self.view.see(cli.decoded(line)[0], 0.0)

    def asks(self, answer: Callable[[Any], Coroutine[Any, Any, Any]], context: Any) -> Any:
        """The CLI asks about it."""
        self.begin()
        return asyncio.run(answer(context))

    def ended(self) -> str:
        """How the call is told of when it is over."""
        block = {"type": "tool_result", "tool_use_id": "t1", "content": ""}
        line = cli.line(type="user", message={"role": "user", "content": [block]})
        [shown] = self.view.see(cli.decoded(line)[0], 0.0)
        assert isinstance(shown, Note)
        return plain(shown.line)


def bash(**tool_input: object) -> CanUseToolContext:
    return CanUseToolContext(tool_name="Bash", tool_input=dict(tool_input), tool_use_id="t1")


@pytest.mark.parametrize(
    ("otherwise", "tool", "expected", "told"),
    [
        ("ask", "Read", AllowOnce(), "allowed by policy rule 1"),
        ("yes", "Bash", Deny("No shell."), "denied by policy rule 2: No shell."),
        (
            "yes",
            "Write",
            Deny("The permission policy of this run denies this call."),
            "denied by policy rule 3",
        ),
        ("yes", "Grep", AllowOnce(), "allowed by --yes"),
        (
            "deny",
            "Grep",
            Deny("The user denies all permission requests in this run."),
            "denied by --deny",
        ),
        (
            "absent",
            "Grep",
            Deny("No user is available to give permission."),
            "denied: there is no terminal to ask on",
        ),
    ],
)
def test_a_settled_call_asks_no_question(
    otherwise: Otherwise, tool: str, expected: object, told: str
) -> None:
    case = Case(Person(), otherwise, POLICY)
    context = CanUseToolContext(tool_name=tool, tool_use_id="t1")
    assert case.asks(case.gate.can_use_tool, context) == expected
    assert told in case.ended()
    assert case.person.asked == []


def test_the_default_of_a_policy_is_named() -> None:
    case = Case(Person(), "yes", 'default = "deny"')
    assert isinstance(case.asks(case.gate.can_use_tool, bash()), Deny)
    assert "denied by policy default" in case.ended()


@pytest.mark.parametrize(
    ("policy", "expected", "told"),
    [
        (
            '[[rule]]\ntool = "Bash"\ndecision = "deny"\nreason = "No shell."',
            Block("No shell."),
            "1",
        ),
        (
            'default = "deny"',
            Block("The permission policy of this run denies this call."),
            "denied by policy default",
        ),
        (
            '[[rule]]\ntool = "Bash"\ndecision = "ask"',
            HookOutput(permission_decision="ask", permission_decision_reason="policy rule 1"),
            "",
        ),
        (
            '[[rule]]\ntool = "Bash"\ndecision = "ask"\nreason = "Look."',
            HookOutput(permission_decision="ask", permission_decision_reason="Look."),
            "",
        ),
        ('[[rule]]\ntool = "Bash"\ndecision = "allow"', None, ""),
        ('default = "allow"', None, ""),
        ('default = "ask"', None, ""),
        ("", None, ""),
    ],
)
def test_a_policy_binds_before_the_cli_asks(policy: str, expected: object, told: str) -> None:
    """What it denies or asks about; what it allows is left to the CLI and its question."""
    case = Case(Person(), "ask", policy)
    context = PreToolUseContext(tool_name="Bash", tool_use_id="t1")
    assert case.asks(case.gate.before_tool, context) == expected
    assert told in case.ended()
    assert case.person.asked == []


@pytest.mark.parametrize(
    ("directory", "expected"), [("/repo", AllowOnce), ("/etc", Deny), (None, Deny)]
)
def test_a_relative_path_counts_from_where_the_hook_said_the_call_is_made(
    directory: str | None, expected: type[object]
) -> None:
    """A permission request does not say where."""
    case = Case(Person(), "absent", '[[rule]]\ntool = "Bash"\ninput.command = "wc *"\n' + ALLOW)
    if directory is not None:
        before = PreToolUseContext(
            tool_name="Bash", tool_use_id="t1", tool_input={"command": "wc a"}, cwd=directory
        )
        assert asyncio.run(case.gate.before_tool(before)) is None
    answer = case.asks(case.gate.can_use_tool, bash(command="wc a"))
    assert isinstance(answer, expected)


def test_a_policy_that_no_hook_has_reached_is_bypassed() -> None:
    gate = Case(Person(), "ask", 'default = "deny"').gate
    assert gate.is_bypassed
    assert gate.hooks is not None
    asyncio.run(gate.before_prompt(UserPromptSubmitContext(prompt="go")))
    assert not gate.is_bypassed


def test_without_a_policy_there_are_no_hooks() -> None:
    gate = Case(Person(), "ask").gate
    assert (gate.hooks, gate.is_bypassed) == (None, False)


@pytest.mark.parametrize(
    ("answers", "expected", "told"),
    [
        (["y"], AllowOnce(), "allowed by you"),
        (["a"], AllowAll(), "always allowed by you"),
        (["n"], Deny("The user does not want this."), "denied by you"),
        (["n too late"], Deny("too late"), "denied by you: too late"),
        ([None], Deny("The user does not want this."), "denied by you"),
        (["hm", "", "y"], AllowOnce(), "allowed by you"),
        (["e", "y"], AllowOnce(), "allowed by you"),
    ],
)
def test_a_person_decides(answers: list[str | None], expected: object, told: str) -> None:
    case = Case(Person(*answers), "ask")
    assert case.asks(case.gate.can_use_tool, bash(command="ls")) == expected
    assert told in case.ended()
    assert len(case.person.asked) == len(answers)


def test_a_person_edits() -> None:
    person = Person("e", editor=lambda text: text.replace("ls", "pwd"))
    case = Case(person, "ask")
    answer = case.asks(case.gate.can_use_tool, bash(command="ls"))
    assert answer == Edit({"command": "pwd"})
    assert case.ended().endswith("edited by you  pwd")


@pytest.mark.parametrize(
    ("editor", "said"),
    [
        (lambda text: text, "    command  ls"),
        (lambda text: "{", "  This is not a JSON object"),
        (None, "  there is no editor"),
    ],
    ids=["unchanged", "broken", "none"],
)
def test_an_edit_that_comes_to_nothing_is_asked_about_again(
    editor: Callable[[str], str] | None, said: str
) -> None:
    case = Case(Person("e", "y", editor=editor), "ask")
    assert case.asks(case.gate.can_use_tool, bash(command="ls")) == AllowOnce()
    assert any(line.startswith(said) for line in case.person.asked[1])


async def test_questions_that_overlap_are_asked_one_by_one() -> None:
    case = Case(Person("hm", "y", "n"), "ask")
    two = (bash(command="one"), bash(command="two"))
    decisions = await asyncio.gather(*map(case.gate.can_use_tool, two))
    assert decisions == [AllowOnce(), Deny("The user does not want this.")]
    assert [lines[-1].strip() for lines in case.person.asked] == [
        "command  one",
        "This answer is not one of the choices.",
        "command  two",
    ]


async def test_a_question_that_is_withdrawn_leaves_the_next_one_its_turn() -> None:
    case = Case(Person("y", "n"), "ask")
    case.begin()
    first = asyncio.create_task(case.gate.can_use_tool(bash(command="one")))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert await case.gate.can_use_tool(bash(command="two")) == Deny("The user does not want this.")


# ---------------------------------------------------------------- plans and questions

PLAN = PlanContext(tool_name="ExitPlanMode", tool_input={"plan": "look"}, tool_use_id="t1")


@pytest.mark.parametrize(
    ("answers", "expected", "told"),
    [
        (["hm", "y"], Allow(), "approved by you"),
        (["n first this"], Deny("first this"), "denied by you: first this"),
        ([None], Deny("The user does not want this."), "denied by you"),
        (["e", "y"], Allow(), "approved by you"),
    ],
)
def test_a_person_decides_about_a_plan(
    answers: list[str | None], expected: object, told: str
) -> None:
    case = Case(Person(*answers), "ask")
    assert case.asks(case.gate.plan, PLAN) == expected
    assert case.person.asked[0][1:] == ["    look"]
    assert told in case.ended()


def test_a_plan_that_the_question_leaves_out_is_taken_from_the_call() -> None:
    case = Case(Person("y"), "ask")
    case.begin(plan="leap")
    bare = PlanContext(tool_name="ExitPlanMode", tool_use_id="t1")
    assert case.asks(case.gate.plan, bare) == Allow()
    assert case.person.asked[0][1:] == ["    leap"]


def test_a_plan_without_a_person_is_settled_like_a_tool() -> None:
    willing, unwilling = Case(Person(), "yes"), Case(Person(), "absent")
    assert willing.asks(willing.gate.plan, PLAN) == Allow()
    assert isinstance(unwilling.asks(unwilling.gate.plan, PLAN), Deny)


QUESTION = QuestionContext(
    tool_name="AskUserQuestion",
    tool_use_id="t1",
    tool_input={
        "questions": [
            {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]},
            {"question": "Why?"},
        ]
    },
)


def test_a_person_answers_every_question() -> None:
    case = Case(Person("3", "2", "just so"), "ask")
    expected = Answers({"Which?": "B", "Why?": "just so"})
    assert case.asks(case.gate.question, QUESTION) == expected
    assert "answered by you" in case.ended()


def test_a_person_may_give_no_answer() -> None:
    case = Case(Person("1", None), "ask")
    assert isinstance(case.asks(case.gate.question, QUESTION), Deny)
    assert "dismissed by you" in case.ended()


@pytest.mark.parametrize(
    ("otherwise", "policy"),
    [("yes", ""), ("absent", ""), ("ask", '[[rule]]\ntool = "Ask*"\ndecision = "deny"')],
)
def test_a_question_to_an_absent_person_is_refused(otherwise: Otherwise, policy: str) -> None:
    case = Case(Person(), otherwise, policy)
    assert isinstance(case.asks(case.gate.question, QUESTION), Deny)
    assert case.person.asked == []


def test_a_form_of_a_server_is_dismissed_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(Person(), "ask")
    context = ElicitationRequestContext(mcp_server_name="forms", message="Your\x07 name?")
    assert case.asks(case.gate.elicitation, context) == Cancel()
    assert "MCP server forms asks: Your␇ name?" in capsys.readouterr().err
