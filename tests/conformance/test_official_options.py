"""The same options mean the same to the CLI, whether Bridle or the official SDK passes them.

Generated sets of options start a recording CLI through both. What it recorded is brought into one
form: flags and fields of initialize by name, values parsed. `SPELLINGS` lists the channels that the
CLI treats alike (`tests/real/test_official_spellings.py` shows that it does), `TOLERATED` every
other difference, with its reason.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import claude_agent_sdk as official
import pytest
from tests.support.option_sets import BETAS, OptionSet, option_set
from tests.support.recording_cli import Recorded, RecordingCli

import bridle
from bridle import BidirOptions, CliOptions

SETS = 300
AT_ONCE = 4

INHERITED = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CODE_SESSION_ID": "00000000-0000-4000-8000-000000000009",
    "CLAUDE_CODE_CHILD_SESSION": "1",
    "CLAUDE_CODE_SESSION_ATTENDED": "1",
    "CLAUDE_PID": "1",
    "CLAUDE_EFFORT": "low",
    "CLAUDE_CODE_SIMPLE": "1",
    "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "1",
    "CLAUDE_AGENT_SDK_CLIENT_APP": "outer/1.0",  # otherwise the official SDK guesses one
    "INHERITED": "yes",
}
"""Variables of the process that starts both, such as a shell inside another session."""

NOT_COMPARED = {
    "cli_path": "names the recording CLI",
    "debug_stderr": "stays in the official SDK",
    "load_timeout_ms": "stays in the SDK",
    "max_buffer_size": "stays in the SDK",
    "session_store": "an object; tests/real/test_stores.py shows its effect",
    "session_store_flush": "not an option of Bridle",
    "stderr": "stays in the SDK",
    "user": "Bridle starts the CLI as that user, which only root may do",
    "verbatim_prompts": "a field of each prompt; tests/real/test_options.py shows its effect",
}
"""Options of the official SDK that no set has, with the reason."""


# ---------------------------------------------------------------- running both


async def start_ours(options: OptionSet, cli: RecordingCli) -> None:
    """Start the CLI through Bridle and send one prompt."""
    given = CliOptions(cli_path=cli.path, **options.cli)
    if not options.is_session:
        async for _ in bridle.query(options.prompt, given):
            pass
        return
    async with bridle.start_session(given, bidir=BidirOptions(**options.bidir)) as session:
        _turn = await session.send_user_message(options.prompt)
        await session.ping()  # the CLI has read everything before


async def start_theirs(options: OptionSet, cli: RecordingCli) -> None:
    """Start the CLI through the official SDK and send one prompt."""
    given = official.ClaudeAgentOptions(cli_path=cli.path, **options.theirs)
    if not options.is_session:
        async for _ in official.query(prompt=options.prompt, options=given):
            pass
        return
    async with official.ClaudeSDKClient(given) as client:
        await client.query(options.prompt)
        await client.get_mcp_status()  # the CLI has read everything before


# ---------------------------------------------------------------- one form

SWITCHES = {
    "--brief",
    "--continue",
    "--fork-session",
    "--include-hook-events",
    "--include-partial-messages",
    "--replay-user-messages",
    "--strict-mcp-config",
    "--verbose",
}
"""Flags without a value. Every other flag takes the next argument, whatever it looks like."""

RULE_LISTS = {"--allowedTools", "--disallowedTools"}
LISTS = {"--add-dir", "--betas", "--plugin-dir"}
DOCUMENTS = {"--settings", "--mcp-config"}

SPELLINGS = {
    "--system-prompt": "systemPrompt",
    "--append-system-prompt": "appendSystemPrompt",
    "--json-schema": "jsonSchema",
}
"""Flags and fields of initialize that are the same to the CLI.

