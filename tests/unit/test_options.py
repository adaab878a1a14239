"""The option records: what they accept, keep, refuse and say about a mistake."""

from __future__ import annotations

import copy
import enum
import math
import pickle
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, cast

import pytest

from bridle._engine.outgoing.operations import prepare_operation
from bridle.errors import OptionsError
from bridle.hooks import Continue, Hook
from bridle.options import (
    RECORDS,
    AgentConfig,
    BidirOptions,
    CliOptions,
    Limits,
    SdkOptions,
    check_session,
    managed_flags,
    option_rows,
)
from bridle.tools import ToolServer

UUID = "01234567-89ab-cdef-0123-456789abcdef"
MIB = 1024 * 1024
AGENT = {"description": "reviews", "prompt": "Review."}


def hook(_: object) -> Continue:
    return Continue()


def answer(_: object) -> Any:
    return None


def refused(cls: type, **given: object) -> OptionsError:
    with pytest.raises(OptionsError) as caught:
        cls(**given)
    return caught.value


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("cls", [*RECORDS.values(), Limits])
def test_a_record_needs_nothing_and_says_nothing_by_itself(cls: type[CliOptions]) -> None:
    """R085, R093, R094: every option is optional."""
    record = cls()
    assert dict(record.given()) == {}
    assert record == cls()
    assert repr(record) == f"{cls.__name__}()"


def test_the_defaults_are_the_documented_ones() -> None:
    """R060, R298, R339, S084."""
    defaults = {
        (name, row.name): row.default for name, row in option_rows() if row.default is not None
    }
    switches = {key for key, default in defaults.items() if default is False}
    assert {key: value for key, value in defaults.items() if key not in switches} == {
        ("SdkOptions", "max_buffer_size"): 16 * MIB,
        ("SdkOptions", "max_unread_bytes"): 64 * MIB,
        ("SdkOptions", "control_timeout"): 30.0,
        ("SdkOptions", "init_timeout"): 60.0,
        ("SdkOptions", "load_timeout"): 60.0,
        ("SdkOptions", "limits"): Limits(),
        ("SdkOptions", "inherit_env"): True,
        ("BidirOptions", "callback_timeout"): 60.0,
    }


def test_every_option_has_a_line_of_documentation() -> None:
    """R445: the documentation is made from the table."""
    assert [row.name for _, row in option_rows() if not row.doc.endswith(".")] == []
    assert len({(name, row.name) for name, row in option_rows()}) == len(option_rows())


def test_replace_changes_a_copy_and_none_unsets_an_option() -> None:
    """R086, R088: saying it again replaces it, and no record ever changes."""
    first = CliOptions(model="opus", max_turns=3)
    second = first.replace(model="sonnet")
    assert (first.model, second.model, second.max_turns) == ("opus", "sonnet", 3)
    assert second.replace(model=None, max_turns=None) == CliOptions()


def test_replace_checks_like_the_constructor() -> None:
    with pytest.raises(OptionsError, match="max_turns"):
        CliOptions().replace(max_turns=0)


def test_a_record_is_frozen() -> None:
    record: Any = CliOptions(env={"A": "1"}, add_dirs=["/a"])
    with pytest.raises(AttributeError, match="replace"):
        record.model = "opus"
    with pytest.raises(AttributeError, match="replace"):
        del record.env
    with pytest.raises(TypeError):
        record.env["B"] = "2"
    assert record.add_dirs == ("/a",)


def test_a_record_cannot_be_given_by_position() -> None:
    make: Any = CliOptions
    with pytest.raises(TypeError):
        make("opus")


def test_records_compare_by_value() -> None:
    assert SdkOptions(control_timeout=30.0) == SdkOptions()
    assert SdkOptions(control_timeout=31.0) != SdkOptions()
    assert CliOptions() != SdkOptions()
    assert CliOptions(model="x") != "x"


def test_a_record_remembers_what_was_said_even_if_it_is_the_default() -> None:
    assert dict(CliOptions(include_partial_messages=False, model=None).given()) == {
        "include_partial_messages": False
    }


def test_an_empty_list_is_sent_and_none_is_omitted() -> None:
    assert CliOptions(tools=[]).tools == ()
    assert CliOptions(tools=None).tools is None


