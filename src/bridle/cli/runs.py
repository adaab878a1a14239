"""``bridle runs``: the runs of a fleet as a table, one run in detail, and decisions about runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from bridle._spi import is_uuid
from bridle.cli._screens.printable import one_line, printable
from bridle.cli.exits import ExitCode
from bridle.cli.fleets import fleet_arguments, named_fleet
from bridle.cli.sessions import conversation, print_json, print_shown, without_message
from bridle.errors import OptionsError, SessionNotFoundError, UsageError
from bridle.permissions import Allow, Deny, Edit, PermissionResult
from bridle.sessions import read_transcript

if TYPE_CHECKING:
    from bridle.fleet import Fleet, Run, RunInfo

_EPILOG = """\
  bridle runs --fleet app:fleet                   the last 20 runs of `fleet` in app.py
  bridle runs --database sqlite:///runs.db        the same without the program
  bridle runs --status failed --live              the failed ones, again every second
  bridle runs show 1f0c9a2e                       the conversation, the cost, where it ran
  bridle runs approve 1f0c9a2e                    show the call that waits, ask, let it run
  bridle runs approve 1f0c9a2e --call toolu_01    the same, but only if this is the call that waits
  bridle runs approve 1f0c9a2e --deny "not now"   show the call, ask, deny it
  bridle runs cancel 1f0c9a2e                     cancel the run

