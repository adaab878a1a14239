"""Tool calls that wait for a person's decision, as records that can be stored."""

from __future__ import annotations

from typing import Any

import msgspec

from bridle._raw_line import JsonObject
from bridle.errors import OptionsError

__all__ = ["PendingApproval"]

_FORMAT = 1
"""The version of the JSON form."""

_FIX = "Store the text of PendingApproval.to_json() and pass it unchanged."


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that a hook deferred with `Defer`. It waits until `Agent.resume` decides.

    Get it from `outcome.pending`. It holds only data, so that another process can decide later:
    store `to_json()`, and read it with `from_json()`. Show `tool_name` and `tool_input` to the
    person who decides. The input may contain confidential data of the conversation.

    The conversation itself is in the transcript of the CLI. `Agent.resume` needs that file.
    """

    #: The conversation that the call belongs to.
    session_id: str
    tool_name: str
    #: The input that the tool will run with, unless the decision or a hook changes it.
    tool_input: JsonObject
    tool_use_id: str
    #: The working directory of the CLI, or None if it is not known.
    cwd: str | None = None
    #: The transcript of the conversation, or None if the path is not known.
    transcript_path: str | None = None
    #: The permission mode at that time, or None if it is not known.
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
        """Return the record from the text of `to_json`.

        Raises:
            OptionsError: the text is not such a record, or a newer version of Bridle wrote it.
        """
        try:
            header = msgspec.json.decode(text, type=_Header)
        except (msgspec.MsgspecError, UnicodeError, TypeError, RecursionError) as error:
            problem = f"is not the JSON text of a PendingApproval: {error}"
            raise OptionsError("pending", problem, fix=_FIX) from None
        if header.pending_approval != _FORMAT:
            problem = f"has the format {header.pending_approval}, and this version reads {_FORMAT}"
            fix = "Update Bridle in the process that reads it."
            raise OptionsError("pending", problem, fix=fix)
        try:
            call = msgspec.json.decode(text, type=_Stored).call
        except (msgspec.MsgspecError, RecursionError) as error:
            raise OptionsError("pending", f"is damaged: {error}", fix=_FIX) from None
        return check_pending(call)


class _Header(msgspec.Struct):
    pending_approval: int


class _Stored(msgspec.Struct):
    pending_approval: int
    call: PendingApproval


def check_pending(pending: object) -> PendingApproval:
    """Return the record.

    Raises:
        OptionsError: it is something else, or lacks what is needed to resume.
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
