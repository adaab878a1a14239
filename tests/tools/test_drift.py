"""What `make drift` compares: frames, fields, texts, flags and variables of two CLIs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import drift
from bridle.testing.recording import Entry, Recording
from drift import Shape, changes, compare, flags_of, rewordings, shape_of, variables_of


def recording(*lines: tuple[str, dict[str, Any]]) -> Recording:
    return Recording(
        Entry(t=0.0, direction=direction, line=json.dumps(frame))  # type: ignore[arg-type]
        for direction, frame in lines
    )


def reply(number: str, **response: object) -> dict[str, Any]:
    inner = {"subtype": "success", "request_id": number, "response": response}
    return {"type": "control_response", "response": inner}


def ask(number: str, subtype: str) -> dict[str, Any]:
    return {"type": "control_request", "request_id": number, "request": {"subtype": subtype}}


def shape(*lines: tuple[str, dict[str, Any]]) -> Shape:
    return shape_of([recording(*lines)])


def test_frames_are_distinguished_by_type_subtype_and_the_request_that_they_answer() -> None:
    hook = ask("2", "hook_callback")
    hook["request"]["input"] = {"hook_event_name": "Stop"}
    found = shape(
        ("out", {"type": "system", "subtype": "init"}),
        ("out", {"type": "assistant"}),
        ("in", ask("1", "get_usage")),
        ("out", reply("1", cost=1)),
        ("out", hook),
        ("err", {"a": "word"}),
    )
    assert set(found.fields) == {
        "system/init",
        "assistant",
        "reply to get_usage",
        "request hook_callback Stop",
        "stderr",
    }
    assert "response.response.cost" in found.fields["reply to get_usage"]


def test_new_and_removed_frames_and_fields_are_named() -> None:
    old = shape(("out", {"type": "a", "x": 1, "list": [{"y": 1}]}), ("out", {"type": "gone"}))
    new = shape(("out", {"type": "a", "z": 1, "list": [{"y": 1}]}), ("out", {"type": "born"}))
    lines = compare(old, new)
    assert "- new: `born`" in lines
    assert "- gone: `gone`" in lines
    assert "- new: `a: z`" in lines
    assert "- gone: `a: x`" in lines
    assert not any("list" in line for line in lines)


def test_a_field_with_a_value_of_another_type_is_named() -> None:
    """CLI 2.1.326 numbered its MCP messages with texts, the ones before and after it did not."""

    def message(*ids: object) -> Shape:
        return shape(*(("out", {"type": "a", "id": id}) for id in ids))

    assert compare(message("a:0", "a:1"), message(0, 1.5))[2:-1] == ["- `a id`: str → number"]
    assert compare(message("a", None), message(None)) == []


def test_new_and_removed_names_in_lists_are_named() -> None:
    def tools(*names: str) -> Shape:
        listed = [{"name": name, "text": "A tool."} for name in names]
        return shape(("out", {"type": "a", "tools": listed, "words": [*names]}))

    lines = compare(tools("Bash", "Old"), tools("Bash", "New"))
    assert lines[0] == "### Names in lists"
    assert lines[2:-1] == [
        "- new: `a tools[].name: New`",
        "- new: `a words[]: New`",
        "- gone: `a tools[].name: Old`",
        "- gone: `a words[]: Old`",
    ]


def test_texts_are_compared_without_what_differs_between_runs() -> None:
    def cost(words: str) -> Shape:
        return shape(("in", ask("1", "cost")), ("out", reply("1", text=words)))

    same = compare(cost("Total cost: $0.01 in /tmp/a"), cost("Total cost: $7.50 in /tmp/b"))
    assert same == []
    changed = compare(cost("Total cost: $0.01"), cost("Estimated cost: $0.01"))
    assert changed[-2] == (
        '- `reply to cost response.response.text`: "Total cost: $#" → "Estimated cost: $#"'
    )


def test_the_same_is_not_reported() -> None:
    assert changes("Flags", ["--a"], ["--a"]) == []
    assert rewordings("Texts", {"a": ["x", "y"]}, {"a": ["y", "z"]}) == []


def test_a_long_list_is_cut() -> None:
    lines = changes("Flags", [], [f"--{number}" for number in range(100)])
    assert lines[-2] == "- and 20 more"


HELP = """
Options:
  -c, --continue                        Continue the conversation
  --add-dir <directories...>            Additional directories
                                        to allow
  --effort <level>                      Effort (low,
Commands:
  mcp                                   Configure
"""


def test_flags_have_their_descriptions() -> None:
    assert flags_of(HELP) == {
        "--continue": "Continue the conversation",
        "--add-dir": "Additional directories to allow",
        "--effort": "Effort (low,",
    }


def test_variables_are_found_in_a_program() -> None:
    code = b'x=process.env.CLAUDE_CODE_SIMPLE;"ANTHROPIC_BASE_URL"\x00NOT_CLAUDE'
    assert variables_of(code) == {"CLAUDE_CODE_SIMPLE", "ANTHROPIC_BASE_URL"}


def test_a_change_of_the_repository_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a file that was changed before."""
    repository, cli = tmp_path / "repository", tmp_path / "claude"
    repository.mkdir()
    changed = repository / "file"
    changed.write_text("committed")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *words], check=True)
    changed.write_text("changed by a person")
    cli.write_bytes(b"")
    check = drift._checked

    async def probe(*_: object) -> drift.Shape:
        changed.write_text("changed by a suite")
        return drift.Shape()

    def checked(words: list[str]) -> str:
        return check(words) if words[0] == "git" else ""

    given = {"probe": probe, "_checked": checked, "DRIFT": tmp_path, "REPOSITORY": repository}
    for name, value in given.items():
        monkeypatch.setattr(drift, name, value)
    for name in ("_tested_cli", "version_of"):
        monkeypatch.setattr(drift, name, lambda *_, name=name: "2" if name == "version_of" else cli)
    monkeypatch.setattr(sys, "argv", ["drift.py", "--no-suites", f"--cli={cli}"])
    assert drift.main() == 1
    assert "The repository was changed meanwhile" in (tmp_path / "report.md").read_text("utf-8")


