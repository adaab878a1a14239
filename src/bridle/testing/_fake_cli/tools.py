"""Tool calls: the hooks before, the permission, the call itself, the hooks after.

Only tools of the client are run. Other tools return an invented result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from .frames import REJECTED
from .servers import LOST
from .values import Json, as_list, as_object, is_list, is_object

if TYPE_CHECKING:
    from .talk import Talk

EDITING = frozenset({"Edit", "Write", "NotebookEdit"})
INTERACTIVE = frozenset({"AskUserQuestion", "ExitPlanMode"})
STRUCTURED = "StructuredOutput"
FAILED = "Tool permission request failed"
CLOSED = "Tool permission stream closed before response received"
CUT = "Stream closed"
"""What older CLIs write in place of `LOST`, without saying that the call was interrupted."""
UNASKED = "PreToolUse hook did not respond. The tool call was not executed."
INVALID = (
    "The canUseTool callback returned an invalid permission result. Expected"
    " {behavior: 'allow', updatedInput?: object} or {behavior: 'deny', message: string}."
)


def find_hooks(hooks: Json, event: str, subject: str | None) -> list[str]:
    """Return the ids of the callbacks for an event, in order of registration."""
    return [
        str(callback_id)
        for entry in map(as_object, as_list(hooks.get(event)))
        if subject is None or matches(entry.get("matcher"), subject)
        for callback_id in as_list(entry.get("hookCallbackIds"))
    ]


def matches(matcher: str | None, tool: str) -> bool:
    """Return whether a matcher matches: a name, a list of names, or a regular expression."""
    if matcher in (None, "", "*"):
        return True
    assert matcher is not None
    if re.fullmatch(r"[\w\s|,]*", matcher):
        return tool in [name.strip() for name in re.split(r"[|,]", matcher)]
    try:
        return re.search(matcher, tool) is not None
    except re.error:
        return False


def split_rules(text: str) -> list[str]:
    """Return the permission rules in a text. Parentheses may have commas and spaces."""
    return re.findall(r"[^\s,(]+(?:\([^)]*\))?", text)


def permits(rules: Iterable[str], use: Json) -> bool:
    """Return whether a rule is about a call: a tool, a tool with an input, or an MCP server."""
    return any(_is_about(rule, use) for rule in rules)


def _is_about(rule: str, use: Json) -> bool:
    name, has_input, wanted = rule.removesuffix(")").partition("(")
    tool: str = use["name"]
    if not has_input:
        return tool == name or tool.startswith(f"{name.removesuffix('__*')}__")
    given = use["input"].get("command", use["input"].get("file_path"))
    pattern = f"{wanted.removesuffix(':*')}*" if wanted.endswith(":*") else wanted
    return tool == name and isinstance(given, str) and fnmatchcase(given, pattern)


class Verdict(NamedTuple):
    """The decision on whether a tool may run."""

    tool_input: Json
    #: Who decided, for the result of the tool call.
    meta: Json
    #: The text for the model, if the tool may not run.
    refusal: str | None = None
    #: True if a hook lets the call wait for a later process.
    is_deferred: bool = False


class Tools:
    """The tool calls of one turn at a time."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._rules: set[str] = set(talk.flags["allowed"])
        self.begin()

    def begin(self) -> None:
        """Begin a new turn."""
        self._left: list[Json] = []
        self._asking = False
        #: The unfinished text of the model.
        self.said = ""
        #: Set if a hook ends the turn.
        self.halts = False
        #: The structured output, once the model has returned it.
        self.output: Json | None = None
        #: True if a Stop hook has already continued the turn.
        self.insisted = False
        #: The last call that a hook deferred in this turn.
        self.deferred: Json | None = None
        # The message with the call that this process resumes.
        self._source: str | None = None

    def structured(self) -> Json:
        """Return the members of the result of a turn with structured output."""
        calls = self._talk.speaker.calls
        return {
            "text": json.dumps(self.output, separators=(",", ":"), ensure_ascii=False),
            "structured_output": self.output,
            "stop_reason": "tool_use",
            "num_turns": calls + 1,
        }

    def run(self, uses: list[Json]) -> list[str]:
        """Run tool calls one after the other. Return the text of each for the model."""
        self._left = list(uses)
        results: list[str] = []
        while self._left:
            told = self._run(self._left[0])
            results += [] if told is None else [told]
            self._left.pop(0)
        return results

    def resume(self, use: Json, source: str) -> list[str]:
        """Run a call that an earlier process deferred, in the message ``source``."""
        self._source = source
        try:
            return self.run([use])
        finally:
            self._source = None

    def reject_rest(self) -> bool:
        """Reject the running tools after an interrupt. Return whether there were any."""
        left, self._left = self._left, []
        if left and self._asking:
            self._deny(left[0])
        for use in left:
            self._talk.speaker.tool_result(
                use["id"],
                REJECTED,
                "User rejected tool use",
                is_error=True,
                non_execution_kind="user-rejected",
            )
        return bool(left)

    def _run(self, use: Json) -> str | None:
        """Run a call. Return its text for the model, or None if it waits."""
        verdict = self._judge(use)
        if verdict.is_deferred:
            self.deferred = use
            if self._source is None and self._talk.port.transcript is not None:
                self._talk.port.transcript.defer(use)
            return None
        if verdict.refusal is not None:
            self._deny(use)
            told = verdict.refusal
            self._result(use, told, f"Error: {told}", verdict.meta, is_error=True)
            return told
        return self._perform({**use, "input": verdict.tool_input}, verdict.meta)

    def _result(
        self, use: Json, content: object, result: object, meta: Json, *, is_error: bool
    ) -> None:
        self._talk.speaker.tool_result(
            use["id"], content, result, is_error=is_error, resumed=self._source, **meta
        )

    def _deny(self, use: Json) -> None:
        self._talk.speaker.denials.append(
            {"tool_name": use["name"], "tool_use_id": use["id"], "tool_input": use["input"]}
        )

    # -- may it run? -------------------------------------------------------------------------------

    def _judge(self, use: Json) -> Verdict:
        if use["name"] == STRUCTURED:
            return Verdict(use["input"], _accepted("config"))
        fields = {
            "tool_name": use["name"],
            "tool_input": use["input"],
            "tool_use_id": use["id"],
        }
        answers = self._talk.ask_hooks("PreToolUse", fields, use["name"], use["id"])
        if self._is_closed_to_hooks(use):
            return Verdict(use["input"], _rejected("hook"), UNASKED)
        tool_input: Json = use["input"]
        decisions: dict[str, str] = {}
        for answer in answers:
            self.halts = self.halts or answer.get("continue") is False
            decision, reason, changed = read_pre_tool_use(answer)
            decisions[decision] = reason
            tool_input = changed or tool_input
        if "deny" in decisions:
            prefix = f"PreToolUse:{use['name']} hook error: " if self._talk.frames.newer else ""
            self.halts = self.halts and self._talk.frames.newer
            text = prefix + (decisions["deny"] or "Blocked by hook")
            return Verdict(tool_input, _rejected("hook", reason_type="hook"), text)
        if "defer" in decisions:
            return Verdict(use["input"], {}, is_deferred=True)
        if self._source is not None and answers:
            self._talk.port.send(self._talk.frames.hook_ran(use["id"]))
        must_ask = "ask" in decisions or permits(self._talk.flags["must_ask"], use)
        if "allow" in decisions and not must_ask:
            return Verdict(tool_input, _accepted("hook"))
        return self._by_mode({**use, "input": tool_input}, must_ask=must_ask)

    def _is_closed_to_hooks(self, use: Json) -> bool:
        """Return whether the tool must be skipped because the client is gone.

        Newer CLIs skip the tool. Older ones run it without the hook.
        """
        registered = find_hooks(self._talk.hooks, "PreToolUse", use["name"])
        return self._talk.is_closed() and self._talk.frames.newer and bool(registered)

    def _by_mode(self, use: Json, *, must_ask: bool) -> Verdict:
        mode = self._talk.frames.permission_mode
        name: str = use["name"]
        permitted = (
            mode == "bypassPermissions"
            or permits(self._rules, use)
            or (mode == "acceptEdits" and name in EDITING)
        )
        if permitted and not must_ask and name not in INTERACTIVE:
            return Verdict(use["input"], _accepted("config"))
        if mode == "dontAsk" or not self._talk.flags["asks"]:
            text = f"Permission to use {name} has been denied."
            denied = {"tool_name": name, "tool_use_id": use["id"], "message": text}
            frame = self._talk.frames.system(
                "permission_denied", decision_reason_type="mode", **denied
            )
            self._talk.port.send(frame)
            return Verdict(use["input"], _rejected("config"), text)
        return self._by_client(use)

    def _by_client(self, use: Json) -> Verdict:
        """Ask the client and the PermissionRequest hooks. The first answer counts."""
        frames, talk = self._talk.frames, self._talk
        interactive = {"requires_user_interaction": True} if use["name"] in INTERACTIVE else {}
        question = frames.can_use_tool(use["name"], use["input"], use["id"], **interactive)
        fields = {
            "tool_name": use["name"],
            "tool_input": use["input"],
            "permission_suggestions": question["request"]["permission_suggestions"],
        }
        hooks = [
            frames.hook_callback(one, "PermissionRequest", fields, use["id"])
            for one in find_hooks(talk.hooks, "PermissionRequest", use["name"])
        ]
        self._asking = True
        response = self._first_answer(question, hooks)
        self._asking = False
        return self._read(use, response)

    def _first_answer(self, question: Json, hooks: list[Json]) -> Json | None:
        talk = self._talk
        if not hooks:
            return talk.ask(question)[0]
        answers = talk.ask_first(question, *hooks)
        if 0 in answers or not answers:
            for hook in hooks:
                talk.withdraw(hook)
            return answers.get(0)
        payload = as_object(as_object(next(iter(answers.values()))).get("response"))
        decision = as_object(as_object(payload.get("hookSpecificOutput")).get("decision"))
        if not decision:
            return talk.wait_for(question)
        talk.withdraw(question)
        return {"subtype": "success", "response": {"updatedInput": {}, "message": "", **decision}}

    def _read(self, use: Json, response: Json | None) -> Verdict:
        tool_input: Json = use["input"]
        no = _rejected("user_reject")
        if response is None:
            return Verdict(tool_input, no, f"{FAILED}: AbortError: {CLOSED}")
        if response["subtype"] == "error":
            return Verdict(tool_input, no, f"{FAILED}: Error: {response.get('error')}")
        payload = as_object(response.get("response"))
        changed = payload.get("updatedInput", {} if self._talk.frames.newer else None)
        if payload.get("behavior") == "allow" and is_object(changed):
            for update in as_list(payload.get("updatedPermissions")):
                self._learn(as_object(update))
            return Verdict(as_object(changed) or tool_input, _accepted("user_temporary"))
        if payload.get("behavior") == "deny" and isinstance(payload.get("message"), str):
            if payload.get("interrupt") is True:
                self._asking = True
                self._talk.interrupt_now()
            return Verdict(tool_input, no, payload["message"])
        return Verdict(tool_input, no, INVALID)

    def _learn(self, update: Json) -> None:
        """Store rules that the client added, for the rest of the session."""
        if update.get("type") == "addRules" and update.get("behavior") == "allow":
            self._rules |= {_rule_of(rule) for rule in update.get("rules", [])}
        elif update.get("type") == "setMode":
            self._talk.set_mode(str(update.get("mode")))

    # -- it runs -----------------------------------------------------------------------------------

    def _perform(self, use: Json, meta: Json) -> str:
        content, result, is_error = self._call(use)
        if content == LOST and self._talk.frames.newer:
            meta = {**meta, "non_execution_kind": "interrupted"}
        elif content == LOST:
            content, result = CUT, f"Error: {CUT}"
        fields = {
            "tool_name": use["name"],
            "tool_input": use["input"],
            "tool_response": result,
            "tool_use_id": use["id"],
            "duration_ms": 1,
        }
        event = "PostToolUse"
        if is_error:
            event = "PostToolUseFailure"
            del fields["tool_response"]
            fields |= {"error": text_of(content), "is_interrupt": False}
        for answer in self._talk.ask_hooks(event, fields, use["name"], use["id"]):
            self.halts = self.halts or answer.get("continue") is False
            output = as_object(answer.get("hookSpecificOutput"))
            if use["name"].startswith("mcp__") and "updatedMCPToolOutput" in output:
                content = result = output["updatedMCPToolOutput"]
        self._result(use, content, result, meta, is_error=is_error)
        return text_of(content)

    def _call(self, use: Json) -> tuple[Any, Any, bool]:
        """Return the content for the model, the structured result, and whether it is an error."""
        name: str = use["name"]
        if name == STRUCTURED:
            self.output = use["input"]
            text = "Structured output provided successfully"
            return text, text, False
        if name.startswith("mcp__"):
            content, is_error = self._talk.servers.call(name, use["input"], use["id"])
            return content, content, is_error
        text = f"{name} ran: {use['input'].get('command', '')}"
        result = {
            "stdout": text,
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": False,
        }
        return text, result, False


