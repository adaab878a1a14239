"""The blocking sessions that tools get as their context, and the doors that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from bridle._session.session import InnerSession
from bridle._session.session_start import check_prompt
from bridle.content import Content
from bridle.outcomes import Outcome
from bridle.sync._iterators import Inbox, QueryStream, RunOutcomes, Subscription
from bridle.sync._portal import Work, portal
from bridle.sync._session_twin import Session

if TYPE_CHECKING:
    # Not every program uses them.
    from bridle._session.one_way.query import QueryStream as AsyncQueryStream
    from bridle._session.recover import Recovery
    from bridle._session.run import OneTurn
    from bridle._session.run_many import RunMany

_T = TypeVar("_T")


class AgentSession(Session):
    """A session with options that are resolved already."""

    def __init__(self, session: InnerSession) -> None:
        self._adopt(session)


class RunSession(AgentSession):
    """The session of a ``run`` or a ``query``, which its tools get as `ToolContext.session`."""

    def __init__(self, session: InnerSession) -> None:
        super().__init__(session)
        self._connecting = True

    def work(self, work: Work[_T]) -> _T:
        """Run the coroutine of the ``run``, and return its result."""
        return self._call("run", work)


def shown(job: OneTurn) -> RunSession:
    """Return the session that the tools of a run get as `ToolContext.session`."""
    return RunSession(job.session)


def run_job(job: OneTurn) -> Outcome[Any]:
    """Run a job on the shared event loop, and return its outcome."""
    job.show = shown
    return shown(job).work(job.outcome)


def recover_job(job: Recovery) -> list[Outcome[Any]]:
    """Recover a session on the shared event loop, and return the outcomes of its prompts."""
    job.show = shown
    return portal().call("recover", job.outcomes)


def read_query(stream: AsyncQueryStream) -> QueryStream:
    """Return a blocking iterator over the messages of a query."""
    from bridle._session.one_way.query import session_of

    session = session_of(stream)
    keep = None if session is None else RunSession(session)
    return QueryStream(stream, portal(), keep=keep)


def read_runs(plan: RunMany) -> Subscription[tuple[Any, Outcome[Any]]]:
    """Return a blocking iterator over the outcomes of many runs."""
    shown_plan = structs.replace(plan, show=shown)
    inbox: Inbox[tuple[Any, Outcome[Any]]] = Inbox(
        portal(), "run_many", lambda _: shown_plan.outcomes(), ahead=1
    )
    return RunOutcomes(inbox)


def connect(inner: InnerSession, prompt: Content | None) -> Session:
    """Connect a session, send it the prompt if there is one, and return it."""
    if prompt is not None:
        check_prompt(prompt)
    session = AgentSession(inner)
    session.connect()
    if prompt is not None:
        try:
            session.send_user_message(prompt)
        except BaseException:
            session.stop()
            raise
    return session
