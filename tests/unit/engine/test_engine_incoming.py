"""MCP messages, odd requests, withdrawals, and questions in a session that is closing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import cli
from tests.support.cli import (
    begin,
    errors,
    feed,
    idle,
    only,
    payloads,
    running,
    started,
    warned,
    written,
)

from bridle._engine.actions import Action, Call, CallKind, CancelCall, EndInput
from bridle._engine.incoming.hook_plan import HookPlan
from bridle.events import WarningKind
from bridle.hooks import Hook
from bridle.tools import McpError, McpResponse, ToolServer

SERVING = cli.asking(mcp_servers={"tools": "server", "other": "another"})
EVERYTHING = cli.asking(
    hooks=HookPlan.from_options(
        {"PreToolUse": [Hook(idle)], "UserPromptSubmit": [Hook(idle)], "Stop": [Hook(idle)]}, 60.0
    ),
    can_use_tool="permission",
    elicitation="elicitation",
    dialog="dialog",
    dialog_kinds=("pick",),
    mcp_servers={"tools": "server"},
)


def rpc(id: object, method: str = "tools/call", **params: object) -> cli.Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def rpc_errors(actions: list[Action]) -> dict[str, tuple[object, int]]:
    """The JSON-RPC errors written, by request id: the id each answers, and its code."""
    return {
        request_id: (answer["mcp_response"]["id"], answer["mcp_response"]["error"]["code"])
        for request_id, answer in payloads(actions).items()
    }


# ------------------------------------------------------------------------- MCP, running


def test_a_message_goes_to_its_server_at_once_and_its_answer_comes_back() -> None:
    """R208, R320, R331, R335."""
    engine = running(incoming=SERVING)
    message = rpc("123", "tools/list")
    (call,) = feed(engine, 1.0, cli.mcp_message("r", message))
    assert isinstance(call, Call)
    assert (call.call_id, call.kind, call.callback) == (1, CallKind.MCP, "server")
    assert (call.argument, call.label) == (message, "tools/list for MCP server tools")
    answer = {"jsonrpc": "2.0", "id": "123", "result": {"tools": [{"any": "thing"}]}}
    actions = cli.finish(engine, 1, answer, 2.0)
    assert payloads(actions) == {"r": {"mcp_response": answer}}
    assert cli.finish(engine, 1, answer, 3.0) == []


def test_a_server_has_no_deadline_of_ours() -> None:
    """R327, R328, R336, C06."""
    engine = running(incoming=SERVING)
    begin(engine, 1.0, cli.mcp_message("r", rpc(1)))
    assert (engine.next_deadline, engine.advance(1e9)) == (None, [])
    assert len(written(engine.submit("k", "interrupt", {}, 2.0))) == 1
    assert list(payloads(cli.finish(engine, 1, McpResponse(id=1), 1e9))) == ["r"]


@pytest.mark.parametrize("server", ["server", ToolServer([])], ids=["handler", "tool server"])
def test_a_server_that_is_added_gets_its_messages(server: object) -> None:
    engine = running(incoming=SERVING)
    engine.servers.set_server("late", server)
    actions = feed(engine, 1.0, cli.mcp_message("r", rpc(1, "ping"), server="late"))
    answers = [call.callback for call in only(Call, actions)], payloads(actions)
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    expected: dict[str, Any] = {} if server == "server" else {"r": {"mcp_response": answer}}
    assert answers == (["server"] if server == "server" else [], expected)


def test_removing_a_server_cancels_its_calls_and_answers_them() -> None:
    engine = running(incoming=SERVING)
    engine.servers.set_server("late", "other")
    begin(engine, 1.0, cli.mcp_message("r", rpc(1)), cli.mcp_message("s", rpc(2), server="late"))
    engine.servers.set_server("late", None)
    actions = engine.react(2.0)
    assert [call.call_id for call in only(CancelCall, actions)] == [2]
    [(request_id, answer)] = payloads(actions).items()
    assert request_id == "s"
    assert answer["mcp_response"]["error"]["message"] == "the server was removed"
    assert cli.finish(engine, 2, McpResponse(id=2), 3.0) == []
    unknown = payloads(feed(engine, 4.0, cli.mcp_message("t", rpc(3), server="late")))
    assert "no MCP server" in unknown["t"]["mcp_response"]["error"]["message"]
    assert list(payloads(cli.finish(engine, 1, McpResponse(id=1), 5.0))) == ["r"]


def test_answers_of_servers_may_come_in_any_order() -> None:
    engine = running(incoming=SERVING)
    feed(engine, 1.0, cli.mcp_message("a", rpc(1)), cli.mcp_message("b", rpc(2), "other"))
    actions = cli.finish(engine, 2, McpResponse(id=2), 2.0) + cli.finish(
        engine, 1, McpResponse(id=1), 2.0
    )
    assert list(payloads(actions)) == ["b", "a"]


@pytest.mark.parametrize("id", [7, "7", None], ids=repr)
def test_a_server_that_fails_is_an_error_under_the_requests_own_id(id: object) -> None:
    """R209, R325, S034, C08."""
    engine = running(incoming=SERVING)
    feed(engine, 1.0, cli.mcp_message("r", rpc(id)))
    actions = engine.failed_call(1, "ValueError: secret", 2.0)
    assert rpc_errors(actions) == {"r": (id, -32603)}
    assert warned(actions) == [WarningKind.MCP_FAILED]
    assert "secret" not in str(written(actions))


def test_an_error_the_server_returned_is_passed_on() -> None:
    """R326, R332."""
    engine = running(incoming=SERVING)
    feed(engine, 1.0, cli.mcp_message("r", rpc(7)))
    response = McpResponse(id=7, error=McpError(-32602, "bad"))
    actions = cli.finish(engine, 1, response, 2.0)
    assert (rpc_errors(actions), warned(actions)) == ({"r": (7, -32602)}, [])


@pytest.mark.parametrize(
    "returned", [None, "text", {"result": object()}], ids=["none", "text", "odd"]
)
def test_an_invalid_answer_is_an_error_for_the_model(returned: object) -> None:
    """R324, R325."""
    engine = running(incoming=SERVING)
    feed(engine, 1.0, cli.mcp_message("r", rpc(7)))
    actions = cli.finish(engine, 1, returned, 2.0)
    assert rpc_errors(actions) == {"r": (7, -32603)}
    assert warned(actions) == [WarningKind.UNENCODABLE_RESULT]
    assert cli.finish(engine, 1, returned, 3.0) == []


def test_a_notification_is_acknowledged_whatever_the_server_returns() -> None:
    """R208, C08."""
    engine = running(incoming=SERVING)
    feed(engine, 1.0, cli.mcp_message("r", {"jsonrpc": "2.0", "method": "notifications/x"}))
    answer = payloads(cli.finish(engine, 1, None, 2.0))["r"]["mcp_response"]
    assert answer == {"jsonrpc": "2.0", "result": {}}


def test_a_message_for_an_unknown_server_is_an_error() -> None:
    """R321, C07."""
    engine = running(incoming=SERVING)
    actions = feed(engine, 1.0, cli.mcp_message("r", rpc(7), "unheard of"))
    assert (rpc_errors(actions), only(Call, actions)) == ({"r": (7, -32601)}, [])
    assert "'unheard of'" in payloads(actions)["r"]["mcp_response"]["error"]["message"]


def test_an_answer_of_the_cli_to_a_server_is_a_message_too() -> None:
    engine = running(incoming=SERVING)
    (call,) = only(Call, feed(engine, 1.0, cli.mcp_message("r", {"id": 1, "result": {}})))
    assert call.label == "answer for MCP server tools"


def test_a_cancellation_ends_the_call_it_names_and_is_passed_on() -> None:
    engine = running(incoming=SERVING)
    feed(engine, 1.0, cli.mcp_message("x", rpc(1), "other"), cli.mcp_message("r", rpc(1)))
    cancellation = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    actions = feed(engine, 2.0, cli.mcp_message("c", cancellation))
    assert only(CancelCall, actions) == [CancelCall(2)]
    assert rpc_errors(actions) == {"r": (1, -32603)}
    (call,) = only(Call, actions)
    assert (call.argument, cli.finish(engine, 2, McpResponse(id=1), 3.0)) == (cancellation, [])
    assert list(payloads(cli.finish(engine, call.call_id, None, 3.0))) == ["c"]
    assert list(payloads(cli.finish(engine, 1, McpResponse(id=1), 3.0))) == ["x"]


def test_a_cancellation_of_an_unknown_call_is_only_passed_on() -> None:
    engine = running(incoming=EVERYTHING)
    feed(engine, 1.0, cli.can_use_tool("p"), cli.mcp_message("r", rpc(1)))
    cancellation = {"method": "notifications/cancelled", "params": {"requestId": 9}}
    actions = feed(engine, 2.0, cli.mcp_message("c", cancellation))
    assert [type(action) for action in actions] == [Call]


# ------------------------------------------------------------------------- MCP, before the session


def test_early_messages_wait_and_are_routed_in_order_once_the_session_is_confirmed() -> None:
    """R316, R319, C05."""
    engine = started(incoming=SERVING)
    assert feed(engine, 0.1, *(cli.mcp_message(f"r{n}", rpc(n)) for n in range(3))) == []
    actions = feed(engine, 0.5, cli.success("req_0", cli.NEWER))
    assert [call.argument for call in only(Call, actions)] == [rpc(0), rpc(1), rpc(2)]
    assert engine.next_deadline is None
    assert len(only(Call, feed(engine, 1.0, cli.mcp_message("r9", rpc(9))))) == 1


def test_one_early_message_too_many_costs_the_oldest_but_not_its_answer() -> None:
    """R318, R428, C05: it is answered with an error, and warned about."""
    engine = started(incoming=SERVING)
    lines = [cli.mcp_message(f"r{number}", rpc(number)) for number in range(102)]
    assert feed(engine, 0.1, *lines[:100]) == []
    actions = feed(engine, 0.1, *lines[100:])
    assert rpc_errors(actions) == {"r0": (0, -32603), "r1": (1, -32603)}
    assert warned(actions) == [WarningKind.MCP_BUFFER_OVERFLOW] * 2
    calls = only(Call, feed(engine, 0.5, cli.success("req_0", cli.NEWER)))
    assert [call.argument for call in calls] == [rpc(number) for number in range(2, 102)]


def test_early_messages_do_not_wait_for_ever() -> None:
    """R317, C05: a CLI that holds its answer back until its servers speak would wait for us."""
    engine = started(incoming=SERVING)
    feed(engine, 0.2, cli.mcp_message("r0", rpc(0)))
    feed(engine, 0.9, cli.mcp_message("r1", rpc(1)))
    assert engine.next_deadline == 1.2
    assert [call.argument for call in only(Call, engine.advance(1.2))] == [rpc(0), rpc(1)]
    assert len(only(Call, feed(engine, 1.3, cli.mcp_message("r2", rpc(2))))) == 1
    assert only(Call, feed(engine, 2.0, cli.success("req_0", cli.NEWER))) == []


def test_an_early_message_can_be_withdrawn() -> None:
    engine = started(incoming=SERVING)
    feed(engine, 0.1, cli.mcp_message("r0", rpc(0)), cli.mcp_message("r1", rpc(1)))
    assert feed(engine, 0.2, cli.withdrawal("r0")) == []
    calls = only(Call, feed(engine, 0.5, cli.success("req_0", cli.NEWER)))
    assert [call.argument for call in calls] == [rpc(1)]


def test_an_early_message_repeated_is_put_once() -> None:
    engine = started(incoming=SERVING)
    actions = feed(engine, 0.1, cli.mcp_message("r", rpc(0)), cli.mcp_message("r", rpc(0)))
    assert warned(actions) == [WarningKind.DUPLICATE_REQUEST]
    assert len(only(Call, feed(engine, 0.5, cli.success("req_0", cli.NEWER)))) == 1
    assert list(payloads(cli.finish(engine, 1, McpResponse(id=0), 1.0))) == ["r"]


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_stopped_session_forgets_what_servers_were_asked(confirmed: bool) -> None:
    """R322, R333, R359, C06."""
    engine = started(incoming=SERVING)
    feed(engine, 0.1, cli.mcp_message("r", rpc(0)))
    if confirmed:
        feed(engine, 0.2, cli.success("req_0", cli.NEWER))
    actions = engine.stop(0.5)
    assert only(CancelCall, actions) == ([CancelCall(1)] if confirmed else [])
    assert written(actions) == []
    assert cli.finish(engine, 1, McpResponse(id=0), 1.0) == []
    assert feed(engine, 1.0, cli.mcp_message("late", rpc(1))) == []


# ------------------------------------------------------------------------- odd requests


def test_a_request_of_an_unknown_kind_is_refused_by_name() -> None:
    """R210, R222, C52."""
    actions = feed(running(), 1.0, cli.request("r", "dance", x=1))
    assert errors(actions) == {"r": "unknown control request subtype 'dance'"}
    assert warned(actions) == [WarningKind.UNKNOWN_REQUEST]


@pytest.mark.parametrize("subtype", ["initialize", "interrupt", "set_model"])
def test_a_request_that_only_we_may_make_is_refused(subtype: str) -> None:
    """R215, C52."""
    assert list(errors(feed(running(), 1.0, cli.request("r", subtype)))) == ["r"]


@pytest.mark.parametrize(
    ("subtype", "fields", "named"),
    [
        ("hook_callback", {}, "callback_id"),
        ("hook_callback", {"callback_id": 5}, "callback_id"),
        ("can_use_tool", {"input": {}}, "tool_name"),
        ("can_use_tool", {"tool_name": "Bash", "input": "text"}, "input"),
        ("mcp_message", {"message": {}}, "server_name"),
        ("mcp_message", {"server_name": "tools"}, "message"),
        ("mcp_message", {"server_name": "tools", "message": []}, "message"),
    ],
)
def test_a_request_without_what_it_needs_is_refused_by_field(
    subtype: str, fields: cli.Json, named: str
) -> None:
    """R218, R221."""
    actions = feed(running(incoming=EVERYTHING), 1.0, cli.request("r", subtype, **fields))
    assert list(errors(actions)) == ["r"]
    assert named in errors(actions)["r"]
    assert warned(actions) == [WarningKind.INVALID_REQUEST]


def test_a_request_without_an_id_is_dropped_with_a_warning() -> None:
    """R221, C52."""
    actions = feed(running(), 1.0, cli.request(None, "can_use_tool", tool_name="Bash", input={}))
    assert (warned(actions), written(actions)) == ([WarningKind.INVALID_REQUEST], [])


def test_a_request_id_used_twice_at_once_is_answered_once() -> None:
    engine = running(incoming=EVERYTHING)
    feed(engine, 1.0, cli.can_use_tool("r"))
    actions = feed(engine, 1.0, cli.can_use_tool("r", "Write"))
    assert (warned(actions), len(actions)) == ([WarningKind.DUPLICATE_REQUEST], 1)
    assert len(payloads(engine.failed_call(1, "x", 2.0))) == 1
    assert len(only(Call, feed(engine, 3.0, cli.can_use_tool("r")))) == 1


ODD: tuple[object, ...] = (None, True, 5, "text", [], {}, [[]], {"x": [None]})
FIELDS = {
    "hook_callback": {"callback_id": "hook_0", "input": {}, "tool_use_id": "t"},
    "can_use_tool": {
        "tool_name": "Bash",
        "input": {},
        "tool_use_id": "t",
        "permission_suggestions": [],
        "blocked_path": "/x",
        "mcp_server": {},
    },
    "mcp_message": {"server_name": "tools", "message": {}},
    "elicitation": {"mcp_server_name": "forms", "message": "?", "requested_schema": {}},
}


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("subtype", FIELDS)
def test_whatever_a_field_holds_the_request_is_put_or_answered(subtype: str, odd: object) -> None:
    """R217, R219: nothing the CLI sends raises."""
    for name in FIELDS[subtype]:
        engine = running(incoming=EVERYTHING)
        fields = {**FIELDS[subtype], name: odd, "unheard_of": odd}
        actions = feed(engine, 1.0, cli.request("r", subtype, **fields))
        put = [call.call_id for call in only(Call, actions)]
        answered = len(payloads(actions)) + len(errors(actions))
        assert len(put) + answered == 1
        assert len(written(engine.failed_call(put[0], "x", 2.0) if put else [])) == len(put)


# ------------------------------------------------------------------------- withdrawals


@pytest.mark.parametrize(
    "line",
    [
        cli.hook_callback("r"),
        cli.can_use_tool("r"),
        cli.elicitation("r"),
        cli.mcp_message("r", rpc(1)),
    ],
    ids=["hook", "permission", "elicitation", "mcp"],
)
@pytest.mark.requirement("S059")
def test_a_withdrawn_question_is_cancelled_and_gets_no_answer(line: bytes) -> None:
    """R297: its deadline goes with it."""
    engine = running(incoming=EVERYTHING)
    begin(engine, 1.0, line)
    assert feed(engine, 2.0, cli.withdrawal("r")) == [CancelCall(1)]
    assert engine.next_deadline is None
    for late in (cli.finish(engine, 1, None, 3.0), engine.failed_call(1, "x", 3.0)):
        assert late == []
    assert feed(engine, 4.0, cli.withdrawal("r")) == []


def test_a_withdrawal_of_an_unknown_request_is_ignored() -> None:
    assert feed(running(), 1.0, cli.withdrawal("r"), cli.withdrawal(None)) == []


# ------------------------------------------------------------------------- closing


PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": "hi"}
STOP = {"hook_event_name": "Stop", "stop_hook_active": False}


@pytest.mark.parametrize("late", [False, True], ids=["open", "new"])
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (cli.can_use_tool("r"), {"behavior": "deny"}),
        (cli.elicitation("r"), {"action": "cancel"}),
        (cli.dialog("r"), {"behavior": "cancelled"}),
        (cli.hook_callback("r"), {"hookSpecificOutput": {"permissionDecision": "deny"}}),
        (cli.hook_callback("r", "hook_1", input=PROMPT), {"decision": "block"}),
        (cli.hook_callback("r", "hook_2", input=STOP), {}),
        (cli.hook_callback("r", "hook_9", input=STOP), {"continue": True}),
        (cli.hook_callback("r", "hook_9"), {"hookSpecificOutput": {"permissionDecision": "deny"}}),
        (cli.mcp_message("r", rpc(1)), {"mcp_response": {"id": 1}}),
    ],
    ids=[
        "permission",
        "elicitation",
        "dialog",
        "tool hook",
        "prompt hook",
        "stop hook",
        "unknown",
        "unknown gate",
        "mcp",
    ],
)
def test_while_closing_every_question_is_turned_down_at_once(
    line: bytes, answer: cli.Json, late: bool
) -> None:
    """R300: what could still happen does not; only a Stop is let be."""
    engine = running(incoming=EVERYTHING)
    engine.send("k", "u1", "hello", 0.5)
    if late:
        engine.close(1.0)
        actions = feed(engine, 2.0, line)
    else:
        before = feed(engine, 1.0, line)
        actions = before + engine.close(2.0)
        assert len(only(CancelCall, actions)) == len(only(Call, actions))
    assert includes(payloads(actions)["r"], answer)
    assert len(payloads(actions)) == 1


def includes(whole: Any, part: Any) -> bool:
    """Whether every member of ``part`` is in ``whole``, at any depth."""
    if isinstance(part, dict) and part:
        return all(includes(whole[name], value) for name, value in part.items())
    return bool(whole == part)


def test_open_questions_are_turned_down_when_the_input_ends() -> None:
    engine = running(incoming=EVERYTHING)
    feed(engine, 1.0, cli.can_use_tool("r"))
    actions = engine.end_input(2.0)
    assert payloads(actions)["r"]["behavior"] == "deny"
    assert actions[-1] == EndInput()
    assert engine.end_input(3.0) == []


@pytest.mark.parametrize(
    "line", [cli.hook_callback("r"), cli.can_use_tool("r"), cli.mcp_message("r", rpc(1))]
)
def test_a_question_after_the_input_has_ended_cannot_be_answered(line: bytes) -> None:
    engine = running(incoming=EVERYTHING)
    engine.end_input(1.0)
    actions = feed(engine, 2.0, line)
    assert (warned(actions)[-1], written(actions)) == (WarningKind.UNANSWERED_REQUEST, [])
    assert not only(Call, actions)


def test_a_broken_input_cancels_the_calls_whose_answers_cannot_be_sent() -> None:
    """R359."""
    engine = running(incoming=EVERYTHING)
    feed(engine, 1.0, cli.hook_callback("h"), cli.can_use_tool("p"))
    assert engine.write_failed("EPIPE", 2.0) == [CancelCall(1), CancelCall(2)]
    assert cli.finish(engine, 2, None, 2.5) == []


def test_early_messages_do_not_wait_for_a_session_whose_input_broke() -> None:
    engine = started(incoming=SERVING)
    feed(engine, 0.1, cli.mcp_message("r0", rpc(0)))
    engine.write_failed("EPIPE", 0.2)
    actions = feed(engine, 0.3, cli.mcp_message("r1", rpc(1)))
    assert (warned(actions), only(Call, actions)) == ([WarningKind.UNANSWERED_REQUEST], [])


@pytest.mark.parametrize("subtype", ["my password is hunter2", "x" * 60, "a\nb", "\x1b[2J"])
def test_a_subtype_that_is_not_a_name_is_not_quoted(subtype: str) -> None:
    actions = feed(running(), 1.0, cli.request("r", subtype))
    assert errors(actions) == {"r": "unknown control request subtype that is not a name"}
    assert subtype not in str(actions)


@pytest.mark.parametrize("subtype", ["my password is hunter2", "x" * 60, "a\\nb", "\\u001b[2J"])
def test_the_subtype_of_an_unreadable_request_is_quoted_only_if_it_is_a_name(subtype: str) -> None:
    line = b'{"type":"control_request","request_id":"%b","request":{"subtype":"%b",]}}\n'
    actions = running().receive(line % (b"r", subtype.encode()), 1.0)
    actions += running().receive(line % (b"n", b"mcp_message"), 1.0)
    assert {key: text.partition(" (")[0] for key, text in errors(actions).items()} == {
        "r": "request: cannot be read",
        "n": "mcp_message: cannot be read",
    }
    assert subtype not in str(actions)
