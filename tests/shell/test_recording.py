"""Recordings: written without secrets, read back as they were, played again to the same end."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.support import cli
from tests.support.limits import SetLimits
from tests.support.processes import LIMIT, open_descriptors
from tests.support.steps import ReplaceSteps

import bridle
from bridle._engine.actions import Call, CancelCall, Write
from bridle._engine.config import EngineConfig
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._process.transport import TransportEvents
from bridle.testing import FakeCli
from bridle.testing.recording import Entry, Recorder, RecordingError, read_recording
from bridle.testing.replaying import (
    ReplayMismatch,
    ReplayTransport,
    replay,
    replay_transport,
)

GOLDEN = Path(__file__).parent.parent / "wire" / "golden"
RECORDINGS = sorted(GOLDEN.rglob("*.ndjson"))
TEXT_TURN = GOLDEN / "2.1.326" / "text_turn.ndjson"


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
def test_a_line_that_is_not_an_entry_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.ndjson"
    path.write_text(f'{{"t":0,"dir":"in","line":"a"}}\n{line}\n')
    with pytest.raises(RecordingError, match=r"r\.ndjson, line 2: is not an entry") as caught:
        read_recording(path)
    assert (caught.value.path, caught.value.line) == (str(path), 2)
    assert isinstance(caught.value, bridle.BridleError)


@pytest.mark.parametrize("times", [(1.0, 0.5), (0.0, math.nan), (0.0, math.inf)])
def test_time_only_goes_forward(tmp_path: Path, times: tuple[float, float]) -> None:
    path = tmp_path / "r.ndjson"
    path.write_text("".join(json.dumps({"t": t, "dir": "in", "line": ""}) + "\n" for t in times))
    with pytest.raises(RecordingError, match="line 2: the time goes back"):
        read_recording(path)


@pytest.mark.parametrize("code", ["0", True, 1.5, [0]])
def test_an_exit_code_that_is_not_a_number_is_refused(tmp_path: Path, code: object) -> None:
    path = tmp_path / "r.ndjson"
    entry = {"t": 0, "dir": "meta", "line": json.dumps({"exit": code})}
    path.write_text(json.dumps(entry) + "\n")
    with pytest.raises(RecordingError, match="line 1: the exit code is not a number"):
        read_recording(path)


@pytest.mark.parametrize("name", ["nowhere.ndjson", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordingError, match="cannot be read") as caught:
        read_recording(tmp_path / name)
    assert (caught.value.line, isinstance(caught.value.__cause__, OSError)) == (None, True)


END = '{"t":1,"dir":"meta","line":"{\\"exit\\": 0}"}\n'
FIRST = '{"t":0,"dir":"in","line":"a"}\n'


@pytest.mark.parametrize(
    ("text", "cut_off", "gap"),
    [
        (FIRST + END, None, ""),
        (FIRST, None, "the end of the session is missing"),
        (FIRST + END[:20], 2, "line 2 was cut off, and the end of the session is missing"),
        ("", None, "the end of the session is missing"),
        (FIRST + "\0" * 20, 2, "line 2 was cut off, and the end of the session is missing"),
    ],
    ids=["whole", "no-end", "cut-off", "empty", "zeroes"],
)
def test_what_is_missing_at_the_end_is_reported(
    tmp_path: Path, text: str, cut_off: int | None, gap: str
) -> None:
    path = tmp_path / "r.ndjson"
    path.write_text(text)
    found = read_recording(path)
    assert (found.cut_off, found.gap) == (cut_off, gap)


# ------------------------------------------------------------------------- secrets


def test_the_recorder_masks_in_every_direction() -> None:
    def record(recorder: Recorder) -> None:
        recorder.observe("in", b'{"mcpServers":{"s":{"env":{"K":"v"}}}}\n')
        recorder.observe("err", b"hush now\n")
        recorder.note({"env": {"ANTHROPIC_API_KEY": "x"}})

    lines = [one["line"] for one in recorded(record, secrets=["hush"])]
    assert lines == [
        '{"mcpServers":{"s":{"env":{"K":"***"}}}}',
        "*** now",
        '{"env": {"ANTHROPIC_API_KEY": "***"}}',
    ]


# ------------------------------------------------------------------------- failures


class Full(io.BytesIO):
    """A disk with room for so many lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.room = lines

    def write(self, data: Any) -> int:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_recorder_without_room_says_so_once_and_is_silent_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Full(1)
    with Recorder(disk) as recorder:
        recorder.observe("out", b"one\ntwo\n")
        recorder.observe("in", b"three\n")
        recorder.note({"exit": 0})
    assert isinstance(recorder.failure, OSError)
    assert recorder.written == {"in": 0, "out": 1, "err": 0, "meta": 0}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text


