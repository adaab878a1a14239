"""Replay of recordings: through the engine alone, or to a session or query in place of a CLI.

Only the client's side is live. It chooses other names than the recorded client did (request ids,
uuids of prompts, ids of hooks), so the CLI's lines are rewritten to use them; nothing else is
changed. What the client writes is compared with the recording (:mod:`bridle.testing.comparing`).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, cast, overload

import msgspec

from bridle._core import actions as act
from bridle._core.config import EngineConfig
from bridle._core.engine import Engine
from bridle._core.launch import Launch, redact, secrets
from bridle._shell.transport import Transport, TransportEvents
from bridle.content import Content
from bridle.errors import BridleError
from bridle.events import SessionEvent
from bridle.messages import JsonObject, Message
from bridle.outcomes import Outcome
from bridle.testing.comparing import (
    Comparison,
    Difference,
    Names,
    Normalize,
    compare_arguments,
    is_query,
    kind_of,
    part,
)
from bridle.testing.recording import Entry, read_recording

__all__ = [
    "Replay",
    "ReplayMismatch",
    "ReplayTransport",
    "Source",
    "replay",
    "replay_transport",
]

Source: TypeAlias = str | PathLike[str] | Sequence[Entry]

_T = TypeVar("_T", bound=act.Action)

_MISMATCH = 70
"""The exit code of a replay that ends with a difference; that of a fake CLI, too."""

_KEPT_STDERR = 50
"""Lines of stderr an error may show."""


def _entries(recording: Source) -> list[Entry]:
    if isinstance(recording, str | PathLike):
        return read_recording(recording)
    return list(recording)


# ------------------------------------------------------------------------- the engine


class Replay(msgspec.Struct, frozen=True):
    """What an engine made of a recording."""

    #: Everything it wanted done, with the recorded times.
    steps: list[tuple[float, act.Action]]

    def _only(self, kind: type[_T]) -> list[_T]:
        return [action for _, action in self.steps if isinstance(action, kind)]

    @property
    def messages(self) -> list[Message]:
        """The messages, in order."""
        return [message for one in self._only(act.Deliver) for message in one.messages]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of each prompt, by its uuid."""
        return {one.uuid: one.outcome for one in self._only(act.TurnEnded)}

    @property
    def events(self) -> list[SessionEvent]:
        """The session's events."""
        return [one.event for one in self._only(act.Publish)]

    @property
    def warnings(self) -> list[act.Warn]:
        """What was off."""
        return self._only(act.Warn)


def replay(recording: Source, config: EngineConfig | None = None) -> Replay:
    """Play a recording through a fresh engine, in the recorded time.

    The recorded client's requests and prompts become operations. Its answers do not: questions
    are answered as ``config`` says, which without callbacks means at once.
    """
    player = EnginePlayer(config)
    return Replay([step for entry in _entries(recording) for step in player.play(entry)])


class EnginePlayer:
    """Plays a recording through a fresh engine, entry by entry."""

    def __init__(self, config: EngineConfig | None = None) -> None:
        self._engine = Engine(config or EngineConfig())
        self._names = Names()
        self._played = 0
        self._stderr: deque[str] = deque(maxlen=_KEPT_STDERR)

    def play(self, entry: Entry) -> list[tuple[float, act.Action]]:
        """What the engine wants done, with the time: what became due before, then by this entry."""
        self._played += 1
        steps: list[tuple[float, act.Action]] = []
        while (due := self._engine.next_deadline) is not None and due <= entry.t:
            steps += self._steps(self._engine.advance(due), due)
        return steps + self._steps(self._perform(entry), entry.t)

    def _steps(self, actions: list[act.Action], at: float) -> list[tuple[float, act.Action]]:
        for action in actions:
            if isinstance(action, act.Call):  # nobody makes it, so it waits until its time is up
                self._engine.started_call(action.call_id, at)
        return [(at, action) for action in actions]

    def _perform(self, entry: Entry) -> list[act.Action]:
        engine, frame, now = self._engine, entry.members, entry.t
        if entry.direction == "out":
            return engine.receive(self._names.translate(entry), now)
        if entry.direction == "in":
            return self._write(frame, now)
        if entry.direction == "err":
            self._stderr.append(entry.line)
        elif frame.get("stdin") == "EOF":
            return engine.end_input(now)
        elif "exit" in frame:
            code, said = cast("int | None", frame["exit"]), "\n".join(self._stderr)
            return engine.output_ended(now) + engine.exited(code, said, now)
        return []

    def _write(self, frame: JsonObject, now: float) -> list[act.Action]:
        """What the recorded client wrote, done again."""
        kind, *subtype = kind_of(frame)
        if kind == "user":
            content = part(frame, "message").get("content")
            if not isinstance(content, str | list):
                return []
            uuid = str(frame.get("uuid") or f"prompt at {now}")
            return self._engine.send(("prompt", self._played), uuid, cast("Content", content), now)
        if kind != "control_request":
            return []
        key = ("request", self._played)
        if subtype == ["initialize"]:
            actions = self._engine.start(key, now)
        else:
            request = part(frame, "request")
            fields = {name: value for name, value in request.items() if name != "subtype"}
            actions = self._engine.submit(key, subtype[0], fields, now)
        for action in actions:
            if isinstance(action, act.Write):
                self._names.learn(frame, cast("JsonObject", json.loads(action.data)))
        return actions


