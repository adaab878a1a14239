"""Control frames: every one of them can be answered, however odd."""

from __future__ import annotations

import msgspec
import pytest

from bridle._engine.wire.codec import decode_line
from bridle.controls import (
    CanUseToolRequest,
    ControlCancel,
    ControlFailure,
    ControlRequest,
    ControlResponse,
    ControlSuccess,
    ElicitationRequest,
    HookCallbackRequest,
    McpMessageRequest,
    RequestBody,
    UnknownControlRequest,
    UserDialogRequest,
)
from bridle.messages import Frame


def read(**members: object) -> Frame:
    return decode_line(msgspec.json.encode(members))


def ask(request: object) -> ControlRequest:
    frame = read(type="control_request", request_id="r", request=request)
    assert isinstance(frame, ControlRequest)
    return frame


def answer(**members: object) -> ControlResponse:
    frame = read(type="control_response", **members)
    assert isinstance(frame, ControlResponse)
    return frame


@pytest.mark.parametrize(
    ("wire", "request_"),
    [
        (
            {"subtype": "hook_callback", "callback_id": "c", "input": {"a": 1}, "tool_use_id": "t"},
            HookCallbackRequest("c", {"a": 1}, "t"),
        ),
        (
            {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}},
            CanUseToolRequest("Bash", {"command": "ls"}),
        ),
        (
            {"subtype": "mcp_message", "server_name": "s", "message": {"jsonrpc": "2.0"}},
            McpMessageRequest("s", {"jsonrpc": "2.0"}),
        ),
        (
            {"subtype": "elicitation", "mcp_server_name": "s", "message": "?", "mode": "form"},
            ElicitationRequest("s", "?", "form"),
        ),
        (
            {"subtype": "request_user_dialog", "dialog_kind": "k", "payload": {"a": 1}},
            UserDialogRequest("k", {"a": 1}),
        ),
    ],
)
def test_a_question_is_read_into_its_class(wire: dict[str, object], request_: RequestBody) -> None:
    """R181, R214, R227, R423."""
    frame = ask(wire)
    assert frame == ControlRequest(request_, "r")
    assert (frame.request, frame.request.raw) == (request_, wire)
    assert (frame.misfits, frame.request.misfits) == ((), ())
    assert decode_line(msgspec.json.encode(ControlRequest(request_, "r").raw)) == frame


@pytest.mark.parametrize(
    ("wire", "request_", "misfits"),
    [
        ({"subtype": "hook_callback"}, HookCallbackRequest(""), ("callback_id",)),
        (
            {"subtype": "hook_callback", "callback_id": 5, "input": []},
            HookCallbackRequest(""),
            ("callback_id", "input"),
        ),
        ({"subtype": "can_use_tool"}, CanUseToolRequest("", {}), ("tool_name", "input")),
        (
            {"subtype": "can_use_tool", "tool_name": "Bash", "input": "ls"},
            CanUseToolRequest("Bash", {}),
            ("input",),
        ),
        (
            {"subtype": "can_use_tool", "tool_name": "Bash", "tool_input": "ls"},
            CanUseToolRequest("Bash", {}),
            ("input",),
        ),
        ({"subtype": "mcp_message"}, McpMessageRequest("", {}), ("server_name", "message")),
        ({"subtype": "elicitation", "message": 5}, ElicitationRequest(), ("message",)),
        ({"subtype": "request_user_dialog", "payload": 5}, UserDialogRequest(), ("payload",)),
    ],
)
def test_a_question_that_does_not_fit_keeps_its_class_and_names_the_fields(
    wire: dict[str, object], request_: RequestBody, misfits: tuple[str, ...]
) -> None:
    """R218: the missing field is named."""
    frame = ask(wire)
    assert (frame.request_id, frame.request, frame.request.raw) == ("r", request_, wire)
    assert frame.request.misfits == misfits
    assert frame.misfits == tuple(f"request.{name}" for name in misfits)


@pytest.mark.requirement("S058")
def test_the_tools_input_may_be_called_tool_input() -> None:
    frame = ask({"subtype": "can_use_tool", "tool_name": "Bash", "tool_input": {"a": 1}})
    assert frame.request == CanUseToolRequest("Bash", {"a": 1})
    assert frame.misfits == ()