def test_a_file_that_cannot_be_closed_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(Full(0))
    recorder.observe("out", b"unfinished")
    recorder.close()
    assert isinstance(recorder.failure, OSError)
    assert len(caplog.records) == 1


def test_a_full_disk_keeps_no_descriptor(caplog: pytest.LogCaptureFixture) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with Recorder("/dev/full") as recorder:
        recorder.observe("out", b"one\n")
        recorder.observe("out", b"unfinished")
    assert isinstance(recorder.failure, OSError)
    assert len(caplog.records) == 1
    targets = {os.path.realpath(f"/proc/self/fd/{number}") for number in open_descriptors()}
    assert "/dev/full" not in targets


def test_what_cannot_be_redacted_is_not_recorded(
    caplog: pytest.LogCaptureFixture, replace_steps: ReplaceSteps
) -> None:
    def deep(self: object, line: str) -> str:
        raise RecursionError(line)

    replace_steps(redact_line=deep)
    with Recorder(io.BytesIO()) as recorder:
        recorder.observe("out", b"a private word\n")
    assert isinstance(recorder.failure, RecursionError)
    assert recorder.written["out"] == 0
    assert "private" not in caplog.text


def test_deeply_nested_lines_are_recorded() -> None:
    deep = b"[" * 50_000
    lines = recorded(lambda recorder: recorder.observe("out", deep + b"\n"))
    assert [one["line"] for one in lines] == [deep.decode()]
    assert entry("out", deep.decode()).value is None


def test_a_line_without_an_end_is_written_in_parts(set_limits: SetLimits) -> None:
    set_limits(longest_recorded_line=10)

    def record(recorder: Recorder) -> None:
        for piece in (b"0123456", b"789abc", b"de", b"f\ng"):
            recorder.observe("out", piece)

    lines = [msgspec.convert(one, Entry) for one in recorded(record)]
    assert b"".join(one.data for one in lines) == b"0123456789abcdef\ng"
    assert [one.partial for one in lines] == [True, False, True]


def test_nothing_is_taken_down_after_the_end() -> None:
    file = io.BytesIO()
    recorder = Recorder(file)
    recorder.close()
    recorder.observe("out", b"late\n")
    assert file.getvalue() == b""


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


def play_pipe(recorder: Recorder, *said: bytes) -> None:
    """One session of a recorder, whose CLI says this."""

    async def main() -> None:
        about = {"argv": ["--second" if said else "--first"], "cwd": None}
        transport = recorder.wrap(Pipe, secrets=["mine-1"], about=about)(Events())
        for data in said:
            cast("Any", transport).received(data)
        await transport.aclose()

    asyncio.run(main())


def test_a_start_that_failed_leaves_its_file_to_the_next_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.ndjson")
    play_pipe(recorder)  # nothing came
    play_pipe(recorder, b"mine-1\n")
    entries = read_recording(tmp_path / "r.ndjson")
    assert [one.line for one in entries][1:] == ["***"]
    assert entries[0].members["argv"] == ["--second"]
    assert entries[0].members["cwd"] == str(Path.cwd())
    assert str(entries[0].members["started"]).endswith("Z")
    assert recorder.paths == (tmp_path / "r.ndjson",)


