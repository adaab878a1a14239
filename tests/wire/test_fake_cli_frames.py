"""The fake CLI's frames are those of real CLIs: same members, same types, nothing unknown."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from bridle._engine.wire.codec import decode_line
from bridle.messages import MalformedLine
from bridle.testing.fake_cli import FLAVOURS, FakeCli

OLDER = FLAVOURS[-1]

GOLDEN = Path(__file__).parent / "golden"

Json: TypeAlias = dict[str, Any]
Shape: TypeAlias = dict[str, tuple[bool, frozenset[str]]]

#: Below these, members are chosen by tools, servers and people: any will do.
FREE = {
    "input",
    "tool_input",
    "tool_response",
    "tool_use_result",
    "arguments",
    "structured_output",
    "mcp_response",
    "serverInfo",
}

#: The members of these are named after models.
PER_MODEL = {"modelUsage", "model_usage_since_last_result"}

#: Real CLIs send these, but no recording has one; so their members are written down here.
UNRECORDED: dict[str, set[str]] = {
    "control_request/elicitation": {
        "mcp_server_name",
        "message",
        "mode",
        "requested_schema",
        "property_order",
        "subtype",
    },
    "control_response/error": {"subtype", "request_id", "error", "error_code", "model"},
    "system/permission_denied": {
        "type",
        "subtype",
        "tool_name",
        "tool_use_id",
        "decision_reason_type",
        "message",
        "uuid",
        "session_id",
    },
}


# ------------------------------------------------------------------------- shapes


def kind_of(frame: Json) -> str:
    """What is compared with what."""
    kind: str = frame["type"]
    if kind == "control_request":
        asked = frame["request"]
        detail = {
            "mcp_message": lambda: asked["message"]["method"],
            "hook_callback": lambda: asked["input"]["hook_event_name"],
        }.get(asked["subtype"])
        return "/".join([kind, asked["subtype"], *([detail()] if detail else [])])
    if kind == "control_response":
        response = frame["response"]
        introduces = "commands" in (response.get("response") or {})
        return f"{kind}/{response['subtype']}" + ("/initialize" if introduces else "")
    if kind == "stream_event":
        return f"{kind}/{frame['event']['type']}"
    if kind == "result":
        ending = "clean" if frame.get("terminal_reason") else "local"
        return f"{kind}/{frame['subtype']}/{ending}"
    return f"{kind}/{frame['subtype']}" if "subtype" in frame else kind


def type_of(value: object) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _introduces(value: object) -> bool:
    return isinstance(value, dict) and "commands" in value


def parts(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Every place in a value, with the type of what is there."""
    yield path, type_of(value)
    if path.rpartition(".")[2] in FREE or (path == "response.response" and not _introduces(value)):
        return
    if isinstance(value, dict):
        for name, part in value.items():
            shown = "*" if path in PER_MODEL else name
            yield from parts(part, f"{path}.{shown}" if path else shown)
    elif isinstance(value, list):
        for item in value:
            yield from parts(item, f"{path}[]")


def shape(frames: list[Json]) -> tuple[dict[str, set[str]], set[str]]:
    """The places there are in frames of a kind with their types, and those in every frame."""
    types: dict[str, set[str]] = defaultdict(set)
    always: set[str] | None = None
    for frame in frames:
        found = set()
        for path, kind in parts(frame):
            types[path].add(kind)
            found.add(path)
        always = found if always is None else always & found
    return types, {path for path in always or set() if "." not in path and "[" not in path}


@cache
def golden(version: str) -> dict[str, list[Json]]:
    """What that version of the CLI wrote in all recordings, by kind."""
    frames: dict[str, list[Json]] = defaultdict(list)
    for path in sorted((GOLDEN / version).glob("*.ndjson")):
        for line in path.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry["dir"] == "out":
                frame = json.loads(entry["line"])
                frames[kind_of(frame)].append(frame)
    return frames


# ------------------------------------------------------------------------- what the fake says


def request(subtype: str, **fields: object) -> Json:
    return {
        "type": "control_request",
        "request_id": subtype,
        "request": {"subtype": subtype, **fields},
    }


def prompt(text: str, number: int) -> Json:
    message = {"role": "user", "content": text}
    return {"type": "user", "message": message, "uuid": f"00000000-0000-4000-8000-{number:012d}"}


HOOKS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop")
ANSWERS: dict[str, Json] = {
    "block me": {"decision": "block", "reason": "no"},
    "halt me": {"continue": False, "stopReason": "no"},
}


