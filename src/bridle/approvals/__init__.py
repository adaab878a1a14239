"""Tool calls that wait for a person's decision, as records that can be stored."""

from __future__ import annotations

from typing import Any

import msgspec

from bridle import errors
from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError

__all__ = ["PendingApproval"]

_FORMAT = 1
"""The version of the JSON form."""

_FIX = "Store the text of PendingApproval.to_json() and pass it unchanged."


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that waits for a person's decision, because a hook returned `Defer`.

    Get it from `outcome.pending`, and pass it to `Agent.resume` with the decision. To decide in
    another process, store the text of `to_json()` and read it there with `from_json()`. Show
    `tool_name` and `tool_input` to the person who decides. The input may be confidential.

    This record does not contain the conversation. `Agent.resume` loads the conversation from the
    agent's store. Without a store, the CLI's transcript file must be on the machine that resumes.
    """

    #: The conversation that the call belongs to.
    session_id: str
    tool_name: str
    #: The input of the tool. The decision and hooks can still change it.
    tool_input: JsonObject
    tool_use_id: str
    #: The working directory of the CLI, or None if it is not known.
    cwd: str | None = None
    #: The transcript of the conversation, or None if the path is not known.
    transcript_path: str | None = None
    #: The permission mode when the call was deferred, or None if it is not known.
    permission_mode: str | None = None
    #: The version of the CLI that deferred the call, or None if it is not known.
    cli_version: str | None = None
    #: When the call was deferred: Unix time in seconds, or None if it is not known.
    deferred_at: float | None = None

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return msgspec.json.encode(_Stored(pending_approval=_FORMAT, call=self)).decode()

    @staticmethod
    def from_json(text: str | bytes) -> PendingApproval:
        """Read the text of `to_json` and return the record.

        Raises:
            OptionsError: the text is not the JSON of a record, or a newer version of Bridle wrote
                it.
        """
        try:
            header = _decode_header(text)
        except (msgspec.MsgspecError, UnicodeError, TypeError, RecursionError) as error:
            problem = f"is not the JSON text of a PendingApproval: {error}"
            raise OptionsError("pending", problem, fix=_FIX) from None
        if header.pending_approval != _FORMAT:
            problem = f"has the format {header.pending_approval}, and this version reads {_FORMAT}"
            fix = "Update Bridle in the process that reads it."
            raise OptionsError("pending", problem, fix=fix)
        try:
            call = _decode_stored(text).call
        except (msgspec.MsgspecError, RecursionError) as error:
            raise OptionsError("pending", f"is damaged: {error}", fix=_FIX) from None
        return check_pending(call)


class _Header(msgspec.Struct):
    pending_approval: int


class _Stored(msgspec.Struct):
    pending_approval: int
    call: PendingApproval


# Built here: threads of an application may read records at the same time, and msgspec crashes the
# process if one thread decodes a class while another one builds its decoder.
_decode_header = msgspec.json.Decoder(_Header).decode
_decode_stored = msgspec.json.Decoder(_Stored).decode


def check_pending(pending: object) -> PendingApproval:
    """Check a record and return it.

    Raises:
        OptionsError: the value is not a PendingApproval, or a field that `Agent.resume` needs is
            empty or invalid.
    """
    if not isinstance(pending, PendingApproval):
        problem = f"must be a PendingApproval, got {type(pending).__name__}"
        fix = "Pass outcome.pending, or PendingApproval.from_json(text)."
        raise OptionsError("pending", problem, fix=fix)
    texts: dict[str, Any] = {
        name: getattr(pending, name) for name in ("session_id", "tool_name", "tool_use_id")
    }
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise OptionsError("pending", f"has no {name}", fix=_FIX)
    for name in ("cwd", "transcript_path"):
        path = getattr(pending, name)
        if path is not None and (not isinstance(path, str) or "\0" in path or path[:1] != "/"):
            raise OptionsError("pending", f"has a {name} that is not an absolute path", fix=_FIX)
    return pending


# The signature of `ApprovalPending` names this class. Its module cannot import it.
errors.__dict__["PendingApproval"] = PendingApproval