def test_sessions_that_share_a_recorder_get_a_file_each(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.ndjson")

    async def main() -> None:
        transports = [recorder.wrap(Pipe, about={})(Events()) for _ in range(3)]
        for number, transport in enumerate(transports):
            cast("Any", transport).received(b"begin %d\n" % number)
        for number, transport in enumerate(transports):
            cast("Any", transport).received(b"end %d secret-value-1\n" % number)
            await transport.aclose()

    with recorder:
        asyncio.run(main())
    assert [path.name for path in recorder.paths] == ["r.ndjson", "r-2.ndjson", "r-3.ndjson"]
    for number, path in enumerate(recorder.paths):
        lines = [one.line for one in read_recording(path) if one.direction == "out"]
        assert lines == [f"begin {number}", f"end {number} secret-value-1"]
        assert path.stat().st_mode & 0o777 == 0o600
    assert recorder.written == {"in": 0, "out": 6, "err": 0, "meta": 3}
    assert recorder.failure is None


def test_sessions_that_share_options_are_recorded_apart(tmp_path: Path) -> None:
    """Two sessions at once, with one record of options."""
    recorder = Recorder(tmp_path / "r.ndjson")
    sdk = bridle.SdkOptions(recorder=recorder)

    async def main() -> None:
        with FakeCli.auto() as cli:
            options = bridle.CliOptions(cli_path=cli.path)
            said = [bridle.run(f"SAY {word}", cli=options, sdk=sdk) for word in ("one", "two")]
            assert [outcome.text for outcome in await asyncio.gather(*said)] == ["one", "two"]

    asyncio.run(main())
    played = [replay(path) for path in recorder.paths]
    texts = [[outcome.text for outcome in one.outcomes.values()] for one in played]
    assert sorted(texts) == [["one"], ["two"]]


def test_an_open_file_takes_one_session() -> None:
    recorder = Recorder(io.BytesIO())
    play_pipe(recorder, b"x\n")
    with pytest.raises(bridle.OptionsError, match="recorder"):
        recorder.wrap(Pipe)


def test_a_file_that_cannot_be_made_leaves_the_session_unrecorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "r.ndjson")
    play_pipe(recorder, b"x\n")
    (tmp_path / "r-2.ndjson").mkdir()
    assert recorder.wrap(Pipe) is Pipe
    assert isinstance(recorder.failure, OSError)
    assert "without a recording" in caplog.text


@pytest.mark.parametrize("wrong", ["r.ndjson", Recorder, 5])
def test_an_option_that_cannot_record_is_refused(wrong: Any) -> None:
    with pytest.raises(bridle.OptionsError, match="recorder") as caught:
        bridle.SdkOptions(recorder=wrong)
    assert "Recorder(path)" in caught.value.fix


def record_session(sdk: bridle.SdkOptions) -> None:
    async def main() -> None:
        with FakeCli.auto() as cli:
            async with bridle.start_session(bridle.CliOptions(cli_path=cli.path), sdk) as session:
                turn = await session.send_user_message("SAY hello")
                assert (await turn).ok

    asyncio.run(main())


def record_query(sdk: bridle.SdkOptions) -> None:
    async def main() -> None:
        with FakeCli.auto() as cli:
            messages = bridle.query("SAY hello", bridle.CliOptions(cli_path=cli.path), sdk)
            assert [one async for one in messages]

    asyncio.run(main())


@pytest.mark.parametrize("record", [record_session, record_query])
def test_sessions_and_queries_are_recorded_from_start_to_end(
    tmp_path: Path, record: Callable[[bridle.SdkOptions], None]
) -> None:
    """What passed is on file, and played again comes to the same."""
    path = tmp_path / "r.ndjson"
    recorder = Recorder(path)
    record(bridle.SdkOptions(recorder=recorder))
    entries = read_recording(path)
    assert entries.gap == ""
    assert recorder.failure is None
    assert sum(recorder.written.values()) == len(entries)
    assert entries[0].members["argv"]
    played = replay(path)
    assert [outcome.text for outcome in played.outcomes.values()] == ["hello"]
    assert any(message.type == "result" for message in played.messages)


@pytest.mark.parametrize("record", [record_session, record_query])
def test_the_session_continues_if_its_recording_fails(
    caplog: pytest.LogCaptureFixture, record: Callable[[bridle.SdkOptions], None]
) -> None:
    recorder = Recorder(Full(3))
    record(bridle.SdkOptions(recorder=recorder))
    assert isinstance(recorder.failure, OSError)
    told = [one for one in caplog.records if one.name == "bridle.recording"]
    assert len(told) == 1


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


@pytest.mark.requirement("S117")
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


def test_hooks_of_the_replaying_side_are_not_called_and_time_out() -> None:
    hooks = [bridle.Hook(print, timeout=5.0), bridle.Hook(print, timeout=7.0)]
    plan = HookPlan.from_options({"PreToolUse": hooks}, 60.0)
    config = EngineConfig(incoming=IncomingConfig(hooks=plan))
    start = entry("in", {"type": "control_request", "request": {"subtype": "initialize"}})
    asked = entry("out", cli.hook_callback("r").decode(), t=1.0)
    result = replay([start, asked, entry("meta", {"note": 1}, t=100.0)], config)
    calls = [(at, type(act)) for at, act in result.steps if isinstance(act, Call | CancelCall)]
    assert calls == [(1.0, Call), (6.0, CancelCall), (6.0, Call), (13.0, CancelCall)]


