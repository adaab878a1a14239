"""The permission policy: requests to contexts, results to answers, nonsense to denials."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import msgspec
import pytest

from bridle._core.permissions import (
    cancel,
    decode_can_use_tool,
    decode_elicitation,
    decode_update,
    deny,
    encode_elicitation,
    encode_permission,
)
from bridle._core.wire import decode_line
from bridle.controls import CanUseToolRequest, ControlRequest
from bridle.permissions import (
    Accept,
    AddDirectories,
    AddRules,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Cancel,
    CanUseToolContext,
    Decline,
    Deny,
    Edit,
    ElicitationRequestContext,
    McpServerRef,
    PermissionRule,
    PermissionUpdate,
    PlanContext,
    QuestionContext,
    SetMode,
    UnknownPermissionUpdate,
)

REQUEST: dict[str, Any] = {
    "subtype": "can_use_tool",
    "tool_name": "Bash",
    "display_name": "Bash",
    "input": {"command": "rm -rf /"},
    "description": "rm -rf /",
    "permission_suggestions": [
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
        {"type": "somethingNew", "x": 1},
    ],
    "blocked_path": "/",
    "decision_reason": "Dangerous",
    "decision_reason_type": "safetyCheck",
    "classifier_approvable": False,
    "tool_use_id": "toolu_1",
    "suppress_always_allow_rule": True,
    "mcp_server": {"name": "calc", "source": "sdk"},
    "agent_id": "a1",
    "not_known_yet": [1],
}

ASKED = CanUseToolContext(tool_name="Bash", tool_input={"command": "ls"})
QUESTION = QuestionContext(
    tool_name="AskUserQuestion", tool_input={"questions": [{"question": "Which?"}]}
)
PLAN = PlanContext(tool_name="ExitPlanMode", tool_input={})


# ---------------------------------------------------------------- requests in


def asked(wire: Mapping[str, object]) -> CanUseToolRequest:
    """A request of the CLI, as it is read."""
    request = {**wire, "subtype": "can_use_tool"}
    line = msgspec.json.encode({"type": "control_request", "request_id": "1", "request": request})
    frame = decode_line(line)
    assert isinstance(frame, ControlRequest)
    assert isinstance(frame.body, CanUseToolRequest)
    return frame.body


def test_a_permission_request_becomes_a_typed_context() -> None:
    """R217, R219, R305, C32."""
    context = decode_can_use_tool(asked(REQUEST), "s1")
    assert context == CanUseToolContext(
        tool_name="Bash",
        tool_input={"command": "rm -rf /"},
        session_id="s1",
        tool_use_id="toolu_1",
        permission_suggestions=(
            SetMode("acceptEdits"),
            UnknownPermissionUpdate({"type": "somethingNew", "x": 1}),
        ),
        blocked_path="/",
        decision_reason="Dangerous",
        decision_reason_type="safetyCheck",
        display_name="Bash",
        description="rm -rf /",
        agent_id="a1",
        mcp_server=McpServerRef("calc", "sdk"),
        classifier_approvable=False,
        suppress_always_allow_rule=True,
    )


def test_the_oldest_form_of_a_request_is_enough() -> None:
    """R219."""
    context = decode_can_use_tool(asked({"tool_name": "Bash", "input": {}}))
    assert context == CanUseToolContext(tool_name="Bash")


@pytest.mark.parametrize(
    ("tool_name", "kind"),
    [
        ("AskUserQuestion", QuestionContext),
        ("ExitPlanMode", PlanContext),
        ("Bash", CanUseToolContext),
    ],
)
def test_some_tools_have_a_context_of_their_own(tool_name: str, kind: type) -> None:
    assert type(decode_can_use_tool(asked({"tool_name": tool_name}))) is kind


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", "no object"),
        ("permission_suggestions", ["no object"]),
        ("permission_suggestions", "no list"),
        ("blocked_path", 3),
        ("mcp_server", {"source": "sdk"}),
        ("requires_user_interaction", "yes"),
    ],
    ids=str,
)
def test_a_field_that_does_not_fit_takes_its_default(field: str, value: object) -> None:
    wire = {"tool_name": "Bash", "tool_use_id": "t1", field: value}
    context = decode_can_use_tool(asked(wire))
    assert context == CanUseToolContext(tool_name="Bash", tool_use_id="t1")


def test_a_context_begins_with_the_fields_of_its_request() -> None:
    """They are taken over by their place."""
    ours = CanUseToolContext.__struct_encode_fields__
    assert ours == (*CanUseToolRequest.__struct_encode_fields__, "session_id")


def test_an_elicitation_becomes_a_typed_context() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    wire = {
        "subtype": "elicitation",
        "mcp_server_name": "el",
        "message": "Your name?",
        "mode": "form",
        "requested_schema": schema,
        "property_order": ["name"],
    }
    context = decode_elicitation(wire)
    assert context == ElicitationRequestContext(
        mcp_server_name="el",
        message="Your name?",
        requested_schema=schema,
        property_order=("name",),
    )


@pytest.mark.parametrize(
    ("wire", "update"),
    [
        (
            {
                "type": "addRules",
                "rules": [{"toolName": "Read", "ruleContent": "//etc/**"}, {"toolName": "Bash"}],
                "behavior": "allow",
                "destination": "localSettings",
            },
            AddRules(
                (PermissionRule("Read", "//etc/**"), PermissionRule("Bash")),
                destination="localSettings",
            ),
        ),
        (
            {"type": "addDirectories", "directories": ["/p"], "destination": "session"},
            AddDirectories(("/p",)),
        ),
        ({"type": "new"}, UnknownPermissionUpdate({"type": "new"})),
        (
            {"type": "setMode", "mode": "plan", "destination": "elsewhere"},
            UnknownPermissionUpdate(
                {"type": "setMode", "mode": "plan", "destination": "elsewhere"}
            ),
        ),
    ],
    ids=["rules", "directories", "new kind", "new destination"],
)
def test_an_update_survives_the_way_in_and_out(
    wire: dict[str, object], update: PermissionUpdate
) -> None:
    """C32."""
    decoded = decode_update(wire)
    assert decoded == update
    assert decoded.raw == wire


def test_suggestions_are_converted_in_one_call() -> None:
    # A call that names a union costs msgspec more than all the rest of a permission request.
    suggestions = [{"type": "setMode", "mode": mode} for mode in ("plan", "default", "acceptEdits")]
    request = asked({"tool_name": "Bash", "permission_suggestions": suggestions})
    called: list[str] = []

    def note(_frame: FrameType, event: str, function: object) -> None:
        if event == "c_call":
            called.append(getattr(function, "__name__", ""))

    sys.setprofile(note)
    try:
        context = decode_can_use_tool(request)
    finally:
        sys.setprofile(None)
    assert [update.raw for update in context.permission_suggestions] == suggestions
    assert called.count("convert") == 1


def test_one_odd_suggestion_leaves_the_others_as_they_are() -> None:
    plan, odd = {"type": "setMode", "mode": "plan"}, {"type": "setMode", "mode": 3}
    context = decode_can_use_tool(
        asked({"tool_name": "Bash", "permission_suggestions": [odd, plan]})
    )
    assert context.permission_suggestions == (UnknownPermissionUpdate(odd), SetMode(mode="plan"))
    assert [update.raw for update in context.permission_suggestions] == [odd, plan]


# ---------------------------------------------------------------- answers out


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
    """R193, R207, R309."""
    answer = encode_permission(result, context)
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
        (None, ASKED, "NoneType is no answer to Bash; return Allow()"),
        (Allow, ASKED, "the class Allow is no answer to Bash"),
        (True, ASKED, "bool is no answer to Bash"),
        ("allow", ASKED, "str is no answer to Bash"),
        ({"behavior": "allow"}, ASKED, "dict is no answer to Bash"),
        (Answers({}), ASKED, "Answers is no answer to Bash"),
        (Edit([1]), ASKED, "Edit.new_input is list, not a mapping"),  # type: ignore[arg-type]  # nonsense on purpose
        (Edit({}), ASKED, "makes the CLI run the original input"),
        (Edit(Hostile()), ASKED, "OSError: unreadable"),
        ({"Which?": "A"}, QUESTION, "dict is no answer to AskUserQuestion; return Answers({"),
        (Answers(None), QUESTION, "is NoneType, not a mapping; return Answers({"),  # type: ignore[arg-type]  # nonsense on purpose
        (Answers("A"), QUESTION, "Answers.answers is str, not a mapping; return Answers({"),  # type: ignore[arg-type]  # nonsense on purpose
        (Answers({"Which?": 3}), QUESTION, "an answer is int"),  # type: ignore[dict-item]  # nonsense on purpose
        (Allow([{"type": "setMode"}]), ASKED, "dict is no PermissionUpdate"),  # type: ignore[list-item]  # nonsense on purpose
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
def test_nonsense_denies_with_an_explanation(
    result: object, context: CanUseToolContext, detail: str
) -> None:
    answer = encode_permission(result, context)
    assert answer.payload == deny("permission_failed", "").payload
    [(kind, said)] = answer.warnings
    assert kind == "permission_failed"
    assert detail in said


@pytest.mark.parametrize(
    "result",
    [Edit({"command": object()}), Allow([UnknownPermissionUpdate({"type": object()})])],
    ids=["input", "update"],
)
def test_what_json_cannot_carry_denies(result: object) -> None:
    answer = encode_permission(result, ASKED)
    assert answer.payload == deny("unencodable_result", "").payload
    [(kind, detail)] = answer.warnings
    assert kind == "unencodable_result"
    assert "cannot be sent as JSON" in detail


def test_an_input_of_the_cli_that_json_cannot_carry_back_is_not_held_against_the_tool() -> None:
    context = CanUseToolContext(tool_name="Bash", tool_input={"command": "echo \ud83d"})
    assert encode_permission(Allow(), context).payload == allowed({})
    assert encode_permission(AllowAll(), context).payload == allowed({}, WHOLE_TOOL)


def test_a_ready_made_value_is_looked_at_before_it_is_sent() -> None:
    """R309: what is no JSON denies, and a line break does not end the line."""
    update = UnknownPermissionUpdate({"type": "new", "value": msgspec.Raw(b"gar bage")})
    answer = encode_permission(Allow((update,)), ASKED)
    assert answer.payload == deny("unencodable_result", "").payload
    answer = encode_permission(Edit({"command": msgspec.Raw(b'[\n"ls"]')}), ASKED)
    assert (answer.payload, b"\n" in answer.body) == (allowed({"command": ["ls"]}), False)
    spoilt = CanUseToolContext("Bash", {"command": msgspec.Raw(b"{")})
    assert encode_permission(Allow(), spoilt).payload == allowed({})


def test_answers_to_questions_that_were_not_asked_are_sent_and_counted_in_a_warning() -> None:
    """The warning quotes none of them: they may hold what the user said."""
    given = {"Nope?": "A", "my password is " + "x" * 1000: "B"}
    answer = encode_permission(Answers(given), QUESTION)
    assert answer.payload["updatedInput"]["answers"] == given
    [(kind, detail)] = answer.warnings
    assert (kind, detail) == ("result_ignored", "2 keys of Answers are not questions of the CLI")


def test_an_answer_does_not_change_with_the_object_it_was_made_from() -> None:
    new_input = {"command": ["ls"]}
    answer = encode_permission(Edit(new_input), ASKED)
    new_input["command"].append("-l")
    assert answer.payload == allowed({"command": ["ls"]})


def test_a_missing_answer_denies_and_names_its_cause() -> None:
    """R300."""
    answer = deny("permission_timed_out", "after 5 s")
    assert answer.payload["behavior"] == "deny"
    assert "permission_timed_out" in answer.payload["message"]
    assert answer.warnings == (("permission_timed_out", "after 5 s"),)


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
    answer = encode_elicitation(result)
    assert (answer.payload, answer.warnings) == (payload, ())


@pytest.mark.parametrize(
    ("result", "kind", "detail"),
    [
        (None, "elicitation_failed", "NoneType is no answer"),
        (Accept([1]), "elicitation_failed", "Accept is no answer"),  # type: ignore[arg-type]  # nonsense on purpose
        (Accept({"name": object()}), "unencodable_result", "cannot be sent as JSON"),
        (Accept(Hostile()), "unencodable_result", "unreadable"),
    ],
    ids=["None", "a list", "an object", "an unreadable mapping"],
)
def test_nonsense_dismisses_an_elicitation(result: object, kind: str, detail: str) -> None:
    answer = encode_elicitation(result)
    assert answer.payload == cancel(kind, "").payload == {"action": "cancel"}
    [(warned, said)] = answer.warnings
    assert warned == kind
    assert detail in said