def test_what_the_caller_changes_later_changes_no_record() -> None:
    settings: dict[str, Any] = {"permissions": {"deny": ["Bash"]}}
    dirs = ["/a"]
    env = {"A": "1"}
    record = CliOptions(settings=settings, add_dirs=dirs, env=env)
    settings["permissions"]["deny"].append("Read")
    dirs.append("/b")
    env["A"] = "2"
    assert record.settings == {"permissions": {"deny": ["Bash"]}}
    assert record.add_dirs == ("/a",)
    assert record.env == {"A": "1"}


def through_pickle(record: object) -> Any:
    return pickle.loads(pickle.dumps(record))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, through_pickle])
def test_records_copy_and_pickle(duplicate: Any) -> None:
    record = CliOptions(
        env={"A": "1"},
        settings={"a": [1]},
        agents={"a": {**AGENT, "mcp_servers": [{"x": {"command": "x"}}]}},
        thinking="adaptive",
        plugins=["/p", {"path": "/q", "skip_mcp_discovery": True}],
    )
    assert duplicate(record) == record
    assert duplicate(record).given() == record.given()


def test_the_text_of_a_record_shows_no_content_of_a_mapping() -> None:
    record = CliOptions(
        env={"TOKEN": "secret", "A": ""},
        settings={"b": "secret"},
        tools=["Read"],
        extra_args=["--new-flag=secret", "--other", "secret", "--bare", "--last"],
    )
    assert repr(record) == (
        "CliOptions(env={'TOKEN': ..., 'A': ...}, settings={'b': ...}, tools=['Read'], "
        "extra_args=['--new-flag=...', '--other', ..., '--bare', '--last'])"
    )


@pytest.mark.parametrize(
    ("cls", "name", "fix"),
    [
        (CliOptions, "modle", "Did you mean 'model'?"),
        (CliOptions, "on_stop", "It is a field of BidirOptions."),
        (SdkOptions, "model", "It is a field of CliOptions."),
        (BidirOptions, "qqqqqqqq", "See the list of options of BidirOptions."),
    ],
)
def test_an_unknown_option_is_named_with_a_guess(cls: type, name: str, fix: str) -> None:
    """R092: an option in the wrong record is an error, never ignored."""
    error = refused(cls, **{name: 1})
    assert (error.field, error.problem, error.fix) == (
        name,
        f"is not a field of {cls.__name__}",
        fix,
    )


# ---------------------------------------------------------------- accepted values


class Mode(str, enum.Enum):  # noqa: UP042 - the older habit formats as its name, not its value
    """A string enumeration, as users like to keep their modes in."""

    PLAN = "plan"


class Turns(enum.IntEnum):
    """A number enumeration."""

    FEW = 3


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("model", "opus", "opus"),
        ("permission_mode", Mode.PLAN, "plan"),
        ("max_turns", Turns.FEW, 3),
        ("max_budget_usd", 5, 5),
        ("max_thinking_tokens", 0, 0),
        ("system_prompt", "", ""),
        ("system_prompt", "two\nlines", "two\nlines"),
        ("system_prompt", ["a", "b"], ("a", "b")),
        ("tools", "default", "default"),
        ("tools", ["Bash", "Read"], ("Bash", "Read")),
        ("allowed_tools", ["Bash(git log --format=%a, %b)"], ("Bash(git log --format=%a, %b)",)),
        ("allowed_tools", ["mcp__calc__*", "Bash(f(x))"], ("mcp__calc__*", "Bash(f(x))")),
        ("cwd", PurePosixPath("/w"), "/w"),
        ("add_dirs", [PurePosixPath("/a"), "b"], ("/a", "b")),
        ("settings", PurePosixPath("/s.json"), "/s.json"),
        ("settings", PurePosixPath("{odd"), "./{odd"),
        ("settings", ' {"a": 1}', {"a": 1}),
        ("settings", {"a": (1, 2.5, None, {"b": True})}, {"a": [1, 2.5, None, {"b": True}]}),
        ("mcp_config", "servers.json", "servers.json"),
        ("mcp_config", '{"mcpServers": {"x": {}}}', {"mcpServers": {"x": {}}}),
        ("json_schema", '{"type": "object"}', {"type": "object"}),
        ("sandbox", {"enabled": True}, {"enabled": True}),
        ("session_id", UUID.upper(), UUID.upper()),
        ("resume_session_id", "my session", "my session"),
        ("debug", True, True),
        ("debug", "api,hooks", "api,hooks"),
        ("setting_sources", ["user", "local"], ("user", "local")),
        ("skills", "all", "all"),
        ("tool_config", {"askUserQuestion": {"previewFormat": "html"}},
         {"ask_user_question": {"preview_format": "html"}}),
        ("extra_initialize", {"newField": [1]}, {"newField": [1]}),
        ("managed_settings", {"permissions": {"deny": ["Bash"]}},
         {"permissions": {"deny": ["Bash"]}}),
        ("permission_mode", "brandNew", "brandNew"),
        ("effort", "ultra", "ultra"),
        ("setting_sources", ["team"], ("team",)),
        ("thinking", "deep", {"type": "deep"}),
        ("thinking", {"type": "deep", "budget_tokens": 5, "display": "drawn"},
         {"type": "deep", "budget_tokens": 5, "display": "drawn"}),
        ("thinking", "disabled", {"type": "disabled"}),
        ("thinking", {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
         {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}),
        ("plugins", ["/a", {"type": "local", "path": "/b"}], ("/a", "/b")),
        ("plugins", [{"path": "/c", "skip_mcp_discovery": True}],
         ({"path": "/c", "skip_mcp_discovery": True},)),
        ("env", {"EMPTY": "", "LINES": "a\nb"},
         {"EMPTY": "", "LINES": "a\nb"}),
        ("extra_args", ["--bare", "--name", "x", "--file", "a", "b", "--k=-v"],
         ("--bare", "--name", "x", "--file", "a", "b", "--k=-v")),
    ],
)  # fmt: skip
def test_a_value_is_kept(field: str, given: object, kept: object) -> None:
    """R050, C41."""
    record = CliOptions(**{field: given})  # type: ignore[arg-type]  # the table is of objects
    assert getattr(record, field) == kept
    assert record.replace() == record, "a record accepts its own values"
    assert type(getattr(record, field)) is not Mode


