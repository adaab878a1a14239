"""Replies of the CLI: typed, tolerant of other versions, and nothing is lost."""

from __future__ import annotations

import copy
import pickle
from types import NoneType
from typing import Any

import msgspec
import pytest

from bridle._engine.outgoing.operations import OPERATIONS
from bridle._engine.wire.codec import decode_reply
from bridle.controls import (
    ContextUsage,
    McpCallResult,
    McpServerInfo,
    McpServerList,
    McpToolInfo,
    PermissionRuleList,
    Reply,
    RewindResult,
    SessionCost,
    UsageReport,
)

STATUS: dict[str, Any] = {
    "mcpServers": [
        {
            "name": "calc",
            "status": "connected",
            "serverInfo": {"name": "calc", "version": "1"},
            "tools": [{"name": "add", "annotations": {}, "icon": "+"}],
            "mood": "good",
        },
        {"name": "broken", "status": "failed", "error": "no such file"},
    ],
    "checkedAt": 7,
}

KINDS = list(
    dict.fromkeys(row.reply for row in OPERATIONS.values() if issubclass(row.reply, Reply))
)


def test_a_reply_has_its_fields_by_their_python_names() -> None:
    reply = decode_reply(McpServerList, STATUS)
    first, second = reply.servers
    assert first == McpServerInfo(
        name="calc",
        status="connected",
        server_info={"name": "calc", "version": "1"},
        tools=(McpToolInfo(name="add", annotations={}),),
    )
    assert (second.name, second.error, second.tools) == ("broken", "no such file", ())


def test_a_reply_and_its_parts_keep_unknown_fields() -> None:
    reply = decode_reply(McpServerList, STATUS)
    assert reply.raw == STATUS
    assert reply.servers[0].raw == STATUS["mcpServers"][0]
    assert reply.servers[0].tools[0].raw == {"name": "add", "annotations": {}, "icon": "+"}
    assert reply.servers[1].raw["error"] == "no such file"
    assert reply.misfits == ()


def test_copies_of_a_reply_keep_unknown_fields() -> None:
    reply = decode_reply(McpServerList, STATUS)
    for other in (copy.copy(reply), copy.deepcopy(reply), pickle.loads(pickle.dumps(reply))):
        assert other == reply
        assert other.raw == STATUS
        assert other.servers[0].raw == STATUS["mcpServers"][0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("payload", [None, {}, {"future": [1]}])
def test_every_reply_can_be_empty(kind: type[Reply], payload: dict[str, object] | None) -> None:
    reply = decode_reply(kind, payload)
    assert type(reply) is kind
    assert reply == kind()
    assert reply.raw == (payload or {})


def test_a_field_of_another_type_keeps_its_default_and_is_named() -> None:
    payload = {"totalTokens": "many", "percentage": 3, "categories": [{"tokens": None, "id": "x"}]}
    reply = decode_reply(ContextUsage, payload)
    assert (reply.total_tokens, reply.percentage) == (0, 3.0)
    assert reply.categories[0].id == "x"
    assert set(reply.misfits) == {"total_tokens", "categories[0].tokens"}
    assert reply.raw == payload


def test_parts_keep_their_place_when_the_list_has_other_items() -> None:
    payload = {"mcpServers": ["odd", {"name": "a", "x": 1}, None, {"name": "b", "x": 2}]}
    reply = decode_reply(McpServerList, payload)
    assert [(part.name, part.raw["x"]) for part in reply.servers] == [("a", 1), ("b", 2)]
    assert reply.misfits == ("servers[0]", "servers[2]")


def test_a_part_that_is_not_a_list_is_reached() -> None:
    payload = {"state": {"rules": [{"rule": "Bash", "behavior": "deny", "source": "cliArg"}]}}
    reply = decode_reply(PermissionRuleList, payload)
    assert reply.rules is reply.state.rules
    assert reply.state.raw == payload["state"]
    assert [(rule.rule, rule.behavior) for rule in reply.rules] == [("Bash", "deny")]


def test_an_acknowledgement_has_no_reply() -> None:
    nothing: type[None] = NoneType
    assert decode_reply(nothing, {"anything": 1}) is None


def test_a_reply_made_by_hand_has_the_names_of_the_wire() -> None:
    assert RewindResult(can_rewind=True, skipped_links=0).raw["skippedLinks"] == 0
    assert SessionCost(text="$1").raw == {"text": "$1"}
    assert McpCallResult(meta={"a": 1}).raw["_meta"] == {"a": 1}


def test_every_field_of_every_reply_has_a_default() -> None:
    assert UsageReport().session.total_cost_usd == 0.0
    required = [
        f"{kind.__name__}.{info.name}"
        for kind in KINDS
        for info in msgspec.structs.fields(kind)
        if info.required
    ]
    assert required == []