def test_what_the_cli_wrote_to_stderr_explains_its_end() -> None:
    start = entry("in", {"type": "control_request", "request": {"subtype": "initialize"}})
    result = replay([start, entry("err", "no such model"), entry("meta", {"exit": 1})])
    (failed,) = result.events
    assert isinstance(failed, bridle.SessionFailed)
    assert failed.error is not None
    assert failed.error.stderr_tail == "no such model"


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "user"},
        {"type": "user", "message": {"content": 5}},
        {"type": "control_request", "request": {"subtype": "initialize", "hooks": {"A": [5]}}},
        {"type": "control_request", "request": {"subtype": "initialize", "hooks": {"A": 5}}},
        {"type": "control_request", "request": 5},
        {"type": "control_response"},
        {},
    ],
)
def test_the_replay_accepts_an_odd_line_to_the_cli(frame: dict[str, Any]) -> None:
    assert replay([entry("in", frame), entry("out", "{}")]).outcomes == {}


# ------------------------------------------------------------------------- a transport


def run_client(
    recording: Any, act: Callable[[Any, Events], object], **options: Any
) -> tuple[list[object], list[str], Any]:
    """Let a client act on a replay, and wait until it has exited."""

    async def main() -> tuple[list[object], list[str], Any]:
        factory, events = replay_transport(recording, **options), Events()
        transport = factory(events)
        act(transport, events)
        await asyncio.wait_for(events.gone.wait(), LIMIT)
        await transport.drain()
        await transport.aclose()
        try:
            factory.check()
        except ReplayMismatch as mismatch:
            return events.told, [str(one) for one in mismatch.differences], transport
        return events.told, [str(one) for one in factory.differences], transport

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


GREETING = {"type": "control_request", "request_id": "q", "request": INITIALIZE}
PROMPT = {"type": "user", "uuid": "mine", "message": {}}


def test_a_replay_goes_on_as_the_client_does() -> None:
    def act(transport: Any, _: Events) -> None:
        data = line(GREETING) + line(PROMPT)
        transport.pause_reading()
        transport.write(data[:50])
        transport.write(data[50:])
        transport.end_input()
        transport.resume_reading()

    told, differences, transport = run_client(RECORDING, act)
    lines = [json.loads(one) for one in told if isinstance(one, bytes)]
    assert lines == [
        {"type": "control_response", "response": {"request_id": "q"}},
        {"type": "result", "user_message_uuids": ["mine"]},
    ]
    assert told[2:] == ["oh", "output ended", 3]
    assert (differences, transport.stderr_tail, transport.pid) == ([], "oh", None)


def test_a_difference_ends_the_replay_as_a_crash_would() -> None:
    def act(transport: Any, _: Events) -> None:
        transport.write(line(GREETING))
        transport.write(line({**PROMPT, "message": {"content": "else"}}))

    told, differences, transport = run_client(RECORDING, act)
    first = 'prompt 1, message.content: recorded: nothing, now: "else"'
    assert differences == [first]
    assert told[-3:] == [f"replay: {first}", "output ended", 70]
    assert transport.stderr_tail == f"replay: {first}"


def test_an_extra_prompt_ends_the_replay_at_once() -> None:
    """Also one that is not strict: the recording has no answer to it."""

    def act(transport: Any, _: Events) -> None:
        transport.write(line(GREETING) + line(PROMPT))
        transport.write(line({**PROMPT, "message": {"content": "more"}}))

    for strict in (True, False):
        told, differences, _ = run_client(RECORDING, act, strict=strict)
        assert differences == ['prompt 2: recorded: nothing, now: "more"']
        assert told[-1] == 70


def test_what_the_client_never_wrote_is_missing_when_it_leaves() -> None:
    def act(transport: Any, _: Events) -> None:
        transport.write(line(GREETING))
        transport.end_input()

    told, differences, _ = run_client(RECORDING, act)
    assert differences == ["prompt 1: recorded: null, now: nothing"]
    assert told[-1] == 3


