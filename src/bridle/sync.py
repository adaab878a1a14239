"""The blocking door: the same names as in ``bridle``, for code without ``async``.

Scripts, notebooks, workers of a task queue, views of a web framework: from any thread, with or
without an event loop running in it. Everything is carried out by one event loop in a thread of its
own, shared by the whole process and started when first needed. What each name means is said where
its asynchronous twin is documented; a twin differs only in this:

=====================  ====================
``bridle``             ``bridle.sync``
=====================  ====================
``await call()``       ``call()``
``async for``          ``for``
``async with``         ``with``
``aclose()``           ``close()``, or ``aclose()``
``await turn``         ``turn.outcome()``
=====================  ====================

Blocking: a call holds up its own thread only.

Threads: every method may be called from any thread, at any time. One iterator is for one thread.

Callbacks: a plain function gets a thread of its own and may call everything here, such as
``session.interrupt()``, or in a tool ``ctx.session.interrupt()``. An ``async def`` runs on the
shared loop, may block nothing, and gets a ``UsageError`` from whatever here would. Both see the
context variables of who started the session.

Ctrl-C: ``KeyboardInterrupt``, or whatever else a signal handler raises, leaves a blocking call at
once. What it waited for is withdrawn: a start or a ``run`` is stopped, an operation cancelled; if
it waited for a turn, the turn is interrupted. The session stays usable, and leaving ``with`` closes
it as ever.

Forks: a child process has a loop of its own. In it the parent's sessions are stopped sessions;
those of the parent never notice.

Exit: sessions that are left when the interpreter exits are stopped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, overload

from bridle._core.state import Lifecycle
from bridle._core.text import TextStream
from bridle._doors.blocking import Inbox, QueryStream, Source, Subscription, TextPieces
from bridle._doors.portal import Portal, Work, portal
from bridle._doors.session import InnerSession
from bridle._doors.session import Session as AsyncSession
from bridle._doors.turn import Turn as AsyncTurn
from bridle._doors.turn import take_back
from bridle._shell.turn import taken_over
from bridle.content import Content, Prompts
from bridle.events import SessionEvent, Update
from bridle.messages import Message
from bridle.options import BidirOptions, CliOptions, SdkOptions
from bridle.outcomes import Outcome

__all__ = [
    "QueryStream",
    "Session",
    "Subscription",
    "TextPieces",
    "Turn",
    "query",
    "run",
    "start_session",
]

_T = TypeVar("_T")


# ---------------------------------------------------------------- without a session


@overload
def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: type[_T],
    keep_messages: bool = False,
) -> Outcome[_T]: ...


@overload
def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: None = None,
    keep_messages: bool = False,
) -> Outcome[Any]: ...


def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: Any = None,
    keep_messages: bool = False,
) -> Outcome[Any]:
    """Run one prompt to its end and return its outcome.

    Raises:
        OptionsError: an option is wrong; nothing was started.
        StartError: the CLI did not start; nothing is left behind.

    Ctrl-C ends the CLI, gently, while the exception is on its way.
    """
    from bridle._doors.run import Run  # not every program needs it

    job = Run(prompt, cli, sdk, bidir, output_type, keep_messages=keep_messages)
    return _RunSession(job).work(job.outcome)


def query(
    prompt: Prompts,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
) -> QueryStream:
    """Send prompts to the CLI and iterate over its messages.

    Without callbacks a query is one-way; with callbacks or in-process tools in ``bidir`` it runs as
    a session. See ``bridle.query`` for prompts and limits.

    Several prompts may come from an iterator. It is read in a thread of its own, so it may block,
    and may use everything here.

    Raises:
        OptionsError: an option or the prompt is wrong; nothing was started.
    """
    from bridle._doors.query import query as twin  # not every program needs it
    from bridle._doors.query import session_of

    stream = twin(prompt, cli, sdk, bidir)
    session = session_of(stream)
    shown = None if session is None else _RunSession(session)
    return QueryStream(stream, portal(), keep=shown)


# ---------------------------------------------------------------- sessions and their turns


class Turn:
    """The work on one prompt: iterate it for its messages, ask it for its outcome.

    Iterate first if you do both. Waiting for the outcome while no loop reads discards the messages;
    a later loop raises UsageError.

    Messages that no loop reads are held for the next loop, within bounds for the whole session:
    eight mebibytes for turns that no loop has read yet, the repetitions of your own prompts not
    counted, and ``SdkOptions.max_unread_bytes`` for all turns, those whose loop was left included.
    Beyond that the messages of the oldest turn are dropped, with the warning ``missed_messages``,
    and a loop over that turn raises ConsumerTooSlow.

    If two loops over one turn go on at once, the older one raises UsageError.

    Ctrl-C while waiting for either interrupts the turn that runs.
    """

    def __init__(self, turn: AsyncTurn, session: AsyncSession, home: Portal) -> None:
        self._turn = turn
        self._text = TextStream()
        self._reading: Inbox[Message] | None = None
        self._portal = home
        # Not held: dropping the session ends it, whoever still has a turn of it.
        self._session = weakref.ref(session)

    @property
    def uuid(self) -> str:
        """The prompt's uuid: what ``rewind_files`` takes."""
        return self._turn.uuid

    @property
    def done(self) -> bool:
        """True once there is an outcome."""
        return self._turn.done

    def __iter__(self) -> Subscription[Message]:
        """The messages of this turn, in order; ends with the turn."""
        keep = partial(take_back, self._turn)
        make = self._take_over
        return Subscription(Inbox(self._portal, "reading a turn", make, self._interrupt, keep))

    def _take_over(self, inbox: Inbox[Message]) -> Source[Message]:
        # On the loop, in one step: in between nobody would be reading, or two would.
        if self._reading is not None:
            self._reading.give_way(taken_over())
        self._reading = inbox
        return self._turn.__aiter__()

    def text_stream(self) -> TextPieces:
        """Return an iterator over the text of this turn, each part once.

        Text blocks are separated by a blank line. The CLI's own error messages are left out. The
        text of an answer that follows a refusal comes when that answer has ended.
        """
        return TextPieces(self.__iter__(), self._text)

    def outcome(self) -> Outcome[Any]:
        """Return the one outcome of this turn. Never raises for how the turn went.

        If no loop reads the turn, its messages are discarded. Any number of threads may wait.
        """
        return self._portal.call("outcome", self._turn.outcome, self._interrupt)

    def _interrupt(self) -> None:
        session = self._session()
        if session is not None and not self.done:
            self._portal.start(session.interrupt)

    def __repr__(self) -> str:
        return f"sync.{self._turn!r}"


