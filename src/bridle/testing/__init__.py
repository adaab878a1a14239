"""Tools for tests that need no API key and no network, and cost nothing.

:class:`ScriptedModel` replaces the API: the real CLI runs, and the model returns the replies in
the test. :class:`FakeCli` replaces the CLI: an executable that sends and expects the lines in the
test. :class:`FakeTransport` replaces the process: the test itself writes every line.
"""

from __future__ import annotations

from bridle._spi import Launch, LaunchFile, Transport, TransportEvents, TransportFactory
from bridle.testing._verify._running.runner import verify
from bridle.testing.contexts import with_deps
from bridle.testing.environment import FORBID_REAL_API, Login, forbid_real_api
from bridle.testing.fake_cli import FakeCli, Replies
from bridle.testing.fake_transport import FakeTransport
from bridle.testing.model_request import ModelRequest
from bridle.testing.script import (
    Answer,
    Block,
    Player,
    Repeat,
    Reply,
    Script,
    Switch,
    disconnect,
    error,
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
from bridle.testing.scripted_model import Rejection, ScriptedModel, ScriptFailure
from bridle.testing.verifications import Promise

__all__ = [
    "FORBID_REAL_API",
    "Answer",
    "Block",
    "FakeCli",
    "FakeTransport",
    "Launch",
    "LaunchFile",
    "Login",
    "ModelRequest",
    "Player",
    "Promise",
    "Rejection",
    "Repeat",
    "Replies",
    "Reply",
    "Script",
    "ScriptFailure",
    "ScriptedModel",
    "Switch",
    "Transport",
    "TransportEvents",
    "TransportFactory",
    "disconnect",
    "error",
    "forbid_real_api",
    "rate_limit_headers",
    "raw",
    "redacted_thinking",
    "refusal",
    "repeat",
    "stream_error",
    "text",
    "thinking",
    "tool_use",
    "verify",
    "with_deps",
]
