"""The base class of messages, in its own module because several modules define messages."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from bridle._records.raw_line import WholeLine, attach, tag_of


class Subagent(Struct, frozen=True, gc=False):
    """A subagent, named by the tool call that started it."""

    #: The id of the call of the Agent tool (`Task` in older CLIs). It is unique in the session.
    id: str
    #: The kind of subagent, such as `general-purpose` or a name of `CliOptions.agents`.
    type: str | None = None


AgentPath: TypeAlias = tuple[Subagent, ...]
"""Where a message comes from: empty for the main agent, else each subagent from the outermost."""


class AgentNode:
    """A subagent of a session, and the subagent that called it.

    `bridle._engine.turns.subagents` makes them.

    A node may learn its type and its caller after messages already refer to it.
    """

    __slots__ = ("caller", "id", "type")

    def __init__(self, id: str, type: str | None = None, caller: AgentNode | None = None) -> None:
        self.id = id
        self.type = type
        self.caller = caller

    @property
    def path(self) -> AgentPath:
        """Return the path to this subagent, this one included."""
        nodes: list[AgentNode] = []
        node: AgentNode | None = self
        while node is not None and node not in nodes:  # a broken CLI may make a call call itself
            nodes.append(node)
            node = node.caller
        return tuple(Subagent(each.id, each.type) for each in reversed(nodes))


class _Placed(WholeLine):
    """A line of a conversation: has a slot for the subagent that it comes from."""

    __slots__ = ("_agent",)

    # Unset for messages of the main agent, and for messages decoded outside a session.
    _agent: AgentNode


# gc=False: decoded JSON has no reference cycles. A program that creates one, by putting a message
# into its own dict or list, must break the cycle itself.
class Message(_Placed, Struct, frozen=True, gc=False, kw_only=True, repr_omit_defaults=True):
    """Base class of all messages. Lines of the control protocol are not messages."""

    session_id: str | None = None
    uuid: str | None = None

    @property
    def type(self) -> str:
        """Return the `type` of the message on the wire."""
        return tag_of(self)

    @property
    def agent_path(self) -> AgentPath:
        """Return the subagents that the message comes from, the outermost first.

        Empty for the main agent. Messages about a task (`TaskStartedMessage` …) come from the
        subagent that the task runs, or from the agent that started the shell or monitor. Outside a
        session (`decode_line`) only the last subagent is known.
        """
        try:
            return self._agent.path
        except AttributeError:
            call: str | None = getattr(self, "parent_tool_use_id", None)
        if call is None or getattr(self, "heartbeat", False):  # the parent of that is its own call
            return ()
        return (Subagent(call, getattr(self, "subagent_type", None)),)


def same_agent(source: Message, copy: Message) -> None:
    """Give a message that was made from ``source`` its agent path."""
    if hasattr(source, "_agent"):
        attach(copy, "_agent", source._agent)  # pyright: ignore[reportPrivateUsage]
