"""Replay recordings: through the engine alone, or in place of a CLI for a session or query.

Only the client is live. Its request ids, prompt uuids and hook ids differ from the recorded ones,
so they are replaced in the CLI's lines. Nothing else is changed. The lines of the client are
compared with the recording (:mod:`bridle.testing.comparing`).
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

from bridle._spi import EngineConfig, EngineReplay, Launch, Transport, TransportEvents, about_launch
from bridle._spi import actions as act
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
"""The exit code of a replay that ends with a difference. A fake CLI uses the same code."""

_KEPT_STDERR = 50
"""How many lines of stderr an error can show."""


def _entries(recording: Source) -> list[Entry]:
    if isinstance(recording, str | PathLike):
        return read_recording(recording)
    return list(recording)


# ------------------------------------------------------------------------- the engine


class Replay(msgspec.Struct, frozen=True):
    """The result of replaying a recording through an engine."""

    #: All actions of the engine, with the recorded times.
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
        """The warnings."""
        return self._only(act.Warn)


def replay(recording: Source, config: EngineConfig | None = None) -> Replay:
    """Replay a recording through a new engine, with the recorded times.

    The recorded client's requests and prompts become operations. Its responses are not used:
    incoming requests are answered according to ``config``, at once if it has no callbacks.
    """
    player = EnginePlayer(config)
    return Replay([step for entry in _entries(recording) for step in player.play(entry)])


class EnginePlayer:
    """Replays a recording through a new engine, entry by entry."""

    def __init__(self, config: EngineConfig | None = None) -> None:
        self._engine = EngineReplay(config)
        self._names = Names()
        self._stderr: deque[str] = deque(maxlen=_KEPT_STDERR)

    def play(self, entry: Entry) -> list[tuple[float, act.Action]]:
        """Replay an entry. Return the actions of the engine: those due before, then its own."""
        return self._engine.advance(entry.t) + self._perform(entry)

    def _perform(self, entry: Entry) -> list[tuple[float, act.Action]]:
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
            return engine.exited(cast("int | None", frame["exit"]), "\n".join(self._stderr), now)
        return []

    def _write(self, frame: JsonObject, now: float) -> list[tuple[float, act.Action]]:
        """Repeat what the recorded client wrote."""
        kind, *subtype = kind_of(frame)
        if kind == "user":
            content = part(frame, "message").get("content")
            if not isinstance(content, str | list):
                return []
            uuid = str(frame.get("uuid") or f"prompt at {now}")
            return self._engine.send(uuid, cast("Content", content), now)
        if kind != "control_request":
            return []
        request = part(frame, "request")
        fields = {name: value for name, value in request.items() if name != "subtype"}
        steps = self._engine.submit(subtype[0], fields, now)
        for _, action in steps:
            if isinstance(action, act.Write):
                self._names.learn(frame, cast("JsonObject", json.loads(action.data)))
        return steps


# ------------------------------------------------------------------------- a session


class ReplayMismatch(BridleError, AssertionError):
    """The program differs from the recording.

    `differences` contains all differences in order. Look at the first one, because the others may
    be consequences of it.
    """

    def __init__(self, differences: Sequence[Difference], recording: str = "") -> None:
        first, *rest = differences
        where = f" of {recording}" if recording else ""
        more = f" (and {len(rest)} more)" if rest else ""
        super().__init__(
            f"The program differs from the recording{where}: {first}{more}.",
            fix="Correct the program, or record again if the change is intended.",
        )
        self.differences = tuple(differences)


class ReplayTransport:
    """Replays a recording in place of a CLI. Created by :func:`replay_transport`."""

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
            raise ValueError(f"speed must be above 0, got {speed}. Use math.inf to skip pauses")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be above 0, got {timeout}. Use None for no timeout")
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
        """The differences between the program and the recording, in order."""
        return tuple(difference for run in self._runs for difference in run.differences)

    @overload
    def __call__(self, events: TransportEvents, /) -> Transport: ...
    @overload
    def __call__(self, launch: Launch, events: TransportEvents, /) -> Transport: ...
    def __call__(self, *given: Any) -> Transport:
        """Return a transport that starts the replay when the event loop runs next.

        A session calls this with its events. A query (``SdkOptions.runner``) calls it with its
        launch plan and its events.
        """
        *plans, events = given
        if not plans:
            return self.open(events)
        about, secrets = about_launch(cast("Launch", plans[0]))
        return self.open(events, about=about, secrets=secrets)

    def open(
        self,
        events: TransportEvents,
        *,
        about: Mapping[str, object] | None = None,
        secrets: Iterable[str] = (),
    ) -> Transport:
        """Return a transport for a CLI with these facts.

        Args:
            about: The facts about the CLI, as in a recording. Those that the recording has too are
                compared, except ``cwd``, which replaces the recorded directory.
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

        Call it when the session or query is over. Lines that it has not written by then count as
        missing. The transport is a context manager, blocking or async, and checks at the end of
        its block.
        """
        if not self._strict:
            return
        found = [*self.differences]
        found += [missing for run in self._runs if (missing := run.missing()) is not None]
        if not self._runs and self._entries:
            found = [Difference(what="session", recorded="one", now="none was started")]
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
        """Raise the same errors as :meth:`check`.

        If the block raised an exception, lines that are missing at the end do not count.
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
        """Raise the same errors as :meth:`check`."""
        self.__exit__(kind, problem, trace)


