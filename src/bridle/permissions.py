"""Permission requests, questions, plans and elicitations: their contexts and results.

This module defines data only. A context is the argument of a callback, a result is what the
callback returns. Permission updates are rules that the CLI suggests or that a result sets. The core
encodes results and handles invalid ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, cast

import msgspec

from bridle._records.raw_line import JsonObject, revive
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
    "Complete",
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
    "UserDialogAnswer",
    "UserDialogCallback",
    "UserDialogContext",
    "Withdrawal",
]


def _wire_form(value: object) -> JsonObject:
    """Return the JSON object that `value` was decoded from, or one made from its fields."""
    bound: JsonObject | Callable[[], JsonObject] | None = getattr(value, "_raw", None)
    if bound is not None:
        return bound() if callable(bound) else bound
    return cast("JsonObject", msgspec.json.decode(msgspec.json.encode(value)))


def _copied(value: object) -> tuple[Any, ...]:
    """Return the value for `__reduce__`, so that copies keep the raw JSON."""
    fields = cast("msgspec.Struct", value).__struct_fields__
    values = {name: getattr(value, name) for name in fields}
    beside = {"_raw": _wire_form(value)} if hasattr(value, "_raw") else {}
    return revive, (type(value), values, beside)


# ---------------------------------------------------------------- cancellation of requests


class Withdrawal(Protocol):
    """Whether the CLI has cancelled a request. The code that runs the callback implements it."""

    def is_set(self) -> bool:
        """Return whether the CLI has cancelled the request."""
        ...

    def wait(self) -> Awaitable[None]:
        """Return an awaitable that finishes when the CLI cancels the request."""
        ...

    def wait_sync(self, timeout: float | None) -> bool:
        """Block until the CLI cancels the request (True), or for `timeout` seconds (False)."""
        ...

    @property
    def deps(self) -> Any:
        """Return the deps of the prompt that the request belongs to."""
        ...


class Withdrawable:
    """Base class of contexts: the raw JSON of a request, and whether the CLI has cancelled it.

    Both are stored outside the fields, so `==` and `repr()` use only the fields. For a context that
    a test creates, `.raw` is made from the fields and `cancelled` is always False. Waiting for its
    cancellation raises UsageError, because it would never return.
    """

    __slots__ = ("_raw", "_withdrawal")

    #: The JSON object, or a function that returns it.
    _raw: JsonObject | Callable[[], JsonObject]
    _withdrawal: Withdrawal

    @property
    def raw(self) -> JsonObject:
        """Return the whole JSON object as the CLI sent it. Each access may parse it again."""
        return _wire_form(self)

    @property
    def deps(self) -> Any:
        """Return the object that the program gave as ``deps``.

        It is that of the prompt whose turn the CLI works on, and by default that of the session or
        agent. None if there is none, and in a copy of a context.
        """
        withdrawal: Withdrawal | None = getattr(self, "_withdrawal", None)
        return None if withdrawal is None else withdrawal.deps

    @property
    def cancelled(self) -> bool:
        """Return True if the CLI has cancelled the request. Bridle then ignores the result."""
        withdrawal: Withdrawal | None = getattr(self, "_withdrawal", None)
        return withdrawal is not None and withdrawal.is_set()

    def wait_cancelled(self) -> Awaitable[None]:
        """Wait, in an `async def` callback, until the CLI cancels the request.

        Raises:
            UsageError: this context does not belong to a session.
        """
        return self._bound_withdrawal().wait()

    def wait_cancelled_sync(self, timeout: float | None = None) -> bool:
        """Block, in a plain `def` callback, until the CLI cancels the request.

        Returns True if the CLI cancelled it, False after `timeout` seconds (None: no timeout).

        Raises:
            UsageError: this context does not belong to a session.
        """
        return self._bound_withdrawal().wait_sync(timeout)

    def _bound_withdrawal(self) -> Withdrawal:
        withdrawal: Withdrawal | None = getattr(self, "_withdrawal", None)
        if withdrawal is None:
            raise UsageError(
                f"This {type(self).__name__} belongs to no session, so it cannot be cancelled.",
                fix="Wait on the context that Bridle passed to the callback, not on a copy.",
            )
        return withdrawal

    def __copy__(self) -> Self:
        return self  # frozen, so a copy is not needed

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy belongs to no session, so it cannot be cancelled.
        return _copied(self)


# Slot descriptors can write to a frozen struct: `frozen` prevents only attribute assignment.
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
    """A rule for all calls of a tool, or for the calls that `rule_content` describes.

    A `rule_content` of None is not sent, because the CLI drops rules whose content is null.
    """

    tool_name: str
    rule_content: str | None = None


class PermissionUpdate:
    """Base class of changes to permission rules: suggested by the CLI, or returned in `Allow`.

    `destination` says where the change is stored: in the running session, or in a settings file.
    Older CLIs write the settings file but read it only at their next start.
    """

    __slots__ = ("_raw",)

    _raw: JsonObject

    @property
    def raw(self) -> JsonObject:
        """Return the JSON object as the CLI sent it, or as Bridle would send it."""
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
    """Add permission rules."""

    rules: tuple[PermissionRule, ...]
    behavior: PermissionBehavior = "allow"


class ReplaceRules(_ForDestination, frozen=True, tag_field="type", tag="replaceRules"):
    """Replace all rules of this behavior and destination."""

    rules: tuple[PermissionRule, ...]
    behavior: PermissionBehavior = "allow"


class RemoveRules(_ForDestination, frozen=True, tag_field="type", tag="removeRules"):
    """Remove permission rules."""

    rules: tuple[PermissionRule, ...]
    behavior: PermissionBehavior = "allow"


class SetMode(_ForDestination, frozen=True, tag_field="type", tag="setMode"):
    """Switch the permission mode."""

    mode: str


class AddDirectories(_ForDestination, frozen=True, tag_field="type", tag="addDirectories"):
    """Let tools access additional directories."""

    directories: tuple[str, ...]


class RemoveDirectories(_ForDestination, frozen=True, tag_field="type", tag="removeDirectories"):
    """Remove directories from those that tools may access."""

    directories: tuple[str, ...]


class UnknownPermissionUpdate(PermissionUpdate, msgspec.Struct, frozen=True):
    """An update of an unknown kind. Bridle keeps and sends it unchanged."""

    wire: JsonObject

    @property
    def raw(self) -> JsonObject:
        """Return the JSON object."""
        return self.wire


# ---------------------------------------------------------------- contexts


class McpServerRef(msgspec.Struct, frozen=True):
    """The MCP server of a tool, and where that server is configured."""

    name: str
    source: str | None = None


class CanUseToolContext(Withdrawable, msgspec.Struct, frozen=True):
    """The CLI asks whether a tool may run.

    The CLI waits without a timeout. Several requests can be pending at once. The CLI cancels a
    request after an interrupt, or if a PermissionRequest hook answers first.
    """

    # The fields of the request in the order of the wire, then those that Bridle adds.
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
    """One of the offered answers."""

    label: str
    description: str = ""


class Question(msgspec.Struct, frozen=True, rename="camel"):
    """A question of the model to the user, with the offered answers."""

    question: str
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multi_select: bool = False


class QuestionContext(CanUseToolContext, frozen=True):
    """The model asks the user questions (its AskUserQuestion tool)."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """Return the questions. Malformed entries are omitted here; `raw` still has them."""
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
        """Return the text of the plan, or None if the CLI did not send it."""
        plan: object = self.tool_input.get("plan")
        return plan if isinstance(plan, str) else None


class ElicitationRequestContext(Withdrawable, msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server asks the user for data that match `requested_schema`, or to visit `url`."""

    mcp_server_name: str
    message: str = ""
    mode: str = "form"
    requested_schema: JsonObject | None = None
    property_order: tuple[str, ...] = ()
    url: str | None = None
    elicitation_id: str | None = None


