"""Rewrite expressions that use the official SDK as the native Bridle form."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from bridle.cli._port.matchers import (
    SEVERAL_HOOKS,
    flat,
    guards_of,
    hooks_of,
    needs_parallel,
    parts_of,
)
from bridle.cli._port.names import CONVERSATION, METHODS, NAMES, OPTIONS, RESULTS, UPDATES

Keywords: TypeAlias = dict[str, ast.expr]

SDK = "claude_agent_sdk"
CLIENT, AGENT, SESSION, TURN = "ClaudeSDKClient", "agent", "session", "turn"

_REPLAY = "replay-user-messages"  # sessions of Bridle always set this flag

_AGENT_FIELDS = {
    "disallowedTools": "disallowed_tools",
    "initialPrompt": "initial_prompt",
    "maxTurns": "max_turns",
    "mcpServers": "mcp_servers",
    "permissionMode": "permission_mode",
}
_SPECIFIC = {
    "additionalContext": "additional_context",
    "permissionDecision": "permission_decision",
    "permissionDecisionReason": "permission_decision_reason",
    "updatedInput": "updated_input",
    "updatedMCPToolOutput": "updated_mcp_tool_output",
    "updatedToolOutput": "updated_tool_output",
}
_OUTPUT = {
    "continue_": "continue_turn",
    "decision": "decision",
    "reason": "reason",
    "stopReason": "stop_reason",
    "suppressOutput": "suppress_output",
    "systemMessage": "system_message",
}


class Imports:
    """The names by which a program knows the official SDK."""

    def __init__(self, tree: ast.AST) -> None:
        self._names: dict[str, str] = {}
        self._modules: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if is_sdk(alias.name):
                        self._modules.add(alias.asname or alias.name)
            elif isinstance(node, ast.ImportFrom) and is_sdk(node.module or ""):
                for alias in node.names:
                    if alias.name in ("types", "testing"):
                        self._modules.add(alias.asname or alias.name)
                    elif alias.name == "*":
                        self._names |= {name: name for name in NAMES}
                    else:
                        self._names[alias.asname or alias.name] = alias.name

    def __bool__(self) -> bool:
        """Return whether the program imports the SDK."""
        return bool(self._names or self._modules)

    def official(self, node: ast.AST | None) -> str:
        """Return the official name that an expression means; "" if it means something else."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, "")
        if isinstance(node, ast.Attribute) and self._is_module(node.value):
            return node.attr if node.attr in NAMES else ""
        return ""

    def _is_module(self, node: ast.expr) -> bool:
        text = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        return text in self._modules or any(
            text == f"{module}.{part}" for module in self._modules for part in ("types", "testing")
        )


def is_sdk(module: str) -> bool:
    """Return whether a module belongs to the official SDK."""
    return module == SDK or module.startswith(f"{SDK}.")


