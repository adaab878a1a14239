"""The session: full duplex with the CLI, on asyncio."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Generator, Mapping
from functools import cached_property, partial
from types import TracebackType
from typing import Any, NoReturn, cast
from uuid import uuid4

from bridle._callables import named
from bridle._core.config import EngineConfig
from bridle._core.delivery import DeliveryConfig
from bridle._core.engine import Engine
from bridle._core.incoming.handling import IncomingConfig
from bridle._core.incoming.hook_plan import HookPlan
from bridle._core.launch import Launch, plan_session, redact
from bridle._core.operations import check_timeout
from bridle._core.state import Lifecycle
from bridle._core.text import TextStream
from bridle._core.wire import Unencodable, encode_user_message
from bridle._doors.subscription import Subscription, TextPieces
from bridle._doors.turn import Turn
from bridle._fields import callback
from bridle._shell.actor import Actor
from bridle._shell.known_secrets import KnownSecrets
from bridle._shell.listeners import Listeners
from bridle._shell.locate import find_cli
from bridle._shell.mcp_adapter import McpConversation, protocol_server
from bridle._shell.observing import SessionObserver, traced
from bridle._shell.preflight import (
    check_version,
    option_warnings,
    refuse_real_api,
    running_loop,
    settings_text,
    settle_options,
)
from bridle._shell.process import CliProcess
from bridle._shell.transport import (
    Transport,
    TransportEvents,
    TransportFactory,
    TransportRecorder,
)
from bridle.content import Content
from bridle.errors import OptionsError, SessionStopped, UsageError
from bridle.events import SessionEvent, Update
from bridle.messages import Message
from bridle.options import BidirOptions, CliOptions, SdkOptions
from bridle.tools import Tool, ToolServer

_PING = "mcp_status"
"""A request that every CLI answers, by itself."""


class Session:
    """A conversation with a CLI process of its own.

    Made in two steps, construction and :meth:`connect`, or in one by ``bridle.start_session``.
    Construction only checks the options; nothing is started. Operations issued between the two
    steps' beginning and the session being ready wait for it, up to sixteen.

    Leaving ``async with`` closes it gently. A session that is simply dropped is stopped.

    Ownership: whoever made it ends it; turns and subscriptions end with it.
    Timeouts: an operation waits ``SdkOptions.control_timeout`` seconds for its answer, or as long
    as its own ``timeout`` says.
    Cancellation: cancelling the wait for an operation withdraws it, and the session goes on.
    Concurrency: every method may be called from any task of the session's event loop, at any time.
    Use one event loop per session.

    Raises:
        OptionsError: an option is unknown, malformed, or contradicts another.
    """

    def __init__(
        self,
        cli: CliOptions | None = None,
        sdk: SdkOptions | None = None,
        bidir: BidirOptions | None = None,
    ) -> None:
        options = settle_options(cli, sdk, bidir)
        self._cli, self._sdk, self._bidir = options.cli, options.sdk, options.bidir
        self._warnings = option_warnings(options)
        self._plan = HookPlan.from_options(
            self._bidir.all_hooks(), self._bidir.callback_timeout, self._bidir.hook_timeouts
        )
        self._launch = self._plan_launch()
        self._secrets = KnownSecrets(self._launch)
        self._conversations: list[McpConversation] = []
        self._engine = Engine(self._engine_config())
        self._made: Actor | None = None
        self._connecting = False
        # Whom tools get as their session; not held, so that it can be dropped.
        self._owner: Callable[[], object | None] = weakref.ref(self)

    # -- starting ----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Start the CLI and wait until the session is running.

        Raises:
            StartError: it did not start; no process, file or task of it is left.

        Cancellation: cancelling the wait stops the session.
        """
        if self._connecting:
            raise UsageError("A session connects once.", fix="Make a new Session.")
        if self._engine.lifecycle is not Lifecycle.STARTING:
            raise SessionStopped("connect")
        self._connecting = True
        await self._actor.start(self._spawn, *self._warnings)

    def _spawn(self, actor: Actor) -> Transport:
        factory = cast("TransportFactory | None", self._bidir.transport_factory)
        if factory is None:
            factory = partial(self._spawn_process, actor)
        recorder = cast("TransportRecorder | None", self._sdk.recorder)
        if recorder is not None:
            about = {"argv": redact(self._launch.argv), "cwd": self._launch.cwd}
            factory = recorder.wrap(factory, secrets=self._secrets.values, about=about)
        return factory(actor)

    def _spawn_process(self, actor: Actor, events: TransportEvents) -> Transport:
        self._engine.describe(argv=redact(self._launch.argv))
        named = self._cli.cli_path
        path = find_cli(None if named is None else os.fspath(named))
        refuse_real_api(path, os.environ, self._launch.environment(os.environ), self._cli.settings)
        self._engine.describe(cli_path=path)
        launch = traced(self._launch, actor.observer.environment())
        process = CliProcess.spawn(path, launch, events)
        if not self._sdk.skip_version_check:
            actor.await_version(
                partial(
                    check_version,
                    path,
                    self._launch,
                    redact=self._secrets.redact,
                    describe=self._engine.describe,
                )
            )
        return process

    def _plan_launch(self) -> Launch:
        hooks = self._plan.initialize_payload()
        return plan_session(
            self._cli,
            self._sdk,
            self._bidir,
            session_id=str(uuid4()),
            hooks=hooks,
            settings_text=settings_text(self._cli, self._bidir, hooks=hooks),
        )

    def _engine_config(self) -> EngineConfig:
        bidir = self._bidir
        servers = dict(bidir.mcp_servers or {})
        return EngineConfig(
            initialize=self._launch.initialize,
            incoming=IncomingConfig(
                hooks=self._plan,
                can_use_tool=named(bidir.on_can_use_tool),
                question=named(bidir.on_question),
                plan=named(bidir.on_plan),
                elicitation=named(bidir.on_elicitation),
                mcp_handlers={
                    name: self._handler(name, server)
                    for name, server in servers.items()
                    if not isinstance(server, ToolServer)
                },
                tool_servers={
                    name: server
                    for name, server in servers.items()
                    if isinstance(server, ToolServer)
                },
                permission_timeout=bidir.permission_timeout,
            ),
            delivery=DeliveryConfig(max_unread=self._sdk.max_unread_bytes),
            session_id=self._launch.session_id or "",
            control_timeout=self._sdk.control_timeout,
            init_timeout=self._sdk.init_timeout,
            max_line=self._sdk.max_buffer_size,
            limits=self._sdk.limits,
            wants_output=self._cli.json_schema is not None,
            checkpointing=bidir.file_checkpointing_enabled,
        )

    def _handler(self, name: str, server: object) -> object:
        """Return the function that takes the messages for an MCP server."""
        if isinstance(server, Tool) or server is ToolServer:
            fix = "Put tools into a server: ToolServer([...])."
            raise OptionsError(f"mcp_servers[{name!r}]", f"is {server!r}", fix=fix)
        if protocol_server(server) is None and callable(server):
            return callback(f"mcp_servers[{name!r}]", server)
        whole = weakref.ref(self)

        def notify(message: Mapping[str, object]) -> None:
            session = whole()
            if session is not None:
                session._actor.forward(name, message)

        conversation = McpConversation(name, server, notify)
        self._conversations.append(conversation)
        return conversation.handle

    @cached_property
    def _actor(self) -> Actor:
        engine = self._engine
        observer = SessionObserver(
            self._sdk.telemetry,
            clock=running_loop().time,
            session_id=lambda: engine.session_id,
            model=self._cli.model,
        )
        actor = self._made = Actor(
            engine,
            observer,
            listeners=Listeners(
                on_stderr=self._sdk.on_stderr,
                on_warning=self._sdk.on_warning,
                on_event=self._bidir.on_event,
            ),
            owner=self._owner,
            closers=[conversation.close for conversation in self._conversations],
            redact=self._secrets.redact,
        )
        # The actor is kept alive by its process; the session is not, so that it can be dropped.
        weakref.finalize(self, actor.abandon).atexit = False
        return actor

    # -- state -------------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """The conversation's id. It changes when the conversation is cleared.

        It is known from the start, with two exceptions: with ``continue_session``, and when
        ``resume_session_id`` is a title or a path, only the CLI knows which conversation goes on.
        It is None then until the first turn begins.
        """
        return self._engine.session_id or None

    @property
    def pid(self) -> int | None:
        """The CLI's process id, once there is one."""
        return self._made.pid if self._made else None

    @property
    def lifecycle(self) -> Lifecycle:
        """``starting``, ``init_sent``, ``running``, ``stopped`` or ``failed``."""
        return self._engine.lifecycle

    @property
    def alive(self) -> bool:
        """True while the session can be used."""
        return self._engine.lifecycle is Lifecycle.RUNNING and not self._engine.is_closing

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the CLI says it can do; empty for older ones, which do not say."""
        return self._engine.handshake.capabilities

    @property
    def server_info(self) -> Mapping[str, object] | None:
        """The CLI's answer to initialize, as it came."""
        return self._engine.handshake.server_info

    # -- what comes --------------------------------------------------------------------------------

    def messages(self) -> Subscription[Message]:
        """Subscribe to every message of the conversation, in order, from now on.

        The first subscription also gets what came since the start, at most the newest 256 messages
        and one mebibyte; the warning ``missed_messages`` says how many were dropped. Read it, or
        leave it: unread messages are bounded by ``SdkOptions.max_unread_bytes``.
        """
        subscriptions = self._actor.subscriptions
        return Subscription(subscriptions.messages(), subscriptions.leave)

    def events(self) -> Subscription[SessionEvent]:
        """Subscribe to lifecycle events and warnings.

        The newest 256 unread events are kept; the warning ``missed_events`` stands in the place of
        those that were dropped. The first subscription also gets what came since the start.
        """
        subscriptions = self._actor.subscriptions
        return Subscription(subscriptions.events(), subscriptions.leave)

    def subscribe(self) -> Subscription[Update]:
        """Subscribe to messages and events in one, in the order they came.

        Bounded as :meth:`messages`.
        """
        subscriptions = self._actor.subscriptions
        return Subscription(subscriptions.updates(), subscriptions.leave)

    def text_stream(self) -> TextPieces:
        """Return an iterator over all text of the conversation; see `Turn.text_stream`."""
        return TextPieces(self.messages(), TextStream())

    # -- what is asked for -------------------------------------------------------------------------

    async def send_user_message(self, content: Content, *, timeout: float | None = None) -> Turn:
        """Send a prompt: text, or a list of content blocks. Returns when it has left.

        Prompts may be sent while a turn runs; the CLI merges those that wait into one turn, and
        their outcomes say so (``merged_with``).

        Raises:
            OptionsError: the content cannot be sent.
            ControlTimeout: it has not left within ``timeout`` seconds; a CLI that reads again may
                still get it.
            ControlError: the session is over, or its input is.

        Cancellation: what waits for the session to be ready is withdrawn; what is on its way to
        the CLI is not, and its turn runs.
        """
        check_timeout(timeout)
        return Turn(await self._actor.send(str(uuid4()), content, timeout))

    async def interrupt(
        self, *, cancel_queued: bool = False, timeout: float | None = None
    ) -> Mapping[str, object] | None:
        """Interrupt the turn that runs; its outcome becomes ``interrupted``.

        Prompts that wait run next, unless ``cancel_queued`` (which older CLIs ignore).
        """
        fields = {"cancel_queued": True} if cancel_queued else {}
        return await self._actor.submit("interrupt", fields, timeout)

    async def set_permission_mode(self, mode: str, *, timeout: float | None = None) -> None:
        """Change when the CLI asks for permission, from now on."""
        await self._actor.submit("set_permission_mode", {"mode": mode}, timeout)

    async def set_model(self, model: str | None, *, timeout: float | None = None) -> None:
        """Use another model, from the next request on; None: the default one."""
        await self._actor.submit("set_model", {"model": model}, timeout)

    async def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: float | None = None
    ) -> Mapping[str, object]:
        """Put files back to how they were when that prompt (``turn.uuid``) was sent.

        With ``dry_run`` nothing is changed and the answer tells what would be. Without a
        ``timeout`` it waits four times as long as other operations (``control_timeout``): the CLI
        may have many files to write.

        Raises:
            CheckpointingNotEnabled: the session was started without checkpoints.
            ControlRejected: there is no checkpoint for that prompt.
        """
        fields: dict[str, object] = {"user_message_id": user_message_id}
        if dry_run:
            fields["dry_run"] = True
        return await self._actor.submit("rewind_files", fields, timeout) or {}

    async def control(
        self, subtype: str, /, *, timeout: float | None = None, **fields: object
    ) -> Mapping[str, object] | None:
        """Any control operation of the CLI, by its subtype; returns what it answers.

        Raises:
            OptionsError: a field is missing or of the wrong kind; nothing was sent.
            ControlTimeout: no answer in time. A late one is dropped.
            ControlRejected: the CLI said no.
            ControlError: the session is over, is not ready, or has too much to do.

        Cancellation: cancelling the wait withdraws the operation.
        """
        return await self._actor.submit(subtype, fields, timeout)

    async def ping(self, *, timeout: float | None = None) -> float:
        """Ask the CLI for a sign of life; returns the seconds it took."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        await self._actor.submit(_PING, {}, timeout)
        return loop.time() - before

    # -- ending ------------------------------------------------------------------------------------

    async def end_input(self) -> None:
        """Close the CLI's input: it finishes what it has and leaves by itself.

        Questions of the CLI can no longer be answered: what asks for permission is denied.
        """
        self._actor.end_input()

    async def stop(self) -> None:
        """End the session now: SIGTERM to the whole process tree, SIGKILL after five seconds.

        Returns when no process of it is left. Everything pending fails with ``SessionStopped``.
        Calling it again is fine.

        Cancellation: cancelling the wait does not cancel the end.
        """
        await self._actor.stop()

    async def aclose(self) -> None:
        """End the session gently.

        A running turn is interrupted, what the CLI still asks is refused, its input is closed and
        it gets five seconds to finish its transcript. Then as :meth:`stop`.

        Cancellation: cancelling the wait does not cancel the end.
        """
        await self._actor.close()

    async def __aenter__(self) -> Session:
        if not self._connecting:
            await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Session({self.id or 'no id yet'}, {self.lifecycle.value}, pid={self.pid})"


class InnerSession(Session):
    """A session inside another object, which tools get as theirs in its place."""

    def show_as(self, owner: object) -> None:
        """Say which object; before the session connects."""
        self._owner = weakref.ref(owner)


class SessionStart:
    """A session about to start: await it, or enter it with ``async with``."""

    def __init__(self, session: Session, prompt: Content | None) -> None:
        self._session = session
        self._prompt = prompt

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a session about to start has no {name}; await it, or enter it, first: "
            "session = await start_session(...)"
        )

    def __repr__(self) -> str:
        return "<a session about to start: await it, or enter it with `async with`>"

    async def _start(self) -> Session:
        await self._session.connect()
        if self._prompt is not None:
            try:
                _ = await self._session.send_user_message(self._prompt)
            except BaseException:
                await self._session.stop()
                raise
        return self._session

    def __await__(self) -> Generator[Any, None, Session]:
        return self._start().__await__()

    async def __aenter__(self) -> Session:
        return await self._start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.aclose()


def start_session(
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    prompt: Content | None = None,
) -> SessionStart:
    """Start a session: ``async with start_session(...) as session``, or ``await`` it.

    It is running when you get it. A ``prompt`` is sent at once. Read its answer from
    ``session.messages()`` or ``session.text_stream()``, right away: until the first subscription
    the session keeps the newest 256 messages, at most one mebibyte. For more time, use
    ``send_user_message`` and iterate its turn.

    Raises:
        OptionsError: here and now, before anything is started.
        StartError: when awaited or entered; nothing is left behind.
    """
    if prompt is not None:
        check_prompt(prompt)
    return SessionStart(Session(cli, sdk, bidir), prompt)


def check_prompt(prompt: Content) -> None:
    """Refuse a prompt that cannot be sent.

    Raises:
        OptionsError: it is neither text nor a list of content blocks, or an empty list.
    """
    fix = "Give text, or a list of content blocks."
    if isinstance(prompt, list | tuple) and not prompt:
        raise OptionsError("prompt", "there is nothing in the list", fix=fix)
    try:
        encode_user_message(prompt, "")
    except Unencodable as problem:
        raise OptionsError("prompt", str(problem), fix=fix) from None