class UserDialogContext(Withdrawable, msgspec.Struct, frozen=True, kw_only=True):
    """The CLI asks the program to show a dialog to the user.

    The form of `payload` depends on `dialog_kind`. Return `Cancel()` for a kind that your program
    does not know; the CLI then does what it does without the dialog.
    """

    dialog_kind: str
    payload: JsonObject = msgspec.field(default_factory=dict[str, Any])
    tool_use_id: str | None = None


# ---------------------------------------------------------------- results


class Allow(msgspec.Struct, frozen=True):
    """Let the tool run with its input, and apply `updated_permissions` to the rules."""

    updated_permissions: Sequence[PermissionUpdate] = ()


class AllowOnce(msgspec.Struct, frozen=True):
    """Let the tool run this time. The next call causes a new permission request."""


class AllowAll(msgspec.Struct, frozen=True):
    """Let the tool run, and allow all later calls of this tool in the session."""


class Edit(msgspec.Struct, frozen=True):
    """Let the tool run with another input, and apply `updated_permissions` to the rules.

    If `new_input` is empty and the original is not, Bridle denies the call: the CLI would ignore
    the empty input and use the original.
    """

    new_input: Mapping[str, Any]
    updated_permissions: Sequence[PermissionUpdate] = ()


class Deny(msgspec.Struct, frozen=True):
    """Do not run the tool. The model reads the reason and continues.

    With `interrupt=True` the turn ends as interrupted, and the model does not read the reason.
    """

    reason: str
    interrupt: bool = False


class Answers(msgspec.Struct, frozen=True):
    """Answer questions: a mapping from the text of a question to its answer.

    An answer is a label, a list of labels, or other text.
    """

    answers: Mapping[str, str | Sequence[str]]


class Accept(msgspec.Struct, frozen=True):
    """Send the requested data to the MCP server."""

    content: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


class Decline(msgspec.Struct, frozen=True):
    """Decline the elicitation: the user does not want to send the data."""


class Cancel(msgspec.Struct, frozen=True):
    """Cancel the elicitation or the dialog: the user made no decision."""


class Complete(msgspec.Struct, frozen=True):
    """Return the user's choice in a dialog. The form of `result` depends on the kind of dialog."""

    result: Any = None


PermissionResult: TypeAlias = Allow | AllowOnce | AllowAll | Edit | Deny
QuestionResult: TypeAlias = Answers | Deny
PlanResult: TypeAlias = Allow | Deny
ElicitationAnswer: TypeAlias = Accept | Decline | Cancel
UserDialogAnswer: TypeAlias = Complete | Cancel

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
UserDialogCallback: TypeAlias = Callable[
    [UserDialogContext], UserDialogAnswer | Awaitable[UserDialogAnswer]
]
