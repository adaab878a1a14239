"""Recordings played again: through the engine alone, or to a session in place of a CLI.

Only the client's side is live. It chooses other names than the recorded client did (request ids,
uuids of prompts, ids of hooks), so the CLI's lines are rewritten to use them; nothing else is
changed.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import Sequence
from os import PathLike
from typing import TypeAlias, TypeVar, cast

import msgspec

from bridle._core import actions as act
from bridle._core.config import EngineConfig
from bridle._core.engine import Engine
from bridle._core.wire import Content
from bridle._shell.transport import TransportEvents
from bridle.events import SessionEvent
from bridle.messages import Message
from bridle.outcomes import Outcome
from bridle.testing.recording import Entry, JsonObject, read_recording

Source: TypeAlias = str | PathLike[str] | Sequence[Entry]

_T = TypeVar("_T", bound=act.Action)

_KEPT_STDERR = 50
"""Lines of stderr an error may show."""


def _entries(recording: Source) -> list[Entry]:
    if isinstance(recording, str | PathLike):
        return read_recording(recording)
    return list(recording)


def _part(frame: JsonObject, name: str) -> JsonObject:
    value = frame.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


# ------------------------------------------------------------------------- names


class Names:
    """What things are called in the recording, and what the live client calls them."""

    def __init__(self) -> None:
        self._requests: dict[str, str] = {}
        self._texts: dict[bytes, bytes] = {}

    def learn(self, recorded: JsonObject, written: JsonObject) -> None:
        """These two lines say the same."""
        if recorded.get("type") == "control_request":
            self._requests[str(recorded.get("request_id"))] = str(written.get("request_id"))
            ours = _callbacks(_part(written, "request"))
            for place, name in _callbacks(_part(recorded, "request")).items():
                self._rename(name, ours.get(place, name))
        elif "uuid" in recorded and "uuid" in written:
            self._rename(str(recorded["uuid"]), str(written["uuid"]))

    def _rename(self, theirs: str, ours: str) -> None:
        if theirs != ours:
            self._texts[json.dumps(theirs).encode()] = json.dumps(ours).encode()

    def translate(self, entry: Entry) -> bytes:
        """A line of the CLI's as it would have come to the live client."""
        data = entry.data
        members = entry.members
        response = _part(members, "response")
        ours = self._requests.get(str(response.get("request_id")))
        if members.get("type") == "control_response" and ours is not None:
            response["request_id"] = ours
            data = json.dumps(members, ensure_ascii=False).encode() + b"\n"
        for old, new in self._texts.items():
            data = data.replace(old, new)
        return data


def _callbacks(request: JsonObject) -> dict[tuple[str, int, int], str]:
    """The callback ids of an initialize request, by where they stand."""
    return {
        (event, row, column): str(name)
        for event, entries in _part(request, "hooks").items()
        for row, entry in enumerate(_list(entries))
        for column, name in enumerate(_list(_part({"": entry}, "").get("hookCallbackIds")))
    }


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def kind_of(frame: JsonObject) -> tuple[str, ...]:
    """What a line to the CLI is, names aside: a prompt, a request of a subtype, or an answer."""
    kind = str(frame.get("type"))
    if kind == "control_request":
        return kind, str(_part(frame, "request").get("subtype"))
    if kind == "control_response":
        # The CLI chose this id, so it is the same in every run.
        return kind, str(_part(frame, "response").get("request_id"))
    return (kind,)


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
                self._engine.waiting_call(action.call_id, at)
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
            content = _part(frame, "message").get("content")
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
            request = _part(frame, "request")
            fields = {name: value for name, value in request.items() if name != "subtype"}
            actions = self._engine.submit(key, subtype[0], fields, now)
        for action in actions:
            if isinstance(action, act.Write):
                self._names.learn(frame, cast("JsonObject", json.loads(action.data)))
        return actions


# ------------------------------------------------------------------------- a session


class ReplayTransport:
    """A factory of transports, for ``BidirOptions.transport_factory``: a recording for a CLI.

    The CLI's lines come in their order, each batch once the session has written what the recorded
    client had written before it, whatever it is called and whatever else it wrote meanwhile. The
    process exits as it did. What the session wrote and the recording has not, or the other way
    round, is told in :attr:`deviations`.

    Args:
        speed: Recorded seconds per second; infinite does not wait at all.
    """

    def __init__(self, recording: Source, *, speed: float = math.inf) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed}; math.inf waits for nothing")
        self._entries = _entries(recording)
        self._speed = speed
        #: Where the session and the recording part, in words.
        self.deviations: list[str] = []

    def __call__(self, events: TransportEvents) -> _Replaying:
        """A transport that begins to play as soon as the loop runs."""
        return _Replaying(self._entries, self._speed, events, self.deviations)


def replay_transport(recording: Source, *, speed: float = math.inf) -> ReplayTransport:
    """A recording in place of a CLI: ``BidirOptions(transport_factory=replay_transport(path))``."""
    return ReplayTransport(recording, speed=speed)


class _Replaying:
    """One run of a recording."""

    def __init__(
        self,
        entries: list[Entry],
        speed: float,
        events: TransportEvents,
        deviations: list[str],
    ) -> None:
        self._entries = entries
        self._speed = speed
        self._events = events
        self._deviations = deviations
        self._names = Names()
        self._next = 0
        self._clock = 0.0
        self._written: list[JsonObject] = []
        self._unfinished = b""
        self._stderr: list[str] = []
        self._input_ended = False
        self._paused = False
        self._gone = False
        self._scheduled: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._schedule()

    # -- the transport

    @property
    def pid(self) -> int | None:
        return None

    @property
    def stderr_tail(self) -> str:
        return "\n".join(self._stderr)

    def write(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        self._written += [cast("JsonObject", json.loads(line)) for line in lines if line.strip()]
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
        if self._scheduled is not None:
            self._scheduled.cancel()

    # -- playing

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
        if self._paused or self._gone or not self._is_due(entry):
            return
        self._next += 1
        self._clock = entry.t
        if entry.direction == "out":
            self._events.received(self._names.translate(entry))
        elif entry.direction == "err":
            self._stderr.append(entry.line)
            self._events.wrote_stderr(entry.line)
        elif entry.direction == "meta" and "exit" in entry.members:
            self._leave(cast("int | None", entry.members["exit"]))
        self._schedule()

    def _is_due(self, entry: Entry) -> bool:
        """True unless the session has yet to do what the recorded client did here."""
        if entry.direction == "meta" and entry.members.get("stdin") == "EOF":
            return self._input_ended
        if entry.direction != "in":
            return True
        recorded = entry.members
        for written in self._written:
            if kind_of(written) == kind_of(recorded):
                self._names.learn(recorded, written)
                self._written.remove(written)
                return True
        if self._input_ended:
            self._deviations.append(f"not written: {' '.join(kind_of(recorded))}")
        return self._input_ended

    def _leave(self, exit_code: int | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._deviations += [f"not recorded: {' '.join(kind_of(one))}" for one in self._written]
        self._events.output_ended()
        self._events.exited(exit_code)