# ------------------------------------------------------------------------- a session


class ReplayMismatch(BridleError, AssertionError):
    """The program did something else than the recording has.

    `differences` has what was noticed, in order; the first one is the one to look at, because
    what follows may be a consequence of it.
    """

    def __init__(self, differences: Sequence[Difference], recording: str = "") -> None:
        first, *rest = differences
        where = f" of {recording}" if recording else ""
        more = f" (and {len(rest)} more)" if rest else ""
        super().__init__(
            f"The program differs from the recording{where}: {first}{more}.",
            fix="Mend the program, or record anew if the change is meant.",
        )
        self.differences = tuple(differences)


class ReplayTransport:
    """Plays a recording in place of a CLI. Made by :func:`replay_transport`."""

    def __init__(
        self,
        recording: Source,
        *,
        speed: float = math.inf,
        strict: bool = True,
        timeout: float | None = 30.0,
        normalize: Normalize | None = None,
        directories: Mapping[str, str] | None = None,
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed}; math.inf waits for nothing")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be above 0, not {timeout}; None waits for ever")
        self._name = os.fspath(recording) if isinstance(recording, str | PathLike) else ""
        self._entries = _entries(recording)
        self._speed = speed
        self._strict = strict
        self._timeout = timeout
        self._normalize = normalize
        self._directories = directories or {}
        self._runs: list[_Replaying] = []

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Where the program and the recording differ, in the order it was noticed."""
        return tuple(difference for run in self._runs for difference in run.differences)

    @overload
    def __call__(self, events: TransportEvents, /) -> Transport: ...
    @overload
    def __call__(self, launch: Launch, events: TransportEvents, /) -> Transport: ...
    def __call__(self, *given: Any) -> Transport:
        """Return a transport that begins to play as soon as the event loop runs.

        A session calls this with its events, a query (``SdkOptions.runner``) with its launch plan
        before them.
        """
        *plans, events = given
        if not plans:
            return self.open(events)
        plan = cast("Launch", plans[0])
        about = {"argv": redact(plan.argv), "cwd": plan.cwd}
        return self.open(events, about=about, secrets=secrets(plan))

    def open(
        self,
        events: TransportEvents,
        *,
        about: Mapping[str, object] | None = None,
        secrets: Iterable[str] = (),
    ) -> Transport:
        """Return a transport, given what is known about the CLI it replaces.

        Args:
            about: ``argv`` and ``cwd``, as a recorder notes them. The arguments are compared; the
                directory takes the place of the recorded one.
            secrets: Strings to mask in differences.
        """
        names = Names()
        compared = Comparison(self._entries, names, normalize=self._normalize, secrets=secrets)
        run = _Replaying(
            self._entries,
            events,
            names,
            compared,
            speed=self._speed,
            strict=self._strict,
            timeout=self._timeout,
        )
        self._runs.append(run)
        if about is not None:
            run.introduce(about, self._directories)
        return run

    def check(self) -> None:
        """Raise :class:`ReplayMismatch` if the program differed from the recording.

        Call it when the session or query is over: what it has not written by then is missing.
        Leaving the transport (it is a context manager, blocking or async) does the same.
        """
        if not self._strict:
            return
        found = [*self.differences]
        found += [missing for run in self._runs if (missing := run.missing()) is not None]
        if not self._runs and self._entries:
            found = [Difference(what="session", recorded="one", now="nothing was started")]
        if found:
            raise ReplayMismatch(found, self._name)

    def __enter__(self) -> ReplayTransport:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise what :meth:`check` would.

        If the block raised, then only what was noticed before: the rest is missing because of it.
        """
        if problem is None:
            self.check()
        elif isinstance(problem, Exception) and self._strict and self.differences:
            raise ReplayMismatch(self.differences, self._name) from problem

    async def __aenter__(self) -> ReplayTransport:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise what :meth:`check` would."""
        self.__exit__(kind, problem, trace)


def replay_transport(
    recording: Source,
    *,
    speed: float = math.inf,
    strict: bool = True,
    timeout: float | None = 30.0,
    normalize: Normalize | None = None,
) -> ReplayTransport:
    """Return a recording that takes the place of the CLI.

    Give it to ``BidirOptions.transport_factory``, or to ``SdkOptions.runner`` of a query::

        with replay_transport("session.ndjson") as factory:
            outcome = sync.run("Say hello.", bidir=BidirOptions(transport_factory=factory))

    The CLI's lines come in their order, each one after the program has written what the recorded
    program had written before it. Prompts, control requests and the answers to hooks, permission
    requests and tools are compared with the recording, without ids that are new in every run.

    At the first difference the replay ends as a CLI that crashes does: it writes the difference to
    stderr and exits with 70, so an extra prompt fails at once. Leaving the ``with`` block, or
    :meth:`~ReplayTransport.check`, raises :class:`ReplayMismatch`, also for what the program did
    not write at all.

    Args:
        recording: The path of a recording, or its entries.
        speed: Recorded seconds per second; infinite does not wait at all.
        strict: With False, differences are only collected in ``differences``; the replay goes on.
        timeout: Seconds, beside the recorded time, that a program with an open turn has for what
            the recorded program wrote next. None waits for ever.
        normalize: Called with each line of the program and of the recording, as JSON, before they
            are compared. Remove there what differs from run to run, such as the time a tool tells.
    """
    return ReplayTransport(
        recording, speed=speed, strict=strict, timeout=timeout, normalize=normalize
    )


class _Replaying:
    """One run of a recording."""

    def __init__(
        self,
        entries: list[Entry],
        events: TransportEvents,
        names: Names,
        compared: Comparison,
        *,
        speed: float,
        strict: bool,
        timeout: float | None,
    ) -> None:
        self._entries = entries
        self._events = events
        self._names = names
        self._compared = compared
        self._speed = speed
        self._strict = strict
        self._timeout = timeout
        #: Where the program and the recording differ.
        self.differences: list[Difference] = []
        self._next = 0
        self._clock = 0.0
        self._unfinished = b""
        self._stderr: list[str] = []
        self._is_open = False  # a prompt was written, and no result has come since
        self._input_ended = False
        self._paused = False
        self._is_failing = False
        self._gone = False
        self._scheduled: asyncio.Handle | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def introduce(self, about: Mapping[str, object], directories: Mapping[str, str]) -> None:
        """Compare what is known about the CLI with what the recorder noted first."""
        noted = self._entries[0].members if self._entries else {}
        if "started" not in noted:
            return  # made by something else, which may spell arguments in another way
        recorded, now = (
            [str(arg) for arg in cast("Iterable[object]", one.get("argv") or ())]
            for one in (noted, about)
        )
        for old, new in zip(_session_ids(recorded), _session_ids(now), strict=False):
            self._names.learn_word(old, new)
        live = {"cwd": str(about.get("cwd") or os.getcwd()), **directories}
        then = {"cwd": noted.get("cwd"), **part(noted, "directories")}
        for name, directory in live.items():
            if isinstance(was := then.get(name), str):
                self._names.learn_directory(was, directory)
        self._note(compare_arguments(recorded, now))

    def missing(self) -> Difference | None:
        """Return what the recorded client wrote and this one has not; None after a difference."""
        return None if self.differences else self._compared.missing()

    # -- the transport

    @property
    def pid(self) -> int | None:
        return None

    @property
    def stderr_tail(self) -> str:
        return "\n".join(self._stderr)

    def write(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in filter(bytes.strip, lines):
            written = cast("JsonObject", json.loads(line))
            self._is_open = self._is_open or written.get("type") == "user"
            if is_query(written):
                difference, answer = self._compared.answer(written, self._next)
                self._note(difference)
                self._loop.call_soon(self._answer, answer)
            else:
                difference, goes_on = self._compared.take(written)
                self._note(difference, goes_on=goes_on)
        self._schedule()

    async def drain(self) -> None:
        return

    def end_input(self) -> None:
        self._input_ended = True
        self._schedule()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._schedule()

    def terminate(self) -> None:
        self._leave(143)

    def kill(self) -> None:
        self._leave(-9)

    async def aclose(self) -> None:
        self._leave(-9)

    # -- playing

    def _answer(self, line: bytes) -> None:
        if not self._gone and not self._is_failing:
            self._events.received(line)

    def _note(self, difference: Difference | None, *, goes_on: bool = True) -> None:
        """Note a difference, and end with it if the replay is strict or cannot go on."""
        if difference is None or self._gone:
            return
        self.differences.append(difference)
        if (self._strict or not goes_on) and not self._is_failing:
            self._is_failing = True
            # Not now: the session may be in the midst of writing.
            self._loop.call_soon(self._fail, difference)

    def _fail(self, difference: Difference) -> None:
        """End as a CLI that crashes does."""
        if not self._gone:
            line = f"replay: {difference}"
            self._stderr.append(line)
            self._events.wrote_stderr(line)
            self._leave(_MISMATCH)

    def _schedule(self) -> None:
        """Play the next entry, when its time has come."""
        if self._scheduled is not None or self._gone or self._paused:
            return
        if self._next == len(self._entries):
            self._leave(None)
            return
        entry = self._entries[self._next]
        wait = max(0.0, entry.t - self._clock) / self._speed
        self._scheduled = self._loop.call_later(wait, self._play)

    def _play(self) -> None:
        self._scheduled = None
        entry = self._entries[self._next]
        if self._paused or self._gone or self._is_failing:
            return
        if not self._is_due(entry):
            self._arm(entry)
            return
        self._disarm()
        self._next += 1
        self._clock = entry.t
        if entry.direction == "out":
            if '"result"' in entry.line and entry.members.get("type") == "result":
                self._is_open = False
            if not self._compared.answers_query(entry):
                self._events.received(self._names.translate(entry))
        elif entry.direction == "err":
            self._stderr.append(entry.line)
            self._events.wrote_stderr(entry.line)
        elif entry.direction == "meta" and "exit" in entry.members:
            self._leave(cast("int | None", entry.members["exit"]))
        self._schedule()

    def _is_due(self, entry: Entry) -> bool:
        """Return False if the session has yet to do what the recorded client did here."""
        if entry.direction == "meta" and entry.members.get("stdin") == "EOF":
            return self._input_ended
        if entry.direction != "in" or self._input_ended:
            return True
        return self._compared.is_written(self._next)

    def _arm(self, entry: Entry) -> None:
        """Wait for the client, but not for ever while it waits for the CLI."""
        if self._timeout is not None and self._is_open and self._overdue is None:
            wait = self._timeout + max(0.0, entry.t - self._clock)
            self._overdue = self._loop.call_later(wait, self._give_up, wait)

    def _disarm(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self, waited: float) -> None:
        missing = self._compared.missing()
        what, recorded = (
            ("input", "closed") if missing is None else (missing.what, missing.recorded)
        )
        difference = Difference(what=what, recorded=recorded, now=f"nothing for {waited:.0f} s")
        self._note(difference, goes_on=False)

    def _leave(self, exit_code: int | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._disarm()
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._events.output_ended()
        self._events.exited(exit_code)


def _session_ids(argv: Iterable[str]) -> list[str]:
    return [arg.partition("=")[2] for arg in argv if arg.startswith("--session-id=")]
