"""The start of a session: one word to whoever waits, and what the CLI says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from bridle._engine.actions import Action, Reject, Resolve
from bridle._engine.handshake import Handshake, early_exit
from bridle._engine.session_state import SessionState
from bridle._engine.versions import MINIMUM
from bridle.errors import (
    CliExitedDuringInit,
    InitializationTimeout,
    OptionsError,
    ProcessInfo,
    SessionNotFoundError,
    UnsupportedCliVersionError,
)

LATE = InitializationTimeout(60.0)


def waiting(key: str | None = "key") -> tuple[Handshake, list[Action]]:
    actions: list[Action] = []
    handshake = Handshake(actions.append, {}, SessionState())
    if key is not None:
        handshake.wait(key)
    return handshake, actions


def test_a_waiter_gets_the_success_once() -> None:
    handshake, actions = waiting()
    handshake.succeed()
    handshake.succeed()
    handshake.fail(LATE)
    assert actions == [Resolve("key", None)]


def test_a_waiter_gets_the_failure_once() -> None:
    """R250: what comes after the verdict is ignored."""
    handshake, actions = waiting()
    handshake.fail(LATE)
    handshake.fail(LATE)
    handshake.succeed()
    assert actions == [Reject("key", LATE)]


def test_a_waiter_that_gave_up_gets_no_result() -> None:
    handshake, actions = waiting()
    handshake.cancel("another")
    handshake.cancel("key")
    handshake.succeed()
    assert actions == []


def test_a_handshake_completes_without_a_waiter() -> None:
    handshake, actions = waiting(None)
    handshake.succeed()
    handshake.fail(LATE)
    assert actions == []


@pytest.mark.parametrize(
    ("info", "capabilities"),
    [
        (None, ()),
        ({}, ()),
        ({"capabilities": None}, ()),
        ({"capabilities": {"a": 1}}, ()),
        ({"capabilities": []}, ()),
        ({"capabilities": ["a", 5, "b"]}, ("a", "b")),
    ],
)
@pytest.mark.requirement("S054")
def test_capabilities_are_read_if_there_are_any(
    info: dict[str, Any] | None, capabilities: tuple[str, ...]
) -> None:
    """R224, R228: a thin answer is no failure."""
    handshake, _ = waiting()
    handshake.server_info = info
    assert handshake.capabilities == capabilities


@pytest.mark.parametrize(
    ("info", "older"), [(None, True), ({}, True), ({"claude_code_version": "2.1.325"}, False)]
)
def test_a_cli_that_does_not_tell_its_version_is_an_older_one(
    info: dict[str, Any] | None, older: bool
) -> None:
    handshake, _ = waiting()
    handshake.server_info = info
    assert handshake.is_with_older_cli is older


def test_an_initialize_request_json_cannot_carry_is_refused_before_anything_starts() -> None:
    with pytest.raises(OptionsError) as refused:
        Handshake(lambda _: None, {"agents": {1, 2, object()}}, SessionState())
    assert refused.value.field == "options"


def test_a_cli_without_some_of_the_options_is_reported_as_too_old() -> None:
    """R248, R388, R398, C23."""
    process = ProcessInfo(
        exit_code=1, stderr_tail="error: unknown option '--x'", cli_version="2.0.1"
    )
    error = early_exit(process, ("something else",))
    assert isinstance(error, UnsupportedCliVersionError)
    assert (error.found, error.minimum) == ("2.0.1", str(MINIMUM))
    assert "2.0.1" in str(error)


NOT_FOUND = {
    "No conversation found with session ID: s-1": "s-1",
    "Error: --resume requires a valid session ID or session title when used with --print. Usage: "
    'claude -p --resume <session-id|title>. Provided value "my talk" is not a UUID and does not '
    "match any session title.": "my talk",
}


@pytest.mark.parametrize("words", NOT_FOUND)
@pytest.mark.parametrize("place", ["stderr", "result"])
def test_a_cli_that_does_not_know_the_conversation_is_a_session_not_found(
    words: str, place: str
) -> None:
    tail, complaints = (f"{words}\n", ()) if place == "stderr" else ("", (words,))
    error = early_exit(ProcessInfo(exit_code=1, stderr_tail=tail), complaints)
    assert isinstance(error, SessionNotFoundError)
    assert error.session_id == NOT_FOUND[words]


@pytest.mark.parametrize(
    ("complaints", "message"),
    [((), ""), (("No model found",), "No model found"), (("a", "b"), "a; b")],
)
def test_a_cli_that_left_early_says_why_if_it_did(
    complaints: tuple[str, ...], message: str
) -> None:
    """R239, R249."""
    error = early_exit(ProcessInfo(exit_code=1), complaints)
    assert isinstance(error, CliExitedDuringInit)
    assert error.message == message