Bridle uses the field: arguments are visible to every user of the machine.
"""


def arguments_of(recorded: Recorded) -> Iterator[tuple[str, str | bool]]:
    """Yield each flag with its value, as the CLI reads them."""
    words = iter(recorded.arguments)
    for word in words:
        name, equals, value = word.partition("=")
        assert name.startswith("--"), recorded.arguments
        if equals:
            yield name, value
        else:
            yield name, True if name in SWITCHES else next(words)


def meaning(recorded: Recorded) -> dict[str, Any]:
    """Return what the CLI is told, by name."""
    told: dict[str, Any] = {"cwd": recorded.cwd}
    for name, value in arguments_of(recorded):
        if name in RULE_LISTS:
            told.setdefault(name, set()).update(re.findall(r"(?:\([^)]*\)|[^,(])+", str(value)))
        elif name in LISTS:
            told.setdefault(name, []).append(value)
        elif name in DOCUMENTS:
            told[name] = recorded.documents.get(name) or json.loads(str(value))
        else:
            assert name not in told, f"{name} is given twice"
            told[name] = value
    for flag, field in SPELLINGS.items():
        if flag in told:
            value = told.pop(flag)
            told[f"initialize.{field}"] = json.loads(value) if field == "jsonSchema" else value
    [greeting] = [one for one in recorded.requests if one["subtype"] == "initialize"]
    for field, value in greeting.items():
        if value is not None and field != "subtype":
            told[f"initialize.{field}"] = value
    _spread_servers(told)
    _spread_hooks(told)
    told |= _spread("settings", told.pop("--settings", {}))
    [prompt] = recorded.prompts
    told |= _spread("prompt", prompt)
    return told | {f"env.{name}": value for name, value in recorded.environ.items()}


def _spread(name: str, value: Any) -> dict[str, Any]:
    """Return the members of an object, at any depth, each under its own name."""
    if not isinstance(value, dict):
        return {name: value}
    members = [_spread(f"{name}.{key}", item) for key, item in value.items()]
    return {key: item for part in members for key, item in part.items()}


def _spread_servers(told: dict[str, Any]) -> None:
    """Separate in-process servers from others: the CLI takes them from either place."""
    configured = told.pop("--mcp-config", {"mcpServers": {}})["mcpServers"]
    inside = {name for name, config in configured.items() if config.get("type") == "sdk"}
    inside.update(told.pop("initialize.sdkMcpServers", []))
    for name in configured.keys() - inside:
        told[f"server.{name}"] = configured[name]
    if inside:
        told["in-process servers"] = inside


def _spread_hooks(told: dict[str, Any]) -> None:
    for event, matchers in told.pop("initialize.hooks", {}).items():
        [matcher] = matchers
        assert len(matcher.pop("hookCallbackIds")) == 1
        told[f"hook.{event}"] = True
        told |= _spread(f"hook.{event}", matcher)


# ---------------------------------------------------------------- the differences

ABSENT, ANY = "(absent)", "(any)"


class Tolerated(NamedTuple):
    """A difference that is no mistake."""

    name: str  # may have wildcards
    ours: object
    theirs: object
    reason: str


TOLERATED = [
    Tolerated(
        "--replay-user-messages", True, ABSENT, "Older CLIs name the prompts of a turn only so."
    ),
    Tolerated(
        "initialize.sdkMcpServerManifests",
        ANY,
        ABSENT,
        "Bridle sends the tool lists of its servers at the start, to save their handshakes.",
    ),
    Tolerated("--session-id", ANY, ABSENT, "A session of Bridle knows its id from the start."),
    Tolerated(
        "--permission-prompt-tool",
        "stdio",
        ABSENT,
        "A session of Bridle answers permission requests, with a denial if it has no callback.",
    ),
    Tolerated(
        "--permission-mode",
        "default",
        ABSENT,
        "With a permission callback, the mode of a settings file must not switch it off.",
    ),
    Tolerated(
        "settings.env.CLAUDE_CODE_SIMPLE",
        "0",
        ABSENT,
        "With hooks, the settings of a user or project must not switch them off.",
    ),
    Tolerated(
        "--betas",
        BETAS,
        [",".join(BETAS)],
        "The CLI does not split them: what the official SDK passes is one unknown name.",
    ),
    Tolerated(
        "hook.PostToolBatch*", ANY, ABSENT, "CLI 2.1.197 ends a turn there for PostToolUse hooks."
    ),
    Tolerated("hook.*.matcher", ANY, ANY, "Bridle compares matchers itself."),
    Tolerated("hook.*.timeout", ANY, ABSENT, "Bridle has its own timeout, which is shorter."),
    Tolerated("hook.*.onFailure", "block", ABSENT, "If Bridle cannot answer, gates stay closed."),
    Tolerated("prompt.uuid", ANY, ABSENT, "Bridle finds the messages of a turn by its prompt."),
    Tolerated("prompt.session_id", ANY, ANY, "The CLI ignores it."),
    Tolerated("env.BRIDLE_SESSION_MARK", ANY, ABSENT, "It finds the processes of the session."),
    Tolerated("env.CLAUDE_AGENT_SDK_VERSION", ABSENT, ANY, "The version of the official SDK."),
    Tolerated(
        "env.CLAUDE_CODE_SDK_READS_SESSION_STATE",
        ABSENT,
        "1",
        "The official SDK needs messages about the state to know when a run ends.",
    ),
    *(
        Tolerated(f"env.{name}", ABSENT, ANY, "It describes another session, not this one.")
        for name in INHERITED
        if name.startswith(("CLAUDE_CODE_SESSION", "CLAUDE_CODE_CHILD", "CLAUDE_PID", "CLAUDE_EFF"))
    ),
    Tolerated("env.CLAUDE_CODE_SIMPLE", ABSENT, "1", "It makes the CLI skip hooks."),
    Tolerated(
        "env.CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING",
        ABSENT,
        "1",
        "It is an option, so an inherited value must not decide.",
    ),
]


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs: the value of both sides, by name."""
    pairs = {name: (ours.get(name, ABSENT), theirs.get(name, ABSENT)) for name in {*ours, *theirs}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def tolerated(name: str, pair: tuple[Any, Any]) -> Tolerated | None:
    """Return the row of the table that this difference belongs to."""
    for row in TOLERATED:
        expected = (row.ours, row.theirs)
        matches = (
            want == got or (want == ANY and got != ABSENT)
            for want, got in zip(expected, pair, strict=True)
        )
        if fnmatchcase(name, row.name) and all(matches):
            return row
    return None


async def compare(seed: int, place: Path) -> tuple[OptionSet, dict[str, tuple[Any, Any]]]:
    """Start both with one set of options. Return what differs in what the CLI is told."""
    options = option_set(seed, place)
    sides = [RecordingCli(place / f"{seed}-{side}") for side in ("ours", "theirs")]
    await start_ours(options, sides[0])
    await start_theirs(options, sides[1])
    ours, theirs = (meaning(cli.recorded()) for cli in sides)
    return options, differences(ours, theirs)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that options name."""
    for name, value in INHERITED.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "prompt.txt").write_text("Be brief.")
    (tmp_path / "servers.json").write_text('{"mcpServers": {"files": {"command": "serve"}}}')
    (tmp_path / "settings.json").write_text('{"permissions": {"allow": ["Read"]}}')
    for name in "ab":
        (tmp_path / name).mkdir()
    return tmp_path


async def compare_all(place: Path) -> tuple[dict[str, Any], set[str]]:
    """Compare every set. Return the differences without a reason, and the rows used."""
    slots = asyncio.Semaphore(AT_ONCE)
    unexplained: dict[str, Any] = {}
    used: set[str] = set()

    async def one(seed: int) -> None:
        async with slots:
            options, found = await compare(seed, place)
        for name, pair in found.items():
            if row := tolerated(name, pair):
                used.add(row.name)
            else:
                unexplained.setdefault(name, (seed, options.facets, pair))

    async with asyncio.TaskGroup() as group:
        for seed in range(SETS):
            group.create_task(one(seed))
    return unexplained, used


@pytest.mark.longer
def test_the_same_options_mean_the_same_to_the_cli(place: Path) -> None:
    with warnings.catch_warnings():
        # The official SDK warns about rules that allow what its callback would be asked.
        warnings.simplefilter("ignore", official.CanUseToolShadowedWarning)
        unexplained, used = asyncio.run(compare_all(place))
    assert unexplained == {}
    assert [row.name for row in TOLERATED if row.name not in used] == []


def test_every_option_of_the_official_sdk_is_compared_or_listed(place: Path) -> None:
    options = {field.name for field in dataclasses.fields(official.ClaudeAgentOptions)}
    chosen = {name for seed in range(SETS) for name in option_set(seed, place).theirs}
    assert chosen | set(NOT_COMPARED) == options
    assert chosen.isdisjoint(NOT_COMPARED)
