"""``bridle replay``: recordings, whole and broken, as text, as JSON, as a page."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bridle.cli import main
from bridle.cli._timeline.damage import damage
from bridle.testing.recording import read_recording

GOLDEN = Path(__file__).parent.parent / "wire" / "golden" / "2.1.326"
TWO_TURNS = GOLDEN / "two_turns.ndjson"
DENIED = GOLDEN / "permission_deny.ndjson"


class Told:
    """What a command said, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Replay:
    return Replay(capsys)


class Replay:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Told:
        code = main(["replay", *map(str, arguments)])
        said = self._capsys.readouterr()
        return Told(code, said.out, said.err)


INIT = {"subtype": "initialize"}
ANSWER = {"subtype": "success", "request_id": "r", "response": {"capabilities": ["x"]}}


def write(path: Path, rows: Sequence[tuple[float, str, object]]) -> Path:
    lines = [
        {"t": t, "dir": direction, "line": line if isinstance(line, str) else json.dumps(line)}
        for t, direction, line in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# ------------------------------------------------------------------------- text


def test_a_recording_is_reported_as_it_was_shown(replay: Replay) -> None:
    """Prompts, answers and outcomes, in order."""
    told = replay(TWO_TURNS)
    lines = [line for line in told.out.splitlines() if line]
    prompts = [line for line in lines if "] > " in line]
    assert [line.partition("] > ")[2] for line in prompts] == ["ALPHA", "BETA"]
    assert sum(line.startswith("✓ completed") for line in lines) == 2
    assert lines[-1].startswith("2 prompts · ")
    assert f"{len(read_recording(TWO_TURNS))} frames" in lines[-1]
    assert (told.code, told.err) == (0, "")


def test_tools_and_failures_are_reported(replay: Replay) -> None:
    told = replay(DENIED)
    assert "✗ Bash" in told.out
    assert "denied by the host" in told.out
    retried = replay(GOLDEN / "api_529_once.ndjson")
    assert "retry 1 of 10" in retried.out


def test_a_failed_turn_is_not_a_failure_of_the_replay(replay: Replay) -> None:
    told = replay(GOLDEN / "api_500.ndjson")
    assert "✗ api error" in told.out
    assert told.code == 0


def test_foreign_text_cannot_command_the_terminal(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe, which obeys nothing, gets the answer as it was."""
    said = {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "\x1b[2Jhi"}]}
    evil = {"role": "user", "content": "\x1b]0;owned\x07"}
    rows = [
        (0.0, "in", {"type": "control_request", "request_id": "r", "request": INIT}),
        (0.1, "in", {"type": "user", "uuid": "u", "message": evil}),
        (0.2, "out", {"type": "control_response", "response": ANSWER}),
        (0.3, "out", {"type": "assistant", "message": said}),
    ]
    path = write(tmp_path / "r.ndjson", rows)
    piped = replay(path).out
    assert "\x1b[2Jhi\n" in piped
    assert piped.count("\x1b") == 1
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    told = replay(path)
    assert "\x1b" not in told.out
    assert "␛[2Jhi\n" in told.out
    assert "owned" in told.out


def test_the_pace_is_the_recorded_one_times_the_speed(replay: Replay, tmp_path: Path) -> None:
    path = write(tmp_path / "r.ndjson", [(0.0, "err", "a"), (3000.0, "meta", {"exit": 0})])
    started = time.monotonic()
    replay(path, "--speed", "10000")
    assert time.monotonic() - started >= 0.3
    replay(path, "--speed", "max")  # otherwise this would take almost an hour


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "fast", ""])
def test_a_speed_that_leads_nowhere_is_refused(
    speed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["replay", str(TWO_TURNS), f"--speed={speed}"])
    assert caught.value.code == 2
    assert "max" in capsys.readouterr().err


# ------------------------------------------------------------------------- JSON


def test_every_message_is_a_line_of_json(replay: Replay) -> None:
    told = replay(TWO_TURNS, "--json")
    lines = [json.loads(line) for line in told.out.splitlines()]
    recording = read_recording(TWO_TURNS)
    sent = [one.members for one in recording if one.direction == "out"]
    kinds = {"assistant", "user", "system", "result", "command_lifecycle"}
    assert [one for one in lines if one["type"] in kinds] == [
        one for one in sent if one["type"] in kinds
    ]
    outcomes = [one for one in lines if one["type"] == "bridle_outcome"]
    assert [(one["ok"], one["reason"]) for one in outcomes] == [(True, "completed")] * 2
    assert len({one["uuid"] for one in outcomes}) == 2
    assert lines[-1] == {
        "type": "bridle_recording",
        "frames": len(recording),
        "duration": recording[-1].t,
        "complete": True,
        "gap": "",
        "damage": [],
    }


# ------------------------------------------------------------------------- what is not whole


def test_a_recording_that_was_cut_off_plays_as_far_as_it_goes(
    replay: Replay, tmp_path: Path
) -> None:
    text = TWO_TURNS.read_text("utf-8")
    lines = text.splitlines(keepends=True)
    partial = tmp_path / "crash.ndjson"
    partial.write_text("".join(lines[:12]) + lines[12][:50])
    told = replay(partial)
    assert "] > ALPHA" in told.out
    assert "incomplete: line 13 was cut off" in told.err
    assert told.code == 0
    last = json.loads(replay(partial, "--json").out.splitlines()[-1])
    assert (last["frames"], last["complete"]) == (12, False)
    assert "line 13" in last["gap"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not a recording\n", "line 1: is not an entry"),
        ('{"t":0,"dir":"in","line":"a"}\n{"t":0}\n', "line 2: is not an entry"),
        ('{"t":1,"dir":"in","line":"a"}\n{"t":0,"dir":"in","line":"a"}\n', "line 2: the time goes"),
    ],
)
def test_a_file_that_is_not_a_recording_is_refused(
    replay: Replay, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "r.ndjson"
    path.write_text(text)
    told = replay(path)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(f"bridle replay: {path}")
    assert words in told.err
    assert "damaged" in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nosuch", "names {}, which is not a file"),
        ("", "names {}, which is not a file"),
        ("circle", "names {}, which cannot be read: Too many levels of symbolic links"),
    ],
)
def test_a_recording_that_is_not_there_is_reported_as_such(
    replay: Replay, tmp_path: Path, name: str, problem: str
) -> None:
    """What a recording looks like inside is no help."""
    (tmp_path / "circle").symlink_to("circle")
    path = tmp_path / name
    told = replay(path, "--html", tmp_path / "page.html")
    fix = "Name a file that `bridle record` wrote."
    assert (told.code, told.out) == (2, "")
    assert told.err == f"bridle replay: FILE {problem.format(path)}.\n{fix}\n"


RECORDED = DENIED.read_text().splitlines()
SPOILED = {**json.loads(RECORDED[9]), "line": "{"}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (RECORDED[8:], "the beginning of the session is missing"),
        ([*RECORDED[:9], json.dumps(SPOILED), *RECORDED[10:]], "a frame is not JSON"),
        (
            [line for line in RECORDED if "can_use_tool" not in line],
            "answers a request that is missing",
        ),
    ],
    ids=["beginning", "spoiled", "gap"],
)
def test_a_damaged_recording_is_played_and_called_damaged(
    replay: Replay, tmp_path: Path, lines: list[str], words: str
) -> None:
    path = tmp_path / "r.ndjson"
    path.write_text("".join(f"{line}\n" for line in lines))
    told = replay(path)
    assert told.code == 0
    assert told.err.startswith("The recording is damaged: ")
    assert words in told.err
    assert words in "".join(json.loads(replay(path, "--json").out.splitlines()[-1])["damage"])
    replay(path, "--html", tmp_path / "page.html")
    assert words in (tmp_path / "page.html").read_text()


def test_a_sound_recording_is_not_called_damaged() -> None:
    paths = sorted(GOLDEN.parent.rglob("*.ndjson"))
    found = {path: damage(read_recording(path)) for path in paths}
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_an_empty_recording_is_an_incomplete_one(replay: Replay, tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    path.touch()
    told = replay(path)
    assert (told.out.strip(), told.code) == ("0 prompts · 0 frames", 0)
    assert "incomplete" in told.err


# ------------------------------------------------------------------------- the page


def test_a_page_is_written_for_its_owner(replay: Replay, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    told = replay(TWO_TURNS, "--html", target)
    assert told.out == f"{target}: {len(read_recording(TWO_TURNS))} frames. Open it in a browser.\n"
    assert target.stat().st_mode & 0o077 == 0
    assert target.read_text("utf-8").startswith("<!doctype html>")


def test_a_page_replaces_another_file_only_when_asked_to(replay: Replay, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("precious")
    target.chmod(0o644)
    refused = replay(TWO_TURNS, "--html", target)
    assert (refused.code, target.read_text("utf-8")) == (2, "precious")
    assert f"--html names {target}, which already exists" in refused.err
    assert "--overwrite" in refused.err
    assert replay(TWO_TURNS, "--html", target, "--overwrite").code == 0
    assert target.read_text("utf-8").startswith("<!doctype html>")
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
@pytest.mark.parametrize("link", [False, True])
def test_a_page_never_takes_the_place_of_its_recording(
    replay: Replay, tmp_path: Path, flags: tuple[str, ...], link: bool
) -> None:
    recording = tmp_path / "r.ndjson"
    recording.write_bytes(TWO_TURNS.read_bytes())
    target = tmp_path / "page.html" if link else recording
    if link:
        target.symlink_to(recording)
    told = replay(recording, "--html", target, *flags)
    assert told.code == 2
    assert f"{target}, which is the recording" in told.err
    assert recording.read_bytes() == TWO_TURNS.read_bytes()


def test_a_page_that_cannot_be_written_is_reported(replay: Replay, tmp_path: Path) -> None:
    told = replay(TWO_TURNS, "--html", tmp_path / "no" / "page.html")
    assert told.code == 2
    assert "--html" in told.err


def test_a_page_is_either_json_or_html(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["replay", str(TWO_TURNS), "--json", "--html", "x"])
    assert "not allowed with" in capsys.readouterr().err