@pytest.mark.parametrize(
    "agents",
    [
        [AgentConfig(name="a", description="d", prompt="p", disallowed_tools=["Bash"])],
        [{"name": "a", "description": "d", "prompt": "p", "disallowedTools": ["Bash"]}],
        {"a": {"description": "d", "prompt": "p", "disallowed_tools": ["Bash"]}},
        {"a": AgentConfig(name="other", description="d", prompt="p", disallowed_tools=["Bash"])},
    ],
)
def test_agents_come_as_a_list_or_by_name(agents: Any) -> None:
    """C42: whichever way, they are kept as records."""
    wanted = AgentConfig(name="a", description="d", prompt="p", disallowed_tools=["Bash"])
    assert CliOptions(agents=agents).agents == (wanted,)


def test_an_agent_can_set_all_fields_of_the_cli() -> None:
    """C42."""
    agent = AgentConfig(
        name="a",
        description="d",
        prompt="p",
        tools=["Read"],
        model="haiku",
        skills=["s"],
        memory="project",
        mcp_servers=["calc", {"x": {"command": "x"}}],
        initial_prompt="go",
        max_turns=2,
        background=False,
        effort=1000,
        permission_mode="plan",
    )
    assert agent.mcp_servers == ("calc", {"x": {"command": "x"}})
    assert agent.replace(effort="low").effort == "low"


def test_an_agent_keeps_the_fields_that_bridle_does_not_know() -> None:
    given = {**AGENT, "colour": "red", "effort": "ultra", "extra": {"shape": "round"}}
    options = CliOptions(agents={"a": given})
    [agent] = cast("tuple[AgentConfig, ...]", options.agents)
    assert (agent.effort, agent.extra) == ("ultra", {"colour": "red", "shape": "round"})
    assert options.replace() == options
    assert pickle.loads(pickle.dumps(options)) == options
    assert refused(AgentConfig, name="a", **AGENT, colour="red").field == "colour"


@pytest.mark.parametrize(
    ("given", "kept"), [(True, True), (False, False), (["PATH", "HOME"], ("PATH", "HOME"))]
)
def test_the_environment_is_inherited_whole_not_at_all_or_by_name(given: Any, kept: object) -> None:
    assert SdkOptions(inherit_env=given).inherit_env == kept


def test_limits_come_as_a_record_or_a_mapping() -> None:
    given: Any = {"idle": 5, "turns": 3}
    assert SdkOptions(limits=given).limits == Limits(idle=5.0, turns=3)
    assert SdkOptions(limits=Limits(usd=0.5)).limits.usd == 0.5


