"""Histories of recoveries: a program is killed at a random moment, and so are its recoveries.

``python -m tests.histories.recovery PLAN`` is the program. It runs or recovers sessions with a tool
that writes down each call and its idempotency key. The model is obedient: it makes every call that
it was asked for and that is not known to be done, and repeats every call that a recovery names as
uncertain. `play` returns a history for each session: what was asked for, what the tool did, what
the store and the files had after each kill, and which outcomes were reported. `judge` says what is
wrong with a history.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec import DecodeError, Struct
from msgspec import json as msgjson
from tests.histories.programs import count, kill, note, notes, run_and_kill

import bridle
from bridle import Continue, HookContext, Retry, ToolContext, tool
from bridle._records.session_store import JOURNAL
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions import SessionKey, SqliteStore
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    ReceivedEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    decode_entries,
)
from bridle.sessions._outbox import leases
from bridle.sessions._outbox.spool import spool_directory
from bridle.sessions._recovery_texts import KNOWN, UNKNOWN
from bridle.sessions._transcripts.stored_turns import prompts_in
from bridle.sessions._transcripts.transcript import (
    TranscriptEntry,
    conversation,
    entries_of_bytes,
    entries_of_objects,
)

LEASE = 1.5
"""Seconds of a lease in these programs, so that a recovery need not wait long."""

RETRY = Retry(attempts=20, max_wait=0.02)
"""How often a CLI may crash in a turn, or in a step of a recovery."""

PROMPTS = 8
"""Prompts of each session, of which up to two are sent at the same time."""

NAME = "mcp__tools__append"


# ---------------------------------------------------------------- the model

_ASKED = re.compile(r"^TASK ([\w-]+)$", re.MULTILINE)
_DONE = re.compile(r"\bappended ([\w-]+)")
_NAMED = re.compile(rf'^- {NAME} {{"line":"([\w-]+)"}}$', re.MULTILINE)


class Memory:
    """What the model knows of a conversation: the calls that it still has to make."""

    def __init__(self) -> None:
        self._asked = Counter[str]()
        self._done = Counter[str]()
        # Calls that the last prompt that names them has as done, or as uncertain.
        self._known: dict[str, int] = {}
        self._uncertain = Counter[str]()

    def prompt(self, text: str) -> None:
        """Read a prompt of the program or of a recovery."""
        self._asked.update(_ASKED.findall(text))
        if UNKNOWN in text or KNOWN in text:
            unknown, _, known = text.partition(KNOWN)
            self._uncertain = Counter(_NAMED.findall(unknown.partition(UNKNOWN)[2]))
            self._known |= dict(Counter(_NAMED.findall(known)))

    def result(self, text: str) -> None:
        """Read the result of a call. The texts that the CLI writes in its place say nothing."""
        lines = _DONE.findall(text)
        self._done.update(lines)
        self._uncertain.subtract(lines)

    def message(self, role: object, content: object) -> None:
        """Read a message of the conversation.

        The CLI puts a prompt that it reads while a tool runs into the result of the tool.
        """
        if role != "user":
            return
        blocks = _blocks_of(content)
        results = [_blocks_of(one.get("content")) for one in blocks if one["type"] == "tool_result"]
        for result in results:
            self.result(json.dumps(result))
        for texts in (*results, blocks):
            self.prompt("\n".join(str(one.get("text", "")) for one in texts))

    @property
    def to_do(self) -> list[str]:
        """The lines to append, one for each call."""
        missing = self._asked - self._done - Counter(self._known)
        return sorted((missing | +self._uncertain).elements())


def _blocks_of(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


# ---------------------------------------------------------------- the program


class Plan(Struct):
    """What the program does. Paths, and options of its agent."""

    seed: int
    sessions: int
    directory: str
    options: dict[str, Any]
    #: True if the CLI is a fake one: a hook then tells it what the model calls.
    is_fake: bool = True
    #: The sessions that the program recovers. Without any, it starts sessions of its own.
    recovers: list[str] = []
    #: How often a tool kills its CLI, from 0 to 1. The program then uses `run` with retries.
    crashes: float = 0.0

    @property
    def home(self) -> Path:
        return Path(self.directory)

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[bridle.Agent]:
        """The agent of the program, and of its recovery. Closes its store at the end."""
        effects = self.home / "effects"
        chance = random.Random()
        memories: dict[str, Memory] = {}

        async def crash(context: ToolContext) -> None:
            """Wait for a while, and perhaps kill the CLI, now or soon."""
            await asyncio.sleep(chance.uniform(0, 0.04))
            if chance.random() < self.crashes and context.session is not None:
                delay = chance.choice((0.0, chance.uniform(0, 0.1)))
                pid = context.session.pid or 0
                _ = asyncio.get_running_loop().call_later(delay, kill, pid)
                await asyncio.sleep(0)

        @tool
        async def append(line: str, context: ToolContext) -> str:
            """Append a line to a file."""
            facts = {"line": line, "key": context.idempotency_key, "id": context.tool_use_id}
            await crash(context)
            note(effects, **facts)
            await crash(context)
            note(self.home / "steps", returned=line)
            return f"appended {line}"

        def remember(context: HookContext) -> Continue:
            """Return the calls of the model. It has one process, unless this is a recovery."""
            memory = memories.get(context.session_id)
            if memory is None or self.recovers or self.crashes:
                memory = memories[context.session_id] = read_conversation(context.transcript_path)
            memory.prompt(str(getattr(context, "prompt", "")))
            lines, calls = memory.to_do, list[str]()
            for line in lines:
                calls.append(f"CALL {NAME} {json.dumps({'line': line})}")
                memory.result(f"appended {line}")
            note(self.home / "steps", calls=lines)
            return Continue(additional_context="\n".join([*calls, "SAY done"]))

        hooks: dict[str, Any] = {"on_user_prompt_submit": remember} if self.is_fake else {}
        async with contextlib.aclosing(SqliteStore(self.home / "store.db")) as store:
            yield bridle.Agent(store=store, tools=[append], **hooks, **self.options)


def read_conversation(path: str) -> Memory:
    """Return what a model knows that gets the conversation of a transcript."""
    memory = Memory()
    file = Path(path)
    entries = entries_of_bytes(file.read_bytes()) if file.exists() else ()
    for entry in conversation(entries):
        message = entry.raw.get("message")
        if isinstance(message, dict):
            memory.message(message.get("role"), message.get("content"))
    return memory


async def run_program(plan: Plan) -> None:
    """Run or recover the sessions of a plan."""
    async with plan.agent() as agent:
        if plan.recovers:
            note(plan.home / "steps", begun=True)
            await asyncio.gather(*(agent.recover(one, retry=RETRY) for one in plan.recovers))
            return
        talk = _run_prompts if plan.crashes else _talk
        await asyncio.gather(*(talk(plan, agent, number) for number in range(plan.sessions)))


async def _run_prompts(plan: Plan, agent: bridle.Agent, number: int) -> None:
    """Send prompts one after the other, each to a CLI of its own."""
    chance, log = random.Random(plan.seed * 1000 + number), plan.home / "log"
    session_id = str(UUID(int=chance.getrandbits(128), version=4))
    note(log, session=session_id)
    for sent in range(PROMPTS):
        chosen: dict[str, Any] = {"resume_session_id" if sent else "session_id": session_id}
        text = _prompt(chance, number, sent)
        outcome = await agent.run(text, retry=RETRY, **chosen)
        note(log, session=session_id, outcome=outcome.uuid, ok=outcome.ok)


def _prompt(chance: random.Random, number: int, sent: int) -> str:
    lines = [f"s{number}p{sent}l{n}" for n in range(chance.randint(0, 3))]
    lines += lines[:1] * chance.choice((0, 0, 1))
    return "\n".join([f"This is s{number}p{sent}.", *(f"TASK {one}" for one in lines)])


async def _talk(plan: Plan, agent: bridle.Agent, number: int) -> None:
    chance = random.Random(plan.seed * 1000 + number)
    log, sent = plan.home / "log", 0
    async with agent.session() as session:
        note(log, session=session.id)
        while sent < PROMPTS:
            turns: list[bridle.Turn] = []
            for _ in range(chance.choice((1, 1, 1, 2))):
                turns.append(await session.send_user_message(_prompt(chance, number, sent)))
                note(log, session=session.id, sent=turns[-1].uuid)
                sent += 1
                await asyncio.sleep(chance.uniform(0, 0.05))
            for turn in turns:
                outcome = await turn
                note(log, session=session.id, outcome=outcome.uuid, ok=outcome.ok)


# ---------------------------------------------------------------- the kill


def kill_program(plan: Plan, chance: random.Random) -> bool:
    """Run the program, and kill it and its CLIs after a random number of steps.

    Return whether it was killed: a recovery may have ended before.
    """
    # A session makes a step for itself, each prompt and outcome, and two for each call.
    steps = chance.randint(*((1, 4 * plan.sessions) if plan.recovers else (2 * plan.sessions, 60)))
    return run_and_kill(
        "tests.histories.recovery",
        plan.home,
        msgjson.encode(plan),
        ("log", "steps", "effects"),
        steps,
        chance,
        cli_first=not plan.recovers and chance.random() < 0.5,
    )


# ---------------------------------------------------------------- the history


class Left(Struct):
    """What the store and the files had of a session after a kill."""

    journal: list[JournalEntry]
    entries: Sequence[TranscriptEntry]
    #: How many effects there were.
    effects: int = 0

    @property
    def received(self) -> set[str]:
        """The prompts that need no recovery."""
        return {one.prompt_uuid for one in self.journal if isinstance(one, ReceivedEntry)}

    @property
    def prompts(self) -> dict[str, PromptEntry]:
        """The prompts of the program."""
        return {
            one.prompt_uuid: one
            for one in self.journal
            if isinstance(one, PromptEntry) and one.continues is None
        }

    @property
    def open(self) -> list[str]:
        """The prompts whose outcome the program has not received."""
        return [uuid for uuid in self.prompts if uuid not in self.received]

    @property
    def saved(self) -> set[str]:
        """The prompts that the conversation has."""
        return {uuid for entry in self.entries for uuid in prompts_in(entry)}

    @property
    def done(self) -> set[str]:
        """The keys of the calls with a result."""
        # An error may mean that the program has died. The journal has the errors of the tool.
        results = {
            block["tool_use_id"]
            for entry in self.entries
            if not entry.is_cut_off
            for block in _blocks(entry)
            if block.get("type") == "tool_result" and not block.get("is_error")
        }
        for one in self.journal:
            if isinstance(one, ToolResultEntry) and not one.is_interrupted:
                results.add(one.tool_use_id)
        return {call.idempotency_key for call in self.calls if call.tool_use_id in results}

    @property
    def calls(self) -> list[ToolCallEntry]:
        return [one for one in self.journal if isinstance(one, ToolCallEntry)]

    @property
    def made(self) -> set[str]:
        """The lines of the calls that the conversation has."""
        blocks = [block for entry in self.entries for block in _blocks(entry)]
        return {one["input"]["line"] for one in blocks if one.get("type") == "tool_use"}

    def failed(self) -> Counter[str]:
        """The calls that failed before the tool ran, because the program had died."""
        lines: dict[str, str] = {}
        failed: dict[str, str] = {}
        for entry in self.entries:
            for block in _blocks(entry):
                if block.get("type") == "tool_use":
                    lines[block["id"]] = block["input"]["line"]
                elif block.get("is_error") and not entry.is_cut_off:
                    failed[block["tool_use_id"]] = lines.get(block["tool_use_id"], "")
        return Counter(failed.values())

    def uncertain(self) -> Counter[str]:
        """The calls without a result of the prompts that are open and whose turn did not end.

        A CLI denies a call if the program dies before it has answered the hook. Such an attempt did
        not run.
        """
        owners = {
            one.prompt_uuid: one.continues or one.prompt_uuid
            for one in self.journal
            if isinstance(one, PromptEntry)
        }
        ended = {
            one.prompt_uuid
            for one in self.journal
            if isinstance(one, OutcomeEntry) and one.outcome.reason is OutcomeReason.COMPLETED
        }
        waiting = {*self.open} - ended
        denied = {
            block["tool_use_id"]
            for entry in self.entries
            if "toolDenialKind" in entry.raw and not entry.is_cut_off
            for block in _blocks(entry)
        }
        keys = {
            call.idempotency_key: str(call.tool_input["line"])
            for call in self.calls
            if owners.get(call.prompt_uuid or "") in waiting
            and call.idempotency_key not in self.done
            and call.tool_use_id not in denied
        }
        return Counter(keys.values())


def _blocks(entry: TranscriptEntry) -> list[dict[str, Any]]:
    message = entry.raw.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


class History(Struct):
    """What happened to one session."""

    session: str
    #: What the driver did, for the report of a failure.
    story: list[str]
    #: The notes of the program about the session.
    log: list[dict[str, Any]]
    #: What store and files had after each kill, and at the end.
    left: list[Left]
    #: Each call of the tool, in order. The last one of them that each kill follows is in `left`.
    effects: list[dict[str, Any]]
    #: The outcomes that the last recovery returned, and those of another one after it.
    outcomes: list[Outcome[Any]]
    more: list[Outcome[Any]]
    #: True if a hook told the model what to call. If the program died before, it calls nothing.
    is_fake: bool = True
    #: True if CLIs crashed also while their program lived on.
    has_crashes: bool = False


async def _left_by(plan: Plan, session_id: str) -> Left:
    store = SqliteStore(plan.home / "store.db")
    stored = list(await store.load(SessionKey(session_id)) or ())
    journal = list(await store.load(SessionKey(session_id, JOURNAL)) or ())
    await store.aclose()
    for file in Path(spool_directory()).glob(f"{session_id}.*"):
        for line in file.read_bytes().split(b"\n"):
            with contextlib.suppress(DecodeError):  # the last one may be cut off
                batch = msgjson.decode(line[1:])
                kept = {"": stored, JOURNAL: journal}.get(batch["key"]["subkey"], [])
                kept += [one for one in batch["entries"] if one not in kept]
    files = plan.home.glob(f"config/projects/*/{session_id}.jsonl")
    saved = [entry for file in files for entry in entries_of_bytes(file.read_bytes())]
    return Left(
        [one for one in decode_entries(journal) if not isinstance(one, UnknownEntry)],
        [*entries_of_objects(stored), *saved],
        len(notes(plan.home / "effects")),
    )


class Played(Struct):
    """The histories of a program, and how often a program was killed."""

    histories: list[History]
    kills: int


def play(plan: Plan, recoveries: int) -> Played:
    """Kill the program, then its recovery this many times, and recover its sessions."""
    chance = random.Random(plan.seed)
    kills = int(kill_program(plan, chance))
    log = notes(plan.home / "log")
    sessions = list(dict.fromkeys(str(fact["session"]) for fact in log))
    story = [f"the program was killed after {count(plan.home / 'effects')} calls"]
    left: dict[str, list[Left]] = {one: [] for one in sessions}

    def look() -> None:
        for one in sessions:
            left[one].append(asyncio.run(_left_by(plan, one)))

    look()
    started = [one for one in sessions if left[one][0].journal]
    for _ in range(recoveries if started else 0):
        killed = kill_program(recovering(plan, started), chance)
        kills += killed
        ending = "was killed" if killed else "ended"
        story.append(f"a recovery {ending} after {count(plan.home / 'effects')} calls")
        look()
    found = asyncio.run(_recover(recovering(plan, started)))
    look()
    effects = notes(plan.home / "effects")
    histories = [
        History(
            session=one,
            story=story,
            log=[fact for fact in log if fact["session"] == one],
            left=left[one],
            effects=effects,
            outcomes=found[one][0],
            more=found[one][1],
            is_fake=plan.is_fake,
            has_crashes=plan.crashes > 0,
        )
        for one in started
    ]
    return Played(histories, kills)


def recovering(plan: Plan, sessions: list[str]) -> Plan:
    """Return the plan of a program that recovers sessions."""
    return Plan(
        seed=plan.seed,
        sessions=plan.sessions,
        directory=plan.directory,
        options=plan.options,
        is_fake=plan.is_fake,
        recovers=sessions,
        crashes=plan.crashes,
    )


async def _recover(plan: Plan) -> dict[str, tuple[list[Outcome[Any]], list[Outcome[Any]]]]:
    async with plan.agent() as agent:

        async def twice(session: str) -> tuple[list[Outcome[Any]], list[Outcome[Any]]]:
            first = await agent.recover(session, retry=RETRY)
            return first, await agent.recover(session)

        found = await asyncio.gather(*map(twice, plan.recovers))
    return dict(zip(plan.recovers, found, strict=True))


# ---------------------------------------------------------------- the verdict


def judge(history: History) -> list[str]:
    """Return what is wrong with a history."""
    return [*_wrong_outcomes(history), *_wrong_prompts(history), *_wrong_calls(history)]


def _wrong_outcomes(history: History) -> Iterator[str]:
    """Each prompt has one outcome, which the program or a recovery has received."""
    before, end = history.left[-2], history.left[-1]
    uuids = [outcome.uuid for outcome in history.outcomes]
    if uuids != before.open:
        yield f"the open prompts were {before.open}, and the recovery returned {uuids}"
    for outcome in history.outcomes:
        if not outcome.ok:
            yield f"{outcome.uuid} ended as {outcome.reason}: {outcome.detail}"
    if history.more or end.open:
        yield f"after a recovery, {end.open} are open, and another one returned {history.more}"
    sent = [fact["sent"] for fact in history.log if "sent" in fact]
    if lost := [one for one in sent if one not in end.received]:
        yield f"the prompts {lost} were lost"
    last = max((n for n, fact in enumerate(history.log) if "sent" in fact), default=-1)
    received = {fact["outcome"] for fact in history.log[:last] if "outcome" in fact}
    if again := received & {*history.left[0].open}:
        yield f"the program has the outcomes of {again}, and they count as open"


def _wrong_prompts(history: History) -> Iterator[str]:
    """No prompt of the conversation is sent again, and each prompt that continues names calls."""
    for before, after in zip(history.left, history.left[1:], strict=False):
        known = {entry.uuid for entry in before.journal}
        new = [
            one for one in after.journal if isinstance(one, PromptEntry) and one.uuid not in known
        ]
        if again := before.saved & {one.prompt_uuid for one in new}:
            yield f"the conversation has the prompts {again}, and they were sent again"
        if not new:
            continue
        _, _, told = json.dumps(new[0].content).partition(json.dumps(UNKNOWN)[1:-1])
        told = told.partition(json.dumps(KNOWN)[1:-1])[0].replace('\\"', '"')
        wanted = before.uncertain()
        named = Counter({line: told.count(f'"line":"{line}"') for line in wanted})
        if named != wanted:
            yield f"the calls {dict(wanted)} were uncertain, and the model was told of {named}"


def _wrong_calls(history: History) -> Iterator[str]:
    """A call has one key, and one that is done does not run again."""
    end = history.left[-1]
    keys: dict[str, set[str]] = {}
    for fact in history.effects:
        keys.setdefault(fact["line"], set()).add(fact["key"])
    failed, made = end.failed(), end.made
    for uuid, prompt in end.prompts.items():
        asked = Counter(_ASKED.findall(str(prompt.content)))
        is_heard = not history.is_fake or not made.isdisjoint(asked)
        for line, times in asked.items():
            least = times - failed[line] if is_heard else 0
            if not least <= len(keys.get(line, ())) <= times:
                yield f"{uuid} asked {times} times for {line}, whose keys are {keys.get(line)}"
    for number, left in enumerate(history.left[:-1]):
        again = [fact for fact in history.effects[left.effects :] if fact["key"] in left.done]
        if again:
            yield f"kill {number}: calls that were done ran again: {again}"
    if history.has_crashes:
        return
    places = [0, *(left.effects for left in history.left)]
    for start, stop in itertools.pairwise(places):
        counts = Counter(fact["key"] for fact in history.effects[start:stop])
        if repeated := [key for key, count in counts.items() if count > 1]:
            yield f"between two kills, calls ran more than once: {repeated}"


def report(problems: Sequence[str], history: History) -> str:
    """Return the problems of a history, and the history."""
    lines = [*problems, f"session {history.session}", *history.story]
    lines += map(str, history.log)
    lines += map(str, history.effects)
    for number, left in enumerate(history.left):
        lines += [f"journal after kill {number}:", *map(_brief, left.journal)]
    return "\n".join(lines)


def _brief(entry: JournalEntry) -> str:
    return repr(entry)[:400]


def check(histories: Iterable[History]) -> None:
    """Raise if something is wrong with a history."""
    wrong = [report(problems, one) for one in histories if (problems := judge(one))]
    assert not wrong, "\n\n".join(wrong)


if __name__ == "__main__":
    leases.__dict__["LEASE"] = LEASE
    asyncio.run(run_program(msgjson.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))
