"""Permissions: what the CLI asks before it acts, and what an application may answer.

The rule of this file: data only. Contexts are what a callback receives, results are what it
returns, permission updates are the rules that travel in both directions. The shell
serialises results, and the core decides what happens if a result is not valid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, cast

import msgspec

from bridle._source import JsonObject, revive
from bridle.errors import UsageError

__all__ = [
    "Accept",
    "AddDirectories",
    "AddRules",
    "Allow",
    "AllowAll",
    "AllowOnce",
    "Answers",
    "CanUseToolCallback",
    "CanUseToolContext",
    "Cancel",
    "Decline",
    "Deny",
    "Edit",
    "ElicitationAnswer",
    "ElicitationCallback",
    "ElicitationRequestContext",
    "McpServerRef",
    "PermissionBehavior",
    "PermissionDestination",
    "PermissionResult",
    "PermissionRule",
    "PermissionUpdate",
    "PlanCallback",
    "PlanContext",
    "PlanResult",
    "Question",
    "QuestionCallback",
    "QuestionContext",
    "QuestionOption",
    "QuestionResult",
    "RemoveDirectories",
    "RemoveRules",
    "ReplaceRules",
    "SetMode",
    "UnknownPermissionUpdate",
    "Withdrawal",
]


def _wire_form(value: object) -> JsonObject:
    """The object `value` was read from; for one built by hand, the object its fields make."""
    bound: JsonObject | Callable[[], JsonObject] | None = getattr(value, "_raw", None)
    if bound is not None:
        return bound() if callable(bound) else bound
    return cast("JsonObject", msgspec.json.decode(msgspec.json.encode(value)))


def _copied(value: object) -> tuple[Any, ...]:
    """What `__reduce__` returns, so that copies keep the wire form."""
    fields = cast("msgspec.Struct", value).__struct_fields__
    values = {name: getattr(value, name) for name in fields}
    beside = {"_raw": _wire_form(value)} if hasattr(value, "_raw") else {}
    return revive, (type(value), values, beside)


# ---------------------------------------------------------------- requests that can be withdrawn


class Withdrawal(Protocol):
    """The moment the CLI stops waiting for an answer. Whoever runs the callback supplies it."""

    def is_set(self) -> bool:
        """Whether the request was withdrawn."""
        ...

    def wait(self) -> Awaitable[None]:
        """Return something to await until the request is withdrawn."""
        ...

    def wait_sync(self, timeout: float | None) -> bool:
        """Block until the request is withdrawn (True) or `timeout` seconds passed (False)."""
        ...


class Withdrawable:
    """What the context of every request has: its wire form, and whether it was withdrawn.

    Both live outside the fields, so `==` and `repr()` see the fields only. A context built by
    hand (in a test of a callback) has neither: `.raw` is then made from the fields, it is never
    cancelled, and waiting for a cancellation that cannot come is an error instead of a hang.
    """

    __slots__ = ("_raw", "_withdrawal")

    #: The object, or who can tell it when it is asked for.
    _raw: JsonObject | Callable[[], JsonObject]
    _withdrawal: Withdrawal

    @property
    def raw(self) -> JsonObject:
        """The JSON object on the wire, whole. It may be parsed anew at each reading."""
        return _wire_form(self)

    @property
    def cancelled(self) -> bool:
        """Whether the CLI no longer waits for the answer; whatever is returned is then dropped."""
        withdrawal: Withdrawal | None = getattr(self, "_withdrawal", None)
        return withdrawal is not None and withdrawal.is_set()

    def wait_cancelled(self) -> Awaitable[None]:
        """Await this in an `async def` callback to learn when the CLI withdraws the request."""
        return self._bound_withdrawal().wait()

    def wait_cancelled_sync(self, timeout: float | None = None) -> bool:
        """Block a plain `def` callback until the withdrawal (True) or for `timeout` s (False)."""
        return self._bound_withdrawal().wait_sync(timeout)

    def _bound_withdrawal(self) -> Withdrawal:
        withdrawal: Withdrawal | None = getattr(self, "_withdrawal", None)
        if withdrawal is None:
            raise UsageError(
                f"This {type(self).__name__} belongs to no session, so nothing can withdraw it.",
                fix="Wait on the context that the callback is called with, not on a copy.",
            )
        return withdrawal

    def __copy__(self) -> Self:
        return self  # frozen: a copy could not come to differ

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy belongs to no session, so nothing withdraws it.
        return _copied(self)


# Slot descriptors write straight through `frozen`, which guards attribute assignment only.
bind_raw: Callable[[Withdrawable, JsonObject | Callable[[], JsonObject]], None] = (
    Withdrawable.__dict__["_raw"].__set__
)
bind_withdrawal: Callable[[Withdrawable, Withdrawal], None] = Withdrawable.__dict__[
    "_withdrawal"
].__set__

# ---------------------------------------------------------------- rule updates

PermissionBehavior: TypeAlias = Literal["allow", "deny", "ask"]
PermissionDestination: TypeAlias = Literal[
    "session", "localSettings", "projectSettings", "userSettings"
]


class PermissionRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule for a tool, or for those of its calls that `rule_content` describes.

    Without a content the rule is left without the key: a CLI drops rules whose content is null.
    """

    tool_name: str
    rule_content: str | None = None


