"""Sessions and runs of a pool: they can use a process that was started before them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack

from bridle._engine.actions import Deliver, TurnEnded, Write
from bridle._engine.outgoing.operations import CHANGE_NOTHING
from bridle._process.config_directory import place_of, working_directory
from bridle._process.launch.plan import Launch
from bridle._process.parked import ParkedCli
from bridle._session.connection.connection import Connection
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.deps import PROMPTS
from bridle._session.parts.part import Part, Sees
from bridle._session.run import Run, TurnArguments
from bridle._session.session import InnerSession
from bridle.approvals import PendingApproval
from bridle.content import Content
from bridle.errors import (
    BridleError,
    CliExitedDuringInit,
    ControlError,
    ControlRejected,
    ControlTimeout,
    InitializationError,
    InitializationTimeout,
    StartError,
)
from bridle.messages import AssistantMessage, InitMessage, StatusMessage
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._loading import loaded_entries
from bridle.sessions._waiting_calls import waiting_in_files

_PING_TIMEOUT = 5.0
"""Seconds that an idle process has to respond before it is replaced."""

_NEW_RULES = b'"updatedPermissions"'
"""The member of a response to the CLI that changes permission rules."""

_SCHEDULING = frozenset({"CronCreate", "ScheduleWakeup"})
"""Tools with which the model lets the CLI start a turn by itself later."""

_HARMLESS = frozenset({"clear", "compact", "context", "usage"})
"""Slash commands that leave the options of a process as they are. All others may change them."""

_READY_TIMEOUT = 10.0
"""Seconds that a process which awaits a claim has to answer the handshake, even if its time for the
start is over. It runs nothing before the claim."""


class PoolPart(Part):
    """Claims the process of a pool, and knows whether the session has prompts."""

    def __init__(self) -> None:
        #: True once a prompt was sent, so that there is a conversation to resume.
        self.has_prompts = False
        #: Called before the first prompt is sent.
        self.before_prompts: Callable[[], Awaitable[None]] | None = None
        #: The start of a process that awaits a claim, and the seconds that it has to answer.
        self.claim: tuple[Launch, float] | None = None

    async def connected(self) -> None:
        """Claim a process that was started before."""
        if self.claim is None:
            return
        launch, timeout = self.claim
        try:
            fields = {"cwd": working_directory(launch)}
            await self.actor.submit("claim_session", fields, timeout)
        except ControlError as error:
            raise _not_claimed(error) from error

    async def sending(self, content: Content | bytes) -> None:
        """Save the conversation before its first prompt. A session that has ended rejects it."""
        if self.actor.is_alive and not self.has_prompts and self.before_prompts is not None:
            await self.before_prompts()

    def sent(self, uuid: str) -> None:
        """Note a prompt. One that is invalid or was cancelled in the queue is not sent."""
        if self.actor.subscriptions.has_turn(uuid):
            self.has_prompts = True


class Pooled:
    """What sessions and runs of a pool share: they can use a process that was started before."""

    def __init__(self, connection: Connection, part: PoolPart) -> None:
        self.connection = connection
        self.part = part

    @property
    def launch(self) -> Launch:
        """Return how the CLI is started."""
        return self.connection.launch

    def take(self, parked: ParkedCli) -> bool:
        """Use a process that was started before. Call it before the session connects.

        Return False if the process has other options than this session.
        """
        connection, launch = self.connection, launch_in(self.launch, parked.launch)
        if launch is None:
            return False
        connection.use(parked, launch)
        if launch.awaits_claim:
            timeout = connection.plan.sdk.init_timeout
            self.part.claim = launch, timeout
            connection.engine.init_timeout = max(timeout - parked.age, min(_READY_TIMEOUT, timeout))
        return True


def launch_in(launch: Launch, started: Launch) -> Launch | None:
    """Return how a session uses a process that was started before. None if it cannot."""
    found = launch.in_process_of(started)
    # A relative CLAUDE_CONFIG_DIR depends on the working directory.
    if found is None or place_of(found).config != place_of(started).config:
        return None
    return found


class Changes(Part):
    """Notes whether a process must not be kept for another caller.

    Either it may no longer have the options that it was started with, or it will start a turn by
    itself. Control requests are noted elsewhere.
    """

    def __init__(self, *, is_verbatim: bool) -> None:
        self._is_verbatim = is_verbatim
        self.is_changed = False
        self.has_schedule = False
        #: Called when a turn begins.
        self.on_turn: Callable[[], None] = lambda: None
        # The first values that the CLI has reported.
        self._reported: dict[str, str] = {}

    def sees(self) -> Sees:
        """See what is written, what is delivered, and how turns end."""
        return {Write: self._wrote, Deliver: self._delivered, TurnEnded: self._ended}

    def _wrote(self, action: Write) -> None:
        """Note a response that adds permission rules."""
        if _NEW_RULES in action.data:
            self.is_changed = True

    def _delivered(self, action: Deliver) -> None:
        """Note a scheduled turn, and a permission mode or model that differs from the first one.

        The CLI changes them by itself, for example if the model calls ExitPlanMode.
        """
        for message in action.messages:
            if isinstance(message, AssistantMessage):
                if any(getattr(block, "name", None) in _SCHEDULING for block in message.content):
                    self.has_schedule = True
            elif isinstance(message, InitMessage):
                self._note("model", message.model)
                self._note("permission_mode", message.permission_mode)
                self.on_turn()
            elif isinstance(message, StatusMessage):
                self._note("permission_mode", message.permission_mode)

    async def sending(self, content: Content | bytes) -> None:
        """Note a prompt with a slash command. An encoded prompt may have one."""
        if self._is_verbatim:
            return
        if isinstance(content, bytes) or any(map(_may_change, _texts(content))):
            self.is_changed = True

    def _ended(self, action: TurnEnded) -> None:
        """Note that the budget is used up. The CLI counts it for each process."""
        if action.outcome.reason is OutcomeReason.MAX_BUDGET:
            self.is_changed = True

    def _note(self, name: str, value: str | None) -> None:
        if value is not None and self._reported.setdefault(name, value) != value:
            self.is_changed = True


class PooledSession(Pooled):
    """A session of a pool, which more than one caller may use one after the other.

    Args:
        plan: the checked options.
        has_prompts: whether there is a conversation to resume.
        had_schedule: whether it had scheduled prompts. The CLI restores them when it resumes.
    """

    def __init__(
        self, plan: SessionPlan, *, has_prompts: bool = False, had_schedule: bool = False
    ) -> None:
        part, self._changes = PoolPart(), Changes(is_verbatim=plan.cli.verbatim_prompts)
        part.has_prompts = has_prompts
        super().__init__(Connection(plan, [self._changes, part]), part)
        self._had_schedule = had_schedule
        #: The session, as callers get it.
        self.session = InnerSession(self.connection)
        #: The object that tools get, if it is not the session.
        self.shown: object = None
        #: True once the store may have the conversation, because a first prompt was to be sent.
        self.is_saved = False

    async def connect(self) -> None:
        """Start the CLI, or claim the one that was started before.

        Raises:
            StartError: the session did not start. Its process is gone.
        """
        await self.connection.connect()

    async def aclose(self) -> None:
        """Shut down."""
        await self.connection.aclose()

    async def find_waiting(self) -> PendingApproval | None:
        """Return the call that waits in the conversation to resume. Starts nothing.

        Raises:
            StartError: the store or the transcript cannot be read.
        """
        plan = self.connection.plan
        store, session_id = plan.store, plan.cli.resume_session_id
        if store is not None and session_id is not None:
            timeout = plan.sdk.load_timeout
            loaded = await loaded_entries(store, session_id, self.launch, timeout)
            if loaded.entries:
                return loaded.waiting
        return await waiting_in_files(self.launch, plan.cli)

    async def is_healthy(self) -> bool:
        """Return True if the CLI responds."""
        try:
            timeout = self.connection.plan.sdk.control_timeout
            await self.session.ping(timeout=min(_PING_TIMEOUT, timeout))
        except ControlError:
            return False
        return True

    def lend(self, deps: Any) -> None:
        """Give the session to another caller, whose callbacks get ``deps``."""
        self.connection.deps = deps
        self.connection.actor.lend(deps)

    def has_prompts_of(self, options: ResolvedOptions) -> bool:
        """Return True if the session has the system prompts of these options."""
        cli = self.connection.plan.cli
        return all(getattr(cli, name) == getattr(options.cli, name) for name in PROMPTS)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call a function when the process of the session has ended."""
        self.connection.actor.gone.add_done_callback(lambda _: callback())

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call a function whenever a turn begins."""
        self._changes.on_turn = callback

    @property
    def has_schedule(self) -> bool:
        """Return True if the model has scheduled prompts in this conversation."""
        return self._had_schedule or self._changes.has_schedule

    def fail(self, error: BridleError) -> None:
        """End the session with this error."""
        self.connection.actor.fail(error)

    def may_stay(self) -> bool:
        """Return True if another caller may use the session.

        It works, no turn or background task runs, no turn is scheduled, no call waits for approval,
        and it has the options of the agent.
        """
        connection = self.connection
        if self.session.pending is not None:
            return False  # it takes no prompt, and `resume` needs another process
        if not connection.is_alive or not connection.engine.is_quiet or self.has_schedule:
            return False
        return connection.actor.operations <= CHANGE_NOTHING and not self._changes.is_changed


class PooledRun(Run):
    """A run of a pool."""

    # True if the run only has to shut down its process.
    _has_outcome = False

    def __init__(
        self,
        prompt: Content,
        options: ResolvedOptions,
        output_type: Any = None,
        **arguments: Unpack[TurnArguments],
    ) -> None:
        part = PoolPart()
        super().__init__(prompt, options, output_type, [part], **arguments)
        #: The connection, which can use a process that was started before.
        self.pooled = Pooled(self.connection, part)
        #: The object that tools get, if it is not the session.
        self.shown: object = None

    async def answer(self) -> Outcome[Any]:
        """Return the outcome of the turn, after the background work."""
        outcome = await super().answer()
        # After a crash, another process may continue.
        self._has_outcome = outcome.reason is not OutcomeReason.CLI_EXITED
        return outcome

    def give_up(self) -> bool:
        """Start no other process. Return True if the run has an outcome once it is closed."""
        self.connection.plan.retry = None
        return self._has_outcome or (self.connection.is_alive and self.turn is not None)


def _texts(content: Content) -> list[str]:
    """Return the texts of a prompt. The CLI looks for a slash command in one of them."""
    if isinstance(content, str):
        return [content]
    found = [
        one.get("text") if isinstance(one, Mapping) else getattr(one, "text", None)
        for one in content
    ]
    return [text for text in found if isinstance(text, str)]


def _may_change(text: str) -> bool:
    """Return True if this is a slash command that may change the options of the process."""
    first, *_ = text.split(maxsplit=1) or [""]
    return first.startswith("/") and first[1:] not in _HARMLESS


def _not_claimed(error: ControlError) -> StartError:
    """Return the error of a session whose claim failed."""
    failure: StartError = CliExitedDuringInit(str(error))
    if isinstance(error, ControlRejected):
        failure = InitializationError(error.message)
    elif isinstance(error, ControlTimeout):
        failure = InitializationTimeout(error.timeout)
    failure.with_process(error.process)
    return failure
