"""Turn options into a process launch: arguments, environment, private files and the handshake.

The tables of the option records say which channel each option uses. This module encodes each value
for its channel. Two rules always hold. A value never becomes an argument of its own: every argument
is `--flag` or `--flag=value`. Possible secrets never go on the command line, which every user of
the machine can read: prompts, agents and schemas travel in the handshake, settings and server
configurations in private files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec

from bridle._process.launch.spellings import (
    FLAGS,
    given_fields,
    join_arguments,
    plain,
    spell_agent,
    spell_plugin,
    spell_variable,
)
from bridle._records.fields import Record, is_list, is_mapping, json_object
from bridle.errors._redaction import secret_variables, secrets_in
from bridle.options import (
    GATE_VARIABLES,
    STDIO,
    AgentConfig,
    BidirOptions,
    CliOptions,
    SdkOptions,
    check_session,
    check_store,
    managed_flags,
)
from bridle.options._checks import UUID
from bridle.tools import ToolServer

# Flags of every session and query. The CLI requires `--verbose` for stream-json.
_QUERY_FLAGS = ("--output-format=stream-json", "--input-format=stream-json", "--verbose")
_SESSION_FLAGS = (*_QUERY_FLAGS, "--replay-user-messages")

# A CLI sets these for processes that it starts. Our session is not part of that CLI's session.
_OUTER_SESSION = (
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_SESSION_ATTENDED",
    "CLAUDE_PID",
    "CLAUDE_EFFORT",
)
_MANIFESTS = "sdkMcpServerManifests"
_AWAIT_INITIALIZE = "--await-initialize"
_AWAIT_CLAIM = "--await-claim"
_MIRROR, _RESUME_FLAG, _CONTINUE, _FORK, _SESSION_ID = (
    CliOptions.fields[name].channel.name
    for name in (
        "session_mirror",
        "resume_session_id",
        "continue_session",
        "fork_session",
        "session_id",
    )
)
_RESUMED = f"{_RESUME_FLAG}="
_NAMED = f"{_SESSION_ID}="
_RESUME = (_RESUME_FLAG, _CONTINUE)
_CHECKPOINTING = BidirOptions.fields["file_checkpointing_enabled"].channel.name


class LaunchFile(msgspec.Struct, frozen=True):
    """A file to write with mode 0600 before the CLI starts, and to remove when it ends.

    `token` stands for its path in the arguments. It contains a NUL, which option values cannot
    contain. So it is unique, and an argument with an unreplaced token cannot be executed.
    """

    token: str
    suffix: str
    content: bytes


class ResumedCall(msgspec.Struct, frozen=True):
    """How a CLI is started that resumes a tool call which waits for approval.

    The CLI continues the turn when it starts, so that in-process MCP servers must be on the command
    line. Newer CLIs can wait for the handshake, and then ask for the hooks of the call. For older
    ones a rule makes sure that they ask for permission before they run the tool, and they read the
    system prompts from files.
    """

    tool_name: str
    #: True if the CLI can wait for the handshake.
    awaits_initialize: bool


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the shell needs to start the CLI and send the handshake.

    `session_id` is the id that the session will have, if it is known beforehand. `initialize` holds
    the fields of the handshake without its subtype.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    unset_env: tuple[str, ...]
    inherit_env: bool | tuple[str, ...]
    cwd: str | None
    files: tuple[LaunchFile, ...]
    initialize: dict[str, object]
    session_id: str | None
    #: The system user that the CLI runs as. None for the user of this process.
    user: str | None = None
    #: The id of the conversation that the CLI writes. None if it is not known, or not saved.
    writes_id: str | None = None
    #: A private directory with a conversation to resume, removed when the CLI ends. Or empty.
    directory: str = ""
    #: The version of the CLI from which on it understands an option, by the name of the option.
    needs: Mapping[str, str] = {}

    def arguments(self, paths: Mapping[str, str]) -> tuple[str, ...]:
        """Return the arguments with each token replaced by the path of its file."""
        return tuple(
            next(
                (arg.replace(token, path) for token, path in paths.items() if arg.endswith(token)),
                arg,
            )
            for arg in self.argv
        )

    def resuming(self, session_id: str, path: str, directory: str) -> Launch:
        """Return a copy that resumes the conversation in a file, which is below ``directory``.

        ``session_id`` is the id of the conversation.
        """
        argv = [arg for arg in self.argv if arg not in _RESUME and not arg.startswith(_RESUMED)]
        is_fork = _FORK in self.argv
        return msgspec.structs.replace(
            self,
            argv=(*argv, f"{_RESUMED}{path}"),
            session_id=self.session_id if is_fork else session_id,
            writes_id=self.writes_id if is_fork else session_id,
            directory=directory,
        )

    def starting(self, session_id: str) -> Launch:
        """Return a copy that starts a new conversation instead of the last one of the directory.

        ``session_id`` is its id, unless the options have one.
        """
        argv = [arg for arg in self.argv if arg not in (_CONTINUE, _FORK)]
        if self.session_id is not None:
            return msgspec.structs.replace(self, argv=tuple(argv))
        return msgspec.structs.replace(
            self,
            argv=(*argv, f"{_SESSION_ID}={session_id}"),
            session_id=session_id,
            writes_id=session_id,
        )

    def awaiting_claim(self) -> Launch:
        """Return a copy for a CLI that starts nothing until a session claims it."""
        return msgspec.structs.replace(self, argv=(*self.argv, _AWAIT_CLAIM))

    @property
    def awaits_claim(self) -> bool:
        """Return True if the CLI has to be claimed before the first prompt."""
        return _AWAIT_CLAIM in self.argv

    def in_process_of(self, started: Launch) -> Launch | None:
        """Return a copy for the process of another launch, which has not got its handshake yet.

        Return None if the process has other options. Only the id of the session may differ, and
        the working directory if the process can be claimed.
        """
        is_moved = self.cwd != started.cwd
        if is_moved and (not started.awaits_claim or _names_relative_path(self)):
            return None
        ours, theirs = (
            (_shared(one.argv), one.env, one.unset_env, one.inherit_env, one.files, one.user)
            for one in (self, started)
        )
        if ours != theirs:
            return None
        return msgspec.structs.replace(
            self, argv=started.argv, session_id=started.session_id, writes_id=started.writes_id
        )

    def without_mirror(self) -> Launch:
        """Return a copy for a CLI that cannot report what it adds to its transcripts."""
        return msgspec.structs.replace(self, argv=tuple(a for a in self.argv if a != _MIRROR))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the CLI's whole environment, made from the environment of this process."""
        allowed = environ if self.inherit_env is True else self.inherit_env or ()
        inherited = {
            name: environ[name]
            for name in allowed
            if name in environ and name not in self.unset_env
        }
        return inherited | dict(self.env)


