"""Run the fake CLI from start to exit: arguments, signals, and its script."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import NoReturn

from .frames import Frames, new_session_id
from .model import Model
from .payloads import MODELS, OLDER
from .port import BadInput, Port
from .script import Script
from .speech import Speaker
from .talk import Talk
from .tools import split_rules
from .transcripts import Transcript, place_of
from .values import Json, as_list, as_object


def main(script: str, argv: list[str]) -> NoReturn:
    """Run the plan in the file ``script``, as a CLI called with ``argv``."""
    with open(script, encoding="utf-8") as file:
        plan: Json = json.load(file)
    signal.alarm(plan["lifetime"])
    if argv in (["--version"], ["-v"]):
        time.sleep(plan["version_after"])
        _tell_version(plan["version"])
    where = os.path.dirname(script)
    newer = plan["flavour"] != OLDER
    port = Port(f"{where}/run-{time.time_ns()}-{os.getpid()}.ndjson", newer=newer)
    port.note(argv=argv, env=dict(os.environ), cwd=os.getcwd(), pid=os.getpid())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: _on_signal(port, 128 + number))
    signal.signal(signal.SIGINT, lambda _number, _frame: _on_signal(port, 0))
    time.sleep(plan["slow_start"])
    try:
        port.leave(_run(port, plan, argv))
    except BadInput as problem:
        port.complain(f"{problem}\n".encode())
        port.leave(1)


def _tell_version(version: str | int | None) -> NoReturn:
    """Print a text, exit with a code, or hang if ``version`` is None."""
    if version is None:
        while True:
            time.sleep(3600)
    if isinstance(version, str):
        os.write(1, version.encode() + b"\n")
        os._exit(0)
    os._exit(version)


def _on_signal(port: Port, code: int) -> NoReturn:
    port.note(signal=code)
    port.leave(code)


def _run(port: Port, plan: Json, argv: list[str]) -> int:
    if plan["bad_flag"] is not None:
        port.note(refused="option")
        port.complain(f"error: unknown option '{plan['bad_flag']}'\n".encode())
        return 1
    for flag in ("--await-claim", "--await-initialize"):
        if flag in argv and plan["flavour"] == OLDER:
            port.note(refused="option")
            port.complain(f"error: unknown option '{flag}'\n".encode())
            return 1
    resumed = _value(argv, "--resume")
    forks = "--fork-session" in argv
    named = None if forks or resumed is None else _name(resumed)
    session_id = _value(argv, "--session-id") or named or new_session_id()
    model = _value(argv, "--model") or "default"
    mode = _value(argv, "--permission-mode") or "default"
    if "--dangerously-skip-permissions" in argv:
        mode = "bypassPermissions"
    keeps = plan["transcripts"]
    frames = Frames(plan["flavour"], session_id, MODELS.get(model, model), mode)
    frames.awaits_initialize = "--await-initialize" in argv
    if resumed is not None and plan["unknown_session"]:
        return _cannot_resume(port, frames, resumed)
    flags = _flags(argv, mode, plan)
    partial = "--include-partial-messages" in argv
    speaker = Speaker(port, frames, echoes=flags["echoes"], partial=partial)
    if plan["steps"] is not None:
        return Script(port, frames, speaker, flags, plan["patience"]).run(plan["steps"])
    talk = Talk(port, frames, speaker, flags, Model(plan["reply"], frames.run))
    if keeps:
        frames.transcript_path = path = place_of(resumed, session_id)
        reports, delay = "--session-mirror" in argv, plan["transcript_delay"]
        port.transcript = Transcript(frames, path, reports=reports, delay=delay)
        talk.known |= dict.fromkeys(port.transcript.known, True)
    signal.signal(signal.SIGINT, lambda _number, _frame: talk.on_sigint())
    return talk.run()


def _flags(argv: list[str], mode: str, plan: Json) -> Json:
    """Return what the arguments and the environment switch on."""
    allowed = [*_values(argv, "--allowedTools"), *_values(argv, "--allowed-tools")]
    bypass = ("--allow-dangerously-skip-permissions", "--dangerously-skip-permissions")
    must_ask = _ask_rules(_value(argv, "--settings"))
    return {
        "echoes": "--replay-user-messages" in argv,
        "asks": _value(argv, "--permission-prompt-tool") == "stdio",
        "allowed": [rule for text in allowed for rule in split_rules(text)],
        "servers": _in_process_servers(_values(argv, "--mcp-config")),
        "must_ask": must_ask,
        "started_asking": must_ask,
        "may_bypass": mode == "bypassPermissions" or any(flag in argv for flag in bypass),
        "max_turns": int(_value(argv, "--max-turns") or 0),
        "checkpoints": bool(os.environ.get("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING")),
        "latency": plan["latency"],
        "spare": "--await-claim" in argv,
        "odd_version": plan["version"] != f"{plan['flavour']} (Claude Code)",
    }


def _ask_rules(settings: str | None) -> list[str]:
    """Return the tools that settings, given as a path or as JSON, tell the CLI to ask about."""
    return as_list(as_object(_object(settings or "{}").get("permissions")).get("ask"))


def _in_process_servers(configs: list[str]) -> list[str]:
    """Return the names of the MCP servers in the client that are on the command line."""
    servers: Json = {}
    for config in configs:
        servers |= as_object(_object(config).get("mcpServers"))
    return [name for name, server in servers.items() if as_object(server).get("type") == "sdk"]


def _object(text: str) -> Json:
    """Return a JSON object, given as text or as the path of a file. Empty if it is invalid."""
    try:
        if not text.lstrip().startswith("{"):
            with open(text, encoding="utf-8-sig") as file:
                text = file.read()
        return as_object(json.loads(text))
    except (OSError, ValueError):
        return {}


def _values(argv: list[str], flag: str) -> list[str]:
    """Return all values of a flag that takes several. It may also be given several times."""
    found: list[str] = []
    takes = False
    for argument in argv:
        if argument.startswith("-"):
            name, has_value, value = argument.partition("=")
            takes = name == flag and not has_value
            if name == flag and has_value:
                found.append(value)
        elif takes:
            found.append(argument)
    return found


def _value(argv: list[str], flag: str) -> str | None:
    """Return the value of a flag, from the next argument or after an equals sign."""
    for at, argument in enumerate(argv):
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
        if argument == flag and at + 1 < len(argv):
            return argv[at + 1]
    return None


def _name(resumed: str) -> str:
    """Return the id of a session that is resumed by its id, or by the path of its transcript."""
    return os.path.basename(resumed).removesuffix(".jsonl")


def _cannot_resume(port: Port, frames: Frames, session_id: str) -> int:
    text = f"No conversation found with session ID: {session_id}"
    port.note(refused="session")
    port.complain(f"{text}\n".encode())
    port.send(
        frames.result(
            [],
            0,
            subtype="error_during_execution",
            is_error=True,
            errors=[text],
            stop_reason=None,
            terminal_reason=...,
            fast_mode_state=...,
            fast_mode_disabled_reason=...,
            subagent_stats=...,
            safety_stops=...,
            queued_turn_count=...,
            model_usage_since_last_result=...,
        )
    )
    return 1
