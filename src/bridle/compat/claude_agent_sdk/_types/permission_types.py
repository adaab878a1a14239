"""Permission requests, their answers and changes to permission rules."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from bridle.compat.claude_agent_sdk._types.config_types import PermissionMode

__all__ = [
    "CanUseTool",
    "CanUseToolShadowedWarning",
    "PermissionBehavior",
    "PermissionResult",
    "PermissionResultAllow",
    "PermissionResultDeny",
    "PermissionRuleValue",
    "PermissionUpdate",
    "PermissionUpdateDestination",
    "ToolPermissionContext",
]


PermissionBehavior: TypeAlias = Literal["allow", "deny", "ask"]
"""What a permission rule does."""


PermissionUpdateDestination: TypeAlias = Literal[
    "userSettings", "projectSettings", "localSettings", "session"
]
"""Where a changed rule is stored."""


@dataclass
class PermissionRuleValue:
    """A permission rule. Without a content, it is about every call of the tool."""

    tool_name: str
    rule_content: str | None = None


_NEEDED = {
    "addRules": ("rules", "behavior"),
    "replaceRules": ("rules", "behavior"),
    "removeRules": ("rules", "behavior"),
    "setMode": ("mode",),
    "addDirectories": ("directories",),
    "removeDirectories": ("directories",),
}
"""The fields that each type of update needs."""


def _wire_rule(rule: PermissionRuleValue) -> dict[str, Any]:
    content = {} if rule.rule_content is None else {"ruleContent": rule.rule_content}
    return {"toolName": rule.tool_name, **content}


@dataclass
class PermissionUpdate:
    """A change to permission rules, to the mode or to the directories."""

    type: Literal[
        "addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"
    ]
    rules: list[PermissionRuleValue] | None = None
    behavior: PermissionBehavior | None = None
    mode: PermissionMode | None = None
    directories: list[str] | None = None
    destination: PermissionUpdateDestination | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the CLI reads.

        A destination of None is sent as "session". A rule content of None is left out: the rule
        is then about every call of the tool.

        Raises:
            ValueError: a field that this type needs is None, or the type is unknown. The CLI would
                ignore such an update, and every other one in the same answer.
        """
        needed = _NEEDED.get(self.type)
        if needed is None:
            raise ValueError(
                f"PermissionUpdate.type is {self.type!r}, which cannot be sent. Use one of "
                f"{', '.join(_NEEDED)}."
            )
        wire: dict[str, Any] = {"type": self.type, "destination": self.destination or "session"}
        for name in needed:
            value = getattr(self, name)
            if value is None:
                raise ValueError(
                    f"PermissionUpdate.{name} is None. An update of type {self.type!r} needs it."
                )
            wire[name] = [_wire_rule(rule) for rule in value] if name == "rules" else value
        return wire

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PermissionUpdate":
        """Return the update that a JSON object of the CLI describes."""
        rules = data.get("rules")
        return cls(
            type=data["type"],
            rules=None
            if rules is None
            else [PermissionRuleValue(rule["toolName"], rule.get("ruleContent")) for rule in rules],
            behavior=data.get("behavior"),
            mode=data.get("mode"),
            directories=data.get("directories"),
            destination=data.get("destination"),
        )


@dataclass
class ToolPermissionContext:
    """What the CLI says about a permission request."""

    signal: Any | None = None
    suggestions: list[PermissionUpdate] = field(default_factory=list[PermissionUpdate])
    tool_use_id: str | None = None
    agent_id: str | None = None
    blocked_path: str | None = None
    decision_reason: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None


@dataclass
class PermissionResultAllow:
    """Let the tool run."""

    behavior: Literal["allow"] = "allow"
    updated_input: dict[str, Any] | None = None
    updated_permissions: list[PermissionUpdate] | None = None


@dataclass
class PermissionResultDeny:
    """Do not run the tool."""

    behavior: Literal["deny"] = "deny"
    message: str = ""
    interrupt: bool = False


PermissionResult: TypeAlias = PermissionResultAllow | PermissionResultDeny
"""The answer to a permission request."""


CanUseTool: TypeAlias = Callable[
    [str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult]
]
"""Callback for permission requests: takes the tool's name, its input and the context."""


class CanUseToolShadowedWarning(UserWarning):
    """`can_use_tool` is not called for some tools, because other options allow them already."""