def test_seams_and_telemetry_are_kept_as_they_are() -> None:
    """R057, R073: what takes the place of a process is its user's business."""
    thing, observer = object(), Observer()
    options = SdkOptions(runner=thing, telemetry=observer)
    assert (options.runner, options.telemetry) == (thing, observer)
    assert BidirOptions(transport_factory=answer).transport_factory is answer


class Observer:
    """Telemetry, as small as it gets."""

    def observe(self, observation: object) -> None:
        """Ignore it."""


class AsyncObserver:
    """What nobody would ever await."""

    async def observe(self, observation: object) -> None:
        """Ignore it."""


@pytest.mark.parametrize(
    ("value", "problem", "fix"),
    [
        (object(), "is an object of type object, which has no method observe", "OpenTelemetry()"),
        (print, "which has no method observe", "observe(observation)"),
        (Observer, "is the class Observer", "Observer()."),
        (AsyncObserver(), "has an async method observe", "plain function"),
    ],
    ids=["object", "function", "class", "async"],
)
def test_telemetry_that_cannot_observe_is_refused(value: Any, problem: str, fix: str) -> None:
    """R453: with the field's name and the way out."""
    with pytest.raises(OptionsError) as failure:
        SdkOptions(telemetry=value)
    assert failure.value.field == "telemetry"
    assert problem in failure.value.problem
    assert fix in failure.value.fix


# ---------------------------------------------------------------- refused values

BAD_CLI: list[tuple[str, object, str]] = [
    ("model", "", "is empty"),
    ("model", 7, "got int"),
    ("model", "a\nb", "line break"),
    ("model", "a\0b", "NUL"),
    ("model", "\ud800", "surrogate"),
    ("system_prompt", 7, "must be text, a list of texts or a function, got int"),
    ("system_prompt", "\ud800", "surrogate"),
    ("max_turns", 0, "is 0"),
    ("max_turns", True, "got bool"),
    ("max_turns", 2.0, "got float"),
    ("max_budget_usd", 0, "is 0"),
    ("max_budget_usd", -1.5, "is -1.5"),
    ("max_budget_usd", math.nan, "is nan"),
    ("max_budget_usd", math.inf, "is inf"),
    ("max_budget_usd", "5", "got str"),
    ("max_thinking_tokens", -1, "is -1"),
    ("effort", "very high", "is 'very high'"),
    ("permission_mode", 7, "got int"),
    ("permission_mode", "a b" * 100, "..."),
    ("session_id", "not-a-uuid", "is 'not-a-uuid'"),
    ("strict_mcp_config", 1, "got int"),
    ("strict_mcp_config", None, "got NoneType"),
    ("debug", 1, "got int"),
    ("cwd", "", "empty path"),
    ("cwd", b"/w", "got bytes"),
    ("cwd", "/a\nb", "line break"),
    ("betas", ["a,b"], "is 'a,b'"),
    ("tools", "Bash", "must be a list of tool names or 'default', got 'Bash'"),
    ("allowed_tools", "Bash", "got str"),
    ("setting_sources", ["user,local"], "is 'user,local'"),
    ("env", [("A", "1")], "got list"),
    ("json_schema", "{", "is not valid JSON"),
    ("json_schema", "[]", "got list"),
    ("json_schema", {"a": math.nan}, "JSON cannot represent"),
    ("json_schema", {"a": {"b": object()}}, "got object"),
    ("json_schema", {1: "a"}, "got int"),
    ("settings", "{not json", "is not valid JSON"),
    ("settings", 7, "got int"),
    ("mcp_config", {"x": {"command": "x"}}, "no object named mcpServers"),
    ("mcp_config", {"mcpServers": {"x": "y"}}, "must be an object"),
    ("mcp_config", {"mcpServers": {"x": {"type": "sdk"}}}, "has the type 'sdk'"),
    ("thinking", "very deeply", "is 'very deeply'"),
    ("thinking", {"budget_tokens": 5}, "has no type"),
    ("thinking", {"type": "enabled", "tokens": 5}, "is unknown"),
    ("thinking", {"type": "adaptive", "budget_tokens": 5}, "has budget_tokens"),
    ("thinking", {"type": "disabled", "display": "omitted"}, "has a display"),
    ("plugins", [{"type": "remote", "path": "/a"}], "is 'remote'"),
    ("plugins", [{"type": "local"}], "got NoneType"),
    ("plugins", [{"path": "/a", "url": "x"}], "is unknown"),
    ("agents", [AGENT], "is missing"),
    ("agents", {"a": {"description": "d"}}, "is missing"),
    ("agents", {"a": {**AGENT, "prompt": None}}, "got NoneType"),
    ("agents", {"a": {**AGENT, "maxTurns": 0}}, "is 0"),
    ("agents", {"a": {**AGENT, "colour": object()}}, "got object"),
    ("agents", {"a": {**AGENT, "extra": {"maxTurns": 1}}}, "contains maxTurns"),
    ("agents", {"a": {**AGENT, "extra": {"max_turns": 1}}}, "contains max_turns"),
    ("agents", {"a": {**AGENT, "extra": 5, "colour": "red"}}, "got int"),
    ("skills", "pdf", "must be a list of skill names or 'all', got 'pdf'"),
    ("skills", [5], "got int"),
    ("user", "", "is empty"),
    ("plugin_delivery", "post", "is 'post'"),
    ("mcp_config_delivery", "argv", "is 'argv'"),
    ("managed_settings", [], "got list"),
    ("tool_config", {"bash": {}}, "is unknown"),
    ("tool_config", {"ask_user_question": {"size": 5}}, "is unknown"),
    ("tool_config", {"askUserQuestion": {"previewFormat": 5}}, "got int"),
    ("extra_initialize", {"a": object()}, "got object"),
    ("extra_initialize", ["a"], "got list"),
    ("agents", {"a": 7}, "must be an AgentConfig or a mapping, got int"),
    ("agents", [{"name": "a", **AGENT}, {"name": "a", **AGENT}], "two agents named 'a'"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "problem"), BAD_CLI)
