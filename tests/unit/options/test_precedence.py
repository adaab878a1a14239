"""Which source of an option wins, how two are merged, and who is blamed for a mistake."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.errors import OptionsError
from bridle.options import AgentConfig, BidirOptions, CliOptions, Limits, SdkOptions, option_rows
from bridle.options._precedence import IgnoredSetting, deep_merge, resolve_options, variable_of


def refused(**sources: Any) -> OptionsError:
    with pytest.raises(OptionsError) as caught:
        resolve_options(**sources)
    return caught.value


# ---------------------------------------------------------------- who wins

ARGUMENT = CliOptions(model="argument")
ENVIRON = {"CLAUDE_MODEL": "environment"}
CONFIG = {"cli": {"model": "config"}}


@pytest.mark.parametrize(
    ("cli", "environ", "config", "model", "origin"),
    [
        (ARGUMENT, ENVIRON, CONFIG, "argument", "argument"),
        (ARGUMENT, {}, CONFIG, "argument", "argument"),
        (None, ENVIRON, CONFIG, "environment", "environment:CLAUDE_MODEL"),
        (CliOptions(model=None), ENVIRON, CONFIG, "environment", "environment:CLAUDE_MODEL"),
        (None, {}, CONFIG, "config", "config"),
        (None, {"CLAUDE_MODEL": " "}, CONFIG, "config", "config"),
        (None, {}, {}, None, "default"),
        (None, None, None, None, "default"),
    ],
)
def test_the_highest_source_that_speaks_wins(
    cli: CliOptions | None, environ: Any, config: Any, model: str | None, origin: str
) -> None:
    """R095, R096, R103, C40: argument, environment, configuration, default."""
    resolved = resolve_options(cli, environ=environ, config=config)
    assert (resolved.cli.model, resolved.origin["cli.model"]) == (model, origin)


@pytest.mark.requirement("S087")
def test_an_argument_that_repeats_the_default_still_wins() -> None:
    resolved = resolve_options(
        CliOptions(include_partial_messages=False),
        SdkOptions(control_timeout=30.0),
        environ={"CLAUDE_INCLUDE_PARTIAL_MESSAGES": "1", "CLAUDE_CONTROL_TIMEOUT": "5"},
    )
    assert resolved.cli.include_partial_messages is False
    assert resolved.sdk.control_timeout == 30.0
    assert resolved.origin["sdk.control_timeout"] == "argument"


@pytest.mark.parametrize("field", ["betas", "allowed_tools", "setting_sources"])
def test_a_list_is_replaced_whole_and_an_empty_one_wins(field: str) -> None:
    """R101, C40: nothing is mixed, and "none" is an answer."""
    config = {"cli": {field: ["user"]}}
    assert getattr(resolve_options(config=config).cli, field) == ("user",)
    empty = CliOptions(**{field: []})  # type: ignore[arg-type]  # all three are lists
    assert getattr(resolve_options(empty, config=config).cli, field) == ()
    other = CliOptions(**{field: ["local"]})  # type: ignore[arg-type]
    assert getattr(resolve_options(other, config=config).cli, field) == ("local",)


def test_agents_are_replaced_whole() -> None:
    """R102."""
    mine = AgentConfig(name="mine", description="d", prompt="p")
    config = {"cli": {"agents": {"theirs": {"description": "d", "prompt": "p"}}}}
    assert resolve_options(CliOptions(agents=[mine]), config=config).cli.agents == (mine,)


def test_all_three_records_come_from_the_configuration() -> None:
    resolved = resolve_options(
        config={
            "cli": {"max_turns": 3, "env": {"A": "1"}},
            "sdk": {"limits": {"idle": 5}, "inherit_env": ["PATH"]},
            "bidir": {"file_checkpointing_enabled": True, "hook_timeouts": {"Stop": 2}},
        }
    )
    assert resolved.cli == CliOptions(max_turns=3, env={"A": "1"})
    assert resolved.sdk == SdkOptions(limits=Limits(idle=5), inherit_env=["PATH"])
    assert resolved.bidir == BidirOptions(
        file_checkpointing_enabled=True, hook_timeouts={"Stop": 2}
    )


def test_every_field_has_an_origin() -> None:
    tables = {"CliOptions": "cli", "SdkOptions": "sdk", "BidirOptions": "bidir"}
    wanted = {f"{tables[record]}.{row.name}": "default" for record, row in option_rows()}
    assert resolve_options().origin == wanted


# ---------------------------------------------------------------- merging


def test_variables_merge_by_name() -> None:
    """R097, R104: both are there, and the argument wins a name they share."""
    resolved = resolve_options(
        CliOptions(env={"BAR": "2", "BOTH": "argument"}),
        config={"cli": {"env": {"FOO": "1", "BOTH": "config"}}},
    )
    assert resolved.cli.env == {"FOO": "1", "BOTH": "argument", "BAR": "2"}
    assert resolved.origin["cli.env"] == "config+argument"


def test_settings_merge_deeply() -> None:
    """R098, C41: objects merge, lists and scalars are replaced; text is as good as a mapping."""
    resolved = resolve_options(
        CliOptions(settings='{"permissions": {"deny": ["B"]}, "model": "x"}'),
        config={"cli": {"settings": {"permissions": {"deny": ["A"], "allow": ["C"]}, "env": {}}}},
    )
    assert resolved.cli.settings == {
        "permissions": {"deny": ["B"], "allow": ["C"]},
        "env": {},
        "model": "x",
    }


def test_settings_in_a_file_cannot_be_merged_but_can_stand_alone() -> None:
    """C41: silence about the other source would be a surprise."""
    config = {"cli": {"settings": "settings.json"}}
    assert resolve_options(config=config).cli.settings == "settings.json"
    error = refused(cli=CliOptions(settings={"a": 1}), config=config)
    assert error.field == "settings"
    assert "merge" in error.problem


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("add_dirs", ["/a", "/b"], ["/b", "/c"]),
        ("extra_args", ["--bare", "--name", "x"], ["--y=1"]),
    ],
)
def test_lists_that_append_keep_duplicates_and_order(
    field: str, low: list[str], high: list[str]
) -> None:
    """R099, R100, C40: configuration first."""
    argument = CliOptions(**{field: high})  # type: ignore[arg-type]  # both are lists
    resolved = resolve_options(argument, config={"cli": {field: low}})
    assert getattr(resolved.cli, field) == (*low, *high)
    assert resolved.origin[f"cli.{field}"] == "config+argument"


def test_only_these_four_merge() -> None:
    merging = {row.name: row.merge for _, row in option_rows() if row.merge != "replace"}
    assert merging == {
        "env": "deep",
        "settings": "deep",
        "add_dirs": "append",
        "extra_args": "append",
    }


JSON: Any = st.recursive(
    st.none() | st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner)
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON)


@given(OBJECTS, OBJECTS)
def test_a_deep_merge_keeps_everything_of_the_higher_source(low: Any, high: Any) -> None:
    merged = deep_merge(low, high)
    assert merged.keys() == low.keys() | high.keys()
    assert deep_merge(merged, high) == merged
    assert deep_merge({}, high) == high
    assert deep_merge(low, {}) == low


# ---------------------------------------------------------------- the environment


def test_the_list_of_variables_is_closed() -> None:
    """C40: scalar settings only: no session, path, command or secret can come in this way."""
    assert {variable_of(row) for _, row in option_rows() if row.env is not None} == {
        "CLAUDE_MODEL",
        "CLAUDE_FALLBACK_MODEL",
        "CLAUDE_MAX_TURNS",
        "CLAUDE_MAX_BUDGET_USD",
        "CLAUDE_TASK_BUDGET",
        "CLAUDE_EFFORT",
        "CLAUDE_MAX_THINKING_TOKENS",
        "CLAUDE_PERMISSION_MODE",
        "CLAUDE_INCLUDE_PARTIAL_MESSAGES",
        "CLAUDE_CONTROL_TIMEOUT",
        "CLAUDE_INIT_TIMEOUT",
        "CLAUDE_CALLBACK_TIMEOUT",
        "CLAUDE_PERMISSION_TIMEOUT",
    }


@pytest.mark.parametrize(
    "variable", ["CLAUDE_SESSION_ID", "CLAUDE_CWD", "CLAUDE_ENV", "CLAUDE_TITLE"]
)
def test_another_variable_says_nothing(variable: str) -> None:
    assert set(resolve_options(environ={variable: "x"}).origin.values()) == {"default"}


@pytest.mark.parametrize(
    ("variable", "word", "field", "value"),
    [
        ("CLAUDE_MAX_TURNS", " 7 ", "max_turns", 7),
        ("CLAUDE_MAX_BUDGET_USD", "2.5", "max_budget_usd", 2.5),
        ("CLAUDE_PERMISSION_MODE", "plan", "permission_mode", "plan"),
        ("CLAUDE_INCLUDE_PARTIAL_MESSAGES", "TRUE", "include_partial_messages", True),
        ("CLAUDE_INCLUDE_PARTIAL_MESSAGES", "on", "include_partial_messages", True),
        ("CLAUDE_INCLUDE_PARTIAL_MESSAGES", "no", "include_partial_messages", False),
        ("CLAUDE_INCLUDE_PARTIAL_MESSAGES", "0", "include_partial_messages", False),
        ("CLAUDE_EFFORT", "low", "effort", "low"),
    ],
)
def test_a_variable_is_read_as_its_field(
    variable: str, word: str, field: str, value: object
) -> None:
    resolved = resolve_options(environ={variable: word})
    assert getattr(resolved.cli, field) == value
    assert resolved.origin[f"cli.{field}"] == f"environment:{variable}"


@pytest.mark.parametrize(
    ("variable", "word", "fix"),
    [
        ("CLAUDE_MAX_TURNS", "many", "Set it to a whole number."),
        ("CLAUDE_MAX_TURNS", "0", "Use 1 or more."),
        ("CLAUDE_MAX_BUDGET_USD", "cheap", "Set it to a number."),
        ("CLAUDE_MAX_BUDGET_USD", "nan", "Use a finite number above 0, or remove it."),
        ("CLAUDE_INCLUDE_PARTIAL_MESSAGES", "maybe", "Set it to true or false."),
    ],
)
def test_an_error_in_a_variable_names_the_variable(variable: str, word: str, fix: str) -> None:
    error = refused(environ={variable: word})
    assert (error.field, error.fix) == (variable, fix)


def test_variables_that_an_outer_session_exports_are_not_options() -> None:
    """The CLI tells its tools its own effort in the variable that would set ours."""
    inside = {"CLAUDECODE": "1", "CLAUDE_EFFORT": "max", "CLAUDE_MODEL": "opus"}
    resolved = resolve_options(environ=inside)
    assert (resolved.cli.effort, resolved.cli.model) == (None, "opus")


# ---------------------------------------------------------------- gates

BYPASS = "bypassPermissions"


@pytest.mark.parametrize(
    ("variable", "word", "field"),
    [
        ("CLAUDE_PERMISSION_MODE", BYPASS, "cli.permission_mode"),
        ("CLAUDE_PERMISSION_MODE", "acceptEdits", "cli.permission_mode"),
        ("CLAUDE_PERMISSION_MODE", "auto", "cli.permission_mode"),
        ("CLAUDE_PERMISSION_MODE", "brandNew", "cli.permission_mode"),
        ("CLAUDE_CALLBACK_TIMEOUT", "0.01", "bidir.callback_timeout"),
        ("CLAUDE_PERMISSION_TIMEOUT", "0.01", "bidir.permission_timeout"),
    ],
)
def test_a_variable_that_weakens_a_gate_is_ignored_and_named(
    variable: str, word: str, field: str
) -> None:
    resolved = resolve_options(environ={variable: word})
    table, name = field.split(".")
    record = getattr(resolved, table)
    assert getattr(record, name) == record.fields[name].default
    assert resolved.origin[field] == "default"
    assert resolved.ignored == (IgnoredSetting(field, variable),)
    told = str(resolved.ignored[0])
    assert variable in told
    assert f"{type(record).__name__}.{name}" in told


@pytest.mark.parametrize("mode", ["default", "manual", "plan", "dontAsk"])
def test_a_mode_that_allows_nothing_counts_from_a_variable(mode: str) -> None:
    resolved = resolve_options(environ={"CLAUDE_PERMISSION_MODE": mode})
    assert (resolved.cli.permission_mode, resolved.ignored) == (mode, ())


def test_a_variable_that_is_outranked_is_not_reported() -> None:
    resolved = resolve_options(
        CliOptions(permission_mode="plan"), environ={"CLAUDE_PERMISSION_MODE": BYPASS}
    )
    assert (resolved.cli.permission_mode, resolved.ignored) == ("plan", ())


WEAKENING: dict[str, object] = {
    "cli.agent": "reviewer",
    "cli.agents": {"a": {"description": "d", "prompt": "p"}},
    "cli.allowed_tools": ["Bash"],
    "cli.tool_aliases": {"Bash": "mcp__a__b"},
    "cli.permission_mode": BYPASS,
    "cli.permission_prompt_tool_name": "mcp__a__b",
    "cli.user": "nobody",
    "cli.managed_settings": {"allowManagedHooksOnly": True},
    "cli.extra_initialize": {"newField": 1},
    "cli.allow_dangerously_skip_permissions": True,
    "cli.add_dirs": ["/"],
    "cli.project_config_root": "/tmp",
    "cli.env": {"CLAUDE_CODE_SIMPLE": "1"},
    "cli.settings": {"permissions": {"allow": ["Bash"]}},
    "cli.sandbox": {"autoAllowBashIfSandboxed": True},
    "cli.setting_sources": [],
    "cli.plugins": ["/plugin"],
    "cli.extra_args": ["--bare"],
    "sdk.max_buffer_size": 1024,
    "sdk.skip_version_check": True,
    "sdk.permissive_version_check": True,
    "bidir.approve": [],
    "bidir.callback_timeout": 0.01,
    "bidir.hook_timeouts": {"PreToolUse": 0.01},
    "bidir.permission_timeout": 0.01,
}


def test_every_option_that_can_weaken_a_gate_is_tried_here() -> None:
    tables = {"CliOptions": "cli", "SdkOptions": "sdk", "BidirOptions": "bidir"}
    marked = {f"{tables[owner]}.{row.name}" for owner, row in option_rows() if row.weakens}
    assert marked == set(WEAKENING)


@pytest.mark.parametrize("field", WEAKENING)
def test_a_file_weakens_a_gate_only_if_the_program_named_it(field: str) -> None:
    table, name = field.split(".")
    config = {table: {name: WEAKENING[field]}}
    named = resolve_options(config=config)
    assert (named.origin[field], named.ignored) == ("config", ())
    resolved = resolve_options(config=config, config_variable="BRIDLE_CONFIG")
    assert resolved.origin[field] == "default"
    assert getattr(resolved, table) == type(getattr(resolved, table))()
    assert resolved.ignored == (IgnoredSetting(field, "BRIDLE_CONFIG"),)
    assert f"{name} under [{table}]" in str(resolved.ignored[0])
    assert "SdkOptions.config_file" in str(resolved.ignored[0])


def test_an_unknown_mode_in_a_file_that_a_variable_named_does_not_count() -> None:
    config = {"cli": {"permission_mode": "brandNew"}}
    resolved = resolve_options(config=config, config_variable="BRIDLE_CONFIG")
    assert resolved.cli.permission_mode is None
    assert resolved.ignored == (IgnoredSetting("cli.permission_mode", "BRIDLE_CONFIG"),)


@pytest.mark.parametrize("name", ["CLAUDE_CONFIG_DIR", "HOME"])
def test_a_file_that_a_variable_named_does_not_choose_the_user_settings(name: str) -> None:
    config = {"cli": {"env": {name: "/elsewhere"}}}
    resolved = resolve_options(config=config, config_variable="BRIDLE_CONFIG")
    assert resolved.cli.env is None
    assert resolved.ignored == (IgnoredSetting("cli.env", "BRIDLE_CONFIG"),)


@pytest.mark.parametrize(
    "harmless",
    [
        {"cli": {"model": "opus", "permission_mode": "plan", "disallowed_tools": ["Bash"]}},
        {"cli": {"env": {"LANG": "C"}, "allowed_tools": [], "extra_args": []}},
        {"sdk": {"skip_version_check": False, "limits": {"usd": 1}}},
    ],
)
def test_what_weakens_nothing_counts_from_a_file_that_a_variable_named(harmless: Any) -> None:
    resolved = resolve_options(config=harmless, config_variable="BRIDLE_CONFIG")
    assert resolved.ignored == ()
    assert resolve_options(config=harmless) == resolved


def test_the_rest_of_a_merged_option_stands_when_a_source_is_ignored() -> None:
    resolved = resolve_options(
        CliOptions(extra_args=["--mine"], env={"A": "1"}),
        config={"cli": {"extra_args": ["--bare"], "env": {"CLAUDE_CODE_SIMPLE": "1"}}},
        config_variable="BRIDLE_CONFIG",
    )
    assert (resolved.cli.extra_args, resolved.cli.env) == (("--mine",), {"A": "1"})
    assert [setting.field for setting in resolved.ignored] == ["cli.env", "cli.extra_args"]


@pytest.mark.parametrize(
    ("word", "sdk", "cli", "is_reported"),
    [
        ("1", None, None, True),
        ("true", SdkOptions(inherit_env=["CLAUDE_CODE_SIMPLE"]), None, True),
        ("1", SdkOptions(inherit_env=False), None, False),
        ("1", SdkOptions(inherit_env=["PATH"]), None, False),
        ("1", None, CliOptions(env={"CLAUDE_CODE_SIMPLE": "1"}), False),
        ("0", None, None, False),
        ("", None, None, False),
    ],
)
def test_a_variable_that_the_cli_does_not_inherit_is_reported(
    word: str, sdk: SdkOptions | None, cli: CliOptions | None, is_reported: bool
) -> None:
    resolved = resolve_options(cli, sdk, environ={"CLAUDE_CODE_SIMPLE": word})
    withheld = IgnoredSetting("cli.env", "CLAUDE_CODE_SIMPLE")
    assert resolved.ignored == ((withheld,) if is_reported else ())
    assert "not passed on" in str(withheld)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("config", "field", "fix"),
    [
        ({"cli": {"modle": "x"}}, "config: cli.modle", "Did you mean 'model'?"),
        ({"sdk": {"model": "x"}}, "config: sdk.model", "It is a field of CliOptions."),
        ({"clii": {}}, "config: clii", "Tables are [cli], [sdk], [bidir]."),
        ({"cli": "opus"}, "config: cli", "Write [cli]."),
        ({"cli": {"max_turns": "3"}}, "config: cli.max_turns", "Pass an integer."),
        ({"cli": {"env": {"A": 1}}}, "config: cli.env['A']", "Convert the value to a string."),
        ({"sdk": {"limits": {"idle": 0}}}, "config: sdk.limits.idle",
         "Use a finite number above 0, or remove it."),
        ({"sdk": {"on_stderr": "print"}}, "config: sdk.on_stderr", "Set it in your program."),
        ({"sdk": {"config_file": "x"}}, "config: sdk.config_file", "Set it in your program."),
        ({"bidir": {"hooks": {}}}, "config: bidir.hooks", "Set it in your program."),
    ],
)  # fmt: skip
def test_a_mistake_in_the_configuration_is_named_with_its_table(
    config: Any, field: str, fix: str
) -> None:
    error = refused(config=config)
    assert (error.field, error.fix) == (field, fix)


def test_code_and_seams_never_come_from_a_file() -> None:
    assert {row.name for _, row in option_rows() if not row.config} == {
        "on_stderr", "on_warning", "config_file", "runner", "recorder", "telemetry", "store",
        "wait", "hooks", "mcp_servers",
        "on_pre_tool_use", "on_post_tool_use", "on_user_prompt_submit", "on_stop",
        "on_subagent_stop", "on_pre_compact", "on_can_use_tool", "on_question", "on_plan",
        "on_elicitation", "on_user_dialog", "supported_dialog_kinds", "on_event",
        "transport_factory",
    }  # fmt: skip


def test_a_record_in_the_wrong_place_is_refused() -> None:
    """R092."""
    error = refused(cli=SdkOptions())
    assert (error.field, error.problem) == ("cli", "must be a CliOptions, got SdkOptions")
    assert refused(bidir={"on_stop": print}).field == "bidir"


def test_sources_that_contradict_each_other_are_refused() -> None:
    error = refused(
        cli=CliOptions(resume_session_id="x"), config={"cli": {"continue_session": True}}
    )
    assert error.field == "resume_session_id"


def test_records_that_contradict_each_other_are_refused() -> None:
    error = refused(
        bidir=BidirOptions(on_question=lambda _: None),  # type: ignore[arg-type, return-value]
        config={"cli": {"permission_prompt_tool_name": "mcp__a__b"}},
    )
    assert error.field == "permission_prompt_tool_name"
