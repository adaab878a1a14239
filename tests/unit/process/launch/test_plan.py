"""From options to a process: what every row becomes, and what no value can do."""

from __future__ import annotations

import contextlib
import re
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle._process.launch.plan import (
    Launch,
    anchored_settings,
    file_to_read,
    named_documents,
    named_files,
    plan_query,
    plan_session,
    redact,
    secrets,
)
from bridle.errors import OptionsError
from bridle.options import (
    AgentConfig,
    BidirOptions,
    CliOptions,
    SdkOptions,
    managed_flags,
)
from bridle.permissions import Cancel
from bridle.tools import ToolServer, tool

OURS = "00000000-0000-4000-8000-000000000001"
THEIRS = "00000000-0000-4000-8000-000000000002"
QUERY = ("--output-format=stream-json", "--input-format=stream-json", "--verbose")
SESSION = (*QUERY, "--replay-user-messages")
STDIO = "--permission-prompt-tool=stdio"
AGENT = AgentConfig(
    name="rev", description="d", prompt="p", disallowed_tools=["Bash"], mcp_servers=[{"x": {}}]
)


def session(
    cli: CliOptions | None = None, bidir: BidirOptions | None = None, **rest: Any
) -> Launch:
    return plan_session(
        cli or CliOptions(), SdkOptions(), bidir or BidirOptions(), session_id=OURS, **rest
    )


def query(cli: CliOptions | None = None) -> Launch:
    return plan_query(cli or CliOptions(), SdkOptions())


def flags(**options: Any) -> tuple[str, ...]:
    """What a query with these options has on its command line beyond the usual."""
    argv = query(CliOptions(**options)).argv
    assert argv[: len(QUERY)] == QUERY
    return argv[len(QUERY) :]


def answer(_: object) -> Any:
    return None


# ---------------------------------------------------------------- the two doors


@pytest.mark.requirement("S065")
def test_a_session_speaks_json_both_ways_and_asks_us_for_permission() -> None:
    """R108, R109, R201: and has an id of our choosing from the start."""
    launch = session()
    assert launch.argv == (*SESSION, STDIO, f"--session-id={OURS}")
    assert launch.session_id == OURS
    assert launch.initialize == {}
    assert launch.files == ()


def test_a_query_has_no_initialize_fields_and_no_session_id() -> None:
    """The prompt travels on stdin, so its input is a stream as well."""
    launch = query()
    assert launch.argv == QUERY
    assert launch.session_id is None
    assert launch.initialize == {}


@pytest.mark.parametrize(
    ("options", "arguments", "known_id"),
    [
        ({"session_id": THEIRS}, {f"--session-id={THEIRS}"}, THEIRS),
        ({"resume_session_id": THEIRS}, {f"--resume={THEIRS}"}, THEIRS),
        ({"resume_session_id": "my title"}, {"--resume=my title"}, None),
        ({"resume_session_id": f"/x/{THEIRS}.jsonl"}, {f"--resume=/x/{THEIRS}.jsonl"}, None),
        ({"continue_session": True}, {"--continue"}, None),
        (
            {"resume_session_id": THEIRS, "fork_session": True},
            {f"--resume={THEIRS}", "--fork-session", f"--session-id={OURS}"},
            OURS,
        ),
        (
            {"continue_session": True, "fork_session": True},
            {"--continue", "--fork-session", f"--session-id={OURS}"},
            OURS,
        ),
    ],
)
@pytest.mark.requirement("S045")
def test_a_session_has_a_new_id_unless_it_resumes(
    options: dict[str, Any], arguments: set[str], known_id: str | None
) -> None:
    """R111, C14: the CLI refuses an id beside a plain resume, and a fork is a bare flag."""
    launch = session(CliOptions(**options))
    assert set(launch.argv) - {*SESSION, STDIO} == arguments
    assert launch.session_id == known_id


def test_a_forked_query_does_not_know_its_id() -> None:
    cli = CliOptions(resume_session_id=THEIRS, fork_session=True)
    assert query(cli).session_id is None
    assert query(CliOptions(resume_session_id=THEIRS)).session_id == THEIRS


def test_another_permission_tool_takes_the_place_of_ours() -> None:
    """R049, C14."""
    launch = session(CliOptions(permission_prompt_tool_name="mcp__a__b"))
    assert "--permission-prompt-tool=mcp__a__b" in launch.argv
    assert STDIO not in launch.argv


@pytest.mark.requirement("S057")
def test_a_session_announces_hooks_and_servers_and_a_query_cannot() -> None:
    """R185, R329, C34: by the names the CLI reads."""
    hooks = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["hook_0"]}]}
    launch = session(bidir=BidirOptions(mcp_servers={"b": answer, "a": answer}), hooks=hooks)
    assert launch.initialize == {"hooks": hooks, "sdkMcpServers": ["b", "a"]}


def test_manifests_are_sent_beside_the_names_of_the_servers() -> None:
    manifests: dict[str, object] = {"b": {"initializeResult": {}, "toolsListResult": {"tools": []}}}
    servers = BidirOptions(mcp_servers={"b": ToolServer([]), "a": answer})
    assert session(bidir=servers, manifests=manifests).initialize == {
        "sdkMcpServers": ["b", "a"],
        "sdkMcpServerManifests": manifests,
    }


def test_a_session_without_hooks_and_servers_announces_neither() -> None:
    """C35."""
    assert session(hooks={}).initialize == {}
    assert session(bidir=BidirOptions(mcp_servers={}), manifests={}).initialize == {}