def plan_session(
    cli: CliOptions,
    sdk: SdkOptions,
    bidir: BidirOptions,
    *,
    session_id: str,
    hooks: Mapping[str, object] | None = None,
    manifests: Mapping[str, object] | None = None,
    settings_text: bytes | None = None,
    resumed: ResumedCall | None = None,
) -> Launch:
    """Plan a full-duplex session. A new conversation gets the id `session_id`.

    `hooks` is the handshake's field about the registered hooks, `manifests` the one about the MCP
    servers whose tools are known; CLIs that do not know this field ignore it. `settings_text` is
    the content of the file that `file_to_read(cli, bidir, hooks=...)` returns, if any. Settings
    files of the user and the project could switch off the program's gates. Such settings are
    overridden here. `resumed` is the tool call that the session resumes, if any.
    """
    check_session(cli, bidir)
    check_store(cli, sdk)
    ours: dict[str, object] = {}
    if sdk.store is not None:
        ours["session_mirror"] = True
    rules = ask_rules(bidir.tool_servers())
    if resumed is not None and not resumed.awaits_initialize:
        rules = [*rules, resumed.tool_name]
    if hooks or rules:
        settings = _settings(cli, settings_text)
        if hooks:
            settings = _with_hooks_on(cli, settings)
        ours["settings"] = _with_ask_rules(settings, rules) if rules else settings
    asks = bidir.on_can_use_tool is not None or "PermissionRequest" in (hooks or {})
    if asks and cli.permission_mode is None and not _has_default_mode(cli, settings_text):
        ours["permission_mode"] = "default"
    if cli.permission_prompt_tool_name is None and cli.permission_prompts != "cli":
        ours["permission_prompt_tool_name"] = STDIO
    resumes = cli.resume_session_id is not None or cli.continue_session
    if cli.session_id is None and (cli.fork_session or not resumes):
        ours["session_id"] = session_id
    greeting: dict[str, object] = {}
    if hooks:
        greeting["hooks"] = dict(hooks)
    if bidir.server_names():
        greeting["sdkMcpServers"] = list(bidir.server_names())
    if bidir.supported_dialog_kinds:
        greeting["supportedDialogKinds"] = list(bidir.supported_dialog_kinds)
    if manifests:
        greeting[_MANIFESTS] = dict(manifests)
    launch = _launch(
        _SESSION_FLAGS, cli.replace(**ours), sdk, greeting, _variables(bidir), settings_text
    )
    return launch if resumed is None else _resuming(launch, resumed, bidir)


