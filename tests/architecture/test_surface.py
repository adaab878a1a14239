"""What each door offers, and what it does not."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from bridle import (
    BidirOptions,
    BridleError,
    CliOptions,
    OptionsError,
    QueryStream,
    SdkOptions,
    Session,
    errors,
    query,
    start_session,
)
from bridle._process.launch.plan import plan_query, plan_session
from bridle.options import RECORDS

UUID = "00000000-0000-4000-8000-000000000001"


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_a_session_offers_everything_that_can_be_asked_and_answered() -> None:
    """R032: hooks, permissions, servers, control, checkpoints and timeouts are on the surface."""
    operations = {"interrupt", "set_permission_mode", "set_model", "rewind_files", "control"}
    assert operations < public(Session)
    answers = {
        "on_pre_tool_use",
        "hooks",
        "on_can_use_tool",
        "mcp_servers",
        "file_checkpointing_enabled",
        "callback_timeout",
        "hook_timeouts",
        "permission_timeout",
    }
    assert answers < set(BidirOptions.fields)
    for name in operations:
        assert "timeout" in inspect.signature(getattr(Session, name)).parameters


def test_a_query_without_callbacks_answers_nothing_and_requests_nothing() -> None:
    """R016: its stream has no control operations, its CLI no channel for requests."""
    assert public(QueryStream) == {"aclose", "pid", "warnings"}
    launch = plan_query(CliOptions(), SdkOptions())
    session = plan_session(CliOptions(), SdkOptions(), BidirOptions(), session_id=UUID)
    assert set(launch.argv) < set(session.argv)
    assert launch.initialize == {}


def test_a_session_is_started_with_three_records_or_their_fields_and_a_prompt() -> None:
    """R033, C16: there is no fourth record."""
    assert list(RECORDS.values()) == [CliOptions, SdkOptions, BidirOptions]
    started = inspect.signature(start_session).parameters
    assert list(started) == [
        *("cli", "sdk", "bidir", "prompt", "deps", "output_type", "output_retries", "options")
    ]
    assert started["prompt"].kind is inspect.Parameter.KEYWORD_ONLY
    assert started["options"].annotation == "Unpack[Options]"
    assert {started[name].default for name in ("cli", "sdk", "bidir", "prompt")} == {None}
    asked = inspect.signature(query).parameters
    assert list(asked) == ["prompt", "cli", "sdk", "bidir", "deps", "options"]
    wrong: Any = query
    with pytest.raises(OptionsError, match="BidirOptions"):
        wrong("hi", BidirOptions())


def test_what_doors_raise_on_purpose_is_an_error_of_bridle(package: Path) -> None:
    """R396: besides its own tree only what Python itself means by an end, a name or a pickle.

    The end of a queue, and what is raised while an answer is validated or in an MCP server, is
    caught in Bridle.
    """
    python = {"AttributeError", "StopAsyncIteration", "StopIteration", "TypeError"}
    for path in [
        path
        for top in ("_pool", "_session", "sync")
        for path in (package / top).rglob("*.py")
        if path.name not in {"mcp_adapter.py", "one_way_run.py", "queues.py", "typed_output.py"}
    ]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func)
                if name.strip("_")[0].islower():
                    continue  # a function that makes the error
                assert name in python or issubclass(getattr(errors, name), BridleError), name


def test_the_package_carries_no_binary(package: Path) -> None:
    """R136, C44: the CLI is found, never bundled; all there is to the package is text."""
    for path in package.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert "\0" not in path.read_text("utf-8"), path
            assert not path.stat().st_mode & 0o111, path


def test_every_call_says_what_it_does_and_what_it_may_raise() -> None:
    """R027: each public call has its contract; those that wait say what cancelling does."""
    for name in sorted(public(Session)):
        assert (getattr(Session, name).__doc__ or "").strip(), name
    for name in ("connect", "control", "stop", "aclose"):
        assert "Cancellation:" in (getattr(Session, name).__doc__ or ""), name
    for name in ("connect", "control", "send_user_message", "rewind_files"):
        assert "Raises:" in (getattr(Session, name).__doc__ or ""), name