@pytest.mark.parametrize(
    "server",
    [
        {"type": "stdio", "command": "x", "args": ["-y"]},
        {"type": "sse", "url": "https://example.com/sse"},
        {"type": "http", "url": "https://example.com/mcp", "headers": {"A": "b"}},
    ],
    ids=lambda server: server["type"],
)
@pytest.mark.requirement("S072")
def test_an_mcp_configuration_reaches_the_cli_as_it_is(server: dict[str, object]) -> None:
    """A server of type sdk is an option of its own: `mcp_servers`."""
    config = {"mcpServers": {"mine": server}}
    launch = session(CliOptions(mcp_config=config))
    assert [msgspec.json.decode(file.content) for file in launch.files] == [config]


def test_a_session_that_contradicts_itself_is_not_planned() -> None:
    with pytest.raises(OptionsError, match="permission_prompts"):
        session(CliOptions(permission_prompts="none"), BidirOptions(on_plan=answer))


def test_the_cli_answers_permission_requests_itself_if_it_gets_no_flag() -> None:
    assert "--permission-prompt-tool=stdio" in session().argv
    argv = session(CliOptions(permission_prompts="cli")).argv
    assert [arg for arg in argv if arg.startswith("--permission-prompt")] == []


# ---------------------------------------------------------------- every row

FLAGS: list[Any] = [
    pytest.param("model", "opus", ("--model=opus",), marks=pytest.mark.requirement("R034")),
    pytest.param("fallback_model", "sonnet,haiku", ("--fallback-model=sonnet,haiku",),
                 marks=pytest.mark.requirement("R047", "R126")),
    pytest.param("max_turns", 3, ("--max-turns=3",), marks=pytest.mark.requirement("R035")),
    pytest.param("max_budget_usd", 0.25, ("--max-budget-usd=0.25",),
                 marks=pytest.mark.requirement("R036")),
    ("task_budget", 20000, ("--task-budget=20000",)),
    ("effort", "high", ("--effort=high",)),
    ("thinking", "adaptive", ("--thinking=adaptive",)),
    ("thinking", "disabled", ("--thinking=disabled",)),
    ("thinking", "enabled", ("--thinking=enabled",)),
    ("thinking", {"type": "enabled", "budget_tokens": 2048}, ("--max-thinking-tokens=2048",)),
    ("thinking", {"type": "adaptive", "display": "omitted"},
     ("--thinking=adaptive", "--thinking-display=omitted")),
    pytest.param("max_thinking_tokens", 0, ("--max-thinking-tokens=0",),
                 marks=pytest.mark.requirement("R080", "R121")),
    pytest.param("betas", ["a", "b"], ("--betas=a", "--betas=b"),
                 marks=pytest.mark.requirement("R048", "R126")),
    ("system_prompt_file", "/p", ("--system-prompt-file=/p",)),
    ("agent", "rev", ("--agent=rev",)),
    pytest.param("tools", [], ("--tools=",), marks=pytest.mark.requirement("R055", "R125")),
    pytest.param("tools", ["Bash", "Read"], ("--tools=Bash,Read",),
                 marks=pytest.mark.requirement("R055", "R125", "R431")),
    ("tools", "default", ("--tools=default",)),
    pytest.param("allowed_tools", ["Read", "Bash(a, b)"],
                 ("--allowedTools=Read", "--allowedTools=Bash(a, b)"),
                 marks=pytest.mark.requirement("R039")),
    pytest.param("disallowed_tools", ["-p"], ("--disallowedTools=-p",),
                 marks=pytest.mark.requirement("R040")),
    pytest.param("permission_mode", "acceptEdits", ("--permission-mode=acceptEdits",),
                 marks=pytest.mark.requirement("R042", "R192")),
    pytest.param("permission_mode", "bypassPermissions", ("--permission-mode=bypassPermissions",),
                 marks=pytest.mark.requirement("R192")),
    ("permission_mode", "manual", ("--permission-mode=default",)),
    pytest.param("permission_mode", "brandNew", ("--permission-mode=brandNew",),
                 marks=pytest.mark.requirement("C36")),
    pytest.param("permission_prompt_tool_name", "mcp__a__b",
                 ("--permission-prompt-tool=mcp__a__b",),
                 marks=pytest.mark.requirement("R126")),
    ("permission_prompts", "none", ("--permission-prompts=none",)),
    ("allow_dangerously_skip_permissions", True, ("--allow-dangerously-skip-permissions",)),
    pytest.param("mcp_config", "-odd.json", ("--mcp-config=-odd.json",),
                 marks=pytest.mark.requirement("R041")),
    ("strict_mcp_config", True, ("--strict-mcp-config",)),
    ("session_id", THEIRS, (f"--session-id={THEIRS}",)),
    pytest.param("resume_session_id", "-x", ("--resume=-x",),
                 marks=pytest.mark.requirement("R043")),
    pytest.param("continue_session", False, (), marks=pytest.mark.requirement("R044")),
    pytest.param("continue_session", True, ("--continue",), marks=pytest.mark.requirement("R044")),
    ("no_session_persistence", True, ("--no-session-persistence",)),
    pytest.param("include_partial_messages", True, ("--include-partial-messages",),
                 marks=pytest.mark.requirement("R074", "R110")),
    pytest.param("include_partial_messages", False, (), marks=pytest.mark.requirement("R110")),
    ("include_hook_events", True, ("--include-hook-events",)),
    ("session_mirror", True, ("--session-mirror",)),
    ("debug", True, ("--debug",)),
    ("debug", "api", ("--debug=api",)),
    ("debug_file", "/d", ("--debug-file=/d",)),
    pytest.param("add_dirs", ["/a", "-b"], ("--add-dir=/a", "--add-dir=-b"),
                 marks=pytest.mark.requirement("R051", "R126")),
    ("add_dirs", [], ()),
    ("project_config_root", "/r", ("--project-config-root=/r",)),
    pytest.param("settings", "/s.json", ("--settings=/s.json",),
                 marks=pytest.mark.requirement("R126")),
    ("setting_sources", [], ("--setting-sources=",)),
    pytest.param("setting_sources", ["user", "local"], ("--setting-sources=user,local",),
                 marks=pytest.mark.requirement("R077", "R119")),
    pytest.param("plugins", ["/a", {"path": "/b", "skip_mcp_discovery": True}],
                 ("--plugin-dir=/a", "--plugin-dir-no-mcp=/b"),
                 marks=pytest.mark.requirement("R079", "R120")),
    ("plugins", [], ()),
    pytest.param("extra_args", ["--bare", "--name", "update", "--k=v", "--file", "a", "b", "--x"],
                 ("--bare", "--name=update", "--k=v", "--file=a", "--file=b", "--x"),
                 marks=pytest.mark.requirement("R053", "R126")),
]  # fmt: skip
# These say something about another option and cannot stand alone.
DEPENDENT: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("fork_session", {"resume_session_id": "x", "fork_session": True},
     ("--resume=x", "--fork-session")),
    ("resume_session_at", {"resume_session_id": "x", "resume_session_at": "m"},
     ("--resume=x", "--resume-session-at=m")),
    ("resume_drops_turn",
     {"resume_session_id": "x", "resume_session_at": "m", "resume_drops_turn": "n"},
     ("--resume=x", "--resume-session-at=m", "--resume-drops-turn=n")),
]  # fmt: skip
INITIALIZE: list[Any] = [
    pytest.param("system_prompt", "", {"systemPrompt": ""}, marks=pytest.mark.requirement("R037")),
    ("system_prompt", ["a", "b"], {"systemPrompt": ["a", "b"]}),
    pytest.param("append_system_prompt", "x", {"appendSystemPrompt": "x"},
                 marks=pytest.mark.requirement("R038")),
    ("exclude_dynamic_sections", False, {"excludeDynamicSections": False}),
    ("system_prompt_snapshot", True, {"systemPromptSnapshot": True}),
    ("plan_mode_instructions", "x", {"planModeInstructions": "x"}),
    pytest.param("json_schema", {"type": "object"}, {"jsonSchema": {"type": "object"}},
                 marks=pytest.mark.requirement("R054")),
    pytest.param("agents", [AGENT], {"agents": {"rev": {
        "description": "d", "prompt": "p", "disallowedTools": ["Bash"], "mcpServers": [{"x": {}}],
    }}}, marks=pytest.mark.requirement("R076", "C42")),
    pytest.param("agents", [], {}, marks=pytest.mark.requirement("R114")),
    ("agents", {}, {}),
    ("skills", [], {"skills": []}),
    ("skills", ["pdf"], {"skills": ["pdf"]}),
    ("skills", "all", {}),
    ("agents", {"a": {"description": "d", "prompt": "p", "omit_claude_md": True, "colour": "red"}},
     {"agents": {"a": {"description": "d", "prompt": "p", "omitClaudeMd": True,
                       "colour": "red"}}}),
    ("per_task_stop", True, {"perTaskStopAffordance": True}),
    ("extra_initialize", {"newField": {"a": [1]}}, {"newField": {"a": [1]}}),
    ("tool_aliases", {"Bash": "mcp__x__sh"}, {"toolAliases": {"Bash": "mcp__x__sh"}}),
    ("title", "x", {"title": "x"}),
    ("forward_subagent_text", True, {"forwardSubagentText": True}),
    ("forward_subagent_text", False, {}),
    ("prompt_suggestions", True, {"promptSuggestions": True}),
    ("agent_progress_summaries", True, {"agentProgressSummaries": True}),
]  # fmt: skip
# Each has a test of its own.
ELSEWHERE = {
    "cli_path", "cwd", "env", "sandbox", "client_app", "user", "verbatim_prompts", "tool_config",
    "plugin_delivery", "managed_settings", "mcp_config_delivery",
}  # fmt: skip