@pytest.mark.parametrize("wire", [{"subtype": "levitate", "height": 3}, {"subtype": ""}])
def test_an_unknown_question_is_kept_whole(wire: dict[str, object]) -> None:
    frame = ask(wire)
    assert frame.request == UnknownControlRequest(str(wire["subtype"]), wire)
    assert (frame.request.misfits, frame.misfits) == ((), ())


@pytest.mark.parametrize("wire", [{}, {"subtype": 5}])
def test_a_question_without_a_usable_subtype_is_unknown(wire: dict[str, object]) -> None:
    assert ask(wire).request == UnknownControlRequest("", wire)


@pytest.mark.parametrize("wire", [None, 5, "initialize", [1]])
def test_a_question_that_is_not_an_object_can_be_answered(wire: object) -> None:
    frame = ask(wire)
    assert (frame.request_id, frame.misfits) == ("r", ("request",))
    assert frame.request == UnknownControlRequest("", wire)


def test_a_frame_without_a_question_can_still_be_answered() -> None:
    frame = read(type="control_request", request_id="r")
    assert frame == ControlRequest(UnknownControlRequest("", None), "r")


@pytest.mark.parametrize(("members", "misfits"), [({}, ()), ({"request_id": 5}, ("request_id",))])
def test_a_missing_request_id_is_none(members: dict[str, object], misfits: tuple[str, ...]) -> None:
    request = {"subtype": "hook_callback", "callback_id": "c"}
    frame = read(type="control_request", request=request, **members)
    assert isinstance(frame, ControlRequest)
    assert (frame.request_id, frame.misfits) == (None, misfits)


@pytest.mark.parametrize(
    ("wire", "response"),
    [
        ({"subtype": "success", "request_id": "r"}, ControlSuccess("r")),
        (
            {"subtype": "success", "request_id": "r", "response": {"mode": "plan"}},
            ControlSuccess("r", {"mode": "plan"}),
        ),
        (
            {"subtype": "error", "request_id": "r", "error": "no", "error_code": "x", "model": "m"},
            ControlFailure("no", "r", "x", "m"),
        ),
        ({"subtype": "error", "request_id": "r", "message": "no"}, ControlFailure("no", "r")),
    ],
)
def test_an_answer_is_read_into_its_class(
    wire: dict[str, object], response: ControlSuccess | ControlFailure
) -> None:
    """R180, R214, R423."""
    frame = answer(response=wire)
    assert (frame.request_id, frame.response, frame.misfits) == ("r", response, ())
    assert frame.response.raw == wire
    assert frame.raw == {"type": "control_response", "response": wire}


def test_the_inner_request_id_wins_over_the_outer() -> None:
    """R216: inside the response first, then beside it."""
    ack = {"subtype": "success"}
    assert answer(request_id="outer", response={**ack, "request_id": "in"}).request_id == "in"
    assert answer(request_id="outer", response=ack).request_id == "outer"
    assert answer(response=ack).request_id is None


@pytest.mark.parametrize(
    ("members", "response", "misfits"),
    [
        (
            {"response": {"subtype": "maybe", "request_id": "r"}},
            ControlFailure("", "r"),
            ("response.subtype", "response.error"),
        ),
        (
            {"response": {"request_id": "r", "error": "no"}},
            ControlFailure("no", "r"),
            ("response.subtype",),
        ),
        (
            {"response": {"subtype": "success", "request_id": "r", "response": [1]}},
            ControlSuccess("r"),
            ("response.payload",),
        ),
        ({"response": 5, "request_id": "r"}, ControlFailure(""), ("response",)),
        ({"request_id": "r"}, ControlFailure(""), ("response",)),
    ],
)
def test_an_answer_that_does_not_fit_still_finds_its_request(
    members: dict[str, object], response: ControlSuccess | ControlFailure, misfits: tuple[str, ...]
) -> None:
    frame = answer(**members)
    assert (frame.request_id, frame.misfits) == ("r", misfits)
    assert (frame.response, frame.response.raw) == (response, members.get("response"))
    assert frame.raw == {"type": "control_response", **members}


def test_a_withdrawn_question_names_its_request() -> None:
    frame = read(type="control_cancel_request", request_id="r")
    assert frame == ControlCancel("r")
    odd = read(type="control_cancel_request", request_id=[])
    assert isinstance(odd, ControlCancel)
    assert (odd.request_id, odd.misfits) == (None, ("request_id",))