def test_a_bad_value_is_refused_by_name_with_a_fix(field: str, value: object, problem: str) -> None:
    """C42: nothing is spawned with a value the CLI would refuse, ignore or misread."""
    error = refused(CliOptions, **{field: value})
    assert error.field.startswith(field)
    assert problem in error.problem
    assert error.fix


def test_a_nested_mistake_is_named_where_it_stands() -> None:
    places = [
        refused(CliOptions, settings={"a": {"b": [1, {2}]}}),
        refused(CliOptions, agents={"x": {**AGENT, "max_turns": 0}}),
        refused(CliOptions, add_dirs=["/a", 7]),
        refused(SdkOptions, limits={"idle": 0}),
        refused(SdkOptions, limits={"idel": 1}),
        refused(SdkOptions, limits={1: 1}),
    ]
    assert [place.field for place in places] == [
        "settings.a.b[1]",
        "agents['x'].max_turns",
        "add_dirs[1]",
        "limits.idle",
        "limits.idel",
        "limits key",
    ]


def test_a_mapping_that_contains_itself_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless
    assert refused(CliOptions, settings=endless).problem.startswith("contains itself")


@pytest.mark.parametrize(
    ("env", "field", "problem"),
    [
        ({"A": 1}, "env['A']", "must be a string, got int"),
        ({"A": "\0"}, "env['A']", "has a NUL character"),
        ({"": "x"}, "env key", "is empty"),
        ({"A=B": "x"}, "env key", "contains '='"),
        ({1: "x"}, "env key", "must be a string, got int"),
        ({"CLAUDECODE": "1"}, "env['CLAUDECODE']", "is managed by Bridle"),
        (
            {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"},
            "env['CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING']",
            "is managed by Bridle",
        ),
    ],
)
def test_a_bad_variable_is_refused(env: object, field: str, problem: str) -> None:
    error = refused(CliOptions, env=env)
    assert (error.field, error.problem) == (field, problem)


@pytest.mark.parametrize(
    "rule",
    [
        "Read,Write",
        "Read Write",
        "Bash(f(x),Write,y)",
        "Bash(a) Write",
        "Bash(a),Write(b)",
        "Bash(unclosed",
        "(x)",
        " Read",
    ],
)
@pytest.mark.parametrize("field", ["allowed_tools", "disallowed_tools"])
def test_no_rule_can_smuggle_another(field: str, rule: str) -> None:
    """The CLI splits these; permitting one tool must not permit two."""
    assert refused(CliOptions, **{field: ["Read", rule]}).field == f"{field}[1]"


BAD_SDK: list[tuple[str, object]] = [
    ("max_buffer_size", 1023),
    ("max_unread_bytes", 0),
    ("control_timeout", 0),
    ("control_timeout", None),
    ("init_timeout", -1),
    ("limits", None),
    ("limits", 5),
    ("on_stderr", "print"),
    ("on_warning", 5),
    ("inherit_env", "PATH"),
    ("inherit_env", ["PATH=/bin"]),
    ("config_file", 5),
]


@pytest.mark.parametrize(("field", "value"), BAD_SDK)
def test_bad_behaviour_is_refused(field: str, value: object) -> None:
    assert refused(SdkOptions, **{field: value}).field.startswith(field)


@pytest.mark.parametrize("limit", ["first_event", "idle", "total", "turns", "usd"])
@pytest.mark.parametrize("value", [0, -1, math.nan, "5", True])
def test_a_limit_is_a_positive_number(limit: str, value: object) -> None:
    assert refused(Limits, **{limit: value}).field == limit


BAD_BIDIR: list[tuple[str, object, str]] = [
    ("on_can_use_tool", "yes", "got str"),
    ("on_pre_tool_use", 5, "got int"),
    ("transport_factory", 5, "got int"),
    ("hooks", {"Pre Tool": []}, "is 'Pre Tool'"),
    ("hooks", {5: []}, "got int"),
    ("hooks", {"PreToolUse": Hook(hook)}, "got Hook"),
    ("hooks", {"PreToolUse": [hook]}, "got function"),
    ("hooks", [Hook(hook)], "got list"),
    ("hook_timeouts", {"": 1}, "is empty"),
    ("hook_timeouts", {"Stop": -1}, "is -1"),
    ("callback_timeout", 0, "is 0"),
    ("permission_timeout", 0, "is 0"),
    ("mcp_servers", {"bad name": hook}, "is 'bad name'"),
    ("mcp_servers", {"a__b": hook}, "is 'a__b'"),
    ("mcp_servers", {"a": {"type": "stdio", "command": "x"}}, "is not an in-process server"),
    ("mcp_servers", {"a": None}, "is not an in-process server"),
    ("mcp_servers", [("a", hook), ("a", hook)], "two servers named 'a'"),
    ("mcp_servers", [("a", hook, 1)], "has an item that is not a (name, server) pair"),
    ("mcp_servers", ["ab"], "has an item that is not a (name, server) pair: 'ab'"),
    ("mcp_servers", "a", "got str"),
    ("file_checkpointing_enabled", "yes", "got str"),
    ("supported_dialog_kinds", ["a b"], "is 'a b'"),
    ("supported_dialog_kinds", ["x"], "needs a callback"),
    ("on_user_dialog", answer, "needs supported_dialog_kinds"),
]


@pytest.mark.parametrize(("field", "value", "problem"), BAD_BIDIR)
def test_a_bad_session_option_is_refused(field: str, value: object, problem: str) -> None:
    error = refused(BidirOptions, **{field: value})
    assert error.field.startswith(field)
    assert problem in error.problem
    assert error.fix


# ---------------------------------------------------------------- raw arguments


@pytest.mark.parametrize("flag", sorted(managed_flags()))
@pytest.mark.parametrize("form", ["{}", "{}=x"])
def test_a_flag_with_an_option_is_not_for_extra_args(flag: str, form: str) -> None:
    error = refused(CliOptions, extra_args=["--bare", form.format(flag)])
    assert (error.field, error.problem) == ("extra_args", f"contains {flag}")
    assert error.fix.startswith("Use ")


@pytest.mark.parametrize(
    "flag",
    [
        "--",
        "--print",
        "--verbose",
        "--input-format",
        "--output-format=json",
        "--replay-user-messages",
        "--dangerously-skip-permissions",
        "--bg",
        "--background",
        "--version",
        "--help",
    ],
)
def test_a_flag_of_the_protocol_is_not_for_extra_args(flag: str) -> None:
    error = refused(CliOptions, extra_args=[flag])
    assert (error.field, error.problem) == ("extra_args", f"contains {flag.partition('=')[0]}")


def test_the_most_common_flags_are_managed() -> None:
    """The list the check works with is the table, not a copy of it."""
    assert {
        "--model", "--resume", "--continue", "--session-id", "--mcp-config", "--settings",
        "--permission-prompt-tool", "--permission-mode", "--agents", "--json-schema",
        "--system-prompt", "--append-system-prompt", "--allowedTools", "--allowed-tools",
    } <= managed_flags().keys()  # fmt: skip


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["-p"], "has an invalid flag as item 0"),
        (["--bare", "-pc"], "has an invalid flag as item 1"),
        (["-r", UUID], "has an invalid flag as item 0"),
        (["-"], "has an invalid flag as item 0"),
        (["---model"], "has an invalid flag as item 0"),
        (["--mo\ndel=x"], "has an invalid flag as item 0"),
        (["update"], "has a value as item 0, but no flag before it"),
        (["--name=x", "update"], "has a value as item 1, but no flag before it"),
        (["--name", "x\0"], "a NUL character in item 1"),
        (["--name", "\ud800"], "surrogate"),
        (["--name", 5], "got int"),
        ("--bare", "got str"),
        ({"bare": None}, "got dict"),
    ],
)
def test_a_raw_argument_of_another_form_is_refused(args: object, problem: str) -> None:
    """C43."""
    error = refused(CliOptions, extra_args=args)
    assert error.field == "extra_args"
    assert problem in error.problem


