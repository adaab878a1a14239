"""Texts of errors that programs match on are those of the official SDK."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import claude_agent_sdk as official
import pytest

from bridle.compat import claude_agent_sdk as dropin

ID, OTHER = str(uuid4()), str(uuid4())
PACKAGES = pytest.mark.parametrize("sdk", [official, dropin], ids=["official", "dropin"])
PROMPT = {
    "type": "user",
    "uuid": OTHER,
    "parentUuid": None,
    "sessionId": ID,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "message": {"role": "user", "content": "hello"},
}


class Bare:
    """A store with the two methods that every store needs."""

    async def append(self, key: object, entries: object) -> None:
        """Forget the entries."""

    async def load(self, key: dict[str, str]) -> list[dict[str, Any]]:
        return [{"type": "summary", "summary": "s"}] if key["session_id"] == OTHER else []


def options(sdk: ModuleType, **values: Any) -> Any:
    return sdk.ClaudeAgentOptions(**values)


async def ask(sdk: ModuleType, **values: Any) -> None:
    async for _ in sdk.query(prompt="hello", options=options(sdk, **values)):
        raise AssertionError("the options are accepted")


async def first_message(sdk: ModuleType) -> None:
    await anext(sdk.ClaudeSDKClient().receive_messages())


async def first_of_response(sdk: ModuleType) -> None:
    await anext(sdk.ClaudeSDKClient().receive_response())


async def never_asked(*_: object) -> Any:
    raise AssertionError("the CLI is not started")


NOT_CONNECTED = "Not connected. Call connect() first."
INVALID = "Invalid session_id: x"
MISSING = f"Session {ID} not found"
ELSEWHERE = f"{MISSING} in project directory for /elsewhere"

CASES: dict[str, tuple[type[Exception] | str, str, Callable[[ModuleType], Any]]] = {
    "query": ("CLIConnectionError", NOT_CONNECTED, lambda sdk: sdk.ClaudeSDKClient().query("x")),
    "interrupt": (
        "CLIConnectionError",
        NOT_CONNECTED,
        lambda sdk: sdk.ClaudeSDKClient().interrupt(),
    ),
    "info": (
        "CLIConnectionError",
        NOT_CONNECTED,
        lambda sdk: sdk.ClaudeSDKClient().get_server_info(),
    ),
    "messages": ("CLIConnectionError", NOT_CONNECTED, first_message),
    "response": ("CLIConnectionError", NOT_CONNECTED, first_of_response),
    "rename, id": (ValueError, INVALID, lambda sdk: sdk.rename_session("x", "t")),
    "rename, title": (
        ValueError,
        "title must be non-empty",
        lambda sdk: sdk.rename_session(ID, " "),
    ),
    "rename, missing": (
        FileNotFoundError,
        f"{MISSING} in any project directory",
        lambda sdk: sdk.rename_session(ID, "t"),
    ),
    "rename, elsewhere": (
        FileNotFoundError,
        ELSEWHERE,
        lambda sdk: sdk.rename_session(ID, "t", "/elsewhere"),
    ),
    "tag, id": (ValueError, INVALID, lambda sdk: sdk.tag_session("x", "t")),
    "tag, blank": (
        ValueError,
        "tag must be non-empty (use None to clear)",
        lambda sdk: sdk.tag_session(ID, "\u200b"),
    ),
    "tag, missing": (
        FileNotFoundError,
        f"{MISSING} in any project directory",
        lambda sdk: sdk.tag_session(ID, "t"),
    ),
    "delete, id": (ValueError, INVALID, lambda sdk: sdk.delete_session("x")),
    "delete, missing": (FileNotFoundError, MISSING, lambda sdk: sdk.delete_session(ID)),
    "delete, elsewhere": (
        FileNotFoundError,
        ELSEWHERE,
        lambda sdk: sdk.delete_session(ID, "/elsewhere"),
    ),
    "fork, id": (ValueError, INVALID, lambda sdk: sdk.fork_session("x")),
    "fork, missing": (FileNotFoundError, MISSING, lambda sdk: sdk.fork_session(ID)),
    "fork, message": (
        ValueError,
        "Invalid up_to_message_id: y",
        lambda sdk: sdk.fork_session(ID, up_to_message_id="y"),
    ),
    "fork, other message": (
        ValueError,
        f"Message {ID} not found in session {OTHER}",
        lambda sdk: sdk.fork_session(OTHER, up_to_message_id=ID),
    ),
    "import, id": (ValueError, INVALID, lambda sdk: sdk.import_session_to_store("x", Bare())),
    "import, missing": (
        FileNotFoundError,
        MISSING,
        lambda sdk: sdk.import_session_to_store(ID, Bare(), directory="/elsewhere"),
    ),
    "store, rename": (
        ValueError,
        INVALID,
        lambda sdk: sdk.rename_session_via_store(Bare(), "x", "t"),
    ),
    "store, title": (
        ValueError,
        "title must be non-empty",
        lambda sdk: sdk.rename_session_via_store(Bare(), ID, ""),
    ),
    "store, tag": (
        ValueError,
        "tag must be non-empty (use None to clear)",
        lambda sdk: sdk.tag_session_via_store(Bare(), ID, " "),
    ),
    "store, delete": (ValueError, INVALID, lambda sdk: sdk.delete_session_via_store(Bare(), "x")),
    "store, fork": (ValueError, INVALID, lambda sdk: sdk.fork_session_via_store(Bare(), "x")),
    "store, fork message": (
        ValueError,
        "Invalid up_to_message_id: y",
        lambda sdk: sdk.fork_session_via_store(Bare(), ID, up_to_message_id="y"),
    ),
    "store, fork missing": (
        FileNotFoundError,
        MISSING,
        lambda sdk: sdk.fork_session_via_store(Bare(), ID),
    ),
    "store, nothing to fork": (
        ValueError,
        f"Session {OTHER} has no messages to fork",
        lambda sdk: sdk.fork_session_via_store(Bare(), OTHER),
    ),
    "store, list": (
        ValueError,
        "session_store implements neither list_session_summaries() nor list_sessions()",
        lambda sdk: sdk.list_sessions_from_store(Bare()),
    ),
    "store, subagents": (
        ValueError,
        "session_store does not implement list_subkeys()",
        lambda sdk: sdk.list_subagents_from_store(Bare(), ID),
    ),
    "store, continue": (
        ValueError,
        "continue_conversation with session_store requires the store to implement list_sessions()",
        lambda sdk: ask(sdk, session_store=Bare(), continue_conversation=True),
    ),
    "store, checkpoints": (
        ValueError,
        "session_store cannot be combined with enable_file_checkpointing",
        lambda sdk: ask(sdk, session_store=Bare(), enable_file_checkpointing=True),
    ),
    "two ways to ask": (
        ValueError,
        "can_use_tool callback cannot be used with permission_prompt_tool_name.",
        lambda sdk: ask(sdk, can_use_tool=never_asked, permission_prompt_tool_name="x"),
    ),
    "no cli": (
        "CLINotFoundError",
        "Claude Code not found at: /nowhere/claude",
        lambda sdk: ask(sdk, cli_path="/nowhere/claude"),
    ),
    "no directory": (
        "CLIConnectionError",
        "Working directory does not exist: /nowhere",
        lambda sdk: ask(sdk, cwd="/nowhere"),
    ),
}


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which the CLI keeps sessions, with one session."""
    import json

    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    project = tmp_path / "projects" / "-elsewhere"
    project.mkdir(parents=True)
    line = json.dumps({**PROMPT, "sessionId": OTHER}) + "\n"
    (project / f"{OTHER}.jsonl").write_text(line, "utf-8")
    return project.parent


@PACKAGES
@pytest.mark.parametrize("name", CASES)
def test_an_error_has_the_class_and_the_text(name: str, sdk: ModuleType, projects: Path) -> None:
    """The drop-in may say more after this text, such as what to do."""
    kind, text, call = CASES[name]
    expected: type[Exception] = getattr(sdk, kind) if isinstance(kind, str) else kind

    async def main() -> None:
        result = call(sdk)
        if inspect.isawaitable(result):
            await result

    with pytest.raises(expected) as caught:
        asyncio.run(main())
    assert str(caught.value).startswith(text)


@PACKAGES
def test_a_title_without_any_project_says_so(
    sdk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"not found \(no projects directory\)"):
        sdk.rename_session(ID, "t")
