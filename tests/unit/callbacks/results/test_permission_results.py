"""What permission and elicitation callbacks return, serialised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
import pytest

from bridle._callbacks.results.serialise import serialise
from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.answers import Answer, InvalidReturn
from bridle._engine.incoming.hook_run import HookRun
from bridle._engine.incoming.mcp.messages_of_servers import McpMessage
from bridle.hooks import HookOutput, ModifyInput
from bridle.permissions import (
    Accept,
    AddRules,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Cancel,
    CanUseToolContext,
    Complete,
    Decline,
    Deny,
    Edit,
    PermissionRule,
    PlanContext,
    QuestionContext,
    SetMode,
    UnknownPermissionUpdate,
)

ASKED = CanUseToolContext(tool_name="Bash", tool_input={"command": "ls"})
QUESTION = QuestionContext(
    tool_name="AskUserQuestion", tool_input={"questions": [{"question": "Which?"}]}
)
PLAN = PlanContext(tool_name="ExitPlanMode", tool_input={})


def reported(kind: CallKind, result: object, subject: object) -> object:
    return serialise(Call(1, kind, None, None, "permission", subject=subject), result)


def serialise_permission(result: object, context: CanUseToolContext) -> Answer:
    answer = reported(CallKind.PERMISSION, result, context)
    assert isinstance(answer, Answer)
    return answer


def serialise_elicitation(result: object) -> Answer:
    answer = reported(CallKind.ELICITATION, result, None)
    assert isinstance(answer, Answer)
    return answer


def invalid(result: object, context: CanUseToolContext | None) -> InvalidReturn:
    kind = CallKind.ELICITATION if context is None else CallKind.PERMISSION
    record = reported(kind, result, context)
    assert isinstance(record, InvalidReturn)
    return record


def allowed(tool_input: object, *updates: object) -> dict[str, object]:
    """An allow on the wire."""
    answer: dict[str, object] = {"behavior": "allow", "updatedInput": tool_input}
    return {**answer, "updatedPermissions": list(updates)} if updates else answer


WHOLE_TOOL = {
    "type": "addRules",
    "rules": [{"toolName": "Bash"}],
    "behavior": "allow",
    "destination": "session",
}
LS = {"command": "ls"}
ASKED_TWICE = {"questions": [{"question": "Which?"}]}


@pytest.mark.parametrize(
    ("result", "context", "payload"),
    [
        (Allow(), ASKED, allowed(LS)),
        (AllowOnce(), ASKED, allowed(LS)),
        (Allow(), PLAN, allowed({})),
        (AllowAll(), ASKED, allowed(LS, WHOLE_TOOL)),
        (
            Allow([AddRules((PermissionRule("Bash"),)), UnknownPermissionUpdate({"type": "new"})]),
            ASKED,
            allowed(LS, WHOLE_TOOL, {"type": "new"}),
        ),
        (Edit({"command": "pwd"}), ASKED, allowed({"command": "pwd"})),
        (Edit({}), PLAN, allowed({})),
        (
            Edit({"command": "pwd"}, [AddRules((PermissionRule("Bash"),))]),
            ASKED,
            allowed({"command": "pwd"}, WHOLE_TOOL),
        ),
        (Deny("no"), ASKED, {"behavior": "deny", "message": "no"}),
        (Deny(""), ASKED, {"behavior": "deny", "message": ""}),
        (Deny("cut \ud83d"), ASKED, {"behavior": "deny", "message": "cut ?"}),
        (
            Deny("stop", interrupt=True),
            ASKED,
            {"behavior": "deny", "message": "stop", "interrupt": True},
        ),
        (
            Answers({"Which?": "A"}),
            QUESTION,
            allowed({**ASKED_TWICE, "answers": {"Which?": "A"}}),
        ),
        (
            Answers({"Which?": ["A", "B"]}),
            QUESTION,
            allowed({**ASKED_TWICE, "answers": {"Which?": "A, B"}}),
        ),
        (Deny("not now"), QUESTION, {"behavior": "deny", "message": "not now"}),
    ],
    ids=[
        "allow",
        "allow once",
        "allow a plan",
        "allow all",
        "allow with updates",
        "edit",
        "edit nothing to nothing",
        "edit with updates",
        "deny",
        "deny without words",
        "deny with a broken character",
        "deny and interrupt",
        "one answer",
        "several answers",
        "deny a question",
    ],
)
@pytest.mark.requirement("S053")
def test_a_result_has_one_spelling(
    result: object, context: CanUseToolContext, payload: dict[str, object]
) -> None:
    """R193, R207, C11."""
    answer = serialise_permission(result, context)
    assert (answer.payload, answer.warnings) == (payload, ())


class Hostile(Mapping[str, object]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> object:
        raise OSError("unreadable")

    def __iter__(self) -> Iterator[str]:
        raise OSError("unreadable")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("result", "context", "detail"),
    [
        (None, ASKED, "NoneType is not an answer to Bash; return Allow()"),
        (Allow, ASKED, "the class Allow is not an answer to Bash"),
        (True, ASKED, "bool is not an answer to Bash"),
        ("allow", ASKED, "str is not an answer to Bash"),
        ({"behavior": "allow"}, ASKED, "dict is not an answer to Bash"),
        (Answers({}), ASKED, "Answers is not an answer to Bash"),
        (Edit([1]), ASKED, "Edit.new_input is list, not a mapping"),  # type: ignore[arg-type]  # nonsense on purpose
        (Edit({}), ASKED, "makes the CLI run the original input"),
        (Edit(Hostile()), ASKED, "OSError: unreadable"),
        ({"Which?": "A"}, QUESTION, "dict is not an answer to AskUserQuestion; return Answers({"),
        (Answers(None), QUESTION, "is NoneType, not a mapping; return Answers({"),  # type: ignore[arg-type]  # nonsense on purpose
        (Answers("A"), QUESTION, "Answers.answers is str, not a mapping; return Answers({"),  # type: ignore[arg-type]  # nonsense on purpose
        (Answers({"Which?": 3}), QUESTION, "an answer is int"),  # type: ignore[dict-item]  # nonsense on purpose
        (Allow([{"type": "setMode"}]), ASKED, "dict is not a PermissionUpdate"),  # type: ignore[list-item]  # nonsense on purpose
        (Allow([SetMode("plan", destination="moon")]), ASKED, "SetMode is malformed"),  # type: ignore[arg-type]  # nonsense on purpose
        (Allow([AddRules(object())]), ASKED, "AddRules is malformed"),  # type: ignore[arg-type]  # nonsense on purpose
        (Allow(3), ASKED, "TypeError"),  # type: ignore[arg-type]  # nonsense on purpose
    ],
    ids=[
        "None",
        "without parentheses",
        "True",
        "text",
        "a wire answer",
        "answers to no question",
        "edit to a list",
        "edit to nothing",
        "edit to an unreadable mapping",
        "answers without their name",
        "no answers",
        "answers that are no mapping",
        "an answer that is no label",
        "an update that is none",
        "an update for nowhere",
        "an update of nothing",
        "updates that are no list",
    ],
)
def test_an_invalid_result_is_refused_with_an_explanation(
    result: object, context: CanUseToolContext, detail: str
) -> None:
    record = invalid(result, context)
    assert detail in record.problem
    assert record.kind in (None, "unencodable_result")


@pytest.mark.parametrize(
    "result",
    [Edit({"command": object()}), Allow([UnknownPermissionUpdate({"type": object()})])],
    ids=["input", "update"],
)
def test_a_value_that_json_cannot_carry_is_refused(result: object) -> None:
    record = invalid(result, ASKED)
    assert record.kind == "unencodable_result"
    assert "cannot be sent as JSON" in record.problem


def test_an_input_that_json_cannot_represent_does_not_fail_the_tool() -> None:
    context = CanUseToolContext(tool_name="Bash", tool_input={"command": "echo \ud83d"})
    assert serialise_permission(Allow(), context).payload == allowed({})
    assert serialise_permission(AllowAll(), context).payload == allowed({}, WHOLE_TOOL)


def test_a_ready_made_value_is_looked_at_before_it_is_sent() -> None:
    """A value that is not JSON denies, and a line break does not end the line."""
    update = UnknownPermissionUpdate({"type": "new", "value": msgspec.Raw(b"gar bage")})
    record = invalid(Allow((update,)), ASKED)
    assert record.kind == "unencodable_result"
    answer = serialise_permission(Edit({"command": msgspec.Raw(b'[\n"ls"]')}), ASKED)
    assert (answer.payload, b"\n" in answer.body) == (allowed({"command": ["ls"]}), False)


def test_answers_to_questions_that_were_not_asked_are_sent_and_counted_in_a_warning() -> None:
    """The warning quotes none of them: they may hold what the user said."""
    given = {"Nope?": "A", "my password is " + "x" * 1000: "B"}
    answer = serialise_permission(Answers(given), QUESTION)
    assert answer.payload["updatedInput"]["answers"] == given
    [(kind, detail)] = answer.warnings
    assert (kind, detail) == ("result_ignored", "2 keys of Answers are not questions of the CLI")


def test_an_answer_does_not_change_with_the_object_it_was_made_from() -> None:
    new_input = {"command": ["ls"]}
    answer = serialise_permission(Edit(new_input), ASKED)
    new_input["command"].append("-l")
    assert answer.payload == allowed({"command": ["ls"]})


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (Accept({"name": "Bob"}), {"action": "accept", "content": {"name": "Bob"}}),
        (Accept(), {"action": "accept", "content": {}}),
        (Decline(), {"action": "decline"}),
        (Cancel(), {"action": "cancel"}),
    ],
    ids=["accept", "accept nothing", "decline", "cancel"],
)
def test_an_elicitation_has_three_answers(result: object, payload: dict[str, object]) -> None:
    answer = serialise_elicitation(result)
    assert (answer.payload, answer.warnings) == (payload, ())


@pytest.mark.parametrize(
    ("result", "kind", "detail"),
    [
        (None, None, "NoneType is not an answer"),
        (Accept({}), None, "Accept is not an answer"),
        (Complete(object()), "unencodable_result", "cannot be sent as JSON"),
    ],
)
def test_an_invalid_answer_to_a_dialog_is_rejected(
    result: object, kind: str | None, detail: str
) -> None:
    record = reported(CallKind.DIALOG, result, None)
    assert isinstance(record, InvalidReturn)
    assert record.kind == kind
    assert detail in record.problem


@pytest.mark.parametrize(
    ("result", "kind", "detail"),
    [
        (None, None, "NoneType is not an answer"),
        (Accept([1]), None, "Accept is not an answer"),  # type: ignore[arg-type]  # nonsense on purpose
        (Accept({"name": object()}), "unencodable_result", "cannot be sent as JSON"),
        (Accept(Hostile()), "unencodable_result", "unreadable"),
    ],
    ids=["None", "a list", "an object", "an unreadable mapping"],
)
def test_an_invalid_answer_to_an_elicitation_is_refused(
    result: object, kind: str | None, detail: str
) -> None:
    record = invalid(result, None)
    assert record.kind == kind
    assert detail in record.problem


# ---------------------------------------------------------------- values that JSON would change

CHANGED_BY_JSON: list[tuple[dict[Any, Any], str, str]] = [
    ({"limit": float("nan")}, "limit", " is nan"),
    ({"range": [1, {"end": float("-inf")}]}, "range[1].end", " is -inf"),
    ({1: "a", "1": "b"}, "", "the keys 1 and '1'"),
    ({"by_id": {1: "a", "1": "b"}}, "by_id", "the keys 1 and '1' of "),
]


@pytest.mark.parametrize(
    ("value", "place", "problem"),
    CHANGED_BY_JSON,
    ids=["not a number", "infinity", "keys", "nested keys"],
)
def test_a_value_that_json_would_change_is_refused_in_every_result(
    value: dict[Any, Any], place: str, problem: str
) -> None:
    run = HookRun("PreToolUse", {"tool_name": "Bash", "tool_input": LS}, None, ())
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}
    call = McpMessage("r", "calc", message)
    given: list[tuple[CallKind, object, object]] = [
        (CallKind.PERMISSION, Edit(value), ASKED),
        (CallKind.ELICITATION, Accept(value), None),
        (CallKind.HOOK, ModifyInput(value), run),
        (CallKind.HOOK, HookOutput(updated_tool_output=value), run),
        (CallKind.TOOL, value, call),
        (CallKind.TOOL, {"content": [], "structuredContent": value}, call),
        (CallKind.TOOL, {"content": [], **value}, call),
        (CallKind.MCP, {"jsonrpc": "2.0", "id": 1, "result": value}, call),
    ]
    for kind, result, subject in given:
        record = reported(kind, result, subject)
        assert isinstance(record, InvalidReturn), (kind, result)
        assert record.kind == "unencodable_result"
        assert place in record.problem
        assert problem in record.problem


def test_keys_that_are_not_text_are_written_as_text() -> None:
    answer = serialise_permission(Edit(cast("Any", {1: {2: "b"}})), ASKED)
    assert answer.payload == allowed({"1": {"2": "b"}})