def test_an_error_about_raw_arguments_shows_no_value() -> None:
    assert "secret" not in str(refused(CliOptions, extra_args=["--a=1", "secret"]))
    assert "secret" not in str(refused(CliOptions, extra_args=["--model=secret"]))


@pytest.mark.parametrize(
    "name",
    sorted(
        {"plugins", "subtype"}
        | {
            row.channel.name
            for cls in (CliOptions, BidirOptions)
            for row in cls.fields.values()
            if row.channel.kind == "initialize"
        }
    ),
)
def test_extra_initialize_rejects_a_field_that_bridle_sets(name: str) -> None:
    error = refused(CliOptions, extra_initialize={"new": 1, name: "secret"})
    assert (error.field, error.problem) == ("extra_initialize", f"contains {name}")
    assert error.fix.startswith(("Use ", "Remove it"))
    assert "secret" not in str(error)


# ---------------------------------------------------------------- contradictions


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("resume_session_id", {"resume_session_id": UUID, "continue_session": True}),
        ("fork_session", {"fork_session": True}),
        ("session_id", {"session_id": UUID, "resume_session_id": UUID}),
        ("session_id", {"session_id": UUID, "continue_session": True}),
        ("resume_session_at", {"resume_session_at": "m"}),
        ("resume_session_at", {"resume_session_at": "m", "continue_session": True}),
        ("resume_drops_turn", {"resume_drops_turn": "m", "resume_session_id": UUID}),
        ("system_prompt", {"system_prompt": "", "system_prompt_file": "/p"}),
        ("thinking", {"thinking": "adaptive", "max_thinking_tokens": 0}),
        ("client_app", {"client_app": "a/1", "env": {"CLAUDE_AGENT_SDK_CLIENT_APP": "b/1"}}),
        (
            "tool_config",
            {
                "tool_config": {"ask_user_question": {"preview_format": "html"}},
                "env": {"CLAUDE_CODE_QUESTION_PREVIEW_FORMAT": "markdown"},
            },
        ),
    ],
)
def test_a_contradiction_inside_a_record_is_refused(field: str, given: dict[str, Any]) -> None:
    error = refused(CliOptions, **given)
    assert error.field == field
    assert error.fix


