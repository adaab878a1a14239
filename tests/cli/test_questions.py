"""What a person is asked, and what an answer means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridle import CanUseToolContext
from bridle.cli._asking import questions
from bridle.cli._asking.questions import Choice
from bridle.cli._screens.shown import Line, plain
from bridle.permissions import Question, QuestionOption

CONTEXT = CanUseToolContext(tool_name="Bash", tool_input={"command": "ls"})
HOOKED = CanUseToolContext(tool_name="Bash", decision_reason_type="hook")
GUARDED = CanUseToolContext(tool_name="Bash", suppress_always_allow_rule=True)
COLOUR = Question(
    question="Which colour?",
    header="Colour",
    options=(QuestionOption("Red", "warm"), QuestionOption("Blue")),
)


def text(lines: Sequence[Line]) -> list[str]:
    return [plain(line) for line in lines]


def test_a_permission_shows_the_whole_input() -> None:
    context = CanUseToolContext(
        tool_name="Write",
        tool_input={"path": "a\x1b[2J", "content": "one\ntwo\n", "mode": 7},
        decision_reason="it is\noutside",
        agent_id="a1",
    )
    assert text(questions.permission(context)) == [
        "? Write asks for permission in a subagent",
        "    path     a␛[2J",
        "    content  one",
        "             two",
        "    mode     7",
        "    asked because: it is outside",
    ]


@pytest.mark.parametrize(
    ("content", "shown", "left"),
    [
        ("x\n" * 40, 30, "20 characters"),
        ("x" * 3001, 1, "1 character more"),
        ("x\n" * 30, 30, None),
        ("", 1, None),
    ],
    ids=["lines", "characters", "fits", "empty"],
)
def test_what_is_too_long_says_so(content: str, shown: int, left: str | None) -> None:
    context = CanUseToolContext(tool_name="Write", tool_input={"content": content})
    lines = text(questions.permission(context))[1:]
    assert len(lines) == shown + (left is not None)
    assert left is None or left in lines[-1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("y", Choice("yes")),
        (" YES ", Choice("yes")),
        ("n", Choice("no")),
        ("no, thanks", None),
        ("n not like this", Choice("no", "not like this")),
        ("e", Choice("edit")),
        ("a", Choice("always")),
        ("y indeed", None),
        ("", None),
        ("maybe", None),
    ],
)
def test_an_answer_to_a_permission_means_one_thing(answer: str, expected: Choice | None) -> None:
    assert questions.choice(answer, CONTEXT) == expected


def test_always_is_offered_only_where_the_cli_would_take_it() -> None:
    assert "[a]lways allow Bash" in questions.choices(CONTEXT)
    for context in (GUARDED, HOOKED):
        assert "lways" not in questions.choices(context)
        assert questions.choice("a", context) is None


def test_an_input_can_be_edited_as_json() -> None:
    document = questions.document({"command": "ls", "n": [1]})
    assert document == '{\n  "command": "ls",\n  "n": [\n    1\n  ]\n}\n'
    assert questions.edited(document) == {"command": "ls", "n": [1]}


@pytest.mark.parametrize("document", ["", "[1]", '{"a": }'])
def test_a_value_that_is_not_an_object_cannot_be_an_input(document: str) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        questions.edited(document)


def test_a_question_shows_what_is_offered() -> None:
    assert text(questions.question(COLOUR)) == [
        "? Colour: Which colour?",
        "    1  Red   warm",
        "    2  Blue  ",
    ]
    assert questions.offer(COLOUR) == "  a number, or your own words > "
    assert questions.offer(Question(question="?", multi_select=True)) == "  your answer > "


@pytest.mark.parametrize(
    ("answer", "multi_select", "expected"),
    [
        ("1", False, "Red"),
        ("2", True, ["Blue"]),
        ("2, 1", True, ["Blue", "Red"]),
        ("1 2", False, None),
        ("3", False, None),
        ("0", False, None),
        ("green, please", False, "green, please"),
        ("  ", False, None),
    ],
)
def test_an_answer_is_a_label_several_or_own_words(
    answer: str, multi_select: bool, expected: object
) -> None:
    asked = Question(question="?", options=COLOUR.options, multi_select=multi_select)
    assert questions.answer(answer, asked) == expected


def test_a_number_is_own_words_where_nothing_is_offered() -> None:
    assert questions.answer("42", Question(question="How many?")) == "42"


@pytest.mark.parametrize(
    ("plan", "expected"),
    [("1. look\n2. leap\x07", ["    1. look", "    2. leap␇"]), (None, [])],
)
def test_a_plan_is_shown_if_there_is_a_text(plan: str | None, expected: list[str]) -> None:
    assert text(questions.plan(plan)) == ["? The model has a plan", *expected]
