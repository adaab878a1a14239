"""Requests become contexts; a request without a valid answer is denied or cancelled."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import msgspec
import pytest

from bridle._engine.incoming.callback_contexts import (
    decode_can_use_tool,
    decode_elicitation,
    decode_update,
)
from bridle._engine.incoming.permission_requests import deny
from bridle._engine.wire.codec import decode_line
from bridle.controls import CanUseToolRequest, ControlRequest
from bridle.permissions import (
    AddDirectories,
    AddRules,
    CanUseToolContext,
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
    """R219, R270, R305, C32."""
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


def test_a_missing_answer_denies_and_names_its_cause() -> None:
    """R300."""
    answer = deny("permission_timed_out", "after 5 s")
    assert answer.payload["behavior"] == "deny"
    assert "permission_timed_out" in answer.payload["message"]
    assert answer.warnings == (("permission_timed_out", "after 5 s"),)
