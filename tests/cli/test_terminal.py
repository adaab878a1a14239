"""The terminal: which editor, and whether anybody is there. The rest takes a real one to test."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridle.cli._screens.user_terminal import editor, is_attended


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"VISUAL": "code --wait", "EDITOR": "vim"}, ["code", "--wait"]),
        ({"EDITOR": "vim"}, ["vim"]),
        ({"VISUAL": " "}, ["BIN/vi"]),
    ],
)
def test_the_editor_is_the_one_the_user_named_or_one_that_is_there(
    variables: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "vi").touch(0o755)
    found = editor({**variables, "PATH": str(tmp_path)})
    assert found == [word.replace("BIN", str(tmp_path)) for word in expected]


def test_without_an_editor_there_is_a_word_about_it() -> None:
    with pytest.raises(OSError, match="EDITOR"):
        editor({"PATH": ""})


def test_no_person_is_present_without_a_terminal() -> None:
    assert not is_attended()