@pytest.mark.parametrize(("option", "value", "arguments"), FLAGS)
def test_an_option_becomes_its_flag(option: str, value: Any, arguments: tuple[str, ...]) -> None:
    """C14: one element per argument, whatever it begins with."""
    assert flags(**{option: value}) == arguments
    assert query(CliOptions(**{option: value})).initialize == {}


@pytest.mark.parametrize(("option", "given", "arguments"), DEPENDENT)
def test_a_dependent_option_becomes_its_flag(
    option: str, given: dict[str, Any], arguments: tuple[str, ...]
) -> None:
    """R075, C14."""
    assert option in given
    assert flags(**given) == arguments


@pytest.mark.parametrize(("option", "value", "fields"), INITIALIZE)
def test_an_option_becomes_a_field_of_the_handshake(
    option: str, value: Any, fields: dict[str, Any]
) -> None:
    """C14: texts, agents and schemas are never on the command line."""
    launch = query(CliOptions(**{option: value}))
    assert launch.initialize == fields
    assert launch.argv == QUERY
    assert msgspec.json.decode(msgspec.json.encode(launch.initialize)) == fields


@pytest.mark.parametrize("count", [0, 3, 4])
def test_the_number_of_agents_makes_no_difference(count: int) -> None:
    """R114, R429, C14: one channel for few and many."""
    agents = [AGENT.replace(name=f"a{number}") for number in range(count)]
    sent: Any = session(CliOptions(agents=agents)).initialize.get("agents", {})
    assert list(sent) == [agent.name for agent in agents]


@pytest.mark.requirement("S062")
def test_no_row_of_the_table_is_untested() -> None:
    """R429, C39: a new option needs a line above."""
    rows = (*FLAGS, *DEPENDENT, *INITIALIZE)
    tested = {getattr(row, "values", row)[0] for row in rows}
    assert tested | ELSEWHERE == CliOptions.fields.keys()


def test_the_user_is_a_parameter_of_the_process() -> None:
    launch = session(CliOptions(user="worker"))
    assert launch.user == "worker"
    assert session(CliOptions()).user is None