RUN is an id, the start of an id, or a key. Runs of several tenants can have the same key: then
--tenant is needed. Without a terminal nobody can be asked: then `approve` needs --call.
"""

_ACTIONS = ("list", "show", "approve", "cancel")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "words", metavar="ACTION RUN", nargs="*", help="list (default), show, approve or cancel."
    )
    fleet_arguments(parser)
    parser.add_argument("--status", help="list: only runs with this status, such as failed.")
    parser.add_argument("--tenant", help="Only runs of this tenant.")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="list: how many runs. Default: 20."
    )
    parser.add_argument("--live", action="store_true", help="list: repeat it every second.")
    parser.add_argument("--json", action="store_true", help="list, show: print lines of JSON.")
    parser.add_argument(
        "--call",
        metavar="ID",
        help="With approve: the call that the decision is about, as `show` names it. If another "
        "one waits, nothing is decided.",
    )
    parser.add_argument(
        "--deny",
        metavar="REASON",
        help="With approve: deny the call. The model reads this reason.",
    )
    parser.add_argument(
        "--input", metavar="JSON", help="With approve: let the call run with this input."
    )


def main(options: argparse.Namespace) -> int:
    """Do what the arguments say.

    Raises:
        OptionsError: an argument is missing or invalid, or there is no such run.
        UsageError: the run does not wait for a decision.
    """
    words: list[str] = options.words or ["list"]
    action, *rest = words
    if action not in _ACTIONS:
        problem = f"must be one of {', '.join(_ACTIONS)}, got {action!r:.80}"
        raise OptionsError("ACTION", problem)
    if len(rest) != (action != "list"):
        raise OptionsError("RUN", "must be one run", fix="`bridle runs` lists the ids.")
    fleet = named_fleet(options)
    works: dict[str, Callable[[Fleet, argparse.Namespace, str], Awaitable[None]]] = {
        "list": _list,
        "show": _show,
        "approve": _approve,
        "cancel": _cancel,
    }

    async def work() -> None:
        try:
            await works[action](fleet, options, "".join(rest))
        finally:
            await fleet.aclose()

    asyncio.run(work())
    return ExitCode.OK


async def _find(fleet: Fleet, word: str, tenant: str | None) -> Run:
    """Return the run that a word names: by its id, the start of its id, or its key."""
    from bridle.fleet._fleet import runs_from

    fix = "Use a whole id, or --tenant with a key. `bridle runs` lists the ids."
    is_whole = is_uuid(word)
    found = await runs_from(fleet, word) if is_whole else []
    if not found:
        found = [run async for run in fleet.runs(key=word, tenant=tenant)]
    if not found and not is_whole and len(word) >= 4:
        found = await runs_from(fleet, word)
    found = [run for run in found if run.listed and tenant in (None, run.listed.tenant)]
    if len(found) != 1:
        problem = f"{word!r:.80} names {'several runs' if found else 'no run'}"
        if tenant is not None:
            problem += f" of the tenant {tenant!r:.80}"
        raise OptionsError("RUN", problem, fix=fix)
    return found[0]


# ---------------------------------------------------------------- list


async def _list(fleet: Fleet, options: argparse.Namespace, _: str) -> None:
    while True:
        found = fleet.runs(status=options.status, tenant=options.tenant, limit=options.limit)
        infos = [run.listed async for run in found if run.listed is not None]
        if options.json:
            for info in infos:
                print_json(msgspec.json.encode(info))
        else:
            lines = table(infos, time.time())
            start = "\x1b[H\x1b[J" if options.live and sys.stdout.isatty() else ""
            print(start + "\n".join(lines), flush=True)
        if not options.live:
            return
        await asyncio.sleep(1.0)


def table(infos: list[RunInfo], now: float) -> list[str]:
    """Return the lines of a table of runs."""
    if not infos:
        return ["There are no runs."]
    lines = [f"{'RUN':10}{'STATUS':11}{'AGE':>6}  {'STARTS':>6}  {'USD':>8}  {'WORKER':28}PROMPT"]
    for info in infos:
        cost = "" if info.cost_usd is None else f"{info.cost_usd:.4f}"
        name, worker = one_line(info.key or _text(info), 60), one_line(info.worker or "", 27)
        lines.append(
            f"{info.id[:8]:10}{info.status:11}{_age(now - info.submitted_at):>6}"
            f"  {info.starts:>6}  {cost:>8}  {worker:28}{name}"
        )
    counts = Counter(str(info.status) for info in infos)
    lines.append("  ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return lines


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def _text(info: RunInfo) -> str:
    return info.prompt if isinstance(info.prompt, str) else json.dumps(info.prompt)


# ---------------------------------------------------------------- one run


async def _show(fleet: Fleet, options: argparse.Namespace, word: str) -> None:
    run = await _find(fleet, word, options.tenant)
    info = await run.info()
    if options.json:
        print_json(msgspec.json.encode(info))
        for message in await run.messages():
            print_json(message.raw_line)
        return
    for line in _facts(info):
        print(line)
    try:
        transcript = await read_transcript(info.session_id, store=fleet.store)
    except SessionNotFoundError:
        return
    print_shown(conversation(transcript, without_message(transcript)))


def _facts(info: RunInfo) -> list[str]:
    facts: dict[str, Any] = {
        "run": info.id,
        "session": info.session_id,
        "status": info.status,
        "key": info.key,
        "tenant": info.tenant,
        "prompt": one_line(_text(info), 200),
        "outcome": info.reason,
        "detail": info.detail,
        "delayed": _delay(info),
        "cost": None if info.cost_usd is None else f"${info.cost_usd:.4f}",
        "worker": info.worker,
        "starts": info.starts,
    }
    if info.pending is not None:
        call = json.dumps(info.pending.tool_input, ensure_ascii=False)
        facts["waits for"] = one_line(f"{info.pending.tool_name} {call}", 500)
        facts["call"] = info.pending.tool_use_id
    return [f"{name + ':':11}{one_line(str(value), 500)}" for name, value in facts.items() if value]


def _delay(info: RunInfo) -> str | None:
    """Return until when a run is delayed, and why."""
    if info.delayed_until is None:
        return None
    until = datetime.fromtimestamp(info.delayed_until).astimezone().isoformat(" ", "seconds")
    return f"until {until}: {info.delay_reason}"


async def _approve(fleet: Fleet, options: argparse.Namespace, word: str) -> None:
    decision = _decision(options)
    if options.call is None and not sys.stdin.isatty():
        problem = "is needed where no person can be asked: another call may wait by now"
        fix = "Pass the id of the call, as `bridle runs show` prints it."
        raise OptionsError("--call", problem, fix=fix)
    run = await _find(fleet, word, options.tenant)
    info = await run.info()
    pending = info.pending
    if pending is None:
        what = f"The run {run.id} does not wait for a decision: it is {info.status}."
        raise UsageError(what, fix="`bridle runs --status waiting` lists the runs that do.")
    if options.call not in (None, pending.tool_use_id):
        what = f"The run {run.id} waits for the call {pending.tool_use_id}."
        raise UsageError(what, fix="Look at that call with `bridle runs show`.")
    # All of it: the end of a long input matters as much as its beginning.
    print(printable(f"{pending.tool_name} {json.dumps(pending.tool_input, ensure_ascii=False)}"))
    if isinstance(decision, Edit):
        edited = json.dumps(decision.new_input, ensure_ascii=False)
        print(printable(f"It will run with this input instead: {edited}"))
    if sys.stdin.isatty() and not _is_sure("Deny" if isinstance(decision, Deny) else "Allow"):
        print("Nothing was decided.")
        return
    await run.approve(decision, pending=pending)
    print(f"{run.id} is in the queue again.")


def _decision(options: argparse.Namespace) -> PermissionResult:
    if options.input is None:
        return Allow() if options.deny is None else Deny(options.deny)
    if options.deny is not None:
        problem = "cannot be used with --deny: a call that is denied does not run"
        raise OptionsError("--input", problem, fix="Use one of them.")
    try:
        new_input: object = json.loads(options.input)
    except ValueError as error:
        raise OptionsError("--input", f"is not JSON: {error}") from None
    if not isinstance(new_input, dict):
        raise OptionsError("--input", f"must be a JSON object, got {options.input!r:.80}")
    return Edit(cast("dict[str, Any]", new_input))


def _is_sure(verb: str) -> bool:
    try:
        return input(f"{verb} this call? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


async def _cancel(fleet: Fleet, options: argparse.Namespace, word: str) -> None:
    run = await _find(fleet, word, options.tenant)
    await run.cancel()
    print(f"{run.id} is {await run.status()}.")