def answer_to(question: Json) -> Json:
    """A client that lets everything happen, but for what a prompt says."""
    asked = question["request"]
    payload: Json = {}
    if asked["subtype"] == "can_use_tool":
        payload = {"behavior": "allow", "updatedInput": asked["input"]}
        if asked["input"].get("command") == "forbidden":
            payload = {"behavior": "deny", "message": "no"}
    elif asked["subtype"] == "mcp_message":
        number = asked["message"].get("id")
        results: dict[str, Json] = {
            "initialize": {"capabilities": {}, "serverInfo": {"name": "calc", "version": "1"}},
            "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "3"}]},
        }
        result = results.get(asked["message"]["method"], {})
        payload = {"mcp_response": {"jsonrpc": "2.0", "id": number, "result": result}}
    elif asked["subtype"] == "elicitation":
        payload = {"action": "decline"}
    elif asked["input"]["hook_event_name"] == "UserPromptSubmit":
        payload = ANSWERS.get(asked["input"]["prompt"], {})
    elif asked["input"].get("tool_input", {}).get("command") == "hooked":
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
        payload = {"hookSpecificOutput": decision}
    elif asked["input"].get("tool_input", {}).get("command") == "waiting":
        # The process that resumes the call asks without the id of a prompt.
        decided = "defer" if "prompt_id" in asked["input"] else "ask"
        decision = {"hookEventName": "PreToolUse", "permissionDecision": decided}
        payload = {"hookSpecificOutput": decision}
    elif asked["input"].get("last_assistant_message") == "stop me":
        active = asked["input"]["stop_hook_active"]
        payload = {} if active else {"decision": "block", "reason": "go on"}
    response = {"subtype": "success", "request_id": question["request_id"], "response": payload}
    return {"type": "control_response", "response": response}


CONVERSATION = [
    "hello",
    "THINK hard\nSAY hard",
    "BASH ls",
    "BASH forbidden",
    "BASH hooked",
    'CALL mcp__calc__add {"a": 1}',
    'CALL StructuredOutput {"a": 1}',
    "STREAM 3",
    "SAY stop me",
    "block me",
    "halt me",
    "FAIL 529",
]
ARGUMENTS = ["--replay-user-messages", "--permission-prompt-tool", "stdio", "--max-turns", "3"]


class Client:
    """The other end of a fake CLI: writes lines, and answers questions while it waits."""

    def __init__(self, cli: FakeCli, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [cli.path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def write(self, *frames: Json) -> None:
        assert self.process.stdin is not None
        for frame in frames:
            self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        self.process.stdin.flush()

    def read_until(self, *kinds: str) -> Json:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            frame: Json = json.loads(line)
            if frame["type"] == "control_request":
                self.write(answer_to(frame))
            if kind_of(frame).startswith(kinds):
                return frame
        raise AssertionError(f"the fake ended without {kinds}")

    def leave(self) -> int:
        self.process.communicate(timeout=20)
        return self.process.returncode


def hold_conversation(cli: FakeCli, *arguments: str) -> None:
    hooks = {event: [{"matcher": None, "hookCallbackIds": [f"{event}:x"]}] for event in HOOKS}
    client = Client(cli, *ARGUMENTS, *arguments)
    client.write(request("initialize", hooks=hooks, sdkMcpServers=["calc"]))
    client.read_until("control_response/success/initialize")
    for number, text in enumerate(CONVERSATION):
        client.write(prompt(text, number))
        client.read_until("result")
    for subtype in ("set_permission_mode", "set_model", "mcp_status", "nonsense"):
        client.write(request(subtype, mode="acceptEdits", model="opus"))
        client.read_until("control_response")
    client.write(prompt("SLOW", 100))
    client.read_until("system/init")
    client.write(request("interrupt"))
    client.read_until("result/error_during_execution")
    assert client.leave() == 1


def resume_call(flavour: str) -> list[Json]:
    """A call is deferred by one process, and resumed by the next one."""
    frames: list[Json] = []
    hooks = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["PreToolUse:x"]}]}
    session_id = "00000000-0000-4000-8000-00000000abcd"
    with (
        tempfile.TemporaryDirectory() as config,
        pytest.MonkeyPatch.context() as patch,
        FakeCli.auto(flavour=flavour, lifetime=30, transcripts=True) as cli,
    ):
        patch.setenv("CLAUDE_CONFIG_DIR", config)
        client = Client(cli, *ARGUMENTS, f"--session-id={session_id}")
        client.write(request("initialize", hooks=hooks))
        client.read_until("control_response/success/initialize")
        client.write(prompt("BASH waiting", 1))
        assert client.read_until("result")["stop_reason"] == "tool_deferred"
        assert client.leave() == 0
        frames += cli.sent
        awaits = [] if flavour == OLDER else ["--await-initialize"]
        client = Client(cli, *ARGUMENTS, f"--resume={session_id}", *awaits)
        client.write(request("initialize", hooks=hooks))
        assert client.read_until("result")["result"] == "Bash ran: waiting"
        assert client.leave() == 0
        frames += cli.sent
    return frames