class PermissionUpdate:
    """A change of the permission rules: suggested by the CLI, or sent along with an `Allow`.

    One class per kind below. `destination` says who remembers it: the running session, or one of
    the settings files (which older CLIs write but only read again at their next start).
    """

    __slots__ = ("_raw",)

    _raw: JsonObject

    @property
    def raw(self) -> JsonObject:
        """The JSON object: as it came from the wire, or as it would go there."""
        return _wire_form(self)

    def __copy__(self) -> Self:
        return self  # frozen, as above

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied(self)


bind_update: Callable[[PermissionUpdate, JsonObject], None] = PermissionUpdate.__dict__[
    "_raw"
].__set__


class _ForDestination(PermissionUpdate, msgspec.Struct, frozen=True, kw_only=True):
    destination: PermissionDestination = "session"


class AddRules(_ForDestination, frozen=True, tag_field="type", tag="addRules"):
    """Add rules to those in force."""

    rules: tuple[PermissionRule, ...]
    behavior: PermissionBehavior = "allow"


class ReplaceRules(_ForDestination, frozen=True, tag_field="type", tag="replaceRules"):
    """Put these rules in the place of all rules of the same behavior and destination."""

    rules: tuple[PermissionRule, ...]
    behavior: PermissionBehavior = "allow"


class RemoveRules(_ForDestination, frozen=True, tag_field="type", tag="removeRules"):
    """Take rules away."""

    rules: tuple[PermissionRule, ...]
    behavior: PermissionBehavior = "allow"


class SetMode(_ForDestination, frozen=True, tag_field="type", tag="setMode"):
    """Switch the permission mode."""

    mode: str


class AddDirectories(_ForDestination, frozen=True, tag_field="type", tag="addDirectories"):
    """Let tools work in further directories."""

    directories: tuple[str, ...]


class RemoveDirectories(_ForDestination, frozen=True, tag_field="type", tag="removeDirectories"):
    """Take directories away from tools."""

    directories: tuple[str, ...]


class UnknownPermissionUpdate(PermissionUpdate, msgspec.Struct, frozen=True):
    """An update of a kind Bridle does not know, kept (and sent) exactly as it is."""

    wire: JsonObject

    @property
    def raw(self) -> JsonObject:
        """The JSON object."""
        return self.wire


# ---------------------------------------------------------------- contexts


class McpServerRef(msgspec.Struct, frozen=True):
    """The MCP server a tool belongs to, and where the CLI learnt of that server."""

    name: str
    source: str | None = None


class CanUseToolContext(Withdrawable, msgspec.Struct, frozen=True):
    """The CLI asks whether a tool may run.

    The CLI waits without limit. Questions may overlap, and one may be withdrawn: by an interrupt,
    or by a PermissionRequest hook that answered first.
    """

    # The fields of the request on the wire, in its order, and then our own.
    tool_name: str
    tool_input: JsonObject = msgspec.field(default_factory=dict[str, Any], name="input")
    tool_use_id: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None
    permission_suggestions: tuple[PermissionUpdate, ...] = ()
    blocked_path: str | None = None
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    decision_reason_hook_event: str | None = None
    decision_reason_hook_source: str | None = None
    classifier_approvable: bool | None = None
    suppress_always_allow_rule: bool = False
    requires_user_interaction: bool = False
    server_policy_ask_only: bool = False
    mcp_server: McpServerRef | None = None
    agent_id: str | None = None
    session_id: str = ""


