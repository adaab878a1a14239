"""Recordings: written without secrets, read back as they were, played again to the same end."""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bridle
from bridle._core.actions import Write
from bridle._doors.session import Session
from bridle._shell.transport import TransportEvents
from bridle.testing.recording import Entry, Recorder, Redactor, read_recording
from bridle.testing.replaying import replay, replay_transport

GOLDEN = Path(__file__).parent.parent / "wire" / "golden"
RECORDINGS = sorted(GOLDEN.rglob("*.ndjson"))
TEXT_TURN = GOLDEN / "2.1.325" / "text_turn.ndjson"

KEY = "sk-" + "secret-key-0123456789"


def recorded(record: Callable[[Recorder], object], **options: Any) -> list[dict[str, Any]]:
    """What a recorder writes to a file in memory."""
    file = io.BytesIO()
    with Recorder(file, **options) as recorder:
        record(recorder)
    return [json.loads(line) for line in file.getvalue().splitlines()]


def entry(direction: Any, line: str | dict[str, Any], t: float = 0.0) -> Entry:
    return Entry(t, direction, line if isinstance(line, str) else json.dumps(line))


# ------------------------------------------------------------------------- writing and reading


def test_lines_are_written_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    with Recorder(path) as recorder:
        recorder.observe("out", b'{"a":1}\n{"b"')
        assert [one.line for one in read_recording(path)] == ['{"a":1}']
        recorder.observe("in", b"{}\n")
        recorder.observe("out", b":2}\n\xff\xfe\ncut")
        recorder.note({"exit": 0})
    entries = read_recording(path)
    assert [(one.direction, one.data) for one in entries] == [
        ("out", b'{"a":1}\n'),
        ("in", b"{}\n"),
        ("out", b'{"b":2}\n'),
        ("out", b"\xff\xfe\n"),
        ("meta", b'{"exit": 0}\n'),
        ("out", b"cut"),
    ]
    assert [one.t for one in entries] == sorted(one.t for one in entries)
    assert path.stat().st_mode & 0o077 == 0
    recorder.close()


def test_a_file_that_was_given_stays_open() -> None:
    file = io.BytesIO()
    Recorder(file).close()
    assert not file.closed


def test_entries_are_read_as_json_where_they_are() -> None:
    assert (entry("out", "no").value, entry("out", "no").members) == (None, {})
    assert (entry("out", "[1]").value, entry("out", "[1]").members) == ([1], {})
    assert entry("out", '{"a":1}').members == {"a": 1}


def test_an_entry_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    path.write_text('{"t":0,"dir":"in","line":"a"}\n{"t":0,"dir"')
    assert [one.line for one in read_recording(path)] == ["a"]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"t":0,"dir":"sideways","line":""}'])
def test_a_line_that_is_no_entry_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.ndjson"
    path.write_text(f'{{"t":0,"dir":"in","line":"a"}}\n{line}\n')
    with pytest.raises(ValueError, match=r"r\.ndjson, line 2: "):
        read_recording(path)


# ------------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("nothing to hide", "nothing to hide"),
        (f"key {KEY} here", "key *** here"),
        ("Authorization: Basic abc", "Authorization: ***"),
        ("use Bearer abc.def now", "use Bearer *** now"),
        ("x-api-key: abc", "x-api-key: ***"),
        ("https://user:pass@host/", "https://***@host/"),
        ("the magic word", "the *** word"),
        ("{broken magic", "{broken ***"),
        ('{"spaces": "kept" }', '{"spaces": "kept" }'),
        ('{"env": {"A": "b"}, "n": 1}', '{"env":{"A":"***"},"n":1}'),
        ('{"headers":{"X":"y"}}', '{"headers":{"X":"***"}}'),
        ('{"env":["A"]}', '{"env":["A"]}'),
        ('{"api_key":"x","apiKeySource":"env"}', '{"api_key":"***","apiKeySource":"env"}'),
        ('{"accessToken":"x","tokenSource":"none"}', '{"accessToken":"***","tokenSource":"none"}'),
        ('{"max_tokens":5,"token":5}', '{"max_tokens":5,"token":5}'),
        ('{"deep":[{"password":"x"}]}', '{"deep":[{"password":"***"}]}'),
        ('{"text":"a magic é"}', '{"text":"a *** é"}'),
        (
            json.dumps({"argv": ["--mcp-config", json.dumps({"env": {"A": "b"}})]}),
            '{"argv":["--mcp-config","{\\"env\\":{\\"A\\":\\"***\\"}}"]}',
        ),
    ],
)
def test_secrets_are_masked_and_nothing_else_is_touched(line: str, clean: str) -> None:
    assert Redactor(["magic", ""]).line(line) == clean


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert Redactor(["ab", "abc"]).line("abc ab") == "*** ***"