@pytest.mark.parametrize(
    "given",
    [
        {"resume_session_id": UUID, "continue_session": False},
        {"resume_session_id": UUID, "fork_session": True, "session_id": UUID},
        {"continue_session": True, "fork_session": True},
        {"resume_session_id": UUID, "resume_session_at": "m", "resume_drops_turn": "n"},
        {"system_prompt": "a", "append_system_prompt": "b"},
        {"allowed_tools": ["Read"], "disallowed_tools": ["Bash"]},
        {"client_app": "a/1", "env": {"A": "1"}},
    ],
)
def test_what_only_looks_like_a_contradiction_is_accepted(given: dict[str, Any]) -> None:
    assert dict(CliOptions(**given).given()).keys() == given.keys()


@pytest.mark.parametrize("handler", ["on_can_use_tool", "on_question", "on_plan"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("permission_prompt_tool_name", "mcp__a__b"),
        ("permission_prompts", "none"),
        ("permission_prompts", "cli"),
    ],
)
def test_permissions_are_answered_in_one_place(handler: str, field: str, value: Any) -> None:
    """C33: two who answer are a contradiction."""
    bidir = BidirOptions(**{handler: answer})  # type: ignore[arg-type]  # each accepts it
    cli = CliOptions(**{field: value})
    with pytest.raises(OptionsError) as caught:
        check_session(cli, bidir)
    assert caught.value.field == field
    assert handler in caught.value.problem


