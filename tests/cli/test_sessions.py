"""``bridle sessions``: stored sessions as a list, as text, as JSON, as a page."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import time
from pathlib import Path

import pytest
from tests.support.browser import NAMES, browser, executable
from tests.support.stored import NOBODY, ONE, TWO, Home, assistant, lines, plain, user

from bridle.cli import main
from bridle.cli._timeline.page import page
from bridle.cli._timeline.stored import stored_timeline
from bridle.cli._timeline.timeline import Timeline
from bridle.sync import sessions

RECORDED = Path(__file__).parent.parent / "wire" / "transcripts"
VERSIONS = sorted(path.name for path in RECORDED.iterdir())


class Command:
    """Runs the command in this process."""

    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        """Return the output. ``code`` is the expected exit code."""
        given = main(["sessions", *map(str, arguments)])
        said = self._capsys.readouterr()
        self.err = said.err
        assert given == code, said.err
        return said.out

    def recorded(self, version: str, scene: str) -> str:
        """Copy a recorded session into the home, and return its id."""
        source = RECORDED / version / f"{scene}.jsonl"
        session_id = str(json.loads(source.read_bytes().splitlines()[0])["sessionId"])
        path = self.home.write(session_id, source.read_bytes())
        if source.with_suffix("").exists():
            shutil.copytree(source.with_suffix(""), path.with_suffix(""))
        return session_id


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return Command(Home(tmp_path / "config"), capsys)


def test_sessions_are_listed_with_their_directory_and_summary(command: Command) -> None:
    command.home.write(ONE, plain(ONE, "Hello\x1b[2J there"))
    told = command("list")
    assert told.splitlines()[0].startswith(f"{ONE}  ")
    assert told.splitlines()[0].endswith(" · /project")
    assert told.splitlines()[1] == "    Hello␛[2J there"
    value = json.loads(command("list", "--json"))
    assert (value["session_id"], value["cwd"]) == (ONE, "/project")


@pytest.mark.parametrize(
    ("ago", "told"),
    [
        (-5, "now"),
        (61, "1 minute ago"),
        (2 * 3600 + 5, "2 hours ago"),
        (6 * 86400 + 5, "6 days ago"),
        (400 * 86400, r"\d{4}-\d\d-\d\d"),
    ],
)
def test_the_list_tells_when_a_session_changed(command: Command, ago: int, told: str) -> None:
    path = command.home.write(ONE, plain())
    os.utime(path, (time.time() - ago, time.time() - ago))
    assert re.fullmatch(rf"{ONE}  {told} · /project", command("list").splitlines()[0])


def test_a_list_is_limited(command: Command, tmp_path: Path) -> None:
    for number in range(25):
        session_id = f"{number:08x}-0000-4000-8000-000000000000"
        command.home.write(session_id, plain(session_id))
    assert len(command("list").splitlines()) == 40
    assert command.err == "For more, pass --offset 20.\n"
    assert len(command("list", "--limit", "3", "--offset", "22").splitlines()) == 6
    assert command.err == ""
    command("list", "--limit", "-1", code=2)
    assert "got -1" in command.err
    assert len(command("list", "--json").splitlines()) == 25
    assert command("list", "--directory", tmp_path) == ""
    assert command.err == "There are no sessions.\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_conversation_is_shown_with_prompts_answers_and_tools(
    version: str, command: Command
) -> None:
    told = command("show", command.recorded(version, "tools")).splitlines()
    assert told[0] == "A renamed session"
    assert [line for line in told if line.startswith("> ")] == [
        "> List the files (tools)",
        "> Thank you (plain)",
        "> Now wait (wait)",
        "> Go on (plain)",
    ]
    assert sum("✓ Bash" in line for line in told) == 2
    assert "I look." in told
    assert "  · [Request interrupted by user]" in told
    assert told[-1] == "4 prompts"


@pytest.mark.parametrize("version", VERSIONS)
def test_subagents_commands_and_compactions_are_shown(version: str, command: Command) -> None:
    told = command("show", command.recorded(version, "subagents"))
    assert "    to general-purpose: <one>\n" in told
    assert "      general-purpose: inner is done\n" in told
    assert told.endswith("\n1 prompt · 3 subagents\n")
    told = command("show", command.recorded(version, "compacted"))
    assert "  · the conversation was compacted" in told
    assert "\n> /compact\n    Compacted\n" in told
    assert re.search(r"\n    (Total|Estimated) cost:", told)
    assert "\n    Total duration (API):  " in told  # the columns are kept
    assert "\n  · Summary: They listed files." in told


def test_a_session_is_found_by_the_start_of_its_id_and_by_its_title(command: Command) -> None:
    command.home.write(ONE, plain(ONE, "First") + lines({"customTitle": "My title"}))
    command.home.write("1111" + TWO[4:], plain("1111" + TWO[4:], "Second"))
    assert "> First" in command("show", ONE[:9])
    assert "> First" in command("show", "My title")
    command("show", "1111", code=2)
    assert "names several sessions" in command.err
    for word in ("111", NOBODY, "nothing"):
        command("show", word, code=6)
        assert "bridle sessions list" in command.err


def test_messages_are_printed_as_json(command: Command) -> None:
    command.home.write(ONE, plain() + b"{damaged")
    told = command("show", ONE, "--json")
    assert [json.loads(line)["uuid"] for line in told.splitlines()] == ["u1", "a1"]
    assert command.err == "The transcript is damaged: 1 line could not be read.\n"
    assert "1 unreadable line" in command("show", ONE)


def test_a_prompt_with_other_blocks_is_shown(command: Command) -> None:
    picture = [{"type": "image", "source": {}}, {"type": "text", "text": "What is this?"}]
    command.home.write(ONE, lines(user("a", None, picture), assistant("b", "a")))
    assert "> What is this?\n> [image]\n" in command("show", ONE)


def test_a_page_is_written_for_its_owner(command: Command, tmp_path: Path) -> None:
    session_id = command.recorded(VERSIONS[-1], "subagents")
    target = tmp_path / "page.html"
    assert "messages. Open it" in command("show", session_id, "--html", target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert "inner is done" in target.read_text()
    command("show", session_id, "--html", target, code=2)
    assert "--overwrite" in command.err
    command("show", session_id, "--html", target, "--overwrite")
    command("show", session_id, "--html", tmp_path / "no" / "page.html", code=2)


def test_a_page_replaces_a_link_and_not_the_file_behind_it(
    command: Command, tmp_path: Path
) -> None:
    session_id = command.recorded(VERSIONS[-1], "subagents")
    other, link = tmp_path / "notes", tmp_path / "page.html"
    other.write_text("mine")
    link.symlink_to(other)
    command("show", session_id, "--html", link, "--overwrite")
    assert (link.is_symlink(), other.read_text()) == (False, "mine")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_page_has_turns_tools_and_subagents(version: str, command: Command) -> None:
    session_id = command.recorded(version, "subagents")
    info, transcript = sessions.get_session(session_id), sessions.read_transcript(session_id)
    model = stored_timeline(transcript, info)
    assert [item.text for item in model.conversation if item.who == "user"] == ["Ask both (agents)"]
    tools = [item for item in model.conversation if item.who == "tool"]
    assert [(item.summary, item.depth, item.state) for item in tools] == [
        ("one", 0, "ok"),
        ("two", 0, "ok"),
        ("inner", 1, "ok"),
    ]
    assert {span.lane for span in model.spans} == {"turns", "model", "tools"}
    assert [frame.t for frame in model.frames] == sorted(frame.t for frame in model.frames)
    assert model.facts["session"] == session_id


@pytest.mark.parametrize("version", VERSIONS)
def test_the_page_shows_commands_and_interrupts_as_what_they_are(
    version: str, command: Command
) -> None:
    def shown(scene: str) -> Timeline:
        session_id = command.recorded(version, scene)
        return stored_timeline(
            sessions.read_transcript(session_id), sessions.get_session(session_id)
        )

    model = shown("tools")
    turns = [(span.title, span.state) for span in model.spans if span.lane == "turns"]
    assert turns == [
        ("List the files (tools)", "ok"),
        ("Thank you (plain)", "ok"),
        ("Now wait (wait)", "stopped"),
        ("Go on (plain)", "ok"),
    ]
    assert [item.text for item in model.conversation if item.who == "cli"] == [
        "[Request interrupted by user]"
    ]
    # The model works on one turn at a time.
    assert {span.row for span in model.spans if span.lane == "model"} == {0}
    assert re.fullmatch(r"2026-\d\d-\d\d \d\d:\d\d:\d\d UTC", model.facts["started"])
    prompts = [item.text for item in shown("compacted").conversation if item.who == "user"]
    assert {"/compact", "/usage"} < set(prompts)
    assert not [text for text in prompts if "<" in text]


def test_a_browser_draws_the_page(command: Command, tmp_path: Path) -> None:
    if executable() is None:
        pytest.skip(f"there is no browser here: none of {', '.join(NAMES)}")
    session_id = command.recorded(VERSIONS[-1], "tools")
    target = tmp_path / "page.html"
    target.write_text(
        page(
            stored_timeline(sessions.read_transcript(session_id), sessions.get_session(session_id)),
            "</script><b>name",
        )
    )
    with browser(tmp_path / "profile") as shown:
        shown.open(target)
        articles = shown.value("document.querySelectorAll('#conversation article').length")
        assert articles == 13
        assert shown.complaints == []


def test_a_session_is_exported_to_a_file_or_to_stdout(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    Home(tmp_path).write(ONE, plain())
    assert main(["sessions", "export", ONE, str(tmp_path / "a.md")]) == 0
    assert (tmp_path / "a.md").read_text().startswith("# Hello\n")
    assert capfdbinary.readouterr().out.decode() == f"Wrote {tmp_path}/a.md.\n"
    assert main(["sessions", "export", ONE]) == 0
    assert capfdbinary.readouterr().out == plain()
    assert main(["sessions", "export", ONE, "-", "--format", "json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["session"]["session_id"] == ONE
    assert main(["sessions", "export", ONE, str(tmp_path / "a.md")]) == 2
    assert b"pass --overwrite" in capfdbinary.readouterr().err
    assert main(["sessions", "export", ONE, str(tmp_path / "a.txt")]) == 2
    assert b"Pass --format" in capfdbinary.readouterr().err


def test_sessions_are_deleted_after_a_question_or_with_yes(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = command.home.write(ONE, plain()), command.home.write(TWO, plain(TWO))
    command("rm", ONE, code=2)
    assert "--yes" in command.err
    assert first.exists()
    command("rm", ONE, NOBODY, "--yes", code=6)
    assert first.exists()
    answers = iter(["n\n", "y\n"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdin, "readline", lambda: next(answers))
    assert ONE in command("rm", ONE, code=1)
    assert first.exists()
    assert command("rm", ONE).endswith(f"Deleted {ONE}.\n")
    assert (first.exists(), second.exists()) == (False, True)
    assert command("rm", TWO[:8], TWO, "--yes") == f"Deleted {TWO}.\n"
    assert not second.exists()


def test_a_session_without_a_message_is_shown_and_deleted_by_its_id(command: Command) -> None:
    path = command.home.write(ONE, lines({"type": "queue-operation"}))
    assert "[no prompt]" in command("show", ONE)
    assert command("rm", ONE, "--yes") == f"Deleted {ONE}.\n"
    assert not path.exists()


@pytest.mark.parametrize("words", [["show"], ["list", "x"], ["show", ONE, "x"], ["rm"]])
def test_missing_and_extra_words_are_errors(words: list[str], command: Command) -> None:
    command.home.write(ONE, plain())
    command(*words, code=2)
    assert command.err.startswith("bridle sessions: ")
