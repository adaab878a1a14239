"""``bridle run`` as a person meets it: on a terminal, with the real CLI and a scripted model."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.processes import is_alive, wait_until
from tests.support.terminals import Terminal

from bridle.testing import Block, FakeCli, Reply, ScriptedModel, text, thinking, tool_use

Models = Callable[..., ScriptedModel]

MODULE = (sys.executable, "-m", "bridle")
WITHOUT_RICH = (
    sys.executable,
    "-c",
    "import sys; sys.modules['rich'] = sys.modules['rich.console'] = None;"
    "from bridle.cli import main; sys.exit(main())",
)
BASE = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
PROMPT = "[y]es, [n]o (or n and why), [e]dit, [a]lways allow Bash >"


def seen(terminal: Terminal) -> list[str]:
    """What is on the screen, without what differs from run to run."""
    shown = re.sub(r"\d+(\.\d+)?s\b", "0s", terminal.screen.text)
    shown = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", shown)
    shown = re.sub(r"\$[\d.]+", "$0", shown)
    return [line.strip() for line in shown.splitlines()]


class Desk:
    """Where a person sits: a directory, and an editor that changes one word."""

    def __init__(self, directory: Path) -> None:
        self.work = directory / "work"
        self.work.mkdir()
        self.editor = directory / "editor"
        self.editor.write_text('#!/bin/sh\nsed -i s/plain/edited/ "$1"\n')
        self.editor.chmod(0o755)

    def run(
        self,
        cli: str,
        *arguments: str,
        program: Sequence[str] = MODULE,
        env: Mapping[str, str] | None = None,
    ) -> Terminal:
        """The command, on a terminal."""
        whole = {**BASE, "HOME": str(self.work), **(env or {}), "EDITOR": str(self.editor)}
        return Terminal([*program, "run", "--cli", cli, *arguments], whole, self.work)

    @property
    def files(self) -> list[str]:
        """What the tools left."""
        return sorted(path.name for path in self.work.iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A place to sit."""
    return Desk(tmp_path)


def touch(name: str) -> Block:
    """The model makes a file."""
    return tool_use("Bash", command=f"touch {name}")


# ---------------------------------------------------------------- on the real CLI


def test_a_run_is_shown_and_a_person_decides(
    desk: Desk, real_cli: Path, scripted_model: Models
) -> None:
    """Text as it comes, every question with its answer, every call with its end, then the facts."""
    question = {
        "question": "Which?",
        "header": "Colour",
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": ""}],
        "multiSelect": False,
    }
    model = scripted_model(
        [
            [thinking("hm"), text("Let me see."), touch("one")],
            [touch("plain")],
            [touch("no")],
            [touch("two")],
            [touch("three")],
            [tool_use("AskUserQuestion", questions=[question])],
            [text("It is *there*.\nReally.")],
        ]
    )
    with desk.run(str(real_cli), "go", env=model.env) as terminal:
        for number, answer in enumerate(["y", "e", "n not today", "a"], 1):
            terminal.expect(PROMPT, number)
            terminal.send(f"{answer}\n")
        terminal.expect("a number, or your own words >")
        terminal.send("2\n")
        assert terminal.wait() == 0
    assert desk.files == ["edited", "one", "three", "two"]
    assert model.requests[3].last_tool_result == "not today"
    assert "Blue" in str(model.requests[6].last_tool_result)
    assert seen(terminal)[1:] == [
        "Let me see.",
        "? Bash asks for permission",
        "command  touch one",
        f"{PROMPT} y",
        "✓ Bash 0s · allowed by you  touch one",
        "? Bash asks for permission",
        "command  touch plain",
        f"{PROMPT} e",
        "✓ Bash 0s · edited by you  touch edited",
        "? Bash asks for permission",
        "command  touch no",
        f"{PROMPT} n not today",
        "✗ Bash denied by you: not today  touch no",
        "? Bash asks for permission",
        "command  touch two",
        f"{PROMPT} a",
        "✓ Bash 0s · always allowed by you  touch two",
        "✓ Bash 0s  touch three",
        "? Colour: Which?",
        "1  Red   warm",
        "2  Blue",
        "a number, or your own words > 2",
        "✓ AskUserQuestion 0s · answered by you",
        "It is *there*.",
        "Really.",
        "✓ completed · 7 turns · 0s · $0 · session ID",
    ]