class QuestionOption(msgspec.Struct, frozen=True):
    """One of the answers offered."""

    label: str
    description: str = ""


class Question(msgspec.Struct, frozen=True, rename="camel"):
    """A question the model puts to the user, with the answers it offers."""

    question: str
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multi_select: bool = False


class QuestionContext(CanUseToolContext, frozen=True):
    """The model asks the user something (its AskUserQuestion tool)."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """What is asked. An entry that is no question is left out here and is still in `raw`."""
        asked: object = self.tool_input.get("questions")
        entries = cast("list[object]", asked) if isinstance(asked, list) else []
        found: list[Question] = []
        for entry in entries:
            try:
                found.append(msgspec.convert(entry, Question))
            except msgspec.ValidationError:
                continue
        return tuple(found)


class PlanContext(CanUseToolContext, frozen=True):
    """The model has made a plan and asks to leave plan mode (its ExitPlanMode tool)."""

    @property
    def plan(self) -> str | None:
        """The text of the plan, where the CLI sends it along."""
        plan: object = self.tool_input.get("plan")
        return plan if isinstance(plan, str) else None


class ElicitationRequestContext(Withdrawable, msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server asks the user for data that fit `requested_schema`, or to visit `url`."""

    mcp_server_name: str
    message: str = ""
    mode: str = "form"
    requested_schema: JsonObject | None = None
    property_order: tuple[str, ...] = ()
    url: str | None = None
    elicitation_id: str | None = None


# ---------------------------------------------------------------- results


class Allow(msgspec.Struct, frozen=True):
    """Let the tool run as it is, and change the rules if `updated_permissions` says so."""

    updated_permissions: Sequence[PermissionUpdate] = ()


class AllowOnce(msgspec.Struct, frozen=True):
    """Let the tool run this time; the next call is asked about again."""


class AllowAll(msgspec.Struct, frozen=True):
    """Let the tool run, and every later call of the same tool in this session unasked."""


class Edit(msgspec.Struct, frozen=True):
    """Let the tool run with another input.

    An empty input in the place of a filled one is denied: the CLI would run the original.
    """

    new_input: Mapping[str, Any]


class Deny(msgspec.Struct, frozen=True):
    """Do not run the tool; the model reads the reason and goes on.

    With `interrupt` the turn ends as if interrupted, and nobody reads the reason.
    """

    reason: str
    interrupt: bool = False


class Answers(msgspec.Struct, frozen=True):
    """Answer questions: the text of a question to the chosen label, to several, or to own words."""

    answers: Mapping[str, str | Sequence[str]]


class Accept(msgspec.Struct, frozen=True):
    """Give an MCP server the data it asked for."""

    content: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


class Decline(msgspec.Struct, frozen=True):
    """Refuse to give an MCP server what it asked for."""


class Cancel(msgspec.Struct, frozen=True):
    """Dismiss an elicitation without deciding."""


PermissionResult: TypeAlias = Allow | AllowOnce | AllowAll | Edit | Deny
QuestionResult: TypeAlias = Answers | Deny
PlanResult: TypeAlias = Allow | Deny
ElicitationAnswer: TypeAlias = Accept | Decline | Cancel

CanUseToolCallback: TypeAlias = Callable[
    [CanUseToolContext], PermissionResult | Awaitable[PermissionResult]
]
QuestionCallback: TypeAlias = Callable[
    [QuestionContext], QuestionResult | Awaitable[QuestionResult]
]
PlanCallback: TypeAlias = Callable[[PlanContext], PlanResult | Awaitable[PlanResult]]
ElicitationCallback: TypeAlias = Callable[
    [ElicitationRequestContext], ElicitationAnswer | Awaitable[ElicitationAnswer]
]