def test_system_prompts_need_a_newer_cli() -> None:
    assert query(CliOptions(system_prompt="Rhyme.")).needs == {"system_prompt": "2.1.197"}
    assert query(CliOptions()).needs == {}


@pytest.mark.parametrize(
    ("config", "variables"),
    [
        ({"ask_user_question": {"preview_format": "html"}},
         {"CLAUDE_CODE_QUESTION_PREVIEW_FORMAT": "html"}),
        ({"ask_user_question": {}}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_tool_config_becomes_a_variable(config: Any, variables: dict[str, str]) -> None:
    launch = query(CliOptions(tool_config=config))
    own = query(CliOptions()).env
    assert {name: value for name, value in launch.env.items() if name not in own} == variables


def test_plugins_can_travel_in_the_handshake() -> None:
    plugins: Any = ["/a", {"path": "/b", "skip_mcp_discovery": True}]
    launch = query(CliOptions(plugins=plugins, plugin_delivery="initialize"))
    assert launch.argv == (*QUERY, "--await-initialize")
    assert launch.initialize == {
        "plugins": [
            {"type": "local", "path": "/a"},
            {"type": "local", "path": "/b", "skipMcpDiscovery": True},
        ]
    }
    assert query(CliOptions(plugin_delivery="initialize")).argv == QUERY
    assert flags(plugins=["/a"], plugin_delivery="argv") == ("--plugin-dir=/a",)


def test_mcp_servers_can_travel_in_the_handshake() -> None:
    servers = {"db": {"command": "db", "env": {"API_TOKEN": "hush-hush-hush"}}}
    cli = CliOptions(mcp_config={"mcpServers": servers}, mcp_config_delivery="initialize")
    launch = query(cli)
    assert (launch.argv, launch.files) == ((*QUERY, "--await-initialize"), ())
    assert launch.initialize == {"mcpServers": servers}
    assert "hush-hush-hush" in list(secrets(launch))
    in_file = query(cli.replace(mcp_config_delivery="file"))
    assert (in_file.argv[-1], in_file.initialize) == ("--mcp-config=\0--mcp-config", {})


def test_a_path_of_mcp_servers_stays_a_flag() -> None:
    assert query(CliOptions(mcp_config_delivery="initialize")).argv == QUERY
    given = {"mcp_config": "/m.json", "mcp_config_delivery": "initialize"}
    assert flags(**given) == ("--mcp-config=/m.json",)


def test_managed_settings_travel_in_the_handshake() -> None:
    """Truth 7: the CLI's other flag for them takes the settings themselves."""
    managed = {"permissions": {"deny": ["Bash"]}, "env": {"API_TOKEN": "hush-hush-hush"}}
    launch = query(CliOptions(managed_settings=managed, plugins=["/a"]))
    assert launch.argv == (
        *QUERY,
        "--await-initialize",
        "--managed-settings-in-initialize",
        "--plugin-dir=/a",
    )
    assert launch.initialize == {"managedSettings": managed}
    assert "hush-hush-hush" in list(secrets(launch))


def test_an_unknown_type_of_thinking_keeps_its_budget() -> None:
    assert flags(thinking={"type": "deep", "budget_tokens": 5}) == (
        "--max-thinking-tokens=5",
        "--thinking=deep",
    )


def test_the_kinds_of_dialogs_are_declared() -> None:
    bidir = BidirOptions(on_user_dialog=lambda _: Cancel(), supported_dialog_kinds=["a", "b"])
    launch = session(bidir=bidir)
    assert launch.initialize == {"supportedDialogKinds": ["a", "b"]}


def test_several_options_make_one_command() -> None:
    """R129, C43."""
    launch = session(
        CliOptions(model="opus", include_partial_messages=True, add_dirs=["/a"], extra_args=["--x"])
    )
    assert launch.argv == (
        *SESSION,
        "--model=opus",
        STDIO,
        f"--session-id={OURS}",
        "--include-partial-messages",
        "--add-dir=/a",
        "--x",
    )


# ---------------------------------------------------------------- files


def test_content_goes_into_private_files_and_paths_in_its_place() -> None:
    """R123: what may hold a secret is named on the command line, not shown."""
    cli = CliOptions(
        mcp_config={"mcpServers": {"x": {"command": "x", "env": {"KEY": "secret"}}}},
        settings='{"apiKeyHelper": "secret"}',
    )
    launch = query(cli)
    assert [(file.suffix, msgspec.json.decode(file.content)) for file in launch.files] == [
        (".json", {"mcpServers": {"x": {"command": "x", "env": {"KEY": "secret"}}}}),
        (".json", {"apiKeyHelper": "secret"}),
    ]
    paths = {file.token: f"/tmp/{index}.json" for index, file in enumerate(launch.files)}
    assert launch.arguments(paths) == (
        *QUERY,
        "--mcp-config=/tmp/0.json",
        "--settings=/tmp/1.json",
    )
    assert "secret" not in str(launch.argv)


def test_a_command_without_its_files_cannot_be_run() -> None:
    launch = query(CliOptions(settings={}))
    assert any("\0" in argument for argument in launch.arguments({}))


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        (None, {"sandbox": {"enabled": True}}),
        ({"a": 1}, {"a": 1, "sandbox": {"enabled": True}}),
        ('{"sandbox": {"enabled": false, "network": {}}}', {"sandbox": {"enabled": True}}),
    ],
)
@pytest.mark.requirement("S069")
def test_the_sandbox_is_a_part_of_the_settings(settings: Any, written: object) -> None:
    """R078, R106, R123: it replaces the sandbox that is there."""
    launch = query(CliOptions(settings=settings, sandbox={"enabled": True}))
    assert [msgspec.json.decode(file.content) for file in launch.files] == [written]
    assert launch.arguments({launch.files[0].token: "/f"})[-1] == "--settings=/f"


def test_a_sandbox_beside_a_settings_file_needs_its_content() -> None:
    """C41: whoever may read files is told which one."""
    cli = CliOptions(settings="/s.json", sandbox={"enabled": True})
    assert file_to_read(cli) == "/s.json"
    launch = session(cli, settings_text=b'\xef\xbb\xbf{"a": 1}')
    assert [msgspec.json.decode(file.content) for file in launch.files] == [
        {"a": 1, "sandbox": {"enabled": True}}
    ]
    with pytest.raises(ValueError, match="file_to_read"):
        session(cli)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_a_settings_file_that_is_not_an_object_is_refused(content: bytes) -> None:
    cli = CliOptions(settings="/s.json", sandbox={})
    with pytest.raises(OptionsError, match="settings"):
        plan_query(cli, SdkOptions(), settings_text=content)


@pytest.mark.parametrize(
    "options", [{}, {"settings": "/s"}, {"sandbox": {}}, {"settings": {}, "sandbox": {}}]
)
def test_nothing_needs_to_be_read_otherwise(options: dict[str, Any]) -> None:
    assert file_to_read(CliOptions(**options)) is None


@pytest.mark.parametrize(
    ("cwd", "path", "found"),
    [
        (None, "sub/a.json", "sub/a.json"),
        ("/srv", "sub/a.json", "/srv/sub/a.json"),
        ("/srv/", "~/a.json", "/srv/~/a.json"),
        ("/", "a.json", "/a.json"),
        ("work", "a.json", "work/a.json"),
        ("/srv", "/a.json", "/a.json"),
    ],
)
def test_a_path_counts_from_where_the_cli_works(cwd: str | None, path: str, found: str) -> None:
    """It does for the CLI; whoever looks for the file before, or reads it too, has to agree."""
    cli = CliOptions(cwd=cwd, settings=path, mcp_config=path, system_prompt_file=path)
    fields = ("settings", "mcp_config", "system_prompt_file")
    assert named_files(cli) == dict.fromkeys(fields, found)
    assert file_to_read(cli.replace(sandbox={})) == found
    assert list(named_documents(query(cli)).values()) == [found] * 2


def test_what_is_said_in_full_names_no_file() -> None:
    said = CliOptions(settings=' {"a": 1}', mcp_config={"mcpServers": {}}, system_prompt="Be calm.")
    assert named_files(said) == {}
    assert named_files(CliOptions(debug_file="/to/be/made", plugins=["/p"], add_dirs=["/d"])) == {}


# ---------------------------------------------------------------- environment and directory


def test_the_cli_gets_the_name_of_the_program_that_runs_it() -> None:
    assert query().env == {"CLAUDE_CODE_ENTRYPOINT": "sdk-py"}
    mine = CliOptions(env={"CLAUDE_CODE_ENTRYPOINT": "mine"}, client_app="app/1")
    assert query(mine).env == {
        "CLAUDE_CODE_ENTRYPOINT": "mine",
        "CLAUDE_AGENT_SDK_CLIENT_APP": "app/1",
    }


def test_checkpointing_is_an_environment_variable() -> None:
    """R070, R399, R402, C34: the handshake has no field for it."""
    launch = session(bidir=BidirOptions(file_checkpointing_enabled=True))
    assert launch.env["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] == "true"
    assert launch.initialize == {}
    assert "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING" not in session().env


OUTSIDE = {"PATH": "/bin", "HOME": "/h", "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "x", "A": "0"}


@pytest.mark.parametrize(
    ("inherit", "inherited"),
    [
        (True, {"PATH": "/bin", "HOME": "/h"}),
        (False, {}),
        (["PATH", "MISSING", "CLAUDECODE"], {"PATH": "/bin"}),
        ([], {}),
    ],
)
@pytest.mark.requirement("S121")
def test_the_environment_is_what_is_inherited_under_what_is_set(
    inherit: Any, inherited: dict[str, str]
) -> None:
    """R052, C14: and nothing that belongs to a session around us."""
    launch = plan_query(CliOptions(env={"A": "1"}), SdkOptions(inherit_env=inherit))
    assert launch.environment(OUTSIDE) == {
        **inherited,
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "A": "1",
    }


@pytest.mark.parametrize(
    "variable",
    [
        "CLAUDECODE",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_SESSION_ATTENDED",
        "CLAUDE_PID",
        "CLAUDE_EFFORT",
        "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING",
    ],
)
def test_the_marks_of_an_outer_session_are_not_inherited(variable: str) -> None:
    assert session().environment({variable: "1"}) == {"CLAUDE_CODE_ENTRYPOINT": "sdk-py"}


def test_a_variable_that_switches_hooks_off_is_passed_on_only_by_the_program() -> None:
    variable = {"CLAUDE_CODE_SIMPLE": "1"}
    assert "CLAUDE_CODE_SIMPLE" not in session().environment(variable)
    given = plan_query(CliOptions(env=variable), SdkOptions())
    assert given.environment({})["CLAUDE_CODE_SIMPLE"] == "1"


@pytest.mark.parametrize(
    ("options", "text", "written"),
    [
        ({}, None, {"env": {"CLAUDE_CODE_SIMPLE": "0"}}),
        (
            {"settings": {"a": 1, "env": {"B": "2", "CLAUDE_CODE_SIMPLE": "1"}}},
            None,
            {"a": 1, "env": {"B": "2", "CLAUDE_CODE_SIMPLE": "0"}},
        ),
        ({"settings": '{"env": []}'}, None, {"env": {"CLAUDE_CODE_SIMPLE": "0"}}),
        (
            {"settings": "/s.json", "sandbox": {}},
            b'{"a": 1}',
            {"a": 1, "env": {"CLAUDE_CODE_SIMPLE": "0"}, "sandbox": {}},
        ),
        (
            {"env": {"CLAUDE_CODE_SIMPLE": "1"}},
            None,
            {"env": {"CLAUDE_CODE_SIMPLE": "1"}},
        ),
    ],
)
def test_a_session_with_hooks_overrides_settings_that_switch_them_off(
    options: dict[str, Any], text: bytes | None, written: object
) -> None:
    launch = session(CliOptions(**options), hooks={"Stop": []}, settings_text=text)
    assert [msgspec.json.decode(file.content) for file in launch.files] == [written]
    assert session(CliOptions(env={"A": "1"})).files == ()


def test_hooks_beside_a_settings_file_need_its_content() -> None:
    cli = CliOptions(settings="/s.json")
    assert (file_to_read(cli), file_to_read(cli, hooks={"Stop": []})) == (None, "/s.json")
    with pytest.raises(ValueError, match="file_to_read"):
        session(cli, hooks={"Stop": []})


@pytest.mark.parametrize(
    ("cli", "bidir", "hooks", "mode"),
    [
        (CliOptions(), BidirOptions(on_can_use_tool=answer), None, ["--permission-mode=default"]),
        (CliOptions(), None, {"PermissionRequest": []}, ["--permission-mode=default"]),
        (
            CliOptions(permission_mode="plan"),
            BidirOptions(on_can_use_tool=answer),
            None,
            ["--permission-mode=plan"],
        ),
        (
            CliOptions(settings={"permissions": {"defaultMode": "dontAsk"}}),
            BidirOptions(on_can_use_tool=answer),
            None,
            [],
        ),
        (CliOptions(), None, {"PreToolUse": []}, []),
        (CliOptions(), None, None, []),
    ],
)
def test_a_session_with_a_permission_gate_names_the_mode(
    cli: CliOptions, bidir: BidirOptions | None, hooks: Any, mode: list[str]
) -> None:
    """Otherwise a settings file chooses it, also one in which the gate is never asked."""
    argv = session(cli, bidir, hooks=hooks).argv
    assert [arg for arg in argv if arg.startswith("--permission-mode")] == mode


def test_the_mode_in_the_settings_file_of_the_program_counts() -> None:
    cli, bidir = CliOptions(settings="/s.json"), BidirOptions(on_can_use_tool=answer)
    assert file_to_read(cli, bidir) == "/s.json"
    launch = session(cli, bidir, settings_text=b'{"permissions": {"defaultMode": "plan"}}')
    assert [arg for arg in launch.argv if arg.startswith("--permission-mode")] == []


@tool(ask=True)
def pay() -> None: ...


@tool
def balance() -> None: ...


BANK = BidirOptions(
    mcp_servers={"raw": answer, "bank": ToolServer([pay, balance]), "b2": ToolServer([pay])}
)
RULES = ["mcp__bank__pay", "mcp__b2__pay"]


@pytest.mark.parametrize(
    ("options", "text", "written"),
    [
        ({}, None, {"permissions": {"ask": RULES}}),
        (
            {"settings": {"permissions": {"ask": ["Bash"], "deny": ["Read"]}, "a": 1}},
            None,
            {"permissions": {"ask": ["Bash", *RULES], "deny": ["Read"]}, "a": 1},
        ),
        ({"settings": '{"permissions": []}'}, None, {"permissions": {"ask": RULES}}),
        (
            {"settings": {"permissions": {"ask": "Bash"}}},
            None,
            {"permissions": {"ask": RULES}},
        ),
        (
            {"settings": "/s.json", "sandbox": {}},
            b'{"a": 1}',
            {"a": 1, "permissions": {"ask": RULES}, "sandbox": {}},
        ),
    ],
)
def test_the_settings_tell_the_cli_which_tools_to_ask_about(
    options: dict[str, Any], text: bytes | None, written: object
) -> None:
    launch = session(CliOptions(**options), BANK, settings_text=text)
    assert [msgspec.json.decode(file.content) for file in launch.files] == [written]


def test_rules_and_hooks_share_the_settings() -> None:
    launch = session(bidir=BANK, hooks={"Stop": []})
    assert [msgspec.json.decode(file.content) for file in launch.files] == [
        {"env": {"CLAUDE_CODE_SIMPLE": "0"}, "permissions": {"ask": RULES}}
    ]


def test_without_tools_to_ask_about_the_settings_stay_as_they_are() -> None:
    servers = BidirOptions(mcp_servers={"bank": ToolServer([balance])})
    assert session(bidir=servers).files == ()
    assert file_to_read(CliOptions(settings="/s.json"), servers) is None


def test_rules_beside_a_settings_file_need_its_content() -> None:
    cli = CliOptions(settings="/s.json")
    assert file_to_read(cli, BANK) == "/s.json"
    with pytest.raises(ValueError, match="file_to_read"):
        session(cli, BANK)


def test_rules_of_a_settings_file_keep_their_directory_in_a_copy() -> None:
    rules = ["Read(/secrets/**)", "Read(//etc/**)", "Read(~/x)", "Edit(docs/*)", "Bash", 5]
    text = msgspec.json.encode({"permissions": {"deny": rules, "defaultMode": "plan"}, "a": 1})
    assert msgspec.json.decode(anchored_settings(text, "/srv/app")) == {
        "permissions": {
            "deny": ["Read(//srv/app/secrets/**)", *rules[1:]],
            "defaultMode": "plan",
        },
        "a": 1,
    }


def test_the_process_takes_the_rest() -> None:
    """R045, R046: directory and executable are not arguments."""
    launch = query(CliOptions(cwd="/w", cli_path="/c"))
    assert (launch.argv, launch.cwd) == (QUERY, "/w")


# ---------------------------------------------------------------- what no value can do

ODD = st.sampled_from(
    ["--model", "-p", "--", "-", "", "--dangerously-skip-permissions", "a b", "="]
)
TEXT = ODD | st.text(max_size=20) | st.builds("{}={}".format, ODD, st.text(max_size=5))
TEXTS = TEXT | st.lists(TEXT, max_size=3)
VALUES = TEXTS | st.booleans() | st.integers(0, 9) | st.dictionaries(TEXT, TEXTS, max_size=2)
KNOWN = {
    "--await-initialize",
    *(argument.partition("=")[0] for argument in SESSION),
    *managed_flags(),
}


@given(VALUES)
def test_no_value_becomes_an_argument_of_its_own(value: Any) -> None:
    """Whatever is accepted, every argument is a flag of the table with its value attached."""
    for option in CliOptions.fields.keys() - {"extra_args"}:
        try:
            cli = CliOptions(**{option: value})
        except OptionsError:
            continue
        for argument in session(cli).argv:
            assert argument.partition("=")[0] in KNOWN
            assert not re.search(r"[\r\n]", argument)


def test_the_values_of_that_test_are_accepted_often_enough_to_mean_something() -> None:
    accepted = {option for option in CliOptions.fields if accepts(option)}
    assert len(accepted) > len(CliOptions.fields) / 2


def accepts(option: str) -> bool:
    for value in ("-p", ["--model"], True, 1, {"--": "-"}):
        with contextlib.suppress(OptionsError):
            return bool(CliOptions(**{option: cast("Any", value)}).given())
    return False


@given(st.lists(TEXT | st.from_regex(r"--[a-z]{1,5}(=.{0,3})?", fullmatch=True), max_size=5))
def test_raw_arguments_add_long_flags_that_no_option_sets(args: list[str]) -> None:
    try:
        cli = CliOptions(extra_args=args)
    except OptionsError:
        return
    for argument in query(cli).argv[len(QUERY) :]:
        name = argument.partition("=")[0]
        assert re.fullmatch(r"--[A-Za-z][\w-]*", name)
        assert name not in KNOWN


@given(TEXT)
def test_text_for_the_model_is_never_on_the_command_line(text: str) -> None:
    """Truth 7: prompts, agents and schemas are for the model's eyes."""
    try:
        cli = CliOptions(
            system_prompt=text,
            append_system_prompt=text,
            title=text,
            plan_mode_instructions=text,
            json_schema={"description": text},
            agents=[AgentConfig(name="a", description=text, prompt=text)],
            settings={"x": text},
            sandbox={"x": text},
        )
    except OptionsError:
        return
    assert query(cli).argv == (*QUERY, "--settings=\0--settings")


# ---------------------------------------------------------------- what an error may show


def test_arguments_in_an_error_show_no_secret() -> None:
    launch = session(
        CliOptions(
            model="opus",
            allowed_tools=["Bash(curl -H secret)", "Read"],
            disallowed_tools=["Write(secret)"],
            settings={"a": "secret"},
            resume_session_id=THEIRS,
            extra_args=["--token", "secret", "--other=secret", "--bare"],
        )
    )
    assert redact(launch.argv) == (
        *SESSION,
        "--model=opus",
        "--allowedTools=Bash(...)",
        "--allowedTools=Read",
        "--disallowedTools=Write(...)",
        STDIO,
        f"--resume={THEIRS}",
        "--settings=...",
        "--token=...",
        "--other=...",
        "--bare",
    )


def test_a_stray_argument_is_not_shown_either() -> None:
    assert redact(["secret", "-x", "--unknown"]) == ("...", "...", "--unknown")


# ---------------------------------------------------------------- what a session must not tell


def test_the_secrets_that_the_cli_gets_are_known() -> None:
    launch = session(
        CliOptions(
            model="marker-model",
            env={"ANY": "marker-env", "HOME": "/marker-home"},
            mcp_config={"mcpServers": {"x": {"command": "x", "env": {"A": "marker-mcp"}}}},
            settings={"env": {"B": "marker-settings"}, "apiKeyHelper": "marker-helper"},
            extra_args=["--new", "marker-extra", "--other=marker-other", "--bare"],
            agents={
                "a": {
                    "description": "d",
                    "prompt": "marker-prompt",
                    "mcp_servers": [{"x": {"url": "u", "headers": {"C": "marker-agent"}}}],
                }
            },
        )
    )
    assert set(secrets(launch)) == {
        *("marker-env", "marker-mcp", "marker-settings", "marker-helper"),
        *("marker-extra", "marker-other", "marker-agent"),
    }


def test_the_schema_of_a_tool_is_not_masked() -> None:
    schema = {"properties": {"token": {"description": "The token that the login page showed."}}}
    manifests = {"x": {"toolsListResult": {"tools": [{"name": "x", "inputSchema": schema}]}}}
    assert set(secrets(session(manifests=manifests))) == set()


def test_documents_the_cli_reads_by_itself_are_named() -> None:
    launch = session(CliOptions(settings="/a.json", mcp_config="/b=c.json", model="opus"))
    assert named_documents(launch) == {"--settings": "/a.json", "--mcp-config": "/b=c.json"}
    assert named_documents(session(CliOptions(settings={"a": 1}))) == {}


# ---------------------------------------------------------------- session stores


class Store:
    """Enough of a store for the options."""

    async def append(self, key: object, entries: object) -> None: ...

    async def load(self, key: object) -> None: ...


STORED = SdkOptions(store=cast("Any", Store()))


def stored(**options: Any) -> Launch:
    return plan_session(CliOptions(**options), STORED, BidirOptions(), session_id=OURS)


def test_a_session_with_a_store_reports_what_it_saves() -> None:
    launch = stored()
    assert "--session-mirror" in launch.argv
    assert "--session-mirror" not in session().argv
    assert "--session-mirror" not in launch.without_mirror().argv
    assert len(launch.without_mirror().argv) == len(launch.argv) - 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"no_session_persistence": True}, "no_session_persistence"),
        ({"resume_session_id": "a title"}, "resume_session_id"),
        ({"resume_session_id": f"/tmp/{OURS}.jsonl"}, "resume_session_id"),
    ],
)
def test_a_store_needs_a_saved_session_with_an_id(options: dict[str, Any], field: str) -> None:
    with pytest.raises(OptionsError) as caught:
        stored(**options)
    assert caught.value.field == field


