"""The scripted model by itself: what it accepts, says, records, and how it fails."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.limits import SetLimits

from bridle.testing import (
    FORBID_REAL_API,
    Block,
    ModelRequest,
    Reply,
    ScriptedModel,
    ScriptFailure,
    disconnect,
    error,
    forbid_real_api,
    rate_limit_headers,
    raw,
    redacted_thinking,
    refusal,
    repeat,
    stream_error,
    text,
    thinking,
    tool_use,
)
from bridle.testing.model_request import SharedParts
from bridle.testing.script import Turn

Json = dict[str, Any]

KEY = {"x-api-key": "made-up"}
PATIENCE = 10.0


def body(*contents: object, **members: object) -> Json:
    """A request whose messages are the user's and the model's in turn."""
    roles = ("user", "assistant")
    messages = [
        {"role": roles[number % 2], "content": content} for number, content in enumerate(contents)
    ]
    return {"model": "claude-x", "max_tokens": 2048, "messages": messages, **members}


def connection(model: ScriptedModel) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=PATIENCE)


def post(model: ScriptedModel, payload: object, **headers: str) -> tuple[int, Json]:
    client = connection(model)
    try:
        sent = {**KEY, **headers}
        client.request("POST", "/v1/messages?beta=true", json.dumps(payload).encode(), sent)
        response = client.getresponse()
        return response.status, json.loads(response.read())
    finally:
        client.close()


def stream(model: ScriptedModel, payload: Json) -> Iterator[Json]:
    """The events of a stream, as they come."""
    client = connection(model)
    try:
        client.request("POST", "/v1/messages", json.dumps({**payload, "stream": True}), KEY)
        response = client.getresponse()
        assert response.headers["content-type"] == "text/event-stream"
        while kind := response.readline().decode():
            event: Json = json.loads(response.readline().decode().removeprefix("data: "))
            assert kind == f"event: {event['type']}\n"
            assert response.readline() == b"\n"
            yield event
    finally:
        client.close()


def exchange(model: ScriptedModel, sent: bytes) -> bytes:
    """All that comes back on a connection of its own, until the server closes it."""
    place = urlsplit(model.url)
    with socket.create_connection((place.hostname, place.port), PATIENCE) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(4096), b""))


# ---------------------------------------------------------------- the stream


def test_a_stream_is_that_of_the_api() -> None:
    with ScriptedModel([[thinking("Hm.", "sig"), text("abc", chunks=["a", "bc"])]]) as model:
        first, *rest = stream(model, body("hi"))
    message = first["message"]
    assert first["type"] == "message_start"
    assert message["id"].startswith("msg_01")
    assert (message["role"], message["model"], message["content"]) == ("assistant", "claude-x", [])
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == (None, 1)
    usage = {**message["usage"], "output_tokens": 5}
    blank = {"type": "thinking", "thinking": "", "signature": ""}
    delta = "content_block_delta"
    assert rest == [
        {"type": "content_block_start", "index": 0, "content_block": blank},
        {"type": "ping"},
        {"type": delta, "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": delta, "index": 0, "delta": {"type": "thinking_delta", "thinking": "."}},
        {"type": delta, "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": delta, "index": 1, "delta": {"type": "text_delta", "text": "a"}},
        {"type": delta, "index": 1, "delta": {"type": "text_delta", "text": "bc"}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]


def test_the_input_of_a_tool_comes_in_parts_of_json() -> None:
    with ScriptedModel([[tool_use("add", a=1, name="é")]]) as model:
        events = list(stream(model, body("hi")))
    [start] = [event for event in events if event["type"] == "content_block_start"]
    assert start["content_block"]["input"] == {}
    pieces = [
        event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"
    ]
    assert len(pieces) == 2
    assert json.loads("".join(pieces)) == {"a": 1, "name": "é"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_blocks_without_deltas_are_whole_in_their_opening() -> None:
    known = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    with ScriptedModel([[redacted_thinking("xyz"), raw(known)]]) as model:
        events = list(stream(model, body("hi")))
    openings = [event["content_block"] for event in events if "content_block" in event]
    assert openings == [{"type": "redacted_thinking", "data": "xyz"}, known]
    assert not [event for event in events if event["type"] == "content_block_delta"]


@pytest.mark.parametrize(
    ("block", "pieces"),
    [
        (text("abcd"), ["ab", "cd"]),
        (text("abcd", chunks=1), ["abcd"]),
        (text("abcd", chunks=3), ["ab", "cd"]),
        (text("ab", chunks=9), ["a", "b"]),
        (text("", chunks=2), []),
        (text("ab", chunks=["", "ab"]), ["", "ab"]),
    ],
)
def test_a_text_is_cut_as_asked(block: Block, pieces: list[str]) -> None:
    with ScriptedModel([[block]]) as model:
        deltas = [event["delta"] for event in stream(model, body("hi")) if "delta" in event]
    assert [delta["text"] for delta in deltas[:-1]] == pieces


def test_a_request_without_stream_gets_the_whole_message() -> None:
    with ScriptedModel([Reply(blocks=(text("hi"),), usage={"output_tokens": 7})]) as model:
        status, message = post(model, body("x"))
    assert status == 200
    assert message["content"] == [{"type": "text", "text": "hi"}]
    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["output_tokens"] == 7


def test_calls_get_ids_of_their_own_unless_they_bring_one() -> None:
    mine = raw({"type": "tool_use", "id": "toolu_mine", "name": "t", "input": {}})
    with ScriptedModel([repeat([tool_use("t"), tool_use("t"), mine])]) as model:
        ids = [block["id"] for _ in range(2) for block in post(model, body("x"))[1]["content"]]
    assert ids[2] == ids[5] == "toolu_mine"
    assert len(set(ids)) == 5
    assert all(name.startswith("toolu_") for name in ids)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(blocks=(text("x"),)), "end_turn"),
        (Reply(blocks=(text("x"), tool_use("t"))), "tool_use"),
        (Reply(blocks=(text("x"),), stop_reason="max_tokens"), "max_tokens"),
        (refusal("No."), "refusal"),
        (refusal(), "refusal"),
    ],
)
def test_the_stop_reason_follows_from_the_blocks_unless_given(reply: Reply, reason: str) -> None:
    with ScriptedModel([reply]) as model:
        assert post(model, body("x"))[1]["stop_reason"] == reason


# ---------------------------------------------------------------- the script


def test_turns_are_played_in_order_and_the_last_may_repeat() -> None:
    script: list[Turn] = [[text("1")], Reply(blocks=(text("2"),)), repeat([text("3")])]
    with ScriptedModel(script) as model:
        said = [post(model, body("x"))[1]["content"][0]["text"] for _ in range(4)]
    assert said == ["1", "2", "3", "3"]


def test_a_function_makes_the_answer_from_the_request() -> None:
    async def later(request: ModelRequest) -> list[Block]:
        await asyncio.sleep(0)
        return [text(request.last_user_text.upper())]

    scripts: list[Any] = [
        lambda request: [text(request.last_user_text.upper())],
        later,
        [later],
        [repeat(later)],
    ]
    for script in scripts:
        with ScriptedModel(script) as model:
            assert post(model, body("abc"))[1]["content"][0]["text"] == "ABC"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([repeat([text("x")]), [text("y")]], r"script\[0\]: repeat"),
        (["hello"], "got 'hello'"),
        ([text("no list")], "a turn must be a Reply or a list of blocks .* got Block"),
        ([[text("x"), "y"]], "a turn must be a Reply or a list of blocks .* 'y'"),
        ([repeat("hello")], "got 'hello'"),  # type: ignore[arg-type]  # the point of the test
    ],
    ids=["after-repeat", "text", "block", "mixed", "repeated"],
)
def test_a_script_that_cannot_be_played_is_refused(script: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ScriptedModel(script)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: text("abc", chunks=["a", "b"]), "must join to"),
        (lambda: text("abc", chunks=0), "at least 1"),
        (lambda: raw({"text": "x"}), "needs a type"),
        (lambda: error(200), "must be an error status"),
    ],
    ids=["chunks", "pieces", "raw", "status"],
)
def test_what_cannot_be_said_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# ---------------------------------------------------------------- failing loudly


def test_a_request_beyond_the_script_fails_the_client_and_the_test() -> None:
    def overrun() -> None:
        with ScriptedModel([[text("x")]]) as model:
            post(model, body("one"))
            status, answer = post(model, body("two"))
            assert status == 400
            assert "the script has no turn" in answer["error"]["message"]
            with pytest.raises(ScriptFailure, match="'two'"):
                model.check()

    with pytest.raises(ScriptFailure, match=r"no turn for request 1.*'two'"):
        overrun()


def test_a_function_that_raises_fails_the_test_and_is_the_cause() -> None:
    def broken(request: ModelRequest) -> list[Block]:
        raise LookupError("my bug")

    with pytest.raises(ScriptFailure, match="my bug") as caught, ScriptedModel(broken) as model:
        assert post(model, body("x"))[0] == 400
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_function_that_returns_no_answer_fails_the_test() -> None:
    script: Any = lambda request: "hello"  # noqa: E731
    with pytest.raises(ScriptFailure, match="got 'hello'"), ScriptedModel(script) as model:
        assert post(model, body("x"))[0] == 400


@pytest.mark.parametrize("point", ["hold_after", "cut_after"])
def test_a_point_beyond_the_stream_fails_the_test(point: str) -> None:
    places: Json = {point: 9}
    reply = Reply(blocks=(text("ab"),), **places)
    with pytest.raises(ScriptFailure, match="beyond the 8 events"), ScriptedModel([reply]) as model:
        assert post(model, body("x"))[0] == 400


def test_the_failure_of_the_script_is_a_note_on_the_failure_of_the_test() -> None:
    def fail_twice() -> None:
        with ScriptedModel([]) as model:
            post(model, body("x"))
            raise LookupError("of the test")

    with pytest.raises(LookupError) as caught:
        fail_twice()
    assert "ScriptedModel: the script has no turn" in caught.value.__notes__[0]


def test_waiting_ends_when_the_script_fails() -> None:
    def wait_in_vain() -> None:
        with ScriptedModel([]) as model:
            post(model, body("x"))
            with pytest.raises(ScriptFailure):
                model.wait_for_request_sync(5)

    with pytest.raises(ScriptFailure):
        wait_in_vain()


# ---------------------------------------------------------------- what the API does not accept

CALL = [{"type": "tool_use", "id": "a", "name": "t", "input": {}}]
RESULT = [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]
TOOL = {"name": "t", "input_schema": {"type": "object"}}


def without(name: str) -> Json:
    return {key: value for key, value in body("x").items() if key != name}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (without("model"), "model: Field required"),
        (without("max_tokens"), "max_tokens: Field required"),
        (without("messages"), "messages: Field required"),
        ([1, 2], "model: Field required"),
        (body("x", model=""), "model:"),
        (body("x", max_tokens="many"), "max_tokens: Input should be a valid integer"),
        (body("x", max_tokens=True), "max_tokens: Input should be a valid integer"),
        (body("x", max_tokens=0), "max_tokens: Input should be greater"),
        (body(), "messages: at least one"),
        (body("x", messages={}), "messages: at least one"),
        (body("x", messages=["x"]), "messages.0: Input should be an object"),
        (body("x", messages=[{"role": "robot", "content": "x"}]), "messages.0.role"),
        (body("x", messages=[{"role": "system", "content": "x"}]), "messages.0.role"),
        (body("x", messages=[{"role": "assistant", "content": "x"}]), "messages.0.role"),
        (body(None), "messages.0.content"),
        (body(""), "messages.0: all messages must have non-empty content"),
        (body("x", [], "y"), "messages.1: all messages must have non-empty content"),
        (body([{"type": "text", "text": ""}]), "messages.0.content.0: text content blocks"),
        (body([{"type": "smell"}]), "messages.0.content.0.type"),
        (body([{"text": "x"}]), "messages.0.content.0.type"),
        (body(RESULT), "`tool_result` for a has no `tool_use`"),
        (body("x", CALL, RESULT, "y", RESULT), "`tool_result` for a has no `tool_use`"),
        (body("x", CALL, "y"), "without `tool_result` just after: ['a']"),
        (body("x", CALL), "without `tool_result` after: ['a']"),
        (body("x", CALL, RESULT * 2), "single result"),
        (body("x", CALL * 2, RESULT), "ids must be unique"),
        (body("x", CALL, RESULT, CALL, RESULT), "ids must be unique"),
        (body("x", tools=[TOOL, TOOL]), "tools: Tool names must be unique"),
        (body("x", tools=[{**TOOL, "name": "a b"}]), "tools.0.name"),
        (body("x", tools=[{**TOOL, "name": "x" * 129}]), "tools.0.name"),
        (body("x", tools=[{"name": "t"}]), "tools.0.input_schema"),
        (body("x", temperature=1.1), "temperature"),
        (body("x", temperature="hot"), "temperature"),
        (body("x", thinking={"type": "enabled", "budget_tokens": 2048}), "`max_tokens` must be"),
        (body("x", thinking={"type": "enabled", "budget_tokens": 10}), "thinking.budget_tokens"),
        (body("x", thinking={"type": "enabled"}), "thinking.budget_tokens"),
    ],
)  # fmt: skip
def test_what_the_api_would_not_accept_is_rejected(payload: object, message: str) -> None:
    with ScriptedModel([], tolerate_rejected=True) as model:
        status, answer = post(model, payload)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert message in answer["error"]["message"]
    assert [(one.status, message in one.message) for one in model.rejected] == [(400, True)]
    assert model.requests == []


@pytest.mark.parametrize(
    "payload",
    [
        body("x"),
        body([{"type": "text", "text": "x"}], temperature=0),
        body("x", CALL, RESULT),
        body("x", [{"type": "text", "text": "y"}, *CALL], [*RESULT, {"type": "text", "text": "z"}]),
        body("x", ""),
        body("x", thinking={"type": "adaptive"}),
        body("x", thinking={"type": "enabled", "budget_tokens": 2047}),
        body("x", tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}]),
        body("x", messages=[
            {"role": "user", "content": "x"},
            {"role": "system", "content": "note"},
            {"role": "assistant", "content": CALL},
            {"role": "system", "content": "note"},
            {"role": "user", "content": RESULT},
            {"role": "user", "content": "more"},
        ]),
    ],
)  # fmt: skip
def test_what_the_api_would_accept_is_accepted(payload: Json) -> None:
    with ScriptedModel([[text("fine")]]) as model:
        assert post(model, payload)[0] == 200


def test_a_rejected_request_fails_the_test_unless_tolerated() -> None:
    with (
        pytest.raises(ScriptFailure, match="would reject this request: model: Field required"),
        ScriptedModel([[text("x")]]) as model,
    ):
        post(model, without("model"))
    assert model.requests == []


def test_a_request_without_credentials_is_rejected() -> None:
    with ScriptedModel([[text("x")]], tolerate_rejected=True) as model:
        assert post(model, body("x"), **{"x-api-key": ""})[0] == 401
        token = {"x-api-key": "", "authorization": "Bearer made-up"}
        assert post(model, body("x"), **token)[0] == 200
    assert [one.status for one in model.rejected] == [401]


# ---------------------------------------------------------------- what is recorded


def test_a_request_answers_the_questions_of_a_test() -> None:
    reminder = "<system-reminder>\nnever mind\n</system-reminder>"
    call = [{"type": "tool_use", "id": name, "name": "t", "input": {}} for name in "ab"]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": f"one\n\n{reminder}"},
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}],
        },
        {"type": "text", "text": reminder},
    ]
    prompt = [{"type": "text", "text": reminder}, {"type": "text", "text": "do it"}]
    payload = body(
        prompt, call, results,
        system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
        tools=[TOOL], thinking={"type": "adaptive"},
    )  # fmt: skip
    with ScriptedModel([[text("x")]]) as model:
        post(model, payload, **{"x-claude-code-agent-id": "sub", "authorization": "Bearer x"})
    [request] = model.requests
    assert request.raw == payload
    assert (request.model, request.max_tokens, request.stream) == ("claude-x", 2048, False)
    assert request.messages == payload["messages"]
    assert request.system_text == "Be\nbrief."
    assert request.tools == ("t",)
    assert request.thinking == {"type": "adaptive"}
    assert request.agent_id == "sub"
    assert request.last_user_text == "do it"
    assert request.tool_results == {"a": "one", "b": "two\nthree"}
    assert request.last_tool_result == "two\nthree"
    assert request.answers_tool_call
    assert request.headers["x-api-key"] == request.headers["authorization"] == "[redacted]"
    assert "agent sub" in str(request)
    assert "tool result 'two" in str(request)


def test_a_request_of_any_shape_answers_them_too() -> None:
    request = ModelRequest(method="POST", path="/v1/messages", headers={}, raw={"messages": 1})
    assert (request.model, request.max_tokens, request.stream) == ("", None, False)
    assert (request.messages, request.tools, request.thinking) == ([], (), None)
    assert (request.system_text, request.last_user_text) == ("", "")
    assert (request.tool_results, request.last_tool_result) == ({}, None)
    assert not request.answers_tool_call
    assert "main conversation, 0 messages" in str(request)


def test_requests_beside_the_conversation_take_no_turn() -> None:
    title = body("x", output_config={"format": {"type": "json_schema"}})
    with ScriptedModel([[text("the turn")]]) as model:
        client = connection(model)
        answers: list[tuple[int, bytes]] = []
        for method, path, payload in [
            ("HEAD", "/", {}),
            ("GET", "/", {}),
            ("HEAD", "/api/hello", {}),
            ("POST", "/v1/messages/count_tokens", body("x" * 400)),
            ("GET", "/v1/models", {}),
        ]:
            client.request(method, path, json.dumps(payload), KEY)
            response = client.getresponse()
            answers.append((response.status, response.read()))
        client.close()
        assert [status for status, _ in answers] == [200, 200, 200, 200, 404]
        assert answers[0][1] == b""
        assert json.loads(answers[3][1])["input_tokens"] > 100
        assert post(model, body("x", max_tokens=1))[1]["stop_reason"] == "max_tokens"
        named = post(model, title)[1]["content"][0]["text"]
        assert json.loads(named) == {"title": "Scripted session"}
        assert post(model, body("x"))[1]["content"][0]["text"] == "the turn"
    assert len(model.requests) == 1
    assert len(model.side_requests) == 7
    assert str(model.side_requests[0]) == "HEAD /"


def test_counting_tokens_takes_credentials() -> None:
    with ScriptedModel([]) as model:
        client = connection(model)
        client.request("POST", "/v1/messages/count_tokens", b"{}")
        assert client.getresponse().status == 401
        client.close()


def test_probes_take_turns_if_asked_to() -> None:
    with ScriptedModel([error(404)], count_probes=True) as model:
        assert post(model, body("x", max_tokens=1))[0] == 404
    assert len(model.requests) == 1


# ---------------------------------------------------------------- errors and broken connections


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
        (502, "api_error"),
        (599, "api_error"),
    ],
)
def test_an_error_has_the_type_of_its_status(status: int, kind: str) -> None:
    with ScriptedModel([error(status, message="woe")]) as model:
        found, answer = post(model, body("x", stream=True))
    assert found == status
    assert answer["error"] == {"type": kind, "message": "woe"}
    assert answer["request_id"].startswith("req_01")


def test_an_error_may_have_a_type_and_headers_of_its_own() -> None:
    limits = rate_limit_headers("rejected", resets_at=5, claim="seven_day", utilization=1.0)
    with ScriptedModel([error(429, "own_error", headers=limits)]) as model:
        client = connection(model)
        client.request("POST", "/v1/messages", json.dumps(body("x")), KEY)
        response = client.getresponse()
        assert json.loads(response.read())["error"]["type"] == "own_error"
        prefix = "anthropic-ratelimit-unified-"
        found = {k.removeprefix(prefix): v for k, v in response.getheaders() if prefix in k}
        client.close()
    assert found == {
        "status": "rejected",
        "reset": "5",
        "representative-claim": "seven_day",
        "7d-status": "rejected",
        "7d-reset": "5",
        "7d-utilization": "1.0",
    }


def test_a_stream_may_end_in_an_error() -> None:
    with ScriptedModel([repeat(stream_error("overloaded_error", "woe", [text("ab")]))]) as model:
        events = list(stream(model, body("x")))
        assert events[-1] == {
            "type": "error",
            "error": {"type": "overloaded_error", "message": "woe"},
        }
        assert [event["type"] for event in events].count("content_block_stop") == 1
        assert post(model, body("x"))[0] == 529


def test_a_connection_is_dropped_before_an_answer() -> None:
    late = Reply(blocks=(text("ab"),), cut_after=4)  # there is no later without a stream
    with ScriptedModel([disconnect(), late]) as model:
        for _ in range(2):
            with pytest.raises(http.client.RemoteDisconnected):
                post(model, body("x"))


def test_a_connection_is_dropped_within_a_stream_and_what_was_sent_arrives() -> None:
    with ScriptedModel([Reply(blocks=(text("ab"),), cut_after=4)]) as model:
        payload = json.dumps(body("x", stream=True)).encode()
        head = b"POST /v1/messages HTTP/1.1\r\nx-api-key: x\r\ncontent-length: %d\r\n\r\n"
        said = exchange(model, head % len(payload) + payload)
    names = [line for line in said.decode().split("\n") if line.startswith("event: ")]
    kinds = ("message_start", "content_block_start", "ping", "content_block_delta")
    assert names == [f"event: {kind}" for kind in kinds]
    assert not said.endswith(b"0\r\n\r\n")


# ---------------------------------------------------------------- time under control


def test_a_held_stream_goes_on_when_released() -> None:
    reply = Reply(blocks=(text("ab"),), hold=True, hold_after=4)
    with ScriptedModel([reply]) as model:
        events = stream(model, body("x"))
        seen = [next(events)["type"] for _ in range(4)]
        model.wait_for_hold_sync()
        assert seen[-1] == "content_block_delta"
        model.release()
        assert [event["type"] for event in events][-1] == "message_stop"
        with pytest.raises(RuntimeError, match="no reply is held"):
            model.release()


def test_a_hold_without_a_point_comes_before_the_first_byte() -> None:
    gate = threading.Event()
    with ScriptedModel([repeat(Reply(blocks=(text("x"),), hold=gate))]) as model:
        client = connection(model)
        client.request("POST", "/v1/messages", json.dumps(body("x")), KEY)
        model.wait_for_hold_sync()
        client.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.sock.recv(1)
        client.sock.settimeout(PATIENCE)
        gate.set()
        assert client.getresponse().status == 200
        client.close()


async def test_an_event_of_the_callers_loop_can_hold_a_reply() -> None:
    gate = asyncio.Event()
    async with ScriptedModel([Reply(blocks=(text("x"),), hold=gate)]) as model:
        asking = asyncio.create_task(asyncio.to_thread(post, model, body("x")))
        await model.wait_for_hold()
        assert not asking.done()
        gate.set()
        assert (await asking)[0] == 200


def test_a_client_that_hangs_up_ends_the_hold() -> None:
    reply = Reply(blocks=(text("x"),), hold=True)
    with ScriptedModel([reply, reply]) as model:
        first = connection(model)
        first.request("POST", "/v1/messages", json.dumps(body("x")), KEY)
        model.wait_for_hold_sync()
        first.close()
        second = connection(model)
        second.request("POST", "/v1/messages", json.dumps(body("x")), KEY)
        model.wait_for_hold_sync(2)
        model.release()
        assert second.getresponse().status == 200
        second.close()


def test_leaving_does_not_wait_for_what_is_held() -> None:
    with ScriptedModel([Reply(blocks=(text("x"),), hold=True)]) as model:
        client = connection(model)
        client.request("POST", "/v1/messages", json.dumps(body("x")), KEY)
        model.wait_for_hold_sync()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        client.getresponse()
    client.close()


async def test_a_slow_stream_takes_its_time() -> None:
    reply = Reply(blocks=(text("abc", chunks=3),), delay=0.02, chunk_delay=0.01)
    async with ScriptedModel([reply]) as model:
        started = asyncio.get_running_loop().time()
        await asyncio.to_thread(lambda: list(stream(model, body("x"))))
        assert asyncio.get_running_loop().time() - started >= 0.05


async def test_one_waits_for_a_request_from_blocking_code_and_from_a_loop() -> None:
    async with ScriptedModel([repeat([text("x")])]) as model:
        waiting = asyncio.create_task(model.wait_for_request(1))
        await asyncio.to_thread(post, model, body("zero"))
        await asyncio.to_thread(post, model, body("one"))
        assert (await waiting).last_user_text == "one"
        assert model.wait_for_request_sync().last_user_text == "zero"
        with pytest.raises(TimeoutError, match=r"no request 2 within 0\.01 s.*\n.*zero"):
            await model.wait_for_request(2, timeout=0.01)
        with pytest.raises(TimeoutError, match="no hold number 1 within"):
            model.wait_for_hold_sync(timeout=0.01)


# ---------------------------------------------------------------- HTTP


def test_a_connection_serves_one_request_after_the_other() -> None:
    with ScriptedModel([repeat([text("x")])]) as model:
        client = connection(model)
        for payload in (body("x"), body("x", stream=True), body("y")):
            client.request("POST", "/v1/messages", json.dumps(payload), KEY)
            assert client.getresponse().read()
            assert client.sock is not None
        client.close()


def test_a_body_may_come_in_chunks() -> None:
    with ScriptedModel([[text("x")]]) as model:
        client = connection(model)
        payload = json.dumps(body("in chunks")).encode()
        client.request(
            "POST", "/v1/messages", iter([payload[:9], payload[9:]]), KEY, encode_chunked=True
        )
        assert client.getresponse().status == 200
        client.close()
    assert model.requests[0].last_user_text == "in chunks"


def test_trailers_of_a_body_are_read_and_left_alone() -> None:
    with ScriptedModel([]) as model:
        head = b"POST /x HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        said = exchange(model, head + b"2;note\r\n{}\r\n0\r\nchecksum: 1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 404 Not Found")


def test_a_client_may_ask_for_the_end_of_the_connection() -> None:
    with ScriptedModel([[text("x")]]) as model:
        client = connection(model)
        client.request(
            "POST", "/v1/messages", json.dumps(body("x")), {**KEY, "connection": "close"}
        )
        response = client.getresponse()
        assert response.headers["connection"] == "close"
        assert response.read()
        client.close()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"hello\r\n\r\n", b"not a request line"),
        (b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n", b"the body is invalid"),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"the body is invalid"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * (1 << 16) + b"\r\n\r\n", b"too long"),
    ],
    ids=["line", "length", "chunk", "long"],
)
def test_bytes_that_are_not_http_are_answered_with_an_error(sent: bytes, answer: bytes) -> None:
    with ScriptedModel([]) as model:
        said = exchange(model, sent)
    assert said.startswith(b"HTTP/1.1 400 Bad Request")
    assert answer in said


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nshort", b"the body is invalid"),
        (b"POST / HTTP", b"closed inside the headers"),
        (b"", b""),
    ],
    ids=["body", "head", "nothing"],
)
def test_a_request_that_breaks_off_is_answered_with_an_error(sent: bytes, answer: bytes) -> None:
    with ScriptedModel([]) as model:
        place = urlsplit(model.url)
        with socket.create_connection((place.hostname, place.port), PATIENCE) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            assert answer in b"".join(iter(lambda: client.recv(4096), b""))


def test_a_body_that_is_not_json_is_rejected() -> None:
    with ScriptedModel([], tolerate_rejected=True) as model:
        client = connection(model)
        client.request("POST", "/v1/messages", b"{", KEY)
        assert client.getresponse().status == 400
        client.close()


# ---------------------------------------------------------------- environment and life


def test_the_environment_points_here_and_masks_the_rest() -> None:
    with ScriptedModel([]) as model:
        env = model.env
        assert env["ANTHROPIC_BASE_URL"] == model.url
        assert model.url.startswith("http://127.0.0.1:")
        assert env["ANTHROPIC_API_KEY"] == "scripted"
        assert env["CLAUDE_CODE_MAX_RETRIES"] == "0"
        for name in ("HTTPS_PROXY", "https_proxy", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_MODEL"):
            assert env[name] == ""
        assert env["CLAUDE_CODE_OAUTH_TOKEN"] == env["CLAUDE_CODE_USE_BEDROCK"] == ""
        assert env["NO_PROXY"] == env["no_proxy"] == "127.0.0.1,localhost,::1"
        assert env["HOME"] == str(model.home)
        assert env["CLAUDE_CONFIG_DIR"] == str(model.home / ".claude")
        assert ("IS_SANDBOX" in env) is (os.getuid() == 0)


def test_the_login_and_the_retries_are_chosen() -> None:
    with ScriptedModel([], login="oauth", retries=None) as model:
        env = model.env
    assert env["ANTHROPIC_API_KEY"] == env["CLAUDE_CODE_MAX_RETRIES"] == ""
    assert env["CLAUDE_CODE_OAUTH_TOKEN"] == "scripted"


def test_the_home_is_there_while_the_model_is() -> None:
    with ScriptedModel([]) as model:
        home = model.home
        (home / "left").write_text("something")
        assert model.home == home
    assert not home.exists()


def test_a_model_needs_a_with_and_plays_once() -> None:
    model = ScriptedModel([])
    ask: list[Callable[[], object]] = [lambda: model.url, lambda: model.home, lambda: model.env]
    for question in ask:
        with pytest.raises(RuntimeError, match="not running"):
            question()
    with model:
        pass
    with pytest.raises(RuntimeError, match="not running"):
        _ = model.url
    with pytest.raises(RuntimeError, match="can be started only once"), model:
        pass


def test_a_model_that_cannot_listen_says_so(set_limits: SetLimits) -> None:
    set_limits(loopback_address="203.0.113.1")  # nobody's address
    with pytest.raises(OSError, match="address"), ScriptedModel([]):
        pass


def test_nothing_is_left_behind(tmp_path: Path, set_limits: SetLimits) -> None:
    set_limits(temporary_directory=str(tmp_path))

    async def story() -> None:
        async with ScriptedModel([[text("x")]]) as model:
            assert model.env
            await asyncio.to_thread(post, model, body("x"))

    before = set(threading.enumerate())
    asyncio.run(story())
    assert list(tmp_path.iterdir()) == []
    assert {one.name for one in set(threading.enumerate()) - before} <= set()


async def test_a_cancelled_exit_also_stops_the_model() -> None:
    model = ScriptedModel([])
    await model.__aenter__()
    place = urlsplit(model.url)
    leaving = asyncio.create_task(model.__aexit__(None, None, None))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((place.hostname, place.port), PATIENCE)


def test_a_cancelled_entry_leaves_no_thread() -> None:
    async def story() -> None:
        entering = asyncio.create_task(ScriptedModel([]).__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    before = set(threading.enumerate())
    asyncio.run(story())
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("before", [None, "0"])
def test_the_real_api_is_forbidden_for_a_while(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FORBID_REAL_API, raising=False)
    if before is not None:
        monkeypatch.setenv(FORBID_REAL_API, before)
    with forbid_real_api():
        assert os.environ[FORBID_REAL_API] == "1"
    assert os.environ.get(FORBID_REAL_API) == before


def test_requests_share_the_parts_that_they_repeat() -> None:
    shared = SharedParts()
    bodies: list[dict[str, Any]] = [
        {
            "model": "m",
            "system": "Be calm.",
            "tools": [{"name": "Read"}],
            "messages": [{"role": "user", "content": f"prompt {turn}"} for turn in range(count)],
        }
        for count in range(1, 401)
    ]
    kept: list[Any] = [shared.body(json.loads(json.dumps(body))) for body in bodies]
    assert kept == bodies
    # 80,200 messages in 400 requests, and 400 of them are kept.
    assert len({id(message) for body in kept for message in body["messages"]}) == 400
    assert len({id(body["tools"]) for body in kept}) == 1


def test_a_model_keeps_a_message_that_requests_repeat_once() -> None:
    with ScriptedModel([repeat([text("a")])]) as model:
        for _ in range(3):
            post(model, body("the same"))
        assert len({id(one.messages[0]) for one in model.requests}) == 1


@pytest.mark.parametrize("body", [{}, {"messages": None, "system": 1}, {"messages": [1, "a"]}])
def test_a_body_of_any_shape_stays_as_it_is(body: dict[str, Any]) -> None:
    assert SharedParts().body(body) == body