def replay_transport(
    recording: Source,
    *,
    speed: float = math.inf,
    strict: bool = True,
    timeout: float | None = 30.0,
    normalize: Normalize | None = None,
) -> ReplayTransport:
    """Return a transport factory that replays a recording in place of the CLI.

    Pass it as ``BidirOptions.transport_factory``, or as ``SdkOptions.runner`` for a query::

        with replay_transport("session.ndjson") as factory:
            outcome = sync.run("Say hello.", bidir=BidirOptions(transport_factory=factory))

    The CLI's lines arrive in order. Each waits until the program has written the lines that the
    recorded program had written before it. Prompts, control requests, and responses to hooks,
    permission requests and tools are compared with the recording. Ids that are new in every run
    are ignored. A query also compares the arguments of the CLI, its settings and its environment;
    a cassette compares these and the limits of every session.

    At the first difference the replay ends like a CLI that crashes: it writes the difference to
    stderr and exits with 70, so an extra prompt fails at once. The end of the ``with`` block, or
    :meth:`~ReplayTransport.check`, raises :class:`ReplayMismatch` for differences and for lines
    that the program did not write.

    Args:
        recording: The path of a recording, or its entries.
        speed: Recorded seconds per second. ``math.inf`` skips all pauses.
        strict: False collects differences in ``differences`` and continues.
        timeout: Seconds, in addition to the recorded time, to wait during a turn for the next line
            of the program. None waits without limit.
        normalize: Called with each line of the program and of the recording, as a JSON object,
            before they are compared. Use it to remove values that differ from run to run, such as
            the time that a tool returns. Settings, environment and limits are an object with the
            type ``launch``.
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
        #: The differences between the program and the recording.
        self.differences: list[Difference] = []
        self._next = 0
        self._clock = 0.0
        self._unfinished = b""
        self._stderr: list[str] = []
        self._is_open = False  # True from a prompt until its result
        self._input_ended = False
        self._paused = False
        self._is_failing = False
        self._gone = False
        self._scheduled: asyncio.Handle | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def introduce(self, about: Mapping[str, object], directories: Mapping[str, str]) -> None:
        """Compare the facts about the CLI with those at the start of the recording."""
        noted = self._entries[0].members if self._entries else {}
        if "started" not in noted:
            return  # not written by a Recorder, so the arguments may be written differently
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
        self._note(self._compared.compare_launch(noted, about))
        self._note(compare_arguments(recorded, now))

    def missing(self) -> Difference | None:
        """Return the first line that the program has not written; None after a difference."""
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

    # -- replaying

    def _answer(self, line: bytes) -> None:
        if not self._gone and not self._is_failing:
            self._events.received(line)

    def _note(self, difference: Difference | None, *, goes_on: bool = True) -> None:
        """Store a difference. End the replay if it is strict or cannot continue."""
        if difference is None or self._gone:
            return
        self.differences.append(difference)
        if (self._strict or not goes_on) and not self._is_failing:
            self._is_failing = True
            # Later, because this may be called while the session writes.
            self._loop.call_soon(self._fail, difference)

    def _fail(self, difference: Difference) -> None:
        """End like a CLI that crashes."""
        if not self._gone:
            line = f"replay: {difference}"
            self._stderr.append(line)
            self._events.wrote_stderr(line)
            self._leave(_MISMATCH)

    def _schedule(self) -> None:
        """Replay the next entry at its time."""
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
        """Return whether the session has done what the recorded client did before this entry."""
        if entry.direction == "meta" and entry.members.get("stdin") == "EOF":
            return self._input_ended
        if entry.direction != "in" or self._input_ended:
            return True
        return self._compared.is_written(self._next)

    def _arm(self, entry: Entry) -> None:
        """Wait for the client. During a turn, start the timeout."""
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
        difference = Difference(what=what, recorded=recorded, now=f"nothing within {waited:.0f} s")
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
