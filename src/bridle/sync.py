"""Blocking versions of ``run``, ``query`` and sessions, for code without ``async``.

Use them in scripts, notebooks, task queues and web frameworks, from any thread, also from a thread
with a running event loop. One background thread with an event loop does the work for the whole
process. Bridle starts it at the first call. The names are those of ``bridle``, with these
differences:

=====================  ====================
``bridle``             ``bridle.sync``
=====================  ====================
``await call()``       ``call()``
``async for``          ``for``
``async with``         ``with``
``aclose()``           ``close()``, or ``aclose()``
``await turn``         ``turn.outcome()``
=====================  ====================

``bridle.sync.sessions`` has the functions of ``bridle.sessions``.

Blocking: a call blocks only the thread that makes it.

Threads: any thread may call any method at any time. Use an iterator in one thread only.

Callbacks: a plain function runs in its own thread and may call every function of this module, such
as ``session.interrupt()``, or ``context.session.interrupt()`` in a tool. An ``async def`` function
runs on the shared event loop and must not block; blocking functions of this module raise
``UsageError`` there. Both see the context variables of the code that sent the prompt.

Ctrl-C: ``KeyboardInterrupt``, or another exception of a signal handler, ends a blocking call at
once. A start or a ``run`` is stopped, an operation is cancelled, and a turn is interrupted. The
session stays usable, and the end of ``with`` shuts it down.

Forks: a child process has its own event loop. In the child, sessions of the parent are stopped.
The parent's sessions are not affected.

Exit: when the interpreter exits, it stops all sessions that are still open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from bridle import _sync_sessions as sessions
from bridle._core.state import Lifecycle
from bridle._core.text_stream import TextStream
from bridle._core.turn_events import TurnTranslator
from bridle._doors.blocking import Inbox, QueryStream, Source, Subscription, TextPieces, TurnEvents
from bridle._doors.blocking_operations import (
    ContextOperations,
    ConversationOperations,
    FileOperations,
    InfoOperations,
    McpOperations,
    ModelOperations,
    OperationGroups,
    PluginOperations,
    SettingsOperations,
    TaskOperations,
)
from bridle._doors.not_given import NOT_GIVEN
from bridle._doors.portal import Portal, Work, portal
from bridle._doors.session import InnerSession
from bridle._doors.session_start import check_prompt
from bridle._doors.turn import Turn as AsyncTurn
from bridle._doors.turn import final_outcome, take_back
from bridle._keyword_types import Options
from bridle._shell.preflight import settle_keywords
from bridle._shell.turn import taken_over
from bridle.approvals import PendingApproval
from bridle.content import Content, Prompts
from bridle.events import SessionEvent, Update
from bridle.messages import Message
from bridle.options import BidirOptions, CliOptions, Retry, SdkOptions
from bridle.outcomes import Outcome, Output, SessionUsage

if TYPE_CHECKING:
    from bridle._doors.query import QueryStream as AsyncQueryStream
    from bridle._doors.run import OneTurn

__all__ = [
    "ContextOperations",
    "ConversationOperations",
    "FileOperations",
    "InfoOperations",
    "McpOperations",
    "ModelOperations",
    "PluginOperations",
    "QueryStream",
    "Session",
    "SettingsOperations",
    "Subscription",
    "TaskOperations",
    "TextPieces",
    "Turn",
    "TurnEvents",
    "query",
    "run",
    "sessions",
    "start_session",
]

_T = TypeVar("_T")


# ---------------------------------------------------------------- run and query


@overload
def run(
    prompt: Content,
    *,
    cli: CliOptions | None = ...,
    sdk: SdkOptions | None = ...,
    bidir: BidirOptions | None = ...,
    output_type: type[Output],
    output_retries: int = ...,
    retry: Retry | None = ...,
    keep_messages: bool = ...,
    deps: Any = ...,
    **options: Unpack[Options],
) -> Outcome[Output]: ...


@overload
def run(
    prompt: Content,
    *,
    cli: CliOptions | None = ...,
    sdk: SdkOptions | None = ...,
    bidir: BidirOptions | None = ...,
    output_type: Any = ...,
    output_retries: int = ...,
    retry: Retry | None = ...,
    keep_messages: bool = ...,
    deps: Any = ...,
    **options: Unpack[Options],
) -> Outcome[Any]: ...


def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: Any = None,
    output_retries: int = 1,
    retry: Retry | None = None,
    keep_messages: bool = False,
    deps: Any = None,
    **options: Unpack[Options],
) -> Outcome[Any]:
    """Run one prompt and return its outcome.

    See ``bridle.run`` for the arguments and limits.

    Raises:
        OptionsError: an option or the prompt is invalid. Nothing was started.
        StartError: the CLI did not start. Its processes, files and tasks are removed.

    Ctrl-C shuts down the CLI.
    """
    from bridle._doors.run import Run  # not every program uses it

    settled = settle_keywords(cli, sdk, bidir, options)
    return run_job(
        Run(
            prompt,
            settled,
            output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )
    )


def run_job(job: OneTurn) -> Outcome[Any]:
    """Run a job on the shared event loop, and return its outcome."""
    job.show = RunSession
    return RunSession(job).work(job.outcome)


def query(
    prompt: Prompts,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    deps: Any = None,
    **options: Unpack[Options],
) -> QueryStream:
    """Send prompts to the CLI and iterate over its messages.

    With callbacks or in-process tools the query runs as a session; without them it is one-way. See
    ``bridle.query`` for prompts and limits.

    ``prompt`` can be an iterator over several prompts. Bridle reads it in its own thread, so it may
    block, and may call every function of this module.

    Raises:
        OptionsError: an option or the prompt is invalid. Nothing was started.
    """
    from bridle._doors.query import stream  # not every program uses it

    return read_query(stream(prompt, settle_keywords(cli, sdk, bidir, options), deps))


def read_query(stream: AsyncQueryStream) -> QueryStream:
    """Return a blocking iterator over the messages of a query."""
    from bridle._doors.query import session_of

    session = session_of(stream)
    shown = None if session is None else RunSession(session)
    return QueryStream(stream, portal(), keep=shown)


# ---------------------------------------------------------------- sessions and turns


class Turn:
    """The work on one prompt: iterate it for its messages, call ``outcome()`` for its outcome.

    If you need both, iterate first. ``outcome()`` discards the messages if no loop reads them, and
    a later loop raises UsageError.

    The session keeps unread messages of turns for the next loop: at most 8 MiB for all turns that
    no loop has read yet (copies of your prompts do not count), and at most
    ``SdkOptions.max_unread_bytes`` for all turns, including those with an abandoned loop. Above
    that it drops the messages of the oldest turn with the warning ``missed_messages``, and a loop
    over that turn raises ConsumerTooSlow.

    A turn has one stream of messages. A loop over the turn, over ``events()`` or over
    ``text_stream()`` reads it. If a second loop starts, it gets the rest, and the first one raises
    UsageError. To read events and messages at the same time, use ``session.messages()``.

    Ctrl-C during the wait for a message, an event or the outcome interrupts the turn.
    """

    def __init__(self, turn: AsyncTurn, home: Portal) -> None:
        self._turn = turn
        self._text = TextStream()
        self._translator = TurnTranslator()
        self._reading: Inbox[Message] | None = None
        self._portal = home

    @property
    def uuid(self) -> str:
        """Return the UUID of the prompt. Pass it to ``rewind_files``."""
        return self._turn.uuid

    @property
    def done(self) -> bool:
        """Return True if the turn has its outcome."""
        return self._turn.done

    def __iter__(self) -> Subscription[Message]:
        """Iterate over the messages of this turn, in order, until the turn ends."""
        keep = partial(take_back, self._turn)
        make = self._take_over
        return Subscription(Inbox(self._portal, "reading a turn", make, self._interrupt, keep))

    def _take_over(self, inbox: Inbox[Message]) -> Source[Message]:
        # Runs on the event loop in one step, so that there is always exactly one reader.
        if self._reading is not None:
            self._reading.give_way(taken_over())
        self._reading = inbox
        return self._turn.__aiter__()

    def text_stream(self) -> TextPieces:
        """Return an iterator over the text of this turn, without repetitions.

        It separates text blocks by a blank line, and omits error messages of the CLI. If the model
        refused and a new answer follows, the text of the new answer comes when it is complete.
        """
        return TextPieces(self.__iter__(), self._text)

    def events(self) -> TurnEvents:
        """Return an iterator over the events of this turn, for user interfaces.

        The last event is always ``TurnEnded``, with the outcome. The events are the same with and
        without ``CliOptions.include_partial_messages``, except that with it the text comes in more
        deltas.
        Set ``CliOptions.forward_subagent_text`` to get the text of subagents.
        """
        return TurnEvents(self.__iter__(), self._translator, self._final_outcome)

    def _final_outcome(self) -> Outcome[Any] | None:
        return self._portal.call("outcome", partial(final_outcome, self._turn), self._interrupt)

    def interrupt(self, *, timeout: float | None = None) -> None:
        """End this turn. Its outcome becomes ``interrupted``.

        A prompt that still waits in the CLI's queue is removed from it. Prompts that were merged
        into this turn end with it. Other queued prompts run next. Nothing happens if the turn has
        ended.

        Raises:
            ControlTimeout: no response within ``timeout`` seconds.
            ControlError: the CLI rejected the request, or has too many pending requests.
        """
        self._portal.call("interrupt", lambda: self._turn.interrupt(timeout=timeout))

    def outcome(self) -> Outcome[Any]:
        """Wait until the turn ends, and return its outcome. A failed turn raises nothing.

        If no loop reads the turn, its messages are discarded. Any number of threads may wait.
        """
        return self._portal.call("outcome", self._turn.outcome, self._interrupt)

    def _interrupt(self) -> None:
        if not self.done:
            self._portal.start(self._turn.interrupt)

    def __repr__(self) -> str:
        return f"sync.{self._turn!r}"


class Session(OperationGroups):
    """A conversation with its own CLI process.

    Create it, then call :meth:`connect`; or use :func:`start_session`, which does both. The
    constructor only checks the options and starts nothing.

    ``with`` connects the session and shuts it down at the end. If the session object is
    garbage-collected, Bridle stops the session.

    Options are the fields of the three records by name, or the records themselves. ``deps`` is any
    object for the callbacks of the session.

    Timeouts: an operation waits ``SdkOptions.control_timeout`` seconds for the CLI's response, or
    its own ``timeout`` in seconds.
    Errors: an operation that fails raises ``ControlError`` or a subclass, such as
    ``ControlTimeout``, ``ControlRejected`` or ``SessionStopped``.

    Raises:
        OptionsError: an option is unknown, invalid, or contradicts another one.
    """

    def __init__(
        self,
        cli: CliOptions | None = None,
        sdk: SdkOptions | None = None,
        bidir: BidirOptions | None = None,
        *,
        deps: Any = None,
        output_type: Any = None,
        output_retries: int = 1,
        **options: Unpack[Options],
    ) -> None:
        settled = settle_keywords(cli, sdk, bidir, options)
        self._adopt(InnerSession(settled, deps, output_type, output_retries))

    def _adopt(self, session: InnerSession) -> None:
        session.show_as(self)
        self._session = session
        # Set at the first use, not here: the process may fork in between.
        self._made: Portal | None = None
        self._connecting = False

    def connect(self) -> None:
        """Start the CLI and wait until the session is running.

        Raises:
            StartError: the session did not start. Its processes, files and tasks are removed.
            UsageError: ``connect`` was already called.

        Ctrl-C stops the session.
        """
        self._connecting = True
        home, session = self._portal, self._session
        home.call("connect", session.connect, lambda: home.start(session.stop))

    @property
    def _portal(self) -> Portal:
        if self._made is None:
            self._made = portal()
        return self._made

    @property
    def _is_lost(self) -> bool:
        return self._made is not None and self._made.is_over

    def _call(self, operation: str, work: Work[_T]) -> _T:
        return self._portal.call(operation, work)

    def _subscribe(self, operation: str, make: Callable[[], Source[_T]]) -> Subscription[_T]:
        return Subscription(Inbox(self._portal, operation, lambda _: make()))

    # -- state -------------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """Return the id of the session. It changes when the conversation is cleared.

        It is None until the first turn starts if ``continue_session`` is set without a store, or if
        ``resume_session_id`` is a title or a path: only the CLI knows which session it resumes.
        """
        return self._session.id

    @property
    def pending(self) -> PendingApproval | None:
        """Return the tool call that waits for approval, or None. Prompts are rejected meanwhile."""
        return self._session.pending

    @property
    def deps(self) -> Any:
        """Return the object that callbacks get, unless a prompt is sent with another one."""
        return self._session.deps

    @property
    def pid(self) -> int | None:
        """Return the process id of the CLI, or None if it was not started."""
        return self._session.pid

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the state: ``starting``, ``init_sent``, ``running``, ``stopped`` or ``failed``."""
        return Lifecycle.STOPPED if self._is_lost else self._session.lifecycle

    @property
    def alive(self) -> bool:
        """Return True while the session can be used."""
        return self._session.alive and not self._is_lost

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Return the capabilities that the CLI announced. CLI 2.1.197 announces none."""
        return self._session.capabilities

    @property
    def server_info(self) -> Mapping[str, object] | None:
        """Return the CLI's response to the handshake as JSON, or None before the handshake."""
        return self._session.server_info

    @property
    def usage(self) -> SessionUsage:
        """Return the tokens and the cost of the session so far, in total and for each turn.

        Subagents are included, and so are the answers of the running turn.
        """
        return self._session.usage

    # -- messages and events -----------------------------------------------------------------------

    def messages(self) -> Subscription[Message]:
        """Subscribe to all messages of the session, in order, from now on.

        The first subscription also yields the messages since the start: at most the newest 256
        messages and 1 MiB. If there were more, the warning ``missed_messages`` has their number.
        Close a subscription that you do not read: unread messages are limited by
        ``SdkOptions.max_unread_bytes``.
        """
        return self._subscribe("messages", self._session.messages)

    def events(self) -> Subscription[SessionEvent]:
        """Subscribe to lifecycle events and warnings.

        The session keeps the newest 256 unread events. The warning ``missed_events`` replaces
        those that were dropped. The first subscription also yields the events since the start.
        """
        return self._subscribe("events", self._session.events)

    def subscribe(self) -> Subscription[Update]:
        """Subscribe to messages and events together, in order.

        The limits of :meth:`messages` apply.
        """
        return self._subscribe("subscribe", self._session.subscribe)

    def text_stream(self) -> TextPieces:
        """Return an iterator over all text of the session. See `Turn.text_stream`."""
        return TextPieces(self.messages(), TextStream())

    # -- operations --------------------------------------------------------------------------------

    def send_user_message(
        self, content: Content, *, timeout: float | None = None, deps: Any = NOT_GIVEN
    ) -> Turn:
        """Send a prompt: text, or a list of content blocks. Return when it is written.

        You can send prompts while a turn runs. The CLI merges queued prompts into one turn; their
        outcomes have ``merged_with``, and the callbacks of that turn get the ``deps`` and the
        `contextvars` of the first of them.

        Args:
            content: the prompt.
            timeout: seconds that writing may take. None means no limit.
            deps: the object that the callbacks of this turn get as ``context.deps``. The default is
                the ``deps`` of the session.

        Raises:
            OptionsError: the content is invalid.
            ControlTimeout: the prompt was not written within ``timeout`` seconds, because the CLI
                does not read its input. The CLI may still receive it later.
            ControlError: the session has stopped, or its input is closed.
        """
        turn = self._call(
            "send_user_message",
            lambda: self._session.send_user_message(content, timeout=timeout, deps=deps),
        )
        return Turn(turn, self._portal)

    def interrupt(
        self, *, cancel_queued: bool = False, timeout: float | None = None
    ) -> Mapping[str, object] | None:
        """Interrupt the running turn. Its outcome becomes ``interrupted``.

        The CLI continues with queued prompts, unless ``cancel_queued`` is True. CLI 2.1.197
        ignores ``cancel_queued``. Returns the CLI's response.

        Raises:
            ControlTimeout: no response within ``timeout`` seconds.
            ControlError: the session has stopped, or has too many pending requests.
        """
        return self._call(
            "interrupt",
            lambda: self._session.interrupt(cancel_queued=cancel_queued, timeout=timeout),
        )

    def set_permission_mode(self, mode: str, *, timeout: float | None = None) -> None:
        """Change the permission mode: when the CLI asks for permission from now on."""
        self._call(
            "set_permission_mode", lambda: self._session.set_permission_mode(mode, timeout=timeout)
        )

    def set_model(self, model: str | None, *, timeout: float | None = None) -> None:
        """Use another model from the next request on. None means the default model."""
        self._call("set_model", lambda: self._session.set_model(model, timeout=timeout))

    def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: float | None = None
    ) -> Mapping[str, object]:
        """Restore files to their state when the prompt with this UUID (``turn.uuid``) was sent.

        With ``dry_run=True`` the CLI changes nothing and reports what it would change. The default
        ``timeout`` is four times ``control_timeout``, because the CLI may write many files.
        Returns the CLI's response.

        Raises:
            CheckpointingNotEnabled: the session has no file checkpointing.
            ControlRejected: there is no checkpoint for that prompt.
        """
        return self._call(
            "rewind_files",
            lambda: self._session.rewind_files(user_message_id, dry_run=dry_run, timeout=timeout),
        )

    def control(
        self, subtype: str, /, *, timeout: float | None = None, **fields: object
    ) -> Mapping[str, object] | None:
        """Send a control request with this subtype and these fields. Return the CLI's response.

        Raises:
            OptionsError: a field is missing or has the wrong type. Nothing was sent.
            ControlTimeout: no response within ``timeout`` seconds. A late response is dropped.
            ControlRejected: the CLI responded with an error.
            ControlError: the session has stopped, did not start, or has too many pending requests.
        """
        return self._call(
            subtype, lambda: self._session.control(subtype, timeout=timeout, **fields)
        )

    def ping(self, *, timeout: float | None = None) -> float:
        """Check that the CLI responds. Return the time that it took, in seconds."""
        return self._call("ping", lambda: self._session.ping(timeout=timeout))

    # -- shutdown ----------------------------------------------------------------------------------

    def end_input(self) -> None:
        """Close the CLI's input. The CLI finishes its work and exits.

        Bridle can no longer respond to the CLI, so tools that need permission are denied.
        """
        self._call("end_input", self._session.end_input)

    def stop(self) -> None:
        """Stop the session: send SIGTERM to the whole process tree, and SIGKILL after five seconds.

        Return when all processes have exited. Pending operations fail with ``SessionStopped``.
        You can call it more than once. The session stops even if Ctrl-C ends the call.
        """
        self._end("stop", self._session.stop)

    def close(self) -> None:
        """Shut down the session.

        Interrupt a running turn, reject pending requests of the CLI, close its input, and give it
        five seconds to write its transcript. Then continue as :meth:`stop`.
        """
        self._end("close", self._session.aclose)

    def aclose(self) -> None:
        """Shut down the session.

        The same as :meth:`close`, under the name that the async session uses.
        """
        self.close()

    def _end(self, operation: str, work: Work[None]) -> None:
        # In a forked child the session has stopped already. The parent ends its process.
        if not self._is_lost:
            self._call(operation, work)

    def __enter__(self) -> Session:
        if not self._connecting:
            self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"sync.{self._session!r}"


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