def plan_query(cli: CliOptions, sdk: SdkOptions, *, settings_text: bytes | None = None) -> Launch:
    """Plan a one-way query, without hooks, permission requests or MCP servers."""
    return _launch(_QUERY_FLAGS, cli, sdk, {}, {}, settings_text)


def file_to_read(
    cli: CliOptions, bidir: BidirOptions | None = None, *, hooks: object = None
) -> str | None:
    """Return the settings file whose content planning needs, or None.

    `hooks` are the hooks of the session, if it has any.
    """
    asks = bidir is not None and bidir.on_can_use_tool is not None
    has_rules = bidir is not None and ask_rules(bidir.tool_servers())
    is_needed = hooks or asks or has_rules or cli.sandbox is not None
    return named_files(cli).get("settings") if is_needed else None


def ask_rules(servers: Mapping[str, ToolServer]) -> list[str]:
    """Return the permission rules that make the CLI ask before it calls tools with `ask=True`.

    Such a rule is stronger than rules that allow the tool, than hooks that allow it and than the
    mode `bypassPermissions`.
    """
    return [f"mcp__{name}__{tool}" for name, one in servers.items() for tool in one.asking()]


def anchored_settings(text: bytes, directory: str) -> bytes:
    """Return the content of a settings file for a copy in another directory.

    The CLI reads `Read(/docs/**)` as a path below the directory of the file. Such rules are
    rewritten with the absolute path, which begins with two slashes.
    """
    settings = json_object("settings", text.decode("utf-8-sig", "replace"))
    permissions = settings.get("permissions")
    if not is_mapping(permissions):
        return text
    anchored = {
        name: [_anchored(rule, directory) for rule in rules] if is_list(rules) else rules
        for name, rules in permissions.items()
    }
    return msgspec.json.encode({**settings, "permissions": anchored})


def _anchored(rule: object, directory: str) -> object:
    found = re.fullmatch(r"(\w+)\(/(?!/)(.*)\)", rule, re.DOTALL) if isinstance(rule, str) else None
    if found is None:
        return rule
    return f"{found[1]}(//{directory.strip('/')}/{found[2]})"