@cache
def fake_frames(flavour: str) -> list[Json]:
    """Everything a fake of that version says in a long conversation and a short script."""
    frames: list[Json] = []
    with FakeCli.auto(flavour=flavour, lifetime=30) as cli:
        hold_conversation(cli, "--include-partial-messages")
        frames += cli.sent
        hold_conversation(cli)
        frames += cli.sent
    frames += resume_call(flavour)
    script = FakeCli(flavour=flavour, lifetime=30).expect_initialize().expect_user().start_turn()
    script = script.assistant("one").stream("two ", 3).result("three").turn("four")
    script = script.turn("five", tools=[("Bash", {"command": "ls"}, "out")])
    script = script.ask_permission("Bash", command="ls").withdraw().ask_elicitation("Name?")
    with script as cli:
        client = Client(cli, *ARGUMENTS, "--include-partial-messages")
        client.write(request("initialize"), *(prompt("x", number) for number in range(3)))
        client.read_until("control_request/elicitation")
        assert client.leave() == 0
        frames += cli.sent
    return frames


# ------------------------------------------------------------------------- the comparison


def by_kind(frames: list[Json]) -> dict[str, list[Json]]:
    kinds: dict[str, list[Json]] = defaultdict(list)
    for frame in frames:
        kinds[kind_of(frame)].append(frame)
    return kinds


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_frame_of_the_fake_decodes_without_a_remainder(flavour: str) -> None:
    for frame in fake_frames(flavour):
        decoded = decode_line(json.dumps(frame).encode())
        assert not isinstance(decoded, MalformedLine)
        assert decoded.misfits == (), frame
        assert "Unknown" not in repr(msgspec.structs.astuple(decoded)), frame


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_fake_says_many_kinds_of_things(flavour: str) -> None:
    kinds = {"/".join(kind.split("/")[:2]) for kind in by_kind(fake_frames(flavour))}
    expected = {
        "assistant",
        "control_cancel_request",
        "control_request/can_use_tool",
        "control_request/hook_callback",
        "control_request/mcp_message",
        "control_response/error",
        "control_response/success",
        "result/error_during_execution",
        "result/success",
        "stream_event/content_block_delta",
        "stream_event/message_start",
        "system/informational",
        "system/init",
        "system/notification",
        "system/status",
        "user",
    }
    assert expected - kinds == set()
    assert ("command_lifecycle" in kinds) == (flavour != "2.1.197")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.requirement("S104")
def test_no_frame_has_a_member_that_real_ones_have_not(flavour: str) -> None:
    """R436."""
    strangers: dict[str, list[str]] = {}
    for kind, frames in by_kind(fake_frames(flavour)).items():
        types, _ = shape(frames)
        real, _ = shape(golden(flavour).get(kind, []))
        if not real:
            assert kind in UNRECORDED, kind
            body = {"control_request": "request.", "control_response": "response."}
            prefix = body.get(kind.partition("/")[0], "")
            own = {path.removeprefix(prefix) for path in types if path.startswith(prefix)}
            members = {path for path in own if path and "." not in path and "[" not in path}
            assert members <= UNRECORDED[kind], kind
            continue
        odd = [path for path in types if path not in real]
        if odd:
            strangers[kind] = sorted(odd)
    assert strangers == {}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_frame_lacks_a_member_that_all_real_ones_have(flavour: str) -> None:
    missing: dict[str, list[str]] = {}
    for kind, frames in by_kind(fake_frames(flavour)).items():
        _, always = shape(golden(flavour).get(kind, []))
        _, ours = shape(frames)
        if always - ours:
            missing[kind] = sorted(always - ours)
    assert missing == {}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_member_has_a_type_that_real_ones_have(flavour: str) -> None:
    wrong: dict[str, dict[str, list[str]]] = {}
    for kind, frames in by_kind(fake_frames(flavour)).items():
        types, _ = shape(frames)
        real, _ = shape(golden(flavour).get(kind, []))
        odd = {
            path: sorted(found - real[path])
            for path, found in types.items()
            if path in real and found - real[path]
        }
        if odd:
            wrong[kind] = odd
    assert wrong == {}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_ids_of_frames_are_unique_within_a_run(flavour: str) -> None:
    with FakeCli.auto(flavour=flavour, lifetime=30) as cli:
        hold_conversation(cli)
        ids = [frame["uuid"] for frame in cli.sent if frame.get("uuid") and "isReplay" not in frame]
        assert len(ids) == len(set(ids))
