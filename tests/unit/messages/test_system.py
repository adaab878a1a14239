"""System messages: the table of subtypes, and what lies outside it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridle import messages
from bridle._engine.wire.codec import decode_line
from bridle.messages import (
    BackgroundTask,
    CompactBoundaryMessage,
    CompactMetadata,
    InitMessage,
    McpServerStatus,
    MemoryRecallMessage,
    Message,
    MirrorErrorMessage,
    MirrorKey,
    ModelRefusalFallbackMessage,
    PluginInstallMessage,
    RecalledMemory,
    SessionWritesLostMessage,
    StatusMessage,
    SystemMessage,
    TaskUsage,
    UnknownSystemMessage,
    WorkerShuttingDownMessage,
)
from bridle.messages._system import SYSTEM_KINDS


def read(**members: object) -> Message:
    message = decode_line(msgspec.json.encode({"type": "system", **members}))
    assert isinstance(message, Message)
    return message


def test_the_table_holds_every_class_once() -> None:
    assert set(SYSTEM_KINDS.values()) == set(SystemMessage.__subclasses__()) - {
        UnknownSystemMessage
    }
    assert {kind.__name__ for kind in SYSTEM_KINDS.values()} <= set(messages.__all__)


@pytest.mark.parametrize("subtype", SYSTEM_KINDS)
def test_a_subtype_chooses_its_class(subtype: str) -> None:
    """R375."""
    message = read(subtype=subtype, uuid="u", session_id="s", new=1)
    assert type(message) is SYSTEM_KINDS[subtype]
    assert (message.type, message.subtype, message.misfits) == ("system", subtype, ())
    assert (message.uuid, message.session_id) == ("u", "s")
    assert message.raw["new"] == 1


@pytest.mark.parametrize("kind", SYSTEM_KINDS.values(), ids=lambda kind: kind.__name__)
def test_a_message_built_by_hand_is_written_as_it_is_read(kind: type[SystemMessage]) -> None:
    by_hand = kind(uuid="u")
    assert decode_line(msgspec.json.encode(by_hand.raw)) == by_hand


@pytest.mark.parametrize("kind", SYSTEM_KINDS.values(), ids=lambda kind: kind.__name__)
def test_a_misfit_in_any_field_keeps_the_class(kind: type[SystemMessage]) -> None:
    names = {
        info.encode_name: info.name
        for info in msgspec.structs.fields(kind)
        if info.name != "subtype" and info.type is not Any
    }
    message = read(subtype=kind().subtype, **{wire_name: [[5]] for wire_name in names})
    assert type(message) is kind
    assert message == kind()
    assert {misfit.partition("[")[0] for misfit in message.misfits} == set(names.values())


def test_a_new_subtype_is_kept_whole() -> None:
    message = read(subtype="eclipse", uuid="u", phase=0.5)
    assert message == UnknownSystemMessage(subtype="eclipse", uuid="u")
    assert isinstance(message, SystemMessage)
    assert message.raw == {"type": "system", "subtype": "eclipse", "uuid": "u", "phase": 0.5}


@pytest.mark.parametrize(("members", "misfits"), [({}, ()), ({"subtype": 5}, ("subtype",))])
def test_no_usable_subtype_is_an_unknown_one(
    members: dict[str, object], misfits: tuple[str, ...]
) -> None:
    message = read(**members)
    assert (message, message.misfits) == (UnknownSystemMessage(), misfits)


def test_an_unknown_subtype_may_misfit_too() -> None:
    message = read(subtype="eclipse", uuid=5)
    assert message == UnknownSystemMessage(subtype="eclipse")
    assert message.misfits == ("uuid",)


@pytest.mark.requirement("S036")
def test_init_reads_both_spellings_of_the_wire() -> None:
    message = read(
        subtype="init",
        cwd="/work",
        permissionMode="default",
        apiKeySource="none",
        tools=["Bash"],
        mcp_servers=[{"name": "calc", "status": "connected"}],
    )
    assert isinstance(message, InitMessage)
    assert (message.cwd, message.permission_mode, message.api_key_source) == (
        "/work",
        "default",
        "none",
    )
    assert message.tools == ("Bash",)
    assert message.mcp_servers == (McpServerStatus("calc", "connected"),)


def test_a_list_keeps_the_items_that_fit() -> None:
    message = read(subtype="init", tools=["Bash", 5, "Read"], mcp_servers=[{"name": 1}, "x"])
    assert isinstance(message, InitMessage)
    assert message.tools == ("Bash", "Read")
    assert message.mcp_servers == (McpServerStatus(),)
    assert message.misfits == ("tools[1]", "mcp_servers[0].name", "mcp_servers[1]")


def test_nested_records_are_typed() -> None:
    boundary = read(subtype="compact_boundary", compact_metadata={"trigger": "manual"})
    assert boundary == CompactBoundaryMessage(compact_metadata=CompactMetadata(trigger="manual"))
    progress = read(subtype="task_progress", usage={"total_tokens": 3})
    assert getattr(progress, "usage", None) == TaskUsage(3)
    changed = read(subtype="background_tasks_changed", tasks=[{"task_id": "t"}])
    assert getattr(changed, "tasks", None) == (BackgroundTask(task_id="t"),)


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (
            {
                "subtype": "model_refusal_fallback",
                "trigger": "refusal",
                "direction": "retry",
                "scope": "local",
                "original_model": "a",
                "fallback_model": "b",
                "request_id": None,
                "api_refusal_category": "bio",
                "retracted_message_uuids": ["m"],
                "refused_user_message_uuid": None,
                "content": "c",
            },
            ModelRefusalFallbackMessage(
                trigger="refusal",
                direction="retry",
                scope="local",
                original_model="a",
                fallback_model="b",
                api_refusal_category="bio",
                retracted_message_uuids=("m",),
                content="c",
            ),
        ),
        (
            {"subtype": "plugin_install", "status": "failed", "name": "n", "error": "e"},
            PluginInstallMessage(status="failed", name="n", error="e"),
        ),
        (
            {"subtype": "worker_shutting_down", "reason": "host_exit"},
            WorkerShuttingDownMessage(reason="host_exit"),
        ),
        (
            {
                "subtype": "memory_recall",
                "mode": "select",
                "memories": [{"path": "/m.md", "scope": "team"}],
            },
            MemoryRecallMessage(mode="select", memories=(RecalledMemory("/m.md", "team"),)),
        ),
        (
            {
                "subtype": "mirror_error",
                "error": "timeout",
                "key": {"projectKey": "p", "sessionId": "s", "subpath": "subagents/a"},
            },
            MirrorErrorMessage(
                error="timeout",
                key=MirrorKey(project_key="p", session_id="s", subpath="subagents/a"),
            ),
        ),
        (
            {
                "subtype": "session_writes_lost",
                "error_code": "ENOSPC",
                "lost": ["transcript"],
                "transcript_session_ids": ["s"],
            },
            SessionWritesLostMessage(
                error_code="ENOSPC", lost=("transcript",), transcript_session_ids=("s",)
            ),
        ),
    ],
    ids=lambda each: each["subtype"] if isinstance(each, dict) else "",
)
def test_a_message_of_the_typescript_sdk_is_read_into_its_class(
    wire: dict[str, object], message: Message
) -> None:
    found = read(**wire)
    assert (found, found.misfits) == (message, ())
    assert found.raw == {"type": "system", **wire}


def test_a_status_may_be_none() -> None:
    assert read(subtype="status", status=None) == StatusMessage()