def named_files(cli: CliOptions) -> dict[str, str]:
    """Return the files that the CLI needs at its start: the path of each by option."""
    values = {row.name: value for row, value in given_fields(cli, "document")}
    values["system_prompt_file"] = cli.system_prompt_file
    place = cast("str | None", cli.cwd)
    return {
        name: _seen_from(place, value) for name, value in values.items() if isinstance(value, str)
    }


def redact(argv: Sequence[str]) -> tuple[str, ...]:
    """Return arguments for an error message, without values of unknown flags or rules."""
    known = {*managed_flags(), *(flag.partition("=")[0] for flag in _SESSION_FLAGS)}
    return tuple(_redacted(arg, known) for arg in argv)


def secrets(launch: Launch) -> Iterator[str]:
    """Yield every value of a launch that is or may be a secret."""
    yield from secret_variables(launch.env, given=True)
    # Manifests hold schemas, in which a property named `token` has a description, not a secret.
    fields = {name: value for name, value in launch.initialize.items() if name != _MANIFESTS}
    yield from secrets_in(fields)
    for file in launch.files:
        if file.suffix == ".json":
            yield from secrets_in(msgspec.json.decode(file.content))
    known = {*managed_flags(), *(flag.partition("=")[0] for flag in _SESSION_FLAGS)}
    values = (arg.partition("=") for arg in launch.argv)
    unknown = {name: value for name, _, value in values if name not in known}
    yield from secret_variables(unknown, given=True)


def named_documents(launch: Launch) -> dict[str, str]:
    """Return, by flag, the paths of settings and configuration files that the CLI reads itself."""
    flags = {
        row.channel.name for row in CliOptions.fields.values() if row.channel.kind == "document"
    }
    values = (arg.partition("=") for arg in launch.argv)
    return {
        flag: _seen_from(launch.cwd, path)
        for flag, _, path in values
        if flag in flags and "\0" not in path
    }


def _shared(argv: Sequence[str]) -> list[str]:
    """Return the arguments that sessions with the same options share."""
    return [arg for arg in argv if arg != _AWAIT_CLAIM and not arg.startswith(_NAMED)]


def _names_relative_path(launch: Launch) -> bool:
    """Return True if an option is a path that depends on the working directory.

    An argument that Bridle does not know may be one.
    """
    ours = {flag.partition("=")[0] for flag in _SESSION_FLAGS}
    known = {*managed_flags(), *ours, _AWAIT_INITIALIZE}
    for arg in launch.argv:
        name, _, value = arg.partition("=")
        if name not in known or (name in _PATH_FLAGS and not value.startswith(("/", "\0"))):
            return True
    plugins = launch.initialize.get("plugins")
    return is_list(plugins) and any(
        is_mapping(one) and not str(one.get("path")).startswith("/") for one in plugins
    )


_PATH_FLAGS = {
    flag
    for name, row in CliOptions.fields.items()
    if "StrPath" in CliOptions.__annotations__[name]
    for flag in (row.channel.name, *row.channel.also)
}


def _seen_from(cwd: str | None, path: str) -> str:
    """Resolve a path as the CLI does: against its working directory, without expanding `~`."""
    return path if cwd is None or path.startswith("/") else f"{cwd.rstrip('/')}/{path}"


def _redacted(arg: str, known: set[str]) -> str:
    name, equals, value = arg.partition("=")
    if not arg.startswith("--"):
        return "..."
    if not equals:
        return name
    if name not in known or "\0" in value:
        return f"{name}=..."
    return re.sub(r"\(.*\)", "(...)", arg) if name in _RULE_FLAGS else arg


_RULE_FLAGS = {
    CliOptions.fields[name].channel.name for name in ("allowed_tools", "disallowed_tools")
}


# ---------------------------------------------------------------- reading the tables


