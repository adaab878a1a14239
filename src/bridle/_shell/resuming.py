"""Find what is needed to resume a tool call that waits for approval: transcript, directory, CLI."""

from __future__ import annotations

import os
import time
from typing import Any

from msgspec import structs

from bridle._core.incoming.answers import InvalidResult
from bridle._core.incoming.approvals import AWAIT_INITIALIZE_SINCE, DEFER_SINCE
from bridle._core.incoming.contexts import decode_can_use_tool
from bridle._core.launch import Launch, ResumedCall
from bridle._core.versions import Version
from bridle._raw_line import JsonObject
from bridle._shell.locate import find_cli, version_of
from bridle._shell.permission_results import serialise_permission
from bridle._shell.values import describe_error
from bridle.approvals import PendingApproval
from bridle.controls import CanUseToolRequest
from bridle.errors import OptionsError, UnsupportedCliVersionError
from bridle.options import STDIO, CliOptions
from bridle.outcomes import Outcome


def stamped(outcome: Outcome[Any]) -> Outcome[Any]:
    """Return the outcome with the time at which its call was deferred, if one was."""
    pending = outcome.pending
    if pending is None or pending.deferred_at is not None:
        return outcome
    return structs.replace(outcome, pending=structs.replace(pending, deferred_at=time.time()))


def decision_about(pending: PendingApproval, decision: object) -> JsonObject:
    """Return the decision as the CLI takes it in response to a permission request.

    Raises:
        OptionsError: it is not a decision about this call.
    """
    request = CanUseToolRequest(tool_name=pending.tool_name, input=pending.tool_input)
    try:
        return serialise_permission(decision, decode_can_use_tool(request)).payload
    except InvalidResult as problem:
        said = str(problem)
    except Exception as error:  # raised by values of the user
        said = describe_error(error)
    raise OptionsError("decision", said, fix="Use Allow(), Deny(reason) or Edit(new_input).")


def resumed_options(
    cli: CliOptions, pending: PendingApproval, *, has_store: bool = False
) -> CliOptions:
    """Return the options of a CLI that resumes the conversation of the call.

    It works in the directory of the call if that still exists. With a store, the session finds the
    transcript by its id: in the store, or else in the CLI's own files.

    Raises:
        OptionsError: with these options the CLI would not ask for the decision.
    """
    if cli.permission_mode == "dontAsk":
        problem = "is 'dontAsk', with which the CLI denies the call whatever was decided"
        raise OptionsError("permission_mode", problem, fix="Resume with another permission_mode.")
    if cli.permission_prompts in ("none", "cli"):
        value = cli.permission_prompts
        problem = f"is {value!r}, with which the CLI denies the call whatever was decided"
        raise OptionsError("permission_prompts", problem, fix="Resume without this option.")
    if cli.permission_prompt_tool_name not in (None, STDIO):
        problem = "names another tool, so that the CLI would not ask for the decision"
        fix = "Resume without this option."
        raise OptionsError("permission_prompt_tool_name", problem, fix=fix)
    conversation = pending.session_id if has_store else conversation_of(pending)
    changes: dict[str, Any] = {"resume_session_id": conversation}
    if pending.cwd is not None and os.path.isdir(pending.cwd):
        changes["cwd"] = pending.cwd
    return cli.replace(**changes)


def conversation_of(pending: PendingApproval) -> str:
    """Return the conversation to resume: the path of its transcript, or its id."""
    path = pending.transcript_path
    return path if path is not None and os.path.isfile(path) else pending.session_id


async def resumed_call(cli: CliOptions, launch: Launch, pending: PendingApproval) -> ResumedCall:
    """Ask the CLI for its version, and return how it can resume the call.

    Raises:
        CliNotFoundError: there is no CLI.
        UnsupportedCliVersionError: the CLI cannot resume a call.
    """
    named = cli.cli_path
    answer = await version_of(find_cli(None if named is None else os.fspath(named)), launch)
    version = answer if isinstance(answer, Version) else None
    if version is not None and version < DEFER_SINCE:
        error = UnsupportedCliVersionError(str(version), str(DEFER_SINCE))
        error.fix = "Older versions cannot resume a call. Update the CLI with `claude update`."
        raise error
    waits = version is not None and version >= AWAIT_INITIALIZE_SINCE
    return ResumedCall(pending.tool_name, waits)
