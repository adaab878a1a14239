"""Find a tool call that waits for approval, and what is needed to resume it.

The CLI resumes such a call by itself when it starts, and may run it without asking. So Bridle looks
for it in the transcript before it starts a CLI for the conversation.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from bridle._callbacks.results.permission_results import serialise_permission
from bridle._engine.incoming.answers import InvalidResult
from bridle._engine.incoming.callback_contexts import decode_can_use_tool
from bridle._engine.incoming.waiting_call import AWAIT_INITIALIZE_SINCE, DEFER_SINCE
from bridle._engine.versions import Version
from bridle._observe.user_values import describe_error
from bridle._process.config_directory import place_of, working_directory
from bridle._process.launch.plan import Launch, ResumedCall
from bridle._process.locate import find_cli, version_of
from bridle._process.session_locks import StartLock
from bridle._records.raw_line import JsonObject
from bridle.approvals import PendingApproval
from bridle.controls import CanUseToolRequest
from bridle.errors import (
    CallMayHaveRun,
    OptionsError,
    SessionNotFoundError,
    UnsupportedCliVersionError,
    UsageError,
)
from bridle.options import STDIO, CliOptions
from bridle.options._checks import is_uuid
from bridle.sessions._backlog import DEFERRED
from bridle.sessions._start_calls import naming_session
from bridle.sessions._transcripts.files import SUFFIX, TranscriptFiles
from bridle.sessions._transcripts.stored_turns import naming_call, waiting_call
from bridle.sessions._transcripts.summaries import SessionInfo
from bridle.sessions._transcripts.transcript import entries_of_bytes

# ---------------------------------------------------------------- the call that waits


async def waiting_in_files(
    launch: Launch,
    cli: CliOptions,
    lock: StartLock | None = None,
    *,
    must_exist: bool = False,
    wait: float = 0.0,
) -> PendingApproval | None:
    """Return the call that waits in the conversation that a CLI without a store is to resume.

    The conversation is locked first, and stays locked: release ``lock``, or start the CLI with it.
    ``wait`` is how many seconds to wait while another program has the conversation. Not locked are
    a conversation that the CLI only copies, and several that have the same title. Without ``lock``,
    nothing is locked, and the conversation may change at once.

    Raises:
        SessionNotFoundError: there is no transcript, and ``must_exist`` is True. Or no conversation
            has the title, and the CLI might find one in which a call waits.
        SessionInUseError: another program has the conversation.
        SessionLoadError: the transcript cannot be read.
    """
    place, loop = place_of(launch), asyncio.get_running_loop()
    free_by = loop.time() + wait
    is_written = not cli.fork_session and not cli.no_session_persistence
    locked: str | None = None
    with naming_session(cli.resume_session_id or ""):
        while True:
            found = await loop.run_in_executor(
                None, _transcripts, place.config, working_directory(launch), cli.resume_session_id
            )
            session_id = launch.writes_id or (found[0].stem if len(found) == 1 else None)
            if lock is None or not is_written or session_id in (None, locked):
                break
            # The program that had the lock may have changed which conversation is the last one.
            await lock.take(launch, session_id, free_by - loop.time())
            locked = session_id
        if must_exist and not any(map(os.path.exists, found)):
            raise SessionNotFoundError(Path(cli.resume_session_id or "").stem)
        for path in found:
            waiting = await loop.run_in_executor(None, waiting_in_file, path)
            if waiting is not None:
                return waiting
    return None


def _transcripts(config: str, cwd: str, named: str | None) -> list[Path]:
    """Return the transcript of the conversation to resume: by its id, path or title. Blocks.

    None means the last conversation of the directory. Several may have the same title.

    Raises:
        SessionNotFoundError: no conversation of the directory has this title, and the CLI might
            find another one, whose call it would run.
    """
    here = TranscriptFiles(cwd, config)
    if named is None:
        ids = [one.session_id for one in here.list(1, 0)]
    elif is_uuid(session_id := named.strip()):
        path = here.path(session_id) or TranscriptFiles(None, config).path(session_id)
        return [] if path is None else [path]
    elif named.endswith(SUFFIX):
        return [Path(cwd, named)]
    else:
        return _titled(here.list(None, 0), TranscriptFiles(None, config), named)
    return [path for one in ids if (path := here.path(one)) is not None]


def _titled(here: Iterable[SessionInfo], everywhere: TranscriptFiles, named: str) -> list[Path]:
    """Return the transcripts of the conversations with this title. Blocks.

    The CLI also looks in the other worktrees of a repository. So if there is none here, the CLI may
    look on its own only if nothing that it could find has a call that waits.
    """
    paths = {Path(one.path): _has_title(one, named) for one in here if one.path is not None}
    found = [path for path, is_named in paths.items() if is_named]
    if found:
        return found
    others = (one.path for one in everywhere.list(None, 0) if _has_title(one, named))
    for path in {*paths, *map(Path, filter(None, others))}:
        if waiting_in_file(path) is not None:
            error = SessionNotFoundError(named)
            error.fix = (
                "Resume by the id of the session. Bridle starts no CLI for an unknown title while "
                "a call waits for approval in a conversation that the CLI could find."
            )
            raise error
    return []


def _has_title(info: SessionInfo, title: str) -> bool:
    """Compare as the CLI does, without case and outer spaces. The summary may be the AI's title."""
    return _folded(title) in {_folded(info.custom_title or ""), _folded(info.summary)}