def test_the_recorder_masks_in_every_direction() -> None:
    def record(recorder: Recorder) -> None:
        recorder.observe("in", b'{"mcpServers":{"s":{"env":{"K":"v"}}}}\n')
        recorder.observe("err", b"hush now\n")
        recorder.note({"env": {"ANTHROPIC_API_KEY": "x"}})

    lines = [one["line"] for one in recorded(record, secrets=["hush"])]
    assert lines == [
        '{"mcpServers":{"s":{"env":{"K":"***"}}}}',
        "*** now",
        '{"env":{"ANTHROPIC_API_KEY":"***"}}',
    ]


# ------------------------------------------------------------------------- recording a transport


class Events:
    """A session that only takes notes."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.gone = asyncio.Event()

    def received(self, data: bytes) -> None:
        self.told.append(data)

    def output_ended(self) -> None:
        self.told.append("output ended")

    def wrote_stderr(self, line: str) -> None:
        self.told.append(line)

    def exited(self, exit_code: int | None) -> None:
        self.told.append(exit_code)
        self.gone.set()

    def input_failed(self, reason: str) -> None:
        self.told.append(reason)


class Pipe:
    """A transport that only takes notes."""

    pid = 7
    stderr_tail = "tail"

    def __init__(self, events: TransportEvents) -> None:
        self.events = events
        self.done: list[object] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    async def drain(self) -> None:
        self.done.append("drain")

    def end_input(self) -> None:
        self.done.append("end_input")

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def terminate(self) -> None:
        self.done.append("terminate")

    def kill(self) -> None:
        self.done.append("kill")

    async def aclose(self) -> None:
        self.done.append("aclose")


def test_a_wrapped_transport_is_recorded_and_otherwise_the_same() -> None:
    async def main() -> tuple[list[object], list[object], list[tuple[str, str]]]:
        events, pipes, file = Events(), list[Pipe](), io.BytesIO()

        def factory(told: TransportEvents) -> Pipe:
            pipes.append(Pipe(told))
            return pipes[0]

        transport = Recorder(file).wrap(factory)(events)
        assert (transport.pid, transport.stderr_tail) == (7, "tail")
        transport.write(b"{}\n")
        await transport.drain()
        transport.pause_reading()
        transport.resume_reading()
        told = pipes[0].events
        told.received(b"[]\n")
        told.wrote_stderr("oh")
        told.input_failed("broken")
        transport.end_input()
        transport.terminate()
        transport.kill()
        told.output_ended()
        told.exited(1)
        await transport.aclose()
        entries = [json.loads(line) for line in file.getvalue().splitlines()]
        return pipes[0].done, events.told, [(one["dir"], one["line"]) for one in entries]

    done, told, entries = asyncio.run(main())
    assert done == [
        *(b"{}\n", "drain", "pause", "resume"),
        *("end_input", "terminate", "kill", "aclose"),
    ]
    assert told == [b"[]\n", "oh", "broken", "output ended", 1]
    assert entries == [
        ("in", "{}"),
        ("out", "[]"),
        ("err", "oh"),
        ("meta", '{"input_failed": "broken"}'),
        ("meta", '{"stdin": "EOF"}'),
        ("meta", '{"signal": "SIGTERM"}'),
        ("meta", '{"signal": "SIGKILL"}'),
        ("meta", '{"exit": 1}'),
    ]


# ------------------------------------------------------------------------- the engine


@pytest.mark.parametrize(
    "path", RECORDINGS, ids=[f"{path.parent.name}-{path.stem}" for path in RECORDINGS]
)
def test_an_engine_makes_of_a_recording_what_was_said(path: Path) -> None:
    """Every message comes, unchanged and in order; every prompt has its outcome."""
    entries = read_recording(path)
    result = replay(path)
    said = [one.members for one in entries if one.direction == "out"]
    aside = ("control_request", "control_response", "control_cancel_request", "command_lifecycle")
    conversation = [frame for frame in said if frame["type"] not in aside]
    delivered = [message.raw for message in result.messages]
    assert [raw for raw in delivered if raw["type"] not in aside] == conversation
    written = [one.members for one in entries if one.direction == "in"]
    prompts = {frame["uuid"] for frame in written if frame["type"] == "user"}
    assert set(result.outcomes) == prompts


def test_a_replay_tells_everything_the_engine_did() -> None:
    result = replay(read_recording(TEXT_TURN))
    (outcome,) = result.outcomes.values()
    assert (outcome.ok, outcome.text) == (True, "Hello there.")
    assert [type(event).__name__ for event in result.events] == ["SessionReady", "SessionCompleted"]
    assert result.warnings == []
    times = [time for time, _ in result.steps]
    assert times == sorted(times)
    assert 0.1 < outcome.duration < 0.2


def test_deadlines_pass_in_a_replay() -> None:
    """Nobody answers the handshake, and a minute goes by."""
    start = entry("in", {"type": "control_request", "request": {"subtype": "initialize"}})
    result = replay([start, entry("meta", {"note": 1}, t=100.0)])
    (time,) = {time for time, action in result.steps if not isinstance(action, Write)} - {65.0}
    assert time == 60.0
    assert [type(event).__name__ for event in result.events] == ["SessionFailed"]


# ------------------------------------------------------------------------- a transport


def run_client(
    recording: Any, act: Callable[[Any, Events], object], *, speed: float = math.inf
) -> tuple[list[object], list[str], Any]:
    """Let a client act on a replay, and wait until it has exited."""

    async def main() -> tuple[list[object], list[str], Any]:
        factory, events = replay_transport(recording, speed=speed), Events()
        transport = factory(events)
        act(transport, events)
        await asyncio.wait_for(events.gone.wait(), 10)
        await transport.drain()
        await transport.aclose()
        return events.told, factory.deviations, transport

    return asyncio.run(main())


INITIALIZE = {"subtype": "initialize"}
RECORDING = [
    entry("meta", {"argv": []}),
    entry("in", {"type": "control_request", "request_id": "r1", "request": INITIALIZE}),
    entry("out", {"type": "control_response", "response": {"request_id": "r1"}}),
    entry("in", {"type": "user", "uuid": "u1", "message": {}}),
    entry("out", {"type": "result", "user_message_uuids": ["u1"]}),
    entry("err", "oh"),
    entry("meta", {"stdin": "EOF"}),
    entry("meta", {"exit": 3}),
]


def line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def test_a_replay_goes_on_as_the_client_does() -> None:
    def act(transport: Any, _: Events) -> None:
        frames = [
            {"type": "user", "uuid": "mine", "message": {}},
            {"type": "control_request", "request_id": "q", "request": INITIALIZE},
        ]
        data = b"".join(map(line, frames))
        transport.pause_reading()
        transport.write(data[:50])
        transport.write(data[50:])
        transport.end_input()
        transport.resume_reading()

    told, deviations, transport = run_client(RECORDING, act)
    lines = [json.loads(one) for one in told if isinstance(one, bytes)]
    assert lines == [
        {"type": "control_response", "response": {"request_id": "q"}},
        {"type": "result", "user_message_uuids": ["mine"]},
    ]
    assert told[2:] == ["oh", "output ended", 3]
    assert (deviations, transport.stderr_tail, transport.pid) == ([], "oh", None)


def test_what_differs_is_told() -> None:
    def act(transport: Any, _: Events) -> None:
        transport.write(line({"type": "control_request", "request": {"subtype": "odd"}}))
        transport.end_input()

    told, deviations, _ = run_client(RECORDING, act)
    assert deviations == [
        "not written: control_request initialize",
        "not written: user",
        "not recorded: control_request odd",
    ]
    assert told[-1] == 3


@pytest.mark.parametrize(("how", "code"), [("terminate", 143), ("kill", -9)])
def test_a_replay_can_be_ended(how: str, code: int) -> None:
    told, _, _ = run_client(RECORDING, lambda transport, _: getattr(transport, how)())
    assert told == ["output ended", code]


def test_a_recording_without_an_end_ends_all_the_same() -> None:
    told, _, _ = run_client([entry("out", "{}")], lambda transport, _: None)
    assert told == [b"{}\n", "output ended", None]


def test_a_replay_can_keep_time() -> None:
    late = [entry("out", "{}", t=10.0), entry("meta", {"exit": 0}, t=20.0)]

    async def main() -> float:
        loop = asyncio.get_running_loop()
        started, events = loop.time(), Events()
        replay_transport(late, speed=100.0)(events)
        await asyncio.wait_for(events.gone.wait(), 10)
        return loop.time() - started

    assert 0.2 <= asyncio.run(main()) < 5


@pytest.mark.parametrize("speed", [0, -1, math.nan])
def test_a_speed_that_leads_nowhere_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed must be above 0"):
        replay_transport([], speed=speed)


@pytest.mark.parametrize("version", ["2.1.325", "2.1.197"])
def test_a_session_runs_on_a_recording(version: str) -> None:
    seen: list[str] = []

    def note(name: str) -> Callable[[Any], None]:
        return lambda _: seen.append(name)

    def allow(_: Any) -> bridle.Allow:
        seen.append("permission")
        return bridle.Allow()

    async def main() -> tuple[str, list[str]]:
        factory = replay_transport(GOLDEN / version / "hook_and_permission.ndjson")
        session = Session(
            bridle.CliOptions(),
            bridle.SdkOptions(),
            bridle.BidirOptions(
                transport_factory=factory,
                on_pre_tool_use=note("before"),
                on_post_tool_use=note("after"),
                on_stop=note("stop"),
                on_can_use_tool=allow,
            ),
        )
        await session.connect()
        turn = await session.send_user_message("hello")
        outcome = await turn
        await session.aclose()
        return outcome.text, factory.deviations

    assert asyncio.run(main()) == ("went on", [])
    assert seen == ["before", "permission", "after", "stop"]
