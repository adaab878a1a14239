"""What `SyncAgent` stands on: the plan of an agent, which it shares with `Agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from bridle._session.agent_plan import AgentPlan

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The default allows plain `Agent` in annotations. Only type checkers support it so far.
    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")


def refuse_pickle() -> NoReturn:
    """Raise TypeError: agents hold functions and objects of this process."""
    raise TypeError(
        "An Agent cannot be pickled: it holds functions and objects of this process. "
        "Create it in each process, for example in a module that all of them import."
    )


class AgentBase(Generic[Deps]):
    """The plan of an agent."""

    __slots__ = ("_plan",)

    def __init__(self, plan: AgentPlan) -> None:
        self._plan = plan

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: agents hold functions and objects of this process."""
        refuse_pickle()

    def __repr__(self) -> str:
        return f"<blocking methods of an Agent with {self._plan.options.cli!r}>"
