"""The asyncio session: sends prompts and requests to the CLI while it receives messages."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, cast
from uuid import uuid4

from bridle._engine.config import EngineConfig
from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.delivery.unread import DeliveryConfig
from bridle._engine.engine import Engine
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.mcp.tool_server import manifest
from bridle._engine.incoming.waiting_call import PRE_TOOL_USE
from bridle._engine.outgoing.operations import APPLY_FLAG_SETTINGS, MCP_SET_SERVERS, check_timeout
from bridle._engine.outgoing.prompts import encode_prompt, uuid_of
from bridle._engine.state import Lifecycle
from bridle._engine.turns.turn_records import Used
from bridle._engine.wire.codec import decode_reply
from bridle._observe.known_secrets import KnownSecrets, clean, clean_problems
from bridle._observe.listeners import Listeners
from bridle._observe.observer import SessionObserver
from bridle._process.launch.plan import Launch, ResumedCall, ask_rules, plan_session
from bridle._process.locate import find_cli
from bridle._process.parked import ParkedCli
from bridle._process.session_locks import StartLock
from bridle._process.transport import Transport, TransportFactory
from bridle._records.callables import named
from bridle._records.session_store import SessionStore, has_journals
from bridle._runtime.finalizers import when_dropped_before
from bridle._session.actor import Actor
from bridle._session.answers.attempts import Answer, Attempts, checked_retries, with_schema
from bridle._session.answers.typed_output import OutputType
from bridle._session.changes.servers import Servers
from bridle._session.changes.settings import FlagSettings
from bridle._session.deps import with_prompts
from bridle._session.not_given import NOT_GIVEN, given_or
from bridle._session.preflight import (
    option_warnings,
    running_loop,
    settings_text,
    settle_keywords,
)
from bridle._session.readers.subscription import Subscription, TextPieces
from bridle._session.readers.turn_state import TurnState
from bridle._session.spawning import Spawner, failing
from bridle._session.turn import Turn
from bridle.approvals import PendingApproval
from bridle.approvals._rules import rules_of
from bridle.content import Content
from bridle.controls import McpServerChanges
from bridle.errors import ControlRejected, SessionStopped, StartError, UsageError
from bridle.events import SessionEvent, Update
from bridle.messages import LiveTask, Message
from bridle.operations import OperationGroups
from bridle.options import BidirOptions, CliOptions, Retry, SdkOptions
from bridle.options._keyword_types import Options
from bridle.options._precedence import ResolvedOptions
from bridle.options._unknown_values import wanted_tools
from bridle.outcomes import SessionUsage
from bridle.sessions._waiting_calls import refuse_waiting, waiting_in_files
from bridle.tools import ToolServer

if TYPE_CHECKING:
    from bridle.sessions._journal_writer import SessionJournal

_PING = "mcp_status"
"""A control request that every version of the CLI responds to."""


class Session(OperationGroups):
    """A conversation with its own CLI process.

    Create it, then call :meth:`connect`; or use ``bridle.start_session``, which does both. The
    constructor only checks the options and starts nothing. Operations that you start before the
    session is running wait for it; at most sixteen can wait.

    ``async with`` connects the session and shuts it down at the end. If the session object is
    garbage-collected, Bridle stops the session.

    Options are the fields of the three records by name, or the records themselves. ``deps`` is any
    object for the callbacks of the session.

    Timeouts: an operation waits ``SdkOptions.control_timeout`` seconds for the CLI's response, or
    its own ``timeout`` in seconds.
    Errors: an operation that fails raises ``ControlError`` or a subclass, such as
    ``ControlTimeout``, ``ControlRejected`` or ``SessionStopped``.
    Cancellation: cancelling an operation cancels the request. The session stays usable.
    Concurrency: any task of the session's event loop may call any method at any time. A session
    belongs to one event loop.

    Raises:
        OptionsError: an option is unknown, invalid, or contradicts another one.
    """

    # For `run`, whose session may repeat its prompt.
    _retry: Retry | None = None
    # For a pool, which starts processes before they are needed.
    _parked: ParkedCli | None = None

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
        self._set_up(settle_keywords(cli, sdk, bidir, options), deps, output_type, output_retries)

    def _set_up(
        self, options: ResolvedOptions, deps: Any, output_type: Any, output_retries: int
    ) -> None:
        self._output = None if output_type is None else OutputType(output_type)
        options = with_schema(with_prompts(options, deps), self._output)
        self._deps = deps
        self._output_retries = checked_retries(output_retries)
        self._cli, self._sdk, self._bidir = options.cli, options.sdk, options.bidir
        self._store = _checked_store(self._sdk.store)
        self._journal = _new_journal(self._store, self._retry, self._sdk.control_timeout)
        self._warnings = option_warnings(options)
        self._plan = self._plan_hooks()
        self._launch = self._plan_launch()
        self._planned_in = os.getpid()
        self._secrets = KnownSecrets(self._launch)
        whole = weakref.ref(self)

        def forward(server: str, message: Mapping[str, object]) -> None:
            session = whole()
            if session is not None:
                session._actor.forward(server, message)

        self._servers = Servers(dict(self._bidir.mcp_servers or {}), forward)
        self._engine = Engine(self._engine_config())
        self._made: Actor | None = None
        self._connecting = False
        self._lock = StartLock()
        # Seconds to wait while another session or program uses the conversation.
        self._wait = self._sdk.wait or 0.0
        # The object that tools get as `ToolContext.session`. Weak, so that it can be collected.
        self._owner: Callable[[], object | None] = weakref.ref(self)

    # -- starting ----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Start the CLI and wait until the session is running.

        Raises:
            StartError: the session did not start. Its processes, files and tasks are removed.
            UsageError: ``connect`` was already called.

        Cancellation: stops the session.
        """
        if self._connecting:
            raise UsageError("This session was already started.", fix="Create a new Session.")
        if self._engine.lifecycle is not Lifecycle.STARTING:
            raise SessionStopped("connect")
        self._connecting = True
        if os.getpid() != self._planned_in:  # a forked child: its parent has the id of the session
            self._launch = self._plan_launch()
            self._engine.name_session(self._launch.session_id or "")
        try:
            spawn = await self._prepare() if self._has_to_load else self._spawn
            if self._journal is not None:
                self._journal.begin(self._launch)
                if spawn == self._spawn:
                    await self._announce(self._journal.write_prompt)
            await self._actor.start(spawn, *self._warnings)
        finally:
            self._lock.release()

    @property
    def _has_to_load(self) -> bool:
        """True if there is a store, or files of the CLI with the conversation to resume."""
        resumes = self._cli.resume_session_id is not None or self._cli.continue_session
        return self._store is not None or (resumes and self._bidir.transport_factory is None)

    async def _find_waiting(self) -> PendingApproval | None:
        """Return the call that waits in the CLI's own file of the conversation to resume."""
        return await waiting_in_files(self._launch, self._cli, self._lock, wait=self._wait)

    def _admit(self, waiting: PendingApproval | None) -> None:
        """Raise ApprovalPending if a call of the conversation to resume waits for approval."""
        refuse_waiting(waiting)

    async def _prepare(self) -> Callable[[Actor], Transport]:
        """Load the conversation from the store. Return the function that starts the CLI.

        Without a store, look at the CLI's own file of it.
        """
        cli, named, store = self._cli, self._cli.cli_path, self._actor.store
        is_real = self._bidir.transport_factory is None and not self._sdk.skip_version_check
        try:
            if store is None:
                self._admit(await self._find_waiting())
            else:
                path = find_cli(None if named is None else os.fspath(named)) if is_real else None
                self._launch = await store.prepare(
                    self._launch,
                    cli.resume_session_id,
                    continues=cli.continue_session,
                    cli_path=path,
                    admit=self._admit,
                    lock=self._lock_here,
                    wait=self._wait,
                )
        except StartError as error:
            return failing(error)  # the actor reports it like one of the CLI
        except BaseException:
            await self.stop()
            raise
        if self._engine.lifecycle is not Lifecycle.STARTING:
            await self.stop()
            if store is not None:
                # The session closed it before everything was loaded.
                await store.aclose(is_stopped=True)
            raise SessionStopped("connect")
        if store is not None and self._launch.session_id is not None:
            self._engine.name_session(self._launch.session_id)
        return self._spawn

    async def _lock_here(self, session_id: str, seconds: float) -> None:
        """Lock a conversation of the store on this machine, unless a process has it already."""
        if self._parked is None and self._bidir.transport_factory is None:
            await self._lock.take(self._launch, session_id, seconds)

    def _spawn(self, actor: Actor) -> Transport:
        factory = cast("TransportFactory | None", self._bidir.transport_factory)
        spawner = Spawner(
            self._cli,
            self._sdk,
            self._launch,
            self._secrets,
            self._engine,
            parked=self._parked,
            lock=self._lock,
        )
        return spawner.spawn(actor, factory)

    def _plan_hooks(self, needed: str | None = None) -> HookPlan:
        bidir = self._bidir
        if bidir.defers_calls():
            needed = PRE_TOOL_USE
        return HookPlan.from_options(
            bidir.all_hooks(),
            bidir.callback_timeout,
            bidir.hook_timeouts,
            needed,
            last=None if self._journal is None else self._journal.hook(),
            parallel=bidir.parallel_hooks,
        )

    async def _announce(self, write: Callable[..., Awaitable[None]]) -> None:
        """Write to the journal what the CLI does when it starts."""

    def _plan_launch(self, resumed: ResumedCall | None = None) -> Launch:
        hooks = self._plan.initialize_payload()
        return plan_session(
            self._cli,
            self._sdk,
            self._bidir,
            session_id=str(uuid4()),
            hooks=hooks,
            manifests={
                name: manifest(name, server) for name, server in self._bidir.tool_servers().items()
            },
            settings_text=settings_text(self._cli, self._bidir, hooks=hooks),
            resumed=resumed,
        )

    def _engine_config(self) -> EngineConfig:
        bidir = self._bidir
        return EngineConfig(
            initialize=self._launch.initialize,
            incoming=IncomingConfig(
                hooks=self._plan,
                can_use_tool=named(bidir.on_can_use_tool),
                question=named(bidir.on_question),
                plan=named(bidir.on_plan),
                elicitation=named(bidir.on_elicitation),
                dialog=named(bidir.on_user_dialog),
                dialog_kinds=tuple(bidir.supported_dialog_kinds or ()),
                mcp_handlers=self._servers.handlers,
                tool_servers=self._servers.tool_servers,
                approve=rules_of(bidir.approve or ()),
                permission_timeout=bidir.permission_timeout,
            ),
            delivery=DeliveryConfig(max_unread=self._sdk.max_unread_bytes),
            session_id=self._launch.session_id or "",
            control_timeout=self._sdk.control_timeout,
            init_timeout=self._sdk.init_timeout,
            max_line=self._sdk.max_buffer_size,
            limits=self._sdk.limits,
            wants_output=self._cli.json_schema is not None,
            tools=tuple(wanted_tools(self._cli)),
            has_store=self._store is not None,
            checkpointing=bidir.file_checkpointing_enabled,
            verbatim_prompts=self._cli.verbatim_prompts,
        )

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
            closers=[self._servers.close],
            redact=self._secrets.redact,
            deps=self.deps,
        )
        if self._store is not None:
            from bridle.sessions._store_session import StoreSession  # few sessions have a store

            actor.store = StoreSession(
                self._store,
                self._sdk.load_timeout,
                session_id=lambda: engine.session_id,
                warn=actor.warn,
                fail=actor.fail,
            )
        if self._journal is not None:
            keeps = actor.store is not None and has_journals(self._store)
            self._journal.connect(engine, actor.store.journal if actor.store and keeps else None)
            actor.keep_journal(self._journal)
        # The process keeps the actor alive, but not the session, so that it can be collected.
        when_dropped_before(self, actor.gone, actor.abandon)
        return actor

    # -- state -------------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """Return the id of the session. It changes when the conversation is cleared.

        It is None until the first turn starts if ``continue_session`` is set without a store, or if
        ``resume_session_id`` is a title or a path: only the CLI knows which session it resumes.
        """
        return self._engine.session_id or None

    @property
    def pending(self) -> PendingApproval | None:
        """Return the tool call that waits for approval, or None. Prompts are rejected meanwhile."""
        return self._engine.waiting

    @property
    def deps(self) -> Any:
        """Return the object that callbacks get, unless a prompt is sent with another one."""
        return self._deps

    @property
    def pid(self) -> int | None:
        """Return the process id of the CLI, or None if it was not started."""
        return self._made.pid if self._made else None

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the state: ``starting``, ``init_sent``, ``running``, ``stopped`` or ``failed``."""
        return self._engine.lifecycle

    @property
    def alive(self) -> bool:
        """Return True while the session can be used."""
        return self._engine.lifecycle is Lifecycle.RUNNING and not self._engine.is_closing

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Return the capabilities that the CLI announced. CLI 2.1.197 announces none."""
        return self._engine.handshake.capabilities

    @property
    def server_info(self) -> Mapping[str, object] | None:
        """Return the CLI's response to the handshake as JSON, or None before the handshake."""
        return self._engine.handshake.server_info

    @property
    def usage(self) -> SessionUsage:
        """Return the tokens and the cost of the session so far, in total and for each turn.

        Subagents are included, and so are the answers of the running turn.
        """
        return self._engine.usage.read()

    def _running_tasks(self) -> list[LiveTask]:
        return self._engine.live_tasks.list()

    # -- messages and events -----------------------------------------------------------------------

    def messages(self) -> Subscription[Message]:
        """Subscribe to all messages of the session, in order, from now on.

        The first subscription also yields the messages since the start: at most the newest 256
        messages and 1 MiB. If there were more, the warning ``missed_messages`` has their number.
        Close a subscription that you do not read: unread messages are limited by
        ``SdkOptions.max_unread_bytes``.
        """
        subscriptions = self._actor.subscriptions
        return Subscription(subscriptions.messages(), subscriptions.leave)

    def events(self) -> Subscription[SessionEvent]:
        """Subscribe to lifecycle events and warnings.

        The session keeps the newest 256 unread events. The warning ``missed_events`` replaces
        those that were dropped. The first subscription also yields the events since the start.
        """
        subscriptions = self._actor.subscriptions
        return Subscription(subscriptions.events(), subscriptions.leave)

    def subscribe(self) -> Subscription[Update]:
        """Subscribe to messages and events together, in order.

        The limits of :meth:`messages` apply.
        """
        subscriptions = self._actor.subscriptions
        return Subscription(subscriptions.updates(), subscriptions.leave)

    def text_stream(self) -> TextPieces:
        """Return an iterator over all text of the session. See `Turn.text_stream`."""
        return TextPieces(self.messages(), TextStream())

    # -- operations --------------------------------------------------------------------------------

    async def send_user_message(
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
            StoreError: neither the store nor a local file could keep the prompt. It was not sent.

        Cancellation: cancels a prompt that still waits for the session to start. A prompt that is
        being written is sent, and its turn runs.
        """
        check_timeout(timeout)
        deps = given_or(deps, self.deps)
        return await self._send(str(uuid4()), content, timeout, deps)

    async def _send(
        self,
        uuid: str,
        content: Content | bytes,
        timeout: float | None,
        deps: Any,
        continues: str | None = None,
        used: Used | None = None,
    ) -> Turn:
        """Send a prompt, or its encoded line.

        ``continues`` is the prompt that it continues, which has ``used`` so much of the limits.
        """
        if self._journal is None:
            state = await self._actor.send(uuid, content, timeout, deps=deps, used=used)
        else:
            state = await self._journal.send(
                self._actor, uuid, content, timeout, deps=deps, continues=continues, used=used
            )
        return self._turn(state, deps)

    def _turn(self, state: TurnState, deps: Any) -> Turn:
        attempts = self._attempts
        return Turn(state, None if attempts is None else Answer(attempts, state, deps))

    @cached_property
    def _attempts(self) -> Attempts | None:
        """What makes the final outcomes. None: the CLI's results are final."""
        if self._output is None and self._retry is None and self._journal is None:
            return None
        return Attempts(
            self._actor,
            self._output,
            output_retries=self._output_retries,
            retry=self._retry,
            limits=self._sdk.limits,
            redact=self._secrets.redact,
            journal=self._journal,
        )

    async def interrupt(
        self, *, cancel_queued: bool = False, timeout: float | None = None
    ) -> Mapping[str, object] | None:
        """Interrupt the running turn. Its outcome becomes ``interrupted``.

        The CLI continues with queued prompts, unless ``cancel_queued`` is True. CLI 2.1.197
        ignores ``cancel_queued``. Returns the CLI's response.

        Raises:
            ControlTimeout: no response within ``timeout`` seconds.
            ControlError: the session has stopped, or has too many pending requests.
        """
        fields = {"cancel_queued": True} if cancel_queued else {}
        return await self._actor.submit("interrupt", fields, timeout)

    async def set_permission_mode(self, mode: str, *, timeout: float | None = None) -> None:
        """Change the permission mode: when the CLI asks for permission from now on."""
        await self._actor.submit("set_permission_mode", {"mode": mode}, timeout)

    async def set_model(self, model: str | None, *, timeout: float | None = None) -> None:
        """Use another model from the next request on. None means the default model."""
        await self._actor.submit("set_model", {"model": model}, timeout)

    async def rewind_files(
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
        fields: dict[str, object] = {"user_message_id": user_message_id}
        if dry_run:
            fields["dry_run"] = True
        return await self._actor.submit("rewind_files", fields, timeout) or {}

    async def control(
        self, subtype: str, /, *, timeout: float | None = None, **fields: object
    ) -> Mapping[str, object] | None:
        """Send a control request with this subtype and these fields. Return the CLI's response.

        Raises:
            OptionsError: a field is missing or has the wrong type. Nothing was sent.
            ControlTimeout: no response within ``timeout`` seconds. A late response is dropped.
            ControlRejected: the CLI responded with an error.
            ControlError: the session has stopped, did not start, or has too many pending requests.

        Cancellation: cancels the request. The CLI may still carry out one that was sent.
        """
        if subtype == APPLY_FLAG_SETTINGS.subtype:
            return await self._flag_settings.apply(fields, timeout)
        return await self._actor.submit(subtype, fields, timeout)

    @cached_property
    def _flag_settings(self) -> FlagSettings:
        rules = ask_rules(self._bidir.tool_servers())
        return FlagSettings(rules, self._actor.submit, self._rejected, self._sdk.control_timeout)

    def _rejected(self, operation: str, message: str) -> ControlRejected:
        """Return the error for an operation that the CLI did not carry out."""
        error, engine = ControlRejected(operation, None, message), self._engine
        clean(error.with_process(engine.state.describe()), self._secrets.redact)
        return error

    async def _change_servers(
        self, changes: Mapping[str, object], *, replace: bool, timeout: float | None
    ) -> McpServerChanges:
        rules = ask_rules(
            {name: one for name, one in changes.items() if isinstance(one, ToolServer)}
        )

        async def send(servers: Mapping[str, object]) -> McpServerChanges:
            nonlocal rules
            self._secrets.learn(servers)
            if rules:
                # Before the server is there, so that none of its tools runs unasked.
                wanted, rules = rules, []
                await self._flag_settings.add_rules(wanted, timeout)
            payload = await self.control(MCP_SET_SERVERS.subtype, timeout=timeout, servers=servers)
            return decode_reply(
                MCP_SET_SERVERS.reply, clean_problems(payload, self._secrets.redact)
            )

        return await self._servers.change(
            changes,
            replace=replace,
            send=send,
            register=self._actor.set_server,
            rejected=lambda message: self._rejected(MCP_SET_SERVERS.subtype, message),
        )

    async def ping(self, *, timeout: float | None = None) -> float:
        """Check that the CLI responds. Return the time that it took, in seconds."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        await self._actor.submit(_PING, {}, timeout)
        return loop.time() - before

    # -- shutdown ----------------------------------------------------------------------------------

    async def end_input(self) -> None:
        """Close the CLI's input. The CLI finishes its work and exits.

        Bridle can no longer respond to the CLI, so tools that need permission are denied.
        """
        self._actor.end_input()

    async def stop(self) -> None:
        """Stop the session: send SIGTERM to the whole process tree, and SIGKILL after five seconds.

        Return when all processes have exited. Pending operations fail with ``SessionStopped``.
        You can call it more than once.

        Cancellation: the session stops even if the wait is cancelled.
        """
        if self._journal is not None:
            self._journal.close()
        await self._actor.stop()

    async def aclose(self) -> None:
        """Shut down the session.

        Interrupt a running turn, reject pending requests of the CLI, close its input, and give it
        five seconds to write its transcript. Then continue as :meth:`stop`.

        Cancellation: the session shuts down even if the wait is cancelled.
        """
        if self._journal is not None:
            self._journal.close()
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


def _checked_store(store: object) -> SessionStore | None:
    """Return the store of the options, adapted if it follows the official SDK's protocol."""
    if store is None:
        return None
    from bridle.sessions._stores.accept import as_store  # few sessions have a store

    return as_store(store)


def _new_journal(
    store: SessionStore | None, retry: Retry | None, start_timeout: float
) -> SessionJournal | None:
    """Return the journal of a session that can be recovered or retried."""
    is_stored = store is not None and has_journals(store)
    if not is_stored and retry is None:
        return None
    from bridle.sessions._journal_writer import SessionJournal  # few sessions have one

    return SessionJournal(start_timeout, keeps_entries=retry is not None)


class InnerSession(Session):
    """A session with options that are resolved already. It may be part of another object.

    Tools then get that object as `ToolContext.session`.
    """

    def __init__(
        self,
        options: ResolvedOptions,
        deps: Any = None,
        output_type: Any = None,
        output_retries: int = 1,
    ) -> None:
        self._set_up(options, deps, output_type, output_retries)

    async def send_prompt(self, prompt: object) -> Turn:
        """Send a prompt in any form that `query` takes: text, blocks, or a whole user message.

        Raises:
            OptionsError: the prompt is invalid.
            ControlError: the session has stopped, or its input is closed.
        """
        uuid = uuid_of(prompt) or str(uuid4())
        line = encode_prompt(prompt, uuid, is_verbatim=self._cli.verbatim_prompts)
        return await self._send(uuid, line, None, self.deps)

    def show_as(self, owner: object) -> None:
        """Set the object that tools get. Call it before the session connects."""
        self._owner = weakref.ref(owner)