def _folded(title: str) -> str:
    return " ".join(title.split()).casefold()


def waiting_in_file(path: Path) -> PendingApproval | None:
    """Return the call that waits in a transcript, which has the session's id as its name. Blocks.

    It is the last deferred call, unless a later line names it. This is the rule of the CLI: it runs
    the call also if a prompt followed. A file that does not exist has none.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for start in _lines_with_marker(data):
                    end = data.find(b"\n", start)
                    end = len(data) if end < 0 else end
                    found = waiting_call(entries_of_bytes(data[start:end]), path.stem)
                    if found is not None:
                        if _is_named(found.tool_use_id, data, end):
                            return None
                        return structs.replace(found, transcript_path=str(path))
    except FileNotFoundError:
        pass
    return None


def _is_named(tool_use_id: str, data: mmap.mmap, end: int) -> bool:
    """Return whether a line from ``end`` on names a deferred call, so that it waits no more."""
    return data.find(naming_call(tool_use_id), end) >= 0 or any(
        tool_use_id in entry.tool_results for entry in entries_of_bytes(data[end:])
    )


def _lines_with_marker(data: mmap.mmap) -> Iterator[int]:
    """Yield where the lines begin that have the marker of a deferred call, the last one first."""
    position = data.rfind(DEFERRED.encode())
    while position >= 0:
        start = data.rfind(b"\n", 0, position) + 1
        yield start
        position = data.rfind(DEFERRED.encode(), 0, start)


def refuse_begun(pending: PendingApproval, begun: Mapping[str, bool]) -> None:
    """Check that a call has not begun to run.

    ``begun`` has the calls of the journal, and whether a recovery is needed for them.

    Raises:
        CallMayHaveRun: it has begun in a process that died.
    """
    needs_recovery = begun.get(pending.tool_use_id)
    if needs_recovery is None:
        return
    fix = (
        "Find out what the call has done. Then finish the turn without the store: "
        "agent.replace(store=None).resume(pending, Deny(reason)). The model reads the reason."
    )
    if needs_recovery:
        fix = (
            f"Call agent.recover({pending.session_id!r}). It tells the model that the tool may "
            "have run, and finishes the turn."
        )
    raise CallMayHaveRun(pending.tool_name, pending.tool_use_id, fix)


_COMPARED = ("session_id", "tool_name", "tool_input")


def check_waiting(pending: PendingApproval, waiting: PendingApproval | None) -> None:
    """Check that the call that a person decided about is the one that waits.

    Raises:
        UsageError: no call waits, or another one does.
        OptionsError: the record differs from the call in the transcript.
    """
    if waiting is None:
        raise UsageError(
            f"The call {pending.tool_use_id} of {pending.tool_name} does not wait for approval.",
            fix="It was decided before, or a prompt followed it. Continue the conversation with "
            "resume_session_id.",
        )
    if waiting.tool_use_id != pending.tool_use_id:
        raise UsageError(
            f"The call {pending.tool_use_id} of {pending.tool_name} does not wait for approval. "
            f"The call {waiting.tool_use_id} of {waiting.tool_name} does.",
            fix="Show that call to the person who decides. ApprovalPending.pending has it.",
        )
    has_directories = pending.cwd is not None and waiting.cwd is not None
    for name in (*_COMPARED, "cwd") if has_directories else _COMPARED:
        if not _is_same(getattr(pending, name), getattr(waiting, name)):
            fix = "Pass outcome.pending, or the unchanged text of PendingApproval.to_json()."
            raise OptionsError("pending", f"has another {name} than the transcript", fix=fix)


def _is_same(given: object, waiting: object) -> bool:
    """Return whether two values are the same JSON, in which 1, 1.0 and true differ."""
    try:
        text = msgspec.json.encode(given, order="sorted")
    except (TypeError, ValueError, RecursionError, OverflowError):
        return False
    return text == msgspec.json.encode(waiting, order="sorted")


# ---------------------------------------------------------------- the decision


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
    if cli.no_session_persistence:
        problem = "is set, so that the CLI could not save that the call was decided"
        raise OptionsError("no_session_persistence", problem, fix="Resume without this option.")
    conversation = pending.session_id if has_store else conversation_of(pending)
    changes: dict[str, Any] = {"resume_session_id": conversation}
    if pending.cwd is not None and os.path.isdir(pending.cwd):
        changes["cwd"] = pending.cwd
    return cli.replace(**changes)


def conversation_of(pending: PendingApproval) -> str:
    """Return the conversation to resume: the path of its transcript, or its id."""
    path = pending.transcript_path
    return path if path is not None and os.path.isfile(path) else pending.session_id


def is_own_transcript(launch: Launch, path: str) -> bool:
    """Return whether a transcript lies where the CLI of the launch keeps its conversations."""
    projects = os.path.realpath(os.path.join(place_of(launch).config, "projects"))
    return os.path.dirname(os.path.dirname(os.path.realpath(path))) == projects


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
