"""``bridle record``: a run that is taken down, on the real CLI and on a fake one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bridle.cli import main
from bridle.testing import FakeCli, ScriptedModel, text, tool_use
from bridle.testing.recording import read_recording
from bridle.testing.replaying import replay

Record = Callable[..., "Told"]

SECRET = "zq7-hunter-4711-marker"


class Told(NamedTuple):
    """What the command said, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def record(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> Record:
    """The command, in this process and in a directory of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Told:
        code = main(["record", *map(str, arguments)])
        said = capsys.readouterr()
        return Told(code, said.out, said.err)

    return run


@pytest.mark.longer
def test_a_run_on_the_real_cli_is_recorded(
    tmp_path: Path, real_cli: Path, scripted_model: Callable[..., ScriptedModel]
) -> None:
    model = scripted_model(
        [
            [tool_use("Bash", command=f"echo API_TOKEN={SECRET[::-1]}; echo $MY_SECRET")],
            [text("All done.")],
        ]
    )
    out = tmp_path / "session.ndjson"
    arguments = [out, "Do it with", SECRET, "--cli", real_cli, "--allowed-tools", "Bash"]
    told = subprocess.run(
        [sys.executable, "-m", "bridle", "record", *map(str, arguments)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], **model.env, "MY_SECRET": SECRET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (told.returncode, told.stdout) == (0, "All done.\n")
    recording = read_recording(out)
    assert recording.gap == ""
    assert f"Recorded {len(recording)} frames in {out}: " in told.stderr
    assert "known" in told.stderr
    assert "by name" in told.stderr
    assert f"bridle replay {out} --html {tmp_path / 'session.html'}" in told.stderr
    whole = out.read_text("utf-8")
    assert SECRET not in whole
    assert SECRET[::-1] not in whole
    (outcome,) = replay(out).outcomes.values()
    assert (outcome.ok, outcome.text) == (True, "All done.")


@pytest.mark.parametrize("quiet", [True, False])
def test_the_summary_of_a_recording_can_be_switched_off(
    record: Record, tmp_path: Path, quiet: bool
) -> None:
    with FakeCli.auto() as cli:
        flags = ["-q"] if quiet else []
        told = record("out.ndjson", "SAY hello", "--cli", cli.path, *flags)
    assert (told.code, told.out) == (0, "hello\n")
    assert ("Masked 0 secrets." in told.err) is not quiet
    assert read_recording(tmp_path / "out.ndjson").gap == ""
    assert (tmp_path / "out.ndjson").stat().st_mode & 0o077 == 0


def test_a_file_is_not_lost_by_accident(record: Record, tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    out.write_text("precious")
    out.chmod(0o644)
    with FakeCli.auto() as cli:
        refused = record(out, "SAY hello", "--cli", cli.path)
        assert (refused.code, out.read_text()) == (2, "precious")
        assert "--overwrite" in refused.err
        (tmp_path / "out.html").touch()
        told = record(out, "SAY hello", "--cli", cli.path, "--overwrite")
    assert told.code == 0
    assert told.err.endswith(f"--html {tmp_path / 'out.html'} --overwrite\n")
    assert read_recording(out).gap == ""
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--policy", "missing.toml", "hello"), 2),
        (("--config", "missing.toml", "hello"), 2),
        (("--cwd", "missing", "hello"), 2),
        (("--mcp-config", "missing.json", "hello"), 2),
        (("--max-turns", "0", "hello"), 2),
        (("--cli", "/nowhere/claude", "hello"), 6),
        ((" ",), 2),
    ],
)
def test_a_file_is_not_lost_to_a_mistake(
    record: Record, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    """Everything is looked at before the file is replaced."""
    out = tmp_path / "keep.ndjson"
    out.write_text("precious")
    with FakeCli.auto() as cli:
        told = record("--overwrite", out, "--cli", cli.path, *arguments)
        assert cli.runs == []
    assert (told.code, out.read_text()) == (code, "precious")


@pytest.mark.parametrize(
    "order",
    [("OUT", "-q", "SAY", "hello"), ("-q", "OUT", "SAY", "hello"), ("OUT", "SAY", "-q", "hello")],
)
def test_options_stand_anywhere(record: Record, tmp_path: Path, order: tuple[str, ...]) -> None:
    words = ["out.ndjson" if word == "OUT" else word for word in order]
    with FakeCli.auto() as cli:
        assert record("--cli", cli.path, *words) == (0, "hello\n", "")
    assert read_recording(tmp_path / "out.ndjson").gap == ""


@pytest.mark.parametrize("words", [["What does this do?"], ["fix a.py now.txt"], ["explain"]])
def test_a_prompt_without_a_file_is_met_with_help(
    record: Record, tmp_path: Path, words: list[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    told = record(*words)
    asked = words[0] if " " in words[0] else "What does this project do?"
    assert told.code == 2
    assert f'bridle record session.ndjson "{asked}"' in told.err
    assert "Or pipe the prompt in." in told.err
    assert list(tmp_path.iterdir()) == []


def test_only_the_file_is_required(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        record("-q")
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith("the following arguments are required: OUT\n")


def test_a_prompt_may_come_through_a_pipe(record: Record, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SAY hello")))
    with FakeCli.auto() as cli:
        assert record("out.ndjson", "-q", "--cli", cli.path) == (0, "hello\n", "")


def test_a_file_that_cannot_be_written_is_reported_before_anything_starts(
    record: Record, tmp_path: Path
) -> None:
    with FakeCli.auto() as cli:
        told = record(tmp_path / "no" / "out.ndjson", "hello", "--cli", cli.path)
        assert cli.runs == []
    assert told.code == 2
    assert "OUT names " in told.err
    assert "cannot be written" in told.err


def test_what_never_started_leaves_no_file(record: Record, tmp_path: Path) -> None:
    told = record("out.ndjson", "hello", "--max-turns", "0")
    assert told.code == 2
    assert not (tmp_path / "out.ndjson").exists()
    missing = record("out.ndjson", "", "--cli", tmp_path / "nowhere")
    assert missing.code == 2
    assert not (tmp_path / "out.ndjson").exists()


def test_a_cli_that_dies_is_recorded_to_its_end(record: Record, tmp_path: Path) -> None:
    with FakeCli().expect_initialize().expect_user().stderr("oh no\n").exit(3) as cli:
        told = record("out.ndjson", "hello", "--cli", cli.path)
    assert told.code == 1
    recording = read_recording(tmp_path / "out.ndjson")
    assert [one.line for one in recording if one.direction == "err"] == ["oh no"]
    assert recording[-1].members == {"exit": 3}
    assert "1 from its stderr" in told.err


def test_a_disk_that_is_full_does_not_end_the_run(record: Record, tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with FakeCli.auto() as cli:
        out = tmp_path / "out.ndjson"
        out.symlink_to("/dev/full")  # whatever becomes of it, the device stays
        mode = os.stat(out).st_mode
        told = record(out, "SAY hello", "--cli", cli.path, "--overwrite")
    assert (told.code, told.out) == (1, "hello\n")
    assert "recording is incomplete" in told.err
    assert out.is_symlink()
    assert os.stat(out).st_mode == mode
