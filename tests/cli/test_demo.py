"""``bridle demo``: on the real CLIs in a pipe and on a terminal, without a CLI, and stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.processes import is_alive, wait_until
from tests.support.terminals import Terminal

from bridle.cli import demo
from bridle.cli import main as command
from bridle.cli._demo import tour_program as program
from bridle.cli._demo.scenes import SCENES
from bridle.cli._demo.tour import Tour
from bridle.cli._demo.tour_output import AT_ONCE, Pace, PageScreen, Stage, excerpt
from bridle.testing import FakeCli, ScriptFailure
from bridle.testing.script import Block

COMMAND = (sys.executable, "-m", "bridle", "demo")
WITHOUT_RICH = (
    sys.executable,
    "-c",
    "import sys; sys.modules['rich'] = sys.modules['rich.console'] = None;"
    "from bridle.cli import main; sys.exit(main())",
    "demo",
)
NARROW = 60

PROOFS = (
    r"✓ claude 2\.1\.\d+ is running, pid \d+",
    r"✓ \d+ deltas, the first after \d",
    r"✓ interrupted \d+ ms after the last delta; the session continues",
    r"✗ Bash \d\.\ds rm -rf stable",
    r"Nothing is deleted here\. I may not delete",
    r"✓ stable/horse\.txt is still there",
    r"✓ the model wrote 'DEBUG = True'; the file contains 'DEBUG = False'",
    r"✓ mcp__tools__order \d\.\ds saddle 1 Your saddle is ordered\.",
    r"✓ called in this process, where ORDERS is now \['saddle'\]",
    r"Bill\(customer='Ada', count=2, total=620\.0\)",
    r"✓ outcome\.output is a Bill, and its total a float · \d\.\ds · \$0\.000\d",
    r"6 turns in \d+(\.\d)?s, for \$0\.00\d\d according to the CLI",
)


class Seat:
    """Where somebody watches: an empty home, and a place for temporary files that is looked at."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.temporary = directory / "temporary"
        self.home.mkdir()
        self.temporary.mkdir()

    def env(self, cli: str | Path, **more: str) -> dict[str, str]:
        """An environment in which that CLI is the one."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "BRIDLE_CLI": str(cli),
            **more,
        }

    def terminal(
        self,
        cli: str | Path,
        *,
        program: Sequence[str] = COMMAND,
        columns: int = NARROW,
        **more: str,
    ) -> Terminal:
        """The tour on a terminal, without pauses."""
        env = self.env(cli, **more)
        return Terminal([*program, "--fast"], env, self.home, columns=columns)

    def left_behind(self) -> list[str]:
        """Files, and processes that were started with this place in their environment."""
        files = [str(path) for top in (self.home, self.temporary) for path in top.iterdir()]
        return files + [f"process {pid}" for pid in os.listdir("/proc") if self._started(pid)]

    def _started(self, pid: str) -> bool:
        try:
            return str(self.temporary).encode() in Path("/proc", pid, "environ").read_bytes()
        except OSError:
            return False


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    """A place to watch from."""
    return Seat(tmp_path)


def missing(text: str) -> list[str]:
    """The proofs that are not in a text, however its lines are broken."""
    flowing = " ".join(text.split())
    return [proof for proof in PROOFS if not re.search(proof, flowing)]


# ---------------------------------------------------------------- on the real CLIs


@pytest.mark.longer
def test_in_a_pipe_every_scene_is_proven_and_a_key_is_left_alone(
    seat: Seat, real_cli: Path
) -> None:
    run = subprocess.run(
        COMMAND,
        env=seat.env(real_cli, ANTHROPIC_API_KEY="a-key", CLAUDE_MAX_TURNS="1"),
        cwd=seat.home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert missing(run.stdout) == []
    assert "ANTHROPIC_API_KEY is set. The tour did not use it." in run.stdout
    assert "\x1b" not in run.stdout
    assert seat.left_behind() == []


@pytest.mark.longer
def test_on_a_narrow_terminal_nothing_is_cut_and_nothing_is_coloured_that_must_not_be(
    seat: Seat, real_cli: Path
) -> None:
    with seat.terminal(real_cli, NO_COLOR="1") as terminal:
        assert terminal.wait() == 0
        assert terminal.is_echoing()
    assert missing(terminal.screen.text) == []
    assert "…" not in terminal.screen.text
    assert terminal.screen.is_cursor_shown
    assert not re.search(rb"\x1b\[[\d;]*3\d", terminal.raw)
    assert seat.left_behind() == []


# ---------------------------------------------------------------- without one


def test_without_a_cli_a_stand_in_plays_and_it_is_said(seat: Seat) -> None:
    with seat.terminal("/nowhere/claude", program=WITHOUT_RICH, columns=100) as terminal:
        assert terminal.wait() == 0
    said = " ".join(terminal.screen.text.split())
    assert "! No working CLI was found: The Claude Code CLI was not found" in said
    assert "The tour uses the fake CLI of Bridle instead." in said
    assert said.count("To use the real CLI: pip install claude-agent-sdk") == 2
    assert said.count("not checked: the fake CLI runs no commands and writes no files") == 2
    # What does not depend on the CLI's tools is proven all the same.
    assert "✓ interrupted" in said
    assert "✓ called in this process" in said
    assert "✓ outcome.output is a Bill" in said
    assert "according to the CLI" not in said
    assert b"\x1b" not in terminal.raw
    assert seat.left_behind() == []


def test_a_cli_that_is_too_old_does_not_play(seat: Seat) -> None:
    with FakeCli().version("1.0.0 (Claude Code)") as old:
        run = subprocess.run(
            COMMAND, env=seat.env(old.path), capture_output=True, text=True, check=False
        )
    assert run.returncode == 0
    assert "Claude Code CLI 1.0.0 is too old" in " ".join(run.stdout.split())
    assert "✓ the fake CLI is running" in run.stdout


# ---------------------------------------------------------------- when it does not go well


def test_a_scene_that_goes_wrong_is_shown_and_fails_the_tour(seat: Seat) -> None:
    """And the CLI has seen nothing of the environment."""
    with FakeCli.auto("No.") as stubborn:
        environ = seat.env(
            stubborn.path, ANTHROPIC_API_KEY="a-key", AWS_SECRET_ACCESS_KEY="b", BRIDLE_CONFIG="/no"
        )
        run = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, check=False)
        seen = stubborn.environ
    assert run.returncode == 1
    assert re.findall(r"^  ✗ (\w+)", run.stdout, re.MULTILINE) == [
        "2",  # deltas
        "completed",
        "the",
        "called",
        "outcome",
    ]
    assert not {"a-key", "b", "/no", str(seat.home)} & set(seen.values())
    assert seen["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")


class Broken(Tour):
    """A tour in which something happens that no scene foresees."""

    def __init__(self, stage: Stage, work: Path, problem: Exception | None) -> None:
        super().__init__(stage, work, ())
        self._problem = problem

    async def play(self) -> bool:
        if self._problem is not None:
            raise self._problem
        await asyncio.Event().wait()
        return True


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (ScriptFailure("no turn for this"), "no turn for this"),
        (None, "It took more than 0.01 seconds"),
    ],
    ids=["unforeseen", "hanging"],
)
def test_the_end_of_the_tour_is_reported(
    problem: Exception | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(PageScreen(), AT_ONCE)
    code = asyncio.run(demo.play(Broken(stage, tmp_path, problem), stage, timeout=0.01))
    assert code == 1
    assert f"The tour failed and ends here. {told}" in " ".join(capsys.readouterr().out.split())


# ---------------------------------------------------------------- stopped


def test_ctrl_c_ends_the_tour_while_the_cli_starts(seat: Seat) -> None:
    with FakeCli.auto().slow_start(60) as slow, seat.terminal(slow.path) as terminal:
        terminal.expect("starting the CLI")
        wait_until(lambda: slow.pid is not None)
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert terminal.is_echoing()
        assert not is_alive(slow.pid or 0)
    assert terminal.screen.is_cursor_shown
    assert terminal.screen.text.endswith("\nStopped.")
    assert seat.left_behind() == []


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_tour_in_the_middle_of_a_turn(number: signal.Signals, seat: Seat) -> None:
    with FakeCli.auto(latency=3600) as slow, seat.terminal(slow.path) as terminal:
        terminal.expect("waiting for the model")
        os.kill(terminal.pid, number)
        assert terminal.wait() == 128 + number
    assert seat.left_behind() == []


def test_the_reader_of_the_tour_may_leave(seat: Seat) -> None:
    """`bridle demo | head -1`: it ends, and takes everything with it."""
    with FakeCli.auto() as fake:
        run = subprocess.run(
            ["sh", "-c", '"$0" -m bridle demo | head -n 1', sys.executable],
            env=seat.env(fake.path),
            capture_output=True,
            text=True,
            check=False,
        )
    assert (run.stdout[:6], run.stderr) == ("Bridle", "")
    assert seat.left_behind() == []


# ---------------------------------------------------------------- make demo


def test_make_demo_installs_bridle_and_the_cli_and_no_tools(
    repository: Path, tmp_path: Path
) -> None:
    venv = f"VENV={tmp_path / 'new'}"
    command = ["make", "--dry-run", "--directory", str(repository), venv, "demo"]
    planned = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"--group|--editable \S+|bridle demo", planned) == [
        "--editable '.[cli]'",
        "bridle demo",
    ]


# ---------------------------------------------------------------- the table


@pytest.mark.longer
def test_the_tour_points_at_files_that_are_installed(capsys: pytest.CaptureFixture[str]) -> None:
    """A wheel has no examples."""
    command(["demo", "--fast"])
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    (path,) = re.findall(r"The whole program: (\S+\.py)", said)
    lines = Path(path).read_text().splitlines()
    places = re.findall(r"(\w+) \(line (\d+)\)", said)
    assert {name for name, _ in places} == {name for scene in SCENES for name in scene.code}
    assert [name for name, line in places if name not in lines[int(line) - 1]] == []
    assert "examples/" not in said


def test_all_code_that_is_shown_fits_a_narrow_terminal() -> None:
    shown = excerpt(program, "open_session", *(name for scene in SCENES for name in scene.code))
    assert [line for line in shown.splitlines() if len(line) > NARROW - len("  │ ")] == []


def test_a_coroutine_is_shown_without_what_hands_over_and_the_rest_whole() -> None:
    assert excerpt(program, "stream", "ORDERS", "order").splitlines() == [
        "turn = await session.send_user_message(prompt)",
        "async for delta in turn.text_stream():",
        '    print(delta, end="", flush=True)',
        "",
        "ORDERS: list[str] = []",
        "",
        "def order(article: str) -> int:",
        '    """Order an article and return its order number."""',
        "    ORDERS.append(article)",
        "    return len(ORDERS)",
    ]


def test_there_is_time_to_read_but_not_too_much_of_it() -> None:
    """With a few seconds for the CLI, all of it takes less than 25."""
    pace = Pace()
    code = excerpt(program, "open_session", *(name for scene in SCENES for name in scene.code))
    words = sum(_pieces(block) for scene in SCENES for say in scene.says for block in say.blocks)
    looks = len(SCENES) + 1
    spent = pace.line * code.count("\n") + pace.look * looks + pace.word * words
    assert 10 < spent < 20


def _pieces(block: Block) -> int:
    return block.pieces if isinstance(block.pieces, int) else len(block.pieces)
