"""Manage the start of a session: the caller that waits for it, and the CLI's own description."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from typing import cast

from bridle._engine.actions import Action, Reject, Resolve, Warn
from bridle._engine.incoming.hook_rules import rule_of
from bridle._engine.outgoing.requests import INITIALIZE
from bridle._engine.session_state import SessionState
from bridle._engine.versions import MINIMUM
from bridle._engine.wire.codec import Unencodable, encode_request
from bridle._records.raw_line import JsonObject
from bridle.errors import (
    BridleError,
    CliExitedDuringInit,
    InitializationError,
    OptionsError,
    ProcessInfo,
    SessionNotFoundError,
    StartError,
    UnsupportedCliVersionError,
)
from bridle.events import SessionReady, WarningKind


class Handshake:
    """The initialize request. Resolves or rejects the key of the waiting caller exactly once.

    Raises:
        OptionsError: ``fields``, the members of the request, hold something JSON cannot carry.
            It is raised here because nothing has been started yet.
    """

    def __init__(
        self,
        emit: Callable[[Action], None],
        fields: Mapping[str, object],
        state: SessionState,
        *,
        is_one_way: bool = False,
    ) -> None:
        try:
            encode_request("", INITIALIZE, fields)
        except Unencodable as problem:
            raise OptionsError("options", str(problem), fix="Use JSON values.") from None
        self._emit = emit
        self._state = state
        self._hooks = cast("Mapping[str, list[JsonObject]]", fields.get("hooks") or {})
        self._has_servers = "mcpServers" in fields
        self._key: Hashable | None = None
        #: True while the CLI's version is being checked. The session runs only after that.
        self.awaits_version = False
        self._is_confirmed = False
        # The capabilities matter only to a session, which sends control requests.
        self._wants_capabilities = not is_one_way
        #: True once the session has been running.
        self.is_done = False
        #: The payload of the CLI's response. None before it, or if it was empty.
        self.server_info: Mapping[str, object] | None = None

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Return the CLI's list of capabilities. Informational: a missing one disables nothing."""
        named = (self.server_info or {}).get("capabilities")
        listed = cast("list[object]", named) if isinstance(named, list) else []
        return tuple(name for name in listed if isinstance(name, str))

    @property
    def is_with_older_cli(self) -> bool:
        """True for a CLI that does not send its version in the response.

        Such a CLI also continues a turn that a hook ended, once the tool is skipped.
        """
        return "claude_code_version" not in (self.server_info or {})

    @property
    def is_idle(self) -> bool:
        """True if the CLI says that no turn runs. Older CLIs do not say it."""
        return (self.server_info or {}).get("session_state") == "idle"

    def answered(self, info: Mapping[str, object] | None) -> InitializationError | None:
        """Take the payload of the response to initialize.

        Return an error if the CLI did not register hooks of a gate, or hooks that must not fail, or
        if it did not take the MCP servers of the request.
        """
        self.server_info = info
        named = (info or {}).get("claude_code_version")
        self._state.sent_version = named if isinstance(named, str) else None
        if self._wants_capabilities and not self.capabilities:
            self._emit(Warn(WarningKind.MISSING_CAPABILITIES, "initialize named none"))
        if self._has_servers and (info or {}).get("mcp_servers_applied") is not True:
            return InitializationError(
                "the CLI did not take the servers of mcp_config from the handshake. Set "
                "mcp_config_delivery='file', or use CLI 2.1.326 or newer"
            )
        if not self._hooks or (info or {}).get("hooks_applied") is not False:
            return None
        problem = f"the CLI did not register the hooks ({', '.join(self._hooks)})"
        matchers = (one for listed in self._hooks.values() for one in listed)
        must_run = any(one.get("onFailure") == "block" for one in matchers)
        if must_run or any(rule_of(event).is_gate for event in self._hooks):
            return InitializationError(problem)
        self._emit(Warn(WarningKind.HOOK_FAILED, f"{problem} and will not call them"))
        return None

    def ready(self, session_id: str) -> SessionReady:
        """Return the event that says the session is running."""
        return SessionReady(session_id or None, self.capabilities, self._state.cli_version)

    def confirm(self) -> bool:
        """Note that the CLI accepts the session. Return True if it may run now."""
        self._is_confirmed = True
        return not self.awaits_version

    def accept_version(self) -> bool:
        """Note that the CLI's version is supported. Return True if the session may run now."""
        self.awaits_version = False
        return self._is_confirmed

    def wait(self, key: Hashable) -> None:
        """Set the key that is resolved or rejected when the handshake ends."""
        self._key = key

    def cancel(self, key: Hashable) -> None:
        """Stop waiting for ``key``."""
        if self._key == key:
            self._key = None

    def succeed(self) -> None:
        """Resolve the key, because the session runs."""
        self.is_done = True
        if self._key is not None:
            self._emit(Resolve(self._key, None))
            self._key = None

    def fail(self, error: BridleError) -> None:
        """Reject the key, because the session will never run."""
        if self._key is not None:
            self._emit(Reject(self._key, error))
            self._key = None


# Errors of CLIs that cannot resume a conversation, with the id or title they quote.
_NOT_FOUND = (
    re.compile(r"No conversation found with session ID: (.+)"),
    re.compile(r'--resume requires a valid session ID.* Provided value "(.*)" is not a UUID'),
)


def unknown_session(
    process: ProcessInfo, last_errors: tuple[str, ...]
) -> SessionNotFoundError | None:
    """Return the error for a CLI that exited because it does not know the conversation."""
    said = "\n".join([process.stderr_tail, *last_errors])
    found = next((match for one in _NOT_FOUND if (match := one.search(said))), None)
    return SessionNotFoundError(found[1].strip()) if found else None


def early_exit(process: ProcessInfo, last_errors: tuple[str, ...]) -> StartError:
    """Return the error for a CLI that exited before it was ready, based on its error output."""
    if error := unknown_session(process, last_errors):
        return error
    if "unknown option" in process.stderr_tail:
        found = process.cli_version
        return UnsupportedCliVersionError(found, str(MINIMUM), unknown_option=True)
    return CliExitedDuringInit("; ".join(last_errors))