class Session:
    """A conversation with a CLI process of its own.

    Made in two steps, construction and :meth:`connect`, or in one by :func:`start_session`.
    Construction only checks the options; nothing is started.

    Leaving ``with`` closes it gently. A session that is simply dropped is stopped.

    Raises:
        OptionsError: an option is unknown, malformed, or contradicts another.
    """

    def __init__(
        self,
        cli: CliOptions | None = None,
        sdk: SdkOptions | None = None,
        bidir: BidirOptions | None = None,
    ) -> None:
        self._adopt(InnerSession(cli, sdk, bidir))

    def _adopt(self, session: InnerSession) -> None:
        session.show_as(self)
        self._session = session
        # Where it is at home from its first use on: a fork may come between.
        self._made: Portal | None = None
        self._connecting = False

    def connect(self) -> None:
        """Start the CLI and wait until the session is running.

        Raises:
            StartError: it did not start; no process, file or task of it is left.

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
        """The conversation's id. It changes when the conversation is cleared.

        It is known from the start, with two exceptions: with ``continue_session``, and when
        ``resume_session_id`` is a title or a path, only the CLI knows which conversation goes on.
        It is None then until the first turn begins.
        """
        return self._session.id

    @property
    def pid(self) -> int | None:
        """The CLI's process id, once there is one."""
        return self._session.pid

    @property
    def lifecycle(self) -> Lifecycle:
        """``starting``, ``init_sent``, ``running``, ``stopped`` or ``failed``."""
        return Lifecycle.STOPPED if self._is_lost else self._session.lifecycle

    @property
    def alive(self) -> bool:
        """True while the session can be used."""
        return self._session.alive and not self._is_lost

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the CLI says it can do; empty for older ones, which do not say."""
        return self._session.capabilities

    @property
    def server_info(self) -> Mapping[str, object] | None:
        """The CLI's answer to initialize, as it came."""
        return self._session.server_info

    # -- what comes --------------------------------------------------------------------------------

    def messages(self) -> Subscription[Message]:
        """Subscribe to every message of the conversation, in order, from now on.

        The first subscription also gets what came since the start, at most the newest 256 messages
        and one mebibyte; the warning ``missed_messages`` says how many were dropped. Read it, or
        leave it: unread messages are bounded by ``SdkOptions.max_unread_bytes``.
        """
        return self._subscribe("messages", self._session.messages)

    def events(self) -> Subscription[SessionEvent]:
        """Subscribe to lifecycle events and warnings.

        The newest 256 unread events are kept; the warning ``missed_events`` stands in the place of
        those that were dropped. The first subscription also gets what came since the start.
        """
        return self._subscribe("events", self._session.events)

    def subscribe(self) -> Subscription[Update]:
        """Subscribe to messages and events in one, in the order they came.

        Bounded as :meth:`messages`.
        """
        return self._subscribe("subscribe", self._session.subscribe)

    def text_stream(self) -> TextPieces:
        """Return an iterator over all text of the conversation; see `Turn.text_stream`."""
        return TextPieces(self.messages(), TextStream())

    # -- what is asked for -------------------------------------------------------------------------

    def send_user_message(self, content: Content, *, timeout: float | None = None) -> Turn:
        """Send a prompt: text, or a list of content blocks. Returns when it has left.

        Prompts may be sent while a turn runs; the CLI merges those that wait into one turn, and
        their outcomes say so (``merged_with``).

        Raises:
            OptionsError: the content cannot be sent.
            ControlTimeout: it has not left within ``timeout`` seconds; a CLI that reads again may
                still get it.
            ControlError: the session is over, or its input is.
        """
        turn = self._call(
            "send_user_message", lambda: self._session.send_user_message(content, timeout=timeout)
        )
        return Turn(turn, self._session, self._portal)

    def interrupt(
        self, *, cancel_queued: bool = False, timeout: float | None = None
    ) -> Mapping[str, object] | None:
        """Interrupt the turn that runs; its outcome becomes ``interrupted``.

        Prompts that wait run next, unless ``cancel_queued`` (which older CLIs ignore).
        """
        return self._call(
            "interrupt",
            lambda: self._session.interrupt(cancel_queued=cancel_queued, timeout=timeout),
        )

    def set_permission_mode(self, mode: str, *, timeout: float | None = None) -> None:
        """Change when the CLI asks for permission, from now on."""
        self._call(
            "set_permission_mode", lambda: self._session.set_permission_mode(mode, timeout=timeout)
        )

    def set_model(self, model: str | None, *, timeout: float | None = None) -> None:
        """Use another model, from the next request on; None: the default one."""
        self._call("set_model", lambda: self._session.set_model(model, timeout=timeout))

    def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: float | None = None
    ) -> Mapping[str, object]:
        """Put files back to how they were when that prompt (``turn.uuid``) was sent.

        With ``dry_run`` nothing is changed and the answer tells what would be. Without a
        ``timeout`` it waits four times as long as other operations (``control_timeout``).

        Raises:
            CheckpointingNotEnabled: the session was started without checkpoints.
            ControlRejected: there is no checkpoint for that prompt.
        """
        return self._call(
            "rewind_files",
            lambda: self._session.rewind_files(user_message_id, dry_run=dry_run, timeout=timeout),
        )

    def control(
        self, subtype: str, /, *, timeout: float | None = None, **fields: object
    ) -> Mapping[str, object] | None:
        """Any control operation of the CLI, by its subtype; returns what it answers.

        Raises:
            OptionsError: a field is missing or of the wrong kind; nothing was sent.
            ControlTimeout: no answer in time. A late one is dropped.
            ControlRejected: the CLI said no.
            ControlError: the session is over, is not ready, or has too much to do.
        """
        return self._call(
            subtype, lambda: self._session.control(subtype, timeout=timeout, **fields)
        )

    def ping(self, *, timeout: float | None = None) -> float:
        """Ask the CLI for a sign of life; returns the seconds it took."""
        return self._call("ping", lambda: self._session.ping(timeout=timeout))

    # -- ending ------------------------------------------------------------------------------------

    def end_input(self) -> None:
        """Close the CLI's input: it finishes what it has and leaves by itself.

        Questions of the CLI can no longer be answered: what asks for permission is denied.
        """
        self._call("end_input", self._session.end_input)

    def stop(self) -> None:
        """End the session now: SIGTERM to the whole process tree, SIGKILL after five seconds.

        Returns when no process of it is left. Everything pending fails with ``SessionStopped``.
        Calling it again is fine. Ctrl-C does not stop the end.
        """
        self._end("stop", self._session.stop)

    def close(self) -> None:
        """End the session gently.

        A running turn is interrupted, what the CLI still asks is refused, its input is closed and
        it gets five seconds to finish its transcript. Then as :meth:`stop`.
        """
        self._end("close", self._session.aclose)

    def aclose(self) -> None:
        """End the session gently.

        The same as :meth:`close`, under the name that the async session uses.
        """
        self.close()

    def _end(self, operation: str, work: Work[None]) -> None:
        # In a fork it is over already; its process is the parent's to end.
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


class _RunSession(Session):
    """The session of a ``run`` or a ``query``, for the tools it calls."""

    def __init__(self, session: InnerSession) -> None:
        self._adopt(session)
        self._connecting = True

    def work(self, work: Work[_T]) -> _T:
        """All it is there for."""
        return self._call("run", work)


def start_session(
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    prompt: Content | None = None,
) -> Session:
    """Start a session: ``with start_session(...) as session``, or keep it and close it.

    It is running when you get it. A ``prompt`` is sent at once. Read its answer from
    ``session.messages()`` or ``session.text_stream()``, right away: until the first subscription
    the session keeps the newest 256 messages, at most one mebibyte. For more time, use
    ``send_user_message`` and iterate its turn.

    Raises:
        OptionsError: an option is wrong; nothing was started.
        StartError: the CLI did not start; nothing is left behind.
    """
    session = Session(cli, sdk, bidir)
    session.connect()
    if prompt is not None:
        session.send_user_message(prompt)
    return session
