"""A command is run several times beside busy processes, which end with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.processes import is_alive

from steady import busy_processes, main


def test_busy_processes_end_with_their_block() -> None:
    with busy_processes(2) as running:
        assert [is_alive(process.pid) for process in running] == [True, True]
    assert [is_alive(process.pid) for process in running] == [False, False]


def test_a_command_is_run_as_often_as_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')"
    assert main(["--times", "3", "--load", "1", "--", sys.executable, "-c", code]) == 0
    assert (tmp_path / "runs").read_text() == "xxx"
    assert capsys.readouterr().out.count("passed") == 3


def test_the_first_run_that_fails_is_the_last() -> None:
    assert main(["--times", "2", "--load", "1", "--", sys.executable, "-c", "exit(3)"]) == 3


def test_the_command_gets_all_of_its_words() -> None:
    code = "import sys; sys.exit(sys.argv[1:] != ['--', '-x', '--'])"
    words = ["--", sys.executable, "-c", code, "--", "-x", "--"]
    assert main(["--times", "1", "--load", "1", *words]) == 0


@pytest.mark.parametrize("words", [[], ["--"]])
def test_a_command_is_needed(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