def test_a_client_that_does_not_send_what_was_recorded_is_reported_after_the_timeout() -> None:
    """The recorded client interrupted its turn; this one waits for the result."""
    interrupt = {"type": "control_request", "request_id": "r2", "request": {"subtype": "interrupt"}}
    entries = [*RECORDING[:4], entry("in", interrupt), *RECORDING[4:]]

    def act(transport: Any, _: Events) -> None:
        transport.write(line(GREETING) + line(PROMPT))

    told, differences, _ = run_client(entries, act, timeout=0.05)
    [difference] = differences
    assert difference.startswith("control request interrupt: recorded: ")
    assert "nothing within 0 s" in difference
    assert told[-1] == 70


def test_a_client_without_an_open_turn_may_take_its_time() -> None:
    def act(transport: Any, _: Events) -> None:
        transport.write(line(GREETING))
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, transport.write, line(PROMPT))
        loop.call_later(0.2, transport.end_input)

    told, differences, _ = run_client(RECORDING, act, timeout=0.05)
    assert (differences, told[-1]) == ([], 3)


def test_a_replay_that_is_not_strict_only_collects_differences() -> None:
    async def main() -> ReplayTransport:
        events = Events()
        with replay_transport(RECORDING, strict=False) as factory:
            transport = factory(events)
            transport.write(line(GREETING) + line({**PROMPT, "message": {"content": "else"}}))
            transport.end_input()
            await asyncio.wait_for(events.gone.wait(), LIMIT)
        assert events.told[-1] == 3
        return factory

    assert len(asyncio.run(main()).differences) == 1


def test_leaving_a_replay_names_the_first_difference() -> None:
    async def main() -> None:
        async with replay_transport(TEXT_TURN) as factory:
            bidir = bridle.BidirOptions(transport_factory=factory)
            outcome = await bridle.run("something else", bidir=bidir)
            assert outcome.reason is bridle.OutcomeReason.CLI_EXITED

    with pytest.raises(ReplayMismatch) as caught:
        asyncio.run(main())
    said = 'prompt 1, message.content: recorded: "HELLO", now: "something else"'
    assert [str(one) for one in caught.value.differences] == [said]
    assert said in str(caught.value)
    assert TEXT_TURN.name in str(caught.value)


def test_a_replay_without_a_session_is_a_difference() -> None:
    with pytest.raises(ReplayMismatch, match="none was started"), replay_transport(TEXT_TURN):
        pass


def test_an_exception_is_explained_by_an_earlier_difference() -> None:
    async def main(prompt: str) -> None:
        with replay_transport(TEXT_TURN) as factory:
            await bridle.run(prompt, bidir=bridle.BidirOptions(transport_factory=factory))
            raise LookupError

    with pytest.raises(ReplayMismatch) as caught:
        asyncio.run(main("something else"))
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(LookupError):
        asyncio.run(main("HELLO"))


def test_an_exception_is_not_hidden_by_what_is_missing_because_of_it() -> None:
    with pytest.raises(LookupError), replay_transport(TEXT_TURN):
        raise LookupError


@pytest.mark.parametrize("timeout", [0, -1.0, math.nan])
def test_an_invalid_timeout_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be above 0"):
        replay_transport([], timeout=timeout)


@pytest.mark.parametrize(("how", "code"), [("terminate", 143), ("kill", -9)])
def test_a_replay_can_be_ended(how: str, code: int) -> None:
    told, _, _ = run_client(RECORDING, lambda transport, _: getattr(transport, how)())
    assert told == ["output ended", code]


def test_a_recording_without_an_end_ends_after_its_last_line() -> None:
    told, _, _ = run_client([entry("out", "{}")], lambda transport, _: None)
    assert told == [b"{}\n", "output ended", None]


def test_a_replay_can_keep_time() -> None:
    late = [entry("out", "{}", t=10.0), entry("meta", {"exit": 0}, t=20.0)]

    async def main() -> float:
        loop = asyncio.get_running_loop()
        started, events = loop.time(), Events()
        replay_transport(late, speed=100.0)(events)
        await asyncio.wait_for(events.gone.wait(), LIMIT)
        return loop.time() - started

    assert 0.2 <= asyncio.run(main()) < 5


@pytest.mark.parametrize("speed", [0, -1, math.nan])
def test_a_speed_that_leads_nowhere_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed must be above 0"):
        replay_transport([], speed=speed)