def _launch(
    base: tuple[str, ...],
    cli: CliOptions,
    sdk: SdkOptions,
    greeting: Mapping[str, object],
    variables: Mapping[str, str],
    settings_text: bytes | None,
) -> Launch:
    """Build the parts that sessions and queries share."""
    where: list[str] = []
    files: list[LaunchFile] = []
    for flag, content in _documents(cli, settings_text).items():
        if isinstance(content, str):
            where.append(f"{flag}={content}")
        else:
            files.append(LaunchFile(f"\0{flag}", ".json", content))
            where.append(f"{flag}=\0{flag}")
    named = None if cli.fork_session else cli.resume_session_id
    session_id = cli.session_id or (named if named and re.fullmatch(UUID, named) else None)
    # A transcript file has the name of its session, which is locked while the CLI appends to it.
    resumed = re.fullmatch(rf".*/({UUID})\.jsonl", named or "")
    return Launch(
        argv=(*base, *_flags(cli), *where, *join_arguments(cli.extra_args or ())),
        env={"CLAUDE_CODE_ENTRYPOINT": "sdk-py", **_variables(cli), **variables, **(cli.env or {})},
        unset_env=(*_OUTER_SESSION, _CHECKPOINTING, *GATE_VARIABLES),
        inherit_env=cast("bool | tuple[str, ...]", sdk.inherit_env),
        cwd=cast("str | None", cli.cwd),
        files=tuple(files),
        initialize={**_initialize(cli), **greeting},
        session_id=session_id,
        writes_id=None if cli.no_session_persistence else resumed[1] if resumed else session_id,
        user=cli.user,
        needs={name: version for name, version in _SINCE.items() if getattr(cli, name)},
    )


def _resuming(launch: Launch, resumed: ResumedCall, bidir: BidirOptions) -> Launch:
    """Return the launch of a session that resumes a tool call."""
    argv, files = launch.argv, launch.files
    if resumed.awaits_initialize and _AWAIT_INITIALIZE not in argv:
        argv = (*argv, _AWAIT_INITIALIZE)
    if names := bidir.server_names():
        servers = {name: {"type": "sdk", "name": name} for name in names}
        flag = CliOptions.fields["mcp_config"].channel.name
        file = LaunchFile(f"\0{flag}\0", ".json", msgspec.json.encode({"mcpServers": servers}))
        argv, files = (*argv, f"{flag}={file.token}"), (*files, file)
    if not resumed.awaits_initialize:
        for flag, text in _prompt_files(launch.initialize):
            file = LaunchFile(f"\0{flag}", ".txt", text.encode(errors="replace"))
            argv, files = (*argv, f"{flag}={file.token}"), (*files, file)
    return msgspec.structs.replace(launch, argv=argv, files=files)