class Rewriter(ast.NodeTransformer):
    """Replaces uses of the official SDK, and collects what the reader must know about them.

    `variables` are the expressions that are clients or options, such as ``self._client``, with
    what to write in their place: ``session`` or ``agent``.
    `parameters` says what to write in place of a parameter of the callback that is rewritten.
    `may_await` is False outside coroutines.
    """

    def __init__(
        self,
        imports: Imports,
        variables: Mapping[str, str],
        parameters: Mapping[str, str] | None = None,
        *,
        may_await: bool = True,
    ) -> None:
        self._imports = imports
        self._variables = variables
        self._parameters = parameters or {}
        self.may_await = may_await
        #: The event whose matchers are rewritten. None: not known.
        self.event: str | None = None
        #: True while a matcher is rewritten that is an element of a list.
        self.is_listed = False
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text and text not in self.notes:
            self.notes.append(text)

    # ------------------------------------------------------------ names

    def visit_Name(self, node: ast.Name) -> ast.expr:  # ast names it
        """Replace a name."""
        if node.id in self._parameters:
            return _parsed(self._parameters[node.id])
        if node.id in self._variables:
            return _name(self._variables[node.id])
        return self._renamed(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace ``sdk.name``, and a client that is an attribute."""
        text = ast.unparse(node)
        if text in self._variables:
            return _name(self._variables[text])
        renamed = self._renamed(node)
        if renamed is not node:
            return renamed
        self.generic_visit(node)
        return node

    def _renamed(self, node: ast.expr) -> ast.expr:
        official = self._imports.official(node)
        native = NAMES.get(official)
        if native is None:
            return node
        self.note(native.note and f"{native.name or official}: {native.note}")
        return _name(native.name) if native.name else node

    # ------------------------------------------------------------ parameters of callbacks

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Replace ``input_data["tool_name"]`` with ``ctx.tool_name``."""
        field = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if self._is_input(node.value) and isinstance(field, str) and field.isidentifier():
            return ast.Attribute(_name("ctx"), field, ast.Load())
        self.generic_visit(node)
        return node

    def _is_input(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self._parameters.get(node.id) == "ctx.raw"

    # ------------------------------------------------------------ calls

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace a call of the SDK."""
        method = self._method(node)
        if method is not None:
            return method
        form = _FORMS.get(self._imports.official(node.func))
        if form is None:
            self.generic_visit(node)
            return node
        node.args = [self.visit(one) for one in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        try:
            return form(self, node)
        except _Unclear:
            node.func = self.visit(node.func)
            return node

    def _method(self, node: ast.Call) -> ast.expr | None:
        function = node.func
        copies = ast.unparse(function) in ("replace", "dataclasses.replace")
        if copies and node.args and self._is(AGENT, node.args[0]):
            options = self.visit(ast.Call(_name("Agent"), [], node.keywords))
            return _call(f"{AGENT}.replace", [], _options(self, options).keywords)
        if not isinstance(function, ast.Attribute):
            return None
        if function.attr == "get" and self._is_input(function.value) and node.args:
            field = node.args[0]
            if isinstance(field, ast.Constant) and str(field.value).isidentifier():
                return ast.Attribute(_name("ctx"), str(field.value), ast.Load())
        if not self._is(SESSION, function.value):
            return None
        node.args = [self.visit(one) for one in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        if function.attr == "receive_response":
            self.note("turn is what send_user_message returned; `await turn` is its outcome.")
            return _name(TURN)
        if function.attr == "connect":
            return _call(METHODS["query"], node.args) if node.args else _name(SESSION)
        if function.attr in ("get_context_usage", "get_mcp_status"):
            self.note("The reply is a record. Its attribute raw is the dictionary.")
        if function.attr == "query" and node.args and isinstance(node.args[0], ast.Call):
            self.note("send_user_message takes text or blocks. Send each prompt of an iterable.")
        if function.attr == "get_server_info":
            return _parsed("session.server_info")
        if function.attr == "query" and any(one.arg == "session_id" for one in node.keywords):
            self.note("One session is one conversation: start a session for each session_id.")
            node.keywords = [one for one in node.keywords if one.arg != "session_id"]
        if function.attr not in METHODS:
            return None
        return _call(METHODS[function.attr], node.args, node.keywords)

    # ------------------------------------------------------------ statements and dictionaries

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Keep the turn that a prompt starts."""
        method = _awaited_method(node.value) if self._is_client_call(node.value) else ""
        self.generic_visit(node)
        if method == "connect" and isinstance(node.value, ast.Name):
            self.note("Remove it: the session is connected already.")
            return ast.Pass()
        if method in ("connect", "query"):
            return ast.Assign([_name(TURN)], node.value, lineno=node.lineno)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Replace ``options.model = x``: an agent is frozen."""
        match node.targets:
            case [ast.Attribute(value=owner, attr=name)] if self._is(AGENT, owner):
                option = OPTIONS.get(name)
                native = name if option is None else option.name
                if native:
                    keywords = list(_option(native, self.visit(node.value)))
                    changed = _call(f"{AGENT}.replace", [], keywords)
                    return ast.Assign([_name(AGENT)], changed, lineno=node.lineno)
            case _:
                pass
        starts = isinstance(node.value, ast.Call) and (
            self._imports.official(node.value.func) == CLIENT
        )
        self.generic_visit(node)
        if starts:
            self.note("Await it in a coroutine, or use `async with`.")
            node.value = ast.Await(node.value)
        return node

    def visit_Await(self, node: ast.Await) -> ast.expr:
        """Drop ``await`` where nothing is awaited any more."""
        self.generic_visit(node)
        return node if isinstance(node.value, ast.Call) else node.value

    def _is_client_call(self, node: ast.expr) -> bool:
        call = node.value if isinstance(node, ast.Await) else node
        return (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and self._is(SESSION, call.func.value)
        )

    def _is(self, native: str, node: ast.expr) -> bool:
        return self._variables.get(ast.unparse(node)) == native

    def visit_List(self, node: ast.List) -> ast.expr:
        """Replace each matcher in a list with its hooks."""
        parts: list[ast.expr] = []
        for one in node.elts:
            visited = self._listed(one)
            parts += parts_of(visited) if self._is_matcher(one) else [visited]
        return ast.List(parts, node.ctx)

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        """Replace a list of matchers with the list of their hooks."""
        joins = self._is_matcher(node.elt)
        node.elt = self._listed(node.elt)
        node.generators = [self.visit(one) for one in node.generators]
        return flat(node) if joins else node

    def _is_matcher(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._imports.official(node.func) == "HookMatcher"

    def _listed(self, node: ast.expr) -> ast.expr:
        """Replace an element of a list, which may become several."""
        outer, self.is_listed = self.is_listed, self._is_matcher(node)
        visited: ast.expr = self.visit(node)
        self.is_listed = outer
        return visited

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        """Replace a dictionary that a hook returns, or one of matchers by event."""
        outer = self.event
        for index, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            named = _constant(key)
            is_event = f"{named}Context" in RESULTS
            self.event = str(named) if is_event else outer
            node.values[index] = self.visit(value)
            self.event = outer
            if key is not None:
                node.keys[index] = self.visit(key)
        output = _members(node)
        if output is None:
            return node
        if "async_" in output:
            self.note("Start a task of your own and return Continue().")
            return _call("Continue")
        specific = _members(output.get("hookSpecificOutput"))
        is_output = specific is not None or "continue_" in output
        if not is_output and _constant(output.get("decision")) != "block":
            return node
        return _hook_result(output, specific or {})


# ------------------------------------------------------------------------- the forms of calls


class _Unclear(Exception):
    """A call that has no form of its own, such as one with ``**options``."""


def _options(rewriter: Rewriter, call: ast.Call) -> ast.Call:
    """Return the agent that has these options."""
    keywords: list[ast.keyword] = []
    for keyword in call.keywords:
        if keyword.arg is None:
            rewriter.note("Options in ** must be renamed where they are made.")
            rewriter.note(SEVERAL_HOOKS)
            keywords.append(keyword)
            continue
        option = OPTIONS.get(keyword.arg)
        if option is not None and option.note:
            rewriter.note(f"{option.name or keyword.arg}: {option.note}")
        if option is None or option.name:
            name = keyword.arg if option is None else option.name
            keywords += _option(name, keyword.value)
    if {one.arg for one in keywords} >= {"parallel_hooks", "store"}:
        rewriter.note("parallel_hooks: with a store, PreToolUse can have one hook only.")
    if call.args:
        raise _Unclear
    return _call("Agent", [], keywords)


def _option(name: str, value: ast.expr) -> Iterator[ast.keyword]:
    """Yield the keywords that one option becomes."""
    members = _members(value) or {}
    kind = _constant(members.get("type"))
    if name == "json_schema" and "schema" in members:
        yield ast.keyword(name, members["schema"])
    elif name == "system_prompt" and kind == "file":
        yield ast.keyword("system_prompt_file", members["path"])
    elif name == "system_prompt" and kind in ("preset", "custom"):
        for key, native in (
            ("prompt", "system_prompt"),
            ("append", "append_system_prompt"),
            ("exclude_dynamic_sections", "exclude_dynamic_sections"),
            ("snapshot", "system_prompt_snapshot"),
        ):
            if key in members:
                yield ast.keyword(native, members[key])
    elif name == "tools" and kind == "preset":
        yield ast.keyword(name, ast.Constant("default"))
    elif name == "task_budget" and "total" in members:
        yield ast.keyword(name, members["total"])
    elif name == "load_timeout" and isinstance(_constant(value), int):
        yield ast.keyword(name, ast.Constant(int(str(_constant(value))) / 1000))
    elif name == "extra_args" and isinstance(value, ast.Dict) and _members(value) is not None:
        flags = [_flag(*one) for one in members.items() if one[0] != _REPLAY]
        if flags:
            yield ast.keyword(name, ast.List(flags, ast.Load()))
    elif name == "plugins" and isinstance(value, ast.List):
        paths = [(_members(one) or {}).get("path", one) for one in value.elts]
        yield ast.keyword(name, ast.List(paths, ast.Load()))
    elif name == "agents" and isinstance(value, ast.Dict):
        named = [_named(key, one) for key, one in zip(value.keys, value.values, strict=True)]
        known = [one for one in named if one is not None]
        whole = len(known) == len(named)
        yield ast.keyword(name, ast.List([*known], ast.Load()) if whole else value)
    elif name == "mcp_servers" and isinstance(value, ast.Dict):
        yield from _servers(value)
    elif name == "hooks" and needs_parallel(value):
        yield ast.keyword(name, value)
        yield ast.keyword("parallel_hooks", ast.Constant(value=True))
    else:
        yield ast.keyword(name, value)


def _flag(name: str, value: ast.expr) -> ast.expr:
    given = _constant(value)
    if isinstance(value, ast.Constant):
        return ast.Constant(f"--{name}" if given is None else f"--{name}={given}")
    return ast.JoinedStr([ast.Constant(f"--{name}="), ast.FormattedValue(value, -1)])


def _named(key: ast.expr | None, value: ast.expr) -> ast.expr | None:
    """Return a subagent that knows its name; None if it is made elsewhere."""
    if key is None or not isinstance(value, ast.Call):
        return None
    return ast.Call(value.func, value.args, [ast.keyword("name", key), *value.keywords])


def _servers(value: ast.Dict) -> Iterator[ast.keyword]:
    """Separate the servers in this process from those outside."""
    pairs = [
        (key, (_members(one) or {}).get("instance", one))
        for key, one in zip(value.keys, value.values, strict=True)
    ]
    outside = [(key, one) for key, one in pairs if isinstance(one, ast.Dict)]
    inside = [pair for pair in pairs if pair not in outside]
    if inside:
        yield ast.keyword("mcp_servers", ast.Dict([k for k, _ in inside], [v for _, v in inside]))
    if outside:
        servers = ast.Dict([key for key, _ in outside], [one for _, one in outside])
        yield ast.keyword("mcp_config", ast.Dict([ast.Constant("mcpServers")], [servers]))


def _query(rewriter: Rewriter, call: ast.Call) -> ast.expr:
    given = _keywords(call)
    if "prompt" not in given:
        raise _Unclear
    if "transport" in given:
        rewriter.note("A transport becomes the option transport_factory.")
    options = given.get("options")
    prompt = [given["prompt"]]
    if isinstance(options, ast.Call) and ast.unparse(options.func) == "Agent":
        return _call("query", prompt, options.keywords)
    return _call("query" if options is None else f"{ast.unparse(options)}.query", prompt)


def _client(rewriter: Rewriter, call: ast.Call) -> ast.expr:
    options = call.args[0] if call.args else _keywords(call).get("options")
    if not isinstance(options, ast.Call) or ast.unparse(options.func) != "Agent":
        return _call("start_session" if options is None else f"{ast.unparse(options)}.session")
    conversation = {OPTIONS[name].name for name in CONVERSATION}
    mine = [one for one in options.keywords if one.arg in conversation]
    rest = [one for one in options.keywords if one.arg not in conversation]
    agent = ast.Call(options.func, [], rest)
    return ast.Call(ast.Attribute(agent, "session", ast.Load()), [], mine)


def _matcher(rewriter: Rewriter, call: ast.Call) -> ast.expr:
    try:
        given = _given(call, "matcher", "hooks", "timeout", "on_failure")
    except _Unclear:
        given = {}
    hooks = hooks_of(given, rewriter.event, rewriter.note)
    if hooks is None:
        call.keywords += guards_of(rewriter.event)
        raise _Unclear
    if not (rewriter.is_listed or isinstance(hooks, ast.Call)):
        rewriter.note("This is a list of hooks: add each of them to the list of the event.")
    return hooks


def _allow(_: Rewriter, call: ast.Call) -> ast.expr:
    given = _given(call, "behavior", "updated_input", "updated_permissions")
    if "updated_input" in given and "updated_permissions" in given:
        raise _Unclear
    if "updated_input" in given:
        return _call("Edit", [given["updated_input"]])
    updates = given.get("updated_permissions")
    return _call(
        "Allow", [], [] if updates is None else [ast.keyword("updated_permissions", updates)]
    )


def _deny(_: Rewriter, call: ast.Call) -> ast.expr:
    given = _given(call, "behavior", "message", "interrupt")
    interrupt = [ast.keyword("interrupt", given["interrupt"])] if "interrupt" in given else []
    return _call("Deny", [given.get("message", ast.Constant(""))], interrupt)


def _update(_: Rewriter, call: ast.Call) -> ast.expr:
    given = _given(call, "type", "rules", "behavior", "mode", "directories", "destination")
    kind = _constant(given.pop("type", None))
    if not isinstance(kind, str) or kind not in UPDATES:
        raise _Unclear
    name, fields = UPDATES[kind]
    wanted = (*fields, "destination")
    return _call(name, [], [ast.keyword(one, given[one]) for one in wanted if one in given])


def _rule(_: Rewriter, call: ast.Call) -> ast.expr:
    return _call("PermissionRule", call.args, call.keywords)


def _server(rewriter: Rewriter, call: ast.Call) -> ast.expr:
    given = _given(call, "name", "version", "tools")
    rewriter.note("ToolServer: its name is the key in mcp_servers.")
    version = [ast.keyword("version", given["version"])] if "version" in given else []
    return _call("ToolServer", [given.get("tools", ast.List([], ast.Load()))], version)


def _subagent(rewriter: Rewriter, call: ast.Call) -> ast.expr:
    rewriter.note("AgentConfig: it has its name itself, and agents is a list of them.")
    keywords = [
        ast.keyword(None if one.arg is None else _AGENT_FIELDS.get(one.arg, one.arg), one.value)
        for one in call.keywords
    ]
    return _call("AgentConfig", call.args, keywords)


def _annotations(_: Rewriter, call: ast.Call) -> ast.expr:
    given = _keywords(call)
    return ast.Dict([ast.Constant(_camel(name)) for name in given], list(given.values()))


def _record(_: Rewriter, call: ast.Call) -> ast.expr:
    """Return the dictionary that a typed dictionary is."""
    given = _keywords(call)
    return ast.Dict([ast.Constant(name) for name in given], list(given.values()))


def _stored(name: str, *fields: str, renamed: Mapping[str, str] | None = None) -> _Form:
    """Return the form of a function about stored sessions."""

    def form(rewriter: Rewriter, call: ast.Call) -> ast.expr:
        given = _given(call, *fields)
        native = {(renamed or {}).get(key, key): value for key, value in given.items()}
        if native.pop("include_worktrees", None) is not None:
            rewriter.note("list_sessions: it lists the sessions of the directory itself only.")
        if name == "read_messages" and ("limit" in native or "offset" in native):
            rewriter.note("read_messages: take a slice of the list.")
            native = {key: one for key, one in native.items() if key not in ("limit", "offset")}
        if name == "get_session":
            rewriter.note("get_session: it raises SessionNotFoundError if there is no session.")
        leading = ("session_id",) if name == "fork" else ("session_id", "title", "tag")
        first = [native.pop(one) for one in leading if one in native]
        keywords = [ast.keyword(key, value) for key, value in native.items()]
        if not rewriter.may_await:
            return _call(f"sync.sessions.{name}", first, keywords)
        rewriter.note("bridle.sync.sessions has the same functions without await.")
        return ast.Await(_call(f"sessions.{name}", first, keywords))

    return form


_Form: TypeAlias = Callable[[Rewriter, ast.Call], ast.expr]
_UP_TO = {"up_to_message_id": "up_to"}

_FORMS: Mapping[str, _Form] = {
    "AgentDefinition": _subagent,
    "ClaudeAgentOptions": _options,
    "ClaudeSDKClient": _client,
    "HookMatcher": _matcher,
    "PermissionResultAllow": _allow,
    "PermissionResultDeny": _deny,
    "PermissionRuleValue": _rule,
    "PermissionUpdate": _update,
    "ToolAnnotations": _annotations,
    "create_sdk_mcp_server": _server,
    "query": _query,
    **dict.fromkeys(
        (
            *("McpHttpServerConfig", "McpSSEServerConfig", "McpStdioServerConfig"),
            *("SandboxNetworkConfig", "SandboxSettings", "SdkPluginConfig", "SystemPromptCustom"),
            *("SystemPromptFile", "SystemPromptPreset", "TaskBudget", "ThinkingConfigAdaptive"),
            *("ThinkingConfigDisabled", "ThinkingConfigEnabled", "ToolsPreset"),
        ),
        _record,
    ),
    "list_sessions": _stored("list_sessions", "directory", "limit", "offset", "include_worktrees"),
    "get_session_info": _stored("get_session", "session_id", "directory"),
    "get_session_messages": _stored("read_messages", "session_id", "directory", "limit", "offset"),
    "rename_session": _stored("rename", "session_id", "title", "directory"),
    "tag_session": _stored("tag", "session_id", "tag", "directory"),
    "delete_session": _stored("delete", "session_id", "directory"),
    "fork_session": _stored(
        "fork", "session_id", "directory", "up_to_message_id", "title", renamed=_UP_TO
    ),
    "list_sessions_from_store": _stored("list_sessions", "store", "directory", "limit", "offset"),
    "get_session_info_from_store": _stored("get_session", "store", "session_id", "directory"),
    "get_session_messages_from_store": _stored(
        "read_messages", "store", "session_id", "directory", "limit", "offset"
    ),
    "rename_session_via_store": _stored("rename", "store", "session_id", "title", "directory"),
    "tag_session_via_store": _stored("tag", "store", "session_id", "tag", "directory"),
    "delete_session_via_store": _stored("delete", "store", "session_id", "directory"),
    "fork_session_via_store": _stored(
        "fork", "store", "session_id", "directory", "up_to_message_id", "title", renamed=_UP_TO
    ),
}


def _hook_result(output: Keywords, specific: Keywords) -> ast.expr:
    """Return the result that a dictionary of a hook means."""
    decision = _constant(specific.get("permissionDecision"))
    extra = {key for key in specific if key not in ("hookEventName", "permissionDecision")}
    plain = {key for key in output if key != "hookSpecificOutput"}
    if decision == "deny" and extra <= {"permissionDecisionReason"} and not plain:
        return _call("Block", [specific.get("permissionDecisionReason", ast.Constant(""))])
    if decision in (None, "allow") and extra == {"updatedInput"} and not plain:
        return _call("ModifyInput", [specific["updatedInput"]])
    if (
        _constant(output.get("decision")) == "block"
        and plain <= {"decision", "reason"}
        and not extra
    ):
        return _call("Block", [output.get("reason", ast.Constant(""))])
    if _constant(output.get("continue_")) is False and plain <= {"continue_", "stopReason"}:
        return _call("EndTurn", [output.get("stopReason", ast.Constant(""))])
    if plain == {"continue_"} and _constant(output["continue_"]) is True:
        return _call("Continue")
    permission = _permission(_members(specific.get("decision")) or {})
    if permission is not None and not plain:
        return _call("HookOutput", [], [ast.keyword("permission", permission)])
    keywords = [
        *(ast.keyword(_OUTPUT[key], value) for key, value in output.items() if key in _OUTPUT),
        *(
            ast.keyword(_SPECIFIC[key], value)
            for key, value in specific.items()
            if key in _SPECIFIC
        ),
    ]
    others = {
        key: value for key, value in specific.items() if key not in {*_SPECIFIC, "hookEventName"}
    }
    if others:
        names: list[ast.expr | None] = [ast.Constant(key) for key in others]
        keywords.append(ast.keyword("specific", ast.Dict(names, list(others.values()))))
    return _call("HookOutput", [], keywords)


def _permission(decision: Keywords) -> ast.expr | None:
    """Return the result that the decision about a permission request means."""
    match _constant(decision.get("behavior")):
        case "deny":
            return _call("Deny", [decision.get("message", ast.Constant(""))])
        case "allow" if "updatedInput" in decision:
            return _call("Edit", [decision["updatedInput"]])
        case "allow":
            return _call("Allow")
        case _:
            return None


# ------------------------------------------------------------------------- small steps


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _call(
    function: str, args: list[ast.expr] | None = None, keywords: list[ast.keyword] | None = None
) -> ast.Call:
    return ast.Call(_parsed(function), list(args or []), list(keywords or []))


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _members(node: ast.expr | None) -> Keywords | None:
    """Return the members of a dictionary whose keys are strings; None for anything else."""
    if not isinstance(node, ast.Dict):
        return None
    keys = [_constant(key) for key in node.keys]
    if not all(isinstance(key, str) for key in keys):
        return None
    return dict(zip(map(str, keys), node.values, strict=True))


def _keywords(call: ast.Call) -> Keywords:
    if any(one.arg is None for one in call.keywords):
        raise _Unclear
    return {str(one.arg): one.value for one in call.keywords}


def _given(call: ast.Call, *fields: str) -> Keywords:
    """Return the arguments of a call by name."""
    if any(isinstance(one, ast.Starred) for one in call.args) or len(call.args) > len(fields):
        raise _Unclear
    return {**dict(zip(fields, call.args, strict=False)), **_keywords(call)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(one.capitalize() for one in rest)


def _awaited_method(node: ast.expr) -> str:
    call = node.value if isinstance(node, ast.Await) else node
    function = call.func if isinstance(call, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else ""