@pytest.mark.parametrize("version", ["2.1.326", "2.1.197"])
@pytest.mark.parametrize("now", ["allow", "deny", "edit"])
@pytest.mark.requirement("S122")
def test_a_session_runs_on_a_recording(version: str, now: str) -> None:
    """What the program answers is compared: a changed policy is noticed."""
    seen: list[str] = []
    answers: dict[str, bridle.PermissionResult] = {
        "allow": bridle.Allow(),
        "deny": bridle.Deny("no"),
        "edit": bridle.Edit({"command": "rm made.txt"}),
    }

    def note(name: str) -> Callable[[Any], None]:
        return lambda _: seen.append(name)

    def decide(_: Any) -> bridle.PermissionResult:
        seen.append("permission")
        return answers[now]

    async def main() -> str:
        async with replay_transport(GOLDEN / version / "hook_and_permission.ndjson") as factory:
            outcome = await bridle.run(
                "ALPHA",
                bidir=bridle.BidirOptions(
                    transport_factory=factory,
                    on_pre_tool_use=note("before"),
                    on_post_tool_use=note("after"),
                    on_stop=note("stop"),
                    on_can_use_tool=decide,
                ),
            )
        return outcome.text

    if now == "allow":
        assert asyncio.run(main()) == "went on"
        assert seen == ["before", "permission", "after", "stop"]
        return
    with pytest.raises(ReplayMismatch) as caught:
        asyncio.run(main())
    assert seen == ["before", "permission"]
    asked = "answer to the permission request for Bash"
    assert [str(one) for one in caught.value.differences] == [
        f"{asked}: recorded: allow, now: deny"
        if now == "deny"
        else f'{asked}, response.updatedInput.command: recorded: "touch made.txt", '
        'now: "rm made.txt"'
    ]


def test_a_missing_hook_is_noticed_at_the_start() -> None:
    async def main() -> None:
        async with replay_transport(GOLDEN / "2.1.326" / "hook_and_permission.ndjson") as factory:
            await bridle.run("ALPHA", bidir=bridle.BidirOptions(transport_factory=factory))

    with pytest.raises(ReplayMismatch, match=r"control request initialize, hooks\.PreToolUse"):
        asyncio.run(main())


def test_requests_for_the_cost_may_come_more_or_less_often_than_recorded(tmp_path: Path) -> None:
    """How often a limit of dollars asks depends on how the CLI's lines are batched into reads."""
    path = tmp_path / "r.ndjson"

    async def ask(bidir: bridle.BidirOptions, cli: bridle.CliOptions, **sdk: Any) -> None:
        options = bridle.SdkOptions(limits=bridle.Limits(usd=5), **sdk)
        outcome = await bridle.run("BASH ls\nBASH pwd", cli=cli, sdk=options, bidir=bidir)
        assert outcome.ok, outcome

    async def play(entries: list[Entry]) -> None:
        async with replay_transport(entries) as factory:
            bidir = bridle.BidirOptions(transport_factory=factory, on_can_use_tool=allow)
            await ask(bidir, bridle.CliOptions())

    def allow(_: Any) -> bridle.PermissionResult:
        return bridle.Allow()

    with FakeCli.auto() as fake:
        bidir = bridle.BidirOptions(on_can_use_tool=allow)
        options = bridle.CliOptions(cli_path=fake.path)
        asyncio.run(ask(bidir, options, recorder=Recorder(path)))
    entries = [one for one in read_recording(path) if "started" not in one.members]
    [first, *_] = requests = [one for one in entries if "get_usage" in one.line]
    asyncio.run(play(entries))
    asyncio.run(play([one for one in entries if one not in requests[1:]]))
    at = entries.index(first)
    asyncio.run(play([*entries[:at], *[first] * 9, *entries[at:]]))


def test_a_recording_is_the_runner_of_a_query(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    record_query(bridle.SdkOptions(recorder=Recorder(path)))

    async def ask(prompt: str, **options: Any) -> list[str]:
        with replay_transport(path) as runner:
            sdk = bridle.SdkOptions(runner=runner)
            messages = bridle.query(prompt, bridle.CliOptions(**options), sdk)
            return [one.type async for one in messages]

    assert "result" in asyncio.run(ask("SAY hello"))
    with pytest.raises(ReplayMismatch) as caught:
        asyncio.run(ask("SAY goodbye"))
    assert "prompt 1" in str(caught.value)
    with pytest.raises(ReplayMismatch) as caught:
        asyncio.run(ask("SAY hello", model="opus"))
    assert str(caught.value.differences[0]) == (
        "arguments of the CLI: recorded: nothing, now: --model=opus"
    )