def _prompt_files(initialize: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the system prompts of the handshake, each with the flag for its file."""
    for row in (CliOptions.fields["system_prompt"], CliOptions.fields["append_system_prompt"]):
        prompt = initialize.get(row.channel.name)
        prompt = "\n\n".join(map(str, prompt)) if is_list(prompt) else prompt
        if isinstance(prompt, str):
            yield f"--{row.name.replace('_', '-')}-file", prompt


# Options that older CLIs ignore without an error, and the first version that is known to have them.
_SINCE = dict.fromkeys(("system_prompt", "append_system_prompt"), "2.1.197")


def _flags(cli: CliOptions) -> Iterator[str]:
    plugins_on_argv = cli.plugin_delivery != "initialize"
    late_plugins = cli.plugins and not plugins_on_argv
    if cli.managed_settings is not None or late_plugins or _late_servers(cli) is not None:
        # The CLI needs them when it starts, so it has to wait for the handshake.
        yield _AWAIT_INITIALIZE
    if cli.managed_settings is not None:
        yield "--managed-settings-in-initialize"
    for row, value in given_fields(cli, "flag", "each"):
        if row.name == "plugins" and not plugins_on_argv:
            continue
        if row.name in FLAGS:
            yield from FLAGS[row.name](value)
        elif row.channel.kind == "each" and is_list(value):
            yield from (f"{row.channel.name}={item}" for item in value)
        elif value is True:
            yield row.channel.name
        else:  # an empty list is passed too: it means no tools, no settings files
            words = ",".join(map(str, value)) if is_list(value) else value
            yield f"{row.channel.name}={words}"


def _variables(record: Record) -> dict[str, str]:
    return {
        row.channel.name: word
        for row, value in given_fields(record, "variable")
        if (word := spell_variable(row.name, value)) is not None
    }


def _initialize(cli: CliOptions) -> dict[str, object]:
    fields = cast("dict[str, object]", plain(cli.extra_initialize or {}))
    for row, value in given_fields(cli, "initialize"):
        if row.name == "agents":
            agents = cast("Sequence[AgentConfig]", value)
            if agents:
                fields["agents"] = {agent.name: spell_agent(agent) for agent in agents}
        elif value != "all" or row.name != "skills":  # all skills: the field is left out
            fields[row.channel.name] = plain(value)
    if cli.plugins and cli.plugin_delivery == "initialize":
        fields["plugins"] = [spell_plugin(plugin) for plugin in cli.plugins]
    if (servers := _late_servers(cli)) is not None:
        fields["mcpServers"] = plain(servers)
    return fields


def _late_servers(cli: CliOptions) -> object:
    """Return the MCP servers that travel in the handshake, or None."""
    config = cli.mcp_config
    if cli.mcp_config_delivery != "initialize" or not is_mapping(config):
        return None
    return config["mcpServers"]


def _documents(cli: CliOptions, settings_text: bytes | None) -> dict[str, str | bytes]:
    """Return, by flag, the path that the caller gave or the content of a private file."""
    values = {row.channel.name: value for row, value in given_fields(cli, "document")}
    if _late_servers(cli) is not None:
        del values[CliOptions.fields["mcp_config"].channel.name]
    inside = {row.channel.name: value for row, value in given_fields(cli, "settings")}
    if inside:
        flag = CliOptions.fields["settings"].channel.name
        values[flag] = {**_settings(cli, settings_text), **inside}
    return {
        flag: value if isinstance(value, str) else msgspec.json.encode(plain(value))
        for flag, value in values.items()
    }


def _with_ask_rules(settings: Mapping[str, object], rules: list[str]) -> Mapping[str, object]:
    """Return the settings with more rules about tools that the CLI must ask about."""
    given = settings.get("permissions")
    permissions: dict[object, object] = dict(given) if is_mapping(given) else {}
    listed = permissions.get("ask")
    permissions["ask"] = [*(listed if is_list(listed) else ()), *rules]
    return {**settings, "permissions": permissions}


def _with_hooks_on(cli: CliOptions, settings: Mapping[str, object]) -> Mapping[str, object]:
    """Return the caller's settings with the variables overridden that make the CLI skip hooks.

    2.1.197 takes these variables from the settings of user, project and directory, 2.1.325 from
    those of the user. Settings on the command line win over these, even if a file changes later.
    """
    given = settings.get("env")
    env: dict[object, object] = dict(given) if is_mapping(given) else {}
    own = cli.env or {}
    return {**settings, "env": env | {name: own.get(name, "0") for name in GATE_VARIABLES}}


def _has_default_mode(cli: CliOptions, settings_text: bytes | None) -> bool:
    """Return True if the caller's own settings choose the permission mode to start in."""
    permissions = _settings(cli, settings_text).get("permissions")
    return is_mapping(permissions) and "defaultMode" in permissions


def _settings(cli: CliOptions, settings_text: bytes | None) -> Mapping[str, object]:
    """Return the caller's settings as an object."""
    if "settings" not in named_files(cli):
        return cast("Mapping[str, object]", cli.settings or {})
    if settings_text is None:
        raise ValueError("settings_text is missing: read file_to_read(cli) first")
    return json_object("settings", settings_text.decode("utf-8-sig", "replace"))
