"""The view model: what is shown of a run, given what comes and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support import cli

from bridle import ApiRetry, Message, RateLimited, SdkWarning, SessionReady
from bridle.cli._screens.shown import Note, Said, Shown, plain
from bridle.cli._screens.view import View, about, allowed, denied
from bridle.events import WarningKind


def words(shown: Sequence[Shown]) -> list[str]:
    """What is shown: the answer in quotes, notes as they are."""
    return [repr(one.text) if isinstance(one, Said) else plain(one.line) for one in shown]


def seen(view: View, *updates: Any, now: float = 1.0) -> list[str]:
    """What the lines, messages or events add to a view."""
    shown: list[str] = []
    for update in updates:
        messages = cli.decoded(update) if isinstance(update, bytes) else [update]
        for one in messages:
            shown += words(view.see(one, now))
    return shown


def status(view: View, now: float = 1.0) -> list[str]:
    """What goes on, without the turning mark."""
    return [
        plain(line)[0:].translate({ord(c): "*" for c in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"}) for line in view.status(now)
    ]


def event(parent: str | None = None, **members: object) -> bytes:
    """A step of an answer under way."""
    return cli.line(type="stream_event", event=members, parent_tool_use_id=parent)


def delta(text: str, parent: str | None = None) -> bytes:
    """A piece of text."""
    return event(parent, type="content_block_delta", delta={"type": "text_delta", "text": text})


START = event(type="message_start", message={"id": "m1"})
BLOCK = event(type="content_block_start", content_block={"type": "text", "text": ""})
STOP = event(type="content_block_stop")


def call(
    name: str = "Bash", *, id: str = "t1", parent: str | None = None, **given: object
) -> bytes:
    """The model calls a tool."""
    block = {"type": "tool_use", "id": id, "name": name, "input": given}
    message = {"role": "assistant", "content": [block]}
    return cli.line(type="assistant", message=message, parent_tool_use_id=parent)


def came(content: str, *, id: str = "t1", is_error: bool = False) -> bytes:
    """What came of the call."""
    block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
    return cli.line(type="user", message={"role": "user", "content": [block]})


# ---------------------------------------------------------------- the answer


def test_text_is_printed_in_parts_and_every_block_ends_its_line() -> None:
    view = View(0.0)
    whole = cli.line(
        type="assistant", message={"id": "m1", "content": [{"type": "text", "text": "Hello"}]}
    )
    assert seen(view, START, BLOCK, delta("Hel"), delta("lo"), whole, STOP) == [
        "'Hel'",
        "'lo'",
        "'\\n'",
    ]
    assert seen(view, BLOCK, delta("again\n"), STOP) == ["'again\\n'"]


def test_text_that_comes_whole_is_said_whole() -> None:
    assert seen(View(0.0), cli.assistant("one"), cli.assistant("two\n")) == [
        "'one'",
        "'\\n'",
        "'two\\n'",
    ]


def test_an_answer_that_breaks_off_is_closed_once() -> None:
    view = View(0.0)
    seen(view, START, BLOCK, delta("Hel"))
    assert words(view.close_answer()) == ["'\\n'"]
    assert words(view.close_answer()) == []


def test_what_a_subagent_says_is_not_the_answer() -> None:
    view = View(0.0)
    assert (
        seen(view, delta("sub", parent="t1"), cli.assistant("sub", parent_tool_use_id="t1")) == []
    )
    assert status(view) == ["* starting the CLI 1.0s"]


def test_the_cli_s_own_words_about_a_failure_are_not_the_answer() -> None:
    view = View(0.0)
    assert seen(view, cli.synthetic("API Error: 529", error="overloaded")) == []
    assert seen(view, cli.synthetic("API Error: 529", is_api_error_message=True)) == []
    assert seen(view, cli.synthetic("a slash command")) == ["'a slash command'", "'\\n'"]


def test_what_a_command_printed_is_said() -> None:
    output = cli.system("local_command_output", content="cost: \x1b[1m0")
    assert seen(View(0.0), output) == ["'cost: \\x1b[1m0'", "'\\n'"]


# ---------------------------------------------------------------- tools


def test_a_tool_is_shown_while_it_runs_and_when_it_is_over() -> None:
    view = View(0.0)
    assert seen(view, call(command="ls -l\nwc"), now=2.0) == []
    assert status(view, 4.5) == ["  * Bash 2.5s  ls -l wc"]
    assert seen(view, came("a\nb\nc\n"), now=14.0) == [
        "  ✓ Bash 12s  ls -l wc",
        "      a (+2 lines)",
    ]
    assert status(view, 15.0) == ["* waiting for the model 1.0s"]


def test_tools_run_side_by_side() -> None:
    view = View(0.0)
    seen(
        view, call("Read", id="t1", file_path="/a"), call("Read", id="t2", file_path="/b"), now=1.0
    )
    assert status(view, 2.0) == ["  * Read 1.0s  /a", "  * Read 1.0s  /b"]
    assert seen(view, came("x", id="t2"), now=2.0) == ["  ✓ Read 1.0s  /b"]
    assert status(view, 3.0) == ["  * Read 2.0s  /a"]


@pytest.mark.parametrize(
    ("tool", "content", "is_error", "expected"),
    [
        ("Bash", "", False, ["  ✓ Bash 1.0s"]),
        ("Bash", "(Bash completed with no output)", False, ["  ✓ Bash 1.0s"]),
        ("Write", "File created", False, ["  ✓ Write 1.0s"]),
        ("Write", "no room", True, ["  ✗ Write 1.0s", "      no room"]),
        (
            "Bash",
            "<tool_use_error>\nbad\x1b[0m</tool_use_error>",
            True,
            ["  ✗ Bash 1.0s", "      bad␛[0m"],
        ),
    ],
    ids=["empty", "no output", "silent", "silent failure", "tags"],
)
def test_what_a_tool_says_is_reported_where_it_tells_something(
    tool: str, content: str, is_error: bool, expected: list[str]
) -> None:
    view = View(0.0)
    seen(view, call(tool), now=0.0)
    assert seen(view, came(content, is_error=is_error), now=1.0) == expected


def test_a_subagent_s_tools_are_indented() -> None:
    view = View(0.0)
    seen(view, call(parent="t0", command="ls"), now=0.0)
    assert status(view, 1.0) == ["    * Bash 1.0s  ls"]
    assert seen(view, came("", id="t1"), now=1.0) == ["    ✓ Bash 1.0s  ls"]


def test_results_without_a_call_and_prompts_are_not_shown() -> None:
    assert seen(View(0.0), came("x"), cli.user("words"), cli.echo("u1")) == []


@pytest.mark.parametrize(
    ("name", "tool_input", "expected"),
    [
        ("Bash", {"description": "d", "command": "ls"}, "ls"),
        ("Bash", {"command": 3, "description": "d"}, "d"),
        ("mcp__x__y", {"n": 1, "city": "Rome"}, "Rome"),
        ("mcp__x__y", {"n": 1}, ""),
        ("Write", {"content": "c", "file_path": "/a"}, "/a"),
    ],
)
def test_a_call_is_about_its_most_telling_member(
    name: str, tool_input: dict[str, Any], expected: str
) -> None:
    assert about(name, tool_input) == expected


# ---------------------------------------------------------------- permissions


def test_a_call_tells_who_allowed_it_and_counts_from_then() -> None:
    view = View(0.0)
    seen(view, call(command="ls"), now=0.0)
    view.asking("t1", waits=True)
    assert status(view, 5.0) == ["  * Bash asking  ls"]
    view.asking("t1", waits=False)
    view.decided("t1", allowed("allowed by you"), 10.0)
    assert status(view, 11.0) == ["  * Bash 1.0s  ls"]
    assert seen(view, came(""), now=12.0) == ["  ✓ Bash 2.0s · allowed by you  ls"]


def test_a_denied_call_tells_why_and_takes_no_time() -> None:
    view = View(0.0)
    seen(view, call(command="ls"), now=0.0)
    view.decided("t1", denied("denied by policy rule 1", "not\nhere"), 1.0)
    assert seen(view, came("not here", is_error=True), now=1.0) == [
        "  ✗ Bash denied by policy rule 1: not here  ls"
    ]


def test_an_edited_call_is_about_what_is_run() -> None:
    view = View(0.0)
    seen(view, call(command="ls"), now=0.0)
    view.decided("t1", allowed("edited by you", tool_input={"command": "pwd"}), 0.0)
    assert seen(view, came(""), now=1.0) == ["  ✓ Bash 1.0s · edited by you  pwd"]


def test_a_question_may_be_decided_before_its_call_is_seen() -> None:
    view = View(0.0)
    view.asking("t1", waits=True)
    view.decided("t1", denied("denied by --deny"), 0.0)
    assert status(view) == ["* starting the CLI 1.0s"]
    assert view.input_of("t1") is None
    seen(view, call(command="ls"))
    assert view.input_of("t1") == {"command": "ls"}
    assert seen(view, came("no", is_error=True)) == ["  ✗ Bash denied by --deny  ls"]


def test_an_interrupted_call_says_so_and_nothing_else() -> None:
    view = View(0.0)
    seen(view, call(command="ls"), now=0.0)
    view.interrupt(1.0)
    assert status(view, 3.0) == ["interrupting (press Ctrl-C again to end the program) 2.0s"]
    assert seen(view, came("The user does not want…", is_error=True), now=3.0) == [
        "  ✗ Bash 3.0s · interrupted  ls"
    ]


# ---------------------------------------------------------------- what goes on


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (cli.init(), "waiting for the model"),
        (cli.system("status", status="requesting"), "waiting for the model"),
        (cli.system("status", status="compacting"), "compacting"),
        (cli.system("status", status=None), "starting the CLI"),
        (cli.system("thinking_tokens", estimated_tokens=9), "thinking"),
        (delta("x"), "writing"),
        (
            event(type="content_block_delta", delta={"type": "thinking_delta", "thinking": "h"}),
            "thinking",
        ),
        (
            event(
                type="content_block_start",
                content_block={"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
            ),
            "preparing Bash",
        ),
        (event(type="ping"), "starting the CLI"),
    ],
    ids=["init", "requesting", "compacting", "idle", "tokens", "text", "thinking", "tool", "ping"],
)
def test_the_progress_line_says_what_is_waited_for(line: bytes, expected: str) -> None:
    view = View(1.0)
    seen(view, line, now=1.0)
    assert status(view, 3.0) == [f"* {expected} 2.0s"]


def test_the_mark_turns() -> None:
    view = View(0.0)
    assert len({plain(view.status(tenths / 10 + 0.05)[0])[0] for tenths in range(10)}) == 10


def test_the_same_thing_going_on_does_not_begin_anew() -> None:
    view = View(0.0)
    seen(view, delta("a"), now=1.0)
    seen(view, delta("b"), now=5.0)
    assert status(view, 6.0) == ["* writing 5.0s"]


def test_the_first_turn_introduces_the_session() -> None:
    view = View(0.0)
    init = cli.system(
        "init",
        claude_code_version="2.1.325",
        model="opus",
        permissionMode="plan",
        cwd="/work",
        mcp_servers=[{"name": "a", "status": "connected"}, {"name": "b", "status": "failed"}],
    )
    assert seen(view, init) == [
        "claude 2.1.325 · opus · plan mode · /work",
        "  ! MCP server b failed to start",
    ]
    assert seen(view, init) == []
    assert seen(View(0.0), cli.system("init", permissionMode="default")) == ["claude"]


def test_hooks_are_shown_with_their_time() -> None:
    view = View(0.0)
    started = cli.system("hook_started", hook_id="h", hook_name="PreToolUse:Bash")
    done = cli.system("hook_response", hook_id="h", hook_name="PreToolUse:Bash", outcome="success")
    seen(view, started, now=1.0)
    assert status(view, 2.0) == ["  * hook PreToolUse:Bash 1.0s"]
    assert seen(view, done, now=3.0) == ["  ✓ hook PreToolUse:Bash 2.0s"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"stderr": "no\n"}, "no"),
        ({"output": "out"}, "out"),
        ({"exit_code": 2}, "exit code 2"),
    ],
)
def test_a_hook_that_failed_says_why(members: dict[str, Any], expected: str) -> None:
    response = cli.system(
        "hook_response", hook_id="h", hook_name="Stop", outcome="error", **members
    )
    assert seen(View(0.0), response) == [f"  ✗ hook Stop 0.0s: {expected}"]


def test_background_work_is_waited_for_by_name() -> None:
    view = View(0.0)
    seen(view, cli.system("task_started", task_id="b", description="look\naround"), cli.result())
    assert status(view, 2.0) == ["* waiting for background tasks (look around) 1.0s"]
    done = cli.system("task_notification", task_id="b", status="completed", summary="all seen")
    assert seen(view, done) == ["  ✓ task completed: all seen"]
    seen(view, cli.system("background_tasks_changed", tasks=[{"task_id": "c", "description": "x"}]))
    failed = cli.system("task_notification", task_id="c", status="failed", summary="lost")
    assert seen(view, failed, cli.result()) == ["  ✗ task failed: lost"]
    assert status(view, 2.0) == ["* waiting for background tasks (look around) 1.0s"]


def test_a_result_ends_every_call() -> None:
    view = View(0.0)
    seen(view, call(), cli.result())
    assert len(status(view)) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            cli.system("compact_boundary", compact_metadata={"pre_tokens": 9, "post_tokens": 2}),
            "  · the conversation was compacted from 9 to 2 tokens",
        ),
        (cli.system("compact_boundary"), "  · the conversation was compacted"),
        (cli.system("model_fallback", fallback_model="haiku"), "  ! switched to haiku"),
        (cli.system("model_fallback", content="busy"), "  ! busy"),
        (cli.system("model_fallback"), "  ! switched to another model"),
        (cli.system("informational", content="a\x07b"), "  · a␇b"),
        (cli.system("notification", text="look"), "  · look"),
    ],
)
def test_what_the_cli_notes_is_noted(line: bytes, expected: str) -> None:
    assert seen(View(0.0), line) == [expected]


@pytest.mark.parametrize(
    "line",
    [
        cli.system("session_title_changed", title="x"),
        cli.line(type="keep_alive"),
        cli.line(type="new"),
    ],
)
def test_what_means_nothing_to_a_reader_is_not_shown(line: bytes) -> None:
    view = View(0.0)
    assert seen(view, line) == []


# ---------------------------------------------------------------- events


def test_a_retry_is_reported_and_counted_down() -> None:
    view = View(0.0)
    retry = ApiRetry(attempt=2, max_retries=10, delay=4.0, error_status=529, error="overloaded")
    assert seen(view, retry, now=1.0) == ["  ! API error 529 (overloaded); retry 2 of 10 in 4.0s"]
    assert status(view, 2.0) == ["* API error 529 (overloaded), attempt 2 of 10, again in 3.0s"]
    assert status(view, 6.0) == ["* API error 529 (overloaded), attempt 2 of 10 5.0s"]
    seen(view, cli.init(), now=6.0)
    assert status(view, 6.0) == ["* waiting for the model 0.0s"]


def test_a_retry_may_be_for_no_reason_given() -> None:
    retry = ApiRetry(attempt=1, max_retries=2, delay=0.5)
    assert seen(View(0.0), retry) == ["  ! API error; retry 1 of 2 in 0.5s"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (RateLimited(status="allowed"), []),
        (
            RateLimited(
                status="allowed_warning", limit_type="five_hour", utilization=0.9, resets_at=4601.0
            ),
            ["  ! 5-hour rate limit near · 90% used · resets in 1h 00m"],
        ),
        (
            RateLimited(status="rejected", limit_type="monthly"),
            ["  ✗ monthly rate limit reached"],
        ),
        (RateLimited(status="rejected"), ["  ✗ rate limit reached"]),
    ],
)
def test_a_rate_limit_is_reported_when_it_matters(limit: RateLimited, expected: list[str]) -> None:
    assert seen(View(0.0, epoch=1000.0), limit) == expected


def test_warnings_are_reported_by_their_loudness() -> None:
    view = View(0.0)
    assert seen(view, SdkWarning(WarningKind.LATE_RESPONSE), SessionReady()) == []
    assert seen(view, SdkWarning(WarningKind.LIMIT_REACHED, "full")) == ["  ! limit_reached: full"]
    assert seen(view, SdkWarning(WarningKind.MCP_FAILED, "oh")) == ["  ✗ mcp_failed: oh"]


def test_only_what_has_room_for_it_is_cut() -> None:
    """Lines about calls may be cut at the edge of the window; what explains something may not."""
    view = View(0.0)
    seen(view, call())
    [ended, said] = view.see(cli.decoded(came("why", is_error=True))[0], 1.0)
    [warned] = view.see(SdkWarning(WarningKind.LIMIT_REACHED), 1.0)
    assert [isinstance(one, Note) and one.whole for one in (ended, said, warned)] == [
        False,
        True,
        True,
    ]


def test_every_kind_of_message_is_survived() -> None:
    """Also those whose fields do not fit."""
    view = View(0.0)
    for kind in ("assistant", "user", "result", "stream_event", "rate_limit_event"):
        for odd in (cli.line(type=kind), cli.line(type=kind, message=3, event=[])):
            for message in cli.decoded(odd):
                assert isinstance(message, Message)
                view.see(message, 1.0)
    for subtype in ("init", "hook_response", "task_notification", "compact_boundary", "status"):
        seen(view, cli.system(subtype, compact_metadata=3, tasks=3, mcp_servers=3))
