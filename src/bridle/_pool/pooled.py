"""Sessions and runs of a pool: they can use a process that was started before them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bridle._engine.actions import Deliver, TurnEnded, Write
from bridle._engine.outgoing.operations import CHANGE_NOTHING
from bridle._engine.turns.turn_records import Used
from bridle._process.config_directory import place_of, working_directory
from bridle._process.launch.plan import Launch
from bridle._process.parked import ParkedCli
from bridle._records.session_store import SessionStore
from bridle._session.deps import PROMPTS
from bridle._session.run import Run
from bridle._session.session import InnerSession
from bridle._session.turn import Turn
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


class Pooled(InnerSession):
    """What sessions and runs of a pool share."""

    #: The object that tools get, if it is not this one.
    shown: object = None
    #: True once a prompt was sent, so that there is a conversation to resume.
    has_prompts = False
    #: True once the store may have the conversation, because a first prompt was to be sent.
    is_saved = False
    #: Called before the first prompt is sent.
    before_prompts: Callable[[], Awaitable[None]] | None = None
    #: True if the conversation had scheduled prompts. The CLI restores them when it resumes.
    had_schedule = False
    #: Whether another caller may use the process.
    _changes: Changes | None = None

    @property
    def launch(self) -> Launch:
        """Return how the CLI is started."""
        return self._launch

    @property
    def store(self) -> SessionStore | None:
        """Return the store of the session."""
        return self._store

    def take(self, parked: ParkedCli) -> bool:
        """Use a process that was started before. Call it before the session connects.

        Return False if the process has other options than this session.
        """
        launch = self.launch_in(parked.launch)
        if launch is None:
            return False
        self._parked, self._launch = parked, launch
        self._engine.name_session(launch.session_id or "")
        if launch.awaits_claim:
            timeout = self._sdk.init_timeout
            self._engine.init_timeout = max(timeout - parked.age, min(_READY_TIMEOUT, timeout))
        return True

    def launch_in(self, started: Launch) -> Launch | None:
        """Return how the session uses a process that was started before. None if it cannot."""
        launch = self._launch.in_process_of(started)
        # A relative CLAUDE_CONFIG_DIR depends on the working directory.
        if launch is None or place_of(launch).config != place_of(started).config:
            return None
        return launch

    async def connect(self) -> None:
        """Start the CLI, or claim the one that was started before.

        Raises:
            StartError: the session did not start. Its process is gone.
        """
        await super().connect()
        if not self._launch.awaits_claim:
            return
        try:
            directory = working_directory(self._launch)
            await self._actor.submit("claim_session", {"cwd": directory}, self._sdk.init_timeout)
        except BaseException as error:
            await self.stop()
            if isinstance(error, ControlError):
                raise _not_claimed(error) from error
            raise

    async def find_waiting(self) -> PendingApproval | None:
        """Return the call that waits in the conversation to resume. Starts nothing.

        Raises:
            StartError: the store or the transcript cannot be read.
        """
        store, session_id = self._store, self._cli.resume_session_id
        if store is not None and session_id is not None:
            timeout = self._sdk.load_timeout
            loaded = await loaded_entries(store, session_id, self._launch, timeout)
            if loaded.entries:
                return loaded.waiting
        return await waiting_in_files(self._launch, self._cli)

    async def is_healthy(self) -> bool:
        """Return True if the CLI responds."""
        try:
            await self.ping(timeout=min(_PING_TIMEOUT, self._sdk.control_timeout))
        except ControlError:
            return False
        return True

    async def _send(
        self,
        uuid: str,
        content: Content | bytes,
        timeout: float | None,
        deps: Any,
        continues: str | None = None,
        used: Used | None = None,
    ) -> Turn:
        if self._changes is not None and not self._cli.verbatim_prompts:
            self._changes.sent(content)
        # A session that has ended rejects the prompt.
        if self.alive and not self.has_prompts and self.before_prompts is not None:
            await self.before_prompts()
        try:
            return await super()._send(uuid, content, timeout, deps, continues, used)
        finally:
            # A prompt that is invalid or was cancelled in the queue is not sent.
            if self._actor.subscriptions.has_turn(uuid):
                self.has_prompts = True

    def lend(self, deps: Any) -> None:
        """Give the session to another caller, whose callbacks get ``deps``."""
        self._deps = deps
        self._actor.lend(deps)

    def has_prompts_of(self, options: ResolvedOptions) -> bool:
        """Return True if the session has the system prompts of these options."""
        return all(getattr(self._cli, name) == getattr(options.cli, name) for name in PROMPTS)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call a function when the process of the session has ended."""
        self._actor.gone.add_done_callback(lambda _: callback())

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call a function whenever a turn begins. The session is connected."""
        if self._changes is not None:
            self._changes.on_turn = callback

    @property
    def has_schedule(self) -> bool:
        """Return True if the model has scheduled prompts in this conversation."""
        return self.had_schedule or (self._changes is not None and self._changes.has_schedule)

    def fail(self, error: BridleError) -> None:
        """End the session with this error."""
        self._actor.fail(error)

    def may_stay(self) -> bool:
        """Return True if another caller may use the session.

        It works, no turn or background task runs, no turn is scheduled, no call waits for approval,
        and it has the options of the agent.
        """
        if self.pending is not None:
            return False  # it takes no prompt, and `resume` needs another process
        if not self.alive or not self._engine.is_quiet or self.has_schedule:
            return False
        if not self._actor.operations <= CHANGE_NOTHING:
            return False
        return self._changes is None or not self._changes.is_changed


class Changes:
    """Notes whether a process must not be kept for another caller.

    Either it may no longer have the options that it was started with, or it will start a turn by
    itself. Control requests are noted elsewhere.
    """

    def __init__(self) -> None:
        self.is_changed = False
        self.has_schedule = False
        #: Called when a turn begins.
        self.on_turn: Callable[[], None] = lambda: None
        # The first values that the CLI has reported.
        self._reported: dict[str, str] = {}

    def wrote(self, action: Write) -> None:
        """Note a response that adds permission rules."""
        if _NEW_RULES in action.data:
            self.is_changed = True

    def delivered(self, action: Deliver) -> None:
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

    def sent(self, content: Content | bytes) -> None:
        """Note a prompt with a slash command. An encoded prompt may have one."""
        if isinstance(content, bytes) or any(map(_may_change, _texts(content))):
            self.is_changed = True

    def ended(self, action: TurnEnded) -> None:
        """Note that the budget is used up. The CLI counts it for each process."""
        if action.outcome.reason is OutcomeReason.MAX_BUDGET:
            self.is_changed = True

    def _note(self, name: str, value: str | None) -> None:
        if value is not None and self._reported.setdefault(name, value) != value:
            self.is_changed = True


class PooledSession(Pooled):
    """A session of a pool."""

    async def connect(self) -> None:
        """Start the CLI, and note whether its options change."""
        changes = self._changes = Changes()
        self._actor.before(Write, changes.wrote)
        self._actor.before(Deliver, changes.delivered)
        self._actor.before(TurnEnded, changes.ended)
        await super().connect()


class PooledRun(Pooled, Run):
    """A run of a pool."""

    # True if the run only has to shut down its process.
    _has_outcome = False

    async def answer(self) -> Outcome[Any]:
        """Return the outcome of the turn, after the background work."""
        outcome = await super().answer()
        # After a crash, another process may continue.
        self._has_outcome = outcome.reason is not OutcomeReason.CLI_EXITED
        return outcome

    def give_up(self) -> bool:
        """Start no other process. Return True if the run has an outcome once it is closed."""
        self._retry = None
        return self._has_outcome or (self.alive and self.turn is not None)


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