def test_the_id_of_the_transcript_that_the_cli_writes_is_known() -> None:
    assert session().writes_id == OURS
    assert session(CliOptions(resume_session_id=THEIRS)).writes_id == THEIRS
    assert session(CliOptions(resume_session_id=f"/a/{THEIRS}.jsonl")).writes_id == THEIRS
    assert session(CliOptions(resume_session_id="a title")).writes_id is None
    assert session(CliOptions(resume_session_id=THEIRS, fork_session=True)).writes_id == OURS
    assert session(CliOptions(continue_session=True)).writes_id is None
    assert session(CliOptions(no_session_persistence=True)).writes_id is None
    assert query(CliOptions(resume_session_id=THEIRS)).writes_id == THEIRS
    assert query().writes_id is None


@pytest.mark.parametrize(
    "options", [{"resume_session_id": THEIRS}, {"continue_session": True}], ids=str
)
def test_a_conversation_in_a_file_is_resumed(options: dict[str, Any]) -> None:
    launch = stored(**options).resuming(THEIRS, f"/t/{THEIRS}.jsonl", "/t")
    resumed = [arg for arg in launch.argv if arg.startswith(("--resume", "--continue"))]
    assert resumed == [f"--resume=/t/{THEIRS}.jsonl"]
    assert (launch.session_id, launch.writes_id, launch.directory) == (THEIRS, THEIRS, "/t")


