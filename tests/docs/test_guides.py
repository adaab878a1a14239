"""The documentation holds what was asked of it, page by page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bridle
import bridle.sync
from bridle.cli._policy.command_patterns import GIT_READERS, OPERAND_READERS, READERS, URL_READERS
from bridle.cli._policy.policy import parse_policy
from doc_blocks import read_blocks
from doc_tables import public_path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
STARTS = ("docs/adr/",)  # decisions have a form of their own


def page(path: str) -> str:
    """The text of a page."""
    return (REPOSITORY / path).read_text("utf-8")


def section(path: str, heading: str) -> str:
    """The part of a page below a heading, to the next one of its level."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^\1 |\Z)", page(path), re.M | re.S)
    assert found, f"{path} has no section {heading!r}"
    return found[2]


def missing(text: str, *words: str) -> list[str]:
    """Which of these words are not in the text."""
    return [word for word in words if word not in text]


def test_the_readme_shows_both_directions() -> None:
    """R440: a hook, a permission, a subscription and control, as code that runs."""
    shown = section("README.md", "Hooks, tools and control requests in one session")
    assert missing(shown, "PreToolUse", "on_can_use_tool", "subscribe()", "set_model(") == []
    assert "```python" in shown


def test_the_first_commands_of_the_readme_need_only_a_checkout() -> None:
    """Bridle is on no package index yet."""
    commands = re.findall(r"^\$ (.*?)(?:  +#.*)?$", section("README.md", "Install"), re.MULTILINE)
    assert commands[:3] == ["make demo", "make test", "pip install '.[cli]'"]
    makefile = page("Makefile")
    assert [one for one in ("demo", "test") if not re.search(rf"^{one}:", makefile, re.M)] == []
    assert "pip install bridle" not in page("README.md")


def test_the_page_about_hooks_begins_with_a_guard_that_blocks_if_it_fails() -> None:
    beginning, _, _ = page("docs/howto/hooks.md").partition("\n## ")
    example, _, rest = beginning.partition('!!! warning "A guard needs `on_error')
    assert 'on_error="block"' in example
    assert "If a hook raises an exception or misses its deadline, Bridle warns" in rest


def test_the_readme_compares_the_entry_points() -> None:
    """R441: what each one takes, gives and is for."""
    doors = section("README.md", "Entry points")
    assert "| | `run` | `query` | `session` |" in doors
    assert missing(doors, "use it for", "hooks, permissions", "interrupt") == []


def test_the_readme_says_what_is_missing_and_counts_right() -> None:
    """A comparison that only flatters is no comparison."""
    compared = section("README.md", "Compared with the official SDKs")
    assert compared.count("**no**") >= 4
    events = len(bridle.hooks.HOOK_EVENTS)
    assert f"| number of hook events that have a type | {events} |" in compared


def test_the_readme_is_one_page() -> None:
    assert len(page("README.md").splitlines()) <= 220


def test_there_is_a_guide_to_sessions() -> None:
    """R443: the whole life of a conversation in both directions."""
    guide = page("docs/howto/sessions.md")
    headings = re.findall(r"^## (.+)$", guide, re.M)
    wanted = ["Start", "Send a prompt", "Read", "Control the session", "Receive events", "End"]
    wanted += ["Which function to use"]
    assert [name for name in wanted if name not in headings] == []
    public = [name for name, _ in inspect.getmembers(bridle.Session) if not name.startswith("_")]
    told_elsewhere = {"connect", "pid", "capabilities", "server_info"}
    assert [name for name in public if name not in guide and name not in told_elsewhere] == []


def test_there_is_an_example_of_a_server_in_the_process() -> None:
    """R444: tools, a server object of the `mcp` package, and a raw handler, as code that runs."""
    guide = "docs/howto/tools.md"
    for heading, word in {
        "A function": "ToolServer(",
        "An MCP server in your process": "MCPServer(",
        "A raw handler": "McpResponse(",
    }.items():
        shown = section(guide, heading)
        assert missing(shown, "```python", "mcp_servers=", word) == []


def test_sending_prompts_and_wiring_hooks_have_their_sections() -> None:
    """R446: `send_user_message`, and how hooks are registered."""
    assert missing(section("docs/howto/sessions.md", "Send a prompt"), "send_user_message") == []
    short = section("docs/howto/hooks.md", "The short form")
    long = section("docs/howto/hooks.md", "The long form")
    assert missing(short, "on_pre_tool_use=", "```python") == []
    assert missing(long, "hooks={", "bridle.Hook(", "```python") == []