def test_naming_the_pipe_as_the_permission_tool_is_allowed() -> None:
    check_session(
        CliOptions(permission_prompt_tool_name="stdio", permission_prompts="host"),
        BidirOptions(on_can_use_tool=answer),
    )
    check_session(CliOptions(permission_prompt_tool_name="mcp__a__b"), BidirOptions())


def test_a_server_name_stands_for_one_server() -> None:
    config: Mapping[str, object] = {"mcpServers": {"calc": {"command": "x"}}}
    bidir = BidirOptions(mcp_servers={"other": hook, "calc": hook})
    with pytest.raises(OptionsError, match="'calc'") as caught:
        check_session(CliOptions(mcp_config=config), bidir)
    assert caught.value.field == "mcp_servers"
    check_session(CliOptions(mcp_config="calc.json"), bidir)
    check_session(CliOptions(mcp_config=config), BidirOptions(mcp_servers={"other": hook}))


# ---------------------------------------------------------------- hooks and servers


def test_the_single_callback_of_an_event_comes_before_its_list() -> None:
    """R084, R289: both forms side by side."""
    listed = Hook(answer, matcher="Bash")
    other = Hook(answer)
    bidir = BidirOptions(
        on_pre_tool_use=hook,
        on_stop=hook,
        hooks={"PreToolUse": [listed, other], "SessionEnd": [other], "Stop": [], "Setup": []},
    )
    assert bidir.all_hooks() == {
        "PreToolUse": (Hook(hook), listed, other),
        "Stop": (Hook(hook),),
        "SessionEnd": (other,),
    }
    assert BidirOptions().all_hooks() == {}


@pytest.mark.parametrize(
    ("option", "event"),
    [
        pytest.param("on_pre_tool_use", "PreToolUse", marks=pytest.mark.requirement("R062")),
        pytest.param("on_post_tool_use", "PostToolUse", marks=pytest.mark.requirement("R063")),
        pytest.param(
            "on_user_prompt_submit", "UserPromptSubmit", marks=pytest.mark.requirement("R064")
        ),
        pytest.param("on_stop", "Stop", marks=pytest.mark.requirement("R065")),
        pytest.param("on_subagent_stop", "SubagentStop", marks=pytest.mark.requirement("R066")),
        pytest.param("on_pre_compact", "PreCompact", marks=pytest.mark.requirement("R067")),
    ],
)
def test_each_single_callback_has_its_event(option: str, event: str) -> None:
    """R263, R280."""
    bidir = BidirOptions(**{option: hook})  # type: ignore[arg-type]  # all six are hooks
    assert bidir.all_hooks() == {event: (Hook(hook),)}


@pytest.mark.parametrize("given", [{"a": hook, "b": answer}, [("a", hook), ("b", answer)]])
def test_servers_keep_their_order(given: Any) -> None:
    """R069, R089: a mapping or pairs."""
    bidir = BidirOptions(mcp_servers=given)
    assert bidir.server_names() == ("a", "b")
    assert bidir.mcp_servers == {"a": hook, "b": answer}
    assert BidirOptions().server_names() == ()


def test_tool_servers_are_distinguished_from_other_servers() -> None:
    first, second = ToolServer([]), ToolServer([])
    bidir = BidirOptions(mcp_servers={"b": first, "raw": answer, "a": second})
    assert list(bidir.tool_servers().items()) == [("b", first), ("a", second)]
    assert BidirOptions().tool_servers() == {}


def test_an_event_can_have_a_timeout_of_its_own() -> None:
    """R072."""
    bidir = BidirOptions(callback_timeout=5.0, hook_timeouts={"PreToolUse": 1.5})
    assert (bidir.callback_timeout, bidir.hook_timeouts) == (5.0, {"PreToolUse": 1.5})


def test_a_number_beyond_all_measure_is_refused_like_infinity() -> None:
    endless: Any = 10**5000
    for refused in (
        lambda: SdkOptions(control_timeout=endless),
        lambda: Hook(print, timeout=endless),
        lambda: prepare_operation("interrupt", {}, endless),
    ):
        with pytest.raises(OptionsError, match="timeout is inf"):
            refused()