def test_a_fork_of_a_conversation_in_a_file_keeps_its_own_id() -> None:
    launch = stored(resume_session_id=THEIRS, fork_session=True)
    launch = launch.resuming(THEIRS, f"/t/{THEIRS}.jsonl", "/t")
    assert (launch.session_id, launch.writes_id) == (OURS, OURS)
    assert {"--fork-session", f"--resume=/t/{THEIRS}.jsonl"} <= set(launch.argv)


# -- processes that were started before their session ----------------------------------------------


def started(cli: CliOptions | None = None, **rest: Any) -> Launch:
    """Return the launch of a process that was started before, with an id of its own."""
    return plan_session(
        cli or CliOptions(), SdkOptions(), BidirOptions(), session_id=THEIRS, **rest
    )


def test_a_session_uses_the_process_of_the_same_options_and_takes_its_id() -> None:
    process = started(CliOptions(model="opus", cwd="/a"))
    launch = session(CliOptions(model="opus", cwd="/a", system_prompt="x")).in_process_of(process)
    assert launch is not None
    assert (launch.argv, launch.session_id, launch.writes_id) == (process.argv, THEIRS, THEIRS)
    assert launch.initialize["systemPrompt"] == "x"


def test_a_process_that_can_be_claimed_works_in_any_directory() -> None:
    process = started(CliOptions(cwd="/a", settings="/s.json")).awaiting_claim()
    assert process.awaits_claim
    assert not session().awaits_claim
    launch = session(CliOptions(cwd="/b", settings="/s.json")).in_process_of(process)
    assert launch is not None
    assert (launch.cwd, launch.awaits_claim) == ("/b", True)


