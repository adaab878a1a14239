"""``bridle.terminal``: callbacks of a program that ask the user, on a real terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.terminals import Terminal

from bridle import Allow, CanUseToolContext, Deny, terminal
from bridle.testing import FakeCli, text, tool_use

BASE = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
PROMPT = "[a]lways allow Bash >"

PROGRAM = """
import asyncio, sys
import bridle
from bridle import terminal

def returned(request):
    return terminal.ask(request)

async def awaited(request):
    return await terminal.ask(request)

def blocking(request):
    answer = terminal.ask_sync(request)
    print("answered:", type(answer).__name__)
    return answer

callbacks = {"itself": terminal.ask, "returned": returned, "awaited": awaited, "blocking": blocking}
decide = callbacks[sys.argv[2]]

async def main():
    outcome = await bridle.run("go", cli_path=sys.argv[1], on_can_use_tool=decide)
    print("outcome:", outcome.text)
    print("typed:", await asyncio.to_thread(input))

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
    print("typed:", input())
"""


def start(fake: FakeCli, form: str, place: Path) -> Terminal:
    """Run the program with that form of callback on a terminal."""
    command = [sys.executable, "-c", PROGRAM, fake.path, form]
    return Terminal(command, {**BASE, "HOME": str(place)}, place)


def calls(count: int = 1) -> FakeCli:
    """A CLI whose model calls a tool so often, in one message."""
    used = [tool_use("Bash", command=f"touch made-{number}") for number in range(count)]
    return FakeCli.auto([used, [text("ok")]])


FORMS = ["itself", "returned", "awaited", "blocking"]


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("form", FORMS)
def test_the_user_answers_and_the_program_reads_its_own_input_afterwards(
    form: str, tmp_path: Path
) -> None:
    with calls(2) as fake, start(fake, form, tmp_path) as seen:
        seen.expect(PROMPT)
        seen.send("what?\n")
        seen.expect("This answer is not one of the choices.")
        seen.send("y\n")
        seen.expect("asks for permission", 2)
        seen.expect(PROMPT, 3)
        seen.send("n not now\n")
        seen.expect("outcome: ok")
        assert seen.is_echoing()
        seen.send("mine\n")
        assert seen.wait() == 0
    assert "typed: mine" in seen.screen.text


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("form", FORMS)
def test_the_end_of_the_input_denies(form: str, tmp_path: Path) -> None:
    fake = FakeCli().expect_initialize().expect_user().start_turn()
    fake = fake.assistant(tool_use("Bash", command="ls")).ask_permission("Bash", command="ls")
    with fake.expect_deny().result("ok") as fake, start(fake, form, tmp_path) as seen:
        seen.expect(PROMPT)
        seen.send("\x04")
        seen.expect("outcome: ok")
        seen.send("mine\n")
        assert seen.wait() == 0


@pytest.mark.longer(after=2)
@pytest.mark.parametrize("form", FORMS)
def test_ctrl_c_ends_the_question_and_leaves_the_input_to_the_program(
    form: str, tmp_path: Path
) -> None:
    with calls() as fake, start(fake, form, tmp_path) as seen:
        seen.expect(PROMPT)
        seen.send("\x03")
        seen.expect("interrupted")
        if form == "blocking":
            seen.expect("answered: Deny")
        # The program reads the next line itself: the callback no longer does.
        seen.send("mine\n")
        seen.expect("typed: mine")
        assert seen.wait() == 0
        assert not list(tmp_path.glob("made-*"))
    assert seen.screen.text.count("asks for permission") == 1


def test_a_question_without_a_terminal_is_refused() -> None:
    request = CanUseToolContext(tool_name="Bash", tool_input={})
    answer = terminal.ask_sync(request)
    assert isinstance(answer, Deny)
    assert not isinstance(answer, Allow)
    assert "no terminal" in answer.reason