def test_matchers_rich_permissions_and_their_options_are_documented() -> None:
    """R447: matchers, every answer to a permission, every update of the rules."""
    matchers = section("docs/howto/hooks.md", "Matchers")
    assert missing(matchers, '"*"', "regular expression", "Write|Edit") == []
    answers = section("docs/howto/permissions.md", "Answers")
    assert missing(answers, "Allow()", "AllowOnce()", "AllowAll()", "Edit(", "Deny(") == []
    rules = section("docs/howto/permissions.md", "Change the rules")
    updates = ["AddRules", "ReplaceRules", "RemoveRules", "SetMode", "AddDirectories"]
    assert missing(rules, *updates, "RemoveDirectories", "destination") == []
    timeouts = section("docs/howto/timeouts.md", "All timeouts")
    options = [*bridle.SdkOptions.fields, *bridle.BidirOptions.fields]
    assert missing(timeouts, *(name for name in options if "timeout" in name)) == []


def test_new_kinds_of_blocks_have_a_migration_note() -> None:
    """R448: what to expect when a new kind or field comes, as code that runs."""
    note = section("docs/howto/migrating.md", "New kinds of blocks and messages")
    assert missing(note, "UnknownBlock", "case _:", "ThinkingBlock.signature", ".raw") == []


def test_the_policy_shown_is_one_and_decides_as_the_page_says() -> None:
    (shown,) = [one for one in read_blocks(DOCS / "howto/command.md") if one.title == "rules.toml"]
    policy = parse_policy(shown.code, shown.title)
    calls = [("Bash", {"command": "git diff"}), ("Write", {}), ("Bash", {"command": "rm x"})]
    assert [policy.decide(*call).decision for call in calls] == ["allow", "ask", "deny"]


def test_the_guide_names_the_programs_that_may_have_wildcards() -> None:
    programs = READERS | OPERAND_READERS | GIT_READERS | URL_READERS
    guide = page("docs/howto/command.md")
    assert missing(guide, *(f"`{name}`" for name in sorted(programs))) == []


def test_every_error_is_explained_where_it_can_be_looked_up() -> None:
    """R397: each class has a docstring and an entry in the reference."""
    errors = page("docs/reference/errors.md")
    raised = [name for name in bridle.errors.__all__ if name != "ProcessInfo"]
    paths = [public_path("bridle.errors", name) for name in raised]
    assert missing(errors, *(f"::: {path}\n" for path in paths)) == []
    assert [name for name in raised if not getattr(bridle.errors, name).__doc__] == []


@pytest.mark.parametrize(
    "path", [one.relative_to(REPOSITORY).as_posix() for one in sorted(DOCS.rglob("*.md"))]
)
def test_a_page_begins_with_what_the_reader_will_be_able_to_do(path: str) -> None:
    if path.startswith(STARTS) or path == "docs/index.md":
        return
    lines = [line for line in page(path).splitlines() if line.strip()]
    assert lines[0].startswith("# ")
    openings = "On this page you |After this page you |Look up |In fifteen minutes you "
    assert re.match(openings, lines[1]), lines[1]


# ---------------------------------------------------------------- notes on each API


def coroutines() -> Iterator[tuple[str, str]]:
    """Every public coroutine, with all that its own docstring and that of its class say."""
    for name in bridle.__all__:
        value = getattr(bridle, name)
        if inspect.iscoroutinefunction(value):
            yield name, value.__doc__ or ""
        elif inspect.isclass(value):
            for member, function in inspect.getmembers(value, inspect.iscoroutinefunction):
                if not member.startswith("_"):
                    said = f"{value.__doc__}\n{function.__doc__}"
                    yield f"{name}.{member}", said


def test_every_coroutine_says_what_cancelling_it_does() -> None:
    """R027 and R449: each public coroutine, or its class, says what a cancellation means."""
    assert [name for name, said in coroutines() if "ancel" not in said] == []


def test_whatever_has_a_timeout_says_what_it_means() -> None:
    """R027 and R449: every function with a `timeout`, or its class, speaks of time."""
    silent = []
    for name in bridle.__all__:
        value = getattr(bridle, name)
        members = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
        for member, function in members:
            takes = "timeout" in inspect.signature(function).parameters
            said = f"{value.__doc__} {function.__doc__} {function.__init__.__doc__}"
            if takes and not member.startswith("_") and not re.search("imeout|seconds", said):
                silent.append(f"{name}.{member}")
    assert silent == []


@pytest.mark.parametrize(
    "name", ["Session", "QueryStream", "Subscription", "start_session", "run", "query"]
)
def test_whatever_lives_says_how_it_ends_and_who_ends_it(name: str) -> None:
    """R027 and R449: ownership and lifecycle, on the asynchronous door."""
    said = inspect.getdoc(getattr(bridle, name)) or ""
    assert re.search(r"\b(ends?|over|shuts? down|shuts it down|dropped)\b", said), said


def test_the_blocking_door_says_who_owns_what_and_what_ctrl_c_does() -> None:
    """R449: ownership, blocking, threads, interruption, forks and the exit, in one place."""
    said = inspect.getdoc(bridle.sync) or ""
    words = ["Blocking:", "Threads:", "Callbacks:", "Ctrl-C:", "Forks:", "Exit:"]
    assert missing(said, *words) == []