@pytest.mark.longer
def test_a_plan_is_put_to_the_person(desk: Desk, real_cli: Path, scripted_model: Models) -> None:
    """Also by the CLI that leaves the plan out of its question."""
    model = scripted_model([[tool_use("ExitPlanMode", plan="1. look\n2. leap")], [text("ok")]])
    arguments = ("--permission-mode", "plan", "go")
    with desk.run(str(real_cli), *arguments, env=model.env) as terminal:
        terminal.expect("[y]es, do it")
        terminal.send("y\n")
        assert terminal.wait() == 0
    assert {"2. leap", "ok"} < set(seen(terminal))


@pytest.mark.longer
def test_ctrl_c_interrupts_the_turn(desk: Desk, real_cli: Path, scripted_model: Models) -> None:
    model = scripted_model([Reply(blocks=(text("a long story"),), hold=True, hold_after=4)])
    with desk.run(str(real_cli), "go", env=model.env) as terminal:
        terminal.expect("writing")
        assert not terminal.is_echoing()
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert terminal.is_echoing()
        assert terminal.screen.is_cursor_shown
    assert "✗ interrupted" in terminal.screen.text
    assert "bridle run --resume" in terminal.screen.text


@pytest.mark.longer
def test_input_typed_before_a_question_does_not_answer_it(
    desk: Desk, real_cli: Path, scripted_model: Models
) -> None:
    model = scripted_model([Reply(blocks=(touch("x"),), hold=True), [text("ok")]])
    with desk.run(str(real_cli), "go", env=model.env) as terminal:
        model.wait_for_hold_sync()
        terminal.send("y\n")
        model.release()
        terminal.expect(PROMPT)
        terminal.send("n\n")
        assert terminal.wait() == 0
    assert "✗ Bash denied by you  touch x" in seen(terminal)


# ---------------------------------------------------------------- on a CLI that does as it is told


def test_an_invalid_answer_is_asked_for_again(desk: Desk) -> None:
    """So is an edit that comes to nothing; Ctrl-C in the editor is the editor's."""
    desk.editor.write_text("#!/bin/sh\necho editing\nexec sleep 60\n")
    with FakeCli.auto([[touch("x")], [text("ok")]]) as fake, desk.run(fake.path, "go") as terminal:
        terminal.expect(PROMPT)
        terminal.send("what?\n")
        terminal.expect("This answer is not one of the choices.")
        terminal.expect(PROMPT, 2)
        terminal.send("e\n")
        terminal.expect("editing")
        terminal.send("\x03")
        terminal.expect("the editor ended with exit code -2")
        terminal.expect(PROMPT, 3)
        terminal.send("\x04")  # Ctrl-D: no answer at all
        assert terminal.wait() == 0
    assert "✗ Bash denied by you  touch x" in seen(terminal)


def test_nothing_a_model_or_a_tool_says_reaches_the_terminal_as_a_command(desk: Desk) -> None:
    """The screen of these tests fails at any sequence that does not draw lines."""
    evil = "\x1b]0;owned\x07\x1b[2J\x9b1mA\rB\u202eC [bold red]markup[/] \x1b[?1049h"
    fake = FakeCli().expect_initialize().expect_user().start_turn()
    fake = fake.assistant(evil, tool_use("Bash", command=evil)).tool_result(evil)
    fake = fake.ask_permission("Bash", command=evil).expect_allow().result("ok")
    with fake, desk.run(fake.path, "go") as terminal:
        terminal.expect(PROMPT)
        terminal.send("y\n")
        assert terminal.wait() == 0
    # What the model said, what it ran, what came of it, what was asked.
    assert terminal.screen.text.count("owned␇␛[2J\\x9b1mAB<U+202E>C [bold red]markup[/]") == 4
    assert b"owned\x07" not in terminal.raw