def _rule_of(rule: Json) -> str:
    content = rule.get("ruleContent")
    return f"{rule.get('toolName', '')}({content})" if content else str(rule.get("toolName", ""))


def read_pre_tool_use(answer: Json) -> tuple[str, str, Json | None]:
    """Return the decision of a PreToolUse hook ("" for none), its reason, and its input."""
    if answer.get("decision") == "block":
        return "deny", str(answer.get("reason", "")), None
    if answer.get("decision") == "approve":
        return "allow", "", None
    output = as_object(answer.get("hookSpecificOutput"))
    if "hookEventName" not in output:
        return "", "", None
    if output["hookEventName"] != "PreToolUse":
        return "deny", "PreToolUse hook failed with an unexpected error", None
    decision = str(output.get("permissionDecision", ""))
    return decision, str(output.get("permissionDecisionReason", "")), output.get("updatedInput")


def text_of(content: object) -> str:
    """Return the text of a tool's content."""
    if is_list(content):
        return "\n".join(str(as_object(block).get("text", "")) for block in as_list(content))
    return str(content)


def _accepted(source: str) -> Json:
    return {"permission_decision": {"decision": "accept", "source": source}}


def _rejected(source: str, **more: object) -> Json:
    decision = {"decision": "reject", "source": source, **more}
    return {"non_execution_kind": "permission-rule", "permission_decision": decision}
