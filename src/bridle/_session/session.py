"""The asyncio session: sends prompts and requests to the CLI while it receives messages."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack
from uuid import uuid4

from bridle._engine.delivery.text_stream import TextStream
from bridle._engine.engine import Engine
from bridle._engine.outgoing.operations import APPLY_FLAG_SETTINGS, MCP_SET_SERVERS, check_timeout
from bridle._engine.outgoing.prompts import encode_prompt, uuid_of
from bridle._engine.state import Lifecycle
from bridle._engine.wire.codec import decode_reply
from bridle._observe.known_secrets import clean, clean_problems
from bridle._process.launch.plan import ask_rules
from bridle._session.actor import Actor
from bridle._session.changes.settings import FlagSettings
from bridle._session.connection.connection import Connection
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.not_given import NOT_GIVEN, given_or
from bridle._session.preflight import (
    settle_keywords,
)
from bridle._session.readers.subscription import Subscription, TextPieces
from bridle._session.turn import Turn
from bridle.approvals import PendingApproval
from bridle.content import Content
from bridle.controls import McpServerChanges
from bridle.errors import ControlRejected
from bridle.events import SessionEvent, Update
from bridle.messages import LiveTask, Message
from bridle.operations import OperationGroups
from bridle.options import BidirOptions, CliOptions, SdkOptions
from bridle.options._keyword_types import Options
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import SessionUsage
from bridle.tools import ToolServer

if TYPE_CHECKING:
    pass

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
        self._adopt(Connection(SessionPlan(settled, deps, output_type, output_retries)))

    def _adopt(self, connection: Connection) -> None:
        self._connection = connection
        connection.owner = weakref.ref(self)

    # -- starting ----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Start the CLI and wait until the session is running.

        Raises:
            StartError: the session did not start. Its processes, files and tasks are removed.
            UsageError: ``connect`` was already called.

        Cancellation: stops the session.
        """
        await self._connection.connect()

    @property
    def _actor(self) -> Actor:
        return self._connection.actor

    @property
    def _connecting(self) -> bool:
        return self._connection.is_connecting

    @property
    def _engine(self) -> Engine:
        return self._connection.engine

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
        return self._connection.deps

    @property
    def pid(self) -> int | None:
        """Return the process id of the CLI, or None if it was not started."""
        return self._connection.pid

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the state: ``starting``, ``init_sent``, ``running``, ``stopped`` or ``failed``."""
        return self._engine.lifecycle

    @property
    def alive(self) -> bool:
        """Return True while the session can be used."""
        return self._connection.is_alive

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
        return await self._connection.send(str(uuid4()), content, timeout, deps)

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
        plan = self._connection.plan
        rules = ask_rules(plan.bidir.tool_servers())
        return FlagSettings(rules, self._actor.submit, self._rejected, plan.sdk.control_timeout)

    def _rejected(self, operation: str, message: str) -> ControlRejected:
        """Return the error for an operation that the CLI did not carry out."""
        error, engine = ControlRejected(operation, None, message), self._engine
        clean(error.with_process(engine.state.describe()), self._connection.secrets.redact)
        return error

    async def _change_servers(
        self, changes: Mapping[str, object], *, replace: bool, timeout: float | None
    ) -> McpServerChanges:
        secrets = self._connection.secrets
        rules = ask_rules(
            {name: one for name, one in changes.items() if isinstance(one, ToolServer)}
        )

        async def send(servers: Mapping[str, object]) -> McpServerChanges:
            nonlocal rules
            secrets.learn(servers)
            if rules:
                # Before the server is there, so that none of its tools runs unasked.
                wanted, rules = rules, []
                await self._flag_settings.add_rules(wanted, timeout)
            payload = await self.control(MCP_SET_SERVERS.subtype, timeout=timeout, servers=servers)
            return decode_reply(MCP_SET_SERVERS.reply, clean_problems(payload, secrets.redact))

        return await self._connection.servers.change(
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
        await self._connection.stop()

    async def aclose(self) -> None:
        """Shut down the session.

        Interrupt a running turn, reject pending requests of the CLI, close its input, and give it
        five seconds to write its transcript. Then continue as :meth:`stop`.

        Cancellation: the session shuts down even if the wait is cancelled.
        """
        await self._connection.aclose()

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
    """A session with a connection of its own kind. It may be part of another object.

    Tools then get that object as `ToolContext.session`.
    """

    def __init__(self, connection: Connection) -> None:
        self._adopt(connection)

    @classmethod
    def make(
        cls,
        options: ResolvedOptions,
        deps: Any = None,
        output_type: Any = None,
        output_retries: int = 1,
    ) -> InnerSession:
        """Return a session with options that are resolved already.

        Raises:
            OptionsError: an option is invalid, or contradicts another one.
        """
        return InnerSession(Connection(SessionPlan(options, deps, output_type, output_retries)))

    @property
    def connection(self) -> Connection:
        """Return the connection to the CLI."""
        return self._connection

    async def send_prompt(self, prompt: object) -> Turn:
        """Send a prompt in any form that `query` takes: text, blocks, or a whole user message.

        Raises:
            OptionsError: the prompt is invalid.
            ControlError: the session has stopped, or its input is closed.
        """
        uuid, connection = uuid_of(prompt) or str(uuid4()), self._connection
        line = encode_prompt(prompt, uuid, is_verbatim=connection.plan.cli.verbatim_prompts)
        return await connection.send(uuid, line, None, self.deps)

    def show_as(self, owner: object) -> None:
        """Set the object that tools get. Call it before the session connects."""
        self._connection.owner = weakref.ref(owner)