def test_without_rich_the_same_is_plain_text(desk: Desk) -> None:
    fake = FakeCli.auto([[text("Let me see."), touch("x")], [text("ok")]])
    with fake, desk.run(fake.path, "go", program=WITHOUT_RICH) as terminal:
        terminal.expect(PROMPT)
        terminal.send("y\n")
        assert terminal.wait() == 0
    assert terminal.screen.text.startswith("For the live view: pip install rich")
    assert {"Let me see.", "✓ Bash 0s · allowed by you  touch x", "ok"} < set(seen(terminal))


def test_a_redirected_answer_leaves_the_questions_on_the_terminal(desk: Desk) -> None:
    fake = FakeCli.auto([[text("Let me see."), touch("x")], [text("ok")]])
    redirected = ("/bin/sh", "-c", f'exec "$@" > {desk.work}/out.txt', "sh", *MODULE)
    with fake, desk.run(fake.path, "go", program=redirected) as terminal:
        terminal.expect(PROMPT)
        terminal.send("y\n")
        assert terminal.wait() == 0
    assert (desk.work / "out.txt").read_text() == "Let me see.\nok\n"
    assert "✓ Bash 0s · allowed by you  touch x" in seen(terminal)
    assert "Let me see." not in seen(terminal)


def test_ctrl_c_takes_a_question_back(desk: Desk) -> None:
    with FakeCli.auto([[touch("x")]]) as fake, desk.run(fake.path, "go") as terminal:
        terminal.expect(PROMPT)
        terminal.send("\x03")
        assert terminal.wait() == 130


@pytest.mark.longer
def test_a_second_ctrl_c_ends_the_program_and_every_process(desk: Desk) -> None:
    """Even a CLI that ignores everything, and what it started, is gone."""
    deaf = FakeCli().ignore_sigterm().fork_grandchild(setsid=True, ignore_sigterm=True)
    deaf = deaf.expect_initialize().expect_user().start_turn().ignore_eof().silence()
    with deaf, desk.run(deaf.path, "go") as terminal:
        terminal.expect("waiting for the model")
        terminal.send("\x03")
        terminal.expect("press Ctrl-C again to end the program")
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert terminal.is_echoing()
        assert [is_alive(pid) for pid in (deaf.pid or 0, *deaf.grandchildren)] == [False, False]


def test_ctrl_c_before_there_is_a_turn_ends_the_program(desk: Desk) -> None:
    with FakeCli.auto().slow_start(60) as slow, desk.run(slow.path, "go") as terminal:
        terminal.expect("starting the CLI")
        wait_until(lambda: slow.pid is not None)
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert not is_alive(slow.pid or 0)


def test_ctrl_c_while_the_session_closes_only_hastens_it(desk: Desk) -> None:
    """What is decided stays: the turn was completed."""
    lingering = FakeCli().expect_initialize().turn("Done.").ignore_eof().silence()
    with lingering, desk.run(lingering.path, "go") as terminal:
        terminal.expect("closing the session")
        terminal.send("\x03")
        assert terminal.wait() == 0
        assert not is_alive(lingering.pid or 0)
    assert "✓ completed" in terminal.screen.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_says_leave_is_obeyed(number: signal.Signals, desk: Desk) -> None:
    with FakeCli.auto() as fake, desk.run(fake.path, "SLOW") as terminal:
        terminal.expect("Working on it.")
        os.kill(terminal.pid, number)
        assert terminal.wait() == 128 + number
        assert terminal.is_echoing()
        assert not is_alive(fake.pid or 0)
