from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.stored import ONE, assistant, entry, lines, result, user

from bridle.sessions._transcripts.summaries import (
    Ends,
    SessionInfo,
    seconds_of,
    summarize,
)


def summary(head: bytes, tail: bytes = b"", **options: Any) -> SessionInfo | None:
    return summarize(Ends(head, tail), ONE, "-p", updated_at=5.0, **options)


def found(head: bytes, tail: bytes = b"", **options: Any) -> SessionInfo:
    info = summary(head, tail, **options)
    assert info is not None
    return info


def title(text: str) -> dict[str, str]:
    return {"type": "custom-title", "customTitle": text, "sessionId": ONE}


def test_a_summary_has_the_facts_of_the_first_and_last_lines() -> None:
    head = lines(user("a", None, "First\nprompt", cwd="/p", gitBranch="main"), b"{")
    tail = b'rest"}\n' + lines(
        assistant("b", "a", cwd="/other", gitBranch="topic"),
        {"type": "tag", "tag": "blue", "sessionId": ONE},
        title("The title"),
    )
    assert found(head, tail, size=9, path="/f") == SessionInfo(
        session_id=ONE,
        project="-p",
        summary="The title",
        updated_at=5.0,
        created_at=1767323045.678,
        custom_title="The title",
        first_prompt="First prompt",
        tag="blue",
        cwd="/p",
        git_branch="topic",
        size=9,
        path="/f",
    )


def test_the_summary_prefers_titles_to_prompts() -> None:
    first = user("a", None, "first")
    last = {"type": "last-prompt", "lastPrompt": "last"}
    ai = {"type": "ai-title", "aiTitle": "by the model"}
    old = {"type": "summary", "summary": "old style"}
    assert found(lines(first)).summary == "first"
    assert found(lines(first, old)).summary == "old style"
    assert found(lines(first, old, last)).summary == "last"
    assert found(lines(first, old, last, ai)).summary == "by the model"
    assert found(lines(first, old, last, ai, title("mine"))).summary == "mine"
    assert found(lines(first, title("mine"), title("later"))).custom_title == "later"


def test_a_title_of_the_last_lines_wins_over_the_other_source() -> None:
    head, tail = lines(title("old"), user("a", None)), b"\n" + lines(title("new"))
    assert found(head, b"\n", title="beside").custom_title == "beside"
    assert found(head, tail, title="beside").custom_title == "new"
    assert found(head, b"\n").custom_title == "old"


def test_a_cleared_tag_is_none() -> None:
    tags = [{"type": "tag", "tag": "x"}, {"type": "tag", "tag": ""}]
    assert found(lines(user("a", None), *tags)).tag is None


@pytest.mark.parametrize(
    "content",
    [
        "<local-command-stdout>x</local-command-stdout>",
        "<session-start-hook>x",
        "<tick>",
        "<goal>x",
        "[Request interrupted by user for tool use]",
        "<ide_opened_file>x</ide_opened_file>",
        "  ",
        result("t"),
        [],
        None,
        7,
    ],
)
def test_text_that_the_user_did_not_write_is_not_the_first_prompt(content: object) -> None:
    first = entry("user", "a", None, message={"role": "user", "content": content})
    hidden = [user("b", "a", "meta", isMeta=True), user("c", "b", "s", isCompactSummary=True)]
    prompt = user("d", "c", [{"type": "text", "text": "the prompt"}])
    assert found(lines(first, *hidden, prompt)).first_prompt == "the prompt"
    alone = found(lines(first, *hidden))
    assert (alone.summary, alone.first_prompt) == ("[no prompt]", None)


@pytest.mark.parametrize("kind", ["image", "document"])
def test_a_prompt_without_text_is_summarized_by_its_first_block(kind: str) -> None:
    first = user("a", None, [{"type": kind, "source": {"data": "AAAA"}}])
    info = found(lines(first, assistant("b", "a")))
    assert (info.summary, info.first_prompt) == (f"[{kind}]", None)
    assert found(lines(first, user("b", "a", "text"))).summary == "text"


def test_an_image_longer_than_the_head_is_summarized() -> None:
    block = {"type": "image", "source": {"type": "base64", "data": "A" * 90_000}}
    line = json.dumps(user("a", None, [block]), separators=(",", ":")).encode()
    assert found(line[:60_000], b"AAA\n").summary == "[image]"


def test_a_transcript_with_only_an_answer_has_a_summary() -> None:
    assert found(lines(assistant("b", None))).summary == "[no prompt]"


def test_a_slash_command_is_the_first_prompt_if_there_is_no_other() -> None:
    command = user("a", None, "<command-name>/review</command-name><command-args>x</command-args>")
    assert found(lines(command)).first_prompt == "/review"
    assert found(lines(command, user("b", "a", "text"))).first_prompt == "text"


@pytest.mark.parametrize(("branch", "told"), [("main", "main"), ("HEAD", None), ("", None)])
def test_a_detached_commit_has_no_branch(branch: str, told: str | None) -> None:
    assert found(lines(user("a", None, gitBranch=branch))).git_branch == told


def test_a_long_prompt_is_cut() -> None:
    assert found(lines(user("a", None, "x" * 300))).first_prompt == "x" * 200 + "…"


@pytest.mark.parametrize("cut", range(60_000, 60_012))
@pytest.mark.parametrize("text", ['say "é" \\ ' * 9000, "\u00e9\U0001f600" * 20_000])
def test_a_first_prompt_longer_than_the_head_is_read_in_part(text: str, cut: int) -> None:
    line = json.dumps(user("a", None, text), separators=(",", ":")).encode()
    prompt = found(line[:cut], b"...\n").first_prompt
    assert prompt is not None
    assert text.startswith(prompt.removesuffix("…").rstrip())
    assert len(prompt) > 100


@pytest.mark.parametrize(
    "cut", [b"", b'{"role":"user","content":7', b'{"role":"user","content":"\\q', b'"content":"a']
)
def test_a_cut_line_without_a_prompt_gives_no_summary(cut: bytes) -> None:
    assert summary(cut, b"...\n") is None


def test_a_subagent_or_an_empty_session_has_no_summary() -> None:
    assert summary(lines(user("a", None, isSidechain=True))) is None
    assert summary(b"") is None
    assert summary(lines({"type": "queue-operation"}, b"[]", b"{")) is None


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2000-02-29T12:00:00.5Z", 951825600.5),
        ("2000-03-01T00:00:00Z", 951868800.0),
        ("2026-12-31T23:59:59.999Z", 1798761599.999),
        ("2026-01-01", None),
        ("2026-01-01T00:00:00", None),
        ("2026-13-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_times_are_seconds_since_the_epoch(timestamp: str, expected: float | None) -> None:
    assert seconds_of(timestamp) == expected