@pytest.mark.parametrize(
    ("wanted", "process"),
    [
        (CliOptions(model="opus"), started()),
        (CliOptions(env={"A": "1"}), started()),
        (CliOptions(settings={"a": 1}), started(CliOptions(settings={"a": 2}))),
        (CliOptions(cwd="/b"), started(CliOptions(cwd="/a"))),
        (
            CliOptions(cwd="/b", settings="s.json"),
            started(CliOptions(cwd="/a", settings="s.json")).awaiting_claim(),
        ),
        (
            CliOptions(cwd="/b", add_dirs=["x"]),
            started(CliOptions(cwd="/a", add_dirs=["x"])).awaiting_claim(),
        ),
    ],
    ids=["flag", "environment", "file", "directory", "relative file", "relative directory"],
)
def test_a_process_with_other_options_is_not_used(wanted: CliOptions, process: Launch) -> None:
    assert session(wanted).in_process_of(process) is None


@pytest.mark.parametrize(
    "options",
    [
        {"project_config_root": "conf"},
        {"plugins": ["p"]},
        {"plugins": [{"path": "p", "skip_mcp_discovery": True}]},
        {"plugins": ["p"], "plugin_delivery": "initialize"},
        {"debug_file": "log"},
        {"mcp_config": "m.json"},
        {"system_prompt_file": "p.txt"},
        {"extra_args": ["--new-flag=x"]},
    ],
    ids=str,
)
def test_a_process_is_not_claimed_for_another_directory_if_options_depend_on_it(
    options: dict[str, Any],
) -> None:
    process = started(CliOptions(cwd="/a", **options)).awaiting_claim()
    assert session(CliOptions(cwd="/b", **options)).in_process_of(process) is None
    assert session(CliOptions(cwd="/a", **options)).in_process_of(process) is not None


def test_a_process_with_absolute_paths_is_claimed_for_another_directory() -> None:
    options: dict[str, Any] = {
        "project_config_root": "/conf",
        "plugins": ["/p"],
        "plugin_delivery": "initialize",
        "add_dirs": ["/d"],
        "managed_settings": {"permissions": {}},
        "mcp_config": {"mcpServers": {"db": {"command": "db"}}},
        "mcp_config_delivery": "initialize",
        "permission_mode": "plan",
    }
    process = started(CliOptions(cwd="/a", **options)).awaiting_claim()
    assert session(CliOptions(cwd="/b", **options)).in_process_of(process) is not None