def start_session(
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    prompt: Content | None = None,
    deps: Any = None,
    output_type: Any = None,
    output_retries: int = 1,
    **options: Unpack[Options],
) -> Session:
    """Start a session: ``with start_session(...) as session``, or call ``close()`` yourself.

    The session that you get is running.

    Args:
        prompt: a prompt to send at once. Read its answer immediately, from ``session.messages()``
            or ``session.text_stream()``: until the first subscription, the session keeps only the
            newest 256 messages, at most 1 MiB. If you need more time, use ``send_user_message``
            and iterate the turn.
        deps: any object for the callbacks of the session.
        output_type: the type of ``outcome.output``, for every turn. See ``bridle.run``.
        output_retries: how often to send an answer that fails validation back to the model.
        options: the fields of the three records by name, such as ``model="sonnet"``.

    Raises:
        OptionsError: an option or the prompt is invalid.
        StartError: the CLI did not start. Its processes, files and tasks are removed.
    """
    settled = settle_keywords(cli, sdk, bidir, options)
    return connect(AgentSession(InnerSession(settled, deps, output_type, output_retries)), prompt)


def connect(session: Session, prompt: Content | None) -> Session:
    """Connect a session, send it the prompt if there is one, and return it."""
    if prompt is not None:
        check_prompt(prompt)
    session.connect()
    if prompt is not None:
        try:
            session.send_user_message(prompt)
        except BaseException:
            session.stop()
            raise
    return session