def test_the_report_is_written_after_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suites take long, and a run that is interrupted keeps what it has found out."""
    cli = tmp_path / "claude"
    cli.write_bytes(b"CLAUDE_CODE_ONE")
    report = tmp_path / "report.md"
    seen: list[str] = []

    async def probe(*_: object) -> drift.Shape:
        return drift.Shape()

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(report.read_text("utf-8"))
        return subprocess.CompletedProcess(words, 1, f"output {len(seen)}", "")

    for name, value in {"probe": probe, "_run": run, "DRIFT": tmp_path}.items():
        monkeypatch.setattr(drift, name, value)
    for name in ("bundled", "_tested_cli", "version_of", "_checked", "_tree"):
        returned = cli if name in ("bundled", "_tested_cli") else "2.1.327"
        monkeypatch.setattr(drift, name, lambda *_, value=returned: value)
    monkeypatch.setattr(sys, "argv", ["drift.py", "--no-install", "--short"])
    assert drift.main() == 0
    assert [[f"output {n}" in text for n in (1, 2, 3)] for text in seen] == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
    ]
    assert all("interrupted here" in text for text in seen)
    assert "output 3" in report.read_text("utf-8")
    assert "interrupted here" not in report.read_text("utf-8")


@pytest.mark.parametrize("code", [0, 1])
def test_the_daily_job_fails_if_a_suite_failed(tmp_path: Path, code: int) -> None:
    """The report is written in both cases, so `make drift` ends with 0."""
    job = (Path(__file__).parents[2] / ".github/workflows/drift.yml").read_text("utf-8")
    step = json.loads(job.rpartition(" run: ")[2])
    (tmp_path / ".drift").mkdir()
    done = subprocess.CompletedProcess(["pytest"], code, stdout="1 test\n", stderr="")
    drift.write_report(tmp_path / ".drift" / "report.md", drift._outcome("tests/real", done))
    ended = subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, capture_output=True)
    assert (ended.returncode == 0) == (code == 0)
