"""``bridle sessions``: list, show, export and delete stored sessions."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bridle import sync
from bridle._spi import UserText, config_directory, is_uuid, seconds_of
from bridle.cli._screens.printable import one_line, printable, printable_json
from bridle.cli._screens.screens import text_of
from bridle.cli._screens.shown import Note, Said, Shown, Span, counted, joined
from bridle.cli._screens.view import View
from bridle.cli.exits import ExitCode
from bridle.errors import OptionsError, SessionNotFoundError
from bridle.messages import AssistantMessage, Message, UserMessage
from bridle.sessions import SessionInfo, Transcript
from bridle.sessions._transcripts.export import FORMATS, exported
from bridle.sessions._transcripts.files import write_private

_EPILOG = """\
  bridle sessions list                              the last 20 sessions of all directories
  bridle sessions list --directory . --limit 100    those of this directory
  bridle sessions show 1f0c9a2e                     the conversation
  bridle sessions show 1f0c9a2e --html page.html    the same as a page
  bridle sessions export 1f0c9a2e session.md        as Markdown; also .jsonl and .json
  bridle sessions rm 1f0c9a2e                       delete it

SESSION is an id, the start of an id, or a title. The sessions are read from the files of the CLI:
in CLAUDE_CONFIG_DIR, or in ~/.claude. Pages and files can be read by you only. They contain the
whole conversation, so read them before you share them.
"""

_ACTIONS = ("list", "show", "export", "rm")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "action", metavar="ACTION", choices=_ACTIONS, help="One of list, show, export, rm."
    )
    parser.add_argument(
        "words",
        metavar="SESSION",
        nargs="*",
        help="The session. `rm` takes one or more sessions. `export` takes one session and then a "
        "file, or - for stdout.",
    )
    parser.add_argument("--directory", metavar="DIR", help="Only sessions of this directory.")
    parser.add_argument(
        "--config-dir",
        metavar="DIR",
        help="Configuration directory of the CLI. Default: CLAUDE_CONFIG_DIR or ~/.claude.",
    )
    parser.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="list: maximum number of sessions. Default: 20; with --json, all.",
    )
    parser.add_argument(
        "--offset", type=int, default=0, metavar="N", help="list: number of sessions to skip first."
    )
    parser.add_argument("--json", action="store_true", help="list, show: print lines of JSON.")
    parser.add_argument("--html", metavar="PAGE", help="show: write an HTML page to this file.")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="export: jsonl, json or markdown. Default: by the ending of the file: .jsonl, .json "
        "or .md; for stdout, jsonl.",
    )
    parser.add_argument("--overwrite", action="store_true", help="Replace PAGE or the file.")
    parser.add_argument("--yes", action="store_true", help="rm: delete without a question.")


def main(options: argparse.Namespace) -> int:
    """Do what the arguments say.

    Raises:
        OptionsError: an argument is missing or invalid, or a file cannot be written.
        SessionNotFoundError: there is no such session.
    """
    words: list[str] = options.words
    if options.action == "list":
        _no_more(words, 0)
        return _list(options)
    if not words:
        raise OptionsError("SESSION", "is missing", fix="`bridle sessions list` lists the ids.")
    if options.action == "rm":
        return _remove(options, words)
    _no_more(words, 2 if options.action == "export" else 1)
    info = _resolved(options, words[0])
    if options.action == "export":
        return _export(options, info, words[1:])
    return _show(options, info)


def _no_more(words: list[str], most: int) -> None:
    if len(words) > most:
        raise OptionsError("arguments", f"are too many: {one_line(' '.join(words[most:]))}")


# ---------------------------------------------------------------- finding


def _sessions(
    options: argparse.Namespace, limit: int | None = None, offset: int = 0
) -> list[SessionInfo]:
    return sync.sessions.list_sessions(
        options.directory, config_dir=options.config_dir, limit=limit, offset=offset
    )


def without_message(transcript: Transcript) -> SessionInfo:
    """Return what a transcript without a message tells about its session."""
    times = (seconds_of(one.timestamp or "") for one in transcript.entries)
    known = [time for time in times if time is not None]
    return SessionInfo(
        session_id=transcript.session_id,
        project=transcript.project,
        summary="[no prompt]",
        updated_at=known[-1] if known else 0.0,
    )


def _resolved(options: argparse.Namespace, word: str) -> SessionInfo:
    """Return the session that a word names: by its id, the start of its id, or its title."""
    if is_uuid(word):
        where = {"directory": options.directory, "config_dir": options.config_dir}
        try:
            return sync.sessions.get_session(word, **where)
        except SessionNotFoundError:  # it may have no message
            return without_message(sync.sessions.read_transcript(word, **where))
    found = [info for info in _sessions(options) if _names(info, word)]
    if not found:
        place = os.path.join(options.config_dir or config_directory(os.environ), "projects")
        raise SessionNotFoundError(word, place)
    if len(found) > 1:
        ids = ", ".join(info.session_id for info in found[:5])
        fix = "Use a whole id."
        raise OptionsError("SESSION", f"{word!r} names several sessions: {ids}", fix=fix)
    return found[0]


def _names(info: SessionInfo, word: str) -> bool:
    is_start = len(word) >= 4 and info.session_id.startswith(word.lower())
    return is_start or info.custom_title == word


def _loaded(options: argparse.Namespace, info: SessionInfo) -> Transcript:
    transcript = sync.sessions.read_transcript(
        info.session_id, directory=options.directory, config_dir=options.config_dir
    )
    if transcript.damaged:
        lines = counted(len(transcript.damaged), "line")
        print(f"The transcript is damaged: {lines} could not be read.", file=sys.stderr)
    return transcript


# ---------------------------------------------------------------- list


def _list(options: argparse.Namespace) -> int:
    if options.json:
        for info in _sessions(options, options.limit, options.offset):
            print_json(msgspec.json.encode(info))
        return ExitCode.OK
    limit: int = 20 if options.limit is None else options.limit
    # One more than is shown, to know whether there are more.
    found = _sessions(options, limit + (limit > 0), options.offset)
    now = time.time()
    for info in found[:limit]:
        facts = joined([_when(info.updated_at, now), info.tag or "", info.cwd or ""])
        print_shown([Note((Span(info.session_id, "strong"), Span(f"  {one_line(facts)}", "dim")))])
        print_shown([Note((Span(f"    {one_line(info.summary)}"),))])
    if not found:
        print("There are no sessions.", file=sys.stderr)
    elif len(found) > limit:
        print(f"For more, pass --offset {options.offset + limit}.", file=sys.stderr)
    return ExitCode.OK


def _when(then: float, now: float) -> str:
    """Return how long ago something was, or after a week its date."""
    ago = max(0, int(now - then))
    if ago >= 7 * _DAY:
        return time.strftime("%Y-%m-%d", time.localtime(then))
    for size, unit in ((_DAY, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if ago >= size:
            return f"{counted(ago // size, unit)} ago"
    return "now"


_DAY = 86400


# ---------------------------------------------------------------- show


def _show(options: argparse.Namespace, info: SessionInfo) -> int:
    transcript = _loaded(options, info)
    if options.html is not None:
        _write_page(transcript, info, options.html, overwrite=options.overwrite)
    elif options.json:
        for message in transcript.messages(subagents=True, compacted=True, system=True):
            print_json(message.raw_line)
    else:
        print_shown(conversation(transcript, info))
    return ExitCode.OK


def conversation(transcript: Transcript, info: SessionInfo) -> Iterator[Shown]:
    """Yield the conversation like `bridle run`, with each prompt and its time."""
    yield Note((Span(one_line(info.summary), "strong"),), whole=True)
    facts = [info.session_id, info.cwd or "", info.git_branch or "", info.tag or ""]
    yield Note((Span(one_line(joined(facts), 500), "dim"),), whole=True)
    view = View(0.0)
    prompts = 0
    now = 0.0
    for message in transcript.messages(subagents=True, compacted=True, system=True):
        now = seconds_of(str(message.raw.get("timestamp"))) or now
        prompt = _prompt(message)
        if prompt:
            prompts += 1
            yield from view.end_answer()
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(now)) if now else ""
            yield Note((Span(f"\n{when}", "dim"),))
            yield Said("".join(f"> {line}\n" for line in prompt.splitlines()))
            continue
        yield from _aside(message)
        yield from view.see(message, now)
    yield from view.end_answer()
    damaged = counted(len(transcript.damaged), "unreadable line") if transcript.damaged else ""
    agents = counted(len(transcript.subagents), "subagent") if transcript.subagents else ""
    end = joined([counted(prompts, "prompt"), agents, damaged])
    yield Note((Span(f"\n{end}", "dim"),))


def _prompt(message: Message) -> str:
    """Return the text of a prompt; empty if the message is not one."""
    said = UserText.of_prompt(message)
    if said is None or not isinstance(message, UserMessage):
        return ""
    blocks = [] if isinstance(message.content, str) else message.content
    others = [f"[{block.type}]" for block in blocks if block.type != "text"]
    return "\n".join(filter(None, [said.as_typed, *others]))


def _aside(message: Message) -> Iterator[Shown]:
    """Yield text that is not part of the main answer: of the CLI, or of a subagent."""
    if isinstance(message, UserMessage | AssistantMessage):
        text = message.text
        if isinstance(message, AssistantMessage) and not message.agent_path:
            return  # the view shows it
    else:
        content = message.raw.get("content")
        text = content if isinstance(content, str) and UserText(content).output is not None else ""
    output = UserText(text).output
    if output is not None:
        for line in output.splitlines()[:_LONGEST_OUTPUT]:
            yield Note((Span(f"    {printable(line.rstrip())}", "dim"),))
    elif text.strip():
        if message.raw.get("isCompactSummary") is True:
            text = f"Summary: {text.partition('Summary:')[2] or text}"
        names = [one_line(agent.type or agent.id) for agent in message.agent_path]
        indent = "  " * (1 + len(names))
        to = "to " if names and isinstance(message, UserMessage) else ""
        who = f"{to}{names[-1]}: " if names else "· "
        yield Note((Span(f"{indent}{who}{one_line(text, 300)}", "dim"),), whole=True)


_LONGEST_OUTPUT = 20
"""Lines of what a command of the CLI printed."""


def _write_page(transcript: Transcript, info: SessionInfo, target: str, *, overwrite: bool) -> None:
    from bridle.cli._timeline.page import page
    from bridle.cli._timeline.stored import stored_timeline

    damaged = len(transcript.damaged)
    gap = f"{counted(damaged, 'line')} of the transcript could not be read" if damaged else ""
    model = stored_timeline(transcript, info, gap=gap)
    text = page(model, one_line(info.summary, 80))
    _write(Path(target), text.encode(), "--html", overwrite=overwrite)
    print(f"{target}: {counted(len(model.frames), 'message')}. Open it in a browser.")


def _write(path: Path, data: bytes, name: str, *, overwrite: bool) -> None:
    try:
        write_private(path, [data], overwrite=overwrite)
    except FileExistsError:
        fix = "Name another file, or pass --overwrite."
        raise OptionsError(name, f"names {path}, which already exists", fix=fix) from None
    except OSError as error:
        problem = f"names {path}, which cannot be written: {error.strerror}"
        raise OptionsError(name, problem) from None


# ---------------------------------------------------------------- export and delete


def _export(options: argparse.Namespace, info: SessionInfo, words: list[str]) -> int:
    target = words[0] if words else "-"
    if target == "-":
        data = exported(_loaded(options, info), info, options.format or "jsonl")
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return ExitCode.OK
    try:
        sync.sessions.export(
            info.session_id,
            target,
            format=options.format,
            overwrite=options.overwrite,
            directory=options.directory,
            config_dir=options.config_dir,
        )
    except OptionsError as error:
        name = {"path": "FILE", "format": "--format"}.get(error.field, error.field)
        fix = error.fix.replace("set overwrite=True", "pass --overwrite")
        fix = fix.replace("Set format, or let path", "Pass --format, or let FILE")
        raise OptionsError(name, error.problem, fix=fix) from None
    print(f"Wrote {target}.")
    return ExitCode.OK


def _remove(options: argparse.Namespace, words: list[str]) -> int:
    found = (_resolved(options, word) for word in words)
    chosen = {info.session_id: info for info in found}.values()
    if not options.yes and not _confirmed(chosen):
        return ExitCode.FAILED
    for info in chosen:
        sync.sessions.delete(
            info.session_id, directory=options.directory, config_dir=options.config_dir
        )
        print(f"Deleted {info.session_id}.")
    return ExitCode.OK


def _confirmed(chosen: Iterable[SessionInfo]) -> bool:
    if not sys.stdin.isatty():
        raise OptionsError("--yes", "is missing", fix="Without a terminal, pass --yes to delete.")
    for info in chosen:
        print(f"{info.session_id}  {one_line(info.summary, 80)}")
    print("Delete? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# ---------------------------------------------------------------- printing


def print_shown(shown: Iterable[Shown]) -> None:
    """Print lines to stdout, with styles if it is a terminal and rich is installed."""
    if sys.stdout.isatty():
        try:
            from bridle.cli._screens.live import LiveScreen
        except ImportError:
            pass
        else:
            LiveScreen(None).show(shown)
            return
    for text in text_of(shown):
        sys.stdout.write(text)


def print_json(line: bytes) -> None:
    # A pipe gets the text unchanged. A terminal would execute control characters in it.
    text = line.decode("utf-8", "replace")
    print(printable_json(text) if sys.stdout.isatty() else text)
